"""Arrays taken from one block of memory.

The C library keeps one large block for the next product; many smaller ones it hands back to the system, and getting
their pages again took a tenth of the time of a product of 512 x 512 x 512.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64
"""Bytes: arrays start at a line of the cache."""


def allocate(*wanted: tuple[tuple[int, ...], DTypeLike]) -> list[NDArray[Any]]:
    """Arrays of these shapes and types, with no values yet."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in wanted]
    starts = [0, *accumulate(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]
    memory = np.empty(starts[-1] + CACHE_LINE, np.uint8)
    memory = memory[-memory.ctypes.data % CACHE_LINE :]
    return [
        memory[start : start + size].view(kind).reshape(shape)
        for start, size, (shape, kind) in zip(starts, sizes, wanted, strict=False)
    ]
