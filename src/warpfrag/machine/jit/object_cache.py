"""Compile LLVM text to machine code, cached on disk; a file's name is a digest of everything that its code depends on.

A file begins with a digest of its contents. A folder is kept below MAX_BYTES by removing the least recently used files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from llvmlite import __version__ as llvmlite_version
from llvmlite import binding as llvm

from warpfrag.layout import coordinates
from warpfrag.machine.interpreter import device_memory, store_tags
from warpfrag.machine.ir import program as decoded_program
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.jit import context, ir_builder, memory_access, store_overlaps
from warpfrag.machine.jit.memory_access import Helper, helper_text, with_callees
from warpfrag.smem import shared_memory
from warpfrag.tensorcore.kernels.objects import say_uncached, warn

CACHE_FOLDER = "ptx"
DIGITS = 32
"""The number of hexadecimal digits of the digest in a file name."""
DIGEST_BYTES = 32
"""The size of the digest at the start of a file."""
MAX_BYTES = 1 << 28
"""The limit on all object files in a folder: thousands of kernels."""
# Optimization levels of LLVM's passes. Segments are straight-line vector code, where passes are slow and gain nothing.
UNOPTIMIZED, OPTIMIZED = 0, 2
HELPER_SOURCES = [
    Path(str(module.__file__))
    for module in (
        context, ir_builder, memory_access, store_overlaps, device_memory, store_tags, decoded_program,
        state_spaces, shared_memory, coordinates,
    )
]  # fmt: skip
"""The files whose text or constants are compiled into helpers."""


def target_machine() -> llvm.TargetMachine:
    """Return the host processor, with all its features, as an LLVM target."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


def file_name(dependencies: str) -> str:
    """Return a file name, derived from everything that the file depends on."""
    return f"{hashlib.sha256(f'checked {dependencies}'.encode()).hexdigest()[:DIGITS]}.o"


def name_of(key: str, level: int) -> str:
    """Return the file name of a module, derived from LLVM, the processor, the optimization level and the text's key."""
    host = (llvmlite_version, llvm.llvm_version_info, llvm.get_host_cpu_name())
    return file_name(f"{host} {llvm.get_host_cpu_features().flatten()} {level} {key}")


def folders() -> Iterator[Path]:
    """Return the folders for cached objects, in numba's order: the configured one, the package's, the user's."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / CACHE_FOLDER
    yield Path(__file__).parent / "__pycache__" / CACHE_FOLDER
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "warpfrag" / CACHE_FOLDER


def compile_text(text: str, level: int) -> bytes:
    """Compile a module to an object file."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    target = target_machine()
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    data: bytes = target.emit_object(module)
    return data


def trim(folder: Path) -> None:
    """Remove the least recently used files until the others are below MAX_BYTES."""
    files = []
    for path in folder.glob("*.o"):
        with suppress(OSError):  # another process removed it
            files.append((path.stat(), path))
    excess = sum(status.st_size for status, _ in files) - MAX_BYTES
    for status, path in sorted(files, key=lambda file: file[0].st_mtime):
        if excess <= 0:
            return
        with suppress(OSError):
            path.unlink()
        excess -= status.st_size


def find(name: str) -> bytes | None:
    """Return the object stored under a name; warn if it is damaged."""
    for folder in folders():
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        with suppress(OSError):  # the file may belong to another user
            os.utime(folder / name)  # mark as recently used
        if data[:DIGEST_BYTES] == hashlib.sha256(data[DIGEST_BYTES:]).digest():
            return data[DIGEST_BYTES:]
        warn(name, "its digest is not that of its code")
    return None


def keep(name: str, data: bytes) -> None:
    """Store code under a name, in the first writable folder."""
    import tempfile  # launching a known kernel stores nothing

    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(hashlib.sha256(data).digest() + data)
            Path(file.name).replace(folder / name)
        except OSError:
            continue
        trim(folder)
        return
    say_uncached("no folder can be written")


def object_of(key: str, level: int, make_text: Callable[[], str] | None = None) -> bytes:
    """Return the object file of a module, by its text or another key, from the cache or newly compiled."""
    name = name_of(key, level)
    data = find(name)
    if data is None:
        data = compile_text(make_text() if make_text else key, level)
        keep(name, data)
    return data


@cache
def helper_digest() -> str:
    """Return a digest of all sources that helpers are compiled from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in HELPER_SOURCES)).hexdigest()


class MachineCode:
    """The functions of a module in memory, with the helpers that they call: `addresses` by name."""

    def __init__(self, text: str, helpers: set[Helper], names: list[str]) -> None:
        """Compile or load a module without optimization and its helpers with optimization, and link them."""
        target = target_machine()
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, target)  # takes ownership of both
        self._add(object_of(text, UNOPTIMIZED))
        for helper in with_callees(helpers):
            self._add(object_of(f"{helper_digest()} {helper}", OPTIMIZED, partial(helper_text, *helper)))
        self._engine.finalize_object()
        self.addresses: dict[str, int] = {name: self._engine.get_function_address(name) for name in names}

    def _add(self, data: bytes) -> None:
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
