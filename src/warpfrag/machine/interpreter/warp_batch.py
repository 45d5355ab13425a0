"""The interpreter: the scheduler of a batch of blocks, convergence of diverged lanes, and the limits of a launch.

Every register is a NumPy array over all lanes of the batch.

Each lane has its own program counter. The scheduler selects the lanes with the lowest program counter, in all warps,
and runs them to the end of their basic block. Diverged lanes thus reconverge at the next basic block that they share,
and warps at the same instruction are executed together. Lanes that poll for a long time lose priority, so that the
lanes they wait for can run. Registers are never modified in place: a result is a new array, so copies are free.
"""

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from warpfrag.errors import MemoryFault, PtxError, WarpfragError
from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter import lane_instructions, texture_instructions
from warpfrag.machine.interpreter.block_barriers import BlockBarriers, ClusterBarriers
from warpfrag.machine.interpreter.bulk_copies import COPIES, LaneCopies
from warpfrag.machine.interpreter.calls import CallStacks, run_system
from warpfrag.machine.interpreter.deadlocks import LivelockDetector, deadlock_error
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.matrix_instructions import run_matrix
from warpfrag.machine.interpreter.mbarriers import Mbarriers
from warpfrag.machine.interpreter.tmem_instructions import TensorMemories, run_tensor
from warpfrag.machine.interpreter.warp_state import LaunchPart, WarpState
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import B32, B64, U32, container
from warpfrag.machine.ops.collectives import ballot

NOT_RUNNABLE = np.int64(1) << np.int64(62)  # sorts after every runnable lane
PRIORITY_UNIT = np.int64(1) << np.int64(32)  # larger than any program counter
QUANTUM = np.int64(4096)  # the number of time slices after which lanes in a loop let others run
MAX_RANDOM_INSTRUCTIONS = 12  # a randomly chosen warp runs fewer instructions than this before the next choice
POLLING_SLICES = 64  # the cost, in time slices, of a basic block that reads memory other lanes may change
LANE_INDEX = np.arange(LANES, dtype=np.uint32)
LANE_BY_LANE = actions.MemoryLoad | actions.MemoryStore | actions.Atomic | actions.AsyncCopy | actions.SurfaceOp
"""Actions that can continue without a lane whose access faults."""


