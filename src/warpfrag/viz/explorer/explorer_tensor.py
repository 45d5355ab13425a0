"""tcgen05 on the explorer page: mma instructions grouped by spelling, and loads and stores of one warp.

Fifteen thousand instructions have forty spellings. A spelling lists its shapes and its types once; the page computes
their layouts from the rows of `tables/tcgen05.toml`, as `isa.tmem_layouts` does. The registers of a load are those of
warp 0; each further warp accesses the same columns, 32 lanes further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from warpfrag.isa.operands import OperandSpec
from warpfrag.isa.tcgen05_forms import TensorForm, listed_forms
from warpfrag.isa.tcgen05_spelling import TensorSpelling
from warpfrag.isa.tmem_layouts import metadata_row, placement
from warpfrag.layout.linear_layout import Layout
from warpfrag.tables import read_table
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import aliases as aliases_of
from warpfrag.tensorcore.registry import find, instruction_of
from warpfrag.viz.tensor_memory_views import register_steps

Entry = TypeVar("Entry", bound="Hashable")
MOVES = ("tcgen05.ld", "tcgen05.st")
OPERATION = re.compile(r"(.*?) \{(.*)\}(.*)", re.DOTALL)
USUAL = (128, 64)  # the m and n that the page shows first, if a spelling supports them


class SharedLists(NamedTuple):
    """Lists in which the page stores each value once; rows refer to entries by index."""

    texts: InternedList[str]
    target_sets: InternedList[tuple[str, ...]]
    operands: InternedList[OperandSpec]


def _names(shared: SharedLists, instruction: Instruction, repeat: int) -> list[Any]:
    """Return the names of an instruction, with {x} in place of a repeat count."""

    def spell(name: str) -> str:
        return re.sub(rf"(?<=b){repeat}x", "{x}x", re.sub(rf"x{repeat}\b", "x{x}", name)) if repeat else name

    return names_of(aliases_of(instruction), shared.texts, shared.target_sets, spell)


def _common(shared: SharedLists, instruction: Instruction, repeat: int = 0) -> dict[str, Any]:
    """Return the fields that all rows share."""
    return {
        "op": instruction.form.op,
        "targets": shared.target_sets.index(instruction.targets),
        "sources": [shared.texts.index(source) for source in instruction.sources],
        "names": _names(shared, instruction, repeat),
    }


def _products() -> dict[str, list[TensorForm]]:
    """Return all typed mma forms, by spelling."""
    by_spelling: dict[str, list[TensorForm]] = {}
    for form in listed_forms():
        if isinstance(form, TensorForm) and form.shape.m:
            by_spelling.setdefault(form.spelling.name, []).append(form)
    return by_spelling


def types_of(form: TensorForm) -> str:
    """Return the types in the form in which they follow the shape in a name."""
    return form.name.split(f".{form.shape}.")[1]


def tensor_products(shared: SharedLists) -> dict[str, Any]:
    """Return a row for each spelling, with its shapes, their widths, and its types."""
    rows = []
    type_lists: InternedList[tuple[str, ...]] = InternedList(list)
    width_lists: InternedList[tuple[int, ...]] = InternedList(list)
    for spelling, forms in _products().items():
        shapes: dict[tuple[int, int], list[int]] = {}
        for form in forms:
            widths = shapes.setdefault((form.shape.m, form.shape.k), [])
            if form.shape.n not in widths:
                widths.append(form.shape.n)
        first = min(forms, key=lambda form: (form.shape.m != USUAL[0], form.shape.n != USUAL[1]))
        examples = {key: next(form for form in forms if (form.shape.m, form.shape.k) == key) for key in shapes}
        rows.append(
            _common(shared, instruction_of(first, ""))
            | {
                "name": spelling,
                "kind": first.kind,
                "blocks": first.blocks,
                "sparse": first.is_sparse,
                "scales": first.scales,
                "types": type_lists.index(_in_order(forms)),
                "usual": list(first.shape),
                "shapes": [
                    {
                        "m": m,
                        "k": k,
                        "widths": width_lists.index(tuple(widths)),
                        "path": placement(examples[m, k])[0],
                        **_extents(examples[m, k]),
                    }
                    for (m, k), widths in shapes.items()
                ],
            }
            | ({"metadata": _metadata_name(first)} if first.is_sparse else {})
        )
    return {"products": rows, "type_lists": type_lists.entries, "width_lists": width_lists.entries}


def _in_order(forms: list[TensorForm]) -> tuple[str, ...]:
    """Return the distinct types of the forms; those with f32 accumulators come first."""
    return tuple(sorted(dict.fromkeys(map(types_of, forms)), key=lambda types: not types.startswith("f32")))


def _extents(form: TensorForm) -> dict[str, Any]:
    """Return the columns and slots of A, and the metadata chunks, which depend only on m and k."""
    operands = instruction_of(form, "").operands
    a = operands["a"].spec.layout
    chunks = operands["metadata"].spec.layout.outs["chunk"] if "metadata" in operands else 0
    return {"a": [a.ins["column"], a.slots]} | ({"chunks": chunks} if chunks else {})


def _metadata_name(form: TensorForm) -> str:
    rows: dict[str, Any] = read_table("tcgen05")["metadata"]
    return next(name for name, row in rows.items() if row is metadata_row(form))


def tensor_moves(shared: SharedLists) -> list[dict[str, Any]]:
    """Return a row for each shape of loads and stores, with its longest form, which contains all others."""
    repeats: dict[str, list[int]] = {}
    longest: dict[str, tuple[Instruction, TensorSpelling]] = {}
    for instruction in (each for op in MOVES for each in find(op=op)):  # in order of ascending repeat count
        if isinstance(instruction.form, TensorForm):
            spelling = instruction.form.spelling
            family = instruction.name.replace(f".x{spelling.repeat}", ".x{x}")
            repeats.setdefault(family, []).append(spelling.repeat)
            longest[family] = instruction, spelling
    return [
        _common(shared, instruction, spelling.repeat)
        | {
            "name": family,
            "access": spelling.qualifier("lanes"),
            "repeats": repeats[family],
            "operands": {
                role: shared.operands.index(replace(operand.spec, layout=of_warp(operand.spec.layout)))
                for role, operand in instruction.operands.items()
            },
        }
        for family, (instruction, spelling) in longest.items()
    ]


def of_warp(layout: Layout) -> Layout:
    """Return the layout of warp 0, in terms of the tensor-memory lanes and columns that it accesses."""
    steps = register_steps(layout, ("tlane", "column"))
    lanes = 1 + sum((radix - 1) * moves[0] for of in steps.values() for radix, moves in of)
    return Layout.of_steps({"tlane": lanes, "column": layout.outs["column"]}, steps)


def tensor_tables() -> dict[str, Any]:
    """Return the table rows from which the page computes layouts."""
    table = read_table("tcgen05")
    return {
        "placement": {
            letter: {"tlane": row["tlane"], "block": row.get("block", "")} for letter, row in _rows(table["placement"])
        },
        "access": {name: dict(row) for name, row in _rows(table["access"])},
        "codes": {
            name: {part: row[part] for part in ("slot", "tlane", "column")} for name, row in _rows(table["metadata"])
        },
    }


def _rows(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, row) for name, row in table.items() if name != "source")


# --- names of instructions (CuTe, SASS, NVVM, MLIR), and the lists that intern their texts
#
# SASS names are the same on many targets, and MLIR operations are made of the same pieces: both are written as indices
# into the list of texts.


class InternedList(Generic[Entry]):
    """A list without repetitions, whose entries are referred to by index."""

    def __init__(self, write: Callable[[Entry], object]) -> None:
        """Create an empty list; `write` converts an entry to JSON."""
        self.entries: list[object] = []
        self._write = write
        self._indices: dict[Entry, int] = {}

    def index(self, entry: Entry) -> int:
        """Return the index of an entry, adding the entry if it is new."""
        if entry not in self._indices:
            written = self._write(entry)
            if written not in self.entries:
                self.entries.append(written)
            self._indices[entry] = self.entries.index(written)
        return self._indices[entry]


def names_of(
    aliases: Mapping[str, Any],
    texts: InternedList[str],
    target_sets: InternedList[tuple[str, ...]],
    spell: Callable[[str], str] = str,
) -> list[Any]:
    """Return the names of one instruction: CuTe, SASS, NVVM, MLIR in pieces, and others.

    An MLIR operation without attributes is among the others. `spell` changes a name before it is listed.
    """

    def index(name: str) -> int:
        return texts.index(spell(name))

    by_code: dict[str, list[str]] = {}
    for target, code in aliases["sass"].items():
        by_code.setdefault(code, []).append(target)
    operation = OPERATION.fullmatch(aliases["mlir"] or "")
    pieces = [operation[1], operation[3], *operation[2].split(", ")] if operation else []
    others = [aliases["mlir"]] if aliases["mlir"] and not operation else []
    return [
        [index(aliases["cute"])] if aliases["cute"] else [],
        [[index(code), target_sets.index(tuple(some))] for code, some in by_code.items()],
        [index(aliases["nvvm"])] if aliases["nvvm"] else [],
        [*map(index, pieces)],
        [*map(index, (*others, *aliases["also"]))],
    ]
