"""Boxes of tensor maps copied for many blocks at once: the fast twin of `interpreter.bulk_copies.run_tensor_copy`.

A box that lies inside its tensor is a list of units of 16 bytes, at the same distances from where it begins in every
copy: those in global memory are found once for each map, those in shared memory once for each place in the pattern of
the swizzle. One loop then moves the boxes of all lanes and tags what they store (`interpreter.store_tags`). Whatever
else there is (boxes that reach out of the tensor, im2col, reductions, faults, overlapping stores) the interpreter does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.core.coordinates import LANES
from warpfrag.errors import Fault
from warpfrag.memory.tensor_map import GRANULE, MAP_ALIGN, MAP_BYTES, SHARED_ALIGN, TensorMapFields
from warpfrag.ptx.interpreter.bulk_copies import LaneCopies, run_tensor_copy
from warpfrag.ptx.interpreter.lane_group import items_of
from warpfrag.ptx.interpreter.mbarriers import MAX_TX, TX_BITS, TX_SHIFT
from warpfrag.ptx.interpreter.memory import Owners
from warpfrag.ptx.interpreter.store_tags import elements
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.compiler.mbarrier_batches import BatchedMbarriers
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_state import WarpState
    from warpfrag.ptx.program.actions import TensorCopy
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Codes

    Index = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

SWIZZLE_PERIOD = 1024  # bytes after which every swizzle repeats
UNIT = np.dtype(np.uint64)  # what is moved at once: half of 16 bytes
S32 = TYPES["s32"]


@dataclass
class BoxPlan:
    """A map, and the units of its box: behind the box's address in global memory, and in shared memory by its place."""

    fields: TensorMapFields
    global_units: Index
    overlaps: bool  # whether units of a box are the same in global memory
    by_place: dict[int, Index] = field(default_factory=dict)

    @staticmethod
    def of(data: bytes) -> BoxPlan | None:
        """The plan of the 128 bytes of a map; None where the interpreter has to read it."""
        fields = TensorMapFields.decode(data)
        if fields is None or fields.im2col is not None or fields.element.format == "tf32" or fields.problems():
            return None
        places, _ = fields.elements((0,) * fields.rank)
        units = places[..., :: GRANULE // fields.element.bytes].reshape(-1) // GRANULE
        return BoxPlan(fields, units, len(np.unique(units)) < len(units))

    @property
    def global_bytes(self) -> int:
        """From the first byte of a box to its last, gaps included."""
        return (int(self.global_units[-1]) + 1) * GRANULE

    def shared_units(self, place: int) -> Index:
        """The units in shared memory, for a box at a place in the pattern of the swizzle."""
        if place not in self.by_place:
            self.by_place[place] = (self.fields.shared_units(place) - place) // GRANULE
        return self.by_place[place]

    def offsets(self, starts: Index) -> Index | None:
        """Where the boxes at some coordinates [lanes, axes] begin behind the tensor; None if one is not inside."""
        fields = self.fields
        lasts = starts + (np.array(fields.box_indices) - 1) * np.array(fields.steps)
        if (starts < 0).any() or (lasts >= np.array(fields.dims)).any():
            return None
        if (starts[:, 0] * fields.pitches[0] % GRANULE).any():
            return None
        offsets: Index = starts @ np.array(fields.pitches, np.int64)
        return offsets


class BoxJob(NamedTuple):
    """The copies of lanes that name one map: where the box of each begins in both memories, in bytes of a buffer."""

    plan: BoxPlan
    lanes: Index
    tensor: Bytes
    in_tensor: Index
    in_shared: Index
    places: Index  # of the boxes in the pattern of the swizzle
    map_space: str


class BoxTargets(NamedTuple):
    """The copies that lanes make, one for each block that a box goes to: lane, block, and the mbarrier that is told."""

    lanes: Index
    blocks: Index
    cells: Index | None  # None for stores
    lane_count: int

    def of(self, lanes: Index) -> BoxTargets:
        """The copies of some lanes."""
        if len(lanes) == self.lane_count:
            return self
        own = np.isin(self.lanes, lanes)
        cells = None if self.cells is None else self.cells[own]
        return BoxTargets(self.lanes[own], self.blocks[own], cells, len(lanes))


class BoxCopies:
    """The boxes that the lanes of a batch copy; `plans` has what was found of each map, by its bytes."""

    def __init__(self, batch: WarpState, mbarriers: BatchedMbarriers) -> None:
        """Start without plans."""
        self.batch, self.memory, self.mbarriers = batch, batch.memory, mbarriers
        self.plans: dict[bytes, BoxPlan | None] = {}

    def run(self, step: DecodedInstruction, action: TensorCopy, group: LaneGroup) -> bool:
        """Copy the boxes of all lanes; False, with nothing done, where the interpreter has to."""
        if action.mode != "tile" or action.reduction:
            return False
        rest = list(step.sources)
        shared = rest.pop(0) if action.direction == "load" else rest.pop(2)
        place, vector = rest.pop(0), rest.pop(0)
        copies = LaneCopies(self.batch, self.mbarriers, group)
        axes = [group.read(item, S32)[group.mask].view(np.int32) for item in items_of(vector)]
        starts, boxes, maps = np.stack(axes, axis=1).astype(np.int64), group.addresses(shared), group.addresses(place)
        try:
            jobs = [
                self.job(int(address), np.nonzero(maps == address)[0], action, starts, boxes, copies.owners)
                for address in np.unique(maps)
            ]
            targets = self.targets(action, group, copies, rest)
        except Fault:
            return False
        ready = [job for job in jobs if job is not None and self.can_tell(job, targets)]
        if len(ready) < len(jobs):
            return False
        left = [lane for job in ready for lane in self.copy(job, copies, targets)]
        if left:
            warps, lanes = (index[left] for index in np.nonzero(group.mask))
            mask = np.zeros_like(group.mask)
            mask[warps, lanes] = True
            run_tensor_copy(self.batch, self.mbarriers, step, action, group.part(mask))
        self.batch.progress += 1
        return True

    def job(
        self, address: int, lanes: Index, action: TensorCopy, starts: Index, boxes: Codes, owners: Owners
    ) -> BoxJob | None:
        """What lanes with one map copy; None, or a Fault, where the interpreter has to."""
        space, inner = self.memory.space_of(address)
        if address % MAP_ALIGN or space not in {"global", "const", "param"}:
            return None
        own = owners.at(lanes)
        data = self.map_bytes(space, inner, own.at(np.zeros(1, np.int64)))
        if data not in self.plans:
            self.plans[data] = BoxPlan.of(data)
        plan = self.plans[data]
        offsets = None if plan is None or plan.fields.rank != action.rank else plan.offsets(starts[lanes])
        own_boxes = boxes[lanes].astype(np.int64)
        if plan is None or offsets is None or (own_boxes % SHARED_ALIGN).any():
            return None
        stores = action.direction == "store"
        if stores and plan.overlaps:
            return None
        firsts, size = plan.fields.address + offsets, plan.fields.shared_bytes
        tensor, in_tensor = self.reach("global", firsts, plan.global_bytes, own, writes=stores)
        _, in_shared = self.reach("shared" if stores else "cluster", own_boxes, size, own, writes=not stores)
        return BoxJob(plan, lanes, tensor, in_tensor, in_shared, own_boxes % SWIZZLE_PERIOD, space)

    def map_bytes(self, space: str, address: int, owner: Owners) -> bytes:
        """The 128 bytes of a map."""
        buffer, (first,) = self.reach(space, np.array([address]), MAP_BYTES, owner, writes=False)
        return buffer[first : first + MAP_BYTES].tobytes()

    def reach(self, space: str, firsts: Index, size: int, owners: Owners, *, writes: bool) -> tuple[Bytes, Index]:
        """The buffer of so many bytes in a row for each lane, and where they begin; a Fault unless it is one buffer."""
        both = np.concatenate([firsts, firsts + (size - 1)]).astype(np.uint64)
        twice = Owners(np.tile(owners.blocks, 2), np.tile(owners.threads, 2), None)
        reached = self.memory.reach_space(space, both, 1, twice, writes=writes)
        _, buffer, places = reached[0]
        begins, ends = np.split(places, 2)
        if len(reached) > 1 or (ends - begins != size - 1).any():
            raise Fault(0, "boxes lie in several allocations")
        return buffer, begins

    def targets(
        self, action: TensorCopy, group: LaneGroup, copies: LaneCopies, operands: list[PtxOperand]
    ) -> BoxTargets:
        """The blocks that boxes go to, and the mbarriers that are told."""
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
        moved = [copies.moved(cell, block) for cell, item in zip(cells.tolist(), blocks, strict=True) for block in item]
        counts = [len(item) for item in blocks]
        every = np.array([block for item in blocks for block in item], np.int64)
        return BoxTargets(np.repeat(lanes, counts), every, np.array(moved, np.int64), copies.count)

    def can_tell(self, job: BoxJob, targets: BoxTargets) -> bool:
        """Whether the mbarriers of a job are initialised, and none is told of too many bytes."""
        told = targets.of(job.lanes).cells
        if told is None:
            return True
        cells, counts = np.unique(told, return_counts=True)
        if not self.mbarriers.live.keys() >= set(cells.tolist()):
            return False
        fields = (self.mbarriers.words[cells] >> np.uint64(TX_SHIFT)).astype(np.int64) & ((1 << TX_BITS) - 1)
        owed = fields - ((fields >> (TX_BITS - 1)) << TX_BITS) - counts * job.plan.fields.box_bytes
        return not (abs(owed) > MAX_TX).any()

    def copy(self, job: BoxJob, copies: LaneCopies, targets: BoxTargets) -> list[int]:
        """Copy the boxes of a job and tell the mbarriers; the lanes whose stores overlap others are left."""
        from warpfrag.ptx.compiler.loops import copy_units

        plan, memory, lanes = job.plan, self.memory, job.lanes.tolist()
        copy_lanes, blocks, cells, _ = targets.of(job.lanes)
        is_load = cells is not None
        tags = memory.tags.of_shared if is_load else memory.tags.of_global.get(id(job.tensor))
        if tags is None:
            return lanes
        unique, which = np.unique(job.places, return_inverse=True)
        patterns = np.stack([plan.shared_units(place) for place in unique.tolist()])
        copy_of = np.searchsorted(job.lanes, copy_lanes)
        moved = (blocks - copies.owners.blocks[copy_lanes]) * memory.shared_stride
        mine = memory.tags.writers[copies.owners.threads[copy_lanes] // LANES]
        in_global = elements(job.tensor, UNIT), job.in_tensor[copy_of] // 8, 2 * plan.global_units[None], 0 * copy_of
        in_shared = elements(memory.shared, UNIT), (job.in_shared[copy_of] + moved) // 8, 2 * patterns, which[copy_of]
        source, target = (in_global, in_shared) if is_load else (in_shared, in_global)
        done = np.zeros(1, np.int64)
        copy_units.run(*source, *target, tags, mine, is_load, done)
        finished = len(lanes) if done[0] == len(copy_of) else int(copy_of[done[0]])
        in_boxes, in_tensors = plan.fields.shared_bytes * finished, plan.global_bytes * finished
        memory.count_bytes(job.map_space, MAP_BYTES * finished, writes=False)
        memory.count_bytes("global", in_tensors, writes=not is_load)
        memory.count_bytes("shared", in_boxes + 8 * finished * is_load, writes=is_load)
        if cells is not None:
            told = cells[copy_of < finished]
            self.mbarriers.advance(told, np.zeros_like(told), np.full_like(told, -plan.fields.box_bytes))
        return lanes[finished:]
