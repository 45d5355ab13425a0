"""One access to shared memory: where each lane points, and what that costs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from warpfrag.memory import bank_conflicts, wavefronts

LINES = 8  # of a matrix
Direction = Literal["load", "store"]


class Access(NamedTuple):
    """One instruction of a way: which words of the operand it moves, and where in memory each lane points.

    `addresses` has None for lanes that give none. `width` is how many bytes belong to an address. `slot` is the element
    of the word that a narrow access moves, None where it moves whole words.
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
        """What shared memory is asked for at once: by the whole warp, or for one matrix of ldmatrix and stmatrix."""
        if "matrix" not in self.instruction:
            return [self.addresses]
        given = tuple(address for address in self.addresses if address is not None)
        return [given[first : first + LINES] for first in range(0, len(given), LINES)]
