"""Departures that depend on what ptxas knows of values: constants, equal operands, and what left an operand.

`VALUE_RULES` has a function for each. It is given a step, the values of its sources (`values`) and the table that says
where those come from; it changes the step, or lets it be, and says whether it was one of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.replaced_steps import doubt, first, goes_back, note, replace_function, second
from warpfrag.ptx.lowering.uncertain_pairs import (
    MIN_NORMAL_F32,
    doubt_constants,
    doubt_pairs,
    doubt_text,
    relevant_pairs,
)
from warpfrag.ptx.lowering.values import Constant, ValueTable, evaluate
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    Atomic,
    LaneOp,
    MatrixOp,
    Move,
)
from warpfrag.ptx.program.departures import DEPARTURES
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand, block_ends
from warpfrag.ptx.program.types import B16, BF16, F16, F32, F64, TYPES
from warpfrag.ptx.semantics import approximate_functions, floats, folded_functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.lowering.values import Values
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes, Type

# --- what ptxas knows of values

FOLDED = {"sin", "cos", "ex2", "lg2", "rsqrt", "rcp", "sqrt"}
EQUAL_OPERANDS = {"f16", "f32", "f64"}
CODES_OF_1 = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000}


def _fold_constants(step: DecodedInstruction, action: LaneOp, codes: tuple[int, ...]) -> int | None:
    """What ptxas computes of constants when it compiles: all but NaNs and what only hardware has."""
    attributes = step.attributes
    kind = action.results[0]
    if attributes.accuracy is not None:
        function = _folded_function(step)
        if function is None or attributes.opcode == "div":
            return None
        action = replace(action, function=function)
    elif attributes.opcode in {"abs", "neg"} and kind.is_float:
        action = replace(action, function=_constant_sign(attributes.opcode, kind))
    elif _narrows_f64(step, action):
        action = replace(action, function=_canonical(action.function, kind))
    code = evaluate(action, codes)
    if kind.is_float and kind.parts == 1 and kind.element in CODES_OF_1:
        array = np.full((1, 1), code, kind.dtype)
        if bool(floats.is_nan(array, kind.element).any()) and attributes.opcode not in {"abs", "neg", "cvt"}:
            return None
    if action.extends and kind.kind == "s" and code >> (kind.bits - 1):
        code -= 1 << kind.bits
    register = step.results[0]
    return code & ((1 << register.bits) - 1) if isinstance(register, Register) else None


def _folded_function(step: DecodedInstruction) -> LaneFunction | None:
    """An approximate function of f32 as ptxas computes it."""
    attributes = step.attributes
    if attributes.types != (F32,):
        return None
    if attributes.opcode == "div":
        full = attributes.accuracy == "full"
        return partial(approximate_functions.divide, full=full, ftz=attributes.ftz, unit=folded_functions)
    if attributes.opcode not in FOLDED:
        return None
    if attributes.opcode in {"sin", "cos"}:
        return partial(getattr(folded_functions, attributes.opcode), ftz=attributes.ftz)
    return partial(getattr(approximate_functions, attributes.opcode), ftz=attributes.ftz, unit=folded_functions)


def _constant_sign(opcode: str, kind: Type) -> LaneFunction:
    """abs and neg of constants: of f32 a NaN becomes quiet, of other types only the sign changes."""
    change = floats.magnitude_of if opcode == "abs" else floats.negate

    def run(a: Codes) -> Codes:
        result = change(a)
        return np.where(floats.is_nan(a, "f32"), result | np.uint32(0x00400000), result) if kind == F32 else result

    return by_parts(kind, run)


def _canonical(function: LaneFunction, kind: Type) -> LaneFunction:
    """A function whose NaNs are canonical."""

    def run(*codes: Codes) -> Codes:
        result = function(*codes)
        return floats.quiet(result[0] if isinstance(result, tuple) else result, kind.element)

    return run


def _wants_values(step: DecodedInstruction) -> bool:
    """Whether a rule looks at the values of a step's operands."""
    action, attributes = step.action, step.attributes
    if isinstance(action, Atomic):
        return _adds_halves(action)
    if isinstance(action, MatrixOp):
        return action.operation == "mma"
    if not isinstance(action, LaneOp) or action.replaces:
        return False
    return (
        action.nan_choice is not None
        or attributes.accuracy is not None
        or attributes.opcode in {"abs", "neg", "min", "max", "bfe", "bfi", "slct", "cvt", "selp", "setp", "set", "and"}
        or TYPES["s16"] in action.sources
        or (step.row is not None and step.row.may_contract and attributes.opcode == "mul")
    )


