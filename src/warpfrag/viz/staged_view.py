"""An operand of wgmma in shared memory: the matrix in units of 16 bytes, and the place where a descriptor finds each.

A unit has the same colour in both pictures, a hue for its place in a line of the matrix and a shade for the line, so
that the eye finds it again. Descriptors of several steps along k show a whole tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from warpfrag.smem.descriptor import lines as lines_of
from warpfrag.smem.descriptor import stored_bits
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS, UNIT
from warpfrag.viz.cells import CellBlock, ColourKey, FigureCell, FigureGrid, HeadingLevel, HeadingMark, ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.tensorcore.operand import Operand
    from warpfrag.viz.cells import Cut

MAX_LINES = 16  # of 128 bytes, and of the matrix, if no others are asked for
ACROSS = BANKS * BANK_BYTES // UNIT  # units in a line of the figure
HUES, SHADES = 8, 4


class MemoryUnit(NamedTuple):
    """16 bytes of the matrix: its line, its number in the line, its first element, and the unit of memory it is in."""

    line: int
    number: int
    row: int
    col: int
    place: int

    @property
    def colour(self) -> int:
        """A hue for the number, a shade for the line."""
        return SHADES * (self.number % HUES) + self.line % SHADES


class UnitFigure(Protocol):
    """What lies in shared memory in units of 16 bytes: an operand of wgmma, or the box of a tensor map."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def letters(self) -> tuple[str, str]:
        """What lines count, and what runs along them."""

    def words(self, unit: MemoryUnit) -> tuple[str, str]:
        """The text of a unit's cell."""

    def units(self) -> Iterator[MemoryUnit]:
        """Every unit, line by line."""


