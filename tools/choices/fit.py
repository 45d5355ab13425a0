"""Fits the decision trees of `warpfrag.blas.cublas.choice_model` to the library's answers.

A tree names the split count of nvjet, for 16-bit and fp8 gemms whose rows are whole vectors of 16 bytes, or the whole
choice, for tf32. It is fitted on the chunks of shapes that are not held out; its accuracy is that on the others.
The trees for unaligned 16-bit gemms were fitted to earlier answers.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tools.choices.answers import HELD_OUT, KINDS, Answers
from tools.choices.launches import COLUMNS, choice_of_row, load
from tools.choices.launches import KINDS as LAUNCH_KINDS
from tools.choices.train import CUTLASS, STAGE_DEPTHS, XMMA
from tools.libraries.measure import say
from warpfrag.blas.cublas.choice_model import FILE, ChoiceTree, features, nvjet, read_trees
from warpfrag.blas.cublas.choices import NVJET, Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, order_of
from warpfrag.blas.cublas.predict_order import library_additions
from warpfrag.errors import NotModelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.blas.cublas.choices import LayerKind
    from warpfrag.blas.cublas.cublaslt import Configuration

LEAVES, COMMON = 20000, 400
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
    """Fit a tree to each kind in answers*.npz, and write choice_model_h200.npz with the other trees of the package."""
    path = files("warpfrag.blas.cublas").joinpath(FILE)
    kept = {name: _unfitted(name, tree) for name, tree in read_trees(path.read_bytes()).items()}
    families = known_families(folder)
    for number, kind in enumerate(KINDS):
        rows, choices = answered(folder, number, kind, families)
        if len(rows):
            name = " ".join(kind) + (" other" if kind.type == "tf32" else "")
            kept[name] = fit_tree(name, rows, choices, LINE // BYTES[kind.type])
            say(f"{name}: {kept[name].accuracy:.4f} of {len(rows)}, {len(kept[name].nodes['feature'])} nodes")
            (folder / FILE).write_bytes(pack(list(kept.values()), gpu="NVIDIA H200", library="cuBLASLt 13.1.0"))


def _unfitted(name: str, tree: ChoiceTree) -> FittedTree:
    return FittedTree(name, {key: getattr(tree, key) for key in ARRAYS}, tree.accuracy, tree.samples, tree.choices)


def known_families(folder: Path) -> dict[tuple[str, int, int], str]:
    """Return the kernel family of each layout, algorithm and custom option in launches*.npz, for tf32."""
    names, rows = load(folder)
    families: dict[tuple[str, int, int], str] = {}
    for row in rows.tolist():
        fact, kind = dict(zip(COLUMNS, row, strict=True)), LAUNCH_KINDS[row[0]]
        if kind[:2] == ("matmul", "tf32") and fact["kernel"] >= 0:
            key = kind.layout, fact["algorithm"], fact["custom"]
            families[key] = families.get(key) or choice_of_row(fact, names, kind).kernel
    return families


def answered(
    folder: Path, number: int, kind: LayerKind, families: dict[tuple[str, int, int], str]
) -> tuple[NDArray[np.int32], list[Choice]]:
    """Return rows of kind, m, n, k, choice and chunk for the answers of a kind, and the choices."""
    numbers: dict[Choice, int] = {}
    found = []
    for path in sorted(folder.glob("answers*.npz")):
        rows, configurations = Answers.load(path)
        chosen = [chosen_by(configuration, kind.layout, families) for configuration in configurations]
        mapped = [-1 if choice is None else numbers.setdefault(choice, len(numbers)) for choice in chosen]
        rows = rows[rows[:, 0] == number].copy()
        rows[:, 4] = np.array(mapped, np.int32)[rows[:, 4]]
        found.append(rows[rows[:, 4] >= 0])
    return np.concatenate(found) if found else np.zeros((0, 6), np.int32), list(numbers)


def chosen_by(
    configuration: Configuration, layout: str, families: dict[tuple[str, int, int], str]
) -> Choice | None:  # fmt: skip
    """Return the part of a configuration that determines the order; None if its kernel is unknown."""
    algorithm, tile, split, _, swizzle, custom, stages, _, cluster = configuration
    if algorithm == NVJET:
        return nvjet(split)
    if algorithm in CUTLASS:
        return Choice(CUTLASS[0], 0, split, 2 * (split > 1), 0, STAGE_DEPTHS[stages], "cutlass_80_s1688")
    if algorithm == XMMA and split < 0:  # a segment-K kernel is launched if tiles have to be cut
        return Choice(XMMA, tile, 0, 0, cluster, swizzle, "xmma_segment_k")
    family = families.get((layout, algorithm, custom))
    if algorithm == XMMA or (family == "xmma_sm80" and split == 1):
        return Choice(XMMA, 0, 1, 0, 0, 0, "xmma_sm90")
    return Choice(algorithm, 0, split, 0, custom, 0, family) if family else None


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


def fit_tree(name: str, rows: NDArray[np.int32], choices: Sequence[Choice], line: int) -> FittedTree:
    """Fit one tree to rows of kind, m, n, k, choice and chunk."""
    from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-not-found,import-untyped,unused-ignore]

    is_nvjet = not name.endswith(" other")
    numbers = np.array([choice.split_k if is_nvjet else place for place, choice in enumerate(choices)])
    seen = features(rows[:, 1], rows[:, 2], rows[:, 3], line)
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
