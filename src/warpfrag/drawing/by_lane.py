"""Views by lane: a line for each lane, its registers from left to right, low bits first, and what they hold.

Of metadata and scale factors, the fields that the programmer's choice does not read are greyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.core.coordinates import LANES
from warpfrag.drawing.by_element import Choice, field_words
from warpfrag.drawing.cells import (
    Cell,
    Grid,
    Level,
    Mark,
    bit_words,
    block_around,
    element_name,
    lane_name,
    place_words,
)

if TYPE_CHECKING:
    from warpfrag.core.coordinates import Place
    from warpfrag.execution.operand import Operand, Registers


def warp_grid(operand: Operand) -> Grid:
    """The registers of an operand; each cell says the coordinates of the element in it."""
    layout = operand.layout

    def cell(place: Place) -> Cell:
        lane, reg, slot = place
        at = layout.at(lane=lane, reg=reg, slot=slot)
        words = ",".join(map(str, at))
        return Cell(
            y=lane,
            x=operand.element(reg=reg, slot=slot),
            coordinates=tuple(at._asdict().items()),
            lane=lane,
            reg=reg,
            slot=str(slot),
            lines=(f"({words})",),
            tip=f"{place_words(operand, place)}: {operand.role.upper()}[{words}]",
        )

    cells = [cell(place) for place in layout.places()]
    names = [element_name(operand, place) for place in layout.places() if place.lane == 0]
    return Grid(
        operand=operand.role,
        title=f"{operand.role.upper()} in the registers of the warp{'group' * (layout.lanes > LANES)}",
        lanes=layout.lanes,
        height=layout.lanes,
        width=len(names),
        rows=(lane_level(layout.lanes),),
        cols=(*register_levels(operand), Level("name", tuple(Mark(x, x, name) for x, name in enumerate(names)))),
        cells=tuple(cells),
        blocks=tuple(
            block_around(cells[start : start + operand.slots]) for start in range(0, len(cells), operand.slots)
        ),
    )


def lane_level(lanes: int) -> Level:
    """The lanes, each on its colour."""
    return Level("lane", tuple(Mark(lane, lane, lane_name(lane), lane) for lane in range(lanes)))


def register_levels(operand: Registers) -> tuple[Level, Level]:
    """Two lines of headings: registers, and the bits of each slot."""
    slots = operand.slots
    registers = (Mark(reg * slots, (reg + 1) * slots - 1, f"reg {reg}") for reg in range(operand.regs))
    bits = (
        Mark(reg * slots + slot, reg * slots + slot, bit_words(operand, slot))
        for reg in range(operand.regs)
        for slot in range(slots)
    )
    return Level("register", tuple(registers)), Level("bits", tuple(bits))


def field_warp_grid(operand: Registers, choice: Choice) -> Grid:
    """The word of every lane; fields that the choice does not read are greyed."""
    layout = operand.layout
    leading = len(choice.at)

    def cell(lane: int, slot: int) -> Cell:
        at = layout.at(lane=lane, slot=slot)
        row, col = at[leading:]
        is_read = at[:leading] == choice.at
        return Cell(
            y=lane,
            x=slot,
            coordinates=(("row", row), ("col", col)),
            lane=lane,
            reg=0,
            slot=str(slot),
            lines=(f"({row},{col})" if is_read else "-",),
            tip=f"{lane_name(lane)} bits {bit_words(operand, slot)}: "
            + (field_words(operand, row, col) if is_read else f"not read with {choice.words}"),
            unread=not is_read,
        )

    cells = [cell(lane, slot) for lane in range(layout.lanes) for slot in range(layout.slots)]
    return Grid(
        operand=operand.role,
        title=f"{operand.role} in the words of the warp, {choice.words}",
        lanes=layout.lanes,
        height=layout.lanes,
        width=layout.slots,
        rows=(lane_level(layout.lanes),),
        cols=register_levels(operand)[1:],
        cells=tuple(cells),
        blocks=(),
    )
