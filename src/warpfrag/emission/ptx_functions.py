"""Functions in PTX: one register of an operand between memory and a warp, by the layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from warpfrag.emission.ptx_syntax import Body, register_type, width
from warpfrag.emission.statement import identifier
from warpfrag.emission.strides import described, described_index, element_bits, formulas, stride_names, thread_name

if TYPE_CHECKING:
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Registers


def function_name(instruction: Instruction, operand: Registers) -> str:
    """`..._load_a` and its like."""
    return f"{identifier(instruction)}_{'store' if operand.role == 'd' else 'load'}_{operand.role}"


def move_function(instruction: Instruction, operand: Registers) -> list[str]:
    """One register of an operand: loaded from memory, or stored there if it is D."""
    stores = operand.role == "d"
    kind = register_type(operand)
    inputs = ["%memory", *(f"%{name}" for name in stride_names(operand)), "%reg"]
    parameters = [f".reg {'.b64' if name == '%memory' else '.b32'} {name}" for name in inputs]
    body = Body()
    lane = thread_of(body, operand)
    if operand.slots == 1:
        address = _address(body, operand, lane, "%reg")
        bits = f".b{8 * width(kind)}"
        body.do(f"st{bits} [{address}], %value" if stores else f"ld{bits} %value, [{address}]")
    else:
        _loop(body, operand, lane, stores=stores)
    comment = [
        f"// Register reg of {described(operand)}.",
        f"// {described_index(operand)}; strides (ld, 1) are row major.",
    ]
    name = function_name(instruction, operand)
    if stores:
        head = f".func {name}({', '.join(parameters)}, .reg {kind} %value)"
    else:
        head = f".func (.reg {kind} %value) {name}({', '.join(parameters)})"
    return [*comment, head, *body.lines(["ret"])]


def call_moves(body: Body, instruction: Instruction, operand: Registers, words: list[str], places: list[str]) -> None:
    """Move every register of an operand by its function."""
    name = function_name(instruction, operand)
    for reg, word in enumerate(words):
        arguments = ", ".join([*places, str(reg)])
        if operand.role == "d":
            body.do(f"call.uni {name}, ({arguments}, {word})")
        else:
            body.do(f"call.uni ({word}), {name}, ({arguments})")


def thread_of(body: Body, operand: Registers) -> str:
    """Which of the threads that hold an operand this one is."""
    if operand.home != "warpgroup":
        return body.compute("lane", "mov.u32", "%laneid")
    place = body.compute("place", "mov.u32", "%tid.x")
    return body.compute("thread", "and.b32", place, math.prod(operand.threads) - 1)


def _index(body: Body, operand: Registers, lane: str, element: str) -> str:
    index = ""
    for dim, formula in formulas(operand).items():
        coordinate = body.formula(dim, formula, {thread_name(operand): lane, "i": element})
        if index:
            index = body.compute("index", "mad.lo.s32", coordinate, f"%{dim}_stride", index)
        else:
            index = body.compute("index", "mul.lo.s32", coordinate, f"%{dim}_stride")
    return index


def _address(body: Body, operand: Registers, lane: str, element: str) -> str:
    """The address of an element of at least a byte."""
    index = _index(body, operand, lane, element)
    return body.compute("address", "mad.wide.s32", index, element_bits(operand) // 8, "%memory")


def _loop(body: Body, operand: Registers, lane: str, *, stores: bool) -> None:
    """Go through the slots of one register."""
    if not stores:
        body.do("mov.b32 %value, 0")
    slot = body.compute("slot", "mov.b32", 0)
    again = body.new("again", ".pred")
    body.label("SLOT")
    element = body.compute("i", "mad.lo.s32", "%reg", operand.slots, slot)
    shift = body.compute("shift", "mad.lo.s32", slot, operand.row.container, operand.row.low)
    if stores:
        address = _address(body, operand, lane, element)
        code = body.compute("code", "shr.u32", "%value", shift)
        body.do(f"st.u{element_bits(operand)} [{address}], {code}")
    else:
        code = _load_code(body, operand, lane, element)
        placed = body.compute("placed", "shl.b32", code, shift)
        body.do(f"or.b32 %value, %value, {placed}")
    body.do(f"add.s32 {slot}, {slot}, 1")
    body.do(f"setp.lt.u32 {again}, {slot}, {operand.slots}")
    body.do(f"@{again} bra SLOT")


def _load_code(body: Body, operand: Registers, lane: str, element: str) -> str:
    """The code of one element of packed memory, low bits first."""
    bits = element_bits(operand)
    if bits >= 8:
        return body.compute("code", f"ld.u{bits}", f"[{_address(body, operand, lane, element)}]")
    bit = body.compute("bit", "mul.lo.s32", _index(body, operand, lane, element), bits)
    byte = body.compute("byte", "shr.s32", bit, 3)
    address = body.compute("address", "mad.wide.s32", byte, 1, "%memory")
    low = body.compute("low", "and.b32", bit, 7)
    code = body.compute("code", "ld.u8", f"[{address}]")
    if 8 % bits:
        body.say("an element that crosses bytes")
        crosses = body.new("crosses", ".pred")
        body.do(f"setp.gt.u32 {crosses}, {low}, {8 - bits}")
        high = body.compute("high", "mov.b32", 0)
        body.do(f"@{crosses} ld.u8 {high}, [{address} + 1]")
        code = body.compute("code", "mad.lo.s32", high, 256, code)
    code = body.compute("code", "shr.u32", code, low)
    return body.compute("code", "and.b32", code, (1 << bits) - 1)
