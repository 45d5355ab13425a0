"""The state of warps: registers, special registers (%smid, %clock), program counters and memory of all lanes.

The scheduler in `warp_batch` decides which lanes run next. The effects of instructions on this state are in
`matrix_instructions`, `block_barriers`, `calls` and `lane_group`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Event
from time import monotonic
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import PtxError
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import DeviceMemory
from warpfrag.machine.interpreter.store_tags import first_tags, next_interval
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import Program
from warpfrag.machine.ir.scalar_types import Codes, container
from warpfrag.machine.ir.state_spaces import GRID_WORKSPACE, SHARED_START

INTERRUPT = Event()  # set by another thread to stop all launches of this process, as if their time limit had passed
Index3 = tuple[int, int, int]

ZEROS = ("%gridid", "%smid", "%current_graph_exec")
TIMERS = {
    "%clock": 32, "%clock_hi": 32, "%clock64": 64, "%globaltimer": 64, "%globaltimer_lo": 32, "%globaltimer_hi": 32,
}  # fmt: skip
RESERVED = {
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": SHARED_START,
    "%reserved_smem_offset_cap": SHARED_START,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": 0,
}
GRID_REGISTERS = {"%envreg1": GRID_WORKSPACE >> 32, "%envreg2": GRID_WORKSPACE & 0xFFFFFFFF}
"""Special registers that hold the address of the grid workspace for cooperative groups; 0 in other launches."""
DRIVER_REGISTERS = {f"%envreg{number}" for number in range(32)} - set(GRID_REGISTERS)
"""Registers that the driver fills with unspecified values; on an H200, envreg 0, 6 and 10 are not zero."""
INEXACT = frozenset((*TIMERS, *RESERVED, *DRIVER_REGISTERS, "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid"))
"""Special registers whose values may differ from a GPU's; a result that depends on them is not exact."""


class RegisterFile(Protocol):
    """The registers of a batch by index; each is an array of codes [warps, lanes]."""

    def __len__(self) -> int:
        """Return the number of registers."""

    def __getitem__(self, index: int, /) -> Codes:
        """Return the codes of a register."""

    def __setitem__(self, index: int, codes: Codes, /) -> None:
        """Set the codes of a register."""


