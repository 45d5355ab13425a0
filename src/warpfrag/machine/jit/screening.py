"""Screening: run a launch in compiled code and try to prove that no check would report anything.

Compiled code reports its accesses to `access_screen`, and the interpreter reports its own through `ScreenObserver`.
The screen has less information than the checks. If it is uncertain about an access or a barrier, the launch runs again
with the checks. Otherwise, no check would report anything. A program can be screened for a check only if it meets the
check's conditions:

    uninitialised  all memory reads are reported, to be compared with the marks of written bytes; registers are written
                   before they are read (`register_flow`), or compiled code tracks unwritten lanes (`register_marks`)
    barriers       all barriers are block-wide; a barrier after some threads have exited is uncertain
    races          only such barriers order threads: no atomics, no loads that wait for other threads, no mbarriers
    async          nothing is asynchronous, so nothing needs a wait; or there is only cp.async, tracked as for races, or
                   wgmma, whose registers no path uses too early (`wgmma_registers`)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Numbers
from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter import wgmma_registers
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.kernel_findings import CHECK_TABLE, Check
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.observer import Observer
from warpfrag.machine.interpreter.warp_state import LaunchConfig, LaunchPart
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import B32
from warpfrag.machine.jit import c_functions
from warpfrag.machine.jit import context as ctx
from warpfrag.machine.jit.context import IS_LATE, LOCAL_BUFFER, SHARED_BUFFER
from warpfrag.machine.jit.engine import CompiledProgram, CompiledWarpBatch

ASYNCHRONOUS = (
    actions.AsyncCopy, actions.BulkCopy, actions.TensorCopy, actions.AsyncStore, actions.TensorMapReplace,
    actions.TensorMapCopy, actions.MemoryBarrier, actions.TensorThreadOp,
)  # fmt: skip
ORDERED = (
    actions.LaneOp, actions.Move, actions.NoOp, actions.MemoryLoad, actions.MemoryStore, actions.AsyncCopy,
    actions.WarpCollective, actions.WarpWait, actions.MatrixOp, actions.Branch, actions.Return, actions.Barrier,
    actions.TextureFetch, actions.Reconverge, actions.LeaveBarrier,
)  # fmt: skip
"""Actions whose accesses are ordered by block-wide barriers, or by waits for cp.async groups."""
MARKED = (*ORDERED, actions.Atomic)
"""Actions whose accesses are reported to the screen, by compiled code or the interpreter."""


def is_asynchronous(inst: DecodedInstruction) -> bool:
    """Return True for asynchronous copies and stores, wgmma, tcgen05, and tensor-map and mbarrier instructions."""
    return isinstance(inst.action, ASYNCHRONOUS) or wgmma_registers.is_wgmma(inst)


def is_ordered(inst: DecodedInstruction) -> bool:
    """Return True if barriers order an instruction's accesses; False for loads that may wait for other threads."""
    action = inst.action
    if isinstance(action, actions.MemoryLoad | actions.MemoryStore) and action.space == "cluster":
        return False
    is_waiting = isinstance(action, actions.MemoryLoad) and action.polls
    return isinstance(action, ORDERED) and not is_waiting and inst.attributes.opcode != "mapa"


def is_whole_barrier(inst: DecodedInstruction) -> bool:
    """Return True for a barrier at which all threads of the block wait."""
    action = inst.action
    return isinstance(action, actions.Barrier) and action.waits and len(inst.sources) == 1 + bool(action.reduction)


