"""Opcode rows for float instructions: rounded, bitwise and approximate."""

from functools import partial

import numpy as np

from warpfrag.formats import special_functions
from warpfrag.machine.ir.actions import CodeFunction, LaneOp
from warpfrag.machine.ir.opcode import Attributes, Binder, Modifier, OpcodeRow, Types
from warpfrag.machine.ir.scalar_types import F32, F32X2, F64, PRED, Codes, types_of
from warpfrag.machine.ops.integer import by_parts
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics import approximate_functions, floats
from warpfrag.machine.semantics.conversions import float_to_float
from warpfrag.machine.semantics.floats import FloatModifiers

ISA = "PTX ISA, Floating Point Instructions; IEEE 754"
HALF = "PTX ISA, Half Precision Floating Point Instructions; IEEE 754"
UNIT = "the special function unit of an H200; instruction sequences of ptxas for sm_90"
EVERY = 1 << 32
F16S, BF16S = types_of("f16 f16x2"), types_of("bf16 bf16x2")
HALVES = (*F16S, *BF16S)
FTZ, SAT = optional("ftz"), optional("sat")
ROUNDED, NEAREST = required("rn", "rz", "rm", "rp"), required("rn")
APPROX = required("approx")


def style_of(attributes: Attributes) -> FloatModifiers:
    """Return the rounding and clamping modifiers of a float instruction."""
    return FloatModifiers(
        attributes.rounding or "rn",
        ftz=attributes.ftz,
        sat=attributes.sat,
        relu=attributes.relu,
        nan=attributes.nan,
        xorsign_abs=attributes.xorsign,
        abs=attributes.abs,
    )


NAN_ORDERS = {"div": (0, 1), "fma": (1, 2, 0), "mad": (1, 2, 0)}
"""The order in which f64 operations search their operands for a NaN to return; (1, 0) for all others."""


def nan_order(attributes: Attributes) -> tuple[int, ...]:
    """Return the order in which an f64 operation searches its operands for a NaN; empty for other types."""
    if attributes.types != (F64,) or attributes.opcode in {"rcp", "sqrt"}:
        return ()
    return NAN_ORDERS.get(attributes.opcode, (1, 0))


def rounded(count: int, function: CodeFunction) -> Binder:
    """Return a binder for an operation on `count` sources of the same type; packed parts are rounded separately."""

    def make(attributes: Attributes) -> LaneOp:
        ptx_type = attributes.types[-1]
        run = by_parts(ptx_type, partial(function, ptx_type.element, style_of(attributes)))
        return LaneOp((ptx_type,), (ptx_type,) * count, run, nan_order=nan_order(attributes))

    return make


def _mixed(count: int, function: CodeFunction) -> Binder:
    """Return a binder for f32 add, sub and fma whose sources, except the last, are f16 or bf16."""

    def make(attributes: Attributes) -> LaneOp:
        wide, narrow = attributes.types

        def run(*codes: Codes) -> Codes:
            widened = [float_to_float(code, narrow.element, "f32", FloatModifiers()) for code in codes[: count - 1]]
            return function("f32", style_of(attributes), *widened, codes[-1])

        return LaneOp((wide,), (*(narrow,) * (count - 1), wide), run)

    return make


def _sign(attributes: Attributes) -> LaneOp:
    """Return the action of abs or neg; both are arithmetic operations and may change the bits of a NaN."""
    ptx_type = attributes.types[0]

    def run(a: Codes) -> Codes:
        source = floats.flush(a, ptx_type.element) if attributes.ftz else a
        result = floats.magnitude_of(source) if attributes.opcode == "abs" else floats.negate(source)
        if ptx_type.element == "f64":
            return np.where(floats.is_nan(a, "f64"), a | floats.QUIET, result)
        return floats.quiet(result, ptx_type.element)

    return LaneOp((ptx_type,), (ptx_type,), by_parts(ptx_type, run))


