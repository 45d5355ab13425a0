"""`warpfrag products`: what is multiplied and added for one element of D, and where it all sits."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NotRequired, TypedDict

import click

from warpfrag.cli.support.operand_view import Record, bits_text, operand_view
from warpfrag.cli.support.options import CHOICES, file_option, instruction_argument, integer, json_option, target_option
from warpfrag.cli.support.output import echo, print_heading, print_json, print_notes, print_table
from warpfrag.cli.support.verbs import verb
from warpfrag.errors import InvalidOperand
from warpfrag.layout.coordinates import check_index
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.tensorcore.instruction import Instruction


class ProductTerm(TypedDict):
    """One product: its k, and who holds the factors; of a sparse A, the possible k and the code that selects one."""

    k: int | None
    a: list[Record]
    b: NotRequired[list[Record]]
    stored: NotRequired[int]
    possible_k: NotRequired[list[int]]
    metadata: NotRequired[Record]


class ScalePair(TypedDict):
    """The scale factors of a range of k, and who holds them."""

    scale: int
    k_first: int
    k_last: int
    scale_a: list[Record]
    scale_b: list[Record]


class ElementProducts(TypedDict):
    """Everything that makes one element of D; of m8n8k4 with f16, in one of its four products."""

    mma: int | None
    d: list[Record]
    c: list[Record]
    terms: list[ProductTerm]
    scales: list[ScalePair]


@verb(
    "warpfrag products mma.m16n8k16.f32.f16.f16.f32 9 3",
    "warpfrag products mma.sp.m16n8k32.f32.f16.f16.f32 9 3 --selector 1",
    "warpfrag products mma.m8n8k4.row.col.f32.f16.f16.f32 0 5 --mma 2",
)
@instruction_argument
@click.argument("row", type=integer())
@click.argument("col", type=integer())
@click.option("--mma", type=integer(), metavar="N", help=CHOICES["mma"] + " Default: all.")
@click.option("--selector", type=integer(), metavar="N", help=CHOICES["selector"] + " Default: 0.")
@file_option("--codes", help_text="Metadata codes, rows by chunks: show which column of A each stored one is.")
@click.option("--byte-id", nargs=2, type=integer(), metavar="A B", help="Byte ids of the scales. Default: 0 0.")
@click.option("--thread-id", nargs=2, type=integer(), metavar="A B", help="Thread ids of the scales. Default: 0 0.")
@target_option
@json_option
def command(
    *,
    name: str,
    row: int,
    col: int,
    mma: int | None,
    selector: int | None,
    codes: str | None,
    byte_id: tuple[int, int] | None,
    thread_id: tuple[int, int] | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Which elements of A, B and C make D[ROW, COL], and in which lanes, registers and bits they are.

    For a sparse A: which stored columns, and where the metadata codes are that say what they stand for. With block
    scaling: which scale factors, and where.
    """
    instruction = get(name, target)
    if instruction.form.operation.scope == "block":
        msg = f"{instruction} has its operands in tensor and shared memory: `warpfrag where` finds an element of each"
        raise InvalidOperand(msg)
    if instruction.form.operation.does != "multiply":
        msg = f"{instruction} moves elements and multiplies none: products are for mma, mma.sp and wmma.mma"
        raise InvalidOperand(msg)
    check_index("row", row, instruction.shape.m)
    check_index("col", col, instruction.shape.n)
    _check_options(instruction, {"selector": selector, "codes": codes}, {"byte_id": byte_id, "thread_id": thread_id})
    columns = _read_columns(instruction, codes)
    ids = list(zip("ab", byte_id or (0, 0), thread_id or (0, 0), strict=True))
    results = []
    for choice in operand_view(instruction, "d").chosen({"mma": mma}):
        is_sparse = instruction.pattern is not None
        result: ElementProducts = {
            "mma": choice.get("mma"),
            "d": operand_view(instruction, "d").where([row, col], choice),
            "c": operand_view(instruction, "c").where([row, col], choice),
            "terms": _sparse_terms(instruction, row, col, selector or 0, columns)
            if is_sparse
            else _terms(instruction, row, col, choice),
            "scales": _scales(instruction, row, col, ids) if instruction.form.block_scale else [],
        }
        results.append(result)
    shared = [f"B lies in shared memory: `warpfrag where {instruction} b ROW COL` gives addresses"]
    in_memory = {role for role in "abcd" if instruction.operands[role].home == "shared"}
    by_role = (shared if role in in_memory else operand_view(instruction, role).notes for role in "abcd")
    known = list(dict.fromkeys(note for role_notes in by_role for note in role_notes))
    if as_json:
        asked = {"instruction": instruction.name, "row": row, "col": col}
        print_json("products", {**asked, "results": results, "notes": known})
        return
    for place, result in enumerate(results):
        if place:
            echo()
        number = f" of mma {result['mma']}" if result["mma"] is not None else ""
        print_heading(f"D[{row}, {col}]{number} of {instruction}")
        _print_products(result)
        if instruction.pattern and columns is None and instruction.b.home != "shared":
            _print_b(instruction, col)
    print_notes(known)


def _check_options(instruction: Instruction, sparse: dict[str, object], scaled: dict[str, object]) -> None:
    """Refuse options about metadata or scale factors that the instruction does not have."""
    groups = [(sparse, instruction.pattern, "a sparse A"), (scaled, instruction.form.block_scale, "block scaling")]
    unsupported = [
        (option, what)
        for options, supported, what in groups
        for option, value in options.items()
        if value is not None and not supported
    ]
    for option, what in unsupported:
        msg = f"--{option.replace('_', '-')} is for instructions with {what}, which {instruction} has not"
        raise InvalidOperand(msg)


