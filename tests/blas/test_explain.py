"""Why two results differ, one output of a long product step by step, and the m at which a layer changes bits."""

import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas.cublas.choice_table import Choice, ChoiceRun, Choices, LayerKind
from warpfrag.blas.gemm_trace import trace_output
from warpfrag.blas.prepared_gemm import read_gemm
from warpfrag.cli import main

MMA = "mma.m16n8k16.f32.f16.f16.f32"
ORDERS = [
    wf.Order(), wf.Order(3, 64), wf.Order(residue=32), wf.Order(promote=128), wf.Order(segment_k=3, unit=64),
    wf.Order(segment_k=5, unit=64), wf.Order(segment_k=6, unit=64), wf.Order(3, 64, in_place=True),
]  # fmt: skip


@pytest.fixture(scope="module")
def operands() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.standard_normal((3, 1000)).astype(np.float16), random.standard_normal((1000, 6)).astype(np.float16)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_last_step_of_a_trace_is_the_output(operands, order: wf.Order):
    A, B = operands
    bias = np.arange(6)
    for epilogue in (None, wf.Epilogue(bias=bias, result="bf16"), wf.Epilogue(result="f16")):
        D = wf.gemm(A, B, instruction=MMA, order=order, epilogue=epilogue)
        for row, col in np.ndindex(D.shape):
            steps = trace_output(read_gemm(A, B, instruction=MMA), row, col, order=order, epilogue=epilogue)
            assert steps[-1].value == float(D[row, col])
    multiplied = [step for step in steps if step.operation == "multiply"]
    assert sum(step.last - step.first for step in multiplied) == 1000


def test_two_orders_are_told_apart_at_the_step_where_they_part(operands):
    A, B = operands
    first = wf.gemm(A, B, instruction=MMA)
    second = wf.gemm(A, B, instruction=MMA, order=wf.Order(split_k=3, unit=64))
    found = wf.explain(first, second, A, B, arch="sm_90")
    assert (found.first.order, found.second.order) == (wf.Order(), wf.Order(split_k=3, unit=64))
    assert found.differing == int((first != second).sum())
    assert found.parted == 384 // 16  # the first part of six units of 64; until there both add alike
    assert found.steps[0][-1].value == float(first[found.output])
    assert found.steps[1][-1].value == float(second[found.output])
    assert "the sums of this output diverge at step 25" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["first_divergence"] == 24
    same = wf.explain(first, first, A, B, arch="sm_90")
    assert same.output is None
    assert str(same).endswith("all 18 codes are equal")


def test_a_narrow_result_does_not_decide_between_orders(operands):
    A, B = operands
    results = [wf.gemm(A, B, order=order).astype(np.float16) for order in (wf.Order(), wf.Order(3, 64))]
    results[1][0, 0] = np.nextafter(results[0][0, 0], np.float16(9))
    found = wf.explain(results[0], wf.gemm(A, B).astype(np.float16), A, B)
    assert found.text.startswith("D1: at least 8 orders fit (of ")
    assert "so D2 does not decide between them" in found.text
    assert "the simplest, on H100, A100, B200 or RTX PRO 6000 Blackwell: k ascending; " in found.text
    assert len(found.to_dict()["first"]["other_orders"]) == 7
    assert "no order of additions" in wf.explain(results[0], results[1], A, B, arch="sm_90").second.text
    wide = wf.explain(results[0].astype(np.float32), wf.gemm(A, B), A, B, arch="sm_90")
    assert wide.first.text.endswith(
        "all values of D1 are exact in f16: if the kernel rounded them, pass D1 with this dtype (--result f16)"
    )
    assert wide.second.hint == ""


@pytest.mark.slow
def test_two_architectures_a_bias_and_lost_products(operands):
    A, B = operands
    bias = np.linspace(-1, 1, 6).astype(np.float16)
    epilogue = wf.Epilogue(bias=bias, result="f32")
    older = wf.gemm(A, B, instruction=MMA, arch="sm_80", epilogue=epilogue)
    newer = wf.gemm(A, B, instruction=MMA, arch="sm_90", epilogue=epilogue)
    found = wf.explain(older, newer, A, B, bias=bias, arch=("sm_90", "sm_80"))
    assert (found.first.arch, found.second.arch) == ("sm_80", "sm_90")
    lossy = wf.gemm(A[:, :960], B[:960], instruction=MMA)
    found = wf.explain(lossy, wf.gemm(A, B, instruction=MMA), A, B, arch="sm_90", names=("library", "gemm"))
    assert found.first.omitted_k == 40
    assert "library: k ascending, on H100, without the last 40 terms along K" in found.text
    assert [row[0] for row in wf.explain(older, newer, A, B, bias=bias, arch=("sm_90", "sm_80")).rows].count("...") == 1
    nothing = wf.explain(lossy + 1, lossy, A, B, arch="sm_90")
    assert nothing.first.order is None
    assert nothing.parted is None


