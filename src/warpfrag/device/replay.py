"""Run recorded launches without a GPU, and compare the resulting memory with the GPU's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.device.loaded_modules import CONSTANT, PlacedModule
from warpfrag.device.recording import MemoryBlock, RecordedLaunch, RecordedSequence, Recording
from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.machine.debugger.debugger import Debugger
from warpfrag.machine.interpreter.kernel_findings import Check, KernelFinding
from warpfrag.machine.ir.state_spaces import ALIGNMENT, VARIABLES
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.launch_arguments import GlobalMemory
from warpfrag.machine.launch.options import Engine, LaunchOptions
from warpfrag.machine.launch.run import Run
from warpfrag.machine.launch.symbol_names import readable
from warpfrag.sass.cubin import Cubin, CubinSymbol
from warpfrag.sass.lowering import CONSTANT_BANK, SassProgram

Status = Literal["equal", "different", "ran", "failed", "not replayed"]
Bytes = NDArray[np.uint8]


class Difference(NamedTuple):
    """The bytes of a memory block that differ: their number, and the address and both values of the first one."""

    address: int
    variable: str
    bytes: int
    first: int
    computed: int
    recorded: int


class Replayed(NamedTuple):
    """The outcome of replaying a record.

    `status` is "ran" if the recording has no memory to compare; `reason` explains "failed" and "not replayed".
    """

    launch: int
    name: str
    status: Status
    reason: str
    differences: tuple[Difference, ...]
    exact: bool | None
    inexact: tuple[str, ...]
    verdict: str | None
    findings: tuple[KernelFinding, ...]
    instructions: int
    seconds: float


class Replay:
    """A recording and the modules of its kernels."""

    def __init__(self, recording: Recording) -> None:
        """Open a recording; modules are loaded on first use."""
        self.recording = recording
        self._module = lru_cache(32)(self._load)

    def _load(self, digest: str, addresses: tuple[tuple[str, int], ...]) -> RecordedModule:
        return RecordedModule(Cubin(self.recording.blob(digest), "the recorded cubin"), dict(addresses))

    def select(self, kernel: str | None = None, launches: Sequence[int] = ()) -> list[int]:
        """Return the indices of the records whose kernel name matches; if `launches` is not empty, only these ones."""
        records = self.recording.records
        for index in launches:
            if not 0 <= index < len(records):
                raise InvalidOperand(f"expected a launch number from 0 to {len(records) - 1}, got {index}")
        try:
            pattern = re.compile(kernel or "")
        except re.error as error:
            raise InvalidOperand(f"expected a regular expression, got {quote(kernel)}: {error}") from None
        names = ([record.name, *_kernel_names(record)] for record in records)
        found = [index for index, row in enumerate(names) if any(map(pattern.search, row))]
        return [index for index in found if not launches or index in launches]

    def run(
        self,
        index: int,
        *,
        checks: Sequence[Check] | Check | Literal["all"] = (),
        engine: Engine = "auto",
        progress: Callable[[int, int], None] | None = None,
    ) -> Replayed:
        """Run a record, and compare the resulting memory with the GPU's."""
        record, start = self.recording.records[index], time.perf_counter()
        reason = _missing(record)
        if reason:
            return _result(index, record, "not replayed", reason)
        runs: list[Run] = []
        differences: tuple[Difference, ...] = ()
        status: Status = "ran"
        try:
            memory = ReplayMemory(self, record)
            for launch in record.launches:
                kernel = self.kernel(launch, memory)
                options = _options(launch, progress)
                runs.append(
                    kernel.launch(
                        launch.grid, launch.block, shared=launch.shared, checks=checks, engine=engine, options=options,
                        params=_params(kernel, launch), memory=memory.arrays,
                    )
                )  # fmt: skip
            if any(block.after for block in record.memory):
                differences = tuple(memory.differences())
                status = "different" if differences else "equal"
        except WarpfragError as error:
            status, reason = "failed", str(error)
        return _result(index, record, status, reason, differences, runs, time.perf_counter() - start)

    def debug(self, index: int) -> Debugger:
        """Run all launches of a record except the last, and return a debugger for the last one."""
        record = self.recording.records[index]
        if reason := _missing(record):
            raise InvalidOperand(f"launch {index} cannot be debugged: {reason}")
        memory = ReplayMemory(self, record)
        for number, launch in enumerate(record.launches, 1):
            kernel = self.kernel(launch, memory)
            arguments: dict[str, Any] = {
                "grid": launch.grid, "block": launch.block, "shared": launch.shared, "options": _options(launch),
                "params": _params(kernel, launch), "memory": memory.arrays,
            }  # fmt: skip
            if number == len(record.launches):
                return kernel.debug(**arguments)
            kernel.launch(**arguments)
        raise InvalidOperand(f"launch {index} has no kernel")

    def module(self, digest: str, record: RecordedSequence) -> RecordedModule:
        """Return a module whose variables are at the addresses in a record."""
        return self._module(digest, tuple((block.variable, block.address) for block in record.memory if block.variable))

    def kernel(self, launch: RecordedLaunch, memory: ReplayMemory) -> Kernel:
        """Return the kernel of a launch, with the constants that are in the record's memory."""
        module = self.module(launch.code, memory.record)
        kernel = module[launch.kernel]
        if isinstance(kernel.program, SassProgram) and CONSTANT_BANK in kernel.program.banks:
            bank = kernel.program.banks[CONSTANT_BANK]
            kernel.program.banks[CONSTANT_BANK] = memory.constants(module).ljust(len(bank), b"\0")
        return kernel


