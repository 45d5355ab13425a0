"""Blind test of `predict`: new gemms are predicted first, then run on a GPU and compared code by code.

`predictions.json` and the codes in `predicted.npz` are written before anything runs. Operands are hashes of their
indices, so they need not be stored. 8 rows and 16 columns of each gemm, evenly spread, are compared. Real layers are
those of `layers`, with log-uniform m; log-uniform shapes are in no table.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import warpfrag as wf
from tools.choices.layers import layers
from tools.libraries.cases import Case, numpy_matrix, sample
from tools.libraries.measure import make_call, say, take
from warpfrag.blas.cublas.library_gemm import library_gemm
from warpfrag.blas.cublas.predict_order import RESULTS
from warpfrag.formats.epilogue import Epilogue
from warpfrag.tensorcore.array_types import read_matrices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.blas.cublas.predict_order import PredictedOrder

ROWS, COLUMNS = 8, 16
SEED = 20261418
LARGEST, LARGEST_WEIGHT = 1 << 35, 1 << 26
"""The maximum number of multiply-adds in a gemm, and of elements in B."""
MAX_M = 8192
SAVE_EVERY = 500
FIRST = int(os.environ.get("CHOICES_FIRST", "0"))
"""The number of the first gemm to run, so that an interrupted run can be continued."""


class Group(NamedTuple):
    """Gemms of one kind; extents are multiples of `unit`, and m is at least `first`."""

    shapes: str
    call: str
    type: str
    layouts: tuple[str, ...]
    products: int
    unit: int
    first: int = 1


GROUPS = (
    Group("real", "matmul", "bf16", ("nt",), 400, 8), Group("real", "matmul", "bf16", ("nn",), 200, 8),
    Group("real", "matmul", "f16", ("nt",), 360, 8), Group("real", "matmul", "f16", ("nn",), 200, 8),
    Group("real", "matmul", "tf32", ("nt",), 560, 4), Group("real", "matmul", "tf32", ("nn",), 500, 4),
    Group("real", "linear", "bf16", ("nt",), 240, 8), Group("real", "linear", "f16", ("nt",), 240, 8),
    Group("real", "linear", "tf32", ("nt",), 300, 4), Group("real", "int_mm", "s8", ("nt",), 160, 8, 17),
    Group("real", "scaled_mm slow", "e4m3", ("nt",), 240, 16),
    Group("real", "scaled_mm bias", "e4m3", ("nt",), 160, 16),
    Group("real", "scaled_mm fast", "e4m3", ("nt",), 240, 16),
    Group("log-uniform", "matmul", "bf16", ("nt", "nn", "tn"), 480, 8),
    Group("log-uniform", "matmul", "f16", ("nt", "nn", "tn"), 600, 8),
    Group("log-uniform", "matmul", "tf32", ("nt", "nn", "tn"), 700, 4),
    Group("log-uniform", "scaled_mm slow", "e4m3", ("nt",), 200, 16),
    Group("log-uniform", "scaled_mm fast", "e4m3", ("nt",), 200, 16),
    Group("log-uniform", "int_mm", "s8", ("nt",), 120, 8, 24),
    Group("attention", "bmm", "bf16", ("nn", "nt"), 20, 8), Group("attention", "bmm", "f16", ("nn", "nt"), 20, 8),
    Group("attention", "bmm", "tf32", ("nn", "nt"), 20, 8),
)  # fmt: skip


def products(seed: int = SEED) -> Iterator[tuple[str, Case]]:
    """Yield the gemms of every group for a seed, each with the name of its distribution of shapes."""
    random = np.random.default_rng(seed)
    listed = [pair for pair in layers() if pair[0] * pair[1] <= LARGEST_WEIGHT]
    number = seed

    def between(low: int, high: int) -> int:
        return int(np.exp(random.uniform(np.log(low), np.log(high))))

    for group in GROUPS:
        done = 0
        while done < group.products:
            n, k = listed[random.integers(len(listed))]
            m, layout = between(group.first, MAX_M), group.layouts[random.integers(len(group.layouts))]
            batch = 1
            if group.shapes == "attention":  # for each head, queries times keys (nt), or weights times values (nn)
                batch, head, keys = (
                    int(random.choice([2, 8, 12, 32, 64])),
                    int(random.choice([64, 128])),
                    between(16, 2048),
                )
                m, keys = between(16, 2048), keys // 8 * 8
                n, k = (keys, head) if layout == "nt" else (head, keys)
            elif group.shapes != "real":
                n, k = (
                    max(group.unit, extent // group.unit * group.unit)
                    for extent in (between(8, 32768), between(64, 32768))
                )
                m = max(group.unit, m // group.unit * group.unit) if layout == "tn" or group.type == "s8" else m
            if n % group.unit or k % group.unit or n * k > LARGEST_WEIGHT or m * n * k * batch > LARGEST:
                continue
            number, done = number + 8, done + 1
            yield group.shapes, Case(group.call, group.type, m, n, k, layout, batch, seed=number)


def predicted_order(case: Case) -> PredictedOrder:
    """Return the answer of `predict_order` for a case."""
    return wf.predict_order(
        case.m, case.n, case.k, dtype=case.type, layout=case.layout, bias=case.call in {"linear", "scaled_mm bias"},
        fast_accumulation=case.call == "scaled_mm fast", batch=case.batch,
    )  # fmt: skip


def predict(folder: Path) -> None:
    """Write each gemm with its prediction, or the reason why there is none, and the predicted codes."""
    listed = list(products())
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(_answer, [case for _, case in listed], chunksize=8))
    lines = [
        {"shapes": shapes, "case": asdict(case), "answer": answer}
        for (shapes, case), (answer, _) in zip(listed, answers, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictions.json").write_text(json.dumps(lines, indent=0), encoding="utf-8")
    _save(folder / "predicted.npz", {f"D{number}": codes for number, (_, codes) in enumerate(answers)})
    say(f"{len(lines)} gemms predicted")


def _answer(case: Case) -> tuple[dict[str, object], NDArray[Any] | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wf.errors.LossyProduct)
            return predicted_order(case).to_dict(), computed(case)
    except wf.errors.NotModelled as error:
        return {"refused": str(error), "guess": True}, None


def _save(path: Path, arrays: dict[str, NDArray[Any] | None]) -> None:
    kept: Any = {name: array for name, array in arrays.items() if array is not None}
    np.savez_compressed(path, **kept)


def run(folder: Path) -> None:
    """Run the gemms in predictions.json on the GPU, and write the outputs to compare."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    outputs: dict[str, NDArray[Any] | None] = {}
    for number, line in enumerate(json.loads((folder / "predictions.json").read_text(encoding="utf-8"))):
        if number < FIRST:
            continue
        case = Case(**line["case"])
        try:
            outputs[f"D{number}"] = take(torch, case, make_call(torch, case)(), ROWS, COLUMNS)
        except RuntimeError as error:  # a shape that the library rejects
            say(f"{case.name}: {error}")
        if number % SAVE_EVERY == SAVE_EVERY - 1:
            _save(folder / "ran.npz", outputs)
    _save(folder / "ran.npz", outputs)


