"""The interpreter's batch of warps, one step at a time: what a debugger and a comparison of two runs drive.

`next_position` says which step runs next, and for which lanes; `advance` runs it. A step that a whole warp or warpgroup
takes part in is next only when all its lanes have arrived, so that their registers are complete. Which lanes run next
is the scheduler's choice, as without a debugger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.ptx.interpreter.warp_batch import WarpBatch

if TYPE_CHECKING:
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.program.program import DecodedInstruction


class Position(NamedTuple):
    """The step that runs next, the end of its block, and the lanes that are there."""

    at: int
    end: int
    group: LaneGroup


class SteppedBatch(WarpBatch):
    """Blocks that run at once, as far as they are told to."""

    position: Position | None = None

    def run_block(self, start: int, group: LaneGroup) -> None:
        """Begin a time slice; its steps wait for `advance`."""
        self.begin_slice(start, group)
        self.position = Position(start, self.program.ends[start], group)

    def next_position(self) -> Position | None:
        """What runs next; None when all lanes have exited."""
        while True:
            if self.position is None and not self.schedule_next():
                return None
            if self.position is not None and self._is_complete(self.position):
                return self.position

    def _is_complete(self, position: Position) -> bool:
        """Whether all lanes that the step needs are here; if not, those that are here wait, and others run."""
        step = self.step_at(position)
        self.line = step.line
        if not step.action.is_collective:
            return True
        active = self.active_part(step, position.group)
        if self.all_arrived(position.at, step, position.group, active):
            return True
        self.position = None
        return False

    def step_at(self, position: Position) -> DecodedInstruction:
        """The instruction of a position."""
        return self.program.steps[position.at]

    def advance(self) -> bool:
        """Run the step of `next_position`; False if its lanes went to sleep instead."""
        position = self.next_position()
        if position is None:
            return False
        at, end, group = position
        self.position = None
        if not self.run_step(at, group):
            return False
        if not self.step_at(position).action.ends_block:
            if at + 1 == end:
                group.put(self.pc, end)
            else:
                self.position = Position(at + 1, end, group)
        return True
