"""Find unordered accesses: races between threads, and early accesses to the data of copies or wgmma in flight.

Two accesses conflict if they overlap and one of them writes. A conflict is a finding unless one happens before the
other (`ordering`), both are strong enough (`sync_tracking.strength_of`), or both write the same bytes. Categories:

    race      two threads of different warps, or lanes that write different bytes with one instruction
    lockstep  two lanes of one warp, with no bar.warp.sync between: correct only while lanes run together
    async     a copy or a wgmma that has not been waited for
    unordered a volatile or relaxed load and a volatile or relaxed store, if the loaded value reaches memory and is not
              polled for; or two such stores of different values by different warps
    fence     an async-proxy copy or a wgmma that accesses bytes that a thread wrote, with no fence.proxy.async between

`sync_tracking` determines the strength of accesses and follows barriers. `shadow_memory` stores the earlier accesses.
`race_reports` has the texts and fixes of findings, and chooses among the first three categories.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers
from warpfrag.isa.targets import targets
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.wgmma_registers import is_wgmma
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.program import MEASURED_ON, DecodedInstruction, InexactCause, Program, indices_of
from warpfrag.machine.sanitizer.ordering import BLOCK, CLUSTER, GPU, LANE_BITS, Agent, LaunchOrder, Ordering
from warpfrag.machine.sanitizer.race_reports import RaceReporter
from warpfrag.machine.sanitizer.shadow_memory import (
    ASYNC_PROXY,
    ATOMIC,
    INST_SHIFT,
    NATURE_BITS,
    SAME_BYTES,
    SCOPE_SHIFT,
    SIZE_SHIFT,
    STRONG,
    Accesses,
    AccessGroup,
    AccessVectors,
    ShadowMemory,
    nature_of,
)
from warpfrag.machine.sanitizer.sync_tracking import LockFollower, Strength, SyncFollower, strength_of

STORES = actions.MemoryStore | actions.Atomic | actions.AsyncStore | actions.DirectCall
# the largest relative difference between sums that differ only in rounding
ROUNDED, ROUNDING = np.dtype(np.float32), 2.0**-20
LOCK_ORDER = "threads may take a lock in several orders, and critical sections and fences do not protect all accesses"
NO_ACQUIRE = "a volatile or relaxed load is ordered only by a flag that was loaded without an acquire or a fence"
STORED_AFTER_WAIT = "a thread changes a word after a loop that waited for another thread's store to this word"
UNCERTAIN_FENCE = "fences: several threads wrote a word before an asynchronous copy, and some may lack a fence"
COPIES = actions.AsyncCopy | actions.BulkCopy | actions.TensorCopy | actions.AsyncStore


class RaceCheck(SyncFollower):
    """Compares the accesses of a batch, and reports those that are not ordered."""

    judges_atomics = False  # True to also report loads that may see different atomics

    def __init__(
        self,
        state: WarpBatch,
        order: LaunchOrder,
        shadows: dict[int, ShadowMemory],
        numbers: list[int],
        collector: FindingCollector,
    ) -> None:
        """Create the check; batches share the shadow of global memory, and each has its own shadow of shared memory."""
        has_proxies = any(
            is_wgmma(inst) or isinstance(inst.action, actions.BulkCopy | actions.TensorCopy)
            for inst in state.program.instructions
        )
        ordering = Ordering(state, order, numbers, has_proxies=has_proxies)
        if ordering.share > 1:
            collector.leave_out("lanes of one warp: too many threads run at once to tell them apart")
        memory = state.memory
        self.shadows, self.written = shadows, {id(alloc.data): alloc for alloc in memory.allocations if alloc.writable}
        super().__init__(state, ordering, RaceReporter(state, ordering, collector, self.written), collector)
        self.shared_shadow = ShadowMemory(len(memory.shared), is_shared=True)
        self.strengths: dict[int, Strength] = {}
        instructions = list(enumerate(code := state.program.instructions))
        self.async_stores = [at for at, inst in instructions if isinstance(inst.action, actions.AsyncStore)]
        self.value_loads = value_loads(state.program)
        # (thread, cell) pairs that are ordered only by a flag without a fence
        self.flagged: set[tuple[int, int]] = set()
        polled = {at for at, inst in instructions if isinstance(inst.action, actions.Atomic) and is_polled(code, at)}
        self.synchronizing = polled | {at for at, inst in instructions if strength_of(inst).releases}
        self.locks = LockFollower(code, polled, order.lock_owners, one_block=state.launch.grid == (1, 1, 1))
        self.allocations = [at for at, inst in instructions if is_tensor_allocation(inst)]

    # --- accesses

    def strength(self) -> Strength:
        """Return the strength of the current instruction's accesses."""
        at = self.state.memory.inst
        if at not in self.strengths:
            self.strengths[at] = strength_of(self.inst)
        return self.strengths[at]

    def shadow_of(self, buffer: Bytes) -> ShadowMemory | None:
        """Return a buffer's shadow, or None for local memory, parameters and constants, where no race is possible."""
        if buffer is self.state.memory.shared:
            return self.shared_shadow
        if id(buffer) not in self.written:
            return None
        if id(buffer) not in self.shadows:
            self.shadows[id(buffer)] = ShadowMemory(len(buffer), is_shared=False)
        return self.shadows[id(buffer)]

    def accesses(
        self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers, flags: int = 0, level: int = BLOCK
    ) -> AccessGroup | None:
        """Return the accesses of threads, or None if no other thread can access the buffer."""
        shadow = self.shadow_of(buffer)
        if shadow is None or not len(offsets):
            return None
        cells = shadow.cells(offsets, size)
        if shadow is self.shared_shadow and not isinstance(self.inst.action, COPIES):
            self.note_remote(offsets, threads)
        nature = nature_of(self.state.memory.inst, flags, level, size)
        return AccessGroup(buffer, shadow, cells, offsets, size, threads, self.ordering.entities(threads), nature)

    def by_agents(self, access: AccessGroup, names: list[Agent]) -> AccessGroup:
        """Return the same accesses, attributed to agents of the threads or to a single agent."""
        own = [self.ordering.agent_entity(self.ordering.agent(name)) for name in names]
        return access._replace(entities=np.broadcast_to(np.array(own, np.int64), access.entities.shape))

    def read(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Check ld, ldmatrix, wmma.load and the source of cp.async."""
        strength = self.strength()
        access = self.accesses(buffer, offsets, size, threads, STRONG * strength.is_strong, strength.level)
        if access is None:
            return
        if isinstance(self.inst.action, actions.AsyncCopy):
            access = self.by_agents(access, [("cp.async", thread) for thread in threads.tolist()])
        self.compare_with_writes(access)
        if self.state.memory.inst in self.value_loads:
            shadow, cells = access.shadow, access.cells
            earlier = [shadow.earlier_writes.slots.at((slot, cells)) for slot in shadow.earlier_writes.used]
            for writes in (self.last_writes(access), *earlier):
                self.compare_values(access, writes, (writes.natures & ATOMIC == 0) | self.judges_atomics)
        self.note_read(access)
        if strength.is_strong:
            self.receive(buffer, offsets, threads, strength)

    def receive(self, buffer: Bytes, offsets: Numbers, threads: Numbers, strength: Strength) -> None:
        """Order threads after the releases that their strong loads observe."""
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            self.ordering.receive(buffer, offset, thread, strength.level, acquires=strength.acquires)

    def write(self, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers) -> None:
        """Check st, stmatrix, wmma.store and the target of cp.async."""
        strength = self.strength()
        size = codes.dtype.itemsize * codes.shape[1]
        access = self.accesses(buffer, offsets, size, threads, STRONG * strength.is_strong, strength.level)
        if access is None:
            return
        access = access._replace(codes=codes, writes=True)
        if isinstance(self.inst.action, actions.AsyncCopy):
            access = self.by_agents(access, [("cp.async", thread) for thread in threads.tolist()])
            for thread in threads.tolist():
                self.copies.issue(thread, self.ordering.now)
        stays = self.compare_with_writes(access)
        self.compare_with_reads(access)
        if strength.is_strong and self.value_loads:
            self.compare_with_value_loads(access, self.differs(access))
        if strength.is_strong and self.state.memory.inst not in self.synchronizing:
            self.compare_stores(access, self.differs(access))
        self.note_write(access, stays)
        table = self.ordering.table_of(buffer)
        if strength.is_strong:
            self.follow_lock(buffer, offsets, threads)
            for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
                self.ordering.send(buffer, offset, thread, strength.level, releases=strength.releases, passes_on=False)
        elif table:
            for offset in offsets.tolist():
                table.pop((id(buffer), offset), None)

    def update(self, buffer: Bytes, offsets: Numbers, size: int, threads: Numbers) -> None:
        """Check atom and red; with a narrower scope than GPU, compare the blocks that run the instruction together."""
        strength, blocks = self.strength(), threads // self.ordering.per_block
        if strength.level < GPU and (blocks != blocks[:1]).any():
            for block in np.unique(blocks).tolist():
                own = blocks == block
                RaceCheck.update(self, buffer, offsets[own], size, threads[own])
            return
        access = self.accesses(buffer, offsets, size, threads, STRONG | ATOMIC, strength.level)
        if access is None:
            return
        access = access._replace(writes=True)
        stays = self.compare_with_writes(access)
        self.compare_with_reads(access)
        if self.judges_atomics and self.value_loads:
            self.compare_with_value_loads(access, np.ones(access.cells.shape, np.bool_))
        if self.state.memory.inst not in self.synchronizing:
            self.compare_stores(access, access.shadow.writes.natures[access.cells] & ATOMIC == 0)
        self.note_write(access, stays)
        self.follow_lock(buffer, offsets, threads)
        ordering = self.ordering
        if not (ordering.table_of(buffer) or ordering.released or strength.releases):
            return
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            ordering.receive(buffer, offset, thread, strength.level, acquires=strength.acquires)
            ordering.send(buffer, offset, thread, strength.level, releases=strength.releases, passes_on=True)

    def follow_lock(self, buffer: Bytes, offsets: Numbers, threads: Numbers) -> None:
        """Mark the check as incomplete if the order in which threads take a lock may affect the result."""
        at, entities = self.state.memory.inst, self.ordering.entities(threads)
        if self.locks.polled and self.locks.is_order_open(at, id(buffer), offsets, entities):
            self.collector.leave_out(LOCK_ORDER)

    def copy_read(self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cells: list[int]) -> None:
        """Check the source of a bulk or box copy; it may change only after a wait for the copy's mbarriers or group."""
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), ASYNC_PROXY)
        if access is None:
            return
        names: list[Agent] = [("mbarrier read", cell) for cell in cells] or [("bulk read", thread)]
        for name in names:
            access = self.by_agents(access, [name])
            self.compare_with_writes(access)
            self.note_read(access)
            if cells and access.shadow is self.shared_shadow and self.state.launch.cluster_blocks > 1:
                key = thread // self.ordering.per_block, thread, self.ordering.agent(name)
                self.remote[key] = self.ordering.now, self.state.memory.inst
        if not cells:
            self.bulk_copies.issue(thread, self.ordering.now)
            self.issued["bulk read", thread] = self.ordering.now, self.state.memory.inst, thread

    def copy_write(
        self, buffer: Bytes, offsets: Numbers, size: int, thread: int, cell: int | None, *, reduction: str = ""
    ) -> None:
        """Check the target of a bulk copy, a box copy or st.async."""
        if isinstance(self.inst.action, actions.TensorMapCopy):
            return
        flags = STRONG | ATOMIC if reduction else 0
        flags |= ASYNC_PROXY * (not isinstance(self.inst.action, actions.AsyncStore))
        access = self.accesses(buffer, offsets, size, np.full(len(offsets), thread), flags, GPU)
        if access is None:
            return
        by_mbarrier = "mbarrier" if flags & ASYNC_PROXY else "st.async"
        name: Agent = ("bulk", thread) if cell is None else (by_mbarrier, cell)
        if cell is None:
            self.bulk_copies.issue(thread, self.ordering.now)
        else:
            self.issued[name] = self.ordering.now, self.state.memory.inst, thread
            self.check_initialised(cell, thread, by_async_proxy=bool(flags & ASYNC_PROXY))
        access = self.by_agents(access, [name])._replace(writes=True)
        stays = self.compare_with_writes(access)
        self.compare_with_reads(access)
        self.note_write(access, stays)

    def product_read(self, offsets: Numbers, size: int, warp: int) -> None:
        """Check the shared-memory operands of wgmma."""
        access = self.accesses(
            self.state.memory.shared, offsets, size, np.full(len(offsets), warp * LANES), ASYNC_PROXY
        )
        if access is None:
            return
        access = self.by_agents(access, [("wgmma", warp)])
        self.compare_with_writes(access)
        self.note_read(access)

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Check mbarrier.init, which writes bytes that an earlier copy may still use."""
        super().mbarrier_initialised(cell, thread)
        access = self.accesses(self.state.memory.shared, np.array([8 * cell]), 8, np.array([thread]))
        if access is not None:
            self.compare_with_writes(access._replace(writes=True))
            self.compare_with_reads(access)

    # --- comparisons

    def note_read(self, access: AccessGroup) -> None:
        """Record reads in shadow memory."""
        shadow, (cells, threads, new) = access.shadow, self.records(access)
        (shadow.agent_reads if access.entities[0] < 0 else shadow.reads).add(
            self.slots_of(access.shadow, new.entities), cells, threads, new, self.ordering
        )

    def slots_of(self, shadow: ShadowMemory, entities: Numbers) -> Numbers:
        """Return the slots at which the search for a free slot starts: a warp's own slot, or slot 0 for agents."""
        if entities[0] < 0:
            return np.zeros(len(entities), np.int64)
        warps, slots = self.state.launch.warps, entities // LANES
        if shadow is self.shared_shadow:
            return slots % (warps * self.state.launch.cluster_blocks) % shadow.reads.limit
        slots = slots % warps + entities // self.ordering.per_block  # warps of adjacent blocks often read the same data
        return slots % shadow.reads.limit

    def records(self, access: AccessGroup) -> tuple[Numbers, Numbers, Accesses]:
        """Expand accesses to their cells; return the cells, the threads and one record per cell."""
        count = access.cells.shape[1]
        entities = np.repeat(access.entities, count)
        times = np.full(len(entities), self.ordering.now, np.int32)
        lanes = LANE_BITS[entities % LANES] if access.entities[0] >= 0 else np.ones(len(entities), np.uint32)
        new = Accesses(entities, times, times, np.full(len(entities), access.nature), lanes, times)
        return access.cells.reshape(-1), np.repeat(access.threads, count), new

    def note_write(self, access: AccessGroup, stays: Mask) -> None:
        """Record writes, keep the earlier writes that `stays` selects, and report lanes that write different values."""
        cells, threads, new = self.records(access)
        shadow = access.shadow
        if stays.any():
            self.keep_writes(access, stays.reshape(-1), shadow.writes.at(cells))
        if access.nature & STRONG and self.ordering.released and access.entities[0] >= 0:
            released = self.ordering.last_fences(threads)
            new.firsts = np.where(released > 0, released, new.times)
        shadow.writes.put(cells, new)
        others = shadow.writes.entities[access.cells]
        twice = others != access.entities[:, None]
        if not twice.any():
            return
        wrong = np.zeros_like(twice)
        if access.codes is not None:
            bytes_of = _cell_bytes(access)
            last = np.zeros(int(cells.max()) - int(cells.min()) + 1, np.int64)
            last[cells - cells.min()] = np.arange(len(cells))
            winner = last[access.cells - cells.min()]
            wins = bytes_of.reshape(-1, bytes_of.shape[-1])[winner]
            wrong = twice & (wins != bytes_of).any(axis=-1)
            if wrong.any() and self.is_decided(bytes_of[wrong], wins[wrong]):
                wrong[...] = False
        if wrong.any():
            self.reporter.report(access, wrong, others, np.full(wrong.shape, access.nature), kind="race")
        self.keep_writes(access, (twice & ~wrong).reshape(-1), new)

    def is_decided(self, left: Bytes, right: Bytes) -> bool:
        """Return True and add a note if lanes store sums that differ only in rounding and it is known which remains."""
        name, inst = self.state.launch.arch, self.inst
        arch = targets()[name].arch if name in targets() else name
        is_measured = MEASURED_ON[InexactCause.LANES_AT_SAME_ADDRESS] == arch
        is_store = isinstance(inst.action, actions.MemoryStore) and left.shape[-1] == ROUNDED.itemsize
        if not (is_measured and is_store):
            return False
        first, second = (np.ascontiguousarray(data).view(ROUNDED).astype(np.float64) for data in (left, right))
        is_normal = np.isfinite(first) & (np.abs(first) >= np.finfo(ROUNDED).tiny)
        if not (is_normal & (np.abs(first - second) <= ROUNDING * np.abs(first))).all():
            return False
        self.collector.note(
            f"line {inst.line}: lanes of a warp store numbers that differ in their last bits to the same address with"
            f" one {inst.name}, as in a redundant reduction with fma contraction; {arch} keeps the first lane's"
        )
        return True

    def keep_writes(self, access: AccessGroup, stays: Mask, old: Accesses) -> None:
        """Keep writes that the last write does not supersede; a strong write gets the time of its releasing fence."""
        cells, threads = access.cells.reshape(-1), np.repeat(access.threads, access.cells.shape[1])
        natures = old.natures | (SAME_BYTES if access.codes is not None else 0) * (old.natures & STRONG == 0)
        old = Accesses(old.entities, old.firsts, old.firsts, natures, old.lanes, old.times)
        vectors = {False: access.shadow.earlier_writes, True: access.shadow.agent_writes}
        for is_agent, own in vectors.items():
            at = np.nonzero(stays & ((old.entities < 0) == is_agent))[0]
            if len(at):
                kept = old.at(at)
                own.add(self.slots_of(access.shadow, kept.entities), cells[at], threads[at], kept, self.ordering)

    def compare_with_writes(self, access: AccessGroup) -> Mask:
        """Report accesses that are not ordered after earlier writes; return a mask of the earlier writes to keep.

        A new write does not supersede these last writes: they are unordered but not a race, or differ in strength.
        """
        if not access.shadow.writes.times[access.cells].any():
            return np.zeros(access.cells.shape, np.bool_)
        writes = self.last_writes(access)
        stays = wrong = self.unordered(access, writes, are_written=True)
        if wrong.any() and access.codes is not None:
            wrong = wrong & (self.differs(access) | (writes.entities < 0))
        if wrong.any():
            self.reporter.report(access, wrong, writes.entities, writes.natures)
        if access.nature & ASYNC_PROXY:
            self.check_fence(access, writes, wrong)
        self.compare(access, access.shadow.earlier_writes, needs_fence=bool(access.nature & ASYNC_PROXY))
        self.compare(access, access.shadow.agent_writes, needs_fence=bool(access.nature & ASYNC_PROXY))
        if access.writes and access.nature & STRONG:
            threads = np.repeat(access.threads, access.cells.shape[1])
            asked = writes.entities.reshape(-1), writes.lanes.reshape(-1), writes.times.reshape(-1)
            stays = self.ordering.missing_lanes(threads, *asked).reshape(wrong.shape) != 0
            stays |= (writes.natures ^ access.nature) & NATURE_BITS != 0
            stays &= writes.times > 0
        return stays & ~wrong

    def last_writes(self, access: AccessGroup) -> Accesses:
        """Return the last write of each cell."""
        writes = access.shadow.writes.at(access.cells)
        writes.firsts = writes.times
        return writes

    def compare_values(self, access: AccessGroup, others: Accesses, chosen: Mask) -> None:
        """Report unordered pairs of strong accesses that make the loaded or final value depend on timing.

        If a thread polled for a flag and has executed no fence since, its loads and its stores of loaded values are not
        judged. The PTX model does not order them, although programs rely on their order.
        """
        others.times = np.where(chosen & self.are_strong(access, others), others.times, 0)
        wrong = self.unordered(access._replace(nature=access.nature & ~STRONG), others)
        for row, cell in np.argwhere(wrong).tolist():
            thread, key = int(access.threads[row]), (int(access.entities[row]), int(access.cells[row, cell]))
            entity, time = int(others.entities[row, cell]), int(others.times[row, cell])
            may_excuse = not access.writes or key in self.flagged
            if may_excuse and self.ordering.has_loaded_flag(thread, entity, time):
                wrong[row, cell] = False
                self.flagged.add(key)
                self.collector.leave_out(NO_ACQUIRE)
            elif access.writes and self.has_waited(access, row, cell, time):
                wrong[row, cell] = False
                self.collector.leave_out(STORED_AFTER_WAIT)
        if wrong.any():
            self.reporter.report(access, wrong, others.entities, others.natures, kind="unordered")

    def has_waited(self, access: AccessGroup, row: int, cell: int, time: int) -> bool:
        """Return True if a thread stores to a word after its waiting loop has loaded the value stored at `time`."""
        reads = access.shadow.reads.slots.at((slice(None), access.cells[row, cell]))
        is_own = (reads.entities == access.entities[row]) & (reads.times > time)
        code = self.state.program.instructions
        return any(is_polled(code, at) for at in (reads.natures[is_own] >> INST_SHIFT).tolist())

    def compare_with_value_loads(self, access: AccessGroup, chosen: Mask) -> None:
        """Report strong stores and atomics whose values earlier, unordered loads might have returned."""
        for slot in access.shadow.reads.used:
            reads = access.shadow.reads.slots.at((slot, access.cells))
            is_value = np.isin(reads.natures >> INST_SHIFT, list(self.value_loads))
            self.compare_values(access, reads, is_value & chosen)

    def compare_stores(self, access: AccessGroup, chosen: Mask) -> None:
        """Report unordered strong stores and atomics of other warps that make the final value depend on timing."""
        writes = self.last_writes(access)
        if self.synchronizing:
            chosen = chosen & ~np.isin(writes.natures >> INST_SHIFT, list(self.synchronizing))
        self.compare_values(access, writes, chosen & (writes.entities // LANES != access.entities[:, None] // LANES))

    def differs(self, access: AccessGroup) -> Mask:
        """Return a mask of the cells whose bytes a store changes."""
        held = access.buffer[access.cells[..., None] * access.shadow.unit + np.arange(access.shadow.unit)]
        return (held != _cell_bytes(access)).any(axis=-1)

    def compare_with_reads(self, access: AccessGroup) -> None:
        """Report writes that are not ordered after earlier reads."""
        self.compare(access, access.shadow.reads)
        self.compare(access, access.shadow.agent_reads)

    def compare(self, access: AccessGroup, vectors: AccessVectors, *, needs_fence: bool = False) -> None:
        """Report accesses that are not ordered after those in `vectors`, or that lack a proxy fence."""
        if not len(vectors.slots.times):
            return
        times = vectors.slots.times[:, access.cells]
        is_own_block = access.buffer is self.state.memory.shared and self.state.launch.cluster_blocks == 1
        if is_own_block and vectors.width == LANES and not needs_fence:
            times = times * (times > self.ordering.floor[access.threads][:, None])
        for slot in np.nonzero(times.any(axis=(1, 2)))[0].tolist():
            others = vectors.slots.at((slot, access.cells))
            wrong = self.unordered(access, others, are_written=vectors is access.shadow.earlier_writes)
            is_same = (others.natures & SAME_BYTES != 0) & (not access.writes or access.codes is not None)
            if needs_fence:
                self.check_fence(access, others, wrong | is_same)
            if (wrong & is_same).any():
                wrong &= ~is_same | (access.codes is not None and self.differs(access))
            if wrong.any():
                self.reporter.report(access, wrong, others.entities, others.natures)
        self.compare_with_evicted(access, vectors.evicted, needs_fence=needs_fence)

    def compare_with_evicted(self, access: AccessGroup, evicted: Accesses, *, needs_fence: bool) -> None:
        """Mark the check as incomplete if an access may race with evicted accesses, or may lack a proxy fence."""
        if not evicted.times.shape[1]:
            return
        for row in range(1 if access.nature & STRONG and not needs_fence else 2):
            times, blocks = evicted.times[row, access.cells], evicted.entities[row, access.cells]
            late = times > 0
            if late.any() and not needs_fence:
                threads = np.broadcast_to(access.threads[:, None], times.shape)
                late[late] = ~self.ordering.knows_blocks(threads[late], blocks[late], times[late])
            if late.any():
                self.collector.leave_out("races: a word has more unordered accesses than are recorded")

    def unordered(self, access: AccessGroup, others: Accesses, *, are_written: bool = False) -> Mask:
        """Return a mask of accesses that are not ordered after `others`, unless both accesses are strong enough.

        Lanes that were added to a slot at different times have no exact time: an access that is ordered after only the
        first of them is not judged. Each entity in `others` is replaced by the first lane that is not ordered.
        """
        wrong = others.times > 0
        if access.nature & STRONG:
            wrong &= ~self.are_strong(access, others)
        at = np.nonzero(wrong)
        if not len(at[0]):
            return wrong
        threads, entities, lanes = access.threads[at[0]], others.entities[at], others.lanes[at]
        missing = self.ordering.missing_lanes(threads, entities, lanes, others.times[at])
        if are_written and self.state.launch.cluster_blocks > 1:
            missing |= np.where(self.ordering.is_wide(threads, entities, others.times[at]), np.uint32(0), lanes)
        inexact = np.nonzero((missing != 0) & (others.firsts[at] < others.times[at]))[0]
        if len(inexact):
            firsts = others.firsts[at][inexact]
            missing[inexact] = self.ordering.missing_lanes(threads[inexact], entities[inexact], lanes[inexact], firsts)
            if not missing[inexact].all():
                self.collector.leave_out("races: lanes of a warp access a word at different times")
        wrong[at] = missing != 0
        lowest = np.log2(np.maximum(missing & -missing, 1)).astype(np.int64)
        others.entities[at] = np.where((entities < 0) | (missing == 0), entities, entities // LANES * LANES + lowest)
        return wrong

    def are_strong(self, access: AccessGroup, others: Accesses) -> Mask:
        """Return a mask of the pairs of accesses that are morally strong (PTX ISA)."""
        entities, natures = others.entities, others.natures
        strong = (natures & STRONG != 0) & (entities >= 0) & (access.entities[:, None] >= 0)
        strong |= (
            (natures & ATOMIC != 0) & bool(access.nature & ATOMIC) & ((entities < 0) | (access.entities[:, None] < 0))
        )
        same_size = (natures ^ access.nature) >> SIZE_SHIFT & 7 == 0
        level = np.minimum(natures >> SCOPE_SHIFT & 3, access.nature >> SCOPE_SHIFT & 3)
        return strong & same_size & (level >= self.distance(access, entities))

    def distance(self, access: AccessGroup, entities: Numbers) -> Numbers:
        """Return the smallest scope that contains both accesses: block, cluster or GPU."""
        mine, others = access.entities[:, None] // self.ordering.per_block, entities // self.ordering.per_block
        grid, shape = self.state.launch.grid, self.state.launch.cluster
        far = np.where(_cluster_of(mine, grid, shape) == _cluster_of(others, grid, shape), CLUSTER, GPU)
        return np.where((mine == others) | (entities < 0), BLOCK, far)

    def check_fence(self, access: AccessGroup, writes: Accesses, wrong: Mask) -> None:
        """Report bytes that a thread wrote and that a copy or wgmma accesses without a proxy fence in between."""
        entities, natures, ordering = writes.entities, writes.natures, self.ordering
        generic = entities >= 0
        if self.async_stores:
            generic = generic | np.isin(natures >> INST_SHIFT, self.async_stores)
        plain = (writes.times > 0) & generic & (natures & ASYNC_PROXY == 0) & ~wrong
        if self.allocations:
            plain &= ~np.isin(natures >> INST_SHIFT, self.allocations)
        at = np.nonzero(plain & (ordering.columns(entities) >= 0))
        if not len(at[0]):
            return
        asked = access.threads[at[0]], entities[at], writes.lanes[at]
        missing = np.zeros_like(plain)
        first = np.where(writes.lanes & (writes.lanes - np.uint32(1)) == 0, writes.issued, writes.firsts)[at]
        missing[at] = ordering.missing_lanes(*asked, first, through_fence=True) != 0
        if missing.any():
            text = "there is no fence.proxy.async in between"
            self.reporter.report(access, missing, entities, natures, kind="fence", text=text)
        elif ordering.missing_lanes(*asked, writes.issued[at], through_fence=True).any():
            self.collector.leave_out(UNCERTAIN_FENCE)


def value_loads(program: Program) -> set[int]:
    """Return the indices of volatile and relaxed loads whose values reach memory, except in polling loops."""
    instructions = program.instructions
    loads = [at for at, inst in enumerate(instructions) if isinstance(inst.action, actions.MemoryLoad)]
    strong = [at for at in loads if strength_of(instructions[at]).is_strong]
    strong = [at for at in strong if not strength_of(instructions[at]).acquires and not is_polled(instructions, at)]
    stored: set[int] = set()  # registers whose values reach memory
    count = -1
    while strong and count < len(stored):
        count = len(stored)
        for inst in reversed(instructions):
            if isinstance(inst.action, STORES) or not stored.isdisjoint(indices_of(inst.results)):
                stored.update(indices_of((*inst.sources, *(copy.source for copy in inst.arguments))))
    return {at for at in strong if not stored.isdisjoint(indices_of(instructions[at].results))}


def is_polled(instructions: Sequence[DecodedInstruction], at: int) -> bool:
    """Return True if an instruction is in a loop without stores, that is, one that waits for other threads."""
    for end, inst in enumerate(instructions[at:], at):
        start = min(inst.targets, default=end) if isinstance(inst.action, actions.Branch) else end
        if start <= at < end:
            others = [inst for number, inst in enumerate(instructions[start:end], start) if number != at]
            return not any(isinstance(inst.action, STORES) for inst in others)
    return False


def is_tensor_allocation(inst: DecodedInstruction) -> bool:
    """Return True for tcgen05.alloc, which stores through a proxy that the manual does not name."""
    return isinstance(inst.action, actions.TensorThreadOp) and inst.action.spelling.op == "alloc"


def _cell_bytes(access: AccessGroup) -> Bytes:
    """Return the stored bytes of each cell, as [accesses, cells, bytes]."""
    data = np.ascontiguousarray(access.codes).view(np.uint8)
    return data.reshape(*access.cells.shape, access.shadow.unit)


def _cluster_of(blocks: Numbers, grid: tuple[int, int, int], shape: tuple[int, int, int]) -> Numbers:
    """Return the cluster number of each block."""
    x, y, _ = grid
    i, j, k = shape
    return blocks % x // i + x * (blocks // x % y // j + y * (blocks // (x * y) // k))
