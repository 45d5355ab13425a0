"""Quantize numbers to a narrow format with scale factors; each number is rounded once.

    quantize(A, "e4m3", scale="ue8m0", block=32)     mxfp8 (e4m3, e5m2), mxfp6 (e3m2, e2m3), mxfp4 (e2m1)
    quantize(A, "e2m1", scale="ue4m3", block=16)     nvfp4, without the scale of the whole tensor
    quantize(A, "e4m3")                              one float32 scale for all: fp8, s8, s4

The scale of a block is

    ue8m0    the power of two at or below the block's largest magnitude, divided by the one at or below the format's
             largest value (OCP MX 1.0, 6.3)
    others   the block's largest magnitude divided by the format's largest value, rounded to nearest even

and an element is its value divided by the scale, rounded to nearest even and clamped to the format's largest value.

Libraries choose powers of two in several ways. If m is the block's largest magnitude, and 2**p the largest power of two
in the format:

    floor    2**(floor(log2(m)) - p), as in the OCP document; values above the format's largest are clamped
    ceil     2**(ceil(log2(m)) - p)
    even     floor, after m is rounded to the precision of an element
    rceil    2**ceil(log2(m / the format's largest value)), the smallest power that clamps nothing, as in cuBLAS
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, check_flag, check_name, quote
from warpfrag.formats.arrays import Array, Doubles, as_array, as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS, Format, format_name

SCALES = ("ue8m0", "ue4m3", "f32")
SCALE_ROUNDINGS = ("floor", "ceil", "even", "rceil")
NONFINITE = ("refuse", "nan")
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "s4")


def quantize(
    A: ArrayLike,
    number_format: str,
    *,
    scale: str = "f32",
    block: int | None = None,
    axis: int = -1,
    raw: bool = False,
    scale_rounding: str = "floor",
    nonfinite: str = "refuse",
) -> tuple[Array, Array]:
    """Quantize A: return narrow elements and scale factors; elements * scales approximates A.

    A block is `block` adjacent elements along `axis`, which is k: the last axis of A, or the second to last of B. The
    last block may be shorter. Without `block` there is one scale for all of A. Both arrays have the natural dtypes of
    their formats, as `wf.gemm` takes them, or hold unsigned codes with `raw`. A block of zeros has the smallest scale
    of the format, or 1 for f32.

    `scale_rounding` is for ue8m0: floor, ceil, even or rceil, as described in the module's docstring. Infinity and NaN
    are rejected unless nonfinite="nan": then the ue8m0 scale of their block is NaN, which makes the whole block NaN;
    its elements are NaN if the format has a NaN, else zero.
    """
    number_format = format_name(number_format, [*ELEMENTS], "number_format")
    scale = format_name(scale, SCALES, "scale")
    check_name("scale_rounding", scale_rounding, SCALE_ROUNDINGS)
    check_name("nonfinite", nonfinite, NONFINITE)
    for name, value, default in (("scale_rounding", scale_rounding, "floor"), ("nonfinite", nonfinite, "refuse")):
        if scale != "ue8m0" and value != default:
            raise InvalidOperand(f"{name}: {value} requires ue8m0 scales, got {scale}")
    fmt, scales = FORMATS[number_format], FORMATS[scale]
    if scale == "ue8m0" and not fmt.is_float:
        raise InvalidOperand(f"scale: ue8m0 needs a float format, got {number_format}; use f32")
    numbers = _numbers(A, may_be_nan=nonfinite == "nan")
    along = _check_axis(axis, numbers.ndim)
    if block is None:
        blocks = numbers.reshape(1, -1)
    else:
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise InvalidOperand(f"block must be a positive integer, or None for a single scale; got {quote(block)}")
        if numbers.ndim == 0:
            raise InvalidOperand("A: expected an array, got a single number, which has no blocks")
        last = np.moveaxis(numbers, along, -1)
        missing = -last.shape[-1] % min(block, max(last.shape[-1], 1))
        block = min(block, max(last.shape[-1], 1))
        padded = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, missing)])
        blocks = padded.reshape(-1, block)
    is_nan = np.asarray(~np.isfinite(blocks).all(axis=1))
    blocks = np.where(is_nan[:, None], 0.0, blocks)
    factors = _scales(fmt, scales, np.abs(blocks).max(axis=1, initial=0.0), scale_rounding)
    codes = _elements(fmt, blocks, _table(scale)[factors] if scale != "f32" else _values_f32(factors))
    if is_nan.any():
        factors[is_nan] = scales.nan_code
        codes[is_nan] = fmt.nan_code or 0
    if block is None:
        elements, factors = codes.reshape(numbers.shape), factors.reshape(())
    else:
        elements = np.moveaxis(codes.reshape(padded.shape)[..., : last.shape[-1]], -1, along)
        factors = np.moveaxis(factors.reshape(*padded.shape[:-1], padded.shape[-1] // block), -1, along)
    elements, factors = np.ascontiguousarray(elements), np.ascontiguousarray(factors).reshape(factors.shape)
    if check_flag("raw", raw):
        return elements, factors
    return from_codes(fmt, elements), from_codes(scales, factors)


def _check_axis(axis: object, dimensions: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -max(dimensions, 1) <= axis < max(dimensions, 1):
        raise InvalidOperand(f"axis must be in {-max(dimensions, 1)}..{max(dimensions, 1) - 1}, got {quote(axis)}")
    return axis


def _numbers(A: ArrayLike, *, may_be_nan: bool) -> Doubles:
    """Return A as float64; raise InvalidOperand if this would round a value."""
    import ml_dtypes

    array = as_array(A, "A")
    is_real = array.dtype.kind in "biuf" or hasattr(ml_dtypes, array.dtype.name)
    if not is_real or array.dtype.itemsize > 8:
        raise InvalidOperand(f"A: expected real numbers that float64 can represent, got dtype {array.dtype}")
    numbers = as_doubles(array)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4 and np.any(abs(array.astype(object)) > 1 << 53):
        raise InvalidOperand(f"A: expected integers up to 2**53, got {abs(array.astype(object)).max()}")
    if not may_be_nan and not np.isfinite(numbers).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(numbers))[0])
        raise InvalidOperand(f"A: element {place} is {numbers[place]}: its block has no scale; expected finite values")
    return numbers


@cache
def _table(name: str) -> Doubles:
    """Return the finite magnitudes that a format represents, in ascending order."""
    fmt = FORMATS[name]
    values = np.array([float(fmt.decode(code)) for code in range(fmt.encode(fmt.max) + 1)])
    values.setflags(write=False)
    return values


def _values_f32(codes: NDArray[Any]) -> Doubles:
    return codes.astype(np.uint32).view(np.float32).astype(np.float64)


@exact_floats
def _scales(fmt: Format, scales: Format, largest: Doubles, rounding: str) -> NDArray[Any]:
    """Return the code of each block's scale."""
    largest_value = float(fmt.max)
    if scales.name == "ue8m0":
        fraction, power = np.frexp(largest)  # the fraction is in [0.5, 1)
        max_fraction, max_power = np.frexp(largest_value)
        carries = {
            "floor": np.zeros(fraction.shape, bool),
            "ceil": fraction > 0.5,
            "even": fraction >= 1 - 0.25 * 0.5**fmt.fraction,  # halfway to the next power of two, or above
            "rceil": fraction > max_fraction,
        }[rounding]
        exponent = power - max_power + carries
        exponent = np.where(largest == 0, -scales.bias, np.clip(exponent, -scales.bias, scales.bias))
        return (exponent + scales.bias).astype(np.uint8)
    if scales.name == "ue4m3":
        return _nearest(largest, np.full_like(largest, largest_value), _table("ue4m3")).astype(np.uint8)
    codes = [_code_f32(value, largest_value) for value in largest.tolist()]
    return np.array(codes, np.uint32).reshape(largest.shape)


