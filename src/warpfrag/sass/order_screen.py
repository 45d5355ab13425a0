"""Screening of machine code: compiled code that may prove that the order of threads cannot change the result.

Without mbarriers and bulk copies, only barriers order threads, as for PTX (`jit.screening`). With them, every warp has
a vector clock (`order_clocks.h`): C code checks the accesses, and this module follows mbarriers and copies. It assumes
that the lanes of a warp stay together; if they do not, the launch is uncertain.

The phases of an mbarrier are the same in every order of threads if each arrival, byte count and copy is ordered after
the end of the previous phase, and each copy was announced (expect_tx). A successful wait must be ordered after the
phase before the one that it waits for, because a wait specifies only the parity.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter import wgmma_registers
from warpfrag.machine.interpreter.bulk_copies import LaneCopies
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import Check
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_state import INEXACT, LaunchPart
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    MarkedRegisters,
    MemoryOperand,
    Program,
    PtxOperand,
    Register,
    indices_of,
)
from warpfrag.machine.jit import c_functions
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.box_copies import BatchedMbarriers, BoxCopies, BoxJob, BoxTargets
from warpfrag.machine.jit.engine import LANE_BITS, CompiledProgram
from warpfrag.machine.jit.register_flow import registers_read, special_registers_of
from warpfrag.machine.jit.screening import (
    MARKED,
    LaunchScreen,
    ProgramScreen,
    ScreenedWarpBatch,
    ScreenObserver,
    is_ordered,
    is_whole_barrier,
)
from warpfrag.sass.unassigned_registers import PURE, RegisterDemand
from warpfrag.sass.uncertain_values import is_constant_load, local_registers, values_of

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
CLOCKED = actions.MemoryBarrier | actions.TensorCopy | actions.BulkCopy
"""Actions that require clocks."""
VALUE_ACTIONS = (
    actions.LaneOp | actions.Move | actions.NoOp | actions.MemoryLoad | actions.MemoryStore | actions.WarpCollective
    | actions.MatrixOp | actions.TextureFetch
)  # fmt: skip
"""Actions whose operands are only data, except for addresses: they do not affect accesses or their order."""
COMPUTED = actions.LaneOp | actions.Move | actions.WarpCollective | actions.MemoryBarrier
"""Actions whose results come from memory only if an operand does; mbarriers contain no data."""
MBARRIER_OPERATIONS = {"init", "inval", "arrive", "expect_tx", "try_wait", "test_wait"}
MBARRIERS = ctx.CLOCK_WORDS - ctx.MBARRIER_CLOCKS  # the number of mbarriers with clocks per block
EVERYBODY = -1  # the tag of bytes that no thread may access
BY_COPY, PHASE_BIT = -(1 << 63), 20  # as in `access_screen.c`
MAX_TIME = 1 << 26
MBARRIER_SHIFT = 3  # an mbarrier has 8 bytes


def is_followed(inst: DecodedInstruction) -> bool:
    """Return True for an mbarrier operation, or a copy within one block, that this module follows."""
    action = inst.action
    if isinstance(action, actions.MemoryBarrier):
        is_plain = not (action.drops or not action.completes)
        return action.name in MBARRIER_OPERATIONS and action.space == "shared" and is_plain
    if isinstance(action, actions.TensorCopy):
        return not action.reduction and not action.is_multicast
    return isinstance(action, actions.BulkCopy) and action.function is None and not action.is_multicast


def steering_registers(inst: DecodedInstruction, *, has_marks: bool) -> set[int]:
    """Return the registers of an instruction that affect accesses, their order, or the marks of its registers."""
    action = inst.action
    operands: list[PtxOperand] = [item for item in (*inst.sources, *inst.results) if isinstance(item, MemoryOperand)]
    if not isinstance(action, VALUE_ACTIONS):
        operands += inst.sources
    if isinstance(action, actions.WarpCollective) and action.synced:
        operands += inst.sources[-1:]  # the mask of participating lanes
    if wgmma_registers.is_wgmma(inst):
        operands += [item for item in inst.sources if isinstance(item, Register)]  # descriptors
    if has_marks:
        operands += [item for item in inst.sources if isinstance(item, Register) and item.bits == 1]
    if inst.guard is not None and (has_marks or not isinstance(action, PURE)):
        operands.append(inst.guard)
    return indices_of(operands)


def has_fixed_accesses(program: Program, marked: MarkedRegisters) -> bool:
    """Return True if values from memory, clocks and similar registers affect neither accesses nor branches."""
    flow, local = RegisterDemand(program), local_registers(program)
    before: dict[int, frozenset[int]] = {0: frozenset()}
    queue = [0]
    while queue:
        start = queue.pop()
        state = before[start]
        for at in range(start, flow.ends[start]):
            inst = program.instructions[at]
            if program.instructions[at - 1].line != inst.line:
                state -= local
            has_marks = bool(marked.reads[at] or marked.writes[at])
            if not state.isdisjoint(steering_registers(inst, has_marks=has_marks)):
                return False
            results = indices_of(inst.results)
            is_loaded = not isinstance(inst.action, COMPUTED)
            is_loaded |= any(name.split(".", maxsplit=1)[0] in INEXACT for name in special_registers_of(inst))
            if is_loaded or not state.isdisjoint(registers_read(inst)):
                state |= results
            elif inst.guard is None:
                state -= results
        for after in flow.following(start):
            joined = before.get(after, frozenset()) | state
            if joined != before.get(after):
                before[after] = joined
                queue.append(after)
    return True


class MachineScreen(ProgramScreen):
    """Determines the checks for which a machine-code program can be screened, and records the launches with a proof."""

    def __init__(self, compiled: CompiledProgram) -> None:
        """Create a screen without proofs."""
        super().__init__(compiled)
        self.proofs: set[Hashable] = set()

    @cached_property
    def has_clocks(self) -> bool:
        """True if mbarriers or bulk copies order threads."""
        return any(isinstance(inst.action, CLOCKED) for inst in self.instructions)

    @cached_property
    def cell_shift(self) -> int:
        """The number of offset bits within a cell, which never contains parts of two mbarriers."""
        return min(super().cell_shift, MBARRIER_SHIFT) if self.has_clocks else super().cell_shift

    @cached_property
    def is_ordered(self) -> bool:
        """True if all accesses are reported, and barriers or clocks order the threads."""
        if not self.has_clocks:
            return super().is_ordered
        copies = any(isinstance(inst.action, actions.AsyncCopy) for inst in self.instructions)
        barriers = (inst for inst in self.instructions if isinstance(inst.action, actions.Barrier))
        is_tracked = all(is_followed(inst) or is_ordered(inst) for inst in self.instructions)
        is_tracked = is_tracked and not copies and all(map(is_whole_barrier, barriers))
        return is_tracked and wgmma_registers.are_registers_ready(self.compiled.program)

    @cached_property
    def tracked_instructions(self) -> Bytes:
        """The asynchronous work that each instruction starts or orders, and the loads of constant data."""
        tracked = super().tracked_instructions
        tracked[[at for at, inst in enumerate(self.instructions) if is_constant_load(inst)]] = ctx.TRACKED_CONSTANT
        return tracked

    @cached_property
    def has_compiled_marks(self) -> bool:
        """True if the scheduler, which does not test marks, reads no register that may be unwritten."""
        marked = self.compiled.layout.marked
        return marked is not None and not any(
            reads and (isinstance(inst.action, actions.MatrixOp) or inst.action.ends_block)
            for inst, reads in zip(self.instructions, marked.reads, strict=True)
        )

    @cached_property
    def has_fixed_accesses(self) -> bool:
        """True if no loaded value affects an address, a branch or a copy, so that a proof holds for all values."""
        marked = self.compiled.layout.marked
        return marked is not None and has_fixed_accesses(self.compiled.program, marked)

    @cached_property
    def has_marks(self) -> bool:
        """True if all memory reads are reported and the registers that may be read unwritten are known."""
        is_reported = all(isinstance(inst.action, (*MARKED, CLOCKED)) for inst in self.instructions)
        return self.compiled.layout.marked is not None and is_reported


class MachineLaunchScreen(LaunchScreen):
    """The screen of one machine-code launch."""

    def __init__(self, program: MachineScreen, memory: DeviceMemory, checks: Collection[Check]) -> None:
        """Create the screen. With clocks, a wait orders threads only if no thread can pass it before the phase ends."""
        super().__init__(program, memory, checks)
        self.has_clocks, self.decisive = program.has_clocks, values_of(program.compiled.program).decisive

    def batch(self, part: LaunchPart) -> ScreenedWarpBatch:
        """Create a batch of blocks that runs under the screen."""
        return ClockedWarpBatch(part, self) if self.has_clocks else MachineWarpBatch(part, self)


@dataclass
class MbarrierClock:
    """An mbarrier, and the clocks of the threads that arrive at it.

    `number` is its index in its block. `arrived` joins the clocks of arriving warps; when a phase ends, it is copied to
    `learned`, which waiting warps receive. `completed` counts the phases that have ended, `owed` is the number of bytes
    that were announced but not yet copied, and `uses` has the time of each warp's last use.
    """

    number: int
    initialised: tuple[int, int]  # the warp in the block, and the time
    arrived: Numbers
    learned: Numbers
    completed: int = 0
    owed: int = 0
    last_copy: int = -1  # the phase in which the last copy was issued
    is_live: bool = True  # set to False by mbarrier.inval
    uses: dict[int, int] = field(default_factory=dict)


class ClockObserver(ScreenObserver):
    """Reports the interpreter's mbarrier operations and copies to the clocks."""

    batch: ClockedWarpBatch

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cells: list[int]) -> None:
        """Report the bytes that a copy reads."""
        self.batch.transfer(buffer, offsets, np.full(len(offsets), size), thread, None, is_store=False)
        self.batch.screen.is_by_value = True  # the tensor map may be in global memory
        if not cells:
            self.batch.issue_store(thread)

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Report the bytes that a copy writes."""
        if reduction:
            self.batch.mark_uncertain()
        self.batch.transfer(buffer, offsets, np.full(len(offsets), size), thread, cell, is_store=True)

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """Join the clocks of the warps that meet at a barrier."""
        del number
        first = block * len(here)
        self.batch.join_warps(first + np.flatnonzero(here.any(axis=1)))

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Start following an mbarrier."""
        self.batch.start(cell, thread)

    def mbarrier_invalidated(self, cell: int, thread: int) -> None:
        """Stop following an mbarrier."""
        self.batch.end(cell, thread)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """Remember the arriving thread for the mbarrier update that follows."""
        del cell
        self.batch.arriving.append(thread)

    def mbarrier_completed(self, cell: int) -> None:
        """Record the end of a phase."""
        self.batch.end_phase(cell)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Order threads after the phases that they waited for."""
        for cell, row in sorted({*zip(cells.tolist(), (threads // LANES).tolist(), strict=True)}):
            self.batch.waited(cell, row)


class ClockedMbarriers(BatchedMbarriers):
    """The mbarriers of a batch, which also report their updates to the clocks."""

    state: ClockedWarpBatch

    def advance(
        self, cells: Numbers, arrivals: Numbers, owed: Numbers, *, drops: bool = False
    ) -> tuple[NDArray[np.uint64], int]:
        """Update mbarriers in order, and report each arrival, byte count and phase end."""
        batch, threads = self.state, self.state.arriving
        result = super().advance(cells, arrivals, owed, drops=drops)
        if threads and len(threads) != len(cells):
            batch.mark_uncertain()
        words, following, has_ended = result[0].tolist(), dict[int, int](), [False] * len(cells)
        for at in range(len(cells) - 1, -1, -1):
            cell = int(cells[at])
            has_ended[at] = bool((words[at] ^ following.get(cell, int(self.words[cell]))) >> 63)
            following[cell] = words[at]
        for at, cell in enumerate(cells.tolist()):
            if at < len(threads):
                batch.arrive(cell, threads[at], int(arrivals[at]), int(owed[at]))
            if has_ended[at]:
                batch.end_phase(cell)
        threads.clear()
        return result


class ClockedBoxes(BoxCopies):
    """The box copies of a batch, which also report their accesses to the clocks."""

    batch: ClockedWarpBatch

    def copy(self, job: BoxJob, copies: LaneCopies, targets: BoxTargets) -> list[int]:
        """Report a job's boxes to the clocks, and copy them."""
        lanes, _, cells, _ = targets.of(job.lanes)
        for at, lane in enumerate(lanes.tolist()):
            own = int(np.searchsorted(job.lanes, lane))
            thread, cell = int(copies.owners.threads[lane]), None if cells is None else int(cells[at])
            self.batch.screen.is_by_value |= job.map_space != "param"
            parts = {
                True: (self.memory.shared, 8 * job.plan.in_shared(int(job.places[own])).runs, int(job.in_shared[own])),
                False: (job.tensor, 8 * job.plan.in_global.runs, int(job.in_tensor[own])),
            }
            for is_target in (False, True):
                buffer, runs, start = parts[is_target == (cell is not None)]
                self.batch.transfer(buffer, start + runs[:, 0], runs[:, 1], thread, cell, is_store=is_target)
            if cell is None:
                self.batch.issue_store(thread)
        return super().copy(job, copies, targets)


