"""Track overlapping plain stores: the last writer of each word, and the barriers between stores.

The result of two stores to one address is known if something orders the stores: the order of instructions in a warp, a
barrier of their block, or the end of a wait. A wait ends when a thread sees that another thread has changed memory,
through an atomic whose old value is used, a volatile, relaxed or acquire load, or an mbarrier. It is assumed to order
all later accesses of its block after all earlier accesses of any thread. If nothing orders two stores of different
bytes, the result depends on timing and the overlap is reported.

Every four bytes of global and shared memory have a tag. From the lowest bit, it contains a mask of the stored bytes (4
bits), the warp's number in its block (5), the number of the interval between two barriers of the block (27), the block
number plus one (27), and a flag that is set once the block has waited for others (1). If a store finds an unordered tag
of another warp, it compares the bytes; if they are equal, the tag stays. `jit.store_overlaps` does the same for one
warp at a time.

Lanes of one instruction that store to the same address are served as on an H200, 128 bytes at once: all lanes of a
warp, 16 lanes if each stores 8 bytes, or 8 lanes if each stores 16. Within such a group, the first lane's value
remains; if there are several groups, the value of the last one remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import Bytes, Mask, Numbers
from warpfrag.layout.coordinates import LANES
from warpfrag.machine.ir.program import InexactCause

Tags = NDArray[np.uint64]

SERVED_BYTES = 128  # bytes that an H200 stores at once
WORD = 4  # bytes covered by a tag
WORD_BYTES = 15  # the bits of a tag that mark the stored bytes
WARP_SHIFT, INTERVAL_SHIFT, BLOCK_SHIFT, HAS_WAITED_SHIFT = 4, 9, 36, 63
WARP_FIELD = (1 << INTERVAL_SHIFT) - (1 << WARP_SHIFT)
BLOCK_FIELD = (1 << HAS_WAITED_SHIFT) - (1 << BLOCK_SHIFT)
SPREAD = np.array([sum(0xFF << 8 * byte for byte in range(4) if bits >> byte & 1) for bits in range(16)], np.uint32)
"""The 32-bit mask of a word's bits, indexed by a 4-bit mask of its bytes."""


def first_tags(block_numbers: Numbers, warps: Numbers) -> Tags:
    """Return the tags that warps write before their first barrier."""
    blocks = (block_numbers.astype(np.uint64) + np.uint64(1)) << np.uint64(BLOCK_SHIFT) & np.uint64(BLOCK_FIELD)
    return blocks | warps.astype(np.uint64) << np.uint64(WARP_SHIFT)


def next_interval(writers: Tags, rows: Mask, *, across_blocks: bool = False) -> None:
    """Order the warps' later stores after all earlier stores of their block, or of all blocks."""
    writers[rows] += np.uint64(1 << INTERVAL_SHIFT)
    if across_blocks:
        writers[rows] |= np.uint64(1 << HAS_WAITED_SHIFT)


