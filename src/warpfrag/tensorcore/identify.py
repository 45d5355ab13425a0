"""Find the operands and instructions that have a given layout.

Layouts are compared as maps, so the notation does not matter. If no operand has the layout, `near` lists operands with
similar layouts, and the differences: the matrix is transposed, lanes or registers are in a different order, or a
register has a different number of values.

    >>> from warpfrag.layout.linear_layout import Layout
    >>> pasted = Layout.read("cute", "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))", shape=(16, 16), slots=2)
    >>> found = identify(pasted)
    >>> found[0].operand, found[0].instruction.name
    ('a', 'mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16')
    >>> near = identify(Layout.read("cute", "((_4,_8),_4):((_32,_1),_8)", shape=(8, 16))).near[0]
    >>> near.operand, near.differences
    ('a', ('4 values per register',))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from itertools import permutations
from math import prod
from typing import NamedTuple, cast

from warpfrag.errors import InvalidOperand, quote
from warpfrag.isa.tcgen05_forms import TensorForm, listed_forms
from warpfrag.isa.tmem_layouts import WARPS
from warpfrag.layout.linear_layout import Basis, Layout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import OperandBase
from warpfrag.tensorcore.registry import find, instruction_of
from warpfrag.tensorcore.tensor_operand import TensorOperand

MAX_LISTED = 8
MATRIX = {"row", "col"}


class Match(NamedTuple):
    """An operand that has the layout: its instruction and its role, such as "a" or "metadata"."""

    instruction: Instruction
    operand: str


class Tiled(NamedTuple):
    """An operand whose tiles form the layout, and the number of tiles along each coordinate.

    Within one warp, the layout is `operand.tiled(**tiles)`; with several warps, the tiles are spread over them.
    """

    instruction: Instruction
    operand: str
    tiles: dict[str, int]
    warps: int = 1


class Near(NamedTuple):
    """An operand with a similar layout, and the differences."""

    instruction: Instruction
    operand: str
    differences: tuple[str, ...]


class LoadedOperand(NamedTuple):
    """An operand in tensor memory, and a load of its first columns that gives registers this layout."""

    instruction: Instruction
    operand: str
    load: Instruction


class Matches(list[Match]):
    """The operands that have a layout; `tiles`, `near` and `loads` are operands related to it."""

    def __init__(self, layout: Layout) -> None:
        """Find the operands that have this layout."""
        self.layout = layout
        super().__init__(self._alike.get(layout, ()))

    @cached_property
    def _alike(self) -> dict[Layout, list[Match]]:
        """The layouts that may be equal to this one, with their operands."""
        is_of_tensor_memory = "tlane" in {*self.layout.ins, *self.layout.outs}
        return tensor_layouts(self.layout) if is_of_tensor_memory else _known()

    def __repr__(self) -> str:
        """Return the number of operands, and the first few of them."""
        lines = [f"<{len(self)} operands of {len({each.instruction for each in self})} instructions have {self.layout}"]
        lines += [f"{match.operand} of {match.instruction}" for match in self[:MAX_LISTED]]
        more = len(self) - MAX_LISTED
        return "\n  ".join(lines + ([f"and {more} more"] if more > 0 else [])) + ">"

    @cached_property
    def tiles(self) -> list[Tiled]:
        """The operands that form this layout with several tiles, largest tiles first."""
        tiles = [
            Tiled(*match, counts, self.layout.ins.get("warp", 1) if "warp" not in layout.ins else 1)
            for layout, matches in self._alike.items()
            for counts in _tiles(layout, self.layout)
            for match in matches
        ]
        return sorted(tiles, key=lambda match: prod(match.tiles.values()))

    @cached_property
    def near(self) -> list[Near]:
        """The operands with similar layouts, the most similar first."""
        matches = [
            Near(*match, differences)
            for layout, matches in self._alike.items()
            for differences in _differences(self.layout, layout)
            for match in matches
        ]
        return sorted(matches, key=lambda match: len(match.differences))

    @cached_property
    def loads(self) -> list[LoadedOperand]:
        """The tensor-memory loads that leave D in the registers of four warps with this layout."""
        if self.layout.ins.get("warp") != WARPS or {*self.layout.outs} != MATRIX:
            return []
        return list(_loads(self.layout))


def identify(layout: Layout | OperandBase) -> Matches:
    """Return the operands of all instructions that have this layout; wmma uses the first measured architecture.

    The result is a list with further attributes. `tiles` lists operands whose tiles form the layout. `near` lists
    operands whose layout differs only by a transposition, the order of lanes or registers, or the number of values per
    register. `loads` lists tensor-memory loads that give an accumulator this layout.
    """
    if isinstance(layout, OperandBase):
        layout = layout.layout
    if not isinstance(layout, Layout):
        raise InvalidOperand(
            f"expected a layout or an operand, got {quote(layout)}; create a layout with Layout.read or Layout.parse"
        )
    return Matches(layout)


@cache
def _known() -> dict[Layout, list[Match]]:
    """Return every layout in the instruction set, with the operands that have it."""
    by_layout: dict[Layout, list[Match]] = {}
    for instruction in find():
        for role, operand in instruction.operands.items():
            if operand.storage != "shared" and not operand.spec.unknown:
                by_layout.setdefault(operand.layout, []).append(Match(instruction, role))
        if instruction.addresses is not None:
            by_layout.setdefault(instruction.addresses, []).append(Match(instruction, "addresses"))
    return by_layout


def tensor_layouts(layout: Layout) -> dict[Layout, list[Match]]:
    """Return the layouts of tensor-memory operands, and of loads and stores, that have this layout's coordinates."""
    by_layout: dict[Layout, list[Match]] = {}
    for form in listed_forms():
        if not (
            _may_have(form, layout) if form.shape.m else "tlane" in layout.outs and form.spelling.qualifier("lanes")
        ):
            continue
        instruction = instruction_of(form, "")
        for role, operand in instruction.operands.items():
            if operand.storage != "shared" and not operand.spec.unknown and operand.layout.dims == layout.dims:
                by_layout.setdefault(operand.layout, []).append(Match(instruction, role))
    return by_layout


