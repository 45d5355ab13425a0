"""Who accessed each place of a buffer last: the shadow of memory that the race check compares with.

A cell is a few bytes, at first four; a narrower access splits all cells of its buffer. Of each cell the last write is
kept, and last reads: one of each warp of a block in shared memory, of a few warps in global memory, and one of the
agents. An access is an entity, a time, the step, and its `nature`: how strong it is, which scope and size it has, and
whether it goes through the async proxy. A read of another warp that was replaced by a later one is not compared: that
can hide a race, and never invents one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Cells = NDArray[np.int64]

STRONG, ATOMIC, ASYNC_PROXY = 1, 2, 4
SCOPE_SHIFT, SIZE_SHIFT, STEP_SHIFT = 3, 5, 8


def nature_of(step: int, flags: int, level: int, size: int) -> int:
    """Step and nature in one number."""
    return step << STEP_SHIFT | size.bit_length() - 1 << SIZE_SHIFT | level << SCOPE_SHIFT | flags


@dataclass
class Accesses:
    """The last access of one kind to each cell, [cells] or [slots, cells]: entity, time (0: none), step with nature."""

    entities: NDArray[np.int64]
    times: NDArray[np.int32]
    natures: NDArray[np.int64]

    @staticmethod
    def none(*shape: int) -> Accesses:
        """No access to any cell."""
        return Accesses(np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.int64))

    def put(self, cells: Cells, entities: NDArray[np.int64], time: int, nature: int) -> None:
        """Note an access."""
        self.entities[cells], self.times[cells], self.natures[cells] = entities, time, nature

    def split(self, parts: int) -> Accesses:
        """The same for cells of a part of the size."""
        entities, times = np.repeat(self.entities, parts, axis=-1), np.repeat(self.times, parts, axis=-1)
        return Accesses(entities, times, np.repeat(self.natures, parts, axis=-1))


class ShadowMemory:
    """The shadow of one buffer."""

    def __init__(self, size: int, slots: int) -> None:
        """Nothing was accessed; reads are kept in `slots` by warp, and one more for agents."""
        self.size, self.unit, self.slots = size, 4, slots
        self.writes = Accesses.none(-(-size // 4))
        self.reads = Accesses.none(0, len(self.writes.times))  # as many slots as are used, up to the last

    def cells(self, offsets: Cells, size: int) -> Cells:
        """The cells [accesses, cells of each] of accesses of `size` bytes."""
        narrow = int(np.bitwise_or.reduce(offsets)) | size if len(offsets) else size
        unit = min(narrow & -narrow, self.unit) if narrow else self.unit
        if unit < self.unit:
            parts = self.unit // unit
            self.writes = self.writes.split(parts)
            self.reads = self.reads.split(parts)
            self.unit = unit
        return offsets[:, None] // self.unit + np.arange(size // self.unit)

    def put_reads(self, slots: Cells, cells: Cells, entities: NDArray[np.int64], time: int, nature: int) -> None:
        """Note reads, each in its slot."""
        reads, cell_count = self.reads, len(self.writes.times)
        more = int(slots.max()) + 1 - len(reads.times)
        if more > 0:
            new = Accesses.none(more, cell_count)
            self.reads = reads = Accesses(
                np.concatenate([reads.entities, new.entities]),
                np.concatenate([reads.times, new.times]),
                np.concatenate([reads.natures, new.natures]),
            )
        at = slots[:, None]
        reads.entities[at, cells], reads.times[at, cells], reads.natures[at, cells] = entities, time, nature
