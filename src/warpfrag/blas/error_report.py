"""Error reports: how far a gemm is from the exact result, for each architecture and order of additions.

`measure_errors` computes a report, a few rows at a time, with `ErrorStatistics`. The exact result is computed
with integers. An ulp is the distance between adjacent values of D's format at the result. Statistics in ulps come from
exact errors and are rounded only once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from warpfrag.blas.order import Order
from warpfrag.formats.arrays import Doubles
from warpfrag.formats.exact_sums import ExactArray, exact_numbers, exact_product
from warpfrag.formats.number_formats import FORMATS
from warpfrag.html import TextCard, table_lines
from warpfrag.layout.providers import figure_svg
from warpfrag.tensorcore.reference import TraceStep


@dataclass(frozen=True)
class Growth:
    """The errors of a gemm over its first k terms.

    `normwise` is the root mean square error divided by the root mean square of the exact outputs: unlike errors in
    ulps, it is not dominated by the few outputs that nearly cancel.
    """

    k: int
    largest_ulps: float
    rms_ulps: float
    normwise: float


@dataclass(frozen=True)
class Summary:
    """The largest, the root mean square and the mean error, each in ulps and relative to the exact result."""

    largest_ulps: float
    rms_ulps: float
    mean_ulps: float
    largest_relative: float
    rms_relative: float
    mean_relative: float
    largest_to_magnitude: float | None = None
    """The largest error relative to `|A||B| + |C|`; outputs that nearly cancel do not dominate it."""
    rms_to_magnitude: float | None = None
    largest_to_rms: float | None = None
    """The largest error relative to the root mean square of the exact results."""
    rms_to_rms: float | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Errors(Summary):
    """The errors of one architecture and order, as computed minus exact; a negative mean is a downward bias.

    `outputs` is the number of finite outputs, on which all figures are based; relative errors omit outputs whose exact
    value is 0.
    """

    arch: str
    order: Order
    outputs: int
    nonfinite: int
    row: int
    col: int
    computed: float
    exact: Fraction
    growth: tuple[Growth, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    steps: tuple[TraceStep, ...]
    """The trace of the output with the largest error; empty if its order is not a single chain."""
    differing: int = 0
    """The number of outputs whose bits differ from those of the report's first architecture and order."""

    def __repr__(self) -> str:
        """Format the architecture, and the largest and root mean square errors."""
        return f"<Errors of {self.name}: largest {self.largest_ulps:.4g} ulps, rms {self.rms_ulps:.4g} ulps>"

    @property
    def name(self) -> str:
        """The architecture, with the order if it is not the default."""
        return self.arch if self.order == Order() else f"{self.arch}, {self.order}"

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        left_out = {"exact", "steps", "order", "growth"}
        return {
            **{field: getattr(self, field) for field in self.__dataclass_fields__ if field not in left_out},
            "edges": list(self.edges),
            "counts": list(self.counts),
            "order": asdict(self.order),
            "exact": f"{self.exact.numerator}/{self.exact.denominator}",
            "growth": [asdict(point) for point in self.growth],
        }


@dataclass(frozen=True)
class ErrorReport(TextCard):
    """The errors of one gemm on several architectures and in several orders."""

    instruction: str
    shape: tuple[int, int, int]
    result: str
    errors: tuple[Errors, ...]
    is_unquantised: bool = False
    """True if D is compared with the product of the matrices before quantization."""
    note: str = ""
    """A note if float32 operands were truncated to tf32, otherwise ""."""

    def __iter__(self) -> Iterator[Errors]:
        """Iterate over the errors of each architecture and order."""
        return iter(self.errors)

    def _rows(self) -> list[list[str]]:
        """Return the table: a heading and one row per architecture and order."""
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
        """Return the report as a table."""
        heads, *rows = self._rows()
        body = table_lines(heads, rows, right=range(1, len(heads)))
        exact = "given" if self.is_unquantised else "truncated"
        note = [f"note: {self.note}; errors are relative to the product of the {exact} operands"] * bool(self.note)
        return "\n".join([self._title, *body, *self._differences(), *note])

    def _differences(self) -> list[str]:
        """Return a line for each entry but the first: the number of outputs whose bits differ from the first's."""
        first = self.errors[0]
        lines = []
        for other in self.errors[1:]:
            total = other.outputs + other.nonfinite
            same = f"the same bits in all {total} outputs" if total > 1 else "the same bits"
            how = f"different bits in {other.differing} of {total} outputs" if other.differing else same
            lines.append(f"{first.name} and {other.name}: {how}")
        return lines

    def __repr__(self) -> str:
        """Format the gemm, and the largest error on each architecture."""
        largest = ", ".join(f"{errors.name}: {errors.largest_ulps:.4g}" for errors in self.errors)
        return f"<ErrorReport of {self._title}\n largest {largest}>"

    def to_dict(self) -> dict[str, object]:
        """Return all fields except the trace as JSON-compatible values."""
        return {
            "instruction": self.instruction,
            "shape": list(self.shape),
            "result": self.result,
            "unquantised": self.is_unquantised,
            "note": self.note,
            "errors": [errors.to_dict() for errors in self.errors],
        }

    def svg(self, *, theme: str = "auto") -> str:
        """Return an SVG figure: a histogram of the errors, and their growth with k."""
        return figure_svg(self, theme)


