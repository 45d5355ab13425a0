"""Liveness: which registers a thread may still read after each step. Dead ones are not written back.

Only registers that a block reads before it writes them can be live between blocks. For each block those at its start
are a set (the bits of an integer); inside of a block one set is carried from its end to its start, so that memory
does not grow with registers times steps. Where there are so many blocks and registers that even this would, all
registers that some block reads count as live everywhere: then more is written back than need be. Lanes that are at
other steps keep their values, so a register that is dead for the lanes of a segment may stay as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from warpfrag.ptx.program.actions import Branch, DirectCall, LaneOp, MatrixOp, MemoryLoad, Move, Return
from warpfrag.ptx.program.program import DecodedInstruction, MemoryOperand, PtxOperand, Register, registers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from warpfrag.ptx.program.program import Program

MAX_BITS = 1 << 28  # blocks times registers that are read across them
MAX_VISITS = 64  # of each block, on average, until nothing changes


def indices_of(operands: Iterable[PtxOperand]) -> set[int]:
    """The registers of operands, those of addresses among them."""
    registers: set[int] = set()
    for operand in operands:
        if isinstance(operand, Register):  # most are
            registers.add(operand.index)
            continue
        registers.update(register.index for register in registers_of(operand))
        if isinstance(operand, MemoryOperand) and operand.base is not None:
            registers.add(operand.base.index)
    return registers


def is_written_whole(step: DecodedInstruction) -> bool:
    """Whether a step is known to write its results in every lane that runs it."""
    action = step.action
    if isinstance(action, MatrixOp):
        return step.guard is None and action.operation in {"mma", "ldmatrix"}
    return step.guard is None and isinstance(action, LaneOp | Move | MemoryLoad)


def reads_of(step: DecodedInstruction) -> set[int]:
    """The registers that a step reads; where results are not written in every lane, they count as read."""
    registers = indices_of(step.sources) | indices_of(step.memory_results)
    if step.guard is not None:
        registers.add(step.guard.index)
    return registers if is_written_whole(step) else registers | indices_of(step.results)


def effects_of(step: DecodedInstruction) -> dict[int, bool]:
    """The registers that a step names: True where it reads them, False where it writes them whole."""
    written = dict.fromkeys(indices_of(step.results), False) if is_written_whole(step) else {}
    return written | dict.fromkeys(reads_of(step), True)


class LiveSet:
    """The registers that are live at a step, as one walks back through a block: ask with `in`."""

    def __init__(self, places: dict[int, int], bits: bytes) -> None:
        """Begin at the end of a block, with the registers that are live after it, as bits by their places."""
        self.places, self.bits = places, bits
        self.inside: dict[int, bool] = {}  # of registers that the block names further on: whether they are live

    def __contains__(self, register: int) -> bool:
        """Whether a register may still be read."""
        place = self.places.get(register)
        across = place is not None and bool(self.bits[place >> 3] >> (place & 7) & 1)
        return self.inside.get(register, across)

    def step_back(self, effects: dict[int, bool]) -> None:
        """Go from behind a step to before it."""
        self.inside.update(effects)

    def changes(self) -> tuple[set[int], set[int]]:
        """The registers that the steps so far read before they write them, and those that they write first."""
        read = {register for register, is_live in self.inside.items() if is_live}
        return read, self.inside.keys() - read


class BlockLiveness:
    """What is live where blocks meet: a backward dataflow analysis of the registers that some block reads first."""

    def __init__(self, program: Program) -> None:
        """Find what each block reads and writes, then what is live before each, until nothing changes."""
        steps = self.steps = program.steps
        self.effects = [effects_of(step) for step in steps]
        self.starts = sorted({0, *program.ends} - {len(steps)}) if steps else []
        self.ends = [program.ends[start] for start in self.starts]
        self.number = {start: number for number, start in enumerate(self.starts)}
        changes = []
        for start, end in zip(self.starts, self.ends, strict=True):
            block = LiveSet({}, b"")
            for at in range(end - 1, start - 1, -1):
                block.step_back(self.effects[at])
            changes.append(block.changes())
        self.crossing = sorted(set().union(*(read for read, _ in changes)))
        self.places = {register: place for place, register in enumerate(self.crossing)}
        self.everything = (1 << len(self.crossing)) - 1
        calls = [step for step in steps if isinstance(step.action, DirectCall)]
        self.returned = self.bits_of(set().union(*map(reads_of, calls)))  # live after a function
        self.before = [self.everything] * len(self.starts)
        if len(self.crossing) * len(self.starts) <= MAX_BITS:
            self.before = [0] * len(self.starts)
            self._propagate([(self.bits_of(read), ~self.bits_of(written)) for read, written in changes])

    def bits_of(self, registers: Iterable[int]) -> int:
        """Registers that cross blocks as the bits of an integer; others are left out."""
        code = bytearray(len(self.crossing) // 8 + 1)
        for register in registers:
            place = self.places.get(register)
            if place is not None:
                code[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(code, "little")

    def after(self, number: int) -> int:
        """What is live after a block, as bits: what is before those that follow it."""
        last = self.ends[number] - 1
        step = self.steps[last]
        passes = step.guard is not None or not isinstance(step.action, Branch | Return)
        live = self._before(last + 1) if passes else 0
        for target in step.targets:
            live |= self._before(target)
        return live | self.returned if isinstance(step.action, Return) else live

    def _before(self, at: int) -> int:
        return self.before[self.number[at]] if at in self.number else 0

    def _propagate(self, changes: list[tuple[int, int]]) -> None:
        """Visit blocks whose successors have changed, until none is left; after too many visits all is live."""
        predecessors: list[set[int]] = [set() for _ in self.starts]
        returns, behind_calls = [], set()
        for number, end in enumerate(self.ends):
            step = self.steps[end - 1]
            for at in (end, *step.targets):
                if at in self.number:
                    predecessors[self.number[at]].add(number)
            if isinstance(step.action, Return):
                returns.append(number)
            elif isinstance(step.action, DirectCall) and end in self.number:
                behind_calls.add(self.number[end])
        queue, queued = list(range(len(self.starts))), set(range(len(self.starts)))
        visits = MAX_VISITS * len(queue)
        while queue:
            number = queue.pop()
            queued.discard(number)
            read, kept = changes[number]
            live = read | (self.after(number) & kept)
            if live == self.before[number]:
                continue
            visits -= 1
            if visits < 0:
                self.before, self.returned = [self.everything] * len(self.starts), self.everything
                return
            self.before[number] = live
            changed = set(predecessors[number])
            if number in behind_calls and live | self.returned != self.returned:
                self.returned |= live
                changed.update(returns)
            for other in sorted(changed - queued):
                queued.add(other)
                queue.append(other)


LIVENESS: WeakKeyDictionary[Program, BlockLiveness] = WeakKeyDictionary()


def liveness_of(program: Program) -> BlockLiveness:
    """What is live where the blocks of a program meet: found once."""
    known = LIVENESS.get(program)
    if known is None:
        known = LIVENESS[program] = BlockLiveness(program)
    return known


def live_after(program: Program) -> Iterator[tuple[int, LiveSet]]:
    """Every step from the last to the first, with the registers that may be read after it."""
    blocks = liveness_of(program)
    size = len(blocks.crossing) // 8 + 1
    for number in range(len(blocks.starts) - 1, -1, -1):
        live = LiveSet(blocks.places, blocks.after(number).to_bytes(size, "little"))
        for at in range(blocks.ends[number] - 1, blocks.starts[number] - 1, -1):
            yield at, live
            live.step_back(blocks.effects[at])


def outliving(program: Program) -> LiveSet:
    """The registers that are live after some block."""
    blocks = liveness_of(program)
    bits = 0
    for number in range(len(blocks.starts)):
        bits |= blocks.after(number)
    return LiveSet(blocks.places, bits.to_bytes(len(blocks.crossing) // 8 + 1, "little"))
