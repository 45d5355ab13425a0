"""Threads and values, as CuTe and Triton number them: lanes, then warps; slots, then registers.

Both notations have threads and values, while a `Layout` has warp, lane, register and slot. Values must therefore be
split at register boundaries, which their texts do not contain: `slots` gives the number of values per register.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.axes import Axis
from warpfrag.layout.coordinates import LANES, REGISTERS
from warpfrag.layout.linear_layout import Basis, Layout

MATRIX = ("row", "col")
Digit: TypeAlias = "tuple[int, Sequence[int]]"
"""A radix, and the distance that the digit moves each coordinate."""


def threads_and_values(notation: str, layout: Layout) -> tuple[list[Basis], list[Basis]]:
    """Return the digits of threads (lane, then warp) and of values (slot, then reg), low first."""
    other = [name for name in layout.ins if name not in REGISTERS]
    if other:
        raise InvalidOperand(f"{notation} maps from threads and values, not from {', '.join(other)}")
    if layout.lanes > LANES or (layout.ins.get("warp", 1) > 1 and layout.lanes != LANES):
        raise InvalidOperand(
            f"{notation} numbers threads in warps of {LANES} lanes; this layout has {layout.lanes} lanes"
        )
    threads, values = (
        [step for name in names if name in layout.ins for step in layout.steps(name)]
        for names in (("lane", "warp"), ("slot", "reg"))
    )
    return threads, values


def shape_of(notation: str, shape: object, count: int | None = None) -> tuple[int, ...]:
    """Return the extents after checking them; `count` is the expected number of extents, if known."""
    sizes = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else ()
    if not sizes or (count is not None and len(sizes) != count):
        wanted = "the extents of the matrix, such as (16, 8)" if count is None else f"{count} extents"
        raise InvalidOperand(f"{notation}: shape must be {wanted}; got {quote(shape)}")
    return tuple(Axis.of_size(f"shape[{at}]", size).size for at, size in enumerate(sizes))


def check_slots(notation: str, slots: object) -> int:
    """Return the number of values per register; raise InvalidOperand if it is not a positive integer."""
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise InvalidOperand(
            f"{notation}: slots, the number of values per register, must be a positive integer; got {quote(slots)}"
        )
    return slots


def dims_of(notation: str, count: int, dims: Sequence[str] | None) -> tuple[str, ...]:
    """Return the given names, or the default: row and col for a matrix, else dim0, dim1, ..."""
    if dims is None:
        return MATRIX if count == len(MATRIX) else tuple(f"dim{at}" for at in range(count))
    names = tuple(dims) if isinstance(dims, Sequence) and not isinstance(dims, str) else ()
    if not all(isinstance(name, str) and name.isidentifier() for name in names) or len({*names}) != count:
        raise InvalidOperand(
            f"{notation}: expected the names of {count} coordinates, such as ('row', 'col'); got {quote(dims)}"
        )
    return names


def assemble(
    notation: str, extents: Mapping[str, int], threads: Iterable[Digit], values: Iterable[Digit], slots: int
) -> Layout:
    """Return the layout that has these digits of threads and values."""
    lane, warp = _cut(notation, threads, LANES, "threads into warps of")
    slot, reg = _cut(notation, values, slots, "values into registers of")
    if prod(radix for radix, _ in slot) < slots:
        raise InvalidOperand(
            f"{notation}: {prod(radix for radix, _ in slot)} values do not fill a register of {slots} slots"
        )
    steps = {"lane": lane, "reg": reg, "slot": slot}
    try:
        return Layout.of_steps(extents, {"warp": warp, **steps} if warp else steps)
    except InvalidOperand as error:
        raise InvalidOperand(f"{notation}: warpfrag cannot represent this layout: {error}") from None


def check_onto(notation: str, layout: Layout) -> Layout:
    """Return the layout; raise InvalidOperand if an element has no place, because then the shape is wrong."""
    if not layout.is_onto:
        shape = "x".join(map(str, layout.shape))
        reached = prod(layout.ins.values()) // layout.copies
        raise InvalidOperand(f"{notation}: only {reached} of the {prod(layout.shape)} elements of {shape} have a place")
    return layout


def _cut(notation: str, digits: Iterable[Digit], size: int, label: str) -> tuple[list[Digit], list[Digit]]:
    """Split digits at a size, into the low digits that count up to it and the rest."""
    below: list[Digit] = []
    above: list[Digit] = []
    counted = 1
    for radix, moves in digits:
        (below if counted < size else above).append((radix, moves))
        counted *= radix if counted < size else 1
    if counted > size or (above and counted != size):
        raise InvalidOperand(f"{notation}: cannot divide the {label} {size}")
    return below, above
