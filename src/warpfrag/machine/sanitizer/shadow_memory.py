"""Shadow memory: the earlier accesses to each cell of a buffer that may still conflict with later ones.

A cell covers a few bytes, initially four; a narrower access splits all cells of its buffer. Each cell has its last
write, and vectors of its reads and of earlier writes that the last one does not supersede. As in FastTrack, an access
is removed from a vector when a later access in the same vector is ordered after it. A slot of a vector belongs to an
agent, or to lanes of one warp. It has the time of their latest access and a lower bound on the time of each lane's
access. If no slot is free, the access is evicted. Of all evicted accesses to a cell, only the latest time and the block
are kept, and a later access cannot be judged unless these prove that it is ordered.

An access has an entity, a time and a `nature`: its instruction, size, scope and flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers, Words
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.sanitizer.ordering import Ordering

STRONG, ATOMIC, ASYNC_PROXY, SAME_BYTES = 1, 2, 4, 8
SCOPE_SHIFT, SIZE_SHIFT, INST_SHIFT = 4, 6, 9
NATURE_BITS = (1 << INST_SHIFT) - 1
SEVERAL_BLOCKS = -1
MAX_SLOTS = 64  # maximum number of slots per cell
RECORDS = 1 << 21  # slots for all cells of a global array together; a cell has at least 4


def nature_of(inst: int, flags: int, level: int, size: int) -> int:
    """Pack an instruction's index and an access's flags, scope level and size into one integer."""
    return inst << INST_SHIFT | size.bit_length() - 1 << SIZE_SHIFT | level << SCOPE_SHIFT | flags


@dataclass
class Accesses:
    """Accesses to cells: entity, time (0 for none), earliest time of the slot's lanes, nature and lanes.

    In a kept strong write, `times` is the time of the fence that releases it, and `issued` that of the write itself.
    """

    entities: Numbers
    times: NDArray[np.int32]
    firsts: NDArray[np.int32]
    natures: Numbers
    lanes: Words
    issued: NDArray[np.int32]

    @staticmethod
    def none(*shape: int) -> Accesses:
        """Return empty records, in arrays of the given shape."""
        types = (np.int64, np.int32, np.int32, np.int64, np.uint32, np.int32)
        return Accesses(*(np.zeros(shape, dtype) for dtype in types))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return all arrays."""
        return self.entities, self.times, self.firsts, self.natures, self.lanes, self.issued

    def at(self, index: Any) -> Accesses:  # noqa: ANN401 (any index of an array)
        """Return the accesses at an index."""
        return Accesses(*(part[index] for part in self.arrays()))

    def put(self, index: Any, new: Accesses) -> None:  # noqa: ANN401 (any index of an array)
        """Store the accesses `new` at an index."""
        for part, values in zip(self.arrays(), new.arrays(), strict=True):
            part[index] = values

    def split(self, parts: int) -> Accesses:
        """Return the accesses after each cell is split into `parts` smaller cells."""
        return Accesses(*(np.repeat(part, parts, axis=-1) for part in self.arrays()))


