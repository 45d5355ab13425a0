"""Compile LLVM text to machine code, link it into this process, and keep the objects on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from llvmlite import __version__ as llvmlite_version
from llvmlite import binding as llvm

from warpfrag.disk_cache import DIGITS, DiskCache
from warpfrag.layout import coordinates
from warpfrag.machine.interpreter import device_memory, store_tags
from warpfrag.machine.ir import program as decoded_program
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.jit import context, ir_builder, memory_access, store_overlaps
from warpfrag.machine.jit.memory_access import Helper, helper_text, with_callees
from warpfrag.smem import shared_memory

CACHE = DiskCache("ptx", ".o", max_bytes=1 << 28)  # thousands of kernels
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


def name_of(key: str, level: int) -> str:
    """Return the file name of a module, derived from LLVM, the processor, the optimization level and the text's key."""
    host = (llvmlite_version, llvm.llvm_version_info, llvm.get_default_triple(), llvm.get_host_cpu_name())
    dependencies = f"{host} {llvm.get_host_cpu_features().flatten()} {level} {key}"
    return f"{hashlib.sha256(dependencies.encode()).hexdigest()[:DIGITS]}{CACHE.suffix}"


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


def object_of(key: str, level: int, make_text: Callable[[], str] | None = None) -> bytes:
    """Return the object file of a module, by its text or another key, from the cache or newly compiled."""
    name = name_of(key, level)
    data = CACHE.find(name)
    if data is None:
        data = compile_text(make_text() if make_text else key, level)
        CACHE.keep(name, data)
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
