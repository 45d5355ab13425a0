"""Which steps a compiler keeps: those that do something, and those whose results a kept step reads.

The analysis goes backwards through the blocks until nothing changes. A register is live where a kept step may read it
before it is written again; a step without effects whose results are not live is left out by an optimising compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.ptx.program.actions import Branch, LaneOp, MemoryLoad, Move, NoOp, Return
from warpfrag.ptx.program.program import registers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.ptx.program.program import DecodedInstruction, Register

ORDERED_LOADS = ("volatile", "relaxed", "acquire", "mmio")


def kept_steps(steps: Sequence[DecodedInstruction], leaders: set[int], ends: Sequence[int]) -> set[int]:
    """The places of the steps that are kept."""
    returned = {
        item.index for step in steps for copy in step.returns for part in copy[:2] for item in registers_of(part)
    }
    blocks = sorted({0, *(leader for leader in leaders if leader < len(steps))})
    live: dict[int, set[int]] = {block: set() for block in blocks}
    kept, size = set[int](), -1
    while size != len(kept) + sum(map(len, live.values())):
        size = len(kept) + sum(map(len, live.values()))
        for block in reversed(blocks):
            last = ends[block] - 1
            current = set(returned) if isinstance(steps[last].action, Return) else set()
            for after in successors(steps[last], last + 1):
                current |= live.get(after, set())
            for at in range(last, block - 1, -1):
                _step_back(steps[at], at, current, kept)
            live[block] |= current
    return kept


def readers_behind(steps: Sequence[DecodedInstruction], at: int, register: Register) -> Iterator[int]:
    """The places of the steps that may read what a register holds behind a step, as an operand or as their guard."""
    pending, seen = list(successors(steps[at], at + 1)), set[int]()
    while pending:
        place = pending.pop()
        if place in seen or place >= len(steps):
            continue
        seen.add(place)
        step = steps[place]
        operands = (*step.sources, *step.memory_results, *((step.guard,) if step.guard is not None else ()))
        if any(item.index == register.index for operand in operands for item in registers_of(operand)):
            yield place
        if step.guard is not None or all(item.index != register.index for item in written_registers(step)):
            pending += successors(step, place + 1)


def _step_back(step: DecodedInstruction, at: int, live: set[int], kept: set[int]) -> None:
    """The registers that are live before a step, of those behind it."""
    written = {register.index for register in written_registers(step)}
    if not _has_no_effect(step) or written & live:
        kept.add(at)
    if at not in kept:
        return
    if step.guard is None:
        live -= written
    else:
        live.add(step.guard.index)
    operands = (*step.sources, *step.memory_results)
    live.update(register.index for operand in operands for register in registers_of(operand))


def _has_no_effect(step: DecodedInstruction) -> bool:
    """Whether a step does nothing but write its registers."""
    if isinstance(step.action, MemoryLoad):
        return not any(word in step.name for word in ORDERED_LOADS)
    return isinstance(step.action, LaneOp | Move | NoOp) and not step.copies and not step.returns


def written_registers(step: DecodedInstruction) -> Iterator[Register]:
    """Every register that a step writes."""
    for operand in (*step.results, *(copy.target for copy in (*step.returns, *step.copies))):
        yield from registers_of(operand)


def successors(step: DecodedInstruction, end: int) -> Iterator[int]:
    """The blocks behind the last step of a block; those of functions start without knowledge."""
    if isinstance(step.action, Branch):
        yield from step.targets
        if step.guard is not None:
            yield end
    elif not isinstance(step.action, Return) or step.guard is not None:
        yield end
