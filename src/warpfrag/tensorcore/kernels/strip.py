"""One step of the truncated fused dot-product-add, for a strip of rows of A and a block of columns of B.

1. The largest exponent of the products: a maximum over int8 sums (`find_max_exponents`).
2. With C's exponent, the common grid, and a float64 whose last place is that grid; C is added to it (`start_sums`).
3. Products added to it, with the rounding mode towards zero (`add_products`).
4. The exact sum (`exact_sum`), rounded once: truncated with its last bits, or to the nearest f16 (`round_to_f16`).

Why a float64 sum truncates each product to the grid: it starts at 1.5 * 2**52 grids and stays between 2**52 and 2**53
of them. So it is a multiple of the grid, and adding a product rounds that product down to the grid. Down is towards
zero for a product above zero. For one below zero it is one grid too far, except where the product lies on the grid.
There is no exception once every element of B, and C, is larger by 2**-30 of itself (`prepare.B_BIAS`): a product has at
most 22 bits and 2**27 grids (C: 24 and 2**26), so one that was on the grid now lies just outside, and one that was not
has still not reached the next. Then each product below zero is one grid too far, and the sum starts that many grids
higher: `start_sums` counts them by their signs. A 0 of A has no sign; a 0 of B is made so small a number above zero
(`prepare.ZERO_STANDIN`) that its products are counted like any other.

An example, with grids of 1 (common exponent 25, 25 fraction bits). Products 5.75, -2.25 and -3, C = 4: truncated they
are 5, -2 and -3, and the sum is 4. Two products are below zero, so the float64 starts at 1.5 * 2**52 + 2. Let S be
1.5 * 2**52; B was made larger by 2**-30 of itself, so the products are a little further from zero.

    S + 2                        the sum starts two grids higher
    + 4.0000000037  =  S + 6     C
    + 5.7500000054  =  S + 11    S + 11.75... is not a float64: rounded towards zero, which is down
    - 2.2500000021  =  S + 8     S + 8.74... down: one grid too far, as for every product below zero
    - 3.0000000028  =  S + 4     S + 4.99... down: too far as well, because the product no longer lies on the grid
    - S             =  4         exact, and right: the two grids too far are the two at the start

Steps of few products do 2 and 4 in integers, and for a sparse A, 1 and 3 are other loops: both in `fast_steps`.

A row is *exceptional* if it has an output that all this does not cover; `fused` computes those again. Where no int8 sum
of an output is reliable, step 1 sees it. A common exponent out of range is searched for only if the largest exponents
of the groups, or C, allow one: `find_out_of_range` takes as long as the rest of step 2.

Outputs are float64 here, whatever the accumulator's format. The rows of a strip are BLOCK apart in everything
that is kept for one. Indices are unsigned because a signed one might count from the end.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import MIN_COMMON_EXPONENT, TO_E8M13_RZ, TO_F16_RN
from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.constants import IS_F16, Constants
from warpfrag.tensorcore.kernels.jit import Flag, Float, Int, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f64, f64_of_bits
from warpfrag.tensorcore.kernels.prepare import (
    B_BIAS,
    BLOCK,
    MAX_EXPONENT,
    PITCH,
    RELATIVE_BIAS,
    SIGNS,
    U1,
    WORD,
    PreparedA,
    PreparedB,
    Storage,
)
from warpfrag.tensorcore.kernels.scalar import OVERFLOW_F16
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    STRIP,
    ElementPointer,
    Four,
    FourSums,
    Lanes,
    add_lines,
    bitcast,
    cast,
    deinterleave_high,
    greater_mask,
    interleave,
    load,
    multiply_add,
    popcount,
    prefetch,
    splat,
    store,
    vmax,
)

MAX_RELATIVE_SUM = 2 * int(RELATIVE_BIAS)  # the sum of two relative exponents that are the largest of their groups
# Sums up to here may be too large: one of the two exponents may have been raised to 0.
MAX_UNRELIABLE_SUM = np.int8(MAX_RELATIVE_SUM - int(RELATIVE_BIAS))
MAX_COMMON_EXPONENT = 120  # 32 products and C are then below 2**128
BIAS = 1023  # of a float64's exponent
EXPONENT = np.int64(2047 << 52)  # mask of a float64's exponent
UPPER_EXPONENT = np.uint32(2047 << 20)  # the same in its upper word
UPPER_SIGN = np.uint32(1 << 31)
TO_UPPER = np.uint32(20)  # from an exponent to its place in the upper word
HALF = 1 << 19  # in the upper word of a float64: one half after the leading one
ORIGIN = np.uint32((MIN_COMMON_EXPONENT + BIAS) << 20)
FURTHEST = np.uint32((MAX_COMMON_EXPONENT - MIN_COMMON_EXPONENT) << 20)
# Where the largest exponents of two groups come to MIN_PAIR_EXPONENT at least, no common exponent is below
# MIN_COMMON_EXPONENT: a reliable sum lies at most RELATIVE_BIAS - 1 below theirs. Where they come to MAX_PAIR_EXPONENT
# at most, 2**37 products do not bring a C above MAX_COMMON_EXPONENT that began below LARGE.
MIN_PAIR_EXPONENT = np.int32(MIN_COMMON_EXPONENT + int(RELATIVE_BIAS) - 1)
MAX_PAIR_EXPONENT = np.int32(MAX_COMMON_EXPONENT - 40)
LARGE = np.float32(2.0 ** (MAX_COMMON_EXPONENT - 1))

WORDS = BLOCK // 4  # 32-bit words of a line of int8
NO_BITS = np.uint64(0)
LINE_F64 = np.uintp(8)  # elements of a line of the cache
PITCH2 = np.uintp(2 * BLOCK)
PITCH3 = np.uintp(3 * BLOCK)
# How sums start: where one word holds the signs of products and of C, and no lower bound of exponents is reached; where
# one holds those of products, and no bound is reached; or in any case. Only the last has branches.
FAST_START, WORD_START, GENERAL_START = 0, 1, 2
PREFETCHES = target.machine() == "arm"
ROW0, ROW1, ROW2, ROW3 = np.uintp(0), np.uintp(1), np.uintp(2), np.uintp(3)


class BlockGeometry(NamedTuple):
    """Some rows of A and a block of columns of B: their extents, and where they are in the prepared arrays."""

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
    """One step of the strip that begins with a row."""

    geometry: BlockGeometry
    row: Int  # the first
    step: Int
    at_first: Int  # B's line for the first product
    at_group: Int  # B's group
    at_partials: Int  # the first row of partial sums: C at first, then the result of each step; never -0


@inner
def strip_of(geometry: BlockGeometry, row: Int, step: Int, at_partials: Int) -> Strip:
    """Return the strip that begins with a row, at a step."""
    at_group = (geometry.first_group + step) * (U1 + geometry.sign_words) * PITCH
    return Strip(
        geometry=geometry,
        row=row,
        step=step,
        at_first=geometry.at_lines + step * geometry.products * PITCH,
        at_group=at_group,
        at_partials=at_partials,
    )


class Scratch(NamedTuple, Generic[Storage]):
    """Buffers for the outputs of some rows and a block of columns, and for one strip of them; or their addresses."""

    accumulators: Storage  # C, then D
    from_zero: Storage  # partial sums of a strip, where C is added last, or rows are computed again in float64
    max_exponents: Storage  # largest sums of exponents
    exceptional: Storage  # a flag for each row of a strip
    saved: Storage  # the partial sums of exceptional rows before the step, where there are any
    partials_f32: Storage  # the partial sums of short steps
    exponents: Storage  # of a short step: the largest exponents of products, biased as an f32's
    negative_counts: Storage  # and how many products are below zero


@inner
def group_of(strip: Strip, row: Int) -> Int:
    """Return the group of A of a row of the strip; A's last row replaces those past it, to make always four."""
    return min(strip.row + np.uintp(row), strip.geometry.last_row) * strip.geometry.all_steps + strip.step


