"""The output and exit status of `warpfrag find-order`."""

import pathlib

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.cli import main

F16 = "mma.m16n8k16.f32.f16.f16.f32"
BF16 = "mma.m16n8k16.f32.bf16.bf16.f32"


@pytest.fixture
def operands(tmp_path, monkeypatch):
    """Return A and B, also written to files."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    A, B = random.standard_normal((9, 700)), random.standard_normal((700, 11))
    np.save("a", A.astype(np.float16))
    np.save("b", B.astype(np.float16))
    return A, B


def test_an_order_is_named(run, operands):
    A, B = (array.astype(np.float16) for array in operands)
    np.save("d", wf.gemm(A, B, instruction=F16, order=wf.Order(split_k=3, unit=64)))
    answer = run("find-order", "a.npy", "b.npy", "d.npy")
    as_json = run("find-order", "a.npy", "b.npy", "d.npy", "--json").json

    assert answer.code == 0
    assert answer.lines == [
        "split-K in 3 parts of 256 (the last of 188), k ascending in each, added in float32: as",
        "nvjet_..._splitK_... with splitKreduce_kernel does",
        "fits: H100, H200, B200, B300, RTX PRO 6000 Blackwell, RTX 5090 (the same codes on each)",
        "all 99 codes are equal; in Python: wf.Order(split_k=3, unit=64)",
    ]
    assert wf.Order(**as_json["order"]) == wf.Order(split_k=3, unit=64)
    assert as_json["text"] == "split-K in 3 parts of 256 (the last of 188), k ascending in each, added in float32"


def test_no_order(run, operands):
    np.save("d", np.ones((9, 11), np.float16))
    answer = run("find-order", "a.npy", "b.npy", "d.npy", "--instruction", F16)

    assert answer.code == 1
    assert answer.out.startswith("no order that was tried ")
    assert "2 to 128 parts of k, promotion, segment-K, with the arithmetic of H100, A100" in " ".join(
        answer.out.split()
    )


@pytest.mark.parametrize(("gpu", "named", "fitting"), [("RTX 4090", "A100", "RTX 4090, T4"), ("V100", "V100", "V100")])
def test_the_order_of_another_gpu_is_found(run, operands, gpu, named, fitting):
    A, B = (array.astype(np.float16) for array in operands)
    np.save("d", wf.gemm(A, B, arch=gpu))
    answer = run("find-order", "a.npy", "b.npy", "d.npy")

    assert (answer.code, answer.lines[0]) == (0, "k ascending")  # nvjet is a family of H100 kernels
    assert answer.lines[1].removesuffix(" (the same codes on each)").endswith(fitting)
    assert f"not sm_90: in Python, pass arch='{named}'" in answer.lines
    assert wf.find_order(A, B, np.load("d.npy")) is None
    assert wf.find_order(A, B, np.load("d.npy"), arch=named) == wf.Order()


def test_a_result_without_finite_numbers_has_no_information(run, operands):
    A, B = (array.astype(np.float16) for array in operands)
    A[:, 3] = np.nan
    np.save("a", A)
    np.save("d", wf.gemm(A, B))
    answer = run("find-order", "a.npy", "b.npy", "d.npy")

    assert answer.lines[0].startswith("at least 8 orders fit (of 8 that were compared), so D does not decide between")


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (np.arange(700)[:, None], "k ascending"),
        (np.arange(700)[::-1, None], "k descending"),
        (np.arange(700).reshape(4, -1).T, "4 parts of k, added pairwise"),
        (np.arange(700).reshape(-1, 2), "2 interleaved sums, added pairwise"),
    ],
)
def test_float32_sums_without_tensor_cores_are_found(run, operands, order, text):
    A, B = (array.astype(np.float16).astype(np.float32) for array in operands)
    sums = np.zeros((order.shape[1], 9, 11), np.float32)
    for at in order:  # products of f16 are exact in float32
        sums += np.stack([np.outer(A[:, k], B[k]) for k in at])
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    np.save("d", sums[0])
    answer = run("find-order", "a.npy", "b.npy", "d.npy")

    assert (answer.code, answer.lines) == (0, [f"a float32 sum without tensor cores: {text}"])


def test_types_that_npy_cannot_name_are_given_as_codes(run, operands):
    A, B = (array.astype(ml_dtypes.bfloat16) for array in operands)
    D = wf.gemm(A, B, instruction=BF16).astype(ml_dtypes.bfloat16)
    np.save("a", A)  # numpy writes it as two bytes without a type
    np.save("b", B.view(np.uint16))
    np.save("d", D.view(np.uint16))
    answer = run("find-order", "a.npy", "b.npy", "d.npy", "--codes", "bfloat16", "--result", "bfloat16")

    assert answer.code == 0
    assert answer.out.startswith("at least 8 orders fit")
    assert answer.lines[2] == "  k ascending"
    assert answer.lines[-1] == "all 99 codes are equal; in Python: wf.Order()"
    np.save("d", D.astype(np.float32))
    hint = (
        "all values of D are exact in f16 or bf16: if the kernel rounded them, pass D with this dtype (--result bf16)"
    )
    assert hint in " ".join(run("find-order", "a.npy", "b.npy", "d.npy", "--codes", "bf16").out.split())
    assert run("find-order", "a.npy", "b.npy", "d.npy", "--codes", "bf16", "--result", "bf16").out == answer.out


def test_what_cannot_be_read_is_refused(refused, operands):
    np.save("d", np.ones((9, 11), np.uint16))
    np.save("void", np.ones((9, 700), ml_dtypes.bfloat16))
    with pathlib.Path("a.txt").open("w", encoding="utf-8") as file:
        file.write("1 2 3")
    zipped = b"PK\x03\x04" + bytes(26) + b"x/data.pklFB"
    for content in (zipped, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x02"):
        pathlib.Path("x.pt").write_bytes(content)
        convert = "'x.pt' was written by torch.save: convert it with numpy.save('x.npy', torch.load('x.pt').numpy())"
        assert refused("find-order", "x.pt", "b.npy", "d.npy").startswith(convert) == (len(content) > 2)

    assert refused("find-order", "a.npy", "b.npy", "d.npy").endswith(
        "got dtype uint16; if these are codes, name their format: --result bf16, or view(ml_dtypes.bfloat16) in Python"
    )
    assert (
        refused("find-order", "a.txt", "b.npy", "d.npy")
        == "'a.txt' is not a .npy file: save the whole matrix with numpy.save"
    )
    assert refused("find-order", "void.npy", "b.npy", "d.npy") == (
        "'void.npy' has 2-byte elements without a type: name the type with --codes"
    )
    assert refused("find-order", "a.npy", "b.npy", "d.npy", "--codes", "bf16") == (
        "'a.npy': codes of bf16 are uint16, got dtype float16, whose values are not exact in bf16"
    )


def test_a_product_in_float64_is_not_called_a_kernel_without_a_note(tmp_path, capsys):
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((4, 64)).astype(np.float16), rng.standard_normal((64, 4)).astype(np.float16)
    D = (A.astype(np.float64) @ B.astype(np.float64)).astype(np.float16)
    for name, array in {"A": A, "B": B, "D": D}.items():
        np.save(tmp_path / f"{name}.npy", array)

    assert main(["find-order", *(str(tmp_path / f"{name}.npy") for name in "ABD")]) == 0
    assert "\n  a float64 product, rounded once\n" in capsys.readouterr().out
