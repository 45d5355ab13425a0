"""The command `warpfrag sweep`: what it writes beside the store."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

pytest.importorskip("zarr", reason="needs the extra dask")

PLAN = """\
instruction = ["mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k32.s32.s8.s8.s32"]
arch = ["sm_70", "sm_80", "sm_90"]
shape = [3, 4, 64]
data = "finite"
"""


def test_a_table_and_a_figure_are_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(PLAN, encoding="utf-8")
    answer = run("sweep", "sweep.toml", "--csv", "sweep.csv", "--plot", "sweep.svg")
    with Path("sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    cases = run("sweep", "sweep.toml", "--json").json["cases"]

    assert answer.code == 0
    assert answer.out.endswith("wrote sweep.csv\nwrote sweep.svg\n")
    assert len(rows) == len(cases) == 6
    for row, case in zip(rows, cases, strict=True):
        assert bool(row["refusal"]) == (case["figures"] is None)
        if not row["refusal"]:
            errors = case["figures"]["errors"]
            assert {name: float(row[name]) for name in errors} == errors
    assert 2 <= sum(bool(row["refusal"]) for row in rows) <= 4
    figure = Path("sweep.svg").read_text(encoding="utf-8")
    assert figure.count("<rect") == 1 + sum(float(row["rms_to_rms"] or 0) > 0 for row in rows)
    assert "Root mean square error" in figure