def computed(case: Case) -> NDArray[Any]:
    """Return the predicted codes of the compared outputs."""
    rows, columns, depth = sample(case.m, ROWS), sample(case.n, COLUMNS), np.arange(case.k)
    known, bias = predicted_order(case), None
    if case.call in {"linear", "scaled_mm bias"}:
        bias = numpy_matrix(np.arange(1), columns, case.seed + 2, "bf16" if case.type == "e4m3" else case.type)[0]
    kept = depth[: case.k - known.omitted_k]
    last = 1000 * (case.batch - 1)
    a, b, _ = read_matrices(
        numpy_matrix(rows, kept, case.seed + last, case.type),
        numpy_matrix(kept, columns, case.seed + 1 + last, case.type),
    )
    epilogue = Epilogue(bias=bias, result=RESULTS.get(case.type, "f32"))
    D: Any = library_gemm(known, a, b, None, epilogue, (rows, columns))
    return np.asarray(D.view(f"uint{8 * D.dtype.itemsize}"))


def compare(folder: Path) -> None:
    """Compare the predicted outputs with the recorded ones, and write report.md."""
    lines = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    results = []
    with np.load(folder / "ran.npz") as ran, np.load(folder / "predicted.npz") as predicted:
        for number, line in enumerate(lines):
            if f"D{number}" not in ran.files:
                continue
            case = Case(**line["case"])
            unlike = None if "refused" in line["answer"] else int((predicted[f"D{number}"] != ran[f"D{number}"]).sum())
            results.append(Result(line["shapes"], case, unlike, bool(line["answer"]["guess"])))
    (folder / "report.md").write_text(report(results), encoding="utf-8")


class Result(NamedTuple):
    """One gemm, and the number of its codes that differ, or None if there was no prediction."""

    shapes: str
    case: Case
    unlike: int | None
    is_guess: bool


def report(results: list[Result]) -> str:
    """Return a table with the results of each kind, and a line for each gemm that differs."""
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.shapes, result.case.call, result.case.type].append(result)
    head = ("shapes", "call", "type", "products", "equal", "unlike", "refused", "not called a guess", "of these equal")
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---: |" * 6]
    for key, some in sorted(groups.items(), key=lambda item: (item[0][0] != "real", *item[0])):
        sure = [result for result in some if not result.is_guess]
        counts = (
            len(some), sum(result.unlike == 0 for result in some), sum(bool(result.unlike) for result in some),
            sum(result.unlike is None for result in some), len(sure), sum(result.unlike == 0 for result in sure),
        )  # fmt: skip
        lines.append(f"| {' | '.join([*key, *map(str, counts)])} |")
    different = [result for result in results if result.unlike]
    lines += ["", *(f"- {result.case.name}: {result.unlike} codes differ" for result in different)]
    return "\n".join(lines) + "\n"
