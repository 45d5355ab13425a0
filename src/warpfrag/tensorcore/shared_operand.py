"""Operands in shared memory: store a matrix for a descriptor, load it, and find element addresses.

B of wgmma is always there, and A may be; `Shared` is a tile with the descriptor that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, SupportsIndex, TypeAlias

from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.formats.number_formats import Format, Rounding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats.arrays import Array, Bytes
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.smem.shared_memory import Memory


@dataclass(frozen=True, eq=False)
class Shared:
    """A tile in shared memory: its bytes (leading axes are a batch), its descriptor, and True if it is MN-major."""

    memory: Bytes
    descriptor: Descriptor
    trans: bool = False

    def __repr__(self) -> str:
        """Show the shape of the memory and the descriptor."""
        return f"<Shared {self.memory.shape}, {self.descriptor}{', MN-major' if self.trans else ''}>"


Location: TypeAlias = "ArrayLike | Shared | Descriptor | int"
"""The argument types of A and B: registers, a tile, or a descriptor over the bytes of `shared`."""


class InShared:
    """A mixin for wgmma operands that may be in shared memory; the class provides role, format, shape and codes."""

    staged: bool
    descriptor_kind: ClassVar[str] = "wgmma"

    if TYPE_CHECKING:

        @property
        def role(self) -> str:
            """The role: a or b."""

        @property
        def format(self) -> Format:
            """The number format of an element."""

        @property
        def shape(self) -> tuple[int, ...]:
            """The numbers of rows and columns."""

        @property
        def description(self) -> str:
            """The name of the operand in error messages."""

        def codes(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> Array:
            """Return the unsigned codes of a matrix."""

    @property
    def transposable_bits(self) -> tuple[int, ...]:
        """The widths, in bits, of the types that may be MN-major."""
        from warpfrag.smem.descriptor import TURNABLE

        return (TURNABLE,)

    def addresses(self, desc: Descriptor | int, trans: bool = False) -> NDArray[np.int64]:  # noqa: FBT001, FBT002 (promised so)
        """Return the byte address of each element that a descriptor reads; b1 elements share bytes."""
        return self.memory(desc, trans=trans).addresses(self._extents, self.format.bits)

    def memory(self, desc: Descriptor | int, *, trans: bool = False) -> Memory:
        """Return the layout of the operand in shared memory under a descriptor."""
        if not self.staged:
            raise InvalidOperand(f"{self.description} is in registers; only A and B of wgmma can be in shared memory")
        if check_flag("trans", trans) and self.format.bits not in self.transposable_bits:
            types = " and ".join(f"{bits}-bit" for bits in self.transposable_bits)
            raise InvalidOperand(
                f"{self.description} is K-major: only {types} types can be MN-major (trans), not {self.format.name}"
            )
        return as_descriptor(desc, self.descriptor_kind).memory(self.role, trans=trans)

    def descriptors(
        self, *, k: int | None = None, swizzle: int | None = None, trans: bool = False, start: int = 0
    ) -> list[Descriptor]:
        """Return the descriptors of a contiguous tile, one for each instruction along its k.

        The tile has `k` columns of A or rows of B, by default those of one instruction. The difference between
        consecutive descriptors is the step along k. `swizzle` defaults to the widest one that the tile's lines fill.
        """
        from warpfrag.smem.descriptor import compact

        self.memory(0, trans=trans)  # raises an error for a type that cannot be transposed
        return compact(self, trans=trans, swizzle=swizzle, k=k, start=start)

    def store(
        self,
        matrix: ArrayLike,
        desc: Descriptor | int | None = None,
        *,
        trans: bool = False,
        raw: bool = False,
        rounding: Rounding = None,
    ) -> Shared:
        """Store a matrix in shared memory as a descriptor reads it; without `desc`, use a default descriptor.

        Leading axes are a batch. Bytes between the elements are 0. Raises InvalidOperand if elements would overlap.
        """
        import numpy as np

        codes = self.codes(matrix, raw=raw, rounding=rounding)
        descriptor = self.descriptors(trans=trans)[0] if desc is None else as_descriptor(desc, self.descriptor_kind)
        memory = self.memory(descriptor, trans=trans)
        empty = np.zeros((*codes.shape[:-2], memory.size(self._extents, self.format.bits)), np.uint8)
        return Shared(memory.write(empty, codes, self.format.bits), descriptor, trans)

    def load(self, tile: Shared, *, raw: bool = False) -> Array:
        """Return the matrix in shared memory, in the natural dtype, or as unsigned codes with `raw=True`."""
        from warpfrag.formats.codes import from_codes

        codes = self.read(tile)
        return codes if check_flag("raw", raw) else from_codes(self.format, codes)

    def read(self, tile: Shared) -> Array:
        """Return the codes of a tile; reject a descriptor that reads beyond its memory."""
        from warpfrag.formats.codes import code_dtype

        if not isinstance(tile, Shared):
            raise InvalidOperand(f"{self.description}: expected a Shared, as `store` returns; got {quote(tile)}")
        memory = self.memory(tile.descriptor, trans=tile.trans)
        return memory.read(tile.memory, self._extents, self.format.bits).astype(code_dtype(self.format))

    @property
    def _extents(self) -> tuple[int, int]:
        rows, cols = self.shape
        return rows, cols


def as_descriptor(desc: object, kind: str = "wgmma") -> Descriptor:
    """Return the argument as a descriptor; decode it if it is an integer."""
    from warpfrag.smem.descriptor import Descriptor

    if isinstance(desc, Descriptor):
        return desc
    try:
        word = int(desc.__index__()) if isinstance(desc, SupportsIndex) and not isinstance(desc, bool) else -1
    except TypeError:  # an array with several elements
        word = -1
    if not 0 <= word < 1 << 64:
        raise InvalidOperand(f"expected a Descriptor or a 64-bit word, got {quote(desc)}")
    return Descriptor.decode(word, kind=kind)
