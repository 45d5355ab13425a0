"""Derive the order of additions from a library's choice, with one rule for each family of kernels.

A choice is a cuBLASLt configuration and the kernels that it launches. The rules, all measured on an H200:

    nvjet       K in split_k parts of whole units, k ascending; unit 64 for 16 bits, 128 for fp8 (a line of 128 bytes)
    cutlass     CUTLASS 2: parts of whole lines if K is whole lines and k is contiguous in one operand, otherwise of
                whole 16-byte vectors; each part begins with its residue; s1688 kernels add 8 k at a time;
                with reduction scheme 1 the parts are added in place, the bias first
    xmma        one chain; with segment-K, one part per whole set of tiles that fits on the GPU, added as a tree
    others      gemv, gemmSN, dot, magma and float32 kernels without tensor cores: not modelled

nvjet's parts have round_up(K // split_k, unit) k: the division truncates, so if K // split_k is a whole number of
units and split_k does not divide K, the parts do not reach the end of K. The rest is omitted
(`KernelOrder.omitted_k`).
"""

from __future__ import annotations

from typing import NamedTuple

from warpfrag.blas.cublas.choices import Choice, ProductKind
from warpfrag.blas.order import Order
from warpfrag.errors import NotModelled

LINE, VECTOR = 128, 16
"""Sizes in bytes."""
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1}
PROMOTED = 128
"""The number of k that an fp8 kernel without fast accumulation adds before it promotes the sum to float32."""
IN_PLACE = 1
"""The reduction scheme that adds parts to D one by one; measured for tf32, in 159 of 159 gemms."""
XMMA_UNIT = 32
LT_WORKSPACE = 1 << 20
"""The workspace size in bytes that PyTorch gives cuBLASLt. fp8 choices whose parts need more are uncertain."""


class KernelOrder(NamedTuple):
    """The order of additions of a kernel for one gemm."""

    order: Order
    omitted_k: int = 0
    is_proved: bool = True


def _rounded_up(count: int, whole: int) -> int:
    return -(-count // whole) * whole


def order_of(kind: ProductKind, choice: Choice, shape: tuple[int, int, int]) -> KernelOrder:
    """Return the order of additions of a gemm; raise NotModelled if no rule covers the choice."""
    depth = shape[2]
    if kind.type == "s8":
        return KernelOrder(Order())  # integer sums do not depend on the order
    if choice.kernel == "nvjet":
        return _nvjet(kind, choice, shape)
    if choice.kernel.startswith("cutlass"):
        return _cutlass(kind, choice, depth)
    if choice.kernel == "xmma_sm90":
        return KernelOrder(Order())
    if choice.kernel == "xmma_sm80" and choice.split_k == 1:
        return KernelOrder(Order())
    if choice.kernel == "xmma_segment_k" and choice.split_k > 1:
        # 1 of 12 gemms differed on an H200: blocks and tiles alone do not determine the number of parts
        return KernelOrder(Order(segment_k=choice.split_k, unit=XMMA_UNIT), is_proved=False)
    if choice.kernel.startswith("xmma_segment_k") and choice.split_k < 2:
        return KernelOrder(Order(), is_proved=False)  # some tiles are split so that they fill the last wave
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
    needed = _rounded_up(m, 64) * _rounded_up(n, 64) * 4 * parts
    is_proved = kind.call in {"matmul", "bmm", "linear"} or needed <= LT_WORKSPACE
    return KernelOrder(Order(split_k=parts, unit=unit, promote=promote), omitted, is_proved)


def _cutlass(kind: ProductKind, choice: Choice, depth: int) -> KernelOrder:
    size = BYTES[kind.type]
    line, vector = LINE // size, VECTOR // size
    unit = line if kind.layout != "tn" and depth % line == 0 else vector
    step = 8 if choice.kernel.endswith("s1688") and size == 2 else None
    parts = max(1, choice.split_k)
    in_place = parts > 1 and choice.reduction == IN_PLACE
    order = Order(
        split_k=parts, unit=unit if parts > 1 else None, residue=choice.stages, step=step, in_place=in_place
    )  # fmt: skip
    return KernelOrder(order, is_proved=not in_place or kind.type == "tf32")
