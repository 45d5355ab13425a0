"""Which machine computes a product: this one's cores, a GPU that emulates, or that GPU's own tensor cores.

    cpu       every rule, on the cores
    cuda      every rule, on a GPU of any architecture
    native    the real instruction, where the architecture asked for is the GPU's own
    auto      the fastest of these that is exact

Those that need a GPU are imported when they are asked for.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from warpfrag.errors import InvalidOperand, NoGpu, NotModelled, OutOfMemory, quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.backend_protocol import ProductOperands
    from warpfrag.tensorcore.rules import Rule

BACKENDS = ("cpu", "cuda", "native", "auto")
PAYS = 1 << 26
"""Multiply-adds from which it pays to go to a GPU: below, copying and launching take longer."""
log = logging.getLogger("warpfrag")
"""Says which machine `auto` took and why no faster one, at level INFO."""


class Machine(Protocol):
    """What computes one chain of instructions along k."""

    name: str
    on_gpu: bool
    """Whether it takes and gives arrays of a GPU."""

    def matmul(self, rule: Rule, operands: ProductOperands) -> NDArray[Any]:
        """The codes of D = A B + C."""


@dataclass(frozen=True)
class Cpu:
    """The cores of this machine."""

    threads: int | None = None
    name = "cpu"
    on_gpu = False

    def matmul(self, rule: Rule, operands: ProductOperands) -> NDArray[Any]:
        """The codes of D = A B + C."""
        from warpfrag.tensorcore.arithmetic import matmul

        a, b, c, columns, scale_a, scale_b = operands
        return matmul(rule, a, b, c, columns=columns, scale_a=scale_a, scale_b=scale_b, threads=self.threads)


@contextmanager
def memory_of_gpu() -> Iterator[None]:
    """Say in words of this package that a GPU's memory does not suffice, whoever found out."""
    try:
        yield
    except Exception as error:
        from warpfrag.tensorcore.backends.device_kernel import out_of_memory_errors

        if not isinstance(error, out_of_memory_errors()):
            raise
        msg = f"the GPU's memory does not suffice: {str(error).strip()}; the operands are as they were"
        raise OutOfMemory(msg) from None


def check_backend(backend: object) -> None:
    """Refuse what is no backend."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        msg = f"backend: expected one of {', '.join(BACKENDS)}; got {quote(backend)}"
        raise InvalidOperand(msg)


def machine_of(backend: str, form: Form, arch: str, *, work: int, threads: int | None, on_gpu: bool) -> Machine:
    """The machine that a caller asks for; `on_gpu` says that the operands are arrays of a GPU."""
    check_backend(backend)
    if backend == "cpu":
        return Cpu(threads)
    if backend == "cuda":
        return cuda()
    if backend == "native":
        return native(form, arch)
    machine, why = _fastest(form, arch, work=work, threads=threads, on_gpu=on_gpu)
    log.info("%d multiply-adds on %s: backend %r%s", work, arch, machine.name, why and f" ({why})")
    return machine


def cuda() -> Machine:
    """A GPU that emulates; NoGpu where there is none."""
    from warpfrag.tensorcore.backends.cuda_backend import Cuda
    from warpfrag.tensorcore.backends.device_kernel import cupy

    cupy()
    return Cuda()


def native(form: Form, arch: str) -> Machine:
    """A GPU's own tensor cores; NoGpu or NotModelled where they cannot be had."""
    from warpfrag.blas.native_gemm import TensorCores

    return TensorCores(form, arch)


def _fastest(form: Form, arch: str, *, work: int, threads: int | None, on_gpu: bool) -> tuple[Machine, str]:
    """The machine, and why it is not the fastest of all."""
    if work < PAYS and not on_gpu:
        return Cpu(threads), f"a GPU pays from {PAYS} on"
    try:
        return native(form, arch), ""
    except NotModelled as error:
        return cuda(), str(error)
    except NoGpu as error:
        return Cpu(threads), str(error)
