"""Results that are nearly right: a constant more than expected, or right up to rounding.

Neither is a change of registers. An accumulator that was not zeroed has some number in it, which is found from the
differences; what is right up to rounding was computed in another order, or by other hardware.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.diagnosis.arithmetic_mistakes import added
from warpfrag.diagnosis.mistake_types import Misreading, Mistake
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import code_dtype, from_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from warpfrag.diagnosis.mistake_types import Words
    from warpfrag.formats.number_formats import Format
    from warpfrag.tensorcore.operand import Operand

    Codes = NDArray[Any]

MAX_STARTS = 1025  # numbers that are tried where more than one may be what the accumulators held
MIN_SIGNS = 1 / 8  # the share of expected values of either sign, and
LARGEST_SHIFT = 1e150  # beyond it the square of a difference overflows
MIN_SHIFTED = 32  # how many elements there must be, to tell a shift from rounding
FEW, MANY_ULPS = 20, 16  # fewer than one of so many elements, and off by more: that is no rounding
MIN_ULPS = 4  # that a shift has at least
SHARE = 2  # so much less may a constant that swallows sums leave of the different results


class RoundingBound(NamedTuple):
    """How exact a result must be to be right up to rounding: steps of additions, and the bits that each keeps."""

    steps: int
    bits: int

    def of(self, magnitude: NDArray[np.float64]) -> NDArray[np.float64]:
        """What rounding may change, for |A||B| + |C| of this magnitude: each step, the last bit that it keeps."""
        return (self.steps + 1) * 2.0**-self.bits * magnitude


def leftovers(
    accumulator: Operand, result: Format, seen: Codes, right: Codes, reach: NDArray[np.float64]
) -> Iterator[Mistake]:
    """Accumulators that held one and the same number more than they should: the numbers that the differences allow.

    `reach` is what rounding may change. None where that number would swallow the sums: a D that is the same everywhere
    has many reasons.
    """
    if np.unique(seen).size * SHARE < np.unique(right).size:
        return
    if not result.is_float:
        differences = np.unique(seen - right)
        starts = [differences[0]] if len(differences) == 1 else []
    else:
        starts = [*_starts(accumulator.format, result, seen, right, reach)]
    for start in starts:
        code = np.asarray(start).astype(code_dtype(accumulator.format))
        value = from_codes(accumulator.format, code).item()
        text = f"not zeroed: every accumulator held {value:g} before the product"
        yield Mistake("c", "c", text, partial(_plus, operand=accumulator, code=code), rare=True)


def shift(result: Format, seen: Codes, right: Codes, reach: NDArray[np.float64]) -> Misreading | None:
    """One number by which every element is more than expected, up to rounding, where it is not found to the last bit.

    Expected values must be of both signs: rounding toward zero shifts those of one sign to one side.
    """
    if not result.is_float or np.unique(seen).size * SHARE < np.unique(right).size:
        return None
    got, expected = (as_doubles(from_codes(result, codes)) for codes in (seen, right))
    if not (np.isfinite(got).all() and np.isfinite(expected).all() and np.isfinite(reach).all()):
        return None
    more = got - expected
    if np.abs(more).max() > LARGEST_SHIFT:
        return None
    mean, negative = float(more.mean()), float((expected < 0).mean())
    is_clear = abs(mean) > MIN_ULPS * float(ulps_of(result, expected).mean())
    is_mixed = MIN_SIGNS <= negative <= 1 - MIN_SIGNS and more.size >= MIN_SHIFTED
    if not (is_clear and is_mixed) or abs(mean) * SHARE <= float(np.sqrt((more * more).mean())):
        return None
    if (np.abs(more - mean) > reach + ulps_of(result, got) + ulps_of(result, expected)).any():
        return None
    return Misreading("c", "c", f"not zeroed: every element is about {mean:.4g} more than expected", rare=True)


def _plus(words: Words, *, operand: Operand, code: Codes) -> Words:
    codes = operand.unpack(words, raw=True)
    return operand.pack(added(operand, codes, np.broadcast_to(code, codes.shape)), raw=True)


def _starts(form: Format, result: Format, seen: Codes, right: Codes, reach: NDArray[np.float64]) -> Iterator[int]:
    """Codes of the numbers whose sum with what is expected may round to what was seen, the shortest number first."""
    got, expected = (as_doubles(from_codes(result, codes)) for codes in (seen, right))
    if not (np.isfinite(got).all() and np.isfinite(expected).all() and np.isfinite(reach).all()):
        return
    reach = reach + ulps_of(result, got) + ulps_of(result, expected)
    low, high = float((got - expected - reach).max()), float((got - expected + reach).min())
    if low > high or low <= 0 <= high:
        return
    shortest = _shortest(low, high)
    middle = (low + high) / 2
    step = max((high - low) / (MAX_STARTS - 1), 2.0 ** (math.frexp(middle)[1] - 1 - form.fraction))
    near = [middle + step * place for place in range(-(MAX_STARTS // 2), MAX_STARTS // 2 + 1)]
    numbers = [shortest, *(number for number in near if low <= number <= high)]
    codes = [form.encode(float(_rounded(form, number))) for number in numbers if abs(number) <= form.max]
    yield from dict.fromkeys(codes)


def _rounded(form: Format, number: float) -> Fraction:
    """The number of a format next to one."""
    grid = Fraction(2) ** max(math.frexp(number)[1] - 1 - form.fraction, form.emin - form.fraction)
    return round(Fraction(number) / grid) * grid


def _shortest(low: float, high: float) -> float:
    """The number with the fewest bits between two of one sign."""
    sign, low, high = (-1.0, -high, -low) if high < 0 else (1.0, low, high)
    grid = Fraction(2) ** (math.frexp(high)[1])
    while math.ceil(Fraction(low) / grid) * grid > Fraction(high):
        grid /= 2
    return sign * float(math.ceil(Fraction(low) / grid) * grid)


def ulps_of(form: Format, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance of two neighbours of a format at values."""
    exponent = np.maximum(np.frexp(np.abs(values))[1] - 1, form.emin)
    distances: NDArray[np.float64] = np.ldexp(1.0, exponent - form.fraction)
    return distances


def rounding(result: Format, seen: Codes, right: Codes, magnitude: Codes, bound: RoundingBound) -> str | None:
    """What to say of a D that differs by no more than rounding does; None where it differs by more.

    `magnitude` has the codes of |A||B| + |C|.
    """
    if not result.is_float:
        return None
    got, expected, scale = (as_doubles(from_codes(result, codes)) for codes in (seen, right, magnitude))
    finite = np.isfinite(expected)
    if not np.array_equal(seen[~finite], right[~finite]) or not np.isfinite(got[finite]).all():
        return None
    if not np.isfinite(scale[finite]).all():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(finite, np.abs(got - expected), 0.0)
        allowed = bound.of(scale) + ulps_of(result, np.where(finite, expected, 0.0))
    if (error > allowed)[finite].any():
        return None
    ulps = float((error / ulps_of(result, np.where(finite, expected, 0.0))).max())
    relative = float((error / np.where(scale > 0, scale, 1.0))[finite].max())
    wrong = int((seen != right).sum())
    if wrong * FEW < seen.size and ulps > MANY_ULPS:
        return None
    return (
        f"right up to rounding: {wrong} of {seen.size} elements differ, "
        f"by at most {ulps:.4g} ulp{'' if ulps == 1 else 's'} and {relative:.2g} of |A||B|"
    )
