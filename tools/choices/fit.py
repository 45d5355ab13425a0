"""Fits the decision trees of `warpfrag.blas.cublas.choice_model` to the library's answers.

For each kind there are two trees: one names the split count of nvjet, for products whose rows are all whole vectors of
16 bytes; the other, for the remaining products and for tf32, names the whole choice. A tree is fitted on the chunks of
shapes that are not held out, and its accuracy is that on the held-out chunks.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.choices.answers import HELD_OUT, KINDS, Answers
from tools.choices.launches import COLUMNS, choice_of_row, load, shapes
from tools.choices.launches import KINDS as LAUNCH_KINDS
from tools.libraries.measure import say
from warpfrag.blas.cublas.choice_model import FILE, ChoiceTree, features, is_vectors, nvjet, read_trees, trees
from warpfrag.blas.cublas.choices import NVJET, Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, order_of
from warpfrag.blas.cublas.predict_order import library_additions
from warpfrag.errors import NotModelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

LEAVES, COMMON = 6000, 400
REFITTED = {"tf32", "f16"}
WEIGHT, SIMILAR_CHUNKS = 3, 1500
"""The maximum leaves of a tree, and the number of common choices that it may name."""
ARRAYS = {"feature": np.int8, "threshold": np.float32, "left": np.uint16, "right": np.uint16, "chosen": np.uint16}


class FittedTree(NamedTuple):
    """A tree in the format of `choice_model`."""

    name: str
    nodes: dict[str, NDArray[Any]]
    accuracy: float
    samples: int
    choices: Sequence[Choice]


def fit(folder: Path) -> None:
    """Fit every tree to answers.npz and write choice_model.npz."""
    answers = Answers.load(folder / "answers.npz")
    fitted = []
    for number, kind in enumerate(KINDS):
        rows = answers.rows[answers.rows[:, 0] == number]
        product = ProductKind(*kind)
        aligned = np.array([is_vectors(product, m, n, k) for m, n, k in rows[:, 1:4].tolist()], bool)
        for name, chosen in ((" ".join(kind), rows[aligned]), (f"{' '.join(kind)} other", rows[~aligned])):
            if len(chosen):
                fitted.append(fit_tree(name, chosen, answers.choices, LINE // BYTES[kind.type]))
    (folder / "choice_model.npz").write_bytes(pack(fitted, gpu="NVIDIA H200", library="cuBLASLt 13.1.0"))


def refit(folder: Path) -> None:
    """Fit the trees of `REFITTED` to launches*.npz, and write choice_model.npz with the other trees of the package."""
    path = files("warpfrag.blas.cublas").joinpath(FILE)
    kept = {name: _unfitted(name, tree) for name, tree in read_trees(path.read_bytes()).items()}
    for number, kind in sorted(enumerate(LAUNCH_KINDS), key=lambda pair: -len(pair[1].type)):
        name = " ".join(kind[:3]) + ("" if kind.type == "f16" else " other")
        if kind.call == "matmul" and kind.type in REFITTED:
            rows, choices = launched(folder, number, kind)
            if kind.type == "f16":  # it mostly has bf16's choices, for which there are many more answers
                rows, choices = with_similar(rows, choices, f"matmul bf16 {kind.layout}", kind)
            kept[name] = fit_tree(name, rows, choices, LINE // BYTES[kind.type])
            (folder / FILE).write_bytes(pack(list(kept.values()), gpu="NVIDIA H200", library="cuBLASLt 13.1.0"))
            say(f"{name}: {kept[name].accuracy:.4f} of {len(rows)}")


def _unfitted(name: str, tree: ChoiceTree) -> FittedTree:
    return FittedTree(name, {key: getattr(tree, key) for key in ARRAYS}, tree.accuracy, tree.samples, tree.choices)


def launched(folder: Path, number: int, kind: ProductKind) -> tuple[NDArray[np.int32], list[Choice]]:
    """Return rows of kind, m, n, k, choice and chunk for the answers of a kind with random shapes, and the choices."""
    names, rows = load(folder)
    numbers: dict[Choice, int] = {}
    taken = []
    for row in rows[(rows[:, 0] == number) & (rows[:, COLUMNS.index("chunk")] >= 0)].tolist():
        fact = dict(zip(COLUMNS, row, strict=True))
        is_nvjet = fact["algorithm"] == NVJET
        if is_nvjet != is_vectors(kind, *row[2:5]) or is_nvjet != (kind.type == "f16"):
            continue
        choice = plain(choice_of_row(fact, names, kind))
        taken.append((number, *row[2:5], numbers.setdefault(choice, len(numbers)), fact["chunk"]))
    return np.array(taken, np.int32).reshape(-1, 6), list(numbers)


def plain(choice: Choice) -> Choice:
    """Return a choice without what does not change the order of a product without a bias."""
    if choice.kernel.startswith("cutlass"):
        return choice._replace(algorithm=21, reduction=2 * (choice.split_k > 1))
    if choice.kernel == "xmma_sm80" and choice.split_k == 1:
        return Choice(43, 0, 1, 0, 0, 0, "xmma_sm90")
    return choice if choice.kernel == "nvjet" else choice._replace(reduction=0)


def is_alike(kind: ProductKind, choices: tuple[Choice, Choice], shape: tuple[int, int, int]) -> bool:
    """Return True if two choices have the same order."""
    if choices[0] == choices[1] or choices[0].kernel == choices[1].kernel == "xmma_segment_k":
        return choices[0] == choices[1]
    try:
        orders = [order_of(kind, choice, shape).order for choice in choices]
    except NotModelled:
        return False
    keys = {library_additions(kind.type, order, shape[2]) for order in orders}
    return len(keys) == 1


def with_similar(
    rows: NDArray[np.int32], choices: list[Choice], name: str, kind: ProductKind
) -> tuple[NDArray[np.int32], list[Choice]]:
    """Return the rows, each `WEIGHT` times, and rows for other random shapes with the choices of another tree."""
    numbers = {choice.split_k: place for place, choice in enumerate(choices)}
    tree, line, added = trees()[name], LINE // BYTES[kind.type], []
    for chunk in range(SIMILAR_CHUNKS):
        for _, m, n, k in shapes(10_000_001 + 6 * chunk, kind):
            choice = tree.find(features(m, n, k, line))
            if choice.split_k in numbers:
                added.append((rows[0, 0], m, n, k, numbers[choice.split_k], 1))
    fitted = rows[rows[:, 5] % HELD_OUT != 0]
    return np.concatenate([rows, *[fitted] * (WEIGHT - 1), np.array(added, np.int32)]), choices


def fit_tree(name: str, rows: NDArray[np.int32], choices: Sequence[Choice], line: int) -> FittedTree:
    """Fit one tree to rows of kind, m, n, k, choice and chunk."""
    from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-not-found,import-untyped,unused-ignore]

    is_nvjet = not name.endswith(" other")
    numbers = np.array([choice.split_k if is_nvjet else place for place, choice in enumerate(choices)])
    seen = np.array([features(m, n, k, line) for m, n, k in rows[:, 1:4].tolist()], np.float32)
    chosen, is_test = numbers[rows[:, 4]], rows[:, 5] % HELD_OUT == 0
    common = [number for number, _ in Counter(chosen.tolist()).most_common(COMMON)]
    is_fitted = ~is_test & np.isin(chosen, common)
    made = DecisionTreeClassifier(max_leaf_nodes=LEAVES, random_state=0).fit(seen[is_fitted], chosen[is_fitted])
    call, type_, layout = name.removesuffix(" other").rsplit(" ", 2)
    kind = ProductKind(call, type_, layout)
    found = [choices[number] if not is_nvjet else nvjet(number) for number in made.predict(seen[is_test]).tolist()]
    known = [choices[number] for number in rows[is_test][:, 4].tolist()]
    shapes_tested = map(tuple, rows[is_test][:, 1:4].tolist())
    alike = [is_alike(kind, (a, b), shape) for a, b, shape in zip(found, known, shapes_tested, strict=True)]
    accuracy = float(np.mean(alike)) if alike else 0.0
    tree = made.tree_
    leaves = made.classes_[tree.value[:, 0].argmax(1)]
    named = sorted(set(leaves.tolist()))
    is_leaf = tree.feature < 0
    nodes = {
        "feature": np.where(is_leaf, -1, tree.feature), "threshold": tree.threshold,
        "left": np.where(is_leaf, 0, tree.children_left), "right": np.where(is_leaf, 0, tree.children_right),
        "chosen": leaves if is_nvjet else np.searchsorted(named, leaves),
    }  # fmt: skip
    return FittedTree(name, nodes, accuracy, len(rows), [] if is_nvjet else [choices[number] for number in named])


def pack(fitted: Sequence[FittedTree], *, gpu: str, library: str) -> bytes:
    """Return the file that `choice_model.read_trees` reads: a header, and the nodes of all trees."""
    lines = [
        [tree.name, len(tree.nodes["feature"]), round(tree.accuracy, 4), tree.samples, tree.choices] for tree in fitted
    ]
    header = {"format": "warpfrag choice model", "schema": 1, "gpu": gpu, "library": library, "trees": lines}
    arrays = {
        name: np.concatenate([tree.nodes[name] for tree in fitted]).astype(dtype) for name, dtype in ARRAYS.items()
    }
    stream = BytesIO()
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez_compressed(stream, header=text, **arrays)  # type: ignore[arg-type] # numpy's stub has a flag there
    return stream.getvalue()
