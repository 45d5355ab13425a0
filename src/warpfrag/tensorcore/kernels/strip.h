/* One step of the truncated fused dot-product-add, for a strip of rows of A and a block of columns of B.

   1. The largest exponent of the products: a maximum over int8 sums (`max_exponent_sums`).
   2. With C's exponent, the common grid, and a float64 whose last place is that grid; C is added to it (`start_sums`).
   3. Products are added to it, with the rounding mode towards zero (`add_lines`).
   4. The exact sum (`exact_sum`), rounded once: truncated with its last bits, or to the nearest f16 (`round_to_f16`).

   Why a float64 sum truncates each product to the grid: the sum starts at 1.5 * 2**52 grids and stays between 2**52
   and 2**53 grids, so it is a multiple of the grid, and adding a product rounds that product down to the grid. Rounding
   down truncates a positive product. A negative product ends up one grid too low, unless it is a multiple of the grid.
   B_BIAS removes this exception: it makes every element of B, and C, larger by a factor of 1 + 2**-30. A product has at
   most 22 bits and 2**27 grids (C: 24 and 2**26), so a multiple of the grid moves just beyond it, and any other product
   does not reach the next multiple. Every negative product is then one grid too low, and the sum starts higher by that
   number of grids: `start_sums` counts these products by their signs. A 0 of A has no sign; a 0 of B is replaced by a
   positive number so small (ZERO_STANDIN) that its products are counted like any other.

   An example, with grids of 1 (common exponent 25, 25 fraction bits). Products 5.75, -2.25 and -3, C = 4: truncated they
   are 5, -2 and -3, and the sum is 4. Two products are negative, so the float64 starts at 1.5 * 2**52 + 2. Let S be
   1.5 * 2**52; B was made larger by a factor of 1 + 2**-30, so the products are a little further from zero.

       S + 2                        the sum starts two grids higher
       + 4.0000000037  =  S + 6     C
       + 5.7500000054  =  S + 11    S + 11.75... is not a float64: rounded towards zero, which is down
       - 2.2500000021  =  S + 8     S + 8.74... down: one grid too low, like every negative product
       - 3.0000000028  =  S + 4     S + 4.99... down: also too low, because the product is no longer on the grid
       - S             =  4         exact: the two grids at the start make up for the two negative products

   A row is *exceptional* if this method does not cover one of its outputs; `exceptional.h` recomputes these. Step 1
   finds rows in which no int8 sum of an output is reliable. A common exponent out of range is searched for only if the
   largest exponents of the groups, or C, allow one: `find_out_of_range` takes as long as the rest of step 2.

   Outputs are float64 here, whatever the accumulator's format. In every array of a strip, consecutive rows are BLOCK
   elements apart. */

#ifndef WARPFRAG_STRIP_H
#define WARPFRAG_STRIP_H

#include "tensorcore/kernels/prepare.h"

#define MAX_RELATIVE_SUM (2 * RELATIVE_BIAS) /* the sum of two relative exponents that are the largest of their groups */
/* Sums up to this one may be too large, because one of the two relative exponents may have been raised to 0. */
#define MAX_UNRELIABLE_SUM (MAX_RELATIVE_SUM - RELATIVE_BIAS)
#define MIN_COMMON_EXPONENT (-100) /* from this one on, every sum is 0 or a normal f32 */
#define MAX_COMMON_EXPONENT 120    /* with this limit, 32 products and C are below 2**128 */
#define BIAS 1023                  /* bias of a float64 exponent */
#define EXPONENT_BITS ((int64_t)2047 << 52)
#define UPPER_EXPONENT (2047u << 20) /* the same in the upper word of a float64 */
#define UPPER_SIGN (1u << 31)
#define TO_UPPER 20    /* shift of an exponent to its position in the upper word */
#define HALF (1 << 19) /* in the upper word: one half of the leading bit */
#define ORIGIN ((uint32_t)(MIN_COMMON_EXPONENT + BIAS) << TO_UPPER)
#define FURTHEST ((uint32_t)(MAX_COMMON_EXPONENT - MIN_COMMON_EXPONENT) << TO_UPPER)
/* If the largest exponents of two groups add up to at least MIN_PAIR_EXPONENT, no common exponent is below
   MIN_COMMON_EXPONENT: a reliable sum is at most RELATIVE_BIAS - 1 below theirs. If they add up to at most
   MAX_PAIR_EXPONENT, even 2**37 products cannot raise a C that began below LARGE above MAX_COMMON_EXPONENT. */
