"""The backends of a gemm.

    cpu       emulation of every rule on the CPU
    cuda      emulation of every rule on a GPU of any architecture
    native    the real instruction, if the GPU has the requested architecture
    auto      the fastest of these that is exact

Backends that need a GPU are imported on first use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, NoGpu, NotModelled, OutOfMemory, quote
from warpfrag.tensorcore.array_types import HOST, ArrayKind
from warpfrag.tensorcore.backend_protocol import ProductOperands
from warpfrag.tensorcore.backends import kernel_selector
from warpfrag.tensorcore.matmul import multiply
from warpfrag.tensorcore.resolved_instruction import ResolvedInstruction
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.thread_split import check_threads

BACKENDS = ("cpu", "cuda", "native", "auto")
PAYS = 1 << 26
"""The number of multiply-adds from which a GPU is faster, including copies and launches."""
log = logging.getLogger("warpfrag")
"""Logs, at level INFO, which backend `auto` chose, and the reason if it did not choose the tensor cores."""
CHOSEN = "%d multiply-adds on %s: backend %r (%s)"


class Machine(Protocol):
    """A device that computes chains of instructions along k."""

    name: str
    on_gpu: bool
    """True if the machine accepts and returns GPU arrays."""

    def matmul(self, rule: Rule, operands: ProductOperands) -> NDArray[Any]:
        """Return the codes of D = A B + C."""


@dataclass(frozen=True)
class Cpu:
    """The CPU cores of this machine: all of them, or `threads` of them."""

    threads: int | None = None
    name = "cpu"
    on_gpu = False

    def __post_init__(self) -> None:
        """Raise InvalidOperand for an invalid number of threads."""
        check_threads(self.threads)

    def matmul(self, rule: Rule, operands: ProductOperands) -> NDArray[Any]:
        """Return the codes of D = A B + C."""
        return multiply(kernel_selector(rule), operands, self.threads)


@contextmanager
def on_device(kind: ArrayKind = HOST) -> Iterator[None]:
    """Make CuPy use the GPU that holds these arrays; raise OutOfMemory if that GPU runs out of memory."""
    try:
        gpu = nullcontext()
        if kind.on_gpu:
            from warpfrag.tensorcore.backends.device_kernel import cupy

            gpu = cupy().cuda.Device(int(kind.device.removeprefix("cuda:")))
        with gpu:
            yield
    except Exception as error:
        from warpfrag.tensorcore.backends.device_kernel import out_of_memory_errors

        if not isinstance(error, out_of_memory_errors()):
            raise
        raise OutOfMemory(f"the GPU is out of memory: {str(error).strip()}; the operands are unchanged") from None


def check_backend(backend: object) -> None:
    """Raise InvalidOperand for an invalid backend."""
    if not (isinstance(backend, str) and backend in BACKENDS) and not isinstance(backend, Cpu):
        raise InvalidOperand(f"backend: expected one of {', '.join(BACKENDS)}; got {quote(backend)}")


def machine_of(backend: str | Machine, resolved: ResolvedInstruction, *, work: int, on_gpu: bool) -> Machine:
    """Return the device for a backend; `on_gpu` is True if the operands are in GPU memory."""
    if not isinstance(backend, str):
        return backend
    if backend == "auto" and work < PAYS and not on_gpu:
        log.info(CHOSEN, work, resolved.arch, "cpu", f"a GPU is faster from {PAYS}")
        return Cpu()
    if backend == "cpu":
        return Cpu()
    if backend == "cuda":
        return cuda()
    from warpfrag.blas.native_gemm import TensorCores

    try:
        return TensorCores(resolved)
    except (NotModelled, NoGpu) as error:
        if backend == "native":
            raise
        machine = Cpu() if isinstance(error, NoGpu) else cuda()
        log.info(CHOSEN, work, resolved.arch, machine.name, error)
        return machine


def cuda() -> Machine:
    """Return a device that emulates the arithmetic of any architecture on a GPU; raise NoGpu if there is no GPU."""
    from warpfrag.tensorcore.backends.cuda_backend import Cuda
    from warpfrag.tensorcore.backends.device_kernel import cupy

    cupy()
    return Cuda()
