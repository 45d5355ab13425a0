"""One step of the truncated fused dot-product-add, for a strip of rows of A and a block of columns of B.

1. The largest exponent of the products: a maximum over int8 sums (`find_largest`).
2. With C's exponent, the common grid, and a float64 whose last place is that grid; C is added to it (`started`).
3. Products added to it, with the rounding mode towards zero (`add_products`).
4. The exact sum (`exact_sum`), rounded once: truncated with its last bits, or to the nearest f16 (`round_to_f16`).

Why a float64 sum truncates each product to the grid: it starts at 1.5 * 2**52 grids and stays between 2**52 and 2**53
of them. So it is a multiple of the grid, and adding a product rounds that product down to the grid. Down is towards
zero for a product above zero. For one below zero it is one grid too far, except where the product lies on the grid.
There is no exception once every element of B, and C, is larger by 2**-30 of itself (`prepare.NUDGE`): a product has at
most 22 bits and 2**27 grids (C: 24 and 2**26), so one that was on the grid now lies just outside, and one that was not
has still not reached the next. Then each product below zero is one grid too far, and the sum starts that many grids
higher: `started` counts them by their signs. A 0 of A has no sign; a 0 of B is made so small a number above zero
(`prepare.TINY`) that its products are counted like any other.

An example, with grids of 1 (common exponent 25, 25 fraction bits). Products 5.75, -2.25 and -3, C = 4: truncated they
are 5, -2 and -3, and the sum is 4. Two products are below zero, so the float64 starts at 1.5 * 2**52 + 2. Let S be
1.5 * 2**52; B was made larger by 2**-30 of itself, so the products are a little further from zero.

    S + 2                        the sum starts two grids higher
    + 4.0000000037  =  S + 6     C
    + 5.7500000054  =  S + 11    S + 11.75... is not a float64: rounded towards zero, which is down
    - 2.2500000021  =  S + 8     S + 8.74... down: one grid too far, as for every product below zero
    - 3.0000000028  =  S + 4     S + 4.99... down: too far as well, because the product no longer lies on the grid
    - S             =  4         exact, and right: the two grids too far are the two at the start

Steps of few products do 2 and 4 in another way: `short_steps`.

A row is *odd* if it has an output that all this does not cover; `fused` does those again. Those without a product that
the int8 sums can rely on are seen there. Those with a common exponent out of range are looked for only if the largest
exponents of the groups, or C, allow any: `find_far` takes as long as the rest of step 2.

Outputs are float64 here, whatever the accumulator's format. The rows of a strip lie BLOCK apart in everything
that is kept for one. Indices are unsigned because a signed one might count from the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.encodings import TO_E8M13_RZ, TO_F16_RN
from warpfrag.arithmetic.kernels.constants import IS_F16, Constants
from warpfrag.arithmetic.kernels.four_rows import STRIP, Four, FourSums, add_lines
from warpfrag.arithmetic.kernels.jit import Array, Flag, Float, Int, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f64, f64_of_bits
from warpfrag.arithmetic.kernels.prepare import (
    BLOCK,
    LARGEST,
    NEAREST,
    NUDGE,
    ONE,
    SIGNS,
    WIDE,
    WORD,
    PreparedA,
    PreparedB,
)
from warpfrag.arithmetic.kernels.rounding import OVERFLOW_F16
from warpfrag.arithmetic.kernels.vector import (
    COLUMNS,
    Lanes,
    bits_above,
    converted,
    interleaved,
    larger,
    load,
    multiply_add,
    odd_lanes,
    ones_of,
    read_as,
    spread,
    store,
)
from warpfrag.arithmetic.kernels.ways import LEAST_COMMON

TOP = 2 * int(NEAREST)  # the sum of two relative exponents that are the largest of their groups
FAR = np.int8(TOP - int(NEAREST))  # sums up to here may be too large: one of the two may have been raised to 0
MOST_COMMON = 120  # 32 products and C are then below 2**128
BIAS = 1023  # of a float64's exponent
EXPONENT = np.int64(2047 << 52)  # mask of a float64's exponent
UPPER_EXPONENT = np.uint32(2047 << 20)  # the same in its upper word
UPPER_SIGN = np.uint32(1 << 31)
TO_UPPER = np.uint32(20)  # from an exponent to its place in the upper word
HALF = 1 << 19  # in the upper word of a float64: one half after the leading one
ORIGIN = np.uint32((LEAST_COMMON + BIAS) << 20)
FURTHEST = np.uint32((MOST_COMMON - LEAST_COMMON) << 20)
# Where the largest exponents of two groups come to LEAST_PAIR at least, no common exponent is below LEAST_COMMON: a sum
# that can be relied on lies at most NEAREST - 1 below theirs. Where they come to MOST_PAIR at most, 2**37 products do
# not bring a C above MOST_COMMON that began below LARGE.
LEAST_PAIR = np.int32(LEAST_COMMON + int(NEAREST) - 1)
MOST_PAIR = np.int32(MOST_COMMON - 40)
LARGE = np.float32(2.0 ** (MOST_COMMON - 1))

WORDS = BLOCK // 4  # 32-bit words of a line of int8
NO_BITS = np.uint64(0)
WIDE2 = np.uintp(2 * BLOCK)
WIDE3 = np.uintp(3 * BLOCK)
PLAINLY, NOT_PLAINLY = True, False  # how sums start
ROW0, ROW1, ROW2, ROW3 = np.uintp(0), np.uintp(1), np.uintp(2), np.uintp(3)


class Place(NamedTuple):
    """Some rows of A and a block of columns of B: where everything is."""

    first_row: Int
    last_row: Int
    all_steps: Int
    at_once: Int  # steps whose lines of B stay in a near cache while all rows pass
    products: Int
    sign_words: Int
    at_lines: Int  # B's first line
    first_group: Int  # B's
    first_column: Int
    width: Int  # a multiple of COLUMNS


class Strip(NamedTuple):
    """One step of the strip that begins with a row. Arrays come as addresses."""

    place: Place
    row: Int  # the first
    step: Int
    at_first: Int  # B's line for the first product
    at_group: Int  # B's group
    at_held: Int  # the first row of what the outputs hold: C at first, then the result of each step; never -0


@inner
def strip_of(place: Place, row: Int, step: Int, at_held: Int) -> Strip:
    """The strip that begins with a row."""
    at_group = (place.first_group + step) * (ONE + place.sign_words) * WIDE
    return Strip(place, row, step, place.at_lines + step * place.products * WIDE, at_group, at_held)


class Scratch(NamedTuple):
    """Room for the outputs of some rows and a block of columns, and for one strip of them; or its addresses."""

    accumulators: Array  # C, then D
    from_zero: Array  # what the outputs of a strip hold, where C is added last or rows are done again in float64
    tops: Array  # largest sums of exponents
    odd: Array
    before: Array  # what odd rows held before the step, where any is
    lines: Array  # of a sparse A: where the line of B is that each element meets
    held_f32: Array  # the accumulators of short steps
    exponents: Array  # of a short step: the largest exponents of products, biased as an f32's
    below: Array  # and how many products are below zero


@inner
def group_of(strip: Strip, row: Int) -> Int:
    """Which group of A is that of a row of the strip; A's last row stands for those past it: there are always four."""
    return min(strip.row + np.uintp(row), strip.place.last_row) * strip.place.all_steps + strip.step


