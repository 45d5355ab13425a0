"""Contraction: a product and a sum that say nothing about rounding become one fma, as ptxas does it.

The assembler may fuse an unqualified mul with the unqualified add or sub that uses it. Which it fuses was read from
the code it makes (ptxas 13.0 for sm_90): both in one block, the same .ftz, and every use of the product such a sum; of
a sum of two products the first that can be fused is. A product with a constant or a parameter is fused in other blocks
too, also in loops. A sum may move past a block, and be fused with a product that has other uses (`_doubt_sunk`, read
from the code of 23 small kernels). The last multiplication of div.full, div.approx and rcp.approx counts as a product;
the reciprocal of a constant is computed by the compiler, and so are products of f32 and f64 of which all factors are
constants: they are not fused. Guarded accesses and barriers, fences, and divisions and roots with a slow path end a
block; a barrier without a guard and a jump to the next step do not. (78 small kernels on an H200, and 190 public ones.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from warpfrag.ptx.lowering.liveness import kept_steps, successors
from warpfrag.ptx.lowering.replaced_steps import goes_back
from warpfrag.ptx.opcodes.floating import NAN_CHOICES
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    Alternative,
    Barrier,
    FusedProduct,
    LaneOp,
    MatrixOp,
    MemoryLoad,
    MemoryStore,
    Move,
    NoOp,
)
from warpfrag.ptx.program.program import DecodedInstruction, Immediate, MemoryOperand, Register, registers_of
from warpfrag.ptx.program.types import F32, F64
from warpfrag.ptx.semantics import approximate_functions, floats, folded_functions, special_functions
from warpfrag.ptx.semantics.floats import FloatModifiers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from warpfrag.ptx.program.program import PtxOperand
    from warpfrag.ptx.program.types import Codes, Type
    from warpfrag.ptx.semantics.approximate_functions import FunctionUnit

OVERWRITTEN = "an assembler may fuse a product with this sum although its factors have been overwritten since"
LIVE = "an assembler may fuse a product with this sum although another block reads the product"
EXPANDED = {"s4", "u4", "b1"}
CARRIERS = {"neg", "abs", "selp"}  # which an assembler may make part of an operand, or leave out
OF_A_THREAD = {"local", "param"}  # state spaces whose values an assembler may keep in registers


def contract(instructions: Sequence[DecodedInstruction], ends: Sequence[int]) -> list[DecodedInstruction]:
    """The steps as an assembler contracts them, where blocks end at `ends`; a product that is fused does nothing."""
    steps = list(instructions)
    written, read = _accesses(steps, ends)
    _doubt_live(steps, read, ends)
    ends = _split_ends(steps, ends)
    folded = {at: _folded_factors(steps, at, written, ends) for at, step in enumerate(steps) if is_product(step)}
    candidates: dict[int, Register] = {}  # products that could be fused on their own
    uses_of: dict[int, list[int]] = {}
    for at, step in enumerate(steps):
        result = step.results[0] if at in folded and not _is_folded(step, folded[at]) else None
        if not isinstance(result, Register):
            continue
        uses = uses_of[at] = _uses(steps, at, written[result.index], read[result.index], ends[at])
        inputs = {register.index for operand in step.sources for register in registers_of(operand)}
        last = max((_end_of_loops(steps, at, use) for use in uses), default=at)
        unchanged = all(not any(at < place < last for place in written[index]) for index in inputs)
        is_near = all(at < use < ends[at] for use in uses)
        fits = all(takes_product(steps[use], step, result, set()) for use in uses)
        if not (uses and fits and (is_near or _has_constant(steps, at, written))):
            continue
        if unchanged:
            candidates[at] = result
        else:
            for use in uses:
                steps[use] = replace(steps[use], doubt=OVERWRITTEN)
    products = {result.index for result in candidates.values()}
    done: set[int] = set()
    for at, result in candidates.items():
        step, uses = steps[at], uses_of[at]
        if all(use not in done and takes_product(steps[use], step, result, products) for use in uses):
            done.update(uses)
            for use in uses:
                steps[use] = fused(steps[use], step, result, has_constant_divisor=folded[at][-1])
            steps[at] = replace(step, action=NoOp(), results=(), sources=())
        elif len(uses) > 1:
            _doubt_sunk(steps, at, uses, written, read, ends)
    for at in uses_of.keys() - candidates.keys():
        if len(uses_of[at]) > 1:
            _doubt_sunk(steps, at, uses_of[at], written, read, ends)
    return steps


def _accesses(
    steps: Sequence[DecodedInstruction], ends: Sequence[int]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """By register: the places of the steps that write it, and of those that read it and that an assembler keeps."""
    written: dict[int, list[int]] = defaultdict(list)
    read: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        for register in (item for operand in step.results for item in registers_of(operand)):
            written[register.index].append(at)
        used = [item for operand in (*step.sources, *step.memory_results) for item in registers_of(operand)]
        for index in {register.index for register in used} | ({step.guard.index} if step.guard else set()):
            read[index].append(at)
    kept = kept_steps(steps, set(ends), ends) if any(map(is_product, steps)) else set()
    for index, places in read.items():
        read[index] = [place for place in places if place in kept] or places
    return written, read


def _doubt_live(steps: list[DecodedInstruction], read: dict[int, list[int]], ends: Sequence[int]) -> None:
    """Doubt sums of a product that is read behind its block, where ptxas makes many blocks, or moves steps of loops."""
    is_expanded = any(isinstance(step.action, MatrixOp) and step.action.form.a in EXPANDED for step in steps)
    has_division = any(
        step.attributes.opcode == "rem" and any(kind.bits == 16 for kind in step.attributes.types[:1]) for step in steps
    )
    if not is_expanded and not (has_division and any(goes_back(at, step) for at, step in enumerate(steps))):
        return
    for at, step in enumerate(steps):
        result = step.results[0] if is_product(step) else None
        if not isinstance(result, Register) or all(use < ends[at] for use in read[result.index]):
            continue
        for use in (place for place in read[result.index] if at < place < ends[at]):
            if takes_product(steps[use], step, result, set()):
                steps[use] = replace(steps[use], doubt=LIVE)


def _doubt_sunk(
    steps: list[DecodedInstruction],
    at: int,
    uses: list[int],
    written: dict[int, list[int]],
    read: dict[int, list[int]],
    ends: Sequence[int],
) -> None:
    """Doubt sums of a product that has other uses, where ptxas moves the sum down to what reads it.

    It does so past a block that lies between the two on every path, if all operands are in use there. Where the product
    is not, it is computed again, which makes it one that is used once.
    """
    product = steps[at].results[0]
    for use in uses:
        step = steps[use]
        target = step.results[0] if step.results else None
        if not isinstance(product, Register) or not isinstance(target, Register) or step.guard is not None:
            continue
        if not takes_product(step, steps[at], product, set()):
            continue
        behind = _readers(steps, use, target.index, written, read)
        if not behind or any(ends[place] == ends[use] for place in behind):
            continue
        first = min(behind)
        operands = (*steps[at].sources, *step.sources)
        others = {item.index for item in operands if isinstance(item, Register)} - {product.index}
        start = min(place for place, end in enumerate(ends) if end == ends[first])
        is_kept = target.index not in others and not any(at < place <= use for i in others for place in written[i])
        if is_kept and all(place <= first for place in uses) and product not in steps[at].sources:
            behind_each = [_readers(steps, use, index, written, read) for index in others]
            if all(max(places, default=-1) >= start for places in behind_each) and _lies_between(
                steps, use, first, ends
            ):
                _doubt_fused(steps, use, at, product)


def _readers(
    steps: Sequence[DecodedInstruction],
    at: int,
    register: int,
    written: dict[int, list[int]],
    read: dict[int, list[int]],
) -> set[int]:
    """The steps behind a step that read what a register holds there."""
    if len(written[register]) == 1:
        return {place for place in read[register] if place > at}
    return _reached(steps, at, set(read[register]), set(written[register]))


def _doubt_fused(steps: list[DecodedInstruction], use: int, at: int, product: Register) -> None:
    """Let a sum have the other result that it has with a product in it; which of f64 is not computed."""
    step, other = steps[use], fused(steps[use], steps[at], product)
    action, alternative = step.action, other.action
    if not isinstance(action, LaneOp) or not isinstance(alternative, LaneOp) or action.nan_choice is not None:
        steps[use] = replace(step, doubt=LIVE)
        return
    function, fuse, count = action.function, alternative.function, len(step.sources)

    def run(*codes: Codes) -> Codes | tuple[Codes, ...]:
        return function(*codes[:count])

    def run_fused(*codes: Codes) -> Codes | tuple[Codes, ...]:
        return fuse(*codes[count:])

    steps[use] = replace(
        step,
        sources=(*step.sources, *other.sources),
        action=replace(
            action,
            sources=(*action.sources, *alternative.sources),
            function=run,
            alternative=Alternative(run_fused, LIVE),
        ),
    )


def _lies_between(steps: Sequence[DecodedInstruction], at: int, last: int, ends: Sequence[int]) -> bool:
    """Whether every path from a step to another goes through a third block, which no loop begins with a test for."""
    starts: dict[int, int] = {}
    for place, end in enumerate(ends):
        starts.setdefault(end, place)
    after = {
        start: [item for item in successors(steps[end - 1], end) if item < len(steps)] for end, start in starts.items()
    }
    own, target = starts[ends[at]], starts[ends[last]]
    before: dict[int, list[int]] = defaultdict(list)
    for start, targets in after.items():
        for item in targets:
            before[item].append(start)
    pending, region = [own], set[int]()
    while pending:
        start = pending.pop()
        if start not in region:
            region.add(start)
            pending += after[start]
    for middle in region - {own, target}:
        is_joined = len(before[middle]) == 1 and len(after[before[middle][0]]) == 1
        is_test = (
            any(item >= middle for item in before[middle]) and len(after[middle]) > 1 and middle not in after[middle]
        )
        if is_joined or is_test:
            continue
        seen, pending = {middle}, [own]
        while pending:
            start = pending.pop()
            if start not in seen:
                seen.add(start)
                pending += after[start]
        if target not in seen:
            return True
    return False


def _uses(steps: Sequence[DecodedInstruction], at: int, written: list[int], read: list[int], end: int) -> list[int]:
    """The steps that read what a step wrote, in every block; none where another may have written it too."""
    if len(written) == 1:
        return read
    after = next((place for place in written if place > at), end)
    if after < end and steps[after].guard is None:
        return [place for place in read if at < place <= after]
    uses = _reached(steps, at, set(read), set(written))
    is_other = any(_reached(steps, place, uses, set(written)) for place in written if place != at and uses)
    return [] if is_other else sorted(uses)


def _reached(steps: Sequence[DecodedInstruction], at: int, readers: set[int], writers: set[int]) -> set[int]:
    """The readers of a register that a step's result gets to."""
    reached, seen, pending = set[int](), set[int](), [at + 1]
    while pending:
        place = pending.pop()
        if place in seen or place >= len(steps):
            continue
        seen.add(place)
        if place in readers:
            reached.add(place)
        if place not in writers or steps[place].guard is not None:
            pending += successors(steps[place], place + 1)
    return reached


