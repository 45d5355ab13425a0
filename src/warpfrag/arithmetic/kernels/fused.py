"""The truncated fused dot-product-add on whole matrices.

For each row of A, block of columns and step:

1. the largest exponent of the products: a maximum over int8 sums (`largest_sums`);
2. with C's exponent, the power of two that puts every product on the common grid (`common_grid`);
3. each product scaled and converted to int32: the conversion *is* the truncation (`add_products`);
4. the exact sum in float64, rounded once (`round_line_f32`, `round_line_f16`).

No int32 overflows: sixteen f16 products, each at most (2 - 2**-10)**2 * 2**25, stay below 2**31, so they get a line of
their own; steps of 32 occur for fp8 and less only, where sixteen products and C together stay below 2**31 too.

A step whose products lie further than 60 binades below what its groups allow, whose common exponent is near the ends
of f32's range, or whose C is infinite or NaN, is done output by output in `scalar.fused_step`. Rows of A and columns
of B with infinities or NaNs are done again from the start in `scalar.fused_output`.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.casts import bits_of_f32, bits_of_f64, f32_of_bits, f64_of_bits
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Whole, entry, inner
from warpfrag.arithmetic.kernels.prepare import BLOCK, ZERO, prepare_a, prepare_b
from warpfrag.arithmetic.kernels.rounding import read_accumulator, round_f16, write_accumulator
from warpfrag.arithmetic.kernels.scalar import fused_output, fused_step

CHUNK = 16
K_AT_ONCE = 256  # rows of a block of B that stay in the second cache while the rows of A pass
FAR = np.int8(-60)
LEAST_COMMON = np.int32(-100)  # a grid 2**(-100 - 25) is still a normal f32
COMMON_RANGE = np.uint32(227)  # up to exponent 127

# The lines of one step share one int32 buffer (floats by their bits): LLVM checks at run time that what it writes does
# not overlap what it reads, and gives up where there are too many arrays to check. Indices are unsigned because a
# signed one might count from the end, which is no vector code.
WIDE = np.uintp(BLOCK)
WIDE2 = np.uintp(2 * BLOCK)
WIDE3 = np.uintp(3 * BLOCK)
WIDE4 = np.uintp(4 * BLOCK)
UP = np.uintp(0)  # factor from products to units of the grid
DOWN = np.uintp(BLOCK)  # the grid
C_KEPT = np.uintp(2 * BLOCK)  # C in units of the grid
TOTAL = np.uintp(3 * BLOCK)  # sum of products in units of the grid
LINES = 4 * BLOCK


@inner
def largest_sums(
    top: Array,
    a_relatives: Array,
    i: Whole,
    first: Whole,
    last: Whole,
    b_relatives: Array,
    base: Whole,
    width: Whole,
) -> None:
    """top[j] = max over k of a[i, k] + b[k, j]; B's line for k = first is at `base`. k counts in fours."""
    for j in range(width):
        top[j] = np.int8(-128)
    for k in range(first, last, 4):
        a0, a1 = a_relatives[i, k], a_relatives[i, k + 1]
        a2, a3 = a_relatives[i, k + 2], a_relatives[i, k + 3]
        for j in range(width):
            at_j = base + j
            low = max(np.int8(a0 + b_relatives[at_j]), np.int8(a1 + b_relatives[at_j + WIDE]))
            high = max(np.int8(a2 + b_relatives[at_j + WIDE2]), np.int8(a3 + b_relatives[at_j + WIDE3]))
            top[j] = max(top[j], low, high)
        base += WIDE4


