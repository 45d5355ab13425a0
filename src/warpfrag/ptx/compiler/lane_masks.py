"""Lanes of a warp in the compiled scheduler: masks, guards, program counters and priorities."""

from __future__ import annotations

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.interpreter.warp_batch import NOT_RUNNABLE, PRIORITY_UNIT, QUANTUM
from warpfrag.tensorcore.kernels.jit import Array, Int, inner


@inner
def priority_of(row: Int, flags: Array, numbers: Array) -> Int:
    """The priority of a warp's first lane: its program counter, above that how long it has been in loops."""
    best = NOT_RUNNABLE
    for lane in range(LANES):
        if flags[0, row, lane] and not flags[1, row, lane]:
            best = min(best, (numbers[1, row, lane] // QUANTUM) * PRIORITY_UNIT + numbers[0, row, lane])
    return best


@inner
def mask_of(flags: Array, row: Int) -> Int:
    """The flags of a warp's lanes as a mask."""
    mask = np.uint32(0)
    for lane in range(LANES):
        mask |= np.uint32(flags[row, lane]) << np.uint32(lane)
    return mask


@inner
def set_pc(row: Int, mask: Int, value: Int, pc: Array) -> None:
    """Set the program counter of some lanes of a warp."""
    for lane in range(LANES):
        if mask >> np.uint32(lane) & np.uint32(1):
            pc[row, lane] = value


@inner
def guarded_mask(registers: Array, row: Int, mask: Int, offset: Int, negated: Int) -> Int:
    """The lanes of a warp whose guard holds; all of them where there is none."""
    if offset < 0:
        return mask
    guard = np.uint32(0)
    for lane in range(LANES):
        guard |= np.uint32(registers[row, offset + lane] != 0) << np.uint32(lane)
    return (~guard if negated else guard) & mask
