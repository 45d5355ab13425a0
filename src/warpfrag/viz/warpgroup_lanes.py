"""The threads of a warpgroup as 128 lanes, numbered as in the figures of the ISA: T37 is lane 5 of warp 1.

A figure has lanes only, so the warps of an operand in the registers of a warpgroup are flattened before it is drawn.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from warpfrag.layout.coordinates import LANES
from warpfrag.viz.cells import HeadingLevel, HeadingMark

if TYPE_CHECKING:
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import OperandBase
    from warpfrag.viz.cells import FigureGrid

WARPS = {"warp": 1, "warpgroup": 4}  # by the scope of an operation
ROWS = 16  # of the matrix, that each warp of a warpgroup holds

Held = TypeVar("Held", bound="OperandBase")


def flatten_warps(operand: Held) -> Held:
    """The same operand, its warps and lanes as one count of lanes; one of a single warp as it is."""
    if operand.storage == "shared" or "warp" not in operand.spec.layout.ins:
        return operand
    return replace(operand, spec=replace(operand.spec, layout=flattened_layout(operand.spec.layout)))


def flattened_layout(layout: Layout) -> Layout:
    """The same layout, its warps and lanes as one count of lanes."""
    if "warp" not in layout.ins:
        return layout
    return layout.reshape(ins={"lane": layout.ins["warp"] * layout.lanes, "reg": layout.regs, "slot": layout.slots})


def with_warps(grid: FigureGrid) -> FigureGrid:
    """A grid of a warpgroup, its lines headed by the warps that hold them; one of a single warp as it is."""
    if grid.lanes <= LANES:
        return grid
    warps = sorted({(cell.y, cell.lane // LANES) for cell in grid.cells})
    bands = [(warp, [y for y, _ in band]) for warp, band in groupby(warps, key=lambda pair: pair[1])]
    level = HeadingLevel("warp", tuple(HeadingMark(lines[0], lines[-1], str(warp)) for warp, lines in bands))
    return replace(grid, rows=(level, *grid.rows))


def of_warp(grid: FigureGrid, warp: int) -> FigureGrid:
    """The lines of a warp, of a grid that has a line for each thread."""
    first = warp * LANES
    cells = tuple(cell._replace(y=cell.y - first) for cell in grid.cells if cell.lane // LANES == warp)
    blocks = tuple(
        block._replace(top=block.top - first, bottom=block.bottom - first)
        for block in grid.blocks
        if block.top // LANES == warp
    )
    rows = tuple(
        HeadingLevel(
            level.name, tuple(mark._replace(first=y, last=y) for y, mark in enumerate(level.marks[first:][:LANES]))
        )
        for level in grid.rows
    )
    return replace(grid, height=LANES, cells=cells, blocks=blocks, rows=rows)
