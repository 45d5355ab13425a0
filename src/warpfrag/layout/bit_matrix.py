"""Bit matrices: elimination over GF(2), and runs of bits that a map shifts together.

`Echelon` finds the masks that are the xor of other masks. A mask is the set of output bits that one input moves.

    >>> rows = Echelon()
    >>> rows.add(0b011, inputs=0b001), rows.add(0b110, inputs=0b010)  # two inputs, both move something new
    (0, 0)
    >>> bin(rows.add(0b101, inputs=0b100))  # the third is the xor of both
    '0b111'
    >>> rows.rest(0b100), bin(rows.inputs(0b101))  # no inputs give bit 2 alone; both inputs give bits 0 and 2
    (1, '0b11')

If a map sends digit `at` of an index to digit `to`, and digit `at + 1` to `to + 1`, one shift moves both. `diagonals`
returns the longest such runs; a formula has one term for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Echelon:
    """Masks in echelon form, each with the inputs whose masks combine to it by xor."""

    def __init__(self) -> None:
        """Create an empty set of masks."""
        # by leading bit: the mask, and the inputs whose masks combine to it
        self._rows: dict[int, tuple[int, int]] = {}

    def add(self, mask: int, inputs: int = 0) -> int:
        """Add the mask of these inputs.

        Return 0 if it is independent, else the inputs whose masks cancel each other.
        """
        rest, used = self._reduce(mask, inputs)
        if not rest:
            return used
        self._rows[rest.bit_length()] = (rest, used)
        return 0

    @property
    def rank(self) -> int:
        """The number of independent masks."""
        return len(self._rows)

    def rest(self, mask: int) -> int:
        """Return the remainder of a mask after elimination, which is 0 if the rows span it."""
        return self._reduce(mask, 0)[0]

    def inputs(self, mask: int) -> int:
        """Return the inputs whose masks combine to this mask by xor."""
        return self._reduce(mask, 0)[1]

    def _reduce(self, mask: int, inputs: int) -> tuple[int, int]:
        rest = 0  # the bits that are not the leading bit of any row
        while mask:
            lead = mask.bit_length()
            if lead in self._rows:
                row, used = self._rows[lead]
                mask, inputs = mask ^ row, inputs ^ used
            else:
                rest, mask = rest | 1 << (lead - 1), mask ^ 1 << (lead - 1)
        return rest, inputs


class Diagonal(NamedTuple):
    """A run of digits, `at` to `at + length - 1` of an index, which become the digits that start at `to`."""

    at: int
    to: int
    length: int


def diagonals(pairs: Iterable[tuple[int, int]]) -> Iterator[Diagonal]:
    """Yield the longest runs in these (at, to) pairs, lowest start first.

    >>> list(diagonals([(0, 1), (1, 2), (2, 0), (3, 1)]))
    [Diagonal(at=0, to=1, length=2), Diagonal(at=2, to=0, length=2)]
    """
    every = set(pairs)
    for at, to in sorted(every):
        if (at - 1, to - 1) in every:
            continue
        length = 1
        while (at + length, to + length) in every:
            length += 1
        yield Diagonal(at, to, length)