def test_explain_refuses_what_is_no_product(operands):
    A, B = operands
    D = wf.gemm(A, B, instruction=MMA)
    for change, message in (
        ({"D1": D[:2]}, "expected two matrices and their product"),
        ({"D1": D.astype(np.float64)}, "expected one of float32, float16, bfloat16, since D is f32; got dtype float64"),
        ({"D1": D.astype(np.float16)}, "expected the same format"),
        ({"arch": ()}, "expected one or more architectures"),
        ({"names": ("x",)}, "expected two names"),
    ):
        with pytest.raises(wf.errors.InvalidOperand, match=message):
            wf.explain(**({"D1": D, "D2": D, "A": A, "B": B} | change))


def test_the_commands(operands, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    A, B = operands
    np.save("a", A)
    np.save("b", B)
    np.save("d1", wf.gemm(A, B, instruction=MMA))
    np.save("d2", wf.gemm(A, B, instruction=MMA, order=wf.Order(split_k=3, unit=64)))
    assert main(["explain", "d1.npy", "d2.npy", "a.npy", "b.npy", "--arch", "sm_90"]) == 0
    assert "part 2: k 384..399" in capsys.readouterr().out
    words = ["gemm", "a.npy", "b.npy", "--instruction", MMA]
    assert main([*words, "--order", "split_k=3,unit=64", "--trace", "2", "3"]) == 0
    assert "part 3 added: k 768..999" in capsys.readouterr().out
    assert main([*words, "--order", "split=3"]) == 2
    assert "expected split_k=N, unit=N" in capsys.readouterr().err


def table(*runs: tuple[int, int]) -> Choices:
    kind = LayerKind("matmul", "bf16", "nt")
    listed = [ChoiceRun(last, Choice(66, 0, parts, 0, 0, 0, "nvjet")) for last, parts in runs]
    return Choices.build({(kind, 64, 4096): listed}, gpu="H999", library="cuBLASLt 1", torch="")


def test_ranges_of_one_order():
    found = wf.batch_invariance(64, 4096, m=(3, 90), choices=table((10, 4), (20, 2), (30, 64), (100, 100)))
    spans = [(run.first, run.last, run.short) for run in found.layers[0].ranges]
    assert spans == [
        (3, 10, "4 parts"),
        (11, 20, "2 parts"),
        (21, 90, "64 parts"),
    ]  # 64 and 100 parts of 64 k are alike
    assert found.changes == (11, 21)
    assert found.ranges == ((3, 10), (11, 20), (21, 90))
    assert not found.is_guess
    several = wf.batch_invariance({"up": (64, 4096)}, m=(1, 64), choices=[table((100, 1)), table((7, 3), (100, 1))])
    assert several.changes == (8,)
    assert len(several.layers) == 2
    assert "no layer changes within m = 1..7, 8..64" in several.text
    picture = ET.fromstring(several.svg(theme="light"))  # noqa: S314 (our own)
    assert "ascending" in "".join(picture.itertext())
    assert json.loads(json.dumps(several.to_dict()))["changes"] == [8]


def test_layers_that_never_change_on_an_h200():
    assert wf.batch_invariance(6144, 4096).ranges == ((1, 8192),)  # Llama 3 8B's queries, keys and values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "a layer, n and k: expected an integer from 1 to 16777215, got 0"),
        ({"n": [(64, 4096)]}, r"expected n and k, or a list of pairs"),
        ({"n": {"x": 7}, "k": None}, "a layer, n and k: expected two integers"),
        ({"m": (0, 5)}, "m: expected an integer from 1 to 65536, got 0"),
        ({"m": 5}, "m: expected two integers"),
        ({"m": (9, 5)}, r"m: expected the smallest m first, such as \(5, 9\); got \(9, 5\)"),
        ({"dtype": "f64"}, "dtype: expected one of f16, bf16, tf32, e4m3, s8, or its dtype; got 'f64'"),
        ({"layout": "tt"}, "layout: expected one of"),
        ({"choices": []}, "choices: expected at least one file of choices, got none"),
    ],
)
def test_wrong_layers_are_refused(change: dict, message: str):
    with pytest.raises(wf.errors.InvalidOperand, match=message):
        wf.batch_invariance(**({"n": 64, "k": 4096} | change))