def fold_values(kernel: KernelLowering) -> None:
    """Apply the rules that depend on what ptxas knows of the values of operands."""
    for step in kernel.steps:
        doubt_text(step)
    pairs = relevant_pairs(kernel.steps)
    ruled = {at for at, step in enumerate(kernel.steps) if _wants_values(step)}
    wanted = ruled | {at for at, step in enumerate(kernel.steps) if any(pair.reads(step) for pair in pairs)}
    if not wanted:
        return
    ends = block_ends(kernel.steps, kernel.leaders)
    table = ValueTable(kernel.steps, kernel.leaders, ends, wanted, _fold_constants)
    has_library = any(_calls_library(step) or goes_back(at, step) for at, step in enumerate(kernel.steps))
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
            _truth_value(step, values, table, has_library=has_library)
            _name_constants(step, values)


def _name_constants(step: DecodedInstruction, values: Values) -> None:
    """An operand of f64 that is a constant is one as if it were written so: that decides whose NaN stays."""
    if isinstance(step.action, LaneOp) and step.action.nan_choice is not None:
        step.sources = tuple(
            Immediate(value.code) if isinstance(value, Constant) else source
            for source, value in zip(step.sources, values, strict=True)
        )


def _has_nan(step: DecodedInstruction, values: Values) -> bool:
    """Whether all operands are constants, one of them a NaN that a compiler may treat in its own manner."""
    codes, kind = _constants(values), step.attributes.types[-1] if step.attributes.types else F32
    if not codes or not kind.is_float or kind.parts != 1 or kind.element not in CODES_OF_1:
        return False
    is_sign = step.attributes.opcode in {"abs", "neg"}
    if kind == F32 or is_sign != (kind.bits == 16) or not (is_sign or step.attributes.opcode in {"mul", "sub"}):
        return False
    return bool(floats.is_nan(np.array([codes], kind.dtype), kind.element).any())


def _constants(values: Values) -> list[int] | None:
    codes = [value.code for value in values if isinstance(value, Constant)]
    return codes if len(codes) == len(values) else None


