"""wmma on architectures whose fragments nobody has measured: what does not depend on the layout runs, the rest not."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from small_kernel import kernel

SOURCE = (Path(__file__).parent.parent / "data" / "ptx" / "c_wmma_fragments_sm75.ptx").read_text(encoding="utf-8")
ARCHITECTURES = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
F32 = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
F16 = "wmma.mma.sync.aligned.col.row.m16n16k16.f16.f16"
S8 = "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32"
C = 0.25 * np.arange(256, dtype=np.float32)
LOAD = (
    "mov.u32 %r5, 16;\n"
    "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%rd1], %r5;\n"
)
STORE = "\nwmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, %r5;"
DOUBLED = "\n".join(f"mul.rn.f32 %f{index}, %f{index}, 0f40000000;" for index in range(8))

GUARDED = "\n".join("@%p1 " + line for line in DOUBLED.splitlines())


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
    assert not run.uncertain
    assert run.arch == arch


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
    assert not run.uncertain


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("entry", "arrays", "reason"),
    [
        ("first_element", 1, "wmma.store.*the elements of d are not all computed in one way"),
        ("plain_store", 1, "st.global.f32.*shows which lane and register"),
        ("by_lane", 1, "add.f32.*with a value that differs between lanes"),
        ("shuffled", 1, "shfl.sync.*shows which lane and register"),
        ("neighbours", 1, "add.f32.*elements of a fragment at different places"),
        ("branched", 2, "bra .*shows which lane and register"),
        ("some_lanes", 1, "fma.rn.f32.*part of a warp may run it"),
        ("narrowed", 2, "mov.b32.*elements of a fragment at different places"),
        ("swapped", 1, "wmma.store.*register 0 of d is not that register of a fragment"),
    ],
)
def test_what_looks_at_the_layout_runs_where_it_was_measured_and_is_refused_elsewhere(entry, arrays, reason):
    found = module("sm_80")[entry]
    args = [C.copy() for _ in range(arrays)]

    with pytest.raises(
        wf.NotModelled, match=rf"line \d+: .*{reason}.*; there is no measurement of the wmma fragments of sm_80"
    ):
        found.launch(1, 32, args, arch="sm_80")
    assert np.array_equal(args[0], C)
    found.launch(1, 32, args, arch="sm_90")


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("body", "is_free"),
    [
        (LOAD + DOUBLED + STORE, True),
        # a loop that all lanes run as often, around all elements, or around some
        (LOAD + "mov.u32 %r6, 0;\nAGAIN:\n" + DOUBLED + "\nadd.u32 %r6, %r6, 1;\nsetp.lt.u32 %p1, %r6, 3;\n"
         "@%p1 bra AGAIN;" + STORE, True),
        (LOAD + "mov.u32 %r6, 0;\nAGAIN:\n" + DOUBLED.partition("\n")[2] + "\nadd.u32 %r6, %r6, 1;\n"
         "setp.lt.u32 %p1, %r6, 3;\n@%p1 bra AGAIN;" + STORE, False),
        (LOAD + "mov.u32 %r6, 0;\nAGAIN:\n" + DOUBLED + "\nadd.u32 %r6, %r6, 1;\nsetp.lt.u32 %p1, %r6, %r1;\n"
         "@%p1 bra AGAIN;" + STORE, False),
        # a choice for each element by itself, and one by the first for all
        (LOAD + "\n".join(f"setp.gt.f32 %p1, %f{index}, 0f41000000;\n@%p1 mov.f32 %f{index}, 0f00000000;"
                          for index in range(8)) + STORE, True),
        (LOAD + "setp.gt.f32 %p1, %f0, 0f41000000;\n"
         + "\n".join(f"@%p1 mov.f32 %f{index}, 0f00000000;" for index in range(8)) + STORE, False),
        # one that is the same for the whole warp, by a branch and by a guard
        (LOAD + "setp.gt.u32 %p1, %r2, 3;\n@%p1 bra AFTER;\n" + DOUBLED + "\nAFTER:" + STORE, True),
        (LOAD + "setp.gt.u32 %p1, %r1, 3;\n@%p1 bra AFTER;\n" + DOUBLED + "\nAFTER:" + STORE, False),
        (LOAD + "setp.gt.u32 %p1, %r2, 3;\n" + GUARDED + STORE, True),
        (LOAD + "setp.gt.u32 %p1, %r1, 3;\n" + GUARDED + STORE, False),
        # a scalar that all lanes read, and one of their own
        (LOAD + "ld.global.f32 %f8, [%rd1];\n" + DOUBLED.replace("0f40000000", "%f8") + STORE, True),
        (LOAD + "ld.global.f32 %f8, [%rd3];\n" + DOUBLED.replace("0f40000000", "%f8") + STORE, False),
        # registers that are no fragment, or all equal
        ("mov.u32 %r5, 16;\n" + "\n".join(f"mov.f32 %f{index}, 0f40000000;" for index in range(8)) + STORE, True),
        ("mov.u32 %r5, 16;\n" + "\n".join(f"cvt.rn.f32.u32 %f{index}, %r1;" for index in range(8)) + STORE, False),
        (LOAD + "call.uni change, (%r5);" + STORE, False),
        (LOAD + ".local .f32 kept;\nst.local.f32 [kept], %f0;\nld.local.f32 %f0, [kept];" + STORE, False),
    ],
)  # fmt: skip
def test_flows_that_keep_elements_apart_are_told_from_others(body, is_free):
    text = kernel(body, before=".func change(.reg .b32 %a) { ret; }", registers=".reg .f32 %f8;")
    launch = wf.ptx.load(text)["k"].launch

    if is_free:
        assert not launch(1, 32, [C.copy()], arch="sm_100").uncertain
    else:
        with pytest.raises(wf.NotModelled, match="there is no measurement of the wmma fragments of sm_100"):
            launch(1, 32, [C.copy()], arch="sm_100")
