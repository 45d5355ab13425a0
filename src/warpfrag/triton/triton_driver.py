"""A Triton driver that runs kernels on the PTX machine, and the conversion of launch arguments to entry arguments.

Triton drops constexprs, flattens tuples, splits descriptors and appends two pointers to scratch memory. A pointer may
point into the middle of an array (a view), and a kernel may read around it, within the allocation: so a kernel gets the
whole storage of a tensor, and the address inside.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import triton
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase, decompose_descriptor, expand_signature

from warpfrag import ptx
from warpfrag.errors import InvalidOperand, NotModelled, PtxError, quote
from warpfrag.isa.targets import targets
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.options import MULTIPROCESSORS
from warpfrag.ptx.ptx_module import load

SCALARS: dict[str, Any] = {
    "i1": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u1": np.uint8, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64,
}  # fmt: skip
MAP = "nvTmaDesc"  # Triton's name for a parameter that is a tensor map
SWIZZLES = (0, 32, 64, 128)  # bytes, by Triton's number
# The types of tensormap.replace, in its order, which is Triton's too (PTX ISA, "tensormap.replace").
MAP_ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz", "float64", "bfloat16",
    "tfloat32", "tfloat32_ftz",
)  # fmt: skip
ALIGNED = 1 << 20  # an address as aligned as every allocation of a GPU


class HostArray:
    """A NumPy array with the tensor interface that Triton expects: dtype, pointer, shape, strides in elements."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Align the pointer as on a GPU: allocations are aligned, views need not be."""
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self.pointer = ALIGNED + storage(array)[1]

    def data_ptr(self) -> int:
        """Return the pointer; Triton specializes a kernel by its alignment."""
        return self.pointer

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.array.itemsize

    def stride(self, axis: int | None = None) -> int | tuple[int, ...]:
        """Return the strides, in elements."""
        strides = tuple(step // self.array.itemsize for step in self.array.strides)
        return strides if axis is None else strides[axis]


def as_tensor(value: object) -> object:
    """Return an argument for Triton: NumPy arrays become tensors, also inside tuples."""
    if isinstance(value, np.ndarray):
        return HostArray(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is tuple:
        return tuple(map(as_tensor, value))
    return value


def storage(value: object) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes of the memory that an array or tensor views, and the offset of the view."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise InvalidOperand(f"expected an array of numbers, got {value.dtype}")
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = byte_bounds(owner)
        return _memory(low, high - low, writable=value.flags.writeable), value.ctypes.data - low
    if isinstance(value, HostArray):
        return storage(value.array)
    tensor: Any = getattr(value, "base", value) if not hasattr(value, "untyped_storage") else value
    if not hasattr(tensor, "untyped_storage"):
        raise InvalidOperand(f"expected a NumPy array or a PyTorch tensor, got {quote(value)}")
    if tensor.device.type != "cpu":
        raise InvalidOperand(f"expected a tensor in host memory, got one on {tensor.device}; copy it with .cpu()")
    memory = tensor.untyped_storage()
    return _memory(memory.data_ptr(), memory.nbytes(), writable=True), tensor.storage_offset() * tensor.element_size()


def _memory(start: int, size: int, *, writable: bool) -> NDArray[np.uint8]:
    """Return host bytes without a copy; the caller keeps their owner alive."""
    if not size:
        return np.zeros(0, np.uint8)
    data: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
    data.flags.writeable = writable
    return data


class EntryArguments:
    """The arguments of one launch, in the order of the entry's parameters, with their Python names."""

    def __init__(self, maps: Sequence[dict[str, Any]] = ()) -> None:
        """Start empty; `maps` describes the tensor map of each descriptor, if the target has TMA."""
        self.values: list[object] = []
        self.names: list[str] = []
        self._maps = iter(maps) if maps else None
        self._views: list[DeviceArray] = []  # keep the memory of views alive

    def take(self, name: str, kind: object, value: Any) -> None:  # noqa: ANN401 # whatever Triton takes
        """Add the entry arguments of a Triton argument: none for a constexpr, several for a tuple or a descriptor."""
        if kind == "constexpr":
            return
        if isinstance(kind, tuple | list):
            for number, (of_item, item) in enumerate(zip(kind, value, strict=True)):
                self.take(f"{name}[{number}]", of_item, item)
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            parts = _decomposed(kind, value) if self._maps is None else self._mapped(name, value, next(self._maps))
            for part, (of_part, item) in enumerate(parts):
                self.take(f"{name}.{part}" if part else name, of_part, item)
        elif kind == MAP:
            self.values.append(value)
            self.names.append(name)
        else:
            self.values.append(self._pointer(value) if str(kind).startswith("*") else _scalar(name, str(kind), value))
            self.names.append(name)

    def _pointer(self, value: object) -> object:
        """Return a whole storage, or the rest of it from the start of a view."""
        if value is None:
            return None
        memory, offset = storage(value)
        if not offset:
            return memory
        self._views.append(DeviceArray(memory))
        return memory[offset:]

    def _mapped(self, name: str, value: Any, about: dict[str, Any]) -> Iterator[tuple[str, object]]:  # noqa: ANN401 # Triton's TensorDescriptor
        """Yield the parts of a descriptor if the target has TMA: a tensor map, the shape and the strides."""
        if about.get("is_im2col") or about.get("fp4_padded"):
            raise NotModelled(
                f"argument {name} is copied by TMA, and im2col and padded 4-bit tensors are not modelled; "
                "arch='sm_89' or older compiles descriptors to plain accesses"
            )
        memory, offset = storage(value.base)
        if offset:
            self._views.append(DeviceArray(memory))
        element = "tfloat32" if value.round_f32_to_tf32 else MAP_ELEMENTS[about["elem_type"]]
        strides = [int(step) * about["elem_size"] for step in value.strides]
        yield MAP, ptx.TensorMap(
            memory[offset:], about["block_size"], SWIZZLES[about["swizzle"]], [int(extent) for extent in value.shape],
            strides, fill="nan" if value.padding == "nan" else "zero", dtype=element,
        )  # fmt: skip
        yield from (("i32", extent) for extent in value.shape)
        yield from (("i64", step) for step in value.strides)

    def scratch(self, name: str, size: int) -> None:
        """Add scratch memory, or a null pointer if the kernel needs none."""
        self.values.append(np.zeros(size, np.uint8) if size else None)
        self.names.append(name)


def _scalar(name: str, kind: str, value: Any) -> object:  # noqa: ANN401 # Triton has checked that it is a number
    """Return a number of Triton's type."""
    if kind not in SCALARS:
        raise InvalidOperand(f"argument {name}: expected a pointer or a number, got Triton's type {kind}")
    dtype = np.dtype(SCALARS[kind])
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        code = int(value) & ((1 << bits) - 1)
        return np.array(code, f"u{dtype.itemsize}").view(dtype)[()]
    return dtype.type(value)


def _decomposed(kind: str, value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401 # Triton's TensorDescriptor
    """Yield the parts of a descriptor without TMA: pointer, shape and strides, and again for the host's checks."""
    yield from zip(expand_signature([kind], None, ""), decompose_descriptor(value), strict=True)


# Shared memory of a block in bytes, by the compute capabilities that Triton compiles for: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
SHARED_BYTES = {
    75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 88: 99 << 10, 89: 99 << 10, 90: 227 << 10,
    100: 227 << 10, 103: 227 << 10, 107: 227 << 10, 110: 227 << 10, 120: 99 << 10, 121: 99 << 10,
}  # fmt: skip
REGISTERS = 32  # per thread, for host code that computes an occupancy; the real number is not known
PTX_KEY = "warpfrag: the PTX is not assembled"  # part of Triton's cache key


def capability(arch: object) -> int:
    """Return Triton's number of an architecture: 90 for sm_90 and sm_90a, for which it compiles as sm_90a."""
    match = re.fullmatch(r"sm_(\d+)[af]?", arch) if isinstance(arch, str) else None
    if match is None or arch not in targets() or int(match[1]) not in SHARED_BYTES:
        known = ", ".join(f"sm_{number}" for number in SHARED_BYTES)
        raise InvalidOperand(f"arch: expected one that Triton compiles for ({known}), got {quote(arch)}")
    return int(match[1])


class LaunchSession(Protocol):
    """The part of a session that the driver needs."""

    arch: str
    is_launching: bool

    def launch(
        self, launcher: EntryLauncher, loaded: LoadedKernel, grid: tuple[int, int, int], arguments: EntryArguments
    ) -> None:
        """Run a kernel on its arguments and record it."""


class MachineDriver(DriverBase):
    """The driver that Triton calls to find the device, load kernels and launch them."""

    def __init__(self, session: LaunchSession) -> None:
        """Represent a device of the session's architecture; the session records launches."""
        super().__init__()
        self.session = session
        self.capability = capability(session.arch)
        self.launcher_cls = EntryLauncher
        self.utils = SimpleNamespace(
            load_binary=self._load, unload_module=lambda _: None, get_device_properties=self._properties
        )

    @classmethod
    def is_active(cls) -> bool:
        """Return False: Triton never chooses this driver itself."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Reject the question: only a launcher in C would need it."""
        raise InvalidOperand(f"expected no launcher in C, got a question for the C type of {quote(ty)}")

    def get_current_target(self) -> object:
        """Return the architecture that Triton compiles for."""
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> str:
        """Return a name that no real device has, so that compiled kernels are not confused."""
        return f"warpfrag:{self.capability}"

    def set_current_device(self, device: object) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, _device: object = None) -> int:
        """Return stream 0: launches are finished when they return."""
        return 0

    def get_device_capability(self, _device: object = None) -> tuple[int, int]:
        """Return the compute capability, such as (9, 0)."""
        return divmod(self.capability, 10)

    def get_active_torch_device(self) -> object:
        """Return the host: tensors are in its memory."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> object:
        """Return the module that replaces torch.cuda."""
        import torch

        return torch.cpu

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a benchmarker that runs nothing: all configurations are equally fast."""
        return lambda _call, quantiles=(0.5,), **_options: [0.0 for _ in quantiles]

    def get_empty_cache_for_benchmark(self) -> object:
        """Return a tensor to clear before a measurement."""
        import torch

        return torch.empty(0)

    def clear_cache(self, _cache: object) -> None:
        """Do nothing: there is no cache."""

    def _properties(self, _device: object) -> dict[str, int]:
        """Return device properties: the sizes of the architecture, and an H200's clocks."""
        return {
            "max_shared_mem": SHARED_BYTES[self.capability],
            "max_num_regs": 65536,
            "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": 32,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 3201000,
            "mem_bus_width": 6144,
        }

    @staticmethod
    def _load(name: str, binary: bytes, _shared: int, _device: object) -> tuple[None, LoadedKernel, int, int, int]:
        """Return the kernel of a binary, which is PTX here; there is no handle to unload."""
        text = binary.decode()
        return None, LoadedKernel(load(text)[name], text), REGISTERS, 0, 1024


class LoadedKernel:
    """A kernel and its text."""

    def __init__(self, kernel: Kernel, ptx: str) -> None:
        """Keep both as long as Triton keeps its compiled kernel."""
        self.kernel, self.ptx = kernel, ptx


class EntryLauncher:
    """A compiled Triton kernel: Triton makes one launcher and calls it for every launch."""

    def __init__(self, src: Any, metadata: Any) -> None:  # noqa: ANN401 # Triton's own
        """Keep the signature of the source and the metadata of the kernel."""
        self.signature, self.metadata = dict(src.signature), metadata
        self.name = getattr(src, "name", "") or metadata.name

    def __call__(
        self, x: int, y: int, z: int, _stream: object, loaded: LoadedKernel, _packed: object, launch_metadata: Any,  # noqa: ANN401
        enter: Callable[[object], object] | None, leave: Callable[[object], object] | None, *args: object,
    ) -> None:  # fmt: skip
        """Launch; an empty grid launches nothing."""
        session: LaunchSession = triton.runtime.driver.active.session
        if not x * y * z:
            return
        if enter is not None:
            enter(launch_metadata)
        session.launch(self, loaded, (x, y, z), self._arguments(x * y * z, args))
        if leave is not None:
            leave(launch_metadata)

    def _arguments(self, blocks: int, args: tuple[object, ...]) -> EntryArguments:
        """Return the entry's arguments, and the scratch memory that Triton requests."""
        taken = EntryArguments(getattr(self.metadata, "tensordesc_meta", None) or ())
        for (name, kind), value in zip(self.signature.items(), args, strict=True):
            taken.take(name, kind, value)
        clusters = blocks * self.metadata.num_ctas
        for name in ("global_scratch", "profile_scratch"):
            taken.scratch(name, clusters * getattr(self.metadata, f"{name}_size", 0))
        return taken


def keep_ptx(previous: Any) -> Callable[..., Any]:  # noqa: ANN401 # a hook of Triton
    """Return a hook of Triton's compiler that keeps the PTX as the binary, after an existing hook."""

    def hook(*args: Any) -> Any:  # noqa: ANN401 # none, or (backend, stages, options, language, capability)
        if not args:
            key, digest = previous() if previous else ("", "")
            return f"{key}{PTX_KEY}", f"{digest}{PTX_KEY}"
        if previous:
            previous(*args)
        args[1]["cubin"] = lambda text, metadata: text.encode()  # noqa: ARG005 # of a stage of Triton
        return None

    return hook


def name_arguments(error: PtxError, names: list[str]) -> PtxError:
    """Return an error with Python names instead of argument numbers."""

    def rename(match: re.Match[str]) -> str:
        return names[int(match[1])] if int(match[1]) < len(names) else match[0]

    return PtxError(error.line, re.sub(r"argument (\d+) \([^)]*\)", rename, error.reason), error.source)
