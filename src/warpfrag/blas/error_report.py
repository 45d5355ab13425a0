"""Error reports: how far a gemm is from the exact result, for each architecture and order of additions.

This module defines the report; `measure_errors` computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction

from warpfrag.blas.order import Order
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
    """The largest, the root mean square and the mean error."""

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
        facts = {field: getattr(self, field) for field in self.__dataclass_fields__ if field not in left_out}
        return {
            **facts,
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
        return "\n".join([self._title, *body, *self._differences()])

    def _differences(self) -> list[str]:
        """Return a line for each entry that counts the bits differing from the first entry's."""
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
            "errors": [errors.to_dict() for errors in self.errors],
        }

    def svg(self, *, theme: str = "auto") -> str:
        """Return an SVG figure: a histogram of the errors, and their growth with k."""
        return figure_svg(self, theme)
