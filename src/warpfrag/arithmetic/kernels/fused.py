"""The truncated fused dot-product-add on whole matrices: step by step, strip by strip, block by block.

`strip` does a step for many outputs at once, `short_steps` does several steps of few products. What they do not cover
is done here from codes, by the scalar rule: outputs that meet an infinity or a NaN in a step, whose products lie
further than 62 binades below what their groups allow, or whose common exponent is near the ends of f32's range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.arithmetic.encodings import TO_F16_RN
from warpfrag.arithmetic.kernels.constants import IS_F16, IS_F32, Constants, unflatten, unflatten_block
from warpfrag.arithmetic.kernels.control_word import (
    TO_NEAREST,
    TOWARDS_ZERO,
    give_environment_back,
    take_environment,
    write_control_word,
)
from warpfrag.arithmetic.kernels.four_rows import STRIP
from warpfrag.arithmetic.kernels.jit import Array, Flag, Float, Int, entry, inlined, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f32, f32_of_bits
from warpfrag.arithmetic.kernels.prepare import (
    ANY_SPECIAL,
    BLOCK,
    LARGEST,
    ONE,
    SPECIAL,
    WIDE,
    ZERO,
    PreparedA,
    PreparedB,
    Source,
    group_scratch,
    padded,
    prepare_a,
    prepare_b,
    row_scratch,
    sign_words,
)
from warpfrag.arithmetic.kernels.rounding import read_accumulator, round_f16, write_accumulator
from warpfrag.arithmetic.kernels.scalar import Dot, fused_step
from warpfrag.arithmetic.kernels.short_steps import Panel, run_short_steps, to_f32, to_f64
from warpfrag.arithmetic.kernels.strip import (
    BIAS,
    FAR,
    LEAST_PAIR,
    MOST_COMMON,
    MOST_PAIR,
    NOT_PLAINLY,
    PLAINLY,
    TOP,
    Place,
    Scratch,
    Start,
    Strip,
    add_products,
    add_products_sparse,
    any_large,
    biased_exponent,
    find_far,
    find_largest,
    find_largest_sparse,
    group_of,
    group_size,
    keep_odd_rows,
    kept_bits,
    round_to_f16,
    start_of,
    strip_of,
)
from warpfrag.arithmetic.kernels.vector import address
from warpfrag.arithmetic.kernels.ways import LEAST_COMMON

PANEL = 32  # elements of a row of A, or one instruction's, whose rows of B stay in a near cache while many rows pass
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
    kept = f32_of_bits(np.int32(bits_of_f32(np.float32(value)) & mask)) + np.float32(0.0)
    return value if np.isnan(value) else np.float64(kept)


@inner
def keeps_c(c: Float, top: Int, pair: Int) -> Flag:
    """Whether a step keeps C: because it has no product but 0, or because C is infinite or NaN and no product is.

    `top` is the largest sum of relative exponents, `pair` the sum of the largest exponents they are relative to.
    """
    return (pair < ANY_SPECIAL) & ((top < np.int8(0)) | (biased_exponent(c) == np.int32(2047)))


@inner
def is_odd(c: Float, top: Int, pair: Int) -> Flag:
    """Whether the vector rule does not cover the sum of an output that has one."""
    exponent_c = np.int32(biased_exponent(c) - np.int32(BIAS))
    reach = max(np.int32(pair + np.int32(np.int32(top) - np.int32(TOP))), exponent_c)
    out_of_range = (pair >= ANY_SPECIAL) | (top <= FAR) | (reach < LEAST_COMMON) | (reach > MOST_COMMON)
    return out_of_range & (not keeps_c(c, top, pair))


class Span(NamedTuple):
    """The least and the most of some exponents."""

    least: Int
    most: Int


class OddRow(NamedTuple):
    """One odd row of a strip: where it is, and where its outputs are."""

    i: Int
    step: Int
    start: Int  # column of its first output
    width: Int
    own: Int  # where it is in the scratch
    at_held: Int
    at_group: Int


@inner
def strip_scratch(rows: Int, products: Int) -> Scratch:
    """For so many rows, and steps of so many products."""
    return Scratch(
        np.empty((min(rows, ROWS_AT_ONCE) + STRIP) * BLOCK, np.float64),
        np.empty(STRIP * BLOCK, np.float64),
        np.empty(STRIP * BLOCK, np.int8),
        np.empty(STRIP, np.int8),
        np.empty(STRIP * BLOCK, np.float64),
        np.empty(STRIP * products, np.uintp),
        np.empty((min(rows, ROWS_AT_ONCE) + STRIP) * BLOCK, np.float32),
        np.empty(STRIP * BLOCK, np.uint8),
        np.empty(STRIP * BLOCK, np.uint8),
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
        held[row.at_held + j] = kept if keeps_c(c, top, pair) else held[row.at_held + j]
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
            held[row.at_held + j] = fused_step(c, dot, constants)


@inlined
def find_lines(lines: Array, rows: Array, b_places: Array, base: Int, strip: Strip) -> None:
    """Where the lines of B are that the elements of a sparse A meet."""
    for row in range(STRIP):
        at_row, own = group_of(strip, row) * strip.place.products, np.uintp(row) * strip.place.products
        for k in range(strip.place.products):
            lines[own + k] = base + np.uintp(b_places[np.uintp(rows[at_row + k])]) * WIDE


@inlined
def run_step(
    held: Array,
    scratch: Scratch,
    a: PreparedA,
    b: PreparedB,
    constants: Constants,
    start: Start,
    may_be_far: Flag,
    strip: Strip,
) -> Flag:
    """One step of a strip, by addresses. The rounding mode is towards zero. Whether any row is odd."""
    tops, odd, lines = scratch.tops, scratch.odd, scratch.lines
    if constants.is_sparse:
        find_largest_sparse(tops, odd, a.relatives, b.relatives, lines, strip)
    else:
        find_largest(tops, odd, a.relatives, b.relatives, strip)
    if may_be_far:
        find_far(odd, tops, held, a.groups, b.groups, start, strip)
    any_odd = (odd[0] | odd[1] | odd[2] | odd[3]) != 0
    if any_odd:
        keep_odd_rows(scratch.before, odd, held, strip)
    kept = kept_bits(constants.round_to)
    if constants.is_sparse:
        add_products_sparse(held, tops, a, b, lines, start, kept, strip)
    elif start.is_plain:
        add_products(held, tops, a, b, start, kept, strip, PLAINLY)
    else:
        add_products(held, tops, a, b, start, kept, strip, NOT_PLAINLY)
    return any_odd


@inlined
def finish_with_c(accumulators: Array, at_c: Int, made: Array, to_f16: Flag, width: Int) -> None:
    """Add to C what the steps have made of 0, rounded to nearest in the accumulator's format."""
    for row in range(STRIP):
        own = np.uintp(row) * WIDE
        at_row = at_c + own
        if to_f16:
            for j in range(width):
                accumulators[at_row + j] = round_f16(accumulators[at_row + j] + made[own + j])
        else:
            for j in range(width):
                total = np.float32(accumulators[at_row + j]) + np.float32(made[own + j])
                accumulators[at_row + j] = np.float64(total)


