"""Fused steps in float64, for the portable backend; all values must be finite.

A step aligns its products and C to a common exponent, keeps some bits below it, and adds. As array operations, for each
product: multiply (exact), scale by a power of two so that the last kept bit is 1 (exact), truncate, and add integers
(exact). None of them depends on the rounding mode. The largest exponent is a maximum over int16 sums. These are six
NumPy passes over arrays that fit in the L2 cache, or two to four nanoseconds per product. If exponents are small
(`NARROW`), as those of f16 and fp8 always are, products are float32 and their sums int32, which halves the memory;
otherwise both are float64. If no step truncates a product (see `kernels/exact_steps.h`), BLAS sums the products of a
step, which is exact in float64 in any order.

Infinities, NaNs and sums out of range are not supported: `run` returns None, and the caller recomputes the block with
integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.encodings import order_of
from warpfrag.tensorcore.rules import AlignedSum, Fused

Values = NDArray[np.float64]
Exponents = NDArray[np.int16]

PRODUCTS_AT_ONCE = 1 << 17
"""The number of products per step that are in memory; as float32 and int16 they nearly fit in an L2 cache of 1 MB."""
ARRAYS_OF_EXACT = 4
"""The number of float64 values per output in a step that truncates no products."""
COLUMNS_AT_ONCE = 512
ZERO = np.int16(-12000)
"""The exponent that represents zero; its sum with any exponent is far below all others."""
TABLE_BITS = 16
"""The widest formats that are decoded with a table, in bits."""


class Elements(NamedTuple):
    """Decoded codes: values, and their exponents (for subnormals, the smallest exponent of the format)."""

    value: Values
    exponent: Exponents

    def at(self, index: tuple[slice | EllipsisType, ...]) -> Elements:
        """Return the selected elements."""
        return Elements(self.value[index], self.exponent[index])

    def take(self, order: NDArray[np.int32], axis: int) -> Elements:
        """Return the elements in this order along an axis."""
        return Elements(self.value.take(order, axis), self.exponent.take(order, axis))


def _split(name: str, codes: Codes) -> Elements:
    """Decode codes; infinities and NaNs become non-finite values."""
    fmt = FORMATS[name]
    wide = codes.astype(np.int64)
    magnitude = (wide & (fmt.codes - 1 - fmt.sign_bit)) >> fmt.unused
    field = magnitude >> fmt.fraction
    if fmt.fraction:
        field = np.maximum(field, 1)
        significand = magnitude - ((field - 1) << fmt.fraction)
    else:  # a power-of-two format has neither zeros nor subnormals
        significand = np.ones_like(magnitude)
    value = np.ldexp(significand.astype(np.float64), field - fmt.bias - fmt.fraction)
    if fmt.nan == "ones":
        value[magnitude == (1 << (fmt.exponent + fmt.fraction)) - 1] = np.nan
    elif fmt.nan == "ieee":
        value[magnitude >> fmt.fraction == (1 << fmt.exponent) - 1] = np.nan
    exponent = np.where(significand == 0, ZERO, field - fmt.bias).astype(np.int16)
    return Elements(np.where(wide & fmt.sign_bit, -value, value), exponent)


@lru_cache(16)
def _table(name: str) -> Elements:
    """Return the decoded values of all codes in a narrow format."""
    return _split(name, np.arange(FORMATS[name].codes, dtype=np.uint32))


def elements_of(name: str, codes: Codes) -> Elements:
    """Return the values and exponents of a float format's codes."""
    if FORMATS[name].bits > TABLE_BITS:
        return _split(name, codes)
    value, exponent = _table(name)
    return Elements(value.take(codes), exponent.take(codes))


def values_of(name: str, codes: Codes) -> Values:
    """Return the values of a float format's codes, without exponents; f32, the usual format of C, needs no table."""
    if name == "f32":
        return codes.astype(np.uint32, copy=False).view(np.float32).astype(np.float64)
    return elements_of(name, codes).value


