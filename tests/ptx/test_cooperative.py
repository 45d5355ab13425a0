"""Grids whose blocks wait for each other: grid.sync() of cooperative groups, and hand-written barriers."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

pytestmark = pytest.mark.both_engines

MODULE = wf.ptx.load(Path(__file__).parent.parent / "data" / "ptx" / "modules" / "cooperative.ptx")
BARRIER = """.version 8.0
.target sm_80
.address_size 64
.visible .entry ring(.param .u64 flags)
{
    .reg .u64 %f<4>; .reg .u32 %r<6>; .reg .pred %p;
    ld.param.u64 %f1, [flags];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %f2, %r1, 4;
    add.u64 %f2, %f1, %f2;
    setp.eq.u32 %p, %r1, 0;
    @%p bra done;
wait:
    ld.acquire.gpu.global.u32 %r2, [%f2];
    setp.eq.u32 %p, %r2, 0;
    @%p bra wait;
done:
    mov.u32 %r3, %nctaid.x;
    add.u32 %r1, %r1, 1;
    rem.u32 %r1, %r1, %r3;
    mul.wide.u32 %f3, %r1, 4;
    add.u64 %f3, %f1, %f3;
    add.u32 %r2, %r2, 1;
    st.release.gpu.global.u32 [%f3], %r2;
    ret;
}
"""


@pytest.mark.parametrize(("grid", "block"), [(1, 32), (7, 96), ((3, 2, 2), (8, 4, 2))])
def test_blocks_meet_at_grid_sync(grid, block):
    module = wf.ptx.load(Path(__file__).parent.parent / "data" / "ptx" / "modules" / "cooperative.ptx")
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    n = blocks * threads
    step = block if isinstance(block, int) else block[0]
    partial, out = np.zeros(n, np.int32), np.zeros(n, np.int32)
    last = module.symbols["last"]
    run = module["two_phases"].launch(grid, block, [partial, out, n], options=wf.ptx.LaunchOptions(cooperative=True))

    expected = (np.arange(n) + step) % n * 3 + n
    assert (out == expected).all()
    assert last == expected[-1]
    assert not run.uncertain


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": 3},
        {"checks": ["memory", "barriers"]},
        {"options": wf.ptx.LaunchOptions(cooperative=True, threads=2)},
    ],
)
def test_each_step_of_a_scan_sees_all_of_the_last(options):
    x = np.arange(5 * 64) % 7.0
    values = x.astype(np.float32)
    run = MODULE["scan"].launch(
        5, 64, [values, np.zeros_like(values), len(x)], **{"options": wf.ptx.LaunchOptions(cooperative=True)} | options
    )

    assert (values == np.cumsum(x)).all()
    assert not run.findings


def test_a_launch_that_is_not_cooperative_has_no_grid():
    out = np.zeros(1, np.int32)
    seen = []
    for cooperative in (False, True):
        MODULE["is_valid"].launch(1, 1, [out], options=wf.ptx.LaunchOptions(cooperative=cooperative))
        seen.append(int(out[0]))

    assert seen == [0, 1]
    with pytest.raises(
        wf.ptx.PtxError,
        match=r"trap by .*; grid.sync\(\) needs launch\(..., options=LaunchOptions\(cooperative=True\)\)",
    ):
        MODULE["two_phases"].launch(2, 32, [np.zeros(64, np.int32), np.zeros(64, np.int32), 64])


def test_what_only_a_driver_can_tell_is_not_exact():
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) { .reg .u64 %a; .reg .u32 %r; ld.param.u64 %a, [out];
  mov.u32 %r, %envreg6; st.global.u32 [%a], %r; ret; }
"""
    out = np.zeros(1, np.uint32)
    inexact = wf.ptx.load(text)["k"].launch(1, 1, [out]).inexact_opcodes
    assert inexact == ["%envreg6"]  # 1 on an H200
    assert not wf.ptx.load(text.replace("envreg6", "envreg2"))["k"].launch(1, 1, [out]).uncertain


def test_barriers_by_hand_work_in_any_order_of_blocks():
    kernel = wf.ptx.load(BARRIER)["ring"]
    for seed in (None, 1):
        flags = np.zeros(20, np.uint32)
        kernel.launch(20, 1, [flags], options=wf.ptx.LaunchOptions(cooperative=True), seed=seed)
        assert flags.tolist() == [20, *range(1, 20)]


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        (132 * 2 + 1, 1024, 0, "132 x 2 blocks of 1024 threads and 0 bytes of shared memory, got a grid of 265"),
        ((66, 65), 32, 0, "holds 132 x 32 blocks of 32 threads and 0 bytes of shared memory, got a grid of 4290"),
        (133, 32, 200_000, "200000 bytes of shared memory, got a grid of 133"),
    ],
)
def test_a_grid_that_does_not_fit_at_once_is_refused(grid, block, shared, message):
    arrays = np.zeros(1, np.int32)
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        MODULE["two_phases"].launch(
            grid, block, [arrays, arrays, 1], shared=shared, options=wf.ptx.LaunchOptions(cooperative=True)
        )


