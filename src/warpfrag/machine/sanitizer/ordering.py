"""The order of accesses: happens-before as in the PTX memory model, computed with vector clocks.

Time is the number of instructions executed so far, and is the same for all threads. Thread u is ordered after
everything that entity e did up to time `known[u, e]`: an access by e at time c happens before the next access by u if
`known[u, e] >= c`. Entities are the threads of the batch, and agents, which work for a thread while it continues (the
cp.async and bulk groups of a thread, the copies that an mbarrier counts, the wgmma of a warpgroup). A thread learns by
taking the element-wise maximum of its row and others:

    barriers             all waiting lanes get the rows of all lanes that arrived
    bar.warp.sync        the lanes of the mask get each other's; shfl.sync, mma.sync and others order nothing
    mbarriers            a thread that sees a phase end gets the rows of its arrivals, and the copies it counted
    release, acquire     a strong store or atomic leaves a message at its address: the thread's row if it releases, the
                         row at its last fence if it is relaxed; a strong load takes it, at once if it acquires, else at
                         the thread's next fence. Atomics pass messages on.
    fence.sc, membar     two of them are ordered if a load before the second returns the value of a store after the
                         first, whichever threads run them: this suffices for a reduction that the last block finishes

Scopes are levels: block, cluster, GPU. A message counts if the scopes of both sides, and of their fences, reach the
other side's block. `fenced` is the part of `known` with a proxy fence on the path: a thread's write must be in it
before a copy of the async proxy or a wgmma reads the bytes.

If too many blocks run at once for a matrix of all threads, one column represents a whole warp, and its lanes share
their knowledge and accesses: order between the lanes of a warp is then not judged.

Blocks that ended in an earlier wave are not in the matrix: knowledge about them is kept by block (`Snapshot.past`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers, Words
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.warp_state import WarpState

Times = NDArray[np.int32]
Past = dict[int, Times]
Known = TypeVar("Known")
Agent = tuple[str, int]  # an asynchronous operation's category, and its thread, warp or mbarrier

BLOCK, CLUSTER, GPU = 0, 1, 2
SCOPES = {"cta": BLOCK, "cluster": CLUSTER, "gpu": GPU, "sys": GPU}
NOWHERE = -1
MAX_MESSAGES = 6  # maximum number of messages per address, from different blocks
AGENT_CHUNK = 64  # the number of columns that are added at once
LANE_BITS = np.uint32(1) << np.arange(LANES, dtype=np.uint32)
MAX_THREADS_APART = 9216  # threads per batch; above this limit, the lanes of a warp share a column


@dataclass
class Snapshot:
    """A thread's knowledge at one time: its rows of `known` and `fenced`, and its knowledge of earlier batches."""

    batch: tuple[int, ...]  # the blocks of the batch, numbered by their index in the grid
    row: Times
    fenced: Times
    past: Past
    sc: ScFences | None = None

    def joined(self, other: Snapshot) -> Snapshot:
        """Return the merged knowledge of two snapshots from one batch."""
        return Snapshot(
            self.batch, _longest(self.row, other.row), _longest(self.fenced, other.fenced),
            merge_pasts(self.past, other.past), merge_fences(self.sc, other.sc),
        )  # fmt: skip


@dataclass(frozen=True)
class ScFences:
    """A thread's knowledge from fence.sc: gained at earlier fences (`done`), or to be gained at the next (`promised`).

    In the order of these fences, a fence.sc before a strong write precedes any fence.sc after a load of the written
    value: otherwise, the load would precede the write.
    """

    done: Snapshot | None = None
    promised: Snapshot | None = None


@dataclass
class Message:
    """A message from a strong store or atomic to threads that load its value: a snapshot and a scope."""

    level: int
    block: int
    cluster: int
    snapshot: Snapshot
    is_promise: bool = False  # True if only a fence.sc receives the message


@dataclass
class SyncObject:
    """A barrier in use: the knowledge of arrivals in the current phase, and of all completed phases."""

    current: Snapshot | None = None
    completed: Snapshot | None = None


@dataclass
class LaunchOrder:
    """The state that all batches of a launch share: the time, messages in global memory, and the owners of locks."""

    now: int = 0
    lock_owners: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    messages: dict[tuple[int, int], list[Message]] = field(default_factory=dict)


