"""The linear map: reading, rank, both directions, its algebra, errors. Oracles enumerate places one by one."""

import pickle
from collections import defaultdict
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfrag as wf
from random_layouts import random_layouts
from warpfrag.layout.axes import Axis
from warpfrag.layout.bit_matrix import Echelon
from warpfrag.layout.linear_layout import DigitRun, Layout

ACCUMULATOR = {"row": 16, "col": 8}


def accumulator(**changes: str) -> Layout:
    bases = {"lane": "c2 c4 r1 r2 r4", "reg": "c1 r8", "slot": ""} | changes
    return Layout.parse(ACCUMULATOR, **bases)


def digits(axes: tuple[Axis, ...], indices: tuple[int, ...]) -> list[int]:
    found = []
    for axis, index in zip(axes, indices, strict=True):
        for radix in axis.radices:
            found.append(index % radix)
            index //= radix  # noqa: PLW2901
    return found


def element(layout: Layout, place: tuple[int, ...]) -> tuple[int, ...]:
    """Return the expected result of `at`, digit by digit, from the definition."""
    total = [
        layout.origin >> digit & 1 for axis in [layout.out_axes] for digit in range(sum(len(a.radices) for a in axis))
    ]
    for digit, column in zip(digits(layout.in_axes, place), layout.columns, strict=True):
        for target in range(len(total)):
            if column >> target & 1:
                total[target] ^= digit
    found, start = [], 0
    for axis in layout.out_axes:
        weights = [prod(axis.radices[:at]) for at in range(len(axis.radices))]
        found.append(sum(map(prod, zip(total[start:], weights, strict=False))))
        start += len(axis.radices)
    return tuple(found)