#define MIN_PAIR_EXPONENT (MIN_COMMON_EXPONENT + RELATIVE_BIAS - 1)
#define MAX_PAIR_EXPONENT (MAX_COMMON_EXPONENT - 40)
#define LARGE 0x1p119

#define LINE_VECTORS (BLOCK / BYTE_LANES)
#define PAIRS (F64_VECTORS / 2) /* number of float64 vectors in COLUMNS */

/* The ways to start sums. FAST_START: one word has the signs of the products and of C, and no lower bound of exponents
   is reached. WORD_START: the same, but the word has only the signs of the products. GENERAL_START: every other case;
   only this one has branches. */
enum start_variant { FAST_START, WORD_START, GENERAL_START };

/* One step of a strip. Rows of A are `products` elements and `a_words` words apart. */
typedef struct {
    const double *a_values;
    const int32_t *a_relatives, *a_groups;
    const uint32_t *a_lines;
    const double *b_values; /* the line of the first product; for a sparse A, the first line of the block */
    const int8_t *b_relatives;
    const int32_t *b_groups;
    double *partials; /* C at first, then the result of each step; never -0 */
    int64_t products, sign_words, a_words;
    int64_t width; /* a multiple of COLUMNS */
    int64_t row, step;
} strip_step;

/* Memory for the outputs of some rows and a block of columns, and for one strip of them. */
typedef struct {
    double from_zero[STRIP * BLOCK]; /* partial sums of a strip, if C is added last or rows are recomputed */
    double saved[STRIP * BLOCK];     /* the partial sums of exceptional rows before the step */
    int8_t max_exponents[STRIP * BLOCK];
    uint8_t exponents[STRIP * BLOCK];       /* for a short step: the largest exponents, biased like those of an f32 */
    uint8_t negative_counts[STRIP * BLOCK]; /* and the numbers of negative products */
    uint8_t exceptional[STRIP];
    double *accumulators; /* C, then D */
    float *partials_f32;  /* the partial sums of short steps */
} strip_scratch;

/* The start that all sums share: exponents biased as in float64, at their position in its upper word. */
typedef struct {
    s32v min_c_exponent;      /* the smallest exponent with which a nonzero C is read */
    s32v min_common_exponent; /* the smallest common exponent */
    u32v to_start;            /* offset from a common exponent to the upper word of the sum's start */
    bool is_narrow;           /* true if one of the two bounds is reached */
} sum_start;

INLINED sum_start start_of(const fused_rule *rule)
{
    /* An f32 C keeps its own exponent. An f16 C has at least the exponent of the subnormals of the format that it is
       read as. */
    int64_t min_c = rule->c_format == IS_F16 ? rule->c_emin + BIAS : 0;
    sum_start start = {
        .min_c_exponent = splat_s32((int32_t)(min_c << TO_UPPER)),
        .min_common_exponent = splat_s32((int32_t)((rule->zero_exponent + BIAS) * (1 << TO_UPPER))),
        .to_start = splat_u32((uint32_t)((52 - rule->fraction_bits) << TO_UPPER) + HALF),
        .is_narrow = rule->is_narrow != 0,
    };
    return start;
}

INLINED s8v max_with_line(s8v largest, int32_t relative, s8v line)
{
    return max_s8(largest, (s8v)splat_byte_of(relative) + line);
}

typedef struct {
    s8v of_row[STRIP][LINE_VECTORS];
} exponent_sums;

INLINED exponent_sums lowest_sums(void)
{
    exponent_sums sums;
    UNROLLED
    for (int row = 0; row < STRIP; row++)
        UNROLLED
        for (int v = 0; v < LINE_VECTORS; v++)
            sums.of_row[row][v] = splat_s8(-128);
    return sums;
}

/* Compute the largest sum of relative exponents of each output. */
INLINED exponent_sums max_exponent_sums(const int32_t *a_relatives, const int8_t *line, int64_t products)
{
    exponent_sums sums = lowest_sums();
    for (int64_t k = 0; k < products; k++, line += BLOCK) {
        s8v lines[LINE_VECTORS];
        UNROLLED
        for (int v = 0; v < LINE_VECTORS; v++)
            lines[v] = load_s8(line + v * BYTE_LANES);
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            UNROLLED
            for (int v = 0; v < LINE_VECTORS; v++)
                sums.of_row[row][v] = max_with_line(sums.of_row[row][v], a_relatives[row * products + k], lines[v]);
    }
    return sums;
}

