"""One step with a sparse A: as in `strip`, but each stored element meets a line of B of its own.

Rows share no line of B, so each multiply-add loads its line. Where rows of a dense A pass together so that a line is
loaded once, here few rows pass with many columns, so that an element of A and the place of its line are loaded once.
Elements of A come in pairs, and the places of a pair's lines are loaded before the pair in front of it is multiplied:
else processors wait for a place, then for its line, at every element. What is loaded behind the last pair of a row is
the next row's, or the room that `lines` has behind the last.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.four_rows import STRIP, U2, FourSums, splat_pair
from warpfrag.arithmetic.kernels.jit import Int, inlined
from warpfrag.arithmetic.kernels.llvm import opaque
from warpfrag.arithmetic.kernels.prepare import BLOCK, PITCH, U1, VECTOR_LANES, PreparedA, PreparedB
from warpfrag.arithmetic.kernels.strip import (
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
from warpfrag.arithmetic.kernels.vector import (
    COLUMNS,
    ElementPointer,
    Lanes,
    load,
    multiply_add,
    splat,
    store,
)

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
def add_element(totals: FourSums, b: ElementPointer, value1: Lanes, line1: Int, value2: Lanes, line2: Int) -> FourSums:
    """Add the products of one element of A with a line of B to two vectors of sums, and those of another to two."""
    total0, total1, total2, total3 = totals
    return (
        multiply_add(value1, load(b, line1, COLUMNS), total0),
        multiply_add(value1, load(b, line1 + VECTOR_LANES, COLUMNS), total1),
        multiply_add(value2, load(b, line2, COLUMNS), total2),
        multiply_add(value2, load(b, line2 + VECTOR_LANES, COLUMNS), total3),
    )


@inlined
def add_lines_sparse(
    totals: FourSums,
    a: PreparedA[ElementPointer],
    elements1: Int,
    elements2: Int,
    b: ElementPointer,
    left: Int,
    right: Int,
    count: Int,
) -> FourSums:
    """Add the products of `count` elements, an even number, to two pairs of sums: of one row, or of two.

    `left` and `right` are where the columns of a pair begin in the first line of B.
    """
    next0, next1 = np.uintp(a.lines[elements1]), np.uintp(a.lines[elements1 + U1])
    other0, other1 = np.uintp(a.lines[elements2]), np.uintp(a.lines[elements2 + U1])
    for k in range(np.uintp(0), count, U2):
        line0, line1, line2, line3 = left + next0, left + next1, right + other0, right + other1
        at_next1, at_next2 = elements1 + k + U2, elements2 + k + U2
        next0, next1 = opaque(np.uintp(a.lines[at_next1])), opaque(np.uintp(a.lines[at_next1 + U1]))
        if SPARSE_ROWS == U1:
            other0, other1 = next0, next1
        else:
            other0, other1 = opaque(np.uintp(a.lines[at_next2])), opaque(np.uintp(a.lines[at_next2 + U1]))
        value0, value1 = splat_pair(a.values, elements1 + k)
        value2, value3 = splat_pair(a.values, elements2 + k)
        totals = add_element(totals, b, value0, line0, value2, line2)
        totals = add_element(totals, b, value1, line1, value3, line3)
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
    """The same for a sparse A. Rows share no line of B, so few rows pass together, with as many columns as there are.

    Four vectors of sums, in two pairs of neighbours: of one row, or, where vectors are long, of two. `kind` is
    WIDE_START or GENERAL_START.
    """
    for first in range(ROW0, np.uintp(STRIP), SPARSE_ROWS):
        second = first + SPARSE_ROWS - U1
        elements1 = group_of(strip, first) * strip.geometry.products
        elements2 = group_of(strip, second) * strip.geometry.products
        at1, at2 = strip.at_partials + first * PITCH, strip.at_partials + second * PITCH
        for j in range(np.uintp(0), strip.geometry.width, SPARSE_COLUMNS):
            right = j + SPARSE_COLUMNS - PAIR
            totals = (
                start_sums(partials, max_exponents, a, b, start, strip, first, j, kind),
                start_sums(partials, max_exponents, a, b, start, strip, first, j + VECTOR_LANES, kind),
                start_sums(partials, max_exponents, a, b, start, strip, second, right, kind),
                start_sums(partials, max_exponents, a, b, start, strip, second, right + VECTOR_LANES, kind),
            )
            left, right_of = strip.geometry.at_lines + j, strip.geometry.at_lines + right
            totals = add_lines_sparse(
                totals, a, elements1, elements2, b.values, left, right_of, strip.geometry.products
            )
            total0, total1, total2, total3 = totals
            store(partials, at1 + j, truncate(exact_sum(total0), kept))
            store(partials, at1 + j + VECTOR_LANES, truncate(exact_sum(total1), kept))
            store(partials, at2 + right, truncate(exact_sum(total2), kept))
            store(partials, at2 + right + VECTOR_LANES, truncate(exact_sum(total3), kept))
