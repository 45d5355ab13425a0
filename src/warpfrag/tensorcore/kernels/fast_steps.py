"""Steps that `strip` would do too, but slower or not at all: with a sparse A, without truncation, or short ones.

Sparse A
--------
One step with a sparse A: as in `strip`, but each stored element meets a line of B of its own.

Rows share no line of B, so each multiply-add loads its line. Where rows of a dense A pass together so that a line is
loaded once, here few rows pass with many columns, so that an element of A and the place of its line are loaded once.
Elements of A come in pairs, and the addresses of a pair's lines are computed before the pair in front of it is
multiplied: else processors wait for an address, then for its line, at every element. What is read after the last pair
of a row is the next row's, or the room that `lines` has after the last.

Exact steps
-----------
Steps that truncate no product, of rules that add C last: all that is left of them is multiply-adds.

A step drops the bits of products, and of what earlier steps have summed, below its grid. Elements of 8 bits have few:
every product of two e4m3 is a multiple of 2**-18, which is called a *unit* here (`Constants.unit_exponent`). Where no
exponent that a step may meet lies more than `fraction_bits` above the unit, its grid is at most a unit, and it drops
nothing. Then no exponent and no sign need be known: sums are exact, and are truncated once, to f32.

That holds for a block if every sum of one step is below 2**(fraction_bits + 1) units, which bounds the exponents of its
products as well. The sum of a step is at most the sum of the magnitudes of a group of A times the largest magnitude of
B: `is_exact`.

Sums start at 1.5 * 2**52 units, as in `strip` at so many grids, but rounded to nearest: B is larger by 2**-30 of itself
than it should be, and a 0 of it is 2**-500, which changes no product by half a unit. So nothing of this depends on
the signs of products, and the rounding mode stays what C needs.

Short steps
-----------
Steps of at most eight products: `strip` again, but what comes before and after the products takes half the bits.

Of so short a step the products are less than half the work. Two things make the rest of it less:

* The whole sum is an integer of 32 bits. A product is at most 2**27 grids and C 2**26, so eight products and C come to
  less than 2**31: the lower word of the float64 in which they are added is the sum, negative or not. (A negative one
  borrows from the upper word, which is far from the ends of its binade.) So C may stay an f32. It enters truncated to
  grids, as an integer, and is added to the number of products below zero: that is the lower word of the start. At the
  end the lower word is made an f32 again; with the rounding mode towards zero, that truncates it.
* What depends on A and B alone is two bytes for each output: the largest exponent of its products, biased as that of
  an f32 (a sum of bytes, which may wrap around on the way), and how many of them are below zero.

This needs every common exponent in range: blocks of outputs for which that is not certain run as long steps do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import TO_F32_RZ
from warpfrag.tensorcore.kernels.constants import IS_F32, Constants
from warpfrag.tensorcore.kernels.jit import Array, Flag, Float, Int, inlined, inner
from warpfrag.tensorcore.kernels.prepare import BLOCK, PITCH, SIGNS, U1, VECTOR_LANES, PreparedA, PreparedB
from warpfrag.tensorcore.kernels.scalar import power_of_two
from warpfrag.tensorcore.kernels.strip import (
    BIAS,
    HALF,
    PITCH2,
    PITCH3,
    ROW0,
    TO_UPPER,
    WORDS,
    BlockGeometry,
    Scratch,
    Strip,
    SumStart,
    any_unreliable,
    elements_of,
    exact_sum,
    group_of,
    group_size,
    kept_bits,
    max_exponent_sums,
    max_with_line,
    prefetch_elements,
    start_sums,
    store_max_exponents,
    strip_of,
    truncate,
)
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    STRIP,
    U2,
    ElementPointer,
    Four,
    FourSums,
    Lanes,
    add_lines,
    bitcast,
    cast,
    deinterleave_low,
    element_address,
    interleave,
    load,
    multiply_add,
    popcount,
    shift_right_add,
    splat,
    splat_pair,
    store,
    vmax,
)

# Rows that pass together, and how many of their columns, which divides BLOCK: four vectors of sums.
SPARSE_ROWS = np.uintp(max(1, 4 * COLUMNS // BLOCK))
SPARSE_COLUMNS = np.uintp(min(BLOCK, 4 * COLUMNS))
SECOND_PAIR = SPARSE_COLUMNS - np.uintp(2 * COLUMNS)  # the first column of the second two of these vectors


@inlined
def find_max_exponents_sparse(
    max_exponents: ElementPointer,
    exceptional: ElementPointer,
    a: ElementPointer,
    b: ElementPointer,
    lines: ElementPointer,
    strip: Strip,
) -> None:
    """Find the largest exponents for a sparse A, each of whose elements is multiplied with its own line of B."""
    row0, row1, row2, row3 = elements_of(strip)
    at = strip.geometry.at_lines
    max0 = max1 = max2 = max3 = splat(np.int8(-128), BLOCK)
    for k in range(strip.geometry.products):
        max0 = max_with_line(max0, a[row0 + k], load(b, at + np.uintp(lines[row0 + k]), BLOCK))
        max1 = max_with_line(max1, a[row1 + k], load(b, at + np.uintp(lines[row1 + k]), BLOCK))
        max2 = max_with_line(max2, a[row2 + k], load(b, at + np.uintp(lines[row2 + k]), BLOCK))
        max3 = max_with_line(max3, a[row3 + k], load(b, at + np.uintp(lines[row3 + k]), BLOCK))
    store_max_exponents(max_exponents, exceptional, (max0, max1, max2, max3))


@inlined
def add_element(
    totals: FourSums, value1: Lanes, line1: ElementPointer, value2: Lanes, line2: ElementPointer
) -> FourSums:
    """Add the products of one element of A with a line of B to two vectors of sums, and those of another to two."""
    total0, total1, total2, total3 = totals
    return (
        multiply_add(value1, load(line1, 0, COLUMNS), total0),
        multiply_add(value1, load(line1, VECTOR_LANES, COLUMNS), total1),
        multiply_add(value2, load(line2, SECOND_PAIR, COLUMNS), total2),
        multiply_add(value2, load(line2, SECOND_PAIR + VECTOR_LANES, COLUMNS), total3),
    )


@inlined
def line_of(a: PreparedA[ElementPointer], element: Int, b: ElementPointer, first: Int) -> ElementPointer:
    """Return the line of B that an element of A meets; `first` is where its columns begin in the first line."""
    return element_address(b, first + np.uintp(a.lines[element]))


@inlined
def add_lines_sparse(
    totals: FourSums,
    a: PreparedA[ElementPointer],
    elements1: Int,
    elements2: Int,
    b: ElementPointer,
    first: Int,
    count: Int,
) -> FourSums:
    """Add the products of `count` elements, an even number, to two pairs of sums: of one row, or of two.

    `first` is where the columns begin in the first line of B.
    """
    next0, next1 = line_of(a, elements1, b, first), line_of(a, elements1 + U1, b, first)
    other0, other1 = next0, next1
    if SPARSE_ROWS > U1:
        other0, other1 = line_of(a, elements2, b, first), line_of(a, elements2 + U1, b, first)
    for k in range(np.uintp(0), count, U2):
        line0, line1, line2, line3 = next0, next1, other0, other1
        at_next1, at_next2 = elements1 + k + U2, elements2 + k + U2
        next0, next1 = line_of(a, at_next1, b, first), line_of(a, at_next1 + U1, b, first)
        other0, other1 = next0, next1
        if SPARSE_ROWS > U1:
            other0, other1 = line_of(a, at_next2, b, first), line_of(a, at_next2 + U1, b, first)
        value0, value1 = splat_pair(a.values, elements1 + k)
        value2, value3 = splat_pair(a.values, elements2 + k)
        totals = add_element(totals, value0, line0, value2, line2)
        totals = add_element(totals, value1, line1, value3, line3)
    return totals


@inlined
def add_products_sparse(
    partials: ElementPointer,
    max_exponents: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    start: SumStart,
    kept: Int,
    strip: Strip,
    kind: Int,
) -> None:
    """Add the products of a sparse A. Rows share no line of B, so few rows pass together, with as many columns as fit.

    Four vectors of sums, in two pairs of neighbours: of one row, or, where vectors are long, of two. `kind` is
    WORD_START or GENERAL_START.
    """
    for first in range(ROW0, np.uintp(STRIP), SPARSE_ROWS):
        second = first + SPARSE_ROWS - U1
        elements1 = group_of(strip, first) * strip.geometry.products
        elements2 = group_of(strip, second) * strip.geometry.products
        at1, at2 = strip.at_partials + first * PITCH, strip.at_partials + second * PITCH
        for j in range(np.uintp(0), strip.geometry.width, SPARSE_COLUMNS):
            second_pair = j + SECOND_PAIR
            totals = (
                start_sums(partials, max_exponents, a, b, start, strip, first, j, kind),
                start_sums(partials, max_exponents, a, b, start, strip, first, j + VECTOR_LANES, kind),
                start_sums(partials, max_exponents, a, b, start, strip, second, second_pair, kind),
                start_sums(partials, max_exponents, a, b, start, strip, second, second_pair + VECTOR_LANES, kind),
            )
            at_lines = strip.geometry.at_lines + j
            totals = add_lines_sparse(totals, a, elements1, elements2, b.values, at_lines, strip.geometry.products)
            total0, total1, total2, total3 = totals
            store(partials, at1 + j, truncate(exact_sum(total0), kept))
            store(partials, at1 + j + VECTOR_LANES, truncate(exact_sum(total1), kept))
            store(partials, at2 + second_pair, truncate(exact_sum(total2), kept))
            store(partials, at2 + second_pair + VECTOR_LANES, truncate(exact_sum(total3), kept))


@inner
def may_be_exact(constants: Constants) -> Flag:
    """Return True if a rule has steps that may truncate no product."""
    plain = constants.d_format == IS_F32 and constants.round_to == TO_F32_RZ
    return constants.adds_c_last != 0 and plain


@inner
def largest_sum(values: Array, first: Int, last: Int, products: Int) -> Float:
    """Return the largest sum of the magnitudes of a group, in some rows of A."""
    largest = 0.0
    for row in range(first, last):
        for start in range(0, values.shape[1], products):
            total = 0.0
            for index in range(start, start + products):
                total += abs(values[row, index])
            largest = max(largest, total)
    return largest


@inner
def is_exact(constants: Constants, sum_a: Float, exponent_b: Int) -> Flag:
    """Return True if no step truncates a product, from the largest sum of a group of A and exponent of B."""
    limit = power_of_two(np.int32(constants.fraction_bits + 1 + constants.unit_exponent))
    return may_be_exact(constants) and sum_a * power_of_two(np.int32(exponent_b + 1)) <= limit


@inner
def finish_exact(c: Lanes, total: Lanes) -> Lanes:
    """Add the sum of the steps to C, rounded to f32: twice, but two f32 in a float64 are rounded as if once."""
    return cast(cast(c + total, np.float32), np.float64)


@inlined
def run_exact_sparse(
    accumulators: ElementPointer,
    a: PreparedA[ElementPointer],
    b: ElementPointer,
    start: Lanes,
    kept: Int,
    steps: Int,
    strip: Strip,
) -> None:
    """Run the steps of one instruction for a strip of a sparse A."""
    products, zero = strip.geometry.products, splat(0.0, COLUMNS)
    for first in range(ROW0, np.uintp(STRIP), SPARSE_ROWS):
        second = first + SPARSE_ROWS - U1
        at1, at2 = strip.at_partials + first * PITCH, strip.at_partials + second * PITCH
        for j in range(np.uintp(0), strip.geometry.width, SPARSE_COLUMNS):
            second_pair, at_lines = j + SECOND_PAIR, strip.geometry.at_lines + j
            row1, row2 = group_of(strip, first) * products, group_of(strip, second) * products
            total0 = total1 = total2 = total3 = zero
            for _ in range(steps):
                totals = (total0 + start, total1 + start, total2 + start, total3 + start)
                total0, total1, total2, total3 = add_lines_sparse(totals, a, row1, row2, b, at_lines, products)
                total0, total1 = truncate(total0 - start, kept), truncate(total1 - start, kept)
                total2, total3 = truncate(total2 - start, kept), truncate(total3 - start, kept)
                row1, row2 = row1 + products, row2 + products
            for at, total in (
                (at1 + j, total0),
                (at1 + j + VECTOR_LANES, total1),
                (at2 + second_pair, total2),
                (at2 + second_pair + VECTOR_LANES, total3),
            ):
                store(accumulators, at, finish_exact(load(accumulators, at, COLUMNS), total))


@inlined
def run_exact_steps(
    accumulators: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    constants: Constants,
    geometry: BlockGeometry,
) -> None:
    """Run all steps of a block for which `is_exact` holds. The rounding mode is to nearest."""
    start = splat(1.5 * power_of_two(np.int32(52 + constants.unit_exponent)), COLUMNS)
    kept, zero, products = kept_bits(constants.round_to), splat(0.0, COLUMNS), geometry.products
    steps, step_lines = np.uintp(constants.steps), geometry.products * PITCH
    for first_step in range(np.uintp(0), geometry.all_steps, geometry.at_once):
        for row in range(geometry.first_row, geometry.last_row + U1, np.uintp(STRIP)):
            at_row = (row - geometry.first_row) * PITCH
            for step in range(first_step, min(geometry.all_steps, first_step + geometry.at_once), steps):
                strip = strip_of(geometry, row, step, at_row)
                prefetch_elements(a, strip, constants.is_sparse)
                if constants.is_sparse:
                    run_exact_sparse(accumulators, a, b.values, start, kept, steps, strip)
                    continue
                for j in range(np.uintp(0), geometry.width, np.uintp(COLUMNS)):
                    row0, row1, row2, row3 = elements_of(strip)
                    total0 = total1 = total2 = total3 = zero
                    line = strip.at_first + j
                    for _ in range(steps):
                        totals = (total0 + start, total1 + start, total2 + start, total3 + start)
                        rows = (row0, row1, row2, row3)
                        totals = add_lines(totals, a.values, rows, b.values, line, PITCH, products)
                        total0, total1, total2, total3 = totals
                        total0, total1 = truncate(total0 - start, kept), truncate(total1 - start, kept)
                        total2, total3 = truncate(total2 - start, kept), truncate(total3 - start, kept)
                        row0, row1, row2, row3 = row0 + products, row1 + products, row2 + products, row3 + products
                        line += step_lines
                    at = at_row + j
                    store(accumulators, at, finish_exact(load(accumulators, at, COLUMNS), total0))
                    store(accumulators, at + PITCH, finish_exact(load(accumulators, at + PITCH, COLUMNS), total1))
                    store(accumulators, at + PITCH2, finish_exact(load(accumulators, at + PITCH2, COLUMNS), total2))
                    store(accumulators, at + PITCH3, finish_exact(load(accumulators, at + PITCH3, COLUMNS), total3))


F32_BIAS = 127
F32_PLACE = np.uint32(23)  # where the exponent of an f32 is
F32_EXPONENT = np.uint32(255 << 23)
F32_TO_UPPER = int(F32_PLACE - TO_UPPER)  # how much further right it is in the upper word of a float64


@inner
def splat_byte(words: ElementPointer, at: Int) -> Lanes:
    """Return a byte, stored four times in a word, in every lane of a line."""
    return bitcast(splat(words[at], WORDS), np.uint8)


@inlined
def compute_exponents_and_signs_of_row(
    scratch: Scratch[ElementPointer],
    own: Int,
    max_relative: Lanes,
    a: ElementPointer,
    at: Int,
    largest_b: Lanes,
    negative_b: Lanes,
) -> None:
    """Compute the exponents and signs of a row's products: `a` has the bytes of its group from `at` on."""
    store(scratch.exponents, own, bitcast(max_relative, np.uint8) + (largest_b + splat_byte(a, at)))
    signs = (negative_b ^ splat_byte(a, at + SIGNS)) & splat_byte(a, at + SIGNS + U1)
    store(scratch.negative_counts, own, popcount(signs))


