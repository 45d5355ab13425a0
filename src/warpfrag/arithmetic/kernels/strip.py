"""One step of the truncated fused dot-product-add, for a strip of rows of A and a block of columns of B.

1. The largest exponent of the products: a maximum over int8 sums (`largest_of_four`).
2. With C's exponent, the common grid, and a float64 whose last place is that grid (`start_sums`).
3. Products added to it, then C, with the rounding mode towards zero (`add_four`, `exact_sum`).
4. The exact sum, rounded once (`round_to_f32`, `round_to_f16`).

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

The rows of a strip lie BLOCK apart in `tops` and `sums`. Indices are unsigned because a signed one might count
from the end, which is no vector code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from warpfrag.arithmetic.encodings import TO_E8M13_RZ
from warpfrag.arithmetic.kernels.constants import IS_F16, Constants
from warpfrag.arithmetic.kernels.jit import Array, Float, Int, inlined, inner
from warpfrag.arithmetic.kernels.llvm import (
    bits_of_f32,
    bits_of_f64,
    count_ones,
    f32_of_bits,
    f64_of_bits,
    fused_multiply_add,
)
from warpfrag.arithmetic.kernels.prepare import BLOCK, LARGEST, NEAREST, NEGATIVE, NONZERO, NUDGE
from warpfrag.arithmetic.kernels.rounding import OVERFLOW_F16

if TYPE_CHECKING:
    from collections.abc import Callable

Four: TypeAlias = "tuple[Float, Float, Float, Float]"

STRIP = 4  # rows of A that pass together: an element of B once loaded meets them all
TOP = 2 * NEAREST  # the sum of two relative exponents that are the largest of their groups
FAR = np.int8(TOP - NEAREST)  # sums up to here may be too large: one of the two may have been raised to 0
LEAST_COMMON = np.int32(-100)  # every sum is then 0 or a normal f32: the grid is 2**-125 at least
MOST_COMMON = np.int32(120)  # 32 products and C are then below 2**128
EXPONENT = np.int64(2047 << 52)  # mask of a float64's exponent
HALF = np.int32(1 << 19)  # in the upper word of a float64: one half after the leading one

WIDE = np.uintp(BLOCK)
WIDE2 = np.uintp(2 * BLOCK)
WIDE3 = np.uintp(3 * BLOCK)
WIDE4 = np.uintp(4 * BLOCK)


class Strip(NamedTuple):
    """One step of some rows of A and a block of columns of B: where everything is.

    It has no arrays, for numba counts references to each array of a tuple that is passed on, at every step.
    """

    first_row: Int
    rows: Int  # of the strip that exist
    step: Int
    first: Int  # element of A's rows, in the order of adding
    last: Int
    at_first: Int  # B's line for that element
    at_group: Int  # B's group of this step
    width: Int
    at_line: Int  # of what the outputs hold: C at first, then the result of each step; never -0
    next_line: Int


@inner
def four_of(matrix: Array, row: Int, column: Int) -> Four:
    """Four neighbours in a row."""
    return matrix[row, column], matrix[row, column + 1], matrix[row, column + 2], matrix[row, column + 3]


@inner
def four_below(lines: Array, place: Int) -> Four:
    """Four neighbours in a column of B."""
    return lines[place], lines[place + WIDE], lines[place + WIDE2], lines[place + WIDE3]


@inner
def four_at(lines: Array, starts: Four, j: Int) -> Four:
    """Element j of four lines of B."""
    return lines[starts[0] + j], lines[starts[1] + j], lines[starts[2] + j], lines[starts[3] + j]


@inner
def largest_of_four(top: Int, a: Four, b: Four) -> Int:
    """The largest of `top` and four sums."""
    return max(top, np.int8(a[0] + b[0]), np.int8(a[1] + b[1]), np.int8(a[2] + b[2]), np.int8(a[3] + b[3]))


@inner
def add_four(total: Float, a: Four, b: Four) -> Float:
    """total + four products."""
    total = fused_multiply_add(a[0], b[0], total)
    total = fused_multiply_add(a[1], b[1], total)
    total = fused_multiply_add(a[2], b[2], total)
    return fused_multiply_add(a[3], b[3], total)


@inlined
def over_strip(fold: Callable[..., Any], folded: Array, a: Array, b: Array, strip: Strip) -> None:
    """Fold the pairs a[k], b[k, j] of each row into folded[j].

    `fold` takes four k at a time: `largest_of_four` or `add_four`.
    """
    row, base = strip.first_row, strip.at_first
    for k in range(strip.first, strip.last, 4):
        a0, a1 = four_of(a, row, k), four_of(a, row + 1, k)
        a2, a3 = four_of(a, row + 2, k), four_of(a, row + 3, k)
        for j in range(strip.width):
            four = four_below(b, base + j)
            folded[j] = fold(folded[j], a0, four)
            folded[j + WIDE] = fold(folded[j + WIDE], a1, four)
            folded[j + WIDE2] = fold(folded[j + WIDE2], a2, four)
            folded[j + WIDE3] = fold(folded[j + WIDE3], a3, four)
        base += WIDE4


@inlined
def over_sparse_strip(fold: Callable[..., Any], folded: Array, a: Array, b: Array, lines: Array, strip: Strip) -> None:
    """The same for some rows of a sparse A, each of whose elements meets a line of B of its own."""
    for row in range(strip.rows):
        own = np.uintp(row) * WIDE
        for k in range(strip.first, strip.last, 4):
            four = four_of(a, strip.first_row + row, k)
            starts = four_of(lines, row, k - strip.first)
            for j in range(strip.width):
                folded[own + j] = fold(folded[own + j], four, four_at(b, starts, j))


@inlined
def mark_far(odd: Array, tops: Array, strip: Strip) -> None:
    """Mark rows odd in which any largest sum cannot be relied on, or says that there is no product but 0."""
    for row in range(strip.rows):
        own = np.uintp(row) * WIDE
        deepest = np.int8(TOP)
        for j in range(strip.width):
            deepest = min(deepest, tops[own + j])
        odd[row] = np.int8(deepest <= FAR)


@inner
def biased_exponent(value: Float) -> Int:
    """The exponent of an f32 as it is stored."""
    return np.int32(np.int32(bits_of_f32(value) >> np.int32(23)) & np.int32(255))


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

    A row becomes odd if any output has a common exponent out of range, as it is with any infinity or NaN.
    """
    # An f32 is read with its own exponent, an f16 with at least that of its subnormals.
    least = constants.c_emin if constants.c_format == IS_F16 and constants.c_emin > -126 else -127
    narrow = least > -127 or constants.zero_exponent > LEAST_COMMON  # a floor further down is never reached here
    lowest = np.int32(least + 127)
    zero_exponent = np.int32(constants.zero_exponent + 127)
    to_upper = np.int32(np.int32(np.int32(1023 - 127 + 52) - np.int32(constants.fraction_bits)) << np.int32(20)) | HALF
    origin = np.int32(LEAST_COMMON + np.int32(127))
    for row in range(strip.rows):
        i = strip.first_row + row
        own = np.uintp(row) * WIDE
        at_row = strip.at_line + np.uintp(row) * strip.next_line
        # exponents are biased as in f32 from here on
        pair_offset = np.int32(a_groups[i, strip.step, LARGEST] + np.int32(127 - TOP))
        negative, nonzero = np.uint32(a_groups[i, strip.step, NEGATIVE]), np.uint32(a_groups[i, strip.step, NONZERO])
        reach = np.uint32(0)
        for j in range(strip.width):
            value = held[at_row + j]
            exponent_c = biased_exponent(value)
            if narrow:
                exponent_c = max(exponent_c, lowest) if exponent_c > np.int32(0) else exponent_c
                exponent_c = max(exponent_c, zero_exponent)
            pair = np.int32(b_groups[strip.at_group + j] + pair_offset)
            common = max(np.int32(pair + np.int32(tops[own + j])), exponent_c)
            reach = max(reach, np.uint32(np.int32(common - origin)))
            below = count_ones((negative ^ np.uint32(b_groups[strip.at_group + WIDE + j])) & nonzero)
            below += np.uint32(bits_of_f32(value)) >> np.uint32(31)
            lower = own + own + j + j
            words[lower] = np.int32(below)
            words[lower + np.uintp(1)] = np.int32(np.int32(common << np.int32(20)) + to_upper)
        odd[row] |= np.int8(reach > np.uint32(MOST_COMMON - LEAST_COMMON))