class StagedFigure(NamedTuple):
    """An operand and the descriptors that read it, one for each step along k."""

    operand: Operand
    descriptors: Sequence[Descriptor]
    trans: bool

    @property
    def name(self) -> str:
        """The letter of the operand."""
        return self.operand.role.upper()

    @property
    def letters(self) -> tuple[str, str]:
        """What lines count, and what runs along them."""
        other = "m" if self.operand.role == "a" else "n"
        return ("k", other) if self.trans else (other, "k")

    @property
    def elements(self) -> int:
        """Elements of a unit."""
        return UNIT * 8 // self.bits

    @property
    def bits(self) -> int:
        """The bits that an element takes there: 4- and 6-bit types of tcgen05 are padded to bytes."""
        return stored_bits(self.operand)

    def words(self, unit: MemoryUnit) -> tuple[str, str]:
        """The text of a unit's cell: its line, and the range of its elements."""
        line, along = self.letters
        first = unit.number * self.elements
        return f"{line}{unit.line}:", f"{along}{first}-{first + self.elements - 1}"

    def units(self) -> Iterator[MemoryUnit]:
        """Every unit that is read, step by step and line by line."""
        inner, outer = lines_of(self.operand, trans=self.trans)
        numbers = inner // UNIT
        for step, descriptor in enumerate(self.descriptors):
            memory = self.operand.memory(descriptor, trans=self.trans)
            for line in range(outer):
                for number in range(numbers):
                    at = (line, number * self.elements)
                    is_along_row = (self.operand.role == "a") != self.trans
                    row, col = at if is_along_row else at[::-1]
                    address = memory.address(row=row, col=col, bits=self.bits)
                    further = step * self.operand.shape[1 if self.operand.role == "a" else 0]
                    row, col = (row, col + further) if self.operand.role == "a" else (row + further, col)
                    before = (step * outer, 0) if self.trans else (0, step * numbers)
                    yield MemoryUnit(line + before[0], number + before[1], row, col, address // UNIT)


def staged_grids(staged: UnitFigure, cut: Cut) -> tuple[FigureGrid, ...]:
    """The matrix, and the memory."""
    places: dict[int, list[MemoryUnit]] = {}
    for unit in staged.units():
        places.setdefault(unit.place, []).append(unit)
    memory_lines = sorted({place // ACROSS for place in places})
    first, last = cut.within("rows", len(memory_lines))
    if cut.rows is None:
        last = min(last, MAX_LINES - 1)
    visible = memory_lines[first : last + 1]
    seen = [unit for place, units in sorted(places.items()) if place // ACROSS in visible for unit in units]
    return _matrix_grid(staged, seen), _memory_grid(staged, places, visible)


def left_out(staged: UnitFigure, cut: Cut) -> str:
    """A sentence where not all of the memory is shown."""
    lines = len({unit.place // ACROSS for unit in staged.units()})
    if cut.rows is not None or lines <= MAX_LINES:
        return ""
    return f"Of {lines} lines of memory the first {MAX_LINES} are shown: rows has others."


def _key(staged: UnitFigure, hues: int) -> ColourKey:
    line, along = staged.letters
    words = f"units of 16 bytes: one hue for each unit along {along}, one shade for each of four lines along {line}"
    return ColourKey(words, tuple(f"u{colour // SHADES}" for colour in range(SHADES * hues)))


def _hues(units: Sequence[MemoryUnit]) -> int:
    return min(HUES, max(unit.number for unit in units) + 1)


def _matrix_grid(staged: UnitFigure, seen: list[MemoryUnit]) -> FigureGrid:
    """The lines that the memory below has something of."""
    every = {unit.line for unit in staged.units()}
    lines = sorted({unit.line for unit in seen})[:MAX_LINES]
    units = sorted(unit for unit in staged.units() if unit.line in lines)
    some = f" ({len(lines)} of {len(every)} lines)" if len(lines) < len(every) else ""
    line_word, along = staged.letters
    width = max(unit.number for unit in units) + 1
    cells = [_cell(staged, [unit], (lines.index(unit.line), unit.number)) for unit in units]
    numbers = ticks("unit", 0, width - 1)
    return FigureGrid(
        operand=staged.name.lower(),
        title=f"{staged.name} in units of 16 bytes: {line_word} down, {along} across{some}",
        lanes=SHADES * _hues(units),
        height=len(lines),
        width=width,
        rows=(HeadingLevel(line_word, tuple(HeadingMark(y, y, str(line)) for y, line in enumerate(lines))),),
        cols=(numbers,),
        cells=tuple(cells),
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells),
        key=_key(staged, _hues(units)),
    )


def _memory_grid(staged: UnitFigure, places: dict[int, list[MemoryUnit]], lines: list[int]) -> FigureGrid:
    """Lines of 128 bytes; what no element lies in is grey."""
    cells = tuple(
        _cell(staged, places.get(line * ACROSS + x, []), (y, x)) for y, line in enumerate(lines) for x in range(ACROSS)
    )
    units = [unit for some in places.values() for unit in some]
    line_bytes = ACROSS * UNIT
    return FigureGrid(
        operand=staged.name.lower(),
        title="Shared memory: lines of 128 bytes",
        lanes=SHADES * _hues(units),
        height=len(lines),
        width=ACROSS,
        rows=(HeadingLevel("byte", tuple(HeadingMark(y, y, str(line * line_bytes)) for y, line in enumerate(lines))),),
        cols=(HeadingLevel("bytes", tuple(HeadingMark(x, x, f"+{x * UNIT}") for x in range(ACROSS))),),
        cells=cells,
        blocks=tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells if not cell.unread),
        key=_key(staged, _hues(units)),
    )


def _cell(staged: UnitFigure, units: list[MemoryUnit], at: tuple[int, int]) -> FigureCell:
    named = [" ".join(staged.words(unit)) for unit in units]
    first = units[0] if units else None
    line, along = staged.words(first) if first else ("-", "")
    return FigureCell(
        y=at[0],
        x=at[1],
        coordinates=(("row", first.row), ("col", first.col)) if first else (),
        lane=first.colour if first else 0,
        reg=0,
        slot="",
        lines=(line, along + "+" * (len(units) > 1)) if first else ("-",),
        tip=f"{' and '.join(named)}, at byte {first.place * UNIT}" if first else "not read",
        unread=not units,
    )
