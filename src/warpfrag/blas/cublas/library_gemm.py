"""Compute a gemm in a predicted order, with the epilogue as the predicted kernel rounds it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.library_epilogue import KernelEpilogue
from warpfrag.blas.cublas.predict_order import ARCH, PredictedOrder, library_instruction
from warpfrag.blas.gemm import GemmOptions, run_gemm
from warpfrag.blas.order import Order, part_length
from warpfrag.blas.summation import PartialSums
from warpfrag.errors import NotModelled
from warpfrag.formats.arrays import Array
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.epilogue import Epilogue, Floats, convert, finish, fma
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.array_types import Foreign, Matrix
from warpfrag.tensorcore.resolved_instruction import resolve_chain


def library_epilogue(known: PredictedOrder, epilogue: KernelEpilogue) -> tuple[PredictedOrder, KernelEpilogue]:
    """Return the order, marked as a guess if it was not measured with this epilogue, and the kernel's epilogue."""
    order, kernel = known.order, known.kernel
    own = replace(epilogue, kernel=kernel, is_split=order.split_k > 1 or order.segment_k is not None)
    reasons = own.uncertain
    if order.in_place and (own.alpha != 1 or own.activation):
        known = replace(known, order=replace(order, in_place=False))
        reasons.append("in-place sums of parts were not measured with alpha or an activation")
    if not known.shape[2]:
        reasons.append("sums without terms were not measured with an epilogue")
    is_used = own.alpha != 1 or own.has_c or own.bias is not None or bool(own.activation)
    note = f"not compared with an H200: {'; '.join(reasons)}" if reasons else "compared with an H200"
    return replace(known, is_guess=known.is_guess or (is_used and bool(reasons)), epilogue=note if is_used else ""), own


def library_gemm(
    known: PredictedOrder,
    a: Matrix,
    b: Matrix,
    c: Matrix | None,
    epilogue: Epilogue,
    part: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Array | Foreign:
    """Compute a gemm in a predicted order; `part` gives the rows and columns of D if only these are computed."""
    name, order = known.kind.type, known.order
    resolved = resolve_chain(library_instruction(name, ARCH), ARCH)
    if order.lanes:
        floats = a.floats(), b.floats(), None if c is None else c.floats()
        sums = finish(epilogue, lane_gemm(*floats[:2], order), floats[2])
        codes = convert("f32", PartialSums(resolved.rule).write(sums), epilogue.result)
        return cast("Array", codes.view(natural_dtype(FORMATS[epilogue.result])))
    options = GemmOptions(order, None if name == "s8" else epilogue, rounding="rne" if name == "tf32" else None)
    if part is None:
        part = np.arange(a.shape[-2]), np.arange(b.shape[-1])
        if known.cut_tiles is not None and a.shape[-2:-1] + b.shape[-1:] != known.shape[:2]:
            raise NotModelled(f"{known.kernel} adds some tiles of D in another order: pass the whole A and B")
    orders = [order] if known.cut_tiles is None else [order, Order()]  # tiles that are not cut have one chain
    results = [run_gemm(resolved, a, b, c, replace(options, order=each)) for each in orders]
    if known.cut_tiles is None:
        return results[0]
    return cast("Array", np.where(known.cut_tiles.of(*part), *cast("list[Array]", results)))


# --- kernels without tensor cores: each lane adds its own k with fused multiply-adds, then the lanes' sums are added


@exact_floats
def lane_gemm(a: NDArray[np.float32], b: NDArray[np.float32], order: Order) -> NDArray[np.float32]:
    """Return A [..., M, K] times B [..., K, N] in float32, for an order with lanes."""
    depth = a.shape[-1]
    length = part_length(depth, order.unit or 1, order.split_k)
    with np.errstate(all="ignore"):
        total = _lane_part(a[..., :length], b[..., :length, :], order)
        for first in range(length, depth, length):
            total = total + _lane_part(a[..., first : first + length], b[..., first : first + length, :], order)
    return total


def _lane_part(a: NDArray[np.float32], b: NDArray[np.float32], order: Order) -> NDArray[np.float32]:
    lanes, vector = order.lanes or 1, order.vector or 1
    if order.blocks:
        sums = _lane_sums(a, b, order.blocks * lanes * vector, 1, None)
        sums = _add_lanes(np.moveaxis(sums.reshape(order.blocks, lanes, vector, *sums.shape[1:]), 2, 0))
        sums = _add_lanes(np.moveaxis(sums, 1, 0), in_halves=True)
        return _add_lanes(np.stack([_add_lanes(sums[chain::4]) for chain in range(4)]))
    return _add_lanes(_lane_sums(a, b, lanes, vector, order.promote), in_halves=order.in_halves)


def _lane_sums(a: Floats, b: Floats, lanes: int, vector: int, promote: int | None) -> Floats:
    """Return each lane's sum, along a new first axis."""
    blocks = -(-a.shape[-1] // (lanes * vector))
    rest = blocks * lanes * vector - a.shape[-1]
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, rest)])
    b = np.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, rest), (0, 0)])
    rows = a.reshape(*a.shape[:-1], blocks, lanes, vector)
    columns = b.reshape(*b.shape[:-2], blocks, lanes, vector, b.shape[-1])
    promote = promote or blocks * vector
    sums = total = np.zeros((), np.float32)
    for place in range(blocks * vector):
        block, inside = divmod(place, vector)
        left = np.moveaxis(rows[..., block, :, inside], -1, 0)[..., None]  # [lanes, ..., M, 1]
        right = np.moveaxis(columns[..., block, :, inside, :], -2, 0)[..., None, :]
        sums = fma(left, right, sums)
        if (place + 1) % promote == 0 or place + 1 == blocks * vector:
            total = total + sums
            sums = np.zeros((), np.float32)
    return total


def _add_lanes(sums: NDArray[np.float32], *, in_halves: bool = False) -> NDArray[np.float32]:
    """Add the lanes' sums: repeatedly the second half to the first (`in_halves`), or one after the other."""
    while in_halves and len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    total: NDArray[np.float32] = sums[0]
    for lane in sums[1:]:
        total = total + lane
    return total
