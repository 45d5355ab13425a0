"""Which warps, or warpgroups, are rows and columns of one larger product: those that hold the same A or the same B."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = NDArray[np.int64]

MIN_WARPS = 4
"""Of a group on average: smaller groups are slower than one product per warp."""


@lru_cache(256)  # a loop asks for the same at every iteration
def group_by_operands(a: bytes, b: bytes) -> list[Index] | None:
    """Warps in groups [rows, columns]: those of a row have one A, of a column one B; None if groups are too small.

    `a` and `b` give, for every warp, the first one with the same A and B.
    """
    columns: dict[int, dict[int, int]] = {}
    pairs = zip(*(np.frombuffer(firsts, np.int64).tolist() for firsts in (a, b)), strict=True)
    for warp, (row, column) in enumerate(pairs):
        if columns.setdefault(column, {}).setdefault(row, warp) != warp:
            return None  # two warps with the same of both
    groups: dict[tuple[int, ...], list[list[int]]] = {}
    for warps in columns.values():
        groups.setdefault(tuple(sorted(warps)), []).append([warps[row] for row in sorted(warps)])
    if MIN_WARPS * len(groups) > len(a) // 8:
        return None
    return [np.array(lists, np.int64).T for lists in groups.values()]
