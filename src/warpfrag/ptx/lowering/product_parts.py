"""Products that ptxas expands into several machine instructions, and that write a part of D before all is read.

PTX says that an instruction reads its operands before it writes. For two kinds of products ptxas 13.0
emits one machine instruction after the other on the registers as they are named. Where D shares registers
with A, B or another place of C, later parts read what the first ones wrote:

    wmma.mma        two halves of D, each of which reads A, B and its part of C
    mma of fp8      on sm_90 D = C + sum, one register after the other; A and B were read before

Compilers give D registers of its own, or those of C in the same order: then nothing shows. Measured on an H200 with D
in the place of A, of B, and of C in another order, for every wmma.mma and every mma of sm_90a.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import registers_of

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand

FP8 = {"e4m3", "e5m2"}
ORDER_UNKNOWN = "ptxas writes a part of D before it has read all operands, which share registers with it"
"""Of wmma.mma with tf32, whose halves take turns, and with a C that is converted first."""


def split_product(step: DecodedInstruction) -> None:
    """Note the parts in which a product writes D, if that shows."""
    action = step.action
    if not isinstance(action, MatrixOp) or action.form.operation.does != "multiply":
        return
    form, count = action.form, len(_indices(step.results[0]))
    if form.op == "wmma.mma":
        half = count // 2
        parts, rereads = (tuple(range(half)), tuple(range(half, count))), True
    elif form.op.startswith("mma") and form.a in FP8:
        parts, rereads = tuple((place,) for place in range(count)), False
    else:
        return
    if not _shows(step, parts, rereads=rereads):
        return
    if form.op == "wmma.mma" and (form.a == "tf32" or form.c != form.d or count == 1):
        step.doubt = ORDER_UNKNOWN
    else:
        step.action = replace(action, parts=parts, rereads_multiplicands=rereads)


def _shows(step: DecodedInstruction, parts: tuple[tuple[int, ...], ...], *, rereads: bool) -> bool:
    """Whether a later part reads a register that an earlier one wrote."""
    d, (a, b, c) = _indices(step.results[0]), (_indices(operand) for operand in step.sources[:3])
    written: set[int] = set()
    for part in parts:
        read = {*a, *b} if rereads else set()
        read |= {c[place] for place in part} if len(c) == len(d) else {*c}
        if written & read:
            return True
        written |= {d[place] for place in part}
    return False


def _indices(operand: PtxOperand) -> list[int]:
    return [register.index for register in registers_of(operand)]
