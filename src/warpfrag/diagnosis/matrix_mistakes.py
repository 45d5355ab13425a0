"""A matrix turned, whole or in blocks, moved, or laid out by the rule of another fragment."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis.mistake_types import Mistake
from warpfrag.isa.legality import resolve
from warpfrag.isa.operands import REGISTER_BITS, mma_layouts, operands
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.matrix_moves import move_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from warpfrag.diagnosis.mistake_types import Words
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import Operand

BLOCK = 8  # rows and columns of what ldmatrix and movmatrix turn
HALF = 16  # bits of the elements that they turn


def read_in_other_order(operand: Operand) -> Mistake:
    """The whole matrix, as if what lies column by column were read row by row."""
    transpose = partial(_rearranged, operand=operand, order=other_order(operand.shape))
    return Mistake("transposed", operand.role, "read with row-major and column-major order swapped", transpose)


def other_order(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Which element comes where, if what lies column by column is read row by row."""
    return np.arange(math.prod(shape)).reshape(shape).swapaxes(-1, -2).reshape(-1)


def _rearranged(words: Words, *, operand: Operand, order: NDArray[np.intp]) -> Words:
    """The registers of the matrix whose element i is element order[i] of the one that these hold."""
    codes = operand.unpack(words, raw=True)
    batch = words.shape[: -1 - len(operand.threads)]
    flat = codes.reshape(*batch, order.size)
    return operand.pack(flat.take(order, axis=-1).reshape(codes.shape), raw=True)


