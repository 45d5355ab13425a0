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
from warpfrag.arithmetic.kernels.jit import Array, Int, inlined, inner
from warpfrag.arithmetic.kernels.llvm import f32_of_bits
from warpfrag.arithmetic.kernels.scalar import power_of_two
from warpfrag.arithmetic.kernels.vector import (
    COLUMNS,
    Lanes,
    address,
    bits_above,
    converted,
    larger,
    load,
    neighbours,
    read_as,
    read_from,
    spread,
    store,
    where_above,
)

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
NEAREST = np.int32(63)
NOTHING = np.int32(-64)
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

    Of a rule with short steps, `group_bytes` is `groups` as bytes, the largest exponents TO_BIASED larger.
    Bytes, as relative exponents are, stand four times in a word: processors are quicker to spread that over a vector.
    """

    values: Array
    relatives: Array
    groups: Array
    group_bytes: Array


class PreparedB(NamedTuple):
    """B in the order of adding, flat: element (block, row, column) is at (block * rows + row) * BLOCK + column.

    A group takes lines of BLOCK: the largest exponents, then words of signs. Of a rule with short steps, `group_bytes`
    is the same as bytes.
    """

    values: Array
    relatives: Array
    groups: Array
    group_bytes: Array


# Of a group of A: the largest exponent; then, for each word of signs, a bit for each element below zero and one for
# each that is not zero.
LARGEST, SIGNS = np.uintp(0), np.uintp(1)
WORD = 32
# From a sum of relative exponents, and the two they are relative to, to the exponent as an f32 has it.
TO_BIASED = np.int32(127 - 2 * int(NEAREST))
ONE, FOUR, BITS = np.uintp(1), np.uintp(4), np.uintp(64)
LANES, WIDE = np.uintp(COLUMNS), np.uintp(BLOCK)
LANE_BITS = np.uint32 if COLUMNS == 32 else np.uint8  # a bit for each lane of a vector
FOUR_TIMES = np.int32(0x01010101)


@inner
def sign_words(group_rows: Int) -> Int:
    """How many words hold the signs of a group of B with so many rows."""
    return (group_rows + WORD - 1) // WORD


@inner
def four_times(byte: Int) -> Int:
    """The lowest byte in every byte of a word."""
    return np.int32(np.int32(byte & np.int32(255)) * FOUR_TIMES)


@inner
def padded(columns: Int) -> Int:
    """Columns of a block with those past N that are computed too."""
    return min(BLOCK, (columns + COLUMNS - 1) // COLUMNS * COLUMNS)


class Decoder(NamedTuple):
    """An encoding in the width of the vector code."""

    fraction: Int
    bias: Int
    unused: Int
    magnitude: Int  # the bits below the sign
    to_sign: Int  # from the sign to the last place
    last_finite: Int


@inner
def decoder(encoding: Encoding) -> Decoder:
    """For elements of that encoding."""
    return Decoder(
        np.int32(encoding.fraction),
        np.int32(encoding.bias),
        np.int32(encoding.unused),
        np.int32((1 << encoding.sign_place) - 1),
        np.int32(31 - encoding.sign_place),
        np.int32(encoding.special_from - 1),
    )


@inner
def decode(codes: Lanes, by: Decoder) -> tuple[Lanes, Lanes]:
    """Values and their exponents; what is infinite or NaN reads as 0, with an exponent of its own. No value is -0."""
    bits = read_as(codes, np.int32)
    zero, last = spread(np.int32(0), COLUMNS), spread(by.last_finite, COLUMNS)
    magnitude = (bits & spread(by.magnitude, COLUMNS)) >> spread(by.unused, COLUMNS)
    finite = where_above(magnitude, last, zero, magnitude)
    field = finite >> spread(by.fraction, COLUMNS)
    hidden = spread(np.int32(np.int32(1) << by.fraction), COLUMNS)
    significand = where_above(field, zero, (finite & (hidden - spread(np.int32(1), COLUMNS))) | hidden, finite)
    exponent = larger(field, spread(np.int32(1), COLUMNS)) - spread(by.bias, COLUMNS)
    negative = (bits << spread(by.to_sign, COLUMNS)) >> spread(np.int32(31), COLUMNS)
    signed = converted((significand ^ negative) - negative, np.float32)
    unit = spread(f32_of_bits(np.int32(np.int32(np.int32(127) - by.fraction) << np.int32(23))), COLUMNS)
    power = read_as((exponent + spread(np.int32(127), COLUMNS)) << spread(np.int32(23), COLUMNS), np.float32)
    exponent = where_above(significand, zero, exponent, spread(ZERO, COLUMNS))
    return signed * unit * power, where_above(magnitude, last, spread(SPECIAL, COLUMNS), exponent)


@inner
def scaled_exponent(largest: Int, scale_exponent: Int) -> Int:
    """The largest exponent of a group after scaling."""
    scaled = largest if largest == ZERO else np.int32(largest + scale_exponent)
    return SPECIAL if scale_exponent >= NAN_SCALE else scaled


class RowScratch(NamedTuple):
    """Room for one row of A, in whole vectors: codes, values, exponents, the largest of each element's group, signs."""

    codes: Array
    values: Array
    exponents: Array
    tops: Array
    below: Array  # a bit for each element below zero; one word more than needed
    above: Array  # and above


