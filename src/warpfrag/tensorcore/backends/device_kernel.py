"""GPU kernels that are compiled on first use and process a gemm in parts that fit in scratch memory.

The kernels are CUDA C++ in `tensorcore/gpu`. NVRTC compiles them with the parameters of a rule, and CuPy caches them on
disk by source, options and GPU. CuPy also provides the arrays. Operands are prepared on the GPU, a part of K at a time,
in scratch memory of fixed size.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import NoGpu, install_command
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.number_formats import CANONICAL_NANS, FORMATS
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.encodings import NAN_SCALE, SCALE_BITS, SCALE_FRACTION, TO_E8M13_RZ, TO_F16_RN, TO_F32_RZ
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.thread_split import part_of_k

DeviceArray = NDArray[Any]
"""A CuPy array, which has NumPy's interface but no type information."""
Struct = np.ndarray[tuple[()], np.dtype[np.void]]
"""A structure that is passed to a kernel by value."""

LONG, INT = np.int64, np.int32
SCRATCH_BYTES = 1 << 30
"""The approximate size in bytes of the memory for prepared operands."""
MAX_LINES = 8192
"""The maximum number of rows, and of columns, of D that are computed together from the same prepared operands."""
MIN_DEPTH = 1024
"""The minimum length of a part of K."""
THREADS = 128
MAX_TILES = 65535
"""The most tiles per launch, because the grid's third extent is limited."""
SHARED_FACTS: dict[str, int | str] = {
    "NAN_F16": f"{CANONICAL_NANS['f16']:#x}u",
    "NAN_F32": f"{CANONICAL_NANS['f32']:#x}u",
    "NAN_F64": f"{CANONICAL_NANS['f64']:#x}ull",
    "TO_F32_RZ": TO_F32_RZ,
    "TO_F16_RN": TO_F16_RN,
    "TO_E8M13_RZ": TO_E8M13_RZ,
    "NAN_SCALE": NAN_SCALE,
    "SCALE_BITS": SCALE_BITS,
    "SCALE_FRACTION": SCALE_FRACTION,
}
"""Macros that give every kernel the values of Python constants."""


def aligned(**fields: object) -> np.dtype[Any]:
    """Return a structure dtype with the compiler's layout."""
    return np.dtype(list(fields.items()), align=True)


def struct(kind: np.dtype[Any], *values: object) -> Struct:
    """Return a structure; values are given in the order of its fields."""
    return np.array(tuple(values), kind)


class GpuFunction(Protocol):
    """The interface of CuPy's kernels."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[object, ...], *, shared_mem: int = 0
    ) -> None:
        """Launch the kernel; the arguments are arrays, NumPy scalars and structures."""


class GpuModule(Protocol):
    """Compiled CUDA C++: CuPy's RawModule."""

    def get_function(self, name: str) -> GpuFunction:
        """Return a kernel by its name in the source code."""


@cache
def cupy() -> ModuleType:
    """Return the module CuPy; raise NoGpu with the reason if it or a GPU is missing."""
    try:
        import cupy as module
    except ImportError as error:
        raise NoGpu(f"CuPy is not installed ({error}): {install_command('gpu')}") from None
    try:
        module.cuda.Device().compute_capability  # noqa: B018 (it asks the driver)
    except Exception as error:  # noqa: BLE001 (CuPy raises many types if there is no driver or GPU)
        raise NoGpu(f"no NVIDIA GPU can be used: {error}") from None
    with_gpu: ModuleType = module
    return with_gpu


def out_of_memory_errors() -> tuple[type[Exception], ...]:
    """Return the out-of-memory exceptions of CuPy and PyTorch, if this process has imported them."""
    errors: list[type[Exception]] = []
    if (module := sys.modules.get("cupy")) is not None:
        errors.append(module.cuda.memory.OutOfMemoryError)
    if (module := sys.modules.get("torch")) is not None:
        errors.append(module.cuda.OutOfMemoryError)
    return tuple(errors)


def current_gpu() -> int:
    """Return the index of CuPy's current GPU, on which kernels are compiled and arrays are stored."""
    return int(cupy().cuda.Device().id)


@cache
def _source(name: str) -> str:
    folder = files("warpfrag.tensorcore.gpu")
    return "".join(folder.joinpath(f"{part}.cu").read_text(encoding="utf-8") for part in ("common", name))


@cache
def _say_loading() -> None:
    """Print once, on a terminal, that the first gemm on a GPU may have to load kernels."""
    if sys.stderr is not None and sys.stderr.isatty():
        folder = os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache"
        sys.stderr.write(
            f"warpfrag: loading kernels for this GPU; compiling those that are not yet in {folder} takes "
            "a few seconds\n"
        )


