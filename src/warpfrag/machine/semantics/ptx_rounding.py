"""Correct rounding: convert exact numbers to codes of a format, rounded once, in any PTX rounding mode.

An exact number consists of a sign, a significand of 64 bits whose top bit is set, and the exponent of that bit. Bits
below the 64 are combined into the last bit ("sticky"): no format keeps more than 53 bits, so the last bit alone never
decides the rounding. The sum of two floats is first computed as `high + low`, where `low` is the rounding error of the
float64 sum (Knuth's two-sum).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.machine.ir.scalar_types import Codes, container

U1, U63, U64 = np.uint64(1), np.uint64(63), np.uint64(64)
TOP = np.uint64(1 << 63)
FRACTION = np.uint64((1 << 52) - 1)
HIDDEN = np.uint64(1 << 52)


@dataclass(frozen=True)
class ExactNumbers:
    """Nonzero numbers: (-1)**negative * significand * 2**(exponent - 63)."""

    negative: Codes
    significand: Codes
    exponent: Codes


def infinity(fmt: Format) -> int:
    """Return the code of infinity, or the first code above the finite ones if the format has no infinity."""
    top = 1 << (fmt.exponent + fmt.fraction)
    return top - (1 << fmt.fraction if fmt.nan == "ieee" else fmt.nan == "ones")


def canonical_nan(fmt: Format) -> int:
    """Return the NaN that arithmetic produces; in conversion-only formats, all bits except the sign are ones."""
    if fmt.canonical_nan is not None:
        return fmt.canonical_nan
    if fmt.nan == "none":
        return 0
    return (1 << (fmt.bits - 1)) - 1 if fmt.signed else (1 << fmt.bits) - 1


def decode(codes: Codes, name: str) -> Codes:
    """Return the exact values of codes as float64."""
    if name == "f64":
        return codes.view(np.float64)
    if name in {"f32", "tf32"}:
        return _widened(codes.view(np.float32))
    if name == "bf16":
        return _widened((codes.astype(np.uint32) << np.uint32(16)).view(np.float32))
    if name == "f16":
        return _widened(codes.view(np.float16))
    # the container byte may be wider than the format
    return _small_values(name)[codes & codes.dtype.type(FORMATS[name].codes - 1)]


def _widened(values: Codes) -> Codes:
    """Convert values to float64, suppressing NumPy's warning about signalling NaNs."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


_SMALL: dict[str, Codes] = {}


def _small_values(name: str) -> Codes:
    """Return the values of all codes of a format with at most 8 bits."""
    if name not in _SMALL:
        fmt = FORMATS[name]
        _SMALL[name] = np.array([float(fmt.decode(code)) for code in range(fmt.codes)])
    return _SMALL[name]


def exact_of(high: Codes, low: Codes | None = None) -> ExactNumbers:
    """Return high + low as exact numbers; `low` is at most half an ulp of `high`, and the sum is not zero."""
    bits = high.view(np.uint64)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64) - 1023
    significand = ((bits & FRACTION) | HIDDEN) << np.uint64(11)
    negative = np.signbit(high)
    if low is not None:
        inexact = low != 0
        below = inexact & (np.signbit(low) != negative)
        significand = np.where(below, significand - U1, significand | inexact)
        shrunk = significand < TOP
        significand = np.where(shrunk, significand << U1 | U1, significand)
        exponent = exponent - shrunk
    return ExactNumbers(negative, significand, exponent)


def encode(number: ExactNumbers, fmt: Format, mode: str, *, satfinite: bool = False) -> Codes:
    """Return the codes of nonzero exact numbers, rounded once, in mode rn, rna, rz, rm or rp.

    A result out of range is infinity, or the largest finite number in a mode that rounds it towards 0. With
    `satfinite`, it is the largest finite number. In a format without infinity, it is NaN if the code with all bits set
    is NaN, and otherwise the largest number.
    """
    emin = 1 - fmt.bias
    drop = 63 - fmt.fraction + np.maximum(0, emin - number.exponent)
    gone = drop > 64  # below half the smallest number, only the sticky bit matters
    significand = np.where(gone, U1, number.significand)
    drop = np.clip(drop, 1, 64).astype(np.uint64)
    kept = np.where(drop == U64, np.uint64(0), significand >> np.minimum(drop, U63))
    rest = np.where(drop == U64, significand, significand & ((U1 << np.minimum(drop, U63)) - U1))
    half = U1 << (drop - U1)
    up = _rounds_up(mode, number.negative, kept, rest, half)
    biased = np.minimum(np.maximum(number.exponent, emin) + fmt.bias, (1 << fmt.exponent) - (fmt.nan == "ieee"))
    # the hidden bit of `kept` adds one to the exponent field, and a carry adds one more
    magnitude = kept.astype(np.int64) + up + ((biased - 1) << fmt.fraction)
    limit = infinity(fmt)
    largest = limit - 1
    # the exponent is out of range, and adding it to the code could exceed 63 bits
    beyond = number.exponent + fmt.bias >= (1 << fmt.exponent) - (fmt.nan == "ieee")
    magnitude = np.where(beyond, limit, magnitude)
    if fmt.fraction == 0:  # ue8m0 codes are exponents, without a hidden bit to add
        magnitude = number.exponent + fmt.bias + up
        magnitude = np.maximum(magnitude, 0)
        limit, largest = 255, 254
    over = magnitude >= limit
    if satfinite or not fmt.infinity:
        outside = np.full(over.shape, largest, np.int64)
        if not satfinite and fmt.nan == "ones":
            outside = np.full(over.shape, canonical_nan(fmt), np.int64)
    else:
        towards: dict[str, Codes | bool] = {"rz": True, "rm": ~number.negative, "rp": number.negative}
        finite = towards.get(mode, False)
        outside = np.where(finite, largest, limit)
    magnitude = np.where(over, outside, magnitude)
    code = magnitude.astype(np.uint64)
    if fmt.signed:
        code |= number.negative.astype(np.uint64) << np.uint64(fmt.bits - 1 - fmt.unused)
    return (code << np.uint64(fmt.unused)).astype(container(fmt.bits))


