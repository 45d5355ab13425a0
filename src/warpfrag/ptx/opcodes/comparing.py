"""Rows of the comparisons and selections: setp, set, selp, slct."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Pure
from warpfrag.ptx.program.types import TYPES, Type, join, split
from warpfrag.ptx.semantics import floats, integers

if TYPE_CHECKING:
    from collections.abc import Callable

PRED, S32, F32 = TYPES["pred"], TYPES["s32"], TYPES["f32"]
ORDER = "eq ne lt le gt ge"
INTEGERS, BITS = "u16 u32 u64 s16 s32 s64", "b16 b32 b64"
FLOATS = f"{ORDER} equ neu ltu leu gtu geu num nan"
HALVES = "f16 bf16"
PACKED = "f16x2 bf16x2"
ISA = "PTX ISA, Comparison and Selection Instructions"
COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, **floats.ONE}


def comparison(words: Words, kind: Type) -> Callable[..., Any]:
    """The comparison of two arrays of codes."""
    order = words.get("order")
    if kind.is_float:
        return partial(floats.compare, kind.element, order, ftz=words.has("ftz"))
    compare = integers.COMPARE[order]
    unsigned = order in {"lo", "ls", "hi", "hs"}
    return lambda a, b: compare(*((v if unsigned else integers.values_of(v, kind.kind)) for v in (a, b)))


def _set_predicate(words: Words) -> Pure:
    kind = words.types[0]
    compare = comparison(words, kind)
    combine = COMBINE.get(words.get("combine"))
    if kind.parts == 2:

        def run_pair(a: Any, b: Any, *c: Any) -> Any:  # noqa: ANN401 (arrays)
            both = zip(split(a, 2, kind.part_bits), split(b, 2, kind.part_bits), strict=True)
            found = [compare(x, y) for x, y in both]
            return tuple(combine(one, c[0]) if combine else one for one in found)

        return Pure((PRED, PRED), (kind, kind, PRED) if combine else (kind, kind), run_pair)

    def run(a: Any, b: Any, *c: Any) -> Any:  # noqa: ANN401 (arrays)
        held = compare(a, b)
        return (combine(held, c[0]), combine(~held, c[0])) if combine else (held, ~held)

    return Pure((PRED, PRED), (kind, kind, PRED) if combine else (kind, kind), run)


def _set(words: Words) -> Pure:
    target, kind = words.types
    compare = comparison(words, kind)
    combine = COMBINE.get(words.get("combine"))

    def one(a: Any, b: Any, c: Any, true: int, dtype: Any) -> Any:  # noqa: ANN401 (arrays)
        held = compare(a, b)
        if combine:
            held = combine(held, c)
        return np.where(held, dtype.type(true), dtype.type(0))

    def run(a: Any, b: Any, c: Any = None) -> Any:  # noqa: ANN401 (arrays)
        if kind.parts == 1:
            return one(a, b, c, TRUE[target.element or target.name], target.dtype)
        true = TRUE[target.element] if target.parts == 2 else 0xFFFF
        pieces = zip(split(a, 2, 16), split(b, 2, 16), strict=True)
        return join([one(x, y, c, true, np.dtype(np.uint16)) for x, y in pieces], 16)

    return Pure((target,), (kind, kind, PRED) if combine else (kind, kind), run)


def _select(words: Words) -> Pure:
    kind = words.types[0]
    return Pure((kind,), (kind, kind, PRED), lambda a, b, c: np.where(c, a, b))


def _select_by_sign(words: Words) -> Pure:
    kind, chooser = words.types

    def run(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 (arrays)
        if chooser == S32:
            return np.where(integers.values_of(c, "s") >= 0, a, b)
        return np.where(floats.compare("f32", "ge", c, np.zeros_like(c), ftz=words.has("ftz")), a, b)

    return Pure((kind,), (kind, kind, chooser), run)


ROWS: list[Row] = [
    row("setp", INTEGERS, _set_predicate, ISA, order=f"!{ORDER} lo ls hi hs", combine="and or xor"),
    row("setp", BITS, _set_predicate, ISA, order="!eq ne", combine="and or xor"),
    row("setp", f"f32 f64 {HALVES} {PACKED}", _set_predicate, ISA, order=f"!{FLOATS}", combine="and or xor", ftz="ftz"),
    row("set", ("u32 s32 f32", INTEGERS), _set, ISA, order=f"!{ORDER} lo ls hi hs", combine="and or xor"),
    row("set", ("u32 s32 f32", BITS), _set, ISA, order="!eq ne", combine="and or xor"),
    row("set", ("u32 s32 f32", "f32 f64"), _set, ISA, order=f"!{FLOATS}", combine="and or xor", ftz="ftz"),
    row(
        "set", ("u16 s16 u32 s32 f16 bf16", HALVES), _set, ISA,
        order=f"!{FLOATS}", combine="and or xor", ftz="ftz",
    ),
    row("set", ("f16x2 bf16x2 u32 s32", PACKED), _set, ISA, order=f"!{FLOATS}", combine="and or xor", ftz="ftz"),
    row("selp", f"{INTEGERS} {BITS} f32 f64", _select, ISA),
    row("slct", (f"{INTEGERS} {BITS} f32 f64", "s32"), _select_by_sign, ISA),
    row("slct", (f"{INTEGERS} {BITS} f32 f64", "f32"), _select_by_sign, ISA, ftz="ftz"),
]  # fmt: skip
