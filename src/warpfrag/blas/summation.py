"""A product as chains of instructions whose sums are added in an order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.blas.gemm_backend import Cpu, Machine
from warpfrag.blas.order import Chain, Order
from warpfrag.errors import InvalidOperand
from warpfrag.formats.codes import code_dtype
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.patterns import Pattern
from warpfrag.tensorcore.backend_protocol import Codes, ProductOperands
from warpfrag.tensorcore.reference import NAN_F16, NAN_F32
from warpfrag.tensorcore.rules import Fused, IntegerSum, Rule
from warpfrag.tensorcore.sparsity import compress_to_columns

Sums: TypeAlias = NDArray[Any]
CPU = Cpu()
SUMS = {"f16": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int64}
"""The dtype in which partial sums are added."""


@dataclass(frozen=True)
class Multiplicands:
    """Codes of A [T, M, K] and B [T, K, N], K of any length, and what else a rule takes.

    Scale factors are [T, M, s] and [T, s, N], as many as whole instructions have; `pattern` is that of a sparse A.
    """

    a: Codes
    b: Codes
    pattern: Pattern | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    @property
    def depth(self) -> int:
        """The extent of k."""
        return int(self.b.shape[1])

    def only(self, rows: list[int], columns: list[int]) -> Multiplicands:
        """Return the operands of these rows and columns of D."""
        return replace(
            self,
            a=self.a[:, rows],
            b=np.ascontiguousarray(self.b[:, :, columns]),
            scale_a=None if self.scale_a is None else self.scale_a[:, rows],
            scale_b=None if self.scale_b is None else self.scale_b[:, :, columns],
        )


def multiply(rule: Rule, operands: Multiplicands, c: Codes | None, order: Order, machine: Machine = CPU) -> Codes:
    """D's codes [T, M, N]; C=None is zero, and is then not added."""
    if rule.is_sparse or rule.scales:
        _check_whole(order, rule.k)
    parts = order.chains(operands.depth, rule.k, FORMATS[rule.a].bits)
    if order.carries_c:
        return sum_chain(rule, operands, parts[0][0], c, machine)
    start = read_sums(rule, c) if order.in_place and c is not None else None
    sums = (
        add_up(rule, [read_sums(rule, sum_chain(rule, operands, chain, None, machine)) for chain in part])
        for part in parts
    )
    total = add_parts(rule, order, sums, start)
    if c is not None and not order.in_place:
        total = add(rule, total, read_sums(rule, c))
    return write_sums(rule, total)


def _check_whole(order: Order, k: int) -> None:
    """Refuse orders that cut what shares metadata or a scale factor: no kernel does."""
    if order.residue or order.step:
        raise InvalidOperand("residue and step are for dense products without scale factors: no other kernel has them")
    if order.unit and order.unit % k:
        raise InvalidOperand(
            f"unit is a multiple of the instruction's k, {k}, for a sparse A or scale factors; got {order.unit}"
        )


def sum_chain(rule: Rule, operands: Multiplicands, chain: Chain, c: Codes | None, machine: Machine = CPU) -> Codes:
    """Return the codes of one chain of instructions that starts from C."""
    a = _gather(operands.a, chain, rule.k, axis=2)
    b = _gather(operands.b, chain, rule.k, axis=1)
    if c is None:
        c = _zeros(a, (a.shape[0], a.shape[1], b.shape[2]), rule.c)
    columns = scale_a = scale_b = None
    if operands.pattern is not None:
        host = a if isinstance(a, np.ndarray) else a.get()
        a, columns = (np.asarray(part, like=a) for part in compress_to_columns(operands.pattern, host))
    if operands.scale_a is not None and operands.scale_b is not None:
        first, last = chain[0].first // rule.k, -(-max(chain[-1].last, 1) // rule.k)
        blocks = slice(first * rule.scales, last * rule.scales)
        scale_a, scale_b = operands.scale_a[:, :, blocks], operands.scale_b[:, blocks]
    return machine.matmul(rule, ProductOperands(a, b, c, columns, scale_a, scale_b))


def sum_chains(rule: Rule, operands: Multiplicands, chains: list[Chain], machine: Machine = CPU) -> Codes:
    """Return the codes of several chains that start from zero: [chains, T, M, N].

    They run at once if they have as many instructions, and where `may_be_filled_up`, shorter ones with zeros.
    """
    if rule.scales or operands.pattern is not None or len(chains) == 1:
        return np.stack([sum_chain(rule, operands, chain, None, machine) for chain in chains])
    length = max(instructions(chain, rule.k) for chain in chains) * rule.k
    which = np.full((len(chains), length), operands.depth)  # a zero follows the last
    for place, chain in enumerate(chains):
        taken, (filled, _) = _places(chain, rule.k)
        which[place, filled] = taken
    which = np.asarray(which, like=operands.a)
    tiles, height, _ = operands.a.shape
    width = operands.b.shape[2]
    zeros = [((0, 0), (0, 0), (0, 1)), ((0, 0), (0, 1), (0, 0))]
    a = np.pad(operands.a, zeros[0]).take(which, axis=2).transpose(2, 0, 1, 3).reshape(-1, height, length)
    b = np.pad(operands.b, zeros[1]).take(which, axis=1).swapaxes(0, 1).reshape(-1, length, width)
    c = _zeros(a, (len(chains) * tiles, height, width), rule.c)
    return machine.matmul(rule, ProductOperands(a, b, c)).reshape(len(chains), tiles, height, width)


