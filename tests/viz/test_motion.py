"""Figures of relayouts, loads and stores: their text agrees with the plans."""

import numpy as np
import pytest

import warpfrag as wf
from viz.parsed import cells, fact, parse, words
from warpfrag.viz.draw import draw

F16 = wf.get("mma.m16n8k16.f32.f16.f16.f32")
F8 = wf.get("mma.m16n8k32.f32.e4m3.e4m3.f32")
PLANS = [
    wf.relayout(F16.d, F16.b),
    wf.relayout(F16.d.tiled(col=2), F16.a),
    wf.relayout(F8.d.tiled(col=4), F8.a),
    wf.relayout(F8.d.tiled(col=4), F8.a, permute="col"),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_target_cell_has_the_colour_of_the_lane_it_comes_from(plan):
    # a value of each lane's own travels, one that is exact in all these formats
    values = [wf.FORMATS["e4m3"].decode(lane) for lane in range(32)]
    given = np.repeat(np.array(values, np.float32)[:, None], plan.source.words, axis=1)
    arrived = plan.target.unpack(plan(given.view(np.uint32)))
    layout = plan.target.layout
    shown = [cell for cell in cells(parse(draw(plan).svg)) if cell.get("data-operand") == plan.target.role]
    found = {(fact(cell, "row"), fact(cell, "col"), fact(cell, "lane")) for cell in shown}

    assert len(shown) == 32 * layout.regs * layout.slots
    assert {(row, col, values[lane]) for row, col, lane in found} == {
        (row, col, float(arrived[row, col])) for row in range(layout.outs["row"]) for col in range(layout.outs["col"])
    }


def test_only_what_changes_lanes_names_one():
    free, moved = draw(PLANS[1]), draw(PLANS[0])

    assert "T1: d0" not in free.text
    assert free.svg.count(">31:16<") == free.svg.count(">15:0<") == F16.a.regs  # narrow cells leave out no bits
    assert ["T0", "d0", "T4:", "d0", "d2", "T4:", "d2"] in [line.split() for line in moved.text.splitlines()]
    assert moved.notes[1] == "Elements change lanes: 2 movmatrix, 2 cvt. Cost 6 (instructions + shared-memory passes)."
    assert "by p too: 0 1 8 9 2 3" in draw(PLANS[3]).notes[-1]


def test_movmatrix_leads_from_left_to_right():
    assert [grid.operand for (grid,) in draw("movmatrix.m8n8.trans.b16").scenes] == ["a", "d"]


@pytest.mark.parametrize(
    ("operand", "memory", "number"),
    [
        (F16.a, wf.Memory("row", 128, 128), 0),
        (F16.a, wf.Memory("row", 48), 1),
        (F16.b, wf.Memory("row", 128, 64), 2),
        (F16.d, wf.Memory("row", 4096), 0),
    ],
)
def test_lanes_stand_at_their_addresses(operand, memory, number):
    way = wf.loads(operand, memory)[number]
    (first, *_) = way.accesses
    width = min(16, max(4, first.width))
    picture = draw(way)
    grid = picture.scenes[0][0]
    lines = [int(mark.words) for mark in grid.rows[0].marks]
    read = {(lines[cell.y] + width * cell.x, cell.lane) for cell in grid.cells if not cell.unread}
    expected = {}
    for lane, address in enumerate(first.addresses):
        if address is not None:
            expected.setdefault(address // width * width, lane)

    assert read == set(expected.items())
    assert all(line % 128 == 0 for line in lines)
    assert str(way) in " ".join(picture.text.split())
    assert len(picture.scenes) == min(4, len(way.accesses))


def test_the_threads_of_four_warps_have_the_colours_of_their_lanes():
    a = wf.get("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16").a
    way = wf.loads(a, wf.Memory("row", 32, 32))[0]
    shown = [cell for cell in cells(parse(draw(way).svg)) if any(word.startswith("T") for word in words(cell))]

    assert len(shown) == 128
    assert sorted(fact(cell, "lane") for cell in shown) == sorted([*range(32)] * 4)


def test_a_figure_of_a_way_names_lanes_elements_and_banks():
    svg = parse(draw(wf.loads(F16.a, wf.Memory("row", 128, 128))[0], theme="dark", title="Mine").svg)

    assert {"Mine", "T17 (1,8..15)", "28-31", "1920"} <= set(words(svg))


@pytest.mark.parametrize(("swizzle", "words"), [(0, ["8", *"-------"]), (128, ["1"] * 8)])
def test_banks_say_how_many_words_each_request_asks_of_them(swizzle, words):
    """Without a swizzle, the eight lanes of a matrix use the same four banks, which is highlighted."""
    way = wf.loads(F16.a, wf.Memory("row", 128, swizzle))[0]
    picture = draw(way)
    banks, *requests = picture.scenes[0][0].cols
    svg = parse(picture.svg)

    assert banks.name == "banks"
    assert [level.name for level in requests] == [f"words, matrix {number}" for number in range(4)]
    assert [mark.words for mark in requests[0].marks] == words
    assert sum(max(int(mark.words) for mark in level.marks if mark.words != "-") for level in requests) == way.passes
    loud = [mark.words for level in requests for mark in level.marks if mark.loud]
    assert len(loud) == (0 if swizzle else 4)
    assert sum(element.get("class") == "paper" for element in svg.iter("{http://www.w3.org/2000/svg}text")) == len(loud)


def test_options_of_other_figures_are_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="take only a theme and a title"):
        draw(PLANS[0], "a")
    with pytest.raises(wf.errors.InvalidOperand, match="the theme of a figure must be one of"):
        draw(PLANS[0], theme="blue")
