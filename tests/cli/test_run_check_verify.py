"""The verbs that compute: run, check and verify."""

from __future__ import annotations

import json

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.cli import main

F16 = "mma.m16n8k16.f32.f16.f16.f32"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_run_gives_what_execute_gives(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "run", F16, "--seed", "7")
    codes = {role: np.array(matrix, np.uint64) for role, matrix in found["operands"].items()}
    assert wf.get(F16)(codes["a"], codes["b"], codes["c"], raw=True).tolist() == found["d"]
    assert found["evidence"]["level"] == "hardware"
    assert (found["schema"], found["seed"]) == (1, 7)


def test_run_shows_its_seed_and_repeats_with_it(capsys: pytest.CaptureFixture[str]):
    first = answer(capsys, "run", F16)
    assert answer(capsys, "run", F16, "--seed", str(first["seed"]))["d"] == first["d"]


def test_run_takes_matrices_and_registers_from_files(tmp_path, capsys: pytest.CaptureFixture[str]):
    mma = wf.get(F16)
    A, B = np.eye(16, dtype=np.float16), np.arange(128, dtype=np.float16).reshape(16, 8)
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "B.npy", mma.b.pack(B))
    np.save(tmp_path / "C.npy", np.zeros((16, 8)))
    files = [word for role in "abc" for word in (f"--{role}", str(tmp_path / f"{role.upper()}.npy"))]
    found = answer(capsys, "run", F16, *files, "--registers", "5")
    assert found["seed"] is None
    assert np.array(found["d"], np.uint32).view(np.float32).tolist() == B.tolist()
    assert found["registers"]["b"]["5"] == mma.b.pack(B)[5].tolist()


def test_run_shows_registers_only_where_the_fragments_are_known(capsys: pytest.CaptureFixture[str]):
    name = "wmma.mma.row.col.m16n16k16.f32.f32"
    assert main(["run", name, "--arch", "sm_90", "--registers", "0"]) == 0
    assert main(["run", name, "--arch", "sm_80"]) == 0
    assert main(["run", name, "--arch", "sm_80", "--registers", "0"]) == 2
    assert "nobody has measured the wmma fragments of sm_80" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([F16, "--registers", "7-5"], "lanes are numbers 0..31, such as 0,5-7, or all; got '7-5'"),
        ([F16, "--trace", "0", "0", "--mma", "1"], "--mma goes with --trace, and with m8n8k4 of f16"),
        (["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "--mma", "1"], "--mma goes with --trace"),
    ],
)
def test_run_refuses_what_it_would_ignore(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", *words]) == 2
    assert message in capsys.readouterr().err


def test_run_refuses_the_registers_of_a_sparse_a(tmp_path, capsys: pytest.CaptureFixture[str]):
    np.save(tmp_path / "A.npy", np.zeros((32, 4), np.uint32))
    assert main(["run", "mma.sp.m16n8k32.f32.f16.f16.f32", "--a", str(tmp_path / "A.npy")]) == 2
    assert "registers of a sparse A mean nothing without their metadata: give the full A, 16 x 32" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("name", [
    F16, "mma.sp.m16n8k64.f32.e4m3.e4m3.f32", "mma.m16n8k32.s32.s8.s8.s32", "mma.m8n8k4.f64.f64.f64.f64",
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "wmma.mma.row.col.m16n16k16.f16.f32",
    "mma.m16n8k256.s32.b1.b1.s32.xor.popc",
])  # fmt: skip
def test_the_last_step_of_a_trace_is_the_result(name: str, capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "run", name, "--seed", "3", "--trace", "2", "1")
    result = np.array(found["d"])
    assert found["trace"][-1]["result"] == (result[0] if result.ndim > 2 else result)[2, 1]
    assert main(["run", name, "--seed", "3", "--trace", "2", "1"]) == 0
    text = capsys.readouterr().out
    assert f"step {len(found['trace'])} of {len(found['trace'])}" in text


def test_a_trace_shows_what_was_cut_off(tmp_path, capsys: pytest.CaptureFixture[str]):
    """1 - 1 + 2^-26 on sm_90: the last product lies below the 25 bits that are kept."""
    A, B = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16)
    A[0, :3], B[:3, 0] = [0x3C00, 0xBC00, 0x0800], [0x3C00, 0x3C00, 0x0800]
    np.save(tmp_path / "A.npy", A.view(np.float16))
    np.save(tmp_path / "B.npy", B.view(np.float16))
    np.save(tmp_path / "C.npy", np.zeros((16, 8)))
    files = [word for role in "abc" for word in (f"--{role}", str(tmp_path / f"{role.upper()}.npy"))]
    step = answer(capsys, "run", F16, *files, "--trace", "0", "0")["trace"][0]
    assert step["common_exponent"] == 0
    assert step["fraction_bits"] == 25
    assert [term["kept"] for term in step["terms"][:3]] == [1 << 25, -(1 << 25), 0]
    assert step["terms"][2]["lost"] == "1/67108864"
    assert step["result"] == 0


@pytest.mark.parametrize(("words", "message"), [
    (["run", F16, "--arch", "sm_75"], "arch 'sm_75' cannot run it"),
    (["run", F16, "--registers", "32"], "lanes are numbers 0..31, such as 0,5-7, or all; got '32'"),
    (["run", F16, "--trace", "16", "0"], "ROW is 0..15, got 16"),
    (["run", F16, "--a", "missing.npy"], "cannot read 'missing.npy' as .npy"),
    (["run", F16, "--scale-a", "x.npy"], "takes no scale_a"),
    (["run", "ldmatrix.m8n8.x4.b16"], "it moves registers and computes nothing"),
    (["check", "--only", "no such thing"], "no captured instruction contains 'no such thing'"),
    (["verify", "nonsense"], "nonsense"),
])  # fmt: skip
def test_bad_input_gets_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_check_compares_with_captured_results(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "check", "--only", "m16n8k8.row.col.f32.f16")
    assert found["cases"] == 24
    assert found["differing"] == 0
    assert main(["check", "--only", "m8n8k128"]) == 0
    assert "every code equal" in capsys.readouterr().out


def test_check_finds_a_difference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import sys

    from warpfrag import execute as _  # noqa: F401 (import it before it is replaced)

    module = sys.modules["warpfrag.execute"]
    right = module.execute
    monkeypatch.setattr(module, "execute", lambda *words, **options: right(*words, **options) ^ np.uint32(1))
    assert main(["check", "--only", "m8n8k128"]) == 1
    assert "DIFFER" in capsys.readouterr().out


def test_verify_without_a_gpu_says_so_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from warpfrag.hardware import verify as module
    from warpfrag.hardware.device import NoGpu

    def no_gpu(_device: int):
        reason = "no NVIDIA GPU 0 can be used: none"
        raise NoGpu(reason)

    monkeypatch.setattr(module, "Worker", no_gpu)
    assert main(["verify", F16, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "NoGpu"
    assert main(["verify", F16]) == 3
    error = capsys.readouterr().err
    assert (
        error
        == "warpfrag: no NVIDIA GPU 0 can be used: none; `warpfrag check` compares with captured results instead\n"
    )


def test_verify_refuses_a_file_it_could_not_write_before_it_asks_for_a_gpu(
    tmp_path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "nowhere" / "report.md"
    assert main(["verify", F16, "--report", str(path)]) == 2
    assert f"cannot write '{path}': No such file or directory" in capsys.readouterr().err
