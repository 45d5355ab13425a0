"""Track values that come from unwritten registers or memory through every instruction.

Each register has a mask of the bits that come from unwritten data. Each byte of shared and local memory, and of arrays
that the caller marks (`ptx.Unwritten`), has one too; for tensor memory, written columns are recorded. Reading an
unwritten value is not a mistake: compilers generate such reads for lanes that are masked off later. It is a finding if
the value determines an address or a branch, or is stored to global memory. A shuffle that reads a lane that does not
take part reads an unwritten value. Moves, shifts and byte permutations keep the mask exact; packed arithmetic is marked
part by part; an mma marks the elements of D whose row of A or column of B has a mark; any other result is marked
completely if any bit of an operand is marked.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers, Words
from warpfrag.isa.operands import OperandSpec, operands
from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.calls import local_bytes
from warpfrag.machine.interpreter.kernel_findings import FindingCollector
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.matrix_instructions import architecture_of, join_words, split_words
from warpfrag.machine.interpreter.observer import TensorAccess
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    Copy,
    DecodedInstruction,
    MemoryOperand,
    PtxOperand,
    Register,
    VectorOperand,
    registers_of,
)
from warpfrag.machine.ir.scalar_types import TYPES, Codes, container, split
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.tensor_checks import WrittenColumns
from warpfrag.machine.sanitizer.unwritten_bits import EVERY_BIT, carried, first_of, parts_of, read_part
from warpfrag.tensorcore import fragment, matrix_moves

APPLIED = {"shl", "shr", "prmt", "bfi", "bfe", "shf"}
"""Opcodes that move bits; if their control operands are written, they move a mask's bits like a value's bits."""
MOVED_OPERANDS = {"shl": 1, "shr": 1, "prmt": 2, "bfi": 2, "bfe": 1, "shf": 2}
ADDRESSED = (
    actions.MemoryLoad | actions.MemoryStore | actions.Atomic | actions.AsyncCopy | actions.BulkCopy
    | actions.TensorCopy | actions.AsyncStore | actions.MemoryBarrier | actions.MatrixOp
)  # fmt: skip
VALUES = actions.LaneOp | actions.Move | actions.WarpCollective | actions.NoOp
"""Actions that only compute values, so an unwritten guard is not a mistake in itself."""
MARK = np.uint8(0xFF)
WORDS_OF_PAIR = 2
FIRST_VALUE_SOURCES = 3  # the value, the predicate, and the old value


class UnwrittenCheck(InstructionObserver):
    """Tracks values that come from unwritten registers or memory."""

    def __init__(self, state: WarpBatch, collector: FindingCollector, marked: dict[int, Bytes]) -> None:
        """Mark all registers, shared memory and local memory; the marks of arrays persist between batches."""
        super().__init__(state, collector)
        program = state.program
        full = {
            bits: np.where(state.alive, -1 if bits > 1 else 1, 0).astype(container(bits))
            for bits in set(program.registers)
        }
        self.masks: list[Codes] = [full[bits] for bits in program.registers]
        self.clean = {dtype: np.zeros((state.warps, LANES), dtype) for dtype in {mask.dtype for mask in self.masks}}
        self.is_marked = [True] * len(self.masks)  # indexed by register: True if it has a mark in any lane
        self.read_registers: dict[int, list[int]] = {}  # keyed by instruction index
        frame = program.frame
        self.masks[frame.index] = np.zeros_like(self.masks[frame.index])
        self.is_marked[frame.index] = False
        self.shared = np.full(len(state.memory.shared), MARK)
        self.local = np.full(len(state.memory.local), MARK)
        self.marked = marked
        # marks, threads and offsets of the bytes that this instruction reads
        self.loaded: list[tuple[Bytes, Numbers, Numbers]] = []
        self.products: list[Bytes] = []  # marks of the bytes that this wgmma reads from shared memory
        self.results: list[Codes] | None = None
        self.is_clean = False  # True if no operand of this instruction is marked
        self.copied: list[Bytes] = []
        self.columns = WrittenColumns()
        self.origins: dict[int, str] = {}  # keyed by line: the first unwritten value that a load or shuffle reads
        self.unwritten_loads: list[int] = []  # warps whose tcgen05.ld reads unwritten columns
        self.idle = np.zeros((0, LANES), np.bool_)  # lanes for which this shuffle reads the register of an idle lane

    def marks_of(self, buffer: Bytes) -> Bytes | None:
        """Return the marks of a buffer, or None if the whole buffer is written."""
        memory = self.state.memory
        own = {id(memory.shared): self.shared, id(memory.local): self.local}
        return own.get(id(buffer), self.marked.get(id(buffer)))

    # --- memory

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Record the marks of the loaded bytes."""
        marks = self.marks_of(buffer)
        if marks is not None:
            self.loaded.append((marks[offsets[:, None] + np.arange(size)], threads, offsets))
            wrong = self.loaded[-1][0].any(axis=1)
            if wrong.any() and self.inst.line not in self.origins:
                self.origins[self.inst.line] = self.memory_name(buffer, int(offsets[wrong.argmax()]))

    def memory_name(self, buffer: Bytes, offset: int) -> str:
        """Return the name of a memory byte for messages."""
        memory = self.state.memory
        if buffer is memory.shared:
            return f"shared memory at {offset % memory.shared_stride:#x}"
        names = (item.name for item in memory.allocations if item.data is buffer)
        return "local memory" if buffer is memory.local else f"byte {offset} of {next(names, 'an array')}"

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Store marks with the values; storing a marked value to memory that has no marks is a finding."""
        size = codes.dtype.itemsize * codes.shape[1]
        data = self.stored_marks(self.inst, threads, size)
        marks = self.marks_of(buffer)
        is_global = buffer is not self.state.memory.shared and buffer is not self.state.memory.local
        if data is None:
            if marks is not None:
                marks[offsets[:, None] + np.arange(size)] = 0
            return
        if is_global:
            text = "a value that was never written is stored to global memory"
            self.report_threads(data.max(axis=1) != 0, threads, text)
        if marks is not None:
            marks[offsets[:, None] + np.arange(size)] = 0 if is_global else data

    def stored_marks(self, inst: DecodedInstruction, threads: Numbers, size: int) -> Bytes | None:
        """Return the marks of the values that an instruction stores, [threads, size], or None if all are written."""
        action = inst.action
        if isinstance(action, actions.AsyncCopy):
            result = np.zeros((len(threads), size), np.uint8)
            for data, owners, _ in self.loaded:
                result[np.searchsorted(threads, owners), : data.shape[1]] = data
            return result if result.any() else None
        if self.is_clean:
            return None
        if isinstance(action, actions.MemoryStore):
            columns = [self.mask_of(reg).reshape(-1)[threads] for reg in items_of(inst.sources[1])]
            if not any(column.any() for column in columns):
                return None
            parts = [
                np.ascontiguousarray(column.astype(action.type.dtype)).view(np.uint8).reshape(len(threads), -1)
                for column in columns
            ]
            return np.concatenate(parts, axis=1)
        if not isinstance(action, actions.MatrixOp):
            return None
        warps = np.unique(threads // LANES)
        words = self.words(LaneGroup(self.state, warps, np.ones((len(warps), LANES), np.bool_)), inst.sources[1])
        if action.operation == "stmatrix":
            lines = matrix_moves.lines_by_lane(action.form, words)
            return lines.reshape(-1, lines.shape[-1]) if lines.any() else None
        # wmma.store: element by element, from the first lane of each warp
        (spec,) = operands(action.form, architecture_of(action.form, self.state.launch.arch)).values()
        codes = fragment.unpack(spec, words).reshape(-1, 1) != 0
        return np.where(codes, MARK, np.uint8(0)).repeat(size, axis=1) if codes.any() else None

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Check atomics: the operands and, except for exch, the memory must have been written."""
        self.read(buffer, offsets, size, threads)
        inst = self.inst
        for reg in (reg for operand in inst.sources[1:] for reg in items_of(operand)):
            wrong = self.mask_of(reg).reshape(-1)[threads] != 0
            self.report_threads(wrong, threads, "an operand of an atomic was never written")
        marks = self.marks_of(buffer)
        if marks is not None:
            cells = offsets[:, None] + np.arange(size)
            if isinstance(inst.action, actions.Atomic) and inst.action.name != "exch":
                text = "an atomic changes memory that was never written"
                self.report_threads(marks[cells].any(axis=1), threads, text)
            marks[cells] = 0

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cells: list[int]) -> None:
        """Record the marks of the bytes that a copy reads."""
        del thread, cells  # only other checks use these
        marks, places = self.marks_of(buffer), offsets[:, None] + np.arange(size)
        self.copied.append(np.zeros(places.size, np.uint8) if marks is None else marks[places].reshape(-1))

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Update the target's marks: a bulk copy to shared memory copies marks, and other copies clear them.

        Marked bytes that a copy stores to global memory are a finding.
        """
        del cell  # only other checks use it
        source = np.concatenate(self.copied) if self.copied else np.zeros(0, np.uint8)
        marks = self.marks_of(buffer)
        is_global = buffer is not self.state.memory.shared
        if is_global and source.any():
            self.report_unwritten(thread, "a copy stores never-written bytes to global memory")
        if marks is not None and not reduction:
            cells = offsets[:, None] + np.arange(size)
            fits = len(source) == cells.size and not is_global and isinstance(self.inst.action, actions.BulkCopy)
            marks[cells] = source.reshape(cells.shape) if fits else 0

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:  # noqa: ARG002 (Observer's signature)
        """Record the marks of the bytes that wgmma reads."""
        self.products.append(self.shared[offsets[:, None] + np.arange(size)].any(axis=1).astype(np.uint8))

    def tensor_allocated(self, block: int, column: int, columns: int) -> None:
        """Mark newly allocated columns as unwritten."""
        self.columns.forget(block, column, columns)

    def tensor_access(self, access: TensorAccess) -> None:
        """Record the columns that are written, and the warps that load unwritten columns."""
        if access.reads and access.operand == "registers" and self.columns.first_unwritten(access) is not None:
            self.unwritten_loads.append(access.thread // LANES)
        if access.writes:
            self.columns.write(access)

    # --- registers

    def mask_of(self, operand: PtxOperand) -> Codes:
        """Return the mask of an operand in every lane of the batch."""
        if isinstance(operand, Register):
            return self.masks[operand.index]
        if isinstance(operand, MemoryOperand) and operand.base is not None:
            return self.mask_of(operand.base)
        if isinstance(operand, VectorOperand):
            whole, is_pair = np.zeros((self.state.warps, LANES), np.uint64), len(operand.items) <= WORDS_OF_PAIR
            for index, reg in enumerate(operand.items):  # for a wider vector, it only matters whether the mask is zero
                whole = whole | self.mask_of(reg).astype(np.uint64) << np.uint64(32 * index * is_pair)
            return whole
        return self.clean.setdefault(np.dtype(np.uint32), np.zeros((self.state.warps, LANES), np.uint32))

    def words(self, group: LaneGroup, operand: PtxOperand) -> Words:
        """Return the masks of an operand as 32-bit words, [warps, 32, words]."""
        return join_words([self.mask_of(reg)[group.warp_rows] for reg in items_of(operand)])

    def put(self, group: LaneGroup, operand: PtxOperand, mask: Codes) -> None:
        """Set the mask of an operand's register in the group's lanes; `mask` is [warps of the group, lanes]."""
        if isinstance(operand, VectorOperand):
            is_pair, wide = len(operand.items) <= WORDS_OF_PAIR, mask.astype(np.uint64)
            for reg, part in zip(operand.items, split(wide, len(operand.items), 32 * is_pair), strict=True):
                self.put(group, reg, part if is_pair else np.where(wide != 0, EVERY_BIT, np.uint64(0)))
        if not isinstance(operand, Register):
            return
        dtype = container(operand.bits)
        old = self.masks[operand.index]
        mask = mask if mask.dtype == dtype else (mask != 0 if dtype == np.bool_ else mask.astype(dtype))
        new = old.copy()
        new[group.warp_rows] = np.where(group.mask, mask, old[group.warp_rows])
        self.masks[operand.index] = new
        self.is_marked[operand.index] = bool(new.any())

    def put_clean(self, group: LaneGroup, operand: PtxOperand) -> None:
        """Clear the marks of an operand's registers in the group's lanes."""
        for reg in items_of(operand):
            if isinstance(reg, Register) and self.is_marked[reg.index]:
                if group.rows is None and group.is_whole:
                    self.masks[reg.index] = self.clean[self.masks[reg.index].dtype]
                    self.is_marked[reg.index] = False
                else:
                    self.put(group, reg, np.zeros(group.mask.shape, self.masks[reg.index].dtype))

    def put_whole(self, group: LaneGroup, operand: PtxOperand, wrong: Mask) -> None:
        """Mark an operand's whole registers in the lanes of `wrong`, and clear the marks in the group's other lanes."""
        for reg in items_of(operand):
            self.put(group, reg, np.where(wrong, EVERY_BIT, np.uint64(0)))

    # --- instructions

    def guarded(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report branches, exits, memory accesses and other effects whose guard is unwritten."""
        if inst.guard is not None and not isinstance(inst.action, VALUES):
            self.check(group, inst.guard, "a branch or a guard depends on a value that was never written")

    def has_marks(self, inst: DecodedInstruction) -> bool:
        """Return True if a register that an instruction reads has a mark in at least one lane."""
        at = self.state.memory.inst
        if at not in self.read_registers:
            bases = [operand.base if isinstance(operand, MemoryOperand) else operand for operand in inst.sources]
            self.read_registers[at] = [
                operand.index for base in bases if base is not None for operand in registers_of(base)
            ]
        return any(self.is_marked[index] for index in self.read_registers[at])

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Report marks that reach an address or a branch, and compute the marks of the results."""
        self.loaded, self.products, self.copied, self.unwritten_loads, self.results = [], [], [], [], None
        self.idle = np.zeros(group.mask.shape, np.bool_)
        action = inst.action
        if isinstance(action, actions.WarpCollective) and inst.attributes.opcode == "shfl":
            self.idle = self.idle_sources(inst, action, group)
            if self.idle.any():
                self.origins.setdefault(inst.line, "lanes that do not take part in it")
        self.is_clean = not self.has_marks(inst) and not self.idle.any()
        if self.is_clean:
            return
        if isinstance(action, actions.Branch) and action.indexed:
            self.check(group, inst.sources[0], "a branch depends on a value that was never written")
        for operand in inst.sources if isinstance(action, actions.Barrier) else ():
            self.check(group, operand, "an operand of a barrier was never written")
        if isinstance(action, ADDRESSED):
            for operand in inst.sources:
                if isinstance(operand, MemoryOperand) and operand.base is not None:
                    self.check(group, operand, "an address depends on a value that was never written")
        if isinstance(action, actions.LaneOp):
            self.results = self.computed(inst, action, group)
        elif isinstance(action, actions.WarpCollective):
            self.results = self.collected(inst, action, group)

    def idle_sources(self, inst: DecodedInstruction, action: actions.WarpCollective, group: LaneGroup) -> Codes:
        """Return the lanes that shuffle an undefined value, from a lane outside the group or the member mask."""
        args = values_of(inst, action, group)
        source = action.function(None, np.arange(LANES) + np.zeros_like(args[0], np.int64), *args[1:])[0]
        is_named = args[-1] >> source.astype(np.uint32) & 1 != 0 if action.synced else np.True_
        return group.mask & ~(np.take_along_axis(self.may_read(group), source[:, :, None], axis=2)[:, :, 0] & is_named)

    def may_read(self, group: LaneGroup) -> Mask:
        """Return a mask of the (active) lanes that each lane may read in a shuffle, [warps, lanes, source lanes]."""
        return np.repeat(group.mask[:, None, :], LANES, axis=1)

    def check(self, group: LaneGroup, operand: PtxOperand, text: str) -> None:
        """Report the active lanes in which an operand has unwritten bits."""
        if isinstance(operand, Register) and not self.is_marked[operand.index]:
            return
        wrong = (self.mask_of(operand)[group.warp_rows] != 0) & group.mask
        if wrong.any():
            warp, lane = (int(v) for v in np.argwhere(wrong)[0])
            self.report_unwritten(int(group.warp_rows[warp]) * LANES + lane, text, int(wrong.sum()))

    def computed(self, inst: DecodedInstruction, action: actions.LaneOp, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results of a per-lane operation."""
        masks = [
            read_part(self.mask_of(operand)[group.warp_rows], ptx_type)
            for operand, ptx_type in zip(inst.sources, action.sources, strict=True)
        ]
        wrong = any_of(masks, group)
        if not (wrong & group.mask).any():
            return [np.zeros(group.mask.shape, np.uint64)] * len(inst.results)
        opcode = inst.attributes.opcode
        registers = [operand for operand in inst.sources if isinstance(operand, Register)]
        if opcode in {"xor", "sub"} and len(registers) == 2 and registers[0] == registers[1]:
            return [np.zeros(group.mask.shape, np.uint64)] * len(inst.results)
        if opcode == "selp":
            picked = np.where(group.read(inst.sources[2], TYPES["pred"]), masks[0], masks[1])
            return [np.where(masks[2] != 0, _ones(picked), picked)]
        if opcode in APPLIED:
            moved = MOVED_OPERANDS[opcode]
            values: list[Any] = []
            for number, (operand, ptx_type) in enumerate(zip(inst.sources, action.sources, strict=True)):
                if ptx_type is None:
                    values.append(operand.code(None) if hasattr(operand, "code") else 0)
                elif number < moved:
                    values.append(masks[number].astype(ptx_type.dtype))
                else:
                    values.append(group.read(operand, ptx_type))
            result = first_of(action.function(*values))
            return [np.where(any_of(masks[moved:], group), _ones(result), result)]
        if opcode in {"and", "or"} and len(inst.sources) == 2 and action.sources[0] is not None:
            ptx_type = action.sources[0]
            left, right = (group.read(operand, ptx_type) for operand in inst.sources)
            first, second = (mask.astype(ptx_type.dtype) for mask in masks)
            if opcode == "or":
                left, right = ~left, ~right
            return [(first & (second | right)) | (second & (first | left))]
        return carried(inst, action, masks, values_of(inst, action, group), parts_of(masks, action, wrong))

    def collected(self, inst: DecodedInstruction, action: actions.WarpCollective, group: LaneGroup) -> list[Codes]:
        """Return the masks of the results of a shuffle, vote or reduction."""
        masks = [self.mask_of(operand)[group.warp_rows] for operand in inst.sources]
        clean = np.zeros(group.mask.shape, np.uint64)
        if not masks:
            return [clean] * len(inst.results)
        is_first = inst.attributes.opcode == "first_value" and len(masks) == FIRST_VALUE_SOURCES
        # R2UR copies the marks of the lane whose value it copies
        if is_first and not ((masks[1] != 0) & group.mask).any():
            held = group.read(inst.sources[1], action.sources[1])
            return [first_of(action.function(group.mask, masks[0].astype(np.uint32), held, masks[2].astype(np.uint32)))]
        steered = (any_of(masks[1:], group) & group.mask).any(axis=1, keepdims=True)
        if inst.attributes.opcode == "shfl" and not steered.any():
            moved = first_of(
                action.function(group.mask, masks[0].astype(np.uint32), *values_of(inst, action, group)[1:])
            )
            return [np.where(self.idle, EVERY_BIT, moved), clean]
        wrong = (steered | ((masks[0] != 0) & group.mask).any(axis=1, keepdims=True)) & group.mask
        return [np.where(wrong, EVERY_BIT, np.uint64(0))] * len(inst.results)

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Set the marks of the instruction's results."""
        action = inst.action
        if self.is_clean and isinstance(action, actions.LaneOp | actions.WarpCollective | actions.Move):
            for operand in inst.results:
                self.put_clean(group, operand)
        elif self.results is not None:
            for operand, mask in zip(inst.results, self.results, strict=False):
                self.put(group, operand, mask)
        elif isinstance(action, actions.Move):
            self.move(inst, action, group)
        elif isinstance(action, actions.MemoryLoad | actions.Atomic):
            self.load(inst, action, group)
        elif isinstance(action, actions.MatrixOp):
            self.matrix(inst, action, group)
        elif isinstance(action, actions.DirectCall):
            self.copy_marks(inst, inst.arguments, group)
        elif isinstance(action, actions.Return):
            callers = np.where(group.mask & group.of(self.state.alive), group.of(self.state.pc) - 1, -1)
            for at in {*callers.reshape(-1).tolist()} - {-1}:
                caller = self.state.program.instructions[at]
                self.copy_marks(caller, caller.returns, group.part(callers == at))
        elif inst.results:
            self.put_others(inst, group)

    def guarded_after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Mark the results in lanes whose guard was never written, because the instruction may not have run."""
        if inst.guard is not None and self.is_marked[inst.guard.index]:
            wrong = group.part(group.mask & self.mask_of(inst.guard)[group.warp_rows].astype(np.bool_))
            for operand in inst.results if wrong.mask.any() else ():
                self.put_whole(wrong, operand, wrong.mask)

    def put_others(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle all other instructions: their results are written, except when tcgen05.ld reads unwritten columns."""
        if any(isinstance(operand, MemoryOperand) for operand in inst.results):
            self.local[...] = 0  # the results of a driver function are in local memory, as in `call`
        wrong = group.mask & np.isin(group.warp_rows, self.unwritten_loads)[:, None]
        for operand in inst.results:
            if self.unwritten_loads:
                self.put_whole(group, operand, wrong)
            else:
                self.put_clean(group, operand)

    def move(self, inst: DecodedInstruction, action: actions.Move, group: LaneGroup) -> None:
        """Handle mov: pack and unpack masks like values."""
        ptx_type, target, source = action.type, inst.results[0], inst.sources[0]
        rows = group.warp_rows
        if isinstance(source, VectorOperand):
            bits = ptx_type.bits // len(source.items)
            mask = np.zeros(group.mask.shape, np.uint64)
            for index, reg in enumerate(source.items):
                part = self.mask_of(reg)[rows].astype(np.uint64) & np.uint64((1 << bits) - 1)
                mask = mask | part << np.uint64(bits * index)
        else:
            mask = self.mask_of(source)[rows]
            mask = mask.astype(np.uint64) if mask.dtype != np.bool_ else mask
        if isinstance(target, VectorOperand):
            bits = ptx_type.bits // len(target.items)
            for index, reg in enumerate(target.items):
                self.put(group, reg, mask.astype(np.uint64) >> np.uint64(bits * index) & np.uint64((1 << bits) - 1))
        else:
            self.put(group, target, mask)

    def load(self, inst: DecodedInstruction, action: actions.MemoryLoad | actions.Atomic, group: LaneGroup) -> None:
        """Handle ld and atom, whose results get the marks of the loaded bytes."""
        if not inst.results:
            return
        if not any(marks.any() for marks, _, _ in self.loaded):
            self.put_clean(group, inst.results[0])
            return
        ptx_type = action.type
        size = ptx_type.dtype.itemsize
        threads = group.pick(self.state.lane_number)
        data = np.zeros((len(threads), size * action.count), np.uint8)
        for marks, owners, _ in self.loaded:  # bytes that have no marks are not in the list
            data[np.searchsorted(threads, owners)] = marks
        codes = np.ascontiguousarray(data).view(f"i{size}" if ptx_type.kind == "s" else f"u{size}")
        for index, reg in enumerate(items_of(inst.results[0])):
            wide = codes[:, index].astype(np.int64 if ptx_type.kind == "s" else np.uint64).view(np.uint64)
            self.put(group, reg, group.scatter(wide))

    def copy_marks(self, call: DecodedInstruction, copies: Sequence[Copy], group: LaneGroup) -> None:
        """Copy marks with the arguments of a call, or with its results; those of recursive calls count as written."""
        for source, target, size in copies:
            for register, item in zip(items_of(target), items_of(source), strict=False):
                if isinstance(register, Register):
                    self.put(group, register, self.mask_of(item)[group.warp_rows].astype(np.uint64))
            if call.pushes_frame:
                self.local[...] = 0
            elif isinstance(target, MemoryOperand):
                marks = self.local[local_bytes(group, source, size)] if isinstance(source, MemoryOperand) else 0
                self.local[local_bytes(group, target, size)] = marks

    def matrix(self, inst: DecodedInstruction, action: actions.MatrixOp, group: LaneGroup) -> None:
        """Handle matrix instructions: mma, and matrix loads, stores and moves."""
        if not inst.results:
            return
        warps = group.mask.any(axis=1)
        here = LaneGroup(self.state, group.warp_rows[warps], group.mask[warps])
        form = action.form
        if action.operation == "ldmatrix":
            places = np.zeros((here.warps, LANES), np.int64).reshape(-1)
            index = {int(thread): at for at, thread in enumerate(here.of(self.state.lane_number).reshape(-1).tolist())}
            for _, owners, offsets in self.loaded:
                places[[index[int(thread)] for thread in owners.tolist()]] = offsets
            self.put_words(here, inst.results[0], matrix_moves.load(form, places.reshape(-1, LANES), self.shared))
        elif action.operation == "movmatrix":
            self.put_words(here, inst.results[0], matrix_moves.move(form, self.words(here, inst.sources[0])))
        elif form.op.startswith("wmma.load"):
            (spec,) = operands(form, architecture_of(form, self.state.launch.arch)).values()
            shape = (here.warps, *spec.layout.shape)
            wrong = np.concatenate([np.zeros(0, np.bool_), *(data.any(axis=1) for data, _, _ in self.loaded)])
            wrong = wrong if wrong.size == np.prod(shape) else np.zeros(int(np.prod(shape)), np.bool_)
            self.put_words(here, inst.results[0], _packed(spec, wrong.reshape(shape)))
        elif action.operation == "mma" and self.is_clean:
            self.put_clean(here, inst.results[0])
        elif action.operation == "wgmma":
            self.put_products(inst, action, here)
        else:
            self.put_words(here, inst.results[0], self.multiply(inst, form, here))

    def put_words(self, group: LaneGroup, operand: PtxOperand, words: Words) -> None:
        """Write mask words to the registers of an operand."""
        for reg, codes in split_words(operand, words):
            self.put(group, reg, codes)

    def multiply(self, inst: DecodedInstruction, form: Form, group: LaneGroup) -> Words:
        """Handle mma: mark an element of D if its row of A, its column of B or its element of C is marked."""
        specs = operands(form, architecture_of(form, self.state.launch.arch))
        words = [self.words(group, operand) for operand in inst.sources[:3]]
        a, b, c = (fragment.unpack(specs[role], word) != 0 for role, word in zip("abc", words, strict=True))
        return _packed(specs["d"], c | a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True))

    def put_products(self, inst: DecodedInstruction, action: actions.MatrixOp, group: LaneGroup) -> None:
        """Mark all results of a warp's wgmma if an operand has a mark; D keeps its own marks if it is also C."""
        wrong = np.full(group.mask.shape, any(part.any() for part in self.products))
        for operand in inst.sources:  # A in registers, the descriptors, and the scale of D
            wrong |= (self.mask_of(operand)[group.warp_rows] != 0).any(axis=1, keepdims=True)
        is_added = group.read(inst.sources[4 if action.form.operation.sparsity else 2], TYPES["pred"])
        for reg in items_of(inst.results[0]):
            kept = np.where(is_added, self.mask_of(reg)[group.warp_rows].astype(np.uint64), np.uint64(0))
            self.put(group, reg, np.where(wrong, EVERY_BIT, kept))

    def report_threads(self, wrong: Mask, threads: Numbers, text: str) -> None:
        """Report the running instruction if at least one thread has a mistake."""
        if wrong.any():
            self.report_unwritten(int(threads[wrong.argmax()]), text, int(wrong.sum()))

    def report_unwritten(self, thread: int, text: str, count: int = 1) -> None:
        """Report the running instruction, with the first affected thread and the loads that read unwritten memory."""
        sources = self.collector.sources
        loads = [f"{sources.get(line) or f'line {line}'} ({name})" for line, name in list(self.origins.items())[:3]]
        origin = f"; unwritten values were read at {' and '.join(loads)}" if loads else ""
        self.report("uninitialised", thread, f"{self.inst.name}: {text}{origin}", count)


def values_of(
    inst: DecodedInstruction, action: actions.LaneOp | actions.WarpCollective, group: LaneGroup
) -> list[Codes]:
    """Return the values of an instruction's operands, without immediates."""
    pairs = zip(inst.sources, action.sources, strict=True)
    return [group.read(operand, ptx_type) for operand, ptx_type in pairs if ptx_type is not None]


def any_of(masks: Sequence[Codes], group: LaneGroup) -> Mask:
    """Return the lanes in which a mask has a mark."""
    return reduce(np.logical_or, masks, np.zeros(group.mask.shape, np.bool_))


def _ones(mask: Codes) -> Codes:
    """Return a mask of the same type with all bits set."""
    return mask | True if mask.dtype == np.bool_ else mask | mask.dtype.type(np.iinfo(mask.dtype).max)


def _packed(spec: OperandSpec, wrong: Mask) -> Words:
    """Return the words of a fragment in which all bits of the marked elements are set."""
    return fragment.pack(spec, np.where(wrong, spec.format.codes - 1, 0).astype(f"u{max(8, spec.container) // 8}"))