@inner
def common_grid(
    line: Array,
    top: Array,
    b_largest: Array,
    base: Whole,
    a_largest: Whole,
    least: Whole,
    floor: Whole,
    keep: Whole,
    lines: Array,
    width: Whole,
) -> Flag:
    """For each output the factor that scales products to the grid, the grid itself and C on it; the sum starts at 0.

    Returns whether any output has products too far down, or a common exponent outside -100 ... 127, which C's
    infinities and NaNs are, too.
    """
    lowest = np.int32(least + 127)
    zero_exponent = np.int32(floor + 127)
    kept = np.int32(keep)
    pair_offset = np.int32(a_largest + 127)  # exponents are biased as in f32 from here on
    up_offset = np.int32(a_largest + keep + 254)
    first = np.int32(LEAST_COMMON + np.int32(127))
    odd = np.uint32(0)
    deepest = np.int32(0)
    for j in range(width):
        value = line[j]
        exponent_c = np.int32(np.int32(bits_of_f32(value) >> np.int32(23)) & np.int32(255))
        exponent_c = max(exponent_c, lowest) if exponent_c > np.int32(0) else exponent_c
        exponent_b = b_largest[base + j]
        relative = np.int32(top[j])
        deepest = min(deepest, relative)
        common = np.int32(np.int32(exponent_b + pair_offset) + relative)
        common = max(common, exponent_c, zero_exponent)
        odd = max(odd, np.uint32(np.int32(common - first)))
        shift = max(np.int32(np.int32(exponent_b + up_offset) - common), np.int32(27))
        grid = np.int32(common - kept)
        scaled = value * f32_of_bits(np.int32(np.int32(np.int32(254) - grid) << np.int32(23)))
        lines[UP + j] = np.int32(shift << np.int32(23))
        lines[DOWN + j] = np.int32(grid << np.int32(23))
        lines[C_KEPT + j] = np.int32(scaled)
        lines[TOTAL + j] = np.int32(0)
    return odd > COMMON_RANGE or deepest < np.int32(FAR)


@inner
def add_products(
    lines: Array,
    a_values: Array,
    i: Whole,
    first: Whole,
    last: Whole,
    b_values: Array,
    base: Whole,
    width: Whole,
) -> None:
    """lines[TOTAL + j] += sum over k of a[i, k] * b[k, j], each product cut to the grid. k and base as above."""
    k = first
    while k + 8 <= last:
        a0, a1, a2, a3 = a_values[i, k], a_values[i, k + 1], a_values[i, k + 2], a_values[i, k + 3]
        a4, a5, a6, a7 = a_values[i, k + 4], a_values[i, k + 5], a_values[i, k + 6], a_values[i, k + 7]
        for j in range(width):
            factor = f32_of_bits(lines[UP + j])
            at_j = base + j
            at_high = at_j + WIDE4
            kept = lines[TOTAL + j]
            kept = np.int32(kept + np.int32((a0 * b_values[at_j]) * factor))
            kept = np.int32(kept + np.int32((a1 * b_values[at_j + WIDE]) * factor))
            kept = np.int32(kept + np.int32((a2 * b_values[at_j + WIDE2]) * factor))
            kept = np.int32(kept + np.int32((a3 * b_values[at_j + WIDE3]) * factor))
            kept = np.int32(kept + np.int32((a4 * b_values[at_high]) * factor))
            kept = np.int32(kept + np.int32((a5 * b_values[at_high + WIDE]) * factor))
            kept = np.int32(kept + np.int32((a6 * b_values[at_high + WIDE2]) * factor))
            kept = np.int32(kept + np.int32((a7 * b_values[at_high + WIDE3]) * factor))
            lines[TOTAL + j] = kept
        base += WIDE4 + WIDE4
        k += 8
    if k < last:
        a0, a1, a2, a3 = a_values[i, k], a_values[i, k + 1], a_values[i, k + 2], a_values[i, k + 3]
        for j in range(width):
            factor = f32_of_bits(lines[UP + j])
            at_j = base + j
            kept = lines[TOTAL + j]
            kept = np.int32(kept + np.int32((a0 * b_values[at_j]) * factor))
            kept = np.int32(kept + np.int32((a1 * b_values[at_j + WIDE]) * factor))
            kept = np.int32(kept + np.int32((a2 * b_values[at_j + WIDE2]) * factor))
            kept = np.int32(kept + np.int32((a3 * b_values[at_j + WIDE3]) * factor))
            lines[TOTAL + j] = kept


@inner
def fold_total(lines: Array, width: Whole) -> None:
    """Make room for the next chunk of products: what is summed so far goes to C's share."""
    for j in range(width):
        lines[C_KEPT + j] = np.int32(lines[C_KEPT + j] + lines[TOTAL + j])
        lines[TOTAL + j] = np.int32(0)


