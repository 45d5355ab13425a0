"""Departures that depend on what ptxas knows of values: constants, equal operands, and what left an operand.

`VALUE_RULES` has a function for each. It is given a step, the values of its sources (`values`) and the table that says
where those come from; it changes the step, or lets it be, and says whether it was one of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.constant_rules import (
    CODES_OF_1,
    beyond_word,
    constant_selector,
    constants,
    equal_operands,
    fold_constants,
    function_of_constant,
    infinite_product,
    long_field,
    product_with_1,
    sign_of_constant,
)
from warpfrag.ptx.lowering.doubts import (
    doubt_constants,
    doubt_copies,
    doubt_pairs,
    doubt_registers_of_a,
    doubt_text,
    doubt_transposed,
    relevant_pairs,
)
from warpfrag.ptx.lowering.folding import is_split
from warpfrag.ptx.lowering.half_rules import (
    adds_halves,
    doubled_truth,
    joined_conversions,
    low_byte,
    lower_extremum,
    packed_abs,
    packed_tf32,
    truncated_half,
    unpacked_half,
    zero_quarter,
)
from warpfrag.ptx.lowering.nan_operands import INFINITY, SIGN, doubt_sign
from warpfrag.ptx.lowering.replaced_steps import (
    doubt,
    goes_back,
)
from warpfrag.ptx.lowering.sign_rules import (
    double_negation,
    extended_sign,
    negated_operand,
    overwritten_sign,
    positive_comparison,
    selection_by_power,
    sign_before,
)
from warpfrag.ptx.lowering.uncertain_pairs import selects_truth
from warpfrag.ptx.lowering.values import Constant, ValueTable
from warpfrag.ptx.program.actions import (
    Atomic,
    DirectCall,
    LaneOp,
    MatrixOp,
)
from warpfrag.ptx.program.departures import DEPARTURES
from warpfrag.ptx.program.program import Immediate, block_ends
from warpfrag.ptx.program.types import BF16, F16, F32, F64, TYPES
from warpfrag.ptx.semantics import floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.lowering.values import Values
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes

DIRECTED = {"rz", "rm", "rp"}
READERS = {"abs", "neg", "min", "max", "bfe", "bfi", "slct", "cvt", "selp", "setp", "set", "and", "lop3"}
"""Opcodes of which a rule looks at the values of the operands."""


def _wants_values(step: DecodedInstruction) -> bool:
    """Whether a rule looks at the values of a step's operands."""
    action, attributes = step.action, step.attributes
    if isinstance(action, Atomic):
        return adds_halves(action)
    if isinstance(action, MatrixOp) or attributes.opcode == "movmatrix":
        return attributes.opcode in {"mma", "movmatrix"}
    if not isinstance(action, LaneOp) or action.replaces:
        return False
    return (
        action.nan_choice is not None
        or attributes.accuracy is not None
        or attributes.opcode in READERS
        or not {TYPES["s16"], TYPES["u16"]}.isdisjoint(action.sources)
        or (step.row is not None and step.row.may_contract and attributes.opcode == "mul")
        or (attributes.opcode == "fma" and step.sources[0] == step.sources[1])
    )


