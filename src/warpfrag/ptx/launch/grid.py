"""The blocks of a launch at work: wave after wave, on one core or on many, until all are done or stopped."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpfrag.arithmetic.schedule import SMALL, count_threads
from warpfrag.errors import WarpfragError
from warpfrag.numerics.float_environment import exact_floats
from warpfrag.ptx.compiler.engine import CompiledProgram, CompiledWarpBatch
from warpfrag.ptx.interpreter.warp_batch import WarpBatch
from warpfrag.ptx.interpreter.warp_state import LaunchConfig, LaunchTally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warpfrag.ptx.interpreter.memory import DeviceMemory
    from warpfrag.ptx.program.program import Program

Blocks: TypeAlias = list[tuple[int, int, int]]
Progress: TypeAlias = "Callable[[int, int], object]"
"""Called with the blocks that are done, and all."""
GLANCE = 0.1  # seconds between two looks at other threads


class Work:
    """Waves of blocks, and what they did."""

    def __init__(
        self, program: Program, config: LaunchConfig, memory: DeviceMemory, compiled: CompiledProgram | None
    ) -> None:
        """Nothing is done yet."""
        self.program, self.config, self.memory, self.compiled = program, config, memory, compiled
        self.tally = LaunchTally(np.zeros(len(program.steps), np.int64), np.zeros(len(program.steps), np.uint8))
        self.divergent: dict[int, str] = {}  # what the barriers saw, by line
        self.done = 0  # blocks
        self.failure: tuple[int, WarpfragError] | None = None  # and the number of its wave

    @exact_floats
    def run(self, waves: deque[tuple[int, Blocks]], progress: Progress | None = None, total: int = 0) -> Work:
        """Run the next wave, as long as there is one."""
        while waves and self.failure is None:
            try:
                number, blocks = waves.popleft()
            except IndexError:  # another thread was quicker
                break
            batch: WarpBatch
            if self.compiled is None:
                batch = WarpBatch(self.program, self.config, self.memory, blocks, self.tally)
            else:
                batch = CompiledWarpBatch(self.program, self.config, self.memory, blocks, self.tally, self.compiled)
            try:
                with np.errstate(all="ignore"):
                    batch.run()
            except WarpfragError as error:
                self.failure = number, error
                waves.clear()
            else:
                self.divergent = batch.barriers.divergent | self.divergent
                self.done += len(blocks)
                if progress is not None:
                    progress(self.done, total)
        return self

    def run_all(self, waves: Sequence[Blocks], threads: int | None, progress: Progress | None) -> None:
        """Run all waves, in order until there is compiled code, then on so many threads, None for a thread per core.

        Of several that fail the first one's error is kept.
        """
        total = sum(len(blocks) for blocks in waves)
        left = deque(enumerate(waves))
        while left and self.failure is None and (threads == 1 or self.compiled is None or not self.compiled.segments):
            self.run(deque([left.popleft()]), progress, total)
        threads = min(len(left), count_threads(threads, SMALL))
        if threads <= 1 or self.failure is not None:
            if self.failure is None:
                self.run(left, progress, total)
            return
        parts = [Work(self.program, self.config, self.memory.fork(), self.compiled) for _ in range(threads)]
        before = self.done
        try:
            with ThreadPoolExecutor(threads) as pool:
                started = {pool.submit(part.run, left) for part in parts}
                try:
                    while started:
                        ended, started = wait(started, GLANCE)
                        for future in ended:
                            future.result()
                        if progress is not None:
                            progress(before + sum(part.done for part in parts), total)
                except BaseException:
                    left.clear()
                    for part in parts:  # an interrupt ends the work of the others too, at their next pause
                        part.tally.is_stopped = True
                    raise
        finally:
            for part in parts:
                self.tally.join(part.tally)
                self.memory.join(part.memory)
                self.divergent = part.divergent | self.divergent
                self.done += part.done
        failed = [part.failure for part in parts if part.failure is not None]
        self.failure = min(failed, key=itemgetter(0), default=None)
