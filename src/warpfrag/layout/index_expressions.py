"""Index arithmetic: a layout as the formulas that a programmer would write.

A linear map sends each bit of an index to some bits of the result and combines them by xor. Bits that move together
become one term: a shift, a mask and a factor, omitted if they have no effect. So `lane: c2 c4 r1 r2 r4` becomes `row =
lane >> 2` and `col = (lane & 3) * 2`:

    >>> print(linear({"lane": [2, 4, 0, 0, 0], "i": [1, 0]}))
    (lane & 3) * 2 + (i & 1)

Terms that share no bit of the result are added. Terms that share one, as in a swizzle, are combined by xor:

    >>> print(linear({"lane": [1, 2, 4, 1, 2]}))
    (lane & 7) ^ (lane >> 3)

A formula is a small tree. Its text is valid in C, Python and JavaScript, whose operators have the same precedence.
`emit` translates the tree to PTX, and `evaluate` computes it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from warpfrag.layout.bit_matrix import diagonals
from warpfrag.layout.linear_layout import Layout

# the operators of formulas, in order of decreasing precedence
OPERATORS = {"*": operator.mul, "+": operator.add, ">>": operator.rshift, "&": operator.and_, "^": operator.xor}


class IndexVariable(NamedTuple):
    """An index, such as `lane`."""

    name: str

    def __str__(self) -> str:
        """Return the name of the variable."""
        return self.name


class IndexConstant(NamedTuple):
    """A number that does not depend on any index."""

    value: int

    def __str__(self) -> str:
        """Return the number in decimal."""
        return str(self.value)


class IndexOperation(NamedTuple):
    """Two formulas combined by one of OPERATORS."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        """Return the formula as C, Python or JavaScript, with the parentheses that it needs."""
        repeats = isinstance(self.right, IndexOperation) and self.right.operator == self.operator == ">>"
        right = f"({self.right})" if repeats else self._inside(self.right)
        return f"{self._inside(self.left)} {self.operator} {right}"

    def _inside(self, part: Expression) -> str:
        if not isinstance(part, IndexOperation) or part.operator == self.operator:
            return str(part)
        rank = list(OPERATORS).index
        # the precedence of xor surprises readers, and compilers warn about it
        looser = rank(part.operator) > rank(self.operator) or self.operator == "^"
        return f"({part})" if looser else str(part)


Expression = IndexVariable | IndexConstant | IndexOperation


def evaluate(expression: Expression, indices: Mapping[str, int]) -> int:
    """Return the value of a formula for these indices."""
    if isinstance(expression, IndexVariable):
        return indices[expression.name]
    if isinstance(expression, IndexConstant):
        return expression.value
    value: int = OPERATORS[expression.operator](evaluate(expression.left, indices), evaluate(expression.right, indices))
    return value


class BitRun(NamedTuple):
    """Bits `low` to `low + length - 1` of an index, which become the bits of the result that start at `place`."""

    source: str
    low: int
    length: int
    place: int

    @property
    def bits(self) -> int:
        """The mask of the bits in the result that this run may set."""
        return (1 << self.length) - 1 << self.place


def linear(images: Mapping[str, Sequence[int]], start: int = 0) -> Expression:
    """Return the formula of a linear map: the xor of `images[index][b]` over all set bits b of each index.

    `start` is the result if all indices are 0.
    """
    runs = [run for source, steps in images.items() for run in _runs(source, steps)]
    runs.sort(key=lambda run: (-run.place, run.low))
    terms = [run_term(run, len(images[run.source])) for run in runs] + ([IndexConstant(start)] if start else [])
    bits = [run.bits for run in runs] + [start]
    word = "+" if sum(bits) == reduce(operator.or_, bits) else "^"
    return reduce(lambda left, right: IndexOperation(word, left, right), terms) if terms else IndexConstant(0)


def _runs(source: str, steps: Sequence[int]) -> Iterable[BitRun]:
    """Yield the runs of adjacent bits in one index that are shifted by the same distance."""
    pairs = ((low, bit) for low, step in enumerate(steps) for bit in range(step.bit_length()) if step >> bit & 1)
    return (BitRun(source, low, length, place) for low, place, length in diagonals(pairs))


def run_term(run: BitRun, width: int) -> Expression:
    """Return the term for one run of bits: extract them from the index and shift them into position."""
    mask = (1 << run.length) - 1
    term: Expression = IndexVariable(run.source)
    if run.length < width and run.low == run.place:
        return IndexOperation("&", term, IndexConstant(mask << run.low))  # the bits are already in position
    if run.low:
        term = IndexOperation(">>", term, IndexConstant(run.low))
    if run.low + run.length < width:
        term = IndexOperation("&", term, IndexConstant(mask))
    return IndexOperation("*", term, IndexConstant(1 << run.place)) if run.place else term


def element_expressions(layout: Layout) -> dict[str, Expression]:
    """Return each coordinate as a formula of the thread and the PTX element number `i`."""
    moved = {
        name: [layout.at(**{**dict.fromkeys(layout.ins, 0), name: 1 << bit}) for bit in range((size - 1).bit_length())]
        for name, size in layout.ins.items()
    }
    element = moved.pop("slot", []) + moved.pop("reg", [])
    if element:
        moved["i"] = element
    return {
        dim: linear({name: [getattr(at, dim) ^ start for at in images] for name, images in moved.items()}, start)
        for dim, start in layout.start._asdict().items()
    }


def place_expressions(layout: Layout) -> dict[str, Expression]:
    """Return formulas for the thread, reg and slot of an element's first holder, in terms of its coordinates."""
    origin = dict.fromkeys(layout.dims, 0)
    holders = {
        dim: [layout.where(**{**origin, dim: 1 << bit})[0] for bit in range((extent - 1).bit_length())]
        for dim, extent in layout.outs.items()
    }
    return {
        name: linear(
            {dim: [getattr(place, name) ^ start for place in places] for dim, places in holders.items()}, start
        )
        for name, start in layout.where(**origin)[0]._asdict().items()
    }


def element_formulas(layout: Layout) -> dict[str, str]:
    """Return the formulas of `element_expressions` as text."""
    return {name: str(expression) for name, expression in element_expressions(layout).items()}


def place_formulas(layout: Layout) -> dict[str, str]:
    """Return the formulas of `place_expressions` as text."""
    return {name: str(expression) for name, expression in place_expressions(layout).items()}
