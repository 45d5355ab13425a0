"""MLIR: an affine map for each layout, from the inputs to the coordinates.

    affine_map<(lane, reg, slot) -> (lane floordiv 4 + (reg mod 2) * 8, (lane mod 4) * 2 + slot + (reg floordiv 2) * 8)>

A part of an index is `floordiv` and `mod`, where it goes is a factor, and parts are added. Where several bits move the
same bit of a coordinate, their sum `mod 2` is their xor. So every layout has such a map. Dimensions may have names; a
compiler prints them as d0, d1, d2.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> Layout.parse(dict(row=2, col=2), lane="r1 r1+c1").to("mlir")
    'affine_map<(lane, reg, slot) -> ((lane floordiv 2 + lane mod 2) mod 2, lane floordiv 2)>'
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warpfrag.layout.linear_layout import Layout


class IndexPart(NamedTuple):
    """The digit of an index with this weight and radix, or some such digits that are neighbours."""

    source: str
    weight: int
    radix: int


def write(layout: Layout) -> str:
    """The layout as an affine map from places to coordinates."""
    results = ", ".join(_expression(layout, dim) for dim in layout.dims)
    return f"affine_map<({', '.join(layout.ins)}) -> ({results})>"


def _expression(layout: Layout, dim: str) -> str:
    """The affine expression of one coordinate."""
    rest = getattr(layout.start, dim)
    terms = []
    for weight, parts in _parts(layout, dim).items():
        texts = [_part(part, layout.ins[part.source]) for part in parts]
        starts = parts[0].radix == 2 and rest // weight % 2
        if starts:
            texts.append("1")
            rest -= weight
        text = f"({' + '.join(texts)}) mod 2" if len(texts) > 1 else texts[0]
        inner = f"({text})" if " " in text else text
        terms.append(f"{inner} * {weight}" if weight > 1 else text)
    return " + ".join(terms + ([str(rest)] if rest or not terms else []))


def _parts(layout: Layout, dim: str) -> dict[int, list[IndexPart]]:
    """What makes up a coordinate: by its weight there, the parts of inputs that are joined, whole runs if alone."""
    runs = layout.runs(dim)
    whole = {run.multiply: [IndexPart(run.source, run.divide, run.modulo)] for run in runs}
    spans = sorted((run.multiply, run.multiply * run.modulo) for run in runs)
    apart = all(end <= start for (_, end), (start, _) in pairwise(spans))
    if apart and not getattr(layout.start, dim):
        return whole
    by_weight: dict[int, list[IndexPart]] = {}
    for run in runs:
        for weight, radix in layout.digits(run.source):
            if run.divide <= weight < run.divide * run.modulo:
                part = IndexPart(run.source, weight, radix)
                by_weight.setdefault(run.multiply * (weight // run.divide), []).append(part)
    return by_weight


def _part(part: IndexPart, size: int) -> str:
    """A part of an index: shifted down, and cut off above where there is more."""
    text = part.source if part.weight == 1 else f"{part.source} floordiv {part.weight}"
    if part.weight * part.radix == size:
        return text
    return f"({text}) mod {part.radix}" if part.weight > 1 else f"{text} mod {part.radix}"