def _extreme(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    pick = partial(floats.extreme, ptx_type.element, style_of(attributes), largest=attributes.opcode == "max")
    if attributes.operand_count == 4:
        return LaneOp((ptx_type,), (ptx_type,) * 3, by_parts(ptx_type, lambda a, b, c: pick(pick(a, b), c)))
    return LaneOp((ptx_type,), (ptx_type, ptx_type), by_parts(ptx_type, pick), nan_order=nan_order(attributes))


def _copy_sign(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp((ptx_type,), (ptx_type, ptx_type), lambda a, b: floats.sign_of(a) | floats.magnitude_of(b))


def _test(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp((PRED,), (ptx_type,), partial(floats.test_property, ptx_type.element, attributes.float_class or ""))


def _unit(attributes: Attributes) -> LaneOp:
    """Return the action of an approximate f32 function, such as ex2.approx."""
    return LaneOp((F32,), (F32,), partial(getattr(approximate_functions, attributes.opcode), ftz=attributes.ftz))


def _narrow_unit(attributes: Attributes) -> LaneOp:
    """Return the action of ex2 or tanh on f16 or bf16."""
    ptx_type = attributes.types[0]
    return LaneOp(
        (ptx_type,),
        (ptx_type,),
        by_parts(
            ptx_type,
            partial(approximate_functions.narrow, getattr(special_functions, attributes.opcode), ptx_type.element),
        ),
    )


def _unit_f64(attributes: Attributes) -> LaneOp:
    """Return the action of approximate rcp or rsqrt on f64."""
    if attributes.opcode == "rcp":
        return LaneOp((F64,), (F64,), partial(approximate_functions.upper, special_functions.rcp))
    return LaneOp((F64,), (F64,), partial(approximate_functions.rsqrt64, ftz=attributes.ftz))


def _division(attributes: Attributes) -> LaneOp:
    divide = partial(approximate_functions.divide, full=attributes.accuracy == "full", ftz=attributes.ftz)
    return LaneOp((F32,), (F32, F32), divide)


# add, sub, mul and fma: types, source, rounding modes, and the other modifiers
ARITHMETIC: tuple[tuple[Types, str, Modifier, dict[str, Modifier]], ...] = (
    ((F32,), ISA, ROUNDED, {"ftz": FTZ, "sat": SAT}),
    ((F32X2,), ISA, ROUNDED, {"ftz": FTZ}),
    ((F64,), ISA, ROUNDED, {}),
    (F16S, HALF, NEAREST, {"ftz": FTZ, "sat": SAT}),
    (BF16S, HALF, NEAREST, {}),
)


def _contractible(opcode: str, function: CodeFunction) -> list[OpcodeRow]:
    """Return the rows for add, sub or mul, which may be contracted if written without a rounding mode."""
    bind = rounded(2, function)
    rows: list[OpcodeRow] = []
    for types, source, rounding, others in ARITHMETIC:
        rows += [
            row(opcode, [types], bind, source, may_contract=True, like=others),
            row(opcode, [types], bind, source, rounding=rounding, like=others),
        ]
    return rows


def _out_of_bounds(attributes: Attributes) -> LaneOp:
    """Return the action of fma.oob, which gives zero if a factor is the fill NaN of tensor copies, with either sign."""
    ptx_type, style = attributes.types[0], style_of(attributes)

    def part(a: Codes, b: Codes, c: Codes) -> Codes:
        is_outside = (a & 0x7FFF == OUTSIDE) | (b & 0x7FFF == OUTSIDE)
        return np.where(is_outside, a.dtype.type(0), floats.fma(ptx_type.element, style, a, b, c))

    return LaneOp((ptx_type,), (ptx_type,) * 3, by_parts(ptx_type, part))


OUTSIDE = 0x7FF7  # the fill NaN's code in both f16 and bf16
FMA = rounded(3, floats.fma)
RELU = required("relu")
FLOAT_CLASSES = required("finite", "infinite", "number", "notanumber", "normal", "subnormal")
EXTREME = {"ftz": FTZ, "nan": optional("NaN"), "xorsign": optional("xorsign"), "abs": optional("abs")}
ROWS: list[OpcodeRow] = [
    *_contractible("add", floats.add),
    *_contractible("sub", floats.subtract),
    *_contractible("mul", floats.multiply),
    *(
        row("fma", [types], FMA, source, rounding=rounding, like=others)
        for types, source, rounding, others in ARITHMETIC
    ),
    row("fma", [F16S], FMA, HALF, rounding=NEAREST, ftz=FTZ, relu=RELU),
    row("fma", [BF16S], FMA, HALF, rounding=NEAREST, relu=RELU),
    row(
        "fma", [(*F16S, *BF16S)], _out_of_bounds, f"{HALF}; NaN results as on an H200", level="measured",
        cases=1 << 11, rounding=NEAREST, oob=required("oob"), relu=optional("relu"),
    ),
    row("mad", ["f32"], FMA, ISA, rounding=ROUNDED, ftz=FTZ, sat=SAT),
    row("mad", ["f64"], FMA, ISA, rounding=ROUNDED),
    row("add", ["f32", "f16 bf16"], _mixed(2, floats.add), HALF, rounding=optional(*ROUNDED.words), sat=SAT),
    row("sub", ["f32", "f16 bf16"], _mixed(2, floats.subtract), HALF, rounding=optional(*ROUNDED.words), sat=SAT),
    row("fma", ["f32", "f16 bf16"], _mixed(3, floats.fma), HALF, rounding=ROUNDED, sat=SAT),
    row("div", ["f32"], rounded(2, floats.divide), ISA, rounding=ROUNDED, ftz=FTZ),
    row("div", ["f64"], rounded(2, floats.divide), ISA, rounding=ROUNDED),
    row("rcp", ["f32"], rounded(1, floats.reciprocal), ISA, rounding=ROUNDED, ftz=FTZ),
    row("rcp", ["f64"], rounded(1, floats.reciprocal), ISA, rounding=ROUNDED),
    row("sqrt", ["f32"], rounded(1, floats.square_root), ISA, rounding=ROUNDED, ftz=FTZ),
    row("sqrt", ["f64"], rounded(1, floats.square_root), ISA, rounding=ROUNDED),
    row("abs", [(F32, F64, *HALVES)], _sign, ISA, ftz=FTZ),
    row("neg", [(F32, F64, *HALVES)], _sign, ISA, ftz=FTZ),
    row("min", [(F32, *HALVES)], _extreme, ISA, like=EXTREME),
    row("max", [(F32, *HALVES)], _extreme, ISA, like=EXTREME),
    row("min", ["f64"], _extreme, ISA),
    row("max", ["f64"], _extreme, ISA),
    row("copysign", ["f32 f64"], _copy_sign, ISA),
    row("testp", ["f32 f64"], _test, ISA, float_class=FLOAT_CLASSES),
    *(
        row(name, ["f32"], _unit, UNIT, level="measured", cases=EVERY, accuracy=APPROX, ftz=FTZ)
        for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos")
    ),
    row("tanh", ["f32"], _unit, UNIT, level="measured", cases=EVERY, accuracy=APPROX),
    row("ex2", [F16S], _narrow_unit, UNIT, level="measured", cases=1 << 16, accuracy=APPROX),
    row("ex2", [BF16S], _narrow_unit, UNIT, level="measured", cases=1 << 16, accuracy=APPROX, ftz=required("ftz")),
    row("tanh", [HALVES], _narrow_unit, UNIT, level="measured", cases=1 << 16, accuracy=APPROX),
    row("rcp", ["f64"], _unit_f64, UNIT, level="measured", cases=EVERY, accuracy=APPROX, ftz=required("ftz")),
    row("rsqrt", ["f64"], _unit_f64, UNIT, level="measured", cases=EVERY, accuracy=APPROX, ftz=required("ftz")),
    row("rsqrt", ["f64"], _unit_f64, UNIT, level="measured", cases=1 << 16, accuracy=APPROX),
    row(
        "div", ["f32"], _division, UNIT, level="measured", cases=1 << 18, accuracy=required("full", "approx"), ftz=FTZ
    ),
]  # fmt: skip
