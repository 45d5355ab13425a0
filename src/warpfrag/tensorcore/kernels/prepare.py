"""Operands made ready for the vector loop: each element as a float64, a small exponent, and a bit for its sign.

A *group* is what shares one step: for A the elements of one row, for B those of one column. In a group with largest
exponent E, an int8 stands for e - E of each element, so that the largest exponent of a step is a maximum of int8
sums. The signs of a group are one or two words, a bit for each element below zero.

B is split into blocks of BLOCK columns, stored one after the other: what one step needs of a block is adjacent, and
a line of int8 is one vector.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from warpfrag.tensorcore.encodings import NAN_SCALE
from warpfrag.tensorcore.kernels.constants import Constants, Encoding
from warpfrag.tensorcore.kernels.jit import Array, Int, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import f32_of_bits
from warpfrag.tensorcore.kernels.scalar import power_of_two
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    ElementPointer,
    Lanes,
    address,
    bitcast,
    bitcast_address,
    cast,
    greater_mask,
    load,
    select_greater,
    splat,
    store,
    swap_lanes,
    vmax,
)

BLOCK = 64
# Exponents of elements and of scale factors are between -127 and 127. Sums of two exponents, relative or not, biased as
# in float64, must fit 12 bits.
EXPONENT_OF_ZERO = np.int32(-300)  # of an element, or of a whole group, that is 0
EXPONENT_OF_SPECIAL = np.int32(900)  # of an infinity or a NaN, and of a group with one or with a scale factor of NaN
MIN_SPECIAL_SUM = np.int32(400)  # the sum of two exponents is at least this if one of them is EXPONENT_OF_SPECIAL
# A relative exponent is stored as RELATIVE_BIAS + (e - E), at least 0; that of an element that is 0 as
# RELATIVE_OF_ZERO. So the sum of two fits int8, and is negative just where a product is 0.
RELATIVE_BIAS = np.int32(63)
RELATIVE_OF_ZERO = np.int32(-64)
B_BIAS = 1.0 + 2.0**-30  # factor on the elements of B, away from zero: `strip` says what for
ZERO_STANDIN = 2.0**-500  # represents a 0 of B: far below any grid, but above 0 as its sign bit says


Storage = TypeVar("Storage")
"""Arrays, or their addresses."""


class SourceOperands(NamedTuple):
    """The operands before preparation: codes, the order of adding, and scale factors.

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


class PreparedA(NamedTuple, Generic[Storage]):
    """A in the order of adding: per element [row, index], and per group [row, step, MAX_EXPONENT and words of signs].

    Of a rule with short steps, `group_bytes` is `groups` as bytes, the largest exponents TO_BIASED larger.
    Bytes, as relative exponents are, fill a word four times: processors are quicker to spread that over a vector.
    Of a sparse A, `lines` is where the line of B that an element is multiplied with begins, in any block of columns.
    """

    values: Storage
    relatives: Storage
    groups: Storage
    group_bytes: Storage
    lines: Storage


class PreparedB(NamedTuple, Generic[Storage]):
    """B in the order of adding, flat: element (block, row, column) is at (block * rows + row) * BLOCK + column.

    A group takes lines of BLOCK: the largest exponents, then words of signs. Of a rule with short steps, `group_bytes`
    is the same as bytes.
    """

    values: Storage
    relatives: Storage
    groups: Storage
    group_bytes: Storage


# Of a group of A: the largest exponent; then, for each word of signs, a bit for each element below zero and one for
# each that is not zero.
MAX_EXPONENT, SIGNS = np.uintp(0), np.uintp(1)
WORD = 32
# From a sum of relative exponents, and the two they are relative to, to the exponent as an f32 has it.
TO_BIASED = np.int32(127 - 2 * int(RELATIVE_BIAS))
U1, U4, BITS = np.uintp(1), np.uintp(4), np.uintp(64)
VECTOR_LANES, PITCH = np.uintp(COLUMNS), np.uintp(BLOCK)
LANE_BITS = np.uint32 if COLUMNS == 32 else np.uint8  # a bit for each lane of a vector
FOUR_TIMES = np.int32(0x01010101)


@inner
def sign_words(group_rows: Int) -> Int:
    """Return the number of words that hold the signs of a group of B with `group_rows` rows."""
    return (group_rows + WORD - 1) // WORD


