"""Compare warpfrag's speed with that of an older version: `python benchmarks/against.py OLD/src`.

Both sides run the same jobs with the same worker, each in its own process with two threads, and they take turns at
running first. The interpreter and the dependencies are the same for both. A job runs at least 15 times and for at least
a few seconds, because other work easily disturbs a short job; its shortest time counts. A ratio above 1 means that the
job is slower than before.

`--cpu` measures CPU time on one thread instead, for a shared machine. Other arguments are the labels of jobs to run.
"""

import math
import subprocess
import sys
from itertools import count
from pathlib import Path

from run import HERE, PRODUCTS, Side, say

LEAST_ROUNDS = 15
SECONDS = 5.0  # the minimum time for each job
F16, SPARSE = PRODUCTS["f16"], PRODUCTS["sparse f16"]
JOBS = {
    **{label: ("warpfrag gemm", name, 512) for label, name in PRODUCTS.items()},
    "f16 accumulators": ("warpfrag gemm", "mma.m16n8k16.f16.f16.f16.f16", 512),
    "f64 upwards": ("warpfrag gemm", "mma.m8n8k4.f64.f64.f64.f64.rp", 128),
    "small product": ("warpfrag gemm", F16, 64),
    "large product": ("warpfrag gemm", F16, 1024),
    "one tile": ("warpfrag tile", F16, 0),
    "one sparse tile": ("warpfrag tile", SPARSE, 0),
    **{f"pack {label}": ("warpfrag pack", PRODUCTS[label], 10_000) for label in ("f16", "s8", "s4", "b1")},
}


def least_of(old: Side, new: Side, job: tuple[str, str, int], clock: str) -> tuple[float, float]:
    """Return the shortest time of each side."""
    least = {old: math.inf, new: math.inf}
    spent = 0.0
    for turn in count():
        if turn >= LEAST_ROUNDS and spent >= SECONDS:
            break
        for side in (old, new) if turn % 2 else (new, old):
            seconds = side.run(*job)[clock]
            least[side] = min(least[side], seconds)
            spent += seconds
    return least[old], least[new]


def compile_old_kernels(source: Path) -> None:
    """Compile the kernels of an old version, which compiles them with numba on first use."""
    for package in ("arithmetic", "tensorcore"):
        if (source / "warpfrag" / package / "kernels" / "__main__.py").exists():
            command = [sys.executable, "-m", f"warpfrag.{package}.kernels"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=source)  # noqa: S603 (our own)


def main() -> None:
    """Measure each job, and print the results."""
    new_source = HERE.parent / "src"
    source, *options = sys.argv[1:]
    compile_old_kernels(Path(source).resolve())
    clock, threads, wanted = "seconds", 2, options
    if options[:1] == ["--cpu"]:
        clock, threads, wanted = "cpu", 1, options[1:]
    old = Side(sys.executable, str(Path(source).resolve()), threads)
    new = Side(sys.executable, str(new_source), threads)
    slowest = 0.0
    for label, job in JOBS.items():
        if wanted and label not in wanted:
            continue
        before, after = least_of(old, new, job, clock)
        slowest = max(slowest, after / before)
        say(f"  {label:<17} {before * 1e3:9.3f} ms before   {after * 1e3:9.3f} ms now   {after / before:.3f}")
    say(f"largest ratio: {slowest:.3f}")
    for side in (old, new):
        side.close()


if __name__ == "__main__":
    main()
