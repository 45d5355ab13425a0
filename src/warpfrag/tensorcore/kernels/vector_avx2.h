/* Vectors of 256 bits: AVX2 and FMA. */

#include <immintrin.h>

#define F64_VECTORS 2 /* number of vectors per row, so that the sums of four rows fit in registers */

INLINED f64v splat_f64(double number)
{
    return _mm256_set1_pd(number);
}

INLINED f64v multiply_add(f64v x, f64v y, f64v z)
{
    return _mm256_fmadd_pd(x, y, z);
}

INLINED s8v max_s8(s8v x, s8v y)
{
    return (s8v)_mm256_max_epi8((__m256i)x, (__m256i)y);
}

INLINED s32v max_s32(s32v x, s32v y)
{
    return (s32v)_mm256_max_epi32((__m256i)x, (__m256i)y);
}

INLINED u32v max_u32(u32v x, u32v y)
{
    return (u32v)_mm256_max_epu32((__m256i)x, (__m256i)y);
}

/* Return the number of ones in each byte, with a table for 4 bits. */
INLINED u8v popcount_u8(u8v x)
{
    const __m256i ones = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i four_bits = _mm256_set1_epi8(15);
    __m256i low = _mm256_and_si256((__m256i)x, four_bits);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16((__m256i)x, 4), four_bits);
    return (u8v)_mm256_add_epi8(_mm256_shuffle_epi8(ones, low), _mm256_shuffle_epi8(ones, high));
}

INLINED u32v popcount_u32(u32v x)
{
    __m256i pairs = _mm256_maddubs_epi16((__m256i)popcount_u8((u8v)x), _mm256_set1_epi8(1));
    return (u32v)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

INLINED int any_bit(u8v x)
{
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
}

/* Widen F32_LANES bytes to words. */
INLINED u32v load_u8_as_u32(const uint8_t *from)
{
    return (u32v)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
}

INLINED s32v load_s8_as_s32(const int8_t *from)
{
    return (s32v)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
}

/* Combine lower and upper words to float64: the first half of the lanes, and the second. */
INLINED f64v first_f64_of_words(u32v lower, u32v upper)
{
    __m256i low = _mm256_unpacklo_epi32((__m256i)lower, (__m256i)upper);
    __m256i high = _mm256_unpackhi_epi32((__m256i)lower, (__m256i)upper);
    return (f64v)_mm256_permute2x128_si256(low, high, 0x20);
}

INLINED f64v second_f64_of_words(u32v lower, u32v upper)
{
    __m256i low = _mm256_unpacklo_epi32((__m256i)lower, (__m256i)upper);
    __m256i high = _mm256_unpackhi_epi32((__m256i)lower, (__m256i)upper);
    return (f64v)_mm256_permute2x128_si256(low, high, 0x31);
}

INLINED u32v lower_words(f64v first, f64v second)
{
    __m256 mixed = _mm256_shuffle_ps((__m256)first, (__m256)second, 0x88);
    return (u32v)_mm256_permute4x64_pd((__m256d)mixed, 0xD8);
}

INLINED u32v upper_words(f64v first, f64v second)
{
    __m256 mixed = _mm256_shuffle_ps((__m256)first, (__m256)second, 0xDD);
    return (u32v)_mm256_permute4x64_pd((__m256d)mixed, 0xD8);
}

INLINED f64v first_f64_of_f32(f32v x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}

INLINED f64v second_f64_of_f32(f32v x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}

/* Convert two float64 vectors to float32, in the current rounding mode. */
INLINED f32v f32_of_f64(f64v first, f64v second)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(second), _mm256_cvtpd_ps(first));
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
    return (s32v)_mm256_cvttps_epi32(x * (float)(1 << fraction_bits));
}

/* Return x / 2**fraction_bits, rounded in the current rounding mode. */
INLINED f32v f32_of_s32_grids(s32v x, int fraction_bits)
{
    return _mm256_cvtepi32_ps((__m256i)x) * (1.0f / (float)(1 << fraction_bits));
}
