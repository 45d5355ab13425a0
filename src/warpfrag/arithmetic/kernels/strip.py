"""One step of the truncated fused dot-product-add, for a strip of rows of A and a block of columns of B.

1. The largest exponent of the products: a maximum over int8 sums (`find_largest`).
2. With C's exponent, the common grid, and a float64 whose last place is that grid (`start_sums`).
3. Products added to it, then C, with the rounding mode towards zero (`add_products`, `exact_sum`).
4. The exact sum, rounded once: truncated with its last bits, or to the nearest f16 (`round_to_f16`).

Why a float64 sum truncates each product to the grid: it starts at 1.5 * 2**52 grids and stays between 2**52 and 2**53
of them. So it is a multiple of the grid, and adding a product rounds that product down to the grid. Down is towards
zero for a product above zero. For one below zero it is one grid too far, except where the product lies on the grid.
There is no exception once every element of B, and C, is larger by 2**-30 of itself (`prepare.NUDGE`): a product has at
most 22 bits and 2**27 grids (C: 24 and 2**26), so one that was on the grid now lies just outside, and one that was not
has still not reached the next. Then each product below zero is one grid too far, and the sum starts that many grids
higher: `start_sums` counts them by their signs. A 0 of A has no sign; a 0 of B is made so small a number above zero
(`prepare.TINY`) that its products are counted like any other.

An example, with grids of 1 (common exponent 25, 25 fraction bits). Products 5.75, -2.25 and -3, C = 4: truncated they
are 5, -2 and -3, and the sum is 4. Two products are below zero, so the float64 starts at 1.5 * 2**52 + 2. Let S be
1.5 * 2**52; B was made larger by 2**-30 of itself, so the products are a little further from zero.

    S + 2                        the sum starts two grids higher
    + 5.7500000054  =  S + 7     S + 7.75... is not a float64: rounded towards zero, which is down
    - 2.2500000021  =  S + 4     S + 4.74... down: one grid too far, as for every product below zero
    - 3.0000000028  =  S + 0     S + 0.99... down: too far as well, because the product no longer lies on the grid
    + 4.0000000037  =  S + 4     C
    - S             =  4         exact, and right: the two grids too far are the two at the start

A row is *odd* if it has an output that all this does not cover; `fused` does those again.

Outputs are float64 throughout, whatever the accumulator's format. The rows of a strip lie BLOCK apart in everything
that is kept for one. Four rows are written out by hand, so that their sums stay in registers for a whole step. Indices
are unsigned because a signed one might count from the end.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from warpfrag.arithmetic.encodings import TO_E8M13_RZ, TO_F16_RN
from warpfrag.arithmetic.kernels.constants import IS_F16, Constants
from warpfrag.arithmetic.kernels.jit import Array, Float, Int, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f64, f64_of_bits
from warpfrag.arithmetic.kernels.prepare import BLOCK, LARGEST, NEAREST, NUDGE, ONE, SIGNS, WIDE
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

Four: TypeAlias = "tuple[Int, Int, Int, Int]"

STRIP = 4  # rows of A that pass together: an element of B once loaded meets them all
TOP = 2 * int(NEAREST)  # the sum of two relative exponents that are the largest of their groups
FAR = np.int8(TOP - int(NEAREST))  # sums up to here may be too large: one of the two may have been raised to 0
LEAST_COMMON = -100  # every sum is then 0 or a normal f32: the grid is 2**-125 at least
MOST_COMMON = 120  # 32 products and C are then below 2**128
BIAS = 1023  # of a float64's exponent
EXPONENT = np.int64(2047 << 52)  # mask of a float64's exponent
UPPER_EXPONENT = np.uint32(2047 << 20)  # the same in its upper word
TO_UPPER = np.uint32(20)  # from an exponent to its place in the upper word
HALF = 1 << 19  # in the upper word of a float64: one half after the leading one
ORIGIN = np.uint32((LEAST_COMMON + BIAS) << 20)
FURTHEST = np.uint32((MOST_COMMON - LEAST_COMMON) << 20)

WORDS = BLOCK // 4  # 32-bit words of a line of int8
NO_BITS = np.uint64(0)
WIDE2 = np.uintp(2 * BLOCK)
WIDE3 = np.uintp(3 * BLOCK)


class Strip(NamedTuple):
    """One step of some rows of A and a block of columns of B: where everything is. Arrays come as addresses."""

    first_row: Int
    last_row: Int  # of A's: it stands for those past it, so that there are always four
    step: Int
    all_steps: Int
    products: Int
    sign_words: Int
    at_first: Int  # B's line for the first product
    at_group: Int  # B's group
    width: Int  # a multiple of COLUMNS
    at_held: Int  # the first row of what the outputs hold: C at first, then the result of each step; never -0


@inner
def group_of(strip: Strip, row: Int) -> Int:
    """Which group of A is that of a row of the strip."""
    return min(strip.first_row + np.uintp(row), strip.last_row) * strip.all_steps + strip.step


@inner
def elements_of(strip: Strip) -> Four:
    """Where the elements of the four groups of A begin."""
    return (
        group_of(strip, 0) * strip.products,
        group_of(strip, 1) * strip.products,
        group_of(strip, 2) * strip.products,
        group_of(strip, 3) * strip.products,
    )


@inner
def largest(top: Lanes, relative: Int, line: Lanes) -> Lanes:
    """The larger of `top` and the sums of a row's element, four times in a word, and a line of B."""
    return larger(top, read_as(spread(relative, WORDS), np.int8) + line)


