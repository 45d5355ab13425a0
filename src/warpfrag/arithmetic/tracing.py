"""What happened to one output, step by step: the answer to "why one ulp off"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True)
class Term:
    """One summand of a step: a product, a scaled group of products, or C.

    kept * 2**(common_exponent - fraction_bits) is what entered the sum; `lost` is the exact rest.
    """

    name: str
    value: Fraction | None  # None for an infinity or NaN
    exponent: int | None  # None for a zero, which has no say in the common exponent
    kept: int
    lost: Fraction


@dataclass(frozen=True)
class TraceStep:
    """One step of one output.

    `common_exponent` and `fraction_bits` are None where the step does not align its terms. `total` is the sum of what
    was kept, in units of 2**(common_exponent - fraction_bits).
    """

    rule: str
    terms: tuple[Term, ...]
    common_exponent: int | None
    fraction_bits: int | None
    total: int | None
    rounding: str
    result_format: str
    result: int
