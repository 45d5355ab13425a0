"""The compiled engine: the readable one's turns, with native code for the runs of steps that have some.

Which lanes run next, who waits for whom and what is counted are the readable engine's own, so both say the same. What
has no native code (matrix instructions, atomics, shuffles) is the readable engine's too, on the same registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import WarpfragError
from warpfrag.ptx.actions import Barrier, Branch, Leave, Matrix, Store
from warpfrag.ptx.group import Group
from warpfrag.ptx.matrices import architecture_of, form_of, multiply_many
from warpfrag.ptx.memory import Fault, Owners
from warpfrag.ptx.native import segments as at_word
from warpfrag.ptx.native.products import Tiling
from warpfrag.ptx.native.segments import File, Segment, cut, module_text, products
from warpfrag.ptx.program import Constant
from warpfrag.ptx.special import special
from warpfrag.ptx.syntax import PtxError
from warpfrag.ptx.types import container
from warpfrag.ptx.wave import HANDLERS, Wave

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from warpfrag.ptx.memory import Memory
    from warpfrag.ptx.program import Program
    from warpfrag.ptx.types import Codes
    from warpfrag.ptx.warps import Launch, Tally

PATIENCE = 5  # how often each step may run without native code before it is compiled, on average
LANE_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


class Native:
    """The native code of a program: compiled when it is first wanted, after so many steps without it."""

    def __init__(self, program: Program) -> None:
        """Lay out the registers."""
        self.program = program
        self.file = File.of(program)
        self.segments: dict[int, tuple[Segment, Callable[..., None]]] = {}
        self.products = products(program)
        self.tilings: dict[tuple[int, str], Tiling | None] = {}
        self.refusal = ""  # why there is no native code
        self.is_ready = False
        self.steps_without = 0
        self.patience = PATIENCE * len(program.steps) + 2000

    def prepare(self) -> None:
        """Compile it, or find it compiled."""
        self.is_ready = True
        try:
            from warpfrag.ptx.native.code import Code
        except ImportError as error:
            self.refusal = f"llvmlite cannot be loaded ({error})"
            return
        found = cut(self.program, self.file)
        self._code = Code(module_text(self.program, self.file, found), [one.name for one in found])
        self.segments = {one.start: (one, self._code.functions[one.name]) for one in found}

    @property
    def opcodes(self) -> set[str]:
        """The opcodes that have native code."""
        steps = self.program.steps
        return {steps[at].name for one, _ in self.segments.values() for at in range(one.start, one.end)}


class Registers(list["Codes"]):
    """The registers of a wave, each a view of one buffer; a new value is copied into it."""

    def __setitem__(self, index: Any, value: Any) -> None:  # noqa: ANN401 (as a list takes them)
        """Copy a value."""
        self[index][...] = value


class CompiledWave(Wave):
    """Blocks that run at once, in native code where there is some."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        memory: Memory,
        blocks: list[tuple[int, int, int]],
        tally: Tally,
        native: Native,
    ) -> None:
        """Put every lane at the entry, and the registers into one buffer."""
        super().__init__(program, launch, memory, blocks, tally)
        self.native = native
        file = native.file
        space = np.zeros(self.warps * max(64, file.bytes) + 64, np.uint8)
        start = -space.ctypes.data % 64
        self.buffer = space[start : start + self.warps * max(64, file.bytes)].reshape(self.warps, -1)
        self.registers = Registers(
            self._view(offset, container(bits)) for offset, bits in zip(file.offsets, program.registers, strict=True)
        )
        for name, offset in file.special.items():
            self._view(offset, np.dtype(np.uint32))[...] = special(self, name, 0)
        self.context = self._context()
        self.context_at = self.context.ctypes.data
        self.every_row = np.arange(self.warps)
        self.every_lane = np.full(self.warps, 0xFFFFFFFF, np.uint32)
        self.every_row_at, self.every_lane_at = self.every_row.ctypes.data, self.every_lane.ctypes.data
        self.everyone = Group(self, None, np.ones((self.warps, 32), np.bool_))
        self.at: int | None = 0 if bool(self.alive.all()) else None  # where all lanes are, if they are at one place
        self.late_turns = 0
        self._able: dict[int, bool] = {}

    def _view(self, offset: int, dtype: np.dtype[Any]) -> Codes:
        return self.buffer[:, offset : offset + 32 * dtype.itemsize].view(dtype)

    def _context(self) -> NDArray[np.int64]:
        """What native code is told."""
        memory = self.memory
        words = np.zeros(at_word.CONTEXT_WORDS, np.int64)
        self.table = np.array(
            [[one.start, one.end, one.data.ctypes.data, one.writable] for one in memory.allocations], np.int64
        ).reshape(-1, 4)
        self.block_numbers = np.ascontiguousarray(self.warp_block, np.int64)
        words[at_word.REGISTERS] = self.buffer.ctypes.data
        words[at_word.WARP_BYTES] = self.buffer.shape[1]
        words[at_word.PARAMETERS] = memory.parameters.ctypes.data if len(memory.parameters) else 0
        words[at_word.PARAMETER_BYTES] = len(memory.parameters)
        words[at_word.SHARED] = memory.shared.ctypes.data
        words[at_word.SHARED_END] = memory.shared_end
        words[at_word.SHARED_STRIDE] = memory.shared_stride
        words[at_word.LOCAL] = memory.local.ctypes.data if len(memory.local) else 0
        words[at_word.LOCAL_STRIDE] = memory.local_stride
        words[at_word.ALLOCATIONS] = self.table.ctypes.data if len(self.table) else 0
        words[at_word.ALLOCATION_COUNT] = len(self.table)
        words[at_word.WARP_BLOCK] = self.block_numbers.ctypes.data
        words[at_word.FAULT_STEP] = at_word.NO_FAULT
        return words

    # --- turns

    def run(self) -> None:
        """Until every lane has left: all together while they are at one place, then by the readable engine's rules."""
        more = True
        while more:
            while self.at is not None:
                self.turn_of_all(self.at)
            self.turns += self.late_turns
            self.late_turns = 0
            more = self.advance()
        self.count_bytes()

    def count_bytes(self) -> None:
        """Add the bytes that native code moved."""
        for start, counted in ((at_word.READ, self.memory.read_bytes), (at_word.WRITTEN, self.memory.written_bytes)):
            for index, space in enumerate(at_word.SPACES):
                if self.context[start + index]:
                    counted[space] += int(self.context[start + index])

    def turn_of_all(self, start: int) -> None:
        """A turn in which every lane of every warp takes part."""
        end = self.program.ends[start]
        self.late_turns += self.weights.get(start, 1)
        last = self.program.steps[end - 1]
        ends = last.action.ends_block
        if not self.steps_of(start, end - 1 if ends else end, self.everyone):
            self.at = None  # some wait; their place is set
            return
        if not ends:
            self.at = end
            return
        at, action = end - 1, last.action
        if isinstance(action, Branch) and not action.indexed:
            self.count(at, at + 1, self.warps)
            self.line = last.line
            if last.guard is None:
                self.at = last.targets[0]
                return
            held = self.registers[last.guard.index]
            if last.guard.negated:
                held = ~held
            first = bool(held[0, 0])
            if bool(held.all()) if first else not bool(held.any()):
                self.at = last.targets[0] if first else end
                return
            self.at = None
            self.place[...] = end
            self.branch(at, last, self.everyone, self.everyone.part(held.copy()))
            return
        if isinstance(action, Barrier) and self.is_plain_barrier(at):
            self.count(at, at + 1, self.warps)
            self.progress += 1
            self.at = end
            return
        self.at = None
        self.one(at, self.everyone)
        if isinstance(action, Leave) and not self.alive.any():
            return
        self.gather()

    def gather(self) -> None:
        """Whether all lanes are at one place again."""
        first = int(self.place[0, 0])
        if bool(self.alive.all()) and not bool(self.waiting.any()) and bool((self.place == first).all()):
            self.at = first

    def is_plain_barrier(self, at: int) -> bool:
        """bar.sync for the whole block, with nobody at it yet."""
        step = self.program.steps[at]
        action: Any = step.action
        number = step.sources[0] if len(step.sources) == 1 else None
        return (
            step.guard is None
            and action.waits
            and not action.reduction
            and isinstance(number, Constant)
            and 0 <= number.code(None) < 16
            and not self.barriers.meetings
        )

    def turn(self, start: int, group: Group) -> None:
        """Run some lanes from one place to the end of its block; all of them go on together."""
        if group.rows is None and group.is_whole:
            self.at = start
            return
        end = self.program.ends[start]
        group.put(self.turns, group.of(self.turns) + self.weights.get(start, 1))
        if self.steps_of(start, end, group, sets_place=True):
            group.put(self.place, end)

    def steps_of(self, start: int, end: int, group: Group, *, sets_place: bool = False) -> bool:
        """Run steps; False if lanes were left at a place of their own."""
        at = start
        rows = masks = None
        if not self.native.is_ready and self.native.steps_without >= self.native.patience:
            self.native.prepare()
        while at < end:
            found = self.native.segments.get(at)
            if found is not None and found[0].is_whole and not (group.is_whole and self.is_able(at)):
                found = None
            if found is not None and self.has_room(found[0].end - at, group):
                segment, function = found
                if group is self.everyone:
                    function(self.context_at, self.every_row_at, self.every_lane_at, self.warps)
                else:
                    if rows is None or masks is None:
                        rows = self.every_row if group.rows is None else np.ascontiguousarray(group.rows, np.int64)
                        masks = self.bits_of(group)
                    function(self.context_at, rows.ctypes.data, masks.ctypes.data, len(rows))
                self.count(at, segment.end, group.warps)
                self.progress += segment.stores
                if self.context[at_word.FAULT_STEP] != at_word.NO_FAULT:
                    raise self.native_fault()
                at = segment.end
                continue
            last = self.native.products.get(at)
            if last is not None and group.is_whole and self.is_able(at) and self.has_room(last - at, group):
                self.count(at, last, group.warps)
                self.line = self.program.steps[at].line
                self.multiply(at, last, group)
                at = last
                continue
            if not self.one(at, group):
                return False
            at += 1
            self.native.steps_without += 1
            if sets_place and self.program.steps[at - 1].action.ends_block:
                return False
        return True

    def multiply(self, start: int, end: int, group: Group) -> None:
        """Several mma of whole warps: as one product where they are its tiles, with codes straight from the buffer."""
        key = start, self.launch.arch
        if key not in self.native.tilings:
            self.native.tilings[key] = Tiling.of(self.program.steps[start:end], self.native.file, self.launch.arch)
        tiling = self.native.tilings[key]
        if tiling is None:
            multiply_many(self, self.program.steps[start:end], group)
        else:
            tiling.run(self.buffer, group.rows)

    def has_room(self, steps: int, group: Group) -> bool:
        """Whether the limit of the launch leaves so many steps: beyond it they run one by one."""
        return self.tally.total + steps * group.warps <= self.launch.limit

    def is_able(self, at: int) -> bool:
        """Whether the architecture has the instruction."""
        if at not in self._able:
            action = self.program.steps[at].action
            try:
                self._able[at] = not isinstance(action, Matrix) or bool(
                    architecture_of(form_of(action.name), self.launch.arch)
                )
            except WarpfragError:  # said by the readable engine
                self._able[at] = False
        return self._able[at]

    @staticmethod
    def bits_of(group: Group) -> NDArray[np.uint32]:
        """The lanes of each warp as bits."""
        return np.packbits(group.mask, axis=1, bitorder="little").view(np.uint32).reshape(-1)

    def count(self, start: int, end: int, warps: int) -> None:
        """Steps that ran."""
        self.tally.steps[start:end] += warps
        self.tally.total += (end - start) * warps
        if self.tally.total > self.launch.limit:
            msg = f"the launch has run {self.launch.limit} warp instructions, its limit: it may never end"
            raise PtxError(self.program.steps[start].line, msg)

    def one(self, at: int, group: Group) -> bool:
        """One step as the readable engine runs it; False if lanes wait for others of their warp."""
        step = self.program.steps[at]
        self.line = step.line
        action = step.action
        active = group
        if step.guard is not None:
            held = group.of(self.registers[step.guard.index])
            active = group.part(group.mask & (~held if step.guard.negated else held))
        here = active is self.everyone and not (isinstance(action, Matrix) and action.operation == "wgmma")
        if action.is_collective and not here and not self.gathered(at, step, group, active):
            return False
        self.count(at, at + 1, group.warps)
        if action.ends_block:
            HANDLERS[type(action)](self, at, step, group, active)
        elif active.is_whole or active.mask.any():
            try:
                HANDLERS[type(action)](self, step, active)
            except Fault as fault:
                raise self.fault(step, active, fault) from None
        return True

    def native_fault(self) -> PtxError:
        """The error of an access that native code refused, in the readable engine's words."""
        at, warp = int(self.context[at_word.FAULT_STEP]), int(self.context[at_word.FAULT_WARP])
        mask = (np.uint32(self.context[at_word.FAULT_MASK]) & LANE_BITS) != 0
        step = self.program.steps[at]
        action: Any = step.action
        first = at_word.FAULT_ADDRESSES
        addresses = self.context[first : first + 32].view(np.uint64)[mask]
        owners = Owners(self.lane_block[warp][mask], self.lane_number[warp][mask])
        group = Group(self, np.array([warp]), mask[None, :])
        if isinstance(action, Matrix):
            space, size = "shared", 16
        else:
            space, size = action.space, action.type.dtype.itemsize * action.count
        try:
            self.memory.reach(space, addresses, size, owners, writes=isinstance(action, Store))
        except Fault as fault:
            return self.fault(step, group, fault)
        return PtxError(step.line, f"{step.name}: native code refused an address that is good: please report it")
