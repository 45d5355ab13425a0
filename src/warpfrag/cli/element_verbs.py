"""`warpfrag at`, `where` and `table`: the elements of a lane, the lanes of an element, and whole operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from warpfrag.cli.io import arguments
from warpfrag.cli.io.operand_view import OperandView, Record
from warpfrag.cli.io.output import echo, print_heading, print_notes, print_table, terminal_width
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.errors import InvalidOperand, check_index, quote
from warpfrag.html import table_lines
from warpfrag.layout.coordinates import place
from warpfrag.tensorcore.operand import Operand, SparseOperand

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction

ELEMENT = re.compile(r"(\w+)\[ ?(\d{1,9}) ?(?:, ?|\]\[)(\d{1,9}) ?\]")  # A[9, 3] or A[9][3]


class LaneElements(NamedTuple):
    """The elements that a lane holds.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a, scale_b or addresses
    elements: one for each requested slot, with its register and bits
    notes: notes on the answer
    """

    instruction: str
    operand: str
    elements: list[dict[str, int]]
    notes: list[str]


class ElementHolders(NamedTuple):
    """The lanes, registers and bits that hold an element.

    instruction: canonical name
    operand: a, b, c, d, metadata, scale_a, scale_b or addresses
    position: the requested row and column
    logical: true if the column is one of the full A
    holders: lanes, registers and bits; the hardware reads the first one; empty if the element is not stored
    notes: notes on the answer
    """

    instruction: str
    operand: str
    position: list[int]
    logical: bool
    holders: list[dict[str, object]]
    notes: list[str]


@verb
def at(
    instruction: arguments.InstructionName,
    operand: arguments.OperandName,
    lane: int,
    reg: int | None = None,
    slot: int | None = None,
    *,
    warp: arguments.WarpIndex | None = None,
    load: arguments.Load = arguments.IN_TENSOR_MEMORY,
    arch: arguments.Arch | None = None,
) -> Answer[LaneElements]:
    """Show which elements a lane holds in one slot, one register or all registers of an operand.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. Four warps execute
    wgmma; --warp selects one, and by default all are shown. For tensor memory, LANE and REG are the lane and the
    column; --through shows the registers after this tcgen05.ld.

    For example:
        warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5          # everything lane 5 holds of A
        warpfrag at mma.m16n8k16.f32.f16.f16.f32 a 5 2 1      # register 2, slot 1 of lane 5
        warpfrag at mma.sp.m16n8k32.f32.f16.f16.f32 metadata 5
        warpfrag at ldmatrix.m8n8.x4.shared.b16 addresses 9
        warpfrag at wgmma.mma_async.m64n64k16.f32.f16.f16 d 5 7 --warp 1
        warpfrag at tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5     # lane 37, column 5
        warpfrag at tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 5 --warp 1 --through
            tcgen05.ld.sync.aligned.16x256b.x8.b32
    """
    from warpfrag.cli.io.operand_view import operand_view
    from warpfrag.tensorcore.registry import get

    view = operand_view(get(instruction, arch), operand, load)
    extents = view.layout.ins
    if view.in_tensor_memory:
        inside, threads = {"column": reg, "slot": slot}, [{"tlane": lane}]
        if "block" in extents:
            threads = [{"block": block, **threads[0]} for block in range(extents["block"])]
    else:
        inside, threads = {"reg": reg, "slot": slot}, [{**index, "lane": lane} for index in view.warps(warp)]
    sizes = {"reg": view.layout.regs, "slot": view.layout.slots, "column": extents.get("column", 0)}
    first, second = (
        range(sizes[name]) if index is None else [check_index(name, index, sizes[name])]
        for name, index in inside.items()
    )
    takes_part = view.check_lane(lane)
    places = [
        place(**thread, **dict(zip(inside, (x, y), strict=True))) for thread in threads for x in first for y in second
    ]
    records = view.records(places) if takes_part else []
    facts = LaneElements(view.instruction.name, view.name, [*map(view.json, records)], view.notes)

    def show() -> None:
        print_heading(view.title)
        if records:
            print_table(view.header(), [view.cells(record) for record in records])
        print_notes(view.notes)

    return Answer(facts, show)


@verb
def where(
    instruction: arguments.InstructionName,
    operand: arguments.OperandName,
    row: int | None = None,
    col: int | None = None,
    *,
    choice: arguments.ElementChoice = arguments.ElementChoice(),  # noqa: B008 (immutable)
    descriptor: str | None = None,
    trans: bool = False,
    logical: bool = False,
    load: arguments.Load = arguments.IN_TENSOR_MEMORY,
    arch: arguments.Arch | None = None,
) -> Answer[ElementHolders]:
    """Show which lanes, registers and bits hold an element; if several do, the hardware reads the first.

    OPERAND is a, b, c, d, metadata, scale_a, scale_b or, for ldmatrix and stmatrix, addresses. ROW and COL are row and
    chunk for metadata, row and scale for scale_a, scale and column for scale_b, and only the row for addresses. For a
    sparse A, COL counts stored columns, unless --logical is given. If an option such as --selector is omitted, all its
    values are shown.

    An element in shared memory (B, and sometimes A, of wgmma) has a byte address. An element in tensor memory has a
    lane and a column; --through shows the warp, lane and register that hold it after this tcgen05.ld.

    Options:
        descriptor (WORD): The shared-memory descriptor of A or B of wgmma; default: a tile without gaps.
        trans: The operand is MN-major in shared memory (16-bit types).
        logical: COL is a column of the full A of a sparse instruction.

    For example:
        warpfrag where mma.m16n8k16.f32.f16.f16.f32 a 9 3
        warpfrag where mma.m16n8k16.f32.f16.f16.f32 'A[9, 3]'
        warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 a 9 13 --logical      # a column of the full A
        warpfrag where mma.sp.m16n8k32.f32.f16.f16.f32 metadata 9 3 --selector 1
        warpfrag where ldmatrix.m8n8.x4.shared.b16 d 3 5 --matrix 2
        warpfrag where wgmma.mma_async.m64n64k16.f32.f16.f16 b 3 5 --descriptor 0x4000004000000000
        warpfrag where tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5
        warpfrag where tcgen05.mma.cta_group::1.kind::f16.m128n64k16.f32.f16.f16 d 37 5 --through
            tcgen05.ld.sync.aligned.32x32b.x64.b32
    """
    from warpfrag.cli.io.operand_view import operand_view
    from warpfrag.tensorcore.registry import get

    operand, row, col = _element(operand, row, col)
    resolved = get(instruction, arch)
    stored = resolved.operands.get(operand.lower())
    if descriptor is not None or trans or (stored is not None and stored.storage == "shared"):
        load.refuse(f"{operand.lower()} of {resolved} in shared memory")
        return _address(resolved, operand, (row, col), descriptor, trans=trans)
    view = operand_view(resolved, operand, load)
    position = [row] if col is None else [row, col]
    if logical:
        next(view.chosen(choice))  # raises an error if an option does not apply to this operand
        holders, extra = _possible(view, position)
    else:
        holders = view.where(position, choice)
        extra = [{} for _ in holders]
    entries = [{**view.json(holder), **more} for holder, more in zip(holders, extra, strict=True)]
    element = f"{view.name.upper()}[{', '.join(map(str, position))}]"
    absent = [] if holders else [f"{element} is not in these registers: the load or store does not reach it"]
    facts = ElementHolders(view.instruction.name, view.name, position, logical, entries, absent + view.notes)

    def show() -> None:
        print_heading(view.title)
        if holders:
            texts = [["{}..{}".format(*more["span"]), " ".join(more["codes"])] if more else [] for more in extra]
            rows = [[*view.cells(holder), *text] for holder, text in zip(holders, texts, strict=True)]
            print_table([*view.header(), *extra[0]], rows)
        for line in absent:
            echo(line)
        print_notes(view.notes)

    return Answer(facts, show)


def _element(operand: str, row: int | None, col: int | None) -> tuple[str, int, int | None]:
    """Return the operand, row and column; an operand such as A[9, 3] contains all three."""
    if row is not None:
        return operand, row, col
    element = ELEMENT.fullmatch(operand)
    if not element:
        raise click.UsageError("Missing argument 'ROW'", click.get_current_context())
    return element[1], int(element[2]), int(element[3])


def _address(
    instruction: Instruction, name: str, position: tuple[int, int | None], word: str | None, *, trans: bool
) -> Answer[ElementHolders]:
    """Return the answer for an element in shared memory: its byte address."""
    from warpfrag.cli.descriptor_verb import read_word
    from warpfrag.tensorcore.tensor_operand import PADDED, InTensorShared

    operand = instruction.operands.get(name.lower())
    if not (isinstance(operand, Operand) and operand.staged):
        raise InvalidOperand(
            f"--descriptor and --trans apply to A and B of wgmma and tcgen05, not to {quote(name)} of {instruction}"
        )
    row, col = position
    if col is None:
        raise InvalidOperand(f"expected row and col for {operand.role} of {instruction}, got {row}")
    rows, cols = operand.shape
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
    notes = [] if word else ["no --descriptor: a tile without gaps is assumed"]
    text = f"0x{descriptor.word:016x}"
    holder = {"address": address, "bit": along % 8, "descriptor": text, "trans": trans}

    def show() -> None:
        print_heading(f"{operand.role} of {instruction}: {rows} by {cols} {operand.format}, descriptor {text}")
        print_table(["row", "col", "byte", "hex", "bit"], [[row, col, address, f"0x{address:x}", along % 8]])
        print_notes(notes)

    return Answer(ElementHolders(instruction.name, operand.role, [row, col], False, [holder], notes), show)  # noqa: FBT003


def _possible(view: OperandView, position: list[int]) -> tuple[list[Record], list[dict[str, Any]]]:
    """Return every register that can hold an element of the full A, with the metadata codes that select it."""
    sparse = view.registers
    if not isinstance(sparse, SparseOperand):
        raise InvalidOperand(f"--logical applies to a sparse A, not to {view.name} of {view.instruction}")
    if len(position) != 2:
        raise InvalidOperand(f"expected row and col for A of {view.instruction}, got {' '.join(map(str, position))}")
    row = check_index("row", position[0], sparse.shape[0])
    col = check_index("col", position[1], view.instruction.shape.k)
    rule = sparse.pattern
    chunk, inside = divmod(col, rule.chunk)
    holders, extra = [], []
    for order in range(rule.kept):
        codes = [f"{code:04b}" for code, kept in sorted(rule.columns.items()) if kept[order] == inside]
        if codes:
            (record,) = view.where([row, chunk * rule.kept + order])
            span = sparse.span(**{name: record[name] for name in (*view.threads, "reg")})
            holders.append(record)
            extra.append({"span": (span.first, span.last), "codes": codes})
    return holders, extra


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
    from warpfrag.cli.io.operand_view import operand_view
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
    """Print the meaning of a cell, and a grid for each matrix; each cell shows a lane and an element."""
    # Besides the matrix, addresses have a single coordinate, so each matrix is one line of the grid.
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
