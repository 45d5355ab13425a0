"""A product as chains of instructions whose sums are added in an order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import matmul
from warpfrag.arithmetic.reference import NAN_F16, NAN_F32
from warpfrag.arithmetic.rules import Integer
from warpfrag.codes import code_dtype
from warpfrag.environment import exact_floats
from warpfrag.errors import InvalidOperand
from warpfrag.formats import FORMATS
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.arithmetic.rules import Rule
    from warpfrag.isa.patterns import Pattern
    from warpfrag.order import Chain, Order

    Codes = NDArray[Any]
    Sums = NDArray[Any]

SUMS = {"f16": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int64}
"""What partial sums of an accumulator are added in."""


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
        """K."""
        return int(self.b.shape[1])

    def with_rows(self, rows: list[int]) -> Multiplicands:
        """Only these rows of A."""
        scale_a = None if self.scale_a is None else self.scale_a[:, rows]
        return replace(self, a=self.a[:, rows], scale_a=scale_a)


def multiply(
    rule: Rule, operands: Multiplicands, c: Codes | None, order: Order, *, threads: int | None = None
) -> Codes:
    """D's codes [T, M, N]; C=None is zero, and is then not added."""
    if order.residue and (rule.is_sparse or rule.scales):
        msg = "residue is for dense products without scale factors: no other kernel has it"
        raise InvalidOperand(msg)
    parts = order.chains(operands.depth, rule.k, FORMATS[rule.a].bits)
    if order.carries_c:
        return sum_chain(rule, operands, parts[0][0], c, threads=threads)
    total: Sums | None = None
    for part in parts:
        sums = [read_sums(rule, sum_chain(rule, operands, chain, None, threads=threads)) for chain in part]
        total = add(rule, total, add_up(rule, sums))
    if c is not None:
        total = add(rule, total, read_sums(rule, c))
    return write_sums(rule, total)


def sum_chain(
    rule: Rule, operands: Multiplicands, chain: Chain, c: Codes | None, *, threads: int | None = None
) -> Codes:
    """What one chain of instructions gives, from C on."""
    a = _gather(operands.a, chain, rule.k, axis=2)
    b = _gather(operands.b, chain, rule.k, axis=1)
    if c is None:
        c = np.zeros((a.shape[0], a.shape[1], b.shape[2]), code_dtype(FORMATS[rule.c]))
    extra: dict[str, Any] = {}
    if operands.pattern is not None:
        a, fields = compress(operands.pattern, a)
        extra["columns"] = logical_columns(operands.pattern, fields, ordered=True)
    if operands.scale_a is not None and operands.scale_b is not None:
        first, last = chain[0].first // rule.k, -(-max(chain[-1].last, 1) // rule.k)
        blocks = slice(first * rule.scales, last * rule.scales)
        extra |= {"scale_a": operands.scale_a[:, :, blocks], "scale_b": operands.scale_b[:, blocks]}
    return matmul(rule, a, b, c, threads=threads, **extra)


def _gather(codes: Codes, chain: Chain, k: int, axis: int) -> Codes:
    """The spans of a chain, each filled up with zeros to whole instructions; an empty K is one of zeros."""
    pieces = []
    for first, last in chain:
        piece = codes[(slice(None),) * axis + (slice(first, last),)]
        missing = max(1, -(-(last - first) // k)) * k - (last - first)
        if missing:
            padding = [(0, 0)] * codes.ndim
            padding[axis] = (0, missing)
            piece = np.pad(piece, padding)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis)


def read_sums(rule: Rule, codes: Codes) -> Sums:
    """Accumulators as numbers that can be added."""
    if rule.d == "s32":
        return codes.astype(np.uint32).view(np.int32).astype(np.int64)
    narrow = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[rule.d]
    return codes.astype(code_dtype(FORMATS[rule.d]), copy=False).view(narrow).astype(SUMS[rule.d])


@exact_floats
def add(rule: Rule, total: Sums | None, part: Sums) -> Sums:
    """total + part, to nearest; integers wrap or are clamped as the rule has it."""
    if total is None:
        return part
    with np.errstate(all="ignore"):
        found: Sums = total + part
    if rule.d != "s32":
        return found
    if isinstance(rule, Integer) and rule.clamps:
        return np.clip(found, -(1 << 31), (1 << 31) - 1)
    return (found + (1 << 31)) % (1 << 32) - (1 << 31)


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
        msg = "a product has at least one part"
        raise TypeError(msg)
    if rule.d == "s32":
        return sums.astype(np.int32).view(np.uint32)
    with np.errstate(all="ignore"):
        if rule.d == "f16":
            return np.where(np.isnan(sums), np.uint16(NAN_F16), sums.astype(np.float16).view(np.uint16))
    if rule.d == "f32":
        return np.where(np.isnan(sums), np.uint32(NAN_F32), sums.view(np.uint32))
    return sums.view(np.uint64)
