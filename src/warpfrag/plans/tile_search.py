"""Tiles of a given width in shared memory that are written and read without bank conflicts.

A tile has lines of `width` bytes, as a block of threads copies them from global memory, and is read in fragments:
`ldmatrix` reads eight lines of 16 bytes at once, those of eight rows at one place along the width. Both sides count:
padding or a swizzle that spares the reads conflicts may give them to the writes. A swizzle is an exclusive or of the
number of a 16-byte chunk with some bits of the row, so that CUDA code can compute it in one line. A width that is no
multiple of 16 fills its last chunk in part; lines still start at multiples of 16, as `ldmatrix` and `cp.async` ask.

    >>> best = search_tiles(128)[0]
    >>> best.pitch, best.formula
    (128, 'row * 128 + (chunk ^ (row & 7)) * 16')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import LANES
from warpfrag.smem.shared_memory import is_whole

CHUNK = 16  # bytes of a line of a matrix, of a vector store and of cp.async
BANK, BANKS = 4, 32
PHASE = BANK * BANKS // CHUNK  # threads whose 16 bytes shared memory takes in one pass
MAX_PADDING = 8  # chunks
MASKS = (0, 1, 3, 7)
SHIFTS = (0, 1, 2, 3)
TMA_SWIZZLES = {(1, 2): 32, (3, 1): 64, (7, 0): 128}
"""The swizzles of TMA and wgmma by their masks and shifts, as bytes: the width that they need."""


@dataclass(frozen=True)
class TileMemory:
    """A tile in memory: lines `pitch` bytes apart, chunk c of row r at c ^ (r >> shift & mask).

    `read`, `copied` and `stored` are the passes beyond those that cannot be avoided, of a tile of 64 rows: read by
    ldmatrix, written by cp.async or 16-byte stores, and by 4-byte stores. `tma` is the swizzle with which TMA writes
    it, in bytes, or None if it cannot.
    """

    width: int
    pitch: int
    mask: int
    shift: int
    read: int
    copied: int
    stored: int
    tma: int | None

    @property
    def conflicts(self) -> int:
        """Extra passes: of the reads, and of the cheapest kind of write."""
        return self.read + (0 if self.tma is not None else min(self.copied, self.stored))

    @property
    def formula(self) -> str:
        """The byte offset of a 16-byte chunk of a row, as CUDA C++ writes it."""
        if not self.mask:
            return f"row * {self.pitch} + chunk * {CHUNK}"
        row = f"(row >> {self.shift})" if self.shift else "row"
        return f"row * {self.pitch} + (chunk ^ ({row} & {self.mask})) * {CHUNK}"

    def offset(self, row: int, chunk: int) -> int:
        """Return the first byte of a chunk of a row."""
        return row * self.pitch + (chunk ^ (row >> self.shift & self.mask)) * CHUNK

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary for JSON."""
        counts = {"read": self.read, "copied": self.copied, "stored": self.stored, "tma": self.tma}
        return {"pitch": self.pitch, "mask": self.mask, "shift": self.shift, "formula": self.formula, **counts}


ROWS = 64  # of a tile: every pattern repeats within them
MAX_WIDTH = 227 * 1024 // ROWS  # bytes: such a tile fills the shared memory of an sm_90 block


def search_tiles(width: int, pitch: int | None = None) -> list[TileMemory]:
    """Return pitches and swizzles for lines of `width` bytes, the fewest conflicts first, then the least memory.

    Of several with equal conflicts and pitch, only the simplest swizzle is returned.
    """
    for name, number, unit in (("width", width, BANK), ("pitch", CHUNK if pitch is None else pitch, CHUNK)):
        if not is_whole(number) or not 0 < number <= MAX_WIDTH or number % unit:
            raise InvalidOperand(
                f"{name}: expected a multiple of {unit} bytes, at most {MAX_WIDTH}; got {quote(number)}"
            )
    if pitch is not None and pitch < width:
        raise InvalidOperand(f"pitch: expected at least the width of {width} bytes, got {pitch}")
    filled = _chunks(width) * CHUNK
    pitches = [filled + CHUNK * extra for extra in range(MAX_PADDING + 1)] if pitch is None else [pitch]
    best: dict[tuple[int, int, int | None], TileMemory] = {}
    for candidate in (tile for each in pitches for tile in _tiles(width, each)):
        best.setdefault((candidate.pitch, candidate.conflicts, candidate.tma), candidate)
    return sorted(best.values(), key=lambda tile: (tile.conflicts, tile.pitch, tile.mask, tile.shift))


def _chunks(width: int) -> int:
    """Return the number of chunks of a line; the last may be filled in part."""
    return -(-width // CHUNK)


def _tiles(width: int, pitch: int) -> Iterator[TileMemory]:
    chunks, slots = _chunks(width), pitch // CHUNK
    for mask, shift in product(MASKS, SHIFTS):
        if (not mask and shift) or any((chunk ^ bits) >= slots for chunk in range(chunks) for bits in range(mask + 1)):
            continue  # one without a swizzle, and none that leaves its line
        bare = TileMemory(width, pitch, mask, shift, 0, 0, 0, _tma(width, pitch, mask, shift))
        reads = [
            [bare.offset(row + line, chunk) for line in range(PHASE)]
            for row in range(0, ROWS, PHASE)
            for chunk in range(chunks)
        ]
        order = [bare.offset(row, chunk) for row in range(ROWS) for chunk in range(chunks)]
        copies = [order[first : first + PHASE] for first in range(0, len(order), PHASE)]
        words = [
            bare.offset(row, byte // CHUNK) + byte % CHUNK for row in range(ROWS) for byte in range(0, width, BANK)
        ]
        stores = [words[first : first + LANES] for first in range(0, len(words), LANES)]
        counts = [
            sum(_passes(some, size) - 1 for some in part)
            for part, size in ((reads, CHUNK), (copies, CHUNK), (stores, BANK))
        ]
        read, copied, stored = counts
        yield replace(bare, read=read, copied=copied, stored=stored)


def _tma(width: int, pitch: int, mask: int, shift: int) -> int | None:
    """Return the swizzle with which TMA writes this tile; None if lines have gaps or do not fill the swizzle."""
    if pitch != width:
        return None
    if not mask:
        return 0
    swizzle = TMA_SWIZZLES.get((mask, shift))
    return swizzle if swizzle == width else None


def _passes(starts: Iterable[int], size: int) -> int:
    """Return the number of passes for parts of `size` bytes: the most that one bank has to serve."""
    return max(Counter(start // size % (BANK * BANKS // size) for start in set(starts)).values())
