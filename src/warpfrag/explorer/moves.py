"""What moves between fragments, as the page has it: for every two of the same extents, the plan in words.

Plans are made here, because `warpfrag.motion` knows how; the page has the layouts, and sees by itself which element
changes its lane. Many pairs share a plan, so plans are listed once, like everything else the page is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from warpfrag.errors import InvalidOperand
from warpfrag.motion.pairs import fragments, tiled_alike
from warpfrag.motion.relayout import relayout
from warpfrag.motion.steps import cost, described

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from warpfrag.explorer.lists import Lists
    from warpfrag.motion.relayout import Relayout
    from warpfrag.operand import Operand

AXES: tuple[Literal["row", "col"], ...] = ("row", "col")


def move_data(lists: Lists, names: dict[str, int]) -> dict[str, Any]:
    """Fragments, and from each the others with their plans; `names` says at which place each instruction stands."""
    known = fragments()
    plans: dict[Hashable, list[Any]] = {}
    return {
        "fragments": [[lists.operands.place(one.row), names[one.instruction]] for one in known],
        "relayouts": [list(_relayouts(lists, source, plans)) for source in known],
        "plans": lists.plans.entries,
        "orders": lists.orders.entries,
    }


def _relayouts(lists: Lists, source: Operand, plans: dict[Hashable, list[Any]]) -> Iterator[list[Any]]:
    """For each fragment of the same extents its place and its plan; then what a new order of one coordinate saves."""
    for place, target in enumerate(fragments()):
        pair = tiled_alike(source, target)
        if pair is None:
            continue
        key = _what_matters(*pair)
        if key not in plans:
            plan = relayout(*pair)
            plans[key] = [lists.plans.place(_written(lists, plan)), *_permuted(lists, plan)]
        yield [place, *plans[key]]


def _what_matters(source: Operand, target: Operand) -> Hashable:
    """What a plan depends on; where elements stay as they are, their format is not part of that."""
    stored = [(one.format.name, one.row.container, one.row.low) for one in (source, target)]
    return source.layout, target.layout, source.row.container if stored[0] == stored[1] else tuple(stored)


def _permuted(lists: Lists, plan: Relayout) -> Iterator[list[Any]]:
    """The coordinate, the order of it in which nothing crosses lanes, and the plan that is left."""
    for axis in AXES if not plan.is_free and list(plan.source.layout.outs) == list(AXES) else ():
        try:
            found = relayout(plan.source, plan.target, permute=axis)
        except InvalidOperand:
            continue  # no order keeps every element in its lane
        order = lists.texts.place(found.permutation_text), found.permutation
        yield [axis, lists.plans.place(_written(lists, found)), lists.orders.place(order)]


def _written(lists: Lists, plan: Relayout) -> tuple[Any, ...]:
    """What kind of plan it is, its verdict, and each step: what it costs, and what it does."""
    crossing = next((kind for kind in ("shfl", "movmatrix") if plan.counts[kind]), "lane")
    steps = tuple(
        (lists.texts.place(f"{count} {kind}" if count else "free"), lists.texts.place(described(step)))
        for step in plan.steps
        for kind, count in [cost(step)]
    )
    return "free" if plan.is_free else crossing, lists.texts.place(plan.verdict), steps
