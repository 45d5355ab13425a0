"""The roundings that end a step, on an exact sum held in float64, and the codes of accumulators."""

from __future__ import annotations

import numpy as np

from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.tensorcore.encodings import TO_E8M13_RZ, TO_F16_RN
from warpfrag.tensorcore.kernels.constants import IS_F16
from warpfrag.tensorcore.kernels.jit import Float, Int, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f32, bits_of_f64, f32_of_bits, f64_of_bits

NAN_F32 = np.uint32(CANONICAL_NANS["f32"])
NAN_F16 = np.uint32(CANONICAL_NANS["f16"])
OVERFLOW_F32 = 2.0**128
OVERFLOW_F16 = 65536.0  # what 65520 and above round to on the unbounded grid
SMALLEST_NORMAL_F32 = 2.0**-126


@inner
def round_f16(exact: Float) -> Float:
    """The nearest f16 value, ties to even, as float64; anything from 65520 on is an infinity; zeros keep their sign.

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
    """The rounding that ends a step."""
    if rounding == TO_F16_RN:
        return round_f16(exact) + 0.0
    return truncate_f32(exact, 13 if rounding == TO_E8M13_RZ else 23)


@inner
def read_accumulator(code: Int, accumulator: Int) -> Float:
    """The value of an f32 or f16 code, as float32, which holds both exactly."""
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
    """The f32 or f16 code of a value, rounded to nearest where f16 cannot hold it; every NaN is the canonical one."""
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