def _read_columns(instruction: Instruction, codes: str | None) -> list[list[int]] | None:
    """The logical column of every stored element, by a file of metadata codes."""
    rule = instruction.pattern
    if codes is None or rule is None:
        return None
    from warpfrag.cli.support.matrix_files import read_codes
    from warpfrag.tensorcore.sparsity import logical_columns

    fields = read_codes(codes, instruction.metadata.format, instruction.metadata.shape, raw=True)
    return [list(map(int, line)) for line in logical_columns(rule, fields)]


def _terms(instruction: Instruction, row: int, col: int, choice: Record) -> list[ProductTerm]:
    """One product per k: A[row, k] and B[k, col]."""
    a = operand_view(instruction, "a")
    return [
        {"k": k, "a": a.where([row, k], choice), "b": _of_b(instruction, k, col, choice)}
        for k in range(instruction.shape.k)
    ]


def _of_b(instruction: Instruction, k: int, col: int, choice: Record) -> list[Record]:
    """Who holds an element of B; of one in shared memory only its coordinates are known."""
    if instruction.b.home == "shared":
        return [{"row": k, "col": col}]
    return operand_view(instruction, "b").where([k, col], choice)


def _sparse_terms(
    instruction: Instruction, row: int, col: int, selector: int, columns: list[list[int]] | None
) -> list[ProductTerm]:
    """One product per stored column: the logical columns it may be, or is, and the metadata code that selects them."""
    rule = instruction.pattern
    if rule is None:
        return []
    a, metadata = (operand_view(instruction, role) for role in ("a", "metadata"))
    legal = rule.columns.values()
    terms = []
    for stored in range(instruction.shape.k // 2):
        chunk, order = divmod(stored, rule.kept)
        possible = sorted({chunk * rule.chunk + kept[order] for kept in legal})
        (code,) = metadata.where([row, chunk], {"selector": selector})
        exact = columns[row][stored] if columns else None
        term: ProductTerm = {
            "stored": stored,
            "k": exact,
            "possible_k": possible if exact is None else [exact],
            "a": a.where([row, stored], {}),
            "metadata": code,
        }
        if exact is not None:
            term["b"] = _of_b(instruction, exact, col, {})
        terms.append(term)
    return terms


def _scales(instruction: Instruction, row: int, col: int, ids: list[tuple[str, int, int]]) -> list[ScalePair]:
    """The scale factors of A's row and B's column, and which k each is for."""
    a, b = operand_view(instruction, "scale_a"), operand_view(instruction, "scale_b")
    count = a.layout.outs["scale"]
    each = instruction.shape.k // count
    choices = {side: {"byte_id": byte_id, "thread_id": thread_id} for side, byte_id, thread_id in ids}
    return [
        {
            "scale": scale,
            "k_first": scale * each,
            "k_last": (scale + 1) * each - 1,
            "scale_a": a.where([row, scale], choices["a"]),
            "scale_b": b.where([scale, col], choices["b"]),
        }
        for scale in range(count)
    ]


def _place(role: str, holders: list[Record]) -> list[object]:
    """The holder that the hardware reads, as cells of a table."""
    first = holders[0]
    if "lane" not in first:
        return [f"{role.upper()}[{first['row']}, {first['col']}]"]
    thread = f"{first['warp']}.{first['lane']}" if "warp" in first else first["lane"]
    return [thread, first["reg"], bits_text(first), f"{role}{first['element']}"]


def _print_products(result: ElementProducts) -> None:
    """The result as tables: D and C, the products, the scales."""
    thread = "warp.lane" if "warp" in result["d"][0] else "lane"
    place = [thread, "reg", "bits", "element"]
    print_table(["", *place], [["D", *_place("d", result["d"])], ["C", *_place("c", result["c"])]])
    echo()
    terms = result["terms"]
    is_sparse = "metadata" in terms[0]
    header = [
        "k",
        *(["stored"] if is_sparse else []),
        f"A {thread}",
        *place[1:],
        *([f"code {thread}", "bits"] if is_sparse else []),
    ]
    in_registers = "lane" in terms[0].get("b", [{}])[0]
    header += [] if "b" not in terms[0] else [f"B {thread}", *place[1:]] if in_registers else ["B"]
    lines = []
    for term in terms:
        line: list[object] = [term["k"] if term["k"] is not None else "|".join(map(str, term.get("possible_k", [])))]
        line += [term["stored"]] if is_sparse else []
        line += _place("a", term["a"])
        line += [_place("", [term["metadata"]])[0], bits_text(term["metadata"])] if is_sparse else []
        line += _place("b", term["b"]) if "b" in term else []
        lines.append(line)
    print_table(header, lines)
    if result["scales"]:
        echo()
        scales = []
        for scale in result["scales"]:
            (a,), (b,) = scale["scale_a"], scale["scale_b"]
            scales.append([f"{scale['k_first']}..{scale['k_last']}", a["lane"], bits_text(a), b["lane"], bits_text(b)])
        print_table(["k", "scale_a lane", "bits", "scale_b lane", "bits"], scales)


def _print_b(instruction: Instruction, col: int) -> None:
    """The column of B, of which the metadata chooses."""
    b = operand_view(instruction, "b")
    half = instruction.shape.k // 2
    lines = [[k, *_place("b", b.where([k, col], {}))] for k in range(instruction.shape.k)]
    header = ["k", "B lane", "reg", "bits", "element"]
    echo()
    print_table([*header, *header], [[*left, *right] for left, right in zip_longest(lines[:half], lines[half:])])
