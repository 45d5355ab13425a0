"""Figures of shared memory in units of 16 bytes: operands of wgmma and tcgen05, and boxes of tensor maps.

A figure shows the matrix (or the box) and the memory. A unit has the same colour in both: a hue for its index in a line
and a shade for the line. Several descriptors, one for each instruction along k, show a whole tile. A line of a box is
one combination of indices of its outer axes or, for im2col, one pixel.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from warpfrag.errors import InvalidOperand
from warpfrag.grouping import grouped
from warpfrag.smem.descriptor import Descriptor, stored_bits
from warpfrag.smem.descriptor import lines as lines_of
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS, UNIT
from warpfrag.smem.tensor_map import TensorMapFields
from warpfrag.tensorcore.operand import Operand
from warpfrag.viz.drawing import GridDrawing
from warpfrag.viz.grids import ColourKey, Cut, FigureCell, FigureGrid, labels, single_blocks, ticks

MAX_LINES = 16  # the lines of memory and of the matrix that are shown by default
MAX_BOX_UNITS = 16  # the maximum number of units in a line of a box; if lines are longer, only memory is shown
ACROSS = BANKS * BANK_BYTES // UNIT  # the number of units in a line of the figure
HUES, SHADES = 8, 4


class MemoryUnit(NamedTuple):
    """A 16-byte unit of the matrix: its line, its position in the line, its first element, and its unit in memory."""

    line: int
    position: int
    row: int
    col: int
    place: int

    @property
    def colour(self) -> int:
        """The colour of the unit: a hue for its position in the line, and a shade for the line."""
        return SHADES * (self.position % HUES) + self.line % SHADES


class StagedFigure:
    """An operand and the descriptors that read it, one for each instruction along k."""

    def __init__(self, operand: Operand, descriptors: Sequence[Descriptor], *, trans: bool) -> None:
        """Create the figure; with `trans`, the operand is MN-major."""
        self.operand, self.descriptors, self.trans = operand, descriptors, trans
        self.name = operand.role.upper()
        outer = "m" if operand.role == "a" else "n"
        self.letters = ("k", outer) if trans else (outer, "k")
        self.bits = stored_bits(operand)  # tcgen05 pads 4- and 6-bit types to bytes
        self.elements = UNIT * 8 // self.bits

    def words(self, unit: MemoryUnit) -> tuple[str, str]:
        """Return the text of a unit's cell: its line, and the range of its elements."""
        line, along = self.letters
        first = unit.position * self.elements
        return f"{line}{unit.line}:", f"{along}{first}-{first + self.elements - 1}"

    def units(self) -> Iterator[MemoryUnit]:
        """Yield every unit that is read, instruction by instruction and line by line."""
        inner, outer = lines_of(self.operand, trans=self.trans)
        count, is_a = inner // UNIT, self.operand.role == "a"
        depth = self.operand.shape[1 if is_a else 0]
        for step, descriptor in enumerate(self.descriptors):
            memory = self.operand.memory(descriptor, trans=self.trans)
            before = (step * outer, 0) if self.trans else (0, step * count)
            for line in range(outer):
                for index in range(count):
                    at = (line, index * self.elements)
                    row, col = at if is_a != self.trans else at[::-1]
                    address = memory.address(row=row, col=col, bits=self.bits)
                    row, col = (row, col + step * depth) if is_a else (row + step * depth, col)
                    yield MemoryUnit(line + before[0], index + before[1], row, col, address // UNIT)


class BoxFigure:
    """The figure of a tensor map's box."""

    def __init__(self, fields: TensorMapFields) -> None:
        """Create the figure for the fields of a map."""
        self.fields = fields
        self.name = "The box"
        self.letters = ("pixel", "channel") if fields.im2col else ("row", "pixel" if fields.interleave else "column")
        self.row_bytes = fields.box_shape[0] * fields.element.bytes

    def words(self, unit: MemoryUnit) -> tuple[str, str]:
        """Return the text of a unit's cell: its line, and the range of its elements."""
        fields = self.fields
        per_unit = UNIT // fields.element.bytes
        first = unit.position * per_unit
        if fields.interleave and fields.im2col is None:
            pixel, first = divmod(first, fields.elements_per_index)
            part = f" c{first}-{first + per_unit - 1}" if fields.interleave > UNIT else ""
            return f"r{unit.line}:", f"x{pixel}{part}"
        return f"{self.letters[0][0]}{unit.line}:", f"c{first}-{first + per_unit - 1}"

    def units(self) -> Iterator[MemoryUnit]:
        """Yield every unit that is copied, line by line."""
        across = self.row_bytes // UNIT
        for number, address in enumerate(self.fields.shared_units(0).tolist()):
            line, index = divmod(number, across)
            yield MemoryUnit(line, index, line, index * UNIT // self.fields.element.bytes, address // UNIT)


UnitFigure: TypeAlias = StagedFigure | BoxFigure


def box_drawing(described: str, fields: TensorMapFields, cut: Cut) -> GridDrawing:
    """Return the figure of a tensor map; raise an error if the driver would reject the map."""
    problems = fields.problems()
    if problems:
        raise InvalidOperand(f"the driver would reject {described}: {'; '.join(problems)}")
    figure = BoxFigure(fields)
    extents = " x ".join(map(str, fields.box_shape[::-1]))
    notes = [f"A box is {extents} of {fields.element.name}: a copy completes {fields.box_bytes} bytes on its mbarrier."]
    swizzle = (
        f"16-byte units are permuted by the {fields.swizzle}-byte swizzle" if fields.swizzle else "without swizzle"
    )
    gap = f", rows are {fields.shared_pitch} bytes apart" if fields.shared_pitch > figure.row_bytes else ""
    notes.append(f"The box begins at byte 0, a multiple of 1024; {swizzle}{gap}.")
    if fields.interleave:
        notes.append(f"A pixel has {fields.interleave} bytes, one slice of its channels.")
    if len(fields.box_shape) > 2:
        notes.append("Rows enumerate the indices of the outer axes; the last of these axes varies fastest.")
    notes += left_out(figure, cut)
    grids = staged_grids(figure, cut)
    if figure.row_bytes // UNIT > MAX_BOX_UNITS:
        grids = grids[1:]
    scenes = tuple((grid,) for grid in grids)
    return GridDrawing("A box of a tensor map, in shared memory", described, tuple(notes), scenes)


def staged_grids(figure: UnitFigure, cut: Cut) -> tuple[FigureGrid, ...]:
    """Return the grids of the matrix and of the memory."""
    places = grouped((unit.place, unit) for unit in figure.units())
    memory_lines = sorted({place // ACROSS for place in places})
    first, last = cut.within("rows", len(memory_lines))
    if cut.rows is None:
        last = min(last, MAX_LINES - 1)
    visible = memory_lines[first : last + 1]
    seen = {unit.line for place, units in places.items() if place // ACROSS in visible for unit in units}
    return _matrix_grid(figure, sorted(seen)[:MAX_LINES]), _memory_grid(figure, places, visible)


def left_out(figure: UnitFigure, cut: Cut) -> list[str]:
    """Return a list with a sentence about the memory that is not shown; the list is empty if all is shown."""
    lines = len({unit.place // ACROSS for unit in figure.units()})
    if cut.rows is not None or lines <= MAX_LINES:
        return []
    return [f"Only the first {MAX_LINES} of {lines} lines of memory are shown; select others with rows."]


def _grid(
    figure: UnitFigure, title: str, units: list[MemoryUnit], rows: tuple[str, list[object]], cells: list[FigureCell]
) -> FigureGrid:
    """Return a grid with a legend; cells that are not read belong to no block."""
    line, along = figure.letters
    colours = SHADES * min(HUES, max(unit.position for unit in units) + 1)
    words = f"units of 16 bytes: one hue for each unit along {along}, one shade for each of four lines along {line}"
    key = ColourKey(words, tuple(f"u{colour // SHADES}" for colour in range(colours)))
    is_memory = rows[0] == "byte"
    width = ACROSS if is_memory else max(unit.position for unit in units) + 1
    cols = labels("bytes", [f"+{x * UNIT}" for x in range(ACROSS)]) if is_memory else ticks("unit", 0, width - 1)
    blocks = single_blocks(cell for cell in cells if not cell.unread)
    return FigureGrid(figure.name.lower(), title, colours, (labels(*rows),), (cols,), tuple(cells), blocks, key=key)


def _matrix_grid(figure: UnitFigure, lines: list[int]) -> FigureGrid:
    """Return the grid of the matrix lines that have an element in the visible memory."""
    count = len({unit.line for unit in figure.units()})
    units = sorted(unit for unit in figure.units() if unit.line in lines)
    some = f" ({len(lines)} of {count} lines)" if len(lines) < count else ""
    line_word, along = figure.letters
    cells = [_unit_cell(figure, [unit], (lines.index(unit.line), unit.position)) for unit in units]
    title = f"{figure.name} in units of 16 bytes: {line_word} down, {along} across{some}"
    return _grid(figure, title, units, (line_word, [*lines]), cells)


def _memory_grid(figure: UnitFigure, places: dict[int, list[MemoryUnit]], lines: list[int]) -> FigureGrid:
    """Return the grid of memory in lines of 128 bytes; units without an element are grey."""
    cells = [
        _unit_cell(figure, places.get(line * ACROSS + x, []), (y, x))
        for y, line in enumerate(lines)
        for x in range(ACROSS)
    ]
    units = [unit for some in places.values() for unit in some]
    rows: list[object] = [line * ACROSS * UNIT for line in lines]
    return _grid(figure, "Shared memory: lines of 128 bytes", units, ("byte", rows), cells)


def _unit_cell(figure: UnitFigure, units: list[MemoryUnit], yx: tuple[int, int]) -> FigureCell:
    if not units:
        return FigureCell(*yx, (), 0, ("-",), "not read", unread=True)
    first = units[0]
    line, along = figure.words(first)
    tip = f"{' and '.join(' '.join(figure.words(unit)) for unit in units)}, at byte {first.place * UNIT}"
    coordinates = (("row", first.row), ("col", first.col))
    return FigureCell(*yx, coordinates, first.colour, (line, along + "+" * (len(units) > 1)), tip)
