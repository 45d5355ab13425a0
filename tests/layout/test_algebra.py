"""The layout algebra compared with enumeration: products, quotients, sublayouts, renamed and regrouped axes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from random_layouts import random_layouts
from warpfrag.layout.axes import MAX_SIZE, Axis
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.linear_map import LinearMap

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCUMULATOR = Layout.parse({"row": 16, "col": 8}, lane="c2 c4 r1 r2 r4", reg="c1 r8")
WIDE = Layout.parse({"row": 16, "col": 24}, lane="c2 c4 r1 r2 r4", reg="c1 r8 c8 c16")
TWICE = Layout.parse({"row": 8, "col": 8}, lane="c1 c2 c4 r1 r2", reg="0", slot="r4")
SWIZZLED = Layout.parse({"row": 4, "col": 4}, lane="r1+c1 r2+c2 c1 c2")


@st.composite
def small_layouts(draw: st.DrawFn, rename: Mapping[str, str] | None = None) -> Layout:
    """Return a layout with few places, so that products can be enumerated; some have other axis names."""
    outs = {name: (2,) * draw(st.integers(0, 1)) for name in ("row", "col")}
    outs["col"] += draw(st.sampled_from([(), (), (3,), (3, 2)]))
    layout: Layout = draw(random_layouts(outs, copies=1))
    return layout.rename(**(rename or {}))


def table(layout: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:
    return {tuple(place): tuple(layout.at(**place._asdict())) for place in layout.places()}


def stacked(low: Mapping[str, int], high: Mapping[str, int], extents: Mapping[str, int]) -> dict[str, int]:
    """Return indices composed of low parts and high parts."""
    return {name: low.get(name, 0) + extents.get(name, 1) * high.get(name, 0) for name in dict.fromkeys([*low, *high])}


def pairs(low: Layout, high: Layout) -> Any:
    return product((place._asdict() for place in low.places()), (place._asdict() for place in high.places()))


NAMES = [{}, {"lane": "warp"}, {"reg": "block"}, {"col": "depth"}, {"lane": "warp", "row": "depth", "slot": "copy"}]


@given(small_layouts(), st.sampled_from(NAMES).flatmap(small_layouts))
def test_a_product_takes_the_low_and_the_high_part_of_each_index(low: Layout, high: Layout):
    whole = low * high
    for mine, its in pairs(low, high):
        element = stacked(low.at(**mine)._asdict(), high.at(**its)._asdict(), low.outs)
        assert whole.at(**stacked(mine, its, low.ins))._asdict() == element
    assert prod(whole.ins.values()) == prod(low.ins.values()) * prod(high.ins.values())
    assert whole.copies == low.copies * high.copies


@given(small_layouts(), small_layouts(), small_layouts())
def test_a_product_is_associative(one: Layout, other: Layout, third: Layout):
    assert (one * other) * third == one * (other * third)


@given(small_layouts(), st.sampled_from(NAMES).flatmap(small_layouts))
def test_a_quotient_undoes_a_product(low: Layout, high: Layout):
    whole = low * high
    left, right = whole.divide_left(low), whole.divide_right(high)
    assert left is not None and low * left == whole  # noqa: PT018 (for mypy)
    assert right is not None and right * high == whole  # noqa: PT018
    assert {name: size for name, size in left.ins.items() if size > 1} == {
        name: size for name, size in high.ins.items() if size > 1
    }
    assert {name: size for name, size in right.outs.items() if size > 1} == {
        name: size for name, size in low.outs.items() if size > 1
    }


@given(small_layouts(), small_layouts())
def test_there_is_a_quotient_where_enumeration_finds_one(whole: Layout, low: Layout):
    sides = ((whole.ins, low.ins), (whole.outs, low.outs))
    exists = not any(mine[name] % its[name] for mine, its in sides for name in mine)
    if exists:
        upper = [range(whole.ins[name] // low.ins[name]) for name in whole.ins]
        for digits in product(*upper):
            high = dict(zip(whole.ins, digits, strict=True))
            moved = {
                tuple(
                    (whole.at(**stacked(place._asdict(), high, low.ins))._asdict()[dim] - index) / low.outs[dim]
                    for dim, index in low.at(**place._asdict())._asdict().items()
                )
                for place in low.places()
            }
            exists &= len(moved) == 1 and all(index % 1 == 0 for index in moved.pop())
    assert (whole.divide_left(low) is not None) == exists


@given(random_layouts(), st.data())
def test_a_sublayout_is_the_map_of_some_inputs_to_some_outputs(layout: Layout, data: Any):
    ins = data.draw(st.lists(st.sampled_from([*layout.ins]), unique=True))
    outs = data.draw(st.lists(st.sampled_from([*layout.outs]), unique=True))
    try:
        part = layout.sublayout(ins, outs)
    except wf.errors.InvalidOperand as error:
        assert "keep or drop both" in str(error)  # noqa: PT017 (it may also be fine)
        assert any(radix > 2 for name in ins for _, radix in layout.digits(name))
        return
    assert [*part.ins] == [name for name in layout.ins if name in ins]
    for place in part.places():
        element = layout.at(**dict.fromkeys(layout.ins, 0) | place._asdict())._asdict()
        assert part.at(**place._asdict())._asdict() == {dim: element[dim] for dim in layout.outs if dim in outs}


@given(random_layouts())
def test_names_change_and_nothing_else(layout: Layout):
    renamed = layout.rename(lane="thread", col="k")
    assert (renamed.ins, renamed.outs) == (
        {"thread": layout.lanes, "reg": layout.regs, "slot": layout.slots},
        {"row": layout.outs["row"], "k": layout.outs["col"]},
    )
    assert table(renamed) == table(layout)
    assert renamed.rename(thread="lane", k="col") == layout


def divisors(size: int) -> list[int]:
    return [factor for factor in range(1, size + 1) if size % factor == 0]


@given(random_layouts(), st.data())
def test_reshape_keeps_the_order_of_places_and_elements(layout: Layout, data: Any):
    places, elements = prod(layout.ins.values()), prod(layout.outs.values())
    first = data.draw(st.sampled_from(divisors(places)))
    second = data.draw(st.sampled_from(divisors(places // first)))
    height = data.draw(st.sampled_from(divisors(elements)))
    ins = {"a": first, "b": second, "c": places // first // second}
    outs = {"y": height, "x": elements // height}
    is_binary = not (places & places - 1 or elements & elements - 1)
    try:
        reshaped = layout.reshape(ins=ins, outs=outs)
    except wf.errors.InvalidOperand as error:
        assert "that would cut digits that the map mixes" in str(error)  # noqa: PT017 (it may also be fine)
        assert not is_binary
        return
    assert (reshaped.ins, reshaped.outs) == (ins, outs)
    width = [layout.outs["col"], outs["x"]]
    before = [row * width[0] + col for row, col in table(layout).values()]
    assert [y * width[1] + x for y, x in table(reshaped).values()] == before
    assert reshaped.reshape(ins=layout.ins, outs=layout.outs) == layout


@given(random_layouts())
def test_a_layout_goes_through_one_index_and_back(layout: Layout):
    places = prod(layout.ins.values())
    assert layout.reshape(ins={"place": places}).reshape(ins=layout.ins) == layout
    assert layout.reshape() == layout


@given(random_layouts(), st.permutations(["lane", "reg", "slot"]), st.integers(1, 3))
def test_trivial_axes_pass_through_alone(layout: Layout, names: list[str], count: int):
    moves = layout.inverse() @ layout  # to the first of all copies
    chosen = names[:count]

    def rest(index: Mapping[str, int]) -> dict[str, int]:
        return {name: index[name] for name in moves.ins if name not in chosen}

    to = {tuple(place): moves.at(**place._asdict())._asdict() for place in moves.places()}
    passes = all(to[place][name] == place._asdict()[name] for place in moves.places() for name in chosen)  # type: ignore[index]
    together: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for place in moves.places():
        together.setdefault(tuple(rest(place._asdict()).values()), set()).add(tuple(rest(to[place]).values()))
    alone = all(len(seen) == 1 for seen in together.values())
    assert moves.is_trivial_over(*chosen) == (passes and alone)


def test_trivial_over_axes_of_other_extents_or_none():
    assert not ACCUMULATOR.is_trivial_over("lane")
    assert Layout.identity(warp=4, lane=32).is_trivial_over("warp", "lane")
    assert Layout.identity(warp=4).is_trivial_over()
    assert not (Layout.identity(lane=4) @ SWIZZLED.rename(row="lane").sublayout(["lane"], ["lane"])).is_trivial_over(
        "lane"
    )
    cut = Layout((Axis("lane", (2, 3)),), (Axis("lane", (2, 3)),), (1, 2))
    assert cut.is_trivial_over("lane")
    assert not Layout((Axis("lane", (2, 3)),), (Axis("lane", (3, 2)),), (2, 1)).is_trivial_over("lane")


@given(small_layouts(), st.sampled_from([2, 3, 6]))
def test_compositions_find_a_common_cut(layout: Layout, count: int):
    """6 registers as 2 times 3 and as 3 times 2 are the same registers."""
    tiled = layout.tiled(row=count)
    places = Layout.identity(**tiled.ins)
    assert tiled @ places == tiled
    assert layout.tiled(row=2).tiled(row=3).inverse() @ layout.tiled(row=6) == layout.tiled(row=6).inverse() @ (
        layout.tiled(row=2).tiled(row=3)
    )


@given(small_layouts(), small_layouts())
def test_equality_is_that_of_the_tables(layout: Layout, other: Layout):
    same_axes = list(layout.ins.items()) == list(other.ins.items()) and layout.outs == other.outs
    assert (layout == other) == (same_axes and table(layout) == table(other))


def test_a_layout_is_its_tile_times_the_tiles():
    assert ACCUMULATOR.tiled(col=2, row=2) == ACCUMULATOR * Layout.parse({"col": 2, "row": 2}, reg="c1 r1")
    assert ACCUMULATOR * Layout.parse({"col": 3}, reg="c1 c2") == WIDE
    assert WIDE.divide_left(ACCUMULATOR) == Layout.parse({"row": 1, "col": 3}, lane="", reg="c1 c2")
    assert WIDE.divide_left(TWICE) is None
    assert ACCUMULATOR.divide_left(WIDE) is None
    assert TWICE.divide_left(TWICE.sublayout(["lane"], ["row", "col"])) is None  # not onto rows


def test_fifteen_is_three_times_five():
    """A digit that is not a bit can be cut if it is mapped unchanged."""
    line = Layout.identity(col=15)
    assert line.divide_left(Layout.identity(col=3)) == Layout.identity(col=5)
    assert line.divide_right(Layout.identity(col=3)) == Layout.identity(col=5)
    assert line.divide_left(Layout.identity(col=2)) is None
    assert line.reshape(ins={"a": 5, "b": 3}).at(a=2, b=1) == (7,)


def test_warps_come_first():
    assert [*(ACCUMULATOR * Layout.parse({"row": 4}, warp="r1 r2")).ins] == ["warp", "lane", "reg", "slot"]
    assert [*(ACCUMULATOR * Layout.parse({"k": 4}, stage="k1 k2")).ins] == ["lane", "reg", "slot", "stage"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: ACCUMULATOR * 3, "the second factor must be a Layout, got 3"),
        (lambda: ACCUMULATOR.divide_left("tile"), "the divisor must be a Layout, got 'tile'"),
        (lambda: ACCUMULATOR.divide_right(None), "the divisor must be a Layout, got None"),
        (
            lambda: Layout.identity(x=MAX_SIZE) * Layout.identity(x=2),
            "x of the combined layout would be 2097152; the largest size is",
        ),
        (lambda: ACCUMULATOR.sublayout(["warp"], ["row"]), r"ins: expected a list of names from lane, reg, slot; got"),
        (lambda: ACCUMULATOR.sublayout(["lane"], "row"), "outs: expected a list of names from row, col; got 'row'"),
        (
            lambda: WIDE.sublayout(["reg"], ["row"]),
            r"a radix-3 digit of reg maps to a dropped output \(kept: row\)",
        ),
        (lambda: ACCUMULATOR.rename(warp="thread"), "rename: expected names from lane, reg, slot, row, col; got warp"),
        (lambda: ACCUMULATOR.rename(row="col"), "rename: two axes would have the same name: col, col"),
        (lambda: ACCUMULATOR.sublayout(5, ["row"]), "ins: expected a list of names from lane, reg, slot; got 5"),
        (lambda: ACCUMULATOR.sublayout([["lane"]], ["row"]), "ins: expected a list of names from lane, reg, slot; got"),
        (lambda: ACCUMULATOR.rename(lane=["x"]), r"expected an index name such as lane or row, got \['x'\]"),
        (lambda: ACCUMULATOR.rename(lane="if"), "expected an index name such as lane or row, got 'if'"),
        (
            lambda: ACCUMULATOR.reshape(ins={"thread": 64}),
            "reshape: thread 64 have 64 indices .* have 128",
        ),
        (lambda: ACCUMULATOR.reshape(ins=5), "reshape: expected names with their extents, such as .*; got 5"),
        (lambda: ACCUMULATOR.reshape(ins={"thread": 0}), "the size of thread must be an integer in 1"),
        (lambda: WIDE.reshape(ins={"a": 128, "b": 3}), "lane 32, reg 12, slot 1 cannot be regrouped to a 128, b 3"),
        (
            lambda: WIDE.reshape(outs={"a": 128, "b": 3}),
            "row 16, col 24 cannot be regrouped to a 128, b 3: that would cut digits",
        ),
        (lambda: ACCUMULATOR.is_trivial_over("warp"), "expected one of lane, reg, slot; got 'warp'"),
        (lambda: Layout.identity(lane=0), "the size of lane must be an integer in 1"),
    ],
)
def test_what_cannot_be_is_refused(ask: Any, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


def test_maps_that_are_no_layouts_have_the_algebra_too():
    swizzle = LinearMap((Axis("x", (2, 2)),), (Axis("x", (2, 2)),), (1, 3))
    assert swizzle @ swizzle == LinearMap.identity(x=4)
    assert swizzle.inverse() == swizzle
