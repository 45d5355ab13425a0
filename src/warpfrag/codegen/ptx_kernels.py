"""Kernels in PTX, and the functions that they call; `kernels` puts their parts together.

A function moves one register of an operand between memory and a warp, or copies A or B of wgmma to shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from warpfrag.codegen.memory_indexing import (
    SharedCopy,
    Stage,
    contiguous_strides,
    described,
    described_index,
    element_bits,
    extents,
    formulas,
    stages,
    stride_names,
    thread_name,
)
from warpfrag.codegen.ptx_builder import (
    BLOCK_BARRIER,
    WARP_BARRIER,
    PtxBuilder,
    declared_type,
    dynamic_shared,
    signature,
    vector,
    width,
)
from warpfrag.codegen.statement import (
    COMMIT,
    FENCE,
    PROXY_FENCE,
    SWIZZLE_PERIOD,
    THREADS,
    WAIT,
    Parameters,
    identifier,
    immediates,
    is_sparse,
    memory_instruction,
    registers,
    state_space,
    statement,
    threads,
    wgmma_immediates,
    wgmma_statement,
)
from warpfrag.isa.immediates import Immediates
from warpfrag.plans.loads import moved
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import UNIT
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.wgmma_call import Variant


def mma_functions(instruction: Instruction) -> list[str]:
    """Return functions that move one register of every operand."""
    return [line for operand in registers(instruction).values() for line in move_function(instruction, operand)]


def wgmma_functions(instruction: Instruction) -> list[str]:
    """Return functions that move one register of each operand, and those that copy A and B to shared memory."""
    lines = []
    for operand in (instruction.c, instruction.d, instruction.a, *filter(None, (instruction.metadata,))):
        lines += move_function(instruction, operand)
    for stage in stages(instruction):
        lines += stage_function(instruction, stage)
    return lines


def function_name(instruction: Instruction, operand: OperandBase) -> str:
    """Return the name `..._load_a` and its like."""
    return f"{identifier(instruction)}_{'store' if operand.role == 'd' else 'load'}_{operand.role}"


def move_function(instruction: Instruction, operand: OperandBase) -> list[str]:
    """Return the function that loads one register of an operand from memory, or stores it if it is D."""
    stores = operand.role == "d"
    kind = declared_type(operand.ptx_type)
    inputs = {"memory": ".b64", **dict.fromkeys([*stride_names(operand), "reg"], ".b32")}
    code = PtxBuilder()
    thread = thread_index(code, operand)
    if operand.slots == 1:
        address = _address(code, operand, thread, "%reg")
        bits = f".b{8 * width(kind)}"
        code.emit(f"st{bits} [{address}], %value" if stores else f"ld{bits} %value, [{address}]")
    else:
        _loop(code, operand, thread, stores=stores)
    name, value = function_name(instruction, operand), {"value": kind}
    return [
        f"// Register reg of {described(operand)}.",
        f"// {described_index(operand)}; strides (ld, 1) are row major.",
        *code.function(signature(name, inputs | value) if stores else signature(name, inputs, value)),
    ]


def thread_index(code: PtxBuilder, operand: OperandBase) -> str:
    """Append the computation of this thread's index among the threads that hold an operand."""
    if operand.storage != "warpgroup":
        return code.compute("lane", "mov.u32", "%laneid")
    place = code.compute("place", "mov.u32", "%tid.x")
    return code.compute("thread", "and.b32", place, math.prod(operand.threads) - 1)


def _index(code: PtxBuilder, operand: OperandBase, thread: str, element: str) -> str:
    index = ""
    for dim, formula in formulas(operand).items():
        coordinate = code.evaluate(dim, formula, {thread_name(operand): thread, "i": element})
        if index:
            index = code.compute("index", "mad.lo.s32", coordinate, f"%{dim}_stride", index)
        else:
            index = code.compute("index", "mul.lo.s32", coordinate, f"%{dim}_stride")
    return index


