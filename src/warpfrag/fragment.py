"""Pack matrices into registers and unpack them, for any layout.

Where a layout sends every digit of a place to a digit of one coordinate, packing is a transposition: cut the axes of
the matrix into the runs of digits that stay together, and permute. No index table is built. Where a digit moves several
coordinates, or several digits one, the elements are gathered one by one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.errors import InvalidOperand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.isa.operands import OperandRow
    from warpfrag.layout import Layout, Run

WORD_BITS = 32
MOST_LAYOUTS = 1024  # of the ISA there are fewer; users make their own


class Transposition(NamedTuple):
    """How to move a matrix to places by one transposition.

    `split` cuts the matrix axes into runs of digits; `order` puts the runs into the order of the places; `spread` has
    an extent of 1 where a run is a copy; `full` says how far each run goes in the places. The way back starts from the
    runs that are no copies, `kept`, and puts them into the order `back`. `joined`: the slots of each register are
    neighbours in the matrix, so they are one word before they are moved.
    """

    split: tuple[int, ...]
    order: tuple[int, ...]
    spread: tuple[int, ...]
    full: tuple[int, ...]
    kept: tuple[int, ...]
    back: tuple[int, ...]
    joined: bool


@lru_cache(MOST_LAYOUTS)
def transposition(layout: Layout) -> Transposition | None:
    """The transposition from a matrix to places; None where digits are mixed."""
    joined = layout.slots > 1 and layout.along("slot") == layout.dims[-1]
    slots = layout.slots if joined else 1
    outs = dict(layout.outs)
    outs[layout.dims[-1]] //= slots
    runs = [
        (out, run if run.multiply < slots or out != layout.dims[-1] else run._replace(multiply=run.multiply // slots))
        for out in outs
        for run in layout.runs(out)
        if not (joined and run.source == "slot")
    ]
    places: list[tuple[int, tuple[str, Run] | None]] = []  # high digits first: how far each run goes, and what it is
    for source, size in layout.ins.items():
        if joined and source == "slot":
            continue
        below = size
        for out, run in sorted((pair for pair in runs if pair[1].source == source), key=lambda pair: -pair[1].divide):
            top = run.divide * run.modulo
            if top > below:
                return None  # a digit that moves two coordinates
            places += [(below // top, None)] * (top < below) + [(run.modulo, (out, run))]
            below = run.divide
        places += [(below, None)] * (below > 1)
    cuts = sorted(
        (pair for _, pair in places if pair), key=lambda pair: (layout.dims.index(pair[0]), -pair[1].multiply)
    )
    for out, size in outs.items():
        mine = [run for name, run in cuts if name == out]
        weights = [math.prod(run.modulo for run in mine[at + 1 :]) for at in range(len(mine))]
        if [run.multiply for run in mine] != weights or math.prod(run.modulo for run in mine) != size:
            return None  # a digit that two others move
    order = tuple(cuts.index(pair) for _, pair in places if pair) or (0,)
    return Transposition(
        split=tuple(run.modulo for _, run in cuts) or (1,),
        order=order,
        spread=tuple(size if pair else 1 for size, pair in places) or (1,),
        full=tuple(size for size, _ in places) or (1,),
        kept=tuple(size for size, pair in places if pair) or (1,),
        back=tuple(order.index(run) for run in range(len(order))),
        joined=joined,
    )


@lru_cache(MOST_LAYOUTS)
def elements(layout: Layout) -> NDArray[np.intp]:
    """The element of every place, both counted in order: what a gather takes."""
    if not all(axis.is_plain for axis in layout.out_axes):  # digits that are no bits: ask every place
        coordinates = np.array([layout.at(**place._asdict()) for place in layout.places()])
    else:
        zero = dict.fromkeys(layout.ins, 0)
        start = np.array(layout.at(**zero))
        coordinates = start[None]
        for name, size in layout.ins.items():
            moves = np.array([layout.at(**zero | {name: index}) for index in range(size)]) ^ start
            coordinates = (coordinates[:, None] ^ moves).reshape(-1, len(start))
    found: NDArray[np.intp] = np.ravel_multi_index(tuple(coordinates.T), layout.shape).astype(np.intp)
    return found


@lru_cache(MOST_LAYOUTS)
def first_places(layout: Layout) -> NDArray[np.intp]:
    """The first place of every element, both counted in order."""
    places = elements(layout)
    first = np.empty(math.prod(layout.shape), np.intp)
    first[places[::-1]] = np.arange(places.size)[::-1]  # of several copies the first is written last, and stays
    return first


def pack(row: OperandRow, codes: NDArray[Any]) -> NDArray[np.uint32]:
    """Registers, uint32[..., lanes, words], that hold a matrix of codes; every copy is written."""
    layout = row.layout
    batch = codes.shape[: codes.ndim - len(layout.shape)]
    codes = codes << codes.dtype.type(row.low) if row.low else codes
    moves = transposition(layout)
    if moves is None:
        gathered = codes.reshape(math.prod(batch), math.prod(layout.shape)).take(elements(layout), axis=1)
        placed = _join_slots(gathered, row.container)
    elif moves.joined:
        placed = _place(_join_slots(np.ascontiguousarray(codes), row.container), batch, moves)
    else:
        placed = _join_slots(_place(codes, batch, moves), row.container)
    words = layout.regs * row.register_bits // WORD_BITS
    return placed.view(np.uint32).reshape(*batch, *row.threads, words)


def unpack(row: OperandRow, words: NDArray[np.uint32], *, strict: bool = False) -> NDArray[Any]:
    """The matrix of codes that registers hold, read from the first copy; strict refuses unequal copies."""
    layout = row.layout
    batch = words.shape[: words.ndim - 1 - len(row.threads)]
    registers = np.ascontiguousarray(words).view(np.uint64 if row.register_bits > WORD_BITS else np.uint32)
    moves = transposition(layout)
    if moves is None:
        cells = cut_slots(registers, row.container).reshape(math.prod(batch), elements(layout).size)
        codes = cells.take(first_places(layout), axis=1)
        if strict:
            _refuse_unequal(codes.take(elements(layout), axis=1), cells, layout)
    elif moves.joined:
        codes = cut_slots(_collect(registers, batch, moves, layout, strict=strict), row.container)
    else:
        codes = _collect(cut_slots(registers, row.container), batch, moves, layout, strict=strict)
    codes = codes.reshape(*batch, *layout.shape)
    if row.container > row.format.bits:
        codes = (codes >> codes.dtype.type(row.low)) & codes.dtype.type(row.format.codes - 1)
    return codes


def _place(matrix: NDArray[Any], batch: tuple[int, ...], moves: Transposition) -> NDArray[Any]:
    """Move a matrix to its places: one strided copy."""
    tiles = math.prod(batch)
    cut = matrix.reshape(tiles, *moves.split).transpose(0, *(axis + 1 for axis in moves.order))
    spread = np.broadcast_to(cut.reshape(tiles, *moves.spread), (tiles, *moves.full))
    return np.array(spread, order="C").reshape(tiles, math.prod(moves.full))  # a copy, even where nothing moves


def _collect(
    places: NDArray[Any], batch: tuple[int, ...], moves: Transposition, layout: Layout, *, strict: bool
) -> NDArray[Any]:
    """Move places back to their matrix, from the first of each set of copies."""
    tiles = math.prod(batch)
    full = places.reshape(tiles, *moves.full)
    first = full[(slice(None), *(slice(0, extent) for extent in moves.spread))]
    if strict:
        flat = (tiles, math.prod(moves.full))
        _refuse_unequal(np.broadcast_to(first, full.shape).reshape(flat), full.reshape(flat), layout)
    runs = first.reshape(tiles, *moves.kept)
    return np.array(runs.transpose(0, *(axis + 1 for axis in moves.back)), order="C")


def _refuse_unequal(expected: NDArray[Any], places: NDArray[Any], layout: Layout) -> None:
    """Refuse copies [tile, place] that differ from the first of their element."""
    differ = np.argwhere(expected != places)
    if len(differ):
        tile, place = (int(index) for index in differ[0])
        lane = (
            place // (places.shape[1] // math.prod(layout.ins.get(name, 1) for name in ("warp", "lane"))) % layout.lanes
        )
        msg = f"copies of one element differ: in tile {tile}, lane {lane}; strict=False reads the first copy"
        raise InvalidOperand(msg)


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
