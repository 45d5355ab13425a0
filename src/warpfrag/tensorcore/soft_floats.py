"""Exact numbers and their rounding to codes, for `reference`."""

from fractions import Fraction
from typing import NamedTuple

from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.rules import Direction


class Number(NamedTuple):
    """A decoded value: (-1)**negative * significand * 2**(exponent - fraction), or infinity, or NaN.

    `exponent` is the one used for alignment: that of the leading bit, or emin for every subnormal. It is not
    renormalised, so the significand of a subnormal has leading zeros. A zero does not affect the alignment unless
    `keeps_exponent` is set (for a group of products that cancel).
    """

    negative: bool = False
    significand: int = 0
    exponent: int = 0
    fraction: int = 0
    is_infinite: bool = False
    is_nan: bool = False
    code: int = 0
    keeps_exponent: bool = False

    @property
    def is_zero(self) -> bool:
        """True for a zero of either sign."""
        return not (self.significand or self.is_infinite or self.is_nan)

    @property
    def aligns(self) -> bool:
        """True if the exponent takes part in the alignment of terms."""
        return not self.is_zero or self.keeps_exponent

    @property
    def is_finite(self) -> bool:
        """True if the number is neither infinite nor NaN."""
        return not (self.is_infinite or self.is_nan)

    @property
    def value(self) -> Fraction:
        """The exact value of a finite number."""
        magnitude = Fraction(self.significand) * Fraction(2) ** (self.exponent - self.fraction)
        return -magnitude if self.negative else magnitude


UNITY = Number(significand=1)
MINUS_ZERO = Number(negative=True)
PLUS_ZERO = Number()


def unpack(format_name: str, code: int) -> Number:
    """Return the number that a code of a format represents."""
    fmt = FORMATS[format_name]
    negative = bool(code & fmt.sign_bit)
    magnitude = (code & (fmt.codes - 1) & ~fmt.sign_bit) >> fmt.unused
    fraction = magnitude & ((1 << fmt.fraction) - 1)
    field = magnitude >> fmt.fraction
    if fmt.nan == "ones" and magnitude == (1 << (fmt.exponent + fmt.fraction)) - 1:
        return Number(negative=negative, is_nan=True, code=code)
    if fmt.nan == "ieee" and field == (1 << fmt.exponent) - 1:
        return Number(negative=negative, is_infinite=not fraction, is_nan=bool(fraction), code=code)
    if not fmt.fraction:  # ue8m0 has no subnormals: code 0 is 2**-127
        return Number(significand=1, exponent=field - fmt.bias, code=code)
    hidden = (1 << fmt.fraction) if field else 0
    return Number(
        negative=negative,
        significand=hidden | fraction,
        exponent=max(field, 1) - fmt.bias,
        fraction=fmt.fraction,
        code=code,
    )


def round_code(
    format_name: str,
    negative: bool,  # noqa: FBT001
    magnitude: int,
    exponent: int,
    direction: Direction,
    *,
    fraction: int | None = None,
    overflows: bool = False,
) -> int:
    """Return the code of (-1)**negative * magnitude * 2**exponent, rounded once.

    `fraction` keeps fewer bits than the format has. With `overflows`, truncation past the largest value gives an
    infinity, as in tensor cores; without it, directed roundings stop at the largest finite value, as IEEE 754 requires.
    """
    fmt = FORMATS[format_name]
    kept = fmt.fraction if fraction is None else fraction
    sign = fmt.sign_bit if negative else 0
    if not magnitude:
        return sign
    place = max(magnitude.bit_length() - 1 + exponent, fmt.emin) - kept  # the weight of the last kept bit
    shift = place - exponent
    if shift <= 0:
        units, rest = magnitude << -shift, 0
    else:
        units, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    if rest:
        half = 1 << (shift - 1)
        nearest_up = rest > half or (rest == half and units & 1)
        away = {"rn": nearest_up, "rz": False, "rm": negative, "rp": not negative}[direction]
        units += bool(away)
    units <<= fmt.fraction - kept
    place -= fmt.fraction - kept
    # a carry into the next binade increments the exponent field
    field = place - (fmt.emin - fmt.fraction)
    code = (field << fmt.fraction) + units
    infinity = ((1 << fmt.exponent) - 1) << fmt.fraction
    if code >= infinity:
        stops = not overflows and (direction == "rz" or (direction == "rm") != negative)
        code = infinity - 1 if stops and direction != "rn" else infinity
    return sign | code
