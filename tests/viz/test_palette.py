"""Colours: text is readable on all of them, in light and dark, and lanes are distinguishable in greyscale print."""

import re
from itertools import pairwise

import pytest

from viz.contrast import READABLE, contrast, luminance
from warpfrag.viz.grid_svg import stylesheet
from warpfrag.viz.palette import DARK, LIGHT, oklch

PALETTES = pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])


def test_contrast_is_that_of_the_accessibility_guidelines():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#abcdef", "#abcdef") == 1


def test_oklch_meets_known_colours():
    assert oklch(1, 0, 0) == "#ffffff"
    assert oklch(0, 0, 0) == "#000000"
    assert oklch(0.62796, 0.25768, 29.234) == "#ff0000"
    assert oklch(0.45201, 0.31321, 264.052) == "#0000ff"


@PALETTES
def test_text_can_be_read_on_every_lane(palette):
    assert min(contrast(palette.ink, palette.lane(lane)) for lane in range(32)) >= READABLE


@PALETTES
def test_headings_notes_and_unread_cells_can_be_read(palette):
    assert contrast(palette.ink, palette.paper) >= READABLE
    assert contrast(palette.muted, palette.paper) >= READABLE
    assert contrast(palette.muted, palette.unread) >= READABLE
    assert contrast(palette.edge, palette.paper) >= READABLE


@PALETTES
def test_the_32_lanes_have_32_colours(palette):
    assert len({palette.lane(lane) for lane in range(32)}) == 32


@PALETTES
def test_the_lanes_of_a_group_stay_apart_in_grey_print(palette):
    for group in range(8):
        greys = [luminance(palette.lane(4 * group + lane)) for lane in range(4)]
        assert greys in (sorted(greys), sorted(greys, reverse=True))
        assert all(max(pair) / min(pair) > 1.12 for pair in pairwise(greys))


def test_a_figure_follows_the_screen_and_prints_in_light_colours():
    rules = stylesheet("auto", 32)
    light, dark = rules.split("@media screen and (prefers-color-scheme:dark)")

    assert LIGHT.lane(5) in light
    assert DARK.lane(5) not in light
    assert DARK.lane(5) in dark


@pytest.mark.parametrize(("theme", "palette", "other"), [("light", LIGHT, DARK), ("dark", DARK, LIGHT)])
def test_a_fixed_theme_has_only_its_own_colours(theme, palette, other):
    rules = stylesheet(theme, 32)

    assert "@media" not in rules
    assert palette.lane(5) in rules
    assert other.lane(5) not in rules


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_no_rule_reaches_beyond_the_figure(theme):
    rules = stylesheet(theme, 32).replace("@media screen and (prefers-color-scheme:dark){", "")
    selectors = [selector.lstrip("}") for selector in re.findall(r"([^{]+)\{[^}]*\}", rules)]

    assert len(selectors) > 40
    assert [one for one in selectors for part in one.split(",") if not part.startswith(".wf ")] == []
