"""Operands made ready for the vector loop: each element as a float32 and a small exponent, relative to its group.

A *group* is what shares one step: for A the elements of one row, for B those of one column. In a group with largest
exponent E, an element of exponent e and significand s becomes the float s * 2**(e - E) and an int8 that stands for
e - E. So a product of any two formats fits float32, and the largest exponent of a step is a maximum of int8 sums.

B is cut into blocks of BLOCK columns, stored one after the other: a constant distance between rows is what lets
LLVM prove that the rows it reads are not the line it writes.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.casts import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Real, Whole, entry, inner, woven

BLOCK = 512
ZERO = np.int32(-30000)  # exponent of an element, or of a whole group, that is 0
WEIGHT_BITS = 10  # fraction bits, rounded up, of the significands that `prepare_a` adds up
# A relative exponent is stored as NEAREST + (e - E), at least 0; that of an element that is 0 as NOTHING. So the sum
# of two fits int8, and is negative just where a product is 0.
NEAREST = 63
NOTHING = -64


@inner
def decode(
    code: Whole,
    fraction: Whole,
    bias: Whole,
    unused: Whole,
    sign_place: Whole,
    special_from: Whole,
) -> tuple[Real, Whole, Flag]:
    """Signed significand in [0, 2), exponent, and whether the code is infinite or NaN, which then reads as 0.

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
    signed = f32_of_bits(np.int32(bits_of_f32(np.float32(significand) * unit) | sign))
    return signed, ZERO if significand == np.int32(0) else exponent, special


@inner
def relate(significand: Real, exponent: Whole, largest: Whole) -> tuple[Real, Whole]:
    """An element relative to the largest exponent of its group."""
    distance = max(np.int32(exponent - largest), np.int32(-100))
    power = f32_of_bits(np.int32(np.int32(distance + np.int32(127)) << np.int32(23)))
    relative = max(np.int32(distance + np.int32(NEAREST)), np.int32(0))
    relative = np.int32(NOTHING) if exponent == ZERO else relative
    return significand * power, np.int8(relative)


