"""Products that ptxas expands into several machine instructions, and that write a part of D before all is read.

PTX says that an instruction reads its operands before it writes. For two kinds of products ptxas 13.0
emits one machine instruction after the other on the registers as they are named. Where D shares registers
with A, B or another place of C, later parts read what the first ones wrote:

    wmma.mma        of 256 elements: two halves of D, each of which reads A, B and its part of C; a C of f16 below a D
                    of f32 is read before both, and a D of f16 above a C of f32 is written behind both
    mma of fp8      on sm_90 D = C + sum, one register after the other; A and B were read before

Compilers give D registers of its own, or those of C in the same order: then nothing shows. Measured on an H200 with D
in the place of A, of B, and of C in another order, for every wmma.mma and every mma of sm_90a.
"""

from __future__ import annotations

from dataclasses import replace

from warpfrag.isa.qualifiers import Form
from warpfrag.ptx.program.actions import MatrixOp
from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand, registers_of

FP8 = {"e4m3", "e5m2"}
HALVED_ELEMENTS = 256  # of D, in wmma.mma
ORDER_UNKNOWN = "ptxas writes a part of D before it has read all operands, which share registers with it"
"""Of wmma.mma with tf32, whose halves take turns."""


def split_product(inst: DecodedInstruction) -> None:
    """Note the parts in which a product writes D, if that shows."""
    action = inst.action
    if not isinstance(action, MatrixOp) or action.form.operation.does != "multiply" or len(inst.sources) < len("abc"):
        return
    parts, reread = _parts(action.form, len(_indices(inst.results[0])))
    if not _shows(inst, parts, reread):
        return
    if action.form.a == "tf32":
        inst.uncertain = ORDER_UNKNOWN
    else:
        inst.action = replace(action, parts=parts, reread=reread)


def _parts(form: Form, count: int) -> tuple[tuple[tuple[int, ...], ...], str]:
    """The registers of D that are written together, in order, and the operands that are read before each part."""
    if form.op == "wmma.mma" and form.shape.m * form.shape.n == HALVED_ELEMENTS and (form.c, form.d) != ("f32", "f16"):
        half = count // 2
        return (tuple(range(half)), tuple(range(half, count))), "abc" if form.c == form.d else "ab"
    if form.op.startswith("mma") and form.a in FP8:
        return tuple((place,) for place in range(count)), "c"
    return (), ""


def _shows(inst: DecodedInstruction, parts: tuple[tuple[int, ...], ...], reread: str) -> bool:
    """Whether a later part reads a register that an earlier one wrote."""
    d, operands = _indices(inst.results[0]), dict(zip("abc", map(_indices, inst.sources), strict=False))
    if "c" in reread and len(operands["c"]) != len(d):
        return False  # which is refused when it runs
    written: set[int] = set()
    for part in parts:
        read = {index for role in reread if role != "c" for index in operands[role]}
        read |= {operands["c"][place] for place in part} if "c" in reread else set()
        if written & read:
            return True
        written |= {d[place] for place in part}
    return False


def _indices(operand: PtxOperand) -> list[int]:
    return [register.index for register in registers_of(operand)]
