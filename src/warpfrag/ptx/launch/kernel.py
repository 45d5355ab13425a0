"""The public face of the PTX machine: load a module, take an entry, launch it on numpy arrays."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from warpfrag.arithmetic.schedule import check_threads
from warpfrag.catalog.evidence import Evidence
from warpfrag.core.coordinates import LANES
from warpfrag.core.deprecation import renamed_attributes
from warpfrag.errors import CompilerDeparture, InvalidOperand, NotModelled, PtxError, UnusableFile, WarpfragError, quote
from warpfrag.memory.tensor_map import MAP_ALIGN, MAP_BYTES
from warpfrag.numerics.float_environment import exact_floats
from warpfrag.ptx.checks.checked_batch import BATCH_THREADS, LaunchChecks
from warpfrag.ptx.checks.findings import CHECKS, KINDS, Check, FindingCollector, KernelFinding
from warpfrag.ptx.compiler.engine import CompiledProgram
from warpfrag.ptx.debugger.debugger import Debugger
from warpfrag.ptx.interpreter.memory import Allocation, DeviceMemory
from warpfrag.ptx.interpreter.warp_state import LaunchConfig, LaunchTally
from warpfrag.ptx.launch.arguments import Arguments
from warpfrag.ptx.launch.clusters import cluster_shape, declared_shape
from warpfrag.ptx.launch.cooperative import check_resident
from warpfrag.ptx.launch.device_array import ADDRESSES
from warpfrag.ptx.launch.evidence import (
    causes_of,
    launch_arch,
    launch_evidence,
    step_doubts,
    step_evidence,
    unknown_layout,
)
from warpfrag.ptx.launch.exploration import Exploration
from warpfrag.ptx.launch.exploration import explore as explore_launch
from warpfrag.ptx.launch.grid import Progress, Waves, Work
from warpfrag.ptx.launch.names import matching, readable, resolve
from warpfrag.ptx.launch.profile import by_line, tensor_operations
from warpfrag.ptx.launch.run import Counts, DepartedLine, InexactLine, Run
from warpfrag.ptx.launch.symbols import Symbols
from warpfrag.ptx.lowering.fragment_flow import layout_use
from warpfrag.ptx.lowering.passes import lower
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.actions import (
    SYSTEM_FUNCTIONS,
    Action,
    Atomic,
    BulkCopy,
    LaneOp,
    MemoryLoad,
    SystemCall,
    TensorCopy,
)
from warpfrag.ptx.program.departures import DEFAULT, DEPARTURES, VERSIONS, CompilerVersion
from warpfrag.ptx.program.inexact import REASONS, InexactCause
from warpfrag.ptx.program.program import DecodedInstruction, Discard, Parameter, Program
from warpfrag.ptx.reader.linker import LinkInput, link_modules
from warpfrag.ptx.reader.parser import parse
from warpfrag.ptx.reader.source_lines import SourceLine, source_lines
from warpfrag.render.files import read_bytes

if TYPE_CHECKING:
    from warpfrag.ptx.lowering.fragment_flow import LayoutUse
    from warpfrag.ptx.reader.syntax import ModuleSyntax

Engine = Literal["auto", "reference", "compiled"]
ENGINES = ("auto", "reference", "compiled")
MAX_WARPS = 128  # that run at once
MAX_WARPS_OF_WGMMA = 512  # of a kernel with wgmma: so many share what an instruction costs beside its product
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_SHARED = 227 * 1024
MAX_TEXT = 1 << 28  # bytes of a module
LIMIT = 10_000_000_000  # warp instructions
MODULE_START = re.compile(r"(\s|/\*.*?\*/)*\.version\s")


def load(source: str | Path, *, keep_state: bool = False) -> Module:
    """Read a PTX module: a path, or the text itself, which has several lines or begins with .version.

    Each launch starts from the initial values of the module's variables and from what you set in `Module.symbols`; with
    `keep_state` it starts from what the last launch left, as on a GPU.
    """
    if isinstance(source, str) and ("\n" in source or MODULE_START.match(source)):
        return module_of(source, keep_state=keep_state)
    if not isinstance(source, str | Path):
        msg = f"expected a path or the text of a PTX module, got {quote(source)}"
        raise InvalidOperand(msg)
    try:
        text = read_bytes(source, MAX_TEXT).decode("utf-8")
    except (UnicodeDecodeError, ValueError) as error:
        if isinstance(error, UnusableFile):
            raise
        msg = f"{quote(str(source))} cannot be read as PTX: {error}"
        raise UnusableFile(msg) from None
    return module_of(text, keep_state=keep_state, file_name=Path(source).name)


def module_of(text: str, *, keep_state: bool, file_name: str = "") -> Module:
    """The module of a text."""
    lines = text.count("\n") + 1
    return Module(parse(text), keep_state=keep_state, lines=lines, file_name=file_name, sources=source_lines(text))


def link(modules: Sequence[Module | str | Path], *, keep_state: bool = False) -> Module:
    """One module of several, each loaded or as `load` takes it: what is .extern in one is found in another.

    PtxError lists every name that is missing or defined twice. Messages and counts number the lines as if the files
    stood one behind the other.
    """
    if isinstance(modules, str | Path | Module) or not isinstance(modules, Sequence) or not modules:
        msg = f"expected a list of modules, got {quote(modules)}"
        raise InvalidOperand(msg)
    loaded = [module if isinstance(module, Module) else load(module) for module in modules]
    inputs = [
        LinkInput(module.file_name or f"module {number}", module.lines, module.source)
        for number, module in enumerate(loaded)
    ]
    lines = 0
    sources: dict[int, SourceLine] = {}
    for module in loaded:
        sources |= {lines + number: source for number, source in module.sources.items()}
        lines += module.lines
    return Module(link_modules(inputs, readable, SYSTEM_FUNCTIONS), keep_state=keep_state, lines=lines, sources=sources)


class Module(Mapping[str, "Kernel"]):
    """A PTX module: a mapping from the names of its entries to kernels.

    An entry's name is the one of PTX, that of C++ (`void gemm<float>(float*, int)`, `gemm<float>`, `gemm`), or a part
    of it that no other entry has.
    """

    def __init__(
        self,
        source: ModuleSyntax,
        *,
        keep_state: bool = False,
        lines: int = 0,
        file_name: str = "",
        sources: Mapping[int, SourceLine] | None = None,
    ) -> None:
        """Entries are lowered when they are first asked for; `lines` is the length of the text.

        `sources` is what the text was compiled from, line by line, where it says so.
        """
        self.source, self.lines, self.file_name = source, lines, file_name
        self.sources = dict(sources or {})
        self.symbols = Symbols(source, keep=keep_state)
        self._kernels: dict[str, Kernel] = {}

    def __getstate__(self) -> dict[str, object]:
        """What pickle and copy take: kernels are made again."""
        return {**self.__dict__, "_kernels": {}}

    @property
    def keep_state(self) -> bool:
        """Whether variables keep what a launch leaves in them."""
        return self.symbols.keep

    def reset(self) -> None:
        """Give all variables their initial values, in place."""
        self.symbols.reset()

    @property
    def version(self) -> str:
        """The PTX version, as "8.7"."""
        return f"{self.source.version[0]}.{self.source.version[1]}"

    @property
    def target(self) -> str:
        """The target, as "sm_80"."""
        return self.source.target

    def __getitem__(self, name: str) -> Kernel:
        """A kernel; PtxError names the entries if none or several have this name."""
        entry = resolve(name, list(self), "entries")
        if entry not in self._kernels:
            kernel = self._kernels[entry] = Kernel(lower(self.source, entry), self)
            lines: dict[str, list[str]] = {}
            for item in kernel.warnings:
                lines.setdefault(item.text, []).append(str(item.line))
            if lines:
                texts = "; ".join(f"line {', '.join(numbers)}: {text}" for text, numbers in lines.items())
                msg = f"{readable(entry)}: ptxas departs from the manual of PTX, and so does this: {texts}"
                warnings.warn(msg, CompilerDeparture, stacklevel=2)
        return self._kernels[entry]

    @property
    def warnings(self) -> list[DepartedLine]:
        """The lines of all entries that ptxas compiles to other code than the manual says."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompilerDeparture)
            return list(dict.fromkeys(item for kernel in self.values() for item in kernel.warnings))

    def __iter__(self) -> Iterator[str]:
        """The names of the entries."""
        return (function.name for function in self.source.functions if function.is_entry and function.body)

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether a name stands for one entry."""
        return isinstance(name, str) and len(matching(name, list(self))) == 1

    def __repr__(self) -> str:
        """Version, target and entries."""
        return f"<PTX {self.version} for {self.target}: {', '.join(map(readable, self))}>"


class Kernel:
    """An entry of a module, ready to launch."""

    def __init__(self, program: Program, module: Module) -> None:
        """Machine code is made later, when the kernel has run for long enough without."""
        self.program, self.module = program, module
        self._otherwise: dict[str, Kernel] = {}  # as other versions of ptxas compile it

    def __reduce__(self) -> tuple[object, ...]:
        """A kernel is pickled and copied with its module, and made again there."""
        return Module.__getitem__, (self.module, self.name)

    def __repr__(self) -> str:
        """Name and parameters."""
        if self.readable_name != self.name:
            return f"<kernel {self.readable_name}>"
        return f"<kernel {self.name}({', '.join(parameter.type for parameter in self.parameters)})>"

    @property
    def name(self) -> str:
        """The entry's name, as PTX spells it."""
        return self.program.name

    @property
    def readable_name(self) -> str:
        """The entry's name as C++ has it, with its parameters; `name` where that is not mangled."""
        return readable(self.name)

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters in order."""
        return self.program.parameters

    @property
    def shared_bytes(self) -> int:
        """Static shared memory."""
        return self.program.shared_bytes

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        """The shape of clusters that the PTX asks for; None where it says nothing."""
        return declared_shape(self.program)

    @property
    def launch_arch(self) -> str:
        """The architecture that a launch is for which names none."""
        return launch_arch(self.program.target, None)

    @property
    def tensor_maps(self) -> list[str]:
        """The parameters that take a tensor map by value, where the kernel copies by tensor maps."""
        if not any(isinstance(step.action, TensorCopy) for step in self.program.steps):
            return []
        return [item.name for item in self.parameters if item.size == MAP_BYTES and item.align >= MAP_ALIGN]

    @cached_property
    def opcodes(self) -> dict[str, Evidence]:
        """Every opcode of the program and how well it is known, on the architecture of the module's target."""
        return {step.name: step_evidence(step, self.program.target) for step in self.program.steps}

    @cached_property
    def warnings(self) -> list[DepartedLine]:
        """The lines that ptxas compiles to other code than the manual says, with what it does."""
        rows = [(line, text, DEPARTURES[name]) for line, text, name in self.program.departures]
        return [DepartedLine(line, text, row.compiler, row.versions) for line, text, row in rows if row.warns]

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes({"native": "compiled"})

    @cached_property
    def compiled(self) -> CompiledProgram:
        """What the compiled engine runs."""
        return CompiledProgram(self.program)

    @cached_property
    def order_matters(self) -> bool:
        """Whether the order of blocks can be seen: atomics on floats, or whose old value is used."""
        return any(_is_ordered(step.action, step) for step in self.program.steps)

    @cached_property
    def uses_heap(self) -> bool:
        """Whether the kernel may call malloc."""
        return any(isinstance(step.action, SystemCall) and step.action.name == "malloc" for step in self.program.steps)

    @cached_property
    def is_shared_out(self) -> bool:
        """Whether blocks may run on several cores: their order cannot be seen, and none waits for what others store."""
        alone = any(
            isinstance(action, SystemCall)  # prints, block after block
            or (isinstance(action, MemoryLoad) and action.polls and action.space in {"global", "generic"})
            for action in (step.action for step in self.program.steps)
        )
        return not self.order_matters and not alone

    @cached_property
    def _layout_use(self) -> LayoutUse | None:
        """The first step that depends on the layout of a wmma fragment."""
        return layout_use(self.program)

    def _check_fragments(self, arch: str) -> None:
        """Refuse a kernel that depends on wmma fragments whose layout on an architecture nobody has measured."""
        unknown = unknown_layout(self.program, arch)
        if unknown and self._layout_use is not None:
            step = self.program.steps[self._layout_use.at]
            msg = f"line {step.line}: {step.text}: {self._layout_use.why}; {unknown}"
            raise NotModelled(msg)

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
        limit: int = LIMIT,
        threads: int | None = None,
        progress: Progress | None = None,
        compiler: CompilerVersion = DEFAULT,
        cooperative: bool = False,
        cluster: int | Sequence[int] | None = None,
        explore: int = 0,
    ) -> Run:
        """Run the kernel; arrays among the arguments are global memory and change in place.

        A struct is its bytes, or a list of its fields: arrays for pointers, numpy scalars, bytes. A `Texture` or a
        `Surface` stands for its handle.

        `arch` is whose arithmetic is computed: sm_90 where nothing is said and the module's target runs there, else
        the target's own. Evidence and `Run.exact` are for this architecture, which `Run.arch` names.

        The blocks run in the order of the grid, several at once where no atomic makes their order visible; a `seed`
        permutes them, and with `checks` chooses at random which warp goes on. `explore` runs so many more interleavings
        from the same memory, and `Run.exploration` says whether one leaves other memory. The blocks of a compiled
        kernel are shared out over the cores, or `threads` of them, unless their order can be seen or one may wait for
        another. A launch that executes more than `limit` warp instructions is stopped; a limit of your own is counted
        on one core. `progress(done, total)` is told how many blocks are done. What has been stored when an error or an
        interrupt ends a launch stays.

        `cluster` is the shape of clusters: blocks that run together and reach each other's shared memory, 8 at most.
        Where the PTX says it (.reqnctapercluster), it may be left out.

        A `cooperative` launch runs all blocks at once, so that they may wait for each other: grid.sync() needs it, and
        so does a barrier of your own in global memory. The grid must fit on an H200 at once.

        `checks` search for mistakes: "memory", "races", "uninitialised", "barriers" and "async", or "all".
        `Run.findings` lists what they report, `Run.verdict` what that amounts to. An access outside every array ends
        the launch, and so does one that is misaligned, outside shared or local memory, or a store to read-only
        memory; with "memory" these are findings instead: a load gives 0 and a store nothing. A deadlock is a finding
        with "barriers", and ends the launch. All checks but "memory" run in the interpreter, whatever `engine` says.

        `compiler` is the version of ptxas whose code is run, where versions differ: 13.0 is that of driver 580.
        """
        _check_choice("compiler", [compiler], VERSIONS)
        if compiler != self.program.compiler:
            return self._compiled_by(compiler).launch(
                grid, block, args, shared=shared, arch=arch, checks=checks, engine=engine, seed=seed, limit=limit,
                threads=threads, progress=progress, compiler=compiler, cooperative=cooperative, cluster=cluster,
                explore=explore,
            )  # fmt: skip
        _check_explore(explore)
        config = self.config(grid, block, shared, arch, limit, cooperative=cooperative, cluster=cluster)
        self._check_fragments(config.arch)
        named = _checks(checks)
        _check_choice("engine", [engine], ENGINES)
        check_threads(threads)
        memory = self.device_memory(args, config)
        compiled = None if engine == "reference" else self._compiled_program(at_once=engine == "compiled")
        follows = None if set(named) <= {"memory"} else LaunchChecks(named, self.module.sources)
        waves = self.waves(config, seed, follows)
        if not self.is_shared_out or limit < LIMIT or cooperative:
            threads = 1
        before = [buffer.copy() for buffer in memory.writable_buffers()] if explore else []
        if follows is not None:
            config = replace(config, interleaving=None if seed is None else int(seed))
            memory.is_checked = "memory" in named
            work = Work(self.program, config, memory, None, follows)
            self._run(work, waves, 1, progress)
        elif named:
            work = self._checked(Work(self.program, config, memory, compiled), waves, threads, progress)
        else:
            work = Work(self.program, config, memory, compiled)
            self._run(work, waves, threads, progress)
        findings, unjudged = self._findings(work, named)
        result = self._summary(work.tally, work.memory, config, findings, work.compiled, named, unjudged)
        if explore:
            result = replace(result, exploration=self._explored(memory, before, config, explore))
        return result

    def _explored(
        self, memory: DeviceMemory, before: list[np.ndarray[Any, Any]], config: LaunchConfig, runs: int
    ) -> Exploration:
        """Run other interleavings, from the memory before the launch."""

        def run(seed: int) -> str:
            memory.tags.forget()
            memory.observer = None
            work = Work(self.program, replace(config, interleaving=seed), memory, None)
            self._run(work, self.waves(config, seed), 1, None)
            return str(work.failure[1]) if work.failure is not None else ""

        return explore_launch(memory, before, runs, run)

    def _findings(self, work: Work, checks: tuple[Check, ...]) -> tuple[list[KernelFinding], tuple[str, ...]]:
        """What the checks report, by line, and what they could not judge; an error that is no finding is raised."""
        collector = work.checks.collector if work.checks is not None else FindingCollector(self.module.sources, checks)
        for line, text in work.divergent.items():
            collector.add(KernelFinding("barrier", line, text))
        for bad in work.memory.noted.values():
            (x, y, z), (i, j, k) = bad.block, bad.thread
            collector.add(
                KernelFinding(bad.kind, bad.line, bad.text, block=(x, y, z), thread=(i, j, k)), bad.count
            )  # fmt: skip
        if work.failure is not None:
            error = work.failure[1]
            kind = error.kind if isinstance(error, PtxError) else ""
            if KINDS.get(kind) not in checks or not isinstance(error, PtxError):
                raise self._located(error)
            collector.add(KernelFinding(kind, error.line, error.reason))
            collector.leave_out(f"what follows line {error.line}: the launch ended there")
        return collector.findings, tuple(collector.unjudged)

    def debug(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[object] = (),
        *,
        shared: int = 0,
        arch: str | None = None,
        seed: int | None = None,
        limit: int = LIMIT,
        cooperative: bool = False,
        cluster: int | Sequence[int] | None = None,
    ) -> Debugger:
        """A launch that stops at breakpoints, on the reference engine; arguments are those of `launch`.

        Nothing runs before `Debugger.run` or `step`.
        """
        config = self.config(grid, block, shared, arch, limit, cooperative=cooperative, cluster=cluster)
        self._check_fragments(config.arch)
        waves = self.waves(config, seed)
        memory = self.device_memory(args, config)
        return Debugger(
            self.program, config, memory, (blocks for _, blocks in iter(waves.take, None)), self.module.sources
        )

    def _located(self, error: WarpfragError) -> WarpfragError:
        """An error of a line, with the line of the source that it was compiled from."""
        if isinstance(error, PtxError) and error.line in self.module.sources:
            return PtxError(error.line, error.reason, str(self.module.sources[error.line]), error.kind)
        return error

    def _compiled_by(self, compiler: CompilerVersion) -> Kernel:
        """The same kernel as another version of ptxas compiles it."""
        if compiler not in self._otherwise:
            self._otherwise[compiler] = Kernel(lower(self.module.source, self.name, compiler), self.module)
        return self._otherwise[compiler]

    @staticmethod
    def _run(work: Work, waves: Waves, threads: int | None, progress: Progress | None) -> None:
        """Run the waves; an interrupt says how far it came."""
        try:
            work.run_all(waves, threads, progress)
        except KeyboardInterrupt as error:
            left = "arrays hold what was stored until then"
            error.add_note(f"interrupted after {work.done} of {waves.total} blocks; {left}")
            raise

    def _checked(self, work: Work, waves: Waves, threads: int | None, progress: Progress | None) -> Work:
        """Run the waves and collect bad accesses: in compiled code while there are none, else again from the start."""
        if work.compiled is not None and not self.uses_heap:  # compiled code does not follow what is freed
            changed = work.memory.writable_buffers()
            before = [buffer.copy() for buffer in changed]
            self._run(work, waves, threads, progress)
            if work.failure is None:
                return work
            for buffer, data in zip(changed, before, strict=True):
                buffer[...] = data
        again = Work(self.program, work.config, work.memory.fork(), None)
        again.memory.is_checked = True
        again.memory.tags.forget()
        self._run(again, waves.again(), 1, progress)
        return again

    def device_memory(self, args: Sequence[object], config: LaunchConfig) -> DeviceMemory:
        """The arrays, the module's variables, and what a cooperative launch brings."""
        memory = self._memory(args)
        if config.is_cooperative:
            workspace = np.zeros(state_spaces.GRID_WORKSPACE_BYTES, np.uint8)
            memory.add(Allocation(state_spaces.GRID_WORKSPACE, workspace, "the workspace of the grid"))
        return memory

    def _memory(self, args: Sequence[object]) -> DeviceMemory:
        """The arrays and the module's variables."""
        arguments = Arguments(self.name, self.parameters, self.module.source.address_size)
        memory = DeviceMemory(arguments.take(args, self.program.parameter_bytes), len(self.program.steps))
        for allocation in arguments.allocations:
            memory.add(allocation)
        memory.resources = arguments.own_resources()
        for array in ADDRESSES.alive():
            memory.add(Allocation(array.address, array.data, repr(array), bool(array.data.flags.writeable)))
        for name, variable in self.program.variables.items():
            data = self.module.symbols.storage(name, variable)
            memory.add(Allocation(variable.address, data, readable(name), variable.space != "const"))
        if self.uses_heap:
            heap = np.zeros(state_spaces.HEAP_BYTES, np.uint8)
            memory.add(Allocation(state_spaces.HEAP, heap, "the heap", is_unwritten=True))
        return memory

    def _compiled_program(self, *, at_once: bool) -> CompiledProgram:
        """The compiled kernel: now, or when it has run for long enough without."""
        if at_once and not self.compiled.is_ready:
            self.compiled.prepare()
        if at_once and self.compiled.refusal:
            msg = f"engine: {self.compiled.refusal}; engine='reference' runs without"
            raise InvalidOperand(msg)
        return self.compiled

    def config(
        self,
        grid: object,
        block: object,
        shared: int,
        arch: str | None,
        limit: int,
        *,
        cooperative: bool,
        cluster: object,
    ) -> LaunchConfig:
        """The launch that is asked for, checked."""
        blocks, threads = _extent("grid", grid, MAX_GRID), _extent("block", block, MAX_BLOCK)
        if threads[0] * threads[1] * threads[2] > MAX_THREADS:
            msg = f"expected at most {MAX_THREADS} threads in a block, got {threads}"
            raise InvalidOperand(msg)
        required = self.program.directives.get("reqntid")
        if required and (*required, 1, 1)[:3] != threads:
            msg = f"{self.name} must be launched with blocks of {(*required, 1, 1)[:3]} (.reqntid), got {threads}"
            raise InvalidOperand(msg)
        limits = self.program.directives.get("maxntid")
        if limits and np.prod(limits) < np.prod(threads):
            msg = f"{self.name} takes blocks of at most {int(np.prod(limits))} threads (.maxntid), got {threads}"
            raise InvalidOperand(msg)
        if isinstance(shared, bool) or not isinstance(shared, int | np.integer) or shared < 0:
            msg = f"expected shared as a number of bytes, got {quote(shared)}"
            raise InvalidOperand(msg)
        total = self.program.dynamic_start - state_spaces.SHARED_START + int(shared)
        if total > MAX_SHARED:
            msg = f"expected at most {MAX_SHARED} bytes of shared memory, got {total}"
            raise InvalidOperand(msg)
        shape, is_explicit = cluster_shape(self.program, cluster, blocks)
        config = LaunchConfig(
            blocks, threads, int(shared), launch_arch(self.program.target, arch), limit, cooperative, shape, is_explicit
        )
        if cooperative:
            check_resident(config, total)
        return config

    def waves(self, config: LaunchConfig, seed: int | None, follows: LaunchChecks | None = None) -> Waves:
        """The blocks of the grid, so many at once as fit and cannot see each other's order."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            msg = f"expected seed as an integer of at least 0, got {quote(seed)}"
            raise InvalidOperand(msg)
        has_wgmma = any(step.attributes.opcode == "wgmma" for step in self.program.steps)
        warps = MAX_WARPS_OF_WGMMA if has_wgmma else MAX_WARPS
        at_once = 1 if self.order_matters else max(1, warps // config.warps)
        if follows is not None and follows.follow_order:
            at_once = min(at_once, max(1, BATCH_THREADS // (config.warps * LANES)))
        if config.is_cooperative:  # all blocks, which wait for each other
            at_once = config.grid[0] * config.grid[1] * config.grid[2]
        return Waves(config.grid, at_once, seed, config.cluster)

    def _summary(
        self,
        tally: LaunchTally,
        memory: DeviceMemory,
        config: LaunchConfig,
        findings: list[KernelFinding],
        compiled: CompiledProgram | None,
        checks: tuple[Check, ...],
        unjudged: tuple[str, ...],
    ) -> Run:
        opcodes: Counter[str] = Counter()
        lines: Counter[int] = Counter()
        known: dict[str, Evidence] = {}
        for step, count in zip(self.program.steps, tally.steps, strict=True):
            if count:
                opcodes[step.name] += int(count)
                lines[step.line] += int(count)
                if step.name not in known:
                    known[step.name] = step_evidence(step, config.arch)
        known |= launch_evidence(self.program, config.arch, self.module.source.address_size)
        doubts = self._inexact_lines(tally, config.arch)
        for name in sorted(tally.inexact):
            known[name] = Evidence("approximate", "a value of this machine: a GPU has another")
        steps = self.program.steps
        operations = [tensor_operations(step) * int(count) for step, count in zip(steps, tally.steps, strict=True)]
        counts = Counts(
            dict(opcodes), dict(lines), dict(memory.read_bytes), dict(memory.written_bytes), dict(memory.wavefronts),
            by_line(steps, memory.step_wavefronts), by_line(steps, memory.step_conflicts),
            by_line(steps, memory.step_read), by_line(steps, memory.step_written), by_line(steps, operations),
        )  # fmt: skip
        engine, interpreted = "reference", set(opcodes)
        if compiled is not None and compiled.segments:
            engine, interpreted = "compiled", interpreted - compiled.opcodes
        printed = "".join(tally.printed)
        sources = {line: self.module.sources[line] for line in lines if line in self.module.sources}
        texts: dict[int, str] = {}
        for step in steps:
            if step.line in lines:
                texts[step.line] = f"{texts[step.line]}; {step.text}" if step.line in texts else step.text
        return Run(
            known, counts, findings, engine, tuple(sorted(interpreted)), printed, doubts, config.arch, sources,
            self.readable_name, texts, checks, unjudged,
        )  # fmt: skip

    def _inexact_lines(self, tally: LaunchTally, arch: str) -> tuple[InexactLine, ...]:
        """The lines that ran and have a cause for doubt on an architecture, in order."""
        doubts: dict[InexactLine, None] = {}
        of_arch = step_doubts(self.program, arch)
        for at, (step, count, bits) in enumerate(zip(self.program.steps, tally.steps, tally.causes, strict=True)):
            reasons = [_reason(step, cause) for cause in causes_of(step, int(bits), arch)]
            reasons += tally.doubts.get(at, {})
            if count:
                reasons += filter(None, (step.doubt, of_arch.get(at)))
            doubts |= dict.fromkeys(InexactLine(step.line, step.text, reason) for reason in reasons)
        return tuple(sorted(doubts, key=lambda item: item.line))


def _reason(step: DecodedInstruction, cause: InexactCause) -> str:
    """Why a step is inexact: the departure's own words, where one is the cause."""
    action = step.action
    if cause is InexactCause.COMPILER and isinstance(action, LaneOp) and action.alternative is not None:
        return action.alternative.reason
    return REASONS[cause]


