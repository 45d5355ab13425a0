"""Copying: the PTX text, the formulas, the table, the figure, the link."""

import csv
import re
from io import StringIO
from xml.etree import ElementTree as ET

import pytest

import warpfrag as wf
from warpfrag.layout.index_expressions import element_formulas, place_formulas

NAME = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
SVG = "{http://www.w3.org/2000/svg}"


def copied(explorer, what):
    """Return the clipboard after a button was pressed."""
    explorer.tab.evaluate("document.querySelector('#toast').classList.remove('shown')")  # said of an earlier copy
    explorer.tab.locator(f'.copies [data-copy="{what}"]').click()
    explorer.tab.locator("#toast.shown").wait_for()
    return explorer.tab.evaluate("navigator.clipboard.readText()")


def test_the_ptx_text_and_the_link(explorer):
    explorer.show(i=NAME, at="a.9.3")

    assert copied(explorer, "ptx") == NAME
    assert copied(explorer, "link") == explorer.tab.url


def test_the_formulas_are_those_of_the_layout(explorer):
    explorer.show(i=NAME)
    text = copied(explorer, "formula")
    for operand in wf.get(NAME).operands.values():
        formulas = element_formulas(operand.layout) | place_formulas(operand.layout)
        assert formulas
        assert all(f"{name} = {formula}\n" in text for name, formula in formulas.items())


def test_the_table_is_that_of_the_layout(explorer):
    explorer.show(i=NAME, view="table", operand="b")
    rows = list(csv.DictReader(StringIO(copied(explorer, "csv"))))
    operand = wf.get(NAME).b

    expected = []
    for place in operand.layout.places():
        bits, element = operand.bits(place.slot), operand.layout.at(**place._asdict())
        name = f"b{operand.element(reg=place.reg, slot=place.slot)}"
        row = {"operand": "b", **place._asdict(), **bits._asdict(), "element": name, **element._asdict()}
        expected.append({field: str(value) for field, value in row.items()})
    assert rows == expected


def test_the_table_of_all_operands(explorer):
    sparse = wf.get("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    explorer.show(i=sparse.name)
    rows = list(csv.DictReader(StringIO(copied(explorer, "csv"))))

    assert {row["operand"] for row in rows} == set(sparse.operands)
    assert len(rows) == sum(len(list(operand.layout.places())) for operand in sparse.operands.values())
    assert {row["chunk"] for row in rows if row["operand"] == "metadata"} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("view", ["matrix", "warp"])
def test_the_figure_is_svg_with_a_cell_per_element(explorer, view):
    tab = explorer.show(i=NAME, view=view)
    drawing = ET.fromstring(copied(explorer, "svg"))  # noqa: S314 (our own text)
    cells = tab.locator("#view [data-operand]").count()
    titles = [title.text for title in drawing.iter(f"{SVG}title")]

    assert cells > 0
    assert sum("lane" in title and "[" in title for title in titles) == cells
    assert {text.text for text in drawing.iter(f"{SVG}text")} >= {"T0", "T31"}


def test_the_figure_of_a_relayout_marks_what_moves(explorer):
    tab = explorer.show(i=NAME, view="relayout", operand="a", to=f"{NAME}:b")
    moved = tab.locator("#view .moved").count()

    assert moved > 0
    assert copied(explorer, "svg").count("<path") == moved


@pytest.mark.parametrize("view", ["matrix", "warp", "table"])
def test_the_figure_has_colours_that_every_reader_of_svg_knows(explorer, view):
    """The small s8 cells are transparent, which a browser computes as a colour that SVG 1.1 does not have."""
    explorer.show(i=NAME, view=view, at="a.9.3")
    drawing = ET.fromstring(copied(explorer, "svg"))  # noqa: S314 (our own text)
    attributes = [element.attrib for element in drawing.iter()]
    colours = [found[name] for found in attributes for name in ("fill", "stroke") if name in found]
    clear = [float(found["fill-opacity"]) for found in attributes if "fill-opacity" in found]

    assert len(colours) > 100
    assert [colour for colour in colours if not re.fullmatch(r"none|rgb\(\d{1,3}, \d{1,3}, \d{1,3}\)", colour)] == []
    assert set(clear) == ({0.35} if view == "matrix" else set())


def test_without_a_clipboard_copying_still_works(explorer):
    tab = explorer.show(i=NAME)
    tab.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    tab.locator('.copies [data-copy="ptx"]').click()

    tab.locator("#toast.shown").wait_for()
    assert tab.locator("#toast").inner_text() == "Copied the PTX text."
    tab.evaluate("delete navigator.clipboard")
    assert tab.evaluate("navigator.clipboard.readText()") == NAME