def lane_bits(group: LaneGroup) -> NDArray[np.uint32]:
    """Return each warp's lanes in a group as a 32-bit mask."""
    return (group.mask * LANE_BITS).sum(axis=1, dtype=np.uint32)


class MachineWarpBatch(ScreenedWarpBatch):
    """Blocks that run in compiled code, while the interpreter follows the marks of unwritten registers."""

    def marked_lanes(self, register: int) -> NDArray[np.uint32]:
        """Return a view of the masks, one per warp, of the lanes in which a register is unwritten."""
        lanes: NDArray[np.uint32] = self.buffer.view(np.uint32)[:, self.compiled.layout.marks[register] // 4]
        return lanes

    def reads_marks(self, at: int, group: LaneGroup) -> bool:
        """Return True if an instruction needs a register that is unwritten in an active lane, or has such a guard."""
        marked, inst = self.compiled.layout.marked, self.program.instructions[at]
        guard, active = inst.guard, self.active_part(inst, group)
        return marked is None or any(
            bool((lane_bits(group if guard and register == guard.index else active) & group.of(lanes)).any())
            for register in marked.reads[at]
            for lanes in [self.marked_lanes(register)]
        )

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Interpret an instruction, and mark its results as written in the active lanes."""
        marked, active = self.compiled.layout.marked, self.active_part(self.program.instructions[at], group)
        has_run = super().run_inst(at, group)
        if has_run and marked is not None:
            for register in marked.writes[at] & self.compiled.layout.marks.keys():
                self.marked_lanes(register)[active.warp_rows] &= ~lane_bits(active)
        return has_run


class ClockedWarpBatch(MachineWarpBatch):
    """Blocks that run in compiled code and whose warps have vector clocks."""

    def __init__(self, part: LaunchPart, screen: MachineLaunchScreen) -> None:
        """Create clocks, at time 1, that order nothing."""
        self.arriving: list[int] = []  # the threads that run the current mbarrier instruction
        self.mbarriers_by_cell: dict[int, MbarrierClock] = {}
        self.numbers_by_block: dict[int, int] = {}
        super().__init__(part, screen)
        self.decisive = screen.decisive
        self.clocks = np.zeros((self.warps, ctx.CLOCK_WORDS), np.int64)
        self.stores = np.zeros((self.warps * LANES, ctx.COPY_WORDS), np.int64)
        self.issued = np.zeros(self.warps * LANES, np.int64)  # the group of each thread's last bulk store, plus one
        self.put(ctx.CLOCKS, self.clocks)
        self.put(ctx.FENCED, np.zeros((self.warps, LANES), np.int64))
        self.put(ctx.BULK_GROUPS, self.stores)
        self.state[ctx.NOW] = 1
        self.memory.observer = self.observer = ClockObserver(self)
        self.boxes = ClockedBoxes(self, self.batched_mbarriers)

    def _new_mbarriers(self) -> BatchedMbarriers:
        """Return mbarriers that report their updates."""
        self.batched_mbarriers = ClockedMbarriers(self)
        return self.batched_mbarriers

    @property
    def now(self) -> int:
        """The number of synchronisation events so far, plus one."""
        return int(self.state[ctx.NOW])

    def tick(self) -> int:
        """Return the current time, then advance it."""
        now = self.now
        self.state[ctx.NOW] = now + 1
        return now

    def warp(self, row: int) -> int:
        """Return the number of a row's warp in its block."""
        return row % self.launch.warps

    # --- events

    def join_warps(self, rows: Numbers) -> None:
        """Join the clocks of a block's warps that meet at a barrier."""
        self.clocks[rows, rows % self.launch.warps] = self.tick()
        self.clocks[rows] = self.clocks[rows].max(axis=0)

    def start(self, cell: int, thread: int) -> None:
        """Start following an mbarrier; until it is invalidated, no thread may access its bytes."""
        row = thread // LANES
        old = self.mbarriers_by_cell.get(cell)
        if old is not None and old.is_live:
            self.mark_uncertain()  # it was initialised again without mbarrier.inval
        block = row // self.launch.warps
        number = self.numbers_by_block.get(block, 0)
        self.numbers_by_block[block] = number + 1
        if number >= MBARRIERS:
            self.mark_uncertain()
        self.note_access(cell, thread)
        nothing = np.zeros(ctx.CLOCK_WORDS, np.int64)
        self.mbarriers_by_cell[cell] = MbarrierClock(
            min(number, MBARRIERS - 1), (self.warp(row), self.now), nothing, nothing.copy()
        )
        self.tag_cells(cell, EVERYBODY)

    def note_access(self, cell: int, thread: int) -> None:
        """Check and tag a thread's store to the bytes of an mbarrier."""
        self.observer.tell(self.memory.shared, np.array([8 * cell]), 8, np.array([thread]), is_store=True)

    def tag_cells(self, cell: int, tag: int) -> None:
        """Set the write tag of an mbarrier's bytes."""
        shift = self.screen.program.cell_shift
        self.shared_cells[2 * (8 * cell >> shift) : 2 * (8 * cell + 7 >> shift) + 1 : 2] = tag

    def use(self, cell: int, row: int) -> MbarrierClock | None:
        """Return an mbarrier that a warp uses, after checking that its initialisation is ordered before this use."""
        found = self.mbarriers_by_cell.get(cell)
        if found is None:
            self.mark_uncertain()
            return None
        warp, time = found.initialised
        if not found.is_live or (warp != self.warp(row) and self.clocks[row, warp] < time):
            self.mark_uncertain()
        found.uses[self.warp(row)] = self.now
        return found

    def completed(self, found: MbarrierClock, row: int) -> int:
        """Return the number of an mbarrier's completed phases that are ordered before a warp."""
        return int(self.clocks[row, ctx.MBARRIER_CLOCKS + found.number])

    def end(self, cell: int, thread: int) -> None:
        """Handle mbarrier.inval, which must be ordered after all uses."""
        row = thread // LANES
        found = self.use(cell, row)
        if found is None:
            return
        known = [warp == self.warp(row) or self.clocks[row, warp] >= time for warp, time in found.uses.items()]
        if not all(known) or self.completed(found, row) <= found.last_copy:
            self.mark_uncertain()
        found.is_live = False
        self.tag_cells(cell, 0)
        self.note_access(cell, thread)

    def arrive(self, cell: int, thread: int, arrivals: int, owed: int) -> None:
        """Handle an arrival (a release), announced bytes, or both; the previous phase must be ordered before them."""
        row = thread // LANES
        found = self.use(cell, row)
        if found is None:
            return
        if self.completed(found, row) < found.completed or owed < 0:
            self.mark_uncertain()
        found.owed += owed
        if arrivals:
            self.clocks[row, self.warp(row)] = self.tick()
            found.arrived = np.maximum(found.arrived, self.clocks[row])

    def end_phase(self, cell: int) -> None:
        """End a phase of an mbarrier: its arrivals are ordered before threads that wait for the phase."""
        found = self.mbarriers_by_cell.get(cell)
        if found is None or found.owed:
            self.mark_uncertain()
        if found is not None:
            found.completed += 1
            found.learned = found.arrived.copy()

    def waited(self, cell: int, row: int) -> None:
        """Order a warp after an mbarrier's last phase; the phase before must already be ordered before the warp."""
        found = self.use(cell, row)
        if found is None or self.memory.inst not in self.decisive:
            return
        if self.completed(found, row) < found.completed - 1:
            self.mark_uncertain()
        np.maximum(self.clocks[row], found.learned, out=self.clocks[row])
        self.clocks[row, ctx.MBARRIER_CLOCKS + found.number] = found.completed

    def transfer(
        self, buffer: Bytes, offsets: Numbers, sizes: Numbers, thread: int, cell: int | None, *, is_store: bool
    ) -> None:
        """Check and tag the bytes that a thread's copy reads or writes."""
        tag, row = EVERYBODY, thread // LANES
        if is_store and cell is not None:
            found = self.use(cell, row)
            if found is None:
                return
            found.owed -= int(sizes.sum())
            if found.owed < 0 or self.completed(found, row) < found.completed:
                self.mark_uncertain()
            tag, found.last_copy = BY_COPY | found.completed << PHASE_BIT | found.number, found.completed
        number = self.buffer_number(buffer)
        if number is not None:
            places, lengths = (np.ascontiguousarray(item, np.int64) for item in (offsets, sizes))
            c_functions.screen_transfers.run(self.context, places, lengths, number, thread, int(is_store), tag)

    def issue_store(self, thread: int) -> None:
        """Record that a thread must wait for its open bulk-copy group before it exits."""
        self.issued[thread] = self.stores[thread, 0] + 1

    # --- lanes stay together

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Interpret an instruction; mark the launch uncertain if the lanes of a warp have diverged."""
        inst = self.program.instructions[at]
        action, rows = inst.action, group.warp_rows
        is_whole = bool((group.mask == self.alive[rows]).all())
        if inst.guard is not None and action.ends_block:
            chosen = self.active_part(inst, group).mask
            is_whole &= bool((chosen.all(axis=1) | ~chosen.any(axis=1) | (chosen == group.mask).all(axis=1)).all())
        has_run = super().run_inst(at, group)
        if isinstance(action, CLOCKED):
            asleep, alive = self.waiting[rows], self.alive[rows]
            is_whole &= bool((~asleep.any(axis=1) | (asleep == alive).all(axis=1)).all())
        if not is_whole:
            self.mark_uncertain()
        return has_run

    def run(self) -> None:
        """Run until every lane has exited; copies that are still incomplete make the launch uncertain."""
        super().run()
        copied = [
            (cell * 8 // self.memory.shared_stride, found)
            for cell, found in self.mbarriers_by_cell.items()
            if found.last_copy >= 0
        ]
        is_open = bool((self.issued > self.stores[:, 1]).any()) or self.now > MAX_TIME
        for block, found in copied:
            rows = slice(block * self.launch.warps, (block + 1) * self.launch.warps)
            known: Any = self.clocks[rows, ctx.MBARRIER_CLOCKS + found.number].max()
            is_open |= bool(known <= found.last_copy)
        if is_open or self.state[ctx.IS_SPLIT]:
            self.mark_uncertain()