class ProgramScreen:
    """Determines for which checks a program can be screened."""

    def __init__(self, compiled: CompiledProgram) -> None:
        """Create the screen of a program; the analyses run on first use."""
        self.compiled, self.instructions = compiled, compiled.program.instructions

    is_enabled: ClassVar[bool] = True

    def is_possible(self, config: LaunchConfig, memory: DeviceMemory, checks: Collection[Check]) -> bool:
        """Return True if a launch can be screened for all of the given checks, once the program is compiled."""
        is_plain = config.interleaving is None and not config.is_cooperative and not memory.has_heap
        is_plain &= config.cluster_blocks == 1 and math.prod(config.grid) < ctx.MAX_BLOCKS
        return self.is_enabled and is_plain and self.allows(checks)

    def is_decided(self, checks: Collection[Check]) -> bool:
        """Return True if compiled code tracks everything that the given checks need."""
        return self.compiled.is_ready and ("uninitialised" not in checks or self.has_compiled_marks)

    def allows(self, checks: Collection[Check]) -> bool:
        """Return True if the program can be screened for all of the given checks."""
        return self.is_repeatable and all(CHECK_TABLE[check].can_screen(self) for check in checks)

    @cached_property
    def is_ordered(self) -> bool:
        """True if all accesses are reported and only block-wide barriers order threads."""
        is_tracked = self.has_whole_barriers and all(map(is_ordered, self.instructions))
        return is_tracked and wgmma_registers.are_registers_ready(self.compiled.program)

    @cached_property
    def cell_shift(self) -> int:
        """The number of offset bits within a cell; a cell is as large as the smallest access."""
        sizes = [
            inst.action.type.dtype.itemsize
            for inst in self.instructions
            if isinstance(inst.action, actions.MemoryLoad | actions.MemoryStore)
        ]
        sizes += [2 for inst in self.instructions if inst.attributes.opcode == "wmma"]
        return min(sizes, default=16).bit_length() - 1

    @cached_property
    def tracked_instructions(self) -> Bytes:
        """The class of asynchronous work that each instruction starts or orders, one byte each; 0 for none."""
        tracked = {"cp": ctx.TRACKED_COPY, "wgmma": ctx.TRACKED_PRODUCT}
        numbers = [
            ctx.TRACKED_COPY if isinstance(inst.action, actions.AsyncCopy)
            else ctx.TRACKED_STORE if ".bulk." in inst.name
            else ctx.TRACKED_FENCE if wgmma_registers.is_proxy_fence(inst)
            else tracked.get(inst.name.split(".")[0], ctx.NOT_TRACKED)
            for inst in self.instructions
        ]  # fmt: skip
        return np.array([*numbers, *[ctx.NOT_TRACKED] * ctx.PADDING], np.uint8)

    @cached_property
    def is_repeatable(self) -> bool:
        """True if the program can run twice, because it neither prints nor allocates."""
        return not any(isinstance(inst.action, actions.SystemCall) for inst in self.instructions)

    @cached_property
    def has_whole_barriers(self) -> bool:
        """True if all barriers are block-wide and no thread waits for another's stores or arrivals."""
        has_polling = bool(self.compiled.program.polling) or any(
            isinstance(inst.action, actions.MemoryBarrier) for inst in self.instructions
        )
        return not has_polling and all(
            is_whole_barrier(inst) for inst in self.instructions if isinstance(inst.action, actions.Barrier)
        )

    @cached_property
    def is_asynchronous(self) -> bool:
        """True if some accesses are asynchronous or are not tracked."""
        return any(is_asynchronous(inst) or isinstance(inst.action, actions.SurfaceOp) for inst in self.instructions)

    @cached_property
    def has_marks(self) -> bool:
        """True if all memory reads are reported, and registers that may be read before they are written are known."""
        is_followed = self.compiled.layout.marked is not None
        return is_followed and all(isinstance(inst.action, MARKED) for inst in self.instructions)

    @cached_property
    def has_compiled_marks(self) -> bool:
        """True if only compiled code, not the interpreter, reads the registers that may be unwritten."""
        marked = self.compiled.layout.marked
        if self.compiled.layout.marks:
            self.compiled.compile_all()
        return marked is not None and all(
            at in self.compiled.covered or not marked.reads[at] for at in range(len(self.instructions))
        )


