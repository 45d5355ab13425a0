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

from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import Nothing, Pure
from warpfrag.ptx.program.program import Program, Register, Step, registers_of
from warpfrag.ptx.semantics import approximate_functions, floats
from warpfrag.ptx.semantics.floats import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.types import Codes, Type

QUOTIENTS = {"div.full.f32", "div.full.ftz.f32", "div.approx.f32", "div.approx.ftz.f32", "rcp.approx.f32"}


def contract(program: Program) -> Program:
    """The program as an assembler would contract it; steps that are fused away do nothing."""
    steps = list(program.steps)
    written: dict[int, list[int]] = defaultdict(list)
    read: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        for register in (one for operand in step.results for one in registers_of(operand)):
            written[register.index].append(at)
        used = [one for operand in (*step.sources, *step.memory_results) for one in registers_of(operand)]
        for index in {one.index for one in used} | ({step.guard.index} if step.guard else set()):
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
        inputs = {one.index for operand in step.sources for one in registers_of(operand)}
        end = program.ends[at]
        unchanged = all(not any(at < place < max(uses, default=at) for place in written[index]) for index in inputs)
        fits = all(
            at < use < end and use not in done and takes_product(steps[use], step, result, products) for use in uses
        )
        if uses and unchanged and fits:
            done.update(uses)
            for use in uses:
                steps[use] = fused(steps[use], step, result)
            steps[at] = replace(step, action=Nothing(), results=(), sources=())
    return replace(program, steps=steps)


def is_product(step: Step) -> bool:
    """Whether a step is a multiplication that may be fused."""
    if step.guard is not None or step.row is None:
        return False
    return step.name in QUOTIENTS or (step.row.opcode == "mul" and step.row.may_contract and ".sat" not in step.name)


def takes_product(step: Step, product: Step, result: Register, products: set[int]) -> bool:
    """Whether a step is a sum that this product may be fused into; the first of two products comes first."""
    if step.row is None or step.row.opcode not in {"add", "sub"} or not step.row.may_contract:
        return False
    same = step.name.split(".")[-1] == product.name.split(".")[-1] and (".ftz" in step.name) == (".ftz" in product.name)
    used = [operand for operand in step.sources if isinstance(operand, Register) and operand.index == result.index]
    first = step.sources[0]
    is_second = isinstance(first, Register) and first.index != result.index and first.index in products
    return same and len(used) == 1 and not is_second


def fused(step: Step, product: Step, result: Register) -> Step:
    """A sum with the product in it."""
    action = step.action
    if not isinstance(action, Pure):
        return step
    first = isinstance(step.sources[0], Register) and step.sources[0].index == result.index
    other = step.sources[1] if first else step.sources[0]
    kind = action.results[0]
    minus_product = step.row is not None and step.row.opcode == "sub" and not first
    minus_other = step.row is not None and step.row.opcode == "sub" and first
    style = Style(ftz=".ftz" in step.name, sat=".sat" in step.name)
    add_up = partial(_add_up, kind, style, minus_product=minus_product, minus_other=minus_other)
    factors = _factors(product)

    def run(*codes: Codes) -> Codes:
        return add_up(*factors(*codes[:-1]), codes[-1])

    sources = product.action.sources if isinstance(product.action, Pure) else ()
    parts = (product.row.opcode if product.row else "", minus_product, minus_other)
    return replace(
        step,
        action=replace(action, sources=(*sources, kind), function=run, fused=parts),
        sources=(*product.sources, other),
    )


def _factors(product: Step) -> Callable[..., tuple[Codes, Codes]]:
    """The two factors of a product."""
    ftz = ".ftz" in product.name
    if product.name.startswith("div"):
        return partial(approximate_functions.quotient_factors, full=".full" in product.name, ftz=ftz)
    if product.name.startswith("rcp"):
        return approximate_functions.reciprocal_factors
    return lambda a, b: (a, b)


def _add_up(kind: Type, style: Style, a: Codes, b: Codes, c: Codes, *, minus_product: bool, minus_other: bool) -> Codes:
    """a * b + c with signs turned as a subtraction wants them."""

    def one(x: Codes, y: Codes, z: Codes) -> Codes:
        return floats.fma(
            kind.element, style, floats.negate(x) if minus_product else x, y, floats.negate(z) if minus_other else z
        )

    return by_parts(kind, one)(a, b, c)
