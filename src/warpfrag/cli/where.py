"""`warpfrag where`: which lanes, registers and bits hold an element."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from warpfrag.cli.support.options import (
    choice_options,
    file_option,
    instruction_argument,
    integer,
    json_option,
    load_options,
    operand_argument,
    target_option,
)
from warpfrag.cli.support.output import echo, print_heading, print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import check_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warpfrag.cli.support.operand_view import LogicalColumns, OperandView, Record
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import SparseOperand

ELEMENT = re.compile(r"(\w+)\[ ?(\d{1,9}) ?(?:, ?|\]\[)(\d{1,9}) ?\]")  # A[9, 3] or A[9][3]


@verb(
    "warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3",
    "warpfrag where mma.m16n8k16.f32.f16.f16.f32 'A[9, 3]'",
    "warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 a 9 13 --logical      # a column of the full A",
    "warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 metadata 9 3 --selector 1",
    "warpfrag where ldmatrix.m8n8.x4.shared.b16 d 3 5 --matrix 2",
    "warpfrag where wgmma.mma_async.m64n64k16.f32.f16.f16 b 3 5 --descriptor 0x4000004000000000",
    "warpfrag where tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5",
    "warpfrag where tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5 "
    "--through tcgen05.ld.sync.aligned.32x32b.x64.b32",
)
@instruction_argument
@operand_argument
@click.argument("row", type=integer(), required=False, metavar="ROW")
@click.argument("col", type=integer(), required=False)
@choice_options("mma", "matrix", "selector", "thread_id", "byte_id")
@click.option("--descriptor", "word", metavar="WORD", help="The shared-memory descriptor of A or B of wgmma.")
@click.option("--trans", is_flag=True, help="The operand is MN-major in shared memory (16-bit types).")
@click.option("--logical", is_flag=True, help="COL is a column of the full A of a sparse instruction.")
@file_option("--codes", help_text="Metadata codes, rows by chunks: find a logical column exactly.")
@load_options
@target_option
@json_option
def command(
    *,
    name: str,
    operand: str,
    row: int | None,
    col: int | None,
    through: str | None,
    column: int | None,
    base_lane: int | None,
    target: str | None,
    codes: str | None,
    logical: bool,
    word: str | None,
    trans: bool,
    as_json: bool,
    **choice: int | None,
) -> None:
    """Which lanes, registers and bits hold an element: every holder, the one the hardware reads first.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. ROW and COL are row and
    chunk for metadata, row and scale for scale_a, scale and column for scale_b, and the row alone for addresses. For a
    sparse A, COL counts stored columns, unless --logical or --codes is given. An option that is left out means all.
    B of wgmma lies in shared memory, and A may: its byte is that of a --descriptor, or of a tile without gaps.
    Of tensor memory the answer is lane and column; with --through, warp, lane and register after a tcgen05.ld.
    """
    from warpfrag.cli.support.operand_view import Load, operand_view
    from warpfrag.tensorcore.registry import get

    operand, row, col = _element(operand, row, col)
    instruction = get(name, target)
    load = Load(through, column, base_lane)
    staged = instruction.operands.get(operand.lower())
    if word is not None or trans or (staged is not None and staged.home == "shared"):
        load.refuse(f"{operand.lower()} of {instruction} in shared memory")
        _print_address(instruction, operand, (row, col), word, trans=trans, as_json=as_json)
        return
    view = operand_view(instruction, operand, load)
    position = [row] if col is None else [row, col]
    if codes is not None or logical:
        next(view.chosen(choice))  # refuses an option that is not for this operand
        sparse = _sparse(view, position)
        holders = _possible(view, sparse, row, position[1]) if codes is None else _exact(view, sparse, position, codes)
    else:
        holders = [Holder(record) for record in view.where(position, choice)]
    absent = [] if holders else [_absent(view, position)]
    if as_json:
        entries = [{**view.json(holder.record, holder.columns), **holder.facts} for holder in holders]
        asked = {"instruction": view.instruction.name, "operand": view.name, "position": position}
        print_json(
            "where",
            {**asked, "logical": logical or codes is not None, "holders": entries, "notes": absent + view.notes},
        )
        return
    print_heading(view.title)
    if holders:
        more = list(holders[0].facts)
        print_table(
            [*view.header(), *more],
            [[*view.cells(holder.record, holder.columns), *_texts(holder.facts)] for holder in holders],
        )
    for line in absent:
        echo(line)
    print_notes(view.notes)


def _element(operand: str, row: int | None, col: int | None) -> tuple[str, int, int | None]:
    """The operand, row and column that are asked for; an operand such as A[9, 3] has all three."""
    if row is not None:
        return operand, row, col
    element = ELEMENT.fullmatch(operand)
    if not element:
        msg = "Missing argument 'ROW'"
        raise click.UsageError(msg, click.get_current_context())
    return element[1], int(element[2]), int(element[3])


def _absent(view: OperandView, position: list[int]) -> str:
    """Why nothing holds an element."""
    element = f"{view.name.upper()}[{', '.join(map(str, position))}]"
    if view.after or view.is_access:
        return f"{element} is not in these registers: the load or store does not reach it"
    return f"{element} is not stored: under these codes it is zero"


def _print_address(
    instruction: Instruction,
    name: str,
    position: tuple[int, int | None],
    word: str | None,
    *,
    trans: bool,
    as_json: bool,
) -> None:
    """At which byte of shared memory an element lies."""
    from warpfrag.cli.descriptor import read_word
    from warpfrag.tensorcore.operand import Operand
    from warpfrag.tensorcore.tensor_operand import PADDED, InTensorShared

    operand = instruction.operands.get(name.lower())
    if not (isinstance(operand, Operand) and operand.staged):
        msg = f"--descriptor and --trans are for A and B of wgmma and tcgen05, not for {quote(name)} of {instruction}"
        raise InvalidOperand(msg)
    row, col = position
    rows, cols = operand.shape
    if col is None:
        msg = f"expected row and col for {operand.role} of {instruction}, got {row}"
        raise InvalidOperand(msg)
    check_index("row", row, rows)
    check_index("col", col, cols)
    descriptor = operand.descriptors(trans=trans)[0] if word is None else read_word(word, operand.descriptor_kind)
    bits = operand.format.bits
    along = (row if (operand.role == "a") == trans else col) * bits
    if isinstance(operand, InTensorShared) and operand.is_padded:
        address = int(operand.addresses(descriptor, trans)[row, col])
        along = (col if operand.role == "a" else row) % PADDED * bits
    else:
        address = operand.memory(descriptor, trans=trans).address(row=row, col=col, bits=bits)
    known = [] if word else ["no --descriptor was given: this is a tile without gaps"]
    if as_json:
        asked = {"instruction": instruction.name, "operand": operand.role, "position": [row, col]}
        place = {"address": address, "bit": along % 8, "descriptor": f"0x{descriptor.word:016x}", "trans": trans}
        print_json("where", {**asked, "logical": False, "holders": [place], "notes": known})
        return
    print_heading(
        f"{operand.role} of {instruction}: {rows} by {cols} {operand.format}, descriptor 0x{descriptor.word:016x}"
    )
    print_table(["row", "col", "byte", "hex", "bit"], [[row, col, address, f"0x{address:x}", along % 8]])
    print_notes(known)


class Holder(NamedTuple):
    """A place, and what else is known of it: its logical column, or which codes put the element there."""

    record: Record
    columns: LogicalColumns | None = None
    facts: Mapping[str, list[int] | list[str]] = MappingProxyType({})


def _texts(facts: Mapping[str, list[int] | list[str]]) -> list[str]:
    """Facts as cells: a span as first..last, codes side by side."""
    return [f"{fact[0]}..{fact[-1]}" if name == "span" else " ".join(map(str, fact)) for name, fact in facts.items()]


def _sparse(view: OperandView, position: list[int]) -> SparseOperand:
    """The sparse A that the question is about, its coordinates checked."""
    from warpfrag.tensorcore.operand import SparseOperand

    sparse = view.registers
    if not isinstance(sparse, SparseOperand):
        msg = f"--logical and --codes are for A of a sparse instruction, not for {view.name} of {view.instruction}"
        raise InvalidOperand(msg)
    if len(position) != 2:
        msg = f"expected row and col for A of {view.instruction}, got {' '.join(map(str, position))}"
        raise InvalidOperand(msg)
    check_index("row", position[0], sparse.shape[0])
    check_index("col", position[1], view.instruction.shape.k)
    return sparse


def _exact(view: OperandView, sparse: SparseOperand, position: list[int], file: str) -> list[Holder]:
    """The holder of an element of the full A under the metadata codes of a file; none where it is not stored."""
    from warpfrag.cli.support.matrix_files import read_codes
    from warpfrag.cli.support.operand_view import LogicalColumns

    metadata = view.instruction.metadata
    codes = read_codes(file, metadata.format, metadata.shape, raw=True)
    row, col = position
    return [
        Holder(view.record(place), LogicalColumns(col, col)) for place in sparse.where(row=row, col=col, codes=codes)
    ]


def _possible(view: OperandView, sparse: SparseOperand, row: int, col: int) -> list[Holder]:
    """Every place where a code can put an element of the full A, with those codes and the span of the register."""
    rule = sparse.pattern
    chunk, inside = divmod(col, rule.chunk)
    legal = sorted(rule.columns.items())
    holders = []
    for order in range(rule.kept):
        codes = [f"{code:04b}" for code, kept in legal if kept[order] == inside]
        if codes:
            (record,) = view.where([row, chunk * rule.kept + order], {})
            span = sparse.span(**{name: record[name] for name in (*view.threads, "reg")})
            holders.append(Holder(record, facts={"span": [span.first, span.last], "codes": codes}))
    return holders
