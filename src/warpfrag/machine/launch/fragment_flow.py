"""Flow analysis that finds kernels whose results depend on the element layout of their wmma fragments.

The ISA leaves open which lane and register holds which element of a wmma fragment. A kernel that loads fragments,
multiplies them, applies the same function to every element and stores them gives the same matrix for any layout, so it
can run with a substitute for an unknown layout (`isa.operands`). Everything else depends on the layout and is rejected:
storing a fragment register with st, shuffling it, branching on it, combining it with a value that differs between lanes
or with a different element, or computing one element differently from the others.

The analysis gives every register an abstract value (`Uniform`, `FragmentElement`, `VARYING`, `Dependent`). Values have
numbers, equal only if they are computed in the same way from equal values: the registers of a fragment must have one
number when an instruction takes them as a fragment. Where paths meet, registers get one number if their numbers are
equal on each path; this is assumed first, and revoked until nothing changes. A value written where only part of a warp
may run is not uniform; a block with a matrix instruction is run by whole warps or not at all, otherwise it is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from warpfrag.isa.operands import operands
from warpfrag.isa.qualifiers import Form
from warpfrag.machine.ir.actions import (
    Action,
    Branch,
    DirectCall,
    IndirectCall,
    LaneOp,
    MatrixOp,
    MemoryLoad,
    Move,
    NoOp,
    Return,
)
from warpfrag.machine.ir.program import (
    DecodedInstruction,
    Immediate,
    MemoryOperand,
    Program,
    PtxOperand,
    Register,
    SpecialRegister,
    VectorOperand,
)

UNIFORM_REGISTERS = {"%ctaid", "%nctaid", "%ntid", "%gridid"}  # the same in all lanes of a warp
OTHER_LANES = "it combines an element of a fragment with a value that differs between lanes"
OTHER_PLACE = "it combines elements of a fragment at different places"
OTHER_PATHS = "part of a warp may run it, and it computes an element of a fragment"
MET = "a register holds an element of a fragment or something else, as the path may be"
VISIBLE = "it shows which lane and register has which element of a fragment"


@dataclass(frozen=True)
class Uniform:
    """A value that is the same in all lanes of a warp."""

    number: int


@dataclass(frozen=True)
class FragmentElement:
    """A value that each lane computed from its element in one fragment register; `slot` is a part of the register."""

    fragment: Hashable  # fragments with one layout
    reg: int
    slot: int | None
    number: int


class Varying:
    """A value that differs between lanes and does not come from a fragment."""


@dataclass(frozen=True)
class Dependent:
    """A value that depends on the layout, with the instruction that made it so and the reason; must not be visible."""

    at: int
    why: str


VARYING = Varying()
AbstractValue: TypeAlias = "Uniform | FragmentElement | Varying | Dependent"
State: TypeAlias = "dict[int, AbstractValue]"


class LayoutUse(NamedTuple):
    """An instruction that depends on the layout of a fragment, and the reason."""

    at: int
    why: str


def layout_use(program: Program) -> LayoutUse | None:
    """Return the first instruction of a program that depends on its wmma fragment layouts; None if there is none."""
    for at, inst in enumerate(program.instructions):
        if isinstance(inst.action, DirectCall | IndirectCall):
            return LayoutUse(at, "fragments are not followed into functions")
    flow = FragmentFlow(program)
    flow.solve()
    return flow.first_use()


def fragment_of(form: Form, role: str) -> Hashable:
    """Return a key that fragments with one layout share: C and D have one, A and B one for each memory order."""
    if role in "cd":
        return "accumulator", form.shape, form.c if role == "c" else form.d
    index = 0 if form.op.startswith("wmma.load") else "ab".index(role)
    return role, form.shape, getattr(form, role), form.layouts[index]


class FragmentFlow:
    """The abstract values of all registers at the start of every block of instructions."""

    def __init__(self, program: Program) -> None:
        """Find the blocks and their successors; no values are known yet."""
        self.program, self.instructions = program, program.instructions
        self.starts = sorted({start for start in program.leaders if start < len(self.instructions)})
        self.after = {start: list(self.successors(start)) for start in self.starts}
        self.before: dict[int, list[int]] = defaultdict(list)
        for start, targets in self.after.items():
            for target in targets:
                self.before[target].append(start)
        self.numbers: dict[Hashable, int] = {}
        self.keys: list[Hashable] = []
        self.split: set[int] = set()  # blocks that a part of a warp may run
        self.entries: dict[int, State] = {}
        self.uses: list[LayoutUse] = []

    def end(self, start: int) -> int:
        """Return the last instruction of a block."""
        return self.program.ends[start] - 1

    def successors(self, start: int) -> Iterator[int]:
        """Return the blocks that may follow a block; -1 is the end of the program."""
        at = self.end(start)
        inst = self.instructions[at]
        if isinstance(inst.action, Branch):
            yield from dict.fromkeys(inst.targets)
        elif isinstance(inst.action, Return):
            yield -1
        if not isinstance(inst.action, Branch | Return) or inst.guard is not None:
            yield at + 1 if at + 1 < len(self.instructions) else -1

    def number(self, *key: Hashable) -> int:
        """Return the value number of a key; equal keys have one number."""
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
        return self.numbers[key]

    # --- the fixed point

    def solve(self) -> None:
        """Assume that all values are equal and uniform, and revoke assumptions until nothing changes."""
        while True:
            self.spread()
            split = self.find_split_blocks()
            if split <= self.split:
                return
            self.split |= split

    def spread(self) -> None:
        """Find the values at the start of every block, given the blocks that are now known to be split."""
        self.entries = {}
        self.classes: dict[tuple[int, int], int] = {}  # of registers where paths meet
        self.class_count = 0
        exits: dict[int, State] = {}
        changed = True
        while changed:
            changed = False
            for start in self.starts:
                known = [exits[other] for other in self.before[start] if other in exits]
                if not known and start:
                    continue
                entry = self.meet(start, known if start else [{}, *known])
                if entry != self.entries.get(start):
                    self.entries[start], changed = entry, True
                exits[start] = self.run_block(start, dict(entry))

    def meet(self, start: int, states: Sequence[State]) -> State:
        """Return the values at the start of a block, where paths meet."""
        entry: State = {}
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for register in {register for state in states for register in state}:
            values = [state.get(register, Uniform(self.number("undefined", register))) for state in states]
            is_class = (start, register) in self.classes
            if all(value == values[0] for value in values) and not is_class:
                entry[register] = values[0]
            elif any(isinstance(value, FragmentElement) for value in values) and self.is_same_place(values):
                entry[register] = next(value for value in values if isinstance(value, FragmentElement))
                incoming = tuple((type(value).__name__, getattr(value, "number", 0)) for value in values)
                waiting[self.classes.get((start, register)), incoming].append(register)
            else:
                entry[register] = self.met(start, register, values)
        self.refine(start, waiting)
        for registers in waiting.values():
            for register in registers:
                value = entry[register]
                if isinstance(value, FragmentElement):
                    entry[register] = replace(value, number=self.number("met", start, self.classes[start, register]))
        return entry

    def refine(self, start: int, groups: dict[Hashable, list[int]]) -> None:
        """Give registers with equal incoming numbers one class; when a class splits, one part keeps its number."""
        named: set[int] = set()
        for registers in groups.values():
            known = self.classes.get((start, registers[0]))
            if known is None or known in named:
                self.class_count += 1
                known = self.class_count
            named.add(known)
            for register in registers:
                self.classes[start, register] = known

    @staticmethod
    def is_same_place(values: Iterable[AbstractValue]) -> bool:
        """Return True if values are of one fragment element, or uniform."""
        places = {
            (value.fragment, value.reg, value.slot) if isinstance(value, FragmentElement) else type(value)
            for value in values
            if not isinstance(value, Uniform)
        }
        return len(places) == 1

    def met(self, start: int, register: int, values: Sequence[AbstractValue]) -> AbstractValue:
        """Return the value of a register that does not hold one fragment element on all paths."""
        for value in values:
            if isinstance(value, Dependent):
                return value
        if any(isinstance(value, FragmentElement) for value in values):
            return Dependent(start, MET)
        if any(value is VARYING for value in values):
            return VARYING
        return Uniform(self.number("met", start, "register", register))

    def find_split_blocks(self) -> set[int]:
        """Return the blocks that part of a warp may run: a deciding block varies between lanes, or is split itself."""
        deciders = self.control_dependences()
        whole = {start for start in self.entries if self.has_matrix(start)}
        split: set[int] = set(self.split) - whole
        before = -1
        while before != len(split):
            before = len(split)
            split |= {
                start
                for start in self.entries
                if start not in whole and any(other in split or self.is_varying(other) for other in deciders[start])
            }
        return split

    def has_matrix(self, start: int) -> bool:
        """Return True if a block has an instruction that all lanes of a warp run together."""
        return any(
            isinstance(inst.action, MatrixOp) and inst.guard is None
            for inst in self.instructions[start : self.program.ends[start]]
        )

    def is_varying(self, start: int) -> bool:
        """Return True if lanes of a warp may leave a block in different directions."""
        inst = self.instructions[self.end(start)]
        if not isinstance(inst.action, Branch | Return):
            return False
        state = self.run_block(start, dict(self.entries[start]))
        deciding = [*([inst.guard] if inst.guard is not None else []), *inst.sources]
        return any(not isinstance(self.value(state, item), Uniform) for item in deciding)

    def control_dependences(self) -> dict[int, set[int]]:
        """Return, for every block, the blocks whose end decides whether it runs."""
        everything = {*self.starts, -1}
        inevitable = dict.fromkeys(self.starts, everything) | {-1: {-1}}  # blocks that always run after it
        changed = True
        while changed:
            changed = False
            for start in reversed(self.starts):
                after = set.intersection(*(inevitable[target] for target in self.after[start])) | {start}
                if after != inevitable[start]:
                    inevitable[start], changed = after, True
        deciders: dict[int, set[int]] = defaultdict(set)
        for start in self.starts:
            for target in self.after[start]:
                for block in inevitable[target] - (inevitable[start] - {start}):
                    deciders[block].add(start)
        return deciders

    # --- instructions

    def run_block(self, start: int, state: State) -> State:
        """Return the values after a block."""
        for at in range(start, self.program.ends[start]):
            self.run_inst(at, state, is_split=start in self.split)
        return state

    def first_use(self) -> LayoutUse | None:
        """Return the first instruction that makes the layout visible."""
        self.uses = []
        for start, entry in sorted(self.entries.items()):
            self.run_block(start, dict(entry))
        return min(self.uses, default=None)

    def run_inst(self, at: int, state: State, *, is_split: bool) -> None:
        """Set the values of an instruction's results."""
        inst = self.instructions[at]
        results = list(self.results(at, inst, state))
        written = [item for operand in inst.results for item in items_of(operand)]
        for item, result in zip(written, results, strict=True):
            if not isinstance(item, Register):
                continue
            value = result
            if inst.guard is not None and not isinstance(inst.action, MatrixOp):
                old = state.get(item.index, Uniform(self.number("undefined", item.index)))
                value = self.combined(at, ("guard",), [self.value(state, inst.guard), value, old])
            if is_split:
                value = Dependent(at, OTHER_PATHS) if isinstance(value, FragmentElement) else value
                value = VARYING if isinstance(value, Uniform) else value
            state[item.index] = value

    def results(self, at: int, inst: DecodedInstruction, state: State) -> Iterable[AbstractValue]:
        """Return the values of an instruction's results; visible instructions may not read layout-dependent values."""
        action: Action = inst.action
        if isinstance(action, LaneOp):
            sources = [self.value(state, source) for source in inst.sources]
            signature = inst.name, action.fused, len(sources)
            return [self.combined(at, (*signature, index), sources) for index, _ in enumerate(inst.results)]
        if isinstance(action, Move):
            return self.moved(at, inst, state)
        if isinstance(action, MatrixOp) and action.form.is_wmma:
            return self.fragments(at, inst, action.form, state)
        if isinstance(action, NoOp):
            return ()
        seen = [self.value(state, item) for operand in inst.sources for item in items_of(operand)]
        if inst.guard is not None:
            seen.append(self.value(state, inst.guard))
        count = sum(len(items_of(operand)) for operand in inst.results)
        if isinstance(action, MemoryLoad) and action.space != "local":
            return [self.combined(at, ("load", at, index), seen) for index in range(count)]
        for value in seen:
            self.refuse_if_visible(at, value)
        return [VARYING] * count

    def refuse_if_visible(self, at: int, value: AbstractValue) -> None:
        """Record a visible value that depends on the layout."""
        if isinstance(value, Dependent):
            self.uses.append(LayoutUse(value.at, value.why))
        elif isinstance(value, FragmentElement):
            self.uses.append(LayoutUse(at, VISIBLE))

    def value(self, state: State, operand: PtxOperand) -> AbstractValue:
        """Return the value of an operand."""
        if isinstance(operand, Register):
            value = state.get(operand.index, Uniform(self.number("undefined", operand.index)))
            if operand.negated and isinstance(value, Uniform | FragmentElement):
                return replace(value, number=self.number("not", value.number))
            return value
        if isinstance(operand, MemoryOperand):
            base = self.value(state, operand.base) if operand.base is not None else Uniform(self.number("no base"))
            return self.combined(0, ("address", operand.offset, operand.space), [base])
        if isinstance(operand, SpecialRegister):
            name = operand.name.partition(".")[0]
            return Uniform(self.number(operand.name)) if name in UNIFORM_REGISTERS else VARYING
        return Uniform(self.number("constant", repr(operand)))

    def combined(self, at: int, signature: Hashable, values: Sequence[AbstractValue]) -> AbstractValue:
        """Return the value that a lane computes from others."""
        for value in values:
            if isinstance(value, Dependent):
                return value
        elements = [value for value in values if isinstance(value, FragmentElement)]
        if any(value is VARYING for value in values):
            return Dependent(at, OTHER_LANES) if elements else VARYING
        numbers = tuple((type(value).__name__, getattr(value, "number", 0)) for value in values)
        number = self.number("result", signature, numbers)
        if not elements:
            return Uniform(number)
        return replace(elements[0], number=number) if self.is_same_place(values) else Dependent(at, OTHER_PLACE)

    def moved(self, at: int, inst: DecodedInstruction, state: State) -> list[AbstractValue]:
        """mov: copy a register, join parts into one, or split it."""
        source, target = inst.sources[0], inst.results[0]
        if isinstance(source, VectorOperand):
            whole = self.joined(at, [self.value(state, item) for item in source.items])
        else:
            whole = self.value(state, source)
        return self.parts(whole, len(target.items)) if isinstance(target, VectorOperand) else [whole]

    def joined(self, at: int, parts: Sequence[AbstractValue]) -> AbstractValue:
        """Join several values in one register: the slots of a fragment register, if all are computed alike."""
        first = parts[0]
        if isinstance(first, FragmentElement) and first.slot == 0:
            if list(parts) == [replace(first, slot=slot) for slot, _ in enumerate(parts)]:
                key = self.keys[first.number]
                number = key[1] if isinstance(key, tuple) and key[0] == "slot" else self.number("joined", first.number)
                return replace(first, slot=None, number=number)
            if any(isinstance(part, FragmentElement) for part in parts[1:]):
                return Dependent(at, "it joins elements that were computed in different computations")
        return self.combined(at, ("joined",), parts)

    def parts(self, whole: AbstractValue, count: int) -> list[AbstractValue]:
        """Return the parts of a register."""
        if isinstance(whole, FragmentElement) and whole.slot is None:
            number = self.number("slot", whole.number)
            return [replace(whole, slot=slot, number=number) for slot in range(count)]
        return [self.combined(0, ("part", slot), [whole]) for slot in range(count)]

    # --- wmma

    def fragments(self, at: int, inst: DecodedInstruction, form: Form, state: State) -> list[AbstractValue]:
        """wmma: require fragments as operands, and return the result's fragment."""
        roles = {"wmma.mma": "abc", "wmma.store.d": "-d"}.get(form.op, "")
        for role, operand in zip(roles, inst.sources, strict=False):
            if role != "-":
                self.check_fragment(at, form, role, [self.value(state, item) for item in items_of(operand)])
        for operand in inst.sources:
            if not isinstance(operand, VectorOperand):
                self.refuse_if_visible(at, self.value(state, operand))
        if inst.guard is not None:
            self.refuse_if_visible(at, self.value(state, inst.guard))
        if not inst.results:
            return []
        fragment = fragment_of(form, "d" if form.op == "wmma.mma" else form.op[-1])
        number = self.number("fragment", at)
        return [FragmentElement(fragment, reg, None, number) for reg, _ in enumerate(items_of(inst.results[0]))]

    def check_fragment(self, at: int, form: Form, role: str, values: Sequence[AbstractValue]) -> None:
        """Reject registers that are not a fragment with all elements computed in the same way."""
        fragment, spec = fragment_of(form, role), operands(form, "")[role]
        computations: set[Hashable] = set()
        for reg, value in enumerate(values):
            if isinstance(value, Dependent):
                self.uses.append(LayoutUse(value.at, value.why))
                return
            if value is VARYING or (isinstance(value, FragmentElement) and (value.reg, value.slot) != (reg, None)):
                self.uses.append(LayoutUse(at, f"register {reg} of {role} is not that register of a fragment"))
                return
            if isinstance(value, FragmentElement) and value.fragment != fragment:
                self.uses.append(LayoutUse(at, f"{role} is taken from a fragment of another kind"))
                return
            if isinstance(value, Uniform) and spec.layout.slots > 1 and not self.is_even(value.number):
                self.uses.append(LayoutUse(at, f"the elements in register {reg} of {role} may differ"))
                return
            computations.add((type(value), getattr(value, "number", 0)))
        if len(computations) > 1:
            self.uses.append(LayoutUse(at, f"the elements of {role} are not all computed in one way"))

    def is_even(self, number: int) -> bool:
        """Return True if all slots of a uniform register are equal: equal parts joined, or zero."""
        key = self.keys[number]
        if not isinstance(key, tuple):
            return False
        if key[0] == "constant":
            return key[1] == repr(Immediate(0))
        return key[0] == "result" and key[1] == ("joined",) and len(set(key[2])) == 1


def items_of(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    """Return the items of a vector, or the operand alone."""
    return operand.items if isinstance(operand, VectorOperand) else (operand,)
