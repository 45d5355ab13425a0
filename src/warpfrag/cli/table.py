"""`warpfrag table`: a whole operand, by matrix or by lane.

A cell stands for one element. Where a side is long, the slots of one register that are neighbours share a cell, so
that the 256 columns of a b1 matrix become eight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from warpfrag.cli.support.options import (
    choice_options,
    instruction_argument,
    json_option,
    load_options,
    operand_argument,
    target_option,
    to_option,
    warp_option,
)
from warpfrag.cli.support.output import echo, print_heading, print_json, print_notes, table_lines, terminal_width
from warpfrag.cli.support.verbs import verb
from warpfrag.layout.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warpfrag.cli.support.operand_view import OperandView, Record
    from warpfrag.layout.linear_layout import Layout

MAX_CELLS = 16  # along one side; beyond, slots share a cell


@verb(
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 a",
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 c --by lane --format markdown",
    "warpfrag table ldmatrix.m8n8.x4.shared.b16 d --matrix 2 --format csv",
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 a --to cute       # also triton, mlir, c, json",
    "warpfrag table tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f32.f16.f16 d --by lane",
    "warpfrag table tcgen05.mma.cta_group::1.kind::f16.m128n8k16.f32.f16.f16 d --warp 0 "
    "--through tcgen05.ld.sync.aligned.16x256b.x1.b32",
)
@instruction_argument
@operand_argument
@click.option(
    "--by", type=click.Choice(["matrix", "lane"]), default="matrix", show_default=True, help="What the rows are."
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "csv", "markdown", "json"]),
    default="text",
    show_default=True,
    help="csv and json give one record per place.",
)
@choice_options("mma", "matrix", "selector", "thread_id", "byte_id")
@to_option
@warp_option
@load_options
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    by: str,
    style: str,
    notation: str | None,
    warp: int | None,
    through: str | None,
    column: int | None,
    base_lane: int | None,
    target: str | None,
    as_json: bool,
    **choice: int | None,
) -> None:
    """A whole operand: for every element its place, or for every lane its elements.

    By matrix, a cell is lane:element (of a warpgroup warp.lane:element), by lane it is row,column. Elements are
    numbered as in PTX, through the registers of a lane. Where a side is longer than 16 elements, the neighbours that
    share a register share a cell. With --to, the whole layout in the notation of another tool.
    """
    from warpfrag.cli.support.operand_view import Load, numbering_notes, operand_view
    from warpfrag.tensorcore.registry import get

    view = operand_view(get(name, target), operand, Load(through, column, base_lane))
    text = view.written(notation) if notation else None
    if text and notation and not (as_json or style == "json"):
        echo(text)
        print_notes([*numbering_notes([view], notation), *view.notes])
        return
    chosen = list(view.chosen(choice))
    warps = view.warps(warp)
    records = [
        record
        for record in view.places()
        if {dim: record[dim] for dim in view.choices} in chosen
        and any(index.items() <= record.items() for index in warps)
    ]
    if by == "matrix":
        records.sort(key=lambda record: [record[dim] for dim in view.dims])
    if as_json or style == "json":
        asked = {"instruction": view.instruction.name, "operand": view.name, "by": by}
        other = {"notation": notation, "text": text}
        print_json("table", {**asked, **other, "elements": list(map(view.json, records)), "notes": view.notes})
    elif style == "csv":
        echo(",".join(records[0]))
        for record in records:
            echo(",".join(map(str, record.values())))
    elif style == "markdown":
        for grid in by_matrix(view, records) if by == "matrix" else by_lane(view, records):
            echo("\n".join(markdown_lines(grid)))
    else:
        print_heading(view.title)
        grids = by_matrix(view, records) if by == "matrix" else by_lane(view, records)
        echo(grids[0].legend)
        for grid in grids:
            for line in text_lines(grid):
                echo(line)
        print_notes(view.notes)


@frozen_dataclass
class TextGrid:
    """A table of text: what a cell means, a caption, the labels of the columns, and per line a label and cells."""

    legend: str
    caption: str
    header: list[str]
    lines: list[list[str]]


def shared_dim(layout: Layout, cells: int) -> str:
    """The coordinate along which the slots of a register are neighbours and share a cell; nothing if they do not."""
    return layout.along("slot") if cells > MAX_CELLS else ""


def by_matrix(view: OperandView, records: list[Record]) -> list[TextGrid]:
    """A grid per matrix: its lines and columns are those of the matrix, a cell names lane and element."""
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
            lines.setdefault(record[down], {}).setdefault(
                record[across], cell(record)
            )  # the first copy is the one read
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
    """What the cells of a matrix mean, and the function that writes one."""
    layout = view.layout
    thread = ".".join(view.threads)

    def number(record: Record) -> str:
        return ".".join(str(record[name]) for name in view.threads)

    if view.registers is None:
        return f"cell = {thread}", number
    if view.in_tensor_memory:
        legend = f"cell = {thread}:slot" if not dim and layout.slots > 1 else f"cell = {thread}"
        legend += f", whose {layout.slots} slots lie along {dim}, low bits first" if dim else ""
        is_plain = dim or layout.slots == 1
        return legend, number if is_plain else lambda record: f"{number(record)}:{record['slot']}"
    if dim:
        legend = f"cell = {thread}:register, whose {layout.slots} slots lie along {dim}, low bits first"
        return legend, lambda record: f"{number(record)}:r{record['reg']}"
    meaning = f"register = element / {layout.slots}, slot = element % {layout.slots}"
    if layout.slots == 1:
        meaning = "element = register"
    elif layout.regs == 1:
        meaning = "element = slot"
    return f"cell = {thread}:element; {meaning}", lambda record: f"{number(record)}:{record['element']}"


def by_lane(view: OperandView, records: list[Record]) -> list[TextGrid]:
    """A grid for each warp: a line per lane, a column per element or register, a cell gives the coordinates."""
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
        labels = [f"c{at // parts}" + (f":{at % parts}" if parts > 1 else "") for at in columns]
    legend = f"cell = {','.join(view.dims)}" + (f"; the {layout.slots} slots of a {unit} lie along {dim}" * bool(dim))
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
    """A grid as aligned text; one that is wider than the terminal is cut into blocks of columns."""
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


def markdown_lines(grid: TextGrid) -> Iterator[str]:
    """A grid as a Markdown table, with an empty line behind it."""
    if grid.caption:
        yield from (grid.caption, "")
    yield f"| {' | '.join(grid.header)} |"
    yield "|" + "---:|" * len(grid.header)
    for line in grid.lines:
        yield f"| {' | '.join(line)} |"
    yield ""
