"""Build object code of numba's loops: used by `machine.jit` only, until its loops are C too.

numba turns the loops into LLVM IR. The parts of numba in it are replaced: arguments come as words (`objects`), memory
from malloc. LLVM then makes an ELF file of it, for any target on any machine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import codegen, cpu
from numba.core.compiler_lock import global_compiler_lock

from warpfrag.tensorcore.kernels import jit, objects
from warpfrag.tensorcore.kernels.processor import MACHINES, TARGETS, VARIABLE, ObjectTarget, named_target

OF_NUMBAS_TARGET = re.compile(r'^target (?:triple|datalayout) = .*$|"target-(?:cpu|features)"="[^"]*"', re.MULTILINE)
"""The text that names the processor in LLVM IR."""
LEVEL = 3
"""LLVM's optimization level, the one that numba uses."""
MAY_CALL = {"malloc", "free", "memcpy", "memset", "memmove"}
"""The C library functions that an object may need."""
# What numba's reference counts call: a block of memory with numba's header in front (count, destructor, its argument,
# address, size, allocator). Kernels hold no references to arrays of Python's. Whatever alignment numba asks for, memory
# begins at a line of the cache, 64 bytes: a vector of 512 bits that crosses one takes twice as long to load.
RUNTIME = """
declare ptr @malloc(i64)
declare void @free(ptr)
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %all = add i64 %size, 128
  %info = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %info, null
  br i1 %none, label %end, label %fill
fill:
  %start = ptrtoint ptr %info to i64
  %past = add i64 %start, 128
  %aligned = and i64 %past, -64
  %data = inttoptr i64 %aligned to ptr
  store i64 1, ptr %info
  %at1 = getelementptr i64, ptr %info, i64 1
  store ptr null, ptr %at1
  %at2 = getelementptr i64, ptr %info, i64 2
  store ptr null, ptr %at2
  %at3 = getelementptr i64, ptr %info, i64 3
  store ptr %data, ptr %at3
  %at4 = getelementptr i64, ptr %info, i64 4
  store i64 %size, ptr %at4
  %at5 = getelementptr i64, ptr %info, i64 5
  store ptr null, ptr %at5
  br label %end
end:
  ret ptr %info
}
define void @NRT_MemInfo_call_dtor(ptr %info) {
  call void @free(ptr %info)
  ret void
}
"""


def emit_nothing() -> None:
    """Keep numba from making machine code for this process: the target may be one that does not run here."""
    instead: list[tuple[type, str, Any]] = [
        (codegen.JITCodeLibrary, "_finalize_specific", lambda _library: None),
        (codegen.JITCPUCodegen, "_add_module", lambda _codegen, _module: None),
        (
            cpu.CPUContext,
            "get_executable",
            lambda *_arguments: [].append,
        ),  # a built-in function for each: they are keys
    ]
    for kind, name, function in instead:  # numba has no switch for it
        setattr(kind, name, function)


def read_words(context: Any, builder: ir.IRBuilder, kind: Any, words: Iterator[ir.Value]) -> ir.Value:  # noqa: ANN401 (numba's)
    """Return an argument of a type, read from the words that `objects.collect` makes of it."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder)
        address = next(words)
        shape = [next(words) for _ in range(kind.ndim)]
        item = ir.Constant(ir.IntType(64), getattr(kind.dtype, "bitwidth", 8) // 8)  # a flag has none
        strides = [item]
        for extent in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], extent))
        data = builder.inttoptr(address, array.data.type)
        context.populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue()  # noqa: SLF001 (numba has no other name for it)
    if isinstance(kind, types.BaseTuple):
        fields = [read_words(context, builder, field, words) for field in cast("Any", kind)]
        return context.make_tuple(builder, kind, fields)
    word = next(words)
    if isinstance(kind, types.Boolean):
        return builder.trunc(word, context.get_value_type(kind))
    return word if kind.bitwidth == 64 else builder.trunc(word, context.get_value_type(kind))


def lower(name: str, entry: jit.KernelEntry[...], arguments: tuple[object, ...]) -> str:
    """Return an entry's LLVM IR for arguments of some types, with a function of this name that takes words."""
    dispatcher: Any = jit.inner(entry.compiled.py_func)  # without what Python calls, and without numba's cache
    signature = tuple(dispatcher.typeof_pyval(argument) for argument in arguments)
    dispatcher.compile(signature)
    result = dispatcher.overloads[signature]
    context, description = result.target_context, result.fndesc
    library = context.codegen().create_library(f"words_{name}")
    library.add_linking_library(result.library)
    module = library.create_ir_module(name)
    callee_type = context.call_conv.get_function_type(description.restype, description.argtypes)
    callee = ir.Function(module, callee_type, description.llvm_func_name)
    word = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), [word.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())

    def words() -> Iterator[ir.Value]:
        at = 0
        while True:
            yield builder.load(builder.gep(function.args[0], [ir.Constant(word, at)]))
            at += 1

    supply = words()
    values = [read_words(context, builder, kind, supply) for kind in description.argtypes]
    status, _ = context.call_conv.call_function(builder, callee, description.restype, description.argtypes, values)
    builder.ret(builder.select(status.is_ok, ir.Constant(ir.IntType(32), 0), ir.Constant(ir.IntType(32), 1)))
    library.add_ir_module(module)
    library.finalize()
    return str(library.get_llvm_str())


