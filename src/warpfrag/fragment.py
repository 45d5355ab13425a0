"""Pack matrices into registers and unpack them, for any layout.

A layout sends each bit of (lane, reg, slot) to one bit of one coordinate, so packing is a transposition: cut the
axes of the matrix into the runs of bits that stay together, and permute. No index table is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.layout import COPY, Basis, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.isa.operands import OperandRow

WORD_BITS = 32


@dataclass(frozen=True)
class Permutation:
    """How to move a matrix to places by one transposition.

    `split` cuts the matrix axes into runs of bits; `order` puts the runs into the order of the places; `spread` has
    an extent of 1 where a run is a copy; `full` says how far each run goes in the places.
    """

    split: tuple[int, ...]
    order: tuple[int, ...]
    spread: tuple[int, ...]
    full: tuple[int, ...]


@cache
def permutation(shape: tuple[int, ...], dims: tuple[str, ...], bases: tuple[Basis, ...]) -> Permutation:
    """The transposition from a matrix to places whose address bits, low first, have these bases."""
    runs: list[list[Basis]] = []  # runs of neighbouring address bits that are neighbouring bits of one coordinate
    for basis in reversed(bases):
        last = runs[-1][-1] if runs else None
        if last is not None and basis.dim == last.dim and (basis == COPY or basis.step * 2 == last.step):
            runs[-1].append(basis)
        else:
            runs.append([basis])
    kept = [run for run in runs if run[0] != COPY]
    # within the matrix, runs are sorted by coordinate, then from high bits to low
    source = sorted(kept, key=lambda run: (dims.index(run[0].dim), -run[0].step))
    return Permutation(
        split=tuple(1 << len(run) for run in source) or (math.prod(shape),),
        order=tuple(source.index(run) for run in kept) or (0,),
        spread=tuple(1 if run[0] == COPY else 1 << len(run) for run in runs) or (1,),
        full=tuple(1 << len(run) for run in runs) or (1,),
    )


def _slots_first(row: OperandRow) -> bool:
    """Whether the elements of one register are neighbours in memory: then words are made before they are moved."""
    layout = row.layout
    last = layout.dims[-1]
    return bool(layout.slot) and layout.slot == tuple(Basis(last, 1 << bit) for bit in range(len(layout.slot)))


def _word_layout(layout: Layout) -> tuple[tuple[int, ...], tuple[Basis, ...]]:
    """Shape and bases once the slots along the last coordinate have become one word."""
    slots = layout.slots
    shape = (*layout.shape[:-1], layout.shape[-1] // slots)
    last = layout.dims[-1]
    bases = (*layout.reg, *layout.lane)
    return shape, tuple(Basis(b.dim, b.step // slots) if b.dim == last else b for b in bases)


def pack(row: OperandRow, codes: NDArray[Any]) -> NDArray[np.uint32]:
    """Registers, uint32[..., lanes, words], that hold a matrix of codes; every copy is written."""
    layout = row.layout
    batch = codes.shape[: codes.ndim - len(layout.shape)]
    codes = codes << codes.dtype.type(row.low) if row.low else codes
    if _slots_first(row):
        shape, bases = _word_layout(layout)
        words = _join_slots(np.ascontiguousarray(codes), row.container)
        placed = _place(words, batch, permutation(shape, layout.dims, bases))
    else:
        bases = (*layout.slot, *layout.reg, *layout.lane)
        placed = _join_slots(_place(codes, batch, permutation(layout.shape, layout.dims, bases)), row.container)
    return placed.view(np.uint32).reshape(*batch, layout.lanes, layout.regs * row.register_bits // WORD_BITS)


def unpack(row: OperandRow, words: NDArray[np.uint32], *, strict: bool = False) -> NDArray[Any]:
    """The matrix of codes that registers hold, read from the first copy; strict refuses unequal copies."""
    layout = row.layout
    batch = words.shape[:-2]
    registers = np.ascontiguousarray(words).view(np.uint64 if row.register_bits > WORD_BITS else np.uint32)
    if _slots_first(row):
        shape, bases = _word_layout(layout)
        matrix = _collect(registers, batch, permutation(shape, layout.dims, bases), strict=strict)
        codes = cut_slots(matrix, row.container)
    else:
        bases = (*layout.slot, *layout.reg, *layout.lane)
        elements = cut_slots(registers, row.container)
        codes = _collect(elements, batch, permutation(layout.shape, layout.dims, bases), strict=strict)
    codes = codes.reshape(*batch, *layout.shape)
    if row.container > row.format.bits:
        codes = (codes >> codes.dtype.type(row.low)) & codes.dtype.type(row.format.codes - 1)
    return codes


def _place(matrix: NDArray[Any], batch: tuple[int, ...], moves: Permutation) -> NDArray[Any]:
    """Move a matrix to its places: one strided copy."""
    tiles = math.prod(batch)
    cut = matrix.reshape(tiles, *moves.split).transpose(0, *(axis + 1 for axis in moves.order))
    spread = np.broadcast_to(cut.reshape(tiles, *moves.spread), (tiles, *moves.full))
    return np.array(spread, order="C").reshape(tiles, math.prod(moves.full))  # a copy, even where nothing moves


def _collect(places: NDArray[Any], batch: tuple[int, ...], moves: Permutation, *, strict: bool) -> NDArray[Any]:
    """Move places back to their matrix, from the first of each set of copies."""
    tiles = math.prod(batch)
    full = places.reshape(tiles, *moves.full)
    first = full[(slice(None), *(slice(0, extent) for extent in moves.spread))]
    if strict and not np.array_equal(np.broadcast_to(first, full.shape), full):
        index = tuple(int(i) for i in np.argwhere(np.broadcast_to(first, full.shape) != full)[0])
        lane = int(np.ravel_multi_index(index[1:], moves.full)) * 32 // math.prod(moves.full)
        msg = f"copies of one element differ: in tile {index[0]}, lane {lane}; strict=False reads the first copy"
        raise InvalidOperand(msg)
    kept = tuple(extent for extent, whole in zip(moves.spread, moves.full, strict=True) if extent == whole) or (1,)
    back = np.argsort(moves.order)
    return np.array(first.reshape(tiles, *kept).transpose(0, *(axis + 1 for axis in back)), order="C")


def _join_slots(elements: NDArray[Any], container: int) -> NDArray[Any]:
    """Registers made of the elements along the last axis, low bits first."""
    if container == 1:
        joined = np.packbits(elements.astype(np.uint8, copy=False), axis=-1, bitorder="little")
    elif container == 4:
        pairs = elements.astype(np.uint8, copy=False).view("<u2")
        joined = (pairs | pairs >> 4).astype(np.uint8)
    else:
        joined = elements.astype(f"<u{container // 8}", copy=False)
    return joined.view("<u8" if container > WORD_BITS else "<u4")


def cut_slots(registers: NDArray[Any], container: int) -> NDArray[Any]:
    """The elements of each register, spread along the last axis, low bits first."""
    if container == 1:
        return np.unpackbits(registers.view(np.uint8), axis=-1, bitorder="little")
    if container == 4:
        pairs = registers.view(np.uint8).astype("<u2")
        nibbles: NDArray[Any] = ((pairs | pairs << 4) & 0x0F0F).view(np.uint8)
        return nibbles
    return registers.view(f"<u{container // 8}")
