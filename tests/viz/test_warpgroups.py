"""Figures of wgmma: the warps of a fragment, and operands in shared memory as descriptors read them."""

import numpy as np
import pytest

import warpfrag as wf
from viz.parsed import cells, draw, fact, parse
from warpfrag.cli import main

W = wf.get("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16")
SPARSE = wf.get("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16")
BYTES = wf.get("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8")
TILES = [
    *((W.b, swizzle, 64, False) for swizzle in (0, 32, 64, 128)),
    *((W.a, swizzle, 16, True) for swizzle in (0, 32, 64, 128)),
    (W.b, 0, 32, True),
    (SPARSE.a, 128, 64, False),
    (SPARSE.b, 32, 32, False),
    (BYTES.b, 64, 64, False),
]


@pytest.mark.parametrize(("operand", "swizzle", "k", "trans"), TILES)
def test_every_unit_stands_at_its_address_in_its_colour(operand, swizzle, k, trans):
    descriptors = operand.descriptors(swizzle=swizzle, k=k, trans=trans)
    along = 1 if operand.role == "a" else 0
    whole = np.concatenate([operand.addresses(one, trans) for one in descriptors], axis=along)
    last = len(np.unique(whole // 128)) - 1
    options = {"descriptor": descriptors, "trans": trans, "rows": (0, last)}
    (matrix,), (memory,) = draw(operand.instruction, operand.role, **options).scenes
    read = [cell for cell in memory.cells if not cell.unread]
    starts = [int(mark.words) for mark in memory.rows[0].marks]

    assert len(descriptors) == k // operand.shape[along]
    assert len(read) == whole.size * operand.format.bits // 128
    assert {starts[cell.y] + 16 * cell.x for cell in read} == {16 * int(unit) for unit in np.unique(whole // 16)}
    for cell in read:
        (_, row), (_, col) = cell.coordinates
        assert whole[row, col] == starts[cell.y] + 16 * cell.x
    colours = {cell.coordinates: (cell.lane, cell.lines) for cell in read}
    assert matrix.cells
    assert all(colours[cell.coordinates] == (cell.lane, cell.lines) for cell in matrix.cells)


def test_a_long_memory_is_cut_and_rows_show_the_rest():
    wide = wf.get("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
    desc = wf.Descriptor(stride=1024, swizzle=128)
    picture = draw(wide, "b", descriptor=desc)
    (matrix,), (memory,) = picture.scenes

    assert (memory.height, matrix.height) == (16, 16)
    assert matrix.title.endswith("(16 of 256 lines)")
    assert picture.notes[-1] == "Only the first 16 of 256 lines of memory are shown; select others with rows."
    last = draw(wide, "b", descriptor=desc.word, rows=(248, 255)).scenes[1][0]
    assert last.rows[0].marks[-1].words == str(255 * 128)
    with pytest.raises(wf.errors.InvalidOperand, match=r"rows: expected .* in 0..255, got"):
        draw(wide, "b", descriptor=desc, rows=(0, 256))


def test_what_overlaps_and_what_is_odd_is_said():
    picture = draw(W, "b", descriptor=0x4000000100400000)
    cell = picture.scenes[1][0].cells[1]

    assert cell.lines == ("n0:", "k8-15+")
    assert cell.tip == "n0: k8-15 and n8: k0-7, at byte 16"
    assert sum(note.startswith("Problem: ") for note in picture.notes) == 3
    assert "Problem: elements overlap: row 0, column 8 and row 8, column 0 are both at byte 16." in picture.notes


def test_without_a_descriptor_b_is_a_tile_without_gaps():
    assert draw(W, "b").svg == draw(W, "b", "memory", descriptor=W.b.descriptors()).svg
    assert draw(W, "b").title == "Operand B in shared memory, m64n24k16"
    assert "units of 16 bytes: one hue for each unit along k" in draw(W, "b").svg
    assert "n1: k8-15" in draw(W, "b").text


def test_a_warp_is_sixteen_rows():
    for role, count in (("a", 16 * 16), ("d", 16 * 24)):
        found = cells(parse(draw(W, role, warp=2).svg))
        assert len(found) == count
        assert {fact(cell, "row") // 16 for cell in found} == {2}
        assert {fact(cell, "lane") // 32 for cell in found} == {2}
    assert [grid.rows[0].marks[0].words for (grid,) in draw(W, warp=3).scenes] == ["3", "3"]
    lanes = draw(W, "d", "warp", warp=1).scenes[0][0]
    assert (lanes.height, lanes.rows[1].marks[5].words, lanes.cells[0].lines) == (32, "T37", ("(16,0)",))
    assert draw(SPARSE, "metadata", warp=1).scenes[0][0].height == 16


def test_warps_stand_beside_their_rows():
    (grid,) = draw(W, "d").scenes[0]
    level = grid.rows[0]

    assert level.name == "warp"
    assert [tuple(mark)[:3] for mark in level.marks] == [(16 * warp, 16 * warp + 15, str(warp)) for warp in range(4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operand": "d", "warp": 4}, r"warp must be in 0\.\.3, got 4"),
        ({"operand": "d", "warp": 1, "rows": (0, 3)}, "expected warp or rows, got both"),
        ({"operand": "b", "warp": 1}, "has none in the memory view"),
        ({"operand": "d", "descriptor": 0}, "the memory view shows A or B of wgmma or tcgen05, not operand d of"),
        ({"view": "memory"}, "not all operands of"),
        ({"operand": "a", "view": "matrix", "descriptor": 0}, "in the memory view, not the matrix view"),
        ({"operand": "a", "trans": True}, "trans applies only to an operand in shared memory"),
        ({"operand": "b", "descriptor": -1}, "expected a Descriptor or a 64-bit word, got -1"),
    ],
)
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        draw(W, **options)


def test_what_cannot_be_turned_and_what_has_no_warps_is_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="only 16-bit types can be MN-major"):
        draw(BYTES, "b", trans=True)
    with pytest.raises(wf.errors.InvalidOperand, match="warp applies to registers of a warpgroup"):
        draw("mma.m16n8k16.f32.f16.f16.f32", "d", warp=0)


def test_the_command_draws_them_too(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    tile = W.a.descriptors(k=64, trans=True)
    words = [part for one in tile for part in ("--descriptor", f"0x{one.word:x}")]
    assert main(["draw", W.name, "a", "--trans", *words]) == 0
    assert capsys.readouterr().out == draw(W, "a", descriptor=tile, trans=True).to_text(100)
    path = tmp_path / "d.svg"
    assert main(["draw", W.name, "d", "--warp", "1", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == draw(W, "d", warp=1).svg
    assert main(["draw", W.name, "b", "--descriptor", "x"]) == 2
    assert "a descriptor: expected 64 bits in hex, such as 0x4000004000000000; got 'x'" in capsys.readouterr().err
