"""A kernel of one body, with the registers and addresses that small tests need: %rd3 is the thread's word of `out`."""

import numpy as np

import warpfrag as wf

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"


def kernel(body, parameters=".param .u64 out", before="", registers=""):
    return (
        f"{HEAD}{before}\n.visible .entry k({parameters})\n{{\n"
        ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<16>; .reg .f32 %f<8>;\n"
        f"{registers}\nld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n"
        "mov.u32 %r3, %ntid.x;\nmad.lo.s32 %r4, %r2, %r3, %r1;\nmul.wide.u32 %rd2, %r4, 4;\nadd.u64 %rd3, %rd1, %rd2;\n"
        f"{body}\nret;\n}}\n"
    )


def run(body, *, block=64, grid=1, out=None, args=(), shared=0, checks=(), limit=200_000, **text):
    array = np.zeros(block * grid, np.uint32) if out is None else out
    launched = wf.ptx.load(kernel(body, **text))["k"].launch(
        grid, block, [array, *args], shared=shared, checks=checks, options=wf.ptx.LaunchOptions(limit=limit)
    )
    return array, launched
