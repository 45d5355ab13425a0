"""Quantizing and pruning, compared with the definitions of the formats in exact arithmetic."""

from bisect import bisect
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.tensorcore.array_types import Scaled

FLOATS = ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"]


@cache
def magnitudes(name: str) -> list[tuple[Fraction, int]]:
    """Return every finite magnitude of a format with its code, from the definition, not from `quantize`."""
    row = wf.FORMATS[name]
    if not row.is_float:
        return [(Fraction(code), code) for code in range(int(row.max) + 1)]
    found = []
    for code in range(1 << (row.exponent + row.fraction)):
        exponent, fraction = divmod(code, 1 << row.fraction)
        is_special = exponent == (1 << row.exponent) - 1
        if (name == "e5m2" and is_special) or (name == "e4m3" and is_special and fraction == 7):
            continue
        significand = Fraction(fraction, 1 << row.fraction) + (exponent > 0)
        found.append((significand * Fraction(2) ** (max(exponent, 1) - row.bias), code))
    return found


def nearest(name: str, exact: Fraction) -> int:
    """The code of the nearest value, ties to the even code, clamped."""
    place = bisect(magnitudes(name), (abs(exact), -1))
    near = magnitudes(name)[max(place - 1, 0) : place + 1]
    return min((abs(value - abs(exact)), code % 2, code) for value, code in near)[2]


def block_of(name: str, scale: Fraction) -> list[float]:
    """Every value of a format times a scale, every halfway point between two, and the neighbours of these."""
    values = [value * scale for value, _ in magnitudes(name)]
    halfway = [(x + y) / 2 for x, y in pairwise(values)]
    numbers = np.array([float(value) for value in [*values, *halfway]])
    assert [Fraction(number) for number in numbers.tolist()] == [*values, *halfway]
    return [*numbers, *np.nextafter(numbers, np.inf), *np.nextafter(numbers[1:], 0)]


def check(name: str, numbers: list[float], codes: np.ndarray, scale: Fraction) -> None:
    row = wf.FORMATS[name]
    for number, code in zip(numbers, codes.tolist(), strict=True):
        expected = nearest(name, Fraction(number) / scale)
        if np.signbit(number):
            expected = expected | row.sign_bit if row.is_float else -expected % row.codes
        assert code == expected, (number, scale)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("exponent", [-100, -1, 0, 90])
def test_mx_blocks_are_exact_for_every_code_and_every_tie(name: str, exponent: int):
    scale = Fraction(2) ** exponent
    numbers = block_of(name, scale)
    top = Fraction(2) ** (magnitudes(name)[-1][0].__floor__().bit_length() - 1)  # the format's largest power of two
    limit = float(2 * top * scale)  # beyond it the scale would be another
    numbers = [sign * number for sign in (1, -1) for number in numbers if number < limit]
    codes, scales = wf.quantize([numbers], name, scale="ue8m0", block=len(numbers), raw=True)

    assert scales.tolist() == [[127 + exponent]]
    check(name, numbers, codes[0], scale)


@pytest.mark.parametrize("name", ["e2m1", "e4m3"])
def test_every_ue4m3_scale_is_exact_for_every_code_and_every_tie(name: str):
    most = magnitudes(name)[-1][0]
    for scale, code in magnitudes("e4m3")[1:]:
        numbers = [number for number in block_of(name, scale) if Fraction(number) <= most * scale]
        numbers = [*numbers[:: 1 if name == "e2m1" else 29], float(most * scale)]
        codes, scales = wf.quantize([numbers], name, scale="ue4m3", block=len(numbers), raw=True)
        assert scales.tolist() == [[code]]
        check(name, numbers, codes[0], scale)


@pytest.mark.parametrize("name", [*FLOATS, "s8", "s4"])
def test_one_float32_scale_for_all(name: str):
    A = np.random.default_rng(1).standard_normal((9, 31)) * 3
    codes, scale = wf.quantize(A, name, raw=True)
    exact = Fraction(float(abs(A).max())) / magnitudes(name)[-1][0]
    found = Fraction(float(scale.view(np.float32)))

    assert scale.shape == ()
    neighbours = [np.nextafter(scale.view(np.float32), np.float32(limit)) for limit in (0, np.inf)]
    assert all(abs(found - exact) <= abs(Fraction(float(other)) - exact) for other in neighbours)
    check(name, A.ravel().tolist(), codes.ravel(), found)


