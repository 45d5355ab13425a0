"""tcgen05 in the explorer: tensor memory by lane and column, one element before and after a load, loads and stores."""

import pytest

import warpfrag as wf
from browser.geometry import MEASURE

ONE, TWO = ("tcgen05.mma.cta_group::{}.kind::f16.{}.f32.f16.f16".format(blocks, "{}") for blocks in (1, 2))
SPARSE = "tcgen05.mma.sp.cta_group::{}.kind::{}"
SCALED = "tcgen05.mma.cta_group::{}.kind::mxf8f6f4.block_scale.{}.f32.e4m3.e4m3.ue8m0"
LOADS = ["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
PLACES = [
    (ONE.format("m128n64k16"), "d"),
    (ONE.format("m64n24k16"), "d"),
    (ONE.format("m128n248k16"), "a"),
    (TWO.format("m128n32k16"), "d"),
    (TWO.format("m256n48k16"), "d"),
    (TWO.format("m128n32k16"), "a"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.m32n64k16.f32.f16.f16", "d"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.m64n64k16.f32.f16.f16", "a"),
    (SPARSE.format(1, "f16.m64n8k32.f32.f16.f16"), "metadata"),
    (SPARSE.format(1, "tf32.m128n8k16.f32.tf32.tf32"), "a"),
    (SPARSE.format(2, "f8f6f4.m128n32k64.f32.e4m3.e2m1"), "metadata"),
    ("tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.m128n16k128.f32.e2m1.e2m1.ue8m0", "metadata"),
    (SCALED.format(1, "m128n200k32"), "scale_b"),
    (SCALED.format(2, "m128n48k32"), "scale_b"),
    (SCALED.format(2, "m128n48k32"), "scale_a"),
    (SCALED.format(2, "m256n256k32"), "scale_a"),
    ("tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16.m256n64k64.f32.e2m1.e2m1.ue4m3", "scale_b"),
]


@pytest.mark.parametrize(("name", "role"), PLACES)
def test_every_place_is_that_of_python(explorer, name, role):
    tab = explorer.show(i=name, operand=role)
    tab.click('[data-copy="csv"]')
    head, *lines = tab.evaluate("() => navigator.clipboard.readText()").splitlines()
    layout = wf.get(name).operands[role].layout
    columns = head.split(",")

    assert columns == [*layout.ins, *layout.dims]
    if not role.startswith("scale"):
        assert len(lines) == len(list(layout.places()))
    found = [dict(zip(columns, map(int, line.split(",")), strict=True)) for line in lines]
    assert found
    if role == "scale_b" and "block" in layout.ins and "m128" in name:
        n = wf.get(name).shape.n
        for record in found:  # the layout counts the second half from a multiple of 128 on
            half, within = divmod(record["col"], n // 2)
            record["col"] = 128 * -(-n // 256) * half + within
    for record in found[:: max(1, len(found) // 3000)]:
        place = {dim: record[dim] for dim in layout.ins}
        assert tuple(record[dim] for dim in layout.dims) == layout.at(**place)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    ("name", "row", "col"),
    [(ONE.format("m128n64k16"), 37, 5), (ONE.format("m128n256k16"), 121, 250), (TWO.format("m128n64k16"), 100, 50)],
)
def test_an_element_is_followed_through_a_load(explorer, name, row, col, load):
    tab = explorer.show(i=name, row=row, col=col, load=load)
    cells = tab.locator(".tensor-element td").all_inner_texts()
    command = tab.locator("#view .command code").first.inner_text()
    words = command.split()
    options = dict(zip(words[6::2], words[7::2], strict=True))
    through = wf.get(name).d.through(
        options["--through"], int(options.get("--column", 0)), base_lane=int(options.get("--base-lane", 0))
    )
    (place,) = wf.get(name).d.layout.where(row=row, col=col)
    (held,) = through.where(row=row, col=col)

    assert words[:6] == ["warpfrag", "where", name, "d", str(row), str(col)]
    assert f".{load}.x" in options["--through"]
    assert cells[0].endswith(f"lane {place.tlane}, column {place.column}")
    assert cells[1] == f"0x{place.tlane << 16 | place.column:08x}"
    assert cells[2] == f"warp {held.warp}, lane {held.lane}, register {held.reg}"


def test_a_region_is_described_and_keys_lead_to_the_next(explorer):
    tab = explorer.show(i=ONE.format("m64n64k16"))
    tab.hover('[data-unit="32.16"]')
    assert tab.locator("#details-title").inner_text() == "row 16\u201331, col 16\u201331"
    assert tab.locator("#details-where").inner_text() == "lanes 32\u201347, columns 16\u201331"
    tab.focus('[data-unit="32.16"]')
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.dataset.unit") == "32.32"


def test_shape_types_operand_and_block_are_choices(explorer):
    tab = explorer.show(i=TWO.format("m128n64k16"))
    tab.select_option('[data-product="n"]', "48")
    assert explorer.state()["i"] == TWO.format("m128n48k16")
    tab.select_option('[data-product="shape"]', "256\N{MULTIPLICATION SIGN}16")
    tab.select_option('[data-product="types"]', "f32.bf16.bf16")
    assert explorer.state()["i"] == TWO.format("m256n48k16").replace("f16.f16", "bf16.bf16")
    tab.click('[data-set="block"][data-value="1"]')
    assert tab.locator('[data-unit="0.0"] b').inner_text() == "row 128\u2013159"
    tab.click('[data-set="operand"][data-value="a"]')
    assert tab.locator("#view h3").first.inner_text() == "A in tensor memory of block 1"
    assert not tab.locator("#views").is_visible()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("tcgen05 m128n256 bf16", ONE.format("m128n256k16").replace("f16.f16", "bf16.bf16")),
        (TWO.format("m256n32k16"), TWO.format("m256n32k16")),
        ("tcgen05.mma.cta_group::1.kind::i8", "tcgen05.mma.cta_group::1.kind::i8.m128n64k32.s32.u8.u8"),
        ("SM100_MMA_TF32_SS", "tcgen05.mma.cta_group::1.kind::tf32.m128n64k8.f32.tf32.tf32"),
        ("tcgen05.ld 16x256b", "tcgen05.ld.sync.aligned.16x256b.x4.b32"),
        ("SM100_TMEM_LOAD_16dp64b8x", "tcgen05.ld.sync.aligned.16x64b.x8.b32"),
    ],
)
def test_tcgen05_is_found_by_its_names(explorer, query, name):
    tab = explorer.show()
    tab.fill("#query", query)
    assert tab.locator("#results a").first.get_attribute("data-name") == name
    tab.press("#query", "Enter")
    assert tab.locator("#name").inner_text().replace("\n", "") == name


@pytest.mark.parametrize("shape", ["32x32b.x8", "16x64b.x4", "16x128b.x2", "16x256b.x2", "16x32bx2.x4"])
@pytest.mark.parametrize("packed", ["", ".pack::16b"])
def test_a_load_shows_the_registers_of_its_first_warp(explorer, shape, packed):
    name = f"tcgen05.ld.sync.aligned.{shape}{packed}.b32"
    tab = explorer.show(i=name)
    cells = tab.evaluate("""() => [...document.querySelectorAll('[data-grid="d.0"] [data-operand]')].map(
      ({ dataset: { row, col, lane, reg, slot } }) => [row, col, lane, reg, slot].map(Number))""")
    layout = wf.get(name).d.layout

    assert len(cells) == 32 * layout.regs * layout.slots
    for row, col, lane, reg, slot in cells:
        assert layout.at(warp=0, lane=lane, reg=reg, slot=slot) == (row, col, 0)


def test_the_repeat_of_a_load_is_a_choice_and_other_views_are_not_offered(explorer):
    tab = explorer.show(i="tcgen05.ld.sync.aligned.16x256b.x4.b32", view="memory")
    assert tab.locator("#views button:visible").all_inner_texts() == ["Matrix", "Warp", "Table"]
    tab.select_option("[data-width]", "2")
    assert explorer.state()["i"] == "tcgen05.ld.sync.aligned.16x256b.x2.b32"


@pytest.mark.parametrize(
    ("name", "role"),
    [(ONE.format("m128n256k16"), "d"), (SPARSE.format(1, "f16.m64n8k32.f32.f16.f16"), "metadata"), (LOADS[3], "")],
)
def test_a_phone_has_room_for_tensor_memory(phone, name, role):
    state = {"i": name, "operand": role} if role else {"i": f"tcgen05.ld.sync.aligned.{name}.x4.b32"}
    tab = phone.show(**state)
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert tab.evaluate(MEASURE)["cramped"] == []


def test_an_unknown_shape_is_said_to_be_none(explorer):
    tab = explorer.show(i=ONE.format("m128n20k16"))
    assert "is not the name of an instruction" in tab.locator("#complaint").inner_text()