def _end_of_loops(steps: Sequence[DecodedInstruction], at: int, use: int) -> int:
    """The last step that may run between a product and a use of it: the loops around the use run on."""
    ends = [end for end, step in enumerate(steps[use:], use) if any(at < target <= use for target in step.targets)]
    return max(ends, default=use)


def _has_constant(steps: Sequence[DecodedInstruction], at: int, written: dict[int, list[int]]) -> bool:
    """Whether a factor is a constant or a parameter: such a product ptxas also fuses into sums of other blocks."""
    if steps[at].attributes.opcode != "mul":
        return False
    for factor in steps[at].sources:
        if isinstance(factor, Immediate):
            return True
        writers = written[factor.index] if isinstance(factor, Register) else []
        if len(writers) == 1 and _is_constant(steps[writers[0]]):
            return True
    return False


def _folded_factors(
    steps: Sequence[DecodedInstruction], at: int, written: dict[int, list[int]], ends: Sequence[int]
) -> list[bool]:
    """Which factors of a product are constants: numbers, or registers that mov gave one in the same block."""
    folded = []
    for factor in steps[at].sources:
        writers = written[factor.index] if isinstance(factor, Register) else []
        before = [place for place in writers if place < at]
        is_near = bool(before) and (at < ends[before[-1]] or len(writers) == 1)
        writer = steps[before[-1]] if is_near else None
        is_moved = writer is not None and isinstance(writer.action, Move) and _is_constant(writer)
        folded.append(isinstance(factor, Immediate) or is_moved)
    return folded


