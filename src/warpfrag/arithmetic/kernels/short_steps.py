"""Steps of at most eight products: `strip` again, but what comes before and after the products takes half the room.

Of so short a step the products are less than half the work. Two things make the rest of it less:

* The whole sum is an integer of 32 bits. A product is at most 2**27 grids and C 2**26, so eight products and C come to
  less than 2**31: the lower word of the float64 in which they are added is the sum, negative or not. (A negative one
  borrows from the upper word, which is far from the ends of its binade.) So C may stay an f32. It enters truncated to
  grids, as an integer, and is added to the number of products below zero: that is the lower word of the start. At the
  end the lower word is made an f32 again; with the rounding mode towards zero, that truncates it.
* What is known before C is two bytes for each output: the largest exponent of its products, biased as that of an f32
  (a sum of bytes, which may wrap around on the way), and how many of them are below zero.

This needs every common exponent in range: blocks of outputs for which that is not certain run as long steps do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.kernels.four_rows import STRIP, Four, FourSums, add_lines
from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, inlined, inner
from warpfrag.arithmetic.kernels.prepare import BLOCK, ONE, SIGNS, WIDE, PreparedA, PreparedB
from warpfrag.arithmetic.kernels.strip import (
    BIAS,
    HALF,
    TO_UPPER,
    WIDE2,
    WIDE3,
    WORDS,
    Place,
    Scratch,
    Strip,
    any_unreliable,
    elements_of,
    group_of,
    group_size,
    keep_largest,
    largest_sums,
    strip_of,
)
from warpfrag.arithmetic.kernels.vector import (
    COLUMNS,
    Lanes,
    converted,
    even_lanes,
    interleaved,
    larger,
    load,
    ones_of,
    read_as,
    shifted_plus,
    spread,
    store,
)

F32_BIAS = 127
F32_PLACE = np.uint32(23)  # where the exponent of an f32 is
F32_EXPONENT = np.uint32(255 << 23)
F32_TO_UPPER = int(F32_PLACE - TO_UPPER)  # how much further right it is in the upper word of a float64


@inner
def spread_byte(words: Array, at: Int) -> Lanes:
    """A byte that stands four times in a word, in every byte of a line."""
    return read_as(spread(words[at], WORDS), np.uint8)


@inlined
def know_row(scratch: Scratch, own: Int, top: Lanes, a: Array, at: Int, largest_b: Lanes, negative_b: Lanes) -> None:
    """What is known of a row before C: `a` has the bytes of its group from `at` on."""
    store(scratch.exponents, own, read_as(top, np.uint8) + (largest_b + spread_byte(a, at)))
    signs = (negative_b ^ spread_byte(a, at + SIGNS)) & spread_byte(a, at + SIGNS + ONE)
    store(scratch.below, own, ones_of(signs))


@inlined
def know(scratch: Scratch, tops: FourSums, a: Array, groups: Four, b: Array, at_group: Int) -> None:
    """What is known of four rows."""
    top0, top1, top2, top3 = tops
    group0, group1, group2, group3 = groups
    largest_b, negative_b = load(b, at_group, BLOCK), load(b, at_group + WIDE, BLOCK)
    know_row(scratch, np.uintp(0), top0, a, group0, largest_b, negative_b)
    know_row(scratch, WIDE, top1, a, group1, largest_b, negative_b)
    know_row(scratch, WIDE2, top2, a, group2, largest_b, negative_b)
    know_row(scratch, WIDE3, top3, a, group3, largest_b, negative_b)


@inner
def started(held: Array, at: Int, scratch: Scratch, own: Int, fraction_bits: Int) -> tuple[Lanes, Lanes]:
    """What the sums of some columns start from, with C; and their grids."""
    c = load(held, at, COLUMNS)
    products = converted(load(scratch.exponents, own, COLUMNS), np.uint32) << spread(F32_PLACE, COLUMNS)
    common = larger(products, read_as(c, np.uint32) & spread(F32_EXPONENT, COLUMNS))
    per_unit = spread(np.uint32((2 * F32_BIAS + fraction_bits) << F32_PLACE), COLUMNS) - common
    grids_of_c = read_as(converted(c * read_as(per_unit, np.float32), np.int32), np.uint32)
    lower = grids_of_c + converted(load(scratch.below, own, COLUMNS), np.uint32)
    to_upper = np.uint32(((BIAS - F32_BIAS + 52 - fraction_bits) << TO_UPPER) + HALF)
    upper = shifted_plus(common, F32_TO_UPPER, spread(to_upper, COLUMNS))
    grid = common - spread(np.uint32(fraction_bits << F32_PLACE), COLUMNS)
    return read_as(interleaved(lower, upper), np.float64), read_as(grid, np.float32)


@inner
def finished(total: Lanes, grid: Lanes) -> Lanes:
    """The sums as f32, truncated."""
    grids = read_as(even_lanes(read_as(total, np.uint32)), np.int32)
    return converted(grids, np.float32) * grid


@inlined
def add_products(
    scratch: Scratch, a: Array, rows: Four, b: Array, at_first: Int, fraction_bits: Int, strip: Strip
) -> None:
    """The sums of a step, truncated."""
    held, at, products = scratch.held_f32, strip.at_held, strip.place.products
    for j in range(np.uintp(0), strip.place.width, np.uintp(COLUMNS)):
        total0, grid0 = started(held, at + j, scratch, j, fraction_bits)
        total1, grid1 = started(held, at + j + WIDE, scratch, j + WIDE, fraction_bits)
        total2, grid2 = started(held, at + j + WIDE2, scratch, j + WIDE2, fraction_bits)
        total3, grid3 = started(held, at + j + WIDE3, scratch, j + WIDE3, fraction_bits)
        totals = (total0, total1, total2, total3)
        total0, total1, total2, total3 = add_lines(totals, a, rows, b, at_first + j, WIDE, products)
        store(held, at + j, finished(total0, grid0))
        store(held, at + j + WIDE, finished(total1, grid1))
        store(held, at + j + WIDE2, finished(total2, grid2))
        store(held, at + j + WIDE3, finished(total3, grid3))


@inlined
def to_f64(wide: Array, at_wide: Int, held: Array, at: Int, count: Int) -> None:
    """So many f32 as float64, by addresses."""
    for j in range(np.uintp(0), count, np.uintp(COLUMNS)):
        store(wide, at_wide + j, converted(load(held, at + j, COLUMNS), np.float64))


@inlined
def to_f32(held: Array, at: Int, wide: Array, at_wide: Int, count: Int) -> None:
    """And back."""
    for j in range(np.uintp(0), count, np.uintp(COLUMNS)):
        store(held, at + j, converted(load(wide, at_wide + j, COLUMNS), np.float32))


class Panel(NamedTuple):
    """Some steps of some rows of A and a block of columns of B, and how far they have come."""

    place: Place
    first_step: Int
    last_step: Int  # the one after the last
    row: Int  # the first of the strip that is next
    step: Int  # and its step


@inner
def run_short_steps(
    scratch: Scratch, a: PreparedA, b: PreparedB, fraction_bits: Int, panel: Panel
) -> tuple[Int, Int, Flag]:
    """Strip after strip, step after step, to the end or until a step has an odd row; by addresses.

    The rounding mode is towards zero. Which strip and step come next, and whether the one just done has an odd row.
    """
    place, row, step = panel.place, panel.row, panel.step
    held, products = scratch.held_f32, place.products
    any_odd = False
    while row <= place.last_row and not any_odd:
        strip = strip_of(place, row, step, (row - place.first_row) * WIDE)
        at, size = strip.at_held, group_size(strip)
        row0, row1, row2, row3 = elements_of(strip)
        group0, group1 = group_of(strip, 0) * size, group_of(strip, 1) * size
        group2, group3 = group_of(strip, 2) * size, group_of(strip, 3) * size
        at_first, at_group = strip.at_first, strip.at_group
        while step < panel.last_step and not any_odd:
            rows, groups = (row0, row1, row2, row3), (group0, group1, group2, group3)
            tops = largest_sums(a.relatives, rows, b.relatives, at_first, products)
            any_odd = any_unreliable(tops)
            if any_odd:
                keep_largest(scratch.tops, scratch.odd, tops)
                to_f64(scratch.before, np.uintp(0), held, at, np.uintp(STRIP) * WIDE)
            know(scratch, tops, a.group_bytes, groups, b.group_bytes, at_group)
            add_products(scratch, a.values, rows, b.values, at_first, fraction_bits, strip)
            step, at_first, at_group = step + ONE, at_first + products * WIDE, at_group + WIDE + WIDE
            row0, row1, row2, row3 = row0 + products, row1 + products, row2 + products, row3 + products
            group0, group1, group2, group3 = group0 + size, group1 + size, group2 + size, group3 + size
        if not any_odd:
            row, step = row + np.uintp(STRIP), panel.first_step
    return row, step, any_odd
