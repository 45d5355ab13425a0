"""JSON answers follow docs/reference/schema.json, for every query."""

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import warpfrag as wf
from warpfrag.cli import VERBS, main
from warpfrag.cli.io.output import INCOMPLETE, print_json
from warpfrag.device import record
from warpfrag.device.recording import RecordedLaunch, RecordedSequence, RecordingWriter
from warpfrag.hardware import cublas_survey
from warpfrag.hardware.verification import KernelResult, Mismatch, Report

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "schema.json").read_text(encoding="utf-8"))
PARTS = SCHEMA["$defs"]
NOT_JSON = {"draw", "explore"}  # they write pictures

MMA = "mma.m16n8k16.f32.f16.f16.f32"
HALF = "mma.m16n8k16.f16.f16.f16.f16"
FP8 = "mma.m16n8k32.f32.e4m3.e4m3.f32"
SPARSE = "mma.sp.m16n8k32.f32.f16.f16.f32"
SCALED = "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
LOAD = "ldmatrix.m8n8.x4.b16"
QUAD = "mma.m8n8k4.row.col.f32.f16.f16.f32"
WMMA = "wmma.mma.row.col.m16n16k16.f32.f32"
WGMMA = "wgmma.mma_async.m64n8k16.f32.f16.f16"
WGMMA_SP = "wgmma.mma_async.sp.m64n8k32.f32.f16.f16"

STUDY = f"""\
instruction = ["{MMA}", "{FP8}"]
arch = "sm_80"
shape = [3, 4, 5]
data = ["normal", "special"]
order = {{ split_k = 2 }}
"""
PTX = ROOT / "tests" / "data" / "ptx" / "c_collatz_sm80.ptx"

