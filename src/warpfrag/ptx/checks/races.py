"""Accesses that nothing orders: races of threads, and copies or products in flight that somebody touches too early.

Two accesses conflict if they overlap and one of them writes. A conflict is a finding unless one happens before the
other (`ordering`), or both are strong enough (`strengths`), or both write the same bytes. Its kind is

    race      of two threads of different warps, or of lanes that write different bytes with one instruction
    lockstep  of two lanes of one warp, with no bar.warp.sync between: right only while lanes run together
    async     with a copy or a wgmma that has not been waited for
    fence     a copy of the async proxy, or a wgmma, of bytes that a thread wrote with no fence.proxy.async between

A copy or a wgmma is an agent of its own: it begins after its thread has issued it, and nobody knows its end but by its
wait: cp.async.wait_group, cp.async.bulk.wait_group, wgmma.wait_group after a commit, or the phase of an mbarrier.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpfrag.core.coordinates import LANES
from warpfrag.ptx.checks.findings import KernelAccess, KernelFinding
from warpfrag.ptx.checks.observers import StepObserver
from warpfrag.ptx.checks.ordering import BLOCK, CLUSTER, GPU, Ordering, Snapshot, SyncObject
from warpfrag.ptx.checks.shadow import (
    ASYNC_PROXY,
    ATOMIC,
    SCOPE_SHIFT,
    SIZE_SHIFT,
    STEP_SHIFT,
    STRONG,
    ShadowMemory,
    nature_of,
)
from warpfrag.ptx.checks.strengths import fence_level, is_proxy_fence, is_sc_fence, strength_of
from warpfrag.ptx.program.actions import (
    AsyncCopy,
    AsyncStore,
    Barrier,
    BulkCopy,
    ClusterBarrier,
    MatrixOp,
    MemoryBarrier,
    NoOp,
    TensorCopy,
    TensorMapCopy,
    WarpWait,
)
from warpfrag.ptx.program.program import Immediate
from warpfrag.ptx.program.types import TYPES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from warpfrag.ptx.checks.findings import FindingCollector
    from warpfrag.ptx.checks.ordering import LaunchOrder
    from warpfrag.ptx.checks.strengths import Strength
    from warpfrag.ptx.interpreter.lane_group import LaneGroup
    from warpfrag.ptx.interpreter.warp_batch import WarpBatch
    from warpfrag.ptx.program.program import DecodedInstruction

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]
    Times = NDArray[np.int32]

GLOBAL_SLOTS = 4  # warps whose last reads of a cell of global memory are kept
MAX_SHARED_SLOTS = 32
B32 = TYPES["b32"]


class AccessGroup(NamedTuple):
    """Accesses of one step to one buffer: who issues them, who makes them, where, and of what nature."""

    buffer: Bytes
    shadow: ShadowMemory
    cells: Numbers  # [accesses, cells of each]
    offsets: Numbers
    size: int
    threads: Numbers  # that issue them, in the batch
    entities: Numbers
    nature: int
    codes: NDArray[Any] | None = None  # what plain stores write


@dataclass
class BarrierInit:
    """Who initialised an mbarrier, when and where; `is_fenced` by fence.mbarrier_init."""

    thread: int
    time: int
    step: int
    is_fenced: bool = False


class CopyGroups:
    """The groups of copies or products that a thread or a warp has committed, each by the time of its last one."""

    def __init__(self) -> None:
        """Nothing was issued."""
        self.last: dict[int, int] = {}  # of the group that is open
        self.groups: dict[int, list[int]] = defaultdict(list)

    def issue(self, owner: int, time: int) -> None:
        """Note a copy."""
        self.last[owner] = time

    def commit(self, owner: int) -> None:
        """Close the group."""
        self.groups[owner].append(self.last.pop(owner, 0))

    def wait(self, owner: int, left: int) -> int:
        """The time up to which all is done when at most `left` groups are not."""
        groups = self.groups[owner]
        done = groups[: len(groups) - left] if left < len(groups) else []
        return max(done, default=0)


class RaceCheck(StepObserver):
    """Follows the accesses of a batch, and reports those that nothing orders."""

    def __init__(
        self,
        state: WarpBatch,
        order: LaunchOrder,
        shadows: dict[int, ShadowMemory],
        numbers: list[int],
        collector: FindingCollector,
    ) -> None:
        """Shadows of global memory are those of the whole launch, that of shared memory begins anew."""
        self.state, self.collector, self.shadows = state, collector, shadows
        has_proxies = any(uses_async_proxy(step) for step in state.program.steps)
        self.ordering = Ordering(state, order, numbers, has_proxies=has_proxies)
        if self.ordering.share > 1:
            collector.leave_out("lanes of one warp: too many threads run at once to tell them apart")
        memory = state.memory
        slots = min(state.launch.warps * state.launch.cluster_blocks, MAX_SHARED_SLOTS)
        self.shared_shadow = ShadowMemory(len(memory.shared), slots)
        self.written = {id(item.data): item for item in memory.allocations if item.writable}
        self.strengths: dict[int, Strength] = {}
        self.copies, self.bulk_copies, self.products = CopyGroups(), CopyGroups(), CopyGroups()
        steps = enumerate(state.program.steps)
        self.async_stores = [at for at, step in steps if isinstance(step.action, AsyncStore)]
        self.issued: dict[Hashable, tuple[int, int, int]] = {}  # the last copy of an agent: time, step and thread
        self.initialised: dict[int, BarrierInit] = {}  # by the cell of an mbarrier

    # --- accesses

    @property
    def step(self) -> DecodedInstruction:
        """The step that is running."""
        return self.state.program.steps[self.state.memory.step]

    def strength(self) -> Strength:
        """How strong the accesses of this step are."""
        at = self.state.memory.step
        if at not in self.strengths:
            self.strengths[at] = strength_of(self.step)
        return self.strengths[at]

    def shadow_of(self, buffer: Bytes) -> ShadowMemory | None:
        """The shadow of a buffer; None where threads cannot meet: local memory, parameters, constants."""
        if buffer is self.state.memory.shared:
            return self.shared_shadow
        if id(buffer) not in self.written:
            return None
        if id(buffer) not in self.shadows:
            self.shadows[id(buffer)] = ShadowMemory(len(buffer), GLOBAL_SLOTS)
        return self.shadows[id(buffer)]

    def accesses(
        self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers, flags: int = 0, level: int = BLOCK
    ) -> AccessGroup | None:
        """Accesses of threads; None where nobody can meet them."""
        shadow = self.shadow_of(buffer)
        if shadow is None or not len(offsets):
            return None
        cells = shadow.cells(offsets, size)
        nature = nature_of(self.state.memory.step, flags, level, size)
        return AccessGroup(
            buffer, shadow, cells, offsets, size, threads, self.ordering.entities(threads), nature
        )  # fmt: skip

    def by_agents(self, access: AccessGroup, names: list[Hashable]) -> AccessGroup:
        """The same accesses, made by agents of the threads."""
        own = [self.ordering.agent_entity(self.ordering.agent(name)) for name in names]
        return access._replace(entities=np.array(own, np.int64))

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """ld, ldmatrix, wmma.load, and the source of cp.async."""
        strength = self.strength()
        access = self.accesses(buffer, offsets, size, threads, STRONG * strength.is_strong, strength.level)
        if access is None:
            return
        if isinstance(self.step.action, AsyncCopy):
            access = self.by_agents(access, [("cp.async", thread) for thread in threads.tolist()])
        self.compare_with_write(access)
        self.note_read(access)
        if strength.is_strong:
            for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
                self.ordering.receive(buffer, offset, thread, strength.level, acquires=strength.acquires)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """st, stmatrix, wmma.store, and the target of cp.async."""
        strength = self.strength()
        size = codes.dtype.itemsize * codes.shape[1]
        access = self.accesses(buffer, offsets, size, threads, STRONG * strength.is_strong, strength.level)
        if access is None:
            return
        access = access._replace(codes=codes)
        if isinstance(self.step.action, AsyncCopy):
            access = self.by_agents(access, [("cp.async", thread) for thread in threads.tolist()])
            for thread in threads.tolist():
                self.copies.issue(thread, self.ordering.now)
        self.compare_with_write(access)
        self.compare_with_reads(access)
        self.note_write(access)
        table = self.ordering.table_of(buffer)
        if strength.is_strong:
            for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
                self.ordering.send(buffer, offset, thread, strength.level, releases=strength.releases, passes_on=False)
        elif table:
            for offset in offsets.tolist():
                table.pop((id(buffer), offset), None)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """atom and red."""
        strength = self.strength()
        access = self.accesses(buffer, offsets, size, threads, STRONG | ATOMIC, strength.level)
        if access is None:
            return
        self.compare_with_write(access)
        self.compare_with_reads(access)
        self.note_write(access)
        ordering = self.ordering
        if not (ordering.table_of(buffer) or ordering.released or strength.releases):
            return
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            ordering.receive(buffer, offset, thread, strength.level, acquires=strength.acquires)
            ordering.send(buffer, offset, thread, strength.level, releases=strength.releases, passes_on=True)

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int) -> None:
        """The source of a bulk copy or a box."""
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), ASYNC_PROXY)
        if access is None:
            return
        access = self.by_agents(access, [("bulk read", thread)] * len(offsets))
        self.compare_with_write(access)
        if not getattr(self.step.action, "tells_mbarrier", True):
            self.bulk_copies.issue(thread, self.ordering.now)
            self.note_read(access)
            self.issued["bulk read", thread] = self.ordering.now, self.state.memory.step, thread

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduces: bool = False
    ) -> None:
        """The target of a bulk copy, a box or st.async."""
        if isinstance(self.step.action, TensorMapCopy):
            return
        flags = (STRONG | ATOMIC) * reduces | ASYNC_PROXY * (not isinstance(self.step.action, AsyncStore))
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), flags, GPU)
        if access is None:
            return
        by_mbarrier = "mbarrier" if flags & ASYNC_PROXY else "st.async"
        name: Hashable = ("bulk", thread) if cell is None else (by_mbarrier, cell)
        if cell is None:
            self.bulk_copies.issue(thread, self.ordering.now)
        else:
            self.issued[name] = self.ordering.now, self.state.memory.step, thread
        access = self.by_agents(access, [name] * len(offsets))
        self.compare_with_write(access)
        self.compare_with_reads(access)
        self.note_write(access)

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """The operands of wgmma in shared memory."""
        access = self.accesses(
            self.state.memory.shared, offsets, size, np.full(len(offsets), warp * LANES), ASYNC_PROXY
        )
        if access is None:
            return
        access = self.by_agents(access, [("wgmma", warp)] * len(offsets))
        self.compare_with_write(access)
        self.note_read(access)

    # --- comparisons

    def note_read(self, access: AccessGroup) -> None:
        """Keep reads, by warp; those of agents apart."""
        shadow = access.shadow
        time = self.ordering.now
        if access.entities[0] < 0:
            shadow.slot(shadow.slots).put(access.cells, access.entities[:, None], time, access.nature)
            return
        slots = access.entities // LANES
        if shadow is not self.shared_shadow:  # warps at one place of neighbouring blocks often read the same
            slots = slots % self.state.launch.warps + access.entities // self.ordering.per_block
        slots = slots % shadow.slots
        for slot in np.unique(slots).tolist():
            which = slots == slot
            shadow.slot(slot).put(access.cells[which], access.entities[which][:, None], time, access.nature)

    def note_write(self, access: AccessGroup) -> None:
        """Keep writes; lanes that write different bytes to one cell with one instruction are a race."""
        writes = access.shadow.writes
        writes.put(access.cells, access.entities[:, None], self.ordering.now, access.nature)
        if access.codes is None or access.entities[0] < 0:
            return
        others = writes.entities[access.cells]
        twice = others != access.entities[:, None]
        if not twice.any():
            return
        bytes_of = _cell_bytes(access)
        flat = access.cells.reshape(-1)
        last = np.zeros(int(flat.max()) - int(flat.min()) + 1, np.int64)
        last[flat - flat.min()] = np.arange(len(flat))
        winner = last[access.cells - flat.min()]
        wins = bytes_of.reshape(-1, bytes_of.shape[-1])[winner]
        wrong = twice & (wins != bytes_of).any(axis=-1)
        if wrong.any():
            natures = np.full(wrong.shape, access.nature)
            self.report(access, wrong, others, natures, kind="race")

    def compare_with_write(self, access: AccessGroup) -> None:
        """Find accesses that nothing orders behind the last write of their cells."""
        writes = access.shadow.writes
        times = writes.times[access.cells]
        if not times.any():
            return
        entities, natures = writes.entities[access.cells], writes.natures[access.cells]
        wrong = self.unordered(access, entities, times, natures)
        if wrong.any() and access.codes is not None:
            held = access.buffer[access.cells[..., None] * access.shadow.unit + np.arange(access.shadow.unit)]
            wrong &= (held != _cell_bytes(access)).any(axis=-1) | (entities < 0)
        if wrong.any():
            self.report(access, wrong, entities, natures)
        if access.nature & ASYNC_PROXY:
            self.check_fence(access, entities, times, natures, wrong)

    def compare_with_reads(self, access: AccessGroup) -> None:
        """Find writes that nothing orders behind reads of their cells."""
        for reads in access.shadow.reads:
            if reads is None:
                continue
            times = reads.times[access.cells]
            if not times.any():
                continue
            entities, natures = reads.entities[access.cells], reads.natures[access.cells]
            wrong = self.unordered(access, entities, times, natures)
            if wrong.any():
                self.report(access, wrong, entities, natures)

    def unordered(self, access: AccessGroup, entities: Numbers, times: Times, natures: Numbers) -> NDArray[np.bool_]:
        """Where nothing orders accesses behind those of others, and one of the two is too weak."""
        threads = np.broadcast_to(access.threads[:, None], entities.shape)
        wrong = (times > 0) & ~self.ordering.knows(threads, entities, times)
        if not wrong.any() or not access.nature & STRONG:
            return wrong
        strong = (natures & STRONG != 0) & (entities >= 0) & (access.entities[:, None] >= 0)
        strong |= (
            (natures & ATOMIC != 0) & bool(access.nature & ATOMIC) & ((entities < 0) | (access.entities[:, None] < 0))
        )
        same_size = (natures ^ access.nature) >> SIZE_SHIFT & 7 == 0
        level = np.minimum(natures >> SCOPE_SHIFT & 3, access.nature >> SCOPE_SHIFT & 3)
        return wrong & ~(strong & same_size & (level >= self.distance(access, entities)))

    def distance(self, access: AccessGroup, entities: Numbers) -> Numbers:
        """The scope that reaches from accesses to others: block, cluster or GPU."""
        per_block = self.ordering.per_block
        mine = access.entities[:, None] // per_block
        others = entities // per_block
        size = self.state.launch.cluster_blocks
        far = np.full(entities.shape, GPU)
        if size > 1:
            grid, shape = self.state.launch.grid, self.state.launch.cluster
            near = _cluster_of(mine, grid, shape) == _cluster_of(others, grid, shape)
            far = np.where(near, CLUSTER, far)
        return np.where((mine == others) | (entities < 0), BLOCK, far)

    def check_fence(
        self, access: AccessGroup, entities: Numbers, times: Times, natures: Numbers, wrong: NDArray[np.bool_]
    ) -> None:
        """Find bytes that a thread wrote, and that a copy or a product takes without a proxy fence between."""
        generic = entities >= 0
        if self.async_stores:
            generic = generic | np.isin(natures >> STEP_SHIFT, self.async_stores)
        plain = (times > 0) & generic & (natures & ASYNC_PROXY == 0) & ~wrong
        if not plain.any():
            return
        threads = np.broadcast_to(access.threads[:, None], entities.shape)
        missing = plain & ~self.ordering.knows(threads, entities, times, through_fence=True)
        missing &= self.ordering.columns(entities) >= 0
        if missing.any():
            text = "no fence.proxy.async lies between"
            self.report(access, missing, entities, natures, kind="fence", text=text)

    # --- reports

    def report(
        self,
        access: AccessGroup,
        wrong: NDArray[np.bool_],
        entities: Numbers,
        natures: Numbers,
        kind: str = "",
        text: str = "",
    ) -> None:
        """Report the first of some conflicts, and count them by the accesses that take part."""
        steps = natures >> STEP_SHIFT
        for at in np.unique(steps[wrong]).tolist():
            chosen = wrong & (steps == at)
            index, cell = (int(v) for v in np.argwhere(chosen)[0])
            mine, other = int(access.entities[index]), int(entities[index, cell])
            thread = int(access.threads[index])
            named = kind or self.kind_of(access, mine, other, thread)
            first = self.described(mine, self.state.memory.step, thread)
            second = self.described(other, at, thread)
            place = self.place(access, index)
            why = text or WHY[named]
            self.collector.add(
                KernelFinding(
                    named, first.line, f"{first.what} and {second.text} both access {place['name']}: {why}",
                    block=first.block, thread=first.thread, stack=first.stack, other=second,
                    space=place["space"], address=place["address"], array=place["array"], element=place["element"],
                ),
                int(chosen.any(axis=1).sum()),
            )  # fmt: skip

    def kind_of(self, access: AccessGroup, mine: int, other: int, thread: int) -> str:
        """Which kind of conflict it is."""
        del access
        if other < 0:
            return "async"
        issuer = int(self.ordering.entities(np.array([thread]))[0])
        if mine >= 0 and issuer // LANES == other // LANES:
            return "lockstep" if mine != other else "race"
        return "race"

    def described(self, entity: int, at: int, thread: int) -> KernelAccess:
        """An access in words: the instruction, its line and its thread."""
        step = self.state.program.steps[at]
        what = f"{step.name}"
        if entity < 0:
            what = f"{step.name} (in flight)"
            name = self.agent_name(entity)
            thread = name if name is not None else thread
            entity = int(self.ordering.entities(np.array([thread]))[0])
        block, own = divmod(entity, self.ordering.per_block)
        x, y, _ = self.state.launch.grid
        i, j, _ = self.state.launch.block
        return KernelAccess(
            what, step.line, (block % x, block // x % y, block // (x * y)), (own % i, own // i % j, own // (i * j)),
            self.stack(entity),
        )  # fmt: skip

    def agent_name(self, entity: int) -> int | None:
        """The thread of an agent, where it is one's."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        if column < 0:
            return None
        name = self.ordering.agent_names[column - self.ordering.own_columns]
        if not isinstance(name, tuple):
            return None
        return {"wgmma": int(name[1]) * LANES, "mbarrier": None, "st.async": None}.get(name[0], int(name[1]))

    def stack(self, entity: int) -> tuple[int, ...]:
        """The lines of the calls that a thread is in now, outermost first."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        calls = self.state.calls
        if column < 0 or self.ordering.share > 1:
            return ()
        warp, lane = divmod(column, LANES)
        depth = int(calls.depth[warp, lane])
        return tuple(self.state.program.steps[int(at)].line for at in calls.callers[warp, lane, :depth])

    def place(self, access: AccessGroup, index: int) -> dict[str, Any]:
        """Where an access lies: space, address, and the array of the caller."""
        offset = int(access.offsets[index])
        memory = self.state.memory
        if access.buffer is memory.shared:
            address = offset % memory.shared_stride
            return {
                "space": "shared", "address": address, "array": "", "element": None,
                "name": f"shared memory at {address:#x}",
            }  # fmt: skip
        home = self.written[id(access.buffer)]
        element = offset // access.size
        return {
            "space": "global", "address": home.start + offset, "array": home.name, "element": element,
            "name": f"{home.name} at byte {offset}",
        }  # fmt: skip

    # --- what orders

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """mbarrier.init: others must be ordered behind it."""
        self.initialised[cell] = BarrierInit(thread, self.ordering.now, self.state.memory.step)

    def check_initialised(self, cell: int, thread: int) -> None:
        """Find uses of an mbarrier that nothing orders behind its initialisation."""
        init = self.initialised.get(cell)
        if init is None or init.thread == thread:
            return
        threads, entity = np.array([thread]), self.ordering.entities(np.array([init.thread]))
        if self.ordering.knows(threads, entity, np.array([init.time]))[0]:
            return
        first = self.described(int(self.ordering.entities(threads)[0]), self.state.memory.step, thread)
        second = self.described(int(entity[0]), init.step, init.thread)
        address = 8 * cell % self.state.memory.shared_stride
        self.collector.add(
            KernelFinding(
                "lockstep" if thread // LANES == init.thread // LANES else "race", first.line,
                f"{first.what} and {second.text} use the mbarrier at {address:#x}: nothing orders them",
                block=first.block, thread=first.thread, stack=first.stack, other=second,
                space="shared", address=address,
            )
        )  # fmt: skip

    def finish(self) -> None:
        """Find copies of shared memory that nobody has waited for when all threads have left."""
        for name, (time, at, thread) in self.issued.items():
            column = self.ordering.agents[name]
            if (self.ordering.known[:, column] >= time).any():
                continue
            access = self.described(int(self.ordering.entities(np.array([thread]))[0]), at, thread)
            self.collector.add(
                KernelFinding(
                    "async", access.line, f"{access.what}: the block ends, and nobody has waited for it",
                    block=access.block, thread=access.thread, space="shared",
                )
            )  # fmt: skip

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: NDArray[np.bool_]) -> None:
        """bar and barrier."""
        sync = self.ordering.barriers.setdefault((block, number), SyncObject())
        action = self.step.action
        if not (isinstance(action, Barrier) and action.waits):  # who waits knows the same when it is released
            self.ordering.arrive(sync, warp * LANES + np.nonzero(lanes)[0])

    def barrier_released(self, block: int, number: int, here: NDArray[np.bool_]) -> None:
        """All that a barrier waits for have come: those that wait learn what all know."""
        sync = self.ordering.barriers.pop((block, number), None)
        if sync is not None:
            threads = block * self.state.launch.warps * LANES + np.nonzero(here.reshape(-1))[0]
            snapshot = self.ordering.snapshot(threads)
            self.ordering.learn(threads, snapshot if sync.current is None else snapshot.joined(sync.current))

    def cluster_completed(self, cluster: int) -> None:
        """barrier.cluster: those that wait already learn now, the others when they wait."""
        sync = self.ordering.clusters.setdefault(cluster, SyncObject())
        self.ordering.complete(sync)
        per_cluster = self.state.cluster_barriers.size * LANES
        for cell in [
            cell for cell, item in self.initialised.items() if item.is_fenced and item.thread // per_cluster == cluster
        ]:
            del self.initialised[cell]  # seen by all of the cluster, even if the arrival was relaxed
        waiting = np.nonzero(self.state.cluster_barriers.waiting.reshape(-1))[0]
        size = self.state.cluster_barriers.size * LANES
        mine = waiting[waiting // size == cluster]
        if sync.completed is not None and len(mine):
            self.ordering.learn(mine, sync.completed)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """mbarrier.arrive releases; that of cp.async tells of the thread's copies."""
        self.check_initialised(cell, thread)
        action = self.step.action
        if not isinstance(action, MemoryBarrier) or action.name not in {"arrive", "arrive_drop", "copies"}:
            return
        sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
        column = self.ordering.agent(("cp.async", thread)) if action.name == "copies" else None
        if "relaxed" not in self.step.name.split("."):
            self.ordering.arrive(sync, np.array([thread]))
        if column is not None and sync.current is not None:
            sync.current = self.with_agent(sync.current, column)

    def with_agent(self, snapshot: Snapshot | None, column: int, *, fences: bool = True) -> Snapshot:
        """A snapshot that knows all that an agent has done until now; its end is a proxy fence too, if it `fences`."""
        width = self.ordering.known.shape[1]
        row, fenced = np.zeros(width, np.int32), np.zeros(self.ordering.fenced.shape[1], np.int32)
        row[column] = self.ordering.now
        fenced[column:][:fences] = self.ordering.now
        own = Snapshot(self.ordering.blocks, row, fenced, {})
        return own if snapshot is None else snapshot.joined(own)

    def mbarrier_completed(self, cell: int) -> None:
        """A phase is over, and the copies that it counted are done."""
        sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
        for name in ("mbarrier", "st.async"):
            column = self.ordering.agents.get((name, cell))
            if column is not None:
                sync.current = self.with_agent(sync.current, column, fences=name == "mbarrier")
        self.ordering.complete(sync)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """mbarrier.test_wait and try_wait acquire."""
        for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
            self.check_initialised(cell, thread)
        if "relaxed" in self.step.name.split("."):
            return
        for cell in np.unique(cells).tolist():
            sync = self.ordering.mbarriers.get(cell)
            if sync is not None and sync.completed is not None:
                self.ordering.learn(threads[cells == cell], sync.completed)

    # --- steps

    def before(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """A step is about to run: arrivals that it may complete."""
        action = step.action
        if isinstance(action, ClusterBarrier) and not action.waits and "relaxed" not in step.name.split("."):
            threads = self.threads_of(group)
            size = self.state.cluster_barriers.size * LANES
            for cluster in np.unique(threads // size).tolist():
                sync = self.ordering.clusters.setdefault(cluster, SyncObject())
                self.ordering.arrive(sync, threads[threads // size == cluster])
        if isinstance(action, MatrixOp) and action.operation == "wgmma":
            for warp in group.active_rows.tolist():
                self.products.issue(warp, self.ordering.now)

    def after(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """A step has run: what it orders."""
        action = step.action
        if isinstance(action, WarpWait):
            self.sync_lanes(step, group)
        elif isinstance(action, ClusterBarrier) and action.waits:
            threads = self.threads_of(group)
            threads = threads[~self.state.cluster_barriers.waiting.reshape(-1)[threads]]
            size = self.state.cluster_barriers.size * LANES
            for cluster in np.unique(threads // size).tolist():
                sync = self.ordering.clusters.get(cluster)
                if sync is not None and sync.completed is not None:
                    self.ordering.learn(threads[threads // size == cluster], sync.completed)
        elif isinstance(action, NoOp):
            self.fence_or_wait(step, group)

    def threads_of(self, group: LaneGroup) -> Numbers:
        """The threads of a group, as numbers in the batch."""
        return group.of(self.state.lane_number)[group.mask].astype(np.int64)

    def sync_lanes(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """bar.warp.sync: the lanes that name each other."""
        whole = group.mask.all(axis=1)
        if whole.any():
            self.ordering.sync_warps(group.warp_rows[whole].astype(np.int64))
        if whole.all():
            return
        members = group.read(step.sources[-1], B32)
        for row in np.nonzero(~whole & group.mask.any(axis=1))[0].tolist():
            for mask in np.unique(members[row][group.mask[row]]).tolist():
                lanes = np.nonzero(group.mask[row] & (members[row] == mask))[0]
                self.ordering.sync_lanes(int(group.warp_rows[row]) * LANES + lanes)

    def fence_or_wait(self, step: DecodedInstruction, group: LaneGroup) -> None:
        """Fences, and the groups of copies and products."""
        words = step.name.split(".")
        if words[0] in {"fence", "membar"}:
            threads = self.threads_of(group)
            if is_proxy_fence(step):
                self.ordering.fence_proxy(threads)
            if "mbarrier_init" in words:
                own = set(threads.tolist())
                for item in self.initialised.values():
                    item.is_fenced |= item.thread in own
            level = fence_level(step)
            if level is not None:
                self.ordering.fence(threads, level, is_sc=is_sc_fence(step))
        elif words[0] == "wgmma":
            self.group_of_products(step, group, words)
        elif words[:2] == ["cp", "async"]:
            self.group_of_copies(step, self.threads_of(group).tolist(), words)

    def group_of_products(self, step: DecodedInstruction, group: LaneGroup, words: list[str]) -> None:
        """wgmma.commit_group and wgmma.wait_group, warp by warp."""
        for warp in group.active_rows.tolist():
            if "commit_group" in words:
                self.products.commit(warp)
            elif "wait_group" in words:
                done = self.products.wait(warp, _count(step))
                if done:
                    first = warp - int(self.state.warp_index[warp]) % 4
                    column = self.ordering.agent(("wgmma", first))
                    self.ordering.learn_of_agent(np.arange(warp * LANES, (warp + 1) * LANES), column, done)

    def group_of_copies(self, step: DecodedInstruction, threads: list[int], words: list[str]) -> None:
        """The groups of cp.async and cp.async.bulk, thread by thread."""
        groups = self.bulk_copies if "bulk" in words else self.copies
        if "commit_group" in words:
            for thread in threads:
                groups.commit(thread)
            return
        if "wait_all" in words:
            for thread in threads:
                groups.commit(thread)
        elif "wait_group" not in words:
            return
        names = ("cp.async",) if groups is self.copies else ("bulk read",) if "read" in words else ("bulk read", "bulk")
        for thread in threads:
            done = groups.wait(thread, 0 if "wait_all" in words else _count(step))
            for name in names if done else ():
                if (name, thread) in self.ordering.agents:
                    self.ordering.learn_of_agent(np.array([thread]), self.ordering.agents[name, thread], done)


WHY = {
    "race": "nothing orders them",
    "lockstep": "they are lanes of one warp, and no bar.warp.sync orders them",
    "async": "it has not been waited for",
}


def uses_async_proxy(step: DecodedInstruction) -> bool:
    """Whether an instruction reads or writes memory through the async proxy: bulk copies, boxes, wgmma."""
    action = step.action
    is_product = isinstance(action, MatrixOp) and action.operation == "wgmma"
    return is_product or isinstance(action, BulkCopy | TensorCopy)


def _count(step: DecodedInstruction) -> int:
    """How many groups a wait leaves in flight."""
    operand = step.sources[0] if step.sources else None
    return operand.code(None) if isinstance(operand, Immediate) else 0


def _cell_bytes(access: AccessGroup) -> Bytes:
    """The bytes that stores leave in each cell, [accesses, cells, bytes]."""
    data = np.ascontiguousarray(access.codes).view(np.uint8)
    return data.reshape(*access.cells.shape, access.shadow.unit)


def _cluster_of(blocks: Numbers, grid: tuple[int, int, int], shape: tuple[int, int, int]) -> Numbers:
    """A number for the cluster of each block."""
    x, y, _ = grid
    i, j, k = shape
    return blocks % x // i + x * (blocks // x % y // j + y * (blocks // (x * y) // k))
