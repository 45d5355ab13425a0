"""Whole products: the chain of instructions, edges, threads, errors."""

import ml_dtypes
import numpy as np
import pytest

import warpfrag as wf
from instructions import WIDTHS, every
from warpfrag.blas.gemm_backend import Cpu
from warpfrag.errors import InvalidOperand
from warpfrag.tensorcore.array_types import Scaled

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SAMPLE = [
    "mma.m16n8k16.f32.f16.f16.f32",
    "mma.m16n8k16.f16.f16.f16.f16",
    "mma.m16n8k16.f32.bf16.bf16.f32",
    "mma.m16n8k8.f32.tf32.tf32.f32",
    "mma.m16n8k32.f32.e4m3.e5m2.f32",
    "mma.m16n8k32.s32.s8.u8.s32",
    "mma.m16n8k64.satfinite.s32.s4.s4.s32",
    "mma.m16n8k256.s32.b1.b1.s32.xor.popc",
    "mma.m16n8k8.f64.f64.f64.f64",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.sp.m16n8k32.f32.f16.f16.f32",
    "mma.sp.m16n8k64.s32.s8.s8.s32",
    "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32",
]


def random_codes(mma: wf.Instruction, role: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return codes of small finite values, so that chains do not overflow to NaN early."""
    row = getattr(mma, role).format
    if not row.is_float:
        return rng.integers(0, row.codes, shape, dtype=np.uint64)
    exponent = rng.integers(max(1, row.bias - 4), row.bias + 3, shape, dtype=np.uint64)
    fraction = rng.integers(0, 1 << row.fraction, shape, dtype=np.uint64)
    sign = rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(row.bits - 1)
    return sign | ((exponent << np.uint64(row.fraction) | fraction) << np.uint64(row.unused))


def thin(mma: wf.Instruction, codes: np.ndarray) -> np.ndarray:
    if mma.pattern is None:
        return codes
    column = np.arange(codes.shape[1])
    return np.where(column % mma.pattern.chunk < mma.pattern.kept, codes, 0)


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("extents", [(1, 1, 1), (17, 9, 5), (16, 8, 0), (37, 21, 3)])
def test_gemm_is_the_chain_of_single_instructions(name: str, extents: tuple[int, int, int]):
    mma = wf.get(name)
    m, n, k = mma.shape
    rows, columns, depth = extents[0], extents[1], extents[2] * k // 2 + (extents[2] > 1)
    rng = np.random.default_rng(rows)
    a, b = thin(mma, random_codes(mma, "a", (rows, depth), rng)), random_codes(mma, "b", (depth, columns), rng)
    c = random_codes(mma, "c", (rows, columns), rng)
    steps = max(1, -(-depth // k))
    tall, wide = -(-rows // m) * m, -(-columns // n) * n
    full_a = np.zeros((tall, steps * k), np.uint64)
    full_b = np.zeros((steps * k, wide), np.uint64)
    d = np.zeros((tall, wide), np.uint64)
    full_a[:rows, :depth], full_b[:depth, :columns], d[:rows, :columns] = a, b, c
    quad = (lambda tile: np.broadcast_to(tile, (4, *tile.shape))) if mma.form.is_quad else (lambda tile: tile)
    for i in range(0, tall, m):
        for j in range(0, wide, n):
            for step in range(0, steps * k, k):
                tiles = full_a[i : i + m, step : step + k], full_b[step : step + k, j : j + n], d[i : i + m, j : j + n]
                found = mma(*map(quad, tiles), raw=True)
                d[i : i + m, j : j + n] = found[0] if mma.form.is_quad else found
    assert np.array_equal(wf.gemm(a, b, c, instruction=name, raw=True), d[:rows, :columns])


@pytest.mark.parametrize("name", SAMPLE)
def test_threads_do_not_matter(name: str):
    mma = wf.get(name)
    rng = np.random.default_rng(5)
    a = thin(mma, random_codes(mma, "a", (150, 4 * mma.shape.k), rng))
    b = random_codes(mma, "b", (4 * mma.shape.k, 300), rng)
    one = wf.gemm(a, b, instruction=mma, raw=True, backend=Cpu(1))
    assert np.array_equal(one, wf.gemm(a, b, instruction=mma, raw=True, backend=Cpu(3)))
    part = wf.gemm(a[40:77], b[:, 100:133], instruction=mma, raw=True)
    assert np.array_equal(one[40:77, 100:133], part)


def test_small_integers_in_floats_are_exact():
    A, B = np.random.default_rng(0).integers(-4, 5, (2, 64, 64))
    assert np.array_equal(wf.gemm(A, B, instruction=F16), A @ B)


def test_block_scaled_products_scale_each_block():
    name = "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    A, B = np.ones((5, 64)), np.ones((64, 3))
    SA, SB = np.array([[1.0, 2.0]] * 5), np.ones((2, 3))
    assert np.array_equal(wf.gemm(Scaled(A, SA), Scaled(B, SB), instruction=name, arch="sm_120"), np.full((5, 3), 96))
    with pytest.raises(wf.errors.InvalidOperand, match=r"scale_a: expected shape \(5, 2\), got \(5, 1\)"):
        wf.gemm(Scaled(A, SA[:, :1]), Scaled(B, SB), instruction=name, arch="sm_120")
    with pytest.raises(wf.errors.InvalidOperand, match=r"scale_b: expected shape \(2, 3\), got \(3, 3\)"):
        wf.gemm(Scaled(A, SA), Scaled(B, np.ones((3, 3))), instruction=name, arch="sm_120")


def test_blocks_that_only_padding_reaches_need_no_scale():
    """An instruction of K = 64 with two blocks of 32: a K of 32 reaches one of them, a K of 33 both."""
    name = "mma.m16n8k64.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
    A, B = np.ones((2, 32)), np.ones((32, 3))
    found = wf.gemm(Scaled(A, np.full((2, 1), 2.0)), Scaled(B, np.ones((1, 3))), instruction=name, arch="sm_120")
    assert np.array_equal(found, np.full((2, 3), 64))
    a, b = Scaled(np.ones((2, 33)), np.ones((2, 1))), Scaled(np.ones((33, 3)), np.ones((2, 3)))
    with pytest.raises(wf.errors.InvalidOperand, match=r"scale_a: expected shape \(2, 2\), got \(2, 1\)"):
        wf.gemm(a, b, instruction=name, arch="sm_120")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"A": np.ones((3, 4)), "B": np.ones((5, 6))},
            wf.errors.InvalidOperand,
            "A is 3 x 4 and B is 5 x 6: the inner extents differ",
        ),
        (
            {"A": np.ones(4), "B": np.ones((4, 6))},
            wf.errors.InvalidOperand,
            r"A: expected a matrix, got an array of shape \(4,\)",
        ),
        (
            {"A": np.ones((3, 4)), "B": np.ones((4, 6)), "C": np.ones((6, 3))},
            wf.errors.InvalidOperand,
            "C: expected shape 3 x 6, got 6 x 3",
        ),
        ({"A": np.full((3, 4), 0.1), "B": np.ones((4, 6))}, wf.errors.InvalidOperand, r"A: element \(0, 0\) is 0.1"),
        (
            {"A": Scaled(np.ones((3, 4)), np.ones((3, 1))), "B": np.ones((4, 6))},
            wf.errors.InvalidOperand,
            "takes no scale_a",
        ),
        (
            {"A": np.ones((3, 4)), "B": np.ones((4, 6)), "arch": "sm_70"},
            wf.errors.IllegalInstruction,
            "does not have this instruction",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        wf.gemm(**arguments, instruction=F16)


@pytest.mark.parametrize(
    "name", ["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", "wmma.mma.row.col.m16n16k16.f16.f32"]
)
def test_unlike_accumulators_cannot_be_chained(name: str):
    with pytest.raises(wf.errors.IllegalInstruction, match="cannot be chained along k: D is"):
        wf.gemm(np.ones((8, 8)), np.ones((8, 8)), instruction=name)


def test_every_dense_product_with_equal_accumulators_can_be_chained():
    ran = 0
    for mma in every():
        if "sm_90a" in mma.targets and mma.form.is_product and mma.form.c == mma.form.d and not mma.form.is_sparse:
            ones = wf.gemm(np.ones((2, 3)), np.ones((3, 2)), instruction=mma)
            expected = 0 if mma.form.bitop == "xor" else 3
            assert np.array_equal(ones, np.full((2, 2), expected)), mma
            ran += 1
    assert ran == 212 + 21 * len(WIDTHS)


@pytest.mark.parametrize(
    ("dtype", "gpu", "instruction"),
    [
        ("float16", "V100", "mma.m8n8k4.row.col.f32.f16.f16.f32"),
        ("float16", "T4", "mma.m16n8k8.f32.f16.f16.f32"),
        ("float16", "A100", "mma.m16n8k16.f32.f16.f16.f32"),
        ("float32", "A100", "mma.m16n8k8.f32.tf32.tf32.f32"),
        ("bfloat16", "H100", "mma.m16n8k16.f32.bf16.bf16.f32"),
        ("int8", "H100", "mma.m16n8k32.s32.s8.s8.s32"),
        ("float64", "A100", "mma.m8n8k4.f64.f64.f64.f64"),
        ("float8_e4m3fn", "H100", "wgmma.mma_async.m64n64k32.f32.e4m3.e4m3"),
    ],
)
def test_dtypes_choose_the_instruction(dtype, gpu, instruction):
    A = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))
    D = wf.gemm(A, A.T, arch=gpu)

    assert D.instruction == wf.get(instruction).name
    assert np.array_equal(D, wf.gemm(A, A.T, instruction=instruction, arch=gpu))
    assert type(wf.gemm(A, A.T, instruction=instruction, arch=gpu)) is np.ndarray


def test_operands_that_choose_no_instruction_are_refused():
    A = np.ones((2, 2), np.float16)
    with pytest.raises(InvalidOperand, match="A is float16 and B is float32: .* for them; convert one of them"):
        wf.gemm(A, A.astype(np.float32))
    narrow = A.astype(ml_dtypes.float8_e4m3fn)
    with pytest.raises(
        InvalidOperand, match="A100 has no mma for them; pass arch, one of L4, RTX 4090, H100, .*, or conv"
    ):
        wf.gemm(narrow, narrow, arch="A100")
    with pytest.raises(
        InvalidOperand, match="A: expected float16, .*, got int16; for other types, name an instruction"
    ):
        wf.gemm(A.astype(np.int16), A)
    with pytest.raises(InvalidOperand, match="codes do not determine an instruction: name one"):
        wf.gemm(A, A, raw=True)
    with pytest.raises(wf.WarpfragError, match="'gemm': unknown arch 'A1000'"):
        wf.gemm(A, A, arch="A1000")