def _address(code: PtxBuilder, operand: OperandBase, thread: str, element: str) -> str:
    """Return the address of an element of at least a byte."""
    index = _index(code, operand, thread, element)
    return code.compute("address", "mad.wide.s32", index, element_bits(operand) // 8, "%memory")


def _loop(code: PtxBuilder, operand: OperandBase, thread: str, *, stores: bool) -> None:
    """Append a loop over the slots of one register."""
    if not stores:
        code.emit("mov.b32 %value, 0")
    slot = code.compute("slot", "mov.b32", 0)
    again = code.declare("again", ".pred")
    code.label("SLOT")
    element = code.compute("i", "mad.lo.s32", "%reg", operand.slots, slot)
    shift = code.compute("shift", "mad.lo.s32", slot, operand.spec.container, operand.spec.low)
    if stores:
        address = _address(code, operand, thread, element)
        value = code.compute("code", "shr.u32", "%value", shift)
        code.emit(f"st.u{element_bits(operand)} [{address}], {value}")
    else:
        value = _load_element(code, operand, thread, element)
        placed = code.compute("placed", "shl.b32", value, shift)
        code.emit(f"or.b32 %value, %value, {placed}")
    code.emit(f"add.s32 {slot}, {slot}, 1")
    code.emit(f"setp.lt.u32 {again}, {slot}, {operand.slots}")
    code.emit(f"@{again} bra SLOT")


def _load_element(code: PtxBuilder, operand: OperandBase, thread: str, element: str) -> str:
    """Return the register with one element of packed memory, low bits first."""
    bits = element_bits(operand)
    if bits >= 8:
        return code.compute("code", f"ld.u{bits}", f"[{_address(code, operand, thread, element)}]")
    bit = code.compute("bit", "mul.lo.s32", _index(code, operand, thread, element), bits)
    byte = code.compute("byte", "shr.s32", bit, 3)
    address = code.compute("address", "mad.wide.s32", byte, 1, "%memory")
    low = code.compute("low", "and.b32", bit, 7)
    value = code.compute("code", "ld.u8", f"[{address}]")
    if 8 % bits:
        code.comment("an element that crosses bytes")
        crosses = code.declare("crosses", ".pred")
        code.emit(f"setp.gt.u32 {crosses}, {low}, {8 - bits}")
        high = code.compute("high", "mov.b32", 0)
        code.emit(f"@{crosses} ld.u8 {high}, [{address} + 1]")
        value = code.compute("code", "mad.lo.s32", high, 256, value)
    value = code.compute("code", "shr.u32", value, low)
    return code.compute("code", "and.b32", value, (1 << bits) - 1)


def stage_name(instruction: Instruction, stage: Stage) -> str:
    """Return the name `..._stage_a` and its like."""
    return f"{identifier(instruction)}_stage_{stage.suffix}"


def stage_function(instruction: Instruction, stage: Stage) -> list[str]:
    """Return the function that copies A or B to shared memory, by all threads of a warpgroup."""
    operand, code = stage.operand, PtxBuilder()
    place = code.compute("place", "mov.u32", "%tid.x")
    unit = code.compute("unit", "and.b32", place, THREADS - 1)
    outside = code.declare("outside", ".pred")
    code.label("UNIT")
    code.emit(f"setp.ge.u32 {outside}, {unit}, {stage.units}")
    code.emit(f"@{outside} bra DONE")
    values = {"unit": unit}
    for name, formula in stage.formulas.items():
        values[name] = code.evaluate(name, formula, values)
    coordinates = {"k": values["k"], stage.other: values[stage.other]}
    if stage.elements > 1:
        coordinates["k"] = code.compute("k_element", "mul.lo.s32", values["k"], stage.elements)
    row, col = (stage.other, "k") if operand.role == "a" else ("k", stage.other)
    index = code.compute("index", "mul.lo.s32", coordinates[row], "%row_stride")
    index = code.compute("index", "mad.lo.s32", coordinates[col], "%col_stride", index)
    bits = 8 * stage.unit_bytes
    if stage.elements > 1:
        value = _bits_of_unit(code, stage, index)
    else:
        at = code.compute("at", "mad.wide.s32", index, stage.unit_bytes, "%memory")
        value = code.compute("code", f"ld.u{bits}", f"[{at}]")
    to = code.compute("to", "add.s32", "%shared", values["address"])
    code.emit(f"st.shared.u{bits} [{to}], {value}")
    code.emit(f"add.s32 {unit}, {unit}, {THREADS}")
    code.emit("bra UNIT")
    code.label("DONE")
    parameters = {"shared": ".b32", "memory": ".b64", **dict.fromkeys(stride_names(operand), ".b32")}
    return [
        f"// {described(operand)}, into shared memory, at a multiple of {SWIZZLE_PERIOD}: {stage.size} bytes.",
        f"// {stage.description}. {described_index(operand)}.",
        *code.function(signature(stage_name(instruction, stage), parameters)),
    ]


def _bits_of_unit(code: PtxBuilder, stage: Stage, index: str) -> str:
    """Return the elements of one byte, low bits first."""
    step = "%col_stride" if stage.operand.role == "a" else "%row_stride"
    bits = stage.operand.format.bits
    value = code.compute("code", "mov.b32", 0)
    for number in range(stage.elements):
        element = code.compute("element", "mad.lo.s32", step, number, index)
        bit = code.compute("bit", "mul.lo.s32", element, bits)
        byte = code.compute("byte", "shr.s32", bit, 3)
        at = code.compute("at", "mad.wide.s32", byte, 1, "%memory")
        low = code.compute("low", "and.b32", bit, 7)
        part = code.compute("part", "shr.u32", code.compute("part", "ld.u8", f"[{at}]"), low)
        part = code.compute("part", "and.b32", part, (1 << bits) - 1)
        value = code.compute("code", "mad.lo.s32", part, 1 << number * bits, value)
    return value


DYNAMIC, IMAGE = "dynamic_shared", "shared_bytes"
TYPES = {"matrix": ".u64", "words": ".u64", "int": ".u32", "word": ".u32", "descriptor": ".u64"}


def wmma_move_declarations(instruction: Instruction) -> list[str]:
    """Declare dynamic shared memory for a move that uses it."""
    return [dynamic_shared(DYNAMIC, 32)] if state_space(instruction) == "shared" else []


def wgmma_declarations(_instruction: Instruction) -> list[str]:
    """Declare the dynamic shared memory of raw kernels."""
    return [dynamic_shared(IMAGE, SWIZZLE_PERIOD)]


class PtxKernel:
    """A kernel in PTX."""

    def __init__(self, instruction: Instruction, parameters: Parameters, outputs: Iterable[str] = "d") -> None:
        """Start a kernel; `outputs` are the parameters that point to memory it writes."""
        del outputs  # PTX does not tell memory that is written from memory that is read
        self.instruction = instruction
        self.parameters = parameters
        self.code = PtxBuilder()
        self.fragments: dict[str, list[str]] = {}
        self.thread = self.case = self.base = self.line = self.tile = ""
        self._parameters: dict[str, str] = {}
        self._shared: set[str] = set()

    def parameter(self, name: str) -> str:
        """Return the register that holds a parameter; load it on first use."""
        if name not in self._parameters:
            self._parameters[name] = self.code.load_parameter(name, TYPES[self.parameters[name]])
        return self._parameters[name]

    def kernel(self, name: str, *comment: str) -> list[str]:
        """Return the lines of the kernel, below a comment."""
        types = {parameter: TYPES[kind] for parameter, kind in self.parameters.items()}
        return [f"// {self.instruction.name}", *(f"// {text}" for text in comment), *self.code.entry(name, types)]

    def declare(self, role: str, operand: OperandBase) -> None:
        """Declare a fragment."""
        self.fragments[role] = self.code.declare_vector(f"{role}_", operand.regs, operand.ptx_type)

    def start(self, scope: Literal["warp", "cases", "block"]) -> None:
        """Compute the thread index: in its warp, or in the grid, where a warp or a block is a case."""
        code = self.code
        if scope == "warp":
            self.thread = code.compute("lane", "mov.u32", "%laneid")
            return
        block, size, tid = (code.compute("index", "mov.u32", f"%{name}.x") for name in ("ctaid", "ntid", "tid"))
        self.thread = code.compute("thread", "mad.lo.u32", block, size, tid)
        self.case = block
        if scope == "cases":
            case = code.compute("case", "shr.u32", self.thread, threads(self.instruction).bit_length() - 1)
            outside = code.declare("outside", ".pred")
            code.emit(f"setp.ge.u32 {outside}, {case}, {self.parameter('cases')}")
            code.emit(f"@{outside} ret")

    def move_tile(self, operand: OperandBase, strides: Sequence[str | int] = (), fragment: str = "") -> None:
        """Load a fragment from memory, or store D; strides are parameters unless they are given."""
        role, name = operand.role, function_name(self.instruction, operand)
        places = [self.parameter(role)]
        places += map(str, strides) if strides else map(self.parameter, stride_names(operand, f"{role}_"))
        for reg, word in enumerate(self.fragments[fragment or role]):
            arguments = ", ".join([*places, str(reg)])
            if role == "d":
                self.code.emit(f"call.uni {name}, ({arguments}, {word})")
            else:
                self.code.emit(f"call.uni ({word}), {name}, ({arguments})")

    def move_raw(self, operand: OperandBase, pointer: str, fragment: str, *, stores: bool) -> None:
        """Load or store the registers of a fragment as they are."""
        words, size = self.fragments[fragment], width(declared_type(operand.ptx_type))
        start = self.code.compute(
            f"{pointer}_start", "mad.wide.u32", self.thread, size * len(words), self.parameter(pointer)
        )
        for reg, word in enumerate(words):
            address = f"[{start} + {size * reg}]"
            operands = f"{address}, {word}" if stores else f"{word}, {address}"
            self.code.emit(f"{'st' if stores else 'ld'}.global.b{8 * size} {operands}")

    def multiply(self, choice: Immediates) -> None:
        """Run the instruction on its fragments."""
        self.code.emit(statement(self.instruction, self.fragments, immediates(self.instruction, choice)))

    def _shared_bytes(self, operand: OperandBase, copy: SharedCopy) -> int:
        """Declare the shared array of an operand once; return its size."""
        rows, cols = extents(operand)
        size = rows * cols * copy.memory_bits // 8
        if operand.role not in self._shared:
            self._shared.add(operand.role)
            self.code.declare_shared(f"shared_{operand.role}", size)
        return size

    def copy_tile(self, operand: OperandBase, copy: SharedCopy) -> None:
        """Copy a tile between global memory and a new shared array, D to global memory; a word per lane at a time."""
        code, to_shared = self.code, operand.role != "d"
        size, line = self._shared_bytes(operand, copy), 4 * operand.layout.lanes
        if not to_shared:
            code.emit(WARP_BARRIER)
        shared = code.compute("shared", "mov.u32", f"shared_{operand.role}")
        shared = code.compute("shared", "mad.lo.u32", self.thread, 4, shared)
        address = code.compute("global", "mad.wide.u32", self.thread, 4, self.parameter(operand.role))
        word, inside = code.declare("word"), code.declare("inside", ".pred")
        for start in range(0, size, line):
            guard = ""
            if size - start < line:
                code.emit(f"setp.lt.u32 {inside}, {self.thread}, {(size - start) // 4}")
                guard = f"@{inside} "
            self._copy_word(word, f"{address} + {start}", f"{shared} + {start}", to_shared=to_shared, guard=guard)
        if to_shared:
            code.emit(WARP_BARRIER)

    def _copy_word(self, word: str, address: str, shared: str, *, to_shared: bool, guard: str = "") -> None:
        """Copy a word from global to shared memory, or back."""
        ends = (("global", address), ("shared", shared))
        (source, read), (target, written) = ends if to_shared else ends[::-1]
        self.code.emit(f"{guard}ld.{source}.b32 {word}, [{read}]")
        self.code.emit(f"{guard}st.{target}.b32 [{written}], {word}")

    def move_matrices(self, operand: OperandBase, copy: SharedCopy) -> None:
        """Move a fragment between the shared array and registers, by ldmatrix or stmatrix."""
        code, words = self.code, self.fragments[operand.role]
        self._shared_bytes(operand, copy)
        row, col = (code.evaluate(dim, formula, {"lane": self.thread}) for dim, formula in copy.formulas.items())
        line, inside = (row, col) if copy.order == "row" else (col, row)
        stride = max(contiguous_strides(operand, copy.order))
        index = code.compute("index", "mad.lo.s32", line, stride, inside)
        if copy.memory_bits >= 8:
            offset = code.compute("offset", "mul.lo.s32", index, copy.memory_bits // 8)
        else:
            offset = code.compute("offset", "shr.u32", index, (8 // copy.memory_bits).bit_length() - 1)
        shared = code.compute("shared", "mov.u32", f"shared_{operand.role}")
        address = code.compute("line", "add.s32", shared, offset)
        code.emit(statement(copy.matrix_move, {moved(copy.matrix_move).role: words}, address=address))
        for word in words if copy.shift else ():
            code.emit(f"shl.b32 {word}, {word}, {copy.shift}")

    def move_wmma(self, role: str, order: str = "", address: str = "") -> None:
        """Load a fragment by wmma.load, or store D by wmma.store; without an order by the instruction itself."""
        if order:
            move, stride = memory_instruction(self.instruction, role, order, "global"), self.parameter(f"{role}_stride")
            address = self.parameter(role)
        else:
            move, stride, address = self.instruction, self.parameter("stride"), address or self.parameter("memory")
        self.code.emit(statement(move, {role: self.fragments[role]}, address=address, stride=stride))

    def copy_bytes(self, *, to_shared: bool) -> str:
        """Copy `bytes` bytes between `memory` and dynamic shared memory; return its address."""
        if to_shared:
            self.tile = self.code.compute("tile", "mov.u32", DYNAMIC)
        else:
            self.code.emit(WARP_BARRIER)
        name = "IN" if to_shared else "OUT"
        self._copy_loop(name, self.thread, 32, self.parameter("memory"), self.tile, to_shared=to_shared)
        if to_shared:
            self.code.emit(WARP_BARRIER)
        return self.tile

    def _copy_loop(self, name: str, thread: str, count: int, memory: str, shared: str, *, to_shared: bool) -> None:
        """Copy `bytes` bytes with `count` threads, a word per thread at a time."""
        code = self.code
        offset = code.compute("offset", "mul.lo.u32", thread, 4)
        size, word, outside = self.parameter("bytes"), code.declare("word"), code.declare("outside", ".pred")
        code.label(f"COPY_{name}")
        code.emit(f"setp.ge.u32 {outside}, {offset}, {size}")
        code.emit(f"@{outside} bra COPIED_{name}")
        target = code.compute("shared", "add.u32", shared, offset)
        source = code.compute("global", "mad.wide.u32", offset, 1, memory)
        self._copy_word(word, source, target, to_shared=to_shared)
        code.emit(f"add.u32 {offset}, {offset}, {4 * count}")
        code.emit(f"bra COPY_{name}")
        code.label(f"COPIED_{name}")

    def move_line(self, pointer: str, *, to_shared: bool) -> None:
        """Copy the 16 bytes of this lane between global memory and the shared array of lines."""
        code = self.code
        if to_shared:
            code.declare_shared("lines", 16 * threads(self.instruction))
            start = code.compute("line", "mov.u32", "lines")
            self.line = code.compute("line", "mad.lo.u32", self.thread, 16, start)
        address = code.compute("line_address", "mad.wide.u32", self.thread, 16, self.parameter(pointer))
        words = vector([code.declare("word") for _ in range(4)])
        ends = (("global", address), ("shared", self.line))
        (source, read), (target, written) = ends if to_shared else ends[::-1]
        code.emit(f"ld.{source}.v4.b32 {words}, [{read}]")
        code.emit(f"st.{target}.v4.b32 [{written}], {words}")

    def move_matrix(self) -> None:
        """Run ldmatrix, stmatrix or movmatrix on fragments and the line of this lane."""
        address = self.line
        if address and not state_space(self.instruction):
            wide = self.code.compute("wide", "mad.wide.u32", address, 1, 0)
            address = self.code.compute("generic", "cvta.shared.u64", wide)
        self.code.emit(statement(self.instruction, self.fragments, address=address))

    def synchronize_warp(self) -> None:
        """Append a barrier for the warp."""
        self.code.emit(WARP_BARRIER)

    def stage(self, stage: Stage) -> str:
        """Copy A or B to a new shared array, as wgmma reads it; return its descriptor."""
        code, role = self.code, stage.operand.role
        code.declare_shared(f"shared_{role}", stage.size, SWIZZLE_PERIOD)
        shared = code.compute("shared", "mov.u32", f"shared_{role}")
        strides = map(self.parameter, stride_names(stage.operand, f"{role}_"))
        arguments = ", ".join([shared, self.parameter(role), *strides])
        code.emit(f"call.uni {stage_name(self.instruction, stage)}, ({arguments})")
        field = Descriptor.FIELDS["start"]
        start = code.compute("start", "shr.u32", shared, (field.unit - 1).bit_length())
        start = code.compute("start", "and.b32", start, field.mask >> field.low)
        tile = stage.descriptor
        code.comment(f"leading {tile.leading}, stride {tile.stride}, swizzle {tile.swizzle} bytes")
        return code.compute("descriptor", "mad.wide.u32", start, 1 << field.low, f"0x{tile.word:x}")

    def stage_image(self) -> None:
        """Copy the bytes of this case to dynamic shared memory."""
        code = self.code
        first = code.compute("first", "mov.u32", IMAGE)
        first = code.compute("first", "add.u32", first, SWIZZLE_PERIOD - 1)
        self.base = code.compute("base", "and.b32", first, -SWIZZLE_PERIOD)
        tid = code.compute("thread_in_block", "mov.u32", "%tid.x")
        image = code.compute("image", "mad.wide.u32", self.case, self.parameter("bytes"), self.parameter("shared"))
        self._copy_loop("IMAGE", tid, THREADS, image, self.base, to_shared=True)

    def moved_descriptor(self, name: str) -> str:
        """Return a descriptor parameter, counted from the start of the image in shared memory."""
        units = self.code.compute("units", "shr.u32", self.base, (UNIT - 1).bit_length())
        return self.code.compute("moved", "mad.wide.u32", units, 1, self.parameter(name))

    def multiply_wgmma(self, variant: Variant, a: str, b: str, *, scale_d: bool) -> None:
        """Run wgmma between its fences; an empty `a` is the fragment, `scale_d` a parameter or true."""
        code, fragments = self.code, self.fragments
        is_added = code.declare("is_added", ".pred")
        code.emit(f"setp.ne.u32 {is_added}, {self.parameter('scale_d') if scale_d else 1}, 0")
        metadata = [fragments["metadata"][0], str(variant.selector)] if is_sparse(self.instruction) else []
        numbers = wgmma_immediates(self.instruction, variant)
        product = wgmma_statement(self.instruction, fragments["d"], a or fragments["a"], b, is_added, numbers, metadata)
        for text in (PROXY_FENCE, BLOCK_BARRIER, FENCE, product, COMMIT, WAIT.format(0)):
            code.emit(text)
