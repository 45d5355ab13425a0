"""The verbs that compute: run, check and verify."""

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
    found = answer(capsys, "execute", F16, "--seed", "7")
    codes = {role: np.array(matrix, np.uint64) for role, matrix in found["operands"].items()}
    assert wf.get(F16)(codes["a"], codes["b"], codes["c"], raw=True).tolist() == found["results"][0]["d"]
    assert found["results"][0]["evidence"]["level"] == "hardware"
    assert (found["schema"], found["seed"]) == (2, 7)


def test_run_shows_its_seed_and_repeats_with_it(capsys: pytest.CaptureFixture[str]):
    first = answer(capsys, "execute", F16)
    assert answer(capsys, "execute", F16, "--seed", str(first["seed"]))["results"] == first["results"]


def test_run_takes_matrices_from_files(tmp_path, capsys: pytest.CaptureFixture[str]):
    A, B = np.eye(16, dtype=np.float16), np.arange(128, dtype=np.float16).reshape(16, 8)
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "B.npy", B)
    np.save(tmp_path / "C.npy", np.zeros((16, 8)))
    files = [word for role in "abc" for word in (f"--{role}", str(tmp_path / f"{role.upper()}.npy"))]
    found = answer(capsys, "execute", F16, *files)
    assert found["seed"] is None
    assert np.array(found["results"][0]["d"], np.uint32).view(np.float32).tolist() == B.tolist()


def test_without_a_file_every_operand_is_random(capsys: pytest.CaptureFixture[str]):
    assert answer(capsys, "execute", F16, "--seed", "7")["sources"] == dict.fromkeys("abc", "random")
    assert main(["execute", F16, "--seed", "7"]) == 0
    assert "operands: a, b, c random, seed 7\n" in capsys.readouterr().out