/* The same for a sparse A, each of whose elements multiplies its own line of B. */
INLINED exponent_sums max_exponent_sums_sparse(
    const int32_t *a_relatives, const uint32_t *a_lines, const int8_t *b_relatives, int64_t products)
{
    exponent_sums sums = lowest_sums();
    for (int64_t k = 0; k < products; k++)
        UNROLLED
        for (int row = 0; row < STRIP; row++) {
            int64_t element = row * products + k;
            const int8_t *line = b_relatives + a_lines[element];
            UNROLLED
            for (int v = 0; v < LINE_VECTORS; v++)
                sums.of_row[row][v] =
                    max_with_line(sums.of_row[row][v], a_relatives[element], load_s8(line + v * BYTE_LANES));
        }
    return sums;
}

/* Return a mask of the lanes of a row whose sum is unreliable, or shows that all products are 0. */
INLINED u8v unreliable(const s8v of_row[LINE_VECTORS])
{
    u8v lanes = {0};
    UNROLLED
    for (int v = 0; v < LINE_VECTORS; v++)
        lanes |= (u8v)(of_row[v] < splat_s8(MAX_UNRELIABLE_SUM + 1));
    return lanes;
}

INLINED bool any_unreliable(const exponent_sums *sums)
{
    u8v lanes = {0};
    UNROLLED
    for (int row = 0; row < STRIP; row++)
        lanes |= unreliable(sums->of_row[row]);
    return any_bit(lanes);
}

/* Store the largest sums, and mark exceptional rows; return true if there is one. */
INLINED bool store_max_exponents(strip_scratch *scratch, const exponent_sums *sums)
{
    bool any = false;
    UNROLLED
    for (int row = 0; row < STRIP; row++) {
        UNROLLED
        for (int v = 0; v < LINE_VECTORS; v++)
            store_s8(scratch->max_exponents + row * BLOCK + v * BYTE_LANES, sums->of_row[row][v]);
        scratch->exceptional[row] = (uint8_t)any_bit(unreliable(sums->of_row[row]));
        any |= scratch->exceptional[row];
    }
    return any;
}

/* Compute the common exponents of some columns of a row, from C, the groups' exponents and the largest sums. */
INLINED u32v common_exponents(
    u32v upper_c, s32v largest_pair, s32v max_relative, const sum_start *start, enum start_variant variant)
{
    u32v exponent_c = upper_c & splat_u32(UPPER_EXPONENT);
    if (variant == GENERAL_START && start->is_narrow) {
        s32v is_zero = (s32v)(exponent_c == splat_u32(0));
        s32v raised = max_s32((s32v)exponent_c, start->min_c_exponent & ~is_zero);
        exponent_c = (u32v)max_s32(raised, start->min_common_exponent);
    }
    u32v products = (u32v)(largest_pair + max_relative) << TO_UPPER;
    return max_u32(products, exponent_c);
}

/* Return the largest exponent of a group of A, ready to be added to those of B in `common_exponents`. */
INLINED s32v largest_of(const int32_t *a_group)
{
    return splat_s32(a_group[0] + BIAS - MAX_RELATIVE_SUM);
}

/* Mark rows with a common exponent out of range, which includes any infinity or NaN. */
INLINED bool find_out_of_range(strip_scratch *scratch, const strip_step *strip, const sum_start *start)
{
    bool any = false;
    for (int row = 0; row < STRIP; row++) {
        s32v largest_a = largest_of(strip->a_groups + row * strip->a_words);
        u32v reach = {0};
        for (int64_t j = 0; j < strip->width; j += F32_LANES) {
            const double *c = strip->partials + row * BLOCK + j;
            u32v upper_c = upper_words(load_f64(c), load_f64(c + F64_LANES));
            s32v largest_pair = load_s32(strip->b_groups + j) + largest_a;
            s32v max_relative = load_s8_as_s32(scratch->max_exponents + row * BLOCK + j);
            u32v common = common_exponents(upper_c, largest_pair, max_relative, start, GENERAL_START);
            reach = max_u32(reach, common - splat_u32(ORIGIN));
        }
        scratch->exceptional[row] |= (uint8_t)any_bit((u8v)(reach > splat_u32(FURTHEST)));
        any |= scratch->exceptional[row];
    }
    return any;
}

/* Return a bit for each negative product of one sign word; `a_signs` are the two words of A's group. */
INLINED u32v below_zero(const int32_t *a_signs, const int32_t *b_signs)
{
    return ((u32v)load_s32(b_signs) ^ splat_u32((uint32_t)a_signs[0])) & splat_u32((uint32_t)a_signs[1]);
}

