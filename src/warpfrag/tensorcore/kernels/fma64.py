"""f64: a chain of fused multiply-adds, k ascending, by the processor's own, with its rounding mode set.

NaNs follow the tensor core's rule, not the processor's: an output that ends as NaN is computed again, link by link.
"""

from __future__ import annotations

import numpy as np

from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.tensorcore.backend_protocol import OutputBlock
from warpfrag.tensorcore.kernels.constants import unflatten_block
from warpfrag.tensorcore.kernels.control_word import enter_environment, restore_environment
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inlined, inner
from warpfrag.tensorcore.kernels.llvm_helpers import bits_of_f64, f64_of_bits, fused_multiply_add
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    STRIP,
    ElementPointer,
    Four,
    add_lines,
    address,
    bitcast_address,
    load,
    store,
)

MAGNITUDE = np.int64((1 << 63) - 1)
INFINITY = np.int64(0x7FF << 52)
QUIET = np.int64(1 << 51)
NAN_F64 = np.uint64(CANONICAL_NANS["f64"]).astype(np.int64)
PANEL = 64  # k whose lines of B stay in the nearest cache while all rows pass
ROWS_AT_ONCE = 1024  # rows whose sums stay in the second cache while all of B passes
PITCH = np.uintp(COLUMNS)
PITCH2 = np.uintp(2 * COLUMNS)
PITCH3 = np.uintp(3 * COLUMNS)


@inner
def is_nan(bits: Int) -> Flag:
    """Return True if a code is a NaN."""
    return (bits & MAGNITUDE) > INFINITY


@inner
def fma_with_nan_rule(a: Int, b: Int, c: Int) -> Int:
    """Compute one link of the chain, with the tensor core's NaN rule: B's NaN before C's before A's, quieted."""
    if is_nan(b):
        return b | QUIET
    if is_nan(c):
        return c | QUIET
    if is_nan(a):
        return a | QUIET
    result = bits_of_f64(fused_multiply_add(f64_of_bits(a), f64_of_bits(b), f64_of_bits(c)))
    return NAN_F64 if is_nan(result) else result


@inlined
def add_products(
    sums: ElementPointer, at: Int, a: ElementPointer, rows: Four, lines: ElementPointer, depth: Int
) -> None:
    """Add the products of four rows of A with `depth` lines of B to their sums, the first row's at `at`."""
    partials = (
        load(sums, at, COLUMNS),
        load(sums, at + PITCH, COLUMNS),
        load(sums, at + PITCH2, COLUMNS),
        load(sums, at + PITCH3, COLUMNS),
    )
    sum0, sum1, sum2, sum3 = add_lines(partials, a, rows, lines, np.uintp(0), PITCH, depth)
    store(sums, at, sum0)
    store(sums, at + PITCH, sum1)
    store(sums, at + PITCH2, sum2)
    store(sums, at + PITCH3, sum3)


@inlined
def recompute_nans(a: Array, b: Array, c: Array, out: Array, block: OutputBlock, start: Int, stop: Int) -> None:
    """Recompute the outputs of some columns that are NaN."""
    for i in range(block.first_row, block.last_row):
        for j in range(start, stop):
            if is_nan(out[i, j]):
                code = c[i, j]
                for k in range(a.shape[1]):
                    code = fma_with_nan_rule(a[i, k], b[k, j], code)
                out[i, j] = code


@entry
def fma_block(a: Array, b: Array, c: Array, control_word: Int, out: Array, bounds: Array) -> None:
    """Compute some outputs of some tiles; all arrays hold codes as int64."""
    block = unflatten_block(bounds)
    rows, depth, height = a.shape[1], a.shape[2], block.last_row - block.first_row
    sums, lines = np.zeros((height + STRIP, COLUMNS), np.float64), np.zeros((PANEL, COLUMNS), np.float64)
    at_a, at_sums, at_lines = bitcast_address(address(a), np.float64), address(sums), address(lines)
    caller = enter_environment(control_word)
    for tile in range(block.first_tile, block.last_tile):
        a_tile, b_tile, c_tile, out_tile = a[tile], b[tile], c[tile], out[tile]
        first_row, last_row = tile * rows + block.first_row, tile * rows + block.last_row - 1
        for start in range(block.first_column, block.last_column, COLUMNS):
            stop = min(block.last_column, start + COLUMNS)
            for i in range(height):
                for j in range(start, stop):
                    sums[i, j - start] = f64_of_bits(c_tile[block.first_row + i, j])
            for first in range(0, depth, PANEL):
                last = min(depth, first + PANEL)
                for k in range(first, last):
                    for j in range(start, stop):
                        lines[k - first, j - start] = f64_of_bits(b_tile[k, j])
                for i in range(0, height, STRIP):
                    row = first_row + i
                    of_rows = (  # the last row replaces those past it, so that there are always four
                        np.uintp(row * depth + first),
                        np.uintp(min(row + 1, last_row) * depth + first),
                        np.uintp(min(row + 2, last_row) * depth + first),
                        np.uintp(min(row + 3, last_row) * depth + first),
                    )
                    add_products(at_sums, np.uintp(i) * PITCH, at_a, of_rows, at_lines, np.uintp(last - first))
            any_nan = False
            for i in range(height):
                for j in range(start, stop):
                    code = bits_of_f64(sums[i, j - start])
                    out_tile[block.first_row + i, j] = code
                    any_nan |= is_nan(code)
            if any_nan:
                recompute_nans(a_tile, b_tile, c_tile, out_tile, block, start, stop)
    restore_environment(caller)
