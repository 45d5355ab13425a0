"""The truncated fused dot-product-add on whole matrices: step by step, strip by strip, block by block.

`strip` does a step for many outputs at once. What it does not cover is done here from codes, by the scalar rule:
outputs that meet an infinity or a NaN in this step, whose products lie further than 62 binades below what their
groups allow, or whose common exponent is near the ends of f32's range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Real, Whole, entry, inner, woven
from warpfrag.arithmetic.kernels.llvm import TO_NEAREST, TOWARDS_ZERO, bits_of_f32, f32_of_bits, set_rounding
from warpfrag.arithmetic.kernels.prepare import ANY_SPECIAL, BLOCK, Ready, prepare_a, prepare_b
from warpfrag.arithmetic.kernels.rounding import read_accumulator, round_f16, write_accumulator
from warpfrag.arithmetic.kernels.scalar import fused_step
from warpfrag.arithmetic.kernels.strip import (
    FAR,
    LEAST_COMMON,
    MOST_COMMON,
    STRIP,
    TOP,
    WIDE,
    WIDE4,
    add_c,
    add_four,
    biased_exponent,
    largest_of_four,
    mark_far,
    over_sparse_strip,
    over_strip,
    round_to_f16,
    round_to_f32,
    start_sums,
)

PANEL = 16  # elements of a row of A, or one instruction's, whose rows of B stay in a near cache while many rows pass
ROWS_AT_ONCE = 256  # rows of A whose accumulators stay in the second cache while all panels of B pass


class Source(NamedTuple):
    """A product as it came: codes, which elements meet in which order, scale factors, and the numbers of its plan.

    `order` lists A's elements in the order of adding. `rows` is empty for a dense A; else rows[i, p] is the row of B
    that element `order[p]` of A's row i meets. Scale factors are exponents, and empty where there are none.
    """

    a: Array
    b: Array
    order: Array
    rows: Array
    scale_a: Array
    scale_b: Array
    numbers: Array


@inner
def cut_c(value: Real, fraction_bits: Whole) -> Real:
    """C after a step that keeps it: cut to the kept bits; -0 becomes +0."""
    mask = np.int32(-(1 << max(23 - fraction_bits, 0)))
    kept = f32_of_bits(np.int32(bits_of_f32(value) & mask)) + np.float32(0.0)
    return value if np.isnan(value) else kept


@inner
def keeps_c(c: Real, top: Whole, pair: Whole) -> Flag:
    """Whether a step keeps C: because it has no product but 0, or because C is infinite or NaN and no product is.

    `top` is the largest sum of relative exponents, `pair` the sum of the largest exponents they are relative to.
    """
    return (pair < ANY_SPECIAL) & ((top < np.int8(0)) | (biased_exponent(c) == np.int32(255)))


@inner
def is_odd(c: Real, top: Whole, pair: Whole) -> Flag:
    """Whether the vector rule does not cover the sum of an output that has one."""
    exponent_c = np.int32(biased_exponent(c) - np.int32(127))
    reach = max(np.int32(pair + np.int32(np.int32(top) - np.int32(TOP))), exponent_c)
    out_of_range = (pair >= ANY_SPECIAL) | (top <= FAR) | (reach < LEAST_COMMON) | (reach > MOST_COMMON)
    return out_of_range & (not keeps_c(c, top, pair))


@inner
def redo_odd_outputs(
    held: Array,
    at_line: Whole,
    before: Array,
    tops: Array,
    own: Whole,
    a_largest: Whole,
    b_largest: Array,
    at_group: Whole,
    source: Source,
    i: Whole,
    step: Whole,
    start: Whole,
    width: Whole,
) -> None:
    """The step again, by the scalar rule, for the outputs of row i that the vector rule does not cover.

    `before` is what the row held, `start` the column of its first output.
    """
    numbers = source.numbers
    any_odd = np.uint32(0)
    for j in range(width):  # no branch, as most odd rows have outputs that keep C, and nothing else
        c, top = before[own + j], tops[own + j]
        pair = np.int32(a_largest + b_largest[at_group + j])
        kept = cut_c(c, numbers[at.FRACTION_BITS])
        held[at_line + j] = kept if keeps_c(c, top, pair) else held[at_line + j]
        any_odd |= np.uint32(is_odd(c, top, pair))
    if any_odd == np.uint32(0):
        return
    first = step * numbers[at.PRODUCTS]
    last = first + numbers[at.PRODUCTS]
    instruction = step // numbers[at.STEPS]
    places = source.order[first:last]
    rows = source.rows[i, first:last] if source.rows.shape[0] > 0 else places
    least = numbers[at.C_EMIN]
    for j in range(width):
        c = before[own + j]
        if is_odd(c, tops[own + j], np.int32(a_largest + b_largest[at_group + j])):
            column = start + np.int64(j)
            scale = np.int64(0)
            if source.scale_a.size > 0:
                scale = np.int64(source.scale_a[i, instruction]) + np.int64(source.scale_b[instruction, column])
            exact = fused_step(np.float64(c), least, source.a[i], source.b, column, places, rows, scale, numbers)
            held[at_line + j] = np.float32(exact)


@woven
def finish_with_c(accumulators: Array, at_line: Whole, made: Array, own: Whole, to_f16: Flag, width: Whole) -> None:
    """Add to C what the steps have made of 0, rounded to nearest in the accumulator's format."""
    if to_f16:
        for j in range(width):
            total = np.float64(accumulators[at_line + j]) + np.float64(made[own + j])
            accumulators[at_line + j] = np.float32(round_f16(total))
    else:
        for j in range(width):
            accumulators[at_line + j] += made[own + j]