/* Compute the initial sums of F32_LANES columns of a row, with C added. The rounding mode is towards zero. */
INLINED void start_sums(
    f64v sums[2], const strip_scratch *scratch, const strip_step *strip, const sum_start *start, int row, int64_t j,
    enum start_variant variant)
{
    const int32_t *a_group = strip->a_groups + row * strip->a_words, *b_group = strip->b_groups + j;
    const double *partials = strip->partials + row * BLOCK + j;
    f64v c0 = load_f64(partials), c1 = load_f64(partials + F64_LANES);
    u32v upper_c = upper_words(c0, c1);
    s32v max_relative = load_s8_as_s32(scratch->max_exponents + row * BLOCK + j);
    u32v common = common_exponents(upper_c, load_s32(b_group) + largest_of(a_group), max_relative, start, variant);
    u32v signs = below_zero(a_group + 1, b_group + BLOCK), negative_count;
    if (variant == FAST_START) {
        negative_count = popcount_u32(signs | (upper_c & splat_u32(UPPER_SIGN)));
    } else {
        negative_count = popcount_u32(signs) + (upper_c >> 31);
        if (variant == GENERAL_START && strip->sign_words > 1)
            negative_count += popcount_u32(below_zero(a_group + 3, b_group + 2 * BLOCK));
    }
    u32v upper = common + start->to_start;
    f64v bias = splat_f64(B_BIAS);
    sums[0] = multiply_add(c0, bias, first_f64_of_words(negative_count, upper));
    sums[1] = multiply_add(c1, bias, second_f64_of_words(negative_count, upper));
}

/* Return a sum minus the 1.5 * 2**52 grids that it started from. */
INLINED f64v exact_sum(f64v total)
{
    f64v power = (f64v)((s64v)total & EXPONENT_BITS);
    return multiply_add(power, splat_f64(-1.5), total);
}

INLINED f64v truncate_sum(f64v exact, int64_t kept)
{
    return (f64v)((s64v)exact & kept);
}

/* Return a mask of the float64 bits that the rounding of a step keeps: all of them if it rounds to nearest. */
INLINED int64_t kept_bits(int64_t round_to)
{
    if (round_to == TO_F16_RN)
        return -1;
    return round_to == TO_E8M13_RZ ? -((int64_t)1 << 39) : -((int64_t)1 << 29);
}

/* Compute the sums of a step, and truncate them. The rounding mode is towards zero. */
INLINED void add_products(
    const strip_scratch *scratch, const strip_step *strip, const sum_start *start, int64_t kept,
    enum start_variant variant)
{
    for (int64_t j = 0; j < strip->width; j += COLUMNS) {
        strip_sums sums;
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            UNROLLED
            for (int pair = 0; pair < PAIRS; pair++)
                start_sums(sums.of_row[row] + 2 * pair, scratch, strip, start, row, j + pair * F32_LANES, variant);
        add_lines(&sums, strip->a_values, strip->products, strip->b_values + j, BLOCK, strip->products);
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            UNROLLED
            for (int v = 0; v < F64_VECTORS; v++) {
                double *partials = strip->partials + row * BLOCK + j + v * F64_LANES;
                store_f64(partials, truncate_sum(exact_sum(sums.of_row[row][v]), kept));
            }
    }
}

/* Return true if any of `count` numbers is too large for C, or NaN. */
INLINED bool any_large(const double *partials, int64_t count)
{
    int is_large = 0;
    for (int64_t at = 0; at < count; at++)
        is_large |= !(fabs(partials[at]) < LARGE);
    return is_large;
}

/* Save the partial sums of exceptional rows before the step. */
INLINED void save_exceptional_rows(strip_scratch *scratch, const strip_step *strip)
{
    for (int row = 0; row < STRIP; row++)
        if (scratch->exceptional[row])
            memcpy(scratch->saved + row * BLOCK, strip->partials + row * BLOCK, (size_t)strip->width * sizeof(double));
}

/* Round exact sums to the nearest f16, ties to even: `round_f16` without branches, for finite sums. */
INLINED void round_to_f16(const strip_step *strip)
{
    int64_t width = strip->width; /* a copy, which no store can change, so that the loops are vectorized */
    for (int row = 0; row < STRIP; row++) {
        double *partials = strip->partials + row * BLOCK;
        for (int64_t j = 0; j < width; j++) {
            int64_t exponent = larger((bits_of_f64(partials[j]) >> 52) & 2047, 1009);
            double shift = f64_of_bits((exponent + 42) << 52 | (int64_t)1 << 51);
            double rounded = (partials[j] + shift) - shift;
            rounded = rounded >= OVERFLOW_F16 ? INFINITY : rounded;
            partials[j] = rounded <= -OVERFLOW_F16 ? -INFINITY : rounded;
        }
    }
}

#endif
