"""Gemms of a C program through the stand-ins for libcublas and libcublasLt."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from device.conditions import needs_stand_ins
from oracle import toolkit
from warpfrag.device.virtual_gpu import FOLDER
from warpfrag.formats.epilogue import fma

pytestmark = needs_stand_ins
PROGRAM = Path(__file__).with_name("gemms.c")
M, N, K, BATCH = 96, 64, 256, 2
LIBRARIES = ("libcudart.so", "libcublas.so", "libcublasLt.so")


@pytest.mark.parametrize("major", [12, 13])
def test_gemms_are_those_of_predict(tmp_path, major):
    compiler = shutil.which("cc") or toolkit.absent("no C compiler")
    libraries = [FOLDER / f"{name}.{major}" for name in LIBRARIES]
    options = [f"-Wl,-rpath-link,{FOLDER}", "-Wl,--allow-shlib-undefined"]
    subprocess.run([compiler, PROGRAM, *libraries, *options, "-o", tmp_path / "gemms"], check=True)
    random = np.random.default_rng(major)
    # Every 16 bits are a small number in each format, and so are every 32.
    a, b, bias = (
        random.integers(0x3000, 0x3C00, count, np.uint16) for count in (2 * BATCH * M * K, 2 * BATCH * K * N, M)
    )
    (tmp_path / "input").write_bytes(a.tobytes() + b.tobytes() + bias.tobytes())
    command = [sys.executable, "-m", "warpfrag", "gpu", "--json", "--report", tmp_path / "report.html", "--"]
    done = subprocess.run(
        [*command, tmp_path / "gemms", tmp_path / "input", tmp_path / "output"], capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr[-3000:]
    assert done.stderr.splitlines()[-1] == "13 7 15", done.stderr
    assert "cublasDtrsm_v2 is not supported" in done.stderr
    output = np.frombuffer((tmp_path / "output").read_bytes(), np.uint16)
    parts = np.split(output, np.cumsum([M * N, BATCH * M * N, 2 * M * N]))

    def matrices(data, dtype, count, *shape):
        return data.view(dtype)[: count * shape[0] * shape[1]].reshape(count, *shape)

    bf16, f16, f32 = ml_dtypes.bfloat16, np.float16, np.float32
    right = matrices(a, bf16, 1, K, M)[0]
    left = matrices(b, bf16, 1, N, K)[0]
    expected = wf.predict(left, right)
    assert parts[0].tobytes() == expected.D.tobytes()
    rows = matrices(a, f16, BATCH, M, K).transpose(0, 2, 1)
    batch = wf.predict(matrices(b, f16, BATCH, N, K), rows, layout="nt")
    assert parts[1].tobytes() == batch.D.tobytes()
    chain = np.zeros((N, M), f32)
    for k in range(K):
        chain = fma(matrices(b, f32, 1, N, K)[0][:, k, None], matrices(a, f32, 1, K, M)[0][k], chain)
    assert parts[2].tobytes() == fma(f32(2), chain, f32(0.5) * chain).tobytes()
    linear = wf.predict(left, matrices(a, bf16, 1, M, K)[0].T, bias=bias.view(bf16), layout="nt")
    assert parts[3].tobytes() == linear.D.tobytes()

    launches = json.loads(done.stdout)["launches"]
    gemms = [each for each in launches if each["kernel"].startswith("cublas")]
    assert [each["kernel"] for each in gemms[:2]] == [
        f"cublasGemmEx bf16 bf16 bf16 nn m {M} n {N} k {K}",
        f"cublasGemmStridedBatchedEx f16 f16 f16 tn {BATCH} x m {M} n {N} k {K}",
    ]
    predictions = expected, batch, linear
    for gemm, prediction in zip((gemms[0], gemms[1], gemms[4]), predictions, strict=True):
        assert (gemm["exact"], gemm["basis"]) == (not prediction.is_guess, prediction.text)
    assert not gemms[2]["exact"]
    assert gemms[2]["reasons"][0] == "float32 without TF32: cuBLAS may split K, which is not modelled"
    assert [each["error"] for each in gemms[5:]] == [700, 1]


def test_every_name_has_a_version(tmp_path):
    nm = shutil.which("nm") or toolkit.absent("no nm")
    names = (FOLDER / "cublas_names.inc").read_text().split()
    for library, entry in (("libcublas", "ENTRY("), ("libcublasLt", "LT_ENTRY(")):
        listed = subprocess.run([nm, "-D", FOLDER / f"{library}.so.13"], capture_output=True, text=True, check=True)
        exported = {line.split()[-1] for line in listed.stdout.splitlines()}
        expected = {f"{name.removeprefix(entry)[:-1]}@@{library}.so.13" for name in names if name.startswith(entry)}
        assert expected
        assert expected <= exported
