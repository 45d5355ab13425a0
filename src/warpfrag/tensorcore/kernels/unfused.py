"""The loops of the rules that are neither fused nor f64: grouped sums, m8n8k4 in software, and one-bit products.

A grouped sum adds groups of 4-bit products exactly, scales each, and adds them in one truncated sum. m8n8k4 is a short
chain of ordinary f32 operations; f16 products are exact in f32, so a multiplication and an addition give what one FFMA
gives. One-bit products are 64 at a time, the count of ones of a word.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import SCALE_BITS, SCALE_FRACTION
from warpfrag.tensorcore.kernels.constants import ANY_NAN_SCALE, IS_F16, unflatten_block
from warpfrag.tensorcore.kernels.control_word import TO_NEAREST, enter_environment, restore_environment
from warpfrag.tensorcore.kernels.jit import Array, Flag, Float, Int, entry, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f32, count_ones, f32_of_bits, first_elements
from warpfrag.tensorcore.kernels.scalar import (
    NAN_F32,
    exponent_of,
    power_of_two,
    read_accumulator,
    round_f16,
    shifted,
    truncate_f32,
    write_accumulator,
)

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
    """Return True if any product of a group is not zero."""
    for k in range(first, first + group):  # noqa: SIM110 (numba compiles no generators here)
        if a[k] != 0 and b[k] != 0:
            return True
    return False


@inlined
def grouped_output(a: ScaledLine, b: ScaledLine, accumulator: Float, first: Int, rule: GroupedNumbers) -> Float:
    """Compute one instruction for one output, from k = first on."""
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
    """Compute some outputs of some tiles; elements are doubled, scales are integers, C and D are f32 codes."""
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


LENGTH = 4


@entry
def chain_block(
    a: Array,
    b: Array,
    c: Array,
    c_format: Int,
    d_format: Int,
    out: Array,
    bounds: Array,
) -> None:
    """Compute some outputs of some tiles; four products per instruction."""
    block = unflatten_block(bounds)
    depth, width = b.shape[1], block.last_column - block.first_column
    b_values = np.empty((depth, width), np.float32)
    a_values = np.empty(depth, np.float32)
    line = np.empty(width, np.float32)
    caller = enter_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        for k in range(depth):
            for j in range(width):
                b_values[k, j] = read_accumulator(b[tile, k, block.first_column + j], IS_F16)
        for i in range(block.first_row, block.last_row):
            for k in range(depth):
                a_values[k] = read_accumulator(a[tile, i, k], IS_F16)
            for j in range(width):
                line[j] = read_accumulator(c[tile, i, block.first_column + j], c_format)
            for k in range(0, depth, LENGTH):
                a0, a1, a2, a3 = a_values[k], a_values[k + 1], a_values[k + 2], a_values[k + 3]
                row0, row1, row2, row3 = b_values[k], b_values[k + 1], b_values[k + 2], b_values[k + 3]
                if d_format == IS_F16:
                    for j in range(width):
                        low = a0 * row0[j] + a1 * row1[j]
                        high = a2 * row2[j] + a3 * row3[j]
                        line[j] = np.float32(round_f16(np.float64((line[j] + low) + high)))
                else:
                    for j in range(width):
                        total = a0 * row0[j] + np.float32(0.0)
                        total = total + a1 * row1[j]
                        total = total + a2 * row2[j]
                        total = total + a3 * row3[j]
                        line[j] = line[j] + total
            for j in range(width):
                out[tile, i, block.first_column + j] = write_accumulator(line[j], d_format)
    restore_environment(caller)


@entry
def popcount_block(
    a: Array,
    b: Array,
    sums: Array,
    is_xor: Flag,
    bounds: Array,
) -> None:
    """Compute sums[t, i, j] += ones of (a[t, i, w] op b[t, w, j]) over the words w, an even number."""
    block = unflatten_block(bounds)
    for tile in range(block.first_tile, block.last_tile):
        for i in range(block.first_row, block.last_row):
            line = sums[tile, i, block.first_column : block.last_column]
            for word in range(0, a.shape[2], 2):
                a0, a1 = a[tile, i, word], a[tile, i, word + 1]
                row0 = b[tile, word, block.first_column : block.last_column]
                row1 = b[tile, word + 1, block.first_column : block.last_column]
                if is_xor:
                    for j in range(line.size):
                        ones = count_ones(a0 ^ row0[j]) + count_ones(a1 ^ row1[j])
                        line[j] = np.int32(line[j] + np.int32(ones))
                else:
                    for j in range(line.size):
                        ones = count_ones(a0 & row0[j]) + count_ones(a1 & row1[j])
                        line[j] = np.int32(line[j] + np.int32(ones))