@inner
def redo_odd_rows(
    held: Array,
    scratch: Scratch,
    a_groups: Array,
    b_groups: Array,
    source: Source,
    constants: Constants,
    strip: Strip,
) -> None:
    """The step again, for the odd rows of a strip."""
    start = strip.place.first_column
    width = np.uintp(min(BLOCK, source.b.shape[1] - start))
    for row in range(min(np.uintp(STRIP), strip.place.last_row + np.uintp(1) - strip.row)):
        if scratch.odd[row]:
            own, i = row * WIDE, strip.row + row
            again = OddRow(i, strip.step, start, width, own, strip.at_held + own, strip.at_group)
            largest = a_groups[group_of(strip, row) * group_size(strip) + LARGEST]
            redo_odd_row(held, scratch.before, scratch.tops, largest, b_groups, source, constants, again)


@inner
def with_group(span: Span, largest: Int) -> Span:
    """With the largest exponent of one more group, unless that is all 0."""
    return Span(min(span.least, SPECIAL if largest == ZERO else largest), max(span.most, largest))


@inner
def span_of_a(groups: Array, part: Part) -> Span:
    """Between which exponents the groups of some rows of A lie."""
    span = Span(SPECIAL, ZERO)
    for row in range(part.first_row, part.last_row):
        for step in range(groups.shape[1]):
            span = with_group(span, groups[row, step, LARGEST])
    return span


