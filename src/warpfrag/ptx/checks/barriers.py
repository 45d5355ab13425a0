"""Barriers that go wrong: reached by a part of a warp, left by threads that exited, with counts that do not match.

A barrier that is reached by a part of a warp is noted by the interpreter itself (`interpreter.barriers`), in both
engines. Here are the others: a barrier of the whole block that completes although threads have exited without it,
arrivals at one barrier with different counts, and more arrivals than its count. A deadlock ends the launch; the launch
makes a finding of its message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.ptx.checks.findings import KernelFinding
from warpfrag.ptx.checks.observers import StepObserver

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.checks.findings import FindingCollector
    from warpfrag.ptx.interpreter.warp_batch import WarpBatch


class BarrierCheck(StepObserver):
    """Follows the barriers of blocks."""

    def __init__(self, state: WarpBatch, collector: FindingCollector) -> None:
        """Remember which lanes are threads: a block's last warp may have fewer."""
        self.state, self.collector = state, collector
        self.threads = state.alive.copy()
        self.counts: dict[tuple[int, int], tuple[int, int]] = {}  # expected threads and line, by block and number

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """Compare the count of an arrival with that of the first one of its phase."""
        barrier = self.state.barriers.states[block, number]
        expected, line = self.counts.setdefault((block, number), (barrier.expected, self.state.line))
        if expected != barrier.expected:
            text = f"barrier {number} is reached with a count of {barrier.expected or 'all'} threads"
            text += f", and with {expected or 'all'} at line {line}"
            self.report(text, warp, int(lanes.argmax()))

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """Find threads that exited without the barrier, and those that arrived beyond its count."""
        expected, _ = self.counts.pop((block, number), (0, 0))
        rows = slice(block * self.state.launch.warps, (block + 1) * self.state.launch.warps)
        barrier = self.state.barriers.states[block, number]
        count = int(here.any(axis=1).sum()) * LANES + barrier.arrived
        if expected and count % expected:
            self.state.line = barrier.line
            warp, lane = (int(v) for v in np.argwhere(here)[-1])
            text = (
                f"barrier {number} waits for {expected} threads, and {count} arrive: {count % expected} are left over"
            )
            self.report(text, rows.start + warp, lane)
        left = self.threads[rows] & ~self.state.alive[rows] & ~here
        if expected or not left.any():
            return
        warp, lane = (int(v) for v in np.argwhere(left)[0])
        self.state.line = barrier.line
        self.report(
            f"barrier {number} completes without {int(left.sum())} threads of the block, which have exited",
            rows.start + warp, lane,
        )  # fmt: skip

    def report(self, text: str, warp: int, lane: int) -> None:
        """Report a barrier at the line that runs, with a thread."""
        axes = [[int(axis[warp]) for axis in self.state.block_index]]
        axes.append([int(axis[warp, lane]) for axis in self.state.thread_index])
        (x, y, z), (i, j, k) = axes
        self.collector.add(KernelFinding("barrier", self.state.line, text, block=(x, y, z), thread=(i, j, k)))
