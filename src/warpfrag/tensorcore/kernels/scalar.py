"""One step of one output, from codes, with every special value, for outputs that the vector loops do not cover.

The same rule as `warpfrag.tensorcore.reference`, in machine integers: no term reaches 2**63.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.tensorcore.encodings import TO_E8M13_RZ, TO_F16_RN
from warpfrag.tensorcore.kernels.constants import ANY_NAN_SCALE, IS_F16, Constants, Encoding
from warpfrag.tensorcore.kernels.jit import Array, Flag, Float, Int, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f32, bits_of_f64, f32_of_bits, f64_of_bits

FINITE = 0
INFINITE = 1
NOT_A_NUMBER = 2


@inner
def unpack(code: Int, encoding: Encoding) -> tuple[Int, Int, Int]:
    """Return the class, exponent, and signed significand (in units of 2**-fraction) of an operand code.

    Of an infinity or a NaN the significand has the sign, and no other meaning.
    """
    wide = np.int64(code)
    negative = (wide >> encoding.sign_place) & 1
    magnitude = (wide & ((np.int64(1) << encoding.sign_place) - 1)) >> encoding.unused
    if magnitude >= encoding.special_from:
        kind = INFINITE if magnitude == encoding.infinity else NOT_A_NUMBER
        return kind, 0, -1 if negative else 1
    field = magnitude >> encoding.fraction
    significand = magnitude & ((np.int64(1) << encoding.fraction) - 1)
    if field > 0:
        significand |= np.int64(1) << encoding.fraction
    exponent = max(field, 1) - encoding.bias
    return FINITE, exponent, -significand if negative else significand


@inner
def exponent_of(value: Float, minimum: Int) -> Int:
    """Return the exponent of a finite float64 that is not 0, at least `minimum`."""
    return max(((bits_of_f64(value) >> 52) & 2047) - 1023, minimum)


@inner
def power_of_two(exponent: Int) -> Float:
    """Return 2**exponent, for exponents of float64's normal range; undefined for others."""
    return f64_of_bits(np.int64(exponent + 1023) << 52)


class Dot(NamedTuple):
    """The terms of one output in one step: elements `places` of A's row, elements `rows` of B's column, and a scale."""

    a: Array
    b: Array
    places: Array
    rows: Array
    scale: Int


@inner
def common_exponent(dot: Dot, constants: Constants) -> tuple[Int, Flag, Flag, Flag]:
    """Return the largest product exponent, at least `zero_exponent`; then flags for a NaN, +infinity and -infinity."""
    common = constants.zero_exponent
    nan = plus = minus = False
    for place in range(dot.places.size):
        kind_a, exponent_a, significand_a = unpack(dot.a[dot.places[place]], constants.a)
        kind_b, exponent_b, significand_b = unpack(dot.b[dot.rows[place]], constants.b)
        either_zero = significand_a == 0 or significand_b == 0
        if kind_a == FINITE and kind_b == FINITE:
            if not either_zero:
                common = max(common, exponent_a + exponent_b + dot.scale)
        elif max(kind_a, kind_b) == NOT_A_NUMBER or either_zero:
            nan = True
        elif (significand_a < 0) == (significand_b < 0):
            plus = True
        else:
            minus = True
    return common, nan, plus, minus


@inner
def shifted(product: Int, shift: Int) -> Int:
    """Return product * 2**shift, truncated towards zero."""
    if shift >= 0:
        return product << min(shift, 62) if product != 0 else product
    magnitude = abs(product) >> min(-shift, 63)
    return magnitude if product >= 0 else -magnitude


@inner
def fused_step(accumulator: Float, dot: Dot, constants: Constants) -> Float:
    """Compute one truncated fused dot-product-add."""
    common, nan, plus, minus = common_exponent(dot, constants)
    plus = plus or accumulator == np.inf
    minus = minus or accumulator == -np.inf
    if nan or np.isnan(accumulator) or dot.scale >= ANY_NAN_SCALE or (plus and minus):
        return np.nan
    if plus or minus:
        return np.inf if plus else -np.inf
    if accumulator != 0.0:
        common = max(common, exponent_of(accumulator, constants.c_emin))
    keep = constants.fraction_bits
    total = np.int64(accumulator * power_of_two(keep - common))
    point = constants.a.fraction + constants.b.fraction
    for place in range(dot.places.size):
        _kind, exponent_a, significand_a = unpack(dot.a[dot.places[place]], constants.a)
        _kind, exponent_b, significand_b = unpack(dot.b[dot.rows[place]], constants.b)
        shift = exponent_a + exponent_b + dot.scale - common + keep - point
        total += shifted(significand_a * significand_b, shift)
    return round_step(np.float64(total) * power_of_two(common - keep), constants.round_to)


