// The truncated fused dot-product-add, plain or with a power of two for each block.
//
// The method is that of `kernels/strip.h`: every product is added by one fma, rounded towards zero, to a float64 that
// starts at 1.5 * 2**52 grids. This rounds each product down. Negative products, which end up one grid too low, are
// counted beforehand. Here the count comes from two masks and one popcount, because a word of A has a bit for each
// positive element and one for each negative element, and a word of B has the two exchanged.
//
// Exponents are stored in 16 bits, multiplied by 16, and biased so that the upper half of a register is the exponent
// field of the initial float64. Two k share a register: `viaddmax` handles both at once.
//
// An accumulator is a float64 that holds an f32 or f16. Infinities and NaNs need no special treatment, because float64
// sums propagate them. Exceptional outputs are marked in `exceptional`, and `redo` recomputes them from codes: outputs
// whose exponents are near the limits of f32, and columns of B with an infinity or a NaN that a sparse A may skip.
//
// Macros: FRACTION_BITS, PRODUCTS (of a step; for a sparse A, including its zeros), STEPS, ZERO_EXPONENT, ROUND_TO,
// ADDS_C_LAST, C_EMIN, C_IS_F16, D_IS_F16, WATCHES_EXPONENTS, STAGES, BLOCKS_PER_SM, and ROWS_PER_THREAD and
// COLUMNS_PER_THREAD, both even.

#define THREADS_DOWN 8
#define THREADS_ACROSS 16
#define THREADS (THREADS_DOWN * THREADS_ACROSS)
#define HEIGHT (ROWS_PER_THREAD * THREADS_DOWN)
#define WIDTH (COLUMNS_PER_THREAD * THREADS_ACROSS)
#define DEPTH (PRODUCTS * STEPS > 16 ? PRODUCTS * STEPS : 16)
#define GROUPS (DEPTH / PRODUCTS)
#define SPAN (PRODUCTS < 16 ? PRODUCTS : 16)  // number of elements per word of signs
#define WORDS (PRODUCTS / SPAN)

#define ORIGIN (1023 + 52 - FRACTION_BITS)  // the exponent field of the initial float64, at a common exponent of 0
#define B_BIAS (1.0 + 0x1p-30)
#define MIN_COMMON_EXPONENT -100
#define MAX_COMMON_EXPONENT 120
#define ZERO_A -8000  // the exponent of 0: its sum with any other exponent is below every limit
#define ZERO_B -24000

#define EACH_OUTPUT                                      \
    _Pragma("unroll") for (int i = 0; i < ROWS_PER_THREAD; i++) \
    _Pragma("unroll") for (int j = 0; j < COLUMNS_PER_THREAD; j++)

// The encoding of the elements of A or B: `compiled.Encoding`.
struct Encoding {
    int fraction, bias, unused, sign_place, special_from, infinity;
};

enum Kind { FINITE, INFINITE, NOT_A_NUMBER };

// A finite number is significand * 2**(exponent - fraction). For an infinity, the significand has the sign.
struct Number {
    Kind kind;
    int exponent, significand;
};

__device__ __forceinline__ Number unpack(u32 code, const Encoding &by) {
    bool negative = code >> by.sign_place & 1;
    int magnitude = (code & ((1u << by.sign_place) - 1)) >> by.unused;
    if (magnitude >= by.special_from)
        return {magnitude == by.infinity ? INFINITE : NOT_A_NUMBER, 0, negative ? -1 : 1};
    int field = magnitude >> by.fraction, significand = magnitude & ((1 << by.fraction) - 1);
    if (field) significand |= 1 << by.fraction;
    return {FINITE, max(field, 1) - by.bias, negative ? -significand : significand};
}

__device__ __forceinline__ double infinity(bool negative) { return __hiloint2double(negative ? 0xfff00000 : 0x7ff00000, 0); }
__device__ __forceinline__ double not_a_number() { return __hiloint2double(0x7ff80000, 0); }

__device__ __forceinline__ double read_c(C code) {
    return f64_of_f32(C_IS_F16 ? f32_of_f16(code) : code);
}

