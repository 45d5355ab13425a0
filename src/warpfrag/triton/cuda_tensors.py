"""PyTorch without a GPU: tensors for device "cuda" are in host memory and report "cuda"; streams and events work.

A tensor's device is a mark on its storage. Results of PyTorch calls inherit the mark of their arguments, and copies
between devices are real copies. Tensors without a mark, such as gradients that enter a custom backward function, count
as CUDA tensors, because a session marks every tensor that exists when the session starts as a host tensor. The errors
for a tensor on the wrong device are those of PyTorch and Triton; only marked tensors cause them.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Literal, Self

import numpy as np
import torch
import triton
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _len_torch_function_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import _device as default_device

from warpfrag.errors import InvalidOperand, NotModelled
from warpfrag.machine.launch.device_array import DeviceArray
from warpfrag.machine.sanitizer.unwritten import MARK
from warpfrag.triton.cuda_autocast import autocast
from warpfrag.triton.triton_driver import MachineDriver, set_until, storage
from warpfrag.triton.unwritten_storages import UNWRITTEN, UnwrittenStorage

CUDA, HOST = torch.device("cuda", 0), torch.device("cpu")
NAN_BYTE = 0xFF  # repeated, this byte is a NaN in every float type, and -1 in every signed integer type
MEMORY_BYTES = 141 << 30
HINT = "`warpfrag gpu -- python program.py` runs the program with a virtual GPU"
GETTERS = {
    getattr(torch.Tensor, name).__get__: name for name in ("is_cuda", "is_cpu", "device")
}  # the functions that a mode sees when these properties are read
COPIES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)
ONE_DEVICE = {
    "add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "truediv", "rtruediv", "itruediv",
    "pow", "matmul", "rmatmul", "mm", "bmm", "linear", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum",
    "equal", "allclose", "dot", "addmm", "baddbmm",
}  # fmt: skip
"""Functions whose tensor arguments must be on the same device, except host scalars."""
CREATORS = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
BACKWARD = (torch.Tensor.backward, torch.autograd.grad)
READERS = {
    "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "is_contiguous",
    "is_floating_point", "__len__", "view", "view_as", "reshape", "flatten", "unflatten", "permute", "transpose", "t",
    "movedim", "unsqueeze", "squeeze", "expand", "expand_as", "__getitem__", "narrow", "select", "unbind", "split",
    "chunk", "as_strided", "contiguous", "detach",
}  # fmt: skip
"""Functions that do not modify their arguments: they read the shape, or return a view or a copy."""
TENSOR_KINDS = ("Float", "Double", "Half", "BFloat16", "Char", "Byte", "Short", "Int", "Long", "Bool")
Place = Literal["cuda", "host", "pinned", ""]
"""The device of a tensor; "" if unknown."""


class DeviceMarks:
    """The devices of tensor storages; weak references detect when an address is reused by a later storage."""

    def __init__(self) -> None:
        """Create an empty record."""
        self._marks: dict[int, tuple[StorageWeakRef, Place]] = {}  # keyed by the address of the storage
        self._limit = 1 << 12

    def place(self, tensor: torch.Tensor) -> Place:
        """Return the mark of a tensor's storage."""
        kept = self._marks.get(_storage_address(tensor))
        return kept[1] if kept else ""

    def is_cuda(self, tensor: torch.Tensor) -> bool:
        """Return True for CUDA tensors and for tensors without a mark."""
        return self.place(tensor) in {"cuda", ""}

    def mark(self, tensor: torch.Tensor, place: Place) -> torch.Tensor:
        """Mark a tensor's storage, unless it already has a mark, and return the tensor."""
        address = _storage_address(tensor)
        if place and address and address not in self._marks:
            if len(self._marks) >= self._limit:
                self._marks = {key: kept for key, kept in self._marks.items() if not kept[0].expired()}
                self._limit = max(1 << 12, 2 * len(self._marks))
            self._marks[address] = StorageWeakRef(tensor.untyped_storage()), place
        return tensor

    def mark_existing(self) -> None:
        """Mark all tensors in the process as host tensors."""
        for value in gc.get_objects():
            if issubclass(type(value), torch.Tensor):
                self.mark(value, "host")


def _storage_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage object, or 0 for a tensor without storage, such as a sparse one."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 (StorageWeakRef uses it too)
    except NotImplementedError:  # PyTorch raises this error for every tensor class that has no storage
        return 0


