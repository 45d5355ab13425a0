"""Measure the speed of whole kernels: `python benchmarks/ptx.py`, or `python benchmarks/ptx.py 1 7` for some sections.

The last two sections need the source of an older version: `python benchmarks/ptx.py 9 10 OLD/src`.

1. The speed of plain code on one core, in warp instructions per second.
2. The time per block, for few and for many blocks.
3. All cores compared with one core, for short and long loops and for a matmul.
4. Triton's f16 matmul compared with `wf.gemm` on the same operands, and with Triton's own interpreter.
5. Triton's f16 matmul with tensor maps and wgmma, 1024 x 1024 x 512, compared with `wf.gemm`, on one thread each.
6. The time to compile a kernel of 1,400 instructions, and to load it from the cache.
7. The time with each check, relative to the run without checks, compiled and interpreted.
8. A whole process with a small launch: the first process, and later ones, for which everything is compiled.
9. Loading PTX, with and without reading every statement: CPU time, also relative to an older version.
10. Every captured kernel: CPU time, also relative to an older version.

Every figure is the shortest time of several rounds. The checks are measured in processor time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from run import HERE, Side, medians, say
from worker import ptx_case

import warpfrag as wf
from warpfrag.blas.gemm_backend import Cpu
from warpfrag.machine.interpreter.kernel_findings import CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
ONE_THREAD = wf.ptx.LaunchOptions(threads=1)
SIZE = 512
PTX = HERE.parent / "tests" / "data" / "ptx"
F16 = "mma.m16n8k16.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
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


def best_of(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest time of several rounds in seconds, after a warm-up."""
    function()
    seconds = []
    for _ in range(ROUNDS):
        start = clock()
        function()
        seconds.append(clock() - start)
    return min(seconds)


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def on(count: int, function: Callable[[], object], usable: list[int]) -> float:
    """Return the time on `count` cores, in seconds."""
    os.sched_setaffinity(0, usable[:count])
    try:
        return best_of(function)
    finally:
        os.sched_setaffinity(0, usable)


def plain() -> None:
    """Measure the warp instructions per second of code without memory accesses and matrices in its loop."""
    kernel = wf.ptx.load(KERNEL.format(body=BODY))["plain"]
    for engine, rounds in (("reference", 100), ("compiled", 3000)):
        out = np.zeros(32 * 128, np.uint32)

        def launch(engine: str = engine, rounds: int = rounds, out: np.ndarray = out) -> wf.ptx.Run:
            return kernel.launch(32, 128, [out, rounds], engine=engine, options=ONE_THREAD)  # type: ignore[arg-type] # both are engine names

        speed = launch().counts.instructions / best_of(launch)
        say(f"  plain code, {engine:<9} {speed / 1e6:9.1f} M warp instructions a second on one core")


def by_blocks() -> None:
    """Measure the time per block for different numbers of blocks."""
    kernel = wf.ptx.load(KERNEL.format(body=BODY))["plain"]
    for blocks in (64, 512, 4096):
        out = np.zeros(blocks * 128, np.uint32)
        seconds = best_of(partial(kernel.launch, blocks, 128, [out, 200], engine="compiled", options=ONE_THREAD))
        say(f"  {blocks:4} blocks: {seconds / blocks * 1e6:6.1f} us per block")


