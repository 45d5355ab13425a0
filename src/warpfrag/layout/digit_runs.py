"""Neighbouring digits that a map keeps together: runs.

A map sends digit `at` of an index to digit `to` of its result. Where the digit above goes to the digit above, the two
are one run, and one shift moves both. Formulas have a term for each run, and a run that is alone can be cut anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Diagonal(NamedTuple):
    """Digits `at` to `at + length - 1` of an index, which become those from `to` on of the result."""

    at: int
    to: int
    length: int


def diagonals(pairs: Iterable[tuple[int, int]]) -> Iterator[Diagonal]:
    """The longest runs that make up some pairs (at, to), those that start low first.

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
