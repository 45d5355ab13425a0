"""Views by lane: a line for each lane, its registers from left to right, low bits first, and what they hold.

Of metadata and scale factors, the fields that the programmer's choice does not read are greyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.layout.coordinates import LANES
from warpfrag.viz.by_element import FieldChoice, field_words
from warpfrag.viz.cells import (
    FigureCell,
    FigureGrid,
    HeadingLevel,
    HeadingMark,
    bit_words,
    block_around,
    element_name,
    lane_name,
    place_words,
)

if TYPE_CHECKING:
    from warpfrag.layout.coordinates import Place
    from warpfrag.tensorcore.operand import Operand, OperandBase


def warp_grid(operand: Operand) -> FigureGrid:
    """The registers of an operand; each cell says the coordinates of the element in it."""
    layout = operand.layout

    def cell(place: Place) -> FigureCell:
        lane, reg, slot = place
        at = layout.at(lane=lane, reg=reg, slot=slot)
        words = ",".join(map(str, at))
        return FigureCell(
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
    return FigureGrid(
        operand=operand.role,
        title=f"{operand.role.upper()} in the registers of the warp{'group' * (layout.lanes > LANES)}",
        lanes=layout.lanes,
        height=layout.lanes,
        width=len(names),
        rows=(lane_level(layout.lanes),),
        cols=(
            *register_levels(operand),
            HeadingLevel("name", tuple(HeadingMark(x, x, name) for x, name in enumerate(names))),
        ),
        cells=tuple(cells),
        blocks=tuple(
            block_around(cells[start : start + operand.slots]) for start in range(0, len(cells), operand.slots)
        ),
    )


def lane_level(lanes: int) -> HeadingLevel:
    """The lanes, each on its colour."""
    return HeadingLevel("lane", tuple(HeadingMark(lane, lane, lane_name(lane), lane) for lane in range(lanes)))


def register_levels(operand: OperandBase) -> tuple[HeadingLevel, HeadingLevel]:
    """Two lines of headings: registers, and the bits of each slot."""
    slots = operand.slots
    registers = (HeadingMark(reg * slots, (reg + 1) * slots - 1, f"reg {reg}") for reg in range(operand.regs))
    bits = (
        HeadingMark(reg * slots + slot, reg * slots + slot, bit_words(operand, slot))
        for reg in range(operand.regs)
        for slot in range(slots)
    )
    return HeadingLevel("register", tuple(registers)), HeadingLevel("bits", tuple(bits))


def field_warp_grid(operand: OperandBase, choice: FieldChoice) -> FigureGrid:
    """The word of every lane; fields that the choice does not read are greyed."""
    layout = operand.layout
    leading = len(choice.at)

    def cell(lane: int, slot: int) -> FigureCell:
        at = layout.at(lane=lane, slot=slot)
        row, col = at[leading:]
        is_read = at[:leading] == choice.at
        return FigureCell(
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
    return FigureGrid(
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
