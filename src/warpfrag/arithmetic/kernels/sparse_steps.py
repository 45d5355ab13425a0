"""One step with a sparse A: as in `strip`, but each stored element meets a line of B of its own.

Rows share no line of B, so each multiply-add loads its line. Where rows of a dense A pass together so that a line is
loaded once, here few rows pass with many columns, so that an element of A and the place of its line are loaded once.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.four_rows import STRIP
from warpfrag.arithmetic.kernels.jit import Int, inlined
from warpfrag.arithmetic.kernels.prepare import BLOCK, PITCH, U1, VECTOR_LANES, PreparedA, PreparedB
from warpfrag.arithmetic.kernels.strip import (
    GENERAL_START,
    ROW0,
    Strip,
    SumStart,
    elements_of,
    exact_sum,
    group_of,
    max_with_line,
    start_sums,
    store_max_exponents,
    truncate,
)
from warpfrag.arithmetic.kernels.vector import COLUMNS, ElementPointer, load, multiply_add, splat, store

# Rows that pass together, and how many of their columns, which divides BLOCK: four vectors of sums.
SPARSE_ROWS = np.uintp(max(1, 4 * COLUMNS // BLOCK))
SPARSE_COLUMNS = np.uintp(min(BLOCK, 4 * COLUMNS))
PAIR = np.uintp(2 * COLUMNS)


@inlined
def find_max_exponents_sparse(
    max_exponents: ElementPointer,
    exceptional: ElementPointer,
    a: ElementPointer,
    b: ElementPointer,
    lines: ElementPointer,
    strip: Strip,
) -> None:
    """The same for a sparse A, each of whose elements is multiplied with a line of B of its own."""
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
def add_products_sparse(
    partials: ElementPointer,
    max_exponents: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    start: SumStart,
    kept: Int,
    strip: Strip,
) -> None:
    """The same for a sparse A. Rows share no line of B, so few rows pass together, with as many columns as there are.

    Four vectors of sums, in two pairs of neighbours: of one row, or, where vectors are long, of two.
    """
    for first in range(ROW0, np.uintp(STRIP), SPARSE_ROWS):
        second = first + SPARSE_ROWS - U1
        elements1 = group_of(strip, first) * strip.geometry.products
        elements2 = group_of(strip, second) * strip.geometry.products
        at1, at2 = strip.at_partials + first * PITCH, strip.at_partials + second * PITCH
        for j in range(np.uintp(0), strip.geometry.width, SPARSE_COLUMNS):
            right = j + SPARSE_COLUMNS - PAIR
            total0 = start_sums(partials, max_exponents, a, b, start, strip, first, j, GENERAL_START)
            total1 = start_sums(partials, max_exponents, a, b, start, strip, first, j + VECTOR_LANES, GENERAL_START)
            total2 = start_sums(partials, max_exponents, a, b, start, strip, second, right, GENERAL_START)
            total3 = start_sums(
                partials, max_exponents, a, b, start, strip, second, right + VECTOR_LANES, GENERAL_START
            )
            for k in range(strip.geometry.products):
                line1 = strip.geometry.at_lines + np.uintp(a.lines[elements1 + k]) + j
                line2 = strip.geometry.at_lines + np.uintp(a.lines[elements2 + k]) + right
                value1, value2 = splat(a.values[elements1 + k], COLUMNS), splat(a.values[elements2 + k], COLUMNS)
                total0 = multiply_add(value1, load(b.values, line1, COLUMNS), total0)
                total1 = multiply_add(value1, load(b.values, line1 + VECTOR_LANES, COLUMNS), total1)
                total2 = multiply_add(value2, load(b.values, line2, COLUMNS), total2)
                total3 = multiply_add(value2, load(b.values, line2 + VECTOR_LANES, COLUMNS), total3)
            store(partials, at1 + j, truncate(exact_sum(total0), kept))
            store(partials, at1 + j + VECTOR_LANES, truncate(exact_sum(total1), kept))
            store(partials, at2 + right, truncate(exact_sum(total2), kept))
            store(partials, at2 + right + VECTOR_LANES, truncate(exact_sum(total3), kept))
