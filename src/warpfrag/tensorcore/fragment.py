"""Pack matrices into registers and unpack them, for any layout: one gather that is the same for every tile.

If the slots of every register are adjacent along an axis of the matrix, that axis is moved to the end and the slots are
joined first, so that whole registers are moved.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.isa.operands import OperandSpec
from warpfrag.layout.linear_layout import Layout

WORD_BITS = 32
MAX_LAYOUTS = 1024  # more than the ISA needs, because users create layouts too


@lru_cache(MAX_LAYOUTS)
def elements(layout: Layout) -> NDArray[np.intp]:
    """Return, for every place, the index of the element that it holds."""
    if not layout.is_bitwise:  # the layout is not linear over bits, so look up every place
        coordinates = np.array([layout.at(**place._asdict()) for place in layout.places()])
    else:
        zero = dict.fromkeys(layout.ins, 0)
        start = np.array(layout.at(**zero))
        coordinates = start[None]
        for name, size in layout.ins.items():
            moves = np.array([layout.at(**zero | {name: index}) for index in range(size)]) ^ start
            coordinates = (coordinates[:, None] ^ moves).reshape(-1, len(start))
    indices: NDArray[np.intp] = np.ravel_multi_index(tuple(coordinates.T), layout.shape).astype(np.intp)
    return indices


@lru_cache(MAX_LAYOUTS)
def first_places(layout: Layout) -> NDArray[np.intp]:
    """Return, for every element, the first place that holds it."""
    return first_of(elements(layout), math.prod(layout.shape))


def first_of(taken: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Return, for each of `count` elements, the first index at which it occurs."""
    first = np.empty(count, np.intp)
    first[taken[::-1]] = np.arange(taken.size)[::-1]  # the first copy is assigned last, so it remains
    return first


class Gather(NamedTuple):
    """The units to move between a matrix and registers, which are elements or whole registers."""

    taken: NDArray[np.intp]  # the unit at each place
    first: NDArray[np.intp]  # the first place of each unit
    joined: int | None  # the axis along which the elements in a register are adjacent


@lru_cache(MAX_LAYOUTS)
def gather_of(layout: Layout) -> Gather:
    """Return the gather for a layout."""
    slots, shape = layout.slots, layout.shape
    coordinates = np.unravel_index(elements(layout), shape)
    for axis in reversed(range(len(shape)) if slots > 1 else ()):
        order = [*(other for other in range(len(shape)) if other != axis), axis]
        turned = np.ravel_multi_index([coordinates[other] for other in order], [shape[other] for other in order])
        starts = turned[::slots]
        if (turned == starts.repeat(slots) + np.arange(turned.size) % slots).all() and not (starts % slots).any():
            taken = starts // slots
            return Gather(taken, first_of(taken, math.prod(shape) // slots), axis)
    return Gather(elements(layout), first_places(layout), None)


def pack(row: OperandSpec, codes: NDArray[Any]) -> NDArray[np.uint32]:
    """Pack a matrix of codes into registers, uint32[..., lanes, words]; all copies of an element are written."""
    layout = row.layout
    batch = codes.shape[: codes.ndim - len(layout.shape)]
    codes = codes << codes.dtype.type(row.low) if row.low else codes
    matrices, gather = (math.prod(batch), math.prod(layout.shape)), gather_of(layout)
    if gather.joined is None:
        placed = join_slots(_moved(codes.reshape(matrices), gather.taken), row.container)
    else:
        turned = np.ascontiguousarray(np.moveaxis(codes, len(batch) + gather.joined, -1))
        placed = _moved(join_slots(turned.reshape(matrices), row.container), gather.taken)
    return placed.view(np.uint32).reshape(*batch, *row.threads, layout.regs * row.register_bits // WORD_BITS)


def unpack(row: OperandSpec, words: NDArray[np.uint32], *, strict: bool = False) -> NDArray[Any]:
    """Unpack registers into a matrix of codes, using the first copy of each element.

    `strict` rejects unequal copies.
    """
    layout = row.layout
    batch = words.shape[: words.ndim - 1 - len(row.threads)]
    registers = np.ascontiguousarray(words).view(np.uint64 if row.register_bits > WORD_BITS else np.uint32)
    gather = gather_of(layout)
    places = registers if gather.joined is not None else cut_slots(registers, row.container)
    places = places.reshape(math.prod(batch), gather.taken.size)
    codes = _moved(places, gather.first)
    if strict:
        _refuse_unequal(codes.take(gather.taken, axis=1), places, layout)
    if gather.joined is None:
        codes = codes.reshape(*batch, *layout.shape)
    else:
        turned = [extent for axis, extent in enumerate(layout.shape) if axis != gather.joined]
        codes = cut_slots(codes, row.container).reshape(*batch, *turned, layout.shape[gather.joined])
        codes = np.ascontiguousarray(np.moveaxis(codes, -1, len(batch) + gather.joined))
    if row.container > row.format.bits:
        codes = (codes >> codes.dtype.type(row.low)) & codes.dtype.type(row.format.codes - 1)
    return codes


def _moved(items: NDArray[Any], index: NDArray[np.intp]) -> NDArray[Any]:
    """Gather units [tile, unit] by index."""
    if index.size == items.shape[1] and (index[1:] > index[:-1]).all():  # copying is faster in this case
        return items.copy()
    return items.take(index, axis=1)


def _refuse_unequal(expected: NDArray[Any], places: NDArray[Any], layout: Layout) -> None:
    """Raise an error if a copy [tile, place] differs from the first copy of its element."""
    differ = np.argwhere(expected != places)
    if len(differ):
        tile, place = (int(index) for index in differ[0])
        lane = (
            place // (places.shape[1] // math.prod(layout.ins.get(name, 1) for name in ("warp", "lane"))) % layout.lanes
        )
        raise InvalidOperand(
            f"copies of one element differ: in tile {tile}, lane {lane}; strict=False reads the first copy"
        )


def join_slots(elements: NDArray[Any], container: int) -> NDArray[Any]:
    """Join the elements along the last axis into registers, low bits first."""
    if container == 1:
        joined = np.packbits(elements.astype(np.uint8, copy=False), axis=-1, bitorder="little")
    elif container == 4:
        pairs = elements.astype(np.uint8, copy=False).view("<u2")
        joined = (pairs | pairs >> 4).astype(np.uint8)
    else:
        joined = elements.astype(f"<u{container // 8}", copy=False)
    return joined.view("<u8" if container > WORD_BITS else "<u4")


def cut_slots(registers: NDArray[Any], container: int) -> NDArray[Any]:
    """Return the elements of each register along the last axis, low bits first."""
    if container == 1:
        return np.unpackbits(registers.view(np.uint8), axis=-1, bitorder="little")
    if container == 4:
        pairs = registers.view(np.uint8).astype("<u2")
        nibbles: NDArray[Any] = ((pairs | pairs << 4) & 0x0F0F).view(np.uint8)
        return nibbles
    return registers.view(f"<u{container // 8}")
