"""The truncated fused dot-product-add on whole matrices: step by step, strip by strip, block by block.

`strip` does a step for many outputs at once. What it does not cover is done here from codes, by the scalar rule:
outputs that meet an infinity or a NaN in this step, whose products lie further than 62 binades below what their
groups allow, or whose common exponent is near the ends of f32's range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.encodings import TO_F16_RN
from warpfrag.arithmetic.kernels.constants import IS_F16, Constants, unflatten, unflatten_block
from warpfrag.arithmetic.kernels.control_word import (
    TO_NEAREST,
    TOWARDS_ZERO,
    give_environment_back,
    take_environment,
    write_control_word,
)
from warpfrag.arithmetic.kernels.jit import Array, Flag, Float, Int, entry, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.prepare import (
    ANY_SPECIAL,
    BLOCK,
    LARGEST,
    PreparedA,
    PreparedB,
    Source,
    group_scratch,
    prepare_a,
    prepare_b,
    row_scratch,
)
from warpfrag.arithmetic.kernels.rounding import read_accumulator, round_f16, write_accumulator
from warpfrag.arithmetic.kernels.scalar import Dot, fused_step
from warpfrag.arithmetic.kernels.strip import (
    FAR,
    LEAST_COMMON,
    MOST_COMMON,
    STRIP,
    TOP,
    WIDE,
    WIDE4,
    Strip,
    add_c,
    add_four,
    biased_exponent,
    keep_odd_rows,
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


class Part(NamedTuple):
    """Rows and blocks of columns of one tile; the first row starts a strip."""

    first_row: Int
    last_row: Int
    first_block: Int
    last_block: Int


@inner
def truncated_c(value: Float, fraction_bits: Int) -> Float:
    """C after a step that keeps it: truncated to the kept bits; -0 becomes +0."""
    mask = np.int32(-(1 << max(23 - fraction_bits, 0)))
    kept = f32_of_bits(np.int32(bits_of_f32(value) & mask)) + np.float32(0.0)
    return value if np.isnan(value) else kept


@inner
def keeps_c(c: Float, top: Int, pair: Int) -> Flag:
    """Whether a step keeps C: because it has no product but 0, or because C is infinite or NaN and no product is.

    `top` is the largest sum of relative exponents, `pair` the sum of the largest exponents they are relative to.
    """
    return (pair < ANY_SPECIAL) & ((top < np.int8(0)) | (biased_exponent(c) == np.int32(255)))


@inner
def is_odd(c: Float, top: Int, pair: Int) -> Flag:
    """Whether the vector rule does not cover the sum of an output that has one."""
    exponent_c = np.int32(biased_exponent(c) - np.int32(127))
    reach = max(np.int32(pair + np.int32(np.int32(top) - np.int32(TOP))), exponent_c)
    out_of_range = (pair >= ANY_SPECIAL) | (top <= FAR) | (reach < LEAST_COMMON) | (reach > MOST_COMMON)
    return out_of_range & (not keeps_c(c, top, pair))


class OddRow(NamedTuple):
    """One odd row of a strip: where it is, and where its outputs are."""

    i: Int
    step: Int
    start: Int  # column of its first output
    width: Int
    own: Int  # where it is in the scratch
    at_line: Int  # where it is in what is held
    at_group: Int


class Scratch(NamedTuple):
    """Room for one strip."""

    tops: Array  # largest sums of exponents
    odd: Array
    before: Array  # what odd rows held before the step
    words: Array  # the sums, as words
    lines: Array  # of a sparse A: where the line of B is that each element meets
    from_zero: Array  # what the outputs hold, where C is added last


@inner
def strip_scratch(products: Int) -> Scratch:
    """For steps of so many products."""
    return Scratch(
        np.empty(STRIP * BLOCK, np.int8),
        np.empty(STRIP, np.int8),
        np.empty(STRIP * BLOCK, np.float32),
        np.empty(2 * STRIP * BLOCK, np.int32),
        np.empty((STRIP, products), np.uintp),
        np.empty(STRIP * BLOCK, np.float32),
    )


@inner
def redo_odd_row(
    held: Array,
    before: Array,
    tops: Array,
    a_largest: Int,
    b_groups: Array,
    source: Source,
    constants: Constants,
    row: OddRow,
) -> None:
    """The step again, by the scalar rule, for the outputs of a row that the vector rule does not cover."""
    any_odd = np.uint32(0)
    for j in range(row.width):  # no branch, as most odd rows have outputs that keep C, and nothing else
        c, top = before[row.own + j], tops[row.own + j]
        pair = np.int32(a_largest + b_groups[row.at_group + j])
        kept = truncated_c(c, constants.fraction_bits)
        held[row.at_line + j] = kept if keeps_c(c, top, pair) else held[row.at_line + j]
        any_odd |= np.uint32(is_odd(c, top, pair))
    if any_odd == np.uint32(0):
        return
    first = row.step * constants.products
    last = first + constants.products
    instruction = row.step // constants.steps
    places = source.order[first:last]
    rows = source.rows[row.i, first:last] if source.rows.shape[0] > 0 else places
    for j in range(row.width):
        c = before[row.own + j]
        if is_odd(c, tops[row.own + j], np.int32(a_largest + b_groups[row.at_group + j])):
            column = row.start + np.int64(j)
            scale = np.int64(0)
            if source.scale_a.size > 0:
                scale = np.int64(source.scale_a[row.i, instruction]) + np.int64(source.scale_b[instruction, column])
            dot = Dot(source.a[row.i], source.b[:, column], places, rows, scale)
            held[row.at_line + j] = np.float32(fused_step(np.float64(c), dot, constants))


@inlined
def find_lines(lines: Array, rows: Array, b_places: Array, base: Int, strip: Strip) -> None:
    """Where the lines of B are that the elements of a sparse A meet."""
    for row in range(strip.rows):
        for k in range(strip.last - strip.first):
            place = b_places[rows[strip.first_row + row, strip.first + k]]
            lines[row, k] = base + np.uintp(place) * WIDE


@inlined
def find_largest(tops: Array, a: Array, b: Array, lines: Array, is_sparse: Flag, strip: Strip) -> None:
    """The largest sum of exponents of each output; `a` and `b` are relative exponents."""
    for row in range(STRIP):
        for j in range(strip.width):
            tops[np.uintp(row) * WIDE + j] = np.int8(-128)
    if is_sparse:
        over_sparse_strip(largest_of_four, tops, a, b, lines, strip)
    else:
        over_strip(largest_of_four, tops, a, b, strip)


@inlined
def add_products(
    held: Array, sums: Array, a: Array, b: Array, lines: Array, is_sparse: Flag, round_to: Int, strip: Strip
) -> None:
    """Products, C, and the rounding that ends the step: everything between the changes of the rounding mode."""
    write_control_word(TOWARDS_ZERO)
    if is_sparse:
        over_sparse_strip(add_four, sums, a, b, lines, strip)
    else:
        over_strip(add_four, sums, a, b, strip)
    if round_to == TO_F16_RN:
        add_c(held, sums, strip)
    else:
        round_to_f32(held, sums, round_to, strip)
    write_control_word(TO_NEAREST)
    if round_to == TO_F16_RN:
        round_to_f16(held, sums, strip)


@inlined
def finish_with_c(accumulators: Array, at_line: Int, made: Array, own: Int, to_f16: Flag, width: Int) -> None:
    """Add to C what the steps have made of 0, rounded to nearest in the accumulator's format."""
    if to_f16:
        for j in range(width):
            total = np.float64(accumulators[at_line + j]) + np.float64(made[own + j])
            accumulators[at_line + j] = np.float32(round_f16(total))
    else:
        for j in range(width):
            accumulators[at_line + j] += made[own + j]


