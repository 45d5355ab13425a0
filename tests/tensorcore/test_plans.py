"""Plans: the steps of an instruction on each architecture, and unknown arithmetic."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest
from arithmetic_cases import instruction, rule_of

from warpfrag.errors import IllegalInstruction, NotModelled
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS
from warpfrag.isa.instruction_table import forms
from warpfrag.isa.legality import resolve
from warpfrag.isa.qualifiers import Shape
from warpfrag.isa.targets import architectures
from warpfrag.tables import read_table
from warpfrag.tensorcore.arithmetic_plan import plan, read_units
from warpfrag.tensorcore.arithmetic_table import STEPS
from warpfrag.tensorcore.rules import BlockScaled, Chain, Fma64, Fused, Grouped, IntegerSum, Popcount

AMPERE = ["sm_80", "sm_86", "sm_87", "sm_88"]
F16 = instruction("mma", "m16n8k16", "f32.f16.f16.f32")
FP8 = instruction("mma", "m16n8k32", "f32.e4m3.e5m2.f32")
TF32 = instruction("mma", "m16n8k8", "f32.tf32.tf32.f32")
WMMA_TF32 = instruction("wmma.mma", "m16n16k8", "f32.tf32.tf32.f32")
QUAD = instruction("mma", "m8n8k4", "f32.f16.f16.f32")
XOR = instruction("mma", "m16n8k256", "s32.b1.b1.s32", bitop="xor")


def test_a_step_longer_than_the_unit_can_add_is_split():
    assert rule_of(F16, "sm_90").steps == (tuple(range(16)),)
    assert rule_of(F16, "sm_80").steps == (tuple(range(8)), tuple(range(8, 16)))
    assert rule_of(WMMA_TF32, "sm_90").steps == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_fp8_on_sm_90_adds_pairs_of_columns_alternately_and_c_last():
    rule = rule_of(FP8, "sm_90")
    even, odd = (tuple(k for k in range(32) if k // 2 % 2 == take) for take in (0, 1))
    assert (rule.steps, rule.adds_c_last, rule.multiplicands) == ((even, odd), True, ("f16", "f16"))
    sparse = rule_of(instruction("mma.sp", "m16n8k64", "f32.e4m3.e4m3.f32"), "sm_90")
    assert (sparse.steps, sparse.stored) == ((even, odd), 32)  # even chunks of four columns, then odd ones


def test_what_is_computed_is_a_rule_with_its_own_few_fields():
    found = {
        type(rule_of(form, arch))
        for form in forms()
        if form.is_product
        for arch in architectures()
        if modelled(form, arch)
    }
    assert found == {Fused, BlockScaled, Grouped, Chain, Fma64, IntegerSum, Popcount}
    assert max(len(fields(kind)) for kind in found) <= 8 + 6  # eight that every rule has


def modelled(form, arch):
    try:
        return bool(plan(form, arch))
    except NotModelled:
        return False


@pytest.mark.parametrize(
    ("asked", "arch", "machine", "native"),
    [
        (F16, "sm_90", "HMMA.16816.F32", True),
        (instruction("mma", "m16n8k8", "f32.bf16.bf16.f32"), "sm_80", "HMMA.1688.F32.BF16", True),
        (FP8, "sm_90", "F2FP + 2 x HMMA.16816.F32 + FADD", False),
        (instruction("mma", "m16n8k16", "f16.e4m3.e4m3.f16"), "sm_100", "F2FP + 2 x HMMA.1688.F16 + HADD2", False),
        (FP8, "sm_89", "QMMA.16832.F32.E4M3.E5M2", True),
        (QUAD, "sm_90", "SHFL + 4 x FFMA + FADD per output", False),
        (WMMA_TF32, "sm_80", "4 x HMMA.1684.F32.TF32", False),
        (instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f32"), "sm_75", "4 x HMMA.1688.F32", False),
        (instruction("wmma.mma", "m8n32k16", "f16.f16.f16.f32"), "sm_90", "2 x HMMA.16816.F32 + F2FP", False),
        (instruction("mma", "m16n8k16", "f64.f64.f64.f64", rounding="rz"), "sm_90", "DMMA.16x8x16.RZ", True),
        (instruction("mma", "m16n8k16", "f64.f64.f64.f64"), "sm_100", "8 x DMMA.8x8x4", False),
        (instruction("mma", "m16n8k32", "s32.s8.u8.s32", satfinite=True), "sm_80", "IMMA.16832.S8.U8.SAT", True),
        (instruction("mma", "m16n8k64", "s32.s4.s4.s32"), "sm_89", "IMMA.16864.S4.S4", True),
        (instruction("mma", "m16n8k64", "s32.s4.s4.s32"), "sm_90", "2 x IMMA on 8-bit halves + IADD3", False),
        (
            instruction("mma", "m16n8k256", "s32.b1.b1.s32", bitop="xor"),
            "sm_90",
            "2 x BMMA.168256.AND.POPC + IADD3",
            False,
        ),
        (instruction("mma", "m16n8k256", "s32.b1.b1.s32", bitop="and"), "sm_100", "IMMA.U8 on unpacked bits", False),
    ],
)
def test_machine_instructions(asked, arch, machine, native):
    found = plan(asked, arch)
    assert (found.machine, found.native) == (machine, native)
    assert found.source


def test_a_suffix_of_the_architecture_changes_nothing():
    assert plan(F16, "sm_90a") == plan(F16, "sm_90")
    assert plan(F16, "sm_120f") == plan(F16, "sm_120")


INTEGERS = [
    instruction("mma", "m16n8k32", "s32.u8.s8.s32"),
    instruction("mma", "m16n8k64", "s32.s4.u4.s32", satfinite=True),
    instruction("mma", "m8n8k128", "s32.b1.b1.s32", bitop="and"),
    instruction("mma.sp", "m16n8k64", "s32.s8.s8.s32"),
    instruction("wmma.mma", "m16n16k16", "s32.s8.s8.s32"),
]


@pytest.mark.parametrize("arch", ["sm_75", *AMPERE, "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_121"])
@pytest.mark.parametrize("asked", INTEGERS)
def test_integers_are_specified_everywhere(asked, arch):
    assert plan(asked, arch).level == "specified"


NOT_MODELLED = [
    (F16, "sm_70", "neither published nor measured"),
    (F16, "sm_110", "neither published nor measured"),
    (F16, "sm_121", "neither published nor measured"),
    (QUAD, "sm_110", "neither published nor measured"),
    (FP8, "sm_80", "neither published nor measured"),
    (FP8, "sm_110", "neither published nor measured"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_75", "neither published nor measured"),
    (instruction("mma", "m16n8k16", "f64.f64.f64.f64"), "sm_80", "neither published nor measured"),
    (instruction("mma", "m8n8k4", "f64.f64.f64.f64"), "sm_121", "neither published nor measured"),
    (instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32", kind="f8f6f4"), "sm_100", "neither published nor measured"),
    (instruction("wmma.mma", "m16n16k16", "f16.f16.f16.f32"), "sm_70", "the conversion of C"),
    (instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f16"), "sm_70", "the conversion of C"),
    *[
        (instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32"), arch, "measured on sm_90 only")
        for arch in ("sm_80", "sm_86", "sm_89", "sm_100", "sm_103", "sm_120")
    ],
    (instruction("mma.sp", "m16n8k64", "f32.e4m3.e4m3.f32"), "sm_89", "measured on sm_90 only"),
    (
        instruction("mma.sp::ordered_metadata", "m16n8k64", "f32.e4m3.e2m1.f32", kind="f8f6f4"),
        "sm_120",
        "measured on sm_90 only",
    ),
    (
        instruction(
            "mma.sp::ordered_metadata",
            "m16n8k128",
            "f32.e2m1.e2m1.f32",
            kind="mxf4",
            scale_vec="2X",
            scale_type="ue8m0",
        ),
        "sm_120",
        "measured on sm_90 only",
    ),
]


@pytest.mark.parametrize(("asked", "arch", "reason"), NOT_MODELLED)
def test_what_nobody_knows_is_refused_with_a_sentence(asked, arch, reason):
    with pytest.raises(NotModelled, match=reason) as refusal:
        plan(asked, arch)
    assert f"is not modelled on {arch}" in str(refusal.value)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        (replace(F16, a="f64"), "'mma m16n8k16 f32.f64.f16.f32': no instruction has this form"),
        (replace(F16, shape=Shape(16, 8, 64)), "no instruction has this form"),
        (replace(F16, layouts=()), "no instruction has this form"),
        (replace(F16, satfinite=True), "no instruction has this form"),
        (resolve("movmatrix.sync.aligned.m8n8.trans.b16"), "it only moves data, so it has no arithmetic"),
    ],
)
def test_a_form_that_no_instruction_has_is_refused(form, complaint):
    with pytest.raises(IllegalInstruction, match=complaint):
        plan(form, "sm_90")


def test_every_row_of_units_is_used_by_some_instruction():
    named = {row["unit"] for row in read_table("arithmetic_steps")["instruction"] if "unit" in row}
    assert {unit.unit for unit in read_units()} == named


def test_every_unit_gives_the_canonical_nan_of_its_accumulator():
    assert {unit.nan for unit in read_units()} == {CANONICAL_NANS["f16"], CANONICAL_NANS["f32"]}
    assert all(unit.nan == CANONICAL_NANS[unit.accumulator] for unit in read_units())


def test_every_row_has_a_source_and_a_level():
    rows = [*read_table("arithmetic_steps")["instruction"], *read_table("arithmetic_units")["unit"]]
    assert len(rows) > 40
    for row in rows:
        assert row["source"]
        level = row.get("level")
        assert level in ("specified", "published", "hardware") or (level is None and row["unit"] and "steps" in row)


def test_no_two_units_answer_the_same_question():
    asked = [
        (unit.unit, arch, operand, unit.accumulator)
        for unit in read_units()
        for arch in unit.arch
        for operand in unit.operands
    ]
    assert len(asked) == len(set(asked))


def test_the_rows_of_units_agree_with_themselves():
    for unit in read_units():
        assert {*unit.operands, unit.accumulator} <= {*FORMATS}
        assert (unit.rounding == "RNE-FP16") == (unit.accumulator == "f16")
        assert (unit.rule == "grouped") == (unit.group > 0)


def test_looking_up_a_plan_imports_neither_numpy_nor_numba():
    program = """
import sys
from warpfrag.tensorcore.arithmetic_plan import plan
from warpfrag.isa.legality import resolve
plan(resolve("mma.m16n8k16.f32.f16.f16.f32"), "sm_90")
heavy = sorted({"numpy", "numba", "llvmlite"} & set(sys.modules))
sys.exit(", ".join(heavy) or None)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, encoding="utf-8"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_rows_of_the_table_have_known_keys_architectures_steps_and_formats():
    """A missing key fits everything: a misspelt one would, too."""
    conditions = {"op", "a", "shape", "k", "blocks", "kind", "bitop", "accumulators", "arch"}
    answers = {"native", "machine", "unit", "piece", "steps", "source", "level"}
    pieces = {f"piece_{arch}" for arch in architectures()}
    for row in read_table("arithmetic_steps")["instruction"]:
        assert {*row} <= conditions | answers | pieces
        assert {*row.get("arch", ())} <= {*architectures()}
        assert {*row.get("a", ())} <= {*FORMATS}
        assert {step["do"] for step in row["steps"]} <= {*STEPS}