class Matmul:
    """Triton's f16 matmul."""

    def __init__(self) -> None:
        """Generate random operands."""
        self.kernel = wf.ptx.load(PTX / "t_matmul_f16_sm80.ptx")["t_matmul"]
        rng = np.random.default_rng(0)
        self.a, self.b = (rng.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in range(2))
        self.c = np.zeros((SIZE, SIZE), np.float32)

    def launch(self) -> wf.ptx.Run:
        """Launch the kernel."""
        numbers = [np.int32(one) for one in (SIZE, SIZE, SIZE, SIZE, 1, SIZE, 1, SIZE, 1)]
        grid = (SIZE // 64, SIZE // 64)
        args = [self.a, self.b, self.c, *numbers, None, None]
        return self.kernel.launch(grid, 128, args, shared=16384, engine="compiled")

    def gemm(self) -> np.ndarray:
        """Compute the same matmul with `wf.gemm`."""
        return np.asarray(wf.gemm(self.a, self.b, instruction=F16))


def many_cores() -> None:
    """Compare one core with all cores, for a short loop, a long loop and a matmul."""
    usable = cores()
    if len(usable) < 2:
        say("  one core only: nothing to compare")
        return
    works: dict[str, Callable[[], object]] = {}
    for repeats in (1, 40):
        kernel = wf.ptx.load(KERNEL.format(body=BODY * repeats))["plain"]
        out = np.zeros(512 * 128, np.uint32)
        works[f"512 blocks, loops of {14 * repeats}"] = partial(
            kernel.launch, 512, 128, [out, 6000 // repeats], engine="compiled"
        )
    works[f"matmul of {SIZE} cubed"] = Matmul().launch
    for name, work in works.items():
        pairs = [(on(1, work, usable), on(len(usable), work, usable)) for _ in range(3)]
        gain = max(one / many for one, many in pairs)
        say(f"  {name}: {len(usable)} cores are {gain:.2f} times as fast as one")


def matmul() -> None:
    """Compare a Triton kernel with `wf.gemm` on the same operands."""
    work, usable = Matmul(), cores()
    same = False
    for count in sorted({1, len(usable)} - {0}):
        gemm, whole = on(count, work.gemm, usable), on(count, work.launch, usable)
        same = np.array_equal(work.c.view(np.uint32), work.gemm().view(np.uint32))
        figures = f"kernel {whole * 1e3:.1f} ms, gemm {gemm * 1e3:.1f} ms: {whole / gemm:.1f} times"
        say(f"  matmul of {SIZE} cubed on {count} core{'s' * (count > 1)}: {figures}")
    say(f"  every code of both equal: {same}")
    if find_spec("triton") is None or find_spec("torch") is None:
        say("  Triton's own interpreter: triton or torch is not installed")
        return
    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, str(HERE / "triton_matmul.py"), str(SIZE)],
        capture_output=True, text=True, check=False, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["no reason"]
        say(f"  Triton's own interpreter does not run here: {reason[-1]}")
        return
    other = float(done.stdout.split()[0])
    say(f"  Triton's own interpreter: {other * 1e3:.0f} ms, {other / best_of(work.launch):.0f} times the kernel here")


def tensor_copies() -> None:
    """Compare a kernel that uses tensor maps, mbarriers and wgmma with `wf.gemm` on the same operands."""
    m, n, k = 1024, 1024, 512
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(rows, k)).astype(np.float16) for rows in (m, n))
    c = np.zeros((m, n), np.float16)
    with zipfile.ZipFile(PTX / "hopper" / "kernels.zip") as archive:
        kernel = wf.ptx.load(archive.read("mm_ws2_8.ptx").decode())["mm_ws2"]
    args: list[object] = []
    for array, box in ((a, (128, 64)), (b, (64, 64)), (c, (128, 64))):
        strides = [np.int64(stride // array.itemsize) for stride in array.strides]
        args += [wf.ptx.TensorMap(array, box, swizzle=128), *map(np.int32, array.shape), *strides]
    args += [np.int32(k), None, None]
    grid, columns = (m // 128, n // 64), np.ascontiguousarray(b.T)
    whole = best_of(partial(kernel.launch, grid, 256, args, shared=73752, engine="compiled", options=ONE_THREAD))
    gemm = best_of(partial(wf.gemm, a, columns, instruction=WGMMA, backend=Cpu(threads=1)))
    figures = f"kernel {whole * 1e3:.0f} ms, gemm {gemm * 1e3:.0f} ms: {whole / gemm:.1f} times"
    say(f"  tensor maps and wgmma, {m} x {n} x {k}: {figures}")


COMPILE = """
import sys, time
import warpfrag as wf
kernel = wf.ptx.load(sys.stdin.read())["plain"]
start = time.perf_counter()
kernel.compiled.compile_all()
print(len(kernel.program.instructions), time.perf_counter() - start)
"""


def compiling() -> None:
    """Measure the time to compile a long kernel, and to load it from the cache."""
    text = KERNEL.format(body=BODY * 100)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WARPFRAG_CACHE_DIR": folder, "PYTHONPATH": str(HERE.parent / "src")}
        for label in ("compiled", "found again"):
            done = subprocess.run(  # noqa: S603 (our own)
                [sys.executable, "-c", COMPILE], input=text, capture_output=True, text=True, check=True, env=environment
            )
            steps, seconds = done.stdout.split()
            kept = sum(path.stat().st_size for path in Path(folder).rglob("*.o"))
            say(f"  {steps} instructions {label} in {float(seconds):.2f} s, {kept >> 10} KiB kept")


CHECKED = ("histogram", "t_layernorm_90", "t_mm_f16acc_80", "wgmma_bf16")


def checking() -> None:
    """Measure the slowdown of nvcc and Triton kernels with each check."""
    for name in CHECKED:
        launch = ptx_case(name, threads=1)
        compiled, interpreted = (
            best_of(partial(launch, engine=engine), time.process_time) for engine in ("compiled", "reference")
        )
        say(f"  {name}: {compiled * 1e3:.1f} ms compiled, {interpreted * 1e3:.0f} ms interpreted; with a check:")
        for check in (*CHECKS, "all"):
            seconds = best_of(partial(launch, checks=check), time.process_time)
            say(f"    {check:<14}{seconds / compiled:7.1f} x compiled {seconds / interpreted:6.1f} x interpreted")


START = """
import sys, time
import numpy as np
import warpfrag as wf
kernel = wf.ptx.load(sys.argv[1])["t_matmul"]
a, b, c = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
sizes = [np.int32(size) for size in (64, 64, 64, 64, 1, 64, 1, 64, 1)]
kernel.launch(1, 128, [a, b, c, *sizes, None, None], shared=16384, engine="compiled")
assert (c == 64).all()
print(time.process_time())
"""


def starting() -> None:
    """Measure a process that runs Triton's matmul once, with and without compilation, and one that imports numpy."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    package = Path(str(wf.__file__)).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPATH": str(package), "WARPFRAG_CACHE_DIR": folder, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}

        def run(*command: str) -> tuple[float, float]:
            start = time.perf_counter()
            done = subprocess.run(  # noqa: S603 (our own)
                [sys.executable, "-c", *command], env={**clean, **own}, capture_output=True, text=True, check=True
            )
            return float(done.stdout), time.perf_counter() - start

        run("import llvmlite, warpfrag as wf, time; wf.ptx.load; print(time.process_time())")  # writes bytecode
        first, *later = [run(START, str(PTX / "t_matmul_f16_sm80.ptx")) for _ in range(6)]
        numpy_cpu = min(run("import numpy, time; print(time.process_time())")[0] for _ in range(5))
    cpu, wall = min(later)
    figures = f"{first[0]:.1f} s of CPU at first, {cpu:.2f} later, {cpu / numpy_cpu:.1f} times import numpy"
    say(f"  process with Triton's matmul: {figures}; {wall:.2f} s by the clock")


FILES = {"repeated": "repeated kernels", "renumbered": "renumbered registers", "small": "36 small files"}


def reading() -> None:
    """Measure the loading of large and small files, alternating with an older version."""
    older = [word for word in sys.argv[1:] if not word.isdigit()]
    if not older:
        say("  reading is not compared: name the source of an older version")
        return
    new, old = Side(sys.executable, str(HERE.parent / "src")), Side(sys.executable, str(Path(older[0]).resolve()))
    for name, words in FILES.items():
        jobs = [
            (old, ("ptx load", name, 2_000_000)),
            *((new, (kind, name, 2_000_000)) for kind in ("ptx load", "ptx read")),
        ]
        before, loaded, read = medians(jobs, 3, "cpu")
        ratios = f"{before / loaded:.1f} times as fast as before, {before / read:.1f} with every statement"
        say(f"  {words}: {loaded * 1e3:.0f} ms: {ratios}")


def kernels() -> None:
    """Compare the time of every captured kernel, run from PTX, with an older version; both versions take turns."""
    older = [word for word in sys.argv[1:] if not word.isdigit()]
    if not older:
        say("  kernels are not compared: name the source of an older version")
        return
    os.environ["WARPFRAG_LEVEL"] = "ptx"  # because the older version executes only PTX
    sides = [Side(sys.executable, str(source), threads=1) for source in (Path(older[0]).resolve(), HERE.parent / "src")]
    names = json.loads((PTX / "kernels.json").read_text(encoding="utf-8"))
    for engine, kind, count in (("compiled", "ptx launch", 3), ("interpreted", "ptx interpret", 1)):
        ratios = {}
        for name in names if engine == "compiled" else CHECKED:
            before, now = medians([(side, (kind, name, count)) for side in sides], 5, "cpu")
            ratios[name] = now / before
            times = f"{before * 1e3 / count:.1f} ms before, {now * 1e3 / count:.1f} ms now"
            say(f"  {name} {engine}: {times}, {ratios[name]:.2f}")
        mean, slowest = statistics.geometric_mean(ratios.values()), max(ratios, key=ratios.__getitem__)
        say(f"  {len(ratios)} kernels {engine}: {mean:.2f} times before on average, {slowest} {ratios[slowest]:.2f}")


SECTIONS = (plain, by_blocks, many_cores, matmul, tensor_copies, compiling, checking, starting, reading, kernels)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()] or range(1, len(SECTIONS) + 1)
    for number in numbers:
        SECTIONS[number - 1]()
