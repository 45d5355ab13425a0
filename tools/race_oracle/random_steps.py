"""Generate the random steps of a kernel with few or no races."""

from random import Random
from typing import Any

from tools.race_oracle.oracle import ALL, LANES, REGION_WORDS, REGIONS, SCOPES, Shape, Step, Word, judge

MBARRIERS, FLAGS = 6, 4
MAX_WARPS = 64
REPAIRS = 40


class Generator:
    """Makes the steps of a random kernel: sequences of related steps, merged at random."""

    def __init__(self, seed: int) -> None:
        """Choose the shape, and the few warps that access memory."""
        self.rng = rng = Random(seed)  # noqa: S311 (no secret)
        blocks = rng.choice([1, 1, 2, 4])
        self.shape = Shape(
            blocks, rng.choice([count for count in (1, 2, 3, 5, 8, 16, 32) if count * blocks <= MAX_WARPS])
        )
        every = range(blocks * self.shape.warps)
        self.active = sorted(rng.sample(every, min(len(every), rng.choice([2, 3, 4, 6]))))
        self.mbarriers = {block: list(range(MBARRIERS)) for block in range(blocks)}
        self.flags = list(range(FLAGS))
        self.counts: dict[tuple[int, int], int] = {}

    def lanes(self) -> int:
        """Return a random lane mask."""
        rng = self.rng
        return rng.choice([1, 1, 1 << 31, 1 << rng.randrange(LANES), ALL, rng.getrandbits(32) | 1])

    def lane(self) -> int:
        """Return the mask of one random lane."""
        return 1 << self.rng.choice([0, 0, 31, self.rng.randrange(LANES)])

    def warp(self) -> int:
        """Return a random warp among those that access memory."""
        return self.rng.choice(self.active)

    def word(self, warp: int) -> Word:
        """Return a random word that a warp can access."""
        rng, own = self.rng, self.shape.block_of(warp)
        word = REGION_WORDS * rng.randrange(REGIONS) + rng.choice([0, 0, 1])
        block = rng.randrange(self.shape.blocks) if rng.random() < 0.4 else own
        return rng.choice([("shared", block, word), ("global", 0, word)])

    def some_access(self) -> list[Step]:
        """Return one load, store or reduction."""
        warp = self.warp()
        return [Step(self.rng.choice(["ld", "ld", "st", "red"]), warp, self.lanes(), {"word": self.word(warp)})]

    def some_barrier(self) -> list[Step]:
        """Return a barrier of a block, a warp, some warps or the cluster."""
        rng, warp = self.rng, self.warp()
        block = self.shape.block_of(warp)
        kind = rng.choice(["block", "warp", "named", "named", "cluster"])
        if kind == "warp":
            return [Step("warp", warp, rng.choice([ALL, self.lanes()]))]
        if kind == "named" and self.shape.warps > 1:
            inside = range(block * self.shape.warps, (block + 1) * self.shape.warps)
            warps = sorted(rng.sample(inside, rng.randint(2, min(4, len(inside)))))
            cut = rng.choice([0, 0, 1])
            return [Step("named", more={"barrier": rng.randint(1, 4), "waiters": warps[cut:], "arrivers": warps[:cut]})]
        if kind == "cluster" and self.shape.blocks > 1:
            relaxed = rng.random() < 0.3
            return [Step("cluster", more={"relaxed": relaxed})]
        return [Step("block", more={"block": block})]

    def some_fence(self) -> list[Step]:
        """Return a memory fence or a proxy fence."""
        name = self.rng.choice(["fence", "proxy"])
        return [Step(name, self.warp(), self.rng.choice([ALL, self.lane()]), {"scope": self.rng.choice(list(SCOPES))})]

    def some_flag(self) -> list[Step]:
        """Return steps in which one thread sets a flag and others poll it."""
        rng = self.rng
        if not self.flags:
            return self.some_access()
        flag = self.flags.pop()
        steps = []
        if rng.random() < 0.3:
            steps.append(Step("fence", warp := self.warp(), ALL, {"scope": rng.choice(["cluster", "gpu"])}))
        else:
            warp = self.warp()
        scope = rng.choice(["cta", "cluster", "gpu", "gpu"])
        steps.append(Step("send", warp, self.lane(), {"flag": flag, "scope": scope, "releases": rng.random() < 0.6}))
        for _ in range(rng.randint(1, 2)):
            warp, lanes = self.warp(), self.lanes()
            scope = rng.choice(["cta", "cluster", "gpu", "gpu"])
            steps.append(Step("poll", warp, lanes, {"flag": flag, "scope": scope, "acquires": rng.random() < 0.6}))
            if rng.random() < 0.3:
                steps.append(Step("fence", warp, lanes, {"scope": rng.choice(list(SCOPES))}))
        return steps

    def some_mbarrier(self) -> list[Step]:
        """Return arrivals at an mbarrier, followed by waits."""
        rng, block = self.rng, self.shape.block_of(self.warp())
        if not self.mbarriers[block]:
            return self.some_access()
        number = self.mbarriers[block].pop()
        steps = []
        for _ in range(rng.randint(1, 3)):
            more = {"block": block, "mbarrier": number, "relaxed": rng.random() < 0.1}
            steps.append(Step("arrive", self.warp(), self.lanes(), more))
        self.counts[block, number] = sum(step.lanes.bit_count() for step in steps)
        return steps + self.waits(block, number, rng.randint(0, 2))

    def waits(self, block: int, number: int, count: int) -> list[Step]:
        """Return waits for an mbarrier by warps of its block."""
        rng = self.rng
        inside = [warp for warp in self.active if self.shape.block_of(warp) == block]
        more = {"block": block, "mbarrier": number}
        return [
            Step("wait", rng.choice(inside), rng.choice([ALL, self.lanes()]), {**more, "relaxed": rng.random() < 0.1})
            for _ in range(count if inside else 0)
        ]

    def some_copy(self) -> list[Step]:
        """Return an asynchronous copy, usually with a wait for it."""
        rng, warp, lane = self.rng, self.warp(), self.lane()
        own = self.shape.block_of(warp)
        shared, out = ("shared", own, rng.randrange(REGIONS)), ("global", 0, rng.randrange(REGIONS))
        way = rng.choice(["cp.async", "bulk", "bulk", "tensor", "tensor", "neighbour"])
        fences = [Step("proxy", warp, lane)] if way != "cp.async" and rng.random() < 0.6 else []
        more: dict[str, Any] = {"way": way, "mbarrier": None, "block": own}
        if way == "cp.async" or (way != "neighbour" and rng.random() < 0.5):
            source, target = (out, shared) if way == "cp.async" else (shared, out)
            copy = Step("copy", warp, lane, {**more, "source": source, "target": target})
            left, reads = rng.choice([0, 0, 1]), way != "cp.async" and rng.random() < 0.4
            waits = [Step("wait_group", warp, lane, {"way": way, "left": left, "reads": reads})]
            return [*fences, copy, *(waits if rng.random() < 0.85 else [])]
        block = rng.randrange(self.shape.blocks) if way == "neighbour" else own
        inside = [item for item in self.active if self.shape.block_of(item) == block]
        if not (self.mbarriers[block] and inside):
            return self.some_access()
        number = self.mbarriers[block].pop()
        self.counts[block, number] = 1
        source = shared if way == "neighbour" else out
        target = ("shared", block, rng.randrange(REGIONS))
        if source == target:
            source = ("shared", own, (shared[2] + 1) % REGIONS)
        expect = warp if block == own else rng.choice(inside)
        arrive = {"block": block, "mbarrier": number, "relaxed": False, "bytes": 4 * REGION_WORDS}
        return [
            *fences, Step("arrive", expect, lane if expect == warp else self.lane(), arrive),
            Step("copy", warp, lane, {**more, "block": block, "mbarrier": number, "source": source, "target": target}),
            *self.waits(block, number, rng.choice([0, 1, 1, 2])),
        ]  # fmt: skip

    def steps(self) -> list[Step]:
        """Return the steps of the kernel; most races are repaired, so that few or none are left."""
        rng = self.rng
        makers = [self.some_access] * 5 + [self.some_barrier] * 2 + [self.some_fence, self.some_flag]
        makers += [self.some_mbarrier, self.some_copy, self.some_copy]
        episodes = [rng.choice(makers)() for _ in range(rng.randint(3, 12))]
        steps = []
        while episodes:
            episode = rng.choice(episodes)
            steps.append(episode.pop(0))
            episodes = [item for item in episodes if item]
        if self.shape.blocks > 1 and rng.random() < 0.8:
            steps.append(Step("cluster", more={"relaxed": False}))
        for _ in range(REPAIRS):
            oracle = judge(self.shape, steps)
            if not oracle.pairs or rng.random() < 0.1:
                break
            earlier, later = min(oracle.pairs, key=lambda pair: pair[1])
            steps = self.repaired(steps, earlier, later)
        return steps

    def repaired(self, steps: list[Step], earlier: int, later: int) -> list[Step]:
        """Order a step after an earlier one with waits, usually a proxy fence, and a barrier.

        A step that races with itself keeps only one lane.
        """
        one, two = steps[earlier], steps[later]
        if earlier == later:
            return [*steps[:later], two._replace(lanes=1 << two.lanes.bit_length() - 1), *steps[later + 1 :]]
        waits = []
        if one.name == "copy" and one.mbarrier is None:
            waits.append(Step("wait_group", one.warp, one.lanes, {"way": one.way, "left": 0, "reads": False}))
        elif one.name == "copy":
            waits += self.waits(one.block, one.mbarrier, 1)
        if self.rng.random() < 0.7:
            waits += [Step("proxy", warp, ALL) for warp in sorted({one.warp, two.warp})]
        is_near = self.shape.block_of(one.warp) == self.shape.block_of(two.warp)
        block = {"block": self.shape.block_of(two.warp)}
        if is_near or self.shape.blocks == 1:
            waits.append(Step("block", more=block))
        else:
            waits.append(Step("cluster", more={"relaxed": False}))
        return [*steps[:later], *waits, *steps[later:]]
