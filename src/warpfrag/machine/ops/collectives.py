"""Opcode rows for control flow, barriers, shuffles, votes and matrix instructions."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import WarpfragError
from warpfrag.formats.number_formats import CANONICAL_NANS
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import resolve
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes, OpcodeRow
from warpfrag.machine.ir.scalar_types import B32, PRED, U32, Codes, Type
from warpfrag.machine.ops.opcode_rows import nothing, optional, required, row
from warpfrag.machine.semantics import floats, integers

Mask = NDArray[np.bool_]

LANE_NUMBERS = np.arange(LANES, dtype=np.uint32)
BIT = np.uint32(1) << LANE_NUMBERS
FLOW = "PTX ISA, Control Flow Instructions"
ISA = "PTX ISA, Parallel Synchronization and Communication Instructions"
MATRIX = "warpfrag's instruction tables: see `warpfrag get`"


def ballot(mask: Mask) -> Codes:
    """Return a boolean lane mask as a 32-bit code, repeated in every lane."""
    bits = np.bitwise_or.reduce(np.where(mask, BIT, np.uint32(0)), axis=1)
    return np.repeat(bits[:, None], 32, axis=1)


def shuffle(mask: Mask | None, a: Codes, b: Codes, c: Codes, *_members: Codes, mode: str) -> tuple[Codes, Codes]:
    """shfl: return another lane's value, and True if that lane is in range; an exited lane supplies 0, as on sm_90."""
    offset, bound, segment = (v.astype(np.int64) for v in (b & 31, c & 31, (c >> np.uint32(8)) & 31))
    lane = LANE_NUMBERS.astype(np.int64)
    top, bottom = (lane & segment) | (bound & ~segment), lane & segment
    source = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": bottom | (offset & ~segment)}[
        mode
    ]
    inside = source >= top if mode == "up" else source <= top
    source = np.where(inside, source, lane)
    values = a if mask is None else np.where(mask, a, a.dtype.type(0))
    return np.take_along_axis(values, source, axis=1), inside


def vote(mask: Mask, a: Codes, *_members: Codes, mode: str) -> Codes:
    """vote: return the result of all, any or uni; for ballot, return the predicates as bits."""
    if mode == "ballot":
        return ballot(mask & a)
    every, some = np.all(a | ~mask, axis=1, keepdims=True), np.any(a & mask, axis=1, keepdims=True)
    held = {"all": every, "any": some, "uni": every | ~some}[mode]
    return np.repeat(held, 32, axis=1)


def match_any(mask: Mask, a: Codes, _members: Codes) -> Codes:
    """match.any: return, for each lane, a mask of the lanes with the same value."""
    same = (a[:, :, None] == a[:, None, :]) & mask[:, None, :]
    return np.bitwise_or.reduce(np.where(same, BIT, np.uint32(0)), axis=2)


def match_all(mask: Mask, a: Codes, _members: Codes) -> tuple[Codes, Codes]:
    """match.all: return a mask of all lanes and True if their values are equal, else zero and False."""
    first = np.take_along_axis(a, mask.argmax(axis=1)[:, None], axis=1)
    same = ((a == first) | ~mask).all(axis=1)[:, None]
    return np.where(same, ballot(mask), np.uint32(0)), np.repeat(same, 32, axis=1)


