"""The axes of a layout: indices cut into digits.

Most sizes are powers of two, and their digits are bits. The odd factor of any other size is one larger digit: 24 is
three bits and a digit that counts to 3.

The second half of this module recuts and joins axes for the algebra of `linear_map`. Digits are numbered across all
input axes or all output axes of a map, low first. Functions that return new axes also return the old or new digit
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import REGISTERS

MAX_SIZE = 1 << 20
"""The largest size of an axis: far larger than any fragment, but small enough to enumerate."""


class Axis(NamedTuple):
    """An index cut into digits, low first. Most radices are 2 (bits); an odd radix is the odd factor of a size."""

    name: str
    radices: tuple[int, ...]

    @classmethod
    def of_size(cls, name: str, size: int) -> Axis:
        """Return an axis of size `size`: a bit for each factor of two, then one digit for the odd factor."""
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            raise InvalidOperand(f"the size of {name} must be an integer in 1..{MAX_SIZE}, got {quote(size)}")
        return cls(name, factors(size))

    @classmethod
    def cut(cls, name: str, size: int, digits: Iterable[tuple[int, int]]) -> Axis:
        """Return an axis of size `size` with digits of these weights and radices; the rest is cut as in `of_size`."""
        radices: tuple[int, ...] = ()
        for weight, radix in [*sorted(set(digits)), (cls.of_size(name, size).size, 1)]:
            gap, rest = divmod(weight, prod(radices))
            if rest:
                raise InvalidOperand(f"{name} is {size}: it has no digit with weight {weight} and radix {radix}")
            radices += factors(gap) + ((radix,) if radix > 1 else ())
        return cls(name, radices)

    @property
    def size(self) -> int:
        """The extent of the index."""
        return prod(self.radices)

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of each digit in the index, low first."""
        return tuple(prod(self.radices[:digit]) for digit in range(len(self.radices)))

    @property
    def is_plain(self) -> bool:
        """True if every digit except the highest is a bit."""
        return set(self.radices[:-1]) <= {2}

    def mask(self, index: int) -> int:
        """Return a mask of the nonzero digits of an index, whose digits must all be 0 or 1."""
        digits = [index // weight % radix for radix, weight in zip(self.radices, self.weights, strict=True)]
        if not 0 <= index < self.size or not set(digits) <= {0, 1}:
            raise InvalidOperand(f"{self.name} has size {self.size} and cannot be moved by {quote(index)}")
        return sum(digit << place for place, digit in enumerate(digits))

    def unpack(self, packed: int) -> int:
        """Return the index whose digits are packed next to each other in the bits of `packed`."""
        index = 0
        for radix, weight in zip(self.radices, self.weights, strict=True):
            width = (radix - 1).bit_length()
            index += (packed & ((1 << width) - 1)) * weight
            packed >>= width
        return index


def factors(size: int) -> tuple[int, ...]:
    """Return the radices of a size: a 2 for each factor of two, then the odd factor.

    >>> factors(24), factors(15)
    ((2, 2, 2, 3), (15,))
    """
    twos = (size & -size).bit_length() - 1
    rest = size >> twos
    return (2,) * twos + ((rest,) if rest > 1 else ())


def mask_of(radix: int, radices: tuple[int, ...]) -> int:
    """Return a mask of the digits that have radix `radix`."""
    return sum(1 << digit for digit, other in enumerate(radices) if other == radix)


Axes = tuple[Axis, ...]


def digits_of(axes: Axes) -> list[tuple[Axis, range]]:
    """Return each axis with its range of digit numbers, which count across all axes."""
    numbered, start = [], 0
    for axis in axes:
        numbered.append((axis, range(start, start + len(axis.radices))))
        start += len(axis.radices)
    return numbered


class UnmixedRun(NamedTuple):
    """Adjacent digits that a map does not mix: the first input and output digit, the length, and the radices."""

    source: int
    target: int
    length: int
    radices: tuple[int, ...]


class AxisDigit(NamedTuple):
    """A digit in a group of axes: its axis by index and name, and its weight in that axis."""

    axis: int
    name: str
    weight: int


def numbered(axes: Axes) -> list[AxisDigit]:
    """Return every digit of the axes, in order."""
    return [AxisDigit(at, axis.name, weight) for at, axis in enumerate(axes) for weight in axis.weights]


def ones(mask: int) -> list[int]:
    """Return the positions of the set bits, lowest first."""
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return bits


def renumbered(mask: int, places: Mapping[int, int]) -> int:
    """Return the mask with bit d moved to bit places[d]; bits without a new position are dropped."""
    moved = 0
    for bit in ones(mask):
        if bit in places:
            moved |= 1 << places[bit]
    return moved


def starts(axis: Axis) -> set[int]:
    """Return the weight at which each digit of an axis starts, and the end of the highest digit."""
    return {1, *axis.weights, axis.size}


def boundaries(axes: Axes) -> dict[str, set[int]]:
    """Return the weights at which the digits of each axis start."""
    return {axis.name: starts(axis) for axis in axes}


def split(size: int, points: set[int]) -> tuple[int, ...] | None:
    """Return the radices of digits that start at these weights, or None if one weight does not divide the next."""
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
    """Cut these runs into other digits; return the new axes, and the new digits for each old digit or run."""
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
    """Stack the digits of `high` above those of `low`; return the axes, and the new numbers of both sets of digits."""
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
            raise InvalidOperand(f"{name} of the combined layout would be {axis.size}; the largest size is {MAX_SIZE}")
        axes.append(axis)
    return tuple(axes), low_places, high_places


def part(axes: Axes, cuts: Mapping[str, int], *, is_high: bool) -> tuple[Axes, list[int]]:
    """Return the part of each axis above or below its cut, and the numbers of the digits in it."""
    parts: list[Axis] = []
    numbers: list[int] = []
    for axis, digits in digits_of(axes):
        below = sum(weight < cuts[axis.name] for weight in axis.weights)
        kept = slice(below, None) if is_high else slice(below)
        parts.append(Axis(axis.name, axis.radices[kept]))
        numbers += digits[kept]
    return tuple(parts), numbers


def flattened(axes: Axes) -> tuple[Axis, list[int]]:
    """Join all axes into one, with the last axis fastest; return the axis and the old numbers of its digits."""
    numbered = digits_of(axes)[::-1]
    radices = tuple(radix for axis, _ in numbered for radix in axis.radices)
    return Axis("index", radices), [digit for _, digits in numbered for digit in digits]


def regrouped_weights(extents: Mapping[str, int], present: Mapping[str, int]) -> dict[str, int]:
    """Return the weight of each new axis in the joined index; the last axis varies fastest."""
    if not isinstance(extents, Mapping) or not all(isinstance(name, str) for name in extents):
        raise InvalidOperand(
            f"reshape: expected names with their extents, such as {{'thread': 128, 'value': 4}}; got {quote(extents)}"
        )
    weights, weight = {}, 1
    for name, size in reversed([*extents.items()]):
        weights[name] = weight
        weight *= Axis.of_size(name, size).size
    if weight != prod(present.values()):
        mine, its = extents_text(present), extents_text(extents)
        raise InvalidOperand(f"reshape: {its} have {weight} indices in total, but {mine} have {prod(present.values())}")
    return weights


def regrouped(flat: Axis, weights: Mapping[str, int], extents: Mapping[str, int]) -> tuple[Axes, list[int]]:
    """Split one axis into several at these weights; return them and the old numbers of their digits."""
    axes, numbers = [], []
    for name, size in extents.items():
        start = weights[name]
        digits = [digit for digit, weight in enumerate(flat.weights) if start <= weight < start * size]
        axes.append(Axis(name, tuple(flat.radices[digit] for digit in digits)))
        numbers += digits
    return tuple(axes), numbers


def not_regrouped(present: Mapping[str, int], extents: Mapping[str, int]) -> InvalidOperand:
    """Return the error for axes that cannot be regrouped."""
    mine, its = extents_text(present), extents_text(extents)
    return InvalidOperand(f"{mine} cannot be regrouped to {its}: that would cut digits that the map mixes")


def extents_text(extents: Mapping[str, int]) -> str:
    """Return names and extents, for a message."""
    return ", ".join(f"{name} {size}" for name, size in extents.items()) or "nothing"


def cut_text(axes: Axes) -> str:
    """Return names and radices, for a message."""
    return ", ".join(f"{axis.name} {'x'.join(map(str, axis.radices)) or 1}" for axis in axes)
