"""Float arithmetic compared with exact fractions: one rounding, in every mode."""

from fractions import Fraction
from itertools import product
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.rounded import WIDTHS, rounded, value
from warpfrag.machine.ir.scalar_types import container
from warpfrag.machine.semantics import floats
from warpfrag.machine.semantics.floats import FloatModifiers
from warpfrag.machine.semantics.ptx_rounding import decode, exact_root

pytestmark = pytest.mark.one_engine

MODES = ("rn", "rz", "rm", "rp")
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}


def code_of(name):
    """Codes of a format: any bits, and numbers near one another so that sums cancel."""
    exponent, fraction = WIDTHS[name]
    bits = 1 + exponent + fraction
    bias = (1 << (exponent - 1)) - 1
    near = st.builds(
        lambda s, e, f: s << (bits - 1) | (bias + e) << fraction | f,
        st.integers(0, 1), st.integers(-2, 2), st.integers(0, (1 << fraction) - 1),
    )  # fmt: skip
    tiny = st.builds(lambda s, f: s << (bits - 1) | f, st.integers(0, 1), st.integers(0, 2 << fraction))
    infinite = ((1 << exponent) - 1) << fraction
    edges = st.sampled_from([0, 1 << (bits - 1), infinite, infinite | 1 << (bits - 1), infinite - 1, infinite | 1, 1])
    return st.one_of(st.integers(0, (1 << bits) - 1), near, tiny, edges)


def run(function, name, mode, *codes):
    arrays = [np.array([[code]], container(1 + sum(WIDTHS[name]))) for code in codes]
    return int(function(name, FloatModifiers(mode), *arrays)[0, 0])


def expected_sum(name, mode, terms, signs):
    """The code of a sum of exact terms; `signs` are those of its terms, for an exact zero."""
    total = sum(terms)
    if total:
        return rounded(name, total, mode)
    negative = all(signs) or (mode == "rm" and any(signs))
    return int(negative) << sum(WIDTHS[name])


def is_negative(name, code):
    return bool(code >> sum(WIDTHS[name]))


@pytest.mark.parametrize(("name", "mode"), [*product(WIDTHS, MODES)])
@settings(max_examples=25)
@given(data=st.data())
def test_sums_products_and_fma_round_once(name, mode, data):
    a, b, c = (data.draw(code_of(name)) for _ in range(3))
    x, y, z = (value(name, code) for code in (a, b, c))
    numbers = all(isinstance(one, Fraction) for one in (x, y, z))
    if not numbers:
        if None in (x, y):  # f64 keeps a NaN's payload: b's before a's
            nan = NAN[name] if name != "f64" else (b if y is None else a) | 1 << 51
            assert run(floats.add, name, mode, a, b) == nan
            assert run(floats.multiply, name, mode, a, b) == nan
        return
    signs = [is_negative(name, code) for code in (a, b, c)]
    product_sign = signs[0] != signs[1]

    assert run(floats.add, name, mode, a, b) == expected_sum(name, mode, [x, y], signs[:2])
    multiplied = rounded(name, x * y, mode) if x * y else int(product_sign) << sum(WIDTHS[name])
    assert run(floats.multiply, name, mode, a, b) == multiplied
    assert run(floats.fma, name, mode, a, b, c) == expected_sum(name, mode, [x * y, z], [product_sign, signs[2]])


@pytest.mark.parametrize(("name", "mode"), [*product(("f32", "f64"), MODES)])
@settings(max_examples=15)
@given(data=st.data())
def test_quotients_and_roots_round_once(name, mode, data):
    a, b = data.draw(code_of(name)), data.draw(code_of(name))
    x, y = value(name, a), value(name, b)
    if isinstance(x, Fraction) and isinstance(y, Fraction) and x and y:
        assert run(floats.divide, name, mode, a, b) == rounded(name, x / y, mode)
        assert run(floats.reciprocal, name, mode, b) == rounded(name, 1 / y, mode)
    if isinstance(x, Fraction) and x > 0:
        found = value(name, run(floats.square_root, name, mode, a))
        wanted = {"rz": lambda r: r * r <= x, "rm": lambda r: r * r <= x, "rp": lambda r: r * r >= x}
        if mode == "rn":
            exact = rounded_root(name, x)
            assert run(floats.square_root, name, mode, a) == exact
        else:
            assert wanted[mode](found)
            step = 1 if mode == "rp" else -1
            code = run(floats.square_root, name, mode, a)
            assert not wanted[mode](value(name, code - step))


