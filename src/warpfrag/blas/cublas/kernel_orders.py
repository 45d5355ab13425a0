"""Derive the order of additions from a library's choice, with one rule for each family of kernels.

A choice is a cuBLASLt configuration and the kernels that it launches. The rules, all measured on an H200:

    nvjet       K in split_k parts of whole units, k ascending; unit 64 for 16 bits, 128 for fp8 (a line of 128 bytes)
    cutlass     CUTLASS 2: parts of whole lines if K is whole lines and k is contiguous in one operand, otherwise of
                whole 16-byte vectors; each part begins with its residue; s1688 kernels add 8 k at a time;
                with reduction scheme 1 the parts are added in place, the bias first
    xmma        one chain; with segment-K, the tiles of D that do not fill the GPU are cut along K (`segmented`)
    gemv        float32 fused multiply-adds in lanes, which are added at the end (`_lanes`)
    ffma, simt  kernels without tensor cores, and magma: one chain of float32 fused multiply-adds
    dot         blocks of 128 lanes take turns; 16 blocks with vectors of 2 k, or 31 with single k
    others      gemmSN, and split kernels without tensor cores: not modelled

nvjet's parts have round_up(K // split_k, unit) k. The division truncates: if K // split_k is a whole number of units
and split_k does not divide K, the parts do not reach the end of K, and the last terms are omitted
(`KernelOrder.omitted_k`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from warpfrag.blas.cublas.choice_table import Choice, ProductKind
from warpfrag.blas.cublas.segment_k import CLUSTERS, TILES, CutTiles, segmented
from warpfrag.blas.order import Order, part_length
from warpfrag.errors import NotModelled

LINE, VECTOR = 128, 16
"""The sizes of a cache line and of a vector load, in bytes."""
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1}
PROMOTED = 128
"""The number of k after which an fp8 kernel without fast accumulation promotes its sum to float32."""
IN_PLACE = 1
"""The reduction scheme in which parts are added to D one by one; it reproduced 159 of 159 measured tf32 gemms."""
LT_WORKSPACE = 1 << 20
"""The workspace size in bytes that PyTorch passes to cuBLASLt; fp8 choices whose parts need more are uncertain."""
LANES = {
    26: 16, 38: 2, 40: 4, 42: 8, 48: 2, 50: 4, 52: 8, 56: 2, 58: 4, 62: 2, 66: 8, 68: 4, 72: 16, 74: 32, 76: 4, 78: 8,
    80: 16, 82: 32, 84: 2, 86: 4, 88: 8, 92: 32, 94: 2, 96: 4, 98: 8, 100: 16, 102: 2, 106: 8, 110: 4, 112: 8, 114: 4,
}  # fmt: skip
"""The number of lanes of a gemvx kernel, by its custom option rounded down to an even number. With an odd option, each
lane adds a single k at a time."""
LANE_CHUNK = 64
"""The most consecutive k that a lane of a gemvx kernel adds before the next lane continues."""
GEMV2T = {11: 32, 12: 16, 13: 16, 14: 16}
"""By custom option, the number of k after which a lane of a gemv2T kernel adds its sum to another accumulator."""
GEMV2T_LANES = 16
GEMVNSP_LANES = 32
"""The number of lanes of most gemvNSP kernels, assumed if the choice does not give it."""
GEMV2N_LANES = {0: 1, 1: 2, 2: 4, 7: 1}
DOT_LANES, DOT_VECTORS = 128, {16: 2, 31: 1}
"""The lanes of a dot kernel, and, by number of blocks, the consecutive k that a lane adds; for float32 only."""


class KernelOrder(NamedTuple):
    """The order of additions that a kernel uses for one gemm."""

    order: Order
    omitted_k: int = 0
    is_proved: bool = True
    cut_tiles: CutTiles | None = None
    """The tiles of D that `order` applies to, if k ascends in all others."""


def order_of(kind: ProductKind, choice: Choice, shape: tuple[int, int, int]) -> KernelOrder:
    """Return the order of additions of a gemm; raise NotModelled if no rule covers the choice."""
    depth = shape[2]
    if kind.type == "s8":
        return KernelOrder(Order())  # the order does not affect integer sums
    if choice.kernel == "nvjet":
        return _nvjet(kind, choice, shape)
    if choice.kernel.startswith("cutlass"):
        return _cutlass(kind, choice, depth)
    if choice.kernel == "xmma_sm90" or (choice.kernel == "xmma_sm80" and choice.split_k == 1):
        return KernelOrder(Order())
    if choice.kernel == "xmma_segment_k" and choice.tile in TILES and choice.custom in CLUSTERS:
        found = segmented(choice, kind.layout, shape)
        return KernelOrder(found.order, is_proved=found.is_proved and kind.batch == 1, cut_tiles=found.cut_tiles)
    if choice.kernel.startswith("xmma_segment_k"):
        return KernelOrder(Order(), is_proved=False)  # the table does not record tiles
    if choice.kernel in {"ffma", "simt", "magma"} and choice.split_k <= 1:
        return KernelOrder(Order(lanes=1, vector=1))
    if choice.kernel.startswith("gemv") or (choice.kernel == "dot_kernel" and kind.type == "tf32"):
        order = _lanes(choice, depth)
        if order is not None:
            is_plain = kind.call == "matmul" and choice.kernel != "gemvNSP"
            return KernelOrder(order, is_proved=is_plain or order.blocks is not None)
    raise NotModelled(
        f"{kind.call} {kind.type} {kind.layout} {' x '.join(map(str, shape))}: the library selects a kernel whose "
        f"order of additions is not modelled, {choice.kernel or f'algorithm {choice.algorithm}'}"
    )


def _nvjet(kind: ProductKind, choice: Choice, shape: tuple[int, int, int]) -> KernelOrder:
    m, n, depth = shape
    unit = LINE // BYTES[kind.type]
    promote = PROMOTED if kind.type == "e4m3" and kind.call != "scaled_mm fast" else None
    parts = choice.split_k
    if parts == 1:
        return KernelOrder(Order(promote=promote))
    length = -(-(depth // parts) // unit) * unit
    omitted = max(0, depth - parts * length)
    needed = -(-m // 64) * -(-n // 64) * 64 * 64 * 4 * parts
    is_proved = kind.call in {"matmul", "bmm", "linear"} or needed <= LT_WORKSPACE
    return KernelOrder(Order(split_k=parts, unit=unit, promote=promote), omitted, is_proved)


def _cutlass(kind: ProductKind, choice: Choice, depth: int) -> KernelOrder:
    size = BYTES[kind.type]
    line, vector = LINE // size, VECTOR // size
    unit = line if kind.layout != "tn" and depth % line == 0 else vector
    step = 8 if choice.kernel.endswith("s1688") and size == 2 else None
    parts = -(-depth // part_length(depth, unit, max(1, choice.split_k))) if depth else 1
    in_place = parts > 1 and choice.reduction == IN_PLACE
    order = Order(
        split_k=parts, unit=unit if parts > 1 else None, residue=choice.stages, step=step, in_place=in_place
    )  # fmt: skip
    is_rounded_first = kind.call == "linear" and parts > 1  # unproved: six split 16-bit layers with a bias differed
    return KernelOrder(order, is_proved=kind.type == "tf32" or not (in_place or is_rounded_first))


def _lanes(choice: Choice, depth: int) -> Order | None:
    """Return the order of a matrix-vector kernel: each lane adds its share of k, and then the lanes' sums are added."""
    parts = max(1, choice.split_k)
    length = part_length(depth, 1, parts)
    order = Order(split_k=parts, unit=1 if parts > 1 else None)
    if choice.kernel == "gemvx" and choice.custom & ~1 in LANES:
        lanes = LANES[choice.custom & ~1]
        vector = 1 if choice.custom % 2 else min(LANE_CHUNK, -(-length // lanes))
        return replace(order, lanes=lanes, vector=vector, in_halves=True)
    if choice.kernel == "gemv2T" and choice.custom in GEMV2T:
        return replace(order, lanes=GEMV2T_LANES, vector=1, promote=GEMV2T[choice.custom])
    if choice.kernel == "dot_kernel" and parts in DOT_VECTORS:
        return Order(lanes=DOT_LANES, vector=DOT_VECTORS[parts], in_halves=True, blocks=parts)
    if choice.kernel == "gemvNSP":
        return replace(order, lanes=choice.stages or GEMVNSP_LANES, vector=4, in_halves=True)
    if choice.kernel == "gemv2N" and choice.custom in GEMV2N_LANES:
        lanes = GEMV2N_LANES[choice.custom]
        return replace(order, lanes=lanes, vector=-(-length // lanes))
    return None
