"""`warpfrag ptx info` and `warpfrag ptx run`."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from warpfrag.cli.support.output import ProgressLine
from warpfrag.ptx.interpreter.warp_batch import WarpBatch

DATA = Path(__file__).parent.parent / "data" / "ptx"
ADD = str(DATA / "t_add_sm80.ptx")
ARGS = [
    "--arg",
    "x.npy",
    "--arg",
    "y.npy",
    "--arg",
    "out:f32:1000",
    "--arg",
    "i32:1000",
    "--arg",
    "null",
    "--arg",
    "null",
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.arange(1000, dtype=np.float32), (np.arange(1000) ** 2 % 7).astype(np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    return x, y


def test_info_lists_parameters_and_opcodes(run):
    answer = run("ptx", "info", str(DATA / "c_wmma_gemm_sm80.ptx"))

    assert answer.code == 0
    assert "c_wmma_gemm_param_0  .u64" in answer.out
    assert "2048 bytes of static shared memory" in answer.out
    assert "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32" in answer.out
    facts = json.loads(run("ptx", "info", ADD, "--json").out)["entries"]
    assert [one["name"] for one in facts] == ["t_add"]
    assert facts[0]["opcodes"]["add.f32"]["level"] == "hardware"
    assert facts[0]["opcodes"]["ret"]["level"] == "specified"


def test_run_leaves_arrays_in_a_file(run, files):
    x, y = files
    answer = run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS, "-o", "results.npz")

    assert answer.code == 0
    assert "512 warp instructions, exact" in answer.out
    with np.load("results.npz") as results:
        assert sorted(results) == ["out", "x", "y"]
        assert np.array_equal(results["out"], x + y)
    found = json.loads(run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS, "--json").out)
    assert found["exact"] is True
    assert found["counts"]["written"] == {"global": 4000}
    assert found["counts"]["wavefronts"] == {"global": 3 * 125}
    assert sum(found["counts"]["wavefronts_by_line"].values()) == 3 * 125
    assert sum(found["counts"]["lines"].values()) == 512
    assert "global        8000     4000  375" in answer.out


def test_blocks_are_counted_on_a_terminal(run, files, monkeypatch):
    monkeypatch.setattr(ProgressLine, "_overwrite", lambda self, text: lines.append(text))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    lines: list[str] = []
    run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS)

    assert lines[0] == f"[{'#' * 30}] 4/4 blocks"


@pytest.mark.usefixtures("files")
def test_an_interrupt_says_how_far_it_came(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(WarpBatch, "schedule_next", interrupt)
    answer = run("ptx", "run", ADD, "--grid", "4", "--block", "128", *ARGS, "-o", "results.npz")

    assert answer.code == 130
    assert answer.err.strip() == "warpfrag: interrupted after 0 of 4 blocks; nothing was written"
    assert not Path("results.npz").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "nowhere.ptx"], "nowhere.ptx"),
        (["run", ADD, "--grid", "0"], "positive integers"),
        (["run", ADD, "--grid", "a"], "expected one to three numbers"),
        (["run", ADD, "--block", "128"], "takes 6 arguments"),
        (["run", ADD, "--block", "64", *ARGS], r"blocks of \(128, 1, 1\)"),
        (["run", ADD, "--entry", "no", *ARGS], "expected one of the entries"),
        (["run", ADD, "--arg", "z.txt"], "expected FILE.npy"),
        (["run", ADD, "--arg", "z.npy"], "z.npy"),
        (["run", ADD, "--arg", "u8:300"], "expected a number of that type"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_run_is_said(refused, words, message):
    import re

    assert re.search(message, refused("ptx", *words))
