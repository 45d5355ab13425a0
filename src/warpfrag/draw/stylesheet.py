"""The style sheet of a figure: fonts and colours, for light, dark and print.

Every rule starts with `.wf`, so that a figure that is part of a page, as in a notebook, changes nothing else there.
There are no CSS variables, because not every SVG renderer knows them.
"""

from __future__ import annotations

from functools import cache

from warpfrag.draw.metrics import FONT, SMALL, TITLE
from warpfrag.draw.palette import DARK, LANES, LIGHT, Palette, Theme

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


def _colours(palette: Palette) -> dict[str, str]:
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
    return rules | {f'[data-lane="{lane}"]': f"fill:{palette.lane(lane)}" for lane in range(LANES)}


def _rules(rules: dict[str, str]) -> str:
    return "".join(f".wf {selector}{{{declarations}}}" for selector, declarations in rules.items())


@cache
def stylesheet(theme: Theme) -> str:
    """The rules of a theme; "auto" follows the reader's screen and prints in light colours."""
    light, dark = _rules(_colours(LIGHT)), _rules(_colours(DARK))
    if theme == "auto":
        return f"{_rules(SHAPES)}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
    return _rules(SHAPES) + (dark if theme == "dark" else light)
