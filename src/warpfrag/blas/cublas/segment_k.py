"""Segment-K kernels: persistent blocks compute whole tiles of D in waves; tiles of the last wave are split along K.

For `nn`, axis u is m and axis v is n; otherwise, u is n and v is m. The second extent of a tile and the first extent
of a cluster are along u. Tiles are processed cluster by cluster, along u or v, in rows that alternate in direction;
with a swizzle, several rows are processed together. If the last wave has t tiles, each is split into at most
blocks // t parts: fewer if K is short, or if more parts would not make the longest one shorter.

This was measured on an H200 with operands that reveal every cut (`tools.choices.additions`), in 462 GEMMs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.choice_table import Choice
from warpfrag.blas.order import Order

TILES = {
    15: (64, 64), 17: (128, 64), 18: (64, 128), 19: (256, 64), 20: (128, 128), 21: (64, 256), 23: (256, 128),
    24: (128, 256),
}  # fmt: skip
"""The extents of each cublasLtMatmulTile_t."""
CLUSTERS = {
    0: (2, 2), 2: (1, 1), 3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 7: (4, 2), 8: (1, 4), 9: (2, 4), 10: (4, 4),
    11: (8, 1), 12: (1, 8), 13: (8, 2), 14: (2, 8), 15: (16, 1), 16: (1, 16), 17: (3, 1), 18: (5, 1), 19: (6, 1),
    20: (7, 1), 23: (11, 1), 24: (12, 1), 25: (13, 1), 28: (3, 2), 29: (5, 2), 30: (6, 2), 31: (7, 2), 32: (1, 3),
    33: (2, 3), 34: (3, 3), 35: (4, 3), 36: (5, 3), 37: (3, 4), 38: (1, 5), 39: (2, 5), 40: (3, 5), 41: (1, 6),
    42: (2, 6), 43: (1, 7), 44: (2, 7), 48: (1, 12), 49: (1, 13), 50: (1, 14), 51: (1, 15),
}  # fmt: skip
"""The shape of each cublasLtClusterShape_t; 0 (unspecified) was (2, 2) in all observed kernels."""
BLOCKS = {
    1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 7: 105, 8: 120, 11: 77, 12: 84, 13: 91, 14: 98, 15: 105, 16: 112,
}  # fmt: skip
"""The number of blocks that an H200 runs at once, by the number of blocks in a cluster."""
UNIT = 32
SURE_UNITS, SURE_LENGTH = 100, 6
"""The smallest K and part length, in units, from which the computed number of parts was always correct."""
COUNTS = (1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 14, 16, 32, 64, 132)
COSTS = (-9.7, 0.0, 6.8, 9.75, 13.5, 15.0, 17.1, 18.6, 20.0, 20.7, 21.3, 21.9, 27.0, 32.0, 40.0)
"""By number of parts: the cost of adding the parts after several waves, in units of k, for a 128 x 128 tile."""
TILE_COSTS = {15: 1.34, 17: 1.2, 18: 1.16, 20: 1.0}
LEVEL_COSTS = {15: 30.25, 17: 19.4, 18: 22.25, 20: 18.25}
"""By tile: the factor for `COSTS`, and the cost of the first three tree levels in a single wave."""
FEW_TILES = 8
LARGE_TILE = 128 * 128


class CutTiles(NamedTuple):
    """The tiles of D that are split along K."""

    rows: int
    """The number of rows of D in a tile."""
    columns: int
    is_cut: NDArray[np.bool_]

    def of(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the outputs, in the given rows and columns of D, that belong to split tiles."""
        return self.is_cut[np.ix_(rows // self.rows, columns // self.columns)]


class Segmented(NamedTuple):
    """The order of the tiles that are split along K: those in `cut_tiles`, or all tiles if it is None."""

    order: Order
    cut_tiles: CutTiles | None
    is_proved: bool


def tiles_launched(tile: int, cluster: int, layout: str, shape: tuple[int, int, int]) -> int:
    """Return the number of D's tiles, rounded up to whole clusters, or 0 if the tile or the cluster is unknown."""
    if tile not in TILES or cluster not in CLUSTERS:
        return 0
    return math.prod(_grid(tile, cluster, layout, shape).clusters) * math.prod(CLUSTERS[cluster])


class _Grid(NamedTuple):
    """The rows and columns of a tile, and the numbers of tiles and clusters along u and v."""

    rows: int
    columns: int
    extents: tuple[int, int]
    clusters: tuple[int, int]


def _grid(tile: int, cluster: int, layout: str, shape: tuple[int, int, int]) -> _Grid:
    m, n, _ = shape
    first, second = TILES[tile]
    across, down = CLUSTERS[cluster]  # the cluster's extents along u and v
    rows, columns = (second, first) if layout == "nn" else (first, second)
    extents = (-(-m // rows), -(-n // columns)) if layout == "nn" else (-(-n // columns), -(-m // rows))
    return _Grid(rows, columns, extents, (-(-extents[0] // across), -(-extents[1] // down)))


def segmented(choice: Choice, layout: str, shape: tuple[int, int, int]) -> Segmented:
    """Return the order of additions of a segment-K kernel.

    `choice` gives the tile, the cluster in `custom`, the swizzle in `stages`, and the number of parts, or 0, in
    `split_k`.
    """
    depth = shape[2]
    across, down = CLUSTERS[choice.custom]
    rows, columns, extents, clusters = _grid(choice.tile, choice.custom, layout, shape)
    size = across * down
    if size not in BLOCKS:
        return Segmented(Order(), None, is_proved=False)
    blocks = BLOCKS[size]
    total = clusters[0] * clusters[1] * size
    last = (total - 1) % blocks + 1
    if total <= blocks and choice.split_k:
        parts, is_sure = choice.split_k, True
    else:
        parts, is_sure = _parts(-(-depth // UNIT), blocks // last, choice.tile, is_single=total <= blocks)
    if parts < 2:
        return Segmented(Order(), None, is_sure)
    order = Order(segment_k=parts, unit=UNIT)
    if total <= blocks:
        return Segmented(order, None, is_sure and choice.custom > 0)
    tail = list(_clusters(clusters, extents, (across, down), blocks, swizzle=choice.stages))[(total - last) // size :]
    is_cut = np.zeros((clusters[1] * down, clusters[0] * across), np.bool_)
    for u, v in tail:
        is_cut[v * down : (v + 1) * down, u * across : (u + 1) * across] = True
    tiles = CutTiles(rows, columns, is_cut.T if layout == "nn" else is_cut)
    return Segmented(order, tiles, is_sure and choice.custom > 0 and not choice.stages)


def _parts(units: int, most: int, tile: int, *, is_single: bool) -> tuple[int, bool]:
    """Return the number of parts, at most `most`, and True if numbers computed in this way were always correct.

    It is the smallest number whose longest part is not longer than with `most` parts, or fewer if K is short.
    """
    parts = -(-units // -(-units // most)) if units and most else 1
    if is_single:
        level = LEVEL_COSTS.get(tile, 12.0)
        best = min(range(1, parts + 1), key=lambda count: -(-units // count) + level * min(3, (count - 1).bit_length()))
        return best, best <= 2 or math.prod(TILES[tile]) >= LARGE_TILE
    if units >= SURE_UNITS and units >= SURE_LENGTH * parts:
        return parts, True
    costs = TILE_COSTS.get(tile, 0.85) * np.interp(range(1, parts + 1), COUNTS, COSTS)
    best = 1 + int(np.argmin(units / np.arange(1, parts + 1) + costs))
    return best, parts <= 2


def _clusters(
    clusters: tuple[int, int], extents: tuple[int, int], cluster: tuple[int, int], blocks: int, *, swizzle: int
) -> list[tuple[int, int]]:
    """Return the clusters, as (u, v), in the order in which they are computed."""
    if not swizzle:
        return list(_serpentine(clusters, 1, is_along_v=cluster[0] >= cluster[1] and min(extents) > FEW_TILES))
    orders = [list(_serpentine(clusters, band, is_along_v=up)) for up in (False, True) for band in (1, 2, 4, 8, 16)]
    wave = blocks // (cluster[0] * cluster[1])

    def footprint(order: list[tuple[int, int]]) -> int:
        waves = [order[first : first + wave] for first in range(0, len(order), wave)]
        return sum(len({u for u, _ in some}) * cluster[0] + len({v for _, v in some}) * cluster[1] for some in waves)

    return min(orders, key=footprint)  # a guess, which was right in 77 of 106 measurements


def _serpentine(extents: tuple[int, int], band: int, *, is_along_v: bool) -> Iterator[tuple[int, int]]:
    fast, slow = extents[::-1] if is_along_v else extents
    for number, first in enumerate(range(0, slow, band)):
        for place in range(fast - 1, -1, -1) if number % 2 else range(fast):
            for other in range(first, min(first + band, slow)):
                yield (other, place) if is_along_v else (place, other)
