"""`warpfrag error-report`: its table, its figure and its errors."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf

F16 = "mma.m16n8k16.f32.f16.f16.f32"


@pytest.fixture
def operands(tmp_path, monkeypatch):
    """Return A and B, also written to files."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    A, B = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 50), (50, 5)))
    np.save("a", A)
    np.save("b", B)
    return A, B


def test_architectures_and_orders_side_by_side(run, operands):
    words = ["error-report", "a.npy", "b.npy", "--instruction", F16, "--arch", "sm_80", "sm_90"]
    orders = ["--order", "", "--order", "split_k=2,unit=16"]
    answer = run(*words, *orders, "-o", "e.svg")
    report = wf.error_report(
        *operands, instruction=F16, arch=["sm_80", "sm_90"], order=[wf.Order(), wf.Order(split_k=2, unit=16)]
    )

    assert answer.code == 0
    assert answer.out == f"{report}\nwrote e.svg\n"
    assert Path("e.svg").read_text(encoding="utf-8") == report.svg()
    assert run(*words, *orders, "--json").json["errors"] == report.to_dict()["errors"]


def test_two_architectures_differ_or_not_in_one_line(run, operands):
    words = ["error-report", "a.npy", "b.npy", "--instruction", F16, "--arch"]
    first, second = (wf.gemm(*operands, instruction=F16, arch=arch) for arch in ("sm_80", "sm_90"))
    differing = int((first.view(np.uint32) != second.view(np.uint32)).sum())

    assert 0 < differing < 20
    assert f"\nsm_80 and sm_90: different bits in {differing} of 20 outputs\n" in run(*words, "sm_80", "sm_90").out
    assert "\nsm_90 and sm_90a: the same bits in all 20 outputs\n" in run(*words, "sm_90", "sm_90a").out
    assert " and " not in run(*words, "sm_90").out
    assert [row["differing"] for row in run(*words, "sm_80", "sm_90", "--json").json["errors"]] == [0, differing]


def test_codes_c_and_overflow(run, operands):
    A, B = (array.astype(ml_dtypes.bfloat16) for array in operands)
    np.save("a", A.view(np.uint16))
    np.save("b", B.view(np.uint16))
    np.save("c", np.full((4, 5), 3e38, np.float32))
    words = ["error-report", "a.npy", "b.npy", "--instruction", "mma.m16n8k16.f32.bf16.bf16.f32", "--codes", "bf16"]
    A[0] = 3e38
    np.save("huge", A.view(np.uint16))

    assert run(*words, "--c", "c.npy").code == 0
    assert "outputs are infinite or NaN" in run(*words[:1], "huge.npy", *words[2:]).out


def test_a_value_that_is_not_exact_is_refused_with_the_option_that_rounds(refused, operands):
    np.save("b", operands[1].astype(np.float64) / 3)
    words = ["error-report", "a.npy", "b.npy", "--instruction", F16]

    assert refused(*words).endswith("not exact in f16; --rounding rne rounds it to the nearest value")


def test_what_is_no_order_is_refused(refused, operands):
    words = ["error-report", "a.npy", "b.npy", "--instruction", F16]
    fields = "split_k=N, unit=N, promote=N, residue=N, step=N, segment_k=N, in_place=N"
    assert f"expected {fields}, separated by commas; got 'x=1'" in refused(*words, "--order", "x=1")
    assert "promote: expected a multiple of the instruction's k, 16; got 3" in refused(*words, "--order", "promote=3")
    assert "split_k: expected an integer of at least 1; got 0" in refused(*words, "--order", "split_k=0")


def test_gpus_are_called_as_the_user_calls_them(run, operands):
    answer = run("error-report", "a.npy", "b.npy", "--arch", "A100", "--arch", "H100")
    product = run("gemm", "a.npy", "b.npy", "--arch", "A100", "--json").json

    assert answer.lines[0].startswith("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, ")
    assert [line.split()[0] for line in answer.lines[2:4]] == ["A100", "H100"]
    assert (product["instruction"], product["arch"]) == ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "A100")
