"""Multiply two 16 x 16 half matrices with one warp, as in the first wmma example of the CUDA C++ guide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag import wmma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[Any]


def wmma_ker(a: Matrix, b: Matrix, c: Matrix) -> wmma.fragment:
    """Compute C = A * B like a kernel with one warp; A is column-major, B and C are row-major."""
    a_frag = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.col_major)
    b_frag = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.row_major)
    c_frag = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)

    wmma.fill_fragment(c_frag, 0.0)
    wmma.load_matrix_sync(a_frag, a, 16)
    wmma.load_matrix_sync(b_frag, b, 16)
    wmma.mma_sync(c_frag, a_frag, b_frag, c_frag)
    wmma.store_matrix_sync(c, c_frag, 16, wmma.mem_row_major)
    return c_frag


def main() -> None:
    """Multiply two matrices, and print an element, the error and the elements of a lane."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "ab")
    c = np.zeros((16, 16), np.float32)
    c_frag = wmma_ker(np.asfortranarray(a), b, c)

    exact = a.astype(np.float64) @ b.astype(np.float64)
    print(f"c[0, 0] = {c[0, 0]!r}, exactly {exact[0, 0]!r}")
    print(f"largest error: {np.abs(c - exact).max():.3g}")
    layout = c_frag.layout()
    print(f"lane 9 holds, in x[0] to x[7]: {', '.join(str(tuple(layout.at(t=t, lane=9))) for t in range(8))}")
    print(layout)


if __name__ == "__main__":
    main()
