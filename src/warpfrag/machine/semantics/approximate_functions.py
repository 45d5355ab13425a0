"""Functions that the hardware approximates: ex2, rcp, rsqrt, sqrt, lg2, sin, cos, tanh, and division by rcp.

The special function unit computes each function with a small error, and flushes subnormal inputs and results to zero
(`special_functions`). Instructions without .ftz are short sequences around the unit, as ptxas generates them for sm_90:
scale a subnormal input up, call the unit, scale the result back. All of them match sm_90 bit for bit; on other
architectures, their evidence is "approximate".
"""

from collections.abc import Callable

import numpy as np

from warpfrag.formats import special_functions
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS
from warpfrag.machine.ir.scalar_types import Codes
from warpfrag.machine.semantics.conversions import float_to_float
from warpfrag.machine.semantics.floats import FloatModifiers, add, fma, is_nan, magnitude_of, multiply, negate, sign_of
from warpfrag.machine.semantics.ptx_rounding import decode, infinity

PLAIN, FTZ, TRUNCATED = FloatModifiers(), FloatModifiers(ftz=True), FloatModifiers("rz")
SMALLEST_NORMAL = np.uint32(0x00800000)
TWO_TO_126 = np.uint32(0x7E800000)
INFINITY, NAN_OF_NEGATIVE = np.uint64(0x7FF0000000000000), np.uint64(CANONICAL_NANS["f64"])


def constant(like: Codes, value: float) -> Codes:
    """Return an array with the shape and dtype of `like` and a float constant's code in every lane."""
    kind = np.float32 if like.dtype == np.uint32 else np.float64
    return np.full(like.shape, kind(value).view(like.dtype), like.dtype)


def rescaled(function: Callable[[Codes], Codes], a: Codes, back: Callable[[Codes], Codes]) -> Codes:
    """Apply `function` to inputs whose subnormals are scaled up by 2**24; `back` undoes the scaling in the results."""
    tiny = magnitude_of(a) < SMALLEST_NORMAL
    normal: Codes = np.where(tiny, multiply("f32", PLAIN, a, constant(a, 2.0**24)), a)
    result = function(normal)
    return np.where(tiny, back(result), result)


def ex2(a: Codes, *, ftz: bool) -> Codes:
    """Return 2 to the power of a; without ftz, an input below -126 is halved and the result is squared."""
    if ftz:
        return special_functions.ex2(a)
    values = a.view(np.float32)
    low = values < np.float32(-126)
    result = special_functions.ex2(np.where(low, multiply("f32", PLAIN, a, constant(a, 0.5)), a))
    return np.where(low, multiply("f32", PLAIN, result, result), result)


def rcp(a: Codes, *, ftz: bool) -> Codes:
    """Return 1 / a; without ftz, very large and very small inputs are scaled, and the results are scaled back."""
    if ftz:
        return special_functions.rcp(a)
    size = magnitude_of(a)
    factor: Codes = np.where(size < SMALLEST_NORMAL, constant(a, 2.0**24), constant(a, 1.0))
    factor = np.where((size > TWO_TO_126) & (size <= 0x7F800000), constant(a, 0.25), factor)
    return multiply("f32", PLAIN, factor, special_functions.rcp(multiply("f32", PLAIN, a, factor)))


def rsqrt(a: Codes, *, ftz: bool) -> Codes:
    """Return 1 / sqrt(a); without ftz, a subnormal input is scaled up and the result is scaled back."""
    if ftz:
        return special_functions.rsqrt(a)
    return rescaled(special_functions.rsqrt, a, lambda d: multiply("f32", PLAIN, d, constant(d, 4096.0)))


def sqrt(a: Codes, *, ftz: bool) -> Codes:
    """Return the square root of a; without ftz, a subnormal input is scaled up and the result is scaled back."""
    if ftz:
        return special_functions.sqrt(a)
    return rescaled(special_functions.sqrt, a, lambda d: multiply("f32", PLAIN, d, constant(d, 2.0**-12)))


def lg2(a: Codes, *, ftz: bool) -> Codes:
    """Return the base-2 logarithm of a; without ftz, a subnormal input is scaled by 2**24, and 24 is subtracted."""
    if ftz:
        return special_functions.lg2(a)
    return rescaled(special_functions.lg2, a, lambda d: add("f32", PLAIN, d, constant(d, -24.0)))


