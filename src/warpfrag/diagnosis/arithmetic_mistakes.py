"""C missing or added twice, and something else that runs on the right registers: signs, types, architectures."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.diagnosis.findings import Misreading, Mistake
from warpfrag.errors import NotModelled
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import code_dtype, from_codes, to_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.legality import able_architectures
from warpfrag.isa.rows import forms
from warpfrag.tensorcore.arithmetic_plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from warpfrag.diagnosis.findings import Kind, Words
    from warpfrag.formats.number_formats import Format
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.operand import Operand
    from warpfrag.tensorcore.rules import Rule

    Codes = NDArray[Any]


# ---- arithmetic_mistakes


ACCUMULATORS = ("f16", "f32")
SCALE_TYPES = ("ue8m0", "ue4m3")
NEGATED = "negated: imm-scale 1 and -1 confused"
BITOPS = {"and": "xor", "xor": "and"}


def starts(operand: Operand) -> list[Mistake]:
    """C missing, and C doubled."""
    missing = "missing: scale-d is 0 where it should be 1" if operand.storage == "warpgroup" else "missing"
    return [
        Mistake("c", "c", missing, np.zeros_like),
        Mistake("c", "c", "added twice", partial(_doubled, operand=operand)),
    ]


def written_as(operand: Operand) -> Iterator[Mistake]:
    """The values of A or B in another format of the same size."""
    for other in FORMATS:
        if operand.format.is_float and may_be_mistaken(operand.format.name, other):
            change = partial(_rewritten, operand=operand, other=other)
            yield Mistake("layout", operand.role, f"values written as {other}", change, rare=True)


@exact_floats
def _rewritten(words: Words, *, operand: Operand, other: str) -> Words:
    into = FORMATS[other]
    values = as_doubles(from_codes(operand.format, operand.unpack(words, raw=True)))
    return operand.pack(to_codes(into, fitting(into, values), rounding="rne"), raw=True)


def fitting(into: Format, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values that a format can hold: saturated where it has no infinity, 0 where it has no NaN."""
    if into.nan_code is None:
        values = np.where(np.isnan(values), 0.0, values)
    return values if into.infinity else np.clip(values, into.min, into.max)


def negated(operand: Operand) -> Iterator[Mistake]:
    """The sign of A or B of wgmma changed: its immediate (imm-scale) is -1 for 1, or 1 for -1."""
    if operand.format.is_float:
        yield Mistake("sign", operand.role, NEGATED, partial(negated_words, operand=operand))


def negated_words(words: Words, *, operand: Operand) -> Words:
    """Registers whose elements have the other sign."""
    codes: NDArray[Any] = operand.unpack(words, raw=True)
    return operand.pack(np.bitwise_xor(codes, codes.dtype.type(operand.format.sign_bit)), raw=True)


def _doubled(words: Words, *, operand: Operand) -> Words:
    codes = operand.unpack(words, raw=True)
    return operand.pack(added(operand, codes, codes), raw=True)


