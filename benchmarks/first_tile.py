"""Time the first tile and the first large gemms in a fresh virtual environment.

The environment has its own copy of the package, with its library, and uses the dependencies of the interpreter that
runs this script: `.venv/bin/python benchmarks/first_tile.py`. The exit status is 1 if the first tile takes over 2
seconds, or a later one over 0.7 seconds.

With --large, the script also times a 512 x 512 x 512 and a 1024 x 1024 x 1024 gemm of each type, each in its own
process. It prints the CPU time of the gemm and that of the whole process, including imports. --large=f16,s8 selects
types.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from run import PRODUCTS, WARPGROUP

import warpfrag

AT_FIRST, LATER = 2.0, 0.7
NAME = "mma.m16n8k16.f32.f16.f16.f32"
PROGRAM = f"""
import numpy as np, warpfrag as wf
mma = wf.get("{NAME}")
words = wf.execute(mma, mma.a.pack(np.ones((16, 16))), mma.b.pack(np.ones((16, 8))))
assert (mma.d.unpack(words) == 16).all()
"""
LARGE = """
import sys, time
name, size, folder = sys.argv[1:]
sys.path.insert(0, folder)
from worker import warpfrag_gemm
product = warpfrag_gemm(name, int(size))
start = time.process_time()
product()
print(time.process_time() - start, time.process_time())
"""
LABELS = ("f16", "bf16", "tf32", "fp8", "s8", "f64", "sparse f16")
INSTRUCTIONS = {label: PRODUCTS[label] for label in LABELS} | {"wgmma f16": WARPGROUP["f16"]}


def make(folder: Path) -> str:
    """Create a virtual environment, and return its interpreter."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    source = Path(warpfrag.__file__).parent
    shutil.copytree(source, packages / "warpfrag", ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path), encoding="utf-8")
    return str(folder / "bin" / "python")


def run(command: list[str], folder: Path) -> str:
    """Run a process in a folder that is also its home, and return its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WARPFRAG_"))}
    environment = {**clean, "HOME": str(folder)}
    return subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 (our own program)


def seconds(command: list[str], folder: Path) -> float:
    """Return the wall time of a process."""
    start = time.perf_counter()
    run(command, folder)
    return time.perf_counter() - start


def large_products(python: str, folder: Path, labels: list[str]) -> None:
    """Print the time of the first gemm of each type."""
    for label in labels:
        for size in ("512", "1024"):
            command = [python, "-c", LARGE, INSTRUCTIONS[label], size, str(Path(__file__).parent)]
            product, whole = map(float, run(command, folder).split())
            print(f"first {label} gemm of {size} cubed: {product:.2f} s of CPU, process {whole:.2f} s", flush=True)


def main() -> int:
    """Measure the first tile, later tiles and large gemms, and print the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = make(folder / "environment")
        first = seconds([python, "-c", PROGRAM], folder)
        later = min(seconds([python, "-c", PROGRAM], folder) for _ in range(5))
        run = min(seconds([python, "-m", "warpfrag", "execute", NAME], folder) for _ in range(5))
        print(f"one tile, whole process: {first:.2f} s at first, {later:.2f} s later; warpfrag execute {run:.2f} s")
        for option in (word for word in sys.argv[1:] if word.startswith("--large")):
            large_products(python, folder, option.partition("=")[2].split(",") if "=" in option else [*INSTRUCTIONS])
    return int(first > AT_FIRST or later > LATER)


if __name__ == "__main__":
    sys.exit(main())
