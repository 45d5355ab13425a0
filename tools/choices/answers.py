"""Query the configurations that the library selects for log-uniform shapes, to which the choice model is fitted.

Each file answers*.npz has one row for each answer: the number of a kind, m, n, k, the number of a configuration, and
the chunk of shapes that it belongs to. Chunks whose number is a multiple of `HELD_OUT` are for testing.

The shapes have the same distribution as in the blind test. 16-bit and fp8 kernels have never split K when K is short or
D has many tiles, so only a few such shapes are queried.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.blas.cublas.choice_table import Choice, LayerKind
from warpfrag.blas.cublas.cublaslt import Configuration, Question, library
from warpfrag.errors import NoGpu, NotModelled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SECONDS, CHUNK = float(os.environ.get("CHOICES_SECONDS", "75")), 200
HELD_OUT = 10
MAX_ROWS = 1_500_000
"""The maximum number of rows in a file."""
NO_CHOICE = Choice(0, 0, 0, 0, 0, 0, "none")
NO_ANSWER = Configuration(*[-1] * 9)
LAYOUTS = ("nt", "nn", "tn")
KINDS = (
    *(LayerKind("matmul", name, layout) for name in ("bf16", "f16", "tf32") for layout in LAYOUTS),
    LayerKind("scaled_mm slow", "e4m3", "nt"), LayerKind("scaled_mm fast", "e4m3", "nt"),
)  # fmt: skip
SHARES = {"bf16": 2, "f16": 2, "tf32": 3}
"""The number of chunks that are queried for a type, if not one."""
UNITS = {"bf16": 8, "f16": 8, "tf32": 4, "e4m3": 16}
LARGEST, LARGEST_WEIGHT = 1 << 35, 1 << 26
"""The maximum number of multiply-adds in a gemm, and of elements in B."""
SHORT_K, MANY_TILES, KEPT = 448, 640, 0.06
"""Shapes with K below the first limit, or more 64 x 64 tiles than the second, are kept with this probability."""


class Answers(NamedTuple):
    """Shapes and the configurations chosen for them."""

    rows: NDArray[np.int32]
    """Kind, m, n, k, configuration, chunk."""
    configurations: tuple[Configuration, ...]

    def save(self, path: Path) -> None:
        """Write all answers to one file, column by column, which compresses better."""
        header = json.dumps({"kinds": KINDS, "configurations": self.configurations}).encode()
        rows = np.ascontiguousarray(self.rows.T)
        np.savez_compressed(path, rows=rows, header=np.frombuffer(header, np.uint8))

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Read a file that `save` wrote."""
        with np.load(path) as stored:
            header = json.loads(bytes(stored["header"]))
            return cls(stored["rows"].T, tuple(Configuration(*each) for each in header["configurations"]))


def shapes(chunk: int, kind: LayerKind) -> list[tuple[int, int, int]]:
    """Return log-uniform m, n and k, with the limits of the blind test."""
    random = np.random.default_rng([30, chunk, *map(ord, "".join(kind))])
    unit = UNITS[kind.type]
    found: list[tuple[int, int, int]] = []
    while len(found) < CHUNK:
        m, n, k = (
            np.exp(random.uniform(np.log(low), np.log(high), 4 * CHUNK)).astype(np.int64)
            for low, high in ((1, 8192), (8, 32768), (64, 32768))
        )
        n, k = (np.maximum(unit, extent // unit * unit) for extent in (n, k))
        m = np.maximum(unit, m // unit * unit) if kind.layout == "tn" else m
        is_taken = (n * k <= LARGEST_WEIGHT) & (m * n * k <= LARGEST)
        if kind.type != "tf32":
            can_split = (k > SHORT_K) & (-(-m // 64) * -(-n // 64) <= MANY_TILES)
            is_taken &= can_split | (random.uniform(size=len(m)) < KEPT)
        found += [(int(a), int(b), int(c)) for a, b, c in zip(m[is_taken], n[is_taken], k[is_taken], strict=True)]
    return found[:CHUNK]


def choose(kind: LayerKind, m: int, n: int, k: int) -> Choice:
    """Return the kernel that this machine's library selects for a gemm."""
    try:
        return library().choice(Question(kind.call, kind.type, kind.layout, m, n, k))
    except NotModelled:
        return NO_CHOICE


def _ask_some(worker: int, workers: int, end: float) -> Answers:
    """Return one process's answers: chunks worker, worker + workers, ... until the time is up."""
    found = []
    chunk = worker
    while time.time() < end:
        for number, kind in enumerate(KINDS):
            share = SHARES.get(kind.type, 1)
            for part in range(chunk * share, chunk * share + share):
                for m, n, k in shapes(part, kind):
                    try:
                        answer = library().configuration(Question(kind.call, kind.type, kind.layout, m, n, k))
                    except NoGpu:
                        answer = None
                    found.append((number, m, n, k, answer or NO_ANSWER, part))
        chunk += workers
    return gather(found)


def ask(folder: Path, seconds: float = SECONDS) -> None:
    """Query the library on every core and write answers*.npz."""
    workers = os.cpu_count() or 1
    end = time.time() + seconds
    with ProcessPoolExecutor(workers) as pool:
        parts = [job.result() for job in [pool.submit(_ask_some, each, workers, end) for each in range(workers)]]
    numbers: dict[Configuration, int] = {}
    merged = []
    for rows, configurations in parts:
        mapped = np.array([numbers.setdefault(each, len(numbers)) for each in configurations], np.int32)
        rows[:, 4] = mapped[rows[:, 4]]
        merged.append(rows)
    rows = np.concatenate(merged)
    folder.mkdir(parents=True, exist_ok=True)
    for place, first in enumerate(range(0, len(rows), MAX_ROWS)):
        Answers(rows[first : first + MAX_ROWS], tuple(numbers)).save(folder / f"answers{place}.npz")


def gather(answers: list[tuple[int, int, int, int, Configuration, int]]) -> Answers:
    """Combine the answers, numbering the configurations."""
    numbers: dict[Configuration, int] = {}
    rows = [
        (kind, m, n, k, numbers.setdefault(answer, len(numbers)), chunk) for kind, m, n, k, answer, chunk in answers
    ]
    return Answers(np.array(rows, np.int32).reshape(-1, 6), tuple(numbers))