def test_scales_of_blocks_follow_the_rule_of_ocp_mx():
    """OCP MX 1.0, 6.3: the largest power of two up to the largest magnitude, divided by that of the element format."""
    powers = {"e4m3": 8, "e5m2": 15, "e3m2": 4, "e2m3": 2, "e2m1": 2}
    for name, power in powers.items():
        for largest, exponent in [(1.0, 0), (1.999, 0), (2.0, 1), (0.75, -1), (448.0, 8), (3e38, 127), (1e-45, -150)]:
            _, scales = wf.quantize([[0.0, largest, -largest / 3]], name, scale="ue8m0", block=32, raw=True)
            assert scales.item() == max(exponent - power, -127) + 127
    _, zero = wf.quantize(np.zeros((1, 32)), "e4m3", scale="ue8m0", block=32, raw=True)
    assert zero.item() == 0


# Worked by hand from OCP MX 1.0: X = 2**(floor(log2(largest)) - emax), then v / X to nearest even, clamped.
# format, emax, largest: values of a block, X, and v / X as the format has it
WORKED = {
    # floor(log2(500)) = 8, X = 2**(8 - 8) = 1. 500 is above 448: clamped. 17: between 16 and 18, tie, 16 is even.
    # 0.001 * 512 = 0.512 of the smallest subnormal 2**-9: to 2**-9; 0.0009 * 512 = 0.46: to 0
    ("e4m3", 8, 448): ([500, -448, 17, 19, 0.001, 0.0009, -1], 1.0, [448, -448, 16, 20, 2**-9, 0, -1]),
    # floor(log2(3)) = 1, X = 2**(1 - 15). 3 / X = 49152 = 1.5 * 2**15. 1.1 / X = 18022.4: 1.1 * 2**14, between 1 and
    # 1.25, nearer to 1. 1.125 / X = 1.125 * 2**14: tie, 1 is even. -1e-9 / X = -1.6384e-5 = -1.07 * 2**-16, subnormal
    ("e5m2", 15, 57344): ([3, 1.1, 1.125, 1.376, -1e-9], 2.0**-14, [49152, 16384, 16384, 24576, -(2**-16)]),
    # floor(log2(31)) = 4, X = 2**(4 - 4) = 1: 31 is above 28. 18: between 16 and 20, tie, 16 is even; 22 to 24
    ("e3m2", 4, 28): ([31, 18, 22, -0.2, 0.09375], 1.0, [28, 16, 24, -0.1875, 0.125]),
    # floor(log2(0.9)) = -1, X = 2**(-1 - 2) = 1/8. 0.9 * 8 = 7.2: between 7 and 7.5, to 7. 0.03 * 8 = 0.24, to 0.25
    ("e2m3", 2, 7.5): ([0.9, 0.03, -0.5, 0.0078125], 0.125, [7, 0.25, -4, 0]),
    # floor(log2(25)) = 4, X = 2**(4 - 2) = 4. 25 / 4 = 6.25: clamped. 5 / 4: tie of 1 and 1.5, to 1. 0.4 / 4: to 0
    ("e2m1", 2, 6): ([25, -12.5, 5, 7.9, -1.7, 0.4], 4.0, [6, -3, 1, 2, -0.5, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "power", "largest"), WORKED)
def test_blocks_worked_by_hand(name: str, power: int, largest: float):
    values, scale, expected = WORKED[name, power, largest]
    assert (wf.FORMATS[name].max, 2**power <= largest < 2 ** (power + 1)) == (largest, True)
    elements, scales = wf.quantize([values], name, scale="ue8m0", block=32)
    assert scales.astype(float).tolist() == [[scale]]
    assert elements.astype(float).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "largest", "exponents"),
    [  # floor, ceil, even, rceil
        ("e2m1", 25.0, (2, 3, 2, 3)),  # 25 = 1.5625 * 2**4: 1.5 in two bits; 25 / 6 = 4.17, up to 8
        ("e2m1", 24.0, (2, 3, 2, 2)),  # 24 = 6 * 4: nothing is clamped
        ("e2m1", 28.0, (2, 3, 3, 3)),  # 1.75 * 2**4: halfway between 1.5 and 2, whose last bit is even
        ("e2m1", 27.9, (2, 3, 2, 3)),
        ("e2m1", 16.0, (2, 2, 2, 2)),
        ("e4m3", 500.0, (0, 1, 1, 1)),  # 1.953 * 2**8: 1.9375 is halfway between 1.875 and 2
        ("e4m3", 448.0, (0, 1, 0, 0)),
        ("e4m3", 495.0, (0, 1, 0, 1)),
        ("e5m2", 1.0, (-15, -15, -15, -15)),
        ("e5m2", 1.75, (-15, -14, -15, -15)),
        ("e5m2", 1.8, (-15, -14, -15, -14)),
        ("e3m2", 1.875, (-4, -3, -3, -3)),
        ("e2m3", 1.9, (-2, -1, -2, -1)),
        ("e2m3", 1e-45, (-127, -127, -127, -127)),
    ],
)
def test_powers_of_two_are_chosen_as_named(name: str, largest: float, exponents: tuple[int, ...]):
    for rounding, exponent in zip(("floor", "ceil", "even", "rceil"), exponents, strict=True):
        _, scales = wf.quantize([[largest, -0.1 * largest]], name, scale="ue8m0", block=32, scale_rounding=rounding)
        assert scales.astype(float).item() == 2.0**exponent, rounding


