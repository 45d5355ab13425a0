"""Decide whether a machine-code result is exact: compared spellings, fixed order, written values.

The judge runs in the interpreter; for a short launch, its run is the launch itself. A longer launch runs again without
the judge, and reports that its order was not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import BATCH_THREADS
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import MemoryBarrier
from warpfrag.machine.ir.program import Program, SourceLine
from warpfrag.machine.jit import loops as native_loops
from warpfrag.machine.jit.engine import CompiledProgram
from warpfrag.machine.jit.screening import LaunchScreen, ProgramScreen
from warpfrag.machine.launch.grid import Judgement, Progress, Waves, Work
from warpfrag.sass.cas_loops import CasLoop, cas_loops
from warpfrag.sass.compared_spellings import is_compared
from warpfrag.sass.order_judge import JUDGED, LaunchJudge
from warpfrag.sass.uncertain_values import values_of

MAX_MARKS = 32  # maximum number of registers that may be read unassigned; tracking more takes too long
FEW_STEPS = 2000
"""The number of instructions per batch after which compiled code is tried, which decides less but is fast."""
MAX_STEPS = 30_000
"""The number of instructions per batch after which the judge gives up: a few seconds."""
NOT_JUDGED = "the launch is too long to judge the order of its accesses; try a smaller grid"


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
    before = [(buffer, buffer.copy()) for buffer in memory.writable_buffers()]

    def restore() -> None:
        for buffer, data in before:
            buffer[...] = data
        memory.tags.forget()

    def run(limit: int, uncertain_loops: Collection[CasLoop] = ()) -> tuple[LaunchJudge, Work]:
        checks = LaunchJudge(sources, loops, values.decisive, uncertain_loops)
        checks.stops = lambda steps: steps > limit
        work = Work(program, config, memory.fork(), None, checks).run_waves(waves.again(), 1, progress)
        if work.failure is None and (checks.is_stopped or (checks.contended and not uncertain_loops)):
            restore()
            return (checks, work) if checks.is_stopped else run(limit, checks.contended)
        return checks, work

    values, loops = values_of(program), cas_loops(program)
    steps = -(-waves.total // blocks) * len(program.instructions)  # without loops
    checks, work = run(FEW_STEPS) if steps <= FEW_STEPS else (None, None)
    if checks is None or work is None or (checks.is_stopped and work.failure is None):
        judged = screened(program, config, memory, waves, progress)
        if judged is not None:
            return judged
        restore()
        if steps > 2 * MAX_STEPS:
            return Judgement(None, (NOT_JUDGED,))
        checks, work = run(MAX_STEPS)
    if checks.is_stopped and work.failure is None:
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


SCREENS: WeakKeyDictionary[Program, ProgramScreen] = WeakKeyDictionary()


def screened(
    program: Program, config: LaunchConfig, memory: DeviceMemory, waves: Waves, progress: Progress | None
) -> Judgement | None:
    """Run a launch in compiled code that may prove that its order does not matter; None if it cannot."""
    if not native_loops.is_available() or values_of(program).uncertain:
        return None
    if program not in SCREENS:
        SCREENS[program] = ProgramScreen(CompiledProgram(replace(program, follows_unassigned=True)))
    screen = SCREENS[program]
    compiled = screen.compiled
    if not screen.is_possible(config, memory, JUDGED) or len(compiled.layout.marks) > MAX_MARKS:
        return None
    compiled.prepare()
    if not screen.is_decided(JUDGED):
        return None
    launch = LaunchScreen(screen, memory, JUDGED)
    work = Work(compiled.program, config, memory.fork(), compiled, screen=launch)
    work.run_waves(waves.again(), 1, progress)
    is_late = work.failure is not None and config.is_late  # its error names the line
    return Judgement(work, ()) if is_late or not (work.failure or work.divergent or launch.is_uncertain) else None


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
        is_known = is_compared(spelling, compared)
        if not is_known and spelling not in found:
            line = f" ({sources[address]})" if address in sources else ""
            found[spelling] = f"{address:#x}{line}: {spelling} was not compared with a GPU of {arch}"
    return tuple(found.values())
