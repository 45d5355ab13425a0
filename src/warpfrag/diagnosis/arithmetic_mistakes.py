"""Mistakes with C, signs, number formats and architectures; and results that are nearly right.

An accumulator that was not zeroed shifts every element. A result that is right up to rounding was computed in a
different order, or by different hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Codes, Kind, Misreading, Mistake, Words
from warpfrag.diagnosis.matrix_mistakes import Recoding, recoded
from warpfrag.formats.arrays import Doubles, as_doubles
from warpfrag.formats.codes import from_codes, to_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.isa.instruction_table import able_architectures, forms
from warpfrag.isa.qualifiers import Form
from warpfrag.tensorcore.arithmetic_plan import arithmetic_groups, plan
from warpfrag.tensorcore.operand import Operand

ACCUMULATORS = ("f16", "f32")
SCALE_TYPES = ("ue8m0", "ue4m3")
NEGATED = "negated: imm-scale 1 and -1 confused"
BITOPS = {"and": "xor", "xor": "and"}


def starts(operand: Operand) -> Iterator[Mistake]:
    """Yield the mistakes of omitting C and of adding it twice."""
    missing = "missing: scale-d is 0 where it should be 1" if operand.storage == "warpgroup" else "missing"
    yield Mistake("c", "c", missing, np.zeros_like)
    yield Mistake("c", "c", "added twice", recoded(operand, lambda codes: added(operand, codes, codes)))


def written_as(operand: Operand, recode: Callable[[Recoding], Recoding] | None = None) -> Iterator[Mistake]:
    """Yield a mistake for each other format of the same size in which A or B may have been encoded.

    `recode` turns a change of codes into a change of the operand.
    """
    recode = recode or partial(recoded, operand)
    for other in FORMATS:
        if operand.format.is_float and may_be_mistaken(operand.format.name, other):
            change = partial(rewritten, source=operand.format, target=FORMATS[other])
            yield Mistake("layout", operand.role, f"values written as {other}", recode(change), rare=True)


@exact_floats
def rewritten(codes: Codes, *, source: Format, target: Format) -> Codes:
    """Return the codes of the same values in `target`; if it has none, infinities saturate and NaNs become 0."""
    values = as_doubles(from_codes(source, codes))
    if target.nan_code is None:
        values = np.where(np.isnan(values), 0.0, values)
    return to_codes(target, values if target.infinity else np.clip(values, target.min, target.max), rounding="rne")


def negated(operand: Operand, recode: Callable[[Recoding], Recoding] | None = None) -> Iterator[Mistake]:
    """Yield the mistake of a wrong imm-scale in wgmma, which negates A or B."""
    if operand.format.is_float:
        flip = partial(negated_codes, number_format=operand.format)
        yield Mistake("sign", operand.role, NEGATED, (recode or partial(recoded, operand))(flip))


def negated_codes(codes: Codes, *, number_format: Format) -> Codes:
    """Return codes with inverted signs."""
    negative: Codes = np.bitwise_xor(codes, codes.dtype.type(number_format.sign_bit))
    return negative


def negated_words(words: Words, operand: Operand) -> Words:
    """Return registers whose elements have inverted signs."""
    return recoded(operand, partial(negated_codes, number_format=operand.format))(words)


def added(operand: Operand, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return the codes of the sum of two matrices, as a kernel adds them: rounded to nearest, or wrapped.

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
    """Yield misreadings: wrong signs, types, accumulators, qualifiers or architectures, and repeated operations."""
    yield from _other_formats(form)
    if not scale_d:
        yield Misreading("c", "c", "read: scale-d is 1 where it should be 0", again="scale_d")
    for other in ACCUMULATORS:
        words = {"c": other, "d": other}
        if form.d in ACCUMULATORS and other != form.d and _exists(form, words):
            yield Misreading("layout", "d", f"accumulated in {other}", words)
    for other in SCALE_TYPES:
        if form.scale_type and other != form.scale_type and _exists(form, {"scale_type": other}):
            yield Misreading("layout", "scale_a", f"taken for {other}, and so is scale_b", {"scale_type": other})
    if form.c == form.d:
        yield Misreading("c", "d", "the product added twice: D was passed as C again", again="product")
        yield Misreading("c", "c", "added once more after the product", again="c")
    if _exists(form, {"satfinite": not form.satfinite}):
        text = "without .satfinite" if form.satfinite else "with .satfinite"
        yield Misreading("arch", "d", text, {"satfinite": not form.satfinite})
    if form.bitop in BITOPS:
        bitop = BITOPS[form.bitop]
        yield Misreading("arch", "d", f".{bitop} instead of .{form.bitop}", {"bitop": bitop})
    if not form.operation.sparsity and not form.block_scale:
        for text, k_order in k_orders(form.shape.k):
            yield Misreading("order", "d", f"k in another order: {text}", k_order=k_order, rare=True)
    for archs in other_arithmetic(form, arch):
        yield Misreading("arch", "d", f"the arithmetic of {', '.join(archs)}", arch=archs[0])


def other_arithmetic(form: Form, arch: str) -> list[list[str]]:
    """Return groups of architectures whose arithmetic is the same but differs from that of `arch`."""
    return [archs for archs in arithmetic_groups(dict.fromkeys(able_architectures(form), form)) if arch not in archs]


def k_orders(count: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield orders of terms, or of the tiles in a loop over K, other than ascending k."""
    places = range(count)
    orders = {
        "from the last to the first": places[::-1],
        "the upper half first": [*places[count // 2 :], *places[: count // 2]],
        "even indices first": [*places[::2], *places[1::2]],
        "odd indices first": [*places[1::2], *places[::2]],
        "halves interleaved": [place // 2 + (place % 2) * (count // 2) for place in places] if count % 2 == 0 else [],
    }
    seen = {tuple(places)}
    for text, order in orders.items():
        if order and tuple(order) not in seen:
            seen.add(tuple(order))
            yield text, tuple(order)


def _exists(form: Form, words: Mapping[str, str | bool]) -> bool:
    return replace(form, **words) in forms()  # type: ignore[arg-type] # the keys are fields of Form


def _other_formats(form: Form) -> Iterator[Misreading]:
    """Yield misreadings of A, B or both as a different format of the same size."""
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
            yield Misreading(kind, role, f"{texts[0]}, and so is B" if alike else ", and B: ".join(texts), taken)


def may_be_mistaken(name: str, other: str) -> bool:
    """Return True if two different formats have the same size and category."""
    written, read = FORMATS[name], FORMATS[other]
    alike = written.bits == read.bits and written.kind == read.kind
    return written != read and alike and (written.signed == read.signed or not written.is_float)


def _signs(formats: Mapping[str, str], fmt: str, other: str) -> bool:
    """Return True if A and B are both misread integers, one signed and the other unsigned."""
    return not FORMATS[fmt].is_float and formats["a"] != formats["b"] and fmt != other


# ---- results that are nearly right


MIN_SIGNS = 1 / 8  # minimum share of expected values of either sign
LARGEST_SHIFT = 1e150  # the square of a larger difference would overflow
MIN_SHIFTED = 32  # number of elements needed to distinguish a shift from rounding
FEW, MANY_ULPS = 20, 16  # if 1 in 20 elements is off by more than 16 ulps, the cause is not rounding
MAX_GROWTH = 4  # largest factor by which a mistake increases |A||B|
ROUNDED = "With this mistake, D matches except for rounding"
MIN_ULPS = 4  # the smallest shift
SHARE = 2  # a constant that absorbs the sums leaves less than half of the distinct results


def rounding_bound(form: Form, arch: str, depth: int, number_format: Format) -> RoundingBound:
    """Return the precision with which an architecture computes a sum of `depth` terms."""
    unit = plan(form, arch).unit
    kept, terms = (unit.fraction_bits, unit.products) if unit else (number_format.fraction, 1)
    return RoundingBound(-(-depth // terms), min(kept, number_format.fraction))


class RoundingBound(NamedTuple):
    """The precision of a result that is right up to rounding: the number of additions, and the bits that each keeps."""

    steps: int
    bits: int

    def of(self, magnitude: Doubles) -> Doubles:
        """Return the largest rounding error for |A||B| + |C| equal to `magnitude`: one last kept bit per addition."""
        return (self.steps + 1) * 2.0**-self.bits * magnitude


def shift(result: Format, seen: Codes, right: Codes, reach: Doubles) -> Iterator[Misreading]:
    """Yield the mistake of not zeroing the accumulators if all elements are too large by the same amount.

    Expected floats must have both signs, because rounding toward zero shifts values of one sign to one side. Nothing is
    yielded if the constant would absorb the sums, because a constant D has many causes.
    """
    if np.unique(seen).size * SHARE < np.unique(right).size:
        return
    if not result.is_float:
        differences = from_codes(result, np.unique(seen - right))
        if len(differences) == 1:
            yield Misreading("c", "c", f"not zeroed: every element is {differences[0]} more than expected", rare=True)
        return
    got, expected = (as_doubles(from_codes(result, codes)) for codes in (seen, right))
    if not all(np.isfinite(values).all() for values in (got, expected, reach)):
        return
    more = got - expected
    if np.abs(more).max() > LARGEST_SHIFT:
        return
    mean, negative = float(more.mean()), float((expected < 0).mean())
    is_clear = abs(mean) > MIN_ULPS * float(ulps_of(result, expected).mean())
    is_mixed = MIN_SIGNS <= negative <= 1 - MIN_SIGNS and more.size >= MIN_SHIFTED
    # the shift is one more term, with its own rounding error
    allowed = reach + sum(ulps_of(result, values) for values in (got, expected, np.full(got.shape, MIN_ULPS * mean)))
    is_constant = abs(mean) * SHARE > float(np.sqrt((more * more).mean())) and (np.abs(more - mean) <= allowed).all()
    if is_clear and is_mixed and is_constant:
        yield Misreading("c", "c", f"not zeroed: every element is about {mean:.4g} more than expected", rare=True)


def ulps_of(form: Format, values: Doubles) -> Doubles:
    """Return the distance between adjacent numbers of a format, at these values."""
    exponent = np.maximum(np.frexp(np.abs(values))[1] - 1, form.emin)
    distances: Doubles = np.ldexp(1.0, exponent - form.fraction)
    return distances


def rounding(
    result: Format, seen: Codes, right: Codes, magnitude: Codes, bound: RoundingBound, slack: Doubles | float = 0.0
) -> str | None:
    """Return a sentence about a D that differs only by rounding, or None if the difference is larger.

    `magnitude` has the codes of |A||B| + |C|; `slack` is the precision to which D is known.
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
        allowed = bound.of(scale) + ulps_of(result, np.where(finite, expected, 0.0)) + slack
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
