"""Group values by a key."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")


def grouped(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, list[Entry]]:
    """Group the second entries of pairs by the first; keys and entries keep their order."""
    groups: dict[Key, list[Entry]] = {}
    for key, entry in pairs:
        groups.setdefault(key, []).append(entry)
    return groups