@inner
def gather(
    source: Array,
    target: Array,
    base: Whole,
    rows: Array,
    i: Whole,
    first: Whole,
    last: Whole,
    width: Whole,
) -> None:
    """The lines of B that the elements first ... last of row i of a sparse A meet, one after the other."""
    for index in range(first, last):
        source_at = base + np.uintp(rows[i, index]) * WIDE
        target_at = np.uintp(index - first) * WIDE
        for j in range(width):
            target[target_at + j] = source[source_at + j]


@inner
def round_line_f32(line: Array, lines: Array, fraction: Whole, width: Whole) -> None:
    """Cut the sum to `fraction` bits after the leading one, towards zero, then put it back in place."""
    mask = np.int64(-(1 << (52 - fraction)))
    for j in range(width):
        exact = np.float64(lines[TOTAL + j]) + np.float64(lines[C_KEPT + j])
        line[j] = np.float32(f64_of_bits(bits_of_f64(exact) & mask)) * f32_of_bits(lines[DOWN + j])


@inner
def round_line_f16(line: Array, lines: Array, width: Whole) -> None:
    """Round the sum to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for j in range(width):
        exact = np.float64(lines[TOTAL + j]) + np.float64(lines[C_KEPT + j])
        exact *= np.float64(f32_of_bits(lines[DOWN + j]))
        exponent = max(np.int64((bits_of_f64(exact) >> 52) & 2047), np.int64(1009))
        shift = f64_of_bits(np.int64((exponent + 42) << 52) | np.int64(1 << 51))
        rounded = (exact + shift) - shift
        rounded = np.inf if rounded >= 65536.0 else rounded
        rounded = -np.inf if rounded <= -65536.0 else rounded
        line[j] = np.float32(rounded)


@inner
def keep_c(line: Array, fraction_bits: Whole, width: Whole) -> None:
    """A step without any product: C cut to the kept bits; -0 becomes +0."""
    mask = np.int32(-(1 << max(23 - fraction_bits, 0)))
    for j in range(width):
        value = line[j]
        kept = f32_of_bits(np.int32(bits_of_f32(value) & mask)) + np.float32(0.0)
        line[j] = value if np.isnan(value) else kept


@inner
def redo_odd_outputs(
    line: Array,
    before: Array,
    top: Array,
    b_largest: Array,
    base: Whole,
    a_largest: Whole,
    a_codes: Array,
    b_codes: Array,
    start: Whole,
    width: Whole,
    places: Array,
    rows: Array,
    scale_a: Array,
    scale_b: Array,
    i: Whole,
    instruction: Whole,
    numbers: Array,
) -> None:
    """The step again, by the scalar rule, for the outputs that the vector rule does not cover."""
    for j in range(width):
        value = before[j]
        exponent_c = ((bits_of_f32(value) >> 23) & 255) - 127
        reach = max(a_largest + b_largest[base + j] + top[j], exponent_c)
        if top[j] < FAR or reach < LEAST_COMMON or reach > 127:
            column = start + np.int64(j)
            scale = np.int64(0)
            if scale_a.size > 0:
                scale = np.int64(scale_a[i, instruction]) + np.int64(scale_b[instruction, column])
            least = numbers[at.C_EMIN]
            exact = fused_step(np.float64(value), least, a_codes, b_codes, column, places, rows, scale, numbers)
            line[j] = np.float32(exact)


@inner
def finish_with_c(line: Array, out: Array, to_f16: Flag, width: Whole) -> None:
    """out = C + line, rounded to nearest in the accumulator's format; `out` holds C."""
    if to_f16:
        for j in range(width):
            out[j] = np.float32(round_f16(np.float64(out[j]) + np.float64(line[j])))
    else:
        for j in range(width):
            out[j] = out[j] + line[j]


