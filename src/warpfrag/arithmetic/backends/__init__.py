"""Which backend runs a product: the portable one at once, the compiled one where loading or compiling it pays.

Loading compiled kernels takes about half a second, compiling them ten. One tile needs neither: the portable backend
computes it in a fraction of a millisecond. So each kind of kernel starts there, and what it spends there is added up,
by a fixed price list and not by the clock. Once that is worth it, kernels that were compiled before are loaded; once
it is as much as compiling costs, or one product alone is, they are compiled, and that is said on the terminal.
Every code is the same on both.

Before a kind of compiled kernel is used, a canary runs: two small tiles whose codes depend on how floats are rounded
and on subnormals, compared with the reference. Where it differs, the portable backend stays, and a warning says so.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.arithmetic.backends.portable import Portable, most_rows
from warpfrag.arithmetic.kernels.ways import Way, way_of
from warpfrag.arithmetic.rules import Fma64, Fused, Grouped, Rule
from warpfrag.arithmetic.schedule import is_split
from warpfrag.errors import SlowArithmetic

if TYPE_CHECKING:
    from warpfrag.arithmetic.backends.compiled import Compiled
    from warpfrag.arithmetic.protocol import Kernel, Operands

WORTH_LOADING = 0.05
WORTH_COMPILING = 5.0
"""Seconds spent in the portable backend."""
SECONDS_PER_INSTRUCTION = 2e-4
SECONDS_PER_MULTIPLY_ADD: dict[type[Rule], float] = {Fma64: 1e-5, Fused: 4e-8, Grouped: 5e-9, Rule: 1e-9}
MOST_RULES = 1024


class Kind(NamedTuple):
    """What one set of compiled loops runs: the class of a rule, how it rounds, which way, parts of a tile or whole."""

    rule: type[Rule]
    rounding: str
    way: Way
    split: bool


_spent: dict[Kind, float] = {}
_look_again: dict[Kind, float] = {}
"""Seconds from which it is looked again whether compiled kernels are there."""
_verdicts: dict[Kind, bool] = {}
"""Whether the compiled loops of a kind are used: there once it is known."""


def kind_of(rule: Rule, *, split: bool) -> Kind:
    """The kind of kernel that runs a rule."""
    rounding = rule.rounding if isinstance(rule, Fma64) else rule.sum.rounding if isinstance(rule, Fused) else ""
    return Kind(type(rule), rounding, way_of(rule), split)


def portable_seconds(rule: Rule, operands: Operands) -> float:
    """About what a product takes in the portable backend."""
    price = next(price for kind, price in SECONDS_PER_MULTIPLY_ADD.items() if isinstance(rule, kind))
    tiles, height, width = operands.c.shape
    depth = operands.b.shape[1]
    if isinstance(rule, Fused) and height:  # tiles go together
        tiles = -(-tiles // max(1, most_rows(rule, depth, width) // height))
    instructions: int = tiles * depth // rule.k
    return SECONDS_PER_INSTRUCTION * instructions + price * operands.work


class Choice:
    """The kernels of one rule: which to take for the next product."""

    def __init__(self, rule: Rule) -> None:
        """Start with the portable one."""
        self.rule = rule
        self.portable = Portable().compile(rule)
        self.settled: dict[bool, Kernel] = {}
        """Once it is known for good, by whether tiles are split."""

    def kernel(self, operands: Operands) -> Kernel:
        """The kernel to run a product with; asking counts as running it."""
        split = is_split(operands)
        found = self.settled.get(split)
        if found is not None:
            return found
        kind = kind_of(self.rule, split=split)
        if kind not in _verdicts:
            _spent[kind] = _spent.get(kind, 0.0) + portable_seconds(self.rule, operands)
            if _spent[kind] < _look_again.get(kind, WORTH_LOADING):
                return self.portable
        backend = compiled_backend()
        if backend is None or not backend.holds(self.rule):
            found = self.portable
        else:
            compiled = backend.compile(self.rule)
            if kind not in _verdicts:
                if not backend.is_cached(compiled, split=split):
                    if _spent[kind] < WORTH_COMPILING:
                        _look_again[kind] = min(2 * _spent[kind], WORTH_COMPILING)
                        return self.portable
                    _say_compiling()
                _verdicts[kind] = _judge(compiled, self.rule, kind)
            found = compiled if _verdicts[kind] else self.portable
        self.settled[split] = found
        return found


choice_of = lru_cache(MOST_RULES)(Choice)


@lru_cache(1)
def compiled_backend() -> Compiled | None:
    """The compiled backend, or None and a warning where numba does not compile here."""
    try:
        from numba import config

        from warpfrag.arithmetic.backends.compiled import Compiled
    except ImportError as error:
        _warn(f"numba cannot be imported ({error})")
        return None
    if config.DISABLE_JIT:  # type: ignore[attr-defined] # read from the environment
        _warn("NUMBA_DISABLE_JIT is set")
        return None
    return Compiled()


def _judge(kernel: Kernel, rule: Rule, kind: Kind) -> bool:
    """Whether the canary passes."""
    from warpfrag.arithmetic.backends.canary import passes

    if passes(kernel, rule, split=kind.split):
        return True
    _warn(f"compiled {kind.rule.__name__} kernels do not compute what the reference does on this machine")
    return False


def _warn(reason: str) -> None:
    """Say that it will be slow."""
    warnings.warn(f"{reason}: products run without compiled code, and slowly", SlowArithmetic, stacklevel=2)


@lru_cache(1)
def _say_compiling() -> None:
    """Tell a person at a terminal why it takes a while, once."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("warpfrag: compiling kernels; this takes some seconds, once per installation\n")
