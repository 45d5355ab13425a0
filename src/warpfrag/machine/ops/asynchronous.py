"""Opcode rows for tcgen05, and for asynchronous data movement on sm_90: bulk copies, tensor maps, cluster access.

Each operation completes when it is issued: its mbarrier is signalled at once, and committed bulk groups are empty.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from warpfrag.errors import ParseError
from warpfrag.isa.tcgen05_spelling import read_qualifiers
from warpfrag.machine.ir import actions
from warpfrag.machine.ir.opcode import Attributes, Binder, Modifier, OpcodeRow
from warpfrag.machine.ir.scalar_types import U32, Codes, Type
from warpfrag.machine.ir.state_spaces import RANK_BITS, RANK_SHIFT, StateSpace
from warpfrag.machine.ops.memory_ops import CACHE_HINT, update_of
from warpfrag.machine.ops.opcode_rows import nothing, optional, required, row
from warpfrag.smem.tensor_map import REPLACED

BULK = "PTX ISA, cp.async.bulk and cp.reduce.async.bulk: completes when it is issued"
TENSOR = "PTX ISA, cp.async.bulk.tensor; results for invalid coordinates were measured on an H200"
MAPS = "PTX ISA, tensormap.replace and tensormap.cp_fenceproxy"
CLUSTERS = "PTX ISA, mapa, getctarank and barrier.cluster"
MULTIMEM = "multimem needs a multicast object of several GPUs, and only one GPU is modelled"


def reduction(name: str, ptx_type: Type, space: StateSpace) -> actions.CodeFunction:
    """Return the element-wise function of a bulk reduction; it is the same as for `red`."""
    return update_of(Attributes(name, "red", (ptx_type,), operation=name, space=space))


def _bulk_copy(attributes: Attributes) -> actions.BulkCopy:
    target, source = attributes.destination or "global", attributes.origin or "global"
    tells_mbarrier = target != "global"
    if not attributes.operation:
        return actions.BulkCopy(target, source, tells_mbarrier, attributes.multicast)
    ptx_type = attributes.types[0]
    function = reduction(attributes.operation, ptx_type, "shared" if tells_mbarrier else "global")
    return actions.BulkCopy(target, source, tells_mbarrier, type=ptx_type, function=function)


def _tensor_copy(attributes: Attributes) -> actions.TensorCopy:
    direction: Literal["load", "store"] = "store" if attributes.destination == "global" else "load"
    return actions.TensorCopy(
        attributes.axes, direction, attributes.load_mode or "tile", attributes.multicast, attributes.operation or ""
    )


def _async_store(attributes: Attributes) -> actions.AsyncStore:
    ptx_type = attributes.types[0]
    function = reduction(attributes.operation, ptx_type, "shared") if attributes.operation else None
    return actions.AsyncStore(ptx_type, attributes.vector, function, is_ordered=attributes.operation in {"inc", "dec"})


def _replace(attributes: Attributes) -> actions.TensorMapReplace:
    field = attributes.map_field or ""
    return actions.TensorMapReplace(attributes.space, field, REPLACED[field].has_axis)


def _map_address(attributes: Attributes) -> actions.LaneOp:
    """Return the action of mapa, which puts a block's rank, XORed with the executing block's, into an address."""
    ptx_type = attributes.types[0]

    def run(a: Codes, rank: Codes, own: Codes) -> Codes:
        plain = a & a.dtype.type(~RANK_BITS & ((1 << ptx_type.bits) - 1))
        return plain | (rank ^ own).astype(a.dtype) << a.dtype.type(RANK_SHIFT)

    return actions.LaneOp((ptx_type,), (ptx_type, U32, U32), run)


def _block_rank(attributes: Attributes) -> actions.LaneOp:
    """Return the action of getctarank, which extracts the block rank of an address."""
    ptx_type = attributes.types[0]

    def run(a: Codes, own: Codes) -> Codes:
        field = (a >> a.dtype.type(RANK_SHIFT)).astype(np.uint32) & np.uint32(0xFF)
        return (field ^ own).astype(np.uint32)

    return actions.LaneOp((U32,), (ptx_type, U32), run)


def _reductions(opcode: str, bind: Binder, like: Mapping[str, Modifier], types: dict[str, str]) -> list[OpcodeRow]:
    """Return the rows of an opcode that reduces memory, by operations and their types."""
    return [
        row(opcode, [each], bind, BULK, has_result=False, like=like, operation=required(*names.split()))
        for names, each in {"inc dec": "u32", **types}.items()
    ]


ASYNC: dict[str, Modifier] = {"asynchronous": required("async"), "bulk": required("bulk")}
REDUCE: dict[str, Modifier] = {"reduces": required("reduce"), **ASYNC}
MBARRIER, GROUP = required("mbarrier::complete_tx::bytes"), required("bulk_group")
MULTICAST = optional("multicast::cluster")
CLUSTER, CTA, GLOBAL = required("shared::cluster"), required("shared::cta"), required("global")
LOADED = required("shared::cluster", "shared::cta")
AXES = required("1d", "2d", "3d", "4d", "5d")
TO_CLUSTER: dict[str, Modifier] = {**REDUCE, "destination": CLUSTER, "origin": CTA, "completion": MBARRIER}
TO_GLOBAL: dict[str, Modifier] = {
    **REDUCE, "destination": GLOBAL, "origin": CTA, "completion": GROUP, "cache_hint": CACHE_HINT,
}  # fmt: skip
REMOTE: dict[str, Modifier] = {
    "asynchronous": required("async"), "ordering": optional("weak", "relaxed"), "scope": optional("cluster"),
    "space": CLUSTER, "completion": MBARRIER,
}  # fmt: skip
MAPPED: dict[str, Modifier] = {"space": optional("shared::cluster")}
ROWS: list[OpcodeRow] = [
    row(
        "cp", [], _bulk_copy, BULK, has_result=False, like=ASYNC,
        destination=LOADED, origin=GLOBAL, completion=MBARRIER, multicast=MULTICAST, cache_hint=CACHE_HINT,
    ),
    row("cp", [], _bulk_copy, BULK, has_result=False, like=ASYNC, destination=CLUSTER, origin=CTA, completion=MBARRIER),
    row(
        "cp", [], _bulk_copy, BULK, has_result=False, like=ASYNC,
        destination=GLOBAL, origin=CTA, completion=GROUP, cache_hint=CACHE_HINT,
    ),
    row(
        "cp", [], nothing, BULK, has_result=False, like=ASYNC,
        prefetches=required("prefetch"), level2=required("L2"), origin=GLOBAL, cache_hint=CACHE_HINT,
    ),
    row(
        "cp", [], nothing, BULK, has_result=False, like=ASYNC,
        group=required("commit_group", "wait_group"), reads=optional("read"),
    ),
    *_reductions("cp", _bulk_copy, TO_CLUSTER, {"add": "u32 s32 u64", "min max": "u32 s32", "and or xor": "b32 b64"}),
    *_reductions(
        "cp", _bulk_copy, TO_GLOBAL,
        {"add": "u32 s32 u64 f32 f64", "min max": "u32 s32 u64 s64 f16 bf16", "and or xor": "b32 b64"},
    ),
    row(
        "cp", ["f16 bf16"], _bulk_copy, BULK, has_result=False, like=TO_GLOBAL, operation=required("add"),
        noftz=required("noftz"),
    ),
    row(
        "cp", [], _tensor_copy, TENSOR, has_result=False, like=ASYNC, tensor=required("tensor"), axes=AXES,
        destination=LOADED, origin=GLOBAL, load_mode=optional("tile", "im2col"), completion=MBARRIER,
        multicast=MULTICAST, cache_hint=CACHE_HINT,
    ),
    row(
        "cp", [], _tensor_copy, TENSOR, has_result=False, like=ASYNC, tensor=required("tensor"), axes=AXES,
        destination=GLOBAL, origin=CTA, load_mode=optional("tile", "im2col_no_offs"), completion=GROUP,
        cache_hint=CACHE_HINT,
    ),
    row(
        "cp", [], _tensor_copy, TENSOR, has_result=False, like=REDUCE, tensor=required("tensor"), axes=AXES,
        destination=GLOBAL, origin=CTA, operation=required("add", "min", "max", "inc", "dec", "and", "or", "xor"),
        load_mode=optional("tile", "im2col_no_offs"), completion=GROUP, cache_hint=CACHE_HINT,
    ),
    row(
        "cp", [], nothing, TENSOR, has_result=False, like=ASYNC, prefetches=required("prefetch"),
        tensor=required("tensor"), axes=AXES, level2=required("L2"), origin=GLOBAL,
        load_mode=optional("tile", "im2col"), cache_hint=CACHE_HINT,
    ),
    row(
        "st", ["b32 b64 u32 u64 s32 s64 f32 f64"], _async_store, BULK, has_result=False, like=REMOTE,
        vector=optional("v2", "v4"),
    ),
    *_reductions("red", _async_store, REMOTE, {"add": "u32 s32 u64", "min max": "u32 s32", "and or xor": "b32"}),
    row(
        "tensormap", [], _replace, MAPS, has_result=False, operation=required("replace"), load_mode=required("tile"),
        map_field=required(*REPLACED), space=optional("global", "shared", "shared::cta"), map_bits=required("b1024"),
        value_bits=required("b32", "b64"),
    ),
    row(
        "tensormap", [], lambda _: actions.TensorMapCopy(), MAPS, has_result=False, operation=required("cp_fenceproxy"),
        any_words=True,
    ),
    row("mapa", ["u32 u64"], _map_address, CLUSTERS, like=MAPPED),
    row("getctarank", ["u32 u64"], _block_rank, CLUSTERS, like=MAPPED),
    row(
        "barrier", [], lambda attributes: actions.ClusterBarrier(waits=attributes.operation == "wait"), CLUSTERS,
        has_result=False, cluster=required("cluster"),
        operation=required("arrive", "wait"), ordering=optional("release", "relaxed", "acquire"),
        aligned=optional("aligned"),
    ),
    row("multimem", [], lambda _: actions.Refused(MULTIMEM), MULTIMEM, has_result=False, any_words=True),
]  # fmt: skip


TENSOR_MEMORY = "PTX ISA, TensorCore 5th Generation Family Instructions"
UNMODELLED = {
    "decompress": "the expansion of B by a look-up table is not published",
    "selection": "its register layout is not published",
}
"""Qualifiers that are not modelled, with the reason for each."""


def _tensor_op(attributes: Attributes) -> actions.Action:
    """Return the action of a tcgen05 instruction; .sync makes it a warp instruction."""
    try:
        spelling = read_qualifiers(attributes.name.split(".")[1:])
    except ParseError as error:
        return actions.Refused(str(error))
    if spelling.problem:
        return actions.Refused(f"{attributes.name}: {spelling.problem}")
    for group, reason in UNMODELLED.items():
        if spelling.qualifier(group):
            return actions.Refused(f"{attributes.name} is not modelled: {reason}")
    if spelling.kind == "ti16":
        return actions.Refused(f"{attributes.name} is not modelled: the operands of kind::ti16 are not published")
    return actions.TensorWarpOp(spelling) if spelling.qualifier("sync") else actions.TensorThreadOp(spelling)


WITHOUT_RESULT = (
    "mma", "st", "cp", "shift", "alloc", "dealloc", "relinquish_alloc_permit", "commit", "wait::ld", "wait::st",
    "fence::before_thread_sync", "fence::after_thread_sync",
)  # fmt: skip
ROWS += [
    row("tcgen05", [], _tensor_op, TENSOR_MEMORY, any_words=True, operation=required("ld")),
    row(
        "tcgen05", [], _tensor_op, TENSOR_MEMORY, has_result=False, any_words=True, operation=required(*WITHOUT_RESULT)
    ),
]
