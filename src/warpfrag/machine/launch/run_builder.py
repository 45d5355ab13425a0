"""Build the result of a launch: evidence, counts by opcode and line, findings and uncertain lines."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import PtxError
from warpfrag.machine.interpreter.kernel_findings import KINDS, Check, FindingCollector, KernelFinding
from warpfrag.machine.interpreter.warp_state import LaunchTally
from warpfrag.machine.ir.actions import MemoryLoad
from warpfrag.machine.ir.program import REASONS, Program, SourceLine, located
from warpfrag.machine.ir.state_spaces import HEAP
from warpfrag.machine.jit.register_flow import dropped_special_registers
from warpfrag.machine.launch.grid import Work
from warpfrag.machine.launch.profile import LineProfile, Profile, tensor_operations
from warpfrag.machine.launch.run import Counts, InexactLine, Run
from warpfrag.machine.launch.run_evidence import add_evidence, causes_of, launch_evidence
from warpfrag.machine.sanitizer.unwritten import MARK
from warpfrag.tensorcore.evidence import Evidence


def build_run(
    work: Work, name: str, sources: Mapping[int, SourceLine], address_size: int, checks: tuple[Check, ...]
) -> Run:
    """Return the result of a launch; raise its error, unless a check reports the error as a finding."""
    collector = findings_of(work, sources, checks)
    program, tally, memory, config, compiled = work.program, work.tally, work.memory, work.config, work.compiled
    opcodes: Counter[str] = Counter()
    lines: dict[int, LineProfile] = {}
    known: dict[str, Evidence] = {}
    columns = (tally.instructions, memory.inst_read, memory.inst_written, memory.inst_wavefronts, memory.inst_conflicts)
    figures = zip(*(column.tolist() for column in columns), strict=True)
    opcode, names = "", set[str]()
    for at, (inst, (count, read, written, waves, conflicts)) in enumerate(
        zip(program.instructions, figures, strict=True)
    ):
        if not count:
            continue
        line, start = inst.line, program.opcode_at(at)
        opcode = start or opcode
        issued = count if start else 0
        opcodes[opcode] += issued
        flops = count * tensor_operations(inst)
        row = LineProfile(line, inst.text, sources.get(line), issued, read, written, waves, conflicts, flops)
        before = lines.get(line)
        text = inst.text if before is None else f"{before.text}; {inst.text}" if start else before.text
        lines[line] = (row if before is None else before.plus(row))._replace(text=text)
        names.add(inst.name)
        add_evidence(known, opcode, inst, config.arch)
    known |= launch_evidence(program, config.arch, address_size)
    uncertain = inexact_lines(program, tally, config.arch)
    for register in sorted(tally.inexact - dropped_special_registers(program) if tally.inexact else ()):
        known[register] = Evidence("approximate", "the value on a GPU is different")
    counts = Counts(dict(opcodes), dict(memory.read_bytes), dict(memory.written_bytes), dict(memory.wavefronts))
    profile = Profile(name, config.arch, tuple(lines[line] for line in sorted(lines)))
    engine, interpreted = "reference", names
    if compiled is not None and compiled.segments:
        engine, interpreted = "compiled", interpreted - compiled.opcodes
    return Run(
        known, counts, profile, collector.findings, engine, tuple(sorted(interpreted)), "".join(tally.printed),
        uncertain, config.arch, checks, tuple(collector.unjudged), tuple(collector.notes),
        unwritten=left_unwritten(work),
    )  # fmt: skip


def left_unwritten(work: Work) -> dict[int, NDArray[np.uint8]]:
    """Return, for the host address of each array, the marks of the bytes that are unwritten after a launch."""
    arrays = {id(item.data): item.data for item in work.memory.allocations if item.start != HEAP}
    if work.screen is not None:
        marks = {key: np.where(own == 0, MARK, np.uint8(0)) for key, own in work.screen.marks.items()}
    else:
        marks = (work.checks and work.checks.unwritten) or {}
    return {data.ctypes.data: marks[key][: data.size] for key, data in arrays.items() if key in marks}


def inexact_lines(program: Program, tally: LaunchTally, arch: str) -> tuple[InexactLine, ...]:
    """Return the executed lines with uncertain results on an architecture, in order."""
    lines: dict[InexactLine, None] = {}
    for at, (inst, bits) in enumerate(zip(program.instructions, tally.causes.tolist(), strict=True)):
        if not (bits or at in tally.uncertain):
            continue
        reasons = [REASONS[cause] for cause in causes_of(inst, bits, arch)]
        reasons += tally.uncertain.get(at, {})
        lines |= dict.fromkeys(InexactLine(inst.line, inst.text, reason) for reason in reasons)
    return tuple(sorted(lines, key=lambda row: row.line))


def findings_of(work: Work, sources: Mapping[int, SourceLine], checks: tuple[Check, ...]) -> FindingCollector:
    """Return the collected findings, notes and unjudged events; raise the launch's error unless a check reports it."""
    collector = work.checks.collector if work.checks is not None else FindingCollector(sources, checks)
    for line, text in work.divergent.items():
        collector.add(KernelFinding("barrier", line, text))
    if work.failure is not None:
        error = work.failure[1]
        kind = error.kind if isinstance(error, PtxError) else ""
        if KINDS.get(kind) not in checks or not isinstance(error, PtxError):
            raise located(error, sources)
        collector.add(KernelFinding(kind, error.line, error.reason))
        collector.leave_out(f"the instructions after line {error.line}, where the launch ended")
    if work.program.is_machine_code and "races" in checks:
        leave_out_order(work, collector)
    return collector


WARP_ORDER = (
    "the order of threads in a warp that communicate through memory: machine code has no __syncwarp; check the PTX"
)
MEMORY_ORDER = (
    "the order that fences and flags in memory establish: machine code does not keep acquire and release; check the PTX"
)


def leave_out_order(work: Work, collector: FindingCollector) -> None:
    """Record which ordering information machine code lacks, so that the verdict does not cover it."""
    if collector.drop("lockstep"):
        collector.leave_out(WARP_ORDER)
    for inst, count in zip(work.program.instructions, work.tally.instructions.tolist(), strict=True):
        is_fence = inst.attributes.opcode == "membar" and inst.name != "membar.cta"
        if count and (is_fence or (isinstance(inst.action, MemoryLoad) and inst.action.polls)):
            collector.leave_out(MEMORY_ORDER)