@pytest.mark.parametrize("name", FLOATS)
def test_rceil_is_the_smallest_power_that_clamps_nothing(name: str):
    most = float(wf.FORMATS[name].max)
    numbers = np.abs(np.random.default_rng(5).standard_normal((300, 1))) * np.exp2(np.arange(300) % 90 - 45)[:, None]
    _, scales = wf.quantize(numbers, name, scale="ue8m0", block=32, scale_rounding="rceil")
    factors = scales.astype(float)
    assert (numbers <= most * factors).all()
    assert (numbers > most * factors / 2).all()


def test_a_block_with_nan_or_infinity_is_nan():
    A = np.ones((3, 64), np.float32)
    A.view(np.uint32)[0, 3], A[1, 40] = 0x7F800001, -np.inf  # a NaN that signals
    for name in FLOATS:
        codes, scales = wf.quantize(A, name, scale="ue8m0", block=32, nonfinite="nan", raw=True)
        assert (scales == 0xFF).tolist() == [[True, False], [False, True], [False, False]]
        assert set(codes[0, :32].tolist()) == {wf.FORMATS[name].nan_code or 0}
        right, _ = wf.quantize(np.ones((1, 32)), name, scale="ue8m0", block=32, raw=True)
        assert np.array_equal(codes[0, 32:], right[0])


def test_blocks_lie_along_k():
    A = np.random.default_rng(2).standard_normal((3, 70))
    codes, scales = wf.quantize(A, "e4m3", scale="ue8m0", block=32)
    turned, turned_scales = wf.quantize(A.T, "e4m3", scale="ue8m0", block=32, axis=0)

    assert codes.dtype == ml_dtypes.float8_e4m3fn
    assert scales.dtype == ml_dtypes.float8_e8m0fnu
    assert (codes.shape, scales.shape, turned_scales.shape) == ((3, 70), (3, 3), (3, 3))
    assert np.array_equal(turned.view(np.uint8), codes.T.view(np.uint8))
    assert np.array_equal(turned_scales.view(np.uint8), scales.T.view(np.uint8))
    tail, tail_scale = wf.quantize(A[:, 64:], "e4m3", scale="ue8m0", block=32)
    assert np.array_equal(codes[:, 64:], tail)
    assert np.array_equal(scales[:, 2:], tail_scale)


