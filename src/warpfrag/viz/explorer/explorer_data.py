"""The data of the explorer page: the tables as one JSON object without repetitions.

Instructions share operands, operands share layouts, and all of them share strings. Each of these is therefore listed
once and referred to by its index. A layout lists the move of each bit, and the page combines the moves by xor.
`warpfrag.plans` plans the relayouts between all pairs of fragments; the page computes which elements change lanes.

The 15,000 tcgen05 instructions have 40 spellings (names without shape and types). A spelling lists its shapes and its
types once; the page computes their layouts from the rows of `tables/tcgen05.toml`, as `isa.tmem_layouts` does. The
registers of a load are those of warp 0; each further warp accesses the same columns, 32 lanes higher.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar

from warpfrag import __version__
from warpfrag.errors import InvalidOperand
from warpfrag.formats.number_formats import format_aliases
from warpfrag.grouping import grouped
from warpfrag.isa.aliases import aliases_of
from warpfrag.isa.instruction_table import families_of
from warpfrag.isa.operands import OperandSpec
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.sparsity_patterns import pattern
from warpfrag.isa.targets import architectures, gpus, targets
from warpfrag.isa.tcgen05_forms import TensorForm, listed_forms
from warpfrag.isa.tcgen05_spelling import TensorSpelling
from warpfrag.isa.tmem_layouts import metadata_row, placement
from warpfrag.layout.index_expressions import element_formulas, place_formulas
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.relayout import WIDTH, Relayout, fragments, relayout, tiled_alike, warpgroup_fragments
from warpfrag.plans.relayout_operations import cost, described
from warpfrag.tables import read_table
from warpfrag.tensorcore.evidence import Evidence
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import find, instruction_of
from warpfrag.viz.palette import COLOURS
from warpfrag.viz.tensor_memory_views import register_steps

Entry = TypeVar("Entry", bound="Hashable")
MOVES = ("tcgen05.ld", "tcgen05.st")
OPERATION = re.compile(r"(.*?) \{(.*)\}(.*)", re.DOTALL)
USUAL = (128, 64)  # the m and n that the page shows first, if a spelling supports them


class InternedList(Generic[Entry]):
    """A list without repetitions; its entries are referred to by index."""

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


# the category, and the indices of the verdict, the costs and the steps
Plan = tuple[str, int, tuple[tuple[int, int], ...]]
AXES: tuple[Literal["row", "col"], ...] = ("row", "col")


def every_fragment() -> tuple[Operand, ...]:
    """Return the fragments of a warp, then those of a warpgroup, in the order of the page's lists."""
    return fragments() + warpgroup_fragments()


class RelayoutWriter:
    """Writes the plans between all pairs of fragments; values that occur repeatedly are stored once, in lists."""

    def __init__(self, texts: InternedList[str]) -> None:
        """Create an empty collection; `texts` is the string table of the whole page."""
        self.texts = texts
        self.plans: InternedList[Plan] = InternedList(list)
        self.orders: InternedList[tuple[int, tuple[int, ...] | None]] = InternedList(list)
        self._known: dict[Hashable, list[Any]] = {}

    def written(self, place: Callable[[Operand], list[Any]]) -> dict[str, Any]:
        """Return all fragments, each with the plans to the others."""
        return {
            "fragments": [place(fragment) for fragment in every_fragment()],
            "relayouts": [list(self._relayouts(source)) for source in every_fragment()],
            "plans": self.plans.entries,
            "orders": self.orders.entries,
        }

    def _relayouts(self, source: Operand) -> Iterator[list[Any]]:
        """Yield each fragment with the same extents: its index, the plan to it, and plans that permute a coordinate."""
        for place, target in enumerate(every_fragment()):
            pair = tiled_alike(source, target) if source.threads == target.threads else None
            if pair is None:
                continue
            key = _plan_key(*pair)
            if key not in self._known:
                plan = relayout(*pair)
                self._known[key] = [self.plans.index(self._plan(plan)), *self._permuted(plan)]
            yield [place, *self._known[key]]

    def _permuted(self, plan: Relayout) -> Iterator[list[Any]]:
        """Yield each coordinate whose permutation keeps elements in their lanes, with the plan that remains."""
        for axis in AXES if not plan.is_free and list(plan.source.layout.outs) == list(AXES) else ():
            try:
                permuted = relayout(plan.source, plan.target, permute=axis)
            except InvalidOperand:
                continue  # no permutation keeps every element in its lane
            order = self.texts.index(permuted.permutation_text), permuted.permutation
            yield [axis, self.plans.index(self._plan(permuted)), self.orders.index(order)]

    def _plan(self, plan: Relayout) -> Plan:
        """Return the category of a plan, its verdict, and the cost and description of each step."""
        crossing = next((kind for kind in ("shfl", "movmatrix") if plan.counts[kind]), "lane")
        steps = tuple(
            (self.texts.index(f"{count} {kind}" if count else "free"), self.texts.index(described(step)))
            for step in plan.operations
            for kind, count in [cost(step)]
        )
        return "free" if plan.is_free else crossing, self.texts.index(plan.verdict), steps