BINS = 32


class Worst(NamedTuple):
    """The output with the largest error so far: its error in ulps, position, computed value and exact value."""

    ulps: Fraction
    row: int
    col: int
    computed: float
    exact: Fraction


class ErrorStatistics:
    """Error statistics in ulps, computed from exact fractions, a few rows of a gemm at a time."""

    def __init__(self, result: str) -> None:
        """Create empty statistics; `result` is the format of D."""
        self.format = FORMATS[result]
        self.count = self.nonfinite = self.differing = 0
        self.worst = Worst(Fraction(-1), 0, 0, 0.0, Fraction(0))
        self.ulps: list[Doubles] = []
        self.relative: list[Doubles] = []
        self.to_magnitude: list[Doubles] = []
        self.sum = self.squares = self.error_squares = self.exact_squares = self.largest_error = Fraction(0)

    def take(self, computed: Doubles, exact: ExactArray, first_row: int = 0, size: Doubles | None = None) -> None:
        """Add the errors of some rows of D; `size` is |A||B| + |C| for these rows."""
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
        # an error is difference * 2**(exponent - lowest) ulps; it is stored as an integer multiple of 2**-scale
        scale = max([place - exponent for place in lowest] + [0])
        ulps = [gap << (scale - (place - exponent)) for gap, place in zip(differences, lowest, strict=True)]
        unit = 1 << scale
        self.ulps.append(np.array([value / unit for value in ulps]))
        self.relative.append(
            np.array([difference / abs(value) for difference, value in zip(differences, truths, strict=True) if value])
        )
        self.sum += Fraction(sum(ulps), unit)
        self.squares += Fraction(sum(value * value for value in ulps), unit * unit)
        unit_of = Fraction(2) ** exponent
        square = unit_of * unit_of
        self.largest_error = max(self.largest_error, max(map(abs, differences)) * unit_of)
        if size is not None:
            errors = np.array([float(difference * unit_of) for difference in differences])
            self.to_magnitude.append(errors / np.where(size[finite] > 0, size[finite], 1.0))
        self.error_squares += sum(value * value for value in differences) * square
        self.exact_squares += sum(value * value for value in truths) * square
        largest = max(range(count), key=lambda index: abs(ulps[index]))
        error = Fraction(abs(ulps[largest]), unit)
        if error > self.worst.ulps:
            at, col = (int(index) for index in places[largest])
            self.worst = Worst(error, first_row + at, col, float(computed[at, col]), truths[largest] * unit_of)

    @property
    def normwise(self) -> float:
        """The root mean square error, divided by the root mean square of the exact outputs."""
        return math.sqrt(self.error_squares / self.exact_squares) if self.exact_squares else 0.0

    def facts(self) -> Summary:
        """Return the summary of all errors that were added."""
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
        """Return errors relative to `|A||B| + |C|`, if known, and to the root mean square of the exact results."""
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
        """Return a histogram around zero; the bin width is a power of two, and the outer bins include larger errors.

        Outputs that nearly cancel have errors of thousands of ulps, so the range covers only about 90 % of the outputs.
        """
        values = np.concatenate(self.ulps)
        typical = float(np.quantile(np.abs(values), 0.9)) or 0.5
        width = 2.0 ** math.ceil(math.log2(2 * typical / BINS))
        edges = (np.arange(BINS + 1) - BINS / 2) * width
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        return tuple(edges.tolist()), tuple(counts.tolist())


def exact_result(a: Doubles, b: Doubles, c: Doubles | None) -> ExactArray:
    """Return the exact A B + C, computed with integers."""
    exact = exact_product(a, b)
    return exact if c is None else exact.plus(exact_numbers(c))


def magnitude(a: Doubles, b: Doubles, c: Doubles | None) -> Doubles:
    """Return |A||B| + |C|, computed exactly and rounded once."""
    exact = exact_result(np.abs(a), np.abs(b), None if c is None else np.abs(c))
    scale = Fraction(2) ** exact.exponent
    flat = [float(units * scale) for units in exact.units.reshape(-1).tolist()]
    return np.array(flat).reshape(exact.units.shape)
