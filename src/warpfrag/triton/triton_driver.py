"""A Triton driver that runs kernels on the PTX machine, and the conversion of launch arguments to entry arguments.

Triton drops constexprs, flattens tuples, splits descriptors and appends two pointers to scratch memory. A pointer may
point into the middle of an array (a view), and a kernel may access the rest of the allocation. A kernel therefore gets
the whole storage of a tensor, and the pointer's address in it.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, Protocol

import ml_dtypes
import numpy as np
import triton
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import CompiledKernel

from warpfrag import ptx
from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.isa.targets import targets
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.launch.kernel import Kernel
from warpfrag.machine.launch.options import MULTIPROCESSORS
from warpfrag.ptx.ptx_module import load
from warpfrag.smem.tensor_map import TYPES_BY_NUMBER  # Triton uses the type numbers of tensormap.replace
from warpfrag.triton.unwritten_storages import UnwrittenStorage

SCALARS: dict[str, Any] = {
    "i1": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u1": np.uint8, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64,
}  # fmt: skip
SWIZZLES = (0, 32, 64, 128)  # sizes in bytes, by the number that Triton uses
ALIGNED = 1 << 20  # the alignment of a GPU allocation


class HostArray:
    """A NumPy array with the tensor interface that Triton expects: dtype, pointer, shape and strides in elements."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Align the pointer like a GPU allocation; a view keeps its offset."""
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        self.pointer = ALIGNED + storage(array)[1]

    def data_ptr(self) -> int:
        """Return the pointer; Triton specializes a kernel by the pointer's alignment."""
        return self.pointer

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return self.array.itemsize

    def stride(self, axis: int | None = None) -> int | tuple[int, ...]:
        """Return the stride of an axis, or all strides, in elements."""
        strides = tuple(step // self.array.itemsize for step in self.array.strides)
        return strides if axis is None else strides[axis]


def as_tensor(value: object) -> object:
    """Return an argument in the form that Triton accepts; NumPy arrays become tensors, also inside tuples."""
    if isinstance(value, np.ndarray):
        return HostArray(value)
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(as_tensor, value)) if type(value) is tuple else value


def storage(value: object) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes of the memory that an array or tensor views, and the offset of the view."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise InvalidOperand(f"expected an array of numbers, got an array of dtype {value.dtype}")
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
    memory = tensor.untyped_storage()
    if memory.device.type != "cpu":
        raise InvalidOperand(f"expected a tensor in host memory, got one on {memory.device}; copy it with .cpu()")
    return _memory(memory.data_ptr(), memory.nbytes(), writable=True), tensor.storage_offset() * tensor.element_size()


def array_in(copies: Memory, value: Any) -> NDArray[Any]:  # noqa: ANN401 # array or tensor
    """Return a view of an array or tensor in a copy of its storage; its elements are opaque."""
    tensor: Any = as_tensor(value)
    memory, offset = storage(value)
    size = tensor.element_size()
    strides = [size * step for step in tensor.stride()]
    return np.ndarray(tuple(tensor.shape), f"V{size}", copies[memory.ctypes.data].data, offset, strides)


def _memory(start: int, size: int, *, writable: bool) -> NDArray[np.uint8]:
    """Return host memory as an array, without copying it; the caller keeps its owner alive."""
    if not size:
        return np.zeros(0, np.uint8)
    data: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
    data.flags.writeable = writable
    return data


Memory = Mapping[int, NDArray[np.uint8]]
"""Memory contents, keyed by host address."""
View = Callable[[str, NDArray[np.uint8], int], NDArray[np.uint8]]
"""A function that takes an argument's name, its memory and an offset, and returns the memory from the offset on."""


