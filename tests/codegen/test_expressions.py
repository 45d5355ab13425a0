"""Formulas: the text for a linear map computes the map, in every language."""

from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfrag import get
from warpfrag.layout.index_expressions import (
    IndexConstant,
    IndexOperation,
    IndexVariable,
    element_expressions,
    evaluate,
    linear,
    place_expressions,
)
from warpfrag.layout.linear_layout import Layout

IMAGES = st.dictionaries(st.sampled_from(["lane", "i", "warp"]), st.lists(st.integers(0, 127), max_size=6), min_size=1)


def expected(images, indices):
    """Return the result by definition: the images of the bits that are 1, combined by xor."""
    return reduce(xor, [step for s, steps in images.items() for b, step in enumerate(steps) if indices[s] >> b & 1], 0)


@given(IMAGES, st.data())
def test_the_tree_and_its_text_compute_the_map(images, data):
    formula = linear(images)
    indices = {source: data.draw(st.integers(0, (1 << len(steps)) - 1)) for source, steps in images.items()}
    wanted = expected(images, indices)

    assert evaluate(formula, indices) == wanted
    assert eval(str(formula), dict(indices)) == wanted  # noqa: S307 (a formula of ours)


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ({"lane": [2, 4, 1, 0, 0]}, "(lane & 3) * 2 + (lane >> 2 & 1)"),
        ({"lane": [0, 0, 1, 2, 4], "i": [0, 8]}, "(i >> 1) * 8 + (lane >> 2)"),
        ({"lane": [1, 2, 4, 0, 0]}, "lane & 7"),
        ({"lane": [1, 2, 4, 8, 16]}, "lane"),
        ({"lane": [0, 0]}, "0"),
        ({"lane": [1, 2, 4, 1, 2]}, "(lane & 7) ^ (lane >> 3)"),
        ({"lane": [5]}, "lane * 4 + lane"),
        ({"lane": [3, 6]}, "(lane * 2) ^ lane"),
    ],
)
def test_formulas_are_as_a_person_writes_them(images, text):
    assert str(linear(images)) == text


def test_a_shift_of_a_shift_keeps_its_parentheses():
    one, two = IndexVariable("x"), IndexOperation(">>", IndexConstant(8), IndexConstant(2))

    assert str(IndexOperation(">>", one, two)) == "x >> (8 >> 2)"
    assert str(IndexOperation(">>", two, one)) == "8 >> 2 >> x"


@pytest.mark.parametrize("name", ["mma.m16n8k16.f32.f16.f16.f32", "mma.m8n8k4.col.row.f32.f16.f16.f16"])
def test_a_layout_is_its_formulas(name):
    for operand in get(name).operands.values():
        layout = operand.layout
        elements, places = element_expressions(layout), place_expressions(layout)
        for place in layout.places():
            given = {"lane": place.lane, "i": operand.element(reg=place.reg, slot=place.slot)}
            at = layout.at(lane=place.lane, reg=place.reg, slot=place.slot)._asdict()
            holder = layout.where(**at)[0]

            assert {dim: evaluate(formula, given) for dim, formula in elements.items()} == at
            assert {axis: evaluate(formula, at) for axis, formula in places.items()} == holder._asdict()


def test_the_formulas_of_a_layout_start_where_it_does_and_know_its_warps():
    bases = {"lane": "c2 c4 r1 r2 r4", "reg": "c1 r8"}
    accumulator = Layout.parse({"row": 64, "col": 8}, warp="r16 r32", **bases)
    turned = Layout(accumulator.in_axes, accumulator.out_axes, accumulator.columns, origin=0b100110001)
    for layout in (accumulator, turned):
        elements, places = element_expressions(layout), place_expressions(layout)
        for place in layout.places():
            at = layout.at(**place._asdict())._asdict()
            given = {"warp": place.warp, "lane": place.lane, "i": place.reg}
            assert {dim: evaluate(formula, given) for dim, formula in elements.items()} == at
            assert {axis: evaluate(formula, at) for axis, formula in places.items()} == place._asdict()
