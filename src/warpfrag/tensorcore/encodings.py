"""The formats, scale factors and order of addition of a rule as numbers, for the kernels of every backend."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.tensorcore import reference
from warpfrag.tensorcore.rules import BlockScaled, Fused, Rule
from warpfrag.tensorcore.soft_floats import unpack

# the rounding at the end of a step
TO_F32_RZ: Final = 0
TO_F16_RN: Final = 1
TO_E8M13_RZ: Final = 2
ROUNDINGS = {"RZ-FP32": TO_F32_RZ, "RNE-FP16": TO_F16_RN, "RZ-E8M13": TO_E8M13_RZ}

NAN_SCALE: Final = 1 << 20
"""The exponent that represents a NaN scale factor."""
SCALE_FRACTION: Final = 3
"""The number of fraction bits in the significand of a scale factor."""
SCALE_BITS: Final = 8
"""The number of bits for the significand of a scale factor; the exponent is in the bits above."""


def encoding_of(fmt: Format) -> tuple[int, int, int, int, int, int]:
    """Return a format's fraction bits, bias, unused bits, sign bit, first special magnitude, and infinity (or -1)."""
    top = 1 << (fmt.exponent + fmt.fraction)
    special, infinity = (top - 1 if fmt.nan == "ones" else top), -1
    if fmt.nan == "ieee":
        special = infinity = top - (1 << fmt.fraction)
    return fmt.fraction, fmt.bias, fmt.unused, fmt.bits - 1, special, infinity


def order_of(rule: Fused, depth: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the order of addition over K, as the stored elements of A and the rows of B in each step.

    For a sparse A, rows 2 p and 2 p + 1 are listed for stored element p; it may multiply another row of its chunk.
    """
    once = np.array([place for step in rule.steps for place in step], np.int32)
    starts = np.arange(depth // rule.k, dtype=np.int32)[:, None]
    stored = (once + starts * np.int32(rule.stored)).reshape(-1)
    rows = (2 * stored[:, None] + np.arange(2, dtype=np.int32)).reshape(-1) if rule.is_sparse else stored
    return stored, rows


@lru_cache(32)
def conversion(source: str, target: str) -> NDArray[np.uint32]:
    """Return a table that maps the codes of a format to those of a wider format."""
    return np.array([reference.convert(code, source, target) for code in range(FORMATS[source].codes)], np.uint32)


def powers_of_two(codes: NDArray[Any]) -> NDArray[np.int32]:
    """Return the exponents that ue8m0 codes represent."""
    # contiguous even if the codes are a broadcast array
    exponents = codes.astype(np.int32, order="C") - FORMATS["ue8m0"].bias
    exponents[codes == FORMATS["ue8m0"].nan_code] = NAN_SCALE
    return exponents


@lru_cache(8)
def split_scales(name: str) -> NDArray[np.int32]:
    """Return a table that maps scale-factor codes to exponent << SCALE_BITS | significand."""
    scales = [unpack(name, code) for code in range(256)]
    exponents = [NAN_SCALE if scale.is_nan else scale.exponent for scale in scales]
    significands = [scale.significand << (SCALE_FRACTION - scale.fraction) for scale in scales]
    return np.array(exponents, np.int32) << SCALE_BITS | np.array(significands, np.int32)


MIN_COMMON_EXPONENT: Final = -100
"""The smallest common exponent for the vector loops; from it upwards, every sum is 0 or a normal f32."""
MAX_SHORT_PRODUCTS: Final = 16
"""The most products in a short step: their sum fits in 32 bits, and their signs in two bytes."""


class LoopVariant(NamedTuple):
    """The properties that select a set of loops; rules that are not fused use only `is_sparse`."""

    is_sparse: bool
    adds_c_last: bool = False
    is_narrow: bool = False
    """True if the lower bound of C's exponents, or of common exponents, is inside the range of the vector loops."""
    is_short: bool = False
    """True if `short_steps.h` can run the steps of a block whose exponents allow it."""


def loop_variant_of(rule: Rule) -> LoopVariant:
    """Return the loop variant of a rule."""
    if not isinstance(rule, Fused):
        return LoopVariant(rule.is_sparse)
    c_minimum = FORMATS[rule.c_read_as].emin if rule.c == "f16" else MIN_COMMON_EXPONENT
    is_narrow = max(rule.sum.zero_exponent, c_minimum) > MIN_COMMON_EXPONENT
    is_plain = not (is_narrow or rule.adds_c_last or isinstance(rule, BlockScaled))
    is_short = is_plain and len(rule.steps[0]) <= MAX_SHORT_PRODUCTS and rule.sum.rounding == "RZ-FP32"
    return LoopVariant(rule.is_sparse, rule.adds_c_last, is_narrow, is_short)