@inlined
def compute_exponents_and_signs(
    scratch: Scratch[ElementPointer],
    max_exponents: FourSums,
    a: ElementPointer,
    groups: Four,
    b: ElementPointer,
    at_group: Int,
) -> None:
    """Compute, for each output of four rows, the largest exponent of its products, and the number below zero."""
    max0, max1, max2, max3 = max_exponents
    group0, group1, group2, group3 = groups
    largest_b, negative_b = load(b, at_group, BLOCK), load(b, at_group + PITCH, BLOCK)
    compute_exponents_and_signs_of_row(scratch, np.uintp(0), max0, a, group0, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH, max1, a, group1, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH2, max2, a, group2, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH3, max3, a, group3, largest_b, negative_b)


@inner
def start_word_sums(
    partials: ElementPointer, at: Int, scratch: Scratch[ElementPointer], own: Int, fraction_bits: Int
) -> tuple[Lanes, Lanes]:
    """Return the start of the sums of some columns, with C; and their grids."""
    c = load(partials, at, COLUMNS)
    products = cast(load(scratch.exponents, own, COLUMNS), np.uint32) << splat(F32_PLACE, COLUMNS)
    common = vmax(products, bitcast(c, np.uint32) & splat(F32_EXPONENT, COLUMNS))
    per_unit = splat(np.uint32((2 * F32_BIAS + fraction_bits) << F32_PLACE), COLUMNS) - common
    grids_of_c = bitcast(cast(c * bitcast(per_unit, np.float32), np.int32), np.uint32)
    lower = grids_of_c + cast(load(scratch.negative_counts, own, COLUMNS), np.uint32)
    to_upper = np.uint32(((BIAS - F32_BIAS + 52 - fraction_bits) << TO_UPPER) + HALF)
    upper = shift_right_add(common, F32_TO_UPPER, splat(to_upper, COLUMNS))
    grid = common - splat(np.uint32(fraction_bits << F32_PLACE), COLUMNS)
    return bitcast(interleave(lower, upper), np.float64), bitcast(grid, np.float32)


