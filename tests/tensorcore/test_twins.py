"""The reference and the fast implementation give the same codes, for edge-case codes."""

import numpy as np
import pytest
from arithmetic_cases import (
    TWINS,
    code_type,
    extreme_codes,
    instruction,
    notable_codes,
    operand_shapes,
    rule_of,
    stored_columns,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfrag.formats.number_formats import FORMATS

MX = {"kind": "mxf8f6f4", "scale_vec": "1X", "scale_type": "ue8m0"}
FORMS = [
    (instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_70"),
    (instruction("mma", "m8n8k4", "f16.f16.f16.f16"), "sm_70"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f16"), "sm_75"),
    (instruction("mma", "m16n8k8", "f32.f16.f16.f32"), "sm_75"),
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_80"),
    (instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_80"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_86"),
    (instruction("mma", "m16n8k8", "f32.tf32.tf32.f32"), "sm_89"),
    (instruction("mma", "m16n8k32", "f32.e4m3.e5m2.f32"), "sm_89"),
    (instruction("mma", "m16n8k32", "f16.e5m2.e4m3.f16"), "sm_89"),
    (instruction("mma", "m16n8k16", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma", "m16n8k16", "f16.f16.f16.f16"), "sm_90"),
    (instruction("mma", "m16n8k8", "f16.f16.f16.f16"), "sm_90"),
    (instruction("mma", "m16n8k16", "f32.bf16.bf16.f32"), "sm_90"),
    (instruction("mma", "m16n8k8", "f32.tf32.tf32.f32"), "sm_100"),
    (instruction("mma", "m16n8k4", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma", "m16n8k32", "f32.e4m3.e4m3.f32"), "sm_90"),
    (instruction("mma", "m16n8k16", "f32.e5m2.e4m3.f32"), "sm_103"),
    (instruction("mma", "m16n8k32", "f16.e4m3.e5m2.f16"), "sm_90"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma", "m8n8k4", "f32.f16.f16.f16"), "sm_90"),
    (instruction("mma", "m8n8k4", "f16.f16.f16.f16"), "sm_90"),
    (instruction("wmma.mma", "m16n16k8", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("wmma.mma", "m16n16k16", "f32.f16.f16.f16"), "sm_90"),
    (instruction("wmma.mma", "m16n16k16", "f16.f16.f16.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k32", "f32.f16.f16.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k16", "f16.f16.f16.f16"), "sm_90"),
    (instruction("mma.sp", "m16n8k32", "f32.bf16.bf16.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k8", "f32.tf32.tf32.f32"), "sm_90"),
    (instruction("mma.sp", "m16n8k64", "f32.e4m3.e5m2.f32"), "sm_90"),
    (instruction("wgmma.mma_async.sp", "m64n8k64", "f32.e4m3.e5m2.f32"), "sm_90"),
    (instruction("mma", "m16n8k32", "f32.e4m3.e5m2.f32"), "sm_120"),
    (instruction("mma", "m16n8k32", "f16.e3m2.e2m1.f16", kind="f8f6f4"), "sm_120"),
    (instruction("mma", "m16n8k32", "f32.e2m3.e5m2.f32", kind="f8f6f4"), "sm_120"),
    (instruction("mma", "m16n8k32", "f32.e5m2.e2m1.f32", **MX), "sm_120"),
    (instruction("mma", "m16n8k32", "f32.e4m3.e3m2.f32", **MX), "sm_120"),
    (instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4", scale_vec="2X", scale_type="ue8m0"), "sm_120"),
    (
        instruction("mma", "m16n8k64", "f32.e2m1.e2m1.f32", kind="mxf4nvf4", scale_vec="4X", scale_type="ue4m3"),
        "sm_120",
    ),
    *[
        (instruction("mma", "m8n8k4", "f64.f64.f64.f64", rounding=rounding), "sm_90")
        for rounding in ("", "rz", "rm", "rp")
    ],
    (instruction("mma", "m16n8k32", "s32.s8.u8.s32"), "sm_90"),
    (instruction("mma", "m16n8k16", "s32.u8.s8.s32", satfinite=True), "sm_75"),
    (instruction("mma", "m16n8k32", "s32.s4.u4.s32", satfinite=True), "sm_90"),
    (instruction("mma.sp", "m16n8k64", "s32.s8.s8.s32", satfinite=True), "sm_90"),
    (instruction("mma.sp", "m16n8k64", "s32.u4.s4.s32"), "sm_90"),
    (instruction("mma", "m8n8k128", "s32.b1.b1.s32", bitop="xor"), "sm_90"),
    (instruction("mma", "m8n8k128", "s32.b1.b1.s32", bitop="and"), "sm_100"),
]


def codes_near(draw, name, shape):
    """Codes of one operand: mostly one exponent or a few binades, with notable codes and any codes strewn in."""
    row = FORMATS[name]
    count = int(np.prod(shape))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    anything = random.integers(0, row.codes, count, dtype=np.uint64)
    notable = random.choice(np.array(notable_codes(name), np.uint64), count)
    if not row.is_float:
        return np.where(random.random(count) < 0.5, notable, anything).reshape(shape).astype(code_type(name))
    spread = draw(st.sampled_from([0, 1, 3, 12, 40]))
    centre = draw(st.sampled_from([row.bias, 1, row.bias // 2, (1 << row.exponent) - 2]))
    exponent = np.clip(centre + random.integers(-spread, spread + 1, count), 0, (1 << row.exponent) - 2)
    edges = np.array([0, 1, (1 << row.fraction) - 1, 1 << max(row.fraction - 1, 0)]) % (1 << row.fraction)
    wild = random.integers(0, 1 << row.fraction, count)
    fraction = np.where(
        random.random(count) < draw(st.sampled_from([0.0, 0.5, 1.0])), random.choice(edges, count), wild
    )
    codes = ((exponent.astype(np.uint64) << np.uint64(row.fraction)) | fraction.astype(np.uint64)) << np.uint64(
        row.unused
    )
    if row.signed:
        codes |= random.integers(0, 2, count, dtype=np.uint64) << np.uint64(row.bits - 1)
    codes[random.random(count) < draw(st.sampled_from([0.0, 0.0, 0.9]))] = 0
    strewn = draw(st.sampled_from([0.0, 0.02, 0.3]))
    lot = random.random(count)
    codes = np.where(lot < strewn, notable, codes)
    codes = np.where(lot > 1 - strewn / 4, anything, codes)
    return codes.reshape(shape).astype(code_type(name))


@st.composite
def operands(draw, rule):
    """Operands of a small product."""
    instructions = draw(st.integers(1, 2)) if rule.c == rule.d else 1
    drawn = {
        operand: codes_near(draw, name, shape)
        for operand, (name, shape) in operand_shapes(rule, 2, 3, instructions).items()
    }
    if rule.is_sparse:
        choices = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, 12, drawn["a"].shape)
        drawn["columns"] = stored_columns(rule, choices)
    return drawn


def assert_the_twins_agree(rule, drawn):
    """Every code equal."""
    expected = [f"{code:x}" for code in TWINS["reference"](rule, **drawn).ravel()]
    for name, twin in TWINS.items():
        if name != "reference":
            assert [f"{code:x}" for code in twin(rule, **drawn).ravel()] == expected, name


@pytest.mark.parametrize(("asked", "arch"), FORMS)
@settings(max_examples=25)
@given(data=st.data())
def test_the_twins_agree(asked, arch, data):
    rule = rule_of(asked, arch)
    assert_the_twins_agree(rule, data.draw(operands(rule)))


@pytest.mark.parametrize(("asked", "arch"), FORMS)
def test_the_twins_agree_on_the_extremes_of_every_format(asked, arch):
    """Every extreme of A meets every extreme of B in a separate product, with every extreme of C that fits."""
    rule = rule_of(asked, arch)
    extremes = {role: extreme_codes(getattr(rule, role)) for role in "abc"}
    rows, columns, starts = (len(extremes[role]) for role in "abc")
    tiles = starts if rule.a == "f64" else 3  # of the others each C meets some pairs: the reference is slow
    shapes = operand_shapes(rule, rows, columns, 1)
    drawn = {
        operand: np.full((tiles, *shape[1:]), 0x7F if name == "ue8m0" else 0x38 * operand.startswith("scale"))
        for operand, (name, shape) in shapes.items()
    }
    column = 0
    if rule.is_sparse:
        drawn["columns"] = stored_columns(rule, np.full(drawn["a"].shape, 5))
        column = drawn["columns"][0, 0, 0]
    drawn["a"] = drawn["a"].astype(object)
    drawn["b"], drawn["c"] = drawn["b"].astype(object), drawn["c"].astype(object)
    drawn["a"][:, :, 0] = extremes["a"]
    drawn["b"][:, column, :] = extremes["b"]
    each = np.arange(rows * columns).reshape(rows, columns) * 7 // 3
    for tile in range(tiles):
        drawn["c"][tile] = np.array(extremes["c"], object)[(each * (rule.a != "f64") + tile * starts // tiles) % starts]
    drawn |= {operand: drawn[operand].astype(code_type(name)) for operand, (name, _) in shapes.items()}
    assert_the_twins_agree(rule, drawn)


@pytest.mark.parametrize(
    ("asked", "arch"), [form for form in FORMS if form[0].a != "f64" and FORMATS[form[0].b].nan_code]
)
def test_many_outputs_and_a_column_of_nans_beside_them(asked, arch):
    """A column of NaNs beside them changes no other output."""
    rule = rule_of(asked, arch)
    random = np.random.default_rng(7)
    shapes = operand_shapes(rule, 24, 40, 2 if rule.c == rule.d else 1)
    drawn = {
        operand: random.integers(0, FORMATS[name].codes, shape, dtype=np.uint64).astype(code_type(name))
        for operand, (name, shape) in shapes.items()
    }
    for operand in ("a", "b"):  # finite, all signs, exponents within a few binades of 1
        row = FORMATS[getattr(rule, operand)]
        exponent = np.uint64(row.bias) + random.integers(0, 4, drawn[operand].shape, dtype=np.uint64)
        fraction = drawn[operand].astype(np.uint64) & np.uint64((1 << row.fraction) - 1)
        sign = random.integers(0, 2, drawn[operand].shape, dtype=np.uint64) << np.uint64(row.bits - 1)
        codes = sign | (((exponent << np.uint64(row.fraction)) | fraction) << np.uint64(row.unused))
        drawn[operand] = codes.astype(code_type(row.name))
    drawn["c"] &= drawn["c"].dtype.type(FORMATS[rule.c].codes // 4 - 1)
    if rule.is_sparse:
        drawn["columns"] = stored_columns(rule, random.integers(0, 12, drawn["a"].shape))
    plain = TWINS["portable"](rule, **drawn)
    flagged = dict(drawn)
    nan = FORMATS[rule.b].nan_code
    extra = np.full((*drawn["b"].shape[:2], 1), nan, drawn["b"].dtype)
    flagged["b"] = np.concatenate([drawn["b"], extra], axis=2)
    flagged["c"] = np.concatenate([drawn["c"], drawn["c"][:, :, :1]], axis=2)
    beside_nan = TWINS["portable"](rule, **flagged)
    np.testing.assert_array_equal(beside_nan[:, :, :-1], plain)
    np.testing.assert_array_equal(plain[:, :2], TWINS["reference"](rule, **_first_rows(drawn, 2)))


def _first_rows(drawn, count):
    """The same product with fewer rows."""
    rows = ("a", "c", "columns", "scale_a")
    return {operand: codes[:, :count] if operand in rows else codes for operand, codes in drawn.items()}


def _largest_significands(random, row, shape):
    """All of one sign and exponent, every fraction bit set: sums as large as they get."""
    return np.full(shape, ((row.bias << row.fraction) | ((1 << row.fraction) - 1)) << row.unused)


def _mostly_zeros(random, row, shape):
    """Nine of ten are 0, so that most steps meet no product; the rest are small numbers of either sign."""
    codes = (row.bias << row.fraction) + random.integers(0, 1 << row.fraction, shape)
    codes = (codes << row.unused) | (random.integers(0, 2, shape) << (row.bits - 1))
    return np.where(random.random(shape) < 0.9, 0, codes)


def _far_apart(random, row, shape):
    """Exponents from one end of the range to the other: products far below what their row and column allow."""
    exponent = random.choice([1, 2, (1 << row.exponent) - 3, (1 << row.exponent) - 2], shape)
    return ((exponent << row.fraction) | random.integers(0, 1 << row.fraction, shape)) << row.unused


def _around_the_grid(random, row, shape):
    """Both signs, significands with one bit or with all: products on the grid, just off it, and far below it."""
    middle = 1 << (row.exponent - 1)
    spread = min(13, middle - 2)
    exponent = random.integers(middle - spread, middle + spread + 1, shape)
    fraction = random.choice([0, 1, (1 << row.fraction) - 1], shape) % (1 << row.fraction)
    sign = random.integers(0, 2, shape) << (row.bits - 1)
    return (((exponent << row.fraction) | fraction) << row.unused) | sign


def _strewn_with_specials(random, row, shape):
    """Numbers near 1, and one in thirty an infinity, a NaN, a zero, or from an end of the range."""
    codes = (row.bias << row.fraction) + random.integers(0, 1 << row.fraction, shape)
    codes = (codes << row.unused) | (random.integers(0, 2, shape) << (row.bits - 1))
    return np.where(random.random(shape) < 1 / 30, random.choice(notable_codes(row.name), shape), codes)


@pytest.mark.parametrize(
    "kind", [_largest_significands, _mostly_zeros, _far_apart, _around_the_grid, _strewn_with_specials]
)
@pytest.mark.parametrize(
    ("asked", "arch"), [form for form in FORMS if FORMATS[form[0].a].is_float and form[0].a != "f64"]
)
def test_the_twins_agree_where_the_vector_loop_has_exceptions(asked, arch, kind):
    rule = rule_of(asked, arch)
    random = np.random.default_rng(3)
    shapes = operand_shapes(rule, 3, 9, 2 if rule.c == rule.d else 1)
    drawn = {
        operand: random.integers(100, 140, shape).astype(np.uint8)
        if operand.startswith("scale")
        else kind(random, FORMATS[name], shape).astype(code_type(name))
        for operand, (name, shape) in shapes.items()
    }
    drawn["c"][:, 1] = 0
    if rule.is_sparse:
        drawn["columns"] = stored_columns(rule, random.integers(0, 12, drawn["a"].shape))
    assert_the_twins_agree(rule, drawn)
