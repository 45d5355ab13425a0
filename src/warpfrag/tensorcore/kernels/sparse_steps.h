/* One step with a sparse A: as in `strip.h`, but each stored element multiplies its own line of B.

   Rows share no lines of B, so each multiply-add loads a line. With a dense A, several rows are processed together
   so that a line is loaded once; here one or two rows are processed with many columns, so that an element of A and
   the address of its line are loaded once. Elements of A come in pairs, and the addresses of a pair's lines are
   computed before the preceding pair is multiplied: otherwise processors would wait for an address, then for its
   line, at every element. The reads after the last pair of a row reach the next row, or the padding after the end of
   `a_lines`. */

#ifndef WARPFRAG_SPARSE_STEPS_H
#define WARPFRAG_SPARSE_STEPS_H

#include "tensorcore/kernels/strip.h"

typedef struct {
    f64v of_row[SPARSE_ROWS][SPARSE_VECTORS];
} sparse_sums;

/* Return the address of a line in a register. The assembly statement hides how the address was computed, so that the
   compiler computes it here and loads need no index. With an index, x86-64 splits a multiply-add with a memory operand
   into two operations. */
INLINED const double *line_of(const double *b, uint32_t line)
{
    const double *address = b + line;
    __asm__ volatile("" : "+r"(address));
    return address;
}

/* Add the products of one element of A with a line of B. */
INLINED void add_element(f64v sums[SPARSE_VECTORS], const double *a, const double *line)
{
    UNROLLED
    for (int v = 0; v < SPARSE_VECTORS; v++)
        sums[v] = multiply_add(splat_f64(*a), load_f64(line + v * F64_LANES), sums[v]);
}

/* Add the products of `count` elements, an even number; `b` is the start of the columns in the first line. */
INLINED void add_lines_sparse(
    sparse_sums *sums, const double *const a[SPARSE_ROWS], const uint32_t *const lines[SPARSE_ROWS], const double *b,
    int64_t count)
{
    const double *next[SPARSE_ROWS][2];
    UNROLLED
    for (int row = 0; row < SPARSE_ROWS; row++) {
        next[row][0] = line_of(b, lines[row][0]);
        next[row][1] = line_of(b, lines[row][1]);
    }
    for (int64_t k = 0; k < count; k += 2) {
        UNROLLED
        for (int row = 0; row < SPARSE_ROWS; row++) {
            const double *line0 = next[row][0], *line1 = next[row][1];
            next[row][0] = line_of(b, lines[row][k + 2]);
            next[row][1] = line_of(b, lines[row][k + 3]);
            add_element(sums->of_row[row], a[row] + k, line0);
            add_element(sums->of_row[row], a[row] + k + 1, line1);
        }
    }
}

/* The rows of a strip that are processed together: their elements of A, and the lines of B that these multiply. */
typedef struct {
    const double *a[SPARSE_ROWS];
    const uint32_t *lines[SPARSE_ROWS];
} sparse_rows;

INLINED sparse_rows sparse_rows_of(const double *a_values, const uint32_t *a_lines, int first, int64_t products)
{
    sparse_rows rows;
    UNROLLED
    for (int row = 0; row < SPARSE_ROWS; row++) {
        rows.a[row] = a_values + (first + row) * products;
        rows.lines[row] = a_lines + (first + row) * products;
    }
    return rows;
}

/* Compute the sums of a step, and truncate them; `variant` is WORD_START or GENERAL_START. */
INLINED void add_products_sparse(
    const strip_scratch *scratch, const strip_step *strip, const sum_start *start, int64_t kept,
    enum start_variant variant)
{
    for (int first = 0; first < STRIP; first += SPARSE_ROWS) {
        sparse_rows rows = sparse_rows_of(strip->a_values, strip->a_lines, first, strip->products);
        for (int64_t j = 0; j < strip->width; j += SPARSE_COLUMNS) {
            sparse_sums sums;
            UNROLLED
            for (int row = 0; row < SPARSE_ROWS; row++)
                UNROLLED
                for (int v = 0; v < SPARSE_VECTORS; v += 2)
                    start_sums(sums.of_row[row] + v, scratch, strip, start, first + row, j + v * F64_LANES, variant);
            add_lines_sparse(&sums, rows.a, rows.lines, strip->b_values + j, strip->products);
            UNROLLED
            for (int row = 0; row < SPARSE_ROWS; row++)
                UNROLLED
                for (int v = 0; v < SPARSE_VECTORS; v++) {
                    double *partials = strip->partials + (first + row) * BLOCK + j + v * F64_LANES;
                    store_f64(partials, truncate_sum(exact_sum(sums.of_row[row][v]), kept));
                }
        }
    }
}

#endif
