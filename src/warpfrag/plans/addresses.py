"""The addresses of the lanes of a warp as a formula: a sum over parts of the lane, and then perhaps a swizzle.

Of a warpgroup it is a sum over parts of `thread`, the number of a thread among its 128.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.layout.coordinates import LANES
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT, swizzled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.smem.shared_memory import Memory


class AddressTerm(NamedTuple):
    """A part of an address: so many `bits` of the lane from bit `low` on, times `stride`; there are `threads` of it."""

    low: int
    bits: int
    stride: int
    threads: int = LANES

    @property
    def is_masked(self) -> bool:
        """Whether the lane has more bits above these."""
        return 1 << (self.low + self.bits) < self.threads


class AddressSum(NamedTuple):
    """The address of a lane before its swizzle: a constant and terms of the lane."""

    origin: int
    terms: tuple[AddressTerm, ...]


def address_sum(addresses: Sequence[int | None], memory: Memory) -> AddressSum:
    """The sum that gives the address of each lane, from the start of the memory."""
    # a swizzle undoes itself
    flat = [None if address is None else swizzled(address, memory.swizzle, memory.base_offset) for address in addresses]
    origin = flat[0] or 0
    terms: list[AddressTerm] = []
    for bit in range((len(flat) - 1).bit_length()):
        there = flat[1 << bit]
        stride = 0 if there is None else there - origin  # a lane whose address is not read repeats another's
        if not stride:
            continue
        last = terms[-1] if terms else None
        if last and last.low + last.bits == bit and last.stride << last.bits == stride:
            terms[-1] = last._replace(bits=last.bits + 1)
        else:
            terms.append(AddressTerm(bit, 1, stride, len(flat)))
    return AddressSum(origin, tuple(terms))


def sum_expression(address: AddressSum) -> str:
    """The sum as a C expression of `base` and the number of the thread."""
    parts = map(_part, address.terms)
    return " + ".join(["base", *([str(address.origin)] if address.origin else []), *parts])


def _part(term: AddressTerm) -> str:
    name = thread_name(term.threads)
    shifted = f"{name} >> {term.low}" if term.low else name
    if term.is_masked:
        shifted = f"{shifted} & {(1 << term.bits) - 1}"
    return f"({shifted}) * {term.stride}" if " " in shifted else f"{shifted} * {term.stride}"


def thread_name(threads: int) -> str:
    """What code calls the number of a thread: in its warp, or in its warpgroup."""
    return "lane" if threads == LANES else "thread"


def swizzle_expression(memory: Memory, address: str) -> str:
    """What a swizzle makes of an address, as C."""
    row = f"{address} / {ROW_OF_UNITS}"
    turned = f"({row} - {memory.base_offset})" if memory.base_offset else row
    return f"{address} ^ ({turned} & {(1 << SWIZZLES[memory.swizzle]) - 1}) * {UNIT}"
