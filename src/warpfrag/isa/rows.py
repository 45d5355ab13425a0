"""The rows of the instruction set: targets, families, and the forms a family stands for.

A *family* is one row of `tables/instructions.toml`: lists of types, kinds and layouts. A *form* is one
instruction: one choice from each list. `forms()` multiplies the families out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from warpfrag.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPE = re.compile(r"m([1-9][0-9]{0,3})n([1-9][0-9]{0,3})(?:k([1-9][0-9]{0,3}))?")
ROUNDINGS = ("", "rz", "rm", "rp")  # "" is round to nearest even, PTX's default: .rn says the same


class Shape(NamedTuple):
    """Extents of the product: A is m x k, B is k x n, D is m x n. Movers have no k."""

    m: int
    n: int
    k: int = 0

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read `m16n8k16` or `m8n8`."""
        found = SHAPE.fullmatch(text)
        if found is None:
            msg = f"shape {text!r}: expected something like m16n8k16"
            raise ValueError(msg)
        return cls(*(int(extent) for extent in found.groups(default="0")))

    def __str__(self) -> str:
        """As PTX spells it."""
        return f"m{self.m}n{self.n}" + (f"k{self.k}" if self.k else "")


class Target(NamedTuple):
    """What the assembler calls a GPU; the fields are explained at the top of the table."""

    name: str
    generation: int
    arch: str
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Form:
    """One instruction, as plain words. Words that do not apply are empty."""

    op: str
    shape: Shape
    layouts: tuple[str, ...] = ()
    kind: str = ""
    d: str = ""
    a: str = ""
    b: str = ""
    c: str = ""
    satfinite: bool = False
    scale_vec: str = ""
    scale_type: str = ""
    bitop: str = ""
    rounding: str = ""
    num: int = 0
    trans: bool = False
    memory: str = ""

    @property
    def is_sparse(self) -> bool:
        """Whether A is stored without its zeros."""
        return self.op.startswith("mma.sp")

    @property
    def is_ordered(self) -> bool:
        """Whether the metadata positions must rise."""
        return self.op == "mma.sp::ordered_metadata"

    @property
    def is_wmma(self) -> bool:
        """Whether the ISA leaves the fragments of this instruction open."""
        return self.op.startswith("wmma.")

    @property
    def is_product(self) -> bool:
        """Whether it multiplies, rather than moves."""
        return self.op in {"mma", "mma.sp", "mma.sp::ordered_metadata", "wmma.mma"}

    @property
    def is_quad(self) -> bool:
        """Whether it computes four products at once: m8n8k4 with f16."""
        return self.op == "mma" and self.shape == (8, 8, 4) and self.a == "f16"

    @property
    def block_scale(self) -> bool:
        """Whether A and B come with scale factors."""
        return bool(self.scale_vec)


class HasForm(Protocol):
    """Something that stands for a form and can be hashed: an Instruction, to the modules below it."""

    def __hash__(self) -> int:
        """Its hash."""

    @property
    def form(self) -> Form:
        """The form."""


@dataclass(frozen=True)
class Family:
    """One row of the table of instructions; the fields are explained at its top."""

    source: str
    ops: tuple[str, ...]
    shape: Shape
    d: tuple[str, ...] = ("",)
    a: tuple[str, ...] = ("",)
    b: tuple[str, ...] | None = None
    c: tuple[str, ...] | None = None
    layouts: tuple[tuple[str, ...], ...] = (("row", "col"),)
    satfinite: bool = False
    rounding: bool = False
    bitop: tuple[str, ...] = ("",)
    kind: str = ""
    scale_vec: str = ""
    scale_vec_optional: bool = False
    scale_type: tuple[str, ...] = ("",)
    since: int = 0
    needs: str = ""
    holes: tuple[dict[str, list[str]], ...] = ()
    sparsity: str = ""
    metadata: str = ""
    selectors: int = 0
    traps: tuple[int, ...] = ()
    num: tuple[int, ...] = (0,)
    trans: tuple[bool, ...] = (False,)
    memory: tuple[str, ...] = ("",)
    layout: str = ""

    def __post_init__(self) -> None:
        """A row says either since when it exists or which feature it needs."""
        if bool(self.since) == bool(self.needs):
            msg = f"family {self.ops[0]} {self.shape}: give one of since and needs"
            raise ValueError(msg)

    def accepted_by(self, target: Target) -> bool:
        """Whether an assembler takes this family for a target."""
        if self.needs:
            return self.needs in target.features
        return target.generation >= self.since

    def forms(self) -> Iterator[Form]:
        """Every combination of the lists, less the holes."""
        axes: dict[str, tuple[Any, ...]] = {
            "op": self.ops,
            "layouts": self.layouts,
            "d": self.d,
            "a": self.a,
            "b": self.b or (None,),
            "c": self.c or (None,),
            "satfinite": (False, True) if self.satfinite else (False,),
            "scale_type": self.scale_type,
            "bitop": self.bitop,
            "rounding": ROUNDINGS if self.rounding else ("",),
            "num": self.num,
            "trans": self.trans,
            "memory": self.memory,
        }
        for choice in product(*axes.values()):
            words = dict(zip(axes, choice, strict=True))
            words["b"] = words["a"] if words["b"] is None else words["b"]
            words["c"] = words["d"] if words["c"] is None else words["c"]
            if not any(all(words[axis] in types for axis, types in hole.items()) for hole in self.holes):
                yield Form(shape=self.shape, kind=self.kind, scale_vec=self.scale_vec, **words)


