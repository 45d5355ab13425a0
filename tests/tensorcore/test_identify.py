"""The operands that have a given layout."""

import pytest

import warpfrag as wf
from oracle.test_notations import in_registers

MMA = wf.get("mma.m16n8k16.f32.f16.f16.f32")


def test_every_operand_is_found_from_its_texts():
    read = {}  # most operands share a layout with many others
    count = 0
    for instruction in wf.find():
        for role, operand in in_registers(instruction).items():
            layout = operand.layout
            if layout not in read:
                options = {"shape": layout.shape, "slots": layout.slots, "dims": layout.dims}
                read[layout] = [wf.identify(wf.Layout.read("cute", layout.to("cute"), **options))]
                if not any(size & (size - 1) for size in layout.shape):  # of those Triton has no text
                    read[layout].append(wf.identify(wf.Layout.read("triton", layout.to("triton"))))
            assert all((instruction, role) in found for found in read[layout])
            count += 1
    assert count > 5000
    assert len(read) > 140
    assert sum(len(found) == 1 for found in read.values()) == 52


def test_what_is_found_has_the_layout_and_nothing_else_has():
    found = wf.identify(MMA.a.layout)
    assert found == wf.identify(MMA.a)
    everything = [
        (instruction, role)
        for instruction in wf.find()
        for role, operand in in_registers(instruction).items()
        if operand.layout == MMA.a.layout
    ]
    assert [tuple(match) for match in found] == everything
    assert repr(found).splitlines()[:2] == [
        f"<{len(found)} operands of {len({match.instruction for match in found})} instructions have {MMA.a.layout}",
        "  a of mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    ]
    assert repr(found).endswith(f"and {len(found) - 8} more>")


def test_row_addresses_are_found():
    ld = wf.get("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    assert (ld, "addresses") in wf.identify(ld.addresses)


@pytest.mark.parametrize("counts", [{"col": 2}, {"col": 3}, {"row": 3, "col": 5}, {"col": 2, "row": 2}])
def test_tiles_of_an_operand_are_found(counts):
    found = wf.identify(MMA.d.layout.tiled(**counts)).tiles
    assert (MMA, "d", counts, 1) in found
    for one in found:
        assert one.instruction.operands[one.operand].layout.tiled(**one.tiles) == MMA.d.layout.tiled(**counts)


@pytest.mark.parametrize(
    ("warp", "reg", "outs", "tiles"),
    [
        ("r16 r32", "c1 r8 c8", {"row": 64, "col": 16}, {"row": 4, "col": 2}),
        ("c8 r16", "c1 r8", {"row": 32, "col": 16}, {"row": 2, "col": 2}),
        ("0 r16", "c1 r8 c8", {"row": 32, "col": 16}, {"row": 2, "col": 2}),
        ("0 0", "c1 r8", {"row": 16, "col": 8}, {}),
    ],
)
def test_tiles_in_several_warps_are_found(warp, reg, outs, tiles):
    """Triton's layouts of products have several warps, each with whole tiles."""
    layout = wf.Layout.parse(outs, warp=warp, lane="c2 c4 r1 r2 r4", reg=reg)
    assert (MMA, "d", tiles, 4) in wf.identify(layout).tiles
    mixed = wf.Layout.parse(outs, warp=warp, lane="c2 c4 r1 r2 r4", reg=" ".join(reversed(reg.split())))
    assert (MMA, "d", tiles, 4) not in wf.identify(mixed).tiles


@pytest.mark.parametrize(
    ("layout", "operand", "differences"),
    [
        (
            wf.Layout.parse({"row": 16, "col": 8}, lane="r1 r2 r4 c2 c4", reg="c1 r8"),
            "d",
            ("lanes in a different order",),
        ),
        (
            wf.Layout.parse({"row": 16, "col": 8}, lane="c2 c4 r1 r2 r4", reg="r8 c1"),
            "d",
            ("registers in a different order",),
        ),
        (
            wf.Layout.parse({"row": 16, "col": 16}, lane="c2 c4 r1 r2 r4", reg="c8 c1", slot="r8"),
            "a",
            ("values of a lane in a different order",),
        ),
        (wf.Layout.parse({"row": 8, "col": 16}, lane="r2 r4 c1 c2 c4", reg="r1 c8"), "d", ("transposed",)),
        (wf.Layout.read("triton", MMA.a.layout.to("triton"), slots=1), "a", ("2 values per register",)),
        (
            wf.Layout.read("cute", "((_4,_8),(_2,_2)):((_16,_1),(_8,_64))", shape=(8, 16), slots=2),
            "b",
            ("transposed",),
        ),
    ],
)
def test_what_is_near_is_said(layout, operand, differences):
    near = wf.identify(layout).near
    assert (MMA, operand, differences) in near
    assert [len(one.differences) for one in near] == sorted(len(one.differences) for one in near)


def test_a_layout_that_nothing_has_has_nothing_near():
    found = wf.identify(wf.Layout.parse({"row": 4, "col": 8}, lane="c1+r1 c2 c4 r1 r2"))
    assert (found, found.near, found.tiles) == ([], [], [])
    assert repr(found).startswith("<0 operands of 0 instructions have lane: r1+c1 ")


def test_only_layouts_and_operands_are_identified():
    with pytest.raises(wf.errors.InvalidOperand, match="expected a layout or an operand, got 'cute'; create a layout"):
        wf.identify("cute")