def _equal_operands(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    attributes = step.attributes
    if attributes.opcode not in {"min", "max"} or attributes.types[0].name not in EQUAL_OPERANDS or len(values) != 2:
        return False
    if attributes.ftz or attributes.nan or attributes.xorsign or values[0] is None:
        return False
    if values[0] == values[1]:
        replace_function(kernel, step, "min and max of equal operands", first)
        return True
    sources = [table.definition(value) for value in values]
    if sources[0] is None or sources[1] is None:
        return False
    left, right = (item[0] for item in sources if item is not None)
    if left.name == right.name and left.sources == right.sources:  # equal, if ptxas sees it
        doubt(step, "min and max of equal operands", first)
        return True
    return False


def _product_with_1(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    attributes, action = step.attributes, step.action
    row = step.row
    if attributes.opcode != "mul" or row is None or not row.may_contract or attributes.ftz or attributes.sat:
        return False
    code = CODES_OF_1.get(attributes.types[0].name)
    if code is None or not isinstance(action, LaneOp) or len(values) != 2:
        return False
    for index, function in ((0, second), (1, first)):
        if values[index] == Constant(code):
            replace_function(kernel, step, "product with 1", function)
            return True
    return False


def _function_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    if step.attributes.accuracy is None or not isinstance(step.action, LaneOp) or step.action.fused is not None:
        return False
    function = _folded_function(step)
    if function is None or not isinstance(values[-1], Constant):
        return False
    if step.attributes.opcode != "div" and _fold_constants(step, step.action, (values[-1].code,)) is None:
        return False
    if step.attributes.opcode == "lg2" and 0 < values[-1].code & 0x7FFFFFFF < MIN_NORMAL_F32:
        step.doubt = "a function of a constant below the normal numbers may be folded, or not"
    replace_function(kernel, step, "function of a constant", function)
    return True


def _sign_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    attributes, action = step.attributes, step.action
    codes = _constants(values)
    if codes is None or not isinstance(action, LaneOp):
        return False
    if _narrows_f64(step, action):
        replace_function(kernel, step, "sign of a constant NaN", _canonical(action.function, action.results[0]))
        return True
    if attributes.opcode not in {"abs", "neg"} or not attributes.types[0].is_float:
        return False
    kind = attributes.types[0]
    function = _constant_sign(attributes.opcode, kind)
    if attributes.ftz and kind != F32:
        return False
    if attributes.ftz:
        plain = function
        function = lambda a: plain(floats.flush(a, "f32"))  # noqa: E731
    replace_function(kernel, step, "sign of a constant NaN", function)
    return True


def _constant_selector(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    if step.attributes.opcode != "slct" or [kind.name for kind in step.attributes.types] != ["s32", "s32"]:
        return False
    if len(values) != len("abc") or not isinstance(values[2], Constant):
        return False
    code = np.full((1, 1), values[2].code, np.uint32)
    takes_a = bool(floats.compare("f32", "ge", code, np.zeros_like(code)).all())
    replace_function(kernel, step, "selection by a constant", first if takes_a else second)
    return True


def _narrows_f64(step: DecodedInstruction, action: LaneOp) -> bool:
    """Whether a step converts f64 to 16 bits, to nearest: other roundings of a constant NaN are those of hardware."""
    is_cvt = step.attributes.opcode == "cvt" and step.attributes.rounding == "rn"
    return is_cvt and action.sources == (F64,) and action.results[0] in {F16, BF16}


def _beyond_word(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    if step.attributes.opcode != "bfe" or step.attributes.types[0].name != "s32":
        return False
    codes = _constants(values[1:])
    if codes is None or isinstance(values[0], Constant) or codes[0] & 0xFF < 32 or not codes[1] & 0xFF:
        return False
    replace_function(kernel, step, "bfe beyond the word", lambda a, *_: np.full(a.shape, 0xFFFFFFFF, np.uint32))
    return True


def _long_field(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del table
    if step.attributes.opcode != "bfi" or step.attributes.types[0].bits != 32 or not isinstance(step.action, LaneOp):
        return False
    codes = _constants(values[2:])
    if codes is None or _constants(values) is not None or not 0 < codes[0] & 0xFF < 32 or codes[1] & 0xFF < 32:
        return False
    function = step.action.function

    def run(a: Codes, b: Codes, position: Codes, length: Codes) -> Codes:
        result = function(a, b, position, length & np.uint32(31))
        return result[0] if isinstance(result, tuple) else result

    replace_function(kernel, step, "bfi of a long field", run)
    return True


def _adds_halves(action: Atomic) -> bool:
    return action.name == "add" and action.type.parts == 2 and action.type.is_float and action.space != "global"


def _unpacked_half(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    action = step.action
    if not isinstance(action, Atomic):
        return False
    definition = table.definition(values[1])
    if definition is None:
        return True
    source, position = definition
    is_upper = _is_upper_word(source, position)
    if is_upper is None or table.is_packed(source):
        return True
    whole = source.sources[0]
    function = action.in_window or action.function
    if is_upper:
        run = partial(_add_half, function)
        step.action = replace(action, in_window=run, function=run if action.space == "shared" else action.function)
    elif action.space == "shared" and isinstance(whole, Register) and table.is_unchanged(source, step, whole):
        step.action = replace(action, merges=_merge_half)
        step.sources = (*step.sources, whole)
    else:
        step.doubt = DEPARTURES["atomic sum of an unpacked half"].compiler
    note(kernel, step, "atomic sum of an unpacked half")
    return True


def _is_upper_word(step: DecodedInstruction, position: int) -> bool | None:
    """Whether a result is the upper word of a 64-bit register, or the lower one; None if neither."""
    if step.guard is not None:
        return None
    if step.attributes.opcode == "cvt":
        is_word = [kind.bits for kind in step.attributes.types] == [32, 64] and not step.attributes.types[1].is_float
        return False if is_word else None
    target = step.results[0] if isinstance(step.action, Move) and step.action.type.bits == 64 else None
    if not isinstance(target, VectorOperand) or len(target.items) != 2:
        return None
    kept = [index for index, item in enumerate(target.items) if isinstance(item, Register)]
    return kept[position] == 1 if 0 <= position < len(kept) else None


def _add_half(function: LaneFunction, a: Codes, b: Codes) -> Codes:
    """The sum with the lower half in both halves."""
    low = b & b.dtype.type(0xFFFF)
    result = function(a, low | low << b.dtype.type(16))
    return result[0] if isinstance(result, tuple) else result


def _merge_half(word: Codes, whole: Codes) -> Codes:
    """A word with bits 32 to 47 of a 64-bit value as its upper half."""
    middle = (whole >> np.uint64(32) & np.uint64(0xFFFF)).astype(word.dtype)
    return (word & word.dtype.type(0xFFFF)) | middle << word.dtype.type(16)


def _selection_by_power(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    if step.attributes.opcode != "slct" or step.attributes.types[1] != F32:
        return False
    definition = table.definition(values[2])
    source = definition[0] if definition is not None else None
    if source is None or source.guard is not None or F32 not in source.attributes.types[:1]:
        return False
    if source.attributes.opcode in {"ex2", "abs"} and not step.attributes.ftz:
        replace_function(kernel, step, "selection by a power of 2", first)
        return True
    if source.attributes.opcode in {"ex2", "abs", "sqrt", "rsqrt"}:
        doubt(step, "selection by a power of 2", first)
        return True
    return False


def _packed_abs(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """abs of two halves in a word that ptxas knows as an f32 without a sign."""
    attributes = step.attributes
    if attributes.opcode != "abs" or attributes.types[0].parts != 2:
        return False
    definition = table.definition(values[0])
    if definition is None or definition[0].guard is not None or F32 not in definition[0].attributes.types[:1]:
        return False
    source = definition[0].attributes
    if source.sat or source.opcode in {"ex2", "abs"}:
        kind = attributes.types[0]
        keep = by_parts(kind, lambda a: floats.quiet(floats.flush(a, kind.element), kind.element))
        replace_function(kernel, step, "abs of halves of a positive number", keep if attributes.ftz else first)
        return True
    if source.opcode in {"sqrt", "rsqrt", "set", "cos", "sin", "cvt"}:
        doubt(step, "abs of halves of a positive number", first)
    return False


def _sign_before(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
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
        return np.where(floats.is_nan(code, kind.element), ~code, code)  # any other NaN

    doubt(step, "sign before a selection", run)
    return True


def _low_byte(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    attributes, action = step.attributes, step.action
    is_mask = attributes.opcode == "and" and attributes.types[0].bits == 16
    if not isinstance(action, LaneOp) or not (is_mask or action.sources == (TYPES["u8"],)):
        return False
    definitions = [item for item in map(table.definition, values) if item is not None]
    if not any(
        item[0].attributes.opcode in {"ex2", "tanh"} and item[0].attributes.types == (F16,) and item[0].guard is None
        for item in definitions
    ):
        return False
    name = "low byte of a function of f16"
    if is_mask:
        if any(isinstance(value, Constant) and value.code & 0xFF == 0xFF for value in values):
            doubt(step, name, first)
        return True
    target = action.results[0]
    if target.is_float or attributes.sat:
        step.doubt = DEPARTURES[name].compiler
        return True
    register = step.results[0]
    kind = TYPES[f"b{register.bits}"] if isinstance(register, Register) else target
    step.action = replace(
        action, sources=(B16,), results=(kind,), replaces=name, function=lambda a: a.astype(kind.dtype)
    )
    note(kernel, step, name)
    return True


def _extended_sign(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
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


def _double_negation(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """Doubtful where the result is a NaN."""
    del kernel
    attributes, action = step.attributes, step.action
    if attributes.opcode != "neg" or not isinstance(action, LaneOp) or not attributes.types[0].is_float:
        return False
    definition = table.definition(values[0])
    if definition is None or definition[0].attributes.opcode != "neg" or not definition[0].attributes.types[0].is_float:
        return False
    kind, function = attributes.types[0], action.function
    is_nan = by_parts(kind, lambda a: np.where(floats.is_nan(a, kind.element), ~a, a))

    def run(a: Codes) -> Codes:
        result = function(a)
        return is_nan(result[0] if isinstance(result, tuple) else result)

    doubt(step, "negation of a negation", run)
    return True


def _positive_comparison(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
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


def _joined_conversions(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del kernel
    attributes = step.attributes
    if attributes.opcode != "cvt" or len(attributes.types) != 2 or attributes.types[1] not in {F16, BF16}:
        return False
    definition = table.definition(values[0])
    if definition is None or definition[0].attributes.opcode != "cvt" or not definition[0].attributes.integral:
        return False
    kinds = definition[0].attributes.types
    if kinds[0] in {F16, BF16} and kinds[0] != attributes.types[1]:
        step.doubt = DEPARTURES["conversions between halves joined"].compiler
    return True


def _negated_operand(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
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


def _packed_tf32(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    del kernel
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or attributes.types[0].name != "tf32" or attributes.rounding == "rna":
        return False
    definition = table.definition(values[0])
    kinds = definition[0].attributes.types if definition is not None else ()
    if not kinds or kinds[0].parts != 2 or not isinstance(action, LaneOp):
        return False
    function = action.function

    def run(a: Codes) -> Codes:
        result = function(a & np.uint32(0xFFFF))
        return result[0] if isinstance(result, tuple) else result

    doubt(step, "tf32 of a packed sum", run)
    return True


def _calls_library(step: DecodedInstruction) -> bool:
    """Whether ptxas puts a function of f64 into the code, after which it optimises once more."""
    attributes = step.attributes
    return attributes.opcode in {"sqrt", "div", "rcp"} and attributes.types == (F64,) and attributes.accuracy is None


def _truth_value(step: DecodedInstruction, values: Values, table: ValueTable, *, has_library: bool) -> None:
    """cvt of the result of cnot, or of set to f32: the number 1 may be read where the bits are meant."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or not isinstance(action, LaneOp) or len(values) != 1 or action.replaces:
        return
    definition = table.definition(values[0])
    if definition is None:
        return
    source, kind = definition[0], action.sources[0]
    is_cnot = source.attributes.opcode == "cnot"
    is_set = source.attributes.opcode == "set" and source.attributes.types[0] == F32
    if kind is None or (not (is_cnot and (kind.is_float or attributes.sat)) and not (is_set and not kind.is_float)):
        return
    function, code_of_1 = action.function, CODES_OF_1.get(kind.element, 1)
    target = action.results[0]

    def run(a: Codes) -> Codes:
        if is_cnot and not kind.is_float:  # clamped as the largest integer, with the wrong sign
            code = 1 << (target.bits - 1) if target.kind == "s" else 0
            return np.where(a != 0, target.dtype.type(code), target.dtype.type(0))
        result = function(np.where(a != 0, a.dtype.type(code_of_1 if is_cnot else 1), a.dtype.type(0)))
        return result[0] if isinstance(result, tuple) else result

    if has_library or (is_cnot and not kind.is_float):
        step.action = replace(action, function=run, replaces="conversion of a truth value")
        doubt(step, "conversion of a truth value", function)
    else:
        doubt(step, "conversion of a truth value", run)


VALUE_RULES: dict[str, Callable[..., bool]] = {
    "min and max of equal operands": _equal_operands,
    "product with 1": _product_with_1,
    "function of a constant": _function_of_constant,
    "sign of a constant NaN": _sign_of_constant,
    "selection by a constant": _constant_selector,
    "bfe beyond the word": _beyond_word,
    "bfi of a long field": _long_field,
    "atomic sum of an unpacked half": _unpacked_half,
    "selection by a power of 2": _selection_by_power,
    "abs of halves of a positive number": _packed_abs,
    "sign before a selection": _sign_before,
    "negated operand of mma": _negated_operand,
    "tf32 of a packed sum": _packed_tf32,
    "low byte of a function of f16": _low_byte,
    "sign of 16 bits extended": _extended_sign,
    "negation of a negation": _double_negation,
    "comparison of a positive number with 0": _positive_comparison,
    "conversions between halves joined": _joined_conversions,
}
"""By the name of a departure: what changes a step by the values of its operands, and says whether it did."""
