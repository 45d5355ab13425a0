"""PTX modules: load or link their text, and select an entry to launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from warpfrag.cuda_tools import check_machine_code_allowed, find_tool
from warpfrag.errors import FileError, InvalidOperand, PtxError, WarpfragError, quote
from warpfrag.files import read_bytes
from warpfrag.machine.ir.actions import SYSTEM_FUNCTIONS
from warpfrag.machine.ir.program import ModuleVariable, Program, SourceLine
from warpfrag.machine.launch.kernel import Kernel, KernelModule
from warpfrag.machine.launch.options import launch_arch
from warpfrag.machine.launch.run import PTX
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.ptx.lowering.call_graph import CallGraph
from warpfrag.ptx.lowering.passes import lower
from warpfrag.ptx.lowering.storage import module_variables
from warpfrag.ptx.reader.linker import LinkInput, link_modules
from warpfrag.ptx.reader.parser import parse
from warpfrag.ptx.reader.syntax import ModuleSyntax
from warpfrag.ptx.source_lines import source_lines
from warpfrag.sass.cubin import Cubin
from warpfrag.sass.elf_file import ELF_MAGIC
from warpfrag.sass.fatbin import FATBIN_MAGIC
from warpfrag.sass.ptxas import assemble
from warpfrag.sass.sass_module import SassModule

MAX_TEXT = 1 << 28  # maximum size of a module in bytes
MODULE_START = re.compile(r"(?:\s|/\*(?:[^*]|\*(?!/))*+\*/)*+\.version\s")


def load(source: str | Path, *, keep_state: bool = False) -> Module:
    """Load a PTX module from a path, or from text that has several lines or begins with .version.

    Each launch starts with the initial values of the module's variables, except those that you set in `Module.symbols`.
    With `keep_state`, each launch starts with the values that the previous launch left, as on a GPU.
    """
    if isinstance(source, str) and ("\n" in source or MODULE_START.match(source)):
        return module_of(source, keep_state=keep_state)
    if not isinstance(source, str | Path) or not str(source).strip():
        raise InvalidOperand(f"expected a path or the text of a PTX module, got {quote(source)}")
    return module_of(read_text(source, "PTX"), keep_state=keep_state, file_name=Path(source).name)


def read_text(path: str | Path, language: str) -> str:
    """Return the text of a PTX or CUDA C++ file; raise FileError if it is machine code, empty or not text."""
    data = read_bytes(path, MAX_TEXT)
    is_code = data.startswith((ELF_MAGIC, FATBIN_MAGIC))
    found = "machine code: load it with wf.sass.load" if is_code else "" if data.strip() else "empty"
    with suppress(UnicodeDecodeError):
        if not found and b"\0" not in data:
            return data.decode("utf-8")
    raise FileError(f"{quote(str(path))} cannot be read as {language}: it is {found or 'binary, not UTF-8 text'}")


def module_of(text: str, *, keep_state: bool, file_name: str = "") -> Module:
    """Parse PTX source and return its module."""
    if "__global__" in text and not re.search(r"^\s*\.version\s", text, re.MULTILINE):
        line = text[: text.index("__global__")].count("\n") + 1
        raise PtxError(line, "__global__ is CUDA C++, not PTX: use wf.ptx.compile")
    source = parse(text)
    inputs = (LinkInput(file_name, text, source),)
    return Module(source, inputs, keep_state=keep_state, sources=partial(source_lines, text))


def link(modules: Sequence[Module | str | Path], *, keep_state: bool = False) -> Module:
    """Link several modules, each loaded or in a form that `load` accepts, and resolve .extern names.

    Raises PtxError with every name that is missing or defined twice. Messages and counts number the lines as if the
    files were concatenated.
    """
    if isinstance(modules, str | Path | Module) or not isinstance(modules, Sequence) or not modules:
        raise InvalidOperand(f"expected a list of modules, got {quote(modules)}")
    loaded = [module if isinstance(module, Module) else load(module) for module in modules]
    inputs = [
        replace(entry, name=entry.name or f"module {number}")
        for number, module in enumerate(loaded)
        for entry in module.inputs
    ]
    lines = 0
    sources: dict[int, SourceLine] = {}
    for module in loaded:
        sources |= {lines + number: source for number, source in module.sources.items()}
        lines += sum(entry.text.count("\n") + 1 for entry in module.inputs)
    linked = link_modules(inputs, readable, SYSTEM_FUNCTIONS)
    return Module(linked, tuple(inputs), keep_state=keep_state, sources=partial(dict, sources))


class Module(KernelModule):
    """A PTX module: a mapping from entry names to kernels.

    An entry is found by its PTX name, by its C++ name (`void gemm<float>(float*, int)`, `gemm<float>`, `gemm`), or by a
    part of its name that no other entry contains.
    """

    def __init__(
        self,
        source: ModuleSyntax,
        inputs: tuple[LinkInput, ...],
        *,
        keep_state: bool = False,
        sources: Callable[[], dict[int, SourceLine]] = dict,
    ) -> None:
        """Create a module from its syntax and source text; entries are lowered on first use."""
        super().__init__(keep_state=keep_state, read_sources=sources)
        self.source, self.inputs = source, inputs
        # machine code by architecture, or the error that assembling raised
        self._assembled: dict[str, SassModule | WarpfragError] = {}
        self._cubin: Cubin | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle; kernels and machine code are left out and recreated."""
        return {**super().__getstate__(), "_assembled": {}, "_cubin": None}

    @property
    def address_size(self) -> int:
        """The width of an address in bits: 64, or 32 in old modules."""
        return self.source.address_size

    @property
    def basis(self) -> str:
        """The code that a launch executes: PTX."""
        return PTX

    @property
    def version(self) -> str:
        """The PTX version, such as "8.7"."""
        return f"{self.source.version[0]}.{self.source.version[1]}"

    @property
    def target(self) -> str:
        """The target, such as "sm_80"."""
        return self.source.target

    def assemble(self, *, arch: str | None = None, ptxas: str | PathLike[str] | None = None) -> SassModule:
        """Assemble the module with the installed ptxas, by default for the architecture of a launch.

        Raises CompilationFailed with ptxas's message. A linked module cannot be assembled: link its cubins with nvlink.
        """
        check_machine_code_allowed()
        if len(self.inputs) != 1:
            raise InvalidOperand(f"cannot assemble {len(self.inputs)} linked modules; link their cubins with nvlink")
        tool, target = find_tool("ptxas", ptxas), launch_arch(self.target, arch)
        if self.target.startswith(target) and self.target.endswith("a"):
            target = self.target  # architecture-specific instructions require the suffix
        return SassModule(assemble(self.inputs[0].text, target, tool), keep_state=self.keep_state)

    def use_cubin(self, data: bytes) -> Cubin:
        """Use a cubin compiled from the same PTX for its architecture, instead of assembling the module."""
        self._cubin = Cubin(data)
        return self._cubin

    def machine_kernel(self, entry: str, arch: str) -> Kernel:
        """Return an entry as machine code, assembled by ptxas unless the module has a cubin; cached by architecture."""
        if arch not in self._assembled:
            try:
                if self._cubin is not None and self._cubin.arch.rstrip("a") == arch.rstrip("a"):
                    check_machine_code_allowed()
                    self._assembled[arch] = SassModule(self._cubin, keep_state=self.keep_state)
                else:
                    self._assembled[arch] = self.assemble(arch=arch)
            except WarpfragError as error:
                self._assembled[arch] = error
        module = self._assembled[arch]
        if isinstance(module, WarpfragError):
            raise module
        return module.taking(entry, self[entry].parameters)

    def program(self, entry: str) -> Program:
        """Lower an entry to a program."""
        return lower(self.source, entry)

    def variables(self) -> dict[str, ModuleVariable]:
        """Return the variables in global and constant memory."""
        return module_variables(self.source, CallGraph(self.source))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the entry names."""
        return (function.name for function in self.source.functions if function.is_entry and function.body)

    def __repr__(self) -> str:
        """Format the version, the target and the entries."""
        return f"<PTX {self.version} for {self.target}: {', '.join(map(readable, self))}>"
