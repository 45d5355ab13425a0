// The stand-in for libcublas: handles, and the GEMM functions except the complex ones. The server computes the GEMMs.
#include "cublas_stand_in.h"

struct handle {
    CUhandle stream;
    int math, pointer_mode, atomics;
};

#define NEED(handle) \
    if (!(handle)) return BLAS_NOT_INITIALIZED

EXPORT int cublasCreate_v2(struct handle **handle) {
    if (!handle) return BLAS_INVALID_VALUE;
    if (cuInit(0)) return BLAS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    return *handle ? BLAS_SUCCESS : BLAS_ALLOC_FAILED;
}

EXPORT int cublasDestroy_v2(struct handle *handle) {
    NEED(handle);
    free(handle);
    return BLAS_SUCCESS;
}

EXPORT int cublasGetVersion_v2(struct handle *handle, int *version) {
    (void)handle;
    if (!version) return BLAS_INVALID_VALUE;
    *version = VERSION;
    return BLAS_SUCCESS;
}

EXPORT int cublasGetProperty(int property, int *value) {
    if (!value || property < 0 || property > 2) return BLAS_INVALID_VALUE;
    *value = property == 0 ? CUDA_MAJOR : property == 1;
    return BLAS_SUCCESS;
}

EXPORT int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t size) {
    NEED(handle);
    (void)workspace, (void)size;
    return BLAS_SUCCESS;
}

#define SETTING(name, type, field)                                   \
    EXPORT int cublasSet##name(struct handle *handle, type value) {  \
        NEED(handle);                                                \
        handle->field = value;                                       \
        return BLAS_SUCCESS;                                         \
    }                                                                \
    EXPORT int cublasGet##name(struct handle *handle, type *value) { \
        NEED(handle);                                                \
        if (!value) return BLAS_INVALID_VALUE;                       \
        *value = handle->field;                                      \
        return BLAS_SUCCESS;                                         \
    }
SETTING(Stream_v2, CUhandle, stream)
SETTING(MathMode, int, math)
SETTING(PointerMode_v2, int, pointer_mode)
SETTING(AtomicsMode, int, atomics)

static const char *const texts[] = {
    [0] = "success", [1] = "not initialized", [3] = "allocation failed", [7] = "invalid value",
    [8] = "architecture mismatch", [11] = "mapping error", [13] = "execution failed", [14] = "internal error",
    [15] = "not supported", [16] = "license error",
};
static const char *const names[] = {
    [0] = "CUBLAS_STATUS_SUCCESS", [1] = "CUBLAS_STATUS_NOT_INITIALIZED", [3] = "CUBLAS_STATUS_ALLOC_FAILED",
    [7] = "CUBLAS_STATUS_INVALID_VALUE", [8] = "CUBLAS_STATUS_ARCH_MISMATCH", [11] = "CUBLAS_STATUS_MAPPING_ERROR",
    [13] = "CUBLAS_STATUS_EXECUTION_FAILED", [14] = "CUBLAS_STATUS_INTERNAL_ERROR",
    [15] = "CUBLAS_STATUS_NOT_SUPPORTED", [16] = "CUBLAS_STATUS_LICENSE_ERROR",
};
#define TEXT(name, table)                                                              \
    EXPORT const char *name(int status) {                                              \
        bool is_known = status >= 0 && status < (int)(sizeof table / sizeof *table);   \
        return is_known && table[status] ? table[status] : "an unknown cuBLAS status"; \
    }
TEXT(cublasGetStatusString, texts)
TEXT(cublasGetStatusName, names)

// The type of alpha and beta; the pedantic variant of a compute type is the next number.
static int scale_type_of(int compute) {
    switch (compute & ~1) {
        case COMPUTE_F16: return TYPE_F16;
        case COMPUTE_F64: return TYPE_F64;
        case COMPUTE_S32: return TYPE_S32;
        default: return TYPE_F32;
    }
}

static int multiply(struct handle *handle, struct gemm *gemm, const char *function, const void *alpha, const void *beta) {
    NEED(handle);
    if (gemm->transpose_a > 2 || gemm->transpose_b > 2 || !alpha || !beta) return BLAS_INVALID_VALUE;
    gemm->scale_type = scale_type_of(gemm->compute);
    set_factor(alpha, gemm->scale_type, handle->pointer_mode, &gemm->alpha, &gemm->alpha_address);
    set_factor(beta, gemm->scale_type, handle->pointer_mode, &gemm->beta, &gemm->beta_address);
    gemm->d = gemm->c;
    gemm->ldd = gemm->ldc;
    gemm->stride_d = gemm->stride_c;
    gemm->type_d = gemm->type_c;
    gemm->math = handle->math;
    gemm->epilogue = 1;
    snprintf(gemm->function, sizeof gemm->function, "%s", function);
    return send_gemm(gemm, handle->stream);
}

// The parameters that all GEMM functions have, with 32-bit or 64-bit extents.
#define SHAPE(integer) struct handle *handle, int ta, int tb, integer m, integer n, integer k, const void *alpha
#define COMMON                                                                                                         \
    .m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .a = (uint64_t)a, .b = (uint64_t)b, .c = (uint64_t)c, \
    .lda = lda, .ldb = ldb, .ldc = ldc
