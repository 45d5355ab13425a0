"""One-bit products: 64 of them at a time, as the count of ones of a word."""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.compiled import Array, Flag, Whole, entry
from warpfrag.arithmetic.kernels.llvm import count_ones


@entry
def bit_product(a: Array, b: Array, sums: Array, is_xor: Flag, first_row: Whole, last_row: Whole) -> None:
    """sums[i, j] += ones of (a[i, w] op b[w, j]) over the words w, which are even in number."""
    for i in range(first_row, last_row):
        line = sums[i]
        for word in range(0, a.shape[1], 2):
            a0, a1 = a[i, word], a[i, word + 1]
            row0, row1 = b[word], b[word + 1]
            if is_xor:
                for j in range(line.size):
                    ones = count_ones(a0 ^ row0[j]) + count_ones(a1 ^ row1[j])
                    line[j] = np.int32(line[j] + np.int32(ones))
            else:
                for j in range(line.size):
                    ones = count_ones(a0 & row0[j]) + count_ones(a1 & row1[j])
                    line[j] = np.int32(line[j] + np.int32(ones))


@entry
def bit_tiles(a: Array, b: Array, sums: Array, is_xor: Flag, first_tile: Whole, last_tile: Whole) -> None:
    """Whole tiles one after the other."""
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile the product twice
    for tile in range(first_tile, last_tile):
        bit_product(a[tile], b[tile], sums[tile], is_xor, zero, a.shape[1])
