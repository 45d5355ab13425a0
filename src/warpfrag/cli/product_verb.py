"""`warpfrag products`: the terms that are multiplied and added for one element of D, and where they are."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

from warpfrag.cli.support.arguments import Arch, ElementChoice, File, InstructionName
from warpfrag.cli.support.operand_view import Record, bits_text, operand_view
from warpfrag.cli.support.output import echo, print_heading, print_notes, print_table
from warpfrag.cli.support.verbs import Answer, verb
from warpfrag.errors import InvalidOperand, check_index
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get


class ProductTerm(NamedTuple):
    """One product of A and B.

    k: column of A and row of B; null if only metadata can tell
    a: holders of A's element
    b: holders of B's element; null if only metadata can tell
    stored: stored column of a sparse A
    possible_k: values that k can have
    metadata: the holder of the code
    """

    k: int | None
    a: list[Record]
    b: list[Record] | None
    stored: int | None = None
    possible_k: list[int] | None = None
    metadata: Record | None = None


class ScalePair(NamedTuple):
    """The scale factors of a range of k.

    scale: number of the block
    k_first: first k of the block
    k_last: last k
    scale_a: holders of A's factor
    scale_b: holders of B's factor
    """

    scale: int
    k_first: int
    k_last: int
    scale_a: list[Record]
    scale_b: list[Record]


class ElementTerms(NamedTuple):
    """Everything that makes one element of D.

    mma: which of the four multiplications of m8n8k4
    d: holders of D's element
    c: holders of C's element
    terms: one for each product
    scales: with block scaling
    """

    mma: int | None
    d: list[Record]
    c: list[Record]
    terms: list[ProductTerm]
    scales: list[ScalePair]


class ElementProducts(NamedTuple):
    """The terms of one element of D.

    instruction: canonical name
    results: one; four for m8n8k4 with f16, unless --mma chooses
    notes: notes on the answer
    """

    instruction: str
    row: int
    col: int
    results: list[ElementTerms]
    notes: list[str]


@verb(
    "warpfrag products mma.m16n8k16.f32.f16.f16.f32 9 3",
    "warpfrag products mma.sp.m16n8k32.f32.f16.f16.f32 9 3 --selector 1",
    "warpfrag products mma.m8n8k4.row.col.f32.f16.f16.f32 0 5 --mma 2",
)
def products(
    instruction: InstructionName,
    row: int,
    col: int,
    *,
    mma: int | None = None,
    selector: int | None = None,
    codes: File | None = None,
    byte_id: tuple[int, int] | None = None,
    thread_id: tuple[int, int] | None = None,
    arch: Arch | None = None,
) -> Answer[ElementProducts]:
    """List the elements of A, B and C that make D[ROW, COL], with their lanes, registers and bits.

    For a sparse A: the stored columns, and the metadata codes that say which columns they are. With block scaling: the
    scale factors.

    Options:
        mma: Which of the four multiplications of m8n8k4 with f16; default: all.
        selector: The sparsity selector; default: 0.
        codes: Metadata codes, rows by chunks: show the column of A that each stored one is.
        byte_id (A B): Byte ids of the scales; default: 0 0.
        thread_id (A B): Thread ids of the scales; default: 0 0.
    """
    resolved = get(instruction, arch)
    if resolved.form.operation.scope == "block":
        raise InvalidOperand(
            f"{resolved} has its operands in tensor and shared memory: `warpfrag where` finds an element of each"
        )
    if resolved.form.operation.does != "multiply":
        raise InvalidOperand(
            f"{resolved} moves elements and multiplies none: products are for mma, mma.sp and wmma.mma"
        )
    check_index("row", row, resolved.shape.m)
    check_index("col", col, resolved.shape.n)
    _check_options(resolved, {"selector": selector, "codes": codes}, {"byte_id": byte_id, "thread_id": thread_id})
    columns = _read_columns(resolved, codes)
    ids = list(zip("ab", byte_id or (0, 0), thread_id or (0, 0), strict=True))
    d, c = operand_view(resolved, "d"), operand_view(resolved, "c")
    results = [
        ElementTerms(
            choice.mma,
            d.where([row, col], choice),
            c.where([row, col], choice),
            _terms(resolved, row, col, choice)
            if resolved.pattern is None
            else _sparse_terms(resolved, row, col, selector or 0, columns),
            _scales(resolved, row, col, ids) if resolved.form.block_scale else [],
        )
        for choice in (ElementChoice(**chosen) for chosen in d.chosen(ElementChoice(mma)))
    ]
    shared = [f"B is in shared memory: `warpfrag where {resolved} b ROW COL` shows addresses"]
    in_memory = {role for role in "abcd" if resolved.operands[role].storage == "shared"}
    by_role = (shared if role in in_memory else operand_view(resolved, role).notes for role in "abcd")
    notes = list(dict.fromkeys(note for role_notes in by_role for note in role_notes))

    def show() -> None:
        for number, result in enumerate(results):
            if number:
                echo()
            which = f" of mma {result.mma}" if result.mma is not None else ""
            print_heading(f"D[{row}, {col}]{which} of {resolved}")
            _print_terms(result)
            if resolved.pattern and columns is None and resolved.b.storage != "shared":
                _print_b(resolved, col)
        print_notes(notes)

    return Answer(ElementProducts(resolved.name, row, col, results, notes), show)


def _check_options(instruction: Instruction, sparse: dict[str, object], scaled: dict[str, object]) -> None:
    """Reject options about metadata or scale factors that the instruction does not have."""
    groups = [(sparse, instruction.pattern, "a sparse A"), (scaled, instruction.form.block_scale, "block scaling")]
    for options, is_supported, feature in groups:
        given = [name for name, value in options.items() if value is not None and not is_supported]
        if given:
            raise InvalidOperand(
                f"--{given[0].replace('_', '-')} is for instructions with {feature}, which {instruction} does not have"
            )


def _read_columns(instruction: Instruction, codes: str | None) -> list[list[int]] | None:
    """Return the logical column of every stored element, from a file of metadata codes."""
    rule = instruction.pattern
    if codes is None or rule is None:
        return None
    from warpfrag.cli.support.matrix_files import read_codes
    from warpfrag.tensorcore.sparsity import logical_columns

    fields = read_codes(codes, instruction.metadata.format, instruction.metadata.shape, raw=True)
    return [list(map(int, line)) for line in logical_columns(rule, fields)]


def _terms(instruction: Instruction, row: int, col: int, choice: ElementChoice) -> list[ProductTerm]:
    """Return one term per k: A[row, k] and B[k, col]."""
    a = operand_view(instruction, "a")
    return [
        ProductTerm(k, a.where([row, k], choice), _holders_of_b(instruction, k, col, choice))
        for k in range(instruction.shape.k)
    ]


def _holders_of_b(instruction: Instruction, k: int, col: int, choice: ElementChoice) -> list[Record]:
    """Return the holders of an element of B; in shared memory, only its coordinates are known."""
    if instruction.b.storage == "shared":
        return [{"row": k, "col": col}]
    return operand_view(instruction, "b").where([k, col], choice)


def _sparse_terms(
    instruction: Instruction, row: int, col: int, selector: int, columns: list[list[int]] | None
) -> list[ProductTerm]:
    """Return one term per stored column, with its possible logical columns and their metadata code."""
    rule = instruction.pattern
    if rule is None:
        return []
    a, metadata = (operand_view(instruction, role) for role in ("a", "metadata"))
    legal = rule.columns.values()
    terms = []
    for stored in range(instruction.shape.k // 2):
        chunk, order = divmod(stored, rule.kept)
        possible = sorted({chunk * rule.chunk + kept[order] for kept in legal})
        (code,) = metadata.where([row, chunk], ElementChoice(selector=selector))
        exact = columns[row][stored] if columns else None
        b = None if exact is None else _holders_of_b(instruction, exact, col, ElementChoice())
        possible = possible if exact is None else [exact]
        terms.append(ProductTerm(exact, a.where([row, stored]), b, stored, possible, code))
    return terms


def _scales(instruction: Instruction, row: int, col: int, ids: list[tuple[str, int, int]]) -> list[ScalePair]:
    """Return the scale factors of A's row and B's column, and the k of each."""
    a, b = operand_view(instruction, "scale_a"), operand_view(instruction, "scale_b")
    count = a.layout.outs["scale"]
    each = instruction.shape.k // count
    choices = {side: ElementChoice(byte_id=byte_id, thread_id=thread_id) for side, byte_id, thread_id in ids}
    return [
        ScalePair(
            scale,
            scale * each,
            (scale + 1) * each - 1,
            a.where([row, scale], choices["a"]),
            b.where([scale, col], choices["b"]),
        )
        for scale in range(count)
    ]


def _cells(role: str, holders: list[Record]) -> list[object]:
    """Return the holder that the hardware reads, as table cells."""
    first = holders[0]
    if "lane" not in first:
        return [f"{role.upper()}[{first['row']}, {first['col']}]"]
    thread = f"{first['warp']}.{first['lane']}" if "warp" in first else first["lane"]
    return [thread, first["reg"], bits_text(first), f"{role}{first['element']}"]


def _print_terms(result: ElementTerms) -> None:
    """Print tables of D and C, the terms, and the scales."""
    thread = "warp.lane" if "warp" in result.d[0] else "lane"
    place = [thread, "reg", "bits", "element"]
    print_table(["", *place], [["D", *_cells("d", result.d)], ["C", *_cells("c", result.c)]])
    echo()
    first = result.terms[0]
    is_sparse = first.metadata is not None
    header = ["k", *["stored"] * is_sparse, f"A {thread}", *place[1:], *[f"code {thread}", "bits"] * is_sparse]
    if first.b is not None:
        header += [f"B {thread}", *place[1:]] if "lane" in first.b[0] else ["B"]
    lines = []
    for term in result.terms:
        line: list[object] = [term.k if term.k is not None else "|".join(map(str, term.possible_k or []))]
        line += [term.stored] if is_sparse else []
        line += _cells("a", term.a)
        line += [_cells("", [term.metadata])[0], bits_text(term.metadata)] if term.metadata is not None else []
        line += _cells("b", term.b) if term.b is not None else []
        lines.append(line)
    print_table(header, lines)
    if result.scales:
        echo()
        scales = [(f"{each.k_first}..{each.k_last}", (*each.scale_a, *each.scale_b)) for each in result.scales]
        rows = [[span, a["lane"], bits_text(a), b["lane"], bits_text(b)] for span, (a, b) in scales]
        print_table(["k", "scale_a lane", "bits", "scale_b lane", "bits"], rows)


def _print_b(instruction: Instruction, col: int) -> None:
    """Print the column of B from which the metadata selects."""
    b = operand_view(instruction, "b")
    half = instruction.shape.k // 2
    lines = [[k, *_cells("b", b.where([k, col]))] for k in range(instruction.shape.k)]
    header = ["k", "B lane", "reg", "bits", "element"]
    echo()
    print_table([*header, *header], [[*left, *right] for left, right in zip_longest(lines[:half], lines[half:])])
