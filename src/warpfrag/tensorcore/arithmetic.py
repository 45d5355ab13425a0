"""What the tensor core computes, as numbers and rules.

`plan` looks up which rule an instruction follows on an architecture, and how that is known; it is plain Python and
imports neither numpy nor numba. `matmul` runs a rule on matrices of codes; `trace` shows every step of one output.

    lowering   instruction and architecture -> rule     product    operands checked, then run
    rules      what is computed                         schedule   blocks of outputs, threads
    reference  a rule read, one output at a time        backends   a rule compiled: numpy, numba, CUDA
    numbers, tracing, units                             kernels    the loops of the compiled backend
    encodings  what every kernel takes                  gpu        the kernels of the backend cuda, as CUDA C++

    >>> from warpfrag.tensorcore.arithmetic import matmul, plan, trace
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.tensorcore.arithmetic_plan import Plan, nearest_plan, plan

if TYPE_CHECKING:
    from warpfrag.tensorcore.matmul import matmul
    from warpfrag.tensorcore.reference import trace

__all__ = ["Plan", "matmul", "nearest_plan", "plan", "trace"]


def __getattr__(name: str) -> object:
    """Import the backends and the reference only when they are asked for."""
    if name == "matmul":
        from warpfrag.tensorcore.matmul import matmul

        return matmul
    if name == "trace":
        from warpfrag.tensorcore.reference import trace

        return trace
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