@inner
def finish_sums_f32(total: Lanes, grid: Lanes) -> Lanes:
    """Return the sums as f32, truncated."""
    grids = bitcast(deinterleave_low(bitcast(total, np.uint32)), np.int32)
    return cast(grids, np.float32) * grid


@inlined
def add_products(
    scratch: Scratch[ElementPointer],
    a: ElementPointer,
    rows: Four,
    b: ElementPointer,
    at_first: Int,
    fraction_bits: Int,
    strip: Strip,
) -> None:
    """Compute the sums of a step, truncated to f32."""
    partials, at, products = scratch.partials_f32, strip.at_partials, strip.geometry.products
    for j in range(np.uintp(0), strip.geometry.width, np.uintp(COLUMNS)):
        total0, grid0 = start_word_sums(partials, at + j, scratch, j, fraction_bits)
        total1, grid1 = start_word_sums(partials, at + j + PITCH, scratch, j + PITCH, fraction_bits)
        total2, grid2 = start_word_sums(partials, at + j + PITCH2, scratch, j + PITCH2, fraction_bits)
        total3, grid3 = start_word_sums(partials, at + j + PITCH3, scratch, j + PITCH3, fraction_bits)
        totals = (total0, total1, total2, total3)
        total0, total1, total2, total3 = add_lines(totals, a, rows, b, at_first + j, PITCH, products)
        store(partials, at + j, finish_sums_f32(total0, grid0))
        store(partials, at + j + PITCH, finish_sums_f32(total1, grid1))
        store(partials, at + j + PITCH2, finish_sums_f32(total2, grid2))
        store(partials, at + j + PITCH3, finish_sums_f32(total3, grid3))


