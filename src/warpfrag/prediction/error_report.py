"""How far a product is from the exact one: in ulps and relative, per architecture and order of additions.

The exact product is computed in integers. An ulp is the distance of two neighbours of D's format at the exact value.
Figures in ulps come from exact errors and are rounded once, at the end.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.arithmetic import trace
from warpfrag.arithmetic.rules import Popcount
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.execution.sparsity import compress, logical_columns
from warpfrag.isa.names import spell
from warpfrag.numerics.arrays import as_array, as_doubles
from warpfrag.numerics.codes import codes_of, from_codes, values_of
from warpfrag.numerics.exact import ExactArray, exact_numbers, exact_product
from warpfrag.numerics.formats import FORMATS
from warpfrag.products.backend import check_backend
from warpfrag.products.gemm import gemm, prepare
from warpfrag.products.order import Order
from warpfrag.render import html
from warpfrag.render.plots import error_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arithmetic.tracing import TraceStep
    from warpfrag.isa.words import HasForm
    from warpfrag.numerics.formats import Rounding
    from warpfrag.prediction.progress import Progress
    from warpfrag.products.gemm import Product
    from warpfrag.render.palette import Theme

BINS = 32
MAX_OUTPUTS = 1 << 17
"""That are compared at once: exact numbers take some hundred bytes each."""
MAX_GROWTH = 48
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
    largest_to_magnitude: float | None = None
    """Relative to `|A||B| + |C|`, the size of what was added: not ruled by outputs that nearly cancel."""
    rms_to_magnitude: float | None = None
    largest_to_rms: float | None = None
    """Relative to the root mean square of the exact results."""
    rms_to_rms: float | None = None


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
    differing: int = 0
    """Outputs whose bits are not those of the first architecture and order of the report."""

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
    def largest_to_magnitude(self) -> float | None:
        """The largest error relative to `|A||B| + |C|`, without its sign."""
        return self.summary.largest_to_magnitude

    @property
    def rms_to_magnitude(self) -> float | None:
        """The root mean square of the errors relative to `|A||B| + |C|`."""
        return self.summary.rms_to_magnitude

    @property
    def largest_to_rms(self) -> float | None:
        """The largest error relative to the root mean square of the exact results."""
        return self.summary.largest_to_rms

    @property
    def rms_to_rms(self) -> float | None:
        """The root mean square error relative to the root mean square of the exact results."""
        return self.summary.rms_to_rms

    def __repr__(self) -> str:
        """The architecture, and the largest and root mean square errors."""
        return f"<Errors of {self.name}: largest {self.largest_ulps:.4g} ulps, rms {self.rms_ulps:.4g} ulps>"

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
    is_unquantised: bool = False
    """Whether it is compared with the product of other matrices, those before they were quantised."""

    def __iter__(self) -> Iterator[Errors]:
        """The errors of each architecture and order."""
        return iter(self.errors)

    def _rows(self) -> list[list[str]]:
        """Heading and figures, a row for each architecture and order."""
        sizes = ["largest/|A||B|", "rms/|A||B|", "rms/rms D"]
        rows = [["", "largest ulps", "rms ulps", "mean ulps", "largest rel.", "rms rel.", *sizes, "worst at"]]
        for errors in self.errors:
            ulps = [errors.largest_ulps, errors.rms_ulps, errors.mean_ulps]
            relative: list[float | None] = [errors.largest_relative, errors.rms_relative]
            relative += [errors.largest_to_magnitude, errors.rms_to_magnitude, errors.rms_to_rms]
            figures = [f"{value:.4g}" for value in ulps]
            figures += ["-" if value is None else f"{value:.3g}" for value in relative]
            rows.append([errors.name, *figures, f"D[{errors.row}, {errors.col}]"])
        return rows

    @property
    def _title(self) -> str:
        m, n, k = self.shape
        exact = "unquantised" if self.is_unquantised else "exact"
        return f"{self.instruction}, {m} x {n} x {k}: computed minus {exact}, ulps of {self.result}"

    def __str__(self) -> str:
        """As a table."""
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        body = [
            "  ".join(
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self._title, *body, *self._differences()])

    def _differences(self) -> list[str]:
        """Whether the others give the bits of the first: a line for each."""
        first = self.errors[0]
        lines = []
        for other in self.errors[1:]:
            total = other.outputs + other.nonfinite
            same = f"the same bits in all {total} outputs" if total > 1 else "the same bits"
            how = f"different bits in {other.differing} of {total} outputs" if other.differing else same
            lines.append(f"{first.name} and {other.name}: {how}")
        return lines

    def __repr__(self) -> str:
        """The product, and the largest error of each architecture."""
        largest = ", ".join(f"{errors.name}: {errors.largest_ulps:.4g}" for errors in self.errors)
        return f"<ErrorReport of {self._title}\n largest {largest}>"

    def _repr_html_(self) -> str:
        """A card for notebooks: the same table."""
        head, *rows = self._rows()
        return html.card("<code>ErrorReport</code>", f"<p>{html.escape(self._title)}</p>", html.table(head, rows))

    def to_dict(self) -> dict[str, object]:
        """Everything but the trace, as JSON has it."""
        return {
            "instruction": self.instruction,
            "shape": list(self.shape),
            "result": self.result,
            "unquantised": self.is_unquantised,
            "errors": [errors.to_dict() for errors in self.errors],
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
    report: Progress | None = None,
    backend: str = "cpu",
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    against: tuple[ArrayLike, ArrayLike] | None = None,
) -> ErrorReport:
    """How far D = A B + C is from the exact result, for each architecture and each order of additions.

    Operands are taken as `wf.gemm` takes them; where `rounding` rounds them, the exact result is that of the rounded
    ones. They must be finite. A large product is compared some rows at a time; `report(done, total, text)` is called
    before each of these steps. `backend` says what computes the products, as for `wf.gemm`.

    `scale_a` and `scale_b` are the scale factors of a block-scaled instruction; the exact result has them. `against` is
    A and B before they were quantised: the exact product of those is what is compared with, so that errors are those of
    quantisation and arithmetic together.
    """
    check_backend(backend)
    archs = [arch] if isinstance(arch, str) else _listed("arch", arch)
    orders = [order] if isinstance(order, Order) else _listed("order", order)
    scales = (scale_a, scale_b)
    taken = {
        str(name): prepare(A, B, instruction=instruction, arch=name, scales=scales, rounding=rounding) for name in archs
    }
    first = next(iter(taken.values()))
    if len(first.shape) != 2 or 0 in first.shape:
        msg = f"A and B: expected matrices with at least one output, got a product of shape {first.shape}"
        raise InvalidOperand(msg)
    if isinstance(first.rule, Popcount):
        msg = f"{spell(first.form)} counts bits: it has no errors"
        raise InvalidOperand(msg)
    a, b = (_values(first, "a"), _values(first, "b")) if against is None else _unquantised(against, first)
    added = None if C is None else _added(C, first)
    tasks = [MeasuredTask(taken[name], name, which, threads, backend) for name, which in product(taken, orders)]
    for task in tasks:
        task.check()
    (height, depth), width = a.shape, b.shape[1]
    at_once = max(1, MAX_OUTPUTS // width)
    firsts = range(0, height, at_once)
    totals = [Figures(first.rule.d) for _ in tasks]
    total = len(tasks) * (len(firsts) + 1)
    for number, start in enumerate(firsts):
        rows = slice(start, min(start + at_once, height))
        c = None if added is None else added[rows]
        exact = _exact(a[rows], b, c)
        size = magnitude(a[rows], b, c)
        for place, (task, figures) in enumerate(zip(tasks, totals, strict=True)):
            if report is not None:
                report(number * len(tasks) + place, total, f"{task.arch}, rows {rows.start} to {rows.stop - 1}")
            outputs = task.run(rows, slice(None), depth, c)
            if not place:
                baseline = outputs.view(np.uint64)
            figures.differing += int((outputs.view(np.uint64) != baseline).sum())
            figures.take(outputs, exact, start, size)
    errors = []
    for place, (task, figures) in enumerate(zip(tasks, totals, strict=True)):
        if report is not None:
            report(total - len(tasks) + place, total, f"{task.arch}, growth with k")
        errors.append(_errors(task, figures, a, b, added))
    shape = (height, width, depth)
    return ErrorReport(spell(first.form), shape, first.rule.d, tuple(errors), against is not None)


@dataclass(frozen=True)
class MeasuredTask:
    """What is computed: which product, where, in which order."""

    taken: Product
    arch: str
    order: Order
    threads: int | None
    backend: str

    def check(self) -> None:
        """Refuse an order that this product cannot have, before anything is computed."""
        if not isinstance(self.order, Order):
            msg = f"order: expected a wf.Order, got {quote(self.order)}"
            raise InvalidOperand(msg)
        rule = self.taken.rule
        self.order.chains(self.taken.operands.depth, rule.k, FORMATS[rule.a].bits)

    def run(self, rows: slice, columns: slice, depth: int, c: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Some rows and columns of the product of the first `depth` of k, by warpfrag."""
        rule, operands = self.taken.rule, self.taken.operands
        codes = gemm(
            operands.a[0, rows, :depth],
            operands.b[0, :depth, columns],
            None if c is None else codes_of(FORMATS[rule.c], c, raw=False, rounding=None, what="C"),
            instruction=spell(self.taken.form),
            arch=self.arch,
            order=self.order,
            raw=True,
            **self._scales(rows, columns, depth),
            threads=self.threads,
            backend=self.backend,
        )
        return from_codes(FORMATS[rule.d], codes).astype(np.float64)

    def _scales(self, rows: slice, columns: slice, depth: int) -> dict[str, Any]:
        """The scale factors of some rows and columns, as far as the first `depth` of k has them."""
        operands = self.taken.operands
        if operands.scale_a is None or operands.scale_b is None:
            return {}
        count = -(-depth // _block(self.taken))
        return {"scale_a": operands.scale_a[0, rows, :count], "scale_b": operands.scale_b[0, :count, columns]}


def _block(taken: Product) -> int:
    """How much of k shares a scale factor."""
    scales = taken.operands.scale_a
    steps = max(1, -(-taken.operands.depth // taken.form.shape.k))
    each = 1 if scales is None else scales.shape[-1] // steps
    return taken.form.shape.k // each


def _unquantised(against: object, taken: Product) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrices to compare with: of the extents of A and B."""
    if not isinstance(against, tuple | list) or len(against) != 2:
        msg = f"against: expected A and B before they were quantised, got {quote(against)}"
        raise InvalidOperand(msg)
    values = []
    for what, matrix, codes in zip("AB", against, (taken.operands.a[0], taken.operands.b[0]), strict=True):
        array = as_array(matrix, f"against, {what}")
        if array.shape != codes.shape:
            msg = f"against: {what} is {array.shape}, and what was multiplied {codes.shape}"
            raise InvalidOperand(msg)
        values.append(_finite(as_doubles(array), what))
    return values[0], values[1]


def _listed(what: str, argument: object) -> list[Any]:
    if not isinstance(argument, list | tuple) or not argument:
        msg = f"{what}: expected one, or a list of at least one; got {quote(argument)}"
        raise InvalidOperand(msg)
    return list(argument)


def _values(taken: Product, role: str) -> NDArray[np.float64]:
    """What the tensor core reads of an operand, as float64."""
    values = values_of(FORMATS[getattr(taken.rule, role)], getattr(taken.operands, role)[0])
    scales = getattr(taken.operands, f"scale_{role}")
    if scales is not None:
        factors = values_of(FORMATS[taken.form.scale_type], scales[0])
        axis = 1 if role == "a" else 0
        values = values * np.repeat(factors, _block(taken), axis=axis).take(range(taken.operands.depth), axis=axis)
    return _finite(values, role.upper())


def _finite(values: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
        msg = f"{what}: element {place} is {values[place]}: there is no exact result to compare with"
        raise InvalidOperand(msg)
    return values


def _added(C: ArrayLike, taken: Product) -> NDArray[np.float64]:
    """C as float64; it must be exact in its format."""
    values = as_array(C, "C")
    if values.shape != taken.shape or values.dtype.kind not in "biuf":
        msg = f"C: expected {' x '.join(map(str, taken.shape))} numbers, got {values.dtype} of shape {values.shape}"
        raise InvalidOperand(msg)
    codes_of(FORMATS[taken.rule.c], values, raw=False, rounding=None, what="C")  # refuses what is not exact
    return _finite(as_doubles(values), "C")


def _exact(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None) -> ExactArray:
    exact = exact_product(a, b)
    return exact if c is None else exact.plus(exact_numbers(c))


def magnitude(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """|A||B| + |C|, exact and rounded once."""
    exact = _exact(np.abs(a), np.abs(b), None if c is None else np.abs(c))
    scale = Fraction(2) ** exact.exponent
    flat = [float(units * scale) for units in exact.units.reshape(-1).tolist()]
    return np.array(flat).reshape(exact.units.shape)


def _errors(
    task: MeasuredTask, figures: Figures, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None
) -> Errors:
    if not figures.count:
        msg = f"{spell(task.taken.form)} on {task.arch}: no output is finite"
        raise NotModelled(msg)
    worst = figures.worst
    edges, counts = figures.histogram()
    return Errors(
        arch=task.arch,
        order=task.order,
        outputs=figures.count,
        nonfinite=figures.nonfinite,
        summary=figures.facts(),
        row=worst.row,
        col=worst.col,
        computed=worst.computed,
        exact=worst.exact,
        growth=tuple(_growth(task, a, b, c)),
        edges=edges,
        counts=counts,
        steps=tuple(_steps(task, worst.row, worst.col, c)),
        differing=figures.differing,
    )


class Worst(NamedTuple):
    """An output, and its error in ulps without its sign."""

    ulps: Fraction
    row: int
    col: int
    computed: float
    exact: Fraction


class Figures:
    """Errors in ulps as exact fractions, and what follows from them; some rows of a product at a time."""

    def __init__(self, result: str) -> None:
        """No outputs yet, of this format."""
        self.format = FORMATS[result]
        self.count = self.nonfinite = self.differing = 0
        self.worst = Worst(Fraction(-1), 0, 0, 0.0, Fraction(0))
        self.ulps: list[NDArray[np.float64]] = []
        self.relative: list[NDArray[np.float64]] = []
        self.to_magnitude: list[NDArray[np.float64]] = []
        self.sum = self.squares = self.error_squares = self.exact_squares = self.largest_error = Fraction(0)

    def take(
        self,
        computed: NDArray[np.float64],
        exact: ExactArray,
        first_row: int = 0,
        size: NDArray[np.float64] | None = None,
    ) -> None:
        """Compare some rows; `size` is their |A||B| + |C|."""
        finite = np.isfinite(computed)
        places = np.argwhere(finite)
        count = len(places)
        self.count += count
        self.nonfinite += computed.size - count
        if not count:
            return
        actual = exact_numbers(np.where(finite, computed, 0.0))
        exponent = min(actual.exponent, exact.exponent)
        truth = exact.at_exponent(exponent)
        differences = (actual.at_exponent(exponent) - truth)[finite].tolist()
        truths = truth[finite].tolist()
        row = self.format
        if row.is_float:
            smallest, below = row.emin - row.fraction, exponent - row.fraction - 1
            lowest = [max(value.bit_length() + below, smallest) if value else smallest for value in truths]
        else:
            lowest = [0] * count
        # an error in ulps is difference * 2**(exponent - lowest): kept as whole numbers of 2**-scale
        scale = max([place - exponent for place in lowest] + [0])
        ulps = [
            difference << (scale - (place - exponent)) for difference, place in zip(differences, lowest, strict=True)
        ]
        unit = 1 << scale
        self.ulps.append(np.array([value / unit for value in ulps]))
        self.relative.append(
            np.array([difference / abs(value) for difference, value in zip(differences, truths, strict=True) if value])
        )
        self.sum += Fraction(sum(ulps), unit)
        self.squares += Fraction(sum(value * value for value in ulps), unit * unit)
        square = Fraction(2) ** (2 * exponent)
        self.largest_error = max(self.largest_error, max(map(abs, differences)) * Fraction(2) ** exponent)
        if size is not None:
            unit_of = Fraction(2) ** exponent
            errors = np.array([float(difference * unit_of) for difference in differences])
            self.to_magnitude.append(errors / np.where(size[finite] > 0, size[finite], 1.0))
        self.error_squares += sum(value * value for value in differences) * square
        self.exact_squares += sum(value * value for value in truths) * square
        largest = max(range(count), key=lambda index: abs(ulps[index]))
        error = Fraction(abs(ulps[largest]), unit)
        if error > self.worst.ulps:
            at, col = (int(index) for index in places[largest])
            truth_there = Fraction(truths[largest]) * Fraction(2) ** exponent
            self.worst = Worst(error, first_row + at, col, float(computed[at, col]), truth_there)

    @property
    def normwise(self) -> float:
        """The root mean square error divided by the root mean square of the exact outputs."""
        return math.sqrt(self.error_squares / self.exact_squares) if self.exact_squares else 0.0

    def facts(self) -> Summary:
        """Largest, root mean square and mean."""
        count = sum(map(len, self.relative))
        relative = self.relative if count else [np.zeros(1)]
        count = count or 1
        return Summary(
            largest_ulps=float(self.worst.ulps),
            rms_ulps=math.sqrt(self.squares / self.count),
            mean_ulps=float(self.sum / self.count),
            largest_relative=max(float(np.abs(part).max(initial=0.0)) for part in relative),
            rms_relative=math.sqrt(math.fsum(value * value for part in relative for value in part.tolist()) / count),
            mean_relative=math.fsum(value for part in relative for value in part.tolist()) / count,
            **self.sizes(),
        )

    def sizes(self) -> dict[str, float | None]:
        """Errors relative to `|A||B| + |C|`, where that is known, and to the root mean square of the results."""
        parts = self.to_magnitude
        rms = math.sqrt(self.exact_squares / self.count)
        squares = math.fsum(value * value for part in parts for value in part.tolist())
        return {
            "largest_to_magnitude": max(float(np.abs(part).max(initial=0.0)) for part in parts) if parts else None,
            "rms_to_magnitude": math.sqrt(squares / self.count) if parts else None,
            "largest_to_rms": float(self.largest_error) / rms if rms else 0.0,
            "rms_to_rms": self.normwise,
        }

    def histogram(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Counts in bins of equal width, a power of two, around zero; the outermost two have what is beyond, too.

        Outputs that nearly cancel have errors of thousands of ulps: nine of ten outputs choose the width.
        """
        values = np.concatenate(self.ulps)
        typical = float(np.quantile(np.abs(values), 0.9)) or 0.5
        width = 2.0 ** math.ceil(math.log2(2 * typical / BINS))
        edges = (np.arange(BINS + 1) - BINS / 2) * width
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        return tuple(edges.tolist()), tuple(counts.tolist())


def _growth(
    task: MeasuredTask, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64] | None
) -> list[Growth]:
    """Errors of the products of the first k, k doubling."""
    depth, rule = a.shape[1], task.taken.rule
    some = slice(MAX_GROWTH)
    c = None if c is None else c[some, some]
    lengths = [rule.k << place for place in range(64) if rule.k << place < depth] + [depth]
    growth = []
    for length in lengths:
        figures = Figures(rule.d)
        figures.take(task.run(some, some, length, c), _exact(a[some, :length], b[:length, some], c))
        if figures.count:
            facts = figures.facts()
            growth.append(Growth(length, facts.largest_ulps, facts.rms_ulps, figures.normwise))
    return growth


def _steps(task: MeasuredTask, row: int, col: int, added: NDArray[np.float64] | None) -> list[TraceStep]:
    """How one output came about."""
    if not task.order.carries_c or task.order.residue:
        return []
    taken = task.taken
    rule = taken.rule
    depth = taken.operands.depth
    padding = max(1, -(-depth // rule.k)) * rule.k - depth
    a = np.pad(taken.operands.a[0, row], (0, padding))
    b = np.pad(taken.operands.b[0, :, col], (0, padding))
    c = 0 if added is None else FORMATS[rule.c].encode(float(added[row, col]))
    columns = None
    if taken.operands.pattern is not None:
        stored, fields = compress(taken.operands.pattern, a[None])
        a, columns = stored[0], logical_columns(taken.operands.pattern, fields)[0].tolist()
    scales = {}
    if taken.operands.scale_a is not None and taken.operands.scale_b is not None:
        scales = {
            "scale_a": taken.operands.scale_a[0, row].tolist(),
            "scale_b": taken.operands.scale_b[0, :, col].tolist(),
        }
    return trace(rule, a.tolist(), b.tolist(), c, columns=columns, **scales)
