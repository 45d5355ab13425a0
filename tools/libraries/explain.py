"""Find the order of additions that explains each measured gemm."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.libraries.cases import DTYPES, Case, operands
from tools.libraries.measure import say
from warpfrag.blas.cublas.predict_order import library_instruction
from warpfrag.blas.find_order import Begin, Finish, Observed, fitting_orders
from warpfrag.blas.prepared_gemm import read_gemm
from warpfrag.formats.epilogue import fma

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from warpfrag.blas.order import Order

BIAS_FIRST = "the parts added to the bias"
Finishes = dict[str, "Finish | None"]


def finishes(case: Case, given: dict[str, NDArray[Any]]) -> Finishes:
    """Return the epilogues that a kernel may apply before it rounds D, by name; they compute in float32."""
    one = np.float32
    narrow = DTYPES[case.result_type]
    if "bias" in given:
        bias = given["bias"].astype(one)
        return {
            "bias added to the sums": lambda sums, _rows, columns: sums + bias[columns],
            "bias added to the rounded product": lambda sums, _rows, columns: (
                sums.astype(narrow).astype(one) + bias[columns]
            ),
            BIAS_FIRST: None,  # the kernel adds its parts to D, which contains the bias
        }
    if "C" in given:
        C, alpha, beta = given["C"].astype(one), one(case.alpha), one(case.beta)
        return {
            "fma(alpha, sum, beta * C)": lambda sums, rows, columns: fma(alpha, sums, beta * C[rows][:, columns]),
            "fma(beta, C, alpha * sum)": lambda sums, rows, columns: fma(beta, C[rows][:, columns], alpha * sums),
            "alpha * sum + beta * C": lambda sums, rows, columns: alpha * sums + beta * C[rows][:, columns],
            "rounded product, then fma(beta, C, ...)": lambda sums, rows, columns: fma(
                beta, C[rows][:, columns], (alpha * sums).astype(narrow).astype(one)
            ),
        }
    return {"": None}


def _beginning(bias: NDArray[Any]) -> Begin:
    return lambda _rows, columns: bias.astype(np.float32)[None, None, columns]


def explain_case(case: Case, observed: NDArray[Any], kernels: list[str]) -> dict[str, object]:
    """Return the order and epilogue that give the observed outputs.

    Several orders may give the same 16-bit codes; the kernel names show whether K was split.
    """
    is_split = any("splitK" in name for name in kernels)

    def allowed(order: Order) -> bool:
        return case.type == "s8" or not is_split or order.split_k > 1

    started = time.monotonic()
    given = operands(case)
    A, B = given["A"], given["B"]
    instruction = library_instruction(case.type, "sm_90")
    for rounding in ("rne", None) if case.type == "tf32" else (None,):
        taken = read_gemm(A, B, instruction=instruction, arch="sm_90", rounding=rounding)
        for name, finish in finishes(case, given).items():
            begin = _beginning(given["bias"]) if name == BIAS_FIRST else None
            found = fitting_orders(
                taken.operands,
                Observed(observed[None], case.result_type),
                begin=begin,
                finish=finish,
                allowed=allowed,
                most=1,
            )
            for order in found.orders:
                cut = "operands truncated to tf32" if case.type == "tf32" and rounding is None else ""
                how = "; ".join(text for text in (name, cut) if text)
                return {"order": asdict(order), "how": how, "seconds": round(time.monotonic() - started, 2)}
    return {"order": None, "how": "", "seconds": round(time.monotonic() - started, 2)}


def explain(folder: Path) -> None:
    """Search for the order of every case on all cores; earlier results are kept."""
    told = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    outputs = np.load(folder / "outputs.npz")
    store = folder / "orders.json"
    found: dict[str, Any] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    fields = set(Case.__dataclass_fields__)
    waiting = {
        number: Case(**{name: line[name] for name in fields})
        for number, line in enumerate(told["cases"])
        if f"D{number}" in outputs and str(number) not in found
    }
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            pool.submit(explain_case, case, outputs[f"D{number}"], told["cases"][number]["kernels"]): number
            for number, case in sorted(waiting.items(), key=lambda item: -item[1].k)
        }
        for done, job in enumerate(as_completed(jobs), start=1):
            number = jobs[job]
            found[str(number)] = job.result()
            if found[str(number)]["order"] is None or done % 25 == 0:
                say(f"[{done}/{len(jobs)}] {waiting[number].name}: {found[str(number)]}")
    store.write_text(json.dumps(found, indent=0), encoding="utf-8")
    explained = sum(one["order"] is not None for one in found.values())
    say(f"{explained} of {len(found)} explained with every code equal")
