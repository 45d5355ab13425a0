"""Approximate functions of constants, as ptxas computes them: the exact value rounded to f32, where it is no NaN.

A function that is a sequence around the special function unit stays one: only the unit's part is computed so. The sine
and the cosine are those of the number itself, however large. (2,141 results of f32, read from the code of ptxas 13.0.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.semantics.floats import flush, quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.types import Codes


def _rounded(function: Callable[[Codes], Codes], a: Codes) -> Codes:
    """A function of f32 in double precision, rounded; subnormal inputs and results are zeros."""
    with np.errstate(all="ignore"):
        values = function(flush(a, "f32").view(np.float32).astype(np.float64)).astype(np.float32)
    return flush(quiet(values.view(np.uint32), "f32"), "f32")


rcp = partial(_rounded, lambda x: 1.0 / x)
rsqrt = partial(_rounded, lambda x: 1.0 / np.sqrt(x))
sqrt = partial(_rounded, np.sqrt)
ex2 = partial(_rounded, np.exp2)
lg2 = partial(_rounded, np.log2)


def sin(a: Codes, *, ftz: bool) -> Codes:
    """The sine of a."""
    del ftz
    return _rounded(np.sin, a)


def cos(a: Codes, *, ftz: bool) -> Codes:
    """The cosine of a."""
    del ftz
    return _rounded(np.cos, a)