def test_a_quantized_product_runs():
    random = np.random.default_rng(3)
    A, B = random.standard_normal((5, 96)), random.standard_normal((96, 4))
    name = "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
    a, scale_a = wf.quantize(A, "e2m1", scale="ue4m3", block=16)
    b, scale_b = wf.quantize(B, "e2m1", scale="ue4m3", block=16, axis=0)
    found = wf.gemm(Scaled(a, scale_a), Scaled(b, scale_b), instruction=name, arch="sm_120")
    exact = (a.astype(float) * np.repeat(scale_a.astype(float), 16, axis=1)) @ (
        b.astype(float) * np.repeat(scale_b.astype(float), 16, axis=0)
    )
    assert abs(found - exact).max() < 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"number_format": "f16"}, "number_format: expected one of e4m3, e5m2, .* got 'f16'"),
        ({"scale": "e8m0"}, "scale: expected one of ue8m0, ue4m3, f32, or its dtype; got 'e8m0'"),
        ({"number_format": "s8", "scale": "ue8m0"}, "ue8m0 needs a float format, got s8; use f32"),
        ({"block": 0}, "block must be a positive integer, or None for a single scale; got 0"),
        ({"axis": 2}, r"axis must be in -2..1, got 2"),
        ({"A": [[1.0, np.inf]]}, r"A: element \(0, 1\) is inf: its block has no scale; expected finite values"),
        ({"scale_rounding": "up"}, "scale_rounding: expected one of floor, ceil, even, rceil; got 'up'"),
        ({"scale_rounding": "even"}, "scale_rounding: even requires ue8m0 scales, got f32"),
        ({"nonfinite": True}, "nonfinite: expected one of refuse, nan; got True"),
        ({"nonfinite": "nan", "scale": "ue4m3"}, "nonfinite: nan requires ue8m0 scales, got ue4m3"),
        ({"A": [[1j]]}, "A: expected real numbers that float64 can represent, got dtype complex128"),
    ],
)
def test_what_cannot_be_quantized_is_refused(arguments: dict, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.quantize(**({"A": np.ones((2, 4)), "number_format": "e4m3"} | arguments))


@pytest.mark.parametrize(("pattern", "chunk", "unit", "kept"), [("2:4", 4, 1, 2), ("1:2", 2, 1, 1), ("4:8", 8, 2, 2)])
def test_pruning_keeps_the_largest_of_each_chunk(pattern: str, chunk: int, unit: int, kept: int):
    """Every chunk of three magnitudes and both signs: the kept units have the largest sum; of equal ones the first."""
    values = [0.0, -0.0, 1.0, -2.0]
    grid = np.array(np.meshgrid(*[values] * min(chunk, 4))).reshape(min(chunk, 4), -1).T
    A = grid if chunk <= 4 else np.concatenate([grid, grid[::-1] / 2], axis=1)
    found = wf.prune(A.astype(np.float16), pattern)

    assert found.dtype == np.float16
    for row, pruned in zip(A, found, strict=True):
        units = np.abs(row).reshape(-1, unit).sum(axis=1)
        best = max(
            combinations(range(chunk // unit), kept), key=lambda pick: (sum(units[list(pick)]), [-i for i in pick])
        )
        expected = np.where(np.isin(np.arange(chunk) // unit, best), row, 0.0)
        assert np.array_equal(pruned, expected)
        assert not np.signbit(pruned[~np.isin(np.arange(chunk) // unit, best)]).any()


def test_pruning_keeps_a_nan_as_it_is():
    A = np.array([[0x3F800000, 0x7F800001, 0x40000000, 0x7F800000]], np.uint32).view(np.float32)
    assert wf.prune(A).view(np.uint32).tolist() == [[0, 0x7F800001, 0, 0x7F800000]]


@pytest.mark.parametrize(
    ("pattern", "name", "dtype"),
    [
        ("2:4", "mma.sp.m16n8k32.f32.f16.f16.f32", np.float16),
        ("1:2", "mma.sp.m16n8k16.f32.tf32.tf32.f32", np.float32),
        ("2:4", "mma.sp.m16n8k64.s32.s8.s8.s32", np.int8),
    ],
)
def test_a_whole_pruned_matrix_is_taken_and_compressed(pattern: str, name: str, dtype: type):
    random = np.random.default_rng(4)
    A, B = (random.integers(-9, 10, shape).astype(dtype) for shape in ((20, 70), (70, 5)))
    pruned = wf.prune(A, pattern)
    stored, codes = wf.compress(pruned, pattern)
    sp = wf.get(name)

    assert np.array_equal(wf.gemm(pruned, B, instruction=name), pruned.astype(int) @ B.astype(int))
    assert stored.dtype == dtype
    whole, rows = sp.shape.k, sp.shape.m
    one, one_codes = sp.compress(pruned[:rows, :whole])
    assert np.array_equal(stored[:rows, : whole // 2], one)
    assert np.array_equal(codes[:rows, : one_codes.shape[1]], one_codes)
    with pytest.raises(wf.errors.InvalidSparsity, match="row 0 is not"):
        wf.gemm(np.ones((20, 70), dtype), B, instruction=name)
    with pytest.raises(wf.errors.InvalidSparsity, match="row 0 is not"):
        wf.compress(np.ones((20, 70), dtype), pattern)


def test_what_cannot_be_pruned_is_refused():
    with pytest.raises(wf.errors.InvalidOperand, match="pattern: expected one of .*2:4.*; got '3:4'"):
        wf.prune(np.ones((2, 4)), "3:4")
    with pytest.raises(wf.errors.InvalidOperand, match="A: expected a matrix of real numbers, got dtype complex128"):
        wf.prune(np.ones((2, 4), complex))
