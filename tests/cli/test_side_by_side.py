"""`execute` on several architectures, and descriptors in hex and decimal."""

import numpy as np

import warpfrag as wf

F16 = "mma.m16n8k16.f32.f16.f16.f32"


def test_two_architectures_stand_side_by_side(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    A, B, C = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    A[0, :2], B[:2, 0], C[0, 0] = (2.0**11, -0.75), (2.0**12, 1), -(2.0**23)
    for name, matrix in (("a", A), ("b", B), ("c", C)):
        np.save(name, matrix)
    words = ["execute", F16, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", "--arch", "sm_80", "sm_90"]
    answer = run(*words, "--trace", "0", "0")
    facts = run(*words, "--json").json

    assert answer.code == 0
    assert "1 of 128 elements of D differ:" in answer.out
    assert "D[0, 0]  -0.5   -0.75" in answer.out
    assert answer.out.index("\nsm_80\n") < answer.out.index("\nsm_90\n")
    assert [result["arch"] for result in facts["results"]] == ["sm_80", "sm_90"]
    assert np.array_equal(facts["results"][1]["d"], wf.get(F16)(A, B, C).view(np.uint32))
    assert "0 of 128 elements of D differ" in run("execute", F16, "--arch", "sm_80", "--arch", "sm_86").out


def test_digits_without_0x_are_hex_and_said_to_be(run):
    same = run("descriptor", "0x4000004000000000")
    digits = run("descriptor", "4000004000000000")

    assert digits.out == f"4000004000000000 is read as hex\n{same.out}"
    assert run("descriptor", "c000004000000000").out.startswith("0xc000004000000000")


def test_a_descriptor_that_is_too_long_is_shown_as_it_was_typed(refused):
    expected = "a descriptor: expected 64 bits in hex, such as 0x4000004000000000; got "

    assert refused("descriptor", "0x40000040000000000") == f"{expected}'0x40000040000000000'"
    assert refused("descriptor", "0x") == f"{expected}'0x'"


def test_an_instruction_descriptor_is_hex_too(run, refused):
    words = ["--for", "tcgen05.mma.cta_group::1.kind::f16", "idesc"]

    assert run("descriptor", "8400490", *words).out == run("descriptor", "0x8400490", *words).out
    assert refused("descriptor", "1f8400490", *words).endswith("got '1f8400490'")


def test_bytes_in_units_of_16_are_pointed_out(run):
    (word,) = run("descriptor", "0x4000040000000000", "--json").json["descriptors"]

    assert word["stride"] == 16384
    assert word["hints"] == [
        "stride: the field is 1024, which means 16384 bytes; if 1024 bytes were meant, it is 64, in units of 16"
    ]
    assert run("descriptor", "0x4000004000000000", "--json").json["descriptors"][0]["hints"] == []