class RecordedModule(PlacedModule):
    """Machine code whose variables are at recorded addresses; the driver places each variable separately."""

    def __init__(self, cubin: Cubin, addresses: dict[str, int]) -> None:
        """Create the module; sections also get addresses, for variables that were not recorded."""
        super().__init__(cubin)
        self.addresses = addresses
        self.section_starts, end = {}, VARIABLES
        for section in cubin.global_sections:
            self.section_starts[section.name] = end
            end += -(-(section.size + 1) // ALIGNMENT) * ALIGNMENT

    def address_of(self, symbol: CubinSymbol) -> int:
        """Return the recorded address of a global variable, or the address that the module gives any other symbol."""
        is_recorded = symbol.section in self.section_starts and symbol.name in self.addresses
        return self.addresses[symbol.name] if is_recorded else super().address_of(symbol)


class ReplayMemory:
    """The memory of a record while it is replayed: allocations and variables, at their recorded addresses.

    Overlapping ranges, such as a variable in a recorded allocation, share one array.
    """

    def __init__(self, session: Replay, record: RecordedSequence) -> None:
        """Create the memory with its contents from before the launches."""
        self.recording, self.record = session.recording, record
        modules = [session.module(digest, record) for digest in {launch.code for launch in record.launches}]
        ranges = [
            (module.section_starts[section.name], np.frombuffer(section.relocated(module.address_of), np.uint8))
            for module in modules
            for section in module.cubin.global_sections
            if section.size
        ]
        ranges += [(block.address, self._read(block.before, block.size)) for block in record.memory]
        self.data = _merge([(start, len(data)) for start, data in ranges])
        for start, data in ranges:
            self.view(start, len(data))[:] = data
        self.arrays = GlobalMemory(dict(self.data))

    def constants(self, module: RecordedModule) -> bytes:
        """Return the constants of a module: the recorded values, or the initial ones if none were recorded."""
        section = module.cubin.section(CONSTANT)
        if section is None:
            return b""
        values = bytearray(section.relocated(module.address_of))
        for symbol in module.cubin.symbols.values():
            if symbol.section == CONSTANT and symbol.name in module.addresses:
                stored = self.view(module.addresses[symbol.name], symbol.size)
                values[symbol.offset : symbol.offset + symbol.size] = stored.tobytes()
        return bytes(values)

    def view(self, address: int, size: int) -> Bytes:
        """Return the bytes at an address."""
        start = max(start for start in self.data if start <= address)
        return self.data[start][address - start : address - start + size]

    def _read(self, digests: tuple[str, ...], size: int) -> Bytes:
        data = np.frombuffer(self.recording.blobs(digests), np.uint8)
        if len(data) != size:
            raise InvalidOperand(f"damaged recording: expected {size} bytes for a block of memory, got {len(data)}")
        return data

    def differences(self) -> Iterator[Difference]:
        """Yield a difference for each block whose bytes differ from the GPU's."""
        for block in self.record.memory:
            yield from self._compare(block, self.view(block.address, block.size))

    def _compare(self, block: MemoryBlock, computed: Bytes) -> Iterator[Difference]:
        if not block.after:
            return
        recorded = self._read(block.after, block.size)
        differs = computed != recorded
        if self.record.compared is not None:
            is_compared = np.zeros(block.size, np.bool_)
            for start, size in self.record.compared:
                is_compared[max(start - block.address, 0) : max(start + size - block.address, 0)] = True
            differs &= is_compared
        if differs.any():
            at = int(differs.argmax())
            values = int(computed[at]), int(recorded[at])
            yield Difference(block.address, block.variable, int(differs.sum()), block.address + at, *values)


def _merge(ranges: list[tuple[int, int]]) -> dict[int, Bytes]:
    """Return a zeroed array for each group of overlapping ranges, by the group's start address."""
    ends: dict[int, int] = {}
    start = -1
    for address, size in sorted(ranges):
        if start < 0 or address >= ends[start]:
            start = address
        ends[start] = max(ends.get(start, 0), address + size)
    return {start: np.zeros(end - start, np.uint8) for start, end in ends.items()}


def _kernel_names(record: RecordedSequence) -> list[str]:
    names = {launch.kernel for launch in record.launches}
    return [*names, *map(readable, names)]


def _missing(record: RecordedSequence) -> str:
    """Return the reason why a record cannot be replayed, or an empty string."""
    return record.reason or next((launch.reason for launch in record.launches if not launch.code), "")


def _options(launch: RecordedLaunch, progress: Callable[[int, int], None] | None = None) -> LaunchOptions:
    return LaunchOptions(cluster=launch.cluster, cooperative=launch.cooperative, progress=progress)


def _params(kernel: Kernel, launch: RecordedLaunch) -> bytes:
    """Return the parameter bytes, padded to the size that the kernel declares."""
    return launch.params.ljust(kernel.program.parameter_bytes, b"\0")


def _result(
    index: int,
    record: RecordedSequence,
    status: Status,
    reason: str,
    differences: tuple[Difference, ...] = (),
    runs: Sequence[Run] = (),
    seconds: float = 0.0,
) -> Replayed:
    verdicts = {run.verdict for run in runs}
    order = ("findings", "incomplete", "clean")
    return Replayed(
        index,
        record.name,
        status,
        reason,
        differences,
        all(run.exact for run in runs) if runs else None,
        tuple(dict.fromkeys(reason for run in runs for reason in run.inexact)),
        next((verdict for verdict in order if verdict in verdicts), None),
        tuple(finding for run in runs for finding in run.findings),
        sum(run.counts.instructions for run in runs),
        round(seconds, 3),
    )
