"""The terms of nvcuda::wmma: uses, layouts and element types, by their names in CUDA C++.

Names that Python already uses (`float`, `int`) are capitalized here; the package exports them with their C++ names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import natural_dtype
from warpfrag.formats.number_formats import FORMATS, Format
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.instruction_table import forms, legal_targets
from warpfrag.isa.qualifiers import Form, Shape
from warpfrag.isa.targets import read_target
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get


class CppEnum(Enum):
    """An enumeration whose names are those of C++."""

    def __str__(self) -> str:
        """Return the C++ spelling."""
        return self.name


class Use(CppEnum):
    """The matrix that a fragment holds; the value is the operand's letter in PTX."""

    matrix_a = "a"
    matrix_b = "b"
    accumulator = "c"


class MatrixLayout(CppEnum):
    """The memory order of a multiplicand, part of its fragment's type; the value is the PTX qualifier."""

    row_major = "row"
    col_major = "col"


class MemoryLayout(CppEnum):
    """The memory order of an accumulator in a load or store (C++: layout_t); the value is the PTX qualifier."""

    mem_row_major = "row"
    mem_col_major = "col"


@dataclass(frozen=True, repr=False)
class ElementType:
    """An element type of a fragment, or of its `x`, in C++.

    `format_name` is the name in PTX, or "" if no fragment has the type. `storage` is the type of the entries of `x` if
    it differs: CUDA stores tf32 in a float, and several sub-byte elements in one integer.
    """

    name: str
    format_name: str = ""
    storage: ElementType | None = None

    def __repr__(self) -> str:
        """Return the C++ spelling."""
        return self.name

    @property
    def format(self) -> Format:
        """The format of one element."""
        return FORMATS[self.format_name]

    @property
    def is_sub_byte(self) -> bool:
        """True if one entry of `x` holds several elements."""
        return bool(self.format_name) and self.format.bits < 8

    @property
    def dtype(self) -> np.dtype[np.generic[object]]:
        """The NumPy dtype of one entry of `x`."""
        if self.storage:
            return self.storage.dtype
        return natural_dtype(self.format) if self.format_name else np.dtype(np.uint32)


UNSIGNED = ElementType("unsigned")  # used only for storage
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

# Code that does not import `float` and `int` from this package passes Python's own, which stand for the C++ types.
BUILTINS: dict[object, ElementType] = {float: FLOAT, int: INT}


class Precision:
    """Element types that only tensor cores support."""

    tf32 = TF32


class ExperimentalPrecision:
    """Sub-byte element types, which CUDA calls experimental."""

    u4 = U4
    s4 = S4
    b1 = B1


def as_real(values: ArrayLike, label: str) -> NDArray[Any]:
    """Return an array of real numbers; raise an error for values that NumPy would have to parse."""
    array = as_array(values, label)
    if array.dtype.kind in "OSUcmM" or (array.dtype.kind == "V" and array.dtype.names):
        raise InvalidOperand(f"{label}: expected real numbers, got {quote(values)}")
    return array


def spelling(argument: object) -> str:
    """Return an argument as text for messages: our own types in C++ spelling, anything else quoted."""
    return argument.name if isinstance(argument, Enum) else quote(argument)


def element_type(argument: object) -> ElementType:
    """Return the requested element type; raise an error for anything else."""
    if isinstance(argument, type):
        argument = BUILTINS.get(argument, argument)
    if isinstance(argument, ElementType) and argument.format_name:
        return argument
    names = ", ".join(entry.name for entry in ELEMENT_TYPES)
    raise InvalidOperand(f"element type: expected one of {names}; got {quote(argument)}")


UNUSED = FORMATS["tf32"].unused
LOW_BITS = np.uint32((1 << UNUSED) - 1)
HALF_A_STEP = np.uint32(1 << (UNUSED - 1))
QUIET = np.uint32(1 << (FORMATS["f32"].fraction - 1))


@overload
def float_to_tf32(values: float) -> np.float32: ...


@overload
def float_to_tf32(values: Sequence[float] | NDArray[np.generic]) -> NDArray[np.float32]: ...


