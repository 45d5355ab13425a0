"""All fragments that there are, and which of them hold matrices of the same extents."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.motion.conversions import conversions
from warpfrag.registry import find

if TYPE_CHECKING:
    from warpfrag.operand import Operand

MOST_TILES = 4


@cache
def fragments() -> tuple[Operand, ...]:
    """Every distinct fragment of mma, mma.sp, wmma on sm_90 and ldmatrix."""
    found: dict[object, Operand] = {}
    for instruction in find():
        form = instruction.form
        if (form.is_product and not form.is_warpgroup) or form.op == "ldmatrix":
            for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
                if operand is not None and not operand.row.unknown:
                    key = operand.layout, operand.format, operand.row.container, operand.row.low
                    found.setdefault(key, operand)
    return tuple(found.values())


def tiled_alike(source: Operand, target: Operand, most: int = MOST_TILES) -> tuple[Operand, Operand] | None:
    """Both tiled to the same extents; None where that takes too many tiles, or nothing converts between them."""
    outs = source.layout.outs, target.layout.outs
    if list(outs[0]) != list(outs[1]):
        return None
    if source.format != target.format and (source.format.name, target.format.name) not in conversions():
        return None
    counts = [{name: max(1, other[name] // mine[name]) for name in mine} for mine, other in (outs, outs[::-1])]
    if max(*counts[0].values(), *counts[1].values()) > most:
        return None
    return source.tiled(**counts[0]), target.tiled(**counts[1])
