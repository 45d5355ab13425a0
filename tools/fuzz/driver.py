"""Run kernels on a GPU through the CUDA driver, with only NumPy and ctypes.

`Device.run` loads a cubin, or PTX through the driver's compiler, launches one kernel, and returns the arrays. A fault
destroys the context, so run unknown kernels in a separate process.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
LOG_BYTES = 4000
LIMIT_STACK_SIZE, STACK_BYTES = 0, 16384  # stack bytes per thread, because the recursion depth is unknown


class DriverError(RuntimeError):
    """A failed driver call; `is_fatal` is True if the context is lost."""

    def __init__(self, call: str, code: int, text: str) -> None:
        """Create the error from a call and its reason."""
        super().__init__(f"{call}: {text} ({code})")
        self.is_fatal = 700 <= code < 800


class Device:
    """The first GPU in this process."""

    def __init__(self) -> None:
        """Open the driver and the device's primary context."""
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuCtxSetLimit", LIMIT_STACK_SIZE, ctypes.c_size_t(STACK_BYTES))
        name, version = ctypes.create_string_buffer(100), ctypes.c_int()
        self._call("cuDeviceGetName", name, 100, device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.name = name.value.decode()
        self.cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise DriverError(name, code, (text.value or b"unknown").decode())

    def run(
        self,
        image: str | bytes,
        grid: int,
        block: int,
        arguments: Sequence[NDArray[np.uint8] | bytes],
        entry: str = "k",
        shared: int = 0,
    ) -> list[NDArray[np.uint8]]:
        """Launch a kernel and return the contents of its arrays after the launch; bytes arguments are structs."""
        module = self._load(image if isinstance(image, bytes) else image.encode() + b"\0")
        places: list[tuple[ctypes.c_uint64, NDArray[np.uint8]]] = []
        try:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
            values: list[object] = []
            for argument in arguments:
                if isinstance(argument, bytes):
                    values.append(ctypes.create_string_buffer(argument, len(argument)))
                    continue
                place = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(argument.nbytes))
                places.append((place, argument))
                data = np.ascontiguousarray(argument)
                self._call("cuMemcpyHtoD_v2", place, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
                values.append(place)
            pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])  # type: ignore[arg-type] # ctypes objects
            extents = [ctypes.c_uint(extent) for extent in (grid, 1, 1, block, 1, 1, shared)]
            self._call("cuLaunchKernel", function, *extents, None, pointers, None)
            self._call("cuCtxSynchronize")
            found = []
            for place, argument in places:
                left = np.empty(argument.nbytes, np.uint8)
                self._call("cuMemcpyDtoH_v2", left.ctypes.data_as(ctypes.c_void_p), place, ctypes.c_size_t(left.nbytes))
                found.append(left)
            return found
        finally:
            for place, _ in places:
                self.cuda.cuMemFree_v2(place)
            self.cuda.cuModuleUnload(module)

    def _load(self, image: bytes) -> ctypes.c_void_p:
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        code = self.cuda.cuModuleLoadDataEx(ctypes.byref(module), image, 2, options, values)
        if code:
            said = log.value.decode(errors="replace").strip()[:400]
            call = "cuModuleLoadDataEx"
            raise DriverError(call, code, said)
        return module


@cache
def device() -> Device:
    """Return the GPU of this process, opened on first use."""
    return Device()
