/* Exceptional outputs of a step, which the vector loops do not cover; they are computed from codes by the scalar rule.

   Their step has an infinity or a NaN, products more than 62 binades below the maximum of their groups, or a common
   exponent near the limits of f32. */

#ifndef WARPFRAG_EXCEPTIONAL_H
#define WARPFRAG_EXCEPTIONAL_H

#include "tensorcore/kernels/strip.h"

enum number_class { FINITE, INFINITE, NOT_A_NUMBER };

typedef struct {
    enum number_class class;
    int64_t exponent;
    int64_t significand; /* signed, in units of 2**-fraction; 1 or -1 for an infinity or a NaN */
} unpacked_number;

INLINED unpacked_number unpack(int64_t code, const element_encoding *encoding)
{
    bool is_negative = code >> encoding->sign_place & 1;
    int64_t magnitude = (code & (((int64_t)1 << encoding->sign_place) - 1)) >> encoding->unused;
    if (magnitude >= encoding->special_from) {
        enum number_class class = magnitude == encoding->infinity ? INFINITE : NOT_A_NUMBER;
        return (unpacked_number){class, 0, is_negative ? -1 : 1};
    }
    int64_t field = magnitude >> encoding->fraction, hidden = (int64_t)1 << encoding->fraction;
    int64_t significand = (magnitude & (hidden - 1)) | (field > 0 ? hidden : 0);
    return (unpacked_number){FINITE, larger(field, 1) - encoding->bias, is_negative ? -significand : significand};
}

/* The terms of one output in one step: elements `places` of A's row, elements `rows` of B's column, and a scale. */
typedef struct {
    const uint32_t *a, *b;
    int64_t pitch; /* distance from one element of B's column to the next */
    const int32_t *places, *rows;
    int64_t scale;
} dot_terms;

/* The largest product exponent, at least `zero_exponent`, and flags for special values. */
typedef struct {
    int64_t common;
    bool nan, plus_infinity, minus_infinity;
} product_range;

static product_range range_of_products(const dot_terms *dot, const fused_rule *rule)
{
    product_range range = {.common = rule->zero_exponent};
    for (int64_t k = 0; k < rule->products; k++) {
        unpacked_number a = unpack(dot->a[dot->places[k]], &rule->a);
        unpacked_number b = unpack(dot->b[dot->rows[k] * dot->pitch], &rule->b);
        bool either_zero = a.significand == 0 || b.significand == 0;
        if (a.class == FINITE && b.class == FINITE) {
            if (!either_zero)
                range.common = larger(range.common, a.exponent + b.exponent + dot->scale);
        } else if (a.class == NOT_A_NUMBER || b.class == NOT_A_NUMBER || either_zero)
            range.nan = true;
        else if ((a.significand < 0) == (b.significand < 0))
            range.plus_infinity = true;
        else
            range.minus_infinity = true;
    }
    return range;
}

/* One truncated fused dot-product-add. */
static double fused_step(double accumulator, const dot_terms *dot, const fused_rule *rule)
{
    product_range range = range_of_products(dot, rule);
    bool plus = range.plus_infinity || accumulator == INFINITY, minus = range.minus_infinity || accumulator == -INFINITY;
    if (range.nan || isnan(accumulator) || dot->scale >= ANY_NAN_SCALE || (plus && minus))
        return NAN;
    if (plus || minus)
        return plus ? INFINITY : -INFINITY;
    int64_t common = range.common, keep = rule->fraction_bits, point = rule->a.fraction + rule->b.fraction;
    if (accumulator != 0.0)
        common = larger(common, exponent_of(accumulator, rule->c_emin));
    int64_t total = (int64_t)(accumulator * power_of_two(keep - common));
    for (int64_t k = 0; k < rule->products; k++) {
        unpacked_number a = unpack(dot->a[dot->places[k]], &rule->a);
        unpacked_number b = unpack(dot->b[dot->rows[k] * dot->pitch], &rule->b);
        int64_t shift = a.exponent + b.exponent + dot->scale - common + keep - point;
        total += shifted(a.significand * b.significand, shift);
    }
    return round_step((double)total * power_of_two(common - keep), (int)rule->round_to);
}

