"""Contraction: fuse a mul and the add or sub that uses it into one fma, as ptxas does by default.

PTX allows this if neither instruction names a rounding mode. Only the simple case is handled: the product is used only
by sums in the same basic block, no factor is overwritten before these sums, and the mul has no guard. The last
multiplication of an approximate division counts as a product. ptxas also fuses across blocks, depending on the
surrounding code.
"""

import sys
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from warpfrag.machine.ir.actions import Barrier, FusedProduct, LaneOp, Move, NoOp
from warpfrag.machine.ir.program import DecodedInstruction, Register, registers_of
from warpfrag.machine.ir.scalar_types import F32, Codes
from warpfrag.machine.ops.floating import NAN_ORDERS
from warpfrag.machine.ops.integer import by_parts
from warpfrag.machine.semantics import approximate_functions, floats
from warpfrag.machine.semantics.floats import FloatModifiers


def contract(instructions: Sequence[DecodedInstruction]) -> list[DecodedInstruction]:
    """Fuse multiplies into adds as ptxas does; a mul that has been fused becomes a NoOp."""
    instructions = list(instructions)
    candidates = {at: uses for at, uses in _products(instructions) if uses}
    products = {register.index for at in candidates for register in registers_of(instructions[at].results[0])}
    fused: set[int] = set()
    for at, uses in candidates.items():
        product = instructions[at]
        result = product.results[0]
        if not isinstance(result, Register) or not fused.isdisjoint(uses):
            continue
        if any(_is_second_product(instructions[use], result, products) for use in uses):
            continue
        fused.update(uses)
        for use in uses:
            instructions[use] = _fuse(instructions[use], product, result)
        instructions[at] = replace(product, action=NoOp(), results=(), sources=())
    return instructions


def _products(instructions: Sequence[DecodedInstruction]) -> Iterator[tuple[int, list[int]]]:
    """Yield each multiply and the adds to fuse it into; the list is empty if the product has another use."""
    if not any(map(_is_product, instructions)):
        return
    ends = _block_ends(instructions)
    readers: dict[int, list[int]] = defaultdict(list)
    writers: dict[int, list[int]] = defaultdict(list)
    for at, inst in enumerate(instructions):
        for index in _registers_read(inst):
            readers[index].append(at)
        for operand in inst.results:
            for register in registers_of(operand):
                writers[register.index].append(at)
    for at, product in enumerate(instructions):
        result = product.results[0] if _is_product(product) else None
        if not isinstance(result, Register):
            continue
        read, written = readers[result.index], writers[result.index]
        last = _next(written, at)
        if last < ends[at] and instructions[last].guard is None:
            uses = read[bisect(read, at) : bisect(read, last)]
        elif len(written) == 1:
            uses = read
        else:
            continue
        is_near = bool(uses) and at < uses[0] and uses[-1] < ends[at]
        if is_near and all(_adds(instructions[use], product, result) for use in uses):
            is_kept = all(_next(writers[index], at) >= uses[-1] for index in _registers_read(product))
            yield at, uses if is_kept else []


def _next(addresses: list[int], at: int) -> int:
    """Return the first of these instruction indices after `at`, or a very large number if there is none."""
    index = bisect(addresses, at)
    return addresses[index] if index < len(addresses) else sys.maxsize


def _block_ends(instructions: Sequence[DecodedInstruction]) -> list[int]:
    """Return the end of each instruction's block; barriers and jumps to the next line do not end one, as in ptxas."""
    jumps = {at for at, inst in enumerate(instructions) if inst.guard is None and inst.targets == (at + 1,)}
    targets = {target for at, inst in enumerate(instructions) if at not in jumps for target in inst.targets}
    ends, end = [0] * len(instructions), len(instructions)
    for at in range(len(instructions) - 1, -1, -1):
        action = instructions[at].action
        passes = at in jumps or (isinstance(action, Barrier) and instructions[at].guard is None)
        if at + 1 in targets or (action.ends_block and not passes):
            end = at + 1
        ends[at] = end
        if _makes_branches(instructions[at]):
            end = at
    return ends


def _makes_branches(inst: DecodedInstruction) -> bool:
    """Return True if ptxas expands an instruction to several blocks: guarded accesses, fences, slow divisions."""
    opcode, attributes = inst.attributes.opcode, inst.attributes
    if inst.guard is not None and not isinstance(inst.action, LaneOp | Move | NoOp):
        return True
    if opcode in {"div", "rem"} and attributes.types and not attributes.types[-1].is_float:
        return isinstance(inst.sources[-1], Register)
    return opcode in {"membar", "fence"} or (opcode in {"div", "rcp", "sqrt"} and attributes.accuracy is None)


def _is_product(inst: DecodedInstruction) -> bool:
    row, attributes = inst.row, inst.attributes
    if row is None or inst.guard is not None:
        return False
    if row.opcode == "div":
        return attributes.accuracy is not None and attributes.types == (F32,)
    return row.opcode == "mul" and row.may_contract and not attributes.sat


def _registers_read(inst: DecodedInstruction) -> set[int]:
    return {register.index for operand in inst.operands_read for register in registers_of(operand)}


def _adds(inst: DecodedInstruction, product: DecodedInstruction, result: Register) -> bool:
    """Return True for an add or sub that reads the product exactly once, with the same type and .ftz."""
    if inst.row is None or inst.row.opcode not in {"add", "sub"} or not inst.row.may_contract:
        return False
    mine, factor = inst.attributes, product.attributes
    count = sum(isinstance(operand, Register) and operand.index == result.index for operand in inst.sources)
    return count == 1 and mine.types[-1] == factor.types[-1] and mine.ftz == factor.ftz


def _is_second_product(inst: DecodedInstruction, result: Register, products: set[int]) -> bool:
    """Return True if an add's first operand is another product, which is then fused instead of this one."""
    first = inst.sources[0]
    return isinstance(first, Register) and first.index != result.index and first.index in products


def _fuse(inst: DecodedInstruction, product: DecodedInstruction, result: Register) -> DecodedInstruction:
    """Return the fma that replaces an add or sub of a product."""
    action, attributes = inst.action, inst.attributes
    if not isinstance(action, LaneOp):
        return inst
    is_first = isinstance(inst.sources[0], Register) and inst.sources[0].index == result.index
    is_sub = attributes.opcode == "sub"
    fused = FusedProduct(product.attributes.opcode, is_sub and not is_first, is_sub and is_first)
    dtype, modifiers = action.results[0], FloatModifiers(ftz=attributes.ftz, sat=attributes.sat)

    def multiply_add(a: Codes, b: Codes, c: Codes) -> Codes:
        if fused.opcode == "div":
            is_full = product.attributes.accuracy == "full"
            a, b = approximate_functions.quotient_factors(a, b, full=is_full, ftz=attributes.ftz)
        factor = floats.negate(a) if fused.negates_product else a
        addend = floats.negate(c) if fused.negates_addend else c
        return floats.fma(dtype.element, modifiers, factor, b, addend)

    sources = (*product.sources, inst.sources[1 if is_first else 0])
    order = NAN_ORDERS["fma"] if action.nan_order else ()
    fma = replace(action, sources=(dtype,) * 3, function=by_parts(dtype, multiply_add), fused=fused, nan_order=order)
    return replace(inst, action=fma, sources=sources)