class EntryArguments:
    """The arguments of one launch, in the order of the entry's parameters, with their Python names."""

    def __init__(self, maps: Sequence[dict[str, Any]] = ()) -> None:
        """Create an empty argument list; `maps` describes each descriptor's tensor map if the target has TMA."""
        self.names: list[str] = []
        self.storages: dict[int, NDArray[np.uint8]] = {}  # keyed by address
        self.tensors: dict[int, list[Any]] = defaultdict(list)  # the tensors of each storage
        self._makers: list[Callable[[View], object]] = []  # keep the memory of the values alive
        self._maps = iter(maps) if maps else None

    def values(
        self, copies: Memory = MappingProxyType({}), unwritten: Mapping[int, UnwrittenStorage] = MappingProxyType({})
    ) -> tuple[list[object], list[DeviceArray]]:
        """Return the entry's arguments, and the owners of their memory, which must stay alive until the launch.

        `copies` has replacements for storages, and `unwritten` the marks of unwritten bytes, both by storage address.
        """
        owners: list[DeviceArray] = []

        def view(name: str, memory: NDArray[np.uint8], offset: int) -> NDArray[np.uint8]:
            found = unwritten.get(memory.ctypes.data)
            memory = copies.get(memory.ctypes.data, memory)
            if offset or found:
                owners.append(DeviceArray(memory))
                owners[-1].name, owners[-1].unwritten = name, found and found.marks
            return memory[offset:]

        return [make(view) for make in self._makers], owners

    def take(self, name: str, kind: object, value: Any) -> None:  # noqa: ANN401 # any Triton argument
        """Add the entry arguments for a Triton argument: none for a constexpr, several for a tuple or a descriptor."""
        if kind == "constexpr":
            return
        if isinstance(kind, tuple | list):
            for number, (of_item, entry) in enumerate(zip(kind, value, strict=True)):
                self.take(f"{name}[{number}]", of_item, entry)
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            if self._maps is not None:
                self._add(name, self._map(name, value, next(self._maps)))
            for part, (of_part, entry) in enumerate(_decomposed(kind, value, has_map=self._maps is not None)):
                self.take(f"{name}.{part}" if part else name, of_part, entry)
        elif not str(kind).startswith("*"):
            scalar = _scalar(name, str(kind), value)
            self._add(name, lambda _view: scalar)
        elif value is None:
            self._add(name, lambda _view: None)
        else:
            memory, offset = self._storage(value)
            self._add(name, lambda view: view(name, memory, offset))

    def _add(self, name: str, make: Callable[[View], object]) -> None:
        self._makers.append(make)
        self.names.append(name)

    def _storage(self, value: object) -> tuple[NDArray[np.uint8], int]:
        memory, offset = storage(value)
        self.storages[memory.ctypes.data] = memory
        self.tensors[memory.ctypes.data].append(value)
        return memory, offset

    def _map(self, name: str, value: Any, about: dict[str, Any]) -> Callable[[View], ptx.TensorMap]:  # noqa: ANN401
        """Return a function that creates a descriptor's tensor map."""
        if about.get("is_im2col") or about.get("fp4_padded"):
            raise NotModelled(
                f"argument {name} is copied by TMA, but im2col and padded 4-bit tensors are not modelled; "
                "with arch='sm_89' or older, Triton compiles descriptors to plain accesses"
            )
        memory, offset = self._storage(value.base)
        element = "tfloat32" if getattr(value, "round_f32_to_tf32", False) else TYPES_BY_NUMBER[about["elem_type"]].name
        strides = [int(step) * about["elem_size"] for step in value.strides]
        extents = [int(extent) for extent in value.shape]
        fill: Literal["nan", "zero"] = "nan" if getattr(value, "padding", "") == "nan" else "zero"
        return lambda view: ptx.TensorMap(
            view(name, memory, offset), about["block_size"], SWIZZLES[about["swizzle"]], extents, strides, fill=fill,
            dtype=element,
        )  # fmt: skip

    def scratch(self, name: str, size: int) -> None:
        """Add scratch memory, or a null pointer if the kernel needs none."""
        self._add(name, lambda _view: np.zeros(size, np.uint8) if size else None)


def _scalar(name: str, kind: str, value: Any) -> object:  # noqa: ANN401 # Triton has checked that it is a number
    """Return a NumPy number of the type that Triton names."""
    if kind not in SCALARS:
        raise InvalidOperand(f"argument {name}: expected a pointer or a number, got Triton's type {kind}")
    dtype = np.dtype(SCALARS[kind])
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        code = int(value) & ((1 << bits) - 1)
        return np.array(code, f"u{dtype.itemsize}").view(dtype)[()]
    return dtype.type(value)


def _decomposed(kind: str, value: Any, *, has_map: bool) -> Iterator[tuple[str, object]]:  # noqa: ANN401 # Triton's TensorDescriptor
    """Yield a descriptor's shape and strides; without a map, the pointer, shape, strides and flags come first."""
    match = re.match(r"tensordesc(?:_im2col)?<([^[>]*)", kind)
    if match is None:
        raise InvalidOperand(f"expected the Triton type of a tensor descriptor, got {quote(kind)}")
    if not has_map:
        yield f"*{match[1]}", value.base
        yield from (("i64", number) for number in (*value.shape, *value.strides))
        if hasattr(value, "padding"):  # since Triton 3.5
            yield "i1", value.padding == "nan"
        if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
            yield "i1", value.round_f32_to_tf32
    yield from (("i32", extent) for extent in value.shape)
    yield from (("i64", step) for step in value.strides)


