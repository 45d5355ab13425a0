"""tcgen05 on a GPU, with the PTX machine in its place: verify, captures, and the open points."""

import json

import numpy as np
import pytest

from warpfrag.cli import main
from warpfrag.cli.installation_verbs import _differing_tiles
from warpfrag.errors import NotModelled
from warpfrag.hardware import open_points, verification
from warpfrag.hardware.launches import WIDTH, TensorLaunch
from warpfrag.hardware.open_points import POINTS, expected_words, settle
from warpfrag.hardware.verification import verify
from warpfrag.tensorcore.captures.capture import open_capture

MMA = "tcgen05.mma"
F16 = f"{MMA}.cta_group::1.kind::f16.m64n16k16.f32.f16.f16"
I8 = f"{MMA}.sp.cta_group::2.kind::i8.m128n32k64.s32.s8.u8"
SPARSE = f"{MMA}.sp.cta_group::1.kind::f16.m64n16k32.f32.f16.f16"
SCALED = f"{MMA}.cta_group::1.kind::mxf4.block_scale.m128n16k64.f32.e2m1.e2m1.ue8m0"


class Pretended:
    """A B200 that computes as the PTX machine does, but for one bit where a test asks for it."""

    wrong_on = ""

    def __init__(self, device):
        del device
        self.about = {"device": "a pretended B200", "arch": "sm_100", "target": "sm_100a"}
        self.about |= {"driver": "1", "assembler": "none"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run(self, name, how, launch):
        del how
        assert isinstance(launch, TensorLaunch)
        words = expected_words(launch, "sm_100a")
        if name == self.wrong_on:
            words[..., 5, 1] ^= 1
        return words


@pytest.fixture
def gpu(monkeypatch):
    fresh = type("Fresh", (Pretended,), {})
    monkeypatch.setattr(verification, "Worker", fresh)
    monkeypatch.setattr(open_points, "Worker", fresh)
    return fresh


@pytest.mark.slow
def test_products_are_compared_and_captured(gpu, tmp_path):
    """The kernel that runs is the emitted one; what has no model is captured all the same."""
    path = tmp_path / "b200.npz"
    report = verify([F16, I8, SPARSE, SCALED], cases=1, capture=path)
    assert [line.instruction for line in report.lines] == [F16, I8, SPARSE, SCALED]
    assert [line.equal for line in report.lines] == [True, True, False, True]
    assert "nobody has published" in report.skipped[0].skip_reason
    assert min(line.cases for line in report.lines if line.equal) >= 2
    captured = list(open_capture(path).cases())
    assert {case.instruction for case in captured} == {F16, I8, SPARSE, SCALED}
    for case in captured:
        if case.instruction == SPARSE:
            with pytest.raises(NotModelled):
                _differing_tiles(case, "sm_100")
        else:
            assert _differing_tiles(case, "sm_100") == 0
    gpu.wrong_on = F16
    mismatch = verify(F16, cases=1).lines[0].mismatches[0]
    assert (mismatch.lane, mismatch.word) == (5, 1)


def test_what_runs_unless_some_are_named():
    jobs = verification._jobs(None, "", "sm_100a")
    products = [instruction for instruction, _ in jobs if instruction.op.startswith(MMA)]
    assert {instruction.shape.n for instruction in products} == {WIDTH}
    assert len(products) > 300


@pytest.mark.slow
def test_open_points_are_settled_by_one_command(gpu, tmp_path, capsys, monkeypatch):
    path = tmp_path / "points.npz"
    assert main(["verify", "--open-points", "--capture", str(path)]) == 1  # k 96 is for an sm_103
    out = capsys.readouterr().out
    assert out.count("settled, all ") == len(POINTS) - 1
    assert "k 96: sm_100a cannot answer it; sm_103a can" in out
    with np.load(path) as kept:
        assert kept["fp6 holder/hardware"].shape == (128, 64)
        assert kept["pair of blocks/hardware"].shape == (2, 128, 64)
    gpu.wrong_on = "lanes of shift"
    monkeypatch.setattr(open_points, "POINTS", [point for point in POINTS if point.name == gpu.wrong_on])
    (wrong,) = settle()
    assert (wrong.words, wrong.equal) == (128 * 64, 128 * 64 - 1)
    assert "first at lane 5, column 1: hardware" in str(wrong)
    capsys.readouterr()
    assert main(["verify", "--open-points", "--json"]) == 1
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert (point["name"], point["words"] - point["equal"]) == (gpu.wrong_on, 1)
    assert main(["verify", "--open-points", "--only", "mma"]) == 2
    launch = next(point for point in POINTS if point.name == "k 96").make("sm_103a")
    assert expected_words(launch, "sm_103a").any()
