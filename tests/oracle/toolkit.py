"""The assembler: its location, its capabilities, and its messages about a file.

The `nvidia-cuda-nvcc` wheel has one, at least 13.4 for all instructions; `nvidia-cuda-nvcc-cu12` one for targets
that it no longer knows; else nvcc and ptxas of the path serve. WARPFRAG_REQUIRE_ASSEMBLER=1 turns their absence from
a skip into a failure.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from warpfrag.isa.targets import targets

# What ptxas must know to judge every instruction; see tables/versions.toml.
NEWEST = (9, 4)
OLD_TARGETS = ("sm_70", "sm_72", "sm_101a")  # only an older ptxas knows them
REQUIRED = os.environ.get("WARPFRAG_REQUIRE_ASSEMBLER") == "1"
COMPLAINT = re.compile(r", line (\d+); (?:error|fatal) *: (.*)")
ADVISORY = re.compile(r", line (\d+); info *: Advisory: (.*)")


@dataclass(frozen=True)
class Complaint:
    """One error of the assembler, or one advice."""

    line: int
    text: str


@cache
def programs(name: str) -> tuple[Path, ...]:
    """Return every program with this name: from the wheels, then on the path."""
    package = find_spec("nvidia")
    folders = [Path(place) for place in package.submodule_search_locations or ()] if package else []
    wheels = [folder / inside / "bin" / name for folder in folders for inside in ("cu13", "cuda_nvcc")]
    on_path = shutil.which(name)
    return tuple(path for path in [*wheels, *([Path(on_path)] if on_path else [])] if path.is_file())


@cache
def knows(ptxas: Path, target: str, version: tuple[int, int]) -> bool:
    """Return True if this ptxas accepts a target and a PTX version."""
    module = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    command = [str(ptxas), f"-arch={target}", "-o", os.devnull, "-"]
    return subprocess.run(command, input=module.encode(), capture_output=True, check=False).returncode == 0


def find_ptxas(target: str) -> tuple[Path, tuple[int, int]]:
    """Return the ptxas that knows most about a target, and the newest PTX version it accepts; skip if there is none."""
    versions = [*((9, minor) for minor in range(NEWEST[1], -1, -1)), *((8, minor) for minor in range(8, -1, -1))]
    for version in versions:
        for ptxas in programs("ptxas"):
            if knows(ptxas, target, version):
                if REQUIRED and not targets()[target].ptxas and version < NEWEST:
                    pytest.fail(f"ptxas knows PTX {version} only, {NEWEST} is needed: install nvidia-cuda-nvcc>=13.4")
                return ptxas, version
    package = "nvidia-cuda-nvcc-cu12==12.9.*" if targets()[target].ptxas else "nvidia-cuda-nvcc>=13.4"
    return absent(f"no ptxas that knows {target}: install {package}")


def find_newest_ptxas(target: str) -> tuple[Path, tuple[int, int]]:
    """Return a ptxas that knows every instruction; skip if there is only an older one."""
    ptxas, version = find_ptxas(target)
    if version < NEWEST and target not in OLD_TARGETS:
        return absent(f"ptxas knows PTX {version[0]}.{version[1]} only: install nvidia-cuda-nvcc>=13.4")
    return ptxas, version


@cache
def works(nvcc: Path) -> bool:
    """True if it can be run."""
    return subprocess.run([str(nvcc), "--version"], capture_output=True, check=False).returncode == 0


def find_nvcc() -> Path:
    """Return a working nvcc; skip if there is none."""
    for nvcc in programs("nvcc"):
        if works(nvcc):
            return nvcc
    return absent("no nvcc: install nvidia-cuda-nvcc>=13.4, nvidia-nvvm, nvidia-cuda-crt and nvidia-cuda-runtime")


def absent(reason: str):
    """Skip, or fail if the assembler is required."""
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


def assemble(ptxas: Path, target: str, module: Path) -> list[Complaint]:
    """Return the errors of ptxas for a module; "" if it assembles."""
    command = [str(ptxas), f"-arch={target}", "-O0", "-o", str(module.with_suffix(".cubin")), str(module)]
    run = subprocess.run(command, capture_output=True, check=False, text=True)
    found = [Complaint(int(line), text) for line, text in COMPLAINT.findall(run.stderr)]
    if run.returncode and not found:
        found = [Complaint(0, run.stderr)]
    assert bool(found) == bool(run.returncode), run.stderr
    return found


def advisories(ptxas: Path, target: str, module: Path) -> list[Complaint]:
    """Return the advice of ptxas for a module that assembles."""
    command = [str(ptxas), f"-arch={target}", "-O0", "-o", str(module.with_suffix(".cubin")), str(module)]
    run = subprocess.run(command, capture_output=True, check=True, text=True)
    return [Complaint(int(line), text) for line, text in ADVISORY.findall(run.stderr)]


def compile_cuda(nvcc: Path, target: str, source: Path) -> str:
    """Return the errors and warnings of nvcc and its assembler for a translation unit, without advice."""
    # what is legal does not hang on how well it is optimised, and nvcc takes twice as long to do that
    written, options = source.with_suffix(".ptx"), ["-Werror", "all-warnings", "-Ofc", "max", "-ptx"]
    commands = [
        [str(nvcc), f"-arch={target}", *options, "-o", str(written), str(source)],
        [str(nvcc.with_name("ptxas")), f"-arch={virtual(target)}", "-o", os.devnull, str(written)],
    ]
    for command in commands:
        run = subprocess.run(command, capture_output=True, check=False, text=True)
        objections = "\n".join(line for line in run.stderr.splitlines() if "; info" not in line)  # about plain mma.sp
        if objections or run.returncode:
            return objections or "failed"
    return ""


def virtual(target: str) -> str:
    """For a virtual architecture, ptxas only parses and checks: the same verdicts, much faster."""
    return target.replace("sm_", "compute_")
