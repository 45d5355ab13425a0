"""Query all that the library reveals about a call: the attributes of its configuration, and the kernels it launches.

`launches.npz` has one row for each question, with the columns `COLUMNS`; a kernel is an index into the names in the
header. The questions are random shapes, and the layers for which the table has segment-K kernels, because predicting
these also needs the tile, the cluster and the swizzle. Nothing runs on the GPU.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.choices.answers import shapes as wide_shapes
from warpfrag.blas.cublas.choice_table import NVJET, Choice, ChoiceRun, Choices, LayerKind, ProductKind, built_in
from warpfrag.blas.cublas.cublaslt import Configuration, KernelLaunch, Question, choice_of, library
from warpfrag.errors import NoGpu, NotModelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

SECONDS = float(os.environ.get("CHOICES_SECONDS", "130"))
MAX_ROWS = 90_000
"""The maximum number of rows that a process queries."""
CHUNK = 50
COLUMNS = (
    "kind", "batch", "m", "n", "k", "chunk",
    "algorithm", "tile", "split_k", "reduction", "swizzle", "custom", "stages", "inner", "cluster",
    "kernel", "grid_x", "grid_y", "grid_z", "block", "second", "launches",
)  # fmt: skip
LAYOUTS = ("nt", "nn", "tn")
KINDS = (
    *(ProductKind("matmul", name, layout) for name in ("bf16", "f16", "tf32", "f32") for layout in LAYOUTS),
    *(ProductKind("linear", name, "nt") for name in ("bf16", "f16", "tf32", "f32")),
    *(ProductKind("bmm", name, layout) for name in ("bf16", "f16", "tf32", "f32") for layout in LAYOUTS),
    *(ProductKind(f"scaled_mm {how}", "e4m3", "nt") for how in ("slow", "fast", "bias")),
)
SHARES = {"tf32": 3, "f16": 2}
"""The number of chunks that are queried for a type, if not one."""
UNITS = {"bf16": 8, "f16": 8, "tf32": 4, "f32": 4, "e4m3": 16}
MAX_WORK, MAX_WEIGHT = 1 << 36, 1 << 27
INTERIOR = 6
"""The number of values of m inside a run of the table at which its layer is queried."""


def shapes(chunk: int, kind: ProductKind) -> Iterator[tuple[int, int, int, int]]:
    """Yield random (batch, m, n, k) for a chunk: log-uniform and aligned, thin, or unaligned."""
    random = np.random.default_rng([47, chunk, KINDS.index(kind)])
    if chunk % 6 == 5:
        layer = LayerKind(kind.call, kind.type, kind.layout)
        yield from ((1, *shape) for shape in wide_shapes(1000 + chunk, layer)[:CHUNK])
        return
    unit, done = UNITS[kind.type], 0
    while done < CHUNK:
        m, n, k = (int(np.exp(random.uniform(0, np.log(end)))) for end in (8192, 32768, 32768))
        if chunk % 6 == 4:
            m, n = (m % 33 + 1, n) if random.integers(2) else (m, n % 33 + 1)
        else:
            n, k = max(8, n), max(64, k)
        if chunk % 6 != 4 or kind.type == "e4m3":
            n, k = (max(unit, extent // unit * unit) for extent in (n, k))
            m = max(unit, m // unit * unit) if kind.layout == "tn" else m
        batch = 1
        if kind.call == "bmm":
            batch = int(np.exp(random.uniform(np.log(2), np.log(257))))
            m, n, k = (min(extent, 2048) for extent in (m, n, k))
        if n * k <= MAX_WEIGHT and m * n * k * batch <= MAX_WORK:
            done += 1
            yield batch, m, n, k


class Asker:
    """The answers that one process has collected."""

    def __init__(self) -> None:
        """Create a collection without answers."""
        self.names: dict[str, int] = {}
        self.rows: list[list[int]] = []

    def ask(self, kind: ProductKind, batch: int, shape: tuple[int, int, int], chunk: int) -> list[int]:
        """Query the library about a shape; append the answer as a row and return it."""
        question = Question(kind.call, kind.type, kind.layout, *shape, batch)
        try:
            configuration = library().configuration(question)
            is_nvjet = configuration is not None and configuration.algorithm == NVJET
            launches = () if is_nvjet else library().kernels(question)
        except (NoGpu, NotModelled):
            configuration, launches = None, ()
        numbers = [-1] * 9 if configuration is None else list(configuration)
        ids = [self.names.setdefault(launch.name, len(self.names)) for launch in launches]
        first = [ids[0], *launches[0].grid, launches[0].block] if launches else [-1, 0, 0, 0, 0]
        second = ids[1] if len(ids) > 1 else -1
        row = [KINDS.index(kind._replace(batch=1)), batch, *shape, chunk, *numbers, *first, second, len(ids)]
        self.rows.append(row)
        return row


def ask_layer(
    asker: Asker, kind: ProductKind, number: int, n: int, k: int, runs: list[tuple[int, int]]
) -> None:  # fmt: skip
    """Query a layer at the ends of its segment-K runs, inside them, and at each m where the configuration changes."""
    known: dict[int, tuple[int, ...]] = {}

    def ask(m: int) -> tuple[int, ...]:
        if m not in known:
            row = asker.ask(kind, 1, (m, n, k), -1 - number)
            known[m] = tuple(row[6:16])
        return known[m]

    for first, last in runs:
        points = sorted({first, last, *(first + (last - first) * i // (INTERIOR + 1) for i in range(1, INTERIOR + 1))})
        for low, high in pairwise(points):
            locate(ask, low, high)
        ask(first)


def locate(ask: Callable[[int], tuple[int, ...]], low: int, high: int) -> None:
    """Query until the two adjacent values of m at each visible change of the answer are known."""
    if ask(low) != ask(high) and high - low > 1:
        middle = (low + high) // 2
        locate(ask, low, middle)
        locate(ask, middle, high)


def segment_runs() -> list[tuple[ProductKind, int, int, list[tuple[int, int]]]]:
    """Return the layers of the table with segment-K kernels, and the runs of m that have them."""
    table = built_in("H200")
    found = []
    for kind, n, k in table.listed:
        before, runs = 0, []
        for last, choice in table.runs(kind, n, k) or []:
            if choice.kernel.startswith("xmma_segment_k"):
                runs.append((before + 1, last))
            before = last
        if runs:
            found.append((ProductKind(*kind), n, k, runs))
    return found


def _ask_some(worker: int, workers: int, end: float) -> tuple[dict[str, int], NDArray[np.int32]]:
    """Return one process's answers: first its layers, then random shapes until the time is up."""
    asker = Asker()
    try:
        layers = segment_runs()
        for number in range(worker, len(layers), workers):
            if time.time() > end:
                break
            kind, n, k, runs = layers[number]
            ask_layer(asker, kind, number, n, k, runs)
        chunk = worker
        while time.time() < end and len(asker.rows) < MAX_ROWS:
            for kind in KINDS:
                share = SHARES.get(kind.type, 1) if kind.call == "matmul" else 1
                for part in range(share):
                    number = chunk * share + part
                    for batch, *shape in shapes(number, kind):
                        asker.ask(kind, batch, (shape[0], shape[1], shape[2]), number)
            chunk += workers
    except Exception as error:  # noqa: BLE001 (the answers so far are worth keeping)
        asker.names.setdefault(f"error: {type(error).__name__}: {error}"[:300], len(asker.names))
    return asker.names, np.array(asker.rows, np.int32).reshape(-1, len(COLUMNS))


