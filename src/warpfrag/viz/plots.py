"""Plots: error histograms, the growth of errors with k, and the order of additions by m."""

import math
from collections.abc import Iterator, Mapping, Sequence

from warpfrag.blas.cublas.batch_invariance import Invariance, LayerRanges
from warpfrag.blas.cublas.predict_order import OrderRun
from warpfrag.blas.error_report import ErrorReport, Growth
from warpfrag.viz import svg
from warpfrag.viz.drawing import Plot
from warpfrag.viz.palette import DARK, Palette, Theme, oklch, themed

MARGIN = 20
PLOT_WIDTH, PLOT_HEIGHT = 340, 190
LEFT, BELOW, ABOVE = 58, 38, 30
HUES = (250, 25, 145, 80, 310, 195, 50, 280, 110, 340)
DASHES = ("none", "7 3", "2 3", "9 2 2 2", "4 4", "1 2")
"""Dash patterns that distinguish coinciding curves, one for each series colour."""
SERIES = len(DASHES)
LINE_HEIGHT = 18
CHARACTER = 7  # the approximate width of a character in pixels
INVARIANCE_WIDTH, NAMES_WIDTH, ROW, RUN_HEIGHT = 900, 230, 24, 16
MAX_DRAWN = 400  # the maximum number of layers in a figure
MAX_NAME = 32  # the maximum number of characters of a layer's name

STYLE = (
    ".wf{font-family:system-ui,sans-serif;font-size:12px}.wf .heading{font-size:16px;font-weight:600}"
    ".wf .strong{font-weight:600}.wf .middle{text-anchor:middle}.wf .end{text-anchor:end}"
    ".wf .tick{font-size:11px}.wf .curve{fill:none;stroke-width:2}.wf .bar{fill-opacity:.28;stroke-width:1.5}"
    ".wf .axis{fill:none;stroke-width:1}"
)


def report_plot(report: object) -> Plot | None:
    """Return the chart of an error report or of batch invariance, or None for any other object."""
    if isinstance(report, ErrorReport):
        return error_plot(report)
    return invariance_plot(report) if isinstance(report, Invariance) else None


def error_plot(report: ErrorReport) -> Plot:
    """Return the figure of an error report: a histogram of the errors, and their growth with k."""
    m, n, k = report.shape
    title = f"Errors of a {m} x {n} x {k} GEMM, in ulps of {report.result}"
    top = MARGIN + 46
    body = [
        svg.text(report.instruction, x=MARGIN, y=MARGIN + 34, classes="note"),
        *_histogram(report, MARGIN, top),
        *_curves(report, 2 * MARGIN + LEFT + PLOT_WIDTH, top),
    ]
    y = top + ABOVE + PLOT_HEIGHT + BELOW + 22
    for index, series in enumerate(report.errors):
        words = (
            f"{series.name}: largest {series.largest_ulps:.3g}, rms {series.rms_ulps:.3g}, mean {series.mean_ulps:+.3g}"
        )
        body.append(svg.rect(x=MARGIN, y=y - 10, width=12, height=12, classes=f"bar s{index % SERIES}"))
        body.append(svg.text(words, x=MARGIN + 20, y=y))
        y += LINE_HEIGHT
    width = 2 * (LEFT + PLOT_WIDTH + MARGIN) + MARGIN
    return framed_plot(title, body, width, y + MARGIN - LINE_HEIGHT + 4, str(report))


def framed_plot(title: str, body: Sequence[str], width: int, height: int, text: str) -> Plot:
    """Return a figure that has a background, a heading and styles around its body."""
    paper = svg.rect(x=0, y=0, width=width, height=height, classes="paper")
    heading = svg.text(title, x=MARGIN, y=MARGIN + 14, classes="heading")

    def write(theme: Theme) -> str:
        style = STYLE + themed(theme, _colours)
        return svg.document([paper, heading, *body], width=width, height=height, title=title, style=style)

    return Plot(title, write, text)