@inner
def elements_of(strip: Strip) -> Four:
    """Where the elements of the four groups of A begin."""
    return (
        group_of(strip, 0) * strip.place.products,
        group_of(strip, 1) * strip.place.products,
        group_of(strip, 2) * strip.place.products,
        group_of(strip, 3) * strip.place.products,
    )


@inner
def largest(top: Lanes, relative: Int, line: Lanes) -> Lanes:
    """The larger of `top` and the sums of a row's element, four times in a word, and a line of B."""
    return larger(top, read_as(spread(relative, WORDS), np.int8) + line)


@inlined
def largest_sums(a: Array, rows: Four, b: Array, at: Int, products: Int) -> FourSums:
    """The largest sums of exponents of four rows; `a` and `b` are relative exponents."""
    row0, row1, row2, row3 = rows
    top0 = top1 = top2 = top3 = spread(np.int8(-128), BLOCK)
    for k in range(products):
        line = load(b, at, BLOCK)
        top0 = largest(top0, a[row0 + k], line)
        top1 = largest(top1, a[row1 + k], line)
        top2 = largest(top2, a[row2 + k], line)
        top3 = largest(top3, a[row3 + k], line)
        at += WIDE
    return top0, top1, top2, top3


@inlined
def find_largest(tops: Array, odd: Array, a: Array, b: Array, strip: Strip) -> None:
    """The largest sum of exponents of each output; `a` and `b` are relative exponents.

    A row is odd if any of its sums cannot be relied on, or says that there is no product but 0.
    """
    keep_largest(tops, odd, largest_sums(a, elements_of(strip), b, strip.at_first, strip.place.products))


