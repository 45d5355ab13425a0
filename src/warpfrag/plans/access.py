"""One access to shared memory: where each lane points, and what that costs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from warpfrag.layout.coordinates import LANES
from warpfrag.smem.shared_memory import bank_conflicts, wavefronts

LINES = 8  # of a matrix
Direction = Literal["load", "store"]


class Access(NamedTuple):
    """One instruction of an access plan: which words of the operand it moves, and where in memory each lane points.

    `addresses` has one for each lane, of a warpgroup those of warp 0 first, and None for lanes that give none. `width`
    is how many bytes belong to an address. `slot` is the element of the word that a narrow access moves, None where it
    moves whole words.
    """

    instruction: str
    words: tuple[int, ...]
    addresses: tuple[int | None, ...]
    width: int
    slot: int | None = None

    @property
    def passes(self) -> int:
        """How many passes shared memory takes."""
        return sum(wavefronts(request, self.width) for request in self.requests)

    @property
    def conflicts(self) -> int:
        """How many of them are there because lanes want different words of one bank."""
        return sum(bank_conflicts(request, self.width) for request in self.requests)

    @property
    def requests(self) -> list[tuple[int | None, ...]]:
        """What shared memory is asked for at once: by a whole warp, or for one matrix of ldmatrix and stmatrix."""
        warps = [self.addresses[first : first + LANES] for first in range(0, len(self.addresses), LANES)]
        if "matrix" not in self.instruction:
            return warps
        present = [tuple(address for address in warp if address is not None) for warp in warps]
        return [warp[first : first + LINES] for warp in present for first in range(0, len(warp), LINES)]
