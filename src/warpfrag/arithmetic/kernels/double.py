"""f64: a chain of fused multiply-adds, k ascending, by the processor's own, with its rounding mode set.

NaNs follow the tensor core's rule, not the processor's: an output that ends as NaN is walked through again.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.compiled import Array, Flag, Whole, entry, inner, woven
from warpfrag.arithmetic.kernels.llvm import TO_NEAREST, bits_of_f64, f64_of_bits, fused_multiply_add, set_rounding

MAGNITUDE = np.int64((1 << 63) - 1)
INFINITY = np.int64(0x7FF << 52)
QUIET = np.int64(1 << 51)
MADE_NAN = np.int64(-(1 << 51))  # 0xFFF8000000000000
K_AT_ONCE = 16
COLUMNS_AT_ONCE = 256


@inner
def is_nan(bits: Whole) -> Flag:
    """Whether a code is a NaN."""
    return (bits & MAGNITUDE) > INFINITY


@inner
def multiply_add(a: Whole, b: Whole, c: Whole) -> Whole:
    """One link of the chain, with the tensor core's NaN rule: B's NaN before C's before A's, quieted."""
    if is_nan(b):
        return b | QUIET
    if is_nan(c):
        return c | QUIET
    if is_nan(a):
        return a | QUIET
    result = bits_of_f64(fused_multiply_add(f64_of_bits(a), f64_of_bits(b), f64_of_bits(c)))
    return MADE_NAN if is_nan(result) else result


@woven
def add_block(
    a: Array,
    b_values: Array,
    source: Array,
    out: Array,
    sums: Array,
    i: Whole,
    start: Whole,
    stop: Whole,
    first: Whole,
    last: Whole,
) -> None:
    """Some k of one row and some columns, from the codes in `source` to those in `out`; k counts in fours."""
    for j in range(stop - start):
        sums[j] = f64_of_bits(source[i, start + j])
    for k in range(first, last, 4):
        a0, a1 = f64_of_bits(a[i, k]), f64_of_bits(a[i, k + 1])
        a2, a3 = f64_of_bits(a[i, k + 2]), f64_of_bits(a[i, k + 3])
        row0, row1 = b_values[k, start:stop], b_values[k + 1, start:stop]
        row2, row3 = b_values[k + 2, start:stop], b_values[k + 3, start:stop]
        for j in range(stop - start):
            total = fused_multiply_add(a0, row0[j], sums[j])
            total = fused_multiply_add(a1, row1[j], total)
            total = fused_multiply_add(a2, row2[j], total)
            sums[j] = fused_multiply_add(a3, row3[j], total)
    for j in range(stop - start):
        out[i, start + j] = bits_of_f64(sums[j])


@entry
def double_product(
    a: Array,
    b: Array,
    b_values: Array,
    c: Array,
    rounding: Whole,
    out: Array,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Rows of D; a, b, c and out are codes as int64, `b_values` is B again as float64; `rounding` is a mode of `llvm`.

    Everything between the two modes is loaded and stored there.
    """
    depth, width = b.shape
    sums = np.empty(COLUMNS_AT_ONCE, np.float64)
    set_rounding(rounding)
    for start in range(0, width, COLUMNS_AT_ONCE):
        stop = min(width, start + COLUMNS_AT_ONCE)
        for first in range(0, depth, K_AT_ONCE):
            last = min(depth, first + K_AT_ONCE)
            source = c if first == 0 else out
            for i in range(first_row, last_row):
                add_block(a, b_values, source, out, sums, i, start, stop, first, last)
    for i in range(first_row, last_row):
        for j in range(width):
            if is_nan(out[i, j]):
                code = c[i, j]
                for k in range(depth):
                    code = multiply_add(a[i, k], b[k, j], code)
                out[i, j] = code
    set_rounding(TO_NEAREST)


@entry
def double_tiles(
    a: Array,
    b: Array,
    b_values: Array,
    c: Array,
    rounding: Whole,
    out: Array,
    first_tile: Whole,
    last_tile: Whole,
) -> None:
    """Whole tiles one after the other."""
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile the product twice
    for tile in range(first_tile, last_tile):
        double_product(a[tile], b[tile], b_values[tile], c[tile], rounding, out[tile], zero, a.shape[1])
