"""One step with a sparse A: as in `strip`, but each stored element meets a line of B of its own.

Rows share no line of B, so each multiply-add loads its line. Where rows of a dense A pass together so that a line is
loaded once, here few rows pass with many columns, so that an element of A and the place of its line are loaded once.
Elements of A come in pairs, and the addresses of a pair's lines are computed before the pair in front of it is
multiplied: else processors wait for an address, then for its line, at every element. What is read behind the last pair
of a row is the next row's, or the room that `lines` has behind the last.
"""

from __future__ import annotations

import numpy as np

from warpfrag.tensorcore.kernels.jit import Int, inlined
from warpfrag.tensorcore.kernels.prepare import BLOCK, PITCH, U1, VECTOR_LANES, PreparedA, PreparedB
from warpfrag.tensorcore.kernels.strip import (
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
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    STRIP,
    U2,
    ElementPointer,
    FourSums,
    Lanes,
    element_address,
    load,
    multiply_add,
    splat,
    splat_pair,
    store,
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
    """The line of B that an element of A is multiplied with; `first` is where its columns begin in the first line."""
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
    """The same for a sparse A. Rows share no line of B, so few rows pass together, with as many columns as there are.

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
