"""The choice of backend for a product: portable first, compiled when loading or compiling the kernels pays.

Loading compiled kernels takes about half a second, compiling the fused ones half a minute. One tile needs neither: the
portable backend computes it in a fraction of a millisecond, a product of 1024 cubed in a few seconds. So each kernel
starts there, and what its products cost there is added up, by a fixed price list and not by the clock. Once that is
worth it, kernels that were compiled before are loaded; once it is as much as compiling costs, or one product alone is,
they are compiled, and a message on the terminal says so. Every code is the same on both. Integers stay in the portable
backend, which is as quick.

Before compiled loops are used, a canary runs: two small tiles whose codes depend on how floats are rounded and on
subnormals, compared with the reference. If it fails, the portable backend stays, and a warning says so.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.errors import SlowArithmetic
from warpfrag.tensorcore.backend_protocol import ProductKernel, ProductOperands
from warpfrag.tensorcore.backends.portable import Portable, max_rows
from warpfrag.tensorcore.encodings import LoopVariant, loop_variant_of
from warpfrag.tensorcore.rules import Fma64, Fused, Grouped, IntegerSum, Rule
from warpfrag.tensorcore.schedule import is_split

if TYPE_CHECKING:  # this imports numba
    from warpfrag.tensorcore.backends.compiled import Compiled

WORTH_LOADING = 0.05
"""The seconds spent in the portable backend after which compiled kernels are loaded."""
WORTH_COMPILING: dict[type[Rule], float] = {Fused: 30.0, Rule: 5.0}
"""The same for compiling: about the time that it takes."""
SECONDS_PER_INSTRUCTION = 2e-4
SECONDS_PER_MULTIPLY_ADD: dict[type[Rule], float] = {Fma64: 1e-5, Fused: 4e-9, Grouped: 5e-9, Rule: 1e-9}
SHORT_LINE = 16
"""Columns at which a product costs twice as much as in a long line."""
MAX_RULES = 1024


class KernelKey(NamedTuple):
    """The key of compiled loops: the class of a rule, its rounding, the variant, and parts of a tile or whole ones.

    Each key is compiled, and passes its canary, by itself.
    """

    rule: type[Rule]
    rounding: str
    variant: LoopVariant
    split: bool


_spent_seconds: dict[KernelKey, float] = {}
"""The seconds that the products of a key have cost in the portable backend."""
_look_again: dict[KernelKey, float] = {}
"""The seconds after which the disk is searched again for compiled kernels."""
_passed: dict[KernelKey, bool] = {}
"""True if the canary of a key has passed; a key without an entry has not run it yet."""


def kernel_key(rule: Rule, *, split: bool) -> KernelKey:
    """Return the key of the loops that run a rule, with tiles split or whole."""
    rounding = rule.rounding if isinstance(rule, Fma64) else rule.sum.rounding if isinstance(rule, Fused) else ""
    return KernelKey(type(rule), rounding, loop_variant_of(rule), split)


def price_of(rule: Rule, prices: dict[type[Rule], float]) -> float:
    """Return the price of a rule: that of the first class in the list that it is an instance of."""
    return next(price for of, price in prices.items() if isinstance(rule, of))


def portable_seconds(rule: Rule, operands: ProductOperands) -> float:
    """Return about how many seconds a product takes in the portable backend."""
    price = price_of(rule, SECONDS_PER_MULTIPLY_ADD)
    tiles, height, width = operands.c.shape
    depth = operands.b.shape[1]
    if isinstance(rule, Fused) and height and width:  # tiles go together; short lines cost more
        price *= 1 + SHORT_LINE / width
        tiles = -(-tiles // max(1, max_rows(rule, depth, width) // height))
    instructions: int = tiles * depth // rule.k
    return SECONDS_PER_INSTRUCTION * instructions + price * operands.work


class KernelSelector:
    """Selects the kernel of one rule for the next product: portable until compiled loops pay, compiled from then on."""

    def __init__(self, rule: Rule) -> None:
        """Start with nothing compiled or loaded."""
        self.rule = rule
        self.portable = Portable().compile(rule)
        self.settled: dict[bool, ProductKernel] = {}
        """The kernels that are final, by whether tiles are split."""
        if isinstance(rule, IntegerSum):
            self.settled = {True: self.portable, False: self.portable}

    def kernel(self, operands: ProductOperands) -> ProductKernel:
        """Return the kernel to run a product with; the call counts as running it."""
        split = is_split(operands)
        kernel = self.settled.get(split)
        if kernel is not None:
            return kernel
        key = kernel_key(self.rule, split=split)
        if key not in _passed:
            _spent_seconds[key] = _spent_seconds.get(key, 0.0) + portable_seconds(self.rule, operands)
            if _spent_seconds[key] < _look_again.get(key, WORTH_LOADING):
                return self.portable
        backend = compiled_backend()
        if backend is None or not backend.holds(self.rule):
            kernel = self.portable
        else:
            compiled = backend.compile(self.rule)
            if key not in _passed:
                if not backend.is_cached(compiled, split=split):
                    worth_compiling = price_of(self.rule, WORTH_COMPILING)
                    if _spent_seconds[key] < worth_compiling:
                        _look_again[key] = min(2 * _spent_seconds[key], worth_compiling)
                        return self.portable
                    _say_compiling()
                _passed[key] = _passes_canary(compiled, self.rule, key)
            kernel = compiled if _passed[key] else self.portable
        self.settled[split] = kernel
        return kernel


kernel_selector = lru_cache(MAX_RULES)(KernelSelector)


@lru_cache(1)
def compiled_backend() -> Compiled | None:
    """Return the compiled backend; warn and return None if numba does not compile here."""
    try:
        from numba import config

        from warpfrag.tensorcore.backends.compiled import Compiled
    except ImportError as error:
        _warn(f"numba cannot be imported ({error})")
        return None
    if getattr(config, "DISABLE_JIT", False):  # numba sets it from the environment
        _warn("NUMBA_DISABLE_JIT is set")
        return None
    return Compiled()


def _passes_canary(kernel: ProductKernel, rule: Rule, key: KernelKey) -> bool:
    """Return True if the compiled loops compute the reference's codes; warn if they do not."""
    from warpfrag.tensorcore.backends.canary import passes

    if passes(kernel, rule, split=key.split):
        return True
    _warn(f"compiled {key.rule.__name__} kernels do not compute what the reference does on this machine")
    return False


def _warn(reason: str) -> None:
    """Warn that products will be slow."""
    warnings.warn(f"{reason}: products run without compiled code, and slowly", SlowArithmetic, stacklevel=2)


@lru_cache(1)
def _say_compiling() -> None:
    """Tell the user at a terminal, once, why it takes a while."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("warpfrag: compiling faster kernels, once per installation (about a minute)\n")
