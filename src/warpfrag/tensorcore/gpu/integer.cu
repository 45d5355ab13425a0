// Sums of integers: 8- and 4-bit products, four to a register, and one-bit operands, 32 to a register.
//
// Macros: CODES (elements in a register), BITS (of an element), SIGNED_A, SIGNED_B, OPERATION, CLAMPS, WORDS (registers
// in one instruction).

#define DOT 0
#define XOR 1
#define AND 2

#define PER_THREAD 8
#define ACROSS 16  // number of threads in both directions
#define THREADS (ACROSS * ACROSS)
#define EXTENT (PER_THREAD * ACROSS)
#define DEPTH 4

// Registers of codes, [tile][register][line]; lines and k beyond the end are 0.
extern "C" __global__ void pack(const u8 *codes, Strides at, int is_signed, u32 *words, int lines, int padded, int depth,
                                int registers) {
    int line = blockIdx.x * blockDim.x + threadIdx.x, place = blockIdx.y;
    s64 tile = blockIdx.z;
    if (line >= padded) return;
    u32 word = 0;
    if (line < lines)
        for (int i = 0; i < CODES && place * CODES + i < depth; i++) {
            u32 code = codes[tile * at.tile + line * at.line + (place * CODES + i) * at.k];
            if (BITS == 4 && is_signed) code = (code ^ 8) - 8;
            word |= (CODES == 4 ? code & 0xff : code) << (32 / CODES * i);
        }
    words[(tile * registers + place) * padded + line] = word;
}

__device__ __forceinline__ int fold(u32 a, u32 b, int sum) {
#if OPERATION == XOR
    return sum + __popc(a ^ b);
#elif OPERATION == AND
    return sum + __popc(a & b);
#else
    int result;
#if SIGNED_A && SIGNED_B
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
#elif SIGNED_A
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
#elif SIGNED_B
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
#else
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
#endif
    return result;
#endif
}

__device__ __forceinline__ int add_clamped(int a, int b) {
    int result;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// `registers` is a multiple of DEPTH, and of WORDS if sums are clamped.
extern "C" __global__ void __launch_bounds__(THREADS)
    integer(const u32 *a, const u32 *b, int *c, int height, int width, int padded_a, int padded_b, int registers) {
    __shared__ __align__(16) u32 rows[2][DEPTH][EXTENT], columns[2][DEPTH][EXTENT];
    int thread = threadIdx.x, down = thread / ACROSS, across = thread % ACROSS;
    int first_row = blockIdx.y * EXTENT, first_column = blockIdx.x * EXTENT;
    s64 tile = blockIdx.z;
    a += tile * registers * padded_a + first_row;
    b += tile * registers * padded_b + first_column;
    c += tile * height * width;
    auto fetch = [&](int first) {
        copy_rows<DEPTH, EXTENT * 4, THREADS>(rows[first / DEPTH % 2], a + (s64)first * padded_a, padded_a * 4ll, thread);
        copy_rows<DEPTH, EXTENT * 4, THREADS>(columns[first / DEPTH % 2], b + (s64)first * padded_b, padded_b * 4ll, thread);
        commit_copies();
    };
    int sums[PER_THREAD][PER_THREAD], dots[PER_THREAD][PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i / 4 * 4 * ACROSS + 4 * down + i % 4;
            int column = first_column + j / 4 * 4 * ACROSS + 4 * across + j % 4;
            sums[i][j] = row < height && column < width ? c[(s64)row * width + column] : 0;
            dots[i][j] = 0;
        }
    fetch(0);
    for (int first = 0; first < registers; first += DEPTH) {
        wait_for_copies<0>();
        __syncthreads();
        if (first + DEPTH < registers) fetch(first + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            uint4 x[2], y[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                x[half] = *(const uint4 *)&rows[first / DEPTH % 2][k][half * 4 * ACROSS + 4 * down];
                y[half] = *(const uint4 *)&columns[first / DEPTH % 2][k][half * 4 * ACROSS + 4 * across];
            }
            const u32 *xs = (const u32 *)x, *ys = (const u32 *)y;
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
                for (int j = 0; j < PER_THREAD; j++) {
                    int &sum = CLAMPS ? dots[i][j] : sums[i][j];
                    sum = fold(xs[i], ys[j], sum);
                }
        }
#if CLAMPS
        if ((first + DEPTH) % WORDS == 0)
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
                for (int j = 0; j < PER_THREAD; j++) {
                    sums[i][j] = add_clamped(sums[i][j], dots[i][j]);
                    dots[i][j] = 0;
                }
#endif
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            int row = first_row + i / 4 * 4 * ACROSS + 4 * down + i % 4;
            int column = first_column + j / 4 * 4 * ACROSS + 4 * across + j % 4;
            if (row < height && column < width) c[(s64)row * width + column] = sums[i][j];
        }
}
