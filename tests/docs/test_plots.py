"""The plots of the how-to pages are up to date."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_plots_are_up_to_date():
    plots = runpy.run_path(str(DOCS / "make_plots.py"))["plots"]()
    assert {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "plots").iterdir()} == plots
    assert plots.keys() == {"errors.svg", "invariance.svg", "order.svg", "race.svg", "profile.svg"}
