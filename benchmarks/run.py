"""Compare the speed of warpfrag with that of NumPy and mmasim: `make bench`.

The programs take turns, each in its own process, and every figure is a median.

mmasim is included if it can be imported; MMASIM_PYTHON names an interpreter that has it. mmasim needs torch:
pip install torch ninja setuptools mmasim==2.1.1. If its compiled part lacks OpenMP symbols, set
LD_PRELOAD=libgomp.so.1.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bounds import bound_of, clock_rate, float32_bound

ROUNDS = 5
HERE = Path(__file__).parent
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PRODUCTS = {
    "f16": "mma.m16n8k16.f32.f16.f16.f32",
    "bf16": "mma.m16n8k16.f32.bf16.bf16.f32",
    "tf32": "mma.m16n8k8.f32.tf32.tf32.f32",
    "fp8": "mma.m16n8k32.f32.e4m3.e4m3.f32",
    "s8": "mma.m16n8k32.s32.s8.s8.s32",
    "s4": "mma.m16n8k64.s32.s4.s4.s32",
    "b1": "mma.m16n8k256.s32.b1.b1.s32.and.popc",
    "sparse f16": "mma.sp.m16n8k32.f32.f16.f16.f32",
    "sparse fp8": "mma.sp.m16n8k64.f32.e4m3.e4m3.f32",
    "f64": "mma.m8n8k4.f64.f64.f64.f64",
}
WARPGROUP = {
    "f16": "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16",
    "fp8": "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3",
    "sparse f16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16",
    "sparse fp8": "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3",
}
TENSOR_MEMORY = {
    "f16": "tcgen05.mma.cta_group::1.kind::f16.m128n256k16.f32.f16.f16",
    "bf16": "tcgen05.mma.cta_group::1.kind::f16.m128n256k16.f32.bf16.bf16",
    "tf32": "tcgen05.mma.cta_group::1.kind::tf32.m128n256k8.f32.tf32.tf32",
    "fp8": "tcgen05.mma.cta_group::1.kind::f8f6f4.m128n256k32.f32.e4m3.e4m3",
    "s8": "tcgen05.mma.cta_group::1.kind::i8.m128n256k32.s32.s8.s8",
}
MMASIM = {"f16": "m16n8k16.f32.f16.f16.f32", "bf16": "m16n8k16.f32.bf16.bf16.f32", "tf32": "m16n8k8.f32.tf32.tf32.f32",
          "f64": "m8n8k4.f64.f64.f64.f64"}  # fmt: skip


class Side:
    """A worker process that answers one job at a time."""

    def __init__(self, python: str, source: str | None = None, threads: int = 2) -> None:
        """Start the process with the package in a folder, or with the installed one."""
        path = {"PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))} if source else {}
        self.process = subprocess.Popen(  # noqa: S603 (our own worker)
            [python, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **dict.fromkeys(THREADS, str(threads)), **path},
        )

    def run(self, kind: str, name: str, n: int) -> dict[str, float]:
        """Return the time in seconds and the peak memory of one warm run."""
        assert self.process.stdin and self.process.stdout  # noqa: S101, PT018 (both are pipes)
        self.process.stdin.write(json.dumps({"kind": kind, "name": name, "n": n}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def medians(
    runs: list[tuple[Side, tuple[str, str, int]]], rounds: int = ROUNDS, measure: str = "seconds"
) -> list[float]:
    """Return the median of each job; the sides alternate, and "cpu" measures processor time."""
    seconds = [[side.run(*job)[measure] for side, job in runs] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*seconds, strict=True)]


def mmasim_python() -> str | None:
    """Return an interpreter that can import mmasim."""
    for python in (os.environ.get("MMASIM_PYTHON"), sys.executable):
        command = [python or "", "-c", "import mmasim.nv_ptx.sim"]
        if python and not subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603
            return python
    return None


def one_thread(mmasim: str | None) -> dict[str, float]:
    """Compare every type with numpy float32 and f16, and f16 with mmasim, on one thread each; return the times.

    Processor time is measured, because other work disturbs it less. All types run in one process, because some
    processes stay a third slower than others on a shared machine. A sparse gemm stores half of A, so it is compared
    with a dense gemm of the same type with half the k, which stores and multiplies as many elements.
    """
    clock = clock_rate()
    say(f"512 x 512 x 512 gemms on sm_90, one thread each, at {clock / 1e9:.2f} GHz:")
    say("cycles per multiply-add, time relative to numpy float32, and to f16 or dense")
    side = Side(sys.executable, threads=1)
    labels = ("f16", "bf16", "tf32", "fp8", "s8", "s4", "sparse f16", "sparse fp8")
    jobs = {"numpy": ("numpy", "", 512)}
    jobs |= {label: ("warpfrag gemm", PRODUCTS[label], 512) for label in labels}
    jobs |= {f"half {label}": ("warpfrag gemm of half the k", PRODUCTS[label], 512) for label in ("f16", "fp8")}
    jobs |= {f"compress {label}": ("warpfrag compress", PRODUCTS[f"sparse {label}"], 512) for label in ("f16", "fp8")}
    times = dict(zip(jobs, medians([(side, job) for job in jobs.values()], 40, "cpu"), strict=True))
    say(f"  numpy       {times['numpy'] * clock / 512**3:6.3f} cycles")
    for label in labels:
        dense, seconds = label.removeprefix("sparse "), times[label]
        work = 512**3 if label == dense else 512**3 // 2
        versus = (
            f"{seconds / times['f16']:.2f} x f16"
            if label == dense
            else f"{seconds / times[f'half {dense}']:.2f} x dense"
        )
        cycles = f"{seconds * clock / work:6.3f} cycles"
        say(f"  {label:<11} {cycles}   {seconds / times['numpy']:6.2f} x numpy   {versus}")
    report_targets(times, clock)
    if mmasim:
        other = Side(mmasim, threads=1)
        mine, theirs = medians(
            [(side, jobs["f16"]), (other, ("mmasim gemm", MMASIM["f16"], 512))], 3, "cpu"
        )  # seconds each
        say(f"  f16: {theirs / mine:.0f} times mmasim")
        other.close()
    side.close()
    return times


def report_targets(times: dict[str, float], clock: float) -> None:
    """Print the targets that are missed, each with the bound that explains why."""
    from warpfrag.tensorcore.native.library import library

    loaded = library()
    if loaded is None or loaded.level == "sse2":
        say("  no targets, because the portable backend runs")
        return
    blas = times["numpy"] * clock / 512**3
    for label in ("f16", "bf16"):
        if (ratio := times[label] / times["numpy"]) > 4:
            bound, floor = bound_of(loaded.level, 16), float32_bound(loaded.level)
            say(f"  {label} misses 4 x numpy ({ratio:.2f}): it takes {bound}, {sum(bound) / blas:.1f} x numpy,")
            say(f"    plus the time to prepare operands. numpy takes {blas / floor:.2f} x its own bound, {floor:.3f}")
    if (ratio := times["s8"] / times["numpy"]) > 1.3:
        say(f"  s8 misses 1.3 x numpy ({ratio:.2f}): besides numpy's gemm, converting A, B and D takes")
        say(f"    {(times['s8'] - times['numpy']) * 1e3:.2f} ms")
    if (ratio := times["fp8"] / times["f16"]) > 0.8:
        say(f"  fp8 misses 0.8 x f16 ({ratio:.2f}): the same float64 multiply-adds take at least")
        say(f"    {bound_of(loaded.level, 32).multiply_adds:.3f} of f16's {times['f16'] * clock / 512**3:.3f} cycles")
    for label in ("f16", "fp8"):
        dense = times[f"half {label}"]
        if (ratio := times[f"sparse {label}"] / dense) > 1.2:
            share = times[f"compress {label}"] / dense
            say(f"  sparse {label} misses 1.2 x dense ({ratio:.2f}): finding the stored elements takes {share:.2f};")
            say("    B has twice the rows to prepare, and no two rows of A share the line of B that they multiply")


def say(text: str) -> None:
    """Print without buffering, because a benchmark takes minutes."""
    print(text, flush=True)


def two_threads(two: Side) -> None:
    """Compare the time of a larger gemm on one thread and on two."""
    one, job = Side(sys.executable, threads=1), ("warpfrag gemm", PRODUCTS["f16"], 1024)
    runs = [(one.run(*job), two.run(*job)) for _ in range(2 * ROUNDS)]
    ratio = statistics.median(alone["seconds"] / both["seconds"] for alone, both in runs)
    say(f"\nf16, 1024 x 1024 x 1024: two threads are {ratio:.2f} times as fast as one")
    if ratio < 1.9:
        work = statistics.median(both["cpu"] / alone["cpu"] for alone, both in runs)
        busy = statistics.median(both["cpu"] / both["seconds"] for _, both in runs)
        say(
            f"  misses 1.9: two threads take {work:.2f} times the processor time of one, and keep {busy:.2f} cores busy"
        )
    one.close()


def main() -> None:
    """Run all comparisons, and print the results."""
    ours, numpy_side = Side(sys.executable), Side(sys.executable)
    python = mmasim_python()
    mmasim = Side(python) if python else None
    if mmasim is None:
        say("mmasim is not installed: its ratios are left out (set MMASIM_PYTHON to an interpreter that has it)\n")

    one_thread(python)
    two_threads(ours)
    say("\n512 x 512 x 512 gemms on sm_90, two threads: G multiply-adds per second, time relative to numpy float32")
    for label, name in PRODUCTS.items():
        n = 512
        mine, theirs = medians([(ours, ("warpfrag gemm", name, n)), (numpy_side, ("numpy", "", n))])
        line = f"  {label:<11} {n**3 / mine / 1e9:7.2f} G/s   {mine / theirs:6.1f} x numpy"
        if mmasim and label in MMASIM:
            size = n if label == "f16" else 128
            pair = [(ours, ("warpfrag gemm", name, size)), (mmasim, ("mmasim gemm", MMASIM[label], size))]
            small, sim = medians(pair, 2 if size == n else ROUNDS)  # mmasim takes a few seconds for this size
            line += f"   {sim / small:6.0f} times mmasim at {size} cubed"
        say(line)

    say("\nwgmma relative to mma, the same gemm: time ratio")
    for label, name in WARPGROUP.items():
        warp, group = medians(
            [(ours, ("warpfrag gemm", PRODUCTS[label], 512)), (numpy_side, ("warpfrag gemm", name, 512))]
        )
        say(f"  {label:<11} {512**3 / group / 1e9:7.2f} G/s   {group / warp:6.2f} x mma")

    say("\ntcgen05 relative to mma, the same gemm on sm_100: time ratio")
    for label, name in TENSOR_MEMORY.items():
        kind = "warpfrag gemm on sm_100"
        warp, block = medians([(ours, (kind, PRODUCTS[label], 512)), (numpy_side, (kind, name, 512))])
        say(f"  {label:<11} {512**3 / block / 1e9:7.2f} G/s   {block / warp:6.2f} x mma")

    jobs = [(ours, ("warpfrag tile", PRODUCTS["f16"], 0))]
    jobs += [(mmasim, ("mmasim tile", MMASIM["f16"], 0))] if mmasim else []
    mine, *theirs = medians(jobs)
    versus = f", {theirs[0] / mine:.0f} times mmasim" if theirs else ""
    say(f"\none m16n8k16 f16 tile: wf.execute {mine / 200 * 1e6:.0f} us{versus}")
    subprocess.run([sys.executable, str(HERE / "first_tile.py"), "--large"], check=False)  # noqa: S603 (our own)

    say("\ntime of f16 per multiply-add, relative to 256 cubed")
    base = medians([(ours, ("warpfrag gemm", PRODUCTS["f16"], 256))])[0] / 256**3
    for n in (512, 1024, 2048, 4096):
        (seconds,) = medians([(ours, ("warpfrag gemm", PRODUCTS["f16"], n))], ROUNDS if n < 2048 else 2)
        say(f"  {n:>4}: {seconds:6.2f} s   {seconds / n**3 / base:.2f} times the time of 256")

    say("\npacking 10,000 tiles of A, time relative to numpy's gather of the same tiles")
    for label, name in {label: PRODUCTS[label] for label in ("f16", "s8", "s4", "b1")}.items():
        mine, theirs = medians([(ours, ("warpfrag pack", name, 10_000)), (numpy_side, ("numpy gather", name, 10_000))])
        say(f"  {label:<4} {mine * 1e3:7.1f} ms   {mine / theirs:.2f} x numpy")

    ours.close()
    fresh = Side(sys.executable)
    peak = fresh.run("warpfrag gemm", PRODUCTS["f16"], 1024)["peak"]
    say(f"\npeak memory of a process that multiplies 1024 cubed: {peak / 1e6:.0f} MB")
    for side in (numpy_side, fresh, *([mmasim] if mmasim else [])):
        side.close()


if __name__ == "__main__":
    main()
