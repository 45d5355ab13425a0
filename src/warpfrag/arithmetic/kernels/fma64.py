"""f64: a chain of fused multiply-adds, k ascending, by the processor's own, with its rounding mode set.

NaNs follow the tensor core's rule, not the processor's: an output that ends as NaN is walked through again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.kernels.constants import unflatten_block
from warpfrag.arithmetic.kernels.control_word import give_environment_back, take_environment
from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, entry, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f64, f64_of_bits, fused_multiply_add

MAGNITUDE = np.int64((1 << 63) - 1)
INFINITY = np.int64(0x7FF << 52)
QUIET = np.int64(1 << 51)
MADE_NAN = np.int64(-(1 << 51))  # 0xFFF8000000000000
K_AT_ONCE = 16
COLUMNS_AT_ONCE = 256


@inner
def is_nan(bits: Int) -> Flag:
    """Whether a code is a NaN."""
    return (bits & MAGNITUDE) > INFINITY


@inner
def multiply_add(a: Int, b: Int, c: Int) -> Int:
    """One link of the chain, with the tensor core's NaN rule: B's NaN before C's before A's, quieted."""
    if is_nan(b):
        return b | QUIET
    if is_nan(c):
        return c | QUIET
    if is_nan(a):
        return a | QUIET
    result = bits_of_f64(fused_multiply_add(f64_of_bits(a), f64_of_bits(b), f64_of_bits(c)))
    return MADE_NAN if is_nan(result) else result


class Part(NamedTuple):
    """Some k of one row, for some columns."""

    row: Int
    first: Int
    last: Int
    start: Int
    stop: Int


@inlined
def add_products(a: Array, b: Array, source: Array, out: Array, sums: Array, part: Part) -> None:
    """From the codes in `source` to those in `out`; k counts in fours."""
    i, start, width = part.row, part.start, part.stop - part.start
    for j in range(width):
        sums[j] = f64_of_bits(source[i, start + j])
    for k in range(part.first, part.last, 4):
        a0, a1 = f64_of_bits(a[i, k]), f64_of_bits(a[i, k + 1])
        a2, a3 = f64_of_bits(a[i, k + 2]), f64_of_bits(a[i, k + 3])
        row0, row1 = b[k, start : part.stop], b[k + 1, start : part.stop]
        row2, row3 = b[k + 2, start : part.stop], b[k + 3, start : part.stop]
        for j in range(width):
            total = fused_multiply_add(a0, row0[j], sums[j])
            total = fused_multiply_add(a1, row1[j], total)
            total = fused_multiply_add(a2, row2[j], total)
            sums[j] = fused_multiply_add(a3, row3[j], total)
    for j in range(width):
        out[i, start + j] = bits_of_f64(sums[j])


@entry
def fma_block(
    a: Array,
    b: Array,
    b_values: Array,
    c: Array,
    control_word: Int,
    out: Array,
    bounds: Array,
) -> None:
    """Some outputs of some tiles; a, b, c and out are codes as int64, `b_values` is B again as float64."""
    block = unflatten_block(bounds)
    depth = b.shape[1]
    sums = np.empty(COLUMNS_AT_ONCE, np.float64)
    caller = take_environment(control_word)
    for tile in range(block.first_tile, block.last_tile):
        a_tile, b_tile, c_tile, out_tile = a[tile], b_values[tile], c[tile], out[tile]
        for start in range(block.first_column, block.last_column, COLUMNS_AT_ONCE):
            stop = min(block.last_column, start + COLUMNS_AT_ONCE)
            for first in range(0, depth, K_AT_ONCE):
                last = min(depth, first + K_AT_ONCE)
                source = c_tile if first == 0 else out_tile
                for i in range(block.first_row, block.last_row):
                    add_products(a_tile, b_tile, source, out_tile, sums, Part(i, first, last, start, stop))
        for i in range(block.first_row, block.last_row):
            for j in range(block.first_column, block.last_column):
                if is_nan(out_tile[i, j]):
                    code = c_tile[i, j]
                    for k in range(depth):
                        code = multiply_add(a_tile[i, k], b[tile, k, j], code)
                    out_tile[i, j] = code
    give_environment_back(caller)
