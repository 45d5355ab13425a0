"""cuBLAS calls that PyTorch made on an H200: 500 results of 50 kinds, and the stand-in's, without PyTorch.

Operands and digests are those of tools/torch_gemms.py, which recorded tests/data/torch/gemms_h200.json.
"""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from warpfrag.blas.cublas.library_epilogue import gelu
from warpfrag.device.gemms_served import BIAS, GELU, NO_REDUCED_PRECISION, PLAIN, RELU, GemmCall, ServedGemm

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "torch" / "gemms_h200.json").read_text(encoding="utf-8"))
DTYPES = {
    "f16": (np.float16, 2, "float16"), "bf16": (ml_dtypes.bfloat16, 14, "bfloat16"), "f32": (np.float32, 0, "float32"),
    "e4m3": (ml_dtypes.float8_e4m3fn, 28, ""), "s8": (np.int8, 3, ""), "s32": (np.int32, 10, "int32"),
}  # fmt: skip
COMPUTE = {"tf32": 77, "s8": 72}
SMALL = 1 << 23
"""The number of terms of a call that every run computes; the others are slow."""


class Sort(NamedTuple):
    """The operands and the epilogue of a call."""

    type: str
    layout: str = "nt"
    result: str = ""
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: int = PLAIN
    batch: int = 0
    fast: bool = False
    scales: bool = False
    shift: int = 0


SORTS = {
    "mm f16 nn": Sort("f16", "nn"), "mm bf16 nt": Sort("bf16"), "mm bf16 tn": Sort("bf16", "tn"),
    "mm f16 tt": Sort("f16", "tt"), "mm tf32 nn": Sort("tf32", "nn"), "mm tf32 nt": Sort("tf32"),
    "mm tf32 tn": Sort("tf32", "tn"), "mm f32 nn": Sort("f32", "nn"), "mm f32 nt": Sort("f32"),
    "mm f32 tn": Sort("f32", "tn"), "mm bf16 to f32": Sort("bf16", result="f32"),
    "linear bf16": Sort("bf16", epilogue=BIAS), "linear f16": Sort("f16", epilogue=BIAS),
    "linear tf32": Sort("tf32", epilogue=BIAS), "linear f32": Sort("f32", epilogue=BIAS),
    "addmm bf16": Sort("bf16", beta=1), "addmm f16 alpha beta": Sort("f16", alpha=0.5, beta=2),
    "addmm tf32 alpha beta": Sort("tf32", alpha=0.75, beta=1.5), "bmm f16 nn": Sort("f16", "nn", batch=6),
    "bmm bf16 nt": Sort("bf16", batch=6), "bmm bf16 tn": Sort("bf16", "tn", batch=6),
    "bmm tf32 nn": Sort("tf32", "nn", batch=6), "bmm f32 nt": Sort("f32", batch=6),
    "baddbmm bf16 alpha beta": Sort("bf16", alpha=0.5, beta=2, batch=6),
    "relu epilogue bf16": Sort("bf16", epilogue=BIAS | RELU), "gelu epilogue bf16": Sort("bf16", epilogue=BIAS | GELU),
    "gelu epilogue f16": Sort("f16", epilogue=BIAS | GELU), "scaled e4m3": Sort("e4m3", result="bf16", scales=True),
    "scaled e4m3 fast": Sort("e4m3", result="bf16", scales=True, fast=True),
    "scaled e4m3 bias": Sort("e4m3", result="bf16", scales=True, fast=True, epilogue=BIAS),
    "int8": Sort("s8", result="s32"),
    "mm bf16 tn, any k": Sort("bf16", "tn"), "mm f16 tn, any k": Sort("f16", "tn"), "mm bf16 tt": Sort("bf16", "tt"),
    "addmm f16": Sort("f16", beta=1), "addmm f16 nn": Sort("f16", "nn", beta=1),
    "addmm bf16 alpha": Sort("bf16", alpha=0.7, beta=1),
    "addmm bf16 rounded alpha beta": Sort("bf16", alpha=0.7, beta=1.3),
    "addmm f16 nn rounded alpha beta": Sort("f16", "nn", alpha=0.7, beta=1.3), "addmm tf32": Sort("tf32", beta=1),
    "addmm tf32 rounded alpha beta": Sort("tf32", alpha=0.7, beta=1.3), "baddbmm bf16": Sort("bf16", beta=1, batch=6),
    "baddbmm f16 rounded alpha beta": Sort("f16", alpha=0.7, beta=1.3, batch=6),
    "small gelu epilogue f16": Sort("f16", epilogue=BIAS | GELU, shift=6),
    "small gelu epilogue bf16": Sort("bf16", epilogue=BIAS | GELU, shift=6),
    "gelu epilogue tf32": Sort("tf32", epilogue=BIAS | GELU, shift=6),
    "relu epilogue f16": Sort("f16", epilogue=BIAS | RELU), "relu epilogue tf32": Sort("tf32", epilogue=BIAS | RELU),
    "scaled e4m3 bias, slow": Sort("e4m3", result="bf16", scales=True, epilogue=BIAS),
    "matmul bf16 strided heads": Sort("bf16", batch=6),
}  # fmt: skip
MAX_GUESSED_WRONGLY = 4
"""The number of TF32 calls of a sort whose kernel or split count may be guessed wrongly."""


