"""The truncated fused dot-product-add on whole matrices.

For each row of A, block of columns and step:

1. the largest exponent of the products: a maximum over int8 sums (`largest_sums`);
2. with C's exponent, the power of two that puts every product on the common grid (`common_grid`);
3. each product scaled and converted to int32: the conversion *is* the truncation (`add_four`);
4. the exact sum, rounded once (`round_line_f32`, `round_line_f16`).

No int32 overflows. Where C and all products might together reach 2**31, the step is *crowded* (`prepare_a` tells by
A's significands) and keeps part of its sum in a line of float64. Eight products always fit: the largest, those of
f16, are at most (2 - 2**-10)**2 * 2**25 each.

A step whose products lie further than 62 binades below what its groups allow, whose common exponent is near the ends
of f32's range, or whose C is infinite or NaN, is done output by output in `scalar.fused_step`. Rows of A and columns
of B with infinities or NaNs are done again from the start in `scalar.fused_output`.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.casts import bits_of_f32, bits_of_f64, f32_of_bits, f64_of_bits
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Real, Whole, entry, inner
from warpfrag.arithmetic.kernels.prepare import BLOCK, NEAREST, ZERO, prepare_a, prepare_b
from warpfrag.arithmetic.kernels.rounding import read_accumulator, round_f16, write_accumulator
from warpfrag.arithmetic.kernels.scalar import fused_output, fused_step

PANEL = 16  # rows of a block of B that stay in the first cache while many rows of A pass
ROWS_AT_ONCE = 256  # rows of A whose sums stay in the second cache while all panels of B pass
TOP = 2 * NEAREST  # the sum of two relative exponents that are the largest of their groups
FAR = np.int8(TOP - NEAREST)  # sums up to here may be too large: one of the two may have been raised to 0
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
TOTAL = np.uintp(2 * BLOCK)  # the sum in units of the grid
LINES = 3 * BLOCK


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
) -> Flag:
    """top[j] = max over k of a[i, k] + b[k, j]; B's line for k = first is at `base`. k counts in fours.

    Returns whether any of them cannot be relied on, or says that there is no product but 0.
    """
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
    deepest = np.int8(TOP)
    for j in range(width):
        deepest = min(deepest, top[j])
    return deepest <= FAR


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
    """For each output the factor that scales products to the grid, the grid itself, and C on it.

    Returns whether any output has a common exponent outside -100 ... 127, which C's infinities and NaNs are, too.
    """
    narrow = least > -127 or floor > LEAST_COMMON  # a floor further down is never reached here
    lowest = np.int32(least + 127)
    zero_exponent = np.int32(floor + 127)
    pair_offset = np.int32(a_largest + 127 - TOP)  # exponents are biased as in f32 from here on
    up_offset = np.int32(keep + 127 + TOP)
    down = np.int32(np.int32(-keep) << np.int32(23))
    inverse = np.int32(np.int32(254 + keep) << np.int32(23))
    first = np.int32(LEAST_COMMON + np.int32(127))
    odd = np.uint32(0)
    for j in range(width):
        value = line[j]
        exponent_c = np.int32(np.int32(bits_of_f32(value) >> np.int32(23)) & np.int32(255))
        if narrow:
            exponent_c = max(exponent_c, lowest) if exponent_c > np.int32(0) else exponent_c
            exponent_c = max(exponent_c, zero_exponent)
        pair = np.int32(b_largest[base + j] + pair_offset)
        common = max(np.int32(pair + np.int32(top[j])), exponent_c)
        odd = max(odd, np.uint32(np.int32(common - first)))
        shift = max(np.int32(np.int32(pair - common) + up_offset), np.int32(27))
        grid = np.int32(common << np.int32(23))
        lines[UP + j] = np.int32(shift << np.int32(23))
        lines[DOWN + j] = np.int32(grid + down)
        lines[TOTAL + j] = np.int32(value * f32_of_bits(np.int32(inverse - grid)))
    return odd > COMMON_RANGE


@inner
def add_four(
    total: Whole, factor: Real, b_values: Array, place: Whole, a0: Real, a1: Real, a2: Real, a3: Real
) -> Whole:
    """total + four products of one column, each cut to the grid."""
    total = np.int32(total + np.int32((a0 * b_values[place]) * factor))
    total = np.int32(total + np.int32((a1 * b_values[place + WIDE]) * factor))
    total = np.int32(total + np.int32((a2 * b_values[place + WIDE2]) * factor))
    return np.int32(total + np.int32((a3 * b_values[place + WIDE3]) * factor))


@inner
def add_products_4(
    lines: Array, a_values: Array, i: Whole, k: Whole, b_values: Array, base: Whole, width: Whole
) -> None:
    """lines[TOTAL + j] += the products a[i, k] * b[k, j] of four k, each cut to the grid; B's first is at `base`."""
    a0, a1, a2, a3 = a_values[i, k], a_values[i, k + 1], a_values[i, k + 2], a_values[i, k + 3]
    for j in range(width):
        factor = f32_of_bits(lines[UP + j])
        lines[TOTAL + j] = add_four(lines[TOTAL + j], factor, b_values, base + j, a0, a1, a2, a3)


