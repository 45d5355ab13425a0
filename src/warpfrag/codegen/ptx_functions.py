"""Functions in PTX: one register of an operand between memory and a warp, and A and B of wgmma into shared memory."""

from __future__ import annotations

import math

from warpfrag.codegen.memory_indexing import (
    Stage,
    described,
    described_index,
    element_bits,
    formulas,
    stages,
    stride_names,
    thread_name,
)
from warpfrag.codegen.ptx_builder import PtxBuilder, declared_type, signature, width
from warpfrag.codegen.statement import SWIZZLE_PERIOD, THREADS, identifier, registers
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase


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
    """`..._load_a` and its like."""
    return f"{identifier(instruction)}_{'store' if operand.role == 'd' else 'load'}_{operand.role}"


def move_function(instruction: Instruction, operand: OperandBase) -> list[str]:
    """One register of an operand: loaded from memory, or stored there if it is D."""
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


def call_moves(
    code: PtxBuilder, instruction: Instruction, operand: OperandBase, words: list[str], places: list[str]
) -> None:
    """Move every register of an operand by its function."""
    name = function_name(instruction, operand)
    for reg, word in enumerate(words):
        arguments = ", ".join([*places, str(reg)])
        if operand.role == "d":
            code.emit(f"call.uni {name}, ({arguments}, {word})")
        else:
            code.emit(f"call.uni ({word}), {name}, ({arguments})")


def declare_operand(code: PtxBuilder, name: str, operand: OperandBase) -> list[str]:
    """The registers of an operand."""
    return code.declare_vector(name, operand.regs, operand.ptx_type)


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
    """The address of an element of at least a byte."""
    index = _index(code, operand, thread, element)
    return code.compute("address", "mad.wide.s32", index, element_bits(operand) // 8, "%memory")


def _loop(code: PtxBuilder, operand: OperandBase, thread: str, *, stores: bool) -> None:
    """Go through the slots of one register."""
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
    """The register with one element of packed memory, low bits first."""
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
    """`..._stage_a` and its like."""
    return f"{identifier(instruction)}_stage_{stage.suffix}"


def stage_function(instruction: Instruction, stage: Stage) -> list[str]:
    """A or B from memory into shared memory, by all threads of a warpgroup."""
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
    """The elements of one byte, low bits first."""
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
