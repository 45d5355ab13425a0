"""Block-scaled 4-bit floats: exact sums of sixteen products, each scaled, then one truncated sum."""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Real, Whole, entry, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.rounding import NAN_F32, truncate_f32
from warpfrag.arithmetic.kernels.scalar import exponent_of, power_of_two, shifted

SCALE_FRACTION = 3  # scales come as integers with three fraction bits and an exponent
PRODUCT_FRACTION = 2  # elements come doubled, so that they are integers


@inner
def has_product(a: Array, b: Array, row: Whole, column: Whole, first: Whole, group: Whole) -> Flag:
    """Whether any product of a group is not zero."""
    for k in range(first, first + group):  # noqa: SIM110 (numba compiles no generators here)
        if a[row, k] != 0 and b[k, column] != 0:
            return True
    return False


@inner
def grouped_output(
    a: Array,
    b: Array,
    column: Whole,
    accumulator: Real,
    row: Whole,
    scale_a: Array,
    scale_b: Array,
    exponent_a: Array,
    exponent_b: Array,
    first: Whole,
    depth: Whole,
    group: Whole,
    scales: Whole,
    keep: Whole,
    floor: Whole,
) -> Real:
    """One instruction for one output, from k = first on."""
    block = depth // scales
    common = np.int64(floor)
    for start in range(first, first + depth, group):
        scale = start // block
        exponent = np.int64(exponent_a[row, scale]) + np.int64(exponent_b[scale, column])
        if exponent >= at.ANY_NAN_SCALE:
            return np.nan
        present = scale_a[row, scale] != 0 and scale_b[scale, column] != 0
        if present and has_product(a, b, row, column, start, group):
            common = max(common, exponent)
    if np.isnan(accumulator) or abs(accumulator) == np.inf:
        return accumulator
    if accumulator != 0.0:
        common = max(common, exponent_of(accumulator, -126))
    total = np.int64(accumulator * power_of_two(keep - common))
    for start in range(first, first + depth, group):
        scale = start // block
        exact = np.int64(0)
        for k in range(start, start + group):
            exact += np.int64(a[row, k]) * np.int64(b[k, column])
        exact *= np.int64(scale_a[row, scale]) * np.int64(scale_b[scale, column])
        exponent = np.int64(exponent_a[row, scale]) + np.int64(exponent_b[scale, column])
        total += shifted(exact, exponent - common + keep - PRODUCT_FRACTION - 2 * SCALE_FRACTION)
    return truncate_f32(np.float64(total) * power_of_two(common - keep), 23)


@entry
def grouped_tiles(
    a: Array,
    b: Array,
    c: Array,
    scale_a: Array,
    scale_b: Array,
    exponent_a: Array,
    exponent_b: Array,
    depth: Whole,
    group: Whole,
    scales: Whole,
    keep: Whole,
    floor: Whole,
    out: Array,
    first_tile: Whole,
    last_tile: Whole,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Some rows of some tiles; elements doubled, scales as integers and exponents, C and D as f32 codes."""
    for tile in range(first_tile, last_tile):
        for i in range(first_row, last_row):
            for j in range(b.shape[2]):
                accumulator = np.float64(f32_of_bits(np.int32(c[tile, i, j])))
                for first in range(0, a.shape[2], depth):
                    accumulator = grouped_output(
                        a[tile],
                        b[tile],
                        j,
                        accumulator,
                        i,
                        scale_a[tile],
                        scale_b[tile],
                        exponent_a[tile],
                        exponent_b[tile],
                        first,
                        depth,
                        group,
                        scales,
                        keep,
                        floor,
                    )
                if np.isnan(accumulator):
                    out[tile, i, j] = NAN_F32
                else:
                    out[tile, i, j] = np.uint32(bits_of_f32(np.float32(accumulator)))
