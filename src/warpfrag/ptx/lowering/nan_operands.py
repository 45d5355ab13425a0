"""Whose NaN an operation on f64 keeps, where ptxas has no choice.

The hardware takes the NaN of its operand B, then C, then A. Which operand of PTX becomes which is up to ptxas, unless
they are equal or one is a constant: that sits in B (as an addend in C), and a zero, which is a register of its own, in
A. An instruction holds the upper word of a constant alone: one with other bits is in a register again, and ptxas may
choose. Of two constants the first sits in B, unless it is one that an instruction cannot hold. (Read from the code of
ptxas 12.9, 13.0 and 13.4 for sm_90; measured on an H200.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.program.actions import Alternative, NanChoice
from warpfrag.ptx.program.program import Immediate, Register
from warpfrag.ptx.program.types import F64

if TYPE_CHECKING:
    from warpfrag.ptx.program.actions import LaneOp
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

SIGN, INFINITY = 1 << 63, 0x7FF0000000000000
QUIET, ALL = 1 << 51, (1 << 64) - 1
LOW_WORD = 0xFFFFFFFF
LATE_CONSTANT = (
    "a constant NaN is added with the other sign: whether ptxas knows this constant depends on the code around it"
)


def place_constants(
    step: DecodedInstruction, action: LaneOp, choice: NanChoice
) -> tuple[LaneOp, tuple[PtxOperand, ...]]:
    """The action with the order of its operands as far as it is known, and its sources."""
    sources = step.sources
    constants = [index for index, source in enumerate(sources) if isinstance(source, Immediate)]
    registers = {source.index for source in sources if isinstance(source, Register)}
    is_division = step.attributes.opcode == "div"
    if len(registers) == 1 and not constants:
        return replace(action, nan_choice=fixed_choice(choice.order)), sources
    if len(constants) == len(sources) == 2 and step.attributes.opcode in {"mul", "sub"}:
        return _place_pair(step, action)
    if len(constants) != 1 or is_division:
        return action, sources
    constant = constants[0]
    code = _code(sources[constant])
    if constant == 2:  # an addend: the factors still have no order
        return action, sources
    factor = 1 - constant
    is_zero = code & ~SIGN == 0
    pair = (factor, constant) if is_zero else (constant, factor)
    order = pair if len(sources) == 2 else (factor, 2, constant) if is_zero else (constant, 2, factor)
    if action.fused is None and step.attributes.opcode == "sub" and constant == 1 and code & ~SIGN > INFINITY:
        sources = (sources[0], Immediate(code ^ SIGN))  # ptxas adds the constant with the other sign
    is_encoded = code & LOW_WORD == 0  # else it is in a register, which may be any operand
    return replace(action, nan_choice=NanChoice(order, is_fixed=is_encoded)), sources


def _place_pair(step: DecodedInstruction, action: LaneOp) -> tuple[LaneOp, tuple[PtxOperand, ...]]:
    """mul and sub of two constants: the first is operand B if an instruction can hold it, else the second is."""
    codes = [_code(source) for source in step.sources]
    order = (0, 1) if codes[0] & LOW_WORD == 0 else (1, 0)
    if step.attributes.opcode == "mul":  # the sign is that of both
        sign = (codes[0] ^ codes[1]) & SIGN
        moved = [code & ~SIGN | sign for code in codes]
        is_moved = any(code & ~SIGN > INFINITY for code in codes)
    else:  # ptxas adds a NaN with the other sign
        moved = [codes[0], codes[1] ^ SIGN]
        is_moved = action.fused is None and codes[1] & ~SIGN > INFINITY
    sources = tuple(Immediate(code) for code in moved) if is_moved else step.sources
    return replace(action, nan_choice=fixed_choice(order)), sources


def doubt_sign(step: DecodedInstruction, action: LaneOp) -> None:
    """A difference whose b ptxas may know to be a constant, or not: if so, it adds a NaN with the other sign."""
    function = action.function

    def run(a: Codes, b: Codes) -> Codes:
        result = function(a, b)
        is_nan = b & np.uint64(~SIGN & ALL) > np.uint64(INFINITY)
        values = result[0] if isinstance(result, tuple) else result
        return np.where(is_nan, (b | np.uint64(QUIET)) ^ np.uint64(SIGN), values)

    step.action = replace(action, alternative=Alternative(run, LATE_CONSTANT))


def fixed_choice(order: tuple[int, ...]) -> NanChoice:
    """A choice that ptxas cannot change."""
    return NanChoice(order, is_fixed=True)


def _code(operand: PtxOperand) -> int:
    return operand.code(F64) if isinstance(operand, Immediate) else 0
