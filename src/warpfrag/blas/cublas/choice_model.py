"""Networks and decision trees that predict cuBLAS's kernel choices for shapes that no table contains.

The features are the extents, the number of tiles of D for several tile sizes, how full their last wave is on the GPU,
the depth of K in 128-byte lines, and the alignment of the extents. The accuracy is the fraction of unseen shapes for
which all parameters that determine the order of additions are predicted.

On Hopper, cuBLAS uses nvjet kernels for every fp8 gemm, and for 16-bit gemms if all rows are whole vectors of 16 bytes;
one network predicts their split count, and another the choice for tf32. Trees predict the choice for all other gemms.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.cublas.choice_table import Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, VECTOR
from warpfrag.errors import NotModelled

FILE = "choice_model_h200.npz"
MULTIPROCESSORS = 132
TILES = np.array([
    (64, 8), (64, 16), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256), (256, 128),
    (192, 128), (128, 192),
])  # fmt: skip
"""Tile sizes; for each of them, the number of tiles in D is a feature."""
WAVES, MORE_WAVES, OTHERS = [3, 5, 6, 9], [4, 7, 8], [0, 1, 2, 10, 11]
"""Indices of tile sizes whose wave counts are features, in the order of the features."""
FITTED_N, FITTED_K = 8, 64
"""The smallest n and k to which the networks were fitted; n applies to tf32 only."""
SIZES, PARTS = np.array([8, 16, 32, 64, 128, 192, 256]), np.array([2, 3, 4, 5, 6, 8, 12, 16])
"""Tile extents and split counts; for each, the fill of the last tile or part is a feature."""


class ChoiceNetwork(NamedTuple):
    """A network whose inputs are the logarithms of the features and a flag for each type of gemm."""

    accuracies: dict[str, float]
    """The accuracy for each type of gemm, such as `matmul bf16 nt`."""
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]]
    choices: tuple[Choice, ...]

    def find(self, name: str, seen: NDArray[np.float32]) -> Choice:
        """Return the choice for a gemm with these features."""
        values = (np.append(np.log2(1 + seen), [kind == name for kind in self.accuracies]) - self.mean) / self.deviation
        for weights, biases in self.layers[:-1]:
            values = values @ weights + biases
            values = values * (0.5 + 0.5 * np.tanh(0.5 * values))
        return self.choices[int(np.argmax(values @ self.layers[-1][0] + self.layers[-1][1]))]


class ChoiceTree(NamedTuple):
    """A decision tree; values below a node's threshold lead to the left, and a leaf has the index of a choice."""

    feature: NDArray[np.int8]
    threshold: NDArray[np.float32]
    left: NDArray[np.uint16]
    right: NDArray[np.uint16]
    chosen: NDArray[np.uint16]
    accuracy: float
    choices: tuple[Choice, ...]

    def find(self, seen: NDArray[np.float32]) -> Choice:
        """Return the choice for a gemm with these features."""
        node = 0
        while self.feature[node] >= 0:
            node = int((self.left if seen[self.feature[node]] <= self.threshold[node] else self.right)[node])
        return self.choices[int(self.chosen[node])]


ChoiceModel: TypeAlias = "tuple[dict[str, ChoiceNetwork], dict[str, ChoiceTree]]"
"""The networks by name, `nvjet` and `tf32`, and the trees by type of gemm."""


@cache
def built_in_model() -> ChoiceModel:
    """Return the built-in model of cuBLAS on an H200."""
    return read_model(files("warpfrag.blas.cublas").joinpath(FILE).read_bytes())


