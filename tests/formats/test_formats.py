"""Formats: every code of the small formats, in both implementations, compared with NumPy and ml_dtypes."""

import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpfrag as wf
from warpfrag.formats.codes import code_dtype, from_codes, natural_dtype, to_codes
from warpfrag.formats.number_formats import CANONICAL_NANS

NAMES = [
    "f16",
    "bf16",
    "tf32",
    "f32",
    "f64",
    "e4m3",
    "e5m2",
    "e3m2",
    "e2m3",
    "e2m1",
    "s8",
    "u8",
    "s4",
    "u4",
    "b1",
    "s32",
    "ue8m0",
    "ue4m3",
]
SMALL = [name for name in NAMES if wf.FORMATS[name].bits <= 16]
SMALL_FLOATS = [name for name in SMALL if wf.FORMATS[name].is_float]


def some_codes(name: str) -> range:
    step = 1 if wf.FORMATS[name].bits <= 8 else 37
    return range(0, wf.FORMATS[name].codes, step)


def test_every_format_of_the_design_has_a_row():
    assert set(NAMES) <= set(wf.FORMATS)
    assert all(row.source for row in wf.FORMATS.values())


def test_a_format_equals_its_name_and_its_copies():
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    assert mma.a.format == "f16"
    assert mma.a.format != "bf16"
    assert mma.a.format != 16
    assert mma.d.format in {"f32", "f64"}
    assert pickle.loads(pickle.dumps(mma.a.format)) == mma.b.format  # noqa: S301 (our own bytes)


@pytest.mark.parametrize("name", SMALL)
def test_decode_equals_the_library_for_every_code(name: str):
    row = wf.FORMATS[name]
    codes = np.arange(row.codes, dtype=code_dtype(row))
    with np.errstate(invalid="ignore"):  # a signalling NaN may stay one here
        library = from_codes(row, codes).astype(np.float64)
    assert library.size == row.codes
    for code in some_codes(name):
        np.testing.assert_equal(float(row.decode(code)), library[code], err_msg=f"{name} {code:#x}")


@pytest.mark.parametrize("name", SMALL)
def test_encode_inverts_decode_for_every_code_in_both_twins(name: str):
    row = wf.FORMATS[name]
    codes = [code for code in some_codes(name) if not row.is_nan(code)]
    values = [row.decode(code) for code in codes]
    assert [row.encode(value) for value in values] == codes
    assert to_codes(row, np.array(values, np.float64)).tolist() == codes


@pytest.mark.parametrize("name", ["f32", "f64", "tf32", "s32"])
@given(data=st.data())
def test_wide_formats_decode_as_numpy_does(name: str, data: st.DataObject):
    row = wf.FORMATS[name]
    code = data.draw(st.integers(0, row.codes - 1)) >> row.unused << row.unused
    library = np.array([code], code_dtype(row)).view(natural_dtype(row))[0]
    np.testing.assert_equal(float(row.decode(code)), float(library))
    if not row.is_nan(code):
        assert row.encode(row.decode(code)) == code


def test_tf32_ignores_its_low_bits_like_the_hardware():
    assert wf.FORMATS["tf32"].decode(0x3F801FFF) == 1.0
    assert wf.FORMATS["tf32"].decode(0x7F800001) == math.inf


