"""The relayout view: two fragments side by side, the moves between them, and the plan that Python makes."""

import json
import shlex

import pytest
from click.testing import CliRunner

import warpfrag as wf
from browser.geometry import MEASURE, TEXTS, plain
from viz.contrast import READABLE, contrast
from warpfrag.cli.plan_verbs import relayout as command
from warpfrag.plans.relayout import fragments, tiled_alike
from warpfrag.plans.relayout_operations import cost, described

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
CELLS = """(side) => JSON.stringify([...document.querySelectorAll(`[data-operand="${side}"]`)].map((cell) => {
  const { part = 0, row, col, lane, reg, slot } = cell.dataset;
  return [+part, +row, +col, +lane, +reg, +slot, cell.matches('.moved')];
}))"""
PAIRS = {
    "free": (F16, "d", F16, "a", {"col": 2}, {}, ""),
    "movmatrix": (F16, "d", F16, "b", {}, {}, ""),
    "shuffles": (F8, "d", F8, "a", {"col": 4}, {}, ""),
    "permuted": (F8, "d", F8, "a", {"col": 4}, {}, "col"),
    "wmma": (WMMA, "a", F16, "a", {}, {}, ""),
    "larger target": (F16, "b", WMMA, "b", {"col": 2}, {}, ""),
    "four warps": (WGMMA, "d", WGMMA, "a", {}, {"col": 2}, ""),
    "four warps, permuted": (WGMMA, "d", WGMMA, "a", {}, {"col": 2}, "col"),
    "matrices": (LOAD, "d", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "d", {}, {"matrix": 2}, ""),
}


def operands(case):
    source, role, target, other, tiles, others, permute = PAIRS[case]
    plan = wf.relayout(
        wf.get(source).operands[role].tiled(**tiles),
        wf.get(target).operands[other].tiled(**others),
        permute=permute or None,
    )
    return plan, {"i": source, "view": "relayout", "operand": role, "to": f"{target}:{other}", "permute": permute}


def source_lanes(plan, element):
    """The lanes of the source that hold an element of the target."""
    if plan.permutation:
        element = element | {plan.permuted: plan.permutation[element[plan.permuted]]}
    return {place.lane for place in plan.source.layout.where(**element)}


@pytest.mark.parametrize("case", PAIRS)
def test_cells_and_plan_are_those_of_python(explorer, case):
    plan, state = operands(case)
    tab = explorer.show(**state)
    for side, operand in (("source", plan.source), ("target", plan.target)):
        cells = json.loads(tab.evaluate(CELLS, side))
        layout = operand.layout
        warps = layout.ins.get("warp", 1)  # the first is shown
        assert len(cells) == layout.outs["row"] * layout.outs["col"] * layout.outs.get("matrix", 1) // warps
        for part, row, col, lane, reg, slot, moved in cells:
            element = {"row": row, "col": col} | ({"matrix": part} if "matrix" in layout.outs else {})
            place = layout.where(**element)[0]
            assert place == (*([0] if warps > 1 else []), lane, reg, slot)
            away = side == "target" and lane not in source_lanes(plan, element)
            assert moved == away, (side, element)

    assert tab.locator(".verdict").inner_text() == plan.verdict
    steps = [[f"{count} {kind}" if count else "free", described(step)] for step in plan.operations
             for kind, count in [cost(step)]]  # fmt: skip
    shown = [[item.locator("b").inner_text(), item.inner_text()] for item in tab.locator(".steps li").all()]
    assert [[said, text.removeprefix(said).strip()] for said, text in shown] == steps
    assert plan.permutation_text in tab.locator("#view .legend").inner_text()


@pytest.mark.parametrize("case", ["free", "shuffles", "permuted", "matrices", "four warps, permuted"])
def test_the_command_prints_the_plan_that_is_shown(explorer, case):
    plan, state = operands(case)
    tab = explorer.show(**state)
    for text, lang in zip(tab.locator("#view .command code").all_inner_texts(), ["cuda", "ptx"], strict=True):
        program, verb, *words = shlex.split(text)
        printed = CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
        assert (program, verb) == ("warpfrag", "relayout")
        assert printed.output.strip() == plan.emit(lang).strip()