@inlined
def fused_part(
    a: PreparedA,
    b: PreparedB,
    source: Source,
    constants: Constants,
    accumulators: Array,
    scratch: Scratch,
    part: Part,
) -> None:
    """Run all steps for some rows and column blocks on `accumulators`: C on entry, D on return.

    `accumulators` is [block, M, columns of a block]; the columns are a multiple of 8, so that vector code has no rest.
    `a` has elements for whole strips: what the rows past the last hold does not matter.
    """
    tops, odd, before, words, lines, from_zero = scratch
    a_values, a_relatives, a_groups = a
    b_values, b_relatives, b_groups = b
    rows_met, b_places = source.rows, source.b_places
    sums = words.view(np.float64)
    is_sparse = rows_met.shape[0] > 0
    add_last = constants.adds_c_last != 0
    all_steps = a_groups.shape[1]
    at_once = max(1, PANEL // (constants.products * constants.steps)) * constants.steps
    blocks, height, stride = accumulators.shape
    flat = accumulators.reshape(-1)
    held = from_zero if add_last else flat  # what the steps add to
    next_line = WIDE if add_last else np.uintp(stride)
    for block in range(part.first_block, part.last_block):
        start = block * BLOCK
        base = np.uintp(block * (b_values.size // blocks))
        columns = source.b.shape[1] - start
        width = np.uintp(min(BLOCK, (columns + 7) & -8))
        for first_step in range(0, all_steps, at_once):
            for first_row in range(part.first_row, part.last_row, STRIP):
                rows = min(STRIP, part.last_row - first_row)
                at_c = np.uintp((block * height + first_row) * stride)
                at_line = np.uintp(0) if add_last else at_c
                for step in range(first_step, min(all_steps, first_step + at_once)):
                    first = step * constants.products
                    last = first + constants.products
                    at_first = base + np.uintp(first) * WIDE
                    at_group = np.uintp((block * all_steps + step) * 2 * BLOCK)
                    strip = Strip(first_row, rows, step, first, last, at_first, at_group, width, at_line, next_line)
                    if add_last and step % constants.steps == 0:
                        for j in range(WIDE4):
                            from_zero[j] = np.float32(0.0)
                    if is_sparse:
                        find_lines(lines, rows_met, b_places, base, strip)
                    find_largest(tops, a_relatives, b_relatives, lines, is_sparse, strip)
                    mark_far(odd, tops, strip)
                    start_sums(words, odd, tops, held, a_groups, b_groups, constants, strip)
                    keep_odd_rows(before, odd, held, strip)
                    add_products(held, sums, a_values, b_values, lines, is_sparse, constants.round_to, strip)
                    for row in range(rows):
                        own = np.uintp(row) * WIDE
                        i = first_row + row
                        if odd[row]:
                            at_row = at_line + np.uintp(row) * next_line
                            again = OddRow(i, step, start, np.uintp(min(BLOCK, columns)), own, at_row, at_group)
                            largest = a_groups[i, step, LARGEST]
                            redo_odd_row(held, before, tops, largest, b_groups, source, constants, again)
                        if add_last and step % constants.steps == constants.steps - 1:
                            at_row = at_c + np.uintp(row * stride)
                            to_f16 = constants.d_format == IS_F16
                            finish_with_c(flat, at_row, from_zero, own, to_f16, width)


@inlined
def read_c(codes: Array, constants: Constants, accumulators: Array, part: Part) -> None:
    """C as float32, block after block; columns past N hold 1 at first, and what becomes of them is never read.

    A step makes +0 of -0; where it is a step that C enters, that is done here.
    """
    add_last = constants.adds_c_last != 0
    for block in range(part.first_block, part.last_block):
        start = block * BLOCK
        width = min(BLOCK, codes.shape[1] - start)
        for i in range(part.first_row, part.last_row):
            for j in range(width):
                value = read_accumulator(codes[i, start + j], constants.c_format)
                accumulators[block, i, j] = value if add_last else value + np.float32(0.0)
            for j in range(width, accumulators.shape[2]):
                accumulators[block, i, j] = np.float32(1.0)


@inlined
def write_d(accumulators: Array, constants: Constants, codes: Array, part: Part) -> None:
    """D's codes."""
    for block in range(part.first_block, part.last_block):
        start = block * BLOCK
        width = min(BLOCK, codes.shape[1] - start)
        for i in range(part.first_row, part.last_row):
            for j in range(width):
                codes[i, start + j] = write_accumulator(accumulators[block, i, j], constants.d_format)


@inlined
def find_rows_met(columns: Array, order: Array, met: Array) -> None:
    """For each row of a sparse A the rows of B its stored elements meet, in the order of adding."""
    for i in range(met.shape[0]):
        for index in range(order.size):
            met[i, index] = columns[i, order[index]]


@inner
def tile_of(batch: Array, tile: Int) -> Array:
    """One tile of a batch, which has none where there are no scale factors."""
    return batch[tile] if batch.shape[0] > 0 else batch.reshape((0, 0))


# Three kernels for one large tile: operands are prepared once, then blocks of outputs run on many threads.


@entry
def prepare_rows(source: Source, numbers: Array, ready: PreparedA, first: Int, last: Int) -> None:
    """Rows of A."""
    constants = unflatten(numbers)
    scratch = row_scratch(source.order.size)
    caller = take_environment(TO_NEAREST)
    prepare_a(source, constants, ready, scratch, first, last)
    give_environment_back(caller)


@entry
def prepare_blocks(source: Source, numbers: Array, ready: PreparedB, first: Int, last: Int) -> None:
    """Blocks of columns of B."""
    constants = unflatten(numbers)
    scratch = group_scratch(source.b_order.size // (source.order.size // constants.products))
    caller = take_environment(TO_NEAREST)
    prepare_b(source, constants, ready, scratch, first, last)
    give_environment_back(caller)


@entry
def fused_block(
    a: PreparedA,
    b: PreparedB,
    source: Source,
    numbers: Array,
    c: Array,
    accumulators: Array,
    out: Array,
    part: Part,
) -> None:
    """Rows and blocks of columns of D."""
    constants = unflatten(numbers)
    scratch = strip_scratch(constants.products)
    caller = take_environment(TO_NEAREST)
    read_c(c, constants, accumulators, part)
    fused_part(a, b, source, constants, accumulators, scratch, part)
    write_d(accumulators, constants, out, part)
    give_environment_back(caller)


@entry
def fused_tiles(
    a: Array,
    b: Array,
    c: Array,
    columns: Array,
    scale_a: Array,
    scale_b: Array,
    orders: Array,
    numbers: Array,
    out: Array,
    bounds: Array,
) -> None:
    """Whole tiles one after the other, for tiles too small to share among threads.

    `orders` are `order`, `b_order` and `b_places` of a Source, one after the other. The arguments are plain arrays, and
    no types of ours, because numba looks into a tuple at every call: one tile would take a third longer.
    """
    constants, block = unflatten(numbers), unflatten_block(bounds)
    stored, depth = a.shape[2], b.shape[1]
    order, b_order, b_places = orders[:stored], orders[stored : stored + depth], orders[stored + depth :]
    height, width = out.shape[1:]
    whole_strips = (height + STRIP - 1) // STRIP * STRIP
    blocks = (width + BLOCK - 1) // BLOCK
    steps = order.size // constants.products
    ready_a = PreparedA(
        np.empty((whole_strips, order.size), np.float64),
        np.empty((whole_strips, order.size), np.int8),
        np.empty((height, steps, 3), np.int32),
    )
    ready_b = PreparedB(
        np.empty(blocks * b_order.size * BLOCK, np.float64),
        np.empty(blocks * b_order.size * BLOCK, np.int8),
        np.empty(blocks * steps * 2 * BLOCK, np.int32),
    )
    accumulators = np.empty((blocks, height, min(BLOCK, (width + 7) & -8)), np.float32)
    rows = np.empty(columns.shape[1:], np.int32)
    of_row, of_group, of_strip = (
        row_scratch(order.size),
        group_scratch(b_order.size // steps),
        strip_scratch(constants.products),
    )
    zero = np.int64(0)  # a bare 0 would be a type of its own
    caller = take_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        if columns.shape[0] > 0:
            find_rows_met(columns[tile], order, rows)
        source = Source(
            a[tile], b[tile], order, b_order, b_places, rows, tile_of(scale_a, tile), tile_of(scale_b, tile)
        )
        prepare_a(source, constants, ready_a, of_row, zero, height)
        prepare_b(source, constants, ready_b, of_group, zero, blocks)
        whole = Part(zero, height, zero, blocks)
        read_c(c[tile], constants, accumulators, whole)
        for first_row in range(zero, height, ROWS_AT_ONCE):
            some = Part(first_row, min(first_row + ROWS_AT_ONCE, height), zero, blocks)
            fused_part(ready_a, ready_b, source, constants, accumulators, of_strip, some)
        write_d(accumulators, constants, out[tile], whole)
    give_environment_back(caller)
