"""Four rows of A times lines of B: the loop in which floating-point products spend most of their time.

Four rows pass together, so that an element of B is loaded once for all of them; they are written out by hand, so that
their sums stay in registers.
"""

from __future__ import annotations

from typing import TypeAlias

from warpfrag.arithmetic.kernels.jit import Int, inlined
from warpfrag.arithmetic.kernels.vector import COLUMNS, ElementPointer, Lanes, load, multiply_add, splat

Four: TypeAlias = "tuple[Int, Int, Int, Int]"
FourSums: TypeAlias = "tuple[Lanes, Lanes, Lanes, Lanes]"

STRIP = 4  # rows


@inlined
def add_lines(
    sums: FourSums, a: ElementPointer, rows: Four, b: ElementPointer, at: Int, pitch: Int, count: Int
) -> FourSums:
    """Add the products of `count` k to COLUMNS sums of each row, k ascending.

    `rows` are where the elements of each row begin in A; the first line of B is at `at`, and lines lie `pitch` apart.
    """
    row0, row1, row2, row3 = rows
    sum0, sum1, sum2, sum3 = sums
    for k in range(count):
        line = load(b, at, COLUMNS)
        sum0 = multiply_add(splat(a[row0 + k], COLUMNS), line, sum0)
        sum1 = multiply_add(splat(a[row1 + k], COLUMNS), line, sum1)
        sum2 = multiply_add(splat(a[row2 + k], COLUMNS), line, sum2)
        sum3 = multiply_add(splat(a[row3 + k], COLUMNS), line, sum3)
        at += pitch
    return sum0, sum1, sum2, sum3
