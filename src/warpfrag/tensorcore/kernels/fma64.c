/* f64 as a chain of fused multiply-adds, k ascending, with the processor's instruction and rounding mode.

   NaNs follow the tensor core's rule, not the processor's: an output that ends as NaN is computed again, step by
   step. */

#include "tensorcore/native/entry.h"

#if defined(__aarch64__) || defined(__FMA__)

#include <stdlib.h>

#include "tensorcore/kernels/arguments.h"
#include "tensorcore/kernels/environment.h"
#include "tensorcore/kernels/multiply_add.h"
#include "tensorcore/kernels/scalar.h"

#define MAGNITUDE INT64_MAX
#define INFINITY_F64 ((int64_t)0x7FF << 52)
#define QUIET ((int64_t)1 << 51)
#define NAN_F64 ((int64_t)0xFFF8000000000000)
#define PANEL 64 /* number of k whose lines of B stay in the first-level cache while all rows are processed */

struct fma_arguments {
    ARRAY(3, const int64_t) a, b, c;
    ARRAY(3, int64_t) out;
    int64_t direction; /* the rounding direction */
    output_block block;
};

INLINED bool is_nan(int64_t bits)
{
    return (bits & MAGNITUDE) > INFINITY_F64;
}

/* One step of the chain, with the tensor core's NaN rule: the NaN of B, else of C, else of A, quieted. */
INLINED int64_t fma_with_nan_rule(int64_t a, int64_t b, int64_t c)
{
    if (is_nan(b))
        return b | QUIET;
    if (is_nan(c))
        return c | QUIET;
    if (is_nan(a))
        return a | QUIET;
    int64_t result = bits_of_f64(fma(f64_of_bits(a), f64_of_bits(b), f64_of_bits(c)));
    return is_nan(result) ? NAN_F64 : result;
}

/* One tile of the arguments. */
typedef struct {
    const int64_t *a, *b, *c;
    int64_t *out;
    int64_t depth, width;
    int64_t first_row, last_row; /* the last one is exclusive */
} fma_tile;

/* Recompute the outputs of some columns that are NaN. */
static void recompute_nans(const fma_tile *tile, int64_t start, int64_t stop)
{
    for (int64_t i = tile->first_row; i < tile->last_row; i++)
        for (int64_t j = start; j < stop; j++) {
            int64_t *out = tile->out + i * tile->width + j;
            if (!is_nan(*out))
                continue;
            int64_t code = tile->c[i * tile->width + j];
            for (int64_t k = 0; k < tile->depth; k++)
                code = fma_with_nan_rule(tile->a[i * tile->depth + k], tile->b[k * tile->width + j], code);
            *out = code;
        }
}

/* Add the products of a strip of A's rows, `pitch` apart, with `count` lines of B to the sums. */
NOT_INLINED void add_panel(double *sums, const double *a, int64_t pitch, const double *lines, int64_t count)
{
    strip_sums totals;
    UNROLLED
    for (int row = 0; row < STRIP; row++)
        load_line(totals.of_row[row], sums + row * COLUMNS);
    add_lines(&totals, a, pitch, lines, COLUMNS, count);
    UNROLLED
    for (int row = 0; row < STRIP; row++)
        UNROLLED
        for (int v = 0; v < F64_VECTORS; v++)
            store_f64(sums + row * COLUMNS + v * F64_LANES, totals.of_row[row][v]);
}

/* Compute the columns from `start` up to but not including `stop`, at most COLUMNS. */
NOT_INLINED void compute_columns(const fma_tile *tile, double *sums, double *lines, int64_t start, int64_t stop)
{
    int64_t height = tile->last_row - tile->first_row, width = stop - start;
    size_t bytes = (size_t)width * sizeof(double);
    for (int64_t i = 0; i < height; i++)
        memcpy(sums + i * COLUMNS, tile->c + (tile->first_row + i) * tile->width + start, bytes);
    for (int64_t first = 0; first < tile->depth; first += PANEL) {
        int64_t count = smaller(PANEL, tile->depth - first);
        for (int64_t k = 0; k < count; k++)
            memcpy(lines + k * COLUMNS, tile->b + (first + k) * tile->width + start, bytes);
        const double *a = (const double *)tile->a + tile->first_row * tile->depth + first;
        int64_t i = 0;
        for (; i + STRIP <= height; i += STRIP)
            add_panel(sums + i * COLUMNS, a + i * tile->depth, tile->depth, lines, count);
        if (i < height) {
            double rows[STRIP * PANEL] = {0}; /* rows past the end are 0, so that there are always STRIP */
            for (int64_t row = i; row < height; row++)
                memcpy(rows + (row - i) * PANEL, a + row * tile->depth, (size_t)count * sizeof(double));
            add_panel(sums + i * COLUMNS, rows, PANEL, lines, count);
        }
    }
    bool any_nan = false;
    for (int64_t i = 0; i < height; i++) {
        int64_t *out = tile->out + (tile->first_row + i) * tile->width + start;
        memcpy(out, sums + i * COLUMNS, bytes);
        for (int64_t j = 0; j < width; j++)
            any_nan |= is_nan(out[j]);
    }
    if (any_nan)
        recompute_nans(tile, start, stop);
}

ENTRY(fma_block)(const struct fma_arguments *p)
{
    const output_block *block = &p->block;
    int64_t height = block->last_row - block->first_row, all_rows = p->a.shape[1];
    int64_t depth = p->a.shape[2], width = p->b.shape[2];
    double *sums = calloc((size_t)((height + STRIP + PANEL) * COLUMNS), sizeof(double));
    if (!sums)
        return NO_MEMORY;
    double *lines = sums + (height + STRIP) * COLUMNS;
    control_word caller = enter_environment((int)p->direction);
    for (int64_t index = block->first_tile; index < block->last_tile; index++) {
        fma_tile tile = {
            .a = p->a.data + index * all_rows * depth,
            .b = p->b.data + index * depth * width,
            .c = p->c.data + index * all_rows * width,
            .out = p->out.data + index * all_rows * width,
            .depth = depth,
            .width = width,
            .first_row = block->first_row,
            .last_row = block->last_row,
        };
        for (int64_t start = block->first_column; start < block->last_column; start += COLUMNS)
            compute_columns(&tile, sums, lines, start, smaller(start + COLUMNS, block->last_column));
    }
    restore_environment(caller);
    free(sums);
    return 0;
}

#endif
