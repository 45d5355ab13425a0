"""The page in light and dark, on a laptop, a large screen and a phone: nothing is hidden, clipped or covered."""

import re
from itertools import product

import pytest

from browser.conftest import PHONE
from browser.geometry import MEASURE, TEXTS, plain
from viz.contrast import READABLE, contrast, distance

FAMILIES = {
    "dense": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "boxes": "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "sparse": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "pairs": "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "sparse boxes": "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
    "scaled": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    "longest": (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    ),
    "b1": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "quad": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "wmma": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "wide": "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32",
    "load": "wmma.load.a.sync.aligned.row.m16n16k16.global.f16",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "stmatrix": "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16",
}
PRODUCTS = [family for family, name in FAMILIES.items() if "mma." in name and "load" not in name]
SCREENS = {"laptop": {"width": 1440, "height": 900}, "desktop": {"width": 1920, "height": 1080}, "phone": None}
# The colours of lanes, and of what is lit: the element, its register, what belongs to it.
FILLS = """() => {
  const fill = (one) => getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number);
  const lanes = [...document.querySelectorAll('#lanes button:not(.is-lane)')].map(fill);
  const lit = ['.is-here', '.is-term'].map((name) => fill(document.querySelector(`#view ${name}`)));
  return { lanes, lit: [...lit, fill(document.querySelector('#registers .is-reg'))] };
}"""
PLACES = "() => [...document.querySelectorAll('#lanes button, #registers li')].map((e) => e.getBoundingClientRect().y)"


# The first screen


@pytest.mark.parametrize("size", SCREENS)
def test_the_first_screen(size, explorer, phone):
    """One test for everything visible, because opening and measuring every family takes long."""
    viewport = SCREENS[size]
    opened = explorer if viewport else phone
    usual = opened.tab.viewport_size
    opened.show()
    opened.tab.set_viewport_size(viewport or usual)
    found = {family: opened.show(i=name).evaluate(MEASURE) for family, name in FAMILIES.items()}
    opened.tab.set_viewport_size(usual)

    every_operand_is_shown_or_a_way_to_it(size, found)
    what_is_out_of_sight_is_cut_between_columns_and_said(size, found)
    a_stands_at_the_left_and_cells_use_the_room(size, found)
    boxes_of_a_and_b_speak_the_same_language(found)
    assert {family: seen["cramped"] for family, seen in found.items() if seen["cramped"]} == {}  # words fit


def every_operand_is_shown_or_a_way_to_it(size, found):
    height = (SCREENS[size] or PHONE["viewport"])["height"]
    for family, seen in found.items():
        grids = {grid["grid"]: grid for grid in seen["grids"] if family != "quad" or grid["grid"].endswith(".0")}
        assert [name for name, grid in grids.items() if not (grid["seen"] or grid["way"])] == [], family
        if family in PRODUCTS:
            assert size != "phone" or grids["a.0"]["cell"]["top"] < height * (0.8 if family == "quad" else 0.68), family
            assert size == "phone" or grids["d.0"]["seen"], family


def what_is_out_of_sight_is_cut_between_columns_and_said(size, found):
    cut = [(family, grid) for family, seen in found.items() for grid in seen["grids"] if grid["hidden"]]

    assert cut or size == "desktop"
    for family, grid in cut:
        assert grid["cut"] <= 2, (family, grid["grid"])
        assert len(grid["sign"]) == 1, (family, grid["grid"])
        assert re.fullmatch(r"columns \d+(-\d+)? >", plain(grid["sign"][0])), (family, grid["sign"])
    whole = [grid for seen in found.values() for grid in seen["grids"] if not grid["hidden"]]
    assert [grid["sign"] for grid in whole if grid["sign"]] == []


def a_stands_at_the_left_and_cells_use_the_room(size, found):
    """Also if the metadata below A is wider than A."""
    a = {family: found[family]["grids"][0]["cell"] for family in PRODUCTS}
    lefts = [cell["left"] for cell in a.values()]

    assert max(lefts) - min(lefts) <= 16
    assert size != "desktop" or a["dense"]["width"] >= 40


def boxes_of_a_and_b_speak_the_same_language(found):
    labels = [plain(label) for seen in found.values() for label in seen["labels"]]

    assert [label for label in labels if not re.fullmatch(r"T\d+[ab]\d+-\d+", label)] == []
    assert {"T31b32-63", "T31a96-127", "T0a0-3", "T0b0-3"} <= set(labels)