@inlined
def find_largest_sparse(tops: Array, odd: Array, a: Array, b: Array, lines: Array, strip: Strip) -> None:
    """The same for a sparse A, each of whose elements meets a line of B of its own."""
    row0, row1, row2, row3 = elements_of(strip)
    two, three = strip.place.products * np.uintp(2), strip.place.products * np.uintp(3)
    top0 = top1 = top2 = top3 = spread(np.int8(-128), BLOCK)
    for k in range(strip.place.products):
        top0 = largest(top0, a[row0 + k], load(b, lines[k], BLOCK))
        top1 = largest(top1, a[row1 + k], load(b, lines[k + strip.place.products], BLOCK))
        top2 = largest(top2, a[row2 + k], load(b, lines[k + two], BLOCK))
        top3 = largest(top3, a[row3 + k], load(b, lines[k + three], BLOCK))
    keep_largest(tops, odd, (top0, top1, top2, top3))


@inner
def any_unreliable(found: FourSums) -> Flag:
    """Whether any of these sums cannot be relied on, or says that there is no product but 0."""
    top0, top1, top2, top3 = found
    near = spread(np.int8(FAR + 1), BLOCK)
    bits = bits_above(near, top0) | bits_above(near, top1) | bits_above(near, top2) | bits_above(near, top3)
    return bits != NO_BITS


@inlined
def keep_largest(tops: Array, odd: Array, found: FourSums) -> None:
    """Store them, and mark rows."""
    top0, top1, top2, top3 = found
    store(tops, 0, top0)
    store(tops, WIDE, top1)
    store(tops, WIDE2, top2)
    store(tops, WIDE3, top3)
    near = spread(np.int8(FAR + 1), BLOCK)
    odd[0] = bits_above(near, top0) != NO_BITS
    odd[1] = bits_above(near, top1) != NO_BITS
    odd[2] = bits_above(near, top2) != NO_BITS
    odd[3] = bits_above(near, top3) != NO_BITS


class Start(NamedTuple):
    """What the starts of all sums have in common: exponents biased as in float64, where they are in its upper word."""

    least: Lanes  # exponent that a C which is not 0 is read with at least
    floor: Lanes  # common exponent at least
    is_narrow: Flag  # whether any of the two is ever reached
    is_plain: Flag  # not so, and the word of signs has a bit left for C's
    to_start: Lanes  # from a common exponent to the upper word of the sum's start


@inner
def start_of(constants: Constants, group_rows: Int) -> Start:
    """By the numbers of a rule, and how many signs a group of B has."""
    # An f32 is read with its own exponent, an f16 with at least that of its subnormals, or of those it is read as.
    least_c = constants.c_emin + BIAS if constants.c_format == IS_F16 else 0
    is_narrow = constants.is_narrow != 0
    return Start(
        spread(np.int32(np.int32(least_c) << np.int32(20)), COLUMNS),
        spread(np.int32(np.int32(constants.zero_exponent + BIAS) << np.int32(20)), COLUMNS),
        is_narrow,
        not is_narrow and group_rows < WORD,
        spread(np.uint32(((52 - constants.fraction_bits) << 20) + HALF), COLUMNS),
    )


@inner
def common_exponents(upper_c: Lanes, largest_pair: Lanes, top: Lanes, start: Start, plainly: Flag) -> Lanes:
    """Of some columns of a row, by the upper words of C, the largest exponents of groups, and the largest sums."""
    exponent_c = upper_c & spread(UPPER_EXPONENT, COLUMNS)
    if not plainly and start.is_narrow:
        signed = read_as(exponent_c, np.int32)
        is_zero = (signed - spread(np.int32(1), COLUMNS)) >> spread(np.int32(31), COLUMNS)
        raised = larger(signed, start.least - (start.least & is_zero))
        exponent_c = read_as(larger(raised, start.floor), np.uint32)
    products = read_as(largest_pair + converted(top, np.int32), np.uint32) << spread(TO_UPPER, COLUMNS)
    return larger(products, exponent_c)


