"""Evidence for each opcode and line of a kernel, on one architecture.

A launch computes the arithmetic of one architecture (`launch_arch`). A comparison with a GPU counts only for the
architecture of that GPU; results that the ISA specifies hold on every architecture.
"""

from functools import lru_cache

from warpfrag.isa.targets import targets
from warpfrag.isa.tcgen05_forms import rows_of, typed
from warpfrag.isa.tcgen05_spelling import TensorSpelling
from warpfrag.machine.ir.actions import AsyncCopy, MatrixOp, Refused, TensorThreadOp
from warpfrag.machine.ir.opcode import OpcodeRow
from warpfrag.machine.ir.program import MEASURED_ON, DecodedInstruction, InexactCause, Program
from warpfrag.machine.launch.options import MEASURED, runs_on
from warpfrag.machine.ops.opcode_lookup import compared
from warpfrag.tensorcore.arithmetic_plan import nearest_plan
from warpfrag.tensorcore.evidence import AUTHORITIES, UNCERTAIN, Evidence, evidence

MEASURED_ADDRESSES = 64  # the address size of the measured kernels, in bits


def launch_evidence(program: Program, arch: str, address_size: int) -> dict[str, Evidence]:
    """Return evidence for features that are not modelled: a target that `arch` cannot run, or 32-bit addresses."""
    known = {}
    if not runs_on(program.target, arch):
        known[f".target {program.target}"] = Evidence("not modelled", f"{arch} cannot run a module for this target")
    if address_size != MEASURED_ADDRESSES:
        text = "no assembler since CUDA 12.9 accepts 32-bit addresses: nothing was compared with a GPU"
        known[f".address_size {address_size}"] = Evidence("not modelled", text)
    return known


def causes_of(inst: DecodedInstruction, bits: int, arch: str) -> list[InexactCause]:
    """Return the recorded causes of uncertainty that apply to an instruction on an architecture."""
    if not bits:
        return []
    causes = InexactCause(bits)
    if isinstance(inst.action, AsyncCopy) and InexactCause.LANES_AT_SAME_ADDRESS in causes:
        # a copy is asynchronous, so the stored value depends on timing
        causes = causes & ~InexactCause.LANES_AT_SAME_ADDRESS | InexactCause.OVERLAPPING_STORES
    return [cause for cause in causes if MEASURED_ON.get(cause) != _arithmetic_of(arch)]


def opcode_evidence(program: Program, arch: str) -> dict[str, Evidence]:
    """Return the evidence for every opcode of a program, on an architecture or target."""
    known, opcode = dict[str, Evidence](), ""
    for at, inst in enumerate(program.instructions):
        opcode = program.opcode_at(at) or opcode
        add_evidence(known, opcode, inst, arch)
    return known


def add_evidence(known: dict[str, Evidence], opcode: str, inst: DecodedInstruction, arch: str) -> None:
    """Add the evidence for an operation of an opcode; an uncertain operation makes the opcode uncertain."""
    found = instruction_evidence(inst, arch)
    if opcode not in known or found.level in UNCERTAIN:
        known[opcode] = found


@lru_cache(4096)
def instruction_evidence(inst: DecodedInstruction, arch: str) -> Evidence:
    """Return the evidence for an instruction on an architecture or target."""
    if isinstance(inst.action, Refused):
        return Evidence("not modelled", inst.action.reason)
    if isinstance(inst.action, MatrixOp):
        is_known = arch in targets()
        return evidence(inst.action.form, arch) if is_known else Evidence("not modelled", f"{arch} is unknown")
    if isinstance(inst.action, TensorThreadOp) and inst.action.spelling.kind:
        return _tensor_evidence(inst.action.spelling, arch)
    if inst.row is None:
        return Evidence("not modelled", f"{inst.name} is not modelled")
    return _row_evidence(inst, inst.row, arch)


def _tensor_evidence(spelling: TensorSpelling, arch: str) -> Evidence:
    """Return the evidence for a tcgen05 mma from its .kind, because its types are known only from a register."""
    row = rows_of(spelling)[0]
    known, _ = nearest_plan(typed(spelling, row, row.m[0], row.n[0], row.a[0], row.b[0]), arch)
    return Evidence(known.level, known.source, 0, known.machine, known.native, AUTHORITIES[known.level])


def _row_evidence(inst: DecodedInstruction, row: OpcodeRow, arch: str) -> Evidence:
    """Return the evidence for a row of the opcode table."""
    detail = row.source
    if row.may_contract:
        detail += "; ptxas may contract an unqualified mul and add; only the plain case is modelled"
    if row.level == "measured":
        if _arithmetic_of(arch) != MEASURED:
            return Evidence("approximate", f"{detail}; the unit of {arch} differs")
        return Evidence("hardware", detail, row.cases, authority="measured", gpus=("NVIDIA H200",))
    if row.level == "approximate":
        return Evidence("approximate", detail)
    known = compared()
    if inst.name not in known.spellings or _arithmetic_of(arch) != known.arch:
        return Evidence("specified", detail, authority="specified")
    detail += f"; {known.gpu}, driver {known.driver}, {known.threads} threads"
    return Evidence("hardware", detail, known.threads, authority="specified", gpus=(known.gpu,))


def _arithmetic_of(arch: str) -> str:
    """Return the architecture whose arithmetic a target uses; a target older than the table is returned unchanged."""
    return targets()[arch].arch if arch in targets() else arch
