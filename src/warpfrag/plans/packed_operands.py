"""A fragment with its elements in another's format: the same lanes, several registers in one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.relayout_steps import Convert, RegisterSlot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warpfrag.tensorcore.operand import Operand


def packed(wide: Operand, narrow: Operand) -> Iterator[Operand]:
    """An operand with its elements in the smaller format of another, in every choice of registers that are joined."""
    joined = (narrow.layout.slots // wide.layout.slots).bit_length() - 1
    steps = {name: wide.layout.steps(name) for name in wide.layout.ins}
    if any(step.radix != 2 for name in ("reg", "slot") for step in steps[name]):
        return
    for chosen in combinations(steps["reg"], joined):
        reg = [step for step in steps["reg"] if step not in chosen]
        layout = Layout.of_steps(wide.layout.outs, {**steps, "reg": reg, "slot": [*steps["slot"], *chosen]})
        container, low = narrow.row.container, narrow.row.low
        row = replace(wide.row, layout=layout, format=narrow.format, container=container, low=low)
        yield replace(wide, row=row)


def conversion_between(source: Operand, target: Operand) -> Convert:
    """The step from one operand to another with the same lanes and another format."""
    words = []
    for reg in range(target.regs):
        first = dict.fromkeys(target.layout.ins, 0)
        elements = [target.layout.at(**first | {"reg": reg, "slot": slot})._asdict() for slot in range(target.slots)]
        places = [
            next(place for place in source.layout.where(**element) if not any(place[:-2])) for element in elements
        ]
        words.append(tuple(RegisterSlot(place.reg, place.slot) for place in places))
    return Convert(source.format.name, target.format.name, tuple(words))