def floats(*shape: int, seed: int) -> np.ndarray:
    numbers = np.random.default_rng([seed, *shape]).integers(-(1 << 19), 1 << 19, shape)
    return (numbers / (1 << 17)).astype(np.float32)


def operands(sort: Sort, name: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the stored matrices: A is M x K, or K x M if it is transposed; B is stored in the same way."""
    shapes = (k, m) if sort.layout[0] == "t" else (m, k), (n, k) if sort.layout[1] == "t" else (k, n)
    if sort.type == "s8":
        return tuple(
            (np.random.default_rng([seed, 256, *shape]).integers(0, 256, shape) - 128).astype(np.int8)
            for seed, shape in zip((1, 2), shapes, strict=True)
        )
    dtype = DTYPES["f32" if sort.type == "tf32" else sort.type][0]
    if "heads" in name:
        heads = floats(2, m, 3, k, seed=1), floats(2, n, 3, k, seed=2)
        return tuple(np.ascontiguousarray(each.transpose(0, 2, 1, 3)).astype(dtype) for each in heads)
    batch = (sort.batch,) if sort.batch else ()
    a, b = (floats(*batch, *shape, seed=seed).astype(dtype) for seed, shape in zip((1, 2), shapes, strict=True))
    return a, (b.astype(np.float32) / 2**sort.shift).astype(dtype) if sort.shift else b


def served(name: str, shape: str) -> tuple[str, list[str]]:
    """Return the digest of the stand-in's result, and the reasons why a GPU's may differ."""
    sort, (m, n, k) = SORTS[name], map(int, shape.split())
    a, b = operands(sort, name, m, n, k)
    number = DTYPES["f32" if sort.type == "tf32" else sort.type][1]
    dtype, result, dtype_name = DTYPES[sort.result or {"tf32": "f32"}.get(sort.type, sort.type)]
    batch = (sort.batch,) if sort.batch else ()
    d = np.zeros((*batch, m, n), dtype)
    if sort.beta:
        d[...] = floats(*batch, m, n, seed=3).astype(dtype)
    bias = floats(n, seed=3).astype(dtype)
    scales = np.array([0.75, 1.5], np.float32)
    arrays, starts = [], []
    for array in (a, b, d, bias, scales):
        starts.append(sum(len(each) for each in arrays))
        arrays.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    memory = np.concatenate(arrays)
    call = GemmCall(
        a=starts[1], b=starts[0], c=starts[2], d=starts[2], bias=starts[3], alpha_address=0, beta_address=0,
        scale_a=starts[4] * sort.scales, scale_b=(starts[4] + 4) * sort.scales, aux=0, ld_aux=0, m=n, n=m, k=k,
        lda=k if sort.layout[1] == "t" else n, ldb=m if sort.layout[0] == "t" else k, ldc=n, ldd=n,
        stride_a=n * k, stride_b=m * k, stride_c=m * n, stride_d=m * n, alpha=sort.alpha, beta=sort.beta,
        batch=sort.batch or 1, type_a=number, type_b=number, type_c=result, type_d=result, bias_type=result,
        transpose_a=int(sort.layout[1] == "t"), transpose_b=int(sort.layout[0] == "t"),
        compute=COMPUTE.get(sort.type, 68), math=NO_REDUCED_PRECISION, epilogue=sort.epilogue, fast=int(sort.fast),
        scale_type=0, is_batched=int(bool(sort.batch)), has_pointers=0, workspace_mib=0, function=b"a test",
    )  # fmt: skip
    record = SimpleNamespace(exact=None, reasons=None, basis=None)
    ServedGemm(call, lambda address, size: memory[address : address + size]).run(record)
    assert record.exact == (not record.reasons)
    whole = (2, 3, m, n) if "heads" in name else d.shape
    digest = hashlib.sha256(f"torch.{dtype_name} {whole} ".encode())
    digest.update(memory[starts[2] : starts[2] + d.nbytes].tobytes())
    return digest.hexdigest()[:32], record.reasons


def terms(name: str, shape: str) -> int:
    m, n, k = map(int, shape.split())
    return m * n * k * max(1, SORTS[name].batch)


def calls(name: str, *, small: bool) -> list[str]:
    """Return the calls of a sort with few or many terms."""
    return [shape for shape in RECORDED["calls"][name] if (terms(name, shape) <= SMALL) == small]


def check(name: str, shapes: list[str]) -> None:
    """Check that results equal the H200's; guessed ones may differ, and are then never called exact."""
    wrong = 0
    for shape in shapes:
        digest, reasons = served(name, shape)
        if digest != RECORDED["calls"][name][shape]:
            assert SORTS[name].type in {"f32", "tf32"}, (name, shape)
            assert reasons, (name, shape)
            wrong += SORTS[name].type == "tf32"
    assert wrong <= MAX_GUESSED_WRONGLY, name


def test_every_recorded_sort_is_computed():
    assert set(SORTS) == set(RECORDED["calls"])
    counts = [len(shapes) for shapes in RECORDED["calls"].values()]
    assert (len(counts), sum(counts)) == (50, 500)


@pytest.mark.parametrize("name", SORTS)
def test_small_calls_have_the_bits_of_the_h200(name):
    shapes = calls(name, small=True)
    assert shapes
    check(name, shapes)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SORTS if SORTS[name].type != "f32"])