__device__ __forceinline__ D write_d(double value) {
    return D_IS_F16 ? (D)f16_of_f32(f32_of_f64(value)) : (D)f32_of_f64(value);
}

// The nearest f16, ties to even. Adding and subtracting 1.5 * 2**52 of its ulps makes float64 round to it.
__device__ __forceinline__ double round_f16(double exact) {
    int field = max((__double2hiint(exact) & 0x7ff00000) >> 20, 1023 - 14);
    double shift = __hiloint2double((field + 42) << 20 | 1 << 19, 0);
    double rounded = (exact + shift) - shift;
    if (fabs(rounded) >= 65536.0) rounded = infinity(rounded < 0);
    return exact - exact == 0 ? rounded : exact;
}

// ---- Preparation of operands: one thread handles a line and the elements of one word of signs.

// The strides of scale factors, which are powers of two, and the number of k that share a factor.
struct Blocks {
    s64 tile, line, block;
    s64 k;
};

__device__ __forceinline__ int scale_at(const int *exponents, const Blocks &at, s64 tile, int line, int k) {
    return exponents ? exponents[tile * at.tile + line * at.line + k / (int)at.k * at.block] : 0;
}

template <typename Code, bool IS_B>
__device__ __forceinline__ void prepare(const Code *codes, Strides at, const int *order, const int *scales, Blocks blocks, Encoding by,
                                        double *values, uint2 *exponents, u32 *signs, u8 *special, int lines,
                                        int padded, int depth) {
    int line = blockIdx.x * blockDim.x + threadIdx.x, word = blockIdx.y;
    s64 tile = blockIdx.z;
    if (line >= padded) return;
    values += tile * depth * padded;
    exponents += tile * (depth / 4) * padded;
    signs += tile * (depth / SPAN) * padded;
    u32 sign = 0;
    u16 four[4];
#pragma unroll 4
    for (int i = 0; i < SPAN; i++) {
        int place = word * SPAN + i, k = order[place];
        double value = 0;
        int exponent = IS_B ? ZERO_B : ZERO_A;
        if (k >= 0 && line < lines) {
            Number number = unpack(codes[tile * at.tile + line * at.line + k * at.k], by);
            int scale = scale_at(scales, blocks, tile, line, k);
            if (number.kind == NOT_A_NUMBER || scale >= NAN_SCALE) {
                value = not_a_number();
            } else if (number.kind == INFINITE) {
                value = infinity(number.significand < 0);
            } else if (number.significand) {
                exponent = 16 * (number.exponent + scale + (IS_B ? 0 : ORIGIN));
                value = (double)number.significand * power_of_two(number.exponent + scale - by.fraction);
                if (IS_B) value *= B_BIAS;
                sign |= 1u << (i + ((value < 0) == IS_B ? 0 : 16));
            }
            if (special && (number.kind != FINITE || scale >= NAN_SCALE)) special[tile * lines + line] = 1;
        }
        values[(s64)place * padded + line] = value;
        four[i & 3] = (u16)exponent;
        if ((i & 3) == 3)
            exponents[(s64)(place / 4) * padded + line] =
                make_uint2(four[0] | (u32)four[1] << 16, four[2] | (u32)four[3] << 16);
    }
    signs[(s64)word * padded + line] = sign;
}

#define PREPARE(NAME, CODE, IS_B)                                                                                     \
    extern "C" __global__ void NAME(const CODE *codes, Strides at, const int *order, const int *scales, Blocks blocks,  \
                                    Encoding by,                                                                      \
                                    double *values, uint2 *exponents, u32 *signs, u8 *special, int lines, int padded, \
                                    int depth) {                                                                      \
        prepare<CODE, IS_B>(codes, at, order, scales, blocks, by, values, exponents, signs, special, lines, padded, depth);   \
    }
PREPARE(prepare_a8, u8, false)
PREPARE(prepare_a16, u16, false)
PREPARE(prepare_a32, u32, false)
PREPARE(prepare_b8, u8, true)
PREPARE(prepare_b16, u16, true)
PREPARE(prepare_b32, u32, true)

// ---- The product.

struct Prepared {
    const double *values;
    const uint2 *exponents;  // of four k
    const u32 *signs;
    int padded;  // lines
};