#define STRIDES .is_batched = 1, .batch = batch, .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c
#define TYPES(type, sums) .type_a = type, .type_b = type, .type_c = type, .compute = sums

#define TYPED(suffix, integer, letter, type, sums)                                                                     \
    EXPORT int cublas##letter##gemm##suffix(SHAPE(integer), const void *a, integer lda, const void *b, integer ldb,    \
                                            const void *beta, void *c, integer ldc) {                                  \
        struct gemm gemm = {COMMON, TYPES(type, sums), .batch = 1};                                                    \
        return multiply(handle, &gemm, "cublas" #letter "gemm", alpha, beta);                                          \
    }
#define TYPED_STRIDED(suffix, integer, letter, type, sums)                                                             \
    EXPORT int cublas##letter##gemmStridedBatched##suffix(                                                             \
        SHAPE(integer), const void *a, integer lda, long long stride_a, const void *b, integer ldb,                    \
        long long stride_b, const void *beta, void *c, integer ldc, long long stride_c, integer batch) {               \
        struct gemm gemm = {COMMON, STRIDES, TYPES(type, sums)};                                                       \
        return multiply(handle, &gemm, "cublas" #letter "gemmStridedBatched", alpha, beta);                            \
    }
#define TYPED_BATCHED(suffix, integer, letter, type, sums)                                                             \
    EXPORT int cublas##letter##gemmBatched##suffix(SHAPE(integer), const void *a, integer lda, const void *b,          \
                                                   integer ldb, const void *beta, void *c, integer ldc,                \
                                                   integer batch) {                                                    \
        struct gemm gemm = {COMMON, TYPES(type, sums), .batch = batch, .is_batched = 1, .has_pointers = 1};            \
        return multiply(handle, &gemm, "cublas" #letter "gemmBatched", alpha, beta);                                   \
    }
#define EXTENDED(suffix, integer)                                                                                      \
    EXPORT int cublasGemmEx##suffix(SHAPE(integer), const void *a, int type_a, integer lda, const void *b, int type_b, \
                                    integer ldb, const void *beta, void *c, int type_c, integer ldc, int compute,      \
                                    int algorithm) {                                                                   \
        (void)algorithm;                                                                                               \
        struct gemm gemm = {COMMON, .type_a = type_a, .type_b = type_b, .type_c = type_c, .compute = compute,          \
                            .batch = 1};                                                                               \
        return multiply(handle, &gemm, "cublasGemmEx", alpha, beta);                                                   \
    }                                                                                                                  \
    EXPORT int cublasSgemmEx##suffix(SHAPE(integer), const void *a, int type_a, integer lda, const void *b,            \
                                     int type_b, integer ldb, const void *beta, void *c, int type_c, integer ldc) {    \
        struct gemm gemm = {COMMON, .type_a = type_a, .type_b = type_b, .type_c = type_c, .compute = COMPUTE_F32,      \
                            .batch = 1};                                                                               \
        return multiply(handle, &gemm, "cublasSgemmEx", alpha, beta);                                                  \
    }                                                                                                                  \
    EXPORT int cublasGemmStridedBatchedEx##suffix(                                                                     \
        SHAPE(integer), const void *a, int type_a, integer lda, long long stride_a, const void *b, int type_b,         \
        integer ldb, long long stride_b, const void *beta, void *c, int type_c, integer ldc, long long stride_c,       \
        integer batch, int compute, int algorithm) {                                                                   \
        (void)algorithm;                                                                                               \
        struct gemm gemm = {COMMON, STRIDES, .type_a = type_a, .type_b = type_b, .type_c = type_c,                     \
                            .compute = compute};                                                                       \
        return multiply(handle, &gemm, "cublasGemmStridedBatchedEx", alpha, beta);                                     \
    }                                                                                                                  \
    EXPORT int cublasGemmBatchedEx##suffix(SHAPE(integer), const void *a, int type_a, integer lda, const void *b,      \
                                           int type_b, integer ldb, const void *beta, void *c, int type_c,             \
                                           integer ldc, integer batch, int compute, int algorithm) {                   \
        (void)algorithm;                                                                                               \
        struct gemm gemm = {COMMON, .type_a = type_a, .type_b = type_b, .type_c = type_c, .compute = compute,          \
                            .batch = batch, .is_batched = 1, .has_pointers = 1};                                       \
        return multiply(handle, &gemm, "cublasGemmBatchedEx", alpha, beta);                                            \
    }
#define FOR_TYPE(letter, type, sums, first, first_64)   \
    TYPED(first, int, letter, type, sums)               \
    TYPED(first_64, int64_t, letter, type, sums)        \
    TYPED_STRIDED(, int, letter, type, sums)            \
    TYPED_STRIDED(_64, int64_t, letter, type, sums)     \
    TYPED_BATCHED(, int, letter, type, sums)            \
    TYPED_BATCHED(_64, int64_t, letter, type, sums)
FOR_TYPE(S, TYPE_F32, COMPUTE_F32, _v2, _v2_64)
FOR_TYPE(D, TYPE_F64, COMPUTE_F64, _v2, _v2_64)
FOR_TYPE(H, TYPE_F16, COMPUTE_F16, , _64)
EXTENDED(, int)
EXTENDED(_64, int64_t)
