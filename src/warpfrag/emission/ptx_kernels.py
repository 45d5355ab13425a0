"""Kernels in PTX: one tile from memory to memory, or registers in, registers out.

Raw kernels of products all take the same parameters: pointers to D, A, B, C, metadata, scales of A and of B, each
uint32[cases][lanes][words] in global memory, and the number of cases. Pointers that an instruction does not use may be
null. Launch blocks of whole warps, a warp for each case. Kernels of a single move, and those of one tile, are for one
warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission.ptx_functions import call_moves
from warpfrag.emission.ptx_syntax import Body, entry, load_parameter, register_type, width
from warpfrag.emission.shared import described_orders, kernel_copies, memory_orders
from warpfrag.emission.statement import (
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
from warpfrag.emission.strides import contiguous_strides, extents, stride_names
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.isa.legality import check_immediates
from warpfrag.motion.lines import moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.emission.shared import SharedCopy
    from warpfrag.execution.operand import Registers
    from warpfrag.isa.immediates import Immediates

DYNAMIC = "dynamic_shared"  # the name of dynamic shared memory, which a module declares once
RAW_PARAMETERS = {**dict.fromkeys(ROLES, ".u64"), "cases": ".u32"}


def kernels(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Every kernel of one instruction, with what these targets have."""
    if instruction.op == "wmma.mma":
        return [*wmma_tile(instruction, "row"), *wmma_tile(instruction, "col"), *raw_kernel(instruction)]
    if instruction.form.is_wmma:
        return wmma_move(instruction)
    if not instruction.form.is_product:
        return mover_kernel(instruction)
    lines = []
    for choice in choices(instruction):
        lines += tile_kernel(instruction, choice)
        lines += raw_kernel(instruction, choice)
    for chosen in kernel_copies(instruction, targets):
        lines += shared_kernel(instruction, chosen)
    return lines


def raw_kernel(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES) -> list[str]:
    """The raw kernel of a product."""
    check_immediates(instruction.form, choice, instruction.operands.selected_layouts)
    body = Body()
    body.say("a warp is a case, a thread a lane of it")
    position = {name: body.compute("position", "mov.u32", f"%{name}.x") for name in ("ctaid", "ntid", "tid")}
    thread = body.compute("thread", "mad.lo.u32", position["ctaid"], position["ntid"], position["tid"])
    case = body.compute("case", "shr.u32", thread, threads(instruction).bit_length() - 1)
    cases = load_parameter(body, "cases", ".u32")
    outside = body.new("outside", ".pred")
    body.do(f"setp.ge.u32 {outside}, {case}, {cases}")
    body.do(f"@{outside} ret")
    names = {}
    for role, operand in registers(instruction).items():
        names[role] = body.vector(f"{role}_" if len(role) > 1 else role, operand)
        if role != "d":
            _move_registers(body, role, operand, names[role], thread, "ld")
    body.do(statement(instruction, names, immediates(instruction, choice)).rstrip(";"))
    _move_registers(body, "d", instruction.operands["d"], names["d"], thread, "st")
    return [f"// {instruction.name}", *entry(raw_name(instruction, choice), RAW_PARAMETERS, body)]


def _move_registers(body: Body, name: str, operand: Registers, words: list[str], thread: str, operation: str) -> None:
    """Load or store the registers of an operand, those of one thread after those of another."""
    size = width(register_type(operand))
    pointer = load_parameter(body, name, ".u64")
    pointer = body.compute(f"{name}_at", "mad.wide.u32", thread, size * operand.regs, pointer)
    for reg, word in enumerate(words):
        place = f"[{pointer} + {size * reg}]"
        body.do(f"{operation}.global.b{8 * size} {', '.join([word, place] if operation == 'ld' else [place, word])}")


def tile_kernel(instruction: Instruction, choice: Immediates) -> list[str]:
    """One tile from memory to memory, with one warp."""
    body, names, places = Body(), {}, {}
    parameters: dict[str, str] = {}
    for role, operand in registers(instruction).items():
        own = {role: ".u64", **dict.fromkeys(stride_names(operand, f"{role}_"), ".u32")}
        parameters |= own
        places[role] = [load_parameter(body, name, kind) for name, kind in own.items()]
        names[role] = body.vector(f"{role}_", operand)
        if role != "d":
            call_moves(body, instruction, operand, names[role], places[role])
    body.do(statement(instruction, names, immediates(instruction, choice)).rstrip(";"))
    call_moves(body, instruction, instruction.operands["d"], names["d"], places["d"])
    comment = f"// {instruction.name}: one tile from memory to memory, with one warp"
    return [comment, *entry(tile_name(instruction, choice), parameters, body)]