@cache
def _code_f32(largest: float, largest_value: float) -> int:
    """Return the float32 code nearest to largest / largest_value; a quotient of 0 or infinity becomes finite, not 0."""
    f32 = FORMATS["f32"]
    if largest == 0:
        return f32.encode(1.0)
    code = f32.encode(Fraction(largest) / Fraction(largest_value), rounding="rne")
    return min(max(code, 1), f32.encode(f32.max))


def _elements(fmt: Format, blocks: Doubles, scale: Doubles) -> NDArray[Any]:
    """Return the code of each element; a zero scale, which only (nearly) zero blocks have, gives zeros."""
    if fmt.is_float:
        magnitude = _nearest(np.abs(blocks), scale[:, None], _table(fmt.name))
        return np.where(np.signbit(blocks), magnitude | fmt.sign_bit, magnitude).astype(np.uint8)
    magnitude = _nearest(np.abs(blocks), scale[:, None], np.arange(float(fmt.max) + 1))
    signed = np.where(np.signbit(blocks), -magnitude, magnitude)
    return (signed & (fmt.codes - 1)).astype(np.uint8)


@exact_floats
def _nearest(numbers: Doubles, scale: Doubles, grid: Doubles) -> NDArray[np.int64]:
    """Return the index in `grid` nearest to numbers / scale, with ties to even, clamped to the last index.

    The rounded quotient is only a first guess. A halfway point times a scale of at most 24 bits is exact in float64, so
    comparing `numbers` with these products gives the exact answer.
    """
    halfway = (grid[1:] + grid[:-1]) / 2
    with np.errstate(all="ignore"):
        quotient = np.where(scale > 0, numbers / scale, 0.0)
    place = np.searchsorted(halfway, quotient).astype(np.int64)
    lower = halfway[np.maximum(place - 1, 0)] * scale
    upper = halfway[np.minimum(place, len(halfway) - 1)] * scale
    last_bit = (place & 1) == 1
    down = (place > 0) & (scale > 0) & ((numbers < lower) | ((numbers == lower) & last_bit))
    up = (place < len(halfway)) & (scale > 0) & ((numbers > upper) | ((numbers == upper) & last_bit))
    return np.where(down, place - 1, np.where(up, place + 1, place))
