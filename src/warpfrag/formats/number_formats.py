"""Number formats: how the bits of one element encode its value.

An element is an unsigned integer *code*; a `Format` defines the *value* of each code. The formats are
rows of `tables/formats.toml`; everything else (largest value, NaN code, the dtype that NumPy uses) follows from
the row.

    >>> from warpfrag.formats.number_formats import FORMATS
    >>> FORMATS["e4m3"].decode(0x38)
    1.0
    >>> FORMATS["e4m3"].encode(448.0) == 0x7E
    True

`decode` and `encode` convert single values; `warpfrag.formats.codes` has the versions for arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from warpfrag.errors import InvalidOperand, quote
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from fractions import Fraction  # only for type checkers: look-ups do not need it, and it imports decimal

FormatKind = Literal["float", "integer", "bits"]
NanRule = Literal["ieee", "ones", "none"]
Rounding = Literal["rne"] | None
"""The rounding of a value that no code represents: "rne" takes the nearest, ties to even; None raises an error."""


def check_rounding(rounding: object) -> None:
    """Raise InvalidOperand for an unknown rounding mode."""
    if not (rounding is None or (isinstance(rounding, str) and rounding == "rne")):
        raise InvalidOperand(f'rounding must be "rne" or None, got {quote(rounding)}')


@dataclass(frozen=True, eq=False)
class Format:
    """A row of `tables/formats.toml`, which explains the fields. A format compares equal to its name."""

    name: str
    bits: int
    kind: FormatKind
    dtype: str
    source: str
    signed: bool = True
    exponent: int = 0
    fraction: int = 0
    bias: int = 0
    unused: int = 0
    infinity: bool = False
    nan: NanRule = "none"
    canonical_nan: int | None = None
    register: str = ".b32"

    def __post_init__(self) -> None:
        """Raise an error unless the fields of the row add up to the width."""
        if self.kind == "float":
            width = self.signed + self.exponent + self.fraction + self.unused
            if width != self.bits:
                raise ValueError(f"format {self.name}: the fields take {width} bits, but the row specifies {self.bits}")

    def __str__(self) -> str:
        """Return the name, as PTX spells it."""
        return self.name

    def __eq__(self, other: object) -> bool:
        """Return True for the same format, or for its name: `mma.a.format == "f16"`."""
        return str(other) == self.name if isinstance(other, Format | str) else NotImplemented

    def __hash__(self) -> int:
        """Hash the name, because a format is equal to its name."""
        return hash(self.name)

    @property
    def is_float(self) -> bool:
        """True for formats with an exponent."""
        return self.kind == "float"

    @property
    def codes(self) -> int:
        """The number of codes, 2 to the power of the width."""
        return 1 << self.bits

    @cached_property
    def sign_bit(self) -> int:
        """The sign bit as a mask, or 0 if the format has no sign."""
        return 1 << (self.bits - 1) if self.signed else 0

    @cached_property
    def emin(self) -> int:
        """The exponent of the smallest normal value; subnormals have the same exponent."""
        return 1 - self.bias

    @cached_property
    def nan_code(self) -> int | None:
        """The code of a quiet NaN, or None if the format has no NaN."""
        if self.nan == "none":
            return None
        ones = self.codes - 1 - self.sign_bit
        if self.nan == "ones":
            return ones
        return (((1 << (self.exponent + 1)) - 1) << (self.fraction - 1)) << self.unused

    @cached_property
    def max(self) -> float | int:
        """The largest finite value."""
        if not self.is_float:
            return self.codes // 2 - 1 if self.signed else self.codes - 1
        if self.nan == "ieee":
            top = (((1 << self.exponent) - 1) << self.fraction) - 1
        else:
            top = (1 << (self.exponent + self.fraction)) - 1 - (self.nan == "ones")
        return self.decode(top << self.unused)

    @cached_property
    def min(self) -> float | int:
        """The lowest finite value: the most negative one, or the smallest one of an unsigned format."""
        if not self.is_float:
            return -(self.codes // 2) if self.signed else 0
        return -self.max if self.signed else self.decode(0)

    def is_nan(self, code: int) -> bool:
        """Return True if a code is a NaN."""
        return self.is_float and math.isnan(self.decode(code))

    def decode(self, code: int) -> float | int:
        """Return the value of a code: an int for integers, else a float, which is always exact."""
        argument = code
        try:
            code = operator.index(code)  # a NumPy scalar may overflow, but an int does not
        except TypeError:
            code = -1
        if not 0 <= code < self.codes or isinstance(argument, bool):
            text = f"{argument:#x}" if isinstance(argument, int) and abs(argument) < 1 << 80 else quote(argument)
            raise InvalidOperand(f"{self.name}: a code must be an integer in 0..{self.codes - 1:#x}, got {text}")
        if not self.is_float:
            return code - self.codes if code & self.sign_bit else code
        if self.bits == 64:
            import struct

            # reinterpret the bits, because arithmetic might flush the value to zero
            value: float = struct.unpack("<d", struct.pack("<Q", code))[0]
            return value
        sign = -1.0 if code & self.sign_bit else 1.0
        magnitude = (code & ~self.sign_bit) >> self.unused
        fraction = magnitude & ((1 << self.fraction) - 1)
        exponent = magnitude >> self.fraction
        top = exponent == (1 << self.exponent) - 1
        if self.nan == "ones" and magnitude == (1 << (self.exponent + self.fraction)) - 1:
            return math.nan
        if top and self.nan == "ieee":
            return math.nan if fraction else sign * math.inf
        if not self.fraction:  # ue8m0 has no fraction, and hence no subnormals and no zero
            return math.ldexp(1.0, exponent - self.bias)
        if exponent == 0:
            return sign * math.ldexp(fraction, self.emin - self.fraction)
        return sign * math.ldexp((1 << self.fraction) | fraction, exponent - self.bias - self.fraction)

    def encode(self, value: float | Fraction, *, rounding: Rounding = None) -> int:
        """Return the code of a value; raise an error if it is inexact, unless `rounding="rne"` rounds to nearest even.

        With `rounding`, a value that is too large becomes infinity, or is rejected if the format has no infinity. In
        ue8m0, which has no fraction, a tie goes to the larger power of two, as in ml_dtypes.
        """
        from fractions import Fraction

        check_rounding(rounding)
        value = self._plain_number(value)
        if isinstance(value, float) and not math.isfinite(value):
            return self._encode_special(value)
        exact = Fraction(value)
        if not self.is_float:
            code = round(exact)  # Python rounds half to even
            if code != exact and rounding is None:
                raise InvalidOperand(self._refusal(value))
            if not self.min <= code <= self.max:
                raise InvalidOperand(self._refusal(value))
            return code % self.codes
        negative = exact < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
        if negative and not self.signed and exact:
            raise InvalidOperand(self._refusal(value))
        return self._encode_magnitude(abs(exact), value, rounding) | (self.sign_bit if negative else 0)

    def _plain_number(self, value: float | Fraction) -> float | Fraction:
        """Convert a value, which may be a NumPy scalar, exactly to a Python number.

        Raise an error if it is not a number, or if no Python number equals it.
        """
        from decimal import Decimal
        from fractions import Fraction

        plain = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
        if isinstance(plain, float | int | Fraction):
            return plain
        if isinstance(plain, Decimal) and plain.is_finite():
            return Fraction(plain)
        try:
            double = float(plain)  # a longdouble or an ml_dtypes scalar
        except (TypeError, ValueError, OverflowError):
            double = None
        if double is None or isinstance(plain, str | bytes) or (double != plain and not math.isnan(double)):
            raise InvalidOperand(
                f"{self.name}: expected a real number that a float, int or Fraction can represent, got {quote(value)}"
            )
        return double

    def _encode_magnitude(self, exact: Fraction, value: float | Fraction, rounding: Rounding) -> int:
        from fractions import Fraction

        exponent = self.emin
        if exact:
            floor_log2 = exact.numerator.bit_length() - exact.denominator.bit_length()
            if Fraction(2) ** floor_log2 > exact:
                floor_log2 -= 1
            exponent = max(floor_log2, self.emin if self.fraction else -self.bias)
        scaled = exact / Fraction(2) ** (exponent - self.fraction)
        units = round(scaled)
        if (units != scaled and rounding is None) or (not self.fraction and units == 0):
            raise InvalidOperand(self._refusal(value))
        if not self.fraction:
            code = exponent + self.bias + (units - 1)
        elif units < 1 << self.fraction:
            code = units
        else:
            # if rounding reaches the next power of two, the carry increments the exponent
            code = ((exponent + self.bias - 1) << self.fraction) + units
        infinity = ((1 << self.exponent) - 1) << self.fraction
        if self.infinity and code >= infinity:
            if rounding is None:
                raise InvalidOperand(self._refusal(value))
            return infinity << self.unused
        last = (1 << (self.exponent + self.fraction)) - 1 - (self.nan == "ones")
        if code > last:
            raise InvalidOperand(self._refusal(value))
        return code << self.unused

    def _encode_special(self, value: float) -> int:
        if math.isnan(value):
            if self.nan_code is None:
                raise InvalidOperand(f"{self.name} has no NaN, got {quote(value)}")
            return self.nan_code
        if not self.infinity:
            raise InvalidOperand(f"{self.name} has no infinity, got {quote(value)}; values are {self.min}..{self.max}")
        code = (((1 << self.exponent) - 1) << self.fraction) << self.unused
        return code | (self.sign_bit if value < 0 else 0)

    def _refusal(self, value: float | Fraction) -> str:
        if self.min <= value <= self.max:
            return f'{quote(value)} is not exact in {self.name}; rounding="rne" rounds it to the nearest value'
        return f"{quote(value)} is out of the range of {self.name}, {self.min}..{self.max}"


def _read() -> dict[str, Format]:
    return {name: Format(name=name, **row) for name, row in read_table("formats").items()}


FORMATS: dict[str, Format] = _read()
CANONICAL_NANS: dict[str, int] = {
    name: fmt.canonical_nan for name, fmt in FORMATS.items() if fmt.canonical_nan is not None
}
"""The NaN code that tensor cores return; conversions map every other NaN to it."""


class FormatAlias(NamedTuple):
    """An alias such as half, fp8 or nvfp4: the formats that it names, and the qualifiers that it requires."""

    name: str
    types: tuple[str, ...]
    lists: dict[str, list[str]]


@cache
def format_aliases() -> dict[str, FormatAlias]:
    """Return all format aliases, by name in lower case."""
    rows = read_table("format_aliases")["alias"]
    return {
        name: FormatAlias(name, tuple(row["types"]), {key: entry for key, entry in row.items() if key != "types"})
        for name, row in rows.items()
    }


def format_alias(text: object) -> FormatAlias | None:
    """Return the alias that a text names, ignoring case and namespaces, or None."""
    if not isinstance(text, str):
        return None
    return format_aliases().get(text.strip().lower().rpartition("::")[2].rpartition(".")[2])


def dtype_text(dtype: object) -> str:
    """Return the name of a dtype given as text, np.float16, np.dtype("float16") or torch.float16.

    >>> dtype_text(float)
    'float64'
    """
    if dtype is float or dtype is int:
        return "float64" if dtype is float else "int64"
    is_dtype = isinstance(dtype, type) or type(dtype).__name__.lower().endswith("dtype")
    name = dtype if isinstance(dtype, str) else quote(dtype)
    if is_dtype:
        name = getattr(dtype, "__name__", None) or str(dtype)
    return name.strip().removeprefix("torch.").removeprefix("np.").removeprefix("numpy.")


def format_name(dtype: object, known: Sequence[str], label: str = "dtype") -> str:
    """Return the one of the `known` formats that a dtype names, such as "f16", "FP16", np.float16 or torch.float16.

    A dtype, or "f32", names the first known format with that natural dtype: tf32 if f32 is not known.

    >>> format_name("float16", ["f16", "bf16"]), format_name("fp16", ["f16", "bf16"])
    ('f16', 'f16')
    >>> format_name("BF16", ["f16", "bf16"]), format_name("f32", ["f16", "tf32"])
    ('bf16', 'tf32')
    """
    name = dtype_text(dtype)
    alias = format_alias(name)
    meant = alias.types[0] if alias and len(alias.types) == 1 and not alias.lists else name.lower()
    if meant in known:
        return meant
    own = FORMATS.get(meant)
    if own is None or (own.is_float and own.signed and not own.unused):
        for entry in known:
            if FORMATS[entry].dtype == (name if own is None else own.dtype):
                return entry
    raise InvalidOperand(f"{label}: expected one of {', '.join(known)}, or its dtype; got {quote(dtype)}")
