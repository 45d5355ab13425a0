"""HTML for notebooks: the card that a result shows as, and tables in it.

A card takes its ink from the notebook and has no background of its own, so it can be read in light and dark. Every rule
of its style starts with the card's class, so it changes nothing else of the page.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.viz.palette import COLOURS, DARK, LIGHT, Palette
from warpfrag.viz.svg import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["STYLE", "card", "escape", "table"]

STYLE = {
    "": "font:13px/1.5 system-ui,sans-serif;margin:4px 0",
    "code": "font:600 13px ui-monospace,monospace;background:none;color:inherit;overflow-wrap:anywhere",
    "p": "margin:2px 0;opacity:.8",
    "table": "border-collapse:collapse;margin:6px 0;font-size:12px",
    "th,.wf-card td": "text-align:left;padding:1px 12px 1px 0;border:0;background:none;font-weight:400",
    "th": "font-weight:600",
    ".maps": "display:flex;flex-wrap:wrap;gap:8px 16px;align-items:flex-end",
    "figure": "margin:0",
    "figcaption": "font-size:11px;opacity:.8",
    "svg": "display:block",
}
"""Declarations by selector, below the class of a card."""


def card(*parts: str) -> str:
    """A card of these parts, which are HTML already."""
    return f'<div class="wf-card"><style>{_stylesheet()}</style>{"".join(parts)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are text and are escaped."""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


@cache
def _stylesheet() -> str:
    rules = "".join(f".wf-card {selector}{{{declarations}}}" for selector, declarations in STYLE.items())
    return f"{rules}{_fills(LIGHT)}@media (prefers-color-scheme:dark){{{_fills(DARK)}}}"


def _fills(palette: Palette) -> str:
    """The colours of lanes, for maps: class t5 is lane 5."""
    return "".join(f".wf-card .t{lane}{{fill:{palette.lane(lane)}}}" for lane in range(COLOURS))
