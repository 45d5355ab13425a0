"""One step of one output, from codes, with every special value: what the vector loop leaves aside.

The same rule as `warpfrag.arithmetic.reference`, in machine integers: no term reaches 2**63.
"""

from __future__ import annotations

import numpy as np

from warpfrag.arithmetic.kernels import parameters as at
from warpfrag.arithmetic.kernels.compiled import Array, Flag, Real, Whole, inner
from warpfrag.arithmetic.kernels.llvm import bits_of_f64, f64_of_bits
from warpfrag.arithmetic.kernels.rounding import round_step

FINITE = 0
INFINITE = 1
NOT_A_NUMBER = 2


@inner
def unpack(code: Whole, numbers: Array, base: Whole) -> tuple[Whole, Whole, Whole]:
    """Class, exponent, and signed significand (in units of 2**-fraction) of an operand code.

    Of an infinity or a NaN the significand has the sign, and no other meaning.
    """
    wide = np.int64(code)
    sign_place = numbers[base + at.SIGN_PLACE]
    negative = (wide >> sign_place) & 1
    magnitude = (wide & ((np.int64(1) << sign_place) - 1)) >> numbers[base + at.UNUSED]
    if magnitude >= numbers[base + at.SPECIAL_FROM]:
        kind = INFINITE if magnitude == numbers[base + at.INFINITY] else NOT_A_NUMBER
        return kind, 0, -1 if negative else 1
    fraction = numbers[base + at.FRACTION]
    field = magnitude >> fraction
    significand = magnitude & ((np.int64(1) << fraction) - 1)
    if field > 0:
        significand |= np.int64(1) << fraction
    exponent = max(field, 1) - numbers[base + at.BIAS]
    return FINITE, exponent, -significand if negative else significand


@inner
def exponent_of(value: Real, least: Whole) -> Whole:
    """Exponent of a finite float64 that is not 0, at least `least`."""
    return max(((bits_of_f64(value) >> 52) & 2047) - 1023, least)


@inner
def power_of_two(exponent: Whole) -> Real:
    """2**exponent, an exponent of float64's normal range; of any other, something."""
    return f64_of_bits(np.int64(exponent + 1023) << 52)


@inner
def common_exponent(
    a_codes: Array,
    b_codes: Array,
    column: Whole,
    places: Array,
    rows: Array,
    scale: Whole,
    numbers: Array,
) -> tuple[Whole, Flag, Flag, Flag]:
    """Largest exponent of the products, at least the floor; then whether there is a NaN, +infinity, -infinity."""
    common = numbers[at.ZERO_EXPONENT]
    nan = plus = minus = False
    for place in range(places.size):
        kind_a, exponent_a, significand_a = unpack(a_codes[places[place]], numbers, at.FORMAT_A)
        kind_b, exponent_b, significand_b = unpack(b_codes[rows[place], column], numbers, at.FORMAT_B)
        either_zero = significand_a == 0 or significand_b == 0
        if kind_a == FINITE and kind_b == FINITE:
            if not either_zero:
                common = max(common, exponent_a + exponent_b + scale)
        elif max(kind_a, kind_b) == NOT_A_NUMBER or either_zero:
            nan = True
        elif (significand_a < 0) == (significand_b < 0):
            plus = True
        else:
            minus = True
    return common, nan, plus, minus


@inner
def shifted(product: Whole, shift: Whole) -> Whole:
    """product * 2**shift, cut towards zero."""
    if shift >= 0:
        return product << min(shift, 62) if product != 0 else product
    magnitude = abs(product) >> min(-shift, 63)
    return magnitude if product >= 0 else -magnitude


@inner
def fused_step(
    accumulator: Real,
    least: Whole,
    a_codes: Array,
    b_codes: Array,
    column: Whole,
    places: Array,
    rows: Array,
    scale: Whole,
    numbers: Array,
) -> Real:
    """One truncated fused dot-product-add; `places` are elements of A's row, `rows` those of B's column."""
    common, nan, plus, minus = common_exponent(a_codes, b_codes, column, places, rows, scale, numbers)
    plus = plus or accumulator == np.inf
    minus = minus or accumulator == -np.inf
    if nan or np.isnan(accumulator) or scale >= at.ANY_NAN_SCALE or (plus and minus):
        return np.nan
    if plus or minus:
        return np.inf if plus else -np.inf
    if accumulator != 0.0:
        common = max(common, exponent_of(accumulator, least))
    keep = numbers[at.FRACTION_BITS]
    total = np.int64(accumulator * power_of_two(keep - common))
    point = numbers[at.FORMAT_A + at.FRACTION] + numbers[at.FORMAT_B + at.FRACTION]
    for place in range(places.size):
        _kind, exponent_a, significand_a = unpack(a_codes[places[place]], numbers, at.FORMAT_A)
        _kind, exponent_b, significand_b = unpack(b_codes[rows[place], column], numbers, at.FORMAT_B)
        shift = exponent_a + exponent_b + scale - common + keep - point
        total += shifted(significand_a * significand_b, shift)
    return round_step(np.float64(total) * power_of_two(common - keep), numbers[at.ROUND_TO])
