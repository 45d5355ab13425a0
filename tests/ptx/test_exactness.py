"""Evidence for one architecture, and the lines whose results are uncertain."""

import numpy as np
import pytest

import warpfrag as wf
from ptx.lines import run_lines
from small_kernel import kernel
from warpfrag.machine.launch.options import runs_on
from warpfrag.machine.launch.run import PTX_REASON

SUM = """cvt.rn.f32.u32 %f1, %r1;
mul.f32 %f2, %f1, 0f3F800001;
sub.f32 %f4, %f2, %f1;
st.global.f32 [%rd3], %f4;"""


def run(body, target="sm_90", **options):
    out = np.zeros(64, np.uint32)
    module = wf.ptx.load(kernel(body).replace(".target sm_90", f".target {target}"))
    return module["k"].launch(1, 64, [out], **options), out


@pytest.mark.one_engine
def test_a_module_runs_on_its_own_architecture_and_later_ones_unless_a_suffix_ties_it():
    assert runs_on("sm_52", "sm_90")
    assert [arch for arch in ("sm_90", "sm_90a", "sm_100", "sm_120") if runs_on("sm_90a", arch)] == ["sm_90", "sm_90a"]
    assert [arch for arch in ("sm_100", "sm_103", "sm_110", "sm_120") if runs_on("sm_100f", arch)] == [
        "sm_100",
        "sm_103",
    ]
    assert not runs_on("sm_120", "sm_90")
    assert not runs_on("sm_90", "H100")


@pytest.mark.parametrize(
    ("target", "arch", "expected"),
    [("sm_80", None, "sm_90"), ("sm_52", None, "sm_90"), ("sm_90a", None, "sm_90"), ("sm_120", None, "sm_120"),
     ("sm_80", "A100", "sm_80"), ("sm_100a", None, "sm_100a"), ("sm_120", "sm_121", "sm_121")],
)  # fmt: skip
def test_a_launch_is_for_one_architecture_and_says_which(target, arch, expected):
    launched, _ = run("st.global.u32 [%rd3], %r1;", target, arch=arch)

    assert launched.arch == expected
    assert not launched.uncertain
    assert launched.inexact == (f"{PTX_REASON} (the level is ptx)",)
    assert (launched.basis, launched.exact) == ("ptx", False)
    assert repr(launched).startswith(f"<Run: PTX semantics for {expected}, ")
    levels = {known.level for known in launched.evidence.values()}
    assert ("hardware" in levels) == (expected == "sm_90")


@pytest.mark.parametrize(("target", "arch"), [("sm_120", "sm_90"), ("sm_90a", "sm_100"), ("sm_80", "sm_75")])
def test_a_module_that_no_such_gpu_runs_is_not_modelled(target, arch):
    launched, out = run("st.global.u32 [%rd3], %r1;", target, arch=arch)

    assert out.tolist() == list(range(64))
    assert launched.uncertain
    assert launched.inexact_opcodes == [f".target {target}"]
    assert launched.evidence[f".target {target}"].detail == f"{arch} cannot run a module for this target"


@pytest.mark.one_engine
def test_a_gpu_proves_opcodes_for_its_own_architecture_alone():
    body = "ex2.approx.ftz.f32 %f1, 0f3F000000;\nst.global.f32 [%rd3], %f1;"
    of_target = {
        target: wf.ptx.load(kernel(body).replace("sm_90", target))["k"].opcodes
        for target in ("sm_52", "sm_80", "sm_90")
    }

    assert of_target["sm_90"]["mad.lo.s32"].gpus == ("NVIDIA H200",)
    assert of_target["sm_90"]["ex2.approx.ftz.f32"].level == "hardware"
    for target in ("sm_52", "sm_80"):
        assert {known.gpus for known in of_target[target].values()} == {()}
        assert of_target[target]["ex2.approx.ftz.f32"].level == "approximate"
        assert of_target[target]["st.global.f32"].level == "specified"
    assert run(body, "sm_80", arch="sm_80")[0].uncertain
    assert not run(body, "sm_80")[0].uncertain


def test_a_product_and_a_sum_are_fused_unless_the_module_is_for_debugging():
    x = np.arange(64, dtype=np.float32)
    factor = np.uint32(0x3F800001).view(np.float32)
    fused = (x.astype(np.float64) * np.float64(factor) - x).astype(np.float32)
    apart = x * factor - x

    assert np.array_equal(run(SUM)[1].view(np.float32), fused)
    assert np.array_equal(run(SUM, "sm_90, debug")[1].view(np.float32), apart)
    assert np.array_equal(run(SUM.replace("mul.f32", "mul.rn.f32"))[1].view(np.float32), apart)
    assert not np.array_equal(fused, apart)


def test_different_nans_in_f64_are_named():
    values = {"%d0": 0x7FF8000000000001, "%d1": 0xFFF8000000000002}
    line = "add.rn.f64 %d4, %d0, %d1;"
    _, launched = run_lines(line, values, "%d4")
    assert [item.source for item in launched.inexact_lines] == [line.removesuffix(";")]
    for other in (0xFFF8000000000002, 0xFFF0000000000002, 0x3FF0000000000000):
        assert not run_lines(line, {**values, "%d0": other}, "%d4")[1].uncertain


def test_generic_sums_in_shared_memory_do_not_flush():
    code = "mov.u64 %d4, memory; cvta.shared.u64 %d4, %d4; st.shared.b32 [memory], 0; red.add.f32 [%d4], %r0;"
    assert run_lines(f"{code} ld.shared.b32 %r4, [memory];", {"%r0": 1}, "%r4")[0] == 1


