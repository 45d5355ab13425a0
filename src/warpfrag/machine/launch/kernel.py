"""Kernels and the modules that contain them: select an entry and launch it on NumPy arrays.

By default, a launch executes machine code if the PTX can be assembled and the launch is for the architecture whose
machine code was compared with a GPU. If the machine code fails, the PTX runs from the same initial memory. Either it
fails too, with an error that names PTX lines, or its result is returned with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal, NoReturn, Unpack

import numpy as np

from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.formats.float_environment import exact_floats
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.debugger.debugger import Debugger
from warpfrag.machine.interpreter.device_memory import Allocation, DeviceMemory, MemorySnapshot
from warpfrag.machine.interpreter.kernel_findings import BATCH_THREADS, ORDER_CHECKS, Check
from warpfrag.machine.interpreter.warp_state import LaunchConfig
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.actions import SystemCall, TensorCopy
from warpfrag.machine.ir.program import ModuleVariable, Parameter, Program, SourceLine
from warpfrag.machine.jit import c_functions
from warpfrag.machine.jit.engine import CompiledProgram
from warpfrag.machine.jit.screening import ProgramScreen
from warpfrag.machine.launch.device_array import ADDRESSES
from warpfrag.machine.launch.exploration import Exploration, explore
from warpfrag.machine.launch.grid import (
    InstrumentedLaunch,
    Judgement,
    Progress,
    Waves,
    Work,
    is_alone,
    is_ordered,
    warps_at_once,
)
from warpfrag.machine.launch.launch_arguments import Arguments, KernelArguments, LaunchKeywords, RawArguments
from warpfrag.machine.launch.options import (
    DEFAULT_OPTIONS,
    JUDGE_SECONDS,
    LIMIT,
    MEASURED,
    Engine,
    LaunchOptions,
    checks_of,
    chosen_engine,
    chosen_level,
    declared_shape,
    launch_arch,
    launch_config,
)
from warpfrag.machine.launch.run import Run
from warpfrag.machine.launch.run_builder import build_run
from warpfrag.machine.launch.run_evidence import opcode_evidence
from warpfrag.machine.launch.symbol_names import matching, readable, resolve, short_name
from warpfrag.machine.launch.symbols import Symbols
from warpfrag.smem.tensor_map import MAP_ALIGN, MAP_BYTES
from warpfrag.tensorcore.evidence import Evidence

Execute = Callable[[tuple[Check, ...], LaunchOptions], Run]
"""A function that runs a launch at one level, with the given checks and options."""
STOPPING = {"bounds", "misaligned", "readonly", "freed", "deadlock"}
"""Categories of findings after which the PTX launch may continue differently from a GPU."""


class KernelModule(Mapping[str, "Kernel"], ABC):
    """A mapping from entry names to kernels, with the variables that the kernels share.

    Each front end derives its module class from this class, and defines how programs and variables are read.
    """

    def __init__(self, *, keep_state: bool, read_sources: Callable[[], dict[int, SourceLine]]) -> None:
        """Create a module; kernels, source lines and variables are created on first use."""
        self._read_sources = read_sources
        self.symbols = Symbols(self.variables, keep=keep_state)
        self._kernels: dict[str, Kernel] = {}

    @property
    @abstractmethod
    def address_size(self) -> int:
        """The width of an address in bits."""

    @property
    @abstractmethod
    def basis(self) -> str:
        """The default `Run.basis` of launches of this module."""

    @abstractmethod
    def program(self, entry: str) -> Program:
        """Return the decoded program of an entry."""

    def machine_kernel(self, entry: str, arch: str) -> Kernel:
        """Return the kernel of an entry as machine code for an architecture.

        Overridden by front ends with an assembler.
        """
        raise InvalidOperand(f"{readable(entry)} cannot be assembled for {arch}")

    @abstractmethod
    def variables(self) -> dict[str, ModuleVariable]:
        """Return the variables in global and constant memory, by name."""

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle; kernels are left out and recreated on first use."""
        return {**self.__dict__, "_kernels": {}}

    @cached_property
    def sources(self) -> dict[int, SourceLine]:
        """The source line of each PTX line or machine-code address, if the code has line information."""
        return self._read_sources()

    @property
    def keep_state(self) -> bool:
        """True if variables keep their values after a launch."""
        return self.symbols.keep

    def reset(self) -> None:
        """Reset all variables to their initial values in place."""
        self.symbols.reset()

    def __getitem__(self, name: str) -> Kernel:
        """Return the kernel with this name; if none or several match, raise a PtxError that lists the entries."""
        entry = resolve(name, list(self), "entries")
        if entry not in self._kernels:
            self._kernels[entry] = self.kernel(entry)
        return self._kernels[entry]

    def kernel(self, entry: str) -> Kernel:
        """Return a new kernel for the entry with this name."""
        return Kernel(self.program(entry), self)

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Return True if a name identifies one entry."""
        return isinstance(name, str) and len(matching(name, list(self))) == 1


class Kernel:
    """An entry of a module, ready to launch."""

    def __init__(self, program: Program, module: KernelModule) -> None:
        """Create a kernel; it is compiled only after it has run long enough."""
        self.program, self.module = program, module

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy a kernel as its module and name."""
        return KernelModule.__getitem__, (self.module, self.name)

    def __repr__(self) -> str:
        """Format the name and the parameters."""
        if self.readable_name != self.name:
            return f"<kernel {self.readable_name}>"
        return f"<kernel {self.name}({', '.join(parameter.type for parameter in self.parameters)})>"

    @property
    def name(self) -> str:
        """The entry's name in PTX."""
        return self.program.name

    @property
    def readable_name(self) -> str:
        """The entry's C++ name with its parameter types, or `name` if that is not mangled."""
        return readable(self.name)

    @property
    def sources(self) -> Mapping[int, SourceLine]:
        """The source line of each PTX line or machine-code address, if the code has line information."""
        return self.module.sources

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters in order."""
        return self.program.parameters

    @property
    def shared_bytes(self) -> int:
        """The size of static shared memory in bytes."""
        return self.program.shared_bytes

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        """The cluster shape that the PTX requires, or None."""
        return declared_shape(self.program)

    @property
    def launch_arch(self) -> str:
        """The default architecture of a launch."""
        return launch_arch(self.program.target, None)

    @property
    def tensor_maps(self) -> list[str]:
        """The names of the parameters that take a tensor map by value."""
        if not any(isinstance(inst.action, TensorCopy) for inst in self.program.instructions):
            return []
        return [item.name for item in self.parameters if item.size == MAP_BYTES and item.align >= MAP_ALIGN]

    @cached_property
    def opcodes(self) -> dict[str, Evidence]:
        """The evidence for every opcode of the program on the architecture of the module's target."""
        return opcode_evidence(self.program, self.program.target)

    @cached_property
    def compiled(self) -> CompiledProgram:
        """The program for the compiled engine."""
        return CompiledProgram(self.program)

    @cached_property
    def _screen(self) -> ProgramScreen:
        """The screen that decides checks in compiled code."""
        return ProgramScreen(self.compiled)

    @cached_property
    def order_matters(self) -> bool:
        """True if the block order is visible: there are float atomics, or atomics whose old value is used."""
        return any(map(is_ordered, self.program.instructions))

    @cached_property
    def uses_heap(self) -> bool:
        """True if the kernel may call malloc."""
        return any(
            isinstance(inst.action, SystemCall) and inst.action.name == "malloc" for inst in self.program.instructions
        )

    @cached_property
    def is_shared_out(self) -> bool:
        """True if blocks may run on several cores: their order is not visible, and no block waits for another."""
        return not self.order_matters and not any(map(is_alone, self.program.instructions))

    @exact_floats
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object] = (),
        *,
        shared: int = 0,
        arch: str | None = None,
        checks: Sequence[Check] | Check | Literal["all"] = (),
        engine: Engine = "auto",
        seed: int | None = None,
        options: LaunchOptions = DEFAULT_OPTIONS,
        **keywords: Unpack[LaunchKeywords],
    ) -> Run:
        """Run the kernel; arrays among the arguments are global memory and change in place.

        A Python number is converted to the type of its PTX parameter; machine code has no types and takes NumPy scalars
        only. A struct is passed as its bytes, or as a list of its fields: arrays for pointers, NumPy scalars, bytes. A
        `Texture` or a `Surface` is passed as its handle. `params` gives all parameters as bytes instead, and `memory`
        is a `GlobalMemory` with the arrays at the addresses that they contain.

        `arch` is the architecture whose arithmetic is computed: sm_90 by default if the module's target runs there,
        else the target. `Run.arch` names it, and evidence refers to it.

        The blocks run in grid order, several at once if no atomic makes their order visible. A `seed` permutes them;
        with `checks`, it also chooses the warp that continues. The blocks of a compiled kernel are distributed over the
        cores unless their order is visible or one may wait for another. If an error or an interrupt ends a launch,
        memory keeps the values stored before.

        `checks` search for mistakes: "memory", "races", "uninitialised", "barriers" and "async", or "all".
        `Run.findings` lists them, `Run.verdict` summarises them. A misaligned access, a store to read-only memory, and
        an access outside every array, or outside shared or local memory, end the launch. With "memory", they are
        findings: the load returns 0 and the store is ignored. A deadlock is a finding with "barriers", and ends the
        launch. If compiled code cannot prove a launch clean, it runs again in the interpreter.

        `level` is the code that is executed: "sass" assembles PTX with the installed ptxas and executes the machine
        code, "ptx" executes PTX as its manual defines it, and "auto" executes machine code if possible, else PTX.
        `Run.basis` names the code, `Run.inexact` gives the reason for PTX. Checks judge the PTX in a separate run.
        """
        config = launch_config(self.program, grid, block, shared, arch, options)
        named, engine_name = checks_of(checks), chosen_engine(engine)
        wanted = chosen_level(keywords.pop("level", "auto"))
        given = self.take_arguments(args, keywords)

        def execute(kernel: Kernel, checks: tuple[Check, ...], own: LaunchOptions) -> Run:
            return kernel._execute(config, kernel.memory_of(given, config), checks, engine_name, seed, own)

        if self.program.is_machine_code:
            if wanted == "ptx":
                raise InvalidOperand(f"{self.name} is machine code: expected level auto or sass, got ptx")
            return execute(self.for_launch(config), named, options)
        machine: Kernel | None = None
        reason = ptx_reason(self.program, self.module.symbols, config, options, wanted)
        if not reason:
            try:
                machine = self.module.machine_kernel(self.name, config.arch).for_launch(config)
            except WarpfragError as error:
                if wanted == "sass":
                    raise
                reason = str(error)
        if machine is None:
            return replace(execute(self, named, options), ptx_reason=reason)
        memory = self.memory_of(given, config)
        return run_both_levels(partial(execute, self), partial(execute, machine), memory, named, options, wanted)

    def _execute(
        self,
        config: LaunchConfig,
        memory: DeviceMemory,
        named: tuple[Check, ...],
        engine_name: str,
        seed: int | None,
        options: LaunchOptions,
    ) -> Run:
        """Run the kernel's program on the given memory."""
        threads = options.threads
        compiled = self.compiled if engine_name != "reference" and c_functions.is_available() else None
        if engine_name == "compiled" and compiled is not None:
            compiled.prepare()
        waves = self.waves(config, seed, follow_order=bool(ORDER_CHECKS & set(named)))
        if not self.is_shared_out or options.limit < LIMIT or options.cooperative:
            threads = 1
        is_judged = self.program.is_machine_code and options.judge
        before = memory.snapshot() if options.explore or is_judged else None
        module = self.module
        judged = Judgement(reasons=("the exactness of the result was not judged",))
        if is_judged and before is not None:
            seconds = JUDGE_SECONDS if options.judge is True else float(options.judge)
            judged = self.judge(config, memory, self.waves(config, seed), seconds, options.progress)
            is_screened = judged.work is not None and judged.work.screen is not None
            is_own = not named and engine_name in {"auto", "compiled" if is_screened else "reference"}
            if judged.work is not None and not is_own and not (judged.work.failure and config.is_late):
                before.restore()
                judged = judged._replace(work=None)
        if judged.work is not None:
            work = judged.work
        elif named:
            config = replace(config, interleaving=None if seed is None else int(seed))
            screen = None if compiled is None else self._screen
            launch = InstrumentedLaunch(self.program, config, memory, named, self.sources, screen)
            work = launch.run(waves, threads, options.progress)
        else:
            work = Work(self.program, config, memory, compiled).run_waves(waves, threads, options.progress)
        if compiled is None and engine_name != "reference" and work.tally.total > self.compiled.patience:
            c_functions.warn_interpreted()
        result = build_run(work, self.readable_name, self.sources, module.address_size, named)
        result = replace(result, basis=module.basis)
        if self.program.is_machine_code:
            result = replace(result, reasons=(*self.uncompared(work, before), *judged.reasons))
        if options.explore and before is not None:
            result = replace(result, exploration=self._explored(memory, before, config, options.explore))
        return result

    def for_launch(self, config: LaunchConfig) -> Kernel:
        """Return the kernel that runs launches with this configuration; overridden for machine code."""
        del config
        return self

    def constant_banks(self, config: LaunchConfig, parameters: bytes) -> bytes:
        """Return the constant buffer of a launch, which in PTX contains only the parameters."""
        del config
        return parameters

    def judge(
        self, config: LaunchConfig, memory: DeviceMemory, waves: Waves, seconds: float, progress: Progress | None
    ) -> Judgement:
        """Run a launch and return reasons why the access order may change the result; overridden for machine code."""
        del config, memory, waves, seconds, progress
        return Judgement()

    def uncompared(self, work: Work, before: MemorySnapshot | None) -> tuple[str, ...]:
        """Return a reason for each executed SASS spelling that was not compared with a GPU.

        Overridden for machine code.
        """
        del work, before
        return ()

    def _explored(self, memory: DeviceMemory, before: MemorySnapshot, config: LaunchConfig, runs: int) -> Exploration:
        """Run other interleavings from the initial memory of the launch."""

        def run(seed: int) -> str:
            memory.observer = None
            work = Work(self.program, replace(config, interleaving=seed), memory, None)
            work.run_waves(self.waves(config, seed), 1, None)
            return str(work.failure[1]) if work.failure is not None else ""

        return explore(memory, before, runs, run)

    def debug(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object] = (),
        *,
        shared: int = 0,
        arch: str | None = None,
        seed: int | None = None,
        options: LaunchOptions = DEFAULT_OPTIONS,
        **raw: Unpack[RawArguments],
    ) -> Debugger:
        """Return a debugger for a launch on the reference engine; takes the arguments of `launch`.

        Nothing runs before `Debugger.run` or `step`. The only options that apply are `cluster`, `cooperative`, `limit`
        and `seconds`.
        """
        config = launch_config(self.program, grid, block, shared, arch, options)
        own = self.for_launch(config)
        waves = self.waves(config, seed)
        memory = own.device_memory(args, config, raw)
        debugger = Debugger(own.program, config, memory, (blocks for _, blocks in iter(waves.take, None)), self.sources)
        names = (short_name(parameter.name, self.name) for parameter in self.parameters)
        debugger.arguments = {name: (value, value) for name, value in zip(names, args, strict=False)}
        return debugger

    def __call__(self, *_args: object, **_options: object) -> NoReturn:
        """Raise an error that names the method to call."""
        raise TypeError("a kernel is not a function: use kernel.launch(grid=..., block=..., args=[...])")

    def take_arguments(self, args: Sequence[object], raw: RawArguments | None = None) -> KernelArguments:
        """Convert the arguments to parameter bytes and global memory."""
        arguments = Arguments(self.name, self.parameters, self.module.address_size)
        parameters = arguments.take(args, self.program.parameter_bytes, raw or {})
        return KernelArguments(parameters, tuple(arguments.allocations), arguments.own_resources())

    def device_memory(
        self, args: Sequence[object], config: LaunchConfig, raw: RawArguments | None = None
    ) -> DeviceMemory:
        """Create the memory of a launch: arrays, module variables, and the workspace of a cooperative grid."""
        return self.memory_of(self.take_arguments(args, raw), config)

    def memory_of(self, given: KernelArguments, config: LaunchConfig) -> DeviceMemory:
        """Create the memory of a launch, as `device_memory` does, but from arguments that are already converted."""
        memory = DeviceMemory(self.constant_banks(config, given.parameters), len(self.program.instructions))
        for allocation in given.allocations:
            memory.add(allocation)
        memory.resources = given.resources
        for array in ADDRESSES.alive():
            writable = bool(array.data.flags.writeable)
            memory.add(Allocation(array.address, array.data, array.name or repr(array), writable, array.unwritten))
        for name, variable in self.program.variables.items():
            data = self.module.symbols.storage(name, variable)
            memory.add(Allocation(variable.address, data, readable(name), variable.space != "const"))
        if self.uses_heap:
            heap = np.zeros(state_spaces.HEAP_BYTES, np.uint8)
            memory.add(Allocation(state_spaces.HEAP, heap, "the heap", unwritten=np.full_like(heap, 0xFF)))
        if config.is_cooperative:
            workspace = np.zeros(state_spaces.GRID_WORKSPACE_BYTES, np.uint8)
            memory.add(Allocation(state_spaces.GRID_WORKSPACE, workspace, "the workspace of the grid"))
        return memory

    def waves(self, config: LaunchConfig, seed: int | None, *, follow_order: bool = False) -> Waves:
        """Divide the grid into waves of blocks that run together."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise InvalidOperand(f"expected seed to be an integer of at least 0, got {quote(seed)}")
        at_once = 1 if self.order_matters else max(1, warps_at_once(self.program) // config.warps)
        if follow_order:
            at_once = min(at_once, max(1, BATCH_THREADS // (config.warps * LANES)))
        if config.is_cooperative:  # all blocks must run together, because they may wait for each other
            at_once = config.grid[0] * config.grid[1] * config.grid[2]
        return Waves(config.grid, at_once, seed, config.cluster)


def ptx_reason(program: Program, symbols: Symbols, config: LaunchConfig, options: LaunchOptions, level: str) -> str:
    """Return the reason to execute PTX without trying to assemble it, or ""."""
    if level == "ptx":
        return "the level is ptx"
    calls = {inst.action.name for inst in program.instructions if isinstance(inst.action, SystemCall)}
    if calls:
        return f"the driver functions {', '.join(sorted(calls))} are executed as PTX only"
    if symbols.is_held:
        return "module variables were set or are kept between launches"
    if options.cooperative:
        return "cooperative launches are executed as PTX only"
    if level == "auto" and config.arch.rstrip("a") != MEASURED:
        return f"machine code was compared with a GPU for {MEASURED} only, and the launch is for {config.arch}"
    return ""


def run_both_levels(
    ptx: Execute, machine: Execute, memory: DeviceMemory, checks: tuple[Check, ...], options: LaunchOptions, level: str
) -> Run:
    """Run machine code; also run the PTX if there are checks, or if the machine code fails and the level is auto."""
    latest = memory.snapshot()
    checked = None
    if checks:
        checked = ptx(checks, replace(options, explore=0))
        found = sorted({finding.kind for finding in checked.findings} & STOPPING)
        if found:
            return replace(checked, ptx_reason=f"a check found {', '.join(found)}: a GPU's behaviour is then unknown")
        before, latest = latest, memory.snapshot()
        before.restore()
    try:
        run = machine((), options)
    except WarpfragError as error:
        if level == "sass":
            raise
        latest.restore()
        reason = f"the machine code failed: {error}"
        return replace(ptx((), options) if checked is None else checked, ptx_reason=reason)
    if checked is None:
        return run
    return replace(
        run, checks=checked.checks, findings=checked.findings, unjudged=checked.unjudged, notes=checked.notes,
        unwritten=checked.unwritten,
    )  # fmt: skip
