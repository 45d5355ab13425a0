"""A decoded opcode: its row of the opcode table, its attributes, and the action that they are bound to.

A row consists of the opcode; its types, by position; its modifiers, each a set of alternatives; `bind`, which creates
an action from the attributes; and the source of the semantics. A modifier has the name of the `Attributes` field that
it sets; modifiers in `HINTS` are accepted and have no effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from warpfrag.machine.ir.actions import Action, Refused
from warpfrag.machine.ir.attributes import Attributes
from warpfrag.machine.ir.scalar_types import Type

Level = Literal["specified", "measured", "approximate"]
"""The basis of an opcode's results: the ISA, a table measured on one architecture, or an approximation."""
Binder: TypeAlias = "Callable[[Attributes], Action]"
Types: TypeAlias = tuple[Type, ...]

HINTS = frozenset((
    "scope", "cache", "level1", "level2", "prefetch", "cache_hint", "coherent", "unified",  # cache hints
    "uniform", "cta", "warp", "indexed", "event_mask",  # qualifiers without alternatives
    "asynchronous", "to", "source", "group", "mbarrier", "arrive", "b64", "noftz", "unformatted", "memory_mapped",
    "bulk", "reduces", "completion", "prefetches", "reads", "tensor", "cluster", "map_bits", "value_bits",
))  # fmt: skip


class Modifier(NamedTuple):
    """The alternatives of a modifier; an instruction has at most one of them, or exactly one if `is_required`."""

    words: tuple[str, ...]
    is_required: bool


@dataclass(frozen=True)
class OpcodeRow:
    """A row of the opcode table, for an opcode or one of its type families."""

    opcode: str
    types: tuple[Types, ...]  # the allowed types at each position
    modifiers: Mapping[str, Modifier]
    bind: Binder
    source: str
    level: Level = "specified"
    has_result: bool = True  # True if the first operand is written
    may_contract: bool = False  # True if ptxas may contract an instruction that has no rounding mode
    any_words: bool = False  # True if arbitrary qualifiers are accepted: hints, fences, matrix instructions
    cases: int = 0  # the number of inputs that were compared with a GPU
    implies: Mapping[str, object] = field(default_factory=dict)  # attributes that the opcode itself implies

    def __post_init__(self) -> None:
        """Raise an error for a modifier that sets no attribute."""
        known = {attribute.name for attribute in fields(Attributes)} | HINTS
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
    refusal: str = ""  # the reason why no row matches

    @cached_property
    def action(self) -> Action:
        """The action for the opcode's attributes."""
        return Refused(self.refusal) if self.row is None else self.row.bind(self.attributes)