@pytest.mark.parametrize("name", SMALL_FLOATS)
@given(data=st.data())
def test_rounding_is_to_nearest_even_in_both_twins(name: str, data: st.DataObject):
    row = wf.FORMATS[name]
    top = float(row.max)
    value = data.draw(st.floats(float(row.min), top, allow_nan=False, width=64))
    if not row.fraction and value < row.min:
        return
    code = row.encode(value, rounding="rne")
    assert to_codes(row, np.array([value]), rounding="rne").tolist() == [code]
    error = abs(Fraction(float(row.decode(code))) - Fraction(value))
    for neighbour in (code - 1, code + 1):
        if 0 <= neighbour < row.codes and not row.is_nan(neighbour) and math.isfinite(row.decode(neighbour)):
            distance = abs(Fraction(float(row.decode(neighbour))) - Fraction(value))
            # ue8m0 has no fraction: a tie goes to the larger power of two, as in ml_dtypes
            wins_tie = code % 2 == 0 if row.fraction else neighbour < code
            assert error < distance or (error == distance and wins_tie)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("f16", 65519.99, 0x7BFF),
        ("f16", 65520.0, 0x7C00),  # a tie with infinity goes to infinity
        ("f16", -1e9, 0xFC00),
        ("f16", 2.0**-25, 0x0000),
        ("f16", 1.5 * 2.0**-24, 0x0002),
        ("bf16", 1.0 + 2.0**-8, 0x3F80),
        ("bf16", 1.0 + 2.0**-8 + 2.0**-40, 0x3F81),  # through float32 this would be a tie
        ("e4m3", 464.0, 0x7E),  # a tie between 448 and what would be 480
        ("e2m1", 5.0, 0x6),
        ("e2m1", -0.0, 0x8),
        ("ue8m0", 3.0, 0x81),
        ("tf32", 1.0 + 2.0**-11, 0x3F800000),
        ("s8", 2.5, 2),
        ("s4", -0.5, 0),
    ],
)
def test_rounding_at_the_edges(name: str, value: float, code: int):
    row = wf.FORMATS[name]
    assert to_codes(row, np.array([value]), rounding="rne").tolist() == [code]
    if name != "e4m3":
        assert row.encode(value, rounding="rne") == code


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("s8", 128, "s8"),
        ("s8", -129, "s8"),
        ("s8", 0.5, "s8"),
        ("s8", math.nan, "s8"),
        ("u4", -1, "u4"),
        ("b1", 2, "b1"),
        ("f16", 1.0001, "not exact"),
        ("f16", 1e6, "f16"),
        ("e4m3", 500.0, "e4m3"),
        ("e4m3", math.inf, "infinity"),
        ("e2m1", math.nan, "no NaN"),
        ("e3m2", math.inf, "infinity"),
        ("ue8m0", 0.0, "ue8m0"),
        ("ue8m0", -1.0, "ue8m0"),
        ("ue4m3", -2.0, "ue4m3"),
        ("s32", 2**31, "s32"),
    ],
)
def test_what_does_not_fit_is_refused_by_both_twins(name: str, value: float, message: str):
    row = wf.FORMATS[name]
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        to_codes(row, np.array([[0 if name != "ue8m0" else 1, value]]))
    if not (isinstance(value, float) and math.isnan(value) and not row.is_float):
        with pytest.raises(wf.errors.InvalidOperand, match=message):
            row.encode(value)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "f32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue4m3"])
def test_just_above_the_largest_value_is_refused_by_both_twins(name: str):
    """Nearer to the largest value than to the next one: it must not be accepted unless rounding is requested."""
    row = wf.FORMATS[name]
    ulp = 2.0 ** (math.frexp(row.max)[1] - 1 - row.fraction)
    for value in (row.max + ulp / 8, math.nextafter(row.max, math.inf)):
        with pytest.raises(wf.errors.InvalidOperand, match=name):
            to_codes(row, np.array([value]))
        with pytest.raises(wf.errors.InvalidOperand, match=name):
            row.encode(value)
        assert to_codes(row, np.array([value]), rounding="rne")[0] == row.encode(row.max)


def test_a_rounding_that_there_is_not_is_refused_by_both_twins():
    for encode in (
        lambda: wf.FORMATS["f16"].encode(0.1, rounding="rz"),
        lambda: to_codes(wf.FORMATS["f16"], [0.1], rounding="rz"),
    ):
        with pytest.raises(wf.errors.InvalidOperand, match="rounding must be \"rne\" or None, got 'rz'"):
            encode()


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="here longdouble is float64")
def test_a_longdouble_is_not_rounded_without_a_word():
    near_one = np.array([1], np.longdouble) + np.longdouble(2) ** -60
    with pytest.raises(wf.errors.InvalidOperand, match="a longdouble is converted only if it is exact in float64"):
        to_codes(wf.FORMATS["f64"], near_one)
    assert to_codes(wf.FORMATS["f16"], near_one.round())[0] == 0x3C00


def test_a_refusal_names_the_first_wrong_element():
    matrix = np.zeros((3, 4))
    matrix[1, 2] = 300
    with pytest.raises(
        wf.errors.InvalidOperand, match=r"element \(1, 2\) is 300.0, but s8 holds the integers -128..127"
    ):
        to_codes(wf.FORMATS["s8"], matrix)


def test_nan_gets_the_quiet_code_of_its_format():
    expected = {
        "f16": 0x7E00,
        "bf16": 0x7FC0,
        "tf32": 0x7FC00000,
        "e4m3": 0x7F,
        "e5m2": 0x7E,
        "ue8m0": 0xFF,
        "ue4m3": 0x7F,
    }
    assert {name: int(to_codes(wf.FORMATS[name], np.array([math.nan]))[0]) for name in expected} == expected


def test_natural_arrays_are_taken_by_their_bits():
    quiet = np.array([0x7C01, 0xFE12], np.uint16).view(np.float16)
    assert to_codes(wf.FORMATS["f16"], quiet).tolist() == [0x7C01, 0xFE12]
    raw = np.array([0x3F801FFF], np.uint32).view(np.float32)
    assert to_codes(wf.FORMATS["tf32"], raw).tolist() == [0x3F801FFF]
    assert to_codes(wf.FORMATS["s4"], np.array([-8, 7, -1], ml_dtypes.int4)).tolist() == [8, 7, 15]


