"""Run experiments on a GPU through CUDA's driver, which supports every type of texture and surface."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.textures.experiment import words_of
from tools.textures.kernels import kernel
from warpfrag.errors import NoGpu

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tools.textures.experiment import Experiment

FORMAT_CODES = {
    "uint8": 1, "uint16": 2, "uint32": 3, "int8": 8, "int16": 9, "int32": 10, "float16": 16, "float32": 32,
}  # fmt: skip
LAYERED, LOAD_STORE, GATHER = 1, 2, 8  # flags of a CUDA array
MODE_CODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}


class TextureDriver:
    """The driver functions for arrays, textures and surfaces."""

    def __init__(self) -> None:
        """Open the first GPU."""
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            msg = f"the CUDA driver cannot be loaded: {error}"
            raise NoGpu(msg) from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:  # noqa: ANN401 (any C argument)
        """Call a driver function; raise NoGpu with its status if it fails."""
        status = getattr(self.library, name)(*args)
        if status:
            msg = f"{name} failed with {status}"
            raise NoGpu(msg)

    def buffer(self, data: NDArray[Any]) -> ctypes.c_uint64:
        """Copy an array to GPU memory and return its address."""
        pointer = ctypes.c_uint64()
        size = ctypes.c_size_t(max(256, data.nbytes))
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return pointer

    def cuda_array(self, experiment: Experiment) -> ctypes.c_void_p:
        """Create a CUDA array with the texels."""
        flags = LAYERED * experiment.is_layered | LOAD_STORE * experiment.is_surface
        flags |= GATHER * experiment.opcode.startswith("tld4")
        code = FORMAT_CODES[experiment.dtype] | experiment.channels << 32
        descriptor = (ctypes.c_uint64 * 5)(*experiment.extents, code, flags)
        array = ctypes.c_void_p()
        self.call("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(descriptor))
        self.copy(experiment, array, experiment.array, to_host=False)
        return array

    def copy(self, experiment: Experiment, array: ctypes.c_void_p, data: NDArray[Any], *, to_host: bool) -> None:
        """Copy a whole CUDA array from the host or to the host."""
        x, y, z = experiment.extents
        row = x * experiment.channels * np.dtype(experiment.dtype).itemsize
        block = np.zeros(25, np.uint64)  # CUDA_MEMCPY3D: source, target, extents
        host, device = (11, 0) if to_host else (0, 11)
        block[host + 4], block[host + 5] = 1, data.ctypes.data
        block[host + 9], block[host + 10] = row, max(1, y)
        block[device + 4], block[device + 7] = 3, array.value or 0
        block[22:] = row, max(1, y), max(1, z)
        self.call("cuMemcpy3D_v2", ctypes.c_void_p(block.ctypes.data))

    def handle(self, experiment: Experiment, array: ctypes.c_void_p | None, memory: int) -> ctypes.c_uint64:
        """Create the handle of a texture or surface."""
        resource = np.zeros(36, np.uint32)  # CUDA_RESOURCE_DESC
        if array is not None:
            resource[2:4] = np.array([array.value], np.uint64).view(np.uint32)
        else:  # linear memory
            resource[0] = 2
            resource[2:4] = np.array([memory], np.uint64).view(np.uint32)
            resource[4:6] = FORMAT_CODES[experiment.dtype], experiment.channels
            resource[6] = experiment.array.nbytes
        place, handle = ctypes.c_void_p(resource.ctypes.data), ctypes.c_uint64()
        if experiment.is_surface:
            self.call("cuSurfObjectCreate", ctypes.byref(handle), place)
            return handle
        settings = np.zeros(26, np.uint32)  # CUDA_TEXTURE_DESC
        settings[:3] = [MODE_CODES[mode] for mode in experiment.address]
        settings[3] = experiment.filter == "linear"
        settings[4] = (experiment.read == "element") | experiment.normalized << 1
        settings[10:14] = np.array(experiment.border, np.float32).view(np.uint32)
        self.call("cuTexObjectCreate", ctypes.byref(handle), place, ctypes.c_void_p(settings.ctypes.data), None)
        return handle

    def result(self, experiment: Experiment) -> NDArray[Any]:
        """Return the GPU's result, as `machine_result` does."""
        array, memory = None, 0
        if experiment.geometry == "1d" and experiment.opcode.endswith(".s32"):  # as for tex1Dfetch
            memory = self.buffer(experiment.array).value
        else:
            array = self.cuda_array(experiment)
        handle = self.handle(experiment, array, memory)
        out = np.zeros((experiment.threads, 8), np.uint32)
        pointers = [self.buffer(words_of(experiment)), self.buffer(out)]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(kernel(experiment).encode()))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        arguments = [handle, *pointers, ctypes.c_uint32(experiment.threads)]
        places = (ctypes.c_void_p * 4)(*(ctypes.addressof(argument) for argument in arguments))
        blocks = -(-experiment.threads // 128)
        self.call("cuLaunchKernel", function, blocks, 1, 1, 128, 1, 1, 0, None, places, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), pointers[1], ctypes.c_size_t(out.nbytes))
        if experiment.opcode.startswith(("sust", "sured")):
            stored = np.zeros(experiment.array.nbytes, np.uint8)
            self.copy(experiment, array or ctypes.c_void_p(), stored, to_host=True)
            return stored
        return out if experiment.is_surface else out[:, :4]
