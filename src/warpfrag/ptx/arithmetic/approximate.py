"""The functions that hardware approximates: ex2, rcp, rsqrt, sqrt, lg2, sin, cos, tanh, and the divisions over rcp.

The special function unit gives each with a small error, its inputs and results flushed to zero (`unit`). Instructions
without .ftz are short sequences around it, read from the code that ptxas makes for sm_90: scale a subnormal input up,
call the unit, scale back. rcp, rsqrt, sqrt, ex2 and lg2 are those of sm_90, to the last bit; sin, cos and tanh are the
correctly rounded values, so their rows say "approximate", as all do for another architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.formats import FORMATS
from warpfrag.ptx.arithmetic.floats import Style, add, flush, magnitude_of, multiply
from warpfrag.ptx.arithmetic.rounding import round_sum
from warpfrag.ptx.arithmetic.unit import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.types import Codes


PLAIN, FTZ = Style(), Style(ftz=True)
UNIT: dict[str, Callable[[Codes], Codes]] = {
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
SMALLEST_NORMAL = np.uint32(0x00800000)
TWO_TO_126 = np.uint32(0x7E800000)


def constant(like: Codes, value: float) -> Codes:
    """A float32 in every lane."""
    return np.full(like.shape, np.float32(value).view(np.uint32), np.uint32)


def unit(function: str, a: Codes) -> Codes:
    """What the special function unit gives."""
    if function in EXACT:
        return EXACT[function](a)
    values = flush(a, "f32").view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        return flush(round_sum(UNIT[function](values), None, FORMATS["f32"], "rn"), "f32")


def scaled(function: str, a: Codes, back: Callable[[Codes], Codes]) -> Codes:
    """The unit on a subnormal input scaled up by 2**24, and its result scaled `back`."""
    tiny = magnitude_of(a) < SMALLEST_NORMAL
    given: Codes = np.where(tiny, multiply("f32", PLAIN, a, constant(a, 2.0**24)), a)
    found = unit(function, given)
    return np.where(tiny, back(found), found)


def ex2(a: Codes, *, ftz: bool) -> Codes:
    """2 to the power of a; without ftz a result that would be subnormal is the square of that of a / 2."""
    if ftz:
        return unit("ex2", a)
    values = a.view(np.float32)
    low = values < np.float32(-126)
    found = unit("ex2", np.where(low, multiply("f32", PLAIN, a, constant(a, 0.5)), a))
    return np.where(low, multiply("f32", PLAIN, found, found), found)


def rcp(a: Codes, *, ftz: bool) -> Codes:
    """1 / a; without ftz an input at either end is scaled to the middle and its result with it."""
    if ftz:
        return unit("rcp", a)
    return multiply("f32", PLAIN, *reciprocal_factors(a))


def reciprocal_factors(a: Codes) -> tuple[Codes, Codes]:
    """The two factors of 1 / a without ftz."""
    size = magnitude_of(a)
    factor: Codes = np.where(size < SMALLEST_NORMAL, constant(a, 2.0**24), constant(a, 1.0))
    factor = np.where((size > TWO_TO_126) & (size <= 0x7F800000), constant(a, 0.25), factor)
    return factor, unit("rcp", multiply("f32", PLAIN, a, factor))


def rsqrt(a: Codes, *, ftz: bool) -> Codes:
    """1 / sqrt(a)."""
    return unit("rsqrt", a) if ftz else scaled("rsqrt", a, lambda d: multiply("f32", PLAIN, d, constant(d, 4096.0)))


def sqrt(a: Codes, *, ftz: bool) -> Codes:
    """The square root of a."""
    return unit("sqrt", a) if ftz else scaled("sqrt", a, lambda d: multiply("f32", PLAIN, d, constant(d, 2.0**-12)))


def lg2(a: Codes, *, ftz: bool) -> Codes:
    """The logarithm of a to base 2."""
    return unit("lg2", a) if ftz else scaled("lg2", a, lambda d: add("f32", PLAIN, d, constant(d, -24.0)))


def sin(a: Codes, *, ftz: bool) -> Codes:
    """The sine of a."""
    del ftz
    return unit("sin", a)


def cos(a: Codes, *, ftz: bool) -> Codes:
    """The cosine of a."""
    del ftz
    return unit("cos", a)


def tanh(a: Codes, *, ftz: bool) -> Codes:
    """The hyperbolic tangent of a."""
    del ftz
    return unit("tanh", a)


def divide(a: Codes, b: Codes, *, full: bool, ftz: bool) -> Codes:
    """a times the unit's 1 / b."""
    return multiply("f32", FTZ if ftz else PLAIN, *quotient_factors(a, b, full=full, ftz=ftz))


def quotient_factors(a: Codes, b: Codes, *, full: bool, ftz: bool) -> tuple[Codes, Codes]:
    """The unit's 1 / b, and a; .full scales a large b down first, and without ftz a subnormal b is scaled up."""
    style = FTZ if ftz else PLAIN
    size = magnitude_of(b)
    if full:
        large = (size > TWO_TO_126) & (size <= 0x7F800000)
        a, b = (np.where(large, multiply("f32", style, v, constant(v, 0.25)), v) for v in (a, b))
    if not ftz:
        tiny = size < SMALLEST_NORMAL
        a, b = (np.where(tiny, multiply("f32", style, v, constant(v, 2.0**24)), v) for v in (a, b))
    return unit("rcp", b), a
