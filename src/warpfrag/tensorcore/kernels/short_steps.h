/* Steps of at most 16 products: like `strip.h`, but the work before and after the products uses half as many bits.

   In a short step the products are about half of the work. Two things reduce the rest:

   The whole sum is a 32-bit integer: the lower word of the float64 in which it is added, whether it is negative or not.
   (A negative sum borrows from the upper word, which is far from the limits of its binade.) So C may remain an f32. It
   is truncated to a whole number of grids, and added to the number of negative products: that is the lower word of the
   initial float64. At the end, the lower word is converted to an f32; with the rounding mode towards zero, this
   truncates it.

   The data that depends only on A and B is two bytes for each output: the largest exponent of its products, biased like
   that of an f32 (a sum of bytes, which may wrap around on the way), and the number of negative products.

   A product is at most 2**27 grids and C 2**26, so eight products and C are less than 2**31. Sixteen might not be,
   if all of them were that large. But a product is also less than 2**26 grids times the significand of A's element,
   so it is enough that the significands of each group of A add up to at most MAX_SIGNIFICAND_SUM: 31, when almost 32 is
   possible. Rows with a larger sum (`a_is_heavy`) run with long steps, and so do blocks of outputs for which some
   common exponent may be out of range. */

#ifndef WARPFRAG_SHORT_STEPS_H
#define WARPFRAG_SHORT_STEPS_H

#include "tensorcore/kernels/sparse_steps.h"

#define MAX_SIGN_BYTES 4 /* sign bytes for 16 products of a sparse A, which multiply 32 rows of B */
#define F32_BIAS 127
#define F32_PLACE 23 /* position of the exponent in an f32 */
#define F32_TO_UPPER (F32_PLACE - TO_UPPER) /* additional right shift of the exponent in the upper word of a float64 */

/* The next step of a strip, in bytes. */
typedef struct {
    const double *a_values;
    const int32_t *a_relatives, *a_bytes;
    const uint32_t *a_lines;
    const double *b_values; /* the line of the first product; for a sparse A, the first line of the block */
    const int8_t *b_relatives;
    const uint8_t *b_bytes;
    float *partials;
    int64_t width;
} short_step;

/* Compute the exponents and the counts of negative products, for each output of a strip. */
INLINED void compute_exponents_and_signs(
    strip_scratch *scratch, const exponent_sums *sums, const short_step *at, int sign_bytes)
{
    UNROLLED
    for (int row = 0; row < STRIP; row++) {
        const int32_t *a = at->a_bytes + row * (1 + 2 * sign_bytes);
        u8v largest_a = splat_byte_of(a[0]), negative_a[MAX_SIGN_BYTES], nonzero_a[MAX_SIGN_BYTES];
        UNROLLED
        for (int byte = 0; byte < sign_bytes; byte++) {
            negative_a[byte] = splat_byte_of(a[1 + 2 * byte]);
            nonzero_a[byte] = splat_byte_of(a[2 + 2 * byte]);
        }
        UNROLLED
        for (int v = 0; v < LINE_VECTORS; v++) {
            const uint8_t *b = at->b_bytes + v * BYTE_LANES;
            u8v negative_count = popcount_u8((load_u8(b + BLOCK) ^ negative_a[0]) & nonzero_a[0]);
            UNROLLED
            for (int byte = 1; byte < sign_bytes; byte++)
                negative_count += popcount_u8((load_u8(b + (1 + byte) * BLOCK) ^ negative_a[byte]) & nonzero_a[byte]);
            u8v exponents = (u8v)sums->of_row[row][v] + (load_u8(b) + largest_a);
            store_u8(scratch->exponents + row * BLOCK + v * BYTE_LANES, exponents);
            store_u8(scratch->negative_counts + row * BLOCK + v * BYTE_LANES, negative_count);
        }
    }
}

/* Compute the initial sums of COLUMNS columns of a row, with C added, and their common exponents, as powers of two, in
   `common`. */
INLINED void start_word_sums(
    f64v sums[F64_VECTORS], u32v common[PAIRS], const strip_scratch *scratch, const float *partials, int64_t at,
    int fraction_bits)
{
    f32v c[PAIRS];
    u32v lower[PAIRS];
    UNROLLED
    for (int pair = 0; pair < PAIRS; pair++)
        c[pair] = load_f32(partials + at + pair * F32_LANES);
    larger_exponents(common, c, scratch->exponents + at);
    UNROLLED
    for (int pair = 0; pair < PAIRS; pair++) {
        f32v per_power = (f32v)(splat_u32(2 * F32_BIAS << F32_PLACE) - common[pair]);
        lower[pair] = (u32v)s32_of_f32_grids(c[pair] * per_power, fraction_bits);
    }
    add_bytes(lower, scratch->negative_counts + at);
    const u32v to_start = splat_u32(((BIAS - F32_BIAS + 52 - (uint32_t)fraction_bits) << TO_UPPER) + HALF);
    UNROLLED
    for (int pair = 0; pair < PAIRS; pair++) {
        u32v upper = (common[pair] >> F32_TO_UPPER) + to_start;
        sums[2 * pair] = first_f64_of_words(lower[pair], upper);
        sums[2 * pair + 1] = second_f64_of_words(lower[pair], upper);
    }
}