@inner
def span_of_b(groups: Array, first: Int, last: Int, lines: Int, width: Int) -> Span:
    """The same for some groups of a block of columns of B, by address."""
    span = Span(SPECIAL, ZERO)
    for group in range(first, last):
        for column in range(width):
            span = with_group(span, groups[group * lines * WIDE + column])
    return span


@inner
def far_pairs(a: Span, b: Span) -> Flag:
    """Whether any largest exponents of two groups come to less than LEAST_PAIR, or to more than MOST_PAIR."""
    return (np.int32(a.least + b.least) < LEAST_PAIR) | (np.int32(a.most + b.most) > MOST_PAIR)


@inlined
def run_short(scratch: Scratch, a: PreparedA, b: PreparedB, source: Source, constants: Constants, place: Place) -> None:
    """All steps, where they are short and no common exponent is out of range; by addresses."""
    strip_outputs = np.uintp(STRIP) * WIDE
    outputs = ((place.last_row - place.first_row) // np.uintp(STRIP) + ONE) * strip_outputs
    to_f32(scratch.held_f32, np.uintp(0), scratch.accumulators, np.uintp(0), outputs)
    for first_step in range(np.uintp(0), place.all_steps, place.at_once):
        last_step = min(place.all_steps, first_step + place.at_once)
        row, step = place.first_row, first_step
        while row <= place.last_row:
            panel = Panel(place, first_step, last_step, row, step)
            row, step, any_odd = run_short_steps(scratch, a, b, constants.fraction_bits, panel)
            if any_odd:
                write_control_word(TO_NEAREST)
                strip, at_held = strip_of(place, row, step - ONE, np.uintp(0)), (row - place.first_row) * WIDE
                to_f64(scratch.from_zero, np.uintp(0), scratch.held_f32, at_held, strip_outputs)
                redo_odd_rows(scratch.from_zero, scratch, a.groups, b.groups, source, constants, strip)
                to_f32(scratch.held_f32, at_held, scratch.from_zero, np.uintp(0), strip_outputs)
                write_control_word(TOWARDS_ZERO)
    to_f64(scratch.accumulators, np.uintp(0), scratch.held_f32, np.uintp(0), outputs)


@inlined
def run_steps(
    scratch: Scratch,
    a: PreparedA,
    b: PreparedB,
    source: Source,
    constants: Constants,
    place: Place,
    may_be_far: Flag,
) -> None:
    """All steps, by addresses."""
    accumulators, start = scratch.accumulators, start_of(constants, source.b_order.size // np.int64(place.all_steps))
    rows_met, b_places = address(source.rows), address(source.b_places)
    add_last, to_f16 = constants.adds_c_last != 0, constants.round_to == TO_F16_RN
    held = scratch.from_zero if add_last else accumulators  # what the steps add to
    steps = np.uintp(constants.steps)
    any_far = may_be_far
    for first_step in range(np.uintp(0), place.all_steps, place.at_once):
        for row in range(place.first_row, place.last_row + ONE, np.uintp(STRIP)):
            at_c = (row - place.first_row) * WIDE
            for step in range(first_step, min(place.all_steps, first_step + place.at_once)):
                strip = strip_of(place, row, step, np.uintp(0) if add_last else at_c)
                if add_last and step % steps == np.uintp(0):
                    for j in range(np.uintp(STRIP) * WIDE):
                        scratch.from_zero[j] = 0.0
                if constants.is_sparse:
                    find_lines(scratch.lines, rows_met, b_places, place.at_lines, strip)
                any_odd = run_step(held, scratch, a, b, constants, start, any_far, strip)
                ends = add_last and step % steps == steps - ONE
                if to_f16 or any_odd or ends:
                    write_control_word(TO_NEAREST)
                    if to_f16:
                        round_to_f16(held, strip)
                        any_far |= any_large(held, strip.at_held, np.uintp(STRIP) * WIDE)
                    if any_odd:
                        redo_odd_rows(held, scratch, a.groups, b.groups, source, constants, strip)
                    if ends:
                        to_d = constants.d_format == IS_F16
                        finish_with_c(accumulators, at_c, scratch.from_zero, to_d, place.width)
                    write_control_word(TOWARDS_ZERO)


@inner
def fused_part(
    a: PreparedA,
    b: PreparedB,
    source: Source,
    constants: Constants,
    c: Array,
    out: Array,
    scratch: Scratch,
    part: Part,
) -> None:
    """Run all steps for some rows, at most ROWS_AT_ONCE, and column blocks: codes of C in, codes of D out."""
    there = Scratch(
        address(scratch.accumulators),
        address(scratch.from_zero),
        address(scratch.tops),
        address(scratch.odd),
        address(scratch.before),
        address(scratch.lines),
        address(scratch.held_f32),
        address(scratch.exponents),
        address(scratch.below),
    )
    at_a = PreparedA(address(a.values), address(a.relatives), address(a.groups), address(a.group_bytes))
    at_b = PreparedB(address(b.values), address(b.relatives), address(b.groups), address(b.group_bytes))
    steps, all_steps = np.uintp(constants.steps), np.uintp(a.groups.shape[1])
    products, b_rows = np.uintp(constants.products), np.uintp(source.b_order.size)
    sign_words = np.uintp(a.groups.shape[2] // 2)
    at_once = max(ONE, np.uintp(PANEL) // (products * steps)) * steps
    first_row, last_row = np.uintp(part.first_row), np.uintp(part.last_row - 1)
    outputs = (last_row - first_row + ONE) * WIDE
    span_a = span_of_a(a.groups, part)
    for block in range(np.uintp(part.first_block), np.uintp(part.last_block)):
        first_column, first_group = np.int64(block) * BLOCK, block * all_steps
        width = np.uintp(padded(source.b.shape[1] - first_column))
        place = Place(
            first_row,
            last_row,
            all_steps,
            at_once,
            products,
            sign_words,
            block * b_rows * WIDE,
            first_group,
            first_column,
            width,
        )
        span_b = span_of_b(at_b.groups, first_group, first_group + all_steps, ONE + sign_words, width)
        read_c(c, constants, there.accumulators, part, block)
        any_far = far_pairs(span_a, span_b) | any_large(there.accumulators, np.uintp(0), outputs)
        write_control_word(TOWARDS_ZERO)
        if constants.is_short and not any_far:
            run_short(there, at_a, at_b, source, constants, place)
        else:
            run_steps(there, at_a, at_b, source, constants, place, any_far)
        write_control_word(TO_NEAREST)
        write_d(there.accumulators, constants, out, part, block)


@inlined
def read_c(codes: Array, constants: Constants, accumulators: Array, part: Part, block: Int) -> None:
    """C of a block of columns; those past N hold 1 at first, and what becomes of them is never read.

    A step makes +0 of -0; where it is a step that C enters, that is done here. Rows past the last are like it.
    """
    zero = np.float32(-0.0 if constants.adds_c_last != 0 else 0.0)  # to add -0 changes nothing
    start, every = block * WIDE, np.uintp(codes.shape[1])
    width = min(WIDE, every - start)
    source = address(codes)
    first_row, last_row = np.uintp(part.first_row), np.uintp(part.last_row - 1)
    for first in range(first_row, last_row + np.uintp(1), np.uintp(STRIP)):
        for row in range(first, first + np.uintp(STRIP)):
            real: Int = min(row, last_row)
            at_codes, at = real * every + start, (row - first_row) * WIDE
            if constants.c_format == IS_F16:
                for j in range(width):
                    accumulators[at + j] = np.float64(read_accumulator(source[at_codes + j], IS_F16) + zero)
            else:
                for j in range(width):
                    accumulators[at + j] = np.float64(read_accumulator(source[at_codes + j], IS_F32) + zero)
            for j in range(width, WIDE):
                accumulators[at + j] = 1.0


@inlined
def write_d(accumulators: Array, constants: Constants, codes: Array, part: Part, block: Int) -> None:
    """D's codes, for a block of columns."""
    start, every = block * WIDE, np.uintp(codes.shape[1])
    width = min(WIDE, every - start)
    target = address(codes)
    for row in range(np.uintp(part.first_row), np.uintp(part.last_row)):
        at_codes, at = row * every + start, (row - np.uintp(part.first_row)) * WIDE
        if constants.d_format == IS_F16:
            for j in range(width):
                target[at_codes + j] = write_accumulator(np.float32(accumulators[at + j]), IS_F16)
        else:
            for j in range(width):
                target[at_codes + j] = write_accumulator(np.float32(accumulators[at + j]), IS_F32)


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
    out: Array,
    part: Part,
) -> None:
    """Rows, at most ROWS_AT_ONCE, and blocks of columns of D."""
    constants = unflatten(numbers)
    scratch = strip_scratch(part.last_row - part.first_row, constants.products)
    caller = take_environment(TO_NEAREST)
    fused_part(a, b, source, constants, c, out, scratch, part)
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
    blocks = (width + BLOCK - 1) // BLOCK
    steps = order.size // constants.products
    words = sign_words(b_order.size // steps)
    zero = np.int64(0)  # a bare 0 would be a type of its own
    ready_a = PreparedA(
        np.empty((height, order.size), np.float64),
        np.empty((height, order.size), np.int32),
        np.empty((height, steps, 1 + 2 * words), np.int32),
        np.empty((height if constants.is_short else zero, steps, 1 + 2 * words), np.int32),
    )
    ready_b = PreparedB(
        np.empty(blocks * b_order.size * BLOCK, np.float64),
        np.empty(blocks * b_order.size * BLOCK, np.int8),
        np.empty(blocks * steps * (1 + words) * BLOCK, np.int32),
        np.empty(blocks * steps * (1 + words) * BLOCK if constants.is_short else zero, np.uint8),
    )
    rows = np.empty(columns.shape[1:], np.int32)
    of_row, of_group, of_strip = (
        row_scratch(order.size),
        group_scratch(b_order.size // steps),
        strip_scratch(height, constants.products),
    )
    caller = take_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        if columns.shape[0] > 0:
            find_rows_met(columns[tile], order, rows)
        source = Source(
            a[tile], b[tile], order, b_order, b_places, rows, tile_of(scale_a, tile), tile_of(scale_b, tile)
        )
        prepare_a(source, constants, ready_a, of_row, zero, height)
        prepare_b(source, constants, ready_b, of_group, zero, blocks)
        for first_row in range(zero, height, ROWS_AT_ONCE):
            some = Part(first_row, min(first_row + ROWS_AT_ONCE, height), zero, blocks)
            fused_part(ready_a, ready_b, source, constants, c[tile], out[tile], of_strip, some)
    give_environment_back(caller)
