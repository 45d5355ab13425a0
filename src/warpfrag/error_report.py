"""How far a product is from the exact one: in ulps and relative, per architecture and order of additions.

The exact product is computed in integers. An ulp is the distance of two neighbours of D's format at the exact value.
Figures in ulps come from exact errors and are rounded once, at the end.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import trace
from warpfrag.arithmetic.rules import Popcount
from warpfrag.arrays import as_array
from warpfrag.codes import from_codes
from warpfrag.draw.plots import error_page
from warpfrag.errors import InvalidOperand, NotModelled, shown
from warpfrag.exact import Exact, exact_numbers, exact_product
from warpfrag.formats import FORMATS
from warpfrag.gemm import gemm, prepare
from warpfrag.isa.names import spell
from warpfrag.order import Order
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arithmetic.tracing import TraceStep
    from warpfrag.draw.palette import Theme
    from warpfrag.formats import Rounding
    from warpfrag.gemm import Product
    from warpfrag.isa.words import HasForm

BINS = 32
MOST_GROWTH = 48
"""Rows and columns from which the growth with k is taken: enough for a curve, and each point is a product."""


@dataclass(frozen=True)
class Growth:
    """The errors of the product of the first k only.

    `normwise` is the root mean square error divided by the root mean square of the exact outputs: unlike errors in ulps
    it is not ruled by the few outputs that nearly cancel.
    """

    k: int
    largest_ulps: float
    rms_ulps: float
    normwise: float


@dataclass(frozen=True)
class Summary:
    """Largest, root mean square and mean error."""

    largest_ulps: float
    rms_ulps: float
    mean_ulps: float
    largest_relative: float
    rms_relative: float
    mean_relative: float


@dataclass(frozen=True)
class Errors:
    """The errors of one architecture and order; computed minus exact, so that a negative mean is a bias downwards.

    `outputs` counts the finite ones, from which every figure is; relative errors leave out where the exact value is 0.
    """

    arch: str
    order: Order
    outputs: int
    nonfinite: int
    summary: Summary
    row: int
    col: int
    computed: float
    exact: Fraction
    growth: tuple[Growth, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    steps: tuple[TraceStep, ...]
    """How the output with the largest error came about, if its order is one chain."""

    @property
    def largest_ulps(self) -> float:
        """The largest error, without its sign."""
        return self.summary.largest_ulps

    @property
    def rms_ulps(self) -> float:
        """The root mean square error."""
        return self.summary.rms_ulps

    @property
    def mean_ulps(self) -> float:
        """The mean error: the bias."""
        return self.summary.mean_ulps

    @property
    def largest_relative(self) -> float:
        """The largest relative error, without its sign."""
        return self.summary.largest_relative

    @property
    def rms_relative(self) -> float:
        """The root mean square relative error."""
        return self.summary.rms_relative

    @property
    def mean_relative(self) -> float:
        """The mean relative error."""
        return self.summary.mean_relative

    @property
    def name(self) -> str:
        """The architecture, and the order where it is not the plain one."""
        return self.arch if self.order == Order() else f"{self.arch}, {self.order}"

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        left_out = {"exact", "steps", "order", "growth", "summary"}
        facts = {field: getattr(self, field) for field in self.__dataclass_fields__ if field not in left_out}
        return {
            **facts,
            **asdict(self.summary),
            "edges": list(self.edges),
            "counts": list(self.counts),
            "order": asdict(self.order),
            "exact": f"{self.exact.numerator}/{self.exact.denominator}",
            "growth": [asdict(point) for point in self.growth],
        }


@dataclass(frozen=True)
class ErrorReport:
    """The errors of one product, side by side."""

    instruction: str
    shape: tuple[int, int, int]
    result: str
    errors: tuple[Errors, ...]

    def __iter__(self) -> Iterator[Errors]:
        """The errors of each architecture and order."""
        return iter(self.errors)

    def __str__(self) -> str:
        """As a table."""
        m, n, k = self.shape
        header = ["", "largest ulps", "rms ulps", "mean ulps", "largest rel.", "rms rel.", "mean rel.", "worst at"]
        lines = [header]
        for one in self.errors:
            ulps = [one.largest_ulps, one.rms_ulps, one.mean_ulps]
            relative = [one.largest_relative, one.rms_relative, one.mean_relative]
            figures = [f"{value:.4g}" for value in ulps] + [f"{value:.3g}" for value in relative]
            lines.append([one.name, *figures, f"D[{one.row}, {one.col}]"])
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        body = [
            "  ".join(
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        head = f"{self.instruction}, {m} x {n} x {k}: computed minus exact, ulps of {self.result}"
        return "\n".join([head, *body])

    def to_dict(self) -> dict[str, object]:
        """Everything but the trace, as JSON has it."""
        return {
            "instruction": self.instruction,
            "shape": list(self.shape),
            "result": self.result,
            "errors": [one.to_dict() for one in self.errors],
        }

    def svg(self, *, theme: Theme = "auto") -> str:
        """A figure: the histogram of the errors, and how they grow with k."""
        return error_page(self, theme=theme)


def error_report(
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    instruction: str | HasForm,
    arch: str | Sequence[str] = "sm_90",
    order: Order | Sequence[Order] = Order(),  # noqa: B008 (it is frozen)
    rounding: Rounding = None,
    threads: int | None = None,
) -> ErrorReport:
    """How far D = A B + C is from the exact result, for each architecture and each order of additions.

    Operands are taken as `wf.gemm` takes them; where `rounding` rounds them, the exact result is that of the rounded
    ones. They must be finite.
    """
    archs = [arch] if isinstance(arch, str) else _listed("arch", arch)
    orders = [order] if isinstance(order, Order) else _listed("order", order)
    taken = {str(name): prepare(A, B, instruction=instruction, arch=name, rounding=rounding) for name in archs}
    first = next(iter(taken.values()))
    if len(first.shape) != 2 or 0 in first.shape:
        msg = f"A and B: expected matrices with at least one output, got a product of shape {first.shape}"
        raise InvalidOperand(msg)
    if isinstance(first.rule, Popcount):
        msg = f"{spell(first.form)} counts bits: it has no errors"
        raise InvalidOperand(msg)
    a, b = _values(first, "a"), _values(first, "b")
    added = None if C is None else _added(C, first)
    exact = _exact(a, b, added)
    found = [
        _measure(taken[name], Task(name, which, added, threads), a, b, exact) for name, which in product(taken, orders)
    ]
    return ErrorReport(spell(first.form), (a.shape[0], b.shape[1], a.shape[1]), first.rule.d, tuple(found))


@dataclass(frozen=True)
class Task:
    """What is computed: where, in which order, with which C."""

    arch: str
    order: Order
    c: NDArray[np.float64] | None
    threads: int | None


def _listed(what: str, given: object) -> list[Any]:
    if not isinstance(given, list | tuple) or not given:
        msg = f"{what}: expected one, or a list of at least one; got {shown(given)}"
        raise InvalidOperand(msg)
    return list(given)


def _values(taken: Product, role: str) -> NDArray[np.float64]:
    """What the tensor core reads of an operand, as float64."""
    row = FORMATS[getattr(taken.rule, role)]
    codes = getattr(taken.operands, role)[0]
    if row.unused:
        codes = codes & ~codes.dtype.type((1 << row.unused) - 1)
    return _finite(from_codes(row, codes).astype(np.float64), role.upper())


def _finite(values: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
        msg = f"{what}: element {place} is {values[place]}: there is no exact result to compare with"
        raise InvalidOperand(msg)
    return values


def _added(C: ArrayLike, taken: Product) -> NDArray[np.float64]:
    """C as float64: gemm checks that it is exact in its format."""
    values = as_array(C, "C")
    if values.shape != taken.shape or values.dtype.kind not in "biuf":
        msg = f"C: expected {' x '.join(map(str, taken.shape))} numbers, got {values.dtype} of shape {values.shape}"
        raise InvalidOperand(msg)
    return _finite(values.astype(np.float64), "C")


def _exact(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None) -> Exact:
    found = exact_product(a, b)
    return found if c is None else found.plus(exact_numbers(c))


def _computed(taken: Product, task: Task, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None) -> NDArray[Any]:
    """The product by warpfrag, as float64."""
    found = gemm(a, b, c, instruction=spell(taken.form), arch=task.arch, order=task.order, threads=task.threads)
    return found.astype(np.float64)


def _measure(taken: Product, task: Task, a: NDArray[np.float64], b: NDArray[np.float64], exact: Exact) -> Errors:
    computed = _computed(taken, task, a, b, task.c)
    figures = Figures(computed, exact, taken.rule.d)
    if not figures.count:
        msg = f"{spell(taken.form)} on {task.arch}: no output is finite"
        raise NotModelled(msg)
    row, col = figures.worst
    edges, counts = figures.histogram()
    return Errors(
        arch=task.arch,
        order=task.order,
        outputs=figures.count,
        nonfinite=computed.size - figures.count,
        summary=figures.facts(),
        row=row,
        col=col,
        computed=float(computed[row, col]),
        exact=Fraction(exact.units[row, col]) * Fraction(2) ** exact.exponent,
        growth=tuple(_growth(taken, task, a, b)),
        edges=edges,
        counts=counts,
        steps=tuple(_steps(taken, task, row, col)),
    )


class Figures:
    """Errors in ulps as exact fractions, and what follows from them."""

    def __init__(self, computed: NDArray[np.float64], exact: Exact, result: str) -> None:
        """Compare."""
        finite = np.isfinite(computed)
        self.count = int(finite.sum())
        given = exact_numbers(np.where(finite, computed, 0.0))
        exponent = min(given.exponent, exact.exponent)
        truth = exact.at_exponent(exponent)
        places = np.argwhere(finite)
        differences = (given.at_exponent(exponent) - truth)[finite].tolist()
        truths = truth[finite].tolist()
        row = FORMATS[result]
        least = row.emin - row.fraction if row.is_float else 0
        lengths = [abs(value).bit_length() for value in truths]
        lowest = [
            max(length - 1 + exponent - row.fraction, least) if row.is_float and length else least for length in lengths
        ]
        squares, all_squares = (sum(value * value for value in values) for values in (differences, truths))
        self.normwise = math.sqrt(Fraction(squares, all_squares)) if all_squares else 0.0
        # an error in ulps is difference * 2**(exponent - lowest): kept as whole numbers of 2**-scale
        self.scale = max([place - exponent for place in lowest] + [0])
        self.ulps = [
            difference << (self.scale - (place - exponent))
            for difference, place in zip(differences, lowest, strict=True)
        ]
        self.relative = [
            difference / abs(value) for difference, value in zip(differences, truths, strict=True) if value
        ]
        largest = max(range(self.count), key=lambda index: abs(self.ulps[index]), default=0)
        self.worst = (int(places[largest][0]), int(places[largest][1])) if self.count else (0, 0)

    def _ulps(self, whole: int) -> Fraction:
        return Fraction(whole, 1 << self.scale)

    def facts(self) -> Summary:
        """Largest, root mean square and mean."""
        squares = Fraction(sum(value * value for value in self.ulps), self.count << (2 * self.scale))
        relative = self.relative or [0.0]
        return Summary(
            largest_ulps=float(self._ulps(max(map(abs, self.ulps)))),
            rms_ulps=math.sqrt(squares),
            mean_ulps=float(Fraction(sum(self.ulps), self.count << self.scale)),
            largest_relative=max(map(abs, relative)),
            rms_relative=math.sqrt(math.fsum(value * value for value in relative) / len(relative)),
            mean_relative=math.fsum(relative) / len(relative),
        )

    def histogram(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Counts in bins of equal width, a power of two, around zero; the outermost two have what is beyond, too.

        Outputs that nearly cancel have errors of thousands of ulps: nine of ten outputs choose the width.
        """
        values = np.array([float(self._ulps(value)) for value in self.ulps])
        most = float(np.quantile(np.abs(values), 0.9)) or 0.5
        width = 2.0 ** math.ceil(math.log2(2 * most / BINS))
        edges = (np.arange(BINS + 1) - BINS / 2) * width
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        return tuple(edges.tolist()), tuple(counts.tolist())


