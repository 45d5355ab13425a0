"""mbarriers of many lanes at once: the fast twin of `interpreter.mbarriers`, which says what they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault
from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.interpreter.lane_group import LaneGroup
from warpfrag.ptx.interpreter.mbarriers import COUNT, COUNT_SHIFT, NOT_ASLEEP, PARITY_SHIFT, Mbarriers
from warpfrag.ptx.program.actions import MemoryBarrier
from warpfrag.ptx.program.program import DecodedInstruction, Immediate, MemoryOperand, PtxOperand
from warpfrag.ptx.program.ptx_types import Codes

OBJECT_BYTES = 8  # of an mbarrier
WORD_BITS = 32  # of a register with an address or a number that the scheduler reads


class BatchedMbarriers(Mbarriers):
    """The mbarriers of a batch, changed by one loop over its lanes."""

    def change_all(
        self, cells: NDArray[np.int64], action: MemoryBarrier, numbers: Codes, line: int
    ) -> NDArray[np.uint64]:
        """Let lanes arrive, change what is owed, initialise or invalidate; the interpreter says what is wrong."""
        if action.name == "init" and self.can_initialise(cells, numbers):
            before = self.words[cells]
            self.words[cells] = self.written[cells] = numbers | numbers << COUNT_SHIFT
            self.live.update(dict.fromkeys(cells.tolist(), line))
            return before
        if action.name == "inval" and not (self.awaited != NOT_ASLEEP).any():
            before = self.words[cells]
            self.words[cells] = self.written[cells] = 0
            for cell in cells.tolist():
                self.remove(cell)
            return before
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
            self.change(int(cells[done]), action, int(numbers[done]), done, line)  # which is a MemoryFault
        return before

    def can_initialise(self, cells: NDArray[np.int64], numbers: Codes) -> bool:
        """Whether all these mbarriers are new, and no phase seems to end where they are made."""
        own = set(cells.tolist())
        is_new = len(own) == len(cells) and own.isdisjoint(self.live)
        return bool(
            is_new and ((numbers >= 1) & (numbers <= COUNT)).all() and not (self.words[cells] >> PARITY_SHIFT).any()
        )

    def advance(
        self, cells: NDArray[np.int64], arrivals: NDArray[np.int64], owed: NDArray[np.int64], *, drops: bool = False
    ) -> tuple[NDArray[np.uint64], int]:
        """Change mbarriers one after the other: what each was before, and how many could be changed."""
        from warpfrag.ptx.compiler.loops import advance_mbarriers

        before, has_ended = np.empty(len(cells), np.uint64), np.zeros(len(cells), np.bool_)
        done = np.zeros(1, np.int64)
        advance_mbarriers.run(self.words, self.written, cells, arrivals, owed, drops, before, has_ended, done)
        if has_ended.any() and (self.awaited != NOT_ASLEEP).any():
            self._wake(np.isin(self.awaited, cells[has_ended]))
        return before, int(done[0])

    def ended_phases(
        self, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The mbarriers that lanes wait for and whether their phases are over: once per warp where its lanes agree."""
        if action.space == "shared" and self.state.memory.accesses is None and self.agree(inst, group):
            first = np.zeros_like(group.mask)
            first[:, 0] = True
            try:
                cells, done = super().ended_phases(inst, action, group.part(first))
            except MemoryFault:  # which names the lane, among all of them
                return super().ended_phases(inst, action, group)
            others = (LANES - 1) * len(cells) * OBJECT_BYTES
            self.state.memory.count_bytes("shared", others, writes=True)
            return np.repeat(cells, LANES), np.repeat(done, LANES)
        return super().ended_phases(inst, action, group)

    @staticmethod
    def agree(inst: DecodedInstruction, group: LaneGroup) -> bool:
        """Whether the lanes of each warp are all here, with one address and one phase."""
        return group.is_whole and all(is_uniform(operand, group) for operand in inst.sources[:2])


def is_uniform(operand: PtxOperand, group: LaneGroup) -> bool:
    """Whether the lanes of each warp have the same value of an operand."""
    register = operand.base if isinstance(operand, MemoryOperand) else operand
    if register is None or isinstance(register, Immediate):
        return True
    index = getattr(register, "index", None)
    if index is None:
        return False
    codes = group.of(group.state.registers[index])
    return bool((codes == codes[:, :1]).all())