def test_large_calls_have_the_bits_of_the_h200(name):
    check(name, calls(name, small=False))


ACTIVATIONS = {PLAIN: "", BIAS: "", BIAS | RELU: "relu", BIAS | GELU: "gelu"}
PREDICTED = [
    name
    for name, sort in SORTS.items()
    if (sort.epilogue != PLAIN or sort.alpha != 1 or sort.beta or sort.scales)
    and sort.type != "f32" and not (sort.batch and sort.epilogue != PLAIN)
]  # fmt: skip


@pytest.mark.parametrize("name", PREDICTED)
def test_predict_has_the_same_epilogues(name):
    """`wf.predict` returns the H200's bits for the calls that have an epilogue, unless it calls them a guess."""
    sort = SORTS[name]
    dtype, _, dtype_name = DTYPES[sort.result or {"tf32": "f32"}.get(sort.type, sort.type)]
    batch = (sort.batch,) if sort.batch else ()
    equal = 0
    for shape in calls(name, small=True):
        m, n, k = map(int, shape.split())
        a, b = operands(sort, name, m, n, k)
        found = wf.predict(
            a, b.swapaxes(-1, -2) if sort.layout[1] == "t" else b, layout=sort.layout,
            bias=floats(n, seed=3).astype(dtype) if sort.epilogue & BIAS else None, fast_accumulation=sort.fast,
            epilogue=wf.LibraryEpilogue(
                sort.alpha, sort.beta, C=floats(*batch, m, n, seed=3).astype(dtype) if sort.beta else None,
                activation=ACTIVATIONS[sort.epilogue], scales=(0.75, 1.5) if sort.scales else (1.0, 1.0),
            ),
        )  # fmt: skip
        digest = hashlib.sha256(f"torch.{dtype_name} {(*batch, m, n)} ".encode())
        digest.update(np.ascontiguousarray(found.D).tobytes())
        is_equal = digest.hexdigest()[:32] == RECORDED["calls"][name][shape]
        assert is_equal or found.is_guess, (name, shape)
        equal += is_equal
    assert equal >= len(calls(name, small=True)) - MAX_GUESSED_WRONGLY


def test_a_nan_stays_a_nan_and_beta_zero_ignores_c():
    for dtype, nan in ((np.float16, 0x7FFF), (ml_dtypes.bfloat16, 0x7FFF), (np.float32, 0x7FFFFFFF)):
        A, C = np.ones((16, 64), dtype), np.full((16, 16), np.nan, dtype)
        A[0, 0] = np.nan
        epilogue = wf.LibraryEpilogue(2.0, 0.0, C=C)
        D = wf.predict(A, np.ones((64, 16), dtype), epilogue=epilogue).D
        assert (D.view(f"uint{8 * D.itemsize}")[0] == nan).all()
        assert (D[1:] == 128).all()
    assert np.array_equal(gelu(np.float32([[0.0, 30.0]])), [[0.0, 30.0]])
    assert np.signbit(gelu(np.float32([[-30.0]]))).all()
    assert not np.signbit(gelu(np.float32([[-30.0]]), "nvjet")).any()
