"""What each element of a fragment's `x` is, on an architecture where somebody measured it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import check_index
from warpfrag.layout.index_expressions import element_formulas
from warpfrag.tensorcore.evidence import Evidence

if TYPE_CHECKING:
    from warpfrag.layout.coordinates import Coordinate
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import Operand


class ElementPlace(NamedTuple):
    """Where an element is: `x[t, lane]`, and which of the elements in that storage word, low bits first."""

    t: int
    lane: int
    slot: int


@dataclass(frozen=True)
class ElementMap:
    """The map of one fragment: from `x[t, lane]` to rows and columns, and back."""

    operand: Operand
    arch: str
    is_packed: bool

    @property
    def linear(self) -> Layout:
        """The map of the registers; raises NotModelled where nobody measured it."""
        return self.operand.layout

    @property
    def evidence(self) -> Evidence:
        """How it is known: always by measurement, because the ISA leaves these maps open."""
        return Evidence("hardware", self.operand.source, authority="measured")

    @property
    def formulas(self) -> dict[str, str]:
        """Row and col from `lane` and `i`; i is t, or for sub-byte types t times the elements in a word, and slot."""
        return element_formulas(self.linear)

    @property
    def slots(self) -> int:
        """Elements in one storage element: 1, but for sub-byte types."""
        return self.operand.slots if self.is_packed else 1

    def at(self, *, t: int, lane: int, slot: int = 0) -> Coordinate:
        """Row and col of what `x[t, lane]` holds; of sub-byte types, of the element in a slot of that word."""
        check_index("t", t, self.operand.regs * self.operand.slots // self.slots)
        check_index("slot", slot, self.slots)
        reg, place = divmod(t * self.slots + slot, self.operand.slots)
        return self.linear.at(lane=lane, reg=reg, slot=place)

    def where(self, *, row: int, col: int) -> list[ElementPlace]:
        """Every place that holds an element; the first is the one mma_sync reads."""
        places = self.linear.where(row=row, col=col)
        return [
            ElementPlace(number // self.slots, place.lane, number % self.slots)
            for place in places
            for number in [self.operand.element(reg=place.reg, slot=place.slot)]
        ]

    def __str__(self) -> str:
        """The formulas in a sentence, then how they are known."""
        rules = ", ".join(f"{name} = {rule}" for name, rule in self.formulas.items())
        index = "x[i, lane]" if self.slots == 1 else f"element i % {self.slots} of x[i / {self.slots}, lane]"
        copies = f"; each element has {self.linear.copies} copies" if self.linear.copies > 1 else ""
        return f"{index} on {self.arch}: {rules}{copies} ({self.evidence.level}: {self.evidence.detail})"
