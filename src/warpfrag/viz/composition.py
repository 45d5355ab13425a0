"""A whole figure as SVG: heading, notes, panels in their places, the legend of lanes, and the style sheet.

A *scene* is one grid, or the grids of a product: A, B and D, put as one multiplies by hand (A left, B above, D in the
corner), then metadata and scale factors, above A where they fit. Scenes flow like words: left to right, then down.
The heading of a single product stands above A too, where nothing else is.

Every style rule starts with `.wf`, so that a figure that is part of a page, as in a notebook, changes nothing else
there. There are no CSS variables, because not every SVG renderer supports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.layout.coordinates import LANES
from warpfrag.viz import svg
from warpfrag.viz.cells import ColourKey
from warpfrag.viz.palette import DARK, GROUP, LIGHT, Palette, Theme
from warpfrag.viz.panel import FONT, PADDING, SMALL, TITLE, CellSize, GridPanel, width_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.viz.views import Scene

MARGIN = 16
BETWEEN = 28  # between scenes
PAGE = 1240  # scenes flow into lines of about this width
NARROWEST = 520  # so that notes are not broken into too many lines
MIN_HEADING = 280  # the space that a heading beside B needs
CHIP_WIDTH, WIDE_CHIP, CHIP_HEIGHT = 28, 34, 18  # wide ones fit T127
LONGEST_LANE = 4  # letters of T127
LEGEND = "lanes of the warp: one hue for each group of four, one shade for each lane in it"
GROUP_LEGEND = "threads of the warpgroup: one hue for each group of four, one shade for each in it; again in each warp"

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
    """A panel and where its top left corner is."""

    panel: GridPanel
    x: int
    y: int


@dataclass(frozen=True)
class PlacedScene:
    """A scene with its panels in place, from (0, 0), and the size of the free corner at the top left."""

    panels: tuple[PlacedPanel, ...]
    corner: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        """How far the panels reach to the right."""
        return max(placed.x + placed.panel.width for placed in self.panels)

    @property
    def height(self) -> int:
        """How far the panels reach down."""
        return max(placed.y + placed.panel.height for placed in self.panels)


def _placed_scenes(scenes: tuple[Scene, ...]) -> list[PlacedScene]:
    """Products each in their arrangement; single grids of one operand with cells of one size."""
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
    """A left, B above, D in the corner."""
    a, b, d = (GridPanel.fit(grid, compact=True) for grid in scene[:3])
    extras = [GridPanel.fit(grid) for grid in scene[3:]]
    # Rows of A and D are the same rows and columns of B and D the same columns: they stand in line.
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
    """Put scenes into lines."""
    placed, x, y, line_height = [], 0, 0, 0
    for scene in placed_scenes:
        if x and x + scene.width > PAGE:
            x, y, line_height = 0, y + line_height + BETWEEN, 0
        placed += [PlacedPanel(panel, x + dx, y + dy) for panel, dx, dy in scene.panels]
        x += scene.width + BETWEEN
        line_height = max(line_height, scene.height)
    return placed


def page(*, title: str, subtitle: str, notes: tuple[str, ...], scenes: tuple[Scene, ...], theme: Theme) -> str:
    """The SVG text of a figure."""
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
        body += _legend(y, inner, key)
        y += _legend_height(inner, key) + BETWEEN // 4
    height = y - BETWEEN // 4 + MARGIN
    width = inner + 2 * MARGIN
    paper = svg.rect(x=0, y=0, width=width, height=height, classes="paper")
    return svg.document([paper, *body], width=width, height=height, title=title, style=stylesheet(theme, lanes))


class HeadingLine(NamedTuple):
    """A line of the heading, where it stands and how it looks."""

    words: str
    y: int
    classes: str


def _heading(title: str, subtitle: str, notes: tuple[str, ...], *, width: int) -> Iterator[HeadingLine]:
    """The title, the instruction and the notes, in lines that fit."""
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


def wrapped(words: str, width: int, *, size: int, at: str) -> list[str]:
    """Words in lines that fit, broken only where `at` stands."""
    lines = [""]
    for position, word in enumerate(words.split(at)):
        piece = f"{at if position else ''}{word}"
        if lines[-1] and width_of(lines[-1] + piece, size) > width:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return [line for line in lines if line]


def _chip_width(names: list[str]) -> int:
    """As wide as the names need."""
    usual = CHIP_WIDTH if len(names) <= LANES else WIDE_CHIP
    return max(usual, *(width_of(name, SMALL) for name in names)) if max(map(len, names)) > LONGEST_LANE else usual


def _lanes_in_line(width: int, names: list[str]) -> int:
    """Lanes in one line of the legend: all of them, half, a quarter, ... as the figure is wide."""
    each = len(names)
    while each > 8 and each * _chip_width(names) + each // GROUP * PADDING > width:
        each //= 2
    return each


def _legend_height(width: int, key: ColourKey) -> int:
    names = [name for name in key.names if name]
    return FONT + 9 + -(-len(names) // _lanes_in_line(width, names)) * (CHIP_HEIGHT + 3)


def _lanes(lanes: int) -> ColourKey:
    """The key of a figure of registers."""
    return ColourKey(LEGEND if lanes <= LANES else GROUP_LEGEND, tuple(f"T{lane}" for lane in range(lanes)))


def _legend(y: int, width: int, key: ColourKey) -> Iterator[str]:
    """A chip for each colour that has a name, with it."""
    chips = [(lane, name) for lane, name in enumerate(key.names) if name]
    names = [name for _, name in chips]
    yield svg.text(key.words, x=MARGIN, y=y + FONT, classes="note start")
    y += FONT + 9
    each, chip_width = _lanes_in_line(width, names), _chip_width(names)
    for first in range(0, len(chips), each):
        line = []
        for place, (lane, name) in enumerate(chips[first : first + each]):
            x = place * chip_width + place // GROUP * PADDING
            line.append(svg.box(x=x, width=chip_width, height=CHIP_HEIGHT, data_lane=lane))
            line.append(svg.text(name, x=x + chip_width // 2, y=13))
        yield svg.group(line, classes="chips", transform=f"translate({MARGIN} {y})")
        y += CHIP_HEIGHT + 3


def _colours(palette: Palette, lanes: int) -> dict[str, str]:
    """The rules that differ between light and dark."""
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


@cache
def stylesheet(theme: Theme, lanes: int) -> str:
    """The rules of a theme for so many lanes; "auto" follows the reader's screen and prints in light colours."""
    light, dark = _rules(_colours(LIGHT, lanes)), _rules(_colours(DARK, lanes))
    if theme == "auto":
        return f"{_rules(SHAPES)}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
    return _rules(SHAPES) + (dark if theme == "dark" else light)
