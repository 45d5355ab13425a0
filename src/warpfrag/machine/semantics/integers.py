"""Integer instructions on arrays of codes: all arithmetic wraps, except with .sat.

A code is an unsigned integer as wide as the type; `signedness` is "s" if it represents a signed integer, else "u".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warpfrag.machine.ir.scalar_types import Codes, container, signed
from warpfrag.machine.semantics.conversions import bit_length, limits


def values_of(a: Codes, signedness: str) -> Codes:
    """Return the integers that codes represent, signed or unsigned."""
    return signed(a) if signedness == "s" else a


def on_values(function: Callable[[Codes, Codes], Codes], signedness: str) -> Callable[[Codes, Codes], Codes]:
    """Return a function that applies `function` to the values of two codes, and returns the code of the result."""
    return lambda a, b: function(values_of(a, signedness), values_of(b, signedness)).view(a.dtype)


def width(a: Codes) -> int:
    """Return the width in bits of an array's codes."""
    return int(a.dtype.itemsize) * 8


def saturate(values: Codes, bits: int) -> Codes:
    """Clamp int64 values to the range of signed `bits`-bit integers."""
    low, high = limits("s", bits)
    return np.clip(values, low, high).astype(f"i{bits // 8}").view(f"u{bits // 8}")


def add_saturated(a: Codes, b: Codes) -> Codes:
    """add.sat.s32: return the clamped sum."""
    return saturate(signed(a).astype(np.int64) + signed(b), 32)


def subtract_saturated(a: Codes, b: Codes) -> Codes:
    """sub.sat.s32: return the clamped difference."""
    return saturate(signed(a).astype(np.int64) - signed(b), 32)


def add_carry(a: Codes, b: Codes, carry: Codes | None = None) -> tuple[Codes, Codes]:
    """Return the sum and its carry out."""
    total = a + b
    over = total < a
    if carry is not None:
        more = total + carry.astype(total.dtype)
        over = over | (more < total)
        total = more
    return total, over


def subtract_borrow(a: Codes, b: Codes, carry: Codes | None = None) -> tuple[Codes, Codes]:
    """Return the difference and the carry out of a + ~b + 1, which is set unless there is a borrow."""
    return add_carry(a, ~b, np.ones(a.shape, np.bool_) if carry is None else carry)


def multiply_high(a: Codes, b: Codes, signedness: str) -> Codes:
    """Return the upper half of the product."""
    bits = width(a)
    if bits < 64:
        wide = "i8" if signedness == "s" else "u8"
        product = values_of(a, signedness).astype(wide) * values_of(b, signedness).astype(wide)
        return (
            (product >> product.dtype.type(bits))
            .astype(f"i{bits // 8}" if signedness == "s" else a.dtype)
            .view(a.dtype)
        )
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if signedness == "s":
        high = high - np.where(signed(a) < 0, b, np.uint64(0)) - np.where(signed(b) < 0, a, np.uint64(0))
    return high


def multiply_wide(a: Codes, b: Codes, signedness: str) -> Codes:
    """Return the full product, with twice the width."""
    bits = width(a) * 2
    wide = f"{'i' if signedness == 's' else 'u'}{bits // 8}"
    return (values_of(a, signedness).astype(wide) * values_of(b, signedness).astype(wide)).view(f"u{bits // 8}")


def multiply_24(a: Codes, b: Codes, signedness: str, *, high: bool) -> Codes:
    """Return the low or high 32 bits of the 48-bit product of two 24-bit integers."""
    shift = np.int64(40)
    if signedness == "s":
        x, y = ((signed(v).astype(np.int64) << shift) >> shift for v in (a, b))
    else:
        x, y = (v.astype(np.int64) & np.int64(0xFFFFFF) for v in (a, b))
    product = x * y
    return ((product >> np.int64(16)) if high else product).astype(np.uint64).astype(np.uint32)


def divide(a: Codes, b: Codes, signedness: str, *, remainder: bool) -> Codes:
    """Return the quotient, truncated towards zero, or the remainder; division by zero gives all ones."""
    zero = b == 0
    x, y = values_of(a, signedness), np.where(zero, b.dtype.type(1), b)
    y = values_of(y, signedness)
    if signedness == "s":
        overflow = (x == limits("s", width(a))[0]) & (y == -1)
        y = np.where(overflow, y.dtype.type(1), y)  # INT_MIN / -1 wraps to INT_MIN, with remainder 0
        quotient = (np.abs(x).view(a.dtype) // np.abs(y).view(a.dtype)).view(x.dtype)
        quotient = np.where((x < 0) != (y < 0), -quotient, quotient)
        result = (x - quotient * y).view(a.dtype) if remainder else quotient.view(a.dtype)
    else:
        result = x % y if remainder else x // y
    ones = b.dtype.type((1 << width(b)) - 1)
    return np.where(zero, ones, result)


def shift_left(a: Codes, count: Codes) -> Codes:
    """Shift left; counts of at least the width give zero."""
    bits = width(a)
    shifted = a << np.minimum(count, np.uint32(bits - 1)).astype(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), shifted)