@entry
def fused_rows(  # noqa: C901, PLR0912, PLR0915 (one loop nest: naming its parts would count every array in and out)
    a: Ready,
    a_nonzero: Array,
    b: Ready,
    b_places: Array,
    source: Source,
    accumulators: Array,
    first_row: Whole,
    last_row: Whole,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """Run all steps for some rows and column blocks on `accumulators`: C on entry, D on return.

    b_places[row] is where a row of B lies among the lines of b. `accumulators` is [block, M, columns of a block]; the
    columns are a multiple of 8, so that vector code has no rest. `first_row` starts a strip, and `a` has elements for
    whole strips: what the rows past the last hold does not matter.
    """
    numbers, rows = source.numbers, source.rows
    sparse = rows.shape[0] > 0
    length, steps = numbers[at.PRODUCTS], numbers[at.STEPS]
    keep, floor = numbers[at.FRACTION_BITS], numbers[at.ZERO_EXPONENT]
    rounding = numbers[at.ROUND_TO]
    fraction = 13 if rounding == at.TO_E8M13_RZ else 23
    add_last = numbers[at.ADD_C_LAST] != 0
    to_f16 = numbers[at.D_FORMAT] == at.IS_F16
    least = numbers[at.C_EMIN] if numbers[at.C_FORMAT] == at.IS_F16 and numbers[at.C_EMIN] > -126 else -127
    all_steps = a.largest.shape[1]
    at_once = max(1, PANEL // (length * steps)) * steps
    blocks, height, stride = accumulators.shape
    flat = accumulators.reshape(-1)
    from_zero = np.empty(STRIP * BLOCK, np.float32)
    held = from_zero if add_last else flat  # what the steps add to
    next_line = WIDE if add_last else np.uintp(stride)
    before = np.empty(STRIP * BLOCK, np.float32)
    tops = np.empty(STRIP * BLOCK, np.int8)
    odd = np.empty(STRIP, np.int8)
    lines = np.empty((STRIP, length), np.uintp)
    words = np.empty(2 * STRIP * BLOCK, np.int32)
    sums = words.view(np.float64)
    for block in range(first_block, last_block):
        start = block * BLOCK
        base = np.uintp(block * (b.values.size // blocks))
        width = np.uintp(min(BLOCK, (source.b.shape[1] - start + 7) & -8))
        for first_step in range(0, all_steps, at_once):
            last_step = min(all_steps, first_step + at_once)
            for strip in range(first_row, last_row, STRIP):
                strip_rows = min(STRIP, last_row - strip)
                at_c = np.uintp((block * height + strip) * stride)
                at_line = np.uintp(0) if add_last else at_c
                for step in range(first_step, last_step):
                    first = step * length
                    last = first + length
                    at_first = base + np.uintp(first) * WIDE
                    at_group = np.uintp((block * all_steps + step) * BLOCK)
                    if add_last and step % steps == 0:
                        for j in range(WIDE4):
                            from_zero[j] = np.float32(0.0)
                    for row in range(STRIP):
                        for j in range(width):
                            tops[np.uintp(row) * WIDE + j] = np.int8(-128)
                    if sparse:
                        for row in range(strip_rows):
                            for k in range(length):
                                place = b_places[rows[strip + row, first + k]]
                                lines[row, k] = base + np.uintp(place) * WIDE
                        over_sparse_strip(
                            largest_of_four,
                            tops,
                            a.relatives,
                            strip,
                            first,
                            last,
                            b.relatives,
                            lines,
                            strip_rows,
                            width,
                        )
                    else:
                        over_strip(largest_of_four, tops, a.relatives, strip, first, last, b.relatives, at_first, width)
                    mark_far(odd, strip_rows, tops, width)
                    start_sums(
                        words,
                        odd,
                        strip_rows,
                        a,
                        a_nonzero,
                        strip,
                        step,
                        b,
                        at_group,
                        tops,
                        held,
                        at_line,
                        next_line,
                        least,
                        floor,
                        keep,
                        width,
                    )
                    for row in range(strip_rows):
                        if odd[row]:
                            at_row = at_line + np.uintp(row) * next_line
                            for j in range(width):
                                before[np.uintp(row) * WIDE + j] = held[at_row + j]
                    set_rounding(TOWARDS_ZERO)
                    if sparse:
                        over_sparse_strip(
                            add_four, sums, a.values, strip, first, last, b.values, lines, strip_rows, width
                        )
                    else:
                        over_strip(add_four, sums, a.values, strip, first, last, b.values, at_first, width)
                    if rounding == at.TO_F16_RN:
                        add_c(held, at_line, next_line, sums, strip_rows, width)
                    else:
                        round_to_f32(held, at_line, next_line, sums, strip_rows, fraction, width)
                    set_rounding(TO_NEAREST)
                    if rounding == at.TO_F16_RN:
                        round_to_f16(held, at_line, next_line, sums, strip_rows, width)
                    for row in range(strip_rows):
                        own = np.uintp(row) * WIDE
                        if odd[row]:
                            redo_odd_outputs(
                                held,
                                at_line + np.uintp(row) * next_line,
                                before,
                                tops,
                                own,
                                a.largest[strip + row, step],
                                b.largest,
                                at_group,
                                source,
                                strip + row,
                                step,
                                start,
                                np.uintp(min(BLOCK, source.b.shape[1] - start)),
                            )
                        if add_last and step % steps == steps - 1:
                            finish_with_c(flat, at_c + np.uintp(row * stride), from_zero, own, to_f16, width)


@entry
def read_c(
    codes: Array,
    numbers: Array,
    accumulators: Array,
    first_row: Whole,
    last_row: Whole,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """C as float32, block after block; columns past N hold 1 at first, and what becomes of them is never read.

    A step makes +0 of -0; where it is a step that C enters, that is done here.
    """
    add_last = numbers[at.ADD_C_LAST] != 0
    for block in range(first_block, last_block):
        start = block * BLOCK
        width = min(BLOCK, codes.shape[1] - start)
        for i in range(first_row, last_row):
            for j in range(width):
                value = read_accumulator(codes[i, start + j], numbers[at.C_FORMAT])
                accumulators[block, i, j] = value if add_last else value + np.float32(0.0)
            for j in range(width, accumulators.shape[2]):
                accumulators[block, i, j] = np.float32(1.0)


@entry
def write_d(
    accumulators: Array,
    numbers: Array,
    codes: Array,
    first_row: Whole,
    last_row: Whole,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """D's codes."""
    for block in range(first_block, last_block):
        start = block * BLOCK
        width = min(BLOCK, codes.shape[1] - start)
        for i in range(first_row, last_row):
            for j in range(width):
                codes[i, start + j] = write_accumulator(accumulators[block, i, j], numbers[at.D_FORMAT])


@entry
def rows_met(columns: Array, order: Array) -> Array:
    """For each row of a sparse A the rows of B its stored elements meet, in the order of adding."""
    met = np.empty(columns.shape, np.int32)
    for i in range(columns.shape[0]):
        for index in range(order.size):
            met[i, index] = columns[i, order[index]]
    return met


@entry
def fused_tiles(
    a: Array,
    b: Array,
    c: Array,
    columns: Array,
    scale_a: Array,
    scale_b: Array,
    order: Array,
    b_order: Array,
    b_places: Array,
    numbers: Array,
    out: Array,
    first_tile: Whole,
    last_tile: Whole,
) -> None:
    """Whole tiles one after the other; everything prepared here, for tiles too small to share among threads."""
    height, width = out.shape[1:]
    whole_strips = (height + STRIP - 1) // STRIP * STRIP
    blocks = (width + BLOCK - 1) // BLOCK
    steps = order.size // numbers[at.PRODUCTS]
    ready_a = Ready(
        np.empty((whole_strips, order.size), np.float64),
        np.empty((whole_strips, order.size), np.int8),
        np.empty((height, steps), np.int32),
        np.empty((height, steps), np.uint32),
    )
    ready_b = Ready(
        np.empty(blocks * b_order.size * BLOCK, np.float64),
        np.empty(blocks * b_order.size * BLOCK, np.int8),
        np.empty(blocks * steps * BLOCK, np.int32),
        np.empty(blocks * steps * BLOCK, np.uint32),
    )
    a_nonzero = np.empty((height, steps), np.uint32)
    accumulators = np.empty((blocks, height, min(BLOCK, (width + 7) & -8)), np.float32)
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile everything twice
    for tile in range(first_tile, last_tile):
        source = Source(
            a[tile],
            b[tile],
            order,
            rows_met(columns[tile], order) if columns.shape[0] > 0 else np.empty((0, 0), np.int32),
            scale_a[tile] if scale_a.shape[0] > 0 else np.empty((0, 0), np.int32),
            scale_b[tile] if scale_b.shape[0] > 0 else np.empty((0, 0), np.int32),
            numbers,
        )
        prepare_a(source.a, order, source.rows, b_places, source.scale_a, numbers, ready_a, a_nonzero, zero, height)
        prepare_b(source.b, b_order, steps, source.scale_b, numbers, ready_b, zero, blocks)
        read_c(c[tile], numbers, accumulators, zero, height, zero, blocks)
        for first_row in range(zero, height, ROWS_AT_ONCE):
            last_row = min(first_row + ROWS_AT_ONCE, height)
            fused_rows(ready_a, a_nonzero, ready_b, b_places, source, accumulators, first_row, last_row, zero, blocks)
        write_d(accumulators, numbers, out[tile], zero, height, zero, blocks)