@inner
def add_products_8(
    lines: Array, a_values: Array, i: Whole, k: Whole, b_values: Array, base: Whole, width: Whole
) -> None:
    """The same for eight k: sums and factors are read and written half as often."""
    a0, a1, a2, a3 = a_values[i, k], a_values[i, k + 1], a_values[i, k + 2], a_values[i, k + 3]
    a4, a5, a6, a7 = a_values[i, k + 4], a_values[i, k + 5], a_values[i, k + 6], a_values[i, k + 7]
    for j in range(width):
        factor = f32_of_bits(lines[UP + j])
        total = add_four(lines[TOTAL + j], factor, b_values, base + j, a0, a1, a2, a3)
        lines[TOTAL + j] = add_four(total, factor, b_values, base + j + WIDE4, a4, a5, a6, a7)


@inner
def set_aside(lines: Array, aside: Array, width: Whole) -> None:
    """Make room for the next chunk of products: what is summed so far goes aside."""
    for j in range(width):
        aside[j] += np.float64(lines[TOTAL + j])
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
    """Cut the sum to `fraction` bits after the leading one, towards zero, then put it back in place.

    The conversion to float32 rounds to nearest: where it went up, the float below is the one.
    """
    mask = np.int32(-(1 << (23 - fraction)))
    for j in range(width):
        total = lines[TOTAL + j]
        nearest = np.float32(total)
        went_up = np.int32(abs(np.int32(nearest))) > np.int32(abs(total))
        bits = bits_of_f32(nearest)
        bits = np.int32(bits - np.int32(1)) if went_up else bits
        line[j] = f32_of_bits(np.int32(bits & mask)) * f32_of_bits(lines[DOWN + j])


@inner
def round_wide_line_f32(line: Array, lines: Array, aside: Array, fraction: Whole, width: Whole) -> None:
    """The same for a sum of which a part was set aside."""
    mask = np.int64(-(1 << (52 - fraction)))
    for j in range(width):
        exact = np.float64(lines[TOTAL + j]) + aside[j]
        line[j] = np.float32(f64_of_bits(bits_of_f64(exact) & mask)) * f32_of_bits(lines[DOWN + j])


@inner
def round_line_f16(line: Array, lines: Array, aside: Array, width: Whole) -> None:
    """Round the sum to the nearest f16, ties to even: `rounding.round_f16` without branches, for finite sums."""
    for j in range(width):
        exact = np.float64(lines[TOTAL + j]) + aside[j]
        exact *= np.float64(f32_of_bits(lines[DOWN + j]))
        exponent = max(np.int64((bits_of_f64(exact) >> 52) & 2047), np.int64(1009))
        shift = f64_of_bits(np.int64((exponent + 42) << 52) | np.int64(1 << 51))
        rounded = (exact + shift) - shift
        rounded = np.inf if rounded >= 65536.0 else rounded
        rounded = -np.inf if rounded <= -65536.0 else rounded
        line[j] = np.float32(rounded)


