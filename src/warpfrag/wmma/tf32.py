"""The conversion from float to tf32."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from warpfrag.formats.number_formats import FORMATS
from warpfrag.wmma.types import as_real

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

UNUSED = FORMATS["tf32"].unused
LOW_BITS = np.uint32((1 << UNUSED) - 1)
HALF_A_STEP = np.uint32(1 << (UNUSED - 1))
QUIET = np.uint32(1 << (FORMATS["f32"].fraction - 1))


@overload
def float_to_tf32(values: float) -> np.float32: ...


@overload
def float_to_tf32(values: Sequence[float] | NDArray[np.generic]) -> NDArray[np.float32]: ...


def float_to_tf32(values: ArrayLike) -> np.float32 | NDArray[np.float32]:
    """Round floats to tf32: to nearest, ties away from zero, as PTX's cvt.rna.tf32.f32 does; the low 13 bits are zero.

    What is nearer to 2**128 than to the largest tf32 becomes an infinity. A NaN stays a NaN and becomes quiet.

        >>> from warpfrag import wmma
        >>> wmma.float_to_tf32(1 + 2**-11), wmma.float_to_tf32(-1 - 2**-12)
        (np.float32(1.0009766), np.float32(-1.0))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and quiet NaNs come of it, as in C++
        floats = as_real(values, "float_to_tf32").astype(np.float32)
    codes = floats.view(np.uint32)
    # the exponent stands above the fraction, so that a carry out of the fraction steps the exponent as it should
    rounded = np.where(np.isnan(floats), codes | QUIET, codes + np.where(np.isnan(floats), np.uint32(0), HALF_A_STEP))
    result: NDArray[np.float32] = (rounded & ~LOW_BITS).view(np.float32)
    return result[()]  # of one value, a number
