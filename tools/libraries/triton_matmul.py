"""A plain matmul in Triton, for `tools.libraries`."""

# mypy: ignore-errors
# (Triton compiles the source of the function; its types are Triton's.)

from functools import cache

try:
    import triton
    from triton import language as tl
except ImportError:  # installed with PyTorch on GPU machines
    triton = tl = None


def matmul(  # noqa: ANN201 (Triton's language, not Python's)
    a, b, d, depth, a_m, a_k, b_k, b_n, d_m, d_n, BLOCK_K: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Compute D = A B, with a 64 x 64 tile per program and BLOCK_K elements of k at a time."""
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    columns = tl.program_id(1) * 64 + tl.arange(0, 64)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((64, 64), dtype=tl.float32)
    for first in range(0, depth, BLOCK_K):
        x = tl.load(a + rows[:, None] * a_m + (first + k)[None, :] * a_k)
        y = tl.load(b + (first + k)[:, None] * b_k + columns[None, :] * b_n)
        total = tl.dot(x, y, total)
    tl.store(d + rows[:, None] * d_m + columns[None, :] * d_n, total)


@cache
def compiled():  # noqa: ANN201 (as above)
    """Return the compiled kernel."""
    return triton.jit(matmul)
