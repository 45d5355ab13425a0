"""Compute a gemm as chains of instructions whose sums are added in a given order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.gemm_backend import Cpu, Machine
from warpfrag.blas.order import Chain, Order
from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.reference import NAN_F16, NAN_F32
from warpfrag.tensorcore.rules import Fused, IntegerSum, Rule
from warpfrag.tensorcore.sparsity import compress_to_columns

Sums: TypeAlias = NDArray[Any]
CPU = Cpu()
DTYPES: dict[str, tuple[type, type]] = {
    "f16": (np.float16, np.float32),
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
    "s32": (np.int32, np.int64),
}
"""For each accumulator format, its dtype, and the dtype in which partial sums are added."""


class PartialSums:
    """The arithmetic of partial sums: decoded from codes, added with rounding to nearest, encoded as codes."""

    def __init__(self, rule: Rule) -> None:
        """Look up the dtypes for a rule's accumulator."""
        self.format, self.codes = rule.d, code_dtype(FORMATS[rule.d])
        self.dtype, self.wide = DTYPES[rule.d]
        self.clamps = isinstance(rule, IntegerSum) and rule.clamps

    def read(self, codes: Codes) -> Sums:
        """Decode accumulators to numbers that can be added."""
        return codes.astype(self.codes, copy=False).view(self.dtype).astype(self.wide)

    @exact_floats
    def add(self, total: Sums | None, part: Sums) -> Sums:
        """Return total + part, rounded to nearest; integers wrap or are clamped according to the rule."""
        if total is None:
            return part
        with np.errstate(all="ignore"):
            sums: Sums = _plus(total, part)
        if self.format != "s32":
            return sums
        if self.clamps:
            return np.clip(sums, -(1 << 31), (1 << 31) - 1)
        return (sums + (1 << 31)) % (1 << 32) - (1 << 31)

    def add_all(self, parts: Iterable[Sums], start: Sums | None = None) -> Sums:
        """Return the sum of several arrays, added one after the other, beginning with `start` if given."""
        ascending = iter(parts)
        total = self.add(start, next(ascending))
        for part in ascending:
            total = self.add(total, part)
        return total

    def add_parts(self, order: Order, parts: Iterable[Sums], start: Sums | None = None) -> Sums:
        """Return the sum of the parts of K; segment-K adds its parts as a tree."""
        return self.add_all([self._tree(list(parts))] if order.segment_k else parts, start)

    def _tree(self, parts: list[Sums]) -> Sums:
        """Return the sum of the left parts plus the sum of the right ones."""
        if len(parts) == 1:
            return parts[0]
        first = left_parts(len(parts))
        return self.add(self._tree(parts[:first]), self._tree(parts[first:]))

    @exact_floats
    def write(self, sums: Sums) -> Codes:
        """Encode accumulators as codes; every NaN becomes the NaN that an addition returns."""
        with np.errstate(all="ignore"):
            codes: Codes = sums.astype(self.dtype, copy=False).view(self.codes)
        nan = {"f16": NAN_F16, "f32": NAN_F32}.get(self.format)
        return codes if nan is None else np.where(np.isnan(sums), self.codes.type(nan), codes)


def left_parts(count: int) -> int:
    """Return the number of left parts in a tree; that of right parts is the largest power of two below `count`."""
    return count - (1 << (count - 1).bit_length() - 1)


def _plus(total: Sums, part: Sums) -> Sums:
    if isinstance(total, np.ndarray) or total.dtype != np.float32:
        return total + part
    from warpfrag.tensorcore.backends.device_kernel import add_floats

    return add_floats(total, part)


