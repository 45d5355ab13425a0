"""Figures of tensor memory: maps by lane and column, single elements, and registers after loads.

Every cell is held to the layout: a region holds exactly the elements that its ranges name.
"""

import re
from itertools import product

import pytest

import warpfrag as wf
from viz.parsed import draw
from warpfrag.viz.tensor_memory_views import scaled_lines

LOAD = "tcgen05.ld.sync.aligned.16x256b.x4.b32"
ONE = "tcgen05.mma.cta_group::1.kind::f16"
TWO = "tcgen05.mma.cta_group::2.kind::f16"
SCALED = "tcgen05.mma.cta_group::{}.kind::mxf8f6f4.block_scale.{}.f32.e4m3.e4m3.ue8m0"
D128, D64 = f"{ONE}.m128n64k16.f32.f16.f16", f"{ONE}.m64n64k16.f32.f16.f16"
PAIR = f"{TWO}.m128n64k16.f32.f16.f16"
CASES = [
    (D128, "d"),
    (D128, "a"),
    (D64, "d"),
    (f"{ONE}.m128n248k16.f32.f16.f16", "d"),
    (f"{ONE}.m64n24k16.f16.f16.f16", "c"),
    (PAIR, "d"),
    (PAIR, "a"),
    (f"{TWO}.m256n256k16.f32.bf16.bf16", "d"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.m32n64k16.f32.f16.f16", "d"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.m32n64k16.f32.f16.f16", "a"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.m64n64k16.f32.f16.f16", "d"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16.m64n8k32.f32.f16.f16", "metadata"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16.m128n8k32.f32.f16.f16", "a"),
    ("tcgen05.mma.sp.cta_group::2.kind::f8f6f4.m128n32k64.f32.e4m3.e4m3", "metadata"),
    (SCALED.format(1, "m128n64k32"), "scale_a"),
    (SCALED.format(1, "m128n200k32"), "scale_b"),
    (SCALED.format(2, "m128n48k32"), "scale_b"),
    (SCALED.format(2, "m256n256k32"), "scale_a"),
]


def in_words(text: str) -> dict[str, range]:
    """Ranges that a text names: `row 0-31, col 5` is rows 0 to 31 and column 5."""
    found = re.findall(r"([a-z]+) (\d+)(?:-(\d+))?", text)
    return {name: range(int(first), int(last or first) + 1) for name, first, last in found}


@pytest.mark.parametrize(("name", "role"), CASES)
def test_every_region_holds_what_it_names(name, role):
    instruction = wf.get(name)
    layout = instruction.operands[role].layout
    lines = scaled_lines(instruction.form, role[-1]) if role.startswith("scale") else None
    padded = "col" if role == "scale_b" else "row"
    maps = draw(name, role).scenes
    blocks = layout.ins.get("block", 1)
    seen = set()

    assert len(maps) == blocks
    for block, (grid,) in enumerate(maps):
        for cell in grid.cells:
            where, what = cell.tip.split(": ")
            places = in_words(where)
            of_block = {"block": block} if blocks > 1 else {}
            held = {
                tuple(layout.at(**of_block, tlane=lane, column=column, slot=slot))
                for lane, column, slot in product(places["lanes"], places["columns"], range(layout.slots))
            }
            if lines is not None:
                at = layout.dims.index(padded)
                held = {
                    (*element[:at], lines.index(element[at]), *element[at + 1 :])
                    for element in held
                    if element[at] in lines
                }
            named = in_words(what)
            ranges = [named.get(dim, range(1)) for dim in layout.dims]
            assert held == ({*product(*ranges)} if named else set())
            assert cell.unread == (not named or "base lane" in what)
            seen |= held if not cell.unread else set()
    extents = dict(layout.outs) | ({padded: len(lines)} if lines is not None else {})
    assert seen == {*product(*(range(extents[dim]) for dim in layout.dims))}


@pytest.mark.parametrize(("name", "role"), CASES)
def test_copies_of_a_part_have_its_colour_and_neighbours_have_others(name, role):
    colours = {}
    for (grid,) in draw(name, role).scenes:
        for cell in grid.cells:
            if not cell.unread:
                colours.setdefault(cell.tip.split(": ")[1], set()).add(cell.lane)

    assert all(len(used) == 1 for used in colours.values())
    first, second, *_ = [*colours.values(), {None}, {None}]
    assert first != second


def test_a_map_has_warps_lanes_and_columns_on_its_edges():
    ((memory,),) = draw(D64, "d").scenes

    assert [level.name for level in memory.rows] == ["warp", "lanes"]
    assert [mark.words for mark in memory.rows[0].marks] == ["0", "1", "2", "3"]
    assert [mark.words for mark in memory.rows[1].marks][:3] == ["0-15", "16-31", "32-47"]
    assert [mark.words for mark in memory.cols[0].marks] == ["0-15", "16-31", "32-47", "48-63"]
    assert next(cell.lines for cell in memory.cells if cell.y == 2) == ("row 16-31", "col 0-15")


@pytest.mark.parametrize(
    ("name", "role", "note"),
    [
        (D64, "d", "16 of every 32 lanes are used: those that start at base lane 0 or at base lane 16."),
        (PAIR, "d", "Data path B of the PTX ISA."),
        (PAIR, "a", "Every element is stored 2 times: each part of D's columns is computed from its own copy."),
        (SCALED.format(1, "m128n64k32"), "scale_a", "All four groups of 32 lanes hold the same scale factors."),
        (D128, "d", "D: 128 x 64 of f32 in 64 columns of 32 bits, one in each."),
    ],
)
def test_notes_say_what_the_picture_cannot(name, role, note):
    assert note in draw(name, role).notes


def test_all_that_lies_in_tensor_memory_is_drawn_without_an_operand():
    picture = draw(SCALED.format(1, "m128n64k32"))

    assert [grid.operand for (grid,) in picture.scenes] == ["a", "d", "scale_a", "scale_b"]
    assert picture.notes[-1].startswith("B is in shared memory")
    assert [draw(PAIR, block=1).scenes[place][0].title for place in (0, 1)] == [
        "A in tensor memory of block 1",
        "D in tensor memory of block 1",
    ]


@pytest.mark.parametrize("shape", ["32x32b.x4", "16x64b.x4", "16x128b.x2", "16x256b.x2", "16x32bx2.x2"])
@pytest.mark.parametrize("packed", ["", ".pack::16b"])
@pytest.mark.parametrize("warp", [None, 3])
def test_a_load_is_drawn_by_lane_and_column_of_tensor_memory(shape, packed, warp):
    name = f"tcgen05.ld.sync.aligned.{shape}{packed}.b32"
    layout = wf.get(name).d.layout
    ((grid,),) = draw(name, warp=warp).scenes
    held = [cell for cell in grid.cells if not cell.unread]

    assert len(held) == 32 * layout.regs * layout.slots
    for cell in held:
        at = dict(cell.coordinates)
        place = {"warp": warp or 0, "lane": cell.lane, "reg": cell.reg, "slot": int(cell.slot)}
        assert layout.at(**place) == (at["tlane"], at["column"], 0)


@pytest.mark.parametrize("base_lane", [0, 16])
@pytest.mark.parametrize(("name", "warp", "block"), [(D128, 1, None), (D64, 0, None), (PAIR, 2, 1)])
def test_an_operand_is_drawn_as_a_load_leaves_it(name, warp, block, base_lane):
    held = wf.get(name).d.through(LOAD, base_lane=base_lane)
    picture = draw(name, "d", through=LOAD, base_lane=base_lane, warp=warp, block=block)
    ((grid,),) = picture.scenes
    cells = [cell for cell in grid.cells if not cell.unread]

    assert len(cells) == 32 * 16
    for cell in cells:
        fixed = {"warp": warp} | ({} if block is None else {"block": block})
        at = held.at(**fixed, lane=cell.lane, reg=cell.reg, slot=0)
        assert dict(cell.coordinates) == at._asdict()
    assert picture.notes[0] == f"{LOAD}, column 0, base lane {base_lane}: 16 registers per thread."


def test_the_warp_view_of_a_load_has_a_line_for_each_thread():
    ((grid,),) = draw(D128, "d", "warp", through=LOAD, warp=1).scenes

    assert (grid.height, grid.width) == (32, 16)
    assert grid.cells[16 * 22 + 1].lines == ("(37,5)",)


def test_shared_memory_takes_descriptors_of_its_own_kind():
    b = wf.get(D128).b
    words = [each.word for each in b.descriptors(swizzle=32)]
    (matrix,), (memory,) = draw(D128, "b", descriptor=words).scenes

    assert matrix.cells
    assert not [note for note in draw(D128, "b", descriptor=words).notes if "Problem" in note]
    assert memory.cells[0].lines == ("n0:", "k0-7")


def test_padded_types_have_sixteen_elements_in_sixteen_bytes():
    name = f"{ONE.removesuffix('f16')}f8f6f4.m128n64k32.f32.e2m1.e4m3"
    (matrix,), _ = draw(name, "a", descriptor=wf.get(name).a.descriptors()).scenes

    assert [cell.lines for cell in matrix.cells[:2]] == [("m0:", "k0-15"), ("m0:", "k16-31")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "warp"}, "in tensor memory has only the view memory, not warp"),
        ({"warp": 1}, "warp, column and base_lane select a load"),
        ({"through": LOAD, "view": "memory"}, "a figure of registers has only the views matrix and warp, not memory"),
        ({"through": LOAD, "warp": 4}, "warp must be in 0..3, got 4"),
        ({"through": LOAD, "block": 1}, "block must be in 0..0, got 1"),
        ({"block": 1}, "block must be in 0..0, got 1"),
        ({"rows": (0, 3)}, "a map of tensor memory does not take rows"),
        ({"view": "matrix"}, "in tensor memory has only the view memory, not matrix"),
    ],
)
def test_what_cannot_be_shown_is_refused(options, message):
    with pytest.raises(wf.errors.InvalidOperand, match=re.escape(message)):
        draw(D128, "d", **options)


def test_what_has_no_operands_is_refused():
    with pytest.raises(wf.WarpfragError, match="an operand depends on the shape and types"):
        draw(ONE)
    with pytest.raises(wf.errors.InvalidOperand, match="no operands to draw"):
        draw("tcgen05.cp.cta_group::1.128x256b")
    with pytest.raises(wf.errors.InvalidOperand, match="apply to tcgen05 operands"):
        draw("mma.m16n8k16.f32.f16.f16.f32", "d", through=LOAD)


def test_the_terminal_has_the_same_words():
    text = draw(PAIR, "d", block=0).to_text(120)

    assert "   2  64-95   row 0-31 col 32-39" in text
    assert text.isascii()
