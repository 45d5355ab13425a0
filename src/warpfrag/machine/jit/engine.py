"""The compiled engine: the interpreter's batch of warps, with machine code for instructions that can be compiled.

Scheduling, waiting and counting follow the interpreter's rules, so both engines give the same results. Instructions
without machine code, such as atomics, run in the interpreter, on the same registers. mma and wgmma instructions are
combined into large products (`mma_issue`).

A program is compiled in chunks. With engine="compiled", a chunk is compiled before it first runs. With engine="auto",
it is compiled once interpreting it has taken as long as compiling it would, so code that runs only a few times is never
compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault, PtxError, WarpfragError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.block_barriers import MAX_BARRIERS
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.lane_instructions import run_async_copy
from warpfrag.machine.interpreter.matrix_instructions import architecture_of, multiply_many
from warpfrag.machine.interpreter.warp_batch import NOT_RUNNABLE, POLLING_SLICES, PRIORITY_UNIT, QUANTUM, WarpBatch
from warpfrag.machine.interpreter.warp_state import LaunchPart, special
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction, Immediate, Program, Register
from warpfrag.machine.ir.scalar_types import Codes, container
from warpfrag.machine.ir.state_spaces import SPACES
from warpfrag.machine.jit import c_functions, mma_issue
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.box_copies import BatchedMbarriers, BoxCopies
from warpfrag.machine.jit.pending_mma import MmaInstructions, PendingProducts
from warpfrag.machine.jit.register_flow import RegisterLayout

if TYPE_CHECKING:
    from warpfrag.machine.jit.segments import Segment  # imports llvmlite

PATIENCE = 30  # executions after which interpreting an instruction (70 us each) has cost as much as compiling it (2 ms)
MIN_INSTRUCTIONS = 2000  # instructions to interpret before compiling anything
HOT = 200_000  # average executions per instruction (10 ns each) that justify recompiling a chunk (2 ms per instruction)
CHUNK = 64  # minimum instructions per chunk
BUDGET = 1_000_000  # warp instructions between two interrupt checks by Python
POLLING_BUDGET = 64  # the initial budget per warp if the program may poll memory
WATCHED_LEVELS = 4  # the number of quanta that the interpreter runs when it checks for a livelock
LANE_BITS = np.uint32(1) << np.arange(LANES, dtype=np.uint32)
BUFFER_ALIGN = 64
MATRIX_ROW_BYTES = 16  # the size of an ldmatrix or stmatrix row


class CompiledProgram:
    """A program's machine code; each chunk is compiled before it runs, or once it was interpreted long enough."""

    def __init__(self, program: Program) -> None:
        """Lay out the registers, without compiling anything."""
        self.program = program = mma_issue.grouped(program)
        self.layout = RegisterLayout.of(program)
        self.segments: dict[int, Segment] = {}  # keyed by first instruction
        self.addresses: dict[int, int] = {}  # the address of each segment's code, by first instruction
        self.covered: set[int] = set()  # instructions that have machine code
        self.opcodes: set[str] = set()  # opcodes that have machine code
        self.products = mma_issue.mma_runs(program)
        runs = {start: program.instructions[start : ends[-1]] for start, ends in self.products.items()}
        runs |= {at: [inst] for at, inst in enumerate(program.instructions) if mma_issue.is_joinable(inst)}
        self.mma_instructions = MmaInstructions(program, runs)
        self.wgmma_plans: mma_issue.WgmmaPlans = {}
        self.tilings: dict[tuple[int, str], list[tuple[mma_issue.Tiling | None, list[DecodedInstruction]]]] = {}
        self.is_ready = False  # True once machine code is used
        self.is_eager = False  # True if chunks are compiled before they run
        self.interpreted_instructions = 0
        self.patience = PATIENCE * len(program.instructions) + MIN_INSTRUCTIONS
        self.chunks = chunks_of(program)
        self.chunk = np.repeat(np.arange(len(self.chunks)), [end - start for start, end in self.chunks]).tolist()
        self.interpreted = [0] * len(self.chunks)  # instructions interpreted so far, by chunk
        self.compiled = [False] * len(self.chunks)
        self.optimized = [False] * len(self.chunks)
        self.executed = np.zeros(
            len(program.instructions), np.int64
        )  # warp instructions per segment, by the segment's first instruction
        self.tables: dict[str, NDArray[np.int64]] = {}
        self._engines: list[object] = []

    def is_worthwhile_after(self, instructions: int) -> bool:
        """Return True if interpreting `instructions` more instructions would take as long as compiling."""
        return self.interpreted_instructions + instructions >= self.patience

    def interpret(self, at: int, instructions: int) -> bool:
        """Count instructions that are interpreted from index `at`; return True if their chunk should be compiled."""
        self.interpreted_instructions += instructions
        chunk = self.chunk[at]
        self.interpreted[chunk] += instructions
        start, end = self.chunks[chunk]
        return not self.compiled[chunk] and self.interpreted[chunk] > PATIENCE * (end - start)

    def prepare(self) -> None:
        """Switch to machine code: compile each chunk, or load it from the cache, before it runs."""
        self.is_ready = self.is_eager = True

    def compile_all(self) -> None:
        """Compile the whole program."""
        for start, _ in self.chunks:
            self.compile(start)

    def optimize(self, executed: NDArray[np.int64]) -> bool:
        """Recompile frequently executed chunks with more optimization; return True if there were any."""
        hot = [
            start
            for chunk, (start, end) in enumerate(self.chunks)
            if self.compiled[chunk] and not self.optimized[chunk] and executed[start:end].sum() > HOT * (end - start)
        ]
        for start in hot:
            self.compile(start, is_hot=True)
        return bool(hot)

    def compile(self, at: int, *, is_hot: bool = False) -> None:
        """Compile the chunk that contains instruction `at`, or load it from the cache."""
        from warpfrag.machine.jit import llvm_compiler
        from warpfrag.machine.jit.llvm_compiler import LOCK, addresses_of
        from warpfrag.machine.jit.segments import generate  # imports llvmlite

        self.is_ready = True
        chunk = self.chunk[at]
        with LOCK:
            if self.optimized[chunk] if is_hot else self.compiled[chunk]:
                return
            level = llvm_compiler.HOT if is_hot else llvm_compiler.FAST
            segments, text, helpers = generate(self.program, self.layout, *self.chunks[chunk])
            if segments:
                engine, addresses = addresses_of(text, helpers, [segment.name for segment in segments], level)
                self._engines.append(engine)
                self.segments |= {segment.start: segment for segment in segments}
                self.addresses |= {segment.start: addresses[segment.name] for segment in segments}
                covered = {at for segment in segments for at in range(segment.start, segment.end)}
                self.covered |= covered
                self.opcodes |= {self.program.instructions[at].name for at in covered}
                for arch in self.tables:  # other threads may still use the old table
                    self.tables[arch] = self.with_segments(self.tables[arch].copy(), segments, arch)
            self.compiled[chunk], self.optimized[chunk] = True, is_hot

    def table(self, arch: str) -> NDArray[np.int64]:
        """Return the scheduler's instruction table (`context`) for an architecture; compiling a chunk replaces it."""
        from warpfrag.machine.jit.llvm_compiler import LOCK

        with LOCK:
            if arch not in self.tables:
                self.tables[arch] = self.with_segments(self._table(), list(self.segments.values()), arch)
            return self.tables[arch]

    def with_segments(self, table: NDArray[np.int64], segments: list[Segment], arch: str) -> NDArray[np.int64]:
        """Add the segments whose first instruction the architecture supports to the table, and return the table."""
        for segment in segments:
            row = table[segment.start]
            row[ctx.NEEDS_PRODUCTS] = self.mma_instructions.needs_products[segment.start : segment.end].any()
            if has_instruction(self.program.instructions[segment.start].action, arch):
                row[ctx.KIND] = ctx.WHOLE_WARP_SEGMENT if segment.is_whole else ctx.SEGMENT
                row[ctx.END], row[ctx.STORES] = segment.end, segment.stores
                row[ctx.FUNCTION] = self.addresses[segment.start]
        return table

    def _table(self) -> NDArray[np.int64]:
        """Return an instruction table without machine code."""
        program = self.program
        has_calls = any(isinstance(inst.action, actions.DirectCall) for inst in program.instructions)
        table = np.zeros((len(program.instructions), ctx.COLUMNS), np.int64)
        for at, inst in enumerate(program.instructions):
            action, row = inst.action, table[at]
            row[ctx.END], row[ctx.BLOCK_END] = at + 1, program.ends[at]
            row[ctx.WEIGHT] = POLLING_SLICES if at in program.polling else 1
            row[ctx.NEEDS_PRODUCTS] = self.mma_instructions.needs_products[at]
            if isinstance(action, actions.Branch) and not action.indexed:
                row[ctx.KIND], row[ctx.TARGET] = ctx.BRANCH, inst.targets[0]
                row[ctx.GUARD] = -1 if inst.guard is None else self.layout.offsets[inst.guard.index]
                row[ctx.NEGATED] = inst.guard is not None and inst.guard.negated
            elif isinstance(action, actions.Barrier) and is_plain_barrier(inst, action):
                row[ctx.KIND] = ctx.BARRIER
            elif isinstance(action, actions.Return) and inst.guard is None and not has_calls:
                row[ctx.KIND] = ctx.EXIT
            elif (
                isinstance(action, actions.Reconverge) and inst.guard is None and isinstance(inst.sources[0], Register)
            ):
                row[ctx.KIND], row[ctx.GUARD] = ctx.RECONVERGE, self.layout.offsets[inst.sources[0].index]
            elif isinstance(action, actions.WarpWait) and inst.guard is None:
                row[ctx.KIND] = ctx.WARP_WAIT
        return table

    @cached_property
    def chains(self) -> set[int]:
        """The first instructions of mma runs that may be merged along K into one product."""
        return mma_issue.mma_chains(self.program, self.products)


