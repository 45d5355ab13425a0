"""Which registers a thread may still read after each step: all others need not be written back.

Lanes that are elsewhere keep what they have, so a register that is dead for the lanes of a run may stay as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.ptx.program.actions import Branch, Call, Leave, Load, Matrix, Move, Pure
from warpfrag.ptx.program.program import Operand, Place, Step, registers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.ptx.program.program import Program


def bits_of(operands: Iterable[Operand]) -> int:
    """Registers as the bits of a number, those of addresses among them."""
    found = 0
    for operand in operands:
        for register in registers_of(operand):
            found |= 1 << register.index
        if isinstance(operand, Place) and operand.base is not None:
            found |= 1 << operand.base.index
    return found


def is_written_whole(step: Step) -> bool:
    """Whether every lane that runs a step gets new results; of other steps nothing is taken for granted."""
    action = step.action
    if isinstance(action, Matrix):
        return step.guard is None and action.operation in {"mma", "ldmatrix"}
    return step.guard is None and isinstance(action, Pure | Move | Load)


def reads_of(step: Step) -> int:
    """What a step reads."""
    found = bits_of(step.sources) | bits_of(step.memory_results)
    if step.guard is not None:
        found |= 1 << step.guard.index
    return found if is_written_whole(step) else found | bits_of(step.results)


def live_after(program: Program) -> list[int]:
    """For every step the registers that may be read after it."""
    steps = program.steps
    reads = [reads_of(step) for step in steps]
    writes = [bits_of(step.results) if is_written_whole(step) else 0 for step in steps]
    before = [0] * (len(steps) + 1)
    after = [0] * len(steps)
    callers = [at for at, step in enumerate(steps) if isinstance(step.action, Call)]
    changed = True
    while changed:
        changed = False
        returned = 0
        for at in callers:
            returned |= before[at + 1] | reads[at]
        for at in range(len(steps) - 1, -1, -1):
            action = steps[at].action
            passes = steps[at].guard is not None or not isinstance(action, Branch | Leave)
            found = before[at + 1] if passes else 0
            for target in steps[at].targets:
                found |= before[target]
            if isinstance(action, Leave):
                found |= returned
            after[at] = found
            found = reads[at] | (found & ~writes[at])
            changed = changed or found != before[at]
            before[at] = found
    return after