def _is_folded(product: DecodedInstruction, folded: list[bool]) -> bool:
    """Whether ptxas computes a product: of halves it computes none."""
    return all(folded) and product.attributes.types[-1] in {F32, F64}


def _is_constant(step: DecodedInstruction) -> bool:
    source = step.sources[0] if step.sources else None
    if step.guard is not None or len(step.results) != 1 or not isinstance(step.results[0], Register):
        return False
    if isinstance(step.action, MemoryLoad):
        return step.action.space == "param" and isinstance(source, MemoryOperand) and source.base is None
    return isinstance(step.action, Move) and isinstance(source, Immediate)


def contraction_ends(steps: Sequence[DecodedInstruction], leaders: set[int]) -> list[int]:
    """For every step the end of its block as contraction sees it: a barrier or a jump to the next step ends none."""
    jumps = {at for at, step in enumerate(steps) if step.guard is None and step.targets == (at + 1,)}
    targets = {target for at, step in enumerate(steps) if at not in jumps for target in step.targets}
    waits = jumps | {at for at, step in enumerate(steps) if isinstance(step.action, Barrier) and step.guard is None}
    kept = {at for at in leaders if at - 1 not in waits or at in targets}
    ends, end = [0] * len(steps), len(steps)
    for at in range(len(steps) - 1, -1, -1):
        if at + 1 in kept or (steps[at].action.ends_block and at not in waits):
            end = at + 1
        ends[at] = end
    return ends


