"""Finding instructions by words and by filters, and searches without results."""

import pytest

import warpfrag as wf
from instructions import listed, of_a_warp


def names(explorer):
    """The names in the list, once all of it is there."""
    count = int(explorer.tab.locator("#count").inner_text().split()[0])
    explorer.tab.wait_for_function("(count) => document.querySelectorAll('#results a').length === count", arg=count)
    return explorer.tab.evaluate("() => [...document.querySelectorAll('#results a')].map((link) => link.dataset.name)")


@pytest.mark.parametrize(
    "words",
    ["m16n8k256", "s8 m16n8k64 sp", "satfin u4", "mxf4nvf4 4x", "WMMA.LOAD.A bf16", "f32.f16.f16.f32"],
)
def test_words_in_any_order_find(explorer, words):
    explorer.show(q=words)
    expected = [i.name for i in of_a_warp() if all(word in i.name.lower() for word in words.lower().split())]

    assert expected
    assert names(explorer) == expected


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("fp8 mma.sync", {"types": {"e4m3", "e5m2"}}),
        ("RTX4090", {"target": "sm_89"}),
        ("hopper fp8", {"types": {"e4m3", "e5m2"}, "target": "sm_90a"}),
        ("H100 half wgmma", {"types": {"f16"}, "target": "sm_90a"}),
        ("nvfp4", {"types": {"e2m1"}}),
        ("e4m3 sm_90a k32", {"types": {"e4m3"}, "target": "sm_90a"}),
        ("k32, sm_90a e4m3", {"types": {"e4m3"}, "target": "sm_90a"}),
    ],
)
def test_names_of_gpus_and_types_find_what_the_command_finds(explorer, typed, asked):
    explorer.show(q=typed)
    listed_names = names(explorer)
    found = [wf.get(name) for name in listed_names]

    assert found
    for instruction in found:
        form = instruction.form
        assert not asked.get("types") or asked["types"] & {form.a, form.b, form.c, form.d}
        assert "target" not in asked or asked["target"] in instruction.targets
    if typed == "nvfp4":
        assert all(".ue4m3" in name and "mxf4nvf4" in name for name in listed_names)


def test_a_target_without_its_suffix_finds_what_the_suffix_allows_too(explorer):
    explorer.show(q="e4m3 sm_90 k32")
    found = names(explorer)

    assert {name.partition(".")[0] for name in found} == {"mma", "wgmma"}
    assert all("k32" in name and "e4m3" in name for name in found)
    explorer.show(q="k32 e4m3 sm_80")
    assert explorer.tab.locator("#count").inner_text().startswith("No instruction matches")


MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4}, {%5}, {%6};", MMA),
        ('asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "', MMA),
        ("MMA.M16N8K16.F32.BF16.BF16.F32", MMA),
        ("mma m16n8k16 row col f32 bf16 bf16 f32", MMA),
        ("mma.sync.m16n8k16, bf16", MMA),
        ("mma m16n8k16 f32 f16 f16 f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.sp.m16n8k16.f32.f16.f16.f32", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("MMA m8n8k16 s32 s8 u8", "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32"),
        ("ldmatrix m8n8 x4 trans b16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("WMMA MMA row col m16n16k16 f32 f32", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
    ],
)
def test_what_people_type_and_paste_is_found_first(explorer, typed, name):
    """Upper case, spaces for dots, without .sync.aligned, inside a line of code: Enter opens the right instruction."""
    explorer.show(i=name, q=typed)

    assert names(explorer)[0] == name


def test_choosing_finds_the_same_as_find(explorer):
    tab = explorer.show()
    tab.select_option('[data-facet="target"]', "sm_90a")
    tab.select_option('[data-facet="a"]', "e4m3")
    tab.select_option('[data-facet="shape"]', "m16n8k32")

    assert names(explorer) == [i.name for i in wf.find(arch="sm_90a", a="e4m3", shape="m16n8k32")]
    assert explorer.state() | {"target": "sm_90a", "a": "e4m3", "shape": "m16n8k32"} == explorer.state()
    assert tab.locator('[data-facet="d"] option:not([disabled])').all_inner_texts() == ["any", "f16", "f32"]


