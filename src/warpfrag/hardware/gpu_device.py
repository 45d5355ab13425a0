"""One NVIDIA GPU through cuda-core: load PTX, run a raw kernel, read its registers back.

Memory is pinned host memory, which the GPU reads and writes directly: there is nothing to copy. PTX is assembled by the
driver, so no toolkit is needed.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsInt

import numpy as np
from numpy.typing import NDArray

from warpfrag.codegen.emit import raw_module
from warpfrag.codegen.kernels import WGMMA_RAW_PARAMETERS
from warpfrag.codegen.statement import ROLES, SWIZZLE_PERIOD, raw_name
from warpfrag.errors import NoGpu
from warpfrag.hardware.launches import WARPS, TensorLaunch
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import Variant, WgmmaCases

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    Argument = NDArray[np.uint32] | np.integer[Any] | None
    from multiprocessing.connection import Connection

    OperandSet = dict[str, NDArray[np.uint32]] | WgmmaCases | TensorLaunch


WARPS_PER_BLOCK = 4
WARPGROUP = (4, 32)  # warps and lanes
POISON = 0xDEADBEEF  # what D holds before a run: a word that is not written shows


# What warpfrag uses of cuda-core, which brings no types and may not be there.
class Stream(Protocol):
    """A queue of work for the GPU."""

    def sync(self) -> None:
        """Wait until it is empty."""


class Buffer(Protocol):
    """A piece of memory."""

    handle: SupportsInt

    def close(self) -> None:
        """Give it back."""

    def __dlpack__(self, *, stream: None = None) -> CapsuleType:
        """The protocol by which numpy reads the buffer without a copy."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """The protocol by which numpy reads the buffer without a copy."""


class PinnedMemory(Protocol):
    """Memory of the host that the GPU reads and writes."""

    def allocate(self, size: int, *, stream: Stream) -> Buffer:
        """So many bytes of it."""


class LoadedModule(Protocol):
    """Machine code that is loaded."""

    def get_kernel(self, name: str) -> object:
        """The kernel of this name."""


@dataclass
class Gpu:
    """An open device."""

    name: str
    target: str
    driver: str
    assembler: str
    stream: Stream = field(repr=False)
    memory: PinnedMemory = field(repr=False)

    @property
    def arch(self) -> str:
        """The arithmetic that runs on it."""
        return targets()[self.target].arch

    def load(self, ptx: str) -> LoadedModule:
        """Assemble a PTX module for this GPU."""
        from cuda.core import ObjectCode

        module: LoadedModule = ObjectCode.from_ptx(ptx.encode("ascii"))
        return module

    def load_binary(self, cubin: bytes) -> LoadedModule:
        """Load machine code that a compiler made for this GPU."""
        from cuda.core import ObjectCode

        module: LoadedModule = ObjectCode.from_cubin(cubin)
        return module

    def run(
        self,
        module: LoadedModule,
        entry: str,
        operands: Mapping[str, NDArray[np.uint32]],
        words: int,
    ) -> NDArray[np.uint32]:
        """D's registers, uint32[cases, 32, words], of a raw kernel; what it does not write keeps the poison."""
        cases = len(operands["a"])
        blank = np.full((cases, 32, words), POISON, np.uint32)
        arrays = {"d": blank, **operands}
        arguments = [arrays.get(role) for role in ROLES]
        return self._launch(
            module, entry, -(-cases // WARPS_PER_BLOCK), WARPS_PER_BLOCK, [*arguments, np.uint32(cases)]
        )

    def run_memory(
        self,
        module: LoadedModule,
        entry: str,
        memory: Mapping[str, NDArray[np.uint32]],
        numbers: Mapping[str, tuple[int, ...]],
        warps: int = 1,
    ) -> NDArray[np.uint32]:
        """The memory of D after a kernel of one block that takes, for each matrix, a pointer and these numbers."""
        arguments: list[Argument] = []
        for role in (role for role in ROLES if role in memory):
            arguments += [memory[role], *(np.int32(number) for number in numbers[role])]
        return self._launch(module, entry, 1, warps, arguments)

    def run_blocks(
        self,
        module: LoadedModule,
        entry: str,
        blocks: int,
        arrays: list[NDArray[np.uint32]],
        warps: int = 1,
        result: int = 0,
    ) -> NDArray[np.uint32]:
        """One of some arrays after a kernel of so many blocks of some warps, which takes a pointer to each."""
        return self._launch(module, entry, blocks, warps, [*arrays], result=result)

    def run_warpgroups(self, module: LoadedModule, entry: str, cases: WgmmaCases, words: int) -> NDArray[np.uint32]:
        """D's registers, uint32[cases, 4, 32, words], of a raw kernel of wgmma; what it does not write is poison."""
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
        return self._launch(module, entry, cases.cases, WARPGROUP[0], arguments, size + SWIZZLE_PERIOD)

    def _launch(
        self,
        module: LoadedModule,
        entry: str,
        blocks: int,
        warps: int,
        arguments: list[Argument],
        shared: int = 0,
        *,
        result: int = 0,
    ) -> NDArray[np.uint32]:
        """Run a kernel. Arguments are arrays, None for a null pointer, and numbers; `result` counts the arrays."""
        from cuda.core import LaunchConfig, launch

        buffers: list[Pinned] = []
        words: list[np.integer[Any]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                buffers.append(Pinned(self.memory.allocate(argument.nbytes, stream=self.stream), argument))
                words.append(np.uint64(int(buffers[-1].buffer.handle)))
            else:
                words.append(np.uint64(0) if argument is None else argument)
        config = LaunchConfig(grid=blocks, block=32 * warps, shmem_size=shared)
        launch(self.stream, config, module.get_kernel(entry), *words)
        self.stream.sync()
        answer = buffers[result].array.copy()
        for buffer in buffers:
            buffer.close()
        return answer


class Pinned:
    """Pinned memory, and a view of it as words."""

    def __init__(self, buffer: Buffer, words: NDArray[np.uint32]) -> None:
        """View the buffer, and fill it."""
        self.buffer = buffer
        self.array: NDArray[np.uint32] = np.from_dlpack(buffer).view(np.uint32).reshape(words.shape)
        self.array[...] = words

    def close(self) -> None:
        """Give the memory back."""
        del self.array
        self.buffer.close()


def open_gpu(number: int = 0) -> Gpu:
    """Open a GPU, or NoGpu with what is missing."""
    try:
        from cuda.core import Device, LegacyPinnedMemoryResource
    except ImportError as error:
        raise NoGpu(f"cuda-core is not installed ({error}): pip install 'warpfrag[gpu]'") from None
    try:
        device = Device(number)
        device.set_current()
        stream = device.create_stream()
    except Exception as error:  # noqa: BLE001 (cuda-core raises many kinds where there is no driver or GPU)
        raise NoGpu(f"no NVIDIA GPU {number} can be used: {error}") from None
    major, minor = device.compute_capability
    known = [name for name in (f"sm_{major}{minor}a", f"sm_{major}{minor}") if name in targets()]
    if not known:
        raise NoGpu(
            f"{device.name} is sm_{major}{minor}, which warpfrag does not know; targets are {', '.join(targets())}"
        )
    driver, cuda = _versions()
    assembler = f"the driver's, CUDA {cuda}"
    return Gpu(device.name, known[0], driver, assembler, stream, LegacyPinnedMemoryResource())


def _versions() -> tuple[str, str]:
    """Version of the driver, and of the CUDA it implements."""
    from cuda.bindings import driver

    _, number = driver.cuDriverGetVersion()
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return _module_version() or cuda, cuda


def _module_version() -> str:
    """The driver's version as the Linux kernel module spells it, or nothing on other systems."""
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return ""
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", path.read_text(encoding="utf-8"))
    return match[1] if match else ""


LAST_SECONDS = 10  # that a process gets to end by itself


class Worker:
    """A process that owns the GPU. It is started again when a kernel has taken its context down."""

    def __init__(self, device: int) -> None:
        """Open the GPU in a process of its own; NoGpu if there is none."""
        self.device = device
        self.about: dict[str, str] = {}
        self._start()

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._stop()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.device), daemon=True)
        self.process.start()
        other.close()
        try:
            answer = self.pipe.recv()
        except EOFError:
            # a new process imports the script that started it, and must not come to start one too
            hint = "" if self.about else '; a script must call verify under `if __name__ == "__main__":`'
            raise NoGpu(self._end() + hint) from None
        if isinstance(answer, str):
            raise NoGpu(answer)
        self.about = answer

    def _end(self) -> str:
        """How a process ended that says nothing more."""
        self.process.join(timeout=LAST_SECONDS)
        return f"the process that owns the GPU ended with exit code {self.process.exitcode}"

    def _stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=LAST_SECONDS)
        if self.process.is_alive():
            self.process.kill()

    def run(self, name: str, how: Immediates | Variant, operands: OperandSet) -> NDArray[np.uint32] | str:
        """D's registers, or what went wrong; wgmma takes a variant and its staged operands."""
        answer: NDArray[np.uint32] | str
        try:
            self.pipe.send((name, how, operands))
            answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            answer = self._end()
        if isinstance(answer, str):
            self._stop()
            self._start()
        return answer


