"""The origin of a difference between two runs: one node for each lane of an instruction whose results differ.

The parent of a node is the difference that the lane read. A node without a parent is an origin: everything that it read
was equal. Registers and bytes of memory hold the number of the node that made them differ, 0 if they are equal. If an
instruction reads several differences, the one with the earliest origin is followed, so the path leads back to the
point where the runs first differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import WarpfragError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.debugger.debug_views import WARPGROUP, staged_offsets
from warpfrag.machine.debugger.stepping import Position, SteppedBatch
from warpfrag.machine.interpreter.device_memory import MemoryAccess
from warpfrag.machine.interpreter.lane_group import items_of
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Program, Register, registers_of

Nodes = NDArray[np.int64]
BufferPair = tuple[NDArray[np.uint8], NDArray[np.uint8], int | None]

NO_ROOT = np.iinfo(np.int64).max


class NodeFacts(NamedTuple):
    """A node: its instruction on both sides (None if only one ran), its lane, and the values that differ."""

    left: int | None
    right: int | None
    row: int
    lane: int
    visit: int
    name: str  # of the register, or of the memory
    codes: tuple[int, int]
    parent: int


@dataclass
class DifferingInstruction:
    """An instruction with different results in some lanes, one node for each."""

    left: int | None
    right: int | None
    visit: int
    name: str
    rows: Nodes
    lanes: Nodes
    parents: Nodes
    codes: tuple[NDArray[np.uint64], NDArray[np.uint64]]


class Provenance:
    """All nodes, numbered from 1 in the order of their creation."""

    def __init__(self) -> None:
        """Start with no differences."""
        self.instructions: list[DifferingInstruction] = []
        self.starts: list[int] = []
        self.roots: Nodes = np.full(1, NO_ROOT, np.int64)
        self.count = 1

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.count - 1

    def add(self, inst: DifferingInstruction) -> Nodes:
        """Add one node for each differing lane of an instruction, and return their numbers."""
        size = len(inst.rows)
        numbers = np.arange(self.count, self.count + size)
        while len(self.roots) < self.count + size:
            self.roots = np.concatenate([self.roots, np.full(max(1024, len(self.roots)), NO_ROOT, np.int64)])
        self.roots[numbers] = np.where(inst.parents > 0, self.roots[inst.parents], numbers)
        self.instructions.append(inst)
        self.starts.append(self.count)
        self.count += size
        return numbers

    def earliest(self, candidates: Nodes) -> Nodes:
        """Return the node with the earliest origin along the first axis; 0 if there is none."""
        if not len(candidates):
            return np.zeros(candidates.shape[1:], np.int64)
        chosen = self.roots[candidates].argmin(axis=0)
        best: Nodes = np.take_along_axis(candidates, chosen[None], axis=0)[0]
        return best

    def facts(self, node: int) -> NodeFacts:
        """Return the facts of a node."""
        number = bisect_right(self.starts, node) - 1
        inst, at = self.instructions[number], node - self.starts[number]
        codes = int(inst.codes[0][at]), int(inst.codes[1][at])
        row, lane, parent = int(inst.rows[at]), int(inst.lanes[at]), int(inst.parents[at])
        return NodeFacts(inst.left, inst.right, row, lane, inst.visit, inst.name, codes, parent)

    def chain(self, node: int) -> list[NodeFacts]:
        """Return the path from an origin to a node, the origin first."""
        facts = []
        while node:
            facts.append(self.facts(node))
            node = facts[-1].parent
        return facts[::-1]


READS_WHAT_IT_WRITES = actions.Atomic | actions.MemoryBarrier
CALLS = actions.DirectCall | actions.IndirectCall | actions.Return
MIN_LIKENESS = 0.5  # minimum similarity of two programs whose instructions are paired


class Pairing(NamedTuple):
    """The corresponding instructions and registers of two programs, and how similar the programs are."""

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
    """Map register names, numbered among equal names, to indices: each function has its own registers."""
    seen: dict[tuple[str, int], int] = {}
    known: set[int] = set()
    counts: Counter[str] = Counter()
    for inst in program.instructions:
        for operand in (*inst.results, *inst.sources, *inst.memory_results, *([inst.guard] if inst.guard else [])):
            for item in registers_of(operand):
                if item.index not in known:
                    known.add(item.index)
                    seen[item.name, counts[item.name]] = item.index
                    counts[item.name] += 1
    return seen


class Divergence(NamedTuple):
    """The next lines of two runs that take different paths; 0 if one has ended."""

    left: int
    right: int


class Lockstep:
    """Two batches of the same blocks, and the differences between them."""

    def __init__(self, left: SteppedBatch, right: SteppedBatch, pairing: Pairing) -> None:
        """Start both at the entry, with equal memory."""
        self.left, self.right, self.pairing = left, right, pairing
        self.unpaired_right = set(range(len(right.program.instructions))) - set(pairing.instructions.values())
        self.backward = {other: index for index, other in pairing.registers.items()}
        self.provenance = Provenance()
        self.registers: dict[int, Nodes] = {}  # by the left's index
        self.bytes: dict[int, Nodes] = {}  # by the identity of the left's buffer
        self.buffers = self._paired_buffers()
        self.visits: Counter[int] = Counter()
        self.output: tuple[int, int] | None = None  # the first byte of global memory that differs: address and node
        self.divergence: Divergence | None = None
        self.ran = np.zeros((left.warps, LANES), np.bool_)  # the lanes of the last instruction
        self.failed = 0  # the node read by an instruction that ended with an error
        self.branch = 0  # the node of the last branch that lanes took differently

    def _paired_buffers(self) -> dict[int, BufferPair]:
        """Return the buffers of both sides, by the identity of either, and the addresses of those in global memory."""
        mine, yours = self.left.memory, self.right.memory
        pairs: list[BufferPair] = [(mine.shared, yours.shared, None), (mine.local, yours.local, None)]
        others = {item.start: item.data for item in yours.allocations}
        pairs += [(item.data, others[item.start], item.start) for item in mine.allocations if item.start in others]
        return {id(buffer): pair for pair in pairs for buffer in pair[:2]}

    def run(self) -> None:
        """Run until global memory differs, the runs diverge, or both have ended."""
        with np.errstate(all="ignore"):
            while self.output is None and self.divergence is None and self._advance():
                pass

    def chain(self) -> list[NodeFacts]:
        """Return the path from the origin to the first different output, failing instruction or different branch."""
        return self.provenance.chain(self.output[1] if self.output is not None else self.failed or self.branch)

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
        lines = [
            batch.inst_at(position).line if position is not None else 0
            for batch, position in ((self.left, mine), (self.right, yours))
        ]
        self.divergence = Divergence(*lines)

    # --- one instruction

    def _run(self, positions: tuple[Position | None, Position | None]) -> None:
        """Run an instruction on both sides, or on one, and compare the results."""
        sides = [
            (batch, position)
            for batch, position in zip((self.left, self.right), positions, strict=True)
            if position is not None
        ]
        self.ran = np.zeros((self.left.warps, LANES), np.bool_)
        for _, position in sides:
            self.ran[position.group.warp_rows] |= position.group.mask
        reads = [self._read(batch, position) for batch, position in sides]
        accesses: list[tuple[SteppedBatch, list[MemoryAccess]]] = []
        for batch, _ in sides:
            batch.memory.accesses = []
            try:
                batch.advance()
            except WarpfragError:
                nodes = np.stack([part for read in reads for part in read])
                self.failed = int(self.provenance.earliest(nodes.reshape(-1, 1))[0])
                raise
            accesses.append((batch, batch.memory.accesses))
            batch.memory.accesses = None
        for read, (batch, position), (_, own) in zip(reads, sides, accesses, strict=True):
            read.append(self._read_memory(batch, position, own))
        parents = self.provenance.earliest(np.stack([nodes for read in reads for nodes in read]))
        at = [None if position is None else position.at for position in positions]
        counted = at[0] if at[0] is not None else -1 - (at[1] or 0)
        visit, self.visits[counted] = self.visits[counted], self.visits[counted] + 1
        inst = sides[0][0].inst_at(sides[0][1])
        if isinstance(inst.action, actions.Branch) and parents.any():
            self._note_branch(at, visit, inst, parents)
        written = [item for batch, position in sides for item in self._written(batch, batch.inst_at(position))]
        for index, name in dict.fromkeys(written):
            self._compare_register(index, name, at, visit, parents)
        for access in (access for _, own in accesses for access in own if access.writes):
            self._compare_bytes(access, at, visit, parents)

    def _note_branch(self, at: list[int | None], visit: int, inst: DecodedInstruction, parents: Nodes) -> None:
        """Keep the difference that a branch read: the runs may diverge after it."""
        rows, lanes = np.nonzero(parents)
        guard = inst.guard.name if inst.guard is not None else "the index"
        zeros = np.zeros(len(rows), np.uint64)
        codes = zeros, zeros
        if inst.guard is not None:
            mine, yours = self._codes(inst.guard.index)
            codes = mine[rows, lanes].astype(np.uint64), yours[rows, lanes].astype(np.uint64)
        nodes = self.provenance.add(
            DifferingInstruction(at[0], at[1], visit, guard, rows, lanes, parents[rows, lanes], codes)
        )
        self.branch = int(nodes[0])

    def _own_index(self, batch: SteppedBatch, index: int) -> int | None:
        """Return the left side's index of a register of either side."""
        return index if batch is self.left else self.backward.get(index)

    def _read(self, batch: SteppedBatch, position: Position) -> list[Nodes]:
        """Return the differences in the registers that an instruction reads, by lane or for the whole warp."""
        inst = batch.inst_at(position)
        operands = [*inst.sources, *inst.memory_results, *([inst.guard] if inst.guard is not None else [])]
        if isinstance(inst.action, actions.MatrixOp) and inst.action.operation == "wgmma":
            operands += inst.results  # C too
        indices = {self._own_index(batch, item.index) for operand in operands for item in registers_of(operand)}
        nodes = [self.registers[index] for index in indices if index is not None and index in self.registers]
        none = np.zeros((batch.warps, LANES), np.int64)
        best = self.provenance.earliest(np.stack([none, *nodes]))
        return [self._pooled(inst, best)]

    def _pooled(self, inst: DecodedInstruction, nodes: Nodes) -> Nodes:
        """Return the earliest node of each warp or warpgroup, for instructions whose lanes read each other's values."""
        if not isinstance(inst.action, actions.MatrixOp | actions.WarpCollective) or not nodes.any():
            return nodes
        warps = WARPGROUP if isinstance(inst.action, actions.MatrixOp) and inst.action.operation == "wgmma" else 1
        if len(nodes) % warps:
            return nodes
        groups = nodes.reshape(-1, warps * LANES)
        best = self.provenance.earliest(groups.T)
        return np.repeat(best, warps * LANES).reshape(nodes.shape)

    def _read_memory(self, batch: SteppedBatch, position: Position, accesses: list[MemoryAccess]) -> Nodes:
        """Return the differences in the bytes that an instruction reads."""
        inst = batch.inst_at(position)
        best = np.zeros((batch.warps, LANES), np.int64)
        takes = isinstance(inst.action, READS_WHAT_IT_WRITES)
        for access in accesses:
            pair = self.buffers.get(id(access.buffer))
            nodes = None if pair is None else self.bytes.get(id(pair[0]))
            if nodes is None or (access.writes and not takes):
                continue
            for offset, thread in zip(access.offsets.tolist(), access.threads.tolist(), strict=True):
                part = nodes[offset : offset + access.size]
                if part.any():
                    place = thread // LANES, thread % LANES
                    best[place] = self.provenance.earliest(np.append(part, best[place])[:, None])[0]
        shared = self.bytes.get(id(self.left.memory.shared))
        if isinstance(inst.action, actions.MatrixOp) and inst.action.operation == "wgmma" and shared is not None:
            for row in position.group.active_rows[::WARPGROUP]:
                part = shared[staged_offsets(batch, inst, int(row))]
                if part.any():
                    best[row, 0] = self.provenance.earliest(part[:, None])[0]
        return self._pooled(inst, best)

    # --- what an instruction left

    def _written(self, batch: SteppedBatch, inst: DecodedInstruction) -> list[tuple[int, str]]:
        """Return the registers that an instruction may have changed, by the left side's index, with their names."""
        if isinstance(inst.action, CALLS):
            return [(index, f"register {index}") for index in self.pairing.registers]
        items = [item for result in inst.results for item in items_of(result) if isinstance(item, Register)]
        own = [(self._own_index(batch, item.index), item.name) for item in items]
        return [(index, name) for index, name in own if index is not None and index in self.pairing.registers]

    def _codes(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        other = self.pairing.registers[index]
        return self.left.registers[index], self.right.registers[other]

    def _compare_register(self, index: int, name: str, at: list[int | None], visit: int, parents: Nodes) -> None:
        """Assign a node to every lane in which a register now differs, and clear it in the others."""
        mine, yours = self._codes(index)
        if mine.dtype != yours.dtype:
            return
        differs = mine != yours
        before = self.registers.get(index)
        if not differs.any():
            if before is not None:
                del self.registers[index]
            return
        kept = np.zeros((self.left.warps, LANES), np.int64) if before is None else before.copy()
        rows, lanes = np.nonzero(differs & (self.ran | (kept == 0)))
        kept[~differs] = 0
        if len(rows):
            codes = mine[rows, lanes].astype(np.uint64), yours[rows, lanes].astype(np.uint64)
            inst = DifferingInstruction(at[0], at[1], visit, name, rows, lanes, parents[rows, lanes], codes)
            kept[rows, lanes] = self.provenance.add(inst)
        self.registers[index] = kept

    def _compare_bytes(self, access: MemoryAccess, at: list[int | None], visit: int, parents: Nodes) -> None:
        """Assign a node to every stored byte that differs, and clear it for the others."""
        pair = self.buffers.get(id(access.buffer))
        if pair is None:
            return
        mine, yours, address = pair
        places = (access.offsets[:, None] + np.arange(access.size)).astype(np.int64)
        differs = mine[places] != yours[places]
        nodes = self.bytes.get(id(mine))
        if not differs.any():
            if nodes is not None:
                nodes[places] = 0
            return
        if nodes is None:
            nodes = self.bytes[id(mine)] = np.zeros(len(mine), np.int64)
        nodes[places[~differs]] = 0
        which = np.nonzero(differs.any(axis=1))[0]
        rows, lanes = np.divmod(access.threads[which], LANES)
        words = [_words(buffer, access.offsets[which], access.size) for buffer in (mine, yours)]
        inner = "shared memory" if mine is self.left.memory.shared else "local memory"
        name = inner if address is None else "global memory"
        inst = DifferingInstruction(at[0], at[1], visit, name, rows, lanes, parents[rows, lanes], (words[0], words[1]))
        numbers = self.provenance.add(inst)
        for number, index in zip(numbers.tolist(), which.tolist(), strict=True):
            nodes[places[index][differs[index]]] = number
        if address is not None and self.output is None:
            first = int(places[differs].min())
            self.output = address + first, int(nodes[first])


def _words(buffer: NDArray[np.uint8], offsets: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
    """Return the bytes at some offsets as numbers, at most eight bytes each."""
    count = min(size, 8)
    data = np.zeros((len(offsets), 8), np.uint8)
    data[:, :count] = buffer[offsets[:, None] + np.arange(count)]
    return data.view(np.uint64)[:, 0]


def _are_same(mine: Position, yours: Position) -> bool:
    """Return True if two positions have the same lanes."""
    return np.array_equal(mine.group.warp_rows, yours.group.warp_rows) and np.array_equal(
        mine.group.mask, yours.group.mask
    )
