"""m8n8k4 where it is software: short chains of ordinary f32 operations.

f16 products are exact in f32, so a multiplication and an addition give what one FFMA gives.
"""

from __future__ import annotations

import numpy as np

from warpfrag.tensorcore.kernels.constants import IS_F16, unflatten_block
from warpfrag.tensorcore.kernels.control_word import TO_NEAREST, enter_environment, restore_environment
from warpfrag.tensorcore.kernels.jit import Array, Int, entry
from warpfrag.tensorcore.kernels.rounding import read_accumulator, round_f16, write_accumulator

LENGTH = 4


@entry
def chain_block(
    a: Array,
    b: Array,
    c: Array,
    c_format: Int,
    d_format: Int,
    out: Array,
    bounds: Array,
) -> None:
    """Some outputs of some tiles; four products per instruction."""
    block = unflatten_block(bounds)
    depth, width = b.shape[1], block.last_column - block.first_column
    b_values = np.empty((depth, width), np.float32)
    a_values = np.empty(depth, np.float32)
    line = np.empty(width, np.float32)
    caller = enter_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        for k in range(depth):
            for j in range(width):
                b_values[k, j] = read_accumulator(b[tile, k, block.first_column + j], IS_F16)
        for i in range(block.first_row, block.last_row):
            for k in range(depth):
                a_values[k] = read_accumulator(a[tile, i, k], IS_F16)
            for j in range(width):
                line[j] = read_accumulator(c[tile, i, block.first_column + j], c_format)
            for k in range(0, depth, LENGTH):
                a0, a1, a2, a3 = a_values[k], a_values[k + 1], a_values[k + 2], a_values[k + 3]
                row0, row1, row2, row3 = b_values[k], b_values[k + 1], b_values[k + 2], b_values[k + 3]
                if d_format == IS_F16:
                    for j in range(width):
                        low = a0 * row0[j] + a1 * row1[j]
                        high = a2 * row2[j] + a3 * row3[j]
                        line[j] = np.float32(round_f16(np.float64((line[j] + low) + high)))
                else:
                    for j in range(width):
                        total = a0 * row0[j] + np.float32(0.0)
                        total = total + a1 * row1[j]
                        total = total + a2 * row2[j]
                        total = total + a3 * row3[j]
                        line[j] = line[j] + total
            for j in range(width):
                out[tile, i, block.first_column + j] = write_accumulator(line[j], d_format)
    restore_environment(caller)
