"""Machine code modules: read cubins, fatbins and host binaries, and select a kernel to launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike

from warpfrag.cuda_tools import check_machine_code_allowed
from warpfrag.errors import InvalidOperand, quote
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.program import ModuleVariable, SourceLine
from warpfrag.machine.ir.state_spaces import ALIGNMENT, CODE, VARIABLES
from warpfrag.machine.launch.grid import Judgement, Progress, Waves, Work
from warpfrag.machine.launch.kernel import Kernel, KernelModule
from warpfrag.machine.launch.names import readable
from warpfrag.sass.compared_spellings import read_compared
from warpfrag.sass.cubin import Cubin, CubinSection, CubinSymbol
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.fatbin import read_cubins
from warpfrag.sass.judged_launch import judge, uncompared
from warpfrag.sass.lowering import SassProgram, lower
from warpfrag.sass.sass_instruction import SassInstruction

INSTRUCTION_BYTES = 16


def load(
    source: str | PathLike[str] | bytes,
    *,
    arch: str | None = None,
    kernel: str | None = None,
    keep_state: bool = False,
    nvdisasm: str | PathLike[str] | None = None,
) -> SassModule:
    """Load machine code from a cubin, a fatbin, or a binary with embedded fatbins, given as a path or bytes.

    If the file has several cubins, `arch` and the name of a `kernel` choose one. NVIDIA's closed libraries are refused:
    their licence forbids decoding them. Each launch starts from the initial values of the module's variables; with
    `keep_state` it starts from the values that the last launch left.
    """
    check_machine_code_allowed()
    cubins = read_cubins(source)
    chosen = [
        cubin
        for cubin in cubins
        if (arch is None or cubin.arch.rstrip("a") == arch.rstrip("a")) and (kernel is None or kernel in cubin.kernels)
    ]
    if len(chosen) != 1:
        listed = "; ".join(f"{cubin.arch}: {', '.join(map(readable, cubin.kernels))}" for cubin in cubins[:8])
        raise InvalidOperand(
            f"expected one cubin that fits arch={quote(arch)} and kernel={quote(kernel)}, got {len(chosen)};"
            f" the file has {len(cubins)}: {listed[:400] or 'no machine code'}"
        )
    return SassModule(chosen[0], keep_state=keep_state, nvdisasm=nvdisasm)


class SassKernel(Kernel):
    """A machine-code kernel, ready to launch."""

    module: SassModule

    @cached_property
    def instructions(self) -> tuple[SassInstruction, ...]:
        """The decoded instructions: address, text, and the source line if the cubin has line information."""
        return self.module.decode(self.name)

    @cached_property
    def sources(self) -> Mapping[int, SourceLine]:
        """The source line of each address, if the cubin has line information."""
        return {inst.address: inst.source for inst in self.instructions if inst.source is not None}

    def judge(
        self, config: LaunchConfig, memory: DeviceMemory, waves: Waves, progress: Progress | None
    ) -> Judgement:  # fmt: skip
        """Run a launch, and find the reasons why its order may change the result."""
        return judge(self.program, config, memory, waves, self.sources, progress)

    def uncompared(self, work: Work) -> tuple[str, ...]:
        """Return a reason for every executed spelling that was not compared with a GPU of this architecture."""
        return uncompared(work, self.module.compared_spellings(), self.program.target, self.sources)


class SassModule(KernelModule):
    """A cubin as a mapping from names to kernels that can be launched."""

    def __init__(self, cubin: Cubin, *, keep_state: bool = False, nvdisasm: str | PathLike[str] | None = None) -> None:
        """Create a module from a cubin; kernels are decoded on first use."""
        super().__init__(keep_state=keep_state, read_sources=self._source_lines)
        self.cubin, self.nvdisasm = cubin, nvdisasm

    def _source_lines(self) -> dict[int, SourceLine]:
        """Return the source line of each address if the module has one kernel, so that addresses are unambiguous."""
        names = list(self)
        if len(names) != 1:
            return {}
        function = self.cubin[names[0]]
        lines = {address: function.lines.at(address) for address in range(0, function.code.size, INSTRUCTION_BYTES)}
        return {address: line for address, line in lines.items() if line is not None}

    @property
    def basis(self) -> str:
        """The code that a launch executes: the architecture, the assembler's version if known, and a digest."""
        digest = hashlib.sha256(self.cubin.data).hexdigest()[:16]
        assembler = f", ptxas {self.cubin.producer}" if self.cubin.producer else ""
        return f"sass {self.cubin.arch}{assembler}, cubin {digest}"

    @property
    def address_size(self) -> int:
        """The width of an address in bits."""
        return 64

    @cached_property
    def section_starts(self) -> dict[str, int]:
        """The address of each section of global variables."""
        starts, end = {}, VARIABLES
        for section in self.cubin.global_sections:
            starts[section.name] = end
            end += -(-(section.size + 1) // ALIGNMENT) * ALIGNMENT
        return starts

    def address_of(self, symbol: CubinSymbol) -> int:
        """Return the address of a symbol: global, or relative to its shared, constant or code section."""
        if not symbol.section:  # a driver function; calling it raises an error
            return CODE
        return self.section_starts.get(symbol.section, 0) + symbol.offset

    def decode(self, entry: str) -> tuple[SassInstruction, ...]:
        """Return the instructions of a kernel, with source lines if the cubin has line information."""
        function = self.cubin[entry]
        (code,) = disassemble([function.code.relocated(self.address_of)], function.arch, self.nvdisasm)
        if not len(function.lines):
            return code
        return tuple(replace(inst, source=function.lines.at(inst.address)) for inst in code)

    def program(self, entry: str) -> SassProgram:
        """Decode and lower a kernel."""
        return lower(self.cubin[entry], self.decode(entry), self.address_of, self.variables())

    def kernel(self, entry: str) -> SassKernel:
        """Return a new kernel for an entry."""
        return SassKernel(self.program(entry), self)

    def compared_spellings(self) -> frozenset[str]:
        """Return the spellings that were compared with a GPU of this architecture."""
        return read_compared(self.cubin.arch.rstrip("a"))

    def variables(self) -> dict[str, ModuleVariable]:
        """Return the variables in global memory, by name."""
        sections: dict[str, CubinSection] = {section.name: section for section in self.cubin.global_sections}
        found = {}
        for symbol in self.cubin.symbols.values():
            section = sections.get(symbol.section)
            if section is None or not symbol.size:
                continue
            data = section.relocated(self.address_of)[symbol.offset : symbol.offset + symbol.size]
            address = self.section_starts[symbol.section] + symbol.offset
            found[symbol.name] = ModuleVariable(address, symbol.size, "global", "b8", (symbol.size,), data)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the kernel names."""
        return iter(self.cubin.kernels)

    def __repr__(self) -> str:
        """Format the architecture and the kernels."""
        return f"<machine code for {self.cubin.arch}: {', '.join(map(readable, self))}>"
