"""Batch invariance: the ranges of m in which a layer's order of additions stays the same.

While the order stays the same, a row of D depends only on its own row of A and on B, so a token gets the same bits in
every batch. The library's choice of kernel depends on m, however, and the order changes with the kernel.
`batch_invariance` lists the ranges of m between these changes, for one layer or for all layers of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from os import PathLike

from warpfrag import html
from warpfrag.blas.cublas.choice_table import GPU, Choices
from warpfrag.blas.cublas.predict_order import DTYPES, OrderRun, extents, is_alike, order_runs, product_kind
from warpfrag.blas.cublas.torch_settings import assumption_lines, assumptions
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.number_formats import format_name
from warpfrag.layout.providers import figure_svg

Layers = int | Sequence[tuple[int, int]] | Mapping[str, tuple[int, int]]

MAX_LAYERS = 10_000
MAX_SPAN = 1 << 16


@dataclass(frozen=True)
class LayerRanges:
    """A layer: its name, n and k, and the ranges of m in which its order of additions stays the same."""

    name: str
    n: int
    k: int
    ranges: tuple[OrderRun, ...]


@dataclass(frozen=True)
class Invariance:
    """For each layer, the ranges of m in which its order of additions stays the same."""

    layers: tuple[LayerRanges, ...]
    type: str
    layout: str
    m: tuple[int, int]
    source: str

    @property
    def changes(self) -> tuple[int, ...]:
        """The values of m at which the order of some layer differs from that at m - 1."""
        return tuple(sorted({run.first for layer in self.layers for run in layer.ranges[1:]}))

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges (first, last) of m in which no layer's order changes."""
        starts = [self.m[0], *self.changes, self.m[1] + 1]
        return tuple((first, last - 1) for first, last in pairwise(starts))

    @property
    def is_guess(self) -> bool:
        """True if a range depends on a modelled choice or on an unproved rule."""
        return any(run.is_guess for layer in self.layers for run in layer.ranges)

    @property
    def like_largest(self) -> tuple[tuple[int, int], ...]:
        """The ranges (first, last) of m in which every layer has its order at the largest m.

        Empty if that is unknown.
        """
        spans = [self.m]
        for layer in self.layers:
            largest = layer.ranges[-1]
            runs = [run for run in layer.ranges if largest.order is not None and is_alike(run, largest, self.type)]
            both = [(max(first, run.first), min(last, run.last)) for first, last in spans for run in runs]
            spans = [(first, last) for first, last in both if first <= last]
        return tuple(spans)

    @property
    def text(self) -> str:
        """A report: the m at which bits change, the ranges of each layer, the ranges common to all, and a remedy."""
        summary, *remedy = self.conclusion
        lines = [f"{self.type} {self.layout}, m = {self.m[0]}..{self.m[1]}, {self.source}", summary]
        for layer in self.layers:
            lines.append(f"{layer.name} (n = {layer.n}, k = {layer.k})")
            texts = [run.text.partition(": ") for run in layer.ranges]
            width = max(len(span) for span, _, _ in texts)
            lines += [f"  {span:{width}}  {order}" for span, _, order in texts]
        if len(self.layers) > 1:
            lines.append(f"no layer changes within m = {_listed(self.ranges, 20)}")
        return "\n".join([*lines, *remedy, *assumption_lines([self.type])])

    @property
    def conclusion(self) -> tuple[str, ...]:
        """A sentence about the m at which the bits of a row change and, if any do, the cheapest remedy."""
        guess = "; some ranges are guesses" if self.is_guess else ""
        if not self.changes:
            return (f"the bits of a row do not depend on the batch size from {self.m[0]} to {self.m[1]}{guess}",)
        summary = f"the bits of a row change at m = {_listed([(m, m) for m in self.changes])}{guess}"
        spans, largest = self.like_largest, self.m[1]
        if not spans:
            return summary, f"use a batch-invariant kernel to keep the bits: m = {largest} is not modelled"
        ends = [self.m[0] - 1, *(last for _, last in spans)]
        rows = max(first - last - 1 for (first, _), last in zip(spans, ends, strict=False))
        pad = f"to keep the bits up to m = {largest}, pad smaller batches with zero rows until m is in {_listed(spans)}"
        return summary, f"{pad} (at most {rows} rows), then drop those rows; or use a batch-invariant kernel"

    def __str__(self) -> str:
        """Return the ranges as text, one per line."""
        return self.text

    def __repr__(self) -> str:
        """Return the number of layers and ranges."""
        layers = f"{self.layers[0].n} x {self.layers[0].k}" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        count = len(self.ranges)
        span = f"m = {self.m[0]}..{self.m[1]}"
        return f"<Invariance of {layers}, {self.type} {self.layout}, {span}: {count} range{'s' * (count != 1)}>"

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks, with a figure."""
        figure = f"<figure>{self.svg()}</figure>"
        return html.card(html.escape(repr(self)[1:-1]), figure, f"<p>{html.escape(self.source)}</p>")

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON-compatible values."""
        return {
            "type": self.type,
            "layout": self.layout,
            "m": list(self.m),
            "source": self.source,
            "settings": assumptions([self.type]),
            "guess": self.is_guess,
            "changes": list(self.changes),
            "ranges": [list(span) for span in self.ranges],
            "conclusion": "; ".join(self.conclusion),
            "layers": [
                {"name": layer.name, "n": layer.n, "k": layer.k, "ranges": [_run_dict(run) for run in layer.ranges]}
                for layer in self.layers
            ],
        }

    def svg(self, *, theme: str = "auto") -> str:
        """Return an SVG figure of each layer's ranges of m on a logarithmic scale, coloured by order."""
        return figure_svg(self, theme)