COMMANDS = [
    f"ptx info {PTX}",
    f"ptx run {PTX} --arg a:u32:32 --arg out:u32:32 --arg i32:0",
    f"ptx profile {PTX} --arg a:u32:32 --arg out:u32:32 --arg i32:0",
    f"ptx explain {PTX}:71 --arg a:u32:32 --arg out:u32:32 --arg i32:32",
    "find --arch sm_90a -a e4m3",
    "find --op ldmatrix",
    *(f"get {name}" for name in (MMA, SPARSE, SCALED, LOAD, QUAD, WMMA, WGMMA, "ldmatrix.m8n16.x1.s8.s4")),
    f"get {WMMA} --arch sm_80",
    f"at {MMA} a 5",
    f"at {SPARSE} a 5 0",
    f"at {SPARSE} metadata 5",
    f"at {SCALED} scale_b 4",
    f"at {LOAD} addresses 9",
    f"at {QUAD} d 5",
    f"at {WGMMA} d 5 --warp 1",
    f"at {WGMMA_SP} metadata 5",
    f"where {MMA} a 9 3",
    f"where {SPARSE} a 9 13 --logical",
    f"where {WMMA} a 9 3",
    f"where {LOAD} addresses 3",
    f"where {WGMMA} b 9 3",
    f"table {MMA} a",
    f"table {SPARSE} metadata --by lane",
    f"table {MMA} b --by lane",
    f"get {SCALED} --to triton",
    "identify --cute ((4,8),(2,2)):((16,1),(8,64)) --shape 8x16",
    f"identify {MMA}:d:row=2,col=3",
    "identify --triton #ttg.linear<{lane=[[1,0],[2,0],[4,0],[0,2],[0,4]],register=[[8,0],[0,1]]}>",
    f"legal {MMA} --arch sm_80",
    f"legal {MMA} --arch sm_75",
    f"legal {SPARSE} --selector 2",
    "aliases #ttg.blocked<{}>",
    "arithmetic-table sm_90",
    f"arithmetic-table --for {MMA}",
    f"aliases {MMA}",
    "aliases SM80_8x8x4_C64C64C64C64_TN",
    "aliases HMMA.16816.F32",
    "aliases HMMA.SP.16816.F32",
    "aliases H100",
    "aliases nvfp4",
    "aliases wgmma.mma_async",
    f"execute {MMA} --arch sm_80 --arch sm_90 --seed 1",
    f"products {MMA} 9 3",
    f"products {SPARSE} 9 3",
    f"products {SCALED} 9 3",
    f"products {QUAD} 0 5",
    f"products {WGMMA} 0 5",
    f"products {WGMMA_SP} 0 5",
    f"execute {WGMMA} --seed 1 --trace 0 0",
    "descriptor 0x4000004000000000",
    f"descriptor --stride 1040 --leading 16 --swizzle 128 --for {WGMMA} b",
    f"descriptor --tile 64 --for {WGMMA} a",
    f"relayout {MMA}:d:col=2 {MMA}:a",
    f"relayout {FP8}:d:col=4 {FP8}:a --permute col --emit ptx",
    "relayout mma.m16n8k32.s32.s8.s8.s32:d mma.m8n8k16.s32.s8.s8.s32:b",
    f"loads {MMA} b:col=2 --order col --pitch 128 --swizzle 128 --emit cuda -o load.cuh",
    f"stores {MMA} d --search",
    f"stores {HALF} d",
    f"pack {MMA} a ones.txt",
    f"unpack {MMA} d dump.txt",
    f"unpack {MMA} d dump.txt --raw",
    f"unpack {SPARSE} metadata words.txt",
    f"diagnose {MMA} --a ones.txt --b b.txt dump.txt",
    f"diagnose {MMA} --expect d b.txt swapped.txt",
    "predict half.npy half.npy",
    "batch-invariance bf16 --n 4096 --k 14336 --m 1 300",
    "batch-invariance f16 --n 64 --k 11528 --m 1 20",
    "explain half.npy half.npy half.npy half.npy",
    "find-order half.npy half.npy single.npy",
    f"error-report half.npy half.npy --instruction {MMA} --arch sm_80 sm_90 --order promote=16",
    "find-order half.npy half.npy other.npy --result f32",
    "sweep study.toml",
    f"execute {MMA} --seed 1 --trace 0 0",
    f"execute {SPARSE} --seed 1 --trace 0 0",
    f"gemm half.npy half.npy --instruction {MMA} --trace 0 0",
    f"execute {SCALED} --seed 1 --trace 0 0 --arch sm_120",
    f"execute {QUAD} --seed 1 --trace 0 0 --arch sm_90",
    "execute mma.m16n8k32.s32.s8.s8.s32 --seed 1 --trace 0 0",
    "execute mma.m16n8k8.f64.f64.f64.f64 --seed 1 --trace 0 0",
    "samples",
    "samples dump.txt",
    "cache",
    "tools",
    "gpu --list",
    "check --only mma.sync.aligned.m16n8k4.row.col.f32",
    f"emit {MMA}",
    f"emit {MMA} --lang ptx -o mma.ptx",
    f"test-vectors {MMA}",
]
REFUSED = [
    f"where {MMA} a 9 99",
    "get mma.m16n8k16.f32.f16.f16.f64",
    "wher",
    "find --arch sm_1",
    "check --only nothing",
]


def schema_errors(answer, query):
    """Return the messages of everything in an answer that its part of the schema does not allow."""
    validator = Draft202012Validator({"$ref": f"#/$defs/{query}", "$defs": PARTS})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(answer)]