class AccessVectors:
    """A vector of accesses for each cell, with a slot per warp or per agent."""

    def __init__(self, cells: int, limit: int, *, of_agents: bool = False) -> None:
        """Create empty vectors, which grow to at most `limit` slots."""
        self.limit, self.width = limit, 1 if of_agents else LANES
        self.slots = Accesses.none(0, cells)
        self.evicted = Accesses.none(2, 0)  # weak and strong accesses; their `entities` are block numbers

    @property
    def used(self) -> range:
        """The slots that are allocated."""
        return range(len(self.slots.times))

    def split(self, parts: int) -> None:
        """Split each cell into `parts` smaller cells."""
        self.slots, self.evicted = self.slots.split(parts), self.evicted.split(parts)

    def add(self, slots: Numbers, cells: Numbers, threads: Numbers, new: Accesses, ordering: Ordering) -> None:
        """Record each access in the first slot that is free, superseded or its own warp's, starting at a given slot.

        An access supersedes the accesses that are ordered before it, unless it is weaker. `threads` are the threads of
        the batch that access the cells now.
        """
        for _ in range(self.limit):
            missing = int(slots.max()) + 1 - self.slots.times.shape[0]
            if missing > 0:
                more = Accesses.none(missing, self.slots.times.shape[1])
                pairs = zip(self.slots.arrays(), more.arrays(), strict=True)
                self.slots = Accesses(*(np.concatenate(pair) for pair in pairs))
            old = self.slots.at((slots, cells)) if self.slots.times[slots, cells].any() else None
            is_superseded = is_taken = np.ones(len(slots), np.bool_)
            if old is not None:
                is_alike = (old.natures ^ new.natures) & NATURE_BITS == 0
                is_superseded = old.times == 0
                asked = np.nonzero(~is_superseded & (is_alike | (new.natures & STRONG == 0)))[0]
                missing = ordering.missing_lanes(
                    threads[asked], old.entities[asked], old.lanes[asked], old.times[asked]
                )
                is_superseded[asked] = missing == 0
                is_same = is_alike & (old.entities // self.width == new.entities // self.width)
                is_taken = is_superseded | is_same
            takes = np.nonzero(is_taken)[0]
            at = slots[takes], cells[takes]
            self.slots.entities[at] = new.entities[takes]
            last = self.slots.entities[at]
            is_last = last // self.width == new.entities[takes] // self.width  # the slot belongs to the same warp
            if not is_last.all():
                takes, at, last = takes[is_last], (at[0][is_last], at[1][is_last]), last[is_last]
            self.replace(at, old and old.at(takes), new.at(takes), last, is_superseded[takes])
            rest = np.ones(len(slots), np.bool_)
            rest[takes] = False
            if not rest.any():
                return
            slots, cells, threads, new = (slots[rest] + 1) % self.limit, cells[rest], threads[rest], new.at(rest)
        self.evict(cells, new, ordering.per_block)

    def replace(
        self, at: tuple[Numbers, Numbers], old: Accesses | None, new: Accesses, last: Numbers, is_superseded: Mask
    ) -> None:
        """Replace the accesses in slots, keeping lanes that are not superseded."""
        lanes = new.lanes
        if (last != new.entities).any():  # several lanes of a warp access the same cell
            self.slots.lanes[at] = 0
            np.bitwise_or.at(self.slots.lanes, at, lanes)
            lanes = self.slots.lanes[at]
        firsts = new.firsts
        if old is not None and not is_superseded.all():
            stay = np.where(is_superseded, np.uint32(0), old.lanes & ~lanes)
            firsts = np.where(stay != 0, np.minimum(old.firsts, firsts), firsts)
            lanes = lanes | stay
        self.slots.put(at, Accesses(last, new.times, firsts, new.natures, lanes, new.issued))

    def evict(self, cells: Numbers, new: Accesses, per_block: int) -> None:
        """Record the latest time of evicted accesses, and their block, or SEVERAL_BLOCKS."""
        if not self.evicted.times.shape[1]:
            self.evicted = Accesses.none(2, self.slots.times.shape[1])
        blocks = np.where(new.entities < 0, SEVERAL_BLOCKS, new.entities // per_block)
        key, kept = ((new.natures & STRONG != 0).astype(np.int64), cells), self.evicted
        is_new = kept.times[key] == 0
        kept.entities[key] = np.where(is_new | (kept.entities[key] == blocks), blocks, SEVERAL_BLOCKS)
        # cells may occur more than once
        kept.entities[key] = np.where(kept.entities[key] == blocks, blocks, SEVERAL_BLOCKS)
        np.maximum.at(kept.times, key, new.times)


class ShadowMemory:
    """The shadow memory of one buffer."""

    def __init__(self, size: int, *, is_shared: bool) -> None:
        """Create a shadow without any accesses."""
        self.size, self.unit = size, 4
        count = -(-size // 4)
        limit = MAX_SLOTS if is_shared else min(max(RECORDS // max(count, 1), 4), MAX_SLOTS)
        self.writes = Accesses.none(count)
        self.reads, self.earlier_writes = AccessVectors(count, limit), AccessVectors(count, limit)
        self.agent_reads = AccessVectors(count, limit, of_agents=True)
        self.agent_writes = AccessVectors(count, limit, of_agents=True)

    def cells(self, offsets: Numbers, size: int) -> Numbers:
        """Return the cells that accesses of `size` bytes touch, as [accesses, cells per access]."""
        narrow = int(np.bitwise_or.reduce(offsets)) | size if len(offsets) else size
        unit = min(narrow & -narrow, self.unit) if narrow else self.unit
        if unit < self.unit:
            self.writes = self.writes.split(self.unit // unit)
            for vectors in (self.reads, self.agent_reads, self.earlier_writes, self.agent_writes):
                vectors.split(self.unit // unit)
            self.unit = unit
        return offsets[:, None] // self.unit + np.arange(size // self.unit)


class AccessGroup(NamedTuple):
    """The accesses of one instruction to one buffer: issuers, entities, addresses and nature."""

    buffer: Bytes
    shadow: ShadowMemory
    cells: Numbers  # [accesses, cells per access]
    offsets: Numbers
    size: int
    threads: Numbers  # the issuing threads, numbered in the batch
    entities: Numbers
    nature: int
    codes: NDArray[Any] | None = None  # the values of plain stores
    writes: bool = False
