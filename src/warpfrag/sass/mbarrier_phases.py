"""Find mbarriers whose phases depend on the order of threads.

An arrival, an expect_tx or a copy counts for the phase in which it happens. A phase therefore always consists of the
same operations only if each of them is ordered after the end of the previous phase, and each expect_tx before one of
the phase's arrivals. A wait names only the parity of a phase: it must be ordered after the end of the phase before, or
it could succeed too early, and before the end of the next phase, or it could miss its own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.machine.interpreter.mbarriers import MbarrierState
from warpfrag.machine.sanitizer.ordering import Ordering, Snapshot

EARLY = "nothing orders it after the last phase of this mbarrier, so it may count for that phase"
SIMULTANEOUS = "one instruction ends a phase of an mbarrier and continues, and any of its lanes may be in either phase"
LATE = "nothing orders an earlier expect_tx before the end of the phase, so it may count for the next phase"
TOO_EARLY = "it may succeed two phases earlier, because nothing orders it after the end of the phase before"
MISSED = "a thread waits for the last phase of this mbarrier, and this phase may end before its test"


class MbarrierAnswer(NamedTuple):
    """The result of an mbarrier instruction, with the instruction, the thread and the time."""

    inst: int
    entity: int
    time: int


class MbarrierPhases:
    """The ends of the phases of a batch's mbarriers, and the waits for them; the keys are mbarriers."""

    def __init__(self, ordering: Ordering) -> None:
        """Create an empty record."""
        self.ordering = ordering
        self.ends: defaultdict[int, list[int]] = defaultdict(list)  # times
        self.passed: defaultdict[int, dict[int, int]] = defaultdict(dict)  # the last wait of each thread in this phase
        self.thread = 0  # the last one that counted for a phase or waited
        self.expected: defaultdict[int, dict[int, int]] = defaultdict(dict)  # the last expect_tx of each thread

    def start(self, cell: int) -> None:
        """Forget the phases of an mbarrier that is initialised."""
        for record in (self.ends, self.passed, self.expected):
            record.pop(cell, None)

    def is_after(self, cell: int, thread: int, left: int = 0) -> bool:
        """Return True if a thread is ordered after the end of all phases but the last `left`."""
        ends = self.ends.get(cell, [])
        if len(ends) <= left:
            return True
        return bool(self.ordering.known[thread, self.ordering.agent(("phase", cell))] >= ends[-1 - left])

    def expect(self, cell: int, thread: int) -> None:
        """Record an expect_tx that does not arrive."""
        self.expected[cell][thread] = self.ordering.now

    def wait(self, cell: int, thread: int) -> bool:
        """Record a successful wait; return False if it may have succeeded two phases earlier."""
        self.passed[cell][thread], self.thread = self.ordering.now, thread
        return self.is_after(cell, thread, 1)

    def end(self, cell: int, arrived: Snapshot | None) -> str:
        """Record the end of a phase, given what its arrivals release; return a reason why another order may differ."""
        ends = self.ends[cell]
        is_repeated = bool(ends) and ends[-1] == self.ordering.now
        ends.append(self.ordering.now)
        is_late = not self.knows_all(self.expected.pop(cell, {}), arrived)
        is_missed = not self.knows_all(self.passed.pop(cell, {}), arrived)
        return SIMULTANEOUS if is_repeated else LATE if is_late else MISSED if is_missed else ""

    def open_cells(self, words: NDArray[np.uint64]) -> list[int]:
        """Return the mbarriers for which this instruction has ended a phase and has also counted for the next one."""
        ended = [cell for cell, ends in self.ends.items() if ends[-1] == self.ordering.now]
        states = {cell: MbarrierState.of(int(words[cell])) for cell in ended}
        return [cell for cell, found in states.items() if found.bytes or found.pending != found.count]

    def knows_all(self, times: dict[int, int], arrived: Snapshot | None) -> bool:
        """Return True if the arrivals of a phase are ordered after what each thread did."""
        if not times or arrived is None:
            return not times
        columns = np.array(list(times), np.int64) // self.ordering.share
        return bool((arrived.row[columns] >= np.array(list(times.values()))).all())
