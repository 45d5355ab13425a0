"""Plots: histograms and curves, for reports of errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from warpfrag.errors import InvalidOperand, quote
from warpfrag.viz import svg
from warpfrag.viz.palette import DARK, LIGHT, Palette, oklch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warpfrag.viz.palette import Theme

MARGIN = 20
PLOT_WIDTH, PLOT_HEIGHT = 340, 190
LEFT, BELOW, ABOVE = 58, 38, 30
HUES = (250, 25, 145, 80, 310, 195)
DASHES = ("none", "7 3", "2 3", "9 2 2 2", "4 4", "1 2")
"""Series that lie on each other can still be told apart."""
LINE_HEIGHT = 18
CHARACTER = 7  # the width of one, about
WIDTH = 2 * (LEFT + PLOT_WIDTH + MARGIN) + MARGIN


class PlottedPoint(Protocol):
    """A point of a curve."""

    @property
    def k(self) -> int:
        """The depth of K so far."""

    @property
    def normwise(self) -> float:
        """The error there."""


class PlottedSeries(Protocol):
    """What is plotted of one architecture."""

    @property
    def name(self) -> str:
        """The label in the legend."""

    @property
    def edges(self) -> tuple[float, ...]:
        """The ends of the bins."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many errors each bin has."""

    @property
    def growth(self) -> Sequence[PlottedPoint]:
        """The error by k."""

    @property
    def rms_ulps(self) -> float:
        """The root mean square of the errors, in ulps."""

    @property
    def mean_ulps(self) -> float:
        """The mean of the errors, in ulps."""

    @property
    def largest_ulps(self) -> float:
        """The largest error, in ulps."""


class PlottedReport(Protocol):
    """What a page of errors shows."""

    @property
    def instruction(self) -> str:
        """The name of the instruction."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The extents M, N and K of the product."""

    @property
    def result(self) -> str:
        """The format of D."""

    @property
    def errors(self) -> Sequence[PlottedSeries]:
        """One for each architecture and order."""


def error_page(report: PlottedReport, *, theme: Theme = "auto") -> str:
    """A histogram of the errors and a curve of their growth, with a legend."""
    m, n, k = report.shape
    title = f"Errors of a product {m} x {n} x {k}, in ulps of {report.result}"
    top = MARGIN + 46
    body = [
        svg.text(title, x=MARGIN, y=MARGIN + 14, classes="heading"),
        svg.text(report.instruction, x=MARGIN, y=MARGIN + 34, classes="note"),
        *_histogram(report, MARGIN, top),
        *_curves(report, 2 * MARGIN + LEFT + PLOT_WIDTH, top),
    ]
    y = top + ABOVE + PLOT_HEIGHT + BELOW + 22
    for place, series in enumerate(report.errors):
        words = (
            f"{series.name}: largest {series.largest_ulps:.3g}, rms {series.rms_ulps:.3g}, mean {series.mean_ulps:+.3g}"
        )
        body.append(svg.rect(x=MARGIN, y=y - 10, width=12, height=12, classes=f"bar s{place % len(HUES)}"))
        body.append(svg.text(words, x=MARGIN + 20, y=y))
        y += LINE_HEIGHT
    height = y + MARGIN - LINE_HEIGHT + 4
    paper = svg.rect(x=0, y=0, width=WIDTH, height=height, classes="paper")
    return svg.document([paper, *body], width=WIDTH, height=height, title=title, style=style(theme))


