"""The public face of the PTX machine: load a module, take an entry, launch it on numpy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from warpfrag.arithmetic.schedule import check_threads
from warpfrag.catalog.evidence import Evidence, evidence
from warpfrag.errors import InvalidOperand, UnusableFile, quote
from warpfrag.isa.legality import resolve
from warpfrag.isa.targets import read_target
from warpfrag.numerics.float_environment import exact_floats
from warpfrag.ptx.compiler.engine import Native
from warpfrag.ptx.interpreter.memory import Allocation, Memory
from warpfrag.ptx.interpreter.warp_state import Launch, Tally
from warpfrag.ptx.launch.arguments import Arguments
from warpfrag.ptx.launch.grid import Blocks, Progress, Work
from warpfrag.ptx.opcodes.hardware_evidence import compared
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.actions import Action, Atomic, Load, Matrix, Refused, SystemCall
from warpfrag.ptx.program.contraction import contract
from warpfrag.ptx.program.decoder import decode
from warpfrag.ptx.program.program import Parameter, Program, Sink, Step
from warpfrag.ptx.reader.parser import parse
from warpfrag.render.files import read_bytes

if TYPE_CHECKING:
    from warpfrag.ptx.reader.syntax import Source

Check = Literal["memory", "barriers"]
Engine = Literal["auto", "reference", "compiled"]
CHECKS = ("memory", "barriers")
ENGINES = ("auto", "reference", "compiled")
MOST_WARPS = 128  # that run at once
MOST_THREADS = 1024
MOST_SHARED = 227 * 1024
MOST_TEXT = 1 << 28  # bytes of a module
MEASURED = "sm_90"  # whose special function unit the tables hold
LIMIT = 10_000_000_000  # warp instructions


def load(source: str | Path) -> Module:
    """Read a PTX module: a path, or the text itself."""
    if isinstance(source, str) and (".version" in source or "\n" in source):
        return Module(parse(source))
    if not isinstance(source, str | Path):
        msg = f"expected a path or the text of a PTX module, got {quote(source)}"
        raise InvalidOperand(msg)
    try:
        text = read_bytes(source, MOST_TEXT).decode("utf-8")
    except (UnicodeDecodeError, ValueError) as error:
        if isinstance(error, UnusableFile):
            raise
        msg = f"{quote(str(source))} cannot be read as PTX: {error}"
        raise UnusableFile(msg) from None
    return Module(parse(text))


class Module(Mapping[str, "Kernel"]):
    """A PTX module: a mapping from the names of its entries to kernels."""

    def __init__(self, source: Source) -> None:
        """Take what was read."""
        self.source = source
        self._kernels: dict[str, Kernel] = {}

    @property
    def version(self) -> str:
        """The PTX version, as "8.7"."""
        return f"{self.source.version[0]}.{self.source.version[1]}"

    @property
    def target(self) -> str:
        """The target, as "sm_80"."""
        return self.source.target

    def __getitem__(self, name: str) -> Kernel:
        """A kernel; PtxError names the entries if there is none of this name."""
        if name not in self._kernels:
            program = decode(self.source, name)
            self._kernels[name] = Kernel(program if self.source.is_debug else contract(program))
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the entries."""
        return (function.name for function in self.source.functions if function.is_entry and function.body)

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether there is such an entry."""
        return name in set(iter(self))

    def __repr__(self) -> str:
        """Version, target and entries."""
        return f"<PTX {self.version} for {self.target}: {', '.join(self)}>"


@dataclass(frozen=True)
class Counts:
    """What a launch executed: warp instructions by opcode and by line, bytes and wavefronts by state space.

    A wavefront of shared memory is a pass over its banks: an access takes as many as its busiest bank has words to give
    (`memory.shared_memory`), each matrix of ldmatrix and stmatrix for itself. Of global memory it is a sector of 32
    bytes that a warp's access touches. `wavefronts_by_line` has both, for the lines that access one of these spaces.
    What wmma.load, wmma.store and wgmma do in memory is not among them.
    """

    opcodes: dict[str, int]
    lines: dict[int, int]
    read: dict[str, int]
    written: dict[str, int]
    wavefronts: dict[str, int]
    wavefronts_by_line: dict[int, int]

    @property
    def instructions(self) -> int:
        """All warp instructions."""
        return sum(self.opcodes.values())


@dataclass(frozen=True)
class Observation:
    """Something that a check saw."""

    check: str
    line: int
    text: str


@dataclass(frozen=True)
class Run:
    """What a launch left besides memory: how well its result is known, what it executed, what the checks saw."""

    evidence: dict[str, Evidence]
    counts: Counts
    findings: list[Observation] = field(default_factory=list)
    engine: str = "reference"  # or "compiled"
    interpreted: tuple[str, ...] = ()  # opcodes that ran without native code
    printed: str = ""  # what printf gave, block after block

    @property
    def exact(self) -> bool:
        """Whether every instruction that ran gives exactly what the GPU gives."""
        return all(one.level not in {"approximate", "not modelled"} for one in self.evidence.values())


class Kernel:
    """An entry of a module, ready to launch."""

    def __init__(self, program: Program) -> None:
        """Take a decoded program."""
        self.program = program

    def __repr__(self) -> str:
        """Name and parameters."""
        return f"<kernel {self.name}({', '.join(parameter.type for parameter in self.parameters)})>"

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.program.name

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters in order."""
        return self.program.parameters

    @property
    def shared_bytes(self) -> int:
        """Static shared memory."""
        return self.program.shared_bytes

    @cached_property
    def opcodes(self) -> dict[str, Evidence]:
        """Every opcode of the program and how well it is known, on the architecture of the module's target."""
        return {step.name: step_evidence(step, "sm_90") for step in self.program.steps}

    @cached_property
    def native(self) -> Native:
        """What the compiled engine runs."""
        return Native(self.program)

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
            or (isinstance(action, Load) and action.polls and action.space in {"global", "generic"})
            for action in (step.action for step in self.program.steps)
        )
        return not self.order_matters and not alone

    @exact_floats
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        shared: int = 0,
        arch: str = "sm_90",
        checks: Sequence[Check] = (),
        engine: Engine = "auto",
        seed: int | None = None,
        limit: int = LIMIT,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Run:
        """Run the kernel; arrays among the arguments are global memory and change in place.

        A struct is its bytes, or a list of its fields: arrays for pointers, numpy scalars, bytes.

        The blocks run in the order of the grid, several at once where no atomic makes their order visible; a `seed`
        permutes them. Those of a compiled kernel are shared out over the cores, or `threads` of them, unless their
        order can be seen or one may wait for another. A launch that executes more than `limit` warp instructions is
        stopped; a limit of your own is counted on one core. `progress(done, total)` is told how many blocks are done.
        What has been stored when an error or an interrupt ends a launch stays.

        An access outside every array ends the launch, and so does one that is misaligned, outside shared or local
        memory, or a store to read-only memory. With "memory" among the `checks` these last ones are findings instead:
        a load gives 0 and a store nothing. "barriers" lists barriers that only part of a warp reaches.
        """
        config = self._config(grid, block, shared, arch, limit)
        _check_choice("checks", checks, CHECKS)
        _check_choice("engine", [engine], ENGINES)
        check_threads(threads)
        memory = self._memory(args)
        native = None if engine == "reference" else self._native(at_once=engine == "compiled")
        waves = list(self._waves(config, seed))
        if not self.is_shared_out or limit < LIMIT:
            threads = 1
        work = Work(self.program, config, memory, native)
        if "memory" in checks:
            work = self._checked(work, waves, threads, progress)
        else:
            self._run(work, waves, threads, progress)
        if work.failure is not None:
            raise work.failure[1]
        findings = [Observation("barriers", *one) for one in work.divergent.items()] if "barriers" in checks else []
        findings += [Observation("memory", *one) for one in work.memory.findings()]
        return self._summary(work.tally, work.memory, config, findings, work.native)

    @staticmethod
    def _run(work: Work, waves: list[Blocks], threads: int | None, progress: Progress | None) -> None:
        """Run the waves; an interrupt says how far it came."""
        try:
            work.run_all(waves, threads, progress)
        except KeyboardInterrupt as error:
            total = sum(len(blocks) for blocks in waves)
            error.add_note(f"interrupted after {work.done} of {total} blocks; arrays hold what was stored until then")
            raise

    def _checked(self, work: Work, waves: list[Blocks], threads: int | None, progress: Progress | None) -> Work:
        """Run the waves and collect bad accesses: natively while there are none, else again from the start."""
        if work.native is not None:
            before = [one.data.copy() for one in work.memory.allocations]
            self._run(work, waves, threads, progress)
            if work.failure is None:
                return work
            for one, data in zip(work.memory.allocations, before, strict=True):
                if one.writable:
                    one.data[...] = data
        again = Work(self.program, work.config, work.memory.fork(), None)
        again.memory.is_checked = True
        self._run(again, waves, 1, progress)
        return again

    def _memory(self, args: Sequence[Any]) -> Memory:
        """The arrays and the module's variables."""
        arguments = Arguments(self.name, self.parameters)
        memory = Memory(arguments.take(args, self.program.parameter_bytes), len(self.program.steps))
        for allocation in arguments.allocations:
            memory.add(allocation)
        for name, (address, size, initial) in self.program.variables.items():
            data = np.zeros(size, np.uint8)
            data[: len(initial)] = np.frombuffer(initial, np.uint8)
            memory.add(Allocation(address, data, name))
        if self.uses_heap:
            memory.add(Allocation(state_spaces.HEAP, np.zeros(state_spaces.HEAP_BYTES, np.uint8), "the heap"))
        return memory

    def _native(self, *, at_once: bool) -> Native:
        """The kernel's native code: now, or when it has run for long enough without."""
        if at_once and not self.native.is_ready:
            self.native.prepare()
        if at_once and self.native.refusal:
            msg = f"engine: {self.native.refusal}; engine='reference' runs without"
            raise InvalidOperand(msg)
        return self.native

    def _config(self, grid: object, block: object, shared: int, arch: str, limit: int) -> Launch:
        blocks, threads = _extent("grid", grid), _extent("block", block)
        if threads[0] * threads[1] * threads[2] > MOST_THREADS:
            msg = f"expected at most {MOST_THREADS} threads in a block, got {threads}"
            raise InvalidOperand(msg)
        wanted = self.program.directives.get("reqntid")
        if wanted and (*wanted, 1, 1)[:3] != threads:
            msg = f"{self.name} must be launched with blocks of {(*wanted, 1, 1)[:3]} (.reqntid), got {threads}"
            raise InvalidOperand(msg)
        most = self.program.directives.get("maxntid")
        if most and np.prod(most) < np.prod(threads):
            msg = f"{self.name} takes blocks of at most {int(np.prod(most))} threads (.maxntid), got {threads}"
            raise InvalidOperand(msg)
        if isinstance(shared, bool) or not isinstance(shared, int | np.integer) or shared < 0:
            msg = f"expected shared as a number of bytes, got {quote(shared)}"
            raise InvalidOperand(msg)
        total = self.program.dynamic_start - state_spaces.SHARED_START + int(shared)
        if total > MOST_SHARED:
            msg = f"expected at most {MOST_SHARED} bytes of shared memory, got {total}"
            raise InvalidOperand(msg)
        return Launch(blocks, threads, int(shared), read_target(arch, "", "arch").name, limit)

    def _waves(self, config: Launch, seed: int | None) -> Iterator[Blocks]:
        """The blocks that run at once."""
        x, y, z = config.grid
        total = x * y * z
        at_once = 1 if self.order_matters else max(1, MOST_WARPS // config.warps)
        order: Any = range(total) if seed is None else np.random.default_rng(seed).permutation(total)
        for first in range(0, total, at_once):
            numbers = [int(number) for number in order[first : first + at_once]]
            yield [(number % x, number // x % y, number // (x * y)) for number in numbers]

    def _summary(
        self, tally: Tally, memory: Memory, config: Launch, findings: list[Observation], native: Native | None
    ) -> Run:
        opcodes: Counter[str] = Counter()
        lines: Counter[int] = Counter()
        found: dict[str, Evidence] = {}
        for step, count in zip(self.program.steps, tally.steps, strict=True):
            if count:
                opcodes[step.name] += int(count)
                lines[step.line] += int(count)
                if step.name not in found:
                    found[step.name] = step_evidence(step, config.arch)
        for name in sorted(tally.inexact):
            found[name] = Evidence("approximate", "the machine's own value: a GPU has others")
        passes: Counter[int] = Counter()
        for at in np.nonzero(memory.step_wavefronts)[0]:
            passes[self.program.steps[at].line] += int(memory.step_wavefronts[at])
        counts = Counts(
            dict(opcodes), dict(lines), dict(memory.read_bytes), dict(memory.written_bytes),
            dict(memory.wavefronts), dict(passes),
        )  # fmt: skip
        if native is None or not native.segments:
            return Run(found, counts, findings, "reference", tuple(sorted(opcodes)), "".join(tally.printed))
        interpreted = tuple(sorted(set(opcodes) - native.opcodes))
        return Run(found, counts, findings, "compiled", interpreted, "".join(tally.printed))


def step_evidence(step: Step, arch: str) -> Evidence:
    """How well it is known what a step does."""
    if isinstance(step.action, Refused):
        return Evidence("not modelled", step.action.reason)
    if isinstance(step.action, Matrix):
        return evidence(resolve(step.action.name), arch)
    if step.row is None:
        return Evidence("not modelled", f"no row for {step.name}")
    detail = step.row.source
    if step.row.may_contract:
        detail += "; an assembler may fuse an unqualified mul and add: done as ptxas 13.0 does for sm_90"
    if step.row.level == "measured":
        if read_target(arch, "", "arch").arch != MEASURED:
            return Evidence("approximate", f"{detail}; {arch} has a unit of its own")
        return Evidence("hardware", detail, step.row.cases, authority="measured", gpus=("NVIDIA H200",))
    if step.row.level == "approximate":
        return Evidence("approximate", detail)
    known = compared()
    if step.name not in known.spellings or read_target(arch, "", "arch").arch != known.arch:
        return Evidence("specified", detail, authority="specified")
    detail += f"; {known.gpu}, driver {known.driver}, {known.threads} threads"
    return Evidence("hardware", detail, known.threads, authority="specified", gpus=(known.gpu,))


def _is_ordered(action: Action, step: Step) -> bool:
    if not isinstance(action, Atomic) or action.space == "shared":
        return False
    return action.is_float or (action.returns and not isinstance(step.results[0], Sink)) or action.name == "exch"


def _extent(name: str, given: Any) -> tuple[int, int, int]:  # noqa: ANN401 (whatever a user passes)
    """Three extents."""
    listed = [given] if isinstance(given, int | np.integer) else list(given) if isinstance(given, Sequence) else []
    if not 1 <= len(listed) <= 3 or not all(isinstance(one, int | np.integer) and one >= 1 for one in listed):
        msg = f"expected {name} as one to three positive integers, got {quote(given)}"
        raise InvalidOperand(msg)
    x, y, z = (*(int(one) for one in listed), 1, 1)[:3]
    return x, y, z


def _check_choice(name: str, given: Sequence[str], known: tuple[str, ...]) -> None:
    for one in given:
        if one not in known:
            msg = f"expected {name} of {', '.join(known)}, got {quote(one)}"
            raise InvalidOperand(msg)