def read_model(data: bytes) -> ChoiceModel:
    """Read a model file: a header, the arrays of each network, and the nodes of all trees."""
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = json.loads(bytes(arrays["header"]))
    networks, trees = {}, {}
    for name, accuracies, layers, choices in header["networks"]:
        numbers = [arrays[f"{name}{place}"].astype(np.float32) for place in range(2 + 2 * layers)]
        pairs = list(zip(numbers[2::2], numbers[3::2], strict=True))
        named = tuple(Choice._make(choice) for choice in choices)
        networks[name] = ChoiceNetwork(accuracies, numbers[0], numbers[1], pairs, named)
    first = 0
    for name, count, accuracy, choices in header["trees"]:
        parts: list[Any] = [arrays[field][first : first + count] for field in ChoiceTree._fields[:5]]
        trees[name] = ChoiceTree._make([*parts, accuracy, tuple(Choice._make(choice) for choice in choices)])
        first += count
    return networks, trees


def features(m: ArrayLike, n: ArrayLike, k: ArrayLike, line: ArrayLike) -> NDArray[np.float32]:
    """Return the features of gemms along a new last axis; `line` is the number of k elements in 128 bytes."""
    shapes = np.broadcast_arrays(*(np.asarray(extent, np.float64) for extent in (m, n, k, line)))
    m, n, k, line = (extent[..., None] for extent in shapes)
    lines, columns = np.ceil(k / line), np.ceil(n / 64)
    counts = np.ceil(n / TILES[:, 0]) * np.ceil(m / TILES[:, 1])
    full, waves = MULTIPROCESSORS // counts, counts / MULTIPROCESSORS
    sizes = [extent / size for extent, size in ((m, SIZES), (n, SIZES), (lines, PARTS))]
    listed = [
        m, n, k, lines, m * n, counts, waves[..., WAVES] % 1, lines / columns, lines * columns * np.ceil(m / 64),
        k % 64, k % 128, n % 64, m % 64, m % 16, m % 8, n % 8, k % 8, waves[..., MORE_WAVES] % 1,
        np.ceil(waves[..., WAVES + MORE_WAVES]), full[..., WAVES + MORE_WAVES], m % 128, n % 128, m % 256, n % 256,
        k % 16, k % 32, m / n, k / (m * n) ** 0.5, m * n * k, *(size / np.ceil(size) for size in sizes),
        waves[..., OTHERS] % 1, full[..., OTHERS],
    ]  # fmt: skip
    return np.concatenate(listed, axis=-1).astype(np.float32)


def is_vectors(kind: ProductKind, m: int, n: int, k: int) -> bool:
    """Return True if all rows of A and B are whole 16-byte vectors and, for tf32, neither n nor k is tiny."""
    pitches = (n, m if kind.layout == "tn" else k)
    is_fitted = kind.type != "tf32" or (n >= FITTED_N and k >= FITTED_K)
    return is_fitted and not any(pitch * BYTES[kind.type] % VECTOR for pitch in pitches)


def modelled_choice(kind: ProductKind, m: int, n: int, k: int) -> tuple[Choice, float | None]:
    """Return the predicted choice for a gemm, and the model's accuracy, or None if that was not measured."""
    call = {"linear": "matmul", "bmm": "matmul", "scaled_mm bias": "scaled_mm slow"}.get(kind.call, kind.call)
    name = f"{call} {kind.type} {kind.layout}"
    networks, trees = built_in_model()
    seen = features(m, n, k, LINE // BYTES[kind.type])
    is_aligned = is_vectors(kind, m, n, k)
    tree_name = name if is_aligned and kind.type != "tf32" else f"{name} other"
    if is_aligned and k >= FITTED_K and not k * BYTES[kind.type] % VECTOR:
        network = networks["tf32" if kind.type == "tf32" else "nvjet"]
        choice, accuracy = network.find(name, seen), network.accuracies[name]
    elif tree_name in trees:
        choice, accuracy = trees[tree_name].find(seen), trees[tree_name].accuracy
    else:
        raise NotModelled(f"{kind.call} {kind.type} {kind.layout} {m} x {n} x {k}: fp8 rows must be 16-byte multiples")
    if kind.batch > 1:
        return choice._replace(split_k=1), None
    return choice, accuracy if kind.call == call else None