def shift_right(a: Codes, count: Codes, signedness: str) -> Codes:
    """Shift right; counts of at least the width give zeros or sign bits."""
    bits = width(a)
    clamped = np.minimum(count, np.uint32(bits - 1)).astype(a.dtype)
    if signedness == "s":
        return (signed(a) >> signed(clamped)).view(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), a >> clamped)


def funnel(a: Codes, b: Codes, c: Codes, *, left: bool, wrap: bool) -> Codes:
    """shf: shift b:a by c; return the upper 32 bits of a left shift or the lower 32 bits of a right shift."""
    count = (c & np.uint32(31)) if wrap else np.minimum(c, np.uint32(32))
    pair = b.astype(np.uint64) << np.uint64(32) | a
    n = count.astype(np.uint64)
    shifted = (pair << n) >> np.uint64(32) if left else pair >> n
    return shifted.astype(np.uint32)


def logic(a: Codes, b: Codes, c: Codes, table: int) -> Codes:
    """lop3: apply a function of three bits, given by its 8-bit truth table."""
    result = np.zeros_like(a)
    for index in range(8):
        if table >> index & 1:
            term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
            result |= term
    return result


def population(a: Codes) -> Codes:
    """popc: return the number of set bits."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Codes) -> Codes:
    """clz: return the number of leading zeros."""
    return (np.uint64(width(a)) - bit_length(a.astype(np.uint64))).astype(np.uint32)


def find_leading(a: Codes, signedness: str, *, shift_amount: bool) -> Codes:
    """bfind: return the position of the leading non-sign bit, or all ones if there is none."""
    values = np.where(signed(a) < 0, ~a, a) if signedness == "s" else a
    length = bit_length(values.astype(np.uint64)).astype(np.int64)
    position = width(a) - length if shift_amount else length - 1
    return np.where(length == 0, np.uint32(0xFFFFFFFF), position.astype(np.uint32))


def reverse_bits(a: Codes) -> Codes:
    """brev: return the bits in reverse order."""
    bits = width(a)
    result = np.zeros_like(a)
    for place in range(bits):
        result |= ((a >> a.dtype.type(place)) & a.dtype.type(1)) << a.dtype.type(bits - 1 - place)
    return result


def _field_of(count: Codes, bits: int) -> Codes:
    """Return a bit-field position or length: the low byte of a 32-bit operand, or a 64-bit operand clamped to 255."""
    return count & np.uint32(0xFF) if bits == 32 else np.minimum(count, np.uint32(255))


def extract_field(a: Codes, start: Codes, length: Codes, signedness: str) -> Codes:
    """bfe: return `length` bits from bit `start`, sign-extended or zero-extended."""
    bits = width(a)
    position, count = _field_of(start, bits), _field_of(length, bits)
    low = shift_right(a, position, "u")
    kept = np.where(count >= bits, low, low & (shift_left(np.ones_like(a), count) - a.dtype.type(1)))
    if signedness == "u":
        return kept
    top = np.minimum(position.astype(np.int64) + count - 1, bits - 1)
    sign = (a >> np.maximum(top, 0).astype(a.dtype)) & a.dtype.type(1)
    sign = np.where(count == 0, a.dtype.type(0), sign)
    ones = ~a.dtype.type(0) * np.ones_like(a)
    available = np.maximum(np.minimum(count.astype(np.int64), bits - np.minimum(position, bits).astype(np.int64)), 0)
    fill = shift_left(ones, available.astype(np.uint32))
    return np.where(sign != 0, kept | fill, kept)


def insert_field(a: Codes, b: Codes, start: Codes, length: Codes) -> Codes:
    """bfi: return b with a's low bits inserted at `start`."""
    bits = width(a)
    position, count = _field_of(start, bits), _field_of(length, bits)
    ones = shift_left(np.ones_like(a), count) - a.dtype.type(1)
    ones = np.where(count >= bits, ~a.dtype.type(0), ones)
    mask = shift_left(ones, position)
    return (b & ~mask) | (shift_left(a, position) & mask)


