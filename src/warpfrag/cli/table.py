"""`warpfrag table`: a whole operand, by matrix or by lane."""

from __future__ import annotations

import click

from warpfrag.cli.command import (
    choice_options,
    instruction_argument,
    json_option,
    operand_argument,
    target_option,
    verb,
)
from warpfrag.cli.grid import by_lane, by_matrix, markdown_lines, text_lines
from warpfrag.cli.output import heading, notes, say, say_json
from warpfrag.cli.view import view
from warpfrag.registry import get


@verb(
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 a",
    "warpfrag table mma.m16n8k16.f32.f16.f16.f32 c --by lane --format markdown",
    "warpfrag table ldmatrix.m8n8.x4.b16 d --matrix 2 --format csv",
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
@target_option
@json_option
def command(
    *, name: str, operand: str, by: str, style: str, target: str | None, as_json: bool, **choice: int | None
) -> None:
    """A whole operand: for every element its place, or for every lane its elements.

    By matrix, a cell is lane:element, by lane it is row,column. Elements are numbered as in PTX, through the registers
    of a lane. Where a side is longer than 16 elements, the neighbours that share a register share a cell.
    """
    shown = view(get(name, target), operand)
    chosen = list(shown.chosen(choice))
    records = [record for record in shown.places() if {dim: record[dim] for dim in shown.choices} in chosen]
    if by == "matrix":
        records.sort(key=lambda record: [record[dim] for dim in shown.layout.dims])
    if as_json or style == "json":
        asked = {"instruction": shown.instruction.name, "operand": shown.name, "by": by}
        say_json("table", {**asked, "elements": list(map(shown.json, records)), "notes": shown.notes})
    elif style == "csv":
        say(",".join(records[0]))
        for record in records:
            say(",".join(map(str, record.values())))
    elif style == "markdown":
        for grid in by_matrix(shown, records) if by == "matrix" else by_lane(shown, records):
            say("\n".join(markdown_lines(grid)))
    else:
        heading(shown.title)
        grids = by_matrix(shown, records) if by == "matrix" else by_lane(shown, records)
        say(grids[0].legend)
        for grid in grids:
            for line in text_lines(grid):
                say(line)
        notes(shown.notes)