def shared_kernel(instruction: Instruction, chosen: dict[str, SharedCopy]) -> list[str]:
    """One tile through shared memory; in memory, without gaps, in the orders that the copies name."""
    body, names = Body(), {}
    orders = memory_orders(chosen)
    lane = body.compute("lane", "mov.u32", "%laneid")
    pointers = {role: load_parameter(body, role, ".u64") for role in registers(instruction)}
    for role, operand in registers(instruction).items():
        names[role] = body.vector(f"{role}_", operand)
        if role in chosen:
            body.shared(f"shared_{role}", _bytes(operand, chosen[role]))
    for role, operand in registers(instruction).items():
        if role == "d":
            continue
        if role not in chosen:
            steps = map(str, contiguous_strides(operand, orders[role]))
            call_moves(body, instruction, operand, names[role], [pointers[role], *steps])
            continue
        copy = chosen[role]
        _copy_words(body, lane, pointers[role], operand, copy)
        address = _line_address(body, lane, copy, operand)
        body.do(statement(copy.mover, {"d": names[role]}, address=address).rstrip(";"))
        for word in names[role] if copy.shift else ():
            body.do(f"shl.b32 {word}, {word}, {copy.shift}")
    body.do(statement(instruction, names, immediates(instruction, DEFAULT_IMMEDIATES)).rstrip(";"))
    operand = instruction.operands["d"]
    if "d" in chosen:
        address = _line_address(body, lane, chosen["d"], operand)
        body.do(statement(chosen["d"].mover, {moved(chosen["d"].mover).role: names["d"]}, address=address).rstrip(";"))
        _copy_words(body, lane, pointers["d"], operand, chosen["d"])
    else:
        steps = map(str, contiguous_strides(operand))
        call_moves(body, instruction, operand, names["d"], [pointers["d"], *steps])
    order = described_orders(orders)
    comment = f"// {instruction.name}: one tile through shared memory; in memory, without gaps: {order}"
    return [comment, *entry(shared_kernel_name(instruction, orders), dict.fromkeys(pointers, ".u64"), body)]


def _bytes(operand: Registers, copy: SharedCopy) -> int:
    rows, cols = extents(operand)
    return rows * cols * copy.memory_bits // 8


def _copy_words(body: Body, lane: str, pointer: str, operand: Registers, copy: SharedCopy) -> None:
    """The tile of an operand between global and shared memory, a word per lane at a time; D leaves shared memory."""
    to_shared = operand.role != "d"
    size, line = _bytes(operand, copy), 4 * operand.layout.lanes
    if not to_shared:
        body.do("bar.warp.sync 0xffffffff")
    shared = body.compute("shared", "mov.u32", f"shared_{operand.role}")
    shared = body.compute("shared", "mad.lo.u32", lane, 4, shared)
    place = body.compute("global", "mad.wide.u32", lane, 4, pointer)
    word = body.new("word")
    inside = body.new("inside", ".pred")
    for start in range(0, size, line):
        if size - start < line:
            body.do(f"setp.lt.u32 {inside}, {lane}, {(size - start) // 4}")
            guard = f"@{inside} "
        else:
            guard = ""
        if to_shared:
            body.do(f"{guard}ld.global.b32 {word}, [{place} + {start}]")
            body.do(f"{guard}st.shared.b32 [{shared} + {start}], {word}")
        else:
            body.do(f"{guard}ld.shared.b32 {word}, [{shared} + {start}]")
            body.do(f"{guard}st.global.b32 [{place} + {start}], {word}")
    if to_shared:
        body.do("bar.warp.sync 0xffffffff")