@pytest.fixture
def ask(capsys, tmp_path, monkeypatch):
    """Run a command with --json in a folder with some files, and return its output."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("ones.txt", np.ones((16, 16)), fmt="%d")
    (tmp_path / "dump.txt").write_text("7fc00000 7f800000 3f800000 0\n" * 32, encoding="utf-8")
    np.save("half.npy", np.eye(24, dtype=np.float16))
    np.save("single.npy", np.eye(24, dtype=np.float32))
    np.save("other.npy", np.ones((24, 24), np.uint32))
    np.savetxt("b.txt", np.arange(128).reshape(16, 8), fmt="%d")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    swapped = wf.get(MMA).d.pack(np.arange(128.0).reshape(16, 8))[:, [1, 0, 2, 3]]
    np.savetxt("swapped.txt", swapped, fmt="0x%08x")
    (tmp_path / "words.txt").write_text("44444444\n" * 32, encoding="utf-8")

    def run(command):
        main([*command.split(), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_is_as_the_schema_says(ask, command):
    answer = ask(command)

    assert answer["verb"] == command.split()[0]
    assert schema_errors(answer, answer["verb"]) == []


@pytest.mark.parametrize("command", REFUSED)
def test_a_refusal_is_as_the_schema_says(ask, command):
    assert schema_errors(ask(command), "error") == []


def test_a_comparison_with_a_gpu_is_as_the_schema_says(capsys):
    mismatch = Mismatch("random", 1, 2, 3, "0x00000000", "0x00000001")
    lines = (KernelResult(MMA, None, 10, 1, (mismatch,)), KernelResult(SPARSE, 1, 0, 0, skip_reason="trapped"))
    report = Report("a GPU", "sm_90", "1", "ptxas", 0, lines)
    print_json("verify", report)
    answer = json.loads(capsys.readouterr().out)

    assert schema_errors(answer, "verify") == []


def test_a_survey_is_as_the_schema_says(capsys, monkeypatch, tmp_path):
    """Without a GPU: a library that always answers the same."""
    from warpfrag.blas.cublas.cublaslt import Configuration, Library

    class FakeLibrary(Library):
        gpu, version = "NVIDIA H999", "1.2.3"

        def __init__(self):
            pass

        def configuration(self, asked):
            return Configuration(66, 1, 1 + (asked.m < 20), 2, 0, 0, 35, 0, 2)

    monkeypatch.setattr(cublas_survey, "library", FakeLibrary)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layers.toml").write_text('types = ["bf16"]\nm = 64\n[layers]\nup = [64, 4096]\n', "utf-8")
    for _ in range(2):  # the second goes on from what the first has written
        assert main(["survey", "layers.toml", "-o", "choices.npz", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert schema_errors(answer, "survey") == []
        assert (answer["layers"], answer["runs"], answer["gpu"]) == (1, 2, "H999")
    assert wf.predict_order(19, 64, 4096, choices="choices.npz", layout="nt").order == wf.Order(split_k=2, unit=64)
    monkeypatch.setattr(FakeLibrary, "version", "1.2.4")
    assert main(["survey", "layers.toml", "-o", "choices.npz"]) == 2
    assert "has the choices of cuBLASLt 1.2.3 on an H999" in capsys.readouterr().err


def test_a_recording_and_its_replay_are_as_the_schema_says(capsys, monkeypatch, tmp_path):
    """Without a GPU: a program that launched a kernel of a closed-source library."""
    launch = RecordedLaunch("k", 0, (1, 1, 1), (32, 1, 1), 0, None, False, b"", "", "libcublas.so.13", "no code")
    recorded = RecordedSequence("k", (launch,), ())
    with RecordingWriter(tmp_path, "NVIDIA H200", 13000) as writer:
        writer.records.append(recorded)
    monkeypatch.setattr(record, "record_program", lambda *_: record.RecordedProgram(5, "NVIDIA H200", (recorded,), ()))
    assert main(["record", "-o", str(tmp_path), "--json", "--", "program"]) == 5
    answer = json.loads(capsys.readouterr().out)
    assert schema_errors(answer, "record") == []
    assert answer["without_code"] == {"k": "no code"}
    assert main(["replay", str(tmp_path), "--json"]) == INCOMPLETE
    answer = json.loads(capsys.readouterr().out)
    assert schema_errors(answer, "replay") == []
    assert [row["status"] for row in answer["launches"]] == ["not replayed"]


def test_every_verb_that_answers_in_json_is_asked_and_described():
    asked = {command.split()[0] for command in COMMANDS} | {"survey", "verify", "record", "replay"}

    assert set(VERBS) - NOT_JSON <= asked
    assert asked <= set(PARTS)
    assert {rule["$ref"] for rule in SCHEMA["anyOf"]} == {f"#/$defs/{query}" for query in asked | {"error"}}


def test_every_instruction_is_described_by_the_schema(ask):
    answer = ask("find")

    assert answer["count"] == len(wf.find()) == len(answer["instructions"])
    assert schema_errors(answer, "find") == []


@pytest.mark.parametrize("part", PARTS)
def test_every_key_is_explained(part):
    assert PARTS[part]["description"]
    assert [key for key, rule in PARTS[part].get("properties", {}).items() if not rule["description"]] == []


def test_the_schema_is_valid_and_rejects_wrong_answers():
    Draft202012Validator.check_schema(SCHEMA)

    assert schema_errors({"query": "samples"}, "samples") != []
