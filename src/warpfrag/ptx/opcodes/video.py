"""Rows of the SIMD video instructions: two halves or four bytes of a register at once (CUDA's __vabsdiffu4 and kin)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.ptx.opcodes.rows import optional, required, row
from warpfrag.ptx.program.actions import LaneOp
from warpfrag.ptx.program.types import B32, S32, U32
from warpfrag.ptx.semantics.integers import COMPARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.attributes import Attributes
    from warpfrag.ptx.program.opcode import OpcodeRow
    from warpfrag.ptx.program.types import Codes, Type

ISA = "PTX ISA, Video Instructions"
EITHER = (U32, S32)
OPERATIONS: dict[str, Callable[[Codes, Codes], Codes]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def _parts(codes: Codes, count: int, kind: Type) -> list[Codes]:
    """The parts of registers as numbers, low bits first."""
    bits = 32 // count
    parts = [codes.astype(np.int64) >> bits * part & ((1 << bits) - 1) for part in range(count)]
    return [part - ((part >> (bits - 1)) << bits) for part in parts] if kind.kind == "s" else parts


def _limits(kind: Type, bits: int) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.kind == "s" else (0, (1 << bits) - 1)


def _by_parts(attributes: Attributes) -> LaneOp:
    """Parts of a and b computed apart, and joined; with .add their sum and c."""
    count = int(attributes.opcode[-1])
    bits = 32 // count
    comparison = attributes.comparison
    operation = COMPARE[comparison] if comparison else OPERATIONS[attributes.opcode[:-1]]
    first, second = attributes.types[-2:]

    def run(a: Codes, b: Codes, c: Codes) -> Codes:
        pairs = zip(_parts(a, count, first), _parts(b, count, second), strict=True)
        results = [operation(x, y).astype(np.int64) for x, y in pairs]
        if attributes.sat:
            results = [np.clip(part, *_limits(attributes.types[0], bits)) for part in results]
        if attributes.accumulate:
            return (c.astype(np.int64) + sum(results)).astype(np.uint32)
        total = np.zeros(a.shape, np.int64)
        for place, part in enumerate(results):
            total |= (part & ((1 << bits) - 1)) << bits * place
        return total.astype(np.uint32)

    return LaneOp((B32,), (B32, B32, B32), run)


ORDER = required("eq", "ne", "lt", "le", "gt", "ge")
ROWS: list[OpcodeRow] = [
    item
    for count in (2, 4)
    for item in (
        *(row(f"{name}{count}", [EITHER] * 3, _by_parts, ISA, sat=optional("sat")) for name in OPERATIONS),
        *(row(f"{name}{count}", [EITHER] * 3, _by_parts, ISA, accumulate=required("add")) for name in OPERATIONS),
        row(f"vset{count}", [EITHER] * 2, _by_parts, ISA, comparison=ORDER, accumulate=optional("add")),
    )
]
