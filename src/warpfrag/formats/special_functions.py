"""The special function unit of sm_90: rcp, rsqrt, sqrt, ex2, lg2, sin, cos and tanh, bit for bit as on an H200.

The unit has one parabola for each segment of a function's inputs, and truncates its value to the result's bits:

    c0 + c1 * x + c2 * square(x)

The first bits of an input select the segment, and the next 17 bits are x. The squarer omits the columns below 19: the
products of two bits whose positions add up to less than 19. `special_functions.csv` has the coefficients, in units of
2**-40, derived from the results of an H200. Everything else follows from them: the exponent of rcp and the roots is
that of the input, negated or halved; the integer part of ex2's input is the exponent of its result, and lg2 does the
reverse; sin and cos have segments for a quarter of a period. rcp and rsqrt of the upper word of a float64 use the same
parabolas, truncated to 20 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import CANONICAL_NANS

Codes: TypeAlias = "NDArray[Any]"
SIGN = np.int64(0x80000000)
NAN = np.int64(CANONICAL_NANS["f32"])
MAGNITUDE = np.int64(0x7FFFFFFF)  # all bits except the sign
DIGITS = 17  # the number of bits of x
COLUMN = 19  # the lowest column that the squarer computes
PLACES = 40  # the number of fraction bits in a coefficient
DROPPED = 4  # the number of low bits of lg2 that are cleared before negation
TURNS = 0.15915493667125702  # 1 / (2 pi) in float32
TANH_DIGITS = {119: 0, 120: 0, 121: 0, 122: 1, 123: 1, 124: 2, 125: 2, 126: 2, 127: 3, 128: 4, 129: 3}
"""The number of bits that select a segment of tanh, by exponent field."""


@dataclass(frozen=True)
class FloatEncoding:
    """A 32-bit number encoding: its fraction bits and exponent bias."""

    fraction: int
    bias: int

    @property
    def infinity(self) -> int:
        """The code for infinity."""
        return 2 * self.bias + 1 << self.fraction

    def parts(self, codes: Codes) -> tuple[Codes, Codes, Codes]:
        """Return the sign, exponent field and fraction; subnormals are flushed to zero."""
        wide = codes.astype(np.int64)
        exponent = (wide & MAGNITUDE) >> self.fraction
        return wide & SIGN, exponent, np.where(exponent == 0, 0, wide & ((1 << self.fraction) - 1))

    def truncate(self, units: Codes) -> Codes:
        """Convert non-negative numbers in units of 2**-40 to codes, truncating them."""
        codes = units.astype(np.float64).view(np.int64) >> (52 - self.fraction)
        return np.where(units == 0, 0, codes - (1023 - self.bias + PLACES << self.fraction))


SINGLE = FloatEncoding(23, 127)
"""The encoding of float32."""
UPPER = FloatEncoding(20, 1023)
"""The encoding of the upper word of float64."""
FRACTION = np.int64((1 << SINGLE.fraction) - 1)
CODE_OF_1 = np.int64(SINGLE.bias << SINGLE.fraction)


@cache
def coefficients() -> dict[str, NDArray[np.int64]]:
    """Return c0, c1 and c2 of every segment of each function, [3, segments]."""
    rows: dict[str, list[list[int]]] = {}
    for line in Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()[1:]:
        name, *numbers = line.split(",")
        rows.setdefault(name, []).append([int(number) for number in numbers])
    return {name: np.array(columns, np.int64).T.copy() for name, columns in rows.items()}


@cache
def squares() -> NDArray[np.int64]:
    """Return the squarer's result for each x, in units of its lowest column."""
    x = np.arange(1 << DIGITS, dtype=np.int64)
    total = np.zeros(1 << DIGITS, np.int64)
    for place in range(COLUMN // 2 + 1, DIGITS):  # the bit's square, and its products with lower bits
        low = (x & ((1 << place) - 1)) >> (COLUMN - 1 - place)
        total += (x >> place & 1) * (low + (1 << 2 * place - COLUMN))
    return total


def parabola(function: str, digits: Codes) -> Codes:
    """Return the unit's result before truncation; `digits` contains the segment's bits, followed by those of x."""
    c0, c1, c2 = coefficients()[function][:, digits >> DIGITS]
    x = digits & ((1 << DIGITS) - 1)
    return c0 + c1 * x + c2 * squares()[x]


def fixed_point(codes: Codes, places: int, limit: float) -> Codes:
    """Return magnitudes in fixed point, clamped to `limit` and truncated."""
    size = np.minimum(codes & np.uint32(MAGNITUDE), np.float32(limit).view(np.uint32)).view(np.float32)
    return (size.astype(np.float64) * 2.0**places).astype(np.int64)


def rcp(codes: Codes, encoding: FloatEncoding = SINGLE) -> Codes:
    """Return 1 / x; subnormal operands and results are flushed to zero."""
    sign, exponent, fraction = encoding.parts(codes)
    last = 2 * encoding.bias + 1
    result = encoding.truncate(parabola("rcp", fraction << (24 - encoding.fraction))) - (
        (exponent - encoding.bias) << encoding.fraction
    )
    result = np.where((result >> encoding.fraction <= 0) | (exponent == last), 0, result)
    result = np.where(exponent == 0, encoding.infinity, result) | sign
    return np.where((exponent == last) & (fraction != 0), NAN, result).astype(np.uint32)


def _root(function: str, codes: Codes, encoding: FloatEncoding, power: int) -> tuple[Codes, Codes, Codes]:
    """Return the root (NaN for negative numbers), the sign and the exponent; `power` is 1 for sqrt, -1 for rsqrt."""
    sign, exponent, fraction = encoding.parts(codes)
    parity = (exponent - encoding.bias) & 1
    half = (exponent - encoding.bias - parity) >> 1
    digits = (fraction | parity << encoding.fraction) << (23 - encoding.fraction)
    code_of_1 = encoding.bias << encoding.fraction
    result = np.where(digits == 0, code_of_1, encoding.truncate(parabola(function, digits))) + power * (
        half << encoding.fraction
    )
    return np.where((sign != 0) | ((codes & MAGNITUDE) > encoding.infinity), NAN, result), sign, exponent


def rsqrt(codes: Codes, encoding: FloatEncoding = SINGLE) -> Codes:
    """Return 1 / sqrt(x): NaN for negative numbers, infinity for zeros."""
    result, sign, exponent = _root("rsqrt", codes, encoding, -1)
    result = np.where(codes == encoding.infinity, 0, result)
    return np.where(exponent == 0, encoding.infinity | sign, result).astype(np.uint32)


def sqrt(codes: Codes) -> Codes:
    """Return the square root of x, or NaN for negative numbers."""
    result, sign, exponent = _root("sqrt", codes, SINGLE, 1)
    result = np.where(codes == SINGLE.infinity, SINGLE.infinity, result)
    return np.where(exponent == 0, sign, result).astype(np.uint32)


def ex2(codes: Codes) -> Codes:
    """Return 2 to the power of x: fraction bits determine the fraction, integer bits the exponent.

    A negative number is complemented bit by bit, which makes it smaller than the exact negative by one unit in the last
    place, unless all fraction bits are zero.
    """
    digits = fixed_point(codes, 23, 256.0)
    negative = np.where((digits & FRACTION) != 0, ~digits, -digits)
    digits = np.where(codes & SIGN, negative, digits)
    result = SINGLE.truncate(parabola("ex2", digits & FRACTION)) + (((digits >> 23) - 1) << 23)
    result = np.where(result >> 23 <= 0, 0, np.minimum(result, SINGLE.infinity))
    return np.where((codes & MAGNITUDE) > SINGLE.infinity, NAN, result).astype(np.uint32)


def lg2(codes: Codes) -> Codes:
    """Return the base-2 logarithm of x: the logarithm of its significand plus its exponent."""
    sign, exponent, fraction = SINGLE.parts(codes)
    total = (parabola("lg2", fraction) + ((exponent - SINGLE.bias) << PLACES)) >> DROPPED
    result = np.where(total < 0, SIGN, 0) | SINGLE.truncate(np.where(total < 0, ~total, total) << DROPPED)
    result = np.where(codes == CODE_OF_1, 0, np.where(codes == SINGLE.infinity, codes, result))
    result = np.where((sign != 0) | (codes > SINGLE.infinity), NAN, result)
    return np.where(exponent == 0, SINGLE.infinity | SIGN, result).astype(np.uint32)


def _sine(codes: Codes, quarters: int, sign: Codes | int) -> Codes:
    """Return the sine of 2 pi x, shifted by quarter periods; every second quarter is mirrored."""
    turns = fixed_point(codes, 25, 2.0**30) + (quarters << 23)
    digits = np.where((turns >> 23) & 1, ~turns, turns) & FRACTION
    result = SINGLE.truncate(parabola("sin", digits)) | (turns << 7 & SIGN) ^ sign
    return np.where((codes & MAGNITUDE) >= SINGLE.infinity, NAN, result).astype(np.uint32)


def sin(codes: Codes) -> Codes:
    """Return the sine of 2 pi x."""
    return _sine(codes, 0, codes & SIGN)


def cos(codes: Codes) -> Codes:
    """Return the cosine of 2 pi x."""
    return _sine(codes, 1, 0)


def tanh(codes: Codes) -> Codes:
    """Return the hyperbolic tangent; it is x below 2**-8 and 1 from 8 on, and subnormals are kept."""
    size = codes.astype(np.int64) & MAGNITUDE
    lengths = np.array([*TANH_DIGITS.values()], np.int64)
    before = np.cumsum(1 << lengths) - (1 << lengths)
    place = np.clip((size >> 23) - min(TANH_DIGITS), 0, len(TANH_DIGITS) - 1)
    digits = (before[place] << DIGITS) + ((size & FRACTION) >> (23 - DIGITS - lengths[place]))
    result = np.where(size < min(TANH_DIGITS) << 23, size, SINGLE.truncate(parabola("tanh", digits)))
    result = np.where(size < max(TANH_DIGITS) + 1 << 23, result, CODE_OF_1) | codes & SIGN
    return np.where(size > SINGLE.infinity, NAN, result).astype(np.uint32)
