"""A decoded opcode: its row of the opcode table, its attributes, and the action that they are bound to.

The columns of a row: the opcode; the types it takes, position by position; the modifiers, each a set of words,
at most one per instruction; `bind`, which makes an action from the attributes; the source of the fact. A
modifier is named after the field of `Attributes` that it sets; those in `HINTS` are read and change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from warpfrag.machine.ir.actions import Action, Refused
from warpfrag.machine.ir.attributes import Attributes
from warpfrag.machine.ir.scalar_types import Type

Level = Literal["specified", "measured", "approximate"]
"""The authority for an opcode's results: the ISA, a table measured on one architecture, or none."""
Binder: TypeAlias = "Callable[[Attributes], Action]"
Types: TypeAlias = tuple[Type, ...]

HINTS = frozenset((
    "scope", "cache", "level1", "level2", "prefetch", "cache_hint", "coherent", "unified",  # where data is cached
    "uniform", "cta", "warp", "indexed", "event_mask",  # parts of a name that has one meaning
    "asynchronous", "to", "source", "group", "mbarrier", "arrive", "b64", "noftz", "unformatted", "memory_mapped",
    "bulk", "reduces", "completion", "prefetches", "reads", "tensor", "cluster", "map_bits", "value_bits",
))  # fmt: skip


class Modifier(NamedTuple):
    """The alternatives of a modifier, at most one per instruction; a required modifier must be present."""

    words: tuple[str, ...]
    is_required: bool


@dataclass(frozen=True)
class OpcodeRow:
    """One opcode, or one family of its types."""

    opcode: str
    types: tuple[Types, ...]  # the types allowed at each position
    modifiers: Mapping[str, Modifier]
    bind: Binder
    source: str
    level: Level = "specified"
    has_result: bool = True  # the first operand is written
    may_contract: bool = False  # ptxas may fuse it with another if it has no rounding mode
    any_words: bool = False  # hints, fences and matrix instructions take words that are not listed here
    cases: int = 0  # inputs that were compared with a GPU
    implies: Mapping[str, object] = field(default_factory=dict)  # attributes that the opcode itself has

    def __post_init__(self) -> None:
        """Reject a modifier that sets no attribute."""
        known = {item.name for item in fields(Attributes)} | HINTS
        unknown = sorted((self.modifiers.keys() | self.implies.keys()) - known)
        if unknown:
            raise ValueError(
                f"{self.opcode}: expected modifiers that are attributes or hints, got {', '.join(unknown)}"
            )


@dataclass(frozen=True)
class DecodedOpcode:
    """An opcode with its qualifiers parsed; its action is bound once its attributes are final."""

    row: OpcodeRow | None
    attributes: Attributes
    refusal: str = ""  # why no row fits

    @cached_property
    def action(self) -> Action:
        """Return the action of an instruction with these attributes."""
        return Refused(self.refusal) if self.row is None else self.row.bind(self.attributes)
