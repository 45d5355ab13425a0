"""Waiting: the barriers of a block (bar, barrier) and those in shared memory (mbarrier).

An mbarrier is 64 bits that only its instructions may look at. Here they are, from the low end: arrivals still awaited
in this phase (20 bits), arrivals of every phase (20), bytes still expected (23, signed), and the parity of the phase.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import Fault, PtxError
from warpfrag.ptx.interpreter.lane_group import Group
from warpfrag.ptx.program.actions import MemoryBarrier
from warpfrag.ptx.program.program import Constant
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.warp_state import Warps
    from warpfrag.ptx.program.program import Operand, Step
    from warpfrag.ptx.program.types import Codes

COUNT = (1 << 20) - 1
TX_BITS = 23
MOST_BARRIERS = 16
MOST_POLLS = 20_000  # in vain, with nothing changing in between: nobody will come
MOST_POLLS_ALONE = 2_000  # when nobody else can run
U32, B64, PRED = TYPES["u32"], TYPES["b64"], TYPES["pred"]


@dataclass
class Meeting:
    """One barrier of one block: who waits, and how many arrived without waiting."""

    here: NDArray[np.bool_]  # of the block's warps
    arrived: int = 0
    expected: int = 0
    votes: NDArray[np.bool_] | None = None
    line: int = 0
    waiters: list[tuple[Step, Any]] = field(default_factory=list)


class BlockBarriers:
    """The barriers of all blocks of a wave."""

    def __init__(self, wave: Warps) -> None:
        """Nobody waits."""
        self.wave = wave
        self.per_block = wave.launch.warps
        self.meetings: dict[tuple[int, int], Meeting] = {}
        self.divergent: dict[int, str] = {}  # line -> what was seen
        self.polls = 0
        self.seen = 0

    def arrive(self, step: Step, group: Group) -> None:
        """Some lanes reach a barrier."""
        wave = self.wave
        action: Any = step.action
        operands = list(step.sources)
        vote = operands.pop() if action.reduction else None
        if not operands:
            raise PtxError(step.line, f"expected the number of a barrier, got {step.text}")
        numbers = group.read(operands[0], U32)
        expected = group.read(operands[1], U32) if len(operands) > 1 else None
        votes = group.read(vote, PRED) if vote is not None else None
        rows = group.rows if group.rows is not None else np.arange(wave.warps)
        if action.aligned:
            self._note_divergence(step, group, rows)
        touched = set()
        for index in np.nonzero(group.mask.any(axis=1))[0]:
            warp = int(rows[index])
            block, own = divmod(warp, self.per_block)
            lanes = group.mask[index]
            number = int(numbers[index][lanes][0])
            if number >= MOST_BARRIERS:
                raise PtxError(step.line, f"expected a barrier 0..{MOST_BARRIERS - 1}, got {number}")
            meeting = self.meetings.setdefault(
                (block, number),
                Meeting(np.zeros((self.per_block, 32), np.bool_), votes=np.zeros((self.per_block, 32), np.bool_)),
            )
            meeting.line = step.line
            if expected is not None:
                meeting.expected = int(expected[index][lanes][0])
                if meeting.expected % 32 or not meeting.expected:
                    raise PtxError(step.line, f"expected a multiple of 32 threads, got {meeting.expected}")
            if not action.waits:
                meeting.arrived += 32
            else:
                meeting.here[own] |= lanes
                wave.waiting[warp] |= lanes
                if votes is not None and meeting.votes is not None:
                    meeting.votes[own][lanes] = votes[index][lanes]
                    meeting.waiters.append((step, (warp, lanes)))
            touched.add((block, number))
        for key in touched:
            self.check(*key)

    def _note_divergence(self, step: Step, group: Group, rows: NDArray[Any]) -> None:
        partial = group.mask.any(axis=1) & (group.mask != self.wave.alive[rows]).any(axis=1)
        if partial.any() and step.line not in self.divergent:
            at = int(partial.argmax())
            lane = int((self.wave.alive[rows[at]] & ~group.mask[at]).argmax())
            who = self.wave.thread_name(int(rows[at]), lane)
            self.divergent[step.line] = f"{step.name} is reached by a part of a warp: not by {who}"

    def check(self, block: int, number: int) -> None:
        """Let a barrier's lanes go on when all are there."""
        meeting = self.meetings.get((block, number))
        if meeting is None or not meeting.here.any():
            return
        wave = self.wave
        rows = slice(block * self.per_block, (block + 1) * self.per_block)
        alive = wave.alive[rows]
        if meeting.expected:
            whole = meeting.here.any(axis=1) & ~(alive & ~meeting.here).any(axis=1)
            if int(whole.sum()) * 32 + meeting.arrived < meeting.expected:
                return
        elif (alive & ~meeting.here).any():
            return
        del self.meetings[block, number]
        wave.waiting[rows] &= ~meeting.here
        wave.progress += 1
        if meeting.waiters and meeting.votes is not None:
            self._give_votes(meeting)

    def _give_votes(self, meeting: Meeting) -> None:
        """The result of bar.red for everyone who waited."""
        votes = meeting.votes[meeting.here] if meeting.votes is not None else np.zeros(0, np.bool_)
        for step, (warp, lanes) in meeting.waiters:
            action: Any = step.action
            group = Group(self.wave, np.array([warp]), lanes[None, :])
            if action.reduction == "popc":
                group.write(step.results[0], np.full((1, 32), int(votes.sum()), np.uint32))
            else:
                held = bool(votes.all()) if action.reduction == "and" else bool(votes.any())
                group.write(step.results[0], np.full((1, 32), held, np.bool_))

    def check_all(self) -> None:
        """Look at every barrier again: threads that left are not waited for."""
        for key in list(self.meetings):
            self.check(*key)

    def wake(self) -> bool:
        """Nobody can go on: whether a second look lets somebody."""
        before = int(self.wave.waiting.sum())
        self.check_all()
        self.wave.unpark(slice(None)) if self._parked_can_go() else None
        return int(self.wave.waiting.sum()) < before

    def _parked_can_go(self) -> bool:
        """Lanes that wait for lanes of their warp which have left since."""
        return False

    def deadlock(self) -> tuple[int, str]:
        """Who waits for whom, when nobody can go on."""
        wave = self.wave
        for (block, number), meeting in self.meetings.items():
            if not meeting.here.any():
                continue
            rows = slice(block * self.per_block, (block + 1) * self.per_block)
            missing = wave.alive[rows] & ~meeting.here
            if meeting.expected:
                count = int(meeting.here.any(axis=1).sum()) * 32 + meeting.arrived
                return meeting.line, f"deadlock: barrier {number} waits for {meeting.expected} threads, {count} came"
            warp, lane = (int(v) for v in np.argwhere(missing)[0])
            who = wave.thread_name(block * self.per_block + warp, lane)
            line = wave.program.steps[int(wave.place[block * self.per_block + warp, lane])].line
            return meeting.line, f"deadlock: barrier {number} waits for {who}, which waits at line {line}"
        warp, lane = (int(v) for v in np.argwhere(wave.parked)[0])
        step = wave.program.steps[int(wave.place[warp, lane])]
        return (
            step.line,
            f"deadlock: {step.name} of {wave.thread_name(warp, lane)} waits for lanes of its warp that do not come",
        )

    def polled(self, step: Step, group: Group) -> None:
        """A wait in vain; after many of them with no change in between, nobody will come."""
        if self.seen != self.wave.progress:
            self.seen, self.polls = self.wave.progress, 0
        self.polls += 1
        alone = int((self.wave.alive & ~self.wave.waiting).sum()) == int(group.mask.sum())
        if self.polls > (MOST_POLLS_ALONE if alone else MOST_POLLS):
            raise PtxError(step.line, f"deadlock: {step.name} waits for a phase that nobody completes")


