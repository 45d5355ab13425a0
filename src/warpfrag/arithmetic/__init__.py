"""What the tensor core computes, as numbers and rules.

`plan` looks up how an instruction runs on an architecture; it is plain Python and imports neither numpy nor numba.
`matmul` runs a plan on matrices of codes; `trace` shows every step of one output.

    >>> from warpfrag.arithmetic import matmul, plan, trace
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpfrag.arithmetic.lowering import Plan, plan

if TYPE_CHECKING:
    from warpfrag.arithmetic.fast import matmul
    from warpfrag.arithmetic.reference import trace

__all__ = ["Plan", "matmul", "plan", "trace"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    """Import the compiled twin and the reference only when they are asked for."""
    if name == "matmul":
        from warpfrag.arithmetic.fast import matmul

        return matmul
    if name == "trace":
        from warpfrag.arithmetic.reference import trace

        return trace
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