NAN_F32 = np.uint32(CANONICAL_NANS["f32"])
NAN_F16 = np.uint32(CANONICAL_NANS["f16"])
OVERFLOW_F32 = 2.0**128
OVERFLOW_F16 = 65536.0  # what 65520 and above round to on the unbounded grid
SMALLEST_NORMAL_F32 = 2.0**-126


@inner
def round_f16(exact: Float) -> Float:
    """Return the nearest f16 value, ties to even, as float64; infinity from 65520 on; zeros keep their sign.

    Adding and taking away 1.5 * 2**52 ulps of the target makes float64 itself do the rounding.
    """
    if not abs(exact) < np.inf:
        return exact
    exponent = ((bits_of_f64(exact) >> 52) & 2047) - 1023
    exponent = max(exponent, -14)
    shift = f64_of_bits(np.int64((exponent + 42 + 1023) << 52) | np.int64(1 << 51))
    rounded = (exact + shift) - shift
    if abs(rounded) >= OVERFLOW_F16:
        return np.inf if rounded > 0 else -np.inf
    if rounded == 0.0:
        return -0.0 if bits_of_f64(exact) < 0 else 0.0
    return rounded


@inner
def truncate_f32(exact: Float, fraction: Int) -> Float:
    """Truncate to `fraction` bits after the leading one, or to the subnormal grid; 2**128 is an infinity."""
    if abs(exact) < SMALLEST_NORMAL_F32:
        grid = f64_of_bits(np.int64((126 + fraction + 1023) << 52))
        kept = np.float64(np.int64(exact * grid)) / grid
    else:
        kept = f64_of_bits(bits_of_f64(exact) & np.int64(-(1 << (52 - fraction))))
    if abs(kept) >= OVERFLOW_F32:
        return np.inf if kept > 0 else -np.inf
    return kept + 0.0


@inner
def round_step(exact: Float, rounding: Int) -> Float:
    """Apply the rounding that ends a step."""
    if rounding == TO_F16_RN:
        return round_f16(exact) + 0.0
    return truncate_f32(exact, 13 if rounding == TO_E8M13_RZ else 23)


@inner
def read_accumulator(code: Int, accumulator: Int) -> Float:
    """Return the value of an f32 or f16 code, as float32, which holds both exactly."""
    if accumulator != IS_F16:
        return f32_of_bits(np.int32(code))
    sign = np.int32((code >> 15) << 31)
    magnitude = np.int32(code & 0x7FFF)
    if magnitude >= 0x7C00:
        return f32_of_bits(sign | np.int32(0x7F800000) | np.int32((magnitude & 0x3FF) << 13))
    if magnitude < 0x400:
        value = np.float32(magnitude) * np.float32(2.0**-24)
        return f32_of_bits(sign | bits_of_f32(value))
    return f32_of_bits(sign | np.int32((magnitude << 13) + (112 << 23)))


@inner
def write_accumulator(value: Float, accumulator: Int) -> Int:
    """Return the f32 or f16 code of a value, rounded to nearest if f16 cannot hold it; NaNs become canonical."""
    if np.isnan(value):
        return NAN_F16 if accumulator == IS_F16 else NAN_F32
    if accumulator != IS_F16:
        return np.uint32(bits_of_f32(value))
    bits = bits_of_f32(np.float32(round_f16(np.float64(value))))
    sign = np.uint32((bits >> 16) & 0x8000)
    magnitude = np.int32(bits & 0x7FFFFFFF)
    if magnitude >= 0x7F800000:
        return sign | np.uint32(0x7C00)
    if magnitude < (113 << 23):
        return sign | np.uint32(f32_of_bits(magnitude) * np.float32(2.0**24))
    return sign | np.uint32((magnitude - (112 << 23)) >> 13)