@inner
def elements_of(strip: Strip) -> Four:
    """Return where the elements of the four groups of A begin."""
    return (
        group_of(strip, 0) * strip.geometry.products,
        group_of(strip, 1) * strip.geometry.products,
        group_of(strip, 2) * strip.geometry.products,
        group_of(strip, 3) * strip.geometry.products,
    )


@inlined
def prefetch_elements(a: PreparedA[ElementPointer], strip: Strip, is_sparse: Int) -> None:
    """Prefetch the elements of the next strip: with all rows of A, they do not stay in the second cache.

    x86 processors do so by themselves, and then these instructions take a tenth of the time of a step.
    """
    if not PREFETCHES:
        return
    first = strip.row + np.uintp(STRIP)
    for row in range(first, first + np.uintp(STRIP)):
        elements = (min(row, strip.geometry.last_row) * strip.geometry.all_steps + strip.step) * strip.geometry.products
        for k in range(np.uintp(0), strip.geometry.products, LINE_F64):
            prefetch(a.values, elements + k)
        for k in range(np.uintp(0), strip.geometry.products, LINE_F64 + LINE_F64):
            prefetch(a.relatives, elements + k)
            if is_sparse:
                prefetch(a.lines, elements + k)


@inner
def max_with_line(max_relative: Lanes, relative: Int, line: Lanes) -> Lanes:
    """Return the larger of `max_relative` and the sums of a row's element, four times in a word, and a line of B."""
    return vmax(max_relative, bitcast(splat(relative, WORDS), np.int8) + line)


