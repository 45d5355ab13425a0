// Declarations shared by the stand-ins for libcublas and libcublasLt. They are our own, not CUDA's headers.
#ifndef WARPFRAG_CUBLAS_STAND_IN_H
#define WARPFRAG_CUBLAS_STAND_IN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

enum {
    BLAS_SUCCESS = 0,
    BLAS_NOT_INITIALIZED = 1,
    BLAS_ALLOC_FAILED = 3,
    BLAS_INVALID_VALUE = 7,
    BLAS_EXECUTION_FAILED = 13,
    BLAS_INTERNAL_ERROR = 14,
    BLAS_NOT_SUPPORTED = 15,
};
enum { TYPE_F32 = 0, TYPE_F64 = 1, TYPE_F16 = 2, TYPE_S32 = 10 };
enum { COMPUTE_F16 = 64, COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_S32 = 72 };
#define NO_REDUCED_PRECISION 16  // a flag of the math mode
#define VERSION (CUDA_MAJOR * 10000 + 100)

struct gemm {  // gemms_served.py has the same fields; D and C are column-major
    uint64_t a, b, c, d, bias, alpha_address, beta_address, scale_a, scale_b, aux;
    int64_t m, n, k, lda, ldb, ldc, ldd, stride_a, stride_b, stride_c, stride_d, ld_aux;
    double alpha, beta;
    int32_t batch, type_a, type_b, type_c, type_d, bias_type, transpose_a, transpose_b, compute, math, epilogue, fast;
    int32_t scale_type, is_batched, has_pointers, workspace_mib;
    char function[40];
};

extern CUresult cuInit(unsigned flags);
extern CUresult cuStreamIsCapturing(CUhandle stream, int *status);
extern CUresult warpfrag_request(uint32_t, const void *, size_t, void *, size_t, size_t *);
extern CUresult warpfrag_not_supported(const char *function);

static inline int unsupported(const char *function) {
    warpfrag_not_supported(function);
    return BLAS_NOT_SUPPORTED;
}

static inline double half_to_double(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent ? fraction + 1024 : fraction;
    for (int at = exponent ? exponent : 1; at < 25; at++) value /= 2;
    for (int at = 25; at < exponent; at++) value *= 2;
    return bits >> 15 ? -value : value;
}

// Read alpha or beta if it is in host memory; if it is in device memory, the server reads it.
static inline void set_factor(const void *source, int type, bool on_device, double *value, uint64_t *address) {
    *address = on_device ? (uint64_t)source : 0;
    if (on_device || !source) return;
    if (type == TYPE_F16) *value = half_to_double(*(const uint16_t *)source);
    else if (type == TYPE_F64) *value = *(const double *)source;
    else if (type == TYPE_S32) *value = *(const int32_t *)source;
    else *value = *(const float *)source;
}

static inline int send_gemm(const struct gemm *gemm, CUhandle stream) {
    int capturing = 0;
    if (!cuStreamIsCapturing(stream, &capturing) && capturing) {
        fprintf(stderr, "warpfrag gpu: %s is not supported during stream capture\n", gemm->function);
        return BLAS_NOT_SUPPORTED;
    }
    switch (warpfrag_request(REQUEST_GEMM, gemm, sizeof *gemm, NULL, 0, NULL)) {
        case SUCCESS: return BLAS_SUCCESS;
        case INVALID_VALUE: return BLAS_INVALID_VALUE;
        case NOT_SUPPORTED: return BLAS_NOT_SUPPORTED;
        case NOT_INITIALIZED: return BLAS_NOT_INITIALIZED;
        case 700: return BLAS_EXECUTION_FAILED;
        default: return BLAS_INTERNAL_ERROR;
    }
}

#endif