def sin(a: Codes, *, ftz: bool) -> Codes:
    """Return the sine of a; ftz has no effect, because subnormal inputs give a fixed-point angle of zero."""
    del ftz
    return special_functions.sin(multiply("f32", TRUNCATED, a, constant(a, special_functions.TURNS)))


def cos(a: Codes, *, ftz: bool) -> Codes:
    """Return the cosine of a; ftz has no effect, for the same reason as in `sin`."""
    del ftz
    return special_functions.cos(multiply("f32", TRUNCATED, a, constant(a, special_functions.TURNS)))


def tanh(a: Codes, *, ftz: bool) -> Codes:
    """Return the hyperbolic tangent of a; subnormals are kept."""
    del ftz
    return special_functions.tanh(a)


def narrow(function: Callable[[Codes], Codes], name: str, a: Codes) -> Codes:
    """Apply an f32 function to f16 or bf16 codes and truncate the result; values beyond the range become infinite."""
    result = function(float_to_float(a, name, "f32", PLAIN))
    codes = float_to_float(result, "f32", name, TRUNCATED)
    beyond = decode(result, "f32") >= 2.0 ** (FORMATS[name].bias + 1)
    return np.where(beyond, codes.dtype.type(infinity(FORMATS[name])), codes)


def upper(function: Callable[[Codes, special_functions.FloatEncoding], Codes], a: Codes) -> Codes:
    """Apply `function` to the upper halves of f64 codes, and set the lower halves of the results to zero."""
    return function((a >> np.uint64(32)).astype(np.uint32), special_functions.UPPER).astype(np.uint64) << np.uint64(32)


def rsqrt64(a: Codes, *, ftz: bool) -> Codes:
    """Return 1 / sqrt(a) for f64; without ftz, an estimate is refined, and a subnormal input is scaled by 2**54."""
    if ftz:
        return upper(special_functions.rsqrt, a)
    zero, negative = magnitude_of(a) == 0, sign_of(a) != 0
    special = zero | negative | (a >= INFINITY)
    tiny = ~special & (a < np.uint64(1 << 52))
    normal: Codes = np.where(tiny, multiply("f64", PLAIN, a, constant(a, 2.0**54)), a)
    normal = np.where(special, constant(a, 1.0), normal)
    guess = upper(special_functions.rsqrt, normal)
    rest = fma("f64", PLAIN, normal, negate(multiply("f64", PLAIN, guess, guess)), constant(a, 1.0))
    slope = fma("f64", PLAIN, rest, constant(a, 0.375), constant(a, 0.5))
    result = fma("f64", PLAIN, slope, multiply("f64", PLAIN, guess, rest), guess)
    result = np.where(tiny, multiply("f64", PLAIN, result, constant(a, 2.0**27)), result)
    result = np.where(a == INFINITY, np.uint64(0), np.where(negative, NAN_OF_NEGATIVE, result))
    result = np.where(zero, sign_of(a) | INFINITY, result)
    return np.where(is_nan(a, "f64"), add("f64", PLAIN, a, a), result)


def divide(a: Codes, b: Codes, *, full: bool, ftz: bool) -> Codes:
    """Return a / b, computed as a times the approximate 1 / b of the special-function unit."""
    return multiply("f32", FTZ if ftz else PLAIN, *quotient_factors(a, b, full=full, ftz=ftz))


def quotient_factors(a: Codes, b: Codes, *, full: bool, ftz: bool) -> tuple[Codes, Codes]:
    """Return the unit's 1 / b, and a; if b is large (.full) or subnormal (no ftz), both operands are scaled first."""
    style = FTZ if ftz else PLAIN
    size = magnitude_of(b)
    if full:
        large = (size > TWO_TO_126) & (size <= 0x7F800000)
        a, b = (np.where(large, multiply("f32", style, v, constant(v, 0.25)), v) for v in (a, b))
    if not ftz:
        tiny = size < SMALLEST_NORMAL
        a, b = (np.where(tiny, multiply("f32", style, v, constant(v, 2.0**24)), v) for v in (a, b))
    return special_functions.rcp(b), a
