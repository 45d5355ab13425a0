"""The breakpoints and watchpoints of a debugger, and the batch that runs one instruction at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from warpfrag.errors import location_text
from warpfrag.machine.interpreter.lane_group import LaneGroup
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.ir.program import DecodedInstruction, SourceLine, excerpt, file_name

StopReason = Literal["breakpoint", "watchpoint", "step"]
WatchAccess = Literal["write", "read", "any"]


@dataclass(eq=False)
class Breakpoint:
    """A stop before an instruction, in every warp or in selected warps; `Debugger.break_at` creates it.

    `hits` counts how often a warp that satisfies the condition has reached it.
    """

    line: int | None = None
    opcode: str | None = None
    source: int | None = None
    condition: Callable[..., object] | None = None
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    file: str = ""
    enabled: bool = True
    hits: int = 0
    stops: frozenset[DecodedInstruction] = frozenset()  # in machine code, only the first operation of each instruction

    def names(self, inst: DecodedInstruction, source: SourceLine | None) -> bool:
        """Return True if the breakpoint's line, source line and opcode match an instruction.

        The instruction's opcode may have more qualifiers than the breakpoint's.
        """
        if self.line is not None and inst.line != self.line:
            return False
        calls = [] if source is None else source.calls
        lines = {call.line for call in calls if not self.file or file_name(call.file) == file_name(self.file)}
        if self.source is not None and self.source not in lines:
            return False
        if self.opcode is None:
            return True
        return any(f"{name}.".startswith(f"{self.opcode.rstrip('.')}.") for name in (inst.name, inst.mnemonic))


@dataclass(eq=False)
class Watchpoint:
    """A stop after an instruction that accesses watched bytes; `Debugger.watch` creates it."""

    space: Literal["global", "shared"]
    address: int
    size: int
    access: WatchAccess = "write"
    block: tuple[int, int, int] | None = None  # the block whose shared memory is watched, or None for global memory
    enabled: bool = True
    hits: int = 0


class ThreadAt(NamedTuple):
    """A thread: its block, its warp in the block, and its lane."""

    block: tuple[int, int, int]
    warp: int
    lane: int

    def __str__(self) -> str:
        """Format the thread for messages."""
        return f"block {self.block}, warp {self.warp}, lane {self.lane}"


@dataclass(frozen=True, repr=False)
class Stop:
    """The position of a stopped kernel: before the instruction at `line`, or after it for a watchpoint.

    `warps` lists the (block, warp) pairs that stopped together; the first has the focus. For a watchpoint, `threads`
    are those that accessed the bytes, and `old` and `new` are the contents before and after.
    """

    reason: StopReason
    line: int
    text: str
    source: SourceLine | None
    warps: tuple[tuple[tuple[int, int, int], int], ...]
    lanes: int  # a mask of the lanes of the focused warp that run the instruction
    cause: Breakpoint | Watchpoint | None = None
    threads: tuple[ThreadAt, ...] = ()
    old: bytes = b""
    new: bytes = b""
    visit: int = field(default=0)

    @property
    def block(self) -> tuple[int, int, int]:
        """The block in focus."""
        return self.warps[0][0]

    @property
    def warp(self) -> int:
        """The warp in focus, numbered in its block."""
        return self.warps[0][1]

    def __str__(self) -> str:
        """Format the stop as debuggers do, with the source line."""
        return f"{self!r}{excerpt(self.source)}"

    def __repr__(self) -> str:
        """Return a one-line description of the stop."""
        where = f" ({self.source})" if self.source is not None else ""
        line = location_text(self.line).removeprefix("at ")
        change = f", which changed 0x{self.old[::-1].hex()} to 0x{self.new[::-1].hex()}" if self.old != self.new else ""
        return f"{self.reason} at {line}{where}, block {self.block}, warp {self.warp}: {self.text}{change}"


class Position(NamedTuple):
    """The next instruction, the end of its basic block, and the lanes at the instruction."""

    at: int
    end: int
    group: LaneGroup


class SteppedBatch(WarpBatch):
    """A batch of blocks that runs one instruction at a time."""

    position: Position | None = None

    def run_block(self, start: int, group: LaneGroup) -> None:
        """Start a time slice; `advance` runs its instructions."""
        self.begin_slice(start, group)
        self.position = Position(start, self.program.ends[start], group)

    def next_position(self) -> Position | None:
        """Return the next position, or None when all lanes have exited."""
        while True:
            if self.position is None and not self.schedule_next():
                return None
            if self.position is not None and self._is_complete(self.position):
                return self.position

    def _is_complete(self, position: Position) -> bool:
        """Return True if all lanes that the next instruction needs have arrived; if not, the arrived lanes wait."""
        inst = self.inst_at(position)
        self.line = inst.line
        if not inst.action.is_collective:
            return True
        if self.all_arrived(position.at, inst, position.group, self.active_part(inst, position.group)):
            return True
        self.position = None
        return False

    def inst_at(self, position: Position) -> DecodedInstruction:
        """Return the instruction at a position."""
        return self.program.instructions[position.at]

    def advance(self) -> bool:
        """Run the instruction at `next_position`; return False if its lanes went to sleep instead."""
        position = self.next_position()
        if position is None:
            return False
        at, end, group = position
        self.position = None
        if not self.run_inst(at, group):
            return False
        if not self.inst_at(position).action.ends_block:
            if at + 1 == end:
                group.put(self.pc, end)
            else:
                self.position = Position(at + 1, end, group)
        return True
