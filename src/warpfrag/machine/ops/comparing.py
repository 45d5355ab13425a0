"""Opcode rows for comparisons and selections: setp, set, selp, slct."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from warpfrag.machine.ir.actions import LaneOp
from warpfrag.machine.ir.opcode import Attributes, BooleanOp, OpcodeRow
from warpfrag.machine.ir.scalar_types import F32, F64, PRED, S32, Codes, Type, join, split, types_of
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics import floats, integers

Comparer = Callable[[Codes, Codes], Codes]

INTEGERS, BITS = types_of("u16 u32 u64 s16 s32 s64"), types_of("b16 b32 b64")
HALVES, PACKED = types_of("f16 bf16"), types_of("f16x2 bf16x2")
SELECTED = (*INTEGERS, *BITS, F32, F64)
ISA = "PTX ISA, Comparison and Selection Instructions"
COMBINE: dict[BooleanOp | None, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, **floats.CODE_OF_1}


def comparison(attributes: Attributes, ptx_type: Type) -> Comparer:
    """Return the function that compares two arrays of codes."""
    order = attributes.comparison or "eq"
    if ptx_type.is_float:
        return partial(floats.compare, ptx_type.element, order, ftz=attributes.ftz)
    compare = integers.COMPARE[order]
    unsigned = order in {"lo", "ls", "hi", "hs"}
    return lambda a, b: compare(*((v if unsigned else integers.values_of(v, ptx_type.kind)) for v in (a, b)))


def _set_predicate(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    compare = comparison(attributes, ptx_type)
    combine = COMBINE.get(attributes.combine)
    if ptx_type.parts == 2:

        def run_pair(a: Codes, b: Codes, *c: Codes) -> tuple[Codes, ...]:
            both = zip(split(a, 2, ptx_type.part_bits), split(b, 2, ptx_type.part_bits), strict=True)
            results = [compare(x, y) for x, y in both]
            return tuple(combine(held, c[0]) if combine else held for held in results)

        return LaneOp((PRED, PRED), (ptx_type, ptx_type, PRED) if combine else (ptx_type, ptx_type), run_pair)

    def run(a: Codes, b: Codes, *c: Codes) -> tuple[Codes, Codes]:
        held = compare(a, b)
        return (combine(held, c[0]), combine(~held, c[0])) if combine else (held, ~held)

    return LaneOp((PRED, PRED), (ptx_type, ptx_type, PRED) if combine else (ptx_type, ptx_type), run)


def _set(attributes: Attributes) -> LaneOp:
    target, ptx_type = attributes.types
    compare = comparison(attributes, ptx_type)
    combine = COMBINE.get(attributes.combine)

    def select(a: Codes, b: Codes, c: Codes | None, true: int, dtype: np.dtype[np.unsignedinteger]) -> Codes:
        held = compare(a, b)
        if combine:
            held = combine(held, c)
        return np.where(held, dtype.type(true), dtype.type(0))

    def run(a: Codes, b: Codes, c: Codes | None = None) -> Codes:
        if ptx_type.parts == 1:
            return select(a, b, c, TRUE[target.element or target.name], target.dtype)
        true = TRUE[target.element] if target.parts == 2 else 0xFFFF
        pieces = zip(split(a, 2, 16), split(b, 2, 16), strict=True)
        return join([select(x, y, c, true, np.dtype(np.uint16)) for x, y in pieces], 16)

    return LaneOp((target,), (ptx_type, ptx_type, PRED) if combine else (ptx_type, ptx_type), run)


def _select(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp((ptx_type,), (ptx_type, ptx_type, PRED), lambda a, b, c: np.where(c, a, b))


def _select_by_sign(attributes: Attributes) -> LaneOp:
    ptx_type, chooser = attributes.types

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        if chooser == S32:
            return np.where(integers.values_of(c, "s") >= 0, a, b)
        return np.where(floats.compare("f32", "ge", c, np.zeros_like(c), ftz=attributes.ftz), a, b)

    return LaneOp((ptx_type,), (ptx_type, ptx_type, chooser), run)


ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGER_ORDER = required(*ORDERED, "lo", "ls", "hi", "hs")
BIT_ORDER = required("eq", "ne")
FLOAT_ORDER = required(*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
COMBINED, FTZ = optional("and", "or", "xor"), optional("ftz")
ROWS: list[OpcodeRow] = [
    row("setp", [INTEGERS], _set_predicate, ISA, comparison=INTEGER_ORDER, combine=COMBINED),
    row("setp", [BITS], _set_predicate, ISA, comparison=BIT_ORDER, combine=COMBINED),
    row(
        "setp", [(F32, F64, *HALVES, *PACKED)], _set_predicate, ISA,
        comparison=FLOAT_ORDER, combine=COMBINED, ftz=FTZ,
    ),
    row("set", ["u32 s32 f32", INTEGERS], _set, ISA, comparison=INTEGER_ORDER, combine=COMBINED),
    row("set", ["u32 s32 f32", BITS], _set, ISA, comparison=BIT_ORDER, combine=COMBINED),
    row("set", ["u32 s32 f32", "f32 f64"], _set, ISA, comparison=FLOAT_ORDER, combine=COMBINED, ftz=FTZ),
    row(
        "set", ["u16 s16 u32 s32 f16 bf16", HALVES], _set, ISA,
        comparison=FLOAT_ORDER, combine=COMBINED, ftz=FTZ,
    ),
    row("set", ["f16x2 bf16x2 u32 s32", PACKED], _set, ISA, comparison=FLOAT_ORDER, combine=COMBINED, ftz=FTZ),
    row("selp", [SELECTED], _select, ISA),
    row("slct", [SELECTED, "s32"], _select_by_sign, ISA),
    row("slct", [SELECTED, "f32"], _select_by_sign, ISA, ftz=FTZ),
]  # fmt: skip