@inlined
def find_largest(tops: Array, odd: Array, a: Array, b: Array, strip: Strip) -> None:
    """The largest sum of exponents of each output; `a` and `b` are relative exponents.

    A row is odd if any of its sums cannot be relied on, or says that there is no product but 0.
    """
    row0, row1, row2, row3 = elements_of(strip)
    top0 = top1 = top2 = top3 = spread(np.int8(-128), BLOCK)
    at = strip.at_first
    for k in range(strip.products):
        line = load(b, at, BLOCK)
        top0 = largest(top0, a[row0 + k], line)
        top1 = largest(top1, a[row1 + k], line)
        top2 = largest(top2, a[row2 + k], line)
        top3 = largest(top3, a[row3 + k], line)
        at += WIDE
    keep_largest(tops, odd, top0, top1, top2, top3)


@inlined
def find_largest_sparse(tops: Array, odd: Array, a: Array, b: Array, lines: Array, strip: Strip) -> None:
    """The same for a sparse A, each of whose elements meets a line of B of its own."""
    row0, row1, row2, row3 = elements_of(strip)
    two, three = strip.products * np.uintp(2), strip.products * np.uintp(3)
    top0 = top1 = top2 = top3 = spread(np.int8(-128), BLOCK)
    for k in range(strip.products):
        top0 = largest(top0, a[row0 + k], load(b, lines[k], BLOCK))
        top1 = largest(top1, a[row1 + k], load(b, lines[k + strip.products], BLOCK))
        top2 = largest(top2, a[row2 + k], load(b, lines[k + two], BLOCK))
        top3 = largest(top3, a[row3 + k], load(b, lines[k + three], BLOCK))
    keep_largest(tops, odd, top0, top1, top2, top3)


@inlined
def keep_largest(tops: Array, odd: Array, top0: Lanes, top1: Lanes, top2: Lanes, top3: Lanes) -> None:
    """Store them, and mark rows."""
    store(tops, 0, top0)
    store(tops, WIDE, top1)
    store(tops, WIDE2, top2)
    store(tops, WIDE3, top3)
    near = spread(np.int8(FAR + 1), BLOCK)
    odd[0] = bits_above(near, top0) != NO_BITS
    odd[1] = bits_above(near, top1) != NO_BITS
    odd[2] = bits_above(near, top2) != NO_BITS
    odd[3] = bits_above(near, top3) != NO_BITS


@inner
def count_below(a_groups: Array, at_word: Int, b_groups: Array, at_signs: Int) -> Lanes:
    """How many products of one word of signs are below zero, for some columns."""
    negative = spread(np.uint32(a_groups[at_word]), COLUMNS)
    nonzero = spread(np.uint32(a_groups[at_word + ONE]), COLUMNS)
    return ones_of((read_as(load(b_groups, at_signs, COLUMNS), np.uint32) ^ negative) & nonzero)


@inlined
def start_sums(
    words: Array,
    odd: Array,
    tops: Array,
    held: Array,
    a_groups: Array,
    b_groups: Array,
    constants: Constants,
    strip: Strip,
) -> None:
    """For each output the float64 that its sum starts from, as two words, the lower one first.

    A row becomes odd if any output has a common exponent out of range, as it is with any infinity or NaN. Exponents
    are biased as in float64, and lie where they do in its upper word.
    """
    # An f32 is read with its own exponent, an f16 with at least that of its subnormals.
    has_least = constants.c_format == IS_F16 and constants.c_emin > -126
    narrow = has_least or constants.zero_exponent > LEAST_COMMON  # a floor further down is never reached here
    least = spread(np.int32(np.int32(constants.c_emin + BIAS if has_least else 0) << np.int32(20)), COLUMNS)
    floor = spread(np.int32(np.int32(constants.zero_exponent + BIAS) << np.int32(20)), COLUMNS)
    to_start = spread(np.uint32(((52 - constants.fraction_bits) << 20) + HALF), COLUMNS)
    origin, furthest = spread(ORIGIN, COLUMNS), spread(FURTHEST, COLUMNS)
    mask, shift, sign = spread(UPPER_EXPONENT, COLUMNS), spread(TO_UPPER, COLUMNS), spread(np.uint32(31), COLUMNS)
    size = SIGNS + strip.sign_words + strip.sign_words
    for row in range(STRIP):
        own = np.uintp(row) * WIDE
        at_row = group_of(strip, row) * size
        offset = spread(np.int32(a_groups[at_row + LARGEST] + np.int32(BIAS - TOP)), COLUMNS)
        reach = spread(np.uint32(0), COLUMNS)
        for j in range(np.uintp(0), strip.width, np.uintp(COLUMNS)):
            upper_c = odd_lanes(read_as(load(held, strip.at_held + own + j, COLUMNS), np.uint32))
            exponent_c = upper_c & mask
            if narrow:
                signed = read_as(exponent_c, np.int32)
                is_zero = (signed - spread(np.int32(1), COLUMNS)) >> spread(np.int32(31), COLUMNS)
                raised = larger(signed, least - (least & is_zero))
                exponent_c = read_as(larger(raised, floor), np.uint32)
            pair = load(b_groups, strip.at_group + j, COLUMNS) + offset
            common = read_as(pair + converted(load(tops, own + j, COLUMNS), np.int32), np.uint32) << shift
            common = larger(common, exponent_c)
            reach = larger(reach, common - origin)
            at_signs = strip.at_group + WIDE + j
            below = (upper_c >> sign) + count_below(a_groups, at_row + SIGNS, b_groups, at_signs)
            if strip.sign_words > ONE:
                below = below + count_below(a_groups, at_row + SIGNS + ONE + ONE, b_groups, at_signs + WIDE)
            store(words, own + own + j + j, interleaved(below, common + to_start))
        odd[row] |= bits_above(reach, furthest) != NO_BITS


