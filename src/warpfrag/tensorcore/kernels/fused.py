"""The truncated fused dot-product-add on whole matrices: step by step, strip by strip, block by block.

`strip` does a step for many outputs at once, `fast_steps` those with a sparse A, several steps of few products, and
steps that truncate no product. What they do not cover, *exceptional* outputs,
`exceptional` computes from codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warpfrag.tensorcore.encodings import TO_F16_RN
from warpfrag.tensorcore.kernels.constants import IS_F16, IS_F32, Constants, unflatten, unflatten_block
from warpfrag.tensorcore.kernels.control_word import (
    TO_NEAREST,
    TOWARDS_ZERO,
    enter_environment,
    restore_environment,
    write_control_word,
)
from warpfrag.tensorcore.kernels.exceptional import redo_exceptional_rows
from warpfrag.tensorcore.kernels.fast_steps import (
    StepPanel,
    add_products_sparse,
    find_max_exponents_sparse,
    is_exact,
    largest_sum,
    may_be_exact,
    run_exact_steps,
    run_short_steps,
    to_f32,
    to_f64,
)
from warpfrag.tensorcore.kernels.jit import Array, Flag, Int, entry, inlined, inner
from warpfrag.tensorcore.kernels.prepare import (
    BLOCK,
    EXPONENT_OF_SPECIAL,
    EXPONENT_OF_ZERO,
    MAX_EXPONENT,
    PITCH,
    U1,
    PreparedA,
    PreparedB,
    SourceOperands,
    group_scratch,
    padded,
    prepare_a,
    prepare_b,
    row_scratch,
    sign_words,
)
from warpfrag.tensorcore.kernels.scalar import read_accumulator, round_f16, write_accumulator
from warpfrag.tensorcore.kernels.strip import (
    FAST_START,
    GENERAL_START,
    MAX_PAIR_EXPONENT,
    MIN_PAIR_EXPONENT,
    WORD_START,
    BlockGeometry,
    Scratch,
    Strip,
    SumStart,
    add_products,
    any_large,
    find_max_exponents,
    find_out_of_range,
    kept_bits,
    prefetch_elements,
    round_to_f16,
    save_exceptional_rows,
    start_of,
    strip_of,
)
from warpfrag.tensorcore.kernels.vector import STRIP, ElementPointer, address

PANEL = 32  # elements of a row of A, or one instruction's, whose rows of B stay in a near cache while many rows pass
ROWS_AT_ONCE = 256  # rows of A whose accumulators stay in the second cache while all panels of B pass


class TilePart(NamedTuple):
    """Rows and blocks of columns of one tile; the first row starts a strip."""

    first_row: Int
    last_row: Int
    first_block: Int
    last_block: Int


class ExponentSpan(NamedTuple):
    """The smallest and largest of some exponents."""

    lowest: Int
    highest: Int


@inner
def strip_scratch(rows: Int) -> Scratch[Array]:
    """Return buffers for `rows` rows; floats begin as zeros, since unread subnormals would still slow x86."""
    return Scratch(
        accumulators=np.zeros((min(rows, ROWS_AT_ONCE) + STRIP) * BLOCK, np.float64),
        from_zero=np.zeros(STRIP * BLOCK, np.float64),
        max_exponents=np.empty(STRIP * BLOCK, np.int8),
        exceptional=np.empty(STRIP, np.int8),
        saved=np.zeros(STRIP * BLOCK, np.float64),
        partials_f32=np.zeros((min(rows, ROWS_AT_ONCE) + STRIP) * BLOCK, np.float32),
        exponents=np.empty(STRIP * BLOCK, np.uint8),
        negative_counts=np.empty(STRIP * BLOCK, np.uint8),
    )


@inlined
def run_step(
    partials: ElementPointer,
    scratch: Scratch[ElementPointer],
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    constants: Constants,
    start: SumStart,
    check_range: Flag,
    strip: Strip,
) -> Flag:
    """Run one step of a strip, with the rounding mode towards zero; return True if any row is exceptional."""
    max_exponents, exceptional = scratch.max_exponents, scratch.exceptional
    if constants.is_sparse:
        find_max_exponents_sparse(max_exponents, exceptional, a.relatives, b.relatives, a.lines, strip)
    else:
        find_max_exponents(max_exponents, exceptional, a.relatives, b.relatives, strip)
    if check_range:
        find_out_of_range(exceptional, max_exponents, partials, a.groups, b.groups, start, strip)
    any_exceptional = (exceptional[0] | exceptional[1] | exceptional[2] | exceptional[3]) != 0
    if any_exceptional:
        save_exceptional_rows(scratch.saved, exceptional, partials, strip)
    prefetch_elements(a, strip, constants.is_sparse)
    kept = kept_bits(constants.round_to)
    if constants.is_sparse and start.has_word:
        add_products_sparse(partials, max_exponents, a, b, start, kept, strip, WORD_START)
    elif constants.is_sparse:
        add_products_sparse(partials, max_exponents, a, b, start, kept, strip, GENERAL_START)
    elif start.is_fast:
        add_products(partials, max_exponents, a, b, start, kept, strip, FAST_START)
    else:
        add_products(partials, max_exponents, a, b, start, kept, strip, GENERAL_START)
    return any_exceptional


@inlined
def finish_with_c(accumulators: ElementPointer, at_c: Int, from_zero: ElementPointer, to_f16: Flag, width: Int) -> None:
    """Add what the steps have summed from zero to C, rounded to nearest in the accumulator's format."""
    for row in range(STRIP):
        own = np.uintp(row) * PITCH
        at_row = at_c + own
        if to_f16:
            for j in range(width):
                accumulators[at_row + j] = round_f16(accumulators[at_row + j] + from_zero[own + j])
        else:
            for j in range(width):
                total = np.float32(accumulators[at_row + j]) + np.float32(from_zero[own + j])
                accumulators[at_row + j] = np.float64(total)


