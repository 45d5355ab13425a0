"""Barriers in shared memory (mbarrier): arrivals, pending bytes, and lanes that sleep until a phase ends.

An mbarrier is an opaque 64-bit object. This implementation stores, from the lowest bit: pending arrivals of this phase
(20 bits), expected arrivals per phase (20), the transaction count in bytes (23, signed), and the parity of the phase. A
phase ends when no arrivals and no bytes are pending; the next phase starts at once. `try_wait` may suspend a thread:
here it sleeps until the phase ends. The first `test_wait` fails at once; a lane that tests again with no store in
between is polling, and sleeps too. Lanes therefore never busy-wait.

When no lane can run, every wait times out, as it may on a GPU, and lanes continue as after a failed wait. The launch is
deadlocked if the machine then returns to an earlier state (program counters, registers and local memory) and no other
memory has changed, because it can only repeat itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault
from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import MemoryBarrier
from warpfrag.machine.ir.program import DecodedInstruction, Discard, Immediate, PtxOperand
from warpfrag.machine.ir.scalar_types import B64, U32, Codes

COUNT = (1 << 20) - 1
TX_BITS, TX_SHIFT = 23, 40
MAX_TX = (1 << 20) - 1  # maximum pending bytes (PTX ISA, "Tracking asynchronous operations")
COUNT_SHIFT, PARITY_SHIFT = np.uint64(20), np.uint64(63)
# maximum number of timeouts without a change of memory; lanes may count their waits, so their state need not repeat
MAX_EXPIRIES = 1_000
NOT_ASLEEP = -1


@dataclass
class MbarrierState:
    """The fields of an mbarrier object."""

    pending: int
    count: int
    bytes: int
    parity: int

    @staticmethod
    def of(word: int) -> MbarrierState:
        """Unpack a 64-bit mbarrier object."""
        tx = word >> 40 & ((1 << TX_BITS) - 1)
        return MbarrierState(word & COUNT, word >> 20 & COUNT, tx - (1 << TX_BITS) * (tx >> (TX_BITS - 1)), word >> 63)

    @property
    def word(self) -> int:
        """The fields packed into 64 bits."""
        return self.pending | self.count << 20 | (self.bytes & ((1 << TX_BITS) - 1)) << 40 | self.parity << 63

    def complete(self) -> None:
        """Start the next phase if no arrivals and no bytes are pending."""
        if self.pending == 0 and self.bytes == 0:
            self.parity ^= 1
            self.pending = self.count

    def owe(self, count: int) -> None:
        """Add `count` pending bytes; a negative count subtracts."""
        self.bytes += count
        if abs(self.bytes) > MAX_TX:
            raise ValueError(f"expected -{MAX_TX} to {MAX_TX} pending bytes, got {self.bytes}")

    @property
    def description(self) -> str:
        """A description of the phase and its pending arrivals and bytes."""
        return f"phase of parity {self.parity} awaits {self.pending} of {self.count} arrivals and {self.bytes} bytes"


class Mbarriers:
    """The mbarriers of a batch, keyed by 64-bit word index in shared memory, and the lanes that wait for them."""

    def __init__(self, state: WarpState) -> None:
        """Create the state for a batch that has no mbarriers yet."""
        self.state = state
        self.live: dict[int, int] = {}  # the line that initialised each mbarrier
        # the word that an instruction last wrote to each mbarrier
        self.written = np.zeros(len(state.memory.shared) // 8, np.uint64)
        # scratch marks of the compiled engine: mbarriers whose phases have just ended; the entry NOT_ASLEEP stays False
        self.ended = np.zeros(len(self.written) + 1, np.bool_)
        self.awaited = np.full(state.waiting.shape, NOT_ASLEEP, np.int64)  # the mbarrier that wakes each sleeping lane
        self.expired = np.zeros_like(state.waiting)
        self.polled = np.full(state.waiting.shape, -1, np.int64)  # `state.progress` at each lane's last failed test
        self.polled_at = np.full(state.waiting.shape, -1, np.int64)  # the instruction of that test
        self.expiries = 0  # timeouts since the last progress
        self.last_progress = 0
        self.seen = b""  # the state at the last timeout whose number was a power of two

    def run(self, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup) -> None:
        """Run an mbarrier instruction other than a wait, lane by lane."""
        state = self.state
        if action.name == "pending_count":
            tokens = group.read(inst.sources[0], B64)
            group.write(inst.results[0], (tokens & np.uint64(COUNT)).astype(np.uint32))
            return
        cells = self.reach(inst, action, group)
        numbers = number_of(group, inst.sources[1:], action)
        observer = state.memory.observer
        if observer is not None:
            by_name = {"init": observer.mbarrier_initialised, "inval": observer.mbarrier_invalidated}
            tell = by_name.get(action.name, observer.mbarrier_arrived)
            for cell, thread in zip(cells.tolist(), group.owners.threads.tolist(), strict=True):
                tell(cell, thread)
        is_wanted = bool(inst.results) and not isinstance(inst.results[0], Discard)
        results = self.change_all(cells, action, numbers, inst.line)
        state.progress += 1
        if is_wanted:
            group.write(inst.results[0], group.scatter(results))

    def change_all(self, cells: Numbers, action: MemoryBarrier, numbers: Codes, line: int) -> NDArray[np.uint64]:
        """Apply an instruction to the mbarriers lane by lane; return the state that each lane found."""
        pairs = enumerate(zip(cells.tolist(), numbers.tolist(), strict=True))
        return np.array([self.change(cell, action, number, lane, line) for lane, (cell, number) in pairs], np.uint64)

    def reach(self, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup) -> Numbers:
        """Return the word indices of the lanes' mbarriers; raise MemoryFault if one is not initialised."""
        addresses = group.addresses(inst.sources[0])
        cells = self.cells_at(action.space, addresses, group.owners)
        if action.name not in {"init", "inval"} and not self.live.keys() >= set(cells.tolist()):
            for lane, cell in enumerate(cells.tolist()):
                self.check_live(cell, int(addresses[lane]), lane)
        return cells

    def cells_at(self, space: str, addresses: Codes, owners: Owners) -> Numbers:
        """Return the word indices of mbarriers in shared memory."""
        cells = np.zeros(len(addresses), np.int64)
        for which, buffer, offsets in self.state.memory.reach(space, addresses, 8, owners, writes=True):
            if buffer is not self.state.memory.shared:
                raise MemoryFault(
                    int(which[0]), f"expected an mbarrier in shared memory, got address {int(addresses[which[0]]):#x}"
                )
            cells[which] = offsets // 8
        return cells

    def check_live(self, cell: int, address: int, lane: int) -> None:
        """Raise MemoryFault if there is no initialised mbarrier at word index `cell`."""
        if cell not in self.live:
            raise MemoryFault(lane, f"no mbarrier is initialised at {address:#x}", kind="barrier")

    @property
    def words(self) -> NDArray[np.uint64]:
        """Shared memory as 64-bit words."""
        return self.state.memory.shared.view(np.uint64)

    def is_over(self, cells: Numbers, action: MemoryBarrier, numbers: Codes) -> Mask:
        """Return a mask of the lanes whose awaited phase has ended: their mbarrier now has the other parity."""
        waited = numbers & np.uint64(1) if action.parity else numbers >> PARITY_SHIFT
        return (self.words[cells] >> PARITY_SHIFT) != waited

    def change(self, cell: int, action: MemoryBarrier, number: int, lane: int, line: int) -> int:
        """Apply an instruction to one mbarrier; return its previous state."""
        barrier = MbarrierState.of(int(self.words[cell]))
        use = self.use_of(cell) if action.name == "init" else ""
        if use:
            raise MemoryFault(lane, use, kind="barrier")
        try:
            before = _advance(barrier, action, number)
        except ValueError as error:
            where = f", initialised at line {self.live[cell]}" if cell in self.live else ""
            raise MemoryFault(lane, f"{error} (mbarrier at {self.place_name(cell)}{where})", kind="barrier") from None
        if action.name == "init":
            self.add(cell, line)
        elif action.name == "inval":
            self.remove(cell)
        self._put(cell, barrier)
        return before

    def add(self, cell: int, line: int) -> None:
        """Register an mbarrier that has been initialised at a line."""
        self.live[cell] = line

    def remove(self, cell: int) -> None:
        """Stop tracking an mbarrier."""
        self.live.pop(cell, None)

    def use_of(self, cell: int) -> str:
        """Describe the use of an mbarrier, or return "" if it can be initialised."""
        word = int(self.words[cell])
        if cell not in self.live or self.written[cell] != word:
            return ""  # not an mbarrier, or its memory has been reused
        barrier = MbarrierState.of(word)
        waiters = int((self.awaited == cell).sum())
        if not waiters and barrier.pending == barrier.count and not barrier.bytes:
            return ""
        text = f"the mbarrier at {self.place_name(cell)}, initialised at line {self.live[cell]}, is in use"
        return f"{text}: its {barrier.description}, and {waiters} threads wait for it"

    def _put(self, cell: int, barrier: MbarrierState) -> None:
        """Write an mbarrier back; if its phase ended, wake the lanes that wait for it."""
        words = self.words
        ended = barrier.parity != int(words[cell]) >> 63
        words[cell] = self.written[cell] = barrier.word
        if ended and self.state.memory.observer is not None:
            self.state.memory.observer.mbarrier_completed(cell)
        if ended:
            self._wake(self.awaited == cell)

    def complete_bytes(self, cell: int, count: int, lane: int) -> None:
        """Subtract the `count` bytes of a finished copy from an mbarrier's pending bytes."""
        barrier = MbarrierState.of(int(self.words[cell]))
        try:
            barrier.owe(-count)
        except ValueError as error:
            raise MemoryFault(lane, f"{error} (mbarrier at {self.place_name(cell)})", kind="barrier") from None
        barrier.complete()
        self._put(cell, barrier)
        self.state.progress += 1

    # --- waiting

    def wait(self, at: int, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup) -> bool:
        """Wait for phases to end; return False if some lanes now sleep and the others have moved on."""
        state = self.state
        cells, done = self.ended_phases(inst, action, group)
        answered = done | group.pick(self.expired)
        if action.name == "test_wait":
            answered |= ~self._polls(at, group)
        if state.memory.observer is not None and answered.any():
            state.memory.observer.mbarrier_tested(cells[answered], group.owners.threads[answered])
        self._tell_waited(cells, done, group)
        ready = group if answered.all() else group.part(group.scatter(answered))
        if ready.mask.any():
            ready.write(inst.results[0], group.scatter(done))
            ready.put(self.expired, values=False)
            state.end_wait(ready.active_rows, across_blocks=False)
        if ready is group:
            return True
        ready.put(state.pc, at + 1)
        asleep = group.part(group.mask & ~ready.mask)
        asleep.put(state.pc, at)
        asleep.put(state.waiting, values=True)
        asleep.put(self.awaited, group.scatter(cells))
        return False

    def ended_phases(self, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup) -> tuple[Numbers, Mask]:
        """Return the mbarriers that the lanes wait for, and a mask of those whose phase has ended."""
        cells = self.reach(inst, action, group)
        return cells, self.is_over(cells, action, number_of(group, inst.sources[1:], action))

    def _polls(self, at: int, group: LaneGroup) -> Mask:
        """Record tests; return a mask of the lanes that poll: they last tested here, and nothing was stored since."""
        polls = (group.of(self.polled) == self.state.progress) & (group.of(self.polled_at) == at)
        group.put(self.polled, self.state.progress)
        group.put(self.polled_at, at)
        return polls[group.mask]

    def _tell_waited(self, cells: Numbers, done: Mask, group: LaneGroup) -> None:
        """Tell the checks which lanes have seen the end of a phase."""
        if self.state.memory.observer is not None and done.any():
            self.state.memory.observer.mbarrier_waited(cells[done], group.owners.threads[done])

    def _wake(self, lanes: Mask) -> None:
        """Wake lanes so that they test their mbarriers again."""
        rows = np.nonzero(lanes.any(axis=1))[0]
        if len(rows):
            self.awaited[lanes] = NOT_ASLEEP
            self.state.waiting[lanes] = False
            self.state.wake(rows)

    @property
    def has_sleepers(self) -> bool:
        """True if lanes sleep until a phase ends."""
        return bool((self.awaited != NOT_ASLEEP).any())

    def expire(self) -> bool:
        """Let all waits time out when no lane can run; return False if that cannot lead to progress."""
        state = self.state
        if self.last_progress != state.progress:
            self.last_progress, self.expiries, self.seen = state.progress, 0, b""
        asleep = self.awaited != NOT_ASLEEP
        now = state.digest() if asleep.any() else b""
        self.expiries += 1
        if not now or now == self.seen or self.expiries > MAX_EXPIRIES:
            return False
        if self.expiries & (self.expiries - 1) == 0:  # comparing at powers of two finds cycles of any length
            self.seen = now
        self.expired |= asleep
        self._wake(asleep)
        return True

    def place_name(self, cell: int) -> str:
        """Return an mbarrier's address and block, as text for messages."""
        block, offset = divmod(8 * cell, self.state.memory.shared_stride)
        name = ", ".join(map(str, self.state.blocks[block]))
        return f"{offset:#x} of block ({name})"

    def deadlock(self) -> tuple[int, str] | None:
        """Return the line and message of a deadlock at mbarriers, with the waiting lanes, or None."""
        texts, lines = [], []
        for cell in np.unique(self.awaited[self.awaited != NOT_ASLEEP]).tolist():
            lanes = self.awaited == cell
            warp, lane = (int(index) for index in np.argwhere(lanes)[0])
            inst = self.state.program.instructions[int(self.state.pc[warp, lane])]
            count = int(lanes.sum())
            others = f" and {count - 1} more" if count > 1 else ""
            born = f", initialised at line {self.live[cell]}" if cell in self.live else ""
            state = MbarrierState.of(int(self.words[cell])).description
            texts.append(
                f"{inst.name} at line {inst.line} of {self.state.thread_name(warp, lane)}{others} waits for the "
                f"mbarrier at {self.place_name(cell)}{born}: its {state}"
            )
            lines.append(inst.line)
        return (lines[0], "; ".join(texts)) if texts else None


