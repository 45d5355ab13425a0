"""Kernels that the library selects for log-uniform shapes: the data that the model of the choice is fitted on.

`answers.npz` has one row for each answer: the number of a kind, m, n, k, the number of a choice, and the chunk of
shapes that it belongs to. Chunks whose number is a multiple of `HELD_OUT` are for testing.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warpfrag.blas.cublas.choices import Choice, LayerKind
from warpfrag.blas.cublas.cublaslt import Question, library
from warpfrag.errors import NotModelled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SECONDS, CHUNK = 75, 200
HELD_OUT = 10
NO_CHOICE = Choice(0, 0, 0, 0, 0, 0, "none")
KINDS = (
    *(LayerKind("matmul", name, layout) for name in ("bf16", "f16", "tf32") for layout in ("nt", "nn", "tn")),
    LayerKind("scaled_mm slow", "e4m3", "nt"), LayerKind("scaled_mm fast", "e4m3", "nt"),
)  # fmt: skip


class Answers(NamedTuple):
    """Shapes and the kernels chosen for them."""

    rows: NDArray[np.int32]
    """Kind, m, n, k, choice, chunk."""
    choices: tuple[Choice, ...]

    def save(self, path: Path) -> None:
        """Write all answers to one file."""
        header = json.dumps({"kinds": KINDS, "choices": self.choices}).encode()
        np.savez_compressed(path, rows=self.rows, header=np.frombuffer(header, np.uint8))

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Read a file that `save` wrote."""
        with np.load(path) as stored:
            header = json.loads(bytes(stored["header"]))
            return cls(stored["rows"], tuple(Choice._make(choice) for choice in header["choices"]))


def shapes(chunk: int, kind: LayerKind) -> list[tuple[int, int, int]]:
    """Return log-uniform m, n and k; half of n and k are multiples of 64, a third are multiples of 8."""
    random = np.random.default_rng([30, chunk])
    m, n, k = (
        np.exp(random.uniform(np.log(low), np.log(high), CHUNK)).astype(int)
        for low, high in ((1, 16384), (4, 65536), (16, 65536))
    )
    n, k = (_aligned(extent, random.uniform(size=CHUNK)) for extent in (n, k))
    if kind.type == "e4m3":
        n, k = (np.maximum(16, extent // 16 * 16) for extent in (n, k))
    return [tuple(map(int, shape)) for shape in zip(m, n, k, strict=True)]  # type: ignore[misc] # of three


def _aligned(extent: NDArray[np.int_], share: NDArray[np.float64]) -> NDArray[np.int_]:
    by_line, by_vector = np.maximum(64, extent // 64 * 64), np.maximum(8, extent // 8 * 8)
    return np.where(share < 0.5, by_line, np.where(share < 0.85, by_vector, extent))


def choose(kind: LayerKind, m: int, n: int, k: int) -> Choice:
    """Return the kernel that this machine's library selects for a gemm."""
    try:
        return library().choice(Question(kind.call, kind.type, kind.layout, m, n, k))
    except NotModelled:
        return NO_CHOICE


def _ask_some(worker: int, workers: int, seconds: float) -> list[tuple[int, int, int, int, Choice, int]]:
    """Return one process's answers: chunks worker, worker + workers, ... until the time is up."""
    found = []
    chunk, end = worker, time.monotonic() + seconds
    while time.monotonic() < end:
        for number, kind in enumerate(KINDS):
            found += [(number, *shape, choose(kind, *shape), chunk) for shape in shapes(chunk, kind)]
        chunk += workers
    return found


def ask(folder: Path, seconds: float = SECONDS) -> None:
    """Query the library on every core and write answers.npz."""
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(_ask_some, worker, workers, seconds) for worker in range(workers)]
        answers = [answer for job in jobs for answer in job.result()]
    folder.mkdir(parents=True, exist_ok=True)
    gather(answers).save(folder / "answers.npz")


def gather(answers: list[tuple[int, int, int, int, Choice, int]]) -> Answers:
    """Combine the answers, numbering the choices."""
    numbers: dict[Choice, int] = {}
    rows = [
        (kind, m, n, k, numbers.setdefault(choice, len(numbers)), chunk) for kind, m, n, k, choice, chunk in answers
    ]
    return Answers(np.array(rows, np.int32).reshape(-1, 6), tuple(numbers))
