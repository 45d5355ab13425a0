"""Find the index expression that a kernel used, from the addresses of a fragment's elements.

Kernels compute the index of element i of a lane as a sum: a step for every bit of the lane (and for the row and column
of the tile), and an offset for every i. Doubles that occur only once reveal some addresses. Among the maps that fit
these addresses and explain all of memory, the one with the fewest wrong steps is compared with the right map.

    >>> print(terms_text("lane", (8, 16, 2, 4, 8)))
    (lane & 3) * 8 + (lane >> 2) * 2
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.agreement import BLOCK, as_lines, line_numbers, named_lines
from warpfrag.diagnosis.findings import Codes, Mistake
from warpfrag.diagnosis.matrix_mistakes import BEYOND, gathered, recoded
from warpfrag.diagnosis.observation import Observation
from warpfrag.formats.arrays import Doubles, Mask, as_doubles
from warpfrag.formats.codes import from_codes
from warpfrag.layout.index_expressions import BitRun, IndexConstant, IndexOperation, run_term
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import Operand

MIN_REGION, MAX_REGION = 4, 0.875  # the minimum number and the maximum share of unwritten elements
MAX_CHANCE = 0.25  # the maximum share of unwritten elements that may be right, or values of other elements, by chance
MAX_CORRELATION = 0.75  # the maximum correlation, by chance, between unwritten elements and the right values
BLOCKS = BLOCK, BLOCK
MIN_KNOWN = 4  # number of places whose address must be known
MAX_KNOWN = 1024  # number of known addresses that are fitted

Ints = NDArray[np.intp]
Pair = tuple[int, int]


class Places(NamedTuple):
    """The places of a matrix in fragments: thread bits and tile, element number, and index in memory of each."""

    factors: Ints  # (places, bits of the thread + 2): 0 or 1 for each bit, then the row and column of the tile
    numbers: Ints  # (places,): the number i of the element in its lane
    indices: Ints  # (places,): the right index in memory
    length: int  # the number of elements in a lane


class IndexMap(NamedTuple):
    """A map to indices in memory: the step of every factor of `Places`, and the offset of every element of a lane."""

    steps: tuple[int, ...]
    offsets: tuple[int, ...]

    def of(self, places: Places) -> Ints:
        """Return the index of every place."""
        indices: Ints = places.factors @ np.array(self.steps) + np.array(self.offsets)[places.numbers]
        return indices


def places_of(operand: Operand, shape: tuple[int, int], strides: tuple[int, int]) -> Places | None:
    """Return the places of a matrix of complete tiles in memory; None if the layout is not a sum over bits."""
    layout, (high, wide) = operand.layout, operand.shape[-2:]
    is_sum = layout.copies == 1 and layout.dims == ("row", "col") and layout.is_bitwise
    if not is_sum or shape[0] % high or shape[1] % wide:
        return None
    elements, count = fragment.elements(layout).reshape(-1), operand.regs * operand.slots
    top, left, place = (each.ravel() for each in np.indices((shape[0] // high, shape[1] // wide, elements.size)))
    threads = elements.size // count
    bits = [place // count >> bit & 1 for bit in range((threads - 1).bit_length())]
    row, col = top * high + elements[place] // wide, left * wide + elements[place] % wide
    return Places(np.stack([*bits, top, left], axis=1), place % count, row * strides[0] + col * strides[1], count)


def fitted(places: Places, known: Ints, is_right: Callable[[Ints], bool]) -> tuple[IndexMap, IndexMap] | None:
    """Return the map that explains memory with the fewest wrong steps, and the right map; None if there is none.

    `known` has the index of each place, or -1; `is_right` tests the indices of all places.
    """
    zero = IndexMap((0,) * places.factors.shape[1], (0,) * places.length)
    right, most = _solved(places, np.arange(len(known)), places.indices, zero, ())
    at = np.random.default_rng(0).permutation(np.flatnonzero(known >= 0))[:MAX_KNOWN]
    if right is None or len(at) < MIN_KNOWN or (free := _solved(places, at, known, right, ()))[0] is None:
        return None
    every = range(len(right.steps))
    kept = (some for size in every for some in combinations(every, len(every) - size) if free[1] < most)
    maps = chain((_solved(places, at, known, right, some)[0] for some in kept), [free[0]])
    return next(((found, right) for found in maps if found is not None and is_right(found.of(places))), None)


def _solved(
    places: Places, at: Ints, known: Ints, right: IndexMap, kept: tuple[int, ...]
) -> tuple[IndexMap | None, int]:
    """Return the map that fits the known indices, with the right steps for `kept`, and the number of fitted steps."""
    factors, numbers = places.factors[at], places.numbers[at]
    steps = np.zeros(factors.shape[1], np.intp)
    steps[[*kept]] = [right.steps[factor] for factor in kept]
    free = [factor for factor in range(len(steps)) if factor not in kept]
    rest = known[at] - factors @ steps
    counts = np.maximum(np.bincount(numbers, minlength=places.length), 1)
    table = np.column_stack([factors[:, free], rest]).astype(float)
    table -= np.stack([np.bincount(numbers, column, places.length) / counts for column in table.T], axis=1)[numbers]
    solution, _, rank, _ = np.linalg.lstsq(table[:, :-1], table[:, -1])
    steps[free] = np.rint(solution)
    offsets = np.array(right.offsets)
    offsets[numbers] = rest - factors[:, free] @ steps[free]
    found = IndexMap((*map(int, steps),), (*map(int, offsets),))
    is_fit = (found.of(places._replace(factors=factors, numbers=numbers)) == known[at]).all()
    return found if is_fit else None, int(rank)


def stored_elsewhere(operand: Operand, seen: Codes, right: Codes) -> Iterator[Mistake]:
    """Yield the mistake of stores whose wrong index explains all of a row-major D.

    If several elements are stored at one index, any of them may remain. All values at indices without a store must be
    equal.
    """
    places = places_of(operand, right.shape, (right.shape[1], 1)) if right.ndim == 2 else None
    if places is None:
        return
    memory, values = seen.ravel(), right.ravel()[places.indices]
    source = np.full(memory.size, BEYOND)

    def explains(indices: Ints) -> bool:
        if indices.min() < 0 or indices.max() >= memory.size:
            return False
        remains = memory[indices] == values
        source[:] = BEYOND
        source[indices[remains]] = places.indices[remains]
        empty = np.ones(memory.size, bool)
        empty[indices] = False
        return bool((empty | (source != BEYOND)).all()) and np.unique(memory[empty]).size <= 1

    is_alone = unique_places(values, values) >= 0
    found = fitted(places, np.where(is_alone, unique_places(memory, values), -1), explains)
    if found is not None:
        change = recoded(operand, partial(gathered, source=source.reshape(seen.shape)))
        yield Mistake("index", operand.role, f"stored with {difference(operand, *found)}", change)


def unwritten(operand: Operand, same: Mask, seen: Doubles, right: Doubles, block: Pair = BLOCKS) -> Iterator[Mistake]:
    """Yield a mistake if D is right except for rows, columns, blocks, lanes or registers that hold unrelated values."""
    found, shape = {}, (-1, *same.shape)  # `seen` and `right` may be batches
    wrong, expected = (values.reshape(shape)[:, ~same].ravel() for values in (seen, right))
    for name, index in line_numbers(operand, same.shape, block).items():
        region = np.isin(index, index[~same])
        if same[region].mean() <= MAX_CHANCE and MIN_REGION <= region.sum() <= MAX_REGION * region.size:
            found[name] = as_lines(np.unique(index[~same]))
    with np.errstate(all="ignore"):  # equal or infinite values have no correlation
        is_related = found and abs(np.corrcoef(wrong, expected)[0, 1]) > MAX_CORRELATION
    if found and not is_related and np.isin(wrong, right).mean() <= MAX_CHANCE:
        first, *others = named_lines({name: found[name] for name in found if name != "blocks"} or found, block)
        text = f"{first} ({'; '.join(others)})" if others else first
        text += ": values unrelated to the product, as if they were not stored; all others are right"
        yield Mistake("index", "d", text, np.copy)


def loaded_elsewhere(
    operand: Operand, held: NDArray[Any], matrix: NDArray[Any], corners: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], str] | None:
    """Return the corner of the most similar tile, and the wrong index expression that loads a fragment."""
    memory, (down, across) = matrix.ravel("K"), (stride // matrix.itemsize for stride in matrix.strides)
    places, elements = (places_of(operand, held.shape, strides) for strides in ((down, across), (held.shape[1], 1)))
    if places is None or elements is None:
        return None
    values = held.ravel()[elements.indices]

    def explains(indices: Ints) -> bool:
        is_inside = indices.min() >= 0 and indices.max() < memory.size
        return bool(is_inside and np.array_equal(memory[indices], values))

    if (maps := fitted(places, unique_places(memory, values), explains)) is None:
        return None
    found, right = maps
    shifted = {corner: np.subtract(found.offsets, corner[0] * down + corner[1] * across) for corner in corners}
    away = {corner: np.subtract(offsets, right.offsets) for corner, offsets in shifted.items()}
    best = max(corners, key=lambda corner: (int((away[corner] == 0).sum()), -abs(int(away[corner].sum()))))
    found = found._replace(offsets=(*map(int, shifted[best]),))
    return best, f"loaded with {difference(operand, found, right)}"


def snapped(seen: Observation, right: Codes) -> Codes:
    """Replace each observed code by the nearest of all expected codes, if that prints with the same digits."""
    values = as_doubles(from_codes(seen.format, right)).ravel()
    order = np.argsort(values)
    after = np.searchsorted(values[order], seen.values).clip(1, len(values) - 1)
    below, above = order[after - 1], order[after]
    with np.errstate(invalid="ignore"):  # inf - inf
        is_below = abs(values[below] - seen.values) < abs(values[above] - seen.values)
    nearest = np.where(is_below | (values[below] == seen.values), below, above)
    return seen.towards(right.ravel()[nearest])


def unique_places(memory: Codes, values: Codes) -> Ints:
    """Return, for each value, its index in memory, or -1 unless it occurs there exactly once."""
    own, first, counts = np.unique(memory, return_index=True, return_counts=True)
    near = np.searchsorted(own, values).clip(max=len(own) - 1)
    return np.where((own[near] == values) & (counts[near] == 1), first[near], -1)


def difference(operand: Operand, found: IndexMap, right: IndexMap) -> str:
    """Return the terms of an index that are wrong, and the right ones."""
    name = "lane" if operand.layout.ins.get("warp", 1) == 1 else "thread"
    axes, own = (_axes(operand, indices) for indices in (("lane", "warp"), ("slot", "reg")))
    bits, texts = len(axes), []
    if found.steps[:bits] != right.steps[:bits]:
        texts.append([terms_text(name, found.steps[:bits]), terms_text(name, right.steps[:bits], axes)])
    for tile, *steps in zip(("tile row", "tile column"), found.steps[bits:], right.steps[bits:], strict=True):
        texts += [[f"({tile}) * {step}" for step in steps]] if steps[0] != steps[1] else []
    if found.offsets != right.offsets:
        texts.append([_offsets_text(found.offsets), _offsets_text(right.offsets, own)])
    wrong, wanted = (" + ".join(filter(None, column)) or "0" for column in zip(*texts, strict=True))
    return f"{wrong} in the index instead of {wanted}"


def _axes(operand: Operand, indices: tuple[str, ...]) -> list[int]:
    """Return the axis along which each bit of the named indices moves."""
    layout = operand.layout
    zero, ends = dict.fromkeys(layout.ins, 0), {name: layout.ins.get(name, 1) for name in indices}
    steps = [{name: 1 << bit} for name, end in ends.items() for bit in range((end - 1).bit_length())]
    return [int(layout.at(**zero | step)[-2] == layout.start[-2]) for step in steps]


def terms_text(name: str, steps: Sequence[int], axes: Sequence[int] = ()) -> str:
    """Return the sum of the steps of an index's bits; bits of one axis whose steps double become one term."""
    terms, low, count = [], 0, len(steps)
    axes = axes or [0] * count
    while low < count:
        high = low + 1
        while high < count and steps[high] == 2 * steps[high - 1] and axes[high] == axes[low]:
            high += 1
        if steps[low]:
            term = run_term(BitRun(name, low, high - low, 0), count)
            terms.append(term if steps[low] == 1 else IndexOperation("*", term, IndexConstant(steps[low])))
        low = high
    return str(reduce(partial(IndexOperation, "+"), terms)) if terms else ""


def _offsets_text(offsets: Sequence[int], axes: Sequence[int] = ()) -> str:
    """Return the offsets of the elements as a sum over the bits of i, or else as a list."""
    first, bits = offsets[0], range((len(offsets) - 1).bit_length())
    steps = [offsets[1 << bit] - first for bit in bits]
    if any(offset - first != sum(steps[bit] for bit in bits if i >> bit & 1) for i, offset in enumerate(offsets)):
        return f"{{{', '.join(map(str, offsets))}}}[i]"
    return " + ".join(filter(None, [str(first) if first else "", terms_text("i", steps, axes)]))
