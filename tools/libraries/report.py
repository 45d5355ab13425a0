"""Write the results into the sources: a table, a report, and outputs for the tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.libraries.cases import COLUMNS, ROWS, Case
from tools.libraries.explain import BIAS_FIRST
from warpfrag.blas.order import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray


def short_name(kernel: str) -> str:
    """Return a kernel's name without C++ decoration."""
    name = kernel.removeprefix("void ").removeprefix("cutlass::Kernel2<")
    for mark in ("(", ">", "<"):
        name = name.partition(mark)[0]
    return name.removeprefix("cublasLt::")


TABLE_COLUMNS = [
    *("call", "type", "layout", "batch", "m", "n", "k"),
    *(part.name for part in fields(Order)),
    "kernel",
]


@dataclass(frozen=True)
class Result:
    """A case with its kernels and its explanation."""

    case: Case
    kernel: str
    order: Order | None
    how: str
    output: NDArray[Any]

    @property
    def row(self) -> str:
        """The row of the table, in the order of TABLE_COLUMNS."""
        facts = vars(self.case) | vars(self.order or Order()) | {"kernel": self.kernel}
        return json.dumps([facts[column] or 0 for column in TABLE_COLUMNS])


def read_results(folder: Path) -> tuple[dict[str, str], list[Result]]:
    """Return the measurements and their explanations."""
    told = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    found = json.loads((folder / "orders.json").read_text(encoding="utf-8"))
    outputs = np.load(folder / "outputs.npz")
    results = []
    for number, line in enumerate(told["cases"]):
        if str(number) not in found:
            continue
        order = found[str(number)]["order"]
        results.append(
            Result(
                case=Case(**{name: line[name] for name in Case.__dataclass_fields__}),
                kernel=" + ".join(dict.fromkeys(map(short_name, line["kernels"]))),
                order=None if order is None else Order(**order),
                how=found[str(number)]["how"].replace("accumulators", "sums"),
                output=outputs[f"D{number}"],
            )
        )
    return {name: told[name] for name in ("gpu", "torch", "cuda")}, results


NOT_PREDICTED = {"addmm", "triton", "mm to f32"}
"""Calls that `wf.predict` does not support."""


def write(folder: Path) -> None:
    """Write the table, the report and the outputs for the tests."""
    machine, results = read_results(folder)
    root = Path(__file__).parents[2]
    rows = [
        result.row
        for result in results
        if result.order is not None and result.case.call not in NOT_PREDICTED and result.how != BIAS_FIRST
    ]
    lines = [
        "# The order of additions in PyTorch's GEMMs on a GPU. Written by tools.libraries,",
        "# read by warpfrag.blas.cublas.predict_order.",
        "#",
        "# A 0 in a column of the order means that the order has no such part (None in wf.Order).",
        "",
        *(f'{name} = "{text}"' for name, text in machine.items()),
        'source = "measured; every code of up to 32 x 48 outputs was equal: docs/evidence/h200_libraries.md"',
        "columns = [",
        *(f"    {json.dumps(part)[1:-1]}," for part in (TABLE_COLUMNS[:7], TABLE_COLUMNS[7:-1], TABLE_COLUMNS[-1:])),
        "]",
        "rows = [",
        *(f"    {row}," for row in dict.fromkeys(rows)),
        "]",
        "",
    ]
    (root / "src" / "warpfrag" / "tables" / "library_orders.toml").write_text("\n".join(lines), encoding="utf-8")
    _write_report(root / "docs" / "evidence" / "h200_libraries.md", machine, results)
    small = {result.case.name + f" {result.case.seed}": result.output[:3, :5] for result in results if result.order}
    np.savez_compressed(root / "tests" / "data" / "libraries_h200.npz", **small)  # type: ignore[arg-type] # as above


def _write_report(path: Path, machine: dict[str, str], results: list[Result]) -> None:
    explained = [result for result in results if result.order is not None]
    share = 100 * len(explained) / len(results)
    lines = [
        "# Libraries on hardware",
        "",
        f"{machine['gpu']}, torch {machine['torch']}, CUDA {machine['cuda']}",
        "",
        f"{len(explained)} of {len(results)} products are explained ({share:.1f} %): an order of additions reproduces",
        f"every code of up to {ROWS} x {COLUMNS} outputs of each.",
        "",
        "The order is the simplest one that fits the kernel's name. A 16-bit result hides most of the last bits of",
        "the sums, so another order may give the same codes. Integer sums do not depend on the order.",
        "",
        "Operands are a hash of their indices (`tools.libraries`), so anyone can recompute them.",
        "Reduced-precision reductions were disabled, and TF32 was allowed.",
        "",
        "| call | type | products | explained | orders |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.case.call, result.case.type), []).append(result)
    for (call, kind), group in groups.items():
        kinds: dict[str, int] = {}
        for result in group:
            if result.order is not None:
                name = order_kind(result.order)
                kinds[name] = kinds.get(name, 0) + 1
        texts = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
        lines.append(f"| {call} | {kind} | {len(group)} | {sum(kinds.values())} | {texts} |")
    lines += ["", "## How kernels finish their sums", "", "| call | type | operations | products |"]
    lines += ["| --- | --- | --- | ---: |"]
    ways: dict[tuple[str, str, str], int] = {}
    for result in explained:
        if result.how:
            key = (result.case.call, result.case.type, result.how)
            ways[key] = ways.get(key, 0) + 1
    lines += [f"| {call} | {kind} | {how} | {count} |" for (call, kind, how), count in sorted(ways.items())]
    left = [result for result in results if result.order is None]
    lines += ["", "## Not explained", ""]
    lines += [f"- {result.case.name}: `{result.kernel}`" for result in left] or ["Nothing."]
    lines += ["", "Every product is a row of `tables/library_orders.toml`."]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def order_kind(order: Order) -> str:
    """Return the category of an order, for counting."""
    words = ["segment-K" if order.segment_k else "split-K" if order.split_k > 1 else "k ascending"]
    words += ["promoted"] if order.promote else []
    words += ["residue first"] if order.residue else []
    words += [f"steps of {order.step}"] if order.step else []
    return " and ".join(words)
