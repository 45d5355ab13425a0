"""wgmma in the explorer: any n, one warp of four, and operands in shared memory under a descriptor."""

import numpy as np
import pytest

import warpfrag as wf
from browser.geometry import MEASURE

NAME = "wgmma.mma_async.sync.aligned.m64n{}k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.f16.f16.f16"
BYTES = "wgmma.mma_async.sync.aligned.m64n{}k32.s32.s8.s8"
UNITS = """() => [...document.querySelectorAll("[data-unit]")].filter(({ dataset }) => dataset.names)
  .map(({ dataset }) => [dataset.names, +dataset.unit])"""
ODD = "() => [...document.querySelectorAll('.problems .warning')].map((item) => item.textContent)"
WORDS = [
    (NAME.format(64), "b", 0, wf.Descriptor(stride=1024, swizzle=128)),
    (NAME.format(64), "b", 0, wf.Descriptor(leading=1024, stride=16, swizzle=128)),
    (NAME.format(64), "b", 1, wf.Descriptor(leading=1024, stride=2048, swizzle=64, base_offset=3)),
    (NAME.format(24), "b", 0, wf.Descriptor(start=272, leading=128, stride=256, base_offset=2)),
    (NAME.format(8), "a", 1, wf.Descriptor(start=1024, leading=128, stride=256)),
    (NAME.format(8), "a", 0, wf.Descriptor(start=160, stride=528, swizzle=64, other=1 << 60)),
    (SPARSE.format(24), "b", 0, wf.Descriptor(start=128, leading=1024, stride=256, swizzle=32)),
    (BYTES.format(32), "b", 0, wf.Descriptor(start=262128, stride=512, swizzle=64)),
]


