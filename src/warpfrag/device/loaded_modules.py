"""The modules of a program: select the image for the GPU, and store its variables in device memory.

Images that NVIDIA's closed-source libraries load are never executed, nor are images whose loader is not in a file.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from warpfrag.cuda_tools import execution_level, find_tool
from warpfrag.device.error_codes import ErrorCode
from warpfrag.errors import CudaError, FileError, MissingExtra, WarpfragError
from warpfrag.machine.launch.kernel import Kernel, KernelModule
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.machine.launch.symbols import initial_bytes
from warpfrag.sass.cubin import Cubin, CubinSection
from warpfrag.sass.elf_file import ElfFile
from warpfrag.sass.fatbin import CLOSED_LIBRARIES, FATBIN_MAGIC, CodeImage, read_images
from warpfrag.sass.lowering import CONSTANT_BANK, SassProgram
from warpfrag.sass.sass_module import SassModule

if TYPE_CHECKING:
    from warpfrag.machine.ir.program import ModuleVariable, SourceLine

RESERVED_SHARED = 1024  # the bytes of shared memory that sm_90 reserves in every block
DYNAMIC_SHARED = 48 * 1024  # the limit for static plus dynamic shared memory, unless a program requests more
CONSTANT = f".nv.constant{CONSTANT_BANK}"
REGISTERS_PER_BLOCK = 65536
# file suffixes by the input type of cuLinkAddData
LINK_SUFFIXES = {0: ".cubin", 1: ".ptx", 2: ".fatbin", 3: ".o", 4: ".a"}


class PlacedModule(SassModule):
    """Machine code whose variables are in device memory, at addresses that the caller sets."""

    def __init__(self, cubin: Cubin) -> None:
        """Create a module whose sections have no addresses yet."""
        super().__init__(cubin, keep_state=True)
        self.section_starts = {}

    @property
    def memory_sections(self) -> list[CubinSection]:
        """The sections with global variables and constants."""
        constants = self.cubin.section(CONSTANT)
        return [*self.cubin.global_sections, *([constants] if constants is not None else [])]

    def variables(self) -> dict[str, ModuleVariable]:
        """Return no variables, because they are in device memory."""
        return {}


class LoadedModule:
    """A module that a program has loaded: its code, and the memory that contains its variables."""

    def __init__(self, image: bytes, loader: str, arch: str) -> None:
        """Read the image for `arch`; raise CudaError if no image can run on it."""
        self.loader, self.arch = loader, arch
        self.refusal = refusal_of(loader)
        self.module: KernelModule | None = None
        self.address = 0
        self.kernels: dict[str, Kernel] = {}
        self.memory: NDArray[np.uint8] = np.zeros(0, np.uint8)
        if not self.refusal:
            self.module = read_module(image, arch)

    @cached_property
    def sections(self) -> dict[str, tuple[int, int]]:
        """The offset and the size of each section or variable in the module's memory."""
        found, end = {}, 0
        module = self.module
        sizes: list[tuple[str, int, int]] = []
        if isinstance(module, PlacedModule):
            sizes = [(section.name, section.size, section.alignment) for section in module.memory_sections]
        elif module is not None:
            sizes = [(name, variable.size, 256) for name, variable in module.symbols.variables.items()]
        for name, size, align in sizes:
            start = -(-end // max(align, 256)) * max(align, 256)
            found[name], end = (start, size), start + size
        return found

    @property
    def bytes(self) -> int:
        """The size of all variables in bytes."""
        return max((start + size for start, size in self.sections.values()), default=0)

    def place(self, address: int, memory: NDArray[np.uint8]) -> None:
        """Use device memory for the variables, and write their initial values to it."""
        self.address, self.memory = address, memory
        module = self.module
        if isinstance(module, PlacedModule):
            starts = {name: address + start for name, (start, _) in self.sections.items() if name != CONSTANT}
            module.section_starts = starts
            for section in module.memory_sections:
                start, size = self.sections[section.name]
                memory[start : start + size] = np.frombuffer(section.relocated(module.address_of), np.uint8)[:size]
        elif module is not None:
            for name, variable in module.symbols.variables.items():
                start, size = self.sections[name]
                memory[start : start + size] = initial_bytes(variable)
                module.symbols.bind(name, memory[start : start + size])

    def names(self) -> list[str]:
        """Return the names of the kernels."""
        return list(self.module) if self.module is not None else []

    def variable(self, name: str) -> tuple[int, int]:
        """Return the address and the size of a variable; raise KeyError if there is none."""
        if isinstance(self.module, PlacedModule):
            symbol = self.module.cubin.symbols[name]
            return self.address + self.sections[symbol.section][0] + symbol.offset, symbol.size
        start, size = self.sections[name]
        return self.address + start, size

    def kernel(self, name: str) -> Kernel:
        """Return a kernel, with the current values of its constants; it is decoded on first use."""
        module = self.module
        if module is None:
            raise CudaError(ErrorCode.NOT_SUPPORTED, f"{readable(name)} was not executed: {self.refusal}")
        if name not in self.kernels:
            # the kernels that SassModule.kernel returns judge if their launches are exact
            is_machine_code = isinstance(module, SassModule)
            self.kernels[name] = module.kernel(name) if is_machine_code else Kernel(module.program(name), module)
        kernel = self.kernels[name]
        program = kernel.program
        if isinstance(program, SassProgram) and CONSTANT in self.sections and CONSTANT_BANK in program.banks:
            start, size = self.sections[CONSTANT]
            bank = program.banks[CONSTANT_BANK]
            program.banks[CONSTANT_BANK] = self.memory[start : start + size].tobytes().ljust(len(bank), b"\0")
        return kernel

    def source_of(self, kernel: str, line: int) -> SourceLine | None:
        """Return the source line of a machine instruction, if the program was compiled with -lineinfo."""
        module = self.module
        if isinstance(module, PlacedModule):
            return module.cubin[kernel].lines.at(line)
        return module.sources.get(line) if module is not None else None

    def attributes(self, name: str) -> tuple[list[int], list[tuple[int, int]], int]:
        """Return the attributes of a kernel by number, the offset and size of each parameter, and their total size."""
        if self.module is None:
            return [1024, 0, 0, 0, 32, 90, 90, 0, 227 * 1024, -1, 0, 0, 0, 0, 0, 0], [], 0
        bounds: tuple[int, ...] | None
        version = int(self.arch.removeprefix("sm_").rstrip("a"))
        if isinstance(self.module, PlacedModule):
            function = self.module.cubin[name]
            registers, local = function.registers, function.frame_bytes
            static = max(0, function.shared_bytes - RESERVED_SHARED)
            bounds = function.required_threads or function.max_threads
            parameters = [(each.offset, each.size) for each in function.parameters]
            size, cluster = function.parameter_bytes, function.cluster
            constants = len(function.constants[CONSTANT_BANK].data) if CONSTANT_BANK in function.constants else 0
        else:
            program = self.kernel(name).program
            registers, local, static, constants = 32, program.local_bytes, program.shared_bytes, 0
            bounds = program.directives.get("reqntid") or program.directives.get("maxntid")
            parameters = [(each.offset, each.size) for each in program.parameters]
            size, cluster = program.parameter_bytes, self.kernel(name).cluster
        threads = 1024 if bounds is None else min(1024, prod(bounds))
        if registers:
            threads = min(threads, REGISTERS_PER_BLOCK // (-(-registers // 8) * 8) // 32 * 32)
        shape = cluster or (0, 0, 0)
        values = [threads, static, constants, local, registers, version, version, 0, DYNAMIC_SHARED - static, -1]
        return [*values, int(cluster is not None), *shape, 0, 0], parameters, size


def refusal_of(loader: str) -> str:
    """Return the reason why code that this file has loaded is not executed, or an empty string."""
    if not loader:
        return "the code that loaded the module is not in a file, so its origin is unknown"
    names = [PurePath(loader).name]
    try:
        with open(loader, "rb") as file:  # noqa: PTH123 (as in warpfrag.files)
            names.append(ElfFile(mmap(file.fileno(), 0, access=ACCESS_READ), loader).soname)
    except (OSError, ValueError, WarpfragError):
        pass  # an unreadable file is judged by its name
    closed = [name for name in names if name.startswith(CLOSED_LIBRARIES)]
    if closed:
        return f"NVIDIA's closed-source library {closed[0]} loaded the module, and its licence forbids disassembly"
    return ""


def read_module(image: bytes, arch: str) -> KernelModule:
    """Return the module in a cubin, a fatbin or PTX source; PTX is assembled if ptxas is installed."""
    if image[:4] not in {FATBIN_MAGIC, b"\x7fELF"}:
        return read_ptx(image, arch)
    try:
        images = read_images(image)
    except FileError as error:
        raise CudaError(ErrorCode.INVALID_IMAGE, str(error)) from None
    cubins = [each for each in images if each.category == "cubin" and runs(each, arch)]
    if cubins:
        return PlacedModule(Cubin(max(cubins, key=number_of).read(), "the cubin"))
    texts = [each for each in images if each.category == "ptx" and number_of(each) <= number(arch)]
    if not texts:
        found = ", ".join(sorted({f"{each.category} for {each.arch}" for each in images}))
        raise CudaError(ErrorCode.NO_BINARY_FOR_GPU, f"the module has no code for {arch}; it has {found or 'no code'}")
    return read_ptx(max(texts, key=number_of).read(), arch)


def number(arch: str) -> int:
    """Return the number of an architecture, such as 90."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def number_of(image: CodeImage) -> int:
    """Return the number of an image's architecture."""
    return number(image.arch)


def runs(image: CodeImage, arch: str) -> bool:
    """Return True if a cubin's major version is the GPU's, and its minor version is not higher."""
    return number_of(image) // 10 == number(arch) // 10 and number_of(image) <= number(arch)


def read_ptx(image: bytes, arch: str) -> KernelModule:
    """Return the module in PTX source, assembled if ptxas is installed."""
    from warpfrag.ptx import load

    try:
        module = load(image.rstrip(b"\0").decode("utf-8") + "\n", keep_state=True)
    except (WarpfragError, UnicodeDecodeError) as error:
        raise CudaError(ErrorCode.INVALID_PTX, str(error)) from None
    if execution_level() == "ptx":
        return module
    try:
        return PlacedModule(module.assemble(arch=arch).cubin)
    except MissingExtra:
        return module
    except WarpfragError as error:
        raise CudaError(ErrorCode.INVALID_PTX, str(error)) from None


def link_images(inputs: Sequence[tuple[int, bytes]], arch: str) -> bytes:
    """Link several inputs of cuLinkAddData, each with its type, into one cubin; PTX is assembled first."""
    with tempfile.TemporaryDirectory(prefix="warpfrag-link-") as folder:
        paths = []
        for number, (category, data) in enumerate(inputs):
            if category not in LINK_SUFFIXES:
                raise CudaError(ErrorCode.NOT_SUPPORTED, f"cuLinkAddData: input type {category} is not supported")
            path = Path(folder) / f"input{number}{LINK_SUFFIXES[category]}"
            path.write_bytes(data.rstrip(b"\0") if path.suffix == ".ptx" else data)
            if path.suffix == ".ptx":
                object_path = path.with_suffix(".cubin")
                run_linker("ptxas", "-c", f"-arch={arch}", str(path), "-o", str(object_path))
                path = object_path
            paths.append(str(path))
        result = Path(folder) / "linked.cubin"
        run_linker("nvlink", f"-arch={arch}", *paths, "-o", str(result))
        return result.read_bytes()


def run_linker(name: str, *arguments: str) -> None:
    """Run ptxas or nvlink; if it fails, raise CudaError with its message."""
    command = [str(find_tool(name).path), *arguments]
    done = subprocess.run(  # noqa: S603 (a CUDA tool; no shell reads its arguments)
        command, capture_output=True, check=False, text=True, errors="replace", stdin=subprocess.DEVNULL
    )
    if done.returncode:
        code = ErrorCode.INVALID_PTX if name == "ptxas" else ErrorCode.INVALID_IMAGE
        raise CudaError(code, f"cuLinkComplete: {(done.stderr or done.stdout).strip()}")
