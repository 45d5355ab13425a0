// The stand-in for libcublasLt: descriptors, layouts, preferences, heuristics, and cublasLtMatmul.
#include "cublas_stand_in.h"

#define ATTRIBUTE_COUNT 64

struct object {  // a descriptor, layout or preference: its attributes by number
    uint64_t values[ATTRIBUTE_COUNT];
};

struct heuristic {  // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

enum { DESC_COMPUTE, DESC_SCALE_TYPE, DESC_POINTER_MODE, DESC_TRANSPOSE_A, DESC_TRANSPOSE_B, DESC_TRANSPOSE_C };
enum { DESC_EPILOGUE = 7, DESC_BIAS = 8, DESC_AUX = 11, DESC_AUX_LD, DESC_SCALE_A = 17, DESC_SCALE_B, DESC_SCALE_C, DESC_SCALE_D };
enum { DESC_AMAX_D = 21, DESC_AUX_TYPE, DESC_AUX_SCALE, DESC_AUX_AMAX, DESC_FAST, DESC_BIAS_TYPE };
enum { DESC_MODE_A = 31, DESC_MODE_D = 34 };
enum { EPILOGUE_AUX = 128, EPILOGUE_BGRAD_A = 256, EPILOGUE_BGRAD_B = 512 };
enum { LAYOUT_TYPE, LAYOUT_ORDER, LAYOUT_ROWS, LAYOUT_COLUMNS, LAYOUT_LD, LAYOUT_BATCH, LAYOUT_STRIDE };
enum { PREFERENCE_REDUCTION = 3 };
enum { REDUCTION_IN_OUTPUT_TYPE = 4, ALL_REDUCTIONS = 7 };
#define NO_TYPE UINT64_MAX

EXPORT size_t cublasLtGetVersion(void) { return VERSION; }
EXPORT size_t cublasLtGetCudartVersion(void) { return CUDA_MAJOR * 1000; }

EXPORT int cublasLtCreate(void **handle) {
    if (!handle) return BLAS_INVALID_VALUE;
    if (cuInit(0)) return BLAS_NOT_INITIALIZED;
    *handle = malloc(1);
    return *handle ? BLAS_SUCCESS : BLAS_ALLOC_FAILED;
}

EXPORT int cublasLtDestroy(void *handle) {
    free(handle);
    return BLAS_SUCCESS;
}

static int create(struct object **object) {
    if (!object) return BLAS_INVALID_VALUE;
    *object = calloc(1, sizeof **object);
    return *object ? BLAS_SUCCESS : BLAS_ALLOC_FAILED;
}

EXPORT int cublasLtMatmulDescCreate(struct object **desc, int compute, int scale_type) {
    int status = create(desc);
    if (status) return status;
    uint64_t *values = (*desc)->values;
    values[DESC_COMPUTE] = compute;
    values[DESC_SCALE_TYPE] = scale_type;
    values[DESC_EPILOGUE] = 1;
    values[DESC_BIAS_TYPE] = values[DESC_AUX_TYPE] = NO_TYPE;
    return BLAS_SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(struct object **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    int status = create(layout);
    if (status) return status;
    const uint64_t values[] = {type, 0, rows, columns, ld, 1};
    memcpy((*layout)->values, values, sizeof values);
    return BLAS_SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceCreate(struct object **preference) {
    int status = create(preference);
    if (!status) (*preference)->values[PREFERENCE_REDUCTION] = ALL_REDUCTIONS;
    return status;
}

static int destroy(struct object *object) {
    free(object);
    return BLAS_SUCCESS;
}

static int set(struct object *object, int attribute, const void *source, size_t size) {
    bool fits = object && source && size && size <= sizeof(uint64_t) && attribute >= 0 && attribute < ATTRIBUTE_COUNT;
    if (!fits) return BLAS_INVALID_VALUE;
    object->values[attribute] = 0;
    memcpy(&object->values[attribute], source, size);
    return BLAS_SUCCESS;
}

static int get(const struct object *object, int attribute, void *target, size_t size, size_t *written) {
    bool fits = object && target && size && size <= sizeof(uint64_t) && attribute >= 0 && attribute < ATTRIBUTE_COUNT;
    if (!fits) return BLAS_INVALID_VALUE;
    memcpy(target, &object->values[attribute], size);
    if (written) *written = size;
    return BLAS_SUCCESS;
}

#define OBJECT(name)                                                                                               \
    EXPORT int cublasLt##name##Destroy(struct object *object) { return destroy(object); }                          \
    EXPORT int cublasLt##name##SetAttribute(struct object *object, int attribute, const void *source, size_t size) { \
        return set(object, attribute, source, size);                                                               \
    }                                                                                                              \
    EXPORT int cublasLt##name##GetAttribute(const struct object *object, int attribute, void *target, size_t size, \
                                            size_t *written) {                                                     \
        return get(object, attribute, target, size, written);                                                      \
    }
OBJECT(MatmulDesc)
OBJECT(MatrixLayout)
OBJECT(MatmulPreference)

// Return a description of the first unsupported feature of a matmul, or NULL.
static const char *refusal(const uint64_t *desc, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                           const uint64_t *d) {
    if (a[LAYOUT_ORDER] || b[LAYOUT_ORDER] || c[LAYOUT_ORDER] || d[LAYOUT_ORDER]) return "a layout that is not column-major";
    if (desc[DESC_TRANSPOSE_C] || desc[DESC_SCALE_C] || desc[DESC_SCALE_D] || desc[DESC_AMAX_D])
        return "a transposed C, or a scale or maximum of C or D";
    if (desc[DESC_POINTER_MODE] > 1) return "a vector of alpha values";
    uint64_t epilogue = desc[DESC_EPILOGUE];
    bool has_extra = epilogue & (EPILOGUE_AUX | EPILOGUE_BGRAD_A | EPILOGUE_BGRAD_B);
    if (has_extra && (int)d[LAYOUT_BATCH] > 1) return "a batched auxiliary buffer or bias gradient";
    if (desc[DESC_AUX_SCALE] || desc[DESC_AUX_AMAX]) return "a scale or maximum of the auxiliary buffer";
    if (desc[DESC_AUX_TYPE] != NO_TYPE && desc[DESC_AUX_TYPE] != d[LAYOUT_TYPE])
        return "an auxiliary buffer whose type is not D's";
    if (epilogue & EPILOGUE_BGRAD_A && desc[DESC_TRANSPOSE_A]) return "the bias gradient of a transposed A";
    if (epilogue & EPILOGUE_BGRAD_B && !desc[DESC_TRANSPOSE_B]) return "the bias gradient of a B that is not transposed";
    for (int at = DESC_MODE_A; at <= DESC_MODE_D; at++)
        if (desc[at]) return "block, row or column scales";
    return NULL;
}

static int say_refusal(const char *function, const char *reason) {
    fprintf(stderr, "warpfrag gpu: %s with %s is not supported\n", function, reason);
    return BLAS_NOT_SUPPORTED;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, const struct object *desc, const struct object *a,
                                          const struct object *b, const struct object *c, const struct object *d,
                                          const struct object *preference, int wanted, struct heuristic *results,
                                          int *count) {
    (void)handle;
    if (!desc || !a || !b || !c || !d || !preference || wanted < 1 || !results || !count) return BLAS_INVALID_VALUE;
    const char *reason = refusal(desc->values, a->values, b->values, c->values, d->values);
    *count = 0;
    if (reason) return say_refusal("cublasLtMatmulAlgoGetHeuristic", reason);
    memset(results, 0, sizeof *results);
    results->algorithm[0] = preference->values[PREFERENCE_REDUCTION];
    results->waves = 1;
    *count = 1;
    return BLAS_SUCCESS;
}

EXPORT int cublasLtMatmul(void *handle, const struct object *desc, const void *alpha, const void *a,
                          const struct object *layout_a, const void *b, const struct object *layout_b, const void *beta,
                          const void *c, const struct object *layout_c, void *d, const struct object *layout_d,
                          const uint64_t *algorithm, void *workspace, size_t size, CUhandle stream) {
    (void)handle, (void)workspace;
    if (!desc || !layout_a || !layout_b || !layout_c || !layout_d || !alpha || !beta) return BLAS_INVALID_VALUE;
    const uint64_t *values = desc->values, *in_a = layout_a->values, *in_b = layout_b->values;
    const uint64_t *in_c = layout_c->values, *in_d = layout_d->values;
    const char *reason = refusal(values, in_a, in_b, in_c, in_d);
    if (reason) return say_refusal("cublasLtMatmul", reason);
    uint64_t reductions = algorithm ? algorithm[0] : ALL_REDUCTIONS, bias_type = values[DESC_BIAS_TYPE];
    bool is_transposed = values[DESC_TRANSPOSE_A];
    int is_batched = (int)in_d[LAYOUT_BATCH] > 1;
    struct gemm gemm = {
        .a = (uint64_t)a, .b = (uint64_t)b, .c = (uint64_t)c, .d = (uint64_t)d, .bias = values[DESC_BIAS],
        .scale_a = values[DESC_SCALE_A], .scale_b = values[DESC_SCALE_B], .aux = values[DESC_AUX],
        .ld_aux = values[DESC_AUX_LD], .workspace_mib = size >> 20 < INT32_MAX ? size >> 20 : INT32_MAX,
        .m = in_d[LAYOUT_ROWS], .n = in_d[LAYOUT_COLUMNS], .k = in_a[is_transposed ? LAYOUT_ROWS : LAYOUT_COLUMNS],
        .lda = in_a[LAYOUT_LD], .ldb = in_b[LAYOUT_LD], .ldc = in_c[LAYOUT_LD], .ldd = in_d[LAYOUT_LD],
        .stride_a = in_a[LAYOUT_STRIDE], .stride_b = in_b[LAYOUT_STRIDE], .stride_c = in_c[LAYOUT_STRIDE],
        .stride_d = in_d[LAYOUT_STRIDE], .batch = in_d[LAYOUT_BATCH], .is_batched = is_batched,
        .type_a = in_a[LAYOUT_TYPE], .type_b = in_b[LAYOUT_TYPE], .type_c = in_c[LAYOUT_TYPE], .type_d = in_d[LAYOUT_TYPE],
        .bias_type = bias_type == NO_TYPE ? in_d[LAYOUT_TYPE] : bias_type,
        .transpose_a = values[DESC_TRANSPOSE_A], .transpose_b = values[DESC_TRANSPOSE_B],
        .compute = values[DESC_COMPUTE], .scale_type = values[DESC_SCALE_TYPE], .math = reductions & REDUCTION_IN_OUTPUT_TYPE ? 0 : NO_REDUCED_PRECISION,
        .epilogue = values[DESC_EPILOGUE], .fast = values[DESC_FAST] != 0, .function = "cublasLtMatmul",
    };
    set_factor(alpha, gemm.scale_type, values[DESC_POINTER_MODE], &gemm.alpha, &gemm.alpha_address);
    set_factor(beta, gemm.scale_type, values[DESC_POINTER_MODE], &gemm.beta, &gemm.beta_address);
    return send_gemm(&gemm, stream);
}
