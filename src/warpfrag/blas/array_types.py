"""Kinds of arrays: numpy's, PyTorch's and CuPy's, in the memory of the host or of a GPU.

A product is given back as the kind its operands came as. Nothing is imported to find out: whoever gives a tensor has
PyTorch. Arrays of a GPU are handled by CuPy, as unsigned integers beside the dtype that their bits have.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import ml_dtypes
import numpy as np

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import cupy
    import torch
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats.arrays import Array

    MatrixLike: TypeAlias = "ArrayLike | Foreign"


class HasDtype(Protocol):
    """An array of any kind."""

    @property
    def dtype(self) -> object:
        """As its library spells it."""


class TorchTensor(Protocol):
    """What a type checker knows PyTorch's tensors by, installed or not."""

    def detach(self) -> object:
        """The same without a history."""


class CupyArray(Protocol):
    """What a type checker sees of CuPy's arrays."""

    def get(self) -> object:
        """The same in the memory of the host."""

    @property
    def device(self) -> object:
        """The GPU whose memory it is in."""


class DaskArray(Protocol):
    """What a type checker sees of Dask's arrays."""

    def compute(self) -> object:
        """The same as one array."""

    @property
    def chunks(self) -> object:
        """How it is cut."""


Foreign: TypeAlias = TorchTensor | CupyArray | DaskArray
"""Arrays of other libraries than numpy: a product of theirs is one of theirs."""
ForeignArray = TypeVar("ForeignArray", bound=Foreign)
Lazy = TypeVar("Lazy", bound=DaskArray)


class ArrayKind(NamedTuple):
    """Whose arrays, and on which device."""

    library: str = "numpy"
    device: str = "cpu"
    """As its library spells it."""

    @property
    def on_gpu(self) -> bool:
        """Whether the memory is a GPU's."""
        return self.device != "cpu"

    def __str__(self) -> str:
        """As messages name it, such as `torch tensor on cuda:0`."""
        names = {"numpy": "numpy array", "torch": "torch tensor", "cupy": "CuPy array"}
        return f"{names[self.library]} on {self.device}"


HOST = ArrayKind()


def kind_of(array: object) -> ArrayKind:
    """The kind of an array; lists and numbers are numpy's."""
    library = type(array).__module__.partition(".")[0]
    if library == "torch" and hasattr(array, "device") and hasattr(array, "layout"):
        if getattr(array, "is_nested", False):  # it has no shape to ask for
            msg = "expected a dense tensor, got a nested one"
            raise InvalidOperand(msg)
        return ArrayKind("torch", str(array.device))
    if library == "cupy" and hasattr(array, "device"):
        return ArrayKind("cupy", f"cuda:{array.device.id}")
    return HOST


def common_kind(arrays: Mapping[str, Any]) -> ArrayKind:
    """The kind of all arrays that are given; a mixture is refused."""
    kinds = {name: kind_of(array) for name, array in arrays.items() if array is not None}
    distinct = set(kinds.values())
    if len(distinct) > 1:
        listed = ", ".join(f"{name} is a {kind}" for name, kind in kinds.items())
        msg = f"arrays of several kinds: {listed}; expected one kind, on one device"
        raise InvalidOperand(msg)
    kind = distinct.pop() if distinct else HOST
    if kind.on_gpu and not kind.device.startswith("cuda:"):
        msg = f"expected arrays of the host or of an NVIDIA GPU, got a {kind}"
        raise InvalidOperand(msg)
    return kind


@contextmanager
def device_of(kind: ArrayKind) -> Iterator[None]:
    """While it lasts, CuPy works on the GPU that has the memory of such arrays."""
    if not kind.on_gpu:
        yield
        return
    from warpfrag.tensorcore.backends.device_kernel import cupy

    with cupy().cuda.Device(int(kind.device.removeprefix("cuda:"))):
        yield


def dtype_of(array: HasDtype) -> np.dtype[Any]:
    """The dtype of an array as numpy and ml_dtypes call it."""
    name = str(array.dtype).removeprefix("torch.")
    try:
        return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
    except TypeError:
        msg = f"expected an array of numbers, got dtype {quote(name)}"
        raise InvalidOperand(msg) from None


def to_host(array: MatrixLike, kind: ArrayKind) -> ArrayLike:
    """The same in the memory of the host, as numpy has it; what is numpy's already comes back as it is."""
    if kind.library == "cupy":
        return cast("ArrayLike", cast("cupy.ndarray", array).get())
    if kind.library != "torch":
        return cast("ArrayLike", array)
    import torch

    plain = _dense(cast("torch.Tensor", array)).cpu()
    wanted = dtype_of(plain)
    if wanted.kind in "biufc":  # those that numpy has itself
        return cast("ArrayLike", plain.numpy())
    bits = {1: torch.uint8, 2: torch.int16}[wanted.itemsize]
    return cast("ArrayLike", plain.contiguous().view(bits).numpy().view(wanted))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without a history whose memory holds its numbers; what is not dense is refused."""
    import torch

    if tensor.is_sparse or tensor.is_quantized or tensor.layout != torch.strided:
        msg = f"expected a dense tensor, got one with layout {tensor.layout}"
        raise InvalidOperand(msg)
    return tensor.detach().resolve_conj().resolve_neg()


def device_bits(array: torch.Tensor | cupy.ndarray, kind: ArrayKind) -> cupy.ndarray:
    """An array of a GPU as unsigned integers, which CuPy handles, whatever its dtype."""
    from warpfrag.tensorcore.backends.device_kernel import cupy

    cp = cupy()
    size = dtype_of(array).itemsize
    if kind.library == "torch":
        import torch

        signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        array = cp.from_dlpack(_dense(array).contiguous().view(signed))
    return cp.ascontiguousarray(array).view(f"uint{8 * size}")


def on_gpu(array: NDArray[Any]) -> cupy.ndarray:
    """A copy in the memory of the GPU."""
    from warpfrag.tensorcore.backends.device_kernel import cupy

    return cupy().asarray(array)


def to_caller_kind(array: NDArray[Any] | cupy.ndarray, kind: ArrayKind) -> Array | torch.Tensor | cupy.ndarray:
    """A result, which is numpy's or CuPy's, as the kind that was given."""
    if kind.library == "cupy":
        from warpfrag.tensorcore.backends.device_kernel import cupy

        return cupy().asarray(array)
    if kind.library != "torch":
        return array
    import torch

    name = array.dtype.name
    size = array.dtype.itemsize
    if isinstance(array, np.ndarray):
        plain = np.ascontiguousarray(array)
        whole = plain if plain.dtype.kind in "biuf" else plain.view(f"int{8 * size}")
        tensor = torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(kind.device)
    else:
        tensor = torch.utils.dlpack.from_dlpack(array)
    wanted = getattr(torch, name)
    return tensor if tensor.dtype == wanted else tensor.view(wanted)