@dataclass(frozen=True)
class LaunchConfig:
    """The configuration of a launch: extents, dynamic shared memory, architecture and limits."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arch: str
    limit: int
    is_cooperative: bool = False  # True if all blocks run at the same time and may wait for each other
    # the extents of a cluster, whose blocks can access each other's shared memory
    cluster: tuple[int, int, int] = (1, 1, 1)
    is_explicit_cluster: bool = False
    interleaving: int | None = None  # the seed for choosing warps at random, or None
    deadline: float = math.inf  # the time.monotonic() value at which the launch is stopped
    seconds: float = math.inf  # the time limit in seconds

    @property
    def is_late(self) -> bool:
        """True if the time limit has passed or the launch was interrupted."""
        return monotonic() > self.deadline or INTERRUPT.is_set()

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_blocks(self) -> int:
        """The number of blocks in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def warps(self) -> int:
        """The number of warps in a block; a partial warp counts."""
        return -(-self.threads // LANES)


@dataclass
class LaunchTally:
    """Counts for a launch: executions of each instruction, and causes of inexact results."""

    instructions: NDArray[np.int64]
    causes: NDArray[np.uint8]  # bits of InexactCause, by instruction
    inexact: set[str] = field(default_factory=set)
    total: int = 0
    is_stopped: bool = False  # set from another thread to interrupt the launch
    printed: list[str] = field(default_factory=list)
    printed_characters: int = 0
    uncertain: dict[int, dict[str, None]] = field(default_factory=dict)  # reasons that depend on values, by instruction

    @classmethod
    def of(cls, program: Program) -> LaunchTally:
        """Return the tally of a launch that has not started."""
        return cls(np.zeros(len(program.instructions), np.int64), np.zeros(len(program.instructions), np.uint8))

    def note_uncertain(self, inst: int, reason: str) -> None:
        """Record a reason why an instruction's result may differ from a GPU's."""
        self.uncertain.setdefault(inst, {})[reason] = None

    def join(self, other: LaunchTally) -> None:
        """Add the counts of other blocks."""
        self.instructions += other.instructions
        self.causes |= other.causes
        self.inexact |= other.inexact
        self.total += other.total
        self.printed += other.printed
        for inst, reasons in other.uncertain.items():
            self.uncertain.setdefault(inst, {}).update(reasons)
        self.printed_characters += other.printed_characters


class LaunchPart(NamedTuple):
    """A batch of a launch's blocks, with the program, configuration, memory and counts that it uses."""

    program: Program
    launch: LaunchConfig
    memory: DeviceMemory
    blocks: list[tuple[int, int, int]]
    tally: LaunchTally


class WarpState:
    """The warps of a batch; arrays are [warps] or [warps, lanes].

    `alive` lanes have not exited. `waiting` lanes cannot run: they wait at a barrier, or, if `waiting_in_warp`, for
    other lanes of their warp or warpgroup. `pc` is the index of a lane's next instruction, and `slices` the number of
    time slices that it has had.
    """

    def __init__(self, part: LaunchPart) -> None:
        """Create the state of a batch with every lane at the kernel's entry."""
        program, launch, memory, blocks, tally = part
        self.program, self.launch, self.memory, self.tally = program, launch, memory, tally
        self.blocks = blocks
        per_block = launch.warps
        self.warps = per_block * len(blocks)
        memory.cluster_blocks, memory.has_absolute_ranks = launch.cluster_blocks, program.has_absolute_ranks
        memory.start_blocks(
            len(blocks),
            program.dynamic_start - state_spaces.SHARED_START + launch.shared,
            self.warps * LANES,
            program.local_bytes,
        )
        self.warp_index = np.tile(np.arange(per_block), len(blocks))
        self.warp_block = np.repeat(np.arange(len(blocks)), per_block)
        self.lane_block = np.repeat(self.warp_block[:, None], LANES, axis=1)
        self.lane_number = np.arange(self.warps * LANES).reshape(self.warps, LANES)
        number = (self.warp_index[:, None] * LANES + np.arange(LANES)).astype(np.int64)
        x, y, _ = launch.block
        self.thread_index = [v.astype(np.uint32) for v in (number % x, number // x % y, number // (x * y))]
        self.block_index = [np.array([b[axis] for b in blocks], np.uint32)[self.warp_block] for axis in range(3)]
        x, y, _ = launch.grid
        block_numbers = np.array([b[0] + x * (b[1] + y * b[2]) for b in blocks], np.int64)
        self.writers = first_tags(block_numbers[self.warp_block], self.warp_index)
        memory.tags.begin(memory.shared, self.writers, tally.causes)
        self.alive = number < launch.threads
        self.waiting = np.zeros((self.warps, LANES), np.bool_)
        self.waiting_in_warp = np.zeros((self.warps, LANES), np.bool_)
        self.pc = np.zeros((self.warps, LANES), np.int64)
        self.slices = np.zeros((self.warps, LANES), np.int64)
        zeros = {bits: np.zeros((self.warps, LANES), container(bits)) for bits in set(program.registers)}
        self.registers: RegisterFile = [zeros[bits] for bits in program.registers]
        self.line = 0
        self.progress = 0  # incremented by every change that lanes may wait for, but not by changes of local memory
        self._constants: dict[tuple[int, str, int], Codes] = {}
        self._special: dict[str, Codes] = {}

    def order_stores(self, blocks: Iterable[int], *, across_blocks: bool = False) -> None:
        """Order later stores of the given blocks after their own earlier stores, or after those of all blocks."""
        is_ordered = np.zeros(len(self.blocks), np.bool_)
        is_ordered[list(blocks)] = True
        next_interval(self.writers, is_ordered[self.warp_block], across_blocks=across_blocks)

    def end_wait(self, rows: NDArray[np.int64], *, across_blocks: bool) -> None:
        """Order later stores of these warps' blocks, because the warps have seen other threads' changes."""
        self.order_stores(self.warp_block[rows].tolist(), across_blocks=across_blocks)

    @property
    def shared_bytes(self) -> int:
        """The number of bytes of shared memory that the kernel declares."""
        return self.program.shared_bytes

    def full(self, value: int) -> Codes:
        """Return an array with the same 32-bit value in every lane."""
        return self.constant(value, np.dtype(np.uint32), self.warps)

    def constant(self, code: int, dtype: np.dtype[Any], warps: int) -> Codes:
        """Return an array [warps, lanes] with the same code in every lane."""
        key = (int(code), dtype.str, warps)
        codes = self._constants.get(key)
        if codes is None:
            codes = self._constants[key] = np.full((warps, LANES), code, dtype)
        return codes

    def special(self, name: str) -> Codes:
        """Return the codes of a special register in every lane."""
        if name.split(".", maxsplit=1)[0] in INEXACT:
            self.tally.inexact.add(name)
            return special(self, name, self.line)
        if name not in self._special:
            self._special[name] = special(self, name, self.line)
        return self._special[name]

    def digest(self) -> bytes:
        """Return a hash of the program counters, registers and local memory of all lanes."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.pc).tobytes())
        for index in range(len(self.registers)):
            digest.update(np.ascontiguousarray(self.registers[index]).tobytes())
        digest.update(self.memory.local.tobytes())
        return digest.digest()

    def indices(self, warp: int, lane: int) -> tuple[Index3, Index3]:
        """Return a thread's block index and its index in the block."""
        x, y, z = (int(axis[warp]) for axis in self.block_index)
        i, j, k = (int(axis[warp, lane]) for axis in self.thread_index)
        return (x, y, z), (i, j, k)

    def thread_name(self, warp: int, lane: int) -> str:
        """Return a thread's name for messages, with its block and thread indices."""
        block, thread = self.indices(warp, lane)
        return f"thread {thread} of block {block}"

    def wake(self, rows: NDArray[np.int64]) -> None:
        """Handle warps with lanes that no longer wait; the compiled engine overrides this method."""

    def release_waiting_in_warp(self, rows: NDArray[np.int64]) -> None:
        """Let lanes that wait for other lanes of their warp check their conditions again."""
        self.waiting[rows] &= ~self.waiting_in_warp[rows]
        self.waiting_in_warp[rows] = False


def block_rank(blocks: list[NDArray[Any]], cluster: tuple[int, int, int]) -> NDArray[Any]:
    """Return the ranks of blocks in their cluster, with x varying fastest."""
    x, y, z = (index % np.uint32(extent) for index, extent in zip(blocks, cluster, strict=True))
    return x + np.uint32(cluster[0]) * (y + np.uint32(cluster[1]) * z)


def special(source: WarpState, name: str, line: int) -> NDArray[Any]:
    """Return the codes of a special register in all lanes."""
    lane = np.arange(LANES, dtype=np.uint32)
    base, _, part = name.partition(".")
    launch = source.launch
    axis = "xyz".find(part) if part in {"x", "y", "z"} else -1
    if base == "%tid" and axis >= 0:
        return source.thread_index[axis]
    cluster, blocks = launch.cluster, source.block_index
    by_block = {
        "%ctaid": blocks[axis],
        "%clusterid": blocks[axis] // np.uint32(cluster[axis]),
        "%cluster_ctaid": blocks[axis] % np.uint32(cluster[axis]),
        "%cluster_ctarank": block_rank(blocks, cluster),
    }
    if name == "%cluster_ctarank" or (base in by_block and axis >= 0):
        return np.repeat(by_block[base][:, None], LANES, axis=1)
    sizes = {
        "%ntid": launch.block, "%nctaid": launch.grid, "%cluster_nctaid": cluster,
        "%nclusterid": tuple(extent // size for extent, size in zip(launch.grid, cluster, strict=True)),
    }  # fmt: skip
    if base in sizes and axis >= 0:
        return source.full(sizes[base][axis])
    if name.startswith("%lanemask_"):
        every = np.uint32(0xFFFFFFFF)
        equal = np.uint32(1) << lane
        masks = {"eq": equal, "lt": equal - np.uint32(1), "le": equal | (equal - np.uint32(1))}
        masks |= {"ge": every ^ masks["lt"], "gt": every ^ masks["le"]}
        if name[10:] in masks:
            return np.tile(masks[name[10:]], (source.warps, 1))
    if name == "%laneid":
        return np.tile(lane, (source.warps, 1))
    if name == "%warpid":
        return np.repeat(source.warp_index[:, None].astype(np.uint32), LANES, axis=1)
    numbers = {
        "%nwarpid": 64, "%nsmid": 132, "%dynamic_smem_size": launch.shared,
        "%total_smem_size": launch.shared + source.shared_bytes,
        "%aggr_smem_size": launch.shared + source.shared_bytes,
        "%cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "%is_explicit_cluster": int(launch.is_explicit_cluster), **dict.fromkeys(ZEROS, 0), **RESERVED,
    }  # fmt: skip
    if launch.is_cooperative:
        numbers |= GRID_REGISTERS
    if name in numbers or name.startswith("%envreg"):
        return source.full(numbers.get(name, 0))
    if name in TIMERS:
        ticks = source.tally.total  # the number of instructions executed so far
        value = ticks >> 32 if name.endswith("_hi") else ticks & 0xFFFFFFFF if TIMERS[name] == 32 else ticks
        return np.full((source.warps, LANES), value, np.uint64)
    raise PtxError(
        line, f"expected a register or a special register, got {name!r}, which is neither declared nor modelled"
    )