MARKS = DeviceMarks()


class TensorAddresses:
    """Device addresses of the tensors whose `data_ptr` was called; the tensors stay alive."""

    def __init__(self) -> None:
        """Create an empty record."""
        self._owners: dict[int, tuple[DeviceArray, object]] = {}  # the array and the storage, keyed by host address

    def address(self, tensor: torch.Tensor) -> int:
        """Return the device address of a tensor."""
        forget_unwritten(tensor)
        memory, offset = storage(tensor)
        host = memory.ctypes.data
        if host not in self._owners:
            self._owners[host] = DeviceArray(memory), tensor.untyped_storage()
        return self._owners[host][0].address + offset


class HostTensors(TorchFunctionMode):
    """A mode that runs PyTorch calls in host memory instead of GPU memory."""

    def __init__(self) -> None:
        """Create the mode without tensor addresses."""
        super().__init__()
        self.addresses = TensorAddresses()

    def __torch_function__(
        self, func: Callable[..., Any], _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        """Run a call on the host and mark its results."""
        __tracebackhide__ = True
        kwargs = dict(kwargs or {})
        name, session = GETTERS.get(func), triton.runtime.driver.active.session
        if name is not None or func is torch.Tensor.get_device or func is torch.get_device:
            return _device_property(name, func, args)
        if func is torch.Tensor.data_ptr and args[0].numel() and MARKS.is_cuda(args[0]):
            return func(*args) if session.is_launching else self.addresses.address(args[0])
        if func is torch.device:
            return func(*args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return MARKS.mark(args[0].clone(), "pinned")
        places = [(tensor, MARKS.place(tensor)) for tensor in _tensors((args, kwargs))]
        check_devices(func, places)
        is_new = is_torch(func, CREATORS) and "out" not in kwargs
        if not (is_new or reads_only(func, is_launching=session.is_launching)):
            forget_unwritten(*(tensor for tensor, _ in places), runs_python=func in BACKWARD)
        wanted = CUDA if func is torch.Tensor.cuda else HOST if func is torch.Tensor.cpu else None
        if func is torch.Tensor.to and len(args) > 1:
            wanted = _requested(args[1], numbers=True)
            args = (args[0], HOST if wanted else args[1], *args[2:])
        elif func is torch.Tensor.cuda:
            args, func = (args[0], HOST), torch.Tensor.to
        if "device" in kwargs and (asked := _requested(kwargs["device"], numbers=True)):
            wanted, kwargs["device"] = asked, HOST
        found = {place for _, place in places} if wanted is None else {"cuda" if wanted == CUDA else "host"}
        place: Place = "cuda" if "cuda" in found else "" if "" in found else "host"
        with autocast(MARKS.is_cuda):
            result = func(*map(_on_host, args), **kwargs)
        is_moved = wanted and func in COPIES and MARKS.is_cuda(args[0]) != (wanted == CUDA)
        if is_moved and _storage_address(result) == _storage_address(args[0]) != 0:
            result = result.clone()
        for tensor in _tensors(result):
            MARKS.mark(tensor, place)
        if is_new and session.tracks_writes:
            add_unwritten(result)
        return result


def reads_only(func: Callable[..., Any], *, is_launching: bool) -> bool:
    """Return True for a function that does not modify the memory of its arguments."""
    if getattr(func, "__name__", "") == "__get__":  # PyTorch does not count changes that are made through `data`
        return getattr(getattr(func, "__self__", None), "__name__", "data") != "data"
    return is_torch(func, READERS) or (is_launching and func is torch.Tensor.untyped_storage)


def is_torch(func: Callable[..., Any], names: set[str]) -> bool:
    """Return True for PyTorch's own functions and methods with these names."""
    name = getattr(func, "__name__", "")
    return name in names and func in (getattr(torch, name, None), getattr(torch.Tensor, name, None))


def add_unwritten(tensor: torch.Tensor) -> None:
    """Track the memory of a new CUDA tensor, unless PyTorch fills it or does not count its changes.

    Every byte is set to NAN_BYTE, so that a test cannot pass because freed memory happens to hold the expected result.
    """
    is_filled = torch.are_deterministic_algorithms_enabled()
    if type(tensor) is torch.Tensor and MARKS.is_cuda(tensor) and not (is_filled or tensor.is_inference()):
        memory = tensor.untyped_storage()
        marks = np.full(memory.nbytes(), MARK)
        ctypes.memset(memory.data_ptr(), NAN_BYTE, memory.nbytes())
        UNWRITTEN[memory.data_ptr()] = UnwrittenStorage(marks, StorageWeakRef(memory).expired)


def forget_unwritten(*tensors: torch.Tensor, runs_python: bool = False) -> None:
    """Count the memory of tensors as written, or all memory if a function's writes are unknown."""
    for tensor in tensors if UNWRITTEN else ():
        is_plain = type(tensor) in {torch.Tensor, torch.nn.Parameter}
        if is_plain and not runs_python and _storage_address(tensor):
            UNWRITTEN.pop(tensor.untyped_storage().data_ptr(), None)
        else:
            UNWRITTEN.clear()


def check_devices(func: Callable[..., Any], places: list[tuple[torch.Tensor, Place]]) -> None:
    """Raise PyTorch's error for a CUDA tensor that NumPy would read, or that is combined with a host tensor."""
    __tracebackhide__ = True
    name, has_cuda = getattr(func, "__name__", "").strip("_"), any(place == "cuda" for _, place in places)
    if has_cuda and name in {"numpy", "array"}:
        problem = "can't convert cuda:0 device type tensor to numpy"
        raise TypeError(f"{problem}. Use Tensor.cpu() to copy the tensor to host memory first.")
    if has_cuda and name in ONE_DEVICE and any(place == "host" and tensor.dim() for tensor, place in places):
        problem = "Expected all tensors to be on the same device"
        raise RuntimeError(f"{problem}, but found at least two devices, cuda:0 and cpu!")


def check_pointers(arguments: Mapping[str, object]) -> None:
    """Raise Triton's error for a kernel argument that is a host tensor."""
    for number, (name, value) in enumerate(arguments.items()):
        if isinstance(value, torch.Tensor) and MARKS.place(value) == "host" and value.numel():
            problem = f"Pointer argument (at {number}) cannot be accessed from Triton (cpu tensor?)"
            raise InvalidOperand(f'{problem}: {name} is a tensor on the CPU; create it with device="cuda"')


def _device_property(name: str | None, func: Callable[..., Any], args: tuple[Any, ...]) -> object:
    """Return a tensor's `is_cuda`, `is_cpu`, `device` or `get_device()`."""
    tensor = args[0]
    with torch._C.DisableTorchFunction():  # noqa: SLF001 (the documented way)
        if tensor.device.type != "cpu":  # a meta or fake tensor
            return func(*args)
    is_cuda = MARKS.is_cuda(tensor)
    answers: dict[str | None, object] = {"is_cuda": is_cuda, "is_cpu": not is_cuda, "device": CUDA if is_cuda else HOST}
    return answers.get(name, 0 if is_cuda else -1)


def _requested(value: object, *, numbers: bool) -> torch.device | None:
    """Return the device that an argument names, CUDA or HOST, or None if it names neither."""
    if isinstance(value, torch.device | str):
        kind = value.type if isinstance(value, torch.device) else value.split(":")[0]
        return {"cuda": CUDA, "cpu": HOST}.get(kind)
    return CUDA if numbers and type(value) is int else None


def _on_host(value: object) -> object:
    """Return the host device in place of a CUDA device; other values are returned unchanged."""
    return HOST if _requested(value, numbers=False) == CUDA else value


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, including those in tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for element in value:
            yield from _tensors(element)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


class Finished:
    """A stream or an event: nothing is ever pending, because launches have finished when they return."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Accept the arguments of torch.cuda.Stream and torch.cuda.Event."""
        self.seconds = 0.0

    def query(self) -> bool:
        """Return True, because nothing is pending."""
        return True

    def wait(self, _other: object = None) -> None:
        """Return immediately."""

    synchronize = wait_stream = wait_event = wait


class Stream(Finished):
    """A stand-in for torch.cuda.Stream, which is also a context manager."""

    cuda_stream, device, priority, device_index = 0, CUDA, 0, 0

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return a recorded event."""
        event = event or Event()
        event.record()
        return event


class Event(Finished):
    """An event that records the time on the host."""

    def record(self, _stream: object = None) -> None:
        """Record the current time."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Return the time to another event in milliseconds, as measured on this host."""
        return (end.seconds - self.seconds) * 1e3


def _refusal(name: str) -> Callable[..., None]:
    """Return a function that raises an error, because the call needs the CUDA runtime."""

    def refuse(*_args: object, **_options: object) -> None:
        call = "this call" if name.startswith("_") else f"torch.cuda.{name}"
        raise NotModelled(f"{call} needs the CUDA runtime, which warpfrag.triton.emulate does not replace; {HINT}")

    return refuse


def _answer(value: object = None) -> Callable[..., Any]:
    """Return a new function with a constant result; it is not shared, because torch.compile has rules per function."""
    return lambda *_args, **_options: value


class CudaContext(nullcontext[None]):
    """A stand-in for the context managers torch.cuda.device and torch.cuda.stream, which change nothing."""

    def __init__(self, _chosen: object = None) -> None:
        """Accept a device or a stream."""
        super().__init__()


def _answers(driver: MachineDriver) -> dict[str, object]:
    """Return replacements for functions and attributes of torch.cuda."""
    major, minor = driver.get_device_capability()
    properties = driver.utils.get_device_properties(None)
    device = SimpleNamespace(
        name=f"warpfrag's {driver.session.arch}", major=major, minor=minor,
        multi_processor_count=properties["multiprocessor_count"], shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=properties["max_shared_mem"],
        shared_memory_per_multiprocessor=properties["max_shared_mem"] + 1024, max_threads_per_multi_processor=2048,
        warp_size=32, regs_per_multiprocessor=properties["max_num_regs"], total_memory=MEMORY_BYTES,
        L2_cache_size=50 << 20, gcnArchName="",
    )  # fmt: skip
    stream, generator = Stream(), torch.default_generator
    answers: dict[str, object] = {
        "device_count": 1, "current_device": 0, "get_device_capability": (major, minor), "is_available": True,
        "is_initialized": True, "is_bf16_supported": True, "get_device_name": device.name,
        "get_device_properties": device, "mem_get_info": (MEMORY_BYTES, MEMORY_BYTES), "current_stream": stream,
        "default_stream": stream, "is_current_stream_capturing": False, "init": None, "set_device": None,
        "set_stream": None, "synchronize": None, "empty_cache": None, "ipc_collect": None,
        "reset_peak_memory_stats": None,
    }  # fmt: skip
    return {
        **{f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in TENSOR_KINDS},
        **{name: _answer(value) for name, value in answers.items()},
        "device": CudaContext,
        "stream": CudaContext,
        "Stream": Stream,
        "Event": Event,
        **{name: lambda seed: generator.manual_seed(seed) for name in ("manual_seed", "manual_seed_all")},  # noqa: PLW0108
        "get_rng_state": lambda _device=None: generator.get_state(),
        "set_rng_state": lambda state, _device=None: generator.set_state(state),
        "_lazy_init": _refusal("_lazy_init"),
        **{name: type(name, (), {"__init__": _refusal(name)}) for name in ("CUDAGraph", "graph")},  # for annotations
    }


def _generator(original: type) -> Callable[..., object]:
    """Return a version of torch.Generator that accepts device "cuda"."""

    class Generator(original):  # type: ignore[misc]
        """A random number generator on the host."""

        def __new__(cls, device: object = HOST) -> Any:  # noqa: ANN401 # PyTorch's class has no annotations
            return original.__new__(cls, _on_host(device))  # type: ignore[call-arg]

    return Generator


def _default_device(original: Callable[..., object]) -> Callable[..., object]:
    """Return a replacement for the function that torch.set_default_device applies; it puts CUDA tensors on the host."""

    def call(context: Any, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:  # noqa: ANN401
        if context.device.type != "cuda":
            return original(context, func, types, args, kwargs)
        kwargs = dict(kwargs or {})
        factories = default_device._device_constructors()  # noqa: SLF001 (as the function that this replaces)
        is_factory = func in factories and kwargs.get("device") is None
        result = func(*args, **kwargs)
        if is_factory:
            for tensor in _tensors(result):
                MARKS.mark(tensor, "cuda")
        return result

    return call


@contextmanager
def tensors_on_host(driver: MachineDriver, *, inductor: bool) -> Iterator[None]:
    """Create tensors for device "cuda" in host memory, and replace the functions of torch.cuda.

    With `inductor`, `current_stream` is the only function of torch.accelerator that is replaced, because torch.compile
    must not assume that there is a real GPU.
    """
    with ExitStack() as stack:
        for name, value in _answers(driver).items():
            set_until(stack, torch.cuda, name, value)
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            set_until(stack, torch.cuda.nvtx, name, _answer())
        accelerator = getattr(torch, "accelerator", None)
        answers = {"is_available": True, "current_accelerator": torch.device("cuda"), "device_count": 1,
                   "current_device_index": 0, "synchronize": None}  # fmt: skip
        functions = {} if inductor else {name: _answer(value) for name, value in answers.items()}
        functions["current_stream"] = lambda _device=None: torch.Stream(device="cpu")  # torch.compile calls this
        for name, function in functions.items():
            if hasattr(accelerator, name):
                set_until(stack, accelerator, name, function)
        set_until(stack, torch.version, "cuda", "13.0")
        set_until(stack, torch.backends.cudnn, "is_acceptable", _answer(value=False))  # the original warns about cuDNN
        set_until(stack, torch, "Generator", _generator(torch.Generator))
        share = torch.from_numpy  # modes do not intercept this function
        set_until(stack, torch, "from_numpy", lambda array: MARKS.mark(share(array), "host"))
        context = default_device.DeviceContext
        set_until(stack, context, "__torch_function__", _default_device(context.__torch_function__))
        if not any(isinstance(mode, HostTensors) for mode in _get_current_function_mode_stack()):
            MARKS.mark_existing()
            stack.enter_context(HostTensors())
        yield


class CompiledCall:
    """A compiled function or module that is called with host tensors; its results have the device of its arguments."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        """Create a wrapper around a compiled function or module."""
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # an attribute of the compiled module
        """Return an attribute of the compiled function or module."""
        return getattr(self._compiled, name)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function outside the mode that redirects devices, because torch.compile would trace that mode."""
        modes = [_pop_mode() for _ in range(_len_torch_function_stack())]
        is_cuda = any(map(MARKS.is_cuda, _tensors((args, kwargs))))
        try:
            result = self._compiled(*args, **kwargs)
        finally:
            for mode in reversed(modes):
                _push_mode(mode)
        for tensor in _tensors(result):
            MARKS.mark(tensor, "cuda" if is_cuda else "host")
        return result


def _compile_on_host(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version of torch.compile for host tensors that represent CUDA tensors."""

    def compile_function(model: Any = None, **options: object) -> Any:  # noqa: ANN401 # PyTorch's own signature
        if model is None:
            return lambda decorated: compile_function(decorated, **options)
        return CompiledCall(original(model, **options))

    return compile_function


@contextmanager
def inductor_kernels(driver: MachineDriver) -> Iterator[None]:
    """Make torch.compile generate Triton kernels for host tensors, compiled for the session's GPU."""
    from torch._dynamo import reset
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    about = driver.utils.get_device_properties(None)
    properties = DeviceProperties(
        "cuda", 0, about["multiprocessor_count"], driver.capability, driver.capability // 10, about["max_num_regs"],
        2048,
    )  # fmt: skip
    if "warp_size" in DeviceProperties._fields:
        properties = properties._replace(warp_size=32)

    def first_launcher(tuner: Any, *_args: object, **_options: object) -> dict[object, float]:  # noqa: ANN401
        return {launcher: float(number) for number, launcher in enumerate(tuner.launchers)}

    options = {"cpu_backend": "triton", "compile_threads": 1, "force_disable_caches": True,
               "use_static_cuda_launcher": False}  # fmt: skip
    known = {name: value for name, value in options.items() if hasattr(config, name)}
    with ExitStack() as stack:
        stack.enter_context(config.patch(known))
        set_until(stack, DeviceProperties, "create", lambda _device: properties)
        for name in ("set_driver_to_gpu", "set_driver_to_cpu"):
            set_until(stack, triton_helpers, name, _answer())
        set_until(stack, CachingAutotuner, "benchmark_all_configs", first_launcher)
        for name in ("exchange_device", "maybe_exchange_device", "current_device", "get_raw_stream"):
            set_until(stack, CudaInterface, name, staticmethod(lambda *_args: 0))
        set_until(stack, CudaInterface, "synchronize", staticmethod(_answer()))
        set_until(stack, torch, "compile", _compile_on_host(torch.compile))
        reset()
        stack.callback(reset)
        yield