def float_to_tf32(values: ArrayLike) -> np.float32 | NDArray[np.float32]:
    """Round floats to the nearest tf32, ties away from zero, as cvt.rna.tf32.f32 does; the low 13 bits are zero.

    Values nearer to 2**128 than to the largest tf32 become infinity. A NaN becomes quiet.

        >>> from warpfrag import wmma
        >>> wmma.float_to_tf32(1 + 2**-11), wmma.float_to_tf32(-1 - 2**-12)
        (np.float32(1.0009766), np.float32(-1.0))
    """
    with np.errstate(over="ignore", invalid="ignore"):  # this produces infinities and quiet NaNs, as in C++
        floats = as_real(values, "float_to_tf32").astype(np.float32)
    codes = floats.view(np.uint32)
    # the exponent is above the fraction, so a carry out of the fraction increments the exponent
    rounded = np.where(np.isnan(floats), codes | QUIET, codes + np.where(np.isnan(floats), np.uint32(0), HALF_A_STEP))
    result: NDArray[np.float32] = (rounded & ~LOW_BITS).view(np.float32)
    return result[()]  # a single value becomes a NumPy scalar


PRODUCT = "wmma.mma"
LOAD = "wmma.load"


def base_arch(name: str) -> str:
    """Return the architecture of a target, such as sm_90 for sm_90a; raise an error for an unknown one."""
    return read_target(name, "wmma").arch


@cache
def fragments(use: Use, arch: str) -> dict[tuple[str, Shape], tuple[str, ...]]:
    """Return every valid fragment for a use on an architecture: format and shape, with its memory layouts."""
    layouts: dict[tuple[str, Shape], tuple[str, ...]] = {}
    for form in forms():
        if form.op == f"{LOAD}.{use.value}" and arch in legal_targets(form):
            key = (str(getattr(form, use.value)), form.shape)
            layouts[key] = (*layouts.get(key, ()), *form.layouts)
    return layouts


def sizes(shape: Shape) -> str:
    """Return a shape as the CUDA guide writes it."""
    return f"{shape.m}x{shape.n}x{shape.k}"


def describe_allowed(use: Use, arch: str) -> str:
    """Return a list of every valid fragment for a use, for error messages."""
    rows = fragments(use, arch)
    both = tuple(layout.value for layout in MatrixLayout)

    def entry(name: str) -> str:
        shapes = {shape: words for (format_name, shape), words in rows.items() if format_name == name}
        only = {MatrixLayout(word).name for words in shapes.values() for word in words if words != both}
        rule = f" ({' or '.join(sorted(only))} only)" if only else ""
        return f"{BY_FORMAT[name].name} {' '.join(sizes(shape) for shape in shapes)}{rule}"

    return "; ".join(entry(name) for name in dict.fromkeys(format_name for format_name, _ in rows))


@cache
def find_operand(use: Use, shape: Shape, element: ElementType, layout: MatrixLayout | None, arch: str) -> Operand:
    """Return the register operand of a fragment; raise an error that lists the valid combinations if it is invalid."""
    words = fragments(use, arch).get((element.format_name, shape), ())
    if not words or (layout and layout.value not in words):
        wanted = f"{element.name} {sizes(shape)}" + (f" {layout}" if layout else "")
        raise InvalidOperand(
            f"fragment {use} of {wanted} does not exist on {arch}; valid fragments: {describe_allowed(use, arch)}"
        )
    name = f"{LOAD}.{use.value}.sync.aligned.{words[0]}.{shape}.{element.format_name}"
    operand: Operand = getattr(get(name, arch), use.value)
    return operand


@cache
def accumulators(shape: Shape, multiplicand: ElementType) -> tuple[ElementType, ...]:
    """Return the types that C and D of an mma may have on some architecture, each independently of the other."""
    names = [form.d for form in forms() if (form.op, form.shape, form.a) == (PRODUCT, shape, multiplicand.format_name)]
    return tuple(BY_FORMAT[name] for name in dict.fromkeys(names))


@cache
def find_product(
    shape: Shape,
    layouts: tuple[MatrixLayout, MatrixLayout],
    types: tuple[ElementType, ElementType, ElementType],
    arch: str,
    *,
    saturate: bool = False,
    bit_operation: str = "",
) -> Instruction:
    """Return the wmma.mma with these types for D, for A and B, and for C."""
    d, multiplicand, c = (entry.format_name for entry in types)
    form = Form(
        op=PRODUCT,
        shape=shape,
        layouts=(layouts[0].value, layouts[1].value),
        d=d,
        a=multiplicand,
        b=multiplicand,
        c=c,
        satfinite=saturate,
        bitop=bit_operation,
    )
    return get(spell(form), arch)
