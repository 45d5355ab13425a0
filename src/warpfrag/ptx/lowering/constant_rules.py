"""What ptxas makes of constants and of equal operands: it computes with them, by rules of its own.

Every rule of `known_values` is given a step, the values of its sources and the table of all; it says whether the step
was one of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.lowering.doubts import MIN_NORMAL_F32
from warpfrag.ptx.lowering.folding import is_left_to_hardware, is_split
from warpfrag.ptx.lowering.replaced_steps import (
    doubt,
    first,
    replace_function,
    replace_where_seen,
    second,
)
from warpfrag.ptx.lowering.uncertain_pairs import BOUNDED
from warpfrag.ptx.lowering.values import Constant, Joined, ValueTable, evaluate
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    LaneOp,
    MemoryLoad,
    MemoryStore,
    Move,
)
from warpfrag.ptx.program.program import Immediate, MemoryOperand, Register
from warpfrag.ptx.program.types import BF16, F16, F32, F64
from warpfrag.ptx.semantics import approximate_functions, floats, folded_functions

if TYPE_CHECKING:
    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.lowering.values import Values
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes, Type

FOLDED = {"sin", "cos", "ex2", "lg2", "rsqrt", "rcp", "sqrt"}
EQUAL_OPERANDS = {"f16", "f32", "f64"}
INFINITE_F32 = 0x7F800000
WHOLE_BYTES = {8, 16, 24}
CODES_OF_1 = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000}


def fold_constants(
    step: DecodedInstruction, action: LaneOp, codes: tuple[int, ...], *, is_late: bool = False
) -> int | None:
    """What ptxas computes of constants when it compiles: all but NaNs and what only hardware has."""
    attributes = step.attributes
    kind = action.results[0]
    if is_left_to_hardware(step, action, codes) and not (is_late and is_split(step, action)):
        return None
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


def constants(values: Values) -> list[int] | None:
    """The codes of values that are all constants; None if one is not."""
    codes = [value.code for value in values if isinstance(value, Constant)]
    return codes if len(codes) == len(values) else None


def equal_operands(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """min and max of equal operands are that operand, as it is."""
    attributes = step.attributes
    if attributes.opcode not in {"min", "max"} or attributes.types[0].name not in EQUAL_OPERANDS or len(values) != 2:
        return False
    if attributes.ftz or attributes.nan or attributes.xorsign or values[0] is None:
        return False
    if values[0] == values[1]:
        replace_function(kernel, step, "min and max of equal operands", first)
        return True
    first_source, second_source = (table.definition(value) for value in values)
    if first_source is None or second_source is None:
        return False
    (left, place), (right, other_place) = first_source, second_source
    is_same_place = left is not right and place == other_place  # of one step, different results are no copies
    if is_same_place and left.name == right.name and left.sources == right.sources:  # equal, if ptxas sees it
        doubt(step, "min and max of equal operands", first)
        return True
    is_loaded = attributes.types[0] == F64 and any(_is_loaded(item) for item in (left, right))
    if (is_loaded or all(_is_parameter(item, table) for item in (left, right))) and isinstance(step.action, LaneOp):
        doubt(step, "min and max of equal operands", partial(_first_of_equal, step.action.function))
        return True
    return False


def _is_loaded(step: DecodedInstruction) -> bool:
    """Whether a step loads what its own thread may have stored."""
    is_unpacked = isinstance(step.action, Move) and step.action.type.bits > F64.bits
    return is_unpacked or (isinstance(step.action, MemoryLoad) and step.action.space in {"shared", "local"})


def _is_parameter(step: DecodedInstruction, table: ValueTable) -> bool:
    """Whether a step loads a parameter, or a part of one."""
    if isinstance(step.action, Move) and isinstance(step.sources[0], Register):
        writer = table.last_writer(table.steps.index(step), step.sources[0])
        return writer is not None and isinstance(writer.action, MemoryLoad) and writer.action.space == "param"
    return isinstance(step.action, MemoryLoad) and step.action.space == "param"


def _first_of_equal(function: LaneFunction, a: Codes, b: Codes) -> Codes:
    result = function(a, b)
    return np.where(a == b, a, result[0] if isinstance(result, tuple) else result)


def product_with_1(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """A product with 1 is the other factor."""
    del table
    attributes, action = step.attributes, step.action
    row = step.row
    if attributes.opcode != "mul" or row is None or not row.may_contract or attributes.ftz or attributes.sat:
        return False
    code = CODES_OF_1.get(attributes.types[0].name)
    if code is None or not isinstance(action, LaneOp) or len(values) != 2:
        return False
    if attributes.types[0] == F32 and constants(values) is not None:
        return False  # which it computes
    for index, function in ((0, second), (1, first)):
        if values[index] == Constant(code):
            replace_function(kernel, step, "product with 1", function)
            return True
    return False


def infinite_product(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """A product of constants, an infinity and a subnormal, that .ftz would make a NaN; a quotient is a product too."""
    del table
    attributes, codes = step.attributes, constants(values)
    is_quotient = attributes.opcode == "div" and attributes.accuracy is not None
    if codes is None or attributes.types != (F32,) or not attributes.ftz or attributes.rounding is not None:
        return False
    if is_quotient:
        arrays = [np.full((1, 1), code, np.uint32) for code in codes]
        full = attributes.accuracy == "full"
        factors = approximate_functions.quotient_factors(*arrays, full=full, ftz=True, unit=folded_functions)
        codes = [int(factor.item()) for factor in factors]
    elif attributes.opcode != "mul":
        return False
    small, large = sorted(code & 0x7FFFFFFF for code in codes)
    if not 0 < small < MIN_NORMAL_F32 or large != INFINITE_F32:
        return False
    sign = (codes[0] ^ codes[1]) & 0x80000000
    clamped = 0 if sign else CODES_OF_1["f32"]
    code = np.uint32(clamped if attributes.sat else sign | INFINITE_F32)
    replace_function(kernel, step, "infinity times a subnormal", lambda a, _: np.full(a.shape, code, np.uint32))
    return True


def function_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """An approximate function of a constant is computed by the compiler."""
    if step.attributes.accuracy is None or not isinstance(step.action, LaneOp) or step.action.fused is not None:
        return False
    function = _folded_function(step)
    if function is None:
        return False
    if not isinstance(values[-1], Constant):
        writers = table.writers(values[-1], is_carried=True)
        if isinstance(values[-1], Joined):
            writers = [writer for writer in writers if table.is_same_loop(writer, step)]
        if any(_may_be_constant(writer, table) and not _is_selected(writer, table) for writer in writers):
            doubt(step, "function of a constant", function)
        return False
    if step.attributes.opcode != "div" and fold_constants(step, step.action, (values[-1].code,)) is None:
        return False
    if step.attributes.opcode == "lg2" and step.attributes.ftz and 0 < values[-1].code & 0x7FFFFFFF < MIN_NORMAL_F32:
        return False  # it is left to the hardware
    if step.attributes.opcode == "div" and values[-1].code == CODES_OF_1["f32"] and not step.attributes.ftz:
        function = first
    replace_where_seen(kernel, step, "function of a constant", function, is_sure=not _is_computed_far(step, table))
    return True


def _is_computed_far(step: DecodedInstruction, table: ValueTable) -> bool:
    """Whether a function of another block left the constant: ptxas may know that only when it looks again."""
    at, source = table.place(step), step.sources[-1]
    writer = table.last_writer(at, source) if isinstance(source, Register) else None
    return writer is not None and writer.attributes.accuracy is not None and table.ends[table.place(writer)] <= at


def _may_be_constant(step: DecodedInstruction, table: ValueTable) -> bool:
    """Whether ptxas may compute a step when it looks again: its operands are constants, or too small to count."""
    if isinstance(step.action, MemoryLoad):
        return _loads_constant(step, table)
    if not isinstance(step.action, LaneOp) or not step.sources:
        return False
    unknown = [source for source in step.sources if not isinstance(source, Immediate)]
    is_sum = step.attributes.opcode in {"add", "sub"} and F32 in step.attributes.types
    for source in unknown:
        at = next(index for index, other in enumerate(table.steps) if other is step)
        writer = table.last_writer(at, source) if isinstance(source, Register) else None
        is_constant = writer is not None and all(isinstance(item, Immediate) for item in writer.sources)
        is_bounded = writer is not None and (writer.attributes.opcode in BOUNDED or writer.attributes.sat)
        if writer is None or not (is_constant or (is_sum and is_bounded and len(unknown) < len(step.sources))):
            return False
    return True


def _is_selected(step: DecodedInstruction, table: ValueTable) -> bool:
    """Whether a guard that is not known decides on a step: ptxas selects, and computes nothing of the selection."""
    at = next(index for index, other in enumerate(table.steps) if other is step)
    guard = table.last_writer(at, step.guard) if step.guard is not None else None
    sources = [item for item in guard.sources if isinstance(item, Register)] if guard is not None else []
    writers = [table.last_writer(at, source) for source in sources]
    return any(writer is not None and not _is_known(writer) for writer in writers)


def _is_known(step: DecodedInstruction) -> bool:
    return bool(step.sources) and all(isinstance(source, Immediate) for source in step.sources)


def _loads_constant(step: DecodedInstruction, table: ValueTable) -> bool:
    """Whether a step of a function loads an argument that every caller but the function itself writes as a constant."""
    place = step.sources[0]
    arguments = {copy.source for other in table.steps for copy in other.copies if copy.target == place}
    outside = {item for item in arguments if isinstance(item, MemoryOperand) and item.base is None}
    stores = [other for other in table.steps if isinstance(other.action, MemoryStore) and other.sources[0] in outside]
    return bool(stores) and all(isinstance(other.sources[-1], Immediate) for other in stores)


def sign_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """abs and neg of a constant, and its conversion from f64 to 16 bits."""
    attributes, action = step.attributes, step.action
    codes = constants(values)
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
    source, at = step.sources[0], next(index for index, other in enumerate(table.steps) if other is step)
    writer = table.last_writer(at, source) if isinstance(source, Register) else None
    is_moved = writer is not None and isinstance(writer.action, Move) and isinstance(writer.sources[0], Immediate)
    is_sure = not attributes.ftz or writer is None or is_moved
    replace_where_seen(kernel, step, "sign of a constant NaN", function, is_sure=is_sure)
    return True


def constant_selector(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """slct.s32.s32 reads a constant selector as an f32."""
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


def beyond_word(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """bfe.s32 of a field that starts behind the word."""
    del table
    if step.attributes.opcode != "bfe" or step.attributes.types[0].name != "s32":
        return False
    codes = constants(values[1:])
    if codes is None or isinstance(values[0], Constant) or codes[0] & 0xFF < 32 or not codes[1] & 0xFF:
        return False
    replace_function(kernel, step, "bfe beyond the word", lambda a, *_: np.full(a.shape, 0xFFFFFFFF, np.uint32))
    return True


def long_field(kernel: KernelLowering, step: DecodedInstruction, values: Values, table: ValueTable) -> bool:
    """bfi.b32 of a field that is longer than a word."""
    del table
    if step.attributes.opcode != "bfi" or step.attributes.types[0].bits != 32 or not isinstance(step.action, LaneOp):
        return False
    codes = constants(values[2:])
    if codes is None or constants(values) is not None or not 0 < codes[0] & 0xFF < 32 or codes[1] & 0xFF < 32:
        return False
    if codes[0] & 0xFF in WHOLE_BYTES:  # bytes are moved
        return False
    function = step.action.function

    def run(a: Codes, b: Codes, position: Codes, length: Codes) -> Codes:
        result = function(a, b, position, length & np.uint32(31))
        return result[0] if isinstance(result, tuple) else result

    if isinstance(values[1], Constant):  # of which ptxas may make a sum
        doubt(step, "bfi of a long field", run)
    else:
        replace_function(kernel, step, "bfi of a long field", run)
    return True
