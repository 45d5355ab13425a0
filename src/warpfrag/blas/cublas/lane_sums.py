"""Sums of kernels without tensor cores: each lane adds its k with fused multiply-adds, then the lanes are added."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.order import Order, part_length
from warpfrag.formats.epilogue import fma
from warpfrag.formats.float_environment import exact_floats

Floats = NDArray[np.float32]


@exact_floats
def lane_gemm(a: Floats, b: Floats, order: Order) -> Floats:
    """Return A [..., M, K] times B [..., K, N] in float32, in an order with lanes."""
    depth = a.shape[-1]
    length = part_length(depth, order.unit or 1, order.split_k)
    with np.errstate(all="ignore"):
        total = _part(a[..., :length], b[..., :length, :], order)
        for first in range(length, depth, length):
            total = total + _part(a[..., first : first + length], b[..., first : first + length, :], order)
    return total


def _part(a: Floats, b: Floats, order: Order) -> Floats:
    lanes, vector = order.lanes or 1, order.vector or 1
    blocks = -(-a.shape[-1] // (lanes * vector))
    rest = blocks * lanes * vector - a.shape[-1]
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, rest)])
    b = np.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, rest), (0, 0)])
    rows = a.reshape(*a.shape[:-1], blocks, lanes, vector)
    columns = b.reshape(*b.shape[:-2], blocks, lanes, vector, b.shape[-1])
    promote = order.promote or blocks * vector
    sums = total = np.zeros((), np.float32)
    for place in range(blocks * vector):
        block, inside = divmod(place, vector)
        left = np.moveaxis(rows[..., block, :, inside], -1, 0)[..., None]  # lanes, ..., M, 1
        right = np.moveaxis(columns[..., block, :, inside, :], -2, 0)[..., None, :]
        sums = fma(left, right, sums)
        if (place + 1) % promote == 0 or place + 1 == blocks * vector:
            total = total + sums
            sums = np.zeros((), np.float32)
    return _add_lanes(total, in_halves=order.in_halves)


def _add_lanes(sums: Floats, *, in_halves: bool) -> Floats:
    """Add the lanes: the second half to the first until one is left, or one after the other."""
    while in_halves and len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    total: Floats = sums[0]
    for lane in sums[1:]:
        total = total + lane
    return total
