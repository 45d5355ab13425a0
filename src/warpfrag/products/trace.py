"""How one output of a whole product came about: the accumulator after every instruction, and every sum of parts.

A product is long, so a step is one instruction here, not one term of it; `arithmetic.tracing` has the terms. The steps
of two orders can be put side by side: as long as they add the same k in the same chains, they have the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.core.coordinates import check_index
from warpfrag.errors import InvalidOperand
from warpfrag.numerics.codes import code_dtype
from warpfrag.numerics.epilogue import Epilogue, convert, finish
from warpfrag.numerics.formats import FORMATS
from warpfrag.products.gemm import ASCENDING, prepare
from warpfrag.products.order import KSpan
from warpfrag.products.summation import add, read_sums, sum_chain, write_sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike

    from warpfrag.arithmetic.rules import Rule
    from warpfrag.isa.words import HasForm
    from warpfrag.numerics.formats import Rounding
    from warpfrag.products.order import Order
    from warpfrag.products.summation import Codes, Multiplicands, Sums


@dataclass(frozen=True)
class ProductStep:
    """One step of one output: what was done to which k, and the code that came out."""

    what: str
    """multiply: an instruction; add: a chain or part added to the sum so far; bias; round: to the format of D."""
    part: int
    first: int
    last: int
    format: str
    code: int

    @property
    def value(self) -> float:
        """The number that the code stands for."""
        return float(FORMATS[self.format].decode(self.code))

    @property
    def text(self) -> str:
        """What the step does, in words."""
        span = f"k {self.first}..{self.last - 1}"
        return {
            "multiply": f"part {self.part}: {span}",
            "add": f"part {self.part} added: {span}",
            "bias": "bias added",
            "round": f"rounded to {self.format}",
        }[self.what]


def trace_output(
    A: ArrayLike,
    B: ArrayLike,
    row: int,
    col: int,
    *,
    instruction: str | HasForm,
    arch: str = "sm_90",
    order: Order = ASCENDING,
    epilogue: Epilogue | None = None,
    rounding: Rounding = None,
) -> list[ProductStep]:
    """Every step of D[row, col] of a product of two matrices, as `gemm` computes it."""
    taken = prepare(A, B, instruction=instruction, arch=arch, rounding=rounding)
    if len(taken.shape) != 2 or taken.operands.pattern is not None or taken.rule.scales:
        msg = "a trace is of one product of two matrices, dense and without scale factors"
        raise InvalidOperand(msg)
    check_index("row", row, taken.shape[0])
    check_index("col", col, taken.shape[1])
    steps = list(_sums(taken.rule, taken.operands.only([row], [col]), order))
    if epilogue is None:
        return steps
    last = steps[-1]
    bias = epilogue.bias
    if bias is not None:
        epilogue = replace(epilogue, bias=np.asarray(bias)[[col]])
        sums = finish(epilogue, read_sums(taken.rule, _as_codes(taken.rule, last.code)), None)
        last = replace(last, what="bias", code=_code(taken.rule, sums))
        steps.append(last)
    code = int(convert("f32", _as_codes(taken.rule, last.code), epilogue.result).reshape(()))
    return [*steps, replace(last, what="round", format=epilogue.result, code=code)]


def _sums(rule: Rule, operands: Multiplicands, order: Order) -> Iterator[ProductStep]:
    """The steps of all chains of one output."""
    total: Sums | None = None
    parts = order.chains(operands.depth, rule.k, FORMATS[rule.a].bits)
    many = len(parts) > 1 or len(parts[0]) > 1
    for number, part in enumerate(parts, start=1):
        subtotal: Sums | None = None
        for chain in part:
            c: Codes | None = None
            for span in chain:
                for first in range(span.first, max(span.last, span.first + 1), rule.k):
                    short = KSpan(first, min(first + rule.k, span.last))
                    c = sum_chain(rule, operands, (short,), c)
                    yield ProductStep("multiply", number, *short, rule.d, int(c.reshape(())))
            if c is not None:
                subtotal = add(rule, subtotal, read_sums(rule, c))
                if len(part) > 1:
                    yield _added(rule, number, KSpan(chain[0].first, chain[-1].last), subtotal)
        if subtotal is not None:
            total = add(rule, total, subtotal)
        if many and len(parts) > 1 and total is not None:
            yield _added(rule, number, KSpan(part[0][0].first, part[-1][-1].last), total)


def _added(rule: Rule, part: int, span: KSpan, sums: Sums) -> ProductStep:
    return ProductStep("add", part, *span, rule.d, _code(rule, sums))


def _code(rule: Rule, sums: Sums) -> int:
    return int(write_sums(rule, sums).reshape(()))


def _as_codes(rule: Rule, code: int) -> Codes:
    """One accumulator as an array of codes."""
    return np.full((1, 1, 1), code, code_dtype(FORMATS[rule.d]))
