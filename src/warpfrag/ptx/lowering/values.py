"""Which values the registers of a program hold, as far as a compiler can tell: constants, and copies of one result.

A value is a constant, or the result of a step, or what a register holds where several of those meet. Two operands with
equal values are equal whenever the step runs. The analysis is the one of an optimising compiler: it starts by assuming
that every register is a copy of one definition, and gives that up where blocks join that disagree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.ptx.lowering.liveness import kept_steps, readers_behind, successors, written_registers
from warpfrag.ptx.program.actions import Branch, LaneOp, Move
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand, registers_of
from warpfrag.ptx.program.types import TYPES
from warpfrag.ptx.semantics import floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.ptx.program.types import Type

MAX_ROUNDS = 20


class Constant(NamedTuple):
    """A number that is known when a kernel is compiled."""

    code: int


class Result(NamedTuple):
    """The result of a step, by its place among those that the step has; below 0: a register that a guard may keep."""

    step: int
    position: int


class Joined(NamedTuple):
    """What a register holds at the start of a block, or of the program: one of several values."""

    block: int
    register: int


Value = Constant | Result | Joined
Values = tuple[Value | None, ...]
"""Of the sources of a step; None where nothing can be told."""


class ValueTable:
    """The values of a program's registers; `operands(at)` are those of the sources of a step that was asked for."""

    has_functions = False  # of f64 in the code, after which ptxas optimises once more
    has_loops = False  # which ptxas may unroll, and optimise once more

    def __init__(
        self,
        steps: Sequence[DecodedInstruction],
        leaders: set[int],
        ends: Sequence[int],
        wanted: set[int],
        fold: Callable[[DecodedInstruction, LaneOp, tuple[int, ...]], int | None],
    ) -> None:
        """Go through the program until nothing changes; `fold` computes what a compiler computes with constants."""
        self.steps, self.leaders, self.ends = steps, leaders, ends
        self.fold, self.wanted = fold, wanted
        self.operand_values: dict[int, Values] = {}
        self.written = [list(written_registers(step)) for step in steps]
        self.sources = [list(typed_sources(step)) for step in steps]
        written = Counter(register.index for registers in self.written for register in registers)
        self.several = {index for index, count in written.items() if count > 1}
        self.single: dict[int, Value] = {}
        self.starts: dict[int, dict[int, Value]] = defaultdict(dict)
        blocks = sorted(leader for leader in leaders if leader < len(steps))
        for _ in range(MAX_ROUNDS):
            before = dict(self.single)
            changed = [self._run_block(block) for block in blocks]
            if not any(changed) and before == self.single:
                break
        else:
            self.operand_values = {}

    def operands(self, at: int) -> Values:
        """The values of the sources of a step; None where nothing is known."""
        return self.operand_values.get(at, (None,) * len(self.steps[at].sources))

    def definition(self, value: Value | None) -> tuple[DecodedInstruction, int] | None:
        """The step that a value is the result of, and which result."""
        return (self.steps[value.step], value.position) if isinstance(value, Result) else None

    def place(self, step: DecodedInstruction) -> int:
        """Where a step is."""
        return next(index for index, other in enumerate(self.steps) if other is step)

    def is_near(self, value: Value | None, step: DecodedInstruction) -> bool:
        """Whether a value was computed in the block of a step."""
        at = next(index for index, other in enumerate(self.steps) if other is step)
        return isinstance(value, Result) and value.step < at < self.ends[value.step]

    def writers(self, value: Value | None, *, is_carried: bool) -> list[DecodedInstruction]:
        """The steps that left a value; if it `is_carried`, all that may have, where several values meet."""
        if is_carried and isinstance(value, Joined):
            return [self.steps[at] for at in self._reaching(value)]
        definition = self.definition(value)
        return [] if definition is None else [definition[0]]

    def _reaching(self, value: Joined) -> list[int]:
        """The places of the steps whose result a register may hold at the start of a block, or anywhere at all."""
        places = [at for at, items in enumerate(self.written) if any(item.index == value.register for item in items)]
        if value.block < 0:
            return places
        reaching, pending, seen = set[int](), list(self.predecessors[value.block]), set[int]()
        while pending:
            block = pending.pop()
            if block in seen:
                continue
            seen.add(block)
            inside = [at for at in places if block <= at < self.ends[block]]
            last = max((at for at in inside if self.steps[at].guard is None), default=-1)
            reaching.update(at for at in inside if at >= last)
            if last < 0:
                pending += self.predecessors[block]
        return sorted(reaching)

    @cached_property
    def predecessors(self) -> dict[int, list[int]]:
        """The blocks from which each block is entered, by where they begin."""
        before: dict[int, list[int]] = defaultdict(list)
        for block in (leader for leader in self.leaders if leader < len(self.steps)):
            for after in successors(self.steps[self.ends[block] - 1], self.ends[block]):
                before[after].append(block)
        return before

    def is_same_loop(self, writer: DecodedInstruction, reader: DecodedInstruction) -> bool:
        """Whether a loop has two steps."""
        first, last = sorted(
            next(at for at, step in enumerate(self.steps) if step is item) for item in (writer, reader)
        )
        return any(
            isinstance(step.action, Branch) and any(target <= first for target in step.targets)
            for step in self.steps[last:]
        )

    def last_writer(self, at: int, register: Register) -> DecodedInstruction | None:
        """The step that last wrote a register, in the order of the text."""
        for other in self.steps[at - 1 :: -1] if at else ():
            if any(item.index == register.index for item in written_registers(other)):
                return other
        return None

    def next_writer(self, step: DecodedInstruction, register: Register) -> DecodedInstruction | None:
        """The next step that writes a register, in the order of the text."""
        if register.index not in self.several:
            return None
        places = range(self.place(step) + 1, len(self.steps))
        after = (at for at in places if any(item.index == register.index for item in self.written[at]))
        place = next(after, None)
        return None if place is None else self.steps[place]

    def has_other_reader(self, at: int, operand: PtxOperand, *, is_whole: bool = False) -> bool:
        """Whether a step that ptxas keeps reads a register too, before or after this one, with the same value."""
        if not isinstance(operand, Register):
            return False
        for place in range(at - 1, -1, -1):
            other = self.steps[place]
            if any(item.index == operand.index for item in written_registers(other)):
                break
            if _reads(other, operand) and self._counts(place, operand if is_whole else None):
                return True
        is_kept = all(item.index != operand.index for item in written_registers(self.steps[at]))
        return is_kept and self.is_read_behind(at, operand, is_whole=is_whole)

    def is_read_behind(self, at: int, operand: Register, *, is_whole: bool = False) -> bool:
        """Whether a step that ptxas keeps reads what a register holds behind a step; `is_whole`: surely all of it."""
        whole = operand if is_whole else None
        return any(self._counts(place, whole) for place in readers_behind(self.steps, at, operand))

    def blocks_behind(self, at: int, operand: PtxOperand, *, is_whole: bool = False) -> set[int]:
        """The blocks behind that of a step in which one that ptxas keeps reads what a register holds."""
        if not isinstance(operand, Register):
            return set()
        places = [place for place in readers_behind(self.steps, at, operand) if not at < place < self.ends[at]]
        return {self.ends[place] for place in places if self._counts(place, operand if is_whole else None)}

    def _counts(self, place: int, whole: Register | None) -> bool:
        """Whether ptxas keeps a step; of a register that is to be read whole: and it surely reads that, and all of it.

        It may not where it is a mov or cvt or has a constant, and where another step may have written the register.
        """
        if place not in self.kept or whole is None:
            return place in self.kept
        step = self.steps[place]
        is_moved = isinstance(step.action, Move) or step.attributes.opcode == "cvt"
        is_partial = is_moved or any(isinstance(source, Immediate) for source in step.sources)
        return not is_partial and not self._is_met(place, whole)

    def _is_met(self, place: int, register: Register) -> bool:
        """Whether a step may read what several steps left in a register."""
        if register.index not in self.several:
            return False
        writers = [at for at, items in enumerate(self.written) if any(item.index == register.index for item in items)]
        return sum(place in readers_behind(self.steps, at, register) for at in writers) > 1

    def is_packed(self, step: DecodedInstruction) -> bool:
        """Whether the first source of a step was packed of several registers, as its last definition before it."""
        at = next(index for index, other in enumerate(self.steps) if other is step)
        source = step.sources[0]
        for other in self.steps[at - 1 :: -1] if at else ():
            if any(isinstance(source, Register) and item.index == source.index for item in written_registers(other)):
                return isinstance(other.action, Move) and isinstance(other.sources[0], VectorOperand)
        return False

    def is_unchanged(self, first: DecodedInstruction, last: DecodedInstruction, register: Register) -> bool:
        """Whether a register keeps its value between two steps of one block."""
        start, end = (next(at for at, other in enumerate(self.steps) if other is step) for step in (first, last))
        between = self.steps[start:end]
        return end < self.ends[start] and not any(
            item.index == register.index for step in between for item in written_registers(step)
        )

    @cached_property
    def kept(self) -> set[int]:
        """The places of the steps that ptxas does not leave out."""
        return kept_steps(self.steps, self.leaders, self.ends)

    # --- blocks

    def _run_block(self, block: int) -> bool:
        """Go through a block; whether a block behind it starts with other values than were known."""
        state = dict(self.starts[block])
        end = self.ends[block]
        for at in range(block, end):
            step = self.steps[at]
            if at in self.wanted:
                self.operand_values[at] = tuple(self._value(source, kind, state) for source, kind in self.sources[at])
            self._transfer(at, step, state)
        changed = [self._join(after, state) for after in successors(self.steps[end - 1], end)]
        return any(changed)

    def _join(self, block: int, state: dict[int, Value]) -> bool:
        start, changed = self.starts[block], False
        for index, value in state.items():
            old = start.get(index)
            if old is None or (old != value and not isinstance(old, Joined)):
                start[index] = value if old is None else Joined(block, index)
                changed = True
            elif old != value and old != Joined(block, index):
                start[index], changed = Joined(block, index), True
        return changed

    def _transfer(self, at: int, step: DecodedInstruction, state: dict[int, Value]) -> None:
        """The registers that a step writes get their values."""
        results = self.written[at]
        values = self._results(at, step, len(results), state)
        for register, value in zip(results, values, strict=True):
            known = state if register.index in self.several else self.single
            is_either = step.guard is not None and known.get(register.index, value) != value
            known[register.index] = Result(at, -1 - register.index) if is_either else value

    def _results(self, at: int, step: DecodedInstruction, count: int, state: dict[int, Value]) -> list[Value]:
        own: list[Value] = [Result(at, position) for position in range(count)]
        action = step.action
        if isinstance(action, Move):
            return self._moved(step, action, own, state) if own else own
        if not isinstance(action, LaneOp) or count != 1 + step.attributes.carry_out or not step.sources:
            return own
        values = [self._value(source, kind, state) for source, kind in self.sources[at]]
        absorbing = _absorbing(step)
        if absorbing is not None and Constant(absorbing) in values:
            return [Constant(absorbing)]
        equal = values[0] if len(values) > 1 and values[0] == values[1] else None
        if equal is not None and (step.attributes.opcode in {"selp", "slct"} or _is_extremum(step)):
            return [equal]
        selected = _selected(step, action, values)
        if isinstance(selected, Constant):
            return [selected]
        if None in action.sources or not all(isinstance(value, Constant) for value in values):
            return own
        codes = [value.code for value in values if isinstance(value, Constant)]
        folded = self.fold(step, action, tuple(codes))
        return own if folded is None else [Constant(folded), *own[1:]]

    def _moved(self, step: DecodedInstruction, action: Move, own: list[Value], state: dict[int, Value]) -> list[Value]:
        target, source = step.results[0], step.sources[0]
        bits = action.type.bits
        if isinstance(source, VectorOperand):
            part = bits // len(source.items)
            values = [self._value(item, TYPES.get(f"b{part}"), state) for item in source.items]
            if isinstance(target, VectorOperand) or not all(isinstance(value, Constant) for value in values):
                return own
            codes = [value.code for value in values if isinstance(value, Constant)]
            return [Constant(sum(code << part * index for index, code in enumerate(codes)))]
        value = self._value(source, action.type, state)
        if not isinstance(target, VectorOperand):
            return own if value is None else [value]
        if not isinstance(value, Constant):
            return self._unpacked(value, target, own, state)
        part = bits // len(target.items)
        parts = [Constant(value.code >> part * index & ((1 << part) - 1)) for index in range(len(target.items))]
        return [item for item, kept in zip(parts, target.items, strict=True) if isinstance(kept, Register)]

    def _unpacked(
        self, value: Value | None, target: VectorOperand, own: list[Value], state: dict[int, Value]
    ) -> list[Value]:
        """The parts of a value that was packed of as many registers: those, where they still hold the same."""
        packed = self.definition(value)
        if packed is None or not isinstance(packed[0].action, Move) or packed[0].guard is not None:
            return own
        source = packed[0].sources[0]
        if not isinstance(source, VectorOperand) or len(source.items) != len(target.items):
            return own
        kept = [item for item, to in zip(source.items, target.items, strict=True) if isinstance(to, Register)]
        single = [self.single.get(item.index) if isinstance(item, Register) else None for item in kept]
        del state
        return [mine if other is None else other for mine, other in zip(own, single, strict=True)]

    def _value(self, operand: PtxOperand, kind: Type | None, state: dict[int, Value]) -> Value | None:
        """What an operand holds: a constant has the code of the type that it is read as."""
        if isinstance(operand, VectorOperand) and len(operand.items) == 1:
            return self._value(operand.items[0], kind, state)
        if isinstance(operand, Immediate):
            return Constant(int(operand.code(kind)))
        if not isinstance(operand, Register) or operand.bits == 1:
            return None
        known = state if operand.index in self.several else self.single
        value = known.get(operand.index, Joined(-1, operand.index))
        if isinstance(value, Constant) and kind is not None:
            return Constant(value.code & ((1 << kind.bits) - 1))
        return value