def test_nothing_found_is_said_and_can_be_cleared(explorer):
    tab = explorer.show()
    tab.fill("#query", "m16n8k7")

    assert tab.locator("#count").inner_text() == "No instruction matches. Use fewer words, or clear the filters."
    tab.click("#clear")
    assert len(names(explorer)) == len(listed())


def test_the_list_answers_at_once(explorer):
    """A click right after typing must not hit an entry of the previous list."""
    first = explorer.show().evaluate("""() => {
        const query = document.querySelector("#query");
        query.value = "ldmatrix x2 trans";
        query.dispatchEvent(new Event("input", { bubbles: true }));
        return document.querySelector("#results a").dataset.name;
    }""")

    assert first == "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"


def test_the_list_stands_at_the_instruction_at_once(explorer):
    """Also far down a list that is written in pieces: Tab reaches the entry, and it is visible."""
    name = of_a_warp()[400].name
    explorer.show(i=name, q="mma m16n8k16 bf16")
    current, written, box, around = explorer.tab.evaluate("""() => {
        const query = document.querySelector("#query");
        query.value = "";
        query.dispatchEvent(new Event("input", { bubbles: true }));
        const results = document.querySelector("#results");
        const current = results.querySelector('[aria-current][tabindex="0"]');
        const edges = (element) => [element.getBoundingClientRect().top, element.getBoundingClientRect().bottom];
        return [current?.dataset.name, results.children.length, current && edges(current), edges(results)];
    }""")

    assert current == name
    assert written < len(listed())
    assert around[0] <= box[0] < box[1] <= around[1]
    assert names(explorer) == [instruction.name for instruction in listed()]
    assert explorer.tab.locator("#results [aria-current]").count() == 1


def test_what_is_chosen_while_the_list_is_written_is_marked(explorer):
    last = listed()[-1].name
    explorer.show()
    explorer.tab.evaluate(
        """(name) => {
            const query = document.querySelector("#query");
            for (const value of ["movmatrix", ""]) {
                query.value = value;
                query.dispatchEvent(new Event("input", { bubbles: true }));
            }
            location.hash = "#i=" + name;
        }""",
        last,
    )
    explorer.tab.locator(f'#results [aria-current][data-name="{last}"][tabindex="0"]').wait_for(state="attached")

    assert explorer.tab.locator("#results [aria-current]").count() == 1


def test_a_click_shows_the_instruction(explorer):
    tab = explorer.show()
    tab.fill("#query", "ldmatrix x2 trans")
    link = tab.locator("#results a").first
    name = link.get_attribute("data-name")
    link.click()

    assert tab.locator("#name").inner_text() == name
    assert tab.locator("#results [aria-current]").get_attribute("data-name") == name


def test_legality_is_that_of_the_tables(explorer):
    name = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
    tab = explorer.show(i=name, target="sm_90")

    assert [chip.split()[1] for chip in tab.locator("#legality .yes").all_inner_texts()] == list(wf.get(name).targets)
    assert tab.locator("#legality .warning").inner_text() == "Not legal on sm_90, the target chosen in the finder."


def test_evidence_and_sources_are_those_of_the_instruction(explorer):
    name = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    tab = explorer.show(i=name)
    known = tab.locator("#known").inner_text()
    evidence = wf.get(name).evidence("sm_90")

    assert all(source in known for source in wf.get(name).sources)
    assert evidence.level in known
    assert evidence.detail in known


def test_the_list_follows_a_link(explorer):
    """Also after going back, and for the other side of a relayout: the shown instruction is visible in the list."""
    first, last = of_a_warp()[0].name, of_a_warp()[-1].name
    explorer.show(i=first)
    assert names(explorer)
    tab = explorer.show(i=last)
    edges = "(one) => [one.getBoundingClientRect().top, one.getBoundingClientRect().bottom]"
    top, bottom = tab.locator("#results [aria-current]").evaluate(edges)
    above, below = tab.locator("#results").evaluate(edges)

    assert tab.locator("#results [aria-current]").get_attribute("data-name") == last
    assert above <= top < bottom <= below
    tab.locator("#results").evaluate("(list) => { list.scrollTop = 0; }")  # whoever looks around is not brought back
    tab.locator('[data-set="view"][data-value="warp"]').click()
    assert tab.locator("#results").evaluate("(list) => list.scrollTop") == 0
