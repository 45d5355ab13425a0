"""The words of nvcuda::wmma: uses, layouts and element types, by their names in CUDA C++.

Names that Python has taken (`float`, `int`) are defined in capitals here; the package exports them as C++ has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS, Format

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Use(Enum):
    """Which matrix of a product a fragment holds; the value is the operand's letter in PTX."""

    matrix_a = "a"
    matrix_b = "b"
    accumulator = "c"

    def __str__(self) -> str:
        """As C++ spells it."""
        return self.name


class MatrixLayout(Enum):
    """How the memory of a multiplicand runs: part of the type of its fragment; the value is PTX's word."""

    row_major = "row"
    col_major = "col"

    def __str__(self) -> str:
        """As C++ spells it."""
        return self.name


class MemoryLayout(Enum):
    """How the memory of an accumulator runs (C++: layout_t): said at each load and store; the value is PTX's word."""

    mem_row_major = "row"
    mem_col_major = "col"

    def __str__(self) -> str:
        """As C++ spells it."""
        return self.name


@dataclass(frozen=True, repr=False)
class ElementType:
    """A type that C++ can give a fragment or its `x`.

    `format_name` is what PTX calls it, empty for a type that no fragment has. `storage` is the type of `x` where it is
    another one: CUDA keeps tf32 in a float, and sub-byte elements several to a word.
    """

    name: str
    format_name: str = ""
    storage: ElementType | None = None

    def __repr__(self) -> str:
        """As C++ spells it."""
        return self.name

    @property
    def format(self) -> Format:
        """What one element is."""
        return FORMATS[self.format_name]

    @property
    def storage_type(self) -> ElementType:
        """The type of one entry of `x`."""
        return self.storage or self

    @property
    def is_sub_byte(self) -> bool:
        """Whether one entry of `x` holds several elements."""
        return bool(self.format_name) and self.format.bits < 8

    @property
    def dtype(self) -> np.dtype[np.generic[object]]:
        """What numpy calls one entry of `x`."""
        if self.storage:
            return self.storage.dtype
        return natural_dtype(self.format) if self.format_name else np.dtype(np.uint32)


UNSIGNED = ElementType("unsigned")  # only ever storage
INT = ElementType("int", "s32")
FLOAT = ElementType("float", "f32")
DOUBLE = ElementType("double", "f64")
HALF = ElementType("half", "f16")
BFLOAT16 = ElementType("bfloat16", "bf16")
SIGNED_CHAR = ElementType("signed_char", "s8")
UNSIGNED_CHAR = ElementType("unsigned_char", "u8")
TF32 = ElementType("precision.tf32", "tf32", FLOAT)
U4 = ElementType("experimental.precision.u4", "u4", UNSIGNED)
S4 = ElementType("experimental.precision.s4", "s4", INT)
B1 = ElementType("experimental.precision.b1", "b1", UNSIGNED)

ELEMENT_TYPES = (HALF, FLOAT, DOUBLE, BFLOAT16, SIGNED_CHAR, UNSIGNED_CHAR, INT, TF32, U4, S4, B1)
BY_FORMAT = {entry.format_name: entry for entry in ELEMENT_TYPES}

# C++ writes `float` and `int`; who has not imported ours passes Python's, and means the types of C++.
BUILTINS: dict[object, ElementType] = {float: FLOAT, int: INT}


class Precision:
    """Element types that exist for the tensor core only."""

    tf32 = TF32


class ExperimentalPrecision:
    """Sub-byte element types, which CUDA calls experimental."""

    u4 = U4
    s4 = S4
    b1 = B1


def as_real(values: ArrayLike, what: str) -> NDArray[Any]:
    """An array of real numbers; what numpy would first have to make numbers of is refused."""
    array = as_array(values, what)
    if array.dtype.kind in "OSUcmM" or (array.dtype.kind == "V" and array.dtype.names):
        msg = f"{what}: expected real numbers, got {quote(values)}"
        raise InvalidOperand(msg)
    return array


def spelling(argument: object) -> str:
    """What a user gave where a word of ours is expected: such a word as C++ spells it, anything else as it is shown."""
    return argument.name if isinstance(argument, Enum) else quote(argument)


def element_type(argument: object) -> ElementType:
    """The element type somebody means; refused where it is none."""
    if isinstance(argument, type):
        argument = BUILTINS.get(argument, argument)
    if isinstance(argument, ElementType) and argument.format_name:
        return argument
    names = ", ".join(entry.name for entry in ELEMENT_TYPES)
    msg = f"element type: expected one of {names}; got {quote(argument)}"
    raise InvalidOperand(msg)
