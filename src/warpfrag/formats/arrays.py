"""Arrays in the public API: their types, and the conversion of arguments to arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    import torch

Words: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint32]]
"""An array of 32-bit registers."""
Bytes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
"""An array of the bytes in a memory space."""
Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.generic[object]]]"
"""An array of numbers in a format's natural dtype, or of unsigned codes, as the function specifies."""
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int64]
"""Indices, offsets or times."""
Doubles: TypeAlias = NDArray[np.float64]


class HasDtype(Protocol):
    """The interface that arrays of all libraries share."""

    @property
    def dtype(self) -> object:
        """The dtype, in the notation of the array's library."""


def as_array(array: ArrayLike, label: str) -> NDArray[Any]:
    """Return an argument as an array; reject ragged rows and masked elements, naming the argument in the error."""
    try:
        converted = tensor_as_array(cast("torch.Tensor", array)) if is_tensor(array) else np.asarray(array)
    except InvalidOperand as error:
        raise InvalidOperand(f"{label}: {error}") from None
    except ValueError as error:
        raise InvalidOperand(f"{label}: expected an array of numbers, got rows of unequal length ({error})") from None
    except (TypeError, RuntimeError) as error:  # raised by other libraries' arrays, such as sparse tensors
        raise InvalidOperand(
            f"{label}: expected an array of numbers, got a {type(array).__name__} that NumPy cannot read ({error})"
        ) from None
    if is_masked_array(array) and np.ma.is_masked(array):
        raise InvalidOperand(f"{label}: expected an array of numbers, got one with masked elements: fill them first")
    return converted if converted.dtype.isnative else converted.astype(converted.dtype.newbyteorder("="))


def is_tensor(value: object) -> bool:
    """Return True for a PyTorch tensor; PyTorch is not imported, because a caller with a tensor has imported it."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "device") and hasattr(value, "layout")


def tensor_as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array in host memory, with ml_dtypes' dtypes for those that NumPy lacks (bfloat16)."""
    import torch

    plain = dense(tensor).cpu()
    wanted = dtype_of(plain)
    if wanted.kind in "biufc":  # dtypes that NumPy itself supports
        return np.asarray(plain.numpy())
    bits = {1: torch.uint8, 2: torch.int16}[wanted.itemsize]
    return np.asarray(plain.contiguous().view(bits).numpy().view(wanted))


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor without autograd history or lazy conjugation; raise InvalidOperand for other layouts."""
    import torch

    if getattr(tensor, "is_nested", False):  # nested tensors have no shape
        raise InvalidOperand("expected a dense tensor, got a nested one")
    if tensor.is_sparse or tensor.is_quantized or tensor.layout != torch.strided:
        raise InvalidOperand(f"expected a dense tensor, got one with layout {tensor.layout}")
    return tensor.detach().resolve_conj().resolve_neg()


def dtype_of(array: HasDtype) -> np.dtype[Any]:
    """Return the dtype of an array as NumPy or ml_dtypes names it."""
    import ml_dtypes

    name = str(array.dtype).removeprefix("torch.")
    try:
        return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
    except TypeError:
        raise InvalidOperand(f"expected an array of numbers, got dtype {quote(name)}") from None


def is_masked_array(value: object) -> bool:
    """Return True for a masked array; numpy.ma is not imported, because without it there are no masked arrays."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def as_doubles(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as float64 without warnings: signalling NaNs become quiet, values out of range become infinite."""
    with np.errstate(invalid="ignore", over="ignore"):
        return numbers.astype(np.float64)
