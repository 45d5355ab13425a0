"""Use arrays of any library as launch memory, without a copy.

No library is imported: a caller that passes a tensor has already imported PyTorch. Kernels see bytes, so dtypes that
NumPy lacks (PyTorch's bfloat16) work too; an array that NumPy cannot represent is passed as bytes.
"""

import ctypes
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import is_masked_array
from warpfrag.tensorcore.array_types import kind_of

HOST_DEVICES = {1, 3}  # DLPack device types of host memory: plain and pinned


def as_host_array(value: object, label: str) -> NDArray[Any] | None:
    """Return a NumPy array that shares a value's memory, or None if the value is not an array.

    Raise InvalidOperand for dtypes that no GPU supports.
    """
    if is_masked_array(value):
        raise InvalidOperand(f"{label}: expected a plain array, got a masked one; use .filled()")
    array = value if isinstance(value, np.ndarray) else _foreign(value, label)
    numbers = value if isinstance(value, np.generic) else array  # a NumPy scalar may be a record
    if numbers is not None and numbers.dtype.hasobject:
        raise InvalidOperand(f"{label}: expected an array of numbers, got {numbers.dtype}")
    if numbers is not None and not numbers.dtype.isnative:
        raise InvalidOperand(
            f"{label}: expected little-endian numbers, got big-endian ones ({numbers.dtype.str}); convert with .astype"
        )
    return array


def as_bytes(value: object, label: str) -> NDArray[np.uint8] | None:
    """Return an array's memory as bytes, or None if the value is not an array."""
    array = as_host_array(value, label)
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise InvalidOperand(
            f"{label}: expected a contiguous array, got strides {array.strides} for shape {array.shape}"
        )
    return array.reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)


def _foreign(value: object, label: str) -> NDArray[Any] | None:
    """Return a NumPy array that shares another library's array, or None if the value is not an array."""
    kind = kind_of(value)
    if kind.library == "torch":
        return _tensor(value, kind.device, label)
    if kind.on_gpu or hasattr(value, "__cuda_array_interface__"):
        raise InvalidOperand(f"{label}: expected an array in host memory, got one in GPU memory; copy it first")
    if isinstance(value, np.generic):
        return None
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        device = value.__dlpack_device__()[0]
        if device not in HOST_DEVICES:
            raise InvalidOperand(f"{label}: expected an array in host memory, got one on DLPack device {int(device)}")
        try:
            return cast("NDArray[Any]", np.from_dlpack(value))
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidOperand(
                f"{label}: NumPy cannot share the memory of this {type(value).__name__} ({error}); pass it as integers"
            ) from None
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def _tensor(tensor: Any, device: str, label: str) -> NDArray[Any]:  # noqa: ANN401 # PyTorch's, if it is installed
    """Return the bytes of a PyTorch tensor of any dtype."""
    if device != "cpu":
        raise InvalidOperand(f"{label}: expected a tensor in host memory, got one on {device}; call .cpu()")
    if str(tensor.layout) != "torch.strided" or tensor.is_conj() or tensor.is_neg():
        raise InvalidOperand(f"{label}: expected a dense tensor, got a sparse or conjugated one")
    if not tensor.is_contiguous():
        strides, shape = tuple(tensor.stride()), tuple(tensor.shape)
        raise InvalidOperand(
            f"{label}: expected a contiguous tensor, got strides {strides} for shape {shape}; call .contiguous()"
        )
    count = tensor.numel() * tensor.element_size()
    if not count:
        return np.zeros(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * count).from_address(tensor.data_ptr()), np.uint8)
