"""Decision trees, fitted to a library's choices, that predict its choice for shapes outside the tables.

The features are the extents, the number of tiles of D for several tile sizes, the occupancy of the last wave on the
GPU, the depth of K in lines, and the alignment of the extents. The accuracy of a tree is the fraction of unseen shapes
for which it predicts all parameters that determine the order of additions.

On Hopper, cuBLAS uses nvjet kernels for every fp8 gemm, and for 16-bit gemms if all rows are whole vectors of 16
bytes; a tree then gives the split count. For other 16-bit gemms and for tf32, a tree gives the whole choice.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.blas.cublas.choices import Choice, ProductKind
from warpfrag.blas.cublas.kernel_orders import BYTES, LINE, VECTOR
from warpfrag.errors import NotModelled

FILE = "choice_model_h200.npz"
MULTIPROCESSORS = 132
TILES = np.array([
    (64, 8), (64, 16), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (128, 256), (256, 128),
    (192, 128), (128, 192),
])  # fmt: skip
"""The tile sizes for which the number of tiles is a feature."""
WAVES, MORE_WAVES, OTHERS = [3, 5, 6, 9], [4, 7, 8], [0, 1, 2, 10, 11]
"""Their indices, in the order in which their waves are features."""
SIZES, PARTS = np.array([8, 16, 32, 64, 128, 192, 256]), np.array([2, 3, 4, 5, 6, 8, 12, 16])
"""Tile extents and split counts: the used share of the last tile or part is a feature."""


class ChoiceTree(NamedTuple):
    """A decision tree: a feature below the threshold leads left; a leaf has the index of a choice."""

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


@cache
def trees() -> dict[str, ChoiceTree]:
    """Return the trees by gemm category, such as `matmul bf16 nt`."""
    return read_trees(files("warpfrag.blas.cublas").joinpath(FILE).read_bytes())


def read_trees(data: bytes) -> dict[str, ChoiceTree]:
    """Read the trees in a file: a header with their names, then the concatenated nodes of all trees."""
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        header = json.loads(bytes(stored["header"]))
        arrays = [stored[name] for name in ChoiceTree._fields[:5]]
    named: dict[str, ChoiceTree] = {}
    first = 0
    for name, count, accuracy, choices in header["trees"]:
        parts: list[Any] = [array[first : first + count] for array in arrays]
        named[name] = ChoiceTree._make([*parts, accuracy, tuple(Choice._make(choice) for choice in choices)])
        first += count
    return named


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
    """Return True if nvjet kernels support a gemm: 8 or 16 bits, and rows of whole 16-byte vectors."""
    pitches = (n, m if kind.layout == "tn" else k)
    return kind.type != "tf32" and not any(pitch * BYTES[kind.type] % VECTOR for pitch in pitches)


def choose(kind: ProductKind, m: int, n: int, k: int) -> tuple[Choice, float | None]:
    """Return the predicted choice for a gemm, and the accuracy of its tree, or None if it was not measured."""
    call = {"linear": "matmul", "bmm": "matmul", "scaled_mm bias": "scaled_mm slow"}.get(kind.call, kind.call)
    name = f"{call} {kind.type} {kind.layout}" + ("" if is_vectors(kind, m, n, k) else " other")
    if name not in trees():
        raise NotModelled(
            f"{kind.call} {kind.type} {kind.layout} {m} x {n} x {k}: fp8 rows must be multiples of 16 bytes"
        )
    tree = trees()[name]
    choice = tree.find(features(m, n, k, LINE // BYTES[kind.type]))
    if kind.batch > 1:
        return choice._replace(split_k=1), None
    return choice, tree.accuracy if kind.call == call else None
