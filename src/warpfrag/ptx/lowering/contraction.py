"""Contraction: a product and a sum that say nothing about rounding become one fma, as ptxas does it.

The assembler may fuse an unqualified mul with the unqualified add or sub that uses it. Which it fuses was read from
the code it makes (ptxas 13.0 for sm_90): both in one block, the same .ftz, and every use of the product such a sum; of
a sum of two products the first is fused. The last multiplication of div.full, div.approx and rcp.approx counts as a
product.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from warpfrag.ptx.opcodes.floating import NAN_CHOICES
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import FusedProduct, LaneOp, NoOp
from warpfrag.ptx.program.program import DecodedInstruction, Register, registers_of
from warpfrag.ptx.program.types import F32
from warpfrag.ptx.semantics import approximate_functions, floats
from warpfrag.ptx.semantics.floats import FloatModifiers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warpfrag.ptx.program.types import Codes, Type


def contract(instructions: Sequence[DecodedInstruction], ends: Sequence[int]) -> list[DecodedInstruction]:
    """The steps as an assembler contracts them, where blocks end at `ends`; a product that is fused does nothing."""
    steps = list(instructions)
    written: dict[int, list[int]] = defaultdict(list)
    read: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        for register in (item for operand in step.results for item in registers_of(operand)):
            written[register.index].append(at)
        used = [item for operand in (*step.sources, *step.memory_results) for item in registers_of(operand)]
        for index in {register.index for register in used} | ({step.guard.index} if step.guard else set()):
            read[index].append(at)
    products = {operand.index for step in steps if is_product(step) for operand in registers_of(step.results[0])}
    done: set[int] = set()
    for at, step in enumerate(steps):
        if not is_product(step):
            continue
        result = step.results[0]
        if not isinstance(result, Register) or len(written[result.index]) != 1:
            continue
        uses = read[result.index]
        inputs = {register.index for operand in step.sources for register in registers_of(operand)}
        unchanged = all(not any(at < place < max(uses, default=at) for place in written[index]) for index in inputs)
        fits = all(
            at < use < ends[at] and use not in done and takes_product(steps[use], step, result, products)
            for use in uses
        )
        if uses and unchanged and fits:
            done.update(uses)
            for use in uses:
                steps[use] = fused(steps[use], step, result)
            steps[at] = replace(step, action=NoOp(), results=(), sources=())
    return steps


def is_product(step: DecodedInstruction) -> bool:
    """Whether a step is a multiplication that may be fused, or ends with one: the approximate quotients of f32 do."""
    row, attributes = step.row, step.attributes
    if step.guard is not None or row is None:
        return False
    if attributes.accuracy is not None and attributes.types == (F32,):
        return row.opcode == "div" or (row.opcode == "rcp" and not attributes.ftz)
    return row.opcode == "mul" and row.may_contract and not attributes.sat


def takes_product(step: DecodedInstruction, product: DecodedInstruction, result: Register, products: set[int]) -> bool:
    """Whether a step is a sum that this product may be fused into; the first of two products comes first."""
    if step.row is None or step.row.opcode not in {"add", "sub"} or not step.row.may_contract:
        return False
    mine, other = step.attributes, product.attributes
    same = mine.types[-1] == other.types[-1] and mine.ftz == other.ftz
    used = [operand for operand in step.sources if isinstance(operand, Register) and operand.index == result.index]
    first = step.sources[0]
    is_second = isinstance(first, Register) and first.index != result.index and first.index in products
    return same and len(used) == 1 and not is_second


def fused(step: DecodedInstruction, product: DecodedInstruction, result: Register) -> DecodedInstruction:
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
    factors = _factors(product)

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


def _factors(product: DecodedInstruction) -> Callable[..., tuple[Codes, Codes]]:
    """The two factors of a product."""
    attributes = product.attributes
    if attributes.opcode == "div":
        full = attributes.accuracy == "full"
        return partial(approximate_functions.quotient_factors, full=full, ftz=attributes.ftz)
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