def _plan_key(source: Operand, target: Operand) -> Hashable:
    """Return a key for a plan; formats are left out if elements are not converted."""
    stored = [(operand.format.name, operand.spec.container, operand.spec.low) for operand in (source, target)]
    return source.layout, target.layout, source.spec.container if stored[0] == stored[1] else tuple(stored)


WIDEST = 256  # the largest n of wgmma
UNKNOWN = re.compile(r".* is not modelled on sm_\w+: ", re.ASCII)


class PageWriter:
    """Writes instructions as JSON objects; values that occur repeatedly are stored once, in lists."""

    def __init__(self) -> None:
        """Create empty lists, which `instruction` fills."""
        self.texts: InternedList[str] = InternedList(str)
        self.layouts = InternedList(_layout)
        self.target_sets: InternedList[tuple[str, ...]] = InternedList(list)
        self.evidence: InternedList[Evidence] = InternedList(
            lambda known: [*map(self.texts.index, (known.level, UNKNOWN.sub("", known.detail), known.machine))]
        )
        self.evidence_sets: InternedList[tuple[tuple[str, int], ...]] = InternedList(list)
        self.operands = InternedList(self._operand)
        self.format_bits: dict[str, int] = {}
        self.patterns: dict[str, dict[str, Any]] = {}

    def _operand(self, row: OperandSpec) -> dict[str, Any]:
        number_format = row.format
        self.format_bits[number_format.name] = number_format.bits
        written = {
            "role": row.role,
            "format": number_format.name,
            "layout": self.layouts.index(row.layout),
            "container": row.container,
            "low": row.low,
            "ptx_type": number_format.register,
        }
        return written | ({"unknown": row.unknown} if row.unknown else {})

    def _pattern(self, name: str) -> str:
        rule = pattern(name)
        self.patterns[name] = {
            "chunk": rule.chunk,
            "kept": rule.kept,
            "rising": [[code, list(columns)] for code, columns in rule.rising.items()],
            "descending": [[code, list(columns)] for code, columns in rule.descending.items()],
        }
        return name

    def _evidence(self, instruction: Instruction) -> int:
        """Return the index of the evidence for an instruction's arithmetic, on each architecture that supports it."""
        able = {targets()[target].arch for target in instruction.targets}
        known = [(arch, instruction.evidence(arch)) for arch in architectures() if arch in able]
        return self.evidence_sets.index(tuple((arch, self.evidence.index(evidence)) for arch, evidence in known))

    def names(self, form: Form, spell: Callable[[str], str] = str) -> list[Any]:
        """Return the names of one instruction: CuTe, SASS, NVVM, MLIR in pieces, and others.

        SASS names are the same on many targets, and MLIR operations consist of the same pieces, so both are written as
        indices of texts. MLIR operations without attributes are among the other names. `spell` changes a name before it
        is listed.
        """
        aliases = aliases_of(form)

        def index(name: str) -> int:
            return self.texts.index(spell(name))

        by_code = grouped((code, target) for target, code in aliases["sass"].items())
        operation = OPERATION.fullmatch(aliases["mlir"] or "")
        pieces = [operation[1], operation[3], *operation[2].split(", ")] if operation else []
        others = [aliases["mlir"]] if aliases["mlir"] and not operation else []
        return [
            [index(aliases["cute"])] if aliases["cute"] else [],
            [[index(code), self.target_sets.index(tuple(some))] for code, some in by_code.items()],
            [index(aliases["nvvm"])] if aliases["nvvm"] else [],
            [*map(index, pieces)],
            [*map(index, (*others, *aliases["also"]))],
        ]

    def instruction(self, instruction: Instruction) -> dict[str, Any]:
        """Return an instruction as a JSON object, without fields that are empty or do not apply."""
        form, family = instruction.form, families_of(instruction.form)[0]
        sparsity = instruction.pattern
        written = {
            "name": instruction.name,
            "op": form.op,
            "shape": list(form.shape),
            "d": form.d,
            "a": form.a,
            "b": form.b,
            "c": form.c,
            "kind": form.kind,
            "bitop": form.bitop,
            "targets": self.target_sets.index(instruction.targets),
            "operands": {
                role: self.operands.index(operand.spec)
                for role, operand in sorted(instruction.operands.items())  # inputs come first, also for movmatrix
                if operand.storage != "shared"
            },
            "sources": [self.texts.index(source) for source in instruction.sources],
            "fragments_of": instruction.arch,
            "selectors": list(instruction.selectors),
            "traps": list(family.traps),
            "pattern": self._pattern(sparsity.name) if sparsity else "",
            "ordered": form.operation.sparsity == "ordered",
            "names": self.names(form),
        }
        if form.operation.does == "multiply":
            written["evidence"] = self._evidence(instruction)
        if instruction.addresses is not None:
            written["addresses"] = self.layouts.index(instruction.addresses)
        return {field: entry for field, entry in written.items() if entry is not False and entry not in ("", [])}


