"""Cases in which the rounding shows: operands for which simpler models of the arithmetic give other codes.

Each model is what somebody might take the tensor core for. Operands are tried, and those kept that tell the executor
from a model; a model that no operands tell apart is, as far as they go, what this architecture computes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.formats.codes import to_codes, values_of
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES
from warpfrag.tensorcore.sparsity import logical_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.codegen.vectors.vector_group import VectorGroup
    from warpfrag.codegen.vectors.vector_maker import VectorMaker
    from warpfrag.formats.number_formats import Format

    Rounded = Callable[[NDArray[Any]], NDArray[Any]]
    Model = Callable[["Sums", Rounded], NDArray[Any]]

CANDIDATES = 24
CANDIDATES_F64 = 3  # each sum is one of fractions there, and slow; the same for products of many elements
KEPT = 2  # of the best candidates against each model
SPREAD = 26  # bits between large and small products: one more than any tensor core keeps


class Sums:
    """The products of each element of D, K of them, and C; their exact sums are the same for every rounding."""

    def __init__(self, terms: NDArray[Any], c: NDArray[Any]) -> None:
        """Products [..., M, N, K]."""
        self.terms = np.ascontiguousarray(np.moveaxis(terms, -1, 0))
        self.c = c
        self.half = len(self.terms) // 2

    @cached_property
    def whole(self) -> NDArray[Any]:
        """The sum of C and all products."""
        return _exact([*self.terms, self.c])

    @cached_property
    def first_half(self) -> NDArray[Any]:
        """Of the first half of K, and C."""
        return _exact([*self.terms[: self.half], self.c])

    @cached_property
    def products(self) -> NDArray[Any]:
        """The sum of the products without C."""
        return _exact([*self.terms])


def _once(sums: Sums, rounded: Rounded) -> NDArray[Any]:
    return rounded(sums.whole)


def _chain(sums: Sums, rounded: Rounded, step: int = 1) -> NDArray[Any]:
    total = sums.c
    for term in sums.terms[::step]:
        total = rounded(total + term)
    return total


def _backwards(sums: Sums, rounded: Rounded) -> NDArray[Any]:
    return _chain(sums, rounded, -1)


def _halves(sums: Sums, rounded: Rounded) -> NDArray[Any]:
    return rounded(_exact([*sums.terms[sums.half :], rounded(sums.first_half)]))


def _c_last(sums: Sums, rounded: Rounded) -> NDArray[Any]:
    return rounded(rounded(sums.products) + sums.c)


MODELS: dict[str, Model] = {
    "one exact sum": _once,
    "a chain of fused multiply-adds, k ascending": _chain,
    "a chain of fused multiply-adds, k descending": _backwards,
    "two halves of k, one after the other": _halves,
    "C added at the end": _c_last,
}


def _exact(terms: list[NDArray[Any]]) -> NDArray[Any]:
    """Sums of arrays, rounded at most to f64, once, which is finer than what a narrower D keeps."""
    if terms[0].dtype == object:
        return np.asarray(np.add.reduce(terms))
    # what rounding cuts off is summed by itself; where nothing is cut off there, two numbers are the whole sum
    high, low = np.zeros_like(terms[0]), np.zeros_like(terms[0])
    is_cut = np.zeros(high.shape, np.bool_)
    with np.errstate(invalid="ignore"):  # of an infinity nothing is cut off that is a number
        for term in terms:
            high, rest = _two_sum(high, term)
            low, lost = _two_sum(low, rest)
            is_cut |= lost != 0
        total: NDArray[Any] = high + low
    if is_cut.any():
        columns = np.stack([term[is_cut] for term in terms], axis=-1)
        total[is_cut] = [math.fsum(column) for column in columns.tolist()]
    return total


def _two_sum(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A sum, rounded, and what that has cut off."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def rounding_group(maker: VectorMaker) -> VectorGroup:
    """The operands that tell the executor from each model, and which models they tell apart."""
    instruction = maker.instruction
    codes = candidates(maker)
    made = maker.group("rounding", "", codes, DEFAULT_IMMEDIATES)
    executed = instruction.d.unpack(made.d, raw=True)
    kept: set[int] = set()
    told = []
    sums = Sums(*_terms(maker, codes))
    for name, model in MODELS.items():
        for rounding, rounded in _roundings(instruction.d.format).items():
            differs = _codes(instruction.d.format, model(sums, rounded)) != executed
            counts = differs.reshape(len(executed), -1).sum(axis=1)
            if counts.any():
                told.append(f"{name}, {rounding}")
                kept |= {int(case) for case in np.argsort(-counts, kind="stable")[:KEPT] if counts[case]}
    chosen = sorted(kept) or [0]
    catches = "arithmetic of another kind: " + ("; ".join(told) if told else "no model that was tried differs")
    return replace(made, catches=catches, words={role: w[chosen] for role, w in made.words.items()}, d=made.d[chosen])


def candidates(maker: VectorMaker) -> dict[str, NDArray[Any]]:
    """Half of them any products with a C from far below to far above them, half of them products that cancel."""
    count = CANDIDATES_F64 if maker.instruction.d.format.name == "f64" or maker.is_large else CANDIDATES
    codes = {role: maker.finite(role, count) for role in "ab"}
    ends = ((-9, -1), (0, 6), (7, 12))
    codes["c"] = np.concatenate([maker.accumulators(count // 3, *end) for end in ends])
    codes = maker.stored(codes)
    for role, cancelling in _cancelling(maker, (count + 1) // 2).items():
        codes[role][::2] = cancelling
    return codes


def _cancelling(maker: VectorMaker, cases: int) -> dict[str, NDArray[Any]]:
    """Two large products that cancel, and small ones that a narrow sum cuts off. B is the same for every k."""
    random, instruction = maker.random, maker.instruction
    number_format = instruction.a.format
    largest = min(12, math.frexp(number_format.max)[1] - 2)
    smallest = max(largest - SPREAD, number_format.emin - number_format.fraction)
    shape = (cases, *instruction.a.shape)
    small = np.ldexp(random.uniform(1, 2, shape), random.integers(smallest, min(smallest + 5, largest), shape))
    large = np.ldexp(random.uniform(1, 1.75, shape[:-1]), largest)
    small[..., 0], small[..., -1] = large, -large
    column = random.uniform(1, 1.75, (cases, *instruction.b.shape[:-2], 1, instruction.b.shape[-1]))
    b = np.broadcast_to(column, (cases, *instruction.b.shape))
    return {
        "a": to_codes(number_format, small, rounding="rne"),
        "b": to_codes(instruction.b.format, b, rounding="rne"),
        "c": maker.accumulators(cases, max(-14, smallest), max(-13, smallest + 4)),
    }


def _terms(maker: VectorMaker, codes: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The products [..., M, N, K] and C, exactly: as f64, or as fractions where they are of f64. Scales are all 1."""
    instruction = maker.instruction
    a, b, c = (_value(instruction.operands[role].format, codes[role]) for role in "abc")
    if instruction.pattern is not None:
        columns = logical_columns(instruction.pattern, codes["metadata"])
        full = np.zeros((*a.shape[:-1], instruction.shape.k))
        np.put_along_axis(full, columns.astype(np.int64), a, axis=-1)
        a = full
    return a[..., :, None, :] * np.swapaxes(b, -1, -2)[..., None, :, :], c


