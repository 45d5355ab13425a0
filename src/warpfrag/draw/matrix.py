"""The matrix view: each cell says which lane holds it, and under which PTX name: `T5: a3`.

Every holder of an element is listed, the one that the hardware reads first. Operands with a third coordinate, the four
products of m8n8k4 or the matrices of ldmatrix, give one grid for each.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from warpfrag.draw.cut import EVERYTHING, Cut
from warpfrag.draw.grid import Block, Cell, Grid, Level, Mark, ticks

if TYPE_CHECKING:
    from warpfrag.layout import Layout, Place
    from warpfrag.operand import Operand, Registers

PART_NAMES = {"mma": "product", "matrix": "matrix"}


def matrix_grids(operand: Operand, cut: Cut = EVERYTHING, addresses: Layout | None = None) -> list[Grid]:
    """One grid for each product or matrix of an operand; `addresses` adds the lanes that point at its lines."""
    layout = operand.layout
    *outer, height, width = layout.shape
    first_row, last_row = cut.within("rows", height)
    first_col, last_col = cut.within("cols", width)
    first_part, last_part = cut.within("parts", outer[0] if outer else 1)
    holders: dict[tuple[int, ...], list[Place]] = defaultdict(list)
    for place in layout.places():
        holders[layout.at(**place._asdict())].append(place)

    def grid(part: int) -> Grid:
        prefix = (part,) if outer else ()
        found = [
            _cell(operand, (*prefix, row, col), holders[*prefix, row, col], row - first_row, col - first_col)
            for row in range(first_row, last_row + 1)
            for col in range(first_col, last_col + 1)
        ]
        rows, cols = ticks("row", first_row, last_row), ticks("col", first_col, last_col)
        lines = _address_level(addresses, part, cut.within("rows", height)) if addresses else None
        return Grid(
            operand=operand.role,
            title=_title(operand, part, found),
            height=rows.marks[-1].last + 1,
            width=cols.marks[-1].last + 1,
            rows=(lines, rows) if lines and "row" in addresses.dims else (rows,),  # type: ignore[union-attr]
            cols=(lines, cols) if lines and "col" in addresses.dims else (cols,),  # type: ignore[union-attr]
            cells=tuple(found),
            blocks=_blocks(found, slot_run(layout)),
        )

    return [grid(part) for part in range(first_part, last_part + 1)]


def lane_name(lane: int) -> str:
    """How the ISA's figures call a lane."""
    return f"T{lane}"


def element_name(operand: Operand, place: Place) -> str:
    """PTX's name of the element at a place: a0, a1, ..."""
    return f"{operand.role}{operand.element(reg=place.reg, slot=place.slot)}"


def place_words(operand: Operand, place: Place) -> str:
    """A place in one phrase, for tooltips."""
    name = element_name(operand, place)
    return f"{lane_name(place.lane)} {name} r{place.reg}[{bit_words(operand, place.slot)}]"


def bit_words(operand: Registers, slot: int) -> str:
    """The bits of a slot: `31:16`, or `7` if it is only one."""
    high, low = operand.bits(slot)
    return f"{high}:{low}" if high > low else f"{low}"


def slot_run(layout: Layout) -> tuple[int, int]:
    """Rows and columns that the slots of one register fill without a gap, from the first slot on."""
    run = {"row": 1, "col": 1}
    for basis in layout.slot:
        across = "col" if basis.dim == "row" else "row"
        if basis.dim not in run or basis.step != run[basis.dim] or run[across] > 1:
            break
        run[basis.dim] *= 2
    return run["row"], run["col"]


def _title(operand: Operand, part: int, cells: list[Cell]) -> str:
    name = operand.role.upper()
    if len(operand.layout.shape) == 2:
        return f"{name} ({operand.shape[0]} x {operand.shape[1]})"
    kind = operand.layout.dims[0]
    if kind == "mma":
        return f"{name}, {PART_NAMES[kind]} {part}"
    regs = sorted({cell.reg for cell in cells})
    return f"{PART_NAMES[kind]} {part}: register{'s' * (len(regs) > 1)} {', '.join(map(str, regs))}"


def _cell(operand: Operand, at: tuple[int, ...], places: list[Place], y: int, x: int) -> Cell:
    lines: list[str] = []
    for place in places:
        owner = f"{lane_name(place.lane)}:"
        if owner not in lines:
            lines.append(owner)
        lines.append(element_name(operand, place))
    first = places[0]
    where = "; copy ".join(place_words(operand, place) for place in places)
    return Cell(
        y=y,
        x=x,
        coordinates=tuple(zip(operand.layout.dims, at, strict=True)),
        lane=first.lane,
        reg=first.reg,
        slot=str(first.slot),
        lines=tuple(lines),
        tip=f"{operand.role.upper()}[{','.join(map(str, at))}] {where}",
    )


def _blocks(cells: list[Cell], run: tuple[int, int]) -> tuple[Block, ...]:
    """The runs of slots among the cells; a run that a cut leaves a part of is that part."""
    found: dict[tuple[int, int], list[Cell]] = defaultdict(list)
    for cell in cells:
        row, col = (index for _, index in cell.coordinates[-2:])
        found[row // run[0], col // run[1]].append(cell)
    return tuple(block_around(members) for members in found.values())


def block_around(cells: list[Cell]) -> Block:
    """The block of a run of cells: what the first and the last say, joined where they differ."""
    first, last = cells[0], cells[-1]
    lines = (one if one == other else f"{one}..{other}" for one, other in zip(first.lines, last.lines, strict=True))
    return Block(first.y, first.x, last.y, last.x, tuple(lines))


def _address_level(addresses: Layout, part: int, rows: tuple[int, int]) -> Level:
    """The lane that gives the address of each line of a matrix."""
    line = addresses.dims[-1]
    first, last = rows if line == "row" else (0, addresses.shape[-1] - 1)
    lanes = [addresses.where(matrix=part, **{line: index})[0].lane for index in range(first, last + 1)]
    return Level("address", tuple(Mark(place, place, lane_name(lane), lane) for place, lane in enumerate(lanes)))
