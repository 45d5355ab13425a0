"""Where two runs first differ: planted changes are found with their line, block and lane."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.debugged import captured

pytestmark = pytest.mark.one_engine  # a comparison runs on both

PLANTED = {  # kernel: what is changed, the how many-th of its kind, and into what
    "t_add_sm80": ("add.f32", 1, "sub.f32"),
    "t_softmax_sm80": ("max.f32", 0, "min.f32"),
    "t_layernorm_sm80": ("mul.f32", 2, "add.f32"),
    "t_hist_sm80": ("shl.b32", 0, "shr.u32"),
    "c_reduce_sm80": ("add.f32", 1, "sub.f32"),
    "c_scan_sm80": ("add.s32", 2, "sub.s32"),
    "c_mma_s8_sm80": (".s32.s8.s8.s32", 0, ".s32.u8.s8.s32"),
}


def replaced(text, old, number, new):
    """The text with one occurrence changed, and its line."""
    at = -1
    for _ in range(number + 1):
        at = text.index(old, at + 1)
    return text[:at] + new + text[at + len(old) :], text.count("\n", 0, at) + 1


def planted(name):
    lines = []

    def change(text):
        text, line = replaced(text, *PLANTED[name])
        lines.append(line)
        return text

    kernel, launch, _ = captured(name)
    other, _, _ = captured(name, change)
    return kernel, other, launch, lines[0]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_traced_to_its_line_block_and_lane(name):
    kernel, other, launch, line = planted(name)
    before = [item.copy() for item in launch["args"] if isinstance(item, np.ndarray)]
    result = wf.ptx.compare([kernel, other], **launch)

    assert not result.equal
    assert result.outputs
    assert result.outputs[0].count > 0
    origin = result.origin
    assert (origin.line, bool(origin.other)) == (line, True)
    assert all((old == new).all() for old, new in zip(before, _arrays(launch), strict=True))
    # a debugger sees the same at that place: equal operands before, those two results behind it
    block, warp, lane = origin.thread
    seen = []
    for side in (kernel, other):
        with side.debug(**launch) as d:
            d.break_at(line=line, block=block, warp=warp, condition=lambda d, v=origin.visit: d.visit >= v)
            d.run()
            sources = [d.register(item.name)[lane] for item in d.instruction.sources if hasattr(item, "bits")]
            name_of_result = origin.name
            d.step()
            seen.append((sources, int(d.register(name_of_result)[lane])))
    assert seen[0][0] == seen[1][0]
    assert (seen[0][1], seen[1][1]) == origin.codes


def _arrays(launch):
    return [item for item in launch["args"] if isinstance(item, np.ndarray)]


def test_two_architectures_part_in_the_sum_of_an_mma():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    result = wf.ptx.compare(kernel, arch=["sm_80", "sm_90"], **launch | {"grid": 1})

    origin = result.origin
    assert origin.text.startswith("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert (origin.visit, origin.other, str(origin.source)) == (0, "", "tri.py:27")
    left, right = (np.uint32(code).view(np.float32) for code in origin.codes)
    assert left != right
    assert abs(left - right) <= 2 * np.spacing(max(abs(left), abs(right)))
    assert result.sides == ("sm_80", "sm_90")
    assert result.outputs[0].argument == 2
    with kernel.debug(**launch | {"grid": 1}) as d:  # its inputs, multiplied on both
        d.break_at(line=origin.line, warp=origin.thread.warp)
        d.run()
        a, b, c = (d.matrix(role) for role in "abc")
        mma = wf.get(d.instruction.name)
        place = mma.d.layout.at(lane=origin.thread.lane, reg=0, slot=0)
        sums = [mma(a, b, c, arch=arch)[place] for arch in ("sm_80", "sm_90")]
        assert sums == [left, right]


BRANCH = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<3>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd3, %rd1, %rd2;
xor.b32 %r2, %r1, 5;
setp.lt.u32 %p1, %r2, 20;
@%p1 bra SMALL;
add.u32 %r2, %r2, 1;
SMALL:
st.global.u32 [%rd3], %r2;
ret;
}"""


def versions(old, new):
    return [wf.ptx.load(text)["k"] for text in (BRANCH, BRANCH.replace(old, new))]


def test_the_origin_of_different_paths_is_found():
    out = np.zeros(32, np.uint32)
    result = wf.ptx.compare(versions("%r2, 20", "%r2, 21"), [out], grid=1, block=32)

    assert result.note == "the runs take different paths: line 14 is reached by different lanes"
    assert result.origin.line == 12
    assert (result.origin.name, result.origin.codes) == ("%p1", (0, 1))
    assert result.origin.thread == ((0, 0, 0), 0, 20 ^ 5)
    assert (result.outputs[0].index, result.outputs[0].values) == ((17,), (21, 20))
    assert "line 12: setp.lt.u32 %p1, %r2, 20; the other side has setp.lt.u32 %p1, %r2, 21" in str(result)


def test_an_instruction_of_one_side_alone_is_an_origin_too():
    out = np.zeros(32, np.uint32)
    kernels = versions("SMALL:\n", "SMALL:\nadd.u32 %r2, %r2, 1;\n")
    for pair, line, other in ((kernels, 16, "nothing"), (kernels[::-1], 16, "nothing")):
        result = wf.ptx.compare(pair, [out], grid=1, block=32)
        assert (result.origin.line, result.origin.other) == (line, other)
        assert result.outputs[0].count == 32
    assert not out.any()


def test_reports_can_be_read_and_written():
    out = np.zeros(32, np.uint32)
    same = wf.ptx.compare(versions("", ""), [out], grid=1, block=32)
    assert same.equal
    assert same.origin is None
    assert repr(same) == "<Comparison of k (first) and k (second): equal>"
    result = wf.ptx.compare(versions("%r1, 5", "%r1, 4"), [out], grid=1, block=32)
    assert repr(result) == "<Comparison of k (first) and k (second): 1 arguments differ, from line 11 on>"
    assert result.to_dict()["origin"]["thread"]["lane"] == 0
    assert result.to_dict()["outputs"][0]["values"] == [5, 4]
    assert "setp" not in str(result)
    assert "origin: line 11" in result._repr_html_()
    failing = wf.ptx.compare(
        versions("mul.wide.u32 %rd2, %r1, 4", "mul.wide.u32 %rd2, %r1, 8"), [out], grid=1, block=32
    )
    assert "k (second) ended with an error: line 16: st.global.u32 by thread (16, 0, 0)" in failing.note
    assert failing.origin.line == 9


@pytest.mark.parametrize(
    ("kernels", "arch", "words"),
    [
        (1, None, "two kernels, or two architectures"),
        (1, ["sm_80", "sm_86", "sm_90"], "two kernels, or two architectures"),
        (3, None, "a kernel, or two of them"),
        (0, None, "a kernel, or two of them"),
    ],
)
def test_what_is_not_two_runs_is_refused(kernels, arch, words):
    with pytest.raises(wf.errors.InvalidOperand, match=words):
        wf.ptx.compare([versions("", "")[0]] * kernels, [np.zeros(32, np.uint32)], grid=1, block=32, arch=arch)


def test_kernels_that_share_little_are_not_traced():
    other = wf.ptx.load(BRANCH.split("ld.param", maxsplit=1)[0] + "ret;\n}")["k"]
    result = wf.ptx.compare([versions("", "")[0], other], [np.zeros(32, np.uint32)], grid=1, block=32)
    assert "too different to be run side by side" in result.note
    assert result.outputs[0].count == 31
