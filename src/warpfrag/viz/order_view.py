"""Orders of additions drawn along k: a bar for each chain of instructions, and where their sums are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.viz import svg
from warpfrag.viz.plots import MARGIN, style

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.blas.order import Order
    from warpfrag.viz.palette import Theme

WIDTH = 760
LEFT, SUMS = 0, 190
BAR, GAP, TITLE = 16, 5, 40


def draw_orders(orders: Sequence[Order], *, depth: int, k: int, bits: int, theme: Theme = "auto") -> str:
    """A figure of several orders, one below the other, for a K of this depth."""
    title = f"Orders of additions, K = {depth}"
    body = [svg.text(title, x=MARGIN, y=MARGIN + 14, classes="heading")]
    y = MARGIN + 34
    for order in orders:
        rows = list(_order(order, y, depth=depth, k=k, bits=bits))
        body += rows
        y += _height(order, depth, k, bits)
    paper = svg.rect(x=0, y=0, width=WIDTH, height=y, classes="paper")
    return svg.document([paper, *body], width=WIDTH, height=y, title=title, style=style(theme))


def _height(order: Order, depth: int, k: int, bits: int) -> int:
    return TITLE + len(order.chains(depth, k, bits)) * (BAR + GAP) + 24


def _order(order: Order, y: int, *, depth: int, k: int, bits: int) -> Iterator[str]:
    """One order: a row for each part, and in it a bar for each chain, with a line where a span ends."""
    yield svg.text(f"wf.{order!r}", x=MARGIN, y=y + 14, classes="strong")
    yield svg.text(order.describe(depth), x=MARGIN, y=y + 31, classes="note")
    bar_width = WIDTH - 2 * MARGIN - LEFT - SUMS
    parts = order.chains(depth, k, bits)

    def across(place: int) -> float:
        return MARGIN + LEFT + place / depth * bar_width

    for number, part in enumerate(parts):
        top = y + TITLE + number * (BAR + GAP)
        for place, spans in enumerate(part):
            colour = (number if len(parts) > 1 else place) % 6
            left, right = across(spans[0].first), across(spans[-1].last)
            title = f"k {spans[0].first} to {spans[-1].last - 1}"
            classes = f"bar s{colour}"
            yield svg.rect(x=left + 0.5, y=top, width=right - left - 1, height=BAR, title=title, classes=classes)
            for span in spans[1:]:
                line = f"M{svg.number(across(span.first))} {top}v{BAR}"
                yield svg.element("path", {"class": "axis", "d": line})
        words = f"{len(part)} chains, added in float32" if len(part) > 1 else "one chain"
        added = "" if number == 0 else " + "
        yield svg.text(added + words, x=MARGIN + LEFT + bar_width + 10, y=top + BAR - 4, classes="note")
