"""What a figure shows, independent of its output format: grids of cells with headings.

A `Grid` is a picture of one matrix, or of the registers of the warp. A `Cell` is one element; a `Block` is a run of
cells that sit in one register, which share a label where cells are too small for words. SVG and terminal text are
both written from grids, so they cannot disagree. A `Cut` says which part of a matrix a grid shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from warpfrag.layout.coordinates import Place
    from warpfrag.tensorcore.operand import Operand, OperandBase

Range = tuple[int, int]  # first and last, both included


class Cut(NamedTuple):
    """What to show: rows, columns, and parts (products of m8n8k4, matrices of ldmatrix); None is everything."""

    rows: Range | None = None
    cols: Range | None = None
    parts: Range | None = None

    def within(self, name: str, extent: int) -> Range:
        """The range that is asked for, refused where it leaves 0..extent-1."""
        asked: Range | None = getattr(self, name)
        if asked is None:
            return 0, extent - 1
        pair = isinstance(asked, tuple | list) and len(asked) == 2 and all(isinstance(index, int) for index in asked)
        if not pair or not 0 <= asked[0] <= asked[1] < extent:
            msg = f"{name} is (first, last) with 0 <= first <= last <= {extent - 1}, got {quote(asked)}"
            raise InvalidOperand(msg)
        return asked

    def refuse(self, what: str) -> None:
        """Refuse a cut where there is nothing to cut."""
        cuts = [name for name, asked in self._asdict().items() if asked is not None]
        if cuts:
            msg = f"{what} cannot be cut, got {' and '.join(cuts)}; name one operand and its matrix or logical view"
            raise InvalidOperand(msg)


EVERYTHING = Cut()


class FigureCell(NamedTuple):
    """One element at row y and column x of the picture.

    `coordinates` are those of the element, by name; lane, reg and slot are those of its first holder (in the logical
    view of a sparse A, slot lists every slot that may hold it). `lines` is what is written into it, all holders
    included, and `tip` the full text of its tooltip. A cell that the instruction does not read is `unread`.
    """

    y: int
    x: int
    coordinates: tuple[tuple[str, int], ...]
    lane: int
    reg: int
    slot: str
    lines: tuple[str, ...]
    tip: str
    unread: bool = False


class CellBlock(NamedTuple):
    """A rectangle of cells of one register, ends included, and their common text; empty if each has its own."""

    top: int
    left: int
    bottom: int
    right: int
    lines: tuple[str, ...]


class HeadingMark(NamedTuple):
    """Words beside the rows (or above the columns) first to last; on the colour of a lane if one is named.

    A mark that is `loud` is highlighted: it marks a bank conflict.
    """

    first: int
    last: int
    words: str
    lane: int | None = None
    loud: bool = False


class HeadingLevel(NamedTuple):
    """One line of headings along an axis, and what it counts."""

    name: str
    marks: tuple[HeadingMark, ...]


class ColourKey(NamedTuple):
    """What the colours of a figure stand for, where these are no lanes: a sentence, and a name for each colour."""

    words: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class FigureGrid:
    """One picture: cells, blocks, and headings from the outside in; strokes in every row mark each `ruled` columns.

    The lines of a cell stand below each other where they are too long for one line, or where it `is_stacked`.
    `lanes` is how many lanes the layout has, whether or not a cut leaves something of each; or how many colours
    there are, where a `key` says what else they stand for.
    """

    operand: str
    title: str
    lanes: int
    height: int
    width: int
    rows: tuple[HeadingLevel, ...]
    cols: tuple[HeadingLevel, ...]
    cells: tuple[FigureCell, ...]
    blocks: tuple[CellBlock, ...]
    words_on_blocks: bool = False
    ruled: int = 0
    key: ColourKey | None = None
    is_stacked: bool = False


def ticks(name: str, first: int, last: int) -> HeadingLevel:
    """A heading that counts first..last."""
    return HeadingLevel(name, tuple(HeadingMark(place, place, str(first + place)) for place in range(last - first + 1)))


def block_around(cells: list[FigureCell]) -> CellBlock:
    """The block of a run of cells: the texts of the first and the last, joined where they differ."""
    first, last = cells[0], cells[-1]
    lines = (low if low == high else f"{low}..{high}" for low, high in zip(first.lines, last.lines, strict=True))
    return CellBlock(first.y, first.x, last.y, last.x, tuple(lines))


def lane_name(lane: int) -> str:
    """How the ISA's figures call a lane."""
    return f"T{lane}"


def element_name(operand: Operand, place: Place) -> str:
    """PTX's name of the element at a place: a0, a1, ..."""
    return f"{operand.role}{operand.element(reg=place.reg, slot=place.slot)}"


def place_words(operand: Operand, place: Place) -> str:
    """A place in one phrase, for tooltips."""
    name = element_name(operand, place)
    return f"{lane_name(place.lane)} {name} r{place.reg}[{bit_words(operand, place.slot)}]"


def bit_words(operand: OperandBase, slot: int) -> str:
    """The bits of a slot: `31:16`, or `7` if it is only one."""
    high, low = operand.bits(slot)
    return f"{high}:{low}" if high > low else f"{low}"
