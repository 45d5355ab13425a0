"""The special function unit of sm_90, exactly: rcp, rsqrt, sqrt, ex2 and lg2 as an H200 gives them.

Each file has the results for one stretch of inputs: every fraction of [1, 2) for rcp and ex2, of [1, 4) for rsqrt and
sqrt, of [0.5, 1) and [1, 2) for lg2. The first result is followed by the differences of neighbours, as four planes of
bytes, compressed. Everything else follows: the fraction of the result does not depend on the exponent (for the roots:
only on its parity), which was compared on that GPU for all 2**32 inputs. ex2 looks at 23 bits behind the point,
whatever comes after them; lg2 adds the exponent and cuts.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.types import Codes

FRACTION = np.int64(0x7FFFFF)
INFINITY = np.int64(0x7F800000)
NAN = np.int64(0x7FFFFFFF)
SIGN = np.int64(0x80000000)


@lru_cache(6)
def table(function: str) -> NDArray[np.uint32]:
    """The results of a function, fraction after fraction."""
    data = (Path(__file__).parent / f"{function}.z").read_bytes()
    planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(4, -1)
    steps = planes[0].astype(np.uint32)
    for number in (1, 2, 3):
        steps |= planes[number].astype(np.uint32) << np.uint32(8 * number)
    return np.cumsum(steps, dtype=np.uint32, out=steps)


def look_up(function: str, index: Codes) -> Codes:
    """Some results, with room for an exponent that goes beyond its bits."""
    return table(function)[index].astype(np.int64)


def parts(codes: Codes) -> tuple[Codes, Codes, Codes]:
    """Sign, exponent field and fraction; a subnormal counts as a zero."""
    wide = codes.astype(np.int64)
    exponent = (wide >> 23) & 255
    return wide & SIGN, exponent, np.where(exponent == 0, 0, wide & FRACTION)


def rcp(codes: Codes) -> Codes:
    """1 / x; results below the smallest normal number are zero."""
    sign, exponent, fraction = parts(codes)
    found = look_up("rcp", fraction) - ((exponent - 127) << 23)
    found = np.where(found >> 23 <= 0, 0, found)
    found = np.where(exponent == 0, INFINITY, np.where(exponent == 255, 0, found)) | sign
    return np.where((exponent == 255) & (fraction != 0), NAN, found).astype(np.uint32)


def _root(function: str, codes: Codes, way: int) -> tuple[Codes, Codes, Codes, Codes]:
    """The results for positive numbers, and the parts of x; `way` is what the exponent is halved with."""
    sign, exponent, fraction = parts(codes)
    odd = (exponent - 127) & 1
    half = (exponent - 127 - odd) >> 1
    return look_up(function, fraction | odd << 23) + way * (half << 23), sign, exponent, fraction


def rsqrt(codes: Codes) -> Codes:
    """1 / sqrt(x)."""
    found, sign, exponent, fraction = _root("rsqrt", codes, -1)
    found = np.where(exponent == 255, 0, found)
    found = np.where((sign != 0) | ((exponent == 255) & (fraction != 0)), NAN, found)
    return np.where(exponent == 0, INFINITY | sign, found).astype(np.uint32)


def sqrt(codes: Codes) -> Codes:
    """The square root of x."""
    found, sign, exponent, fraction = _root("sqrt", codes, 1)
    found = np.where(exponent == 255, INFINITY, found)
    found = np.where((sign != 0) | ((exponent == 255) & (fraction != 0)), NAN, found)
    return np.where(exponent == 0, sign, found).astype(np.uint32)


def ex2(codes: Codes) -> Codes:
    """2 to the power of x: the digits behind the point choose the fraction, those before it the exponent.

    A negative number is complemented digit by digit, so its last place counts for one less, unless all digits behind
    the point are zero.
    """
    sign, exponent, fraction = parts(codes)
    shift = np.clip(exponent - 127, -24, 8)
    significand = fraction | 1 << 23
    digits = np.where(shift >= 0, significand << np.maximum(shift, 0), significand >> np.maximum(-shift, 0))
    digits = np.where(exponent == 0, 0, digits)
    negative = np.where((digits & FRACTION) != 0, -digits - 1, -digits)
    digits = np.where(sign != 0, negative, digits)
    found = look_up("ex2", digits & FRACTION) + (((digits >> 23) - 1) << 23)
    found = np.where(found >> 23 <= 0, 0, np.minimum(found, INFINITY))
    return np.where((exponent == 255) & (fraction != 0), NAN, found).astype(np.uint32)


def lg2(codes: Codes) -> Codes:
    """The logarithm of x to base 2: that of its fraction, which is put into [1, 2) or [0.5, 1), plus an integer."""
    sign, exponent, fraction = parts(codes)
    above, below = (table(name)[fraction].view(np.float32).astype(np.float64) for name in ("lg2_above", "lg2_below"))
    total = np.where(exponent >= 127, (exponent - 127) + above, (exponent - 126) + below)
    mantissa, power = np.frexp(total)
    cut = np.ldexp(np.trunc(mantissa * 2.0**24), power - 24)
    found = cut.astype(np.float32).view(np.uint32).astype(np.int64)
    found = np.where(exponent == 255, INFINITY, found)
    found = np.where((sign != 0) | ((exponent == 255) & (fraction != 0)), NAN, found)
    return np.where(exponent == 0, INFINITY | SIGN, found).astype(np.uint32)


EXACT = {"rcp": rcp, "rsqrt": rsqrt, "sqrt": sqrt, "ex2": ex2, "lg2": lg2}