def _growth(taken: Product, task: Task, a: NDArray[np.float64], b: NDArray[np.float64]) -> list[Growth]:
    """Errors of the products of the first k, k doubling."""
    depth, k = a.shape[1], taken.rule.k
    some_a, some_b = a[:MOST_GROWTH], b[:, :MOST_GROWTH]
    c = None if task.c is None else task.c[:MOST_GROWTH, :MOST_GROWTH]
    lengths = [k << place for place in range(64) if k << place < depth] + [depth]
    found = []
    for length in lengths:
        part_a, part_b = some_a[:, :length], some_b[:length]
        figures = Figures(_computed(taken, task, part_a, part_b, c), _exact(part_a, part_b, c), taken.rule.d)
        if figures.count:
            facts = figures.facts()
            found.append(Growth(length, facts.largest_ulps, facts.rms_ulps, figures.normwise))
    return found


def _steps(taken: Product, task: Task, row: int, col: int) -> list[TraceStep]:
    """How one output came about."""
    if not task.order.carries_c or task.order.residue:
        return []
    rule = taken.rule
    depth = taken.operands.depth
    padding = max(1, -(-depth // rule.k)) * rule.k - depth
    a = np.pad(taken.operands.a[0, row], (0, padding))
    b = np.pad(taken.operands.b[0, :, col], (0, padding))
    c = 0 if task.c is None else FORMATS[rule.c].encode(float(task.c[row, col]))
    columns = None
    if taken.operands.pattern is not None:
        stored, fields = compress(taken.operands.pattern, a[None])
        a, columns = stored[0], logical_columns(taken.operands.pattern, fields)[0].tolist()
    return trace(rule, a.tolist(), b.tolist(), c, columns=columns)
