"""The order in which a kernel adds along k.

A tensor core adds the products of one instruction at a time. The kernel determines how these partial sums are combined,
and the last bits of the result depend on that. A few numbers describe the kernels of cuBLAS and CUTLASS:

    Order()                        one chain, k ascending, starting from C
    Order(split_k=3, unit=64)      K split into 3 parts of whole units; a chain for each part, then the parts added
    Order(promote=128)             a new chain every 128 k, each added to a separate accumulator
    Order(residue=32)              the first K % 32 terms, padded with zeros, are a tile; then whole tiles of 32
    Order(step=8)                  an instruction adds 8 k at a time, as if its own k were 8
    Order(segment_k=3, unit=32)    K split into 3 parts that differ by at most a unit, added as a tree: 0 + (1 + 2)
    Order(split_k=3, in_place=True)    the parts are added to D one by one: C and a bias come first, not last

Parts and promoted chains start from zero and are added in float32, to nearest, ascending; C is added last, unless the
parts are added in place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from warpfrag.errors import InvalidOperand, check_flag, quote

FIELDS = re.compile(r"[a-z_]{1,20}=\w{1,9}(, ?[a-z_]{1,20}=\w{1,9}){0,9}")
LINE = 1024
"""The usual length of a tile along K in bits: a cache line, that is, 128 bytes of a row of A."""


class KSpan(NamedTuple):
    """A range of K: from `first` up to, but not including, `last`."""

    first: int
    last: int


Chain: TypeAlias = "tuple[KSpan, ...]"
"""The ranges of k in one chain of instructions; a range that ends inside an instruction is padded with zeros."""


def _check_count(name: str, value: object, *, minimum: int, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidOperand(
            f"{name}: expected an integer of at least {minimum}{', or None' if optional else ''}; got {quote(value)}"
        )


def part_length(depth: int, unit: int, parts: int) -> int:
    """Return the length of all parts but the last: the smallest sufficient number of whole units."""
    units = -(-depth // unit)
    return max(1, -(-units // parts)) * unit


def _in_steps(chain: Chain, step: int) -> Chain:
    """Split the ranges of a chain into steps of at most `step` k."""
    starts = ((first, span.last) for span in chain for first in range(span.first, span.last, step))
    return tuple(KSpan(first, min(first + step, last)) for first, last in starts) or chain


@dataclass(frozen=True, repr=False)
class Order:
    """The order of additions along k; every length is counted in k.

    K is split into `split_k` parts of ceil(ceil(K / unit) / split_k) units; a `unit` of None is 128 bytes of A's row.
    `promote` is the length of the chains in a part. `residue` is the tile length of a kernel that begins each part with
    an incomplete tile, the remainder of the part's length. `step` is the number of k that an instruction adds at a
    time, if less than its own k. `segment_k` is like `split_k`, but the lengths of the parts differ by at most a unit,
    the longer parts last, and the parts are added as a binary tree whose right half is a power of two: five parts are
    0 + ((1 + 2) + (3 + 4)). With `in_place`, C or the bias is added to the first part, before the others. `lanes` means
    a kernel without tensor cores: each lane adds `vector` consecutive k in turn, with fused multiply-adds; then the
    lanes' sums are added one by one or, with `in_halves`, repeatedly the second half to the first. With `blocks`,
    blocks of lanes take turns, each element of a vector has its own sum, and the sums of the blocks are added as four
    chains.
    """

    split_k: int = 1
    unit: int | None = None
    promote: int | None = None
    residue: int | None = None
    step: int | None = None
    segment_k: int | None = None
    in_place: bool = False
    lanes: int | None = None
    vector: int | None = None
    in_halves: bool = False
    blocks: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidOperand if a field is invalid."""
        for name in ("split_k", "unit", "promote", "residue", "step", "segment_k", "lanes", "vector", "blocks"):
            _check_count(name, getattr(self, name), minimum=1, optional=name != "split_k")
        if check_flag("in_place", self.in_place) and self.split_k == 1:
            raise InvalidOperand("in_place applies to the parts of split_k, but split_k is 1")
        if self.segment_k and self.split_k > 1:
            raise InvalidOperand(f"expected split_k or segment_k, not both; got {self.split_k} and {self.segment_k}")
        if self.promote and self.residue and self.promote % self.residue:
            raise InvalidOperand(f"promote must be a multiple of residue, {self.residue}; got {self.promote}")

    def __repr__(self) -> str:
        """Show the fields that differ from the default.

        >>> Order(split_k=3, unit=64)
        Order(split_k=3, unit=64)
        """
        named = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return f"Order({', '.join(f'{name}={value}' for name, value, usual in named if value != usual)})"

    @property
    def carries_c(self) -> bool:
        """True if there is only one chain, so that it starts from C."""
        return self.split_k == 1 and self.promote is None and self.segment_k is None and self.lanes is None

    def chains(self, depth: int, k: int, bits: int) -> list[list[Chain]]:
        """Return the parts of K, each a list of chains, for an instruction with this k and elements of `bits` bits.

        >>> Order(split_k=2).chains(100, 16, 16)
        [[(KSpan(first=0, last=64),)], [(KSpan(first=64, last=100),)]]
        """
        for name, number in (("depth", depth), ("k", k), ("bits", bits)):
            _check_count(name, number, minimum=int(name != "depth"), optional=False)
        step = self.step or k
        if k % step:
            raise InvalidOperand(f"step: expected a divisor of the instruction's k, {k}; got {step}")
        for name in ("promote", "residue"):
            length = getattr(self, name)
            if length is not None and length % step:
                whose = "step" if self.step else "the instruction's k"
                raise InvalidOperand(f"{name}: expected a multiple of {whose}, {step}; got {length}")
        unit = self.unit or max(k, LINE // bits)
        length = part_length(depth, unit, self.split_k)
        if self.segment_k:
            length, rest = divmod(-(-depth // unit), self.segment_k)
            whole = self.segment_k - rest  # each of the parts that follow is one unit longer
            cuts = [min((place * length + max(0, place - whole)) * unit, depth) for place in range(self.segment_k + 1)]
            parts = [KSpan(first, last) for first, last in pairwise(cuts) if first < last] or [KSpan(0, depth)]
        else:
            parts = [KSpan(first, min(first + length, depth)) for first in range(0, max(depth, 1), length)]
        chains = [self._chains_of_part(part) for part in parts]
        return chains if step == k else [[_in_steps(chain, step) for chain in part] for part in chains]

    def _chains_of_part(self, part: KSpan) -> list[Chain]:
        rest = (part.last - part.first) % self.residue if self.residue else 0
        start = part.first + rest
        ends = [part.last]
        if self.promote:
            filled = self.residue - rest if self.residue and rest else 0  # the first chain begins with the zero padding
            ends = [*range(part.first + self.promote - filled, part.last, self.promote), part.last]
        chains: list[Chain] = []
        first = part.first
        for last in ends:
            spans = (KSpan(first, start), KSpan(start, last)) if first < start else (KSpan(first, last),)
            chains.append(tuple(span for span in spans if span.first < span.last) or (KSpan(first, last),))
            first = last
        return chains

    def __str__(self) -> str:
        """Return a description of the order."""
        return self.describe()

    def describe(self, depth: int | None = None) -> str:
        """Return a description of the order, with the lengths of its parts if the depth of K is given.

        >>> Order(split_k=3, unit=64).describe(4096)
        'split-K in 3 parts of 1408 (the last of 1280), k ascending in each, added in float32'
        """
        _check_count("depth", depth, minimum=0, optional=True)
        words = []
        if self.split_k > 1:
            words.append(self._describe_parts(depth))
        if self.segment_k:
            units = f" of whole units of {self.unit}" if self.unit else ""
            words.append(f"segment-K in {self.segment_k} parts{units}")
        inside = "k ascending"
        if self.residue:
            inside = f"the first K % {self.residue} alone, then k ascending"
        if self.promote:
            inside += f", promoted to a float32 accumulator every {self.promote} k"
        if self.lanes:
            how = "in halves" if self.in_halves else "one by one"
            lanes = f"{self.blocks} blocks of {self.lanes}" if self.blocks else self.lanes
            inside = f"{lanes} lanes that take {self.vector} k in turn, added {how}"
        if self.step:
            inside += f", {self.step} k at a time"
        words.append(f"{inside} in each" if words else inside)
        added = ", added in float32" if self.split_k > 1 else ", added in float32 as a tree" if self.segment_k else ""
        return ", ".join(words) + added + (", C or a bias first" if self.in_place else "")

    def _describe_parts(self, depth: int | None) -> str:
        if depth is None or self.unit is None:
            units = f" of whole units of {self.unit}" if self.unit else ""
            return f"split-K in {self.split_k} parts{units}"
        length = part_length(depth, self.unit, self.split_k)
        count = max(1, -(-depth // length))
        rest = depth - (count - 1) * length
        return f"split-K in {count} parts of {length}" + (f" (the last of {rest})" if rest < length else "")

    @property
    def seen_in(self) -> str:
        """The kernels in which this order was found, as the end of a sentence, such as "most kernels ... do"."""
        if self.residue:
            return "CUTLASS 2 kernels (cutlass_80_tensorop_...) do" + (
                " (with splitKreduce_kernel)" if self.split_k > 1 and not self.in_place else ""
            )
        if self.promote:
            return "cuBLAS's fp8 kernels without fast accumulation (nvjet_..._algo2_...) do"
        if self.split_k > 1:
            return "nvjet_..._splitK_... with splitKreduce_kernel does"
        return "most kernels of cuBLAS (nvjet_..., cutlass_...) and Triton do"


def check_order(order: object) -> Order:
    """Return an order; raise InvalidOperand for anything else, with the spelling that a text such as "split_k=2" means.

    >>> check_order("split_k=2")
    Traceback (most recent call last):
    warpfrag.errors.InvalidOperand: order: expected a wf.Order, such as wf.Order(split_k=2); got 'split_k=2'
    """
    if isinstance(order, Order):
        return order
    example = order if isinstance(order, str) and FIELDS.fullmatch(order) else "split_k=2"
    raise InvalidOperand(f"order: expected a wf.Order, such as wf.Order({example}); got {quote(order)}")


def additions_of(order: Order, depth: int, k: int, bits: int) -> tuple[object, ...]:
    """Return a key that is equal for orders that perform the same additions if K has this depth.

    It contains the k of every instruction in every chain and part, and how the parts are added.

    >>> additions_of(Order(split_k=8, unit=32), 384, 16, 16) == additions_of(Order(split_k=6, unit=32), 384, 16, 16)
    True
    """
    if order.lanes:
        return (order,)
    parts = order.chains(depth, k, bits)
    if not (order.segment_k or order.in_place):  # the chains of the first part are added like parts
        parts = [*([chain] for chain in parts[0]), *parts[1:]]
    steps = tuple(tuple(_in_steps(chain, order.step or k) for chain in part) for part in parts)
    return steps, bool(order.segment_k) and len(parts) > 2, order.in_place and len(parts) > 1


LANE_FIELDS = {"lanes", "vector", "in_halves", "blocks"}
TENSOR_CORE_FIELDS = [entry.name for entry in fields(Order) if entry.name not in LANE_FIELDS]
"""The fields of `Order` that `wf.gemm` supports."""
