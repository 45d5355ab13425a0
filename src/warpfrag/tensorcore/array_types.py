"""Array types: NumPy, PyTorch and CuPy arrays in host or GPU memory.

Public functions convert each argument once, to a `Matrix`, and return results in the library of their operands. No
library is imported to detect arrays: a caller that passes a tensor has already imported PyTorch. CuPy handles
GPU arrays as unsigned integers; the dtype that their bits encode is kept separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import Array, as_array, dense, dtype_of, is_tensor, tensor_as_array
from warpfrag.formats.codes import code_dtype, codes_of, natural_dtype
from warpfrag.formats.epilogue import float32_of
from warpfrag.formats.number_formats import Format, Rounding

if TYPE_CHECKING:
    import cupy
    import torch


class TorchTensor(Protocol):
    """The part of PyTorch's tensor interface that a type checker needs even if PyTorch is not installed."""

    def detach(self) -> object:
        """Return the tensor without its autograd history."""


class CupyArray(Protocol):
    """The part of CuPy's array interface that a type checker needs."""

    def get(self) -> object:
        """Return a copy in host memory."""

    @property
    def device(self) -> object:
        """The GPU that stores the array."""


class DaskArray(Protocol):
    """The part of Dask's array interface that a type checker needs."""

    def compute(self) -> object:
        """Compute the whole array."""

    @property
    def chunks(self) -> object:
        """The chunks of each axis."""


Foreign: TypeAlias = TorchTensor | CupyArray | DaskArray
"""Array types of libraries other than NumPy; a gemm returns the array type of its arguments."""
MatrixLike: TypeAlias = ArrayLike | Foreign
ForeignArray = TypeVar("ForeignArray", bound=Foreign)
Lazy = TypeVar("Lazy", bound=DaskArray)


class ArrayKind(NamedTuple):
    """The library of an array, and its device."""

    library: str = "numpy"
    device: str = "cpu"
    """The device, in the notation of the array's library."""

    @property
    def on_gpu(self) -> bool:
        """True if the array is in GPU memory."""
        return self.device != "cpu"

    def __str__(self) -> str:
        """Return the name used in messages, such as `torch tensor on cuda:0`."""
        names = {"numpy": "numpy array", "torch": "torch tensor", "cupy": "CuPy array"}
        return f"{names[self.library]} on {self.device}"


HOST = ArrayKind()


def kind_of(array: object) -> ArrayKind:
    """Return the library and device of an array; lists and numbers count as NumPy arrays."""
    if is_tensor(array):
        if getattr(array, "is_nested", False):  # nested tensors have no shape
            raise InvalidOperand("expected a dense tensor, got a nested one")
        return ArrayKind("torch", str(cast("torch.Tensor", array).device))
    if type(array).__module__.partition(".")[0] == "cupy" and hasattr(array, "device"):
        return ArrayKind("cupy", f"cuda:{array.device.id}")
    return HOST


class Scaled(NamedTuple):
    """A matrix and its scale factors, one per block along k, as `wf.quantize` returns them."""

    elements: MatrixLike
    scales: MatrixLike


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix argument, or a batch of matrices: a NumPy array, or an array in GPU memory."""

    name: str
    array: Any
    kind: ArrayKind = HOST
    scales: Matrix | None = None

    @classmethod
    def read(cls, argument: MatrixLike | Scaled, name: str) -> Matrix:
        """Convert an argument; raise InvalidOperand if an array in host memory has fewer than two axes."""
        if isinstance(argument, Scaled):
            scales = cls.read(argument.scales, f"scale_{name.lower()}")
            return replace(cls.read(argument.elements, name), scales=scales)
        kind = kind_of(argument)
        if kind.on_gpu:
            return cls(name, argument, kind)
        array = as_array(to_host(argument, kind), name)
        if array.ndim < 2:
            raise InvalidOperand(f"{name}: expected a matrix, got an array of shape {array.shape}")
        return cls(name, array, kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of all axes."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype as NumPy or ml_dtypes names it."""
        return dtype_of(self.array)

    def __getitem__(self, index: Any) -> Matrix:  # noqa: ANN401 (slices)
        """Return a slice of the matrix; scale factors are kept whole."""
        return replace(self, array=self.array[index])

    def codes(self, number_format: Format, *, raw: bool = False, rounding: Rounding = None) -> NDArray[Any]:
        """Return the unsigned codes, in host or GPU memory like the matrix; with `raw`, elements are codes already."""
        on_gpu = self.kind.on_gpu
        natural = None if number_format.unused and rounding else natural_dtype(number_format)
        if on_gpu and self.dtype == (code_dtype(number_format) if raw else natural):
            bits: NDArray[Any] = device_bits(self.array, self.kind)  # the array's bits are already the codes
            fills = number_format.bits == 8 * bits.dtype.itemsize
            if fills or not bits.size or int(bits.max()) < number_format.codes:
                return bits
        on_host = np.asarray(to_host(self.array, self.kind)) if on_gpu else self.array
        codes = codes_of(number_format, on_host, raw=raw, rounding=rounding, label=self.name)
        return to_device(codes) if on_gpu else codes

    def floats(self) -> NDArray[np.float32]:
        """Return the numbers as float32 in host memory; raise InvalidOperand if this would round a number."""
        on_host = to_host(self.array, self.kind) if self.kind.on_gpu else self.array
        return float32_of(on_host, self.name)


