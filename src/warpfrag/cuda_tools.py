"""Find NVIDIA's command-line programs (nvcc, ptxas, nvdisasm) and their versions.

They are searched for in this order: an explicit path, CUDA_HOME, CUDA_PATH, the PyPI packages of the extra `assembler`,
Triton's own programs, and PATH.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, MissingExtra, install_command, quote

TOOLS = {
    "nvcc": "compiles CUDA C++ to PTX",
    "ptxas": "assembles PTX to machine code",
    "nvdisasm": "decodes machine code",
    "nvlink": "links machine code",
}
INSTALL = install_command("assembler")
VERSION = re.compile(r"\bV([0-9]+(?:\.[0-9]+)+)")
LEVELS = ("auto", "sass", "ptx")


class CudaTool(NamedTuple):
    """An installed program; `source` is the rule that found it, and `version` is a text such as "13.0.88"."""

    name: str
    path: Path
    version: str
    source: str


def find_tool(name: str, path: str | os.PathLike[str] | None = None) -> CudaTool:
    """Return the program at `path`, or the first installed one that runs; raise MissingExtra if there is none."""
    if path is not None:
        version = read_version(Path(path))
        if version is None:
            raise MissingExtra(f"expected the path to {name}; cannot run {quote(str(path))}")
        return CudaTool(name, Path(path), version, "path argument")
    for tool in installed(name):
        return tool
    raise MissingExtra(
        f"cannot find {name}, which {TOOLS[name]}, in CUDA_HOME, CUDA_PATH, PyPI packages, Triton or PATH; "
        f"try: {INSTALL}"
    )


def installed(name: str) -> Iterator[CudaTool]:
    """Yield every installed program of this name that runs, in search order."""
    for source, candidate in _candidates(name + ".exe" * (os.name == "nt")):
        if candidate.is_file() and (version := read_version(candidate)) is not None:
            yield CudaTool(name, candidate, version, source)


@cache
def read_version(program: Path) -> str | None:
    """Return the version that a program reports, "" if it reports none, or None if it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603 (a program that the user installed)
            [str(program), "--version"], capture_output=True, check=False, text=True, encoding="utf-8",
            errors="replace", stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    version = VERSION.search(done.stdout)
    return None if done.returncode else version[1] if version else ""


def _candidates(program: str) -> Iterator[tuple[str, Path]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield name, Path(os.environ[name]) / "bin" / program
    for folder in package_folders("nvidia"):
        wheels = sorted(folder.glob(f"*/bin/{program}"), key=lambda path: (path.parts[-3] == "cuda_nvcc", path))
        yield from (("PyPI", path) for path in wheels)  # CUDA 12 uses the package cuda_nvcc
    yield from (("Triton", folder / "backends/nvidia/bin" / program) for folder in package_folders("triton"))
    if on_path := shutil.which(program):
        yield "PATH", Path(on_path)


def package_folders(package: str) -> list[Path]:
    """Return the folders of a package, or an empty list if it is not installed."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def execution_level() -> str:
    """Return the level at which kernels run by default, from WARPFRAG_LEVEL: auto, sass or ptx."""
    level = os.environ.get("WARPFRAG_LEVEL") or "auto"
    if level not in LEVELS:
        raise InvalidOperand(f"WARPFRAG_LEVEL: expected one of {', '.join(LEVELS)}, got {quote(level)}")
    return level


def check_machine_code_allowed() -> None:
    """Raise InvalidOperand if WARPFRAG_LEVEL=ptx disables machine code."""
    if execution_level() == "ptx":
        raise InvalidOperand("machine code is turned off by WARPFRAG_LEVEL=ptx; unset it, or set it to auto")
