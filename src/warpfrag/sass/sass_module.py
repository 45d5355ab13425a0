"""Machine-code modules: read cubins, fatbins and host binaries, and select a kernel to launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike

from warpfrag.cuda_tools import check_machine_code_allowed
from warpfrag.errors import FileError, InvalidOperand, quote
from warpfrag.machine.interpreter.device_memory import DeviceMemory, MemorySnapshot
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir.actions import SYSTEM_FUNCTIONS
from warpfrag.machine.ir.program import ModuleVariable, Parameter, SourceLine
from warpfrag.machine.ir.state_spaces import ALIGNMENT, CODE, VARIABLES
from warpfrag.machine.launch.grid import Judgement, Progress, Waves, Work
from warpfrag.machine.launch.kernel import Kernel, KernelModule
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.sass.compared_spellings import read_compared
from warpfrag.sass.cubin import Cubin, CubinSection, CubinSymbol
from warpfrag.sass.disassembler import disassemble
from warpfrag.sass.exactness import judge, uncompared
from warpfrag.sass.fatbin import read_cubins
from warpfrag.sass.lowering import SassProgram, lower
from warpfrag.sass.sass_instruction import INSTRUCTION_BYTES, CodeTarget, SassInstruction
from warpfrag.sass.stored_addresses import depends_on_addresses

FUNCTIONS = 1 << 28  # the address of the first callee in another section; every kernel starts at 0


def load(
    source: str | PathLike[str] | bytes,
    *,
    arch: str | None = None,
    kernel: str | None = None,
    keep_state: bool = False,
    nvdisasm: str | PathLike[str] | None = None,
) -> SassModule:
    """Load machine code from a cubin, a fatbin, or a binary with embedded fatbins, given as a path or bytes.

    If the file contains several cubins, `arch` and the name of a `kernel` select one. NVIDIA's closed-source libraries
    are rejected, because their licence forbids disassembly. Each launch starts with the initial values of the module's
    variables or, with `keep_state`, with the values that the last launch left.
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
    program: SassProgram
    layout: Sequence[Parameter] = ()  # of the parameter bytes of a launch, if it is not that of the machine code

    @cached_property
    def instructions(self) -> tuple[SassInstruction, ...]:
        """The decoded instructions, with addresses, text, and source lines if the cubin has line information."""
        return self.module.decode(self.name)

    @cached_property
    def sources(self) -> Mapping[int, SourceLine]:
        """The source line of each address, if the cubin has line information."""
        return {inst.address: inst.source for inst in self.instructions if inst.source is not None}

    def for_launch(self, config: LaunchConfig) -> SassKernel:
        """Return this kernel or, for a launch with clusters, its cluster variant."""
        return self.in_cluster if config.cluster_blocks > 1 and not self.cluster else self

    @cached_property
    def in_cluster(self) -> SassKernel:
        """The variant of the kernel for launches in clusters, if its code does not require clusters."""
        kernel = SassKernel(self.module.program(self.name, in_cluster=True), self.module)
        kernel.layout = self.layout
        return kernel

    def constant_banks(self, config: LaunchConfig, parameters: bytes) -> bytes:
        """Return the constant banks of a launch."""
        data = bytearray(parameters if not self.layout else self.program.parameter_bytes)
        for own, given in zip(self.parameters, self.layout, strict=False):
            data[own.offset : own.offset + own.size] = parameters[given.offset : given.offset + own.size]
        return self.program.constant_banks(config, bytes(data))

    def judge(
        self, config: LaunchConfig, memory: DeviceMemory, waves: Waves, seconds: float, progress: Progress | None
    ) -> Judgement:
        """Run a launch, and find reasons why the order of accesses may change the result."""
        return judge(self.program, config, memory, waves, self.sources, seconds, progress)

    def uncompared(self, work: Work, before: MemorySnapshot | None) -> tuple[str, ...]:
        """Return a reason for every executed spelling that was not compared with a GPU of this architecture."""

        def moves() -> bool:
            waves = self.waves(work.config, None)
            return before is not None and depends_on_addresses(work, self.program, waves, before)

        return uncompared(work, self.program, self.module.compared_spellings(), self.instructions, moves)


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
        """The code that a launch executes: the architecture, the assembler's version (if known), and a digest."""
        digest = hashlib.sha256(self.cubin.data).hexdigest()[:16]
        assembler = f", ptxas {self.cubin.producer}" if self.cubin.producer else ""
        return f"sass {self.cubin.arch}{assembler}, cubin {digest}"

    @property
    def target(self) -> str:
        """The architecture, such as sm_90a."""
        return self.cubin.arch

    @property
    def address_size(self) -> int:
        """The width of an address in bits."""
        return 64

    @cached_property
    def section_starts(self) -> dict[str, int]:
        """The address of each section that contains global variables."""
        starts, end = {}, VARIABLES
        for section in self.cubin.global_sections:
            starts[section.name] = end
            end += -(-(section.size + 1) // ALIGNMENT) * ALIGNMENT
        return starts

    def address_of(self, symbol: CubinSymbol) -> int:
        """Return a symbol's address; it is relative to the section for shared memory, constants and kernels."""
        if not symbol.section:  # calling an unmodelled function is an error only when the call runs
            return self.driver_functions.get(symbol.name, CODE)
        start = self.section_starts.get(symbol.section) or self.function_starts.get(symbol.section, 0)
        return start + symbol.offset

    @cached_property
    def driver_functions(self) -> dict[str, int]:
        """The addresses that stand for the driver functions that the module calls."""
        used = {symbol.name for symbol in self.cubin.symbols.values() if not symbol.section}
        return {name: CODE + (at + 1) * INSTRUCTION_BYTES for at, name in enumerate(SYSTEM_FUNCTIONS) if name in used}

    @cached_property
    def function_starts(self) -> dict[str, int]:
        """The address of each section that contains functions called by kernels."""
        starts, end = {}, FUNCTIONS
        for name in self.cubin.functions:
            if name not in self.cubin.kernels:
                code = self.cubin[name].code
                # leave a gap before the next function
                starts[code.name], end = end, end + len(code.data) + INSTRUCTION_BYTES
        return starts

    def callees(self, entry: str) -> list[str]:
        """Return the functions in separate sections that a kernel may call, directly or through a pointer."""
        if not self.function_starts:
            return []
        function = self.cubin[entry]
        found: list[str] = []
        sections = [function.code, *function.constants.values(), *self.cubin.global_sections]
        while sections:
            for each in sections.pop().relocations:
                name = each.symbol.section.removeprefix(".text.")
                if each.symbol.section in self.function_starts and name not in found:
                    found.append(name)
                    sections.append(self.cubin[name].code)
        return found

    def decode(self, entry: str) -> tuple[SassInstruction, ...]:
        """Return the instructions of a kernel and its callees, with source lines if the cubin has line information."""
        functions = [self.cubin[name] for name in (entry, *self.callees(entry))]
        codes = [function.code.relocated(self.address_of) for function in functions]
        found: list[SassInstruction] = []
        for function, part in zip(functions, disassemble(codes, self.cubin.arch, self.nvdisasm), strict=True):
            start = self.function_starts.get(function.code.name, 0)
            if start or len(function.lines):
                found += (moved(replace(inst, source=function.lines.at(inst.address)), start) for inst in part)
            else:
                found += part
        return tuple(found)

    def program(self, entry: str, *, in_cluster: bool = False) -> SassProgram:
        """Decode and lower a kernel."""
        own = self.address_of, self.variables(), self.driver_functions
        return lower(self.cubin[entry], self.decode(entry), *own, in_cluster=in_cluster)

    def kernel(self, entry: str) -> SassKernel:
        """Return a new kernel for the entry with this name."""
        return SassKernel(self.program(entry), self)

    def taking(self, entry: str, layout: Sequence[Parameter]) -> Kernel:
        """Return a kernel that takes parameter bytes in the layout of its PTX.

        Offsets in PTX are aligned; machine code aligns addresses in the constant bank, which starts with other data.
        """
        kernel = self[entry]
        if isinstance(kernel, SassKernel):
            kernel.layout = layout
        return kernel

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
            if symbol.offset + symbol.size > section.size:
                raise FileError(f"symbol {quote(symbol.name)} ({symbol.size} bytes) is outside section {section.name}")
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


def moved(inst: SassInstruction, start: int) -> SassInstruction:
    """Return an instruction of a function that is moved to address `start`; absolute targets stay unchanged."""
    operands = tuple(
        replace(operand, address=operand.address + start)
        if isinstance(operand, CodeTarget) and "ABS" not in inst.modifiers
        else operand
        for operand in inst.operands
    )
    return replace(inst, address=inst.address + start, operands=operands)
