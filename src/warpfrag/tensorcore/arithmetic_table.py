"""The arithmetic of each architecture's tensor cores as a table, with one row per group of instructions.

    >>> import warpfrag as wf
    >>> row = wf.arithmetic_table("sm_90").of("mma.m16n8k16.f32.f16.f16.f32")
    >>> row.products, row.fraction_bits, row.rounding
    (16, 25, 'toward zero, to f32')

The rows are derived from `arithmetic_plan`, so they have the steps and numbers that `execute` uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache

from warpfrag import html
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import able_architectures, forms
from warpfrag.isa.legality import form_of
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.targets import architectures, read_target
from warpfrag.tables import read_table
from warpfrag.tensorcore.arithmetic_plan import Plan, plan
from warpfrag.tensorcore.instruction import Instruction

ROUNDINGS = {
    "RZ-FP32": "toward zero, to f32",
    "RZ-E8M13": "toward zero, to 13 fraction bits of f32",
    "RNE-FP16": "to nearest even, to f16",
}
F64_ROUNDING = "to nearest even, or as .rz .rm .rp specify, after every product"
STEPS = {
    "read_c": "C is converted to {to}",
    "read_ab": "A and B are converted to {to}",
    "fused": "{places} in steps of up to {products} products, each {onto}",
    "scaled": "all products times their blocks' powers of two in one sum {onto}",
    "grouped": "groups of {group} products are summed exactly and scaled, then added in one sum {onto}",
    "add_c": "C is added last, rounded to nearest",
    "round_d": "the sum is rounded to nearest, to D's format",
    "chain_f32": "C + fma(a3, b3, fma(a2, b2, fma(a1, b1, fma(a0, b0, +0)))), each rounded to nearest f32",
    "chain_f16": "(C + fma(a1, b1, a0 * b0)) + fma(a3, b3, a2 * b2) in f32, then rounded to nearest f16",
    "fma_f64": "one fused multiply-add per product, k ascending",
    "integer": "exact, so in any order; wraps at 32 bits, or clamps once with .satfinite",
    "popcount": "exact: C plus the number of ones; wraps at 32 bits",
}
"""A description of each step in `tables/arithmetic_steps.toml`."""
ONTO = {"c": "added to C or to the sum so far", "zero": "added to the sum so far, which begins at 0"}
ONTO["previous"] = "added to the sum so far"
EXACT = "none: exact"
SHAPE = re.compile(r"m\d+n\d+k\d+")
MAX_SHAPES = 6  # the most shapes that a row lists
CHAIN_ROUNDING = "to nearest even, to f32, after every operation"


@dataclass(frozen=True)
class Reference:
    """A publication or document; `address` is a link to it."""

    key: str
    authors: str
    title: str
    year: int
    venue: str = ""
    section: str = ""
    doi: str = ""
    arxiv: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """The document's web address."""
        if self.doi:
            return f"https://doi.org/{self.doi}"
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else self.url

    def __str__(self) -> str:
        """Return the reference as a bibliography entry."""
        where = ", ".join(part for part in (self.venue, self.section) if part)
        return f"{self.authors}: {self.title}{f', {where}' if where else ''}, {self.year}. {self.address}".rstrip()

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        return {**{name: text for name, text in asdict(self).items() if text}, "address": self.address}