def _line_address(body: Body, lane: str, copy: SharedCopy, operand: Registers) -> str:
    """The address of the 16 bytes that this lane gives."""
    row, col = (body.formula(dim, formula, {"lane": lane}) for dim, formula in copy.formulas.items())
    ld = max(contiguous_strides(operand, copy.order))
    line, inside = (row, col) if copy.order == "row" else (col, row)
    index = body.compute("index", "mad.lo.s32", line, ld, inside)
    if copy.memory_bits >= 8:
        offset = body.compute("offset", "mul.lo.s32", index, copy.memory_bits // 8)
    else:
        offset = body.compute("offset", "shr.u32", index, (8 // copy.memory_bits).bit_length() - 1)
    shared = body.compute("shared", "mov.u32", f"shared_{operand.role}")
    return body.compute("line", "add.s32", shared, offset)


def wmma_tile(instruction: Instruction, layout: str) -> list[str]:
    """One tile of a wmma.mma from memory to memory; A and B have the memory layout that the instruction names."""
    body = Body()
    layouts = dict(zip("ab", instruction.layouts, strict=True)) | {"c": layout, "d": layout}
    kinds = {f"{role}{part}": kind for role in "dabc" for part, kind in (("", ".u64"), ("_stride", ".u32"))}
    given = {name: load_parameter(body, name, kind) for name, kind in kinds.items()}
    names = {role: body.vector(f"{role}_", instruction.operands[role]) for role in "dabc"}

    def move(role: str) -> None:
        mover = memory_instruction(instruction, role, layouts[role], "global")
        words = {role: names[role]}
        body.do(statement(mover, words, address=given[role], stride=given[f"{role}_stride"]).rstrip(";"))

    for role in "abc":
        move(role)
    body.do(statement(instruction, names).rstrip(";"))
    move("d")
    comment = f"// {instruction.name}: one tile from memory to memory, C and D {layout} major"
    return [comment, *entry(tile_name(instruction, order=layout), kinds, body)]


def wmma_move(instruction: Instruction) -> list[str]:
    """A wmma.load or wmma.store by itself: between memory and raw registers, uint32[lanes][words]."""
    body = Body()
    role = instruction.op[-1]
    operand = instruction.operands[role]
    kinds = {"registers": ".u64", "memory": ".u64", "stride": ".u32"}
    memory, stride = (load_parameter(body, name, kinds[name]) for name in ("memory", "stride"))
    lane = body.compute("lane", "mov.u32", "%laneid")
    words = body.vector(f"{role}_", operand)
    comment = f"// {instruction.name}"
    address, bytes_moved = memory, ""
    if state_space(instruction) == "shared":
        comment += "\n// The first `bytes` of memory pass through as much dynamic shared memory."
        kinds["bytes"] = ".u32"
        bytes_moved = load_parameter(body, "bytes", ".u32")
        address = body.compute("tile", "mov.u32", DYNAMIC)
        _copy_bytes(body, lane, memory, address, bytes_moved, to_shared=True)
    text = statement(instruction, {role: words}, address=address, stride=stride).rstrip(";")
    if role == "d":
        _move_registers(body, "registers", operand, words, lane, "ld")
        body.do(text)
        if bytes_moved:
            _copy_bytes(body, lane, memory, address, bytes_moved, to_shared=False)
    else:
        body.do(text)
        _move_registers(body, "registers", operand, words, lane, "st")
    return [comment, *entry(raw_name(instruction), kinds, body)]


def _copy_bytes(body: Body, lane: str, memory: str, tile: str, count: str, *, to_shared: bool) -> None:
    """Some bytes, of a number known at launch, between global and shared memory, a word per lane at a time."""
    again, done = f"COPY_{'IN' if to_shared else 'OUT'}", f"COPIED_{'IN' if to_shared else 'OUT'}"
    if not to_shared:
        body.do("bar.warp.sync 0xffffffff")
    at = body.compute("at", "mul.lo.u32", lane, 4)
    word, outside = body.new("word"), body.new("outside", ".pred")
    body.label(again)
    body.do(f"setp.ge.u32 {outside}, {at}, {count}")
    body.do(f"@{outside} bra {done}")
    shared = body.compute("shared", "add.u32", tile, at)
    place = body.compute("global", "mad.wide.u32", at, 1, memory)
    if to_shared:
        body.do(f"ld.global.b32 {word}, [{place}]")
        body.do(f"st.shared.b32 [{shared}], {word}")
    else:
        body.do(f"ld.shared.b32 {word}, [{shared}]")
        body.do(f"st.global.b32 [{place}], {word}")
    body.do(f"add.u32 {at}, {at}, 128")
    body.do(f"bra {again}")
    body.label(done)
    if to_shared:
        body.do("bar.warp.sync 0xffffffff")


def mover_kernel(instruction: Instruction) -> list[str]:
    """ldmatrix, stmatrix or movmatrix by itself: what one does.

    `a` and `d` are registers, uint32[lanes][words], or the 16 bytes to which each lane points, uint32[lanes][4].
    """
    body = Body()
    lane = body.compute("lane", "mov.u32", "%laneid")
    operands = registers(instruction)
    names = {role: body.vector(f"{role}_", operand) for role, operand in operands.items()}
    line = ""
    if instruction.op != "movmatrix":
        body.shared("lines", 16 * threads(instruction))
        start = body.compute("line", "mov.u32", "lines")
        line = body.compute("line", "mad.lo.u32", lane, 16, start)
    address = line
    if state_space(instruction) == "" and line:
        wide = body.compute("wide", "mad.wide.u32", line, 1, 0)
        address = body.compute("generic", "cvta.shared.u64", wide)
    if "a" in operands:
        _move_registers(body, "a", operands["a"], names["a"], lane, "ld")
    if instruction.op != "movmatrix":
        # what stmatrix does not write stays as it was
        _move_line(body, "a" if instruction.op == "ldmatrix" else "d", lane, line, to_shared=True)
        body.do("bar.warp.sync 0xffffffff")
    body.do(statement(instruction, names, address=address).rstrip(";"))
    if "d" in operands:
        _move_registers(body, "d", operands["d"], names["d"], lane, "st")
    else:
        body.do("bar.warp.sync 0xffffffff")
        _move_line(body, "d", lane, line, to_shared=False)
    return [f"// {instruction.name}", *entry(raw_name(instruction), {"d": ".u64", "a": ".u64"}, body)]


def _move_line(body: Body, name: str, lane: str, line: str, *, to_shared: bool) -> None:
    """The 16 bytes of this lane, between global and shared memory."""
    pointer = body.compute("line_at", "mad.wide.u32", lane, 16, load_parameter(body, name, ".u64"))
    words = [body.new("word") for _ in range(4)]
    vector = f"{{{', '.join(words)}}}"
    if to_shared:
        body.do(f"ld.global.v4.b32 {vector}, [{pointer}]")
        body.do(f"st.shared.v4.b32 [{line}], {vector}")
    else:
        body.do(f"ld.shared.v4.b32 {vector}, [{line}]")
        body.do(f"st.global.v4.b32 [{pointer}], {vector}")
