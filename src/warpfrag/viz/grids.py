"""Grids of cells with headings: the contents of a figure, independent of its output format.

A `FigureGrid` is a picture of one matrix, of registers or of memory. A `FigureCell` is one element of it. A `CellBlock`
is a run of cells in one register, which share a label if cells are too small for text. SVG and terminal text are
both written from grids, so they always agree. A `Cut` selects the part of a matrix that a grid shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import Place
from warpfrag.tensorcore.operand import Operand, OperandBase

Range = tuple[int, int]  # first and last index, inclusive


class Cut(NamedTuple):
    """The rows, columns and parts to show, as (first, last); None shows all of them.

    Parts are the four products of m8n8k4 or the matrices of ldmatrix.
    """

    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None

    def within(self, name: str, extent: int) -> Range:
        """Return the requested range, or the whole one; raise InvalidOperand unless it is within 0..extent-1."""
        asked: Range | None = getattr(self, name)
        if asked is None:
            return 0, extent - 1
        pair = isinstance(asked, tuple | list) and len(asked) == 2 and all(isinstance(index, int) for index in asked)
        if not pair or not 0 <= asked[0] <= asked[1] < extent:
            raise InvalidOperand(f"{name}: expected (first, last) in 0..{extent - 1}, got {quote(asked)}")
        return asked

    def reject(self, figure: str) -> None:
        """Raise InvalidOperand if a part of `figure` is requested, because it is always drawn whole."""
        cuts = [name for name, asked in self._asdict().items() if asked is not None]
        if cuts:
            raise InvalidOperand(
                f"{figure} does not take {' and '.join(cuts)}; draw one operand in its matrix or logical view instead"
            )


EVERYTHING = Cut()


class FigureCell(NamedTuple):
    """One element, at row y and column x of the picture.

    `coordinates` are those of the element, by name. `lane`, `reg` and `slot` are those of its first holder; in the
    logical view of a sparse A, `slot` lists every slot that may hold it. `lines` is the text in the cell, with all
    holders, and `tip` the tooltip. The instruction does not read an `unread` cell.
    """

    y: int
    x: int
    coordinates: tuple[tuple[str, int], ...]
    lane: int
    lines: tuple[str, ...]
    tip: str
    reg: int = 0
    slot: str = ""
    unread: bool = False


class CellBlock(NamedTuple):
    """A rectangle of cells, inclusive, and their common text, which is empty if each cell has its own text."""

    top: int
    left: int
    bottom: int
    right: int
    lines: tuple[str, ...]


class HeadingMark(NamedTuple):
    """A text next to rows or above columns, from first to last; if `lane` is given, in that lane's colour.

    A `loud` mark is highlighted, to show a bank conflict.
    """

    first: int
    last: int
    words: str
    lane: int | None = None
    loud: bool = False


class HeadingLevel(NamedTuple):
    """One line of headings along an axis, and the name of the counted coordinate."""

    name: str
    marks: tuple[HeadingMark, ...]


Levels = tuple[HeadingLevel, ...]


class ColourKey(NamedTuple):
    """A legend for colours that do not represent lanes: a sentence, and a name for each colour."""

    words: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class FigureGrid:
    """One picture: cells, blocks, and heading levels, outermost first.

    The text of a cell is stacked if it is too long for one line, or if the grid `is_stacked`. `lanes` is the number of
    lanes of the layout, even if a cut hides some of them, or the number of colours in `key`.
    """

    operand: str
    title: str
    lanes: int
    rows: Levels
    cols: Levels
    cells: tuple[FigureCell, ...]
    blocks: tuple[CellBlock, ...]
    words_on_blocks: bool = False
    key: ColourKey | None = None
    is_stacked: bool = False

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.rows[-1].marks[-1].last + 1

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.cols[-1].marks[-1].last + 1


Scene = tuple[FigureGrid, ...]  # one grid, or the grids of an mma: A, B and D, then metadata and scale factors


def ticks(name: str, first: int, last: int) -> HeadingLevel:
    """Return a heading with the numbers from `first` to `last`."""
    return labels(name, range(first, last + 1))


def labels(name: str, texts: Iterable[object]) -> HeadingLevel:
    """Return a heading with one text for each row or column."""
    return HeadingLevel(name, tuple(HeadingMark(index, index, str(text)) for index, text in enumerate(texts)))


def range_text(first: int, last: int) -> str:
    """Return a range as first-last, or as one number."""
    return f"{first}-{last}" if last > first else f"{first}"


def single_blocks(cells: Iterable[FigureCell]) -> tuple[CellBlock, ...]:
    """Return a block for each cell."""
    return tuple(CellBlock(cell.y, cell.x, cell.y, cell.x, cell.lines) for cell in cells)


def block_around(cells: list[FigureCell]) -> CellBlock:
    """Return the block around a run of cells; if the first and last texts differ, the block's text joins them."""
    first, last = cells[0], cells[-1]
    lines = (low if low == high else f"{low}..{high}" for low, high in zip(first.lines, last.lines, strict=True))
    return CellBlock(first.y, first.x, last.y, last.x, tuple(lines))


def lane_name(lane: int) -> str:
    """Return the name of a lane in the figures of the PTX ISA."""
    return f"T{lane}"


def element_name(operand: Operand, place: Place) -> str:
    """Return the PTX name of an element: a0, a1, ..."""
    return f"{operand.role}{operand.element(reg=place.reg, slot=place.slot)}"


def place_words(operand: Operand, place: Place) -> str:
    """Return the lane, element name, register and bits as one phrase, for tooltips."""
    name = element_name(operand, place)
    return f"{lane_name(place.lane)} {name} r{place.reg}[{bit_words(operand, place.slot)}]"


def bit_words(operand: OperandBase, slot: int) -> str:
    """Return the bits of a slot: `31:16`, or `7` for a single bit."""
    high, low = operand.bits(slot)
    return f"{high}:{low}" if high > low else f"{low}"
