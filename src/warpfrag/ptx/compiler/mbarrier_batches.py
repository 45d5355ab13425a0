"""mbarriers of many lanes at once: the fast twin of `interpreter.mbarriers`, which says what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.interpreter.mbarriers import NOT_ASLEEP, Mbarriers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.program.actions import MemoryBarrier
    from warpfrag.ptx.program.types import Codes


class BatchedMbarriers(Mbarriers):
    """The mbarriers of a batch, changed by one loop over its lanes."""

    def change_all(
        self, cells: NDArray[np.int64], action: MemoryBarrier, numbers: Codes, line: int
    ) -> NDArray[np.uint64]:
        """Let lanes arrive, or change how many bytes are owed; the interpreter initialises, and says what is wrong."""
        if action.name not in {"arrive", "arrive_drop", "expect_tx", "complete_tx"}:
            return super().change_all(cells, action, numbers, line)
        amounts = numbers.astype(np.int64)
        nothing = np.zeros_like(amounts)
        if action.name in {"arrive", "arrive_drop"}:
            arrivals, owed = (np.ones_like(amounts), amounts) if action.transaction else (amounts, nothing)
        else:
            arrivals, owed = nothing, amounts if action.name == "expect_tx" else -amounts
        before, done = self.advance(cells, arrivals, owed, drops=action.drops)
        if done < len(cells):
            self.change(int(cells[done]), action, int(numbers[done]), done, line)  # which is a Fault
        return before

    def advance(
        self, cells: NDArray[np.int64], arrivals: NDArray[np.int64], owed: NDArray[np.int64], *, drops: bool = False
    ) -> tuple[NDArray[np.uint64], int]:
        """Change mbarriers one after the other: what each was before, and how many could be changed."""
        from warpfrag.ptx.compiler.batch_loops import advance_mbarriers

        before, has_ended = np.empty(len(cells), np.uint64), np.zeros(len(cells), np.bool_)
        done = np.zeros(1, np.int64)
        advance_mbarriers.run(self.words, self.written, cells, arrivals, owed, drops, before, has_ended, done)
        if has_ended.any() and (self.awaited != NOT_ASLEEP).any():
            self._wake(np.isin(self.awaited, cells[has_ended]))
        return before, int(done[0])