def _rounds_up(mode: str, negative: Codes, kept: Codes, rest: Codes, half: Codes) -> Codes:
    """Return a mask of numbers to round away from 0; `rest` holds the dropped bits, and `half` is their midpoint."""
    if mode == "rn":
        return (rest > half) | ((rest == half) & ((kept & U1) == U1))
    if mode == "rna":
        return rest >= half
    if mode == "rz":
        return np.zeros(rest.shape, np.bool_)
    return (rest != 0) & (negative if mode == "rm" else ~negative)


def round_sum(high: Codes, low: Codes | None, fmt: Format, mode: str, *, satfinite: bool = False) -> Codes:
    """Return the codes of high + low, including zeros, infinities and NaNs."""
    codes = encode(exact_of(high, low), fmt, mode, satfinite=satfinite)
    sign = np.signbit(high).astype(codes.dtype) << codes.dtype.type(fmt.bits - 1) if fmt.signed else codes.dtype.type(0)
    codes = np.where(high == 0, sign, codes)
    infinite = np.isinf(high)
    if infinite.any():
        top = infinity(fmt) - (satfinite or not (fmt.infinity or fmt.nan == "ones"))
        if fmt.nan == "ones" and not satfinite:
            top = canonical_nan(fmt)
        codes = np.where(infinite, sign | codes.dtype.type(top << fmt.unused), codes)
    return np.where(np.isnan(high), codes.dtype.type(canonical_nan(fmt)), codes)


def two_sum(x: Codes, y: Codes) -> tuple[Codes, Codes]:
    """Return the float64 sum and its rounding error; both are exact unless the sum overflows."""
    high = x + y
    part = high - x
    low = (x - (high - part)) + (y - part)
    return high, np.where(np.isfinite(high), low, 0.0)


def sticky_round(high: Codes, low: Codes) -> Codes:
    """Round high + low to odd, so that rounding the result to a narrower format is the same as rounding the exact sum.

    If bits are lost, the last bit is set: it is sticky, as in hardware adders (Boldo and Melquiond).
    """
    bits = high.view(np.int64)
    even = (low != 0) & ((bits & 1) == 0)
    away = np.signbit(low) == np.signbit(high)
    return np.where(even, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def two_product(x: Codes, y: Codes) -> tuple[Codes, Codes]:
    """Return the float64 product and its error, which are exact without overflow or underflow (Veltkamp, Dekker)."""
    high = x * y
    x1, x2 = _halves(x)
    y1, y2 = _halves(y)
    return high, ((x1 * y1 - high) + x1 * y2 + x2 * y1) + x2 * y2


def _halves(x: Codes) -> tuple[Codes, Codes]:
    """Split a float64 into the upper 26 bits of its significand and the rest."""
    scaled = x * 134217729.0
    upper = scaled - (scaled - x)
    return upper, x - upper


# --- Python integers: slow, but exact for f64 in every mode


def parts(code: int) -> tuple[bool, int, int]:
    """Return a finite f64 code as sign, significand, and exponent of the significand's last bit."""
    exponent, fraction = code >> 52 & 0x7FF, code & ((1 << 52) - 1)
    return bool(code >> 63), fraction | (1 << 52 if exponent else 0), max(exponent, 1) - 1075


def scaled(numerator: int, exponent: int, *, inexact: bool = False) -> tuple[int, int]:
    """Return a positive integer times 2**exponent as a 64-bit significand with a sticky last bit, and its exponent."""
    size = numerator.bit_length()
    if size <= 64:
        return numerator << (64 - size) | inexact, exponent + size - 1
    shift = size - 64
    return numerator >> shift | bool(numerator & ((1 << shift) - 1) or inexact), exponent + size - 1


def exact_fma(a: int, b: int, c: int) -> tuple[bool, int, int]:
    """Return a * b + c for finite f64 codes as sign, significand and exponent."""
    (sa, ma, ea), (sb, mb, eb), (sc, mc, ec) = parts(a), parts(b), parts(c)
    product, low = (-1) ** (sa ^ sb) * ma * mb, ea + eb
    addend = -mc if sc else mc
    shift = low - ec
    total = (product << shift) + addend if shift >= 0 else product + (addend << -shift)
    exponent = ec if shift >= 0 else low
    return (total < 0, *scaled(abs(total), exponent)) if total else (False, 0, 0)


def exact_quotient(a: int, b: int) -> tuple[bool, int, int]:
    """Return a / b for finite f64 codes as sign, significand and exponent; b must not be zero."""
    (sa, ma, ea), (sb, mb, eb) = parts(a), parts(b)
    if ma == 0:
        return sa ^ sb, 0, 0
    quotient, rest = divmod(ma << 130, mb)
    return sa ^ sb, *scaled(quotient, ea - eb - 130, inexact=rest != 0)


def exact_root(a: int) -> tuple[bool, int, int]:
    """Return the square root of a positive, finite f64 code as sign, significand and exponent."""
    _, significand, exponent = parts(a)
    shift = 160 + (exponent & 1)
    root = isqrt(significand << shift)
    return False, *scaled(root, (exponent - shift) // 2, inexact=root * root != significand << shift)
