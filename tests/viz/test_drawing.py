"""Drawings: their outputs (files, notebooks, terminals), their text, and errors."""

import os
import subprocess
import sys
from dataclasses import replace
from errno import ENOSPC
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import warpfrag as wf
from viz.parsed import SVG, cells, draw, fact, parse, texts, words
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore.operand import Operand
from warpfrag.viz.drawing import GridDrawing
from warpfrag.viz.fragment_grids import matrix_grids, warp_grid
from warpfrag.viz.grid_svg import width_of
from warpfrag.viz.notebook import operand_html
from warpfrag.viz.palette import DARK, LIGHT

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


# Files


def test_a_figure_is_saved_as_its_suffix_says(tmp_path):
    picture = draw(MMA, "c")

    assert picture.save(tmp_path / "c.svg").read_text(encoding="utf-8") == picture.svg
    assert picture.save(str(tmp_path / "c.TXT")).read_text(encoding="ascii") == picture.text


@pytest.mark.parametrize("suffix", ["svg", "txt"])
def test_a_title_in_any_script_is_saved_under_any_locale(tmp_path, suffix):
    path, title = tmp_path / f"c.{suffix}", "\u00e9\u4e2d"
    code = f"from warpfrag.viz.draw import draw; draw({MMA!r}, 'c', title={title!a}).save({str(path)!r})"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    assert title in path.read_text(encoding="utf-8")


def test_a_figure_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = draw(MMA, "c").save(tmp_path / "c.svg")
    before = path.read_bytes()

    def full(_path, _content):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(wf.WarpfragError, match="cannot write .*No space left on device"):
        draw(MMA, "a").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"cannot save a figure as 'c\.pdf': expected .* \.svg, \.png or \.txt"
    ):
        draw(MMA, "c").save(tmp_path / "c.pdf")


