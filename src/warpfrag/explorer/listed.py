"""A list in which nothing stands twice, so that everything else can name its entries by their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Listed:
    """A list without repetitions: `place` says where an entry stands, and adds it if none is written like it."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        """Start empty; `write` turns an entry into what JSON can hold."""
        self.entries: list[Any] = []
        self._write = write
        self._places: dict[Hashable, int] = {}

    def place(self, entry: Hashable) -> int:
        """The place of an entry."""
        if entry not in self._places:
            written = self._write(entry)
            if written not in self.entries:
                self.entries.append(written)
            self._places[entry] = self.entries.index(written)
        return self._places[entry]
