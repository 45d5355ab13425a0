"""The memory view: lanes at their addresses, banks and their conflicts, and the plans that Python finds."""

import shlex

import pytest
from click.testing import CliRunner

import warpfrag as wf
from browser.geometry import MEASURE, TEXTS, plain
from viz.contrast import READABLE, contrast
from warpfrag.cli.plan_verbs import loads, stores

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
CELLS = """() => [...document.querySelectorAll('[data-lanes]')].flatMap(({ dataset }) =>
  dataset.lanes.split(' ').map((lane) => [+lane, +dataset.bytes, +dataset.size]))"""
PLANS = """() => [...document.querySelectorAll('.access-plans tbody tr')].map((row) =>
  [...row.cells].map((cell) => cell.innerText))"""
CASES = {
    "conflicts": (F16, "a", {"pitch": 128}),
    "swizzled tiles": (F16, "b", {"order": "col", "pitch": 128, "swizzle": 128, "tiles": "col=2"}),
    "second plan": (F16, "a", {"pitch": 128, "way": 2, "access": 3}),
    "elements": (S8, "b", {"pitch": 48, "access": 4}),
    "store": (F16, "d", {"verb": "store", "pitch": 64, "swizzle": 64}),
    "no gaps": (S8, "a", {}),
}


def python_plans(case):
    name, role, asked = CASES[case]
    tiles = dict([asked["tiles"].split("=")]) if "tiles" in asked else {}
    operand = wf.get(name).operands[role].tiled(**{axis: int(count) for axis, count in tiles.items()})
    memory = wf.Memory(asked.get("order", "row"), asked.get("pitch"), asked.get("swizzle", 0))
    return (wf.stores if asked.get("verb") == "store" else wf.loads)(operand, memory)


@pytest.mark.parametrize("case", CASES)
def test_lanes_banks_and_costs_are_those_of_python(explorer, case):
    name, role, asked = CASES[case]
    tab = explorer.show(i=name, view="memory", operand=role, **asked)
    plans = python_plans(case)
    plan = plans[asked.get("way", 1) - 1]
    access = plan.accesses[asked.get("access", 1) - 1]

    assert tab.evaluate(PLANS) == [
        [plan.name.replace(".sync.aligned", ""), plan.targets[0],
         *map(str, (plan.instructions, plan.passes, plan.conflicts, plan.cost))] for plan in plans
    ]  # fmt: skip
    given = {lane: address for lane, address in enumerate(access.addresses) if address is not None}
    shown = tab.evaluate(CELLS)
    assert sorted(lane for lane, *_ in shown) == sorted(given)
    assert all(byte <= given[lane] < byte + size for lane, byte, size in shown)
    lines = [[int(text or 0) for text in line.locator(".cell").all_inner_texts()]
             for line in tab.locator(".banks").all()]  # fmt: skip
    assert sum(map(max, lines)) == access.passes  # a request takes as many passes as its busiest bank has words
    assert bool(tab.locator(".clash").count()) == bool(access.conflicts)
    said = plain(tab.locator(".memory .caption").inner_text())
    assert f"{access.conflicts or 'no'} bank conflict" in said


@pytest.mark.parametrize("case", ["swizzled tiles", "second plan", "store"])
def test_the_command_prints_the_plan_that_is_shown(explorer, case):
    name, role, asked = CASES[case]
    tab = explorer.show(i=name, view="memory", operand=role, **asked)
    plan = python_plans(case)[asked.get("way", 1) - 1]
    printed = []
    for text in tab.locator("#view .command code").all_inner_texts():
        _, verb, *words = shlex.split(text)
        command = {"loads": loads, "stores": stores}[verb]
        printed.append(CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False).output.strip())

    assert printed[:2] == [plan.emit("cuda").strip(), plan.emit("ptx").strip()]
    assert "no bank conflicts" in printed[2] or " 0 " in printed[2]


def test_choosing_and_pointing(explorer):
    tab = explorer.show(i=F16, view="memory")
    tab.locator('[data-set="pitch"]').fill("128")
    tab.keyboard.press("Enter")
    assert tab.locator(".access-plans .warning").first.inner_text() == "28"
    tab.locator('[data-set="swizzle"][data-value="128"]').click()
    assert tab.locator(".access-plans .fine").first.inner_text() == "0"
    assert explorer.state() == {"i": F16, "view": "memory", "pitch": "128", "swizzle": "128"}
    tab.locator('[data-lanes="17"]').hover()
    assert plain(tab.locator("#details-title").inner_text()) == "A[1][8-15]"
    assert plain(tab.locator("#details-where").inner_text()) == "bytes 128-143 · banks 0-3"
    assert tab.locator("#lanes .is-lane").all_inner_texts() == ["T17"]
    tab.locator('#lanes [data-lane="4"]').hover()
    assert tab.locator("#view .is-lane").get_attribute("data-bytes") == "576"
    tab.locator('[data-set="swizzle"][data-value="0"]').click()
    tab.locator('[data-request="2"][data-bank="4"]').hover()
    assert plain(tab.locator("#details-facts").inner_text()).split() == ["Words", "8", "Lanes", "16-23"]
    tab.locator('[data-copy="csv"]').click()
    copied = tab.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[:3] == [
        "instruction,words,lane,address",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16,0 1 2 3,0,0",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16,0 1 2 3,1,128",
    ]


