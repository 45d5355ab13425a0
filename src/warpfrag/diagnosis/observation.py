"""Observed results: exact codes, or decimals that were printed with a limited number of digits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.diagnosis.findings import TOO_FEW_DIGITS, Codes
from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import as_array, as_doubles
from warpfrag.formats.codes import codes_of, from_codes, to_codes
from warpfrag.formats.number_formats import Format
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import AnyOperand, Operand

SLOP = 1e-9  # relative tolerance, because bounds and decimals are rounded to binary, and ties must match
NARROW = {"float16": 10, "bfloat16": 7}  # fraction bits of the types to which a wider D is often converted
MIN_KNOWN = 0.75  # the share of elements whose digits must show the conversion to a narrower type
MIN_DISTINCT = 4  # there are too few digits if less than a quarter of the expected distinct values remain


DECIMAL = re.compile(r"[+-]?0*(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Printed:
    """Numbers as a program printed them.

    `error` is half a unit of each number's last printed digit. `digits` describes the format, such as "6 decimals". If
    `by_register`, the values are those of each lane's registers, in order; otherwise they form a matrix.
    """

    values: NDArray[np.float64]
    error: NDArray[np.float64]
    digits: str
    by_register: bool = False

    def arranged(self, operand: AnyOperand) -> Printed:
        """Return the numbers as a matrix; numbers in register order are rearranged."""
        if not self.by_register:
            return self
        first = fragment.first_places(operand.layout)
        axes = len(operand.threads) + 1
        matrices = (
            array.reshape(*array.shape[: array.ndim - axes], -1).take(first, axis=-1)
            for array in (self.values, self.error)
        )
        values, error = (matrix.reshape(*matrix.shape[:-1], *operand.shape) for matrix in matrices)
        return replace(self, values=values, error=error, by_register=False)


def read_decimals(texts: Sequence[str], shape: tuple[int, ...], *, by_register: bool = False) -> Printed:
    """Return decimals with the precision of their format: `%.2f`, `%e`, or `%g` with the largest number of digits.

    >>> read_decimals(["1.50", "22.25"], (2,)).digits, read_decimals(["1.5", "22.125"], (2,)).digits
    ('2 decimals', '5 significant digits')
    """
    values = np.array([float(text) for text in texts])
    finite = np.isfinite(values)
    parts = [DECIMAL.fullmatch(text) for text, is_finite in zip(texts, finite, strict=True) if is_finite]
    found = [(match[1], match[2] or "", match[3]) for match in parts if match]
    decimals = {len(fraction) for _, fraction, _ in found}
    has_exponent = any(exponent for *_, exponent in found)
    with np.errstate(divide="ignore"):
        magnitude = np.floor(np.log10(np.abs(np.where(finite & (values != 0), values, 1.0))))
    most = max(decimals, default=0)
    fixed = 0.0 if has_exponent else 0.5 * 10.0**-most
    if not has_exponent and len(decimals) == 1:
        error, digits = np.full(len(values), fixed), f"{most} decimals"
    else:
        significant = max((len((whole + fraction).lstrip("0")) for whole, fraction, _ in found), default=0)
        error = np.maximum(0.5 * 10.0 ** (magnitude - significant + 1), fixed)
        digits = f"{significant} significant digits"
    error = np.where(finite, error * (1 + SLOP) + np.abs(values) * np.finfo(np.float64).eps, 0.0)
    return Printed(values.reshape(shape), error.reshape(shape), digits, by_register)


@dataclass(frozen=True, eq=False)
class Observation:
    """Observed matrices: their codes and, if they were read from decimals, the printed numbers."""

    format: Format
    codes: Codes
    printed: Printed | None = None

    @property
    def slack(self) -> NDArray[np.float64]:
        """The largest possible distance between each element and the value of its code."""
        return np.zeros(self.codes.shape) if self.printed is None else self.printed.error

    @property
    def values(self) -> NDArray[np.float64]:
        """The observed numbers."""
        return as_doubles(from_codes(self.format, self.codes)) if self.printed is None else self.printed.values

    def widened(self, error: NDArray[np.float64] | float) -> Observation:
        """Return the observation with a larger error; an element with infinite error matches every value."""
        digits = "" if self.printed is None else self.printed.digits
        return replace(self, printed=Printed(self.values, self.slack + error, digits))

    def narrowed(self) -> Observation:
        """Return the observation with the precision of bfloat16 or float16 if that type contains every element."""
        values = np.where(np.isfinite(self.values), self.values, 0.0)
        for bits in sorted(bits for bits in NARROW.values() if bits < self.format.fraction):
            unit = np.ldexp(1.0, np.frexp(values)[1] - 1 - bits)
            is_known = np.mean(2 * self.slack < unit) > MIN_KNOWN
            if is_known and (np.abs(np.rint(values / unit) * unit - values) <= self.slack).all():
                return self.widened(unit * (0.5 + SLOP))
        return self

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Observation:
        """Return the observation with a function, such as a reshape or transposition, applied to every array."""
        printed = self.printed
        if printed is not None:
            printed = replace(printed, values=change(printed.values), error=change(printed.error))
        return replace(self, codes=change(self.codes), printed=printed)

    def matches(self, codes: Codes) -> NDArray[np.bool_]:
        """Return a mask of codes that may be the observed ones: they are equal, or print with the same digits."""
        same: NDArray[np.bool_] = np.asarray(codes == self.codes)
        if self.printed is None:
            return same
        values = as_doubles(from_codes(self.format, codes))
        with np.errstate(invalid="ignore"):
            near = (np.abs(values - self.printed.values) <= self.printed.error) | np.isinf(self.printed.error)
        return np.asarray(same | near | (np.isnan(values) & np.isnan(self.printed.values)))

    def is_exact(self, codes: Codes) -> bool:
        """Return True if all codes are equal, even if the numbers were printed with few digits."""
        return np.array_equal(codes, self.codes)

    def towards(self, right: Codes) -> Codes:
        """Return the observed codes; each that matches the expected code is replaced by it."""
        return np.where(self.matches(right), right, self.codes)

    def notes(self, right: Codes) -> tuple[str, ...]:
        """Return a note on the number of digits that are compared; none if codes are compared exactly."""
        if self.printed is None or not self.printed.digits or not np.isfinite(self.printed.values).any():
            return ()
        note = f"compared at the precision of the dump: {self.printed.digits}"
        if np.unique(self.printed.values).size * MIN_DISTINCT < np.unique(right).size:
            note += f"; most elements look alike at this precision: {TOO_FEW_DIGITS}"
        return (note,)


def observe(operand: AnyOperand, observed: ArrayLike | Printed) -> Observation:
    """Read an observed operand: registers if the array has their dtype and shape, otherwise a matrix.

    The last two axes may be exchanged; the caller checks the shape.
    """
    if isinstance(observed, Printed):
        arranged = observed.arranged(operand)
        is_exact = not operand.format.is_float
        codes = _nearest(operand.format, arranged.values)
        return Observation(operand.format, codes, None if is_exact else arranged)
    array = as_array(observed, operand.description)
    held = (*operand.threads, operand.words)
    if array.dtype == np.uint32 and array.shape[-len(held) :] == held and isinstance(operand, Operand):
        return Observation(operand.format, operand.unpack(array, raw=True))
    shape = operand.shape
    got = array.shape[max(0, array.ndim - len(shape)) :]
    if got not in (shape, (*shape[:-2], shape[-1], shape[-2])):
        registers = f"registers, uint32[..., {', '.join(map(str, held))}]"
        matrix = ", ".join(map(str, shape))
        raise InvalidOperand(
            f"{operand.description}: expected a matrix (..., {matrix}) or {registers}, got {array.dtype} {array.shape}"
        )
    if operand.format.is_float and (printed := stored_precision(operand.format, array)):
        return observe(operand, printed)
    return Observation(
        operand.format, codes_of(operand.format, array, raw=False, rounding=None, label=operand.description)
    )


def stored_precision(number_format: Format, array: NDArray[Any]) -> Printed | None:
    """Return D and its precision if it was converted to a narrower type or printed as decimals, otherwise None."""
    values = as_doubles(array)
    bits = NARROW.get(array.dtype.name)
    if bits is not None and bits < number_format.fraction:
        exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))[1]
        return Printed(values, np.ldexp(0.5 + SLOP, exponent - 1 - bits), array.dtype.name)
    is_wide = array.dtype == np.float64 and number_format.fraction < np.finfo(np.float64).nmant
    finite = values[np.isfinite(values)]
    if not is_wide or np.array_equal(as_doubles(from_codes(number_format, _nearest(number_format, finite))), finite):
        return None
    return read_decimals([repr(value) for value in values.ravel().tolist()], values.shape)


def _nearest(number_format: Format, values: NDArray[np.float64]) -> Codes:
    return to_codes(number_format, values, rounding="rne")