@inlined
def keep_odd_rows(before: Array, odd: Array, held: Array, strip: Strip) -> None:
    """Remember what odd rows held before the step."""
    for row in range(STRIP):
        if odd[row]:
            own = np.uintp(row) * WIDE
            for j in range(strip.width):
                before[own + j] = held[strip.at_held + own + j]


@inner
def exact_sum(c: Lanes, total: Lanes) -> Lanes:
    """The sum with C added, and without what it started from."""
    total = multiply_add(c, spread(NUDGE, COLUMNS), total)
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
def finish_sums(held: Array, at: Int, kept: Int, total0: Lanes, total1: Lanes, total2: Lanes, total3: Lanes) -> None:
    """Add C, truncate, and hold the results."""
    store(held, at, truncated(exact_sum(load(held, at, COLUMNS), total0), kept))
    store(held, at + WIDE, truncated(exact_sum(load(held, at + WIDE, COLUMNS), total1), kept))
    store(held, at + WIDE2, truncated(exact_sum(load(held, at + WIDE2, COLUMNS), total2), kept))
    store(held, at + WIDE3, truncated(exact_sum(load(held, at + WIDE3, COLUMNS), total3), kept))


@inlined
def add_products(held: Array, sums: Array, a: Array, b: Array, kept: Int, strip: Strip) -> None:
    """Products, C, and the truncation that ends a step. The rounding mode is towards zero."""
    row0, row1, row2, row3 = elements_of(strip)
    for j in range(np.uintp(0), strip.width, np.uintp(COLUMNS)):
        total0, total1 = load(sums, j, COLUMNS), load(sums, j + WIDE, COLUMNS)
        total2, total3 = load(sums, j + WIDE2, COLUMNS), load(sums, j + WIDE3, COLUMNS)
        at = strip.at_first + j
        for k in range(strip.products):
            line = load(b, at, COLUMNS)
            total0 = multiply_add(spread(a[row0 + k], COLUMNS), line, total0)
            total1 = multiply_add(spread(a[row1 + k], COLUMNS), line, total1)
            total2 = multiply_add(spread(a[row2 + k], COLUMNS), line, total2)
            total3 = multiply_add(spread(a[row3 + k], COLUMNS), line, total3)
            at += WIDE
        finish_sums(held, strip.at_held + j, kept, total0, total1, total2, total3)


@inlined
def add_products_sparse(held: Array, sums: Array, a: Array, b: Array, lines: Array, kept: Int, strip: Strip) -> None:
    """The same for a sparse A."""
    row0, row1, row2, row3 = elements_of(strip)
    two, three = strip.products * np.uintp(2), strip.products * np.uintp(3)
    for j in range(np.uintp(0), strip.width, np.uintp(COLUMNS)):
        total0, total1 = load(sums, j, COLUMNS), load(sums, j + WIDE, COLUMNS)
        total2, total3 = load(sums, j + WIDE2, COLUMNS), load(sums, j + WIDE3, COLUMNS)
        for k in range(strip.products):
            total0 = multiply_add(spread(a[row0 + k], COLUMNS), load(b, lines[k] + j, COLUMNS), total0)
            total1 = multiply_add(spread(a[row1 + k], COLUMNS), load(b, lines[k + strip.products] + j, COLUMNS), total1)
            total2 = multiply_add(spread(a[row2 + k], COLUMNS), load(b, lines[k + two] + j, COLUMNS), total2)
            total3 = multiply_add(spread(a[row3 + k], COLUMNS), load(b, lines[k + three] + j, COLUMNS), total3)
        finish_sums(held, strip.at_held + j, kept, total0, total1, total2, total3)


@inlined
def round_to_f16(held: Array, strip: Strip) -> None:
    """Round exact sums to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for row in range(STRIP):
        at_row = strip.at_held + np.uintp(row) * WIDE
        for j in range(strip.width):
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
