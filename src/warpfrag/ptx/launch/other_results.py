"""Whether a doubt matters: the launch runs again with another result of the doubted step, and memory is compared.

Of some steps it is not known which of two codes ptxas makes, or which NaN stays (`program.inexact`). Often nothing of
that reaches memory: the register is overwritten, or all that reads it gives the same. So a short launch with such steps
runs again from the memory before it, once for each of their other results. A doubt whose other results all leave the
same memory is none.

Where the other result is known, it is taken (`LaneOp.alternative`, the NaN of another operand). Where only the doubt
is known, four results stand for all: no bits, all bits, every bit changed, and the next number. (The first three and
0 leave the same rest if they are divided by 3.)
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.interpreter.lane_instructions import as_tuple
from warpfrag.ptx.interpreter.warp_batch import WarpBatch
from warpfrag.ptx.launch.exploration import explore
from warpfrag.ptx.launch.grid import MAX_WARPS, Work
from warpfrag.ptx.lowering.predicate_rules import GUARDS
from warpfrag.ptx.program.actions import LaneOp, MatrixOp, MemoryLoad, Move, NanChoice, WarpCollective
from warpfrag.ptx.program.inexact import LOOKED_INTO, InexactCause
from warpfrag.ptx.program.program import OtherReading, registers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.device_memory import DeviceMemory
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import LaunchPart
    from warpfrag.ptx.launch.grid import Waves
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes

    Change = Callable[[Codes], Codes]

MAX_STEPS = 60_000  # of all runs together, of as many warps at once as run: some seconds
MAX_BYTES = 1 << 24  # of memory, which is copied before the launch
LIMIT_FACTOR = 4  # so much longer a run may be than the launch: another result may count a loop
CHANGES: tuple[Change, ...] = (
    np.invert,
    np.zeros_like,
    lambda codes: ~np.zeros_like(codes),
    lambda codes: codes + codes.dtype.type(1),
)
"""What stands for a result that is not known."""
CHANGEABLE = LaneOp | Move | MemoryLoad | WarpCollective | MatrixOp


def is_doubtful(step: DecodedInstruction) -> bool:
    """Whether a step may be in doubt, and be looked into."""
    action = step.action
    if _can_change(step):
        return True
    if not isinstance(action, LaneOp):
        return False
    return action.alternative is not None or (action.nan_choice is not None and not action.nan_choice.is_fixed)


def fits(memory: DeviceMemory) -> bool:
    """Whether the memory of a launch is small enough to be kept."""
    return sum(buffer.nbytes for buffer in memory.writable_buffers()) <= MAX_BYTES


def harmless_steps(work: Work, before: list[NDArray[np.generic]], waves: Callable[[], Waves]) -> frozenset[int]:
    """The steps of a launch that are in doubt although no other result of theirs changes memory."""
    others = {at: results for at, results in _doubts(work).items() if results}
    alone = [{at: other} for at, results in others.items() for other in results]
    instructions = int(work.tally.steps.sum())
    warps = min(MAX_WARPS, work.config.warps * math.prod(work.config.grid))
    if not alone or instructions // warps * (len(alone) + 1) > MAX_STEPS:
        return frozenset()
    again = partial(_that_differ, work, before, waves, runs=MAX_STEPS // max(1, instructions // warps))
    left = set(others) - {at for steps in again(alone) for at in steps}
    if len(left) > 1 and again(_at_once({at: others[at] for at in left})):
        return frozenset()
    return frozenset(left)


def _doubts(work: Work) -> dict[int, list[OtherStep]]:
    """The steps of a launch that ran and were in doubt, with their other results."""
    ran = enumerate(zip(work.program.steps, work.tally.steps, work.tally.causes, strict=True))
    return {
        at: list(_other_steps(step, int(bits)))
        for at, (step, count, bits) in ran
        if count and (step.doubt or int(bits) & LOOKED_INTO)
    }


def _at_once(others: dict[int, list[OtherStep]]) -> list[dict[int, OtherStep]]:
    """Rounds in which all of some steps have another result, and each of its other results in some round."""
    longest = max(map(len, others.values()), default=0)
    return [{at: results[index % len(results)] for at, results in others.items()} for index in range(longest)]


def _that_differ(
    work: Work,
    before: list[NDArray[np.generic]],
    waves: Callable[[], Waves],
    rounds: Sequence[dict[int, OtherStep]],
    runs: int,
) -> list[dict[int, OtherStep]]:
    """The rounds that leave other memory, print something else, or end with an error.

    Another result may bring a doubt that the launch itself has not: a NaN meets a NaN that it was equal to before. The
    round is followed by rounds in which the steps of such doubts have other results too. One that needs more than so
    many runs counts as different.
    """
    limit = LIMIT_FACTOR * int(work.tally.steps.sum())
    known = _doubts(work)
    differing: set[int] = set()
    pending = list(enumerate(rounds))
    while pending:
        if len(pending) > runs:
            differing |= {origin for origin, _ in pending}
            break
        runs -= len(pending)
        failed: set[int] = set()
        following: list[tuple[int, dict[int, OtherStep]]] = []

        def run(index: int) -> str:
            origin, steps = pending[index]  # noqa: B023 (called before the next round)
            batch_of = partial(OtherResultBatch, steps=steps)
            again = Work(work.program, replace(work.config, limit=limit), work.memory.fork(), None, batch_of=batch_of)
            again.memory.tags.forget()
            again.run_waves(waves(), 1, None)
            more = {at: results for at, results in _doubts(again).items() if at not in known and at not in steps}
            is_unknown = not all(more.values())
            if again.failure is not None or again.tally.printed != work.tally.printed or is_unknown:
                failed.add(index)  # noqa: B023
            else:
                following.extend((origin, steps | others) for others in _at_once(more))  # noqa: B023
            return ""

        compared = explore(work.memory, before, len(pending), run)
        differing |= {pending[index][0] for index in failed | set(compared.seeds)}
        pending = [(origin, steps) for origin, steps in following if origin not in differing]
    return [rounds[index] for index in sorted(differing)]


class OtherStep:
    """A step with another result: another action, or a change of what it reads or of what its own leaves."""

    def __init__(
        self, step: DecodedInstruction, change: Change | None = None, misreading: OtherReading | None = None
    ) -> None:
        """Note the step that runs, what is done to its results, and how it reads registers."""
        self.step, self.change, self.misreading = step, change, misreading

    def run(self, batch: WarpBatch, group: LaneGroup) -> None:
        """Run it for some lanes."""
        results = {item.index for operand in self.step.results for item in registers_of(operand)}
        kept = {}
        if self.misreading is not None:
            for register in self.misreading.registers:
                kept[register.index] = codes = batch.registers[register.index]
                group.write(register, self.misreading.change(group.of(codes)))
        WarpBatch.execute(batch, self.step, group)
        for index in kept.keys() - results:
            batch.registers[index] = kept[index]
        if self.change is not None:
            for register in (item for operand in self.step.results for item in registers_of(operand)):
                group.write(register, self.change(group.of(batch.registers[register.index])))


class OtherResultBatch(WarpBatch):
    """Blocks that run at once, with other results of some steps."""

    def __init__(self, part: LaunchPart, steps: dict[int, OtherStep]) -> None:
        """Put every lane at the entry."""
        super().__init__(part)
        self.others = {id(part.program.steps[at]): other for at, other in steps.items()}

    def execute(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Run a step, or what stands for it."""
        other = self.others.get(id(step))
        if other is None:
            super().execute(step, group)
        else:
            other.run(self, group)


