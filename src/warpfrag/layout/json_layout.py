"""JSON: every digit of every input and what it moves. Any layout has such a text, so this is the one to keep.

`ins` lists for each input its digits, low first: a radix, which is 2 for a bit, and how far each coordinate of `outs`
goes. `start` is the element where all inputs are 0.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> Layout.parse(dict(row=2, col=3), lane="r1", reg="c1 c2").to("json")
    '{"ins": {"lane": [[2, [1, 0]]], "reg": [[3, [0, 1]]], "slot": []}, "outs": {"row": 2, "col": 3}, "start": [0, 0]}'
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import MAX_SIZE
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.scanner import Scanner

if TYPE_CHECKING:
    from typing import TypeGuard

SHAPE = '{"ins": {"lane": [[2, [0, 1]], ...], ...}, "outs": {"row": 16, "col": 8}, "start": [0, 0]}'


def write(layout: Layout) -> str:
    """The extents, every digit with its moves, and the start, as one line of JSON."""
    ins = {name: [[step.radix, [*step.moves]] for step in layout.steps(name)] for name in layout.ins}
    return json.dumps({"ins": ins, "outs": layout.outs, "start": [*layout.start]})


def read(text: object) -> Layout:
    """The layout that such a line says."""
    scanner = Scanner("json", text)
    try:
        value = json.loads(scanner.text)
    except (ValueError, RecursionError) as error:
        msg = f"json: {error}" if isinstance(error, json.JSONDecodeError) else "json: this is no JSON"
        raise InvalidOperand(msg) from None
    if not _is_layout(value):
        msg = f"json: expected {SHAPE}, got {quote(value)}"
        raise InvalidOperand(msg)
    places = prod(radix for digits in value["ins"].values() for radix, _ in digits)
    if places > MAX_SIZE:
        msg = f"json: expected at most {MAX_SIZE} places, got {quote(places)}"
        raise InvalidOperand(msg)
    try:
        return Layout.of_steps(value["outs"], value["ins"], value["start"])
    except InvalidOperand as error:
        msg = f"json: {error}"
        raise InvalidOperand(msg) from None


def _is_layout(value: Any) -> TypeGuard[dict[str, Any]]:  # noqa: ANN401 (whatever JSON can hold)
    """Whether it has the form of a layout, numbers and names where they belong."""
    if not isinstance(value, dict) or {*value} != {"ins", "outs", "start"}:
        return False
    ins, outs, start = value["ins"], value["outs"], value["start"]
    if not isinstance(ins, dict) or not isinstance(outs, dict) or not all(map(str.isidentifier, (*ins, *outs))):
        return False
    digits = [digit for of_input in ins.values() if isinstance(of_input, list) for digit in of_input]
    return (
        all(isinstance(of_input, list) for of_input in ins.values())
        and all(map(_is_index, outs.values()))
        and _is_element(start, len(outs))
        and all(
            isinstance(digit, list)
            and len(digit) == 2
            and _is_index(digit[0])
            and digit[0] > 1
            and _is_element(digit[1], len(outs))
            for digit in digits
        )
    )


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SIZE


def _is_element(value: object, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(map(_is_index, value))
