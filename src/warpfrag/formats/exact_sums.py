"""Exact matrix products, as integers times a power of two.

Every finite float is an integer times a power of two. The integers are split into limbs that are short enough for
float64 to add their products exactly. A matrix product is then a few float64 matrix products, combined as Python
integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.float_environment import exact_floats

Doubles = NDArray[np.float64]

FLOAT_BITS = 53
MAX_WIDTH = 900
"""The largest distance between the highest and the lowest bit of a matrix that is split into float64 limbs."""


@dataclass(frozen=True)
class ExactArray:
    """An array of exact numbers, units * 2**exponent; the units are Python integers of any length."""

    units: NDArray[Any]
    exponent: int

    def at_exponent(self, exponent: int) -> NDArray[Any]:
        """Return the units for another exponent, which must not be larger than the array's own."""
        return self.units * (1 << (self.exponent - exponent))

    def plus(self, other: ExactArray) -> ExactArray:
        """Return the exact sum of two arrays."""
        exponent = min(self.exponent, other.exponent)
        return ExactArray(self.at_exponent(exponent) + other.at_exponent(exponent), exponent)


@exact_floats
def exact_numbers(values: Doubles) -> ExactArray:
    """Convert finite float64 numbers to integers times a common power of two."""
    if not values.any():
        return ExactArray(np.zeros(values.shape, object), 0)
    fraction, power = np.frexp(values)
    whole = np.ldexp(fraction, FLOAT_BITS).astype(np.int64)
    lowest = np.where(whole != 0, power - FLOAT_BITS + _trailing_zeros(whole), np.iinfo(np.int32).max)
    exponent = int(lowest.min())
    shift = np.where(whole != 0, power - FLOAT_BITS - exponent, 0)
    units = np.array(
        [w << s if s >= 0 else w >> -s for w, s in zip(whole.ravel().tolist(), shift.ravel().tolist(), strict=True)],
        object,
    ).reshape(values.shape)
    return ExactArray(units, exponent)


def _trailing_zeros(whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the lowest set bit; undefined for zero."""
    lowest = np.where(whole != 0, whole & -whole, 1).astype(np.float64)
    return np.frexp(np.abs(lowest))[1].astype(np.int64) - 1


@exact_floats
def exact_product(a: Doubles, b: Doubles) -> ExactArray:
    """Return the exact product of two finite float64 matrices."""
    exponents = [_lowest_exponent(matrix) for matrix in (a, b)]
    widths = [_highest_exponent(matrix) - lowest for matrix, lowest in zip((a, b), exponents, strict=True)]
    if max(widths) > MAX_WIDTH:
        left, right = exact_numbers(a), exact_numbers(b)
        return ExactArray(np.asarray(left.units @ right.units, object), left.exponent + right.exponent)
    length = (FLOAT_BITS - max(1, a.shape[1]).bit_length()) // 2
    limbs = [
        _limbs(np.ldexp(matrix, -lowest), width, length)
        for matrix, lowest, width in zip((a, b), exponents, widths, strict=True)
    ]
    levels: dict[int, NDArray[np.int64]] = {}
    for i, x in enumerate(limbs[0]):
        for j, y in enumerate(limbs[1]):
            part = (x @ y).astype(np.int64)
            levels[i + j] = levels[i + j] + part if i + j in levels else part
    units = np.zeros((a.shape[0], b.shape[1]), object)
    for level, part in levels.items():
        units = units + part.astype(object) * (1 << (level * length))
    return ExactArray(units, sum(exponents))


def _lowest_exponent(matrix: Doubles) -> int:
    """Return the exponent of the lowest set bit of any element."""
    fraction, power = np.frexp(matrix[matrix != 0])
    if not fraction.size:
        return 0
    whole = np.ldexp(fraction, FLOAT_BITS).astype(np.int64)
    return int((power - FLOAT_BITS + _trailing_zeros(whole)).min())


def _highest_exponent(matrix: Doubles) -> int:
    exponents = np.frexp(matrix[matrix != 0])[1]
    return int(exponents.max()) if exponents.size else 1


def _limbs(whole: Doubles, width: int, length: int) -> list[Doubles]:
    """Split integers of `width` bits into limbs of `length` bits, lowest first; each has the sign of its integer."""
    count = max(1, -(-width // length))
    limbs = []
    for place in reversed(range(count)):
        limb = np.trunc(np.ldexp(whole, -place * length))
        whole = whole - np.ldexp(limb, place * length)
        limbs.append(limb)
    return limbs[::-1]
