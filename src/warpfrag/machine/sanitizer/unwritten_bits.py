"""Determine which bits of a result are unwritten, for packed operations, sums and products."""

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import Codes, Type

EVERY_BIT = np.uint64(0xFFFFFFFFFFFFFFFF)
CARRYING = {"add", "sub", "neg", "iadd3", "mul.lo", "mad.lo", "mul.wide", "mad.wide"}
"""Integer operations in which each bit of the first result depends only on the same and lower operand bits."""


def first_of(results: "Codes | tuple[Codes, ...]") -> Codes:
    """Return the first result of a function."""
    return results[0] if isinstance(results, tuple) else results


def read_part(mask: Codes, ptx_type: Type | None) -> Codes:
    """Return the bits of a mask that an operand of this type reads."""
    if ptx_type is None or mask.dtype == np.bool_ or ptx_type.bits >= 8 * mask.itemsize:
        return mask
    return mask & mask.dtype.type((1 << ptx_type.bits) - 1)


def parts_of(masks: list[Codes], action: actions.LaneOp, wrong: NDArray[np.bool_]) -> Codes:
    """Return the mask of a result: all bits in `wrong` lanes, or the bits of marked parts in a packed operation."""
    ptx_types = [ptx_type for ptx_type in (*action.results, *action.sources) if ptx_type is not None]
    count, bits = ptx_types[0].parts, ptx_types[0].part_bits
    if count == 1 or any(ptx_type.parts != count for ptx_type in ptx_types):
        return np.where(wrong, EVERY_BIT, np.uint64(0))
    result: Codes = np.zeros(wrong.shape, np.uint64)
    for part in range(count):
        for mask, ptx_type in zip(masks, action.sources, strict=True):
            own = mask.astype(np.uint64) >> np.uint64(part * (ptx_type or ptx_types[0]).part_bits)
            is_marked = own & np.uint64((1 << (ptx_type or ptx_types[0]).part_bits) - 1) != 0
            result |= np.where(is_marked, np.uint64((1 << bits) - 1 << part * bits), np.uint64(0))
    return result


def carried(
    inst: DecodedInstruction, action: actions.LaneOp, masks: list[Codes], values: list[Codes], whole: Codes
) -> list[Codes]:
    """Return the masks of the results; in sums and products, bits below the operands' lowest mark are unmarked."""
    half = f".{inst.attributes.half}" if inst.attributes.half else ""
    is_float = any(ptx_type.is_float for ptx_type in action.results)
    if inst.attributes.opcode + half not in CARRYING or is_float or inst.attributes.sat or len(values) < len(masks):
        return [whole] * len(inst.results)
    marks = [mask.astype(np.uint64) for mask in masks]
    if half:  # trailing zeros of one factor shift the marks of the other factor
        first, second = (lowest(mask) for mask in marks[:2])
        left, right = (lowest(value.astype(np.uint64)) for value in values[:2])
        moved = np.where(second == 0, first * right, second * left)
        marks[:2] = [np.where((first != 0) & (second != 0), first | second, moved)]
    start = lowest(reduce(np.bitwise_or, marks))
    return [whole & (np.uint64(0) - start), *[whole] * (len(inst.results) - 1)]


def lowest(codes: Codes) -> Codes:
    """Return the lowest set bit of each number."""
    return codes & (np.uint64(0) - codes)
