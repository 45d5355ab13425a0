/* Steps that truncate no product, in rules that add C last: they are plain multiply-adds.

   A step drops the bits of products, and of the partial sum, below its grid. 8-bit elements have few bits: every
   product of two e4m3 is a multiple of 2**-18, which is called a *unit* here (`unit_exponent`). If no exponent in a
   step is more than `fraction_bits` above the unit, its grid is at most a unit, and it drops nothing. Then exponents
   and signs are not needed: sums are exact, and are truncated once, to f32.

   This holds for a block if every sum of one step is below 2**(fraction_bits + 1) units, which also bounds the
   exponents of its products. The sum of a step is at most the sum of the magnitudes of a group of A times the largest
   magnitude of B: `is_exact`.

   Sums start at 1.5 * 2**52 units, as those in `strip.h` start at that many grids, but they are rounded to nearest.
   This removes two errors of the prepared B, neither of which changes a product by half a unit: elements are too large
   by a factor of 1 + 2**-30, and 0 is stored as 2**-500. So nothing depends on the signs of products, and the rounding
   mode is the one that adding C needs. */

#ifndef WARPFRAG_EXACT_STEPS_H
#define WARPFRAG_EXACT_STEPS_H

#include "tensorcore/kernels/sparse_steps.h"

INLINED bool may_be_exact(const fused_rule *rule)
{
    return rule->adds_c_last && rule->d_format == IS_F32 && rule->round_to == TO_F32_RZ;
}

/* Return the largest sum of the magnitudes of a group, in some rows of A. */
INLINED double largest_sum(const double *values, int64_t groups, int64_t products)
{
    double largest = 0.0;
    for (int64_t group = 0; group < groups; group++) {
        double sum = 0.0;
        for (int64_t k = 0; k < products; k++)
            sum += fabs(values[group * products + k]);
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* Return true if no step truncates a product, given the largest sum of a group of A and the largest exponent of B. */
INLINED bool is_exact(const fused_rule *rule, double sum_a, int32_t exponent_b)
{
    double limit = power_of_two(rule->fraction_bits + 1 + rule->unit_exponent);
    return may_be_exact(rule) && sum_a * power_of_two(exponent_b + 1) <= limit;
}

/* Add the sum of the steps to C, rounded to f32. The result is rounded to float64 first, but for a sum of two f32 this
   does not change the f32. */
INLINED void finish_exact(double *c, f64v sum0, f64v sum1)
{
    f32v total = f32_of_f64(load_f64(c) + sum0, load_f64(c + F64_LANES) + sum1);
    store_f64(c, first_f64_of_f32(total));
    store_f64(c + F64_LANES, second_f64_of_f32(total));
}

/* Run the steps of one instruction for a strip. */
INLINED void run_exact_instruction(const strip_step *strip, int64_t steps, int64_t products, f64v start, int64_t kept)
{
    for (int64_t j = 0; j < strip->width; j += COLUMNS) {
        const double *a = strip->a_values, *line = strip->b_values + j;
        strip_sums sums = {0};
        for (int64_t step = 0; step < steps; step++, a += STRIP * products, line += products * BLOCK) {
            UNROLLED
            for (int row = 0; row < STRIP; row++)
                UNROLLED
                for (int v = 0; v < F64_VECTORS; v++)
                    sums.of_row[row][v] += start;
            add_lines(&sums, a, products, line, BLOCK, products);
            UNROLLED
            for (int row = 0; row < STRIP; row++)
                UNROLLED
                for (int v = 0; v < F64_VECTORS; v++)
                    sums.of_row[row][v] = truncate_sum(sums.of_row[row][v] - start, kept);
        }
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            UNROLLED
            for (int v = 0; v < F64_VECTORS; v += 2)
                finish_exact(
                    strip->partials + row * BLOCK + j + v * F64_LANES, sums.of_row[row][v], sums.of_row[row][v + 1]);
    }
}

/* The same for a sparse A. */
INLINED void run_exact_instruction_sparse(const strip_step *strip, int64_t steps, f64v start, int64_t kept)
{
    for (int first = 0; first < STRIP; first += SPARSE_ROWS)
        for (int64_t j = 0; j < strip->width; j += SPARSE_COLUMNS) {
            sparse_rows rows = sparse_rows_of(strip->a_values, strip->a_lines, first, strip->products);
            sparse_sums sums = {0};
            for (int64_t step = 0; step < steps; step++) {
                UNROLLED
                for (int row = 0; row < SPARSE_ROWS; row++)
                    UNROLLED
                    for (int v = 0; v < SPARSE_VECTORS; v++)
                        sums.of_row[row][v] += start;
                add_lines_sparse(&sums, rows.a, rows.lines, strip->b_values + j, strip->products);
                UNROLLED
                for (int row = 0; row < SPARSE_ROWS; row++) {
                    UNROLLED
                    for (int v = 0; v < SPARSE_VECTORS; v++)
                        sums.of_row[row][v] = truncate_sum(sums.of_row[row][v] - start, kept);
                    rows.a[row] += STRIP * strip->products;
                    rows.lines[row] += STRIP * strip->products;
                }
            }
            UNROLLED
            for (int row = 0; row < SPARSE_ROWS; row++)
                UNROLLED
                for (int v = 0; v < SPARSE_VECTORS; v += 2)
                    finish_exact(
                        strip->partials + (first + row) * BLOCK + j + v * F64_LANES, sums.of_row[row][v],
                        sums.of_row[row][v + 1]);
        }
}

#endif
