"""Rows of what touches memory: loads, stores, atomics, asynchronous copies, mbarriers, prefetches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from warpfrag.ptx.opcodes.integer import by_parts
from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Action, AsyncCopy, Atomic, Load, MemoryBarrier, Nothing, Pure, Space, Store
from warpfrag.ptx.program.types import TYPES
from warpfrag.ptx.semantics import floats, integers
from warpfrag.ptx.semantics.floats import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.types import Type

MOVED = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 f16 bf16 f16x2 bf16x2 b128"
SPACES = "global shared shared::cta shared::cluster local param param::entry param::func const"
SHARED = "shared shared::cta shared::cluster"
ORDERING = "weak relaxed acquire release acq_rel volatile mmio"
SCOPE = "cta cluster gpu sys"
CACHE = "ca cg cs lu cv wb wt nc"
LEVEL1 = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
LEVEL2 = "L2::evict_normal L2::evict_first L2::evict_last"
PREFETCH = "L2::64B L2::128B L2::256B"
MEMORY = {
    "space": SPACES, "order": ORDERING, "scope": SCOPE, "cache": CACHE, "level1": LEVEL1, "level2": LEVEL2,
    "prefetch": PREFETCH, "hint": "L2::cache_hint", "vector": "v2 v4 v8", "coherent": "nc", "unified": "unified",
}  # fmt: skip
ISA = "PTX ISA, Data Movement and Conversion Instructions"
ATOMS = "PTX ISA, Parallel Synchronization and Communication Instructions: atom, red"
ASYNC = "PTX ISA, cp.async: done when it is issued"
BARRIERS = "PTX ISA, mbarrier"


def space_of(words: Words) -> Space:
    """The state space, without the part after ::."""
    return cast("Space", words.get("space", "generic").split("::")[0])


def vector_of(words: Words) -> int:
    """How many elements are moved at once."""
    return int(words.get("vector", "v1")[1:])


def _wide(words: Words) -> tuple[Type, int]:
    """The type and number of what is moved: 128 bits are two halves."""
    kind, count = words.types[0], vector_of(words)
    return (TYPES["b64"], 2 * count) if kind.bits == 128 else (kind, count)


def _load(words: Words) -> Load:
    polls = words.get("order") in {"relaxed", "acquire", "volatile", "mmio"}
    return Load(space_of(words), *_wide(words), polls)


def _store(words: Words) -> Store:
    return Store(space_of(words), *_wide(words))


def _float_sum(kind: Type, words: Words) -> Callable[..., Any]:
    # sums of f32 in global memory flush subnormals, those in shared memory do not
    style = Style(ftz=kind.element == "f32" and space_of(words) != "shared")
    return by_parts(kind, lambda a, b: floats.add(kind.element, style, a, b))


def _increment(a: Any, b: Any) -> Any:  # noqa: ANN401 (arrays)
    return np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1))


def _decrement(a: Any, b: Any) -> Any:  # noqa: ANN401 (arrays)
    return np.where((a == 0) | (a > b), b, a - a.dtype.type(1))


def _update(words: Words) -> Callable[..., Any]:
    """The new value of an old one and the operands."""
    kind, name = words.types[0], words.get("update")
    if name in {"min", "max"} and kind.is_float:
        return by_parts(kind, lambda a, b: floats.extreme(kind.element, Style(), a, b, largest=name == "max"))
    if name in {"min", "max"}:
        pick = np.minimum if name == "min" else np.maximum
        return lambda a, b: pick(integers.values_of(a, kind.kind), integers.values_of(b, kind.kind)).view(a.dtype)
    if name == "add" and kind.is_float:
        return _float_sum(kind, words)
    plain: dict[str, Callable[..., Any]] = {
        "add": np.add,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "exch": lambda _, b: b,
        "inc": _increment,
        "dec": _decrement,
        "cas": lambda a, b, c: np.where((a == b).all(axis=-1, keepdims=True), c, a),  # all of 128 bits at once
    }
    return plain[name]


def _atomic(words: Words) -> Atomic:
    kind, count = _wide(words)
    returns = words.opcode == "atom"
    return Atomic(space_of(words), kind, count, words.get("update"), _update(words), returns, kind.is_float)


def _atomics(opcode: str) -> list[Row]:
    options = {
        "order": "relaxed acquire release acq_rel", "scope": SCOPE, "space": f"global {SHARED}",
        "hint": "L2::cache_hint", "ftz": "noftz", "vector": "v2 v4 v8",
    }  # fmt: skip
    kinds = [
        ("and or xor", "b32 b64"),
        ("add", "u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2"),
        ("min max", "u32 s32 u64 s64 f16 f16x2 bf16 bf16x2"),
        ("inc dec", "u32"),
    ]
    if opcode == "atom":
        kinds += [("cas", "b16 b32 b64 b128"), ("exch", "b32 b64 b128")]
    return [row(opcode, types, _atomic, ATOMS, update=f"!{names}", like=options) for names, types in kinds]


def _copy(words: Words) -> AsyncCopy:
    return AsyncCopy(0, words.operands)


def _nothing(_words: Words) -> Action:
    return Nothing()


def _allocate(_words: Words) -> Action:
    """alloca: a part of the stack, from its size, its alignment, what is taken and where the stack starts."""
    kind = TYPES["b64"]

    def run(size: Any, align: Any, taken: Any, start: Any) -> Any:  # noqa: ANN401 (arrays)
        place = (taken + align - np.uint64(1)) // align * align
        return start + place, place + size

    return Pure((kind, kind), (kind,) * 4, run)


def _copy_word(_words: Words) -> Action:
    kind = TYPES["b64"]
    return Pure((kind,), (kind,), lambda a: a)


def _policy(_words: Words) -> Action:
    return Pure((TYPES["b64"],), (), lambda: np.zeros((1, 1), np.uint64))


def _barrier(words: Words) -> MemoryBarrier:
    name = words.get("name")
    return MemoryBarrier(
        name,
        "shared" if "space" in words.options else "generic",
        parity=words.has("parity"),
        waits=name == "try_wait",
        transaction=words.has("expect_tx") or name == "expect_tx",
        drops=name == "arrive_drop",
        completes=not words.has("noComplete"),
    )


def _copy_arrives(words: Words) -> MemoryBarrier:
    return MemoryBarrier("copies", "shared" if "space" in words.options else "generic", counts=words.has("noinc"))


ARRIVAL = {"order": "release relaxed acquire", "scope": "cta cluster", "space": SHARED, "type": "!b64"}
ROWS: list[Row] = [
    row("ld", MOVED, _load, ISA, like=MEMORY),
    row("ldu", MOVED, _load, ISA, like=MEMORY),
    row("st", MOVED, _store, ISA, like=MEMORY),
    *_atomics("atom"),
    *_atomics("red"),
    row(
        "cp", "", _copy, ASYNC, kind="!async", cache="!ca cg", to="!shared shared::cta", source="!global",
        hint="L2::cache_hint", prefetch=PREFETCH,
    ),
    row("cp", "", _nothing, ASYNC, kind="!async", group="!commit_group wait_group wait_all"),
    row(
        "cp", "", _copy_arrives, BARRIERS, kind="!async", barrier="!mbarrier", arrive="!arrive", noinc="noinc",
        space=SHARED, type="!b64",
    ),
    row("mbarrier", "", _barrier, BARRIERS, name="!init inval", space=SHARED, type="!b64"),
    row("mbarrier", "", _barrier, BARRIERS, name="!expect_tx complete_tx", like=ARRIVAL),
    row("mbarrier", "", _barrier, BARRIERS, name="!arrive arrive_drop", extra="expect_tx noComplete", like=ARRIVAL),
    row("mbarrier", "", _barrier, BARRIERS, name="!test_wait try_wait", parity="parity", like=ARRIVAL),
    row("mbarrier", "", _barrier, BARRIERS, name="!pending_count", type="!b64"),
    row("alloca", "u64", _allocate, f"{ISA}: the places of the stack are our own"),
    row("stacksave", "u64", _copy_word, ISA),
    row("stackrestore", "u64", _copy_word, ISA),
    row("prefetch", "", _nothing, ISA, any_words=True),
    row("prefetchu", "", _nothing, ISA, any_words=True),
    row("applypriority", "", _nothing, ISA, any_words=True),
    row("discard", "", _nothing, ISA, any_words=True),
    row("createpolicy", "", _policy, f"{ISA}: a policy changes no value", any_words=True),
]  # fmt: skip
