"""The page opens from disk without errors and without requests."""

import pytest

from browser.conftest import check, open_tab
from warpfrag.viz.explorer import page_builder as build

START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

FILL = "(element) => getComputedStyle(element).backgroundColor"

# What the policy must stop, by the rule that does.
FORBIDDEN = {
    "connect-src": "fetch('https://example.invalid/').catch(() => {})",
    "script-src": (
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = 1' }))"
    ),
    "style-src": "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')",
}


def test_the_page_opens_from_disk(fresh):
    tab = fresh.show()

    assert tab.url.startswith("file://")
    assert tab.locator("#name").inner_text() == START
    assert tab.title() == "mma m16n8k16 - warpfrag explorer"
    assert tab.locator('[data-grid="a.0"] [data-operand]').count() == 16 * 16
    assert tab.locator('[data-grid="b.0"] [data-operand]').count() == 16 * 8
    assert tab.locator('[data-grid="d.0"] [data-operand]').count() == 16 * 8


def test_the_policy_stops_what_is_not_the_page(fresh):
    """The monitor that all these tests rely on sees a request, a foreign script and a foreign style."""
    tab = fresh.show()

    assert fresh.complaints == []
    for rule, code in FORBIDDEN.items():
        with tab.expect_console_message(lambda message, rule=rule: message.text.startswith(f"policy: {rule}")):
            tab.evaluate(code)
        assert any(complaint.startswith(f"policy: {rule}") for complaint in fresh.complaints)
    assert tab.evaluate("window.ran") is None
    fresh.complaints.clear()
    fresh.requests.clear()


@pytest.mark.parametrize("view", ["warp", "table", "relayout", "memory"])
def test_every_kind_of_instruction_opens_in_every_view(explorer, view):
    """test_cells opens every layout in the matrix view."""
    kinds = [
        "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16",
        "wmma.store.d.sync.aligned.col.m8n32k16.global.f32",
        "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
        "movmatrix.sync.aligned.m8n8.trans.b16",
    ]
    for name in kinds:
        tab = explorer.show(i=name, view=view)
        assert tab.locator("#name").inner_text() == name
        assert tab.locator("#view :is([data-operand], [data-bytes], .empty)").count() > 0
        assert view in {"relayout", "memory"} or tab.locator("#view [data-operand]").count() > 0
        assert tab.locator("#legality .yes").count() > 0


def test_a_warpgroup_of_128_threads_has_its_lanes(browser, data, tmp_path, monkeypatch):
    """Lanes come from the layouts: here A and D of the first instruction are made four times as tall."""
    shown = next(row for row in data["instructions"] if row["name"] == START)
    for role in "ad":
        operand = data["operands"][shown["operands"][role]]
        layout = data["layouts"][operand["layout"]]
        operand["layout"] = len(data["layouts"])
        tall = {"shape": [64, layout["shape"][1]], "lane": [*layout["lane"], [16, 0], [32, 0]]}
        data["layouts"].append(layout | tall)
    monkeypatch.setattr(build, "page_data", lambda: data)
    path = tmp_path / "warpgroup.html"
    path.write_text(build.build_page.__wrapped__(), encoding="utf-8")
    explorer = open_tab(browser, path)
    tab = explorer.show(i=START, lane=127)
    colours = [tab.locator(f'#lanes [data-lane="{lane}"]').evaluate(FILL) for lane in (31, 127, 126)]

    assert tab.locator("#lanes button").count() == 128
    assert tab.locator("#lane-title").inner_text() == "Registers of lane 127"
    assert tab.locator("#last-lane").text_content() == "127"
    assert colours[0] == colours[1] != colours[2]
    explorer.cell("d", 63, 7).hover()
    assert [explorer.field(name) for name in ("lane", "register")] == ["127", "3"]
    tab.context.close()
    check(explorer)


def test_what_nobody_measured_is_said_and_not_drawn(explorer):
    tab = explorer.show(i="ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4")

    assert "were not measured" in tab.locator("#view .empty").inner_text()
    assert tab.locator("#view [data-operand]").count() == 0
