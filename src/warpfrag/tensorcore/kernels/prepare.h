/* Preparation of operands for the vector loops: each element becomes a float64, a small exponent and a sign bit.

   A *group* is the part of an operand that one step uses: elements of one row of A, or of one column of B. If E is the
   largest exponent of a group, each element has e - E as an int8, so that the largest exponent of a step is a maximum
   of int8 sums. The signs of a group are one or two words, with a bit for each negative element.

   Both operands are stored in the order in which the loops read them. A is split into panels of a few steps, panels
   into strips of rows, and strips into steps: `group_of`. B is split into blocks of BLOCK columns. Rows past M
   repeat the last row, and columns past N are 1; their results are computed to fill strips and vectors, and are
   never read. */

#ifndef WARPFRAG_PREPARE_H
#define WARPFRAG_PREPARE_H

#include "tensorcore/kernels/multiply_add.h"
#include "tensorcore/kernels/scalar.h"

#define BLOCK 64
/* A sparse A has the same number of sum vectors: for one row, or for two if a block has fewer vectors. */
#define BLOCK_VECTORS (BLOCK / F64_LANES)
#define ALL_VECTORS (STRIP * F64_VECTORS)
#define SPARSE_ROWS (ALL_VECTORS > BLOCK_VECTORS ? ALL_VECTORS / BLOCK_VECTORS : 1)
#define SPARSE_VECTORS (ALL_VECTORS / SPARSE_ROWS)
#define SPARSE_COLUMNS (SPARSE_VECTORS * F64_LANES)
#define WORD 32 /* number of signs in a word */
#define BYTE 8

/* The number of elements of A's rows in a panel, unless one instruction has more: their rows of B stay in a near cache
   while all rows of A are processed. */
#define PANEL 32

/* Exponents of elements and of scale factors are between -127 and 127. The sum of two exponents, relative or not,
   biased as in float64, must fit in 12 bits. */
#define EXPONENT_OF_ZERO (-300)   /* exponent of an element, or of a whole group, that is 0 */
#define EXPONENT_OF_SPECIAL 900   /* exponent of an infinity or a NaN, and of a group that contains one or has a NaN scale factor */
#define MIN_SPECIAL_SUM 400       /* the sum of two exponents is at least this if one of them is EXPONENT_OF_SPECIAL */

/* A relative exponent is stored as RELATIVE_BIAS + (e - E), at least 0; for an element that is 0, as
   RELATIVE_OF_ZERO. So the sum of two fits in int8, and is negative if and only if a product is 0. */
#define RELATIVE_BIAS 63
#define RELATIVE_OF_ZERO (-64)
/* Convert a sum of relative exponents, and the exponents that they are relative to, to the exponent field of an f32. */
#define TO_BIASED (127 - 2 * RELATIVE_BIAS)

#define B_BIAS (1.0 + 0x1p-30) /* factor applied to the elements of B, away from zero; `strip.h` explains why */
#define ZERO_STANDIN 0x1p-500  /* represents a 0 of B: far below any grid, but positive, as its sign bit says */

/* If the significands of a group of A, each below 2, add up to more than this, a short sum might reach 2**31 grids:
   `short_steps.h`. */
#define MAX_SIGNIFICAND_SUM 31

/* The encoding of an operand's codes, in the order of `encodings.encoding_of`. */
typedef struct {
    int64_t fraction, bias, unused;
    int64_t sign_place;   /* the sign bit */
    int64_t special_from; /* magnitudes from this one on are infinity or NaN */
    int64_t infinity;     /* the magnitude of infinity, or -1 */
} element_encoding;

/* The numbers of a fused rule, in the order of `compiled.Constants`. */
typedef struct {
    element_encoding a, b;
    int64_t fraction_bits;
    int64_t products; /* products of one step */
    int64_t zero_exponent;
    int64_t round_to; /* enum step_rounding */
    int64_t c_format; /* enum accumulator_format */
    int64_t c_emin;   /* the smallest exponent with which a nonzero C is read */
    int64_t d_format;
    int64_t steps;       /* number of steps of one instruction */
    int64_t adds_c_last; /* steps start from zero; C is added afterwards and rounded to nearest */
    int64_t is_sparse;
    int64_t is_narrow;     /* lower bounds of exponents are reached within the range of the vector loops */
    int64_t is_short;      /* `short_steps.h` can run it if exponents allow it */
    int64_t unit_exponent; /* every product is a multiple of 2 to this power */
} fused_rule;

