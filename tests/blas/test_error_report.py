"""Error reports: every figure against rational arithmetic, one output at a time."""

import json
import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas import measure_errors
from warpfrag.formats.exact_sums import exact_numbers, exact_product
from warpfrag.tensorcore.array_types import Scaled

F16 = "mma.m16n8k16.f32.f16.f16.f32"
TF32 = "mma.m16n8k8.f32.tf32.tf32.f32"
SIGNALLING = np.full((2, 4), 0x7F802000, np.uint32).view(np.float32)
CASES = {
    F16: (np.float16, ["sm_80", "sm_90"]),
    "mma.m16n8k16.f16.f16.f16.f16": (np.float16, ["sm_90"]),
    "mma.m16n8k16.f32.bf16.bf16.f32": (ml_dtypes.bfloat16, ["sm_80", "sm_100"]),
    "mma.m16n8k32.f32.e4m3.e4m3.f32": (ml_dtypes.float8_e4m3fn, ["sm_89", "sm_90"]),
    "mma.m16n8k8.f32.tf32.tf32.f32": (np.float32, ["sm_90"]),
    "mma.m16n8k8.f64.f64.f64.f64": (np.float64, ["sm_90"]),
    "mma.m16n8k32.s32.s8.s8.s32": (np.int8, ["sm_90"]),
    "mma.sp.m16n8k32.f32.f16.f16.f32": (np.float16, ["sm_90"]),
}


def operands(name: str, rows: int = 5, depth: int = 50, columns: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(name))
    kind = CASES[name][0]
    A, B = (random.standard_normal(shape) * 9 for shape in ((rows, depth), (depth, columns)))
    A, B = A.astype(kind), B.astype(kind)
    return (wf.prune(A) if ".sp" in name else A), B


def fractions(matrix: np.ndarray, name: str) -> list[list[Fraction]]:
    if "tf32" in name:
        matrix = (matrix.view(np.uint32) & 0xFFFFE000).view(np.float32)  # what the tensor core reads
    return [[Fraction(float(value)) for value in row] for row in matrix]


def ulp(exact: Fraction, result: str) -> Fraction:
    if result == "s32":
        return Fraction(1)
    fraction, least = {"f16": (10, -14), "f32": (23, -126), "f64": (52, -1022)}[result]
    exponent = least
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return Fraction(2) ** (exponent - fraction)


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_that_of_exact_arithmetic(name: str):
    A, B = operands(name)
    a, b = fractions(A, name), fractions(B, name)
    report = wf.error_report(A, B, instruction=name, arch=CASES[name][1])
    exact = [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]

    assert [one.arch for one in report] == CASES[name][1]
    for one in report:
        D = wf.gemm(A, B, instruction=name, arch=one.arch)
        places = list(np.ndindex(D.shape))
        errors = [Fraction(float(D[i, j])) - exact[i][j] for i, j in places]
        ulps = [error / ulp(exact[i][j], report.result) for error, (i, j) in zip(errors, places, strict=True)]
        relative = [float(e / abs(exact[i][j])) for e, (i, j) in zip(errors, places, strict=True) if exact[i][j]]
        worst = max(range(len(ulps)), key=lambda index: abs(ulps[index]))

        assert (one.outputs, one.nonfinite) == (30, 0)
        assert one.largest_ulps == float(max(map(abs, ulps)))
        assert one.mean_ulps == float(sum(ulps) / 30)
        assert one.rms_ulps == math.sqrt(sum(error**2 for error in ulps) / 30)
        assert one.largest_relative == max(map(abs, relative))
        assert one.mean_relative == math.fsum(relative) / len(relative)
        assert one.rms_relative == math.sqrt(math.fsum(error**2 for error in relative) / len(relative))
        assert (one.row, one.col) == places[worst]
        assert one.exact == exact[one.row][one.col]
        assert one.computed == float(D[one.row, one.col])
        assert one.steps[-1].result == D[one.row, one.col].view(f"u{D.dtype.itemsize}")
        assert sum(one.counts) == 30
        inside = [low <= float(error) for error in ulps for low in one.edges[16:17]]
        assert sum(inside) == sum(one.counts[16:])
        last = one.growth[-1]
        assert (last.k, last.largest_ulps, last.rms_ulps) == (50, one.largest_ulps, one.rms_ulps)
        total = sum(value**2 for row in exact for value in row)
        assert last.normwise == math.sqrt(sum(error**2 for error in errors) / total)