@dataclass(frozen=True)
class Multiplicands:
    """The codes of A [T, M, K] and B [T, K, N], the rule that multiplies them, and the device that runs it.

    Scale factors are [T, M, s] and [T, s, N], padded to whole instructions; `pattern` is the sparsity pattern of A.
    """

    rule: Rule
    a: Codes
    b: Codes
    pattern: Pattern | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None
    machine: Machine = CPU

    @property
    def depth(self) -> int:
        """The extent of the operands along k."""
        return int(self.b.shape[1])

    @cached_property
    def sums(self) -> PartialSums:
        """The arithmetic of partial sums."""
        return PartialSums(self.rule)

    def chains(self, order: Order) -> list[list[Chain]]:
        """Return the parts of K in an order, each as a list of chains."""
        return order.chains(self.depth, self.rule.k, FORMATS[self.rule.a].bits)

    def only(self, rows: list[int] | slice, columns: list[int] | slice, depth: int | None = None) -> Multiplicands:
        """Return the operands for these rows and columns of D, limited to the first `depth` of k."""
        count = None if depth is None else -(-depth // self.rule.k) * self.rule.scales
        return replace(
            self,
            a=self.a[:, rows, :depth],
            b=np.ascontiguousarray(self.b[:, :depth, columns]),
            scale_a=None if self.scale_a is None else self.scale_a[:, rows, :count],
            scale_b=None if self.scale_b is None else self.scale_b[:, :count, columns],
        )

    def multiply(self, c: Codes | None, order: Order) -> Codes:
        """Return D's codes [T, M, N]; with C=None, the sums start from zero and no C is added."""
        if self.rule.is_sparse or self.rule.scales:
            _check_whole(order, self.rule.k)
        parts, sums = self.chains(order), self.sums
        if order.carries_c:
            return self.sum_chain(parts[0][0], c)
        added = None if c is None else sums.read(c)
        total = sums.add_parts(
            order,
            (sums.add_all(sums.read(self.sum_chain(chain, None)) for chain in part) for part in parts),
            added if order.in_place else None,
        )
        return sums.write(total if added is None or order.in_place else sums.add(total, added))

    def sum_chain(self, chain: Chain, c: Codes | None) -> Codes:
        """Return the codes that a chain of instructions computes, starting from C."""
        rule = self.rule
        a, b = _gather(self.a, chain, rule.k, axis=2), _gather(self.b, chain, rule.k, axis=1)
        if c is None:
            c = self._zeros((a.shape[0], a.shape[1], b.shape[2]))
        columns = scale_a = scale_b = None
        if self.pattern is not None:
            host = a if isinstance(a, np.ndarray) else a.get()
            a, columns = (np.asarray(part, like=a) for part in compress_to_columns(self.pattern, host))
        if self.scale_a is not None and self.scale_b is not None:
            first, last = chain[0][0] // rule.k, -(-max(chain[-1][1], 1) // rule.k)
            blocks = slice(first * rule.scales, last * rule.scales)
            scale_a, scale_b = self.scale_a[:, :, blocks], self.scale_b[:, blocks]
        return self.machine.matmul(rule, ProductOperands(a, b, c, columns, scale_a, scale_b))

    def sum_chains(self, chains: list[Chain]) -> Codes:
        """Return the codes of several chains that start from zero, as [chains, T, M, N].

        The chains run together, padded with zeros to the longest. Callers group chains of equal length, unless
        `may_be_filled_up` says that the padding has no effect.
        """
        if self.rule.scales or self.pattern is not None or len(chains) == 1:
            return np.stack([self.sum_chain(chain, None) for chain in chains])
        k = self.rule.k
        length = max(instructions(chain, k) for chain in chains) * k
        which = np.full((len(chains), length), self.depth)  # index `depth` refers to the zero after the last element
        for place, chain in enumerate(chains):
            taken, (filled, _) = _places(chain, k)
            which[place, filled] = taken
        which = np.asarray(which, like=self.a)
        tiles, height, _ = self.a.shape
        width = self.b.shape[2]
        zeros = [((0, 0), (0, 0), (0, 1)), ((0, 0), (0, 1), (0, 0))]
        a = np.pad(self.a, zeros[0]).take(which, axis=2).transpose(2, 0, 1, 3).reshape(-1, height, length)
        b = np.pad(self.b, zeros[1]).take(which, axis=1).swapaxes(0, 1).reshape(-1, length, width)
        operands = ProductOperands(a, b, self._zeros((len(chains) * tiles, height, width)))
        return self.machine.matmul(self.rule, operands).reshape(len(chains), tiles, height, width)

    def _zeros(self, shape: tuple[int, ...]) -> Codes:
        """Return a C of zeros, in the same memory (host or GPU) as A."""
        return np.zeros(shape, code_dtype(FORMATS[self.rule.c]), like=self.a)


def _check_whole(order: Order, k: int) -> None:
    """Raise InvalidOperand for orders that would split elements with shared metadata or scale factors."""
    if order.residue or order.step:
        raise InvalidOperand("residue and step apply only to dense gemms without scale factors")
    if order.unit and order.unit % k:
        raise InvalidOperand(
            f"unit: expected a multiple of the instruction's k, {k}, for a sparse A or scale factors; got {order.unit}"
        )


def may_be_filled_up(rule: Rule) -> bool:
    """Return True if instructions that add only zeros have no effect; with other rules, they turn -0 into +0."""
    return isinstance(rule, Fused) and not rule.scales and not rule.is_sparse


def instructions(chain: Chain, k: int) -> int:
    """Return the number of instructions in a chain; an empty chain needs one, which adds zeros."""
    return sum(max(1, -(-(last - first) // k)) for first, last in chain)


def _gather(codes: Codes, chain: Chain, k: int, axis: int) -> Codes:
    """Return the codes in a chain's ranges, padded with zeros to a whole number of instructions, at least one."""
    first, last = chain[0]
    if len(chain) == 1 and last > first and (last - first) % k == 0:
        return codes[(slice(None),) * axis + (slice(first, last),)]
    taken, filled = _places(chain, k)
    gathered = np.zeros((*codes.shape[:axis], filled[1], *codes.shape[axis + 1 :]), codes.dtype, like=codes)
    taken, into = (np.asarray(index, like=codes) for index in (taken, filled[0]))
    gathered[(slice(None),) * axis + (into,)] = codes.take(taken, axis)
    return gathered


@lru_cache(256)
def _places(chain: Chain, k: int) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], int]]:
    """Return the k indices of a chain, their positions in the instructions, and the number of positions."""
    firsts, lasts = np.array(chain, np.int64).T
    lengths = lasts - firsts
    padded = np.maximum(1, -(-lengths // k)) * k
    starts = np.cumsum(padded) - padded
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return inside + np.repeat(firsts, lengths), (inside + np.repeat(starts, lengths), int(padded.sum()))
