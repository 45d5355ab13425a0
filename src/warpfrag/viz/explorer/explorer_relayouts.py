"""What moves between fragments, as the page has it: for every two of the same extents, the plan in words.

`warpfrag.plans` makes the plans; the page has the layouts, and computes by itself which element changes its lane.
Many pairs share a plan, so plans are listed once, like everything else the page is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from warpfrag.errors import InvalidOperand
from warpfrag.plans.relayout import fragments, relayout, tiled_alike, warpgroup_fragments
from warpfrag.plans.relayout_operations import cost, described
from warpfrag.viz.explorer.interned_list import InternedList

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from warpfrag.plans.relayout import Relayout
    from warpfrag.tensorcore.operand import Operand

Plan = tuple[str, int, tuple[tuple[int, int], ...]]  # its kind, and places of its verdict, costs and steps
AXES: tuple[Literal["row", "col"], ...] = ("row", "col")


def every_fragment() -> tuple[Operand, ...]:
    """Those of a warp, then those of four; what is in a page's lists stands in this order."""
    return fragments() + warpgroup_fragments()


class RelayoutWriter:
    """Writes the plans between all pairs of fragments, and interns what they share in lists."""

    def __init__(self, texts: InternedList[str]) -> None:
        """No plans yet; `texts` is the list of words that the whole page shares."""
        self.texts = texts
        self.plans: InternedList[Plan] = InternedList(list)
        self.orders: InternedList[tuple[int, tuple[int, ...] | None]] = InternedList(list)
        self._known: dict[Hashable, list[Any]] = {}

    def written(self, place: Callable[[Operand], list[Any]]) -> dict[str, Any]:
        """Fragments, each with its operand and its instruction, and from each the others with their plans."""
        return {
            "fragments": [place(fragment) for fragment in every_fragment()],
            "relayouts": [list(self._relayouts(source)) for source in every_fragment()],
            "plans": self.plans.entries,
            "orders": self.orders.entries,
        }

    def _relayouts(self, source: Operand) -> Iterator[list[Any]]:
        """For each fragment of the same extents its place and its plan; then what a new order of a coordinate saves."""
        for place, target in enumerate(every_fragment()):
            pair = tiled_alike(source, target) if source.threads == target.threads else None
            if pair is None:
                continue
            key = _what_matters(*pair)
            if key not in self._known:
                plan = relayout(*pair)
                self._known[key] = [self.plans.place(self._plan(plan)), *self._permuted(plan)]
            yield [place, *self._known[key]]

    def _permuted(self, plan: Relayout) -> Iterator[list[Any]]:
        """The coordinate, the plan that is left in an order of it in which nothing crosses lanes, and that order."""
        for axis in AXES if not plan.is_free and list(plan.source.layout.outs) == list(AXES) else ():
            try:
                permuted = relayout(plan.source, plan.target, permute=axis)
            except InvalidOperand:
                continue  # no order keeps every element in its lane
            order = self.texts.place(permuted.permutation_text), permuted.permutation
            yield [axis, self.plans.place(self._plan(permuted)), self.orders.place(order)]

    def _plan(self, plan: Relayout) -> Plan:
        """What kind of plan it is, its verdict, and each step: what it costs, and what it does."""
        crossing = next((kind for kind in ("shfl", "movmatrix") if plan.counts[kind]), "lane")
        steps = tuple(
            (self.texts.place(f"{count} {kind}" if count else "free"), self.texts.place(described(step)))
            for step in plan.operations
            for kind, count in [cost(step)]
        )
        return "free" if plan.is_free else crossing, self.texts.place(plan.verdict), steps


def _what_matters(source: Operand, target: Operand) -> Hashable:
    """What a plan depends on; where elements stay as they are, their format is not part of that."""
    stored = [(operand.format.name, operand.spec.container, operand.spec.low) for operand in (source, target)]
    return source.layout, target.layout, source.spec.container if stored[0] == stored[1] else tuple(stored)
