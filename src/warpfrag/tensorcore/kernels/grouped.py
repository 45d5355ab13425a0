"""Block-scaled 4-bit floats: exact sums of sixteen products, each scaled, then one truncated sum."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import SCALE_BITS, SCALE_FRACTION
from warpfrag.tensorcore.kernels.constants import ANY_NAN_SCALE, unflatten_block
from warpfrag.tensorcore.kernels.control_word import TO_NEAREST, enter_environment, restore_environment
from warpfrag.tensorcore.kernels.jit import Array, Flag, Float, Int, entry, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f32, f32_of_bits, first_elements
from warpfrag.tensorcore.kernels.rounding import NAN_F32, truncate_f32
from warpfrag.tensorcore.kernels.scalar import exponent_of, power_of_two, shifted

SIGNIFICAND = np.int64((1 << SCALE_BITS) - 1)
PRODUCT_FRACTION = 2  # elements come doubled, so that they are integers


class ScaledLine(NamedTuple):
    """A's row or B's column of one output: doubled elements, and scales, exponent << SCALE_BITS | significand."""

    elements: Array
    scales: Array


class GroupedNumbers(NamedTuple):
    """A grouped rule; the kernel takes it as an array of these fields."""

    depth: Int  # K of one instruction
    group: Int  # products that are summed exactly
    scales: Int  # scale factors of one instruction
    fraction_bits: Int
    zero_exponent: Int


GROUPED_FIELDS: Final = len(GroupedNumbers._fields)


@inner
def has_product(a: Array, b: Array, first: Int, group: Int) -> Flag:
    """Whether any product of a group is not zero."""
    for k in range(first, first + group):  # noqa: SIM110 (numba compiles no generators here)
        if a[k] != 0 and b[k] != 0:
            return True
    return False


@inlined
def grouped_output(a: ScaledLine, b: ScaledLine, accumulator: Float, first: Int, rule: GroupedNumbers) -> Float:
    """One instruction for one output, from k = first on."""
    block = rule.depth // rule.scales
    common = np.int64(rule.zero_exponent)
    nan = np.isnan(accumulator)
    for start in range(first, first + rule.depth, rule.group):
        scale = start // block
        scale_a, scale_b = np.int64(a.scales[scale]), np.int64(b.scales[scale])
        exponent = (scale_a >> SCALE_BITS) + (scale_b >> SCALE_BITS)
        nan = nan or exponent >= ANY_NAN_SCALE
        present = (scale_a & SIGNIFICAND) != 0 and (scale_b & SIGNIFICAND) != 0
        if present and has_product(a.elements, b.elements, start, rule.group):
            common = max(common, exponent)
    result = accumulator
    if nan:
        result = np.nan
    elif abs(accumulator) != np.inf:
        if accumulator != 0.0:
            common = max(common, exponent_of(accumulator, -126))
        total = np.int64(accumulator * power_of_two(rule.fraction_bits - common))
        for start in range(first, first + rule.depth, rule.group):
            scale = start // block
            scale_a, scale_b = np.int64(a.scales[scale]), np.int64(b.scales[scale])
            exact = np.int64(0)
            for k in range(start, start + rule.group):
                exact += np.int64(a.elements[k]) * np.int64(b.elements[k])
            exact *= (scale_a & SIGNIFICAND) * (scale_b & SIGNIFICAND)
            exponent = (scale_a >> SCALE_BITS) + (scale_b >> SCALE_BITS)
            total += shifted(exact, exponent - common + rule.fraction_bits - PRODUCT_FRACTION - 2 * SCALE_FRACTION)
        result = truncate_f32(np.float64(total) * power_of_two(common - rule.fraction_bits), 23)
    return result


@entry
def grouped_block(
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array,
    scale_b: Array,
    numbers: Array,
    out: Array,
    bounds: Array,
) -> None:
    """Some outputs of some tiles; elements doubled, scales as integers, C and D as f32 codes."""
    block = unflatten_block(bounds)
    rule = GroupedNumbers(*first_elements(numbers, GROUPED_FIELDS))
    caller = enter_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        for i in range(block.first_row, block.last_row):
            row = ScaledLine(a[tile, i], scale_a[tile, i])
            for j in range(block.first_column, block.last_column):
                column = ScaledLine(b[tile, :, j], scale_b[tile, :, j])
                accumulator = np.float64(f32_of_bits(np.int32(c[tile, i, j])))
                for first in range(0, a.shape[2], rule.depth):
                    accumulator = grouped_output(row, column, accumulator, first, rule)
                if np.isnan(accumulator):
                    out[tile, i, j] = NAN_F32
                else:
                    out[tile, i, j] = np.uint32(bits_of_f32(np.float32(accumulator)))
    restore_environment(caller)
