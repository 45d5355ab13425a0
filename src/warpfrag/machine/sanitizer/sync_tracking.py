"""The strength of accesses and fences, and the synchronisation that orders threads.

This module implements the meaning of .relaxed, .acquire, .gpu and similar qualifiers (PTX ISA, Memory Consistency
Model). An access is strong if it is volatile, relaxed, acquire or release, or an atomic. Two strong accesses do not
race if the scope of each includes the other's thread, and they overlap completely.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from warpfrag.formats.arrays import Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.kernel_findings import FindingCollector
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.interpreter.wgmma_registers import groups_left, is_proxy_fence, is_wgmma
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.actions import Atomic, Barrier, ClusterBarrier, MemoryBarrier, NoOp, WarpWait
from warpfrag.machine.ir.program import DecodedInstruction
from warpfrag.machine.ir.scalar_types import B32
from warpfrag.machine.sanitizer.instruction_observer import InstructionObserver
from warpfrag.machine.sanitizer.ordering import BLOCK, CLUSTER, GPU, SCOPES, Agent, Ordering, Snapshot, SyncObject
from warpfrag.machine.sanitizer.race_reports import FIXES, RaceReporter

Owners = defaultdict[tuple[int, int], set[int]]

MEMORY_ORDERS = {"relaxed", "acquire", "release", "acq_rel", "volatile"}
MEMBAR_LEVELS = {"cta": BLOCK, "gl": GPU, "sys": GPU}


class Strength(NamedTuple):
    """The strength of an access: flags for strong, acquire and release, and the level of its scope."""

    is_strong: bool
    acquires: bool
    releases: bool
    level: int


WEAK = Strength(is_strong=False, acquires=False, releases=False, level=BLOCK)


def strength_of(inst: DecodedInstruction) -> Strength:
    """Return the strength of a load, a store or an atomic."""
    order = first_qualifier(inst, MEMORY_ORDERS, "")
    if not order and not isinstance(inst.action, Atomic):
        return WEAK
    level = SCOPES[first_qualifier(inst, SCOPES, "sys" if order == "volatile" else "gpu")]
    acquires, releases = order in {"acquire", "acq_rel"}, order in {"release", "acq_rel"}
    return Strength(is_strong=True, acquires=acquires, releases=releases, level=level)


def first_qualifier(inst: DecodedInstruction, known: Container[str], default: str) -> str:
    """Return an instruction's first qualifier that is in `known`, or the default."""
    return next((qualifier for qualifier in inst.name.split(".") if qualifier in known), default)


def fence_level(inst: DecodedInstruction) -> int | None:
    """Return the scope level of a memory fence, or None for any other instruction."""
    qualifiers = inst.name.split(".")
    if qualifiers[0] == "membar":
        return MEMBAR_LEVELS.get(qualifiers[1]) if len(qualifiers) > 1 else None
    if qualifiers[0] != "fence" or "proxy" in qualifiers or "mbarrier_init" in qualifiers:
        return None
    return SCOPES[first_qualifier(inst, SCOPES, "sys")]


def relaxed_level(inst: DecodedInstruction) -> int | None:
    """Return the scope level of a relaxed barrier arrival, or None if it releases."""
    qualifiers = inst.name.split(".")
    level = CLUSTER if "cluster" in qualifiers else BLOCK
    return level if "relaxed" in qualifiers else None


NO_INIT_FENCE = (
    "an asynchronous copy signals an mbarrier without fence.proxy.async or fence.mbarrier_init after mbarrier.init: the"
    " manual requires one, but Triton's kernels omit it"
)
"""The reason why a launch with a missing fence after mbarrier.init is not reported as clean."""


@dataclass
class BarrierInit:
    """The initialisation of an mbarrier: its thread, time and instruction; fence.mbarrier_init sets `is_fenced`."""

    thread: int
    time: int
    inst: int
    is_fenced: bool = False


@dataclass
class BarrierPhase:
    """A completed phase of a named barrier: its time, its line and the threads that waited."""

    time: int
    line: int
    threads: Numbers