def exponents_of(values: Values, smallest: int, zero_exponent: int) -> NDArray[np.int64]:
    """Return the exponents of C, at least `smallest`, the format's minimum; a zero has `zero_exponent`."""
    field = (values.view(np.int64) >> 52) & 2047
    return np.where(field == 0, zero_exponent, np.maximum(field - 1023, smallest))


def _truncated(values: Values, fraction: int) -> Values:
    """Truncate toward zero to `fraction` fraction bits of an f32, or to fewer bits for subnormal results."""
    kept = (values.view(np.int64) & np.int64(-(1 << (52 - fraction)))).view(np.float64)
    unit = 2.0 ** (FORMATS["f32"].emin - fraction)
    small = np.abs(values) < 2.0 ** FORMATS["f32"].emin
    if small.any():
        kept[small] = np.trunc(values[small] / unit) * unit
    return kept + 0.0  # adding 0.0 turns -0 into +0


ROUNDINGS: dict[str, Callable[[Values], Values]] = {
    "RZ-FP32": lambda values: _truncated(values, 23),
    "RZ-E8M13": lambda values: _truncated(values, 13),
    "RNE-FP16": lambda values: values.astype(np.float16).astype(np.float64) + 0.0,  # overflow gives infinity
}


NARROW = 48
"""The largest exponent magnitude for which products and their grids are normal in float32."""
MIN_NARROW_COMMON = -96
"""The smallest common exponent for narrow steps; below it, all products are 0, or a sum may be subnormal."""


TRUNCATIONS = {"RZ-FP32": np.int64(-(1 << 29)), "RZ-E8M13": np.int64(-(1 << 39))}
"""Masks of the float64 bits that remain after truncation to a normal f32."""


class Factors(NamedTuple):
    """A and B in the order of addition; for a sparse A, `met` gives the row of B for each stored element."""

    a: Elements
    b: Elements
    met: NDArray[Any] | None

    @property
    def is_narrow(self) -> bool:
        """True if the magnitude of every exponent is at most NARROW."""
        return all(
            int(part.exponent.max()) <= NARROW
            and int(part.exponent.min(initial=0, where=part.exponent != ZERO)) >= -NARROW
            for part in (self.a, self.b)
        )

    def in_float32(self) -> Factors:
        """Return the same factors as float32."""
        a, b = (part._replace(value=part.value.astype(np.float32)) for part in (self.a, self.b))
        return self._replace(a=a, b=b)

    def has_exact_steps(self, rule: Fused) -> bool:
        """Return True if, in a rule that adds C last, no step truncates a product or the partial sum."""
        how, (first, *others) = rule.sum, rule.steps
        if not rule.adds_c_last or how.rounding != "RZ-FP32" or self.met is not None or len(others) > 1 or rule.scales:
            return False
        unit = sum(FORMATS[name].emin - FORMATS[name].fraction for name in (rule.a, rule.b))
        groups = np.abs(self.a.value).reshape(*self.a.value.shape[:-1], -1, len(first)).sum(axis=-1)
        largest = groups.max(initial=0.0) * np.abs(self.b.value).max(initial=0.0)
        return float(largest) < 2.0 ** (how.fraction_bits + 1 + unit)

    def part(self, rows: slice, columns: slice) -> Factors:
        """Return the factors for some rows and columns of D."""
        return Factors(
            self.a.at((slice(None), rows)), self.b.at((..., columns)), None if self.met is None else self.met[:, rows]
        )


def _scaled(elements: Elements, scales: Elements, axis: int) -> Elements:
    """Multiply elements by the powers of two of their K blocks; a NaN scale gives NaN."""
    size = elements.value.shape[axis] // scales.value.shape[axis]
    exponents = elements.exponent + scales.exponent.repeat(size, axis)
    return Elements(elements.value * scales.value.repeat(size, axis), np.where(elements.value == 0, ZERO, exponents))