def _family(source: str, op: str, row: dict[str, Any]) -> Family:
    """Turn lists into tuples and texts into types; a row that names an unknown field is refused by Family."""
    row = {field: tuple(entry) if isinstance(entry, list) else entry for field, entry in row.items()}
    row["shape"] = Shape.parse(row["shape"])
    row.setdefault("ops", (op,))
    if "layouts" in row:
        row["layouts"] = tuple(tuple(pair.split(".")) for pair in row["layouts"])
    return Family(source=source, **row)


def _mover(source: str, op: str, row: dict[str, Any]) -> Family:
    """A mover has one element type, that of its registers, and no words for memory layout."""
    return _family(source, op, {**row, "layouts": [""], "c": [""]})


def _memory_families(product_family: Family) -> Iterator[Family]:
    """wmma.load and wmma.store of everything a wmma product takes and gives."""

    def family(op: str, layouts: set[str], **types: tuple[str, ...]) -> Family:
        empty: dict[str, Any] = {"a": ("",), "b": ("",), "c": ("",), "d": ("",)}
        return Family(
            source=product_family.source,
            ops=(op,),
            shape=product_family.shape,
            layouts=tuple((word,) for word in ("row", "col") if word in layouts),
            since=product_family.since,
            **(empty | types),
        )

    yield family("wmma.load.a", {pair[0] for pair in product_family.layouts}, a=product_family.a)
    yield family("wmma.load.b", {pair[1] for pair in product_family.layouts}, b=product_family.b or product_family.a)
    yield family("wmma.load.c", {"row", "col"}, c=product_family.c or product_family.d)
    yield family("wmma.store.d", {"row", "col"}, d=product_family.d)


@cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of the table."""
    found = []
    for op, table in read_table("instructions").items():
        make = _mover if op == "movers" else _family
        rows = [make(table["source"], op, table.get("defaults", {}) | row) for row in table["families"]]
        found += rows
        if op == "wmma.mma":
            found += [memory for row in rows for memory in _memory_families(row)]
    return tuple(found)


@cache
def forms() -> dict[Form, tuple[Family, ...]]:
    """Every form, with the families it belongs to (a wmma.load may serve several products)."""
    found: dict[Form, list[Family]] = defaultdict(list)
    for family in families():
        for form in family.forms():
            found[form].append(family)
    return {form: tuple(rows) for form, rows in found.items()}


@cache
def targets() -> dict[str, Target]:
    """Every target, oldest first."""
    rows = read_table("targets")["target"]
    return {
        name: Target(name, row["generation"], row["arch"], tuple(row.get("features", ()))) for name, row in rows.items()
    }


@cache
def architectures() -> tuple[str, ...]:
    """The names of every arithmetic, oldest first: targets without their suffix."""
    return tuple(dict.fromkeys(target.arch for target in targets().values()))


def legal_targets(form: Form) -> tuple[str, ...]:
    """The targets whose assembler accepts a form."""
    rows = forms()[form]
    return tuple(name for name, target in targets().items() if any(row.accepted_by(target) for row in rows))