def _layout(layout: Layout) -> dict[str, Any]:
    """Return the moves of each bit of warp, lane, reg and slot along every coordinate, and the formulas."""
    first: dict[str, int] = {name: 0 for name in ("warp", "lane") if name in layout.ins}
    bases = {
        name: [list(layout.at(**first | {name: 1 << bit})) for bit in range((extent - 1).bit_length())]
        for name, extent in layout.ins.items()
    }
    return {
        "dims": list(layout.dims),
        "shape": list(layout.shape),
        **bases,
        "element_formulas": element_formulas(layout),
        "place_formulas": place_formulas(layout),
    }


def _of_any_width(text: str) -> str:
    """Return the names of the widest instruction with its width replaced by {n}."""
    text = text.replace(f"n = {WIDEST},", "n = {n},")
    return text.replace(f"m64n{WIDEST}k", "m64n{n}k").replace(f"64x{WIDEST}x", "64x{n}x")


def _warpgroups(writer: PageWriter, instructions: list[Instruction]) -> list[dict[str, Any]]:
    """Return a wgmma row for each combination of types, for the widest n; the page derives the other widths."""
    widths: dict[str, list[int]] = {}
    widest: dict[str, Instruction] = {}
    for instruction in instructions:  # in order of ascending width
        name = instruction.name.replace(f"m64n{instruction.shape.n}k", "m64n{n}k")
        widths.setdefault(name, []).append(instruction.shape.n)
        widest[name] = instruction
    entries = []
    for name, instruction in widest.items():
        row = writer.instruction(instruction) | {"name": name, "widths": widths[name]}
        held = {role: place for role, place in row["operands"].items() if role != "c"}
        b = {"format": instruction.b.format.name, "rows": instruction.b.shape[0]}
        narrow = replace(instruction.form, shape=instruction.form.shape._replace(n=WIDTH))
        moved = instruction_of(narrow, instruction.arch).d
        entries.append(row | {"operands": held, "staged": b, "moved": [WIDTH, writer.operands.index(moved.spec)]})
    return entries


# --- tcgen05: mma instructions grouped by spelling, and loads and stores of one warp


def _common(writer: PageWriter, instruction: Instruction, repeat: int = 0) -> dict[str, Any]:
    """Return the fields that all rows share; in names, {x} takes the place of a repeat count."""

    def spell(name: str) -> str:
        return re.sub(rf"(?<=b){repeat}x", "{x}x", re.sub(rf"x{repeat}\b", "x{x}", name)) if repeat else name

    return {
        "op": instruction.form.op,
        "targets": writer.target_sets.index(instruction.targets),
        "sources": [writer.texts.index(source) for source in instruction.sources],
        "names": writer.names(instruction.form, spell),
    }


def _products() -> dict[str, list[TensorForm]]:
    """Return all typed mma forms, by spelling."""
    return grouped((form.spelling.name, form) for form in listed_forms() if form.shape.m)


def types_of(form: TensorForm) -> str:
    """Return the part of a name after the shape, which spells the types."""
    return form.name.split(f".{form.shape}.")[1]


def tensor_products(writer: PageWriter) -> dict[str, Any]:
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
            _common(writer, instruction_of(first, ""))
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


def tensor_moves(writer: PageWriter) -> list[dict[str, Any]]:
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
        _common(writer, instruction, spelling.repeat)
        | {
            "name": family,
            "access": spelling.qualifier("lanes"),
            "repeats": repeats[family],
            "operands": {
                role: writer.operands.index(replace(operand.spec, layout=of_warp(operand.spec.layout)))
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


def page_data() -> dict[str, Any]:
    """Return all data of the page as JSON-compatible values."""
    writer = PageWriter()
    by_scope = grouped((instruction.form.operation.scope, instruction) for instruction in find())
    instructions = [*map(writer.instruction, by_scope["warp"])]
    warpgroups = _warpgroups(writer, by_scope["warpgroup"])
    tensor = {"moves": tensor_moves(writer), **tensor_products(writer), **tensor_tables()}
    names = {row["name"]: place for place, row in enumerate(instructions)}
    # all wgmma of the same types share a row, which has its own name
    relayouts = RelayoutWriter(writer.texts).written(
        lambda fragment: [writer.operands.index(fragment.spec), names.get(fragment.instruction, fragment.instruction)]
    )
    return {
        "version": __version__,
        "targets": list(targets()),
        "gpus": {name.lower(): target for name, target in gpus().items()},
        "format_aliases": {name: {"types": row.types, "lists": row.lists} for name, row in format_aliases().items()},
        "colours": COLOURS,
        "format_bits": writer.format_bits,
        "patterns": writer.patterns,
        "texts": [_of_any_width(str(text)) for text in writer.texts.entries],
        "layouts": writer.layouts.entries,
        "operands": writer.operands.entries,
        "evidence": writer.evidence.entries,
        "evidence_sets": writer.evidence_sets.entries,
        "target_sets": writer.target_sets.entries,
        "instructions": instructions,
        "warpgroups": warpgroups,
        "tensor": tensor,
        **relayouts,
    }
