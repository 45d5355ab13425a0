"""Epilogues: alpha, beta, C and bias as a kernel applies them, in exact arithmetic with the same roundings."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.formats.epilogue import fma

F16 = "mma.m16n8k16.f32.f16.f16.f32"
F32 = wf.FORMATS["f32"]


def rounded(exact: Fraction) -> float:
    """To float32, to nearest even."""
    return float(F32.decode(F32.encode(exact, rounding="rne")))


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((6, 80), (80, 7)))
    return A, B, random.standard_normal((6, 7)).astype(np.float16), random.standard_normal(7).astype(np.float16)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (1.7, 0.3), (-0.5, 0.0)])
@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("order", [wf.Order(), wf.Order(split_k=2, unit=32)])
def test_every_rounding_is_where_it_says(alpha: float, beta: float, with_c: bool, with_bias: bool, order: wf.Order):
    A, B, C, bias = operands()
    sums = wf.gemm(A, B, instruction=F16, order=order)
    epilogue = wf.Epilogue(alpha=alpha, beta=beta, bias=bias if with_bias else None)
    found = wf.gemm(A, B, C if with_c else None, instruction=F16, order=order, epilogue=epilogue)
    first, second = (Fraction(float(np.float32(value))) for value in (alpha, beta))
    for i, j in np.ndindex(found.shape):
        scaled = Fraction(rounded(second * Fraction(float(C[i, j])))) if with_c else 0
        value = rounded(first * Fraction(float(sums[i, j])) + scaled)
        if with_bias:
            value = rounded(Fraction(value) + Fraction(float(bias[j])))
        assert found[i, j] == value
    for result, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        narrow = wf.Epilogue(alpha=alpha, beta=beta, bias=bias if with_bias else None, result=result)
        stored = wf.gemm(A, B, C if with_c else None, instruction=F16, order=order, epilogue=narrow)
        assert stored.dtype == dtype
        assert np.array_equal(stored, found.astype(dtype))


def test_fma_rounds_once():
    random = np.random.default_rng(1)
    x, y, z = (
        (random.standard_normal(3000) * 2.0 ** random.integers(-30, 30, 3000)).astype(np.float32) for _ in range(3)
    )
    z[::3] = -x[::3] * y[::3]  # cancels all but the last bits
    z[1::3] = np.float32(2.0) ** 24 * (x[1::3] * y[1::3])  # far apart: close to a tie
    found = fma(x, y, z)
    for one, other, third, value in zip(*(array.tolist() for array in (x, y, z, found)), strict=True):
        assert value == rounded(Fraction(one) * Fraction(other) + Fraction(third))
    with np.errstate(all="ignore"):
        special = fma(np.float32(np.inf), np.array([0, 1], np.float32), np.array([1, 1], np.float32))
    assert np.isnan(special[0])
    assert special[1] == np.inf


def test_a_batch_has_one_epilogue():
    A, B, C, bias = operands()
    found = wf.gemm(A[None], B[None, None], C, instruction=F16, epilogue=wf.Epilogue(bias=bias, result="f16"))
    one = wf.gemm(A, B, C, instruction=F16, epilogue=wf.Epilogue(bias=bias, result="f16"))
    assert np.array_equal(found[0, 0], one)


@pytest.mark.parametrize(
    ("epilogue", "message"),
    [
        ({"alpha": "1"}, "alpha: expected a real number, got '1'"),
        ({"alpha": 1j}, "alpha: expected a real number, got 1j"),
        ({"alpha": np.complex64(1j)}, r"alpha: expected a real number, got np.complex64\(1j\)"),
        ({"beta": np.True_}, "beta: expected a real number, got np.True_"),
        ({"alpha": 1e300}, r"alpha: expected a number in the range of float32, got 1e\+300"),
        (
            {"alpha": np.float64(-3.5e38)},
            r"alpha: expected a number in the range of float32, got np.float64\(-3.5e\+38",
        ),
        ({"beta": 1e-60}, "beta: expected a number in the range of float32, got 1e-60"),
        ({"alpha": 10**400}, "alpha: expected a number in the range of float32, got an integer of 1329 bits"),
        ({"result": "e4m3"}, "result: expected one of f32, f16, bf16, or its dtype; got 'e4m3'"),
        ({"bias": np.ones((2, 7))}, r"bias: expected one number per column, got shape \(2, 7\)"),
        ({"bias": np.full(7, 0.1)}, "bias: expected numbers that are exact in float32"),
        ({"bias": np.full(7, 2**64 - 1, np.uint64)}, "bias: expected numbers that are exact in float32"),
        ({"bias": np.full(7, 2**31 - 1, np.int32)}, "bias: expected numbers that are exact in float32"),
        ({"bias": np.full(7, 2**54, np.int64)}, "bias: expected numbers that are exact in float32"),
        ({"bias": np.ones(6)}, "bias: expected 7 numbers, one for each column, got 6"),
    ],
)
def test_what_is_no_epilogue_is_refused(epilogue: dict, message: str):
    A, B, *_ = operands()
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.gemm(A, B, instruction=F16, epilogue=wf.Epilogue(**epilogue))


@pytest.mark.parametrize("beta", [0, 0.0, -0.0, np.float32(0)])
def test_with_beta_zero_c_is_not_read(beta):
    """As in cuBLAS, C may then contain anything."""
    A, B, C, bias = operands()
    C[0, 0], C[1, 1], A[2] = np.nan, np.inf, 0
    B[:] = -np.abs(B)  # the third row is of negative zeros, which an addition of zero would turn
    for alpha in (1, -1.5):
        found = wf.gemm(A, B, C, instruction=F16, epilogue=wf.Epilogue(alpha=alpha, beta=beta, bias=bias))
        without = wf.gemm(A, B, instruction=F16, epilogue=wf.Epilogue(alpha=alpha, bias=bias))
        assert np.array_equal(found.view(np.uint32), without.view(np.uint32))
    assert np.isnan(wf.gemm(A, B, C, instruction=F16, epilogue=wf.Epilogue())[0, 0])


@pytest.mark.parametrize("alpha", [np.inf, -np.inf, np.nan, 0, -0.0, 3, 1e-45, 3.4028235e38, np.float16(2), np.int8(3)])
def test_every_number_of_float32_is_a_factor(alpha):
    A, B, *_ = operands()
    with np.errstate(all="ignore"):
        expected = np.float32(alpha) * wf.gemm(A, B, instruction=F16)
        found = wf.gemm(A, B, instruction=F16, epilogue=wf.Epilogue(alpha=alpha))
    assert np.array_equal(found, expected, equal_nan=True)


def test_where_there_is_no_epilogue():
    A, B, *_ = operands()
    with pytest.raises(wf.errors.InvalidOperand, match="epilogue: expected a wf.Epilogue, got 2"):
        wf.gemm(A, B, instruction=F16, epilogue=2)
    with pytest.raises(wf.errors.InvalidOperand, match="an epilogue needs sums in f32, but D is s32"):
        wf.gemm(np.ones((2, 4)), np.ones((4, 2)), instruction="mma.m16n8k32.s32.s8.s8.s32", epilogue=wf.Epilogue())