def test_growth_is_of_the_first_k():
    A, B = operands(F16)
    grown = wf.error_report(A, B, instruction=F16).errors[0].growth
    part = wf.error_report(A[:, :32], B[:32], instruction=F16).errors[0]

    assert [point.k for point in grown] == [16, 32, 50]
    assert (grown[1].largest_ulps, grown[1].rms_ulps) == (part.largest_ulps, part.rms_ulps)


def test_c_and_orders():
    A, B = operands(F16)
    C = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
    orders = [wf.Order(), wf.Order(split_k=2, unit=16)]
    report = wf.error_report(A, B, C, instruction=F16, order=orders)

    for one in report:
        D = wf.gemm(A, B, C, instruction=F16, order=one.order)
        assert one.computed == D[one.row, one.col]
        exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(A[one.row], B[:, one.col], strict=True))
        assert one.exact == exact + Fraction(float(C[one.row, one.col]))
    assert [one.order for one in report] == orders
    assert report.errors[1].steps == ()


def test_rows_are_compared_some_at_a_time(monkeypatch):
    A, B = operands(F16)
    A[3] = 60000  # infinite in f16
    C = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float16)
    names = {"instruction": "mma.m16n8k16.f16.f16.f16.f16", "arch": ["sm_80", "sm_90"]}
    whole = wf.error_report(A, B, C, **names)
    monkeypatch.setattr(measure_errors, "MAX_OUTPUTS", 12)
    told = []
    parts = wf.error_report(A, B, C, **names, progress=lambda *step: told.append(step), backend="auto")

    assert parts == whole
    assert whole.errors[0].nonfinite == 6
    texts = [f"{arch}, rows {rows}" for rows in ("0 to 1", "2 to 3", "4 to 4") for arch in names["arch"]]
    assert told == [
        (done, 8, text) for done, text in enumerate([*texts, *(f"{arch}, growth with k" for arch in names["arch"])])
    ]

    def interrupt(done: int, *_: object) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wf.error_report(A, B, C, **names, progress=interrupt)


def test_overflow_is_counted_and_left_out():
    A, B = np.full((1, 16), 256.0), np.full((16, 2), 256.0)
    B[:, 1] = 1
    one = wf.error_report(A, B, instruction="mma.m16n8k16.f16.f16.f16.f16").errors[0]
    assert (one.outputs, one.nonfinite, one.largest_ulps) == (1, 1, 0.0)
    with pytest.raises(wf.errors.NotModelled, match="no output is finite"):
        wf.error_report(A, B[:, :1], instruction="mma.m16n8k16.f16.f16.f16.f16")


def test_text_json_and_svg():
    A, B = operands(F16)
    report = wf.error_report(A, B, instruction=F16, arch=["sm_80", "sm_90"])
    lines = str(report).splitlines()

    assert lines[0].endswith("f32.f16.f16.f32, 5 x 6 x 50: computed minus exact, ulps of f32")
    assert [line.split()[0] for line in lines[2:4]] == ["sm_80", "sm_90"]
    assert lines[4].startswith("sm_80 and sm_90: ")
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["errors"][1]["rms_ulps"] == report.errors[1].rms_ulps
    assert Fraction(told["errors"][0]["exact"]) == report.errors[0].exact
    for theme in ("auto", "light", "dark"):
        texts = re.findall(r"<text[^>]*>([^<]+)</text>", report.svg(theme=theme))
        assert "Growth with k" in texts
        assert any(text.startswith("sm_90: largest") for text in texts)


