"""The oracle: the happens-before relation of a list of steps, as sets of events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LANES = 32
ALL = 0xFFFFFFFF
REGIONS, REGION_WORDS, REGION_BYTES = 3, 4, 128  # data in shared memory, and in global memory
SCOPES = {"cta": 0, "cluster": 1, "gpu": 2}

Word = tuple[str, int, int]  # space, block (0 in global memory), word


class Step(NamedTuple):
    """One instruction: its name, its warp in the cluster, its lanes, and its arguments by name."""

    name: str
    warp: int = -1
    lanes: int = ALL
    more: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any argument)
        """Return an argument."""
        return self.more[name]


@dataclass
class Shape:
    """The number of blocks in the cluster, and of warps in each block."""

    blocks: int
    warps: int

    @property
    def threads(self) -> int:
        """The number of threads in the cluster."""
        return self.blocks * self.warps * LANES

    def block_of(self, warp: int) -> int:
        """Return the block of a warp."""
        return warp // self.warps

    def members(self, warp: int, lanes: int) -> list[int]:
        """Return the threads of a warp in a mask."""
        return [LANES * warp + lane for lane in range(LANES) if lanes >> lane & 1]

    def block_threads(self, block: int) -> range:
        """Return the threads of a block."""
        count = self.warps * LANES
        return range(block * count, (block + 1) * count)


class Event(NamedTuple):
    """Accesses of one step to one word: a bit for each thread."""

    step: int
    bits: int
    writes: bool
    atomic: bool
    is_async: bool


class View(NamedTuple):
    """Events that happen before a given event, and those with a proxy fence on the path."""

    known: int = 0
    fenced: int = 0

    def __or__(self, other: View) -> View:
        """Return the union of two views."""
        return View(self.known | other.known, self.fenced | other.fenced)


@dataclass
class Oracle:
    """The happens-before relation of steps, executed one after the other."""

    shape: Shape
    views: list[View] = field(default_factory=list)
    fences: list[dict[int, View]] = field(default_factory=list)  # by thread and level: the view at its last fence
    pending: list[list[tuple[int, View]]] = field(default_factory=list)  # by thread: level and view of relaxed loads
    events: dict[Word, list[Event]] = field(default_factory=lambda: defaultdict(list))
    pairs: set[tuple[int, int]] = field(default_factory=set)  # steps with a race, or without a proxy fence
    others: set[int] = field(default_factory=set)  # steps with any other mistake
    count: int = 0
    groups: dict[tuple[str, int], list[View]] = field(default_factory=lambda: defaultdict(list))
    arrivals: dict[tuple[int, int], View] = field(default_factory=lambda: defaultdict(View))
    flags: dict[int, tuple[Step, dict[int, View]]] = field(default_factory=dict)
    phases: dict[tuple[int, int], int] = field(default_factory=dict)  # by named barrier: the bit of its last phase
    remote: list[tuple[int, int, int]] = field(default_factory=list)  # block, step and bits that its exit must follow
    copies: list[tuple[int, int]] = field(default_factory=list)  # step and bits that some thread must wait for

    def __post_init__(self) -> None:
        """Start with an empty view for each thread."""
        self.views = [View()] * self.shape.threads
        self.fences = [{} for _ in self.views]
        self.pending = [[] for _ in self.views]

    def bits(self, count: int) -> int:
        """Allocate bits for events, and return the first."""
        self.count += count
        return self.count - count

    def learn(self, threads: Iterable[int], view: View) -> None:
        """Add a view to those of threads, so that their later steps are ordered after it."""
        for thread in threads:
            self.views[thread] = self.views[thread] | view

    def union(self, threads: Iterable[int]) -> View:
        """Return the merged views of threads."""
        known = fenced = 0
        for thread in threads:
            known |= self.views[thread].known
            fenced |= self.views[thread].fenced
        return View(known, fenced)

    def access(
        self, step: int, words: Sequence[Word], threads: Sequence[int], *, writes: bool, atomic: bool = False,
        proxy: str = "",
    ) -> int:  # fmt: skip
        """Judge the accesses of threads to words; return their bits. `proxy` is that of an asynchronous copy."""
        first = self.bits(len(threads))
        bits = ((1 << len(threads)) - 1) << first
        for word in words:
            for event in self.events[word]:
                if not (event.writes or writes) or (event.atomic and atomic):
                    continue
                needs_fence = proxy == "async" and event.writes and not event.is_async
                if any(event.bits & ~self.views[thread].known for thread in threads) or (
                    needs_fence and any(event.bits & ~self.views[thread].fenced for thread in threads)
                ):
                    self.pairs.add((event.step, step))
            self.events[word].append(Event(step, bits, writes, atomic, bool(proxy)))
        if writes and not atomic and len(threads) > 1 and not proxy:
            self.pairs.add((step, step))
        if not proxy:
            for number, thread in enumerate(threads):
                self.learn([thread], View(1 << first + number))
        return bits

    def needed(self, thread: int, other: int) -> int:
        """Return the level of the smallest scope that contains two threads."""
        same = self.shape.block_of(thread // LANES) == self.shape.block_of(other // LANES)
        return SCOPES["cta"] if same else SCOPES["cluster"]

    def run(self, steps: Sequence[Step]) -> None:
        """Execute all steps, then find remote accesses and copies that nothing waits for."""
        for number, step in enumerate(steps):
            getattr(self, f"do_{step.name}")(number, step, self.shape.members(step.warp, step.lanes))
        for block, number, bits in self.remote:
            threads = self.shape.block_threads(block)
            if not any(bits & ~self.views[thread].known == 0 for thread in threads):
                self.others.add(number)
        for number, bits in self.copies:
            if not any(bits & ~view.known == 0 for view in self.views):
                self.others.add(number)

    # accesses

    def do_ld(self, number: int, step: Step, threads: list[int]) -> None:
        """Execute ld, st or red on one word."""
        space, block, _ = step.word
        writes, atomic = step.name != "ld", step.name == "red"
        bits = self.access(number, [step.word], threads, writes=writes, atomic=atomic)
        if space == "shared" and block != self.shape.block_of(step.warp):
            for at in range(len(threads)):
                self.remote.append((block, number, 1 << (bits.bit_length() - len(threads) + at)))

    do_st = do_red = do_ld

    # barriers

    def do_block(self, _: int, step: Step, _threads: list[int]) -> None:
        """Execute bar.sync 0 by all threads of a block."""
        members = self.shape.block_threads(step.block)
        self.learn(members, self.union(members))

    def do_warp(self, _: int, _step: Step, threads: list[int]) -> None:
        """Execute bar.warp.sync."""
        self.learn(threads, self.union(threads))

    def do_named(self, number: int, step: Step, _threads: list[int]) -> None:
        """Execute bar.sync and bar.arrive at a named barrier; each arrival must happen after the last phase."""
        key = self.shape.block_of(step.waiters[0]), step.barrier
        waiters, arrivers = ([t for warp in warps for t in self.shape.members(warp, ALL)]
                             for warps in (step.waiters, step.arrivers))  # fmt: skip
        last = self.phases.get(key)
        if last is not None and any(not self.views[t].known >> last & 1 for t in waiters + arrivers):
            self.others.add(number)
        phase = self.phases[key] = self.bits(1)
        self.learn(waiters, self.union(waiters + arrivers) | View(1 << phase))

    def do_cluster(self, _: int, step: Step, _threads: list[int]) -> None:
        """Execute barrier.cluster by all threads; a relaxed arrival releases the views at their last fences."""
        everyone = range(self.shape.threads)
        if not step.relaxed:
            self.learn(everyone, self.union(everyone))
            return
        view = View()
        for thread in everyone:
            view |= self.fences[thread].get(SCOPES["cluster"], View())
        self.learn(everyone, view)

    # mbarriers

    def do_arrive(self, number: int, step: Step, threads: list[int]) -> None:
        """Execute mbarrier.arrive by each lane."""
        view = View()
        for thread in threads:
            own = self.views[thread]
            if step.relaxed:
                own = self.fences[thread].get(SCOPES["cluster" if self.shape.blocks > 1 else "cta"], View())
            view |= own
        if step.block != self.shape.block_of(step.warp):
            first = self.bits(len(threads))
            for at, thread in enumerate(threads):
                self.remote.append((step.block, number, 1 << first + at))
                own = View(1 << first + at)
                view |= own if not step.relaxed else View()
                self.learn([thread], own)
        self.arrivals[step.block, step.mbarrier] |= view

    def do_wait(self, _: int, step: Step, threads: list[int]) -> None:
        """Execute mbarrier.try_wait.parity."""
        view = self.arrivals[step.block, step.mbarrier]
        if not step.relaxed:
            self.learn(threads, view)
            return
        for thread in threads:
            self.pending[thread].append((SCOPES["cluster"], view))

    # flags and fences

    def do_fence(self, _: int, step: Step, threads: list[int]) -> None:
        """Execute fence.acq_rel: acquire the views of relaxed loads, and release the view to relaxed stores."""
        level = SCOPES[step.scope]
        for thread in threads:
            taken = [view for needed, view in self.pending[thread] if needed <= level]
            self.pending[thread] = [item for item in self.pending[thread] if item[0] > level]
            for view in taken:
                self.learn([thread], view)
            for reached in range(level + 1):
                self.fences[thread][reached] = self.views[thread]

    def do_proxy(self, _: int, _step: Step, threads: list[int]) -> None:
        """Execute fence.proxy.async."""
        for thread in threads:
            known = self.views[thread].known
            self.views[thread] = View(known, known)

    def do_send(self, number: int, step: Step, threads: list[int]) -> None:
        """Execute a strong store to a flag by one thread."""
        (thread,) = threads
        own = self.views[thread]
        by_level = dict.fromkeys(range(SCOPES[step.scope] + 1), own) if step.releases else self.fences[thread]
        self.flags[step.flag] = step, {level: view for level, view in by_level.items() if level <= SCOPES[step.scope]}
        self.flag_access(number, step, threads, writes=True)

    def do_poll(self, number: int, step: Step, threads: list[int]) -> None:
        """Execute a loop of strong loads that ends when the flag is set."""
        sent, by_level = self.flags[step.flag]
        (sender,) = self.shape.members(sent.warp, sent.lanes)
        self.flag_access(number, step, threads, writes=False)
        for thread in threads:
            needed = self.needed(thread, sender)
            if needed > SCOPES[step.scope] or needed not in by_level:
                continue
            if step.acquires:
                self.learn([thread], by_level[needed])
            else:
                self.pending[thread].append((needed, by_level[needed]))

    def flag_access(self, number: int, step: Step, threads: list[int], *, writes: bool) -> None:
        """Judge the accesses to a flag; strong accesses race only if a scope is too small."""
        word = ("flag", 0, step.flag)
        first = self.bits(len(threads))
        for event in self.events[word]:
            sent, _ = self.flags[step.flag]
            (sender,) = self.shape.members(sent.warp, sent.lanes)
            level = min(SCOPES[step.scope], SCOPES[sent.scope])
            late = [t for t in threads if self.needed(t, sender) > level and event.bits & ~self.views[t].known]
            if late and event.writes:
                self.pairs.add((event.step, number))
        self.events[word].append(
            Event(number, ((1 << len(threads)) - 1) << first, writes, atomic=False, is_async=False)
        )
        for at, thread in enumerate(threads):
            self.learn([thread], View(1 << first + at))

    # copies

    def do_copy(self, number: int, step: Step, threads: list[int]) -> None:
        """Execute an asynchronous copy of a region by one thread; other threads see it only after a wait."""
        (thread,) = threads
        proxy = "generic" if step.way == "cp.async" else "async"
        source, target = ([(space, block, REGION_WORDS * region + at) for at in range(REGION_WORDS)]
                          for space, block, region in (step.source, step.target))  # fmt: skip
        read = self.access(number, source, threads, writes=False, proxy=proxy)
        written = self.access(number, target, threads, writes=True, proxy=proxy)
        if step.mbarrier is not None:
            self.arrivals[step.block, step.mbarrier] |= View(read | written, read | written)
            self.copies.append((number, written))
            if step.source[0] == "shared":
                self.remote.append((step.source[1], number, read))
        else:
            self.groups[proxy, thread].append(View(read, written))
            if proxy == "async":
                self.copies.append((number, read))

    def do_wait_group(self, _: int, step: Step, threads: list[int]) -> None:
        """Execute cp.async.wait_group, or cp.async.bulk.wait_group with or without .read; each copy is a group."""
        for thread in threads:
            groups = self.groups["generic" if step.way == "cp.async" else "async", thread]
            done = groups[: len(groups) - step.left] if step.left < len(groups) else []
            for read, written in done:
                both = read if step.reads else read | written
                self.learn([thread], View(both, both))


def judge(shape: Shape, steps: Sequence[Step]) -> Oracle:
    """Return the oracle after all steps."""
    oracle = Oracle(shape)
    oracle.run(steps)
    return oracle