class WarpBatch(WarpState):
    """A batch of blocks that run together, and the scheduler of their warps."""

    def __init__(self, part: LaunchPart) -> None:
        """Create a batch in which every lane is at the kernel's entry."""
        super().__init__(part)
        self.barriers = BlockBarriers(self)
        self.cluster_barriers = ClusterBarriers(self)
        self.mbarriers = self._new_mbarriers()
        self.tensor_memories: TensorMemories | None = None  # created at the first tcgen05 instruction
        self.calls = CallStacks(self)
        self.livelock = LivelockDetector(self)
        self.random: np.random.Generator | None = None  # set if a seed is given; chooses the next warp
        if part.launch.interleaving is not None:
            self.random = np.random.default_rng([part.launch.interleaving, *part.blocks[0]])

    # --- scheduling

    def _new_mbarriers(self) -> Mbarriers:
        """Create the mbarriers of the batch; the compiled engine overrides this method."""
        return Mbarriers(self)

    def run(self) -> None:
        """Run until every lane has exited."""
        while self.schedule_next():
            pass

    def schedule_next(self) -> bool:
        """Give a time slice to the lanes with the lowest program counter; return False if all lanes have exited."""
        runnable = self.alive & ~self.waiting
        if not runnable.any():
            if not self.alive.any():
                return False
            self.release_waiting()
            return True
        priorities = np.where(runnable, (self.slices // QUANTUM) * PRIORITY_UNIT + self.pc, NOT_RUNNABLE)
        by_warp = priorities.min(axis=1)
        if self.random is not None:
            self.schedule_at_random(self.random, runnable, by_warp)
            return True
        level, start = (int(part) for part in divmod(by_warp.min(), PRIORITY_UNIT))
        if level > self.livelock.level:
            self.look_for_livelock(level, runnable)
        chosen = (by_warp != NOT_RUNNABLE) & (by_warp % PRIORITY_UNIT == start)
        if chosen.all():
            rows, mask = None, runnable & (self.pc == start)
        else:
            rows = np.nonzero(chosen)[0]
            mask = runnable[rows] & (self.pc[rows] == start)
        self.run_block(start, LaneGroup(self, rows, mask))
        return True

    def schedule_at_random(self, random: np.random.Generator, runnable: Mask, by_warp: Numbers) -> None:
        """Run a few instructions of a randomly chosen warp, or a wgmma of its warpgroup."""
        warp = int(random.choice(np.nonzero(by_warp != NOT_RUNNABLE)[0]))
        start = int(by_warp[warp] % PRIORITY_UNIT)
        action = self.program.instructions[start].action
        rows = np.array([warp])
        if isinstance(action, actions.MatrixOp) and action.operation == "wgmma":
            first = warp - int(self.warp_index[warp]) % 4
            same = (by_warp != NOT_RUNNABLE) & (by_warp % PRIORITY_UNIT == start)
            rows = np.nonzero(same[first : first + 4])[0] + first
        group = LaneGroup(self, rows, runnable[rows] & (self.pc[rows] == start))
        end = min(self.program.ends[start], start + int(random.integers(1, MAX_RANDOM_INSTRUCTIONS)))
        self.check_interrupt()
        for at in range(start, end):
            if not self.run_inst(at, group) or self.program.instructions[at].action.ends_block:
                return
        group.put(self.pc, end)

    def look_for_livelock(self, level: int, runnable: Mask) -> None:
        """Raise a deadlock error if lanes poll memory that no lane will change; called once per quantum."""
        if self.livelock.is_reached(level, runnable, has_sleepers=self.mbarriers.has_sleepers):
            self.end_in_deadlock()

    def release_waiting(self) -> None:
        """Complete barriers, or let waits time out, so that lanes can run again; otherwise raise a deadlock error."""
        if self.leave_convergence_barriers() or self.leave_convergence_barriers(needs_one_mask=False):
            return
        if self.barriers.release_completed() or self.cluster_barriers.check_all() or self.mbarriers.expire():
            return
        self.end_in_deadlock()

    def end_in_deadlock(self) -> NoReturn:
        """Raise an error that names the waiting lanes and their barriers."""
        parts = self.livelock, self.mbarriers, self.cluster_barriers, self.barriers
        raise deadlock_error(part.deadlock() for part in parts)

    def run_block(self, start: int, group: LaneGroup) -> None:
        """Run lanes for one time slice: from an instruction to the end of its basic block."""
        instructions, end = self.program.instructions, self.program.ends[start]
        self.begin_slice(start, group)
        for at in range(start, end):
            if not self.run_inst(at, group) or instructions[at].action.ends_block:
                return
        group.put(self.pc, end)

    def begin_slice(self, start: int, group: LaneGroup) -> None:
        """Count a time slice for lanes that start a basic block."""
        self.check_interrupt()
        weight = 1
        if start in self.program.polling:
            weight = POLLING_SLICES
            self.livelock.note(start, group)
        group.put(self.slices, group.of(self.slices) + weight)

    def run_inst(self, at: int, group: LaneGroup) -> bool:
        """Run an instruction; return False if its lanes have to wait for other lanes instead."""
        inst = self.program.instructions[at]
        self.line, self.memory.inst = inst.line, at
        action = inst.action
        active = self.active_part(inst, group)
        if action.is_collective and not self.all_arrived(at, inst, group, active):
            return False
        if isinstance(action, actions.MemoryBarrier) and action.waits and active.mask.any():
            return self.suspend(at, inst, action, group, active)
        self.count(at, at + 1, group.warps)
        if action.ends_block:
            group.put(self.pc, at + 1)
            if active.mask.any():
                CONTROL_HANDLERS[type(action)](self, at, inst, action, active)
        elif active.is_whole or active.mask.any():
            self.execute(inst, active)
        return True

    def active_part(self, inst: DecodedInstruction, group: LaneGroup) -> LaneGroup:
        """Return the lanes of a group whose guard predicate is true."""
        if inst.guard is None:
            return group
        guard = group.of(self.registers[inst.guard.index])
        return group.part(group.mask & (~guard if inst.guard.negated else guard))

    def count(self, start: int, end: int, warps: int) -> None:
        """Count instructions `start` to `end` for `warps` warps; raise PtxError if the launch exceeds its limit."""
        self.tally.instructions[start:end] += warps
        self.tally.total += (end - start) * warps
        if self.tally.total > self.launch.limit:
            limit = f"reached its limit of {self.launch.limit} warp instructions (LaunchOptions.limit)"
            raise PtxError(self.program.instructions[start].line, f"the launch {limit}: it may never end")

    def check_interrupt(self) -> None:
        """Raise PtxError if the launch was interrupted or exceeded its time limit."""
        if self.tally.is_stopped:
            raise PtxError(self.line, "the launch was interrupted")
        if self.launch.is_late:
            running, slices = self.pc[self.alive], self.slices[self.alive]
            busiest = int(running[slices.argmax()]) if running.size else 0
            line = self.program.instructions[busiest].line
            limit = f"the launch was stopped after {self.launch.seconds:g} s"
            raise PtxError(line, f"{limit} (--launch-seconds, LaunchOptions.seconds); this line was running")

    def execute(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Run an instruction that falls through; if faults are collected, continue without the lanes that fault."""
        is_lane_by_lane = isinstance(inst.action, LANE_BY_LANE)
        while True:
            try:
                HANDLERS[type(inst.action)](self, inst, inst.action, group)
            except MemoryFault as fault:
                if not self.memory.is_checked or not is_lane_by_lane:
                    raise self.first_fault(inst, group, fault) from None
                self.note(inst, group, fault)
                group = self.without_faulty(inst, group, fault.index)
                if group.mask.any():
                    continue
            return

    def note(self, inst: DecodedInstruction, group: LaneGroup, fault: MemoryFault) -> None:
        """Handle a faulting access that the launch skips; a checked batch reports it as a finding."""

    @staticmethod
    def without_faulty(inst: DecodedInstruction, group: LaneGroup, index: int) -> LaneGroup:
        """Set the results of the lane at `index`, whose access failed, to 0; return the group without that lane."""
        warps, lanes = np.nonzero(group.mask)
        faulty = np.zeros_like(group.mask)
        faulty[warps[index], lanes[index]] = True
        for register in (register for result in inst.results for register in items_of(result)):
            group.part(faulty).write(register, np.zeros(group.mask.shape, container(getattr(register, "bits", 32))))
        return group.part(group.mask & ~faulty)

    def first_fault(self, inst: DecodedInstruction, group: LaneGroup, fault: MemoryFault) -> PtxError:
        """Return the error of the first warp that faults, as in compiled code, which runs one warp at a time."""
        if group.warps > 1 and not self.memory.is_checked:
            for row, lanes in zip(group.warp_rows, group.mask, strict=True):
                warp = LaneGroup(self, np.array([row]), lanes[None, :])
                try:
                    if lanes.any():
                        HANDLERS[type(inst.action)](self, inst, inst.action, warp)
                except MemoryFault as first:
                    return self.fault(inst, warp, first)
        return self.fault(inst, group, fault)

    def fault(self, inst: DecodedInstruction, group: LaneGroup, fault: MemoryFault) -> PtxError:
        """Return the error for a failed access, with its line and thread."""
        warps, lanes = np.nonzero(group.mask)
        who = self.thread_name(int(group.warp_rows[warps[fault.index]]), int(lanes[fault.index]))
        return PtxError(inst.line, f"{inst.name} by {who}: {fault.reason}", kind=fault.kind)

    # --- convergence

    def all_arrived(self, at: int, inst: DecodedInstruction, group: LaneGroup, active: LaneGroup) -> bool:
        """Return True if all lanes that a collective needs have arrived; otherwise make the arrived lanes wait."""
        if active is not group and not active.mask.any():
            return True
        alive = group.of(self.alive)
        needed = alive
        action = inst.action
        if isinstance(action, actions.WarpCollective) and not action.synced:
            return True
        if (
            isinstance(action, actions.MatrixOp)
            and action.operation == "wgmma"
            and not self.warpgroups_arrived(at, group)
        ):
            return False
        if isinstance(action, actions.WarpCollective | actions.WarpWait):
            members = active.read(inst.sources[-1], B32)
            named = ((members[:, :, None] >> LANE_INDEX) & np.uint32(1)).astype(np.bool_)
            needed = (named & active.mask[:, :, None]).any(axis=1) & alive
        missing = (needed & ~group.mask).any(axis=1)
        if isinstance(action, actions.WarpCollective | actions.WarpWait) and inst.guard is not None:
            missing &= active.mask.any(axis=1)
        if not missing.any():
            return True
        group.put(self.pc, at)
        late = group.warp_rows[missing]
        here = group.mask[missing]
        # lanes that arrived earlier may complete the set of members
        together = (self.pc[late] == at) & self.alive[late] & (self.waiting_in_warp[late] | here)
        complete = ~(needed[missing] & ~together).any(axis=1)
        self.waiting[late] |= here
        self.waiting_in_warp[late] |= here
        for row in late[complete]:
            released = self.waiting_in_warp[row] & (self.pc[row] == at)
            self.waiting[row][released] = False
            self.waiting_in_warp[row][released] = False
        if isinstance(action, actions.WarpWait):
            self.complete_warp_waits(late[~complete])
        return False

    def complete_warp_waits(self, rows: Numbers) -> None:
        """Release lanes that wait at different bar.warp.sync instructions with the same mask, as in two branches."""
        for row in rows.tolist():
            waiting, masks = self.alive[row] & self.waiting_in_warp[row], np.zeros(LANES, np.uint32)
            for pc in np.unique(self.pc[row][waiting]).tolist():
                inst = self.program.instructions[pc]
                if isinstance(inst.action, actions.WarpWait) and inst.guard is None:
                    here = waiting & (self.pc[row] == pc)
                    group = LaneGroup(self, np.array([row]), here[None, :])
                    masks[here] = group.read(inst.sources[-1], B32)[0][here]
            for mask in np.unique(masks[masks != 0]):
                met, named = masks == mask, (mask >> LANE_INDEX & np.uint32(1)).astype(np.bool_)
                if (named & self.alive[row] & ~met).any():
                    continue
                self.waiting[row][met] = self.waiting_in_warp[row][met] = False
                for pc in np.unique(self.pc[row][met]).tolist():
                    self.count(pc, pc + 1, 1)
                self.pc[row][met] += 1
                if self.memory.observer is not None:
                    self.memory.observer.warp_synced(row, met)

    def warpgroups_arrived(self, at: int, group: LaneGroup) -> bool:
        """Return True if all four warps of each warpgroup have arrived; otherwise make the arrived warps wait."""
        rows = group.warp_rows
        warpgroups = self.warp_block * self.launch.warps + self.warp_index // 4
        here = warpgroups[rows]
        late = [int(row) for row, warpgroup in zip(rows, here, strict=True) if (here == warpgroup).sum() < 4]
        if not late:
            return True
        group.put(self.pc, at)
        mask = dict(zip(rows.tolist(), group.mask, strict=True))
        for row in late:
            self.waiting[row] |= mask[row]
            self.waiting_in_warp[row] |= mask[row]
        for warpgroup in {int(warpgroups[row]) for row in late}:
            members = np.nonzero(warpgroups == warpgroup)[0]
            arrived = self.waiting_in_warp[members] & (self.pc[members] == at)
            if len(members) == 4 and not (self.alive[members] & ~arrived).any():
                self.waiting[members] = False
                self.waiting_in_warp[members] = False
        return False

    def no_op(self, inst: DecodedInstruction, action: actions.NoOp | actions.WarpWait, group: LaneGroup) -> None:
        """Do nothing: the instruction has no effect in this engine."""

    def copy_in_bulk(self, inst: DecodedInstruction, action: actions.Action, group: LaneGroup) -> None:
        """Run bulk copies, tensor-map box copies and tensor-map changes."""
        COPIES[type(action)](LaneCopies(self, self.mbarriers, group), inst, action)
        self.progress += 1

    # --- operations across lanes

    def matrix_op(self, inst: DecodedInstruction, action: actions.MatrixOp, group: LaneGroup) -> None:
        """Run mma, wmma, wgmma, ldmatrix, stmatrix and movmatrix."""
        try:
            run_matrix(self, inst, action, group)
        except (MemoryFault, PtxError):
            raise
        except WarpfragError as error:
            raise PtxError(inst.line, str(error)) from error

    def tensor_op(self, inst: DecodedInstruction, action: actions.TensorThreadOp, group: LaneGroup) -> None:
        """Run tcgen05 on the tensor memories of the blocks."""
        if self.tensor_memories is None:
            self.tensor_memories = TensorMemories(self, self.mbarriers)
        run_tensor(self.tensor_memories, inst, action, group)

    def suspend(
        self, at: int, inst: DecodedInstruction, action: actions.MemoryBarrier, group: LaneGroup, active: LaneGroup
    ) -> bool:
        """Run mbarrier.try_wait or test_wait; return False if some lanes sleep until a phase ends."""
        try:
            is_over = self.mbarriers.wait(at, inst, action, active)
        except MemoryFault as fault:
            raise self.fault(inst, active, fault) from None
        if is_over:
            self.count(at, at + 1, group.warps)
            return True
        group.part(group.mask & ~active.mask).put(self.pc, at + 1)
        self.count(at, at + 1, int((group.mask & ~group.of(self.waiting)).any(axis=1).sum()))
        return False

    # --- control: `active` has the lanes whose guard predicate is true

    def branch(self, _at: int, inst: DecodedInstruction, action: actions.Branch, active: LaneGroup) -> None:
        """Run bra or brx.idx: active lanes jump to the target; the others continue."""
        if not action.indexed:
            active.put(self.pc, inst.targets[0])
            return
        index = active.read(inst.sources[0], U32)
        if (index[active.mask] >= len(inst.targets)).any():
            raise PtxError(inst.line, f"{inst.name}: the index is out of range; expected less than {len(inst.targets)}")
        active.put(self.pc, np.array(inst.targets, np.int64)[np.where(active.mask, index, 0)])

    def call(self, at: int, inst: DecodedInstruction, _action: actions.DirectCall, active: LaneGroup) -> None:
        """Run call: active lanes jump to the function's first instruction."""
        try:
            self.calls.call(at, inst, active)
        except MemoryFault as fault:
            raise self.fault(inst, active, fault) from None
        active.put(self.pc, inst.targets[0])

    def indirect_call(
        self, _at: int, inst: DecodedInstruction, action: actions.IndirectCall, active: LaneGroup
    ) -> None:
        """Run an indirect call: each lane jumps to the direct call of the function whose address it holds."""
        functions = active.read(inst.sources[0], B64)
        left = active.mask
        for address, target in zip(action.addresses, inst.targets, strict=True):
            chosen = left & (functions == np.uint64(address))
            active.part(chosen).put(self.pc, target)
            left = left & ~chosen
        if left.any():
            address = int(functions[left][0])
            wrong = MemoryFault(
                int(left[active.mask].argmax()), f"{address:#x} is not the address of a function that matches this call"
            )
            raise self.fault(inst, active, wrong)

    def return_(self, _at: int, _inst: DecodedInstruction, action: actions.Return, active: LaneGroup) -> None:
        """Run ret or exit: active lanes return to their caller, or their threads end."""
        depth = active.of(self.calls.depth)
        exits = active.mask & ((depth == 0) | action.whole_thread)
        returns = active.mask & ~exits
        if returns.any():
            self.calls.return_(active.part(returns))
        if exits.any():
            active.part(exits).put(self.alive, False)  # noqa: FBT003 (a value)
            self.release_waiting_in_warp(active.warp_rows)
            self.barriers.check_all()
            self.cluster_barriers.check_all()

    def reconverge(self, at: int, inst: DecodedInstruction, _action: actions.Reconverge, active: LaneGroup) -> None:
        """Run BSYNC: active lanes wait until all lanes of their barrier have arrived or exited."""
        active.put(self.pc, at)
        rows = active.active_rows
        here = LaneGroup(self, rows, self.alive[rows] & (self.pc[rows] == at))
        ready = self.complete(here, inst, here.mask, ~self.alive[rows])
        here.put(self.waiting, ~ready.mask)
        here.put(self.waiting_in_warp, ~ready.mask)
        ready.put(self.pc, at + 1)

    @staticmethod
    def complete(
        here: LaneGroup, inst: DecodedInstruction, met: Mask, gone: Mask, *, needs_one_mask: bool = True
    ) -> LaneGroup:
        """Return the lanes that may pass their convergence barrier because no lane in its mask is missing.

        A lane is not missing if it is in `gone`, or if it is in `met` and its register holds the same mask. A different
        mask means a different barrier, such as that of a deeper recursive call.
        """
        masks = here.read(inst.sources[0], B32)[:, :, None]
        same = (masks == masks.swapaxes(1, 2)) | (not needs_one_mask)
        arrived = (met[:, None, :] & same) | gone[:, None, :]
        named = (masks >> LANE_INDEX & np.uint32(1)).astype(np.bool_)
        return here.part(here.mask & ~(named & ~arrived).any(axis=2))

    def leave_convergence_barriers(self, *, needs_one_mask: bool = True) -> bool:
        """Release lanes from a BSYNC whose missing lanes wait elsewhere; return True if lanes were released.

        The missing lanes wait at a WARPSYNC, in code that leaves a region without BREAK, or at a different BSYNC of the
        same barrier. An H200 completes the BSYNC in both cases. With `needs_one_mask=False`, the masks of one barrier
        may differ, as they do if BREAK removes lanes while a call has saved the barrier.
        """
        released = False
        for row in np.nonzero((self.alive & self.waiting_in_warp).any(axis=1))[0]:
            waiting, pcs = self.alive[row] & self.waiting_in_warp[row], self.pc[row].copy()
            at = {int(pc): self.program.instructions[pc] for pc in np.unique(pcs[waiting])}
            syncs = [pc for pc, inst in at.items() if isinstance(inst.action, actions.WarpWait)]
            for pc, inst in at.items():
                if not isinstance(inst.action, actions.Reconverge):
                    continue
                same = [other for other in at if at[other].action == inst.action and at[other].sources == inst.sources]
                met, gone = waiting & np.isin(pcs, same), ~self.alive[row] | (waiting & np.isin(pcs, syncs))
                here = LaneGroup(self, np.array([row]), (waiting & (pcs == pc))[None, :])
                ready = self.complete(here, inst, met[None, :], gone[None, :], needs_one_mask=needs_one_mask)
                ready.put(self.waiting, ~ready.mask)
                ready.put(self.waiting_in_warp, ~ready.mask)
                ready.put(self.pc, pc + 1)
                released |= bool(ready.mask.any())
        return released

    def leave_barrier(self, inst: DecodedInstruction, _action: actions.LeaveBarrier, group: LaneGroup) -> None:
        """Run BREAK: remove the active lanes from the convergence barrier, in all lanes of the warp."""
        everyone = group.part(np.ones_like(group.mask))
        everyone.write(inst.results[0], everyone.read(inst.sources[0], B32) & ~ballot(group.mask))
        self.release_waiting_in_warp(group.warp_rows)

    def jump(self, _at: int, inst: DecodedInstruction, action: actions.Jump, active: LaneGroup) -> None:
        """Run BRX, RET or CALL.ABS: each active lane jumps to the instruction at its address."""
        addresses = active.read(inst.sources[0], B64)
        for address in np.unique(addresses[active.mask]).tolist():
            if address not in action.starts:
                raise PtxError(inst.line, f"{inst.text}: expected the address of an instruction, got {address:#x}")
            active.part(active.mask & (addresses == np.uint64(address))).put(self.pc, action.starts[address])

    def refuse(self, _at: int, inst: DecodedInstruction, action: actions.Refused, _active: LaneGroup) -> None:
        """Raise PtxError for an instruction that is not modelled."""
        raise PtxError(inst.line, action.reason)


HANDLERS: dict[type[actions.Action], Callable[..., None]] = {
    actions.LaneOp: lane_instructions.run_lane_op,
    actions.Move: lane_instructions.run_move,
    actions.NoOp: WarpBatch.no_op,
    actions.MemoryLoad: lane_instructions.run_load,
    actions.MemoryStore: lane_instructions.run_store,
    actions.Allocate: lane_instructions.run_allocate,
    actions.Atomic: lane_instructions.run_atomic,
    actions.AsyncCopy: lane_instructions.run_async_copy,
    **dict.fromkeys(COPIES, WarpBatch.copy_in_bulk),
    actions.WarpCollective: lane_instructions.run_warp_collective,
    actions.WarpWait: WarpBatch.no_op,
    actions.MatrixOp: WarpBatch.matrix_op,
    actions.TensorThreadOp: WarpBatch.tensor_op,
    actions.TensorWarpOp: WarpBatch.tensor_op,
    actions.MemoryBarrier: lambda batch, *rest: batch.mbarriers.run(*rest),
    actions.SystemCall: run_system,
    actions.TextureFetch: texture_instructions.run_fetch,
    actions.SurfaceLoad: texture_instructions.run_surface_load,
    actions.SurfaceStore: texture_instructions.run_surface_store,
    actions.SurfaceReduction: texture_instructions.run_surface_reduction,
    actions.Trap: lane_instructions.run_trap,
    actions.LeaveBarrier: WarpBatch.leave_barrier,
}
"""The handler of each action that falls through, called with the instruction, the action and the lanes."""
CONTROL_HANDLERS: dict[type[actions.Action], Callable[..., None]] = {
    actions.Branch: WarpBatch.branch, actions.DirectCall: WarpBatch.call,
    actions.IndirectCall: WarpBatch.indirect_call, actions.Return: WarpBatch.return_,
    actions.Barrier: lambda batch, _at, *rest: batch.barriers.arrive(*rest),
    actions.ClusterBarrier: lambda batch, _at, *rest: batch.cluster_barriers.run(*rest),
    actions.Reconverge: WarpBatch.reconverge, actions.Jump: WarpBatch.jump, actions.Refused: WarpBatch.refuse,
}  # fmt: skip
"""The handler of each action that ends a basic block, called with the instruction index as well."""
