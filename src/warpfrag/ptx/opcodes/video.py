"""Rows of the SIMD video instructions: two halves or four bytes of a register at once (CUDA's __vabsdiffu4 and kin)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.ptx.opcodes.rows import Row, Words, row
from warpfrag.ptx.program.actions import Pure
from warpfrag.ptx.program.types import TYPES
from warpfrag.ptx.semantics.integers import COMPARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpfrag.ptx.program.types import Type

B32 = TYPES["b32"]
ISA = "PTX ISA, Video Instructions"
EITHER = "u32 s32"
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}


def _parts(codes: Any, count: int, kind: Type) -> list[Any]:  # noqa: ANN401 (arrays)
    """The parts of registers as numbers, low bits first."""
    bits = 32 // count
    found = [codes.astype(np.int64) >> bits * part & ((1 << bits) - 1) for part in range(count)]
    return [part - ((part >> (bits - 1)) << bits) for part in found] if kind.kind == "s" else found


def _limits(kind: Type, bits: int) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.kind == "s" else (0, (1 << bits) - 1)


def _by_parts(words: Words) -> Pure:
    """Parts of a and b computed apart, and joined; with .add their sum and c."""
    count = int(words.opcode[-1])
    bits = 32 // count
    compared = words.get("order")
    operation = COMPARE[compared] if compared else OPERATIONS[words.opcode[:-1]]
    first, second = words.types[-2:]

    def run(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 (arrays)
        pairs = zip(_parts(a, count, first), _parts(b, count, second), strict=True)
        found = [operation(x, y).astype(np.int64) for x, y in pairs]
        if words.has("sat"):
            found = [np.clip(part, *_limits(words.types[0], bits)) for part in found]
        if words.has("add"):
            return (c.astype(np.int64) + sum(found)).astype(np.uint32)
        total = np.zeros(a.shape, np.int64)
        for place, part in enumerate(found):
            total |= (part & ((1 << bits) - 1)) << bits * place
        return total.astype(np.uint32)

    return Pure((B32,), (B32, B32, B32), run)


ROWS: list[Row] = [
    made
    for count in (2, 4)
    for made in (
        *(row(f"{name}{count}", (EITHER, EITHER, EITHER), _by_parts, ISA, sat="sat") for name in OPERATIONS),
        *(row(f"{name}{count}", (EITHER, EITHER, EITHER), _by_parts, ISA, add="!add") for name in OPERATIONS),
        row(f"vset{count}", (EITHER, EITHER), _by_parts, ISA, order="!eq ne lt le gt ge", add="add"),
    )
]