def _split_ends(steps: Sequence[DecodedInstruction], ends: Sequence[int]) -> list[int]:
    """The ends of blocks where those that ptxas makes of a step are counted too."""
    split, end = list(ends), len(steps)
    for at in range(len(steps) - 1, -1, -1):
        split[at] = min(ends[at], end)
        if _makes_branches(steps[at]):
            end = at
    return split


def _makes_branches(step: DecodedInstruction) -> bool:
    """Whether ptxas begins a block at a step: guarded accesses and barriers, fences, quotients with a slow path."""
    if step.row is None:
        return False
    opcode, attributes = step.row.opcode, step.attributes
    if step.guard is not None and not isinstance(step.action, LaneOp | Move | NoOp):
        return True
    if opcode in {"membar", "fence"}:
        return True
    if opcode in {"div", "rem"} and not attributes.types[-1].is_float:
        return isinstance(step.sources[-1], Register)
    return opcode in {"div", "rcp", "sqrt"} and attributes.accuracy is None


def is_product(step: DecodedInstruction) -> bool:
    """Whether a step is a multiplication that ptxas may fuse: a guarded one stays."""
    return step.guard is None and multiplies(step)


def multiplies(step: DecodedInstruction) -> bool:
    """Whether a step is a multiplication, or ends with one: the approximate quotients of f32 do."""
    row, attributes = step.row, step.attributes
    if row is None:
        return False
    if attributes.accuracy is not None and attributes.types == (F32,):
        return row.opcode == "div" or (row.opcode == "rcp" and not attributes.ftz)
    return row.opcode == "mul" and row.may_contract and not attributes.sat


def sums_of_products(steps: Sequence[DecodedInstruction]) -> list[int]:
    """The sums that say nothing about rounding and that such a product may reach, whatever an assembler fuses.

    A product reaches what reads its register, also by way of moves, signs, selections, and the memory of a thread in
    which the arguments of calls lie; which path is taken is not looked at. Sums that are fused are among them.
    """
    reached = {register.index for step in steps if multiplies(step) for register in _registers(step.results)}
    stored, before = False, (-1, False)
    while before != (len(reached), stored):
        before = len(reached), stored
        for step in steps:
            action = step.action
            sources = {register.index for register in _registers((*step.sources, *step.memory_results))}
            if isinstance(action, MemoryStore):
                stored = stored or (action.space in OF_A_THREAD and not reached.isdisjoint(sources))
            elif isinstance(action, MemoryLoad):
                if stored and action.space in OF_A_THREAD:
                    reached |= {register.index for register in _registers(step.results)}
            elif (isinstance(action, Move) or step.attributes.opcode in CARRIERS) and not reached.isdisjoint(sources):
                reached |= {register.index for register in _registers(step.results)}
            elif step.copies or step.returns:
                for copy in (*step.copies, *step.returns):
                    if not reached.isdisjoint(register.index for register in registers_of(copy.source)):
                        reached |= {register.index for register in registers_of(copy.target)}
    return [at for at, step in enumerate(steps) if _is_fused(step) or (_may_fuse(step) and _reads(step, reached))]


