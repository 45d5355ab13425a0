// Runs the GPU's own instruction along K. The registers of a fragment are contiguous, lane after lane.
//
// Macros: REGISTERS_A, REGISTERS_B, REGISTERS_C (words), REGISTER_A, REGISTER_C (types of a register), DOWN, ACROSS
// (tiles of a warp), WARPS, and ISSUE(d, a, b), which issues the instruction with d as C and D.

// The layout of a fragment in its words: element [lane][register][slot] is at (rows[place], columns[place]).
struct Fragment {
    int height, width, slots, bits, low, words;
};

// A matrix, and the number of its fragments down and across.
struct Extents {
    int height, width, down, across;
};

// One thread packs one word of one fragment; fragments are ordered by rows or by columns. Elements outside the matrix
// are 0.
template <typename Code>
__device__ __forceinline__ void pack(const Code *codes, Fragment f, const int *rows, const int *columns, u32 *words,
                                     Extents of, int by_column) {
    s64 word = (s64)blockIdx.x * blockDim.x + threadIdx.x, each = 32 * f.words, tile = blockIdx.y;
    s64 fragment = word / each, fragments = (s64)of.down * of.across;
    if (fragment >= fragments) return;
    int at = word % each;
    int row0 = (by_column ? fragment % of.down : fragment / of.across) * f.height;
    int column0 = (by_column ? fragment / of.down : fragment % of.across) * f.width;
    codes += tile * of.height * of.width;
    u32 result = 0;
    int slots = f.bits == 64 ? 1 : f.slots, first = f.bits == 64 ? at / 2 : at * f.slots;
    for (int slot = 0; slot < slots; slot++) {
        int row = row0 + rows[first + slot], column = column0 + columns[first + slot];
        bool inside = row < of.height && column < of.width;
        u64 code = inside ? (u64)codes[(s64)row * of.width + column] << f.low : 0;
        result |= f.bits == 64 ? (u32)(code >> (at % 2 * 32)) : (u32)code << (slot * f.bits);
    }
    words[tile * fragments * each + word] = result;
}

#define PACK(NAME, CODE)                                                                                            \
    extern "C" __global__ void NAME(const CODE *codes, Fragment f, const int *rows, const int *columns, u32 *words, \
                                    Extents of, int by_column) {                                                    \
        pack<CODE>(codes, f, rows, columns, words, of, by_column);                                                  \
    }
PACK(pack8, u8)
PACK(pack16, u16)
PACK(pack32, u32)
PACK(pack64, u64)

template <typename Code>
__device__ __forceinline__ void unpack(const u32 *words, Fragment f, const int *rows, const int *columns, Code *codes,
                                       Extents of) {
    s64 word = (s64)blockIdx.x * blockDim.x + threadIdx.x, each = 32 * f.words, tile = blockIdx.y;
    s64 fragment = word / each, fragments = (s64)of.down * of.across;
    if (fragment >= fragments) return;
    int at = word % each, row0 = fragment / of.across * f.height, column0 = fragment % of.across * f.width;
    words += tile * fragments * each;
    codes += tile * of.height * of.width;
    if (f.bits == 64 && at % 2) return;
    int slots = f.bits == 64 ? 1 : f.slots, first = f.bits == 64 ? at / 2 : at * f.slots;
    for (int slot = 0; slot < slots; slot++) {
        int row = row0 + rows[first + slot], column = column0 + columns[first + slot];
        if (row >= of.height || column >= of.width) continue;
        u64 code = f.bits == 64 ? words[word] | (u64)words[word + 1] << 32 : words[word] >> (slot * f.bits);
        codes[(s64)row * of.width + column] = (Code)code;
    }
}

#define UNPACK(NAME, CODE)                                                                                          \
    extern "C" __global__ void NAME(const u32 *words, Fragment f, const int *rows, const int *columns, CODE *codes, \
                                    Extents of) {                                                                   \
        unpack<CODE>(words, f, rows, columns, codes, of);                                                           \
    }
UNPACK(unpack16, u16)
UNPACK(unpack32, u32)
UNPACK(unpack64, u64)

// Fragments of A are [row of tiles][k], of B [column of tiles][k], of C and D [row of tiles][column of tiles].
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    native(const REGISTER_A *a, const REGISTER_A *b, const REGISTER_C *c, REGISTER_C *d, int down, int across,
           int instructions) {
    const int in_a = REGISTERS_A * 4 / sizeof(REGISTER_A), in_b = REGISTERS_B * 4 / sizeof(REGISTER_A);
    const int in_c = REGISTERS_C * 4 / sizeof(REGISTER_C);
    int lane = threadIdx.x % 32;
    int row = blockIdx.y * DOWN, column = (blockIdx.x * WARPS + threadIdx.x / 32) * ACROSS;
    s64 tile = blockIdx.z;
    if (row >= down || column >= across) return;
    a += tile * down * instructions * 32 * in_a + lane * in_a;
    b += tile * across * instructions * 32 * in_b + lane * in_b;
    c += tile * down * across * 32 * in_c + lane * in_c;
    d += tile * down * across * 32 * in_c + lane * in_c;
    REGISTER_C sums[DOWN][ACROSS][in_c];
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
#pragma unroll
            for (int r = 0; r < in_c; r++)
                sums[i][j][r] = row + i < down && column + j < across
                                    ? c[((s64)(row + i) * across + column + j) * 32 * in_c + r]
                                    : REGISTER_C(0);
    for (int k = 0; k < instructions; k++) {
        REGISTER_A x[DOWN][in_a], y[ACROSS][in_b];
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int r = 0; r < in_a; r++)
                x[i][r] = a[((s64)min(row + i, down - 1) * instructions + k) * 32 * in_a + r];
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
#pragma unroll
            for (int r = 0; r < in_b; r++)
                y[j][r] = b[((s64)min(column + j, across - 1) * instructions + k) * 32 * in_b + r];
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++) { ISSUE(sums[i][j], x[i], y[j]); }
    }
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
            if (row + i < down && column + j < across)
#pragma unroll
                for (int r = 0; r < in_c; r++)
                    d[((s64)(row + i) * across + column + j) * 32 * in_c + r] = sums[i][j][r];
}
