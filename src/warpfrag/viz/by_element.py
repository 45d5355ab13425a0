"""Views by element: a cell stands for one element of a matrix and says which lane holds it, and under which name.

`T5: a3` is the element that PTX calls a3 of lane 5. Every holder of an element is listed, the one that the hardware
reads first. Operands with a third coordinate, the four products of m8n8k4 or the matrices of ldmatrix, give one grid
for each. A sparse A can be shown as the matrix it stands for: a register stores half of the columns of its span, and
as the metadata says which half, a cell names every slot that may hold the element. Metadata and scale factors are
words of which an instruction reads the part that the programmer chooses; their cells name lane and bits.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.viz.cells import (
    EVERYTHING,
    CellBlock,
    Cut,
    FigureCell,
    FigureGrid,
    HeadingLevel,
    HeadingMark,
    bit_words,
    block_around,
    element_name,
    lane_name,
    place_words,
    ticks,
)

if TYPE_CHECKING:
    from warpfrag.isa.patterns import Pattern
    from warpfrag.layout.coordinates import Place
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, Scale, SparseOperand

PART_NAMES = {"mma": "product", "matrix": "matrix", "selector": "selector"}


def matrix_grids(operand: Operand, cut: Cut = EVERYTHING, addresses: Layout | None = None) -> list[FigureGrid]:
    """One grid for each product or matrix of an operand; `addresses` adds the lanes that point at its lines."""
    layout = operand.layout
    *outer, height, width = layout.shape
    down, across = layout.dims[-2:]
    first_row, last_row = cut.within("rows", height)
    first_col, last_col = cut.within("cols", width)
    first_part, last_part = cut.within("parts", outer[0] if outer else 1)
    holders: dict[tuple[int, ...], list[Place]] = defaultdict(list)
    for place in layout.places():
        holders[layout.at(**place._asdict())].append(place)

    def grid(part: int) -> FigureGrid:
        prefix = (part,) if outer else ()
        cells = [
            _cell(operand, (*prefix, row, col), holders[*prefix, row, col], row - first_row, col - first_col)
            for row in range(first_row, last_row + 1)
            for col in range(first_col, last_col + 1)
        ]
        rows, cols = ticks(down, first_row, last_row), ticks(across, first_col, last_col)
        levels: dict[str, tuple[HeadingLevel, ...]] = {down: (rows,), across: (cols,)}
        if addresses:
            line = addresses.dims[-1]
            levels[line] = (_address_level(addresses, part, cut.within("rows", height)), *levels[line])
        return FigureGrid(
            operand=operand.role,
            title=_title(operand, part, cells),
            lanes=layout.lanes,
            height=rows.marks[-1].last + 1,
            width=cols.marks[-1].last + 1,
            rows=levels[down],
            cols=levels[across],
            cells=tuple(cells),
            blocks=_blocks(cells, slot_run(layout)),
        )

    return [grid(part) for part in range(first_part, last_part + 1)]


def slot_run(layout: Layout) -> tuple[int, int]:
    """Rows and columns that the slots of one register fill without a gap, from the first slot on."""
    first = layout.at(lane=0)

    def length(dim: str) -> int:
        run = 1
        while run < layout.slots and all(
            layout.at(lane=0, slot=step) == first._replace(**{dim: getattr(first, dim) + step})
            for step in range(2 * run)
        ):
            run *= 2
        return run

    down, across = layout.dims[-2:]
    return length(down), length(across)


def _title(operand: Operand, part: int, cells: list[FigureCell]) -> str:
    name = operand.role.upper()
    if len(operand.layout.shape) == 2:
        return f"{name} ({operand.shape[0]} x {operand.shape[1]})"
    kind = operand.layout.dims[0]
    if kind == "mma":
        return f"{name}, {PART_NAMES[kind]} {part}"
    regs = sorted({cell.reg for cell in cells})
    return f"{PART_NAMES[kind]} {part}: register{'s' * (len(regs) > 1)} {', '.join(map(str, regs))}"


def _cell(operand: Operand, at: tuple[int, ...], places: list[Place], y: int, x: int) -> FigureCell:
    lines: list[str] = []
    element = f"{operand.role.upper()}[{','.join(map(str, at))}]"
    if not places:
        coordinates = tuple(zip(operand.layout.dims, at, strict=True))
        return FigureCell(y, x, coordinates, 0, 0, "", ("-",), f"{element} is not in these registers", unread=True)
    for place in places:
        owner = f"{lane_name(place.lane)}:"
        if owner not in lines:
            lines.append(owner)
        lines.append(element_name(operand, place))
    first = places[0]
    where = "; copy ".join(place_words(operand, place) for place in places)
    return FigureCell(
        y=y,
        x=x,
        coordinates=tuple(zip(operand.layout.dims, at, strict=True)),
        lane=first.lane,
        reg=first.reg,
        slot=str(first.slot),
        lines=tuple(lines),
        tip=f"{element} {where}",
    )


def _blocks(cells: list[FigureCell], run: tuple[int, int]) -> tuple[CellBlock, ...]:
    """The runs of slots among the cells; a run that a cut leaves a part of is that part."""
    runs: dict[tuple[int, int], list[FigureCell]] = defaultdict(list)
    for cell in cells:
        row, col = (index for _, index in cell.coordinates[-2:])
        runs[row // run[0], col // run[1]].append(cell)
    return tuple(block_around(members) for members in runs.values())


def _address_level(addresses: Layout, part: int, rows: tuple[int, int]) -> HeadingLevel:
    """The lane that gives the address of each line of a matrix."""
    line = addresses.dims[-1]
    first, last = rows if line == "row" else (0, addresses.shape[-1] - 1)
    lanes = [addresses.where(matrix=part, **{line: index})[0].lane for index in range(first, last + 1)]
    return HeadingLevel(
        "address", tuple(HeadingMark(place, place, lane_name(lane), lane) for place, lane in enumerate(lanes))
    )


def logical_grid(operand: SparseOperand, cut: Cut = EVERYTHING) -> FigureGrid:
    """The 16 x K grid of a sparse A."""
    rows, stored = operand.shape
    first_row, last_row = cut.within("rows", rows)
    first_col, last_col = cut.within("cols", 2 * stored)
    cells, blocks = [], []
    for lane in range(operand.layout.lanes):
        for reg in range(operand.regs):
            row, first, last = operand.span(lane=lane, reg=reg)
            columns = range(max(first, first_col), min(last, last_col) + 1)
            if not columns or not first_row <= row <= last_row:
                continue
            y = row - first_row
            names = (f"a{operand.element(reg=reg)}", f"a{operand.element(reg=reg, slot=operand.slots - 1)}")
            words = names[0] if operand.slots == 1 else "..".join(names)
            blocks.append(
                CellBlock(y, columns[0] - first_col, y, columns[-1] - first_col, (f"{lane_name(lane)}:", words))
            )
            cells += [_logical_cell(operand, lane, reg, (row, col), (y, col - first_col)) for col in columns]
    return FigureGrid(
        operand=operand.role,
        title=f"A ({rows} x {2 * stored}), half of each span is stored",
        lanes=operand.layout.lanes,
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
        for kept in pattern.columns.values()
        for slot, column in enumerate(kept)
        if column == inside
    }
    return tuple(sorted(slots))


def _logical_cell(
    operand: SparseOperand, lane: int, reg: int, at: tuple[int, int], place: tuple[int, int]
) -> FigureCell:
    row, col = at
    slots = possible_slots(operand, offset=col - operand.span(lane=lane, reg=reg).first)
    names = [f"a{operand.element(reg=reg, slot=slot)}" for slot in slots]
    return FigureCell(
        y=place[0],
        x=place[1],
        coordinates=(("row", row), ("col", col)),
        lane=lane,
        reg=reg,
        slot=" ".join(map(str, slots)),
        lines=(f"{lane_name(lane)}:", *names),
        tip=f"A[{row},{col}] if stored: {lane_name(lane)} {' or '.join(names)}, reg {reg}",
    )


class FieldChoice(NamedTuple):
    """Which part of the words is read: leading coordinates of the layout, and the operands that choose it."""

    at: tuple[int, ...]
    words: str


def metadata_choice(operand: Metadata, selector: int) -> FieldChoice:
    """The codes that a sparsity selector reads; refused where there is no such selector."""
    operand.where(row=0, chunk=0, selector=selector)
    return FieldChoice((selector,), f"selector {selector}")


def scale_choice(operand: Scale, byte_id: int, thread_id: int) -> FieldChoice:
    """The scales that two ids read; refused where there are no such ids."""
    first = dict.fromkeys(operand.layout.dims[2:], 0)
    operand.where(byte_id=byte_id, thread_id=thread_id, **first)
    return FieldChoice((thread_id, byte_id // operand.byte_ids.step), f"byte_id {byte_id}, thread_id {thread_id}")


def metadata_grid(operand: Metadata, choice: FieldChoice, pattern: Pattern, cut: Cut) -> FigureGrid:
    """Rows by chunks of A; columns are cut by the columns of A, in whole chunks."""
    rows, chunks = operand.shape
    first, last = (column // pattern.chunk for column in cut.within("cols", chunks * pattern.chunk))
    columns = tuple(
        HeadingMark(x, x, f"{chunk * pattern.chunk}-{(chunk + 1) * pattern.chunk - 1}")
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
            (HeadingLevel("columns of A", columns), ticks("chunk", first, last)),
        ),
    )


def scale_grid(operand: Scale, choice: FieldChoice, cut: Cut) -> FigureGrid:
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
    operand: OperandBase,
    choice: FieldChoice,
    *,
    title: str,
    rows: tuple[int, int],
    cols: tuple[int, int],
    levels: tuple[tuple[HeadingLevel, ...], tuple[HeadingLevel, ...]],
) -> FigureGrid:
    def cell(row: int, col: int) -> FigureCell:
        at = (*choice.at, row, col)
        (place,) = operand.layout.where(**dict(zip(operand.layout.dims, at, strict=True)))
        bits = bit_words(operand, place.slot)
        return FigureCell(
            y=row - rows[0],
            x=col - cols[0],
            coordinates=(("row", row), ("col", col)),
            lane=place.lane,
            reg=0,
            slot=str(place.slot),
            lines=(f"{lane_name(place.lane)}:", f"[{bits}]"),
            tip=f"{field_words(operand, row, col)}: {lane_name(place.lane)} bits {bits}",
        )

    cells = [cell(row, col) for row in range(rows[0], rows[1] + 1) for col in range(cols[0], cols[1] + 1)]
    runs: list[list[FigureCell]] = []
    for current in cells:
        if runs and (runs[-1][-1].y, runs[-1][-1].lane) == (current.y, current.lane):
            runs[-1].append(current)
        else:
            runs.append([current])
    return FigureGrid(
        operand=operand.role,
        title=title,
        lanes=operand.layout.lanes,
        height=rows[1] - rows[0] + 1,
        width=cols[1] - cols[0] + 1,
        rows=levels[0],
        cols=levels[1],
        cells=tuple(cells),
        blocks=tuple(CellBlock(run[0].y, run[0].x, run[-1].y, run[-1].x, ()) for run in runs),
    )


def field_words(operand: OperandBase, row: int, col: int) -> str:
    """What a field is, in words."""
    row_name, col_name = operand.layout.dims[-2:]
    kind = "code" if operand.role == "metadata" else "scale"
    return f"{kind} of {row_name} {row}, {col_name} {col}"
