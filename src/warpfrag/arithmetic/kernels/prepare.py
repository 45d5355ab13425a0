"""Operands made ready for the vector loop: each element as a float64, a small exponent, and a bit for its sign.

A *group* is what shares one step: for A the elements of one row, for B those of one column. In a group with largest
exponent E, an int8 stands for e - E of each element, so that the largest exponent of a step is a maximum of int8
sums. The signs of a group are one or two words, a bit for each element below zero.

B is split into blocks of BLOCK columns, stored one after the other: what one step needs of a block lies together, and
a line of int8 is one vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.arithmetic.encodings import NAN_SCALE
from warpfrag.arithmetic.kernels.jit import Array, Float, Int, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.scalar import power_of_two
from warpfrag.arithmetic.kernels.vector import COLUMNS

if TYPE_CHECKING:
    from warpfrag.arithmetic.kernels.constants import Constants, Encoding

BLOCK = 64
# Exponents of elements and of scale factors are between -127 and 127. Sums of two exponents, relative or not, biased as
# in float64, must fit 12 bits.
ZERO = np.int32(-300)  # exponent of an element, or of a whole group, that is 0
SPECIAL = np.int32(900)  # exponent of an infinity or a NaN, and of a group with one or with a scale factor of NaN
ANY_SPECIAL = np.int32(400)  # the sum of two exponents is at least this if one of them is SPECIAL
# A relative exponent is stored as NEAREST + (e - E), at least 0; that of an element that is 0 as NOTHING. So the sum
# of two fits int8, and is negative just where a product is 0.
NEAREST = 63
NOTHING = -64
NUDGE = 1.0 + 2.0**-30  # factor on the elements of B: `strip` says what for
TINY = 2.0**-500  # stands for a 0 of B: far below any grid, but above 0 as its sign bit says


class Source(NamedTuple):
    """A product as it came: codes, which elements meet in which order, and scale factors.

    `order` lists A's elements in the order of adding, `b_order` B's rows; b_places[row] is where a row of B is in it.
    `rows` is empty for a dense A; else rows[i, p] is the row of B that element `order[p]` of A's row i meets. Scale
    factors are exponents, and empty where there are none.
    """

    a: Array
    b: Array
    order: Array
    b_order: Array
    b_places: Array
    rows: Array
    scale_a: Array
    scale_b: Array


class PreparedA(NamedTuple):
    """A in the order of adding: per element [row, index], and per group [row, step, LARGEST and words of signs].

    A relative exponent stands four times in a word: processors are quicker to spread a word over a vector than a byte.
    """

    values: Array
    relatives: Array
    groups: Array


class PreparedB(NamedTuple):
    """B in the order of adding, flat: element (block, row, column) is at (block * rows + row) * BLOCK + column.

    A group takes lines of BLOCK: the largest exponents, then words of signs.
    """

    values: Array
    relatives: Array
    groups: Array


# Of a group of A: the largest exponent; then, for each word of signs, a bit for each element below zero and one for
# each that is not zero.
LARGEST, SIGNS = np.uintp(0), np.uintp(1)
WORD = 32
FOUR_TIMES = np.int32(0x01010101)


@inner
def sign_words(group_rows: Int) -> Int:
    """How many words hold the signs of a group of B with so many rows."""
    return (group_rows + WORD - 1) // WORD


@inner
def padded(columns: Int) -> Int:
    """Columns of a block with those past N that are computed too."""
    return min(BLOCK, (columns + COLUMNS - 1) // COLUMNS * COLUMNS)


class Decoder(NamedTuple):
    """An encoding in the width of the vector code."""

    fraction: Int
    bias: Int
    unused: Int
    sign_place: Int
    special_from: Int


@inner
def decoder(encoding: Encoding) -> Decoder:
    """For elements of that encoding."""
    return Decoder(
        np.int32(encoding.fraction),
        np.int32(encoding.bias),
        np.int32(encoding.unused),
        np.int32(encoding.sign_place),
        np.int32(encoding.special_from),
    )


@inner
def decode(code: Int, by: Decoder) -> tuple[Float, Int]:
    """The value and its exponent; what is infinite or NaN reads as 0, with an exponent of its own.

    No branches, so that a loop over it becomes vector code.
    """
    bits = np.int32(code)
    magnitude = np.int32(np.int32(bits & np.int32(np.int32(np.int32(1) << by.sign_place) - np.int32(1))) >> by.unused)
    special = magnitude >= by.special_from
    magnitude = np.int32(0) if special else magnitude
    field = np.int32(magnitude >> by.fraction)
    hidden = np.int32(np.int32(1) << by.fraction)
    significand = np.int32(magnitude & np.int32(hidden - np.int32(1)))
    significand = np.int32(significand | hidden) if field > np.int32(0) else significand
    exponent = np.int32(max(field, np.int32(1)) - by.bias)
    sign = np.int32(np.int32(np.int32(bits >> by.sign_place) & np.int32(1)) << np.int32(31))
    unit = f32_of_bits(np.int32(np.int32(np.int32(127) - by.fraction) << np.int32(23)))
    power = f32_of_bits(np.int32(np.int32(exponent + np.int32(127)) << np.int32(23)))
    value = f32_of_bits(np.int32(bits_of_f32(np.float32(significand) * unit * power) | sign))
    exponent = ZERO if significand == np.int32(0) else exponent
    return value, SPECIAL if special else exponent


@inner
def relate(exponent: Int, largest: Int) -> Int:
    """The exponent of an element relative to the largest of its group."""
    relative = max(np.int32(np.int32(exponent - largest) + np.int32(NEAREST)), np.int32(0))
    return np.int32(NOTHING) if exponent == ZERO else relative


@inner
def scaled_exponent(largest: Int, scale_exponent: Int) -> Int:
    """The largest exponent of a group after scaling."""
    scaled = largest if largest == ZERO else np.int32(largest + scale_exponent)
    return SPECIAL if scale_exponent >= NAN_SCALE else scaled


class RowScratch(NamedTuple):
    """Room for one row of A: codes, the bit of each element, values, exponents."""

    codes: Array
    bits: Array
    values: Array
    exponents: Array


@inner
def row_scratch(elements: Int) -> RowScratch:
    """For rows of so many elements."""
    return RowScratch(
        np.empty(elements, np.uint32),
        np.empty(elements, np.uint32),
        np.empty(elements, np.float32),
        np.empty(elements, np.int32),
    )


@inlined
def prepare_a(
    source: Source, constants: Constants, ready: PreparedA, scratch: RowScratch, first: Int, last: Int
) -> None:
    """Rows of A.

    The bit of an element is that of the element of B it meets: for a dense A the one in the same place, for a sparse
    one that of row `rows[row, index]` of B; no two elements of a step meet the same, and all meet the step's group.
    """
    by = decoder(constants.a)
    length = np.uintp(constants.products)
    stored = np.uintp(source.order.size)
    codes, bits, values, exponents = scratch
    for index in range(stored):
        bits[index] = np.uint32(index % length)
    for row in range(first, last):
        for index in range(stored):  # apart, for this is no vector code and what follows is
            codes[index] = source.a[row, source.order[index]]
        if source.rows.shape[0] > 0:
            for index in range(stored):
                bits[index] = np.uint32(source.b_places[source.rows[row, index]]) % np.uint32(2 * length)
        for index in range(stored):
            value, exponent = decode(codes[index], by)
            values[index] = value
            ready.values[row, index] = np.float64(value)
            exponents[index] = exponent
        for step in range(ready.groups.shape[1]):
            start = np.uintp(step) * length
            top = ZERO
            below = present = np.uint64(0)
            for index in range(start, start + length):
                top = max(top, exponents[index])
                below |= np.uint64(values[index] < np.float32(0.0)) << np.uint64(bits[index])
                present |= np.uint64(values[index] != np.float32(0.0)) << np.uint64(bits[index])
            for index in range(start, start + length):
                byte = np.int32(relate(exponents[index], top) & np.int32(255))
                ready.relatives[row, index] = np.int32(byte * FOUR_TIMES)
            ready.groups[row, step, LARGEST] = top
            for word in range(np.uintp(ready.groups.shape[2] // 2)):
                at_word = SIGNS + word + word
                ready.groups[row, step, at_word] = np.int32(below >> np.uint64(WORD * word))
                ready.groups[row, step, at_word + np.uintp(1)] = np.int32(present >> np.uint64(WORD * word))
        if source.scale_a.size > 0:
            scale_row(source.scale_a, ready, constants, row)


@inlined
def scale_row(scale: Array, ready: PreparedA, constants: Constants, row: Int) -> None:
    """Multiply a row by its scale factors."""
    for step in range(ready.groups.shape[1]):
        scale_exponent = scale[row, step // constants.steps]
        ready.groups[row, step, LARGEST] = scaled_exponent(ready.groups[row, step, LARGEST], scale_exponent)
        for index in range(step * constants.products, (step + 1) * constants.products):
            ready.values[row, index] *= power_of_two(scale_exponent)


class GroupScratch(NamedTuple):
    """Room for one group of B: a line of values, and all exponents."""

    line: Array
    exponents: Array


@inner
def group_scratch(rows: Int) -> GroupScratch:
    """For groups of so many rows."""
    return GroupScratch(np.empty(BLOCK, np.float32), np.empty(rows * BLOCK, np.int32))


class Group(NamedTuple):
    """Where one group of B is: in which block of columns, how wide, and in the prepared arrays."""

    start: Int  # first column
    width: Int
    padded: Int  # columns with those past N that are computed too
    rows: Int
    sign_words: Int
    at_rows: Int
    at_group: Int


@inlined
def scale_group(scale: Array, instruction: Int, ready: PreparedB, group: Group) -> None:
    """Multiply a group by its scale factors."""
    for column in range(group.width):
        scale_exponent = scale[instruction, group.start + column]
        at = group.at_group + column
        ready.groups[at] = scaled_exponent(ready.groups[at], scale_exponent)
    for index in range(group.rows):
        at_row = group.at_rows + np.uintp(index) * np.uintp(BLOCK)
        for column in range(group.width):
            ready.values[at_row + column] *= power_of_two(scale[instruction, group.start + column])


@inlined
def prepare_group(
    codes: Array, order: Array, by: Decoder, ready: PreparedB, scratch: GroupScratch, group: Group
) -> None:
    """Rows `order` of B, for the columns of a group; those past N are zeros."""
    line, exponents = scratch
    wide = np.uintp(BLOCK)
    for column in range(group.padded):
        ready.groups[group.at_group + column] = ZERO if column < group.width else np.int32(0)
        for word in range(group.sign_words):
            ready.groups[group.at_group + wide * np.uintp(1 + word) + column] = np.int32(0)
    for index in range(group.rows):
        at_row = group.at_rows + np.uintp(index) * wide
        at_line = np.uintp(index) * wide
        k = order[index]
        for column in range(group.width):
            value, exponent = decode(codes[k, group.start + column], by)
            line[column] = value
            exponents[at_line + column] = exponent
        bit, at_signs = np.int32(index % WORD), wide * np.uintp(1 + index // WORD)
        for column in range(group.width):
            value = line[column]
            at = group.at_group + column
            ready.values[at_row + column] = np.float64(value) * NUDGE if value != np.float32(0.0) else TINY
            ready.groups[at] = max(ready.groups[at], exponents[at_line + column])
            ready.groups[at + at_signs] |= np.int32(np.int32(value < np.float32(0.0)) << bit)
    for index in range(group.rows):
        at_row = group.at_rows + np.uintp(index) * wide
        at_line = np.uintp(index) * wide
        for column in range(group.width):
            largest = ready.groups[group.at_group + column]
            ready.relatives[at_row + column] = np.int8(relate(exponents[at_line + column], largest))
        for column in range(group.width, group.padded):
            ready.values[at_row + column] = 0.0
        for column in range(group.width, wide):
            ready.relatives[at_row + column] = np.int8(NEAREST)


@inlined
def prepare_b(
    source: Source, constants: Constants, ready: PreparedB, scratch: GroupScratch, first: Int, last: Int
) -> None:
    """Blocks of columns of B, group after group."""
    by = decoder(constants.b)
    steps = source.order.size // constants.products
    rows = source.b_order.size
    group_rows = rows // steps
    words = sign_words(group_rows)
    for block in range(first, last):
        width = min(BLOCK, source.b.shape[1] - block * BLOCK)
        for step in range(steps):
            group = Group(
                np.uintp(block * BLOCK),
                np.uintp(width),
                np.uintp(padded(width)),
                group_rows,
                words,
                np.uintp(block * rows + step * group_rows) * np.uintp(BLOCK),
                np.uintp((block * steps + step) * (1 + words) * BLOCK),
            )
            order = source.b_order[step * group_rows : (step + 1) * group_rows]
            prepare_group(source.b, order, by, ready, scratch, group)
            if source.scale_b.size > 0:
                scale_group(source.scale_b, step // constants.steps, ready, group)