@pytest.mark.parametrize(("name", "role", "trans", "descriptor"), WORDS)
def test_addresses_and_problems_are_those_of_python(explorer, name, role, trans, descriptor):
    tab = explorer.show(i=name, view="memory", staged=role, trans=trans, word=f"0x{descriptor.word:x}")
    operand = wf.get(name).operands[role]
    addresses = operand.addresses(descriptor, bool(trans))
    per = 128 // operand.format.bits
    turned = (role == "a") != bool(trans)
    lines = addresses if turned else addresses.T  # a line of memory is along the last axis
    letters = ("m" if role == "a" else "n", "k")
    line_word, along = letters[::-1] if trans else letters
    expected = {
        (f"{line_word}{line} {along}{start}\u2013{start + per - 1}", int(lines[line, start]))
        for line in range(lines.shape[0])
        for start in range(0, lines.shape[1], per)
    }
    shown = {(one, byte) for names, byte in tab.evaluate(UNITS) for one in names.split("; ")}
    first = sorted({byte // 128 for _, byte in expected})[:64]

    assert shown == {(one, byte) for one, byte in expected if byte // 128 in first}
    assert tab.evaluate(ODD) == [problem.text for problem in descriptor.problems(operand, trans=bool(trans))]


@pytest.mark.parametrize("name", [NAME.format(64), NAME.format(24), SPARSE.format(8), BYTES.format(256)])
def test_without_a_word_a_tile_without_gaps_is_shown(explorer, name):
    for role in "ab":
        tab = explorer.show(i=name, view="memory", staged=role)
        (good,) = wf.get(name).operands[role].descriptors()
        assert tab.locator("input.long").input_value() == f"0x{good.word:016x}"
        assert tab.evaluate(ODD) == []


def test_a_word_is_built_from_fields_and_fields_from_a_word(explorer):
    tab = explorer.show(i=NAME.format(64), view="memory")
    tab.fill('[data-descriptor-field="stride"]', "1024")
    tab.press('[data-descriptor-field="stride"]', "Enter")
    tab.select_option('[data-descriptor-field="swizzle"]', "128")
    assert explorer.state()["word"] == "0x4000004000000000"
    assert tab.locator("input.long").input_value() == "0x4000004000000000"
    tab.fill("input.long", "0xC000000300080040")
    tab.press("input.long", "Enter")
    fields = {name: tab.locator(f'[data-descriptor-field="{name}"]').input_value() for name in wf.Descriptor.FIELDS}
    decoded = wf.Descriptor.decode(0xC000000300080040)
    assert fields == {name: str(getattr(decoded, name)) for name in wf.Descriptor.FIELDS}
    tab.hover("[data-unit='1152']")
    assert tab.locator(".is-here").get_attribute("data-unit") == "1152"


@pytest.mark.parametrize(("width", "warp"), [(8, 3), (24, 2), (256, 0)])
def test_each_warp_shows_its_rows(explorer, width, warp):
    name = NAME.format(width)
    tab = explorer.show(i=name, warp=warp)
    cells = tab.evaluate("""() => [...document.querySelectorAll('[data-grid="d.0"] [data-operand]')].map(
      ({ dataset: { row, col, lane, reg } }) => [+row, +col, +lane, +reg])""")
    layout = wf.get(name).d.layout

    assert (
        sorted((row, col) for row, col, *_ in cells) == list(np.ndindex(64, width))[warp * 16 * width :][: 16 * width]
    )
    for row, col, lane, reg in cells[::7]:
        assert layout.where(row=row, col=col) == [(warp, lane, reg, 0)]
    seen = tab.evaluate(MEASURE)
    a, d = seen["grids"]
    assert seen["cramped"] == []  # d127 fits as d3 does
    assert (a["cell"]["y"] == d["cell"]["y"]) == (width == 8)  # a narrow D stands beside A
    assert not d["hidden"] or d["cut"] <= 2


def test_a_way_leads_to_every_operand(explorer):
    """For operands in registers, and for B, which is in shared memory."""
    tab = explorer.show(i=SPARSE.format(32), warp=1)
    ways = tab.locator("#view .figure-bar button")
    assert ways.all_inner_texts() == ["A", "E", "D", "B"]
    ways.last.click()
    assert explorer.state()["view"] == "memory"
    assert tab.locator("#view h3").first.inner_text() == "B in shared memory"


def test_n_is_a_choice(explorer):
    tab = explorer.show(i=NAME.format(64), warp=1)
    tab.select_option("[data-width]", "24")
    assert explorer.state()["i"] == NAME.format(24)
    assert explorer.state()["warp"] == "1"
    assert tab.locator("#results [aria-current]").get_attribute("data-name") == NAME.format(64)  # one line for all n
    tab.fill("#query", "wgmma m64n40k16 f32 bf16")
    assert tab.locator("#results a").first.get_attribute("data-name") == NAME.format(40).replace("f16.f16", "bf16.bf16")
    tab.fill("#query", "wgmma.mma_async f32.f16.f16")
    found = tab.evaluate("() => [...document.querySelectorAll('#results a')].map((one) => one.dataset.name)")
    assert found == [NAME.format(64), NAME.format(64).replace(".sync", ".sp.sync").replace("k16", "k32")]


@pytest.mark.parametrize("view", ["matrix", "warp", "table", "memory"])
def test_a_phone_has_room(phone, view):
    tab = phone.show(i=NAME.format(64), view=view, word="0x4000000100400000")
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert view == "table" or tab.evaluate(MEASURE)["cramped"] == []
    assert view != "memory" or tab.locator(".more").is_hidden()  # a line of memory is in sight


def test_what_is_shown_is_copied(explorer):
    """The registers of the shown warp, and the bytes of the shown descriptor."""
    tab = explorer.show(i=NAME.format(8), warp=2)
    tab.click('[data-copy="csv"]')
    lines = tab.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert lines[-1] == "d,31,3,0,31,0,d3,47,7"
    word = 0x4000004000000000
    tab = explorer.show(i=NAME.format(64), view="memory", word=f"0x{word:x}")
    tab.click('[data-copy="csv"]')
    addresses = wf.get(NAME.format(64)).b.addresses(word)
    lines = tab.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert lines[0] == "n,k,byte"
    assert len(lines) == 1 + 64 * 2
    for line in lines[1:]:
        n, k, byte = map(int, line.split(","))
        assert addresses[k, n] == byte
