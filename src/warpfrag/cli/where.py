"""`warpfrag where`: which lanes, registers and bits hold an element."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from warpfrag.cli.command import (
    choice_options,
    file_option,
    instruction_argument,
    integer,
    json_option,
    operand_argument,
    target_option,
    verb,
)
from warpfrag.cli.output import heading, notes, say, say_json, say_table
from warpfrag.cli.view import Columns, Record, View, view
from warpfrag.coordinates import check_index
from warpfrag.errors import InvalidOperand
from warpfrag.operand import SparseOperand
from warpfrag.registry import get

if TYPE_CHECKING:
    from collections.abc import Mapping


@verb(
    "warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3",
    "warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 a 9 13 --logical      # a column of the full A",
    "warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 metadata 9 3 --selector 1",
    "warpfrag where ldmatrix.m8n8.x4.shared.b16 d 3 5 --matrix 2",
)
@instruction_argument
@operand_argument
@click.argument("row", type=integer())
@click.argument("col", type=integer(), required=False)
@choice_options("mma", "matrix", "selector", "thread_id", "byte_id")
@click.option("--logical", is_flag=True, help="COL is a column of the full A of a sparse instruction.")
@file_option("--codes", saying="Metadata codes, rows by chunks: find a logical column exactly.")
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    row: int,
    col: int | None,
    target: str | None,
    codes: str | None,
    logical: bool,
    as_json: bool,
    **choice: int | None,
) -> None:
    """Which lanes, registers and bits hold an element: every holder, the one the hardware reads first.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. ROW and COL are row and
    chunk for metadata, row and scale for scale_a, scale and column for scale_b, and the row alone for addresses. For a
    sparse A, COL counts stored columns, unless --logical or --codes is given. An option that is left out means all.
    """
    shown = view(get(name, target), operand)
    position = [row] if col is None else [row, col]
    if codes is not None or logical:
        next(shown.chosen(choice))  # refuses an option that is not for this operand
        sparse = _sparse(shown, position)
        holders = (
            _possible(shown, sparse, row, position[1]) if codes is None else _exact(shown, sparse, position, codes)
        )
    else:
        holders = [Holder(record) for record in shown.where(position, choice)]
    absent = [] if holders else [f"A[{row}, {col}] is not stored: under these codes it is zero"]
    if as_json:
        found = [{**shown.json(holder.record, holder.columns), **holder.facts} for holder in holders]
        asked = {"instruction": shown.instruction.name, "operand": shown.name, "position": position}
        say_json(
            "where", {**asked, "logical": logical or codes is not None, "holders": found, "notes": absent + shown.notes}
        )
        return
    heading(shown.title)
    if holders:
        more = list(holders[0].facts)
        say_table(
            [*shown.header(), *more],
            [[*shown.cells(holder.record, holder.columns), *_texts(holder.facts)] for holder in holders],
        )
    for line in absent:
        say(line)
    notes(shown.notes)


class Holder(NamedTuple):
    """A place, and what else is known of it: its logical column, or which codes put the element there."""

    record: Record
    columns: Columns | None = None
    facts: Mapping[str, list[int] | list[str]] = MappingProxyType({})


def _texts(facts: Mapping[str, list[int] | list[str]]) -> list[str]:
    """Facts as cells: a span as first..last, codes side by side."""
    return [f"{fact[0]}..{fact[-1]}" if name == "span" else " ".join(map(str, fact)) for name, fact in facts.items()]


def _sparse(shown: View, position: list[int]) -> SparseOperand:
    """The sparse A that the question is about, its coordinates checked."""
    sparse = shown.registers
    if not isinstance(sparse, SparseOperand):
        msg = f"--logical and --codes are for A of a sparse instruction, not for {shown.name} of {shown.instruction}"
        raise InvalidOperand(msg)
    if len(position) != 2:
        msg = f"expected row and col for A of {shown.instruction}, got {len(position)} numbers"
        raise InvalidOperand(msg)
    check_index("row", position[0], sparse.shape[0])
    check_index("col", position[1], shown.instruction.shape.k)
    return sparse


def _exact(shown: View, sparse: SparseOperand, position: list[int], file: str) -> list[Holder]:
    """The holder of an element of the full A under the metadata codes of a file; none where it is not stored."""
    from warpfrag.cli.matrices import read_codes

    metadata = shown.instruction.metadata
    codes = read_codes(file, metadata.format, metadata.shape, raw=True)
    row, col = position
    return [Holder(shown.record(place), Columns(col, col)) for place in sparse.where(row=row, col=col, codes=codes)]


def _possible(shown: View, sparse: SparseOperand, row: int, col: int) -> list[Holder]:
    """Every place where a code can put an element of the full A, with those codes and the span of the register."""
    rule = sparse.pattern
    chunk, inside = divmod(col, rule.chunk)
    legal = sorted(rule.columns.items())
    holders = []
    for order in range(rule.kept):
        codes = [f"{code:04b}" for code, kept in legal if kept[order] == inside]
        if codes:
            (record,) = shown.where([row, chunk * rule.kept + order], {})
            span = sparse.span(lane=record["lane"], reg=record["reg"])
            holders.append(Holder(record, facts={"span": [span.first, span.last], "codes": codes}))
    return holders
