"""Write a figure of grids as SVG: a panel for each grid, and the page with heading, notes, legend and style.

The reader's fonts are not known when a figure is written, so the width of text is an upper estimate made with the
widths of DejaVu Sans, which is among the widest of the common fonts.

A *scene* is one grid, or the grids of an mma: A, B and D, placed as in a multiplication by hand (A on the left, B
above, D in the corner), and metadata and scale factors, above A if they fit. Scenes flow from left to right, then down.
The heading of a single mma is above A if there is space.

Every style rule starts with `.wf`, so that a figure does not affect the rest of a page or notebook. There are no CSS
variables, because some SVG renderers do not support them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import Literal, NamedTuple

from warpfrag.layout.coordinates import LANES
from warpfrag.viz import svg
from warpfrag.viz.grids import ColourKey, FigureCell, FigureGrid, HeadingLevel, HeadingMark, Scene
from warpfrag.viz.palette import GROUP, Palette, Theme, themed

FONT = 11
SMALL = 10
TITLE = 14
LINE = 13  # the distance between the lines of text in a cell
PADDING = 8  # the total horizontal padding of a cell
LEVEL = 16  # the height of one line of column headings
TITLE_HEIGHT = 20
GAP = 6  # the space between headings and cells
APART = 8  # the minimum distance between column numbers

SINGLE_LINE_LIMIT = 960  # the maximum width of a grid whose cells have one line of text
STACKED_LIMIT = 1160  # the maximum width of a grid with stacked cells; wider grids have text on blocks only
# the maximum number of rows; in taller grids whose blocks span several rows, only the blocks have text
TALLEST, TALLEST_COMPACT = 32, 16
BLOCKS_WIDTH, BLOCKS_HEIGHT = 1024, 640  # the target size of a grid with small cells

WIDTHS = {**dict.fromkeys(" .,:;|[]()il'/-", 0.4), **dict.fromkeys("mwMW@", 0.98)}  # character widths at font size 1
USUAL_WIDTH = 0.64

Mode = Literal["line", "stack", "block"]


def width_of(text: str, size: int = FONT) -> int:
    """Return an upper bound for the width of a text, in pixels."""
    return ceil(size * sum(WIDTHS.get(letter, USUAL_WIDTH) for letter in text))


class CellSize(NamedTuple):
    """The size of cells, and the placement of their text: on one line, stacked, or only on blocks of cells."""

    mode: Mode
    width: int
    height: int


def cell_size(grid: FigureGrid, *, compact: bool = False) -> CellSize:
    """Return a cell size that fits the text of a grid; `compact` stacks the text even if it would fit on one line."""
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
    """Return the width of the widest text, rounded up to an even number so that the middle is a whole pixel."""
    return (PADDING + 1 + max(map(width_of, set(words)))) // 2 * 2


def _heads_width(grid: FigureGrid) -> int:
    """Return the width of column headings other than numbers, such as bits, which must not be omitted."""
    marks = [mark for level in grid.cols for mark in level.marks if mark.first == mark.last]
    words = {mark.words for mark in marks if not mark.words.isdigit()}
    return (APART + 1 + max((width_of(each, SMALL) for each in words), default=0)) // 2 * 2


def _stack_height(lines: int) -> int:
    return LINE * lines + PADDING


def _block_size(grid: FigureGrid) -> CellSize:
    """Return the size of small cells in blocks that are large enough for their text."""
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
    """A grid with the size of its cells."""

    grid: FigureGrid
    size: CellSize

    @classmethod
    def fit(cls, grid: FigureGrid, *, compact: bool = False) -> GridPanel:
        """Return the panel whose cells fit their text."""
        return cls(grid, cell_size(grid, compact=compact))

    @cached_property
    def left(self) -> int:
        """The width of the row headings, to the left of the cells."""
        return sum(self._level_width(level) for level in self.grid.rows) + GAP

    @cached_property
    def top(self) -> int:
        """The height of the title and the column headings, above the cells."""
        return TITLE_HEIGHT + LEVEL * len(self.grid.cols) + GAP // 2

    @cached_property
    def right(self) -> int:
        """The width to the right of the cells, for the names of column heading levels."""
        return max(width_of(level.name, SMALL) for level in self.grid.cols) + GAP

    @property
    def cells_width(self) -> int:
        """The width of the cells alone."""
        return self.grid.width * self.size.width

    @property
    def width(self) -> int:
        """The width of the panel, which is at least the width of its title."""
        return max(self.left + self.cells_width + self.right, width_of(self.grid.title) + 2 * GAP)

    @property
    def height(self) -> int:
        """The height of the panel."""
        return self.top + self.grid.height * self.size.height + 1

    def svg(self, x: int, y: int) -> Iterator[str]:
        """Yield the SVG elements of the panel, with its top left corner at (x, y)."""
        left, top = x + self.left, y + self.top
        yield svg.text(self.grid.title, x=left, y=y + FONT + 1, classes="panel")
        yield from self._row_headings(x, top)
        yield from self._column_headings(left, y + TITLE_HEIGHT)
        yield svg.group(self._cell_rows(left, top), classes="cells" if self.size.mode != "block" else "cells fine")
        yield from self._blocks(left, top)

    def _cell_rows(self, left: int, top: int) -> Iterator[str]:
        """Yield the cells, in one group per row so that cells need no y coordinate."""
        for y, row in groupby(self.grid.cells, key=attrgetter("y")):
            yield svg.group(map(self._cell, row), transform=f"translate({left} {top + y * self.size.height})")

    def _cell(self, cell: FigureCell) -> str:
        """Return a cell as one element: a rectangle, its text if it fits, and its facts as data attributes."""
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
        return svg.group([box, self._words(cell.lines, x + width // 2, height // 2)], title=cell.tip, **facts)

    def _blocks(self, left: int, top: int) -> Iterator[str]:
        """Yield the outlines of registers, with text if the cells have none."""
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
        """Return text centred at a point, on one line or stacked."""
        in_single_line = self.size.mode == "line" if single_line is None else single_line
        if in_single_line or len(lines) == 1:
            return svg.text(" ".join(lines), x=x, y=y + 4, classes=classes)
        words = [line.removesuffix(":") for line in lines]  # the line break replaces the colon
        return svg.stacked_text(words, x=x, y=y + 4 - LINE * (len(lines) - 1) // 2, step=LINE, classes=classes)

    def _level_width(self, level: HeadingLevel) -> int:
        """Return the width of a column of row headings."""
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
                if mark.loud:  # draw the mark in inverted colours
                    yield svg.rect(x=corner, y=y + 1, width=width - 4, height=LEVEL - 2, classes="note")
                classes = "paper" if mark.loud else "axis" if mark.lane is None else "axis chip"
                yield svg.text(mark.words, x=middle, y=y + SMALL + 2, classes=classes)
            y += LEVEL


def thinned(marks: tuple[HeadingMark, ...], *, space: int, needs: Callable[[HeadingMark], int]) -> list[HeadingMark]:
    """Return the marks that fit: all, or every second, fourth and so on, starting with the first."""
    step = 1
    while step < len(marks) and any(needs(mark) > step * space * (mark.last - mark.first + 1) for mark in marks):
        step *= 2
    return list(marks[::step])


# ---- pages


MARGIN = 16
BETWEEN = 28  # the distance between scenes
PAGE = 1240  # the approximate width of a line of scenes
NARROWEST = 520  # the minimum width, so that notes are not broken into too many lines
MIN_HEADING = 280  # the minimum space for a heading next to B
CHIP_WIDTH, WIDE_CHIP, CHIP_HEIGHT = 28, 34, 18  # a wide chip has space for T127
LONGEST_LANE = 4  # the number of characters in T127
LEGEND = "lanes of the warp: one hue for each group of four, one shade for each lane in it"
GROUP_LEGEND = "threads of the warpgroup: one hue for each group of four, one shade for each in it; warps share colours"

FAMILY = "'DejaVu Sans',Verdana,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

SHAPES = {
    "text": f"font-family:{FAMILY};font-size:{FONT}px;text-anchor:middle;font-variant-numeric:tabular-nums",
    ".start": "text-anchor:start",
    ".end": "text-anchor:end",
    ".axis,.wf .chips text": f"font-size:{SMALL}px",
    ".heading": f"font-size:{TITLE}px;font-weight:bold;text-anchor:start",
    ".panel": "font-weight:bold;text-anchor:start",
    ".cells path": "stroke-width:1",
    ".fine path": "stroke-width:.5;stroke-opacity:.5",
    "[data-operand]:hover>path,.wf path[data-operand]:hover": "stroke-width:2;stroke-opacity:1",
    ".block": "fill:none;stroke-width:1;pointer-events:none",
    ".name": "pointer-events:none",
}


class PlacedPanel(NamedTuple):
    """A panel and the position of its top left corner."""

    panel: GridPanel
    x: int
    y: int


@dataclass(frozen=True)
class PlacedScene:
    """A scene whose panels have positions relative to (0, 0), and the size of its empty top left corner."""

    panels: tuple[PlacedPanel, ...]
    corner: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        """The right edge of the panels."""
        return max(placed.x + placed.panel.width for placed in self.panels)

    @property
    def height(self) -> int:
        """The bottom edge of the panels."""
        return max(placed.y + placed.panel.height for placed in self.panels)


def _placed_scenes(scenes: tuple[Scene, ...]) -> list[PlacedScene]:
    """Arrange the panels of each scene; the single grids of one operand get cells of equal size."""
    if any(len(scene) > 1 for scene in scenes):
        return [_product(scene) for scene in scenes]
    panels = [GridPanel.fit(grid, compact=grid.is_stacked) for (grid,) in scenes]
    largest: dict[tuple[str, str], CellSize] = {}
    for panel in panels:
        kind = (panel.grid.operand, panel.size.mode)
        _, width, height = largest.get(kind, panel.size)
        largest[kind] = CellSize(panel.size.mode, max(width, panel.size.width), max(height, panel.size.height))
    return [
        PlacedScene((PlacedPanel(GridPanel(panel.grid, largest[panel.grid.operand, panel.size.mode]), 0, 0),))
        for panel in panels
    ]


def _product(scene: Scene) -> PlacedScene:
    """Place A on the left, B at the top, and D in the corner."""
    a, b, d = (GridPanel.fit(grid, compact=True) for grid in scene[:3])
    extras = [GridPanel.fit(grid) for grid in scene[3:]]
    # Rows of A and D, and columns of B and D, correspond, so they are aligned.
    height = max(a.size.height, d.size.height)
    width = max(b.size.width, d.size.width)
    a = GridPanel(a.grid, a.size._replace(height=height))
    b = GridPanel(b.grid, b.size._replace(width=width))
    d = GridPanel(d.grid, d.size._replace(width=width, height=height))
    indent = max(b.left, d.left)
    right = a.width + BETWEEN // 2 + indent
    below = b.height + BETWEEN // 2
    down = max(a.top, d.top)
    main = (
        PlacedPanel(b, right - b.left, 0),
        PlacedPanel(a, 0, below + down - a.top),
        PlacedPanel(d, right - d.left, below + down - d.top),
    )
    free_width, above = right - b.left, b.height
    wide = sum(panel.width + BETWEEN for panel in extras)
    tall = max((panel.height for panel in extras), default=0)
    if wide > free_width or tall > above:
        return PlacedScene((*main, *_side_by_side(extras, top=PlacedScene(main).height + BETWEEN)), (free_width, above))
    return PlacedScene((*main, *_side_by_side(extras, top=above - tall)), (free_width, above - tall))


def _side_by_side(panels: list[GridPanel], *, top: int) -> Iterator[PlacedPanel]:
    x = 0
    for panel in panels:
        yield PlacedPanel(panel, x, top)
        x += panel.width + BETWEEN


def _flow(placed_scenes: list[PlacedScene]) -> list[PlacedPanel]:
    """Arrange scenes in lines, and return all panels with their positions."""
    placed, x, y, line_height = [], 0, 0, 0
    for scene in placed_scenes:
        if x and x + scene.width > PAGE:
            x, y, line_height = 0, y + line_height + BETWEEN, 0
        placed += [PlacedPanel(panel, x + dx, y + dy) for panel, dx, dy in scene.panels]
        x += scene.width + BETWEEN
        line_height = max(line_height, scene.height)
    return placed


def page(*, title: str, subtitle: str, notes: tuple[str, ...], scenes: tuple[Scene, ...], theme: Theme) -> str:
    """Return the SVG text of a figure."""
    placed_scenes = _placed_scenes(scenes)
    panels = _flow(placed_scenes)
    inner = max(NARROWEST, *(placed.x + placed.panel.width for placed in panels))
    corner = placed_scenes[0].corner if len(placed_scenes) == 1 else (0, 0)
    heading = list(_heading(title, subtitle, notes, width=corner[0] - BETWEEN)) if corner[0] > MIN_HEADING else []
    if heading and heading[-1].y < MARGIN + corner[1] - BETWEEN:
        y = MARGIN
    else:
        heading = list(_heading(title, subtitle, notes, width=inner))
        y = heading[-1].y + 18
    body = [svg.text(line.words, x=MARGIN, y=line.y, classes=line.classes) for line in heading]
    body += [part for panel, dx, dy in panels for part in panel.svg(MARGIN + dx, y + dy)]
    y = max(y + placed.y + placed.panel.height for placed in panels) + BETWEEN - 6
    lanes = max(grid.lanes for scene in scenes for grid in scene)
    keys = list(dict.fromkeys(grid.key or _lanes(lanes) for scene in scenes for grid in scene))
    for key in keys:
        legend, y = _legend(y, inner, key)
        body += legend
    height = y - BETWEEN // 4 + MARGIN
    width = inner + 2 * MARGIN
    paper = svg.rect(x=0, y=0, width=width, height=height, classes="paper")
    return svg.document([paper, *body], width=width, height=height, title=title, style=stylesheet(theme, lanes))


class HeadingLine(NamedTuple):
    """A line of the heading, with its baseline and style classes."""

    words: str
    y: int
    classes: str


def _heading(title: str, subtitle: str, notes: tuple[str, ...], *, width: int) -> Iterator[HeadingLine]:
    """Yield the title, the instruction and the notes, broken into lines that fit."""
    y = MARGIN
    for words in wrapped(title, width, size=TITLE, at=" "):
        y += TITLE + 5
        yield HeadingLine(words, y - 5, "heading")
    for words in wrapped(subtitle, width, size=FONT, at="."):
        y += FONT + 6
        yield HeadingLine(words, y - 4, "start")
    for note in notes:
        for words in wrapped(note, width, size=FONT, at=" "):
            y += FONT + 5
            yield HeadingLine(words, y - 4, "note start")


def wrapped(text: str, width: int, *, size: int, at: str) -> list[str]:
    """Break `text` into lines that fit `width`, only at the separator `at`."""
    lines = [""]
    for position, word in enumerate(text.split(at)):
        piece = f"{at if position else ''}{word}"
        if lines[-1] and width_of(lines[-1] + piece, size) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return [line for line in lines if line]


def _chip_width(names: list[str]) -> int:
    """Return the width of a chip that fits the names."""
    usual = CHIP_WIDTH if len(names) <= LANES else WIDE_CHIP
    return max(usual, *(width_of(name, SMALL) for name in names)) if max(map(len, names)) > LONGEST_LANE else usual


def _lanes_in_line(width: int, names: list[str]) -> int:
    """Return the number of chips per legend line: all, half, a quarter and so on, the largest that fits."""
    each = len(names)
    while each > 8 and each * _chip_width(names) + each // GROUP * PADDING > width:
        each //= 2
    return each


def _lanes(lanes: int) -> ColourKey:
    """Return the legend of a figure that shows registers."""
    return ColourKey(LEGEND if lanes <= LANES else GROUP_LEGEND, tuple(f"T{lane}" for lane in range(lanes)))


def _legend(y: int, width: int, key: ColourKey) -> tuple[list[str], int]:
    """Return a legend with a sentence and a chip for each named colour, and the position of the next legend."""
    chips = [(lane, name) for lane, name in enumerate(key.names) if name]
    parts = [svg.text(key.words, x=MARGIN, y=y + FONT, classes="note start")]
    y += FONT + 9
    names = [name for _, name in chips]
    each, chip_width = (_lanes_in_line(width, names), _chip_width(names)) if names else (1, 0)
    for first in range(0, len(chips), each):
        line = []
        for index, (lane, name) in enumerate(chips[first : first + each]):
            x = index * chip_width + index // GROUP * PADDING
            line.append(svg.box(x=x, width=chip_width, height=CHIP_HEIGHT, data_lane=lane))
            line.append(svg.text(name, x=x + chip_width // 2, y=13))
        parts.append(svg.group(line, classes="chips", transform=f"translate({MARGIN} {y})"))
        y += CHIP_HEIGHT + 3
    return parts, y + BETWEEN // 4


def _colours(palette: Palette, lanes: int) -> dict[str, str]:
    """Return the style rules that differ between the light and dark themes."""
    rules = {
        ".paper": f"fill:{palette.paper}",
        "text": f"fill:{palette.ink}",
        ".axis": f"fill:{palette.muted}",
        ".note": f"fill:{palette.muted}",
        ".chip,.wf .chips text": f"fill:{palette.ink}",
        ".cells path": f"stroke:{palette.paper}",
        "[data-operand]:hover>path,.wf path[data-operand]:hover": f"stroke:{palette.ink}",
        ".block": f"stroke:{palette.edge}",
        ".cells .unread": f"fill:{palette.unread}",
        ".unread text": f"fill:{palette.muted}",
    }
    return rules | {f'[data-lane="{lane}"]': f"fill:{palette.lane(lane)}" for lane in range(lanes)}


def _rules(rules: dict[str, str]) -> str:
    return "".join(f".wf {selector}{{{declarations}}}" for selector, declarations in rules.items())


def stylesheet(theme: Theme, lanes: int) -> str:
    """Return the CSS rules of a theme, for this number of lanes."""
    return _rules(SHAPES) + themed(theme, lambda palette: _rules(_colours(palette, lanes)))
