"""The page and the Python tables agree about every cell."""

import json
import random
from functools import cache
from itertools import product

import pytest

import warpfrag as wf
from instructions import of_a_warp

DENSE = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
]
SPARSE = [
    "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
]
NARROW = [
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
]
QUAD = ["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16"]
WMMA = ["wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32"]
MOVERS = [
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b6x16_p32",
    "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8",
    "movmatrix.sync.aligned.m8n8.trans.b16",
]
SCALES_1X = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
SCALES_2X = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"


def grids(instruction):
    """Every grid of the matrix view: operand, part, and the leading coordinates of its elements."""
    for role, operand in instruction.operands.items():
        layout = operand.layout
        if role == "c":
            continue  # the corner shows d first
        if role == "metadata" or role.startswith("scale"):
            yield operand, 0, (0,) * (len(layout.dims) - 2)
        elif len(layout.dims) == 3:
            yield from ((operand, part, (part,)) for part in range(layout.shape[0]))
        else:
            yield operand, 0, ()


@cache
def held(layout):
    """Return every place of every element, from the Python tables."""
    found = {}
    for place in layout.places():
        found.setdefault(tuple(layout.at(**place._asdict())), []).append(place)
    return found


def holders(operand, leading, row, col):
    """Every place of an element."""
    return held(operand.layout)[(*leading, row, col)]


def bits_text(operand, slot):
    bits = operand.bits(slot)
    return f"{bits.high}:{bits.low}" if bits.high > bits.low else str(bits.low)


SAID = """() => ["lane", "register", "bits", "slot"].map((name) => `#details [data-field="${name}"]`)
  .concat("#details-notes", "#spoken").map((part) => document.querySelector(part)?.innerText)"""


def check_what_is_said(explorer, operand, part, leading, row, col):
    """Pointing at a cell shows the same facts as the tables, and every place that holds the element."""
    places = holders(operand, leading, row, col)
    _, _, slot = places[0]
    explorer.cell(operand.role, row, col, part).hover()
    *said, notes, spoken = explorer.tab.evaluate(SAID)
    texts = [f"lane {one.lane}, register {one.reg}, bits {bits_text(operand, one.slot)}" for one in places]

    assert said == [*map(str, places[0][:2]), bits_text(operand, slot), str(slot)], operand
    assert texts[0] in spoken
    held = f"Held in {len(places)} places" in notes and f"{'; '.join(texts)}. The hardware reads the first." in notes
    assert held == (len(places) > 1), operand


def smallest_cover():
    """Return instructions that together have every known layout of every operand."""
    left = {
        operand.spec.layout: name.name
        for name in reversed(of_a_warp())
        for operand in name.operands.values()
        if not operand.spec.unknown and operand.role != "c"
    }
    cover = []
    while left:
        name = next(iter(left.values()))
        cover.append(name)
        for operand in wf.get(name).operands.values():
            left.pop(operand.spec.layout, None)
    return cover


CELLS = """() => JSON.stringify(Array.from(document.querySelectorAll('#view [data-operand]'), (cell) => {
  const { operand, part = 0, row, col, lane, reg, slot, owners = '' } = cell.dataset;
  return [operand, Number(part), Number(row), Number(col), Number(lane), Number(reg), Number(slot), owners];
}))"""


def cells(tab):
    """Return the text of every cell, as one string: thousands of single values are slow to transfer."""
    return json.loads(tab.evaluate(CELLS))


def test_every_cell_of_every_layout_is_that_of_the_tables(explorer):
    cover, chance, copied = smallest_cover(), random.Random(5), 0
    assert len(cover) > 30
    for name in cover:
        expected = set()
        shown = list(grids(wf.get(name)))
        for operand, part, leading in shown:
            for row, col in product(*map(range, operand.layout.shape[-2:])):
                places = holders(operand, leading, row, col)
                owners = " ".join(".".join(map(str, place)) for place in places) if len(places) > 1 else ""
                expected.add((operand.role, part, row, col, *places[0], owners))
        found = cells(explorer.show(i=name))
        assert len(found) == len(expected), name
        assert set(map(tuple, found)) == expected, name
        operand, part, leading = chance.choice(shown)
        row, col = (chance.randrange(extent) for extent in operand.layout.shape[-2:])
        check_what_is_said(explorer, operand, part, leading, row, col)
        copied += len(holders(operand, leading, row, col)) > 1
    assert copied > 1


