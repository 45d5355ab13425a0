"""What the page knows: the tables, as one JSON object in which nothing is said twice.

Instructions share operands, operands share layouts, and all of them share texts; so each such thing is listed once
and named by its place in the list. A layout travels as what each bit moves: the page joins these by xor. Formulas
travel as text, because `warpfrag.core.expressions` knows how to write them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpfrag import __version__
from warpfrag.catalog.kinds import instruction_of
from warpfrag.catalog.registry import find
from warpfrag.core.expressions import element_formulas, place_formulas
from warpfrag.explorer.listed import Listed
from warpfrag.explorer.moves import Moves
from warpfrag.explorer.names import names_of
from warpfrag.isa.patterns import pattern
from warpfrag.isa.rows import families_of
from warpfrag.isa.targets import architectures, targets
from warpfrag.motion.pairs import WIDTH
from warpfrag.render.palette import COLOURS

if TYPE_CHECKING:
    from warpfrag.catalog.instruction import Instruction
    from warpfrag.core.layout import Layout
    from warpfrag.execution.operand import Registers


WIDEST = 256  # n of wgmma
UNKNOWN = re.compile(r".* is not modelled on sm_\w+: ", re.ASCII)


class Writer:
    """Gathers the lists while it walks over the instructions."""

    def __init__(self) -> None:
        """Start with empty lists."""
        self.texts = Listed(str)
        self.layouts = Listed(_layout)
        self.target_sets = Listed(list)
        self.evidence = Listed(
            lambda evidence: [*map(self.texts.place, (evidence.level, _detail(evidence.detail), evidence.machine))]
        )
        self.evidence_sets = Listed(list)
        self.operands = Listed(self._operand)
        self.format_bits: dict[str, int] = {}
        self.patterns: dict[str, dict[str, Any]] = {}

    def _operand(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 (an OperandSpec; see Listed)
        number_format = row.format
        self.format_bits[number_format.name] = number_format.bits
        written = {
            "role": row.role,
            "format": number_format.name,
            "layout": self.layouts.place(row.layout),
            "container": row.container,
            "low": row.low,
            "ptx_type": number_format.register,
        }
        return written | ({"unknown": row.unknown} if row.unknown else {})

    def _pattern(self, name: str) -> str:
        found = pattern(name)
        self.patterns[name] = {
            "chunk": found.chunk,
            "kept": found.kept,
            "rising": [[code, list(columns)] for code, columns in found.rising.items()],
            "descending": [[code, list(columns)] for code, columns in found.descending.items()],
        }
        return name

    def _role(self, operand: Registers) -> int:
        return self.operands.place(operand.row)

    def _evidence(self, instruction: Instruction) -> int:
        """What is known of the arithmetic of an instruction, on each architecture that has it."""
        able = {targets()[target].arch for target in instruction.targets}
        known = [(arch, instruction.evidence(arch)) for arch in architectures() if arch in able]
        return self.evidence_sets.place(tuple((arch, self.evidence.place(found)) for arch, found in known))

    def instruction(self, instruction: Instruction) -> dict[str, Any]:
        """One instruction; what is empty or does not apply is left out."""
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
            "targets": self.target_sets.place(instruction.targets),
            "operands": {
                role: self._role(operand)
                for role, operand in sorted(instruction.operands.items())  # inputs first, of movmatrix too
                if operand.home != "shared"
            },
            "sources": [self.texts.place(source) for source in instruction.sources],
            "fragments_of": instruction.arch,
            "selectors": list(instruction.selectors),
            "traps": list(family.traps),
            "pattern": self._pattern(sparsity.name) if sparsity else "",
            "ordered": form.is_ordered,
            "names": names_of(form, self.texts, self.target_sets),
        }
        if form.is_product:
            written["evidence"] = self._evidence(instruction)
        if instruction.addresses is not None:
            written["addresses"] = self.layouts.place(instruction.addresses)
        return {field: entry for field, entry in written.items() if entry is not False and entry not in ("", [])}


def _detail(text: str) -> str:
    """What is known, or why it is not; the line of the page says of which instruction, on which architecture."""
    return UNKNOWN.sub("", text)


def _layout(layout: Layout) -> dict[str, Any]:
    """What each bit of lane, reg and slot, and of warp, moves, as a step along every coordinate, and the formulas."""
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
    """A name of the widest instruction, with {n} in the place of its n."""
    return text.replace(f"m64n{WIDEST}k", "m64n{n}k").replace(f"64x{WIDEST}x", "64x{n}x")


def _warpgroups(writer: Writer) -> list[dict[str, Any]]:
    """wgmma: one row for all widths of the same types, as that of the widest; the page cuts D to the others."""
    widths: dict[str, list[int]] = {}
    rows = {}
    for one in find():
        if one.form.is_warpgroup:
            name = one.name.replace(f"m64n{one.shape.n}k", "m64n{n}k")
            widths.setdefault(name, []).append(one.shape.n)
            rows[name] = one
    found = []
    for name, one in rows.items():  # the last is the widest
        row = writer.instruction(one) | {"name": name, "widths": widths[name]}
        held = {role: place for role, place in row["operands"].items() if role != "c"}
        b = {"format": one.b.format.name, "rows": one.b.shape[0]}
        moved = instruction_of(replace(one.form, shape=one.form.shape._replace(n=WIDTH)), one.arch).d
        found.append(row | {"operands": held, "staged": b, "moved": [WIDTH, writer.operands.place(moved.row)]})
    return found


def page_data() -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    writer = Writer()
    instructions = [writer.instruction(one) for one in find() if not one.form.is_warpgroup]
    warpgroups = _warpgroups(writer)
    names = {row["name"]: place for place, row in enumerate(instructions)}
    # a warpgroup's instruction has a row with others of its types, and goes by its name
    moves = Moves(writer.texts).written(
        lambda one: [writer.operands.place(one.row), names.get(one.instruction, one.instruction)]
    )
    return {
        "version": __version__,
        "targets": list(targets()),
        "colours": COLOURS,
        "format_bits": writer.format_bits,
        "patterns": writer.patterns,
        "texts": [*map(_of_any_width, writer.texts.entries)],
        "layouts": writer.layouts.entries,
        "operands": writer.operands.entries,
        "evidence": writer.evidence.entries,
        "evidence_sets": writer.evidence_sets.entries,
        "target_sets": writer.target_sets.entries,
        "instructions": instructions,
        "warpgroups": warpgroups,
        **moves,
    }
