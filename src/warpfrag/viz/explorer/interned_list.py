"""A list in which nothing stands twice, so that everything else can name its entries by their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Entry = TypeVar("Entry", bound="Hashable")


class InternedList(Generic[Entry]):
    """A list without repetitions: `place` says where an entry stands, and adds it if none is written like it."""

    def __init__(self, write: Callable[[Entry], object]) -> None:
        """An empty list; `write` turns an entry into what JSON can hold."""
        self.entries: list[object] = []
        self._write = write
        self._places: dict[Entry, int] = {}

    def place(self, entry: Entry) -> int:
        """The place of an entry."""
        if entry not in self._places:
            written = self._write(entry)
            if written not in self.entries:
                self.entries.append(written)
            self._places[entry] = self.entries.index(written)
        return self._places[entry]
