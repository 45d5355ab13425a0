"""Arrays at the public surface: the names of their types, and how an argument becomes an array."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand

Words: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint32]]"
"""Registers of 32 bits."""
Bytes: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"
"""A memory, byte by byte."""
Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.generic[object]]]"
"""Numbers of a format's natural dtype, or unsigned codes: which, the function says."""


def as_array(array: ArrayLike, what: str) -> NDArray[Any]:
    """An argument as an array; rows of unlike lengths and masked elements are refused, under the argument's name."""
    try:
        converted = np.asarray(array)
    except ValueError as error:
        raise InvalidOperand(f"{what}: expected an array of numbers, got rows of unlike lengths ({error})") from None
    except (TypeError, RuntimeError) as error:  # what the arrays of other libraries raise, such as sparse tensors
        raise InvalidOperand(
            f"{what}: expected an array of numbers, got a {type(array).__name__} that numpy cannot read ({error})"
        ) from None
    if is_masked_array(array) and np.ma.is_masked(array):
        raise InvalidOperand(f"{what}: expected an array of numbers, got one with masked elements: fill them first")
    return converted


def is_masked_array(value: object) -> bool:
    """Return True for a masked array; numpy imports their module on first use, so without it there is none."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def as_doubles(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers as float64, without warnings: a signalling NaN becomes a quiet one, and what is too large infinite."""
    with np.errstate(invalid="ignore", over="ignore"):
        return numbers.astype(np.float64)
