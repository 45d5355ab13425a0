"""Compare PyTorch on the virtual GPU with recorded H200 results, in several processes at once.

    python -m tools.torch_virtual_gpu results --processes 8 --seconds 110 --torch .venv/bin/python

The tool runs the operations, training, a Llama, a BERT and compiled functions, and appends the output of each program
to `results/virtual_gpu.txt`. It does not use warpfrag's command line, so it runs on machines without click.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from warpfrag.device.launch_log import summary_of
from warpfrag.device.virtual_gpu import GpuOptions, run_program

DATA = Path(__file__).parents[1] / "tests" / "data" / "torch"
PARTS = 14  # number of programs among which the operations are divided
MAX_LINES = 50  # lines kept of each program


def programs(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of each Python program by name, the longest first."""
    stored = DATA / "operations_h200.json"
    names = list(json.loads(stored.read_text(encoding="utf-8"))["operations"])
    found = {"llama": ["examples/llama.py", "--backward"], "train": ["examples/train.py"]}
    for model in ("bert", "compiled"):
        target = folder / model
        target.mkdir(parents=True, exist_ok=True)
        found[model] = ["-m", "tools.torch_models", str(target), "--once", "--only", model]
    for part in range(PARTS):
        only = "|".join(names[part::PARTS])
        found[f"operations {part}"] = ["tools/torch_operations.py", "--compare", str(stored), "--only", only]
    return found


def unlike(folder: Path, model: str) -> str:
    """Return a line with the number of a model's results that equal the recorded ones, and the names of the others."""
    path = folder / model / "models.json"
    if not path.exists():
        return f"{model}: no results"
    found = json.loads(path.read_text(encoding="utf-8"))[model]
    expected = json.loads((DATA / "models_h200.json").read_text(encoding="utf-8"))[model]
    pairs: dict[str, bool] = {}
    for name, value in found.items():
        stored = expected.get(name)
        if isinstance(value, dict) and isinstance(stored, dict):
            pairs |= {f"{name} {key}": value[key] == stored.get(key) for key in value if key != "seconds"}
        else:
            pairs[name] = value == stored
    wrong = [name for name, is_equal in pairs.items() if not is_equal]
    return f"{model}: {len(pairs) - len(wrong)} of {len(pairs)} results equal the H200 bit for bit; different: {wrong}"


def run(name: str, arguments: list[str], python: str, deadline: float, folder: Path) -> None:
    """Run a program on the virtual GPU until the deadline; append what it printed."""
    start = time.time()
    code = "import sys; from tools.torch_virtual_gpu import serve; serve(sys.argv[1:])"
    try:
        done = subprocess.run(  # noqa: S603 (our own programs; a separate process can be stopped at the deadline)
            [sys.executable, "-c", code, python, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=max(1, deadline - start),
        )  # fmt: skip
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"") + b"\nended at the deadline"
    lines = [line for line in output.decode(errors="replace").splitlines() if not line.endswith(" blocks")]
    text = "\n".join(line[:400] for line in lines[-MAX_LINES:])
    with (folder / "virtual_gpu.txt").open("a", encoding="utf-8") as file:
        file.write(f"== {name}, {time.time() - start:.0f} s\n{text}\n")


def serve(command: list[str]) -> None:
    """Run one command on a virtual GPU, and print the number of its launches."""
    status, log = run_program(command, GpuOptions(fast=True))
    unsupported = f"; not supported: {' '.join(log['unsupported'])}" if log["unsupported"] else ""
    print(f"warpfrag gpu: {summary_of(log)}, status {status}{unsupported}")


def main() -> None:
    """Run every program and compare the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="a Python with PyTorch for CUDA")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "virtual_gpu.txt").open("a", encoding="utf-8") as file:
        file.write(f"{platform.platform()}, Python {platform.python_version()}\n")
    deadline = time.time() + options.seconds
    with ThreadPoolExecutor(options.processes) as pool:
        for name, arguments in programs(folder).items():
            pool.submit(run, name, arguments, options.torch, deadline, folder)
    with (folder / "virtual_gpu.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{unlike(folder, model)}\n" for model in ("bert", "compiled"))


if __name__ == "__main__":
    main()
