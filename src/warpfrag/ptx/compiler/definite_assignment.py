"""Definite assignment: which registers may be read before anything has written them.

A forward dataflow analysis over the blocks of a program: a register is assigned where all paths from the entry have
written it. A step with a guard may not run, so what it writes does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.ptx.compiler.liveness import MAX_BITS, indices_of
from warpfrag.ptx.program.actions import Branch, Return

if TYPE_CHECKING:
    from warpfrag.ptx.program.program import DecodedInstruction, Program


def registers_read(step: DecodedInstruction) -> set[int]:
    """The registers whose values a step needs: sources, addresses and the guard."""
    registers = indices_of(step.sources) | indices_of(step.memory_results)
    return registers if step.guard is None else registers | {step.guard.index}


def bits_of(registers: set[int]) -> int:
    """Registers as the bits of an integer."""
    code = bytearray(max(registers, default=0) // 8 + 1)
    for register in registers:
        code[register >> 3] |= 1 << (register & 7)
    return int.from_bytes(code, "little")


def block_needs(steps: list[DecodedInstruction]) -> tuple[int, int]:
    """The registers that a block reads before it has surely written them, and those that it surely writes."""
    needed: set[int] = set()
    written: set[int] = set()
    for step in steps:
        needed |= registers_read(step) - written
        if step.guard is None:
            written |= indices_of(step.results)
    return bits_of(needed), bits_of(written)


def maybe_unassigned(program: Program) -> set[int] | None:
    """The registers that some step may read before they are written; None where the program is too large."""
    steps, ends = program.steps, program.ends
    if len(program.registers) * len(program.leaders) > MAX_BITS:
        return None
    assigned: dict[int, int] = {0: 1 << program.frame.index} if steps else {}  # before a block
    needs: dict[int, tuple[int, int]] = {}
    queue = list(assigned)
    while queue:
        start = queue.pop()
        if start not in needs:
            needs[start] = block_needs(steps[start : ends[start]])
        known = assigned[start] | needs[start][1]
        last = steps[ends[start] - 1]
        leaves = last.guard is None and isinstance(last.action, Branch | Return)
        for after in (*last.targets, *(() if leaves else (ends[start],))):
            before = assigned.get(after)
            both = known if before is None else known & before
            if after < len(steps) and both != before:
                assigned[after] = both
                queue.append(after)
    missing = 0
    for start, (needed, _) in needs.items():
        missing |= needed & ~assigned[start]
    return {at for at in range(missing.bit_length()) if missing >> at & 1}
