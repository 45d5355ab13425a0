"""Decide whether a machine-code result is exact.

It is exact if all executed spellings were compared with a GPU, and neither the order of accesses nor unwritten values
can change it.

A short launch runs once, in the interpreter with the judge (`order_judge`). A longer one runs in compiled code that may
prove that the order does not matter (`order_screen`); if no loaded value can affect the proof, it is reused for
launches with the same arguments. If the proof fails, the interpreter may judge the launch for a few seconds, which is
not repeated for the same launch. If this time is too short, the run reports that the order was not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from math import inf
from time import thread_time
from weakref import WeakKeyDictionary

import numpy as np

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import BATCH_THREADS
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import MemoryBarrier
from warpfrag.machine.ir.program import Program, SourceLine
from warpfrag.machine.jit import c_functions
from warpfrag.machine.jit.engine import CompiledProgram
from warpfrag.machine.launch.grid import Judgement, Progress, Waves, Work
from warpfrag.sass.cas_loops import CasLoop, cas_loops
from warpfrag.sass.compared_spellings import is_compared
from warpfrag.sass.lowering import SassProgram
from warpfrag.sass.order_judge import JUDGED, LaunchJudge
from warpfrag.sass.order_screen import MachineLaunchScreen, MachineScreen
from warpfrag.sass.sass_instruction import AddressOperand, RegisterOperand, SassInstruction, address_text
from warpfrag.sass.stored_addresses import stored_addresses, stored_stack_pointers
from warpfrag.sass.unassigned_registers import unassigned_registers
from warpfrag.sass.uncertain_values import values_of

MAX_MARKS = 32  # maximum number of tracked registers that may be read unassigned; more would take too long
FEW_STEPS = 3000
"""The number of instructions per batch after which faster but less powerful compiled code is tried."""
STEPS_PER_SECOND = 3000
"""The number of instructions per batch and second after which the interpreter stops judging."""
MAX_PROOFS = 256  # maximum number of proofs kept per program
NOT_JUDGED = (
    "the order of accesses was not judged within {} s (--judge-seconds, LaunchOptions.judge): use a smaller grid or a"
    " longer limit"
)


def judge(
    program: Program,
    config: LaunchConfig,
    memory: DeviceMemory,
    waves: Waves,
    sources: Mapping[int, SourceLine],
    seconds: float,
    progress: Progress | None,
) -> Judgement:
    """Run a launch under the judge; if the judge gives up, restore the initial memory contents."""
    if program in SCREENS and launch_key(config, memory) in SCREENS[program].proofs:
        return Judgement()
    not_judged = Judgement(None, (NOT_JUDGED.format(f"{seconds:g}"),))
    if seconds <= GIVEN_UP.get(program, {}).get(launch_key(config, memory), 0):
        return not_judged
    blocks = max(1, BATCH_THREADS // (config.warps * LANES))
    few = (
        waves
        if config.is_cooperative
        else Waves(waves.grid, min(waves.at_once * waves.per_cluster, blocks), waves.seed, waves.cluster)
    )
    before = memory.snapshot()

    def run(limit: int, deadline: float, uncertain: frozenset[CasLoop] = frozenset()) -> tuple[LaunchJudge, Work]:
        checks = LaunchJudge(sources, loops, values, uncertain)
        # if the order matters in a loop that is not in `uncertain`, the launch runs again with this loop added; the
        # present run stops early once the order matters in all loops
        checks.stops = lambda steps: (
            steps > limit or thread_time() > deadline or uncertain < checks.contended == set(loops.values())
        )
        work = Work(program, config, memory.fork(), None, checks).run_waves(few.again(), 1, progress)
        is_new = not checks.contended <= uncertain
        if work.failure is None and (checks.is_stopped or is_new):
            before.restore()
        return run(limit, deadline, uncertain | checks.contended) if is_new and work.failure is None else (checks, work)

    def where(at: int) -> str:
        address = program.instructions[at].line
        return address_text(address, sources.get(address))

    values, loops = values_of(program), cas_loops(program)
    steps = -(-waves.total // blocks) * len(program.instructions)  # the instruction count of a launch without loops
    is_short = steps <= FEW_STEPS and program not in SCREENS
    checks, work = run(FEW_STEPS, inf) if is_short else (None, None)
    if checks is None or work is None or (checks.is_stopped and work.failure is None):
        judged = screened(program, config, memory, waves, progress)
        if judged is not None:
            return judged
        before.restore()
        if steps > 2 * STEPS_PER_SECOND * seconds:
            return not_judged
        known = frozenset(checks.uncertain_loops) if checks else frozenset()
        checks, work = run(int(STEPS_PER_SECOND * seconds), thread_time() + seconds, known)
    if checks.is_stopped and work.failure is None:
        GIVEN_UP.setdefault(program, {})[launch_key(config, memory)] = seconds
        return not_judged
    work.checks = None  # report the judge's findings as reasons for uncertainty, not as findings of a check
    uncertain = [
        f"{where(at)}: {text}"
        for at, text in values.uncertain.items()
        if work.tally.instructions[at] and (at in checks.uncertain_answers or not is_mbarrier(program, at))
    ]
    uncertain += [
        f"{where(at)}: the value of an mbarrier is loaded, and depends on the order of arrivals"
        for at in sorted(checks.uncertain_answers)
        if not is_mbarrier(program, at)
    ]
    return Judgement(work, (*checks.reasons, *uncertain))


SCREENS: WeakKeyDictionary[Program, MachineScreen] = WeakKeyDictionary()
GIVEN_UP: WeakKeyDictionary[Program, dict[Hashable, float]] = WeakKeyDictionary()
"""Launches that the judge gave up on, each with its time limit in seconds."""


def screened(
    program: Program, config: LaunchConfig, memory: DeviceMemory, waves: Waves, progress: Progress | None
) -> Judgement | None:
    """Run a launch in compiled code that may prove that its order does not matter; return None if this fails."""
    if not c_functions.is_available() or values_of(program).uncertain:
        return None
    if program not in SCREENS:
        SCREENS[program] = MachineScreen(CompiledProgram(replace(program, find_unassigned=unassigned_registers)))
    screen = SCREENS[program]
    compiled = screen.compiled
    if not screen.is_possible(config, memory, JUDGED) or len(compiled.layout.marks) > MAX_MARKS:
        return None
    compiled.prepare()
    if not screen.is_decided(JUDGED):
        return None
    launch = MachineLaunchScreen(screen, memory, JUDGED)
    work = Work(compiled.program, config, memory.fork(), compiled, screen=launch)
    work.run_waves(waves.again(), 1, progress)
    if work.failure is not None and config.is_late:  # the error names the line that was running
        return Judgement(work, ())
    if work.failure or work.divergent or launch.is_uncertain:
        return None
    if screen.has_fixed_accesses and not launch.is_by_value and len(screen.proofs) < MAX_PROOFS:
        screen.proofs.add(launch_key(config, memory))
    return Judgement(work, ())


def launch_key(config: LaunchConfig, memory: DeviceMemory) -> Hashable:
    """Return a key that determines the accesses of a launch if they do not depend on values read from memory."""
    allocations = tuple(
        (item.start, item.end, item.writable, None if item.unwritten is None else item.unwritten.tobytes())
        for item in memory.allocations
    )
    return replace(config, deadline=inf), memory.parameters.tobytes(), allocations


def is_mbarrier(program: Program, at: int) -> bool:
    """Return True for an mbarrier instruction; the judge determines if the thread order affects its result."""
    return isinstance(program.instructions[at].action, MemoryBarrier)


GLOBAL = {"LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG"}
JUMPS = {"BRA", "BRX", "CALL", "RET", "EXIT", "BSYNC", "JMP"}
READ_BARRIER, NO_BARRIER, WAITS = 113, 7, 116
"""Scoreboards in an encoding: the position of the scoreboard that is released once the operands have been read, its
value if there is none, and the position of the mask of scoreboards that the instruction waits for."""


def late_addresses(instructions: Collection[SassInstruction]) -> dict[int, str]:
    """Return a reason, by address, for each global access whose uniform register may be overwritten before it is read.

    This is the case if no instruction between the access and the write waits for the access's scoreboard. An H200 then
    used the new value.
    """
    found: dict[int, str] = {}
    pending: list[tuple[int, SassInstruction, set[int]]] = []  # the scoreboard, the access, and its uniform registers
    for inst in instructions:
        pending = [item for item in pending if not inst.encoding >> WAITS + item[0] & 1]
        first = inst.operands[0] if inst.operands else None
        if isinstance(first, RegisterOperand) and first.file == "UR":
            written = {first.index, first.index + bool({"64", "WIDE"}.intersection(inst.modifiers))}
            for _, access, registers in pending:
                if registers & written:
                    text = f"{access.text}: {inst.text} at {inst.address:#x} overwrites its address without a wait"
                    found.setdefault(access.address, text)
        barrier = inst.encoding >> READ_BARRIER & NO_BARRIER
        for operand in inst.operands if barrier != NO_BARRIER and inst.opcode in GLOBAL else ():
            if isinstance(operand, AddressOperand) and operand.uniform is not None and not operand.uniform.is_constant:
                pending.append((barrier, inst, {operand.uniform.index, operand.uniform.index + 1}))
        if inst.opcode in JUMPS:
            pending = []
    return found


def uncompared(
    work: Work,
    program: SassProgram,
    compared: frozenset[str],
    instructions: Collection[SassInstruction],
    depends_on_addresses: Callable[[], bool],
) -> tuple[str, ...]:
    """Return the reasons why executed instructions may behave differently on a GPU.

    Their spelling was never compared with one, their address register is overwritten without a wait, they store an
    address or the stack pointer, or they discard data.
    """
    arch = program.target
    if not compared:
        return (f"no machine code for {arch} was compared with a GPU",)
    sources = {inst.address: inst.source for inst in instructions if inst.source is not None}
    late = late_addresses(instructions)
    stored = stored_addresses(program, work.memory).intersection(np.flatnonzero(work.tally.instructions).tolist())
    if stored and not depends_on_addresses():
        stored = set()
    unwritten = stored_stack_pointers(program)
    found: dict[str, str] = {}
    for at in np.flatnonzero(work.tally.instructions).tolist():
        address = work.program.instructions[at].line
        spelling = work.program.spellings.get(address, "")
        where = address_text(address, sources.get(address))
        if spelling.startswith("CCTL.") and ".RML2" in spelling:
            found.setdefault(
                "CCTL", f"{where}: discard.L2 leaves undefined bytes in memory until they are written again"
            )
        if at in unwritten:
            text = "the stack pointer is stored, in place of a value that was never written"
            found[f"{address:#x}"] = f"{where}: {text}"
        if at in stored:
            text = "the stored value may depend on the address of an array or variable, which is different on a GPU"
            found[f"{address:#x}"] = f"{where}: {text}"
        if address in late:
            found[late[address]] = f"{where}: {late[address]}"
        if not is_compared(spelling, compared) and spelling not in found:
            found[spelling] = f"{where}: {spelling} was not compared with an {arch} GPU"
    return tuple(found.values())
