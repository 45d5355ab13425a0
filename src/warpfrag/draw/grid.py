"""What a figure shows, before anybody thinks of pixels: grids of cells with headings.

A `Grid` is a picture of one matrix, or of the registers of the warp. A `Cell` is one element; a `Block` is a run of
cells that sit in one register, which share a label where cells are too small for words. SVG and terminal text are
both written from grids, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Cell(NamedTuple):
    """One element at row y and column x of the picture.

    `coordinates` are those of the element, by name; lane, reg and slot are those of its first holder (in the logical
    view of a sparse A, slot lists every slot that may hold it). `lines` is what is written into it, all holders
    included, and `tip` the whole truth. A cell that the instruction does not read is `unread`.
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


class Block(NamedTuple):
    """A rectangle of cells of one register, ends included, and what it says for them; nothing if each must speak."""

    top: int
    left: int
    bottom: int
    right: int
    lines: tuple[str, ...]


class Mark(NamedTuple):
    """Words beside the rows (or above the columns) first to last; on the colour of a lane if one is named."""

    first: int
    last: int
    words: str
    lane: int | None = None


class Level(NamedTuple):
    """One line of headings along an axis, and what it counts."""

    name: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Grid:
    """One picture: cells, blocks, and headings from the outside in; strokes in every row mark each `ruled` columns."""

    operand: str
    title: str
    height: int
    width: int
    rows: tuple[Level, ...]
    cols: tuple[Level, ...]
    cells: tuple[Cell, ...]
    blocks: tuple[Block, ...]
    words_on_blocks: bool = False
    ruled: int = 0


def ticks(name: str, first: int, last: int) -> Level:
    """A heading that counts first..last."""
    return Level(name, tuple(Mark(place, place, str(first + place)) for place in range(last - first + 1)))
