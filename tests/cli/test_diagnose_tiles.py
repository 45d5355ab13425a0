"""`warpfrag diagnose kernel.cu`: kernels of many blocks and warps, which stage tiles of A and B in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from slow_cases import sampled
from warpfrag import cuda_tools

SHARED = r"""#include <cuda_fp16.h>
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
extern "C" __global__ void gemm(const half *A, const half *B, float *D, int M, int N, int K) {
    __shared__ __align__(16) half As[16][24], Bs[16][24];
    int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, g = lane / 4, t = lane % 4;
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    float d[4] = {};
    for (int k = 0; k < K; k += 16) {
        for (int i = tid; i < 256; i += 64) As[i / 16][i % 16] = A[(row + i / 16) * K + k + i % 16];
        for (int i = tid; i < 256; i += 64) Bs[i / 16][i % 16] = B[(k + i / 16) * N + col + i % 16];
        __syncthreads();
        unsigned a[4], b[2], at = __cvta_generic_to_shared(&As[lane % 16][lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
        at = __cvta_generic_to_shared(&Bs[lane % 16][warp * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1]) : "r"(at));
        mma(d, a, b);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) D[(row + g + i / 2 * 8) * N + col + warp * 8 + t * 2 + i % 2] = d[i];
}
"""
WMMA = """#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void gemm(const half *A, const half *B, float *D, int M, int N, int K) {
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + row * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + col, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(D + row * N + col, c, N, wmma::mem_row_major);
}
"""
COPY, BLOCKS = "A[(row + i / 16) * K + k + i % 16]", "int row = blockIdx.y * 16, col = blockIdx.x * 16;"
EXCHANGED = "int row = blockIdx.x * 16, col = blockIdx.y * 16;"
IS_X, IS_Y = "its first row is blockIdx.x * 16, but that of {} is blockIdx.y * 16", "store from row blockIdx.y * 16"


@pytest.fixture
def gemm(run, tmp_path, monkeypatch):
    """Return a function that diagnoses a kernel with some text replaced; D is 32 x 32, computed by 2 x 2 blocks."""
    if next(cuda_tools.installed("nvcc"), None) is None:
        pytest.skip("needs nvcc: the extra assembler")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for name, shape in {"A": (32, 48), "B": (48, 32)}.items():
        np.save(f"{name}.npy", random.normal(size=shape).astype(np.float16))

    def diagnose(*changes, kernel=SHARED, more=()):
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in kernel
            kernel = kernel.replace(old, new)
        (tmp_path / "gemm.cu").write_text(kernel, encoding="utf-8")
        args = [
            word for arg in ("A.npy", "B.npy", "D:f32:32x32", "i32:32", "i32:32", "i32:48") for word in ("--arg", arg)
        ]
        block = 64 if kernel.startswith(SHARED[:30]) and "ldmatrix" in kernel else 32
        return run("diagnose", "gemm.cu", "A.npy", "B.npy", "--grid", "2,2", "--block", block, *args, *more)

    return diagnose


def text_of(answer):
    return " ".join(answer.out.split())


@pytest.mark.parametrize("kernel", [SHARED, WMMA])
def test_a_right_kernel_has_no_mistake(gemm, kernel):
    answer = gemm(kernel=kernel)

    assert (answer.code, "gemm" in answer.lines[0], "D is correct" in answer.out) == (0, True, True)


@pytest.mark.parametrize(
    ("changes", "texts"),
    sampled(
        [
            (
                ["[warp * 8]", "[0]"],
                [
                    "B: its first column is blockIdx.x * 16, but that of D is blockIdx.x * 16 + warp * 8",
                    "; no mma computes the tile of D at row 0, column 8 (argument D) fix: load B from column block",
                    ", from shared memory filled at gemm.cu:14",
                ],
            ),
            (
                ["N + col + warp * 8 +", "N + col +"],
                ["D: its first column is blockIdx.x * 16, but that of B is blockIdx"],
            ),
            (["A[(row", "A[(blockIdx.x * 16"], [f"A: {IS_X.format('D')}", "fix: load A from row blockIdx.y * 16"]),
            (["D[(row", "D[(blockIdx.x * 16"], [f"D: {IS_X.format('A')}", f"fix: {IS_Y} stored at gemm.cu:25"]),
            (
                [BLOCKS, EXCHANGED, "D[(row", "D[(col", "N + col + warp", "N + row + warp"],
                [
                    f"A: {IS_X.format('D')}; B: its first column is",
                    "or D: its first row is blockIdx.y * 16, but that of A is",
                ],
            ),
        ],
        4,
    ),
)
def test_tiles_of_other_rows_or_columns_are_explained(gemm, changes, texts):
    answer = gemm(*changes)

    assert answer.code == 1
    assert [text for text in texts if text not in text_of(answer)] == [], answer.out
    assert "with too few bits" not in answer.out


@pytest.mark.slow
def test_products_that_no_warp_computes_are_named_if_d_is_not_explained(gemm):
    answer = gemm("[warp * 8]", "[0]", "i % 2] = d[i]", "i % 2] = d[i] * 1.01f")

    assert answer.code == 1
    assert "no known mistake explains it" in answer.out
    assert "     no mma computes the tile of D at row 0, column 8" in answer.lines


@pytest.mark.parametrize(("kernel", "line"), [(SHARED, "unsigned a[4]"), (WMMA, "wmma::load_matrix_sync(a,")])
def test_accumulators_that_are_zeroed_in_the_loop_are_explained(gemm, kernel, line):
    zero = "for (int i = 0; i < 4; i++) d[i] = 0; " if kernel == SHARED else "wmma::fill_fragment(c, 0.0f); "
    answer = gemm(line, zero + line, kernel=kernel)

    assert answer.code == 1
    assert "for k = 16: D has only the products that are added after this" in text_of(answer)
    assert "fix: zero the accumulators before the loop over k, not inside it" in text_of(answer)


def test_the_line_that_copies_to_shared_memory_is_named(gemm):
    answer = gemm(COPY, "A[(row + i % 16) * K + k + i / 16]")

    assert "A: read with row-major and column-major order swapped" in answer.out
    assert ", from shared memory filled at gemm.cu:13" in answer.out
    assert "filled at gemm.cu:14" not in answer.out


@pytest.mark.parametrize(
    ("old", "fix"),
    [
        ("        __syncthreads();\n        unsigned", "put __syncthreads() (bar.sync) between them"),
        ("        __syncthreads();\n    }", "put __syncthreads() at the end of the loop body, after gemm.cu:2"),
    ],
)
def test_a_missing_barrier_is_found_although_d_is_right(gemm, old, fix):
    answer = gemm(old, old.partition("\n")[2])
    races = gemm(old, old.partition("\n")[2], more=["--json"]).json["races"]

    assert (answer.code, "D is correct" in answer.out) == (1, True)
    assert (f"; fix: {fix}" in text_of(answer), {race["kind"] for race in races}) == (True, {"race"})


def test_a_kernel_without_mma_is_named_as_in_the_source(gemm):
    answer = gemm("wmma::mma_sync(c, a, b, c);", "", kernel=WMMA)

    assert answer.code == 2
    assert "gemm(__half const*, __half const*, float*, int, int, int) has no mma or wmma.mma instruction" in answer.err
