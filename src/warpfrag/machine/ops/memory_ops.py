"""Opcode rows for memory instructions: loads, stores, atomics, asynchronous copies, mbarriers, prefetches."""

from collections.abc import Sequence

import numpy as np

from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes, Modifier, OpcodeRow, Types
from warpfrag.machine.ir.scalar_types import B64, Codes, Type, types_of
from warpfrag.machine.ops.integer import by_parts
from warpfrag.machine.ops.opcode_rows import nothing, optional, required, row
from warpfrag.machine.semantics import floats, integers
from warpfrag.machine.semantics.floats import FloatModifiers

ISA = "PTX ISA, Data Movement and Conversion Instructions"
ATOMS = "PTX ISA, Parallel Synchronization and Communication Instructions: atom, red"
ASYNC = "PTX ISA, cp.async: completes when it is issued"
BARRIERS = "PTX ISA, mbarrier"


def _wide(attributes: Attributes) -> tuple[Type, int]:
    """Return the element type and count of a load or store; a 128-bit element counts as two."""
    ptx_type, count = attributes.types[0], attributes.vector
    return (B64, 2 * count) if ptx_type.bits == 128 else (ptx_type, count)


def _load(attributes: Attributes) -> actions.MemoryLoad:
    polls = attributes.ordering in {"relaxed", "acquire", "volatile"}
    return actions.MemoryLoad(attributes.space, *_wide(attributes), polls)


def _store(attributes: Attributes) -> actions.MemoryStore:
    return actions.MemoryStore(attributes.space, *_wide(attributes))


def _global_sum(ptx_type: Type) -> actions.CodeFunction:
    """Return the addition that global atomics perform: it flushes f32 subnormals and keeps an f64 NaN unchanged.

    If both operands are NaN, the result is b. This was measured on an H200.
    """
    style = FloatModifiers(ftz=ptx_type.element == "f32")

    def run(a: Codes, b: Codes) -> Codes:
        result = floats.add(ptx_type.element, style, a, b)
        if ptx_type.element != "f64":
            return result
        return np.where(floats.is_nan(b, "f64"), b, np.where(floats.is_nan(a, "f64"), a, result))

    return by_parts(ptx_type, run)


def _loop_sum(ptx_type: Type) -> actions.CodeFunction:
    """Return the function that adds in shared and local atomics, whose second addend is the old value."""
    return by_parts(ptx_type, lambda a, b: floats.add(ptx_type.element, FloatModifiers(), b, a))


def _compare_and_swap(a: Codes, b: Codes, c: Codes) -> Codes:
    return np.where((a == b).all(axis=-1, keepdims=True), c, a)  # compares all 128 bits at once


def update_of(attributes: Attributes) -> actions.CodeFunction:
    """Return the function that computes an atomic's new value from the old value and the operands."""
    ptx_type, name = attributes.types[0], attributes.operation or ""
    if name in {"min", "max"} and ptx_type.is_float:
        return by_parts(
            ptx_type, lambda a, b: floats.extreme(ptx_type.element, FloatModifiers(), a, b, largest=name == "max")
        )
    if name in {"min", "max"}:
        return integers.on_values(np.minimum if name == "min" else np.maximum, ptx_type.kind)
    if name == "add" and ptx_type.is_float:
        return _global_sum(ptx_type) if attributes.space in {"global", "generic"} else _loop_sum(ptx_type)
    plain: dict[str, actions.CodeFunction] = {
        "add": np.add,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "exch": lambda _, b: b,
        "inc": lambda a, b: np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1)),
        "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - a.dtype.type(1)),
        "cas": _compare_and_swap,
    }
    return plain[name]


def _atomic(attributes: Attributes) -> actions.Atomic:
    kind, count = _wide(attributes)
    returns, name = attributes.opcode == "atom", attributes.operation or ""
    in_window = _loop_sum(kind) if name == "add" and kind.is_float else None
    return actions.Atomic(attributes.space, kind, count, name, update_of(attributes), returns, kind.is_float, in_window)


def _atomics(opcode: str, updates: Sequence[tuple[tuple[str, ...], Types]], *, has_result: bool) -> list[OpcodeRow]:
    """Return the rows of atom or red, given the types that each operation supports."""
    return [
        row(opcode, [types], _atomic, ATOMS, has_result=has_result, operation=required(*names), like=ATOMIC)
        for names, types in updates
    ]


def _copy_word(_attributes: Attributes) -> actions.LaneOp:
    return actions.LaneOp((B64,), (B64,), lambda a: a)


def _barrier(attributes: Attributes) -> actions.MemoryBarrier:
    name = attributes.operation or ""
    return actions.MemoryBarrier(
        name,
        attributes.space,
        parity=attributes.parity,
        waits=name in {"try_wait", "test_wait"},
        transaction="expect_tx" in {attributes.arrival, name},
        drops=name == "arrive_drop",
        completes=attributes.arrival != "noComplete",
    )


