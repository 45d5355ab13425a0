"""Random codes for tests, in several distributions from arbitrary bits to special values.

With uniformly random bits most f16 products are infinite or NaN, so each class has its own distribution of codes:

    bits      any bit pattern
    finite    any finite value
    narrow    exponents within 2 of zero, so that terms overlap when they are aligned
    wide      exponents within 20 of zero
    special   mostly narrow, with zeros of both signs, subnormals, largest values, infinities and NaNs
    tiny      subnormal and nearly subnormal values
    extreme   integers: mostly the smallest and the largest, and for s32 values near these limits
    plain     easy to read: normally distributed floats, scales that are powers of two near 1, and integers of any size
              (s32: at most 1000 in magnitude)
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes
from warpfrag.formats.codes import to_codes
from warpfrag.formats.number_formats import Format

FLOAT_CLASSES = ("bits", "finite", "narrow", "wide", "special", "tiny")
INTEGER_CLASSES = ("bits", "extreme")


def random_codes(
    number_format: Format, kind: str, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.uint64]:
    """Return random codes of any class but `bits`, for which `random_bytes` is used.

    For integers, the class is `plain` or `extreme`.
    """
    if kind == "plain":
        return _plain(number_format, shape, random)
    if not number_format.is_float:
        return _extreme_integers(number_format, shape, random)
    top = (1 << number_format.exponent) - 1  # the exponent of infinities, or of the largest values
    last = top - 1 if number_format.nan == "ieee" else top
    ranges: Mapping[str, tuple[int, int]] = {
        "finite": (0, last),
        "narrow": (number_format.bias - 2, number_format.bias + 2),
        "wide": (number_format.bias - 20, number_format.bias + 20),
        "special": (number_format.bias - 2, number_format.bias + 2),
        "tiny": (0, 2),
    }
    low, high = ranges[kind]
    exponent = random.integers(max(low, 0), min(high, last), shape, dtype=np.uint64, endpoint=True)
    fraction = random.integers(0, 1 << number_format.fraction, shape, dtype=np.uint64)
    magnitude = (exponent << np.uint64(number_format.fraction)) | fraction
    if number_format.nan == "ones":  # the code with all bits set is the NaN
        magnitude = np.minimum(magnitude, np.uint64((1 << (number_format.exponent + number_format.fraction)) - 2))
    if kind == "special":
        chosen = random.choice(_specials(number_format), shape)
        magnitude = np.where(random.random(shape) < 0.2, chosen, magnitude)
    codes = magnitude << np.uint64(number_format.unused)
    if number_format.unused:  # unused bits must not affect the result
        codes |= random.integers(0, 1 << number_format.unused, shape, dtype=np.uint64)
    if number_format.signed:
        codes |= random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(number_format.bits - 1)
    return codes


def _plain(number_format: Format, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.uint64]:
    if not number_format.is_float:
        low, high = (int(number_format.min), int(number_format.max)) if number_format.bits < 32 else (-1000, 1000)
        return to_codes(number_format, random.integers(low, high + 1, shape)).astype(np.uint64)
    values = random.standard_normal(shape)
    if not number_format.signed:
        values = np.exp2(random.integers(-2, 3, shape).astype(float))
    return to_codes(number_format, values, rounding="rne").astype(np.uint64)


def _specials(number_format: Format) -> NDArray[np.uint64]:
    """Return the special magnitudes without unused bits: zero, subnormals, the largest value, infinity, NaNs."""
    infinity = ((1 << number_format.exponent) - 1) << number_format.fraction
    largest = number_format.encode(float(number_format.max)) >> number_format.unused
    magnitudes = [0, 1, (1 << number_format.fraction) - 1, 1 << number_format.fraction, largest]
    if number_format.infinity:
        magnitudes += [infinity, infinity | 1, infinity | (1 << max(0, number_format.fraction - 1))]
    elif number_format.nan_code is not None:
        magnitudes.append(number_format.nan_code)
    return np.array(magnitudes, np.uint64)


def _extreme_integers(number_format: Format, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.uint64]:
    codes = random.integers(0, number_format.codes, shape, dtype=np.uint64)
    ends = np.array([int(number_format.min) % number_format.codes, int(number_format.max)], np.uint64)
    near = random.choice(ends, shape)
    if number_format.bits >= 32:  # choose C within a few thousand of the limits, so that sums overflow
        near = (near + random.integers(-4096, 4097, shape).astype(np.uint64)) & np.uint64(number_format.codes - 1)
    return np.where(random.random(shape) < 0.8, near, codes)


def random_bytes(number_format: Format, kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Bytes:
    """Return bytes that contain packed codes of one class; the last axis counts bytes."""
    if kind == "bits" or number_format.bits < 8:
        return random.integers(0, 256, shape, dtype=np.uint8)
    size = number_format.bits // 8
    codes = random_codes(number_format, kind, (*shape[:-1], shape[-1] // size), random)
    return codes.astype(f"<u{size}").view(np.uint8)
