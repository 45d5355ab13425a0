"""The choice of backend for a rule: compiled C code if the library can be used, otherwise NumPy.

Both return the same codes. Integers always use the portable backend, whose BLAS is just as fast.
"""

from functools import lru_cache

from warpfrag.tensorcore.backend_protocol import ProductKernel, ProductOperands
from warpfrag.tensorcore.backends.compiled import Compiled
from warpfrag.tensorcore.backends.portable import Portable
from warpfrag.tensorcore.rules import Rule

MAX_RULES = 1024


class KernelSelector:
    """Selects the kernel for one rule."""

    def __init__(self, rule: Rule) -> None:
        """Choose the backend."""
        self.rule = rule
        backend = Compiled() if Compiled.holds(rule) and Compiled.is_available() else Portable()
        self.chosen: ProductKernel = backend.compile(rule)

    def kernel(self, operands: ProductOperands) -> ProductKernel:  # noqa: ARG002 (one kernel runs every gemm)
        """Return the kernel that runs a gemm."""
        return self.chosen


kernel_selector = lru_cache(MAX_RULES)(KernelSelector)
