"""Shared memory: lines of 128 bytes, which are the 32 banks, and the lanes whose addresses fall into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.core.coordinates import LANES
from warpfrag.drawing.cells import Block, Cell, Grid, Level, Mark, lane_name
from warpfrag.drawing.drawing import Drawing
from warpfrag.memory.shared_memory import BANK_BYTES, BANKS, UNIT, bank_loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.motion.access import Access
    from warpfrag.motion.access_plan import Way

ROW_BYTES = BANKS * BANK_BYTES  # of a line of the figure: each bank once
MOST_ACCESSES = 4  # of one way that a figure shows

Elements = dict[int, list[tuple[int, int]]]  # by the cell of memory that they start in
Lanes = dict[int, list[int]]  # that give an address in a cell


READING = (
    "A line is 128 bytes, one word of each of the 32 banks. A cell names the lane whose address it is, with + where"
    " more lanes share it, and the elements (row, col) in it where there is room; grey cells are no lane's address."
    " Below the banks stands how many words each request asks of them, set off where that makes lanes wait."
)


def way_drawing(way: Way) -> Drawing:
    """The figure of a way to load or store."""
    toward = "from" if way.direction == "load" else "to"
    count = len(way.accesses)
    shown = [f"The first {MOST_ACCESSES} of {count} accesses are shown."] if count > MOST_ACCESSES else []
    return Drawing(
        title=f"{way.operand.role.upper()} {toward} shared memory: {way.memory.described}",
        instruction=way.operand.instruction,
        notes=(f"{way}.", READING, *shown),
        scenes=tuple((grid,) for grid in way_grids(way)),
    )


def way_grids(way: Way) -> tuple[Grid, ...]:
    """The memory as each access sees it: a cell is as wide as an access, and at least a bank."""
    return tuple(_access_grid(way, access) for access in way.accesses[:MOST_ACCESSES])


def _access_grid(way: Way, access: Access) -> Grid:
    width = min(UNIT, max(BANK_BYTES, access.width))
    across = ROW_BYTES // width
    elements, lanes = _elements(way, width), _lanes(access, width)
    lines = sorted({place // across for place in (*elements, *lanes)})
    words = ", ".join(map(str, access.words)) + ("" if access.slot is None else f", element {access.slot}")
    cells = tuple(
        _cell(way, line * across + x, (y, x), elements, lanes) for y, line in enumerate(lines) for x in range(across)
    )
    per_bank = width // BANK_BYTES
    banks = tuple(
        Mark(x, x, f"{x * per_bank}-{(x + 1) * per_bank - 1}" if per_bank > 1 else str(x)) for x in range(across)
    )
    return Grid(
        operand=way.operand.role,
        title=f"{access.instruction.replace('.sync.aligned', '')}, word{'s' * (len(access.words) > 1)} {words}",
        lanes=BANKS,
        height=len(lines),
        width=across,
        rows=(Level("byte", tuple(Mark(y, y, str(line * ROW_BYTES)) for y, line in enumerate(lines))),),
        cols=(Level("banks" if per_bank > 1 else "bank", banks), *_loads(access, per_bank)),
        cells=cells,
        blocks=tuple(Block(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells if not cell.unread),
    )


def _loads(access: Access, per_bank: int) -> Iterator[Level]:
    """What the banks have to give to each request, and where that is more than the request needs."""
    requests = access.requests
    for number, request in enumerate(requests):
        loads = bank_loads(request, access.width)
        fair = -(-sum(loads) // BANKS)
        most = [max(loads[first : first + per_bank]) for first in range(0, BANKS, per_bank)]
        marks = tuple(Mark(x, x, str(words or "-"), loud=words > fair) for x, words in enumerate(most))
        yield Level(f"words, matrix {number}" if len(requests) > 1 else "words", marks)


def _elements(way: Way, width: int) -> Elements:
    """The elements of the matrix by the cell of memory that they start in."""
    operand = way.operand
    found: Elements = {}
    rows, cols = operand.layout.shape
    for row in range(rows):
        for col in range(cols):
            address = way.memory.address(row=row, col=col, bits=operand.row.container, shape=(rows, cols))
            found.setdefault(address // width, []).append((row, col))
    return found


def _lanes(access: Access, width: int) -> Lanes:
    """The lanes by the cell of memory that their address is in."""
    found: Lanes = {}
    for lane, address in enumerate(access.addresses):
        if address is not None:
            found.setdefault(address // width, []).append(lane)
    return found


def _cell(way: Way, place: int, at: tuple[int, int], elements: Elements, lanes: Lanes) -> Cell:
    held, givers = elements.get(place, []), lanes.get(place, [])
    words = _range(held)
    named = "" if not givers else lane_name(givers[0]) + "+" * (len(givers) > 1)
    room = ROW_BYTES // BANKS * len(held)  # cells of one bank have room for the lane alone
    lines = (f"{named}:", words) if named and room > BANK_BYTES * 2 else (named or words or "-",)
    what = f"{way.operand.role.upper()}[{words.strip('()')}]" if held else "no element"
    tip = f"{what}; " + (f"address of {', '.join(map(lane_name, givers))}" if givers else "no lane's address")
    return Cell(
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
    ends = [sorted({one[axis] for one in held}) for axis in (0, 1)]
    return f"({','.join(f'{some[0]}..{some[-1]}' if len(some) > 1 else str(some[0]) for some in ends)})"
