"""Arrays in the public API: their types, and the conversion of arguments to arrays."""

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand

Words: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint32]]"
"""An array of 32-bit registers."""
Bytes: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"
"""An array of the bytes in a memory space."""
Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.generic[object]]]"
"""An array of numbers in a format's natural dtype, or of unsigned codes; the function says which."""


def as_array(array: ArrayLike, label: str) -> NDArray[Any]:
    """Return an argument as an array; reject ragged rows and masked elements, naming the argument in the error."""
    try:
        converted = np.asarray(array)
    except ValueError as error:
        raise InvalidOperand(f"{label}: expected an array of numbers, got rows of unequal length ({error})") from None
    except (TypeError, RuntimeError) as error:  # raised by other libraries' arrays, such as sparse tensors
        raise InvalidOperand(
            f"{label}: expected an array of numbers, got a {type(array).__name__} that NumPy cannot read ({error})"
        ) from None
    if is_masked_array(array) and np.ma.is_masked(array):
        raise InvalidOperand(f"{label}: expected an array of numbers, got one with masked elements: fill them first")
    return converted if converted.dtype.isnative else converted.astype(converted.dtype.newbyteorder("="))


def is_masked_array(value: object) -> bool:
    """Return True for a masked array; numpy.ma is not imported, because none exists unless it already is."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def as_doubles(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as float64 without warnings: signalling NaNs become quiet, values out of range become infinite."""
    with np.errstate(invalid="ignore", over="ignore"):
        return numbers.astype(np.float64)
