"""Float arithmetic on codes: exact results, rounded once in any mode, with ftz, sat, relu and the NaN rules.

Formats up to f32 are computed in float64: a product is exact there, a sum is a float64 plus its rounding error, and the
pair is rounded once (`ptx_rounding`). f64 with rounding to nearest even uses NumPy; other modes, and fma if its parts
do not fit float64, use Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from warpfrag.formats.number_formats import FORMATS
from warpfrag.machine.ir.scalar_types import Codes
from warpfrag.machine.semantics.ptx_rounding import (
    ExactNumbers,
    canonical_nan,
    decode,
    encode,
    exact_fma,
    exact_quotient,
    exact_root,
    round_sum,
    sticky_round,
    two_product,
    two_sum,
)

SMALLEST_NORMAL = {"f32": 0x00800000, "f64": 0x0010000000000000, "f16": 0x0400, "bf16": 0x0080}
FAR_FROM_TINY = 2.0**10  # scales numbers near the smallest normal number into the normal range of every format
CODE_OF_1 = {"f32": 0x3F800000, "f64": 0x3FF0000000000000, "f16": 0x3C00, "bf16": 0x3F80}
QUIET = np.uint64(1 << 51)
SAFE = 2.0**-400, 2.0**400  # if operands and sums are in this range, an f64 fma neither overflows nor underflows


@dataclass(frozen=True)
class FloatModifiers:
    """The PTX modifiers that change an instruction's result."""

    rounding: str = "rn"
    ftz: bool = False  # flush subnormal operands and results to zero
    sat: bool = False  # clamp the result to 0..1
    relu: bool = False  # replace negative results with 0
    nan: bool = False  # min and max: prefer a NaN to a number
    # min and max: compare magnitudes; the sign of the result is the exclusive or of both signs
    xorsign_abs: bool = False
    abs: bool = False  # min and max: compare magnitudes


def sign_of(codes: Codes) -> Codes:
    """Return only the sign bits of codes."""
    bit = codes.dtype.type(1 << (codes.dtype.itemsize * 8 - 1))
    return codes & bit


def magnitude_of(codes: Codes) -> Codes:
    """Return codes with the sign bit cleared."""
    return codes & codes.dtype.type((1 << (codes.dtype.itemsize * 8 - 1)) - 1)


def is_nan(codes: Codes, name: str) -> Codes:
    """Return a mask of the NaN codes of f16, bf16, f32 or f64."""
    fmt = FORMATS[name]
    return magnitude_of(codes) > codes.dtype.type(((1 << fmt.exponent) - 1) << fmt.fraction)


def flush(codes: Codes, name: str) -> Codes:
    """Replace subnormals with zeros of the same sign."""
    return np.where(magnitude_of(codes) < codes.dtype.type(SMALLEST_NORMAL[name]), sign_of(codes), codes)


def quiet(codes: Codes, name: str) -> Codes:
    """Replace NaNs with the canonical NaN."""
    return np.where(is_nan(codes, name), codes.dtype.type(canonical_nan(FORMATS[name])), codes)


def finish(codes: Codes, name: str, modifiers: FloatModifiers) -> Codes:
    """Apply the modifiers that follow rounding: ftz, sat, relu."""
    if modifiers.ftz:
        codes = flush(codes, name)
    zero, code_of_1 = codes.dtype.type(0), codes.dtype.type(CODE_OF_1.get(name, 0))
    if modifiers.sat:
        negative = sign_of(codes) != 0
        nan = is_nan(codes, name)
        codes = np.where(nan | negative, zero, np.minimum(codes, code_of_1))
    if modifiers.relu:
        codes = np.where((sign_of(codes) != 0) & ~is_nan(codes, name), zero, codes)
    return codes


def operation(function: Callable[..., Codes]) -> Callable[..., Codes]:
    """Wrap an operation so that ftz applies to its operands, and the NaN rules, ftz, sat and relu to its result."""

    def run(name: str, modifiers: FloatModifiers, *codes: Codes) -> Codes:
        operands = [flush(code, name) for code in codes] if modifiers.ftz else codes
        with np.errstate(all="ignore"):
            result = function(name, modifiers, *operands)
            if name == "f64":  # a division prefers the NaN of the dividend
                by_priority = operands[::-1] if function.__name__ == "divide" else operands
                result = np.where(is_nan(result, name), _f64_nan(*by_priority), result)
            return finish(result, name, modifiers)

    run.__doc__ = function.__doc__
    return run