/* Store the lower words of sums as f32, truncated. */
INLINED void finish_word_sums(float *partials, const f64v sums[F64_VECTORS], const u32v common[PAIRS], int fraction_bits)
{
    UNROLLED
    for (int pair = 0; pair < PAIRS; pair++) {
        s32v grids = (s32v)lower_words(sums[2 * pair], sums[2 * pair + 1]);
        store_f32(partials + pair * F32_LANES, f32_of_s32_grids(grids, fraction_bits) * (f32v)common[pair]);
    }
}

/* Compute the sums of a step, truncated to f32. */
INLINED void add_short_products(const strip_scratch *scratch, const short_step *at, int64_t products, int fraction_bits)
{
    for (int64_t j = 0; j < at->width; j += COLUMNS) {
        strip_sums sums;
        u32v common[STRIP][PAIRS];
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            start_word_sums(sums.of_row[row], common[row], scratch, at->partials, row * BLOCK + j, fraction_bits);
        add_lines(&sums, at->a_values, products, at->b_values + j, BLOCK, products);
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            finish_word_sums(at->partials + row * BLOCK + j, sums.of_row[row], common[row], fraction_bits);
    }
}

/* The same for a sparse A. */
INLINED void add_short_products_sparse(
    const strip_scratch *scratch, const short_step *at, int64_t products, int fraction_bits)
{
    for (int first = 0; first < STRIP; first += SPARSE_ROWS) {
        sparse_rows rows = sparse_rows_of(at->a_values, at->a_lines, first, products);
        for (int64_t j = 0; j < at->width; j += SPARSE_COLUMNS) {
            sparse_sums sums;
            u32v common[SPARSE_ROWS][SPARSE_VECTORS / F64_VECTORS][PAIRS];
            UNROLLED
            for (int row = 0; row < SPARSE_ROWS; row++)
                UNROLLED
                for (int v = 0; v < SPARSE_VECTORS; v += F64_VECTORS) {
                    int64_t output = (first + row) * BLOCK + j + v * F64_LANES;
                    u32v *common_of = common[row][v / F64_VECTORS];
                    start_word_sums(sums.of_row[row] + v, common_of, scratch, at->partials, output, fraction_bits);
                }
            add_lines_sparse(&sums, rows.a, rows.lines, at->b_values + j, products);
            UNROLLED
            for (int row = 0; row < SPARSE_ROWS; row++)
                UNROLLED
                for (int v = 0; v < SPARSE_VECTORS; v += F64_VECTORS) {
                    float *partials = at->partials + (first + row) * BLOCK + j + v * F64_LANES;
                    finish_word_sums(partials, sums.of_row[row] + v, common[row][v / F64_VECTORS], fraction_bits);
                }
        }
    }
}

INLINED void f64_from_f32(double *to, const float *from, int64_t count)
{
    for (int64_t at = 0; at < count; at++)
        to[at] = from[at];
}

/* float32 represents all of these numbers exactly. */
INLINED void f32_from_f64(float *to, const double *from, int64_t count)
{
    for (int64_t at = 0; at < count; at++)
        to[at] = (float)from[at];
}

/* Run one step; return true if it has an exceptional row, whose partial sums before the step are then saved. The
   number of products, the sparsity of A, the sign bytes and the fraction bits are constants where this is inlined. */
INLINED bool run_short_step(
    strip_scratch *scratch, const short_step *at, int64_t products, bool is_sparse, int sign_bytes, int fraction_bits)
{
    exponent_sums sums = is_sparse
        ? max_exponent_sums_sparse(at->a_relatives, at->a_lines, at->b_relatives, products)
        : max_exponent_sums(at->a_relatives, at->b_relatives, products);
    bool any_exceptional = any_unreliable(&sums);
    if (any_exceptional) {
        store_max_exponents(scratch, &sums);
        f64_from_f32(scratch->saved, at->partials, STRIP * BLOCK);
    }
    compute_exponents_and_signs(scratch, &sums, at, sign_bytes);
    if (is_sparse)
        add_short_products_sparse(scratch, at, products, fraction_bits);
    else
        add_short_products(scratch, at, products, fraction_bits);
    return any_exceptional;
}

#endif