def added(operand: Operand, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Codes of the sum of two matrices of an operand's format, as a kernel adds them: rounded to nearest, or wrapped.

    >>> from warpfrag.tensorcore.registry import get
    >>> c = get("mma.m16n8k16.f32.f16.f16.f32").c
    >>> hex(added(c, np.uint32(0x3F800000), np.uint32(0x3F800000)))
    '0x40000000'
    """
    if not operand.format.is_float:
        wrapped: NDArray[Any] = left + right
        return wrapped
    with np.errstate(over="ignore", invalid="ignore"):
        total = from_codes(operand.format, left) + from_codes(operand.format, right)
    return to_codes(operand.format, total)


def misreadings(form: Form, arch: str, *, scale_d: bool = True) -> Iterator[Misreading]:
    """Other signs, types, accumulators, words of the name and architectures, and what is done twice."""
    yield from _other_formats(form)
    if not scale_d:
        yield Misreading("c", "c", "read: scale-d is 1 where it should be 0", again="scale_d")
    for other in ACCUMULATORS:
        words = {"c": other, "d": other}
        if form.d in ACCUMULATORS and other != form.d and _exists(form, words):
            yield Misreading("layout", "d", f"accumulated in {other}", words)
    for other in SCALE_TYPES:
        if form.scale_type and other != form.scale_type and _exists(form, {"scale_type": other}):
            yield Misreading("layout", "scale_a", f"as scale_b, taken for {other}", {"scale_type": other})
    if form.c == form.d:
        yield Misreading("c", "d", "the product added twice: D went in as C once more", again="product")
        yield Misreading("c", "c", "added once more after the product", again="c")
    if _exists(form, {"satfinite": not form.satfinite}):
        text = "without .satfinite" if form.satfinite else "with .satfinite"
        yield Misreading("arch", "d", text, {"satfinite": not form.satfinite})
    if form.bitop in BITOPS:
        bitop = BITOPS[form.bitop]
        yield Misreading("arch", "d", f".{bitop} instead of .{form.bitop}", {"bitop": bitop})
    if not form.operation.sparsity and not form.block_scale:
        yield from _other_orders(form.shape.k)
    for archs in other_arithmetic(form, arch):
        yield Misreading("arch", "d", f"the arithmetic of {', '.join(archs)}", arch=archs[0])


def _other_orders(depth: int) -> Iterator[Misreading]:
    for text, k_order in k_orders(depth):
        yield Misreading("order", "d", f"k in another order: {text}", k_order=k_order, rare=True)


def other_arithmetic(form: Form, arch: str) -> Iterator[list[str]]:
    """Architectures whose arithmetic is not that of `arch`, those that share one together."""
    by_rule: dict[Rule, list[str]] = {}
    for other in able_architectures(form):
        with suppress(NotModelled):
            by_rule.setdefault(plan(form, other).rule, []).append(other)
    for archs in by_rule.values():
        if arch not in archs:
            yield archs


def k_orders(count: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Orders in which terms, or the tiles of a K loop, are added other than k ascending."""
    places = range(count)
    orders = {
        "from the last to the first": places[::-1],
        "the upper half first": [*places[count // 2 :], *places[: count // 2]],
        "the even ones first": [*places[::2], *places[1::2]],
        "the odd ones first": [*places[1::2], *places[::2]],
        "halves interleaved": [place // 2 + (place % 2) * (count // 2) for place in places] if count % 2 == 0 else [],
    }
    seen = {tuple(places)}
    for text, order in orders.items():
        if order and tuple(order) not in seen:
            seen.add(tuple(order))
            yield text, tuple(order)


def _exists(form: Form, words: Mapping[str, str | bool]) -> bool:
    return replace(form, **words) in forms()  # type: ignore[arg-type] # words of a name


def _other_formats(form: Form) -> Iterator[Misreading]:
    """A, B or both taken for another format of the same size."""
    formats = {role: getattr(form, role) for role in "ab"}
    others = {role: [other for other in FORMATS if may_be_mistaken(name, other)] for role, name in formats.items()}
    both = [(fmt, fmt) for fmt in others["a"] if fmt in others["b"]] if formats["a"] == formats["b"] else []
    both += [(fmt, other) for fmt in others["a"] for other in others["b"] if _signs(formats, fmt, other)]
    words = [{"a": fmt} for fmt in others["a"]] + [{"b": fmt} for fmt in others["b"]]
    words += [{"a": fmt, "b": other} for fmt, other in dict.fromkeys(both)]
    for taken in words:
        if _exists(form, taken):
            role = next(iter(taken))
            kind: Kind = "layout" if FORMATS[taken[role]].is_float else "sign"
            texts = [f"{formats[side]} taken for {other}" for side, other in taken.items()]
            alike = len(texts) == 2 and texts[0] == texts[1]
            yield Misreading(kind, role, f"as B, {texts[0]}" if alike else ", and b: ".join(texts), taken)


def may_be_mistaken(name: str, other: str) -> bool:
    """Whether two formats have the same size and are of one kind."""
    written, read = FORMATS[name], FORMATS[other]
    alike = written.bits == read.bits and written.kind == read.kind
    return written != read and alike and (written.signed == read.signed or not written.is_float)


def _signs(formats: Mapping[str, str], fmt: str, other: str) -> bool:
    """Whether the signs of both are wrong."""
    return not FORMATS[fmt].is_float and formats["a"] != formats["b"] and fmt != other


# ---- near_misses


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