@entry
def fused_rows(  # noqa: C901, PLR0912, PLR0915 (one loop nest: naming its parts would count every array in and out)
    a_values: Array,
    a_relatives: Array,
    a_largest: Array,
    b_values: Array,
    b_relatives: Array,
    b_largest: Array,
    a_codes: Array,
    b_codes: Array,
    order: Array,
    rows: Array,
    scale_a: Array,
    scale_b: Array,
    numbers: Array,
    sums: Array,
    first_row: Whole,
    last_row: Whole,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """Run all steps for some rows and column blocks on `sums` [M, N], which holds C on entry and D on return.

    `order` lists A's elements in the order of adding. `rows` is empty for a dense A; else rows[i, p] is the row of B
    that element `order[p]` of A's row i meets. B's lines are flat, block after block (see `prepare_b`).
    """
    sparse = rows.shape[0] > 0
    length, steps = numbers[at.PRODUCTS], numbers[at.STEPS]
    keep, floor = numbers[at.FRACTION_BITS], numbers[at.ZERO_EXPONENT]
    rounding = numbers[at.ROUND_TO]
    fraction = 13 if rounding == at.TO_E8M13_RZ else 23
    add_last = numbers[at.ADD_C_LAST] != 0
    to_f16 = numbers[at.D_FORMAT] == at.IS_F16
    least = numbers[at.C_EMIN] if numbers[at.C_FORMAT] == at.IS_F16 and numbers[at.C_EMIN] > -126 else -127
    all_steps = a_largest.shape[1]
    at_once = max(1, K_AT_ONCE // (length * steps)) * steps
    blocks = (sums.shape[1] + BLOCK - 1) // BLOCK
    groups = b_largest.size // (blocks * BLOCK)
    line = np.empty(BLOCK, np.float32)
    before = np.empty(BLOCK, np.float32)
    top = np.empty(BLOCK, np.int8)
    lines = np.empty(LINES, np.int32)
    step_values = np.empty(length * BLOCK if sparse else 1, np.float32)
    step_relatives = np.empty(length * BLOCK if sparse else 1, np.int8)
    for block in range(first_block, last_block):
        start = block * BLOCK
        base = np.uintp(block * (b_values.size // blocks))
        width = np.uintp(min(BLOCK, sums.shape[1] - start))
        padded = np.uintp((np.int64(width) + 7) & -8)
        for j in range(width, padded):
            line[j] = np.float32(1.0)
        for first_step in range(0, all_steps, at_once):
            last_step = min(all_steps, first_step + at_once)
            for i in range(first_row, last_row):
                out = sums[i, start : start + np.int64(width)]
                for j in range(width):
                    line[j] = out[j]
                for step in range(first_step, last_step):
                    instruction = step // steps
                    if add_last and step == instruction * steps:
                        for j in range(padded):
                            line[j] = np.float32(0.0)
                    first = step * length
                    last = first + length
                    exponent = a_largest[i, step]
                    if exponent == ZERO:
                        keep_c(line, keep, width)
                    else:
                        group = instruction if sparse else step
                        at_group = np.uintp((block * groups + group) * BLOCK)
                        at_first = base + np.uintp(first) * WIDE
                        if sparse:
                            gather(b_values, step_values, base, rows, i, first, last, padded)
                            gather(b_relatives, step_relatives, base, rows, i, first, last, padded)
                            largest_sums(top, a_relatives, i, first, last, step_relatives, np.uintp(0), padded)
                        else:
                            largest_sums(top, a_relatives, i, first, last, b_relatives, at_first, padded)
                        odd = common_grid(line, top, b_largest, at_group, exponent, least, floor, keep, lines, padded)
                        if odd:
                            for j in range(width):
                                before[j] = line[j]
                        for done in range(first, last, CHUNK):
                            if done > first:
                                fold_total(lines, padded)
                            stop = min(done + CHUNK, last)
                            at_done = np.uintp(done - first) * WIDE
                            if sparse:
                                add_products(lines, a_values, i, done, stop, step_values, at_done, padded)
                            else:
                                add_products(lines, a_values, i, done, stop, b_values, at_first + at_done, padded)
                        if rounding == at.TO_F16_RN:
                            round_line_f16(line, lines, padded)
                        else:
                            round_line_f32(line, lines, fraction, padded)
                        if odd:
                            redo_odd_outputs(
                                line,
                                before,
                                top,
                                b_largest,
                                at_group,
                                exponent,
                                a_codes[i],
                                b_codes,
                                start,
                                width,
                                order[first:last],
                                rows[i, first:last] if sparse else order[first:last],
                                scale_a,
                                scale_b,
                                i,
                                instruction,
                                numbers,
                            )
                    if add_last and step == instruction * steps + steps - 1:
                        finish_with_c(line, out, to_f16, width)
                if not add_last:
                    for j in range(width):
                        out[j] = line[j]


@entry
def read_sums(codes: Array, numbers: Array, sums: Array, first_row: Whole, last_row: Whole) -> None:
    """C as float32."""
    for i in range(first_row, last_row):
        for j in range(sums.shape[1]):
            sums[i, j] = read_accumulator(codes[i, j], numbers[at.C_FORMAT])


@entry
def write_codes(
    sums: Array,
    a_flags: Array,
    b_flags: Array,
    a_codes: Array,
    b_codes: Array,
    c_codes: Array,
    order: Array,
    rows: Array,
    scale_a: Array,
    scale_b: Array,
    numbers: Array,
    out: Array,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Codes of D; outputs that meet an infinity or NaN of A or B are computed again, from codes."""
    for i in range(first_row, last_row):
        for j in range(out.shape[1]):
            if a_flags[i] or b_flags[j]:
                out[i, j] = fused_output(
                    a_codes[i],
                    b_codes,
                    c_codes[i, j],
                    j,
                    order,
                    rows[i] if rows.shape[0] > 0 else order,
                    scale_a,
                    scale_b,
                    i,
                    numbers,
                )
            else:
                out[i, j] = write_accumulator(sums[i, j], numbers[at.D_FORMAT])


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
    group: Whole,
    numbers: Array,
    out: Array,
    first_tile: Whole,
    last_tile: Whole,
) -> None:
    """Whole tiles one after the other; everything prepared here, for tiles too small to share among threads."""
    height = a.shape[1]
    width = b.shape[2]
    blocks = (width + BLOCK - 1) // BLOCK
    steps = order.size // numbers[at.PRODUCTS]
    a_values = np.empty((height, order.size), np.float32)
    a_relatives = np.empty((height, order.size), np.int8)
    a_largest = np.empty((height, steps), np.int32)
    a_flags = np.empty(height, np.uint8)
    b_values = np.empty(blocks * b_order.size * BLOCK, np.float32)
    b_relatives = np.empty(blocks * b_order.size * BLOCK, np.int8)
    b_largest = np.empty(blocks * (b_order.size // group) * BLOCK, np.int32)
    b_flags = np.empty(width, np.uint8)
    sums = np.empty((height, width), np.float32)
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile everything twice
    for tile in range(first_tile, last_tile):
        rows = rows_met(columns[tile], order) if columns.shape[0] > 0 else np.empty((0, 0), np.int32)
        tile_scale_a = scale_a[tile] if scale_a.shape[0] > 0 else np.empty((0, 0), np.int32)
        tile_scale_b = scale_b[tile] if scale_b.shape[0] > 0 else np.empty((0, 0), np.int32)
        b_flags[:] = 0
        prepare_a(a[tile], order, tile_scale_a, numbers, a_values, a_relatives, a_largest, a_flags, zero, height)
        prepare_b(
            b[tile], b_order, group, tile_scale_b, numbers, b_values, b_relatives, b_largest, b_flags, zero, blocks
        )
        read_sums(c[tile], numbers, sums, zero, height)
        fused_rows(
            a_values,
            a_relatives,
            a_largest,
            b_values,
            b_relatives,
            b_largest,
            a[tile],
            b[tile],
            order,
            rows,
            tile_scale_a,
            tile_scale_b,
            numbers,
            sums,
            zero,
            height,
            zero,
            blocks,
        )
        write_codes(
            sums,
            a_flags,
            b_flags,
            a[tile],
            b[tile],
            c[tile],
            order,
            rows,
            tile_scale_a,
            tile_scale_b,
            numbers,
            out[tile],
            zero,
            height,
        )