def _is_fused(step: DecodedInstruction) -> bool:
    return isinstance(step.action, LaneOp) and step.action.fused is not None


def _may_fuse(step: DecodedInstruction) -> bool:
    return step.row is not None and step.row.opcode in {"add", "sub"} and step.row.may_contract


def _reads(step: DecodedInstruction, registers: set[int]) -> bool:
    return any(register.index in registers for register in _registers(step.sources))


def _registers(operands: Iterable[PtxOperand]) -> Iterator[Register]:
    return (register for operand in operands for register in registers_of(operand))


def takes_product(step: DecodedInstruction, product: DecodedInstruction, result: Register, products: set[int]) -> bool:
    """Whether a step is a sum that this product may be fused into; the first of two products comes first."""
    if not _may_fuse(step):
        return False
    mine, other = step.attributes, product.attributes
    same = mine.types[-1] == other.types[-1] and mine.ftz == other.ftz
    used = [operand for operand in step.sources if isinstance(operand, Register) and operand.index == result.index]
    first = step.sources[0]
    is_second = isinstance(first, Register) and first.index != result.index and first.index in products
    return same and len(used) == 1 and not is_second


def fused(
    step: DecodedInstruction, product: DecodedInstruction, result: Register, *, has_constant_divisor: bool = False
) -> DecodedInstruction:
    """A sum with the product in it."""
    action = step.action
    if not isinstance(action, LaneOp):
        return step
    attributes = step.attributes
    first = isinstance(step.sources[0], Register) and step.sources[0].index == result.index
    addend = step.sources[1] if first else step.sources[0]
    kind = action.results[0]
    is_difference = attributes.opcode == "sub"
    parts = FusedProduct(product.attributes.opcode, is_difference and not first, is_difference and first)
    add_up = partial(_add_up, kind, FloatModifiers(ftz=attributes.ftz, sat=attributes.sat), parts)
    factors = _factors(product, folded_functions if has_constant_divisor else special_functions)

    def run(*codes: Codes) -> Codes:
        return add_up(*factors(*codes[:-1]), codes[-1])

    sources = product.action.sources if isinstance(product.action, LaneOp) else ()
    return replace(
        step,
        action=replace(
            action,
            sources=(*sources, kind),
            function=run,
            fused=parts,
            nan_choice=NAN_CHOICES["fma"] if action.nan_choice else None,
        ),
        sources=(*product.sources, addend),
    )


def _factors(product: DecodedInstruction, unit: FunctionUnit) -> Callable[..., tuple[Codes, Codes]]:
    """The two factors of a product, of which a unit computes the reciprocal."""
    attributes = product.attributes
    if attributes.opcode == "div":
        full = attributes.accuracy == "full"
        return partial(approximate_functions.quotient_factors, full=full, ftz=attributes.ftz, unit=unit)
    if attributes.opcode == "rcp":
        return approximate_functions.reciprocal_factors
    return lambda a, b: (a, b)


def _add_up(kind: Type, style: FloatModifiers, signs: FusedProduct, a: Codes, b: Codes, c: Codes) -> Codes:
    """a * b + c with the signs that a subtraction gives them."""

    def multiply_add(x: Codes, y: Codes, z: Codes) -> Codes:
        return floats.fma(
            kind.element,
            style,
            floats.negate(x) if signs.negates_product else x,
            y,
            floats.negate(z) if signs.negates_addend else z,
        )

    return by_parts(kind, multiply_add)(a, b, c)
