"""Rows of what lanes, warps and blocks do together: control flow, barriers, shuffles, votes, matrices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import WarpfragError
from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import (
    Across,
    Action,
    Barrier,
    Branch,
    Call,
    Leave,
    Matrix,
    Nothing,
    Refused,
    Trap,
    WarpWait,
)
from warpfrag.ptx.program.types import TYPES, Codes
from warpfrag.ptx.semantics import floats, integers

if TYPE_CHECKING:
    Mask = Codes

LANES = np.arange(32, dtype=np.uint32)
BIT = np.uint32(1) << LANES
U32, B32, PRED = TYPES["u32"], TYPES["b32"], TYPES["pred"]
FLOW = "PTX ISA, Control Flow Instructions"
ISA = "PTX ISA, Parallel Synchronization and Communication Instructions"
MATRIX = "warpfrag's own rows: see `warpfrag info`"


def ballot(mask: Mask) -> Codes:
    """The lanes of a mask as bits, the same in every lane."""
    bits = np.bitwise_or.reduce(np.where(mask, BIT, np.uint32(0)), axis=1)
    return np.repeat(bits[:, None], 32, axis=1)


def shuffle(mask: Mask | None, a: Codes, b: Codes, c: Codes, *_members: Codes, mode: str) -> tuple[Codes, Codes]:
    """shfl: the value of another lane, and whether that lane is in range. As on sm_90 a lane that has left gives 0."""
    offset, bound, segment = (v.astype(np.int64) for v in (b & 31, c & 31, (c >> np.uint32(8)) & 31))
    lane = LANES.astype(np.int64)
    top, bottom = (lane & segment) | (bound & ~segment), lane & segment
    source = {"up": lane - offset, "down": lane + offset, "bfly": lane ^ offset, "idx": bottom | (offset & ~segment)}[
        mode
    ]
    inside = source >= top if mode == "up" else source <= top
    source = np.where(inside, source, lane)
    given = a if mask is None else np.where(mask, a, a.dtype.type(0))
    return np.take_along_axis(given, source, axis=1), inside


def vote(mask: Mask, a: Codes, *_members: Codes, mode: str) -> Codes:
    """vote: all, any, uni, or the predicates as bits."""
    if mode == "ballot":
        return ballot(mask & a)
    every, some = (a | ~mask).all(axis=1), (a & mask).any(axis=1)
    held: Codes = {"all": every, "any": some, "uni": every | ~some}[mode]
    return np.repeat(held[:, None], 32, axis=1)


def match_any(mask: Mask, a: Codes, _members: Codes) -> Codes:
    """match.any: the lanes with the same value."""
    same = (a[:, :, None] == a[:, None, :]) & mask[:, None, :]
    return np.bitwise_or.reduce(np.where(same, BIT, np.uint32(0)), axis=2)


def match_all(mask: Mask, a: Codes, _members: Codes) -> tuple[Codes, Codes]:
    """match.all: all lanes and true if all have one value, else zero and false."""
    first = np.take_along_axis(a, mask.argmax(axis=1)[:, None], axis=1)
    same = ((a == first) | ~mask).all(axis=1)[:, None]
    return np.where(same, ballot(mask), np.uint32(0)), np.repeat(same, 32, axis=1)


def reduce_lanes(mask: Mask, a: Codes, _members: Codes, *, name: str, words: Words) -> Codes:
    """redux: one number of all lanes."""
    kind = words.types[0]
    if kind.is_float:
        style = floats.Style(nan=words.has("NaN"), abs=words.has("abs"))
        total = np.full((len(a), 1), 0x7FFFFFFF, np.uint32)
        started = np.zeros((len(a), 1), np.bool_)
        for lane in range(32):
            one = a[:, lane : lane + 1]
            both = floats.extreme("f32", style, np.where(started, total, one), one, largest=name == "max")
            here = mask[:, lane : lane + 1]
            total, started = np.where(here, both, total), started | here
        return np.repeat(total, 32, axis=1)
    values = integers.values_of(a, kind.kind)
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
    """elect: the first lane, by number and by predicate."""
    first = mask.argmax(axis=1).astype(np.uint32)[:, None]
    return np.repeat(first, 32, axis=1), first == LANES


def _shuffle(words: Words) -> Across:
    synced = words.has("sync")
    sources = (B32, U32, U32, B32) if synced else (B32, U32, U32)
    return Across((B32, PRED), sources, partial(shuffle, mode=words.get("mode")), synced, by_members=False)


def _vote(words: Words) -> Across:
    mode, synced = words.get("mode"), words.has("sync")
    result = B32 if mode == "ballot" else PRED
    return Across((result,), (PRED, B32) if synced else (PRED,), partial(vote, mode=mode), synced)


def _match(words: Words) -> Across:
    kind = words.types[0]
    if words.has("any"):
        return Across((B32,), (kind, B32), match_any)
    return Across((B32, PRED), (kind, B32), match_all)


def _reduce(words: Words) -> Across:
    kind = words.types[0]
    return Across((kind,), (kind, B32), partial(reduce_lanes, name=words.get("name"), words=words))


def _barrier(words: Words) -> Action:
    name = words.get("name")
    aligned = words.opcode == "bar" or words.has("aligned")
    return Barrier(waits=name != "arrive", reduction=words.get("reduction"), aligned=aligned)


def _matrix(words: Words) -> Action:
    from warpfrag.isa.legality import resolve
    from warpfrag.isa.names import spell

    try:
        form = resolve(words.full_name)
    except WarpfragError as error:
        return Refused(str(error))
    return Matrix(spell(form), words.opcode)


def _nothing(_words: Words) -> Action:
    return Nothing()


ROWS: list[Row] = [
    row("bra", "", lambda _: Branch(), FLOW, uni="uni"),
    row("brx", "", lambda _: Branch(indexed=True), FLOW, idx="!idx", uni="uni"),
    row("call", "", lambda _: Call(), FLOW, uni="uni"),
    row("ret", "", lambda _: Leave(), FLOW, uni="uni"),
    row("exit", "", lambda _: Leave(whole_thread=True), FLOW),
    row("trap", "", lambda _: Trap(), FLOW),
    row("brkpt", "", lambda _: Trap(), FLOW),
    row("nanosleep", "u32", _nothing, FLOW),
    row("pmevent", "", _nothing, FLOW, mask="mask"),
    row("membar", "", _nothing, ISA, any_words=True),
    row("fence", "", _nothing, ISA, any_words=True),
    row("griddepcontrol", "", _nothing, ISA, any_words=True),
    row("setmaxnreg", "", _nothing, ISA, any_words=True),
    row("bar", "", _barrier, ISA, cta="cta", name="!sync arrive"),
    row("barrier", "", _barrier, ISA, cta="cta", name="!sync arrive", aligned="aligned"),
    row("bar", "u32", _barrier, ISA, cta="cta", name="!red", reduction="!popc"),
    row("bar", "pred", _barrier, ISA, cta="cta", name="!red", reduction="!and or"),
    row("barrier", "u32", _barrier, ISA, cta="cta", name="!red", reduction="!popc", aligned="aligned"),
    row("barrier", "pred", _barrier, ISA, cta="cta", name="!red", reduction="!and or", aligned="aligned"),
    row("bar", "", lambda _: WarpWait(), ISA, warp="!warp", name="!sync"),
    row("shfl", "b32", _shuffle, ISA, sync="sync", mode="!up down bfly idx"),
    row("vote", "pred", _vote, ISA, sync="sync", mode="!all any uni"),
    row("vote", "b32", _vote, ISA, sync="sync", mode="!ballot"),
    row("match", "b32 b64", _match, ISA, mode="!any all", sync="!sync"),
    row("redux", "u32 s32", _reduce, ISA, sync="!sync", name="!add min max"),
    row("redux", "b32", _reduce, ISA, sync="!sync", name="!and or xor"),
    row("redux", "f32", _reduce, ISA, sync="!sync", name="!min max", abs="abs", nan="NaN"),
    row("activemask", "b32", lambda _: Across((B32,), (), ballot, synced=False), ISA),
    row("elect", "", lambda _: Across((B32, PRED), (B32,), elect), ISA, sync="!sync"),
    row("mma", "", _matrix, MATRIX, any_words=True),
    row("wmma", "", _matrix, MATRIX, any_words=True),
    row("ldmatrix", "", _matrix, MATRIX, any_words=True),
    row("stmatrix", "", _matrix, MATRIX, any_words=True),
    row("movmatrix", "", _matrix, MATRIX, any_words=True),
    row("wgmma", "", _nothing, ISA, name="!fence commit_group wait_group", sync="!sync", aligned="!aligned"),
    row("wgmma", "", _matrix, MATRIX, name="!mma_async", any_words=True),
]