@inlined
def max_exponent_sums(a: ElementPointer, rows: Four, b: ElementPointer, at: Int, products: Int) -> FourSums:
    """Return the largest sums of exponents of four rows; `a` and `b` are relative exponents."""
    row0, row1, row2, row3 = rows
    max0 = max1 = max2 = max3 = splat(np.int8(-128), BLOCK)
    for k in range(products):
        line = load(b, at, BLOCK)
        max0 = max_with_line(max0, a[row0 + k], line)
        max1 = max_with_line(max1, a[row1 + k], line)
        max2 = max_with_line(max2, a[row2 + k], line)
        max3 = max_with_line(max3, a[row3 + k], line)
        at += PITCH
    return max0, max1, max2, max3


@inlined
def find_max_exponents(
    max_exponents: ElementPointer, exceptional: ElementPointer, a: ElementPointer, b: ElementPointer, strip: Strip
) -> None:
    """Find the largest sum of exponents of each output; `a` and `b` are relative exponents.

    A row is exceptional if any of its sums is unreliable, or says that there is no product but 0.
    """
    store_max_exponents(
        max_exponents, exceptional, max_exponent_sums(a, elements_of(strip), b, strip.at_first, strip.geometry.products)
    )


@inner
def any_unreliable(max_sums: FourSums) -> Flag:
    """Return True if any of these sums is unreliable, or says that there is no product but 0."""
    max0, max1, max2, max3 = max_sums
    near = splat(np.int8(MAX_UNRELIABLE_SUM + 1), BLOCK)
    bits = greater_mask(near, max0) | greater_mask(near, max1) | greater_mask(near, max2) | greater_mask(near, max3)
    return bits != NO_BITS


@inlined
def store_max_exponents(max_exponents: ElementPointer, exceptional: ElementPointer, max_sums: FourSums) -> None:
    """Store the largest sums, and mark exceptional rows."""
    max0, max1, max2, max3 = max_sums
    store(max_exponents, 0, max0)
    store(max_exponents, PITCH, max1)
    store(max_exponents, PITCH2, max2)
    store(max_exponents, PITCH3, max3)
    near = splat(np.int8(MAX_UNRELIABLE_SUM + 1), BLOCK)
    exceptional[0] = greater_mask(near, max0) != NO_BITS
    exceptional[1] = greater_mask(near, max1) != NO_BITS
    exceptional[2] = greater_mask(near, max2) != NO_BITS
    exceptional[3] = greater_mask(near, max3) != NO_BITS


class SumStart(NamedTuple):
    """The start that all sums share: exponents biased as in float64, at their position in its upper word."""

    min_c_exponent: Lanes  # exponent that a C which is not 0 is read with at least
    min_common_exponent: Lanes  # common exponent at least
    is_narrow: Flag  # whether any of the two is ever reached
    is_fast: Flag  # not so, and the word of signs has a bit left for C's
    has_word: Flag  # not so, and there is one word of signs
    to_start: Lanes  # from a common exponent to the upper word of the sum's start


@inner
def start_of(constants: Constants, group_rows: Int) -> SumStart:
    """Return the start of a rule's sums, for groups of B with `group_rows` rows."""
    # An f32 is read with its own exponent, an f16 with at least that of its subnormals, or of those it is read as.
    min_c = constants.c_emin + BIAS if constants.c_format == IS_F16 else 0
    is_narrow = constants.is_narrow != 0
    return SumStart(
        min_c_exponent=splat(np.int32(np.int32(min_c) << np.int32(20)), COLUMNS),
        min_common_exponent=splat(np.int32(np.int32(constants.zero_exponent + BIAS) << np.int32(20)), COLUMNS),
        is_narrow=is_narrow,
        is_fast=not is_narrow and group_rows < WORD,
        has_word=not is_narrow and group_rows <= WORD,
        to_start=splat(np.uint32(((52 - constants.fraction_bits) << 20) + HALF), COLUMNS),
    )