def fold_values(kernel: KernelLowering) -> None:
    """Apply the rules that depend on what ptxas knows of the values of operands."""
    has_calls = any(isinstance(step.action, DirectCall) for step in kernel.steps)
    for step in kernel.steps:
        doubt_text(step, has_calls=has_calls)
    doubt_copies(kernel.steps)
    doubt_registers_of_a(kernel.steps)
    doubt_transposed(kernel.steps)
    has_loops = any(goes_back(at, step) for at, step in enumerate(kernel.steps))
    has_library = has_loops or any(map(calls_library, kernel.steps))
    pairs = relevant_pairs(kernel.steps, kernel.compiler, has_library=has_library)
    ruled = {at for at, step in enumerate(kernel.steps) if _wants_values(step)}
    wanted = ruled | {at for at, step in enumerate(kernel.steps) if any(pair.reads(step) for pair in pairs)}
    if not wanted:
        return
    ends = block_ends(kernel.steps, kernel.leaders)
    table = ValueTable(kernel.steps, kernel.leaders, ends, wanted, fold_constants)
    has_quotient = any(map(_rounds_quotient, kernel.steps))
    table.has_functions, table.has_loops = any(map(calls_library, kernel.steps)), has_loops
    for at in sorted(wanted):
        step = kernel.steps[at]
        values = table.operands(at)
        doubt_pairs(step, values, table, at, pairs)
        if at not in ruled:
            continue
        doubt_constants(step, values, has_nan=_has_nan(step, values))
        for name, rule in VALUE_RULES.items():
            if kernel.compiler in DEPARTURES[name].versions and rule(kernel, step, values, table):
                break
        else:
            _truth_value(step, values, table, has_library=has_library, has_quotient=has_quotient)
            _name_constants(step, values)
    _doubt_late_constants(kernel, ends, ruled)


def _doubt_late_constants(kernel: KernelLowering, ends: list[int], ruled: set[int]) -> None:
    """A difference of f64 with a NaN that ptxas computes of constants, but not at once."""
    differences = {at for at in ruled if _subtracts_register(kernel.steps[at])}
    if not differences or not any(map(_is_late, kernel.steps)):
        return
    table = ValueTable(kernel.steps, kernel.leaders, ends, differences, partial(fold_constants, is_late=True))
    for at in differences:
        step, value = kernel.steps[at], table.operands(at)[1]
        if isinstance(value, Constant) and isinstance(step.action, LaneOp) and value.code & ~SIGN > INFINITY:
            doubt_sign(step, step.action)


def _subtracts_register(step: DecodedInstruction) -> bool:
    is_plain = isinstance(step.action, LaneOp) and step.action.nan_choice is not None and step.action.fused is None
    return is_plain and step.attributes.opcode == "sub" and not isinstance(step.sources[1], Immediate)


def _is_late(step: DecodedInstruction) -> bool:
    has_constants = any(isinstance(source, Immediate) for source in step.sources)
    return has_constants and isinstance(step.action, LaneOp) and is_split(step, step.action)


def _name_constants(step: DecodedInstruction, values: Values) -> None:
    """An operand of f64 that is a constant is one as if it were written so: that decides whose NaN stays."""
    if isinstance(step.action, LaneOp) and step.action.nan_choice is not None:
        step.sources = tuple(
            Immediate(value.code) if isinstance(value, Constant) else source
            for source, value in zip(step.sources, values, strict=True)
        )


def _has_nan(step: DecodedInstruction, values: Values) -> bool:
    """Whether all operands are constants, one of them a NaN that a compiler may treat in its own manner."""
    codes, kind = constants(values), step.attributes.types[-1] if step.attributes.types else F32
    if not codes or not kind.is_float or kind.parts != 1 or kind.element not in CODES_OF_1:
        return False
    is_sign = step.attributes.opcode in {"abs", "neg"}
    if kind == F32 or is_sign != (kind.bits == 16) or not (is_sign or step.attributes.opcode in {"mul", "sub"}):
        return False
    is_written = not is_sign and all(isinstance(source, Immediate) for source in step.sources)
    has_infinity = any(code & ~SIGN == INFINITY for code in codes)
    has_sign = step.attributes.opcode == "mul" and any(code & SIGN for code in codes)
    if is_written and not has_infinity and not has_sign:
        return False  # `nan_operands` has the rule
    return bool(floats.is_nan(np.array([codes], kind.dtype), kind.element).any())


def calls_library(step: DecodedInstruction) -> bool:
    """Whether ptxas puts a function of f64 into the code, after which it optimises once more."""
    attributes = step.attributes
    return attributes.opcode in {"sqrt", "div", "rcp"} and attributes.types == (F64,) and attributes.accuracy is None


def _rounds_quotient(step: DecodedInstruction) -> bool:
    """Whether a step is a quotient of f32 that is not rounded to nearest: that is a function too."""
    attributes = step.attributes
    if attributes.accuracy is not None:
        return False
    return attributes.opcode in {"div", "rcp"} and attributes.types == (F32,) and attributes.rounding in DIRECTED


