"""How well it is known what an instruction of a kernel does, on one architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.catalog.evidence import Evidence, evidence
from warpfrag.isa.targets import read_target
from warpfrag.ptx.opcodes.hardware_evidence import compared
from warpfrag.ptx.program.actions import MatrixOp, Refused

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import DecodedInstruction

MEASURED = "sm_90"  # whose special function unit the tables hold


def step_evidence(step: DecodedInstruction, arch: str) -> Evidence:
    """How well it is known what a step does."""
    if isinstance(step.action, Refused):
        return Evidence("not modelled", step.action.reason)
    if isinstance(step.action, MatrixOp):
        return evidence(step.action.form, arch)
    if step.row is None:
        return Evidence("not modelled", f"no row for {step.name}")
    detail = step.row.source
    if step.row.may_contract:
        detail += "; an assembler may fuse an unqualified mul and add: done as ptxas 13.0 does for sm_90"
    if step.row.level == "measured":
        if read_target(arch, "", "arch").arch != MEASURED:
            return Evidence("approximate", f"{detail}; {arch} has a unit of its own")
        return Evidence("hardware", detail, step.row.cases, authority="measured", gpus=("NVIDIA H200",))
    if step.row.level == "approximate":
        return Evidence("approximate", detail)
    known = compared()
    if step.name not in known.spellings or read_target(arch, "", "arch").arch != known.arch:
        return Evidence("specified", detail, authority="specified")
    detail += f"; {known.gpu}, driver {known.driver}, {known.threads} threads"
    return Evidence("hardware", detail, known.threads, authority="specified", gpus=(known.gpu,))
