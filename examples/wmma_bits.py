"""Count differing bits with CUDA's experimental b1 mma, XOR and POPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag import wmma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[Any]

experimental = wmma.experimental


def hamming(a: Matrix, b: Matrix, c: Matrix) -> None:
    """Set c[i, j] to the number of bits, out of 128, that differ between row i of A and column j of B."""
    a_frag = wmma.fragment(wmma.matrix_a, 8, 8, 128, experimental.precision.b1, wmma.row_major)
    b_frag = wmma.fragment(wmma.matrix_b, 8, 8, 128, experimental.precision.b1, wmma.col_major)
    c_frag = wmma.fragment(wmma.accumulator, 8, 8, 128, wmma.int)

    wmma.fill_fragment(c_frag, 0)
    wmma.load_matrix_sync(a_frag, a, 128)
    wmma.load_matrix_sync(b_frag, b, 128)
    experimental.bmma_sync(c_frag, a_frag, b_frag, c_frag, experimental.bmmaBitOpXOR, experimental.bmmaAccumulateOpPOPC)
    wmma.store_matrix_sync(c, c_frag, 8, wmma.mem_row_major)


def main() -> None:
    """Compare eight random 128-bit words with eight others, one of which is equal."""
    rng = np.random.default_rng(2)
    left, right = (rng.integers(0, 2, (8, 128)).astype(bool) for _ in "lr")
    right[5] = left[2]
    distances = np.zeros((8, 8), np.int32)
    hamming(np.packbits(left, axis=1, bitorder="little"), np.packbits(right, axis=1, bitorder="little"), distances)
    print(distances)


if __name__ == "__main__":
    main()
