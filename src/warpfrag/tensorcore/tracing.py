"""What happened to one output, step by step: the answer to "why one ulp off"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.numbers import round_code


@dataclass(frozen=True)
class TraceTerm:
    """One summand of a step: a product, a scaled group of products, or C.

    kept * 2**(common_exponent - fraction_bits) is what entered the sum; `lost` is the exact rest.
    """

    name: str
    value: Fraction | float  # a float only for an infinity or NaN
    exponent: int | None  # None for a zero, which has no say in the common exponent
    kept: int
    lost: Fraction


@dataclass(frozen=True)
class TraceStep:
    """One step of one output.

    `common_exponent`, `fraction_bits` and `total` are None where the step does not align its terms: because of its
    rule, or because one of them is infinite or NaN. `total` is the sum of what was kept, in units of
    2**(common_exponent - fraction_bits).
    """

    rule: str
    terms: tuple[TraceTerm, ...]
    common_exponent: int | None
    fraction_bits: int | None
    total: int | None
    rounding: str
    result_format: str
    result: int

    @property
    def special(self) -> str | None:
        """Which terms make the result infinite or NaN; None where every term is finite."""
        values = {term.name: term.value for term in self.terms if isinstance(term.value, float)}
        nan = [name for name, value in values.items() if math.isnan(value)]
        if nan:
            return _are(nan, "NaN")
        if len(set(values.values())) > 1:
            return "infinities of both signs"
        return _are([*values], "infinite") if values else None

    @property
    def exact_sum(self) -> Fraction | None:
        """The sum of the terms before anything is truncated; None where the step does not align them."""
        if self.common_exponent is None:
            return None
        return sum((term.value for term in self.terms if isinstance(term.value, Fraction)), Fraction(0))

    @property
    def nearest(self) -> int | None:
        """The code that is nearest to the exact sum; never that of -0, which no step gives."""
        exact = self.exact_sum
        if exact is None:
            return None
        exponent = 1 - exact.denominator.bit_length()  # the denominator is a power of two
        code = round_code(self.result_format, exact < 0, abs(exact.numerator), exponent, "rn")
        return 0 if code == FORMATS[self.result_format].sign_bit else code

    @property
    def ulps_above_nearest(self) -> int | None:
        """How many values of the format the result lies above the nearest one; negative below it."""
        nearest = self.nearest
        return None if nearest is None else self._place(self.result) - self._place(nearest)

    def _place(self, code: int) -> int:
        """The place of a code among the values of the format in rising order, counted from zero."""
        sign = FORMATS[self.result_format].sign_bit
        return -(code ^ sign) if code & sign else code


def _are(names: list[str], what: str) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {what}"