def _may_have(form: TensorForm, layout: Layout) -> bool:
    """Return True if the blocks and extents of an mma allow an operand with this layout."""
    if "tlane" not in layout.ins or ("block" in layout.ins) != (form.blocks == 2):
        return False
    if "byte" in layout.outs:
        return bool(form.scales)
    if "chunk" in layout.outs:
        return form.spelling.is_sparse and layout.outs["row"] == form.shape.m
    stored = form.shape.k // (2 if form.spelling.is_sparse else 1)
    return layout.outs.get("row") == form.shape.m and layout.outs.get("col") in (form.shape.n, stored)


def _loads(layout: Layout) -> Iterator[LoadedOperand]:
    """Yield the loads of an accumulator, one for each layout that D may have."""
    in_registers = layout.ins["reg"] * layout.slots
    loads = [instruction_of(form, "") for form in listed_forms() if form.op == "tcgen05.ld"]
    seen: set[Layout] = set()
    for form in listed_forms():
        if (form.shape.m, form.shape.n) != tuple(layout.shape) or form.blocks != 1:
            continue
        product = instruction_of(form, "")
        d = cast("TensorOperand", product.operands["d"])
        if d.layout in seen:
            continue
        seen.add(d.layout)
        for load in loads:
            own = load.operands["d"].layout
            if own.ins["reg"] * own.slots != in_registers:
                continue
            with suppress(InvalidOperand):  # a load may read more columns than the operand has
                if d.through(load) == layout:
                    yield LoadedOperand(product, "d", load)


def _tiles(tile: Layout, layout: Layout) -> Iterator[dict[str, int]]:
    """Yield the number of tiles along each coordinate, if the layout consists of several tiles."""
    tiles = layout.divide_left(tile) if "reg" in tile.ins and tile.dims == layout.dims else None
    if tiles is None or any(size > 1 for name, size in tiles.ins.items() if name != "reg" and name in tile.ins):
        return
    counts = {dim: count for dim, count in tiles.outs.items() if count > 1}
    if layout.ins.keys() - tile.ins.keys() == {"warp"} and tiles.is_onto and not any(tiles.start):
        yield counts  # every warp holds whole tiles
    if layout.ins.keys() != tile.ins.keys() or not counts:
        return
    for order in permutations(counts):
        if tile.tiled(**{dim: counts[dim] for dim in order}) == layout:
            yield {dim: counts[dim] for dim in order}
            return


def _differences(layout: Layout, other: Layout) -> Iterator[tuple[str, ...]]:
    """Yield the differences between two layouts, as they are and transposed; none if they are equal or unrelated."""
    if layout.outs == other.outs and layout.dims == other.dims and layout != other:
        yield from _orders(_steps(layout, layout.dims), _steps(other, other.dims), other.slots, ())
    if {*layout.outs} == {*other.outs} == MATRIX and layout.shape == other.shape[::-1]:
        yield from _orders(_steps(layout, layout.dims), _steps(other, other.dims[::-1]), other.slots, ("transposed",))


Ordered = dict[str, list[tuple[int, ...]]]


def _steps(layout: Layout, dims: Iterable[str]) -> Ordered:
    """Return, for each input, a tuple per digit: its radix, and its step along each of these coordinates."""

    def numbers(step: Basis) -> tuple[int, ...]:
        return (step.radix, *(getattr(step.moves, dim) for dim in dims))

    return {name: [numbers(step) for step in layout.steps(name)] for name in layout.ins}


def _orders(mine: Ordered, others: Ordered, slots: int, differences: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield `differences`, extended by reordered lanes and registers; yield nothing if the layouts' digits differ."""
    if {*mine} != {*others}:
        return
    for name in mine.keys() - {"reg", "slot"}:
        if sorted(mine[name]) != sorted(others[name]):
            return
        differences += (f"{name}s in a different order",) * (mine[name] != others[name])
    elements, its = (steps.get("slot", []) + steps.get("reg", []) for steps in (mine, others))
    if sorted(elements) != sorted(its):
        return
    if len(mine.get("slot", [])) != len(others.get("slot", [])):
        differences += (f"{slots} value{'s' * (slots > 1)} per register",)
    if elements != its:
        same_slots = mine.get("slot") == others.get("slot")
        differences += ("registers in a different order" if same_slots else "values of a lane in a different order",)
    if differences:
        yield differences
