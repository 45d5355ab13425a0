"""Figures of plans: the registers before and after a relayout, and shared memory as loads and stores address it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from warpfrag.grouping import grouped
from warpfrag.layout.coordinates import LANES, Place
from warpfrag.plans.access_plan import Access, AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS, UNIT, bank_loads
from warpfrag.viz import grids
from warpfrag.viz.drawing import GridDrawing
from warpfrag.viz.fragment_grids import warp_grid

RELAYOUT_NOTE = (
    "The source comes first; its cells name the element (row, col) that they hold. In the target, a cell has the colour"
    " of the lane that its element comes from, and names that lane if it differs."
)
ACCESS_NOTE = (
    "A line is 128 bytes, one word of each of the 32 banks. A cell names the lane that addresses it, with + if more"
    " lanes share it, and its elements (row, col) if there is room; no lane addresses grey cells."
    " The numbers below the banks count the words per request; they are highlighted if lanes must wait."
)
LINE_BYTES = BANKS * BANK_BYTES  # a line of the figure contains each bank once
MAX_ACCESSES = 4  # the maximum number of accesses of a plan that a figure shows


def plan_drawing(subject: object) -> GridDrawing | None:
    """Return the figure of a relayout or of a plan to load or store, or None for any other object."""
    if isinstance(subject, Relayout):
        return relayout_drawing(subject)
    return access_drawing(subject) if isinstance(subject, AccessPlan) else None


def relayout_drawing(plan: Relayout) -> GridDrawing:
    """Return the figure of a relayout: the source, and the target in the colours of the source lanes."""
    source, target = warp_grid(plan.source), warp_grid(plan.target)
    cells = tuple(_from_source(plan, cell) for cell in target.cells)
    slots = plan.target.slots
    registers = [cells[start : start + slots] for start in range(0, len(cells), slots)]
    moved = replace(
        target,
        title=f"{plan.target.role.upper()}: where each element comes from",
        cells=cells,
        blocks=tuple(grids.CellBlock(reg[0].y, reg[0].x, reg[-1].y, reg[-1].x, reg[0].lines) for reg in registers),
    )
    return GridDrawing(
        f"From {plan.source.role.upper()} to {plan.target.role.upper()}: {plan}",
        " to ".join(dict.fromkeys((plan.source.instruction, plan.target.instruction))),
        (RELAYOUT_NOTE, plan.verdict, *([plan.permutation_text] if plan.permutation else [])),
        ((source,), (moved,)),
    )


def source_place(plan: Relayout, *, lane: int, reg: int, slot: int) -> Place:
    """Return the source register of a target element; if there are copies, one in the target's lane is preferred."""
    element = plan.target.layout.at(lane=lane, reg=reg, slot=slot)._asdict()
    if plan.permutation:
        axis = plan.permuted or ""
        element[axis] = plan.permutation[element[axis]]
    places = plan.source.layout.where(**element)
    return next((place for place in places if place.lane == lane), places[0])


def _from_source(plan: Relayout, cell: grids.FigureCell) -> grids.FigureCell:
    """Return a target cell, with the source lane added if it differs."""
    place = source_place(plan, lane=cell.y, reg=cell.reg, slot=int(cell.slot))
    name = grids.element_name(plan.source, place)
    stays = place.lane == cell.y
    return cell._replace(
        lane=place.lane,
        lines=(name,) if stays else (f"{grids.lane_name(place.lane)}:", name),
        tip=f"{cell.tip}, from {'its own lane' if stays else grids.lane_name(place.lane)}, {name}",
    )


def access_drawing(plan: AccessPlan) -> GridDrawing:
    """Return the figure of a plan to load or store."""
    toward = "from" if plan.direction == "load" else "to"
    count = len(plan.accesses)
    limited = [f"The first {MAX_ACCESSES} of {count} accesses are shown."] if count > MAX_ACCESSES else []
    return GridDrawing(
        f"{plan.operand.role.upper()} {toward} shared memory: {plan.memory.description}",
        plan.operand.instruction,
        (f"{plan}.", ACCESS_NOTE, *limited),
        tuple((_access_grid(plan, access),) for access in plan.accesses[:MAX_ACCESSES]),
    )


