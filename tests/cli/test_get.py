"""`warpfrag get`: the printed formulas are those of the layout."""

import re
from dataclasses import asdict

import pytest

import warpfrag as wf
from instructions import every

NAME = "mma.m16n8k16.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"


def evaluate(formula, **values):
    """Evaluate a formula as C and Python do, with integer division."""
    return eval(formula.replace("/", "//"), {"__builtins__": {}}, values)  # noqa: S307 (our own formulas)


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        SCALED,
        "mma.sp.m16n8k64.s32.s8.s8.s32",
        "mma.sp.m16n8k16.f32.f16.f16.f32",
        "mma.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.m16n8k256.s32.b1.b1.s32.and.popc",
        "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e2m1.e5m2.f32.ue8m0",
        "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
        "wmma.mma.row.col.m8n32k16.f32.f32",
        "ldmatrix.m16n16.x2.trans.b8",
        "stmatrix.m16n8.x4.trans.b8",
        "movmatrix.m8n8.trans.b16",
    ],
)
def test_the_formulas_are_those_of_the_layout_in_both_directions(run, name):
    facts = run("get", name, "--json").json
    instruction = wf.get(name)

    assert facts["operands"].keys() == instruction.operands.keys()
    for role, operand in instruction.operands.items():
        shown = facts["operands"][role]["layout"]
        layout = operand.layout
        for place in layout.places():
            lane, reg, slot = place
            i = evaluate(shown["element_number"].removeprefix("i = "), reg=reg, slot=slot)
            at = layout.at(lane=lane, reg=reg, slot=slot)
            values = {dim: evaluate(formula, lane=lane, i=i) for dim, formula in shown["from_lane_and_i"].items()}
            assert tuple(values.values()) == at
            coordinates = at._asdict()
            if "byte_id" in coordinates:  # bytes, where the layout counts groups of them
                coordinates["byte_id"] *= operand.byte_ids.step
            found = [evaluate(shown["from_coordinates"][index], **coordinates) for index in ("lane", "reg", "slot")]
            assert tuple(found) == layout.where(**at._asdict())[0]


def test_the_formulas_of_addresses(run):
    shown = run("get", "ldmatrix.m8n8.x4.b16", "--json").json["addresses"]

    assert shown["from_lane_and_i"] == {"matrix": "lane >> 3", "row": "lane & 7"}
    assert shown["from_coordinates"] == {"lane": "matrix * 8 + row"}
    assert run("get", NAME, "--json").json["addresses"] is None


def test_info_shows_operands_formulas_and_sources(run):
    out = run("get", NAME).out

    assert out.startswith("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\nD = A \N{MIDDLE DOT} B + C\n")
    assert re.search(r"^a +f16 +16.16 +4 . \.f16x2 +2  15:0 31:16$", out, re.MULTILINE)
    assert re.search(r"^d +f32 +16.8 +4 . \.f32 +1  31:0$", out, re.MULTILINE)
    assert "row = (i >> 1 & 1) * 8 + (lane >> 2)" in out
    assert "lane = (row & 7) * 4 + (col >> 1 & 3)" in out
    assert "bases lane: c2 c4 r1 r2 r4 | reg: r8 c8 | slot: c1" in out
    assert "\nc, d  i = reg\n" in out
    assert "\narchs     sm_80 sm_86 " in out
    assert "\nsource    PTX ISA, " in out


def test_info_shows_how_the_answer_is_known_on_each_architecture(run):
    evidence = run("get", NAME, "--json").json["evidence"]

    assert evidence.keys() == {arch.rstrip("af") for arch in wf.get(NAME).targets} - {"sm_101"}  # which is sm_110
    for arch, known in evidence.items():
        assert known == asdict(wf.get(NAME).evidence(arch)) | {"gpus": list(wf.get(NAME).evidence(arch).gpus)}
    text = run("get", NAME).out
    assert "\nevidence  published on sm_80" in text
    assert "\nevidence  hardware (rule published) on sm_90: NVIDIA H200" in text


def test_operands_that_a_notation_cannot_express_are_named(run):
    answer = run("get", "wgmma.m64n96k16.f32.f16.f16", "--to", "triton")
    assert answer.code == 1
    assert [line.split("  ")[0] for line in answer.lines[1:]] == ["a"]
    assert [line.split(": ")[1] for line in answer.err.splitlines()] == ["c", "d"]
    assert answer.err.count("it has a size that is not a power of two") == 2


def test_info_on_sparse_instructions(run):
    facts = run("get", "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32", "--json").json
    text = run("get", "mma.sp::ordered_metadata.m16n8k32.f32.f16.f16.f32").out

    assert facts["selectors"] == [0, 1]
    assert facts["sparsity"]["pattern"] == "2:4"
    assert facts["sparsity"]["codes"]["1101"] == [1, 3]
    assert "0001" not in facts["sparsity"]["codes"]  # descending
    assert "\nselectors 0 1\n" in text
    assert "\nsparsity  2:4: 2 of 4 columns are stored; code 0100 keeps 0 1," in text


@pytest.mark.parametrize(
    ("name", "equation"),
    [
        (SCALED, "D = (A \N{MIDDLE DOT} SA) \N{MIDDLE DOT} (B \N{MIDDLE DOT} SB) + C"),
        ("mma.m8n8k128.s32.b1.b1.s32.xor.popc", "D = popc(A xor B) + C"),
        ("mma.m16n8k32.satfinite.s32.s8.s8.s32", "D = A \N{MIDDLE DOT} B + C with saturation"),
        ("mma.m8n8k4.row.col.f32.f16.f16.f32", "D = A \N{MIDDLE DOT} B + C, four times"),
    ],
)
def test_info_says_what_is_computed(run, name, equation):
    assert run("get", name).lines[1] == equation


def test_what_nobody_knows_is_said(run):
    text = run("get", "ldmatrix.m8n16.x4.s8.s4").out
    facts = run("get", "wmma.load.a.row.m16n16k16.f16", "--arch", "sm_80", "--json").json

    assert "layout not modelled: the ISA does not specify the registers of ldmatrix .s8.s4" in text
    assert "the wmma fragments of sm_80" in facts["operands"]["a"]["not_modelled"]
    assert facts["operands"]["a"]["layout"] is None


def test_info_answers_for_every_instruction(run):
    names = [instruction.name for instruction in every()][::7]

    assert len(names) > 80
    for name in names:
        answer = run("get", name, "--json")
        assert answer.code == 0
        assert answer.json["instruction"] == name
