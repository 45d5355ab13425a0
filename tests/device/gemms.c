/* Gemms through libcublas and libcublasLt: reads A, B and a bias from a file, and writes four results to another. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { F32 = 0, F16 = 2, BF16 = 14, IN_F32 = 68, M = 96, N = 64, K = 256, BATCH = 2 };

int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int);
int cublasCreate_v2(void **), cublasDestroy_v2(void *), cublasSetMathMode(void *, int), cublasGetVersion_v2(void *, int *);
int cublasGemmEx(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
int cublasGemmStridedBatchedEx(void *, int, int, int, int, int, const void *, const void *, int, int, long long, const void *, int, int, long long, const void *, void *, int, int, long long, int, int, int);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const void *, int, const void *, int, const float *, void *, int);
int cublasDtrsm_v2(void);
int cublasLtMatmulDescCreate(void **, int, int), cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t);
int cublasLtMatrixLayoutCreate(void **, int, uint64_t, uint64_t, int64_t), cublasLtMatmulPreferenceCreate(void **);
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t);
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int, void *, int *);
int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, const void *, void *, size_t, void *);

#define CHECK(call)                                                                         \
    do {                                                                                    \
        int status_ = (call);                                                               \
        if (status_) return fprintf(stderr, "line %d: status %d\n", __LINE__, status_), 1;  \
    } while (0)

int main(int count, char **words)
{
    static char host[1 << 20];
    const float one = 1, zero = 0, two = 2, half = 0.5f;
    void *a, *b, *bias, *d, *handle;
    size_t size_a = BATCH * M * K * 4, size_b = BATCH * K * N * 4, size_d = BATCH * M * N * 4;
    FILE *input = fopen(words[1], "rb"), *output = fopen(words[count - 1], "wb");
    CHECK(cudaMalloc(&a, size_a) || cudaMalloc(&b, size_b) || cudaMalloc(&bias, M * 2) || cudaMalloc(&d, size_d));
    CHECK(fread(host, 1, size_a, input) != size_a || cudaMemcpy(a, host, size_a, 1));
    CHECK(fread(host, 1, size_b, input) != size_b || cudaMemcpy(b, host, size_b, 1));
    CHECK(fread(host, 1, M * 2, input) != M * 2 || cudaMemcpy(bias, host, M * 2, 1));
    CHECK(cublasCreate_v2(&handle));
    CHECK(cublasSetMathMode(handle, 16));

    /* bf16: D = A B */
    CHECK(cublasGemmEx(handle, 0, 0, M, N, K, &one, a, BF16, M, b, BF16, K, &zero, d, BF16, M, IN_F32, -1));
    CHECK(cudaMemcpy(host, d, M * N * 2, 2) || fwrite(host, 1, M * N * 2, output) != M * N * 2);
    /* f16, transposed A, two matrices */
    CHECK(cublasGemmStridedBatchedEx(handle, 1, 0, M, N, K, &one, a, F16, K, M * K, b, F16, K, K * N, &zero, d, F16, M, M * N, BATCH, IN_F32, -1));
    CHECK(cudaMemcpy(host, d, BATCH * M * N * 2, 2) || fwrite(host, 1, BATCH * M * N * 2, output) != BATCH * M * N * 2);
    /* f32 on CUDA cores, then 2 A B + D / 2 */
    CHECK(cublasSgemm_v2(handle, 0, 0, M, N, K, &one, a, M, b, K, &zero, d, M));
    CHECK(cublasSgemm_v2(handle, 0, 0, M, N, K, &two, a, M, b, K, &half, d, M));
    CHECK(cudaMemcpy(host, d, M * N * 4, 2) || fwrite(host, 1, M * N * 4, output) != M * N * 4);
    /* bf16 with a bias, A transposed, as a linear layer */
    void *desc, *layout_a, *layout_b, *layout_d, *preference;
    int transpose = 1, epilogue = 4, found = 0, reductions = 2;
    uint64_t result[12];
    CHECK(cublasLtMatmulDescCreate(&desc, IN_F32, F32) || cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulDescSetAttribute(desc, 3, &transpose, 4) || cublasLtMatmulDescSetAttribute(desc, 7, &epilogue, 4));
    CHECK(cublasLtMatmulDescSetAttribute(desc, 8, &bias, 8) || cublasLtMatmulPreferenceSetAttribute(preference, 3, &reductions, 4));
    CHECK(cublasLtMatrixLayoutCreate(&layout_a, BF16, K, M, K) || cublasLtMatrixLayoutCreate(&layout_b, BF16, K, N, K));
    CHECK(cublasLtMatrixLayoutCreate(&layout_d, BF16, M, N, M));
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout_a, layout_b, layout_d, layout_d, preference, 1, result, &found) || !found);
    CHECK(cublasLtMatmul(handle, desc, &one, a, layout_a, b, layout_b, &zero, d, layout_d, d, layout_d, result, NULL, 0, NULL));
    CHECK(cudaMemcpy(host, d, M * N * 2, 2) || fwrite(host, 1, M * N * 2, output) != M * N * 2);
    fclose(output);
    /* errors: beyond the allocation, a short leading dimension, an entry point that is not supported */
    printf("%d ", cublasSgemm_v2(handle, 0, 0, M, N, K, &one, a, M, b, 1 << 20, &zero, d, M));
    printf("%d ", cublasSgemm_v2(handle, 0, 0, M, N, K, &one, a, M - 1, b, K, &zero, d, M));
    printf("%d\n", cublasDtrsm_v2());
    return cublasDestroy_v2(handle);
}