def test_beside_files_c_is_zero_and_the_rest_random(tmp_path, capsys: pytest.CaptureFixture[str]):
    np.save(tmp_path / "A.npy", np.eye(16))
    np.save(tmp_path / "B.npy", np.ones((16, 8)))
    a, b = (["--a", str(tmp_path / "A.npy")], ["--b", str(tmp_path / "B.npy")])
    found = answer(capsys, "execute", F16, *a, *b, "--seed", "7")
    assert (found["seed"], found["sources"]) == (None, {"a": "file", "b": "file", "c": "zero"})
    assert np.array(found["results"][0]["d"], np.uint32).view(np.float32).tolist() == np.ones((16, 8)).tolist()
    found = answer(capsys, "execute", F16, *a, "--seed", "7")
    assert (found["seed"], found["sources"]) == (7, {"a": "file", "b": "random", "c": "zero"})
    assert found["operands"]["b"] == answer(capsys, "execute", F16, "--seed", "7")["operands"]["b"]
    assert main(["execute", F16, *a, *b]) == main(["execute", F16, *a, "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert "operands: a, b from files; c zero\n" in text
    assert "operands: a from files; b random, seed 7; c zero\n" in text


def test_run_reads_text_as_pack_does(tmp_path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "A.txt"
    path.write_text("0.1 " * 256, encoding="utf-8")
    assert main(["execute", F16, "--a", str(path)]) == 2
    assert "not exact in f16" in capsys.readouterr().err
    found = answer(capsys, "execute", F16, "--a", str(path), "--rounding", "rne")
    assert found["operands"]["a"] == [[0x2E66] * 16] * 16


@pytest.mark.parametrize("array", [np.zeros((2, 16, 16)), np.zeros((32, 4), np.uint32)])
def test_run_refuses_an_array_of_another_shape(array, tmp_path, capsys: pytest.CaptureFixture[str]):
    np.save(tmp_path / "A.npy", array)
    assert main(["execute", F16, "--a", str(tmp_path / "A.npy")]) == 2
    assert f"expected an array of shape (16, 16), got {array.shape}" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "message"), [
    (b"", "256 in all, got 0"),
    (b"PK\x03\x04", "is not an array of numbers"),
    (b"\x93NUMPY\x01\x00", "is not an array of numbers"),
    (b"\xff\xfe", "is neither UTF-8 text nor a .npy file"),
])  # fmt: skip
def test_run_refuses_a_file_that_is_no_array(
    content: bytes, message: str, tmp_path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "A.npy").write_bytes(content)
    assert main(["execute", F16, "--a", str(tmp_path / "A.npy")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("verb", ["execute", "test-vectors", "get"])
def test_an_instruction_of_sm_90a_is_not_said_to_run_on_sm_90(verb: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "wgmma.m64n8k16.f32.f16.f16"]) == 0
    words = capsys.readouterr().out.replace(":", "").split()
    assert "sm_90a" in words
    assert "sm_90" not in words


@pytest.mark.parametrize("arch", ["sm90", "SM_90", "90"])
def test_an_architecture_may_be_spelled_in_short(arch: str, capsys: pytest.CaptureFixture[str]):
    assert answer(capsys, "execute", F16, "--arch", arch)["results"][0]["arch"] == "sm_90"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([F16, "--trace", "0", "0", "--mma", "1"], "--mma needs --trace and m8n8k4 with f16"),
        (["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "--mma", "1"], "--mma needs --trace"),
    ],
)
def test_run_refuses_what_it_would_ignore(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["execute", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", [
    F16, "mma.sp.m16n8k64.f32.e4m3.e4m3.f32", "mma.m16n8k32.s32.s8.s8.s32", "mma.m8n8k4.f64.f64.f64.f64",
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "wmma.mma.row.col.m16n16k16.f16.f32",
    "mma.m16n8k256.s32.b1.b1.s32.xor.popc",
])  # fmt: skip
def test_the_last_step_of_a_trace_is_the_result(name: str, capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, "execute", name, "--seed", "3", "--trace", "2", "1")
    result = np.array(found["results"][0]["d"])
    assert found["results"][0]["trace"][-1]["result"] == (result[0] if result.ndim > 2 else result)[2, 1]
    assert main(["execute", name, "--seed", "3", "--trace", "2", "1"]) == 0
    text = capsys.readouterr().out
    assert f"step {len(found['results'][0]['trace'])} of {len(found['results'][0]['trace'])}" in text


def test_a_trace_shows_what_was_cut_off(tmp_path, capsys: pytest.CaptureFixture[str]):
    """1 - 1 + 2^-26 on sm_90: the last product is below the 25 bits that are kept."""
    A, B = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16)
    A[0, :3], B[:3, 0] = [0x3C00, 0xBC00, 0x0800], [0x3C00, 0x3C00, 0x0800]
    np.save(tmp_path / "A.npy", A.view(np.float16))
    np.save(tmp_path / "B.npy", B.view(np.float16))
    np.save(tmp_path / "C.npy", np.zeros((16, 8)))
    files = [word for role in "abc" for word in (f"--{role}", str(tmp_path / f"{role.upper()}.npy"))]
    step = answer(capsys, "execute", F16, *files, "--trace", "0", "0")["results"][0]["trace"][0]
    assert step["common_exponent"] == 0
    assert step["fraction_bits"] == 25
    assert [term["kept"] for term in step["terms"][:3]] == [1 << 25, -(1 << 25), 0]
    assert step["terms"][2]["lost"] == "1/67108864"
    assert (step["result"], step["exact_sum"], step["nearest"]) == (0, "1/67108864", 0x32800000)
    assert main(["execute", F16, *files, "--trace", "0", "0"]) == 0
    assert capsys.readouterr().out.endswith(
        "truncated to f32 -> f32 0x00000000 = 0\n"
        "exact sum 1.4901161193847656e-08; nearest f32 0x32800000: this is 1.4901161193847656e-08 below it\n"
    )


def test_values_are_shown_with_the_digits_that_tell_them_apart(tmp_path, capsys: pytest.CaptureFixture[str]):
    C = np.full((16, 8), np.float32(1))
    C[0] = np.nextafter(C[0], np.float32(2))
    C[1] = np.finfo(np.float32).max
    np.save(tmp_path / "A.npy", np.zeros((16, 16)))
    np.save(tmp_path / "C.npy", C)
    files = ["--a", str(tmp_path / "A.npy"), "--c", str(tmp_path / "C.npy")]
    assert main(["execute", F16, *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("D") + 1
    assert [line.split()[0] for line in lines[first : first + 3]] == ["1.0000001", "3.4028235e+38", "1"]


def test_a_trace_says_which_term_is_not_finite(tmp_path, capsys: pytest.CaptureFixture[str]):
    A = np.zeros((16, 16))
    A[0, 3] = -np.inf
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "B.npy", np.ones((16, 8)))
    files = ["--a", str(tmp_path / "A.npy"), "--b", str(tmp_path / "B.npy")]
    (step,) = answer(capsys, "execute", F16, *files, "--trace", "0", "0")["results"][0]["trace"]
    assert [step[name] for name in ("common_exponent", "fraction_bits", "total", "exact_sum", "nearest")] == [None] * 5
    assert (step["terms"][3]["value"], step["special"]) == ("-inf", "k=3 is infinite")
    assert main(["execute", F16, *files, "--trace", "0", "0"]) == 0
    text = capsys.readouterr().out
    assert "term  value\n" in text
    assert "k=3   -inf\n" in text
    assert text.endswith("C     0\nk=3 is infinite -> f32 0xff800000 = -inf\n")


def test_a_trace_shows_products_that_no_float_holds(tmp_path, capsys: pytest.CaptureFixture[str]):
    name = "mma.m8n8k4.f64.f64.f64.f64"
    np.save(tmp_path / "A.npy", np.full((8, 4), 2.0**600))
    np.save(tmp_path / "B.npy", np.array([[2.0**600], [-(2.0**-1074)], [2.0**-600], [0]]) * np.ones((1, 8)))
    assert (
        main(["execute", name, "--a", str(tmp_path / "A.npy"), "--b", str(tmp_path / "B.npy"), "--trace", "0", "0"])
        == 0
    )
    assert "k=0   1.7218479456385751e+361\n" in capsys.readouterr().out


def test_a_trace_of_bits_has_two_terms(capsys: pytest.CaptureFixture[str]):
    (step,) = answer(capsys, "execute", "mma.m16n8k256.s32.b1.b1.s32.xor.popc", "--seed", "3", "--trace", "2", "1")[
        "results"
    ][0]["trace"]
    assert [term["name"] for term in step["terms"]] == ["popcount", "C"]
    assert sum(int(term["value"]) for term in step["terms"]) % 2**32 == step["result"]


@pytest.mark.parametrize(("words", "message"), [
    (["execute", F16, "--arch", "sm_75"], "sm_75 does not have this instruction"),
    (["execute", F16, "--trace", "16", "0"], "ROW must be in 0..15, got 16"),
    (["execute", F16, "--a", "missing.npy"], "cannot read 'missing.npy': No such file or directory"),
    (["execute", F16, "--seed", "-1"], "'-1' is not in the range 0.."),
    (["execute", F16, "--arch", "sm_1"], "unknown arch 'sm_1'"),
    (["execute", F16, "--scale-a", "x.npy"], "takes no scale_a"),
    (["execute", "ldmatrix.m8n8.x4.b16"], "it only moves data, so it has no arithmetic"),
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
    assert "all codes equal" in capsys.readouterr().out


def test_check_finds_a_difference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import sys

    from warpfrag.tensorcore import execute as _  # noqa: F401 (import it before it is replaced)

    module = sys.modules["warpfrag.tensorcore.execute"]
    right = module.execute
    monkeypatch.setattr(module, "execute", lambda *words, **options: right(*words, **options) ^ np.uint32(1))
    assert main(["check", "--only", "m8n8k128"]) == 1
    assert "DIFFER" in capsys.readouterr().out


def test_verify_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from warpfrag.errors import NoGpu
    from warpfrag.hardware import verification as module

    def no_gpu(_device: int):
        reason = "NVIDIA GPU 0 cannot be used: none"
        raise NoGpu(reason)

    monkeypatch.setattr(module, "Worker", no_gpu)
    assert main(["verify", F16, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "NoGpu"
    assert main(["verify", F16]) == 2
    error = capsys.readouterr().err
    assert (
        error
        == "warpfrag: NVIDIA GPU 0 cannot be used: none; `warpfrag check` compares with captured results instead\n"
    )


def test_verify_refuses_a_file_it_could_not_write_before_it_asks_for_a_gpu(
    tmp_path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "nowhere" / "capture.npz"
    assert main(["verify", F16, "--capture", str(path)]) == 2
    assert f"cannot write '{path}': No such file or directory" in capsys.readouterr().err