def test_the_corner_shows_c_too(explorer):
    """For m8n8k4, C may be f16 if D is f32; then they have different registers."""
    mma = wf.get("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16")
    tab = explorer.show(i=mma.name)
    tab.locator('[data-set="corner"][data-value="c"]').first.click()
    place = mma.c.layout.where(mma=3, row=6, col=5)[0]
    cell = explorer.cell("c", 6, 5, part=3)

    assert explorer.state()["corner"] == "c"
    assert [cell.get_attribute(f"data-{field}") for field in ("lane", "reg", "slot")] == [str(index) for index in place]
    assert tab.locator('[data-grid^="d."]').count() == 0


@pytest.mark.parametrize("name", [DENSE[0], DENSE[5], SPARSE[0], QUAD[0], MOVERS[0], WMMA[0]])
def test_the_warp_view_is_that_of_the_tables(explorer, name):
    for role, operand in wf.get(name).operands.items():
        found = cells(explorer.show(i=name, view="warp", operand=role))
        layout = operand.layout
        expected = {
            (role, element[0] if len(element) == 3 and role != "metadata" else 0, *element[-2:], *place, "")
            for place in layout.places()
            for element in [tuple(layout.at(**place._asdict()))]
        }
        assert set(map(tuple, found)) == expected


def test_a_cell_lights_its_lane_its_register_and_itself(explorer):
    operand = wf.get(DENSE[0]).a
    tab = explorer.show(i=DENSE[0])
    explorer.cell("a", 9, 3).hover()

    def lit(name, role="a"):
        cells = tab.locator(f'#view [data-operand="{role}"].{name}').all()
        return {(int(cell.get_attribute("data-row")), int(cell.get_attribute("data-col"))) for cell in cells}

    register = {tuple(operand.layout.at(lane=5, reg=1, slot=slot)) for slot in range(2)}
    lane = {tuple(operand.layout.at(lane=5, reg=reg, slot=slot)) for reg in range(4) for slot in range(2)}
    assert lit("is-here") == {(9, 3)}
    assert lit("is-reg") == register
    assert lit("is-lane") == lane
    assert lit("is-lane", "b") == {
        tuple(wf.get(DENSE[0]).b.layout.at(lane=5, reg=r, slot=s)) for r in (0, 1) for s in (0, 1)
    }


def test_another_instruction_puts_every_light_out(explorer):
    tab = explorer.show(i=DENSE[0], at="d.9.3")
    assert tab.locator("#lanes .is-lane").count() == 1
    tab.fill("#query", DENSE[1])
    tab.press("#query", "Enter")

    assert tab.locator("#name").inner_text() == DENSE[1]
    assert tab.locator(".is-lane, .is-reg, .is-here, .is-term").count() == 0


def test_a_register_lights_its_cells(explorer):
    operand = wf.get(DENSE[3]).a
    tab = explorer.show(i=DENSE[3], at="a.1.2")
    tab.locator('#registers [data-register="a.4.2"]').hover()

    lit = {
        (int(cell.get_attribute("data-row")), int(cell.get_attribute("data-col")))
        for cell in tab.locator('#view [data-operand="a"].is-reg').all()
    }
    assert lit == {tuple(operand.layout.at(lane=4, reg=2, slot=slot)) for slot in range(4)}
    assert "A register 2 of lane 4" in tab.locator("#details-title").inner_text()


def test_an_output_lights_its_row_and_its_column(explorer):
    tab = explorer.show(i=DENSE[0])
    explorer.cell("d", 9, 3).click()

    assert tab.locator('[data-operand="a"].is-term').count() == 16
    assert tab.locator('[data-operand="a"].is-term[data-row="9"]').count() == 16
    assert tab.locator('[data-operand="b"].is-term[data-col="3"]').count() == 16
    terms = [row.inner_text().split("\t") for row in tab.locator(".terms tbody tr").all()]
    mma = wf.get(DENSE[0])
    for k, term in enumerate(terms):
        a, b = mma.a.layout.where(row=9, col=k)[0], mma.b.layout.where(row=k, col=3)[0]
        assert term == [str(k), f"T{a.lane} a{a.reg * 2 + a.slot}", f"T{b.lane} b{b.reg * 2 + b.slot}"]