OVERLAPS = {
    "two warps at one address": ("st.global.u32 [%rd1], %r1;", True),
    "two warps with equal values": ("mov.u32 %r5, 7;\nst.global.u32 [%rd1], %r5;", False),
    "twice, each time equal": (
        "mov.u32 %r5, 7;\nst.global.u32 [%rd1], %r5;\nadd.u32 %r5, %r5, 1;\nst.global.u32 [%rd1], %r5;",
        False,
    ),
    "one thread of each warp": (
        "and.b32 %r5, %r1, 31;\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 st.global.u32 [%rd1], %r1;",
        True,
    ),
    "a barrier between them": (
        (
            "setp.lt.u32 %p1, %r1, 1;\n@%p1 st.global.u32 [%rd1], %r1;\nbar.sync 0;\n"
            "setp.gt.u32 %p2, %r1, 62;\n@%p2 st.global.u32 [%rd1], %r1;"
        ),
        False,
    ),
    "a barrier that came before": (
        (
            "bar.sync 0;\nsetp.lt.u32 %p1, %r1, 1;\n@%p1 st.global.u32 [%rd1], %r1;\n"
            "setp.gt.u32 %p2, %r1, 62;\n@%p2 st.global.u32 [%rd1], %r1;"
        ),
        True,
    ),
    "instructions of one warp": (
        (
            "setp.lt.u32 %p1, %r1, 1;\n@%p1 st.global.u32 [%rd1], %r1;\nsetp.eq.u32 %p2, %r1, 31;\n"
            "@%p2 st.global.u32 [%rd1], %r1;"
        ),
        False,
    ),
    "neighbouring bytes": (
        "add.u64 %rd4, %rd1, 3;\ncvt.u64.u32 %rd5, %r1;\nadd.u64 %rd4, %rd4, %rd5;\nst.global.u8 [%rd4], %r1;",
        False,
    ),
    "one byte": (
        (
            "shr.u32 %r5, %r1, 5;\nshl.b32 %r6, %r1, 27;\nshr.u32 %r6, %r6, 27;\nadd.u32 %r5, %r5, %r6;\n"
            "cvt.u64.u32 %rd5, %r5;\nadd.u64 %rd4, %rd1, %rd5;\nst.global.u8 [%rd4], %r6;"
        ),
        True,
    ),
    "halves of words": ("mul.wide.u32 %rd5, %r1, 2;\nadd.u64 %rd4, %rd1, %rd5;\nst.global.u16 [%rd4], %r1;", False),
    "a vector over a word": (
        (
            "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};\nsetp.eq.u32 %p2, %r1, 33;\n"
            "@%p2 st.global.u32 [%rd1+12], %r1;"
        ),
        True,
    ),
    "shared memory": (".shared .b32 word;\nst.shared.u32 [word], %r1;", True),
    "shared memory, generic": (
        ".shared .b32 word;\nmov.u64 %rd4, word;\ncvta.shared.u64 %rd4, %rd4;\nst.u32 [%rd4], %r1;",
        True,
    ),
    "shared memory, a barrier of some": (
        (
            ".shared .b32 word;\nsetp.lt.u32 %p1, %r1, 1;\n@%p1 st.shared.u32 [word], %r1;\nbar.sync 1, 64;\n"
            "setp.gt.u32 %p2, %r1, 62;\n@%p2 st.shared.u32 [word], %r1;"
        ),
        False,
    ),
    "local memory": (".local .b32 word;\nst.local.u32 [word], %r1;", False),
    "a flag that was waited for": (
        (
            "setp.gt.u32 %p1, %r1, 31;\n@%p1 bra SECOND;\nsetp.ne.u32 %p2, %r1, 0;\n@%p2 ret;\n"
            "st.global.u32 [%rd1], %r1;\nst.release.gpu.global.u32 [%rd1+4], 1;\nret;\nSECOND:\n"
            "setp.ne.u32 %p2, %r1, 32;\n@%p2 ret;\n"
            "WAIT:\nld.acquire.gpu.global.u32 %r5, [%rd1+4];\nsetp.eq.u32 %p3, %r5, 0;\n@%p3 bra WAIT;\n"
            "st.global.u32 [%rd1], %r1;"
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_stores_that_overlap_with_nothing_between_them_are_uncertain(name):
    body, expected = OVERLAPS[name]
    launched, _ = run(body)

    assert bool(launched.uncertain) == expected
    assert bool(launched.inexact_lines) == expected
    assert all("st." in item.source and "several threads" in item.reason for item in launched.inexact_lines)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("st.global.u32 [%rd1], %r2;", True),
        ("mov.u32 %r5, 3;\nst.global.u32 [%rd1], %r5;", False),
        ("st.global.u32 [%rd3], %r2;", False),
        (".shared .b32 word;\nst.shared.u32 [word], %r2;", False),
        ("atom.global.add.u32 %r5, [%rd1], 1;\nst.global.u32 [%rd1+8], %r5;", False),
    ],
)  # fmt: skip
def test_stores_of_blocks_overlap_unless_one_has_waited_for_the_other(body, expected, threads):
    out = np.zeros(600 * 32, np.uint32)
    launched = wf.ptx.load(kernel("setp.ne.u32 %p1, %r1, 0;\n@%p1 ret;\n" + body))["k"].launch(
        600, 32, [out], options=wf.ptx.LaunchOptions(threads=threads)
    )

    assert bool(launched.uncertain) == expected
