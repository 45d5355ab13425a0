/* Vectors of 512 bits: AVX-512 F, BW, DQ and VL. */

#include <immintrin.h>

#define F64_VECTORS 4 /* number of vectors per row, so that the sums of four rows fit in registers */

INLINED f64v splat_f64(double number)
{
    return _mm512_set1_pd(number);
}

INLINED f64v multiply_add(f64v x, f64v y, f64v z)
{
    return _mm512_fmadd_pd(x, y, z);
}

INLINED s8v max_s8(s8v x, s8v y)
{
    return (s8v)_mm512_max_epi8((__m512i)x, (__m512i)y);
}

INLINED s32v max_s32(s32v x, s32v y)
{
    return (s32v)_mm512_max_epi32((__m512i)x, (__m512i)y);
}

INLINED u32v max_u32(u32v x, u32v y)
{
    return (u32v)_mm512_max_epu32((__m512i)x, (__m512i)y);
}

/* Return the number of ones in each byte, with a table for 4 bits. */
INLINED u8v popcount_u8(u8v x)
{
    const __m512i ones = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i four_bits = _mm512_set1_epi8(15);
    __m512i low = _mm512_and_si512((__m512i)x, four_bits);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16((__m512i)x, 4), four_bits);
    return (u8v)_mm512_add_epi8(_mm512_shuffle_epi8(ones, low), _mm512_shuffle_epi8(ones, high));
}

INLINED u32v popcount_u32(u32v x)
{
    __m512i pairs = _mm512_maddubs_epi16((__m512i)popcount_u8((u8v)x), _mm512_set1_epi8(1));
    return (u32v)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

INLINED int any_bit(u8v x)
{
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
}

/* Widen F32_LANES bytes to words. */
INLINED u32v load_u8_as_u32(const uint8_t *from)
{
    return (u32v)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
}

INLINED s32v load_s8_as_s32(const int8_t *from)
{
    return (s32v)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
}

/* Combine lower and upper words to float64: the first half of the lanes, and the second. */
INLINED f64v first_f64_of_words(u32v lower, u32v upper)
{
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return (f64v)_mm512_permutex2var_epi32((__m512i)lower, order, (__m512i)upper);
}

INLINED f64v second_f64_of_words(u32v lower, u32v upper)
{
    const __m512i order = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return (f64v)_mm512_permutex2var_epi32((__m512i)lower, order, (__m512i)upper);
}

INLINED u32v lower_words(f64v first, f64v second)
{
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return (u32v)_mm512_permutex2var_epi32((__m512i)first, order, (__m512i)second);
}

INLINED u32v upper_words(f64v first, f64v second)
{
    const __m512i order = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return (u32v)_mm512_permutex2var_epi32((__m512i)first, order, (__m512i)second);
}

INLINED f64v first_f64_of_f32(f32v x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}

INLINED f64v second_f64_of_f32(f32v x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}

/* Convert two float64 vectors to float32, in the current rounding mode. */
INLINED f32v f32_of_f64(f64v first, f64v second)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(second), 1);
}

/* Return the larger of each lane's exponent and the one in `bytes`, biased and positioned as in an f32; other bits
   are 0. */
INLINED void larger_exponents(u32v larger[F64_VECTORS / 2], const f32v x[F64_VECTORS / 2], const uint8_t *bytes)
{
    UNROLLED
    for (int pair = 0; pair < F64_VECTORS / 2; pair++) {
        u32v exponents = load_u8_as_u32(bytes + pair * F32_LANES) << 23;
        larger[pair] = max_u32(exponents, (u32v)x[pair] & 0x7F800000u);
    }
}

INLINED void add_bytes(u32v sums[F64_VECTORS / 2], const uint8_t *bytes)
{
    UNROLLED
    for (int pair = 0; pair < F64_VECTORS / 2; pair++)
        sums[pair] += load_u8_as_u32(bytes + pair * F32_LANES);
}

/* Return x * 2**fraction_bits, truncated; unspecified if s32 cannot hold it. */
INLINED s32v s32_of_f32_grids(f32v x, int fraction_bits)
{
    return (s32v)_mm512_cvttps_epi32(x * (float)(1 << fraction_bits));
}

/* Return x / 2**fraction_bits, rounded in the current rounding mode. */
INLINED f32v f32_of_s32_grids(s32v x, int fraction_bits)
{
    return _mm512_cvtepi32_ps((__m512i)x) * (1.0f / (float)(1 << fraction_bits));
}
