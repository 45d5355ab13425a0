// f64 as a chain of fused multiply-adds, k ascending. An output that ends as NaN is computed again, step by step,
// because NaNs follow the tensor core's rule, not that of the ordinary units.
//
// Macro: FMA, one of __fma_rn, __fma_rz, __fma_rd, __fma_ru.

#define PER_THREAD 4
#define ACROSS 16
#define EXTENT (PER_THREAD * ACROSS)
#define DEPTH 16

__device__ __forceinline__ bool is_nan(s64 code) { return (code & 0x7fffffffffffffffll) > 0x7ff0000000000000ll; }

__device__ s64 multiply_add(s64 a, s64 b, s64 c) {
    const s64 quiet = 1ll << 51;
    if (is_nan(b)) return b | quiet;
    if (is_nan(c)) return c | quiet;
    if (is_nan(a)) return a | quiet;
    s64 result = __double_as_longlong(FMA(__longlong_as_double(a), __longlong_as_double(b), __longlong_as_double(c)));
    return is_nan(result) ? (s64)NAN_F64 : result;
}

extern "C" __global__ void __launch_bounds__(ACROSS * ACROSS)
    fma64(const double *a, const double *b, const double *c, double *d, int height, int width, int depth) {
    __shared__ double rows[DEPTH][EXTENT + 1], columns[DEPTH][EXTENT];
    int thread = threadIdx.x, down = thread / ACROSS, across = thread % ACROSS;
    int first_row = blockIdx.y * EXTENT, first_column = blockIdx.x * EXTENT;
    s64 tile = blockIdx.z;
    a += tile * height * depth;
    b += tile * depth * width;
    c += tile * height * width;
    d += tile * height * width;
    double sums[PER_THREAD][PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i * ACROSS + down, column = first_column + j * ACROSS + across;
            sums[i][j] = row < height && column < width ? c[(s64)row * width + column] : 0.0;
        }
    for (int first = 0; first < depth; first += DEPTH) {
        int many = min(DEPTH, depth - first);
        __syncthreads();
        for (int at = thread; at < DEPTH * EXTENT; at += ACROSS * ACROSS) {
            int k = at % DEPTH, row = first_row + at / DEPTH;
            rows[k][at / DEPTH] = k < many && row < height ? a[(s64)row * depth + first + k] : 0.0;
            k = at / EXTENT;
            int column = first_column + at % EXTENT;
            columns[k][at % EXTENT] = k < many && column < width ? b[(s64)(first + k) * width + column] : 0.0;
        }
        __syncthreads();
        for (int k = 0; k < many; k++)  // not to DEPTH: adding a product of 0 would change -0 to +0
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
                for (int j = 0; j < PER_THREAD; j++)
                    sums[i][j] = FMA(rows[k][i * ACROSS + down], columns[k][j * ACROSS + across], sums[i][j]);
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i * ACROSS + down, column = first_column + j * ACROSS + across;
            if (row >= height || column >= width) continue;
            s64 place = (s64)row * width + column, code = __double_as_longlong(sums[i][j]);
            if (is_nan(code)) {
                code = __double_as_longlong(c[place]);
                for (int k = 0; k < depth; k++)
                    code = multiply_add(__double_as_longlong(a[(s64)row * depth + k]),
                                        __double_as_longlong(b[(s64)k * width + column]), code);
            }
            d[place] = __longlong_as_double(code);
        }
}
