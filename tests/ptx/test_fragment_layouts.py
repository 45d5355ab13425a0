"""wmma on architectures whose fragment layouts were not measured: kernels run, and the run says so."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf

SOURCE = (Path(__file__).parent.parent / "data" / "ptx" / "c_wmma_fragments_sm75.ptx").read_text(encoding="utf-8")
ARCHITECTURES = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
F32 = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
F16 = "wmma.mma.sync.aligned.col.row.m16n16k16.f16.f16"
S8 = "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32"
C = 0.25 * np.arange(256, dtype=np.float32)


def module(arch):
    return wf.ptx.load(SOURCE.replace("sm_75", "sm_70" if arch == "sm_70" else "sm_75"))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_product_with_alpha_and_beta_is_that_of_the_architecture(arch):
    rng = np.random.default_rng(27)
    A, B = (rng.normal(size=(32, 48)).astype(np.float16) for _ in range(2))
    c, d = rng.normal(size=(32, 32)).astype(np.float32), np.zeros((32, 32), np.float32)
    alpha, beta = np.float32(0.7), np.float32(-1.3)
    size = [np.int32(32), np.int32(32), np.int32(48)]
    run = module(arch)["gemm"].launch((1, 2), (64, 1), [A, B, c, d, *size, alpha, beta], arch=arch)

    product = wf.get(F32)
    expected = np.zeros((32, 32), np.float32)
    for row in range(0, 32, 16):
        for col in range(0, 32, 16):
            total = np.zeros((16, 16), np.float32)
            for k in range(0, 48, 16):
                tile = A[row : row + 16, k : k + 16], B[col : col + 16, k : k + 16].T
                total = np.asarray(product(*tile, total, arch=arch))
            scaled = (beta * c[row : row + 16, col : col + 16]).astype(np.float64)
            exact = np.float64(alpha) * total + scaled  # 48 bits and an addition: one rounding for these
            expected[row : row + 16, col : col + 16] = exact.astype(np.float32)
    assert np.array_equal(d, expected)
    assert run.arch == arch
    measured = arch == "sm_90"
    assert measured != any("the wmma fragments" in reason for reason in run.uncertain)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_packed_elements_and_integers_are_followed_too(arch):
    rng = np.random.default_rng(3)
    a, b, d = (rng.normal(size=(32, 16)).astype(np.float16) for _ in range(3))
    module(arch)["halves"].launch(1, 32, [a, b, d, np.int32(32), np.float16(0.5)], arch=arch)
    total = np.zeros((16, 16), np.float16)
    for k in (0, 16):
        total = np.asarray(wf.get(F16)(np.float16(0.5) * a[k : k + 16].T, b[k : k + 16], total, arch=arch))
    wanted = (total.astype(np.float64) * 0.5 - 0.5).astype(np.float16)
    assert np.array_equal(d.reshape(-1)[:256].reshape(16, 16).T, wanted)

    a, b = (rng.integers(-128, 128, size=(16, 16)).astype(np.int8) for _ in range(2))
    out = np.zeros((16, 16), np.int32)
    run = module(arch)["integers"].launch(1, 32, [a, b, out, np.int32(3)], arch=arch)
    assert np.array_equal(out, np.maximum(np.asarray(wf.get(S8)(a, b.T, arch=arch)) >> 3, -5))
    assert bool(run.uncertain) == (arch != "sm_90")


@pytest.mark.one_engine
@pytest.mark.parametrize("entry", ["first_element", "plain_store", "by_lane", "shuffled", "neighbours", "some_lanes"])
def test_a_kernel_that_depends_on_the_layout_is_uncertain_where_it_was_not_measured(entry):
    found = module("sm_80")[entry]

    assert not found.launch(1, 32, [C.copy()], arch="sm_90").uncertain
    uncertain = found.launch(1, 32, [C.copy()], arch="sm_80").uncertain
    assert any("the wmma fragments of sm_80" in reason for reason in uncertain)
