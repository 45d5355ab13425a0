"""The memory of a launch, and its heap.

malloc allocates pieces in sequence, and free marks a piece as freed. Pieces are never reused, so a freed address stays
invalid. A GPU does not report accesses to freed pieces. In a checked launch, an access to a freed piece is a
MemoryFault of kind "freed", as is freeing a piece twice or freeing an address that malloc did not return.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, MemoryFault
from warpfrag.formats.arrays import Bytes, Numbers
from warpfrag.machine.interpreter.observer import Observer
from warpfrag.machine.interpreter.store_tags import StoreTags, elements
from warpfrag.machine.ir import state_spaces
from warpfrag.machine.ir.program import InexactCause
from warpfrag.machine.semantics.textures import Surface, Texture
from warpfrag.smem.shared_memory import BANK_BYTES, BANKS

Addresses = NDArray[np.uint64]
Reached = list[tuple[NDArray[Any], Bytes, Numbers]]  # lanes, buffer and offsets

UNIT = 16
"""The alignment and size granularity of a piece, in bytes."""


class Heap:
    """The device heap: live pieces by address, and a map of freed units."""

    def __init__(self) -> None:
        """Create an empty heap."""
        self.used = 0
        self.pieces: dict[int, int] = {}  # sizes of live pieces, by address
        self.is_freed = np.zeros(0, np.bool_)  # one flag per unit; allocated by the first call of free

    def copy(self) -> Heap:
        """Return an independent copy."""
        other = Heap()
        other.used, other.pieces, other.is_freed = self.used, dict(self.pieces), self.is_freed.copy()
        return other

    def allocate(self, size: int) -> int:
        """Allocate a piece and return its address, or 0 if the heap is full."""
        piece = -(-max(size, 1) // UNIT) * UNIT
        if self.used + piece > state_spaces.HEAP_BYTES:
            return 0
        address = state_spaces.HEAP + self.used
        self.used += piece
        self.pieces[address] = piece
        return address

    def free(self, address: int, index: int) -> None:
        """Free a piece, or ignore a null pointer; a MemoryFault names lane `index`."""
        if not address:
            return
        if address not in self.pieces:
            unit = (address - state_spaces.HEAP) // UNIT
            again = 0 <= unit < len(self.is_freed) and bool(self.is_freed[unit])
            why = "has already been freed" if again else "is not an address that malloc returned"
            raise MemoryFault(index, f"free of {address:#x}, which {why}", kind="freed")
        if not len(self.is_freed):
            self.is_freed = np.zeros(state_spaces.HEAP_BYTES // UNIT, np.bool_)
        first = (address - state_spaces.HEAP) // UNIT
        self.is_freed[first : first + self.pieces.pop(address) // UNIT] = True

    def check(self, offsets: Numbers, lanes: Numbers) -> None:
        """Raise a MemoryFault for the first heap offset that is in freed memory."""
        if not len(self.is_freed):
            return
        wrong = self.is_freed[offsets // UNIT]
        if wrong.any():
            at = int(wrong.argmax())
            address = state_spaces.HEAP + int(offsets[at])
            raise MemoryFault(int(lanes[at]), f"{address:#x} is in memory that was freed", kind="freed")


SECTOR = 32
"""The size of a global-memory sector in bytes."""
MAX_ACCESS = 16
"""Maximum number of bytes that a lane can access with one instruction."""
ALL_BANKS = BANKS * BANK_BYTES
UNIT_BITS = 48  # enough bits for any sector number


@dataclass
class Allocation:
    """A range of global memory: one of the caller's arrays, a module variable, or the heap."""

    start: int
    data: Bytes
    name: str
    writable: bool = True
    unwritten: Bytes | None = None  # marks of the bytes that were never written; None if all count as written
    is_placed: bool = False  # True if the caller chose the address

    @property
    def end(self) -> int:
        """The first address after the allocation."""
        return self.start + len(self.data)


class MemorySnapshot(NamedTuple):
    """A snapshot of the arrays that blocks can modify."""

    copies: list[tuple[NDArray[Any], NDArray[Any]]]
    tags: StoreTags

    def restore(self) -> None:
        """Restore the contents, and forget which warps stored them."""
        for buffer, data in self.copies:
            buffer[...] = data
        self.tags.forget()

    def changed(self) -> list[int]:
        """Return the indices of the arrays whose contents differ."""
        return [at for at, (buffer, data) in enumerate(self.copies) if not np.array_equal(buffer, data)]


