"""All fragments that there are, and which of them hold matrices of the same extents."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.plans.conversions import conversions
from warpfrag.tensorcore.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand

MAX_TILES = 4
WIDTH = 64  # columns of D of a warpgroup: A has 8 to 256


@cache
def fragments() -> tuple[Operand, ...]:
    """Every distinct fragment of mma, mma.sp, wmma on sm_90 and ldmatrix."""
    return _distinct(
        operand
        for instruction in find()
        if instruction.op == "ldmatrix" or _multiplies(instruction, "warp")
        for operand in (instruction.a, instruction.b, instruction.c, instruction.d)
    )


@cache
def warpgroup_fragments() -> tuple[Operand, ...]:
    """Every distinct fragment that four warps hold; of D, whose registers repeat every 8 columns, one width."""
    return _distinct(
        operand
        for instruction in find()
        if _multiplies(instruction, "warpgroup")
        for operand in (instruction.a, instruction.d if instruction.shape.n == WIDTH else None)
    )


def _multiplies(instruction: Instruction, scope: str) -> bool:
    operation = instruction.form.operation
    return (operation.does, operation.scope) == ("multiply", scope)


def _distinct(operands: Iterable[Operand | None]) -> tuple[Operand, ...]:
    """The first of each layout and format that registers hold."""
    by_fragment: dict[object, Operand] = {}
    for operand in operands:
        if operand is not None and operand.home != "shared" and not operand.row.unknown:
            by_fragment.setdefault((operand.layout, operand.format, operand.row.container, operand.row.low), operand)
    return tuple(by_fragment.values())


def tiled_alike(source: Operand, target: Operand, max_tiles: int = MAX_TILES) -> tuple[Operand, Operand] | None:
    """Both tiled to the same extents; None where that takes too many tiles, or nothing converts between them."""
    outs = source.layout.outs, target.layout.outs
    if list(outs[0]) != list(outs[1]):
        return None
    if source.format != target.format and (source.format.name, target.format.name) not in conversions():
        return None
    counts = [{name: max(1, other[name] // mine[name]) for name in mine} for mine, other in (outs, outs[::-1])]
    if max(*counts[0].values(), *counts[1].values()) > max_tiles:
        return None
    return source.tiled(**counts[0]), target.tiled(**counts[1])
