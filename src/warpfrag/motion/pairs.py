"""All fragments that there are, and which of them hold matrices of the same extents."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.catalog.registry import find
from warpfrag.motion.conversions import conversions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Operand

MOST_TILES = 4
WIDTH = 64  # columns of D of a warpgroup: A has 8 to 256


@cache
def fragments() -> tuple[Operand, ...]:
    """Every distinct fragment of mma, mma.sp, wmma on sm_90 and ldmatrix."""
    instructions = [one for one in find() if one.form.op == "ldmatrix" or _is_product(one, is_warpgroup=False)]
    return _distinct(operand for one in instructions for operand in (one.a, one.b, one.c, one.d))


@cache
def warpgroup_fragments() -> tuple[Operand, ...]:
    """Every distinct fragment that four warps hold; of D, whose registers repeat every 8 columns, one width."""
    instructions = [one for one in find() if _is_product(one, is_warpgroup=True)]
    return _distinct(operand for one in instructions for operand in (one.a, one.d if one.shape.n == WIDTH else None))


def _is_product(instruction: Instruction, *, is_warpgroup: bool) -> bool:
    return instruction.form.is_product and instruction.form.is_warpgroup == is_warpgroup


def _distinct(operands: Iterable[Operand | None]) -> tuple[Operand, ...]:
    """The first of each layout and format that registers hold."""
    found: dict[object, Operand] = {}
    for operand in operands:
        if operand is not None and operand.home != "shared" and not operand.row.unknown:
            found.setdefault((operand.layout, operand.format, operand.row.container, operand.row.low), operand)
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