def _f64_nan(*codes: Codes) -> Codes:
    """Return the NaN that an f64 operation produces: that of b, else c, else a, quieted; else the canonical NaN."""
    nan: Codes = np.full(codes[0].shape, canonical_nan(FORMATS["f64"]), np.uint64)
    for code in (codes[0], *codes[:0:-1]):  # in the order a, c, b, so that the last NaN wins
        nan = np.where(is_nan(code, "f64"), code | QUIET, nan)
    return nan


def choose_nan(result: Codes, operands: Sequence[Codes], order: Sequence[int]) -> tuple[Codes, Codes | None]:
    """Replace NaN results with the first operand NaN in `order`, quieted; also return a mask of differing NaNs."""
    nan = is_nan(result, "f64")
    if not nan.any():
        return result, None
    chosen: Codes = np.full(result.shape, canonical_nan(FORMATS["f64"]), np.uint64)
    differs: Codes = np.zeros(result.shape, np.bool_)
    is_chosen: Codes = np.zeros(result.shape, np.bool_)
    for index in order[::-1]:
        here = is_nan(operands[index], "f64")
        quieted = operands[index] | QUIET
        differs = differs | (here & is_chosen & (quieted != chosen))
        chosen, is_chosen = np.where(here, quieted, chosen), is_chosen | here
    return np.where(nan, chosen, result), nan & differs


def flush_tiny(codes: Codes, high: Codes, low: Codes | None, name: str, modifiers: FloatModifiers) -> Codes:
    """Apply ftz: flush results that are subnormal when rounded with an unbounded exponent.

    Thus 2**-126 * (1 - 2**-24), which f32 cannot represent, becomes zero although it would round to a normal number,
    and a result that this rounding raises to 2**-126 is kept (measured on an H200).
    """
    if not modifiers.ftz:
        return codes
    fmt = FORMATS[name]
    smallest = 2.0**fmt.emin
    near = (np.abs(high) < 2 * smallest) & (high != 0)
    moved = np.where(near, high * FAR_FROM_TINY, 1.0)
    rest = None if low is None else np.where(near, low * FAR_FROM_TINY, 0.0)
    rounded = np.abs(decode(round_sum(moved, rest, fmt, modifiers.rounding), name))
    return np.where(near & (rounded < smallest * FAR_FROM_TINY), sign_of(codes), codes)


def _zero_sign(high: Codes, x: Codes, y: Codes, mode: str) -> Codes:
    """Return sums with the right sign of exact zeros: x + -x is -0 when rounding down, else +0."""
    return np.where((high == 0) & (np.signbit(x) | np.signbit(y)), -0.0, high) if mode == "rm" else high


@operation
def add(name: str, modifiers: FloatModifiers, a: Codes, b: Codes) -> Codes:
    """Return a + b, rounded once."""
    mode = modifiers.rounding
    if name == "f64":
        return _f64(mode, a, np.full_like(a, CODE_OF_1["f64"]), b)
    if name == "f32" and mode == "rn":
        return quiet((a.view(np.float32) + b.view(np.float32)).view(np.uint32), name)
    x, y = decode(a, name), decode(b, name)
    high, low = two_sum(x, y)
    return round_sum(_zero_sign(high, x, y, mode), low, FORMATS[name], mode)


def negate(codes: Codes) -> Codes:
    """Invert the sign bit, including that of NaNs."""
    return codes ^ codes.dtype.type(1 << (codes.dtype.itemsize * 8 - 1))


def subtract(name: str, modifiers: FloatModifiers, a: Codes, b: Codes) -> Codes:
    """Return a - b, rounded once; a NaN in b keeps its sign."""
    return add(name, modifiers, a, np.where(is_nan(b, name), b, negate(b)))


@operation
def multiply(name: str, modifiers: FloatModifiers, a: Codes, b: Codes) -> Codes:
    """Return a * b, rounded once."""
    mode = modifiers.rounding
    if name == "f64":
        return _f64(mode, a, b, sign_of(a) ^ sign_of(b), product_only=True)
    if name == "f32" and mode == "rn" and not modifiers.ftz:
        return quiet((a.view(np.float32) * b.view(np.float32)).view(np.uint32), name)
    high = decode(a, name) * decode(b, name)
    return flush_tiny(round_sum(high, None, FORMATS[name], mode), high, None, name, modifiers)


