"""Names of instructions on the explorer page (CuTe, SASS, NVVM, MLIR), and the lists that intern texts.

SASS names are the same on many targets, and MLIR operations are made of the same pieces: both are written as indices
into the list of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry", bound="Hashable")

OPERATION = re.compile(r"(.*?) \{(.*)\}(.*)", re.DOTALL)


class InternedList(Generic[Entry]):
    """A list without repetitions; entries are referred to by index."""

    def __init__(self, write: Callable[[Entry], object]) -> None:
        """Start with an empty list; `write` turns an entry into JSON."""
        self.entries: list[object] = []
        self._write = write
        self._indices: dict[Entry, int] = {}

    def index(self, entry: Entry) -> int:
        """Return the index of an entry, which is added if it is new."""
        if entry not in self._indices:
            written = self._write(entry)
            if written not in self.entries:
                self.entries.append(written)
            self._indices[entry] = self.entries.index(written)
        return self._indices[entry]


def names_of(
    aliases: Mapping[str, Any],
    texts: InternedList[str],
    target_sets: InternedList[tuple[str, ...]],
    spell: Callable[[str], str] = str,
) -> list[Any]:
    """Return the names of one instruction: CuTe, SASS, NVVM, MLIR in pieces, and others.

    An MLIR operation without attributes is among the others. `spell` changes a name before it is listed.
    """

    def index(name: str) -> int:
        return texts.index(spell(name))

    by_code: dict[str, list[str]] = {}
    for target, code in aliases["sass"].items():
        by_code.setdefault(code, []).append(target)
    operation = OPERATION.fullmatch(aliases["mlir"] or "")
    pieces = [operation[1], operation[3], *operation[2].split(", ")] if operation else []
    others = [aliases["mlir"]] if aliases["mlir"] and not operation else []
    return [
        [index(aliases["cute"])] if aliases["cute"] else [],
        [[index(code), target_sets.index(tuple(some))] for code, some in by_code.items()],
        [index(aliases["nvvm"])] if aliases["nvvm"] else [],
        [*map(index, pieces)],
        [*map(index, (*others, *aliases["also"]))],
    ]