# Shared memory of a block in bytes, by the compute capabilities that Triton compiles for: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
SHARED_BYTES = {
    75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 88: 99 << 10, 89: 99 << 10, 90: 227 << 10,
    100: 227 << 10, 103: 227 << 10, 107: 227 << 10, 110: 227 << 10, 120: 99 << 10, 121: 99 << 10,
}  # fmt: skip
REGISTERS = 32  # registers per thread, for host code that computes the occupancy; the PTX does not determine them
MULTIPROCESSOR_REGISTERS, MAX_THREADS = 1 << 16, 1024
PTX_KEY = "warpfrag: the PTX is not assembled"  # becomes part of Triton's cache key


def compute_capability(arch: object) -> int:
    """Return the compute capability that Triton compiles for: 90 for sm_90 and sm_90a, which it compiles as sm_90a.

    The architecture is that of `triton.emulate(arch=)` or of pytest's `--triton-arch`.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch) if isinstance(arch, str) else None
    if match is None or arch not in targets() or int(match[1]) not in SHARED_BYTES:
        known = ", ".join(f"sm_{number}" for number in SHARED_BYTES)
        raise InvalidOperand(
            f"arch: expected an architecture that Triton supports ({known}) or a GPU such as A100, got {quote(arch)}"
        )
    return int(match[1])


class LaunchSession(Protocol):
    """The interface of a session that the driver uses."""

    arch: str
    executes_cubin: bool
    redirect: bool
    is_launching: bool
    tracks_writes: bool

    def launch(
        self,
        launcher: EntryLauncher,
        loaded: LoadedKernel,
        grid: tuple[int, int, int],
        entry: EntryArguments,
        arguments: dict[str, object],
    ) -> None:
        """Run a kernel on its arguments and record it."""


class MachineDriver(DriverBase):
    """The driver that Triton calls to find the device, load kernels and launch them."""

    def __init__(self, session: LaunchSession) -> None:
        """Create a driver for a session, which determines the architecture and records launches."""
        super().__init__()
        self.session = session
        self.capability = compute_capability(session.arch)
        self.launcher_cls = EntryLauncher
        self.loading: Mapping[str, Any] = {}  # all code (PTX, cubin, ...) of the kernel that Triton is loading
        self.utils = SimpleNamespace(
            load_binary=self._load, unload_module=lambda _: None, get_device_properties=self._properties
        )

    @classmethod
    def is_active(cls) -> bool:
        """Return False, because Triton must never choose this driver by itself."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Raise an error, because only launchers in C need C types."""
        raise InvalidOperand(f"launchers in C are not supported, but Triton requested the C type of {quote(ty)}")

    def get_current_target(self) -> object:
        """Return the target that Triton compiles for."""
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> str:
        """Return a name that no real device has, so that cached kernels cannot be confused."""
        return f"warpfrag:{self.capability}:{'cubin' if self.session.executes_cubin else 'ptx'}"

    def set_current_device(self, device: object) -> None:
        """Do nothing, because there is only one device."""

    def get_current_stream(self, _device: object = None) -> int:
        """Return stream 0; launches have finished when they return."""
        return 0

    def get_device_capability(self, _device: object = None) -> tuple[int, int]:
        """Return the compute capability as a pair, such as (9, 0)."""
        return divmod(self.capability, 10)

    def get_active_torch_device(self) -> object:
        """Return the device for tensors: "cuda" if the session redirects it to host memory, otherwise the host."""
        import torch

        return torch.device("cuda", 0) if self.session.redirect else torch.device("cpu")

    def get_device_interface(self) -> object:
        """Return torch.cuda if the session replaces it, otherwise the module for the host."""
        import torch

        return torch.cuda if self.session.redirect else torch.cpu

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a benchmarker that runs nothing and reports the same time for every configuration."""
        return lambda _call, quantiles=(0.5,), **_options: [0.0 for _ in quantiles]

    def get_empty_cache_for_benchmark(self) -> object:
        """Return the tensor that Triton clears before a measurement."""
        import torch

        return torch.empty(0)

    def clear_cache(self, _cache: object) -> None:
        """Do nothing, because there is no cache."""

    def _properties(self, _device: object) -> dict[str, int]:
        """Return the device properties: the sizes of the architecture and the clocks of an H200."""
        clocks = {"sm_clock_rate": 1980000, "mem_clock_rate": 3201000, "mem_bus_width": 6144}
        sizes = {"max_shared_mem": SHARED_BYTES[self.capability], "max_num_regs": MULTIPROCESSOR_REGISTERS}
        return {**sizes, "multiprocessor_count": MULTIPROCESSORS, "warpSize": 32, **clocks}

    def _load(
        self, name: str, binary: bytes, _shared: int, _device: object
    ) -> tuple[None, LoadedKernel, int, int, int]:
        """Return a kernel that Triton compiled, with its registers, spilled bytes and maximum number of threads."""
        loaded = LoadedKernel(name, self.loading)
        if not self.session.executes_cubin:
            return None, loaded, REGISTERS, 0, MAX_THREADS
        function = loaded.module.use_cubin(binary)[name]
        allocated = -(-max(function.registers, 1) // 8) * 8
        threads = min(MAX_THREADS, MULTIPROCESSOR_REGISTERS // (32 * allocated) * 32)
        return None, loaded, function.registers, function.frame_bytes // 4, threads


class LoadedKernel:
    """A kernel that Triton has compiled; `code` has its PTX under the key "ptx"."""

    def __init__(self, name: str, code: Mapping[str, Any]) -> None:
        """Parse the PTX."""
        self.ptx: str = code["ptx"]
        self.module = load(self.ptx)
        self.kernel: Kernel = self.module[name]


class EntryLauncher:
    """A compiled Triton kernel; Triton creates one launcher and calls it for every launch."""

    def __init__(self, src: Any, metadata: Any) -> None:  # noqa: ANN401 # Triton's own
        """Store the kernel's signature and metadata."""
        self.signature, self.metadata = dict(src.signature), metadata
        self.name = getattr(src, "name", "") or metadata.name

    def __call__(
        self, x: int, y: int, z: int, _stream: object, loaded: LoadedKernel, _packed: object, launch_metadata: Any,  # noqa: ANN401
        enter: Callable[[object], object] | None, leave: Callable[[object], object] | None, *args: object,
    ) -> None:  # fmt: skip
        """Launch the kernel; an empty grid launches nothing."""
        session: LaunchSession = triton.runtime.driver.active.session
        if not x * y * z:
            return
        if enter is not None:
            enter(launch_metadata)
        entry = self._arguments(x * y * z, len(loaded.kernel.parameters), args)
        given = [value.array if isinstance(value, HostArray) else value for value in args]
        session.launch(self, loaded, (x, y, z), entry, dict(zip(self.signature, given, strict=True)))
        if leave is not None:
            leave(launch_metadata)

    def _arguments(self, blocks: int, parameters: int, args: tuple[object, ...]) -> EntryArguments:
        """Return the arguments of an entry with this many parameters, and the scratch memory that Triton requests."""
        taken = EntryArguments(getattr(self.metadata, "tensordesc_meta", None) or ())
        for (name, kind), value in zip(self.signature.items(), args, strict=True):
            taken.take(name, kind, value)
        clusters = blocks * self.metadata.num_ctas
        scratch = ("global_scratch", "profile_scratch")  # Triton 3.4 has only the first of these
        for name in scratch[: max(0, parameters - len(taken.names))]:
            taken.scratch(name, clusters * getattr(self.metadata, f"{name}_size", 0))
        return taken