def chunks_of(program: Program) -> list[tuple[int, int]]:
    """Split a program into chunks of consecutive basic blocks, and return each chunk's start and end."""
    starts = [0] if program.instructions else []
    for at, end in enumerate(program.ends):
        if end == at + 1 and end - starts[-1] >= CHUNK:
            starts.append(end)
    ends = [*starts[1:], len(program.instructions)]
    return [(start, end) for start, end in zip(starts, ends, strict=False) if start < end]


def has_instruction(action: actions.Action, arch: str) -> bool:
    """Return True unless the action is a matrix instruction that the architecture lacks."""
    try:
        return not isinstance(action, actions.MatrixOp) or bool(architecture_of(action.form, arch))
    except WarpfragError:  # the interpreter raises this error when the instruction runs
        return False


def is_plain_barrier(inst: DecodedInstruction, action: actions.Barrier) -> bool:
    """Return True for bar.sync by all threads of the block."""
    number = inst.sources[0] if len(inst.sources) == 1 else None
    is_valid = isinstance(number, Immediate) and 0 <= number.code(None) < MAX_BARRIERS
    return is_valid and inst.guard is None and action.waits and not action.reduction


class BufferRegisters:
    """A batch's registers as views of one buffer, created on first use; assignment copies into the buffer."""

    def __init__(self, buffer: NDArray[np.uint8], offsets: Sequence[int], bits: Sequence[int]) -> None:
        """Wrap a buffer [warps, bytes]; `offsets` and `bits` give each register's position and width."""
        self.buffer, self.offsets, self.bits = buffer, offsets, bits
        self.views: dict[int, Codes] = {}

    def __len__(self) -> int:
        """Return the number of registers."""
        return len(self.offsets)

    def __getitem__(self, index: int) -> Codes:
        """Return the codes of a register in every lane, [warps, lanes], as a view."""
        view = self.views.get(index)
        if view is None:
            view = self.views[index] = view_of(self.buffer, self.offsets[index], container(self.bits[index]))
        return view

    def __setitem__(self, index: int, codes: Codes) -> None:
        """Copy codes into a register."""
        self[index][...] = codes