def test_png_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)

    with pytest.raises(wf.WarpfragError, match=r"PNG needs the package resvg-py: pip install '\.\[png\]'"):
        draw(MMA, "c").save(tmp_path / "c.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("theme", "palette"), [("auto", LIGHT), ("light", LIGHT), ("dark", DARK)])
def test_png_is_rendered_with_the_colours_of_one_theme(tmp_path, monkeypatch, theme, palette):
    asked = {}

    def svg_to_bytes(**options):
        asked.update(options)
        return list(b"\x89PNG")  # resvg-py has given bytes and lists of numbers

    monkeypatch.setitem(sys.modules, "resvg_py", SimpleNamespace(svg_to_bytes=svg_to_bytes))
    path = draw(MMA, "c", theme=theme).save(tmp_path / "c.png")

    assert path.read_bytes() == b"\x89PNG"
    assert "@media" not in asked["svg_string"]
    assert palette.lane(5) in asked["svg_string"]


# Notebooks


def test_notebooks_show_the_picture():
    picture = draw(MMA, "c")

    assert picture._repr_svg_() == picture.svg
    assert picture.svg in picture._repr_html_()
    assert repr(picture) == f"<Drawing 'Operand C, m16n8k16' of {MMA}>"


# Terminals


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize(
    ("name", "operand", "view"),
    [
        (MMA, "a", "matrix"),
        (MMA, None, None),
        (SPARSE, None, None),
        ("mma.m16n8k256.s32.b1.b1.s32.and.popc", "a", None),
        ("mma.m16n8k256.s32.b1.b1.s32.and.popc", "b", "warp"),
        ("ldmatrix.m8n8.x4.b16", None, None),
        ("mma.m8n8k4.row.col.f32.f16.f16.f32", None, None),
    ],
)
def test_text_is_ascii_and_as_wide_as_the_terminal(name, operand, view, width):
    lines = draw(name, operand, view).to_text(width).splitlines()
    headings = {"col", "name", "bits", "register", "chunk", "A"}  # what a heading counts may stand out to the right
    tables = [line for line in lines[2:] if not line.endswith(tuple(f" {word}" for word in headings))]

    assert "\n".join(lines).isascii()
    assert len(tables) > 8
    assert max(map(len, tables)) <= width


def test_text_says_what_the_picture_says():
    picture = draw(MMA, "a")
    text = picture.to_text(200)
    labels = [label for cell in cells(parse(picture.svg)) for label in words(cell)]

    assert len(labels) == 256
    assert [label for label in labels if label not in text.replace(": ", " ")] == []


def test_text_puts_every_label_in_its_row_and_column():
    lines = draw(MMA, "c").to_text(200).splitlines()
    table = [line for line in lines if "T" in line and ":" in line and line.split()[0].isdigit()]
    layout = wf.get(MMA).c.layout

    assert len(table) == 16
    for row, line in enumerate(table):
        said = line.replace(": ", ":").split()
        owners = [layout.where(row=row, col=col)[0] for col in range(8)]
        assert said == [str(row), *(f"T{lane}:c{reg}" for lane, reg, _ in owners)]


# What is said


def test_the_notes_say_what_the_picture_cannot():
    narrow = "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0"
    wmma = draw("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32", "a").notes
    mixed = draw("mma.m8n8k4.row.col.f32.f16.f16.f16").notes

    assert any("Each code fills bits 5:2 of 8" in note for note in draw(narrow, "b").notes)
    assert not any("padding" in note for note in draw(narrow, "a").notes)
    assert "Every element of A has 4 holders; the hardware reads the first." in wmma
    assert "The ISA does not define wmma fragments: these were measured on sm_90." in wmma
    assert "C has the layout of D: c0 is in the place of d0, and so on." in draw(MMA).notes
    assert "The layout of C differs from that of D, because C is f16: draw operand c to see it." in mixed
    assert any("0100 columns 0 1; 1000 columns 0 2" in note for note in draw(SPARSE, "metadata").notes)


def test_the_lanes_that_address_rows_stand_beside_them():
    root = parse(draw("ldmatrix.m8n8.x4.b16").svg)
    chips = [element.get("data-lane") for element in root.iter() if element.get("data-lane") and not cells(element)]
    legend = [str(lane) for lane in range(32)]

    assert chips == [*legend, *legend]  # four matrices of eight rows, then the legend
    assert "address" in words(root)


def test_long_names_are_broken_and_never_cut():
    name = "mma.sp::ordered_metadata.m16n8k64.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    picture = draw(name, "scale_a")
    root = parse(picture.svg)
    room = float(root.get("width"))
    said = words(root)

    assert "".join(line for line in said if line in picture.instruction and len(line) > 5) == picture.instruction
    assert max(width_of(line) for line in said) < room


def test_an_operand_may_be_spelt_in_capitals_and_an_instruction_be_an_object():
    assert draw(wf.get(MMA), "A") == draw(MMA, "a")


# What it looks like

BLOCK_SCALED = "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


@pytest.mark.parametrize("name", [MMA, BLOCK_SCALED, "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"])
def test_no_line_of_a_cell_ends_in_a_colon(name):
    lines = [line.strip() for text in texts(parse(draw(name).svg)) for line in text.itertext()]

    assert {"T31", "d0"} <= set(lines)
    assert [line for line in lines if line.endswith(":")] == []


@pytest.mark.parametrize(("name", "operand"), [(BLOCK_SCALED, "a"), (SPARSE, "a"), (MMA, "a"), (BLOCK_SCALED, None)])
def test_the_numbers_of_columns_stand_apart(name, operand):
    lines = {}
    for text in texts(parse(draw(name, operand).svg)):
        if text.get("class") == "axis":
            lines.setdefault(text.get("y"), []).append((float(text.get("x")), width_of(text.text, 10)))
    gaps = [
        right - left - (one + other) / 2 for line in lines.values() for (left, one), (right, other) in pairwise(line)
    ]

    assert len(gaps) > 10
    assert min(gap for gap in gaps if gap > -100) >= 6  # the next grid on the same height starts anew


@pytest.mark.parametrize(
    "name", [MMA, SPARSE, BLOCK_SCALED, "mma.m16n8k8.f32.f16.f16.f32", "mma.m8n8k4.f64.f64.f64.f64"]
)
def test_the_heading_of_a_product_stands_beside_b_or_above_everything(name):
    """Beside B if it fits, so that the corner above A is not empty; it covers nothing."""
    root = parse(draw(name).svg)
    heading = [text for text in texts(root) if text.get("class") in {"heading", "start", "note start"}][:-1]
    right = max(
        float(one.get("x")) + width_of(one.text, 14 if one.get("class") == "heading" else 11) for one in heading
    )
    bottom = max(float(one.get("y")) for one in heading)
    corners = {}
    for row in root.iter(f"{SVG}g"):
        if cells(row) and "transform" in row.attrib:
            x, y = map(float, row.get("transform")[10:-1].split())
            corners.setdefault(cells(row)[0].get("data-operand"), []).append((x, y))
    rows = [corner for found in corners.values() for corner in found]

    assert [(x, y) for x, y in rows if x < right and y < bottom + 11] == []
    if name == MMA:
        assert min(y for _, y in corners["b"]) < bottom


def test_every_register_has_an_outline():
    mma = wf.get(MMA)
    paths = [path.get("d") for path in parse(draw(MMA).svg).iter(f"{SVG}path") if path.get("class") == "block"]

    assert [path.count("z") for path in paths] == [32 * operand.regs for operand in (mma.b, mma.a, mma.d)]


def test_a_warpgroup_of_128_threads_can_be_drawn():
    layout = Layout.parse({"row": 64, "col": 8}, lane="c2 c4 r1 r2 r4 r16 r32", reg="c1 r8")
    operand = Operand(replace(wf.get(MMA).d.spec, layout=layout), "an instruction of a warpgroup")
    drawing = GridDrawing(
        "D", operand.instruction, (), tuple((grid,) for grid in [*matrix_grids(operand), warp_grid(operand)])
    )
    found = cells(parse(drawing.svg))
    chips = [one.get("data-lane") for one in parse(drawing.svg).iter() if one.get("data-lane") and not cells(one)]

    assert len(found) == 2 * 64 * 8
    assert all(layout.at(lane=fact(cell, "lane"), reg=fact(cell, "reg"))[0] == fact(cell, "row") for cell in found)
    assert chips[-128:] == [str(lane) for lane in range(128)]
    assert f'[data-lane="127"]{{fill:{LIGHT.lane(31)}}}' in drawing.svg
    assert "lane 127, register 3" in operand_html(operand)


# Parts


def test_a_part_is_cut_out():
    found = cells(parse(draw(MMA, "a", rows=(8, 9), cols=(3, 5)).svg))

    assert [(fact(cell, "row"), fact(cell, "col")) for cell in found] == [
        (row, col) for row in (8, 9) for col in (3, 4, 5)
    ]


def test_a_part_of_a_run_is_labelled_as_that_part():
    picture = draw("mma.m16n8k256.s32.b1.b1.s32.and.popc", "a", rows=(0, 0), cols=(24, 103))

    assert [label for label in words(parse(picture.svg)) if ".." in label and label.startswith("T")] == [
        "T0 a24..a31",
        "T1 a0..a31",
        "T2 a0..a31",
        "T3 a0..a7",
    ]


def test_products_and_matrices_are_parts():
    four = draw("mma.m8n8k4.row.col.f32.f16.f16.f32", "a")
    one = draw("mma.m8n8k4.row.col.f32.f16.f16.f32", "a", parts=(2, 2))

    assert len(four.scenes) == 4
    assert {fact(cell, "mma") for cell in cells(parse(one.svg))} == {2}


# Refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MMA, "e"), rf"the operand of {MMA} must be one of a, b, c, d; got 'e'"),
        ((MMA, "a", "round"), "the view of a figure must be one of matrix, warp, logical, whole, memory; got 'round'"),
        ((MMA, "a", "logical"), "only a sparse A and its metadata have a logical view; use the matrix or warp view$"),
        ((MMA, "a", "whole"), "the whole view shows A, B and D of an mma; for operand a use matrix or warp"),
        (("movmatrix.m8n8.trans.b16", None, "whole"), "the whole view shows A, B and D of an mma; for movmatrix"),
        ((SPARSE, "metadata", "logical"), "has the views matrix and warp, not logical"),
        ((wf.get(MMA).b,), r"pass its instruction and its name: draw\(instruction, 'b'\)"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        draw(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operand": "a", "rows": (3, 99)}, r"rows: expected \(first, last\) in 0..15, got \(3, 99\)"),
        ({"operand": "a", "cols": (5, 4)}, r"cols: expected \(first, last\) .* got \(5, 4\)"),
        ({"operand": "a", "parts": (0, 1)}, r"parts: expected \(first, last\) in 0..0, got \(0, 1\)"),
        (
            {"rows": (0, 1)},
            "the whole view does not take rows; draw one operand in its matrix or logical view instead",
        ),
        (
            {"view": "matrix", "parts": (0, 1)},
            "a figure of all operands does not take parts; draw one operand",
        ),
        (
            {"operand": "a", "view": "warp", "rows": (0, 1), "cols": (0, 1)},
            "the warp view does not take rows and cols; draw one operand in its matrix or logical view instead",
        ),
        ({"operand": "metadata", "selector": 2}, "selector must be in 0..1, got 2"),
        ({"theme": "pink"}, "the theme of a figure must be one of auto, light, dark; got 'pink'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        draw(SPARSE, **options)


def test_a_layout_that_nobody_knows_is_not_drawn():
    with pytest.raises(wf.errors.NotModelled, match="were not measured"):
        draw("ldmatrix.m8n16.x1.s8.s4")
    with pytest.raises(wf.errors.NotModelled, match="the wmma fragments of sm_70"):
        draw("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", arch="sm_70")
