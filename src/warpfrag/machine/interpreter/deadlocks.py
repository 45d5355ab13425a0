"""Deadlocks: the error that names the waiting lanes and their barriers, and the detection of lanes that poll forever.

Each type of barrier describes its own waiting lanes in a method `deadlock`. `LivelockDetector` finds deadlocks of lanes
that poll memory: spin locks, flags, and the grid barrier (`launch.options`). These lanes do not sleep, so the launch
would end only at its instruction limit. A launch is in a livelock if every runnable lane returns to an earlier state
(program counter, registers and local memory) and no lane has changed other memory in between: the launch can only
repeat. Lanes at barriers do not count, because they wait for these lanes.

Only a batch with all blocks of the grid is checked; otherwise a block that has not started might change the memory.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import PtxError
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.program import polls

NOWHERE = -1
MAX_NAMED = 4  # maximum number of blocks that a message lists


def deadlock_error(reports: Iterable[tuple[int, str] | None]) -> PtxError:
    """Return the error for a deadlock, from the line and message of each type of barrier at which lanes wait."""
    present = [report for report in reports if report is not None]
    return PtxError(present[0][0], f"deadlock: {'; '.join(text for _, text in present)}", kind="deadlock")


class LivelockDetector:
    """Tracks lanes that read memory in a loop."""

    def __init__(self, state: WarpState) -> None:
        """Create a detector for a batch; no lane has polled yet."""
        self.state = state
        x, y, z = state.launch.grid
        self.is_judged = len(state.blocks) == x * y * z and bool(state.program.polling)
        # the first instruction of the basic block in which a lane last read memory that others may change
        self.polled = np.full(state.waiting.shape, NOWHERE, np.int64)
        self.level = 0  # the number of scheduling quanta that every lane had completed at the last check
        self.progress, self.looks = 0, 0  # `looks` counts the checks since memory last changed
        self.seen = b""  # the state at the last check whose number was a power of two
        self.slices = state.slices.copy()  # each lane's time-slice count at that check

    def note(self, start: int, group: LaneGroup) -> None:
        """Record that lanes run a basic block that reads memory other lanes may change."""
        if self.is_judged:
            group.put(self.polled, start)

    def is_reached(self, level: int, runnable: NDArray[np.bool_], *, has_sleepers: bool) -> bool:
        """Return True if no progress is possible, checked when all runnable lanes have used `level` scheduling quanta.

        Return False if lanes sleep at an mbarrier, because they may wake when their waits time out.
        """
        state = self.state
        self.level = level
        if not self.is_judged:
            return False
        if state.progress != self.progress or has_sleepers:
            self.progress, self.looks, self.seen = state.progress, 0, b""
            return False
        now = state.digest()
        if now == self.seen and (state.slices > self.slices)[runnable].all():
            return True
        self.looks += 1
        if self.looks & (self.looks - 1) == 0:  # comparing at powers of two finds cycles of any length
            self.seen, self.slices = now, state.slices.copy()
        return False

    def deadlock(self) -> tuple[int, str] | None:
        """Return the line and message of a livelock, with polling lanes and exited blocks, or None if no lane polls."""
        state = self.state
        reading = state.alive & ~state.waiting & (self.polled != NOWHERE)
        texts, lines = [], []
        for start in np.unique(self.polled[reading]).tolist():
            lanes = reading & (self.polled == start)
            warp, lane = (int(index) for index in np.argwhere(lanes)[0])
            instructions = state.program.instructions[start : state.program.ends[start]]
            inst = next(inst for inst in instructions if polls(inst.action))
            count = int(lanes.sum())
            others = f" and {count - 1} more" if count > 1 else ""
            texts.append(
                f"{inst.name} at line {inst.line} of {state.thread_name(warp, lane)}{others} "
                "keeps reading the same value"
            )
            lines.append(inst.line)
        if not texts:
            return None
        alive = state.alive.reshape(len(state.blocks), -1)
        gone = [f"({', '.join(map(str, block))})" for at, block in enumerate(state.blocks) if not alive[at].any()]
        if gone:
            more = f" and {len(gone) - MAX_NAMED} more" if len(gone) > MAX_NAMED else ""
            texts.append(f"blocks that have exited: {', '.join(gone[:MAX_NAMED])}{more}")
        return lines[0], "; ".join(texts)