struct Stage {
    double a[DEPTH][HEIGHT], b[DEPTH][WIDTH];
    uint2 exponents_a[DEPTH / 4][HEIGHT], exponents_b[DEPTH / 4][WIDTH];
    u32 signs_a[GROUPS * WORDS][HEIGHT], signs_b[GROUPS * WORDS][WIDTH];
};

// A thread's lines come in pairs: two float64 in 16 bytes. Adjacent pairs are contiguous, so there are no bank
// conflicts.
__device__ __forceinline__ int row_of(int down, int i) { return (i / 2) * 2 * THREADS_DOWN + 2 * down + (i & 1); }
__device__ __forceinline__ int column_of(int across, int j) { return (j / 2) * 2 * THREADS_ACROSS + 2 * across + (j & 1); }

template <int LINES, int COUNT>
__device__ __forceinline__ void fetch_side(double (*values)[LINES], uint2 (*exponents)[LINES], u32 (*signs)[LINES],
                                           const Prepared &from, s64 tile, int stages, int stage, int first,
                                           int thread) {
    s64 padded = from.padded, k = (tile * stages + stage) * DEPTH;
    copy_rows<DEPTH, LINES * 8, THREADS>(values, from.values + k * padded + first, padded * 8, thread);
    copy_rows<DEPTH / 4, LINES * 8, THREADS>(exponents, from.exponents + k / 4 * padded + first, padded * 8, thread);
    copy_rows<COUNT, LINES * 4, THREADS>(signs, from.signs + k / SPAN * padded + first, padded * 4, thread);
}

