"""Run the blocks of a launch: wave after wave, on one core or several, until all are done or stopped.

A grid may have more blocks than memory has bytes. The blocks of a wave are therefore listed only when the wave starts,
and a seed permutes cluster numbers with the function (factor * number + shift) % count, not with a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from operator import itemgetter
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np

from warpfrag.errors import WarpfragError
from warpfrag.formats.float_environment import exact_floats
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.warp_state import LaunchConfig, LaunchPart, LaunchTally
from warpfrag.machine.ir.actions import Atomic, BulkCopy, MemoryLoad, SystemCall, TensorCopy
from warpfrag.machine.ir.program import DecodedInstruction, Discard, Program, SourceLine
from warpfrag.machine.jit.engine import CompiledProgram, CompiledWarpBatch
from warpfrag.machine.jit.screening import LaunchScreen, ProgramScreen
from warpfrag.machine.sanitizer.checked_batch import LaunchChecks
from warpfrag.tensorcore.thread_split import SMALL, count_threads

Blocks: TypeAlias = list[tuple[int, int, int]]
Progress: TypeAlias = "Callable[[int, int], object]"
"""Called with the number of finished blocks and the total number of blocks."""
MAX_WARPS = 128  # the number of warps that run together in kernels without wgmma
# the minimum and maximum for kernels with wgmma, in which more warps share the cost of an instruction
WARPS_OF_WGMMA = 512, 1024
MAX_REGISTER_BYTES = 1 << 26  # above this number of register bytes, only the minimum number of warps runs
GLANCE = 0.1  # seconds between checks of the other threads


def permutation(count: int, seed: int) -> tuple[int, int]:
    """Return a factor coprime to `count` and a shift, both chosen by a seed, which define a permutation."""
    generator = random.Random(seed)  # noqa: S311 (not used for security)
    factor = generator.randrange(1, count + 1)
    while gcd(factor, count) > 1:
        factor = generator.randrange(1, count + 1)
    return factor, generator.randrange(count)


class Waves:
    """A thread-safe queue of the waves that have not started, in execution order."""

    def __init__(
        self, grid: tuple[int, int, int], at_once: int, seed: int | None, cluster: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        """Create the queue; a wave contains at most `at_once` blocks, in whole clusters."""
        self.grid, self.seed, self.cluster = grid, seed, cluster
        self.total = grid[0] * grid[1] * grid[2]
        self.per_cluster = cluster[0] * cluster[1] * cluster[2]
        self.at_once = max(1, at_once // self.per_cluster)  # the number of clusters in a wave
        self.clusters = self.total // self.per_cluster
        self.factor, self.shift = (1, 0) if seed is None else permutation(self.clusters, seed)
        self.taken = 0  # the number of waves that have been taken
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of remaining waves."""
        return -(-self.clusters // self.at_once) - self.taken

    def take(self) -> tuple[int, Blocks] | None:
        """Return the number and the blocks of the next wave, or None if none remains."""
        with self._lock:
            if not self:
                return None
            number = self.taken
            self.taken += 1
        first = number * self.at_once
        order = (
            (self.factor * cluster + self.shift) % self.clusters
            for cluster in range(first, min(first + self.at_once, self.clusters))
        )
        return number, [block for cluster in order for block in self.blocks_of(cluster)]

    def blocks_of(self, cluster: int) -> Blocks:
        """Return the blocks of a cluster in the order of their ranks."""
        x, y = self.grid[0] // self.cluster[0], self.grid[1] // self.cluster[1]
        corner = [
            index * size
            for index, size in zip((cluster % x, cluster // x % y, cluster // (x * y)), self.cluster, strict=True)
        ]
        i, j, _ = self.cluster
        ranks = range(self.per_cluster)
        return [(corner[0] + rank % i, corner[1] + rank // i % j, corner[2] + rank // (i * j)) for rank in ranks]

    def again(self) -> Waves:
        """Return a new queue with the same waves."""
        return Waves(self.grid, self.at_once * self.per_cluster, self.seed, self.cluster)

    def clear(self) -> None:
        """Discard the waves that have not started."""
        with self._lock:
            self.taken = -(-self.clusters // self.at_once)


class Work:
    """Runs waves of blocks, and collects their counts and errors."""

    def __init__(
        self,
        program: Program,
        config: LaunchConfig,
        memory: DeviceMemory,
        compiled: CompiledProgram | None,
        checks: LaunchChecks | None = None,
        screen: LaunchScreen | None = None,
        batch_of: Callable[[LaunchPart], WarpBatch] | None = None,
    ) -> None:
        """Prepare to run waves; `screen`, `checks` or `batch_of` replaces the engine's batch class."""
        self.program = program if compiled is None else compiled.program
        self.config, self.memory, self.compiled = config, memory, compiled
        self.checks, self.screen = checks, screen
        chosen = screen or checks
        self.batch_of = chosen.batch if chosen is not None else batch_of
        self.tally = LaunchTally.of(program)
        self.divergent: dict[int, str] = {}  # divergent barriers, by line
        self.done = 0  # number of finished blocks
        self.failure: tuple[int, WarpfragError] | None = None  # the number of the failed wave

    @exact_floats
    def run(self, waves: Waves, progress: Progress | None = None, *, until_compiled: bool = False) -> Work:
        """Run waves until none remains, or until compiled code is ready if `until_compiled` is set."""
        while self.failure is None and not (until_compiled and self.compiled is not None and self.compiled.is_ready):
            wave = waves.take()
            if wave is None:
                break
            self.run_wave(*wave)
            is_stopped = (self.screen and self.screen.is_uncertain) or (self.checks and self.checks.is_stopped)
            if self.failure is not None or is_stopped:
                waves.clear()
            elif progress is not None:
                progress(self.done, waves.total)
        return self

    def run_wave(self, number: int, blocks: Blocks) -> None:
        """Run the blocks of a wave; an error is recorded in `failure`."""
        part = LaunchPart(self.program, self.config, self.memory, blocks, self.tally)
        batch: WarpBatch
        if self.batch_of is not None:
            batch = self.batch_of(part)
        elif self.compiled is None:
            batch = WarpBatch(part)
        else:
            batch = CompiledWarpBatch(part, self.compiled)
        try:
            with np.errstate(all="ignore"):
                batch.run()
                if batch.tensor_memories is not None:
                    batch.tensor_memories.check_freed()
            self.done += len(blocks)
        except WarpfragError as error:
            self.failure = number, error
        self.divergent = batch.barriers.divergent | self.divergent

    def run_all(self, waves: Waves, threads: int | None, progress: Progress | None) -> None:
        """Run all waves: in order until code is compiled, then on `threads` threads (None: one per core).

        If several waves fail, the error of the first one is kept.
        """
        self.run(waves, progress, until_compiled=threads != 1)
        threads = min(len(waves), count_threads(threads, SMALL))
        if threads <= 1 or self.failure is not None:
            if self.failure is None:
                self.run(waves, progress)
            return
        from concurrent.futures import ThreadPoolExecutor, wait  # imported here because the import is slow

        parts = [Work(self.program, self.config, self.memory.fork(), self.compiled) for _ in range(threads)]
        before = self.done
        try:
            with ThreadPoolExecutor(threads) as pool:
                started = {pool.submit(part.run, waves) for part in parts}
                try:
                    while started:
                        ended, started = wait(started, GLANCE)
                        for future in ended:
                            future.result()
                        if progress is not None:
                            progress(before + sum(part.done for part in parts), waves.total)
                except BaseException:
                    waves.clear()
                    for part in parts:  # after an interrupt, the other threads also stop, at their next check
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

    def run_waves(self, waves: Waves, threads: int | None, progress: Progress | None) -> Work:
        """Run all waves; a KeyboardInterrupt is raised again with a note that reports the progress."""
        try:
            self.run_all(waves, threads, progress)
        except KeyboardInterrupt as error:
            left = "arrays keep the values stored so far"
            error.add_note(f"interrupted after {self.done} of {waves.total} blocks; {left}")
            raise
        return self


class Judgement(NamedTuple):
    """The work of a judged launch, or None, and the reasons why the launch's result may differ on a GPU."""

    work: Work | None = None
    reasons: tuple[str, ...] = ()


def is_ordered(inst: DecodedInstruction) -> bool:
    """Return True if an instruction makes block order visible: a float atomic, or one whose old value is used."""
    action = inst.action
    if isinstance(action, TensorCopy):
        return action.reduction == "add"  # may be a float addition, depending on the tensor map
    if isinstance(action, BulkCopy):
        return action.target == "global" and action.type is not None and action.type.is_float
    if not isinstance(action, Atomic) or action.space in {"shared", "cluster"}:
        return False
    return action.is_float or (action.returns and not isinstance(inst.results[0], Discard)) or action.name == "exch"


def is_alone(inst: DecodedInstruction) -> bool:
    """Return True if an instruction requires a single core: a driver call, or a load that waits for other blocks."""
    action = inst.action
    return isinstance(action, SystemCall) or (
        isinstance(action, MemoryLoad) and action.polls and action.space in {"global", "generic"}
    )


@lru_cache(256)
def warps_at_once(program: Program) -> int:
    """Return the number of warps that run together, which is larger for wgmma kernels with few registers."""
    if not any(inst.attributes.opcode == "wgmma" for inst in program.instructions):
        return MAX_WARPS
    minimum, maximum = WARPS_OF_WGMMA
    return min(maximum, max(minimum, MAX_REGISTER_BYTES // (4 * LANES * max(1, len(program.registers)))))


@dataclass(frozen=True)
class InstrumentedLaunch:
    """A launch with checks, run in compiled code if that can prove it clean, otherwise in the interpreter.

    `screen` decides the checks in compiled code, or is None if they must be interpreted. The check "memory" alone needs
    no screen: if compiled code ends without an error, there was no invalid access. A kernel that is not compiled yet is
    interpreted until that has taken as long as compiling would. Every run starts from the initial contents of memory.
    """

    program: Program
    config: LaunchConfig
    memory: DeviceMemory
    checks: tuple[Check, ...]
    sources: Mapping[int, SourceLine]
    screen: ProgramScreen | None

    def run(self, waves: Waves, threads: int | None, progress: Progress | None) -> Work:
        """Run all waves; `threads` applies only when compiled code runs without a screen."""
        screen, memory = self.screen, self.memory
        is_plain = self.checks == ("memory",) and not memory.has_heap  # compiled code does not track freed memory
        if screen is None or not (is_plain or screen.is_possible(self.config, memory, self.checks)):
            return self.interpret(waves, progress)
        before = memory.snapshot()
        if not is_plain and not screen.compiled.is_ready:
            work = self.interpret(waves.again(), progress, until_compiled=screen)
            if work.checks is None or not work.checks.is_stopped:
                return work
            screen.compiled.prepare()
            before.restore()
        if is_plain or screen.is_decided(self.checks):
            launch = None if is_plain else LaunchScreen(screen, memory, self.checks)
            work = Work(self.program, self.config, memory.fork(), screen.compiled, screen=launch)
            work.run_waves(waves.again(), threads if is_plain else 1, progress)
            is_judged = work.failure is None and (launch is None or not (work.divergent or launch.is_uncertain))
            if is_judged or self.config.is_late:
                return work
            before.restore()
        return self.interpret(waves, progress)

    def interpret(self, waves: Waves, progress: Progress | None, until_compiled: ProgramScreen | None = None) -> Work:
        """Run waves with the checks until none remains, or until the kernel is worth compiling."""
        checks = LaunchChecks(self.checks, self.sources)
        if until_compiled is not None:
            checks.stops = until_compiled.compiled.is_worthwhile_after
        work = Work(self.program, self.config, self.memory.fork(), None, checks)
        work.memory.is_checked = "memory" in self.checks
        work.run_waves(waves, 1, progress)
        if until_compiled is not None:
            until_compiled.compiled.interpreted_instructions += checks.order.now
        return work