class MemoryAccess(NamedTuple):
    """An access of `size` bytes per thread, at the threads' offsets in a buffer."""

    buffer: Bytes
    offsets: Numbers
    size: int
    threads: Numbers
    writes: bool


class DeviceMemory:
    """The memory that a batch of blocks can access, and counts of its accesses."""

    def __init__(self, parameters: bytes, instructions: int) -> None:
        """Create memory with only the kernel parameters; bytes and wavefronts are counted per instruction."""
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []
        self.parameters = np.frombuffer(parameters, np.uint8)
        self.shared: Bytes = np.zeros(0, np.uint8)
        self.shared_end = 0  # the end address of a block's shared memory
        self.has_absolute_ranks = False  # True if a shared address contains the rank of its block
        self.cluster_blocks = 1  # the number of consecutive blocks that can access each other's shared memory
        self.shared_stride = 1
        self.local: Bytes = np.zeros(0, np.uint8)
        self.local_stride = 0
        self.read_bytes: dict[str, int] = defaultdict(int)
        self.written_bytes: dict[str, int] = defaultdict(int)
        self.wavefronts: dict[str, int] = defaultdict(int)
        self.inst_wavefronts = np.zeros(instructions, np.int64)
        self.inst_conflicts = np.zeros(instructions, np.int64)
        self.inst_read = np.zeros(instructions, np.int64)  # in bytes
        self.inst_written = np.zeros(instructions, np.int64)
        self.inst = 0  # the index of the running instruction
        self.lock = Lock()  # atomics hold this lock
        self.tags = StoreTags()
        self.is_checked = False  # True if bad accesses are collected instead of raised
        self.observer: Observer | None = None  # set if checks observe every access
        self.heap = Heap()
        self.accesses: list[MemoryAccess] | None = None  # accesses of the running instruction, for the debugger
        self.resources: dict[int, Texture | Surface] = {}  # keyed by handle
        # keyed by handle: True if a 1D texture is in linear memory, False for a CUDA array
        self.are_linear: dict[int, bool] = {}

    def add(self, allocation: Allocation) -> None:
        """Add an allocation; raise InvalidOperand if it overlaps another."""
        at = bisect_right(self.starts, allocation.start)
        for near in self.allocations[max(at - 1, 0) : at + 1]:
            if near.start < allocation.end and allocation.start < near.end:
                raise InvalidOperand(
                    f"{allocation.name} at {allocation.start:#x} overlaps {near.name}; move one of them"
                )
        self.starts.insert(at, allocation.start)
        self.allocations.insert(at, allocation)
        if allocation.writable:
            self.tags.add(allocation.data)

    def fork(self) -> DeviceMemory:
        """Return a DeviceMemory for other blocks, with the same global memory but separate shared memory and counts."""
        other = DeviceMemory(b"", len(self.inst_wavefronts))
        other.parameters, other.allocations, other.starts = self.parameters, self.allocations, self.starts
        other.lock, other.tags.of_global = self.lock, self.tags.of_global
        other.resources, other.are_linear = self.resources, self.are_linear
        return other

    @property
    def has_heap(self) -> bool:
        """True if device code may call malloc and free."""
        return state_spaces.HEAP in self.starts

    def snapshot(self) -> MemorySnapshot:
        """Copy the arrays that blocks can modify: writable allocations and surfaces."""
        surfaces = [resource.array for resource in self.resources.values() if isinstance(resource, Surface)]
        buffers = [*(allocation.data for allocation in self.allocations if allocation.writable), *surfaces]
        return MemorySnapshot([(buffer, buffer.copy()) for buffer in buffers], self.tags)

    def join(self, other: DeviceMemory) -> None:
        """Add the counts of `other`, the memory of other blocks."""
        for own, more in (
            (self.read_bytes, other.read_bytes), (self.written_bytes, other.written_bytes),
            (self.wavefronts, other.wavefronts),
        ):  # fmt: skip
            for space, count in more.items():
                own[space] += count
        self.inst_wavefronts += other.inst_wavefronts
        self.inst_conflicts += other.inst_conflicts
        self.inst_read += other.inst_read
        self.inst_written += other.inst_written

    def start_blocks(self, blocks: int, shared: int, threads: int, local: int) -> None:
        """Allocate shared and local memory for new blocks."""
        self.shared_end = state_spaces.SHARED_START + shared
        self.shared_stride = -(-self.shared_end // 1024) * 1024
        self.shared = np.zeros(blocks * self.shared_stride, np.uint8)
        self.local_stride = -(-local // 16) * 16
        self.local = np.zeros(threads * self.local_stride, np.uint8)

    def constant(self, offset: int, size: int) -> int:
        """Return an unsigned integer from the constant buffer; bytes after the end are zero."""
        return int.from_bytes(self.parameters[offset : offset + size].tobytes(), "little")

    # --- address resolution

    def reach(self, space: str, addresses: Addresses, size: int, owners: Owners, *, writes: bool) -> Reached:
        """Return the buffers that an access touches, as (lanes, buffer, offsets), and count its bytes and wavefronts.

        Raises MemoryFault if an address is misaligned or outside its state space.
        """
        if space != "generic":
            whole = self.reach_space(space, addresses, size, owners, writes=writes)
            self.count_bytes(space, size * len(addresses), writes=writes)
            self._count_wavefronts(space, addresses, size, owners)
            self._note_accesses(whole, size, owners, writes=writes)
            return whole
        reached, parts = [], []
        windows = addresses >> np.uint64(48)
        for number in np.unique(windows):
            at = np.nonzero(windows == number)[0]
            name = self.window_space(int(number))
            inner = addresses[at] - np.uint64(state_spaces.WINDOWS[name])
            parts.append((name, inner, owners.at(at)))
            try:
                for which, buffer, offsets in self.reach_space(name, inner, size, owners.at(at), writes=writes):
                    reached.append((at[which], buffer, offsets))
            except MemoryFault as fault:
                raise fault.of(at[fault.index]) from None
        for name, inner, own in parts:
            self.count_bytes(name, size * len(inner), writes=writes)
            self._count_wavefronts(name, inner, size, own)
        self._note_accesses(reached, size, owners, writes=writes)
        return reached

    def count_bytes(self, space: str, size: int, *, writes: bool) -> None:
        """Count bytes that the running instruction reads or writes."""
        counted, by_inst = (self.written_bytes, self.inst_written) if writes else (self.read_bytes, self.inst_read)
        counted["shared" if space == "cluster" else space] += size
        by_inst[self.inst] += size

    def _note_accesses(self, reached: Reached, size: int, owners: Owners, *, writes: bool) -> None:
        if self.accesses is not None:
            self.accesses += [
                MemoryAccess(buffer, offsets, size, owners.threads[which], writes) for which, buffer, offsets in reached
            ]

    def window_space(self, number: int) -> str:
        """Return the state space of a generic-address window."""
        shared = "shared" if self.cluster_blocks == 1 else "cluster"
        return {1: shared, 2: "local", 3: "param"}.get(number, "global")

    def space_of(self, address: int) -> tuple[str, int]:
        """Return the state space of a generic address, and the address in that space."""
        name = self.window_space(address >> state_spaces.WINDOW_SHIFT)
        return name, address - state_spaces.WINDOWS[name]

    def peek(self, address: int, size: int, owners: Owners) -> Bytes:
        """Return the bytes from a thread's generic address to the end of its buffer; at least `size` must exist."""
        name, place = self.space_of(address)
        ((_, buffer, offsets),) = self.reach_space(name, np.array([place], np.uint64), size, owners, writes=False)
        first = int(offsets[0])
        parts = {"shared": self.shared_stride, "cluster": self.shared_stride, "local": self.local_stride}
        part = parts.get(name, len(buffer))
        return buffer[first : first // max(part, 1) * part + part]

    def _count_wavefronts(self, space: str, addresses: Addresses, size: int, owners: Owners) -> None:
        if space not in {"shared", "global"} or owners.requests is None:
            return
        unit = SECTOR if space == "global" else min(max(size, BANK_BYTES), MAX_ACCESS)
        slots = 1 if space == "global" else ALL_BANKS // unit
        count, conflicts = count_wavefronts(addresses, size, owners.requests, unit, slots)
        self.wavefronts[space] += count
        self.inst_wavefronts[self.inst] += count
        self.inst_conflicts[self.inst] += conflicts

    def reach_space(self, space: str, addresses: Addresses, size: int, owners: Owners, *, writes: bool) -> Reached:
        """Return the buffers that an access to one state space touches, without counting it."""
        self.check_alignment(addresses, size)
        return self.find(space, addresses, size, owners, writes=writes)

    def find(self, space: str, addresses: Addresses, size: int, owners: Owners, *, writes: bool) -> Reached:
        """Find the buffers that an access to one state space touches, without checking alignment."""
        everyone = np.arange(len(addresses))
        if space in {"global", "const"}:
            return self._reach_global(addresses, size, writes=writes)
        if space == "cluster":
            addresses, owners = self._in_cluster(addresses, owners)
            space = "shared"
        start, end, stride, buffer, owner = {
            "shared": (state_spaces.SHARED_START, self.shared_end, self.shared_stride, self.shared, owners.blocks),
            "local": (0, self.local_stride, self.local_stride, self.local, owners.threads),
            "param": (0, len(self.parameters), 0, self.parameters, owners.blocks),
        }[space]
        if writes and space == "param":
            raise MemoryFault(0, "parameters cannot be written", kind="readonly")
        wrong = np.ones(len(addresses), np.bool_)
        if start + size <= end:  # computed unsigned, because adding to an address near 2**64 would wrap
            wrong = (addresses < np.uint64(start)) | (addresses > np.uint64(end - size))
        if wrong.any():
            index = int(wrong.argmax())
            size_text = f"{size} bytes at {int(addresses[index]):#x}"
            raise MemoryFault(index, f"{size_text} are outside {space} memory, which is {start:#x} to {end:#x}")
        return [(everyone, buffer, addresses.astype(np.int64) + owner * stride)]

    def _in_cluster(self, addresses: Addresses, owners: Owners) -> tuple[Addresses, Owners]:
        """Split cluster addresses into target blocks and addresses in their shared memory."""
        ranks = (addresses >> np.uint64(state_spaces.RANK_SHIFT)).astype(np.int64)
        if not self.has_absolute_ranks:
            if not ranks.any():
                return addresses, owners
            ranks ^= owners.blocks % self.cluster_blocks
        wrong = ranks >= self.cluster_blocks
        if wrong.any():
            index = int(wrong.argmax())
            text = f"{int(addresses[index]):#x} is in block {int(ranks[index])} of a cluster with"
            raise MemoryFault(index, f"{text} {self.cluster_blocks} blocks")
        blocks = owners.blocks // self.cluster_blocks * self.cluster_blocks + ranks
        return addresses & np.uint64((1 << state_spaces.RANK_SHIFT) - 1), Owners(blocks, owners.threads, None)

    def _reach_global(self, addresses: Addresses, size: int, *, writes: bool) -> Reached:
        reached = []
        left = np.arange(len(addresses))
        while len(left):
            first = int(addresses[left[0]])
            at = bisect_right(self.starts, first) - 1
            home = self.allocations[at] if at >= 0 else None
            if home is None or first + size > home.end:
                raise MemoryFault(int(left[0]), self._nearest(first, size), ends_launch=True)
            if writes and not home.writable:
                text = f"a store to {home.name} at {first:#x}, which is read-only"
                raise MemoryFault(int(left[0]), text, kind="readonly")
            chosen = addresses[left]
            inside = (chosen >= np.uint64(home.start)) & (chosen <= np.uint64(home.end - size))
            which = left[inside]
            offsets = (addresses[which] - np.uint64(home.start)).astype(np.int64)
            if self.is_checked and home.start == state_spaces.HEAP:
                self.heap.check(offsets, which)
            reached.append((which, home.data, offsets))
            left = left[~inside]
        return reached

    def _nearest(self, address: int, size: int) -> str:
        """Describe an address outside every allocation by its distance from the nearest one."""
        text = f"{size} bytes at {address:#x} are outside every allocation"
        if not self.allocations:
            return f"{text}: there are no allocations"

        def distance(allocation: Allocation) -> int:
            before = allocation.start - address
            return before if before > 0 else max(0, address + size - allocation.end)

        near = min(self.allocations, key=distance)
        side = f"begins {near.start - address} bytes before it"
        side = side if address < near.start else f"ends {address + size - near.end} bytes after its end"
        return f"{text}; the nearest is {near.name} of {len(near.data)} bytes at {near.start:#x}: the access {side}"

    @staticmethod
    def check_alignment(addresses: Addresses, size: int) -> None:
        """Raise a MemoryFault for the first address that is not a multiple of `size`, a power of two."""
        wrong = addresses & np.uint64(size - 1)
        if size & (size - 1) == 0 and wrong.any():
            index = int((wrong != 0).argmax())
            raise MemoryFault(
                index, f"the address {int(addresses[index]):#x} is not a multiple of {size}", kind="misaligned"
            )

    # --- accesses

    def load(self, space: str, addresses: Addresses, dtype: np.dtype[Any], count: int, owners: Owners) -> NDArray[Any]:
        """Load codes [lanes, count] from the lanes' addresses."""
        size = dtype.itemsize
        result = np.empty((len(addresses), count), dtype)
        for which, buffer, offsets in self.reach(space, addresses, size * count, owners, writes=False):
            if self.observer is not None:
                self.observer.read(buffer, offsets, size * count, owners.threads[which])
            result[which] = self.elements(buffer, dtype)[offsets[:, None] // size + np.arange(count)]
        return result

    def store(
        self,
        space: str,
        addresses: Addresses,
        codes: NDArray[Any],
        owners: Owners,
        cause: InexactCause = InexactCause.LANES_AT_SAME_ADDRESS,
    ) -> bool:
        """Store codes [lanes, count]; record `cause` if lanes store different bytes to the same address.

        Returns True if other lanes can see the store, that is, unless it writes only local memory.
        """
        size = codes.dtype.itemsize * codes.shape[1]
        is_seen = False
        for which, buffer, offsets in self.reach(space, addresses, size, owners, writes=True):
            if self.observer is not None:
                self.observer.write(buffer, offsets, codes[which], owners.threads[which])
            self.tags.store(self.inst, buffer, offsets, codes[which], owners.threads[which], cause)
            is_seen |= buffer is not self.local
        return is_seen

    elements = staticmethod(elements)


def count_wavefronts(addresses: Addresses, size: int, requests: Numbers, unit: int, slots: int) -> tuple[int, int]:
    """Return the number of wavefronts that requests need, and the number of bank conflicts.

    A request needs one wavefront for each distinct unit in its fullest slot. Bank conflicts are the wavefronts that
    would not be needed if the units were spread evenly over the slots. In shared memory, a unit is the data that a lane
    accesses at once (4 to 16 bytes), and the banks together hold `slots` units; for aligned accesses, the result equals
    `smem.shared_memory.wavefronts`. In global memory, the units are sectors and there is one slot, so every touched
    sector counts.
    """
    first = addresses // np.uint64(unit)
    if unit % size and ((last := (addresses + np.uint64(size - 1)) // np.uint64(unit)) != first).any():
        spans = [first + np.uint64(more) for more in range(int((last - first).max()) + 1)]
        requests = np.concatenate([requests[span <= last] for span in spans])
        first = np.concatenate([span[span <= last] for span in spans])
    # sorting one combined integer is faster
    pairs = np.sort(requests.astype(np.uint64) << np.uint64(UNIT_BITS) | first)
    pairs = np.concatenate([pairs[:1], pairs[1:][pairs[1:] != pairs[:-1]]])
    groups = (pairs >> np.uint64(UNIT_BITS)).astype(np.int64)
    if slots == 1 or (groups[1:] != groups[:-1]).all():
        return len(pairs), 0
    groups -= groups[0]
    counts = np.bincount(
        groups * slots + (pairs % np.uint64(slots)).astype(np.int64), minlength=(groups[-1] + 1) * slots
    )
    by_slot = counts.reshape(-1, slots)
    total = int(by_slot.max(axis=1).sum())
    return total, total - int((-(-by_slot.sum(axis=1) // slots)).sum())


@dataclass(frozen=True)
class Owners:
    """The block and thread that own each lane's shared and local memory, and the lane's request number.

    Lanes with the same request number are served together: the lanes of a warp, or of one ldmatrix matrix. If
    `requests` is None, no wavefronts are counted.
    """

    blocks: Numbers
    threads: Numbers
    requests: Numbers | None

    def at(self, which: NDArray[Any]) -> Owners:
        """Return the owners of the selected lanes."""
        return Owners(self.blocks[which], self.threads[which], None if self.requests is None else self.requests[which])