def may_be_filled_up(rule: Rule) -> bool:
    """Return True if trailing instructions of zeros change nothing: they do if a sum can be -0."""
    return isinstance(rule, Fused) and not rule.scales and not rule.is_sparse


def instructions(chain: Chain, k: int) -> int:
    """Return the number of instructions of a chain; an empty one has one, of zeros."""
    return sum(max(1, -(-(last - first) // k)) for first, last in chain)


def _zeros(like: Codes, shape: tuple[int, ...], name: str) -> Codes:
    """Zeros of a format, in the memory that another array is in."""
    return np.zeros(shape, code_dtype(FORMATS[name]), like=like)


def _gather(codes: Codes, chain: Chain, k: int, axis: int) -> Codes:
    """The spans of a chain, each filled up with zeros to whole instructions; an empty K is one of zeros."""
    first, last = chain[0]
    if len(chain) == 1 and last > first and (last - first) % k == 0:
        return codes[(slice(None),) * axis + (slice(first, last),)]
    taken, filled = _places(chain, k)
    shape = (*codes.shape[:axis], filled[1], *codes.shape[axis + 1 :])
    gathered = np.zeros(shape, codes.dtype, like=codes)
    taken, into = (np.asarray(index, like=codes) for index in (taken, filled[0]))
    gathered[(slice(None),) * axis + (into,)] = codes.take(taken, axis)
    return gathered


@lru_cache(256)
def _places(chain: Chain, k: int) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], int]]:
    """Return the k of a chain, their positions in whole instructions, and the number of positions."""
    firsts, lasts = np.array(chain, np.int64).T
    lengths = lasts - firsts
    padded = np.maximum(1, -(-lengths // k)) * k
    starts = np.cumsum(padded) - padded
    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return inside + np.repeat(firsts, lengths), (inside + np.repeat(starts, lengths), int(padded.sum()))


def read_sums(rule: Rule, codes: Codes) -> Sums:
    """Accumulators as numbers that can be added."""
    if rule.d == "s32":
        return codes.astype(np.uint32).view(np.int32).astype(np.int64)
    narrow = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[rule.d]
    return codes.astype(code_dtype(FORMATS[rule.d]), copy=False).view(narrow).astype(SUMS[rule.d])


def _plus(total: Sums, part: Sums) -> Sums:
    if isinstance(total, np.ndarray) or total.dtype != np.float32:
        return total + part
    from warpfrag.tensorcore.backends.device_kernel import add_floats

    result: Sums = add_floats(total, part)
    return result


@exact_floats
def add(rule: Rule, total: Sums | None, part: Sums) -> Sums:
    """total + part, to nearest; integers wrap or are clamped as the rule has it."""
    if total is None:
        return part
    with np.errstate(all="ignore"):
        sums: Sums = _plus(total, part)
    if rule.d != "s32":
        return sums
    if isinstance(rule, IntegerSum) and rule.clamps:
        return np.clip(sums, -(1 << 31), (1 << 31) - 1)
    return (sums + (1 << 31)) % (1 << 32) - (1 << 31)


def add_parts(rule: Rule, order: Order, parts: Iterable[Sums], start: Sums | None = None) -> Sums:
    """The sum of the parts of K: ascending, from `start` on if there is one; those of segment-K as a tree."""
    if order.segment_k:
        tree = _tree(rule, list(parts))
        return tree if start is None else add(rule, start, tree)
    ascending = iter(parts)
    total = add(rule, start, next(ascending))
    for part in ascending:
        total = add(rule, total, part)
    return total


def _tree(rule: Rule, parts: list[Sums]) -> Sums:
    """The sum of the first half of the parts, plus that of the second."""
    middle = len(parts) // 2
    return add(rule, _tree(rule, parts[:middle]), _tree(rule, parts[middle:])) if middle else parts[0]


def add_up(rule: Rule, sums: list[Sums]) -> Sums:
    """The sum of several, ascending."""
    total = sums[0]
    for part in sums[1:]:
        total = add(rule, total, part)
    return total


@exact_floats
def write_sums(rule: Rule, sums: Sums | None) -> Codes:
    """Accumulators as codes; every NaN is the one that an addition gives."""
    if sums is None:
        raise TypeError("a product has at least one part")
    if rule.d == "s32":
        return sums.astype(np.int32).view(np.uint32)
    with np.errstate(all="ignore"):
        if rule.d == "f16":
            return np.where(np.isnan(sums), np.uint16(NAN_F16), sums.astype(np.float16).view(np.uint16))
    if rule.d == "f32":
        return np.where(np.isnan(sums), np.uint32(NAN_F32), sums.view(np.uint32))
    return sums.view(np.uint64)