@inner
def largest_of(a_groups: Array, at_group: Int) -> Lanes:
    """The largest exponent of a group of A, as `common_exponents` needs it to be added to those of B."""
    return spread(np.int32(a_groups[at_group + LARGEST] + np.int32(BIAS - TOP)), COLUMNS)


@inner
def upper_words(values: Lanes) -> Lanes:
    """The upper words of float64s."""
    return odd_lanes(read_as(values, np.uint32))


@inlined
def find_far(
    odd: Array, tops: Array, held: Array, a_groups: Array, b_groups: Array, start: Start, strip: Strip
) -> None:
    """Mark rows with a common exponent out of range, as it is with any infinity or NaN."""
    size = group_size(strip)
    for row in range(STRIP):
        own = np.uintp(row) * WIDE
        largest_a = largest_of(a_groups, group_of(strip, row) * size)
        reach = spread(np.uint32(0), COLUMNS)
        for j in range(np.uintp(0), strip.place.width, np.uintp(COLUMNS)):
            upper_c = upper_words(load(held, strip.at_held + own + j, COLUMNS))
            largest_pair = load(b_groups, strip.at_group + j, COLUMNS) + largest_a
            common = common_exponents(upper_c, largest_pair, load(tops, own + j, COLUMNS), start, start.is_plain)
            reach = larger(reach, common - spread(ORIGIN, COLUMNS))
        odd[row] |= bits_above(reach, spread(FURTHEST, COLUMNS)) != NO_BITS


@inner
def group_size(strip: Strip) -> Int:
    """Words of a group of A."""
    return SIGNS + strip.place.sign_words + strip.place.sign_words


@inner
def below_zero(a_groups: Array, at_word: Int, b_groups: Array, at_signs: Int) -> Lanes:
    """A bit for each product of one word of signs that is below zero, for some columns."""
    negative = spread(np.uint32(a_groups[at_word]), COLUMNS)
    nonzero = spread(np.uint32(a_groups[at_word + ONE]), COLUMNS)
    return (read_as(load(b_groups, at_signs, COLUMNS), np.uint32) ^ negative) & nonzero


@inner
def started(
    held: Array, tops: Array, a: PreparedA, b: PreparedB, start: Start, strip: Strip, row: Int, j: Int, plainly: Flag
) -> Lanes:
    """What the sums of some columns of a row start from, with C added. The rounding mode is towards zero."""
    own, at_a = row * WIDE, group_of(strip, row) * group_size(strip)
    c = load(held, strip.at_held + own + j, COLUMNS)
    upper_c = upper_words(c)
    largest_pair = load(b.groups, strip.at_group + j, COLUMNS) + largest_of(a.groups, at_a)
    common = common_exponents(upper_c, largest_pair, load(tops, own + j, COLUMNS), start, plainly)
    at_word, at_signs = at_a + SIGNS, strip.at_group + WIDE + j
    signs = below_zero(a.groups, at_word, b.groups, at_signs)
    if plainly:
        below = ones_of(signs | (upper_c & spread(UPPER_SIGN, COLUMNS)))
    else:
        below = ones_of(signs) + (upper_c >> spread(np.uint32(31), COLUMNS))
        if strip.place.sign_words > ONE:
            below = below + ones_of(below_zero(a.groups, at_word + ONE + ONE, b.groups, at_signs + WIDE))
    first = read_as(interleaved(below, common + start.to_start), np.float64)
    return multiply_add(c, spread(NUDGE, COLUMNS), first)


@inner
def any_large(held: Array, first: Int, count: Int) -> Flag:
    """Whether any of so many numbers is too large for C, or NaN."""
    found = False
    for at in range(first, first + count):
        found |= not abs(held[at]) < LARGE
    return found


@inlined
def keep_odd_rows(before: Array, odd: Array, held: Array, strip: Strip) -> None:
    """Remember what odd rows held before the step."""
    for row in range(STRIP):
        if odd[row]:
            own = np.uintp(row) * WIDE
            for j in range(strip.place.width):
                before[own + j] = held[strip.at_held + own + j]


@inner
def exact_sum(total: Lanes) -> Lanes:
    """A sum without what it started from."""
    power = read_as(read_as(total, np.int64) & spread(EXPONENT, COLUMNS), np.float64)
    return multiply_add(power, spread(-1.5, COLUMNS), total)


@inner
def truncated(exact: Lanes, kept: Int) -> Lanes:
    """Only these bits of it."""
    return read_as(read_as(exact, np.int64) & spread(kept, COLUMNS), np.float64)


