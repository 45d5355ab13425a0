"""Find barrier misuse: threads that exit without arriving, mismatched counts, overwritten mbarriers.

`interpreter.block_barriers` records barriers that only part of a warp reaches, in both engines. This module checks the
rest: a block-wide barrier that completes although threads have exited without arriving, arrivals at one barrier with
different counts, and more arrivals than the count. A deadlock ends the launch, and its message becomes a finding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver


class BarrierCheck(InstructionObserver):
    """Checks the barriers of the blocks in a batch."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Create the check; it records which lanes are threads, because a block's last warp may be partial."""
        super().__init__(state, collector)
        self.threads = state.alive.copy()
        # the expected thread count and its line, by block and barrier number
        self.counts: dict[tuple[int, int], tuple[int, int]] = {}

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: Mask) -> None:
        """Compare the thread count of an arrival with that of the first arrival in the same phase."""
        barrier = self.state.barriers.states[block, number]
        expected, line = self.counts.setdefault((block, number), (barrier.expected, self.state.line))
        if expected != barrier.expected:
            text = f"barrier {number} is reached with a count of {barrier.expected or 'all'} threads"
            text += f", and with {expected or 'all'} at line {line}"
            self.report("barrier", warp * LANES + int(lanes.argmax()), text, line=self.state.line)

    def barrier_released(self, block: int, number: int, here: Mask) -> None:
        """Report threads that exited without arriving at the barrier, and threads that arrived beyond its count."""
        expected, _ = self.counts.pop((block, number), (0, 0))
        rows = slice(block * self.state.launch.warps, (block + 1) * self.state.launch.warps)
        barrier = self.state.barriers.states[block, number]
        count = int(here.any(axis=1).sum()) * LANES + barrier.arrived
        if expected and (rest := count % expected):
            warp, lane = (int(v) for v in np.argwhere(here)[-1])
            text = f"barrier {number} waits for {expected} threads, but {count} arrive: {rest} are left over"
            self.report("barrier", (rows.start + warp) * LANES + lane, text, line=barrier.line)
        left = self.threads[rows] & ~self.state.alive[rows] & ~here
        if expected or not left.any():
            return
        warp, lane = (int(v) for v in np.argwhere(left)[0])
        text = f"barrier {number} completes without {int(left.sum())} threads of the block, which have exited"
        self.report("barrier", (rows.start + warp) * LANES + lane, text, line=barrier.line)


OBJECT_BYTES = 8
EXPECTED = "expected mbarrier.inval first"


class MbarrierLifetimes(InstructionObserver):
    """Tracks which mbarriers of a batch are valid."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Create the tracker for a batch."""
        super().__init__(state, collector)
        self.valid: dict[int, KernelAccess] = {}  # the access that initialised each mbarrier
        # the number of valid mbarriers before each 8-byte object
        self.preceding = np.zeros(len(state.memory.shared) // OBJECT_BYTES + 1, np.int64)

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Report mbarrier.init on a valid mbarrier that is not in use.

        If it is in use, the launch ends with an error.
        """
        if cell in self.valid and not self.state.mbarriers.use_of(cell):
            self.report_object(cell, thread, f", is initialised again: {EXPECTED}")
        self.keep(cell, self.access_by(thread))

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """Report mbarrier.inval on an mbarrier that is not valid."""
        if cell not in self.valid:
            self.report_object(cell, thread, ": expected an initialised mbarrier")
        self.keep(cell, None)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Report valid mbarriers whose bytes a store overwrites."""
        self.overwrite(buffer, offsets, codes.dtype.itemsize * codes.shape[1], threads)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Report valid mbarriers whose bytes an atomic changes."""
        self.overwrite(buffer, offsets, size, threads)

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Check the bytes that a copy writes."""
        del cell, reduction  # other checks use them
        self.overwrite(buffer, offsets, size, np.full(len(offsets), thread))

    def overwrite(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Report valid mbarriers whose bytes are overwritten, and mark them as invalid."""
        if not self.valid or buffer is not self.state.memory.shared:
            return
        first, end = offsets // OBJECT_BYTES, (offsets + size - 1) // OBJECT_BYTES + 1
        for at in np.nonzero(self.preceding[end] > self.preceding[first])[0].tolist():
            for cell in [cell for cell in range(int(first[at]), int(end[at])) if cell in self.valid]:
                self.report_object(cell, int(threads[at]), f", is overwritten: {EXPECTED}")
                self.keep(cell, None)

    def keep(self, cell: int, access: KernelAccess | None) -> None:
        """Record the access that initialised an mbarrier; with None, remove the mbarrier."""
        self.preceding[cell + 1 :] += (access is not None) - (cell in self.valid)
        self.valid.pop(cell, None)
        if access is not None:
            self.valid[cell] = access

    def report_object(self, cell: int, thread: int, text: str) -> None:
        """Report a thread's access to the memory of an mbarrier."""
        made = self.valid.get(cell)
        place = f"at {self.state.mbarriers.place_name(cell)}"
        state = f"the mbarrier {place}, initialised at line {made.line}" if made else f"no mbarrier is valid {place}"
        name = self.state.thread_name(*divmod(thread, LANES))
        address = OBJECT_BYTES * cell % self.state.memory.shared_stride
        words = f"{self.inst.name} by {name}: {state}{text}"
        self.report("barrier", thread, words, other=made, space="shared", address=address)
