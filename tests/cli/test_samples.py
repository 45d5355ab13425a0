"""The example files of the package: listed, printed, copied, and read by every verb that takes a file."""

import io

import numpy as np
import pytest

import warpfrag as wf
from warpfrag.files import read_bytes
from warpfrag.samples import SAMPLES, sample_path

MMA = "mma.m16n8k16.f32.f16.f16.f32"
WMMA = "wmma.mma.row.col.m16n16k16.f32.f32"


def array(name):
    return np.load(io.BytesIO(sample_path(name).read_bytes()))


def matrix(name):
    return np.loadtxt(io.StringIO(sample_path(name).read_bytes().decode()))


def test_they_are_small():
    assert sum(len(sample_path(name).read_bytes()) for name in SAMPLES) < 52_000


def test_they_are_listed(run):
    listed = run("samples", "--json").json["samples"]

    assert {entry["name"]: entry["bytes"] for entry in listed} == {
        name: len(sample_path(name).read_bytes()) for name in SAMPLES
    }
    assert all(entry["name"] in run("samples").out for entry in listed)


@pytest.mark.parametrize("name", [name for name in SAMPLES if not name.endswith(".npy")])
def test_text_is_printed(run, name):
    assert run("samples", name).out == sample_path(name).read_bytes().decode()


@pytest.mark.parametrize("name", SAMPLES)
def test_each_is_copied(run, tmp_path, name):
    target = tmp_path / "copy"

    assert run("samples", name, "-o", target).out == f"wrote {target}\n"
    assert target.read_bytes() == sample_path(name).read_bytes() == read_bytes(f"sample:{name}", 1 << 20)


def test_an_unknown_sample_is_refused_with_those_there_are(refused):
    assert refused("unpack", MMA, "d", "sample:dmp.txt") == (
        f"cannot read 'sample:dmp.txt': unknown sample: expected one of {', '.join(SAMPLES)}"
    )
    assert "'dmp.txt' is not one of" in refused("samples", "dmp.txt")
    assert refused("samples", "-o", "file").startswith("-o requires the name of a sample")


def test_only_the_fixed_kernel_is_right(run):
    codes = [
        run("diagnose", f"sample:{name}.ptx", "sample:A.txt", "sample:B.txt").code for name in ("tile", "tile_fixed")
    ]

    assert codes == [1, 0]


def test_the_dump_holds_the_mistake_that_readme_shows(run):
    found = run("diagnose", MMA, "--a", "sample:A.txt", "--b", "sample:B.txt", "sample:dump.txt", "--json").json

    assert found["findings"][0]["text"].startswith("each 8 x 8 block transposed")


@pytest.mark.parametrize(("gpu", "expected"), [("V100", 0.0), ("A100", -0.5), ("H100", -0.75)])
def test_three_generations_give_three_results(gpu, expected):
    A, B = matrix("cancel_A.txt"), matrix("cancel_B.txt")
    product = wf.gemm(A.astype(np.float16), B.astype(np.float16), instruction=WMMA, arch=gpu)

    assert (A @ B)[0, 0] == -0.75
    assert product[0, 0] == expected


def test_the_product_is_the_one_that_predict_gives():
    predicted = wf.predict(array("A.npy"), array("B.npy"), layout="nt", shape=(24, 1024, 5120))

    assert not predicted.is_guess
    assert np.array_equal(predicted.D, array("D.npy"))
    with pytest.warns(wf.errors.AmbiguousOrder, match="orders fit"):
        assert wf.find_order(array("A.npy"), array("B.npy"), array("D.npy")) == wf.Order(split_k=3, unit=64)


def test_the_kernel_runs():
    x, y = np.random.default_rng(0).standard_normal((2, 4, 200)).astype(np.float32)
    run = wf.ptx.load("sample:softmax.ptx")["t_softmax"].launch(4, 128, [x, y, 200, 200, None, None], shared=16)

    exact = np.exp(x - x.max(1, keepdims=True))
    assert not run.uncertain
    assert np.allclose(y, exact / exact.sum(1, keepdims=True))
