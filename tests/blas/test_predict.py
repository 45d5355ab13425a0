"""Predictions of PyTorch on an H200: the table, predictions compared with captured outputs, guesses, errors."""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from tools.choices.blind import computed, predicted_order
from tools.libraries.cases import Case, cases, hashed, numpy_matrix, operands, sample, values
from warpfrag.blas.cublas.predict import Prediction
from warpfrag.blas.cublas.predict_order import measured, versions

CAPTURED = np.load(Path(__file__).parents[1] / "data" / "libraries_h200.npz")
CASES = {f"{case.name} {case.seed}": case for case in cases()}
MOST_K = 1100
"""Deeper products are compared by `python -m tools.libraries explain`: here they would take too long."""
CALLS = ("matmul", "bmm", "linear", "int_mm", "scaled_mm fast", "scaled_mm slow", "scaled_mm bias")
SOME = [name for name, case in CASES.items() if name in CAPTURED and case.call in CALLS and case.k <= MOST_K]


def predicted(case: Case) -> Prediction:
    given = operands(case)
    A, B = given["A"][:3], given["B"][:, :5]
    bias = given["bias"][:5] if "bias" in given else None
    if case.call == "bmm":
        A, B = (np.broadcast_to(matrix, (case.batch, *matrix.shape)) for matrix in (A, B))
    return wf.predict(
        A, B, bias=bias, layout=case.layout, fast_accumulation=case.call == "scaled_mm fast",
        shape=(case.m, case.n, case.k),
    )  # fmt: skip


def test_predictions_are_what_the_gpu_gave():
    """Compare every code of some outputs of every captured product that is not too deep."""
    assert len(SOME) > 100
    for name in SOME:
        found = predicted(CASES[name])
        D = found.D[-1] if found.D.ndim == 3 else found.D
        assert not found.is_guess, name
        assert np.array_equal(D.view(CAPTURED[name].dtype), CAPTURED[name]), name


def test_parts_that_are_added_in_place():
    """tf32 products whose parts CUTLASS 2 adds to D one by one, the bias first: 8 rows and 16 columns of each."""
    captured = np.load(Path(__file__).parents[1] / "data" / "in_place_h200.npz")
    calls = set()
    for number, text in enumerate(captured["cases"]):
        case = Case(**json.loads(str(text)))
        assert np.array_equal(computed(case), captured[f"D{number}"]), case.name
        assert predicted_order(case).order.in_place
        assert not predicted_order(case).is_guess
        calls.add((case.call, case.layout))
    assert calls == {("linear", "nt"), ("matmul", "nn"), ("matmul", "nt")}


def test_the_table_is_complete_and_says_where_it_is_from():
    rows = measured()
    assert len(rows) >= 300
    assert {row.call for row in rows} == set(CALLS)
    assert {row.type for row in rows} == {"f16", "bf16", "tf32", "e4m3", "s8"}
    assert all(row.kernel for row in rows)
    assert re.fullmatch(r"torch \S+ \(CUDA \S+\) on an NVIDIA H200", versions())


def test_a_shape_that_no_table_has_is_a_guess_with_its_accuracy():
    A, B = np.ones((3, 104), np.float16), np.ones((104, 24), np.float16)
    found = wf.predict(A, B)
    assert found.is_guess
    assert (found.basis, found.row) == ("modelled", None)
    assert 0.9 < found.accuracy < 1
    assert found.text.startswith("a guess: k ascending; a modelled choice of cuBLASLt")
    assert np.array_equal(found.D, np.full((3, 24), 104))
    assert found.D.dtype == np.float16


def test_a_batch_and_a_bias():
    A, B = np.ones((4, 3, 64), ml_dtypes.bfloat16), np.ones((4, 64, 8), ml_dtypes.bfloat16)
    assert np.array_equal(wf.predict(A, B).D, np.full((4, 3, 8), 64))
    linear = wf.predict(A[0], B[0], bias=np.arange(8))
    assert linear.kind.call == "linear"
    assert np.array_equal(linear.D, np.broadcast_to(64 + np.arange(8), (3, 8)))


