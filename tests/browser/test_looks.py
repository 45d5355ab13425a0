"""Readable in light and dark, on a large screen and on a phone."""

from __future__ import annotations

import pytest

from draw.contrast import READABLE, contrast

NAMES = {
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "b1": "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "sparse": "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
    "quad": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mover": "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
}
# Every visible text: its colour, and the colours behind it from the nearest that is not transparent.
TEXTS = """() => {
  const numbers = (colour) => {
    const all = (colour.match(/[\\d.]+/g) ?? []).map(Number);
    const scale = colour.startsWith('color(') ? 255 : 1;
    return [...all.slice(0, 3).map((part) => part * scale), all[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const behind = (element) => {
    if (!element) return [255, 255, 255, 1];
    const own = numbers(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    const text = walker.currentNode.textContent.trim();
    if (!text || box.width < 2 || element.closest('script, option, #toast:not(.shown)')) continue;
    found.push([text, numbers(getComputedStyle(element).color), behind(element)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["f16", "sparse"])
def test_every_text_stands_out(explorer, scheme, kind):
    explorer.tab.emulate_media(color_scheme=scheme)
    tab = explorer.show(i=NAMES[kind], at="d.9.3", target="sm_70")
    texts = tab.evaluate(TEXTS)
    contrasts = [(text, contrast(ink, paper)) for text, ink, paper in texts]
    faint = {text: round(found, 2) for text, found in contrasts if found < READABLE}

    assert len(texts) > 500
    assert faint == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lanes_have_32_colours(explorer, scheme):
    explorer.tab.emulate_media(color_scheme=scheme)
    tab = explorer.show()
    colours = tab.evaluate(
        "() => [...document.querySelectorAll('#lanes button')].map((e) => getComputedStyle(e).backgroundColor)"
    )

    assert len(set(colours)) == 32


@pytest.mark.parametrize("view", ["matrix", "warp", "table"])
@pytest.mark.parametrize("kind", NAMES)
def test_a_phone_does_not_scroll_sideways(phone, kind, view):
    tab = phone.show(i=NAMES[kind], view=view)

    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_phone_shows_what_is_tapped(phone):
    tab = phone.show(i=NAMES["f16"])
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


def test_a_phone_closes_the_finder_on_enter_and_opens_it_for_more_typing(phone):
    tab = phone.show()
    tab.locator("#query").tap()
    tab.keyboard.type("movmatrix")
    tab.keyboard.press("Enter")
    assert tab.locator("#name").inner_text().startswith("movmatrix")
    assert not tab.locator("#results").is_visible()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#results a").first.evaluate("(link) => link === document.activeElement")
    tab.locator("#query").focus()
    tab.keyboard.press("Enter")
    assert not tab.locator("#results").is_visible()
    tab.keyboard.type(" b16")

    assert tab.locator("#results").is_visible()


def test_a_large_screen_keeps_the_finder_open(explorer):
    tab = explorer.show()
    tab.fill("#query", "movmatrix")
    tab.press("#query", "Enter")

    assert tab.locator("#results").is_visible()


def test_a_large_screen_does_not_scroll_as_a_whole(explorer):
    tab = explorer.show(i=NAMES["b1"])

    assert tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]") == [1440, 1000]