@operation
def fma(name: str, modifiers: FloatModifiers, a: Codes, b: Codes, c: Codes) -> Codes:
    """Return a * b + c, rounded once."""
    mode = modifiers.rounding
    if name == "f64":
        return _f64(mode, a, b, c)
    product, addend = decode(a, name) * decode(b, name), decode(c, name)
    high, low = two_sum(product, addend)
    if name == "f32" and mode == "rn":
        codes = quiet(sticky_round(high, low).astype(np.float32).view(np.uint32), name)
    else:
        codes = round_sum(_zero_sign(high, product, addend, mode), low, FORMATS[name], mode)
    return flush_tiny(codes, high, low, name, modifiers)


@operation
def divide(name: str, modifiers: FloatModifiers, a: Codes, b: Codes) -> Codes:
    """Return a / b, rounded once."""
    mode = modifiers.rounding
    if name == "f64":
        if mode == "rn":
            return quiet((a.view(np.float64) / b.view(np.float64)).view(np.uint64), name)
        return _whole(mode, exact_quotient, (a, b), a.view(np.float64) / b.view(np.float64))
    if mode == "rn" and not modifiers.ftz:
        return quiet((a.view(np.float32) / b.view(np.float32)).view(np.uint32), name)
    x, y = decode(a, name), decode(b, name)
    quotient = x / y
    back, lost = two_product(quotient, y)
    rest = (x - back) - lost  # has the sign of the quotient's error times the sign of y
    low = np.where(np.isfinite(quotient) & (y != 0), rest * np.copysign(1.0, y), 0.0)
    low = np.where(np.isfinite(low), low, 0.0)
    return flush_tiny(round_sum(quotient, low, FORMATS[name], mode), quotient, low, name, modifiers)


@operation
def square_root(name: str, modifiers: FloatModifiers, a: Codes) -> Codes:
    """Return the square root of a, rounded once."""
    mode = modifiers.rounding
    if name == "f64":
        if mode == "rn":
            return quiet(np.sqrt(a.view(np.float64)).view(np.uint64), name)
        return _whole(mode, exact_root, (a,), np.sqrt(a.view(np.float64)))
    if mode == "rn":
        return quiet(np.sqrt(a.view(np.float32)).view(np.uint32), name)
    x = decode(a, name)
    root = np.sqrt(x)
    back, lost = two_product(root, root)
    low = np.where(np.isfinite(root), (x - back) - lost, 0.0)
    return round_sum(root, low, FORMATS[name], mode)


def reciprocal(name: str, modifiers: FloatModifiers, a: Codes) -> Codes:
    """Return 1 / a, rounded once."""
    return divide(name, modifiers, np.full_like(a, CODE_OF_1[name]), a)


def _f64(mode: str, a: Codes, b: Codes, c: Codes, *, product_only: bool = False) -> Codes:
    """Return an f64 fma, sum or product in any rounding mode."""
    x, y, z = a.view(np.float64), b.view(np.float64), c.view(np.float64)
    plain = x * y if product_only else x * y + z
    if not product_only:  # the exact product of finite numbers is finite even if float64 overflows
        plain = np.where(np.isinf(z) & np.isfinite(x) & np.isfinite(y), z, plain)
    if mode == "rn" and (product_only or not np.any(b != np.uint64(CODE_OF_1["f64"]))):
        return plain.view(np.uint64)
    if mode == "rn":
        high, low = two_product(x, y)
        low_sum, low_rest = two_sum(z, low)
        top, top_rest = two_sum(high, low_sum)
        rest = sticky_round(*two_sum(low_rest, top_rest))
        fast = (top + rest).view(np.uint64)
        sizes = [np.abs(part) for part in (x, y, z, top)]
        safe = np.ones(x.shape, np.bool_)
        for size in sizes:
            safe &= (size > SAFE[0]) & (size < SAFE[1])
        if safe.all():
            return fast
        slow = np.array(fast)
        some = np.nonzero(~safe.reshape(-1))[0]
        pick = [code.reshape(-1)[some] for code in (a, b, c)]
        slow.reshape(-1)[some] = _whole(mode, exact_fma, tuple(pick), plain.reshape(-1)[some])
        return slow
    return _whole(mode, exact_fma, (a, b, c), plain)


