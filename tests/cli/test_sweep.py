"""The files that `warpfrag sweep` writes beside the store."""

from pathlib import Path

import pytest

pytest.importorskip("zarr", reason="needs the extra dask")

PLAN = """\
instruction = ["mma.m16n8k16.f32.f16.f16.f32", "mma.m16n8k32.s32.s8.s8.s32"]
arch = ["sm_70", "sm_80", "sm_90"]
shape = [3, 4, 64]
data = "finite"
"""


def test_every_case_has_figures_or_a_refusal(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(PLAN, encoding="utf-8")
    cases = run("sweep", "sweep.toml", "--json").json["cases"]

    assert len(cases) == 6
    computed = [case["figures"]["errors"] for case in cases if case["figures"] is not None]
    assert all(bool(case["refusal"]) == (case["figures"] is None) for case in cases)
    assert 2 <= len(cases) - len(computed) <= 4
