"""Liveness: which registers a thread may still read after each step. Dead ones are not written back.

Sets of registers are the bits of an integer. Lanes that are at other steps keep their values, so a register that is
dead for the lanes of a segment may stay as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.ptx.program.actions import Branch, DirectCall, LaneOp, MatrixOp, MemoryLoad, Move, Return
from warpfrag.ptx.program.program import DecodedInstruction, MemoryOperand, PtxOperand, registers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.ptx.program.program import Program


def bits_of(operands: Iterable[PtxOperand]) -> int:
    """The registers of operands, those of addresses among them."""
    registers = 0
    for operand in operands:
        for register in registers_of(operand):
            registers |= 1 << register.index
        if isinstance(operand, MemoryOperand) and operand.base is not None:
            registers |= 1 << operand.base.index
    return registers


def is_written_whole(step: DecodedInstruction) -> bool:
    """Whether a step is known to write its results in every lane that runs it."""
    action = step.action
    if isinstance(action, MatrixOp):
        return step.guard is None and action.operation in {"mma", "ldmatrix"}
    return step.guard is None and isinstance(action, LaneOp | Move | MemoryLoad)


def reads_of(step: DecodedInstruction) -> int:
    """The registers that a step reads; where results are not written in every lane, they count as read."""
    registers = bits_of(step.sources) | bits_of(step.memory_results)
    if step.guard is not None:
        registers |= 1 << step.guard.index
    return registers if is_written_whole(step) else registers | bits_of(step.results)


def live_after(program: Program) -> list[int]:
    """For every step the registers that may be read after it: a backward dataflow analysis, until nothing changes."""
    steps = program.steps
    reads = [reads_of(step) for step in steps]
    writes = [bits_of(step.results) if is_written_whole(step) else 0 for step in steps]
    before = [0] * (len(steps) + 1)
    after = [0] * len(steps)
    callers = [at for at, step in enumerate(steps) if isinstance(step.action, DirectCall)]
    changed = True
    while changed:
        changed = False
        returned = 0
        for at in callers:
            returned |= before[at + 1] | reads[at]
        for at in range(len(steps) - 1, -1, -1):
            action = steps[at].action
            passes = steps[at].guard is not None or not isinstance(action, Branch | Return)
            live = before[at + 1] if passes else 0
            for target in steps[at].targets:
                live |= before[target]
            if isinstance(action, Return):
                live |= returned
            after[at] = live
            live = reads[at] | (live & ~writes[at])
            changed = changed or live != before[at]
            before[at] = live
    return after
