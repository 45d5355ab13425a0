"""`warpfrag table`: show a whole operand, by matrix or by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from warpfrag.cli.support import arguments
from warpfrag.cli.support.operand_view import OperandView, Record
from warpfrag.cli.support.output import echo, print_heading, print_notes, terminal_width
from warpfrag.cli.support.verbs import Answer, verb
from warpfrag.html import table_lines


class OperandTable(NamedTuple):
    """Every element of an operand, and its registers.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a, scale_b or addresses
    by: the rows of the table: matrix or lane
    elements: every element with its lane, register and bits
    notes: notes on the answer
    """

    instruction: str
    operand: str
    by: str
    elements: list[dict[str, int]]
    notes: list[str]


@verb
def table(
    instruction: arguments.InstructionName,
    operand: arguments.OperandName,
    *,
    by: Literal["matrix", "lane"] = "matrix",
    choice: arguments.ElementChoice = arguments.ElementChoice(),  # noqa: B008 (immutable)
    warp: arguments.WarpIndex | None = None,
    load: arguments.Load = arguments.IN_TENSOR_MEMORY,
    arch: arguments.Arch | None = None,
) -> Answer[OperandTable]:
    """Show a whole operand: the register of every element, or the elements of every lane.

    By matrix, a cell is lane:element (warp.lane:element for a warpgroup); by lane, it is row,column. Elements are
    numbered as in PTX, across the registers of a lane. `warpfrag get --to` writes layouts in other notations.

    Options:
        by: The rows of the table.

    For example:
        warpfrag table mma.m16n8k16.f32.f16.f16.f32 a
        warpfrag table mma.m16n8k16.f32.f16.f16.f32 c --by lane
        warpfrag table ldmatrix.m8n8.x4.shared.b16 d --matrix 2
        warpfrag table tcgen05.mma.cta_group::1.kind::f16.m64n8k16.f32.f16.f16 d --by lane
        warpfrag table tcgen05.mma.cta_group::1.kind::f16.m128n8k16.f32.f16.f16 d --warp 0 --through
            tcgen05.ld.sync.aligned.16x256b.x1.b32
    """
    from warpfrag.cli.support.operand_view import operand_view
    from warpfrag.tensorcore.registry import get

    view = operand_view(get(instruction, arch), operand, load)
    chosen, warps = list(view.chosen(choice)), view.warps(warp)
    records = [
        record
        for record in view.records(view.layout.places())
        if {dim: record[dim] for dim in view.choices} in chosen
        and any(index.items() <= record.items() for index in warps)
    ]
    if by == "matrix":
        records.sort(key=lambda record: [record[dim] for dim in view.dims])
    facts = OperandTable(view.instruction.name, view.name, by, list(map(view.json, records)), view.notes)

    def show() -> None:
        print_heading(view.title)
        if by == "matrix":
            _print_by_matrix(view, records)
        else:
            _print_by_lane(view, records)
        print_notes(view.notes)

    return Answer(facts, show)


def _print_by_matrix(view: OperandView, records: list[Record]) -> None:
    """Print the meaning of a cell, and a grid for each matrix; cells contain lane and element."""
    # Addresses have a single coordinate besides the matrix, so a line is a matrix.
    down, across = view.positions if len(view.positions) == 2 else view.dims
    is_numbered = view.registers is not None and (view.layout.slots > 1 or not view.in_tensor_memory)
    number = "" if not is_numbered else ":slot" if view.in_tensor_memory else ":element"
    slots = view.layout.slots
    meaning = f"register = element / {slots}, slot = element % {slots}" if slots > 1 else "element = register"
    echo(f"cell = {'.'.join(view.threads)}{number}" + (f"; {meaning}" if number == ":element" else ""))

    def cell(record: Record) -> tuple[int, str]:
        element = f":{record['element']}" if is_numbered else ""
        return record[across], ".".join(str(record[name]) for name in view.threads) + element

    outer = [name for name in view.dims if name not in {down, across} and view.layout.outs[name] > 1]
    _print_grids(records, outer, down, cell, lambda columns: [f"{down}\\{across}", *map(str, columns)])


def _print_by_lane(view: OperandView, records: list[Record]) -> None:
    """Print the meaning of a cell, and a grid for each warp; cells contain coordinates."""
    slots = view.layout.slots
    echo(f"cell = {','.join(view.dims)}")

    def cell(record: Record) -> tuple[int, str]:
        number = record["column"] * slots + record["slot"] if view.in_tensor_memory else record.get("element", 0)
        return number, ",".join(str(record[name]) for name in view.dims)

    def header(columns: list[int]) -> list[str]:
        labels = [f"{view.name if view.has_numbers else 'slot '}{column}" for column in columns]
        if view.in_tensor_memory:
            labels = [f"c{x // slots}" + (f":{x % slots}" if slots > 1 else "") for x in columns]
        return [view.lane_name, *(labels if view.registers else ["address"])]

    outer = [name for name in ("block", "warp") if name in view.layout.ins]
    _print_grids(records, outer, view.lane_name, cell, header)


def _print_grids(
    records: list[Record],
    outer: Sequence[str],
    down: str,
    cell: Callable[[Record], tuple[int, str]],
    header: Callable[[list[int]], list[str]],
) -> None:
    """Print a grid for each index of the outer coordinates, in blocks of columns."""
    grids: dict[tuple[int, ...], dict[int, dict[int, str]]] = {}
    for record in records:
        column, text = cell(record)
        lines = grids.setdefault(tuple(record[name] for name in outer), {})
        lines.setdefault(record[down], {}).setdefault(column, text)  # the hardware reads the first copy
    for index, lines in sorted(grids.items()):
        columns = sorted({column for line in lines.values() for column in line})
        corner, *labels = header(columns)
        width = max(map(len, [*labels, *(text for line in lines.values() for text in line.values())]))
        fitting = max(1, (terminal_width() - len(corner)) // (width + 1))
        per_block = 1 << (fitting.bit_length() - 1)  # a power of two, like the extents
        for start in range(0, len(columns), per_block):
            shown = slice(start, start + per_block)
            echo()
            if outer:
                echo(", ".join(f"{name} {number}" for name, number in zip(outer, index, strict=True)))
            rows = [
                [label, *(line.get(column, "-").rjust(width) for column in columns[shown])]
                for label, line in sorted(lines.items())
            ]
            echo("\n".join(table_lines([corner, *(label.rjust(width) for label in labels[shown])], rows, gap=1)))