def test_many_accesses_are_a_list(explorer):
    tab = explorer.show(i=S8, view="memory", operand="b", pitch=48)
    tab.locator('select[data-set="access"]').select_option("8")

    assert explorer.state()["access"] == "8"
    assert "word 1.3" in tab.locator(".memory .caption span").first.inner_text()


def test_arrow_keys_walk_over_memory(explorer):
    tab = explorer.show(i=F16, view="memory", pitch=128, swizzle=128)
    tab.locator('[data-lanes="0"]').focus()
    for key in ["ArrowDown", "ArrowRight"]:
        tab.keyboard.press(key)

    assert tab.evaluate("document.activeElement.dataset.lanes") == "1"
    assert "A[1][0-7]" in plain(tab.locator("#spoken").inner_text())


def test_a_pitch_that_is_too_small_is_said(explorer):
    tab = explorer.show(i=F16, view="memory", pitch=16)

    assert "less than the 32 bytes of a row" in tab.locator("#view .warning").last.inner_text()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"pitch": "-3"},
        {"pitch": "1e9"},
        {"order": "x"},
        {"tiles": "row=999"},
        {"swizzle": "48"},
        {"verb": "constructor"},
    ],
    ids=str,
)
def test_nonsense_in_a_link_does_no_harm(explorer, nonsense):
    tab = explorer.show(i=F16, view="memory", way=99, access=99, **nonsense)

    assert tab.locator('.access-plans [aria-pressed="true"]').inner_text() == "ld.shared.b16"
    assert tab.locator("[data-lanes]").count() > 0


def test_several_matrices_are_no_memory(explorer):
    tab = explorer.show(i="ldmatrix.sync.aligned.m8n8.x4.shared.b16", view="memory")

    assert "several matrices" in tab.locator("#view .empty").inner_text()


def test_what_no_instruction_moves_says_so(explorer):
    s4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
    tab = explorer.show(i=s4, view="memory", operand="b")
    assert "No instruction moves B in row order: s4 is smaller than a byte" in tab.locator("#view").inner_text()
    assert wf.loads(wf.get(s4).b, wf.Memory("row")) == []
    tab.locator('[data-set="order"][data-value="col"]').click()
    assert tab.locator("[data-lanes]").count() == 16


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(explorer, scheme):
    explorer.tab.emulate_media(color_scheme=scheme)
    for case in ["conflicts", "swizzled tiles"]:
        name, role, asked = CASES[case]
        explorer.show(i=name, view="memory", operand=role, **asked)
        contrasts = {text: contrast(ink, paper) for text, ink, paper, _ in explorer.tab.evaluate(TEXTS)}
        assert {text: found for text, found in contrasts.items() if found < READABLE} == {}
    explorer.tab.emulate_media(color_scheme="light")


def test_heads_count_banks_and_rows_say_bytes(explorer):
    name, role, asked = CASES["conflicts"]
    tab = explorer.show(i=name, view="memory", operand=role, **asked)

    assert tab.locator(".memory .heads .row-head").inner_text() == "bank"
    rows = tab.locator(".memory .line:not(.banks, .heads) .row-head .bytes")
    assert rows.all_inner_texts()[:2] == ["0", "128"]
    assert rows.first.evaluate("(one) => getComputedStyle(one, '::after').content") == '" B"'


def test_a_typed_pitch_redraws_at_once(explorer):
    name, role, _ = CASES["conflicts"]
    tab = explorer.show(i=name, view="memory", operand=role)
    tab.locator('[data-set="pitch"]').click()
    tab.keyboard.type("144", delay=20)

    assert tab.locator('[data-set="pitch"]').input_value() == "144"
    assert explorer.state()["pitch"] == "144"
    assert "no bank conflicts" in tab.locator(".memory .caption").inner_text()


def test_shared_memory_alone_has_no_lanes(explorer):
    tab = explorer.show(i="wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", view="memory")
    assert not tab.locator(".lane-panel").is_visible()
    name, role, asked = CASES["conflicts"]
    tab = explorer.show(i=name, view="memory", operand=role, **asked)
    assert tab.locator(".lane-panel").is_visible()


def test_it_fits_a_phone(phone):
    for case in ["conflicts", "swizzled tiles", "elements"]:
        name, role, asked = CASES[case]
        phone.show(i=name, view="memory", operand=role, **asked)
        seen = phone.tab.evaluate(MEASURE)
        assert phone.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen["cramped"] == []
        assert case == "elements" or seen["grids"][0]["hidden"] == 0
        assert case != "elements" or plain(seen["grids"][0]["sign"][0]).startswith("banks ")
