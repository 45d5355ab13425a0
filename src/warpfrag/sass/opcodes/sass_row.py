"""The row of a machine opcode: its modifiers, its emitter and its evidence."""

from collections.abc import Callable
from typing import NamedTuple

from warpfrag.sass.emitter import Emitter
from warpfrag.sass.sass_instruction import Operand, SassInstruction

H200 = "compared with an H200"
Emit = Callable[[Emitter, "Modifiers", list[Operand]], None]


class Modifiers:
    """The modifiers of an instruction, in the order in which they are written."""

    def __init__(self, inst: SassInstruction) -> None:
        """Create the sequence of an instruction's modifiers."""
        self.opcode, self.all = inst.opcode, inst.modifiers

    def __contains__(self, modifier: str) -> bool:
        """Return True if the instruction has this modifier."""
        return modifier in self.all

    def first(self, known: tuple[str, ...], default: str = "") -> str:
        """Return the first modifier that is one of `known`, or `default`."""
        return next((modifier for modifier in self.all if modifier in known), default)

    def chosen(self, known: tuple[str, ...]) -> list[str]:
        """Return the instruction's modifiers that are in `known`, in order."""
        return [modifier for modifier in self.all if modifier in known]


class SassRow(NamedTuple):
    """A row of the opcode table: an opcode, its possible modifiers, its emitter and its evidence."""

    opcode: str
    modifiers: frozenset[str]
    emit: Emit
    source: str


def row(opcodes: str, modifiers: str, emit: Emit, source: str = H200) -> list[SassRow]:
    """Return rows for several opcodes that share modifiers and emitter."""
    return [SassRow(opcode, frozenset(modifiers.split()), emit, source) for opcode in opcodes.split()]


def is_true(operand: Operand) -> bool:
    """Return True for the constant predicates PT and UPT."""
    return getattr(operand, "file", "") in {"P", "UP"} and operand.is_constant and not operand.invert  # type: ignore[union-attr]


def is_predicate(operand: Operand) -> bool:
    """Return True for a predicate register."""
    return getattr(operand, "file", "") in {"P", "UP"}
