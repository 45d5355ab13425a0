"""Metadata and scale factors: words of which an instruction reads the part that the programmer chooses.

In the matrix view a cell says which lane and bits hold the code of a chunk, or a scale factor; in the warp view, what
each field of each word holds, with the fields that this choice does not read greyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.draw.grid import Block, Cell, Grid, Level, Mark, ticks
from warpfrag.draw.matrix import bit_words, lane_name
from warpfrag.draw.warp import lane_level, register_levels

if TYPE_CHECKING:
    from warpfrag.draw.cut import Cut
    from warpfrag.isa.patterns import Pattern
    from warpfrag.operand import Metadata, Registers, Scale


class Choice(NamedTuple):
    """Which part of the words is read: leading coordinates of the layout, and how the programmer says it."""

    at: tuple[int, ...]
    words: str


def metadata_choice(operand: Metadata, selector: int) -> Choice:
    """The codes that a sparsity selector reads; refused where there is no such selector."""
    operand.where(row=0, chunk=0, selector=selector)
    return Choice((selector,), f"selector {selector}")


def scale_choice(operand: Scale, byte_id: int, thread_id: int) -> Choice:
    """The scales that two ids read; refused where there are no such ids."""
    first = dict.fromkeys(operand.layout.dims[2:], 0)
    operand.where(byte_id=byte_id, thread_id=thread_id, **first)
    return Choice((thread_id, byte_id // operand.byte_ids.step), f"byte_id {byte_id}, thread_id {thread_id}")


def metadata_grid(operand: Metadata, choice: Choice, pattern: Pattern, cut: Cut) -> Grid:
    """Rows by chunks of A; columns are cut by the columns of A, in whole chunks."""
    rows, chunks = operand.shape
    first, last = (column // pattern.chunk for column in cut.within("cols", chunks * pattern.chunk))
    columns = tuple(
        Mark(x, x, f"{chunk * pattern.chunk}-{(chunk + 1) * pattern.chunk - 1}")
        for x, chunk in enumerate(range(first, last + 1))
    )
    return _field_grid(
        operand,
        choice,
        title=f"metadata, {choice.words}",
        rows=cut.within("rows", rows),
        cols=(first, last),
        levels=(
            (ticks("row", *cut.within("rows", rows)),),
            (Level("columns of A", columns), ticks("chunk", first, last)),
        ),
    )


def scale_grid(operand: Scale, choice: Choice, cut: Cut) -> Grid:
    """Rows by scales for A, scales by columns for B."""
    row_name, col_name = operand.layout.dims[2:]
    rows, cols = (cut.within(name, extent) for name, extent in zip(("rows", "cols"), operand.shape, strict=True))
    return _field_grid(
        operand,
        choice,
        title=f"{operand.role}, {choice.words}",
        rows=rows,
        cols=cols,
        levels=((ticks(row_name, *rows),), (ticks(col_name, *cols),)),
    )


def _field_grid(
    operand: Registers,
    choice: Choice,
    *,
    title: str,
    rows: tuple[int, int],
    cols: tuple[int, int],
    levels: tuple[tuple[Level, ...], tuple[Level, ...]],
) -> Grid:
    def cell(row: int, col: int) -> Cell:
        at = (*choice.at, row, col)
        (place,) = operand.layout.where(**dict(zip(operand.layout.dims, at, strict=True)))
        bits = bit_words(operand, place.slot)
        return Cell(
            y=row - rows[0],
            x=col - cols[0],
            coordinates=(("row", row), ("col", col)),
            lane=place.lane,
            reg=0,
            slot=str(place.slot),
            lines=(f"{lane_name(place.lane)}:", f"[{bits}]"),
            tip=f"{_what(operand, row, col)}: {lane_name(place.lane)} bits {bits}",
        )

    cells = [cell(row, col) for row in range(rows[0], rows[1] + 1) for col in range(cols[0], cols[1] + 1)]
    runs: list[list[Cell]] = []
    for one in cells:
        if runs and (runs[-1][-1].y, runs[-1][-1].lane) == (one.y, one.lane):
            runs[-1].append(one)
        else:
            runs.append([one])
    return Grid(
        operand=operand.role,
        title=title,
        height=rows[1] - rows[0] + 1,
        width=cols[1] - cols[0] + 1,
        rows=levels[0],
        cols=levels[1],
        cells=tuple(cells),
        blocks=tuple(Block(run[0].y, run[0].x, run[-1].y, run[-1].x, ()) for run in runs),
    )


def field_warp_grid(operand: Registers, choice: Choice) -> Grid:
    """The word of every lane; fields that the choice does not read are greyed."""
    layout = operand.layout
    leading = len(choice.at)

    def cell(lane: int, slot: int) -> Cell:
        at = layout.at(lane=lane, slot=slot)
        row, col = at[leading:]
        is_read = at[:leading] == choice.at
        return Cell(
            y=lane,
            x=slot,
            coordinates=(("row", row), ("col", col)),
            lane=lane,
            reg=0,
            slot=str(slot),
            lines=(f"({row},{col})" if is_read else "-",),
            tip=f"{lane_name(lane)} bits {bit_words(operand, slot)}: "
            + (_what(operand, row, col) if is_read else f"not read with {choice.words}"),
            unread=not is_read,
        )

    cells = [cell(lane, slot) for lane in range(layout.lanes) for slot in range(layout.slots)]
    return Grid(
        operand=operand.role,
        title=f"{operand.role} in the words of the warp, {choice.words}",
        height=layout.lanes,
        width=layout.slots,
        rows=(lane_level(layout.lanes),),
        cols=register_levels(operand)[1:],
        cells=tuple(cells),
        blocks=(),
    )


def _what(operand: Registers, row: int, col: int) -> str:
    """What a field is, in words."""
    row_name, col_name = operand.layout.dims[-2:]
    kind = "code" if operand.role == "metadata" else "scale"
    return f"{kind} of {row_name} {row}, {col_name} {col}"
