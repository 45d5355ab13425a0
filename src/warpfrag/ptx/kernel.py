"""The public face of the PTX machine: load a module, take an entry, launch it on numpy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from warpfrag.arithmetic.schedule import check_threads, count_threads
from warpfrag.environment import exact_floats
from warpfrag.errors import InvalidOperand, UnusableFile, WarpfragError, shown
from warpfrag.evidence import Evidence, evidence
from warpfrag.files import read_bytes
from warpfrag.isa.legality import resolve
from warpfrag.isa.targets import read_target
from warpfrag.ptx import spaces
from warpfrag.ptx.actions import Action, Atomic, Matrix, Refused, SystemCall
from warpfrag.ptx.contraction import contract
from warpfrag.ptx.memory import Allocation, Memory
from warpfrag.ptx.native.engine import CompiledWave, Native
from warpfrag.ptx.opcodes.compared import compared
from warpfrag.ptx.parser import parse
from warpfrag.ptx.program import Parameter, Program, Sink, Step, decode
from warpfrag.ptx.syntax import PtxError
from warpfrag.ptx.warps import Launch, Tally
from warpfrag.ptx.wave import Wave

if TYPE_CHECKING:
    from warpfrag.ptx.syntax import Source

Blocks: TypeAlias = list[tuple[int, int, int]]
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
STOP = 1 << 62  # more than any limit


def load(source: str | Path) -> Module:
    """Read a PTX module: a path, or the text itself."""
    if isinstance(source, str) and (".version" in source or "\n" in source):
        return Module(parse(source))
    if not isinstance(source, str | Path):
        msg = f"expected a path or the text of a PTX module, got {shown(source)}"
        raise InvalidOperand(msg)
    try:
        text = read_bytes(source, MOST_TEXT).decode("utf-8")
    except (UnicodeDecodeError, ValueError) as error:
        if isinstance(error, UnusableFile):
            raise
        msg = f"{shown(str(source))} cannot be read as PTX: {error}"
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
    """What a launch executed: warp instructions by opcode and by line, and bytes by state space."""

    opcodes: dict[str, int]
    lines: dict[int, int]
    read: dict[str, int]
    written: dict[str, int]

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


class Work:
    """The blocks of a launch at work, and what they did."""

    def __init__(self, program: Program, config: Launch, memory: Memory, native: Native | None) -> None:
        """Nothing is done yet."""
        self.program, self.config, self.memory, self.native = program, config, memory, native
        self.tally = Tally(np.zeros(len(program.steps), np.int64))
        self.divergent: dict[int, str] = {}  # what the barriers saw, by line
        self.done = 0
        self.failure: WarpfragError | None = None

    @exact_floats
    def run(self, waves: Sequence[Blocks]) -> Work:
        """Run waves of blocks one after the other."""
        for blocks in waves:
            wave: Wave
            if self.native is None:
                wave = Wave(self.program, self.config, self.memory, blocks, self.tally)
            else:
                wave = CompiledWave(self.program, self.config, self.memory, blocks, self.tally, self.native)
            try:
                with np.errstate(all="ignore"):
                    wave.run()
            except WarpfragError as error:
                self.failure = error
                return self
            self.divergent = wave.barriers.divergent | self.divergent
            self.done += 1
        return self

    def run_on_cores(self, waves: Sequence[Blocks], threads: int | None) -> None:
        """Run waves on some cores, None for all; of several that fail the first one's error is kept."""
        threads = min(len(waves), count_threads(threads, STOP))
        if threads <= 1:
            self.run(waves)
            return
        parts = [Work(self.program, self.config, self.memory.fork(), self.native) for _ in range(threads)]
        try:
            with ThreadPoolExecutor(threads) as pool:
                started = [pool.submit(part.run, waves[at::threads]) for at, part in enumerate(parts)]
                try:
                    for one in started:
                        one.result()
                except BaseException:
                    for part in parts:  # an interrupt ends the work of the others too, at their next step
                        part.tally.total += STOP
                    raise
        finally:
            for part in parts:
                self.tally.join(part.tally)
                self.memory.join(part.memory)
                self.divergent = part.divergent | self.divergent
        failed = [(part.done * threads + at, part.failure) for at, part in enumerate(parts) if part.failure is not None]
        if failed:
            self.failure = min(failed, key=itemgetter(0))[1]
        elif self.tally.total > self.config.limit:
            msg = f"the launch has run {self.config.limit} warp instructions, its limit: it may never end"
            self.failure = PtxError(0, msg)


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
        """Whether blocks may run on several cores: none changes global memory in a way that others see half done."""
        return not any(
            isinstance(step.action, SystemCall) or (isinstance(step.action, Atomic) and step.action.space != "shared")
            for step in self.program.steps
        )

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
        threads: int | None = 1,
    ) -> Run:
        """Run the kernel; arrays among the arguments are global memory and change in place.

        A struct is its bytes, or a list of its fields: arrays for pointers, numpy scalars, bytes.

        The blocks run in the order of the grid, several at once where no atomic makes their order visible; a `seed`
        permutes them. `threads` shares compiled ones out over so many cores, None for all, unless there are atomics on
        global memory; control flow is Python, which runs on one core at a time, so this seldom pays. A launch that
        executes more than `limit` warp instructions is stopped.
        """
        config = self._config(grid, block, shared, arch, limit)
        _check_choice("checks", checks, CHECKS)
        _check_choice("engine", [engine], ENGINES)
        check_threads(threads)
        allocations: list[Allocation] = []
        memory = Memory(self._arguments(args, allocations))
        for allocation in allocations:
            memory.add(allocation)
        for name, (address, size, initial) in self.program.variables.items():
            data = np.zeros(size, np.uint8)
            data[: len(initial)] = np.frombuffer(initial, np.uint8)
            memory.add(Allocation(address, data, name))
        if self.uses_heap:
            memory.add(Allocation(spaces.HEAP, np.zeros(spaces.HEAP_BYTES, np.uint8), "the heap"))
        native = None if engine == "reference" else self._native(at_once=engine == "compiled")
        work = Work(self.program, config, memory, native)
        waves = list(self._waves(config, seed))
        at = 0
        # a limit of the caller's is counted wave by wave, so that it ends the launch where it always does
        while at < len(waves) and work.failure is None:
            if native is not None and native.segments and self.is_shared_out and limit >= LIMIT:
                work.run_on_cores(waves[at:], threads)
                break
            work.run(waves[at : at + 1])
            at += 1
        if work.failure is not None:
            raise work.failure
        findings = [Observation("barriers", *one) for one in work.divergent.items()] if "barriers" in checks else []
        return self._summary(work.tally, memory, config, findings, native)

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
            msg = f"expected shared as a number of bytes, got {shown(shared)}"
            raise InvalidOperand(msg)
        total = self.program.dynamic_start - spaces.SHARED_START + int(shared)
        if total > MOST_SHARED:
            msg = f"expected at most {MOST_SHARED} bytes of shared memory, got {total}"
            raise InvalidOperand(msg)
        return Launch(blocks, threads, int(shared), read_target(arch, "", "arch").name, limit)

    def _arguments(self, args: Sequence[Any], allocations: list[Allocation]) -> bytes:
        """The bytes of the parameters; arrays become allocations."""
        if len(args) != len(self.parameters):
            kinds = ", ".join(f"{one.name} .{one.type}" for one in self.parameters) or "none"
            msg = f"{self.name} takes {len(self.parameters)} arguments ({kinds}), got {len(args)}"
            raise InvalidOperand(msg)
        data = bytearray(self.program.parameter_bytes)
        address = spaces.ARRAYS
        known: dict[int, int] = {}
        for number, (value, parameter) in enumerate(zip(args, self.parameters, strict=True)):
            if isinstance(value, list | tuple):
                code, address = _struct(value, number, parameter, address, allocations, known)
            elif isinstance(value, np.ndarray) and _is_pointer(value, parameter):
                code, address = _allocate(value, number, parameter, address, allocations, known)
            else:
                code = _scalar(value, number, parameter)
            data[parameter.offset : parameter.offset + parameter.size] = code
        return bytes(data)

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
                found.setdefault(step.name, step_evidence(step, config.arch))
        for name in sorted(tally.inexact):
            found[name] = Evidence("approximate", "the machine's own value: a GPU has others")
        counts = Counts(dict(opcodes), dict(lines), dict(memory.read_bytes), dict(memory.written_bytes))
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
        msg = f"expected {name} as one to three positive integers, got {shown(given)}"
        raise InvalidOperand(msg)
    x, y, z = (*(int(one) for one in listed), 1, 1)[:3]
    return x, y, z


