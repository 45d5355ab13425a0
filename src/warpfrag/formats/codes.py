"""Arrays of codes: convert numbers to codes and back.

A code is an unsigned integer whose value a `Format` defines. An array of a format's *natural* dtype (float16
for f16, ml_dtypes' float8_e4m3fn for e4m3, int4 for s4, bool for b1) is read as bits. Any other real array is
taken by value; a value that is not exact is rejected unless `rounding` is given.
"""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, check_flag
from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import Format, Rounding, check_rounding

MAX_EXACT_INTEGER = 1 << 53  # float64 represents every integer up to this one


@cache
def natural_dtype(number_format: Format) -> np.dtype[Any]:
    """Return the dtype whose bits are the codes of a format."""
    name = number_format.dtype
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


@cache
def code_dtype(number_format: Format) -> np.dtype[Any]:
    """Return the unsigned dtype that holds a code; it is as wide as the natural dtype."""
    return np.dtype(f"uint{8 * natural_dtype(number_format).itemsize}")


def to_codes(
    number_format: Format, numbers: NDArray[Any], *, rounding: Rounding = None, label: str = "matrix"
) -> NDArray[Any]:
    """Return the codes of an array of numbers: its bits if it has the natural dtype, otherwise its converted values.

    A float32 array is read as tf32 by ignoring the last bits of each element; with `rounding`, its values are rounded.
    """
    check_rounding(rounding)
    if numbers.dtype == natural_dtype(number_format) and not (number_format.unused and rounding):
        return _codes_of_bits(number_format, numbers, label)
    if numbers.dtype.kind not in "biuf" and not hasattr(ml_dtypes, numbers.dtype.name):
        raise InvalidOperand(f"{label}: expected {number_format.dtype} or real numbers, got dtype {numbers.dtype}")
    return _codes_of_values(number_format, numbers, rounding, label)


def codes_of(number_format: Format, array: NDArray[Any], *, raw: bool, rounding: Rounding, label: str) -> NDArray[Any]:
    """Return the codes of an argument; with `raw`, its elements are already codes."""
    if check_flag("raw", raw):
        return check_codes(number_format, array, label=label)
    return to_codes(number_format, array, rounding=rounding, label=label)


def check_codes(number_format: Format, codes: NDArray[Any], *, label: str = "matrix") -> NDArray[Any]:
    """Return an array of raw codes, after checking that each fits into the format's bits."""
    if codes.dtype.kind not in "biu":
        raise InvalidOperand(f"{label}: expected {number_format} codes as unsigned integers, got dtype {codes.dtype}")
    cannot_exceed = codes.dtype.itemsize * 8 <= number_format.bits and codes.dtype.kind == "u"
    if not cannot_exceed and codes.size:
        wrong = codes >= number_format.codes if number_format.bits < 64 else np.zeros(codes.shape, bool)
        if codes.dtype.kind == "i":
            wrong |= codes < 0
        _refuse_first(wrong, codes, label, f"{number_format} codes are 0..{number_format.codes - 1:#x}")
    return codes.astype(code_dtype(number_format), copy=False)


