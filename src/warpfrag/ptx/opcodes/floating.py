"""Rows of the float instructions: rounded ones, those of bits, and the approximate functions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Pure
from warpfrag.ptx.program.types import TYPES
from warpfrag.ptx.semantics import approximate_functions, floats, special_functions
from warpfrag.ptx.semantics.floats import Style

if TYPE_CHECKING:
    from collections.abc import Callable


ROUNDING = "rn rz rm rp"
ISA = "PTX ISA, Floating Point Instructions; IEEE 754"
HALF = "PTX ISA, Half Precision Floating Point Instructions; IEEE 754"
UNIT = "the special function unit of an H200; sequences as ptxas makes them for sm_90"
EVERY = 1 << 32
F32, F64, B32, PRED = TYPES["f32"], TYPES["f64"], TYPES["b32"], TYPES["pred"]
HALVES = "f16 f16x2 bf16 bf16x2"


def style_of(words: Words) -> Style:
    """The words that change the result."""
    return Style(
        words.get("rounding", "rn"),
        ftz=words.has("ftz"),
        sat=words.has("sat"),
        relu=words.has("relu"),
        nan=words.has("NaN"),
        xorsign_abs=words.has("xorsign"),
        abs=words.has("abs"),
    )


def rounded(count: int, function: Callable[..., Any]) -> Callable[[Words], Pure]:
    """An operation of `count` sources of one type, each part rounded for itself."""

    def make(words: Words) -> Pure:
        kind = words.types[-1]
        return Pure((kind,), (kind,) * count, by_parts(kind, partial(function, kind.element, style_of(words))))

    return make


def _mixed(count: int, function: Callable[..., Any]) -> Callable[[Words], Pure]:
    """add, sub and fma of f32 whose first sources are f16 or bf16."""

    def make(words: Words) -> Pure:
        wide, narrow = words.types
        from warpfrag.ptx.semantics.conversions import float_to_float

        def run(*codes: Any) -> Any:  # noqa: ANN401 (arrays)
            given = [float_to_float(code, narrow.element, "f32", Style()) for code in codes[: count - 1]]
            return function("f32", style_of(words), *given, codes[-1])

        return Pure((wide,), (*(narrow,) * (count - 1), wide), run)

    return make


def _sign(words: Words) -> Pure:
    """abs and neg: arithmetic, so that a NaN does not keep its bits."""
    kind = words.types[0]

    def run(a: Any) -> Any:  # noqa: ANN401 (arrays)
        given = floats.flush(a, kind.element) if words.has("ftz") else a
        found = floats.magnitude_of(given) if words.opcode == "abs" else floats.negate(given)
        if kind.element == "f64":
            return np.where(floats.is_nan(a, "f64"), a | floats.QUIET, found)
        return floats.quiet(found, kind.element)

    return Pure((kind,), (kind,), by_parts(kind, run))


def _extreme(words: Words) -> Pure:
    kind = words.types[0]
    pick = partial(floats.extreme, kind.element, style_of(words), largest=words.opcode == "max")
    if words.operands == 4:
        return Pure((kind,), (kind,) * 3, by_parts(kind, lambda a, b, c: pick(pick(a, b), c)))
    return Pure((kind,), (kind, kind), by_parts(kind, pick))


def _copy_sign(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((kind,), (kind, kind), lambda a, b: floats.sign_of(a) | floats.magnitude_of(b))


def _test(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((PRED,), (kind,), partial(floats.test_property, kind.element, words.get("property")))


def _unit(words: Words) -> Pure:
    """ex2.approx and its kin on f32."""
    function = getattr(approximate_functions, words.opcode)
    return Pure((F32,), (F32,), partial(function, ftz=words.has("ftz")))


def _narrow_unit(words: Words) -> Pure:
    """ex2 and tanh of f16 and bf16."""
    kind = words.types[0]
    return Pure(
        (kind,),
        (kind,),
        by_parts(kind, partial(approximate_functions.narrow, getattr(special_functions, words.opcode), kind.element)),
    )


def _unit_f64(words: Words) -> Pure:
    """rcp and rsqrt of f64."""
    if words.opcode == "rcp":
        return Pure((F64,), (F64,), partial(approximate_functions.upper, special_functions.rcp))
    return Pure((F64,), (F64,), partial(approximate_functions.rsqrt64, ftz=words.has("ftz")))


def _division(words: Words) -> Pure:
    return Pure(
        (F32,), (F32, F32), partial(approximate_functions.divide, full=words.get("way") == "full", ftz=words.has("ftz"))
    )


def _arithmetic(opcode: str, count: int, function: Callable[..., Any]) -> list[Row]:
    """add, sub, mul of every float type."""
    make = rounded(count, function)
    contract = opcode != "fma"
    rows = [
        row(opcode, "f32", make, ISA, may_contract=contract, ftz="ftz", sat="sat"),
        row(opcode, "f32", make, ISA, rounding=f"!{ROUNDING}", ftz="ftz", sat="sat"),
        row(opcode, "f32x2", make, ISA, may_contract=contract, ftz="ftz"),
        row(opcode, "f32x2", make, ISA, rounding=f"!{ROUNDING}", ftz="ftz"),
        row(opcode, "f64", make, ISA, may_contract=contract),
        row(opcode, "f64", make, ISA, rounding=f"!{ROUNDING}"),
        row(opcode, "f16 f16x2", make, HALF, may_contract=contract, ftz="ftz", sat="sat"),
        row(opcode, "f16 f16x2", make, HALF, rounding="!rn", ftz="ftz", sat="sat"),
        row(opcode, "bf16 bf16x2", make, HALF, may_contract=contract),
        row(opcode, "bf16 bf16x2", make, HALF, rounding="!rn"),
    ]
    if opcode == "fma":
        rows = [found for found in rows if "rounding" in found.required]
        rows.append(row("fma", "f16 f16x2", make, HALF, rounding="!rn", ftz="ftz", relu="!relu"))
        rows.append(row("fma", "bf16 bf16x2", make, HALF, rounding="!rn", relu="!relu"))
    return rows


ROWS: list[Row] = [
    *_arithmetic("add", 2, floats.add),
    *_arithmetic("sub", 2, floats.subtract),
    *_arithmetic("mul", 2, floats.multiply),
    *_arithmetic("fma", 3, floats.fma),
    row("mad", "f32", rounded(3, floats.fma), ISA, rounding=f"!{ROUNDING}", ftz="ftz", sat="sat"),
    row("mad", "f64", rounded(3, floats.fma), ISA, rounding=f"!{ROUNDING}"),
    row("add", ("f32", "f16 bf16"), _mixed(2, floats.add), HALF, rounding=ROUNDING, sat="sat"),
    row("sub", ("f32", "f16 bf16"), _mixed(2, floats.subtract), HALF, rounding=ROUNDING, sat="sat"),
    row("fma", ("f32", "f16 bf16"), _mixed(3, floats.fma), HALF, rounding=f"!{ROUNDING}", sat="sat"),
    row("div", "f32", rounded(2, floats.divide), ISA, rounding=f"!{ROUNDING}", ftz="ftz"),
    row("div", "f64", rounded(2, floats.divide), ISA, rounding=f"!{ROUNDING}"),
    row("rcp", "f32", rounded(1, floats.reciprocal), ISA, rounding=f"!{ROUNDING}", ftz="ftz"),
    row("rcp", "f64", rounded(1, floats.reciprocal), ISA, rounding=f"!{ROUNDING}"),
    row("sqrt", "f32", rounded(1, floats.square_root), ISA, rounding=f"!{ROUNDING}", ftz="ftz"),
    row("sqrt", "f64", rounded(1, floats.square_root), ISA, rounding=f"!{ROUNDING}"),
    row("abs", f"f32 f64 {HALVES}", _sign, ISA, ftz="ftz"),
    row("neg", f"f32 f64 {HALVES}", _sign, ISA, ftz="ftz"),
    row("min", f"f32 {HALVES}", _extreme, ISA, ftz="ftz", nan="NaN", xorsign="xorsign", abs="abs"),
    row("max", f"f32 {HALVES}", _extreme, ISA, ftz="ftz", nan="NaN", xorsign="xorsign", abs="abs"),
    row("min", "f64", _extreme, ISA),
    row("max", "f64", _extreme, ISA),
    row("copysign", "f32 f64", _copy_sign, ISA),
    row("testp", "f32 f64", _test, ISA, property="!finite infinite number notanumber normal subnormal"),
    *(
        row(name, "f32", _unit, UNIT, level="measured", cases=EVERY, approx="!approx", ftz="ftz")
        for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos")
    ),
    row("tanh", "f32", _unit, UNIT, level="measured", cases=EVERY, approx="!approx"),
    row("ex2", "f16 f16x2", _narrow_unit, UNIT, level="measured", cases=1 << 16, approx="!approx"),
    row("ex2", "bf16 bf16x2", _narrow_unit, UNIT, level="measured", cases=1 << 16, approx="!approx", ftz="!ftz"),
    row("tanh", HALVES, _narrow_unit, UNIT, level="measured", cases=1 << 16, approx="!approx"),
    row("rcp", "f64", _unit_f64, UNIT, level="measured", cases=EVERY, approx="!approx", ftz="!ftz"),
    row("rsqrt", "f64", _unit_f64, UNIT, level="measured", cases=EVERY, approx="!approx", ftz="!ftz"),
    row("rsqrt", "f64", _unit_f64, UNIT, level="measured", cases=1 << 16, approx="!approx"),
    row("div", "f32", _division, UNIT, level="measured", cases=1 << 18, way="!full approx", ftz="ftz"),
]
