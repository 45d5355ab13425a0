"""Steps of at most eight products: `strip` again, but what comes before and after the products takes half the bits.

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

from warpfrag.tensorcore.kernels.jit import Flag, Int, inlined, inner
from warpfrag.tensorcore.kernels.prepare import BLOCK, PITCH, SIGNS, U1, PreparedA, PreparedB
from warpfrag.tensorcore.kernels.strip import (
    BIAS,
    HALF,
    PITCH2,
    PITCH3,
    TO_UPPER,
    WORDS,
    BlockGeometry,
    Scratch,
    Strip,
    any_unreliable,
    elements_of,
    group_of,
    group_size,
    max_exponent_sums,
    store_max_exponents,
    strip_of,
)
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
    deinterleave_low,
    interleave,
    load,
    popcount,
    shift_right_add,
    splat,
    store,
    vmax,
)

F32_BIAS = 127
F32_PLACE = np.uint32(23)  # where the exponent of an f32 is
F32_EXPONENT = np.uint32(255 << 23)
F32_TO_UPPER = int(F32_PLACE - TO_UPPER)  # how much further right it is in the upper word of a float64


@inner
def splat_byte(words: ElementPointer, at: Int) -> Lanes:
    """A byte, which stands four times in a word, in every lane of a line."""
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
    """The exponents and signs of a row's products: `a` has the bytes of its group from `at` on."""
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
    """For each output of four rows: the largest exponent of its products, and how many of them are below zero."""
    max0, max1, max2, max3 = max_exponents
    group0, group1, group2, group3 = groups
    largest_b, negative_b = load(b, at_group, BLOCK), load(b, at_group + PITCH, BLOCK)
    compute_exponents_and_signs_of_row(scratch, np.uintp(0), max0, a, group0, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH, max1, a, group1, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH2, max2, a, group2, largest_b, negative_b)
    compute_exponents_and_signs_of_row(scratch, PITCH3, max3, a, group3, largest_b, negative_b)


@inner
def start_sums(
    partials: ElementPointer, at: Int, scratch: Scratch[ElementPointer], own: Int, fraction_bits: Int
) -> tuple[Lanes, Lanes]:
    """What the sums of some columns start from, with C; and their grids."""
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
    """The sums as f32, truncated."""
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
    """The sums of a step, truncated to f32."""
    partials, at, products = scratch.partials_f32, strip.at_partials, strip.geometry.products
    for j in range(np.uintp(0), strip.geometry.width, np.uintp(COLUMNS)):
        total0, grid0 = start_sums(partials, at + j, scratch, j, fraction_bits)
        total1, grid1 = start_sums(partials, at + j + PITCH, scratch, j + PITCH, fraction_bits)
        total2, grid2 = start_sums(partials, at + j + PITCH2, scratch, j + PITCH2, fraction_bits)
        total3, grid3 = start_sums(partials, at + j + PITCH3, scratch, j + PITCH3, fraction_bits)
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
    """Strip after strip, step after step, to the end or until a step has an exceptional row.

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