def table(layout: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:
    return {place: element(layout, place) for place in product(*map(range, layout.ins.values()))}


def holders(layout: Layout) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    found = defaultdict(list)
    for place, at in table(layout).items():
        found[at].append(place)
    return found


def named(axes: dict[str, int], indices: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(axes, indices, strict=True))


@given(random_layouts())
def test_at_joins_the_bases_of_all_digits(layout: Layout):
    for place, at in table(layout).items():
        assert layout.at(**named(layout.ins, place)) == at
    assert [tuple(place) for place in layout.places()] == list(table(layout))


@given(random_layouts())
def test_steps_make_the_layout_again(layout: Layout):
    again = Layout.of_steps(layout.outs, {name: layout.steps(name) for name in layout.ins}, layout.start)
    assert again == layout
    assert layout.start == layout.at(**dict.fromkeys(layout.ins, 0))
    sums = all(
        layout.at(**named(layout.ins, place))
        == tuple(
            start + sum(digit * step.moves[at] for digit, step in zip(indices, every, strict=True))
            for at, start in enumerate(layout.start)
        )
        for place in table(layout)
        for indices, every in [(digits(layout.in_axes, place), [s for name in layout.ins for s in layout.steps(name)])]
    )
    assert layout.is_additive == sums


def test_steps_that_fit_no_digit_are_refused():
    for outs, steps, message in [
        ({"row": 8}, {"lane": [(2, [9])]}, "row has size 8 and cannot be moved by 9"),
        ({"row": 8}, {"lane": [(3, [2])]}, "row is 8: it has no digit with weight"),
        ({"row": 6}, {"lane": [(2, [4])]}, "row has size 6 and cannot be moved by 4"),
        ({"class": 2}, {"lane": [(2, [1])]}, "expected an index name such as lane or row, got 'class'"),
        ({"row": 2}, {"_lane": [(2, [1])]}, "got '_lane'"),
    ]:
        with pytest.raises(wf.errors.InvalidOperand, match=message):
            Layout.of_steps(outs, steps)
    with pytest.raises(wf.errors.InvalidOperand, match="expected an index name such as lane or row, got 'class'"):
        Layout.parse({"class": 2}, lane="c1")


@given(random_layouts())
def test_where_lists_every_holder_and_the_inverse_gives_the_first(layout: Layout):
    found = holders(layout)
    assert len(found) == prod(layout.outs.values())
    for at, places in found.items():
        assert layout.where(**named(layout.outs, at)) == sorted(places)
        assert layout.inverse().at(**named(layout.outs, at)) == min(places)
    assert layout.copies == len(next(iter(found.values())))


@given(random_layouts(copies=0))
def test_the_inverse_of_the_inverse_is_the_layout(layout: Layout):
    assert layout.inverse().inverse() == layout
    assert (layout @ layout.inverse()).bases == {
        axis: " ".join(f"{axis[0]}{weight << bit}" for weight, radix in zip(one.weights, one.radices, strict=True)
                       for bit in range((radix - 1).bit_length()))
        for axis, one in zip(layout.outs, layout.out_axes, strict=True)
    }  # fmt: skip


@given(random_layouts(), st.data())
def test_composition_does_one_after_the_other_and_associates(outer: Layout, data: st.DataObject):
    middle = data.draw(random_layouts({axis.name: axis.radices for axis in outer.in_axes}))
    inner = data.draw(random_layouts({axis.name: axis.radices for axis in middle.in_axes}))
    both = outer @ middle
    for place, at in table(middle).items():
        assert both.at(**named(both.ins, place)) == element(outer, at)
    assert (outer @ middle) @ inner == outer @ (middle @ inner)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_rank_counts_what_can_be_reached(columns: list[int]):
    layout = Layout((Axis("lane", (2,) * len(columns)),), (Axis("row", (2,) * 3),), tuple(columns))
    assert 2**layout.rank == len(holders(layout))
    assert layout.is_onto == (len(holders(layout)) == 8)
    assert layout.copies == 2 ** len(columns) // 2**layout.rank
    if layout.is_onto:
        for (row,), places in holders(layout).items():
            assert layout.where(row=row) == sorted(places)


@given(st.lists(st.integers(0, 31), max_size=6), st.integers(0, 31))
def test_elimination_finds_what_can_be_made(masks: list[int], wanted: int):
    rows = Echelon()
    cancelled = [rows.add(mask, inputs=1 << at) for at, mask in enumerate(masks)]

    def made(inputs: int) -> int:
        total = 0
        for at, mask in enumerate(masks):
            total ^= mask * (inputs >> at & 1)
        return total

    can_be_made = wanted in {made(inputs) for inputs in range(1 << len(masks))}
    assert (rows.rest(wanted) == 0) == can_be_made
    assert made(rows.inputs(wanted)) == wanted or not can_be_made
    for at, inputs in enumerate(cancelled):
        assert inputs == 0 or (made(inputs) == 0 and inputs >> at == 1)
    assert 2**rows.rank == len({made(inputs) for inputs in range(1 << len(masks))})


@settings(max_examples=60)
@given(random_layouts(), st.dictionaries(st.sampled_from(["row", "col"]), st.integers(1, 6), min_size=1))
def test_tiles_stand_side_by_side_counted_by_the_upper_registers(layout: Layout, counts: dict[str, int]):
    tiled = layout.tiled(**counts)
    assert tiled.outs == {name: size * counts.get(name, 1) for name, size in layout.outs.items()}
    assert tiled.ins == layout.ins | {"reg": layout.regs * prod(counts.values())}
    for place, at in table(layout).items():
        for tiles in product(*map(range, counts.values())):
            number, above = 0, 1
            for tile, count in zip(tiles, counts.values(), strict=True):
                number += tile * above
                above *= count
            shifted = named(layout.ins, place) | {"reg": place[1] + layout.regs * number}
            moved = named(layout.outs, at)
            for name, tile in zip(counts, tiles, strict=True):
                moved[name] += tile * layout.outs[name]
            assert tiled.at(**shifted)._asdict() == moved


@given(random_layouts(), st.data())
def test_a_fixed_input_stays_as_it_is(layout: Layout, data: st.DataObject):
    name = data.draw(st.sampled_from(["lane", "reg", "slot"]))
    bits = [axis for axis in layout.in_axes if axis.name == name and set(axis.radices) <= {2}]
    index = data.draw(st.integers(0, layout.ins[name] - 1)) if bits else 0
    fixed = layout.fix(**{name: index})
    assert list(fixed.ins) == [axis for axis in layout.ins if axis != name]
    for place, at in table(layout).items():
        inputs = named(layout.ins, place)
        if inputs.pop(name) == index:
            assert fixed.at(**inputs) == at


@given(random_layouts())
def test_joined_inputs_count_through_each_other(layout: Layout):
    joined = layout.joined("i", "slot", "reg")
    assert joined.ins == {"lane": layout.lanes, "i": layout.regs * layout.slots}
    for (lane, reg, slot), at in table(layout).items():
        assert joined.at(lane=lane, i=reg * layout.slots + slot) == at


@given(random_layouts())
def test_runs_add_up_to_the_coordinates(layout: Layout):
    start = element(layout, (0, 0, 0))
    for place, at in table(layout).items():
        inputs = named(layout.ins, place)
        for axis, out, first in zip(layout.out_axes, at, start, strict=True):
            digits_of = [0] * len(axis.radices)
            for run in layout.runs(axis.name):
                part = inputs[run.source] // run.divide % run.modulo * run.multiply
                digits_of = [a ^ b for a, b in zip(digits_of, digits((axis,), (part,)), strict=True)]
            origin = digits((axis,), (first,))
            assert [a ^ b for a, b in zip(digits_of, origin, strict=True)] == digits((axis,), (out,))


@given(random_layouts())
def test_along_names_the_coordinate_that_counts_with_an_input(layout: Layout):
    for name, size in layout.ins.items():
        others = {axis: 0 for axis in layout.ins if axis != name}
        seen = [layout.fix().at(**others, **{name: index}) for index in range(size)]
        first = seen[0]
        counted = [
            out
            for out in layout.outs
            if size > 1
            and all(
                now._asdict() == first._asdict() | {out: first._asdict()[out] ^ index} for index, now in enumerate(seen)
            )
        ]
        if all(axis.is_plain for axis in layout.out_axes):
            assert ([layout.along(name)] if layout.along(name) else []) == counted


@given(random_layouts(copies=1))
def test_text_is_read_back(layout: Layout):
    if layout.origin or not all(axis.is_plain for axis in (*layout.out_axes, *layout.in_axes)):
        return
    assert Layout.parse(layout.outs, **layout.bases) == layout


@given(random_layouts())
def test_layouts_are_equal_where_they_do_the_same(layout: Layout):
    again = Layout(layout.in_axes, layout.out_axes, layout.columns, layout.origin)
    assert again == layout
    assert hash(again) == hash(layout)
    assert layout.tiled(col=6) == layout.tiled(col=2).tiled(col=3)
    assert layout.tiled(col=6) == layout.tiled(col=3).tiled(col=2)  # other digits, the same map
    assert layout.tiled(col=2) != layout.tiled(row=2)
    other = Layout(layout.in_axes, layout.out_axes, layout.columns, layout.origin ^ (layout._out_radices[:1] == (2,)))
    assert (other == layout) == (table(other) == table(layout))
    assert pickle.loads(pickle.dumps(layout)) == layout  # noqa: S301 (our own bytes)
    assert layout != 5


def test_the_same_columns_of_other_digits_are_another_layout():
    """2 times 3 read as 3 times 2, and vice versa: both exchange the digits, and are equal only in that respect."""
    two_three, three_two = (2, 3), (3, 2)
    one = Layout((Axis("reg", two_three),), (Axis("col", three_two),), (2, 1))
    other = Layout((Axis("reg", three_two),), (Axis("col", two_three),), (2, 1))
    assert (one.at(reg=1), other.at(reg=1)) == ((3,), (2,))
    assert one != other


def test_a_size_that_is_no_power_of_two_is_cropped():
    """wgmma's accumulator with N = 24: twelve registers, whose upper digit counts three blocks of columns."""
    layout = Layout.parse({"row": 64, "col": 24}, warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8 c8 c16")
    assert layout.ins == {"warp": 4, "lane": 32, "reg": 12, "slot": 1}
    for warp, lane, reg in product(range(4), range(32), range(12)):
        expected = (16 * warp + lane // 4 + 8 * (reg // 2 % 2), 8 * (reg // 4) + 2 * (lane % 4) + reg % 2)
        assert layout.at(warp=warp, lane=lane, reg=reg) == expected
        assert layout.where(row=expected[0], col=expected[1]) == [(warp, lane, reg, 0)]
    assert layout.where(row=33, col=23)[0]._fields == ("warp", "lane", "reg", "slot")
    assert layout.runs("col")[0] == DigitRun("reg", 4, 3, 8)
    assert str(layout) == "warp: r16 r32 | lane: c2 c4 r1 r2 r4 | reg: c1 r8 c8 c16 | slot: -"


def test_steps_of_one_coordinate_cancel():
    assert Layout.parse({"row": 2}, lane="r1 r1+r1") == Layout.parse({"row": 2}, lane="r1 0")


def test_copies_are_all_listed_lowest_first():
    layout = accumulator(reg="c1 r8 0")
    assert layout.copies == 2
    assert layout.where(row=9, col=3) == [(5, 3, 0), (5, 7, 0)]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"reg": "c1 r4"}, "does not have full rank: it loses r8; it repeats r4"),  # a basis said twice, another never
        ({"reg": "c1"}, "it loses r8"),
        ({"reg": "c1 r8 r8+c1"}, r"full rank: it repeats r8\+c1"),
        ({"lane": "c2 c4 r1 r2 r3"}, "it loses r4"),
        ({"reg": "c1 r8 r16"}, "basis 'r16' is outside row, whose size is 16"),
        ({"reg": "c1 x8"}, r"basis 'x8': expected 0, or one of r c and a number, several joined by \+"),
        ({"reg": "c1 c²"}, "basis 'c²': expected 0"),
        ({"reg": "c1 +"}, r"basis '\+'"),
        ({"reg": "c1 r" + "9" * 5000}, "basis 'r99"),
        ({"reg": 3}, "reg: expected bases such as 'c2 c4 r1', got 3"),
    ],
)
def test_a_wrong_row_is_refused_when_read(changes: dict[str, Any], word: str):
    with pytest.raises(wf.errors.InvalidOperand, match=word):
        accumulator(**changes)


