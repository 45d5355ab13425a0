"""The record of the atomics on each word, for the judge."""

from __future__ import annotations

from typing import NamedTuple

from warpfrag.machine.interpreter.lane_group import items_of
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Discard

COMMUTING = {"add", "min", "max", "and", "or", "xor"}
EXTREMES = {"min", "max"}


class Update(NamedTuple):
    """An operation on words: its name, True if its order matters, and the asynchronous copy that performs it."""

    name: str
    is_sensitive: bool
    agent: int | None = None


class AtomicLayer(NamedTuple):
    """Commuting atomics on one word: the last thread and time, the operation, and the block (-1 for several)."""

    entity: int
    time: int
    name: str
    is_sensitive: bool
    block: int
    is_group: bool = False  # True if several threads contributed


class AtomicLayers(dict[tuple[int, int], list[AtomicLayer]]):
    """The atomics on each word, by buffer and offset; kept per batch for shared and per launch for global memory."""

    def __init__(self) -> None:
        """Create an empty record."""
        super().__init__()
        self.reported: set[tuple[int, int]] = set()  # words for which the order of atomics has been reported


def atomic_name(action: actions.Atomic) -> str:
    """Return the name of an atomic operation, with signed and unsigned minima and maxima distinguished."""
    return f"{action.name}.{action.type.dtype.str[1:]}.{action.type.kind}" if action.name in EXTREMES else action.name


def is_order_sensitive(inst: DecodedInstruction) -> bool:
    """Return True if the order of this atomic relative to others can change memory or registers."""
    action = inst.action
    if not isinstance(action, actions.Atomic):
        return False
    results = [reg for operand in inst.results for reg in items_of(operand)]
    is_used = action.returns and any(not isinstance(reg, Discard) for reg in results)
    return action.is_float or is_used or action.name not in COMMUTING
