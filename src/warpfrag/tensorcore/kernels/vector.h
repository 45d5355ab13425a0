/* Vectors as wide as a register of the processor level, and operations on them that C has no operators for.

   `f32v`, `s32v` and `u32v` have F32_LANES lanes, as many as two `f64v` together: the lanes of the first `f64v`, then
   those of the second. Operators work lane by lane; comparisons give all ones or all zeros. */

#ifndef WARPFRAG_VECTOR_H
#define WARPFRAG_VECTOR_H

#include <string.h>

#include "tensorcore/native/entry.h"

#if defined(__AVX512BW__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#define F64_LANES (VECTOR_BYTES / 8)
#define F32_LANES (VECTOR_BYTES / 4)
#define BYTE_LANES VECTOR_BYTES

#define VECTOR_OF(type) __attribute__((vector_size(VECTOR_BYTES))) type
typedef VECTOR_OF(double) f64v;
typedef VECTOR_OF(float) f32v;
typedef VECTOR_OF(int64_t) s64v;
typedef VECTOR_OF(int32_t) s32v;
typedef VECTOR_OF(uint32_t) u32v;
typedef VECTOR_OF(int8_t) s8v;
typedef VECTOR_OF(uint8_t) u8v;

/* Addresses need not be aligned to a vector. */
#define DEFINE_MEMORY_ACCESS(vector, element, name)                    \
    INLINED vector load_##name(const element *from)                    \
    {                                                                  \
        vector lanes;                                                  \
        memcpy(&lanes, from, sizeof lanes);                            \
        return lanes;                                                  \
    }                                                                  \
    INLINED void store_##name(element *to, vector lanes)               \
    {                                                                  \
        memcpy(to, &lanes, sizeof lanes);                              \
    }

DEFINE_MEMORY_ACCESS(f64v, double, f64)
DEFINE_MEMORY_ACCESS(f32v, float, f32)
DEFINE_MEMORY_ACCESS(s32v, int32_t, s32)
DEFINE_MEMORY_ACCESS(s8v, int8_t, s8)
DEFINE_MEMORY_ACCESS(u8v, uint8_t, u8)

#if defined(__AVX512BW__)
#include "tensorcore/kernels/vector_avx512.h"
#elif defined(__AVX2__)
#include "tensorcore/kernels/vector_avx2.h"
#elif defined(__aarch64__)
#include "tensorcore/kernels/vector_neon.h"
#endif

INLINED s32v splat_s32(int32_t number)
{
    return (s32v){0} + number;
}

INLINED u32v splat_u32(uint32_t number)
{
    return (u32v){0} + number;
}

/* Broadcast a byte to every lane, from a word that repeats it four times. */
INLINED u8v splat_byte_of(int32_t word)
{
    return (u8v)splat_s32(word);
}

INLINED s8v splat_s8(int8_t number)
{
    return (s8v){0} + number;
}

#endif
