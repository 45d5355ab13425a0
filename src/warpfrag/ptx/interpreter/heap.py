"""The heap of a launch: malloc hands out one piece after the other, and free marks a piece as gone.

A piece is never handed out again, so an address that was freed stays one. On a GPU an access to it goes unnoticed;
where accesses are checked it is a Fault of kind "freed", and so is a free of what malloc did not give, or gave and took
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.errors import Fault
from warpfrag.ptx.program import state_spaces

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNIT = 16
"""Bytes that a piece is a multiple of."""


class Heap:
    """What was handed out, and what of it was freed."""

    def __init__(self) -> None:
        """Nothing was handed out."""
        self.used = 0
        self.pieces: dict[int, int] = {}  # bytes of each that is not freed, by address
        self.is_freed = np.zeros(0, np.bool_)  # by unit, once something is

    def copy(self) -> Heap:
        """The same, apart from this one."""
        other = Heap()
        other.used, other.pieces, other.is_freed = self.used, dict(self.pieces), self.is_freed.copy()
        return other

    def allocate(self, size: int) -> int:
        """The address of a piece, or 0 where not enough is left."""
        piece = -(-max(size, 1) // UNIT) * UNIT
        if self.used + piece > state_spaces.HEAP_BYTES:
            return 0
        address = state_spaces.HEAP + self.used
        self.used += piece
        self.pieces[address] = piece
        return address

    def free(self, address: int, index: int) -> None:
        """Give a piece back; a null pointer is none. `index` is the lane's, for the Fault."""
        if not address:
            return
        if address not in self.pieces:
            unit = (address - state_spaces.HEAP) // UNIT
            again = 0 <= unit < len(self.is_freed) and bool(self.is_freed[unit])
            why = "was freed before" if again else "is no address that malloc gave"
            raise Fault(index, f"free of {address:#x}, which {why}", kind="freed")
        if not len(self.is_freed):
            self.is_freed = np.zeros(state_spaces.HEAP_BYTES // UNIT, np.bool_)
        first = (address - state_spaces.HEAP) // UNIT
        self.is_freed[first : first + self.pieces.pop(address) // UNIT] = True

    def check(self, offsets: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        """Raise a Fault for the first access, by its offset in the heap, to what was freed."""
        if not len(self.is_freed):
            return
        wrong = self.is_freed[offsets // UNIT]
        if wrong.any():
            at = int(wrong.argmax())
            address = state_spaces.HEAP + int(offsets[at])
            raise Fault(int(lanes[at]), f"{address:#x} lies in memory that was freed", kind="freed")
