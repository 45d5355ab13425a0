"""Epilogues: the operations that a kernel applies to its accumulators before it stores them.

    x = fma(alpha, sum, beta * C)       in float32: beta * C is rounded, then the fma rounds once
    x = x + bias                        in float32, with one bias for each column
    D = x                               rounded to nearest even, to the format of the result

With alpha = beta = 1 the first line is one float32 addition. With beta = 0, C is not read, as in cuBLAS: even a NaN in
C does not change alpha * sum. A kernel with an epilogue starts its sums from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats import special_functions
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import code_dtype, natural_dtype
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS, format_name

Floats = NDArray[np.float32]
Codes = NDArray[Any]

RESULTS = ("f32", "f16", "bf16")
MAX_INTEGER = 2.0**53
"""The largest integer up to which float64 represents every integer exactly."""


@dataclass(frozen=True)
class Epilogue:
    """alpha * (A B) + beta * C + bias, rounded to `result`: f32, f16 or bf16.

    `alpha` and `beta` are rounded to float32, which must not make them infinite or zero; if `beta` is 0, C is not
    read. `bias` has one number for each column of D, each exact in float32.
    """

    alpha: float = 1.0
    beta: float = 1.0
    bias: ArrayLike | None = None
    result: str = "f32"

    def __post_init__(self) -> None:
        """Raise an error if a factor or the bias is not numeric, or the result format is unknown."""
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, check_factor(name, getattr(self, name)))
        object.__setattr__(self, "result", format_name(self.result, RESULTS, "result"))
        if self.bias is not None and float32_of(self.bias, "bias").ndim != 1:
            raise InvalidOperand(f"bias: expected one number per column, got shape {as_array(self.bias, 'bias').shape}")

    def _combine(self, sums: Floats, c: Floats | None) -> Floats:
        alpha = np.float32(self.alpha)
        if c is not None and self.beta != 0:
            return fma(alpha, sums, np.float32(self.beta) * c)
        return sums if alpha == 1 else alpha * sums

    @exact_floats
    def _finish(self, sums: Floats, c: Floats | None) -> Floats:
        with np.errstate(all="ignore"):
            values = self._combine(sums, c)
            return values if self.bias is None else values + float32_of(self.bias, "bias")


def finish(epilogue: Epilogue, sums: Floats, c: Floats | None) -> Floats:
    """Apply the epilogue to a kernel's sums, in float32: scale them, add C and the bias."""
    return epilogue._finish(sums, c)  # noqa: SLF001 (subclasses extend it; users have no sums)


def check_factor(name: str, number: Any) -> float:  # noqa: ANN401 (arrays of any library)
    """Return a factor, a real number in float32's range or an array of one such number; otherwise raise an error."""
    if hasattr(number, "shape") and not isinstance(number, np.generic):
        array = as_array(number, name)
        number = float(array.reshape(())) if array.size == 1 and array.dtype.kind in "fiuV" else number
    is_real = isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)
    if not is_real:
        raise InvalidOperand(f"{name}: expected a real number, got {quote(number)}")
    try:
        with np.errstate(all="ignore"):
            rounded = np.float32(number)
    except OverflowError:  # the integer is too large for any float
        rounded = np.float32(np.inf)
    is_lost = np.isinf(rounded) != (number in {np.inf, -np.inf}) or (rounded == 0) != (number == 0)
    if is_lost:
        raise InvalidOperand(f"{name}: expected a number in the range of float32, got {quote(number)}")
    return cast("float", number)


def float32_of(numbers: ArrayLike, label: str) -> Floats:
    """Return numbers as float32; raise an error if float32 cannot represent one exactly."""
    array = as_array(numbers, label)
    if array.dtype.kind not in "biuf" and not hasattr(ml_dtypes, array.dtype.name):
        raise InvalidOperand(f"{label}: expected real numbers, got dtype {array.dtype}")
    with np.errstate(all="ignore"):
        floats = array.astype(np.float32)
        if array.dtype.kind in "iu":  # values that are too large may saturate when they are converted back to integers
            exact = (floats.astype(np.float64) == array.astype(np.float64)) & (np.abs(floats) <= MAX_INTEGER)
        else:
            exact = (floats.astype(array.dtype) == array) | (array != array)  # noqa: PLR0124 (NaN, of any dtype)
    if not np.all(exact):
        first = array[~exact].flat[0]
        raise InvalidOperand(f"{label}: expected numbers that are exact in float32, got {first}; round them first")
    return floats


@exact_floats
def fma(x: Floats | np.float32, y: Floats, z: Floats) -> Floats:
    """Return the float32 value x * y + z, rounded once.

    The product is exact in float64, but the sum is not. It is rounded to odd (with a sticky last bit), so that rounding
    it again to float32 gives the same result as a single rounding.
    """
    product = np.float64(x) * np.float64(y)
    total = np.asarray(product + np.float64(z))
    back = total - product
    error = (product - (total - back)) + (np.float64(z) - back)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    sticky = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    return sticky.view(np.float64).astype(np.float32)


def tanh(x: Floats) -> Floats:
    """Return the result of tanh.approx.f32 for each number."""
    return special_functions.tanh(x.view(np.uint32)).astype(np.uint32).view(np.float32)


@exact_floats
def convert(source: str, codes: Codes, target: str) -> Codes:
    """Round accumulators to the result format as `cvt.rn` does: to nearest even, with a canonical NaN."""
    if source == target:
        return codes
    values = codes.view(np.float16 if source == "f16" else np.float32)
    with np.errstate(all="ignore"):
        narrow = values.astype(natural_dtype(FORMATS[target]))
    rounded: Codes = narrow.view(code_dtype(FORMATS[target]))
    return np.where(np.isnan(values), rounded.dtype.type(CANONICAL_NANS[target]), rounded)
