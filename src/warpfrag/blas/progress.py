"""How long searches and comparisons report how far they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A callback of the caller: called before each step."""

    def __call__(self, done: int, total: int, text: str) -> None:
        """So many steps are done of all; the next one in words."""
