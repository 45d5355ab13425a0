"""Where ptxas departs from the manual of PTX, and the passes that make a program do what its code does.

`DEPARTURES` has a row for each: which versions do it, what the manual says, what the compiler does, how that is known.
A function of `RULES` finds the steps that a row concerns and gives them another action, so that both engines run what
the GPU would. Where the text does not tell which code ptxas makes, the step keeps its action and gets a second one,
`alternative`: it is inexact where the two give different results, and only there.

The rules were read from the code that ptxas 12.9, 13.0 and 13.4 make for sm_90, and their results compared with an H200.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from warpfrag.ptx.lowering.values import Constant, ValueTable, evaluate
from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.program.actions import (
    Alternative,
    AsyncCopy,
    Atomic,
    Branch,
    LaneOp,
    MatrixOp,
    MemoryLoad,
    MemoryStore,
    Move,
    WarpCollective,
    WarpWait,
)
from warpfrag.ptx.program.program import Immediate, Register, VectorOperand, block_ends, registers_of
from warpfrag.ptx.program.types import B16, B32, BF16, F16, F32, F64, PRED, TYPES, container
from warpfrag.ptx.semantics import approximate_functions, conversions, floats, folded_functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.lowering.statements import KernelLowering
    from warpfrag.ptx.program.actions import LaneFunction
    from warpfrag.ptx.program.program import DecodedInstruction
    from warpfrag.ptx.program.types import Codes, Type

CompilerVersion = Literal["12.9", "13.0", "13.4"]
VERSIONS: tuple[CompilerVersion, ...] = get_args(CompilerVersion)
OLDER: tuple[CompilerVersion, ...] = ("12.9", "13.0")
DEFAULT: CompilerVersion = "13.0"
"""The compiler in the driver of the H200 that all was measured on."""


class Departure(NamedTuple):
    """One departure; `warns` where a program that follows the manual is compiled to another one."""

    name: str
    versions: tuple[CompilerVersion, ...]
    manual: str
    compiler: str
    source: str
    warns: bool = True


READ = "the code of ptxas 12.9, 13.0 and 13.4 for sm_90; an H200"
DEPARTURES = {
    row.name: row
    for row in (
        Departure(
            "guarded set", VERSIONS,
            "a guard that is false leaves d as it was",
            "the guard of set covers only its comparison: where it is false, d is converted from an integer to a float"
            " without its sign, or with operands of 16 bits extended from its lower half",
            READ,
        ),
        Departure(
            "guarded testp", VERSIONS,
            "a guard that is false leaves p as it was", "the guard of testp is ignored", READ,
        ),
        Departure(
            "guarded sum of bytes", VERSIONS,
            "a guard that is false leaves d as it was",
            "the guard of vadd4 and vsub4 with .add is ignored where all types are u32", READ,
        ),
        Departure(
            "long shift of 16 bits", VERSIONS,
            "an amount beyond the width shifts all bits out",
            "of an amount that is written as a number, shl and shr of 16 bits take the low 16 bits", READ,
        ),
        Departure(
            "selection by a written number", OLDER,
            "slct.s32 takes a where c is not negative", "where c is written as a number, its bits are read as an f32",
            READ,
        ),
        Departure(
            "float shift amount", VERSIONS,
            "the amount of a shift is an integer of 32 bits",
            "an amount that a float instruction of the same block left is converted from f32 to an integer", READ,
        ),
        Departure(
            "narrow store of a float", OLDER,
            "a store that is narrower than its register stores the low bits",
            "a value that a float instruction of the same block left is converted to an integer, and clamped", READ,
        ),
        Departure(
            "bfe beyond the word", VERSIONS,
            "bits beyond the word are the sign bit of the word",
            "bfe.s32 with a constant position of 32 or more and a constant length is -1", READ,
        ),
        Departure(
            "bfi of a long field", OLDER,
            "a length beyond the word goes to its end",
            "bfi.b32 with a constant position that is not 0 takes the length modulo 32", READ,
        ),
        Departure(
            "atomic sum of an unpacked half", VERSIONS,
            "both halves of a and b are added",
            "in shared memory, if the operand is a word of a 64-bit value, the upper half adds bits 32 to 47 of that",
            READ,
        ),
        Departure(
            "guarded abs and neg", VERSIONS,
            "abs and neg of f32 make a NaN canonical", "under a guard they change the sign of a NaN and keep its bits",
            READ, warns=False,
        ),
        Departure(
            "min and max of equal operands", VERSIONS,
            "min and max make a NaN canonical", "min and max of a value with itself are that value", READ, warns=False,
        ),
        Departure(
            "product with 1", VERSIONS,
            "a product makes a NaN canonical", "a product with 1 that says nothing about rounding is the other factor",
            READ, warns=False,
        ),
        Departure(
            "function of a constant", VERSIONS,
            "approximate functions are those of the hardware",
            "of a constant they are computed by the compiler, rounded to nearest", READ, warns=False,
        ),
        Departure(
            "sign of a constant NaN", VERSIONS,
            "abs and neg make a NaN canonical, a conversion from f64 keeps its payload",
            "abs and neg of a constant NaN keep its payload, and its conversion from f64 to 16 bits is canonical",
            READ, warns=False,
        ),
        Departure(
            "conversion of a truth value", VERSIONS,
            "cvt reads the bits of its operand",
            "of the result of cnot, or of set to f32, cvt to or from another kind of number may read the number 1",
            READ, warns=False,
        ),
        Departure(
            "sign before a selection", VERSIONS,
            "abs and neg of f32 make a NaN canonical",
            "a selection or a conversion that uses their result may take the NaN as it was", READ, warns=False,
        ),
        Departure(
            "selection by a power of 2", VERSIONS,
            "slct takes b where c is a NaN", "where c is the result of ex2 or abs, it takes a", READ,
        ),
        Departure(
            "abs of halves of a positive number", VERSIONS,
            "abs of two halves clears the signs of both",
            "it is dropped where the word is the result of an instruction on f32 that is never negative", READ,
        ),
        Departure(
            "low byte of a function of f16", VERSIONS,
            "a conversion from u8 reads 8 bits",
            "of the result of ex2 or tanh of f16 it reads all 16, and a mask that keeps the low byte keeps all", READ,
        ),
        Departure(
            "sign of 16 bits extended", OLDER,
            "neg and abs of the smallest s16 are that number",
            "an instruction that extends the result to 32 bits reads 32768", READ,
        ),
        Departure(
            "negation of a negation", VERSIONS,
            "neg makes a NaN canonical", "neg of the result of neg is the operand of the first, its bits unchanged",
            READ, warns=False,
        ),
        Departure(
            "comparison of a positive number with 0", VERSIONS,
            "a comparison with a NaN does not hold", "of the result of abs or ex2, it may be taken as a number", READ,
        ),
        Departure(
            "conversions between halves joined", VERSIONS,
            "cvt rounds to an integral bf16, then from f16 to an integer",
            "a cvt that rounds to integral numbers and one that reads them as another format may become one", READ,
        ),
        Departure(
            "tf32 of a packed sum", VERSIONS,
            "cvt reads 32 bits", "of a result of two halves, cvt.rn and cvt.rz to tf32 may read the lower half alone",
            READ, warns=False,
        ),
        Departure(
            "predicate of a loop", OLDER,
            "a predicate has the value that was written last",
            "a predicate that is true where a loop is entered and that the loop changes by a logical operation on itself"
            " may be taken as still true",
            READ,
        ),
    )
}  # fmt: skip


def depart(kernel: KernelLowering) -> None:
    """The steps do what the code does that a version of ptxas makes of them."""
    for name, rule in RULES.items():
        if kernel.compiler in DEPARTURES[name].versions:
            rule(kernel)
    if not kernel.source.is_debug:
        _guarded_sign(kernel)
        _fold_values(kernel)


def _note(kernel: KernelLowering, step: DecodedInstruction, name: str) -> None:
    kernel.departures[step.line, name] = step.text


def _replace(kernel: KernelLowering, step: DecodedInstruction, name: str, function: LaneFunction) -> None:
    """Give a step the function of a departure."""
    if isinstance(step.action, LaneOp):
        step.action = replace(step.action, function=function, nan_choice=None, replaces=name)
        _note(kernel, step, name)


def _doubt(step: DecodedInstruction, name: str, alternative: LaneFunction) -> None:
    """A step may have another result: it is inexact where that differs."""
    if isinstance(step.action, LaneOp):
        reason = f"{DEPARTURES[name].compiler}: which ptxas does depends on the code around it"
        step.action = replace(step.action, alternative=Alternative(alternative, reason))


# --- guards


def _guarded_set(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        action = step.action
        if step.guard is None or step.attributes.opcode != "set" or not isinstance(action, LaneOp):
            continue
        target, kind = step.attributes.types
        if kind.parts != 1 or target.bits < 32 and not target.is_float or (not target.is_float and kind.bits != 16):
            continue
        function = action.function

        def run(
            *codes: Codes, function: LaneFunction = function, target: Type = target, narrow: bool = kind.bits == 16
        ) -> Codes:
            *operands, old, guard = codes
            held = function(*operands)
            return np.where(guard, held, _unguarded(old, target, narrow=narrow))

        register = B16 if target.bits == 16 else B32
        step.action = replace(
            action, sources=(*action.sources, register, PRED), function=run, replaces="guarded set"
        )
        step.sources = (*step.sources, step.results[0], step.guard)
        step.guard = None
        _note(kernel, step, "guarded set")


def _unguarded(old: Codes, target: Type, *, narrow: bool) -> Codes:
    """What set leaves of d where its guard is false."""
    source = TYPES["s16"] if narrow else TYPES["s32"]
    code = old.astype(container(source.bits)).view(f"i{source.bits // 8}")
    if not target.is_float:
        return code.astype(np.int32).view(np.uint32)
    with np.errstate(over="ignore"):
        size = np.abs(code)
    unsigned = size.view(container(source.bits))
    return conversions.integer_to_float(unsigned, source, target.element, "rn")


def _guarded_testp(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        if step.guard is not None and step.attributes.opcode == "testp":
            step.guard = None
            _note(kernel, step, "guarded testp")


def _guarded_byte_sum(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        attributes = step.attributes
        is_sum = attributes.opcode in {"vadd4", "vsub4"} and attributes.accumulate
        if is_sum and step.guard is not None and {kind.name for kind in attributes.types} == {"u32"}:
            step.guard = None
            _note(kernel, step, "guarded sum of bytes")


def _written_selector(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        attributes = step.attributes
        if attributes.opcode == "slct" and attributes.types[1].name == "s32" and isinstance(step.sources[2], Immediate):
            code = np.full((1, 1), step.sources[2].code(attributes.types[1]), np.uint32)
            takes_a = bool(floats.compare("f32", "ge", code, np.zeros_like(code)).all())
            _replace(kernel, step, "selection by a written number", _first if takes_a else _second)


def _long_shift(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        attributes, amount = step.attributes, step.sources[-1] if step.sources else None
        if attributes.opcode not in {"shl", "shr"} or attributes.types[0].bits != 16 or not isinstance(amount, Immediate):
            continue
        code = amount.code(TYPES["u32"])
        if code > 0xFFFF:
            step.sources = (step.sources[0], Immediate(code & 0xFFFF))
            _note(kernel, step, "long shift of 16 bits")


def _guarded_sign(kernel: KernelLowering) -> None:
    for step in kernel.steps:
        attributes = step.attributes
        if step.guard is None or attributes.opcode not in {"abs", "neg"} or attributes.types != (F32,):
            continue
        if not attributes.ftz:
            _replace(kernel, step, "guarded abs and neg", _sign_bits(attributes.opcode, F32))


def _sign_bits(opcode: str, kind: Type) -> LaneFunction:
    return by_parts(kind, floats.magnitude_of if opcode == "abs" else floats.negate)


# --- values of float instructions in integer instructions

UNTYPED = {
    *(f"{name}.approx.f32" for name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "div")),
    "div.full.f32", "div.full.ftz.f32", "copysign.f32", "copysign.f64", "cvt.ftz.f64.f32",
    *(f"cvt.{mode}.ftz{sat}.f32.f64" for mode in ("rn", "rz", "rm", "rp") for sat in ("", ".sat")),
    "cvt.rna.tf32.f32", "cvt.rna.satfinite.tf32.f32",
}  # fmt: skip
"""Float instructions that are sequences: nothing remembers that their result is a float."""
SEQUENCES = {
    "div", "rem", "bar", "barrier", "membar", "fence", "shfl", "vote", "match", "redux", "activemask", "nanosleep",
    "mma", "wmma", "movmatrix", "ldmatrix", "stmatrix", "pmevent", "trap", "griddepcontrol", "call",
}  # fmt: skip
"""Opcodes that begin a block of their own, wherever they stand."""
WIDE_SEQUENCES = {"bfe", "bfi", "bfind", "brev"}
"""Those that do with 64 bits."""


def _begins_block(step: DecodedInstruction) -> bool:
    """Whether ptxas sees a new block behind a step, although no label and no branch is there."""
    attributes = step.attributes
    name = attributes.opcode
    kind = attributes.types[-1] if attributes.types else None
    if name == "div" and (attributes.accuracy == "full" or (attributes.accuracy == "approx" and attributes.ftz)):
        return False
    if name in SEQUENCES or isinstance(step.action, MatrixOp | WarpCollective | WarpWait):
        return name != "elect"
    if name in WIDE_SEQUENCES:
        return kind is not None and kind.bits == 64
    if name in {"rcp", "sqrt"} and attributes.accuracy is None:
        return True
    if name in {"ex2", "lg2", "rcp", "rsqrt", "sqrt"} and kind == F32:
        return not attributes.ftz
    if name == "rsqrt":
        return kind == F64 and not attributes.ftz
    return name == "mov" and step.text.endswith(("%clock", "%clock64", "%clock_hi", "%globaltimer"))


def _float_type(step: DecodedInstruction) -> Type | None:
    """The float type that ptxas remembers of the result of a step."""
    attributes = step.attributes
    if attributes.name in UNTYPED or not attributes.types:
        return None
    if attributes.opcode in {"setp", "testp", "st", "red"}:
        return None
    kind = attributes.types[0]
    if kind.name == "tf32":
        return F32
    if kind == BF16 and attributes.opcode not in {"add", "sub", "mul", "ex2", "tanh"}:
        return F16  # which is what the store then converts from
    return kind if kind.is_float and kind.parts == 1 else None


def _each_typed(kernel: KernelLowering, rule: Callable[[DecodedInstruction, dict[int, Type]], None]) -> None:
    """Call a rule for each step with the registers that hold results of float instructions of its block."""
    known: dict[int, Type] = {}
    for at, step in enumerate(kernel.steps):
        is_apart = step.guard is not None and isinstance(step.action, MemoryLoad | MemoryStore | Atomic | AsyncCopy)
        if at in kernel.leaders or is_apart:  # a guarded access of memory is a block of its own
            known = {}
        rule(step, known)
        if _begins_block(step) or step.action.ends_block:
            known = {}
        kind = None if is_apart else _float_type(step)
        for register in (item for operand in step.results for item in registers_of(operand)):
            known.pop(register.index, None)
            if kind is not None and kind.bits == register.bits:
                known[register.index] = kind


def _float_shift(kernel: KernelLowering) -> None:
    def rule(step: DecodedInstruction, known: dict[int, Type]) -> None:
        action = step.action
        if step.attributes.opcode not in {"shl", "shr"} or not isinstance(action, LaneOp) or len(step.sources) != 2:
            return
        amount, kind = step.sources[1], step.attributes.types[0]
        if kind.bits != 64 or not isinstance(amount, Register) or known.get(amount.index) != F32:
            return
        function = action.function
        counts = TYPES["s64" if kind.kind == "s" else "u64"]

        def run(a: Codes, b: Codes) -> Codes:
            count = conversions.float_to_integer(b, "f32", counts, "rzi", ftz=False)
            result = function(a, count.astype(np.uint32))
            return result[0] if isinstance(result, tuple) else result

        _replace(kernel, step, "float shift amount", run)

    _each_typed(kernel, rule)


def _narrow_store(kernel: KernelLowering) -> None:
    converted: set[int] = set()  # registers whose value a cvt between floats left

    def rule(step: DecodedInstruction, known: dict[int, Type]) -> None:
        action = step.action
        for register in (item for operand in step.results for item in registers_of(operand)):
            converted.discard(register.index)
            if step.attributes.opcode == "cvt" and all(kind.is_float for kind in step.attributes.types):
                converted.add(register.index)
        if not isinstance(action, MemoryStore) or action.count != 1 or len(step.sources) < 2 or step.guard is not None:
            return
        value = step.sources[1]
        if not isinstance(value, Register) or value.bits <= action.type.bits or action.type.is_float:
            return
        kind = known.get(value.index)
        if kind is None:
            return
        target = TYPES[f"{'s' if action.type.kind == 's' else 'u'}{action.type.bits}"]
        convert = partial(_to_integer, kind.element, target)
        if value.index in converted:
            step.doubt = "ptxas joins the conversion to an integer with a cvt before it, and rounds otherwise"
        step.action = replace(action, converts=(kind, convert))
        _note(kernel, step, "narrow store of a float")

    _each_typed(kernel, rule)


def _to_integer(element: str, target: Type, codes: Codes) -> Codes:
    return conversions.float_to_integer(codes, element, target, "rzi", ftz=False)


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
    elif attributes.opcode == "cvt" and action.sources == (F64,) and kind in {F16, BF16}:
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
    if not isinstance(action, LaneOp) or action.replaces:
        return False
    return (
        action.nan_choice is not None
        or attributes.accuracy is not None
        or attributes.opcode in {"abs", "neg", "min", "max", "bfe", "bfi", "slct", "cvt", "selp", "setp", "set", "and"}
        or TYPES["s16"] in action.sources
        or (step.row is not None and step.row.may_contract and attributes.opcode == "mul")
    )


def _fold_values(kernel: KernelLowering) -> None:
    """Apply the rules that depend on what ptxas knows of the values of operands."""
    wanted = {at for at, step in enumerate(kernel.steps) if _wants_values(step)}
    if not wanted:
        return
    ends = block_ends(kernel.steps, kernel.leaders)
    table = ValueTable(kernel.steps, kernel.leaders, ends, wanted, _fold_constants)
    has_library = any(_calls_library(step) or _goes_back(at, step) for at, step in enumerate(kernel.steps))
    for at in sorted(wanted):
        step = kernel.steps[at]
        values = table.operands(at)
        for name, rule in VALUE_RULES.items():
            if kernel.compiler in DEPARTURES[name].versions and rule(kernel, step, values, table):
                break
        else:
            _truth_value(step, values, table, has_library=has_library)
            _name_constants(step, values)


def _name_constants(step: DecodedInstruction, values: tuple[object, ...]) -> None:
    """An operand of f64 that is a constant is one as if it were written so: that decides whose NaN stays."""
    if isinstance(step.action, LaneOp) and step.action.nan_choice is not None:
        step.sources = tuple(
            Immediate(value.code) if isinstance(value, Constant) else source
            for source, value in zip(step.sources, values, strict=True)
        )


def _constants(values: tuple[object, ...]) -> list[int] | None:
    codes = [value.code for value in values if isinstance(value, Constant)]
    return codes if len(codes) == len(values) else None


def _equal_operands(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    attributes = step.attributes
    if attributes.opcode not in {"min", "max"} or attributes.types[0].name not in EQUAL_OPERANDS or len(values) != 2:
        return False
    if attributes.ftz or attributes.nan or attributes.xorsign or values[0] is None or values[0] != values[1]:
        return False
    _replace(kernel, step, "min and max of equal operands", _first)
    return True


def _first(a: Codes, *_others: Codes) -> Codes:
    return a


def _second(_a: Codes, b: Codes, *_others: Codes) -> Codes:
    return b


def _product_with_1(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    attributes, action = step.attributes, step.action
    row = step.row
    if attributes.opcode != "mul" or row is None or not row.may_contract or attributes.ftz or attributes.sat:
        return False
    code = CODES_OF_1.get(attributes.types[0].name)
    if code is None or not isinstance(action, LaneOp) or len(values) != 2:
        return False
    for index, function in ((0, _second), (1, _first)):
        if values[index] == Constant(code):
            _replace(kernel, step, "product with 1", function)
            return True
    return False


def _function_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    if step.attributes.accuracy is None or not isinstance(step.action, LaneOp) or step.action.fused is not None:
        return False
    function = _folded_function(step)
    if function is None or not isinstance(values[-1], Constant):
        return False
    if step.attributes.opcode != "div" and _fold_constants(step, step.action, (values[-1].code,)) is None:
        return False
    _replace(kernel, step, "function of a constant", function)
    return True


def _sign_of_constant(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    attributes, action = step.attributes, step.action
    codes = _constants(values)
    if codes is None or not isinstance(action, LaneOp):
        return False
    if attributes.opcode == "cvt" and action.sources == (F64,) and action.results[0] in {F16, BF16}:
        _replace(kernel, step, "sign of a constant NaN", _canonical(action.function, action.results[0]))
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
    _replace(kernel, step, "sign of a constant NaN", function)
    return True


def _beyond_word(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    if step.attributes.opcode != "bfe" or step.attributes.types[0].name != "s32":
        return False
    codes = _constants(values[1:])
    if codes is None or codes[0] & 0xFF < 32 or not codes[1] & 0xFF:
        return False
    _replace(kernel, step, "bfe beyond the word", lambda a, b, c: np.full(a.shape, 0xFFFFFFFF, np.uint32))
    return True


def _long_field(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    del table
    if step.attributes.opcode != "bfi" or step.attributes.types[0].bits != 32 or not isinstance(step.action, LaneOp):
        return False
    codes = _constants(values[2:])
    if codes is None or not 0 < codes[0] & 0xFF < 32 or codes[1] & 0xFF < 32:
        return False
    function = step.action.function

    def run(a: Codes, b: Codes, position: Codes, length: Codes) -> Codes:
        result = function(a, b, position, length & np.uint32(31))
        return result[0] if isinstance(result, tuple) else result

    _replace(kernel, step, "bfi of a long field", run)
    return True


def _adds_halves(action: Atomic) -> bool:
    return action.name == "add" and action.type.parts == 2 and action.type.is_float and action.space != "global"


def _unpacked_half(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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
    _note(kernel, step, "atomic sum of an unpacked half")
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


def _selection_by_power(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
    if step.attributes.opcode != "slct" or step.attributes.types[1] != F32:
        return False
    definition = table.definition(values[2])
    source = definition[0] if definition is not None else None
    if source is None or source.guard is not None or F32 not in source.attributes.types[:1]:
        return False
    if source.attributes.opcode in {"ex2", "abs"} and not step.attributes.ftz:
        _replace(kernel, step, "selection by a power of 2", _first)
        return True
    if source.attributes.opcode in {"ex2", "abs", "sqrt", "rsqrt"}:
        _doubt(step, "selection by a power of 2", _first)
        return True
    return False


def _packed_abs(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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
        _replace(kernel, step, "abs of halves of a positive number", keep if attributes.ftz else _first)
        return True
    if source.opcode in {"sqrt", "rsqrt", "set", "cos", "sin", "cvt"}:
        _doubt(step, "abs of halves of a positive number", _first)
    return False


def _sign_before(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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

    _doubt(step, "sign before a selection", run)
    return True


def _low_byte(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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
            _doubt(step, name, _first)
        return True
    target = action.results[0]
    if target.is_float or attributes.sat:
        step.doubt = DEPARTURES[name].compiler
        return True
    register = step.results[0]
    kind = TYPES[f"b{register.bits}"] if isinstance(register, Register) else target
    step.action = replace(action, sources=(B16,), results=(kind,), replaces=name, function=lambda a: a.astype(kind.dtype))
    _note(kernel, step, name)
    return True


def _extended_sign(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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

    _doubt(step, "sign of 16 bits extended", run)
    return True


def _double_negation(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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

    _doubt(step, "negation of a negation", run)
    return True


def _positive_comparison(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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

    _doubt(step, "comparison of a positive number with 0", run)
    return True


def _joined_conversions(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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


def _packed_tf32(kernel: KernelLowering, step: DecodedInstruction, values: tuple, table: ValueTable) -> bool:  # type: ignore[type-arg]
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

    _doubt(step, "tf32 of a packed sum", run)
    return True


def _calls_library(step: DecodedInstruction) -> bool:
    """Whether ptxas puts a function of f64 into the code, after which it optimises once more."""
    attributes = step.attributes
    return attributes.opcode in {"sqrt", "div", "rcp"} and attributes.types == (F64,) and attributes.accuracy is None


def _goes_back(at: int, step: DecodedInstruction) -> bool:
    """Whether a step ends a loop."""
    return isinstance(step.action, Branch) and any(target <= at for target in step.targets)


def _loop_predicate(kernel: KernelLowering) -> None:
    """Doubt a predicate that a loop changes by a logical operation on itself, where a branch before looked at it."""
    looked: dict[int, int] = {}  # the first branch that each predicate guards
    for at, step in enumerate(kernel.steps):
        if isinstance(step.action, Branch) and step.guard is not None:
            looked.setdefault(step.guard.index, at)
    for end, step in enumerate(kernel.steps):
        if not _goes_back(end, step):
            continue
        start = min(step.targets)
        for inner in kernel.steps[start:end]:
            results = {register.index for operand in inner.results for register in registers_of(operand)}
            sources = {source.index for source in inner.sources if isinstance(source, Register) and source.bits == 1}
            if any(looked.get(index, end) < start for index in results & sources):
                inner.doubt = DEPARTURES["predicate of a loop"].compiler
                _note(kernel, inner, "predicate of a loop")


def _truth_value(
    step: DecodedInstruction, values: tuple[object, ...], table: ValueTable, *, has_library: bool
) -> None:
    """cvt of the result of cnot, or of set to f32: the number 1 may be read where the bits are meant."""
    attributes, action = step.attributes, step.action
    if attributes.opcode != "cvt" or not isinstance(action, LaneOp) or len(values) != 1 or action.replaces:
        return
    definition = table.definition(values[0])  # type: ignore[arg-type]
    if definition is None:
        return
    source, kind = definition[0], action.sources[0]
    is_cnot = source.attributes.opcode == "cnot"
    is_set = source.attributes.opcode == "set" and source.attributes.types[0] == F32
    if kind is None or not (is_cnot and (kind.is_float or attributes.sat)) and not (is_set and not kind.is_float):
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
        _doubt(step, "conversion of a truth value", function)
    else:
        _doubt(step, "conversion of a truth value", run)


RULES: dict[str, Callable[[KernelLowering], None]] = {
    "guarded set": _guarded_set,
    "guarded testp": _guarded_testp,
    "guarded sum of bytes": _guarded_byte_sum,
    "long shift of 16 bits": _long_shift,
    "selection by a written number": _written_selector,
    "float shift amount": _float_shift,
    "narrow store of a float": _narrow_store,
    "predicate of a loop": _loop_predicate,
}
"""By the name of a departure: what finds its steps by their text and their block."""
VALUE_RULES: dict[str, Callable[..., bool]] = {
    "min and max of equal operands": _equal_operands,
    "product with 1": _product_with_1,
    "function of a constant": _function_of_constant,
    "sign of a constant NaN": _sign_of_constant,
    "bfe beyond the word": _beyond_word,
    "bfi of a long field": _long_field,
    "atomic sum of an unpacked half": _unpacked_half,
    "selection by a power of 2": _selection_by_power,
    "abs of halves of a positive number": _packed_abs,
    "sign before a selection": _sign_before,
    "tf32 of a packed sum": _packed_tf32,
    "low byte of a function of f16": _low_byte,
    "sign of 16 bits extended": _extended_sign,
    "negation of a negation": _double_negation,
    "comparison of a positive number with 0": _positive_comparison,
    "conversions between halves joined": _joined_conversions,
}
"""By the name of a departure: what changes a step by the values of its operands, and says whether it did."""
