"""Observers of instructions, the base class of all checks, and a group that passes every event on to its members."""

from __future__ import annotations

from collections.abc import Callable

from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.observer import Observer
from warpfrag.machine.ir.program import DecodedInstruction


class InstructionObserver(Observer):
    """A check: notified before and after each instruction, and when all lanes have exited."""

    def guarded(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Called when lanes reach a guarded instruction, even if the guard is false."""

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Called before lanes run an instruction."""

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Called after lanes have run an instruction."""

    def finish(self) -> None:
        """Called when every lane has exited."""


class ObserverGroup(InstructionObserver):
    """Passes every event on to each of its checks."""

    def __init__(self, observers: list[InstructionObserver]) -> None:
        """Keep the checks in the order in which they are notified."""
        self.observers = observers


def _pass_on(name: str) -> Callable[..., None]:
    """Return a method that calls the method of the same name on each check."""

    def method(group: ObserverGroup, *arguments: object, **options: object) -> None:
        for observer in group.observers:
            getattr(observer, name)(*arguments, **options)

    return method


for _name in (name for name in {**vars(Observer), **vars(InstructionObserver)} if not name.startswith("_")):
    setattr(ObserverGroup, _name, _pass_on(_name))