def test_an_output_of_a_sparse_product_names_stored_elements_and_codes(explorer):
    """With code 1101 columns 1 and 3 of each chunk of four are kept."""
    sparse = wf.get(SPARSE[0])
    tab = explorer.show(i=SPARSE[0], at="d.9.3", code="1101")

    terms = [row.inner_text().split("\t") for row in tab.locator(".terms tbody tr").all()]
    assert [int(term[0]) for term in terms] == [4 * chunk + column for chunk in range(16) for column in (1, 3)]
    assert [int(term[1]) for term in terms] == list(range(32))
    assert [int(term[4]) for term in terms] == [stored // 2 for stored in range(32)]
    place = sparse.b.layout.where(row=5, col=3)[0]
    assert terms[2][3] == f"T{place.lane} b{place.reg * 4 + place.slot}"
    assert tab.locator('[data-operand="b"].is-term').count() == 32
    assert tab.locator('[data-operand="metadata"].is-term[data-row="9"]').count() == 16


def test_stepping_the_selector_moves_the_metadata(explorer):
    sparse = wf.get(SPARSE[1])
    tab = explorer.show(i=SPARSE[1])
    for selector in sparse.selectors:
        tab.locator(f'[data-set="selector"][data-value="{selector}"]').click()
        cell = explorer.cell("metadata", 9, 2)
        cell.hover()
        place = sparse.metadata.where(row=9, chunk=2, selector=selector)
        assert explorer.field("lane") == str(place.lane)
        assert explorer.field("bits") == f"{place.bit + 3}:{place.bit}"
        assert explorer.state().get("selector", "0") == str(selector)


def test_the_ids_of_scales_move_the_scales(explorer):
    scale = wf.get(SCALES_1X).scale_b
    tab = explorer.show(i=SCALES_1X)
    tab.locator('[data-set="thread_b"][data-value="3"]').click()
    tab.locator('[data-set="byte_b"][data-value="2"]').click()
    explorer.cell("scale_b", 0, 5).hover()

    place = scale.where(scale=0, col=5, byte_id=2, thread_id=3)
    assert explorer.field("lane") == str(place.lane)
    assert explorer.field("bits") == f"{8 * place.byte + 7}:{8 * place.byte}"


@pytest.mark.parametrize(
    ("name", "role", "lane", "facts"),
    [
        (SCALES_1X, "scale_a", 6, [("7:0", 0, 0), ("15:8", 1, 0), ("23:16", 2, 0), ("31:24", 3, 0)]),
        (SCALES_2X, "scale_b", 5, [("7:0", 0, 0), ("15:8", 0, 1), ("23:16", 2, 0), ("31:24", 2, 1)]),
    ],
)
def test_a_register_of_scales_says_which_id_reads_which_byte(explorer, name, role, lane, facts):
    scale = wf.get(name).operands[role]
    tab = explorer.show(i=name, lane=lane)
    line = tab.locator(f'#registers [data-register="{role}.{lane}.0"]')
    text = line.inner_text()
    line.focus()

    thread_id, _, *plane = scale.layout.at(lane=lane)
    for bits, byte_id, number in facts:
        place = scale.where(
            **dict(zip(scale.layout.dims[2:], plane, strict=True)) | {"scale": number},
            byte_id=byte_id,
            thread_id=thread_id,
        )
        assert (place.lane, f"{8 * place.byte + 7}:{8 * place.byte}") == (lane, bits)
    ids = list(dict.fromkeys(str(byte_id) for _, byte_id, _ in facts))
    read = f", read with thread-id {thread_id} and byte-id {' or '.join([', '.join(ids[:-1]), ids[-1]])}"
    assert text.count("[") == 2
    assert text.endswith(read)
    assert tab.locator("#details-facts dt").all_inner_texts() == [
        f"bits {bits}, byte-id {byte_id}" for bits, byte_id, _ in facts
    ]
    assert tab.locator("#details-where").inner_text().endswith(f"ue8m0 in .b32 · thread-id {thread_id}")


def test_a_register_without_a_choice_says_no_id(explorer):
    tab = explorer.show(i=NARROW[1], lane=0)
    line = tab.locator('#registers [data-register="scale_a.0.0"]')
    line.focus()

    assert "byte-id" not in tab.locator("#details").inner_text()
    assert line.inner_text().endswith("SA[0][0\N{EN DASH}3], read with thread-id 0")


def test_movers_name_the_lanes_that_give_addresses(explorer):
    load = wf.get(MOVERS[0])
    tab = explorer.show(i=MOVERS[0])
    explorer.cell("d", 3, 4, part=1).hover()
    lane = next(lane for lane in range(32) if load.addresses.at(lane=lane) == (1, 3))

    assert f"Lane {lane} gives the address of this row." in tab.locator("#details-notes").inner_text()
    assert tab.locator('[data-grid="d.1"] [data-address]').all_inner_texts() == [f"T{8 + row}" for row in range(8)]