// Return true if any product of the group is not 0.
__device__ __forceinline__ bool has_product(const u32 *a, const u32 *b) {
    u32 met = 0;
#pragma unroll
    for (int w = 0; w < WORDS; w++) met |= (a[w] | a[w] >> 16) & (b[w] | b[w] >> 16) & 0xffff;
    return met;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    fused(const double *values_a, const uint2 *exponents_a, const u32 *signs_of_a, int padded_a, const double *values_b,
          const uint2 *exponents_b, const u32 *signs_of_b, int padded_b, const C *c, D *d, u8 *exceptional, const u8 *special,
          int height, int width, int steps) {
    const Prepared a = {values_a, exponents_a, signs_of_a, padded_a}, b = {values_b, exponents_b, signs_of_b, padded_b};
    int stages = (steps + GROUPS - 1) / GROUPS;
    extern __shared__ __align__(128) char scratch[];
    Stage *shared = (Stage *)scratch;
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    int down = warp / (THREADS_ACROSS / 8) * 4 + lane / 8, across = warp % (THREADS_ACROSS / 8) * 8 + lane % 8;
    int first_row = blockIdx.y * HEIGHT, first_column = blockIdx.x * WIDTH;
    s64 tile = blockIdx.z;
    c += tile * height * width;
    d += tile * height * width;
    exceptional += tile * height * width;

    auto fetch = [&](int stage) {
        Stage &s = shared[stage % STAGES];
        fetch_side<HEIGHT, GROUPS * WORDS>(s.a, s.exponents_a, s.signs_a, a, tile, stages, stage, first_row, thread);
        fetch_side<WIDTH, GROUPS * WORDS>(s.b, s.exponents_b, s.signs_b, b, tile, stages, stage, first_column, thread);
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < stages) fetch(stage);
        commit_copies();
    }

    double accumulators[ROWS_PER_THREAD][COLUMNS_PER_THREAD];
#if ADDS_C_LAST
    u32 held[ROWS_PER_THREAD][COLUMNS_PER_THREAD];
#endif
    EACH_OUTPUT {
        int row = first_row + row_of(down, i), column = first_column + column_of(across, j);
        bool is_there = row < height && column < width;
        double value = is_there ? read_c(c[(s64)row * width + column]) : 0.0;
#if !ADDS_C_LAST
        value += 0.0;  // a step turns -0 into +0, and -0 would count as negative
#endif
#if ADDS_C_LAST
        held[i][j] = f32_of_f64(value);
        value = 0.0;
#elif !WATCHES_EXPONENTS && !C_IS_F16
        int exponent = ((__double2hiint(value) & 0x7ff00000) >> 20) - 1023;
        if (is_there && value != 0 && exponent < 1024 && (exponent < MIN_COMMON_EXPONENT || exponent > -MIN_COMMON_EXPONENT))
            exceptional[(s64)row * width + column] = 1;
#endif
        if (is_there && special && special[tile * width + column]) exceptional[(s64)row * width + column] = 1;
        accumulators[i][j] = value;
    }

    const u32 min_start = 16 * (ZERO_EXPONENT + ORIGIN);
    for (int stage = 0; stage < stages; stage++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        if (stage + STAGES - 1 < stages) fetch(stage + STAGES - 1);
        commit_copies();
        const Stage &s = shared[stage % STAGES];
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            if (stage * GROUPS + group >= steps) break;  // an empty step would truncate C again
#if ADDS_C_LAST
            if (group % STEPS == 0) EACH_OUTPUT accumulators[i][j] = 0.0;
#endif
            u32 max_exponents[ROWS_PER_THREAD][COLUMNS_PER_THREAD];
            EACH_OUTPUT max_exponents[i][j] = min_start << 16 | min_start;
#pragma unroll 4
            for (int four = 0; four < PRODUCTS / 4; four++) {
                uint4 x[ROWS_PER_THREAD / 2], y[COLUMNS_PER_THREAD / 2];
                int line = group * PRODUCTS / 4 + four;
#pragma unroll
                for (int i = 0; i < ROWS_PER_THREAD; i += 2)
                    x[i / 2] = *(const uint4 *)&s.exponents_a[line][row_of(down, i)];
#pragma unroll
                for (int j = 0; j < COLUMNS_PER_THREAD; j += 2)
                    y[j / 2] = *(const uint4 *)&s.exponents_b[line][column_of(across, j)];
                EACH_OUTPUT {
                    u32 low = i & 1 ? x[i / 2].z : x[i / 2].x, high = i & 1 ? x[i / 2].w : x[i / 2].y;
                    max_exponents[i][j] = __viaddmax_s16x2(low, j & 1 ? y[j / 2].z : y[j / 2].x, max_exponents[i][j]);
                    max_exponents[i][j] = __viaddmax_s16x2(high, j & 1 ? y[j / 2].w : y[j / 2].y, max_exponents[i][j]);
                }
            }
            u32 signs_a[ROWS_PER_THREAD][WORDS], signs_b[COLUMNS_PER_THREAD][WORDS];
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
#pragma unroll
                for (int i = 0; i < ROWS_PER_THREAD; i++) signs_a[i][w] = s.signs_a[group * WORDS + w][row_of(down, i)];
#pragma unroll
                for (int j = 0; j < COLUMNS_PER_THREAD; j++)
                    signs_b[j][w] = s.signs_b[group * WORDS + w][column_of(across, j)];
            }
            double sums[ROWS_PER_THREAD][COLUMNS_PER_THREAD];
#if WATCHES_EXPONENTS
            u32 reach = 0;
#endif
            EACH_OUTPUT {
                int upper = __double2hiint(accumulators[i][j]);
                int magnitude = upper & 0x7fffffff;
#if C_EMIN > -126
                if (magnitude) magnitude = max(magnitude, (C_EMIN + 1023) << 20);
#endif
                int start = max((int)(max_exponents[i][j] << 16), (int)max_exponents[i][j]);
                start = max(start, magnitude + ((52 - FRACTION_BITS) << 20));
                start = (start & 0xfff00000) | 0x80000;
                u32 below = (u32)upper >> 31;
#pragma unroll
                for (int w = 0; w < WORDS; w++) below += __popc(signs_a[i][w] & signs_b[j][w]);
                sums[i][j] = __fma_rz(accumulators[i][j], B_BIAS, __hiloint2double(start, below));
                accumulators[i][j] = __hiloint2double(start, 0);
#if WATCHES_EXPONENTS
                reach = max(reach, (u32)start - ((MIN_COMMON_EXPONENT + ORIGIN) << 20));
#endif
            }
#if WATCHES_EXPONENTS
            const u32 range = (MAX_COMMON_EXPONENT - MIN_COMMON_EXPONENT + 1) << 20;
            if (reach >= range) EACH_OUTPUT {
                u32 start = __double2hiint(accumulators[i][j]);
                double at_first = __hiloint2double(start, 0);
                bool is_out_of_range = start - ((MIN_COMMON_EXPONENT + ORIGIN) << 20) >= range;
                bool is_finite = (__double2hiint(sums[i][j]) & 0x7ff00000) != 0x7ff00000;
                bool is_nothing = sums[i][j] == at_first && !has_product(signs_a[i], signs_b[j]);
                int row = first_row + row_of(down, i), column = first_column + column_of(across, j);
                if (is_out_of_range && is_finite && !is_nothing && row < height && column < width)
                    exceptional[(s64)row * width + column] = 1;
            }
#endif
#pragma unroll 16
            for (int k = 0; k < PRODUCTS; k++) {
                double2 x[ROWS_PER_THREAD / 2], y[COLUMNS_PER_THREAD / 2];
                int line = group * PRODUCTS + k;
#pragma unroll
                for (int i = 0; i < ROWS_PER_THREAD; i += 2) x[i / 2] = *(const double2 *)&s.a[line][row_of(down, i)];
#pragma unroll
                for (int j = 0; j < COLUMNS_PER_THREAD; j += 2)
                    y[j / 2] = *(const double2 *)&s.b[line][column_of(across, j)];
                EACH_OUTPUT sums[i][j] = __fma_rz(i & 1 ? x[i / 2].y : x[i / 2].x, j & 1 ? y[j / 2].y : y[j / 2].x, sums[i][j]);
            }
            EACH_OUTPUT {
                double exact = sums[i][j] - accumulators[i][j];
                if (ROUND_TO == TO_F16_RN)
                    accumulators[i][j] = round_f16(exact);
                else  // towards zero: keep fewer bits of the float64
                    accumulators[i][j] =
                        __hiloint2double(__double2hiint(exact) & (ROUND_TO == TO_E8M13_RZ ? 0xffffff80 : 0xffffffff),
                                         __double2loint(exact) & (ROUND_TO == TO_E8M13_RZ ? 0 : 0xe0000000));
            }
#if ADDS_C_LAST
            if (group % STEPS == STEPS - 1) EACH_OUTPUT {
                held[i][j] = D_IS_F16 ? f32_of_f64(round_f16(f64_of_f32(held[i][j]) + accumulators[i][j]))
                                      : add_f32(held[i][j], f32_of_f64(accumulators[i][j]));
            }
#endif
        }
    }
    EACH_OUTPUT {
        int row = first_row + row_of(down, i), column = first_column + column_of(across, j);
#if ADDS_C_LAST
        accumulators[i][j] = f64_of_f32(held[i][j]);
#endif
        if (row < height && column < width) d[(s64)row * width + column] = write_d(accumulators[i][j]);
    }
}