@inner
def common_exponents(upper_c: Lanes, largest_pair: Lanes, max_relative: Lanes, start: SumStart, kind: Int) -> Lanes:
    """Return the common exponents of some columns of a row, from C, the groups' exponents and the largest sums."""
    exponent_c = upper_c & splat(UPPER_EXPONENT, COLUMNS)
    if kind == GENERAL_START and start.is_narrow:
        signed = bitcast(exponent_c, np.int32)
        is_zero = (signed - splat(np.int32(1), COLUMNS)) >> splat(np.int32(31), COLUMNS)
        raised = vmax(signed, start.min_c_exponent - (start.min_c_exponent & is_zero))
        exponent_c = bitcast(vmax(raised, start.min_common_exponent), np.uint32)
    products = bitcast(largest_pair + cast(max_relative, np.int32), np.uint32) << splat(TO_UPPER, COLUMNS)
    return vmax(products, exponent_c)


@inner
def largest_of(a_groups: ElementPointer, at_group: Int) -> Lanes:
    """Return the largest exponent of a group of A, as `common_exponents` needs it to be added to those of B."""
    return splat(np.int32(a_groups[at_group + MAX_EXPONENT] + np.int32(BIAS - MAX_RELATIVE_SUM)), COLUMNS)


@inner
def upper_words(values: Lanes) -> Lanes:
    """Return the upper words of float64s."""
    return deinterleave_high(bitcast(values, np.uint32))


@inlined
def find_out_of_range(
    exceptional: ElementPointer,
    max_exponents: ElementPointer,
    partials: ElementPointer,
    a_groups: ElementPointer,
    b_groups: ElementPointer,
    start: SumStart,
    strip: Strip,
) -> None:
    """Mark rows with a common exponent out of range, as it is with any infinity or NaN."""
    size = group_size(strip)
    for row in range(STRIP):
        own = np.uintp(row) * PITCH
        largest_a = largest_of(a_groups, group_of(strip, row) * size)
        reach = splat(np.uint32(0), COLUMNS)
        for j in range(np.uintp(0), strip.geometry.width, np.uintp(COLUMNS)):
            upper_c = upper_words(load(partials, strip.at_partials + own + j, COLUMNS))
            largest_pair = load(b_groups, strip.at_group + j, COLUMNS) + largest_a
            common = common_exponents(
                upper_c, largest_pair, load(max_exponents, own + j, COLUMNS), start, GENERAL_START
            )
            reach = vmax(reach, common - splat(ORIGIN, COLUMNS))
        exceptional[row] |= greater_mask(reach, splat(FURTHEST, COLUMNS)) != NO_BITS


@inner
def group_size(strip: Strip) -> Int:
    """Return the number of words that a group of A takes."""
    return SIGNS + strip.geometry.sign_words + strip.geometry.sign_words


@inner
def below_zero(a_groups: ElementPointer, at_word: Int, b_groups: ElementPointer, at_signs: Int) -> Lanes:
    """Return a bit for each product of one word of signs that is below zero, for some columns."""
    negative = splat(np.uint32(a_groups[at_word]), COLUMNS)
    nonzero = splat(np.uint32(a_groups[at_word + U1]), COLUMNS)
    return (bitcast(load(b_groups, at_signs, COLUMNS), np.uint32) ^ negative) & nonzero


@inner
def start_sums(
    partials: ElementPointer,
    max_exponents: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    start: SumStart,
    strip: Strip,
    row: Int,
    j: Int,
    kind: Int,
) -> Lanes:
    """Return the start of the sums of some columns of a row, with C added. The rounding mode is towards zero."""
    own, at_a = row * PITCH, group_of(strip, row) * group_size(strip)
    c = load(partials, strip.at_partials + own + j, COLUMNS)
    upper_c = upper_words(c)
    largest_pair = load(b.groups, strip.at_group + j, COLUMNS) + largest_of(a.groups, at_a)
    common = common_exponents(upper_c, largest_pair, load(max_exponents, own + j, COLUMNS), start, kind)
    at_word, at_signs = at_a + SIGNS, strip.at_group + PITCH + j
    signs = below_zero(a.groups, at_word, b.groups, at_signs)
    if kind == FAST_START:
        negative_count = popcount(signs | (upper_c & splat(UPPER_SIGN, COLUMNS)))
    else:
        negative_count = popcount(signs) + (upper_c >> splat(np.uint32(31), COLUMNS))
        if kind == GENERAL_START and strip.geometry.sign_words > U1:
            negative_count = negative_count + popcount(
                below_zero(a.groups, at_word + U1 + U1, b.groups, at_signs + PITCH)
            )
    first = bitcast(interleave(negative_count, common + start.to_start), np.float64)
    return multiply_add(c, splat(B_BIAS, COLUMNS), first)