class CopyGroups:
    """The committed groups of a thread's copies or a warp's wgmma, each with the time of its last instruction."""

    def __init__(self) -> None:
        """Create an empty record."""
        self.last: dict[int, int] = {}  # the last time in each owner's open group
        self.groups: dict[int, list[int]] = defaultdict(list)

    def issue(self, owner: int, time: int) -> None:
        """Record a copy or wgmma in the owner's open group."""
        self.last[owner] = time

    def commit(self, owner: int) -> None:
        """Close the owner's open group."""
        self.groups[owner].append(self.last.pop(owner, 0))

    def wait(self, owner: int, left: int) -> int:
        """Return the time up to which all work is complete after a wait that leaves at most `left` groups pending."""
        groups = self.groups[owner]
        done = groups[: len(groups) - left] if left < len(groups) else []
        return max(done, default=0)


class LockFollower:
    """Finds locks: words that one thread polls with an atomic and then changes before another thread polls them.

    Threads may acquire a lock in any order. A different order could change the result if an access in the program is
    outside the critical sections, or if no fence separates it from a relaxed atomic on the lock. The launch is then not
    judged.
    """

    def __init__(
        self, code: Sequence[DecodedInstruction], polled: set[int], owners: Owners, *, one_block: bool
    ) -> None:
        """Create the follower; `polled` are the indices of atomics in waiting loops, `owners` the threads by lock."""
        self.polled, self.owners = polled, owners
        # keyed by word and thread: True if the thread has changed the word
        self.words: dict[tuple[int, int], dict[int, bool]] = defaultdict(dict)
        events = "".join(lock_event(inst, is_polled=at in polled) for at, inst in enumerate(code)) if polled else ""
        # in a launch of one block, a barrier before or after all lock operations orders the accesses beyond it
        barriers = [at for at, inst in enumerate(code) if events and one_block and isinstance(inst.action, Barrier)]
        first = max((at for at in barriers if at < min(polled)), default=0)
        last = min((at for at in barriers if at > max(polled)), default=len(events))
        self.has_outside_access = bool(re.search("(^|[Gg])[.f]*[as]", events[first:last]))
        self.has_unfenced_access = not one_block and bool(re.search(r"T[.s]*a|[Tt][.saf]*a[.s]*G", events))

    def is_order_open(self, at: int, buffer: int, offsets: Numbers, threads: Numbers) -> bool:
        """Record strong accesses; return True if several threads took a lock that does not protect all accesses."""
        is_open = is_unfenced = False
        for offset, thread in zip(offsets.tolist(), threads.tolist(), strict=True):
            users = self.words[buffer, offset]
            if at in self.polled:
                is_open |= any(changed for other, changed in users.items() if other != thread)
                users.setdefault(thread, False)
            elif thread in users:
                users[thread] = True
                self.owners[buffer, offset].add(thread)
                is_unfenced |= self.has_unfenced_access and len(self.owners[buffer, offset]) > 1
        return is_unfenced or (is_open and self.has_outside_access)


def lock_event(inst: DecodedInstruction, *, is_polled: bool) -> str:
    """Return a letter for an instruction: (t)ake or (g)ive a lock, (f)ence, (s)hared or other (a)ccess, or a dot.

    T and G are relaxed atomics outside shared memory, which need a fence.
    """
    space = getattr(inst.action, "space", "")
    if isinstance(inst.action, Atomic):
        strength = strength_of(inst)
        letter = "t" if is_polled else "g"
        is_fenced = space == "shared" or (strength.acquires if is_polled else strength.releases)
        return letter if is_fenced else letter.upper()
    if isinstance(inst.action, actions.MemoryLoad | actions.MemoryStore):
        return "." if space in {"local", "param", "const"} else "s" if space == "shared" else "a"
    return "f" if fence_level(inst) == GPU else "."


