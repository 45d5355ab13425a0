"""Kernels in PTX: one tile from memory to memory, or registers in, registers out.

Raw kernels of products all take the same parameters: pointers to D, A, B, C, metadata, scales of A and of B, each
uint32[cases][lanes][words] in global memory, and the number of cases. Pointers that an instruction does not use may be
null. Launch blocks of whole warps, a warp for each case. Kernels of a single move, and those of one tile, are for one
warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.codegen.matrix_copies import described_orders, kernel_copies, memory_orders
from warpfrag.codegen.memory_indexing import contiguous_strides, extents
from warpfrag.codegen.ptx_builder import WARP_BARRIER, PtxBuilder, dynamic_shared, vector
from warpfrag.codegen.ptx_functions import call_moves, declare_operand, matrix_parameters, move_function, move_registers
from warpfrag.codegen.statement import (
    ROLES,
    choices,
    immediates,
    memory_instruction,
    raw_name,
    registers,
    shared_kernel_name,
    state_space,
    statement,
    threads,
    tile_name,
)
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.isa.legality import check_immediates
from warpfrag.plans.matrix_accesses import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.codegen.matrix_copies import SharedCopy
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers

DYNAMIC = "dynamic_shared"  # the name of dynamic shared memory
RAW_PARAMETERS = {**dict.fromkeys(ROLES, ".u64"), "cases": ".u32"}


def mma_functions(instruction: Instruction) -> list[str]:
    """A load or store of one register of every operand."""
    lines = []
    for operand in registers(instruction).values():
        lines += move_function(instruction, operand)
    return lines


def mma_kernels(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """A tile kernel and a raw one for every selector, and one for each path through shared memory."""
    lines = []
    for choice in choices(instruction):
        lines += tile_kernel(instruction, choice)
        lines += raw_kernel(instruction, choice)
    for copies in kernel_copies(instruction, targets):
        lines += shared_kernel(instruction, copies)
    return lines


def wmma_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """A tile kernel for each memory order of C and D, and the raw one."""
    return [*wmma_tile(instruction, "row"), *wmma_tile(instruction, "col"), *raw_kernel(instruction)]


def wmma_move_declarations(instruction: Instruction) -> list[str]:
    """Dynamic shared memory, for a move that goes through it."""
    return [dynamic_shared(DYNAMIC, 32)] if state_space(instruction) == "shared" else []


def raw_kernel(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES) -> list[str]:
    """The raw kernel of a product."""
    check_immediates(instruction.form, choice, instruction.operands.selected_layouts)
    code = PtxBuilder()
    code.comment("a warp is a case, a thread a lane of it")
    position = {name: code.compute("position", "mov.u32", f"%{name}.x") for name in ("ctaid", "ntid", "tid")}
    thread = code.compute("thread", "mad.lo.u32", position["ctaid"], position["ntid"], position["tid"])
    case = code.compute("case", "shr.u32", thread, threads(instruction).bit_length() - 1)
    cases = code.load_parameter("cases", ".u32")
    outside = code.declare("outside", ".pred")
    code.emit(f"setp.ge.u32 {outside}, {case}, {cases}")
    code.emit(f"@{outside} ret")
    names = {}
    for role, operand in registers(instruction).items():
        names[role] = declare_operand(code, f"{role}_" if len(role) > 1 else role, operand)
        if role != "d":
            move_registers(code, role, operand, names[role], thread, "ld")
    code.emit(statement(instruction, names, immediates(instruction, choice)))
    move_registers(code, "d", instruction.operands["d"], names["d"], thread, "st")
    return [f"// {instruction.name}", *code.entry(raw_name(instruction, choice), RAW_PARAMETERS)]


def tile_kernel(instruction: Instruction, choice: Immediates) -> list[str]:
    """One tile from memory to memory, with one warp."""
    code = PtxBuilder()
    names: dict[str, list[str]] = {}
    places: dict[str, list[str]] = {}
    parameters: dict[str, str] = {}
    for role, operand in registers(instruction).items():
        own, loaded = matrix_parameters(code, {role: operand})
        parameters |= own
        places |= loaded
        names[role] = declare_operand(code, f"{role}_", operand)
        if role != "d":
            call_moves(code, instruction, operand, names[role], places[role])
    code.emit(statement(instruction, names, immediates(instruction, choice)))
    call_moves(code, instruction, instruction.operands["d"], names["d"], places["d"])
    comment = f"// {instruction.name}: one tile from memory to memory, with one warp"
    return [comment, *code.entry(tile_name(instruction, choice), parameters)]


def shared_kernel(instruction: Instruction, copies: dict[str, SharedCopy]) -> list[str]:
    """One tile through shared memory; in memory, without gaps, in the orders that the copies name."""
    code, names = PtxBuilder(), {}
    orders = memory_orders(copies)
    lane = code.compute("lane", "mov.u32", "%laneid")
    pointers = {role: code.load_parameter(role, ".u64") for role in registers(instruction)}
    for role, operand in registers(instruction).items():
        names[role] = declare_operand(code, f"{role}_", operand)
        if role in copies:
            code.declare_shared(f"shared_{role}", _bytes(operand, copies[role]))
    for role, operand in registers(instruction).items():
        if role == "d":
            continue
        if role not in copies:
            steps = map(str, contiguous_strides(operand, orders[role]))
            call_moves(code, instruction, operand, names[role], [pointers[role], *steps])
            continue
        copy = copies[role]
        _copy_words(code, lane, pointers[role], operand, copy)
        address = _line_address(code, lane, copy, operand)
        code.emit(statement(copy.matrix_move, {"d": names[role]}, address=address))
        for word in names[role] if copy.shift else ():
            code.emit(f"shl.b32 {word}, {word}, {copy.shift}")
    code.emit(statement(instruction, names, immediates(instruction, DEFAULT_IMMEDIATES)))
    operand = instruction.operands["d"]
    if "d" in copies:
        address = _line_address(code, lane, copies["d"], operand)
        code.emit(
            statement(copies["d"].matrix_move, {moved(copies["d"].matrix_move).role: names["d"]}, address=address)
        )
        _copy_words(code, lane, pointers["d"], operand, copies["d"])
    else:
        steps = map(str, contiguous_strides(operand))
        call_moves(code, instruction, operand, names["d"], [pointers["d"], *steps])
    order = described_orders(orders)
    comment = f"// {instruction.name}: one tile through shared memory; in memory, without gaps: {order}"
    return [comment, *code.entry(shared_kernel_name(instruction, orders), dict.fromkeys(pointers, ".u64"))]


def _bytes(operand: Registers, copy: SharedCopy) -> int:
    rows, cols = extents(operand)
    return rows * cols * copy.memory_bits // 8


def _copy_words(code: PtxBuilder, lane: str, pointer: str, operand: Registers, copy: SharedCopy) -> None:
    """The tile of an operand between global and shared memory, a word per lane at a time; D leaves shared memory."""
    to_shared = operand.role != "d"
    size, line = _bytes(operand, copy), 4 * operand.layout.lanes
    if not to_shared:
        code.emit(WARP_BARRIER)
    shared = code.compute("shared", "mov.u32", f"shared_{operand.role}")
    shared = code.compute("shared", "mad.lo.u32", lane, 4, shared)
    place = code.compute("global", "mad.wide.u32", lane, 4, pointer)
    word = code.declare("word")
    inside = code.declare("inside", ".pred")
    for start in range(0, size, line):
        if size - start < line:
            code.emit(f"setp.lt.u32 {inside}, {lane}, {(size - start) // 4}")
            guard = f"@{inside} "
        else:
            guard = ""
        _copy_word(code, word, f"{place} + {start}", f"{shared} + {start}", to_shared=to_shared, guard=guard)
    if to_shared:
        code.emit(WARP_BARRIER)


def _copy_word(code: PtxBuilder, word: str, place: str, shared: str, *, to_shared: bool, guard: str = "") -> None:
    """A word from global to shared memory, or back."""
    ends = (("global", place), ("shared", shared))
    (source, at), (target, to) = ends if to_shared else ends[::-1]
    code.emit(f"{guard}ld.{source}.b32 {word}, [{at}]")
    code.emit(f"{guard}st.{target}.b32 [{to}], {word}")


def _line_address(code: PtxBuilder, lane: str, copy: SharedCopy, operand: Registers) -> str:
    """The address of the 16 bytes that this lane gives."""
    row, col = (code.evaluate(dim, formula, {"lane": lane}) for dim, formula in copy.formulas.items())
    ld = max(contiguous_strides(operand, copy.order))
    line, inside = (row, col) if copy.order == "row" else (col, row)
    index = code.compute("index", "mad.lo.s32", line, ld, inside)
    if copy.memory_bits >= 8:
        offset = code.compute("offset", "mul.lo.s32", index, copy.memory_bits // 8)
    else:
        offset = code.compute("offset", "shr.u32", index, (8 // copy.memory_bits).bit_length() - 1)
    shared = code.compute("shared", "mov.u32", f"shared_{operand.role}")
    return code.compute("line", "add.s32", shared, offset)


def wmma_tile(instruction: Instruction, layout: str) -> list[str]:
    """One tile of a wmma.mma from memory to memory; A and B have the memory layout that the instruction names."""
    code = PtxBuilder()
    layouts = dict(zip("ab", instruction.layouts, strict=True)) | {"c": layout, "d": layout}
    kinds = {f"{role}{part}": kind for role in "dabc" for part, kind in (("", ".u64"), ("_stride", ".u32"))}
    values = {name: code.load_parameter(name, kind) for name, kind in kinds.items()}
    names = {role: declare_operand(code, f"{role}_", instruction.operands[role]) for role in "dabc"}

    def move(role: str) -> None:
        access = memory_instruction(instruction, role, layouts[role], "global")
        words = {role: names[role]}
        code.emit(statement(access, words, address=values[role], stride=values[f"{role}_stride"]))

    for role in "abc":
        move(role)
    code.emit(statement(instruction, names))
    move("d")
    comment = f"// {instruction.name}: one tile from memory to memory, C and D {layout} major"
    return [comment, *code.entry(tile_name(instruction, order=layout), kinds)]


def wmma_move_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """A wmma.load or wmma.store by itself: between memory and raw registers, uint32[lanes][words]."""
    code = PtxBuilder()
    ((role, operand),) = instruction.operands.items()
    kinds = {"registers": ".u64", "memory": ".u64", "stride": ".u32"}
    memory, stride = (code.load_parameter(name, kinds[name]) for name in ("memory", "stride"))
    lane = code.compute("lane", "mov.u32", "%laneid")
    words = declare_operand(code, f"{role}_", operand)
    comment = f"// {instruction.name}"
    address, bytes_moved = memory, ""
    if state_space(instruction) == "shared":
        comment += "\n// The first `bytes` of memory pass through as much dynamic shared memory."
        kinds["bytes"] = ".u32"
        bytes_moved = code.load_parameter("bytes", ".u32")
        address = code.compute("tile", "mov.u32", DYNAMIC)
        _copy_bytes(code, lane, memory, address, bytes_moved, to_shared=True)
    text = statement(instruction, {role: words}, address=address, stride=stride).rstrip(";")
    if role == "d":
        move_registers(code, "registers", operand, words, lane, "ld")
        code.emit(text)
        if bytes_moved:
            _copy_bytes(code, lane, memory, address, bytes_moved, to_shared=False)
    else:
        code.emit(text)
        move_registers(code, "registers", operand, words, lane, "st")
    return [comment, *code.entry(raw_name(instruction), kinds)]


def _copy_bytes(code: PtxBuilder, lane: str, memory: str, tile: str, count: str, *, to_shared: bool) -> None:
    """Some bytes, of a number known at launch, between global and shared memory, a word per lane at a time."""
    again, done = f"COPY_{'IN' if to_shared else 'OUT'}", f"COPIED_{'IN' if to_shared else 'OUT'}"
    if not to_shared:
        code.emit(WARP_BARRIER)
    at = code.compute("at", "mul.lo.u32", lane, 4)
    word, outside = code.declare("word"), code.declare("outside", ".pred")
    code.label(again)
    code.emit(f"setp.ge.u32 {outside}, {at}, {count}")
    code.emit(f"@{outside} bra {done}")
    shared = code.compute("shared", "add.u32", tile, at)
    place = code.compute("global", "mad.wide.u32", at, 1, memory)
    _copy_word(code, word, place, shared, to_shared=to_shared)
    code.emit(f"add.u32 {at}, {at}, 128")
    code.emit(f"bra {again}")
    code.label(done)
    if to_shared:
        code.emit(WARP_BARRIER)


def matrix_move_kernels(instruction: Instruction, _targets: Sequence[str]) -> list[str]:
    """ldmatrix, stmatrix or movmatrix by itself: what one does.

    `a` and `d` are registers, uint32[lanes][words], or the 16 bytes to which each lane points, uint32[lanes][4].
    """
    code = PtxBuilder()
    lane = code.compute("lane", "mov.u32", "%laneid")
    operands = registers(instruction)
    names = {role: declare_operand(code, f"{role}_", operand) for role, operand in operands.items()}
    line = ""
    if instruction.op != "movmatrix":
        code.declare_shared("lines", 16 * threads(instruction))
        start = code.compute("line", "mov.u32", "lines")
        line = code.compute("line", "mad.lo.u32", lane, 16, start)
    address = line
    if state_space(instruction) == "" and line:
        wide = code.compute("wide", "mad.wide.u32", line, 1, 0)
        address = code.compute("generic", "cvta.shared.u64", wide)
    if "a" in operands:
        move_registers(code, "a", operands["a"], names["a"], lane, "ld")
    if instruction.op != "movmatrix":
        # what stmatrix does not write stays as it was
        _move_line(code, "a" if instruction.op == "ldmatrix" else "d", lane, line, to_shared=True)
        code.emit(WARP_BARRIER)
    code.emit(statement(instruction, names, address=address))
    if "d" in operands:
        move_registers(code, "d", operands["d"], names["d"], lane, "st")
    else:
        code.emit(WARP_BARRIER)
        _move_line(code, "d", lane, line, to_shared=False)
    return [f"// {instruction.name}", *code.entry(raw_name(instruction), {"d": ".u64", "a": ".u64"})]


def _move_line(code: PtxBuilder, name: str, lane: str, line: str, *, to_shared: bool) -> None:
    """The 16 bytes of this lane, between global and shared memory."""
    pointer = code.compute("line_at", "mad.wide.u32", lane, 16, code.load_parameter(name, ".u64"))
    words = [code.declare("word") for _ in range(4)]
    line_words = vector(words)
    if to_shared:
        code.emit(f"ld.global.v4.b32 {line_words}, [{pointer}]")
        code.emit(f"st.shared.v4.b32 [{line}], {line_words}")
    else:
        code.emit(f"ld.shared.v4.b32 {line_words}, [{line}]")
        code.emit(f"st.global.v4.b32 [{pointer}], {line_words}")