@inner
def cut_c(value: Real, fraction_bits: Whole) -> Real:
    """C after a step without any product: cut to the kept bits; -0 becomes +0."""
    mask = np.int32(-(1 << max(23 - fraction_bits, 0)))
    kept = f32_of_bits(np.int32(bits_of_f32(value) & mask)) + np.float32(0.0)
    return value if np.isnan(value) else kept


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
        if top[j] < 0:
            line[j] = cut_c(before[j], numbers[at.FRACTION_BITS])
    for j in range(width):
        value = before[j]
        exponent_c = ((bits_of_f32(value) >> 23) & 255) - 127
        reach = max(a_largest + b_largest[base + j] + top[j] - TOP, exponent_c)
        if top[j] >= 0 and (top[j] <= FAR or reach < LEAST_COMMON or reach > 127):
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
    a_crowded: Array,
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
    """Run all steps for some rows and column blocks on `sums`, which holds C on entry and D on return.

    `order` lists A's elements in the order of adding. `rows` is empty for a dense A; else rows[i, p] is the row of B
    that element `order[p]` of A's row i meets. B's lines are flat, block after block (see `prepare_b`); `sums` is
    [block, M, columns of a block], a multiple of 8 of them (see `read_sums`).
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
    at_once = max(1, PANEL // (length * steps)) * steps
    blocks = sums.shape[0]
    groups = b_largest.size // (blocks * BLOCK)
    own_line = np.empty(BLOCK, np.float32)
    before = np.empty(BLOCK, np.float32)
    top = np.empty(BLOCK, np.int8)
    lines = np.empty(LINES, np.int32)
    aside = np.zeros(BLOCK, np.float64)  # all 0 between steps
    step_values = np.empty(length * BLOCK if sparse else 1, np.float32)
    step_relatives = np.empty(length * BLOCK if sparse else 1, np.int8)
    for block in range(first_block, last_block):
        start = block * BLOCK
        base = np.uintp(block * (b_values.size // blocks))
        width = np.uintp(min(BLOCK, (b_codes.shape[1] - start + 7) & -8))
        for first_step in range(0, all_steps, at_once):
            last_step = min(all_steps, first_step + at_once)
            for i in range(first_row, last_row):
                out = sums[block, i]
                line = own_line if add_last else out
                for step in range(first_step, last_step):
                    instruction = step // steps
                    if add_last and step == instruction * steps:
                        for j in range(width):
                            line[j] = np.float32(0.0)
                    first = step * length
                    last = first + length
                    exponent = a_largest[i, step]
                    if exponent == ZERO:
                        for j in range(width):
                            line[j] = cut_c(line[j], keep)
                    else:
                        group = instruction if sparse else step
                        at_group = np.uintp((block * groups + group) * BLOCK)
                        at_first = np.uintp(0) if sparse else base + np.uintp(first) * WIDE
                        if sparse:
                            gather(b_values, step_values, base, rows, i, first, last, width)
                            gather(b_relatives, step_relatives, base, rows, i, first, last, width)
                            far = largest_sums(top, a_relatives, i, first, last, step_relatives, at_first, width)
                        else:
                            far = largest_sums(top, a_relatives, i, first, last, b_relatives, at_first, width)
                        odd = common_grid(line, top, b_largest, at_group, exponent, least, floor, keep, lines, width)
                        if far or odd:
                            for j in range(width):
                                before[j] = line[j]
                        crowded = a_crowded[i, step] != 0
                        for k in range(first, last, 8):
                            at_k = at_first + np.uintp(k - first) * WIDE
                            if crowded:
                                set_aside(lines, aside, width)
                            # Four plain calls: going through one function more cost a twentieth of the speed.
                            if length == 4 and sparse:
                                add_products_4(lines, a_values, i, k, step_values, at_k, width)
                            elif length == 4:
                                add_products_4(lines, a_values, i, k, b_values, at_k, width)
                            elif sparse:
                                add_products_8(lines, a_values, i, k, step_values, at_k, width)
                            else:
                                add_products_8(lines, a_values, i, k, b_values, at_k, width)
                        if rounding == at.TO_F16_RN:
                            round_line_f16(line, lines, aside, width)
                        elif crowded:
                            round_wide_line_f32(line, lines, aside, fraction, width)
                        else:
                            round_line_f32(line, lines, fraction, width)
                        if crowded:
                            for j in range(width):
                                aside[j] = 0.0
                        if far or odd:
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
                                min(np.int64(width), b_codes.shape[1] - start),
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


@entry
def read_sums(
    codes: Array,
    numbers: Array,
    sums: Array,
    first_row: Whole,
    last_row: Whole,
    first_block: Whole,
    last_block: Whole,
) -> None:
    """C as float32, block after block; columns past N hold 1, which asks for nothing special."""
    for block in range(first_block, last_block):
        start = block * BLOCK
        width = min(BLOCK, codes.shape[1] - start)
        for i in range(first_row, last_row):
            for j in range(width):
                sums[block, i, j] = read_accumulator(codes[i, start + j], numbers[at.C_FORMAT])
            for j in range(width, sums.shape[2]):
                sums[block, i, j] = np.float32(1.0)


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
    first_block: Whole,
    last_block: Whole,
) -> None:
    """Codes of D; outputs that meet an infinity or NaN of A or B are computed again, from codes."""
    for block in range(first_block, last_block):
        start = block * BLOCK
        stop = min(start + BLOCK, out.shape[1])
        any_column = False
        for j in range(start, stop):
            any_column |= b_flags[j] != 0
        for i in range(first_row, last_row):
            for j in range(stop - start):
                out[i, start + j] = write_accumulator(sums[block, i, j], numbers[at.D_FORMAT])
            if not (a_flags[i] or any_column):
                continue
            for j in range(start, stop):
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
    a_crowded = np.empty((height, steps), np.uint8)
    a_flags = np.empty(height, np.uint8)
    b_values = np.empty(blocks * b_order.size * BLOCK, np.float32)
    b_relatives = np.empty(blocks * b_order.size * BLOCK, np.int8)
    b_largest = np.empty(blocks * (b_order.size // group) * BLOCK, np.int32)
    b_flags = np.empty(width, np.uint8)
    sums = np.empty((blocks, height, min(BLOCK, (width + 7) & -8)), np.float32)
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile everything twice
    for tile in range(first_tile, last_tile):
        rows = rows_met(columns[tile], order) if columns.shape[0] > 0 else np.empty((0, 0), np.int32)
        tile_scale_a = scale_a[tile] if scale_a.shape[0] > 0 else np.empty((0, 0), np.int32)
        tile_scale_b = scale_b[tile] if scale_b.shape[0] > 0 else np.empty((0, 0), np.int32)
        b_flags[:] = 0
        prepare_a(
            a[tile], order, tile_scale_a, numbers, a_values, a_relatives, a_largest, a_crowded, a_flags, zero, height
        )
        prepare_b(
            b[tile], b_order, group, tile_scale_b, numbers, b_values, b_relatives, b_largest, b_flags, zero, blocks
        )
        read_sums(c[tile], numbers, sums, zero, height, zero, blocks)
        for first_row in range(zero, height, ROWS_AT_ONCE):
            fused_rows(
                a_values,
                a_relatives,
                a_largest,
                a_crowded,
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
                first_row,
                min(first_row + ROWS_AT_ONCE, height),
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
            zero,
            blocks,
        )
