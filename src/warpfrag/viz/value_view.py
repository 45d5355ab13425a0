"""Figures of operands with their values, as the debugger shows them: each element in the colour of its lane.

Operands in shared memory belong to no lane and are grey.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.viz.drawing import GridDrawing
from warpfrag.viz.fragment_grids import flatten_warps
from warpfrag.viz.grids import Cut, FigureCell, FigureGrid, Scene, single_blocks, ticks
from warpfrag.viz.views import MAX_COLUMNS, FigureRequest, scenes

DIGITS = 3  # the number of significant digits of a value in a cell


def value_text(value: object) -> str:
    """Return a value as text that is short enough for a cell."""
    number = np.asarray(value)
    return str(int(number)) if number.dtype.kind in "biu" else f"{float(number.astype(np.float64)):.{DIGITS}g}"


def draw_values(
    instruction: Instruction,
    matrices: Sequence[tuple[str, str, NDArray[Any]]],
    *,
    title: str,
    notes: tuple[str, ...] = (),
    staged: Mapping[str, bool] | None = None,
) -> GridDrawing:
    """Return a figure of matrices, each (role, description, values); those in `staged` are in shared memory."""
    pictures: list[Scene] = []
    for role, name, values in matrices:
        is_staged = bool(staged and staged.get(role))
        grids = [_plain(role, name, values)] if is_staged else _coloured(instruction, role, name, values)
        pictures += [(grid,) for grid in grids]
    return GridDrawing(title, instruction.name, notes, tuple(pictures))


def _coloured(instruction: Instruction, role: str, name: str, values: NDArray[Any]) -> list[FigureGrid]:
    """Return the grids of the matrix view with values in their cells."""
    operand = flatten_warps(instruction.operands[role])
    if not isinstance(operand, Operand):
        return [_plain(role, name, values)]
    cut = Cut(cols=(0, MAX_COLUMNS - 1)) if values.shape[-1] > MAX_COLUMNS else Cut()
    grids = [grid for scene in scenes(instruction, operand, "matrix", FigureRequest(cut)) for grid in scene]
    return [_filled(grid, name, values) for grid in grids]


def _filled(grid: FigureGrid, name: str, values: NDArray[Any]) -> FigureGrid:
    """Return a grid in which values replace the names of elements."""
    cells = []
    for cell in grid.cells:
        text = value_text(values[tuple(index for _, index in cell.coordinates)])
        cells.append(cell._replace(lines=(text,), tip=f"{cell.tip}: {text}"))
    title, blocks = f"{grid.title}, {name}", single_blocks(cells)
    return replace(grid, title=title, cells=tuple(cells), blocks=blocks, words_on_blocks=False)


def _plain(role: str, name: str, values: NDArray[Any]) -> FigureGrid:
    """Return the grid of a matrix that has no lanes."""
    matrix = values.reshape(-1, values.shape[-1])[:, :MAX_COLUMNS]
    height, width = matrix.shape
    cells = tuple(
        FigureCell(y, x, (("row", y), ("col", x)), 0, (value_text(matrix[y, x]),), f"row {y}, col {x}", unread=True)
        for y in range(height)
        for x in range(width)
    )
    title = f"{role.upper()} ({values.shape[-2]} x {values.shape[-1]}), {name}"
    levels = (ticks("row", 0, height - 1),), (ticks("col", 0, width - 1),)
    return FigureGrid(role, title, LANES, *levels, cells, single_blocks(cells))