class Ordering:
    """The vector clocks of a batch."""

    def __init__(self, state: WarpState, launch: LaunchOrder, numbers: list[int], *, has_proxies: bool) -> None:
        """Create clocks for threads that are not ordered yet; `has_proxies` is False without copies and wgmma."""
        self.state, self.launch = state, launch
        self.threads = state.warps * LANES
        self.per_block = state.launch.warps * LANES
        self.blocks = tuple(numbers)
        self.number_order = np.argsort(np.array(numbers, np.int64))
        self.numbers = np.array(numbers, np.int64)[self.number_order]
        self.is_contiguous = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        self.share = 1 if self.threads <= MAX_THREADS_APART else LANES  # threads per column
        self.own_columns, self.block_columns = self.threads // self.share, self.per_block // self.share
        self.known: Times = np.zeros((self.threads, self.own_columns), np.int32)
        self.fenced: Times = np.zeros((self.threads, self.own_columns if has_proxies else 0), np.int32)
        self.grid_blocks = np.repeat(np.array(numbers, np.int64), self.per_block)  # the block of each thread
        # each thread is ordered after its whole block up to this time
        self.floor: Times = np.zeros(self.threads, np.int32)
        # the time of each block's last release and acquire with cluster scope or wider
        self.wide_releases, self.wide_acquires = np.zeros((2, len(numbers)), np.int32)
        self.agents: dict[Agent, int] = {}  # the column of each agent
        self.agent_names: list[Agent] = []
        self.pasts: list[Past] = [{}] * self.threads
        self.sc_fences: list[ScFences | None] = [None] * self.threads
        self.has_past = self.has_sc = False  # True if any thread knows of ended blocks, or of fence.sc
        self.released: dict[int, Times] = {}  # by fence level: each thread's row at its last fence
        self.released_fenced: dict[int, Times] = {}
        self.released_past: dict[tuple[int, int], Past] = {}
        self.has_released: dict[int, Mask] = {}
        self.pending: dict[tuple[int, int], dict[int, Snapshot]] = {}  # by thread and level: received, not yet fenced
        self.barriers: dict[tuple[int, int], SyncObject] = {}
        self.clusters: dict[int, SyncObject] = {}
        self.mbarriers: dict[int, SyncObject] = {}
        self.shared_messages: dict[tuple[int, int], list[Message]] = {}

    # --- entities

    @property
    def now(self) -> int:
        """The current time: the number of executed instructions."""
        return self.launch.now

    def entities(self, threads: Numbers) -> Numbers:
        """Return the entities of threads: their numbers in the grid."""
        return self.grid_blocks[threads] * self.per_block + threads % self.per_block

    def agent(self, name: Agent) -> int:
        """Return the column of an agent, adding one if necessary."""
        column = self.agents.get(name)
        if column is None:
            column = self.agents[name] = self.own_columns + len(self.agent_names)
            self.agent_names.append(name)
            if column >= self.known.shape[1]:
                more = np.zeros((self.threads, AGENT_CHUNK), np.int32)
                self.known = np.concatenate([self.known, more], axis=1)
                if self.fenced.shape[1]:
                    self.fenced = np.concatenate([self.fenced, more], axis=1)
        return column

    def agent_entity(self, column: int) -> int:
        """Return the entity that represents an agent in shadow memory, which is negative and unique across batches."""
        return -1 - (column - self.own_columns) - (self.blocks[0] << 24)

    def columns(self, entities: Numbers) -> Numbers:
        """Return the columns of entities, or -1 for entities from an earlier batch."""
        if self.is_contiguous:
            threads = entities - self.numbers[0] * self.per_block
            inside = (threads >= 0) & (threads < self.threads)
        else:
            blocks = entities // self.per_block
            at = np.searchsorted(self.numbers, blocks).clip(max=len(self.numbers) - 1)
            inside = (self.numbers[at] == blocks) & (entities >= 0)
            threads = self.number_order[at] * self.per_block + entities % self.per_block
        if inside.all():
            return threads // self.share if self.share > 1 else threads
        result = np.where(inside, threads // self.share, -1)
        if (entities < 0).any():
            batch, agent = -1 - entities >> 24, (-1 - entities) & 0xFFFFFF
            own = (entities < 0) & (batch == self.blocks[0])
            result = np.where(own, self.own_columns + agent, result)
        return result

    # --- queries

    def knows(
        self, threads: Numbers, entities: Numbers, times: Times | Numbers, *, through_fence: bool = False
    ) -> Mask:
        """Return a mask of the accesses (entity, time) that are ordered before the corresponding threads."""
        columns = self.columns(entities)
        table = self.fenced if through_fence else self.known
        result = table[threads, columns] >= times
        if not through_fence:
            result |= columns == threads // self.share
        past = columns < 0
        if past.any():
            asked = zip(threads[past].tolist(), entities[past].tolist(), times[past].tolist(), strict=True)
            result[past] = [self._knows_past(self.pasts[thread], entity, time) for thread, entity, time in asked]
        return result

    def missing_lanes(
        self, threads: Numbers, entities: Numbers, lanes: Words, times: Times, *, through_fence: bool = False
    ) -> Words:
        """Return the lanes of each warp's access, or 1 for an agent's, that are not ordered before the thread."""
        result = np.zeros(len(threads), np.uint32)
        is_far = entities // self.per_block != self.grid_blocks[threads]
        late = np.nonzero(is_far | (times > self.floor[threads]) | through_fence)[0]
        if not len(late):
            return result
        threads, entities, lanes, times = threads[late], entities[late], lanes[late], times[late]
        missing = np.where(self.knows(threads, entities, times, through_fence=through_fence), np.uint32(0), lanes)
        several = np.nonzero(lanes & (lanes - np.uint32(1)) if self.share == 1 else lanes[:0])[0]
        if len(several):
            warps = entities[several, None] // LANES * LANES + np.arange(LANES)
            asked = np.broadcast_arrays(threads[several, None], warps, times[several, None])
            known = self.knows(*asked, through_fence=through_fence)
            missing[several] = lanes[several] & ~np.bitwise_or.reduce(np.where(known, LANE_BITS, 0), axis=1)
        result[late] = missing
        return result

    def knows_blocks(self, threads: Numbers, blocks: Numbers, times: Times) -> Mask:
        """Return a mask of the threads that are ordered after everything a block's threads did up to a time."""
        first = np.where(blocks < 0, -1, self.columns(np.maximum(blocks, 0) * self.per_block))
        own, which = np.unique(threads, return_inverse=True)
        rows = self.known[own, : self.own_columns]
        rows[np.arange(len(own)), own // self.share] = self.now
        by_block = rows.reshape(len(own), -1, self.block_columns).min(axis=2)
        return (first >= 0) & (by_block[which, np.maximum(first, 0) // self.block_columns] >= times)

    def has_loaded_flag(self, thread: int, entity: int, time: int) -> bool:
        """Return True if a thread loaded a value released after an access, but has executed no fence since."""
        column = int(self.columns(np.array([entity]))[0])
        received = [
            self.localised(each) for (own, _), items in self.pending.items() if own == thread for each in items.values()
        ]
        if column < 0:
            return any(self._knows_past(snapshot.past, entity, time) for snapshot in received)
        return any(column < len(each.row) and int(each.row[column]) >= time for each in received)

    def _knows_past(self, past: Past, entity: int, time: int) -> bool:
        """Return True if the knowledge about earlier batches includes an access by one of their entities."""
        if entity < 0:  # an agent ends when its thread's block ends
            times = past.get((-1 - entity) >> 24)
            return times is not None and int(times.max()) >= time
        times = past.get(entity // self.per_block)
        return times is not None and int(times[entity % self.per_block // self.share]) >= time

    # --- updates

    def touch(self, threads: Numbers) -> None:
        """Set each thread's entry for itself to the current time, before other threads receive the entry."""
        self.known[threads, threads // self.share] = self.now

    def snapshot(self, threads: Numbers) -> Snapshot:
        """Return the merged knowledge that the given threads have now."""
        self.touch(threads)
        past: Past = {}
        sc: ScFences | None = None
        numbers = threads.tolist() if self.has_past or self.has_sc else ()
        for known in {id(own): own for own in (self.pasts[thread] for thread in numbers)}.values():
            past = merge_pasts(past, known)
        for fences in {id(own): own for own in (self.sc_fences[thread] for thread in numbers)}.values():
            sc = merge_fences(sc, fences)
        return Snapshot(self.blocks, self.known[threads].max(axis=0), self.fenced[threads].max(axis=0), past, sc)

    def learn(self, threads: Numbers, snapshot: Snapshot) -> None:
        """Order the threads' later accesses after everything in a snapshot."""
        snapshot = self.localised(snapshot)
        past = snapshot.past
        if len(snapshot.row):
            width = len(snapshot.row)
            self.known[threads, :width] = np.maximum(self.known[threads, :width], snapshot.row)
            width = len(snapshot.fenced)
            if width:
                self.fenced[threads, :width] = np.maximum(self.fenced[threads, :width], snapshot.fenced)
        if snapshot.sc is not None:
            self.has_sc = True
            merge_each(self.sc_fences, threads, snapshot.sc, merge_fences)
        if past:
            self.has_past = True
            merge_each(self.pasts, threads, past, merge_pasts)

    def localised(self, snapshot: Snapshot) -> Snapshot:
        """Convert a snapshot from an earlier batch, whose blocks have all ended, to this batch."""
        if snapshot.batch is self.blocks:
            return snapshot
        columns = self.block_columns
        rows = snapshot.row[: len(snapshot.batch) * columns].reshape(-1, columns)
        own = dict(zip(snapshot.batch, rows, strict=True))
        nothing = np.zeros(0, np.int32)
        sc = snapshot.sc and ScFences(
            *(part and self.localised(part) for part in (snapshot.sc.done, snapshot.sc.promised))
        )
        return Snapshot(self.blocks, nothing, nothing, merge_pasts(snapshot.past, own), sc)

    def learn_of_agent(self, threads: Numbers, column: int, time: int) -> None:
        """Order threads after everything that an agent did up to a time; its completion is also a proxy fence."""
        for table in (self.known, self.fenced):
            if column < table.shape[1]:
                table[threads, column] = np.maximum(table[threads, column], time)

    def sync_lanes(self, threads: Numbers) -> None:
        """Handle bar.warp.sync: merge the knowledge of the named lanes of a warp.

        Afterwards, the lanes share one object for their past and one for their fence.sc knowledge, so that merging the
        same lanes again takes no time.
        """
        snapshot = self.snapshot(threads)
        self.known[threads], self.fenced[threads] = snapshot.row, snapshot.fenced
        for thread in threads.tolist():
            self.pasts[thread], self.sc_fences[thread] = snapshot.past, snapshot.sc

    def sync_warps(self, warps: Numbers) -> None:
        """Handle bar.warp.sync: merge the knowledge of all lanes in each warp."""
        threads = (warps[:, None] * LANES + np.arange(LANES)).reshape(-1)
        self.touch(threads)
        for table in (self.known, self.fenced):
            if not table.shape[1]:
                continue
            rows = table[threads].reshape(len(warps), LANES, -1)
            table[threads] = np.repeat(rows.max(axis=1), LANES, axis=0)
        if self.has_past or self.has_sc:
            for warp in warps.tolist():
                self.sync_lanes(np.arange(warp * LANES, (warp + 1) * LANES))

    def release_block(self, threads: Numbers, snapshot: Snapshot) -> None:
        """Order threads of a block after a barrier of the block."""
        self.learn(threads, snapshot)
        first = int(threads[0]) // self.per_block * self.per_block
        last = first + self.state.launch.threads - 1
        self.floor[threads] = snapshot.row[first // self.share : last // self.share + 1].min()

    def arrive(self, sync: SyncObject, threads: Numbers, relaxed_at: int | None = None) -> None:
        """Record arrivals at a barrier; a relaxed arrival releases what was known at its thread's last fence.

        It also shows that the threads have started, that is, it releases their accesses up to time 1.
        """
        mine = self.snapshot(threads) if relaxed_at is None else self.released_snapshot(threads, relaxed_at)
        row = np.zeros(self.own_columns, np.int32)
        row[threads // self.share] = 1
        started = Snapshot(self.blocks, row, row[:0], {})
        mine = started if mine is None else mine.joined(started)
        sync.current = mine if sync.current is None else sync.current.joined(mine)

    def complete(self, sync: SyncObject) -> None:
        """Record the end of a barrier phase."""
        if sync.current is not None:
            sync.completed = sync.current if sync.completed is None else sync.completed.joined(sync.current)
        sync.current = None

    # --- fences

    def fence(self, threads: Numbers, level: int, *, is_sc: bool = False) -> None:
        """Handle fence and membar: later stores carry what the threads know now, and loaded messages are received."""
        is_sc = is_sc and level == GPU
        for thread in threads.tolist() if is_sc else ():
            fences = self.sc_fences[thread]
            if fences is not None and fences.promised is not None:
                self.learn(np.array([thread]), fences.promised)
        if self.pending:
            for thread in threads.tolist():
                for reached in range(level + 1):
                    for snapshot in self.pending.pop((thread, reached), {}).values():
                        self.learn(np.array([thread]), snapshot)
        self.touch(threads)
        if level > BLOCK:
            self.widen(threads, releases=True, acquires=True)
        for reached in range(level + 1):
            if reached not in self.released or self.released[reached].shape != self.known.shape:
                self._grow_released(reached)
            self.released[reached][threads] = self.known[threads]
            self.released_fenced[reached][threads] = self.fenced[threads]
            self.has_released[reached][threads] = True
            for thread in threads.tolist() if self.has_past else ():
                self.released_past[reached, thread] = self.pasts[thread]
        for thread in threads.tolist() if is_sc else ():
            row, fenced = self.known[thread].copy(), self.fenced[thread].copy()
            self.sc_fences[thread] = ScFences(Snapshot(self.blocks, row, fenced, self.pasts[thread]))
            self.has_sc = True

    def widen(self, threads: Numbers, *, releases: bool, acquires: bool) -> None:
        """Record that threads release or acquire with cluster scope or wider."""
        for times in [self.wide_releases] * releases + [self.wide_acquires] * acquires:
            times[threads // self.per_block] = self.now

    def is_wide(self, threads: Numbers, entities: Numbers, times: Times) -> Mask:
        """Return a mask: False for accesses by other blocks that are not released and acquired with a wide scope."""
        blocks, columns = threads // self.per_block, self.columns(entities)
        others = columns // self.block_columns
        done = np.minimum(self.wide_releases[others.clip(0, len(self.numbers) - 1)], self.wide_acquires[blocks])
        return (entities < 0) | (columns < 0) | (blocks == others) | (done >= times)

    def last_fences(self, threads: Numbers) -> Times:
        """Return the time of each thread's last fence, or 0."""
        columns = threads // self.share
        return np.max([table[threads, columns] for table in self.released.values()], axis=0)

    def released_snapshot(self, threads: Numbers, level: int) -> Snapshot | None:
        """Return the merged knowledge of the threads at their last fences of level `level` or wider, or None."""
        if level not in self.has_released:
            return None
        threads = threads[self.has_released[level][threads]]
        past: Past = {}
        for thread in threads.tolist() if self.has_past else ():
            past = merge_pasts(past, self.released_past.get((level, thread), {}))
        if not len(threads):
            return None
        known, fenced = (table[level][threads].max(axis=0) for table in (self.released, self.released_fenced))
        return Snapshot(self.blocks, known, fenced, past)

    def _grow_released(self, level: int) -> None:
        """Extend the rows recorded at fences to the current width of the threads' rows."""
        for tables in (self.released, self.released_fenced):
            new = np.zeros_like(self.known if tables is self.released else self.fenced)
            if level in tables:
                new[:, : tables[level].shape[1]] = tables[level]
            tables[level] = new
        self.has_released.setdefault(level, np.zeros(self.threads, np.bool_))

    def fence_proxy(self, threads: Numbers) -> None:
        """Handle fence.proxy.async: make what the threads know visible to the async proxy."""
        self.touch(threads)
        if self.fenced.shape[1]:
            self.fenced[threads] = self.known[threads]

    # --- messages

    def place_of(self, thread: int) -> tuple[int, int]:
        """Return the numbers in the grid of a thread's block and of the first block in its cluster."""
        at = thread // self.per_block
        size = self.state.launch.cluster_blocks
        return self.blocks[at], self.blocks[at // size * size]

    def table_of(self, buffer: Bytes) -> dict[tuple[int, int], list[Message]]:
        """Return the messages in a buffer by offset; those in shared memory end with the batch."""
        return self.shared_messages if buffer is self.state.memory.shared else self.launch.messages

    def send(self, buffer: Bytes, offset: int, thread: int, level: int, *, releases: bool, passes_on: bool) -> None:
        """Leave a message at an address: the thread's knowledge now if it releases, otherwise at its last fence.

        A store replaces the messages of other threads; an atomic passes them on.
        """
        table, key = self.table_of(buffer), (id(buffer), offset)
        if not passes_on:
            table.pop(key, None)
        place, own = self.place_of(thread), np.array([thread])
        if releases:
            self.widen(own, releases=level > BLOCK, acquires=False)
        levels = [level] if releases else range(level, -1, -1)
        sent = [(each, self.snapshot(own) if releases else self.released_snapshot(own, each)) for each in levels]
        news = [Message(each, *place, snapshot) for each, snapshot in sent if snapshot is not None]
        fences = self.sc_fences[thread]
        if fences is not None and fences.done is not None:
            news.append(Message(level, *place, fences.done, is_promise=True))
        for message in news:
            self.leave(table.setdefault(key, []), message)

    def leave(self, messages: list[Message], new: Message) -> None:
        """Add a message to an address, merging it with the message of the same level and block.

        If there are too many, GPU-scope messages are merged into one without a block, which narrower accesses ignore.
        """
        if new.level == GPU and len(messages) >= MAX_MESSAGES:
            new = Message(GPU, NOWHERE, NOWHERE, new.snapshot, new.is_promise)
        for at, message in enumerate(messages):
            if (message.is_promise, message.level, message.block) == (new.is_promise, new.level, new.block):
                snapshot = self.localised(message.snapshot).joined(new.snapshot)
                messages[at] = Message(new.level, new.block, new.cluster, snapshot, new.is_promise)
                return
        messages.append(new)

    def receive(self, buffer: Bytes, offset: int, thread: int, level: int, *, acquires: bool) -> None:
        """Receive the messages at an address: now if the load acquires, otherwise at the next fence."""
        messages = self.table_of(buffer).get((id(buffer), offset))
        if not messages:
            return
        block, cluster = self.place_of(thread)
        for message in messages:
            needed = BLOCK if message.block == block else CLUSTER if message.cluster == cluster else GPU
            if message.level < needed or level < needed:
                continue
            if message.is_promise:
                promise = ScFences(promised=self.localised(message.snapshot))
                self.sc_fences[thread] = merge_fences(self.sc_fences[thread], promise)
                self.has_sc = True
            elif acquires:
                self.widen(np.array([thread]), releases=False, acquires=level > BLOCK)
                self.learn(np.array([thread]), message.snapshot)
            else:
                self.learn_at_fence(np.array([thread]), message.snapshot, needed)

    def learn_at_fence(self, threads: Numbers, snapshot: Snapshot, level: int = CLUSTER) -> None:
        """Order threads after a snapshot once they execute a fence of level `level` or wider."""
        for thread in threads.tolist():
            self.pending.setdefault((thread, level), {})[id(snapshot)] = snapshot


def merge_each(table: list[Known], threads: Numbers, new: Known, merge: Callable[[Known, Known], Known]) -> None:
    """Merge new knowledge with that of each thread; threads that share an object still share one afterwards."""
    merged: dict[int, Known] = {}
    for thread in threads.tolist():
        mine = table[thread]
        if id(mine) not in merged:
            merged[id(mine)] = merge(mine, new)
        table[thread] = merged[id(mine)]


def merge_fences(first: ScFences | None, second: ScFences | None) -> ScFences | None:
    """Merge the fence.sc knowledge of two threads."""
    if first is None or second is None or first is second:
        return first or second
    return ScFences(_joined(first.done, second.done), _joined(first.promised, second.promised))


def _joined(left: Snapshot | None, right: Snapshot | None) -> Snapshot | None:
    """Return the merged knowledge of two snapshots, either of which may be None."""
    return left.joined(right) if left and right and left is not right else left or right


def merge_pasts(first: Past, second: Past) -> Past:
    """Merge the knowledge of two threads about blocks that have ended."""
    if not second or first is second:
        return first
    if not first:
        return second
    result = dict(first)
    for number, times in second.items():
        result[number] = np.maximum(result[number], times) if number in result else times
    return result


def _longest(first: Times, second: Times) -> Times:
    """Return the element-wise maximum of two rows, one of which may have more columns."""
    if len(first) < len(second):
        first, second = second, first
    result = first.copy()
    result[: len(second)] = np.maximum(result[: len(second)], second)
    return result
