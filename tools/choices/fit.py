"""Fits the decision trees of `warpfrag.blas.cublas.choice_model` to the library's answers.

For each kind there are two trees: one names the split count of nvjet, for products whose rows are all whole vectors of
16 bytes; the other, for the remaining products and for tf32, names the whole choice. A tree is fitted on the chunks of
shapes that are not held out, and its accuracy is that on the held-out chunks.
"""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.choices.answers import HELD_OUT, KINDS, Answers
from warpfrag.blas.cublas.choice_model import features, is_vectors
from warpfrag.blas.cublas.choices import Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

LEAVES, COMMON = 3000, 250
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
    accuracy = float(np.mean(made.predict(seen[is_test]) == chosen[is_test])) if is_test.any() else 0.0
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