_fraction = np.frompyfunc(Fraction, 1, 1)


def _value(number_format: Format, codes: NDArray[Any]) -> NDArray[Any]:
    values = values_of(number_format, codes)
    if number_format.name == "f64":
        fractions: NDArray[Any] = _fraction(values.astype(object))
        return fractions
    return values


def _roundings(number_format: Format) -> dict[str, Rounded]:
    """How partial sums can be kept: to nearest or toward zero, in f32, and in D's format where that is another."""
    if number_format.name == "f64":
        return {"to nearest": _nearest_fraction, "toward zero": _truncated_fraction}
    roundings = {"to nearest": _to_nearest(np.float32), "toward zero": _toward_zero}
    if number_format.name == "f16":
        roundings["to nearest f16"] = _to_nearest(np.float16)
    return roundings


def _to_nearest(dtype: type[np.floating[Any]]) -> Rounded:
    def rounded(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):  # such a sum differs from the executor's, or is an infinity there too
            return values.astype(dtype).astype(np.float64)

    return rounded


def _toward_zero(values: NDArray[Any]) -> NDArray[Any]:
    near = values.astype(np.float32)
    past = np.abs(near.astype(np.float64)) > np.abs(values)
    return np.where(past, np.nextafter(near, np.float32(0)), near).astype(np.float64)


def _nearest(exact: Fraction) -> Fraction:
    return Fraction(float(exact))


def _truncated(exact: Fraction) -> Fraction:
    near = float(exact)
    return Fraction(math.nextafter(near, 0.0) if abs(Fraction(near)) > abs(exact) else near)


def _nearest_fraction(values: NDArray[Any]) -> NDArray[Any]:
    rounded: NDArray[Any] = np.frompyfunc(_nearest, 1, 1)(values)
    return rounded


def _truncated_fraction(values: NDArray[Any]) -> NDArray[Any]:
    rounded: NDArray[Any] = np.frompyfunc(_truncated, 1, 1)(values)
    return rounded


def _codes(number_format: Format, values: NDArray[Any]) -> NDArray[Any]:
    """Codes of D for a model's result."""
    return to_codes(number_format, values.astype(np.float64), rounding="rne")
