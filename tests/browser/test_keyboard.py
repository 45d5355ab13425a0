"""Everything can be done with the keyboard, and highlighted elements are announced."""

import pytest

START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FOCUS = "() => ({ ...document.activeElement.dataset, id: document.activeElement.id })"


def focus(tab):
    """Return the element that has the focus."""
    return tab.evaluate(FOCUS)


def place(tab):
    """Operand, row and column of the cell that has the focus."""
    cell = focus(tab)
    return cell.get("operand"), int(cell["row"]), int(cell["col"])


def test_slash_goes_to_the_search_and_escape_clears_it(explorer):
    tab = explorer.show()
    tab.keyboard.press("/")
    tab.keyboard.type("bf16")
    assert focus(tab)["id"] == "query"
    assert explorer.state()["q"] == "bf16"
    tab.keyboard.press("Escape")
    assert "q" not in explorer.state()
    assert tab.input_value("#query") == ""


def test_from_the_search_into_the_list_and_to_the_instruction(explorer):
    tab = explorer.show()
    tab.keyboard.press("/")
    tab.keyboard.type("ldmatrix m8n8")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    name = focus(tab)["name"]
    tab.keyboard.press("Enter")

    assert tab.locator("#name").inner_text() == name
    tab.locator("#results a").first.focus()
    tab.keyboard.press("ArrowUp")
    assert focus(tab)["id"] == "query"


def test_arrows_walk_over_a_grid_and_say_where(explorer):
    tab = explorer.show()
    explorer.cell("a", 0, 0).focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"]:
        tab.keyboard.press(key)
    assert place(tab) == ("a", 1, 2)
    assert tab.locator("#spoken").inner_text() == "A row 1, column 2: lane 5, register 0, bits 15:0"
    tab.keyboard.press("End")
    assert place(tab) == ("a", 1, 15)
    tab.keyboard.press("ArrowRight")
    assert place(tab) == ("a", 1, 15)
    tab.keyboard.press("PageDown")
    assert place(tab) == ("a", 15, 15)


def test_arrows_walk_through_folded_registers(explorer):
    tab = explorer.show(i="mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc")
    explorer.cell("b", 30, 2).focus()
    for _ in range(3):
        tab.keyboard.press("ArrowDown")

    assert place(tab) == ("b", 33, 2)


def test_enter_picks_and_escape_lets_go(explorer):
    tab = explorer.show()
    explorer.cell("d", 9, 3).focus()
    tab.keyboard.press("Enter")
    assert explorer.state()["at"] == "d.9.3"
    assert place(tab) == ("d", 9, 3)
    assert tab.locator(".terms tbody tr").count() == 16
    tab.keyboard.press("Escape")
    assert "at" not in explorer.state()
    assert tab.locator(".is-here").count() == 0


def test_tab_goes_from_region_to_region(explorer):
    """Each grid, the list and the lanes are one tab stop each, so that Tab does not visit thousands of cells."""
    tab = explorer.show()
    tab.locator("#query").focus()
    stops = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        stops.append(
            tab.evaluate(
                "() => { const e = document.activeElement; const grid = e.closest('[data-grid]');"
                " return grid ? grid.dataset.grid : e.closest('#results, #lanes, #registers')?.id ?? e.tagName; }"
            )
        )
        if stops[-1] == "registers":
            break
    assert [stop for stop in stops if stop in {"results", "b.0", "a.0", "d.0", "lanes", "registers"}] == [
        "results",
        "a.0",
        "d.0",
        "b.0",
        "lanes",
        "registers",
    ]


def test_the_selector_is_stepped_without_losing_the_focus(explorer):
    tab = explorer.show(i="mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    tab.locator('[data-set="selector"][data-value="2"]').focus()
    tab.keyboard.press("Enter")

    assert explorer.state()["selector"] == "2"
    assert focus(tab)["value"] == "2"


def test_lanes_and_registers_are_walked_with_arrows(explorer):
    tab = explorer.show()
    tab.locator("#lanes button").first.focus()
    for key in ["ArrowRight", "ArrowDown"]:
        tab.keyboard.press(key)
    assert focus(tab)["lane"] == "9"
    assert tab.locator("#lane-title").inner_text() == "Registers of lane 9"
    tab.locator("#registers li").first.focus()
    tab.keyboard.press("ArrowDown")
    assert focus(tab)["register"] == "a.9.1"
    assert tab.locator("#details-title").inner_text() == "A register 1 of lane 9"


def test_a_lane_that_is_chosen_stays_lit(explorer):
    tab = explorer.show(i=START, at="d.9.3")
    tab.locator('#lanes [data-lane="18"]').focus()
    tab.keyboard.press("Enter")

    assert explorer.state() == {"i": START, "lane": "18"}
    assert tab.locator("#lanes .is-lane").all_inner_texts() == ["T18"]
    assert tab.locator('#view [data-lane="18"]').count() == tab.locator("#view .is-lane").count() > 0


@pytest.mark.parametrize("view", ["matrix", "warp", "table"])
def test_what_can_be_focused_has_a_name_and_every_id_is_unique(explorer, view):
    tab = explorer.show(i=START, view=view)
    nameless = tab.evaluate(
        "() => [...document.querySelectorAll('button, a, select, input, [role=gridcell], [role=grid], [role=region]')]"
        ".filter((e) => !(e.textContent?.trim() || e.ariaLabel || e.labels?.length))"
        ".map((e) => e.outerHTML)"
    )
    ids = tab.evaluate("() => [...document.querySelectorAll('[id]')].map((e) => e.id)")

    assert nameless == []
    assert len(ids) == len(set(ids))
    assert tab.locator("#spoken").get_attribute("aria-live") == "polite"


def test_the_skip_link_leads_to_the_figure_and_keeps_the_state(explorer):
    tab = explorer.show(i=START, at="a.3.4")
    tab.locator(".skip").focus()
    tab.keyboard.press("Enter")

    assert focus(tab)["id"] == "view"
    assert explorer.state()["at"] == "a.3.4"
