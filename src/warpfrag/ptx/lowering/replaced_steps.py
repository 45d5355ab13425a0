"""How a step gets the action of a departure: certainly, or as an alternative that makes it doubtful."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.ptx.program.actions import Alternative, Branch, LaneOp
from warpfrag.ptx.program.departures import DEPARTURES

if TYPE_CHECKING:
    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes


def note(kernel: KernelLowering, step: DecodedInstruction, name: str) -> None:
    """Keep that a line departs, for the warnings of the kernel."""
    kernel.departures[step.line, name] = step.text


def replace_function(kernel: KernelLowering, step: DecodedInstruction, name: str, function: LaneFunction) -> None:
    """Give a step the function of a departure."""
    if isinstance(step.action, LaneOp):
        step.action = replace(step.action, function=function, nan_choice=None, replaces=name)
        note(kernel, step, name)


def doubt(step: DecodedInstruction, name: str, alternative: LaneFunction) -> None:
    """A step may have another result: it is inexact where that differs."""
    if isinstance(step.action, LaneOp):
        reason = f"{DEPARTURES[name].compiler}: which ptxas does depends on the code around it"
        step.action = replace(step.action, alternative=Alternative(alternative, reason))


def replace_where_seen(
    kernel: KernelLowering, step: DecodedInstruction, name: str, function: LaneFunction, *, is_sure: bool
) -> None:
    """Give a step the function of a departure; unless it is sure that ptxas does so, doubt where the results differ."""
    before = step.action
    replace_function(kernel, step, name, function)
    if not is_sure and isinstance(before, LaneOp):
        doubt(step, name, before.function)


def goes_back(at: int, step: DecodedInstruction) -> bool:
    """Whether a step ends a loop."""
    return isinstance(step.action, Branch) and any(target <= at for target in step.targets)


def first(a: Codes, *_others: Codes) -> Codes:
    """The first operand."""
    return a


def second(_a: Codes, b: Codes, *_others: Codes) -> Codes:
    """The second operand."""
    return b
