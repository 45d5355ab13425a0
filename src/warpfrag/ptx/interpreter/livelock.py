"""Deadlocks of lanes that read memory in a loop: spin locks, flags, and the barrier of a grid (`launch.options`).

No lane sleeps there, and a launch would only end at its limit. It is in a livelock if every lane that can run comes
back to a state that it was in before, with the same program counter, registers and local memory, and nobody has changed
other memory in between: it can only go round again. Lanes that wait at barriers wait for these.

Only a batch that has all blocks of the grid is judged: in others, a block that has not begun might change the memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warpfrag.ptx.interpreter.lane_group import LaneGroup
from warpfrag.ptx.interpreter.warp_state import WarpState
from warpfrag.ptx.program.program import polls

NOWHERE = -1
MAX_NAMED = 4  # blocks that a message lists


class LivelockDetector:
    """What is known of lanes that read memory in a loop."""

    def __init__(self, state: WarpState) -> None:
        """Nobody has been seen in a loop."""
        self.state = state
        x, y, z = state.launch.grid
        self.is_judged = len(state.blocks) == x * y * z and bool(state.program.polling)
        self.polled = np.full(
            state.waiting.shape, NOWHERE, np.int64
        )  # the block of instructions where a lane read last
        self.level = 0  # the quanta of time slices that all lanes had at the last look
        self.progress, self.looks = 0, 0  # since the last change of memory
        self.seen = b""  # the state at an earlier look: the last whose number was a power of two
        self.slices = state.slices.copy()  # that lanes had had at that look

    def note(self, start: int, group: LaneGroup) -> None:
        """Lanes run a block of instructions that reads memory which others may change."""
        if self.is_judged:
            group.put(self.polled, start)

    def is_reached(self, level: int, runnable: NDArray[np.bool_], *, has_sleepers: bool) -> bool:
        """Whether nothing can change any more, now that all lanes that can run have had so many quanta.

        Lanes that sleep at an mbarrier may wake when their time limit has passed: then nothing is said.
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
        if self.looks & (self.looks - 1) == 0:  # a cycle of any length is found
            self.seen, self.slices = now, state.slices.copy()
        return False

    def deadlock(self) -> tuple[int, str] | None:
        """The line and the message: who reads what line by line, and which blocks have exited; None without any."""
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
                f"{inst.name} at line {inst.line} of {state.thread_name(warp, lane)}{others} reads the same again"
            )
            lines.append(inst.line)
        if not texts:
            return None
        alive = state.alive.reshape(len(state.blocks), -1)
        gone = [f"({', '.join(map(str, block))})" for at, block in enumerate(state.blocks) if not alive[at].any()]
        if gone:
            more = f" and {len(gone) - MAX_NAMED} more" if len(gone) > MAX_NAMED else ""
            texts.append(f"blocks that have exited: {', '.join(gone[:MAX_NAMED])}{more}")
        return lines[0], f"deadlock: {'; '.join(texts)}"