def _check_choice(name: str, given: Sequence[str], known: tuple[str, ...]) -> None:
    for one in given:
        if one not in known:
            msg = f"expected {name} of {', '.join(known)}, got {shown(one)}"
            raise InvalidOperand(msg)


def _allocate(
    array: np.ndarray[Any, Any],
    number: int,
    parameter: Parameter,
    address: int,
    allocations: list[Allocation],
    known: dict[int, int],
) -> tuple[bytes, int]:
    """Give an array an address; the same array twice is one allocation."""
    what = f"argument {number} ({parameter.name})"
    if parameter.size != 8:
        msg = f"{what}: expected a number of {parameter.size} bytes, got an array"
        raise InvalidOperand(msg)
    if not array.flags.c_contiguous:
        msg = f"{what}: expected a contiguous array, got strides {array.strides} for shape {array.shape}"
        raise InvalidOperand(msg)
    if array.dtype.hasobject:
        msg = f"{what}: expected an array of numbers, got {array.dtype}"
        raise InvalidOperand(msg)
    place = array.ctypes.data
    if place not in known or array.nbytes == 0:
        known[place] = address
        flat = array.reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)
        allocations.append(Allocation(address, flat, what, bool(array.flags.writeable)))
        size = max(array.nbytes, 1) + spaces.ALIGNMENT  # a gap, so that an access beyond one is not in the next
        address += -(-size // spaces.ALIGNMENT) * spaces.ALIGNMENT
    return known[place].to_bytes(8, "little"), address


def _is_pointer(array: np.ndarray[Any, Any], parameter: Parameter) -> bool:
    """Whether an array is meant to be pointed at: always, unless it is the very bytes of a struct."""
    holds_one = parameter.size == parameter.align == 8
    return not parameter.is_array or (holds_one and array.nbytes != parameter.size)


def _struct(
    fields: Sequence[Any],
    number: int,
    parameter: Parameter,
    address: int,
    allocations: list[Allocation],
    known: dict[int, int],
) -> tuple[bytes, int]:
    """The bytes of a struct: arrays are pointers, each field at a multiple of its size."""
    data = b""
    for field_number, value in enumerate(fields):
        name = f"{parameter.name}, field {field_number}"
        size = value.nbytes if isinstance(value, np.generic) else len(value) if isinstance(value, bytes) else 8
        field = Parameter(name, parameter.type, size, size, 0, is_pointer=False, is_array=False)
        if isinstance(value, np.ndarray):
            code, address = _allocate(value, number, field, address, allocations, known)
        elif isinstance(value, np.generic | bytes) or value is None:
            code = _scalar(value, number, field)
        else:
            msg = f"argument {number} ({name}): expected an array, a numpy scalar, bytes or None, got {shown(value)}"
            raise InvalidOperand(msg)
        aligned = 1 if isinstance(value, bytes) else size
        data += bytes(-len(data) % aligned) + code
    if len(data) > parameter.size:
        msg = f"argument {number} ({parameter.name}): expected at most {parameter.size} bytes, got {len(data)}"
        raise InvalidOperand(msg)
    return data.ljust(parameter.size, b"\0"), address


def _scalar(value: Any, number: int, parameter: Parameter) -> bytes:  # noqa: ANN401 (whatever a user passes)
    """The bytes of a number, a null pointer or a block of bytes."""
    what = f"argument {number} ({parameter.name}, .{parameter.type})"
    if value is None:
        if parameter.size != 8:
            msg = f"{what}: None is a null pointer of 8 bytes, expected {parameter.size} bytes"
            raise InvalidOperand(msg)
        return bytes(8)
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, np.ndarray | np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int | float):
        data = _python_number(value, what, parameter)
    else:
        msg = f"{what}: expected an array, a number, bytes or None, got {shown(value)}"
        raise InvalidOperand(msg)
    if len(data) != parameter.size:
        msg = f"{what}: expected {parameter.size} bytes, got {len(data)} of {shown(value)}"
        raise InvalidOperand(msg)
    return data


def _python_number(value: float, what: str, parameter: Parameter) -> bytes:
    """A plain number of Python takes the type of its parameter."""
    if isinstance(value, float):
        if parameter.size not in {4, 8} or parameter.type[0] in "us":
            msg = f"{what}: expected an integer, got {value}; give a numpy scalar to choose its bits"
            raise InvalidOperand(msg)
        return np.array(value, f"f{parameter.size}").tobytes()
    if parameter.type[0] == "f":
        return np.array(value, f"f{parameter.size}").tobytes()
    bits = 8 * parameter.size
    if parameter.size > 8 or not -(1 << (bits - 1)) <= value < 1 << bits:
        msg = f"{what}: expected an integer of {bits} bits, got {shown(value)}"
        raise InvalidOperand(msg)
    return (int(value) & ((1 << bits) - 1)).to_bytes(parameter.size, "little")