MOVED = types_of("b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 f16 bf16 f16x2 bf16x2 b128")  # fmt: skip
POLICY = actions.LaneOp((B64,), (), lambda: np.zeros((1, 1), np.uint64))
SHARED = ("shared", "shared::cta", "shared::cluster")
SCOPE = optional("cta", "cluster", "gpu", "sys")
CACHE_HINT = optional("L2::cache_hint")
PREFETCH = optional("L2::64B", "L2::128B", "L2::256B")
VECTOR = optional("v2", "v4", "v8")
MEMORY: dict[str, Modifier] = {
    "space": optional("global", *SHARED, "local", "param", "param::entry", "param::func", "const"),
    "memory_mapped": optional("mmio"),
    "ordering": optional("weak", "relaxed", "acquire", "release", "acq_rel", "volatile"),
    "scope": SCOPE,
    "cache": optional("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"),
    "level1": optional(
        "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"
    ),
    "level2": optional("L2::evict_normal", "L2::evict_first", "L2::evict_last"),
    "prefetch": PREFETCH,
    "cache_hint": CACHE_HINT,
    "vector": VECTOR,
    "coherent": optional("nc"),
    "unified": optional("unified"),
}
STORED = MEMORY | {"space": optional("global", *SHARED, "local", "param", "param::func")}
ATOMIC: dict[str, Modifier] = {
    "ordering": optional("relaxed", "acquire", "release", "acq_rel"),
    "scope": SCOPE,
    "space": optional("global", *SHARED),
    "cache_hint": CACHE_HINT,
    "noftz": optional("noftz"),
    "vector": VECTOR,
}
UPDATES = (
    (("and", "or", "xor"), types_of("b32 b64")),
    (("add",), types_of("u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2")),
    (("min", "max"), types_of("u32 s32 u64 s64 f16 f16x2 bf16 bf16x2")),
    (("inc", "dec"), types_of("u32")),
)
EXCHANGES = ((("cas",), types_of("b16 b32 b64 b128")), (("exch",), types_of("b32 b64 b128")))
ARRIVAL: dict[str, Modifier] = {
    "ordering": optional("release", "relaxed", "acquire"),
    "scope": optional("cta", "cluster"),
    "space": optional(*SHARED),
    "b64": required("b64"),
}
ROWS: list[OpcodeRow] = [
    row("ld", [MOVED], _load, ISA, like=MEMORY),
    row("ldu", [MOVED], _load, ISA, like=MEMORY),
    row("st", [MOVED], _store, ISA, has_result=False, like=STORED),
    *_atomics("atom", (*UPDATES, *EXCHANGES), has_result=True),
    *_atomics("red", UPDATES, has_result=False),
    row(
        "cp", [], lambda _: actions.AsyncCopy(), ASYNC, has_result=False,
        asynchronous=required("async"), cache=required("ca", "cg"),
        to=required("shared", "shared::cta"), source=required("global"), cache_hint=CACHE_HINT, prefetch=PREFETCH,
    ),
    row(
        "cp", [], nothing, ASYNC, has_result=False, asynchronous=required("async"),
        group=required("commit_group", "wait_group", "wait_all"),
    ),
    row(
        "cp", [], lambda attributes: actions.MemoryBarrier("copies", attributes.space, counts=attributes.noinc),
        BARRIERS, has_result=False,
        asynchronous=required("async"), mbarrier=required("mbarrier"),
        arrive=required("arrive"), noinc=optional("noinc"), space=optional(*SHARED), b64=required("b64"),
    ),
    row(
        "mbarrier", [], _barrier, BARRIERS, has_result=False, operation=required("init", "inval"),
        space=optional(*SHARED), b64=required("b64"),
    ),
    row(
        "mbarrier", [], _barrier, BARRIERS, has_result=False,
        operation=required("expect_tx", "complete_tx"), like=ARRIVAL,
    ),
    row(
        "mbarrier", [], _barrier, BARRIERS, operation=required("arrive", "arrive_drop"),
        arrival=optional("expect_tx", "noComplete"), like=ARRIVAL,
    ),
    row(
        "mbarrier", [], _barrier, BARRIERS, operation=required("test_wait", "try_wait"),
        parity=optional("parity"), like=ARRIVAL,
    ),
    row("mbarrier", [], _barrier, BARRIERS, operation=required("pending_count"), b64=required("b64")),
    row("alloca", ["u64"], lambda _: actions.Allocate(), f"{ISA}: stack addresses are chosen by this implementation"),
    row("stacksave", ["u64"], _copy_word, ISA),
    row("stackrestore", ["u64"], _copy_word, ISA),
    row("prefetch", [], nothing, ISA, has_result=False, any_words=True),
    row("prefetchu", [], nothing, ISA, has_result=False, any_words=True),
    row("applypriority", [], nothing, ISA, has_result=False, any_words=True),
    row("discard", [], nothing, ISA, has_result=False, any_words=True),
    row("createpolicy", [], lambda _: POLICY, f"{ISA}: cache policies do not change values", any_words=True),
]  # fmt: skip
