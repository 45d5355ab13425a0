"""The linear map: reading, rank, both directions, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.layout import Layout

ACCUMULATOR = {"row": 16, "col": 8}


def accumulator(**changes: str) -> Layout:
    bases = {"lane": "c2 c4 r1 r2 r4", "reg": "c1 r8", "slot": ""} | changes
    return Layout.parse(ACCUMULATOR, **bases)


def test_at_adds_the_basis_of_every_bit():
    assert accumulator().at(lane=5, reg=3, slot=0) == (9, 3)
    assert accumulator().at(lane=5, reg=3, slot=0)._fields == ("row", "col")


def test_where_inverts_at_for_every_place():
    layout = accumulator()
    places = list(layout.places())
    assert len(places) == 128
    for place in places:
        assert layout.where(**layout.at(**place._asdict())._asdict()) == [place]


def test_copies_are_all_listed_lowest_first():
    layout = accumulator(reg="c1 r8 0")
    assert layout.copies == 2
    assert layout.where(row=9, col=3) == [(5, 3, 0), (5, 7, 0)]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"reg": "c1 r4"}, "loses r8"),  # a basis said twice, another never
        ({"reg": "c1"}, "loses r8"),
        ({"reg": "c1 r4"}, "repeats or oversteps with r4"),
        ({"reg": "c1 r8 r16"}, "full rank: it repeats or oversteps with r16"),  # points outside
        ({"lane": "c2 c4 r1 r2 r3"}, "loses r4"),
    ],
)
def test_a_row_without_full_rank_is_refused_when_read(changes: dict[str, str], word: str):
    with pytest.raises(wf.InvalidOperand, match=word):
        accumulator(**changes)


def test_an_unknown_coordinate_is_refused_when_read():
    with pytest.raises(wf.InvalidOperand, match="basis 'x8'"):
        accumulator(reg="c1 x8")


def test_extents_must_be_powers_of_two():
    with pytest.raises(wf.InvalidOperand, match="these extents are no powers of two: 24"):
        Layout.parse({"row": 8, "col": 24}, lane="c1 c2 c4 r1 r2", reg="r4 c8 c16")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"lane": 32}, "lane is 0..31, got 32"),
        ({"lane": -1}, "lane is 0..31, got -1"),
        ({"lane": 0, "reg": 4}, "reg is 0..3, got 4"),
        ({"lane": 0, "slot": 1}, "slot is 0..0, got 1"),
        ({"lane": "five"}, "lane is an integer 0..31, got 'five'"),
        ({"lane": 1.5}, "lane is an integer 0..31, got 1.5"),
        ({"lane": np.arange(3)}, r"lane is an integer 0..31, got array\(\[0, 1, 2\]\)"),
    ],
)
def test_a_place_outside_is_refused(place: dict[str, int], message: str):
    with pytest.raises(wf.InvalidOperand, match=message):
        accumulator().at(**place)


@pytest.mark.parametrize(
    ("coordinates", "message"),
    [
        ({"row": 16, "col": 0}, "row is 0..15, got 16"),
        ({"row": 0, "col": 8}, "col is 0..7, got 8"),
        ({"row": 0}, "expected the coordinates row, col; got row"),
        ({"row": 0, "column": 0}, "expected the coordinates row, col; got row, column"),
    ],
)
def test_an_element_outside_is_refused(coordinates: dict[str, int], message: str):
    with pytest.raises(wf.InvalidOperand, match=message):
        accumulator().where(**coordinates)


def test_coordinates_travel_to_other_processes():
    element = accumulator().at(lane=5, reg=3)
    copy = pickle.loads(pickle.dumps(element))  # noqa: S301 (our own bytes)
    assert (copy, copy.row, type(copy)) == (element, element.row, type(element))


def test_text_is_what_a_table_row_says():
    assert str(accumulator()) == "lane: c2 c4 r1 r2 r4 | reg: c1 r8 | slot: -"
