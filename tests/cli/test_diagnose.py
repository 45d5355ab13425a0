"""The command `warpfrag diagnose`: what it says, and its exit status."""

from __future__ import annotations

import numpy as np
import pytest

import warpfrag as wf

NAME = "mma.m16n8k16.f32.f16.f16.f32"


@pytest.fixture
def mma(tmp_path, monkeypatch):
    """An instruction, and its matrices in files."""
    monkeypatch.chdir(tmp_path)
    found = wf.get(NAME)
    random = np.random.default_rng(2)
    for role in "abc":
        np.save(role, random.integers(-9, 10, found.operands[role].shape).astype(float))
    return found


def ask(run, *words, **more):
    return run("diagnose", NAME, *words, **more)


def lines(words, name="d"):
    numbered = [[f"{name}{reg}=0x{word:x}" for reg, word in enumerate(row)][::-1] for row in words]
    return "\n".join(f"lane {lane}: {' '.join(row)}" for lane, row in enumerate(numbered))


def test_a_mistake_is_named_from_a_dump_of_d(run, mma):
    A, B, C = (np.load(f"{role}.npy") for role in "abc")
    dump = lines(mma.d.pack(mma(A.T, B, C)))
    answer = ask(run, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", stdin=dump)
    without = ask(run, "--a", "a.npy", "--b", "b.npy", stdin=lines(mma.d.pack(mma(A, B, C))))

    assert (answer.code, answer.lines) == (
        0,
        ["1 mistake explains it:", "  transposed: a: memory read in the other order"],
    )
    assert without.code == 1
    assert without.out.startswith("nothing found: ")


def test_d_may_be_an_array(run, mma):
    A, B = np.load("a.npy"), np.load("b.npy")
    np.save("matrix.npy", mma(A, B).T.reshape(16, 8))
    np.save("words.npy", mma.d.pack(mma(A, B)))
    inputs = ["--a", "a.npy", "--b", "b.npy"]

    assert ask(run, *inputs, "matrix.npy").lines[1] == "  transposed: d: memory read in the other order"
    assert ask(run, *inputs, "words.npy").out == "correct: this is what the instruction gives\n"
    assert ask(run, *inputs, "words.npy", "--json").json["correct"] is True


def test_one_operand_and_a_pair(run, mma):
    words = mma.a.pack(np.load("a.npy").T)[:, [1, 0, 2, 3]]
    answer = ask(run, "--expect-a", "a.npy", stdin=lines(words, "a"))
    finding = ask(run, "--expect-a", "a.npy", "--json", stdin=lines(words, "a")).json["findings"][0]

    assert answer.code == 0
    assert "; then a: " in answer.out
    assert {finding["kind"], finding["second"]["kind"]} == {"transposed", "registers"}


def test_many_findings_are_cut(run, mma):
    one = np.zeros((16, 16))
    one[0, 0] = 1
    np.save("a.npy", one)
    np.save("b.npy", one[:, :8])
    answer = ask(run, "--a", "a.npy", "--b", "b.npy", stdin="0 " * 128)

    assert answer.code == 0
    assert len(answer.lines) == 14
    assert answer.lines[-1].endswith("more (--json shows all)")


def test_a_warp_is_chosen(run, mma):
    words = mma.a.pack(np.load("a.npy"))
    dump = "\n".join(
        f"warp {warp} {line}" for warp in (0, 1) for line in lines(words ^ np.uint32(1 - warp), "a").splitlines()
    )

    assert ask(run, "--expect-a", "a.npy", "--warp", 1, stdin=dump).out.startswith("correct")
    assert ask(run, "--expect-a", "a.npy", "--warp", 0, stdin=dump).code == 1


def test_refusals(refused, mma):
    one = refused("diagnose", NAME, "--expect-a", "a.npy", "--b", "b.npy")
    assert "give one --expect-... alone, or --a and --b" in one
    assert "--b is missing: what should have gone in" in refused("diagnose", NAME, "--a", "a.npy", stdin="0 " * 128)
    assert "takes no a" in refused("diagnose", "ldmatrix.m8n8.x4.b16", "--a", "a.npy", "--b", "b.npy")
    assert "takes no scale_a" in refused("diagnose", NAME, "--scale-a", "a.npy", stdin="0 " * 128)
    assert "the dump has the warps 0, 1: choose one" in refused(
        "diagnose", NAME, "--expect-a", "a.npy", stdin="\n".join(f"thread {at}: 0 0 0 0" for at in range(64))
    )
