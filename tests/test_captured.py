"""Captured results of real GPUs: every code equal, and the index says what the data hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.captured import Case, captures, load_cases
from warpfrag.captured.folders import HERE, VARIABLE
from warpfrag.captured.index import INDEX
from warpfrag.captured.write_index import count, write

CASES: dict[str, list[tuple[str, Case]]] = {}
for capture in captures():
    for case in capture.cases():
        CASES.setdefault(case.instruction, []).append((capture.about["arch"], case))


def test_there_are_captures_to_compare_with():
    assert len(CASES) == 352  # spellings; with each selector, 416 kernels of the H200
    assert sum(len(case.d) for cases in CASES.values() for _, case in cases) == 6720


@pytest.mark.parametrize("name", CASES)
def test_every_code_equals_the_hardware(name: str):
    for arch, case in CASES[name]:
        options = {} if case.metadata is None else {"metadata": case.metadata, "selector": case.selector}
        found = wf.execute(name, case.a, case.b, case.c, arch=arch, **options)
        alone = {} if case.metadata is None else {"metadata": case.metadata[0], "selector": case.selector}
        assert np.array_equal(wf.execute(name, case.a[0], case.b[0], case.c[0], arch=arch, **alone), case.d[0])
        wrong = np.argwhere(found != case.d)
        assert wrong.size == 0, f"{case.operands} #{case.selector}: first of {len(wrong)} at {wrong[0]}"


def test_the_index_says_what_the_data_hold():
    written = json.loads((HERE / INDEX).read_text(encoding="utf-8"))
    assert written == count(HERE)


def test_the_data_stay_small():
    assert sum(path.stat().st_size for path in HERE.iterdir() if path.is_file()) < 6_000_000


def test_load_cases_finds_every_spelling_of_an_instruction():
    cases = list(load_cases("mma.m8n8k4.f64.f64.f64.f64"))
    assert {case.instruction.rpartition(".")[2] for case in cases} == {"f64", "rn"}


def test_a_folder_of_ones_own_counts_as_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from warpfrag.captured.files import write_capture

    mma = wf.get("mma.m16n8k16.s32.s8.s8.s32")
    assert mma.evidence("sm_80").level == "specified"
    arrays = {role: np.zeros((3, 32, operand.words), np.uint32) for role, operand in mma.operands.items()}
    entry = {"instruction": mma.name, "selector": None, "classes": {"bits": {role: role for role in arrays}}}
    about = {"device": "NVIDIA A100", "arch": "sm_80", "driver": "1.2", "assembler": "ptxas 13.4", "entries": [entry]}
    write_capture(tmp_path / "a100.npz", about, arrays)
    write(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    level, detail, cases = mma.evidence("sm_80")
    assert (level, detail, cases) == ("hardware", "NVIDIA A100, driver 1.2, 3 cases", 3)


def test_a_folder_without_an_index_is_refused_with_the_command_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(wf.WarpfragError, match="no index.json .*; `python -m warpfrag.captured.write_index"):
        wf.get("mma.m16n8k16.s32.s8.s8.s32").evidence("sm_80")


def test_evidence_of_an_unknown_architecture_is_refused():
    with pytest.raises(wf.IllegalInstruction, match="unknown arch 'sm91'; expected one of sm_70"):
        wf.get("mma.m16n8k16.s32.s8.s8.s32").evidence("sm91")


def test_a_capture_without_entries_is_refused(tmp_path: Path):
    from warpfrag.captured.files import open_capture, write_capture

    write_capture(tmp_path / "empty.npz", {"entries": []}, {})
    with pytest.raises(ValueError, match="capture empty.npz has no entries"):
        open_capture(tmp_path / "empty.npz")
