"""The trace of one gemm output: the accumulator after every instruction, and every sum of parts.

A step here is one whole instruction; `tensorcore.tracing` has the terms of one. The steps of two orders can be compared
side by side: while they add the same k in the same chains, they have the same numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from warpfrag.blas.gemm import ASCENDING, PreparedGemm
from warpfrag.blas.order import Chain, KSpan, Order
from warpfrag.blas.summation import Multiplicands, Sums, add, add_up, read_sums, sum_chain, write_sums
from warpfrag.errors import InvalidOperand, check_index
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.epilogue import Epilogue, convert, finish
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import Codes
from warpfrag.tensorcore.rules import Rule


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

    def to_dict(self) -> dict[str, object]:
        """Return the step as JSON types."""
        facts = {"part": self.part, "first": self.first, "last": self.last, "format": self.format, "code": self.code}
        return {"operation": self.what, **facts, "value": self.value, "text": self.text}

    @property
    def text(self) -> str:
        """A description of the step."""
        span = f"k {self.first}..{self.last - 1}"
        return {
            "multiply": f"part {self.part}: {span}",
            "add": f"part {self.part} added: {span}",
            "bias": "bias added",
            "round": f"rounded to {self.format}",
        }[self.what]


def trace_output(
    taken: PreparedGemm, row: int, col: int, *, order: Order = ASCENDING, epilogue: Epilogue | None = None
) -> list[ProductStep]:
    """Return every step of D[row, col] of a gemm of two matrices."""
    if len(taken.shape) != 2 or taken.operands.pattern is not None or taken.rule.scales:
        raise InvalidOperand("a trace is of one product of two matrices, dense and without scale factors")
    check_index("row", row, taken.shape[0])
    check_index("col", col, taken.shape[1])
    bias = None if epilogue is None else epilogue.bias
    start = np.full((1, 1, 1), np.asarray(bias)[col], np.float32) if order.in_place and bias is not None else None
    steps = list(_sums(taken.rule, taken.operands.only([row], [col]), order, start))
    if epilogue is None:
        return steps
    last = steps[-1]
    if bias is not None and start is None:
        epilogue = replace(epilogue, bias=np.asarray(bias)[[col]])
        sums = finish(epilogue, read_sums(taken.rule, _as_codes(taken.rule, last.code)), None)
        last = replace(last, what="bias", code=_code(taken.rule, sums))
        steps.append(last)
    code = int(convert("f32", _as_codes(taken.rule, last.code), epilogue.result).reshape(()))
    return [*steps, replace(last, what="round", format=epilogue.result, code=code)]


def _sums(rule: Rule, operands: Multiplicands, order: Order, start: Sums | None) -> Iterator[ProductStep]:
    """The steps of all parts of one output; parts that are added in place are added to `start`."""
    parts = order.chains(operands.depth, rule.k, FORMATS[rule.a].bits)
    if order.segment_k:
        yield from _tree(rule, operands, parts, 0, len(parts))
        return
    total = start
    if total is not None:
        yield ProductStep("bias", 0, 0, 0, rule.d, _code(rule, total))
    for number, part in enumerate(parts, start=1):
        total = add(rule, total, (yield from _part(rule, operands, number, part)))
        if len(parts) > 1 or start is not None:
            yield _added(rule, number, _span(part), total)


def _tree(
    rule: Rule, operands: Multiplicands, parts: list[list[Chain]], first: int, last: int
) -> Generator[ProductStep, None, Sums]:
    """The steps of some parts that are added as a tree, and their sum."""
    if last - first == 1:
        return (yield from _part(rule, operands, last, parts[first]))
    middle = (first + last) // 2
    left = yield from _tree(rule, operands, parts, first, middle)
    right = yield from _tree(rule, operands, parts, middle, last)
    total = add(rule, left, right)
    yield _added(rule, middle + 1, KSpan(_span(parts[middle]).first, _span(parts[last - 1]).last), total)
    return total


def _part(rule: Rule, operands: Multiplicands, number: int, part: list[Chain]) -> Generator[ProductStep, None, Sums]:
    """The steps of the chains of a part, and its sum."""
    sums: list[Sums] = []
    for chain in part:
        c: Codes | None = None
        for span in chain:
            for first in range(span.first, max(span.last, span.first + 1), rule.k):
                short = KSpan(first, min(first + rule.k, span.last))
                c = sum_chain(rule, operands, (short,), c)
                yield ProductStep("multiply", number, *short, rule.d, int(c.reshape(())))
        if c is not None:
            sums.append(read_sums(rule, c))
        if len(part) > 1:
            yield _added(rule, number, KSpan(chain[0].first, chain[-1].last), add_up(rule, sums))
    return add_up(rule, sums)


def _span(part: list[Chain]) -> KSpan:
    """Return the k that a part adds."""
    return KSpan(part[0][0].first, part[-1][-1].last)


def _added(rule: Rule, part: int, span: KSpan, sums: Sums) -> ProductStep:
    return ProductStep("add", part, *span, rule.d, _code(rule, sums))


def _code(rule: Rule, sums: Sums) -> int:
    return int(write_sums(rule, sums).reshape(()))


def _as_codes(rule: Rule, code: int) -> Codes:
    """One accumulator as an array of codes."""
    return np.full((1, 1, 1), code, code_dtype(FORMATS[rule.d]))