@dataclass(frozen=True)
class ArithmeticRow:
    """The arithmetic that a group of instructions shares on one architecture.

    At most `products` terms are added in one step, together with the sum so far; each term keeps `fraction_bits` bits
    below the largest exponent and is truncated there. Both are None if a sum is exact or is a chain of ordinary
    operations.
    """

    arch: str
    operation: str
    operands: tuple[str, ...]
    c: str
    d: str
    kind: str
    machine: str
    products: int | None
    fraction_bits: int | None
    rounding: str
    order: str
    subnormals: str
    nan: str
    level: str
    source: str
    references: tuple[str, ...]
    instructions: tuple[str, ...]

    @property
    def family(self) -> str:
        """The operation and the formats in short form."""
        kind = f" kind::{self.kind}" if self.kind else ""
        return f"{self.operation}{kind} {'/'.join(self.operands)} + {self.c} -> {self.d}"

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of the instructions."""
        found = (SHAPE.search(name) for name in self.instructions)
        return tuple(dict.fromkeys(match[0] for match in found if match))

    @property
    def step(self) -> str:
        """The products and fraction bits of a step in short form, such as 16/25, fma or exact."""
        if self.products is not None:
            return f"{self.products}/{self.fraction_bits}"
        return "exact" if self.rounding == EXACT else "fma"

    @property
    def citation(self) -> str:
        """A citation of the row, without the version: architecture, family, level of evidence and references."""
        known = f"{self.level}: {', '.join(self.references)}" if self.references else self.level
        return f'warpfrag, arithmetic_table("{self.arch}"), {self.family} ({known})'

    def __repr__(self) -> str:
        """Format the family, the architecture and the parameters of a step."""
        numbers = f"{self.products} products, {self.fraction_bits} bits, " if self.products else ""
        return f"<{self.family} on {self.arch}: {numbers}{self.rounding}>"

    def __str__(self) -> str:
        """Describe the row in sentences."""
        if self.products is None:
            numbers = f"rounding: {self.rounding}"
        else:
            numbers = (
                f"up to {self.products} products per step, {self.fraction_bits} fraction bits kept, {self.rounding}"
            )
        special = f"; subnormals {self.subnormals}; NaN {self.nan}" if self.nan != "none" else ""
        cited = f" ({', '.join(self.references)})" if self.references else ""
        shapes = self.shapes if len(self.shapes) <= MAX_SHAPES else (self.shapes[0], "...", self.shapes[-1])
        known = f"{self.level}: {self.source}{cited}"
        return f"{self.family}: {', '.join(shapes)}\n  {numbers}{special}\n  order: {self.order}\n  {known}"

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        return {"family": self.family, **asdict(self)}


@dataclass(frozen=True)
class ArithmeticTable:
    """The rows of one or all architectures; they print as text and display as a notebook card."""

    rows: tuple[ArithmeticRow, ...]
    not_modelled: tuple[str, ...]  # instructions whose arithmetic on these architectures is not published

    def __iter__(self) -> Iterator[ArithmeticRow]:
        """Iterate over the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> ArithmeticRow:
        """Return a row by its index."""
        return self.rows[index]

    def of(self, instruction: str | Instruction) -> ArithmeticRow:
        """Return an instruction's row on the first architecture that supports it; raise NotModelled if none does."""
        return self.every(instruction)[0]

    def every(self, instruction: str | Instruction) -> list[ArithmeticRow]:
        """Return an instruction's rows, one per architecture; raise NotModelled if there are none."""
        name = spell(form_of(instruction))
        rows = [row for row in self.rows if name in row.instructions]
        if rows:
            return rows
        archs = ", ".join(dict.fromkeys(row.arch for row in self.rows))
        raise NotModelled(f"{name} has no known arithmetic on {archs}")

    def __repr__(self) -> str:
        """Format the number of rows and their architectures."""
        archs = ", ".join(dict.fromkeys(row.arch for row in self.rows))
        return f"<rules of {archs}: {len(self.rows)} rows, {len(self.not_modelled)} instructions not modelled>"

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as tuples of text, in the order of `HEAD`."""
        return [
            (
                row.arch,
                row.family,
                "-" if row.products is None else str(row.products),
                "-" if row.fraction_bits is None else str(row.fraction_bits),
                row.rounding,
                row.order,
                row.level,
                ", ".join(row.references),
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        """Describe every row in sentences."""
        return "\n".join(map(str, self.rows))

    def overview(self) -> list[tuple[str, ...]]:
        """Return one table for all architectures: one row per family, with the step of each architecture.

        A step is products/fraction bits, fma or exact. If the instructions of a family differ, all steps are listed;
        "-" means that the instruction does not exist there or that its arithmetic is not published.
        """
        archs = [*dict.fromkeys(row.arch for row in self.rows)]
        steps: dict[str, dict[str, list[str]]] = {}
        for row in self.rows:
            for operand in row.operands:
                kind = f" kind::{row.kind}" if row.kind else ""
                family = f"{row.operation}{kind} {operand} + {row.c} -> {row.d}"
                steps.setdefault(family, {}).setdefault(row.arch, []).append(row.step)
        body = [
            (family, *(" ".join(dict.fromkeys(cells.get(arch, ["-"]))) for arch in archs))
            for family, cells in sorted(steps.items())
        ]
        return [("instructions", *archs), *body]

    def to_dict(self) -> dict[str, object]:
        """Return the rows, and the publications that they cite, as JSON-compatible values."""
        cited = {key for row in self.rows for key in row.references}
        return {
            "rows": [row.to_dict() for row in self.rows],
            "not_modelled": list(self.not_modelled),
            "references": {key: entry.to_dict() for key, entry in references().items() if key in cited},
        }

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        return html.card(f"<code>{html.escape(repr(self))}</code>", html.table(HEAD, self.cells()))


HEAD = ("arch", "instructions", "products per step", "fraction bits", "rounding", "order", "known", "references")


def arithmetic_table(arch: str | None = None) -> ArithmeticTable:
    """Return the arithmetic table of one architecture, or of all known architectures if `arch` is omitted.

    A row gives the number of products per step, the bits that a term keeps, the rounding of a step, the order of
    additions, the treatment of subnormals and NaNs, and the evidence: `level`, `source`, and `references` (keys of
    `references()`).
    """
    if arch is not None and not isinstance(arch, str):
        raise InvalidOperand(f"expected an architecture such as 'sm_90', got {quote(arch)}")
    names = architectures() if arch is None else (read_target(arch, f"arithmetic_table({quote(arch)})").arch,)
    tables = [_table_of(name) for name in names]
    return ArithmeticTable(
        tuple(row for table in tables for row in table.rows),
        tuple(dict.fromkeys(name for table in tables for name in table.not_modelled)),
    )


@cache
def references() -> Mapping[str, Reference]:
    """Return the publications that rows cite, by key."""
    fields = Reference.__dataclass_fields__
    rows = read_table("references")["reference"]
    return {row["key"]: Reference(**{name: row[name] for name in fields if name in row}) for row in rows}


@cache
def _table_of(arch: str) -> ArithmeticTable:
    groups: dict[tuple[object, ...], list[tuple[Form, Plan]]] = {}
    unknown: list[str] = []
    for form in forms():
        if form.operation.does != "multiply" or arch not in able_architectures(form):
            continue
        try:
            known = plan(form, arch)
        except NotModelled:
            unknown.append(spell(form))
            continue
        unit = known.unit and known.unit.unit
        numeric = "float" if FORMATS[form.a].is_float else "integer"
        key = (form.op, form.kind, form.c, form.d, numeric, unit, _order(known), known.level, known.source)
        groups.setdefault(key, []).append((form, known))
    return ArithmeticTable(tuple(_row(arch, members) for members in groups.values()), tuple(unknown))


def _row(arch: str, members: list[tuple[Form, Plan]]) -> ArithmeticRow:
    form, first = members[0]
    unit = first.unit
    return ArithmeticRow(
        arch=arch,
        operation=form.op,
        operands=tuple(dict.fromkeys(name for form, _ in members for name in (form.a, form.b))),
        c=form.c,
        d=form.d,
        kind=form.kind,
        machine=first.machine.split(".", maxsplit=1)[0],
        products=None if unit is None else unit.products,
        fraction_bits=None if unit is None else unit.fraction_bits,
        rounding=_rounding(form, first),
        order=_order(first),
        subnormals="kept" if FORMATS[form.a].is_float else "none",
        nan=_nan(form, first),
        level=first.level,
        source=first.source,
        references=_references(arch, form, first.source),
        instructions=tuple(spell(form) for form, _ in members),
    )


def _rounding(form: Form, plan: Plan) -> str:
    if plan.unit is not None:
        return ROUNDINGS[plan.unit.rounding]
    if form.a == "f64":
        return F64_ROUNDING
    return CHAIN_ROUNDING if FORMATS[form.a].is_float else EXACT


def _order(plan: Plan) -> str:
    """Return a description of the order of additions in a plan's steps."""
    unit, sentences = plan.unit, []
    for step in plan.steps:
        of, take = step.get("of"), step.get("take", 0)
        places = "k ascending" if of is None else _places(of, take)
        products = min(unit.products, step.get("at_most", unit.products)) if unit else 0
        group = unit.group if unit else 0
        words = {"places": places, "products": products, "group": group, "to": step.get("to", "")}
        sentences.append(STEPS[step["do"]].format(**words, onto=ONTO[step.get("onto", "c")]))
    return "; ".join(sentences)


def _places(of: int, take: int) -> str:
    """Return an example of the stored elements that a step adds."""
    chosen = [place for place in range(4 * of) if place // of % 2 == take]
    return f"elements {', '.join(map(str, chosen))}, ..."


def _nan(form: Form, plan: Plan) -> str:
    if plan.unit is not None:
        return f"{plan.unit.nan:#x}"
    if form.a == "f64":
        return "an operand's NaN, made quiet"
    return f"{FORMATS[form.d].canonical_nan:#x}" if FORMATS[form.a].is_float else "none"


def _references(arch: str, form: Form, source: str) -> tuple[str, ...]:
    keys = []
    for row in read_table("references")["reference"]:
        studies = row.get("studies", {"arch": (), "operands": ()})
        is_studied = arch in studies["arch"] and form.a in studies["operands"] and not form.operation.sparsity
        if is_studied or any(word in source for word in row.get("mentions", ())):
            keys.append(row["key"])
    return tuple(keys)
