"""Results in a console and in a notebook: short, with labels, and readable on any background."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import warpfrag as wf

MMA = wf.get("mma.m16n8k16.f32.f16.f16.f32")
WGMMA = wf.get("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
SWIZZLED = wf.Memory(order="col", pitch=128, swizzle=128)
PLAN = wf.relayout(MMA.d.tiled(col=2), MMA.a)
LOAD = wf.loads(MMA.b, SWIZZLED)[0]
LARGE = wf.stores(WGMMA.d, wf.Memory(order="row", pitch=1024))[-1]
DESCRIPTOR = wf.Descriptor(stride=1024, swizzle=128)
RESULTS = [
    PLAN,
    wf.relayout(MMA.a, MMA.a),
    wf.relayout(MMA.b.tiled(col=2), MMA.a),
    LOAD,
    LARGE,
    SWIZZLED,
    wf.Memory(),
    wf.Memory(start=64, base_offset=2, swizzle=32),
    DESCRIPTOR,
    DESCRIPTOR.memory("b"),
]


@pytest.mark.parametrize("result", [*RESULTS, MMA.a.layout, WGMMA.d.layout, MMA.a.layout.at(lane=5)], ids=str)
def test_a_console_shows_at_most_five_lines(result: Any):
    text = repr(result)
    assert 0 < len(text.splitlines()) <= 5
    assert all(len(line) <= 200 for line in text.splitlines())
    assert type(result).__name__ in text


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_a_card_is_small_well_formed_and_takes_its_colours_from_the_notebook(result: Any):
    html = result._repr_html_()
    card = ET.fromstring(html)  # noqa: S314 (our own text)
    assert card.get("class") == "wf-card"
    assert len(html) < 8_000
    rules = re.findall(r"\{([^{}]*)\}", card.findtext("style") or "")
    assert not any(re.search(r"(?<!-)color:(?!inherit)|background:(?!none)", rule) for rule in rules)
    for table in card.iter("table"):
        heads, *rows = table
        assert rows
        assert all(len(row) == len(heads) for row in rows)


def test_a_memory_and_a_descriptor_are_written_as_they_are_made():
    assert repr(SWIZZLED) == "Memory(order='col', pitch=128, swizzle=128)"
    assert repr(wf.Memory()) == "Memory()"
    assert repr(DESCRIPTOR) == "Descriptor(stride=1024, swizzle=128)"
    assert eval(repr(DESCRIPTOR), {"Descriptor": wf.Descriptor}) == DESCRIPTOR  # noqa: S307 (our own text)


def test_a_relayout_names_its_operands_its_cost_and_its_steps():
    assert repr(PLAN).splitlines()[0] == "<Relayout free: 4 cvt"
    assert "from d of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: 16 x 16 of f32 in 8 registers" in repr(PLAN)
    assert "<td>cvt</td><td>4</td><td>convert f32 to f16, 2 per word</td>" in PLAN._repr_html_()


def test_an_access_plan_names_its_instructions_and_where_they_point():
    assert "1 x ldmatrix.sync.aligned.m8n8.x2.shared.b16, 2 passes, no bank conflicts" in repr(LOAD)
    assert "base + (lane &amp; 7) * 128" in LOAD._repr_html_()
    assert f"The first 8 of {len(LARGE.accesses)} accesses." in LARGE._repr_html_()
    assert "The first" not in LOAD._repr_html_()