def _other_steps(step: DecodedInstruction, causes: int) -> Iterator[OtherStep]:
    """A step with each of its other results; none where one of its doubts cannot be looked into."""
    if step.doubt and not _can_change(step):
        return
    if step.misreading is not None:
        registers, change = step.misreading
        yield from (OtherStep(step, misreading=OtherReading((register,), change)) for register in registers)
        if len(registers) > 1:
            yield OtherStep(step, misreading=step.misreading)
    elif _can_change(step):
        yield from (OtherStep(step, change) for change in CHANGES)
    for action in _other_actions(step, causes):
        yield OtherStep(replace(step, action=action))


def _can_change(step: DecodedInstruction) -> bool:
    """Whether a step is in doubt, and all that it does is to write registers."""
    action = step.action
    is_later = isinstance(action, MatrixOp) and action.operation == "wgmma"
    is_known = bool(step.doubt and step.results) and step.doubt not in GUARDS
    return is_known and isinstance(action, CHANGEABLE) and not is_later


def _other_actions(step: DecodedInstruction, causes: int) -> list[LaneOp]:
    """What a step may do instead, for the causes that were seen."""
    action = step.action
    if not isinstance(action, LaneOp):
        return []
    actions = []
    if action.alternative is not None and causes & InexactCause.COMPILER:
        function, other = action.function, action.alternative.function

        def run(*codes: Codes) -> tuple[Codes, ...]:
            values, others = as_tuple(function(*codes)), as_tuple(other(*codes))
            return (*others, *values[len(others) :])

        actions.append(replace(action, function=run, alternative=None))
    choice = action.nan_choice
    if choice is not None and not choice.is_fixed and causes & InexactCause.NAN_OPERANDS:
        orders = [order for order in permutations(choice.order) if order != choice.order]
        actions += [replace(action, nan_choice=NanChoice(order, is_fixed=True)) for order in orders]
    return actions
