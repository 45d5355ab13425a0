"""What ptxas makes of signs: abs and neg before what can take a sign itself, and numbers that are never negative.

The rules are those of `known_values`: given a step, the values of its sources and the table of all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.replaced_steps import (
    doubt,
    first,
    note,
    replace_function,
    replace_where_seen,
)
from warpfrag.ptx.lowering.values import Constant, ValueTable
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    Alternative,
    LaneOp,
    MatrixOp,
)
from warpfrag.ptx.program.departures import DEPARTURES
from warpfrag.ptx.program.program import Register
from warpfrag.ptx.program.types import F32, F64, TYPES
from warpfrag.ptx.semantics import floats

if TYPE_CHECKING:
    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.lowering.values import Values
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes


def selection_by_power(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """slct by a number that ptxas knows as positive; one with .ftz compares it all the same."""
    if step.attributes.opcode != "slct" or step.attributes.types[1] != F32 or step.attributes.ftz:
        return False
    definition = table.definition(values[2])
    writers = [item for item in table.writers(values[2], is_carried=True) if F32 in item.attributes.types[:1]]
    if any(map(_is_positive, writers)):
        if definition is None or writers[0].guard is not None:
            doubt(step, "selection by a power of 2", first)
        else:
            is_near = table.is_near(values[2], step)
            replace_where_seen(kernel, step, "selection by a power of 2", first, is_sure=is_near)
        return True
    roots = [writer for writer in writers if writer.attributes.opcode in {"sqrt", "rsqrt"} and writer.attributes.ftz]
    if not roots or not isinstance(step.action, LaneOp):
        return False
    function, is_inverse = step.action.function, roots[0].attributes.opcode == "rsqrt"

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        held = function(a, b, c)
        code = held[0] if isinstance(held, tuple) else held
        if is_inverse:
            return np.where(c == np.uint32(0xFF800000), a, code)
        return np.where(c == np.uint32(0x80000000), b, code)

    reason = "where c is the result of sqrt.ftz or rsqrt.ftz, slct may compare their operand"
    step.action = replace(step.action, alternative=Alternative(run, reason))
    return True


def _is_positive(step: DecodedInstruction) -> bool:
    """Whether ptxas knows the result of a step on f32 as positive: that of abs.ftz, it does not."""
    attributes = step.attributes
    return attributes.opcode == "ex2" or (attributes.opcode == "abs" and not attributes.ftz)


def sign_before(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """selp and slct of f32, and conversions to and from f64: doubtful where the result is a NaN."""
    del kernel
    attributes, action = step.attributes, step.action
    is_selection = attributes.opcode in {"selp", "slct"} and attributes.types[0] == F32
    is_conversion = attributes.opcode == "cvt" and F64 in attributes.types and all(k.is_float for k in attributes.types)
    if not isinstance(action, LaneOp) or not (is_selection or is_conversion):
        return False
    sources = values[:2] if is_selection else values[:1]
    definitions = [table.definition(value) for value in sources]
    if not any(
        item is not None and item[0].attributes.opcode in {"abs", "neg"} and item[0].attributes.types[0].is_float
        for item in definitions
    ):
        return False
    kind, function = action.results[0], action.function

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        code = result[0] if isinstance(result, tuple) else result
        return floats.another_nan(code, kind.element)

    doubt(step, "sign before a selection", run)
    return True


def extended_sign(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubtful where an operand is the smallest s16 and a neg or abs left it."""
    del kernel
    action, narrow = step.action, TYPES["s16"]
    if not isinstance(action, LaneOp) or narrow not in action.sources:
        return False
    places = [
        index
        for index, (value, kind) in enumerate(zip(values, action.sources, strict=True))
        if kind == narrow
        and (item := table.definition(value)) is not None
        and item[0].attributes.opcode in {"neg", "abs"}
        and item[0].attributes.types == (narrow,)
    ]
    if not places:
        return False
    function = action.function

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        code = result[0] if isinstance(result, tuple) else result
        smallest = np.logical_or.reduce([codes[index] == np.uint16(0x8000) for index in places])
        return np.where(smallest, ~code, code)

    doubt(step, "sign of 16 bits extended", run)
    return True


def overwritten_sign(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """abs and neg of f32 that a guarded step overwrites: the two may become a selection, which keeps a NaN as it is."""
    del values
    attributes = step.attributes
    if (
        attributes.opcode not in {"abs", "neg"}
        or attributes.types != (F32,)
        or attributes.ftz
        or step.guard is not None
    ):
        return False
    target = step.results[0]
    after = table.next_writer(step, target) if isinstance(target, Register) else None
    if after is None or after.guard is None:
        return False
    del kernel
    doubt(step, "guarded abs and neg", floats.magnitude_of if attributes.opcode == "abs" else floats.negate)
    return False


def double_negation(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """neg of neg is the operand, unless one of them flushes; doubtful where that is not at hand and a NaN."""
    attributes, action = step.attributes, step.action
    if not _is_plain_negation(step) or not isinstance(action, LaneOp) or attributes.types[0].name == "bf16x2":
        return False
    writers = table.writers(values[0], is_carried=True)
    if not any(_is_plain_negation(writer) and writer.attributes.types == attributes.types for writer in writers):
        return False
    before, operand = writers[0], writers[0].sources[0]
    is_sure = table.definition(values[0]) is not None and before.guard is None
    if is_sure and isinstance(operand, Register) and table.is_unchanged(before, step, operand):
        step.sources = (operand,)
        replace_function(kernel, step, "negation of a negation", first)
        return True
    kind, function = attributes.types[0], action.function
    another = by_parts(kind, lambda a: floats.another_nan(a, kind.element))

    def run(a: Codes) -> Codes:
        result = function(a)
        return another(result[0] if isinstance(result, tuple) else result)

    doubt(step, "negation of a negation", run)
    return True


def _is_plain_negation(step: DecodedInstruction) -> bool:
    """Whether a step negates floats and does not flush them."""
    attributes = step.attributes
    return attributes.opcode == "neg" and attributes.types[0].is_float and not attributes.ftz


def positive_comparison(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubtful where a NaN is compared with 0."""
    del kernel
    attributes, action = step.attributes, step.action
    if attributes.opcode not in {"setp", "set"} or attributes.types[-1] != F32 or not isinstance(action, LaneOp):
        return False
    definitions = [table.definition(value) for value in values[:2]]
    places = [
        index
        for index, item in enumerate(definitions)
        if item is not None and item[0].attributes.opcode in {"abs", "ex2"} and item[0].attributes.types[0] == F32
    ]
    if not places or not any(isinstance(value, Constant) and value.code << 1 & 0xFFFFFFFF == 0 for value in values[:2]):
        return False
    function = action.function

    def run(*codes: Codes) -> Codes | tuple[Codes, ...]:
        numbers = [
            np.where(floats.is_nan(code, "f32"), np.uint32(0x3F800000), code) if index in places else code
            for index, code in enumerate(codes)
        ]
        return function(*numbers)

    doubt(step, "comparison of a positive number with 0", run)
    return True


def negated_operand(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubt mma whose B is the result of neg.f32."""
    action = step.action
    if not isinstance(action, MatrixOp):
        return False
    definition = table.definition(values[1]) if len(values) > 1 else None
    if definition is None or action.form.a not in {"f16", "bf16"}:
        return True
    source = definition[0].attributes
    if source.opcode == "neg" and source.types == (F32,) and not source.ftz:
        step.doubt = DEPARTURES["negated operand of mma"].compiler
        note(kernel, step, "negated operand of mma")
    return True
