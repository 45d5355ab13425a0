"""The axes of a layout: indices cut into digits, and the words of a table that move them.

Most sizes are powers of two, and their digits are bits. What is left of another size is one larger digit: 24 is three
bits and a digit that counts to 3.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = 1 << 20
"""The largest size of an axis: far beyond any fragment, and small enough to list."""


class Axis(NamedTuple):
    """An index cut into digits, low first. Most radices are 2: bits. An odd radix is what remains of a size."""

    name: str
    radices: tuple[int, ...]

    @classmethod
    def of_size(cls, name: str, size: int) -> Axis:
        """An axis of `size`: its factors of two as bits, then the odd rest as one digit."""
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST:
            msg = f"the size of {name} is an integer from 1 on, at most {MOST}; got {quote(size)}"
            raise InvalidOperand(msg)
        return cls(name, _factors(size))

    @classmethod
    def cut(cls, name: str, size: int, digits: Iterable[tuple[int, int]]) -> Axis:
        """An axis of `size` in which digits of these weights and radices are cut; the rest as `of_size` cuts it."""
        radices: tuple[int, ...] = ()
        for weight, radix in [*sorted(set(digits)), (cls.of_size(name, size).size, 1)]:
            gap, rest = divmod(weight, prod(radices))
            if rest:
                msg = f"{name} is {size}: it cannot be cut into digits so that one counts {radix} steps of {weight}"
                raise InvalidOperand(msg)
            radices += _factors(gap) + ((radix,) if radix > 1 else ())
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


def _factors(size: int) -> tuple[int, ...]:
    """The radices of a size: a 2 for each factor of two, then what is left."""
    twos = (size & -size).bit_length() - 1
    odd = size >> twos
    return (2,) * twos + ((odd,) if odd > 1 else ())


def mask_of(radix: int, radices: tuple[int, ...]) -> int:
    """The digits of a radix."""
    return sum(1 << digit for digit, one in enumerate(radices) if one == radix)


def read_step(word: str, outs: tuple[Axis, ...]) -> dict[str, int]:
    """What one word of a text moves: each coordinate and how far."""
    by_letter = {axis.name[0]: axis for axis in outs}
    if word == "0":
        return {}
    found: dict[str, int] = {}
    for part in word.split("+"):
        number = part[1:]
        if not (part and part[0] in by_letter and number.isascii() and number.isdigit() and len(number) < 10):
            msg = f"basis {quote(word)}: expected 0, or one of {' '.join(by_letter)} and a number, several joined by +"
            raise InvalidOperand(msg)
        axis = by_letter[part[0]]
        if not 0 < int(number) < 1 << (axis.size - 1).bit_length():
            msg = f"basis {quote(word)} oversteps {axis.name}, which is {axis.size}"
            raise InvalidOperand(msg)
        found[axis.name] = found.get(axis.name, 0) ^ int(number)
    return {coordinate: step for coordinate, step in found.items() if step}


def columns_of(name: str, steps: list[dict[str, int]], outs: tuple[Axis, ...]) -> Iterator[tuple[int, int]]:
    """Radix and column of each digit of an input whose bits take these steps."""
    starts = {axis.name: sum(len(other.radices) for other in outs[:at]) for at, axis in enumerate(outs)}
    cropped = {axis.name: axis for axis in outs if axis.radices and axis.radices[-1] != 2}
    at = 0
    while at < len(steps):
        step = steps[at]
        tops = [axis for axis in cropped.values() if step.get(axis.name, 0) >= axis.weights[-1]]
        if not tops:
            yield 2, sum(size << starts[coordinate] for coordinate, size in step.items())
            at += 1
            continue
        axis = tops[0]
        bits = (axis.radices[-1] - 1).bit_length()
        wanted = [{axis.name: axis.weights[-1] << bit} for bit in range(bits)]
        if steps[at : at + bits] != wanted:
            words = " ".join(f"{axis.name[0]}{one[axis.name]}" for one in wanted)
            msg = f"{axis.name} is {axis.size}, no power of two: {words} stand together in {name}, in this order"
            raise InvalidOperand(msg)
        yield axis.radices[-1], 1 << (starts[axis.name] + len(axis.radices) - 1)
        at += bits