@inner
def kept_bits(round_to: Int) -> Int:
    """The bits of a float64 that the rounding of a step keeps; all, where it is to nearest."""
    if round_to == TO_F16_RN:
        return np.int64(-1)
    return np.int64(-(1 << 39)) if round_to == TO_E8M13_RZ else np.int64(-(1 << 29))


@inlined
def finish_sums(held: Array, at: Int, kept: Int, totals: FourSums) -> None:
    """Truncate, and hold the results."""
    total0, total1, total2, total3 = totals
    store(held, at, truncated(exact_sum(total0), kept))
    store(held, at + WIDE, truncated(exact_sum(total1), kept))
    store(held, at + WIDE2, truncated(exact_sum(total2), kept))
    store(held, at + WIDE3, truncated(exact_sum(total3), kept))


@inlined
def add_products(
    held: Array, tops: Array, a: PreparedA, b: PreparedB, start: Start, kept: Int, strip: Strip, plainly: Flag
) -> None:
    """The sums of a step, and the truncation that ends it. The rounding mode is towards zero.

    `plainly` is PLAINLY or NOT_PLAINLY: two loops, of which the first, for most rules, has no branches.
    """
    rows = elements_of(strip)
    for j in range(np.uintp(0), strip.place.width, np.uintp(COLUMNS)):
        totals = (
            started(held, tops, a, b, start, strip, ROW0, j, plainly),
            started(held, tops, a, b, start, strip, ROW1, j, plainly),
            started(held, tops, a, b, start, strip, ROW2, j, plainly),
            started(held, tops, a, b, start, strip, ROW3, j, plainly),
        )
        totals = add_lines(totals, a.values, rows, b.values, strip.at_first + j, WIDE, strip.place.products)
        finish_sums(held, strip.at_held + j, kept, totals)


@inlined
def add_products_sparse(
    held: Array, tops: Array, a: PreparedA, b: PreparedB, lines: Array, start: Start, kept: Int, strip: Strip
) -> None:
    """The same for a sparse A."""
    row0, row1, row2, row3 = elements_of(strip)
    two, three = strip.place.products * np.uintp(2), strip.place.products * np.uintp(3)
    for j in range(np.uintp(0), strip.place.width, np.uintp(COLUMNS)):
        total0 = started(held, tops, a, b, start, strip, ROW0, j, NOT_PLAINLY)
        total1 = started(held, tops, a, b, start, strip, ROW1, j, NOT_PLAINLY)
        total2 = started(held, tops, a, b, start, strip, ROW2, j, NOT_PLAINLY)
        total3 = started(held, tops, a, b, start, strip, ROW3, j, NOT_PLAINLY)
        for k in range(strip.place.products):
            line0, line1 = (
                load(b.values, lines[k] + j, COLUMNS),
                load(b.values, lines[k + strip.place.products] + j, COLUMNS),
            )
            line2, line3 = load(b.values, lines[k + two] + j, COLUMNS), load(b.values, lines[k + three] + j, COLUMNS)
            total0 = multiply_add(spread(a.values[row0 + k], COLUMNS), line0, total0)
            total1 = multiply_add(spread(a.values[row1 + k], COLUMNS), line1, total1)
            total2 = multiply_add(spread(a.values[row2 + k], COLUMNS), line2, total2)
            total3 = multiply_add(spread(a.values[row3 + k], COLUMNS), line3, total3)
        finish_sums(held, strip.at_held + j, kept, (total0, total1, total2, total3))


@inlined
def round_to_f16(held: Array, strip: Strip) -> None:
    """Round exact sums to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for row in range(STRIP):
        at_row = strip.at_held + np.uintp(row) * WIDE
        for j in range(strip.place.width):
            exact = held[at_row + j]
            exponent = max(np.int64((bits_of_f64(exact) >> 52) & 2047), np.int64(1009))
            shift = f64_of_bits(np.int64((exponent + 42) << 52) | np.int64(1 << 51))
            rounded = (exact + shift) - shift
            rounded = np.inf if rounded >= OVERFLOW_F16 else rounded
            rounded = -np.inf if rounded <= -OVERFLOW_F16 else rounded
            held[at_row + j] = rounded


@inner
def biased_exponent(value: Float) -> Int:
    """The exponent of a float64 as it is stored."""
    return np.int32((bits_of_f64(value) >> 52) & 2047)
