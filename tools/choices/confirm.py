"""Query the library again for random m of every layer in the wheel's table, to find wrong ranges.

For each kind, `confirmed.json` has the number of layers and of values of m that were queried, the number of choices
that differ, and a list of these.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from tools.choices.answers import choose
from warpfrag.blas.cublas.choice_table import built_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from warpfrag.blas.cublas.choice_table import Choice, Choices, LayerKind

GPU, COUNT = "H200", 200


def differing(
    table: Choices, number: int, count: int, asked: Callable[[LayerKind, int, int, int], Choice]
) -> list[int]:
    """Return the m, among `count` random ones, for which the library's choice differs from the table."""
    kind, n, k = table.listed[number]
    runs = table.runs(kind, n, k) or []
    ends = [run.last for run in runs]
    tried = np.random.default_rng([9, number]).integers(1, ends[-1] + 1, count).tolist()
    return [m for m in tried if asked(kind, m, n, k) != runs[bisect_left(ends, m)].choice]


def _confirm_some(numbers: Sequence[int]) -> list[tuple[int, list[int]]]:
    table = built_in(GPU)
    return [(number, differing(table, number, COUNT, choose)) for number in numbers]


def confirm(folder: Path) -> None:
    """Query the library on every core and write confirmed.json."""
    listed = built_in(GPU).listed
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        parts = pool.map(_confirm_some, [range(worker, len(listed), workers) for worker in range(workers)])
        found = dict(pair for part in parts for pair in part)
    layers = Counter(" ".join(kind) for kind, _, _ in listed)
    wrong: Counter[str] = Counter()
    for number, tried in found.items():
        wrong[" ".join(listed[number][0])] += len(tried)
    report = {
        "kinds": {
            kind: {"layers": count, "asked": count * COUNT, "differ": wrong[kind]} for kind, count in layers.items()
        },
        "differ": [[*listed[number], tried] for number, tried in sorted(found.items()) if tried],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "confirmed.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
