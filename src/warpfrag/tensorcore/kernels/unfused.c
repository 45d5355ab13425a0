/* The loops of the rules that are neither fused nor f64: grouped sums, m8n8k4 in software, and one-bit products.

   A grouped sum adds groups of 4-bit products exactly, scales each, and adds them in one truncated sum. m8n8k4 is a
   short chain of ordinary f32 operations; f16 products are exact in f32, so a multiplication and an addition equal
   one FFMA. One-bit products are computed 64 at a time, as the population count of a word. */

#include <stdlib.h>

#include "tensorcore/kernels/arguments.h"
#include "tensorcore/kernels/environment.h"
#include "tensorcore/kernels/scalar.h"

#define SCALE_BITS 8     /* bits of a scale factor's significand; the exponent is in the bits above */
#define SCALE_FRACTION 3 /* fraction bits of a scale factor's significand */
#define SIGNIFICAND ((1 << SCALE_BITS) - 1)
#define PRODUCT_FRACTION 2 /* elements are doubled, so that they are integers */
#define CHAIN 4            /* number of products in a chain */

typedef struct {
    int64_t depth;  /* K of one instruction */
    int64_t group;  /* number of products that are summed exactly */
    int64_t scales; /* number of scale factors of one instruction */
    int64_t fraction_bits, zero_exponent;
} grouped_rule;

/* A's row or B's column of one output: doubled elements, and scales, exponent << SCALE_BITS | significand. */
typedef struct {
    const int8_t *elements;
    const int32_t *scales;
    int64_t stride; /* distance between adjacent elements, and between adjacent scales */
} scaled_line;

static bool has_product(const scaled_line *a, const scaled_line *b, int64_t first, int64_t group)
{
    for (int64_t k = first; k < first + group; k++)
        if (a->elements[k * a->stride] != 0 && b->elements[k * b->stride] != 0)
            return true;
    return false;
}

static int64_t exact_group(const scaled_line *a, const scaled_line *b, int64_t first, int64_t group)
{
    int64_t sum = 0;
    for (int64_t k = first; k < first + group; k++)
        sum += a->elements[k * a->stride] * b->elements[k * b->stride];
    return sum;
}

/* One instruction for one output, starting at k = first. */
static double grouped_output(
    const scaled_line *a, const scaled_line *b, double accumulator, int64_t first, const grouped_rule *rule)
{
    int64_t block = rule->depth / rule->scales, common = rule->zero_exponent;
    bool is_nan = isnan(accumulator);
    for (int64_t start = first; start < first + rule->depth; start += rule->group) {
        int64_t scale_a = a->scales[start / block * a->stride], scale_b = b->scales[start / block * b->stride];
        int64_t exponent = (scale_a >> SCALE_BITS) + (scale_b >> SCALE_BITS);
        is_nan = is_nan || exponent >= ANY_NAN_SCALE;
        bool present = (scale_a & SIGNIFICAND) != 0 && (scale_b & SIGNIFICAND) != 0;
        if (present && has_product(a, b, start, rule->group))
            common = larger(common, exponent);
    }
    if (is_nan)
        return NAN;
    if (isinf(accumulator))
        return accumulator;
    if (accumulator != 0.0)
        common = larger(common, exponent_of(accumulator, -126));
    int64_t total = (int64_t)(accumulator * power_of_two(rule->fraction_bits - common));
    for (int64_t start = first; start < first + rule->depth; start += rule->group) {
        int64_t scale_a = a->scales[start / block * a->stride], scale_b = b->scales[start / block * b->stride];
        int64_t exponent = (scale_a >> SCALE_BITS) + (scale_b >> SCALE_BITS);
        int64_t exact = exact_group(a, b, start, rule->group) * (scale_a & SIGNIFICAND) * (scale_b & SIGNIFICAND);
        total += shifted(exact, exponent - common + rule->fraction_bits - PRODUCT_FRACTION - 2 * SCALE_FRACTION);
    }
    return truncate_f32((double)total * power_of_two(common - rule->fraction_bits), 23);
}

struct grouped_arguments {
    ARRAY(3, const int8_t) a, b;
    ARRAY(3, const uint32_t) c;
    ARRAY(3, const int32_t) scale_a, scale_b;
    ARRAY(3, uint32_t) out;
    grouped_rule rule;
    output_block block;
};

/* Elements are doubled, scales are integers, C and D are f32 codes. */
NOT_INLINED void compute_grouped(const struct grouped_arguments *p)
{
    const output_block *block = &p->block;
    int64_t height = p->out.shape[1], width = p->out.shape[2], depth = p->a.shape[2], scales = p->scale_a.shape[2];
    for (int64_t tile = block->first_tile; tile < block->last_tile; tile++)
        for (int64_t i = block->first_row; i < block->last_row; i++) {
            int64_t row = tile * height + i;
            scaled_line a = {p->a.data + row * depth, p->scale_a.data + row * scales, 1};
            for (int64_t j = block->first_column; j < block->last_column; j++) {
                const int32_t *scale_b = p->scale_b.data + tile * scales * width + j;
                scaled_line b = {p->b.data + tile * depth * width + j, scale_b, width};
                double accumulator = f32_of_bits((int32_t)p->c.data[row * width + j]);
                for (int64_t first = 0; first < depth; first += p->rule.depth)
                    accumulator = grouped_output(&a, &b, accumulator, first, &p->rule);
                p->out.data[row * width + j] = write_accumulator((float)accumulator, IS_F32);
            }
        }
}

