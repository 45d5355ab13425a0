"""Mistakes with a wgmma operand in shared memory: its descriptor, its order, its sign.

A mistake is modelled by rearranging the bytes: the right descriptor then reads what the wrong one would have read.
Bytes beyond the memory are assumed to be zero.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from warpfrag.diagnosis.arithmetic_mistakes import negated, negated_codes, written_as
from warpfrag.diagnosis.findings import Codes, Kind, Mistake, likelihood, without_repetitions
from warpfrag.diagnosis.matrix_mistakes import rearranged
from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import Bytes, Numbers
from warpfrag.formats.codes import code_dtype
from warpfrag.smem.descriptor import LINES, ROW_OF_PATTERN, TURNABLE, Descriptor, compact
from warpfrag.smem.shared_memory import SWIZZLES, UNIT, Memory
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.shared_operand import Shared

MAX_TILES = 16  # the maximum number of tiles whose mistakes are cached
BASE_OFFSETS = 8
BYTE = 8
# errors of start addresses, in bytes: units, steps along k, lines and atoms
FAR = (16, 32, 64, 128, 256, 512, 1024)


def swizzle_text(width: int) -> str:
    """Return a description of a swizzle."""
    return f"swizzle {width}" if width else "no swizzle"


def suspects_in_memory(operand: Operand, tile: Shared) -> tuple[Mistake, ...]:
    """Return every mistake with an operand in shared memory, most likely first."""
    return _suspects(operand, tile.descriptor, tile.trans, tile.memory.shape[-1])


@lru_cache(MAX_TILES)
def _suspects(operand: Operand, descriptor: Descriptor, trans: bool, size: int) -> tuple[Mistake, ...]:  # noqa: FBT001
    """Return the mistakes for a tile in `size` bytes of memory; they do not depend on the contents of the memory."""
    tile = Shared(np.random.default_rng(0).integers(0, 256, size, np.uint8), descriptor, trans)
    mistakes = [*_read_wrongly(operand, tile), *_stored_wrongly(operand, tile), *_other_matrices(operand, tile)]
    return tuple(without_repetitions(sorted(mistakes, key=likelihood), tile.memory))


def byte_places(operand: Operand, memory: Memory) -> Numbers:
    """Return the byte addresses of an operand's elements, in order.

    Elements that share a byte have the same address.
    """
    rows, cols = operand.shape
    addresses = memory.addresses((rows, cols), operand.format.bits)
    if operand.format.bits < BYTE:  # K-major, because only 16-bit types can be MN-major
        addresses = (addresses if operand.role == "a" else addresses.T)[:, :: 8 // operand.format.bits]
    size = max(1, operand.format.bits // 8)
    return (addresses[..., None] + np.arange(size)).reshape(-1)


# ---- wrong descriptors


def _read_wrongly(operand: Operand, tile: Shared) -> Iterator[Mistake]:
    """Yield mistakes in which a wrong descriptor, or the wrong order, is used to read the right bytes."""
    role, right = operand.role, tile.descriptor
    places = byte_places(operand, operand.memory(right, trans=tile.trans))
    for text, descriptor, rare in _descriptors(right):
        wrong = byte_places(operand, operand.memory(descriptor, trans=tile.trans))
        yield Mistake("descriptor", role, text, partial(_moved, to=places, of=wrong), rare=rare)
    if operand.format.bits == TURNABLE:
        wrong = byte_places(operand, operand.memory(right, trans=not tile.trans))
        text = f"trans-{role} {'missing' if tile.trans else 'set'}: read {_order(trans=not tile.trans)}"
        yield Mistake("transposed", role, text, partial(_moved, to=places, of=wrong))


def _descriptors(right: Descriptor) -> Iterator[tuple[str, Descriptor, bool]]:
    """Yield wrong descriptors, each with a description and a flag for rare mistakes."""
    yield "leading and stride byte offset swapped", replace(right, leading=right.stride, stride=right.leading), False
    for swizzle in SWIZZLES:
        if swizzle != right.swizzle:
            text = f"read with {swizzle_text(swizzle)} instead of {swizzle_text(right.swizzle)}"
            yield text, replace(right, swizzle=swizzle), False
    for offset in range(BASE_OFFSETS if right.swizzle else 0):
        if offset != right.base_offset:
            text = f"base offset {offset} instead of {right.base_offset}"
            yield text, replace(right, base_offset=offset), offset not in {0, right.start // ROW_OF_PATTERN % LINES, 1}
    for far in FAR:
        for by in (far, -far):
            with suppress(InvalidOperand):  # skip addresses that a descriptor cannot encode
                yield f"start off by {by} bytes", right.moved(by), far > FAR[1]
    for name in ("leading", "stride"):
        own = getattr(right, name)
        for text, number in ((f"{name} byte offset 0", 0), *_scaled(name, own)):
            with suppress(InvalidOperand):
                if number != own:
                    yield text, _with(right, name, number), False
        for number in sorted({UNIT, 32, 64, 128, LINES * right.width, *(own << by for by in (1, 2, 3))}):
            with suppress(InvalidOperand):
                if number != own:
                    yield f"{name} byte offset {number} instead of {own}", _with(right, name, number), True


def _scaled(name: str, own: int) -> Iterator[tuple[str, int]]:
    """Yield wrong values of a field: in bytes instead of 16-byte units, or divided by 16 twice."""
    yield f"{name} byte offset in bytes, not in units of {UNIT}", own * UNIT
    yield f"{name} byte offset divided by {UNIT} twice", own // UNIT // UNIT * UNIT


# ---- matrices stored wrongly


def _stored_wrongly(operand: Operand, tile: Shared) -> Iterator[Mistake]:
    """Yield mistakes in which the right descriptor reads a matrix that was stored wrongly."""
    right, trans = tile.descriptor, tile.trans
    lines = operand.memory(right, trans=trans)
    stored = partial(_stored, operand, byte_places(operand, lines))
    for swizzle in SWIZZLES:  # lines of the right length, with units in the wrong swizzle pattern
        if right.swizzle:
            text = f"stored with {swizzle_text(swizzle)}, in lines of {right.width} bytes"
            yield from stored(text, replace(lines, swizzle=swizzle))
    for swizzle in SWIZZLES:
        text = f"stored with {swizzle_text(swizzle)} instead of {swizzle_text(right.swizzle)}"
        yield from stored(text, operand.memory(replace(right, swizzle=swizzle), trans=trans))
    swapped = replace(right, leading=right.stride, stride=right.leading)
    text = "stored with leading and stride byte offset swapped"
    yield from stored(text, operand.memory(swapped, trans=trans), rare=True)
    if operand.format.bits >= BYTE:
        yield from stored("stored row by row, without the descriptor's atoms", Memory("row", start=right.start))
        yield from stored("stored column by column, without the descriptor's atoms", Memory("col", start=right.start))
    for turned in (trans, not trans) if operand.format.bits == TURNABLE else (trans,):
        for swizzle in SWIZZLES:
            with suppress(InvalidOperand):  # skip lines that are too short for the swizzle
                other = compact(operand, trans=turned, swizzle=swizzle, start=right.start)[0]
                text = f"stored {_order(trans=turned)} without gaps, with {swizzle_text(swizzle)}"
                memory = operand.memory(other, trans=turned)
                if turned == trans:
                    yield from stored(text, memory, rare=True)
                else:
                    text = f"{text}, read {_order(trans=trans)}"
                    yield from stored(text, memory, kind="transposed", rare=swizzle != right.swizzle)


def _stored(
    operand: Operand, right: Numbers, text: str, memory: Memory, *, kind: Kind = "descriptor", rare: bool = False
) -> Iterator[Mistake]:
    """Yield the mistake of storing a matrix at wrong addresses, unless its elements would overlap."""
    stored = byte_places(operand, memory)
    if np.unique(stored).size == stored.size:
        yield Mistake(kind, operand.role, text, partial(_stored_elsewhere, of=right, to=stored), rare=rare)


def _order(*, trans: bool) -> str:
    return "MN-major" if trans else "K-major"


def _moved(memory: Bytes, *, to: Numbers, of: Numbers) -> Bytes:
    """Return the memory with the bytes at `of` copied to `to`; bytes beyond the memory are zero."""
    size = memory.shape[-1]
    source = np.where(of < size, memory[..., np.minimum(of, size - 1)], np.uint8(0))
    result = memory.copy()
    result[..., to] = source
    return result


def _stored_elsewhere(memory: Bytes, *, of: Numbers, to: Numbers) -> Bytes:
    """Return the memory with the bytes at `of` moved to `to`; the vacated bytes are zero."""
    size = memory.shape[-1]
    result = memory.copy()
    result[..., of] = 0
    fits = to < size
    result[..., to[fits]] = memory[..., of[fits]]
    return result


# ---- another matrix


def _other_matrices(operand: Operand, tile: Shared) -> Iterator[Mistake]:
    """Yield mistakes in which the matrix was transposed, shifted or changed before it was stored."""
    for source in (rearranged, negated, written_as):
        yield from source(operand, lambda change: partial(_recoded, operand=operand, tile=tile, change=change))


def _recoded(memory: Bytes, *, operand: Operand, tile: Shared, change: Callable[[Codes], Codes]) -> Bytes:
    """Return the memory with a change applied to the operand's codes."""
    rows, cols = operand.shape
    where = operand.memory(tile.descriptor, trans=tile.trans)
    codes = where.read(memory, (rows, cols), operand.format.bits).astype(code_dtype(operand.format))
    return where.write(memory, change(codes), operand.format.bits)


def negated_memory(operand: Operand, tile: Shared) -> Bytes:
    """Return the bytes of a tile with the signs of its elements inverted."""
    flip = partial(negated_codes, number_format=operand.format)
    return _recoded(tile.memory, operand=operand, tile=tile, change=flip)


def _with(descriptor: Descriptor, name: str, number: int) -> Descriptor:
    """Return the descriptor with one field changed."""
    entries: dict[str, Any] = {name: number}
    return replace(descriptor, **entries)
