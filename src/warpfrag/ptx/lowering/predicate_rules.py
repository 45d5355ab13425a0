"""What ptxas makes of predicates: comparisons that become part of a branch, votes before a loop, guards that change.

Every rule goes through the steps in the order of their text and doubts what the code around may have changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.ptx.lowering.liveness import readers_behind, written_registers
from warpfrag.ptx.lowering.replaced_steps import doubt, goes_back, note
from warpfrag.ptx.lowering.uncertain_pairs import has_empty_word, is_banked
from warpfrag.ptx.program.actions import Branch, DirectCall, LaneOp, Move, Return
from warpfrag.ptx.program.program import Immediate, Register, block_ends
from warpfrag.ptx.program.types import BF16, F16, F32, F64, PRED, TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand

LOGICAL = {"and", "or", "xor", "not", "mov"}
VOTED_AGAIN = "a vote or election before a loop may be held again in it, among the threads that are there"
VOTED_LATER = (
    "a vote or election that only steps behind a branch look at may be held there, among the threads that come"
)
MATCHED = "behind a loop, a step may run although its guard says that match.all matched what is always the same"
READ_AS_WRITTEN = "of constants that are compared, a predicate that is read and written may be read as it is then"
NOT_ELECTED = "that no thread of a warp is the elected one may be taken as true"
GUARD_CHANGED = "of a guarded step before a branch on its guard, the guard may be taken as that branch leaves it"

GUARD_CHANGED_LATER = "of a guarded step behind a loop, the guard may be taken as a block behind the step leaves it"
GUARDS = {GUARD_CHANGED, GUARD_CHANGED_LATER}
"""Doubts about which threads run a step: those that do not may have another result too."""


def doubt_predicates(kernel: KernelLowering) -> None:
    """Doubt steps whose predicates ptxas may compute differently."""
    steps = kernel.steps
    before: dict[int, DecodedInstruction] = {}  # what wrote a predicate last
    elected: dict[int, bool] = {}  # predicates that elect left, or copies: whether one is the negation
    for at, step in enumerate(steps):
        if step.attributes.opcode == "setp" and step.attributes.ftz and step.attributes.types == (F32,):
            _lost_flush(kernel, at, step, before)
        elif step.attributes.opcode == "set" and step.attributes.ftz:
            _lost_flush_of_set(kernel, at, step)
        elif step.attributes.opcode in {"elect", "vote"}:
            _vote_again(steps, at, step)
            _vote_later(steps, at, step)
            if ".all" in step.name and any(_is_negation(item, elected) for item in step.sources):
                step.doubt = NOT_ELECTED
        elif step.attributes.opcode == "setp" and _is_constant_pair(step):
            _read_as_written(steps, at, step)
        elif step.attributes.opcode in {"bar", "barrier"} and step.results:
            _vote_again(steps, at, step)
        elif step.attributes.opcode == "match" and ".all" in step.name:
            _matched(steps, at, step)
        copied = False if step.attributes.opcode == "elect" else _copied(step, elected)
        for register in written_registers(step):
            before[register.index] = step
            elected.pop(register.index, None)
            if copied is not None and register.bits == 1:
                elected[register.index] = copied
    _changed_guards(kernel)
    _changed_later(kernel)


def _lost_flush(
    kernel: KernelLowering, at: int, step: DecodedInstruction, before: dict[int, DecodedInstruction]
) -> None:
    """A comparison that ptxas joins with another predicate, or takes apart into two, no longer flushes."""
    result, action = step.results[0], step.action
    if step.guard is not None or not isinstance(result, Register) or not isinstance(action, LaneOp) or not step.row:
        return
    if step.attributes.combine is None:
        last = before.get(result.index)
        is_lost = last is not None and _is_constant(last)
    else:
        is_lost = step.attributes.combine == "and" and _decides_jump(kernel.steps, at, result)
    if is_lost:
        other = step.row.bind(replace(step.attributes, ftz=False))
        if isinstance(other, LaneOp):
            doubt(step, "flush of a joined comparison", other.function)
            note(kernel, step, "flush of a joined comparison")


def _is_negation(operand: PtxOperand, copies: dict[int, bool]) -> bool:
    """Whether an operand is the negation of what some predicates are copies of."""
    return isinstance(operand, Register) and operand.index in copies and copies[operand.index] != operand.negated


def _lost_flush_of_set(kernel: KernelLowering, at: int, step: DecodedInstruction) -> None:
    """The integer that set.ftz left is compared with 0 by comparing its operands again, which no longer flushes."""
    result, action, row = step.results[0], step.action, step.row
    kinds = [kind.name for kind in step.attributes.types]
    if kinds not in (["u32", "f32"], ["s32", "f32"]) or not isinstance(result, Register) or row is None:
        return
    readers = (kernel.steps[place] for place in readers_behind(kernel.steps, at, result))
    if isinstance(action, LaneOp) and any(_compares_with_0(reader, result) for reader in readers):
        other = row.bind(replace(step.attributes, ftz=False))
        if isinstance(other, LaneOp) and len(other.sources) == len(action.sources):
            doubt(step, "flush of a joined comparison", other.function)
            note(kernel, step, "flush of a joined comparison")


def _compares_with_0(step: DecodedInstruction, register: Register) -> bool:
    """Whether a step asks if an integer is 0: it is compared with a constant, or divides."""
    opcode = step.attributes.opcode
    if opcode in {"div", "rem"}:
        return isinstance(step.sources[1], Register) and step.sources[1].index == register.index
    is_comparison = opcode in {"setp", "set"} and not step.attributes.types[-1].is_float
    return opcode == "cnot" or (is_comparison and any(isinstance(source, Immediate) for source in step.sources))


def _decides_jump(steps: Sequence[DecodedInstruction], at: int, predicate: Register) -> bool:
    """Whether a branch or an exit is taken where a result holds, or a copy of it, until the text writes it again."""
    copies = {predicate.index: False}  # whether it is the negation
    for step in steps[at + 1 :]:
        guard = step.guard
        is_jump = isinstance(step.action, Branch | Return)
        if is_jump and guard is not None and copies.get(guard.index) == guard.negated:
            return True
        copied = _copied(step, copies)
        for register in written_registers(step):
            copies.pop(register.index, None)
            if copied is not None and register.bits == 1:
                copies[register.index] = copied
        if not copies:
            break
    return False


def _copied(step: DecodedInstruction, copies: dict[int, bool]) -> bool | None:
    """Whether a step copies one of some predicates, and if so, whether it is negated then."""
    if step.attributes.opcode not in LOGICAL - {"xor"} or step.attributes.types != (PRED,):
        return None
    sources = {source for source in step.sources if isinstance(source, Register)}
    if len(sources) != 1 or not all(isinstance(source, Register) for source in step.sources):
        return None
    source = sources.pop()
    if source.index not in copies:
        return None
    return copies[source.index] ^ source.negated ^ (step.attributes.opcode == "not")


def _is_constant(step: DecodedInstruction) -> bool:
    return bool(step.sources) and all(isinstance(source, Immediate) for source in step.sources)


def _is_constant_pair(step: DecodedInstruction) -> bool:
    """Whether a step compares constants, and reads a predicate that it writes."""
    written = _written(step)
    is_read = any(isinstance(item, Register) and item.index in written for item in step.sources[2:])
    return is_read and all(isinstance(item, Immediate) for item in step.sources[:2])


def _read_as_written(steps: Sequence[DecodedInstruction], at: int, step: DecodedInstruction) -> None:
    """Doubt a comparison of constants whose result decides on a call."""
    for place, other in enumerate(steps[at + 1 :], at + 1):
        if isinstance(other.action, Branch) and other.guard is not None and other.guard.index in _written(step):
            if any(isinstance(inner.action, DirectCall) for inner in steps[place : max(other.targets)]):
                step.doubt = READ_AS_WRITTEN
            break


def _vote_again(steps: Sequence[DecodedInstruction], at: int, step: DecodedInstruction) -> None:
    """Doubt the branch of a loop that alone looks at a vote before it."""
    ends = [end for end, other in enumerate(steps) if goes_back(end, other) and min(other.targets) > at]
    inside = {place for end in ends for place in range(min(steps[end].targets), end + 1)}
    for predicate in (item for item in written_registers(step) if item.bits == 1):
        uses = list(readers_behind(steps, at, predicate)) if inside else []
        if len(uses) == 1 and isinstance(steps[uses[0]].action, Branch) and uses[0] in inside:
            steps[uses[0]].doubt = VOTED_AGAIN


def _vote_later(steps: Sequence[DecodedInstruction], at: int, step: DecodedInstruction) -> None:
    """Doubt a vote whose result a single step looks at, which the next branch may skip."""
    place = next((place for place in range(at, len(steps)) if isinstance(steps[place].action, Branch)), at)
    branch = steps[place]
    if branch.guard is None or not branch.targets:
        return
    for predicate in (item for item in written_registers(step) if item.bits == 1):
        uses = list(readers_behind(steps, at, predicate))
        if len(uses) == 1 and place < uses[0] < min(branch.targets):
            step.doubt = VOTED_LATER


def _matched(steps: Sequence[DecodedInstruction], at: int, step: DecodedInstruction) -> None:
    """Doubt match.all behind a loop whose predicate keeps a step from running, and is an operand too."""
    is_behind = any(goes_back(place, other) for place, other in enumerate(steps[:at]))
    if not is_behind or not _is_same_in_warp(steps, at, step.sources[0]):
        return
    for predicate in (item for item in written_registers(step) if item.bits == 1):
        readers = [steps[place] for place in readers_behind(steps, at, predicate)]
        guards = [reader.guard for reader in readers if reader.guard and reader.guard.index == predicate.index]
        is_operand = any(
            isinstance(item, Register) and item.index == predicate.index
            for reader in readers
            for item in reader.sources
        )
        if is_operand and any(guard.negated for guard in guards):
            step.doubt = MATCHED


def _is_same_in_warp(steps: Sequence[DecodedInstruction], at: int, operand: PtxOperand) -> bool:
    """Whether ptxas may know an operand as the same in all threads: of constants, banks, or an empty lower word."""
    if not isinstance(operand, Register):
        return isinstance(operand, Immediate)
    place = next((place for place in range(at - 1, -1, -1) if operand.index in _written(steps[place])), None)
    if place is None or steps[place].guard is not None:
        return False
    step = steps[place]
    is_0 = step.attributes.opcode == "and" and any(
        isinstance(item, Immediate) and item.code(TYPES["u32"]) == 0 for item in step.sources
    )
    if is_0 or is_banked(step) or has_empty_word(step):
        return True
    is_computed = isinstance(step.action, LaneOp | Move) and bool(step.sources)
    return is_computed and all(_is_same_in_warp(steps, place, item) for item in step.sources)


def _changed_guards(kernel: KernelLowering) -> None:
    """Doubt steps on halves under a guard that a branch looks at, and that one of its sides makes a constant."""
    steps, ends = kernel.steps, block_ends(kernel.steps, kernel.leaders)
    for at, step in enumerate(steps[:-1]):
        if not isinstance(step.action, Branch) or step.guard is None:
            continue
        predicate = step.guard.index
        side = steps[at + 1 : ends[at + 1]]
        if not any(_is_constant(other) and predicate in _written(other) for other in side):
            continue
        for place in range(at - 1, -1, -1):
            other = steps[place]
            if predicate in _written(other):
                break
            if other.guard is not None and other.guard.index == predicate and _leaves_half(other):
                other.doubt = GUARD_CHANGED


def _changed_later(kernel: KernelLowering) -> None:
    """Doubt steps whose guard a loop before them joins with others, and a block behind them changes.

    ptxas moves the selection behind that block where the code has quotients or roots with a slow path.
    """
    steps = kernel.steps
    if not any(map(_has_slow_path, steps)):
        return
    loops = [(min(step.targets), at) for at, step in enumerate(steps) if goes_back(at, step)]
    joined = {  # predicates, and where the loop that joins them ends
        source.index: end
        for start, end in reversed(loops)
        for at, step in enumerate(steps[start:end], start)
        if _joins_predicates(step) and _decides_branch(steps[at:end], step)
        for source in step.sources
        if isinstance(source, Register)
    }
    ends = block_ends(steps, kernel.leaders) if joined else []
    for at, step in enumerate(steps):
        guard = step.guard
        if guard is None or joined.get(guard.index, at) >= at or not isinstance(step.action, LaneOp | Move):
            continue
        after = next((place for place in range(at + 1, len(steps)) if guard.index in _written(steps[place])), at)
        if after >= ends[at] and steps[after].guard is None and list(readers_behind(steps, after, guard)):
            step.doubt = GUARD_CHANGED_LATER


def _has_slow_path(step: DecodedInstruction) -> bool:
    attributes = step.attributes
    is_slow = attributes.opcode in {"div", "rcp", "sqrt"} and attributes.accuracy is None
    return is_slow and attributes.types in {(F32,), (F64,)}


def _joins_predicates(step: DecodedInstruction) -> bool:
    is_logical = step.attributes.opcode in {"and", "or", "xor"} and step.attributes.types == (PRED,)
    return is_logical and step.guard is None and len(set(step.sources)) > 1


def _decides_branch(steps: Sequence[DecodedInstruction], step: DecodedInstruction) -> bool:
    """Whether a branch among some steps looks at the result of one."""
    written = _written(step)
    return any(isinstance(other.action, Branch) and other.guard and other.guard.index in written for other in steps)


def _leaves_half(step: DecodedInstruction) -> bool:
    """Whether a step leaves a float of 16 bits, which ptxas selects behind it where the step is guarded."""
    kind = step.action.results[0] if isinstance(step.action, LaneOp) else None
    return kind in {F16, BF16}


def _written(step: DecodedInstruction) -> set[int]:
    return {register.index for register in written_registers(step)}
