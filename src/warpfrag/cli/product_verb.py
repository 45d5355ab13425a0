"""`warpfrag products`: list the terms of one element of D, and their registers."""

from __future__ import annotations

from typing import NamedTuple

from warpfrag.cli.io.arguments import Arch, ElementChoice, InstructionName
from warpfrag.cli.io.operand_view import OperandView, Record, bits_text, operand_view
from warpfrag.cli.io.output import echo, print_heading, print_notes, print_table
from warpfrag.cli.io.verbs import Answer, verb
from warpfrag.errors import InvalidOperand, check_index
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get


class ProductTerm(NamedTuple):
    """The product of an element of A and an element of B.

    k: column of A and row of B; null for a sparse A, because its metadata selects k
    a: holders of A's element
    b: holders of B's element; null for a sparse A
    stored: stored column of a sparse A
    possible_k: values that k can have for a sparse A
    metadata: the holder of the metadata code
    """

    k: int | None
    a: list[Record]
    b: list[Record] | None
    stored: int | None = None
    possible_k: list[int] | None = None
    metadata: Record | None = None


class ScalePair(NamedTuple):
    """The scale factors of a range of k.

    scale: index of the block
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
    """All contributions to one element of D.

    mma: index of one of the four matrix multiplications of m8n8k4
    d: holders of D's element
    c: holders of C's element
    terms: one for each product
    scales: the scale factors, with block scaling
    """

    mma: int | None
    d: list[Record]
    c: list[Record]
    terms: list[ProductTerm]
    scales: list[ScalePair]


class ElementProducts(NamedTuple):
    """The terms of one element of D.

    instruction: canonical name
    results: one; four for m8n8k4 with f16, unless --mma selects one
    notes: notes on the answer
    """

    instruction: str
    row: int
    col: int
    results: list[ElementTerms]
    notes: list[str]


@verb
def products(
    instruction: InstructionName,
    row: int,
    col: int,
    *,
    mma: int | None = None,
    selector: int | None = None,
    arch: Arch | None = None,
) -> Answer[ElementProducts]:
    """List the elements of A, B and C that contribute to D[ROW, COL], with their lanes, registers and bits.

    For a sparse A, list the stored columns, and the metadata codes that select the logical columns. With block scaling,
    list the scale factors for byte id 0 and thread id 0.

    Options:
        mma: The index of one of the four matrix multiplications of m8n8k4 with f16; default: all.
        selector: The sparsity selector; default: 0.

    For example:
        warpfrag products mma.m16n8k16.f32.f16.f16.f32 9 3
        warpfrag products mma.sp.m16n8k32.f32.f16.f16.f32 9 3 --selector 1
        warpfrag products mma.m8n8k4.row.col.f32.f16.f16.f32 0 5 --mma 2
    """
    resolved = get(instruction, arch)
    operation = resolved.form.operation
    if operation.does != "multiply" or operation.scope == "block":
        raise InvalidOperand(
            f"products applies to mma, mma.sp, wmma.mma and wgmma, not to {resolved}; `warpfrag where` finds an element"
        )
    check_index("row", row, resolved.shape.m)
    check_index("col", col, resolved.shape.n)
    if selector is not None and resolved.pattern is None:
        raise InvalidOperand(f"--selector applies to instructions with a sparse A, not to {resolved}")
    terms = ElementOperands(resolved, row, col)
    chosen = terms.views["d"].chosen(ElementChoice(mma))
    results = [terms.of(ElementChoice(**choice), selector or 0) for choice in chosen]
    notes = [note for role in "abcd" if role in terms.views for note in terms.views[role].notes]
    if "b" not in terms.views:
        notes.append(f"B is in shared memory: `warpfrag where {resolved} b ROW COL` shows addresses")
    elif resolved.pattern is not None:
        notes.append(f"the metadata selects k: `warpfrag where {resolved} b K {col}` shows the element of B")
    notes = list(dict.fromkeys(notes))

    def show() -> None:
        for number, result in enumerate(results):
            if number:
                echo()
            which = f" of mma {result.mma}" if result.mma is not None else ""
            print_heading(f"D[{row}, {col}]{which} of {resolved}")
            _print_terms(result)
        print_notes(notes)

    return Answer(ElementProducts(resolved.name, row, col, results, notes), show)


class ElementOperands:
    """The operands that contribute to one element of D."""

    def __init__(self, instruction: Instruction, row: int, col: int) -> None:
        """Look up every operand that is in registers."""
        self.instruction, self.row, self.col = instruction, row, col
        self.views: dict[str, OperandView] = {
            role: operand_view(instruction, role)
            for role, operand in instruction.operands.items()
            if operand.storage != "shared"
        }

    def of(self, choice: ElementChoice, selector: int) -> ElementTerms:
        """Return the terms of the element in one of the instruction's matrix multiplications."""
        d, c = (self.views[role].where([self.row, self.col], choice) for role in "dc")
        rule = self.instruction.pattern
        terms = self._terms(choice) if rule is None else self._sparse_terms(rule, selector)
        return ElementTerms(choice.mma, d, c, terms, self._scales() if self.instruction.form.block_scale else [])

    def _terms(self, choice: ElementChoice) -> list[ProductTerm]:
        """Return one term per k: A[row, k] and B[k, col]; an element in shared memory has only its coordinates."""
        a, b, row, col = self.views["a"], self.views.get("b"), self.row, self.col
        return [
            ProductTerm(k, a.where([row, k], choice), b.where([k, col], choice) if b else [{"row": k, "col": col}])
            for k in range(self.instruction.shape.k)
        ]

    def _sparse_terms(self, rule: Pattern, selector: int) -> list[ProductTerm]:
        """Return one term per stored column, with the logical columns that its metadata code can select."""
        terms: list[ProductTerm] = []
        for stored in range(self.instruction.shape.k // 2):
            chunk, order = divmod(stored, rule.kept)
            possible = sorted({chunk * rule.chunk + kept[order] for kept in rule.columns.values()})
            (code,) = self.views["metadata"].where([self.row, chunk], ElementChoice(selector=selector))
            terms.append(ProductTerm(None, self.views["a"].where([self.row, stored]), None, stored, possible, code))
        return terms

    def _scales(self) -> list[ScalePair]:
        """Return the scale factors of A's row and B's column, each with its range of k."""
        a, b, row, col = self.views["scale_a"], self.views["scale_b"], self.row, self.col
        count = a.layout.outs["scale"]
        each, first = self.instruction.shape.k // count, ElementChoice(byte_id=0, thread_id=0)
        return [
            ScalePair(at, at * each, (at + 1) * each - 1, a.where([row, at], first), b.where([at, col], first))
            for at in range(count)
        ]


def _cells(role: str, holders: list[Record]) -> list[object]:
    """Return table cells for the holder that the hardware reads."""
    first = holders[0]
    if "lane" not in first:
        return [f"{role.upper()}[{first['row']}, {first['col']}]"]
    thread = f"{first['warp']}.{first['lane']}" if "warp" in first else first["lane"]
    return [thread, first["reg"], bits_text(first), f"{role}{first['element']}"]


def _print_terms(result: ElementTerms) -> None:
    """Print tables of D and C, the terms, and the scales."""
    thread = "warp.lane" if "warp" in result.d[0] else "lane"
    columns = [thread, "reg", "bits", "element"]
    print_table(["", *columns], [["D", *_cells("d", result.d)], ["C", *_cells("c", result.c)]])
    echo()
    first = result.terms[0]
    if first.b is None:
        header = ["k", "stored", f"A {thread}", *columns[1:], f"code {thread}", "bits"]
    else:
        header = ["k", f"A {thread}", *columns[1:]]
        header += [f"B {thread}", *columns[1:]] if "lane" in first.b[0] else ["B"]
    lines: list[list[object]] = []
    for term in result.terms:
        if term.b is not None:
            lines.append([term.k, *_cells("a", term.a), *_cells("b", term.b)])
        elif term.metadata is not None:
            possible, code = "|".join(map(str, term.possible_k or [])), term.metadata
            lines.append([possible, term.stored, *_cells("a", term.a), _cells("", [code])[0], bits_text(code)])
    print_table(header, lines)
    if result.scales:
        echo()
        scales = [(f"{each.k_first}..{each.k_last}", (*each.scale_a, *each.scale_b)) for each in result.scales]
        rows = [[span, a["lane"], bits_text(a), b["lane"], bits_text(b)] for span, (a, b) in scales]
        print_table(["k", "scale_a lane", "bits", "scale_b lane", "bits"], rows)