def test_pointing_at_an_element_shows_it_on_both_sides(explorer):
    tab = explorer.show(i=F8, view="relayout", operand="d", at="source.3.5")

    assert explorer.field("lane") == "14"
    assert (
        "Goes to A[3][5]: lane 13, register 0, bits 15:8. It changes its lane." in tab.locator("#details").inner_text()
    )
    assert tab.locator("#view .is-term").get_attribute("data-operand") == "target"
    explorer.cell("target", 3, 0).hover()
    assert "Comes from D[3][0]: lane 12, register 0" in tab.locator("#details").inner_text()
    assert [plain(line).split()[-1] for line in tab.locator("#registers li").all_inner_texts()][-1] == "A[11][16-19]"
    tab.mouse.move(0, 0)
    tab = explorer.show(i=F8, view="relayout", operand="d", permute="col", at="source.3.8")
    assert tab.locator("#view .is-term").get_attribute("data-col") == "2"


def test_choosing_the_other_fragment_swapping_and_going_back(explorer):
    tab = explorer.show(i=F16, view="relayout", operand="d")
    groups = tab.evaluate("[...document.querySelectorAll('optgroup')].map((group) => group.label)")
    assert groups == ["Free", "By movmatrix", "By shuffles"]
    assert "to" not in explorer.state()  # A of the same instruction
    tab.locator('[data-set="to"]').select_option(f"{F16}:b")
    assert tab.locator(".verdict").inner_text().startswith("Elements change lanes: 2 movmatrix")
    assert explorer.state()["to"] == f"{F16}:b"
    tab.locator('[data-set="to"]').select_option(f"{F16}:a")
    tab.locator("[data-swap]").click()

    assert {**explorer.state(), "to": ""} == {"i": F16, "view": "relayout", "operand": "a", "to": ""}
    assert explorer.state()["to"] in {f"{F16}:d", f"{F16}:c"}


def test_all_pairs_of_python_are_offered(explorer):
    def key(operand):
        return str((operand.layout, operand.format.name, operand.spec.container, operand.spec.low))

    source = wf.get(F16).operands["a"]
    there = [one for one in fragments() if tiled_alike(source, one)]
    tab = explorer.show(i=F16, view="relayout", operand="a")
    named = tab.evaluate("[...document.querySelectorAll('[data-set=to] option')].map((one) => one.value.split(':'))")
    offered = [wf.get(":".join(name)).operands[role] for *name, role in named]

    assert len(there) > 5
    assert sorted(map(key, offered)) == sorted(map(key, there))


@pytest.mark.parametrize(
    "nonsense",
    [{"to": "x:y"}, {"to": f"{F16}:constructor"}, {"to": f"{WMMA}:e"}, {"permute": "col"}, {"at": "source.99.0"}],
    ids=str,
)
def test_nonsense_in_a_link_does_no_harm(explorer, nonsense):
    tab = explorer.show(i=F16, view="relayout", operand="d", **nonsense)

    assert tab.locator(".verdict").inner_text().startswith("Free")
    assert tab.locator("#view .is-here").count() == 0


def test_what_cannot_move_says_so(explorer):
    tab = explorer.show(i="ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4", view="relayout")
    assert tab.locator("#view .empty").is_visible()
    tab = explorer.show(i="mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", view="relayout", operand="metadata")
    assert tab.locator('[data-set="operand"][aria-pressed="true"]').inner_text() == "D"


def test_it_opens_on_the_accumulator_unless_an_operand_was_chosen(explorer):
    tab = explorer.show(i=F16)
    tab.locator('[data-set="view"][data-value="relayout"]').click()
    assert tab.locator("#view .caption h3").all_inner_texts() == ["D", "A"]
    assert "operand" not in explorer.state()
    explorer.show(i=F16, view="warp", operand="b")
    tab.locator('[data-set="view"][data-value="relayout"]').click()
    assert tab.locator("#view .caption h3").first.inner_text() == "B"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(explorer, scheme):
    explorer.tab.emulate_media(color_scheme=scheme)
    explorer.show(i=F8, view="relayout", operand="d", at="source.3.5")
    contrasts = {text: contrast(ink, paper) for text, ink, paper, _ in explorer.tab.evaluate(TEXTS)}
    assert {text: found for text, found in contrasts.items() if found < READABLE} == {}
    explorer.tab.emulate_media(color_scheme="light")


def test_it_fits_a_phone(phone):
    phone.show(i=F8, view="relayout", operand="d")
    seen = phone.tab.evaluate(MEASURE)
    assert phone.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen["cramped"] == []
    assert [grid["way"] or grid["seen"] for grid in seen["grids"]] == [True, True]