def factors_of(rule: Fused, operands: ProductOperands, a: Codes, b: Codes) -> Factors:
    """Return the factors of the given tiles, from codes in the formats that are multiplied."""
    elements_a, elements_b = elements_of(rule.multiplicands[0], a), elements_of(rule.multiplicands[1], b)
    if operands.scale_a is not None and operands.scale_b is not None:
        elements_a = _scaled(elements_a, elements_of(rule.scale_format, operands.scale_a), -1)
        elements_b = _scaled(elements_b, elements_of(rule.scale_format, operands.scale_b), -2)
    order = order_of(rule, b.shape[1])[0]
    if (order[1:] < order[:-1]).any():
        elements_a = elements_a.take(order, -1)
        if operands.columns is None:
            elements_b = elements_b.take(order, -2)
    return Factors(elements_a, elements_b, None if operands.columns is None else operands.columns.take(order, -1))


def products_of(factors: Factors, places: slice) -> tuple[NDArray[Any], Exponents]:
    """Return the products [tile, row, element, column] and the largest exponents [tile, row, column]."""
    a, b, met = factors
    if met is None:
        exponents = a.exponent[..., places, None] + b.exponent[:, None, places]
        products = a.value[..., places, None] * b.value[:, None, places]
    else:
        rows = np.arange(len(met))[:, None, None], met[..., places]
        exponents, products = b.exponent[rows], b.value[rows]
        exponents += a.exponent[..., places, None]
        products *= a.value[..., places, None]
    return products, exponents.max(axis=-2)


def exact_step(how: AlignedSum, factors: Factors, places: slice, partial: Values) -> Values:
    """Add the products of one step to the partial sum; only this sum is truncated, not the products."""
    total: Values = np.matmul(factors.a.value[..., places], factors.b.value[:, places])
    total += partial
    bits = total.view(np.int64)
    bits &= TRUNCATIONS[how.rounding]
    return total


def wide_step(how: AlignedSum, products: Values, largest: Exponents, c: Values, smallest: int) -> Values:
    """Compute one step for arbitrary finite products and C."""
    common = np.maximum(largest, exponents_of(c, smallest, how.zero_exponent))
    np.maximum(common, how.zero_exponent, out=common)
    grids = ((1023 + how.fraction_bits - common) << 52).view(np.float64)
    products *= grids[..., None, :]
    total = np.trunc(products, out=products).sum(axis=-2)
    total += np.trunc(c * grids)
    total *= ((1023 - how.fraction_bits + common) << 52).view(np.float64)
    return ROUNDINGS[how.rounding](total)


def narrow_step(
    how: AlignedSum, products: NDArray[np.float32], largest: Exponents, c: Values, smallest: int
) -> Values | None:
    """Compute one truncated step of float32 products; return None if a common exponent may be out of range."""
    exponents = (c.view(np.int64) >> 52).astype(np.int32)
    exponents &= 2047
    exponents -= 1023
    if smallest > MIN_NARROW_COMMON:
        np.maximum(exponents, smallest, out=exponents, where=exponents > -1023)
    common = np.maximum(exponents, largest, out=exponents)
    if int(common.min(initial=0)) < max(MIN_NARROW_COMMON, how.zero_exponent):
        return None
    grids = ((127 + how.fraction_bits - common) << 23).view(np.float32)
    products *= grids[..., None, :]
    total: Values = products.astype(np.int32).sum(axis=-2, dtype=np.int32).astype(np.float64)
    total += np.trunc(c * grids)
    bits = total.view(np.int64)
    bits &= TRUNCATIONS[how.rounding]
    total *= ((127 - how.fraction_bits + common) << 23).view(np.float32)
    total += 0.0
    return total


def sum_of_step(how: AlignedSum, factors: Factors, places: slice, c: Values, smallest: int) -> Values:
    """Return the rounded sum of C and the products of these elements in one step."""
    products, largest = products_of(factors, places)
    if products.dtype == np.float32:
        total = narrow_step(how, products, largest, c, smallest)
        if total is not None:
            return total
        products = products.astype(np.float64)
    return wide_step(how, products, largest, c, smallest)