class LaunchScreen:
    """The screen of one launch, which its batches share."""

    def __init__(self, program: ProgramScreen, memory: DeviceMemory, checks: Collection[Check]) -> None:
        """Create the screen of a launch; nothing is uncertain yet."""
        self.program, self.compiled = program, program.compiled
        self.is_uncertain = self.is_by_value = False  # is_by_value: the screen's result depends on stored values
        self.follows_marks = "uninitialised" in checks
        self.follows_order = "races" in checks or ("async" in checks and program.is_asynchronous)
        self.follows_barriers = self.follows_order or "barriers" in checks
        self.marks = {
            id(item.data): np.concatenate([item.unwritten == 0, np.zeros(ctx.PADDING, np.bool_)]).view(np.uint8)
            for item in memory.allocations
            if item.unwritten is not None and self.follows_marks
        }
        self.accesses = {
            id(item.data): self.no_accesses(len(item.data))
            for item in memory.allocations
            if item.writable and self.follows_order
        }

    def no_accesses(self, size: int) -> Numbers:
        """Return tags that record no access; each cell has two."""
        return np.zeros(2 * ((size >> self.program.cell_shift) + 1), np.int64)

    def batch(self, part: LaunchPart) -> ScreenedWarpBatch:
        """Create a batch of blocks that runs under the screen."""
        return ScreenedWarpBatch(part, self)


def no_marks(size: int) -> Bytes:
    """Return marks that describe `size` unwritten bytes."""
    return np.zeros(size + ctx.PADDING, np.uint8)


class ScreenObserver(Observer):
    """Reports the interpreter's accesses to the screen."""

    def __init__(self, batch: ScreenedWarpBatch) -> None:
        """Create an observer that reports to a batch."""
        self.batch = batch

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Report loads."""
        self.tell(buffer, offsets, size, threads, is_store=False)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Report stores."""
        self.tell(buffer, offsets, codes.dtype.itemsize * codes.shape[1], threads, is_store=True)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Report an atomic as a load and a store."""
        self.tell(buffer, offsets, size, threads, is_store=False)
        self.tell(buffer, offsets, size, threads, is_store=True)

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """Report the shared-memory reads of a wgmma."""
        self.tell(self.batch.memory.shared, offsets, size, np.full(len(offsets), warp * LANES), is_store=False)

    def product_descriptor(self, form: Form, role: str, word: int, warp: int, *, is_transposed: bool) -> None:
        """Mark the launch as uncertain if a descriptor has a mistake."""
        del warp
        if wgmma_registers.descriptor_problem(form, self.batch.launch.arch, role, word, is_transposed=is_transposed):
            self.batch.mark_uncertain()

    def tell(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers, *, is_store: bool) -> None:
        """Report accesses to the C function that screens the interpreter's accesses."""
        batch = self.batch
        tracked = int(batch.screen.program.tracked_instructions[batch.memory.inst])
        where, who = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(threads, np.int64)
        number = batch.buffer_number(buffer)
        if number is not None:
            c_functions.screen_accesses.run(batch.context, who, where, number, int(size), is_store, tracked)