COOPERATIVE = (Path(__file__).parent.parent / "data" / "ptx" / "modules" / "cooperative.ptx").read_text(
    encoding="utf-8"
)
LEAVES = "{ .reg .u32 %b; .reg .pred %q; mov.u32 %b, %ctaid.x; setp.eq.u32 %q, %b, 2; @%q ret; }\n"
FLAG = """.version 8.0
.target sm_80
.address_size 64
.visible .entry flag(.param .u64 out)
{
    .reg .u64 %a; .reg .u32 %r<6>; .reg .pred %p<3>;
    .shared .align 4 .b32 word;
    ld.param.u64 %a, [out];
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [word], 0;
    bar.sync 0;
    mov.u32 %r3, 0;
    setp.ge.u32 %p1, %r1, 32;
    @%p1 bra wait;
work:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, {turns};
    @%p2 bra work;
    {store}
    bra done;
wait:
    ld.volatile.shared.u32 %r2, [word];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra wait;
done:
    bar.sync 0;
    @%p1 st.global.u32 [%a], %r2;
    ret;
}
"""


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("text", "name", "grid", "block", "line", "said"),
    [
        (
            COOPERATIVE.replace("\tmov.u32", LEAVES + "\tmov.u32", 1), "two_phases", 4, 64, "ld.acquire.gpu.u32 %r35",
            ("of thread (0, 0, 0) of block (0, 0, 0) and 2 more keeps reading the same value",
             "blocks that have exited: (2, 0, 0)", "barrier 0 waits for thread"),
        ),
        (
            BARRIER.replace("@%p bra done;", "@%p ret;"), "ring", 6, 1, "ld.acquire.gpu.global.u32",
            ("of thread (0, 0, 0) of block (1, 0, 0) and 4 more keeps reading", "blocks that have exited: (0, 0, 0)"),
        ),
        (
            FLAG.replace("{turns}", "5").replace("{store}", ""), "flag", 1, 64, "ld.volatile.shared",
            ("of thread (32, 0, 0) of block (0, 0, 0) and 31 more keeps reading", "barrier 0 waits for thread (32,"),
        ),
    ],
)  # fmt: skip
def test_lanes_that_wait_for_memory_which_nobody_changes_are_a_deadlock(text, name, grid, block, line, said):
    """A grid barrier that not all blocks reach, a flag that is never set: the error names the waiting threads."""
    arrays = [np.zeros(1024, np.int32) for _ in range(2)] if name == "two_phases" else [np.zeros(1024, np.int32)]
    arguments = [*arrays, grid * block] if name == "two_phases" else arrays
    kernel = wf.ptx.load(text)[name]
    run = kernel.launch(grid, block, arguments, options=wf.ptx.LaunchOptions(cooperative=True), checks="all")
    (finding,) = [item for item in run.findings if item.kind == "deadlock"]

    assert finding.check == "barriers"
    assert line in text.splitlines()[finding.line - 1]
    assert finding.text.startswith("deadlock: ld.")
    for words in said:
        assert words in finding.text
    kernel.compiled.prepare()
    for engine in ("reference", "compiled"):
        with pytest.raises(wf.errors.PtxError, match="deadlock: ld") as raised:
            kernel.launch(grid, block, arguments, options=wf.ptx.LaunchOptions(cooperative=True), engine=engine)
        assert all(words in str(raised.value) for words in said)


@pytest.mark.slow
def test_a_flag_that_comes_late_is_no_deadlock():
    """The lanes that work repeatedly yield to those that read the flag."""
    text = FLAG.replace("{turns}", "9000").replace("{store}", "st.volatile.shared.u32 [word], 1;")
    out = np.zeros(1, np.uint32)
    kernel = wf.ptx.load(text)["flag"]
    kernel.compiled.prepare()
    kernel.launch(1, 64, [out])
    assert out[0] == 1


@pytest.mark.one_engine
def test_blocks_that_have_not_begun_may_still_change_memory():
    """Here they never start, and the launch ends at its limit; on a GPU they may run beside the others."""
    kernel = wf.ptx.load(BARRIER.replace("@%p bra done;", "@%p ret;"))["ring"]
    with pytest.raises(wf.errors.PtxError, match="its limit of .*: it may never end"):
        kernel.launch(
            400, 1, [np.zeros(400, np.uint32)], engine="reference", options=wf.ptx.LaunchOptions(limit=200_000)
        )
