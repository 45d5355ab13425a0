"""Screened launches: what compiled code proves clean is clean by the checks, and what it doubts they decide.

Every planted mistake and every litmus test is launched twice, with the screen and without, for each check: findings,
verdict, counts and memory are the same.
"""

import numpy as np
import pytest

import warpfrag as wf
from ptx import litmus, test_checks, test_litmus
from warpfrag.ptx.checks.findings import CHECKS
from warpfrag.ptx.compiler.screening import ProgramScreen

pytestmark = pytest.mark.one_engine


@pytest.fixture
def both(monkeypatch):
    """A function that launches with the screen and without, compares the two, and gives the run or its error."""

    def launch_both(launch):
        seen = []
        for is_enabled in (False, True):
            monkeypatch.setattr(ProgramScreen, "is_enabled", is_enabled)
            try:
                run, arrays = launch()
            except wf.PtxError as error:  # what is no finding of the checks
                run = error
                seen.append(str(error))
                continue
            findings = [finding.to_dict() for finding in run.findings]
            told = run.verdict, findings, run.unjudged, run.exact, run.inexact_lines, run.counts, run.printed
            seen.append((told, [array.tobytes() for array in arrays]))
        assert seen[0] == seen[1]
        return run

    return launch_both


def launches(text, name, checks):
    """A launch of a kernel of `test_checks`, and its memory."""
    kernel = wf.ptx.load(text)["k"]
    grid = 2 if name in {"blocks", "counter", "neighbours", "sum of the last block"} else 1
    block = 128 if name.startswith("wgmma") else 64

    def launch():
        arrays = np.zeros((2, 256), np.uint32)
        return kernel.launch(grid, block, list(arrays), checks=checks, engine="compiled"), arrays

    return launch


@pytest.mark.parametrize("name", test_checks.KERNELS)
def test_a_correct_kernel_is_judged_the_same(both, name):
    for checks in (*CHECKS, CHECKS):
        run = both(launches(test_checks.text_of(name), name, checks))
        assert run.verdict == "clean"


@pytest.mark.parametrize(("name", "mark", "instead", "kind", "place"), test_checks.PLANTED)
def test_a_planted_mistake_is_judged_the_same(both, name, mark, instead, kind, place):
    del place
    text = test_checks.text_of(name, mark, instead)
    for checks in CHECKS:
        both(launches(text, name, checks))
    found = {finding.kind for finding in both(launches(text, name, "all")).findings}
    assert kind is None or kind in found


@pytest.mark.parametrize("row", litmus.ROWS, ids=[row[0] for row in litmus.ROWS])
def test_a_litmus_test_is_judged_the_same(both, row):
    _, place, programs, verdict, _ = row
    text, grid, block, options = test_litmus.launch_of(place, programs)
    kernel = wf.ptx.load(text)["k"]

    def launch():
        array = np.zeros(128, np.uint32)
        return kernel.launch(grid, block, [array], checks="races", engine="compiled", **options), [array]

    assert {finding.kind for finding in both(launch).findings} == ({verdict} - {"none"})
