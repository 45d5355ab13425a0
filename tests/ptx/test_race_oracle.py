"""Random kernels against a naive happens-before oracle: every race is found, and nothing else is."""

import random

import numpy as np
import pytest

import warpfrag as wf

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 8 .b32 sm[4];
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, sm; shr.u32 %r3, %r1, 5; and.b32 %r4, %r1, 31; mov.u32 %r5, 1; shl.b32 %r5, %r5, %r4;
setp.lt.u32 %p1, %r1, 4; shl.b32 %r6, %r1, 2; add.u32 %r6, %r6, %r2;
@%p1 st.shared.u32 [%r6], 0;
bar.sync 0;
"""
PAIR = (0, 1)  # the warps of the named barrier


def random_steps(rng, warps):
    """Return steps: ("ld" | "st" | "red", warp, lanes, word), ("block",), ("pair",) and ("warp", warp, lanes)."""
    steps = []
    for _ in range(rng.randint(3, 12)):
        warp = rng.randrange(warps)
        lanes = rng.choice([1, 1 << 31, 1 << rng.randrange(32), 0xFFFFFFFF, rng.getrandbits(32) | 1])
        choices = [("block",), ("pair",), ("warp", warp, rng.choice([lanes, 0xFFFFFFFF]))]
        access = (rng.choice(["ld", "ld", "st", "red"]), warp, lanes, rng.randrange(3))
        steps.append(rng.choice([access, access, access, *choices]))
    return steps


def has_race(steps, warps):
    """Return True if two accesses of a word conflict and nothing orders them, by vector clocks."""
    threads = 32 * warps
    known = np.full((threads, threads), -1)
    words = {}
    for time, (name, *rest) in enumerate(steps):
        if name in {"block", "pair", "warp"}:
            groups = {"block": range(threads), "pair": range(64)}
            members = np.array(groups.get(name) or threads_of(*rest))
            known[members, members] = time
            known[members] = known[members].max(axis=0)
            continue
        own = threads_of(*rest[:2])
        before = words.setdefault(rest[2], [])
        for thread in own:
            for other, when, kind in [*before, *((item, time, name) for item in own)]:
                is_conflict = other != thread and {kind, name} not in ({"ld"}, {"red"})
                if is_conflict and known[thread, other] < when:
                    return True
        before += [(thread, time, name) for thread in own]
    return False


def threads_of(warp, lanes):
    """Return the threads of a warp in a mask."""
    return [32 * warp + lane for lane in range(32) if lanes >> lane & 1]


def kernel_of(steps, space):
    """Return the PTX of the steps."""
    body = []
    for time, (name, *rest) in enumerate(steps):
        if name == "block":
            body.append("bar.sync 0;")
            continue
        body.append(f"setp.lt.u32 %p1, %r3, {len(PAIR)};" if name == "pair" else f"setp.eq.u32 %p1, %r3, {rest[0]};")
        if name != "pair":
            body += [f"and.b32 %r7, %r5, {rest[1]:#x};", "setp.ne.and.u32 %p1, %r7, 0, %p1;"]
        at = f"[{'%r2' if space == 'shared' else '%rd1'}+{4 * (rest[2] if len(rest) > 2 else 0)}]"
        body += [f"@!%p1 bra L{time};", f"mad.lo.u32 %r8, %r1, 64, {time + 1};"]
        body.append(
            {
                "ld": f"ld.{space}.u32 %r9, {at};",
                "st": f"st.{space}.u32 {at}, %r8;",
                "red": f"red.{space}.add.u32 {at}, %r8;",
                "pair": "bar.sync 1, 64;",
                "warp": f"bar.warp.sync {rest[1] if len(rest) > 1 else 0:#x};",
            }[name]
        )
        body.append(f"L{time}:")
    return HEAD.format() + "\n".join(body) + "\nret;\n}\n"


@pytest.mark.parametrize("space", ["shared", "global"])
def test_random_kernels_have_the_races_of_the_oracle(space, engine):
    check_kernels(space, engine, range(30))


def check_kernels(space, engine, seeds):
    """Compare the verdicts of random kernels with the oracle; few may be incomplete."""
    unjudged = 0
    for seed in seeds:
        rng = random.Random(seed)
        warps = rng.choice([2, 3, 6])
        steps = random_steps(rng, warps)
        racy = has_race(steps, warps)
        kernel = wf.ptx.load(kernel_of(steps, space))["k"]
        run = kernel.launch(1, 32 * warps, [np.zeros(4, np.uint32)], checks="races", engine=engine)
        unjudged += run.verdict == "incomplete"
        assert run.verdict in {"findings" if racy else "clean", "incomplete"}, (seed, steps, run.findings)
    assert unjudged <= len(seeds) // 10
