"""Observers of instructions, which all checks derive from, and a group that passes every event on to several."""

from __future__ import annotations

from collections.abc import Callable

from warpfrag.ptx.interpreter.lane_group import LaneGroup
from warpfrag.ptx.interpreter.observer import Observer
from warpfrag.ptx.program.program import DecodedInstruction


class InstructionObserver(Observer):
    """A check: it is told of instructions too, before and after they run, and when all lanes have exited."""

    def guarded(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have reached an instruction with a guard, whether it holds or not."""

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes are about to run an instruction."""

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Lanes have run an instruction."""

    def finish(self) -> None:
        """Every lane has exited."""


class ObserverGroup(InstructionObserver):
    """Passes everything on to each of some checks."""

    def __init__(self, observers: list[InstructionObserver]) -> None:
        """Keep the checks in the order in which they are told."""
        self.observers = observers


def _pass_on(name: str) -> Callable[..., None]:
    """Return a method that calls the same method of each check."""

    def method(group: ObserverGroup, *arguments: object, **options: object) -> None:
        for observer in group.observers:
            getattr(observer, name)(*arguments, **options)

    return method


for _name in (name for name in {**vars(Observer), **vars(InstructionObserver)} if not name.startswith("_")):
    setattr(ObserverGroup, _name, _pass_on(_name))