def optimize(texts: dict[str, str], target: ObjectTarget) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Return the code of all entries as one module, in which only they have names, and the machine that emits it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=LEVEL, reloc="pic", codemodel="default"
    )
    whole = llvm.parse_assembly(RUNTIME)
    whole.triple, whole.data_layout = target.triple, str(machine.target_data)
    for name, text in texts.items():
        part = llvm.parse_assembly(OF_NUMBAS_TARGET.sub("", text))
        part.triple, part.data_layout = target.triple, str(machine.target_data)
        for function in part.functions:
            if not function.is_declaration and function.name != name:
                function.linkage = "internal"
        for variable in part.global_variables:
            if not variable.is_declaration:
                variable.linkage = "internal"
        whole.link_in(part)
    for function in whole.functions:
        if not function.is_declaration and function.name not in texts:
            function.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=LEVEL)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(whole, builder)
    needed = {function.name for function in whole.functions if function.is_declaration and "llvm." not in function.name}
    if not needed <= MAY_CALL:
        raise ValueError(f"objects may call {sorted(MAY_CALL)}; the loops call {sorted(needed - MAY_CALL)}")
    return whole, machine


def packed(
    calls: dict[str, tuple[jit.KernelEntry[...], tuple[object, ...]]], source: str, target: ObjectTarget
) -> bytes:
    """Return the object of some entries, each for arguments of these types; `source` is the digest of their files."""
    texts = {}
    for name, (entry, arguments) in sorted(calls.items()):
        with global_compiler_lock:
            texts[name] = lower(name, entry, arguments)
    kinds = {name: objects.kinds_of(arguments) for name, (_entry, arguments) in calls.items()}
    module, machine = optimize(texts, target)
    return objects.pack(machine.emit_object(module), source, target.name, kinds)


def numbas_processor(target: ObjectTarget) -> dict[str, str]:
    """Return numba's settings for the processor: the target's, or a 128-bit vector one on a machine of another kind.

    numba optimizes for a processor of this machine's kind only; `optimize` does so again for the target.
    """
    host = MACHINES.get(platform.machine().lower())
    if target.machine == host:
        return {"NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": target.features}
    if host == "x86":
        return {"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": "+fma"}
    return {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}


def main(module: str, build: Callable[[ObjectTarget, Path], None]) -> None:
    """Build each target in a process of its own that runs the module: numba makes code for one processor only."""
    targets = {target.name: target for target in TARGETS}
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(targets)
    if not targets.keys() >= set(names):
        sys.exit(f"expected targets among {', '.join(targets)}, got {', '.join(names)}")
    folder.mkdir(parents=True, exist_ok=True)
    target = named_target()
    if target is not None and names == [target.name]:
        build(target, folder)
        sys.stdout.write(f"{module}: {target.name}, {time.process_time():.0f} s of CPU\n")
        return
    for name in names:
        settings = {VARIABLE: name, **numbas_processor(targets[name])}
        command = [sys.executable, "-m", module, str(folder), name]
        subprocess.run(command, check=True, env={**os.environ, **settings})  # noqa: S603 (our own command)