def _is_ordered(action: Action, step: DecodedInstruction) -> bool:
    if isinstance(action, TensorCopy):
        return action.reduction == "add"  # of floats, perhaps: the map says it
    if isinstance(action, BulkCopy):
        return action.target == "global" and action.type is not None and action.type.is_float
    if not isinstance(action, Atomic) or action.space in {"shared", "cluster"}:
        return False
    return action.is_float or (action.returns and not isinstance(step.results[0], Discard)) or action.name == "exch"


def _extent(name: str, value: object, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Three extents within the limits of every GPU; those that are left out are 1."""
    extents = [value] if isinstance(value, int | np.integer) else list(value) if isinstance(value, Sequence) else []
    sizes = [int(extent) for extent in extents if isinstance(extent, int | np.integer) and extent >= 1]
    if not 1 <= len(extents) <= 3 or len(sizes) != len(extents):
        msg = f"expected {name} as one to three positive integers, got {quote(value)}"
        raise InvalidOperand(msg)
    x, y, z = (*sizes, 1, 1)[:3]
    if any(size > limit for size, limit in zip((x, y, z), limits, strict=True)):
        msg = f"expected {name} of at most {limits}, got {quote(value)}"
        raise InvalidOperand(msg)
    return x, y, z


def _check_explore(runs: object) -> None:
    """Refuse a number of runs that is none."""
    if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 0:
        msg = f"expected explore as a number of runs, got {quote(runs)}"
        raise InvalidOperand(msg)


def _checks(checks: object) -> tuple[Check, ...]:
    """The checks that a caller names: one, several, or "all"."""
    if checks == "all":
        return CHECKS
    named = (checks,) if isinstance(checks, str) else tuple(checks) if isinstance(checks, Iterable) else (checks,)
    if "all" in named:
        return CHECKS
    _check_choice("checks", named, CHECKS)
    return tuple(check for check in CHECKS if check in named)


def _check_choice(name: str, values: Sequence[object], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            msg = f"expected {name} of {', '.join(known)}, got {quote(value)}"
            raise InvalidOperand(msg)