def number_of(group: LaneGroup, operands: tuple[PtxOperand, ...], action: MemoryBarrier) -> Codes:
    """Return the operand after the address, which is an arrival count, a byte count, a state or a parity."""
    if not operands:
        return np.ones(int(group.mask.sum()), np.uint64)
    wide = action.name in {"test_wait", "try_wait"} and not action.parity
    if isinstance(operands[0], Immediate):
        return np.full(int(group.mask.sum()), operands[0].code(B64), np.uint64)
    return group.values(operands[0], B64 if wide else U32).astype(np.uint64)


def _advance(barrier: MbarrierState, action: MemoryBarrier, number: int) -> int:
    """Apply an instruction to an unpacked mbarrier; return its previous state."""
    before = barrier.word
    if action.name == "init":
        if not 1 <= number <= COUNT:
            raise ValueError(f"expected 1..{COUNT} arrivals for mbarrier.init, got {number}")
        barrier.pending = barrier.count = number
        barrier.bytes = barrier.parity = 0
    elif action.name == "inval":
        barrier.pending = barrier.count = barrier.bytes = barrier.parity = 0
    elif action.name in {"expect_tx", "complete_tx"}:
        barrier.owe(number if action.name == "expect_tx" else -number)
        barrier.complete()
    elif action.name != "copies" or action.counts:  # with .noinc, the initial count already includes the arrival
        if action.transaction:
            barrier.owe(number)
            number = 1
        if number > barrier.pending:
            raise ValueError(f"expected at most {barrier.pending} more arrivals at the mbarrier, got {number}")
        barrier.pending -= number
        if action.drops:
            barrier.count -= number
        barrier.complete()
    return before
