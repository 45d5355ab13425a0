/* The innermost loop: products of a strip of rows of A with a few columns of B, added to sums in registers. */

#ifndef WARPFRAG_MULTIPLY_ADD_H
#define WARPFRAG_MULTIPLY_ADD_H

#include "tensorcore/kernels/vector.h"

#define STRIP 4                           /* number of rows of A that are processed together */
#define COLUMNS (F64_VECTORS * F64_LANES) /* number of columns of B that are processed together with a strip */

/* Sums of COLUMNS columns of the rows of a strip. */
typedef struct {
    f64v of_row[STRIP][F64_VECTORS];
} strip_sums;

/* Add the products at two consecutive k to the sums of a row. aarch64 multiplies by one lane of a register: two
   elements are loaded at once, and none is broadcast, which would take as long there as a multiplication. x86-64
   broadcasts an element while loading it, at no cost. */
INLINED void add_pair(f64v sums[F64_VECTORS], const double *a, const f64v line0[F64_VECTORS], const f64v line1[F64_VECTORS])
{
#ifdef __aarch64__
    float64x2_t pair = vld1q_f64(a);
    UNROLLED
    for (int v = 0; v < F64_VECTORS; v++)
        sums[v] = (f64v)vfmaq_laneq_f64((float64x2_t)sums[v], (float64x2_t)line0[v], pair, 0);
    UNROLLED
    for (int v = 0; v < F64_VECTORS; v++)
        sums[v] = (f64v)vfmaq_laneq_f64((float64x2_t)sums[v], (float64x2_t)line1[v], pair, 1);
#else
    UNROLLED
    for (int v = 0; v < F64_VECTORS; v++)
        sums[v] = multiply_add(splat_f64(a[0]), line0[v], sums[v]);
    UNROLLED
    for (int v = 0; v < F64_VECTORS; v++)
        sums[v] = multiply_add(splat_f64(a[1]), line1[v], sums[v]);
#endif
}

INLINED void load_line(f64v line[F64_VECTORS], const double *from)
{
    UNROLLED
    for (int v = 0; v < F64_VECTORS; v++)
        line[v] = load_f64(from + v * F64_LANES);
}

/* Add the products at `count` consecutive k, an even number, to the sums of every row, k ascending. Rows of A are
   `a_pitch` apart, lines of B are `b_pitch` apart. */
INLINED void add_lines(
    strip_sums *sums, const double *a, int64_t a_pitch, const double *b, int64_t b_pitch, int64_t count)
{
    for (int64_t k = 0; k < count; k += 2, b += 2 * b_pitch) {
        f64v line0[F64_VECTORS], line1[F64_VECTORS];
        load_line(line0, b);
        load_line(line1, b + b_pitch);
        UNROLLED
        for (int row = 0; row < STRIP; row++)
            add_pair(sums->of_row[row], a + row * a_pitch + k, line0, line1);
    }
}

#endif
