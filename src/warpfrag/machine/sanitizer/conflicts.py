"""The last accesses of each cell of a buffer: the shadow memory that the race check compares with.

A cell is a few bytes, at first four; a narrower access splits all cells of its buffer. Each cell keeps its last write
and its last reads: one for each warp of the block in shared memory, one for each of a few warps in global memory, and
one for the agents. An access has an entity, a time, an instruction and a `nature`: its strength, scope and size, and
a flag for the async proxy. Of the reads that others replaced, only the last time and the block are kept; a write that
these do not prove to be ordered cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.layout.coordinates import LANES
from warpfrag.machine.interpreter.device_memory import Allocation
from warpfrag.machine.interpreter.kernel_findings import FindingCollector, KernelAccess, KernelFinding
from warpfrag.machine.interpreter.warp_batch import WarpBatch
from warpfrag.machine.sanitizer.ordering import Ordering

Cells = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

STRONG, ATOMIC, ASYNC_PROXY = 1, 2, 4
SCOPE_SHIFT, SIZE_SHIFT, INST_SHIFT = 3, 5, 8
SEVERAL_BLOCKS = -1


def nature_of(inst: int, flags: int, level: int, size: int) -> int:
    """Pack an instruction index and a nature into one number."""
    return inst << INST_SHIFT | size.bit_length() - 1 << SIZE_SHIFT | level << SCOPE_SHIFT | flags


@dataclass
class Accesses:
    """The last read or write of each cell, [cells] or [slots, cells]: entity, time (0: none) and nature."""

    entities: NDArray[np.int64]
    times: NDArray[np.int32]
    natures: NDArray[np.int64]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the entities, the times and the natures."""
        yield from (self.entities, self.times, self.natures)

    @staticmethod
    def none(*shape: int) -> Accesses:
        """Return arrays that record no access."""
        return Accesses(np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.int64))

    def put(self, cells: Cells | tuple[Cells, Cells], entities: NDArray[np.int64], time: int, nature: int) -> None:
        """Record an access."""
        self.entities[cells], self.times[cells], self.natures[cells] = entities, time, nature

    def split(self, parts: int) -> Accesses:
        """Return the same accesses for smaller cells."""
        entities, times = np.repeat(self.entities, parts, axis=-1), np.repeat(self.times, parts, axis=-1)
        return Accesses(entities, times, np.repeat(self.natures, parts, axis=-1))


