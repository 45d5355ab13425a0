"""Layouts in other notations compared with their sources: CUTLASS's traits, Triton's layouts, and definitions.

`data/cutlass_layouts.csv` has the thread-value layouts of the MMA traits of CUTLASS 4.7, with the instruction of the
atom's asm statement, and those of wgmma's registers. `data/triton_layouts.json` has what Triton 3.9 makes of its `#mma`
and `dot_op` layouts, and what its LinearLayout computes for bases that warpfrag wrote. The evaluators of notations.py
follow the definitions.
"""

import csv
import json
from functools import cache
from pathlib import Path

import pytest

import warpfrag as wf
from instructions import every
from oracle import notations

DATA = Path(__file__).resolve().parents[1] / "data"
with (DATA / "cutlass_layouts.csv").open(encoding="utf-8", newline="") as file:
    ATOMS = list(csv.DictReader(file))
TRITON = json.loads((DATA / "triton_layouts.json").read_text(encoding="utf-8"))


@cache
def layouts():
    """Every layout of the instruction set, wgmma's of some widths, and some that it does not have."""
    found = {}
    for instruction in every():
        if instruction.form.is_warpgroup and instruction.shape.n > 24:
            continue  # a wider one has more places, and nothing else in them
        for role, operand in in_registers(instruction).items():
            found.setdefault(operand.layout, f"{role} of {instruction}")
        if instruction.addresses is not None:
            found.setdefault(instruction.addresses, f"addresses of {instruction}")
    accumulator = wf.get("mma.m16n8k16.f32.f16.f16.f32").d.layout
    found |= {
        accumulator.tiled(col=3): "three tiles",
        accumulator.tiled(col=3).tiled(row=2, col=2): "three tiles, four times",
        wf.Layout.parse({"row": 8, "col": 8}, lane="c2 c4 r1 r2 r4", reg="0 c1"): "copies",
        wf.Layout.parse({"row": 8, "col": 8}, lane="c2+r1 c4 r1 r2 r4", reg="c1"): "a swizzle",
        wf.Layout.parse({"row": 8, "col": 16}, lane="c2 c4+r4 r1 r2 c8", reg="c1", slot="r4+c8"): "another",
        wf.Layout.parse({"row": 64, "col": 16}, warp="r16 r32", lane="c2 c4 r1 r2 r4", reg="c1 r8 c8"): "warps",
        accumulator.fix(reg=3): "one register, which does not start at element 0",
    }
    return found


def in_registers(instruction):
    """Return the operands that have a layout: not those in shared memory, and not those that were not measured."""
    known = instruction.operands.items()
    return {role: one for role, one in known if one.storage != "shared" and not one.spec.unknown}


OFFSET = "one register, which does not start at element 0"
THREES = ["three tiles", "three tiles, four times"]
REFUSED = {
    "cute": ["a swizzle", "another", OFFSET],
    "triton": ["24 columns", *THREES, OFFSET],
    "mlir": [],
    "c": THREES[1:],
}
"""The layouts that each notation cannot express; among instructions only m64n24 of wgmma in Triton."""


def cases(notation):
    """The layouts that a notation can express, each with its text."""
    found, refused = [], []
    for layout, who in layouts().items():
        try:
            found.append((layout, layout.to(notation)))
        except wf.errors.InvalidOperand:
            refused.append("24 columns" if ".m64n24" in who else who)
    assert list(dict.fromkeys(refused)) == REFUSED[notation]
    return found


def test_cute_texts_mean_the_same_to_an_evaluator_of_their_own():
    for layout, text in cases("cute"):
        for place in layout.places():
            index = {"warp": 0, "reg": 0, "slot": 0, **place._asdict()}
            thread, value = index["lane"] + 32 * index["warp"], index["slot"] + layout.slots * index["reg"]
            element = notations.cute_element(text, thread, value, layout.shape)
            assert element == layout.at(**place._asdict())


def test_triton_bases_joined_by_xor_give_the_same():
    for layout, text in cases("triton"):
        bases = notations.triton_bases(text)
        for place in layout.places():
            index = {"warp": 0, "reg": 0, "slot": 0, **place._asdict()}
            register = index["slot"] + layout.slots * index["reg"]
            element = notations.triton_element(bases, register=register, lane=index["lane"], warp=index["warp"])
            assert element == layout.at(**place._asdict())


