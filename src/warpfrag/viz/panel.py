"""One grid as SVG: the size of its text and cells, its title, headings, cells, outlines and labels.

The reader's fonts are not known when a figure is written, so the width of words is an upper estimate made with the
widths of DejaVu Sans, which is among the widest of the common ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from warpfrag.viz import svg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warpfrag.viz.cells import FigureCell, FigureGrid, HeadingLevel, HeadingMark

FONT = 11
SMALL = 10
TITLE = 14
LINE = 13  # from one line of a cell to the next
PADDING = 8  # what a cell has more than its words, both sides together
LEVEL = 16  # height of one line of column headings
TITLE_HEIGHT = 20
GAP = 6  # between headings and cells
STROKE = 4  # length of the strokes that part chunks
APART = 8  # between the numbers of columns, so that they do not run into each other

SINGLE_LINE_LIMIT = 960  # a grid with one-line cells is at most this wide,
STACKED_LIMIT = 1160  # with stacked ones at most this wide: else only blocks carry words
TALLEST, TALLEST_COMPACT = 32, 16  # rows; taller grids with upright blocks carry words on blocks only
BLOCKS_WIDTH, BLOCKS_HEIGHT = 1024, 640  # what a grid of small cells aims at

WIDTHS = {**dict.fromkeys(" .,:;|[]()il'/-", 0.4), **dict.fromkeys("mwMW@", 0.98)}  # of letters, for a font of size 1
USUAL_WIDTH = 0.64

Mode = Literal["line", "stack", "block"]


def width_of(words: str, size: int = FONT) -> int:
    """About how many pixels words take at most."""
    return ceil(size * sum(WIDTHS.get(letter, USUAL_WIDTH) for letter in words))


class CellSize(NamedTuple):
    """How the cells of a grid are drawn: words in one line, stacked, or on blocks of cells only."""

    mode: Mode
    width: int
    height: int


def cell_size(grid: FigureGrid, *, compact: bool = False) -> CellSize:
    """The size that lets the words of a grid be read; `compact` stacks them where one line would fit too."""
    upright = any(block.bottom > block.top for block in grid.blocks)
    lines = [cell.lines for cell in grid.cells]
    tallest = TALLEST_COMPACT if compact else TALLEST
    if not grid.words_on_blocks and (grid.height <= tallest or not upright):
        single_line = max(_widest([" ".join(words) for words in lines]), _heads_width(grid))
        if single_line * grid.width <= SINGLE_LINE_LIMIT and not compact:
            return CellSize("line", single_line, 24)
        stacked = _widest([word for words in lines for word in words])
        if stacked * grid.width <= STACKED_LIMIT:
            return CellSize("stack", max(stacked, 30), _stack_height(max(map(len, lines))))
    return _block_size(grid)


def _widest(words: Sequence[str]) -> int:
    """The width of the widest text, as an even number, so that the middle of a cell is a whole pixel."""
    return (PADDING + 1 + max(map(width_of, set(words)))) // 2 * 2


def _heads_width(grid: FigureGrid) -> int:
    """The width of headings of single columns that are no counts, such as bits: none of those may be left out."""
    marks = [mark for level in grid.cols for mark in level.marks if mark.first == mark.last]
    words = {mark.words for mark in marks if not mark.words.isdigit()}
    return (APART + 1 + max((width_of(each, SMALL) for each in words), default=0)) // 2 * 2


def _stack_height(lines: int) -> int:
    return LINE * lines + PADDING


def _block_size(grid: FigureGrid) -> CellSize:
    """Small cells, but blocks large enough for their words, in one line if the block is wide enough."""
    across = min(block.right - block.left + 1 for block in grid.blocks)
    down = min(block.bottom - block.top + 1 for block in grid.blocks)
    single_line = _widest([" ".join(block.lines) for block in grid.blocks])
    stacked = _widest([word for block in grid.blocks for word in block.lines])
    width = max(4, min(28, BLOCKS_WIDTH // grid.width))
    height = 24
    if down > 1:
        width = max(width, ceil(stacked / across))
        height = max(3, min(12, BLOCKS_HEIGHT // grid.height), ceil(_stack_height(2) / down))
    elif across * width < single_line:
        width = max(width, ceil(stacked / across))
        height = _stack_height(max(len(block.lines) for block in grid.blocks))
    return CellSize("block", width, height)


@dataclass(frozen=True)
class GridPanel:
    """A grid with the size of its cells, measured and ready to be put somewhere."""

    grid: FigureGrid
    size: CellSize

    @classmethod
    def fit(cls, grid: FigureGrid, *, compact: bool = False) -> GridPanel:
        """The panel whose cells are as large as their words need."""
        return cls(grid, cell_size(grid, compact=compact))

    @cached_property
    def left(self) -> int:
        """Width of the row headings, left of the cells."""
        return sum(self._level_width(level) for level in self.grid.rows) + GAP

    @cached_property
    def top(self) -> int:
        """Height of the title and the column headings, above the cells."""
        return TITLE_HEIGHT + LEVEL * len(self.grid.cols) + GAP // 2

    @cached_property
    def right(self) -> int:
        """Width right of the cells, where column headings name what they count."""
        return max(width_of(level.name, SMALL) for level in self.grid.cols) + GAP

    @property
    def cells_width(self) -> int:
        """Width of the cells alone."""
        return self.grid.width * self.size.width

    @property
    def cells_height(self) -> int:
        """Height of the cells alone."""
        return self.grid.height * self.size.height

    @property
    def width(self) -> int:
        """Width of everything; never less than the title needs."""
        return max(self.left + self.cells_width + self.right, width_of(self.grid.title) + 2 * GAP)

    @property
    def height(self) -> int:
        """Height of everything."""
        return self.top + self.cells_height + 1

    def svg(self, x: int, y: int) -> Iterator[str]:
        """The elements of the panel with its top left corner at (x, y)."""
        left, top = x + self.left, y + self.top
        yield svg.text(self.grid.title, x=left, y=y + FONT + 1, classes="panel")
        yield from self._row_headings(x, top)
        yield from self._column_headings(left, y + TITLE_HEIGHT)
        shape = "cells" if self.size.mode != "block" else "cells fine"
        yield svg.group(self._cell_rows(left, top), classes=shape)
        yield from self._rules(left, top)
        yield from self._blocks(left, top)

    def _cell_rows(self, left: int, top: int) -> Iterator[str]:
        """The cells, a group for each row, so that a cell needs no y coordinate."""
        for y, row in groupby(self.grid.cells, key=attrgetter("y")):
            place = f"translate({left} {top + y * self.size.height})"
            yield svg.group(map(self._cell, row), transform=place)

    def _cell(self, cell: FigureCell) -> str:
        """One element: a rectangle, its text where it fits, and the facts as data attributes."""
        _, width, height = self.size
        x = cell.x * width
        facts: dict[str, int | str] = {
            "classes": "unread" if cell.unread else "",
            "data-operand": self.grid.operand,
            **{f"data-{name}": index for name, index in cell.coordinates},
            "data-lane": cell.lane,
            "data-reg": cell.reg,
            "data-slot": cell.slot,
        }
        if self.size.mode == "block":
            return svg.box(x=x, width=width, height=height, title=cell.tip, **facts)
        box = svg.box(x=x, width=width, height=height)
        words = self._words(cell.lines, x + width // 2, height // 2)
        return svg.group([box, words], title=cell.tip, **facts)

    def _blocks(self, left: int, top: int) -> Iterator[str]:
        """The outlines of registers, with words where cells have none."""
        _, width, height = self.size
        boxes = [
            (
                left + block.left * width,
                top + block.top * height,
                (block.right - block.left + 1) * width,
                (block.bottom - block.top + 1) * height,
            )
            for block in self.grid.blocks
        ]
        if boxes:
            yield svg.outlines(boxes, classes="block")
        if self.size.mode == "block":
            named = list(zip(self.grid.blocks, boxes, strict=True))
            fits = all(width_of(" ".join(block.lines)) <= across - 2 for block, (_, _, across, _) in named)
            for block, (x, y, across, down) in named:
                yield self._words(block.lines, x + across // 2, y + down // 2, single_line=fits, classes="name")

    def _words(
        self, lines: tuple[str, ...], x: int, y: int, *, single_line: bool | None = None, classes: str = ""
    ) -> str:
        """Words around a centre, in one line or stacked."""
        in_single_line = self.size.mode == "line" if single_line is None else single_line
        if in_single_line or len(lines) == 1:
            return svg.text(" ".join(lines), x=x, y=y + 4, classes=classes)
        words = [line.removesuffix(":") for line in lines]  # a line break replaces the colon
        return svg.stacked_text(words, x=x, y=y + 4 - LINE * (len(lines) - 1) // 2, step=LINE, classes=classes)

    def _rules(self, left: int, top: int) -> Iterator[str]:
        """Where the chunks of a sparse A end: short strokes at the edges of each row, clear of the words between."""
        step, height = self.grid.ruled, self.size.height
        columns = range(step, self.grid.width, step) if step else ()
        edges = [(top + y * height + start) for y in range(self.grid.height) for start in (0, height - STROKE)]
        if columns:
            strokes = ((left + column * self.size.width, y, STROKE) for column in columns for y in edges)
            yield svg.strokes(strokes, classes="block")

    def _level_width(self, level: HeadingLevel) -> int:
        """Width of a column of row headings."""
        return max(width_of(words, SMALL) for words in (level.name, *(mark.words for mark in level.marks))) + GAP

    def _row_headings(self, x: int, top: int) -> Iterator[str]:
        height = self.size.height
        for level in self.grid.rows:
            width = self._level_width(level)
            yield svg.text(level.name, x=x + width, y=top - GAP - 1, classes="axis end")
            for mark in thinned(level.marks, space=height, needs=lambda _: SMALL + 4):
                middle = top + (mark.first + mark.last + 1) * height / 2
                if mark.lane is not None:
                    yield svg.rect(x=x + GAP, y=middle - 8, width=width - GAP, height=16, data_lane=mark.lane)
                    yield svg.text(mark.words, x=x + (width + GAP) / 2, y=middle + 4, classes="axis chip")
                else:
                    yield svg.text(mark.words, x=x + width, y=middle + 4, classes="axis end")
            x += width

    def _column_headings(self, left: int, y: int) -> Iterator[str]:
        width = self.size.width
        for level in self.grid.cols:
            yield svg.text(level.name, x=left + self.cells_width + GAP, y=y + SMALL + 2, classes="axis start")
            for mark in thinned(level.marks, space=width, needs=lambda mark: width_of(mark.words, SMALL) + APART):
                middle = left + (mark.first + mark.last + 1) * width / 2
                corner = middle - width / 2 + 2
                if mark.lane is not None:
                    yield svg.rect(x=corner, y=y + 1, width=width - 4, height=LEVEL - 2, data_lane=mark.lane)
                if mark.loud:  # paper on what else are words
                    yield svg.rect(x=corner, y=y + 1, width=width - 4, height=LEVEL - 2, classes="note")
                classes = "paper" if mark.loud else "axis" if mark.lane is None else "axis chip"
                yield svg.text(mark.words, x=middle, y=y + SMALL + 2, classes=classes)
            y += LEVEL


def thinned(marks: tuple[HeadingMark, ...], *, space: int, needs: Callable[[HeadingMark], int]) -> list[HeadingMark]:
    """As many marks as fit: all, or every second, fourth, ... from the first on."""
    step = 1
    while step < len(marks) and any(needs(mark) > step * space * (mark.last - mark.first + 1) for mark in marks):
        step *= 2
    return list(marks[::step])