@inner
def with_group(span: ExponentSpan, largest: Int) -> ExponentSpan:
    """Return the span extended by the largest exponent of a group, unless the group is all 0."""
    return ExponentSpan(
        min(span.lowest, EXPONENT_OF_SPECIAL if largest == EXPONENT_OF_ZERO else largest), max(span.highest, largest)
    )


@inner
def span_of_a(groups: Array, part: TilePart) -> ExponentSpan:
    """Return the span of the largest exponents of groups, in some rows of A."""
    span = ExponentSpan(EXPONENT_OF_SPECIAL, EXPONENT_OF_ZERO)
    for row in range(part.first_row, part.last_row):
        for step in range(groups.shape[1]):
            span = with_group(span, groups[row, step, MAX_EXPONENT])
    return span


@inner
def span_of_b(groups: ElementPointer, first: Int, last: Int, lines: Int, width: Int) -> ExponentSpan:
    """Return the span of the largest exponents of groups, in a block of columns of B."""
    span = ExponentSpan(EXPONENT_OF_SPECIAL, EXPONENT_OF_ZERO)
    for group in range(first, last):
        for column in range(width):
            span = with_group(span, groups[group * lines * PITCH + column])
    return span


@inner
def pairs_out_of_range(a: ExponentSpan, b: ExponentSpan) -> Flag:
    """Return True if any two groups' largest exponents sum to less than MIN_PAIR_EXPONENT or more than its MAX."""
    return (np.int32(a.lowest + b.lowest) < MIN_PAIR_EXPONENT) | (np.int32(a.highest + b.highest) > MAX_PAIR_EXPONENT)


