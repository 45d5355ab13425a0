"""Layouts of D, A, metadata and scale factors in tensor memory, and of the registers of loads and stores.

The tensor memory of a block has 128 lanes (`tlane`) and 512 columns of 32 bits; `slot` counts the elements within a
column, and `block` the two blocks of a pair. An accumulator maps these places to (row, col). A load maps (warp, lane,
reg, slot) to these places. The layout of a load's registers is thus the composition `accumulator @ load`.

All layouts are read from rows of `tables/tcgen05.toml`, bit by bit. A bit whose move is `0` selects a copy; n2
and n4 are half and a quarter of the columns of D.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from warpfrag.errors import IllegalInstruction, InvalidOperand
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tcgen05_spelling import TensorSpelling, registers
from warpfrag.layout.linear_layout import Layout
from warpfrag.tables import read_table

TENSOR_LANES, TENSOR_COLUMNS = 128, 512
WARPS = 4
SCALE_LANES, SCALE_ROWS = 32, 128
Step = tuple[int, tuple[int, ...]]


def digits(size: int) -> list[tuple[int, int]]:
    """Return the (weight, radix) of each bit of a size, and of its odd factor, lowest first."""
    result, weight = [], 1
    while size % 2 == 0:
        result.append((weight, 2))
        weight, size = 2 * weight, size // 2
    return [*result, (weight, size)] if size > 1 else result


def _along_columns(size: int, scale: int = 1) -> list[Step]:
    """Return the moves of an input that counts along the columns of a matrix."""
    return [(radix, (0, weight * scale)) for weight, radix in digits(size)]


def _moves(text: str, letters: str, named: Mapping[str, tuple[int, ...]]) -> list[Step]:
    """Return the steps that a table row lists: r4 is a step of 4 along the coordinate with the letter r."""
    steps: list[Step] = []
    for word in text.split():
        if word in named:
            steps.append((2, named[word]))
        else:
            index = letters.find(word[0]) if word != "0" else -1
            steps.append((2, tuple(int(word[1:]) if at == index else 0 for at in range(len(letters)))))
    return steps


@cache
def placement(form: TensorForm) -> tuple[str, Mapping[str, Any]]:
    """Return the letter of the data path that an mma uses, and its table row."""
    facts = {
        "blocks": form.blocks,
        "m": form.shape.m,
        "sparse": form.spelling.is_sparse,
        "ws": form.spelling.is_weight_stationary,
    }
    for letter, row in read_table("tcgen05")["placement"].items():
        if letter != "source" and all(facts[name] == entry for name, entry in row["for"].items()):
            return letter, row
    raise IllegalInstruction(form.name, "the layout of its D is not documented")


def is_half(form: TensorForm) -> bool:
    """Return True if operands use only 16 of every 32 lanes: the first 16, or with base lane 16 the last 16."""
    return "0" in placement(form)[1]["tlane"].split()


def _in_order(steps: dict[str, list[Step]], *, is_pair: bool) -> dict[str, list[Step]]:
    """Return the inputs in the standard order of places; `block` is omitted for a single block."""
    names = ("block", "tlane", "column", "slot") if is_pair else ("tlane", "column", "slot")
    return {name: steps[name] for name in names}


@cache
def accumulator(form: TensorForm) -> Layout:
    """Return the layout of D, which has one element in each 32-bit column."""
    _, row = placement(form)
    m, n, _ = form.shape
    named = {"n2": (0, n // 2), "n4": (0, n // 4)}
    parts = 1 << sum(word in named for word in row["tlane"].split())
    steps: dict[str, list[Step]] = {
        "block": _moves(row.get("block", ""), "rc", named),
        "tlane": _moves(row["tlane"], "rc", named),
        "column": _along_columns(n // parts),
        "slot": [],
    }
    return Layout.of_steps({"row": m, "col": n}, _in_order(steps, is_pair=form.blocks == 2))


@cache
def multiplicand(form: TensorForm, container: int) -> Layout:
    """Return the layout of A in tensor memory; elements of `container` bits fill the columns along k."""
    _, row = placement(form)
    stored = form.shape.k // (2 if form.is_sparse else 1)
    copies = {"n2": (0, 0), "n4": (0, 0)}
    slots = 32 // container
    steps: dict[str, list[Step]] = {
        "block": _moves(row.get("block", ""), "rc", copies),
        "tlane": _moves(row["tlane"], "rc", copies),
        "column": _along_columns(stored // slots, slots),
        "slot": _along_columns(slots),
    }
    return Layout.of_steps({"row": form.shape.m, "col": stored}, _in_order(steps, is_pair=form.blocks == 2))


def metadata_row(form: TensorForm) -> Mapping[str, Any]:
    """Return the table row with the metadata layout of a sparse mma."""
    rows = (row for name, row in read_table("tcgen05")["metadata"].items() if name != "source")
    return next(row for row in rows if form.kind in row["kinds"])


@cache
def metadata(form: TensorForm, chunks: int) -> Layout:
    """Return the layout of a sparse A's metadata codes, four bits per chunk: a map to (selector, row, chunk).

    A row has the same lane bits as in D. A lane bit that is a copy in D, or that selects half of D's columns, is
    therefore a copy here.
    """
    row = metadata_row(form)
    _, place = placement(form)
    physical = {f"p{1 << bit}": word for bit, word in enumerate(place["tlane"].split())}

    def moves(text: str) -> list[Step]:
        steps: list[Step] = []
        for word in text.split():
            stated = physical.get(word, word)
            letter, amount = stated[0], int(stated[1:] or 0) if stated[0] in "rks" else 0
            steps.append((2, (amount * (letter == "s"), amount * (letter == "r"), amount * (letter == "k"))))
        return steps

    selectors = 2 if "s1" in row["column"] else 1
    steps: dict[str, list[Step]] = {
        "block": [(2, (0, int(word[1:]), 0)) for word in place.get("block", "").split()],
        "tlane": moves(row["tlane"]),
        "column": moves(row["column"]),
        "slot": moves(row["slot"]),
    }
    extents = {"selector": selectors, "row": form.shape.m, "chunk": chunks}
    return Layout.of_steps(extents, _in_order(steps, is_pair=form.blocks == 2))


def padded(rows: int) -> int:
    """Return the number of rows (columns for B) of scale factors, padded to a multiple of 128."""
    return -(-rows // SCALE_ROWS) * SCALE_ROWS


@cache
def scale_factors(form: TensorForm, side: str) -> Layout:
    """Return the layout of scale factors, a map to (row, byte) for A or to (byte, col) for B.

    A byte id is the number of the first byte that an mma reads. 32 lanes hold 32 rows, and the other three groups of 32
    lanes hold copies; the next rows are in the next column. Four bytes share a column. Rows are padded to a multiple of
    128; each block of a pair has all scale factors of B.
    """
    n = form.shape.n
    per_block = form.shape.m // form.blocks
    extent = padded(per_block if side == "a" else n)
    is_split = side == "b" and form.blocks == 2 and form.shape.m == SCALE_ROWS
    if side == "a":
        extent = per_block  # the rows of this block, 64 or 128
    words = -(-form.scales // 4)
    rows = extent if not is_split else padded(n // 2)
    at, axes = (0, 2) if side == "a" else (1, 2)

    def row_move(amount: int) -> tuple[int, ...]:
        return tuple(amount if axis == at else 0 for axis in range(axes))

    def byte_move(amount: int) -> tuple[int, ...]:
        return tuple(amount if axis != at else 0 for axis in range(axes))

    lanes: list[Step] = [(2, row_move(1 << bit)) for bit in range(5)]
    lanes += [(2, row_move(0)), (2, row_move(rows if is_split else 0))]
    columns: list[Step] = [(radix, row_move(weight * SCALE_LANES)) for weight, radix in digits(rows // SCALE_LANES)]
    columns += [(2, byte_move(4))] if words > 1 else []
    total = rows * (2 if is_split else 1)
    block: list[Step] = [(2, row_move(per_block) if side == "a" else row_move(0))]
    total *= 2 if side == "a" and form.blocks == 2 else 1
    steps = {"block": block, "tlane": lanes, "column": columns, "slot": [(2, byte_move(1)), (2, byte_move(2))]}
    extents = {"row": total, "byte": 4 * words} if side == "a" else {"byte": 4 * words, "col": total}
    return Layout.of_steps(extents, _in_order(steps, is_pair=form.blocks == 2))


@cache
def scaled_lines(form: TensorForm, side: str) -> tuple[int, ...]:
    """Return, for each row of A or column of B, its coordinate in the layout of scale factors.

    The layout is padded, so some coordinates belong to no row or column. For a pair with m 128, each half is padded.
    """
    m, n, _ = form.shape
    if side == "b" and form.blocks == 2 and m == SCALE_ROWS:
        half = n // 2
        return tuple(col // half * padded(half) + col % half for col in range(n))
    return tuple(range(m if side == "a" else n))


def copies_in_words(form: TensorForm, role: str, copies: int) -> str:
    """Return a sentence that describes the copies of an operand in tensor memory."""
    if role == "scale_b" and form.shape.m == SCALE_ROWS and form.blocks == 2:
        return "lanes 0 to 63 hold the scale factors of B's first half twice, lanes 64 to 127 those of its second half"
    if role.startswith("scale"):
        return "all four groups of 32 lanes hold the same scale factors"
    if is_half(form):
        return "16 of every 32 lanes are used: those that start at base lane 0 or at base lane 16"
    return f"every element is stored {copies} times: each part of D's columns is computed from its own copy"


def split_of(spelling: TensorSpelling) -> int:
    """Return the default distance between the halves of 16x32bx2: the number of columns that one half reads."""
    return spelling.repeat * (2 if spelling.qualifier("pack") or spelling.qualifier("unpack") else 1)


@cache
def access(
    spelling: TensorSpelling,
    column: int = 0,
    base_lane: int = 0,
    *,
    split: int | None = None,
    columns: int | None = None,
) -> Layout:
    """Return the layout of a load's or store's registers, from (warp, lane, reg, slot) to (tlane, column, slot).

    `column` and `base_lane` are parts of its address: with a 16-lane shape, each warp accesses 16 of its 32 lanes,
    starting at base_lane (0 or 16). `split` is the distance between the halves of 16x32bx2. With pack or unpack, a
    register contains the lower halves of two columns. `columns` is the number of columns in the matrix.
    """
    shape = spelling.qualifier("lanes")
    row = read_table("tcgen05")["access"][shape]
    count = registers(spelling)[-1] if not spelling.op.endswith("spcompress") else spelling.repeat
    is_packed = bool(spelling.qualifier("pack") or spelling.qualifier("unpack"))
    factor = 2 if is_packed else 1
    distance = split_of(spelling) if split is None else split
    own = count * factor if shape == "16x32bx2" else 0
    if own and (distance < own or distance % own or (distance // own) & (distance // own - 1)):
        raise InvalidOperand(
            f"{spelling.name}: halves {distance} columns apart have no linear layout; use {own} times a power of two"
        )
    named = {"split": (0, distance // factor, 0)}

    def widened(steps: Iterable[Step]) -> list[Step]:
        return [(radix, (lane, moved * factor, slot)) for radix, (lane, moved, slot) in steps]

    def moves(text: str) -> list[Step]:
        return widened((radix, (*move[:2], 0)) for radix, move in _moves(text, "lc ", named))

    reg = moves(row["reg"])
    repeats = count >> len(row["reg"].split())
    reg += widened((radix, (0, weight * row["next"], 0)) for weight, radix in digits(repeats))
    steps: dict[str, list[Step]] = {
        "warp": [(2, (32, 0, 0)), (2, (64, 0, 0))],
        "lane": moves(row["lane"]),
        "reg": reg,
        "slot": [(2, (0, 1, 0))] if is_packed else [],
    }
    reach = 1 + sum((radix - 1) * move[1] for of in steps.values() for radix, move in of)
    size = 1 << (column + reach - 1).bit_length() if columns is None else columns
    _check_address(
        column, base_lane, reach, min(size, TENSOR_COLUMNS) if columns else TENSOR_COLUMNS, shape != "32x32b"
    )
    if column % (1 << (reach - 1).bit_length()):
        raise InvalidOperand(
            f"column {column} is not a multiple of the {reach} columns that {spelling.name} reaches: start at column 0"
        )
    return partial_layout({"tlane": TENSOR_LANES, "column": size, "slot": 1}, steps, (base_lane, column, 0))


def partial_layout(extents: dict[str, int], steps: dict[str, list[Step]], origin: Iterable[int]) -> Layout:
    """Return the layout of a load; if it splits an odd factor, the extents are rounded up to powers of two.

    48 columns are 16 times a digit of radix 3. Columns 32 to 47 start at digit 2, and columns 0 to 31 are two thirds of
    its range. Neither is a linear map to 48 columns, but both are linear maps to 64.
    """
    try:
        return Layout.of_steps(extents, steps, origin)
    except InvalidOperand:
        return Layout.of_steps({name: 1 << (size - 1).bit_length() for name, size in extents.items()}, steps, origin)


def _check_address(column: int, base_lane: int, reach: int, columns: int, is_half: bool) -> None:  # noqa: FBT001
    if base_lane not in ((0, 16) if is_half else (0,)):
        raise InvalidOperand(f"expected base_lane {'0 or 16' if is_half else '0'}, got {base_lane}")
    if reach > columns:
        raise InvalidOperand(f"the access reaches {reach} columns, but there are only {columns}")
    if not 0 <= column <= columns - reach:
        raise InvalidOperand(f"expected a column in 0..{columns - reach} for {reach} columns, got {column}")


@cache
def copied(spelling: TensorSpelling) -> Layout:
    """Return the layout that cp writes: from (tlane, column) to the (row, word) of the source, in 32-bit words."""
    name = ".".join(filter(None, (spelling.qualifier("rows"), spelling.qualifier("copies"))))
    row = read_table("tcgen05")["copies"][name]
    rows = int(spelling.qualifier("rows").split("x")[0])
    words = row["tlane"].split()
    steps: dict[str, list[Step]] = {
        "tlane": [(2, (0 if word in "0-" else int(word[1:]), 0)) for word in words],
        "column": _along_columns(row["columns"]),
    }
    return Layout.of_steps({"row": rows, "word": row["columns"]}, steps)
