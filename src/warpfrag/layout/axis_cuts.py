"""Cutting axes into digits anew, and putting axes together: the bookkeeping behind the algebra of `linear_map`.

Digits are numbered through all axes of one side of a map, low first. Functions that make new axes also say where each
digit of the old ones has gone, or from where each new one comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import MAX_SIZE, Axes, Axis, digits_of, factors
from warpfrag.layout.coordinates import REGISTERS


class UnmixedRun(NamedTuple):
    """Digits that pass through a map side by side: the first of each side, how many, and how they are cut now."""

    source: int
    target: int
    length: int
    radices: tuple[int, ...]


class AxisDigit(NamedTuple):
    """A digit of some axes: the number and the name of its axis, and its weight there."""

    axis: int
    name: str
    weight: int


def numbered(axes: Axes) -> list[AxisDigit]:
    """Every digit, in order."""
    return [AxisDigit(at, axis.name, weight) for at, axis in enumerate(axes) for weight in axis.weights]


def ones(mask: int) -> list[int]:
    """The bits that are set, low first."""
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return bits


def renumbered(mask: int, places: Mapping[int, int]) -> int:
    """A mask whose bit d has become bit places[d]; bits without a place are dropped."""
    moved = 0
    for bit in ones(mask):
        if bit in places:
            moved |= 1 << places[bit]
    return moved


def starts(axis: Axis) -> set[int]:
    """Where digits of an axis start, and where the last one ends."""
    return {1, *axis.weights, axis.size}


def boundaries(axes: Axes) -> dict[str, set[int]]:
    """Where digits start in each axis."""
    return {axis.name: starts(axis) for axis in axes}


def split(size: int, points: set[int]) -> tuple[int, ...] | None:
    """The radices of a size so that digits start at these weights; None where one does not divide the next."""
    radices: tuple[int, ...] = ()
    before = 1
    for point in [*sorted(points), size]:
        gap, rest = divmod(point, before)
        if rest:
            return None
        radices += factors(gap)
        before = point
    return radices


def with_pieces(axes: Axes, pieces: Mapping[int, UnmixedRun]) -> tuple[Axes, dict[int, list[int]]]:
    """The axes with runs cut anew, and for each old digit or first digit of a run the numbers of the new ones."""
    made, numbers, count = [], {}, 0
    for axis, digits in digits_of(axes):
        radices: tuple[int, ...] = ()
        skip = 0
        for place, digit in enumerate(digits):
            if skip:
                skip -= 1
                continue
            piece = pieces.get(digit)
            own = piece.radices if piece else (axis.radices[place],)
            skip = piece.length - 1 if piece else 0
            numbers[digit] = list(range(count, count + len(own)))
            count += len(own)
            radices += own
        made.append(Axis(axis.name, radices))
    return tuple(made), numbers


def stacked(low: Axes, high: Axes) -> tuple[Axes, dict[int, int], dict[int, int]]:
    """The axes of both, the digits of `high` above those of `low`, and for the digits of each their new numbers."""
    names = [axis.name for axis in low]
    for axis in high:
        if axis.name not in names:
            later = REGISTERS[REGISTERS.index(axis.name) :] if axis.name in REGISTERS else ()
            names.insert(next((at for at, name in enumerate(names) if name in later), len(names)), axis.name)
    low_places: dict[int, int] = {}
    high_places: dict[int, int] = {}
    parts = [
        ({axis.name: (axis.radices, digits) for axis, digits in digits_of(side)}, places)
        for side, places in ((low, low_places), (high, high_places))
    ]
    axes: list[Axis] = []
    count = 0
    for name in names:
        radices: tuple[int, ...] = ()
        for by_name, places in parts:
            own, digits = by_name.get(name, ((), range(0)))
            for digit in digits:
                places[digit] = count
                count += 1
            radices += own
        axis = Axis(name, radices)
        if axis.size > MAX_SIZE:
            msg = f"the product's {name} would be {axis.size}, more than {MAX_SIZE}"
            raise InvalidOperand(msg)
        axes.append(axis)
    return tuple(axes), low_places, high_places


def part(axes: Axes, cuts: Mapping[str, int], *, is_high: bool) -> tuple[Axes, list[int]]:
    """What is above or below the cut in each axis, and the numbers of its digits."""
    parts: list[Axis] = []
    numbers: list[int] = []
    for axis, digits in digits_of(axes):
        below = sum(weight < cuts[axis.name] for weight in axis.weights)
        kept = slice(below, None) if is_high else slice(below)
        parts.append(Axis(axis.name, axis.radices[kept]))
        numbers += digits[kept]
    return tuple(parts), numbers


def flattened(axes: Axes) -> tuple[Axis, list[int]]:
    """All axes as one in which the last counts fastest, and the old numbers of its digits."""
    numbered = digits_of(axes)[::-1]
    radices = tuple(radix for axis, _ in numbered for radix in axis.radices)
    return Axis("index", radices), [digit for _, digits in numbered for digit in digits]


def regrouped_weights(extents: Mapping[str, int], present: Mapping[str, int]) -> dict[str, int]:
    """What a step of each of the new axes is in the index that counts through all of them, the last fastest."""
    if not isinstance(extents, Mapping) or not all(isinstance(name, str) for name in extents):
        msg = f"reshape: expected names with their extents, such as {{'thread': 128, 'value': 4}}; got {quote(extents)}"
        raise InvalidOperand(msg)
    weights, weight = {}, 1
    for name, size in reversed([*extents.items()]):
        weights[name] = weight
        weight *= Axis.of_size(name, size).size
    if weight != prod(present.values()):
        mine, its = extents_text(present), extents_text(extents)
        msg = f"reshape: {its} are {weight} in all, but {mine} are {prod(present.values())}"
        raise InvalidOperand(msg)
    return weights


def regrouped(flat: Axis, weights: Mapping[str, int], extents: Mapping[str, int]) -> tuple[Axes, list[int]]:
    """One axis as several, each from its weight on, and the old numbers of their digits."""
    axes, numbers = [], []
    for name, size in extents.items():
        start = weights[name]
        digits = [digit for digit, weight in enumerate(flat.weights) if start <= weight < start * size]
        axes.append(Axis(name, tuple(flat.radices[digit] for digit in digits)))
        numbers += digits
    return tuple(axes), numbers


def not_regrouped(present: Mapping[str, int], extents: Mapping[str, int]) -> InvalidOperand:
    """The refusal where axes cannot be regrouped."""
    mine, its = extents_text(present), extents_text(extents)
    return InvalidOperand(f"{mine} cannot be regrouped to {its}: digits would be cut that the map mixes")


def extents_text(extents: Mapping[str, int]) -> str:
    """Names and extents, for a message."""
    return ", ".join(f"{name} {size}" for name, size in extents.items()) or "nothing"


def cut_text(axes: Axes) -> str:
    """Names and radices, for a message."""
    return ", ".join(f"{axis.name} {'x'.join(map(str, axis.radices)) or 1}" for axis in axes)
