"""Nicknames of element types: half, fp8, nvfp4 and what other libraries call them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from warpfrag.isa.rows import fits
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from warpfrag.isa.qualifiers import Form

ROLES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Nickname:
    """A row of the table: the types a name may mean, and what else an instruction must have."""

    name: str
    types: tuple[str, ...]
    lists: dict[str, list[str]] = field(hash=False)

    def fits(self, form: Form, role: str) -> bool:
        """Whether an operand of a form has such elements."""
        return getattr(form, role) in self.types and fits(self.lists, form)


@cache
def nicknames() -> dict[str, Nickname]:
    """Every nickname, in lower case."""
    rows = read_table("nicknames")["nickname"]
    return {
        name: Nickname(name, tuple(row["types"]), {key: entry for key, entry in row.items() if key != "types"})
        for name, row in rows.items()
    }


def nickname(text: object) -> Nickname | None:
    """The nickname that a text is, whatever its case; a namespace before it does not matter."""
    if not isinstance(text, str):
        return None
    return nicknames().get(text.strip().lower().rpartition("::")[2].rpartition(".")[2])
