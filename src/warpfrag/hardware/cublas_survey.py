"""Record the kernels that this machine's cuBLAS selects for layers, in a file of choices.

Every m up to `DENSE` is queried, then multiples of `STEP`; between two that differ, a search finds the m at which the
choice changes. The file is written after every layer, so a survey that is killed can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path

from warpfrag.blas.cublas.choices import MAX_M, Choice, ChoiceRun, Choices, LayerKind
from warpfrag.blas.cublas.cublaslt import Question, library
from warpfrag.blas.cublas.predict_order import product_kind
from warpfrag.blas.find_order import Progress
from warpfrag.errors import FileError, InvalidOperand, NotModelled, quote
from warpfrag.files import read_toml

DENSE, STEP = 1024, 16
TYPES = ("bf16", "f16", "tf32", "e4m3")
LAYOUTS = ("nt",)


@dataclass(frozen=True)
class SurveyPlan:
    """The questions of a survey: types and layouts of gemms, layers by name, and the largest m."""

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
                f"{path}: expected {', '.join(sorted(known))}; got {', '.join(sorted(set(table) - known))}"
            )
        layers = {name: _pair(path, name, pair) for name, pair in dict(table.get("layers", {})).items()}
        if not layers:
            raise InvalidOperand(
                f"{path}: expected a table [layers] with lines such as qkv = [6144, 4096], n and k of a weight"
            )
        m = table.get("m", 16384)
        if isinstance(m, bool) or not isinstance(m, int) or not 1 <= m <= MAX_M:
            raise InvalidOperand(f"{path}: m is an integer from 1 to {MAX_M}, got {quote(m)}")
        kinds = [
            product_kind(name, layout, bias=bias, fast_accumulation=fast).layer(1)
            for name in table.get("types", TYPES)
            for layout in table.get("layouts", LAYOUTS)
            for bias in table.get("biases", [False])
            for fast in (table.get("fast_accumulation", [False]) if name == "e4m3" else [False])
        ]
        return cls(tuple(dict.fromkeys(kind for kind in kinds if not kind.layout.startswith("tn"))), layers, m)


def _pair(path: object, name: str, pair: object) -> tuple[int, int]:
    fits = isinstance(pair, list) and len(pair) == 2 and all(isinstance(extent, int) and extent > 0 for extent in pair)
    if not fits or not isinstance(pair, list):
        raise InvalidOperand(f"{path}: layer {quote(name)}: expected n and k, such as [6144, 4096]; got {quote(pair)}")
    return pair[0], pair[1]


def find_runs(choose: Callable[[int], Choice], last: int) -> list[ChoiceRun]:
    """Return the runs of m = 1..last: every m to DENSE, then multiples of STEP, and each change between two of them."""
    points = [*range(1, min(DENSE, last) + 1), *range(DENSE + STEP, last + 1, STEP)]
    if points[-1] != last:
        points.append(last)
    runs = list(_changes(choose, points))
    return [*runs, ChoiceRun(last, choose(last))]


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
    """Query every layer of a plan that the file does not have yet, and write the file."""
    asked = library()
    gpu, version = asked.gpu.removeprefix("NVIDIA "), f"cuBLASLt {asked.version}"
    runs: dict[tuple[LayerKind, int, int], list[ChoiceRun]] = {}
    if Path(path).exists():
        before = Choices.load(path)
        if (before.gpu, before.library) != (gpu, version):
            raise FileError(
                f"{path} has choices of {before.source}, and this is {version} on an {gpu}: name another file"
            )
        runs = {layer: before.runs(*layer) or [] for layer in before.listed}
    wanted = [(kind, *pair) for kind in plan.kinds for pair in dict.fromkeys(plan.layers.values())]
    wanted = [layer for layer in wanted if _is_taken(*layer)]
    missing = [layer for layer in wanted if layer not in runs or runs[layer][-1].last < plan.m]

    def table() -> Choices:
        return Choices.build(runs, gpu=gpu, library=version, torch="")

    for done, (kind, n, k) in enumerate(missing):
        if report is not None:
            report(len(wanted) - len(missing) + done, len(wanted), f"{kind.call} {kind.type} {kind.layout} {n} x {k}")
        memo: dict[int, Choice] = {}

        def choose(m: int, kind: LayerKind = kind, n: int = n, k: int = k, memo: dict[int, Choice] = memo) -> Choice:
            if m not in memo:
                question = Question(kind.call, kind.type, kind.layout, m, n, k)
                try:
                    memo[m] = asked.choice(question)
                except NotModelled:
                    memo[m] = Choice(0, 0, 0, 0, 0, 0, "none")
            return memo[m]

        runs[kind, n, k] = find_runs(choose, plan.m)
        table().save(path)
    result = table()
    result.save(path)
    return result


def _is_taken(kind: LayerKind, n: int, k: int) -> bool:
    """Return True if PyTorch supports this gemm; fp8 needs rows of whole vectors."""
    return kind.type != "e4m3" or (n % 16 == 0 and k % 16 == 0)