def view_of(buffer: NDArray[np.uint8], offset: int, dtype: np.dtype[Any]) -> Codes:
    """Return a view [warps, lanes] of the elements that start at a byte offset in every warp's row."""
    return buffer[:, offset : offset + LANES * dtype.itemsize].view(dtype)


class CompiledWarpBatch(WarpBatch):
    """Blocks that run together; the compiled parts of their program run as machine code."""

    def __init__(self, part: LaunchPart, compiled: CompiledProgram) -> None:
        """Create a batch in which every lane is at the entry, with all registers in one buffer."""
        super().__init__(part)
        self.compiled, program = compiled, part.program
        layout = compiled.layout
        row_bytes = max(BUFFER_ALIGN, layout.bytes)
        space = np.zeros(self.warps * row_bytes + BUFFER_ALIGN, np.uint8)
        start = -space.ctypes.data % BUFFER_ALIGN
        self.buffer = space[start : start + self.warps * row_bytes].reshape(self.warps, -1)
        self.registers = BufferRegisters(self.buffer, layout.offsets, program.registers)
        for name, offset in layout.special.items():
            view_of(self.buffer, offset, np.dtype(np.uint32))[...] = special(self, name, 0)
        self.context = self._context()
        self.every_row = np.arange(self.warps)
        self.every_lane = LaneGroup(self, None, np.ones((self.warps, LANES), np.bool_))
        # arrays that the compiled scheduler shares with the interpreter
        self.flags, self.numbers = np.stack([self.alive, self.waiting]), np.stack([self.pc, self.slices])
        self.alive, self.waiting = self.flags
        self.pc, self.slices = self.numbers
        self.schedule = np.zeros(ctx.STATE_WORDS, np.int64)
        self.lists = np.zeros((3, self.warps), np.int64)
        self.runs = np.zeros(len(program.instructions), np.int64)
        self.exited = np.zeros(len(part.blocks), np.bool_)
        self.products = PendingProducts(self.buffer)
        self.wgmma = mma_issue.WgmmaProducts(
            self, self.products, layout, compiled.mma_instructions, compiled.wgmma_plans
        )
        self.boxes = BoxCopies(self, self.batched_mbarriers)

    def _new_mbarriers(self) -> BatchedMbarriers:
        """Return mbarriers that are updated for many lanes in one loop."""
        self.batched_mbarriers = BatchedMbarriers(self)
        return self.batched_mbarriers

    def _context(self) -> NDArray[np.int64]:
        """Build the context array that compiled code reads (see `context`)."""
        memory = self.memory
        words = np.zeros(ctx.CONTEXT_WORDS, np.int64)
        self.table = np.array(
            [
                [item.start, item.end, item.data.ctypes.data, item.writable, memory.tags.address_of(item.data)]
                for item in memory.allocations
            ],
            np.int64,
        ).reshape(-1, ctx.ALLOCATION_WORDS)
        self.block_numbers = np.ascontiguousarray(self.warp_block, np.int64)
        words[ctx.REGISTERS] = self.buffer.ctypes.data
        words[ctx.WARP_BYTES] = self.buffer.shape[1]
        words[ctx.PARAMETERS] = memory.parameters.ctypes.data if len(memory.parameters) else 0
        words[ctx.PARAMETER_BYTES] = len(memory.parameters)
        words[ctx.SHARED] = memory.shared.ctypes.data
        words[ctx.SHARED_END] = memory.shared_end
        words[ctx.SHARED_STRIDE] = memory.shared_stride
        words[ctx.LOCAL] = memory.local.ctypes.data if len(memory.local) else 0
        words[ctx.LOCAL_STRIDE] = memory.local_stride
        words[ctx.ALLOCATIONS] = self.table.ctypes.data if len(self.table) else 0
        words[ctx.ALLOCATION_COUNT] = len(self.table)
        words[ctx.WARP_BLOCK] = self.block_numbers.ctypes.data
        words[ctx.INST_WAVEFRONTS] = memory.inst_wavefronts.ctypes.data
        words[ctx.INST_READ] = memory.inst_read.ctypes.data
        words[ctx.INST_WRITTEN] = memory.inst_written.ctypes.data
        words[ctx.INST_CONFLICTS] = memory.inst_conflicts.ctypes.data
        words[ctx.INST_CAUSES] = self.tally.causes.ctypes.data
        words[ctx.SHARED_TAGS] = memory.tags.of_shared.ctypes.data
        words[ctx.WRITERS] = self.writers.ctypes.data
        words[ctx.BLOCK_WARPS] = self.launch.warps
        words[ctx.CLUSTER_WARPS] = self.launch.warps * self.launch.cluster_blocks
        words[ctx.FAULT_INST] = ctx.NO_FAULT
        return words

    # --- scheduling

    def run(self) -> None:
        """Run until every lane has exited; interpret until machine code is available."""
        compiled = self.compiled
        while not compiled.is_ready:
            if not self.schedule_next():
                return
        compiled.optimize(compiled.executed)
        try:
            self.run_compiled()
        finally:
            self.count_runs()
            compiled.executed += self.instructions_by_segment()

    def instructions_by_segment(self) -> NDArray[np.int64]:
        """Return the number of warp instructions that compiled code ran, indexed by segment start."""
        ends = self.compiled.table(self.launch.arch)[:, ctx.END]
        return self.runs * (ends - np.arange(len(ends)))

    def run_block(self, start: int, group: LaneGroup) -> None:
        """Interpret a basic block; compile its chunk if the chunk was interpreted long enough."""
        compiled = self.compiled
        is_hot = compiled.interpret(start, self.program.ends[start] - start)
        super().run_block(start, group)
        if is_hot and compiled.interpreted_instructions > MIN_INSTRUCTIONS:
            compiled.compile(start)

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Flush pending products to the registers if an instruction needs them, then run the instruction."""
        compiled = self.compiled
        if self.products.pending and (compiled.mma_instructions.needs_products[at] or at in compiled.products):
            self.products.flush()
        return super().run_inst(at, group)

    def run_compiled(self) -> None:
        """Run the compiled scheduler, and handle each status that it returns."""
        compiled, schedule, table = self.compiled, self.schedule, self.compiled.table(self.launch.arch)
        lanes = (self.context, self.buffer, self.flags, self.numbers, self.lists)
        args = (*lanes, self.block_numbers, self.runs, self.writers, self.exited)
        schedule[ctx.LIMIT], schedule[ctx.IS_STALE] = self.launch.limit, 1
        budget = min(BUDGET, POLLING_BUDGET * self.warps) if self.livelock.is_judged else BUDGET
        schedule[ctx.BUDGET], last_progress = self.tally.total + budget, self.progress
        run = c_functions.run_scheduler.bound(table, schedule, *args)
        while True:
            schedule[ctx.TOTAL], schedule[ctx.BARRIERS_IN_USE] = self.tally.total, len(self.barriers.states)
            schedule[ctx.BARRIERS_IN_USE] += bool(self.cluster_barriers.has_arrived.any())
            schedule[ctx.PENDING_PRODUCTS] = len(self.products.pending)
            run()
            self.tally.total = int(schedule[ctx.TOTAL])
            self.progress += int(schedule[ctx.PROGRESS])
            schedule[ctx.PROGRESS] = 0
            self.check_interrupt()
            status = schedule[ctx.STATUS]
            if status == ctx.FAULT:
                raise self.compiled_fault()
            if status == ctx.NEEDS_FLUSH:
                self.products.flush()
            elif status == ctx.NEEDS_INTERPRETER:
                at = int(schedule[ctx.PC])
                if not compiled.compiled[compiled.chunk[at]] and (compiled.interpret(at, 1) or compiled.is_eager):
                    compiled.compile(at)
                    run = c_functions.run_scheduler.bound(compiled.table(self.launch.arch), schedule, *args)
                else:
                    self.interpret(at)
            elif status == ctx.NONE_RUNNABLE:
                if not self.alive.any():
                    return
                self.release_waiting()
                schedule[ctx.IS_STALE] = 1
            elif status == ctx.OUT_OF_BUDGET:
                if self.livelock.is_judged and self.progress == last_progress:
                    self.watch_livelock()
                if compiled.optimize(compiled.executed + self.instructions_by_segment()):
                    run = c_functions.run_scheduler.bound(compiled.table(self.launch.arch), schedule, *args)
                budget = min(BUDGET, 2 * budget)
                schedule[ctx.BUDGET], last_progress = self.tally.total + budget, self.progress

    def watch_livelock(self) -> None:
        """Interpret a few quanta, so that the interpreter can detect a livelock."""
        progress = self.progress
        is_running = self.schedule_next()
        last_level = self.livelock.level + WATCHED_LEVELS
        while is_running and self.progress == progress and self.livelock.level < last_level:
            is_running = self.schedule_next()
        self.schedule[ctx.IS_STALE] = 1

    def interpret(self, at: int) -> None:
        """Interpret an instruction, or a run of mma instructions, for the lanes that have the time slice."""
        group = self.scheduled_group()
        ends = self.compiled.products.get(at)
        if (
            ends is not None
            and group.is_whole
            and has_instruction(self.program.instructions[at].action, self.launch.arch)
            and self.tally.total + (ends[-1] - at) * group.warps <= self.launch.limit
        ):
            self.multiply(at, ends, group)
            self.schedule[ctx.PC] = ends[-1]
        elif self.run_inst(at, group) and not self.program.instructions[at].action.ends_block:
            self.schedule[ctx.PC] = at + 1
        else:  # these lanes have changed their program counters
            self.schedule[ctx.IS_STALE] = 1

    def wake(self, rows: NDArray[np.int64]) -> None:
        """Update the priorities of warps whose lanes no longer wait."""
        priorities = np.where(
            self.alive[rows] & ~self.waiting[rows],
            (self.slices[rows] // QUANTUM) * PRIORITY_UNIT + self.pc[rows],
            NOT_RUNNABLE,
        )
        self.lists[0, rows] = priorities.min(axis=1)

    def scheduled_group(self) -> LaneGroup:
        """Return the lanes that have the time slice."""
        count = int(self.schedule[ctx.WARP_COUNT])
        masks = self.lists[2].view(np.uint32)[:count]
        if count == self.warps and bool((masks == ctx.ALL_LANES).all()):
            return self.every_lane
        lanes = (masks[:, None] & LANE_BITS) != 0
        return LaneGroup(self, None if count == self.warps else self.lists[1, :count].copy(), lanes)

    def count_runs(self) -> None:
        """Add the instructions that compiled code ran to the launch's counts."""
        table = self.compiled.table(self.launch.arch)
        for at in np.nonzero(self.runs)[0]:
            self.tally.instructions[at : table[at, ctx.END]] += self.runs[at]
        self.count_bytes()

    def count_bytes(self) -> None:
        """Add the bytes that compiled code moved, and their wavefronts, to the memory's counts."""
        memory = self.memory
        for start, counts in (
            (ctx.READ_BYTES, memory.read_bytes), (ctx.WRITTEN_BYTES, memory.written_bytes),
            (ctx.WAVEFRONTS, memory.wavefronts),
        ):  # fmt: skip
            for index, space in enumerate(SPACES):
                if self.context[start + index]:
                    counts[space] += int(self.context[start + index])

    def multiply(self, start: int, ends: tuple[int, ...], group: LaneGroup) -> None:
        """Run several whole-warp mma instructions, as one product if they are the tiles of a larger matrix."""
        instructions, compiled = self.program.instructions, self.compiled
        if self.products.pending and compiled.mma_instructions.needs_products[start]:
            self.products.flush()
        self.line = instructions[start].line
        self.count(start, ends[-1], group.warps)
        parts = [instructions[first:last] for first, last in pairwise((start, *ends))]
        key = start, self.launch.arch
        if key not in compiled.tilings:
            is_chain = len(parts) == 1 or start in compiled.chains
            compiled.tilings[key] = mma_issue.tilings_of(parts, compiled.layout, self.launch.arch, is_chain=is_chain)
        rows = self.every_row if group.rows is None else np.ascontiguousarray(group.rows, np.int64)
        for number, (tiling, part) in enumerate(compiled.tilings[key]):
            if number or tiling is None:  # the interpreter may need the pending products
                self.products.flush()
            if tiling is None:
                multiply_many(self, part, group)
            else:
                tiling.issue(self.products, rows, compiled.mma_instructions.accumulators[start])

    def execute(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Run an instruction that falls through, for many lanes at once if possible, else as the interpreter does."""
        action, at = inst.action, self.memory.inst
        is_done = False
        if isinstance(action, actions.MatrixOp) and action.operation == "wgmma":
            is_done = has_instruction(action, self.launch.arch) and self.wgmma.run(at, inst, group)
        elif isinstance(action, actions.TensorCopy):
            is_done = self.boxes.run(inst, action, group)
        if not is_done:
            super().execute(inst, group)

    def all_arrived(self, at: int, inst: DecodedInstruction, group: LaneGroup, active: LaneGroup) -> bool:
        """Return True if all lanes that an instruction needs have arrived; whole warpgroups take a fast path."""
        action = inst.action
        if not isinstance(action, actions.MatrixOp):
            return active is self.every_lane or super().all_arrived(at, inst, group, active)
        here = active.is_whole and (action.operation != "wgmma" or self.are_warpgroups(group))
        return here or super().all_arrived(at, inst, group, active)

    def are_warpgroups(self, group: LaneGroup) -> bool:
        """Return True if the group's warps form whole warpgroups."""
        rows = group.warp_rows
        if len(rows) % mma_issue.WARPS:
            return False
        fours = rows.reshape(-1, mma_issue.WARPS)
        is_first = self.warp_index[fours[:, 0]] % mma_issue.WARPS == 0
        is_same = self.warp_block[fours[:, 0]] == self.warp_block[fours[:, -1]]
        return bool((is_first & is_same & (fours[:, -1] - fours[:, 0] == mma_issue.WARPS - 1)).all())

    def compiled_fault(self) -> PtxError:
        """Return the interpreter's error for an access that compiled code found invalid."""
        at, warp = int(self.context[ctx.FAULT_INST]), int(self.context[ctx.FAULT_WARP])
        mask = (np.uint32(self.context[ctx.FAULT_MASK]) & LANE_BITS) != 0
        inst = self.program.instructions[at]
        action = inst.action
        first = ctx.FAULT_ADDRESSES
        addresses = self.context[first : first + LANES].view(np.uint64)[mask]
        owners = Owners(self.lane_block[warp][mask], self.lane_number[warp][mask], None)
        group = LaneGroup(self, np.array([warp]), mask[None, :])
        try:
            # cp.async is the first instruction of its segment, so the registers are unchanged
            if isinstance(action, actions.AsyncCopy):
                run_async_copy(self, inst, action, group)
            elif isinstance(action, actions.MemoryLoad | actions.MemoryStore):
                size = action.type.dtype.itemsize * action.count
                self.memory.reach(action.space, addresses, size, owners, writes=isinstance(action, actions.MemoryStore))
            else:  # a row of ldmatrix or stmatrix
                writes = mma_issue.is_matrix_store(action)
                self.memory.reach("shared", addresses, MATRIX_ROW_BYTES, owners, writes=writes)
        except MemoryFault as fault:
            return self.fault(inst, group, fault)
        return PtxError(inst.line, f"{inst.name}: compiled code rejected a valid address; please report this as a bug")