@inner
def any_large(partials: ElementPointer, first: Int, count: Int) -> Flag:
    """Return True if any of `count` numbers is too large for C, or NaN."""
    is_large = False
    for at in range(first, first + count):
        is_large |= not abs(partials[at]) < LARGE
    return is_large


@inlined
def save_exceptional_rows(
    saved: ElementPointer, exceptional: ElementPointer, partials: ElementPointer, strip: Strip
) -> None:
    """Save the partial sums of exceptional rows before the step."""
    for row in range(STRIP):
        if exceptional[row]:
            own = np.uintp(row) * PITCH
            for j in range(strip.geometry.width):
                saved[own + j] = partials[strip.at_partials + own + j]


@inner
def exact_sum(total: Lanes) -> Lanes:
    """Return a sum less the 1.5 * 2**52 grids that it started from."""
    power = bitcast(bitcast(total, np.int64) & splat(EXPONENT, COLUMNS), np.float64)
    return multiply_add(power, splat(-1.5, COLUMNS), total)


@inner
def truncate(exact: Lanes, kept: Int) -> Lanes:
    """Return the sums with only the bits of the mask `kept`."""
    return bitcast(bitcast(exact, np.int64) & splat(kept, COLUMNS), np.float64)


@inner
def kept_bits(round_to: Int) -> Int:
    """Return the bits of a float64 that the rounding of a step keeps; all, if it is to nearest."""
    if round_to == TO_F16_RN:
        return np.int64(-1)
    return np.int64(-(1 << 39)) if round_to == TO_E8M13_RZ else np.int64(-(1 << 29))


@inlined
def finish_sums(partials: ElementPointer, at: Int, kept: Int, totals: FourSums) -> None:
    """Truncate four rows of sums, and store them as the new partial sums."""
    total0, total1, total2, total3 = totals
    store(partials, at, truncate(exact_sum(total0), kept))
    store(partials, at + PITCH, truncate(exact_sum(total1), kept))
    store(partials, at + PITCH2, truncate(exact_sum(total2), kept))
    store(partials, at + PITCH3, truncate(exact_sum(total3), kept))


@inlined
def add_products(
    partials: ElementPointer,
    max_exponents: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    start: SumStart,
    kept: Int,
    strip: Strip,
    kind: Int,
) -> None:
    """Compute the sums of a step, and the truncation that ends it. The rounding mode is towards zero.

    `kind` is FAST_START or GENERAL_START: two loops, of which the first, for most rules, has no branches.
    """
    rows = elements_of(strip)
    for j in range(np.uintp(0), strip.geometry.width, np.uintp(COLUMNS)):
        totals = (
            start_sums(partials, max_exponents, a, b, start, strip, ROW0, j, kind),
            start_sums(partials, max_exponents, a, b, start, strip, ROW1, j, kind),
            start_sums(partials, max_exponents, a, b, start, strip, ROW2, j, kind),
            start_sums(partials, max_exponents, a, b, start, strip, ROW3, j, kind),
        )
        totals = add_lines(totals, a.values, rows, b.values, strip.at_first + j, PITCH, strip.geometry.products)
        finish_sums(partials, strip.at_partials + j, kept, totals)


@inlined
def round_to_f16(partials: ElementPointer, strip: Strip) -> None:
    """Round exact sums to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for row in range(STRIP):
        at_row = strip.at_partials + np.uintp(row) * PITCH
        for j in range(strip.geometry.width):
            exact = partials[at_row + j]
            exponent = max(np.int64((bits_of_f64(exact) >> 52) & 2047), np.int64(1009))
            shift = f64_of_bits(np.int64((exponent + 42) << 52) | np.int64(1 << 51))
            rounded = (exact + shift) - shift
            rounded = np.inf if rounded >= OVERFLOW_F16 else rounded
            rounded = -np.inf if rounded <= -OVERFLOW_F16 else rounded
            partials[at_row + j] = rounded


@inner
def biased_exponent(value: Float) -> Int:
    """Return the exponent of a float64 as it is stored."""
    return np.int32((bits_of_f64(value) >> 52) & 2047)
