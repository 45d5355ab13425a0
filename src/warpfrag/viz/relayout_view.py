"""A relayout: the registers of the source, and those of the target, each in the colour of the lane it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpfrag.viz.by_lane import warp_grid
from warpfrag.viz.cells import CellBlock, FigureCell, element_name, lane_name
from warpfrag.viz.drawing import Drawing

if TYPE_CHECKING:
    from warpfrag.layout.coordinates import Place
    from warpfrag.plans.relayout import Relayout
    from warpfrag.viz.cells import FigureGrid


READING = (
    "First the source: its cells say which element (row, col) they hold. Then the target: a cell has the colour of the"
    " lane that its element comes from, and names that lane where it is another one."
)


def relayout_drawing(plan: Relayout) -> Drawing:
    """The figure of a relayout."""
    source, target = plan.source, plan.target
    return Drawing(
        title=f"From {source.role.upper()} to {target.role.upper()}: {plan}",
        instruction=" to ".join(dict.fromkeys((source.instruction, target.instruction))),
        notes=(READING, plan.verdict, *([plan.permutation_text] if plan.permutation else [])),
        scenes=tuple((grid,) for grid in relayout_grids(plan)),
    )


def relayout_grids(plan: Relayout) -> tuple[FigureGrid, FigureGrid]:
    """The source, whose cells name the element they hold; the target, whose cells name where it comes from."""
    source, target = warp_grid(plan.source), warp_grid(plan.target)
    cells = tuple(_from_source(plan, cell) for cell in target.cells)
    slots = plan.target.slots
    return source, replace(
        target,
        title=f"{plan.target.role.upper()}: where each element comes from",
        cells=cells,
        blocks=tuple(_register(cells[start : start + slots]) for start in range(0, len(cells), slots)),
    )


def _register(cells: tuple[FigureCell, ...]) -> CellBlock:
    """The outline of a register; where cells are too small for text, it has the text of the first."""
    first, last = cells[0], cells[-1]
    return CellBlock(first.y, first.x, last.y, last.x, first.lines)


def source_place(plan: Relayout, *, lane: int, reg: int, slot: int) -> Place:
    """The place of the source whose element a place of the target gets: of several copies, the one in its own lane."""
    element = plan.target.layout.at(lane=lane, reg=reg, slot=slot)._asdict()
    if plan.permutation:
        axis = plan.permuted or ""
        element[axis] = plan.permutation[element[axis]]
    places = plan.source.layout.where(**element)
    return next((place for place in places if place.lane == lane), places[0])


def _from_source(plan: Relayout, cell: FigureCell) -> FigureCell:
    """A cell of the target; only what comes from another lane names it."""
    place = source_place(plan, lane=cell.y, reg=cell.reg, slot=int(cell.slot))
    name = element_name(plan.source, place)
    stays = place.lane == cell.y
    return cell._replace(
        lane=place.lane,
        lines=(name,) if stays else (f"{lane_name(place.lane)}:", name),
        tip=f"{cell.tip}, from {'its own lane' if stays else lane_name(place.lane)}, {name}",
    )
