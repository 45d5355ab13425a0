"""A figure for the terminal: plain ASCII tables, cut into parts where they are wider than the screen."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.viz.panel import cell_size

if TYPE_CHECKING:
    from warpfrag.viz.cells import FigureGrid, HeadingLevel

GAPS = (2, 1)  # blanks between columns: two, or one where that saves a cut


class WordTable(NamedTuple):
    """Words of a grid: the headings of every line and column, and the words."""

    rows: list[str]
    cols: list[list[str]]
    words: list[list[str]]

    @property
    def margin(self) -> int:
        """Letters left of the first column."""
        return len(self.rows[0])

    @property
    def column(self) -> int:
        """Letters of the widest column."""
        return max(len(word) for column in (*self.words, *self.cols) for word in column)

    def fits(self, width: int, gap: int) -> bool:
        """Whether all columns fit side by side."""
        return self.margin + (self.column + gap) * len(self.cols) <= width


def note_text(note: str, *, width: int) -> str:
    """A note in lines of at most `width` letters."""
    return fill(note, width, break_long_words=False, break_on_hyphens=False)


def grid_text(grid: FigureGrid, *, width: int) -> str:
    """The grid as lines of at most about `width` letters."""
    table = _cells(grid)
    has_words = any(block.lines for block in grid.blocks)
    if has_words and (cell_size(grid).mode == "block" or not any(table.fits(width, gap) for gap in GAPS)):
        table = _blocks(grid)
    return "\n".join([grid.title, *_parts(grid, table, width)])


def _cells(grid: FigureGrid) -> WordTable:
    """One word for each cell."""
    words = [[""] * grid.width for _ in range(grid.height)]
    for cell in grid.cells:
        words[cell.y][cell.x] = " ".join(cell.lines)
    return _table(grid, [(y, y) for y in range(grid.height)], [(x, x) for x in range(grid.width)], words)


def _blocks(grid: FigureGrid) -> WordTable:
    """One word for each block."""
    downs = sorted({(block.top, block.bottom) for block in grid.blocks})
    acrosses = sorted({(block.left, block.right) for block in grid.blocks})
    words = [[""] * len(acrosses) for _ in downs]
    for block in grid.blocks:
        line = words[downs.index((block.top, block.bottom))]
        line[acrosses.index((block.left, block.right))] = " ".join(block.lines)
    return _table(grid, downs, acrosses, words)


def _table(
    grid: FigureGrid, downs: list[tuple[int, int]], acrosses: list[tuple[int, int]], words: list[list[str]]
) -> WordTable:
    """The words with the headings of their ranges of rows and columns; the first row heading says what they count."""
    headings = [[level.name, *(_at(level, *down) for down in downs)] for level in grid.rows]
    aligned = [[word.rjust(max(map(len, level))) for word in level] for level in headings]
    rows = [" ".join(line) for line in zip(*aligned, strict=True)]
    return WordTable(rows, [[_at(level, *across) for level in grid.cols] for across in acrosses], words)


def _at(level: HeadingLevel, first: int, last: int) -> str:
    """The heading of a range of rows or columns: one mark, or the first and the last."""
    words = [mark.words for mark in level.marks if mark.first <= last and first <= mark.last]
    return words[0] if len(words) == 1 else f"{words[0]}..{words[-1]}"


def _parts(grid: FigureGrid, table: WordTable, width: int) -> list[str]:
    """The table in lines; as many columns at a time as fit, in whole halves, quarters, ..."""
    gap = next((gap for gap in GAPS if table.fits(width, gap)), GAPS[0])
    each = table.column + gap
    count = len(table.cols)
    while count > 1 and table.margin + each * count > width:
        count = (count + 1) // 2
    corner, *rows = table.rows
    corners = [" " * table.margin] * (len(grid.cols) - 1) + [corner]
    lines: list[str] = []
    for start in range(0, len(table.cols), count):
        columns = slice(start, start + count)
        headings = zip(*table.cols[columns], strict=True)
        lines += [""] * bool(start)
        lines += [
            left + "".join(word.rjust(each) for word in heading) + f" {level.name}"
            for left, heading, level in zip(corners, headings, grid.cols, strict=True)
        ]
        lines += [
            (row + "".join(word.rjust(each) for word in line[columns])).rstrip()
            for row, line in zip(rows, table.words, strict=True)
        ]
    return lines
