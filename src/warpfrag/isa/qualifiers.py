"""The qualifiers of instruction names.

`mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` is an operation, `mma`, with qualifiers. `QUALIFIERS` has a row for
each qualifier; `operations.OPS` has a row for each operation, with its qualifiers in the order of the canonical name. A
`Form` is one instruction as plain fields, one for each qualifier that may vary.

To add a qualifier, add a field of Form, a row of QUALIFIERS, and its name in the rows of the operations that have it.

A text may have its qualifiers in any order, as an assembler accepts them. Only the qualifiers of one *group* keep their
order: the types (of D, A, B, C, then of the scale factors), the layouts of A and B, `xor.popc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from warpfrag.isa.operations import OPS, Op

SHAPE = re.compile(r"m([1-9][0-9]{0,3})n([1-9][0-9]{0,3})(?:k([1-9][0-9]{0,3}))?")


class Shape(NamedTuple):
    """The extents of an mma: A is m x k, B is k x n, and D is m x n. Matrix moves have no k."""

    m: int
    n: int
    k: int = 0

    @classmethod
    @cache
    def parse(cls, text: str) -> Shape:
        """Return the shape in a text such as `m16n8k16` or `m8n8`."""
        match = SHAPE.fullmatch(text)
        if match is None:
            raise ValueError(f"shape: expected a shape such as m16n8k16, got {text!r}")
        return cls(*(int(extent) for extent in match.groups(default="0")))

    def __str__(self) -> str:
        """Return the shape as PTX spells it."""
        return f"m{self.m}n{self.n}" + (f"k{self.k}" if self.k else "")


@dataclass(frozen=True)
class Form:
    """One instruction as plain qualifiers; qualifiers that do not apply are empty."""

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
    space: str = ""

    def __hash__(self) -> int:
        """Return the hash of all qualifiers; it is cached, because many caches are keyed by forms."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(_words_of(self))

    def __getstate__(self) -> dict[str, object]:
        """Return the qualifiers without the hash, because string hashes differ between processes."""
        return dict(zip(_WORDS_OF_A_FORM, _words_of(self), strict=True))

    @property
    def operation(self) -> Op:
        """The row of the operation in OPS."""
        return OPS[self.op]

    @property
    def listed(self) -> Form:
        """The form with the usual state space, which represents this form in lists."""
        usual = self.operation.usual_space
        return self if self.space == usual else replace(self, space=usual)

    @property
    def is_sparse(self) -> bool:
        """True if A is sparse."""
        return self.operation.sparsity != ""

    @property
    def is_ordered(self) -> bool:
        """True if metadata indices must be in ascending order."""
        return self.operation.sparsity == "ordered"

    @property
    def is_wmma(self) -> bool:
        """True for wmma, whose fragment layouts the ISA does not specify."""
        return self.operation.fragments == "measured"

    @property
    def is_warpgroup(self) -> bool:
        """True for wgmma, which four warps execute together, with B in shared memory."""
        return self.operation.scope == "warpgroup"

    @property
    def is_product(self) -> bool:
        """True if the instruction multiplies matrices."""
        return self.operation.does == "multiply"

    @property
    def is_quad(self) -> bool:
        """True for m8n8k4 with f16, which computes four matrix products at once."""
        return self.op == "mma" and self.shape == (8, 8, 4) and self.a == "f16"

    @property
    def block_scale(self) -> bool:
        """True if A and B have block scale factors."""
        return bool(self.scale_vec)


_WORDS_OF_A_FORM = tuple(qualifier.name for qualifier in fields(Form))
_words_of = attrgetter(*_WORDS_OF_A_FORM)


class HasForm(Protocol):
    """The interface of an Instruction for lower layers: a hashable object that has a form."""

    def __hash__(self) -> int:
        """Return the hash."""

    @property
    def form(self) -> Form:
        """The instruction's operation, shape, types and other qualifiers."""


class QualifierSpec(NamedTuple):
    """One category of qualifiers.

    label    its name in messages
    absent   the value if a text omits it; None if there is no default
    write    converts a choice to qualifiers of a name
    read     converts such qualifiers to a choice
    max_qualifiers  the maximum number of qualifiers that it takes
    choices  the values that `true` stands for in the row of a family
    group    the group that it belongs to; qualifiers of one group keep their order
    after    the group that it must follow
    extra    qualifiers that are accepted, but not part of canonical names
    """

    label: str
    absent: Any = ""
    write: Callable[[Any], tuple[str, ...]] = lambda entry: (str(entry),)
    read: Callable[[tuple[str, ...]], Any] = lambda qualifiers: qualifiers[0]
    max_qualifiers: int = 1
    choices: tuple[Any, ...] = ()
    group: str = ""
    after: str = ""
    extra: tuple[str, ...] = ()


def _flag(name: str) -> QualifierSpec:
    return QualifierSpec(
        name, absent=False, write=lambda _on: (name,), read=lambda _qualifiers: True, choices=(False, True)
    )


def _prefixed(prefix: str, label: str, absent: object = "", kind: type = str) -> QualifierSpec:
    """Return the row of a qualifier that is written with a prefix, such as kind::mxf4 or x4."""
    return QualifierSpec(
        label, absent, lambda entry: (f"{prefix}{entry}",), lambda qualifiers: kind(qualifiers[0].removeprefix(prefix))
    )


def _type(label: str, absent: str | None = None) -> QualifierSpec:
    return QualifierSpec(label, absent, group="types")


# The rows are in the order in which qualifiers are checked. `sync` and `aligned` never vary, so they are not fields of
# a form, and a short name may omit them.
QUALIFIERS: dict[str, QualifierSpec] = {
    "sync": QualifierSpec("sync"),
    "aligned": QualifierSpec("aligned"),
    "shape": QualifierSpec("shape", None, read=lambda qualifiers: Shape.parse(qualifiers[0])),
    "kind": _prefixed("kind::", "kind"),
    "block_scale": _flag("block_scale"),
    "d": _type("type of D"),
    "a": _type("type of A"),
    "b": _type("type of B"),
    "c": _type("type of C"),
    "memory": _type("type in memory", ""),
    "layouts": QualifierSpec("layout", None, tuple, tuple, max_qualifiers=2),
    "satfinite": _flag("satfinite"),
    "scale_vec": _prefixed("scale_vec::", "scale_vec", None),
    "scale_type": QualifierSpec("scale type", after="types"),
    "bitop": QualifierSpec("bit operation", write=lambda name: (name, "popc"), max_qualifiers=2),
    # rounding to nearest even is PTX's default, so .rn is redundant
    "rounding": QualifierSpec(
        "rounding",
        read=lambda qualifiers: qualifiers[0].replace("rn", ""),
        choices=("", "rz", "rm", "rp"),
        extra=("rn",),
    ),
    "num": _prefixed("x", "number of matrices", 0, int),
    "trans": _flag("trans"),
    "space": QualifierSpec("state space"),
}
FIXED = ("sync", "aligned")
