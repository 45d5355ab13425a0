"""Opcode rows for cvt, cvt.pack, cvta, isspacep and mov."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from warpfrag.machine.ir.actions import LaneOp, Move, Refused
from warpfrag.machine.ir.opcode import Attributes, OpcodeRow
from warpfrag.machine.ir.scalar_types import (
    B32,
    B64,
    B128,
    BF16,
    F16,
    F32,
    PRED,
    S32,
    Codes,
    container,
    join,
    signed,
    split,
    types_of,
)
from warpfrag.machine.ir.state_spaces import CONSTANTS_BYTES, GLOBAL_MEMORY_MAPS, RANK_SHIFT, WINDOW_SIZE, WINDOWS
from warpfrag.machine.ops.floating import style_of
from warpfrag.machine.ops.opcode_rows import optional, required, row
from warpfrag.machine.semantics import conversions as to
from warpfrag.machine.semantics.floats import FloatModifiers

INTEGERS = types_of("u8 u16 u32 u64 s8 s16 s32 s64")
FLOATS = types_of("f16 bf16 f32 f64")
NARROW = types_of("e4m3x2 e5m2x2")
NARROWER = types_of("e2m3x2 e3m2x2 e2m1x2")
WORDS = types_of("b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64")
ISA = "PTX ISA, Data Movement and Conversion Instructions: cvt"
MOVES = "PTX ISA, Data Movement and Conversion Instructions"


def _integer(attributes: Attributes) -> LaneOp:
    target, source = attributes.types
    sat = attributes.sat
    return LaneOp((target,), (source,), lambda a: to.integer_to_integer(a, source, target, sat=sat), extends=True)


def _from_integer(attributes: Attributes) -> LaneOp:
    target, source = attributes.types
    mode = attributes.rounding or "rn"

    def run(a: Codes) -> Codes:
        codes = to.integer_to_float(a, source, target.element, mode)
        if attributes.sat:
            return to.float_to_float(codes, target.element, target.element, FloatModifiers(sat=True))
        return codes

    return LaneOp((target,), (source,), run)


def _to_integer(attributes: Attributes) -> LaneOp:
    target, source = attributes.types
    mode, ftz = attributes.integral or "rzi", attributes.ftz
    return LaneOp(
        (target,), (source,), lambda a: to.float_to_integer(a, source.element, target, mode, ftz=ftz), extends=True
    )


def _float(attributes: Attributes) -> LaneOp:
    target, source = attributes.types
    style = FloatModifiers(
        attributes.integral or attributes.rounding or "rn",
        ftz=attributes.ftz, sat=attributes.sat, relu=attributes.relu,
    )  # fmt: skip
    if target.element == source.element and not attributes.integral:
        plain = FloatModifiers("rn", ftz=style.ftz, sat=style.sat, relu=style.relu)
        return LaneOp((target,), (source,), lambda a: to.float_to_float(a, source.element, target.element, plain))
    satfinite = attributes.satfinite
    return LaneOp(
        (target,), (source,), lambda a: to.float_to_float(a, source.element, target.element, style, satfinite=satfinite)
    )


def _tf32(attributes: Attributes) -> LaneOp:
    mode, satfinite, relu = attributes.rounding or "rna", attributes.satfinite, attributes.relu
    return LaneOp((B32,), (F32,), lambda a: to.to_tf32(a, mode, satfinite=satfinite, relu=relu))


def _pack_pair(attributes: Attributes) -> LaneOp:
    """Return the action that converts two f32 values to a packed pair, the first one in the upper half."""
    target, source = attributes.types
    return LaneOp((target,), (source, source), lambda a, b: _packed((b, a), attributes))


def _repack(attributes: Attributes) -> LaneOp:
    """Return the action that converts a packed pair to a different format."""
    target, source = attributes.types
    return LaneOp((target,), (source,), lambda a: _packed(split(a, source.parts, source.part_bits), attributes))


def _packed(pieces: Sequence[Codes], attributes: Attributes) -> Codes:
    """Convert each piece to an element of the target type, and pack them."""
    (target, source), style, satfinite = attributes.types, style_of(attributes), attributes.satfinite
    results = (to.float_to_float(piece, source.element, target.element, style, satfinite=satfinite) for piece in pieces)
    return join([result.astype(container(target.part_bits)) for result in results], target.part_bits)


def _saturate_pack(attributes: Attributes) -> LaneOp:
    """Return the action of cvt.pack, which clamps two integers and packs them into the bits below c."""
    kind, bits = attributes.narrow or ("u", 16)
    low, high = to.limits(kind, bits)

    def run(a: Codes, b: Codes, c: Codes | None = None) -> Codes:
        lower, upper = (np.clip(signed(v).astype(np.int64), low, high).astype(np.uint64) for v in (b, a))
        mask = np.uint64((1 << bits) - 1)
        total = (lower & mask) | (upper & mask) << np.uint64(bits)
        if c is not None:
            total |= c.astype(np.uint64) << np.uint64(2 * bits)
        return total.astype(np.uint32)

    return LaneOp((B32,), (S32, S32, B32) if attributes.operand_count == 4 else (S32, S32), run)


def _to_generic(attributes: Attributes) -> LaneOp | Refused:
    window = np.uint64(WINDOWS[attributes.space])
    if window and attributes.types[0].bits == 32:
        return Refused(f"{attributes.name}: 32-bit generic addresses are modelled for .global and .const only")
    shift: Callable[[Codes], Codes] = (lambda a: a - window) if attributes.to_space else (lambda a: a + window)
    return LaneOp((attributes.types[0],), (attributes.types[0],), shift)


def _is_in_space(attributes: Attributes) -> LaneOp:
    """Return the action of isspacep; on an H200, entry parameters are also global, but constants are not."""

    def is_in(a: Codes, ranges: list[tuple[int, int]]) -> Codes:
        return np.logical_or.reduce([(a >= np.uint64(start)) & (a < np.uint64(start + size)) for start, size in ranges])

    windows = {space: [(start, WINDOW_SIZE)] for space, start in WINDOWS.items() if start}
    windows["shared"] = [(WINDOWS["shared"], 1 << RANK_SHIFT)]  # the block's own window
    windows["const"] = [(memory_map.constants, CONSTANTS_BYTES) for memory_map in GLOBAL_MEMORY_MAPS.values()]
    if attributes.space == "global":
        others = windows["shared"] + windows["local"] + windows["const"]
        return LaneOp((PRED,), (B64,), lambda a: ~is_in(a, others))
    return LaneOp((PRED,), (B64,), lambda a: is_in(a, windows[attributes.space]))


def _move(attributes: Attributes) -> Move:
    return Move(attributes.types[0])


NEAREST, RELU, SAT, FTZ = required("rn"), optional("relu"), optional("sat"), optional("ftz")
ROUNDING = ("rn", "rz", "rm", "rp")
INTEGRAL = required("rni", "rzi", "rmi", "rpi")
SATFINITE = optional("satfinite")
PACKS, CLAMPED = required("pack"), required("sat")
SPACE = required("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry")
ROWS: list[OpcodeRow] = [
    row("cvt", [INTEGERS, INTEGERS], _integer, ISA, sat=SAT),
    row("cvt", [FLOATS, INTEGERS], _from_integer, ISA, rounding=required(*ROUNDING), sat=SAT),
    row("cvt", [INTEGERS, FLOATS], _to_integer, ISA, integral=INTEGRAL, ftz=FTZ, sat=SAT),
    row("cvt", [FLOATS, FLOATS], _float, ISA, rounding=optional(*ROUNDING), ftz=FTZ, sat=SAT),
    row("cvt", [FLOATS, FLOATS], _float, ISA, integral=INTEGRAL, ftz=FTZ, sat=SAT),
    row("cvt", ["f16 bf16", "f32"], _float, ISA, rounding=required("rn", "rz"), relu=RELU, satfinite=SATFINITE),
    row("cvt", ["tf32", "f32"], _tf32, ISA, rounding=required("rna", "rn", "rz"), satfinite=SATFINITE, relu=RELU),
    row(
        "cvt", ["f16x2 bf16x2", "f32"], _pack_pair, ISA,
        rounding=required("rn", "rz"), relu=RELU, satfinite=SATFINITE,
    ),
    row(
        "cvt", [(*NARROW, *NARROWER), "f32"], _pack_pair, ISA,
        rounding=NEAREST, satfinite=required("satfinite"), relu=RELU,
    ),
    row("cvt", [NARROW, "f16x2"], _repack, ISA, rounding=NEAREST, satfinite=required("satfinite"), relu=RELU),
    row("cvt", ["f16x2", (*NARROW, *NARROWER)], _repack, ISA, rounding=NEAREST, relu=RELU),
    row("cvt", ["ue8m0x2", "f32"], _pack_pair, ISA, rounding=required("rz", "rp"), satfinite=SATFINITE),
    row("cvt", ["ue8m0x2", "bf16x2"], _repack, ISA, rounding=required("rz", "rp"), satfinite=SATFINITE),
    row("cvt", ["bf16x2", "ue8m0x2"], _repack, ISA, rounding=NEAREST),
    row("cvt", ["s32"], _saturate_pack, f"{ISA}.pack", packs=PACKS, sat=CLAMPED, narrow=required("u16", "s16")),
    row(
        "cvt", ["s32", "b32"], _saturate_pack, f"{ISA}.pack",
        packs=PACKS, sat=CLAMPED, narrow=required("u8", "s8", "u4", "s4", "u2", "s2"),
    ),
    row("cvta", ["u64 u32"], _to_generic, MOVES, to_space=optional("to"), space=SPACE),
    row("isspacep", [], _is_in_space, MOVES, space=SPACE),
    row("mov", [(PRED, B128, *WORDS, F16, BF16)], _move, MOVES),
    row("mov", [WORDS], _move, MOVES, vector=required("v2", "v4")),
]  # fmt: skip
