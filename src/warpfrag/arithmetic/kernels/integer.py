"""Integer products: exact int32 sums, wrapped, or clamped once per instruction."""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.constants import unflatten_block
from warpfrag.arithmetic.kernels.jit import Array, Flag, Int, entry, inner

K_AT_ONCE = 128
BLOCK = 512  # columns of B that are packed together; their distance is a constant, so that LLVM makes vector code
INT32_MAX = (1 << 31) - 1
INT32_MIN = -(1 << 31)


@inner
def add_rows(line: Array, a_line: Array, b_lines: Array, at_rows: Array, base: Int, width: Int) -> None:
    """line[j] += a[k] * b[at_rows[k] - base, j]; the number of k is a multiple of 4."""
    for k in range(0, a_line.size, 4):
        a0, a1, a2, a3 = np.int32(a_line[k]), np.int32(a_line[k + 1]), np.int32(a_line[k + 2]), np.int32(a_line[k + 3])
        first0 = (at_rows[k] - base) * BLOCK
        first1 = (at_rows[k + 1] - base) * BLOCK
        first2 = (at_rows[k + 2] - base) * BLOCK
        first3 = (at_rows[k + 3] - base) * BLOCK
        row0 = b_lines[first0 : first0 + BLOCK]
        row1 = b_lines[first1 : first1 + BLOCK]
        row2 = b_lines[first2 : first2 + BLOCK]
        row3 = b_lines[first3 : first3 + BLOCK]
        for j in range(width):
            total = line[j]
            total = np.int32(total + np.int32(a0 * np.int32(row0[j])))
            total = np.int32(total + np.int32(a1 * np.int32(row1[j])))
            total = np.int32(total + np.int32(a2 * np.int32(row2[j])))
            total = np.int32(total + np.int32(a3 * np.int32(row3[j])))
            line[j] = total


@entry
def integer_block(
    a: Array,
    b: Array,
    rows: Array,
    sums: Array,
    stored: Int,
    depth: Int,
    clamp: Flag,
    bounds: Array,
) -> None:
    """Some outputs of some tiles onto `sums`, which holds C.

    rows[t, i, p] is the row of B that stored element p of A meets; where A is dense, there is one row for all. `stored`
    and `depth` are the elements of A's row and the rows of B in one instruction.
    """
    block = unflatten_block(bounds)
    instructions = a.shape[2] // stored
    at_once = max(1, K_AT_ONCE // depth)
    lines = np.empty(at_once * depth * BLOCK, np.int16)
    line = np.zeros(BLOCK, np.int32)
    for tile in range(block.first_tile, block.last_tile):
        rows_of_tile = rows[tile if rows.shape[0] > 1 else 0]
        for start in range(block.first_column, block.last_column, BLOCK):
            width = min(BLOCK, block.last_column - start)
            for first in range(0, instructions, at_once):
                last = min(instructions, first + at_once)
                base = first * depth
                for k in range(base, last * depth):
                    packed = lines[(k - base) * BLOCK : (k - base) * BLOCK + width]
                    for j in range(width):
                        packed[j] = b[tile, k, start + j]
                for i in range(block.first_row, block.last_row):
                    out = sums[tile, i, start : start + width]
                    met = rows_of_tile[i if rows_of_tile.shape[0] > 1 else 0]
                    if not clamp:
                        taken = slice(first * stored, last * stored)
                        add_rows(out, a[tile, i, taken], lines, met[taken], base, width)
                        continue
                    for instruction in range(first, last):
                        taken = slice(instruction * stored, (instruction + 1) * stored)
                        for j in range(width):
                            line[j] = np.int32(0)
                        add_rows(line, a[tile, i, taken], lines, met[taken], base, width)
                        for j in range(width):
                            total: Int = np.int64(out[j]) + np.int64(line[j])
                            out[j] = np.int32(min(max(total, INT32_MIN), INT32_MAX))