@inner
def four_times(byte: Int) -> Int:
    """Return the lowest byte in every byte of a word."""
    return np.int32(np.int32(byte & np.int32(255)) * FOUR_TIMES)


@inner
def padded(columns: Int) -> Int:
    """Return the columns of a block, rounded up to whole vectors: those past N are computed too, and never read."""
    return min(BLOCK, (columns + COLUMNS - 1) // COLUMNS * COLUMNS)


class ElementDecoder(NamedTuple):
    """The decoding of elements: an `Encoding` in 32-bit lanes."""

    fraction: Int
    bias: Int
    unused: Int
    magnitude: Int  # the bits below the sign
    to_sign: Int  # from the sign to the last place
    last_finite: Int


@inner
def decoder_of(encoding: Encoding) -> ElementDecoder:
    """Return the decoder of an encoding."""
    return ElementDecoder(
        fraction=np.int32(encoding.fraction),
        bias=np.int32(encoding.bias),
        unused=np.int32(encoding.unused),
        magnitude=np.int32((1 << encoding.sign_place) - 1),
        to_sign=np.int32(31 - encoding.sign_place),
        last_finite=np.int32(encoding.special_from - 1),
    )


@inner
def decode(codes: Lanes, by: ElementDecoder) -> tuple[Lanes, Lanes]:
    """Return values and their exponents; infinity and NaN read as 0, with an exponent of their own. No value is -0."""
    bits = bitcast(codes, np.int32)
    zero, last = splat(np.int32(0), COLUMNS), splat(by.last_finite, COLUMNS)
    magnitude = (bits & splat(by.magnitude, COLUMNS)) >> splat(by.unused, COLUMNS)
    finite = select_greater(magnitude, last, zero, magnitude)
    field = finite >> splat(by.fraction, COLUMNS)
    hidden = splat(np.int32(np.int32(1) << by.fraction), COLUMNS)
    significand = select_greater(field, zero, (finite & (hidden - splat(np.int32(1), COLUMNS))) | hidden, finite)
    exponent = vmax(field, splat(np.int32(1), COLUMNS)) - splat(by.bias, COLUMNS)
    negative = (bits << splat(by.to_sign, COLUMNS)) >> splat(np.int32(31), COLUMNS)
    signed = cast((significand ^ negative) - negative, np.float32)
    unit = splat(f32_of_bits(np.int32(np.int32(np.int32(127) - by.fraction) << np.int32(23))), COLUMNS)
    power = bitcast((exponent + splat(np.int32(127), COLUMNS)) << splat(np.int32(23), COLUMNS), np.float32)
    exponent = select_greater(significand, zero, exponent, splat(EXPONENT_OF_ZERO, COLUMNS))
    return signed * unit * power, select_greater(magnitude, last, splat(EXPONENT_OF_SPECIAL, COLUMNS), exponent)


@inner
def scaled_exponent(largest: Int, scale_exponent: Int) -> Int:
    """Return the largest exponent of a group after scaling."""
    scaled = largest if largest == EXPONENT_OF_ZERO else np.int32(largest + scale_exponent)
    return EXPONENT_OF_SPECIAL if scale_exponent >= NAN_SCALE else scaled


class RowScratch(NamedTuple):
    """Buffers for one row of A, in whole vectors."""

    codes: Array
    values: Array
    exponents: Array
    group_max: Array  # the largest exponent of each element's group
    negative_bits: Array  # a bit for each element below zero; one word more than needed
    positive_bits: Array  # and one for each above


@inner
def row_scratch(elements: Int) -> RowScratch:
    """Return buffers for rows of `elements` elements."""
    vectors = (elements + COLUMNS - 1) // COLUMNS
    return RowScratch(
        codes=np.zeros(vectors * COLUMNS, np.uint32),
        values=np.zeros(vectors * COLUMNS, np.float32),
        exponents=np.empty(vectors * COLUMNS, np.int32),
        group_max=np.empty(vectors * COLUMNS, np.int32),
        negative_bits=np.zeros(vectors * COLUMNS // 64 + 2, np.uint64),
        positive_bits=np.zeros(vectors * COLUMNS // 64 + 2, np.uint64),
    )


@inner
def some_bits(words: ElementPointer, first: Int, count: Int) -> Int:
    """Return `count` bits, 64 at most, from bit `first` on."""
    word, place = first // BITS, np.uint64(first % BITS)
    bits = (words[word] >> place) | ((words[word + U1] << np.uint64(1)) << (np.uint64(63) - place))
    return bits & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(BITS - count))


@inner
def meet_b(
    lines: ElementPointer,
    signs: tuple[ElementPointer, ElementPointer],
    met: tuple[ElementPointer, ElementPointer],
    at_row: Int,
    first: Int,
    count: Int,
) -> tuple[Int, Int]:
    """Compute `signs_of_group` for a sparse A: each bit has the index of the element of B that its element meets.

    The starts of these elements' lines are written to `lines`.
    """
    negative_bits, positive_bits = signs
    rows, b_places = met
    negative = nonzero = np.uint64(0)
    for index in range(first, first + count):
        line = np.uintp(b_places[np.uintp(rows[at_row + index])])
        lines[at_row + index] = np.uint32(line) * np.uint32(BLOCK)
        word, shift, place = index // BITS, np.uint64(index % BITS), np.uint64(line - (first + first))
        is_negative = (negative_bits[word] >> shift) & np.uint64(1)
        negative |= is_negative << place
        nonzero |= (is_negative | ((positive_bits[word] >> shift) & np.uint64(1))) << place
    return negative, nonzero


@inner
def signs_of_group(
    lines: ElementPointer,
    signs: tuple[ElementPointer, ElementPointer],
    met: tuple[ElementPointer, ElementPointer],
    at_row: Int,
    first: Int,
    count: Int,
    is_sparse: Int,
) -> tuple[Int, Int]:
    """Return bits for the elements of a group that are below zero, and for those that are not 0.

    `signs` are the negative and the positive bits of a row, `met` are `rows` and `b_places` of a `SourceOperands`.
    """
    if is_sparse:
        return meet_b(lines, signs, met, at_row, first, count)
    negative_bits, positive_bits = signs
    negative = some_bits(negative_bits, first, count)
    return negative, negative | some_bits(positive_bits, first, count)


@inner
def largest_of_fours(exponents: Lanes) -> Lanes:
    """Return in each lane the largest of its four lanes: groups are multiples of four."""
    of_two = vmax(exponents, swap_lanes(exponents, 1))
    return vmax(of_two, swap_lanes(of_two, 2))


@inlined
def shorten_row(group_bytes: ElementPointer, groups: ElementPointer, first: Int, last: Int, size: Int) -> None:
    """Write groups of A as bytes, for a rule with short steps: they have one word of signs."""
    for at in range(first * size, last * size, size):
        group_bytes[at + MAX_EXPONENT] = four_times(np.int32(groups[at + MAX_EXPONENT] + TO_BIASED))
        group_bytes[at + SIGNS] = four_times(groups[at + SIGNS])
        group_bytes[at + SIGNS + U1] = four_times(groups[at + SIGNS + U1])


@inner
def prepare_a(
    source: SourceOperands, constants: Constants, ready: PreparedA[Array], scratch: RowScratch, first: Int, last: Int
) -> None:
    """Prepare rows of A.

    The bit of an element has the place of the element of B it is multiplied with: for a dense A its own place, for a
    sparse one that of row `rows[row, index]` of B. No two elements of a step share one; all are in its group.
    """
    by = decoder_of(constants.a)
    length, steps, size = np.uintp(constants.products), np.uintp(ready.groups.shape[1]), np.uintp(ready.groups.shape[2])
    stored, width = np.uintp(source.order.size), np.uintp(source.a.shape[1])
    codes, values, exponents = address(scratch.codes), address(scratch.values), address(scratch.exponents)
    group_max = address(scratch.group_max)
    negative_bits, positive_bits = address(scratch.negative_bits), address(scratch.positive_bits)
    negative_lanes = bitcast_address(negative_bits, LANE_BITS)
    positive_lanes = bitcast_address(positive_bits, LANE_BITS)
    a, order, met = address(source.a), address(source.order), (address(source.rows), address(source.b_places))
    ready_values, relatives = address(ready.values), address(ready.relatives)
    groups, group_bytes, lines = address(ready.groups), address(ready.group_bytes), address(ready.lines)
    zero = splat(np.int32(0), COLUMNS)
    for row in range(np.uintp(first), np.uintp(last)):
        at_row = row * stored
        for index in range(stored):
            codes[index] = a[row * width + np.uintp(order[index])]
        for some in range(np.uintp(scratch.codes.size) // VECTOR_LANES):
            value, exponent = decode(load(codes, some * VECTOR_LANES, COLUMNS), by)
            store(values, some * VECTOR_LANES, value)
            store(exponents, some * VECTOR_LANES, exponent)
            store(group_max, some * VECTOR_LANES, largest_of_fours(exponent))
            negative_lanes[some] = LANE_BITS(greater_mask(zero, bitcast(value, np.int32)))
            positive_lanes[some] = LANE_BITS(greater_mask(bitcast(value, np.int32), zero))
        for step in range(steps):
            start = step * length
            max_exponent = group_max[start]
            for index in range(start + U4, start + length, U4):
                max_exponent = max(max_exponent, group_max[index])
            for index in range(start, start + length, U4):
                store(group_max, index, splat(max_exponent, 4))
            at_group = (row * steps + step) * size
            groups[at_group] = max_exponent
            signs = (negative_bits, positive_bits)
            negative, nonzero = signs_of_group(lines, signs, met, at_row, start, length, constants.is_sparse)
            for at_word in range(at_group + SIGNS, at_group + size, U1 + U1):
                groups[at_word] = np.int32(negative)
                groups[at_word + U1] = np.int32(nonzero)
                negative, nonzero = negative >> np.uint64(WORD), nonzero >> np.uint64(WORD)
        if constants.is_short:
            shorten_row(group_bytes, groups, row * steps, (row + U1) * steps, size)
        for index in range(stored):
            ready_values[at_row + index] = np.float64(values[index])
        for index in range(stored):
            relative = max(np.int32(np.int32(exponents[index] - group_max[index]) + RELATIVE_BIAS), np.int32(0))
            relative = RELATIVE_OF_ZERO if exponents[index] == EXPONENT_OF_ZERO else relative
            relatives[at_row + index] = four_times(relative)
        if source.scale_a.size > 0:
            scale_row(source.scale_a, ready, constants, row)


@inlined
def scale_row(scale: Array, ready: PreparedA[Array], constants: Constants, row: Int) -> None:
    """Multiply a row by its scale factors."""
    for step in range(ready.groups.shape[1]):
        scale_exponent = scale[row, step // constants.steps]
        ready.groups[row, step, MAX_EXPONENT] = scaled_exponent(ready.groups[row, step, MAX_EXPONENT], scale_exponent)
        for index in range(step * constants.products, (step + 1) * constants.products):
            ready.values[row, index] *= power_of_two(scale_exponent)


class GroupScratch(NamedTuple):
    """Buffers for one group of B: a line of codes, and exponents for one vector of columns."""

    codes: Array
    exponents: Array


@inner
def group_scratch(rows: Int) -> GroupScratch:
    """Return buffers for groups of `rows` rows."""
    return GroupScratch(codes=np.empty(rows * BLOCK, np.uint32), exponents=np.empty(rows * COLUMNS, np.int32))


class ColumnGroup(NamedTuple):
    """The position of one group of B: its block of columns, its width, and its index in the prepared arrays."""

    start: Int  # first column
    width: Int
    padded: Int  # columns with those past N that are computed too
    first: Int  # row, in the order of adding
    rows: Int
    at_rows: Int
    at_group: Int


@inlined
def scale_group(scale: Array, instruction: Int, ready: PreparedB[Array], group: ColumnGroup) -> None:
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
def gather_group(
    codes: ElementPointer, width: Int, order: ElementPointer, unit_code: Int, line: ElementPointer, group: ColumnGroup
) -> None:
    """Copy the codes of a group of B; columns past N are 1."""
    for index in range(group.rows):
        at_line, at_codes = index * PITCH, np.uintp(order[group.first + index]) * width + group.start
        for column in range(group.width):
            line[at_line + column] = codes[at_codes + column]
        for column in range(group.width, group.padded):
            line[at_line + column] = unit_code


@inlined
def prepare_group(
    line: ElementPointer,
    by: ElementDecoder,
    ready: PreparedB[ElementPointer],
    exponents: ElementPointer,
    group: ColumnGroup,
) -> None:
    """Prepare a group of B whose codes are gathered in `line`."""
    zero, standin, bias = splat(np.int32(0), COLUMNS), splat(ZERO_STANDIN, COLUMNS), splat(B_BIAS, COLUMNS)
    relative_bias, relative_of_zero, exponent_of_zero = (
        splat(RELATIVE_BIAS, COLUMNS),
        splat(RELATIVE_OF_ZERO, COLUMNS),
        splat(EXPONENT_OF_ZERO, COLUMNS),
    )
    for first in range(np.uintp(0), group.padded, VECTOR_LANES):
        max_exponent, signs, at_signs = exponent_of_zero, zero, group.at_group + PITCH + first
        for index in range(group.rows):
            value, exponent = decode(load(line, index * PITCH + first, COLUMNS), by)
            bits = bitcast(value, np.int32)
            biased = cast(value, np.float64) * bias
            biased = select_greater(vmax(bits, zero - bits), zero, biased, standin)
            store(ready.values, group.at_rows + index * PITCH + first, biased)
            store(exponents, index * VECTOR_LANES, exponent)
            max_exponent = vmax(max_exponent, exponent)
            signs = signs | (
                select_greater(zero, bits, splat(np.int32(1), COLUMNS), zero)
                << splat(np.int32(index % np.uintp(WORD)), COLUMNS)
            )
            if index % np.uintp(WORD) == np.uintp(WORD - 1) or index + U1 == group.rows:
                store(ready.groups, at_signs, signs)
                signs, at_signs = zero, at_signs + PITCH
        store(ready.groups, group.at_group + first, max_exponent)
        for index in range(group.rows):
            exponent = load(exponents, index * VECTOR_LANES, COLUMNS)
            relative = select_greater(
                exponent, exponent_of_zero, vmax(exponent - max_exponent + relative_bias, zero), relative_of_zero
            )
            store(ready.relatives, group.at_rows + index * PITCH + first, cast(relative, np.int8))
    for index in range(group.rows):
        for column in range(group.padded, PITCH):
            ready.relatives[group.at_rows + index * PITCH + column] = np.int8(RELATIVE_BIAS)


@inlined
def shorten_group(ready: PreparedB[ElementPointer], group: ColumnGroup) -> None:
    """Write the largest exponents and the signs of a group of B as bytes too."""
    for at in range(group.at_group, group.at_group + PITCH + PITCH, VECTOR_LANES):
        store(ready.group_bytes, at, cast(load(ready.groups, at, COLUMNS), np.uint8))


@inner
def prepare_b(
    source: SourceOperands, constants: Constants, ready: PreparedB[Array], scratch: GroupScratch, first: Int, last: Int
) -> None:
    """Prepare blocks of columns of B, group after group."""
    by = decoder_of(constants.b)
    unit_code = np.uint32((constants.b.bias << constants.b.fraction) << constants.b.unused)
    steps = np.uintp(source.order.size // constants.products)
    rows, every = np.uintp(source.b_order.size), np.uintp(source.b.shape[1])
    group_rows = rows // steps
    words = np.uintp(sign_words(source.b_order.size // (source.order.size // constants.products)))
    addresses = PreparedB(
        values=address(ready.values),
        relatives=address(ready.relatives),
        groups=address(ready.groups),
        group_bytes=address(ready.group_bytes),
    )
    codes, order = address(source.b), address(source.b_order)
    line, exponents = address(scratch.codes), address(scratch.exponents)
    for block in range(np.uintp(first), np.uintp(last)):
        width: Int = min(PITCH, every - block * PITCH)
        wide = np.uintp(padded(np.int64(width)))
        for step in range(steps):
            at_rows = (block * rows + step * group_rows) * PITCH
            at_group = (block * steps + step) * (U1 + words) * PITCH
            group = ColumnGroup(
                start=block * PITCH,
                width=width,
                padded=wide,
                first=step * group_rows,
                rows=group_rows,
                at_rows=at_rows,
                at_group=at_group,
            )
            gather_group(codes, every, order, unit_code, line, group)
            prepare_group(line, by, addresses, exponents, group)
            if constants.is_short:
                shorten_group(addresses, group)
            if source.scale_b.size > 0:
                scale_group(source.scale_b, step // np.uintp(constants.steps), ready, group)