def _is_extremum(step: DecodedInstruction) -> bool:
    """Whether a step is a min or max of which equal operands are the result."""
    attributes = step.attributes
    is_changed = attributes.ftz or attributes.nan or attributes.xorsign or attributes.relu
    return attributes.opcode in {"min", "max"} and not is_changed


def _absorbing(step: DecodedInstruction) -> int | None:
    """The constant that an operation leaves whatever its other operand is."""
    attributes = step.attributes
    bits = attributes.types[0].bits if attributes.types else 1
    is_unsigned = bits > 1 and attributes.types[0].kind == "u"
    if bits > 1 and (attributes.opcode == "or" or (attributes.opcode == "max" and is_unsigned)):
        return (1 << bits) - 1
    return 0 if bits > 1 and (attributes.opcode == "and" or (attributes.opcode == "min" and is_unsigned)) else None


def _selected(step: DecodedInstruction, action: LaneOp, values: list[Value | None]) -> Value | None:
    """What slct takes by a constant; that of s32 by s32 is read in another manner."""
    selector = values[-1]
    if step.attributes.opcode != "slct" or not isinstance(selector, Constant):
        return None
    if {kind.name for kind in step.attributes.types} == {"s32"}:
        return None
    return values[0] if evaluate(action, (1, 0, selector.code)) else values[1]


def typed_sources(step: DecodedInstruction) -> Iterator[tuple[PtxOperand, Type | None]]:
    """The sources of a step with the types they are read as, where it says them."""
    kinds = step.action.sources if isinstance(step.action, LaneOp) else ()
    for index, source in enumerate(step.sources):
        yield source, kinds[index] if index < len(kinds) else None


def _reads(step: DecodedInstruction, register: Register) -> bool:
    operands = (*step.sources, *step.memory_results)
    return any(item.index == register.index for operand in operands for item in registers_of(operand))


def evaluate(action: LaneOp, codes: tuple[int, ...]) -> int:
    """What a lane computes of some codes."""
    arrays = [np.full((1, 1), code, kind.dtype) for code, kind in zip(codes, action.sources, strict=True) if kind]
    values = action.function(*arrays)
    result = values[0] if isinstance(values, tuple) else values
    if action.nan_choice is not None:
        result, _ = floats.choose_nan(result, arrays, action.nan_choice.order)
    return int(np.asarray(result).reshape(-1)[0])