class Accumulator:
    """The accumulators between instructions: values, or codes if D is converted to the next C."""

    def __init__(self, rule: Fused, convert: Conversions, bound: float, *, is_exact: bool) -> None:
        """Create accumulators.

        `bound` limits every finite sum, and `is_exact` means that no step truncates a product.
        """
        self.rule = rule
        self.convert = convert
        self.stays = rule.c_read_as == rule.c == rule.d == rule.sum.accumulator and not rule.adds_c_last
        self.code_type: type[np.floating[Any]] = np.float16 if rule.sum.accumulator == "f16" else np.float32
        self.limit = float(np.finfo(self.code_type).max)
        self.must_check = not bound < self.limit / 2
        self.is_exact = is_exact

    def instruction(self, factors: Factors, first: int, c: Values) -> Values | None:
        """Compute the steps of one instruction, from stored element `first` on; return None if a sum overflows."""
        how = self.rule.sum
        value = np.zeros_like(c) if self.rule.adds_c_last else c
        smallest = FORMATS[how.accumulator if self.rule.adds_c_last else self.rule.c_read_as].emin
        for step in self.rule.steps:
            places = slice(first, first + len(step))
            if self.is_exact:
                value = exact_step(how, factors, places, value)
            else:
                value = sum_of_step(how, factors, places, value, smallest)
            first, smallest = places.stop, FORMATS[how.accumulator].emin
            if self.must_check and not (np.abs(value) <= self.limit).all():
                return None
        return value

    def codes(self, value: Values) -> Codes:
        """Return values as codes of the accumulator's format."""
        return value.astype(self.code_type).view(np.uint16 if self.code_type is np.float16 else np.uint32)

    def run(self, factors: Factors, code: Codes, instructions: int) -> Codes | None:
        """Run all instructions on C's codes and return D's codes, or None if a value is not finite."""
        rule, value = self.rule, None
        for index in range(instructions):
            if value is None or not self.stays:
                value = values_of(rule.c_read_as, self.convert.read(code))
                if not np.isfinite(value).all():
                    return None
            value = self.instruction(factors, index * rule.stored, value)
            if value is None:
                return None
            if index + 1 == instructions or not self.stays:
                code = self.convert.write(code, self.codes(value))
        return code


class Conversions(NamedTuple):
    """Conversions of codes between C, the format it is read as, the accumulator, and D."""

    read: Callable[[Codes], Codes]
    write: Callable[[Codes, Codes], Codes]


def run(rule: Fused, operands: ProductOperands, a: Codes, b: Codes, convert: Conversions) -> Codes | None:
    """Return D's codes, or None if any value is not finite.

    `a` and `b` are codes in the formats that are multiplied.
    """
    factors = factors_of(rule, operands, a, b)
    largest_c = np.abs(values_of(rule.c_read_as, convert.read(operands.c))).max(initial=0.0)
    largest_a, largest_b = (np.abs(elements.value).max(initial=0.0) for elements in (factors.a, factors.b))
    bound = float(largest_a * largest_b) * b.shape[1] + largest_c
    if not np.isfinite(bound):
        return None
    is_exact = factors.has_exact_steps(rule)
    longest = max(len(step) for step in rule.steps)
    # every product is less than 2**(fraction_bits + 2) grids
    fits = longest << (rule.sum.fraction_bits + 2) <= 1 << 31
    if fits and not is_exact and rule.sum.rounding in TRUNCATIONS and factors.is_narrow:
        factors = factors.in_float32()
    tiles, height, width = operands.c.shape
    columns = min(width, COLUMNS_AT_ONCE)
    rows = max(1, PRODUCTS_AT_ONCE // (tiles * columns * (ARRAYS_OF_EXACT if is_exact else longest)))
    accumulator = Accumulator(rule, convert, bound, is_exact=is_exact)
    out = np.empty(operands.c.shape, np.uint32)
    for first_column in range(0, width, columns):
        for first_row in range(0, height, rows):
            block = slice(first_row, first_row + rows), slice(first_column, first_column + columns)
            codes = accumulator.run(factors.part(*block), operands.c[:, *block], b.shape[1] // rule.k)
            if codes is None:
                return None
            out[:, *block] = codes
    return out