def from_codes(number_format: Format, codes: NDArray[Any]) -> NDArray[Any]:
    """Return an array of the natural dtype with these codes."""
    dtype = natural_dtype(number_format)
    if number_format.kind == "integer" and number_format.bits < 8 * dtype.itemsize:
        # ml_dtypes stores a 4-bit integer in a whole byte: extend the sign first
        sign = number_format.sign_bit
        return ((codes ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype)
    return codes.astype(code_dtype(number_format), copy=False).view(dtype)


def as_read(number_format: Format, codes: NDArray[Any]) -> NDArray[Any]:
    """Return codes as a tensor core reads them, with the bits that the format does not use cleared."""
    unused = number_format.unused
    return codes & ~codes.dtype.type((1 << unused) - 1) if unused else codes


def values_of(number_format: Format, codes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values that a tensor core reads, as float64."""
    return as_doubles(from_codes(number_format, as_read(number_format, codes)))


def _codes_of_bits(number_format: Format, numbers: NDArray[Any], label: str) -> NDArray[Any]:
    codes: NDArray[Any] = np.ascontiguousarray(numbers).view(code_dtype(number_format)).reshape(numbers.shape)
    if number_format.kind == "integer" and number_format.bits < 8 * codes.dtype.itemsize:
        codes = codes & codes.dtype.type(number_format.codes - 1)  # ml_dtypes extends the sign through the whole byte
    elif number_format.bits < 8 * codes.dtype.itemsize and number_format.dtype != "bool":
        _refuse_first(codes >= number_format.codes, numbers, label, _range(number_format))
    return codes


@exact_floats
def _codes_of_values(number_format: Format, numbers: NDArray[Any], rounding: Rounding, label: str) -> NDArray[Any]:
    if numbers.dtype.kind in "iu" and numbers.dtype.itemsize > 4 and number_format.is_float:
        _refuse_first(
            abs(numbers.astype(object)) > MAX_EXACT_INTEGER, numbers, label, "only integers up to 2**53 are converted"
        )
    values = numbers if numbers.dtype.kind in "iub" else as_doubles(numbers)
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize > values.dtype.itemsize:
        lost = (values != numbers) & ~np.isnan(numbers)
        _refuse_first(lost, numbers, label, "a longdouble is converted only if it is exact in float64")
    if not number_format.is_float:
        return _integer_codes(number_format, values, rounding, label)
    return _float_codes(number_format, values.astype(np.float64), rounding, label)


def _integer_codes(number_format: Format, values: NDArray[Any], rounding: Rounding, label: str) -> NDArray[Any]:
    expected = _range(number_format)
    if values.dtype.kind == "f":
        whole = np.rint(values)
        inexact = np.isnan(values) | ((whole != values) if rounding is None else False)
        _refuse_first(inexact, values, label, expected)
        values = whole
    _refuse_first((values < number_format.min) | (values > number_format.max), values, label, expected)
    code_type = code_dtype(number_format)
    whole = values.astype(np.int64) if values.dtype.kind == "f" else values
    codes: NDArray[Any] = whole.astype(code_type) & code_type.type(number_format.codes - 1)
    return codes


def _float_codes(number_format: Format, values: NDArray[Any], rounding: Rounding, label: str) -> NDArray[Any]:
    """Encode an array of floats, as `Format.encode` does for one number."""
    fraction, bias = number_format.fraction, number_format.bias
    lowest = number_format.emin if fraction else -bias
    magnitude = np.abs(values)
    special = ~np.isfinite(values)
    _, exponent = np.frexp(np.where(special | (magnitude == 0), 1.0, magnitude))
    exponent = np.maximum(exponent - 1, lowest).astype(np.int64)
    scaled = np.ldexp(np.where(special, 0.0, magnitude), fraction - exponent)
    units = np.rint(scaled)
    expected = _range(number_format)
    if not number_format.signed:
        _refuse_first(values < 0, values, label, expected)
    if rounding is None:
        _refuse_first(~special & (magnitude > number_format.max), values, label, expected)
        _refuse_first(
            units != scaled,
            values,
            label,
            f'that is not exact in {number_format}; rounding="rne" rounds it to the nearest value',
        )
    if fraction:
        whole = units.astype(np.int64)
        codes = np.where(whole < 1 << fraction, whole, ((exponent + bias - 1) << fraction) + whole)
    else:
        _refuse_first(~special & (units == 0), values, label, expected)
        codes = exponent + bias + units.astype(np.int64) - 1
    codes = _with_specials(number_format, codes, values, rounding, label)
    codes = (codes << number_format.unused).astype(np.uint64)
    if number_format.signed:
        codes |= np.where(np.signbit(values) & ~np.isnan(values), np.uint64(number_format.sign_bit), np.uint64(0))
    return codes.astype(code_dtype(number_format))


def _with_specials(
    number_format: Format, codes: NDArray[Any], values: NDArray[Any], rounding: Rounding, label: str
) -> NDArray[Any]:
    """Encode infinities, NaNs and values out of range; raise an error if the format has no such code."""
    infinite, nan = np.isinf(values), np.isnan(values)
    if number_format.infinity:
        infinity = ((1 << number_format.exponent) - 1) << number_format.fraction
        too_large = ~nan & ~infinite & (codes >= infinity)
        if rounding is None:
            _refuse_first(too_large, values, label, _range(number_format))
        codes = np.where(infinite | too_large, infinity, codes)
    else:
        last = (1 << (number_format.exponent + number_format.fraction)) - 1 - (number_format.nan == "ones")
        expected = f"{number_format} has no infinity: {_range(number_format)}"
        _refuse_first(infinite | (~nan & (codes > last)), values, label, expected)
    if number_format.nan_code is None:
        _refuse_first(nan, values, label, f"{number_format} has no NaN")
        return codes
    return np.where(nan, number_format.nan_code >> number_format.unused, codes)


def _range(number_format: Format) -> str:
    """Return the range of a format as text, for messages."""
    numbers = "values" if number_format.is_float else "integers"
    return f"{number_format} holds the {numbers} {number_format.min}..{number_format.max}"


def _refuse_first(wrong: NDArray[np.bool_], numbers: NDArray[Any], label: str, because: str) -> None:
    """Raise an error that names the first element that is marked wrong."""
    if np.any(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidOperand(f"{label}: element {index} is {numbers[index]}, but {because}")
