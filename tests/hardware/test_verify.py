"""Comparing with hardware, with a worker that simulates the GPU: its findings, captures and failures."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warpfrag as wf
from tools.tiles import tiles
from warpfrag.cli import main
from warpfrag.codegen.emit import emit
from warpfrag.codegen.statement import choices, raw_name
from warpfrag.errors import NoGpu
from warpfrag.formats.codes import from_codes
from warpfrag.formats.random_codes import random_codes
from warpfrag.hardware import gpu_device, verification
from warpfrag.hardware.gpu_device import Worker
from warpfrag.hardware.verification import verify
from warpfrag.isa.immediates import Immediates
from warpfrag.tensorcore.captures.capture import open_capture
from warpfrag.tensorcore.execute import execute_registers
from warpfrag.tensorcore.execute_wgmma import run_wgmma_cases
from warpfrag.tensorcore.random_operands import classes, random_words
from warpfrag.tensorcore.wgmma_call import WgmmaCases

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
ABOUT = {"device": "a pretended GPU", "arch": "sm_90", "target": "sm_90a", "driver": "1", "assembler": "none"}


class Pretended:
    """A worker that answers like an H200, except for errors that a test requests."""

    traps_on = ""
    wrong_on = ""

    def __init__(self, device: int) -> None:
        self.about = ABOUT

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def run(self, name, choice, words):
        if name == self.traps_on:
            return "CUDAError: an illegal instruction was encountered"
        if isinstance(words, WgmmaCases):
            assert choice is words.variant
            found = run_wgmma_cases(name, words, "sm_90a")
        else:
            found = execute_registers(name, words, choice, arch="sm_90")
        if name == self.wrong_on:
            found[0, ..., 5, 1] ^= 1
        return found


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    fresh = type("Fresh", (Pretended,), {})
    monkeypatch.setattr(verification, "Worker", fresh)
    return fresh


def test_equal_codes_are_reported_as_equal(gpu: type[Pretended]):
    report = verify([F16, S8, SP], cases=12)
    assert report.equal
    assert [(line.instruction, line.selector) for line in report.lines] == [(F16, None), (S8, None), (SP, 0), (SP, 1)]
    expected = [
        12
        + sum(
            group.cases
            for group in wf.test_vectors(line.instruction).groups
            if group.choice.selector == (line.selector or 0)
        )
        for line in report.lines
    ]
    assert [line.cases for line in report.lines] == expected
    assert min(expected) > 12  # the vectors ran too
    assert report.summary() == f"4 kernels, {sum(expected):,} cases on a pretended GPU (sm_90): all codes equal"


def test_a_wrong_word_is_found_and_named(gpu: type[Pretended]):
    gpu.wrong_on = F16
    report = verify([F16, S8], cases=30)
    assert not report.equal
    assert report.differing == len(classes(wf.get(F16))) + len(wf.test_vectors(F16).groups)  # one case of each set
    first = report.lines[0].mismatches[0]
    assert (first.operands, first.case, first.lane, first.word) == ("bits", 0, 5, 1)
    assert int(first.hardware, 16) ^ int(first.warpfrag, 16) == 1
    assert report.lines[1].equal


def test_a_trap_is_recorded_and_the_rest_goes_on(gpu: type[Pretended]):
    gpu.traps_on = F16
    seen = []
    report = verify([F16, S8], cases=8, progress=lambda number, total, line: seen.append((number, total, line.equal)))
    assert seen == [(1, 2, False), (2, 2, True)]
    assert "illegal instruction" in report.skipped[0].skip_reason
    assert report.summary().endswith("all codes equal; kernels not compared in full: 1")
    assert not report.equal


def test_where_every_kernel_traps_nothing_is_called_equal(gpu: type[Pretended]):
    gpu.traps_on = F16
    report = verify(F16, cases=8)
    counted = "1 kernels, 0 cases on a pretended GPU (sm_90)"
    assert report.summary() == f"{counted}: nothing was compared; kernels not compared in full: 1"


def test_the_command_says_why_a_kernel_was_not_compared(gpu: type[Pretended], capsys: pytest.CaptureFixture[str]):
    gpu.traps_on = F16
    assert main(["verify", F16, S8, "--cases", "8"]) == 1
    trouble, summary = capsys.readouterr().out.splitlines()
    assert trouble == f"{F16}: 0 cases, CUDAError: an illegal instruction was encountered"
    assert summary.startswith("2 kernels")


def test_the_command_answers_in_json(gpu: type[Pretended], capsys: pytest.CaptureFixture[str]):
    assert main(["verify", S8, "--cases", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["verb"], answer["lines"][0]["instruction"]) == (2, "verify", S8)


def test_what_is_not_modelled_runs_but_is_not_compared(gpu: type[Pretended], monkeypatch: pytest.MonkeyPatch):
    def not_modelled(*_words, **_options):
        reason = "nobody knows"
        raise wf.errors.NotModelled(reason)

    monkeypatch.setattr(gpu, "run", lambda _self, name, _choice, words: np.zeros_like(words["c"]))
    monkeypatch.setattr(sys.modules["warpfrag.tensorcore.execute"], "execute", not_modelled)
    report = verify(F16, cases=8)
    assert [line.skip_reason for line in report.lines] == ["not modelled: nobody knows"]
    assert "nothing was compared" in report.summary()
    assert "did not run" not in report.summary()


@pytest.mark.slow
def test_all_instructions_are_those_the_target_can_run(gpu: type[Pretended], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "run", lambda *_: "not today")
    report = verify(cases=1)
    assert len(report.lines) == 392 + 2468  # every product of sm_90a with every selector; of wgmma a choice of variants
    assert sum(line.instruction.startswith("wgmma") for line in report.lines) == 2468
    some = verify(only="m64n8k16.f32", cases=1).lines
    assert some == tuple(line for line in report.lines if "m64n8k16.f32" in line.instruction) != ()
    with pytest.raises(wf.errors.InvalidOperand, match="no instruction that sm_90a can run contains 'wgmna'"):
        verify(only="wgmna")
    with pytest.raises(wf.errors.IllegalInstruction, match="not available on sm_90a"):
        verify("mma.m16n8k32.kind::f8f6f4.f32.e2m1.e2m1.f32")


def test_a_capture_can_be_read_back_and_counts_as_evidence(gpu: type[Pretended], tmp_path: Path):
    path = tmp_path / "mine.npz"
    verify([F16, "mma.m16n8k16.f16.f16.f16.f16", SP], cases=12, capture=path)
    capture = open_capture(path)
    cases = list(capture.cases())
    assert sum(not case.operands.startswith("vectors") for case in cases) == 24  # four kernels, six classes
    for case in cases:
        options = {} if case.metadata is None else {"metadata": case.metadata, "immediates": Immediates(case.selector)}
        assert np.array_equal(wf.execute(case.instruction, case.a, case.b, case.c, **options), case.d)
    classes_of_entries = [entry["classes"].items() for entry in capture.about["entries"]]
    keys = {keys["a"] for items in classes_of_entries for kind, keys in items if not kind.startswith("vectors")}
    assert len(keys) == 12  # f16 A is shared by three kernels; selector 1 draws its own


def test_wgmma_is_compared_recorded_and_read_back(gpu: type[Pretended], tmp_path: Path):
    path = tmp_path / "mine.npz"
    names = ["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8"]
    gpu.wrong_on = wf.get(names[1]).name
    report = verify(names, cases=12, capture=path)
    variants = ["A in shared memory, B MN-major, -B", "A in registers, B MN-major, -B"]
    assert [line.variant for line in report.lines[:2]] == variants
    assert [line.selector for line in report.lines] == [None, None, 0, 0]
    assert [line.differing for line in report.lines] == [0, 0, 6, 6]  # one case of each set
    shown = str(report.lines[2].mismatches[0])
    assert re.match(r"\w+, swizzle 0(, no C)? case 0, warp 0, lane 5, word 1: hardware ", shown)
    assert "B MN-major, -B" in report.lines[1].kernel
    cases = list(open_capture(path).cases())
    assert len(cases) == 24
    for case in cases:
        equal = np.array_equal(run_wgmma_cases(case.instruction, case.call, "sm_90"), case.d)
        assert equal == (case.instruction != gpu.wrong_on)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"only": 3}, "only: expected part of an instruction name, got 3"),
        ({"cases": 0}, "cases: expected an integer of at least 1, got 0"),
        ({"cases": "many"}, "cases: expected an integer of at least 1, got 'many'"),
        ({"device": -1}, "device: expected an integer of at least 0, got -1"),
        ({"seed": -1}, "seed: expected a non-negative integer, got -1"),
        ({"capture": "mine.txt"}, "capture: expected the name of an .npz file, got 'mine.txt'"),
        ({"instructions": 3}, "expected one or more instruction names, got 3"),
        ({"instructions": [3]}, "expected PTX text, got a int"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_gpu_is_opened(given, message):
    with pytest.raises(wf.WarpfragError, match=re.escape(message)):
        verify(**{"instructions": F16, **given})


@pytest.mark.parametrize("name", ["ldmatrix.m8n8.x4.b16", "wmma.load.a.row.m16n16k16.f16"])
def test_a_mover_is_refused(name: str):
    with pytest.raises(
        wf.errors.InvalidOperand, match="computes nothing: verify runs mma, mma.sp, wmma.mma, wgmma and tcgen05.mma$"
    ):
        verify([F16, name])


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(f"import warpfrag\nwarpfrag.verify({F16!r}, cases=1)\n", encoding="utf-8")
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, check=False, text=True)
    assert ended.stderr.splitlines()[-1].endswith(
        "NoGpu: the process that owns the GPU ended with exit code 1; a script must call verify under "
        '`if __name__ == "__main__":`'
    )


def test_a_process_that_ends_is_reported_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # a module that the new process can import: it says what it is, and ends when it is first asked for something
    text = f"import sys\n\ndef serve(pipe, device):\n    pipe.send({ABOUT!r})\n    pipe.recv()\n    sys.exit(7)\n"
    (tmp_path / "short_lived.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gpu_device, "_serve", importlib.import_module("short_lived").serve)
    with Worker(0) as worker:
        first = worker.process
        answer = worker.run(F16, None, {})
        assert answer == "the process that owns the GPU ended with exit code 7"
        assert worker.process is not first
        assert worker.about == ABOUT


@pytest.mark.parametrize("name", [F16, SP, "mma.m16n8k16.f16.f16.f16.f16", "wmma.mma.row.col.m16n16k16.f32.f16"])
def test_the_kernels_to_run_are_those_that_are_emitted(name: str):
    instruction = wf.get(name, arch="sm_90a")
    entries = {tile.entry for tile in tiles(instruction, ("sm_90a",))}
    assert entries == set(re.findall(r"__global__ void (\w+)", emit(instruction, arch="sm_90a", kernels=True)))
    raw = {raw_name(instruction, choice) for choice in choices(instruction)}
    assert raw == set(re.findall(r"\.entry (\w+)", emit(instruction, lang="ptx", arch="sm_90a")))


def test_without_a_gpu_there_is_a_clear_message(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpu, match="cuda-core is not installed|NVIDIA GPU 0 cannot be used"):
        verify(F16, cases=1)


@pytest.mark.parametrize("name", [F16, S8, SP, "mma.m16n8k8.f32.tf32.tf32.f32", "mma.m8n8k4.f64.f64.f64.f64"])
def test_classes_draw_what_they_say(name: str):
    instruction = wf.get(name)
    for kind in classes(instruction):
        words = random_words(instruction, kind, 20, np.random.default_rng(0))
        row = instruction.a.format
        codes = instruction.a.unpack(words["a"], raw=True)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            values = from_codes(row, codes >> row.unused << row.unused).astype(np.float64)
        if kind in {"finite", "narrow", "wide", "tiny"}:
            assert np.isfinite(values).all(), kind
        if kind == "narrow":
            assert (abs(values) >= 0.25).all()
            assert (abs(values) < 8).all()
        if kind == "special":
            assert np.isnan(values).any()
            assert np.isinf(values).any()
            assert (values == 0).any()


def test_extreme_integers_reach_the_ends():
    codes = random_codes(wf.FORMATS["s8"], "extreme", (1000,), np.random.default_rng(0))
    assert {0x80, 0x7F} <= set(codes.tolist())
