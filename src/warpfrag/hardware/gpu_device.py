"""An NVIDIA GPU, used through cuda-core: load PTX, run a raw kernel and read its registers.

Kernels use pinned host memory, which the GPU reads and writes directly. The driver assembles the PTX, so no toolkit is
needed.
"""

import multiprocessing
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from warpfrag.codegen.emit import raw_module
from warpfrag.codegen.ptx_kernels import WGMMA_RAW_PARAMETERS
from warpfrag.codegen.statement import ROLES, SWIZZLE_PERIOD, raw_name
from warpfrag.errors import NoGpu, install_command
from warpfrag.formats.arrays import Words
from warpfrag.hardware.launches import WARPS, TensorLaunch
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import KernelVariant, WgmmaCases

Argument: TypeAlias = Words | np.integer[Any] | None
OperandSet: TypeAlias = dict[str, Words] | WgmmaCases | TensorLaunch
LoadedModule: TypeAlias = Any
"""Machine code on the GPU: cuda-core's ObjectCode. It is untyped, because cuda-core may not be installed."""

WARPS_PER_BLOCK = 4
WARPGROUP = (4, 32)  # the numbers of warps and of lanes per warp
POISON = 0xDEADBEEF  # the initial value of D's words, which reveals words that are not written


@dataclass
class Gpu:
    """A GPU that is ready to run kernels."""

    name: str
    target: str
    driver: str
    assembler: str
    stream: Any = field(repr=False)
    memory: Any = field(repr=False)

    @property
    def arch(self) -> str:
        """The architecture whose arithmetic the GPU implements."""
        return targets()[self.target].arch

    def load(self, ptx: str) -> LoadedModule:
        """Assemble a PTX module for this GPU."""
        from cuda.core import ObjectCode

        return ObjectCode.from_ptx(ptx.encode("ascii"))

    def load_binary(self, cubin: bytes) -> LoadedModule:
        """Load machine code compiled for this GPU."""
        from cuda.core import ObjectCode

        return ObjectCode.from_cubin(cubin)

    def run(self, module: LoadedModule, entry: str, operands: Mapping[str, Words], words: int) -> Words:
        """Run a raw kernel and return D's registers, uint32[cases, 32, words], with POISON where unwritten."""
        cases = len(operands["a"])
        blank = np.full((cases, 32, words), POISON, np.uint32)
        arrays = {"d": blank, **operands}
        arguments = [*map(arrays.get, ROLES), np.uint32(cases)]
        return self.run_blocks(module, entry, -(-cases // WARPS_PER_BLOCK), arguments, WARPS_PER_BLOCK)

    def run_warpgroups(self, module: LoadedModule, entry: str, cases: WgmmaCases, words: int) -> Words:
        """Run a raw wgmma kernel and return D's registers, uint32[cases, 4, 32, words], with POISON where unwritten."""
        arrays = {"d": np.full((cases.cases, *WARPGROUP, words), POISON, np.uint32), **cases.arrays}
        a, b = cases.descriptors
        size = cases.shared.shape[1]
        numbers: dict[str, Argument] = {
            "descriptor_a": np.uint64(a),
            "descriptor_b": np.uint64(b),
            "scale_d": np.uint32(cases.scale_d),
            "bytes": np.uint32(size),
        }
        arguments = [numbers[name] if name in numbers else arrays.get(name) for name in WGMMA_RAW_PARAMETERS]
        return self.run_blocks(module, entry, cases.cases, arguments, WARPGROUP[0], shared=size + SWIZZLE_PERIOD)

    def run_blocks(
        self,
        module: LoadedModule,
        entry: str,
        blocks: int,
        arguments: Sequence[Argument],
        warps: int = 1,
        *,
        shared: int = 0,
        result: int = 0,
    ) -> Words:
        """Run a kernel with `warps` warps per block, and return the argument at index `result`.

        Arguments are arrays, numbers, or None for a null pointer.
        """
        from cuda.core import LaunchConfig, launch

        buffers: list[Any] = []
        views: list[Words] = []
        words: list[np.integer[Any]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                buffers.append(self.memory.allocate(argument.nbytes, stream=self.stream))
                views.append(np.from_dlpack(buffers[-1]).view(np.uint32).reshape(argument.shape))
                views[-1][...] = argument
                words.append(np.uint64(int(buffers[-1].handle)))
            else:
                words.append(np.uint64(0) if argument is None else argument)
        config = LaunchConfig(grid=blocks, block=32 * warps, shmem_size=shared)
        launch(self.stream, config, module.get_kernel(entry), *words)
        self.stream.sync()
        answer = views[result].copy()
        views.clear()  # the argument buffers must stay alive until here
        for buffer in buffers:
            buffer.close()
        return answer


def open_gpu(number: int = 0) -> Gpu:
    """Open a GPU; raise NoGpu if the driver, cuda-core or a supported GPU is missing."""
    try:
        from cuda.core import Device, LegacyPinnedMemoryResource
    except ImportError as error:
        raise NoGpu(f"cuda-core is not installed ({error}): {install_command('gpu')}") from None
    try:
        device = Device(number)
        device.set_current()
        stream = device.create_stream()
    except Exception as error:  # noqa: BLE001 (cuda-core raises many types if there is no driver or GPU)
        raise NoGpu(f"NVIDIA GPU {number} cannot be used: {error}") from None
    major, minor = device.compute_capability
    known = [name for name in (f"sm_{major}{minor}a", f"sm_{major}{minor}") if name in targets()]
    if not known:
        raise NoGpu(
            f"{device.name} is sm_{major}{minor}, which warpfrag does not support; targets are {', '.join(targets())}"
        )
    driver, cuda = _versions()
    assembler = f"the driver's, CUDA {cuda}"
    return Gpu(device.name, known[0], driver, assembler, stream, LegacyPinnedMemoryResource())


def _versions() -> tuple[str, str]:
    """Return the versions of the driver and of the CUDA release that it implements."""
    from cuda.bindings import driver

    _, number = driver.cuDriverGetVersion()
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return _module_version() or cuda, cuda


def _module_version() -> str:
    """Return the version of the Linux kernel module, or "" on other systems."""
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return ""
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text(encoding="utf-8"))
    return match[1] if match else ""


EXIT_SECONDS = 10  # the time limit for a process to end


class Worker:
    """A process that uses the GPU; it is restarted if a kernel destroys its context."""

    def __init__(self, device: int) -> None:
        """Open the GPU in a new process; raise NoGpu if there is none."""
        self.device = device
        self.about: dict[str, str] = {}
        self._start()

    def __enter__(self) -> Self:
        """Return the worker."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._stop()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(far_end, self.device), daemon=True)
        self.process.start()
        far_end.close()
        try:
            answer = self.pipe.recv()
        except EOFError:
            # the new process imports the caller's script, which must not start yet another process
            hint = "" if self.about else '; a script must call verify under `if __name__ == "__main__":`'
            raise NoGpu(self._end() + hint) from None
        if isinstance(answer, str):
            raise NoGpu(answer)
        self.about = answer

    def _end(self) -> str:
        """Wait until the process ends; return a message with its exit code."""
        self.process.join(timeout=EXIT_SECONDS)
        return f"the process that owns the GPU ended with exit code {self.process.exitcode}"

    def _stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=EXIT_SECONDS)
        if self.process.is_alive():
            self.process.kill()

    def run(self, name: str, variant: KernelVariant, operands: OperandSet) -> Words | str:
        """Run a kernel, and return D's registers or an error message."""
        answer: Words | str
        try:
            self.pipe.send((name, variant, operands))
            answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            answer = self._end()
        if isinstance(answer, str):
            self._stop()
            self._start()
        return answer


def _serve(pipe: Connection, device: int) -> None:
    """Describe the GPU to the parent, then run kernels until the pipe is closed; executed in the new process."""
    try:
        gpu = open_gpu(device)
    except NoGpu as error:
        pipe.send(str(error))
        return
    pipe.send(
        {"device": gpu.name, "arch": gpu.arch, "target": gpu.target, "driver": gpu.driver, "assembler": gpu.assembler}
    )
    modules: dict[tuple[str, KernelVariant], LoadedModule] = {}
    while True:
        try:
            name, variant, operands = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_run(gpu, modules, name, variant, operands))
        except Exception as error:  # noqa: BLE001 (a trap can surface as any error of the driver)
            pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])
            return


def _run(
    gpu: Gpu,
    modules: dict[tuple[str, KernelVariant], LoadedModule],
    name: str,
    variant: KernelVariant,
    operands: OperandSet,
) -> Words:
    """Run one kernel; its module stays in `modules` until another one is requested."""
    if isinstance(operands, TensorLaunch):
        arrays = [*operands.arrays.values()]
        module = gpu.load(operands.text)
        result = [*operands.arrays].index(operands.result)
        return gpu.run_blocks(module, operands.entry, operands.blocks, arrays, WARPS, result=result)
    instruction = get(name, arch=gpu.target)
    key = (name, variant)
    if key not in modules:
        modules.clear()  # the cases of one kernel arrive together, so keeping one module is enough
        modules[key] = gpu.load(raw_module([(instruction, variant)], gpu.target))
    entry = raw_name(instruction, variant)
    if isinstance(operands, WgmmaCases):
        return gpu.run_warpgroups(modules[key], entry, operands, instruction.d.words)
    return gpu.run(modules[key], entry, operands, instruction.d.words)
