"""The special function unit of sm_90, exactly: rcp, rsqrt, sqrt, ex2, lg2, sin, cos and tanh as an H200 gives them.

The unit has one parabola for each segment of a function's inputs, and cuts what it gives to the bits that are kept:

    c0 + c1 * x + c2 * square(x)

The first digits of an input choose the segment, the next 17 are x. The squarer leaves out what lies below its
column 19: the products of two digits whose places add up to less. `unit.csv` has the coefficients, in units of 2**-40,
found from the results of an H200. Everything else follows from them: the exponent of rcp and the roots is that of the
input, turned round or halved; ex2 and lg2 have theirs before the point; sin and cos are a quarter of a wave. rcp and
rsqrt of the upper word of a float64 are the same parabolas, cut to its 20 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.program.types import Codes

SIGN = np.int64(0x80000000)
NAN = np.int64(0x7FFFFFFF)
DIGITS = 17  # of x
COLUMN = 19  # the squarer's last
PLACES = 40  # behind the point of a coefficient
DROPPED = 4  # the last places of lg2, before its sign is turned
TANH_DIGITS = {119: 0, 120: 0, 121: 0, 122: 1, 123: 1, 124: 2, 125: 2, 126: 2, 127: 3, 128: 4, 129: 3}  # of a segment


@dataclass(frozen=True)
class Word:
    """How 32 bits hold a number."""

    fraction: int
    bias: int

    @property
    def infinity(self) -> int:
        """Infinity's code."""
        return 2 * self.bias + 1 << self.fraction

    def parts(self, codes: Codes) -> tuple[Codes, Codes, Codes]:
        """Sign, exponent field and fraction; a subnormal counts as a zero."""
        wide = codes.astype(np.int64)
        exponent = (wide & NAN) >> self.fraction
        return wide & SIGN, exponent, np.where(exponent == 0, 0, wide & ((1 << self.fraction) - 1))

    def cut(self, units: Codes) -> Codes:
        """Codes of a number of units that is not negative: its first bits."""
        codes = units.astype(np.float64).view(np.int64) >> (52 - self.fraction)
        return np.where(units == 0, 0, codes - (1023 - self.bias + PLACES << self.fraction))


SINGLE, UPPER = Word(23, 127), Word(20, 1023)  # a float32, the upper half of a float64
FRACTION = np.int64((1 << SINGLE.fraction) - 1)
ONE = np.int64(SINGLE.bias << SINGLE.fraction)


@cache
def coefficients() -> dict[str, NDArray[np.int64]]:
    """c0, c1 and c2 of every segment of each function, [3, segments]."""
    rows: dict[str, list[list[int]]] = {}
    for line in Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()[1:]:
        name, *numbers = line.split(",")
        rows.setdefault(name, []).append([int(number) for number in numbers])
    return {name: np.array(found, np.int64).T.copy() for name, found in rows.items()}