@inlined
def keep_odd_rows(before: Array, odd: Array, held: Array, strip: Strip) -> None:
    """Remember what odd rows held before the step."""
    for row in range(strip.rows):
        if odd[row]:
            at_row = strip.at_line + np.uintp(row) * strip.next_line
            for j in range(strip.width):
                before[np.uintp(row) * WIDE + j] = held[at_row + j]


@inner
def exact_sum(c: Float, total: Float) -> Float:
    """The sum with C added, and without what it started from."""
    total = fused_multiply_add(np.float64(c), NUDGE, total)
    return fused_multiply_add(-1.5, f64_of_bits(bits_of_f64(total) & EXPONENT), total)


@inlined
def round_to_f32(held: Array, sums: Array, round_to: Int, strip: Strip) -> None:
    """Add C, then truncate the sum to the fraction bits of the accumulator. The rounding mode is towards zero."""
    for row in range(strip.rows):
        own = np.uintp(row) * WIDE
        at_row = strip.at_line + np.uintp(row) * strip.next_line
        for j in range(strip.width):
            held[at_row + j] = np.float32(exact_sum(held[at_row + j], sums[own + j]))
        if round_to == TO_E8M13_RZ:
            mask = np.int32(-(1 << 10))
            for j in range(strip.width):
                held[at_row + j] = f32_of_bits(np.int32(bits_of_f32(held[at_row + j]) & mask))


@inlined
def add_c(held: Array, sums: Array, strip: Strip) -> None:
    """Make exact sums of `sums`. The rounding mode is towards zero."""
    for row in range(strip.rows):
        own = np.uintp(row) * WIDE
        at_row = strip.at_line + np.uintp(row) * strip.next_line
        for j in range(strip.width):
            sums[own + j] = exact_sum(held[at_row + j], sums[own + j])


@inlined
def round_to_f16(held: Array, sums: Array, strip: Strip) -> None:
    """Round exact sums to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for row in range(strip.rows):
        own = np.uintp(row) * WIDE
        at_row = strip.at_line + np.uintp(row) * strip.next_line
        for j in range(strip.width):
            exact = sums[own + j]
            exponent = max(np.int64((bits_of_f64(exact) >> 52) & 2047), np.int64(1009))
            shift = f64_of_bits(np.int64((exponent + 42) << 52) | np.int64(1 << 51))
            rounded = (exact + shift) - shift
            rounded = np.inf if rounded >= OVERFLOW_F16 else rounded
            rounded = -np.inf if rounded <= -OVERFLOW_F16 else rounded
            held[at_row + j] = np.float32(rounded)
