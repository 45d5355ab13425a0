"""The ranges of m of 60 real layers, confirmed at their edges on an H200 (tools/layer_ranges.py)."""

import json
from pathlib import Path

import warpfrag as wf

RECORDED = Path(__file__).parents[1] / "data" / "torch" / "layer_ranges_h200.json"


def test_ranges_of_real_layers_are_those_of_the_h200():
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))
    pairs = [pair for row in rows for pair in row["pairs"]]
    assert (len(rows), len(pairs)) == (60, 576)
    for row in rows:
        ranges = wf.batch_invariance(row["n"], row["k"], dtype=row["dtype"], m=(1, 4096)).layers[0].ranges
        for pair in row["pairs"]:
            few, many = pair["m"]
            is_same = any(run.first <= few <= many <= run.last for run in ranges)
            assert is_same == (pair["differing"] == 0), (row["layer"], pair)
