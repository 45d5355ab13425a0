"""The process that owns the GPU.

Kernels run in a process of their own, because an instruction that traps takes its CUDA context with it: the trap is
told, a new process starts, and the rest goes on.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Self

from warpfrag.codegen.emit import raw_module
from warpfrag.codegen.statement import raw_name
from warpfrag.errors import NoGpu
from warpfrag.hardware.device import open_gpu
from warpfrag.hardware.tensor_memory import WARPS, TensorLaunch
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import WgmmaCases

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.hardware.device import Gpu, LoadedModule
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.wgmma_call import Variant

    OperandSet = dict[str, NDArray[np.uint32]] | WgmmaCases | TensorLaunch

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