@pytest.mark.parametrize("family", ["dense", "boxes", "sparse", "wgmma"])
def test_a_laptop_shows_a_whole_product_with_b_above_d(explorer, family):
    """1440 x 900: no operand is clipped in either direction, and no third of the figure is empty."""
    before = explorer.tab.viewport_size
    explorer.tab.set_viewport_size(SCREENS["laptop"])
    tab = explorer.show(i=FAMILIES.get(family, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"))
    seen = tab.evaluate(MEASURE)
    bottoms = tab.evaluate(
        "[...document.querySelectorAll('#view .grid')].map((one) => one.getBoundingClientRect().bottom)"
    )
    cells = {grid["grid"]: grid["cell"] for grid in seen["grids"]}
    explorer.tab.set_viewport_size(before)

    assert max(bottoms) <= 900
    assert [grid["grid"] for grid in seen["grids"] if grid["hidden"] or not grid["seen"]] == []
    assert seen["cramped"] == []
    if family != "wgmma":
        assert cells["b.0"]["top"] < cells["d.0"]["top"]
    if family in {"dense", "sparse"}:  # one cell per element, at the same place in each
        assert cells["b.0"]["left"] == cells["d.0"]["left"]
        assert cells["d.0"]["top"] == cells["a.0"]["top"]


def test_what_is_out_of_sight_can_be_reached(phone):
    tab = phone.show(i=FAMILIES["wide"])
    b = tab.locator(".at-b")
    tab.locator('[data-jump="b.0"]').tap()
    assert b.locator(".caption").bounding_box()["y"] < 200
    assert tab.evaluate("document.activeElement.matches('.at-b .operand')")
    signs = []
    while (more := b.locator('[data-more="1"]')).is_visible():
        more.tap()
        tab.wait_for_timeout(50)
        signs.append(tab.evaluate(MEASURE)["grids"][2])

    assert 2 <= len(signs) <= 4
    assert [sign["cut"] <= 2 for sign in signs] == [True] * len(signs)
    assert [plain(sign) for sign in signs[-1]["sign"]] == ["< columns 0-23"]
    assert [sign["rows"] for sign in signs] == [0] * len(signs)  # row numbers stay
    box = phone.cell("b", 15, 31).bounding_box()
    assert box["x"] + box["width"] <= 390


# Colours


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_so_does_what_is_lit(explorer, scheme):
    explorer.tab.emulate_media(color_scheme=scheme)
    for family in ["dense", "sparse"]:
        tab = explorer.show(i=FAMILIES[family], at="d.9.3", target="sm_70")
        texts = tab.evaluate(TEXTS)
        contrasts = [(text, contrast(ink, paper)) for text, ink, paper, _ in texts]
        assert sum(count for *_, count in texts) > 500
        assert len(texts) > 30
        assert {text: round(found, 2) for text, found in contrasts if found < READABLE} == {}
    fills = tab.evaluate(FILLS)
    assert len({tuple(fill) for fill in fills["lanes"]}) == 31
    assert min(distance(lit, lane) for lit, lane in product(fills["lit"], fills["lanes"])) > 0.1
    explorer.tab.emulate_media(color_scheme="light")


def test_rings_leave_the_words_free(explorer):
    for family, at in [("dense", "d.2.5"), ("sparse", "d.9.3"), ("b1", "a.9.3"), ("scaled", "b.9.3")]:
        seen = explorer.show(i=FAMILIES[family], at=at).evaluate(MEASURE)
        assert seen["rings"] > 8, family
        assert seen["ring"] >= 0, (family, seen["ring"])


# The panel beside the figure


def test_what_is_pointed_at_moves_nothing(explorer):
    """Even if a register has eight elements, or the products of an output were listed before."""
    for family, at in [("scaled", ""), ("dense", "d.9.3"), ("longest", "a.1.2")]:
        tab = explorer.show(i=FAMILIES[family], lane=5, at=at)
        before = tab.evaluate(PLACES)
        for item in ["#registers li >> nth=0", "#registers li >> nth=5", "#lanes button >> nth=5"]:
            tab.locator(item).hover()
            assert tab.evaluate(PLACES) == before, (family, item)
        explorer.cell("a", 1, 2).hover()
        assert tab.evaluate(PLACES)[:32] == before[:32], family
        tab.mouse.move(0, 0)


def test_a_register_is_named_apart_from_its_elements(explorer):
    tab = explorer.show(i=FAMILIES["scaled"], lane=0)

    assert [plain(line).split() for line in tab.locator("#registers li").all_inner_texts()][:5] == [
        ["reg", "0", "a0-7", "A[0][0-7]"],
        ["reg", "1", "a8-15", "A[8][0-7]"],
        ["reg", "2", "a16-23", "A[0][32-39]"],
        ["reg", "3", "a24-31", "A[8][32-39]"],
        ["reg", "0", "b0-7", "B[0-7][0]"],
    ]


def test_what_registers_hold_stands_in_line(explorer):
    tab = explorer.show(i=FAMILIES["b1"])
    lefts = tab.evaluate("[...document.querySelectorAll('#registers span')].map((e) => e.getBoundingClientRect().left)")

    assert len(lefts) == 14
    assert len(set(lefts)) == 1
    tab = explorer.show(i=FAMILIES["boxes"], view="relayout", operand="d")  # with registers of two digits
    names = tab.evaluate("[...document.querySelectorAll('#registers b')].map((e) => e.getBoundingClientRect().height)")
    assert len(names) > 12
    assert len(set(names)) == 1


def test_movmatrix_leads_from_left_to_right(explorer):
    tab = explorer.show(i=FAMILIES["movmatrix"])

    assert tab.locator("#view .caption h3").all_inner_texts() == ["Source A", "Destination D"]
    assert [text[:5] for text in tab.locator("#registers ul").all_inner_texts()] == ["reg 0"] * 2
    assert tab.locator("#registers small").all_inner_texts() == ["a0\N{EN DASH}1", "d0\N{EN DASH}1"]


def test_what_lights_up_is_explained_until_something_does(explorer):
    tab = explorer.show(i=FAMILIES["dense"])
    said = tab.locator(".marks li").all_inner_texts()
    assert said == ["the element", "its register", "its lane", "related elements"]
    explorer.cell("a", 1, 2).hover()
    assert not tab.locator(".marks").is_visible()


def test_a_large_screen_does_not_scroll_as_a_whole_and_keeps_the_finder_open(explorer):
    tab = explorer.show(i=FAMILIES["b1"])
    assert tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]") == [1440, 1000]
    tab.evaluate("document.querySelector('main').scrollTop = 300")
    assert tab.locator(".figure-bar").bounding_box()["y"] == tab.locator("main").bounding_box()["y"]  # nothing above it
    tab.fill("#query", "movmatrix")
    tab.press("#query", "Enter")

    assert tab.locator("#results").is_visible()


# A phone


def test_a_phone_does_not_scroll_sideways(phone):
    """Nor do the tables and formulas below the figure; touch targets are large enough."""
    for family, view in product(["dense", "b1", "sparse", "quad", "ldmatrix"], ["matrix", "warp", "table"]):
        tab = phone.show(i=FAMILIES[family], view=view)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (family, view)
        over = "[...document.querySelectorAll('.wide, pre')].map((box) => box.scrollWidth - box.clientWidth)"
        assert max(tab.evaluate(over)) <= 0, (family, view)
        low = "[...document.querySelectorAll('button, select, #registers li')].map((one) => one.offsetHeight)"
        assert min(filter(None, tab.evaluate(low))) >= 24, (family, view)


def test_a_phone_shows_all_of_a_figure_that_a_link_points_into(phone):
    phone.show()
    tab = phone.show(i=FAMILIES["dense"], at="d.2.5")
    seen = tab.evaluate(MEASURE)
    picked, panel = tab.locator(".is-here").bounding_box(), tab.locator("#details").bounding_box()

    assert [(grid["rows"], grid["hidden"]) for grid in seen["grids"]] == [(0, 0)] * 3
    assert 0 < picked["y"] < picked["y"] + picked["height"] < panel["y"]
    tab = phone.show(i=FAMILIES["b1"], at="a.9.223")
    picked, frame = tab.locator("#view .is-here").bounding_box(), tab.locator(".at-a .scroll").bounding_box()
    assert picked["x"] + picked["width"] + 9 < frame["x"] + frame["width"]  # not where the grid fades away


def test_a_phone_cuts_the_warp_between_registers(phone):
    tab = phone.show(i=FAMILIES["sparse"], view="warp", operand="metadata")
    assert tab.locator(".more").is_hidden()  # the eight codes of its only register are in sight
    tab = phone.show(i=FAMILIES["boxes"], view="warp", operand="a")
    assert tab.evaluate(MEASURE)["cramped"] == []
    right = tab.locator(".scroll").bounding_box()
    heads = [head.bounding_box() for head in tab.locator(".register-head").all()]

    assert plain(tab.locator('[data-more="1"]').inner_text()) == "registers 2-3 >"
    assert min(abs(head["x"] + head["width"] - right["x"] - right["width"]) for head in heads) <= 2


def test_a_phone_shows_what_is_tapped(phone):
    tab = phone.show(i=FAMILIES["dense"])
    phone.cell("a", 1, 2).tap()
    box = tab.locator("#details").bounding_box()

    assert phone.field("lane") == "5"
    assert box["y"] + box["height"] <= 844
    assert box["y"] > 844 / 2
    tab.locator("#unpick").tap()
    assert "at" not in phone.state()


def test_a_phone_opens_the_finder_when_it_is_used(phone):
    tab = phone.show()
    assert not tab.locator("#results").is_visible()
    tab.fill("#query", "movmatrix")
    tab.locator("#results a").first.tap()
    assert tab.locator("#name").inner_text().startswith("movmatrix")
    assert not tab.locator("#results").is_visible()
    tab.locator("#query").tap()
    tab.fill("#query", "stmatrix")
    tab.keyboard.press("Enter")
    assert tab.locator("#name").inner_text().startswith("stmatrix")
    assert not tab.locator("#results").is_visible()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#results a").first.evaluate("(link) => link === document.activeElement")
    tab.locator("#query").focus()
    tab.keyboard.press("Enter")
    assert not tab.locator("#results").is_visible()
    tab.keyboard.type(" b16")

    assert tab.locator("#results").is_visible()