@inlined
def to_f64(wide: ElementPointer, at_wide: Int, partials: ElementPointer, at: Int, count: Int) -> None:
    """Convert `count` float32 to float64."""
    for j in range(np.uintp(0), count, np.uintp(COLUMNS)):
        store(wide, at_wide + j, cast(load(partials, at + j, COLUMNS), np.float64))


@inlined
def to_f32(partials: ElementPointer, at: Int, wide: ElementPointer, at_wide: Int, count: Int) -> None:
    """Convert `count` float64 back to float32, which holds them exactly."""
    for j in range(np.uintp(0), count, np.uintp(COLUMNS)):
        store(partials, at + j, cast(load(wide, at_wide + j, COLUMNS), np.float32))


class StepPanel(NamedTuple):
    """Some steps of some rows of A and a block of columns of B, and the strip and step that are next."""

    geometry: BlockGeometry
    first_step: Int
    last_step: Int  # the one after the last
    row: Int  # the first of the strip that is next
    step: Int  # and its step


@inner
def run_short_steps(
    scratch: Scratch[ElementPointer],
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    fraction_bits: Int,
    panel: StepPanel,
) -> tuple[Int, Int, Flag]:
    """Run strip after strip, step after step, to the end or until a step has an exceptional row.

    The rounding mode is towards zero. Returns which strip and step come next, and whether the last
    one has an exceptional row.
    """
    geometry, row, step = panel.geometry, panel.row, panel.step
    partials, products = scratch.partials_f32, geometry.products
    any_exceptional = False
    while row <= geometry.last_row and not any_exceptional:
        strip = strip_of(geometry, row, step, (row - geometry.first_row) * PITCH)
        at, size = strip.at_partials, group_size(strip)
        row0, row1, row2, row3 = elements_of(strip)
        group0, group1 = group_of(strip, 0) * size, group_of(strip, 1) * size
        group2, group3 = group_of(strip, 2) * size, group_of(strip, 3) * size
        at_first, at_group = strip.at_first, strip.at_group
        while step < panel.last_step and not any_exceptional:
            rows, groups = (row0, row1, row2, row3), (group0, group1, group2, group3)
            max_exponents = max_exponent_sums(a.relatives, rows, b.relatives, at_first, products)
            any_exceptional = any_unreliable(max_exponents)
            if any_exceptional:
                store_max_exponents(scratch.max_exponents, scratch.exceptional, max_exponents)
                to_f64(scratch.saved, np.uintp(0), partials, at, np.uintp(STRIP) * PITCH)
            compute_exponents_and_signs(scratch, max_exponents, a.group_bytes, groups, b.group_bytes, at_group)
            add_products(scratch, a.values, rows, b.values, at_first, fraction_bits, strip)
            step, at_first, at_group = step + U1, at_first + products * PITCH, at_group + PITCH + PITCH
            row0, row1, row2, row3 = row0 + products, row1 + products, row2 + products, row3 + products
            group0, group1, group2, group3 = group0 + size, group1 + size, group2 + size, group3 + size
        if not any_exceptional:
            row, step = row + np.uintp(STRIP), panel.first_step
    return row, step, any_exceptional
