"""Triton kernels for Hopper: persistent products and attention with descriptors, with and without specialised warps.

The kernels follow Triton's tutorials on persistent matmul and attention. `warp_specialize=True` makes three warpgroups
of 128 threads of them: one loads by TMA, two multiply. Gluon, Triton's language of explicit layouts, says the roles
itself. Products are those of `gemm`, code by code.
"""

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

import warpfrag as wf
from triton_kernels import Case, floats
from triton_tensor_kernels import described

HOPPER_CASES: dict[str, Callable[[np.random.Generator], Case]] = {}
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"


@triton.jit
def persistent_kernel(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ON_HOST: tl.constexpr, FLATTEN: tl.constexpr, SPECIAL: tl.constexpr,
):  # fmt: skip
    if not ON_HOST:
        a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
        b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
        c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    rows, cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first, step = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(first, rows * cols, step, flatten=FLATTEN, warp_specialize=SPECIAL):
        top = tile // (GROUP * cols) * GROUP
        size = min(rows - top, GROUP)
        m = (top + tile % size) * BLOCK_M
        n = tile % (GROUP * cols) // size * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            total = tl.dot(a.load([m, k]), b.load([n, k]).T, total)
        c.store([m, n], total.to(tl.float16))


@triton.jit
def attention_kernel(
    q, k, v, out, scale, n, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ON_HOST: tl.constexpr,
    SPECIAL: tl.constexpr,
):  # fmt: skip
    if not ON_HOST:
        q = tl.make_tensor_descriptor(q, [n, D], [D, 1], [BLOCK_M, D])
        k = tl.make_tensor_descriptor(k, [n, D], [D, 1], [BLOCK_N, D])
        v = tl.make_tensor_descriptor(v, [n, D], [D, 1], [BLOCK_N, D])
        out = tl.make_tensor_descriptor(out, [n, D], [D, 1], [BLOCK_M, D])
    m = tl.program_id(0) * BLOCK_M
    tile_q = q.load([m, 0])
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, D), tl.float32)
    for start in tl.range(0, n, BLOCK_N, warp_specialize=SPECIAL):
        score = tl.dot(tile_q, k.load([start, 0]).T) * scale
        new = tl.maximum(largest, tl.max(score, 1))
        share = tl.math.exp2(score - new[:, None])
        correction = tl.math.exp2(largest - new)
        weight = weight * correction + tl.sum(share, 1)
        total = tl.dot(share.to(tl.float16), v.load([start, 0]), total * correction[:, None])
        largest = new
    out.store([m, 0], (total / weight[:, None]).to(tl.float16))