def test_affine_maps_and_c_expressions_give_the_same():
    for layout, text in cases("mlir"):
        evaluate = notations.affine_map(text)
        assert all(evaluate(*place) == layout.at(**place._asdict()) for place in layout.places())
    for layout, text in cases("c"):
        evaluate = notations.c_statements(text)
        for place in layout.places():
            index = place._asdict()
            index["i"] = index.pop("slot", 0) + layout.slots * index.pop("reg", 0)
            assert evaluate(**index) == layout.at(**place._asdict())


def test_the_traits_of_cutlass_are_the_layouts_of_their_instructions():
    whole = [row for row in ATOMS if row["threads"] in {"Layout<_32>", "Layout<_128>"}]
    assert (len(whole), len({row["atom"] for row in whole})) == (260, 92)
    for row in whole:
        operand, transposed = wf.get(row["instruction"]).operands[row["operand"]], row["operand"] == "b"
        shape = tuple(map(int, row["shape"].split("x")))
        read = wf.Layout.read("cute", row["layout"], shape=shape, slots=operand.slots, transposed=transposed)
        assert read == operand.layout
        assert (wf.get(row["instruction"]), row["operand"]) in wf.identify(read)
        # what is written has the same modes, not only the same meaning
        written = operand.layout.to("cute", transposed=transposed)
        assert modes(written) == modes(row["layout"])


def modes(text):
    """Sizes and strides without their grouping, which CUTLASS does not always keep the same on both sides."""

    def flat(parts):
        return [number for part in parts for number in flat(part)] if isinstance(parts, tuple) else [parts]

    sizes, strides = map(flat, notations.cute_parts(text))
    return [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size > 1]


def test_the_quadpairs_of_volta_are_one_of_the_four_products():
    quads = [row for row in ATOMS if row["atom"].startswith("SM70")]
    assert {row["threads"] for row in quads} == {"Layout<Shape<_4,_2>,Stride<_1,_16>>"}
    assert len(quads) == 24
    for row in quads:
        operand = wf.get(row["instruction"]).operands[row["operand"]]
        shape = tuple(map(int, row["shape"].split("x")))
        for thread in range(8):
            for value in range(operand.regs * operand.slots):
                first, second = notations.cute_element(row["layout"], thread, value, shape)
                lane = notations.cute_number(thread, *notations.cute_parts(row["threads"]))
                reg, slot = divmod(value, operand.slots)
                expected = (0, second, first) if row["operand"] == "b" else (0, first, second)
                assert operand.layout.at(lane=lane, reg=reg, slot=slot) == expected


@pytest.mark.parametrize("row", TRITON["rows"], ids=lambda row: f"{row['layout']} {row['shape']}")
def test_tritons_own_layouts_of_mma_are_those_of_the_instruction(row):
    operand = wf.get(row["instruction"]).operands[row["operand"]]
    expected = operand.layout.tiled(**row["tiles"])
    for form in ("gluon", "printed"):
        assert wf.Layout.read("triton", row[form], slots=operand.slots) == expected
    found = wf.identify(expected)
    assert (wf.get(row["instruction"]), row["operand"]) in ([one[:2] for one in found.tiles] if row["tiles"] else found)


@pytest.mark.parametrize("row", TRITON["spread"], ids=lambda row: row["layout"])
def test_tritons_layouts_of_four_warps_are_tiles_of_the_operands(row):
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    layout = wf.Layout.read("triton", row["gluon"], slots=row["slots"])
    extents = zip(layout.outs.items(), mma.operands[row["operand"]].shape, strict=True)
    tiles = {dim: whole // part for (dim, whole), part in extents if whole != part}
    assert (mma, row["operand"], tiles, 4) in wf.identify(layout).tiles


def test_tritons_linear_layout_computes_what_the_layout_says():
    assert len(TRITON["applied"]) == 90
    for row in TRITON["applied"]:
        layout = wf.Layout.read("triton", row["text"])
        assert layout.to("triton") == row["text"]
        assert "printed" not in row or wf.Layout.read("triton", row["printed"], dims=layout.dims).shape == layout.shape
        for register, lane, warp, element in row["applied"]:
            reg, slot = divmod(register, layout.slots)
            place = {"lane": lane, "reg": reg, "slot": slot} | ({"warp": warp} if "warp" in layout.ins else {})
            assert list(layout.at(**place)) == element