def launches(folder: Path, seconds: float = SECONDS) -> None:
    """Query the library on all cores but two, and write launches*.npz of at most 500,000 rows each."""
    workers = max(1, (os.cpu_count() or 1) - 2)
    end = time.time() + seconds
    with ProcessPoolExecutor(workers) as pool:
        parts = [job.result() for job in [pool.submit(_ask_some, each, workers, end) for each in range(workers)]]
    names, rows = merge(parts)
    folder.mkdir(parents=True, exist_ok=True)
    for place, first in enumerate(range(0, max(1, len(rows)), 500_000)):
        save(folder / f"launches{place}.npz", names, rows[first : first + 500_000])


def merge(parts: list[tuple[dict[str, int], NDArray[np.int32]]]) -> tuple[list[str], NDArray[np.int32]]:
    """Return all kernel names, and all rows with kernel numbers that refer to these names."""
    numbers: dict[str, int] = {}
    merged = []
    for names, rows in parts:
        mapped = np.array([numbers.setdefault(name, len(numbers)) for name in names] + [-1], np.int32)
        for column in ("kernel", "second"):
            rows[:, COLUMNS.index(column)] = mapped[rows[:, COLUMNS.index(column)]]
        merged.append(rows)
    return list(numbers), np.concatenate(merged)


