"""The operands of tcgen05: those of its words, as `isa.tcgen05` lists them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.errors import ParseError, PtxError
from warpfrag.isa.tcgen05_spelling import operand_facts
from warpfrag.ptx.program.program import Discard, Immediate, MemoryOperand, Register, VectorOperand

if TYPE_CHECKING:
    from warpfrag.ptx.program.actions import TensorThreadOp
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand


def take_reduction(step: DecodedInstruction) -> None:
    """ld.red has a second result before its address: what the registers reduce to."""
    if step.results and step.sources and isinstance(step.sources[0], Register):
        step.results, step.sources = (*step.results, step.sources[0]), step.sources[1:]


def check_tensor_operands(step: DecodedInstruction, action: TensorThreadOp) -> None:
    """Refuse operands that are not those of the words: as many, in brackets or braces where they are to be."""
    operands = (*step.results, *step.sources)
    try:
        facts = operand_facts(action.spelling, [_described(operand) for operand in operands])
        problem = replace(action.spelling, facts=tuple(facts.items())).problem
    except ParseError as error:
        raise PtxError(step.line, str(error)) from None
    if problem:
        raise PtxError(step.line, f"{step.name}: {problem}")
    for operand in operands:
        for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
            if not isinstance(item, MemoryOperand | Immediate | Register | Discard):
                raise PtxError(step.line, f"expected registers, numbers and addresses of {step.name}, got {step.text}")


def _described(operand: PtxOperand) -> str:
    """An operand as the checks of `isa` read one."""
    if isinstance(operand, MemoryOperand):
        return "[address]"
    if isinstance(operand, VectorOperand):
        return "{" + ", ".join("register" for _ in operand.items) + "}"
    return str(operand.code(None)) if isinstance(operand, Immediate) else "register"