def test_operands_are_the_same_in_torch():
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    rows, columns = sample(1000, 32), sample(77, 48)
    for kind in ("tf32", "s8"):
        bits = hashed(torch.arange(1000), torch.arange(77), 5)
        whole = values(bits, kind).to(torch.float32).numpy()[rows][:, columns]
        assert np.array_equal(numpy_matrix(rows, columns, 5, kind).astype(np.float32), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "tt"}, "layout: expected one of nn, nt, tn; got 'tt'"),
        ({"shape": (2, 3)}, r"shape: expected \(m, n, k\) of the whole gemm"),
        ({"shape": (2, 9, 8)}, "shape: m is 2, but there are 3 rows of A"),
        ({"shape": (9, 7, 8)}, "shape: n is 7, but there are 8 columns of B"),
        ({"shape": (9, 9, 7)}, "shape: k is 7, but A has 8 columns; a part of a gemm must include the whole k"),
        ({"fast_accumulation": True}, "fast_accumulation applies to float8_e4m3fn only"),
        ({"A": np.ones((1, 3, 8), np.float16)}, "expected two matrices, or two batches of them"),
        ({"A": np.ones((3, 8))}, "A is float64 and B is float16: expected both to be one of"),
        ({"bias": np.ones(4)}, "bias: expected 8 numbers, one for each column, got 4"),
        ({"bias": np.full(8, 0.1, np.float32)}, "bias: expected numbers that are exact in float16, the type of D"),
        (
            {"B": np.ones((5, 8), np.float16)},
            r"B: expected k x n, 8 rows; got \(5, 8\); for an n x k weight W, pass W.T",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(change: dict, message: str):
    right = {"A": np.ones((3, 8), np.float16), "B": np.ones((8, 8), np.float16)}
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.predict(**(right | change))


def test_calls_that_take_no_bias_or_batch():
    bytes_ = np.ones((4, 4), np.int8)
    with pytest.raises(wf.errors.InvalidOperand, match="torch._int_mm takes no bias"):
        wf.predict(bytes_, bytes_, bias=np.ones(4))
    with pytest.raises(wf.errors.InvalidOperand, match="a batch was measured only for float16"):
        wf.predict(bytes_[None], bytes_[None])


def test_the_command(tmp_path, monkeypatch, capsys):
    from warpfrag.cli import main

    monkeypatch.chdir(tmp_path)
    np.save("a", np.ones((3, 104), ml_dtypes.bfloat16).view(np.uint16))
    np.save("b", np.ones((104, 8), ml_dtypes.bfloat16).view(np.uint16))
    assert main(["predict", "a.npy", "b.npy", "--codes", "bf16", "-o", "d.npy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a guess: k ascending")
    assert lines[-1] == "wrote d.npy: bfloat16 of shape (3, 8)"
    assert np.array_equal(np.load("d.npy").view(ml_dtypes.bfloat16), np.full((3, 8), 104))
    C = np.arange(24).reshape(3, 8).astype(ml_dtypes.bfloat16)
    np.save("c", C.view(np.uint16))
    options = ["--codes", "bf16", "--c", "c.npy", "--alpha", "0.5", "--beta", "-2", "--activation", "relu"]
    assert main(["predict", "a.npy", "b.npy", *options, "-o", "d.npy"]) == 0
    expected = np.maximum(52 - 2 * C.astype(np.float32), 0)
    np.save("bias", np.full(8, 1.5, ml_dtypes.bfloat16).view(np.uint16))  # codes, like those of A and B
    assert main(["predict", "a.npy", "b.npy", "--codes", "bf16", "--bias", "bias.npy", "-o", "e.npy"]) == 0
    assert np.array_equal(np.load("e.npy").view(ml_dtypes.bfloat16), np.full((3, 8), 105.5))
    assert np.array_equal(np.load("d.npy").view(ml_dtypes.bfloat16).astype(np.float32), expected)


def test_an_epilogue_is_that_of_the_library():
    random = np.random.default_rng(8)
    A, B, C = (random.standard_normal(shape).astype(np.float16) for shape in ((16, 256), (256, 1000), (16, 1000)))
    sums = np.asarray(wf.gemm(A, B, arch="H200", order=wf.Order()))
    added = wf.predict(A, B, epilogue=wf.LibraryEpilogue(alpha=0.5, beta=2.0, C=C))
    expected = (np.float32(0.5) * sums + np.float32(2) * C.astype(np.float32)).astype(np.float16)

    assert np.array_equal(added.D, expected)  # exact products, so that one rounding is left
    assert not added.is_guess
    assert np.array_equal(wf.predict(A, B, epilogue=wf.LibraryEpilogue()).D, wf.predict(A, B).D)
    bias = random.standard_normal(1000).astype(np.float16)
    linear = wf.predict(A, B, layout="nt", bias=bias)
    cut = wf.predict(A, B, layout="nt", bias=bias, epilogue=wf.LibraryEpilogue(activation="relu"))
    assert np.array_equal(cut.D, np.maximum(linear.D, np.float16(0)))
    same = wf.predict(A, B, layout="nt", epilogue=wf.LibraryEpilogue(bias=bias))
    assert np.array_equal(same.D, linear.D)
    assert same.kind.call == "linear"


def test_the_text_names_tf32_and_whether_the_epilogue_was_compared():
    A = np.ones((16, 64), np.float32)
    plain = wf.predict(A, A.T)
    assert "float32 as TF32 (PyTorch's default is TF32 off), split-K in 2 parts" in plain.text
    assert "epilogue" not in plain.text
    half = A.astype(np.float16)
    measured = wf.LibraryEpilogue(alpha=2.0)
    open_epilogue = wf.LibraryEpilogue(C=np.ones((16, 16), np.float16), bias=np.ones(16))
    assert "; epilogue compared with an H200" in wf.predict(half, half.T, epilogue=measured).text
    other = wf.predict(half, half.T, epilogue=open_epilogue)
    assert other.is_guess
    assert "; epilogue not compared with an H200: a bias with a C that is D was not measured with" in other.text


def test_scales_multiply_fp8_products():
    A, B = np.ones((16, 64), ml_dtypes.float8_e4m3fn), np.ones((64, 32), ml_dtypes.float8_e4m3fn)
    for scales in ((0.25, 2.0), (np.array([0.25]), np.float32(2)), (np.array(0.25), np.array([[2]]))):
        scaled = wf.predict(A, B, layout="nt", epilogue=wf.LibraryEpilogue(scales=scales))
        assert (scaled.D.astype(np.float32) == 32).all()
    assert wf.LibraryEpilogue(activation="GELU", alpha=np.array(2)) == wf.LibraryEpilogue(activation="gelu", alpha=2.0)
    assert wf.LibraryEpilogue(activation=None) == wf.LibraryEpilogue()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_a_sum_without_terms_is_zero(dtype):
    """PyTorch does not call the library then; with a bias, this was not measured."""
    A, B = np.zeros((4, 0), dtype), np.zeros((0, 8), dtype)
    plain, biased = wf.predict(A, B), wf.predict(A, B, bias=np.arange(8))
    assert np.array_equal(plain.D.astype(np.float32), np.zeros((4, 8)))
    assert np.array_equal(biased.D.astype(np.float32)[0], np.arange(8))
    assert (plain.is_guess, biased.is_guess) == (False, True)
    assert "not compared with an H200: sums without terms" in biased.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epilogue": wf.LibraryEpilogue(scales=(2.0, 1.0))}, "scales apply to e4m3 operands, not to f16"),
        ({"epilogue": wf.LibraryEpilogue(), "bias": np.zeros(3)}, "expected 8 numbers, one for each column, got 3"),
        ({"epilogue": wf.LibraryEpilogue(C=np.zeros(8, np.float16))}, "C: expected a matrix"),
        ({"epilogue": wf.LibraryEpilogue(C=np.zeros((8, 8), np.float32))}, "C: expected float16, the type of D"),
        ({"epilogue": wf.Epilogue()}, "expected a wf.LibraryEpilogue"),
        ({"epilogue": wf.LibraryEpilogue(bias=np.zeros(8)), "bias": np.zeros(8)}, "bias: given twice"),
    ],
)
def test_an_epilogue_that_a_call_does_not_accept(arguments, message):
    A = np.ones((8, 8), np.float16)
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.predict(A, A, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "tanh"}, "expected relu, gelu or an empty string; got 'tanh'"),
        ({"alpha": "2"}, "expected a real number"),
        ({"scales": (1e-60, 1)}, "in the range of float32"),
        ({"scales": (np.ones((3, 1)), 1)}, "row-wise scaling is not modelled.: expected a real number"),
        ({"beta": 2}, "beta: expected 0 or 1 without C, got 2; pass C too"),
    ],
)
def test_an_epilogue_that_does_not_exist(arguments, message):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.LibraryEpilogue(**arguments)


@pytest.mark.parametrize("internal", ["kernel", "result", "is_split", "in_place"])
def test_an_epilogue_takes_only_what_a_call_takes(internal):
    with pytest.raises(TypeError, match=internal):
        wf.LibraryEpilogue(**{internal: "bf16"})