// ---- Exceptional outputs, computed from codes with integers by the rule of `kernels/exceptional.h`.

__device__ __forceinline__ s64 shifted(s64 product, int shift) {
    if (shift >= 0) return product << min(shift, 62);
    s64 magnitude = llabs(product) >> min(-shift, 63);
    return product < 0 ? -magnitude : magnitude;
}

__device__ __forceinline__ double truncate_f32(double exact, int fraction) {
    double kept;
    if (fabs(exact) < 0x1p-126) {
        double grid = power_of_two(126 + fraction);
        kept = (double)(s64)(exact * grid) / grid;
    } else {
        kept = __longlong_as_double(__double_as_longlong(exact) & -(1ll << (52 - fraction)));
    }
    return fabs(kept) >= 0x1p128 ? infinity(kept < 0) : kept + 0.0;
}

struct Sources {
    const void *a, *b;
    Strides at_a, at_b;
    Encoding by_a, by_b;
    int bytes_a, bytes_b;
    const int *columns;  // for a sparse A, else null
    const int *scales_a, *scales_b;
    Blocks blocks_a, blocks_b;
};

__device__ __forceinline__ u32 code_at(const void *codes, int bytes, s64 place) {
    return bytes == 1 ? ((const u8 *)codes)[place] : bytes == 2 ? ((const u16 *)codes)[place] : ((const u32 *)codes)[place];
}