class StoreTags:
    """The tags of a launch's memory and of its running warps.

    `writers` holds the current tag of each warp in the batch, and `causes` one byte per instruction. All parts of a
    launch share the tags of global memory. Tags of shared memory are kept between batches, because tags that another
    block wrote have no effect.
    """

    def __init__(self) -> None:
        """Create tags that track no memory yet."""
        self.of_global: dict[int, Tags] = {}  # keyed by id() of the bytes
        self.of_shared: Tags = np.zeros(0, np.uint64)
        self.shared: Bytes = np.zeros(0, np.uint8)
        self.writers: Tags = np.zeros(0, np.uint64)
        self.causes: Bytes = np.zeros(0, np.uint8)

    def add(self, data: Bytes) -> None:
        """Start tracking stores to a global-memory buffer."""
        self.of_global[id(data)] = np.zeros(-(-len(data) // WORD), np.uint64)

    def address_of(self, data: Bytes) -> int:
        """Return the address of a global buffer's tags for compiled code, or 0 if the buffer has none."""
        tags = self.of_global.get(id(data))
        return 0 if tags is None else tags.ctypes.data

    def begin(self, shared: Bytes, writers: Tags, causes: Bytes) -> None:
        """Start a new batch: its shared memory, its warps, and the array that records causes."""
        self.shared, self.writers, self.causes = shared, writers, causes
        words = -(-len(shared) // WORD)
        if len(self.of_shared) < words:
            self.of_shared = np.zeros(words, np.uint64)

    def forget(self) -> None:
        """Forget all stores."""
        for tags in (*self.of_global.values(), self.of_shared):
            tags[...] = 0

    def store(
        self, inst: int, buffer: Bytes, offsets: Numbers, codes: NDArray[Any], threads: Numbers, cause: InexactCause
    ) -> None:
        """Store codes [lanes, count] at byte offsets in a buffer, and tag the words.

        `cause` is recorded if lanes of one instruction store different bytes to the same address.
        """
        rows = threads // LANES
        is_shared = buffer is self.shared
        tags = self.of_shared if is_shared else self.of_global.get(id(buffer))
        if tags is None:
            elements(buffer, codes.dtype)[places_of(offsets, codes)] = codes
            return
        mine = self.writers[rows][:, None]
        access = TaggedStore(tags, buffer, offsets, codes, threads, mine, is_shared=is_shared)
        if access.claim():
            self.causes[inst] |= cause if access.put() else 0
            return
        # one warp at a time; in shared memory, warps of different blocks cannot overlap
        turns = self.writers[rows] & np.uint64(WARP_FIELD) if is_shared else rows
        for turn in np.unique(turns):
            part = access.part(turns == turn)
            self.causes[inst] |= InexactCause.OVERLAPPING_STORES if part.replace_tags() else 0
            self.causes[inst] |= cause if part.put() else 0


class TaggedStore:
    """The stores of one instruction: their offsets, and the tags of the affected words."""

    def __init__(
        self,
        tags: Tags,
        buffer: Bytes,
        offsets: Numbers,
        codes: NDArray[Any],
        threads: Numbers,
        mine: Tags,
        *,
        is_shared: bool,
    ) -> None:
        """Compute the words that each lane stores to, and the mask of stored bytes in each word."""
        self.tags, self.buffer, self.offsets, self.codes = tags, buffer, offsets, codes
        self.threads, self.mine, self.is_shared = threads, mine, is_shared
        self.cells, self.at = elements(buffer, codes.dtype), places_of(offsets, codes)
        size = self.size = codes.dtype.itemsize * codes.shape[1]
        self.is_narrow = size < WORD
        self.words = offsets[:, None] // WORD + np.arange(max(1, size // WORD))
        self.masks = np.full((1, 1), WORD_BYTES, np.uint64)
        if self.is_narrow:
            self.masks = (np.uint64((1 << size) - 1) << (offsets & (WORD - 1)).astype(np.uint64))[:, None]

    def part(self, which: slice | Mask) -> TaggedStore:
        """Return the stores of the selected lanes."""
        codes, threads, mine = self.codes[which], self.threads[which], self.mine[which]
        return TaggedStore(self.tags, self.buffer, self.offsets[which], codes, threads, mine, is_shared=self.is_shared)

    def foreign(self, before: Tags) -> Mask:
        """Return a mask of the words that another warp stored to, with no barrier or wait since."""
        differences = before ^ self.mine
        foreign = (differences < (1 << INTERVAL_SHIFT)) & ((differences & np.uint64(WARP_FIELD)) != 0)
        if not self.is_shared:
            has_waited = self.mine >> np.uint64(HAS_WAITED_SHIFT) != 0
            foreign |= ((differences & np.uint64(BLOCK_FIELD)) != 0) & ~has_waited
        return foreign & ((before & self.masks) != 0)

    def claim(self) -> bool:
        """Tag all words and return True, or return False if a word has a foreign tag or two warps store to it."""
        before = self.tags[self.words]
        if self.foreign(before).any():
            return False
        self.tag(before, slice(None))
        if ((self.tags[self.words] ^ self.mine) > WORD_BYTES).any():
            self.tags[self.words] = before
            return False
        return True

    def tag(self, before: Tags, which: slice | Mask) -> None:
        """Tag the selected words, merging the bytes that the same warp has stored since the last barrier."""
        mine, masks = (np.broadcast_to(array, before.shape)[which] for array in (self.mine, self.masks))
        words, before = self.words[which], before[which]
        if self.is_narrow:
            kept = np.where((before ^ mine) <= WORD_BYTES, before & np.uint64(WORD_BYTES), np.uint64(0))
            self.tags[words] = mine | kept
            np.bitwise_or.at(self.tags, words, masks)  # lanes may share a word
        else:
            self.tags[words] = mine | masks

    def put(self) -> bool:
        """Store the codes; return True if lanes stored different bytes to the same address."""
        self.cells[self.at] = self.codes
        if not (self.cells[self.at] != self.codes).any():
            return False
        together = min(LANES, SERVED_BYTES // self.size)
        # store the first lane of each group last, so that its value remains
        order = np.argsort(self.threads ^ (together - 1), kind="stable")
        self.cells[self.at[order]] = self.codes[order]
        return True

    def replace_tags(self) -> bool:
        """Tag the words of a warp; return True if its stores overwrite different bytes of an unordered store."""
        before = self.tags[self.words]
        foreign, overlap = self.foreign(before), before & self.masks
        changed = np.ascontiguousarray(self.cells[self.at] ^ self.codes)
        if self.is_narrow:
            shift = 8 * (self.offsets & (WORD - 1))[:, None]
            changed = changed.view(f"u{self.size}").astype(np.uint32) << shift.astype(np.uint32)
        else:
            changed = changed.view(np.uint32)
        replaced = foreign & ((changed & SPREAD[overlap]) != 0)
        equal = foreign & ~replaced & (overlap == self.masks)
        if self.is_narrow and equal.any() and not equal.all():  # lanes may share a word: tag them one by one
            by_lane = [self.part(slice(lane, lane + 1)).replace_tags() for lane in range(len(self.codes))]
            return any(by_lane)
        self.tag(before, ~equal)
        return bool(replaced.any())


def elements(buffer: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of a buffer as elements of a different size, dropping the bytes that do not fill an element."""
    if dtype.itemsize == 1:
        return buffer
    return buffer[: len(buffer) // dtype.itemsize * dtype.itemsize].view(dtype)


def places_of(offsets: Numbers, codes: NDArray[Any]) -> Numbers:
    """Return the element indices of codes [lanes, count] at the given byte offsets."""
    return offsets[:, None] // codes.dtype.itemsize + np.arange(codes.shape[1])
