"""Rows of the integer and bit instructions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import NotModelled
from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Pure
from warpfrag.ptx.program.types import TYPES, Type, join, signed, split
from warpfrag.ptx.semantics import integers as on

if TYPE_CHECKING:
    from collections.abc import Callable

U32, S32, B32, B64, PRED = TYPES["u32"], TYPES["s32"], TYPES["b32"], TYPES["b64"], TYPES["pred"]
ALL = "u16 u32 u64 s16 s32 s64"
BITS = "b16 b32 b64"
ISA = "PTX ISA, Integer Arithmetic Instructions"
LOGIC = "PTX ISA, Logic and Shift Instructions"
CARRY = "PTX ISA, Extended-Precision Integer Arithmetic Instructions"


def same(count: int, function: Callable[[Words], Callable[..., Any]]) -> Callable[[Words], Pure]:
    """An instruction whose result and `count` sources have one type, its parts computed apart."""

    def make(words: Words) -> Pure:
        kind = words.types[-1]
        return Pure((kind,), (kind,) * count, by_parts(kind, function(words)))

    return make


def by_parts(kind: Type, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of packed codes from one of their parts."""
    if kind.parts == 1:
        return function

    def run(*codes: Any) -> Any:  # noqa: ANN401 (arrays)
        pieces = zip(*(split(code, kind.parts, kind.part_bits) for code in codes), strict=True)
        return join([function(*piece) for piece in pieces], kind.part_bits)

    return run


def _add(words: Words) -> Callable[..., Any]:
    return on.add_saturated if words.has("sat") else np.add


def _subtract(words: Words) -> Callable[..., Any]:
    return on.subtract_saturated if words.has("sat") else np.subtract


def product(words: Words) -> tuple[Type, Callable[..., Any]]:
    """The type of a product and how it is made: its low half, its high half or the whole."""
    kind = words.types[0]
    half = words.get("half")
    if half == "wide":
        return TYPES[f"{kind.kind}{kind.bits * 2}"], partial(on.multiply_wide, kind=kind.kind)
    if half == "hi":
        return kind, partial(on.multiply_high, kind=kind.kind)
    return kind, np.multiply


def _multiply(words: Words) -> Pure:
    kind = words.types[0]
    wide, multiply = product(words)
    return Pure((wide,), (kind, kind), multiply)


def _multiply_add(words: Words) -> Pure:
    kind = words.types[0]
    wide, multiply = product(words)
    if words.has("sat"):
        if words.get("half") != "hi" or kind != S32:
            msg = "mad.sat is for .hi.s32"
            raise NotModelled(msg)
        return Pure((wide,), (kind, kind, wide), lambda a, b, c: on.add_saturated(multiply(a, b), c))
    return Pure((wide,), (kind, kind, wide), lambda a, b, c: multiply(a, b) + c)


def _carried(words: Words) -> Pure:
    """add, sub and mad with a carry that comes in (the c of addc) or goes out (.cc)."""
    kind = words.types[0]
    takes, gives = words.opcode.endswith("c"), words.has("cc")
    base = words.opcode.removesuffix("c")
    step = on.subtract_borrow if base == "sub" else on.add_carry
    multiply = product(words)[1] if base == "mad" else None

    def run(*codes: Any) -> Any:  # noqa: ANN401 (arrays)
        given = list(codes)
        carry = given.pop() if takes else None
        if multiply is not None:
            given = [multiply(given[0], given[1]), given[2]]
        total, over = step(given[0], given[1], carry)
        return (total, over) if gives else total

    sources = (kind,) * (3 if base == "mad" else 2)
    return Pure((kind, PRED) if gives else (kind,), (*sources, PRED) if takes else sources, run)


