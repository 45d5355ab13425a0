"""Operations, such as `mma`, `wgmma.mma_async.sp` or `ldmatrix`: one row of `OPS` for each.

Wherever possible, code reads the row of an operation instead of comparing its name: the threads that run it (`scope`),
the storage of its operands (`storage`), the sparsity of A (`sparsity`), and its qualifiers (`qualifiers`, `spaces`).

To add an operation, add a row here, its families in `tables/instructions.toml`, and its layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Does = Literal["multiply", "load", "store", "transpose", "manage"]
Scope = Literal["warp", "warpgroup", "block"]
Storage = Literal["registers", "shared", "either", "tensor"]
"""The storage of an operand: registers, shared memory (through a descriptor), either of them, or tensor memory.

For tcgen05, `either` means shared or tensor memory.
"""


class Op(NamedTuple):
    """An operation of the ISA, such as mma or ldmatrix, as data.

    name       the beginning of its PTX text
    does       its purpose: multiply, load, store, transpose, or manage tensor memory
    roles      its matrices, in the order of a statement
    qualifiers the dotted parts that its name may have, in the order of the canonical name
    storage    the storage of each matrix and of the metadata of a sparse A, by role
    scope      the threads that run it together
    fragments  fixed by the ISA, or measured if the ISA does not assign elements to registers
    sparsity   the order of the metadata of a sparse A: any, or rising
    spaces     the state spaces it may name; without one, it takes a generic address
    implied    types that a name omits, because only one is possible
    may_lack   qualifiers that an assembler does not require
    """

    name: str
    does: Does
    roles: tuple[str, ...]
    qualifiers: tuple[str, ...]
    storage: Mapping[str, Storage]
    scope: Scope = "warp"
    fragments: Literal["fixed", "measured"] = "fixed"
    sparsity: Literal["", "any", "ordered"] = ""
    spaces: tuple[str, ...] = ()
    implied: Mapping[str, str] = {}
    may_lack: tuple[str, ...] = ()

    @property
    def usual_space(self) -> str:
        """The state space that the operation's listed forms use."""
        return self.spaces[0] if self.spaces else ""


def _op(name: str, does: Does, roles: str, qualifiers: str, **rest: Any) -> Op:  # noqa: ANN401 (the other fields of an Op)
    storage: dict[str, Storage] = dict.fromkeys(roles, "registers")
    if rest.get("sparsity"):
        storage["metadata"] = "registers"
    return Op(name, does, tuple(roles), tuple(qualifiers.split()), storage | rest.pop("storage", {}), **rest)


_MMA = "sync aligned shape layouts satfinite kind block_scale scale_vec d a b c scale_type bitop rounding"
_SPARSE = "sync aligned shape layouts satfinite kind block_scale scale_vec d a b c scale_type"
_WMMA = "bitop sync aligned layouts shape rounding d a b c satfinite"
_WGMMA = "sync aligned shape d a b bitop satfinite"
_WMMA_MEMORY = "sync aligned layouts shape space"
_MATRIX_MEMORY = "sync aligned shape num trans space d"
_GLOBAL_OR_SHARED = ("global", "shared", "shared::cta")
_SHARED = ("shared", "shared::cta")
_WARPGROUP: dict[str, Any] = {"scope": "warpgroup", "storage": {"a": "either", "b": "shared"}, "may_lack": ("aligned",)}
_MEASURED_MEMORY: dict[str, Any] = {"fragments": "measured", "spaces": _GLOBAL_OR_SHARED}

_ROWS = (
    _op("mma", "multiply", "dabc", _MMA),
    _op("mma.sp", "multiply", "dabc", _SPARSE, sparsity="any"),
    _op("mma.sp::ordered_metadata", "multiply", "dabc", _SPARSE, sparsity="ordered"),
    _op("wmma.mma", "multiply", "dabc", _WMMA, fragments="measured", implied={"a": "f16", "b": "f16"}),
    _op("wmma.load.a", "load", "a", f"{_WMMA_MEMORY} a", **_MEASURED_MEMORY),
    _op("wmma.load.b", "load", "b", f"{_WMMA_MEMORY} b", **_MEASURED_MEMORY),
    _op("wmma.load.c", "load", "c", f"{_WMMA_MEMORY} c", **_MEASURED_MEMORY),
    _op("wmma.store.d", "store", "d", f"{_WMMA_MEMORY} d", **_MEASURED_MEMORY),
    _op("wgmma.mma_async", "multiply", "dabc", _WGMMA, **_WARPGROUP),
    _op("wgmma.mma_async.sp", "multiply", "dabc", _WGMMA, sparsity="ordered", **_WARPGROUP),
    _op("ldmatrix", "load", "d", f"{_MATRIX_MEMORY} memory", spaces=_SHARED),
    _op("stmatrix", "store", "a", _MATRIX_MEMORY, spaces=_SHARED),
    _op("movmatrix", "transpose", "da", "sync aligned shape trans d"),
)
OPS: dict[str, Op] = {op.name: op for op in _ROWS}
