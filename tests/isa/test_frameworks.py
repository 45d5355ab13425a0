"""Names of frameworks: each is recognised, and stands for the instructions that say what it says."""

from __future__ import annotations

import pytest

import warpfrag as wf
from warpfrag.isa.aliases import meaning
from warpfrag.isa.instruction_names import spell

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16"
CUTLASS = (
    "cutlass::arch::Mma<gemm::GemmShape<16, 8, 16>, 32, half_t, layout::RowMajor, half_t, layout::ColumnMajor, "
    "float, layout::RowMajor, OpMultiplyAdd>"
)
NVVM = (
    "nvvm.wgmma.mma_async %a, %b, %r, #nvvm.shape<m = 64, n = 32, k = 16>, D [%r, #nvvm.wgmma_scale_out<zero>], "
    "A [<f16>, #nvvm.wgmma_scale_in<one>, <row>], B [<f16>, #nvvm.wgmma_scale_in<one>, <col>]"
)
NVGPU = "nvgpu.warpgroup.mma %a, %b, %c : <tensor = memref<128x64xbf16, 3>>, <tensor = memref<64x128xbf16, 3>>"
FRAGMENTS = "wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a; wmma::mma_sync(c, a, b, c);"
TRITON = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>"
CASES = {
    CUTLASS: ("cutlass", {MMA}, set()),
    NVVM: ("mlir", {WGMMA}, {WGMMA.replace("n32", "n64")}),
    NVGPU: ("mlir", {WGMMA.replace("f16.f16", "bf16.bf16")}, {WGMMA}),
    "nvgpu.warpgroup.mma": ("mlir", {WGMMA}, {MMA}),
    "wmma::mma_sync(c, a, b, c)": ("cuda", {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"}, {MMA}),
    FRAGMENTS: (
        "cuda",
        {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"},
        {"wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32"},
    ),
    "__hmma_m16n16k16_mma_f32f32": (
        "cuda",
        {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"},
        {"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32"},
    ),
    "__imma_m16n16k16_mma_s8": ("cuda", {"wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32"}, set()),
    "__hmma_m32n8k16_ld_a": ("cuda", set(), {"wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32"}),
    TRITON: ("triton", {MMA}, {WGMMA, "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"}),
    "#ttg.nvidia_mma<{versionMajor = 3, instrShape = [16, 32, 16]}>": ("triton", {WGMMA}, {MMA}),
    f"#ttg.dot_op<{{opIdx = 0, parent = {TRITON}, kWidth = 2}}>": (
        "triton",
        {MMA},
        {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"},
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_a_name_means_the_instructions_that_say_what_it_says(text):
    notation, among, not_among = CASES[text]
    meant = meaning(text)
    names = {spell(form) for form in meant.forms}

    assert meant.notation == notation
    assert names
    assert among <= names
    assert not not_among & names


def test_get_takes_a_name_that_means_one_instruction():
    assert wf.get(CUTLASS).name == MMA
    with pytest.raises(wf.IllegalInstruction):
        wf.get("wmma::mma_sync")
