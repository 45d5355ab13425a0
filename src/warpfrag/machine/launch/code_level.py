"""The level of a launch: machine code if the PTX can be assembled and the machine code runs, else PTX.

Machine code is executed only for the architecture on which it was compared. If it fails, the PTX runs from the same
initial memory: either it fails too, with an error that names PTX lines, or its result is kept with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from warpfrag.errors import WarpfragError
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import SystemCall
from warpfrag.machine.ir.program import Program
from warpfrag.machine.launch.options import LaunchOptions
from warpfrag.machine.launch.run import Run
from warpfrag.machine.launch.run_evidence import MEASURED
from warpfrag.machine.launch.symbols import Symbols

Buffers = Sequence[NDArray[Any]]
Execute = Callable[[tuple[Check, ...], LaunchOptions], Run]
"""Type of a function that runs a launch at one level, with checks and options."""
STOPPING = {"bounds", "misaligned", "readonly", "freed", "deadlock"}
"""Findings after which the PTX launch may differ from a GPU's."""


def ptx_reason(program: Program, symbols: Symbols, config: LaunchConfig, options: LaunchOptions, level: str) -> str:
    """Return the reason to execute PTX without assembling it, or ""."""
    if level == "ptx":
        return "the level is ptx"
    calls = {inst.action.name for inst in program.instructions if isinstance(inst.action, SystemCall)}
    if calls:
        return f"the driver functions {', '.join(sorted(calls))} are executed as PTX only"
    if symbols.is_held:
        return "variables of the module were set or are kept"
    if options.cooperative:
        return "cooperative launches are executed as PTX only"
    if level == "auto" and config.arch.rstrip("a") != MEASURED:
        return f"machine code was compared on {MEASURED} only, and the launch is for {config.arch}"
    return ""


def run_both_levels(
    ptx: Execute, machine: Execute, buffers: Buffers, checks: tuple[Check, ...], options: LaunchOptions, level: str
) -> Run:
    """Run machine code; run the PTX too if there are checks, or if the machine code fails and the level is auto."""
    before = [buffer.copy() for buffer in buffers]
    checked = None
    if checks:
        checked = ptx(checks, replace(options, explore=0))
        found = sorted({finding.kind for finding in checked.findings} & STOPPING)
        if found:
            return replace(checked, ptx_reason=f"a check found {', '.join(found)}: a GPU's behaviour is then unknown")
        after = [buffer.copy() for buffer in buffers]
        _restore(buffers, before)
    try:
        run = machine((), options)
    except WarpfragError as error:
        if level == "sass":
            raise
        _restore(buffers, after if checked is not None else before)
        reason = f"the machine code failed: {error}"
        return replace(ptx((), options) if checked is None else checked, ptx_reason=reason)
    if checked is None:
        return run
    return replace(
        run, checks=checked.checks, findings=checked.findings, unjudged=checked.unjudged, notes=checked.notes
    )  # fmt: skip


def _restore(buffers: Buffers, contents: Buffers) -> None:
    for buffer, data in zip(buffers, contents, strict=True):
        buffer[...] = data
