"""Kernels for which the code of ptxas 13.0 differs from the PTX manual, with the bytes of an H200.

The machine follows the manual. These tests show that: it differs from the H200 in the listed kernels alone, and each
example of the documentation page leaves what the page gives as the manual's result.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from ptx.lines import run_lines

DATA = Path(__file__).parent.parent / "data" / "ptx_random"
REPRODUCERS = json.loads((DATA / "index.json").read_text())
PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "ptxas-miscompilations.md"
FOLLOW_THE_MANUAL = {"atom_global_add_f64", "atom_shared_add_f64", "cvt_ftz_f32_f64"}
"""Reproducers of facts about the hardware; ptxas does something else than the manual says with all others."""
ROW = re.compile(r"^\| (`.+?`) \| (.*?) ?\| `(%\w+) = (\w+)` \| `(\w+)` \|", re.MULTILINE)
VALUES = re.compile(r"(%[a-z]\d+) = (\w+)")


@pytest.fixture(scope="module")
def measured() -> dict[str, np.ndarray]:
    with np.load(DATA / "h200.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", sorted(REPRODUCERS))
def test_reproducers_differ_from_the_h200_where_ptxas_miscompiles(name: str, measured: dict[str, np.ndarray]) -> None:
    facts = REPRODUCERS[name]
    kernel = wf.ptx.load((DATA / f"{name}.ptx").read_text())[facts["entry"]]
    data, out = measured[f"{name}/input"].copy(), measured[f"{name}/before"].copy()
    kernel.launch(facts["grid"], facts["block"], [data, out])
    assert np.array_equal(out, measured[f"{name}/h200_13.0"]) == (name in FOLLOW_THE_MANUAL)


def rows() -> list[tuple[str, ...]]:
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == 22
    return found


@pytest.mark.parametrize(("code", "before", "register", "manual", "gpu"), rows())
def test_examples_of_the_page_leave_what_the_manual_says(
    code: str, before: str, register: str, manual: str, gpu: str
) -> None:
    lines = "\n".join(re.findall(r"`([^`]+)`", code))
    values = {name: int(value, 0) for name, value in VALUES.findall(before)}
    assert run_lines(lines, values, register)[0] == int(manual, 0) != int(gpu, 0)