def save(path: Path, names: list[str], rows: NDArray[np.int32]) -> None:
    """Write rows, column by column, which compresses better."""
    header: dict[str, Any] = {"names": names, "kinds": KINDS, "columns": COLUMNS}
    np.savez_compressed(
        path, rows=np.ascontiguousarray(rows.T), header=np.frombuffer(json.dumps(header).encode(), np.uint8)
    )


def load(folder: Path) -> tuple[list[str], NDArray[np.int32]]:
    """Return the names of kernels and the rows of launches*.npz."""
    names: list[str] = []
    rows = []
    for path in sorted(folder.glob("launches*.npz")):
        with np.load(path) as stored:
            names = json.loads(bytes(stored["header"]))["names"]
            rows.append(stored["rows"].T)
    return names, np.concatenate(rows)


def choice_of_row(fact: dict[str, int], names: list[str], kind: ProductKind) -> Choice:
    """Return the choice in a row, which is a mapping with the keys `COLUMNS`."""
    numbers = [fact[name] for name in COLUMNS[6:15]]
    configuration = None if numbers[0] < 0 else Configuration(*numbers)
    grid = fact["grid_x"], fact["grid_y"], fact["grid_z"]
    listed = [] if fact["kernel"] < 0 else [KernelLaunch(names[fact["kernel"]], grid, fact["block"])]
    return choice_of(configuration, listed, (fact["m"], fact["n"], fact["k"]), fact["batch"], kind.layout)


def table(folder: Path) -> None:
    """Write choices_h200.npz: the package's table, with the tiles, clusters and swizzles of its segment-K kernels."""
    names, rows = load(folder)
    asked: dict[tuple[int, int, int], dict[int, Choice]] = {}
    for row in rows[rows[:, COLUMNS.index("chunk")] < 0].tolist():
        kind = KINDS[row[0]]
        choice = choice_of_row(dict(zip(COLUMNS, row, strict=True)), names, kind)
        asked.setdefault((row[0], row[3], row[4]), {})[row[2]] = choice
    old = built_in("H200")
    runs = {}
    for layer, n, k in old.listed:
        known = asked.get((KINDS.index(ProductKind(*layer)), n, k), {}) if ProductKind(*layer) in KINDS else {}
        found, before = [], 0
        for run in old.runs(layer, n, k) or []:
            inside = {m: choice for m, choice in sorted(known.items()) if before < m <= run.last}
            if run.choice.kernel.startswith("xmma_segment_k") and inside:
                found += list(refined(inside, run.last))
            else:
                found.append(run)
            before = run.last
        runs[layer, n, k] = found
    made = Choices.build(runs, gpu=old.gpu, library=old.library, torch=old.torch, settings=old.settings)
    made.save(folder / "choices_h200.npz")


def refined(asked: dict[int, Choice], last: int) -> Iterator[ChoiceRun]:
    """Yield runs of m with the same choice; its split count is kept only if it is the same in the whole run."""
    points = list(asked.items())
    start = 0
    for place, (m, choice) in enumerate(points):
        is_end = place + 1 == len(points)
        if is_end or points[place + 1][1]._replace(split_k=0) != choice._replace(split_k=0):
            counts = {each.split_k for _, each in points[start : place + 1]}
            yield ChoiceRun(last if is_end else m, choice if len(counts) == 1 else choice._replace(split_k=0))
            start = place + 1
