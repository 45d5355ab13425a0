"""Named indices: the position of an element in its matrix, and the place that holds it in a warp."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from functools import cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Self, cast

from warpfrag.errors import InvalidOperand, quote

LANES = 32
"""The number of lanes in a warp."""
REGISTERS = ("warp", "lane", "reg", "slot")
"""The coordinates of a place, in the order in which places are sorted."""


class Coordinate(tuple[int, ...]):
    """Named indices, such as (row, col): a named tuple with a field for each coordinate of a layout."""

    __slots__ = ()
    _fields: tuple[str, ...]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """Return the index with this name."""

        def _replace(self, **indices: int) -> Self:
            """Return a copy with some indices changed."""

        def _asdict(self) -> dict[str, int]:
            """Return the indices by name."""

        @classmethod
        def _make(cls, indices: Iterable[int]) -> Self:
            """Return a tuple with these indices."""


class Place(Coordinate):
    """The place that holds an element: a lane, one of its registers, and a slot in that register."""

    __slots__ = ()


@cache
def coordinate_type(names: tuple[str, ...]) -> type[Coordinate]:
    """Return the tuple type with these fields: a Place if they name lanes, registers or slots, else a Coordinate."""
    base = Place if set(names) & set(REGISTERS) else Coordinate
    fields = namedtuple(base.__name__, names)  # type: ignore[misc] # noqa: PYI024 (the fields are data)
    # pickle looks classes up by name, and would not find one that was created at run time
    pickling = {"__slots__": (), "__reduce__": lambda self: (_coordinate, (names, tuple(self)))}
    return type(base.__name__, (fields, base), pickling)


def place(**indices: int) -> Place:
    """Return the place with these indices, such as lane, reg and slot."""
    return cast("Place", coordinate_type(tuple(indices))._make(indices.values()))


def _coordinate(names: tuple[str, ...], indices: tuple[int, ...]) -> Coordinate:
    return coordinate_type(names)._make(indices)


def check_name(name: object) -> None:
    """Raise InvalidOperand unless a name can be a field of a named tuple."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or iskeyword(name):
        raise InvalidOperand(f"expected an index name such as lane or row, got {quote(name)}")
