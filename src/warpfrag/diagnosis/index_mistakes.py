"""Wrong indices into the memory of a matrix: too few bits, a wrong leading dimension, an offset.

Each is a rule that says which element is read for element (row, col), as a flat index into the matrix as it lies row
by row; `BEYOND` stands for what lies outside the matrix. The rules do not depend on extents of fragments: `suspects`
takes them for one operand, `whole_tiles` for the matrices of a kernel.

    >>> rules = {rule.text: rule for rule in misindexed((4, 4), "a")}
    >>> rule = rules["row index with too few bits (row & 1): rows repeat every 2"]
    >>> rule.source(np.arange(4)[:, None], np.arange(4)[None])[:, 0].tolist()
    [0, 4, 0, 4]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.diagnosis.mistake_types import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from warpfrag.diagnosis.mistake_types import Kind, Words
    from warpfrag.tensorcore.operand import Operand

    Indices = NDArray[np.intp]
    Source = Callable[[Indices, Indices], Indices]

BEYOND = -1
PADDING = (1, 2, 4, 8, 16, 32)  # elements by which leading dimensions are padded, and pointers are off
FACTORS = (2, 4)


@dataclass(frozen=True)
class IndexRule:
    """One mistake with an index: the element that is taken for (row, col), arrays that broadcast."""

    kind: Kind
    text: str
    source: Source
    rare: bool = False


def misindexed(shape: tuple[int, int], role: str, lengths: Iterable[int] = (), tile: int = 0) -> Iterator[IndexRule]:
    """Every rule for a matrix; `lengths` are leading dimensions that may be mistaken for its own.

    Of D they say where results are stored, so that places that nothing is stored to are beyond. `tile` is the number
    of rows, and of columns, after which an index that counts within a tile begins anew.
    """
    yield from _few_bits(shape)
    for columns_first in (False, True):
        yield from _other_stride(shape, role, lengths, columns_first=columns_first)
        yield from _offset(shape, role, columns_first=columns_first, tile=tile)
    for axis, name in enumerate(("row", "column")):
        for step in sorted({1, 2, 4, 8, 16, 32, tile}):
            for by in (step, -step) if 0 < step < shape[axis] else ():
                text = f"offset of {by:+d} {name}{'s' if step > 1 else ''}"
                yield IndexRule("offset", text, partial(_moved, shape=shape, axis=axis, by=by), rare=True)


def _few_bits(shape: tuple[int, int]) -> Iterator[IndexRule]:
    for axis, name in enumerate(("row", "column")):
        extent = shape[axis]
        for bit in reversed(range((extent - 1).bit_length())):
            kept = (1 << bit) - 1
            repeat = f"{name}s repeat every {kept + 1}" if kept else f"every {name} is {name} 0"
            text = f"{name} index with too few bits ({name} & {kept}): {repeat}"
            rare = bit < (extent - 1).bit_length() - 1
            yield IndexRule("index", text, partial(_masked, shape=shape, axis=axis, mask=kept), rare=rare)
        for bit in range((extent - 1).bit_length() - 1):
            text = f"{name} index without bit {bit} ({name} & ~{1 << bit})"
            yield IndexRule("index", text, partial(_masked, shape=shape, axis=axis, mask=~(1 << bit)), rare=True)


def _masked(row: Indices, col: Indices, *, shape: tuple[int, int], axis: int, mask: int) -> Indices:
    row, col = (row & mask, col) if axis == 0 else (row, col & mask)
    return row * shape[1] + col


def _moved(row: Indices, col: Indices, *, shape: tuple[int, int], axis: int, by: int) -> Indices:
    row, col = (row + by, col) if axis == 0 else (row, col + by)
    index = (row if axis == 0 else col) * 1
    inside = (index >= 0) & (index < shape[axis])
    return np.where(inside, row * shape[1] + col, BEYOND)


def _other_stride(
    shape: tuple[int, int], role: str, lengths: Iterable[int], *, columns_first: bool
) -> Iterator[IndexRule]:
    right = shape[0] if columns_first else shape[1]
    near = {right + step for step in PADDING} | {right - step for step in PADDING}
    near |= {right * factor for factor in FACTORS} | {right // factor for factor in FACTORS}
    for other in sorted({*near, *lengths} - {right}, key=lambda length: (abs(length - right), length)):
        if other < 1 or (role == "d" and other < right):  # results that overwrite each other: nobody knows which stays
            continue
        order = "column-major" if columns_first else "row-major"
        text = f"leading dimension {other} instead of {right} ({order})"
        if role == "d":
            source = partial(_stored_apart, shape=shape, stride=other, columns_first=columns_first)
        else:
            source = partial(_apart, shape=shape, stride=other, shift=0, columns_first=columns_first)
        yield IndexRule("stride", text, source, rare=True)


def _offset(shape: tuple[int, int], role: str, *, columns_first: bool, tile: int) -> Iterator[IndexRule]:
    right = shape[0] if columns_first else shape[1]
    order = "column-major" if columns_first else "row-major"
    for step in sorted({*PADDING, tile} - {0, right}):
        for by in (step, -step) if step < math.prod(shape) else ():
            text = f"offset of {by:+d} element{'s' if step > 1 else ''} in memory ({order})"
            shift = -by if role == "d" else by
            source = partial(_apart, shape=shape, stride=right, shift=shift, columns_first=columns_first)
            yield IndexRule("offset", text, source, rare=True)


def _apart(
    row: Indices, col: Indices, *, shape: tuple[int, int], stride: int, shift: int, columns_first: bool
) -> Indices:
    """What is read where lines are taken to lie `stride` elements apart."""
    place = (col * stride + row if columns_first else row * stride + col) + shift
    return _element(place, shape, columns_first=columns_first)


def _stored_apart(row: Indices, col: Indices, *, shape: tuple[int, int], stride: int, columns_first: bool) -> Indices:
    """What lies at (row, col) where lines were stored `stride` elements apart; beyond is what was not stored to."""
    right = shape[0] if columns_first else shape[1]
    place = col * right + row if columns_first else row * right + col
    line, within = place // stride, place % stride
    stored = line * shape[1] + within if not columns_first else within * shape[1] + line
    return np.where(within < right, stored, BEYOND)


def _element(place: Indices, shape: tuple[int, int], *, columns_first: bool) -> Indices:
    """The element that lies at a place in memory."""
    element = place % shape[0] * shape[1] + place // shape[0] if columns_first else place
    return np.where((place >= 0) & (place < math.prod(shape)), element, BEYOND)


def gathered(codes: NDArray[Any], source: Indices) -> NDArray[Any]:
    """The elements of matrices (the last two axes) at flat indices; beyond is zero."""
    flat = codes.reshape(*codes.shape[:-2], -1)
    taken: NDArray[Any] = np.where(source == BEYOND, flat.dtype.type(0), flat[..., np.maximum(source, 0)])
    return taken


def indexing(operand: Operand) -> Iterator[Mistake]:
    """The mistakes with an index that one operand of one instruction allows."""
    rows, cols = operand.shape[-2:]
    for rule in misindexed((rows, cols), operand.role):
        source = rule.source(np.arange(rows)[:, None], np.arange(cols)[None])
        change = partial(_reindexed, operand=operand, source=source)
        yield Mistake(rule.kind, operand.role, rule.text, change, rare=rule.rare or operand.role == "d")


def _reindexed(words: Words, *, operand: Operand, source: Indices) -> Words:
    return operand.pack(gathered(operand.unpack(words, raw=True), source), raw=True)