// Read element `stored` of A's row, and the element of B's column that it multiplies; return the sum of the exponents
// of their scale factors.
__device__ __forceinline__ int read_pair(const Sources &from, s64 tile, int row, int column, int stored, Number &x, Number &y) {
    s64 place = tile * from.at_a.tile + row * from.at_a.line + stored * from.at_a.k;
    int k = from.columns ? from.columns[place] : stored;
    x = unpack(code_at(from.a, from.bytes_a, place), from.by_a);
    y = unpack(code_at(from.b, from.bytes_b, tile * from.at_b.tile + column * from.at_b.line + k * from.at_b.k), from.by_b);
    return scale_at(from.scales_a, from.blocks_a, tile, row, k) + scale_at(from.scales_b, from.blocks_b, tile, column, k);
}

__device__ double step_again(const Sources &from, s64 tile, int row, int column, const int *places, int products, double c) {
    int common = ZERO_EXPONENT;
    bool nan = c != c, plus = c == infinity(false), minus = c == infinity(true);
    Number x, y;
    for (int p = 0; p < products; p++) {
        int scale = read_pair(from, tile, row, column, places[p], x, y);
        bool has_zero = !x.significand || !y.significand;
        if (scale >= NAN_SCALE / 2 || x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER)
            nan = true;
        else if (x.kind == FINITE && y.kind == FINITE)
            common = has_zero ? common : max(common, x.exponent + y.exponent + scale);
        else if (has_zero)
            nan = true;
        else
            ((x.significand < 0) == (y.significand < 0) ? plus : minus) = true;
    }
    if (nan || (plus && minus)) return not_a_number();
    if (plus || minus) return infinity(minus);
    if (c != 0) common = max(common, max(((__double2hiint(c) & 0x7ff00000) >> 20) - 1023, C_EMIN));
    s64 total = (s64)(c * power_of_two(FRACTION_BITS - common));
    int point = from.by_a.fraction + from.by_b.fraction;
    for (int p = 0; p < products; p++) {
        int scale = read_pair(from, tile, row, column, places[p], x, y);
        total += shifted((s64)x.significand * y.significand, x.exponent + y.exponent + scale - common + FRACTION_BITS - point);
    }
    double exact = (double)total * power_of_two(common - FRACTION_BITS);
    return ROUND_TO == TO_F16_RN ? round_f16(exact) + 0.0 : truncate_f32(exact, ROUND_TO == TO_E8M13_RZ ? 13 : 23);
}

// `order` lists A's stored elements in the order of addition. Without `exceptional`, every output is computed.
extern "C" __global__ void redo(const void *a, const void *b, Strides at_a, Strides at_b, Encoding by_a, Encoding by_b,
                                int bytes_a, int bytes_b, const int *columns, const int *scales_a, const int *scales_b,
                                Blocks blocks_a, Blocks blocks_b, const int *order, int stored, int products, const C *c, D *d, const u8 *exceptional,
                                int height, int width, int tiles) {
    s64 output = (s64)blockIdx.x * blockDim.x + threadIdx.x;
    if (output >= (s64)tiles * height * width || (exceptional && !exceptional[output])) return;
    const Sources from = {a,       b,       at_a,     at_b,     by_a,     by_b,    bytes_a,
                          bytes_b, columns, scales_a, scales_b, blocks_a, blocks_b};
    int column = output % width, row = output / width % height;
    s64 tile = output / width / height;
    double held = read_c(c[output]), made = ADDS_C_LAST ? 0.0 : held;
    for (int first = 0, step = 0; first < stored; first += products, step++) {
        if (ADDS_C_LAST && step % STEPS == 0) made = 0.0;
        made = step_again(from, tile, row, column, order + first, products, made);
        if (ADDS_C_LAST && step % STEPS == STEPS - 1)
            held = D_IS_F16 ? round_f16(held + made) : f64_of_f32(add_f32(f32_of_f64(held), f32_of_f64(made)));
    }
    d[output] = write_d(ADDS_C_LAST ? held : made);
}
