"""The rows of the instruction set: families, and the forms of each family.

A *family* is one row of `tables/instructions.toml`: lists of types, kinds and layouts. A *form* is one
instruction: one choice from each list. `forms()` expands the families.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

from warpfrag.formats.number_formats import FormatAlias
from warpfrag.grouping import grouped
from warpfrag.isa.operations import OPS
from warpfrag.isa.qualifiers import QUALIFIERS, Form
from warpfrag.isa.targets import architectures, targets
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.tables import read_table

WIDTHS = re.compile(r"(m\d+n)(\d+)\.\.(\d+)(?:/(\d+))?(k\d+)")
SAME_AS = {"b": "a", "c": "d"}  # by default, B has the type of A, and C that of D
ROLES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Family:
    """A row of the instruction table; `qualifiers` contains its lists. The head of the table explains the fields."""

    source: str
    ops: tuple[str, ...]
    qualifiers: dict[str, tuple[Any, ...]] = field(hash=False)
    since: int = 0
    needs: str = ""
    holes: tuple[dict[str, list[str]], ...] = ()
    scale_vec_optional: bool = False
    sparsity: str = ""
    metadata: str = ""
    selectors: int = 0
    traps: tuple[int, ...] = ()
    layout: str = ""

    def __post_init__(self) -> None:
        """Raise an error unless the row has a first target or a required feature."""
        if bool(self.since) == bool(self.needs):
            shapes = " ".join(map(str, self.qualifiers["shape"]))
            raise ValueError(f"family {self.ops[0]} {shapes}: expected either since or needs")

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets whose assembler accepts this family."""
        return tuple(
            name
            for name, target in targets().items()
            if (self.needs in target.features if self.needs else target.generation >= self.since)
        )

    def choices(self, qualifier: str) -> tuple[Any, ...]:
        """Return the choices for a qualifier."""
        if qualifier in SAME_AS and qualifier not in self.qualifiers:
            return self.choices(SAME_AS[qualifier])
        return self.qualifiers.get(qualifier, (QUALIFIERS[qualifier].absent,))

    def forms(self, op: str) -> Iterator[Form]:
        """Yield the form of every legal combination of the lists, for one of the family's operations."""
        operation = OPS[op]
        unsaid = [each for each in SAME_AS if each in operation.roles and each not in self.qualifiers]
        for choice in product(*self.qualifiers.values()):
            qualifiers = dict(zip(self.qualifiers, choice, strict=True))
            for qualifier in unsaid:
                qualifiers[qualifier] = qualifiers[SAME_AS[qualifier]]
            if not any(all(qualifiers[qualifier] in types for qualifier, types in hole.items()) for hole in self.holes):
                yield Form(op=op, space=operation.usual_space, **qualifiers)


def _family(source: str, op: str, row: dict[str, Any]) -> Family:
    """Return the family of a row, with its entries divided into qualifiers and facts."""
    qualifiers = {name: _choices(name, row[name]) for name in Form.__dataclass_fields__ if name in row}
    facts = {name: tuple(row[name]) if isinstance(row[name], list) else row[name] for name in row.keys() - qualifiers}
    return Family(source=source, qualifiers=qualifiers, **({"ops": (op,)} | facts))


def _choices(name: str, entry: Any) -> tuple[Any, ...]:  # noqa: ANN401 (an entry of a TOML table)
    """Return an entry of a row as a list of choices; `true` stands for all of them."""
    if entry is True:
        return QUALIFIERS[name].choices
    listed = entry if isinstance(entry, list) else [entry]
    if name in ("shape", "layouts"):  # a text may contain several numbers or qualifiers
        texts = [text for entry in listed for text in _widths(entry)] if name == "shape" else listed
        return tuple(QUALIFIERS[name].read(tuple(text.split("."))) for text in texts)
    return tuple(listed)


def _widths(text: str) -> list[str]:
    """Return the shapes that a table entry abbreviates: m64n8..24k32 means n = 8, 16 and 24."""
    match = WIDTHS.fullmatch(text)
    if match is None:
        return [text]
    before, first, last, step, after = match.groups(default="8")
    return [f"{before}{n}{after}" for n in range(int(first), int(last) + 1, int(step))]


def _memory_families(made: Family) -> Iterator[Family]:
    """Yield the wmma.load and wmma.store families for all operands of a wmma.mma."""

    def family(op: str, layouts: set[str]) -> Family:
        role = op[-1]
        qualifiers = {
            "shape": made.choices("shape"),
            "layouts": tuple((qualifier,) for qualifier in ("row", "col") if qualifier in layouts),
            role: made.choices(role),
        }
        return Family(made.source, (op,), qualifiers, since=made.since)

    yield family("wmma.load.a", {pair[0] for pair in made.choices("layouts")})
    yield family("wmma.load.b", {pair[1] for pair in made.choices("layouts")})
    yield family("wmma.load.c", {"row", "col"})
    yield family("wmma.store.d", {"row", "col"})


