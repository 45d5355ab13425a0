"""The parts of the choice tools that need no GPU."""

import json

import numpy as np

import warpfrag as wf
from tools.choices import blind, confirm
from tools.choices.answers import CHUNK, KINDS, Answers, gather, shapes
from tools.choices.train import choice_of_label, label, to_bytes
from tools.libraries.cases import Case
from warpfrag.blas.cublas.choice_model import ChoiceNetwork, ChoiceTree, features, read_model
from warpfrag.blas.cublas.choice_table import Choice, ChoiceRun, Choices, LayerKind
from warpfrag.blas.cublas.cublaslt import Configuration

KIND = LayerKind("matmul", "bf16", "nt")
OTHER = Choice(24, 0, 1, 0, 0, 32, "cutlass_75_s1688")


def nvjet(parts: int) -> Choice:
    """Return the choice of an nvjet kernel."""
    return Choice(66, 0, parts, 2 if parts > 1 else 0, 0, 0, "nvjet")


def test_shapes_are_reproducible_and_fit_their_kind():
    assert shapes(3, KINDS[0]) == shapes(3, KINDS[0]) != shapes(4, KINDS[0])
    assert len(shapes(3, KINDS[0])) == CHUNK
    fp8 = next(kind for kind in KINDS if kind.type == "e4m3")
    assert all(n % 16 == 0 and k % 16 == 0 and m >= 1 for m, n, k in shapes(3, fp8))


def test_answers_are_kept(tmp_path):
    split, other = Configuration(66, 10, 2, 2, 0, 3, 35, 0, 8), Configuration(21, 15, 24, 2, 0, 0, 6, 0, 0)
    made = gather([(0, 1, 64, 128, split, 0), (0, 2, 64, 128, other, 0), (1, 2, 64, 128, split, 1)])
    made.save(tmp_path / "answers.npz")
    found = Answers.load(tmp_path / "answers.npz")

    assert found.configurations == (split, other)
    assert choice_of_label(label(split)) == nvjet(2)
    assert choice_of_label(label(other)) == Choice(21, 0, 24, 2, 0, 16, "cutlass_80_s1688")
    assert choice_of_label(label(Configuration(14, *[0] * 8))).kernel == "dot_kernel"
    assert choice_of_label(label(Configuration(13, 0, 1, 0, 0, 74, 0, 0, 0))).kernel == "gemvx"
    assert found.rows.tolist() == [[0, 1, 64, 128, 0, 0], [0, 2, 64, 128, 1, 0], [1, 2, 64, 128, 0, 1]]


def test_a_packed_model_is_what_the_package_reads():
    nodes = ([0, -1, -1], [4.5, 0, 0], [1, 0, 0], [2, 0, 0], [0, 0, 1])
    tree = ChoiceTree(*(np.array(each) for each in nodes), 0.97, (nvjet(3), OTHER))
    inputs = features(1, 1, 1, 64).size + 1
    first = np.zeros((inputs, 1), np.float16)
    first[0] = 1  # the logarithm of m + 1, less 5
    layers = [(first, np.full(1, -5, np.float16)), (np.array([[1, -1]], np.float16), np.zeros(2, np.float16))]
    network = ChoiceNetwork({"matmul bf16 nt": 0.99}, np.zeros(inputs), np.ones(inputs), layers, (nvjet(1), nvjet(2)))
    networks, trees = read_model(to_bytes(({"nvjet": network}, {"matmul tf32 nt": tree})))

    found = trees["matmul tf32 nt"]
    assert [found.find(features(m, 64, 128, 64)) for m in (4, 5)] == [nvjet(3), OTHER]
    assert found.accuracy == 0.97
    chosen = [networks["nvjet"].find("matmul bf16 nt", features(m, 64, 128, 64)).split_k for m in (20, 40)]
    assert chosen == [2, 1]


def test_an_end_that_is_off_by_a_few_is_found():
    runs = {(KIND, 64, 4096): [ChoiceRun(99, nvjet(2)), ChoiceRun(200, nvjet(1))]}
    table = Choices.build(runs, gpu="H999", library="none", torch="")

    assert confirm.differing(table, 0, 200, lambda _kind, m, _n, _k: nvjet(2 if m < 100 else 1)) == []
    assert set(confirm.differing(table, 0, 900, lambda _kind, m, _n, _k: nvjet(2 if m < 103 else 1))) == {100, 101, 102}


def test_unseen_products_are_predicted_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(
        blind,
        "GROUPS",
        tuple(group._replace(products=1) for group in blind.GROUPS if group.call in {"int_mm", "matmul"}),
    )
    monkeypatch.setattr(blind, "LARGEST", 1 << 24)
    blind.predict(tmp_path)
    lines = json.loads((tmp_path / "predictions.json").read_text("utf-8"))
    cases = [Case(**line["case"]) for line in lines]
    ran = {
        f"D{number}": blind.computed(case)
        for number, case in enumerate(cases)
        if "refused" not in lines[number]["answer"]
    }
    wrong = next(number for number, case in enumerate(cases) if case.type == "s8")
    ran[f"D{wrong}"][0, 0] ^= 1
    np.savez(tmp_path / "ran.npz", **ran)
    blind.compare(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")

    assert len(cases) == len(blind.GROUPS)
    assert text.count("codes differ") == 1
    assert f"- {cases[wrong].name}: 1 codes differ" in text


def test_predictions_are_those_of_the_package():
    found = blind.predicted_order(Case("linear", "bf16", 64, 4096, 14336, "nt"))
    assert found.order == wf.predict_order(64, 4096, 14336, bias=True, layout="nt").order


def test_a_label_has_what_determines_an_order():
    assert label(Configuration(66, 10, 2, 2, 0, 3, 35, 0, 8)) == (66, 0, 2, 0, 0, 0, 0)
    assert label(Configuration(23, 15, 24, 2, 0, 0, 6, 0, 0)) == (21, 0, 24, 0, 16, 0, 0)
    assert label(Configuration(43, 20, -1, 2, 1, 0, 34, 0, 5)) == (43, 20, -1, 0, 0, 5, 1)
