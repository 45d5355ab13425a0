"""Where two runs first differ: the line, block and lane are found."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.debugged import captured

pytestmark = pytest.mark.one_engine  # a comparison runs on both


def test_two_architectures_part_in_the_sum_of_an_mma():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    result = wf.ptx.compare(kernel, arch=["sm_80", "sm_90"], **launch | {"grid": 1})

    origin = result.origin
    assert origin.text.startswith("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert (origin.visit, str(origin.source)) == (0, "tri.py:27")
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


def test_reports_can_be_read_and_written():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    same = wf.ptx.compare(kernel, arch=["sm_90", "sm_90a"], **launch | {"grid": 1})
    before = [item.copy() for item in launch["args"] if isinstance(item, np.ndarray)]
    result = wf.ptx.compare(kernel, arch=["sm_80", "sm_90"], **launch | {"grid": 1})

    assert same.equal
    assert same.origin is None
    assert repr(same) == "<Comparison of sm_90 and sm_90a: equal>"
    assert repr(result) == f"<Comparison of sm_80 and sm_90: 1 arguments differ, from line {result.origin.line} on>"
    assert result.to_dict()["origin"]["thread"]["lane"] == result.origin.thread.lane
    assert len(result.to_dict()["outputs"][0]["values"]) == 2
    assert f"origin: line {result.origin.line}" in result._repr_html_()
    after = [item for item in launch["args"] if isinstance(item, np.ndarray)]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))


def test_an_error_ends_the_comparison():
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    arrays = [item[:1] if isinstance(item, np.ndarray) else item for item in launch["args"]]
    result = wf.ptx.compare(kernel, arch=["sm_80", "sm_90"], **launch | {"grid": 1, "args": arrays})
    assert "sm_80 ended with an error" in result.note
    assert not result.equal


@pytest.mark.parametrize("arch", [None, "sm_90", ["sm_80"], ["sm_80", "sm_86", "sm_90"]])
def test_what_is_not_two_runs_is_refused(arch):
    kernel, launch, _ = captured("t_matmul_f16_sm80")
    with pytest.raises(wf.errors.InvalidOperand, match="expected two architectures"):
        wf.ptx.compare(kernel, arch=arch, **launch)
    with pytest.raises(wf.errors.InvalidOperand, match="expected a kernel"):
        wf.ptx.compare([kernel, kernel], arch=["sm_80", "sm_90"], **launch)