/* One tile: codes, the order of addition, and scale factors.

   `order` lists A's elements in the order of addition, `b_order` B's rows; b_places[row] is the index of a row of B
   in it. For a sparse A, met_rows[i, p] is the row of B that element order[p] of A's row i multiplies; otherwise it
   is NULL. Scale factors are exponents, or NULL. */
typedef struct {
    const fused_rule *rule;
    const uint32_t *a, *b, *c;
    uint32_t *out;
    const int32_t *order, *b_order, *b_places, *met_rows, *scale_a, *scale_b;
    int64_t height, width, stored, depth; /* extents of D, of a row of A, and of B */
} source_tile;

/* The extents of groups. */
typedef struct {
    int64_t steps;       /* for the whole K */
    int64_t panel_steps; /* for a panel */
    int64_t strips;
    int64_t group_rows; /* number of rows of B in a group */
    int64_t sign_words; /* sign words of a group: one, or two for a sparse A with more than 32 rows of B */
    int64_t sign_bytes; /* sign bytes of a group, for a rule with short steps */
    int64_t a_words;    /* words per group of A: the largest exponent; per sign word, its negative and its nonzero bits */
    int64_t a_bytes;    /* the same with sign bytes */
    int64_t b_lines;    /* lines of words per group of B: the largest exponents, then the sign words */
    int64_t b_byte_lines;
    int64_t blocks;
} group_extents;

/* Panels after the last full one are shorter. */
INLINED int64_t steps_of_panel(const group_extents *e, int64_t first_step)
{
    return smaller(e->panel_steps, e->steps - first_step);
}

/* The index of a group of A, in the panel that begins at `first_step`. Nothing is divided here: a 64-bit division takes
   as long as the products of a few elements. */
INLINED int64_t group_of(const group_extents *e, int64_t row, int64_t first_step, int64_t step)
{
    int64_t at_strip = first_step * e->strips + row / STRIP * steps_of_panel(e, first_step);
    return (at_strip + step - first_step) * STRIP + row % STRIP;
}

/* Prepared operands, in the order of addition.

   A, by group: values, relative exponents (a byte repeated four times in a word, which is faster to broadcast), groups,
   groups in bytes for short steps, for a sparse A the offset of the line of B that an element multiplies, and a flag
   for rows whose significands are too large for short steps.

   B, by block, row and column: values and relative exponents; by block, step and line: groups, and groups in bytes. */
typedef struct {
    group_extents extents;
    double *a_values;
    int32_t *a_relatives, *a_groups, *a_bytes;
    uint32_t *a_lines;
    uint8_t *a_is_heavy;
    double *b_values;
    int8_t *b_relatives;
    int32_t *b_groups;
    uint8_t *b_bytes;
} prepared_tile;

INLINED group_extents extents_of(const source_tile *tile)
{
    group_extents e;
    e.steps = tile->stored / tile->rule->products;
    e.panel_steps = larger(1, PANEL / (tile->rule->products * tile->rule->steps)) * tile->rule->steps;
    e.strips = (tile->height + STRIP - 1) / STRIP;
    e.group_rows = tile->depth / e.steps;
    e.sign_words = (e.group_rows + WORD - 1) / WORD;
    e.sign_bytes = tile->rule->is_short ? (e.group_rows + BYTE - 1) / BYTE : 0;
    e.a_words = 1 + 2 * e.sign_words;
    e.a_bytes = tile->rule->is_short ? 1 + 2 * e.sign_bytes : 0;
    e.b_lines = 1 + e.sign_words;
    e.b_byte_lines = tile->rule->is_short ? 1 + e.sign_bytes : 0;
    e.blocks = (tile->width + BLOCK - 1) / BLOCK;
    return e;
}

#define CACHE_LINE 64

