"""Find accesses that nothing orders: races between threads, and data of copies or wgmma in flight touched too early.

Two accesses conflict if they overlap and one of them writes. A conflict is a finding unless one happens before the
other (`ordering`), or both are strong enough (`sync_tracking.strength_of`), or both write the same bytes. Its kind is

    race      of two threads of different warps, or of lanes that write different bytes with one instruction
    lockstep  of two lanes of one warp, with no bar.warp.sync between: right only while lanes run together
    async     with a copy or a wgmma that has not been waited for
    fence     a copy of the async proxy, or a wgmma, of bytes that a thread wrote with no fence.proxy.async between

`sync_tracking` has the strength of accesses and follows barriers; `conflicts` has the shadow memory and the reports.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.sanitizer.conflicts import (
    ASYNC_PROXY,
    ATOMIC,
    INST_SHIFT,
    SCOPE_SHIFT,
    SIZE_SHIFT,
    STRONG,
    AccessGroup,
    ConflictReporter,
    ShadowMemory,
    nature_of,
)
from warpfrag.machine.sanitizer.ordering import BLOCK, CLUSTER, GPU, LaunchOrder, Ordering
from warpfrag.machine.sanitizer.sync_tracking import Strength, SyncFollower, strength_of

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Times = NDArray[np.int32]

GLOBAL_SLOTS = 4  # warps whose last reads of a cell of global memory are kept
MAX_SHARED_SLOTS = 32


class RaceCheck(SyncFollower):
    """Compares the accesses of a batch, and reports those that nothing orders."""

    def __init__(
        self,
        state: WarpBatch,
        order: LaunchOrder,
        shadows: dict[int, ShadowMemory],
        numbers: list[int],
        collector: FindingCollector,
    ) -> None:
        """Share the shadows of global memory with the whole launch; start with an empty one for shared memory."""
        has_proxies = any(uses_async_proxy(inst) for inst in state.program.instructions)
        ordering = Ordering(state, order, numbers, has_proxies=has_proxies)
        if ordering.share > 1:
            collector.leave_out("lanes of one warp: too many threads run at once to tell them apart")
        memory = state.memory
        self.shadows, self.written = shadows, {id(item.data): item for item in memory.allocations if item.writable}
        super().__init__(state, ordering, ConflictReporter(state, ordering, collector, self.written), collector)
        slots = min(state.launch.warps * state.launch.cluster_blocks, MAX_SHARED_SLOTS)
        self.shared_shadow = ShadowMemory(len(memory.shared), slots)
        self.strengths: dict[int, Strength] = {}
        instructions = list(enumerate(state.program.instructions))
        self.async_stores = [at for at, inst in instructions if isinstance(inst.action, actions.AsyncStore)]
        self.allocations = [at for at, inst in instructions if is_tensor_allocation(inst)]

    # --- accesses

    def strength(self) -> Strength:
        """Return the strength of this instruction's accesses."""
        at = self.state.memory.inst
        if at not in self.strengths:
            self.strengths[at] = strength_of(self.inst)
        return self.strengths[at]

    def shadow_of(self, buffer: Bytes) -> ShadowMemory | None:
        """Return the shadow of a buffer; None for local memory, parameters and constants, which cannot race."""
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
        """Return the accesses of threads; None if no other thread can reach the buffer."""
        shadow = self.shadow_of(buffer)
        if shadow is None or not len(offsets):
            return None
        cells = shadow.cells(offsets, size)
        nature = nature_of(self.state.memory.inst, flags, level, size)
        return AccessGroup(
            buffer, shadow, cells, offsets, size, threads, self.ordering.entities(threads), nature
        )  # fmt: skip

    def by_agents(self, access: AccessGroup, names: list[Hashable]) -> AccessGroup:
        """Return the same accesses, made by the agents of the threads, or all by one agent."""
        own = [self.ordering.agent_entity(self.ordering.agent(name)) for name in names]
        return access._replace(entities=np.broadcast_to(np.array(own, np.int64), access.entities.shape))

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """ld, ldmatrix, wmma.load, and the source of cp.async."""
        strength = self.strength()
        access = self.accesses(buffer, offsets, size, threads, STRONG * strength.is_strong, strength.level)
        if access is None:
            return
        if isinstance(self.inst.action, actions.AsyncCopy):
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
        if isinstance(self.inst.action, actions.AsyncCopy):
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
        """Check the source of a bulk copy or a box."""
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), ASYNC_PROXY)
        if access is None:
            return
        access = self.by_agents(access, [("bulk read", thread)])
        self.compare_with_write(access)
        if not getattr(self.inst.action, "tells_mbarrier", True):
            self.bulk_copies.issue(thread, self.ordering.now)
            self.note_read(access)
            self.issued["bulk read", thread] = self.ordering.now, self.state.memory.inst, thread

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduces: bool = False
    ) -> None:
        """Check the target of a bulk copy, a box or st.async."""
        if isinstance(self.inst.action, actions.TensorMapCopy):
            return
        flags = (STRONG | ATOMIC) * reduces | ASYNC_PROXY * (not isinstance(self.inst.action, actions.AsyncStore))
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), flags, GPU)
        if access is None:
            return
        by_mbarrier = "mbarrier" if flags & ASYNC_PROXY else "st.async"
        name: Hashable = ("bulk", thread) if cell is None else (by_mbarrier, cell)
        if cell is None:
            self.bulk_copies.issue(thread, self.ordering.now)
        else:
            self.issued[name] = self.ordering.now, self.state.memory.inst, thread
        access = self.by_agents(access, [name])
        self.compare_with_write(access)
        self.compare_with_reads(access)
        self.note_write(access)

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """Check the operands of wgmma in shared memory."""
        access = self.accesses(
            self.state.memory.shared, offsets, size, np.full(len(offsets), warp * LANES), ASYNC_PROXY
        )
        if access is None:
            return
        access = self.by_agents(access, [("wgmma", warp)])
        self.compare_with_write(access)
        self.note_read(access)

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """mbarrier.init writes: no copy may still use its bytes."""
        super().mbarrier_initialised(cell, thread)
        access = self.accesses(self.state.memory.shared, np.array([8 * cell]), 8, np.array([thread]))
        if access is not None:
            self.compare_with_write(access)
            self.compare_with_reads(access)

    # --- comparisons

    def note_read(self, access: AccessGroup) -> None:
        """Record reads, by warp; those of agents separately."""
        shadow, entities = access.shadow, access.entities
        if entities[0] < 0:
            slots = np.full(len(entities), shadow.slots)
        else:
            slots = entities // LANES
            if shadow is not self.shared_shadow:  # warps with the same index in neighbouring blocks often read the same
                slots = slots % self.state.launch.warps + entities // self.ordering.per_block
            slots = slots % shadow.slots
        known = len(shadow.reads.times)
        at = np.minimum(slots, max(0, known - 1))[:, None], access.cells
        before = [part[at] * (slots < known)[:, None] for part in shadow.reads] if known else []
        shadow.put_reads(slots, access.cells, entities[:, None], self.ordering.now, access.nature)
        if entities[0] >= 0:
            self.keep_replaced(access, slots, before)

    def keep_replaced(self, access: AccessGroup, slots: Numbers, before: list[NDArray[Any]]) -> None:
        """Record reads of other warps that these replace (`before`), unless they are ordered."""
        shadow, cells, per_block = access.shadow, access.cells, self.ordering.per_block
        mine = np.broadcast_to(access.entities[:, None], cells.shape)
        lost = shadow.reads.entities[slots[:, None], cells] // LANES != mine // LANES
        if lost.any():
            now = np.full(int(lost.sum()), self.ordering.now)
            shadow.note_replaced(cells[lost], mine[lost] // per_block, now, np.full(len(now), access.nature))
        if not before:
            return
        entities, times, natures = before
        lost = (times > 0) & (entities // LANES != mine // LANES)
        if lost.any():
            threads = np.broadcast_to(access.threads[:, None], cells.shape)
            lost[lost] = ~self.ordering.knows(threads[lost], entities[lost], times[lost])
        if lost.any():
            shadow.note_replaced(cells[lost], entities[lost] // per_block, times[lost], natures[lost])

    def check_replaced(self, access: AccessGroup) -> None:
        """Remove writes that may race with reads that are no longer kept."""
        replaced = access.shadow.replaced
        if not replaced.times.shape[1]:
            return
        for row in range(1 if access.nature & STRONG else 2):
            times, blocks = replaced.times[row, access.cells], replaced.entities[row, access.cells]
            late = times > 0
            if late.any():
                threads = np.broadcast_to(access.threads[:, None], times.shape)
                late[late] = ~self.ordering.knows_blocks(threads[late], blocks[late], times[late])
            if late.any():
                self.collector.leave_out("races: more warps read a word than are kept, and one may race with a write")

    def note_write(self, access: AccessGroup) -> None:
        """Record writes; lanes that write different bytes to one cell with one instruction are a race."""
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
            self.reporter.report(access, wrong, others, natures, kind="race")

    def compare_with_write(self, access: AccessGroup) -> None:
        """Find accesses that nothing orders after the last write of their cells."""
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
            self.reporter.report(access, wrong, entities, natures)
        if access.nature & ASYNC_PROXY:
            self.check_fence(access, entities, times, natures, wrong)

    def compare_with_reads(self, access: AccessGroup) -> None:
        """Find writes that nothing orders after reads of their cells."""
        shadow = access.shadow
        times = shadow.reads.times[:, access.cells]
        for slot in np.nonzero(times.any(axis=(1, 2)))[0].tolist():
            entities, natures = shadow.reads.entities[slot, access.cells], shadow.reads.natures[slot, access.cells]
            wrong = self.unordered(access, entities, times[slot], natures)
            if wrong.any():
                self.reporter.report(access, wrong, entities, natures)
        self.check_replaced(access)

    def unordered(self, access: AccessGroup, entities: Numbers, times: Times, natures: Numbers) -> NDArray[np.bool_]:
        """Return True for accesses that nothing orders after others, if one of the two is too weak."""
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
        """Return the smallest scope that contains both accesses: block, cluster or GPU."""
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
        """Find bytes that a thread wrote and that a copy or a wgmma reads without a proxy fence between."""
        generic = entities >= 0
        if self.async_stores:
            generic = generic | np.isin(natures >> INST_SHIFT, self.async_stores)
        plain = (times > 0) & generic & (natures & ASYNC_PROXY == 0) & ~wrong
        if self.allocations:
            plain &= ~np.isin(natures >> INST_SHIFT, self.allocations)
        if not plain.any():
            return
        threads = np.broadcast_to(access.threads[:, None], entities.shape)
        missing = plain & ~self.ordering.knows(threads, entities, times, through_fence=True)
        missing &= self.ordering.columns(entities) >= 0
        if missing.any():
            text = "no fence.proxy.async lies between"
            self.reporter.report(access, missing, entities, natures, kind="fence", text=text)


def uses_async_proxy(inst: DecodedInstruction) -> bool:
    """Return True if an instruction reads or writes memory through the async proxy: bulk copies, boxes, wgmma."""
    action = inst.action
    is_product = isinstance(action, actions.MatrixOp) and action.operation == "wgmma"
    return is_product or isinstance(action, actions.BulkCopy | actions.TensorCopy)


def is_tensor_allocation(inst: DecodedInstruction) -> bool:
    """Return True for tcgen05.alloc: the manual does not name the proxy that stores the address."""
    return isinstance(inst.action, actions.TensorThreadOp) and inst.action.spelling.op == "alloc"


def _cell_bytes(access: AccessGroup) -> Bytes:
    """Return the bytes that stores write to each cell, [accesses, cells, bytes]."""
    data = np.ascontiguousarray(access.codes).view(np.uint8)
    return data.reshape(*access.cells.shape, access.shadow.unit)


def _cluster_of(blocks: Numbers, grid: tuple[int, int, int], shape: tuple[int, int, int]) -> Numbers:
    """Return the cluster number of each block."""
    x, y, _ = grid
    i, j, k = shape
    return blocks % x // i + x * (blocks // x % y // j + y * (blocks // (x * y) // k))
