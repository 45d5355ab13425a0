"""Sizes: how much room words and cells take.

The reader's fonts are not known when a figure is written, so the width of words is an upper estimate made with the
widths of DejaVu Sans, which is among the widest of the common ones.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.draw.grid import Grid

FONT = 11
SMALL = 10
TITLE = 14
LINE = 13  # from one line of a cell to the next
PADDING = 8  # what a cell has more than its words, both sides together
LEVEL = 16  # height of one line of column headings

ONE_LINE_LIMIT = 960  # a grid with one-line cells is at most this wide,
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


def cell_size(grid: Grid, *, compact: bool = False) -> CellSize:
    """The size that lets the words of a grid be read; `compact` stacks them where one line would fit too."""
    upright = any(block.bottom > block.top for block in grid.blocks)
    lines = [cell.lines for cell in grid.cells]
    tallest = TALLEST_COMPACT if compact else TALLEST
    if not grid.words_on_blocks and (grid.height <= tallest or not upright):
        one_line = _widest([" ".join(words) for words in lines])
        if one_line * grid.width <= ONE_LINE_LIMIT and not compact:
            return CellSize("line", one_line, 24)
        stacked = _widest([word for words in lines for word in words])
        if stacked * grid.width <= STACKED_LIMIT:
            return CellSize("stack", max(stacked, 30), _stack_height(max(map(len, lines))))
    return _block_size(grid)


def _widest(words: Sequence[str]) -> int:
    """Room for the widest words, as an even number, so that the middle of a cell is a whole one."""
    return (PADDING + 1 + max(map(width_of, set(words)))) // 2 * 2


def _stack_height(lines: int) -> int:
    return LINE * lines + PADDING


def _block_size(grid: Grid) -> CellSize:
    """Small cells, but blocks large enough for their words, in one line if the block lies and has the room."""
    across = min(block.right - block.left + 1 for block in grid.blocks)
    down = min(block.bottom - block.top + 1 for block in grid.blocks)
    one_line = _widest([" ".join(block.lines) for block in grid.blocks])
    stacked = _widest([word for block in grid.blocks for word in block.lines])
    width = max(4, min(28, BLOCKS_WIDTH // grid.width))
    height = 24
    if down > 1:
        width = max(width, ceil(stacked / across))
        height = max(3, min(12, BLOCKS_HEIGHT // grid.height), ceil(_stack_height(2) / down))
    elif across * width < one_line:
        width = max(width, ceil(stacked / across))
        height = _stack_height(max(len(block.lines) for block in grid.blocks))
    return CellSize("block", width, height)
