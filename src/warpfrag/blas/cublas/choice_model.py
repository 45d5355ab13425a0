"""Decision trees, fitted to a library's choices, that predict its choice for shapes that no table contains.

The features are the extents, the number of tiles of D for several tile sizes, how full their last wave on the GPU is,
the depth of K in lines, and the alignment of the extents. Each tree has an accuracy: the fraction of unseen shapes for
which it predicts all parameters that determine the order of additions.

On Hopper, cuBLAS uses nvjet kernels for every fp8 gemm, and for 16-bit gemms if all rows are whole vectors of 16
bytes; a tree then gives the split count. For other 16-bit gemms and for tf32, a tree gives the whole choice.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from io import BytesIO
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.cublas.choices import NVJET, Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, VECTOR
from warpfrag.errors import NotModelled

FILE = "choice_model_h200.npz"
MULTIPROCESSORS = 132
TILES = (
    (64, 8), (64, 16), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256), (256, 128),
    (192, 128), (128, 192),
)  # fmt: skip
"""The tile sizes for which the number of tiles is a feature."""
WAVES = ((64, 64), (128, 64), (128, 128), (256, 128))
MORE_WAVES = (*WAVES, (64, 128), (64, 256), (128, 256))


class ChoiceTree(NamedTuple):
    """A decision tree: a feature below the threshold leads left; a leaf has the index of a choice."""

    feature: NDArray[np.int8]
    threshold: NDArray[np.float32]
    left: NDArray[np.uint16]
    right: NDArray[np.uint16]
    chosen: NDArray[np.uint16]
    accuracy: float
    samples: int
    choices: tuple[Choice, ...]
    """The choices of the leaves; if empty, a leaf is nvjet's split count."""

    def find(self, seen: list[float]) -> Choice:
        """Return the choice for a gemm with these features."""
        place = 0
        while self.feature[place] >= 0:
            below = np.float32(seen[self.feature[place]]) <= self.threshold[place]
            place = int(self.left[place] if below else self.right[place])
        number = int(self.chosen[place])
        return self.choices[number] if self.choices else nvjet(number)


def nvjet(split_k: int) -> Choice:
    """Return the choice of the nvjet kernel with this split count."""
    return Choice(NVJET, 0, split_k, 2 if split_k > 1 else 0, 0, 0, "nvjet")


@cache
def trees() -> dict[str, ChoiceTree]:
    """Return the trees by gemm category, such as `matmul bf16 nt`."""
    return read_trees(files("warpfrag.blas.cublas").joinpath(FILE).read_bytes())


def read_trees(data: bytes) -> dict[str, ChoiceTree]:
    """Read the trees in a file: a header with their names, then the concatenated nodes of all trees."""
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        header = json.loads(bytes(stored["header"]))
        arrays = [stored[name] for name in ("feature", "threshold", "left", "right", "chosen")]
    named: dict[str, ChoiceTree] = {}
    first = 0
    for name, count, accuracy, samples, choices in header["trees"]:
        parts: list[Any] = [array[first : first + count] for array in arrays]
        leaves = tuple(Choice._make(choice) for choice in choices)
        named[name] = ChoiceTree._make([*parts, accuracy, samples, leaves])
        first += count
    return named


def features(m: int, n: int, k: int, line: int) -> list[float]:
    """Return the features of a gemm; `line` is the number of k elements in 128 bytes."""
    lines, columns = ceil(k / line), ceil(n / 64)
    counts = [ceil(n / across) * ceil(m / down) for across, down in TILES]
    waves = [ceil(n / across) * ceil(m / down) / MULTIPROCESSORS % 1 for across, down in WAVES]
    work = lines * columns * ceil(m / 64)
    rests = [k % 64, k % 128, n % 64, m % 64, m % 16, m % 8, n % 8, k % 8]
    tiles = [ceil(n / across) * ceil(m / down) for across, down in MORE_WAVES]
    more = [count / MULTIPROCESSORS % 1 for count in tiles[len(WAVES) :]]
    more += [ceil(count / MULTIPROCESSORS) for count in tiles] + [MULTIPROCESSORS // count for count in tiles]
    more += [m % 128, n % 128, m % 256, n % 256, k % 16, k % 32, m / n, k / (m * n) ** 0.5, m * n * k]
    return [m, n, k, lines, m * n, *counts, *waves, lines / columns, work, *rests, *more]


def is_vectors(kind: ProductKind, m: int, n: int, k: int) -> bool:
    """Return True if nvjet kernels support a gemm: 8 or 16 bits, and rows of whole 16-byte vectors."""
    pitches = (n, m if kind.layout == "tn" else k)
    return kind.type != "tf32" and not any(pitch * BYTES[kind.type] % VECTOR for pitch in pitches)


def choose(kind: ProductKind, m: int, n: int, k: int) -> tuple[Choice, float | None]:
    """Return the predicted choice for a gemm, and the accuracy of its tree, or None if it was not measured."""
    is_nvjet = is_vectors(kind, m, n, k)
    if kind.batch > 1 and is_nvjet:
        return nvjet(1), None
    call = {"linear": "matmul", "bmm": "matmul", "scaled_mm bias": "scaled_mm slow"}.get(kind.call, kind.call)
    name = f"{call} {kind.type} {kind.layout}" + ("" if is_nvjet else " other")
    if name not in trees():
        raise NotModelled(
            f"{kind.call} {kind.type} {kind.layout} {m} x {n} x {k}: fp8 rows must be multiples of 16 bytes"
        )
    tree = trees()[name]
    choice = tree.find(features(m, n, k, LINE // BYTES[kind.type]))
    if kind.batch > 1:
        return choice._replace(split_k=1), None
    return choice, tree.accuracy if kind.call == call else None
