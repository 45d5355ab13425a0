"""The compiled engine: the readable one's turns, with native code for the runs of steps that have some.

Which lanes run next, who waits for whom and what is counted are the readable engine's own, so both say the same. What
has no native code (matrix instructions, atomics, shuffles) is the readable engine's too, on the same registers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import Fault, PtxError, WarpfragError
from warpfrag.ptx.compiler import context as at_word
from warpfrag.ptx.compiler import scheduler_state as turns
from warpfrag.ptx.compiler.mma_products import Tiling, tilings_of
from warpfrag.ptx.compiler.segments import Segment, cut, module_texts, products
from warpfrag.ptx.compiler.warp_code import File
from warpfrag.ptx.interpreter.barriers import MOST_BARRIERS
from warpfrag.ptx.interpreter.lane_group import Group
from warpfrag.ptx.interpreter.matrix_instructions import architecture_of, form_of, multiply_many
from warpfrag.ptx.interpreter.memory import Owners
from warpfrag.ptx.interpreter.special_registers import special
from warpfrag.ptx.interpreter.warp_batch import POLLING, Wave
from warpfrag.ptx.program.actions import Action, AsyncCopy, Barrier, Branch, Call, Leave, Matrix, Store, WarpWait
from warpfrag.ptx.program.program import Constant
from warpfrag.ptx.program.state_spaces import SPACES
from warpfrag.ptx.program.types import container

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warpfrag.ptx.interpreter.memory import Memory
    from warpfrag.ptx.interpreter.warp_state import Launch, Tally
    from warpfrag.ptx.program.program import Program, Step
    from warpfrag.ptx.program.types import Codes

PATIENCE = 5  # how often each step may run without native code before it is compiled, on average
BUDGET = 1_000_000  # warp instructions after which native turns let Python look for an interrupt
LANE_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


class Native:
    """The native code of a program: compiled when it is first wanted, after so many steps without it."""

    def __init__(self, program: Program) -> None:
        """Lay out the registers."""
        self.program = program
        self.file = File.of(program)
        self.segments: dict[int, Segment] = {}
        self.products = products(program)
        self.tilings: dict[tuple[int, str], list[tuple[Tiling | None, list[Step]]]] = {}
        self.refusal = ""  # why there is no native code
        self.is_ready = False
        self.steps_without = 0
        self.patience = PATIENCE * len(program.steps) + 2000

    def prepare(self) -> None:
        """Compile it, or find it compiled."""
        self.is_ready = True
        try:
            from warpfrag.ptx.compiler.object_cache import Code
        except ImportError as error:
            self.refusal = f"llvmlite cannot be loaded ({error})"
            return
        found = cut(self.program, self.file)
        self._code = Code(*module_texts(self.program, self.file, found), [one.name for one in found])
        self.segments = {one.start: one for one in found}
        self.tables: dict[str, NDArray[np.int64]] = {}

    def table(self, arch: str) -> NDArray[np.int64]:
        """What every step is to `turns.drive`."""
        if arch not in self.tables:
            self.tables[arch] = self._table(arch)
        return self.tables[arch]

    def _table(self, arch: str) -> NDArray[np.int64]:
        program = self.program
        has_calls = any(isinstance(step.action, Call) for step in program.steps)
        table = np.zeros((len(program.steps), turns.COLUMNS), np.int64)
        for at, step in enumerate(program.steps):
            action, row = step.action, table[at]
            row[turns.END], row[turns.BLOCK_END] = at + 1, program.ends[at]
            row[turns.WEIGHT] = POLLING if at in program.polling else 1
            segment = self.segments.get(at)
            if segment is not None:
                row[turns.KIND] = turns.WHOLE_SEGMENT if segment.is_whole else turns.SEGMENT
                if not is_able(action, arch):
                    row[turns.KIND] = turns.BY_PYTHON
                    continue
                row[turns.END], row[turns.STORES] = segment.end, segment.stores
                row[turns.FUNCTION] = self._code.addresses[segment.name]
            elif isinstance(action, Branch) and not action.indexed:
                row[turns.KIND], row[turns.TARGET] = turns.BRANCH, step.targets[0]
                row[turns.GUARD] = -1 if step.guard is None else self.file.offsets[step.guard.index]
                row[turns.NEGATED] = step.guard is not None and step.guard.negated
            elif isinstance(action, Barrier) and is_plain_barrier(step):
                row[turns.KIND] = turns.BARRIER
            elif isinstance(action, Leave) and step.guard is None and not has_calls:
                row[turns.KIND] = turns.LEAVE
            elif isinstance(action, WarpWait) and step.guard is None:
                row[turns.KIND] = turns.WARP_WAIT
        return table

    @property
    def opcodes(self) -> set[str]:
        """The opcodes that have native code."""
        steps = self.program.steps
        return {steps[at].name for one in self.segments.values() for at in range(one.start, one.end)}


def is_able(action: Action, arch: str) -> bool:
    """Whether an architecture has an instruction."""
    try:
        return not isinstance(action, Matrix) or bool(architecture_of(form_of(action.name), arch))
    except WarpfragError:  # said by the readable engine
        return False


def is_plain_barrier(step: Step) -> bool:
    """bar.sync for the whole block."""
    action, number = step.action, step.sources[0] if len(step.sources) == 1 else None
    is_known = isinstance(number, Constant) and 0 <= number.code(None) < MOST_BARRIERS
    return is_known and step.guard is None and isinstance(action, Barrier) and action.waits and not action.reduction


class Registers(list["Codes"]):
    """The registers of a wave, each a view of one buffer, made when it is first wanted; a new value is copied there."""

    def __init__(self, buffer: NDArray[np.uint8], offsets: Sequence[int], bits: Sequence[int]) -> None:
        """Look at nothing yet."""
        super().__init__()
        self.buffer, self.offsets, self.bits = buffer, offsets, bits
        self.views: dict[int, Codes] = {}

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (as a list takes and gives them)
        """A view."""
        found = self.views.get(index)
        if found is None:
            found = self.views[index] = view_of(self.buffer, self.offsets[index], container(self.bits[index]))
        return found

    def __setitem__(self, index: Any, value: Any) -> None:  # noqa: ANN401 (as a list takes them)
        """Copy a value."""
        self[index][...] = value


def view_of(buffer: NDArray[np.uint8], offset: int, dtype: np.dtype[Any]) -> Codes:
    """32 lanes of every warp."""
    return buffer[:, offset : offset + 32 * dtype.itemsize].view(dtype)


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
        self.registers = Registers(self.buffer, file.offsets, program.registers)
        for name, offset in file.special.items():
            view_of(self.buffer, offset, np.dtype(np.uint32))[...] = special(self, name, 0)
        self.context = self._context()
        self.every_row = np.arange(self.warps)
        self.everyone = Group(self, None, np.ones((self.warps, 32), np.bool_))
        # one array each for what `turns.drive` shares with the readable engine
        self.flags, self.numbers = np.stack([self.alive, self.waiting]), np.stack([self.place, self.turns])
        self.alive, self.waiting = self.flags
        self.place, self.turns = self.numbers
        self.state = np.zeros(turns.STATE_WORDS, np.int64)
        self.lists = np.zeros((3, self.warps), np.int64)
        self.runs = np.zeros(len(program.steps), np.int64)

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
        words[at_word.PASSES_OF_STEPS] = memory.step_wavefronts.ctypes.data
        words[at_word.FAULT_STEP] = at_word.NO_FAULT
        return words

    # --- turns

    def run(self) -> None:
        """Until every lane has left: by the readable engine's steps until there is native code."""
        native = self.native
        while not native.segments:
            if not self.advance():
                return
            if not native.is_ready and native.steps_without >= native.patience:
                native.prepare()
        try:
            self.run_native()
        finally:
            self.count_runs()

    def turn(self, start: int, group: Group) -> None:
        """Run some lanes without native code."""
        self.native.steps_without += self.program.ends[start] - start
        super().turn(start, group)

    def run_native(self) -> None:
        """Native turns; what they cannot do is done here."""
        from warpfrag.ptx.compiler.scheduler import drive

        state, table = self.state, self.native.table(self.launch.arch)
        blocks = np.ascontiguousarray(self.warp_block, np.int64)
        given = (self.context, self.buffer, self.flags, self.numbers, self.lists, blocks, self.runs)
        state[turns.LIMIT], state[turns.BUDGET], state[turns.CHANGED] = self.launch.limit, BUDGET, 1
        while True:
            state[turns.TOTAL], state[turns.MEETINGS] = self.tally.total, len(self.barriers.meetings)
            drive.run(table, state, *given)
            self.tally.total = int(state[turns.TOTAL])
            self.progress += int(state[turns.PROGRESS])
            state[turns.PROGRESS] = 0
            self.check_stop()
            status = state[turns.STATUS]
            if status == turns.FAULT:
                raise self.native_fault()
            if status == turns.STEP:
                self.step_by_python(int(state[turns.AT]))
            elif status == turns.IDLE:
                if not self.alive.any():
                    return
                if not self.barriers.wake():
                    raise PtxError(*self.barriers.deadlock())
                state[turns.CHANGED] = 1

    def step_by_python(self, at: int) -> None:
        """One step, or some mma, of the lanes whose turn it is."""
        state = self.state
        group = self.group_of_turn()
        ends = self.native.products.get(at)
        if (
            ends is not None
            and group.is_whole
            and is_able(self.program.steps[at].action, self.launch.arch)
            and self.has_room(ends[-1] - at, group)
        ):
            self.multiply(at, ends, group)
            state[turns.AT] = ends[-1]
        elif self.one(at, group) and not self.program.steps[at].action.ends_block:
            state[turns.AT] = at + 1
        else:  # lanes have places of their own now
            state[turns.CHANGED] = 1

    def group_of_turn(self) -> Group:
        """The lanes whose turn it is."""
        count = int(self.state[turns.COUNT])
        masks = self.lists[2].view(np.uint32)[:count]
        if count == self.warps and bool((masks == turns.ALL).all()):
            return self.everyone
        lanes = (masks[:, None] & LANE_BITS) != 0
        return Group(self, None if count == self.warps else self.lists[1, :count].copy(), lanes)

    def count_runs(self) -> None:
        """Add what native code ran to the counts."""
        table = self.native.table(self.launch.arch)
        for at in np.nonzero(self.runs)[0]:
            self.tally.steps[at : table[at, turns.END]] += self.runs[at]
        self.count_bytes()

    def count_bytes(self) -> None:
        """Add the bytes that native code moved, and the wavefronts they took."""
        memory = self.memory
        for start, counted in (
            (at_word.READ, memory.read_bytes), (at_word.WRITTEN, memory.written_bytes),
            (at_word.PASSES, memory.wavefronts),
        ):  # fmt: skip
            for index, space in enumerate(SPACES):
                if self.context[start + index]:
                    counted[space] += int(self.context[start + index])

    def multiply(self, start: int, ends: tuple[int, ...], group: Group) -> None:
        """Several mma of whole warps: as one product where they are its tiles, with codes straight from the buffer."""
        steps = self.program.steps
        self.line = steps[start].line
        self.count(start, ends[-1], group.warps)
        parts = [steps[first:last] for first, last in pairwise((start, *ends))]
        key = start, self.launch.arch
        if key not in self.native.tilings:
            self.native.tilings[key] = tilings_of(parts, self.native.file, self.launch.arch)
        rows = self.every_row if group.rows is None else np.ascontiguousarray(group.rows, np.int64)
        for tiling, some in self.native.tilings[key]:
            if tiling is None:
                multiply_many(self, some, group)
            else:
                tiling.run(self.buffer, rows)

    def has_room(self, steps: int, group: Group) -> bool:
        """Whether the limit of the launch leaves so many steps: beyond it they run one by one."""
        return self.tally.total + steps * group.warps <= self.launch.limit

    def gathered(self, at: int, step: Step, group: Group, active: Group) -> bool:
        """Whether all lanes are here that a step needs: at once where everyone is."""
        action = step.action
        here = active is self.everyone and not (isinstance(action, Matrix) and action.operation == "wgmma")
        return here or super().gathered(at, step, group, active)

    def native_fault(self) -> PtxError:
        """The error of an access that native code refused, in the readable engine's words."""
        at, warp = int(self.context[at_word.FAULT_STEP]), int(self.context[at_word.FAULT_WARP])
        mask = (np.uint32(self.context[at_word.FAULT_MASK]) & LANE_BITS) != 0
        step = self.program.steps[at]
        action: Any = step.action
        first = at_word.FAULT_ADDRESSES
        addresses = self.context[first : first + 32].view(np.uint64)[mask]
        owners = Owners(self.lane_block[warp][mask], self.lane_number[warp][mask], None)
        group = Group(self, np.array([warp]), mask[None, :])
        if isinstance(action, AsyncCopy):  # the first of its run: the registers are as they were
            try:
                self.async_copy(step, group)
            except Fault as fault:
                return self.fault(step, group, fault)
        if isinstance(action, Matrix):
            space, size = "shared", 16
        else:
            space, size = action.space, action.type.dtype.itemsize * action.count
        try:
            self.memory.reach(space, addresses, size, owners, writes=isinstance(action, Store))
        except Fault as fault:
            return self.fault(step, group, fault)
        return PtxError(step.line, f"{step.name}: native code refused an address that is good: please report it")
