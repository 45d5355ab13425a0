"""Four rows of A times lines of B: the loop in which floating-point products spend most of their time.

Four rows pass together, so that an element of B is loaded once for all of them; they are written out by hand, so that
their sums stay in registers. K passes two at a time: `splat_pair` says why.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from warpfrag.tensorcore.kernels import processor as target
from warpfrag.tensorcore.kernels.jit import Int, inlined, inner
from warpfrag.tensorcore.kernels.vector import COLUMNS, ElementPointer, Lanes, load, multiply_add, splat, splat_lane

Four: TypeAlias = "tuple[Int, Int, Int, Int]"
FourSums: TypeAlias = "tuple[Lanes, Lanes, Lanes, Lanes]"

STRIP = 4  # rows
MULTIPLIES_BY_LANE = target.machine() == "arm"
U1, U2 = np.uintp(1), np.uintp(2)


@inner
def splat_pair(a: ElementPointer, at: Int) -> tuple[Lanes, Lanes]:
    """Two neighbours of A, each in every lane of a vector.

    ARM multiplies by one lane of a register: two elements are loaded at once, and none is spread over a vector, which
    would take as long there as a multiplication. x86 spreads an element while it loads it, at no cost.
    """
    if MULTIPLIES_BY_LANE:
        pair = load(a, at, 2)
        return splat_lane(pair, 0, COLUMNS), splat_lane(pair, 1, COLUMNS)
    return splat(a[at], COLUMNS), splat(a[at + U1], COLUMNS)


@inlined
def add_lines(
    sums: FourSums, a: ElementPointer, rows: Four, b: ElementPointer, at: Int, pitch: Int, count: Int
) -> FourSums:
    """Add the products of `count` k, an even number, to COLUMNS sums of each row, k ascending.

    `rows` are where the elements of each row begin in A; the first line of B is at `at`, and lines lie `pitch` apart.
    """
    row0, row1, row2, row3 = rows
    sum0, sum1, sum2, sum3 = sums
    for k in range(np.uintp(0), np.uintp(count), U2):
        first0, second0 = splat_pair(a, row0 + k)
        first1, second1 = splat_pair(a, row1 + k)
        first2, second2 = splat_pair(a, row2 + k)
        first3, second3 = splat_pair(a, row3 + k)
        line = load(b, at, COLUMNS)
        sum0 = multiply_add(first0, line, sum0)
        sum1 = multiply_add(first1, line, sum1)
        sum2 = multiply_add(first2, line, sum2)
        sum3 = multiply_add(first3, line, sum3)
        line = load(b, at + pitch, COLUMNS)
        sum0 = multiply_add(second0, line, sum0)
        sum1 = multiply_add(second1, line, sum1)
        sum2 = multiply_add(second2, line, sum2)
        sum3 = multiply_add(second3, line, sum3)
        at += pitch + pitch
    return sum0, sum1, sum2, sum3