@cache
def families() -> tuple[Family, ...]:
    """Return every family, in the order of the table."""
    result = []
    for op, table in read_table("instructions").items():
        rows = [_family(table["source"], op, table.get("defaults", {}) | row) for row in table["families"]]
        result += rows
        if op == "wmma.mma":
            result += [memory for row in rows for memory in _memory_families(row)]
    return tuple(result)


@cache
def _forms_in(number: int, op: str) -> tuple[Form, ...]:
    """Return the forms of a family, given by its number in the table, for an operation."""
    return tuple(families()[number].forms(op))


@cache
def forms_of(op: str) -> dict[Form, tuple[Family, ...]]:
    """Return the listed forms of an operation with their families; a wmma.load may belong to several families."""
    able = [(number, family) for number, family in enumerate(families()) if op in family.ops]
    by_form = grouped((form, family) for number, family in able for form in _forms_in(number, op))
    return {form: tuple(rows) for form, rows in by_form.items()}


@cache
def forms(first: str = "") -> dict[Form, tuple[Family, ...]]:
    """Return every form with its families, in table order; with `first`, only forms whose names begin with it."""
    pairs = [
        (number, op)
        for number, family in enumerate(families())
        for op in family.ops
        if first in ("", op.partition(".")[0])
    ]
    return {form: forms_of(op)[form] for number, op in pairs for form in _forms_in(number, op)}


@cache
def forms_on(target: str) -> dict[Form, None]:
    """Return the forms that the assembler accepts for a target, as dictionary keys in table order."""
    accepted = [(number, family) for number, family in enumerate(families()) if target in family.targets]
    return dict.fromkeys(form for number, family in accepted for op in family.ops for form in _forms_in(number, op))


@cache
def in_space(form: Form, space: str) -> Form:
    """Return the form with another state space; equal calls return the same object, so that caches work."""
    return replace(form, space=space)


def families_of(form: Form) -> tuple[Family, ...]:
    """Return the families of a form, regardless of its state space."""
    return (_tensor_family(form),) if isinstance(form, TensorForm) else forms_of(form.op)[form.listed]


@cache
def _tensor_family(form: TensorForm) -> Family:
    """Return the family of a tcgen05 form, with its sparsity pattern."""
    source = read_table("tcgen05")["source"]
    if not (form.is_typed and form.is_sparse):
        return Family(source, (form.op,), {}, needs="tcgen05")
    row = "rows_share_a_word" if form.kind in ("f16", "tf32") else "a_word_per_row"
    pattern = {"tf32": "1:2", "mxf4": "4:8", "mxf4nvf4": "4:8"}.get(form.kind, "2:4")
    selectors = 2 if row == "rows_share_a_word" else 1
    return Family(source, (form.op,), {}, needs="tcgen05", sparsity=pattern, metadata=row, selectors=selectors)


def legal_targets(form: Form) -> tuple[str, ...]:
    """Return the targets for which the assembler accepts a form."""
    if isinstance(form, TensorForm):
        return form.targets
    rows = families_of(form)
    if len(rows) == 1:
        return rows[0].targets
    return tuple(name for name in targets() if any(name in row.targets for row in rows))


def able_architectures(form: Form) -> tuple[str, ...]:
    """Return the architectures with at least one target that supports a form, oldest first."""
    able = {targets()[target].arch for target in legal_targets(form)}
    return tuple(arch for arch in architectures() if arch in able)


def running_target(form: Form, arch: str) -> str:
    """Return `arch` if a form is legal on it, else the first target that has its arithmetic and accepts the form.

    >>> from warpfrag.isa.legality import resolve
    >>> form = resolve("wgmma.m64n8k16.f32.f16.f16")
    >>> running_target(form, "sm_90"), running_target(form, "sm_90a")
    ('sm_90a', 'sm_90a')
    """
    legal = legal_targets(form)
    return arch if arch in legal else next((name for name in legal if targets()[name].arch == arch), arch)


def is_legal(form: Form, target: str) -> bool:
    """Return True if the assembler accepts a form for a target."""
    return target in form.targets if isinstance(form, TensorForm) else form.listed in forms_on(target)


def fits(row: Mapping[str, Any], form: Form) -> bool:
    """Return True if every field of a form is in the corresponding list of a row; other entries are ignored."""
    return all(str(getattr(form, name)) in values for name, values in row.items() if isinstance(values, list))


def has_elements(form: Form, role: str, alias: FormatAlias) -> bool:
    """Return True if an operand of a form has the element types that an alias stands for."""
    return getattr(form, role) in alias.types and fits(alias.lists, form)