def _access_grid(plan: AccessPlan, access: Access) -> grids.FigureGrid:
    """Return the grid of the memory that one access uses; a cell is as wide as the access, between 4 and 16 bytes."""
    width = min(UNIT, max(BANK_BYTES, access.width))
    across, per_bank = LINE_BYTES // width, width // BANK_BYTES
    operand = plan.operand
    rows, cols = operand.layout.shape
    place = partial(plan.memory.address, bits=operand.spec.container, shape=(rows, cols))
    starts = ((place(row=row, col=col), (row, col)) for row in range(rows) for col in range(cols))
    elements = grouped((address // width, at) for address, at in starts)  # by the cell in which they start
    addresses = ((lane, address) for lane, address in enumerate(access.addresses) if address is not None)
    lanes = grouped((address // width, lane) for lane, address in addresses)  # by the cell that they address
    lines = sorted({index // across for index in (*elements, *lanes)})
    cells = tuple(
        _access_cell(operand.role, (y, x), elements.get(line * across + x, []), lanes.get(line * across + x, []))
        for y, line in enumerate(lines)
        for x in range(across)
    )
    banks = [f"{x * per_bank}-{(x + 1) * per_bank - 1}" if per_bank > 1 else x for x in range(across)]
    words = ", ".join(map(str, access.words)) + ("" if access.slot is None else f", element {access.slot}")
    return grids.FigureGrid(
        operand.role,
        f"{access.instruction.replace('.sync.aligned', '')}, word{'s' * (len(access.words) > 1)} {words}",
        BANKS,
        (grids.labels("byte", [line * LINE_BYTES for line in lines]),),
        (grids.labels("banks" if per_bank > 1 else "bank", banks), *_bank_levels(access, per_bank)),
        cells,
        grids.single_blocks(cell for cell in cells if not cell.unread),
    )


def _bank_levels(access: Access, per_bank: int) -> Iterator[grids.HeadingLevel]:
    """Yield a heading for each request with its number of words per bank; banks with conflicts are highlighted."""
    requests = access.requests
    for number, request in enumerate(requests):
        loads = bank_loads(request, access.width)
        fair = -(-sum(loads) // BANKS)
        bank_maxima = [max(loads[first : first + per_bank]) for first in range(0, BANKS, per_bank)]
        marks = tuple(
            grids.HeadingMark(x, x, str(words or "-"), loud=words > fair) for x, words in enumerate(bank_maxima)
        )
        yield grids.HeadingLevel(f"words, matrix {number}" if len(requests) > 1 else "words", marks)


def _access_cell(role: str, yx: tuple[int, int], held: list[tuple[int, int]], lanes: list[int]) -> grids.FigureCell:
    words = _elements_text(held)
    named = "" if not lanes else grids.lane_name(lanes[0]) + "+" * (len(lanes) > 1)
    fits_both = len(held) > 2  # a narrow cell shows only the lane
    lines = (f"{named}:", words) if named and fits_both else (named or words or "-",)
    tip = f"{role.upper()}[{words.strip('()')}]; " if held else "no element; "
    tip += f"address of {', '.join(map(grids.lane_name, lanes))}" if lanes else "no lane's address"
    coordinates = tuple(zip(("row", "col"), held[0], strict=True)) if held else ()
    colour = lanes[0] % LANES if lanes else 0  # the warps of a warpgroup share their colours
    return grids.FigureCell(*yx, coordinates, colour, lines, tip, unread=not lanes)


def _elements_text(held: list[tuple[int, int]]) -> str:
    """Return adjacent elements as (row,col), with the coordinate that varies as first..last."""
    if not held:
        return ""
    ends = [sorted({element[axis] for element in held}) for axis in (0, 1)]
    return f"({','.join(f'{some[0]}..{some[-1]}' if len(some) > 1 else str(some[0]) for some in ends)})"
