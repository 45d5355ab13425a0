"""Running a launch: on several cores, interrupted, with checked accesses and counted wavefronts."""

import _thread
import threading

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.machine.interpreter.device_memory import count_wavefronts
from warpfrag.smem.shared_memory import wavefronts


def module(parameters, body):
    return wf.ptx.load(f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k({parameters})
{{
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>; .reg .b16 %h;
  .shared .align 16 .b8 tile[512];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
  {body}
  ret;
}}""")["k"]


MEETING = module(
    ".param .u64 out",
    """ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
  rem.u32 %r5, %r2, 3; add.s32 %r5, %r5, 1; mov.u32 %r6, %r1;
AGAIN:
  and.b32 %r7, %r1, 127; shl.b32 %r7, %r7, 2; mov.u32 %r8, tile; add.s32 %r7, %r7, %r8;
  st.shared.u32 [%r7], %r6;
  bar.sync 0;
  ld.shared.u32 %r8, [tile+16]; mad.lo.s32 %r6, %r6, 5, %r8;
  bar.sync 0;
  setp.gt.u32 %p1, %r1, 70; @%p1 add.s32 %r6, %r6, 1;
  sub.s32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra AGAIN;
  st.global.u32 [%rd3], %r6; ld.param.u64 %rd4, [out]; red.global.add.u32 [%rd4+40000], 1;""",
)


@pytest.mark.one_engine
@pytest.mark.parametrize("threads", [100, 128])
def test_blocks_on_several_cores_leave_the_same(threads):
    found, runs = [], []
    for options in (
        {"engine": "reference"},
        {"options": wf.ptx.LaunchOptions(threads=1)},
        {"options": wf.ptx.LaunchOptions(threads=3)},
        {"seed": 3},
    ):
        out = np.zeros(10001, np.uint32)
        runs.append(MEETING.launch(78, threads, [out], **({"engine": "compiled"} | options)))
        found.append(out.tobytes())

    assert MEETING.is_shared_out
    assert len(set(found)) == 1
    assert np.frombuffer(found[0], np.uint32)[10000] == 78 * threads
    assert all(run.counts == runs[0].counts for run in runs)


@pytest.mark.one_engine
def test_blocks_whose_order_can_be_seen_run_on_one_core():
    for body in (
        "ld.param.u64 %rd1, [out]; atom.global.add.u32 %r5, [%rd1], 1;",
        "ld.param.u64 %rd1, [out]; red.global.add.f32 [%rd1], 0f3F800000;",
        "ld.param.u64 %rd1, [out]; ld.volatile.global.u32 %r5, [%rd1];",
    ):
        assert not module(".param .u64 out", body).is_shared_out


def test_progress_is_told_of_every_block():
    out = np.zeros(10001, np.uint32)
    for threads in (1, 2):
        seen = []
        MEETING.launch(
            78,
            128,
            [out],
            options=wf.ptx.LaunchOptions(threads=threads, progress=lambda *both, seen=seen: seen.append(both)),
        )

        assert seen[-1] == (78, 78)
        assert seen == sorted(seen)


ENDLESS = "AGAIN:\n add.s32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; selp.b32 %r5, 0, 0, %p1; bra AGAIN;"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_a_launch_and_says_how_far_it_came(threads):
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        module("", ENDLESS).launch(100, 128, [], options=wf.ptx.LaunchOptions(threads=threads))

    assert caught.value.__notes__ == ["interrupted after 0 of 100 blocks; arrays keep the values stored so far"]


@pytest.mark.slow
def test_a_limit_ends_a_runaway():
    with pytest.raises(wf.WarpfragError, match="the launch reached its limit of 3000000 warp instructions"):
        module("", ENDLESS).launch(100, 128, [], options=wf.ptx.LaunchOptions(limit=3_000_000))


# --- checks

BAD = module(
    ".param .u64 out, .param .u64 in",
    """ld.param.u64 %rd1, [out]; ld.param.u64 %rd4, [in]; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r5, 77; mov.u32 %r6, 78; mov.u32 %r7, tile; shl.b32 %r8, %r1, 5;
  add.s32 %r7, %r7, %r8;
  ld.shared.u32 %r5, [%r7];
  setp.eq.u32 %p1, %r1, 3; @%p1 ld.global.u32 %r6, [%rd3+2];
  @%p1 st.global.u32 [%rd4], %r6;
  st.global.u32 [%rd3], %r5; st.global.u32 [%rd3+128], %r6;""",
)


def read_only():
    array = np.zeros(8, np.uint32)
    array.flags.writeable = False
    return array


def test_bad_accesses_are_collected_where_they_are_checked():
    out = np.zeros(64, np.uint32)
    run = BAD.launch(1, 32, [out, read_only()], checks=("memory",))

    assert [(one.check, one.line) for one in run.findings] == [("memory", 13), ("memory", 14), ("memory", 15)]
    beyond, misaligned, locked = (one.text for one in run.findings)
    assert beyond == (
        "ld.shared.u32 by thread (16, 0, 0) of block (0, 0, 0): 4 bytes at 0x600 are outside shared memory, which is "
        "0x400 to 0x600"
    )
    assert run.findings[0].count == 16
    assert misaligned.endswith("thread (3, 0, 0) of block (0, 0, 0): the address 0x7f000000000e is not a multiple of 4")
    assert "a store to argument 1 (in) at" in locked
    assert out.tolist() == [0] * 32 + [78] * 3 + [0] + [78] * 28  # what a bad load gives is 0
    with pytest.raises(wf.WarpfragError, match="line 13: ld.shared.u32 by thread .16, 0, 0.*outside shared memory"):
        BAD.launch(1, 32, [out, read_only()])


def test_an_access_outside_every_array_is_collected_too():
    run = BAD.launch(1, 32, [np.zeros(31, np.uint32), np.zeros(8, np.uint32)], checks="memory")

    assert [(one.kind, one.line) for one in run.findings if one.line == 16] == [("bounds", 16)]
    assert "outside every allocation" in run.findings[-1].text
    assert run.verdict == "findings"


def test_a_checked_launch_without_findings_runs_as_ever(engine):
    out = np.zeros(10001, np.uint32)
    run = MEETING.launch(3, 128, [out], checks=("memory",))

    assert (run.findings, run.verdict) == ([], "clean")
    assert run.engine == engine
    assert out[10000] == 3 * 128


# --- wavefronts


@pytest.mark.one_engine
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_passes_over_banks_are_those_of_the_rule(width):
    rng = np.random.default_rng(width)
    for most in (4, 32, 200, 1000):
        places = rng.integers(0, most, (6, 32)) * width
        unit = max(width, 4)
        requests = np.repeat(np.arange(6), 32)
        found, _ = count_wavefronts(places.reshape(-1).astype(np.uint64), width, requests, unit, 128 // unit)

        assert found == sum(wavefronts(request.tolist(), width) for request in places)


COUNTING = module(
    ".param .u64 in, .param .u64 out",
    """ld.param.u64 %rd1, [in]; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; ld.global.u64 %rd4, [%rd3];
  cvt.u32.u64 %r5, %rd4; mov.u32 %r6, tile; add.s32 %r6, %r6, %r5; shr.u64 %rd5, %rd4, 32;
  setp.lt.u32 %p1, %r1, 200; setp.ne.u32 %p2, %r1, 45;
  ld.shared.WIDTH HOLD, [%r6];
  @%p2 ld.shared.WIDTH HOLD, [%r6];
  cvt.u64.u32 %rd7, %r6; cvta.shared.u64 %rd7, %rd7; ld.WIDTH HOLD, [%rd7];
  ld.param.u64 %rd6, [out]; add.s64 %rd6, %rd6, %rd5; st.global.u16 [%rd6], %h;
  @%p2 st.global.u16 [%rd6], %h;""".replace("WIDTH", "u32").replace("HOLD", "%r7"),
)


@pytest.mark.parametrize("kind", ["random", "equal", "line", "falling", "columns", "one bank"])
def test_both_engines_count_the_wavefronts_of_every_access(kind, engine):
    lanes = np.arange(64)
    rng = np.random.default_rng(5)
    words = {
        "random": rng.integers(0, 128, 64), "equal": lanes * 0 + 7, "line": lanes, "falling": 127 - lanes,
        "columns": lanes * 32 % 128, "one bank": lanes % 2 * 32,
    }[kind]  # fmt: skip
    shared, stored = words * 4, words * 22
    out = np.zeros(4096, np.uint16)
    run = COUNTING.launch(1, 64, [(stored.astype(np.uint64) << np.uint64(32)) | shared.astype(np.uint64), out])

    without = [None if lane == 45 else int(place) for lane, place in enumerate(shared)]
    lists = {13: shared.tolist(), 14: without, 15: shared.tolist()}
    passes = {line: sum(wavefronts(part, 4) for part in (given[:32], given[32:])) for line, given in lists.items()}
    sectors = [len(set((part // 32).tolist())) for part in (stored[:32], stored[32:])]
    less = len(set((np.delete(stored[32:], 13) // 32).tolist()))
    loaded = 2 * 32 * 8 // 32
    by_line = {row.line: row.wavefronts for row in run.profile.lines if row.wavefronts}
    assert by_line == {10: loaded} | passes | {16: sum(sectors), 17: sectors[0] + less}
    assert run.counts.wavefronts == {
        "shared": sum(passes.values()), "global": loaded + 2 * sum(sectors) - sectors[1] + less
    }  # fmt: skip
    assert run.engine == engine


@pytest.mark.parametrize("stride", [16, 32, 64, 128, 144])
def test_each_matrix_of_ldmatrix_is_a_request(stride, engine):
    body = f"""mov.u32 %r5, big; mul.lo.u32 %r6, %r1, {stride}; add.s32 %r5, %r5, %r6;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r5, %r6, %r7, %r8}}, [%r5];"""
    kernel = module("", f".shared .align 16 .b8 big[8192];\n{body}")
    run = kernel.launch(1, 32)

    lines = [stride * lane for lane in range(32)]
    assert run.counts.wavefronts == {"shared": sum(wavefronts(lines[at : at + 8], 16) for at in (0, 8, 16, 24))}
    assert run.engine == engine


@pytest.mark.one_engine
def test_the_environment_chooses_the_engine_of_launches_that_name_none(monkeypatch):
    def engine(**options):
        return MEETING.launch(1, 128, [np.zeros(10001, np.uint32)], **options).engine

    monkeypatch.setenv("WARPFRAG_ENGINE", "compiled")
    assert (engine(), engine(engine="reference")) == ("compiled", "reference")
    monkeypatch.setenv("WARPFRAG_ENGINE", "fast")
    with pytest.raises(wf.WarpfragError, match="expected WARPFRAG_ENGINE to be one of auto, .*, got 'fast'"):
        engine()
