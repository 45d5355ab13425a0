"""`warpfrag table`: a whole operand, by matrix or by lane.

A cell stands for one element. If a side is long, neighbouring slots of one register share a cell, so that the 256
columns of a b1 matrix become eight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from warpfrag.cli.support.arguments import (
    IN_TENSOR_MEMORY,
    Arch,
    ElementChoice,
    InstructionName,
    Load,
    NotationName,
    OperandName,
    WarpIndex,
)
from warpfrag.cli.support.operand_view import OperandView, Record
from warpfrag.cli.support.output import echo, print_heading, print_notes, table_lines, terminal_width
from warpfrag.cli.support.verbs import Answer, verb
from warpfrag.layout.linear_layout import Layout

MAX_CELLS = 16  # along one side; beyond, slots share a cell


class OperandTable(NamedTuple):
    """Every place of an operand.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a, scale_b or addresses
    by: the order: matrix or lane
    notation: with --to: the notation
    text: with --to: the layout in that notation
    elements: every place
    notes: notes on the answer
    """

    instruction: str
    operand: str
    by: str
    notation: str | None
    text: str | None
    elements: list[dict[str, int]]
    notes: list[str]


@verb(
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 a",
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 c --by lane",
    "warpfrag table ldmatrix.m8n8.x4.shared.b16 d --matrix 2",
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 a --to cute       # also triton, mlir, c, json",
    "warpfrag table tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f32.f16.f16 d --by lane",
    "warpfrag table tcgen05.mma.cta_group::1.kind::f16.m128n8k16.f32.f16.f16 d --warp 0 "
    "--through tcgen05.ld.sync.aligned.16x256b.x1.b32",
)
def table(
    instruction: InstructionName,
    operand: OperandName,
    *,
    by: Literal["matrix", "lane"] = "matrix",
    choice: ElementChoice = ElementChoice(),  # noqa: B008 (immutable)
    to: NotationName | None = None,
    warp: WarpIndex | None = None,
    load: Load = IN_TENSOR_MEMORY,
    arch: Arch | None = None,
) -> Answer[OperandTable]:
    """Show a whole operand: the place of every element, or the elements of every lane.

    By matrix, a cell is lane:element (warp.lane:element for a warpgroup); by lane it is row,column. Elements are
    numbered as in PTX, through the registers of a lane. If a side is longer than 16 elements, neighbours that share a
    register share a cell. With --to, show the whole layout in the notation of another tool.

    Options:
        by: The rows of the table.
    """
    from warpfrag.cli.support.operand_view import numbering_notes, operand_view
    from warpfrag.tensorcore.registry import get

    view = operand_view(get(instruction, arch), operand, load)
    text = view.written(to) if to else None
    chosen, warps = list(view.chosen(choice)), view.warps(warp)
    records = [
        record
        for record in view.places()
        if {dim: record[dim] for dim in view.choices} in chosen
        and any(index.items() <= record.items() for index in warps)
    ]
    if by == "matrix":
        records.sort(key=lambda record: [record[dim] for dim in view.dims])
    elements = list(map(view.json, records))
    facts = OperandTable(view.instruction.name, view.name, by, to, text, elements, view.notes)

    def show() -> None:
        if text and to:
            echo(text)
            print_notes([*numbering_notes([view], to), *view.notes])
            return
        print_heading(view.title)
        grids = by_matrix(view, records) if by == "matrix" else by_lane(view, records)
        echo(grids[0].legend)
        for grid in grids:
            for line in text_lines(grid):
                echo(line)
        print_notes(view.notes)

    return Answer(facts, show)


class TextGrid(NamedTuple):
    """A text table: the meaning of a cell, a caption, column labels, and a label and cells per line."""

    legend: str
    caption: str
    header: list[str]
    lines: list[list[str]]


def shared_dim(layout: Layout, cells: int) -> str:
    """Return the coordinate along which the slots of a register share a cell; empty if they do not."""
    return layout.along("slot") if cells > MAX_CELLS else ""


def by_matrix(view: OperandView, records: list[Record]) -> list[TextGrid]:
    """Return a grid per matrix: lines and columns are those of the matrix, a cell names lane and element."""
    layout = view.layout
    # Addresses have one coordinate beside the matrix: then the matrix is the line.
    down, across = view.positions if len(view.positions) == 2 else view.dims
    dim = shared_dim(layout, max(layout.outs[down], layout.outs[across]))
    legend, cell = _matrix_cell(view, dim)
    span = layout.slots - 1 if dim else 0
    grids: dict[tuple[int, ...], dict[int, dict[int, str]]] = {}
    outer = [name for name in view.dims if name not in {down, across}]
    for record in records:
        if not dim or record["slot"] == 0:
            lines = grids.setdefault(tuple(record[name] for name in outer), {})
            row = lines.setdefault(record[down], {})
            row.setdefault(record[across], cell(record))  # the hardware reads the first copy
    text_grids = []
    for choice, lines in grids.items():
        named = zip(outer, choice, strict=True)
        caption = ", ".join(f"{name} {index}" for name, index in named if layout.outs[name] > 1)
        columns = sorted(next(iter(lines.values())))
        corner = "r\\c" if (down, across) == ("row", "col") else f"{down}\\{across}"
        header = [corner, *(_range(x, span if across == dim else 0) for x in columns)]
        rows = [
            [_range(y, span if down == dim else 0), *(line.get(x, "-") for x in columns)]
            for y, line in sorted(lines.items())
        ]
        text_grids.append(TextGrid(legend, caption, header, rows))
    return text_grids


def _matrix_cell(view: OperandView, dim: str) -> tuple[str, Callable[[Record], str]]:
    """Return the meaning of the cells of a matrix, and the function that writes one."""
    layout = view.layout
    thread = ".".join(view.threads)

    def number(record: Record) -> str:
        return ".".join(str(record[name]) for name in view.threads)

    if view.registers is None:
        return f"cell = {thread}", number
    if view.in_tensor_memory:
        legend = f"cell = {thread}:slot" if not dim and layout.slots > 1 else f"cell = {thread}"
        legend += f", whose {layout.slots} slots are along {dim}, low bits first" if dim else ""
        is_plain = dim or layout.slots == 1
        return legend, number if is_plain else lambda record: f"{number(record)}:{record['slot']}"
    if dim:
        legend = f"cell = {thread}:register, whose {layout.slots} slots are along {dim}, low bits first"
        return legend, lambda record: f"{number(record)}:r{record['reg']}"
    meaning = f"register = element / {layout.slots}, slot = element % {layout.slots}"
    if layout.slots == 1:
        meaning = "element = register"
    elif layout.regs == 1:
        meaning = "element = slot"
    return f"cell = {thread}:element; {meaning}", lambda record: f"{number(record)}:{record['element']}"


def by_lane(view: OperandView, records: list[Record]) -> list[TextGrid]:
    """Return a grid per warp: a line per lane, a column per element or register, a cell gives the coordinates."""
    layout = view.layout
    dim = shared_dim(layout, layout.ins.get("column", layout.regs) * layout.slots)
    span = layout.slots - 1 if dim else 0
    groups = [name for name in ("block", "warp") if name in layout.ins]
    warps: dict[tuple[int, ...], dict[int, dict[int, str]]] = {}
    for record in records:
        if not dim or record["slot"] == 0:
            cell = ",".join(_range(record[name], span if name == dim else 0) for name in view.dims)
            if view.in_tensor_memory:
                column = record["column"] if dim else record["column"] * layout.slots + record["slot"]
            else:
                column = record["reg"] if dim else record.get("element", 0)
            group = tuple(record[name] for name in groups)
            warps.setdefault(group, {}).setdefault(record[view.lane_name], {})[column] = cell
    columns = sorted({column for lines in warps.values() for line in lines.values() for column in line})
    prefix = "r" if dim else view.name if view.has_numbers else "slot "
    labels = [f"{prefix}{column}" for column in columns] if view.registers else ["address"]
    unit = "column" if view.in_tensor_memory else "register"
    if view.in_tensor_memory:
        parts = 1 if dim else layout.slots
        labels = [f"c{x // parts}" + (f":{x % parts}" if parts > 1 else "") for x in columns]
    legend = f"cell = {','.join(view.dims)}" + (f"; the {layout.slots} slots of a {unit} are along {dim}" * bool(dim))
    return [
        TextGrid(
            legend,
            ", ".join(f"{name} {index}" for name, index in zip(groups, group, strict=True)),
            [view.lane_name, *labels],
            [[f"{lane}", *(line.get(column, "") for column in columns)] for lane, line in sorted(lines.items())],
        )
        for group, lines in sorted(warps.items())
    ]


def _range(first: int, span: int) -> str:
    return f"{first}-{first + span}" if span else f"{first}"


def text_lines(grid: TextGrid) -> Iterator[str]:
    """Yield a grid as aligned text, in blocks of columns that fit the terminal."""
    width = terminal_width()
    widths = [max(len(line[place]) for line in [grid.header, *grid.lines]) for place in range(len(grid.header))]
    fitting = max(1, (width - widths[0]) // (max(widths[1:]) + 1))
    per_block = 1 << (fitting.bit_length() - 1)  # a power of two, as the extents are: no block is left with one column
    for start in range(1, len(grid.header), per_block):
        columns = [0, *range(start, min(start + per_block, len(grid.header)))]
        header, *lines = (
            [line[place].rjust(widths[place]) for place in columns] for line in [grid.header, *grid.lines]
        )
        yield ""
        if grid.caption:
            yield grid.caption
        yield from table_lines(header, lines, gap=1)
