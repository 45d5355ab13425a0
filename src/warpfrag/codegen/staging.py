"""A and B of wgmma in shared memory: the byte to which each element is copied, as formulas, and the descriptor.

The tile lies without gaps, as `operand.descriptors` says, with the widest swizzle that its lines fill. It is copied in
units: an element, or the eight bits of a byte.

    >>> from warpfrag.tensorcore.registry import get
    >>> stage = Stage(get("wgmma.mma_async.m64n64k16.f32.f16.f16").b)
    >>> stage.descriptor.swizzle, {name: str(formula) for name, formula in stage.formulas.items()}
    (32, {'k': 'unit & 15', 'n': 'unit >> 4', 'offset': 'k * 2 + n * 32', 'address': 'offset ^ (offset >> 3 & 16)'})
"""

from __future__ import annotations

from functools import cached_property, reduce
from typing import TYPE_CHECKING

from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.layout.index_expressions import IndexConstant, IndexOperation, IndexVariable
from warpfrag.smem.shared_memory import ROW_OF_UNITS, SWIZZLES, UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.layout.index_expressions import Expression
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.smem.shared_memory import Digit
    from warpfrag.tensorcore.operand import Operand


@frozen_dataclass
class Stage:
    """How one operand gets into shared memory; `trans`: MN-major."""

    operand: Operand
    trans: bool = False

    @cached_property
    def descriptor(self) -> Descriptor:
        """Where the tile lies, counted from its first byte."""
        return self.operand.descriptors(trans=self.trans)[0]

    @property
    def suffix(self) -> str:
        """What the name of a function says about it: the operand, and `mn`."""
        return f"{self.operand.role}{'_mn' if self.trans else ''}"

    @property
    def described(self) -> str:
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
        """How many there are."""
        rows, cols = self.operand.shape
        return rows * cols // self.elements

    @property
    def size(self) -> int:
        """Bytes of the tile."""
        return self.units * self.unit_bytes

    @property
    def other(self) -> str:
        """What the coordinate is called that is not k."""
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
    """The digits of an index that counts in steps, each times its stride.

    There is one where the index does not reach the second, or where that goes on as the first does.
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
