"""tcgen05 on a GPU, replaced by the PTX machine: verify and captures."""

import warnings

import pytest

from warpfrag.cli.installation_verbs import _differing_tiles
from warpfrag.errors import NotModelled
from warpfrag.hardware import verification
from warpfrag.hardware.launches import WIDTH, TensorLaunch
from warpfrag.hardware.verification import verify
from warpfrag.ptx.ptx_module import load
from warpfrag.tensorcore.captures.capture import open_capture

MMA = "tcgen05.mma"
F16 = f"{MMA}.cta_group::1.kind::f16.m64n16k16.f32.f16.f16"
I8 = f"{MMA}.sp.cta_group::2.kind::i8.m128n32k64.s32.s8.u8"
SPARSE = f"{MMA}.sp.cta_group::1.kind::f16.m64n16k32.f32.f16.f16"
SCALED = f"{MMA}.cta_group::1.kind::mxf4.block_scale.m128n16k64.f32.e2m1.e2m1.ue8m0"


class Pretended:
    """A B200 that computes like the PTX machine, except for one bit that a test requests."""

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
        arrays = {name: array.copy() for name, array in launch.arrays.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(launch.text)[launch.entry].launch(launch.blocks, 128, [*arrays.values()], arch="sm_100a")
        words = arrays[launch.result]
        if name == self.wrong_on:
            words[..., 5, 1] ^= 1
        return words


@pytest.fixture
def gpu(monkeypatch):
    fresh = type("Fresh", (Pretended,), {})
    monkeypatch.setattr(verification, "Worker", fresh)
    return fresh


@pytest.mark.slow
def test_products_are_compared_and_captured(gpu, tmp_path):
    """The emitted kernel runs; results without a model are captured too."""
    path = tmp_path / "b200.npz"
    report = verify([F16, I8, SPARSE, SCALED], cases=1, capture=path)
    assert [line.instruction for line in report.lines] == [F16, I8, SPARSE, SCALED]
    assert [line.equal for line in report.lines] == [True, True, False, True]
    assert "not published" in report.skipped[0].skip_reason
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
