"""The trace of one gemm output: the accumulator after every instruction, and every sum of parts.

A step in this module is one whole instruction, or one addition of sums. The traces of two orders can be compared side
by side: as long as both orders add the same k in the same chains, their steps have the same numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from warpfrag.blas.gemm import ASCENDING
from warpfrag.blas.order import Chain, KSpan, Order
from warpfrag.blas.prepared_gemm import PreparedGemm
from warpfrag.blas.summation import Multiplicands, Sums, left_parts
from warpfrag.errors import InvalidOperand, check_index
from warpfrag.formats.epilogue import Epilogue, convert, finish
from warpfrag.formats.number_formats import FORMATS
from warpfrag.tensorcore.backend_protocol import Codes


@dataclass(frozen=True)
class ProductStep:
    """One step in the computation of an output: the operation, its range of k, and the resulting code."""

    operation: str
    """The operation: multiply (an instruction), add (of the sum of a chain or part), bias, or round (to D's format)."""
    part: int
    first: int
    last: int
    format: str
    code: int

    @property
    def value(self) -> float:
        """The number that the code represents."""
        return float(FORMATS[self.format].decode(self.code))

    def to_dict(self) -> dict[str, object]:
        """Return the step as JSON-compatible values."""
        facts = {"part": self.part, "first": self.first, "last": self.last, "format": self.format, "code": self.code}
        return {"operation": self.operation, **facts, "value": self.value, "text": self.text}

    @property
    def text(self) -> str:
        """A description of the step."""
        span = f"k {self.first}..{self.last - 1}"
        return {
            "multiply": f"part {self.part}: {span}",
            "add": f"part {self.part} added: {span}",
            "bias": "bias added",
            "round": f"rounded to {self.format}",
        }[self.operation]


def trace_output(
    taken: PreparedGemm, row: int, col: int, *, order: Order = ASCENDING, epilogue: Epilogue | None = None
) -> list[ProductStep]:
    """Return every step in the computation of D[row, col], for a gemm of two matrices."""
    if len(taken.shape) != 2 or taken.operands.pattern is not None or taken.rule.scales:
        raise InvalidOperand("a trace needs one dense gemm of two matrices without scale factors")
    check_index("row", row, taken.shape[0])
    check_index("col", col, taken.shape[1])
    bias = None if epilogue is None else epilogue.bias
    start = np.full((1, 1, 1), np.asarray(bias)[col], np.float32) if order.in_place and bias is not None else None
    traced = _OutputTrace(taken.operands.only([row], [col]))
    steps = list(traced.steps(order, start))
    if epilogue is None:
        return steps
    last = steps[-1]
    if bias is not None and start is None:
        epilogue = replace(epilogue, bias=np.asarray(bias)[[col]])
        sums = finish(epilogue, traced.sums.read(traced.as_codes(last.code)), None)
        last = replace(last, operation="bias", code=traced.code(sums))
        steps.append(last)
    code = int(convert("f32", traced.as_codes(last.code), epilogue.result).reshape(()))
    return [*steps, replace(last, operation="round", format=epilogue.result, code=code)]


class _OutputTrace:
    """The operands of one output, and the steps that compute it."""

    def __init__(self, operands: Multiplicands) -> None:
        self.operands, self.rule, self.sums = operands, operands.rule, operands.sums

    def steps(self, order: Order, start: Sums | None) -> Iterator[ProductStep]:
        """Yield the steps of all parts; with in-place orders, the parts are added to `start`."""
        parts = self.operands.chains(order)
        if order.segment_k:
            yield from self._tree(parts, 0, len(parts))
            return
        total = start
        if total is not None:
            yield ProductStep("bias", 0, 0, 0, self.rule.d, self.code(total))
        for number, part in enumerate(parts, start=1):
            total = self.sums.add(total, (yield from self._part(number, part)))
            if len(parts) > 1 or start is not None:
                yield self._added(number, _span(part), total)

    def _tree(self, parts: list[list[Chain]], first: int, last: int) -> Generator[ProductStep, None, Sums]:
        """Yield the steps that add parts as a tree, and return their sum."""
        if last - first == 1:
            return (yield from self._part(last, parts[first]))
        middle = first + left_parts(last - first)
        left = yield from self._tree(parts, first, middle)
        right = yield from self._tree(parts, middle, last)
        total = self.sums.add(left, right)
        yield self._added(middle + 1, KSpan(_span(parts[middle]).first, _span(parts[last - 1]).last), total)
        return total

    def _part(self, number: int, part: list[Chain]) -> Generator[ProductStep, None, Sums]:
        """Yield the steps of the chains in a part, and return the part's sum."""
        total: Sums | None = None
        for chain in part:
            c: Codes | None = None
            for span in chain:
                for first in range(span.first, max(span.last, span.first + 1), self.rule.k):
                    short = KSpan(first, min(first + self.rule.k, span.last))
                    c = self.operands.sum_chain((short,), c)
                    yield ProductStep("multiply", number, *short, self.rule.d, int(c.reshape(())))
            if c is not None:
                total = self.sums.add(total, self.sums.read(c))
            if len(part) > 1:
                yield self._added(number, KSpan(chain[0].first, chain[-1].last), cast("Sums", total))
        return cast("Sums", total)

    def _added(self, part: int, span: KSpan, sums: Sums) -> ProductStep:
        return ProductStep("add", part, *span, self.rule.d, self.code(sums))

    def code(self, sums: Sums) -> int:
        """Return the code of a sum."""
        return int(self.sums.write(sums).reshape(()))

    def as_codes(self, code: int) -> Codes:
        """Return an accumulator's code as an array."""
        return np.full((1, 1, 1), code, self.sums.codes)


def _span(part: list[Chain]) -> KSpan:
    """Return the range of k that a part covers."""
    return KSpan(part[0][0].first, part[-1][-1].last)
