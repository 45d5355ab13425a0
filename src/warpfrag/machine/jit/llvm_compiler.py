"""Compile LLVM text for the host processor, link it into this process, and cache object files on disk."""

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import RLock

from llvmlite import __version__ as llvmlite_version
from llvmlite import binding as llvm

from warpfrag.disk_cache import DIGITS, DiskCache
from warpfrag.layout import coordinates
from warpfrag.machine.interpreter import device_memory, store_tags
from warpfrag.machine.ir import program as decoded_program
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.jit import context, ir_builder, memory_access, store_overlaps
from warpfrag.machine.jit.memory_access import Helper, functions_of, helper_text, with_callees
from warpfrag.smem import shared_memory

CACHE = DiskCache("ptx", ".o", max_bytes=1 << 28)  # enough for thousands of kernels
FAST, HOT, HELPER = (0, 0), (0, 2), (2, 2)
"""Optimization levels (LLVM's passes, code generator) for new segments, for segments that run often, and for helpers.
Segments are straight-line vector code, which the passes do not improve. At level 2, the code generator makes them a
fifth faster but takes four times as long."""
HELPER_SOURCES = [
    Path(str(module.__file__))
    for module in (
        context, ir_builder, memory_access, store_overlaps, device_memory, store_tags, decoded_program,
        state_spaces, shared_memory, coordinates,
    )
]  # fmt: skip
"""The source files that determine the code of helpers."""


def target_machine(level: int = 2) -> llvm.TargetMachine:
    """Return an LLVM target machine for the host processor with all of its features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=level, jit=True)


def name_of(key: str, level: tuple[int, int]) -> str:
    """Return a module's cache file name, which depends on the LLVM version, processor, optimization level and key."""
    host = (llvmlite_version, llvm.llvm_version_info, llvm.get_default_triple(), llvm.get_host_cpu_name())
    dependencies = f"{host} {llvm.get_host_cpu_features().flatten()} {level} {key}"
    return f"{hashlib.sha256(dependencies.encode()).hexdigest()[:DIGITS]}{CACHE.suffix}"


def compile_text(text: str, level: tuple[int, int]) -> bytes:
    """Compile a module to an object file."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level[0])
    target = target_machine(level[1])
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


def object_of(key: str, level: tuple[int, int], make_text: Callable[[], str] | None = None) -> bytes:
    """Return a module's object file, cached or compiled; without `make_text`, `key` is the LLVM text itself."""
    name = name_of(key, level)
    data = CACHE.find(name)
    if data is None:
        data = compile_text(make_text() if make_text else key, level)
        CACHE.keep(name, data)
    return data


@cache
def helper_digest() -> str:
    """Return a hash of the source files that determine the code of helpers."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in HELPER_SOURCES)).hexdigest()


LOCK = RLock()
LINKED: set[Helper] = set()
"""The helpers that are linked into this process; all kernels can call them."""
KEPT: list[llvm.ExecutionEngine] = []
"""The execution engines that own the helpers' code; kept forever, so the code is never freed."""


def linked(data: bytes) -> llvm.ExecutionEngine:
    """Link an object file into this process, and return the execution engine that owns it."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())  # the engine owns both arguments
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine


def link_helpers(helpers: set[Helper]) -> None:
    """Compile or load helpers, callees first, and register their functions with the linker."""
    for helper in with_callees(helpers):
        if helper not in LINKED:
            engine = linked(object_of(f"{helper_digest()} {helper}", HELPER, partial(helper_text, *helper)))
            KEPT.append(engine)
            for name in functions_of(helper):
                llvm.add_symbol(name, engine.get_function_address(name))
            LINKED.add(helper)


def addresses_of(
    text: str, helpers: set[Helper], names: list[str], level: tuple[int, int]
) -> tuple[llvm.ExecutionEngine, dict[str, int]]:
    """Compile or load a module; return its engine, and its functions' addresses by name."""
    with LOCK:
        link_helpers(helpers)
        engine = linked(object_of(text, level))
        return engine, {name: engine.get_function_address(name) for name in names}
