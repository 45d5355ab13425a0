"""Triton kernels that become tcgen05 on sm_100a: products with TMA, and with block scales, with and without it.

Each case has the product as `gemm` computes it with the arithmetic of sm_100, code by code.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import warpfrag as wf
from triton_kernels import BFLOAT16, CASES, E4M3, E5M2, Case, floats
from warpfrag.tensorcore.array_types import Scaled

TENSOR_CASES: dict[str, Callable[[np.random.Generator], Case]] = {}
MXFP8 = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale"
MXFP4 = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale"
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"


KINDS = {
    np.dtype(np.float16): ("f16", "f16"), np.dtype(BFLOAT16): ("f16", "bf16"), np.dtype(np.float32): ("tf32", "tf32"),
    np.dtype(E5M2): ("f8f6f4", "e5m2"), np.dtype(np.int8): ("i8", "s8"),
}  # fmt: skip
"""The kind of a product of each type, and how PTX calls the type."""


def by_gemm(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the result of tcgen05 on sm_100; the low bits of tf32 are ignored."""
    kind, name = KINDS[A.dtype]
    t = wf.get(
        f"tcgen05.mma.cta_group::1.kind::{kind}", m=128, n=64, a=name, b=name, d="s32" if kind == "i8" else "f32"
    )
    if kind == "tf32":
        A, B = ((array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for array in (A, B))
    return wf.gemm(A, B, instruction=t, arch="sm_100")


def tensor_case(function: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    TENSOR_CASES[function.__name__] = function
    return function


@triton.jit
def tma_kernel(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, SPECIAL: tl.constexpr):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for step in tl.range(0, tl.cdiv(K, BLOCK_K), warp_specialize=SPECIAL):
        total = tl.dot(a.load([m, step * BLOCK_K]), b.load([n, step * BLOCK_K]).T, total)
    c.store([m, n], total.to(tl.float16))


def by_tma(rng, *, special, size=(256, 64, 128), tile=(128, 64, 64), **meta):
    M, N, K = size
    A, B = floats(rng, M, K, dtype=np.float16), floats(rng, N, K, dtype=np.float16)
    C = np.zeros((M, N), np.float16)
    boxes = ((A, (tile[0], tile[2])), (B, (tile[1], tile[2])), (C, tile[:2]))
    descriptors = [TensorDescriptor.from_tensor(described(array), list(box)) for array, box in boxes]
    expected = by_gemm(A, B.T).astype(np.float16)
    meta |= {"M": tile[0], "N": tile[1], "BLOCK_K": tile[2], "SPECIAL": special}
    return Case(tma_kernel, (M // tile[0], N // tile[1]), (*descriptors, K), {2: expected}, meta)


def described(array: np.ndarray) -> object:
    """Return an array as Triton's descriptors take it: with the strides of a tensor."""
    import torch

    return torch.from_numpy(array)


@tensor_case
def matmul_by_tma(rng):
    return by_tma(rng, special=False, num_stages=3)


@tensor_case
def warp_specialized_matmul(rng):
    return by_tma(rng, special=True, num_stages=2)


@triton.jit
def scaled_kernel(
    a, sa, b, sb, c, K, stride_a, stride_b, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr,
    VECTOR: tl.constexpr, TYPE_A: tl.constexpr, TYPE_B: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    k, s = tl.arange(0, BLOCK_K // PACK), tl.arange(0, BLOCK_K // VECTOR)
    total = tl.zeros((M, N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        at, at_scale = step * (BLOCK_K // PACK) + k, step * (BLOCK_K // VECTOR) + s
        tile_a = tl.load(a + m[:, None] * stride_a + at[None, :])
        tile_b = tl.load(b + n[:, None] * stride_b + at[None, :]).T
        scale_a = tl.load(sa + m[:, None] * (K // VECTOR) + at_scale[None, :])
        scale_b = tl.load(sb + n[:, None] * (K // VECTOR) + at_scale[None, :])
        total = tl.dot_scaled(tile_a, scale_a, TYPE_A, tile_b, scale_b, TYPE_B, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def operands(rng, rows, K, code, vector, scale):
    """Random codes of a matrix [rows, K] and its scale factors; fp4 two in a byte."""
    codes = rng.integers(0, 16, (rows, K), np.uint8) if code == "e2m1" else None
    stored = codes[:, ::2] | codes[:, 1::2] << 4 if codes is not None else None
    if codes is None:
        stored = floats(rng, rows, K, dtype=E4M3 if code == "e4m3" else E5M2)
        codes = stored.view(np.uint8)
    low, high = (120, 130) if scale == "ue8m0" else (40, 70)
    return codes, stored, rng.integers(low, high, (rows, K // vector), np.uint8)


def scaled(rng, name, code_a, code_b, *, scale="ue8m0", vector=32, size=(128, 64, 256), block_k=128):
    M, N, K = size
    (codes_a, A, sa), (codes_b, B, sb) = (
        operands(rng, rows, K, code, vector, scale) for rows, code in ((M, code_a), (N, code_b))
    )
    k = 32 if name == MXFP8 else 64
    t = wf.get(name, m=128, n=64, a=code_a, b=code_b, scale_type=scale, k=k)
    expected = wf.gemm(Scaled(codes_a, sa), Scaled(codes_b.T, sb.T), instruction=t, arch="sm_100", raw=True)
    stored = sa.view(E4M3) if scale == "ue4m3" else sa, sb.view(E4M3) if scale == "ue4m3" else sb
    C = np.zeros((M, N), np.float32)
    pack = 2 if code_a == "e2m1" else 1
    meta = {"M": 128, "N": N, "BLOCK_K": block_k, "VECTOR": vector, "TYPE_A": code_a, "TYPE_B": code_b, "PACK": pack}
    args = (A, stored[0], B, stored[1], C, K, A.shape[1], B.shape[1])
    return Case(scaled_kernel, (M // 128, 1), args, {4: expected.view(np.float32)}, meta)


@tensor_case
def matmul_mxfp8(rng):
    return scaled(rng, MXFP8, "e4m3", "e5m2")


@tensor_case
def matmul_mxfp4(rng):
    return scaled(rng, MXFP4, "e2m1", "e2m1")


@tensor_case
def matmul_nvfp4(rng):
    return scaled(rng, NVFP4, "e2m1", "e2m1", scale="ue4m3", vector=16)


@triton.jit
def scaled_tma_kernel(
    a, sa, b, sb, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, VECTOR: tl.constexpr,
    TYPE: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    total = tl.zeros((M, N), tl.float32)
    UNITS: tl.constexpr = BLOCK_K // VECTOR // 4
    for step in tl.range(0, tl.cdiv(K, BLOCK_K)):
        tile_a = a.load([0, step * (BLOCK_K // PACK)])
        tile_b = b.load([0, step * (BLOCK_K // PACK)])
        scale_a = sa.load([0, 0, step * UNITS, 0, 0]).reshape(M // 128, UNITS, 32, 4, 4)
        scale_b = sb.load([0, 0, step * UNITS, 0, 0]).reshape(N // 128, UNITS, 32, 4, 4)
        scale_a = scale_a.trans(0, 3, 2, 1, 4).reshape(M, BLOCK_K // VECTOR)
        scale_b = scale_b.trans(0, 3, 2, 1, 4).reshape(N, BLOCK_K // VECTOR)
        total = tl.dot_scaled(tile_a, scale_a, TYPE, tile_b.T, scale_b, TYPE, total)
    c.store([0, 0], total)


def shuffled(scales: np.ndarray) -> np.ndarray:
    """Scale factors in atoms of 128 rows by 4: byte (row % 32) * 16 + row / 32 * 4 + k of each."""
    rows, count = scales.shape
    atoms = scales.reshape(rows // 128, 4, 32, count // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(atoms).reshape(1, rows // 128, count // 4, 2, 256)


def scaled_by_tma(rng, name, code, *, scale="ue8m0", vector=32):
    M, N, K, block_k = 128, 128, 512, 256
    plain = scaled(rng, name, code, code, scale=scale, vector=vector, size=(M, N, K))
    A, sa, B, sb = plain.args[:4]
    pack = 2 if code == "e2m1" else 1
    units = block_k // vector // 4
    arrays = [
        (A, (M, block_k // pack)), (shuffled(sa.view(np.uint8)), (1, 1, units, 2, 256)),
        (B, (N, block_k // pack)), (shuffled(sb.view(np.uint8)), (1, 1, units, 2, 256)), (plain.args[4], (M, N)),
    ]  # fmt: skip
    descriptors = [TensorDescriptor.from_tensor(as_bytes_or_floats(array, scale, place), list(box))
                   for place, (array, box) in enumerate(arrays)]  # fmt: skip
    meta = {"M": M, "N": N, "BLOCK_K": block_k, "VECTOR": vector, "TYPE": code, "PACK": pack}
    return Case(scaled_tma_kernel, (1,), (*descriptors, K), {4: plain.expected[4]}, meta)


def as_bytes_or_floats(array: np.ndarray, scale: str, place: int) -> object:
    """A tensor for a descriptor: of fp8 as such, scale factors ue4m3 too."""
    import torch

    if array.dtype == E4M3 or (place in (1, 3) and scale == "ue4m3"):
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(array)


@tensor_case
def matmul_mxfp8_by_tma(rng):
    return scaled_by_tma(rng, MXFP8, "e4m3")


@tensor_case
def matmul_nvfp4_by_tma(rng):
    return scaled_by_tma(rng, NVFP4, "e2m1", scale="ue4m3", vector=16)


def again(name: str) -> Callable[[np.random.Generator], Case]:
    """A case of `triton_kernels` with the product that tcgen05 gives."""

    def made(rng: np.random.Generator) -> Case:
        case = CASES[name](rng)
        A, B, out = case.args[:3]
        D = by_gemm(np.ascontiguousarray(A), np.ascontiguousarray(B))
        return replace(case, expected={2: D.astype(out.dtype)}, tolerance=0.0)

    return made


for _name in ("matmul_tf32", "matmul_float8", "matmul_int8", "persistent_matmul"):
    TENSOR_CASES[_name] = again(_name)
TENSOR_CASES["attention"] = CASES["attention"]
