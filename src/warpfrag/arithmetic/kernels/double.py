"""f64: a chain of fused multiply-adds, k ascending.

To nearest, the processor's own fused multiply-add does it, line by line. The directed roundings are done in
integers of three 64-bit words, wide enough for a product of 106 bits beside an addend that is shifted against it.
NaNs follow the tensor core's rule, not the processor's: an output that ends as NaN is walked through again.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels.compiled import Array, Flag, Whole, entry, inner, woven
from warpfrag.arithmetic.kernels.llvm import bits_of_f64, f64_of_bits, fused_multiply_add

NEAREST = 0
TO_ZERO = 1
DOWN = 2
UP = 3

SIGN = np.int64(-(1 << 63))
MAGNITUDE = np.int64((1 << 63) - 1)
INFINITY = np.int64(0x7FF << 52)
LARGEST_FINITE = np.int64((0x7FF << 52) - 1)
QUIET = np.int64(1 << 51)
MADE_NAN = np.int64(-(1 << 51))  # 0xFFF8000000000000
K_AT_ONCE = 16
COLUMNS_AT_ONCE = 256
TOP = 188  # where the leading bit of the larger part sits in the 192-bit window


@inner
def is_nan(bits: Whole) -> Flag:
    """Whether a code is a NaN."""
    return (bits & MAGNITUDE) > INFINITY


@inner
def bit_length(word: Whole) -> Whole:
    """Place of the leading one, counted from 1; 0 for 0."""
    length = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(width):
            word >>= np.uint64(width)
            length += width
    return length + (1 if word else 0)


@inner
def multiply_words(x: Whole, y: Whole) -> tuple[Whole, Whole]:
    """The 128-bit product, high word first."""
    half = np.uint64(0xFFFFFFFF)
    x_low, x_high = x & half, x >> np.uint64(32)
    y_low, y_high = y & half, y >> np.uint64(32)
    low = x_low * y_low
    middle = x_high * y_low + (low >> np.uint64(32))
    other = x_low * y_high + (middle & half)
    high = x_high * y_high + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    return high, (other << np.uint64(32)) | (low & half)


@inner
def place(high: Whole, low: Whole, shift: Whole) -> tuple[Whole, Whole, Whole]:
    """(high, low) * 2**shift in three words, high first; bits shifted out at the bottom leave a one at place 0."""
    zero = np.uint64(0)
    if shift <= -128:
        return zero, zero, np.uint64((high | low) != zero)
    if shift < 0:
        right = -shift
        lost = zero
        if right >= 64:
            lost = low
            low, high = high, zero
            right -= 64
        if right > 0:
            lost |= low << np.uint64(64 - right)
            low = (low >> np.uint64(right)) | (high << np.uint64(64 - right))
            high >>= np.uint64(right)
        return zero, high, low | np.uint64(lost != zero)
    top = zero
    while shift >= 64:
        top, high, low = high, low, zero
        shift -= 64
    if shift > 0:
        top = (top << np.uint64(shift)) | (high >> np.uint64(64 - shift))
        high = (high << np.uint64(shift)) | (low >> np.uint64(64 - shift))
        low = low << np.uint64(shift)
    return top, high, low


@inner
def round_window(negative: Flag, top: Whole, middle: Whole, low: Whole, exponent: Whole, rounding: Whole) -> Whole:
    """The code of a 192-bit magnitude whose place 0 weighs 2**exponent, by a directed rounding."""
    zero = np.uint64(0)
    if top != zero:
        length = 128 + bit_length(top)
    elif middle != zero:
        length = 64 + bit_length(middle)
    else:
        length = bit_length(low)
    last = max(length - 53, -1074 - exponent)  # place of the last bit kept
    if last <= 0:
        units, rest = low << np.uint64(-last), False
    elif last >= 192:
        units, rest = zero, True
    else:
        word = last >> 6
        bit = np.uint64(last & 63)
        first = low if word == 0 else (middle if word == 1 else top)
        second = middle if word == 0 else (top if word == 1 else zero)
        units = first >> bit
        if bit > 0:
            units |= second << (np.uint64(64) - bit)
        rest = (first & ((np.uint64(1) << bit) - np.uint64(1))) != zero
        if word >= 1:
            rest = rest or low != zero
        if word >= 2:
            rest = rest or middle != zero
    away = (rounding == DOWN and negative) or (rounding == UP and not negative)
    if rest and away:
        units += np.uint64(1)
    field = last + exponent + 1074
    code = np.int64(units) + (np.int64(field) << 52) if field < 2047 else INFINITY
    if code >= INFINITY:
        code = INFINITY if away else LARGEST_FINITE
    return code | SIGN if negative else code


@inner
def unpack(bits: Whole) -> tuple[Whole, Whole]:
    """Significand and the exponent of its last place, of a finite code."""
    field = (bits >> 52) & 2047
    significand = np.uint64(bits & np.int64((1 << 52) - 1))
    if field > 0:
        significand |= np.uint64(1 << 52)
    return significand, max(field, 1) - 1075


@inner
def directed_multiply_add(a: Whole, b: Whole, c: Whole, rounding: Whole) -> Whole:
    """a * b + c rounded once, for operands that are finite."""
    negative_product = (a ^ b) < 0
    negative_c = c < 0
    a_significand, a_place = unpack(a)
    b_significand, b_place = unpack(b)
    c_significand, c_place = unpack(c)
    high, low = multiply_words(a_significand, b_significand)
    zero = np.uint64(0)
    if high == zero and low == zero:
        if c_significand != zero:
            return c
        if negative_product == negative_c:
            return c
        return SIGN if rounding == DOWN else np.int64(0)
    product_length = 64 + bit_length(high) if high != zero else bit_length(low)
    product_place = a_place + b_place
    reach = product_place + product_length
    if c_significand != zero:
        reach = max(reach, c_place + bit_length(c_significand))
    exponent = reach - TOP
    p2, p1, p0 = place(high, low, product_place - exponent)
    c2, c1, c0 = place(zero, c_significand, c_place - exponent)
    if negative_product == negative_c:
        s0 = p0 + c0
        carry = np.uint64(s0 < p0)
        s1 = p1 + c1
        carry_out = np.uint64(s1 < p1)
        s1 += carry
        carry_out |= np.uint64(s1 < carry)
        return round_window(negative_product, p2 + c2 + carry_out, s1, s0, exponent, rounding)
    product_larger = p2 > c2 or (p2 == c2 and (p1 > c1 or (p1 == c1 and p0 >= c0)))
    if not product_larger:
        p2, p1, p0, c2, c1, c0 = c2, c1, c0, p2, p1, p0
    s0 = p0 - c0
    borrow = np.uint64(p0 < c0)
    s1 = p1 - c1
    borrow_out = np.uint64(p1 < c1)
    borrow_out |= np.uint64(s1 < borrow)
    s1 -= borrow
    s2 = p2 - c2 - borrow_out
    if s2 == zero and s1 == zero and s0 == zero:
        return SIGN if rounding == DOWN else np.int64(0)
    return round_window(negative_product if product_larger else negative_c, s2, s1, s0, exponent, rounding)


@inner
def multiply_add(a: Whole, b: Whole, c: Whole, rounding: Whole) -> Whole:
    """One link of the chain, with the tensor core's NaN rule: B's NaN before C's before A's, quieted."""
    if is_nan(b):
        return b | QUIET
    if is_nan(c):
        return c | QUIET
    if is_nan(a):
        return a | QUIET
    infinite = (a & MAGNITUDE) == INFINITY or (b & MAGNITUDE) == INFINITY or (c & MAGNITUDE) == INFINITY
    if infinite or rounding == NEAREST:
        result = bits_of_f64(fused_multiply_add(f64_of_bits(a), f64_of_bits(b), f64_of_bits(c)))
        return MADE_NAN if is_nan(result) else result
    return directed_multiply_add(a, b, c, rounding)


@woven
def nearest_block(
    a: Array,
    b_values: Array,
    source: Array,
    out: Array,
    sums: Array,
    i: Whole,
    start: Whole,
    stop: Whole,
    first: Whole,
    last: Whole,
) -> None:
    """Some k of one row and some columns, from the codes in `source` to those in `out`; k counts in fours."""
    for j in range(stop - start):
        sums[j] = f64_of_bits(source[i, start + j])
    for k in range(first, last, 4):
        a0, a1 = f64_of_bits(a[i, k]), f64_of_bits(a[i, k + 1])
        a2, a3 = f64_of_bits(a[i, k + 2]), f64_of_bits(a[i, k + 3])
        row0, row1 = b_values[k, start:stop], b_values[k + 1, start:stop]
        row2, row3 = b_values[k + 2, start:stop], b_values[k + 3, start:stop]
        for j in range(stop - start):
            total = fused_multiply_add(a0, row0[j], sums[j])
            total = fused_multiply_add(a1, row1[j], total)
            total = fused_multiply_add(a2, row2[j], total)
            sums[j] = fused_multiply_add(a3, row3[j], total)
    for j in range(stop - start):
        out[i, start + j] = bits_of_f64(sums[j])


@entry
def double_product(
    a: Array,
    b: Array,
    b_values: Array,
    c: Array,
    rounding: Whole,
    out: Array,
    first_row: Whole,
    last_row: Whole,
) -> None:
    """Rows of D; a, b, c and out are codes as int64, `b_values` is B again as float64."""
    depth, width = b.shape
    sums = np.empty(COLUMNS_AT_ONCE, np.float64)
    if rounding == NEAREST:
        for start in range(0, width, COLUMNS_AT_ONCE):
            stop = min(width, start + COLUMNS_AT_ONCE)
            for first in range(0, depth, K_AT_ONCE):
                last = min(depth, first + K_AT_ONCE)
                source = c if first == 0 else out
                for i in range(first_row, last_row):
                    nearest_block(a, b_values, source, out, sums, i, start, stop, first, last)
    for i in range(first_row, last_row):
        for j in range(width):
            if rounding != NEAREST or is_nan(out[i, j]):
                code = c[i, j]
                for k in range(depth):
                    code = multiply_add(a[i, k], b[k, j], code, rounding)
                out[i, j] = code


@entry
def double_tiles(
    a: Array,
    b: Array,
    b_values: Array,
    c: Array,
    rounding: Whole,
    out: Array,
    first_tile: Whole,
    last_tile: Whole,
) -> None:
    """Whole tiles one after the other."""
    zero = np.int64(0)  # a bare 0 would be a type of its own and compile the product twice
    for tile in range(first_tile, last_tile):
        double_product(a[tile], b[tile], b_values[tile], c[tile], rounding, out[tile], zero, a.shape[1])
