"""Record which kernels this machine's cuBLAS selects for a list of layers.

cuBLAS is queried for every m up to `DENSE`, then for multiples of `STEP`. If its choices for two consecutive queries
differ, a binary search finds the m at which the choice changes. The file is written after every layer, so a survey can
be killed and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from os import PathLike
from pathlib import Path

from warpfrag.blas.cublas.choice_table import MAX_M, Choice, ChoiceRun, Choices, LayerKind
from warpfrag.blas.cublas.cublaslt import Question, library
from warpfrag.blas.cublas.predict_order import extent, extents, product_kind
from warpfrag.blas.find_order import Progress
from warpfrag.errors import FileError, InvalidOperand, NotModelled, quote
from warpfrag.files import read_toml

DENSE, STEP = 1024, 16
TYPES = ("bf16", "f16", "tf32", "e4m3")
LAYOUTS = ("nt",)


@dataclass(frozen=True)
class SurveyPlan:
    """The queries of a survey: the types of GEMMs, the named layers, and the largest m."""

    kinds: tuple[LayerKind, ...]
    layers: Mapping[str, tuple[int, int]]
    m: int

    @classmethod
    def read(cls, path: str | PathLike[str]) -> SurveyPlan:
        """Read a TOML file: [layers] with name = [n, k]; optionally types, layouts, biases, fast_accumulation and m."""
        table = read_toml(path)
        known = {"layers", "types", "layouts", "biases", "fast_accumulation", "m"}
        if set(table) - known:
            raise InvalidOperand(
                f"{path}: expected the keys {', '.join(sorted(known))}; got {', '.join(sorted(set(table) - known))}"
            )
        layers = {
            name: extents(f"{path}: layer {quote(name)}", pair) for name, pair in dict(table.get("layers", {})).items()
        }
        if not layers:
            raise InvalidOperand(
                f"{path}: expected a table [layers] with the n and k of each weight, such as qkv = [6144, 4096]"
            )
        m = extent(f"{path}: m", table.get("m", 16384), MAX_M)
        kinds = [
            product_kind(name, layout, bias=bias, fast_accumulation=fast).layer(1)
            for name in table.get("types", TYPES)
            for layout in table.get("layouts", LAYOUTS)
            for bias in table.get("biases", [False])
            for fast in (table.get("fast_accumulation", [False]) if name == "e4m3" else [False])
        ]
        return cls(tuple(dict.fromkeys(kind for kind in kinds if not kind.layout.startswith("tn"))), layers, m)


def find_runs(choose: Callable[[int], Choice], last: int) -> list[ChoiceRun]:
    """Return the ranges of m from 1 to `last` in which the choice is the same."""
    points = [*range(1, min(DENSE, last) + 1), *range(DENSE + STEP, last + 1, STEP)]
    if points[-1] != last:
        points.append(last)
    return [*_changes(choose, points), ChoiceRun(last, choose(last))]


def _changes(choose: Callable[[int], Choice], points: list[int]) -> Iterator[ChoiceRun]:
    for start, stop in pairwise(points):
        first = start
        while choose(first) != choose(stop):
            low, high = first, stop
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if choose(middle) == choose(first) else (low, middle)
            yield ChoiceRun(low, choose(first))
            first = high


def survey(plan: SurveyPlan, path: str | PathLike[str], *, report: Progress | None = None) -> Choices:
    """Query cuBLAS for every layer that the file at `path` does not yet contain, and write the file."""
    cublas = library()
    gpu, version = cublas.gpu.removeprefix("NVIDIA "), f"cuBLASLt {cublas.version}"
    runs: dict[tuple[LayerKind, int, int], list[ChoiceRun]] = {}
    if Path(path).exists():
        recorded = Choices.load(path)
        if (recorded.gpu, recorded.library) != (gpu, version):
            raise FileError(
                f"{path} has the choices of {recorded.source}, but this is {version} on an {gpu}; choose another file"
            )
        runs = {layer: recorded.runs(*layer) or [] for layer in recorded.listed}
    layers = [(kind, *pair) for kind in plan.kinds for pair in dict.fromkeys(plan.layers.values())]
    # PyTorch supports fp8 only if the extents are multiples of 16
    layers = [(kind, n, k) for kind, n, k in layers if kind.type != "e4m3" or n % 16 == k % 16 == 0]
    missing = [layer for layer in layers if layer not in runs or runs[layer][-1].last < plan.m]

    @cache
    def choose(kind: LayerKind, n: int, k: int, m: int) -> Choice:
        try:
            return cublas.choice(Question(*kind, m, n, k))
        except NotModelled:
            return Choice(0, 0, 0, 0, 0, 0, "none")

    def table() -> Choices:
        return Choices.build(runs, gpu=gpu, library=version, torch="")

    for done, (kind, n, k) in enumerate(missing):
        if report is not None:
            report(len(layers) - len(missing) + done, len(layers), f"{kind.call} {kind.type} {kind.layout} {n} x {k}")
        runs[kind, n, k] = find_runs(partial(choose, kind, n, k), plan.m)
        table().save(path)
    result = table()
    result.save(path)
    return result
