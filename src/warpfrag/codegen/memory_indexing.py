"""Operands in memory: which coordinates an address is made of, how wide an element is there, and its index formulas.

A, B, C and D are packed: a 4-bit element takes 4 bits, low bits first, and 6-bit elements cross bytes. The codes of
the metadata and the scale factors take a byte each, as `Instruction.compress` and numpy hand them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.layout.index_expressions import element_expressions, linear
from warpfrag.tensorcore.operand import SparseOperand

if TYPE_CHECKING:
    from warpfrag.layout.index_expressions import Expression
    from warpfrag.layout.linear_layout import Layout
    from warpfrag.tensorcore.operand import Registers

# Coordinates that choose between words which a warp may hold side by side; they are no part of the matrix in memory.
CHOSEN = ("selector", "thread_id", "byte_id")


def dimensions(operand: Registers) -> tuple[str, ...]:
    """The coordinates of the matrix in memory; each has a stride."""
    return tuple(dim for dim in _layout(operand).dims if dim not in CHOSEN)


def _layout(operand: Registers) -> Layout:
    """The layout; of an operand in shared memory only its coordinates mean something."""
    return operand.row.layout if operand.home == "shared" else operand.layout


def extents(operand: Registers) -> tuple[int, ...]:
    """How far each of them runs."""
    return tuple(_layout(operand).outs[dim] for dim in dimensions(operand))


def thread_name(operand: Registers) -> str:
    """What a formula calls the thread that holds a part of an operand: `lane` of a warp, `thread` of a warpgroup."""
    return "thread" if operand.home == "warpgroup" else "lane"


def formulas(operand: Registers) -> dict[str, Expression]:
    """Each coordinate from `lane` or `thread` and the element number `i`."""
    every = _of_a_warpgroup(operand.layout) if operand.home == "warpgroup" else element_expressions(operand.layout)
    return {dim: every[dim] for dim in dimensions(operand)}


def _of_a_warpgroup(layout: Layout) -> dict[str, Expression]:
    """Each coordinate from `thread`, which counts lanes and then warps, and `i`, slots and then registers."""
    origin = dict.fromkeys(layout.ins, 0)
    moved = {
        name: [layout.at(**{**origin, name: 1 << bit}) for bit in range((size - 1).bit_length())]
        for name, size in layout.ins.items()
    }
    inputs = {"thread": moved["lane"] + moved["warp"], "i": moved["slot"] + moved["reg"]}
    return {
        dim: linear({name: [getattr(at, dim) for at in images] for name, images in inputs.items()})
        for dim in layout.dims
    }


def stride_names(operand: Registers, prefix: str = "") -> list[str]:
    """What the strides of an operand are called, one for each coordinate."""
    return [f"{prefix}{dim}_stride" for dim in dimensions(operand)]


def index_formula(operand: Registers) -> str:
    """The number of an element in memory, from its coordinates and the strides."""
    return " + ".join(
        f"{dim} * {stride}" for dim, stride in zip(dimensions(operand), stride_names(operand), strict=True)
    )


def described_index(operand: Registers) -> str:
    """The same, for a comment."""
    return f"Element ({', '.join(dimensions(operand))}) is number {index_formula(operand)} of memory"


def element_bits(operand: Registers) -> int:
    """Bits from one element to the next in memory."""
    return operand.format.bits if operand.role in "abcd" else 8


def described(operand: Registers) -> str:
    """What the matrix is, for a comment."""
    names = {"metadata": "Metadata codes", "scale_a": "Scales of A", "scale_b": "Scales of B"}
    name = names.get(operand.role, operand.role.upper())
    unit = ", a byte each" if operand.role not in "abcd" else ""
    if isinstance(operand, SparseOperand):
        unit = ", the stored half"
    return f"{name}, {' x '.join(map(str, extents(operand)))} {operand.format}{unit}"


def contiguous_strides(operand: Registers, order: str = "row") -> tuple[int, ...]:
    """The strides of a matrix without gaps, row or column major; a leading coordinate counts whole matrices."""
    sizes = extents(operand)
    rows, cols = sizes[-2:]
    last = (cols, 1) if order == "row" else (1, rows)
    return (*(rows * cols for _ in sizes[:-2]), *last)