def _truth_value(
    step: DecodedInstruction, values: Values, table: ValueTable, *, has_library: bool, has_quotient: bool
) -> None:
    """cvt of a 0 or 1 of cnot or selp, or of set to f32: the number 1 may be read where the bits are meant."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or not isinstance(action, LaneOp) or len(values) != 1 or action.replaces:
        return
    definition, kind = table.definition(values[0]), action.sources[0]
    writers = table.writers(values[0], is_carried=True)
    is_cnot = any(
        writer.attributes.opcode == "cnot"
        or ((has_library or has_quotient) and selects_truth(writer) and _is_scalar_float(step))
        for writer in writers
    )
    truths = {F32, F16, BF16} if table.has_functions or has_quotient else {F32}
    sets = [w for w in writers if w.attributes.opcode == "set" and w.attributes.types[0] in truths and not is_cnot]
    is_set = bool(sets)
    set_code = CODES_OF_1[sets[0].attributes.types[0].element] if sets else 0
    if kind is None or (not (is_cnot and (kind.is_float or attributes.sat)) and not (is_set and not kind.is_float)):
        return
    function, code_of_1 = action.function, CODES_OF_1.get(kind.element, 1)
    target = action.results[0]

    def run(a: Codes) -> Codes:
        if is_cnot and not kind.is_float:  # clamped as the largest integer, with the wrong sign
            code = 1 << (target.bits - 1) if target.kind == "s" else 0
            return np.where(a == a.dtype.type(1), target.dtype.type(code), target.dtype.type(0))
        is_true = a == a.dtype.type(1 if is_cnot else set_code & ((1 << kind.bits) - 1))
        result = function(np.where(is_true, a.dtype.type(code_of_1 if is_cnot else 1), a))
        return result[0] if isinstance(result, tuple) else result

    is_half = is_set and sets[0].attributes.types[0] != F32
    at = next(index for index, other in enumerate(table.steps) if other is step)
    if is_half and table.has_other_reader(at, step.sources[0]) and not has_quotient:
        return
    if definition is not None and (has_library or (is_cnot and not kind.is_float)) and not is_half:
        step.action = replace(action, function=run, replaces="conversion of a truth value")
        doubt(step, "conversion of a truth value", function)
    else:
        doubt(step, "conversion of a truth value", run)


def _is_scalar_float(step: DecodedInstruction) -> bool:
    """Whether a step converts one float of f16 or f32, to a format of which ptxas knows the number 1."""
    target, source = step.attributes.types[0], step.attributes.types[-1]
    is_plain = not step.attributes.relu and not step.attributes.sat
    return is_plain and source in {F16, F32} and target.parts == 1 and target.name != "tf32"


VALUE_RULES: dict[str, Callable[..., bool]] = {
    "lower word of a minimum": lower_extremum,
    "min and max of equal operands": equal_operands,
    "product with 1": product_with_1,
    "infinity times a subnormal": infinite_product,
    "function of a constant": function_of_constant,
    "sign of a constant NaN": sign_of_constant,
    "selection by a constant": constant_selector,
    "bfe beyond the word": beyond_word,
    "bfi of a long field": long_field,
    "atomic sum of an unpacked half": unpacked_half,
    "selection by a power of 2": selection_by_power,
    "abs of halves of a positive number": packed_abs,
    "guarded abs and neg": overwritten_sign,
    "sign before a selection": sign_before,
    "negated operand of mma": negated_operand,
    "tf32 of a packed sum": packed_tf32,
    "fp8 of a known quarter": zero_quarter,
    "truth value in both halves": doubled_truth,
    "truncation of a flushed half": truncated_half,
    "low byte of a function of f16": low_byte,
    "sign of 16 bits extended": extended_sign,
    "negation of a negation": double_negation,
    "comparison of a positive number with 0": positive_comparison,
    "conversions between halves joined": joined_conversions,
}
"""By the name of a departure: what changes a step by the values of its operands, and says whether it did."""