def _multiply_24(words: Words) -> Pure:
    kind, high = words.types[0], words.get("half") == "hi"
    if words.opcode == "mul24":
        return Pure((kind,), (kind, kind), partial(on.multiply_24, kind=kind.kind, high=high))

    def run(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 (arrays)
        found = on.multiply_24(a, b, kind.kind, high=high)
        return on.add_saturated(found, c) if words.has("sat") else found + c

    return Pure((kind,), (kind, kind, kind), run)


def _absolute_difference(words: Words) -> Pure:
    kind = words.types[0]

    def run(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 (arrays)
        x, y = on.values_of(a, kind.kind), on.values_of(b, kind.kind)
        return c + np.where(x < y, b - a, a - b)

    return Pure((kind,), (kind, kind, kind), run)


def _divide(words: Words) -> Callable[..., Any]:
    return partial(on.divide, kind=words.types[0].kind, remainder=words.opcode == "rem")


def _absolute(_words: Words) -> Callable[..., Any]:
    return lambda a: np.where(signed(a) < 0, np.negative(a), a)


def _extreme(words: Words) -> Callable[..., Any]:
    kind = words.types[0].kind
    pick = np.maximum if words.opcode == "max" else np.minimum

    def run(a: Any, b: Any) -> Any:  # noqa: ANN401 (arrays)
        found = pick(on.values_of(a, kind), on.values_of(b, kind))
        if words.has("relu"):
            found = np.maximum(found, found.dtype.type(0))
        return found.view(a.dtype)

    return run


def _logic(words: Words) -> Callable[..., Any]:
    return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[words.opcode]


def _invert(words: Words) -> Callable[..., Any]:
    return np.logical_not if words.types[0] == PRED else np.bitwise_not


def _shift(words: Words) -> Pure:
    kind = words.types[0]
    if words.opcode == "shl":
        return Pure((kind,), (kind, U32), on.shift_left)
    return Pure((kind,), (kind, U32), partial(on.shift_right, kind="s" if kind.kind == "s" else "u"))


def _funnel(words: Words) -> Pure:
    return Pure((B32,), (B32, B32, U32), partial(on.funnel, left=words.has("l"), wrap=words.has("wrap")))


def _logic3(words: Words) -> Pure:
    if "combine" not in words.options:
        return Pure((B32,), (B32, B32, B32, None), on.logic)
    join_with = np.logical_and if words.has("and") else np.logical_or

    def run(a: Any, b: Any, c: Any, table: int, q: Any) -> Any:  # noqa: ANN401 (arrays)
        found = on.logic(a, b, c, table)
        return found, join_with(found != 0, q)

    return Pure((B32, PRED), (B32, B32, B32, None, PRED), run)


def _count(words: Words) -> Pure:
    function = on.population if words.opcode == "popc" else on.leading_zeros
    return Pure((U32,), (words.types[0],), function)


def _find(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((U32,), (kind,), partial(on.find_leading, kind=kind.kind, shift_amount=words.has("shiftamt")))


def _extract(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((kind,), (kind, U32, U32), partial(on.extract_field, kind=kind.kind))


def _insert(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((kind,), (kind, kind, U32, U32), on.insert_field)


def _dot(words: Words) -> Pure:
    first, second = words.types
    kinds = (first.kind, second.kind)
    result = S32 if "s" in kinds else U32
    if words.opcode == "dp4a":
        return Pure((result,), (B32, B32, result), partial(on.dot_bytes, kinds=kinds))
    return Pure((result,), (B32, B32, result), partial(on.dot_halves, kinds=kinds, high=words.has("hi")))


ROWS: list[Row] = [
    row("add", f"{ALL} u16x2 s16x2", same(2, _add), ISA),
    row("add", "s32", same(2, _add), ISA, sat="!sat"),
    row("sub", f"{ALL} u16x2 s16x2", same(2, _subtract), ISA),
    row("sub", "s32", same(2, _subtract), ISA, sat="!sat"),
    row("add", "u32 s32 u64 s64", _carried, CARRY, cc="!cc"),
    row("sub", "u32 s32 u64 s64", _carried, CARRY, cc="!cc"),
    row("addc", "u32 s32 u64 s64", _carried, CARRY, cc="cc"),
    row("subc", "u32 s32 u64 s64", _carried, CARRY, cc="cc"),
    row("mad", "u32 s32 u64 s64", _carried, CARRY, half="!lo hi", cc="!cc"),
    row("madc", "u32 s32 u64 s64", _carried, CARRY, half="!lo hi", cc="cc"),
    row("mul", ALL, _multiply, ISA, half="!lo hi"),
    row("mul", "u16 s16 u32 s32", _multiply, ISA, half="!wide"),
    row("mad", ALL, _multiply_add, ISA, half="!lo hi"),
    row("mad", "u16 s16 u32 s32", _multiply_add, ISA, half="!wide"),
    row("mad", "s32", _multiply_add, ISA, half="!hi", sat="!sat"),
    row("mul24", "u32 s32", _multiply_24, ISA, half="!lo hi"),
    row("mad24", "u32 s32", _multiply_24, ISA, half="!lo hi"),
    row("mad24", "s32", _multiply_24, ISA, half="!hi", sat="!sat"),
    row("sad", ALL, _absolute_difference, ISA),
    row("div", ALL, same(2, _divide), f"{ISA}; a division by zero as measured"),
    row("rem", ALL, same(2, _divide), f"{ISA}; a division by zero as measured"),
    row("abs", "s16 s32 s64", same(1, _absolute), ISA),
    row("neg", "s16 s32 s64", same(1, lambda _: np.negative), ISA),
    row("min", f"{ALL} u16x2 s16x2", same(2, _extreme), ISA),
    row("max", f"{ALL} u16x2 s16x2", same(2, _extreme), ISA),
    row("min", "s16x2 s32", same(2, _extreme), ISA, relu="!relu"),
    row("max", "s16x2 s32", same(2, _extreme), ISA, relu="!relu"),
    row("popc", "b32 b64", _count, ISA),
    row("clz", "b32 b64", _count, ISA),
    row("bfind", "u32 u64 s32 s64", _find, ISA, shift="shiftamt"),
    row("fns", "b32", lambda _: Pure((B32,), (B32, B32, S32), on.find_nth), ISA),
    row("brev", "b32 b64", same(1, lambda _: on.reverse_bits), ISA),
    row("bfe", "u32 u64 s32 s64", _extract, ISA),
    row("bfi", "b32 b64", _insert, ISA),
    row("szext", "u32 s32", lambda w: Pure(
        w.types, (w.types[0], U32), partial(on.extend, kind=w.types[0].kind, wrap=w.has("wrap"))
    ), ISA, mode="!clamp wrap"),
    row("bmsk", "b32", lambda w: Pure(
        (B32,), (B32, U32), partial(on.bit_mask, wrap=w.has("wrap"))
    ), ISA, mode="!clamp wrap"),
    row("dp4a", ("u32 s32", "u32 s32"), _dot, ISA),
    row("dp2a", ("u32 s32", "u32 s32"), _dot, ISA, half="!lo hi"),
    row("and", f"{BITS} pred", same(2, _logic), LOGIC),
    row("or", f"{BITS} pred", same(2, _logic), LOGIC),
    row("xor", f"{BITS} pred", same(2, _logic), LOGIC),
    row("not", f"{BITS} pred", same(1, _invert), LOGIC),
    row("cnot", BITS, same(1, lambda _: lambda a: (a == 0).astype(a.dtype)), LOGIC),
    row("shl", BITS, _shift, LOGIC),
    row("shr", f"{BITS} {ALL}", _shift, LOGIC),
    row("shf", "b32", _funnel, LOGIC, way="!l r", mode="!clamp wrap"),
    row("lop3", "b32", _logic3, LOGIC, combine="and or"),
    row("prmt", "b32", lambda w: Pure(
        (B32,), (B32, B32, B32), partial(on.permute_bytes, mode=w.get("mode"))
    ), "PTX ISA, Data Movement and Conversion Instructions: prmt", mode="f4e b4e rc8 ecl ecr rc16"),
]  # fmt: skip