def keep_ptx(stack: ExitStack) -> None:
    """Make Triton keep the PTX as the binary, without ptxas, and change its cache key."""
    add_stages, digest = CUDABackend.add_stages, CUDABackend.hash

    def add(backend: object, stages: dict[str, Any], *args: object) -> None:
        add_stages(backend, stages, *args)
        stages["cubin"] = lambda text, metadata: text.encode()  # noqa: ARG005 # the signature of a Triton stage

    set_until(stack, CUDABackend, "add_stages", add)
    set_until(stack, CUDABackend, "hash", lambda backend: f"{digest(backend)}{PTX_KEY}")


def keep_code(stack: ExitStack, driver: MachineDriver) -> None:
    """Pass all code of a kernel (PTX, cubin and Triton's own forms) to the driver while Triton loads the kernel."""
    original = CompiledKernel._init_handles  # noqa: SLF001 (Triton has no public hook with the PTX)

    def load_kernel(compiled: Any) -> object:  # noqa: ANN401 # a CompiledKernel
        driver.loading = compiled.asm
        return original(compiled)

    set_until(stack, CompiledKernel, "_init_handles", load_kernel)


def set_until(stack: ExitStack, owner: object, name: str, value: object) -> None:
    """Set an attribute until the stack is closed."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def name_arguments(text: str, names: list[str]) -> str:
    """Return a message in which Python names replace argument numbers."""

    def rename(match: re.Match[str]) -> str:
        return names[int(match[1])] if int(match[1]) < len(names) else match[0]

    return re.sub(r"argument (\d+) \([^)]*\)", rename, text)