def _frame(x: int, y: int, heading: str, across: str) -> list[str]:
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    return [
        svg.text(heading, x=left, y=y + ABOVE - 12, classes="strong"),
        svg.element("path", {"class": "axis", "d": f"M{left} {y + ABOVE}V{bottom}H{left + PLOT_WIDTH}"}),
        svg.text(across, x=left + PLOT_WIDTH / 2, y=bottom + 34, classes="middle note"),
    ]


def _histogram(report: ErrorReport, x: int, y: int) -> Iterator[str]:
    """Yield the density of outputs by error, as one outline per series on a common axis."""
    yield from _frame(x, y, "Density", "computed minus exact, in ulps; end bins include outliers")
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    reach = max(abs(series.edges[-1]) for series in report.errors)
    densities = [
        [
            count / (high - low) / sum(series.counts)
            for count, low, high in zip(series.counts, series.edges, series.edges[1:], strict=False)
        ]
        for series in report.errors
    ]  # the density of each series
    tallest = max(map(max, densities))

    def across(value: float) -> float:
        return left + (value + reach) / (2 * reach) * PLOT_WIDTH

    for index, (series, heights) in enumerate(zip(report.errors, densities, strict=True)):
        path = f"M{svg.number(across(series.edges[0]))} {bottom}"
        for low, high, density in zip(series.edges, series.edges[1:], heights, strict=False):
            level = svg.number(bottom - density / tallest * PLOT_HEIGHT)
            path += f"L{svg.number(across(low))} {level}H{svg.number(across(high))}"
        yield svg.element("path", {"class": f"bar s{index % SERIES}", "d": f"{path}V{bottom}z"})
    for value in (-reach, -reach / 2, 0.0, reach / 2, reach):
        yield svg.text(f"{value:g}", x=across(value), y=bottom + 16, classes="middle tick")
    yield svg.text("dense", x=left - 6, y=y + ABOVE + 5, classes="end tick")
    yield svg.text("0", x=left - 6, y=bottom, classes="end tick")


