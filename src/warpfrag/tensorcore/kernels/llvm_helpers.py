"""The types of numba intrinsics: used by `machine.jit` only, until its loops are C too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba.extending import intrinsic

from warpfrag.tensorcore.kernels.jit import Int

Numba: TypeAlias = Any
"""An object of a numba class that its extension interface passes but does not export: a context, a signature."""
Values: TypeAlias = Sequence[ir.Value]
EmitCode: TypeAlias = Callable[[Numba, ir.IRBuilder, Numba, Values], ir.Value]
"""The function that numba calls to emit the code of an intrinsic."""
Lowering: TypeAlias = tuple[Numba, EmitCode]
"""An intrinsic for arguments of some types: its signature, and the function that emits its code."""


def typed_intrinsic(function: Callable[..., Lowering]) -> Callable[..., Int]:
    """Make an intrinsic on numbers. Kernels call it without the typing context, which numba passes first."""
    lowered: Callable[..., Int] = intrinsic(function)
    return lowered
