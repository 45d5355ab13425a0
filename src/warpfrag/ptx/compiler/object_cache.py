"""Text to native code, kept on disk: the name of a file is a digest of all that the code depends on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "ptx"
# Levels of LLVM's passes. A kernel's steps are straight lines of vectors: passes take long and find nothing there.
AS_IT_IS, OPTIMIZED = 0, 2


def machine() -> Any:  # noqa: ANN401 (llvmlite has no types)
    """The processor that runs all this."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)


def digest(text: str, level: int) -> str:
    """What compiled code depends on."""
    host = (llvmlite.__version__, llvm.llvm_version_info, llvm.get_host_cpu_name())
    return hashlib.sha256(f"{host} {llvm.get_host_cpu_features().flatten()} {level} {text}".encode()).hexdigest()[:32]


def folders() -> Iterator[Path]:
    """Where compiled code may be kept, as numba keeps its own: a folder that is named, the package's, the user's."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named) / FOLDER
    yield Path(__file__).parent / "__pycache__" / FOLDER
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "warpfrag" / FOLDER


def compile_text(text: str, level: int) -> bytes:
    """An object file."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    target = machine()
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    found: bytes = target.emit_object(module)
    return found


def object_of(text: str, level: int) -> bytes:
    """The object file of a text: from disk, or compiled and kept there."""
    name = f"{digest(text, level)}.o"
    for folder in folders():
        with suppress(OSError):
            return (folder / name).read_bytes()
    data = compile_text(text, level)
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            Path(file.name).replace(folder / name)
        except OSError:
            continue
        return data
    from warpfrag.arithmetic.kernels.jit import say_uncached

    say_uncached("no folder can be written")
    return data


class Code:
    """The functions of one text, and of others that these call."""

    def __init__(self, text: str, others: list[str], names: list[str]) -> None:
        """Load them."""
        target = machine()
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, target)  # which takes both as its own
        for data in (object_of(text, AS_IT_IS), *(object_of(other, OPTIMIZED) for other in others)):
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()
        self.addresses: dict[str, int] = {name: self._engine.get_function_address(name) for name in names}
