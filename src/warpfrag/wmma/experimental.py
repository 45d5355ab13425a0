"""nvcuda::wmma::experimental: sub-byte element types and binary mma."""

from __future__ import annotations

from enum import Enum

from warpfrag.errors import InvalidOperand, quote
from warpfrag.wmma.wmma_fragments import Fragment
from warpfrag.wmma.wmma_operations import check_product, multiply
from warpfrag.wmma.wmma_types import B1
from warpfrag.wmma.wmma_types import ExperimentalPrecision as precision  # noqa: N813 (C++ spells it so)

__all__ = [
    "bmmaAccumulateOp",
    "bmmaAccumulateOpPOPC",
    "bmmaBitOp",
    "bmmaBitOpAND",
    "bmmaBitOpXOR",
    "bmma_sync",
    "precision",
]


class BitOperation(Enum):
    """The operation on each pair of bits (in C++: bmmaBitOp); the value is the PTX qualifier."""

    bmmaBitOpXOR = "xor"  # noqa: N815 (C++ spells it so, as the names below)
    bmmaBitOpAND = "and"  # noqa: N815


class AccumulateOperation(Enum):
    """The accumulation into C (in C++: bmmaAccumulateOp), which adds the number of ones."""

    bmmaAccumulateOpPOPC = "popc"  # noqa: N815


bmmaBitOp = BitOperation  # noqa: N816
bmmaBitOpXOR = BitOperation.bmmaBitOpXOR  # noqa: N816
bmmaBitOpAND = BitOperation.bmmaBitOpAND  # noqa: N816
bmmaAccumulateOp = AccumulateOperation  # noqa: N816
bmmaAccumulateOpPOPC = AccumulateOperation.bmmaAccumulateOpPOPC  # noqa: N816


def bmma_sync(
    d: Fragment,
    a: Fragment,
    b: Fragment,
    c: Fragment,
    op: BitOperation = bmmaBitOpXOR,
    accumulate: AccumulateOperation = bmmaAccumulateOpPOPC,
) -> None:
    """Compute D[i, j] = C[i, j] + the number of ones in (row i of A) op (column j of B); AND needs sm_80."""
    check_product("bmma_sync", d, a, b, c)
    if a.element_type != B1:
        raise InvalidOperand(
            f"bmma_sync: expected fragments of {B1.name}, got {a.element_type.name}; mma_sync multiplies those"
        )
    for operation, kind in ((op, BitOperation), (accumulate, AccumulateOperation)):
        if not isinstance(operation, kind):
            raise InvalidOperand(
                f"bmma_sync: expected {' or '.join(entry.name for entry in kind)}, got {quote(operation)}"
            )
    multiply(d, a, b, c, bit_operation=op.value)