class SyncFollower(InstructionObserver):
    """Tracks the synchronisation that orders the threads of a batch."""

    def __init__(
        self, state: WarpBatch, ordering: Ordering, reporter: RaceReporter, collector: FindingCollector
    ) -> None:
        """Create the tracker for a batch."""
        super().__init__(state, collector)
        self.ordering, self.reporter = ordering, reporter
        self.copies, self.bulk_copies, self.products = CopyGroups(), CopyGroups(), CopyGroups()
        # by agent: the time, instruction and thread of its last copy
        self.issued: dict[Agent, tuple[int, int, int]] = {}
        self.initialised: dict[int, BarrierInit] = {}  # keyed by mbarrier cell
        # by block, thread and column: the time and instruction of the last access to another block's shared memory, or
        # of a copy from its own that signals an mbarrier; the block must know of it before it exits
        self.remote: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.phases: dict[tuple[int, int], BarrierPhase] = {}  # the last phase of each named barrier

    def mbarrier_initialised(self, cell: int, thread: int) -> None:
        """Record mbarrier.init, so that later uses can be checked against it."""
        self.initialised[cell] = BarrierInit(thread, self.ordering.now, self.state.memory.inst)

    def check_initialised(self, cell: int, thread: int, *, by_async_proxy: bool = False) -> None:
        """Report uses of an mbarrier that are not ordered after its initialisation, or that lack a proxy fence."""
        init = self.initialised.get(cell)
        needs_fence = by_async_proxy and init is not None and not init.is_fenced
        if init is None or (init.thread == thread and not needs_fence):
            return
        asked = np.array([thread]), self.ordering.entities(np.array([init.thread])), np.array([init.time])
        threads, entity, _ = asked
        if self.ordering.knows(*asked, through_fence=needs_fence)[0]:
            return
        if needs_fence and self.ordering.knows(*asked)[0]:
            self.collector.leave_out(NO_INIT_FENCE)
            return
        kind = "lockstep" if thread // LANES == init.thread // LANES else "race"
        first = self.reporter.description(int(self.ordering.entities(threads)[0]), self.state.memory.inst, thread)
        second = self.reporter.description(int(entity[0]), init.inst, init.thread)
        address = 8 * cell % self.state.memory.shared_stride
        text = f"{first.operation} and {second.text} use the mbarrier at {address:#x}: nothing orders them"
        place: dict[str, Any] = {"stack": first.stack, "space": "shared", "address": address}
        self.report(kind, thread, text, line=first.line, other=second, fix=FIXES[kind], **place)

    def note_remote(self, offsets: Numbers, threads: Numbers) -> None:
        """Record accesses to other blocks' shared memory; these blocks must have started, and must not have exited."""
        if self.state.launch.cluster_blocks == 1:
            return
        blocks, at = offsets // self.state.memory.shared_stride, self.state.memory.inst
        columns = self.ordering.block_columns
        is_remote = blocks != threads // self.ordering.per_block
        for block, thread in zip(blocks[is_remote].tolist(), threads[is_remote].tolist(), strict=True):
            self.remote[block, thread, thread // self.ordering.share] = self.ordering.now, at
            if not self.ordering.known[thread, block * columns : (block + 1) * columns].any():
                text = "after the start of that block; expected barrier.cluster in between"
                self.report_remote(block, thread, at, text)

    def report_remote(self, block: int, thread: int, at: int, text: str) -> None:
        """Report an access to the shared memory of a block that may not have started, or may have exited."""
        inst, place = self.state.program.instructions[at], self.state.blocks[block]
        text = f"{inst.name} accesses the shared memory of block {place} in its cluster: nothing orders it {text}"
        self.report("race", thread, text, line=inst.line, space="shared")

    def finish(self) -> None:
        """Report copies that no thread has waited for, and accesses to blocks that may have exited."""
        for (block, thread, column), (time, at) in self.remote.items():
            first = block * self.ordering.per_block
            if not (self.ordering.known[first : first + self.ordering.per_block, column] >= time).any():
                text = "before the exit of that block; expected barrier.cluster before its threads exit"
                self.report_remote(block, thread, at, text)
        for name, (time, at, thread) in self.issued.items():
            if not (self.ordering.known[:, self.ordering.agents[name]] >= time).any():
                inst = self.state.program.instructions[at]
                text = f"{inst.name}: the block ends before any thread waits for it"
                self.report("async", thread, text, line=inst.line, space="shared")

    def barrier_arrived(self, block: int, number: int, warp: int, lanes: Mask) -> None:
        """Handle arrivals at a block barrier, by bar or barrier instructions."""
        sync = self.ordering.barriers.setdefault((block, number), SyncObject())
        threads, action = warp * LANES + np.nonzero(lanes)[0], self.inst.action
        self.check_phase(block, number, threads)
        if not (isinstance(action, Barrier) and action.waits):  # waiting threads are updated when the barrier completes
            self.ordering.arrive(sync, threads)

    def check_phase(self, block: int, number: int, threads: Numbers) -> None:
        """Report arrivals that are not ordered after the barrier's last phase, and so may complete that phase."""
        phase = self.phases.get((block, number))
        if phase is None:
            return
        known = self.ordering.known[threads[:, None], phase.threads // self.ordering.share] >= phase.time
        wrong = ~(known | (threads[:, None] == phase.threads)).any(axis=1)
        if not wrong.any():
            return
        name, line = self.inst.name, phase.line
        text = f"{name}: nothing orders this arrival at barrier {number} after its last phase (line {line}), "
        text += "so these threads may complete that phase; expected another barrier number"
        self.report_phase(int(threads[wrong.argmax()]), text)

    def report_phase(self, thread: int, text: str) -> None:
        """Report that unintended threads may complete a barrier."""
        self.report("barrier", thread, text)
        if "barriers" not in self.collector.checks:
            self.collector.leave_out(f"the code after line {self.state.line}: other threads may complete the barrier")

    def barrier_released(self, block: int, number: int, here: Mask) -> None:
        """Order the waiting threads after all arrivals of a completed barrier."""
        sync = self.ordering.barriers.pop((block, number), None)
        if sync is not None:
            threads = block * self.state.launch.warps * LANES + np.nonzero(here.reshape(-1))[0]
            snapshot = self.ordering.snapshot(threads)
            barrier = self.state.barriers.states[block, number]
            if barrier.expected:
                self.phases[block, number] = BarrierPhase(self.ordering.now, self.state.line, threads)
                count = int(here.any(axis=1).sum()) * LANES + barrier.arrived
                if count > barrier.expected:
                    text = f"barrier {number} waits for {barrier.expected} threads, but {count} arrive at once: any of "
                    self.report_phase(int(threads[-1]), text + "them may complete it; expected another barrier number")
            self.ordering.release_block(threads, snapshot if sync.current is None else snapshot.joined(sync.current))

    def cluster_completed(self, cluster: int) -> None:
        """Handle barrier.cluster: order waiting threads now, and the others when they wait."""
        sync = self.ordering.clusters.setdefault(cluster, SyncObject())
        self.ordering.complete(sync)
        size = self.state.cluster_barriers.size * LANES
        own = {cell for cell, init in self.initialised.items() if init.is_fenced and init.thread // size == cluster}
        for cell in own:
            del self.initialised[cell]  # the whole cluster sees the initialisation, even if the arrival is relaxed
        waiting = np.nonzero(self.state.cluster_barriers.waiting.reshape(-1))[0]
        mine = waiting[waiting // size == cluster]
        if sync.completed is not None and len(mine):
            self.ordering.learn(mine, sync.completed)
            self.ordering.widen(mine, releases=False, acquires=True)

    def mbarrier_arrived(self, cell: int, thread: int) -> None:
        """Handle mbarrier.arrive, which releases; its cp.async form also covers the thread's copies."""
        self.check_initialised(cell, thread)
        self.note_remote(np.array([8 * cell]), np.array([thread]))
        action = self.inst.action
        if not isinstance(action, MemoryBarrier) or action.name not in {"arrive", "arrive_drop", "copies"}:
            return
        sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
        column = self.ordering.agent(("cp.async", thread)) if action.name == "copies" else None
        level = relaxed_level(self.inst)
        self.ordering.arrive(sync, np.array([thread]), level)
        self.ordering.widen(np.array([thread]), releases=level is None and self.is_wide(), acquires=False)
        if column is not None and sync.current is not None:
            sync.current = self.with_agent(sync.current, column)

    def with_agent(self, snapshot: Snapshot | None, column: int, *, fences: bool = True) -> Snapshot:
        """Return a snapshot that includes an agent's work; with `fences`, its completion counts as a proxy fence."""
        width = self.ordering.known.shape[1]
        row, fenced = np.zeros(width, np.int32), np.zeros(self.ordering.fenced.shape[1], np.int32)
        row[column] = self.ordering.now
        fenced[column:][:fences] = self.ordering.now
        own = Snapshot(self.ordering.blocks, row, fenced, {})
        return own if snapshot is None else snapshot.joined(own)

    def tensor_committed(self, cells: list[int], thread: int) -> None:
        """Handle tcgen05.commit, which covers the copies that its thread has waited for, but no other accesses."""
        known = self.ordering.snapshot(np.array([thread]))
        row, fenced = known.row.copy(), known.fenced.copy()
        row[: self.ordering.own_columns] = fenced[: self.ordering.own_columns] = 0
        own = Snapshot(self.ordering.blocks, row, fenced, {})
        for cell in cells:
            sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
            sync.current = own if sync.current is None else sync.current.joined(own)

    def mbarrier_completed(self, cell: int) -> None:
        """Handle the end of a phase, which completes the copies that the phase counted."""
        sync = self.ordering.mbarriers.setdefault(cell, SyncObject())
        for name in ("mbarrier", "mbarrier read", "st.async"):
            if (column := self.ordering.agents.get((name, cell))) is not None:
                sync.current = self.with_agent(sync.current, column, fences=name != "st.async")
        self.ordering.complete(sync)

    def mbarrier_waited(self, cells: Numbers, threads: Numbers) -> None:
        """Handle mbarrier.test_wait and try_wait, which acquire; a relaxed wait acquires at the thread's next fence.

        The phase may count arrivals and copies of the whole cluster, so that fence needs cluster scope or wider.
        """
        for cell, thread in zip(cells.tolist(), threads.tolist(), strict=True):
            self.check_initialised(cell, thread)
        learn = self.ordering.learn_at_fence if "relaxed" in self.inst.name.split(".") else self.ordering.learn
        for cell in np.unique(cells).tolist():
            sync = self.ordering.mbarriers.get(cell)
            if sync is not None and sync.completed is not None:
                learn(threads[cells == cell], sync.completed)
        self.ordering.widen(threads, releases=False, acquires=learn == self.ordering.learn and self.is_wide())

    def is_wide(self) -> bool:
        """Return True if the scope of an mbarrier instruction is wider than a block."""
        return SCOPES[first_qualifier(self.inst, SCOPES, "cta")] > BLOCK

    # --- instructions

    def before(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Record the arrivals that an instruction may complete, before it runs."""
        action = inst.action
        if isinstance(action, ClusterBarrier) and not action.waits:
            for sync, threads in self.by_cluster(self.threads_of(group)):
                self.ordering.arrive(sync, threads, relaxed_level(inst))
                self.ordering.widen(threads, releases=relaxed_level(inst) is None, acquires=False)
        if is_wgmma(inst):
            for warp in group.active_rows.tolist():
                self.products.issue(warp, self.ordering.now)

    def after(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Record the order that an instruction establishes, after it has run."""
        action = inst.action
        if isinstance(action, WarpWait):
            self.sync_lanes(inst, group)
        elif isinstance(action, ClusterBarrier) and action.waits:
            threads = self.threads_of(group)
            threads = threads[~self.state.cluster_barriers.waiting.reshape(-1)[threads]]
            for sync, own in self.by_cluster(threads):
                if sync.completed is not None:
                    self.ordering.learn(own, sync.completed)
                    self.ordering.widen(own, releases=False, acquires=True)
        elif isinstance(action, NoOp):
            self.fence_or_wait(inst, group)

    def by_cluster(self, threads: Numbers) -> Iterator[tuple[SyncObject, Numbers]]:
        """Yield the barrier of each cluster, with the cluster's threads."""
        clusters = threads // (self.state.cluster_barriers.size * LANES)
        for cluster in np.unique(clusters).tolist():
            yield self.ordering.clusters.setdefault(cluster, SyncObject()), threads[clusters == cluster]

    def threads_of(self, group: LaneGroup) -> Numbers:
        """Return the threads of a lane group, numbered in the batch."""
        return group.pick(self.state.lane_number).astype(np.int64)

    def sync_lanes(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle bar.warp.sync, which orders lanes that name each other in their masks."""
        whole = group.mask.all(axis=1)
        if whole.any():
            self.ordering.sync_warps(group.warp_rows[whole].astype(np.int64))
        if whole.all():
            return
        members = group.read(inst.sources[-1], B32)
        for row in np.nonzero(~whole & group.mask.any(axis=1))[0].tolist():
            for mask in np.unique(members[row][group.mask[row]]).tolist():
                lanes = np.nonzero(group.mask[row] & (members[row] == mask))[0]
                self.ordering.sync_lanes(int(group.warp_rows[row]) * LANES + lanes)

    def warp_synced(self, warp: int, lanes: Mask) -> None:
        """Order lanes that were released from different bar.warp.sync instructions together."""
        self.ordering.sync_lanes(warp * LANES + np.nonzero(lanes)[0])

    def fence_or_wait(self, inst: DecodedInstruction, group: LaneGroup) -> None:
        """Handle fences, and waits for groups of copies and wgmma."""
        qualifiers = inst.name.split(".")
        if qualifiers[0] in {"fence", "membar"}:
            threads = self.threads_of(group)
            if is_proxy_fence(inst):
                self.ordering.fence_proxy(threads)
            if "mbarrier_init" in qualifiers:
                own = set(threads.tolist())
                for barrier in self.initialised.values():
                    barrier.is_fenced |= barrier.thread in own
            if (level := fence_level(inst)) is not None:
                self.ordering.fence(threads, level, is_sc=qualifiers[0] == "membar" or "sc" in qualifiers)
        elif qualifiers[0] == "wgmma":
            self.group_of_products(inst, group, qualifiers)
        elif qualifiers[:2] == ["cp", "async"]:
            self.group_of_copies(inst, self.threads_of(group).tolist(), qualifiers)

    def group_of_products(self, inst: DecodedInstruction, group: LaneGroup, qualifiers: list[str]) -> None:
        """Handle wgmma.commit_group and wgmma.wait_group, warp by warp."""
        for warp in group.active_rows.tolist():
            if "commit_group" in qualifiers:
                self.products.commit(warp)
            elif "wait_group" in qualifiers and (done := self.products.wait(warp, groups_left(inst))):
                column = self.ordering.agent(("wgmma", warp - int(self.state.warp_index[warp]) % 4))
                self.ordering.learn_of_agent(np.arange(warp * LANES, (warp + 1) * LANES), column, done)

    def group_of_copies(self, inst: DecodedInstruction, threads: list[int], qualifiers: list[str]) -> None:
        """Handle cp.async and cp.async.bulk groups, thread by thread."""
        groups = self.bulk_copies if "bulk" in qualifiers else self.copies
        if "commit_group" in qualifiers or "wait_all" in qualifiers:
            for thread in threads:
                groups.commit(thread)
        if "wait_group" not in qualifiers and "wait_all" not in qualifiers:
            return
        bulk_names = ("bulk read",) if "read" in qualifiers else ("bulk read", "bulk")
        names = ("cp.async",) if groups is self.copies else bulk_names
        for thread in threads:
            done = groups.wait(thread, 0 if "wait_all" in qualifiers else groups_left(inst))
            for name in names if done else ():
                if (name, thread) in self.ordering.agents:
                    self.ordering.learn_of_agent(np.array([thread]), self.ordering.agents[name, thread], done)
