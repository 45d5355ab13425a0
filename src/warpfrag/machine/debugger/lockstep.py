"""Run two kernels side by side, instruction by instruction, and find the origin of the first output that differs.

An origin is an instruction whose operands were equal and whose results differ. A register that differs, and a buffer
with bytes that differ, has an origin: that of the differences which its writer read, or the writer itself if it read
none. If there are several, the earliest is kept, so an output leads back to where the runs first differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import WarpfragError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.debugger.stepping import Position, SteppedBatch
from warpfrag.machine.interpreter.device_memory import MemoryAccess
from warpfrag.machine.interpreter.lane_group import items_of
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Program, Register, registers_of

Bytes = NDArray[np.uint8]
Indices = tuple[int | None, int | None]

CALLS = actions.DirectCall | actions.IndirectCall | actions.Return
MIN_LIKENESS = 0.5  # minimum similarity of two programs for pairing their instructions


class Origin(NamedTuple):
    """The instruction on each side (None if only one ran), the first lane that differs, and both results."""

    time: int  # the number of instructions before this one
    indices: Indices
    row: int
    lane: int
    visit: int
    name: str  # the name of the register or memory that differs
    codes: tuple[int, int]


class Pairing(NamedTuple):
    """The corresponding instructions and registers of two programs, and the programs' similarity."""

    instructions: dict[int, int]
    registers: dict[int, int]
    likeness: float

    @classmethod
    def of(cls, left: Program, right: Program) -> Pairing:
        """Pair instructions by text and registers by name; a program is paired with itself by index."""
        if left is right:
            return cls(dict(enumerate(range(len(left.instructions)))), dict(enumerate(range(len(left.registers)))), 1.0)
        texts = [[inst.text for inst in program.instructions] for program in (left, right)]
        matcher = SequenceMatcher(None, texts[0], texts[1], autojunk=False)
        instructions: dict[int, int] = {}
        for tag, first, last, other, end in matcher.get_opcodes():
            if tag == "equal" or (tag == "replace" and last - first == end - other):
                instructions |= dict(zip(range(first, last), range(other, end), strict=True))
        names = [_registers(program) for program in (left, right)]
        registers = {index: names[1][key] for key, index in names[0].items() if key in names[1]}
        return cls(instructions, registers, matcher.ratio())


def _registers(program: Program) -> dict[tuple[str, int], int]:
    """Map (register name, occurrence) to indices; each function has its own registers."""
    seen: dict[tuple[str, int], int] = {}
    known: set[int] = set()
    counts: Counter[str] = Counter()
    for inst in program.instructions:
        for operand in (*inst.results, *inst.operands_read):
            for item in registers_of(operand):
                if item.index not in known:
                    known.add(item.index)
                    seen[item.name, counts[item.name]] = item.index
                    counts[item.name] += 1
    return seen


class Divergence(NamedTuple):
    """The next lines of two runs that take different paths; 0 for a run that has ended."""

    left: int
    right: int


