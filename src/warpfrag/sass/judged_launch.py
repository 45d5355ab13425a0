"""Decides whether a machine-code result is exact: compared spellings, fixed order, written values.

The judge runs in the interpreter, and its run is the launch itself if that is not too long. Otherwise the launch runs
again without it, and says that its order was not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import BATCH_THREADS
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import MemoryBarrier
from warpfrag.machine.ir.program import Program, SourceLine
from warpfrag.machine.launch.grid import Judgement, Progress, Waves, Work
from warpfrag.sass.cas_loops import CasLoop, cas_loops
from warpfrag.sass.order_judge import LaunchJudge
from warpfrag.sass.uncertain_values import values_of

MAX_STEPS = 30_000
"""The instructions per batch after which the judge gives up: a few seconds."""
NOT_JUDGED = (
    "the launch is too long to judge the order of its accesses; a smaller grid of the same kernel may be judged"
)


def judge(
    program: Program,
    config: LaunchConfig,
    memory: DeviceMemory,
    waves: Waves,
    sources: Mapping[int, SourceLine],
    progress: Progress | None,
) -> Judgement:
    """Run a launch under the judge; if the judge gives up, restore the initial memory."""
    blocks = max(1, BATCH_THREADS // config.threads)
    if -(-waves.total // blocks) * len(program.instructions) > 2 * MAX_STEPS:
        return Judgement(None, (NOT_JUDGED,))
    before = [(buffer, buffer.copy()) for buffer in memory.writable_buffers()]

    def restore() -> None:
        for buffer, data in before:
            buffer[...] = data
        memory.tags.forget()

    def run(uncertain_loops: Collection[CasLoop] = ()) -> tuple[LaunchJudge, Work]:
        checks = LaunchJudge(sources, loops, values.decisive, uncertain_loops)
        checks.stops = lambda steps: steps > MAX_STEPS
        return checks, Work(program, config, memory.fork(), None, checks).run_waves(waves.again(), 1, progress)

    values, loops = values_of(program), cas_loops(program)
    checks, work = run()
    if checks.contended and not checks.is_stopped and work.failure is None:
        restore()
        checks, work = run(checks.contended)
    if checks.is_stopped and work.failure is None:
        restore()
        return Judgement(None, (NOT_JUDGED,))
    work.checks = None  # the judge's findings are reasons, not findings of a check
    uncertain = [
        f"{program.instructions[at].line:#x}: {text}"
        for at, text in values.uncertain.items()
        if work.tally.instructions[at] and (at in checks.uncertain_answers or not is_mbarrier(program, at))
    ]
    uncertain += [
        f"{program.instructions[at].line:#x}: the value of an mbarrier is loaded, and depends on the order of arrivals"
        for at in sorted(checks.uncertain_answers)
        if not is_mbarrier(program, at)
    ]
    return Judgement(work, (*checks.reasons, *uncertain))


def is_mbarrier(program: Program, at: int) -> bool:
    """Return True for an mbarrier instruction: the judge knows if its result depends on the order of threads."""
    return isinstance(program.instructions[at].action, MemoryBarrier)


def uncompared(
    work: Work, compared: frozenset[str], arch: str, sources: Mapping[int, SourceLine]
) -> tuple[str, ...]:  # fmt: skip
    """Return a reason for every executed spelling that was not compared with a GPU of the architecture."""
    if not compared:
        return (f"no machine code for {arch} was compared with a GPU",)
    found: dict[str, str] = {}
    for at in np.flatnonzero(work.tally.instructions).tolist():
        address = work.program.instructions[at].line
        spelling = work.program.spellings.get(address, "")
        is_known = spelling in compared or spelling.replace("RZ", "R") in compared  # RZ always reads as zero
        if not is_known and spelling not in found:
            line = f" ({sources[address]})" if address in sources else ""
            found[spelling] = f"{address:#x}{line}: {spelling} was not compared with a GPU of {arch}"
    return tuple(found.values())
