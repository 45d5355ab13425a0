"""Between the registers of warps and matrices of codes: loops that numba compiles, without the GIL."""

from __future__ import annotations

import numpy as np

from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inner

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
U1 = np.uintp(1)


@entry
def take(codes: Array, rows: Array, index: Array, out: Array) -> None:
    """out[i, j] = codes[rows[i], index[j]], i over warps."""
    for i in range(rows.size):
        row = rows[i]
        for j in range(index.size):
            out[i, j] = codes[row, index[j]]


@entry
def take_tiles(cells: Array, bases: Array, index: Array, out: Array) -> None:
    """Gather tiles [height, width] into one matrix: tile (i, j) is what `index` finds behind bases[i, j]."""
    height, width = index.shape
    for i in range(bases.shape[0]):
        for y in range(height):
            for j in range(bases.shape[1]):
                base = bases[i, j]
                for x in range(width):
                    out[i * height + y, j * width + x] = cells[np.uintp(base + index[y, x])]


@entry
def put_tiles(cells: Array, bases: Array, index: Array, matrix: Array) -> None:
    """Scatter one matrix to tiles [height, width]: tile (i, j) goes to where `index` leads behind bases[i, j]."""
    height, width = index.shape
    for i in range(bases.shape[0]):
        for y in range(height):
            for j in range(bases.shape[1]):
                base = bases[i, j]
                for x in range(width):
                    cells[np.uintp(base + index[y, x])] = matrix[i * height + y, j * width + x]


@inner
def are_equal(words: Array, base: Int, plan: Array, other_base: Int, other_plan: Array) -> Flag:
    """Whether two tiles hold the same."""
    for unit in range(plan.size):
        at, other = np.uintp(base + plan[unit]), np.uintp(other_base + other_plan[unit])
        if words[at] != words[other] or words[at + U1] != words[other + U1]:
            return False
    return True


@inner
def holds(words: Array, bases: Array, plans: Array, which: Array, first: Array) -> Flag:
    """Whether some tiles are equal to others, as `first` says."""
    shares = False
    for i in range(bases.size):
        other = first[i]
        if other == i:
            continue
        is_repeated = bases[i] == bases[i - 1] and which[i] == which[i - 1] and other == first[i - 1]
        if not is_repeated and not are_equal(words, bases[i], plans[which[i]], bases[other], plans[which[other]]):
            return False
        shares = True
    return shares


@entry
def find_equal(words: Array, bases: Array, plans: Array, which: Array, first: Array, hashes: Array) -> None:
    """For every tile the first that holds the same; where the answer that `first` has still holds, it stays.

    A tile is units of 16 bytes, two words: those at plans[which[i]] behind bases[i].
    """
    if holds(words, bases, plans, which, first):
        return
    for i in range(bases.size):
        plan, low, high = plans[which[i]], np.uint64(0), np.uint64(0)
        for unit in range(plan.size):
            at = np.uintp(bases[i] + plan[unit])
            low, high = (low ^ words[at]) * HASH_FACTOR, (high ^ words[at + U1]) * HASH_FACTOR
        hashes[i] = low ^ (high >> np.uint64(29)) ^ high
        first[i] = i
        for other in range(i):
            if (
                hashes[other] == hashes[i]
                and first[other] == other
                and are_equal(words, bases[i], plan, bases[other], plans[which[other]])
            ):
                first[i] = other
                break


@entry
def take_units(words: Array, bases: Array, plans: Array, which: Array, out: Array) -> None:
    """Gather tiles as `find_equal` describes them, unit after unit."""
    for i in range(bases.size):
        base, plan = bases[i], plans[which[i]]
        for unit in range(plan.size):
            at, to = np.uintp(base + plan[unit]), np.uintp(unit) * np.uintp(2)
            out[i, to], out[i, to + U1] = words[at], words[at + U1]
