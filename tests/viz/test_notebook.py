"""Cards for notebooks: the facts, maps in the colours of the lanes, in light and dark, and never an error."""

import re

import pytest

import warpfrag as wf
from viz.parsed import SVG, parse
from warpfrag.viz.notebook import instruction_html, layout_html, operand_html
from warpfrag.viz.palette import DARK, LIGHT

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
B1 = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"
UNKNOWN = "ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4"
KINDS = [
    MMA,
    B1,
    UNKNOWN,
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16",
    "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
    "movmatrix.sync.aligned.m8n8.trans.b16",
]


def maps(card):
    """The maps of a card, with the patches of each: row, column, lane and register as they are said."""
    tip = re.compile(r"\[(\d+)(?:-(\d+))?\]\[(\d+)(?:-(\d+))?\]: lane (\d+), register (\d+)")
    found = {}
    for drawing in parse(card).iter(f"{SVG}svg"):
        patches = [(rect, tip.fullmatch(rect.findtext(f"{SVG}title")).groups()) for rect in drawing.iter(f"{SVG}rect")]
        found[drawing.get("aria-label")] = [(rect, [int(n) if n else None for n in said]) for rect, said in patches]
    return found


@pytest.mark.parametrize("name", KINDS)
def test_every_instruction_operand_and_layout_has_a_small_card(name):
    instruction = wf.get(name)
    cards = [instruction_html(instruction), *map(operand_html, instruction.operands.values())]
    cards += [layout_html(operand.spec.layout) for operand in instruction.operands.values()]
    cards += [layout_html(addresses) for addresses in [instruction.addresses] if addresses]
    for card in cards:
        assert parse(card).tag == "div"
        assert len(card) < 150_000
    assert name in cards[0]
    assert all(target in cards[0] for target in instruction.targets)
    assert all(f"<td>{operand.regs} x {operand.ptx_type}</td>" in cards[0] for operand in instruction.operands.values())


@pytest.mark.parametrize("name", [MMA, B1])
def test_a_map_is_that_of_the_layout(name):
    found = maps(instruction_html(wf.get(name)))
    assert [words[0] for words in found] == ["A", "B", "D"]
    for words, patches in found.items():
        operand = wf.get(name).operands[words[0].lower()]
        seen = set()
        for rect, (top, bottom, left, right, lane, reg) in patches:
            assert rect.get("class") == f"t{lane}"
            for row in range(top, (bottom or top) + 1):
                for col in range(left, (right or left) + 1):
                    assert operand.layout.where(row=row, col=col)[0][:2] == (lane, reg)
                    seen.add((row, col))
        assert len(seen) == operand.shape[0] * operand.shape[1]
        assert len(patches) == 32 * operand.regs


def test_what_nobody_measured_is_said():
    assert "were not measured" in instruction_html(wf.get(UNKNOWN))
    assert maps(instruction_html(wf.get(UNKNOWN))) == {}


def test_a_card_changes_nothing_around_it_and_follows_the_screen():
    style = parse(operand_html(wf.get(MMA).a)).findtext("style")
    light, dark = style.split("@media screen and (prefers-color-scheme:dark)")
    selectors = re.findall(r"([^{}]+)\{", light + dark[1:])

    assert LIGHT.lane(5) in light
    assert DARK.lane(5) in dark
    assert len(selectors) > 64
    assert [one for rule in selectors for one in rule.split(",") if not one.startswith(".wf-card")] == []


def test_a_layout_says_its_bases_and_its_copies():
    layout = wf.get("wmma.load.a.sync.aligned.row.m16n16k16.global.f16").a.layout
    card = layout_html(layout)

    assert str(layout) in card
    assert "from lane 32, reg 8, slot 2 to row 16, col 16, each element in 2 places" in card
    assert list(maps(card)) == ["16 x 16"]


def test_a_layout_that_is_no_fragment_has_a_card_without_a_map():
    layout = wf.get(MMA).a.layout
    for other in (layout.inverse(), layout.fix(lane=0), wf.get(WGMMA).b.spec.layout):
        assert list(maps(layout_html(other))) == []
        assert str(other) in layout_html(other)


def test_a_warpgroup_has_cards_too():
    """Its threads are numbered consecutively, B is in shared memory, and a large D is truncated."""
    wgmma = wf.get(WGMMA)
    card = instruction_html(wgmma)

    assert list(maps(card)) == ["A 64 x 16", "D 64 x 64, the first 16 columns"]
    assert "shared memory" in card
    assert "lane 127, register 0" in card
    assert len(card) < 300_000
    assert list(maps(operand_html(wgmma.b))) == []
    assert list(maps(layout_html(wgmma.a.layout))) == ["64 x 16"]