ENTRY(grouped_block)(const struct grouped_arguments *arguments)
{
    control_word caller = enter_environment(TO_NEAREST);
    compute_grouped(arguments);
    restore_environment(caller);
    return 0;
}

struct chain_arguments {
    ARRAY(3, const uint32_t) a, b, c;
    ARRAY(3, uint32_t) out;
    int64_t c_format, d_format;
    output_block block;
};

INLINED void read_values(float *values, const uint32_t *codes, int64_t count, int format)
{
    for (int64_t j = 0; j < count; j++)
        values[j] = read_accumulator(codes[j], format);
}

/* Add four products of a row of A with rows of B to a line of accumulators. */
INLINED void add_chain(float *line, const float *a, const float *b, int64_t width, bool is_f16)
{
    const float *b0 = b, *b1 = b + width, *b2 = b + 2 * width, *b3 = b + 3 * width;
    for (int64_t j = 0; j < width; j++) {
        if (is_f16) {
            float low = a[0] * b0[j] + a[1] * b1[j], high = a[2] * b2[j] + a[3] * b3[j];
            line[j] = (float)round_f16((line[j] + low) + high);
        } else {
            float total = a[0] * b0[j] + 0.0f;
            total = total + a[1] * b1[j];
            total = total + a[2] * b2[j];
            total = total + a[3] * b3[j];
            line[j] = line[j] + total;
        }
    }
}

NOT_INLINED void compute_chains(const struct chain_arguments *p, float *b_values, float *a_values, float *line)
{
    const output_block *block = &p->block;
    int64_t depth = p->b.shape[1], every = p->b.shape[2], height = p->a.shape[1];
    int64_t first_column = block->first_column, width = block->last_column - first_column;
    for (int64_t tile = block->first_tile; tile < block->last_tile; tile++) {
        for (int64_t k = 0; k < depth; k++)
            read_values(b_values + k * width, p->b.data + (tile * depth + k) * every + first_column, width, IS_F16);
        for (int64_t i = block->first_row; i < block->last_row; i++) {
            int64_t outputs = (tile * height + i) * every + first_column;
            read_values(a_values, p->a.data + (tile * height + i) * depth, depth, IS_F16);
            read_values(line, p->c.data + outputs, width, (int)p->c_format);
            for (int64_t k = 0; k < depth; k += CHAIN) {
                if (p->d_format == IS_F16)
                    add_chain(line, a_values + k, b_values + k * width, width, true);
                else
                    add_chain(line, a_values + k, b_values + k * width, width, false);
            }
            for (int64_t j = 0; j < width; j++)
                p->out.data[outputs + j] = write_accumulator(line[j], (int)p->d_format);
        }
    }
}

ENTRY(chain_block)(const struct chain_arguments *arguments)
{
    int64_t depth = arguments->b.shape[1], width = arguments->block.last_column - arguments->block.first_column;
    float *memory = malloc((size_t)(depth * width + depth + width) * sizeof(float));
    if (!memory)
        return NO_MEMORY;
    control_word caller = enter_environment(TO_NEAREST);
    compute_chains(arguments, memory, memory + depth * width, memory + depth * width + depth);
    restore_environment(caller);
    free(memory);
    return 0;
}

struct popcount_arguments {
    ARRAY(3, const uint64_t) a, b;
    ARRAY(3, int32_t) sums;
    int64_t is_xor;
    output_block block;
};

INLINED void add_ones(int32_t *sums, uint64_t a0, uint64_t a1, const uint64_t *b0, const uint64_t *b1, int64_t width,
                      bool is_xor)
{
    for (int64_t j = 0; j < width; j++) {
        uint64_t word0 = is_xor ? a0 ^ b0[j] : a0 & b0[j], word1 = is_xor ? a1 ^ b1[j] : a1 & b1[j];
        uint32_t ones = (uint32_t)(__builtin_popcountll(word0) + __builtin_popcountll(word1));
        sums[j] = (int32_t)((uint32_t)sums[j] + ones);
    }
}

/* Add the number of ones in a[t, i, w] op b[t, w, j], over all words w, to sums[t, i, j]. There is an even number of
   words. */
ENTRY(popcount_block)(const struct popcount_arguments *p)
{
    const output_block *block = &p->block;
    int64_t height = p->a.shape[1], words = p->a.shape[2], every = p->b.shape[2];
    int64_t width = block->last_column - block->first_column;
    for (int64_t tile = block->first_tile; tile < block->last_tile; tile++)
        for (int64_t i = block->first_row; i < block->last_row; i++) {
            const uint64_t *a = p->a.data + (tile * height + i) * words;
            const uint64_t *b = p->b.data + tile * words * every + block->first_column;
            int32_t *sums = p->sums.data + (tile * height + i) * every + block->first_column;
            for (int64_t word = 0; word < words; word += 2, b += 2 * every) {
                if (p->is_xor)
                    add_ones(sums, a[word], a[word + 1], b, b + every, width, true);
                else
                    add_ones(sums, a[word], a[word + 1], b, b + every, width, false);
            }
        }
    return 0;
}
