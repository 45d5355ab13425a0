"""The state of warps: the registers, places and memory of every lane of the blocks that run at once.

Nothing here decides what runs next: `wave` does. What one instruction does to this state is in `matrices`, `barriers`
and `group`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.ptx.interpreter.special_registers import INEXACT, special
from warpfrag.ptx.program import state_spaces
from warpfrag.ptx.program.types import container

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.memory import Memory
    from warpfrag.ptx.program.program import Program
    from warpfrag.ptx.program.types import Codes


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arch: str
    limit: int

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """The warps of a block."""
        return -(-self.threads // 32)


@dataclass
class Tally:
    """What a launch did: how often each step ran, and what of it is not exact."""

    steps: NDArray[np.int64]
    inexact: set[str] = field(default_factory=set)
    total: int = 0
    is_stopped: bool = False  # by an interrupt, from another thread
    printed: list[str] = field(default_factory=list)

    def join(self, other: Tally) -> None:
        """Add what other blocks did."""
        self.steps += other.steps
        self.inexact |= other.inexact
        self.total += other.total
        self.printed += other.printed


class Warps:
    """The warps of blocks that run at once: where each lane is, and what it holds."""

    def __init__(
        self, program: Program, launch: Launch, memory: Memory, blocks: list[tuple[int, int, int]], tally: Tally
    ) -> None:
        """Put every lane at the entry."""
        self.program, self.launch, self.memory, self.tally = program, launch, memory, tally
        self.blocks = blocks
        per_block = launch.warps
        self.warps = per_block * len(blocks)
        memory.start_blocks(
            len(blocks),
            program.dynamic_start - state_spaces.SHARED_START + launch.shared,
            self.warps * 32,
            program.local_bytes,
        )
        self.warp_index = np.tile(np.arange(per_block), len(blocks))
        self.warp_block = np.repeat(np.arange(len(blocks)), per_block)
        self.lane_block = np.repeat(self.warp_block[:, None], 32, axis=1)
        self.lane_number = np.arange(self.warps * 32).reshape(self.warps, 32)
        number = (self.warp_index[:, None] * 32 + np.arange(32)).astype(np.int64)
        x, y, _ = launch.block
        self.thread_index = [v.astype(np.uint32) for v in (number % x, number // x % y, number // (x * y))]
        self.block_index = [np.array([b[axis] for b in blocks], np.uint32)[self.warp_block] for axis in range(3)]
        self.alive = number < launch.threads
        self.waiting = np.zeros((self.warps, 32), np.bool_)
        self.parked = np.zeros((self.warps, 32), np.bool_)  # of those that wait: for other lanes of their warp
        self.place = np.zeros((self.warps, 32), np.int64)
        self.turns = np.zeros((self.warps, 32), np.int64)
        zeros = {bits: np.zeros((self.warps, 32), container(bits)) for bits in set(program.registers)}
        self.registers: list[Codes] = [zeros[bits] for bits in program.registers]
        self.line = 0
        self.progress = 0  # grows with every change that somebody may wait for
        self._constants: dict[tuple[int, str, int], Codes] = {}
        self._special: dict[str, Codes] = {}

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the kernel declares."""
        return self.program.shared_bytes

    @property
    def executed_steps(self) -> int:
        """The clock of the machine."""
        return self.tally.total

    def full(self, value: int) -> Codes:
        """A number in every lane."""
        return self.constant(value, np.dtype(np.uint32), self.warps)

    def constant(self, code: int, dtype: np.dtype[Any], warps: int) -> Codes:
        """A code in every lane of some warps."""
        key = (int(code), dtype.str, warps)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = np.full((warps, 32), code, dtype)
        return found

    def special(self, name: str) -> Codes:
        """A special register."""
        if name.split(".", maxsplit=1)[0] in INEXACT:
            self.tally.inexact.add(name)
            return special(self, name, self.line)
        if name not in self._special:
            self._special[name] = special(self, name, self.line)
        return self._special[name]

    def thread_name(self, warp: int, lane: int) -> str:
        """A thread as an error names it."""
        block = ", ".join(str(int(axis[warp])) for axis in self.block_index)
        thread = ", ".join(str(int(axis[warp, lane])) for axis in self.thread_index)
        return f"thread ({thread}) of block ({block})"

    def unpark(self, rows: Any) -> None:  # noqa: ANN401 (an index)
        """Let lanes that wait for others of their warp look again."""
        self.waiting[rows] &= ~self.parked[rows]
        self.parked[rows] = False
