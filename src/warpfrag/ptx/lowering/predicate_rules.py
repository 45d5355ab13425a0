"""What ptxas makes of predicates: comparisons that become part of a branch, votes before a loop, guards that change.

Every rule goes through the steps in the order of their text and doubts what the code around may have changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.ptx.lowering.liveness import readers_behind, written_registers
from warpfrag.ptx.lowering.replaced_steps import doubt, goes_back, note
from warpfrag.ptx.program.actions import Branch, LaneOp, Return
from warpfrag.ptx.program.program import Immediate, Register, block_ends
from warpfrag.ptx.program.types import BF16, F16, F32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.program.program import DecodedInstruction

VOTED_AGAIN = "a vote or election before a loop may be held again in it, among the threads that are there"
GUARD_CHANGED = "of a guarded step before a branch on its guard, the guard may be taken as that branch leaves it"


def doubt_predicates(kernel: KernelLowering) -> None:
    """Doubt steps whose predicates ptxas may compute differently."""
    steps = kernel.steps
    before: dict[int, DecodedInstruction] = {}  # what wrote a predicate last
    for at, step in enumerate(steps):
        if step.attributes.opcode == "setp" and step.attributes.ftz and step.attributes.types == (F32,):
            _lost_flush(kernel, at, step, before)
        elif step.attributes.opcode in {"elect", "vote"}:
            _vote_again(steps, at, step)
        for register in written_registers(step):
            before[register.index] = step
    _changed_guards(kernel)


def _lost_flush(
    kernel: KernelLowering, at: int, step: DecodedInstruction, before: dict[int, DecodedInstruction]
) -> None:
    """A comparison that ptxas joins with another predicate, or takes apart into two, no longer flushes."""
    result, action = step.results[0], step.action
    if step.guard is not None or not isinstance(result, Register) or not isinstance(action, LaneOp) or not step.row:
        return
    if step.attributes.combine is None:
        last = before.get(result.index)
        is_lost = last is not None and _is_constant(last)
    else:
        jumps = (use for use in _guarded(kernel.steps, at, result) if isinstance(use.action, Branch | Return))
        is_lost = step.attributes.combine == "and" and any(use.guard and not use.guard.negated for use in jumps)
    if is_lost:
        other = step.row.bind(replace(step.attributes, ftz=False))
        if isinstance(other, LaneOp):
            doubt(step, "flush of a joined comparison", other.function)
            note(kernel, step, "flush of a joined comparison")


def _guarded(steps: Sequence[DecodedInstruction], at: int, predicate: Register) -> Iterator[DecodedInstruction]:
    """The steps that a result guards, until the text writes it again."""
    for step in steps[at + 1 :]:
        if step.guard is not None and step.guard.index == predicate.index:
            yield step
        if any(register.index == predicate.index for register in written_registers(step)):
            return


def _is_constant(step: DecodedInstruction) -> bool:
    return bool(step.sources) and all(isinstance(source, Immediate) for source in step.sources)


def _vote_again(steps: Sequence[DecodedInstruction], at: int, step: DecodedInstruction) -> None:
    """Doubt the branch of a loop that alone looks at a vote before it."""
    ends = [end for end, other in enumerate(steps) if goes_back(end, other) and min(other.targets) > at]
    inside = {place for end in ends for place in range(min(steps[end].targets), end + 1)}
    for predicate in (item for item in written_registers(step) if item.bits == 1):
        uses = list(readers_behind(steps, at, predicate)) if inside else []
        if len(uses) == 1 and isinstance(steps[uses[0]].action, Branch) and uses[0] in inside:
            steps[uses[0]].doubt = VOTED_AGAIN


def _changed_guards(kernel: KernelLowering) -> None:
    """Doubt steps on halves under a guard that a branch looks at, and that one of its sides makes a constant."""
    steps, ends = kernel.steps, block_ends(kernel.steps, kernel.leaders)
    for at, step in enumerate(steps[:-1]):
        if not isinstance(step.action, Branch) or step.guard is None:
            continue
        predicate = step.guard.index
        side = steps[at + 1 : ends[at + 1]]
        if not any(_is_constant(other) and predicate in _written(other) for other in side):
            continue
        for place in range(at - 1, -1, -1):
            other = steps[place]
            if predicate in _written(other):
                break
            if other.guard is not None and other.guard.index == predicate and _leaves_half(other):
                other.doubt = GUARD_CHANGED


def _leaves_half(step: DecodedInstruction) -> bool:
    """Whether a step leaves a float of 16 bits, which ptxas selects behind it where the step is guarded."""
    kind = step.action.results[0] if isinstance(step.action, LaneOp) else None
    return kind in {F16, BF16}


def _written(step: DecodedInstruction) -> set[int]:
    return {register.index for register in written_registers(step)}
