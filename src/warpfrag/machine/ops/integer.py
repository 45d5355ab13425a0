"""Opcode rows for integer and bit instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from warpfrag.errors import NotModelled
from warpfrag.machine.ir.actions import CodeFunction, LaneOp
from warpfrag.machine.ir.opcode import Attributes, Binder, OpcodeRow
from warpfrag.machine.ir.scalar_types import B32, PRED, S32, TYPES, U32, Codes, Type, join, signed, split, types_of
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics import integers as on

ALL = types_of("u16 u32 u64 s16 s32 s64")
PAIRS = types_of("u16x2 s16x2")
WORDS = types_of("u32 s32 u64 s64")  # types that support carries
NARROW = types_of("u16 s16 u32 s32")  # types that support wide products
EITHER = types_of("u32 s32")
BITS = types_of("b16 b32 b64")
SAT = required("sat")
LOW_OR_HIGH = required("lo", "hi")
WIDE = required("wide")
CARRY_OUT = required("cc")
CLAMP_OR_WRAP = required("clamp", "wrap")
ISA = "PTX ISA, Integer Arithmetic Instructions"
LOGIC = "PTX ISA, Logic and Shift Instructions"
CARRY = "PTX ISA, Extended-Precision Integer Arithmetic Instructions"


def same(count: int, function: Callable[[Attributes], CodeFunction]) -> Binder:
    """Return a binder for an instruction on `count` sources of the same type; packed parts are computed separately."""

    def make(attributes: Attributes) -> LaneOp:
        ptx_type = attributes.types[-1]
        return LaneOp((ptx_type,), (ptx_type,) * count, by_parts(ptx_type, function(attributes)))

    return make


def by_parts(ptx_type: Type, function: CodeFunction) -> CodeFunction:
    """Return a function that applies `function` to each part of packed codes."""
    if ptx_type.parts == 1:
        return function

    def run(*codes: Codes) -> Codes:
        pieces = zip(*(split(code, ptx_type.parts, ptx_type.part_bits) for code in codes), strict=True)
        return join([function(*piece) for piece in pieces], ptx_type.part_bits)

    return run


def _add(attributes: Attributes) -> CodeFunction:
    return on.add_saturated if attributes.sat else np.add


def _subtract(attributes: Attributes) -> CodeFunction:
    return on.subtract_saturated if attributes.sat else np.subtract


def product(attributes: Attributes) -> tuple[Type, CodeFunction]:
    """Return the result type of a product, and the function that computes its low half, its high half or all of it."""
    ptx_type = attributes.types[0]
    half = attributes.half
    if half == "wide":
        return TYPES[f"{ptx_type.kind}{ptx_type.bits * 2}"], partial(on.multiply_wide, signedness=ptx_type.kind)
    if half == "hi":
        return ptx_type, partial(on.multiply_high, signedness=ptx_type.kind)
    return ptx_type, np.multiply


def _multiply(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    wide, multiply = product(attributes)
    return LaneOp((wide,), (ptx_type, ptx_type), multiply)


def _multiply_add(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    wide, multiply = product(attributes)
    if attributes.sat:
        if attributes.half != "hi" or ptx_type != S32:
            raise NotModelled("mad.sat is modelled only for .hi.s32")
        return LaneOp((wide,), (ptx_type, ptx_type, wide), lambda a, b, c: on.add_saturated(multiply(a, b), c))
    return LaneOp((wide,), (ptx_type, ptx_type, wide), lambda a, b, c: multiply(a, b) + c)


def _carried(attributes: Attributes) -> LaneOp:
    """Return the action of add, sub or mad with a carry in (the c of addc) or a carry out (.cc)."""
    ptx_type = attributes.types[0]
    takes, gives = attributes.carry_in, attributes.carry_out
    step = on.subtract_borrow if attributes.opcode in {"sub", "subc"} else on.add_carry
    multiply = product(attributes)[1] if attributes.half else None

    def run(*codes: Codes) -> Codes | tuple[Codes, Codes]:
        terms = list(codes)
        carry = terms.pop() if takes else None
        if multiply is not None:
            terms = [multiply(terms[0], terms[1]), terms[2]]
        total, over = step(terms[0], terms[1], carry)
        return (total, over) if gives else total

    sources = (ptx_type,) * (3 if multiply is not None else 2)
    return LaneOp((ptx_type, PRED) if gives else (ptx_type,), (*sources, PRED) if takes else sources, run)


def _multiply_24(attributes: Attributes) -> LaneOp:
    ptx_type, high = attributes.types[0], attributes.half == "hi"
    if attributes.opcode == "mul24":
        return LaneOp((ptx_type,), (ptx_type, ptx_type), partial(on.multiply_24, signedness=ptx_type.kind, high=high))

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        total = on.multiply_24(a, b, ptx_type.kind, high=high)
        return on.add_saturated(total, c) if attributes.sat else total + c

    return LaneOp((ptx_type,), (ptx_type, ptx_type, ptx_type), run)


def _absolute_difference(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        x, y = on.values_of(a, ptx_type.kind), on.values_of(b, ptx_type.kind)
        return c + np.where(x < y, b - a, a - b)

    return LaneOp((ptx_type,), (ptx_type, ptx_type, ptx_type), run)


def _divide(attributes: Attributes) -> CodeFunction:
    return partial(on.divide, signedness=attributes.types[0].kind, remainder=attributes.opcode == "rem")


def _extreme(attributes: Attributes) -> CodeFunction:
    ptx_type = attributes.types[0].kind
    pick = np.maximum if attributes.opcode == "max" else np.minimum

    def run(a: Codes, b: Codes) -> Codes:
        values = pick(on.values_of(a, ptx_type), on.values_of(b, ptx_type))
        if attributes.relu:
            values = np.maximum(values, values.dtype.type(0))
        return values.view(a.dtype)

    return run


def _logic(attributes: Attributes) -> CodeFunction:
    return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[attributes.opcode]


def _invert(attributes: Attributes) -> CodeFunction:
    return np.logical_not if attributes.types[0] == PRED else np.bitwise_not


def _shift(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    if attributes.opcode == "shl":
        return LaneOp((ptx_type,), (ptx_type, U32), on.shift_left)
    return LaneOp((ptx_type,), (ptx_type, U32), partial(on.shift_right, signedness=ptx_type.kind))


def _funnel(attributes: Attributes) -> LaneOp:
    return LaneOp((B32,), (B32, B32, U32), partial(on.funnel, left=attributes.direction == "l", wrap=attributes.wraps))


def _logic3(attributes: Attributes) -> LaneOp:
    if attributes.combine is None:
        return LaneOp((B32,), (B32, B32, B32, None), on.logic)
    join_with = np.logical_and if attributes.combine == "and" else np.logical_or

    def run(a: Codes, b: Codes, c: Codes, table: int, q: Codes) -> tuple[Codes, Codes]:
        bits = on.logic(a, b, c, table)
        return bits, join_with(bits != 0, q)

    return LaneOp((B32, PRED), (B32, B32, B32, None, PRED), run)


def _count(attributes: Attributes) -> LaneOp:
    function = on.population if attributes.opcode == "popc" else on.leading_zeros
    return LaneOp((U32,), (attributes.types[0],), function)


def _find(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp(
        (U32,), (ptx_type,), partial(on.find_leading, signedness=ptx_type.kind, shift_amount=attributes.shift_amount)
    )


def _extract(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp((ptx_type,), (ptx_type, U32, U32), partial(on.extract_field, signedness=ptx_type.kind))


def _insert(attributes: Attributes) -> LaneOp:
    ptx_type = attributes.types[0]
    return LaneOp((ptx_type,), (ptx_type, ptx_type, U32, U32), on.insert_field)


def _dot(attributes: Attributes) -> LaneOp:
    first, second = attributes.types
    kinds = (first.kind, second.kind)
    result = S32 if "s" in kinds else U32
    if attributes.opcode == "dp4a":
        return LaneOp((result,), (B32, B32, result), partial(on.dot_bytes, kinds=kinds))
    return LaneOp((result,), (B32, B32, result), partial(on.dot_halves, kinds=kinds, high=attributes.half == "hi"))


def _extend(attributes: Attributes) -> LaneOp:
    """Return the action of szext, which sign-extends or zero-extends from a bit position."""
    ptx_type = attributes.types[0]
    return LaneOp((ptx_type,), (ptx_type, U32), partial(on.extend, signedness=ptx_type.kind, wrap=attributes.wraps))


def _bit_mask(attributes: Attributes) -> LaneOp:
    return LaneOp((B32,), (B32, U32), partial(on.bit_mask, wrap=attributes.wraps))


def _permute(attributes: Attributes) -> LaneOp:
    return LaneOp((B32,), (B32, B32, B32), partial(on.permute_bytes, mode=attributes.permute or ""))


CARRY_IN = {"carry_in": True}
PRMT = "PTX ISA, Data Movement and Conversion Instructions: prmt"
DIVISION = f"{ISA}; division by zero was measured"
ROWS: list[OpcodeRow] = [
    row("add", [(*ALL, *PAIRS)], same(2, _add), ISA),
    row("add", ["s32"], same(2, _add), ISA, sat=SAT),
    row("sub", [(*ALL, *PAIRS)], same(2, _subtract), ISA),
    row("sub", ["s32"], same(2, _subtract), ISA, sat=SAT),
    row("add", [WORDS], _carried, CARRY, carry_out=CARRY_OUT),
    row("sub", [WORDS], _carried, CARRY, carry_out=CARRY_OUT),
    row("addc", [WORDS], _carried, CARRY, implies=CARRY_IN, carry_out=optional("cc")),
    row("subc", [WORDS], _carried, CARRY, implies=CARRY_IN, carry_out=optional("cc")),
    row("mad", [WORDS], _carried, CARRY, half=LOW_OR_HIGH, carry_out=CARRY_OUT),
    row("madc", [WORDS], _carried, CARRY, implies=CARRY_IN, half=LOW_OR_HIGH, carry_out=optional("cc")),
    row("mul", [ALL], _multiply, ISA, half=LOW_OR_HIGH),
    row("mul", [NARROW], _multiply, ISA, half=WIDE),
    row("mad", [ALL], _multiply_add, ISA, half=LOW_OR_HIGH),
    row("mad", [NARROW], _multiply_add, ISA, half=WIDE),
    row("mad", ["s32"], _multiply_add, ISA, half=required("hi"), sat=SAT),
    row("mul24", [EITHER], _multiply_24, ISA, half=LOW_OR_HIGH),
    row("mad24", [EITHER], _multiply_24, ISA, half=LOW_OR_HIGH),
    row("mad24", ["s32"], _multiply_24, ISA, half=required("hi"), sat=SAT),
    row("sad", [ALL], _absolute_difference, ISA),
    row("div", [ALL], same(2, _divide), DIVISION),
    row("rem", [ALL], same(2, _divide), DIVISION),
    row("abs", ["s16 s32 s64"], same(1, lambda _: lambda a: np.abs(signed(a)).astype(a.dtype)), ISA),
    row("neg", ["s16 s32 s64"], same(1, lambda _: np.negative), ISA),
    row("min", [(*ALL, *PAIRS)], same(2, _extreme), ISA),
    row("max", [(*ALL, *PAIRS)], same(2, _extreme), ISA),
    row("min", ["s16x2 s32"], same(2, _extreme), ISA, relu=required("relu")),
    row("max", ["s16x2 s32"], same(2, _extreme), ISA, relu=required("relu")),
    row("popc", ["b32 b64"], _count, ISA),
    row("clz", ["b32 b64"], _count, ISA),
    row("bfind", [WORDS], _find, ISA, shift_amount=optional("shiftamt")),
    row("fns", ["b32"], lambda _: LaneOp((B32,), (B32, B32, S32), on.find_nth), ISA),
    row("brev", ["b32 b64"], same(1, lambda _: on.reverse_bits), ISA),
    row("bfe", [WORDS], _extract, ISA),
    row("bfi", ["b32 b64"], _insert, ISA),
    row("szext", [EITHER], _extend, ISA, wraps=CLAMP_OR_WRAP),
    row("bmsk", ["b32"], _bit_mask, ISA, wraps=CLAMP_OR_WRAP),
    row("dp4a", [EITHER, EITHER], _dot, ISA),
    row("dp2a", [EITHER, EITHER], _dot, ISA, half=LOW_OR_HIGH),
    row("and", [(*BITS, PRED)], same(2, _logic), LOGIC),
    row("or", [(*BITS, PRED)], same(2, _logic), LOGIC),
    row("xor", [(*BITS, PRED)], same(2, _logic), LOGIC),
    row("not", [(*BITS, PRED)], same(1, _invert), LOGIC),
    row("cnot", [BITS], same(1, lambda _: lambda a: (a == 0).astype(a.dtype)), LOGIC),
    row("shl", [BITS], _shift, LOGIC),
    row("shr", [(*BITS, *ALL)], _shift, LOGIC),
    row("shf", ["b32"], _funnel, LOGIC, direction=required("l", "r"), wraps=CLAMP_OR_WRAP),
    row("lop3", ["b32"], _logic3, LOGIC, combine=optional("and", "or")),
    row("prmt", ["b32"], _permute, PRMT, permute=optional("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")),
]
