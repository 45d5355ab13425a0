/* Vectors of 128 bits: aarch64. */

#include <arm_neon.h>

#define F64_VECTORS 4 /* number of vectors per row, so that the sums of four rows fit in registers */

INLINED f64v splat_f64(double number)
{
    return (f64v)vdupq_n_f64(number);
}

INLINED f64v multiply_add(f64v x, f64v y, f64v z)
{
    return (f64v)vfmaq_f64((float64x2_t)z, (float64x2_t)x, (float64x2_t)y);
}

INLINED s8v max_s8(s8v x, s8v y)
{
    return (s8v)vmaxq_s8((int8x16_t)x, (int8x16_t)y);
}

INLINED s32v max_s32(s32v x, s32v y)
{
    return (s32v)vmaxq_s32((int32x4_t)x, (int32x4_t)y);
}

INLINED u32v max_u32(u32v x, u32v y)
{
    return (u32v)vmaxq_u32((uint32x4_t)x, (uint32x4_t)y);
}

INLINED u8v popcount_u8(u8v x)
{
    return (u8v)vcntq_u8((uint8x16_t)x);
}

INLINED u32v popcount_u32(u32v x)
{
    return (u32v)vpaddlq_u16(vpaddlq_u8(vcntq_u8((uint8x16_t)x)));
}

INLINED int any_bit(u8v x)
{
    return vmaxvq_u32((uint32x4_t)x) != 0;
}

/* Widen F32_LANES bytes to words. */
INLINED s32v load_s8_as_s32(const int8_t *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return (s32v)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word))));
}

/* Combine lower and upper words to float64: the first half of the lanes, and the second. */
INLINED f64v first_f64_of_words(u32v lower, u32v upper)
{
    return (f64v)vzip1q_u32((uint32x4_t)lower, (uint32x4_t)upper);
}

INLINED f64v second_f64_of_words(u32v lower, u32v upper)
{
    return (f64v)vzip2q_u32((uint32x4_t)lower, (uint32x4_t)upper);
}

INLINED u32v lower_words(f64v first, f64v second)
{
    return (u32v)vuzp1q_u32((uint32x4_t)first, (uint32x4_t)second);
}

INLINED u32v upper_words(f64v first, f64v second)
{
    return (u32v)vuzp2q_u32((uint32x4_t)first, (uint32x4_t)second);
}

INLINED f64v first_f64_of_f32(f32v x)
{
    return (f64v)vcvt_f64_f32(vget_low_f32((float32x4_t)x));
}

INLINED f64v second_f64_of_f32(f32v x)
{
    return (f64v)vcvt_high_f64_f32((float32x4_t)x);
}

/* Convert two float64 vectors to float32, in the current rounding mode. */
INLINED f32v f32_of_f64(f64v first, f64v second)
{
    return (f32v)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)first), (float64x2_t)second);
}

/* Return the larger of each lane's exponent and the one in `bytes`, biased and positioned as in an f32; other bits
   are 0. Exponents are in the upper halves of words, so that eight lanes fit in a vector. */
INLINED void larger_exponents(u32v larger[2], const f32v x[2], const uint8_t *bytes)
{
    uint16x8_t upper = vuzp2q_u16((uint16x8_t)x[0], (uint16x8_t)x[1]);
    uint16x8_t largest = vmaxq_u16(vandq_u16(upper, vdupq_n_u16(0x7F80)), vshll_n_u8(vld1_u8(bytes), 7));
    larger[0] = (u32v)vshll_n_u16(vget_low_u16(largest), 16);
    larger[1] = (u32v)vshll_high_n_u16(largest, 16);
}

INLINED void add_bytes(u32v sums[2], const uint8_t *bytes)
{
    uint16x8_t wide = vmovl_u8(vld1_u8(bytes));
    sums[0] = (u32v)vaddw_u16((uint32x4_t)sums[0], vget_low_u16(wide));
    sums[1] = (u32v)vaddw_high_u16((uint32x4_t)sums[1], wide);
}

/* Return x * 2**fraction_bits, where fraction_bits is 23 to 25, truncated; unspecified if s32 cannot hold it. */
INLINED s32v s32_of_f32_grids(f32v x, int fraction_bits)
{
    switch (fraction_bits) { /* the intrinsics take only literals */
    case 25: return (s32v)vcvtq_n_s32_f32((float32x4_t)x, 25);
    case 24: return (s32v)vcvtq_n_s32_f32((float32x4_t)x, 24);
    default: return (s32v)vcvtq_n_s32_f32((float32x4_t)x, 23);
    }
}

/* Return x / 2**fraction_bits, where fraction_bits is 23 to 25, rounded in the current rounding mode. */
INLINED f32v f32_of_s32_grids(s32v x, int fraction_bits)
{
    switch (fraction_bits) {
    case 25: return (f32v)vcvtq_n_f32_s32((int32x4_t)x, 25);
    case 24: return (f32v)vcvtq_n_f32_s32((int32x4_t)x, 24);
    default: return (f32v)vcvtq_n_f32_s32((int32x4_t)x, 23);
    }
}
