"""Mistakes with whole matrices: transposed, moved, in the layout of a different fragment, or read with wrong indices.

An `IndexRule` gives the element that is read for (row, col), as a flat index into the row-major matrix; `BEYOND` means
outside the matrix. The rules do not depend on the extents of fragments: `indexing` applies them to one operand, and
`kernel_search` to the matrices of a kernel.

    >>> rules = {rule.text: rule for rule in misindexed((4, 4), "a")}
    >>> rule = rules["row index with too few bits (row & 1): rows repeat every 2"]
    >>> rule.source(np.arange(4)[:, None], np.arange(4)[None])[:, 0].tolist()
    [0, 4, 0, 4]
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.agreement import numbers
from warpfrag.diagnosis.findings import Kind, Mistake, Words
from warpfrag.isa.legality import resolve
from warpfrag.isa.operands import REGISTER_BITS, mma_layouts, operands
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.matrix_moves import move_words
from warpfrag.tensorcore.operand import Operand

Indices: TypeAlias = NDArray[np.intp]
Recoding: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
BLOCK = 8  # the rows and columns of the blocks that ldmatrix and movmatrix transpose
HALF = 16  # the size of their elements in bits
GROUP = 4  # the number of lanes that share a row in most fragments
MANY = 8  # up to this number of registers, mistakes with single registers are tried
LANE_NUMBERS = "loaded with groupID = {1} and threadID_in_group = {0}"
EXCHANGED = LANE_NUMBERS.format("lane / 4", "lane % 4")


def other_order(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the element that is read at each position if a column-major matrix is read as row-major."""
    return np.arange(math.prod(shape)).reshape(shape).swapaxes(-1, -2).reshape(-1)


def recoded(operand: Operand, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Words], Words]:
    """Return a function on registers that applies `change` to the codes of their matrix."""
    return lambda words: operand.pack(change(operand.unpack(words, raw=True)), raw=True)


def ordered(codes: NDArray[Any], *, order: NDArray[np.intp], axes: int = 2) -> NDArray[Any]:
    """Return the matrix whose element i is element order[i] of `codes`; the last `axes` axes form the matrix."""
    return codes.reshape(*codes.shape[:-axes], order.size).take(order, axis=-1).reshape(codes.shape)


def _rearranged(operand: Operand, order: NDArray[np.intp]) -> Callable[[Words], Words]:
    return recoded(operand, partial(ordered, order=order, axes=len(operand.shape)))


