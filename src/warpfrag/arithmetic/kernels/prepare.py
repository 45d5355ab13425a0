"""Operands made ready for the vector loop: each element as a float64, a small exponent, and a bit for its sign.

A *group* is what shares one step: for A the elements of one row, for B those of one column. In a group with largest
exponent E, an int8 stands for e - E of each element, so that the largest exponent of a step is a maximum of int8
sums. The signs of a group are one word, a bit for each element below zero.

B is cut into blocks of BLOCK columns, stored one after the other: a constant distance between rows is what lets
LLVM prove that the rows it reads are not the line it writes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.compiled import Array, Real, Whole, entry, inner, woven
from warpfrag.arithmetic.kernels.llvm import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.scalar import power_of_two

BLOCK = 512
ZERO = np.int32(-30000)  # exponent of an element, or of a whole group, that is 0
SPECIAL = np.int32(60000)  # exponent of an infinity or a NaN, and of a group with one or with a scale factor of NaN
ANY_SPECIAL = np.int32(15000)  # the sum of two exponents is at least this if one of them is SPECIAL
# A relative exponent is stored as NEAREST + (e - E), at least 0; that of an element that is 0 as NOTHING. So the sum
# of two fits int8, and is negative just where a product is 0.
NEAREST = 63
NOTHING = -64
NUDGE = 1.0 + 2.0**-30  # factor on the elements of B: `strip` says what for
TINY = 2.0**-500  # stands for a 0 of B: far below any grid, but above 0 as its sign bit says


class Ready(NamedTuple):
    """A or B in the order of adding: two arrays with a number per element, two with one per group."""

    values: Array
    relatives: Array
    largest: Array
    negative: Array


@inner
def decode(
    code: Whole,
    fraction: Whole,
    bias: Whole,
    unused: Whole,
    sign_place: Whole,
    special_from: Whole,
) -> tuple[Real, Whole]:
    """The value and its exponent; what is infinite or NaN reads as 0, with an exponent of its own.

    No branches, so that a loop over it becomes vector code.
    """
    bits = np.int32(code)
    magnitude = np.int32(np.int32(bits & np.int32(np.int32(np.int32(1) << sign_place) - np.int32(1))) >> unused)
    special = magnitude >= special_from
    magnitude = np.int32(0) if special else magnitude
    field = np.int32(magnitude >> fraction)
    hidden = np.int32(np.int32(1) << fraction)
    significand = np.int32(magnitude & np.int32(hidden - np.int32(1)))
    significand = np.int32(significand | hidden) if field > np.int32(0) else significand
    exponent = np.int32(max(field, np.int32(1)) - bias)
    sign = np.int32(np.int32(np.int32(bits >> sign_place) & np.int32(1)) << np.int32(31))
    unit = f32_of_bits(np.int32(np.int32(np.int32(127) - fraction) << np.int32(23)))
    power = f32_of_bits(np.int32(np.int32(exponent + np.int32(127)) << np.int32(23)))
    value = f32_of_bits(np.int32(bits_of_f32(np.float32(significand) * unit * power) | sign))
    exponent = ZERO if significand == np.int32(0) else exponent
    return value, SPECIAL if special else exponent


@inner
def relate(exponent: Whole, largest: Whole) -> Whole:
    """The exponent of an element relative to the largest of its group."""
    relative = max(np.int32(np.int32(exponent - largest) + np.int32(NEAREST)), np.int32(0))
    return np.int8(np.int32(NOTHING) if exponent == ZERO else relative)


@inner
def scaled_exponent(largest: Whole, scale_exponent: Whole) -> Whole:
    """The largest exponent of a group after scaling."""
    scaled = largest if largest == ZERO else np.int32(largest + scale_exponent)
    return SPECIAL if scale_exponent >= at.NAN_SCALE else scaled


@entry
def prepare_a(
    codes: Array,
    order: Array,
    rows: Array,
    b_places: Array,
    scale: Array,
    numbers: Array,
    ready: Ready,
    nonzero: Array,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Rows of A.

    The bit of an element is that of the element of B it meets: for a dense A the one in the same place, for a sparse
    one that of row `rows[row, index]` of B; no two elements of a step meet the same, and all meet the step's group.
    nonzero[row, step] has the bits of the elements that are not 0.
    """
    fraction = np.int32(numbers[at.FORMAT_A + at.FRACTION])
    bias = np.int32(numbers[at.FORMAT_A + at.BIAS])
    unused = np.int32(numbers[at.FORMAT_A + at.UNUSED])
    sign_place = np.int32(numbers[at.FORMAT_A + at.SIGN_PLACE])
    special_from = np.int32(numbers[at.FORMAT_A + at.SPECIAL_FROM])
    length = np.uintp(numbers[at.PRODUCTS])
    stored = np.uintp(order.size)
    row_codes = np.empty(order.size, np.uint32)
    bits = np.empty(order.size, np.uint32)
    for index in range(stored):
        bits[index] = np.uint32(index % length)
    row_values = np.empty(order.size, np.float32)
    exponents = np.empty(order.size, np.int32)
    for row in range(first_row, last_row):
        for index in range(stored):  # apart, for this is no vector code and what follows is
            row_codes[index] = codes[row, order[index]]
        if rows.shape[0] > 0:
            for index in range(stored):
                bits[index] = np.uint32(b_places[rows[row, index]]) % np.uint32(2 * length)
        for index in range(stored):
            value, exponent = decode(row_codes[index], fraction, bias, unused, sign_place, special_from)
            row_values[index] = value
            ready.values[row, index] = np.float64(value)
            exponents[index] = exponent
        for step in range(ready.largest.shape[1]):
            first = np.uintp(step) * length
            top = ZERO
            below = present = np.uint32(0)
            for index in range(first, first + length):
                top = max(top, exponents[index])
                below |= np.uint32(row_values[index] < np.float32(0.0)) << bits[index]
                present |= np.uint32(row_values[index] != np.float32(0.0)) << bits[index]
            for index in range(first, first + length):
                ready.relatives[row, index] = relate(exponents[index], top)
            if scale.size > 0:
                scale_exponent = scale[row, step // numbers[at.STEPS]]
                top = scaled_exponent(top, scale_exponent)
                for index in range(first, first + length):
                    ready.values[row, index] *= power_of_two(scale_exponent)
            ready.largest[row, step] = top
            ready.negative[row, step] = below
            nonzero[row, step] = present


@woven
def scale_group(
    scale: Array,
    instruction: Whole,
    ready: Ready,
    at_rows: Whole,
    group: Whole,
    at_group: Whole,
    start: Whole,
    width: Whole,
) -> None:
    """Multiply a group by its scale factors."""
    for column in range(width):
        scale_exponent = scale[instruction, start + column]
        ready.largest[at_group + column] = scaled_exponent(ready.largest[at_group + column], scale_exponent)
    for index in range(group):
        at_row = at_rows + np.uintp(index) * np.uintp(BLOCK)
        for column in range(width):
            ready.values[at_row + column] *= power_of_two(scale[instruction, start + column])


@entry
def prepare_b(
    codes: Array,
    order: Array,
    steps: Whole,
    scale: Array,
    numbers: Array,
    ready: Ready,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """Rows `order` of B, block after block; columns past N, up to a multiple of 8, are zeros.

    The results are flat: of `values` and `relatives` element (block, row, column) is at (block * rows + row) * BLOCK
    + column; the others have one row per group instead.
    """
    fraction = np.int32(numbers[at.FORMAT_B + at.FRACTION])
    bias = np.int32(numbers[at.FORMAT_B + at.BIAS])
    unused = np.int32(numbers[at.FORMAT_B + at.UNUSED])
    sign_place = np.int32(numbers[at.FORMAT_B + at.SIGN_PLACE])
    special_from = np.int32(numbers[at.FORMAT_B + at.SPECIAL_FROM])
    rows = order.size
    group = rows // steps
    wide = np.uintp(BLOCK)
    exponents = np.empty(group * BLOCK, np.int32)
    line = np.empty(BLOCK, np.float32)
    for block in range(first_block, last_block):
        start = np.uintp(block * BLOCK)
        width = np.uintp(min(BLOCK, codes.shape[1] - block * BLOCK))
        padded = np.uintp((np.int64(width) + 7) & -8)
        for first in range(0, rows, group):
            at_rows = np.uintp(block * rows + first) * wide
            at_group = np.uintp((block * steps + first // group) * BLOCK)
            for column in range(padded):
                ready.largest[at_group + column] = ZERO if column < width else np.int32(0)
                ready.negative[at_group + column] = np.uint32(0)
            for index in range(group):
                at_row = at_rows + np.uintp(index) * wide
                at_line = np.uintp(index) * wide
                k = order[first + index]
                for column in range(width):
                    code = codes[k, start + column]
                    value, exponent = decode(code, fraction, bias, unused, sign_place, special_from)
                    line[column] = value
                    exponents[at_line + column] = exponent
                bit = np.uint32(index)
                for column in range(width):
                    value = line[column]
                    ready.values[at_row + column] = np.float64(value) * NUDGE if value != np.float32(0.0) else TINY
                    ready.largest[at_group + column] = max(
                        ready.largest[at_group + column], exponents[at_line + column]
                    )
                    ready.negative[at_group + column] |= np.uint32(value < np.float32(0.0)) << bit
            for index in range(group):
                at_row = at_rows + np.uintp(index) * wide
                at_line = np.uintp(index) * wide
                for column in range(width):
                    ready.relatives[at_row + column] = relate(
                        exponents[at_line + column], ready.largest[at_group + column]
                    )
                for column in range(width, padded):
                    ready.values[at_row + column] = 0.0
                    ready.relatives[at_row + column] = np.int8(NEAREST)
            if scale.size > 0:
                instruction = first // group // numbers[at.STEPS]
                scale_group(scale, instruction, ready, at_rows, group, at_group, start, width)
