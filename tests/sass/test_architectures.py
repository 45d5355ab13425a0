"""Machine code for other architectures: the same results as the PTX machine. Only sm_90 was compared with a GPU."""

import numpy as np
import pytest

import warpfrag as wf
from oracle import toolkit

pytestmark = pytest.mark.one_engine  # each launch names its own
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
INDEX = """
    .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<4>; .reg .f32 %f<12>; .reg .b64 %at;
    .reg .f64 %e<4>; .reg .b32 %s;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
    ld.param.u64 %d0, [data];
"""
LOOP = """
    mul.wide.u32 %at, %r3, 4; add.u64 %d0, %d0, %at; mov.u32 %r4, 0; mov.u32 %r5, %r0;
    LOOP: setp.eq.u32 %p0, %r5, 0; @%p0 bra DONE; mad.lo.u32 %r4, %r4, 3, %r5; sub.u32 %r5, %r5, 1; bra LOOP;
    DONE: setp.gt.u32 %p1, %r4, 100; vote.sync.ballot.b32 %r6, %p1, 0xffffffff; xor.b32 %r4, %r4, %r6;
    st.global.b32 [%d0], %r4;"""
MIXED = """
    .shared .b32 area[256]; mul.wide.u32 %at, %r3, 4; add.u64 %d0, %d0, %at; ld.global.b32 %r4, [%d0];
    mov.u32 %s, area; shl.b32 %r5, %r0, 2; add.u32 %s, %s, %r5; st.shared.b32 [%s], %r4; bar.sync 0;
    xor.b32 %r5, %r5, 12; mov.u32 %s, area; add.u32 %s, %s, %r5; ld.shared.b32 %r6, [%s];
    shfl.sync.bfly.b32 %r7, %r6, 5, 31, -1; popc.b32 %r8, %r7; clz.b32 %r9, %r4; add.u32 %r6, %r6, %r8;
    mad.lo.u32 %r6, %r6, %r9, %r7; cvt.rn.f32.u32 %f0, %r6; sqrt.rn.f32 %f1, %f0; div.rn.f32 %f2, %f1, 0f40400000;
    cvt.f64.f32 %e0, %f2; mul.f64 %e1, %e0, %e0; cvt.rn.f32.f64 %f3, %e1;
    prmt.b32 %r10, %r6, %r7, 0x4152; dp4a.s32.s32 %r11, %r6, %r7, %r10; st.global.f32 [%d0], %f3; membar.gl;
    red.global.xor.b32 [%d0], %r11;"""
MATRIX = """
    mul.wide.u32 %at, %r3, 16; add.u64 %d0, %d0, %at; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d0];
    and.b32 %r4, %r4, 0x3fff3fff; and.b32 %r5, %r5, 0x3fff3fff; and.b32 %r6, %r6, 0x3fff3fff; mov.f32 %f0, 0f3f800000;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {%r4, %r5}, {%r6}, {%f0, %f0, %f0, %f0};
    st.global.v4.f32 [%d0], {%f4, %f5, %f6, %f7};"""


CASES = [(arch, body) for body in (LOOP, MIXED, MATRIX) for arch in ARCHITECTURES if (arch, body) != ("sm_120", MIXED)]


@pytest.mark.parametrize(("arch", "body"), CASES)  # sm_120 computes the division with UFFMA, which is not modelled
def test_machine_code_leaves_what_ptx_leaves(arch, body):
    toolkit.find_ptxas(arch)
    toolkit.programs("nvdisasm") or toolkit.absent("no nvdisasm: install nvidia-cuda-nvdisasm>=13.4")
    version = "8.7" if arch in {"sm_100", "sm_120"} else "7.0" if arch < "sm_86" else "7.8"
    head = f".version {version}\n.target {arch}\n.address_size 64\n.visible .entry k(.param .u64 data) {{"
    module = wf.ptx.load(f"{head}{INDEX}{body} ret; }}")
    data = np.random.default_rng(3).integers(0, 1 << 32, 2048, np.uint32)
    computed, expected = data.copy(), data.copy()
    run = module.assemble(arch=arch)["k"].launch(2, 256, [computed], arch=arch, engine="reference")
    module["k"].launch(2, 256, [expected], arch=arch, level="ptx", engine="reference")
    assert np.array_equal(computed, expected)
    assert not np.array_equal(computed, data)
    assert run.basis.startswith(f"sass {arch}, ptxas ")
    assert arch == "sm_90" or not run.exact


def test_a_kernel_without_parameters_runs():
    module = wf.ptx.load(".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { bar.sync 0; ret; }")
    toolkit.find_ptxas("sm_80")
    assert module.assemble(arch="sm_80")["k"].launch(1, 64, engine="reference").counts.instructions > 0