def element_orders(shape: tuple[int, ...]) -> Iterator[tuple[Kind, str, NDArray[np.intp], bool]]:
    """Yield wrong element orders: the category, a description, the element at each index, and a flag for rare ones."""
    rows, cols = shape[-2:]
    elements = np.arange(math.prod(shape)).reshape(shape)
    other = other_order(shape)
    yield "transposed", "read with row-major and column-major order swapped", other, False
    yield "transposed", "written with row-major and column-major order swapped", np.argsort(other), False
    if rows % BLOCK == 0 and cols % BLOCK == 0:
        blocks = elements.reshape(-1, rows // BLOCK, BLOCK, cols // BLOCK, BLOCK)
        yield "blocks", f"each {BLOCK} x {BLOCK} block transposed", blocks.transpose(0, 1, 4, 3, 2), False
        if rows > BLOCK and cols > BLOCK:
            turned = blocks.transpose(0, 3, 1, 2, 4).reshape(-1, rows // BLOCK, cols // BLOCK, BLOCK, BLOCK)
            yield "blocks", f"{BLOCK} x {BLOCK} blocks in another order", turned.transpose(0, 1, 3, 2, 4), False
    for name, axis in (("rows", -2), ("columns", -1), ("elements of memory", None)):
        for back, shift in (("", 1), ("back ", -1)):
            yield "layout", f"{name} moved {back}by one", np.roll(elements, shift, axis), True
    for name, axis in (("rows", -2), ("columns", -1)):
        yield "layout", f"{name} reversed", np.flip(elements, axis), True
        if shape[axis] % 2 == 0:
            yield "layout", f"halves of the {name} swapped", np.roll(elements, shape[axis] // 2, axis), True


def rearranged(operand: Operand, recode: Callable[[Recoding], Recoding] | None = None) -> Iterator[Mistake]:
    """Yield one mistake for each wrong order of elements; `recode` turns a change of codes into an operand change."""
    is_moved = recode is None and operand.spec.container == HALF and operand.role in "ab"
    recode = recode or partial(recoded, operand)
    for kind, text, order, rare in element_orders(operand.shape):
        hint = ": ldmatrix .trans missing, or not needed" if is_moved and "block transposed" in text else ""
        change = recode(partial(ordered, order=order.reshape(-1), axes=len(operand.shape)))
        yield Mistake(kind, operand.role, f"{text}{hint}", change, rare=rare)


def turned(operand: Operand) -> Iterator[Mistake]:
    """Yield the mistakes of transposing blocks with ldmatrix or movmatrix although the element size does not fit."""
    role = operand.role
    if role in "ab" and operand.spec.container < HALF:
        yield Mistake("blocks", role, "ldmatrix with .trans, which transposes pairs of bytes, not elements", move_words)
    elif operand.spec.container == HALF:
        for word in range(operand.words):
            text = f"the {BLOCK} x {BLOCK} block of register {word} alone transposed"
            yield Mistake("blocks", role, text, partial(_turn_word, word=word), rare=True)
    elif operand.spec.container == REGISTER_BITS:
        yield Mistake(
            "blocks", role, "transposed by .trans or movmatrix, which transpose halves of elements", move_words
        )


def _turn_word(words: Words, *, word: int) -> Words:
    result = words.copy()
    result[..., word] = move_words(words[..., word, None])[..., 0]
    return result


def other_layouts(operand: Operand) -> Iterator[Mistake]:
    """Yield the mistakes of filling (for D, reading) registers in the wrong operand's layout or in memory order."""
    layout = operand.layout
    if layout.copies > 1:
        return
    places = np.argsort(fragment.elements(layout))
    turned = other_order(operand.shape)
    seen = {order.tobytes() for order in (np.arange(turned.size), turned, np.argsort(turned))}
    forward, inverse = "loaded {}", "loaded {}, but with source and target exchanged"
    if operand.role == "d":
        forward, inverse = "the registers are read {}", "the dump is arranged {}, not in fragment order"
    for text, other in _known_elements(operand):
        order = other[places]
        if order.tobytes() in seen:
            continue
        seen.add(order.tobytes())
        back = np.argsort(order)
        there, away = (back, order) if operand.role == "d" else (order, back)
        yield Mistake("layout", operand.role, forward.format(text), _rearranged(operand, there))
        yield Mistake("layout", operand.role, inverse.format(text), _rearranged(operand, away), rare=True)


def _known_elements(operand: Operand) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield other layouts of a matrix of this shape: a description, and the element in every register slot."""
    layout = operand.layout
    size = math.prod(operand.shape)
    if layout.dims == ("row", "col"):
        for role in "abc":
            for other in mma_layouts(role):
                own = "its own" if role == operand.role else f"{operand.role.upper()}'s"
                text = f"with {role.upper()}'s lane layout ({{}}, {REGISTER_BITS // other.slots}-bit) instead of {own}"
                yield from _tilings(text, other, layout.shape, layout.regs * layout.slots, layout.ins.get("warp", 1))
    elif layout.dims == ("mma", "row", "col"):
        form = resolve(operand.instruction)
        for words in product(("row", "col"), repeat=len(form.layouts)):
            other = operands(replace(form, layouts=words), "")[operand.role].layout
            yield f"for .{'.'.join(words)}", fragment.elements(other)
    threads = math.prod(operand.threads)
    each = size // threads
    places = np.arange(size).reshape(threads, each)
    yield "in row-major order", places.reshape(-1)
    yield "in column-major order", other_order(operand.shape)[places].reshape(-1)
    yield "in row-major order, one element per lane at a time", places.reshape(each, threads).T.reshape(-1)


def _tilings(
    text: str, other: Layout, shape: tuple[int, ...], held: int, warps: int
) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield the layout `other`, unchanged and transposed, tiled to the part of a matrix that each warp holds.

    `held` is the number of elements in a lane.
    """
    rows, cols = other.shape
    places = np.arange(math.prod(shape)).reshape(shape)
    for axis, turned in product(range(min(2, warps)), (False, True)):
        parts = np.split(places, warps, axis)
        each, (high, wide) = parts[0].shape, (cols, rows) if turned else (rows, cols)
        counts = {"row": each[0] // high, "col": each[1] // wide}
        if each != (high * counts["row"], wide * counts["col"]) or (turned and rows == cols):
            continue
        whole = other.tiled(**({"row": counts["col"], "col": counts["row"]} if turned else counts))
        if whole.regs * whole.slots != held or whole.copies > 1:
            continue
        elements = fragment.elements(whole)
        if turned:
            elements = elements % each[0] * each[1] + elements // each[0]
        tiles = f"{'tiles of ' if max(counts.values()) > 1 else ''}{rows} x {cols}{', transposed' if turned else ''}"
        tiles += f", separate {('rows', 'columns')[axis]} for each warp" if warps > 1 else ""
        yield text.format(tiles), np.concatenate([part.reshape(-1)[elements] for part in parts])


# ---- wrong indices


BEYOND = -1
PADDING = (1, 2, 4, 8, 16, 32)  # likely paddings of leading dimensions, and offsets of pointers, in elements
FACTORS = (2, 4)


@dataclass(frozen=True)
class IndexRule:
    """A mistake with an index: `source` gives the element that is read instead of (row, col)."""

    kind: Kind
    text: str
    source: Callable[[Indices, Indices], Indices]
    rare: bool = False


def misindexed(shape: tuple[int, int], role: str, lengths: Iterable[int] = (), tile: int = 0) -> Iterator[IndexRule]:
    """Yield every rule for a matrix; `lengths` are leading dimensions that may be mistaken for the right one.

    For D, the rules give the location at which each result is stored; elements that are never stored are `BEYOND`.
    `tile` is the number of rows, and of columns, in a tile.
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
        if other < 1 or (role == "d" and other < right):  # results would overwrite one another in an unknown order
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
    """Return the element that is read if the stride is wrong, or BEYOND if there is none."""
    place = (col * stride + row if columns_first else row * stride + col) + shift
    element = place % shape[0] * shape[1] + place // shape[0] if columns_first else place
    return np.where((place >= 0) & (place < math.prod(shape)), element, BEYOND)


def _stored_apart(row: Indices, col: Indices, *, shape: tuple[int, int], stride: int, columns_first: bool) -> Indices:
    """Return the element that is stored at (row, col) if the stride is wrong, or BEYOND if there is none."""
    right = shape[0] if columns_first else shape[1]
    place = col * right + row if columns_first else row * right + col
    line, within = place // stride, place % stride
    stored = line * shape[1] + within if not columns_first else within * shape[1] + line
    return np.where(within < right, stored, BEYOND)


def gathered(codes: NDArray[Any], source: Indices) -> NDArray[Any]:
    """Return the elements of matrices (the last two axes) at flat indices; elements beyond the matrix are zero."""
    flat = codes.reshape(*codes.shape[:-2], -1)
    return np.where(source == BEYOND, flat.dtype.type(0), flat[..., np.maximum(source, 0)])


def indexing(operand: Operand) -> Iterator[Mistake]:
    """Yield mistakes with the indices into one operand."""
    rows, cols = operand.shape[-2:]
    for rule in misindexed((rows, cols), operand.role):
        source = rule.source(np.arange(rows)[:, None], np.arange(cols)[None])
        change = recoded(operand, partial(gathered, source=source))
        yield Mistake(rule.kind, operand.role, rule.text, change, rare=rule.rare or operand.role == "d")


def misloaded(operand: Operand) -> Iterator[Mistake]:
    """Yield wrong loads: another register's elements, a wrong row or column, or indices that misuse the lane."""
    layout, (rows, cols), by_column = operand.layout, operand.shape[-2:], operand.role == "b"
    if layout.copies > 1 or layout.dims != ("row", "col") or not layout.is_bitwise or operand.role == "d":
        return
    for kind, text, is_wrong, (down, across) in _misloads(operand):
        row, col = np.add(np.indices((rows, cols)), (is_wrong * down, is_wrong * across))
        is_inside = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
        source = np.where(is_inside, row * cols + col, BEYOND)
        if kind == "lanes":  # an address beyond the end of a row is in the next row; B is column-major in most kernels
            pitch = rows if by_column else cols
            source = _apart(row, col, shape=(rows, cols), stride=pitch, shift=0, columns_first=by_column)
        change = recoded(operand, partial(gathered, source=source))
        yield Mistake(kind, operand.role, text, change, rare=text != EXCHANGED)


def _misloads(operand: Operand) -> Iterator[tuple[Kind, str, NDArray[np.bool_], tuple[Any, Any]]]:
    """Yield wrong loads: category, description, a mask of wrong elements, and the errors of their rows and columns."""
    places = np.argsort(fragment.elements(operand.layout)).reshape(operand.shape)
    start = dict.fromkeys(operand.layout.ins, 0)
    lane, reg = places // (operand.regs * operand.slots) % LANES, places // operand.slots % operand.regs
    corners = [operand.layout.at(**start | {"reg": number}) for number in range(operand.regs)]
    single = range(operand.regs if operand.regs <= MANY else 0)
    for wrong, other in permutations(single, 2):
        away = (corners[other][0] - corners[wrong][0], corners[other][1] - corners[wrong][1])
        yield "registers", f"register {wrong} holds the elements of register {other}", reg == wrong, away
    bits = [[number for number in range(operand.regs) if number >> bit & 1] for bit in range(operand.regs.bit_length())]
    for chosen in (*([number] for number in single), *(some for some in bits if len(some) > 1)):
        for axis, step in product((0, 1), (*PADDING, *(-size for size in PADDING))):
            if abs(step) < operand.shape[axis]:
                name = f"register{'s' * (len(chosen) > 1)} {numbers(chosen)}"
                text = f"{name} loaded from {('row', 'column')[axis]} {'-' if step < 0 else '+'} {abs(step)}"
                yield "registers", text, np.isin(reg, chosen), ((step, 0), (0, step))[axis]
    right = {"lane % 4": lane % GROUP, "lane / 4": lane // GROUP}
    for first, (part, count) in zip((1, GROUP), right.items(), strict=True):
        for axis, factor in enumerate(operand.layout.at(**start | {"lane": first})):
            for wrong in (factor * 2, factor // 2, 0) if factor else ():
                by = count * (wrong - factor)
                text = f"{('row', 'column')[axis]} with ({part}) * {wrong} instead of * {factor}"
                yield "index", text, np.ones(lane.shape, bool), ((by, 0), (0, by))[axis]
    parts = right | {"lane % 8": lane % BLOCK, "lane / 8": lane // BLOCK, "lane": lane}
    for names in [*permutations(parts, 2)][1:]:
        thread, group = (parts[name] - number for name, number in zip(names, right.values(), strict=True))
        steps = zip(*(operand.layout.at(**start | {"lane": first}) for first in (1, GROUP)), strict=True)
        away = tuple(thread * by_thread + group * by_group for by_thread, by_group in steps)
        yield "lanes", LANE_NUMBERS.format(*names), np.ones(lane.shape, bool), away