@pytest.mark.parametrize(
    ("extents", "reg", "message"),
    [
        ({"row": 0, "col": 8}, "c1", "the size of row must be an integer in 1..1048576, got 0"),
        ({"row": True, "col": 8}, "c1", "the size of row must be an integer in .* got True"),
        ({"row": 8, "rest": 8}, "r1", "different first letters, got 'row', 'rest'"),
        ({"col": 24}, "c1 c2 c4 c16 c8", "col is 24, not a power of two: expected the consecutive bases c8 c16 in reg"),
        ({"col": 24}, "c1 c2 c4 c8", "expected the consecutive bases c8 c16 in reg"),
        ({"col": 24, "row": 2}, "c1 c2 c4 c8+r1 c16", "expected the consecutive bases c8 c16 in reg"),
        ({"col": 24}, "c1 c2 c4", "loses c8"),
    ],
)
def test_sizes_that_cannot_be_read_are_refused(extents: dict[str, int], reg: str, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        Layout.parse(extents, lane="", reg=reg)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"lane": 32}, "lane must be in 0..31, got 32"),
        ({"lane": -1}, "lane must be in 0..31, got -1"),
        ({"lane": 0, "reg": 4}, "reg must be in 0..3, got 4"),
        ({"lane": 0, "slot": 1}, "slot must be in 0..0, got 1"),
        ({"lane": "five"}, "lane must be an integer in 0..31, got 'five'"),
        ({"lane": 1.5}, "lane must be an integer in 0..31, got 1.5"),
        ({"lane": True}, "lane must be an integer in 0..31, got True"),
        ({"lane": np.arange(3)}, r"lane must be an integer in 0..31, got array\(\[0, 1, 2\]\)"),
        ({"reg": 0}, "expected the inputs lane, reg, slot; got reg"),
        ({"lane": 0, "warp": 0}, "expected the inputs lane, reg, slot; got lane, warp"),
    ],
)
def test_a_place_outside_is_refused(place: dict[str, int], message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        accumulator().at(**place)


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        ({"row": 16, "col": 0}, "row must be in 0..15, got 16"),
        ({"row": 0, "col": 8}, "col must be in 0..7, got 8"),
        ({"row": 0}, "expected the coordinates row, col; got row"),
        ({"row": 0, "column": 0}, "expected the coordinates row, col; got row, column"),
    ],
)
def test_an_element_outside_is_refused(coordinates: dict[str, int], message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        accumulator().where(**coordinates)


CROPPED = Layout.parse({"col": 24}, lane="", reg="c1 c2 c4 c8 c16")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: accumulator() @ accumulator(), "the inner layout maps to row 2x2x2x2, col 2x2x2, but the outer one"),
        (lambda: accumulator().tiled(depth=2), "tiled: expected names from row, col; got depth"),
        (lambda: accumulator().tiled(col=0), "the size of tiles along col must be an integer in .* got 0"),
        (lambda: accumulator().inverse().tiled(lane=2), "only a layout with registers can be tiled"),
        (lambda: accumulator().fix(row=2), "fix: expected names from lane, reg, slot; got row"),
        (lambda: accumulator().fix(reg=4), "reg must be in 0..3, got 4"),
        (lambda: CROPPED.fix(reg=9), "reg cannot be fixed at 9: a digit of radix 3 is not 0 there"),
        (lambda: accumulator().joined("lane", "reg"), "the joined input needs a new name, got 'lane'"),
        (lambda: accumulator().joined("i", "row"), "expected one of lane, reg, slot; got 'row'"),
        (lambda: accumulator().runs("lane"), "expected one of row, col; got 'lane'"),
        (lambda: accumulator().fix(reg=0).inverse(), "has no inverse: some elements of .* have no place"),
        (lambda: Layout((Axis("lane", (2,)),), (Axis("row", (2,)),), ()), "expected 1 columns, .*; got 0"),
        (lambda: Layout((Axis("lane", (2,)),), (Axis("row", (3,)),), (1,)), "a digit of radix 2 cannot move"),
        (lambda: Layout((Axis("lane", (3,)),), (Axis("row", (3,)),), (0,)), "a digit of radix 3 cannot move"),
        (lambda: Layout((Axis("lane", (3, 3)),), (Axis("row", (3,)),), (1, 1)), "a digit of radix 3 cannot move"),
        (lambda: Layout((Axis("lane", (2,)),), (Axis("row", (2,)),), (2,)), "a digit of radix 2 cannot move"),
    ],
)
def test_what_the_algebra_cannot_do_is_refused(ask: Any, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        ask()


def test_only_layouts_compose():
    with pytest.raises(wf.errors.InvalidOperand, match="the inner layout must be a Layout, got 5"):
        accumulator() @ 5


def test_coordinates_travel_to_other_processes():
    at = accumulator().at(lane=5, reg=3)
    copy = pickle.loads(pickle.dumps(at))  # noqa: S301 (our own bytes)
    assert (copy, copy.row, type(copy)) == (at, at.row, type(at))
    assert repr(at) == "Coordinate(row=9, col=3)"
    assert repr(accumulator().where(row=9, col=3)) == "[Place(lane=5, reg=3, slot=0)]"


def test_text_is_what_a_table_row_says():
    assert str(accumulator()) == "lane: c2 c4 r1 r2 r4 | reg: c1 r8 | slot: -"
    assert str(accumulator().fix(reg=3)) == "lane: c2 c4 r1 r2 r4 | slot: - | from r8+c1"
    mixed = accumulator(lane="c2 c4 r1 r2 r4+c1")
    assert str(mixed) == "lane: c2 c4 r1 r2 r4+c1 | reg: c1 r8 | slot: -"
