"""Shared memory: lines of 128 bytes, which are the 32 banks, and the lanes whose addresses fall into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.layout.coordinates import LANES
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS, UNIT, bank_loads
from warpfrag.viz.cells import CellBlock, FigureCell, FigureGrid, HeadingLevel, HeadingMark, lane_name
from warpfrag.viz.drawing import Drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.plans.access_plan import Access, AccessPlan

ROW_BYTES = BANKS * BANK_BYTES  # of a line of the figure: each bank once
MAX_ACCESSES = 4  # of one plan that a figure shows

Elements = dict[int, list[tuple[int, int]]]  # by the cell of memory that they start in
Lanes = dict[int, list[int]]  # that give an address in a cell


READING = (
    "A line is 128 bytes, one word of each of the 32 banks. A cell names the lane whose address it is, with + where"
    " more lanes share it, and the elements (row, col) in it where there is room; grey cells are no lane's address."
    " Below the banks stands how many words each request asks of them, set off where that makes lanes wait."
)


def access_drawing(plan: AccessPlan) -> Drawing:
    """The figure of a plan to load or store."""
    toward = "from" if plan.direction == "load" else "to"
    count = len(plan.accesses)
    limited = [f"The first {MAX_ACCESSES} of {count} accesses are shown."] if count > MAX_ACCESSES else []
    return Drawing(
        title=f"{plan.operand.role.upper()} {toward} shared memory: {plan.memory.description}",
        instruction=plan.operand.instruction,
        notes=(f"{plan}.", READING, *limited),
        scenes=tuple((grid,) for grid in access_grids(plan)),
    )


def access_grids(plan: AccessPlan) -> tuple[FigureGrid, ...]:
    """The memory as each access sees it: a cell is as wide as an access, and at least a bank."""
    return tuple(_access_grid(plan, access) for access in plan.accesses[:MAX_ACCESSES])


def _access_grid(plan: AccessPlan, access: Access) -> FigureGrid:
    width = min(UNIT, max(BANK_BYTES, access.width))
    across = ROW_BYTES // width
    elements, lanes = _elements(plan, width), _lanes(access, width)
    lines = sorted({place // across for place in (*elements, *lanes)})
    words = ", ".join(map(str, access.words)) + ("" if access.slot is None else f", element {access.slot}")
    cells = tuple(
        _cell(plan, line * across + x, (y, x), elements, lanes) for y, line in enumerate(lines) for x in range(across)
    )
    per_bank = width // BANK_BYTES
    banks = tuple(
        HeadingMark(x, x, f"{x * per_bank}-{(x + 1) * per_bank - 1}" if per_bank > 1 else str(x)) for x in range(across)
    )
    return FigureGrid(
        operand=plan.operand.role,
        title=f"{access.instruction.replace('.sync.aligned', '')}, word{'s' * (len(access.words) > 1)} {words}",
        lanes=BANKS,
        height=len(lines),
        width=across,
        rows=(HeadingLevel("byte", tuple(HeadingMark(y, y, str(line * ROW_BYTES)) for y, line in enumerate(lines))),),
        cols=(HeadingLevel("banks" if per_bank > 1 else "bank", banks), *_loads(access, per_bank)),
        cells=cells,
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells if not cell.unread),
    )


def _loads(access: Access, per_bank: int) -> Iterator[HeadingLevel]:
    """What the banks have to give to each request, and where that is more than the request needs."""
    requests = access.requests
    for number, request in enumerate(requests):
        loads = bank_loads(request, access.width)
        fair = -(-sum(loads) // BANKS)
        bank_maxima = [max(loads[first : first + per_bank]) for first in range(0, BANKS, per_bank)]
        marks = tuple(HeadingMark(x, x, str(words or "-"), loud=words > fair) for x, words in enumerate(bank_maxima))
        yield HeadingLevel(f"words, matrix {number}" if len(requests) > 1 else "words", marks)


def _elements(plan: AccessPlan, width: int) -> Elements:
    """The elements of the matrix by the cell of memory that they start in."""
    operand = plan.operand
    by_cell: Elements = {}
    rows, cols = operand.layout.shape
    for row in range(rows):
        for col in range(cols):
            address = plan.memory.address(row=row, col=col, bits=operand.spec.container, shape=(rows, cols))
            by_cell.setdefault(address // width, []).append((row, col))
    return by_cell


def _lanes(access: Access, width: int) -> Lanes:
    """The lanes by the cell of memory that their address is in."""
    by_cell: Lanes = {}
    for lane, address in enumerate(access.addresses):
        if address is not None:
            by_cell.setdefault(address // width, []).append(lane)
    return by_cell


def _cell(plan: AccessPlan, place: int, at: tuple[int, int], elements: Elements, lanes: Lanes) -> FigureCell:
    held, givers = elements.get(place, []), lanes.get(place, [])
    words = _range(held)
    named = "" if not givers else lane_name(givers[0]) + "+" * (len(givers) > 1)
    fits_both = len(held) > 2  # a narrow cell has the name of the lane alone
    lines = (f"{named}:", words) if named and fits_both else (named or words or "-",)
    what = f"{plan.operand.role.upper()}[{words.strip('()')}]" if held else "no element"
    tip = f"{what}; " + (f"address of {', '.join(map(lane_name, givers))}" if givers else "no lane's address")
    return FigureCell(
        y=at[0],
        x=at[1],
        coordinates=tuple(zip(("row", "col"), held[0], strict=True)) if held else (),
        lane=givers[0] % LANES if givers else 0,  # the warps of a warpgroup have the same colours
        reg=0,
        slot="",
        lines=lines,
        tip=tip,
        unread=not givers,
    )


def _range(held: list[tuple[int, int]]) -> str:
    """Elements that lie side by side, as row and column; the one that runs as first..last."""
    if not held:
        return ""
    ends = [sorted({element[axis] for element in held}) for axis in (0, 1)]
    return f"({','.join(f'{some[0]}..{some[-1]}' if len(some) > 1 else str(some[0]) for some in ends)})"
