"""Which instructions with nothing but constants ptxas 13.0 computes itself, and which it leaves to the hardware.

It matters where the result is an operand of something that ptxas computes otherwise than the hardware: an approximate
function, a NaN. The rules were read from what ptxas makes of every spelling with constants, followed by sin.approx: it
is gone from the code where the operand was known.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpfrag.ptx.program.actions import LaneOp
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Type

NEVER = {"fma", "sad", "copysign", "dp2a", "dp4a", "prmt", "bmsk", "fns", "rem"}
DIVISIONS = {"div", "rcp", "sqrt"}
NARROW_ONLY = {"and", "or", "xor", "shr", "bfe", "bfi", "min", "max"}
"""Not folded where they are of 64-bit integers, which become two instructions."""
SUMS = {"add", "sub", "mul"}
FOLDED_TARGETS = {"u16", "u32", "s32", "u64", "s64"}
FLOAT_LETTERS = {"f16": "e", "f32": "f", "f64": "d"}


def is_left_to_hardware(step: DecodedInstruction, action: LaneOp, codes: tuple[int, ...]) -> bool:
    """Whether ptxas does not compute a step although all of its operands are constants, with these codes."""
    attributes, kind = step.attributes, action.results[0]
    opcode, is_wide = attributes.opcode, kind.bits == 64
    if opcode in NEVER or (opcode in DIVISIONS and attributes.accuracy is None):
        return True
    if opcode in {"min", "max"} and (attributes.nan or attributes.xorsign or attributes.relu):
        return True
    if opcode == "cvt":
        return _is_conversion_left(step, action, codes[0])
    if kind.is_float:
        is_directed = attributes.rounding not in {None, "rn"}
        is_exact_sum = attributes.rounding == "rn" and (attributes.sat or is_wide)
        is_clamped = attributes.ftz and attributes.sat
        return opcode == "mad" or (opcode in SUMS and (is_directed or is_exact_sum or is_clamped))
    is_high = attributes.half == "hi" and (is_wide or (opcode == "mad" and kind.bits == 32))
    return is_high or is_split(step, action)


def is_split(step: DecodedInstruction, action: LaneOp) -> bool:
    """Whether a step becomes two instructions: ptxas computes them of constants, but later than others."""
    kind = action.results[0]
    return step.attributes.opcode in NARROW_ONLY and kind.bits == 64 and not kind.is_float


def _is_conversion_left(step: DecodedInstruction, action: LaneOp, code: int) -> bool:
    attributes, target, source = step.attributes, action.results[0], action.sources[0]
    if attributes.packs or source is None or attributes.relu or attributes.rounding in {"rz", "rm", "rp"}:
        return True
    if target.is_float and not source.is_float:
        return target.name != "f32" or source.bits == 64
    if source.is_float and not target.is_float:
        number = _number(code, source)
        is_rounded = attributes.integral in {"rni", "rzi"} or _is_clamped(number, target)
        return math.isnan(number) or not is_rounded or target.name not in FOLDED_TARGETS
    if source.is_float and attributes.integral is not None and math.isnan(_number(code, source)):
        return True
    is_packed = target.name not in {"f16", "bf16", "f32", "f64", "f16x2"}
    return target.is_float and attributes.rounding == "rn" and (attributes.satfinite or is_packed)


def _number(code: int, kind: Type) -> float:
    """The number that a code of a float type stands for; 0 where Python has no such type, as for bf16."""
    width = FLOAT_LETTERS.get(kind.name)
    return struct.unpack(f"<{width}", code.to_bytes(kind.bits // 8, "little"))[0] if width else 0.0


def _is_clamped(number: float, target: Type) -> bool:
    """Whether a number becomes the first or the last of an integer type, whatever the rounding."""
    last = (1 << (target.bits - (target.kind == "s"))) - 1
    return number >= last or number <= (-1 - last if target.kind == "s" else 0)
