// Code that all kernels here use. The source of a kernel is this file and one other. The numbers of a rule are macros,
// and so are constants that Python has too: NAN_F16, NAN_F32, NAN_F64 (the canonical NaNs), TO_F32_RZ, TO_F16_RN,
// TO_E8M13_RZ (the rounding of a step), SCALE_BITS, SCALE_FRACTION and NAN_SCALE (scale factors as integers:
// `tensorcore/encodings.py`).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// Codes of accumulators: f16 if the rule says so, else f32.
#if C_IS_F16
typedef u16 C;
#else
typedef u32 C;
#endif
#if D_IS_F16
typedef u16 D;
#else
typedef u32 D;
#endif

// The distances, in elements, between tiles, between lines (rows of A or columns of B), and between elements along k.
struct Strides {
    s64 tile, line, k;
};

__device__ __forceinline__ double power_of_two(int exponent) { return __hiloint2double((exponent + 1023) << 20, 0); }

// f32 operations are written in PTX, because this file may be compiled with subnormals flushed to zero.

__device__ __forceinline__ double f64_of_f32(u32 code) {
    double value;
    asm("{ .reg .f32 x; mov.b32 x, %1; cvt.f64.f32 %0, x; }" : "=d"(value) : "r"(code));
    return value;
}

__device__ __forceinline__ u32 f32_of_f64(double value) {
    u32 code;
    asm("{ .reg .f32 x; cvt.rn.f32.f64 x, %1; mov.b32 %0, x; }" : "=r"(code) : "d"(value));
    return value != value ? NAN_F32 : code;
}

__device__ __forceinline__ u32 f32_of_f16(u32 code) {
    u32 result;
    asm("{ .reg .f32 x; cvt.f32.f16 x, %1; mov.b32 %0, x; }" : "=r"(result) : "h"((u16)code));
    return result;
}

__device__ __forceinline__ bool is_nan_f32(u32 code) { return (code & 0x7fffffff) > 0x7f800000; }

__device__ __forceinline__ u32 f16_of_f32(u32 code) {
    u16 result;
    asm("{ .reg .f32 x; mov.b32 x, %1; cvt.rn.f16.f32 %0, x; }" : "=h"(result) : "r"(code));
    return is_nan_f32(code) ? NAN_F16 : result;
}

__device__ __forceinline__ u32 add_f32(u32 a, u32 b) {
    u32 result;
    asm("{ .reg .f32 x, y; mov.b32 x, %1; mov.b32 y, %2; add.rn.f32 x, x, y; mov.b32 %0, x; }"
        : "=r"(result) : "r"(a), "r"(b));
    return result;
}

__device__ __forceinline__ u32 multiply_f32(u32 a, u32 b) {
    u32 result;
    asm("{ .reg .f32 x, y; mov.b32 x, %1; mov.b32 y, %2; mul.rn.f32 x, x, y; mov.b32 %0, x; }"
        : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// Copy 16 bytes from global to shared memory without using registers.
__device__ __forceinline__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
}

// Copy some rows of equal size with all threads of a block.
template <int ROWS, int BYTES, int THREADS>
__device__ __forceinline__ void copy_rows(void *to, const void *from, s64 pitch, int thread) {
    constexpr int PIECES = BYTES / 16, ALL = ROWS * PIECES;
#pragma unroll
    for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
        int piece = i * THREADS + thread;
        if (ALL % THREADS == 0 || piece < ALL)
            copy16((char *)to + piece * 16, (const char *)from + (piece / PIECES) * pitch + (piece % PIECES) * 16);
    }
}