/* Take memory for an array at `at`, and move `at` to the next free cache line. */
INLINED void *take(uintptr_t *at, int64_t count, size_t size)
{
    void *start = (void *)*at;
    *at += ((uintptr_t)count * size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return start;
}

/* Lay out a tile's prepared operands from an address that is a multiple of CACHE_LINE; return their size in bytes. */
static int64_t lay_out(prepared_tile *ready, const source_tile *tile, uintptr_t memory)
{
    group_extents e = extents_of(tile);
    uintptr_t at = memory;
    int64_t a_groups = e.strips * STRIP * e.steps, b_groups = e.blocks * e.steps * BLOCK;
    int64_t a_elements = a_groups * tile->rule->products, b_elements = e.blocks * tile->depth * BLOCK;
    ready->extents = e;
    ready->a_values = take(&at, a_elements, sizeof *ready->a_values);
    ready->a_relatives = take(&at, a_elements, sizeof *ready->a_relatives);
    ready->a_groups = take(&at, a_groups * e.a_words, sizeof *ready->a_groups);
    ready->a_bytes = take(&at, a_groups * e.a_bytes, sizeof *ready->a_bytes);
    /* Extra space, because the addresses of lines are read ahead. */
    ready->a_lines = take(&at, tile->rule->is_sparse ? a_elements + CACHE_LINE : 0, sizeof *ready->a_lines);
    ready->a_is_heavy = take(&at, tile->height, sizeof *ready->a_is_heavy);
    ready->b_values = take(&at, b_elements, sizeof *ready->b_values);
    ready->b_relatives = take(&at, b_elements, sizeof *ready->b_relatives);
    ready->b_groups = take(&at, b_groups * e.b_lines, sizeof *ready->b_groups);
    ready->b_bytes = take(&at, b_groups * e.b_byte_lines, sizeof *ready->b_bytes);
    return (int64_t)(at - memory);
}

/* Return the number of columns in a block, rounded up to a multiple of the columns that are processed together. */
INLINED int64_t padded(int64_t columns, bool is_sparse)
{
    int64_t together = is_sparse ? SPARSE_COLUMNS : COLUMNS;
    return smaller(BLOCK, (columns + together - 1) / together * together);
}

INLINED int32_t four_times(int32_t byte)
{
    return (int32_t)((uint32_t)(byte & 255) * 0x01010101u);
}

/* An `element_encoding` in the form that `decode` needs. */
typedef struct {
    int32_t fraction, bias, unused;
    int32_t magnitude; /* the bits below the sign */
    int32_t to_sign;   /* the left shift that moves the sign to bit 31 */
    int32_t last_finite;
} element_decoder;

INLINED element_decoder decoder_of(const element_encoding *encoding)
{
    element_decoder by = {
        .fraction = (int32_t)encoding->fraction,
        .bias = (int32_t)encoding->bias,
        .unused = (int32_t)encoding->unused,
        .magnitude = (int32_t)(((int64_t)1 << encoding->sign_place) - 1),
        .to_sign = (int32_t)(31 - encoding->sign_place),
        .last_finite = (int32_t)(encoding->special_from - 1),
    };
    return by;
}

/* Decode codes to values and their exponents; infinity and NaN become 0 with a special exponent. No value is -0.
   There are no branches, so that compilers can vectorize it. */
INLINED void decode(
    float *restrict values, int32_t *restrict exponents, const uint32_t *restrict codes, int64_t count,
    const element_decoder *by)
{
    const element_decoder d = *by;
    const float unit = f32_of_bits((127 - d.fraction) << 23);
    const int32_t hidden = 1 << d.fraction;
    for (int64_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(codes[i] & (uint32_t)d.magnitude) >> d.unused;
        int32_t negative = (int32_t)(codes[i] << d.to_sign) >> 31;
        int32_t is_special = magnitude > d.last_finite;
        int32_t finite = is_special ? 0 : magnitude;
        int32_t field = finite >> d.fraction;
        int32_t significand = field > 0 ? (finite & (hidden - 1)) | hidden : finite;
        int32_t exponent = (field > 1 ? field : 1) - d.bias;
        float power = f32_of_bits((exponent + 127) << 23);
        values[i] = (float)((significand ^ negative) - negative) * unit * power;
        exponent = significand > 0 ? exponent : EXPONENT_OF_ZERO;
        exponents[i] = is_special ? EXPONENT_OF_SPECIAL : exponent;
    }
}

INLINED int32_t scaled_exponent(int32_t largest, int32_t scale_exponent)
{
    int32_t scaled = largest == EXPONENT_OF_ZERO ? largest : largest + scale_exponent;
    return scale_exponent >= NAN_SCALE ? EXPONENT_OF_SPECIAL : scaled;
}

/* The signs of a group: a bit for each negative element, and a bit for each nonzero one. */
typedef struct {
    uint64_t negative, nonzero;
} group_signs;

INLINED group_signs signs_of(const float *values, int64_t count)
{
    uint32_t negative = 0, nonzero = 0; /* a group of a dense A has one word */
    VECTORIZED
    for (int64_t k = 0; k < count; k++) {
        negative |= values[k] < 0 ? 1u << k : 0;
        nonzero |= values[k] != 0 ? 1u << k : 0;
    }
    group_signs signs = {negative, nonzero};
    return signs;
}

/* The same for a sparse A: the bit of an element is at the position of the B element that it multiplies. In a step,
   every element of A multiplies a different row of B; the offsets of these rows' lines are written to `lines`. */
INLINED group_signs meet_b(
    uint32_t *lines, const float *values, const int32_t *met_rows, const int32_t *b_places, int64_t first_place,
    int64_t count)
{
    group_signs signs = {0, 0};
    for (int64_t k = 0; k < count; k++) {
        int64_t place = b_places[met_rows[k]];
        lines[k] = (uint32_t)place * BLOCK;
        signs.negative |= (uint64_t)(values[k] < 0) << (place - first_place);
        signs.nonzero |= (uint64_t)(values[k] != 0) << (place - first_place);
    }
    return signs;
}

/* Return true if the significands of a group's elements, each 1 to 2, add up to too much for a short step. */
INLINED bool is_heavy_group(const float *values, int64_t count)
{
    int32_t sum = 0;
    VECTORIZED
    for (int64_t k = 0; k < count; k++)
        sum += values[k] == 0 ? 0 : (bits_of_f32(values[k]) & 0x7FFFFF) | 1 << 23;
    return sum > MAX_SIGNIFICAND_SUM << 23;
}

/* Write the elements of a group of A. Compilers heed `restrict` only on parameters, and cannot vectorize without it. */
INLINED void write_elements(
    double *restrict to, int32_t *restrict relatives, const float *restrict values, const int32_t *restrict exponents,
    int32_t largest, int64_t products)
{
    VECTORIZED
    for (int64_t k = 0; k < products; k++) {
        int32_t relative = exponents[k] - largest + RELATIVE_BIAS;
        relative = relative < 0 ? 0 : relative;
        relatives[k] = four_times(exponents[k] == EXPONENT_OF_ZERO ? RELATIVE_OF_ZERO : relative);
        to[k] = values[k];
    }
}

/* Write one group of A; return true if it is heavy. `met_rows` is NULL for a dense A. */
INLINED bool write_group_of_a(
    const source_tile *tile, prepared_tile *ready, int64_t group, int64_t first_place, const float *values,
    const int32_t *exponents, const int32_t *met_rows, int64_t products)
{
    const group_extents *e = &ready->extents;
    int64_t at = group * products;
    int32_t largest = EXPONENT_OF_ZERO;
    VECTORIZED
    for (int64_t k = 0; k < products; k++)
        largest = exponents[k] > largest ? exponents[k] : largest;
    write_elements(ready->a_values + at, ready->a_relatives + at, values, exponents, largest, products);
    group_signs signs = met_rows
        ? meet_b(ready->a_lines + at, values, met_rows, tile->b_places, first_place, products)
        : signs_of(values, products);
    int32_t *words = ready->a_groups + group * e->a_words, *bytes = ready->a_bytes + group * e->a_bytes;
    words[0] = largest;
    for (int64_t word = 0; word < e->sign_words; word++) {
        words[1 + 2 * word] = (int32_t)(signs.negative >> WORD * word);
        words[2 + 2 * word] = (int32_t)(signs.nonzero >> WORD * word);
    }
    if (!tile->rule->is_short)
        return false;
    bytes[0] = four_times(largest + TO_BIASED);
    for (int64_t byte = 0; byte < e->sign_bytes; byte++) {
        bytes[1 + 2 * byte] = four_times((int32_t)(signs.negative >> BYTE * byte));
        bytes[2 + 2 * byte] = four_times((int32_t)(signs.nonzero >> BYTE * byte));
    }
    return products > BYTE && is_heavy_group(values, products);
}

INLINED void scale_group_of_a(const source_tile *tile, prepared_tile *ready, int64_t group, int32_t scale)
{
    int32_t *largest = ready->a_groups + group * ready->extents.a_words;
    double *values = ready->a_values + group * tile->rule->products;
    *largest = scaled_exponent(*largest, scale);
    for (int64_t k = 0; k < tile->rule->products; k++)
        values[k] *= power_of_two(scale);
}

/* Memory for one row of A. */
typedef struct {
    uint32_t *codes;
    float *values;
    int32_t *exponents;
} row_scratch;

INLINED int64_t row_scratch_bytes(const source_tile *tile)
{
    return 3 * tile->stored * (int64_t)sizeof(uint32_t);
}

INLINED row_scratch row_scratch_at(void *memory, const source_tile *tile)
{
    uint32_t *codes = memory;
    row_scratch scratch = {codes, (float *)(codes + tile->stored), (int32_t *)(codes + 2 * tile->stored)};
    return scratch;
}

/* Write a decoded row of A as row `to`: the row itself, or a copy past the last row. */
INLINED void write_row_of_a(
    const source_tile *tile, prepared_tile *ready, const row_scratch *scratch, int64_t row, int64_t to, int64_t products)
{
    const group_extents *e = &ready->extents;
    int64_t instructions = e->steps / tile->rule->steps;
    bool is_heavy = false;
    for (int64_t step = 0, first_step = 0; step < e->steps; step++) {
        if (step == first_step + e->panel_steps)
            first_step = step;
        int64_t group = group_of(e, to, first_step, step), first = step * products;
        const int32_t *met_rows = tile->met_rows ? tile->met_rows + row * tile->stored + first : NULL;
        is_heavy |= write_group_of_a(
            tile, ready, group, step * e->group_rows, scratch->values + first, scratch->exponents + first, met_rows,
            products);
        if (tile->scale_a)
            scale_group_of_a(tile, ready, group, tile->scale_a[row * instructions + step / tile->rule->steps]);
    }
    ready->a_is_heavy[row] = is_heavy;
}

/* Put the codes of a row of A into the order of addition; return them. */
INLINED const uint32_t *take_in_order(
    uint32_t *restrict to, const uint32_t *restrict codes, const int32_t *restrict order, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        to[index] = codes[order[index]];
    return to;
}

NOT_INLINED void prepare_a(const source_tile *tile, prepared_tile *ready, void *memory, int64_t first, int64_t last)
{
    row_scratch scratch = row_scratch_at(memory, tile);
    element_decoder by = decoder_of(&tile->rule->a);
    bool is_in_order = true;
    for (int64_t index = 0; index < tile->stored; index++)
        is_in_order &= tile->order[index] == index;
    for (int64_t row = first; row < last; row++) {
        const uint32_t *codes = tile->a + row * tile->stored;
        if (!is_in_order)
            codes = take_in_order(scratch.codes, codes, tile->order, tile->stored);
        decode(scratch.values, scratch.exponents, codes, tile->stored, &by);
        int64_t copies = row == tile->height - 1 ? ready->extents.strips * STRIP : row + 1;
        for (int64_t to = row; to < copies; to++)
            switch (tile->rule->products) { /* loops of constant length become vectors */
            case 8: write_row_of_a(tile, ready, &scratch, row, to, 8); break;
            case 16: write_row_of_a(tile, ready, &scratch, row, to, 16); break;
            default: write_row_of_a(tile, ready, &scratch, row, to, tile->rule->products);
            }
    }
}

/* Memory for one group of B: a line of codes, then values and exponents. */
typedef struct {
    uint32_t codes[BLOCK];
    float values[BLOCK];
    int32_t signs[BLOCK];
    int32_t exponents[2 * WORD][BLOCK];
} group_scratch;

/* Scale a group of B whose columns begin with `first`. */
INLINED void scale_group(
    const source_tile *tile, const group_extents *e, double *values, int32_t *largest, int64_t instruction,
    int64_t first, int64_t width)
{
    const int32_t *scales = tile->scale_b + instruction * tile->width + first;
    for (int64_t column = 0; column < width; column++)
        largest[column] = scaled_exponent(largest[column], scales[column]);
    for (int64_t row = 0; row < e->group_rows; row++)
        for (int64_t column = 0; column < width; column++)
            values[row * BLOCK + column] *= power_of_two(scales[column]);
}

/* Read one row of a block of B; columns past N are 1. */
INLINED void gather_line(uint32_t *line, const uint32_t *codes, int64_t width, int64_t wide, uint32_t unit_code)
{
    for (int64_t column = 0; column < width; column++)
        line[column] = codes[column];
    for (int64_t column = width; column < wide; column++)
        line[column] = unit_code;
}

/* Prepare one group of a block of B. */
INLINED void prepare_group(
    const source_tile *tile, prepared_tile *ready, group_scratch *scratch, const element_decoder *by, int64_t block,
    int64_t step, int64_t width, int64_t wide)
{
    const group_extents *e = &ready->extents;
    const element_encoding *encoding = &tile->rule->b;
    uint32_t unit_code = (uint32_t)((encoding->bias << encoding->fraction) << encoding->unused);
    int64_t first = block * BLOCK;
    double *restrict values = ready->b_values + (block * tile->depth + step * e->group_rows) * BLOCK;
    int8_t *restrict relatives = ready->b_relatives + (block * tile->depth + step * e->group_rows) * BLOCK;
    int32_t *restrict groups = ready->b_groups + (block * e->steps + step) * e->b_lines * BLOCK;
    for (int64_t column = 0; column < wide; column++)
        groups[column] = EXPONENT_OF_ZERO;
    for (int64_t row = 0; row < e->group_rows; row++) {
        int32_t *restrict exponents = scratch->exponents[row], bit = row % WORD;
        const uint32_t *codes = tile->b + tile->b_order[step * e->group_rows + row] * tile->width + first;
        gather_line(scratch->codes, codes, width, wide, unit_code);
        decode(scratch->values, exponents, scratch->codes, wide, by);
        for (int64_t column = 0; column < wide; column++) {
            float value = scratch->values[column];
            values[row * BLOCK + column] = value != 0 ? value * B_BIAS : ZERO_STANDIN;
            groups[column] = exponents[column] > groups[column] ? exponents[column] : groups[column];
            scratch->signs[column] = (bit ? scratch->signs[column] : 0) | (int32_t)((uint32_t)(value < 0) << bit);
        }
        if (bit == WORD - 1 || row + 1 == e->group_rows)
            memcpy(groups + (1 + row / WORD) * BLOCK, scratch->signs, sizeof scratch->signs);
    }
    for (int64_t row = 0; row < e->group_rows; row++) {
        const int32_t *exponents = scratch->exponents[row];
        for (int64_t column = 0; column < wide; column++) {
            int32_t relative = exponents[column] - groups[column] + RELATIVE_BIAS;
            relative = relative < 0 ? 0 : relative;
            relative = exponents[column] == EXPONENT_OF_ZERO ? RELATIVE_OF_ZERO : relative;
            relatives[row * BLOCK + column] = (int8_t)relative;
        }
        for (int64_t column = wide; column < BLOCK; column++)
            relatives[row * BLOCK + column] = RELATIVE_BIAS;
    }
    if (tile->rule->is_short) {
        uint8_t *bytes = ready->b_bytes + (block * e->steps + step) * e->b_byte_lines * BLOCK;
        for (int64_t column = 0; column < wide; column++)
            bytes[column] = (uint8_t)groups[column];
        for (int64_t byte = 0; byte < e->sign_bytes; byte++)
            for (int64_t column = 0; column < wide; column++)
                bytes[(1 + byte) * BLOCK + column] = (uint8_t)(groups[BLOCK + column] >> BYTE * byte);
    }
    if (tile->scale_b)
        scale_group(tile, e, values, groups, step / tile->rule->steps, first, width);
}

NOT_INLINED void prepare_b(const source_tile *tile, prepared_tile *ready, int64_t first, int64_t last)
{
    group_scratch scratch;
    memset(scratch.signs, 0, sizeof scratch.signs);
    element_decoder by = decoder_of(&tile->rule->b);
    for (int64_t block = first; block < last; block++) {
        int64_t width = smaller(BLOCK, tile->width - block * BLOCK), wide = padded(width, tile->rule->is_sparse);
        for (int64_t step = 0; step < ready->extents.steps; step++)
            if (width == BLOCK) /* loops of constant length vectorize better */
                prepare_group(tile, ready, &scratch, &by, block, step, BLOCK, BLOCK);
            else
                prepare_group(tile, ready, &scratch, &by, block, step, width, wide);
    }
}

#endif
