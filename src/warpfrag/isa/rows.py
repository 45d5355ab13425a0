"""The rows of the instruction set: families, and the forms a family stands for.

A *family* is one row of `tables/instructions.toml`: lists of types, kinds and layouts. A *form* is one
instruction: one choice from each list. `forms()` multiplies the families out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from warpfrag.isa.ops import OPS
from warpfrag.isa.qualifiers import WORDS, Form
from warpfrag.isa.targets import Target, targets
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WIDTHS = re.compile(r"(m\d+n)(\d+)\.\.(\d+)(?:/(\d+))?(k\d+)")
SAME_AS = {"b": "a", "c": "d"}  # a family that says nothing of B means A's type, and nothing of C means D's


@frozen_dataclass
class Family:
    """One row of the table of instructions; the fields are explained at its top. `words` are its lists."""

    source: str
    ops: tuple[str, ...]
    words: dict[str, tuple[Any, ...]] = field(hash=False)
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
        """A row says either since when it exists or which feature it needs."""
        if bool(self.since) == bool(self.needs):
            shapes = " ".join(map(str, self.words["shape"]))
            msg = f"family {self.ops[0]} {shapes}: give one of since and needs"
            raise ValueError(msg)

    def accepted_by(self, target: Target) -> bool:
        """Whether an assembler takes this family for a target."""
        if self.needs:
            return self.needs in target.features
        return target.generation >= self.since

    def choices(self, word: str) -> tuple[Any, ...]:
        """What it may have of a word."""
        if word in SAME_AS and word not in self.words:
            return self.choices(SAME_AS[word])
        return self.words.get(word, (WORDS[word].absent,))

    def forms(self, op: str) -> Iterator[Form]:
        """Every combination of the lists, less the holes, for one of its operations."""
        operation = OPS[op]
        unsaid = [word for word in SAME_AS if word in operation.roles and word not in self.words]
        for choice in product(*self.words.values()):
            words = dict(zip(self.words, choice, strict=True))
            for word in unsaid:
                words[word] = words[SAME_AS[word]]
            if not any(all(words[word] in types for word, types in hole.items()) for hole in self.holes):
                yield Form(op=op, space=operation.usual_space, **words)


def _family(source: str, op: str, row: dict[str, Any]) -> Family:
    """Sort the entries of a row into words and facts; one that is neither is refused by Family."""
    words = {name: _choices(name, row[name]) for name in Form.__dataclass_fields__ if name in row}
    facts = {name: tuple(row[name]) if isinstance(row[name], list) else row[name] for name in row.keys() - words}
    return Family(source=source, words=words, **({"ops": (op,)} | facts))


def _choices(name: str, entry: Any) -> tuple[Any, ...]:  # noqa: ANN401 (an entry of a TOML table)
    """A list of choices: of one that is no list, and all of them where the row says only `true`."""
    if entry is True:
        return WORDS[name].choices
    listed = entry if isinstance(entry, list) else [entry]
    if name in ("shape", "layouts"):  # a text stands for several numbers or words
        texts = [text for entry in listed for text in _widths(entry)] if name == "shape" else listed
        return tuple(WORDS[name].read(tuple(text.split("."))) for text in texts)
    return tuple(listed)


def _widths(text: str) -> list[str]:
    """The shapes that a text of the table stands for: m64n8..24k32 has an n of 8, 16 and 24."""
    match = WIDTHS.fullmatch(text)
    if match is None:
        return [text]
    before, first, last, step, after = match.groups(default="8")
    return [f"{before}{n}{after}" for n in range(int(first), int(last) + 1, int(step))]


def _memory_families(made: Family) -> Iterator[Family]:
    """wmma.load and wmma.store of everything a wmma product takes and gives."""

    def family(op: str, layouts: set[str]) -> Family:
        role = op[-1]
        words = {
            "shape": made.choices("shape"),
            "layouts": tuple((word,) for word in ("row", "col") if word in layouts),
            role: made.choices(role),
        }
        return Family(made.source, (op,), words, since=made.since)

    yield family("wmma.load.a", {pair[0] for pair in made.choices("layouts")})
    yield family("wmma.load.b", {pair[1] for pair in made.choices("layouts")})
    yield family("wmma.load.c", {"row", "col"})
    yield family("wmma.store.d", {"row", "col"})


@cache
def families() -> tuple[Family, ...]:
    """Every family, in the order of the table."""
    result = []
    for op, table in read_table("instructions").items():
        rows = [_family(table["source"], op, table.get("defaults", {}) | row) for row in table["families"]]
        result += rows
        if op == "wmma.mma":
            result += [memory for row in rows for memory in _memory_families(row)]
    return tuple(result)


@cache
def _forms_in(number: int, op: str) -> tuple[Form, ...]:
    """The forms of a family, by its number in the table, and an operation."""
    return tuple(families()[number].forms(op))


@cache
def forms_of(op: str) -> dict[Form, tuple[Family, ...]]:
    """The forms of an operation as lists have them, with the families of each: a wmma.load may serve several."""
    by_form: dict[Form, list[Family]] = defaultdict(list)
    for number, family in enumerate(families()):
        for form in _forms_in(number, op) if op in family.ops else ():
            by_form[form].append(family)
    return {form: tuple(rows) for form, rows in by_form.items()}


@cache
def forms(first: str = "") -> dict[Form, tuple[Family, ...]]:
    """Every form, in the order of the table, with its families; or those whose names begin with this word."""
    pairs = [
        (number, op)
        for number, family in enumerate(families())
        for op in family.ops
        if first in ("", op.partition(".")[0])
    ]
    return {form: forms_of(op)[form] for number, op in pairs for form in _forms_in(number, op)}


@cache
def forms_on(target: str) -> dict[Form, None]:
    """The forms that the assembler of a target accepts, in the order of the table. They are keys, to be looked up."""
    accepting = targets()[target]
    accepted = [(number, family) for number, family in enumerate(families()) if family.accepted_by(accepting)]
    return dict.fromkeys(form for number, family in accepted for op in family.ops for form in _forms_in(number, op))


def families_of(form: Form) -> tuple[Family, ...]:
    """The families of a form, whatever state space it names."""
    if isinstance(form, TensorForm):
        return (_tensor_family(form),)
    return forms_of(form.op)[form.listed]


@cache
def _tensor_family(form: TensorForm) -> Family:
    """What a form of tcgen05 has beyond its words: how its A is pruned."""
    source = read_table("tcgen05")["source"]
    if not (form.is_typed and form.is_sparse):
        return Family(source, (form.op,), {}, needs="tcgen05")
    row = "rows_share_a_word" if form.kind in ("f16", "tf32") else "a_word_per_row"
    pattern = {"tf32": "1:2", "mxf4": "4:8", "mxf4nvf4": "4:8"}.get(form.kind, "2:4")
    selectors = 2 if row == "rows_share_a_word" else 1
    return Family(source, (form.op,), {}, needs="tcgen05", sparsity=pattern, metadata=row, selectors=selectors)


def legal_targets(form: Form) -> tuple[str, ...]:
    """The targets whose assembler accepts a form."""
    if isinstance(form, TensorForm):
        return form.targets
    rows = families_of(form)
    return tuple(name for name, target in targets().items() if any(row.accepted_by(target) for row in rows))


def is_legal(form: Form, target: str) -> bool:
    """Whether the assembler of a target accepts a form."""
    if isinstance(form, TensorForm):
        return target in form.targets
    return form.listed in forms_on(target)


def fits(row: Mapping[str, Any], form: Form) -> bool:
    """Whether the fields of a form are in the lists of a row; what is no list is no condition."""
    return all(str(getattr(form, name)) in words for name, words in row.items() if isinstance(words, list))