@pytest.mark.parametrize("powers", [(0, 1), (-30, 30), (-500, 500)])
def test_exact_products_of_any_width(powers: tuple[int, int]):
    random = np.random.default_rng(2)
    A, B = (random.standard_normal(shape) * 2.0 ** random.integers(*powers, shape) for shape in ((3, 40), (40, 4)))
    A[0, :5] = 0
    found = exact_product(A, B)
    numbers = exact_numbers(A)
    for i, j in np.ndindex(3, 4):
        expected = sum(Fraction(x) * Fraction(y) for x, y in zip(A[i].tolist(), B[:, j].tolist(), strict=True))
        assert Fraction(found.units[i, j]) * Fraction(2) ** found.exponent == expected
    assert Fraction(numbers.units[1, 1]) * Fraction(2) ** numbers.exponent == Fraction(float(A[1, 1]))
    zero = exact_product(A * 0, B)
    assert not zero.units.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "gpu"}, "backend: expected one of cpu, cuda, native, auto; got 'gpu'"),
        ({"arch": []}, "arch: expected one value, or a list of at least one"),
        ({"order": 3}, r"order: expected a wf.Order, such as wf.Order\(split_k=2\); got 3"),
        ({"order": [3]}, r"order: expected a wf.Order, such as wf.Order\(split_k=2\); got 3"),
        ({"A": np.full((2, 4), np.inf)}, r"A: expected finite values, got inf as element \(0, 0\)"),
        ({"A": SIGNALLING, "instruction": TF32}, r"A: expected finite values, got nan as element \(0, 0\)"),
        ({"A": np.ones((0, 4))}, "expected matrices with a non-empty product"),
        ({"A": np.ones((2, 2, 4))}, "expected matrices with a non-empty product"),
        ({"order": wf.Order(promote=3)}, "promote: expected a multiple of the instruction's k, 16; got 3"),
        ({"C": np.full((2, 3), 0.1)}, "C: element"),
        ({"C": np.ones((3, 3))}, "C: expected 2 x 3 numbers, got float64 of shape"),
        ({"instruction": "mma.m16n8k256.s32.b1.b1.s32.xor.popc"}, "counts bits, so it has no rounding errors"),
    ],
)
def test_what_has_no_errors_is_refused(change: dict, message: str):
    right = {"A": np.ones((2, 4)), "B": np.ones((4, 3)), "instruction": F16}
    with pytest.raises(wf.WarpfragError, match=message):
        wf.error_report(**(right | change))


def test_errors_relative_to_what_was_added_and_to_the_size_of_the_results():
    random = np.random.default_rng(3)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((5, 48), (48, 7)))
    (one,) = wf.error_report(A, B, instruction=F16)
    a, b = A.astype(float), B.astype(float)
    error = wf.gemm(A, B, instruction=F16).astype(float) - a @ b
    size = np.abs(a) @ np.abs(b)

    assert one.largest_to_magnitude == pytest.approx(np.abs(error / size).max(), rel=1e-9)
    assert one.rms_to_magnitude == pytest.approx(np.sqrt(((error / size) ** 2).mean()), rel=1e-9)
    assert one.rms_to_rms == pytest.approx(np.sqrt((error**2).mean() / ((a @ b) ** 2).mean()), rel=1e-9)
    assert one.largest_to_rms == pytest.approx(np.abs(error).max() / np.sqrt(((a @ b) ** 2).mean()), rel=1e-9)


def test_scale_factors_are_part_of_the_exact_result_and_of_the_unquantised_one():
    name = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    random = np.random.default_rng(4)
    A, B = random.standard_normal((6, 100)), random.standard_normal((100, 5))
    (a, sa), (b, sb) = (wf.quantize(matrix, "e2m1", scale="ue8m0", block=32) for matrix in (A, B.T))
    scaled = Scaled(a, sa), Scaled(b.T, sb.T)
    names = {"instruction": name, "arch": "sm_120"}
    (one,) = wf.error_report(*scaled, **names)
    D = wf.gemm(*scaled, **names)
    wide = [np.repeat(np.asarray(s, float), 32, axis=1)[:, :100] for s in (sa, sb)]
    exact = (np.asarray(a, float) * wide[0]) @ (np.asarray(b, float) * wide[1]).T
    (whole,) = wf.error_report(*scaled, **names, against=(A, B))

    assert abs(one.exact - D[one.row, one.col].astype(float)) <= one.largest_ulps * np.spacing(np.float32(one.exact))
    assert float(one.exact) == pytest.approx(exact[one.row, one.col], rel=1e-12)
    assert whole.rms_to_rms == pytest.approx(np.sqrt(((D - A @ B) ** 2).mean() / ((A @ B) ** 2).mean()), rel=1e-9)
    assert whole.rms_to_rms > 100 * one.rms_to_rms
    with pytest.raises(wf.errors.InvalidOperand, match="against: A has"):
        wf.error_report(*scaled, **names, against=(A.T, B))
