"""Layouts as C expressions, MLIR affine maps and JSON.

**C**: each coordinate as an expression of `lane` and of PTX's element number `i`, ready to paste into a kernel. The
expressions shift and mask, so a size that is not a power of two must be the highest part of its index: 24 = 8 * 3 is
possible, but two of these tiles side by side are not.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> print(Layout.parse(dict(row=8, col=8), lane="c2 c4 r1 r2 r4", slot="c1").to("c"))
    // i = slot
    int row = lane >> 2;
    int col = (lane & 3) * 2 + i;

**MLIR**: an affine map from the inputs to the coordinates. Parts of an index are extracted by `floordiv` and `mod`,
then added. If several bits move the same bit of a coordinate, their sum `mod 2` is their xor, so every layout has such
a map.

    >>> Layout.parse(dict(row=2, col=2), lane="r1 r1+c1").to("mlir")
    'affine_map<(lane, reg, slot) -> ((lane floordiv 2 + lane mod 2) mod 2, lane floordiv 2)>'

**JSON**: every digit of every input and its moves. It can express every layout, so use it for storage. `ins` lists the
digits of each input, low first: a radix, which is 2 for a bit, and the distance that each coordinate of `outs` moves.
`start` is the element at which all inputs are 0.

    >>> Layout.parse(dict(row=2, col=3), lane="r1", reg="c1 c2").to("json")
    '{"ins": {"lane": [[2, [1, 0]]], "reg": [[3, [0, 1]]], "slot": []}, "outs": {"row": 2, "col": 3}, "start": [0, 0]}'
"""

import json
from itertools import pairwise
from math import prod
from typing import NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import MAX_SIZE
from warpfrag.layout.index_expressions import element_formulas
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.scanner import Scanner

SHAPE = '{"ins": {"lane": [[2, [0, 1]], ...], ...}, "outs": {"row": 16, "col": 8}, "start": [0, 0]}'


def write_c(layout: Layout) -> str:
    """Return one declaration per coordinate, after a comment that defines i."""
    weights = [weight for source in layout.ins for weight, _ in layout.digits(source)]
    weights += [run.multiply for dim in layout.dims for run in layout.runs(dim)]
    weights += [layout.slots] * (layout.regs > 1)  # the weight of a register in i
    if any(weight & (weight - 1) for weight in weights):
        raise InvalidOperand(
            f"c cannot express {layout} by shifts: a digit that is not a bit must be the highest part of its index"
        )
    lines = [f"int {dim} = {formula};" for dim, formula in element_formulas(layout).items()]
    return "\n".join([*_element_number(layout), *lines])


def _element_number(layout: Layout) -> list[str]:
    """Return a comment that defines i."""
    if layout.regs == layout.slots == 1:
        return []
    if layout.slots == 1:
        return ["// i = reg"]
    return ["// i = slot" if layout.regs == 1 else f"// i = {layout.slots} * reg + slot"]


class IndexPart(NamedTuple):
    """A part of an index: one or more adjacent digits, with their weight and radix."""

    source: str
    weight: int
    radix: int


def write_mlir(layout: Layout) -> str:
    """Return an affine map from inputs to coordinates."""
    results = ", ".join(_expression(layout, dim) for dim in layout.dims)
    return f"affine_map<({', '.join(layout.ins)}) -> ({results})>"


def _expression(layout: Layout, dim: str) -> str:
    """Return an affine expression for one coordinate."""
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
    """Return the input parts of a coordinate by their weights in it; parts that do not overlap are whole runs."""
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
    """Return the affine expression for a part of an index."""
    text = part.source if part.weight == 1 else f"{part.source} floordiv {part.weight}"
    if part.weight * part.radix == size:
        return text
    return f"({text}) mod {part.radix}" if part.weight > 1 else f"{text} mod {part.radix}"


def write_json(layout: Layout) -> str:
    """Return the extents, every digit with its moves, and the start, as one line of JSON."""
    ins = {name: [[step.radix, [*step.moves]] for step in layout.steps(name)] for name in layout.ins}
    return json.dumps({"ins": ins, "outs": layout.outs, "start": [*layout.start]})


def read_json(text: object) -> Layout:
    """Parse a layout that `write_json` wrote."""
    scanner = Scanner("json", text)
    try:
        value = json.loads(scanner.text)
    except (ValueError, RecursionError) as error:
        raise InvalidOperand(
            f"json: {error}" if isinstance(error, json.JSONDecodeError) else "json: this is not JSON"
        ) from None
    try:
        outs, ins, start = value["outs"], value["ins"], value["start"]
        places = prod(radix for digits in ins.values() for radix, _ in digits)
    except (TypeError, KeyError, AttributeError, ValueError):
        raise InvalidOperand(f"json: expected {SHAPE}, got {quote(value)}") from None
    if places > MAX_SIZE:
        raise InvalidOperand(f"json: expected at most {MAX_SIZE} places, got {quote(places)}")
    try:
        return Layout.of_steps(outs, ins, start)
    except InvalidOperand as error:
        raise InvalidOperand(f"json: {error}") from None
