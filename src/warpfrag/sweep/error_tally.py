"""Error statistics for blocks of D, which can be added in any order to get the statistics for the whole D.

Sums are exact and rounded only in the summary, so the figures equal those of `wf.error_report` for the whole GEMM. An
output is compared only if it and all of its inputs are finite.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.error_report import ErrorStatistics, Summary, magnitude
from warpfrag.formats.arrays import Doubles
from warpfrag.formats.exact_sums import exact_numbers, exact_product

ZERO = Fraction(0)


@dataclass(frozen=True)
class ErrorTally:
    """Counts and exact sums over a block's outputs; ulps and relative errors cover compared outputs only."""

    outputs: int = 0
    nonfinite: int = 0
    compared: int = 0
    ulps: Fraction = ZERO
    squared_ulps: Fraction = ZERO
    relatives: int = 0
    """The number of outputs with a relative error: those whose exact value is not 0."""
    relative: Fraction = ZERO
    squared_relative: Fraction = ZERO
    largest_relative: float = 0.0
    largest_ulps: Fraction = ZERO
    squared_to_magnitude: Fraction = ZERO
    largest_to_magnitude: float = 0.0
    squared_errors: Fraction = ZERO
    squared_results: Fraction = ZERO
    largest_error: Fraction = ZERO
    worst: tuple[int, int] | None = None
    """The row and column of the first output with the largest error in ulps."""

    def __add__(self, other: ErrorTally) -> ErrorTally:
        """Return the combined tally for two parts of D."""
        worst = [part for part in (self, other) if part.worst is not None]
        first = min(worst, key=lambda part: (-part.largest_ulps, part.worst), default=self)
        largest = ("largest_relative", "largest_to_magnitude", "largest_error")
        sums = [name for name in ErrorTally.__dataclass_fields__ if name not in {*largest, "largest_ulps", "worst"}]
        return ErrorTally(
            **{name: getattr(self, name) + getattr(other, name) for name in sums},
            **{name: max(getattr(self, name), getattr(other, name)) for name in largest},
            largest_ulps=first.largest_ulps,
            worst=first.worst,
        )

    def summary(self) -> Summary | None:
        """Return the largest, root mean square and mean errors, or None if no output was compared."""
        if not self.compared:
            return None
        rms = sqrt(self.squared_results / self.compared)
        return Summary(
            largest_ulps=float(self.largest_ulps),
            rms_ulps=sqrt(self.squared_ulps / self.compared),
            mean_ulps=float(self.ulps / self.compared),
            largest_relative=self.largest_relative,
            rms_relative=sqrt(float(self.squared_relative) / max(1, self.relatives)),
            mean_relative=float(self.relative) / max(1, self.relatives),
            largest_to_magnitude=self.largest_to_magnitude,
            rms_to_magnitude=sqrt(float(self.squared_to_magnitude) / self.compared),
            largest_to_rms=float(self.largest_error) / rms if rms else 0.0,
            rms_to_rms=sqrt(self.squared_errors / self.squared_results) if self.squared_results else 0.0,
        )

    def figures(self) -> dict[str, Any]:
        """Return the counts, the summary and the worst output as JSON-compatible values, for the store."""
        summary = self.summary()
        return {
            "outputs": self.outputs,
            "nonfinite": self.nonfinite,
            "compared": self.compared,
            "errors": None if summary is None else asdict(summary),
            "worst": None if self.worst is None else list(self.worst),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all fields without rounding, as JSON-compatible values.

        A fraction becomes two hexadecimal integers.
        """
        return {
            name: f"{value.numerator:x}/{value.denominator:x}" if isinstance(value, Fraction) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> ErrorTally:
        """Create a tally from a dictionary that `to_dict` returned."""
        parts = dict(stored)
        for name, field in cls.__dataclass_fields__.items():
            if isinstance(field.default, Fraction) and name in parts:
                numerator, denominator = parts[name].split("/")
                parts[name] = Fraction(int(numerator, 16), int(denominator, 16))
        if parts["worst"] is not None:
            parts["worst"] = tuple(parts["worst"])
        return cls(**parts)


def tally(D: NDArray[Any], a: Doubles | None, b: Doubles | None, result: str, start: tuple[int, int]) -> ErrorTally:
    """Return the error tally of the block at `start`; without `a` and `b`, no output is compared."""
    computed = D.astype(np.float64)
    nonfinite = int((~np.isfinite(computed)).sum())
    if a is None or b is None:
        return ErrorTally(outputs=D.size, nonfinite=nonfinite)
    rows, columns = np.flatnonzero(np.isfinite(a).all(axis=1)), np.flatnonzero(np.isfinite(b).all(axis=0))
    figures = ErrorStatistics(result)
    exact, size = exact_product(a[rows], b[:, columns]), magnitude(a[rows], b[:, columns], None)
    figures.take(computed[np.ix_(rows, columns)], exact, size=size)
    if not figures.count:
        return ErrorTally(outputs=D.size, nonfinite=nonfinite)
    relative, to_magnitude = np.concatenate(figures.relative), np.concatenate(figures.to_magnitude)
    return ErrorTally(
        outputs=D.size,
        nonfinite=nonfinite,
        compared=figures.count,
        ulps=figures.sum,
        squared_ulps=figures.squares,
        relatives=len(relative),
        relative=_exact_sum(relative),
        squared_relative=_exact_sum(relative * relative),
        largest_relative=float(np.abs(relative).max(initial=0.0)),
        squared_to_magnitude=_exact_sum(to_magnitude * to_magnitude),
        largest_to_magnitude=float(np.abs(to_magnitude).max(initial=0.0)),
        squared_errors=figures.error_squares,
        squared_results=figures.exact_squares,
        largest_error=figures.largest_error,
        largest_ulps=figures.worst.ulps,
        worst=(start[0] + int(rows[figures.worst.row]), start[1] + int(columns[figures.worst.col])),
    )


def _exact_sum(values: Doubles) -> Fraction:
    numbers = exact_numbers(values)
    return Fraction(sum(numbers.units.tolist())) * Fraction(2) ** numbers.exponent
