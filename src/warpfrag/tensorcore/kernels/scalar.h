/* Scalar operations of the rules: reading and writing codes, exponents, shifts, and the rounding at the end of a step.

   They compute as `tensorcore/reference.py` does, with machine integers and float64: no term reaches 2**63. */

#ifndef WARPFRAG_SCALAR_H
#define WARPFRAG_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tensorcore/native/entry.h"

enum accumulator_format { IS_F32, IS_F16 };
enum step_rounding { TO_F32_RZ, TO_F16_RN, TO_E8M13_RZ };

#define NAN_SCALE (1 << 20)           /* the exponent that represents a NaN scale factor */
#define ANY_NAN_SCALE (NAN_SCALE / 2) /* the sum of two exponents is at least this if one of them represents NaN */
#define NAN_F32 0x7FFFFFFFu
#define NAN_F16 0x7FFFu
#define OVERFLOW_F32 0x1p128
#define OVERFLOW_F16 65536.0 /* the value that 65520 and above round to on the unbounded grid */
#define SMALLEST_NORMAL_F32 0x1p-126

INLINED int32_t bits_of_f32(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINED float f32_of_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINED int64_t bits_of_f64(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINED double f64_of_bits(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINED int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

INLINED int64_t larger(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

/* Return the exponent of a finite nonzero float64, at least `minimum`. */
INLINED int64_t exponent_of(double value, int64_t minimum)
{
    return larger(((bits_of_f64(value) >> 52) & 2047) - 1023, minimum);
}

/* Return 2**exponent, for exponents in the normal range of float64; undefined for others. */
INLINED double power_of_two(int64_t exponent)
{
    return f64_of_bits((int64_t)((uint64_t)(exponent + 1023) << 52));
}

/* Return product * 2**shift, truncated towards zero. */
INLINED int64_t shifted(int64_t product, int64_t shift)
{
    if (shift >= 0)
        return product ? (int64_t)((uint64_t)product << smaller(shift, 62)) : 0;
    int64_t magnitude = (product < 0 ? -product : product) >> smaller(-shift, 63);
    return product < 0 ? -magnitude : magnitude;
}

/* Return the nearest f16 value, ties to even, as float64; infinity from 65520 on; zeros keep their sign. Adding and
   subtracting 1.5 * 2**52 ulps of the target makes float64 do the rounding. */
INLINED double round_f16(double exact)
{
    if (!(fabs(exact) < INFINITY))
        return exact;
    int64_t exponent = larger(((bits_of_f64(exact) >> 52) & 2047) - 1023, -14);
    double shift = f64_of_bits((exponent + 42 + 1023) << 52 | (int64_t)1 << 51);
    double rounded = (exact + shift) - shift;
    if (fabs(rounded) >= OVERFLOW_F16)
        return rounded > 0 ? INFINITY : -INFINITY;
    if (rounded == 0.0)
        return bits_of_f64(exact) < 0 ? -0.0 : 0.0;
    return rounded;
}

/* Truncate to `fraction` bits after the leading one, or to the subnormal grid; 2**128 becomes infinity. */
INLINED double truncate_f32(double exact, int fraction)
{
    double kept;
    if (fabs(exact) < SMALLEST_NORMAL_F32) {
        double grid = power_of_two(126 + fraction);
        kept = (double)(int64_t)(exact * grid) / grid;
    } else {
        kept = f64_of_bits(bits_of_f64(exact) & -((int64_t)1 << (52 - fraction)));
    }
    if (fabs(kept) >= OVERFLOW_F32)
        return kept > 0 ? INFINITY : -INFINITY;
    return kept + 0.0;
}

/* Apply the rounding at the end of a step. */
INLINED double round_step(double exact, int rounding)
{
    if (rounding == TO_F16_RN)
        return round_f16(exact) + 0.0;
    return truncate_f32(exact, rounding == TO_E8M13_RZ ? 13 : 23);
}

/* Return the value of an f32 or f16 code as float32, which holds both exactly. */
INLINED float read_accumulator(uint32_t code, int format)
{
    if (format != IS_F16)
        return f32_of_bits((int32_t)code);
    int32_t sign = (int32_t)((code >> 15) << 31), magnitude = (int32_t)(code & 0x7FFF);
    if (magnitude >= 0x7C00)
        return f32_of_bits(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
    if (magnitude < 0x400)
        return f32_of_bits(sign | bits_of_f32((float)magnitude * 0x1p-24f));
    return f32_of_bits(sign | ((magnitude << 13) + (112 << 23)));
}

/* Return the f32 or f16 code of a value, rounded to nearest if f16 cannot hold it; NaNs become canonical. */
INLINED uint32_t write_accumulator(float value, int format)
{
    if (isnan(value))
        return format == IS_F16 ? NAN_F16 : NAN_F32;
    if (format != IS_F16)
        return (uint32_t)bits_of_f32(value);
    int32_t bits = bits_of_f32((float)round_f16(value));
    uint32_t sign = (uint32_t)(bits >> 16) & 0x8000;
    int32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude >= 0x7F800000)
        return sign | 0x7C00;
    if (magnitude < 113 << 23)
        return sign | (uint32_t)(f32_of_bits(magnitude) * 0x1p24f);
    return sign | (uint32_t)(magnitude - (112 << 23)) >> 13;
}

#endif
