"""Builds the result of a launch: evidence, counts by opcode and line, findings and uncertain lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from warpfrag.errors import PtxError, WarpfragError
from warpfrag.ptx.interpreter.kernel_findings import KINDS, Check, FindingCollector, KernelFinding
from warpfrag.ptx.interpreter.warp_state import LaunchTally
from warpfrag.ptx.launch.evidence import causes_of, launch_evidence, step_evidence
from warpfrag.ptx.launch.grid import Work
from warpfrag.ptx.launch.profile import by_line, tensor_operations
from warpfrag.ptx.launch.run import Counts, InexactLine, Run
from warpfrag.ptx.program.program import REASONS, Program
from warpfrag.ptx.reader.source_lines import SourceLine
from warpfrag.tensorcore.evidence import Evidence


def summarise(
    work: Work, name: str, sources: Mapping[int, SourceLine], address_size: int, checks: tuple[Check, ...]
) -> Run:
    """The result of what was run; an error that is no finding of a check is raised."""
    findings, unjudged = findings_of(work, sources, checks)
    program, tally, memory, config, compiled = work.program, work.tally, work.memory, work.config, work.compiled
    opcodes: Counter[str] = Counter()
    lines: Counter[int] = Counter()
    known: dict[str, Evidence] = {}
    steps, operations = program.steps, np.zeros(len(program.steps), np.int64)
    for at in np.flatnonzero(tally.steps).tolist():
        step, count = steps[at], int(tally.steps[at])
        opcodes[step.name] += count
        lines[step.line] += count
        operations[at] = tensor_operations(step) * count
        if step.name not in known:
            known[step.name] = step_evidence(step, config.arch)
    known |= launch_evidence(program, config.arch, address_size)
    uncertain = inexact_lines(program, tally, config.arch)
    for register in sorted(tally.inexact):
        known[register] = Evidence("approximate", "a value of this machine: a GPU has another")
    counts = Counts(
        dict(opcodes), dict(lines), dict(memory.read_bytes), dict(memory.written_bytes), dict(memory.wavefronts),
        by_line(steps, memory.step_wavefronts), by_line(steps, memory.step_conflicts),
        by_line(steps, memory.step_read), by_line(steps, memory.step_written), by_line(steps, operations),
    )  # fmt: skip
    engine, interpreted = "reference", set(opcodes)
    if compiled is not None and compiled.segments:
        engine, interpreted = "compiled", interpreted - compiled.opcodes
    printed = "".join(tally.printed)
    own_sources = {line: sources[line] for line in lines if line in sources}
    texts: dict[int, str] = {}
    for step in steps:
        if step.line in lines:
            texts[step.line] = f"{texts[step.line]}; {step.text}" if step.line in texts else step.text
    return Run(
        known, counts, findings, engine, tuple(sorted(interpreted)), printed, uncertain, config.arch, own_sources,
        name, texts, checks, unjudged,
    )  # fmt: skip


def inexact_lines(program: Program, tally: LaunchTally, arch: str) -> tuple[InexactLine, ...]:
    """Return the lines that ran and whose results are uncertain on an architecture, in order."""
    lines: dict[InexactLine, None] = {}
    ran, causes = tally.steps.tolist(), tally.causes.tolist()
    for at, (step, count, bits) in enumerate(zip(program.steps, ran, causes, strict=True)):
        if not (bits or step.uncertain or at in tally.uncertain):
            continue
        reasons = [REASONS[cause] for cause in causes_of(step, bits, arch)]
        reasons += tally.uncertain.get(at, {})
        if count and step.uncertain:
            reasons.append(step.uncertain)
        lines |= dict.fromkeys(InexactLine(step.line, step.text, reason) for reason in reasons)
    return tuple(sorted(lines, key=lambda item: item.line))


def findings_of(
    work: Work, sources: Mapping[int, SourceLine], checks: tuple[Check, ...]
) -> tuple[list[KernelFinding], tuple[str, ...]]:
    """What the checks report, by line, and what they could not judge; an error that is no finding is raised."""
    collector = work.checks.collector if work.checks is not None else FindingCollector(sources, checks)
    for line, text in work.divergent.items():
        collector.add(KernelFinding("barrier", line, text))
    for bad in work.memory.noted.values():
        (x, y, z), (i, j, k) = bad.block, bad.thread
        collector.add(
            KernelFinding(bad.kind, bad.line, bad.text, block=(x, y, z), thread=(i, j, k)), bad.count
        )  # fmt: skip
    if work.failure is not None:
        error = work.failure[1]
        kind = error.kind if isinstance(error, PtxError) else ""
        if KINDS.get(kind) not in checks or not isinstance(error, PtxError):
            raise located(error, sources)
        collector.add(KernelFinding(kind, error.line, error.reason))
        collector.leave_out(f"what follows line {error.line}: the launch ended there")
    return collector.findings, tuple(collector.unjudged)


def located(error: WarpfragError, sources: Mapping[int, SourceLine]) -> WarpfragError:
    """An error of a line, with the line of the source that it was compiled from."""
    if isinstance(error, PtxError) and error.line in sources:
        return PtxError(error.line, error.reason, str(sources[error.line]), error.kind)
    return error