def read_matrices(
    A: MatrixLike | Scaled, B: MatrixLike | Scaled, C: MatrixLike | None = None
) -> tuple[Matrix, Matrix, Matrix | None]:
    """Convert the arguments of a gemm; raise InvalidOperand if their libraries or devices differ."""
    a, b, c = Matrix.read(A, "A"), Matrix.read(B, "B"), None if C is None else Matrix.read(C, "C")
    kinds: dict[str, ArrayKind] = {}
    for matrix in (a, b, c):
        for part in (matrix, matrix and matrix.scales):
            if part is not None:
                kinds[part.name] = part.kind
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} is a {kind}" for name, kind in kinds.items())
        raise InvalidOperand(f"expected arrays from one library on one device, but {listed}")
    if a.kind.on_gpu and not a.kind.device.startswith("cuda:"):
        raise InvalidOperand(f"expected arrays in host memory or on an NVIDIA GPU, got a {a.kind}")
    return a, b, c


def to_host(array: MatrixLike, kind: ArrayKind) -> ArrayLike:
    """Return the array as a NumPy array in host memory; a NumPy array is returned unchanged."""
    if kind.library == "cupy":
        return cast("ArrayLike", cast("cupy.ndarray", array).get())
    if kind.library != "torch":
        return cast("ArrayLike", array)
    return tensor_as_array(cast("torch.Tensor", array))


def device_bits(array: torch.Tensor | cupy.ndarray, kind: ArrayKind) -> cupy.ndarray:
    """Return a GPU array of any dtype as unsigned integers, which CuPy can handle."""
    from warpfrag.tensorcore.backends.device_kernel import cupy

    cp = cupy()
    size = dtype_of(array).itemsize
    if kind.library == "torch":
        import torch

        signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        array = cp.from_dlpack(dense(array).contiguous().view(signed))
    return cp.ascontiguousarray(array).view(f"uint{8 * size}")


def to_device(codes: NDArray[Any]) -> NDArray[Any]:
    """Copy an array to the current GPU."""
    from warpfrag.tensorcore.backends.device_kernel import cupy

    moved: NDArray[Any] = cupy().asarray(codes)
    return moved


def to_caller_kind(array: NDArray[Any] | cupy.ndarray, kind: ArrayKind) -> Array | torch.Tensor | cupy.ndarray:
    """Convert a NumPy or CuPy result to the array type of the arguments."""
    if kind.library == "cupy":
        return to_device(array)
    if kind.library != "torch":
        return array
    import torch

    name = array.dtype.name
    size = array.dtype.itemsize
    if isinstance(array, np.ndarray):
        plain = np.ascontiguousarray(array)
        whole = plain if plain.dtype.isbuiltin == 1 else plain.view(f"int{8 * size}")
        tensor = torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(kind.device)
    else:
        tensor = torch.utils.dlpack.from_dlpack(array)
    wanted = getattr(torch, name)
    return tensor if tensor.dtype == wanted else tensor.view(wanted)
