"""`warpfrag table`: a whole operand, by matrix or by lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


@verb
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
    numbered as in PTX, through the registers of a lane. With --to, show the whole layout in the notation of another
    tool.

    Options:
        by: The rows of the table.

    For example:
        warpfrag table mma.m16n8k16.f32.f16.f16.f32 a
        warpfrag table mma.m16n8k16.f32.f16.f16.f32 c --by lane
        warpfrag table ldmatrix.m8n8.x4.shared.b16 d --matrix 2
        warpfrag table mma.m16n8k16.f32.f16.f16.f32 a --to cute       # also triton, mlir, c, json
        warpfrag table tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f32.f16.f16 d --by lane
        warpfrag table tcgen05.mma.cta_group::1.kind::f16.m128n8k16.f32.f16.f16 d --warp 0 --through
            tcgen05.ld.sync.aligned.16x256b.x1.b32
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
        legend, grids = by_matrix(view, records) if by == "matrix" else by_lane(view, records)
        echo(legend)
        for grid in grids:
            for line in text_lines(grid):
                echo(line)
        print_notes(view.notes)

    return Answer(facts, show)


class TextGrid(NamedTuple):
    """A text table: a caption, column labels, and a label and cells per line."""

    caption: str
    header: list[str]
    lines: list[list[str]]


def by_matrix(view: OperandView, records: list[Record]) -> tuple[str, list[TextGrid]]:
    """Return the meaning of a cell, and a grid per matrix whose cells name lane and element."""
    layout, thread = view.layout, ".".join(view.threads)
    # Addresses have one coordinate beside the matrix: then the matrix is the line.
    down, across = view.positions if len(view.positions) == 2 else view.dims
    is_numbered = view.registers is not None and (layout.slots > 1 or not view.in_tensor_memory)
    legend = f"cell = {thread}"
    if view.in_tensor_memory:
        legend += ":slot" * is_numbered
    elif is_numbered:
        meaning = f"register = element / {layout.slots}, slot = element % {layout.slots}"
        meaning = "element = register" if layout.slots == 1 else "element = slot" if layout.regs == 1 else meaning
        legend += f":element; {meaning}"

    def cell(record: Record) -> tuple[int, str]:
        number = f":{record['element']}" if is_numbered else ""
        return record[across], ".".join(str(record[name]) for name in view.threads) + number

    outer = [name for name in view.dims if name not in {down, across} and layout.outs[name] > 1]
    corner = "r\\c" if (down, across) == ("row", "col") else f"{down}\\{across}"
    return legend, _grids(records, outer, down, cell, lambda columns: [corner, *map(str, columns)])


def by_lane(view: OperandView, records: list[Record]) -> tuple[str, list[TextGrid]]:
    """Return the meaning of a cell, and a grid per warp whose cells give the coordinates of elements."""
    slots = view.layout.slots

    def cell(record: Record) -> tuple[int, str]:
        number = record["column"] * slots + record["slot"] if view.in_tensor_memory else record.get("element", 0)
        return number, ",".join(str(record[name]) for name in view.dims)

    def header(columns: list[int]) -> list[str]:
        labels = [f"{view.name if view.has_numbers else 'slot '}{column}" for column in columns]
        if view.in_tensor_memory:
            labels = [f"c{x // slots}" + (f":{x % slots}" if slots > 1 else "") for x in columns]
        return [view.lane_name, *(labels if view.registers else ["address"])]

    outer = [name for name in ("block", "warp") if name in view.layout.ins]
    return f"cell = {','.join(view.dims)}", _grids(records, outer, view.lane_name, cell, header)


def _grids(
    records: list[Record],
    outer: Sequence[str],
    down: str,
    cell: Callable[[Record], tuple[int, str]],
    header: Callable[[list[int]], list[str]],
) -> list[TextGrid]:
    """Return a grid for each index of the outer coordinates."""
    grids: dict[tuple[int, ...], dict[int, dict[int, str]]] = {}
    for record in records:
        column, text = cell(record)
        lines = grids.setdefault(tuple(record[name] for name in outer), {})
        lines.setdefault(record[down], {}).setdefault(column, text)  # the hardware reads the first copy
    made = []
    for index, lines in sorted(grids.items()):
        columns = sorted({column for line in lines.values() for column in line})
        rows = [[str(label), *(line.get(column, "-") for column in columns)] for label, line in sorted(lines.items())]
        caption = ", ".join(f"{name} {number}" for name, number in zip(outer, index, strict=True))
        made.append(TextGrid(caption, header(columns), rows))
    return made


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