class ShadowMemory:
    """The shadow memory of one buffer."""

    def __init__(self, size: int, slots: int) -> None:
        """Start with no accesses; reads are kept in `slots` by warp, with one more slot for agents."""
        self.size, self.unit, self.slots = size, 4, slots
        self.writes = Accesses.none(-(-size // 4))
        self.reads = Accesses.none(0, len(self.writes.times))  # slots up to the last one in use
        self.replaced = Accesses.none(2, 0)  # weak and strong reads that a read of another warp replaced

    def cells(self, offsets: Cells, size: int) -> Cells:
        """Return the cells that accesses of `size` bytes touch, [accesses, cells per access]."""
        narrow = int(np.bitwise_or.reduce(offsets)) | size if len(offsets) else size
        unit = min(narrow & -narrow, self.unit) if narrow else self.unit
        if unit < self.unit:
            parts = self.unit // unit
            self.writes = self.writes.split(parts)
            self.reads, self.replaced = self.reads.split(parts), self.replaced.split(parts)
            self.unit = unit
        return offsets[:, None] // self.unit + np.arange(size // self.unit)

    def put_reads(self, slots: Cells, cells: Cells, entities: NDArray[np.int64], time: int, nature: int) -> None:
        """Record reads, each in its slot."""
        reads, cell_count = self.reads, len(self.writes.times)
        more = int(slots.max()) + 1 - len(reads.times)
        if more > 0:
            new = Accesses.none(more, cell_count)
            self.reads = reads = Accesses(
                np.concatenate([reads.entities, new.entities]),
                np.concatenate([reads.times, new.times]),
                np.concatenate([reads.natures, new.natures]),
            )
        reads.put((slots[:, None], cells), entities, time, nature)

    def note_replaced(self, cells: Cells, blocks: Cells, times: Cells, natures: Cells) -> None:
        """Record the latest time of the replaced reads, and their block; SEVERAL_BLOCKS if they differ."""
        if not self.replaced.times.shape[1]:
            self.replaced = Accesses.none(2, len(self.writes.times))
        key, kept = ((natures & STRONG != 0).astype(np.int64), cells), self.replaced
        is_new = kept.times[key] == 0
        kept.entities[key] = np.where(is_new | (kept.entities[key] == blocks), blocks, SEVERAL_BLOCKS)
        kept.entities[key] = np.where(kept.entities[key] == blocks, blocks, SEVERAL_BLOCKS)  # cells may repeat
        np.maximum.at(kept.times, key, times)


WHY = {
    "race": "nothing orders them",
    "lockstep": "they are lanes of one warp, and no bar.warp.sync orders them",
    "async": "it has not been waited for",
}


class AccessGroup(NamedTuple):
    """The accesses of one instruction to one buffer: issuers, entities, addresses and nature."""

    buffer: Bytes
    shadow: ShadowMemory
    cells: Numbers  # [accesses, cells of each]
    offsets: Numbers
    size: int
    threads: Numbers  # that issue them, in the batch
    entities: Numbers
    nature: int
    codes: NDArray[Any] | None = None  # values that plain stores write


class ConflictReporter:
    """Turns conflicts into findings; `written` has the arrays that a kernel may change."""

    def __init__(
        self, state: WarpBatch, ordering: Ordering, collector: FindingCollector, written: dict[int, Allocation]
    ) -> None:
        """Store the batch, its ordering and the collector of findings."""
        self.state, self.ordering, self.collector, self.written = state, ordering, collector, written

    def report(
        self,
        access: AccessGroup,
        wrong: NDArray[np.bool_],
        entities: Numbers,
        natures: Numbers,
        kind: str = "",
        text: str = "",
    ) -> None:
        """Report the first conflict with each other instruction, and count the accesses that conflict with it."""
        instructions = natures >> INST_SHIFT
        for at in np.unique(instructions[wrong]).tolist():
            chosen = wrong & (instructions == at)
            index, cell = (int(v) for v in np.argwhere(chosen)[0])
            mine, other = int(access.entities[index]), int(entities[index, cell])
            thread = int(access.threads[index])
            named = kind or self.kind_of(mine, other, thread)
            first = self.description(mine, self.state.memory.inst, thread)
            second = self.description(other, at, thread)
            place = self.place(access, index)
            why = text or WHY[named]
            self.collector.add(
                KernelFinding(
                    named, first.line, f"{first.what} and {second.text} both access {place['name']}: {why}",
                    block=first.block, thread=first.thread, stack=first.stack, other=second,
                    space=place["space"], address=place["address"], array=place["array"], element=place["element"],
                ),
                int(chosen.any(axis=1).sum()),
            )  # fmt: skip

    def kind_of(self, mine: int, other: int, thread: int) -> str:
        """Return the category of a conflict."""
        if other < 0:
            return "async"
        issuer = int(self.ordering.entities(np.array([thread]))[0])
        if mine >= 0 and issuer // LANES == other // LANES:
            return "lockstep" if mine != other else "race"
        return "race"

    def description(self, entity: int, at: int, thread: int) -> KernelAccess:
        """Describe an access: its instruction, its line and its thread."""
        inst = self.state.program.instructions[at]
        what = f"{inst.name}"
        if entity < 0:
            what = f"{inst.name} (in flight)"
            name = self.agent_name(entity)
            thread = name if name is not None else thread
            entity = int(self.ordering.entities(np.array([thread]))[0])
        block, own = divmod(entity, self.ordering.per_block)
        x, y, _ = self.state.launch.grid
        i, j, _ = self.state.launch.block
        return KernelAccess(
            what, inst.line, (block % x, block // x % y, block // (x * y)), (own % i, own // i % j, own // (i * j)),
            self.stack(entity),
        )  # fmt: skip

    def agent_name(self, entity: int) -> int | None:
        """Return the thread that an agent works for, if it works for one."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        if column < 0:
            return None
        name = self.ordering.agent_names[column - self.ordering.own_columns]
        if not isinstance(name, tuple):
            return None
        return {"wgmma": int(name[1]) * LANES, "mbarrier": None, "st.async": None}.get(name[0], int(name[1]))

    def stack(self, entity: int) -> tuple[int, ...]:
        """Return the lines of the calls that a thread is in, outermost first."""
        column = int(self.ordering.columns(np.array([entity]))[0])
        calls = self.state.calls
        if column < 0 or self.ordering.share > 1:
            return ()
        warp, lane = divmod(column, LANES)
        depth = int(calls.depth[warp, lane])
        return tuple(self.state.program.instructions[int(at)].line for at in calls.callers[warp, lane, :depth])

    def place(self, access: AccessGroup, index: int) -> dict[str, Any]:
        """Locate an access: its space, its address, and the caller's array."""
        offset = int(access.offsets[index])
        memory = self.state.memory
        if access.buffer is memory.shared:
            address = offset % memory.shared_stride
            return {
                "space": "shared", "address": address, "array": "", "element": None,
                "name": f"shared memory at {address:#x}",
            }  # fmt: skip
        home = self.written[id(access.buffer)]
        element = offset // access.size
        return {
            "space": "global", "address": home.start + offset, "array": home.name, "element": element,
            "name": f"{home.name} at byte {offset}",
        }  # fmt: skip
