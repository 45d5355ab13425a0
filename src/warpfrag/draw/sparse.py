"""A sparse A as the matrix it stands for: the logical grid, with the span of columns that each register covers.

A register stores half of the columns of its span; which half, the metadata says. So a cell of the logical grid names
every slot that may hold the element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.draw.cut import EVERYTHING, Cut
from warpfrag.draw.grid import Block, Cell, Grid, ticks
from warpfrag.draw.matrix import lane_name

if TYPE_CHECKING:
    from warpfrag.operand import SparseOperand


def logical_grid(operand: SparseOperand, cut: Cut = EVERYTHING) -> Grid:
    """The 16 x K grid of a sparse A."""
    rows, stored = operand.shape
    first_row, last_row = cut.within("rows", rows)
    first_col, last_col = cut.within("cols", 2 * stored)
    cells, blocks = [], []
    for lane in range(operand.layout.lanes):
        for reg in range(operand.regs):
            row, first, last = operand.span(lane=lane, reg=reg)
            shown = range(max(first, first_col), min(last, last_col) + 1)
            if not shown or not first_row <= row <= last_row:
                continue
            y = row - first_row
            names = (f"a{operand.element(reg=reg)}", f"a{operand.element(reg=reg, slot=operand.slots - 1)}")
            words = names[0] if operand.slots == 1 else "..".join(names)
            blocks.append(Block(y, shown[0] - first_col, y, shown[-1] - first_col, (f"{lane_name(lane)}:", words)))
            cells += [_cell(operand, lane, reg, (row, col), (y, col - first_col)) for col in shown]
    return Grid(
        operand=operand.role,
        title=f"A ({rows} x {2 * stored}), half of each span is stored",
        height=last_row - first_row + 1,
        width=last_col - first_col + 1,
        rows=(ticks("row", first_row, last_row),),
        cols=(ticks("col", first_col, last_col),),
        cells=tuple(sorted(cells)),
        blocks=tuple(sorted(blocks)),
        words_on_blocks=True,
        ruled=operand.pattern.chunk,
    )


def possible_slots(operand: SparseOperand, *, offset: int) -> tuple[int, ...]:
    """The slots of a register that some legal metadata code fills with column `offset` of its span."""
    pattern = operand.pattern
    chunk, inside = divmod(offset, pattern.chunk)
    slots = {
        chunk * pattern.kept + slot
        for kept in pattern.columns(ordered=operand.ordered).values()
        for slot, column in enumerate(kept)
        if column == inside
    }
    return tuple(sorted(slots))


def _cell(operand: SparseOperand, lane: int, reg: int, at: tuple[int, int], place: tuple[int, int]) -> Cell:
    row, col = at
    slots = possible_slots(operand, offset=col - operand.span(lane=lane, reg=reg).first)
    names = [f"a{operand.element(reg=reg, slot=slot)}" for slot in slots]
    return Cell(
        y=place[0],
        x=place[1],
        coordinates=(("row", row), ("col", col)),
        lane=lane,
        reg=reg,
        slot=" ".join(map(str, slots)),
        lines=(f"{lane_name(lane)}:", *names),
        tip=f"A[{row},{col}] if stored: {lane_name(lane)} {' or '.join(names)}, reg {reg}",
    )
