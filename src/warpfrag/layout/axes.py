"""The axes of a layout: indices cut into digits.

Most sizes are powers of two, and their digits are bits. What is left of another size is one larger digit: 24 is three
bits and a digit that counts to 3.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIZE = 1 << 20
"""The largest size of an axis: far beyond any fragment, and small enough to list."""


class Axis(NamedTuple):
    """An index cut into digits, low first. Most radices are 2: bits. An odd radix is what remains of a size."""

    name: str
    radices: tuple[int, ...]

    @classmethod
    def of_size(cls, name: str, size: int) -> Axis:
        """An axis of `size`: its factors of two as bits, then the odd rest as one digit."""
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            msg = f"the size of {name} is an integer from 1 on, at most {MAX_SIZE}; got {quote(size)}"
            raise InvalidOperand(msg)
        return cls(name, factors(size))

    @classmethod
    def cut(cls, name: str, size: int, digits: Iterable[tuple[int, int]]) -> Axis:
        """An axis of `size` in which digits of these weights and radices are cut; the rest as `of_size` cuts it."""
        radices: tuple[int, ...] = ()
        for weight, radix in [*sorted(set(digits)), (cls.of_size(name, size).size, 1)]:
            gap, rest = divmod(weight, prod(radices))
            if rest:
                msg = f"{name} is {size}: it cannot be cut into digits so that one counts {radix} steps of {weight}"
                raise InvalidOperand(msg)
            radices += factors(gap) + ((radix,) if radix > 1 else ())
        return cls(name, radices)

    @property
    def size(self) -> int:
        """How far the index runs."""
        return prod(self.radices)

    @property
    def weights(self) -> tuple[int, ...]:
        """What a one in each digit adds to the index."""
        return tuple(prod(self.radices[:digit]) for digit in range(len(self.radices)))

    @property
    def is_plain(self) -> bool:
        """Whether the bits of the index are those of its digits: only the highest digit may be larger than a bit."""
        return set(self.radices[:-1]) <= {2}

    def mask(self, index: int) -> int:
        """The digits that are not 0 in an index whose digits are all 0 or 1."""
        digits = [index // weight % radix for radix, weight in zip(self.radices, self.weights, strict=True)]
        if not 0 <= index < self.size or not set(digits) <= {0, 1}:
            msg = f"{self.name} cannot be moved by {quote(index)} at once: it is {self.size}"
            raise InvalidOperand(msg)
        return sum(digit << place for place, digit in enumerate(digits))

    def unpack(self, packed: int) -> int:
        """The index whose digits stand side by side in `packed`, each with as many bits as it needs."""
        index = 0
        for radix, weight in zip(self.radices, self.weights, strict=True):
            width = (radix - 1).bit_length()
            index += (packed & ((1 << width) - 1)) * weight
            packed >>= width
        return index


def factors(size: int) -> tuple[int, ...]:
    """The radices of a size: a 2 for each factor of two, then what is left.

    >>> factors(24), factors(15)
    ((2, 2, 2, 3), (15,))
    """
    twos = (size & -size).bit_length() - 1
    rest = size >> twos
    return (2,) * twos + ((rest,) if rest > 1 else ())


def mask_of(radix: int, radices: tuple[int, ...]) -> int:
    """The digits of a radix."""
    return sum(1 << digit for digit, other in enumerate(radices) if other == radix)


Axes = tuple[Axis, ...]


def digits_of(axes: Axes) -> list[tuple[Axis, range]]:
    """Each axis with the numbers of its digits, counted through all axes."""
    numbered, start = [], 0
    for axis in axes:
        numbered.append((axis, range(start, start + len(axis.radices))))
        start += len(axis.radices)
    return numbered