@inlined
def run_short(
    scratch: Scratch[ElementPointer],
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    source: SourceOperands,
    constants: Constants,
    geometry: BlockGeometry,
) -> None:
    """Run all steps, if they are short and no common exponent can be out of range."""
    strip_outputs = np.uintp(STRIP) * PITCH
    outputs = ((geometry.last_row - geometry.first_row) // np.uintp(STRIP) + U1) * strip_outputs
    to_f32(scratch.partials_f32, np.uintp(0), scratch.accumulators, np.uintp(0), outputs)
    for first_step in range(np.uintp(0), geometry.all_steps, geometry.at_once):
        last_step = min(geometry.all_steps, first_step + geometry.at_once)
        row, step = geometry.first_row, first_step
        while row <= geometry.last_row:
            panel = StepPanel(geometry=geometry, first_step=first_step, last_step=last_step, row=row, step=step)
            row, step, any_exceptional = run_short_steps(scratch, a, b, constants.fraction_bits, panel)
            if any_exceptional:
                write_control_word(TO_NEAREST)
                strip, at_partials = strip_of(geometry, row, step - U1, np.uintp(0)), (row - geometry.first_row) * PITCH
                to_f64(scratch.from_zero, np.uintp(0), scratch.partials_f32, at_partials, strip_outputs)
                redo_exceptional_rows(scratch.from_zero, scratch, a.groups, b.groups, source, constants, strip)
                to_f32(scratch.partials_f32, at_partials, scratch.from_zero, np.uintp(0), strip_outputs)
                write_control_word(TOWARDS_ZERO)
    to_f64(scratch.accumulators, np.uintp(0), scratch.partials_f32, np.uintp(0), outputs)


@inlined
def run_steps(
    scratch: Scratch[ElementPointer],
    a: PreparedA[ElementPointer],
    b: PreparedB[ElementPointer],
    source: SourceOperands,
    constants: Constants,
    geometry: BlockGeometry,
    check_range: Flag,
) -> None:
    """Run all steps of any rule."""
    accumulators, start = scratch.accumulators, start_of(constants, source.b_order.size // np.int64(geometry.all_steps))
    add_last, to_f16 = constants.adds_c_last != 0, constants.round_to == TO_F16_RN
    partials = scratch.from_zero if add_last else accumulators  # the sums that the steps add to
    steps = np.uintp(constants.steps)
    must_check_range = check_range
    for first_step in range(np.uintp(0), geometry.all_steps, geometry.at_once):
        for row in range(geometry.first_row, geometry.last_row + U1, np.uintp(STRIP)):
            at_c = (row - geometry.first_row) * PITCH
            for step in range(first_step, min(geometry.all_steps, first_step + geometry.at_once)):
                strip = strip_of(geometry, row, step, np.uintp(0) if add_last else at_c)
                if add_last and step % steps == np.uintp(0):
                    for j in range(np.uintp(STRIP) * PITCH):
                        scratch.from_zero[j] = 0.0
                any_exceptional = run_step(partials, scratch, a, b, constants, start, must_check_range, strip)
                ends = add_last and step % steps == steps - U1
                if to_f16 or any_exceptional or ends:
                    write_control_word(TO_NEAREST)
                    if to_f16:
                        round_to_f16(partials, strip)
                        must_check_range |= any_large(partials, strip.at_partials, np.uintp(STRIP) * PITCH)
                    if any_exceptional:
                        redo_exceptional_rows(partials, scratch, a.groups, b.groups, source, constants, strip)
                    if ends:
                        to_d = constants.d_format == IS_F16
                        finish_with_c(accumulators, at_c, scratch.from_zero, to_d, geometry.width)
                    write_control_word(TOWARDS_ZERO)


@inner
def fused_part(
    a: PreparedA[Array],
    b: PreparedB[Array],
    source: SourceOperands,
    constants: Constants,
    c: Array,
    out: Array,
    scratch: Scratch[Array],
    part: TilePart,
) -> None:
    """Run all steps for some rows, at most ROWS_AT_ONCE, and column blocks: codes of C in, codes of D out."""
    addresses = Scratch(
        accumulators=address(scratch.accumulators),
        from_zero=address(scratch.from_zero),
        max_exponents=address(scratch.max_exponents),
        exceptional=address(scratch.exceptional),
        saved=address(scratch.saved),
        partials_f32=address(scratch.partials_f32),
        exponents=address(scratch.exponents),
        negative_counts=address(scratch.negative_counts),
    )
    at_a = PreparedA(
        values=address(a.values),
        relatives=address(a.relatives),
        groups=address(a.groups),
        group_bytes=address(a.group_bytes),
        lines=address(a.lines),
    )
    at_b = PreparedB(
        values=address(b.values),
        relatives=address(b.relatives),
        groups=address(b.groups),
        group_bytes=address(b.group_bytes),
    )
    steps, all_steps = np.uintp(constants.steps), np.uintp(a.groups.shape[1])
    products, b_rows = np.uintp(constants.products), np.uintp(source.b_order.size)
    sign_words = np.uintp(a.groups.shape[2] // 2)
    at_once = max(U1, np.uintp(PANEL) // (products * steps)) * steps
    first_row, last_row = np.uintp(part.first_row), np.uintp(part.last_row - 1)
    outputs = (last_row - first_row + U1) * PITCH
    span_a = span_of_a(a.groups, part)
    sum_a = largest_sum(a.values, part.first_row, part.last_row, constants.products) if may_be_exact(constants) else 0.0
    for block in range(np.uintp(part.first_block), np.uintp(part.last_block)):
        first_column, first_group = np.int64(block) * BLOCK, block * all_steps
        width = np.uintp(padded(source.b.shape[1] - first_column))
        geometry = BlockGeometry(
            first_row=first_row,
            last_row=last_row,
            all_steps=all_steps,
            at_once=at_once,
            products=products,
            sign_words=sign_words,
            at_lines=block * b_rows * PITCH,
            first_group=first_group,
            first_column=first_column,
            width=width,
        )
        span_b = span_of_b(at_b.groups, first_group, first_group + all_steps, U1 + sign_words, width)
        read_c(c, constants, addresses.accumulators, part, block)
        must_check_range = pairs_out_of_range(span_a, span_b) | any_large(addresses.accumulators, np.uintp(0), outputs)
        if not must_check_range and is_exact(constants, sum_a, span_b.highest):
            run_exact_steps(addresses.accumulators, at_a, at_b, constants, geometry)
        else:
            write_control_word(TOWARDS_ZERO)
            if constants.is_short and not must_check_range:
                run_short(addresses, at_a, at_b, source, constants, geometry)
            else:
                run_steps(addresses, at_a, at_b, source, constants, geometry, must_check_range)
            write_control_word(TO_NEAREST)
        write_d(addresses.accumulators, constants, out, part, block)


@inlined
def read_c(codes: Array, constants: Constants, accumulators: ElementPointer, part: TilePart, block: Int) -> None:
    """Read C of a block of columns; those past N hold 1 at first, and their results are never read.

    A step makes +0 of -0; where it is a step that C enters, that is done here. Rows past the last are like it.
    """
    zero = np.float32(-0.0 if constants.adds_c_last != 0 else 0.0)  # to add -0 changes nothing
    start, every = block * PITCH, np.uintp(codes.shape[1])
    width = min(PITCH, every - start)
    source = address(codes)
    first_row, last_row = np.uintp(part.first_row), np.uintp(part.last_row - 1)
    for first in range(first_row, last_row + np.uintp(1), np.uintp(STRIP)):
        for row in range(first, first + np.uintp(STRIP)):
            real: Int = min(row, last_row)
            at_codes, at = real * every + start, (row - first_row) * PITCH
            if constants.c_format == IS_F16:
                for j in range(width):
                    accumulators[at + j] = np.float64(read_accumulator(source[at_codes + j], IS_F16) + zero)
            else:
                for j in range(width):
                    accumulators[at + j] = np.float64(read_accumulator(source[at_codes + j], IS_F32) + zero)
            for j in range(width, PITCH):
                accumulators[at + j] = 1.0


@inlined
def write_d(accumulators: ElementPointer, constants: Constants, codes: Array, part: TilePart, block: Int) -> None:
    """Round the accumulators of a block of columns to D's codes."""
    start, every = block * PITCH, np.uintp(codes.shape[1])
    width = min(PITCH, every - start)
    target = address(codes)
    for row in range(np.uintp(part.first_row), np.uintp(part.last_row)):
        at_codes, at = row * every + start, (row - np.uintp(part.first_row)) * PITCH
        if constants.d_format == IS_F16:
            for j in range(width):
                target[at_codes + j] = write_accumulator(np.float32(accumulators[at + j]), IS_F16)
        else:
            for j in range(width):
                target[at_codes + j] = write_accumulator(np.float32(accumulators[at + j]), IS_F32)


@inlined
def find_rows_met(columns: Array, order: Array, met: Array) -> None:
    """Find, for each row of a sparse A, the rows of B that its stored elements meet, in the order of adding."""
    for i in range(met.shape[0]):
        for index in range(order.size):
            met[i, index] = columns[i, order[index]]


@inner
def tile_of(batch: Array, tile: Int) -> Array:
    """Return one tile of a batch of scale factors, or an empty array if the batch is empty."""
    return batch[tile] if batch.shape[0] > 0 else np.empty((0, 0), np.int32)


# Three kernels for one large tile: operands are prepared once, then blocks of outputs run on many threads.


@entry
def prepare_rows(source: SourceOperands, numbers: Array, ready: PreparedA[Array], first: Int, last: Int) -> None:
    """Prepare rows of A."""
    constants = unflatten(numbers)
    scratch = row_scratch(source.order.size)
    caller = enter_environment(TO_NEAREST)
    prepare_a(source, constants, ready, scratch, first, last)
    restore_environment(caller)


@entry
def prepare_blocks(source: SourceOperands, numbers: Array, ready: PreparedB[Array], first: Int, last: Int) -> None:
    """Prepare blocks of columns of B."""
    constants = unflatten(numbers)
    scratch = group_scratch(source.b_order.size // (source.order.size // constants.products))
    caller = enter_environment(TO_NEAREST)
    prepare_b(source, constants, ready, scratch, first, last)
    restore_environment(caller)


@entry
def fused_block(
    a: PreparedA[Array],
    b: PreparedB[Array],
    source: SourceOperands,
    numbers: Array,
    c: Array,
    out: Array,
    part: TilePart,
) -> None:
    """Compute rows, at most ROWS_AT_ONCE, and blocks of columns of D from prepared operands."""
    constants = unflatten(numbers)
    scratch = strip_scratch(part.last_row - part.first_row)
    caller = enter_environment(TO_NEAREST)
    fused_part(a, b, source, constants, c, out, scratch, part)
    restore_environment(caller)


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
    """Run whole tiles one after the other, for tiles too small to share among threads.

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
        values=np.empty((height, order.size), np.float64),
        relatives=np.empty((height, order.size), np.int32),
        groups=np.empty((height, steps, 1 + 2 * words), np.int32),
        group_bytes=np.empty((height if constants.is_short else zero, steps, 1 + 2 * words), np.int32),
        lines=np.empty((height + 1 if constants.is_sparse else zero, order.size), np.uint32),
    )
    ready_b = PreparedB(
        values=np.zeros(blocks * b_order.size * BLOCK, np.float64),
        relatives=np.empty(blocks * b_order.size * BLOCK, np.int8),
        groups=np.empty(blocks * steps * (1 + words) * BLOCK, np.int32),
        group_bytes=np.empty(blocks * steps * (1 + words) * BLOCK if constants.is_short else zero, np.uint8),
    )
    rows = np.empty(columns.shape[1:], np.int32)
    of_row, of_group, of_strip = (
        row_scratch(order.size),
        group_scratch(b_order.size // steps),
        strip_scratch(height),
    )
    caller = enter_environment(TO_NEAREST)
    for tile in range(block.first_tile, block.last_tile):
        if columns.shape[0] > 0:
            find_rows_met(columns[tile], order, rows)
        source = SourceOperands(
            a=a[tile],
            b=b[tile],
            order=order,
            b_order=b_order,
            b_places=b_places,
            rows=rows,
            scale_a=tile_of(scale_a, tile),
            scale_b=tile_of(scale_b, tile),
        )
        prepare_a(source, constants, ready_a, of_row, zero, height)
        prepare_b(source, constants, ready_b, of_group, zero, blocks)
        for first_row in range(zero, height, ROWS_AT_ONCE):
            some = TilePart(
                first_row=first_row, last_row=min(first_row + ROWS_AT_ONCE, height), first_block=zero, last_block=blocks
            )
            fused_part(ready_a, ready_b, source, constants, c[tile], out[tile], of_strip, some)
    restore_environment(caller)
