"""A row of the opcode table, and how the words of an instruction are matched with it.

The words after an opcode are types and options, and an assembler takes the options in one order only; here any order
will do. A row lists its types by position and its options as sets, of which an instruction has at most one word each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from warpfrag.ptx.program.types import TYPES, Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.actions import Action

Level = Literal["specified", "measured", "approximate"]
"""Who says what an opcode gives: the ISA, a table of one architecture that was measured, or nobody to the last bit."""


@dataclass(frozen=True)
class Words:
    """The words of one instruction, sorted: its types in order and its options by the name of their set."""

    opcode: str
    types: tuple[Type, ...]
    options: dict[str, str]
    operands: int
    full_name: str = ""

    def has(self, word: str) -> bool:
        """Whether this option is among the words."""
        return word in self.options.values()

    def get(self, name: str, default: str = "") -> str:
        """The word of a set of options."""
        return self.options.get(name, default)


@dataclass(frozen=True)
class Row:
    """One opcode, or one family of its types."""

    opcode: str
    types: tuple[frozenset[str], ...]
    options: dict[str, frozenset[str]]
    make: Callable[[Words], Action]
    source: str
    level: Level = "specified"
    required: frozenset[str] = frozenset()
    may_contract: bool = False  # the assembler may fuse it with another, where nothing says how it rounds
    any_words: bool = False  # hints and fences take words that change nothing here
    cases: int = 0  # inputs that were compared with a GPU


def row(
    opcode: str,
    types: str | tuple[str, ...],
    make: Callable[[Words], Action],
    source: str,
    /,
    *,
    level: Level = "specified",
    may_contract: bool = False,
    any_words: bool = False,
    cases: int = 0,
    like: dict[str, str] | None = None,
    **options: str,
) -> Row:
    """A row from lists in text: "u32 s32"; an option whose list starts with "!" must be there; `like` has more."""
    positions = (types,) if isinstance(types, str) else types
    options |= like or {}
    lists = {name: frozenset(words.removeprefix("!").split()) for name, words in options.items()}
    required = frozenset(name for name, words in options.items() if words.startswith("!"))
    kinds = tuple(frozenset(words.split()) for words in positions if words)
    return Row(opcode, kinds, lists, make, source, level, required, may_contract, any_words, cases)


def match(candidate: Row, name: str, operands: int) -> Words | str:
    """The words of an instruction sorted by a row, or what does not fit."""
    words = name.split(".")[1:]
    types: list[Type] = []
    options: dict[str, str] = {}
    for word in words:
        free = (slot for slot, known in candidate.options.items() if word in known and slot not in options)
        slot = next(free, None)
        if slot is not None:
            options[slot] = word
        elif word in TYPES and len(types) < len(candidate.types) and word in candidate.types[len(types)]:
            types.append(TYPES[word])
        elif not candidate.any_words:
            return f".{word}"
    if len(types) < len(candidate.types):
        return f"no .{' .'.join(sorted(candidate.types[len(types)]))}"
    missing = next((slot for slot in sorted(candidate.required) if slot not in options), None)
    if missing is not None:
        return f"none of .{' .'.join(sorted(candidate.options[missing]))}"
    return Words(candidate.opcode, tuple(types), options, operands, name)
