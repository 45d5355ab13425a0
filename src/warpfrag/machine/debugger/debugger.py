"""A debugger for one launch: run to a breakpoint or a watchpoint, step a warp, inspect registers and memory.

The vocabulary is that of cuda-gdb. Commands without a block or warp apply to the warp in `focus`, initially the first
warp that stopped. Warps at the same instruction stop together. Debugging does not change the kernel's results: the
launch runs on the reference engine, with the same scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.formats.arrays import Array
from warpfrag.formats.float_environment import exact_floats
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.debugger.breakpoints import (
    Breakpoint,
    Position,
    SteppedBatch,
    Stop,
    StopReason,
    ThreadAt,
    WatchAccess,
    Watchpoint,
)
from warpfrag.machine.debugger.debug_views import (
    FLOATS,
    InstructionView,
    OperandValues,
    SharedView,
    named_elements,
    operand_matrix,
    ptx_operands,
    results_now,
    sources_now,
    typed_operands,
)
from warpfrag.machine.interpreter.device_memory import DeviceMemory, MemoryAccess
from warpfrag.machine.interpreter.warp_state import LaunchConfig, LaunchPart, LaunchTally
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.machine.ir.program import DecodedInstruction, Program, Register, SourceLine, located, registers_of
from warpfrag.smem.shared_memory import is_whole

Block = tuple[int, int, int]
BlockIndex = int | Sequence[int]


class Debugger:
    """A launch that stops at breakpoints and watchpoints; `Kernel.debug` creates it, and leaving `with` ends it."""

    def __init__(
        self,
        program: Program,
        config: LaunchConfig,
        memory: DeviceMemory,
        waves: Iterator[list[Block]],
        sources: Mapping[int, SourceLine],
    ) -> None:
        """Prepare the launch; nothing runs yet."""
        self.program, self.config, self.memory, self.sources = program, config, memory, sources
        self.breakpoints: list[Breakpoint] = []
        self.watchpoints: list[Watchpoint] = []
        self.stop: Stop | None = None
        self.on_access: Callable[[DecodedInstruction, MemoryAccess], None] | None = None  # called after each access
        self.is_finished = False
        # the caller's arguments and their arrays in memory, by parameter name
        self.arguments: dict[str, tuple[object, object]] = {}
        self._waves = waves
        self._tally = LaunchTally.of(program)
        self._batch: SteppedBatch | None = None
        self._row = 0  # the row in the batch of the warp in focus
        self._is_at_stop = False  # True if the stop at this position has already been reported
        self._visits: Counter[int] = Counter()
        self._names: dict[str, Register] = {}
        self._floats: dict[str, Any] = {}  # registers that hold floats, with their types
        for inst in program.instructions:
            for operand in (*inst.results, *inst.operands_read):
                self._names |= {reg.name: reg for reg in registers_of(operand) if reg.name not in self._names}
            for operand, dtype in (*typed_operands(inst, is_result=True), *typed_operands(inst, is_result=False)):
                if isinstance(operand, Register) and dtype is not None and dtype.name in FLOATS:
                    self._floats |= {operand.name: FLOATS[dtype.name]} if dtype.bits == operand.bits else {}

    def __enter__(self) -> Self:
        """Return the debugger."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the launch without running the remaining instructions; arrays keep the values that were stored."""
        self.is_finished = True

    def __repr__(self) -> str:
        """Return the kernel and its current stop."""
        state = "finished" if self.is_finished else "not started" if self.stop is None else repr(self.stop)
        return f"<Debugger of {self.program.name}: {state}>"

    # --- breakpoints and watchpoints

    def break_at(
        self,
        line: int | None = None,
        opcode: str | None = None,
        *,
        source: int | str | None = None,
        condition: Callable[[Debugger], object] | None = None,
        block: BlockIndex | None = None,
        warp: int | None = None,
    ) -> Breakpoint:
        """Add a breakpoint on a line, on an opcode ("mma", "ld.global"; in a cubin "LDG"), or on every instruction.

        `source` is a line of the kernel's own source, known from .loc: 12, or "softmax.py:12". Without an opcode, the
        breakpoint is on the first instruction of that line, and of each unrolled or inlined copy of it.
        `condition(debugger)` is called with the focus on each warp that reaches the instruction; the warp stops if the
        result is true. `block` and `warp` restrict the breakpoint to one block or warp.
        """
        file, number_of_source = _source_line(source)
        for name, number in (("line", line), ("source", number_of_source), ("warp", warp)):
            if number is not None and not (is_whole(number) and number >= 0):
                raise InvalidOperand(f"expected {name} to be an integer of at least 0, got {quote(number)}")
        if opcode is not None and not isinstance(opcode, str):
            raise InvalidOperand(
                "expected an opcode, optionally with its first qualifiers, such as 'mma' or 'ld.global';"
                f" got {quote(opcode)}"
            )
        if condition is not None and not callable(condition):
            raise InvalidOperand(f"expected condition to be a function of the debugger, got {quote(condition)}")
        point = Breakpoint(
            line, opcode, number_of_source, condition, None if block is None else _index(block), warp, file
        )
        named = [point.names(inst, self.sources.get(inst.line)) for inst in self.program.instructions]
        insts, is_line = self.program.instructions, number_of_source is not None and opcode is None
        point.stops = frozenset(
            inst
            for at, inst in enumerate(insts)
            if named[at] and not (at and named[at - 1] and (is_line or not self.program.opcode_at(at)))
        )
        if not any(named):
            lines = sorted({inst.line for inst in self.program.instructions})
            near = [str(number) for number in lines if line is not None and abs(number - line) <= 2]
            wanted = ", ".join(
                f"{name} {value}"
                for name, value in (("line", line), ("opcode", opcode), ("source line", source))
                if value is not None
            )
            hint = f"; the nearest lines with instructions are {', '.join(near)}" if near else ""
            known = f"its instructions are on lines {lines[0]} to {lines[-1]}"
            if number_of_source is not None and self.sources:
                known = (
                    f"lines with code: {', '.join(dict.fromkeys(str(self.sources[at]) for at in sorted(self.sources)))}"
                )
            raise InvalidOperand(f"{self.program.name} has no instruction at {wanted or 'all'}{hint}; {known}")
        self.breakpoints.append(point)
        return point

    def watch(
        self,
        array: object = None,
        index: int | tuple[int, ...] | None = None,
        *,
        shared: int | None = None,
        size: int = 4,
        block: BlockIndex = 0,
        access: WatchAccess = "write",
    ) -> Watchpoint:
        """Add a watchpoint on an array argument, one of its elements, or bytes in shared memory.

        `array` is the argument or the name of its parameter. `shared` is a shared-memory address as the kernel uses it,
        in the memory of `block`. `access` may also be "read" or "any".
        """
        if not (isinstance(access, str) and access in {"write", "read", "any"}):
            raise InvalidOperand(f"expected access to be write, read or any, got {quote(access)}")
        if not is_whole(size) or size < 1 or not (shared is None or is_whole(shared)):
            raise InvalidOperand(
                f"expected size and shared to be numbers of bytes, got {quote(size)} and {quote(shared)}"
            )
        if (array is None) == (shared is None):
            raise InvalidOperand("expected either an array argument or shared= with an address")
        if shared is not None:
            if not SharedView.start <= shared <= self.shared_end - size:
                text = f"{SharedView.start:#x} to {self.shared_end:#x}"
                raise InvalidOperand(f"{size} bytes at {shared:#x} are not in shared memory ({text})")
            point = Watchpoint("shared", int(shared), size, access, _index(block))
        else:
            point = Watchpoint("global", *self._element(array, index), access)
        self.watchpoints.append(point)
        return point

    def delete(self, point: Breakpoint | Watchpoint) -> None:
        """Remove a breakpoint or watchpoint."""
        if not any(point is existing for existing in [*self.breakpoints, *self.watchpoints]):
            raise InvalidOperand(f"expected a breakpoint or watchpoint of this debugger, got {quote(point)}")
        if isinstance(point, Breakpoint):
            self.breakpoints.remove(point)
        else:
            self.watchpoints.remove(point)

    def _element(self, array: object, index: int | tuple[int, ...] | None) -> tuple[int, int]:
        """Return the address and size of an array argument or of one of its elements."""
        wanted: object = array
        for name, (given, memory) in self.arguments.items():
            wanted = memory if given is array or (isinstance(array, str) and name == array) else wanted
        names = ", ".join(self.arguments) or "none"
        if isinstance(wanted, str):
            raise InvalidOperand(
                f"expected an array argument ({names}), got {quote(array)}; to watch a module variable, pass the array"
                " that holds it"
            )
        values = getattr(wanted, "array", wanted)
        values = values if isinstance(values, np.ndarray) else np.asarray(values)
        key: Any = (...,) if index is None else (*index, ...) if isinstance(index, tuple) else (index, ...)
        try:
            span = values[key]
        except (IndexError, ValueError, TypeError, OverflowError) as error:
            raise InvalidOperand(
                f"expected an index of an array of shape {values.shape}, got {quote(index)}: {error}"
            ) from None
        place = span.__array_interface__["data"][0]
        for allocation in self.memory.allocations:
            first = allocation.data.__array_interface__["data"][0]
            if first <= place < first + len(allocation.data):
                return allocation.start + place - first, int(span.nbytes)
        raise InvalidOperand(f"expected an array among the arguments of this launch ({names}), got {quote(array)}")

    # --- execution

    @exact_floats
    def run(self) -> Stop | None:
        """Start or continue the launch until a breakpoint or watchpoint; return None when the kernel has ended."""
        return self._go(None)

    @exact_floats
    def step(self, count: int = 1) -> Stop | None:
        """Run `count` instructions of the warp in focus; other warps run as the scheduler decides.

        A breakpoint or watchpoint on the way ends the step early. Returns None when the kernel has ended.
        """
        if not is_whole(count) or count < 1:
            raise InvalidOperand(f"expected a positive number of instructions, got {quote(count)}")
        stop = self.stop
        for _ in range(count):
            stop = self._go(self._row)
            if stop is None or stop.reason != "step":
                break
        return stop

    def _go(self, stepped: int | None) -> Stop | None:
        """Run until the next stop; `stepped` is the row of the warp that is being stepped, if any."""
        if self.is_finished:
            raise InvalidOperand("the kernel has ended: create a new debugger")
        is_moved = not self._is_at_stop and stepped is not None and self.stop is None
        try:
            with np.errstate(all="ignore"):
                while (position := self._position()) is not None:
                    if not self._is_at_stop:
                        if (stop := self._hit(position)) is not None:
                            return stop
                        if stepped is not None and is_moved and self._has_focus(position, stepped):
                            return self._stopped("step", position, [stepped])
                    ran = self._has_row(position, stepped)
                    if (stop := self._advance(position)) is not None:
                        return stop
                    is_moved = is_moved or ran
        except WarpfragError as error:
            self.is_finished = True
            raise located(error, self.sources) from None
        self.is_finished, self.stop = True, None
        return None

    def _position(self) -> Position | None:
        """Return the next position in this wave of blocks or a later one, or None when no wave remains."""
        while True:
            if self._batch is not None:
                position = self._batch.next_position()
                if position is not None:
                    return position
                self._row = 0
            blocks = next(self._waves, None)
            if blocks is None:
                return None
            self._batch = SteppedBatch(LaunchPart(self.program, self.config, self.memory, blocks, self._tally))

    def _hit(self, position: Position) -> Stop | None:
        """Return the stop for the first breakpoint that applies at a position, or None."""
        inst = self.batch.inst_at(position)
        for point in self.breakpoints:
            if not point.enabled or inst not in point.stops:
                continue
            rows = [row for row in self._rows(position) if self._is_met(point, row)]
            if rows:
                point.hits += len(rows)
                return self._stopped("breakpoint", position, rows, point)
        return None

    def _is_met(self, point: Breakpoint, row: int) -> bool:
        """Return True if a breakpoint applies to the warp in row `row`."""
        block, warp = self.warp_at(row)
        if (point.block is not None and block != point.block) or (point.warp is not None and warp != point.warp):
            return False
        if point.condition is None:
            return True
        before, self._row = self._row, row
        try:
            return bool(point.condition(self))
        finally:
            self._row = before

    def _rows(self, position: Position) -> list[int]:
        """Return the rows of the warps at a position that have a lane whose guard is true."""
        group = self.batch.active_part(self.batch.inst_at(position), position.group)
        return [int(row) for row in group.active_rows]

    def _has_row(self, position: Position, row: int | None) -> bool:
        return row is not None and bool(position.group.mask[position.group.warp_rows == row].any())

    def _has_focus(self, position: Position, row: int) -> bool:
        """Return True if the stepped warp has reached its next instruction or has exited."""
        return self._has_row(position, row) or not bool(self.batch.alive[row].any())

    def _stopped(
        self, reason: StopReason, position: Position, rows: list[int], point: Breakpoint | None = None
    ) -> Stop:
        """Stop before an instruction, with the focus on the first of the given warps."""
        inst = self.batch.inst_at(position)
        present = [row for row in rows if self._has_row(position, row)] or self._rows(position) or rows
        self._row, self._is_at_stop = present[0], True
        mask = position.group.mask[position.group.warp_rows == present[0]].any(axis=0)
        self.stop = Stop(
            reason, inst.line, inst.text, self.sources.get(inst.line), tuple(self.warp_at(row) for row in present),
            sum(1 << lane for lane in np.nonzero(mask)[0].tolist()), point, visit=self._visits[position.at],
        )  # fmt: skip
        return self.stop

    def _advance(self, position: Position) -> Stop | None:
        """Run the instruction at a position; return a stop if it triggered a watchpoint."""
        self._is_at_stop = False
        batch, watched = self.batch, [point for point in self.watchpoints if point.enabled]
        before = [self._contents(point) for point in watched]
        self.memory.accesses = [] if watched or self.on_access else None
        try:
            if batch.advance():
                self._visits[position.at] += 1
            accesses = self.memory.accesses or []
        finally:
            self.memory.accesses = None
        if self.on_access is not None:
            for access in accesses:
                self.on_access(batch.inst_at(position), access)
        for point, old in zip(watched, before, strict=True):
            threads = [thread for access in accesses for thread in self._accessors(point, access)]
            if threads:
                return self._watched(position, point, old, list(dict.fromkeys(threads)))
        return None

    def _watched(self, position: Position, point: Watchpoint, old: bytes, numbers: list[int]) -> Stop:
        """Stop after an instruction that accessed watched bytes; the first warp that accessed them gets the focus."""
        point.hits += 1
        inst = self.batch.inst_at(position)
        threads = [ThreadAt(*self.warp_at(number // LANES), number % LANES) for number in sorted(numbers)]
        self._row = min(numbers) // LANES
        rows = sorted({number // LANES for number in numbers})
        lanes = sum(1 << number % LANES for number in set(numbers) if number // LANES == self._row)
        self.stop = Stop(
            "watchpoint", inst.line, inst.text, self.sources.get(inst.line), tuple(map(self.warp_at, rows)), lanes,
            point, tuple(threads), old, self._contents(point), self._visits[position.at],
        )  # fmt: skip
        return self.stop

    def _span(self, point: Watchpoint) -> tuple[NDArray[np.uint8], int] | None:
        """Return the buffer and offset of watched bytes, or None while their block is not running."""
        if point.space == "global":
            for allocation in self.memory.allocations:
                if allocation.start <= point.address < allocation.end:
                    return allocation.data, point.address - allocation.start
        elif point.block in self.batch.blocks:
            number = self.batch.blocks.index(point.block)
            return self.memory.shared, number * self.memory.shared_stride + point.address
        return None

    def _contents(self, point: Watchpoint) -> bytes:
        span = self._span(point)
        return b"" if span is None else span[0][span[1] : span[1] + point.size].tobytes()

    def _accessors(self, point: Watchpoint, access: MemoryAccess) -> list[int]:
        """Return the threads whose accesses touch watched bytes."""
        span = self._span(point)
        if span is None or access.buffer is not span[0] or point.access not in {"any", KINDS[access.writes]}:
            return []
        first = span[1]
        touches = (access.offsets < first + point.size) & (access.offsets + access.size > first)
        return [int(number) for number in np.asarray(access.threads)[touches]]

    # --- inspection

    @property
    def batch(self) -> SteppedBatch:
        """The batch of blocks that is running."""
        if self._batch is None:
            raise InvalidOperand("nothing has run yet: call run() or step() first")
        return self._batch

    @property
    def shared_end(self) -> int:
        """The end address of shared memory."""
        return self.program.dynamic_start + self.config.shared

    @property
    def instruction(self) -> DecodedInstruction:
        """The next instruction of the warp in focus."""
        row, batch = self._row, self.batch
        position = batch.position
        if position is not None and self._has_row(position, row):
            return batch.inst_at(position)
        alive = batch.alive[row]
        return self.program.instructions[int(batch.pc[row][alive].min() if alive.any() else batch.pc[row].max())]

    @property
    def visit(self) -> int:
        """The number of times that the next instruction has been executed, by any warp."""
        position = self.batch.position
        return 0 if position is None else self._visits[position.at]

    def focus(self, *, block: BlockIndex | None = None, warp: int | None = None) -> tuple[Block, int]:
        """Set the focus if a block or warp is given; return the block and warp in focus."""
        if block is not None or warp is not None:
            self._row = self._row_of(block, warp)
        return self.warp_at(self._row)

    def registers(self, *, block: BlockIndex | None = None, warp: int | None = None) -> dict[str, Array]:
        """Return all registers of a warp by name, with the values that `register` returns."""
        return {name: self.register(name, block=block, warp=warp) for name in self._names}

    def register(
        self, name: str, *, block: BlockIndex | None = None, warp: int | None = None, raw: bool = False
    ) -> Array:
        """Return a register's values in the 32 lanes of a warp: floats if the kernel uses it for floats, else codes.

        With `raw`, the values are always unsigned codes.
        """
        if not isinstance(name, str) or name not in self._names:
            raise InvalidOperand(
                f"expected a PTX register of {self.program.name}, such as {', '.join([*self._names][:3])}, got "
                f"{quote(name)}; source variables cannot be read by name: explain() executes the next instruction and "
                "shows its registers"
            )
        codes: NDArray[Any] = self.batch.registers[self._names[name].index][self._row_of(block, warp)].copy()
        return codes if raw or name not in self._floats else codes.view(self._floats[name])

    def matrix(
        self,
        role: str,
        *,
        line: int | None = None,
        block: BlockIndex | None = None,
        warp: int | None = None,
        raw: bool = False,
    ) -> NDArray[Any]:
        """Return an operand ("a", "b", "c", "d", "metadata", ...) of a matrix instruction as a matrix.

        The instruction is the next one, or the one at `line`. For wgmma, the matrix is that of the warpgroup; operands
        in shared memory are read from there. To see the new values of D, step past the instruction, then pass its line.
        """
        return operand_matrix(self.batch, self._matrix_inst(line), self._row_of(block, warp), role, raw=raw)

    def explain(self) -> InstructionView:
        """Run the next instruction of the warp in focus; return its operands before and its results after.

        The debugger then stops at the warp's next instruction, or at a breakpoint.
        """
        if self.stop is None:
            self.step()
        stop, row, inst = self.stop, self._row, self.instruction
        if stop is None:
            raise InvalidOperand("the kernel has ended: there is no next instruction")
        batch = self.batch
        if stop.reason == "watchpoint":  # the watched instruction has run, so explain the next one
            here = self.sources.get(inst.line)
            stop = replace(stop, reason="step", line=inst.line, text=inst.text, source=here, old=b"", new=b"")
        sources = sources_now(batch, inst, row)
        self.step()
        values = self._with_elements([*sources, *results_now(batch, inst, row)])
        return InstructionView(stop, inst.name, self.config.arch, tuple(values))

    def _with_elements(self, values: list[OperandValues]) -> list[OperandValues]:
        """Name the array elements that a load or store accesses, and convert its words to the array's dtype."""
        addresses = [int(word) for value in values if value.format == "address" for word in value.values.reshape(-1)]
        for name, (given, memory) in self.arguments.items() if addresses else ():
            array = getattr(memory, "array", memory)
            with suppress(InvalidOperand):  # raised for arguments that are passed by value
                start, size = self._element(name, None)
                offsets = [address - start for address in addresses if start <= address < start + size]
                if offsets and isinstance(array, np.ndarray) and array.ndim and array.flags.c_contiguous:
                    return named_elements(values, name, array, offsets, str(getattr(given, "dtype", "")))
        return values

    def operands(self, line: int | None = None) -> tuple[str, ...]:
        """Return the operand names of the next matrix instruction, or of the matrix instruction at a line."""
        return tuple(ptx_operands(self._matrix_inst(line)))

    def _matrix_inst(self, line: int | None) -> DecodedInstruction:
        if line is None:
            return self.instruction
        for inst in self.program.instructions:
            if is_whole(line) and inst.line == line and isinstance(inst.action, MatrixOp):
                return inst
        lines = sorted({inst.line for inst in self.program.instructions if isinstance(inst.action, MatrixOp)})
        known = ", ".join(map(str, lines[:8])) + (", ..." if len(lines) > 8 else "")
        raise InvalidOperand(f"line {quote(line)} has no matrix instruction; lines with one: {known or 'none'}")

    @property
    def shared(self) -> SharedView:
        """The shared memory of the block in focus."""
        number = int(self.batch.warp_block[self._row])
        stride = self.memory.shared_stride
        return SharedView(self.memory.shared[number * stride : (number + 1) * stride], self.memory.shared_end)

    def warp_at(self, row: int) -> tuple[Block, int]:
        """Return the block and the warp in a row of the batch; `on_access` receives threads numbered by row."""
        batch = self.batch
        return batch.blocks[int(batch.warp_block[row])], int(batch.warp_index[row])

    def _row_of(self, block: BlockIndex | None, warp: int | None) -> int:
        """Return the row of a running warp; block and warp default to the focus."""
        batch = self.batch
        own, mine = self.warp_at(self._row)
        wanted = own if block is None else _index(block)
        number = mine if warp is None else warp
        if wanted not in batch.blocks:
            raise InvalidOperand(f"expected a running block, {batch.blocks[0]} to {batch.blocks[-1]}; got {wanted}")
        if not is_whole(number) or not 0 <= number < self.config.warps:
            raise InvalidOperand(f"expected a warp below {self.config.warps}, got {quote(number)}")
        return batch.blocks.index(wanted) * self.config.warps + int(number)


KINDS = {True: "write", False: "read"}


def _source_line(source: int | str | None) -> tuple[str, int | None]:
    """Split a source line such as 12 or "softmax.py:12" into file name and line number."""
    if not isinstance(source, str):
        return "", source
    file, _, digits = source.rpartition(":")
    if not file or not digits.isdecimal():
        raise InvalidOperand(f"expected source to be a line such as 12 or softmax.py:12, got {quote(source)}")
    return file, int(digits)


def _index(block: BlockIndex) -> Block:
    """Return a block index with three axes; missing axes are 0."""
    axes = list(block) if isinstance(block, Sequence) else [block]
    if not 1 <= len(axes) <= 3 or not all(is_whole(axis) and axis >= 0 for axis in axes):
        raise InvalidOperand(f"expected block to be one to three indices, got {quote(block)}")
    x, y, z = (*map(int, axes), 0, 0)[:3]
    return x, y, z
