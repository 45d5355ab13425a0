"""Operands in memory: the coordinates of an address, the width of an element, and its index formulas.

A, B, C and D are packed: a 4-bit element takes 4 bits, low bits first, and 6-bit elements cross bytes. The codes of
the metadata and the scale factors take a byte each, as `Instruction.compress` and numpy hand them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from warpfrag.codegen.statement import can_transpose
from warpfrag.layout.index_expressions import (
    Expression,
    IndexConstant,
    IndexOperation,
    IndexVariable,
    element_expressions,
    linear,
)
from warpfrag.layout.linear_layout import Layout
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT, Digit
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand, OperandBase, SparseOperand

# Coordinates that select among words of a warp; they are no part of the matrix in memory.
CHOSEN = ("selector", "thread_id", "byte_id")


def dimensions(operand: OperandBase) -> tuple[str, ...]:
    """The coordinates of the matrix in memory; each has a stride."""
    return tuple(dim for dim in _layout(operand).dims if dim not in CHOSEN)


def _layout(operand: OperandBase) -> Layout:
    """Return the layout; for an operand in shared memory only its coordinates have a meaning."""
    return operand.spec.layout if operand.storage == "shared" else operand.layout


def extents(operand: OperandBase) -> tuple[int, ...]:
    """The extent of each coordinate."""
    return tuple(_layout(operand).outs[dim] for dim in dimensions(operand))


def thread_name(operand: OperandBase) -> str:
    """Return the name of the thread index in formulas: `lane` in a warp, `thread` in a warpgroup."""
    return "thread" if operand.storage == "warpgroup" else "lane"


def formulas(operand: OperandBase) -> dict[str, Expression]:
    """Each coordinate from `lane` or `thread` and the element number `i`."""
    every = _of_a_warpgroup(operand.layout) if operand.storage == "warpgroup" else element_expressions(operand.layout)
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


def stride_names(operand: OperandBase, prefix: str = "") -> list[str]:
    """Return the names of an operand's strides, one for each coordinate."""
    return [f"{prefix}{dim}_stride" for dim in dimensions(operand)]


def index_formula(operand: OperandBase) -> str:
    """The number of an element in memory, from its coordinates and the strides."""
    return " + ".join(
        f"{dim} * {stride}" for dim, stride in zip(dimensions(operand), stride_names(operand), strict=True)
    )


def described_index(operand: OperandBase) -> str:
    """The same, for a comment."""
    return f"Element ({', '.join(dimensions(operand))}) is number {index_formula(operand)} of memory"


def element_bits(operand: OperandBase) -> int:
    """Bits from one element to the next in memory."""
    return operand.format.bits if operand.role in "abcd" else 8


def described(operand: OperandBase) -> str:
    """Describe the matrix, for a comment."""
    names = {"metadata": "Metadata codes", "scale_a": "Scales of A", "scale_b": "Scales of B"}
    name = names.get(operand.role, operand.role.upper())
    unit = ", a byte each" if operand.role not in "abcd" else ""
    if isinstance(operand, SparseOperand):
        unit = ", the stored half"
    return f"{name}, {' x '.join(map(str, extents(operand)))} {operand.format}{unit}"


def contiguous_strides(operand: OperandBase, order: str = "row") -> tuple[int, ...]:
    """The strides of a matrix without gaps, row or column major; a leading coordinate counts whole matrices."""
    sizes = extents(operand)
    rows, cols = sizes[-2:]
    last = (cols, 1) if order == "row" else (1, rows)
    return (*(rows * cols for _ in sizes[:-2]), *last)


# ---- A and B of wgmma in shared memory