def _compiled(name: str, macros: dict[str, int | str], prologue: str = "") -> GpuModule:
    """Return the compiled GPU module for a source file and its macros.

    A rule has the same source and options in every process, so CuPy finds it in its disk cache.
    """
    _say_loading()
    options = ("-std=c++17", *(f"-D{macro}={value}" for macro, value in {**SHARED_FACTS, **macros}.items()))
    module: GpuModule = cupy().RawModule(code=prologue + _source(name), options=options, backend="nvrtc")
    return module


@cache
def _sums(_gpu: int) -> GpuFunction:
    return _compiled("sums", {}).get_function("add")


def add_floats(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """Return a + b in float32; CuPy's own addition would flush subnormals."""
    a, b = (cupy().ascontiguousarray(array) for array in cupy().broadcast_arrays(a, b))
    out: DeviceArray = cupy().empty_like(a)
    if out.size:
        _sums(current_gpu())((-(-out.size // THREADS),), (THREADS,), (a, b, out, LONG(out.size)))
    return out


def _parts(extent: int, step: int) -> list[slice]:
    return [slice(first, min(first + step, extent)) for first in range(0, extent, step)]


class DeviceKernel(ABC):
    """A rule on the GPU: its source code and macros; it processes a gemm in parts that fit in scratch memory."""

    source: str
    bytes_per_element: float
    max_lines = MAX_LINES

    def __init__(self, rule: Rule) -> None:
        """Create a kernel for a rule; it is compiled on first use."""
        self.rule = rule

    @abstractmethod
    def macros(self) -> dict[str, int | str]:
        """Return the preprocessor macros with which the kernels are compiled."""

    @property
    def prologue(self) -> str:
        """The CUDA C++ text that precedes the source."""
        return ""

    @abstractmethod
    def run(self, operands: ProductOperands) -> DeviceArray:
        """Return the codes of D for one part. Operands are contiguous GPU arrays; C may be overwritten."""

    @cached_property
    def module(self) -> GpuModule:
        """The kernels, compiled for the current GPU on first use."""
        return _compiled(self.source, self.macros(), self.prologue)

    def launch(self, name: str, grid: tuple[int, int, int], block: int, *arguments: object, shared: int = 0) -> None:
        """Launch a kernel of the module, with `shared` bytes of dynamic shared memory."""
        kernel = self.module.get_function(name)
        if shared:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(grid, (block,), arguments, shared_mem=shared)

    def parts(self, operands: ProductOperands) -> Iterator[tuple[tuple[slice, ...], list[ProductOperands]]]:
        """Yield blocks of outputs, each with its operands in consecutive parts of K."""
        tiles, height, width = operands.c.shape
        depth = operands.b.shape[1]
        lines = min(height, self.max_lines) + min(width, self.max_lines)
        # the number of elements along K that fit in scratch memory
        whole = max(1, int(SCRATCH_BYTES / (lines * self.bytes_per_element)))
        at_once = min(depth, max(MIN_DEPTH, whole)) // self.rule.k * self.rule.k or self.rule.k
        together = min(MAX_TILES, max(1, whole // depth))
        instructions, each = depth // self.rule.k, at_once // self.rule.k
        for place in product(_parts(tiles, together), _parts(height, self.max_lines), _parts(width, self.max_lines)):
            block = operands.part(*place)
            yield place, [part_of_k(block, part.start, part.stop, instructions) for part in _parts(instructions, each)]

    def matmul(self, operands: ProductOperands) -> DeviceArray:
        """Return D's codes, as a GPU array."""
        out: DeviceArray | None = None
        for place, parts in self.parts(operands) if operands.c.size else ():
            code = parts[0].c
            for part in parts:
                code = self.run(_contiguous(part._replace(c=code)))
            if code.shape == operands.c.shape:
                return code
            if out is None:
                out = cupy().empty(operands.c.shape, code.dtype)
            out[place] = code
        if out is None:
            out = cupy().empty(operands.c.shape, code_dtype(FORMATS[self.rule.d]))
        return out


def _contiguous(operands: ProductOperands) -> ProductOperands:
    arrays: list[Any] = [None if array is None else cupy().ascontiguousarray(array) for array in operands]
    return ProductOperands(*arrays)


def on_device(kernel: DeviceKernel, operands: ProductOperands) -> DeviceArray:
    """Run a kernel on operands in host or GPU memory."""
    arrays: list[Any] = [None if array is None else cupy().asarray(array) for array in operands]
    return kernel.matmul(ProductOperands(*arrays))


def in_memory_of(codes: DeviceArray, operands: ProductOperands) -> Codes:
    """Return codes in the memory that holds A: the GPU's or the host's."""
    is_on_gpu = isinstance(operands.a, cupy().ndarray)
    moved: Codes = codes if is_on_gpu else cupy().asnumpy(codes)
    return moved
