"""Copies of tensor-map boxes for many blocks at once: the fast version of `interpreter.bulk_copies.run_tensor_copy`.

A box inside its tensor is a list of 16-byte units, with the same offsets from the start of the box in every copy. The
global-memory offsets are computed once for each map, and the shared-memory offsets once for each position in the
swizzle pattern. One loop then moves the boxes of all lanes and tags their stores (`interpreter.store_tags`). The
interpreter handles everything else: boxes that extend beyond the tensor, im2col, reductions, faults and overlapping
stores.

`BatchedMbarriers` is the fast version of `interpreter.mbarriers`: it updates the mbarriers of many lanes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import MemoryFault
from warpfrag.formats.arrays import Bytes, Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.bulk_copies import LaneCopies, run_tensor_copy
from warpfrag.machine.interpreter.device_memory import Owners
from warpfrag.machine.interpreter.lane_group import LaneGroup, items_of
from warpfrag.machine.interpreter.mbarriers import (
    COUNT,
    COUNT_SHIFT,
    MAX_TX,
    PARITY_SHIFT,
    TX_BITS,
    TX_SHIFT,
    Mbarriers,
)
from warpfrag.machine.interpreter.warp_state import WarpState
from warpfrag.machine.ir.actions import MemoryBarrier, TensorCopy
from warpfrag.machine.ir.program import DecodedInstruction, Immediate, MemoryOperand, PtxOperand
from warpfrag.machine.ir.scalar_types import S32, Codes
from warpfrag.machine.jit import c_functions
from warpfrag.smem.tensor_map import GRANULE, MAP_ALIGN, MAP_BYTES, SHARED_ALIGN, TensorMapFields

OBJECT_BYTES = 8  # the size of an mbarrier
WORD_BITS = 32  # the width of a register that holds an address or a number for the scheduler


class BatchedMbarriers(Mbarriers):
    """The mbarriers of a batch, updated by one C loop over the lanes."""

    def change_all(self, cells: Numbers, action: MemoryBarrier, numbers: Codes, line: int) -> NDArray[np.uint64]:
        """Initialise, invalidate or update mbarriers; the interpreter raises any error."""
        before = self.words[cells]
        if action.name == "init" and self.can_initialise(cells, numbers):
            self.words[cells] = self.written[cells] = numbers | numbers << COUNT_SHIFT
            self.live.update(dict.fromkeys(cells.tolist(), line))
            return before
        if action.name == "copies" and not action.counts:
            return before
        if action.name == "inval" and not self.has_sleepers:
            self.words[cells] = self.written[cells] = 0
            for cell in cells.tolist():
                self.remove(cell)
            return before
        if action.name not in {"arrive", "arrive_drop", "copies", "expect_tx", "complete_tx"}:
            return super().change_all(cells, action, numbers, line)
        amounts = numbers.astype(np.int64)
        nothing = np.zeros_like(amounts)
        if action.name in {"arrive", "arrive_drop", "copies"}:
            arrivals, owed = (np.ones_like(amounts), amounts) if action.transaction else (amounts, nothing)
        else:
            arrivals, owed = nothing, amounts if action.name == "expect_tx" else -amounts
        before, done = self.advance(cells, arrivals, owed, drops=action.drops)
        if done < len(cells):
            self.change(int(cells[done]), action, int(numbers[done]), done, line)  # raises MemoryFault
        return before

    def can_initialise(self, cells: Numbers, numbers: Codes) -> bool:
        """Return True if all these mbarriers are new, and no parity bit in their memory makes a phase seem to end."""
        own = set(cells.tolist())
        is_new = len(own) == len(cells) and own.isdisjoint(self.live)
        return bool(
            is_new and ((numbers >= 1) & (numbers <= COUNT)).all() and not (self.words[cells] >> PARITY_SHIFT).any()
        )

    def advance(
        self, cells: Numbers, arrivals: Numbers, owed: Numbers, *, drops: bool = False
    ) -> tuple[NDArray[np.uint64], int]:
        """Update mbarriers in order; return their previous words and the number of successful updates."""
        before, has_ended = np.empty(len(cells), np.uint64), np.zeros(len(cells), np.bool_)
        done = np.zeros(1, np.int64)
        c_functions.advance_mbarriers.run(
            self.words, self.written, cells, arrivals, owed, drops, before, has_ended, done
        )
        if len(ended := cells[has_ended]):
            self.ended[ended] = True
            self._wake(self.ended[self.awaited])
            self.ended[ended] = False
        return before, int(done[0])

    def ended_phases(self, inst: DecodedInstruction, action: MemoryBarrier, group: LaneGroup) -> tuple[Numbers, Mask]:
        """Return the awaited mbarriers, and a mask of those whose phases have ended; a uniform warp is tested once."""
        if action.space == "shared" and self.state.memory.accesses is None and self.agree(inst, group):
            first = np.zeros_like(group.mask)
            first[:, 0] = True
            try:
                cells, done = super().ended_phases(inst, action, group.part(first))
            except MemoryFault:  # the error must name the lane by its index among all lanes
                return super().ended_phases(inst, action, group)
            others = (LANES - 1) * len(cells) * OBJECT_BYTES
            self.state.memory.count_bytes("shared", others, writes=True)
            return np.repeat(cells, LANES), np.repeat(done, LANES)
        return super().ended_phases(inst, action, group)

    @staticmethod
    def agree(inst: DecodedInstruction, group: LaneGroup) -> bool:
        """Return True if the group consists of whole warps, each with one address and one phase."""
        return group.is_whole and all(is_uniform(operand, group) for operand in inst.sources[:2])


def is_uniform(operand: PtxOperand, group: LaneGroup) -> bool:
    """Return True if an operand has the same value in all lanes of each warp."""
    register = operand.base if isinstance(operand, MemoryOperand) else operand
    if register is None or isinstance(register, Immediate):
        return True
    index = getattr(register, "index", None)
    if index is None:
        return False
    codes = group.of(group.state.registers[index])
    return bool((codes == codes[:, :1]).all())


SWIZZLE_PERIOD = 1024  # the number of bytes after which every swizzle pattern repeats
GRANULE_WORDS = GRANULE // 8  # the size of a 16-byte unit in 64-bit words, which plans use
FIRST = np.zeros(1, np.int64)  # the index of a single lane


class UnitPlan(NamedTuple):
    """The 16-byte units of a box, and the contiguous runs that they form, as offsets in 64-bit words."""

    units: Numbers
    runs: Numbers  # [runs, 2]: the first word of each run and its word count

    @staticmethod
    def of(units: Numbers) -> UnitPlan:
        """Return the plan for unit offsets, which are in multiples of 16 bytes."""
        ordered = np.sort(units)
        first = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) != 1)
        counts = np.diff(first, append=len(ordered))
        return UnitPlan(GRANULE_WORDS * units, GRANULE_WORDS * np.stack([ordered[first], counts], axis=1))


@dataclass
class BoxPlan:
    """A tensor map, with its box's units in global memory and, for each swizzle position, in shared memory."""

    fields: TensorMapFields
    in_global: UnitPlan
    overlaps: bool  # True if two units of a box have the same global-memory address
    by_place: dict[int, UnitPlan] = field(default_factory=dict)

    @staticmethod
    @lru_cache(256)  # kernels often reuse the same maps in later launches
    def of(data: bytes) -> BoxPlan | None:
        """Return the plan of a 128-byte tensor map, or None if the interpreter must handle the map."""
        fields = TensorMapFields.decode(data)
        if fields is None or fields.im2col is not None or fields.element.format == "tf32" or fields.problems():
            return None
        places, _ = fields.elements((0,) * fields.rank)
        units = places[..., :: GRANULE // fields.element.bytes].reshape(-1) // GRANULE
        return BoxPlan(fields, UnitPlan.of(units), len(np.unique(units)) < len(units))

    @cached_property
    def global_bytes(self) -> int:
        """The number of bytes from the first to the last byte of a box in global memory, including gaps."""
        return int(self.in_global.units[-1]) * 8 + GRANULE

    @cached_property
    def shared_bytes(self) -> int:
        """The number of bytes that a box occupies in shared memory."""
        return self.fields.shared_bytes

    @cached_property
    def box_bytes(self) -> int:
        """The number of bytes that a copy reports to its mbarrier."""
        return self.fields.box_bytes

    @cached_property
    def last_starts(self) -> Numbers:
        """The largest coordinates at which a box is still inside the tensor."""
        fields = self.fields
        extents = (np.array(fields.box_indices) - 1) * np.array(fields.steps)
        return np.array(fields.dims, np.int64) - 1 - extents

    def in_shared(self, place: int) -> UnitPlan:
        """Return the shared-memory units of a box that starts at byte `place` of the swizzle pattern."""
        if place not in self.by_place:
            self.by_place[place] = UnitPlan.of((self.fields.shared_units(place) - place) // GRANULE)
        return self.by_place[place]

    def offsets(self, starts: Numbers) -> Numbers | None:
        """Return the tensor offsets of boxes at coordinates [lanes, axes], or None if one is outside or misaligned."""
        fields = self.fields
        if (starts < 0).any() or (starts > self.last_starts).any():
            return None
        if (starts[:, 0] * fields.pitches[0] % GRANULE).any():
            return None
        return starts @ np.array(fields.pitches, np.int64)


class BoxJob(NamedTuple):
    """The copies that use one tensor map: each box's byte offset in global and in shared memory."""

    plan: BoxPlan
    lanes: Numbers
    tensor: Bytes
    in_tensor: Numbers
    in_shared: Numbers
    places: Numbers  # each box's start in the swizzle pattern
    map_space: str


class BoxTargets(NamedTuple):
    """One copy per lane and destination block: its lane, its block, and the mbarrier that it signals."""

    lanes: Numbers
    blocks: Numbers
    cells: Numbers | None  # None for stores
    lane_count: int

    def of(self, lanes: Numbers) -> BoxTargets:
        """Return only the copies that the selected lanes issue."""
        if len(lanes) == self.lane_count:
            return self
        own = np.isin(self.lanes, lanes)
        cells = None if self.cells is None else self.cells[own]
        return BoxTargets(self.lanes[own], self.blocks[own], cells, len(lanes))


class BoxCopies:
    """Executes a batch's box copies."""

    def __init__(self, batch: WarpState, mbarriers: BatchedMbarriers) -> None:
        """Create the copier for a batch."""
        self.batch, self.memory, self.mbarriers = batch, batch.memory, mbarriers

    def run(self, inst: DecodedInstruction, action: TensorCopy, group: LaneGroup) -> bool:
        """Copy the boxes of all lanes; return False, having copied nothing, if the interpreter must copy them."""
        if action.mode != "tile" or action.reduction:
            return False
        rest = list(inst.sources)
        shared = rest.pop(0) if action.direction == "load" else rest.pop(2)
        place, vector = rest.pop(0), rest.pop(0)
        copies = LaneCopies(self.batch, self.mbarriers, group)
        axes = [group.values(axis, S32).view(np.int32) for axis in items_of(vector)]
        starts, boxes, maps = np.stack(axes, axis=1).astype(np.int64), group.addresses(shared), group.addresses(place)
        try:
            jobs = [
                self.job(address, np.flatnonzero(maps == address), action, starts, boxes, copies.owners)
                for address in dict.fromkeys(maps.tolist())
            ]
            targets = self.targets(action, group, copies, rest)
        except MemoryFault:
            return False
        ready = [job for job in jobs if job is not None and self.can_tell(job, targets)]
        if len(ready) < len(jobs):
            return False
        left = [lane for job in ready for lane in self.copy(job, copies, targets)]
        if left:
            warps, lanes = (index[left] for index in np.nonzero(group.mask))
            mask = np.zeros_like(group.mask)
            mask[warps, lanes] = True
            run_tensor_copy(LaneCopies(self.batch, self.mbarriers, group.part(mask)), inst, action)
        self.batch.progress += 1
        return True

    def job(
        self, address: int, lanes: Numbers, action: TensorCopy, starts: Numbers, boxes: Codes, owners: Owners
    ) -> BoxJob | None:
        """Return the copies that use one map; return None or raise MemoryFault if the interpreter must run them."""
        space, inner = self.memory.space_of(address)
        if address % MAP_ALIGN or space not in {"global", "const", "param"}:
            return None
        if len(lanes) < len(boxes):
            starts, boxes, owners = starts[lanes], boxes[lanes], owners.at(lanes)
        plan = BoxPlan.of(self.map_bytes(space, inner, owners.at(FIRST)))
        offsets = None if plan is None or plan.fields.rank != action.rank else plan.offsets(starts)
        places = (boxes % SWIZZLE_PERIOD).astype(np.int64)
        if plan is None or offsets is None or (places % SHARED_ALIGN).any():
            return None
        stores = action.direction == "store"
        if stores and plan.overlaps:
            return None
        firsts = (plan.fields.address + offsets).astype(np.uint64)
        tensor, in_tensor = self.reach("global", firsts, plan.global_bytes, owners, writes=stores)
        _, in_shared = self.reach("cluster", boxes, plan.shared_bytes, owners, writes=not stores)
        return BoxJob(plan, lanes, tensor, in_tensor, in_shared, places, space)

    def map_bytes(self, space: str, address: int, owner: Owners) -> bytes:
        """Return the 128 bytes of a map."""
        buffer, (first,) = self.reach(space, np.array([address], np.uint64), MAP_BYTES, owner, writes=False)
        return buffer[first : first + MAP_BYTES].tobytes()

    def reach(self, space: str, firsts: Codes, size: int, owners: Owners, *, writes: bool) -> tuple[Bytes, Numbers]:
        """Return the buffer that contains all boxes, and their offsets; raise MemoryFault if there are several."""
        reached = self.memory.find(space, firsts, size, owners, writes=writes)
        if len(reached) > 1:
            raise MemoryFault(0, "the boxes are in several allocations")
        _, buffer, begins = reached[0]
        return buffer, begins

    def targets(
        self, action: TensorCopy, group: LaneGroup, copies: LaneCopies, operands: list[PtxOperand]
    ) -> BoxTargets:
        """Return the destination blocks of the boxes and the mbarriers to signal."""
        own, lanes = copies.owners.blocks, np.arange(copies.count)
        if action.direction == "store":
            return BoxTargets(lanes, own, None, copies.count)
        places = group.addresses(operands[0])
        ((_, _, offsets),) = self.memory.reach_space("cluster", places, 8, copies.owners, writes=True)
        cells = offsets // 8
        if not action.is_multicast:
            return BoxTargets(lanes, own, cells, copies.count)
        masks = copies.numbers(operands[1])
        blocks = [copies.blocks_of(lane, masks[lane]) for lane in range(copies.count)]
        pairs = [(cell, block) for cell, peers in zip(cells.tolist(), blocks, strict=True) for block in peers]
        moved = [copies.moved(cell, block) for cell, block in pairs]
        counts = [len(peers) for peers in blocks]
        every = np.array([block for _, block in pairs], np.int64)
        return BoxTargets(np.repeat(lanes, counts), every, np.array(moved, np.int64), copies.count)

    def can_tell(self, job: BoxJob, targets: BoxTargets) -> bool:
        """Return True if a job's mbarriers are initialised and can count its bytes."""
        told = targets.of(job.lanes).cells
        if told is None:
            return True
        cells, counts = np.unique(told, return_counts=True)
        if not self.mbarriers.live.keys() >= set(cells.tolist()):
            return False
        fields = (self.mbarriers.words[cells] >> np.uint64(TX_SHIFT)).astype(np.int64) & ((1 << TX_BITS) - 1)
        owed = fields - ((fields >> (TX_BITS - 1)) << TX_BITS) - counts * job.plan.box_bytes
        return not (abs(owed) > MAX_TX).any()

    def copy(self, job: BoxJob, copies: LaneCopies, targets: BoxTargets) -> list[int]:
        """Copy a job's boxes and signal its mbarriers; return the lanes that the interpreter must run."""
        plan, memory, lanes = job.plan, self.memory, job.lanes.tolist()
        copy_lanes, blocks, cells, _ = targets.of(job.lanes)
        is_load = cells is not None
        tags = memory.tags.of_shared if is_load else memory.tags.of_global.get(id(job.tensor))
        if tags is None:
            return lanes
        places, which = job.places[:1], 0 * job.lanes
        if (job.places != places).any():
            places, which = np.unique(job.places, return_inverse=True)
        copy_of = np.searchsorted(job.lanes, copy_lanes)
        starts = job.in_shared[copy_of] + (blocks - copies.owners.blocks[copy_lanes]) * memory.shared_stride
        mine = memory.tags.writers[copies.owners.threads[copy_lanes] // LANES]
        in_global = job.tensor, job.in_tensor[copy_of], *joined([plan.in_global]), 0 * copy_of
        patterns = joined([plan.in_shared(place) for place in places.tolist()])
        in_shared = memory.shared, starts, *patterns, which[copy_of]
        source, target = (in_global, in_shared) if is_load else (in_shared, in_global)
        arguments: list[object] = []
        for buffer, firsts, units, _, plan_of in (source, target):
            arguments += buffer.ctypes.data, firsts // 8, units, plan_of
        done = np.zeros(1, np.int64)
        c_functions.copy_units.run(*arguments, target[3], tags, mine, is_load, done)
        finished = len(lanes) if done[0] == len(copy_of) else int(copy_of[done[0]])
        in_boxes, in_tensors = plan.shared_bytes * finished, plan.global_bytes * finished
        memory.count_bytes(job.map_space, MAP_BYTES * finished, writes=False)
        memory.count_bytes("global", in_tensors, writes=not is_load)
        memory.count_bytes("shared", in_boxes + 8 * finished * is_load, writes=is_load)
        if cells is not None:
            told = cells[copy_of < finished]
            self.mbarriers.advance(told, np.zeros_like(told), np.full_like(told, -plan.box_bytes))
        return lanes[finished:]


def joined(plans: list[UnitPlan]) -> tuple[Numbers, Numbers]:
    """Stack plans into arrays [plans, units] and [plans, runs, 2]; shorter run lists are padded with empty runs."""
    if len(plans) == 1:
        return plans[0].units[None], plans[0].runs[None]
    longest = max(len(plan.runs) for plan in plans)
    runs = [np.pad(plan.runs, ((0, longest - len(plan.runs)), (0, 0))) for plan in plans]
    return np.stack([plan.units for plan in plans]), np.stack(runs)
