"""The mma of a warp's tile as one product: where each A meets each B once, all operands are prepared only once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic.product import multiply
from warpfrag.arithmetic.protocol import Operands
from warpfrag.ptx.program import Register, Vector
from warpfrag.runner import Runner, find_runner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.native.body import File
    from warpfrag.ptx.program import Operand, Step
    from warpfrag.runner import Port

    Index = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where the codes of an operand of the whole product lie among the registers of a warp, [rows, cols]."""

    dtype: np.dtype[Any]
    index: Index

    def read(self, buffer: NDArray[np.uint8], rows: Index | None) -> NDArray[Any]:
        """Codes [warps, rows, cols]."""
        codes = buffer.view(self.dtype)
        found: NDArray[Any] = np.take(codes if rows is None else codes[rows], self.index, axis=1)
        return found

    def write(self, buffer: NDArray[np.uint8], rows: Index | None, codes: NDArray[Any]) -> None:
        """Put codes [warps, rows, cols] there."""
        target = buffer.view(self.dtype)
        if rows is None:
            target[:, self.index] = codes
        else:
            target[rows[:, None, None], self.index] = codes


@dataclass(frozen=True)
class Tiling:
    """Some mma as the tiles of one product."""

    runner: Runner
    a: Place
    b: Place
    c: Place
    d: Place

    @staticmethod
    def of(steps: list[Step], file: File, arch: str) -> Tiling | None:
        """The product of some steps; None where they are not its tiles."""
        runner = find_runner(str(getattr(steps[0].action, "name", "")), arch)
        all_a, all_b = (list(dict.fromkeys(step.sources[place] for step in steps)) for place in (0, 1))
        tiles = {(all_a.index(step.sources[0]), all_b.index(step.sources[1])): step for step in steps}
        if not isinstance(runner, Runner) or not len(tiles) == len(steps) == len(all_a) * len(all_b):
            return None
        grid = [[tiles[row, column] for column in range(len(all_b))] for row in range(len(all_a))]
        a = places_of(runner.a, [[one] for one in all_a], file)
        b = places_of(runner.b, [all_b], file)
        c = places_of(runner.c, [[step.sources[2] for step in line] for line in grid], file)
        d = places_of(runner.d, [[step.results[0] for step in line] for line in grid], file)
        fills = runner.d.size * runner.d.container.itemsize == 4 * prod(runner.d.words)  # no code is there twice
        return None if a is None or b is None or c is None or d is None or not fills else Tiling(runner, a, b, c, d)

    def run(self, buffer: NDArray[np.uint8], rows: Index | None) -> None:
        """Multiply, for all warps or some."""
        given = [place.read(buffer, rows) for place in (self.a, self.b, self.c)]
        self.d.write(buffer, rows, multiply(self.runner.choice, Operands(*given), 1))


def places_of(port: Port, grid: list[list[Operand]], file: File) -> Place | None:
    """Where the codes of a grid of fragments lie; None where one is not in 32-bit registers that it fills."""
    if not port.fills_bytes or len(port.shape) != 2:
        return None
    dtype = np.dtype(port.container)
    lines = []
    for operands in grid:
        blocks = []
        for operand in operands:
            items = operand.items if isinstance(operand, Vector) else (operand,)
            registers = [one for one in items if isinstance(one, Register) and one.bits == 32]
            if len(registers) != len(items) or len(items) != port.words[-1]:
                return None
            starts = np.array([file.offsets[one.index] for one in registers], np.int64)
            lane, rest = np.divmod(np.asarray(port.first_places, np.int64), 4 // dtype.itemsize * len(items))
            word, part = np.divmod(rest, 4 // dtype.itemsize)
            blocks.append(((starts[word] + 4 * lane) // dtype.itemsize + part).reshape(port.shape))
        lines.append(np.concatenate(blocks, axis=1))
    return Place(dtype, np.concatenate(lines, axis=0))
