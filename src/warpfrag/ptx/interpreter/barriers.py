"""Barriers: those of a block (bar, barrier), and those in shared memory (mbarrier).

An mbarrier is an opaque object of 64 bits. Here they are, from the low end: arrivals pending in this phase (20 bits),
arrivals expected in every phase (20), the transaction count in bytes (23, signed), and the parity of the phase.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.core.coordinates import LANES
from warpfrag.errors import Fault, PtxError
from warpfrag.ptx.interpreter.lane_group import LaneGroup
from warpfrag.ptx.program.program import Immediate
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.actions import Barrier, MemoryBarrier
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

COUNT = (1 << 20) - 1
TX_BITS = 23
MAX_BARRIERS = 16
MAX_POLLS = 20_000  # that fail with no change of memory in between: a deadlock
MAX_POLLS_ALONE = 2_000  # where no other lane can run
U32, B64, PRED = TYPES["u32"], TYPES["b64"], TYPES["pred"]


@dataclass
class BarrierState:
    """One barrier of one block: the lanes that wait at it, and how many arrived without waiting."""

    here: NDArray[np.bool_]  # [warps of the block, lanes]
    arrived: int = 0
    expected: int = 0
    votes: NDArray[np.bool_] | None = None
    line: int = 0
    waiters: list[tuple[Barrier, DecodedInstruction, int, NDArray[np.bool_]]] = field(default_factory=list)


class BlockBarriers:
    """The barriers of all blocks of a batch; `states` has those that lanes have reached, by block and number."""

    def __init__(self, state: WarpState) -> None:
        """Start without waiting lanes; `divergent` gets what is seen at barriers that only part of a warp reaches."""
        self.state = state
        self.per_block = state.launch.warps
        self.states: dict[tuple[int, int], BarrierState] = {}
        self.divergent: dict[int, str] = {}  # line -> what was seen
        self.polls = 0  # that failed since the last progress
        self.last_progress = 0

    def arrive(self, step: DecodedInstruction, action: Barrier, group: LaneGroup) -> None:
        """Let some lanes arrive at a barrier, and wait there unless it is bar.arrive."""
        state = self.state
        operands = list(step.sources)
        vote = operands.pop() if action.reduction else None
        if not operands:
            raise PtxError(step.line, f"expected the number of a barrier, got {step.text}")
        numbers = group.read(operands[0], U32)
        expected = group.read(operands[1], U32) if len(operands) > 1 else None
        votes = group.read(vote, PRED) if vote is not None else None
        rows = group.warp_rows
        if action.aligned:
            self._note_divergence(step, group, rows)
        touched = set()
        for index in np.nonzero(group.mask.any(axis=1))[0]:
            warp = int(rows[index])
            block, own = divmod(warp, self.per_block)
            lanes = group.mask[index]
            number = int(numbers[index][lanes][0])
            if number >= MAX_BARRIERS:
                raise PtxError(step.line, f"expected a barrier 0..{MAX_BARRIERS - 1}, got {number}")
            barrier = self.states.setdefault(
                (block, number),
                BarrierState(
                    np.zeros((self.per_block, LANES), np.bool_), votes=np.zeros((self.per_block, LANES), np.bool_)
                ),
            )
            barrier.line = step.line
            if expected is not None:
                barrier.expected = int(expected[index][lanes][0])
                if barrier.expected % LANES or not barrier.expected:
                    raise PtxError(step.line, f"expected a multiple of 32 threads, got {barrier.expected}")
            if not action.waits:
                barrier.arrived += LANES
            else:
                barrier.here[own] |= lanes
                state.waiting[warp] |= lanes
                if votes is not None and barrier.votes is not None:
                    barrier.votes[own][lanes] = votes[index][lanes]
                    barrier.waiters.append((action, step, warp, lanes))
            touched.add((block, number))
        for key in touched:
            self.check(*key)

    def _note_divergence(self, step: DecodedInstruction, group: LaneGroup, rows: NDArray[Any]) -> None:
        partial = group.mask.any(axis=1) & (group.mask != self.state.alive[rows]).any(axis=1)
        if partial.any() and step.line not in self.divergent:
            at = int(partial.argmax())
            lane = int((self.state.alive[rows[at]] & ~group.mask[at]).argmax())
            who = self.state.thread_name(int(rows[at]), lane)
            self.divergent[step.line] = f"{step.name} is reached by a part of a warp: not by {who}"

    def check(self, block: int, number: int) -> None:
        """Release the lanes of a barrier when all that it waits for have arrived."""
        barrier = self.states.get((block, number))
        if barrier is None or not barrier.here.any():
            return
        state = self.state
        rows = slice(block * self.per_block, (block + 1) * self.per_block)
        alive = state.alive[rows]
        if barrier.expected:
            whole = barrier.here.any(axis=1) & ~(alive & ~barrier.here).any(axis=1)
            if int(whole.sum()) * LANES + barrier.arrived < barrier.expected:
                return
        elif (alive & ~barrier.here).any():
            return
        del self.states[block, number]
        state.order_stores([block])
        state.waiting[rows] &= ~barrier.here
        state.progress += 1
        if barrier.waiters and barrier.votes is not None:
            self._write_votes(barrier)

    def _write_votes(self, barrier: BarrierState) -> None:
        """Write the result of bar.red for every lane that waited."""
        votes = barrier.votes[barrier.here] if barrier.votes is not None else np.zeros(0, np.bool_)
        for action, step, warp, lanes in barrier.waiters:
            group = LaneGroup(self.state, np.array([warp]), lanes[None, :])
            if action.reduction == "popc":
                group.write(step.results[0], np.full((1, LANES), int(votes.sum()), np.uint32))
            else:
                held = bool(votes.all()) if action.reduction == "and" else bool(votes.any())
                group.write(step.results[0], np.full((1, LANES), held, np.bool_))

    def check_all(self) -> None:
        """Check every barrier again: threads that have exited are not waited for."""
        for key in list(self.states):
            self.check(*key)

    def release_completed(self) -> bool:
        """Check every barrier when no lane can run; whether that released some."""
        before = int(self.state.waiting.sum())
        self.check_all()
        return int(self.state.waiting.sum()) < before

    def deadlock(self) -> tuple[int, str]:
        """The line and the message of a deadlock: which barrier waits for which thread."""
        state = self.state
        for (block, number), barrier in self.states.items():
            if not barrier.here.any():
                continue
            rows = slice(block * self.per_block, (block + 1) * self.per_block)
            missing = state.alive[rows] & ~barrier.here
            if barrier.expected:
                count = int(barrier.here.any(axis=1).sum()) * LANES + barrier.arrived
                return barrier.line, f"deadlock: barrier {number} waits for {barrier.expected} threads, {count} came"
            warp, lane = (int(v) for v in np.argwhere(missing)[0])
            who = state.thread_name(block * self.per_block + warp, lane)
            line = state.program.steps[int(state.pc[block * self.per_block + warp, lane])].line
            return barrier.line, f"deadlock: barrier {number} waits for {who}, which waits at line {line}"
        warp, lane = (int(v) for v in np.argwhere(state.waiting_in_warp)[0])
        step = state.program.steps[int(state.pc[warp, lane])]
        return (
            step.line,
            f"deadlock: {step.name} of {state.thread_name(warp, lane)} waits for lanes of its warp that do not come",
        )

    def note_failed_poll(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Count a failed wait; too many with no progress in between are a deadlock."""
        if self.last_progress != self.state.progress:
            self.last_progress, self.polls = self.state.progress, 0
        self.polls += 1
        alone = int((self.state.alive & ~self.state.waiting).sum()) == int(group.mask.sum())
        if self.polls > (MAX_POLLS_ALONE if alone else MAX_POLLS):
            raise PtxError(step.line, f"deadlock: {step.name} waits for a phase that nobody completes")


