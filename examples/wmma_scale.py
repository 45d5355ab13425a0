"""Compute C = alpha * A * B + beta * C in registers, with the element-wise loop of the CUDA C++ guide.

The loop does not depend on the fragment layout, so it also runs on architectures whose fragments were not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag import wmma
from warpfrag.errors import NotModelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[Any]


def scaled_product(
    a: Matrix, b: Matrix, c: Matrix, alpha: np.float32, beta: np.float32, *, arch: str = "sm_90"
) -> wmma.fragment:
    """Set C to alpha * A * B + beta * C for row-major 16 x 16 matrices; return its fragment."""
    a_frag = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major, arch=arch)
    b_frag = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.row_major, arch=arch)
    acc_frag = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float, arch=arch)
    c_frag = wmma.fragment(wmma.accumulator, 16, 16, 16, wmma.float, arch=arch)

    wmma.fill_fragment(acc_frag, 0.0)
    wmma.load_matrix_sync(a_frag, a, 16)
    wmma.load_matrix_sync(b_frag, b, 16)
    wmma.mma_sync(acc_frag, a_frag, b_frag, acc_frag)

    wmma.load_matrix_sync(c_frag, c, 16, wmma.mem_row_major)
    for t in range(c_frag.num_elements):
        c_frag.x[t] = alpha * acc_frag.x[t] + beta * c_frag.x[t]
    wmma.store_matrix_sync(c, c_frag, 16, wmma.mem_row_major)
    return c_frag


def main() -> None:
    """Run the kernel for three architectures; the fragments of two of them were not measured."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "ab")
    start = rng.standard_normal((16, 16)).astype(np.float32)
    for arch in ("sm_70", "sm_80", "sm_90"):
        c = start.copy()
        c_frag = scaled_product(a, b, c, np.float32(0.5), np.float32(2.0), arch=arch)
        try:
            known = "is " + str(c_frag.layout().at(t=3, lane=9))
        except NotModelled as error:
            known = f"is not modelled: {error}"
        print(f"{arch}: c[2, 3] = {c.view(np.uint32)[2, 3]:#010x}; x[3, 9] {known}")


if __name__ == "__main__":
    main()