INLINED int32_t biased_exponent(double value)
{
    return (int32_t)(bits_of_f64(value) >> 52 & 2047);
}

/* Return C after a step that keeps it: truncated to the kept bits, with -0 changed to +0. */
INLINED double truncate_c(double value, int64_t fraction_bits)
{
    int32_t mask = -(1 << larger(23 - fraction_bits, 0));
    float kept = f32_of_bits(bits_of_f32((float)value) & mask) + 0.0f;
    return isnan(value) ? value : kept;
}

/* Return true if a step keeps C: its products are all 0, or C is infinite or NaN and no product is. `pair` is the
   sum of the group maxima that `max_relative` is relative to. */
INLINED bool keeps_c(double c, int32_t max_relative, int32_t pair)
{
    return (pair < MIN_SPECIAL_SUM) & ((max_relative < 0) | (biased_exponent(c) == 2047));
}

/* Return true if the vector loops do not cover an output: its step does not keep C, and an exponent is out of range. */
INLINED bool is_exceptional(double c, int32_t max_relative, int32_t pair)
{
    int32_t exponent_c = biased_exponent(c) - BIAS, exponent = pair + max_relative - MAX_RELATIVE_SUM;
    int32_t reach = exponent > exponent_c ? exponent : exponent_c;
    bool is_out = (pair >= MIN_SPECIAL_SUM) | (max_relative <= MAX_UNRELIABLE_SUM) | (reach < MIN_COMMON_EXPONENT)
        | (reach > MAX_COMMON_EXPONENT);
    return is_out & !keeps_c(c, max_relative, pair);
}

/* Repeat the step with the scalar rule for the outputs of one strip row that the vector loops do not cover. */
static void redo_exceptional_row(
    const strip_scratch *scratch, const source_tile *tile, const strip_step *strip, int row, int64_t first_column)
{
    const fused_rule *rule = tile->rule;
    const double *saved = scratch->saved + row * BLOCK;
    const int8_t *max_relative = scratch->max_exponents + row * BLOCK;
    double *partials = strip->partials + row * BLOCK;
    int32_t largest_a = strip->a_groups[row * strip->a_words];
    int64_t width = smaller(BLOCK, tile->width - first_column), index = strip->row + row;
    bool any = false;
    for (int64_t j = 0; j < width; j++) { /* most exceptional rows contain only outputs that keep C */
        int32_t pair = largest_a + strip->b_groups[j];
        partials[j] = keeps_c(saved[j], max_relative[j], pair) ? truncate_c(saved[j], rule->fraction_bits) : partials[j];
        any |= is_exceptional(saved[j], max_relative[j], pair);
    }
    if (!any)
        return;
    int64_t first = strip->step * rule->products, instruction = strip->step / rule->steps;
    int64_t instructions = tile->stored / rule->products / rule->steps;
    const int32_t *places = tile->order + first;
    const int32_t *rows = tile->met_rows ? tile->met_rows + index * tile->stored + first : places;
    for (int64_t j = 0; j < width; j++) {
        if (!is_exceptional(saved[j], max_relative[j], largest_a + strip->b_groups[j]))
            continue;
        int64_t column = first_column + j, scale = 0;
        if (tile->scale_a)
            scale = (int64_t)tile->scale_a[index * instructions + instruction]
                + tile->scale_b[instruction * tile->width + column];
        dot_terms dot = {tile->a + index * tile->stored, tile->b + column, tile->width, places, rows, scale};
        partials[j] = fused_step(saved[j], &dot, rule);
    }
}

/* Repeat the step for the exceptional rows of a strip, up to the last row of A. The rounding mode is to nearest. */
NOT_INLINED void redo_exceptional_rows(
    const strip_scratch *scratch, const source_tile *tile, const strip_step *strip, int64_t last_row,
    int64_t first_column)
{
    for (int row = 0; row < STRIP && strip->row + row <= last_row; row++)
        if (scratch->exceptional[row])
            redo_exceptional_row(scratch, tile, strip, row, first_column);
}

#endif