def reduce_lanes(
    mask: Mask, a: Codes, _members: Codes, *, name: str, ptx_type: Type, style: floats.FloatModifiers
) -> Codes:
    """redux: reduce the values of all participating lanes to one value."""
    if ptx_type.is_float:
        total = np.full((len(a), 1), CANONICAL_NANS["f32"], np.uint32)
        started = np.zeros((len(a), 1), np.bool_)
        for lane in range(32):
            value = a[:, lane : lane + 1]
            both = floats.extreme("f32", style, np.where(started, total, value), value, largest=name == "max")
            here = mask[:, lane : lane + 1]
            total, started = np.where(here, both, total), started | here
        return np.repeat(total, 32, axis=1)
    values = integers.values_of(a, ptx_type.kind)
    bits = values.dtype.type
    info = np.iinfo(values.dtype)
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": info.max, "max": info.min}[name]
    neutral = info.max if name == "and" else neutral
    function = {
        "add": np.add, "or": np.bitwise_or, "xor": np.bitwise_xor, "and": np.bitwise_and,
        "min": np.minimum, "max": np.maximum,
    }[name]  # fmt: skip
    total = function.reduce(np.where(mask, values, bits(neutral)), axis=1, dtype=values.dtype)
    return np.repeat(total[:, None], 32, axis=1).view(np.uint32)


def elect(mask: Mask, _members: Codes) -> tuple[Codes, Codes]:
    """elect: return the number of the first participating lane, and a predicate that is True only in that lane."""
    first = mask.argmax(axis=1).astype(np.uint32)[:, None]
    return np.repeat(first, 32, axis=1), first == LANE_NUMBERS


def _shuffle(attributes: Attributes) -> actions.WarpCollective:
    synced = attributes.sync
    sources = (B32, U32, U32, B32) if synced else (B32, U32, U32)
    return actions.WarpCollective(
        (B32, PRED), sources, partial(shuffle, mode=attributes.operation or ""), synced, by_members=False
    )


def _vote(attributes: Attributes) -> actions.WarpCollective:
    mode, synced = attributes.operation or "", attributes.sync
    result = B32 if mode == "ballot" else PRED
    return actions.WarpCollective((result,), (PRED, B32) if synced else (PRED,), partial(vote, mode=mode), synced)


def _match(attributes: Attributes) -> actions.WarpCollective:
    ptx_type = attributes.types[0]
    if attributes.operation == "any":
        return actions.WarpCollective((B32,), (ptx_type, B32), match_any)
    return actions.WarpCollective((B32, PRED), (ptx_type, B32), match_all)


def _reduce(attributes: Attributes) -> actions.WarpCollective:
    ptx_type = attributes.types[0]
    style = floats.FloatModifiers(nan=attributes.nan, abs=attributes.abs)
    reduce = partial(reduce_lanes, name=attributes.operation or "", ptx_type=ptx_type, style=style)
    return actions.WarpCollective((ptx_type,), (ptx_type, B32), reduce)


def _barrier(attributes: Attributes) -> actions.Action:
    aligned = attributes.opcode == "bar" or attributes.aligned
    return actions.Barrier(attributes.operation != "arrive", attributes.reduction or "", aligned)


def _matrix(attributes: Attributes) -> actions.Action:
    """Return the action for the `isa` instruction that the attributes name."""
    try:
        form = resolve(attributes.name)
    except WarpfragError as error:
        return actions.Refused(str(error))
    return actions.MatrixOp(spell(form), attributes.opcode, form, attributes.space)