def bar_page(title: str, bars: Sequence[tuple[str, float]], *, theme: Theme = "auto") -> str:
    """A horizontal bar for each case, on a logarithmic axis; a case without errors has no bar."""
    sizes = [size for _, size in bars if size > 0] or [1.0]
    low, high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    low, high = min(low, high - 1), max(high, low + 1)
    labels = max(len(label) for label, _ in bars) * CHARACTER + MARGIN
    left, top = MARGIN + labels, MARGIN + 34
    width = left + PLOT_WIDTH + 90

    def across(size: float) -> float:
        return left + (math.log10(size) - low) / (high - low) * PLOT_WIDTH

    body = [svg.text(title, x=MARGIN, y=MARGIN + 14, classes="heading")]
    y = top + LINE_HEIGHT
    for label, size in bars:
        body.append(svg.text(label, x=left - 8, y=y, classes="end"))
        if size > 0:
            body.append(svg.rect(x=left, y=y - 11, width=max(across(size) - left, 1), height=13, classes="bar s0"))
        body.append(svg.text(f"{size:.3g}", x=(across(size) if size > 0 else left) + 6, y=y, classes="note"))
        y += LINE_HEIGHT
    body.append(svg.element("path", {"class": "axis", "d": f"M{left} {top}V{y - 8}H{left + PLOT_WIDTH}"}))
    step = max(1, (high - low) // 5)
    body += [
        svg.text(f"1e{power}", x=across(10.0**power), y=y + 10, classes="middle tick")
        for power in range(low, high + 1, step)
    ]
    height = y + MARGIN + 10
    paper = svg.rect(x=0, y=0, width=width, height=height, classes="paper")
    return svg.document([paper, *body], width=width, height=height, title=title, style=style(theme))


def _frame(x: int, y: int, heading: str, across: str) -> list[str]:
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    axis = svg.element("path", {"class": "axis", "d": f"M{left} {y + ABOVE}V{bottom}H{left + PLOT_WIDTH}"})
    return [
        svg.text(heading, x=left, y=y + ABOVE - 12, classes="strong"),
        axis,
        svg.text(across, x=left + PLOT_WIDTH / 2, y=bottom + 34, classes="middle note"),
    ]


def _histogram(report: PlottedReport, x: int, y: int) -> Iterator[str]:
    """The share of outputs by error, one outline for each series over a common axis."""
    yield from _frame(x, y, "Density", "computed minus exact, in ulps; end bins include outliers")
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    reach = max(abs(series.edges[-1]) for series in report.errors)
    shares = [[count / (high - low) / sum(series.counts)
               for count, low, high in zip(series.counts, series.edges, series.edges[1:], strict=False)]
              for series in report.errors]  # fmt: skip
    tallest = max(max(series_shares) for series_shares in shares)

    def across(value: float) -> float:
        return left + (value + reach) / (2 * reach) * PLOT_WIDTH

    for place, (series, heights) in enumerate(zip(report.errors, shares, strict=True)):
        steps = f"M{svg.number(across(series.edges[0]))} {bottom}"
        for low, high, share in zip(series.edges, series.edges[1:], heights, strict=False):
            level = svg.number(bottom - share / tallest * PLOT_HEIGHT)
            steps += f"L{svg.number(across(low))} {level}H{svg.number(across(high))}"
        steps += f"V{bottom}z"
        yield svg.element("path", {"class": f"bar s{place % len(HUES)}", "d": steps})
    for value in (-reach, -reach / 2, 0.0, reach / 2, reach):
        yield svg.text(f"{value:g}", x=across(value), y=bottom + 16, classes="middle tick")
    yield svg.text("dense", x=left - 6, y=y + ABOVE + 5, classes="end tick")
    yield svg.text("0", x=left - 6, y=bottom, classes="end tick")


def _curves(report: PlottedReport, x: int, y: int) -> Iterator[str]:
    """The error by k, relative to the size of the outputs, both on scales of powers of two."""
    yield from _frame(x, y, "How it grows", "k")
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    points = [point for series in report.errors for point in series.growth]
    depths = sorted({point.k for point in points})
    positive = [point.normwise for point in points if point.normwise > 0]
    low = math.floor(math.log2(min(positive))) if positive else -1
    high = math.ceil(math.log2(max(positive))) if positive else 0
    high = max(high, low + 1)
    first, last = math.log2(depths[0]), math.log2(depths[-1])

    def place_of(point: PlottedPoint) -> tuple[float, float]:
        share = (math.log2(point.k) - first) / ((last - first) or 1)
        level = (math.log2(point.normwise) - low) / (high - low) if point.normwise > 0 else 0.0
        return left + share * PLOT_WIDTH, bottom - level * PLOT_HEIGHT

    for place, series in enumerate(report.errors):
        places = [place_of(point) for point in series.growth]
        path = "L".join(f"{svg.number(across)} {svg.number(up)}" for across, up in places)
        yield svg.element("path", {"class": f"curve s{place % len(HUES)}", "d": f"M{path}"})
        for across, up in places:
            dot: dict[str, svg.Number | str] = {"class": f"dot s{place % len(HUES)}", "cx": across, "cy": up, "r": 3}
            yield svg.element("circle", dot)
    labelled = depths if len(depths) <= 7 else [*depths[:-1:2], depths[-1]]
    for depth in labelled:
        share = (math.log2(depth) - first) / ((last - first) or 1)
        yield svg.text(str(depth), x=left + share * PLOT_WIDTH, y=bottom + 16, classes="middle tick")
    step = max(1, -(-(high - low) // 6))
    for power in range(low, high + 1, step):
        level = bottom - (power - low) / (high - low) * PLOT_HEIGHT
        words = f"2^{power}"
        yield svg.text(words, x=left - 6, y=level + 4, classes="end tick")
    yield svg.text("rms error / rms of exact", x=left + PLOT_WIDTH, y=y + ABOVE - 12, classes="end note")


def style(theme: Theme) -> str:
    """Rules for both themes, or for one."""
    shared = (
        ".wf{font-family:system-ui,sans-serif;font-size:12px}.wf .heading{font-size:16px;font-weight:600}"
        ".wf .strong{font-weight:600}.wf .middle{text-anchor:middle}.wf .end{text-anchor:end}"
        ".wf .tick{font-size:11px}.wf .curve{fill:none;stroke-width:2}.wf .bar{fill-opacity:.28;stroke-width:1.5}"
        ".wf .axis{fill:none;stroke-width:1}"
    )
    if not (isinstance(theme, str) and theme in {"auto", "light", "dark"}):
        msg = f"theme is auto, light or dark, got {quote(theme)}"
        raise InvalidOperand(msg)
    if theme == "auto":
        dark = f"@media(prefers-color-scheme:dark){{{_colours(DARK, 0.78)}}}"
        return shared + _colours(LIGHT, 0.52) + dark
    return shared + (_colours(DARK, 0.78) if theme == "dark" else _colours(LIGHT, 0.52))


def _colours(palette: Palette, lightness: float) -> str:
    series = ""
    for place, (hue, dashes) in enumerate(zip(HUES, DASHES, strict=True)):
        colour = oklch(lightness, 0.14, hue)
        series += f".wf .s{place}{{stroke:{colour};stroke-dasharray:{dashes}}}"
        series += f".wf .bar.s{place},.wf .dot.s{place}{{fill:{colour}}}"
    return (
        f".wf .paper{{fill:{palette.paper}}}.wf text{{fill:{palette.ink}}}.wf .note,.wf .tick{{fill:{palette.muted}}}"
        f".wf .axis{{stroke:{palette.edge}}}{series}"
    )