@dataclass
class Phase:
    """An mbarrier, taken apart."""

    pending: int
    count: int
    bytes: int
    parity: int

    @staticmethod
    def of(word: int) -> Phase:
        """Read the 64 bits."""
        tx = word >> 40 & ((1 << TX_BITS) - 1)
        return Phase(word & COUNT, word >> 20 & COUNT, tx - (1 << TX_BITS) * (tx >> (TX_BITS - 1)), word >> 63)

    @property
    def word(self) -> int:
        """The 64 bits."""
        return self.pending | self.count << 20 | (self.bytes & ((1 << TX_BITS) - 1)) << 40 | self.parity << 63

    def complete(self) -> None:
        """Go to the next phase when nothing is awaited any more."""
        if self.pending == 0 and self.bytes == 0:
            self.parity ^= 1
            self.pending = self.count


def run_memory_barrier(barriers: BlockBarriers, step: Step, group: Group) -> None:
    """One mbarrier instruction, lane after lane."""
    wave = barriers.wave
    action = step.action
    if not isinstance(action, MemoryBarrier):
        return
    if action.name == "pending_count":
        state = group.read(step.sources[0], B64)
        group.write(step.results[0], (state & np.uint64(COUNT)).astype(np.uint32))
        return
    addresses = group.addresses(step.sources[0])
    numbers = _number(group, step.sources[1:], action)
    reached = wave.memory.reach(action.space, addresses, 8, group.owners, writes=True)
    results = np.zeros(len(addresses), np.uint64)
    for which, buffer, offsets in reached:
        cells = wave.memory.elements(buffer, np.dtype(np.uint64))
        for lane, cell in zip(which, offsets // 8, strict=True):
            phase = Phase.of(int(cells[cell]))
            try:
                results[lane] = _advance(phase, action, int(numbers[lane]))
            except ValueError as error:
                raise Fault(int(lane), str(error)) from None
            if action.name not in {"test_wait", "try_wait"}:
                cells[cell] = phase.word
    if action.name in {"test_wait", "try_wait"}:
        group.write(step.results[0], group.scatter(results != 0))
        if not results.any():
            barriers.polled(step, group)
    else:
        wave.progress += 1
        if step.results:
            group.write(step.results[0], group.scatter(results))


def _number(group: Group, operands: tuple[Operand, ...], action: MemoryBarrier) -> Codes:
    """The operand after the address: a count, bytes, a state or a parity."""
    if not operands:
        return np.ones(int(group.mask.sum()), np.uint64)
    wide = action.name in {"test_wait", "try_wait"} and not action.parity
    if isinstance(operands[0], Constant):
        return np.full(int(group.mask.sum()), operands[0].code(B64), np.uint64)
    return group.read(operands[0], B64 if wide else U32)[group.mask].astype(np.uint64)


def _advance(phase: Phase, action: MemoryBarrier, number: int) -> int:
    """Change a phase, and give what the instruction returns."""
    before = phase.word
    if action.name == "init":
        if not 1 <= number <= COUNT:
            msg = f"expected 1..{COUNT} arrivals for mbarrier.init, got {number}"
            raise ValueError(msg)
        phase.pending = phase.count = number
        phase.bytes = phase.parity = 0
    elif action.name == "inval":
        phase.pending = phase.count = phase.bytes = phase.parity = 0
    elif action.name in {"test_wait", "try_wait"}:
        return int(phase.parity != (number & 1 if action.parity else number >> 63))
    elif action.name in {"expect_tx", "complete_tx"}:
        phase.bytes += number if action.name == "expect_tx" else -number
        phase.complete()
    elif action.name == "copies":
        if action.counts:  # .noinc: this arrival was counted by init
            phase.pending -= 1
        phase.complete() if action.counts else None
    else:
        if action.transaction:
            phase.bytes += number
            number = 1
        if number > phase.pending:
            msg = f"{number} arrivals at an mbarrier that awaits {phase.pending}"
            raise ValueError(msg)
        phase.pending -= number
        if action.drops:
            phase.count -= number
        phase.complete()
    return before