def bit_mask(a: Codes, b: Codes, *, wrap: bool) -> Codes:
    """bmsk: return a mask of b ones that starts at bit position a."""
    start, count = (a & np.uint32(31), b & np.uint32(31)) if wrap else (a, b)
    ones = shift_left(np.ones_like(a), count) - np.uint32(1)
    ones = np.where(count >= 32, np.uint32(0xFFFFFFFF), ones)
    return shift_left(ones, start)


def extend(a: Codes, b: Codes, signedness: str, *, wrap: bool) -> Codes:
    """szext: return the low b bits of a, extended to 32 bits."""
    count = (b & np.uint32(31)) if wrap else np.minimum(b, np.uint32(32))
    kept = np.where(count >= 32, a, a & (shift_left(np.ones_like(a), count) - np.uint32(1)))
    if signedness == "u":
        return kept
    sign = np.where(count == 0, np.uint32(0), shift_right(a, np.maximum(count, np.uint32(1)) - np.uint32(1), "u"))
    fill = shift_left(np.full_like(a, 0xFFFFFFFF), count)
    return np.where((sign & np.uint32(1)) != 0, kept | fill, kept)


def find_nth(mask: Codes, base: Codes, offset: Codes) -> Codes:
    """fns: return the position of the `offset`-th set bit up or down from `base`, or all ones if there is none."""

    def find(bits: int, start: int, count: int) -> int:
        count = count - (1 << 32) if count >> 31 else count
        if count == -(1 << 31):
            return 0  # measured on a GPU
        if count == 0:
            return start if start < 32 and bits >> start & 1 else 0xFFFFFFFF
        step, left = (1, count) if count > 0 else (-1, -count)
        at = start
        while 0 <= at < 32:
            left -= bits >> at & 1
            if left == 0:
                return at
            at += step
        return 0xFFFFFFFF

    flat = [find(int(m), int(s), int(n)) for m, s, n in zip(mask.flat, base.flat, offset.flat, strict=True)]
    return np.array(flat, np.uint32).reshape(mask.shape)


def permute_bytes(a: Codes, b: Codes, c: Codes, mode: str) -> Codes:
    """prmt: return four selected bytes of b:a; in the default mode, bit 3 of a selector replicates the sign."""
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    result = np.zeros_like(a)
    for index in range(4):
        sign: Codes = np.zeros(c.shape, np.bool_)
        if mode:
            chosen = c & np.uint32(3)
            place = PERMUTE_MODES[mode](chosen.astype(np.int64), index)
        else:
            selector = (c >> np.uint32(4 * index)) & np.uint32(0xF)
            place = (selector & np.uint32(7)).astype(np.int64)
            sign = (selector & np.uint32(8)) != 0
        byte = (pair >> (place * 8).astype(np.uint64)).astype(np.uint32) & np.uint32(0xFF)
        sign_byte = np.where((byte & np.uint32(0x80)) != 0, np.uint32(0xFF), np.uint32(0))
        result |= np.where(sign, sign_byte, byte) << np.uint32(8 * index)
    return result


PERMUTE_MODES: dict[str, Callable[[Codes, int], Codes]] = {
    "f4e": lambda c, i: c + i,
    "b4e": lambda c, i: (c - i) & 7,
    "rc8": lambda c, _: c,
    "ecl": np.maximum,
    "ecr": np.minimum,
    "rc16": lambda c, i: (c & 1) * 2 + (i & 1),
}


def dot_bytes(a: Codes, b: Codes, c: Codes, kinds: tuple[str, str]) -> Codes:
    """dp4a: return c plus the sum of four byte products."""
    total = c.astype(np.int64)
    for index in range(4):
        x, y = (_field(v, 8, index, signedness) for v, signedness in ((a, kinds[0]), (b, kinds[1])))
        total = total + x * y
    return total.astype(np.uint64).astype(np.uint32)


def dot_halves(a: Codes, b: Codes, c: Codes, kinds: tuple[str, str], *, high: bool) -> Codes:
    """dp2a: return c plus the sum of two 16-bit by 8-bit products."""
    total = c.astype(np.int64)
    for index in range(2):
        total = total + _field(a, 16, index, kinds[0]) * _field(b, 8, index + 2 * high, kinds[1])
    return total.astype(np.uint64).astype(np.uint32)


def _field(a: Codes, bits: int, index: int, signedness: str) -> Codes:
    part = ((a >> np.uint32(bits * index)) & np.uint32((1 << bits) - 1)).astype(container(bits))
    return values_of(part, signedness).astype(np.int64)


COMPARE: dict[str, Callable[[Codes, Codes], Codes]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