@cache
def squares() -> NDArray[np.int64]:
    """What the squarer makes of each x, in units of its last column."""
    x = np.arange(1 << DIGITS, dtype=np.int64)
    found = np.zeros(1 << DIGITS, np.int64)
    for place in range(COLUMN // 2 + 1, DIGITS):  # a digit's own square, and its products with those below it
        low = (x & ((1 << place) - 1)) >> (COLUMN - 1 - place)
        found += (x >> place & 1) * (low + (1 << 2 * place - COLUMN))
    return found


def parabola(function: str, digits: Codes) -> Codes:
    """The unit's result, uncut; the digits of a segment and those of x in one number."""
    c0, c1, c2 = coefficients()[function][:, digits >> DIGITS]
    x = digits & ((1 << DIGITS) - 1)
    return c0 + c1 * x + c2 * squares()[x]


def fixed_point(codes: Codes, places: int, most: float) -> Codes:
    """Numbers without their sign, `most` where they are more, cut to so many places behind the point."""
    size = np.minimum(codes & np.uint32(NAN), np.float32(most).view(np.uint32)).view(np.float32)
    return (size.astype(np.float64) * 2.0**places).astype(np.int64)


def rcp(codes: Codes, word: Word = SINGLE) -> Codes:
    """1 / x; results below the smallest normal number are zero."""
    sign, exponent, fraction = word.parts(codes)
    last = 2 * word.bias + 1
    found = word.cut(parabola("rcp", fraction << (24 - word.fraction))) - ((exponent - word.bias) << word.fraction)
    found = np.where((found >> word.fraction <= 0) | (exponent == last), 0, found)
    found = np.where(exponent == 0, word.infinity, found) | sign
    return np.where((exponent == last) & (fraction != 0), NAN, found).astype(np.uint32)


def _root(function: str, codes: Codes, word: Word, way: int) -> tuple[Codes, Codes, Codes]:
    """The results for positive numbers, sign and exponent; `way` is what the exponent is halved with."""
    sign, exponent, fraction = word.parts(codes)
    odd = (exponent - word.bias) & 1
    half = (exponent - word.bias - odd) >> 1
    digits = (fraction | odd << word.fraction) << (23 - word.fraction)
    one = word.bias << word.fraction
    found = np.where(digits == 0, one, word.cut(parabola(function, digits))) + way * (half << word.fraction)
    return np.where((sign != 0) | ((codes & NAN) > word.infinity), NAN, found), sign, exponent


def rsqrt(codes: Codes, word: Word = SINGLE) -> Codes:
    """1 / sqrt(x)."""
    found, sign, exponent = _root("rsqrt", codes, word, -1)
    found = np.where(codes == word.infinity, 0, found)
    return np.where(exponent == 0, word.infinity | sign, found).astype(np.uint32)


def sqrt(codes: Codes) -> Codes:
    """The square root of x."""
    found, sign, exponent = _root("sqrt", codes, SINGLE, 1)
    found = np.where(codes == SINGLE.infinity, SINGLE.infinity, found)
    return np.where(exponent == 0, sign, found).astype(np.uint32)


def ex2(codes: Codes) -> Codes:
    """2 to the power of x: the digits behind the point choose the fraction, those before it the exponent.

    A negative number is complemented digit by digit, so its last place counts for one less, unless all digits behind
    the point are zero.
    """
    digits = fixed_point(codes, 23, 256.0)
    negative = np.where((digits & FRACTION) != 0, ~digits, -digits)
    digits = np.where(codes & SIGN, negative, digits)
    found = SINGLE.cut(parabola("ex2", digits & FRACTION)) + (((digits >> 23) - 1) << 23)
    found = np.where(found >> 23 <= 0, 0, np.minimum(found, SINGLE.infinity))
    return np.where((codes & NAN) > SINGLE.infinity, NAN, found).astype(np.uint32)


def lg2(codes: Codes) -> Codes:
    """The logarithm of x to base 2: that of its fraction, and before the point its exponent."""
    sign, exponent, fraction = SINGLE.parts(codes)
    total = (parabola("lg2", fraction) + ((exponent - SINGLE.bias) << PLACES)) >> DROPPED
    found = np.where(total < 0, SIGN, 0) | SINGLE.cut(np.where(total < 0, ~total, total) << DROPPED)
    found = np.where(codes == ONE, 0, np.where(codes == SINGLE.infinity, codes, found))
    found = np.where((sign != 0) | (codes > SINGLE.infinity), NAN, found)
    return np.where(exponent == 0, SINGLE.infinity | SIGN, found).astype(np.uint32)


def _wave(codes: Codes, quarters: int, sign: Codes) -> Codes:
    """A wave of length 1 so many quarters on; every second quarter runs back."""
    turns = fixed_point(codes, 25, 2.0**30) + (quarters << 23)
    digits = np.where((turns >> 23) & 1, ~turns, turns) & FRACTION
    found = SINGLE.cut(parabola("sin", digits)) | (turns << 7 & SIGN) ^ sign
    return np.where((codes & NAN) >= SINGLE.infinity, NAN, found).astype(np.uint32)


def sin(codes: Codes) -> Codes:
    """The sine of 2 pi x."""
    return _wave(codes, 0, codes & SIGN)


def cos(codes: Codes) -> Codes:
    """The cosine of 2 pi x."""
    return _wave(codes, 1, 0)


def tanh(codes: Codes) -> Codes:
    """The hyperbolic tangent: x itself below 2**-8, 1 from 8 on; nothing is flushed."""
    size = codes.astype(np.int64) & NAN
    taken = np.array([*TANH_DIGITS.values()], np.int64)
    before = np.cumsum(1 << taken) - (1 << taken)
    place = np.clip((size >> 23) - min(TANH_DIGITS), 0, len(TANH_DIGITS) - 1)
    digits = (before[place] << DIGITS) + ((size & FRACTION) >> (23 - DIGITS - taken[place]))
    found = np.where(size < min(TANH_DIGITS) << 23, size, SINGLE.cut(parabola("tanh", digits)))
    found = np.where(size < max(TANH_DIGITS) + 1 << 23, found, ONE) | codes & SIGN
    return np.where(size > SINGLE.infinity, NAN, found).astype(np.uint32)