class ScreenedWarpBatch(CompiledWarpBatch):
    """Blocks that run together in compiled code, under a screen."""

    def __init__(self, part: LaunchPart, screen: LaunchScreen) -> None:
        """Create the batch, with its memory and registers marked as unwritten."""
        super().__init__(part, screen.compiled)
        self.screen = screen
        memory = self.memory
        layout, self.threads = screen.compiled.layout, self.alive.copy()
        self.is_late = False  # True once threads have exited before a barrier of their block
        self.state = np.zeros(ctx.SCREEN_WORDS, np.int64)
        self.kept: list[NDArray[Any]] = []  # keeps arrays alive whose addresses are in the state
        self.shared_marks = no_marks(len(memory.shared) if screen.follows_marks else 0)
        if screen.follows_marks:
            offsets = [offset // 4 for offset in layout.marks.values()]
            self.buffer.view(np.uint32)[:, offsets] = np.uint32(0xFFFFFFFF)
            self.put(ctx.SHARED_MARKS, self.shared_marks)
            self.put(ctx.LOCAL_MARKS, no_marks(len(memory.local)))
            self.put_table(ctx.GLOBAL_MARKS, screen.marks)
        if screen.follows_order:
            self.state[ctx.CELL_SHIFT] = screen.program.cell_shift
            self.shared_cells = screen.no_accesses(len(memory.shared))
            self.put(ctx.SHARED_ACCESSES, self.shared_cells)
            self.put_table(ctx.GLOBAL_ACCESSES, screen.accesses)
            if screen.program.tracked_instructions.any():
                threads = self.warps * LANES
                for word, size in (
                    (ctx.COPIES, ctx.COPY_WORDS),
                    (ctx.PRODUCTS, ctx.COPY_WORDS),
                    (ctx.FENCES, ctx.FENCE_WORDS),
                ):
                    self.put(word, np.zeros(threads * size, np.int64))
                self.put(ctx.TRACKED_INSTRUCTIONS, screen.program.tracked_instructions)
        if screen.follows_marks or screen.follows_order:
            self.context[ctx.SCREEN] = c_functions.screen_address()
            self.context[ctx.SCREEN_STATE] = self.state.ctypes.data
            memory.observer = ScreenObserver(self)

    def put(self, word: int, array: NDArray[Any]) -> None:
        """Store the address of an array in the screen's state."""
        self.kept.append(array)
        self.state[word] = array.ctypes.data

    def put_table(self, word: int, arrays: Mapping[int, NDArray[Any]]) -> None:
        """Store the address of a table with one array address per allocation, unless there are no arrays."""
        rows = [arrays.get(id(item.data)) for item in self.memory.allocations]
        if arrays:
            self.put(word, np.array([0 if item is None else item.ctypes.data for item in rows], np.int64))

    def buffer_number(self, buffer: Bytes) -> int | None:
        """Return the number that identifies a buffer in compiled code; None for parameters, which are not tracked."""
        if buffer is self.memory.shared:
            return SHARED_BUFFER
        if buffer is self.memory.local:
            return LOCAL_BUFFER
        at = next((at for at, item in enumerate(self.memory.allocations) if item.data is buffer), None)
        return None if at is None else int(self.table.ctypes.data) + at * self.table.strides[0]

    def mark_uncertain(self) -> None:
        """Mark the launch as uncertain, so that it runs again with the checks."""
        self.screen.is_uncertain = True

    def reads_marks(self, at: int, group: LaneGroup) -> bool:
        """Return True if an instruction may read a register that was never written."""
        del group
        marked = self.compiled.layout.marked
        return marked is None or bool(marked.reads[at])

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Interpret an instruction; mark the launch as uncertain if the screen cannot follow the instruction."""
        inst = self.program.instructions[at]
        action = inst.action
        if self.screen.follows_marks and (is_partial(inst, group) or self.reads_marks(at, group)):
            self.mark_uncertain()
        if (
            self.screen.follows_order
            and self.screen.program.tracked_instructions[at]
            and isinstance(action, actions.NoOp)
        ):
            self.mark_uncertain()  # no compiled code has reported this access
        if isinstance(action, actions.Barrier) and self.exited[self.warp_block[group.warp_rows]].any():
            self.is_late = True
        has_run = super().run_inst(at, group)
        if isinstance(action, actions.Return):
            self.exited[self.warp_block[(self.threads & ~self.alive).any(axis=1)]] = True
            self.is_late |= bool(self.barriers.states)
        return has_run

    def run(self) -> None:
        """Run until every lane has exited, then mark the launch as uncertain if compiled code recorded a suspicion."""
        super().run()
        self.is_late |= bool(self.schedule[IS_LATE])
        self.screen.is_by_value |= bool(self.state[ctx.IS_BY_VALUE])
        if self.context[ctx.SUSPICIONS] or (self.is_late and self.screen.follows_barriers):
            self.mark_uncertain()


def is_partial(inst: DecodedInstruction, group: LaneGroup) -> bool:
    """Return True if an instruction may read lanes that do not execute it or that its member mask omits."""
    is_shuffle = inst.attributes.opcode == "shfl"
    reads_others = isinstance(inst.action, actions.MatrixOp) or is_shuffle
    is_synced = is_shuffle and isinstance(inst.action, actions.WarpCollective) and inst.action.synced
    is_part = is_synced and bool((group.read(inst.sources[-1], B32) != ctx.ALL_LANES).any())
    return is_part or (reads_others and (inst.guard is not None or not group.is_whole))
