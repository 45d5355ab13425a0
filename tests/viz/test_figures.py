"""The figures of the ISA by number, the gallery in the docs, and golden files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import warpfrag as wf
from viz.golden import FOLDER, GOLDEN
from viz.parsed import cells, draw, fact, parse, words
from warpfrag.viz.draw import draw_figure, figure_row, figure_rows

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NUMBERS = [*range(46, 56), *range(62, 65), *range(87, 93), *range(130, 138)]


def figure_of(key):
    """For each element of a figure, the words of its cell; the first coordinate only where there is one."""
    found = cells(parse(draw_figure(key).svg))
    return {tuple(int(value) for name, value in cell.items() if name in PLACE): words(cell) for cell in found}


PLACE = {"data-mma", "data-row", "data-col"}


def test_every_figure_that_the_project_answers_to_has_a_row():
    assert [int(key) for key in figure_rows() if key.isdigit()] == NUMBERS


@pytest.mark.parametrize("key", list(figure_rows()))
def test_the_command_of_a_figure_says_what_its_row_says(key):
    row = figure_row(key)
    arguments = row.command.split()[2:]

    assert row.command.startswith("warpfrag draw ")
    assert wf.get(arguments[0]).name == arguments[0]
    assert draw_figure(key).title == row.title
    assert row.caption in row.title


# Each figure of the ISA, checked in one or two places against the formulas of its section.


@pytest.mark.parametrize(
    ("number", "count", "places"),
    [
        (46, 128, {(0, 0, 0): "T0 a0", (1, 6, 3): "T22 a3", (3, 7, 1): "T31 a1"}),
        (47, 128, {(0, 1, 0): "T0 a1", (1, 6, 3): "T23 a2", (3, 3, 2): "T14 a3"}),
        (48, 128, {(0, 1, 0): "T1 b0", (2, 3, 6): "T27 b2"}),
        (49, 128, {(0, 1, 0): "T0 b1", (2, 3, 6): "T26 b3"}),
        (50, 256, {(0, 2, 7): "T2 c7", (3, 5, 4): "T29 c4"}),
        (51, 128, {(0, 0, 0): "T0 c0", (1, 7, 6): "T23 c6", (1, 2, 3): "T6 c3"}),
        (52, 128, {(2, 0, 0): "T8 c0", (3, 7, 6): "T31 c6"}),
        (53, 32, {(5, 2): "T22 a0"}),
        (54, 32, {(2, 5): "T22 b0"}),
        (55, 64, {(5, 4): "T22 c0", (5, 5): "T22 c1"}),
        (64, 64, {(5, 4): "T22 c0", (7, 7): "T31 c1"}),
        (87, 512, {(5, 16): "T22 a0", (13, 23): "T22 a15"}),
        (88, 512, {(5, 8): "T22 a0", (13, 27): "T22 a15", (5, 24): "T22 a8"}),
        (89, 256, {(16, 5): "T22 b0", (23, 5): "T22 b7"}),
        (90, 128, {(8, 5): "T22 b0", (15, 7): "T31 b3"}),
        (91, 128, {(27, 5): "T22 b7", (16, 0): "T0 b4"}),
        (92, 128, {(5, 4): "T22 c0", (13, 5): "T22 c3"}),
        (132, 128, {(0, 0): "T0 b0", (15, 7): "T31 b3"}),
        (133, 128, {(16, 0): "T0 b4", (31, 7): "T31 b7"}),
        (134, 128, {(32, 0): "T0 b8", (47, 7): "T31 b11"}),
        (135, 128, {(48, 0): "T0 b12", (63, 7): "T31 b15"}),
        (136, 128, {(0, 0): "T0 [3:0]", (13, 7): "T21 [31:28]"}),
        (137, 128, {(0, 15): "T2 [31:28]", (8, 8): "T3 [3:0]"}),
    ],
)
def test_a_figure_shows_what_the_section_says(number, count, places):
    found = figure_of(number)

    assert len(found) == count
    assert {place: found[place] for place in places} == {place: [said] for place, said in places.items()}


@pytest.mark.parametrize(("number", "letter"), [(62, "a"), (63, "b")])
def test_the_figures_of_single_bits_label_registers(number, letter):
    root = parse(draw_figure(number).svg)
    labels = [label for label in words(root) if ".." in label and label.startswith("T")]

    assert len(cells(root)) == 8 * 128
    assert sorted(labels) == sorted(f"T{lane} {letter}0..{letter}31" for lane in range(32))


@pytest.mark.parametrize(("number", "first"), [(130, 0), (131, 32)])
def test_the_figures_of_sparse_a_label_spans_of_eight_columns(number, first):
    root = parse(draw_figure(number).svg)
    found = cells(root)
    names = ["a0..a3", "a4..a7"] if first == 0 else ["a8..a11", "a12..a15"]
    labels = [label for label in words(root) if re.fullmatch(r"T\d+ a\d+\.\.a\d+", label)]

    assert {(fact(cell, "row"), fact(cell, "col")) for cell in found} == {
        (row, col) for row in range(16) for col in range(first, first + 32)
    }
    assert sorted(labels) == sorted(f"T{lane} {name}" for lane in range(32) for name in names)
    for cell in found:
        lane = 4 * (fact(cell, "row") % 8) + (fact(cell, "col") - first) // 8
        assert fact(cell, "lane") == lane


def test_an_unknown_figure_is_refused_with_those_that_are_near():
    with pytest.raises(wf.errors.InvalidOperand, match=r"unknown figure '138'; near: 13\d, .*figures are 46, 47"):
        draw_figure(138)


# The gallery

MOTION = 17  # figures of relayouts, loads, wgmma and tcgen05, which no row of the table can name


@pytest.mark.slow
def test_the_gallery_is_what_the_script_writes(tmp_path):
    subprocess.run([sys.executable, DOCS / "make_figures.py", tmp_path], check=True)
    expected = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    actual = {path.name: path.read_bytes() for path in (DOCS / "figures").iterdir()}

    assert len(expected) == len(figure_rows()) + MOTION
    assert sorted(expected) == sorted(actual)
    assert [name for name in expected if expected[name] != actual[name]] == []
    assert (tmp_path / "gallery.md").read_bytes() == (DOCS / "gallery.md").read_bytes()


def test_the_gallery_names_every_number_picture_and_command():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((figures/\S+\.svg)\)", page)

    assert re.findall(r"^### Figure (\d+):", page, re.MULTILINE) == [str(number) for number in NUMBERS]
    assert len(pictures) == len(figure_rows()) + MOTION
    assert [picture for picture in pictures if not (DOCS / picture).is_file()] == []
    assert all(f"{row.command} -o " in page for row in figure_rows().values())


# Golden files


@pytest.mark.parametrize("name", list(GOLDEN))
def test_a_figure_is_the_same_text_as_ever(name):
    drawing = draw(**GOLDEN[name])

    assert drawing.svg == (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert drawing.text == (FOLDER / f"{name}.txt").read_text(encoding="ascii")


def test_there_is_no_golden_file_that_nothing_compares():
    assert {path.stem for path in FOLDER.iterdir()} == set(GOLDEN)
