// Block-scaled 4-bit floats: exact sums of groups of products, each times its scale factors, then one truncated sum.
//
// Elements are doubled and packed four to a register; scale factors are exponent << SCALE_BITS | significand, with
// SCALE_FRACTION fraction bits.
// Macros: K, GROUP, SCALES (of one instruction), FRACTION_BITS, ZERO_EXPONENT.

#define PRODUCT_FRACTION 2
#define REGISTERS (K / 4)
#define PER_THREAD 4
#define ACROSS 16
#define EXTENT (PER_THREAD * ACROSS)

extern "C" __global__ void pack(const u8 *codes, Strides at, const signed char *doubled, u32 *words, int lines, int padded,
                                int registers) {
    int line = blockIdx.x * blockDim.x + threadIdx.x, place = blockIdx.y;
    s64 tile = blockIdx.z;
    if (line >= padded) return;
    u32 word = 0;
    for (int i = 0; i < 4 && line < lines; i++)
        word |= (u32)(u8)doubled[codes[tile * at.tile + line * at.line + (place * 4 + i) * at.k]] << (8 * i);
    words[(tile * registers + place) * padded + line] = word;
}

__device__ __forceinline__ s64 shifted(s64 product, int shift) {
    if (shift >= 0) return product << min(shift, 62);
    s64 magnitude = llabs(product) >> min(-shift, 63);
    return product < 0 ? -magnitude : magnitude;
}

// Return true if any of four products is not 0: bytes that are nonzero in both.
__device__ __forceinline__ bool has_product(u32 a, u32 b) { return __vcmpne4(a, 0) & __vcmpne4(b, 0); }

__device__ __forceinline__ double one_instruction(const u32 *a, const u32 *b, const int *scale_a, const int *scale_b, double c) {
    int common = ZERO_EXPONENT, exponents[K / GROUP];
    bool nan = c != c;
    s64 sums[K / GROUP];
#pragma unroll
    for (int g = 0; g < K / GROUP; g++) {
        int x = scale_a[g * GROUP / (K / SCALES)], y = scale_b[g * GROUP / (K / SCALES)];
        int significands = (x & 255) * (y & 255);
        exponents[g] = (x >> SCALE_BITS) + (y >> SCALE_BITS);
        nan |= exponents[g] >= NAN_SCALE / 2;
        int sum = 0;
        bool present = false;
#pragma unroll
        for (int w = 0; w < GROUP / 4; w++) {
            sum = __dp4a((int)a[g * GROUP / 4 + w], (int)b[g * GROUP / 4 + w], sum);
            present |= has_product(a[g * GROUP / 4 + w], b[g * GROUP / 4 + w]);
        }
        if (present && significands) common = max(common, exponents[g]);
        sums[g] = (s64)sum * significands;
    }
    if (nan) return __hiloint2double(0x7ff80000, 0);
    int upper = __double2hiint(c) & 0x7ff00000;
    if (upper == 0x7ff00000) return c;
    if (c != 0) common = max(common, max((upper >> 20) - 1023, -126));
    s64 total = (s64)(c * power_of_two(FRACTION_BITS - common));
#pragma unroll
    for (int g = 0; g < K / GROUP; g++)
        total += shifted(sums[g], exponents[g] - common + FRACTION_BITS - PRODUCT_FRACTION - 2 * SCALE_FRACTION);
    double exact = (double)total * power_of_two(common - FRACTION_BITS), kept;
    if (fabs(exact) < 0x1p-126) {
        double grid = power_of_two(126 + 23);
        kept = (double)(s64)(exact * grid) / grid;
    } else {
        kept = __longlong_as_double(__double_as_longlong(exact) & -(1ll << 29));
    }
    return fabs(kept) >= 0x1p128 ? __hiloint2double(kept < 0 ? 0xfff00000 : 0x7ff00000, 0) : kept + 0.0;
}

extern "C" __global__ void __launch_bounds__(ACROSS * ACROSS)
    grouped(const u32 *a, const u32 *b, const int *scale_a, const int *scale_b, const u32 *c, u32 *d, int height, int width,
            int padded_a, int padded_b, int instructions) {
    __shared__ u32 rows[EXTENT][REGISTERS + 1], columns[EXTENT][REGISTERS + 1];
    __shared__ int scale_rows[EXTENT][SCALES], scale_columns[EXTENT][SCALES];
    int thread = threadIdx.x, down = thread / ACROSS, across = thread % ACROSS;
    int first_row = blockIdx.y * EXTENT, first_column = blockIdx.x * EXTENT;
    s64 tile = blockIdx.z;
    double sums[PER_THREAD][PER_THREAD];
    for (int i = 0; i < PER_THREAD; i++)
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i * ACROSS + down, column = first_column + j * ACROSS + across;
            bool is_there = row < height && column < width;
            sums[i][j] = is_there ? f64_of_f32(c[(tile * height + row) * width + column]) : 0.0;
        }
    for (int instruction = 0; instruction < instructions; instruction++) {
        __syncthreads();
        for (int at = thread; at < EXTENT * REGISTERS; at += ACROSS * ACROSS) {
            s64 place = (tile * instructions + instruction) * REGISTERS + at / EXTENT;
            rows[at % EXTENT][at / EXTENT] = a[place * padded_a + first_row + at % EXTENT];
            columns[at % EXTENT][at / EXTENT] = b[place * padded_b + first_column + at % EXTENT];
        }
        for (int at = thread; at < EXTENT * SCALES; at += ACROSS * ACROSS) {
            int line = at / SCALES, block = instruction * SCALES + at % SCALES, blocks = instructions * SCALES;
            int row = first_row + line, column = first_column + line;
            scale_rows[line][at % SCALES] = row < height ? scale_a[(tile * height + row) * blocks + block] : 0;
            scale_columns[line][at % SCALES] = column < width ? scale_b[(tile * blocks + block) * width + column] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) {
                int row = i * ACROSS + down, column = j * ACROSS + across;
                sums[i][j] = one_instruction(rows[row], columns[column], scale_rows[row], scale_columns[column], sums[i][j]);
            }
    }
    for (int i = 0; i < PER_THREAD; i++)
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i * ACROSS + down, column = first_column + j * ACROSS + across;
            if (row < height && column < width) d[(tile * height + row) * width + column] = f32_of_f64(sums[i][j]);
        }
}
