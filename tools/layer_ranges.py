"""Confirm on a GPU the ranges of m in which `wf.batch_invariance` says that a layer keeps its bits.

    python -m tools.layer_ranges plan FILE      # 60 layers of real models, drawn with a fixed seed
    python -m tools.layer_ranges run FILE OUT   # on a GPU: adds the number of differing outputs of each pair

A pair is the first and last m of a range, whose common rows must be equal, or the last m of a range and the next m,
whose rows differ because the order of additions changes.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

SEED, LAYERS, EDGES = 20261118, 60, 5
MAX_WEIGHT, MAX_M = 1 << 26, 4096


def plan(path: Path) -> None:
    """Write the plan: the layers, each with the pairs to run."""
    import numpy as np

    import warpfrag as wf
    from tools.choices.layers import layers

    rng = np.random.default_rng(SEED)
    named = [(name, n, k) for (n, k), name in layers().items() if n * k <= MAX_WEIGHT]
    rows: list[dict[str, Any]] = []
    for number in rng.permutation(len(named)):
        name, n, k = named[number]
        dtype = ("bf16", "f16", "tf32")[len(rows) % 3]
        ranges = wf.batch_invariance(n, k, dtype=dtype, m=(1, MAX_M)).layers[0].ranges
        edges = [
            (run, after)
            for run, after in pairwise(ranges)
            if run.order is not None and after.order is not None and not (run.is_guess or after.is_guess)
        ]
        if not edges:
            continue
        pairs = []
        for chosen in sorted(rng.permutation(len(edges))[:EDGES]):
            run, after = edges[chosen]
            pairs.append({"m": [run.last, after.first], "equal": False})
            whole = [{"m": [each.first, each.last], "equal": True} for each in (run, after) if each.first < each.last]
            pairs += [pair for pair in whole if pair not in pairs]
        rows.append({"layer": name, "n": n, "k": k, "dtype": dtype, "pairs": pairs})
        if len(rows) == LAYERS:
            break
    path.write_text(json.dumps(rows, indent=None) + "\n", encoding="utf-8")
    print(f"{len(rows)} layers, {sum(len(row['pairs']) for row in rows)} pairs")


def run(path: Path, out: Path) -> None:
    """Run every pair, and store how many outputs of the common rows differ."""
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_tf32 = True
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32}
    rows = json.loads(path.read_text(encoding="utf-8"))
    start, wrong = time.perf_counter(), 0
    for row in rows:
        torch.manual_seed(row["n"] * row["k"])
        dtype = dtypes[row["dtype"]]
        weight = torch.randn(row["n"], row["k"], device="cuda", dtype=torch.float32).to(dtype)
        x = torch.randn(MAX_M + 1, row["k"], device="cuda", dtype=torch.float32).to(dtype)
        for pair in row["pairs"]:
            few, many = sorted(pair["m"])
            found = [torch.nn.functional.linear(x[:m].contiguous(), weight)[:few] for m in (few, many)]
            pair["differing"] = int((found[0] != found[1]).sum())
            pair["outputs"] = found[0].numel()
            wrong += pair["equal"] != (pair["differing"] == 0)
        out.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    count = sum(len(row["pairs"]) for row in rows)
    print(f"{len(rows)} layers, {count} pairs: {wrong} unlike the prediction, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    if sys.argv[1] == "plan":
        plan(Path(sys.argv[2]))
    else:
        run(Path(sys.argv[2]), Path(sys.argv[3]))