@inner
def row_scratch(elements: Int) -> RowScratch:
    """For rows of so many elements."""
    vectors = (elements + COLUMNS - 1) // COLUMNS
    return RowScratch(
        np.zeros(vectors * COLUMNS, np.uint32),
        np.empty(vectors * COLUMNS, np.float32),
        np.empty(vectors * COLUMNS, np.int32),
        np.empty(vectors * COLUMNS, np.int32),
        np.zeros(vectors * COLUMNS // 64 + 2, np.uint64),
        np.zeros(vectors * COLUMNS // 64 + 2, np.uint64),
    )


@inner
def some_bits(words: Array, first: Int, count: Int) -> Int:
    """That many bits, 64 at most, of a line of them."""
    word, place = first // BITS, np.uint64(first % BITS)
    found = (words[word] >> place) | ((words[word + ONE] << np.uint64(1)) << (np.uint64(63) - place))
    return found & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(BITS - count))


@inner
def bits_met(words: Array, met: tuple[Array, Array], at_row: Int, first: Int, count: Int) -> Int:
    """The same, for a sparse A: each bit in the place of the element of B that its element meets."""
    rows, b_places = met
    found = np.uint64(0)
    for index in range(first, first + count):
        place = np.uintp(b_places[np.uintp(rows[at_row + index])]) % (count + count)
        found |= ((words[index // BITS] >> np.uint64(index % BITS)) & np.uint64(1)) << np.uint64(place)
    return found


@inner
def largest_of_fours(exponents: Lanes) -> Lanes:
    """In each lane the largest of its four: groups have whole fours."""
    of_two = larger(exponents, neighbours(exponents, 1))
    return larger(of_two, neighbours(of_two, 2))


@inner
def bits_of_group(words: Array, met: tuple[Array, Array], at_row: Int, first: Int, count: Int, is_sparse: Int) -> Int:
    """Those of a group; `met` are `rows` and `b_places` of a Source."""
    return bits_met(words, met, at_row, first, count) if is_sparse else some_bits(words, first, count)


@inlined
def shorten_row(group_bytes: Array, groups: Array, first: Int, last: Int, size: Int) -> None:
    """Groups of a rule with short steps as bytes, by addresses: they have one word of signs."""
    for at in range(first * size, last * size, size):
        group_bytes[at + LARGEST] = four_times(np.int32(groups[at + LARGEST] + TO_BIASED))
        group_bytes[at + SIGNS] = four_times(groups[at + SIGNS])
        group_bytes[at + SIGNS + ONE] = four_times(groups[at + SIGNS + ONE])


@inner
def prepare_a(
    source: Source, constants: Constants, ready: PreparedA, scratch: RowScratch, first: Int, last: Int
) -> None:
    """Rows of A.

    The bit of an element is that of the element of B it meets: for a dense A the one in the same place, for a sparse
    one that of row `rows[row, index]` of B; no two elements of a step meet the same, and all meet the step's group.
    """
    by = decoder(constants.a)
    length, steps, size = np.uintp(constants.products), np.uintp(ready.groups.shape[1]), np.uintp(ready.groups.shape[2])
    stored, width = np.uintp(source.order.size), np.uintp(source.a.shape[1])
    codes, values, exponents = address(scratch.codes), address(scratch.values), address(scratch.exponents)
    tops, below, above = address(scratch.tops), address(scratch.below), address(scratch.above)
    below_bits, above_bits = read_from(below, LANE_BITS), read_from(above, LANE_BITS)
    a, order, met = address(source.a), address(source.order), (address(source.rows), address(source.b_places))
    ready_values, relatives = address(ready.values), address(ready.relatives)
    groups, group_bytes = address(ready.groups), address(ready.group_bytes)
    zero = spread(np.int32(0), COLUMNS)
    for row in range(np.uintp(first), np.uintp(last)):
        at_row = row * stored
        for index in range(stored):
            codes[index] = a[row * width + np.uintp(order[index])]
        for some in range(np.uintp(scratch.codes.size) // LANES):
            value, exponent = decode(load(codes, some * LANES, COLUMNS), by)
            store(values, some * LANES, value)
            store(exponents, some * LANES, exponent)
            store(tops, some * LANES, largest_of_fours(exponent))
            below_bits[some] = LANE_BITS(bits_above(zero, read_as(value, np.int32)))
            above_bits[some] = LANE_BITS(bits_above(read_as(value, np.int32), zero))
        for step in range(steps):
            start = step * length
            top = tops[start]
            for index in range(start + FOUR, start + length, FOUR):
                top = max(top, tops[index])
            for index in range(start, start + length, FOUR):
                store(tops, index, spread(top, 4))
            at_group = (row * steps + step) * size
            groups[at_group] = top
            negative = bits_of_group(below, met, at_row, start, length, constants.is_sparse)
            nonzero = negative | bits_of_group(above, met, at_row, start, length, constants.is_sparse)
            for at_word in range(at_group + SIGNS, at_group + size, ONE + ONE):
                groups[at_word] = np.int32(negative)
                groups[at_word + ONE] = np.int32(nonzero)
                negative, nonzero = negative >> np.uint64(WORD), nonzero >> np.uint64(WORD)
        if constants.is_short:
            shorten_row(group_bytes, groups, row * steps, (row + ONE) * steps, size)
        for index in range(stored):
            ready_values[at_row + index] = np.float64(values[index])
        for index in range(stored):
            relative = max(np.int32(np.int32(exponents[index] - tops[index]) + NEAREST), np.int32(0))
            relative = NOTHING if exponents[index] == ZERO else relative
            relatives[at_row + index] = four_times(relative)
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
    """Room for one group of B: a line of codes, and exponents for one vector of columns."""

    codes: Array
    exponents: Array


@inner
def group_scratch(rows: Int) -> GroupScratch:
    """For groups of so many rows."""
    return GroupScratch(np.empty(rows * BLOCK, np.uint32), np.empty(rows * COLUMNS, np.int32))


class Group(NamedTuple):
    """Where one group of B is: in which block of columns, how wide, and in the prepared arrays."""

    start: Int  # first column
    width: Int
    padded: Int  # columns with those past N that are computed too
    first: Int  # row, in the order of adding
    rows: Int
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
def gather_group(codes: Array, width: Int, order: Array, one: Int, line: Array, group: Group) -> None:
    """Codes of the rows of a group of B, by addresses; columns past N are ones."""
    for index in range(group.rows):
        at_line, at_codes = index * WIDE, np.uintp(order[group.first + index]) * width + group.start
        for column in range(group.width):
            line[at_line + column] = codes[at_codes + column]
        for column in range(group.width, group.padded):
            line[at_line + column] = one


@inlined
def prepare_group(line: Array, by: Decoder, ready: PreparedB, exponents: Array, group: Group) -> None:
    """A group whose codes are there, by addresses."""
    zero, tiny, nudge = spread(np.int32(0), COLUMNS), spread(TINY, COLUMNS), spread(NUDGE, COLUMNS)
    nearest, nothing, no_value = spread(NEAREST, COLUMNS), spread(NOTHING, COLUMNS), spread(ZERO, COLUMNS)
    for first in range(np.uintp(0), group.padded, LANES):
        top, signs, at_signs = no_value, zero, group.at_group + WIDE + first
        for index in range(group.rows):
            value, exponent = decode(load(line, index * WIDE + first, COLUMNS), by)
            bits = read_as(value, np.int32)
            nudged = converted(value, np.float64) * nudge
            nudged = where_above(larger(bits, zero - bits), zero, nudged, tiny)
            store(ready.values, group.at_rows + index * WIDE + first, nudged)
            store(exponents, index * LANES, exponent)
            top = larger(top, exponent)
            signs = signs | (
                where_above(zero, bits, spread(np.int32(1), COLUMNS), zero)
                << spread(np.int32(index % np.uintp(WORD)), COLUMNS)
            )
            if index % np.uintp(WORD) == np.uintp(WORD - 1) or index + ONE == group.rows:
                store(ready.groups, at_signs, signs)
                signs, at_signs = zero, at_signs + WIDE
        store(ready.groups, group.at_group + first, top)
        for index in range(group.rows):
            exponent = load(exponents, index * LANES, COLUMNS)
            relative = where_above(exponent, no_value, larger(exponent - top + nearest, zero), nothing)
            store(ready.relatives, group.at_rows + index * WIDE + first, converted(relative, np.int8))
    for index in range(group.rows):
        for column in range(group.padded, WIDE):
            ready.relatives[group.at_rows + index * WIDE + column] = np.int8(NEAREST)


@inlined
def shorten_group(ready: PreparedB, group: Group) -> None:
    """The largest exponents and the signs again, as bytes, by addresses."""
    for at in range(group.at_group, group.at_group + WIDE + WIDE, LANES):
        store(ready.group_bytes, at, converted(load(ready.groups, at, COLUMNS), np.uint8))


@inner
def prepare_b(
    source: Source, constants: Constants, ready: PreparedB, scratch: GroupScratch, first: Int, last: Int
) -> None:
    """Blocks of columns of B, group after group."""
    by = decoder(constants.b)
    one = np.uint32((constants.b.bias << constants.b.fraction) << constants.b.unused)
    steps = np.uintp(source.order.size // constants.products)
    rows, every = np.uintp(source.b_order.size), np.uintp(source.b.shape[1])
    group_rows = rows // steps
    words = np.uintp(sign_words(source.b_order.size // (source.order.size // constants.products)))
    there = PreparedB(
        address(ready.values), address(ready.relatives), address(ready.groups), address(ready.group_bytes)
    )
    codes, order = address(source.b), address(source.b_order)
    line, exponents = address(scratch.codes), address(scratch.exponents)
    for block in range(np.uintp(first), np.uintp(last)):
        width: Int = min(WIDE, every - block * WIDE)
        wide = np.uintp(padded(np.int64(width)))
        for step in range(steps):
            at_rows = (block * rows + step * group_rows) * WIDE
            at_group = (block * steps + step) * (ONE + words) * WIDE
            group = Group(block * WIDE, width, wide, step * group_rows, group_rows, at_rows, at_group)
            gather_group(codes, every, order, one, line, group)
            prepare_group(line, by, there, exponents, group)
            if constants.is_short:
                shorten_group(there, group)
            if source.scale_b.size > 0:
                scale_group(source.scale_b, step // np.uintp(constants.steps), ready, group)
