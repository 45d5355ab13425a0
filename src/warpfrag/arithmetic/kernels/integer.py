"""Integer products: exact int32 sums, wrapped, or clamped once per instruction."""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.compiled import Array, Flag, Whole, entry, inner
from warpfrag.arithmetic.kernels.prepare import BLOCK

K_AT_ONCE = 128
LARGEST = (1 << 31) - 1
SMALLEST = -(1 << 31)


@inner
def add_rows(line: Array, a_line: Array, b_lines: Array, at_rows: Array, base: Whole, width: Whole) -> None:
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
def integer_product(
    a: Array,
    b: Array,
    rows: Array,
    sums: Array,
    stored: Whole,
    depth: Whole,
    clamp: Flag,
    first_row: Whole,
    last_row: Whole,
    first_column: Whole,
    last_column: Whole,
) -> None:
    """Rows and columns of D onto `sums`, which holds C; rows[i, p] is the row of B that stored element p of A meets.

    `stored` and `depth` are the elements of A's row and the rows of B in one instruction. `rows` has one row for all
    of A where A is dense.
    """
    instructions = a.shape[1] // stored
    at_once = max(1, K_AT_ONCE // depth)
    lines = np.empty(at_once * depth * BLOCK, np.int16)
    line = np.zeros(BLOCK, np.int32)
    for start in range(first_column, last_column, BLOCK):
        width = min(BLOCK, last_column - start)
        for first in range(0, instructions, at_once):
            last = min(instructions, first + at_once)
            base = first * depth
            for k in range(base, last * depth):
                packed = lines[(k - base) * BLOCK : (k - base) * BLOCK + width]
                for j in range(width):
                    packed[j] = b[k, start + j]
            for i in range(first_row, last_row):
                out = sums[i, start : start + width]
                met = rows[i if rows.shape[0] > 1 else 0]
                if not clamp:
                    taken = slice(first * stored, last * stored)
                    add_rows(out, a[i, taken], lines, met[taken], base, width)
                    continue
                for instruction in range(first, last):
                    taken = slice(instruction * stored, (instruction + 1) * stored)
                    for j in range(width):
                        line[j] = np.int32(0)
                    add_rows(line, a[i, taken], lines, met[taken], base, width)
                    for j in range(width):
                        total: Whole = np.int64(out[j]) + np.int64(line[j])
                        out[j] = np.int32(min(max(total, SMALLEST), LARGEST))


@entry
def integer_tiles(
    a: Array,
    b: Array,
    rows: Array,
    sums: Array,
    stored: Whole,
    depth: Whole,
    clamp: Flag,
    first_tile: Whole,
    last_tile: Whole,
) -> None:
    """Whole tiles one after the other."""
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile the product twice
    for tile in range(first_tile, last_tile):
        integer_product(
            a[tile],
            b[tile],
            rows[tile if rows.shape[0] > 1 else 0],
            sums[tile],
            stored,
            depth,
            clamp,
            zero,
            a.shape[1],
            zero,
            b.shape[2],
        )