@entry
def prepare_a(
    codes: Array,
    order: Array,
    scale: Array,
    numbers: Array,
    values: Array,
    relatives: Array,
    largest: Array,
    crowded: Array,
    flags: Array,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Rows of A in the order of adding; `flags[row]` set where the row holds a special.

    For each step its largest exponent, and whether it is crowded: whether the products and C, in units of the grid,
    might reach 2**31. A significand of B is below 2, so twice the sum of A's significands bounds the products; C is
    below 2 as well.
    """
    fraction = np.int32(numbers[at.FORMAT_A + at.FRACTION])
    bias = np.int32(numbers[at.FORMAT_A + at.BIAS])
    unused = np.int32(numbers[at.FORMAT_A + at.UNUSED])
    sign_place = np.int32(numbers[at.FORMAT_A + at.SIGN_PLACE])
    special_from = np.int32(numbers[at.FORMAT_A + at.SPECIAL_FROM])
    length = np.uintp(numbers[at.PRODUCTS])
    stored = np.uintp(order.size)
    row_codes = np.empty(order.size, np.uint32)
    exponents = np.empty(order.size, np.int32)
    room = (np.int64(1) << (30 + WEIGHT_BITS - numbers[at.FRACTION_BITS])) - 2
    for row in range(first_row, last_row):
        for index in range(stored):  # apart, for this is no vector code and what follows is
            row_codes[index] = codes[row, order[index]]
        any_special = False
        for index in range(stored):
            code = row_codes[index]
            significand, exponent, special = decode(code, fraction, bias, unused, sign_place, special_from)
            values[row, index] = significand
            exponents[index] = exponent
            any_special |= special
        for step in range(largest.shape[1]):
            first = np.uintp(step) * length
            top = ZERO
            weight = np.int32(1 << WEIGHT_BITS)
            for index in range(first, first + length):
                top = max(top, exponents[index])
                weight += np.int32(abs(values[row, index]) * np.float32(1 << WEIGHT_BITS)) + np.int32(1)
            crowded[row, step] = weight > room
            for index in range(first, first + length):
                value, relative = relate(values[row, index], exponents[index], top)
                values[row, index] = value
                relatives[row, index] = relative
            if scale.size > 0:
                scale_exponent = scale[row, step // numbers[at.STEPS]]
                any_special |= scale_exponent >= at.NAN_SCALE
                top = np.int32(top + scale_exponent) if top != ZERO else top
            largest[row, step] = top
        flags[row] = any_special


@woven
def scale_group(
    scale: Array,
    instruction: Whole,
    largest: Array,
    flags: Array,
    at_group: Whole,
    start: Whole,
    width: Whole,
) -> None:
    """Move the exponents of a group by its scale factors; a column whose factor is NaN is flagged."""
    for column in range(width):
        scale_exponent = scale[instruction, start + column]
        if scale_exponent >= at.NAN_SCALE:
            flags[start + column] = 1
        elif largest[at_group + column] != ZERO:
            largest[at_group + column] += scale_exponent


@woven
def pad_lines(values: Array, relatives: Array, at_row: Whole, width: Whole, padded: Whole) -> None:
    """Zeros past the last column that do not ask for anything special."""
    for column in range(width, padded):
        values[at_row + column] = np.float32(0.0)
        relatives[at_row + column] = np.int8(NEAREST)


@entry
def prepare_b(
    codes: Array,
    order: Array,
    group: Whole,
    scale: Array,
    numbers: Array,
    values: Array,
    relatives: Array,
    largest: Array,
    flags: Array,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """Rows `order` of B, `group` at a time, block after block; columns past N are harmless zeros.

    The results are flat: of `values` and `relatives` element (block, row, column) is at (block * rows + row) * BLOCK
    + column; `largest` has one row per group instead.
    """
    fraction = np.int32(numbers[at.FORMAT_B + at.FRACTION])
    bias = np.int32(numbers[at.FORMAT_B + at.BIAS])
    unused = np.int32(numbers[at.FORMAT_B + at.UNUSED])
    sign_place = np.int32(numbers[at.FORMAT_B + at.SIGN_PLACE])
    special_from = np.int32(numbers[at.FORMAT_B + at.SPECIAL_FROM])
    rows = order.size
    wide = np.uintp(BLOCK)
    exponents = np.empty(group * BLOCK, np.int32)
    for block in range(first_block, last_block):
        start = np.uintp(block * BLOCK)
        width = np.uintp(min(BLOCK, codes.shape[1] - block * BLOCK))
        padded = np.uintp((np.int64(width) + 7) & -8)
        for first in range(0, rows, group):
            at_group = np.uintp((block * (rows // group) + first // group) * BLOCK)
            for column in range(width):
                largest[at_group + column] = ZERO
            for column in range(width, padded):
                largest[at_group + column] = np.int32(0)
            for index in range(group):
                at_row = np.uintp(block * rows + first + index) * wide
                at_line = np.uintp(index) * wide
                k = order[first + index]
                for column in range(width):
                    code = codes[k, start + column]
                    significand, exponent, special = decode(code, fraction, bias, unused, sign_place, special_from)
                    values[at_row + column] = significand
                    exponents[at_line + column] = exponent
                    flags[start + column] |= np.uint8(special)
                for column in range(width):
                    largest[at_group + column] = max(largest[at_group + column], exponents[at_line + column])
            for index in range(group):
                at_row = np.uintp(block * rows + first + index) * wide
                at_line = np.uintp(index) * wide
                for column in range(width):
                    top = largest[at_group + column]
                    value, relative = relate(values[at_row + column], exponents[at_line + column], top)
                    values[at_row + column] = value
                    relatives[at_row + column] = relative
                pad_lines(values, relatives, at_row, width, padded)
            if scale.size > 0:
                scale_group(scale, first // numbers[at.DEPTH], largest, flags, at_group, start, width)