class Lockstep:
    """Two batches of the same blocks, and the origins of the differences between them."""

    def __init__(self, left: SteppedBatch, right: SteppedBatch, pairing: Pairing) -> None:
        """Create both batches at the entry, with equal memory."""
        self.left, self.right, self.pairing = left, right, pairing
        self.unpaired_right = set(range(len(right.program.instructions))) - set(pairing.instructions.values())
        self.backward = {other: index for index, other in pairing.registers.items()}
        self.registers: dict[int, Origin] = {}  # keyed by register index on the left side
        self.memories: dict[int, Origin] = {}  # keyed by id() of either side's buffer
        self.buffers = self._paired_buffers()
        self.visits: Counter[int] = Counter()
        self.time = 0
        self.origin: Origin | None = None  # the origin of the first output, the failure or the divergence
        self.divergence: Divergence | None = None

    def _paired_buffers(self) -> dict[int, tuple[Bytes, Bytes, str]]:
        """Return both sides' buffers and the name of their memory, by id() of either buffer."""
        mine, yours = self.left.memory, self.right.memory
        pairs = [(mine.shared, yours.shared, "shared memory"), (mine.local, yours.local, "local memory")]
        others = {item.start: item.data for item in yours.allocations}
        pairs += [(item.data, others[item.start], "global memory") for item in mine.allocations if item.start in others]
        return {id(buffer): pair for pair in pairs for buffer in pair[:2]}

    def run(self) -> None:
        """Run until global memory differs, the runs diverge, or both have ended."""
        with np.errstate(all="ignore"):
            while self.origin is None and self.divergence is None and self._advance():
                self.time += 1

    def _advance(self) -> bool:
        mine, yours = self.left.next_position(), self.right.next_position()
        if mine is not None and mine.at not in self.pairing.instructions:
            self._run((mine, None))
        elif yours is not None and yours.at in self.unpaired_right:
            self._run((None, yours))
        elif mine is None or yours is None:
            if mine is not yours:
                self._diverge(mine, yours)
            return False
        elif self.pairing.instructions[mine.at] != yours.at or not _are_same(mine, yours):
            self._diverge(mine, yours)
        else:
            self._run((mine, yours))
        return True

    def _diverge(self, mine: Position | None, yours: Position | None) -> None:
        left, right = (
            batch.inst_at(position).line if position is not None else 0
            for batch, position in ((self.left, mine), (self.right, yours))
        )
        self.divergence = Divergence(left, right)
        self.origin = _earliest(self.registers.values())

    def _run(self, positions: tuple[Position | None, Position | None]) -> None:
        """Run an instruction on both sides, or on one, and compare the results."""
        batches = zip((self.left, self.right), positions, strict=True)
        sides = [(batch, position) for batch, position in batches if position is not None]
        read = [origin for batch, position in sides for origin in self._origins_read(batch, position)]
        written: list[MemoryAccess] = []
        for batch, _ in sides:
            batch.memory.accesses = []
            try:
                batch.advance()
            except WarpfragError:
                self.origin = _earliest(read)
                raise
            for access in batch.memory.accesses:
                if id(access.buffer) in self.memories:
                    read.append(self.memories[id(access.buffer)])
                if access.writes:
                    written.append(access)
            batch.memory.accesses = None
        left, right = (None if position is None else position.at for position in positions)
        key = left if left is not None else -1 - (right or 0)
        visit, self.visits[key] = self.visits[key], self.visits[key] + 1
        cause = _earliest(read) or Origin(self.time, (left, right), 0, 0, visit, "", (0, 0))
        for batch, position in sides:
            for index, name in self._registers_written(batch, batch.inst_at(position)):
                self._compare_register(index, name, cause)
        for access in written:
            self._compare_bytes(access, cause)

    def _own_index(self, batch: SteppedBatch, index: int) -> int | None:
        """Return the left side's index for a register of either side."""
        return index if batch is self.left else self.backward.get(index)

    def _origins_read(self, batch: SteppedBatch, position: Position) -> list[Origin]:
        """Return the origins of the registers that an instruction reads and that differ in an active lane."""
        inst, group = batch.inst_at(position), position.group
        operands = list(inst.operands_read)
        is_wgmma = isinstance(inst.action, actions.MatrixOp) and inst.action.operation == "wgmma"
        origins: list[Origin] = []
        if is_wgmma:  # wgmma reads D as C, and shared memory through descriptors
            operands += inst.results
            origins += [self.memories[key] for key in (id(batch.memory.shared),) if key in self.memories]
        for index in {self._own_index(batch, item.index) for operand in operands for item in registers_of(operand)}:
            if index is not None and index in self.registers:
                mine, yours = (group.of(codes) for codes in self._codes(index))
                origins += [self.registers[index]] if (mine != yours)[group.mask].any() else []
        return origins

    def _registers_written(self, batch: SteppedBatch, inst: DecodedInstruction) -> list[tuple[int, str]]:
        """Return the names of the registers that an instruction may have changed, by the left side's index."""
        if isinstance(inst.action, CALLS):
            return [(index, f"register {index}") for index in self.pairing.registers if index not in self.registers]
        items = [item for result in inst.results for item in items_of(result) if isinstance(item, Register)]
        own = [(self._own_index(batch, item.index), item.name) for item in items]
        return [(index, name) for index, name in own if index is not None and index in self.pairing.registers]

    def _codes(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        return self.left.registers[index], self.right.registers[self.pairing.registers[index]]

    def _compare_register(self, index: int, name: str, cause: Origin) -> None:
        """Record or clear the origin of a register, depending on whether it now differs."""
        mine, yours = self._codes(index)
        differs = mine != yours if mine.dtype == yours.dtype else np.zeros(mine.shape, np.bool_)
        if not differs.any():
            self.registers.pop(index, None)
        else:
            row, lane = (int(axis) for axis in np.argwhere(differs)[0])
            codes = int(mine[row, lane]), int(yours[row, lane])
            self.registers[index] = cause if cause.name else cause._replace(row=row, lane=lane, name=name, codes=codes)

    def _compare_bytes(self, access: MemoryAccess, cause: Origin) -> None:
        """Record the origin of stored bytes that differ; in global memory they are an output."""
        mine, yours, name = self.buffers.get(id(access.buffer), (access.buffer, access.buffer, ""))
        cells = access.offsets[:, None] + np.arange(access.size)
        differs = (mine[cells] != yours[cells]).any(axis=1)
        if not differs.any():
            return
        if not cause.name:
            first = int(differs.argmax())
            row, lane = divmod(int(access.threads[first]), LANES)
            words = [int.from_bytes(buffer[cells[first]][:8].tobytes(), "little") for buffer in (mine, yours)]
            cause = cause._replace(row=row, lane=lane, name=name, codes=(words[0], words[1]))
        for buffer in (mine, yours):
            self.memories.setdefault(id(buffer), cause)
        if name == "global memory" and self.origin is None:
            self.origin = cause


def _earliest(origins: Iterable[Origin]) -> Origin | None:
    return min(origins, key=lambda origin: origin.time, default=None)


def _are_same(mine: Position, yours: Position) -> bool:
    """Return True if two positions have the same lanes."""
    return np.array_equal(mine.group.warp_rows, yours.group.warp_rows) and np.array_equal(
        mine.group.mask, yours.group.mask
    )
