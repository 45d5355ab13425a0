"""The threads of a warpgroup counted through, as the figures of the ISA do: T37 is lane 5 of warp 1.

Figures know lanes only. So an operand in the registers of a warpgroup becomes one of 128 lanes before it is drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from warpfrag.layout import Layout

if TYPE_CHECKING:
    from warpfrag.operand import Registers

Held = TypeVar("Held", bound="Registers")


def in_threads(operand: Held) -> Held:
    """The same operand, its warps and lanes as one count of lanes; one of a single warp as it is."""
    if operand.home == "shared" or "warp" not in operand.row.layout.ins:
        return operand
    return replace(operand, row=replace(operand.row, layout=thread_layout(operand.row.layout)))


def thread_layout(layout: Layout) -> Layout:
    """The same layout, its warps and lanes as one count of lanes."""
    if "warp" not in layout.ins:
        return layout
    bases = layout.bases
    return Layout.parse(layout.outs, lane=f"{bases['lane']} {bases['warp']}", reg=bases["reg"], slot=bases["slot"])