SYNC, NEEDS_SYNC, ALIGNED, CTA, UNIFORM = (
    optional("sync"), required("sync"), optional("aligned"), optional("cta"), optional("uni"),
)  # fmt: skip
SHARED = ("shared", "shared::cta", "shared::cluster")
RED, COUNTED, VOTED = required("red"), required("popc"), required("and", "or")
ARRIVE, IDX = required("sync", "arrive"), required("idx")
ROWS: list[OpcodeRow] = [
    row("bra", [], lambda _: actions.Branch(), FLOW, has_result=False, uniform=UNIFORM),
    row("brx", [], lambda _: actions.Branch(indexed=True), FLOW, has_result=False, indexed=IDX, uniform=UNIFORM),
    row("call", [], lambda _: actions.DirectCall(), FLOW, has_result=False, uniform=UNIFORM),
    row("ret", [], lambda _: actions.Return(), FLOW, has_result=False, uniform=UNIFORM),
    row("exit", [], lambda _: actions.Return(whole_thread=True), FLOW, has_result=False),
    row("trap", [], lambda _: actions.Trap(), FLOW, has_result=False),
    row("brkpt", [], lambda _: actions.Trap(), FLOW, has_result=False),
    row("nanosleep", ["u32"], lambda _: actions.NoOp(pauses=True), FLOW, has_result=False),
    row("pmevent", [], nothing, FLOW, has_result=False, event_mask=optional("mask")),
    row("membar", [], nothing, ISA, has_result=False, any_words=True),
    row("fence", [], nothing, ISA, has_result=False, any_words=True),
    row("griddepcontrol", [], nothing, ISA, has_result=False, any_words=True),
    row("setmaxnreg", [], nothing, ISA, has_result=False, any_words=True),
    row("bar", [], _barrier, ISA, has_result=False, cta=CTA, operation=ARRIVE),
    row("barrier", [], _barrier, ISA, has_result=False, cta=CTA, operation=ARRIVE, aligned=ALIGNED),
    row("bar", ["u32"], _barrier, ISA, cta=CTA, operation=RED, reduction=COUNTED),
    row("bar", ["pred"], _barrier, ISA, cta=CTA, operation=RED, reduction=VOTED),
    row("barrier", ["u32"], _barrier, ISA, cta=CTA, operation=RED, reduction=COUNTED, aligned=ALIGNED),
    row("barrier", ["pred"], _barrier, ISA, cta=CTA, operation=RED, reduction=VOTED, aligned=ALIGNED),
    row("bar", [], lambda _: actions.WarpWait(), ISA, has_result=False, warp=required("warp"), operation=NEEDS_SYNC),
    row("shfl", ["b32"], _shuffle, ISA, sync=SYNC, operation=required("up", "down", "bfly", "idx")),
    row("vote", ["pred"], _vote, ISA, sync=SYNC, operation=required("all", "any", "uni")),
    row("vote", ["b32"], _vote, ISA, sync=SYNC, operation=required("ballot")),
    row("match", ["b32 b64"], _match, ISA, operation=required("any", "all"), sync=NEEDS_SYNC),
    row("redux", ["u32 s32"], _reduce, ISA, sync=NEEDS_SYNC, operation=required("add", "min", "max")),
    row("redux", ["b32"], _reduce, ISA, sync=NEEDS_SYNC, operation=required("and", "or", "xor")),
    row(
        "redux", ["f32"], _reduce, ISA,
        sync=NEEDS_SYNC, operation=required("min", "max"), abs=optional("abs"), nan=optional("NaN"),
    ),
    row("activemask", ["b32"], lambda _: actions.WarpCollective((B32,), (), ballot, synced=False), ISA),
    row("elect", [], lambda _: actions.WarpCollective((B32, PRED), (B32,), elect), ISA, sync=NEEDS_SYNC),
    row("mma", [], _matrix, MATRIX, any_words=True),
    row("wmma", [], _matrix, MATRIX, any_words=True, operation=required("mma")),
    row("wmma", [], _matrix, MATRIX, any_words=True, operation=required("load"), space=optional("global", *SHARED)),
    row(
        "wmma", [], _matrix, MATRIX,
        has_result=False, any_words=True, operation=required("store"), space=optional("global", *SHARED),
    ),
    row("ldmatrix", [], _matrix, MATRIX, any_words=True, space=optional(*SHARED)),
    row("stmatrix", [], _matrix, MATRIX, has_result=False, any_words=True, space=optional(*SHARED)),
    row("movmatrix", [], _matrix, MATRIX, any_words=True),
    row(
        "wgmma", [], nothing, ISA, has_result=False,
        operation=required("fence", "commit_group", "wait_group"), sync=NEEDS_SYNC, aligned=required("aligned"),
    ),
    row("wgmma", [], _matrix, MATRIX, operation=required("mma_async"), any_words=True),
]  # fmt: skip
