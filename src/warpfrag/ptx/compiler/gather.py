"""Between the registers of warps and matrices of codes: loops that numba compiles, without the GIL."""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.jit import Array, entry
from warpfrag.ptx.compiler.operand_groups import PIECE_WORDS

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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


@entry
def find_equal(words: Array, rows: Array, starts: Array, hashes: Array, first_equal: Array) -> None:
    """For every warp the first one with equal pieces: those whose 16 words of 64 bits begin at `starts`."""
    sums = np.empty(PIECE_WORDS, np.uint64)
    for i in range(rows.size):
        sums[:] = np.uint64(0)
        for start in starts:
            for j in range(PIECE_WORDS):
                sums[j] = (sums[j] ^ words[rows[i], np.uintp(start) + np.uintp(j)]) * HASH_FACTOR
        total = np.uint64(0)
        for j in range(PIECE_WORDS):
            total = (total ^ sums[j] ^ (sums[j] >> np.uint64(29))) * HASH_FACTOR
        hashes[i] = total
        first_equal[i] = i
        for other in range(i):
            if hashes[other] == total and first_equal[other] == other:
                differs = np.uint64(0)
                for start in starts:
                    for j in range(PIECE_WORDS):
                        at = np.uintp(start) + np.uintp(j)
                        differs |= words[rows[i], at] ^ words[rows[other], at]
                if differs == np.uint64(0):
                    first_equal[i] = other
                    break


@entry
def take_planned(cells: Array, bases: Array, plans: Array, which: Array, out: Array) -> None:
    """out[i, j] = cells[bases[i] + plans[which[i], j]]: what a plan of places finds behind each base."""
    for i in range(bases.size):
        base, plan = bases[i], which[i]
        for j in range(plans.shape[1]):
            out[i, j] = cells[np.uintp(base + plans[plan, j])]