def _whole(mode: str, function: Callable[..., tuple[bool, int, int]], codes: tuple[Codes, ...], plain: Codes) -> Codes:
    """Compute an f64 operation in Python integers; NumPy's result, `plain`, supplies infinities, NaNs and zeros."""
    shape = plain.shape
    flat = [code.reshape(-1) for code in codes]
    special = ~np.isfinite(plain.reshape(-1))
    for code in flat:
        special = special | ~np.isfinite(code.view(np.float64))
    overflowed = np.isinf(plain.reshape(-1)) & np.logical_and.reduce([np.isfinite(c.view(np.float64)) for c in flat])
    if function is exact_quotient:
        overflowed &= flat[1].view(np.float64) != 0
    special &= ~overflowed
    result = plain.reshape(-1).copy().view(np.uint64)
    at = np.nonzero(~special)[0]
    if len(at):
        exact = [function(*(int(code[i]) for code in flat)) for i in at]
        number = ExactNumbers(
            np.array([f[0] for f in exact], np.bool_),
            np.array([f[1] for f in exact], np.uint64),
            np.array([f[2] for f in exact], np.int64),
        )
        zero = number.significand == 0
        rounded = encode(replace(number, significand=number.significand | zero), FORMATS["f64"], mode)
        zeros = plain.reshape(-1)[at].copy()
        zeros = np.where(zero & (zeros != 0), 0.0, zeros)
        if mode == "rm" and function is exact_fma:
            factor = [code.view(np.float64)[at] for code in flat]
            sides = np.signbit(factor[0]) ^ np.signbit(factor[1])
            zeros = np.where(zero & (sides | np.signbit(factor[2])), -0.0, zeros)
        result[at] = np.where(zero, zeros.view(np.uint64), rounded)
    nan = np.isnan(plain.reshape(-1)) & special
    return np.where(nan, np.uint64(canonical_nan(FORMATS["f64"])), result).reshape(shape)


def ordered(codes: Codes) -> Codes:
    """Map codes to signed integers in the numeric order of the floats, with -0 before +0."""
    bits = codes.dtype.itemsize * 8
    values = codes.view(f"i{bits // 8}")
    return np.where(values < 0, values ^ values.dtype.type((1 << (bits - 1)) - 1), values)


def extreme(name: str, modifiers: FloatModifiers, a: Codes, b: Codes, *, largest: bool) -> Codes:
    """Return min or max; a number is preferred to a NaN unless .NaN is set, and -0 is less than +0."""
    if modifiers.ftz:
        a, b = flush(a, name), flush(b, name)
    sign = sign_of(a) ^ sign_of(b)
    if modifiers.xorsign_abs or modifiers.abs:
        a, b = magnitude_of(a), magnitude_of(b)
    takes_a = ordered(a) >= ordered(b) if largest else ordered(a) <= ordered(b)
    result: Codes = np.where(takes_a, a, b)
    nan_a, nan_b = is_nan(a, name), is_nan(b, name)
    canonical = a.dtype.type(canonical_nan(FORMATS[name]))
    if modifiers.nan:
        result = np.where(nan_a | nan_b, canonical, result)
    else:
        result = np.where(nan_a, b, np.where(nan_b, a, result))
        both = _f64_nan(a, b) if name == "f64" else canonical
        result = np.where(nan_a & nan_b, both, result)
    if modifiers.xorsign_abs:
        result = np.where(is_nan(result, name), result, magnitude_of(result) | sign)
    return finish(result, name, modifiers)


def compare(name: str, word: str, a: Codes, b: Codes, *, ftz: bool = False) -> Codes:
    """Apply a setp comparison to floats; comparisons whose names end in u are true for NaNs."""
    if ftz:
        a, b = flush(a, name), flush(b, name)
    x, y = decode(a, name), decode(b, name)
    unordered = np.isnan(x) | np.isnan(y)
    if word == "num":
        return ~unordered
    if word == "nan":
        return unordered
    with np.errstate(invalid="ignore"):
        held = {
            "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
            "gt": np.greater, "ge": np.greater_equal,
        }[word.removesuffix("u") if len(word) == 3 else word](x, y)  # fmt: skip
    return held | unordered if len(word) == 3 else held & ~unordered


def test_property(name: str, word: str, a: Codes) -> Codes:
    """testp: return a mask of the floats in a class, such as finite."""
    size, nan = magnitude_of(a), is_nan(a, name)
    top = a.dtype.type(((1 << FORMATS[name].exponent) - 1) << FORMATS[name].fraction)
    subnormal = (size < a.dtype.type(SMALLEST_NORMAL[name])) & (size != 0)
    return {
        "finite": size < top,
        "infinite": size == top,
        "number": ~nan,
        "notanumber": nan,
        "normal": (size < top) & ~subnormal,  # zero counts as normal
        "subnormal": subnormal,
    }[word]