@gluon.jit
def loads(a, b, tiles_a, tiles_b, filled, emptied, K):
    """The warp that loads: it fills stages as they are emptied."""
    STAGES: gl.constexpr = filled.shape[0]
    cols = b.shape[0] // b.block_shape[0]
    at = 0
    for tile in range(gl.program_id(0), a.shape[0] // a.block_shape[0] * cols, gl.num_programs(0)):
        for k in range(0, K, a.block_shape[1]):
            stage = at % STAGES
            mbarrier.wait(emptied.index(stage), (at // STAGES & 1) ^ 1)
            mbarrier.expect(filled.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [tile // cols * a.block_shape[0], k], filled.index(stage), tiles_a.index(stage))
            tma.async_load(b, [tile % cols * b.block_shape[0], k], filled.index(stage), tiles_b.index(stage))
            at += 1


@gluon.jit
def multiplies(a, b, c, tiles_a, tiles_b, filled, emptied, K):
    """The warpgroup that multiplies: it empties stages as they are filled, and stores each tile."""
    STAGES: gl.constexpr = filled.shape[0]
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    tile_c = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    cols = b.shape[0] // N
    at = 0
    for tile in range(gl.program_id(0), a.shape[0] // M * cols, gl.num_programs(0)):
        total = gl.zeros((M, N), gl.float32, layout)
        for _ in range(0, K, a.block_shape[1]):
            stage = at % STAGES
            mbarrier.wait(filled.index(stage), at // STAGES & 1)
            total = warpgroup_mma(tiles_a.index(stage), tiles_b.index(stage).permute((1, 0)), total)
            mbarrier.arrive(emptied.index(stage))
            at += 1
        tma.store_wait(0)
        tile_c.store(total.to(c.dtype))
        fence_async_shared()
        tma.async_store(c, [tile // cols * M, tile % cols * N], tile_c)
    tma.store_wait(0)


@gluon.jit
def gluon_kernel(a, b, c, K, STAGES: gl.constexpr):
    tiles_a = gl.allocate_shared_memory(a.dtype, [STAGES, a.block_shape[0], a.block_shape[1]], a.layout)
    tiles_b = gl.allocate_shared_memory(b.dtype, [STAGES, b.block_shape[0], b.block_shape[1]], b.layout)
    filled = mbarrier.allocate_mbarrier(batch=STAGES)
    emptied = mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=1)
    gl.warp_specialize(
        [
            (multiplies, (a, b, c, tiles_a, tiles_b, filled, emptied, K)),
            (loads, (a, b, tiles_a, tiles_b, filled, emptied, K)),
        ],
        worker_num_warps=[1],
        worker_num_regs=[40],
    )


def operands(rng: np.random.Generator, M: int, N: int, K: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return A, B (stored by columns), an empty C, and the expected C."""
    A, B = floats(rng, M, K, dtype=np.float16), floats(rng, N, K, dtype=np.float16)
    expected = wf.gemm(A, np.ascontiguousarray(B.T), instruction=WGMMA)
    return [A, B, np.zeros((M, N), np.float16)], np.asarray(expected).astype(np.float16)


def persistent(*, on_host: bool, special: bool) -> Callable[[np.random.Generator], Case]:
    """Three blocks take tiles in turn. Triton splits a tile of 128 rows between warpgroups, but no box of the host."""
    tile = (64 if on_host and special else 128, 64, 64)
    boxes = (tile[0], tile[2]), (tile[1], tile[2]), tile[:2]

    def made(rng: np.random.Generator) -> Case:
        M, N, K = 256, 192, 192
        arrays, expected = operands(rng, M, N, K)
        maps = [TensorDescriptor.from_tensor(described(x), list(box)) for x, box in zip(arrays, boxes, strict=True)]
        meta = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True), GROUP=2, num_stages=3)
        meta |= {"ON_HOST": on_host, "SPECIAL": special, "FLATTEN": not special}
        return Case(persistent_kernel, (3,), (*(maps if on_host else arrays), M, N, K), {2: expected}, meta)

    return made


def attention(*, on_host: bool, special: bool) -> Callable[[np.random.Generator], Case]:
    """Attention of 256 rows of 64, in tiles of 128 (64 where a host has made the boxes of specialised warps)."""
    rows = 64 if on_host and special else 128

    def made(rng: np.random.Generator) -> Case:
        q, k, v = arrays = [floats(rng, 256, 64, dtype=np.float16) for _ in range(3)]
        score = q.astype(np.float64) @ k.T.astype(np.float64) / 8
        share = np.exp(score - score.max(1, keepdims=True))
        expected = share / share.sum(1, keepdims=True) @ v.astype(np.float64)
        arrays.append(np.zeros_like(q))
        boxes = ([rows, 64], [64, 64], [64, 64], [rows, 64])
        maps = [TensorDescriptor.from_tensor(described(x), box) for x, box in zip(arrays, boxes, strict=True)]
        meta = {"D": 64, "BLOCK_M": rows, "BLOCK_N": 64, "ON_HOST": on_host, "SPECIAL": special, "num_stages": 2}
        args = (*(maps if on_host else arrays), float(np.log2(np.e) / 8), 256)
        return Case(attention_kernel, (256 // rows,), args, {3: expected.astype(np.float16)}, meta, 2e-3)

    return made


def gluon_persistent(rng: np.random.Generator) -> Case:
    arrays, expected = operands(rng, 256, 192, 192)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    maps = [GluonDescriptor.from_tensor(described(array), [64, 64], layout) for array in arrays]
    return Case(gluon_kernel, (3,), (*maps, 192), {2: expected}, {"STAGES": 3})


for _name, _made in {"persistent": persistent, "attention": attention}.items():
    for _place in ("host", "device"):
        HOPPER_CASES[f"{_name}_{_place}"] = _made(on_host=_place == "host", special=False)
        HOPPER_CASES[f"{_name}_{_place}_specialized"] = _made(on_host=_place == "host", special=True)
HOPPER_CASES["persistent_gluon_specialized"] = gluon_persistent
