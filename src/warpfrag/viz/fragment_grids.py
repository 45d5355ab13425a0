"""Fragment grids: by matrix element, and by lane and register.

In a grid by element, `T5: a3` is the element that PTX calls a3 of lane 5. Every holder of an element is listed; the
hardware reads the first. An operand with a third coordinate (the four products of m8n8k4, the matrices
of ldmatrix) has one grid for each index. A sparse A can be shown as the full matrix: a register stores half of the
columns of its span, the metadata selects that half, and a cell names every slot that may hold the element. An
instruction reads the part of each metadata or scale word that immediates select; those cells name the lane and the
bits.

The 128 threads of a warpgroup are numbered as in the figures of the ISA: T37 is lane 5 of warp 1.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, TypeVar

from warpfrag.grouping import grouped
from warpfrag.isa.immediates import Immediates, immediate_coordinates, part_of
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.layout.coordinates import LANES, Place
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, Scale, SparseOperand
from warpfrag.viz.grids import (
    EVERYTHING,
    CellBlock,
    Cut,
    FigureCell,
    FigureGrid,
    HeadingLevel,
    HeadingMark,
    Levels,
    Range,
    bit_words,
    block_around,
    element_name,
    labels,
    lane_name,
    place_words,
    ticks,
)

WARPS = {"warp": 1, "warpgroup": 4}  # number of warps, by the scope of an operation
WARP_ROWS = 16  # the number of matrix rows that each warp of a warpgroup holds
PART_NAMES = {"mma": "product", "matrix": "matrix", "selector": "selector"}

Held = TypeVar("Held", bound="OperandBase")


# ---- warpgroups


def flatten_warps(operand: Held) -> Held:
    """Return an operand whose warps and lanes are numbered together, as lanes."""
    if operand.storage == "shared" or "warp" not in operand.spec.layout.ins:
        return operand
    return replace(operand, spec=replace(operand.spec, layout=flattened_layout(operand.spec.layout)))


def flattened_layout(layout: Layout) -> Layout:
    """Return a layout whose warps and lanes are numbered together, as lanes."""
    if "warp" not in layout.ins:
        return layout
    return layout.reshape(ins={"lane": layout.ins["warp"] * layout.lanes, "reg": layout.regs, "slot": layout.slots})


def with_warps(grid: FigureGrid) -> FigureGrid:
    """Return a warpgroup's grid with an additional heading that shows the warps."""
    if grid.lanes <= LANES:
        return grid
    warps = sorted({(cell.y, cell.lane // LANES) for cell in grid.cells})
    bands = [(warp, [y for y, _ in band]) for warp, band in groupby(warps, key=lambda pair: pair[1])]
    level = HeadingLevel("warp", tuple(HeadingMark(lines[0], lines[-1], str(warp)) for warp, lines in bands))
    return replace(grid, rows=(level, *grid.rows))


def of_warp(grid: FigureGrid, warp: int) -> FigureGrid:
    """Return the lines of one warp from a grid that has a line for each thread."""
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
    return replace(grid, cells=cells, blocks=blocks, rows=rows)


# ---- matrices by element


def matrix_grids(operand: Operand, cut: Cut = EVERYTHING, addresses: Layout | None = None) -> list[FigureGrid]:
    """Return a grid for each mma or matrix; `addresses` adds the lanes that address the matrix's lines."""
    layout = operand.layout
    *outer, height, width = layout.shape
    down, across = layout.dims[-2:]
    rows, cols = cut.within("rows", height), cut.within("cols", width)
    first_part, last_part = cut.within("parts", outer[0] if outer else 1)
    holders = grouped((tuple(layout.at(**place._asdict())), place) for place in layout.places())

    def grid(part: int) -> FigureGrid:
        prefix = (part,) if outer else ()
        cells = [
            _cell(operand, (*prefix, row, col), holders.get((*prefix, row, col), []), row - rows[0], col - cols[0])
            for row in range(rows[0], rows[1] + 1)
            for col in range(cols[0], cols[1] + 1)
        ]
        levels: dict[str, Levels] = {down: (ticks(down, *rows),), across: (ticks(across, *cols),)}
        if addresses:
            line = addresses.dims[-1]
            levels[line] = (_address_level(addresses, part, rows), *levels[line])
        blocks = _blocks(cells, slot_run(layout))
        title = _title(operand, part, cells)
        return FigureGrid(operand.role, title, layout.lanes, levels[down], levels[across], tuple(cells), blocks)

    return [grid(part) for part in range(first_part, last_part + 1)]


def slot_run(layout: Layout) -> tuple[int, int]:
    """Return the number of rows and columns that a register's slots fill contiguously, starting with the first slot."""
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
    outer = operand.layout.dims[0]
    if outer == "mma":
        return f"{name}, {PART_NAMES[outer]} {part}"
    regs = sorted({cell.reg for cell in cells})
    return f"{PART_NAMES[outer]} {part}: register{'s' * (len(regs) > 1)} {', '.join(map(str, regs))}"


def _cell(operand: Operand, at: tuple[int, ...], places: list[Place], y: int, x: int) -> FigureCell:
    element = f"{operand.role.upper()}[{','.join(map(str, at))}]"
    coordinates = tuple(zip(operand.layout.dims, at, strict=True))
    if not places:
        return FigureCell(y, x, coordinates, 0, ("-",), f"{element} is not in these registers", unread=True)
    lines: list[str] = []
    for place in places:
        owner = f"{lane_name(place.lane)}:"
        lines += [owner] * (owner not in lines)
        lines.append(element_name(operand, place))
    first = places[0]
    tip = f"{element} {'; copy '.join(place_words(operand, place) for place in places)}"
    return FigureCell(y, x, coordinates, first.lane, tuple(lines), tip, first.reg, str(first.slot))


def _blocks(cells: list[FigureCell], run: tuple[int, int]) -> tuple[CellBlock, ...]:
    """Return the blocks of cells within the cut, one for each run of slots."""
    runs: dict[tuple[int, int], list[FigureCell]] = defaultdict(list)
    for cell in cells:
        row, col = (index for _, index in cell.coordinates[-2:])
        runs[row // run[0], col // run[1]].append(cell)
    return tuple(block_around(members) for members in runs.values())


def _address_level(addresses: Layout, part: int, rows: Range) -> HeadingLevel:
    """Return a heading with the lane that supplies the address of each line of a matrix."""
    line = addresses.dims[-1]
    first, last = rows if line == "row" else (0, addresses.shape[-1] - 1)
    lanes = [addresses.where(matrix=part, **{line: index})[0].lane for index in range(first, last + 1)]
    return HeadingLevel("address", tuple(HeadingMark(y, y, lane_name(lane), lane) for y, lane in enumerate(lanes)))


# ---- sparse A


def logical_grid(operand: SparseOperand, cut: Cut = EVERYTHING) -> FigureGrid:
    """Return the 16 x K grid of a sparse A."""
    height, stored = operand.shape
    rows, cols = cut.within("rows", height), cut.within("cols", 2 * stored)
    cells, blocks = [], []
    for lane in range(operand.layout.lanes):
        for reg in range(operand.regs):
            row, first, last = operand.span(lane=lane, reg=reg)
            columns = range(max(first, cols[0]), min(last, cols[1]) + 1)
            if not columns or not rows[0] <= row <= rows[1]:
                continue
            y = row - rows[0]
            names = dict.fromkeys(f"a{operand.element(reg=reg, slot=slot)}" for slot in (0, operand.slots - 1))
            lines = (f"{lane_name(lane)}:", "..".join(names))
            blocks.append(CellBlock(y, columns[0] - cols[0], y, columns[-1] - cols[0], lines))
            cells += [_logical_cell(operand, lane, reg, (row, col), (y, col - cols[0])) for col in columns]
    return FigureGrid(
        operand.role,
        f"A ({height} x {2 * stored}), half of each span is stored",
        operand.layout.lanes,
        (ticks("row", *rows),),
        (ticks("col", *cols),),
        tuple(sorted(cells)),
        tuple(sorted(blocks)),
        words_on_blocks=True,
    )


def possible_slots(operand: SparseOperand, *, offset: int) -> tuple[int, ...]:
    """Return the slots of a register that a legal metadata code may fill with column `offset` of its span."""
    pattern = operand.pattern
    chunk, inside = divmod(offset, pattern.chunk)
    slots = {
        chunk * pattern.kept + slot
        for kept in pattern.columns.values()
        for slot, column in enumerate(kept)
        if column == inside
    }
    return tuple(sorted(slots))


def _logical_cell(operand: SparseOperand, lane: int, reg: int, at: tuple[int, int], yx: tuple[int, int]) -> FigureCell:
    row, col = at
    slots = possible_slots(operand, offset=col - operand.span(lane=lane, reg=reg).first)
    names = [f"a{operand.element(reg=reg, slot=slot)}" for slot in slots]
    tip = f"A[{row},{col}] if stored: {lane_name(lane)} {' or '.join(names)}, reg {reg}"
    lines = (f"{lane_name(lane)}:", *names)
    return FigureCell(*yx, (("row", row), ("col", col)), lane, lines, tip, reg, " ".join(map(str, slots)))


# ---- metadata and scale factors


class FieldChoice(NamedTuple):
    """The part of a metadata or scale register that is read: leading coordinates of its layout, and a name."""

    at: tuple[int, ...]
    words: str


def field_choice(operand: Metadata | Scale, immediates: Immediates) -> FieldChoice:
    """Return the part of the registers that the immediates select, after checking the immediates."""
    chosen = part_of(immediates, operand.role)
    coordinates = immediate_coordinates(operand.layout, chosen)
    words = ", ".join(f"{name} {number}" for name, number in reversed(chosen.items()))
    return FieldChoice(tuple(coordinates[name] for name in operand.layout.dims if name in coordinates), words)


def metadata_grid(operand: Metadata, choice: FieldChoice, pattern: Pattern, cut: Cut) -> FigureGrid:
    """Return the grid of metadata: rows by chunks of A; `cut.cols` are columns of A, rounded to whole chunks."""
    rows, chunks = operand.shape
    first, last = (column // pattern.chunk for column in cut.within("cols", chunks * pattern.chunk))
    columns = [f"{index * pattern.chunk}-{(index + 1) * pattern.chunk - 1}" for index in range(first, last + 1)]
    down = cut.within("rows", rows)
    across = (labels("columns of A", columns), ticks("chunk", first, last))
    return _field_grid(operand, choice, down, (first, last), (ticks("row", *down),), across)


def scale_grid(operand: Scale, choice: FieldChoice, cut: Cut) -> FigureGrid:
    """Return the grid of scale factors: rows by scales for A, scales by columns for B."""
    row_name, col_name = operand.layout.dims[2:]
    rows, cols = (cut.within(name, extent) for name, extent in zip(("rows", "cols"), operand.shape, strict=True))
    return _field_grid(operand, choice, rows, cols, (ticks(row_name, *rows),), (ticks(col_name, *cols),))


def _field_grid(
    operand: OperandBase, choice: FieldChoice, rows: Range, cols: Range, down: Levels, across: Levels
) -> FigureGrid:
    def cell(row: int, col: int) -> FigureCell:
        (place,) = operand.layout.where(**dict(zip(operand.layout.dims, (*choice.at, row, col), strict=True)))
        owner, bits = lane_name(place.lane), bit_words(operand, place.slot)
        lines, tip = (f"{owner}:", f"[{bits}]"), f"{_field_words(operand, row, col)}: {owner} bits {bits}"
        coordinates = (("row", row), ("col", col))
        return FigureCell(row - rows[0], col - cols[0], coordinates, place.lane, lines, tip, slot=str(place.slot))

    cells = [cell(row, col) for row in range(rows[0], rows[1] + 1) for col in range(cols[0], cols[1] + 1)]
    runs = [[*run] for _, run in groupby(cells, key=lambda cell: (cell.y, cell.lane))]
    blocks = tuple(CellBlock(run[0].y, run[0].x, run[-1].y, run[-1].x, ()) for run in runs)
    title = f"{operand.role}, {choice.words}"
    return FigureGrid(operand.role, title, operand.layout.lanes, down, across, tuple(cells), blocks)


def _field_words(operand: OperandBase, row: int, col: int) -> str:
    row_name, col_name = operand.layout.dims[-2:]
    field = "code" if operand.role == "metadata" else "scale"
    return f"{field} of {row_name} {row}, {col_name} {col}"


# ---- registers by lane


def warp_grid(operand: Operand) -> FigureGrid:
    """Return a grid with a line for each lane; each cell shows the coordinates of the element in a slot."""
    layout = operand.layout

    def cell(place: Place) -> FigureCell:
        lane, reg, slot = place
        at = layout.at(lane=lane, reg=reg, slot=slot)
        words = ",".join(map(str, at))
        tip = f"{place_words(operand, place)}: {operand.role.upper()}[{words}]"
        x = operand.element(reg=reg, slot=slot)
        return FigureCell(lane, x, tuple(at._asdict().items()), lane, (f"({words})",), tip, reg, str(slot))

    cells = [cell(place) for place in layout.places()]
    names = [element_name(operand, place) for place in layout.places() if place.lane == 0]
    slots = operand.slots
    return FigureGrid(
        operand.role,
        f"{operand.role.upper()} in the registers of the warp{'group' * (layout.lanes > LANES)}",
        layout.lanes,
        (_lane_level(layout.lanes),),
        (*_register_levels(operand), labels("name", names)),
        tuple(cells),
        tuple(block_around(cells[start : start + slots]) for start in range(0, len(cells), slots)),
    )


def _lane_level(lanes: int) -> HeadingLevel:
    return HeadingLevel("lane", tuple(HeadingMark(lane, lane, lane_name(lane), lane) for lane in range(lanes)))


def _register_levels(operand: OperandBase) -> tuple[HeadingLevel, HeadingLevel]:
    """Return two heading levels: the registers, and the bits of each slot."""
    slots = operand.slots
    registers = (HeadingMark(reg * slots, (reg + 1) * slots - 1, f"reg {reg}") for reg in range(operand.regs))
    bits = [bit_words(operand, slot) for slot in range(slots)]
    return HeadingLevel("register", tuple(registers)), labels("bits", bits * operand.regs)


def field_warp_grid(operand: OperandBase, choice: FieldChoice) -> FigureGrid:
    """Return a grid with every lane's register; fields that are not read are grey."""
    layout = operand.layout
    leading = len(choice.at)

    def cell(lane: int, slot: int) -> FigureCell:
        at = layout.at(lane=lane, slot=slot)
        row, col = at[leading:]
        is_read = at[:leading] == choice.at
        meaning = _field_words(operand, row, col) if is_read else f"not read with {choice.words}"
        tip = f"{lane_name(lane)} bits {bit_words(operand, slot)}: {meaning}"
        lines = (f"({row},{col})" if is_read else "-",)
        coordinates = (("row", row), ("col", col))
        return FigureCell(lane, slot, coordinates, lane, lines, tip, slot=str(slot), unread=not is_read)

    cells = tuple(cell(lane, slot) for lane in range(layout.lanes) for slot in range(layout.slots))
    title = f"{operand.role} in the words of the warp, {choice.words}"
    levels = (_lane_level(layout.lanes),), _register_levels(operand)[1:]
    return FigureGrid(operand.role, title, layout.lanes, *levels, cells, ())