@dataclass(frozen=True)
class Stage:
    """The copy of one wgmma operand to shared memory; `trans`: MN-major.

    The tile has no gaps, as in `operand.descriptors`, and the widest swizzle that its lines fill. It is copied in
    units: an element, or the eight bits of a byte.

    >>> from warpfrag.tensorcore.registry import get
    >>> stage = Stage(get("wgmma.mma_async.m64n64k16.f32.f16.f16").b)
    >>> stage.descriptor.swizzle, {name: str(formula) for name, formula in stage.formulas.items()}
    (32, {'k': 'unit & 15', 'n': 'unit >> 4', 'offset': 'k * 2 + n * 32', 'address': 'offset ^ (offset >> 3 & 16)'})
    """

    operand: Operand
    trans: bool = False

    @cached_property
    def descriptor(self) -> Descriptor:
        """The descriptor of the tile, counted from its first byte."""
        return self.operand.descriptors(trans=self.trans)[0]

    @property
    def suffix(self) -> str:
        """The suffix of a function name: the operand, and `mn`."""
        return f"{self.operand.role}{'_mn' if self.trans else ''}"

    @property
    def description(self) -> str:
        """The order and the swizzle, for a comment."""
        swizzle = f"{self.descriptor.swizzle}-byte swizzle" if self.descriptor.swizzle else "no swizzle"
        return f"{'MN' if self.trans else 'K'}-major, {swizzle}"

    @property
    def elements(self) -> int:
        """Elements of a unit, along K."""
        return max(1, 8 // self.operand.format.bits)

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit."""
        return max(1, self.operand.format.bits // 8)

    @property
    def units(self) -> int:
        """The number of units."""
        rows, cols = self.operand.shape
        return rows * cols // self.elements

    @property
    def size(self) -> int:
        """Bytes of the tile."""
        return self.units * self.unit_bytes

    @property
    def other(self) -> str:
        """The name of the coordinate that is not k."""
        return "m" if self.operand.role == "a" else "n"

    @property
    def coordinates(self) -> tuple[str, str]:
        """Row and column, each by its name; k counts units."""
        k = "k" if self.elements == 1 else f"k * {self.elements}"
        return (self.other, k) if self.operand.role == "a" else (k, self.other)

    @cached_property
    def formulas(self) -> dict[str, Expression]:
        """k and the other coordinate from `unit`, the unswizzled `offset` from them, and the `address` from that."""
        per_line = self.operand.shape[1 if self.operand.role == "a" else 0] // self.elements
        unit = IndexVariable("unit")
        memory = self.descriptor.memory(self.operand.role, trans=self.trans)
        inner, outer = (self.other, "k") if self.trans else ("k", self.other)
        counts = {"k": per_line, self.other: self.units // per_line}
        along = _digits(inner, counts[inner], memory.along, self.unit_bytes)
        terms = [*along, *_digits(outer, counts[outer], memory.across, 1)]
        offset: Expression = IndexVariable("offset")
        bits = SWIZZLES[self.descriptor.swizzle]
        if bits:  # the low bits of the row of 128 bytes, moved onto the number of the 16-byte unit
            moved = IndexOperation(">>", offset, IndexConstant(_log2(ROW_OF_UNITS // UNIT)))
            offset = IndexOperation("^", offset, IndexOperation("&", moved, IndexConstant(((1 << bits) - 1) * UNIT)))
        return {
            "k": IndexOperation("&", unit, IndexConstant(per_line - 1)),
            self.other: IndexOperation(">>", unit, IndexConstant(_log2(per_line))),
            "offset": reduce(lambda left, right: IndexOperation("+", left, right), terms),
            "address": offset,
        }


def _digits(name: str, count: int, digits: Sequence[Digit], step: int) -> list[Expression]:
    """Return the digits of an index in units of `step`, each times its stride.

    There is one digit if the index does not reach the second, or if the second continues the first.
    """
    (extent, stride), (_, last) = digits
    index = IndexVariable(name)
    if extent is None or count * step <= extent or last == extent * stride:
        return [_times(index, stride * step)]
    low = IndexOperation("&", index, IndexConstant(extent // step - 1))
    high = IndexOperation(">>", index, IndexConstant(_log2(extent // step)))
    return [_times(low, stride * step), _times(high, last)]


def _times(index: Expression, factor: int) -> Expression:
    return index if factor == 1 else IndexOperation("*", index, IndexConstant(factor))


def _log2(number: int) -> int:
    return number.bit_length() - 1


def stages(instruction: Instruction) -> Iterator[Stage]:
    """Yield the copies of A and B to shared memory: K-major, and MN-major if the instruction reads that."""
    for operand in (instruction.a, instruction.b):
        for trans in (False, True) if can_transpose(instruction) else (False,):
            yield Stage(operand, trans)
