"""Steps that truncate no product, of rules that add C last: all that is left of them is multiply-adds.

A step drops the bits of products, and of what earlier steps have summed, below its grid. Elements of 8 bits have few:
every product of two e4m3 is a multiple of 2**-18, which is called a *unit* here (`Constants.unit_exponent`). Where no
exponent that a step may meet lies more than `fraction_bits` above the unit, its grid is at most a unit, and it drops
nothing. Then no exponent and no sign need be known: sums are exact, and are truncated once, to f32.

That holds for a block if every sum of one step is below 2**(fraction_bits + 1) units, which bounds the exponents of its
products as well. The sum of a step is at most the sum of the magnitudes of a group of A times the largest magnitude of
B: `is_exact`.

Sums start at 1.5 * 2**52 units, as in `strip` at so many grids, but rounded to nearest: B is larger by 2**-30 of itself
than it should be, and a 0 of it is 2**-500, which changes no product by half a unit. So nothing of this depends on
the signs of products, and the rounding mode stays what C needs.
"""

from __future__ import annotations

import numpy as np

from warpfrag.tensorcore.encodings import TO_F32_RZ
from warpfrag.tensorcore.kernels.constants import IS_F32, Constants
from warpfrag.tensorcore.kernels.jit import Array, Flag, Float, Int, inlined, inner
from warpfrag.tensorcore.kernels.prepare import PITCH, U1, VECTOR_LANES, PreparedA, PreparedB
from warpfrag.tensorcore.kernels.scalar import power_of_two
from warpfrag.tensorcore.kernels.sparse_steps import SECOND_PAIR, SPARSE_COLUMNS, SPARSE_ROWS, add_lines_sparse
from warpfrag.tensorcore.kernels.strip import (
    PITCH2,
    PITCH3,
    ROW0,
    BlockGeometry,
    Strip,
    elements_of,
    group_of,
    kept_bits,
    prefetch_elements,
    strip_of,
    truncate,
)
from warpfrag.tensorcore.kernels.vector import (
    COLUMNS,
    STRIP,
    ElementPointer,
    Lanes,
    add_lines,
    cast,
    load,
    splat,
    store,
)


@inner
def may_be_exact(constants: Constants) -> Flag:
    """Whether a rule has steps that may truncate no product."""
    plain = constants.d_format == IS_F32 and constants.round_to == TO_F32_RZ
    return constants.adds_c_last != 0 and plain


@inner
def largest_sum(values: Array, first: Int, last: Int, products: Int) -> Float:
    """The largest sum of the magnitudes of a group, in some rows of A."""
    largest = 0.0
    for row in range(first, last):
        for start in range(0, values.shape[1], products):
            total = 0.0
            for index in range(start, start + products):
                total += abs(values[row, index])
            largest = max(largest, total)
    return largest


@inner
def is_exact(constants: Constants, sum_a: Float, exponent_b: Int) -> Flag:
    """Whether no step truncates a product, from the largest sum of a group of A and the largest exponent of B."""
    limit = power_of_two(np.int32(constants.fraction_bits + 1 + constants.unit_exponent))
    return may_be_exact(constants) and sum_a * power_of_two(np.int32(exponent_b + 1)) <= limit


@inner
def finish_exact(c: Lanes, total: Lanes) -> Lanes:
    """What the steps have summed added to C, rounded to f32: twice, but two f32 in a float64 are rounded as if once."""
    return cast(cast(c + total, np.float32), np.float64)


@inlined
def run_exact_sparse(
    accumulators: ElementPointer,
    a: PreparedA[ElementPointer],
    b: ElementPointer,
    start: Lanes,
    kept: Int,
    steps: Int,
    strip: Strip,
) -> None:
    """The steps of one instruction for a strip of a sparse A."""
    products, zero = strip.geometry.products, splat(0.0, COLUMNS)
    for first in range(ROW0, np.uintp(STRIP), SPARSE_ROWS):
        second = first + SPARSE_ROWS - U1
        at1, at2 = strip.at_partials + first * PITCH, strip.at_partials + second * PITCH
        for j in range(np.uintp(0), strip.geometry.width, SPARSE_COLUMNS):
            second_pair, at_lines = j + SECOND_PAIR, strip.geometry.at_lines + j
            row1, row2 = group_of(strip, first) * products, group_of(strip, second) * products
            total0 = total1 = total2 = total3 = zero
            for _ in range(steps):
                totals = (total0 + start, total1 + start, total2 + start, total3 + start)
                total0, total1, total2, total3 = add_lines_sparse(totals, a, row1, row2, b, at_lines, products)
                total0, total1 = truncate(total0 - start, kept), truncate(total1 - start, kept)
                total2, total3 = truncate(total2 - start, kept), truncate(total3 - start, kept)
                row1, row2 = row1 + products, row2 + products
            for at, total in (
                (at1 + j, total0),
                (at1 + j + VECTOR_LANES, total1),
                (at2 + second_pair, total2),
                (at2 + second_pair + VECTOR_LANES, total3),
            ):
                store(accumulators, at, finish_exact(load(accumulators, at, COLUMNS), total))


@inlined
def run_exact_steps(
    accumulators: ElementPointer,
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    constants: Constants,
    geometry: BlockGeometry,
) -> None:
    """All steps of a block for which `is_exact` holds. The rounding mode is to nearest."""
    start = splat(1.5 * power_of_two(np.int32(52 + constants.unit_exponent)), COLUMNS)
    kept, zero, products = kept_bits(constants.round_to), splat(0.0, COLUMNS), geometry.products
    steps, step_lines = np.uintp(constants.steps), geometry.products * PITCH
    for first_step in range(np.uintp(0), geometry.all_steps, geometry.at_once):
        for row in range(geometry.first_row, geometry.last_row + U1, np.uintp(STRIP)):
            at_row = (row - geometry.first_row) * PITCH
            for step in range(first_step, min(geometry.all_steps, first_step + geometry.at_once), steps):
                strip = strip_of(geometry, row, step, at_row)
                prefetch_elements(a, strip, constants.is_sparse)
                if constants.is_sparse:
                    run_exact_sparse(accumulators, a, b.values, start, kept, steps, strip)
                    continue
                for j in range(np.uintp(0), geometry.width, np.uintp(COLUMNS)):
                    row0, row1, row2, row3 = elements_of(strip)
                    total0 = total1 = total2 = total3 = zero
                    line = strip.at_first + j
                    for _ in range(steps):
                        totals = (total0 + start, total1 + start, total2 + start, total3 + start)
                        rows = (row0, row1, row2, row3)
                        totals = add_lines(totals, a.values, rows, b.values, line, PITCH, products)
                        total0, total1, total2, total3 = totals
                        total0, total1 = truncate(total0 - start, kept), truncate(total1 - start, kept)
                        total2, total3 = truncate(total2 - start, kept), truncate(total3 - start, kept)
                        row0, row1, row2, row3 = row0 + products, row1 + products, row2 + products, row3 + products
                        line += step_lines
                    at = at_row + j
                    store(accumulators, at, finish_exact(load(accumulators, at, COLUMNS), total0))
                    store(accumulators, at + PITCH, finish_exact(load(accumulators, at + PITCH, COLUMNS), total1))
                    store(accumulators, at + PITCH2, finish_exact(load(accumulators, at + PITCH2, COLUMNS), total2))
                    store(accumulators, at + PITCH3, finish_exact(load(accumulators, at + PITCH3, COLUMNS), total3))
