"""Tiles in shared memory, and the other ways to pass A and B.

B of wgmma is always in shared memory, and A may be; `Shared` is a tile with the descriptor that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

from warpfrag.errors import InvalidOperand, quote

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Bytes
    from warpfrag.smem.descriptor import Descriptor


@dataclass(frozen=True, eq=False)
class Shared:
    """A tile in shared memory: its bytes (leading axes are a batch), its descriptor, and True if it is MN-major."""

    memory: Bytes
    descriptor: Descriptor
    trans: bool = False

    def __repr__(self) -> str:
        """Format the shape of the memory and the descriptor."""
        return f"<Shared {self.memory.shape}, {self.descriptor}{', MN-major' if self.trans else ''}>"


Location: TypeAlias = "ArrayLike | Shared | Descriptor | int"
"""The types accepted for A and B: registers, a tile, or a descriptor that addresses the bytes of `shared`."""


def as_descriptor(desc: object, kind: str = "wgmma") -> Descriptor:
    """Return a descriptor; an integer is decoded."""
    from warpfrag.smem.descriptor import Descriptor

    if isinstance(desc, Descriptor):
        return desc
    try:
        word = int(desc.__index__()) if isinstance(desc, SupportsIndex) and not isinstance(desc, bool) else -1
    except TypeError:  # raised for an array with several elements
        word = -1
    if not 0 <= word < 1 << 64:
        raise InvalidOperand(f"expected a Descriptor or a 64-bit word, got {quote(desc)}")
    return Descriptor.decode(word, kind=kind)
