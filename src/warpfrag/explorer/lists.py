"""The lists of which the page is given each entry once: texts, layouts, operands, evidence, plans.

Whatever names such a thing names its place in the list. A layout travels as what each bit moves: the page joins these
by xor. Formulas travel as text, because `warpfrag.expressions` knows how to write them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from warpfrag.expressions import element_formulas, place_formulas

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from warpfrag.layout import Layout

UNKNOWN = re.compile(r".* is not modelled on sm_\w+: ", re.ASCII)


class Listed:
    """A list without repetitions: `place` says where an entry stands, and adds it if none is written like it."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        """Start empty; `write` turns an entry into what JSON can hold."""
        self.entries: list[Any] = []
        self._write = write
        self._places: dict[Hashable, int] = {}

    def place(self, entry: Hashable) -> int:
        """The place of an entry."""
        if entry not in self._places:
            written = self._write(entry)
            if written not in self.entries:
                self.entries.append(written)
            self._places[entry] = self.entries.index(written)
        return self._places[entry]


class Lists:
    """Every list."""

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
        self.plans = Listed(list)
        self.orders = Listed(list)
        self.format_bits: dict[str, int] = {}

    def _operand(self, row: Any) -> dict[str, Any]:  # noqa: ANN401 (an OperandRow; see Listed)
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
