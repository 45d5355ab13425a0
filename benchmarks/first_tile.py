"""How long the first tile takes: in a fresh virtual environment with nothing compiled, and in later processes.

The environment has its own copy of the package, without anything compiled, and borrows the dependencies of the
interpreter that runs this: `.venv/bin/python benchmarks/first_tile.py`. Below 2 seconds at first and 0.7 later is the
promise; 1 if either is broken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import warpfrag

AT_FIRST, LATER = 2.0, 0.7
NAME = "mma.m16n8k16.f32.f16.f16.f32"
PROGRAM = f"""
import numpy as np, warpfrag as wf
mma = wf.get("{NAME}")
words = wf.execute(mma, mma.a.pack(np.ones((16, 16))), mma.b.pack(np.ones((16, 8))))
assert (mma.d.unpack(words) == 16).all()
"""
LARGE = f"""
import numpy as np, time, warpfrag as wf
A = np.ones((1024, 1024), np.float16)
for _ in range(2):
    start = time.perf_counter()
    wf.gemm(A, A, instruction="{NAME}")
    print(time.perf_counter() - start)
"""


def make(folder: Path) -> str:
    """A virtual environment; gives its interpreter."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    source = Path(warpfrag.__file__).parent
    shutil.copytree(source, packages / "warpfrag", ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path), encoding="utf-8")
    return str(folder / "bin" / "python")


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of a process whose user has no other folder than this."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env={**clean, "HOME": str(folder)}, stdout=subprocess.DEVNULL)  # noqa: S603 (our own program)
    return time.perf_counter() - start


def main() -> int:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = make(folder / "environment")
        first = seconds([python, "-c", PROGRAM], folder)
        later = min(seconds([python, "-c", PROGRAM], folder) for _ in range(5))
        run = min(seconds([python, "-m", "warpfrag", "run", NAME], folder) for _ in range(5))
        print(f"one tile, whole process: {first:.2f} s at first, {later:.2f} s later; warpfrag run {run:.2f} s")
        if "--large" in sys.argv:
            compiling = seconds([python, "-c", LARGE], folder)
            loading = seconds([python, "-c", LARGE], folder)
            print(f"two products of 1024 cubed: {compiling:.1f} s at first, with compiling; {loading:.1f} s later")
    return int(first > AT_FIRST or later > LATER)


if __name__ == "__main__":
    sys.exit(main())
