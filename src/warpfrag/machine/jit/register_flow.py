"""Liveness: the registers that a thread may still read after each instruction. Dead registers are not written back.

Only registers that a block reads before it writes them can be live between blocks. The registers that are live at the
start of each block form a set (the bits of an integer). Inside a block, a single set is updated from the block's end to
its start, so memory does not grow with registers times instructions. If there are too many blocks and registers even
for this, all registers that any block reads first count as live everywhere, and more registers are written back than
necessary. Only the lanes that run a segment matter: other lanes keep the register values that they have in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakKeyDictionary

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.warp_state import INEXACT
from warpfrag.machine.ir.actions import Branch, DirectCall, IndirectCall, LaneOp, MatrixOp, MemoryLoad, Move, Return
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    MarkedRegisters,
    Program,
    SpecialRegister,
    VectorOperand,
    indices_of,
)
from warpfrag.machine.ir.scalar_types import container

REGISTER_ALIGN = 64  # alignment in bytes: the size of an AVX-512 register
MAX_BITS = 1 << 28  # maximum of blocks times cross-block registers that the analysis handles
MAX_VISITS = 64  # the average number of visits per block after which the analysis gives up


def is_written_whole(inst: DecodedInstruction) -> bool:
    """Return True if an instruction writes its results in every lane that executes it."""
    action = inst.action
    if isinstance(action, MatrixOp):
        return inst.guard is None and action.operation in {"mma", "ldmatrix"}
    return inst.guard is None and isinstance(action, LaneOp | Move | MemoryLoad)


def registers_read(inst: DecodedInstruction) -> set[int]:
    """Return the registers whose values an instruction needs: sources, address registers and the guard."""
    if inst.attributes.opcode == "first_value" and inst.guard is None and isinstance(inst.sources[1], Immediate):
        return indices_of(inst.sources[:1])  # every lane receives a value, so the old value is not needed
    return indices_of(inst.operands_read)


def reads_of(inst: DecodedInstruction) -> set[int]:
    """Return the registers that an instruction reads, including results that it writes only in some lanes."""
    return registers_read(inst) | (set() if is_written_whole(inst) else indices_of(inst.results))


def effects_of(inst: DecodedInstruction) -> dict[int, bool]:
    """Map each register of an instruction to True if it is read, or False if it is written in every lane."""
    written = dict.fromkeys(indices_of(inst.results), False) if is_written_whole(inst) else {}
    return written | dict.fromkeys(reads_of(inst), True)


class LiveSet:
    """The registers that are live at an instruction, during a backward walk through a block."""

    def __init__(self, places: dict[int, int], bits: bytes) -> None:
        """Start at the end of a block; `bits` encodes its live registers, and `places` gives the bit of each."""
        self.places, self.bits = places, bits
        # True for registers that the rest of the block reads first, False for those that it writes first
        self.inside: dict[int, bool] = {}

    def __contains__(self, register: int) -> bool:
        """Return True if a register may still be read."""
        place = self.places.get(register)
        across = place is not None and bool(self.bits[place >> 3] >> (place & 7) & 1)
        return self.inside.get(register, across)

    def step_back(self, effects: dict[int, bool]) -> None:
        """Step backwards over one instruction, given its effects."""
        self.inside.update(effects)

    def changes(self) -> tuple[set[int], set[int]]:
        """Return the registers that the visited instructions read first, and those that they write first."""
        read = {register for register, is_live in self.inside.items() if is_live}
        return read, self.inside.keys() - read


class BlockLiveness:
    """The live registers between blocks: a backward dataflow analysis of the registers that some block reads first."""

    def __init__(self, program: Program, effects: Callable[[DecodedInstruction], dict[int, bool]] = effects_of) -> None:
        """Run the analysis to a fixed point."""
        instructions = self.instructions = program.instructions
        self.effects = [effects(inst) for inst in instructions]
        self.starts = sorted({0, *program.ends} - {len(instructions)}) if instructions else []
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
        calls = [inst for inst in instructions if isinstance(inst.action, DirectCall)]
        self.returned = self.bits_of(set().union(*map(reads_of, calls)))  # registers that are live after a return
        self.before = [self.everything] * len(self.starts)
        self.is_exact = len(self.crossing) * len(self.starts) <= MAX_BITS
        if self.is_exact:
            self.before = [0] * len(self.starts)
            self._propagate([(self.bits_of(read), ~self.bits_of(written)) for read, written in changes])

    def bits_of(self, registers: Iterable[int]) -> int:
        """Encode a set of registers as an integer's bits, ignoring registers that no block reads before writing."""
        code = bytearray(len(self.crossing) // 8 + 1)
        for register in registers:
            place = self.places.get(register)
            if place is not None:
                code[place >> 3] |= 1 << (place & 7)
        return int.from_bytes(code, "little")

    def after(self, number: int) -> int:
        """Return the registers that are live after a block, encoded as bits."""
        last = self.ends[number] - 1
        inst = self.instructions[last]
        passes = inst.guard is not None or not isinstance(inst.action, Branch | Return)
        live = self._before(last + 1) if passes else 0
        for target in inst.targets:
            live |= self._before(target)
        return live | self.returned if isinstance(inst.action, Return) else live

    def _before(self, at: int) -> int:
        return self.before[self.number[at]] if at in self.number else 0

    def _propagate(self, changes: list[tuple[int, int]]) -> None:
        """Propagate liveness to a fixed point; if this takes too many visits, treat every register as live."""
        predecessors: list[set[int]] = [set() for _ in self.starts]
        returns, after_calls = [], set()
        for number, end in enumerate(self.ends):
            inst = self.instructions[end - 1]
            for at in (end, *inst.targets):
                if at in self.number:
                    predecessors[self.number[at]].add(number)
            if isinstance(inst.action, Return):
                returns.append(number)
            elif isinstance(inst.action, DirectCall) and end in self.number:
                after_calls.add(self.number[end])
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
                self.is_exact = False
                return
            self.before[number] = live
            changed = set(predecessors[number])
            if number in after_calls and live | self.returned != self.returned:
                self.returned |= live
                changed.update(returns)
            for other in sorted(changed - queued):
                queued.add(other)
                queue.append(other)


LIVENESS: WeakKeyDictionary[Program, BlockLiveness] = WeakKeyDictionary()


def liveness_of(program: Program) -> BlockLiveness:
    """Return a program's block liveness, which is computed once."""
    known = LIVENESS.get(program)
    if known is None:
        known = LIVENESS[program] = BlockLiveness(program)
    return known


def live_after(program: Program, start: int = 0, end: int = MAX_BITS) -> Iterator[tuple[int, LiveSet]]:
    """Yield the indices of the given instructions from last to first, with the registers that are live after each."""
    blocks = liveness_of(program)
    size = len(blocks.crossing) // 8 + 1
    for number in range(len(blocks.starts) - 1, -1, -1):
        if not start <= blocks.starts[number] < end:
            continue
        live = LiveSet(blocks.places, blocks.after(number).to_bytes(size, "little"))
        for at in range(blocks.ends[number] - 1, blocks.starts[number] - 1, -1):
            yield at, live
            live.step_back(blocks.effects[at])


def outliving(program: Program) -> LiveSet:
    """Return the registers that are live after at least one block."""
    blocks = liveness_of(program)
    bits = 0
    for number in range(len(blocks.starts)):
        bits |= blocks.after(number)
    return LiveSet(blocks.places, bits.to_bytes(len(blocks.crossing) // 8 + 1, "little"))


def assignments_of(inst: DecodedInstruction) -> dict[int, bool]:
    """Map each register of an instruction to True if it is read, or False if it is certainly written."""
    written = dict.fromkeys(indices_of(inst.results), False) if inst.guard is None else {}
    return written | dict.fromkeys(registers_read(inst), True)


def maybe_unassigned(program: Program) -> set[int] | None:
    """Return the registers that may be read before they are written (live at the entry), or None if unknown."""
    blocks = BlockLiveness(program, assignments_of)
    if not blocks.is_exact:
        return None
    bits = blocks.before[0] if blocks.before else 0
    return {register for register, place in blocks.places.items() if bits >> place & 1} - {program.frame.index}


def passes_marks(inst: DecodedInstruction) -> bool:
    """Return True if an instruction passes its operands' marks on to its results."""
    return isinstance(inst.action, LaneOp | Move) or inst.attributes.opcode in {"shfl", "first_value"}


def marked_registers(program: Program) -> MarkedRegisters | None:
    """Return the registers that may be read unwritten, with those computed from them; None if they are not tracked."""
    if not program.assigns_registers:
        return program.find_unassigned(program) if program.find_unassigned else None
    calls = any(isinstance(inst.action, DirectCall | IndirectCall) for inst in program.instructions)
    marked = None if calls else maybe_unassigned(program)
    if marked is None:
        return None
    results: dict[int, set[int]] = defaultdict(set)
    for inst in program.instructions if marked else ():
        if passes_marks(inst):
            for register in indices_of(inst.sources):
                results[register] |= indices_of(inst.results)
    queue = list(marked)
    while queue:
        new = results[queue.pop()] - marked
        marked |= new
        queue += new
    return MarkedRegisters(
        tuple(frozenset(marked & registers_read(inst)) for inst in program.instructions),
        tuple(frozenset(marked & indices_of(inst.results)) for inst in program.instructions),
    )


@dataclass(frozen=True)
class RegisterLayout:
    """The byte offsets of the registers in a warp's row of the register buffer.

    `special` gives the offsets of constant special registers by name; they follow the declared registers.
    """

    offsets: tuple[int, ...]
    special: dict[str, int]
    bytes: int
    maps_addresses: bool = False  # True if a generic address may refer to another block's shared memory
    marks: dict[int, int] = field(default_factory=dict)  # the offset of each register's marks
    marked: MarkedRegisters | None = None  # None if marks are not tracked

    @staticmethod
    def of(program: Program) -> RegisterLayout:
        """Lay out a program's registers; registers that are live between blocks come first."""
        outlive = outliving(program)
        at, offsets = 0, [0] * len(program.registers)
        for index in sorted(range(len(offsets)), key=lambda index: index not in outlive):
            offsets[index] = at
            at += max(REGISTER_ALIGN, LANES * container(program.registers[index]).itemsize)
        special: dict[str, int] = {}
        for inst in program.instructions:
            for operand in inst.sources:
                for item in operand.items if isinstance(operand, VectorOperand) else (operand,):
                    if isinstance(item, SpecialRegister) and item.name not in special and is_fixed(item.name):
                        special[item.name] = at
                        at += LANES * 4
        maps = any(inst.attributes.opcode == "mapa" for inst in program.instructions)
        maps |= program.has_absolute_ranks
        marked = marked_registers(program)
        read = set().union(*marked.reads) if marked is not None else set()
        marks = {index: at + 4 * number for number, index in enumerate(sorted(read))}
        size = -(-(at + 4 * len(marks)) // REGISTER_ALIGN) * REGISTER_ALIGN
        return RegisterLayout(tuple(offsets), special, size, maps, marks, marked)


@lru_cache(maxsize=64)
def dropped_special_registers(program: Program) -> set[str]:
    """Return the special registers that are read but whose values cannot reach memory or control flow."""
    producers: dict[int, list[DecodedInstruction]] = defaultdict(list)
    queue = []
    for inst in program.instructions:
        if isinstance(inst.action, LaneOp | Move):
            for register in indices_of(inst.results):
                producers[register].append(inst)
        else:
            queue.append(inst)
    used: set[str] = set()
    while queue:
        inst = queue.pop()
        used |= special_registers_of(inst)
        for register in registers_read(inst):
            queue += producers.pop(register, [])
    return {name for inst in program.instructions for name in special_registers_of(inst)} - used


def special_registers_of(inst: DecodedInstruction) -> set[str]:
    """Return the names of the special registers that an instruction reads."""
    items = [item for operand in inst.sources for item in getattr(operand, "items", (operand,))]
    return {item.name for item in items if isinstance(item, SpecialRegister)}


def is_fixed(name: str) -> bool:
    """Return True if a special register is constant and has the same value as on a GPU."""
    return name.split(".", maxsplit=1)[0] not in INEXACT
