"""The profile of a launch: counts by line, derived by hand, equal in both engines."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.debugged import captured
from warpfrag.viz.explorer.page_builder import build_profile_page

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
TRANSPOSE = (
    HEAD
    + """.visible .entry transpose(.param .u64 from, .param .u64 to)
{
.reg .b32 %r<12>; .reg .b64 %rd<8>;
.shared .align 16 .b8 tile[PITCH_BYTES];
ld.param.u64 %rd1, [from];
ld.param.u64 %rd2, [to];
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 31;
shr.u32 %r3, %r1, 5;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
ld.global.u32 %r4, [%rd4];
mov.u32 %r5, tile;
mad.lo.u32 %r6, %r3, PITCH, %r5;
mad.lo.u32 %r6, %r2, 4, %r6;
st.shared.u32 [%r6], %r4;
bar.sync 0;
mad.lo.u32 %r7, %r2, PITCH, %r5;
mad.lo.u32 %r7, %r3, 4, %r7;
ld.shared.u32 %r8, [%r7];
add.s64 %rd5, %rd2, %rd3;
st.global.u32 [%rd5], %r8;
ret;
}"""
)
STORE, LOAD, GLOBAL = 19, 23, (15, 25)  # lines


@pytest.mark.parametrize(("pitch", "passes"), [(128, 32), (132, 1), (136, 2)])
def test_a_transposed_tile_conflicts_as_its_pitch_says(pitch, passes):
    """32 warps: in the store a warp writes a row, in the load it reads a column, whose words are a pitch apart."""
    text = TRANSPOSE.replace("PITCH_BYTES", str(32 * pitch)).replace("PITCH", str(pitch))
    left, right = np.arange(1024, dtype=np.uint32), np.zeros(1024, np.uint32)
    profile = wf.ptx.load(text)["transpose"].launch(1, 1024, [left, right]).profile

    assert (right.reshape(32, 32) == left.reshape(32, 32).T).all()
    rows = {row.line: row for row in profile.lines}
    for line, count in ((STORE, 1), (LOAD, passes)):
        assert rows[line].wavefronts == 32 * count
        assert rows[line].conflicts == 32 * (count - 1)
        assert rows[line].read + rows[line].written == 4096
    for line in GLOBAL:
        assert (rows[line].wavefronts, rows[line].conflicts) == (32 * 4, 0)  # 128 bytes are four sectors
    assert {row.instructions for row in profile.lines} == {32}
    assert profile.total.instructions == 32 * len(profile.lines)
    assert profile.by_source[0].text == "no source line"
    assert profile.total.conflicts == 32 * (passes - 1)


def test_guards_vectors_and_loops_are_counted_by_lane_and_visit():
    text = (
        HEAD
        + """.visible .entry k(.param .u64 out)
{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 16;
add.s64 %rd3, %rd1, %rd2;
mov.u32 %r2, 0;
setp.lt.u32 %p1, %r1, 10;
AGAIN:
@%p1 st.global.v4.u32 [%rd3], {%r1, %r2, %r1, %r2};
add.u32 %r2, %r2, 1;
setp.lt.u32 %p2, %r2, 3;
@%p2 bra AGAIN;
ret;
}"""
    )
    run = wf.ptx.load(text)["k"].launch(2, 48, [np.zeros(48 * 4, np.uint32)])
    rows = {row.line: row for row in run.profile.lines}
    warps = 2 * 2  # of two blocks, the second of each half empty
    assert rows[14].instructions == 3 * warps
    assert rows[14].written == 2 * 3 * 10 * 16
    assert rows[14].wavefronts == 2 * 3 * 10 * 16 // 32
    assert rows[7].read == 2 * 48 * 8  # a parameter of every thread
    assert (rows[8].instructions, rows[17].instructions) == (warps, 3 * warps)
    assert run.counts.written == {"global": 960}


@pytest.mark.slow
@pytest.mark.one_engine
def test_tensor_operations_are_those_of_the_product_and_lines_those_of_python():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    profiles = []
    for engine in ("reference", "compiled"):
        run = kernel.launch(**launch, engine=engine)
        profiles.append(run.profile)
    first, second = profiles
    assert first == second
    assert first.total.tensor_operations == 2 * 128 * 128 * 96
    by_source = {row.text: row for row in first.by_source}
    assert by_source["tri.py:27"].tensor_operations == 2 * 128 * 128 * 96
    assert by_source["tri.py:27"].instructions == 2 * 128 * 128 * 96 // (2 * 16 * 8 * 16)
    assert by_source["tri.py:29"].written == 2 * 128 * 128 * 4  # through shared memory, and to C
    assert {row.source: row.instructions for row in first.by_source if row.source} == dict(run.source_counts)
    heads, rows = first.table(limit=3)
    assert heads[:2] == ["source", "instructions"]
    assert [row[0] for row in rows] == ["tri.py:25", "tri.py:26", "tri.py:29"]
    assert str(first).splitlines()[0] == repr(first)[1:-1]
    assert first.table(by="line", sort="tensor_operations", limit=1)[1][0][-1].startswith("mma.sync")
    assert first.to_dict()["by_source"][0]["source"] == "tri.py:19"
    assert "<table>" in first._repr_html_()
    page = build_profile_page(first)
    assert page.count("<table>") == 2
    assert "tri.py:27" in page
    assert "<script" not in page
    assert "3,145,728" in page


@pytest.mark.one_engine
@pytest.mark.parametrize("name", ["c_scan_sm80", "c_mma_s8_sm80", "t_layernorm_sm80", "c_wmma_gemm_sm80"])
def test_both_engines_count_the_same_for_every_line(name):
    kernel, launch, _ = captured(name)
    reference, compiled = (kernel.launch(**launch, engine=engine).profile for engine in ("reference", "compiled"))
    assert reference == compiled
    assert reference.total.read > 0
