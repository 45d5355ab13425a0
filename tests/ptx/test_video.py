"""Scalar video instructions: an H200's results, in both engines, and errors."""

from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from small_kernel import run

pytestmark = pytest.mark.both_engines

MEASURED = Path(__file__).parents[1] / "data" / "ptx" / "video_h200.npz"


def launch(lines, inputs):
    """What instructions of %r20 from %r0, %r1 and %r2 give, [lines, threads]."""
    threads = inputs.shape[1]
    loads = "".join(f"ld.global.u32 %r{number}, [%d0+{4 * threads * number}];\n" for number in range(3))
    body = "".join(f"{line}\nst.global.u32 [%d1+{4 * threads * at}], %r20;\n" for at, line in enumerate(lines))
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out)
{{
.reg .b32 %r<40>; .reg .b64 %d<4>;
ld.param.u64 %d0, [source]; ld.param.u64 %d1, [out];
mov.u32 %r30, %tid.x; mul.wide.u32 %d2, %r30, 4; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
{loads}{body}ret;
}}"""
    out = np.zeros((len(lines), threads), np.uint32)
    run = wf.ptx.load(text)["k"].launch(grid=1, block=threads, args=[np.ascontiguousarray(inputs), out])
    return out, run


@pytest.mark.one_engine
def test_an_h200_gave():
    with np.load(MEASURED) as file:
        inputs, results = file["inputs"], file["results"]
        lines = file["lines"].tobytes().decode().splitlines()
    found, run = launch(lines, inputs)
    assert len(lines) > 400
    assert [line for line, own, theirs in zip(lines, found, results, strict=True) if (own != theirs).any()] == []
    assert not run.uncertain
    assert run.evidence["vshr.u32.u32.u32.clamp"].gpus == ("NVIDIA H200",)


SEEN = {
    "vadd.u32.u32.u32 %r20, %r0.b1, %r1.h1;": (0x0000_8100, 0x0002_0000, 0, 0x83),
    "vsub.s32.s32.u32 %r20, %r0.b1, %r1.h1;": (0x0000_8100, 0x0002_0000, 0, 0xFFFF_FF7F),
    "vshr.s32.s32.u32.clamp %r20, %r0, %r1;": (0x8000_0000, 40, 0, 0xFFFF_FFFF),
    "vshl.u32.u32.u32.wrap.add %r20, %r0, %r1, %r2;": (3, 33, 100, 106),
    "vmin.u32.u32.u32 %r20.b2, %r0, %r1, %r2;": (0x17, 0x19, 0x1122_3344, 0x1117_3344),
    "vset.s32.u32.lt.max %r20, %r0.b0, %r1, %r2;": (0xFF, 0, 0xFFFF_FFF0, 1),
    "vmad.s32.s32.s32.po %r20, %r0, %r1, %r2;": (7, 0xFFFF_FFFF, 10, 4),
    "vmad.u32.u32.u32 %r20, -%r0.h0, %r1, %r2;": (0xFFFF_0003, 4, 20, 8),
    "vadd.u32.u32.u32 %r20.h1, %r0, %r1, %r2;": (0x0001_0000, 0x7FFF, 0x1111_2222, 0x0001_2222),  # not the low half
    "vadd.u32.u32.u32.sat %r20, %r0, %r1;": (0xFFFF_FFFF, 2, 0, 1),  # .sat does nothing
}


@pytest.mark.parametrize("line", SEEN)
def test_parts_and_second_operations(line):
    *inputs, expected = SEEN[line]
    found, _ = launch([line], np.array(inputs, np.uint32)[:, None])
    assert hex(found[0, 0]) == hex(expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vadd.s32.s32.s32.sat.min %r20, %r0, %r1, %r2;", "differs from the PTX manual"),
        ("vsub.u32.u32.u32.sat %r20.b0, %r0, %r1, %r2;", "differs from the PTX manual"),
        ("vmad.s32.s32.s32.sat %r20, %r0, %r1, %r2;", "differs from the PTX manual"),
        ("vadd.u32.u32.u32 %r20, %r0;", "expected a result and 2 sources"),
        ("vmad.u32.u32.u32 %r20, -%r0, %r1, -%r2;", "expected a result and 3 sources"),
        ("vadd.u32.u32.u32 %r20, -%r0, %r1;", "-%r0"),
        ("vadd.u32.u32.u32 %r20, %r0.b7, %r1;", "%r0.b7"),
        ("add.u32 %r20, -%r0, %r1;", "expected a register, a number or an address, got -%r0"),
    ],
)
def test_refused(line, message):
    with pytest.raises(wf.ptx.PtxError, match=message):
        launch([line], np.zeros((3, 1), np.uint32))


@pytest.mark.parametrize(
    ("name", "a", "b", "left"),
    [
        ("vadd.u32.s32.u32.sat", 0x7F7FFF, 0xFFB06B50, 0x2FEB4F),
        ("vadd.u32.s32.u32.sat", 0x43E00001, 0xC07A218D, 0x45A218E),
        ("vsub.u32.u32.s32.sat", 0xA697FF50, 0x9D5264DA, 0x9459A76),
        ("vadd.u32.u32.s32.sat", 0xFFFFFFFF, 0x7FFF7FFF, 0x7FFF7FFE),
        ("vadd.u32.s32.u32.sat", 0xFFFFFFF0, 1, 0),
    ],
)
def test_sums_of_different_signs_clamp_at_zero_alone(name, a, b, left):
    """The first four results are those of an H200 in random kernels."""
    out, launched = run(
        f"mov.b32 %r5, {a:#x};\nmov.b32 %r6, {b:#x};\n{name} %r7, %r5, %r6;\nst.global.u32 [%rd3], %r7;"
    )

    assert set(out.tolist()) == {left}
    assert not launched.uncertain