@dataclass
class MbarrierState:
    """The fields of an mbarrier object."""

    pending: int
    count: int
    bytes: int
    parity: int

    @staticmethod
    def of(word: int) -> MbarrierState:
        """Unpack the 64 bits."""
        tx = word >> 40 & ((1 << TX_BITS) - 1)
        return MbarrierState(word & COUNT, word >> 20 & COUNT, tx - (1 << TX_BITS) * (tx >> (TX_BITS - 1)), word >> 63)

    @property
    def word(self) -> int:
        """The fields packed into 64 bits."""
        return self.pending | self.count << 20 | (self.bytes & ((1 << TX_BITS) - 1)) << 40 | self.parity << 63

    def complete(self) -> None:
        """Go to the next phase when no arrival is pending and no byte expected."""
        if self.pending == 0 and self.bytes == 0:
            self.parity ^= 1
            self.pending = self.count


def run_memory_barrier(
    barriers: BlockBarriers, step: DecodedInstruction, action: MemoryBarrier, group: LaneGroup
) -> None:
    """Run an mbarrier instruction, lane after lane."""
    state = barriers.state
    if action.name == "pending_count":
        tokens = group.read(step.sources[0], B64)
        group.write(step.results[0], (tokens & np.uint64(COUNT)).astype(np.uint32))
        return
    addresses = group.addresses(step.sources[0])
    numbers = _number(group, step.sources[1:], action)
    reached = state.memory.reach(action.space, addresses, 8, group.owners, writes=True)
    results = np.zeros(len(addresses), np.uint64)
    for which, buffer, offsets in reached:
        cells = state.memory.elements(buffer, np.dtype(np.uint64))
        for lane, cell in zip(which, offsets // 8, strict=True):
            mbarrier = MbarrierState.of(int(cells[cell]))
            try:
                results[lane] = _advance(mbarrier, action, int(numbers[lane]))
            except ValueError as error:
                raise Fault(int(lane), str(error)) from None
            if action.name not in {"test_wait", "try_wait"}:
                cells[cell] = mbarrier.word
    if action.name in {"test_wait", "try_wait"}:
        group.write(step.results[0], group.scatter(results != 0))
        state.end_wait(group.active_rows, across_blocks=False)
        if not results.any():
            barriers.note_failed_poll(step, group)
    else:
        state.progress += 1
        if step.results:
            group.write(step.results[0], group.scatter(results))


def _number(group: LaneGroup, operands: tuple[PtxOperand, ...], action: MemoryBarrier) -> Codes:
    """The operand after the address: a count, bytes, a state or a parity."""
    if not operands:
        return np.ones(int(group.mask.sum()), np.uint64)
    wide = action.name in {"test_wait", "try_wait"} and not action.parity
    if isinstance(operands[0], Immediate):
        return np.full(int(group.mask.sum()), operands[0].code(B64), np.uint64)
    return group.read(operands[0], B64 if wide else U32)[group.mask].astype(np.uint64)


def _advance(mbarrier: MbarrierState, action: MemoryBarrier, number: int) -> int:
    """Change an mbarrier as an instruction does, and return the state token or the result of its test."""
    before = mbarrier.word
    if action.name == "init":
        if not 1 <= number <= COUNT:
            msg = f"expected 1..{COUNT} arrivals for mbarrier.init, got {number}"
            raise ValueError(msg)
        mbarrier.pending = mbarrier.count = number
        mbarrier.bytes = mbarrier.parity = 0
    elif action.name == "inval":
        mbarrier.pending = mbarrier.count = mbarrier.bytes = mbarrier.parity = 0
    elif action.name in {"test_wait", "try_wait"}:
        return int(mbarrier.parity != (number & 1 if action.parity else number >> 63))
    elif action.name in {"expect_tx", "complete_tx"}:
        mbarrier.bytes += number if action.name == "expect_tx" else -number
        mbarrier.complete()
    elif action.name == "copies":
        if action.counts:  # .noinc: this arrival was counted by init
            mbarrier.pending -= 1
        mbarrier.complete() if action.counts else None
    else:
        if action.transaction:
            mbarrier.bytes += number
            number = 1
        if number > mbarrier.pending:
            msg = f"{number} arrivals at an mbarrier that awaits {mbarrier.pending}"
            raise ValueError(msg)
        mbarrier.pending -= number
        if action.drops:
            mbarrier.count -= number
        mbarrier.complete()
    return before