def _listed(spans: Sequence[tuple[int, int]], limit: int = 8) -> str:
    """Return the first few ranges as text."""
    texts = [f"{first}..{last}" if last > first else f"{first}" for first, last in spans[:limit]]
    return ", ".join([*texts, *(["..."] if len(spans) > limit else [])])


def _run_dict(run: OrderRun) -> dict[str, object]:
    facts = asdict(run)
    return {name: facts[name] for name in ("first", "last", "order", "omitted_k", "basis", "kernel")} | {
        "guess": run.is_guess,
        "text": run.text,
    }


def batch_invariance(
    n: Layers,
    k: int | None = None,
    *,
    dtype: object = "bf16",
    layout: str = "nt",
    bias: bool = False,
    fast_accumulation: bool = False,
    m: tuple[int, int] = (1, 8192),
    query_cublas: bool = False,
    choices: str | PathLike[str] | Choices | Sequence[str | Choices] = GPU,
) -> Invariance:
    """Return the ranges of m in which a layer's order of additions, and thus the bits of each row, stay the same.

    `n` and `k` are the extents of a layer's weight. Alternatively, `n` is a list of (n, k) pairs, or a dict from names
    to such pairs. The other keywords are those of `wf.predict_order`. If several tables of choices are given, every
    layer is listed once per table. The text names the settings of PyTorch that are assumed, with their values in this
    process if PyTorch is imported.
    """
    kind = product_kind(format_name(dtype, DTYPES), layout, bias=bias, fast_accumulation=fast_accumulation)
    span = _span(m)
    layers = _layers(n, k)
    tables = list(choices) if isinstance(choices, tuple | list) else [choices]
    if not tables:
        raise InvalidOperand("choices: expected at least one file of choices, got none")
    listed, sources = [], []
    for (name, (rows, depth)), table in ((layer, table) for layer in layers.items() for table in tables):
        runs, source = order_runs(kind, rows, depth, span, query_cublas=query_cublas, choices=table)
        listed.append(LayerRanges(name if len(tables) == 1 else f"{name}, {source}", rows, depth, tuple(runs)))
        sources.append(source)
    return Invariance(tuple(listed), kind.type, kind.layout, span, "; ".join(dict.fromkeys(sources)))


def _span(m: object) -> tuple[int, int]:
    first, last = extents("m", m, MAX_SPAN)
    if first > last:
        raise InvalidOperand(f"m: expected the smallest m first, such as {(last, first)}; got {(first, last)}")
    return first, last


def _layers(n: object, k: object) -> dict[str, tuple[int, int]]:
    """Return the (n, k) pairs of the layers by name."""
    if isinstance(n, dict):
        named = list(n.items())
    elif isinstance(n, tuple | list):
        named = [("", pair) for pair in n]
    else:
        named = [("", (n, k))]
        k = None
    if k is not None or not 1 <= len(named) <= MAX_LAYERS:
        raise InvalidOperand(f"expected n and k, or a list of pairs (n, k); got {quote(n)} and {quote(k)}")
    layers = [(name, extents("a layer, n and k", pair)) for name, pair in named]
    return {str(name) or f"{pair[0]} x {pair[1]}": pair for name, pair in layers}
