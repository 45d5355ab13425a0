"""The trace: the kept and lost parts of each step, and the same result as the implementations."""

from fractions import Fraction

import numpy as np
import pytest
from arithmetic_cases import instruction, rule_of
from hypothesis import given
from hypothesis import strategies as st

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.reference import trace
from warpfrag.tensorcore.soft_floats import round_code, unpack

F16 = rule_of(instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90")


def test_a_cut_bit_is_shown():
    """1 + 2**-26 keeps 25 bits below the one: the small term is lost entirely."""
    a = [0x3C00, 0x0800] + [0] * 14
    b = [0x3C00, 0x0800] + [0] * 14
    (step,) = trace(F16, a, b, 0)
    assert (step.common_exponent, step.fraction_bits, step.total) == (0, 25, 1 << 25)
    assert (step.rounding, step.result_format, step.result) == ("RZ-FP32", "f32", 0x3F800000)
    first, second = step.terms[:2]
    assert (first.name, first.value, first.exponent, first.kept, first.lost) == ("k=0", 1, 0, 1 << 25, 0)
    assert (second.exponent, second.kept, second.lost) == (-26, 0, Fraction(1, 1 << 26))
    assert step.terms[-1].name == "C"
    assert step.terms[-1].exponent is None


def test_kept_and_lost_add_up():
    random = np.random.default_rng(3)
    for asked, arch in (
        (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_80"),
        (instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32"), "sm_89"),
    ):
        rule = rule_of(asked, arch)
        codes = random.standard_normal((2, rule.k)).astype(np.float16)
        a, b = ([FORMATS[rule.a].encode(float(x), rounding="rne") for x in row] for row in codes)
        for step in trace(rule, a, b, 0x3F800000):
            grid = Fraction(2) ** (step.common_exponent - step.fraction_bits)
            assert sum(term.kept for term in step.terms) == step.total
            for term in step.terms:
                assert term.kept * grid + term.lost == term.value
                assert abs(term.lost) < grid


def test_expanded_instructions_show_each_machine_step():
    rule = rule_of(instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32"), "sm_90")
    shown = trace(rule, [0x38] * 32, [0x38] * 32, 0x3F800000)
    assert [step.rule for step in shown] == [
        "fused step of 16 products onto zero",
        "fused step of 16 products onto previous",
        "C + previous",
    ]
    assert [FORMATS["f32"].decode(step.result) for step in shown] == [16.0, 32.0, 33.0]


def test_a_group_of_sixteen_is_one_term():
    asked = instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4nvf4", scale_vec="4X", scale_type="ue4m3")
    rule = rule_of(asked, "sm_120")
    (step,) = trace(rule, [2] * 64, [2] * 64, 0, scale_a=[0x38] * 4, scale_b=[0x38, 0x40, 0x30, 0x38])
    assert [term.name for term in step.terms] == ["k=0..15", "k=16..31", "k=32..47", "k=48..63", "C"]
    assert [term.value for term in step.terms] == [16, 32, 8, 16, 0]


def test_integers_and_bits_have_a_trace_too():
    rule = rule_of(instruction("mma", "m8n8k16", "s32.s8.s8.s32", satfinite=True), "sm_75")
    (step,) = trace(rule, [0xFF] * 16, [2] * 16, 5)
    assert (step.rounding, step.result) == ("clamped once", (5 - 32) % 2**32)
    rule = rule_of(instruction("mma", "m8n8k128", "s32.b1.b1.s32", bitop="and"), "sm_80")
    (step,) = trace(rule, [1] * 128, [1, 0] * 64, 1)
    assert ([(term.name, term.value) for term in step.terms], step.result) == ([("popcount", 64), ("C", 1)], 65)


@pytest.mark.parametrize(
    ("a", "c", "special", "result"),
    [
        ([0x3C00], 0x7FC00000, "C is NaN", 0x7FFFFFFF),
        ([0x7C00], 0, "k=0 is infinite", 0x7F800000),
        ([0x7E00, 0x7C00, 0x7E00], 0, "k=0, k=2 are NaN", 0x7FFFFFFF),
        ([0x7C00, 0xFC00], 0, "infinities of both signs", 0x7FFFFFFF),
        ([0xFC00, 0xFC00], 0, "k=0, k=1 are infinite", 0xFF800000),
    ],
)
def test_a_step_with_an_infinity_or_nan_aligns_nothing(a, c, special, result):
    (step,) = trace(F16, a + [0] * (16 - len(a)), [0x3C00] * 16, c)
    assert (step.common_exponent, step.fraction_bits, step.total, step.exact_sum, step.nearest) == (None,) * 5
    assert (step.special, step.result) == (special, result)


@pytest.mark.parametrize(
    ("small", "c", "nearest", "ulps"),
    [
        (0x0E00, 0x3F800000, 0x3F800001, -1),  # 1 and 3/4 of an ulp is truncated to 1
        (0x8E00, 0xBF800000, 0xBF800001, 1),
        (0x0800, 0x3F800000, 0x3F800000, 0),
        (0x8001, 0, 0xAC800000, 0),  # -2**-38 is exact
    ],
)
def test_the_result_is_compared_with_the_nearest_value(small, c, nearest, ulps):
    b = 0x0C00 if c else 0x0400  # 2**-12 or 2**-14
    (step,) = trace(F16, [small] + [0] * 15, [b] + [0] * 15, c)
    assert (step.nearest, step.ulps_above_nearest) == (nearest, ulps)
    assert step.special is None


@given(st.floats(width=32), st.sampled_from(["f16", "bf16", "tf32", "e5m2"]))
def test_rounding_to_nearest_is_that_of_the_formats(value, name):
    """Two roundings written apart: `Format.encode` and the reference's `round_code`."""
    if not np.isfinite(value):
        return
    row = FORMATS[name]
    number = unpack("f32", FORMATS["f32"].encode(value))
    code = round_code(name, number.negative, number.significand, number.exponent - number.fraction, "rn")
    assert code << row.unused == row.encode(value, rounding="rne") or (
        row.unused and (code & ~row.sign_bit) << row.unused | (code & row.sign_bit) == row.encode(value, rounding="rne")
    )


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_adding_in_f64_is_that_of_the_host(x, y):
    rule = rule_of(instruction("mma", "m8n8k4", "f64.f64.f64.f64"), "sm_90")
    one, zero = 0x3FF0000000000000, 0x8000000000000000
    code = trace(rule, [FORMATS["f64"].encode(x)] + [zero] * 3, [one] * 4, FORMATS["f64"].encode(y))[-1].result
    with np.errstate(over="ignore"):
        assert code == int((np.float64(x) + np.float64(y)).view(np.uint64))


def test_directed_roundings_enclose_the_value():
    random = np.random.default_rng(5)
    for _ in range(200):
        magnitude = int(random.integers(1, 2**63))
        exponent = int(random.integers(-1200, 900))
        exact = Fraction(magnitude) * Fraction(2) ** exponent
        down, up = (
            Fraction(FORMATS["f64"].decode(round_code("f64", False, magnitude, exponent, direction)))
            for direction in ("rm", "rp")
        )
        assert down <= exact <= up
        nearest = FORMATS["f64"].decode(round_code("f64", False, magnitude, exponent, "rn"))
        assert nearest in (down, up)
