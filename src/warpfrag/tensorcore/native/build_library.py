"""Compile the C files into libraries, for any supported machine: `python build_library.py`.

Every file is compiled once per processor level, and all levels are linked into one library with a manifest. The
compiler comes from the `ziglang` package, which supports every target. Without it, the system's compiler builds for
this machine only. WARPFRAG_CC overrides the compiler. `hatch_build.py` calls `build` for wheels; run as a script, this
module puts the libraries into the source tree. On Linux, the stand-ins of the virtual GPU are compiled too.

This module imports only the standard library and `levels`, because it runs before the package is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING or __package__:
    from warpfrag.tensorcore.native import levels
    from warpfrag.tensorcore.native.levels import (
        LEVELS,
        MANIFEST,
        PACKAGE,
        STAND_INS,
        Level,
        host_machine,
        library_name,
        target_of,
    )
else:  # run as a script or by the build hook, outside the package
    import levels
    from levels import LEVELS, MANIFEST, PACKAGE, STAND_INS, Level, host_machine, library_name, target_of

BUILD: Final = PACKAGE.parents[1] / "build"
OPTIONS: Final = (
    "-std=c11",
    "-O3",
    "-g0",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",  # f64 codes are read both as integers and as floats
    "-fno-math-errno",
    "-fno-trapping-math",  # exception flags are not used, so float loops can be vectorized
    "-ffp-contract=off",  # a * b + c must be rounded twice, as written
    "-Wall",
    "-Wextra",
    "-Werror",
)
ZIG_TARGETS: Final = {"linux": "{}-linux-gnu.2.17", "darwin": "{}-macos", "win32": "{}-windows-gnu"}
MANYLINUX: Final = "manylinux_2_17_{0}.manylinux2014_{0}"
"""The platform tag of libraries that zig links against glibc 2.17."""


class NoCompilerError(Exception):
    """Raised if there is no compiler for a target, or the C code does not support it."""


def compiler_for(machine: str, system: str) -> list[str]:
    """Return the compiler command for a machine and an operating system."""
    is_host = machine == host_machine() and system == sys.platform
    if is_host and os.environ.get("WARPFRAG_CC"):
        return os.environ["WARPFRAG_CC"].split()
    if system in ZIG_TARGETS and find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", ZIG_TARGETS[system].format(machine)]
    found = next((path for name in ("clang", "gcc", "cc") if (path := shutil.which(name))), None)
    if found is None or not is_host:
        raise NoCompilerError(f"no C compiler for {target_of(machine, system)}: install the ziglang package")
    return [found]


def run(compiler: list[str], *arguments: str | Path) -> None:
    """Run a compiler; zig's cache is kept in the build folder, not in the user's home."""
    folders = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(BUILD / "zig"))
    subprocess.run([*compiler, *arguments], check=True, env={**os.environ, **folders})  # noqa: S603 (our own files)


def compile_file(compiler: list[str], source: Path, level: Level, folder: Path) -> Path:
    """Compile one C file for one level; return the object file."""
    result = folder / f"{source.parent.name}-{source.stem}-{level.name}.o"
    options = level.zig_options if "ziglang" in compiler else level.options
    run(compiler, *OPTIONS, *options, f"-DLEVEL={level.name}", f"-I{PACKAGE}", "-c", source, "-o", result)
    return result


STAND_IN_OPTIONS: Final = (
    "-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-shared", "-s", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip


def stand_in_folder(machine: str, system: str) -> Path:
    """Return the folder in which the stand-ins for a target are built."""
    return BUILD / "stand_ins" / target_of(machine, system)


def stand_in_manifest(machine: str, system: str) -> str:
    """Return the manifest of stand-ins that are built from the current C files."""
    return json.dumps({"source": levels.stand_in_digest(), "target": target_of(machine, system)}) + "\n"


def has_stand_ins(machine: str, system: str) -> bool:
    """Return True if the stand-ins are current, or if the target is not Linux, which needs none."""
    path = stand_in_folder(machine, system) / levels.STAND_IN_MANIFEST
    is_current = path.exists() and path.read_text(encoding="ascii") == stand_in_manifest(machine, system)
    return system != "linux" or is_current


def build_stand_ins(machine: str, system: str) -> Path | None:
    """Compile the virtual GPU's stand-ins unless they are current; return their folder, or None if not Linux."""
    folder = stand_in_folder(machine, system)
    if has_stand_ins(machine, system):
        return folder if system == "linux" else None
    compiler = compiler_for(machine, system)
    options = levels.LEVELS[machine][0].zig_options if "ziglang" in compiler else levels.LEVELS[machine][0].options
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, row in STAND_INS.items():
        sources = [levels.DEVICE / source for source in row.sources]
        needs = [folder / each for each in row.needs]
        libraries = (f"-Wl,-soname,{name}", "-lpthread", "-ldl")
        run(compiler, *STAND_IN_OPTIONS, *options, *row.options, *sources, *needs, *libraries, "-o", folder / name)
    (folder / levels.STAND_IN_MANIFEST).write_text(stand_in_manifest(machine, system), encoding="ascii")
    return folder


def folder_of(machine: str, system: str) -> Path:
    """Return the build folder of a target's library."""
    return BUILD / "native" / target_of(machine, system)


def build(machine: str, system: str) -> Path:
    """Compile the library and write its manifest unless they are current; return their folder."""
    folder = folder_of(machine, system)
    if is_current(machine, system):
        return folder
    if machine not in LEVELS:
        raise NoCompilerError(f"{machine} processors are not supported")
    compiler = compiler_for(machine, system)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    library = folder / library_name(system)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [
            pool.submit(compile_file, compiler, source, level, Path(temporary))
            for source in levels.source_files()
            if source.suffix == ".c"
            for level in LEVELS[machine]
        ]
        run(compiler, "-shared", "-s", *(task.result() for task in tasks), "-o", library)
    by_zig = "ziglang" in compiler and system == "linux"
    host = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    manifest = {
        "source": levels.source_digest(),
        "target": target_of(machine, system),
        "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
        "platform": MANYLINUX.format(machine) if by_zig else host,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="ascii")
    return folder


def is_current(machine: str, system: str) -> bool:
    """Return True if a target's library is complete and was built from these C files."""
    folder = folder_of(machine, system)
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        digest = hashlib.sha256((folder / library_name(system)).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False
    return bool(manifest["source"] == levels.source_digest() and manifest["sha256"] == digest)


def copy_into_source(folder: Path, target: str = "tensorcore/native") -> None:
    """Copy libraries and their manifest into the source tree, where editable installations find them."""
    for path in folder.iterdir():
        shutil.copy2(path, PACKAGE / target / path.name)


if __name__ == "__main__":
    copy_into_source(build(host_machine(), sys.platform))
    if stand_ins := build_stand_ins(host_machine(), sys.platform):
        copy_into_source(stand_ins, "device")
