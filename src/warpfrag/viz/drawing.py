"""Drawings: figures that can be shown in a notebook, printed in a terminal, or saved.

`GridDrawing` holds grids of cells, which become SVG in `grid_svg` and ASCII tables here. `Plot` holds a chart.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, WarpfragError, install_command, quote
from warpfrag.files import write_atomically
from warpfrag.viz.grid_svg import cell_size, page
from warpfrag.viz.grids import FigureGrid, HeadingLevel, Scene
from warpfrag.viz.palette import Theme

TEXT_WIDTH = 100  # the default width of text in characters
PNG_ZOOM = 2  # pixels per SVG unit; sharp on common screens and in print


class Drawing(ABC):
    """A figure with a title; `svg`, `text` and `png()` are its formats, and `save` writes one of them."""

    title: str
    theme: Theme

    @cached_property
    def svg(self) -> str:
        """The figure as reproducible SVG text."""
        return self.to_svg(self.theme)

    @property
    def text(self) -> str:
        """The figure for a terminal."""
        return self.to_text()

    @abstractmethod
    def to_svg(self, theme: Theme) -> str:
        """Return the figure as SVG in the colours of a theme."""

    @abstractmethod
    def to_text(self, width: int = TEXT_WIDTH) -> str:
        """Return the figure for a terminal, in lines of about `width` characters at most."""

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the figure to a file in the format of its suffix: .svg, .png (needs resvg-py) or .txt."""
        target = Path(path) if isinstance(path, str | PathLike) else None
        suffix = target.suffix.lower() if target else ""
        if target is None or suffix not in {".svg", ".png", ".txt"}:
            name = quote(target.name if target else path)
            raise InvalidOperand(f"cannot save a figure as {name}: expected a name that ends in .svg, .png or .txt")
        write_atomically(target, self.png() if suffix == ".png" else self.svg if suffix == ".svg" else self.text)
        return target

    def png(self) -> bytes:
        """Return the figure as a PNG image in the colours of its theme, light unless the theme is "dark"."""
        try:
            import resvg_py
        except ImportError:
            raise WarpfragError(
                f"PNG needs the package resvg-py: {install_command('png')}, or save the figure as .svg"
            ) from None
        picture = self.to_svg("dark" if self.theme == "dark" else "light")
        return bytes(resvg_py.svg_to_bytes(svg_string=picture, zoom=PNG_ZOOM))

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'


@dataclass(frozen=True)
class Plot(Drawing):
    """A chart; `write` returns its SVG for a theme, and `words` is the text shown in a terminal."""

    title: str
    write: Callable[[Theme], str]
    words: str
    theme: Theme = "auto"

    def __repr__(self) -> str:
        """Return the title."""
        return f"<Plot {self.title!r}>"

    def to_svg(self, theme: Theme) -> str:
        """Return the chart as SVG in the colours of a theme."""
        return self.write(theme)

    def to_text(self, width: int = TEXT_WIDTH) -> str:  # noqa: ARG002 (a table is not wrapped)
        """Return the numbers that the chart shows."""
        return f"{self.words}\n"


@dataclass(frozen=True)
class GridDrawing(Drawing):
    """Scenes of grids, with the instruction's name and notes for the reader."""

    title: str
    instruction: str
    notes: tuple[str, ...]
    scenes: tuple[Scene, ...]
    theme: Theme = "auto"

    def __repr__(self) -> str:
        """Return the title and the instruction."""
        return f"<Drawing {self.title!r} of {self.instruction}>"

    def to_svg(self, theme: Theme) -> str:
        """Return the figure as SVG in the colours of a theme."""
        return page(title=self.title, subtitle=self.instruction, notes=self.notes, scenes=self.scenes, theme=theme)

    def to_text(self, width: int = TEXT_WIDTH) -> str:
        """Return the figure as ASCII tables, in lines of about `width` characters at most."""
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise InvalidOperand(f"width: expected a number of characters, at least 1; got {quote(width)}")
        grids = [grid_text(grid, width=width) for scene in self.scenes for grid in scene]
        notes = [fill(note, width, break_long_words=False, break_on_hyphens=False) for note in self.notes]
        return "\n\n".join(["\n".join([self.title, self.instruction, *notes]), *grids]) + "\n"


GAPS = (2, 1)  # the number of blanks between columns: two, or one if that avoids splitting the table


class WordTable(NamedTuple):
    """The text of a grid as a table, with a heading for every row and column."""

    rows: list[str]
    cols: list[list[str]]
    words: list[list[str]]

    @property
    def margin(self) -> int:
        """The width of the row headings in characters."""
        return len(self.rows[0])

    @property
    def column(self) -> int:
        """The width of the widest column in characters."""
        return max(len(word) for column in (*self.words, *self.cols) for word in column)

    def fits(self, width: int, gap: int) -> bool:
        """Return True if all columns fit side by side."""
        return self.margin + (self.column + gap) * len(self.cols) <= width


def grid_text(grid: FigureGrid, *, width: int) -> str:
    """Return a grid as text, in lines of at most about `width` characters."""
    table = _cells(grid)
    has_words = any(block.lines for block in grid.blocks)
    if has_words and (cell_size(grid).mode == "block" or not any(table.fits(width, gap) for gap in GAPS)):
        table = _blocks(grid)
    return "\n".join([grid.title, *_parts(grid, table, width)])


def _cells(grid: FigureGrid) -> WordTable:
    """Return a table with the text of each cell."""
    words = [[""] * grid.width for _ in range(grid.height)]
    for cell in grid.cells:
        words[cell.y][cell.x] = " ".join(cell.lines)
    return _table(grid, [(y, y) for y in range(grid.height)], [(x, x) for x in range(grid.width)], words)


def _blocks(grid: FigureGrid) -> WordTable:
    """Return a table with the text of each block."""
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
    """Return a table with headings for ranges of rows and columns; the first row heading names the rows' coordinate."""
    headings = [[level.name, *(_at(level, *down) for down in downs)] for level in grid.rows]
    aligned = [[word.rjust(max(map(len, level))) for word in level] for level in headings]
    rows = [" ".join(line) for line in zip(*aligned, strict=True)]
    return WordTable(rows, [[_at(level, *across) for level in grid.cols] for across in acrosses], words)


def _at(level: HeadingLevel, first: int, last: int) -> str:
    """Return the heading of a range of rows or columns: one mark, or the first and last marks."""
    words = [mark.words for mark in level.marks if mark.first <= last and first <= mark.last]
    return words[0] if len(words) == 1 else f"{words[0]}..{words[-1]}"


def _parts(grid: FigureGrid, table: WordTable, width: int) -> list[str]:
    """Return a table as lines, splitting its columns into halves, quarters and so on until the parts fit."""
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
