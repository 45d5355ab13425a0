"""One-bit products: 64 of them at a time, as the count of ones of a word."""

from __future__ import annotations

import numpy as np

from warpfrag.tensorcore.kernels.constants import unflatten_block
from warpfrag.tensorcore.kernels.jit import Array, Flag, entry
from warpfrag.tensorcore.kernels.llvm_helpers import count_ones


@entry
def popcount_block(
    a: Array,
    b: Array,
    sums: Array,
    is_xor: Flag,
    bounds: Array,
) -> None:
    """sums[t, i, j] += ones of (a[t, i, w] op b[t, w, j]) over the words w, which are even in number."""
    block = unflatten_block(bounds)
    for tile in range(block.first_tile, block.last_tile):
        for i in range(block.first_row, block.last_row):
            line = sums[tile, i, block.first_column : block.last_column]
            for word in range(0, a.shape[2], 2):
                a0, a1 = a[tile, i, word], a[tile, i, word + 1]
                row0 = b[tile, word, block.first_column : block.last_column]
                row1 = b[tile, word + 1, block.first_column : block.last_column]
                if is_xor:
                    for j in range(line.size):
                        ones = count_ones(a0 ^ row0[j]) + count_ones(a1 ^ row1[j])
                        line[j] = np.int32(line[j] + np.int32(ones))
                else:
                    for j in range(line.size):
                        ones = count_ones(a0 & row0[j]) + count_ones(a1 & row1[j])
                        line[j] = np.int32(line[j] + np.int32(ones))
