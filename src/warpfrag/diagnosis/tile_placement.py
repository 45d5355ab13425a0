"""Compare the location of each stored tile of D with the tiles of A and B that the kernel's warps multiply.

If a load omits or exchanges a block or warp index, it reads exact tiles of A and B, but from the wrong rows or columns.
The values in D show where each sum is stored. The loads can be right only if the products of every tile of
D are computed, and the stores only if every tile of D is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Finding
from warpfrag.diagnosis.index_maps import terms_text
from warpfrag.grouping import grouped
from warpfrag.layout.coordinates import LANES

if TYPE_CHECKING:
    from warpfrag.machine.debugger.debugger import Debugger
    from warpfrag.machine.interpreter.device_memory import MemoryAccess
    from warpfrag.machine.ir.program import DecodedInstruction

Corner: TypeAlias = tuple[int, int]
WarpAt: TypeAlias = tuple[tuple[int, int, int], int]  # a block, and a warp in it
VARIABLES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "warp")


class TileSum(NamedTuple):
    """A warp, and the first row of A and first column of B that it multiplies."""

    warp: WarpAt
    corner: Corner


class MemoryWrites:
    """The instruction and the warp that last wrote each byte of memory during a launch.

    `filled_by` has the lines of the instructions that filled shared memory, by the line of the load that reads it.
    """

    def __init__(self, debugger: Debugger) -> None:
        """Observe a launch that has not started."""
        self.debugger, debugger.on_access = debugger, self._note
        self.filled_by: dict[int, set[int]] = defaultdict(set)
        self._numbers: dict[tuple[int, WarpAt], int] = {}  # for each writing line and warp, a number from 1
        self._written: dict[int, tuple[NDArray[np.uint8], NDArray[np.int32]]] = {}  # by buffer: last writer by byte

    def _note(self, inst: DecodedInstruction, access: MemoryAccess) -> None:
        buffer, threads = access.buffer, np.asarray(access.threads)
        if not access.writes and buffer is not self.debugger.memory.shared:
            return
        written = self._written.setdefault(id(buffer), (buffer, np.zeros(len(buffer), np.int32)))[1]
        for row in np.unique(threads // LANES).tolist():
            at = access.offsets[threads // LANES == row][:, None] + np.arange(access.size)
            if access.writes:
                key = inst.line, self.debugger.warp_at(row)
                written[at] = self._numbers.setdefault(key, len(self._numbers) + 1)
            else:
                self.filled_by[inst.line] |= {line for line, _ in self._writers(written[at])}

    def _writers(self, numbers: NDArray[np.int32]) -> list[tuple[int, WarpAt]]:
        keys = [*self._numbers]
        return [keys[number - 1] for number in np.unique(numbers).tolist() if number]

    def of(self, array: NDArray[Any]) -> list[tuple[int, WarpAt]]:
        """Return the lines and warps that last stored the elements of an array, which may be a view."""
        for buffer, written in self._written.values():
            start = array.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
            if 0 <= start < len(buffer):
                return self._writers(written[start + np.tensordot(array.strides, np.indices(array.shape), 1)])
        return []


def misplaced(
    tiles: Mapping[Corner, NDArray[Any]], sums: Mapping[TileSum, NDArray[Any]], writes: MemoryWrites
) -> Iterator[Finding]:
    """Yield the loads or stores that explain why tiles of D hold the sums of other tiles, or both if uncertain."""
    dtype = next(iter(tiles.values())).dtype
    by_value = grouped((values.astype(dtype).tobytes(), key) for key, values in sums.items())
    held = {at: by_value.get(tile.tobytes(), []) for at, tile in tiles.items()}
    moved = {at: keys for at, keys in held.items() if keys and all(key.corner != at for key in keys)}
    stored = [TileSum(warp, at) for at, tile in tiles.items() for _, warp in writes.of(tile)]
    unstored = tiles.keys() - {key.corner for key in stored}
    if not moved or any(not keys for at, keys in held.items() if at not in unstored):
        return
    # if warps store other warps' sums, the indices of their own sums are unknown
    is_own = all({key.warp for key in held[at]} & {warp for warp, other in stored if other == at} for at in moved)
    loads, stores, fixes = [], [], []
    for axis, (role, noun) in enumerate((("a", "row"), ("b", "column"))):
        pairs = [(at[axis], keys[0].corner[axis]) for at, keys in moved.items()]
        right, wrong = next((pair for pair in pairs if pair[0] != pair[1]), (0, 0))
        if right != wrong:
            read, written = (_formula(some, axis) if is_own else "" for some in (sums, stored))
            if read == written:
                read, written = f"{wrong} for one tile", f"{right}"
            loads.append((role, f"its first {noun} is {read}, but that of D is {written}"))
            stores.append(f"its first {noun} is {written}, but that of {role.upper()} is {read}")
            fixes.append((f"load {role.upper()} from {noun} {written}", f"store from {noun} {read}"))
    if loads and not unstored:
        text = "; ".join(f"{role.upper()}: {text}" for role, text in loads).partition(": ")[2]
        never = sorted(tiles.keys() - {key.corner for key in sums})
        text += f"; no mma computes the tile of D at row {never[0][0]}, column {never[0][1]}" if never else ""
        yield Finding("index", loads[0][0], text, " and ".join(fix for fix, _ in fixes))
    if stores and {key.corner for key in sums} >= tiles.keys():
        yield Finding("index", "d", "; ".join(stores), " and ".join(fix for _, fix in fixes))


def _formula(points: Iterable[TileSum], axis: int) -> str:
    """Return a C expression for the first row or column of every warp, or "" if it is not a sum over bits."""
    first: dict[WarpAt, int] = {}
    for warp, corner in points:
        first[warp] = min(first.get(warp, corner[axis]), corner[axis])
    numbers = np.array([(*block, warp) for block, warp in first])
    bits = [(number, bit) for number in range(4) for bit in range(int(numbers[:, number].max()).bit_length())]
    table = np.array([[1, *(place[number] >> bit & 1 for number, bit in bits)] for place in numbers])
    start, *steps = (int(step) for step in np.rint(np.linalg.lstsq(table, np.array([*first.values()]))[0]))
    if (table @ [start, *steps] != [*first.values()]).any():
        return ""
    terms = (
        terms_text(name, [step for step, (of, _) in zip(steps, bits, strict=True) if of == number])
        for number, name in enumerate(VARIABLES)
    )
    return " + ".join(filter(None, [*terms, str(start) if start or not any(steps) else ""]))