def turned(operand: Operand) -> Iterator[Mistake]:
    """Blocks turned, or in another order; and memory that was written in the other order."""
    role, shape = operand.role, operand.shape
    rows, cols = shape[-2:]
    move = partial(partial, _rearranged, operand=operand)
    if rows != cols:
        written = np.argsort(other_order(shape))
        yield Mistake("transposed", role, "written with row-major and column-major order swapped", move(order=written))
    if operand.spec.container == HALF and role in "ab":
        text = f"each {BLOCK} x {BLOCK} block transposed: ldmatrix .trans missing, or not needed"
    else:
        text = f"each {BLOCK} x {BLOCK} block transposed"
    if rows % BLOCK == 0 and cols % BLOCK == 0:
        blocks = np.arange(math.prod(shape)).reshape(-1, rows // BLOCK, BLOCK, cols // BLOCK, BLOCK)
        yield Mistake("blocks", role, text, move(order=blocks.transpose(0, 1, 4, 3, 2).reshape(-1)))
        if rows > BLOCK and cols > BLOCK:
            turned = blocks.transpose(0, 3, 1, 2, 4).reshape(-1, rows // BLOCK, cols // BLOCK, BLOCK, BLOCK)
            order = turned.transpose(0, 1, 3, 2, 4).reshape(-1)
            yield Mistake("blocks", role, f"{BLOCK} x {BLOCK} blocks in another order", move(order=order))
    if role in "ab" and operand.spec.container < HALF:
        yield Mistake("blocks", role, "ldmatrix with .trans, which turns pairs of bytes, not elements", move_words)
    elif operand.spec.container == HALF:
        for word in range(operand.words):
            text = f"the {BLOCK} x {BLOCK} block of register {word} alone transposed"
            yield Mistake("blocks", role, text, partial(_turn_word, word=word), rare=True)
    elif operand.spec.container == REGISTER_BITS:
        yield Mistake("blocks", role, "turned by .trans or movmatrix, which turn halves of elements", move_words)


def _turn_word(words: Words, *, word: int) -> Words:
    result = words.copy()
    result[..., word] = move_words(words[..., word, None])[..., 0]
    return result


def moved(operand: Operand) -> Iterator[Mistake]:
    """The matrix moved by a row, a column, or an element of memory."""
    places = np.arange(math.prod(operand.shape)).reshape(operand.shape)
    for name, axis in (("rows", -2), ("columns", -1), ("elements of memory", None)):
        for direction, shift in (("", 1), (", the other way", -1)):
            order = np.roll(places, shift, axis).reshape(-1)
            change = partial(_rearranged, operand=operand, order=order)
            yield Mistake("layout", operand.role, f"{name} moved by one{direction}", change, rare=True)
    for name, order in (("rows", places[..., ::-1, :]), ("columns", places[..., ::-1])):
        change = partial(_rearranged, operand=operand, order=order.reshape(-1))
        yield Mistake("layout", operand.role, f"{name} reversed", change, rare=True)


def other_layouts(operand: Operand) -> Iterator[Mistake]:
    """The registers filled, or of D read, by the rule of another operand, or by none."""
    layout = operand.layout
    if layout.copies > 1:
        return
    elements = fragment.elements(layout)
    places = np.argsort(elements)
    turned = other_order(operand.shape)
    seen = {order.tobytes() for order in (np.arange(turned.size), turned, np.argsort(turned))}
    verb = "read" if operand.role == "d" else "laid out"
    for text, other in _known_elements(operand):
        order = other[places]
        if order.tobytes() in seen:
            continue
        seen.add(order.tobytes())
        back = np.argsort(order)
        there, away = (back, order) if operand.role == "d" else (order, back)
        for message, taken, rare in ((f"{verb} {text}", there, False), (f"{verb}, inversely, {text}", away, True)):
            change = partial(_rearranged, operand=operand, order=taken)
            yield Mistake("layout", operand.role, message, change, rare=rare)


def _known_elements(operand: Operand) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """The element of every place, by other rules for a matrix of this shape."""
    layout = operand.layout
    size = math.prod(operand.shape)
    if layout.dims == ("row", "col"):
        for role in "abc":
            for other in mma_layouts(role):
                text = f"{REGISTER_BITS // other.slots}-bit {role.upper()}"
                tilings = _tilings if len(operand.threads) == 1 else _of_warps
                yield from tilings(text, other, layout)
    elif layout.dims == ("mma", "row", "col"):
        form = resolve(operand.instruction)
        for words in product(("row", "col"), repeat=len(form.layouts)):
            other = operands(replace(form, layouts=words), "")[operand.role].layout
            yield f"for .{'.'.join(words)}", fragment.elements(other)
    threads = math.prod(operand.threads)
    each = size // threads
    places = np.arange(size).reshape(threads, each)
    yield f"row by row, {each} elements to a lane", places.reshape(-1)
    yield f"column by column, {each} elements to a lane", other_order(operand.shape)[places].reshape(-1)
    yield "row by row, an element to a lane", places.reshape(each, threads).T.reshape(-1)


def _of_warps(text: str, other: Layout, layout: Layout) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """A layout of one warp, tiled to what each warp of a warpgroup holds: some rows, or some columns."""
    (rows, cols), warps = layout.shape, layout.ins["warp"]
    whole = np.arange(rows * cols).reshape(rows, cols)
    for along, each in (("rows", (rows // warps, cols)), ("columns", (rows, cols // warps))):
        tiles = {"row": each[0] // other.shape[0], "col": each[1] // other.shape[1]}
        if each != (tiles["row"] * other.shape[0], tiles["col"] * other.shape[1]):
            continue
        mine = other.tiled(**tiles)
        if mine.regs * mine.slots != layout.regs * layout.slots or mine.copies > 1:
            continue
        parts = np.split(whole, warps, axis=0 if along == "rows" else 1)
        elements = np.concatenate([part.reshape(-1)[fragment.elements(mine)] for part in parts])
        size = " x ".join(map(str, other.shape))
        yield f"like tiles of {'an' if text[0] == '8' else 'a'} {text} of {size}, each warp its own {along}", elements


def _tilings(text: str, other: Layout, layout: Layout) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """A layout, as it is or with rows and columns exchanged, tiled to the shape of this one."""
    rows, cols = other.shape
    shape = layout.shape
    for turned, (high, wide) in ((False, (rows, cols)), (True, (cols, rows))):
        counts = {"row": shape[0] // high, "col": shape[1] // wide}
        if shape != (high * counts["row"], wide * counts["col"]) or (turned and rows == cols):
            continue
        mine = {"row": counts["col"], "col": counts["row"]} if turned else counts
        whole = other.tiled(**mine)
        if whole.regs * whole.slots != layout.regs * layout.slots or whole.copies > 1:
            continue
        elements = fragment.elements(whole)
        if turned:
            elements = elements % shape[0] * shape[1] + elements // shape[0]
        size = f"{rows} x {cols}" + (", transposed" if turned else "")
        tiles = "tiles of " if max(counts.values()) > 1 else ""
        yield f"like {tiles}{'an' if text[0] == '8' else 'a'} {text} of {size}", elements
