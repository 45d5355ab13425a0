"""Random kernels with atomics: if a run is exact, no order of blocks and warps changes a byte."""

from random import Random

import numpy as np
import pytest

import warpfrag as wf

pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("every_spelling_compared")]
WORDS = 4
HEAD = f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{{
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .f32 %f<4>; .reg .pred %p<8>; .shared .align 16 .b32 own[{WORDS}];
    ld.param.u64 %d0, [words]; ld.param.u64 %d1, [out];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d2, %r3, 4; add.u64 %d2, %d1, %d2; mov.u32 %r4, own; mov.u32 %r7, 0;
    mad.lo.u32 %r5, %r3, 77, 5; cvt.rn.f32.u32 %f0, %r5; rcp.rn.f32 %f0, %f0; mov.u32 %r9, {WORDS};
    setp.eq.u32 %p0, %r3, %r3; setp.eq.u32 %p1, %r0, 0; and.b32 %r6, %r0, 31; setp.eq.u32 %p2, %r6, 0;
    setp.eq.u32 %p3, %r1, 1; setp.lt.u32 %p4, %r0, 32; setp.eq.u32 %p5, %r3, 70;
    setp.lt.u32 %p6, %r0, %r9; shl.b32 %r8, %r0, 2; add.u32 %r8, %r8, %r4; @%p6 st.shared.u32 [%r8], %r7; bar.sync 0;
"""
GUARDS = {"%p0": "every thread", "%p1": "a thread of each block", "%p2": "a lane of each warp", "%p3": "one block",
          "%p4": "a warp of each block", "%p5": "one thread"}  # fmt: skip
STATEMENTS = (
    "red.{space}.add.u32 [{at}], %r5;", "red.{space}.add.u32 [{at}], %r5;", "red.{space}.max.u32 [{at}], %r5;",
    "red.{space}.max.s32 [{at}], %r5;", "red.{space}.xor.b32 [{at}], %r5;", "red.{space}.add.f32 [{at}], %f0;",
    "atom.{space}.add.u32 %r10, [{at}], %r5; {guard} add.u32 %r7, %r7, %r10;", "st.{space}.u32 [{at}], %r5;",
    "atom.{space}.exch.b32 %r10, [{at}], %r5;", "atom.{space}.cas.b32 %r10, [{at}], 0, %r5;",
    "ld.{space}.u32 %r10, [{at}]; {guard} mad.lo.u32 %r7, %r7, 3, %r10;", "atom.{space}.inc.u32 %r10, [{at}], 1000;",
)  # fmt: skip


def kernel(seed):
    """Return a kernel with a few guarded accesses of words in global and shared memory, and some barriers."""
    rng, lines = Random(seed), []
    for _ in range(rng.randint(1, 5)):
        guard, word = f"@{rng.choice(list(GUARDS))}", 4 * rng.randrange(2)
        space, at = rng.choice([("global", f"%d0+{word}"), ("global", f"%d0+{word}"), ("shared", f"%r4+{word}")])
        lines.append(f"{guard} {rng.choice(STATEMENTS)}".format(space=space, at=at, guard=guard))
        lines += ["bar.sync 0;"] * (rng.random() < 0.4)
    end = (
        "bar.sync 0; @%p6 ld.shared.u32 %r10, [%r8]; @%p6 mad.lo.u32 %r7, %r7, 5, %r10; st.global.u32 [%d2], %r7; ret;"
    )
    return wf.ptx.load(f"{HEAD} {' '.join(lines)} {end} }}\n")["k"]


def left(entry, grid, block, seed=None):
    words, out = np.arange(WORDS, dtype=np.uint32), np.zeros(grid * block, np.uint32)
    run = entry.launch(grid, block, [words, out], seed=seed, level="sass", options=wf.ptx.LaunchOptions(threads=1))
    return run, words.tobytes() + out.tobytes()


@pytest.mark.every_case
@pytest.mark.parametrize(("first", "last"), [(0, 10), pytest.param(10, 50, marks=pytest.mark.slow)])
def test_exact_runs_do_not_depend_on_the_order_of_blocks_and_warps(first, last):
    exact = changed = 0
    for seed in range(first, last):
        entry, (grid, block) = kernel(seed), ((1, 32), (1, 96), (3, 32), (4, 64))[seed % 4]
        run, expected = left(entry, grid, block)
        others = {left(entry, grid, block, order)[1] for order in range(4)}
        assert not run.exact or others == {expected}, seed
        exact += run.exact
        changed += others != {expected}
    assert exact
    assert changed
