"""Which variant of the compiled loops runs a rule. This imports no numba: it is asked before anything is compiled."""

from __future__ import annotations

from typing import Final, NamedTuple

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.rules import Fused, Rule, Scaled

MIN_COMMON_EXPONENT: Final = -100
"""Of the vector loops: from this common exponent on every sum is 0 or a normal f32."""
MAX_SHORT_PRODUCTS: Final = 8
"""Products of a short step, at most: their sum fits 32 bits, and their signs fit a byte."""


class LoopVariant(NamedTuple):
    """What tells one set of loops from another; of a rule that is not fused, only whether A is sparse."""

    is_sparse: bool
    adds_c_last: bool = False
    is_narrow: bool = False
    """A lower bound of exponents, C's or the common one, lies in the range of the vector loops."""
    is_short: bool = False
    """`short_steps` does the steps of blocks whose exponents allow it."""


def loop_variant_of(rule: Rule) -> LoopVariant:
    """The variant, from the numbers of a rule."""
    if not isinstance(rule, Fused):
        return LoopVariant(rule.is_sparse)
    c_minimum = FORMATS[rule.c_read_as].emin if rule.c == "f16" else MIN_COMMON_EXPONENT  # an f32 has its own exponent
    is_narrow = max(rule.sum.zero_exponent, c_minimum) > MIN_COMMON_EXPONENT
    is_plain = not (is_narrow or rule.is_sparse or rule.adds_c_last or isinstance(rule, Scaled))
    is_short = is_plain and len(rule.steps[0]) <= MAX_SHORT_PRODUCTS and rule.sum.rounding == "RZ-FP32"
    return LoopVariant(rule.is_sparse, rule.adds_c_last, is_narrow, is_short)
