"""Compute a gemm with wmma tiles, like a simple CUDA kernel: one warp for each 16 x 16 tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import warpfrag as wf
from warpfrag import wmma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[Any]

INSTRUCTION = "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"
TILE = 16


def tile_product(
    a: wmma.Pointer, b: wmma.Pointer, c: wmma.Pointer, row: int, col: int, lda: int, ldb: int, ldc: int
) -> None:
    """Compute the tile of C at (row, col) with one warp, k ascending."""
    a_frag = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    b_frag = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.row_major)
    acc_frag = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float)

    wmma.fill_fragment(acc_frag, 0.0)
    for k in range(0, lda, TILE):
        wmma.load_matrix_sync(a_frag, a + row * lda + k, lda)
        wmma.load_matrix_sync(b_frag, b + k * ldb + col, ldb)
        wmma.mma_sync(acc_frag, a_frag, b_frag, acc_frag)
    wmma.store_matrix_sync(c + row * ldc + col, acc_frag, ldc, wmma.mem_row_major)


def product(A: Matrix, B: Matrix) -> Matrix:
    """Return C = A * B for extents that are multiples of 16; the warps run one after the other."""
    (rows, depth), cols = A.shape, B.shape[1]
    C = np.zeros((rows, cols), np.float32)
    a, b, c = wmma.ptr(A), wmma.ptr(B), wmma.ptr(C)
    for row in range(0, rows, TILE):
        for col in range(0, cols, TILE):
            tile_product(a, b, c, row, col, depth, cols, cols)
    return C


def main(size: int = 256) -> None:
    """Multiply two matrices, and compare every code with the result of `gemm` for the same instruction."""
    rng = np.random.default_rng(3)
    A, B = (rng.standard_normal((size, size)).astype(np.float16) for _ in "AB")
    C = product(A, B)
    D = wf.gemm(A, B, instruction=INSTRUCTION)
    differ = np.count_nonzero(C.view(np.uint32) != D.view(np.uint32))
    print(f"{C.size} codes, {differ} differ from gemm")


if __name__ == "__main__":
    main()