def _serve(pipe: Connection, device: int) -> None:
    """The process: say what the GPU is, then run kernels until nobody asks any more."""
    try:
        gpu = open_gpu(device)
    except NoGpu as error:
        pipe.send(str(error))
        return
    pipe.send(
        {"device": gpu.name, "arch": gpu.arch, "target": gpu.target, "driver": gpu.driver, "assembler": gpu.assembler}
    )
    modules: dict[tuple[str, Immediates | Variant], LoadedModule] = {}
    while True:
        try:
            name, how, operands = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_run(gpu, modules, name, how, operands))
        except Exception as error:  # noqa: BLE001 (a trap can surface as any error of the driver)
            pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])
            return


def _run(
    gpu: Gpu,
    modules: dict[tuple[str, Immediates | Variant], LoadedModule],
    name: str,
    how: Immediates | Variant,
    operands: OperandSet,
) -> NDArray[np.uint32]:
    """One kernel; what was assembled for it stays in `modules` until another is asked for."""
    if isinstance(operands, TensorLaunch):
        arrays = [*operands.arrays.values()]
        module = gpu.load(operands.text)
        result = [*operands.arrays].index(operands.result)
        return gpu.run_blocks(module, operands.entry, operands.blocks, arrays, WARPS, result)
    instruction = get(name, target=gpu.target)
    key = (name, how)
    if key not in modules:
        modules.clear()  # one at a time: kernels come in order
        modules[key] = gpu.load(raw_module([(instruction, how)], gpu.target))
    entry = raw_name(instruction, how)
    if isinstance(operands, WgmmaCases):
        return gpu.run_warpgroups(modules[key], entry, operands, instruction.d.words)
    return gpu.run(modules[key], entry, operands, instruction.d.words)
