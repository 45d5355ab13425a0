"""Functions in PTX: one register of an operand between memory and a warp, by the layout; and the calls of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from warpfrag.codegen.memory_indexing import (
    described,
    described_index,
    element_bits,
    formulas,
    stride_names,
    thread_name,
)
from warpfrag.codegen.ptx_builder import PtxBuilder, declared_type, signature, width
from warpfrag.codegen.statement import identifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers


def function_name(instruction: Instruction, operand: Registers) -> str:
    """`..._load_a` and its like."""
    return f"{identifier(instruction)}_{'store' if operand.role == 'd' else 'load'}_{operand.role}"


def move_function(instruction: Instruction, operand: Registers) -> list[str]:
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
    code: PtxBuilder, instruction: Instruction, operand: Registers, words: list[str], places: list[str]
) -> None:
    """Move every register of an operand by its function."""
    name = function_name(instruction, operand)
    for reg, word in enumerate(words):
        arguments = ", ".join([*places, str(reg)])
        if operand.role == "d":
            code.emit(f"call.uni {name}, ({arguments}, {word})")
        else:
            code.emit(f"call.uni ({word}), {name}, ({arguments})")


def declare_operand(code: PtxBuilder, name: str, operand: Registers) -> list[str]:
    """The registers of an operand."""
    return code.declare_vector(name, operand.regs, operand.ptx_type)


def move_registers(
    code: PtxBuilder, name: str, operand: Registers, words: Sequence[str], thread: str, operation: Literal["ld", "st"]
) -> None:
    """Load or store the registers of an operand, those of one thread after those of another; `name` points to them."""
    size = width(declared_type(operand.ptx_type))
    pointer = code.load_parameter(name, ".u64")
    pointer = code.compute(f"{name}_at", "mad.wide.u32", thread, size * len(words), pointer)
    for reg, word in enumerate(words):
        place = f"[{pointer} + {size * reg}]"
        code.emit(f"{operation}.global.b{8 * size} {', '.join([word, place] if operation == 'ld' else [place, word])}")


def matrix_parameters(
    code: PtxBuilder, operands: Mapping[str, Registers]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Parameters for a pointer to each matrix and its strides, and by role the registers that they are loaded to."""
    parameters: dict[str, str] = {}
    places = {}
    for role, operand in operands.items():
        own = {role: ".u64", **dict.fromkeys(stride_names(operand, f"{role}_"), ".u32")}
        parameters |= own
        places[role] = [code.load_parameter(name, kind) for name, kind in own.items()]
    return parameters, places


def thread_index(code: PtxBuilder, operand: Registers) -> str:
    """Which of the threads that hold an operand this one is."""
    if operand.home != "warpgroup":
        return code.compute("lane", "mov.u32", "%laneid")
    place = code.compute("place", "mov.u32", "%tid.x")
    return code.compute("thread", "and.b32", place, math.prod(operand.threads) - 1)


def _index(code: PtxBuilder, operand: Registers, thread: str, element: str) -> str:
    index = ""
    for dim, formula in formulas(operand).items():
        coordinate = code.evaluate(dim, formula, {thread_name(operand): thread, "i": element})
        if index:
            index = code.compute("index", "mad.lo.s32", coordinate, f"%{dim}_stride", index)
        else:
            index = code.compute("index", "mul.lo.s32", coordinate, f"%{dim}_stride")
    return index


def _address(code: PtxBuilder, operand: Registers, thread: str, element: str) -> str:
    """The address of an element of at least a byte."""
    index = _index(code, operand, thread, element)
    return code.compute("address", "mad.wide.s32", index, element_bits(operand) // 8, "%memory")


def _loop(code: PtxBuilder, operand: Registers, thread: str, *, stores: bool) -> None:
    """Go through the slots of one register."""
    if not stores:
        code.emit("mov.b32 %value, 0")
    slot = code.compute("slot", "mov.b32", 0)
    again = code.declare("again", ".pred")
    code.label("SLOT")
    element = code.compute("i", "mad.lo.s32", "%reg", operand.slots, slot)
    shift = code.compute("shift", "mad.lo.s32", slot, operand.row.container, operand.row.low)
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


def _load_element(code: PtxBuilder, operand: Registers, thread: str, element: str) -> str:
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
