"""Decides whether a machine-code result is exact: compared spellings, fixed order, written values.

The judge runs in the interpreter, and its run is the launch itself if that is not too long. Otherwise the launch runs
again without it, and says that its order was not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import BATCH_THREADS
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.program import Program, SourceLine
from warpfrag.machine.launch.grid import Progress, Waves, Work
from warpfrag.machine.launch.uncertain_values import uncertain_sources
from warpfrag.machine.sanitizer.order_judge import JUDGED, LaunchJudge

MAX_STEPS = 30_000
"""The instructions per batch after which the judge gives up: a few seconds."""
NOT_JUDGED = (
    "the launch is too long to judge the order of its accesses; a smaller grid of the same kernel may be judged"
)


class Judgement(NamedTuple):
    """The judge's run (None if it gave up), and the reasons why the result may differ on a GPU."""

    work: Work | None
    reasons: tuple[str, ...]


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
    checks = LaunchJudge(JUDGED, sources)
    checks.stops = lambda steps: steps > MAX_STEPS
    work = Work(program, config, memory.fork(), None, checks).run_waves(waves, 1, progress)
    if checks.is_stopped and work.failure is None:
        for buffer, data in before:
            buffer[...] = data
        memory.tags.forget()
        return Judgement(None, (NOT_JUDGED,))
    work.checks = None  # the judge's findings are reasons, not findings of a check
    uncertain = [
        f"{program.instructions[at].line:#x}: {text}"
        for at, text in uncertain_sources(program).items()
        if work.tally.instructions[at]
    ]
    return Judgement(work, (*checks.reasons, *uncertain))


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
