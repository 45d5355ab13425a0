"""Rows of cvt, cvt.pack, cvta and isspacep, and of mov."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.ptx.opcodes.floating import style_of
from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Move, Pure
from warpfrag.ptx.program.state_spaces import WINDOW_SIZE, WINDOWS
from warpfrag.ptx.program.types import TYPES, container, join, signed, split
from warpfrag.ptx.semantics import conversions as to
from warpfrag.ptx.semantics.floats import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.types import Type

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
FLOATS = "f16 bf16 f32 f64"
NARROW = "e4m3x2 e5m2x2"
NARROWER = "e2m3x2 e3m2x2 e2m1x2"
INTEGRAL = "rni rzi rmi rpi"
ROUNDING = "rn rz rm rp"
ISA = "PTX ISA, Data Movement and Conversion Instructions: cvt"
MOVES = "PTX ISA, Data Movement and Conversion Instructions"
U32, B32, B64 = TYPES["u32"], TYPES["b32"], TYPES["b64"]


def _integer(words: Words) -> Pure:
    target, source = words.types
    sat = words.has("sat")
    return Pure((target,), (source,), lambda a: to.integer_to_integer(a, source, target, sat=sat), extends=True)


def _from_integer(words: Words) -> Pure:
    target, source = words.types
    mode = words.get("rounding", "rn")

    def run(a: Any) -> Any:  # noqa: ANN401 (arrays)
        codes = to.integer_to_float(a, source, target.element, mode)
        return to.float_to_float(codes, target.element, target.element, Style(sat=True)) if words.has("sat") else codes

    return Pure((target,), (source,), run)


def _to_integer(words: Words) -> Pure:
    target, source = words.types
    mode, ftz = words.get("integral", "rzi"), words.has("ftz")
    return Pure(
        (target,), (source,), lambda a: to.float_to_integer(a, source.element, target, mode, ftz=ftz), extends=True
    )


def _float(words: Words) -> Pure:
    target, source = words.types
    style = Style(
        words.get("integral") or words.get("rounding", "rn"),
        ftz=words.has("ftz"), sat=words.has("sat"), relu=words.has("relu"),
    )  # fmt: skip
    if target.element == source.element and not words.get("integral"):
        plain = Style("rn", ftz=style.ftz, sat=style.sat, relu=style.relu)
        return Pure((target,), (source,), lambda a: to.float_to_float(a, source.element, target.element, plain))
    satfinite = words.has("satfinite")
    return Pure(
        (target,),
        (source,),
        lambda a: to.float_to_float(a, source.element, target.element, style, satfinite=satfinite),
    )


def _tf32(words: Words) -> Pure:
    mode, satfinite, relu = words.get("rounding", "rna"), words.has("satfinite"), words.has("relu")
    return Pure((B32,), (TYPES["f32"],), lambda a: to.to_tf32(a, mode, satfinite=satfinite, relu=relu))


def _pack_pair(words: Words) -> Pure:
    """Two f32 to a pair: the first goes to the upper part."""
    target, source = words.types
    style, satfinite = style_of(words), words.has("satfinite")

    def run(a: Any, b: Any) -> Any:  # noqa: ANN401 (arrays)
        found = [to.float_to_float(v, source.element, target.element, style, satfinite=satfinite) for v in (b, a)]
        return _join(found, target)

    return Pure((target,), (source, source), run)


def _repack(words: Words) -> Pure:
    """A pair to a pair of another format."""
    target, source = words.types
    style, satfinite = style_of(words), words.has("satfinite")

    def run(a: Any) -> Any:  # noqa: ANN401 (arrays)
        pieces = split(a, source.parts, source.part_bits)
        found = [to.float_to_float(v, source.element, target.element, style, satfinite=satfinite) for v in pieces]
        return _join(found, target)

    return Pure((target,), (source,), run)


def _join(pieces: list[Any], target: Type) -> Any:  # noqa: ANN401 (arrays)
    return join([piece.astype(container(target.part_bits)) for piece in pieces], target.part_bits)


def _saturate_pack(words: Words) -> Pure:
    """cvt.pack: two integers clamped and joined, above them what c has."""
    narrow = words.get("narrow")
    kind, bits = narrow[0], int(narrow[1:])
    low, high = to.limits(kind, bits)

    def run(a: Any, b: Any, c: Any = None) -> Any:  # noqa: ANN401 (arrays)
        found = [np.clip(signed(v).astype(np.int64), low, high).astype(np.uint64) for v in (b, a)]
        mask = np.uint64((1 << bits) - 1)
        total = (found[0] & mask) | (found[1] & mask) << np.uint64(bits)
        if c is not None:
            total |= c.astype(np.uint64) << np.uint64(2 * bits)
        return total.astype(np.uint32)

    sources = (TYPES["s32"], TYPES["s32"], B32) if words.operands == 4 else (TYPES["s32"], TYPES["s32"])
    return Pure((B32,), sources, run)


def _to_generic(words: Words) -> Pure:
    window = np.uint64(WINDOWS[words.get("space").split("::")[0]])
    turn: Callable[..., Any] = (lambda a: a - window) if words.has("to") else (lambda a: a + window)
    return Pure((words.types[0],), (words.types[0],), turn)


def _is_in_space(words: Words) -> Pure:
    space = words.get("space").split("::")[0]
    start = np.uint64(WINDOWS[space])

    def run(a: Any) -> Any:  # noqa: ANN401 (arrays)
        if space in {"global", "const"}:
            others = [np.uint64(base) for base in WINDOWS.values() if base]
            return np.logical_and.reduce([(a < base) | (a >= base + np.uint64(WINDOW_SIZE)) for base in others])
        return (a >= start) & (a < start + np.uint64(WINDOW_SIZE))

    return Pure((TYPES["pred"],), (words.types[0],), run)


SPACE = "!global shared shared::cta shared::cluster local const param param::entry"
ROWS: list[Row] = [
    row("cvt", (INTEGERS, INTEGERS), _integer, ISA, sat="sat"),
    row("cvt", (FLOATS, INTEGERS), _from_integer, ISA, rounding=f"!{ROUNDING}", sat="sat"),
    row("cvt", (INTEGERS, FLOATS), _to_integer, ISA, integral=f"!{INTEGRAL}", ftz="ftz", sat="sat"),
    row("cvt", (FLOATS, FLOATS), _float, ISA, rounding=ROUNDING, ftz="ftz", sat="sat"),
    row("cvt", (FLOATS, FLOATS), _float, ISA, integral=f"!{INTEGRAL}", ftz="ftz", sat="sat"),
    row("cvt", ("f16 bf16", "f32"), _float, ISA, rounding="!rn rz", relu="relu", satfinite="satfinite"),
    row("cvt", ("tf32", "f32"), _tf32, ISA, rounding="!rna rn rz", satfinite="satfinite", relu="relu"),
    row("cvt", ("f16x2 bf16x2", "f32"), _pack_pair, ISA, rounding="!rn rz", relu="relu", satfinite="satfinite"),
    row("cvt", (f"{NARROW} {NARROWER}", "f32"), _pack_pair, ISA, rounding="!rn", satfinite="!satfinite", relu="relu"),
    row("cvt", (NARROW, "f16x2"), _repack, ISA, rounding="!rn", satfinite="!satfinite", relu="relu"),
    row("cvt", ("f16x2", f"{NARROW} {NARROWER}"), _repack, ISA, rounding="!rn", relu="relu"),
    row("cvt", ("ue8m0x2", "f32"), _pack_pair, ISA, rounding="!rz rp", satfinite="satfinite"),
    row("cvt", ("ue8m0x2", "bf16x2"), _repack, ISA, rounding="!rz rp", satfinite="satfinite"),
    row("cvt", ("bf16x2", "ue8m0x2"), _repack, ISA, rounding="!rn"),
    row("cvt", "s32", _saturate_pack, f"{ISA}.pack", pack="!pack", sat="!sat", narrow="!u16 s16"),
    row(
        "cvt", ("s32", "b32"), _saturate_pack, f"{ISA}.pack",
        pack="!pack", sat="!sat", narrow="!u8 s8 u4 s4 u2 s2",
    ),
    row("cvta", "u64 u32", _to_generic, MOVES, to="to", space=SPACE),
    row("isspacep", "", lambda w: _is_in_space(Words(w.opcode, (B64,), w.options, w.operands)), MOVES, space=SPACE),
    row("mov", f"pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64 {FLOATS}", lambda w: Move(w.types[0]), MOVES),
    row("mov", "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64", lambda w: Move(w.types[0]), MOVES, vector="!v2 v4"),
]  # fmt: skip
