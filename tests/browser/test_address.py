"""The address holds the state: a link shows the same view, and an invalid link does no harm."""

import pytest

SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
START = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LOAD = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16"
CONTENT = "() => [...document.querySelectorAll('#view, #details, #registers, #name')].map((part) => part.innerHTML)"


def test_a_link_shows_the_same_thing(explorer):
    tab = explorer.show()
    tab.fill("#query", "sp m16n8k32 f32.f16")
    tab.press("#query", "Enter")
    tab.locator('[data-set="selector"][data-value="1"]').click()
    tab.locator('select[data-set="code"]').select_option("1001")
    explorer.cell("d", 12, 5).click()
    tab.mouse.move(2, 2)
    before, address = tab.evaluate(CONTENT), tab.url

    assert explorer.state() == {
        "i": SPARSE,
        "selector": "1",
        "code": "1001",
        "at": "d.12.5",
        "lane": "18",
    }
    tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("#view [data-operand]")
    assert tab.evaluate(CONTENT) == before
    assert tab.input_value("#query") == ""  # what was picked from the list cleared the search


def test_a_cell_is_linked_from_an_issue(explorer):
    tab = explorer.show(i=START, at="d.12.5")
    copied = []
    for what in ("markdown", "link"):
        tab.evaluate("document.querySelector('#toast').classList.remove('shown')")  # said of an earlier copy
        tab.locator(f'[data-copy="{what}"]').click()
        tab.locator("#toast.shown").wait_for()
        copied.append(tab.evaluate("navigator.clipboard.readText()"))

    assert copied == [f"[{START}: D[12][5]]({tab.url})", tab.url]
    assert tab.url.endswith(f"#i={START}&at=d.12.5")


@pytest.mark.parametrize("view", ["warp", "table"])
def test_a_link_shows_the_same_view_and_operand(explorer, view):
    tab = explorer.show(i=SPARSE, view=view, operand="b", at="b.17.3")

    assert tab.locator('#views [aria-pressed="true"]').inner_text().lower() == view
    assert tab.locator('[data-set="operand"][aria-pressed="true"]').inner_text() == "B"
    assert tab.locator("#view .is-here").get_attribute("data-row") == "17"


def test_back_returns_to_the_instruction_before(explorer):
    tab = explorer.show(i=START)
    tab.fill("#query", "movmatrix")
    tab.press("#query", "Enter")
    assert tab.locator("#name").inner_text() == "movmatrix.sync.aligned.m8n8.trans.b16"
    tab.go_back()
    tab.wait_for_function("(name) => document.querySelector('#name').innerText === name", arg=START)

    assert tab.locator('[data-grid="b.0"]').count() == 1


@pytest.mark.parametrize("mover", ["stmatrix.sync.aligned.m8n8.x1.shared.b16", LOAD])
def test_an_instruction_without_a_corner_does_not_change_what_the_corner_shows(explorer, mover):
    tab = explorer.show(i=START)
    for name in [mover, START]:
        tab.fill("#query", name)
        tab.press("#query", "Enter")
    tab.fill("#query", "")

    assert explorer.state() == {"i": START}
    assert tab.locator('[data-grid="d.0"]').count() == 1
    tab.locator('[data-set="corner"][data-value="c"]').click()
    for name in [mover, START]:
        tab.fill("#query", name)
        tab.press("#query", "Enter")
    assert explorer.state()["corner"] == "c"
    assert tab.locator('[data-grid="c.0"]').count() == 1


def test_a_link_to_no_instruction_says_so(explorer):
    tab = explorer.show(i="mma.<b>nonsense</b>")

    assert "“mma.<b>nonsense</b>”, which is not the name of an instruction" in tab.locator("#complaint").inner_text()
    assert tab.locator("#name").inner_text() == START


@pytest.mark.parametrize(
    "nonsense",
    [
        {"at": "constructor.1.2"},
        {"at": "a.-1.3"},
        {"at": "a.1"},
        {"at": "a.99.0"},
        {"operand": "constructor", "view": "warp"},
        {"corner": "__proto__"},
        {"view": "toString"},
        {"selector": "99", "lane": "77", "byte_a": "9", "thread_b": "x"},
        {"code": "<img src=x>", "q": '"><script>', "target": "<i>"},
    ],
    ids=str,
)
def test_nonsense_in_a_link_does_no_harm(explorer, nonsense):
    tab = explorer.show(i=SPARSE, **nonsense)

    assert tab.locator("#name").inner_text() == SPARSE
    assert tab.locator("#view [data-operand]").count() > 0
    assert tab.locator("#view .is-here").count() == 0
    assert tab.locator("#legality i, img").count() == 0
