"""Which loops do the steps of a fused rule. Nothing here needs numba: the canary asks before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from warpfrag.arithmetic.rules import Fused, Scaled
from warpfrag.numerics.formats import FORMATS

if TYPE_CHECKING:
    from warpfrag.arithmetic.rules import Rule

LEAST_COMMON: Final = -100
"""A step with a lower common exponent is not for the vector loops; with this one every sum is 0 or a normal f32."""
SHORT: Final = 8
"""Products of a short step, at most: their sum fits 32 bits, and their signs fit a byte."""


class Way(NamedTuple):
    """What tells one set of loops from another; of a rule that is not fused, only whether A is sparse."""

    is_sparse: bool
    adds_c_last: bool = False
    is_narrow: bool = False
    """It has floors under exponents that the vector loops reach: under C's, or under the common one."""
    is_short: bool = False
    """`short_steps` does the steps of blocks whose exponents allow it."""


def way_of(rule: Rule) -> Way:
    """By the numbers of a rule."""
    if not isinstance(rule, Fused):
        return Way(rule.is_sparse)
    c_floor = FORMATS[rule.c_read_as].emin if rule.c == "f16" else LEAST_COMMON  # an f32 has its own exponent
    is_narrow = max(rule.sum.zero_exponent, c_floor) > LEAST_COMMON
    is_plain = not (is_narrow or rule.is_sparse or rule.adds_c_last or isinstance(rule, Scaled))
    is_short = is_plain and len(rule.steps[0]) <= SHORT and rule.sum.rounding == "RZ-FP32"
    return Way(rule.is_sparse, rule.adds_c_last, is_narrow, is_short)