def _curves(report: ErrorReport, x: int, y: int) -> Iterator[str]:
    """Yield curves of the error by k, relative to the size of the outputs, on logarithmic scales."""
    yield from _frame(x, y, "Growth with k", "k")
    left, bottom = x + LEFT, y + ABOVE + PLOT_HEIGHT
    points = [point for series in report.errors for point in series.growth]
    depths = sorted({point.k for point in points})
    positive = [math.log2(point.normwise) for point in points if point.normwise > 0] or [-1.0]
    low = math.floor(min(positive))
    high = max(math.ceil(max(positive)), low + 1)
    first, last = math.log2(depths[0]), math.log2(depths[-1])

    def across(depth: int) -> float:
        return left + (math.log2(depth) - first) / ((last - first) or 1) * PLOT_WIDTH

    def up(point: Growth) -> float:
        return bottom - ((math.log2(point.normwise) - low) / (high - low) if point.normwise > 0 else 0) * PLOT_HEIGHT

    for index, series in enumerate(report.errors):
        ends = [(across(point.k), up(point)) for point in series.growth]
        path = "L".join(f"{svg.number(end)} {svg.number(level)}" for end, level in ends)
        yield svg.element("path", {"class": f"curve s{index % SERIES}", "d": f"M{path}"})
        for end, level in ends:
            yield svg.element("circle", {"class": f"dot s{index % SERIES}", "cx": end, "cy": level, "r": 3})
    for depth in depths if len(depths) <= 7 else [*depths[:-1:2], depths[-1]]:
        yield svg.text(str(depth), x=across(depth), y=bottom + 16, classes="middle tick")
    for power in range(low, high + 1, max(1, -(-(high - low) // 6))):
        level = bottom - (power - low) / (high - low) * PLOT_HEIGHT
        yield svg.text(f"2^{power}", x=left - 6, y=level + 4, classes="end tick")
    yield svg.text("rms error / rms of exact", x=left + PLOT_WIDTH, y=y + ABOVE - 12, classes="end note")


def _colours(palette: Palette) -> str:
    series_lightness, run_lightness = (0.78, 0.4) if palette is DARK else (0.52, 0.86)
    rules = ""
    for index, (hue, dashes) in enumerate(zip(HUES, DASHES, strict=False)):
        colour = oklch(series_lightness, 0.14, hue)
        rules += f".wf .s{index}{{stroke:{colour};stroke-dasharray:{dashes}}}"
        rules += f".wf .bar.s{index},.wf .dot.s{index}{{fill:{colour}}}"
    for index, hue in enumerate(HUES):
        rules += f".wf .c{index}{{fill:{oklch(run_lightness, 0.09, hue)}}}"
    return (
        f".wf .paper{{fill:{palette.paper}}}.wf text{{fill:{palette.ink}}}.wf .note,.wf .tick{{fill:{palette.muted}}}"
        f".wf .ink{{fill:{palette.ink}}}.wf .axis{{stroke:{palette.edge}}}"
        f".wf .grid{{stroke:{palette.unread};fill:none}}"
        f".wf .run{{stroke:{palette.paper}}}{rules}"
    )


def invariance_plot(invariance: Invariance) -> Plot:
    """Return a figure of layers by m, coloured by order of additions; m is on a logarithmic scale."""
    drawn = invariance.layers[:MAX_DRAWN]
    height = 2 * MARGIN + 60 + ROW * len(drawn)
    keys = dict.fromkeys(_order_key(run) for layer in drawn for run in layer.ranges)
    colours = {key: index % len(HUES) for index, key in enumerate(keys)}
    low, high = math.log2(invariance.m[0]), math.log2(invariance.m[1] + 1)

    def across(m: int) -> float:
        return NAMES_WIDTH + (math.log2(m) - low) / ((high - low) or 1) * (INVARIANCE_WIDTH - NAMES_WIDTH - MARGIN)

    body = []
    top, bottom = MARGIN + 30, height - MARGIN - 24
    for m in (1 << power for power in range(25)):
        if invariance.m[0] <= m <= invariance.m[1]:
            body.append(svg.element("path", {"class": "grid", "d": f"M{svg.number(across(m))} {top}V{bottom}"}))
            body.append(svg.text(str(m), x=across(m), y=bottom + 16, classes="middle tick"))
    for index, layer in enumerate(drawn):
        edges = [(run, across(run.first), across(run.last + 1)) for run in layer.ranges]
        body += _layer(layer, edges, MARGIN + 34 + index * ROW, colours)
    title = f"Order of additions by m: {invariance.type} {invariance.layout}"
    return framed_plot(title, body, INVARIANCE_WIDTH, height, str(invariance))


def _layer(
    layer: LayerRanges, edges: list[tuple[OrderRun, float, float]], y: float, colours: Mapping[object, int]
) -> Iterator[str]:
    """Yield a layer's name, and a bar for each of its ranges of m."""
    name = layer.name if len(layer.name) <= MAX_NAME else layer.name[: MAX_NAME - 1] + "…"
    yield svg.text(name, x=NAMES_WIDTH - 8, y=y + 12, classes="end")
    for run, x, end in edges:
        classes = f"run c{colours[_order_key(run)]}"
        yield svg.rect(x=x, y=y, width=max(end - x, 0.5), height=RUN_HEIGHT, classes=classes, title=run.text)
        if end - x > CHARACTER * len(run.short) + 4:
            yield svg.text(run.short, x=(x + end) / 2, y=y + 12, classes="middle tick ink")


def _order_key(run: OrderRun) -> object:
    order = run.order
    return (
        None if order is None else (order.split_k, order.segment_k, order.residue, order.in_place, bool(run.omitted_k))
    )