def rounded_root(name, x):
    """The root to nearest, from a root with many more bits than the format has."""
    scale = 1 << 700
    whole = isqrt(x.numerator * scale * scale // x.denominator)
    return rounded(name, Fraction(whole, scale), "rn")


@pytest.mark.parametrize(
    ("function", "codes", "result"),
    [
        (floats.divide, (0x3F800000, 0), 0x7F800000),
        (floats.divide, (0xBF800000, 0), 0xFF800000),
        (floats.divide, (0, 0), 0x7FFFFFFF),
        (floats.divide, (0x7F800000, 0x7F800000), 0x7FFFFFFF),
        (floats.square_root, (0x80000000,), 0x80000000),
        (floats.square_root, (0xBF800000,), 0x7FFFFFFF),
        (floats.square_root, (0x7F800000,), 0x7F800000),
        (floats.fma, (0x7F800000, 0, 0x3F800000), 0x7FFFFFFF),
        (floats.fma, (0x7F800000, 0x3F800000, 0xFF800000), 0x7FFFFFFF),
        (floats.add, (0x7F800000, 0xFF800000), 0x7FFFFFFF),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_infinities_and_divisions_by_zero(function, codes, result, mode):
    assert run(function, "f32", mode, *codes) == result


def test_flush_and_saturate():
    tiny, one, minus_two, nan = (np.array([[code]], np.uint32) for code in (5, 0x3F800000, 0xC0000000, 0x7FC00000))
    zero = np.zeros((1, 1), np.uint32)

    assert floats.add("f32", FloatModifiers(ftz=True), tiny, zero)[0, 0] == 0
    assert floats.add("f32", FloatModifiers(), tiny, zero)[0, 0] == 5
    assert floats.multiply("f32", FloatModifiers(ftz=True), floats.negate(tiny), one)[0, 0] == 0x80000000
    assert floats.add("f32", FloatModifiers(sat=True), one, one)[0, 0] == 0x3F800000
    assert floats.add("f32", FloatModifiers(sat=True), minus_two, one)[0, 0] == 0
    assert floats.add("f32", FloatModifiers(sat=True), nan, one)[0, 0] == 0


@pytest.mark.parametrize("largest", [False, True])
@given(a=code_of("f32"), b=code_of("f32"))
def test_the_extremes_prefer_numbers_and_order_zeros(largest, a, b):
    x, y = (np.array([code], np.uint32) for code in (a, b))
    found = int(floats.extreme("f32", FloatModifiers(), x, y, largest=largest)[0])
    values = [np.uint32(code).view(np.float32) for code in (a, b)]
    numbers = [(float(v), not code >> 31, code) for v, code in zip(values, (a, b), strict=True) if not np.isnan(v)]
    expected = (max if largest else min)(numbers)[2] if numbers else 0x7FFFFFFF

    assert found == expected
    with_nan = int(floats.extreme("f32", FloatModifiers(nan=True), x, y, largest=largest)[0])
    assert with_nan == (expected if len(numbers) == 2 else 0x7FFFFFFF)


@pytest.mark.parametrize(
    ("name", "code"), [("f16", 0x7C01), ("bf16", 0x7F81), ("tf32", 0x7F802000), ("f32", 0x7F800001)]
)
@pytest.mark.filterwarnings("error")
def test_signalling_nans_are_read_without_a_warning(name, code):
    codes = np.full(64, code, np.uint32 if code >> 16 else np.uint16)

    assert np.isnan(decode(codes, name)).all()


def test_a_root_of_whole_numbers_knows_what_it_left_out():
    negative, significand, exponent = exact_root(int(np.float64(4.0).view(np.uint64)))

    assert (negative, significand, exponent) == (False, 1 << 63, 1)
    assert exact_root(int(np.float64(2.0).view(np.uint64)))[1] & 1