def test_odd_dtypes_are_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="got dtype complex128"):
        to_codes(wf.FORMATS["f16"], np.zeros(2, complex))
    with pytest.raises(wf.errors.InvalidOperand, match='rounding must be "rne" or None'):
        to_codes(wf.FORMATS["f16"], np.zeros(2), rounding="rz")


@pytest.mark.parametrize("name", wf.FORMATS)
def test_numpy_scalars_are_codes_like_any_integer(name: str):
    row = wf.FORMATS[name]
    for code in {0, 1, row.codes // 2, row.codes - 1}:
        for dtype in (np.uint8, np.int16, np.uint32, np.int64, np.uint64):
            if code <= np.iinfo(dtype).max:
                mine, its = row.decode(code), row.decode(dtype(code))
                assert mine == its or (math.isnan(mine) and math.isnan(its))
                assert type(mine) is type(its)


@pytest.mark.parametrize(
    "value",
    [
        np.float16(0.5), np.float32(-0.0), np.float64(2), np.longdouble(1.5), np.int8(-3), np.uint64(3),
        Decimal("0.25"), ml_dtypes.bfloat16(3), ml_dtypes.float8_e4m3fn(-2), np.float32("inf"), np.array(1.5), True,
    ],
)  # fmt: skip
def test_any_real_number_is_taken_exactly(value: Any):
    assert wf.FORMATS["f32"].encode(value) == wf.FORMATS["f32"].encode(float(value))


@pytest.mark.parametrize("value", ["1", None, 1j, [1], np.array([1, 2]), np.datetime64("2020-01-01"), object()])
def test_what_is_no_number_or_no_code_is_refused(value: Any):
    with pytest.raises(wf.errors.InvalidOperand, match="f16: expected a real number"):
        wf.FORMATS["f16"].encode(value)
    with pytest.raises(wf.errors.InvalidOperand, match="f16: a code must be an integer in 0..0xffff, got "):
        wf.FORMATS["f16"].decode(value)


def test_tf32_is_rounded_when_asked_and_kept_when_not():
    """A float32 holds tf32 in its upper bits: without rounding all bits are kept, else the nearest tf32 is taken."""
    mma = wf.get("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    matrix = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)
    matrix[0, :4] = np.inf, -0.0, 3e38, 1e-42
    kept, rounded = (
        mma.a.unpack(mma.a.pack(matrix), raw=True),
        mma.a.unpack(mma.a.pack(matrix, rounding="rne"), raw=True),
    )
    assert np.array_equal(kept, matrix.view(np.uint32))
    tf32 = wf.FORMATS["tf32"]
    for value, code in zip(matrix.flat, rounded.flat, strict=True):
        assert code == tf32.encode(float(value), rounding="rne")
    assert np.array_equal(mma.a.pack(matrix.astype(np.float64), rounding="rne"), mma.a.pack(matrix, rounding="rne"))
    B = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)
    product = wf.gemm(matrix[1:], B, instruction=mma, rounding="rne")
    by_hand = [one.view(np.uint32) for one in (matrix[1:], B)]
    by_hand = [(one + 0xFFF + (one >> 13 & 1) & ~np.uint32(0x1FFF)).view(np.float32) for one in by_hand]
    assert np.array_equal(product, wf.gemm(*by_hand, instruction=mma))
    assert not np.array_equal(product, wf.gemm(matrix[1:], B, instruction=mma))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_that_signals_is_a_nan_like_any_other(dtype):
    """Converting a number never causes a warning."""
    bits = {np.float32: np.uint32(0x7F800001), np.float64: np.uint64(0x7FF0000000000001)}[dtype]
    nan = bits.view(dtype)
    assert np.isnan(wf.wmma.float_to_tf32(nan))
    fragment = wf.wmma.fragment(wf.wmma.accumulator, 16, 16, 16, wf.wmma.half)
    wf.wmma.fill_fragment(fragment, nan)
    fragment.x = np.full(fragment.x.shape, nan)
    assert np.isnan(fragment.x).all()
    mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    A, B, C = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16), np.full((16, 8), nan)
    assert np.isnan(mma(A, B, C)).all()
    assert wf.diagnose(mma, np.ones((16, 8), np.float32), A, B, C).tried
    with pytest.raises(wf.errors.InvalidOperand, match="C: expected finite values, got nan as element"):
        wf.error_report(A, B, instruction=mma, C=C)


def test_canonical_nans_are_nans_of_their_formats():
    assert {name: f"{code:x}" for name, code in CANONICAL_NANS.items()} == {
        "f16": "7fff",
        "bf16": "7fff",
        "f32": "7fffffff",
        "f64": "fff8000000000000",
    }
    assert all(wf.FORMATS[name].is_nan(code) for name, code in CANONICAL_NANS.items())
