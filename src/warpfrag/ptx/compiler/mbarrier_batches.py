"""mbarriers of many lanes at once: the fast twin of `interpreter.mbarriers`, which says what they are.

`mbarrier_columns` tells the compiled scheduler of the steps that it may run itself (`mbarrier_steps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.errors import Fault
from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.compiler.scheduler_state import (
    ADDRESS,
    ARRIVES,
    GUARD,
    IS_TRANSACTION,
    KIND,
    NEGATED,
    NUMBER,
    NUMBER_VALUE,
    OFFSET,
    RESULT,
    WAITS,
)
from warpfrag.ptx.interpreter.mbarriers import COUNT, COUNT_SHIFT, NOT_ASLEEP, PARITY_SHIFT, Mbarriers
from warpfrag.ptx.program.actions import MemoryBarrier
from warpfrag.ptx.program.program import Discard, Immediate, MemoryOperand, Register
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

OBJECT_BYTES = 8  # of an mbarrier
WORD_BITS = 32  # of a register with an address or a number that the scheduler reads


class BatchedMbarriers(Mbarriers):
    """The mbarriers of a batch, changed by one loop over its lanes."""

    def __init__(self, state: WarpState) -> None:
        """Start with none, and with what the compiled scheduler needs of them."""
        super().__init__(state)
        self.is_live = np.zeros(len(self.written), np.bool_)
        self.undo = np.zeros((3, state.waiting.size), np.int64)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What the compiled scheduler reads and changes (`scheduler.run_scheduler`)."""
        return self.words, self.written, self.is_live, self.awaited, self.expired, self.undo

    def add(self, cell: int, line: int) -> None:
        """Note an mbarrier that is initialised."""
        super().add(cell, line)
        self.is_live[cell] = True

    def remove(self, cell: int) -> None:
        """Note that there is none any more."""
        super().remove(cell)
        self.is_live[cell] = False

    def change_all(
        self, cells: NDArray[np.int64], action: MemoryBarrier, numbers: Codes, line: int
    ) -> NDArray[np.uint64]:
        """Let lanes arrive, change what is owed, initialise or invalidate; the interpreter says what is wrong."""
        if action.name == "init" and self.can_initialise(cells, numbers):
            before = self.words[cells]
            self.words[cells] = self.written[cells] = numbers | numbers << COUNT_SHIFT
            self.live.update(dict.fromkeys(cells.tolist(), line))
            self.is_live[cells] = True
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
            self.change(int(cells[done]), action, int(numbers[done]), done, line)  # which is a Fault
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
        self, step: DecodedInstruction, action: MemoryBarrier, group: LaneGroup
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The mbarriers that lanes wait for and whether their phases are over: once per warp where its lanes agree."""
        if action.space == "shared" and self.state.memory.accesses is None and self.agree(step, group):
            first = np.zeros_like(group.mask)
            first[:, 0] = True
            try:
                cells, done = super().ended_phases(step, action, group.part(first))
            except Fault:  # which names the lane, among all of them
                return super().ended_phases(step, action, group)
            others = (LANES - 1) * len(cells) * OBJECT_BYTES
            self.state.memory.count_bytes("shared", others, writes=True)
            return np.repeat(cells, LANES), np.repeat(done, LANES)
        return super().ended_phases(step, action, group)

    @staticmethod
    def agree(step: DecodedInstruction, group: LaneGroup) -> bool:
        """Whether the lanes of each warp are all here, with one address and one phase."""
        return group.is_whole and all(is_uniform(operand, group) for operand in step.sources[:2])


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


class OperandPlace(NamedTuple):
    """Where the scheduler finds a number: the byte offset of a register's lanes (-1 for none), and what is added."""

    register: int
    added: int


def mbarrier_columns(step: DecodedInstruction, layout: RegisterLayout) -> dict[int, int] | None:
    """The columns of a step's row in the table, by their number, with its kind; None where Python has to run it."""
    action = step.action
    if not isinstance(action, MemoryBarrier) or action.space != "shared":
        return None
    address = _place(step.sources[0], layout)
    number = _place(step.sources[1], layout) if len(step.sources) > 1 else OperandPlace(-1, 1)
    if address is None or number is None:
        return None
    columns = {ADDRESS: address.register, OFFSET: address.added, NUMBER: number.register, NUMBER_VALUE: number.added}
    if action.name == "try_wait" and action.parity and step.guard is None:
        result = step.results[0]
        if not isinstance(result, Register) or result.bits != 1:
            return None
        return columns | {KIND: WAITS, RESULT: layout.offsets[result.index]}
    if action.name != "arrive" or not all(isinstance(result, Discard) for result in step.results):
        return None
    guard = -1 if step.guard is None else layout.offsets[step.guard.index]
    negated = step.guard is not None and step.guard.negated
    return columns | {KIND: ARRIVES, GUARD: guard, NEGATED: int(negated), IS_TRANSACTION: int(action.transaction)}


def _place(operand: PtxOperand, layout: RegisterLayout) -> OperandPlace | None:
    """Where the numbers of an operand lie: a register of 32 bits, a constant, or both."""
    if isinstance(operand, Immediate):
        return OperandPlace(-1, int(operand.code(TYPES["b64"])))
    base, added = (operand.base, operand.offset) if isinstance(operand, MemoryOperand) else (operand, 0)
    if base is None:
        return OperandPlace(-1, added)
    if not isinstance(base, Register) or base.bits != WORD_BITS:
        return None
    return OperandPlace(layout.offsets[base.index], added)
