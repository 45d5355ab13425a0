"""Common Triton kernels, each with arguments and the expected results from NumPy.

`CASES` is read by the tests, and by whoever compares them with a GPU. Sizes are small and seldom multiples of blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import triton
import triton.language as tl

BFLOAT16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@dataclass(frozen=True)
class Case:
    """A launch: the kernel, its grid and arguments, and the arrays that it should leave, by position."""

    kernel: object
    grid: object
    args: tuple[object, ...]
    expected: dict[int, np.ndarray]
    meta: dict[str, object] = field(default_factory=dict)
    tolerance: float = 0.0
    """Relative to the largest expected value; 0 compares codes."""


CASES: dict[str, Callable[[np.random.Generator], Case]] = {}


def case(function: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    CASES[function.__name__] = function
    return function


def floats(rng: np.random.Generator, *shape: int, dtype: object = np.float32) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(dtype)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)


@case
def vector_add(rng):
    x, y = floats(rng, 1000), floats(rng, 1000)
    return Case(add_kernel, (4,), (x, y, np.zeros_like(x), 1000), {2: x + y}, {"BLOCK": 256})


@case
def vector_add_bfloat16(rng):
    x, y = floats(rng, 777, dtype=BFLOAT16), floats(rng, 777, dtype=BFLOAT16)
    return Case(add_kernel, (7,), (x, y, np.zeros_like(x), 777), {2: x + y}, {"BLOCK": 128})


@case
def vector_add_of_views(rng):
    """A pointer into an array is not as aligned as the array."""
    x, y = floats(rng, 1001), floats(rng, 1003)
    out = np.zeros(1000, np.float32)
    return Case(add_kernel, (8,), (x[1:], y[3:], out, 1000), {2: x[1:] + y[3:]}, {"BLOCK": 128})


@triton.jit
def softmax_kernel(out, x, stride, rows, cols, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        i = tl.arange(0, BLOCK)
        values = tl.load(x + row * stride + i, i < cols, other=-float("inf"))
        shares = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * stride + i, shares / tl.sum(shares, 0), i < cols)


@case
def softmax(rng):
    x = floats(rng, 6, 100)
    shares = np.exp(x - x.max(1, keepdims=True))
    return Case(softmax_kernel, (3,), (np.zeros_like(x), x, 100, 6, 100),
                {0: shares / shares.sum(1, keepdims=True)}, {"BLOCK": 128}, 1e-5)  # fmt: skip


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, tl.load(x + i, i < n, other=0.0) / (1 - p), 0.0), i < n)
    tl.store(out + n + i, keep.to(tl.float32), i < n)


@case
def dropout(rng):
    """Philox chooses the elements to keep: the second half shows which."""
    x = np.ones(300, np.float32)
    return Case(dropout_kernel, (3,), (x, np.zeros(600, np.float32), 300, 0.5, 123), {}, {"BLOCK": 128})


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    width = GROUP * tl.cdiv(N, BLOCK_N)
    first = tl.program_id(0) // width * GROUP
    size = min(tl.cdiv(M, BLOCK_M) - first, GROUP)
    block_m = first + tl.program_id(0) % width % size
    block_n = tl.program_id(0) % width // size
    m = (block_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (block_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    at_a, at_b = a + m[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + n[None, :] * bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32 if a.dtype.element_ty.is_floating() else tl.int32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        tile_a = tl.load(at_a, k[None, :] < left, other=0.0)
        total = tl.dot(tile_a, tl.load(at_b, k[:, None] < left, other=0.0), total, out_dtype=total.dtype)
        at_a += BLOCK_K * ak
        at_b += BLOCK_K * bk
    if RELU:
        total = tl.where(total >= 0, total, 0.01 * total)
    m = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(c + m[:, None] * cm + n[None, :] * cn, total.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


def product(A, B, out, *, tolerance, kernel=None, grid=None, relu=False, **meta):
    (M, K), N = A.shape, B.shape[1]
    D = A.astype(np.float32) @ B.astype(np.float32)
    D = np.where(D >= 0, D, 0.01 * D) if relu else D
    blocks = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2, **meta}
    strides = [step // array.itemsize for array in (A, B, out) for step in array.strides]
    cells = -(-M // blocks["BLOCK_M"]) * -(-N // blocks["BLOCK_N"])
    return Case(kernel or matmul_kernel, grid or (cells,), (A, B, out, M, N, K, *strides), {2: D.astype(out.dtype)},
                {**blocks, "RELU": relu}, tolerance)  # fmt: skip


@case
def matmul_float16(rng):
    A, B = floats(rng, 70, 96, dtype=np.float16), floats(rng, 96, 40, dtype=np.float16)
    return product(A, B, np.zeros((70, 40), np.float16), tolerance=1e-3)


@case
def matmul_bfloat16_leaky_relu(rng):
    A, B = floats(rng, 64, 100, dtype=BFLOAT16), floats(rng, 100, 33, dtype=BFLOAT16)
    return product(A, B, np.zeros((64, 33), np.float32), tolerance=1e-3, relu=True)


@case
def matmul_of_a_transposed_view(rng):
    A, B = floats(rng, 64, 64, dtype=np.float16), floats(rng, 48, 64, dtype=np.float16).T
    return product(A, B, np.zeros((64, 48), np.float32), tolerance=1e-3)


@case
def matmul_tf32(rng):
    A, B = floats(rng, 64, 64), floats(rng, 64, 32)
    return product(A, B, np.zeros((64, 32), np.float32), tolerance=5e-3)


@case
def matmul_float8(rng):
    A, B = floats(rng, 64, 128, dtype=E5M2), floats(rng, 128, 32, dtype=E5M2)
    return product(A, B, np.zeros((64, 32), np.float32), tolerance=1e-3, BLOCK_K=64)


@case
def matmul_int8(rng):
    A = rng.integers(-128, 128, (64, 128), np.int8)
    B = rng.integers(-128, 128, (32, 128), np.int8).T
    return product(A, B, np.zeros((64, 32), np.int32), tolerance=0.0, BLOCK_K=64)


@case
def matmul_eight_warps(rng):
    A, B = floats(rng, 128, 128, dtype=np.float16), floats(rng, 128, 64, dtype=np.float16)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
    return product(A, B, np.zeros((128, 64), np.float16), tolerance=1e-3, **blocks, num_warps=8, num_stages=4)


@triton.jit
def persistent_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    cols = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * cols, tl.num_programs(0), flatten=True):
        m = tile // cols * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tile % cols * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            tile_a = tl.load(a + m[:, None] * am + k[None, :] * ak, (m[:, None] < M) & (k[None, :] < K), other=0.0)
            tile_b = tl.load(b + k[:, None] * bk + n[None, :] * bn, (k[:, None] < K) & (n[None, :] < N), other=0.0)
            total = tl.dot(tile_a, tile_b, total)
        inside = (m[:, None] < M) & (n[None, :] < N)
        tl.store(c + m[:, None] * cm + n[None, :] * cn, total.to(c.dtype.element_ty), inside)


@case
def persistent_matmul(rng):
    A, B = floats(rng, 100, 64, dtype=np.float16), floats(rng, 64, 70, dtype=np.float16)
    return product(A, B, np.zeros((100, 70), np.float16), tolerance=1e-3, kernel=persistent_kernel, grid=(3,))


@triton.jit
def grouped_kernel(a, b, c, sizes, groups, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    last = 0
    for group in range(groups):
        M, N, K = tl.load(sizes + 3 * group), tl.load(sizes + 3 * group + 1), tl.load(sizes + 3 * group + 2)
        cols = tl.cdiv(N, BLOCK)
        count = tl.cdiv(M, BLOCK) * cols
        at_a = tl.load(a + group).to(tl.pointer_type(tl.float16))
        at_b = tl.load(b + group).to(tl.pointer_type(tl.float16))
        at_c = tl.load(c + group).to(tl.pointer_type(tl.float16))
        while tile >= last and tile < last + count:
            m = (tile - last) // cols * BLOCK + tl.arange(0, BLOCK)
            n = (tile - last) % cols * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), tl.float32)
            for step in range(tl.cdiv(K, BLOCK)):
                k = step * BLOCK + tl.arange(0, BLOCK)
                tile_a = tl.load(at_a + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), other=0.0)
                tile_b = tl.load(at_b + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), other=0.0)
                total = tl.dot(tile_a, tile_b, total)
            tl.store(at_c + m[:, None] * N + n[None, :], total.to(tl.float16), (m[:, None] < M) & (n[None, :] < N))
            tile += tl.num_programs(0)
        last += count


@triton.jit
def layer_norm_kernel(x, w, b, out, mean, rstd, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, i < n, other=0.0).to(tl.float32)
    middle = tl.sum(values, 0) / n
    away = tl.where(i < n, values - middle, 0.0)
    scale = 1 / tl.sqrt(tl.sum(away * away, 0) / n + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    result = away * scale * tl.load(w + i, i < n) + tl.load(b + i, i < n)
    tl.store(out + row * stride + i, result.to(out.dtype.element_ty), i < n)


@case
def layer_norm(rng):
    x, w, b = floats(rng, 5, 120, dtype=np.float16), floats(rng, 120), floats(rng, 120)
    exact = x.astype(np.float64)
    mean, rstd = exact.mean(1), 1 / np.sqrt(exact.var(1) + 1e-5)
    out = ((exact - mean[:, None]) * rstd[:, None] * w + b).astype(np.float16)
    args = (x, w, b, np.zeros_like(x), np.zeros(5, np.float32), np.zeros(5, np.float32), 120, 120, 1e-5)
    return Case(layer_norm_kernel, (5,), args, {3: out, 4: mean.astype(np.float32), 5: rstd.astype(np.float32)},
                {"BLOCK": 128}, 2e-3)  # fmt: skip


@triton.jit
def attention_kernel(q, k, v, out, scale, n, CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    base = tl.program_id(1) * n * D
    tile_q = tl.load(q + base + m[:, None] * D + d[None, :], m[:, None] < n, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, n, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        tile_k = tl.load(k + base + j[None, :] * D + d[:, None], j[None, :] < n, other=0.0)
        score = tl.dot(tile_q, tile_k) * scale
        score = tl.where(j[None, :] < n, score, -1e30)
        if CAUSAL:
            score = tl.where(m[:, None] >= j[None, :], score, -1e30)
        new = tl.maximum(largest, tl.max(score, 1))
        share = tl.math.exp2(score - new[:, None])
        correction = tl.math.exp2(largest - new)
        weight = weight * correction + tl.sum(share, 1)
        tile_v = tl.load(v + base + j[:, None] * D + d[None, :], j[:, None] < n, other=0.0)
        total = tl.dot(share.to(tile_v.dtype), tile_v, total * correction[:, None])
        largest = new
    result = (total / weight[:, None]).to(out.dtype.element_ty)
    tl.store(out + base + m[:, None] * D + d[None, :], result, m[:, None] < n)


def attended(rng, *, causal):
    q, k, v = (floats(rng, 2, 80, 32, dtype=np.float16) for _ in range(3))
    score = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) / np.sqrt(32)
    score = np.where(np.tri(80, dtype=bool), score, -np.inf) if causal else score
    share = np.exp(score - score.max(2, keepdims=True))
    out = (share / share.sum(2, keepdims=True) @ v.astype(np.float64)).astype(np.float16)
    args = (q, k, v, np.zeros_like(q), float(np.log2(np.e) / np.sqrt(32)), 80)
    return Case(attention_kernel, (2, 2), args, {3: out},
                {"CAUSAL": causal, "D": 32, "BLOCK_M": 64, "BLOCK_N": 32}, 2e-3)  # fmt: skip


@case
def attention(rng):
    return attended(rng, causal=False)


@case
def causal_attention(rng):
    return attended(rng, causal=True)


@triton.jit
def reductions_kernel(x, sums, largest, at, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + i, i < n, other=-(2**20))
    tl.store(sums + row, tl.sum(tl.where(i < n, values, 0), 0))
    tl.store(largest + row, tl.max(values, 0))
    tl.store(at + row, tl.argmax(values, 0))


@case
def reductions(rng):
    x = rng.integers(-1000, 1000, (4, 200), np.int32)
    zeros = [np.zeros(4, np.int32) for _ in range(3)]
    expected = {1: x.sum(1, dtype=np.int32), 2: x.max(1), 3: x.argmax(1).astype(np.int32)}
    return Case(reductions_kernel, (4,), (x, *zeros, 200), expected, {"BLOCK": 256})


@triton.jit
def scan_kernel(x, out, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0, reverse=REVERSE))


@case
def cumulative_sum(rng):
    x = rng.integers(-1000, 1000, (3, 256), np.int32)
    return Case(scan_kernel, (3,), (x, np.zeros_like(x)), {1: x.cumsum(1, dtype=np.int32)},
                {"REVERSE": False, "BLOCK": 256})  # fmt: skip


@case
def reversed_cumulative_sum(rng):
    x = rng.integers(-1000, 1000, (2, 512), np.int32)
    return Case(scan_kernel, (2,), (x, np.zeros_like(x)), {1: x[:, ::-1].cumsum(1, dtype=np.int32)[:, ::-1]},
                {"REVERSE": True, "BLOCK": 512})  # fmt: skip


@triton.jit
def histogram_kernel(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.histogram(tl.load(x + i, i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), bins)


@case
def histogram(rng):
    x = rng.integers(0, 64, 1000, np.int32)
    expected = np.bincount(x, minlength=64).astype(np.int32)
    return Case(histogram_kernel, (4,), (x, np.zeros(64, np.int32), 1000), {1: expected}, {"BLOCK": 256, "BINS": 64})


@triton.jit
def transpose_kernel(x, out, M, N, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N))
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(tile), (n[:, None] < N) & (m[None, :] < M))


@case
def transposed(rng):
    x = rng.integers(0, 2**16, (70, 50), np.uint16)
    return Case(transpose_kernel, (3, 2), (x, np.zeros((50, 70), np.uint16), 70, 50), {1: x.T}, {"BLOCK": 32})


@triton.jit
def gather_kernel(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(index + i, i < n, other=0), i < n), i < n)


@case
def gather(rng):
    x, index = floats(rng, 500, dtype=np.float64), rng.permutation(500)[:200].astype(np.int64)
    return Case(gather_kernel, (1,), (x, index, np.zeros(200), 200), {2: x[index]}, {"BLOCK": 256})


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + i, tl.sort(tl.load(x + tl.program_id(0) * BLOCK + i)))


@case
def sort(rng):
    x = rng.integers(-(2**31), 2**31, (2, 64)).astype(np.int32)
    return Case(sort_kernel, (2,), (x, np.zeros_like(x)), {1: np.sort(x, 1)}, {"BLOCK": 64})


@triton.jit
def convert_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n, other=0.0).to(out.dtype.element_ty), i < n)


@case
def convert_to_float8(rng):
    x = np.clip(50 * floats(rng, 600), -400, 400)
    return Case(convert_kernel, (3,), (x, np.zeros(600, E4M3), 600), {1: x.astype(E4M3)}, {"BLOCK": 256})


@case
def convert_from_float8(rng):
    x = (50 * floats(rng, 600)).astype(E5M2)
    return Case(convert_kernel, (3,), (x, np.zeros(600, np.float16), 600), {1: x.astype(np.float16)}, {"BLOCK": 256})


@triton.jit
def activation_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, i < n, other=0.0)
    tl.store(out + i, values * tl.sigmoid(1.702 * values), i < n)


@case
def activation(rng):
    x = floats(rng, 500)
    expected = (x / (1 + np.exp(-1.702 * x.astype(np.float64)))).astype(np.float32)
    return Case(activation_kernel, (4,), (x, np.zeros_like(x), 500), {1: expected}, {"BLOCK": 128}, 1e-5)


@triton.jit
def locked_sum_kernel(x, out, lock, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.sum(tl.load(x + i, i < n, other=0), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@case
def locked_sum(rng):
    x = rng.integers(-1000, 1000, 700, np.int32)
    args = (x, np.zeros(1, np.int32), np.zeros(1, np.int32), 700)
    return Case(locked_sum_kernel, (6,), args, {1: x.sum(keepdims=True, dtype=np.int32)}, {"BLOCK": 128})


@triton.jit
def quotients_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    left, right = tl.load(x + i, i < n, other=1), tl.load(y + i, i < n, other=1)
    tl.store(out + i, left // right, i < n)
    tl.store(out + n + i, left % right, i < n)


@case
def quotients(rng):
    x, y = rng.integers(-(10**12), 10**12, 100), rng.integers(1, 10**6, 100)
    truncated = np.where(x < 0, -(-x // y), x // y)
    expected = np.concatenate([truncated, x - y * truncated])
    return Case(quotients_kernel, (1,), (x, y, np.zeros(200, np.int64), 100), {2: expected}, {"BLOCK": 128})
