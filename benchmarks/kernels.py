"""Speed of whole kernels: `python benchmarks/kernels.py`.

Plain code in warp instructions a second; Triton's f16 matmul against `wf.gemm` for the same product; the time to
compile a kernel of 1,400 instructions, and to find it compiled. Every figure is the least of some rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from run import HERE, say

import warpfrag as wf

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
SIZE = 512
PTX = HERE.parent / "tests" / "data" / "ptx"
F16 = "mma.m16n8k16.f32.f16.f16.f32"
BODY = """
    mul.lo.s32 %r5, %r5, 1664525;
    add.s32 %r5, %r5, 1013904223;
    shr.u32 %r7, %r5, 16;
    xor.b32 %r8, %r7, %r6;
    and.b32 %r8, %r8, 255;
    cvt.rn.f32.s32 %f3, %r8;
    fma.rn.f32 %f1, %f1, %f2, %f3;
    mul.rn.f32 %f4, %f3, %f2;
    add.rn.f32 %f1, %f1, %f4;
    setp.gt.s32 %p1, %r8, 100;
    selp.b32 %r10, 3, 5, %p1;
    add.s32 %r11, %r10, %r7;
    or.b32 %r12, %r11, %r8;
    add.s32 %r5, %r5, %r12;
"""
KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry plain(.param .u64 out, .param .u32 rounds)
{{
    .reg .b32 %r<20>; .reg .f32 %f<10>; .reg .b64 %rd<4>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r9, [rounds];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mov.u32 %r5, %r4; mov.u32 %r6, 0;
    cvt.rn.f32.u32 %f1, %r4; mov.f32 %f2, 0f3F000000;
LOOP:
    {body}
    add.s32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, %r9;
    @%p2 bra LOOP;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    cvt.rzi.s32.f32 %r14, %f1;
    add.s32 %r14, %r14, %r5;
    st.global.u32 [%rd3], %r14;
    ret;
}}"""


def least(function: Callable[[], object]) -> float:
    """Seconds of the quickest round, after one that is not counted."""
    function()
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


def plain() -> None:
    """Warp instructions a second without memory or matrices."""
    kernel = wf.ptx.load(KERNEL.format(body=BODY))["plain"]
    for engine, rounds in (("reference", 100), ("compiled", 3000)):
        out = np.zeros(32 * 128, np.uint32)

        def launch(engine: str = engine, rounds: int = rounds, out: np.ndarray = out) -> wf.ptx.Run:
            return kernel.launch(32, 128, [out, rounds], engine=engine)  # type: ignore[arg-type] # two of its names

        speed = launch().counts.instructions / least(launch)
        say(f"  plain code, {engine:<9} {speed / 1e6:9.1f} M warp instructions a second")


def matmul() -> None:
    """A Triton kernel and wf.gemm on the same product."""
    kernel = wf.ptx.load(PTX / "t_matmul_f16_sm80.ptx")["t_matmul"]
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in range(2))
    c = np.zeros((SIZE, SIZE), np.float32)
    numbers = [np.int32(one) for one in (SIZE, SIZE, SIZE, SIZE, 1, SIZE, 1, SIZE, 1)]

    def launch() -> object:
        grid = (SIZE // 64, SIZE // 64)
        return kernel.launch(grid, 128, [a, b, c, *numbers, None, None], shared=16384, engine="compiled")

    gemm = least(lambda: wf.gemm(a, b, instruction=F16))
    whole = least(launch)
    same = np.array_equal(c.view(np.uint32), np.asarray(wf.gemm(a, b, instruction=F16)).view(np.uint32))
    say(f"  matmul of {SIZE} cubed: kernel {whole * 1e3:.1f} ms, gemm {gemm * 1e3:.1f} ms: {whole / gemm:.1f} times")
    say(f"  every code of both equal: {same}")


def cores() -> None:
    """Many blocks on one core and on all: a short loop, whose turns are Python's, and a long one."""
    usable = os.sched_getaffinity(0)
    for repeats in (1, 40):
        kernel = wf.ptx.load(KERNEL.format(body=BODY * repeats))["plain"]
        out = np.zeros(512 * 128, np.uint32)

        def launch(kernel: wf.ptx.Kernel = kernel, out: np.ndarray = out, rounds: int = 500 // repeats) -> object:
            return kernel.launch(512, 128, [out, rounds], engine="compiled", threads=None)

        seconds = {}
        for count in (1, len(usable)):
            os.sched_setaffinity(0, sorted(usable)[:count])
            seconds[count] = least(launch)
        gain = seconds[1] / seconds[len(usable)]
        say(f"  512 blocks, loops of {14 * repeats}: {len(usable)} cores are {gain:.2f} times as fast as one")


COMPILE = """
import sys, time
import warpfrag as wf
kernel = wf.ptx.load(sys.stdin.read())["plain"]
start = time.perf_counter()
kernel.native.prepare()
print(len(kernel.program.steps), time.perf_counter() - start)
"""


def compiling() -> None:
    """The time to compile a long kernel, then to find it."""
    text = KERNEL.format(body=BODY * 100)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(HERE.parent / "src")}
        for label in ("compiled", "found again"):
            done = subprocess.run(  # noqa: S603 (our own)
                [sys.executable, "-c", COMPILE], input=text, capture_output=True, text=True, check=True, env=environment
            )
            steps, seconds = done.stdout.split()
            kept = sum(path.stat().st_size for path in Path(folder).rglob("*.o"))
            say(f"  {steps} instructions {label} in {float(seconds):.2f} s, {kept >> 10} KiB kept")


if __name__ == "__main__":
    plain()
    cores()
    matmul()
    compiling()
