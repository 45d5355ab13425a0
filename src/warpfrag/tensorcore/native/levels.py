"""The C files of each library, the processors that they are compiled for, and the digest of the files.

This module imports only the standard library, because `hatch_build.py` reads it before the package is installed.
"""

import hashlib
import platform
import sys
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[2]
FOLDERS: Final = ("tensorcore/native", "tensorcore/kernels", "machine/jit")
"""The folders that contain C files."""
MANIFEST: Final = "library.json"
"""The file next to the library that records its digests."""


class Level(NamedTuple):
    """A processor level: its name, which is a suffix of function names, and the compilers' name for it."""

    name: str
    processor: str
    prefers: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The options of gcc and clang."""
        return (f"-march={self.processor}", *self.prefers)

    @property
    def zig_options(self) -> tuple[str, ...]:
        """The options for zig, which names processors differently and checks for undefined behaviour by default."""
        name = "generic" if self.processor == "armv8-a" else self.processor.replace("-", "_")
        return (f"-mcpu={name}", *self.prefers, "-fno-sanitize=undefined")


LEVELS: Final = {  # lowest first; `processor.c` returns an index into this list
    "x86_64": (
        Level("sse2", "x86-64"),
        Level("avx2", "x86-64-v3"),
        Level("avx512", "x86-64-v4", ("-mprefer-vector-width=512",)),
    ),
    "aarch64": (Level("neon", "armv8-a"),),
}
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SUFFIXES: Final = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}


def host_machine() -> str:
    """Return this machine's name in LEVELS."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def target_of(machine: str, system: str = sys.platform) -> str:
    """Return the name of a machine and operating system in the manifest."""
    return f"{machine}-{system}"


def library_name(system: str = sys.platform) -> str:
    """Return the file name of the library."""
    return "libwarpfrag" + _SUFFIXES.get(system, ".so")


class StandIn(NamedTuple):
    """A library of the virtual GPU: its C files, its compiler options, and the libraries that it links."""

    sources: tuple[str, ...]
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


DEVICE: Final = PACKAGE / "device"
STAND_IN_MANIFEST: Final = "stand_ins.json"
_RUNTIME: Final = ("runtime.c", "registration.c", "runtime_stubs.c")
STAND_INS: Final = {
    "libcuda.so.1": StandIn(("connection.c", "driver.c", "memory.c", "streams.c", "modules.c", "entry_points.c")),
    **{
        f"libcudart.so.{major}": StandIn(
            _RUNTIME,
            (f"-DCUDART={major}", "-Wno-deprecated-non-prototype", f"-Wl,--version-script={DEVICE}/cudart{major}.map"),
            ("libcuda.so.1",),
        )
        for major in (12, 13)
    },
    **{
        f"lib{name}.so.{major}": StandIn(
            (source, "cublas_stubs.c"),
            (
                f"-DCUDA_MAJOR={major}",
                f"-DIS_LT={int(name == 'cublasLt')}",
                f"-Wl,--version-script={DEVICE}/{name.lower()}{major}.map",
            ),
            ("libcuda.so.1",),
        )
        for name, source in (("cublas", "cublas.c"), ("cublasLt", "cublas_lt.c"))
        for major in (12, 13)
    },
}
"""The stand-ins for CUDA's libraries, for Linux."""


def stand_in_digest() -> str:
    """Return a digest of the virtual GPU's C files."""
    digest = hashlib.sha256(repr([(name, row.sources) for name, row in STAND_INS.items()]).encode())
    for path in sorted(path for path in DEVICE.iterdir() if path.suffix in {".c", ".h", ".inc", ".map"}):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def source_files() -> list[Path]:
    """Return every C file and header."""
    return sorted(path for folder in FOLDERS for path in (PACKAGE / folder).glob("*.[ch]"))


def source_digest() -> str:
    """Return a digest of all C files and of their compiler options."""
    digest = hashlib.sha256(repr(sorted(LEVELS.items())).encode())
    for path in source_files():
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()
