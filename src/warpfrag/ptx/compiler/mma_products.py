"""The mma of a warp as the tiles of one product, which many warps issue together.

Several mma are the tiles of one product where each A is multiplied with each B once; mma after mma on the same
accumulators are one product with a longer K. Which warps hold the same A or B is seen by comparing registers. What
happens then is in `pending_products`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.isa.legality import form_of
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.frozen import frozen_dataclass
from warpfrag.ptx.compiler.pending_products import UNIT_WORDS, OperandCodes, OperandUnits, PendingProduct, TilePlaces
from warpfrag.ptx.interpreter.matrix_instructions import matrix_name
from warpfrag.ptx.program.program import Register, VectorOperand
from warpfrag.tensorcore.prepared import PreparedInstruction, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfrag.ptx.compiler.pending_products import PendingProducts
    from warpfrag.ptx.compiler.warp_code import RegisterLayout
    from warpfrag.ptx.program.program import DecodedInstruction, PtxOperand
    from warpfrag.tensorcore.prepared import OperandCodec

    Index = NDArray[np.int64]

UNITS_OF_REGISTER = np.arange(0, LANES * 4 // 8, UNIT_WORDS)  # the words at which those of 32 bits begin


@frozen_dataclass
class RegisterTile:
    """Where the codes of an operand of a warp's product lie in its registers, [rows, cols]."""

    dtype: np.dtype[Any]
    index: Index
    units: Index  # of 16 bytes, all of them: the 64-bit words at which they begin, [1, units]

    def read(self, buffer: NDArray[np.uint8], rows: Index) -> NDArray[Any]:
        """Gather the codes of some warps, [warps, rows, cols]."""
        from warpfrag.ptx.compiler.loops import take

        out = np.empty((len(rows), *self.index.shape), np.uint32 if self.dtype.itemsize <= 4 else self.dtype)
        take.run(buffer.view(self.dtype), rows, self.index.reshape(-1), out.reshape(len(rows), -1))
        return out

    def units_of(self, buffer: NDArray[np.uint8], rows: Index) -> OperandUnits:
        """The registers of some warps that hold it."""
        return OperandUnits(
            buffer.reshape(-1).view(np.uint64), rows * (buffer.shape[1] // 8), self.units, np.zeros(len(rows), np.int64)
        )


@frozen_dataclass
class Tiling:
    """Several mma as the tiles of one product."""

    runner: PreparedInstruction
    a: RegisterTile
    b: RegisterTile
    c: TilePlaces
    d: TilePlaces

    @staticmethod
    def of(parts: list[list[DecodedInstruction]], layout: RegisterLayout, arch: str) -> Tiling | None:
        """The product of some steps, part after part along K; None where they are not its tiles."""
        runner = prepare(form_of(matrix_name(parts[0][0])), arch)
        grids = [grid_of(steps) for steps in parts]
        along_a, along_b = [], []
        for number, grid in enumerate(grids):
            if grid is None or grids[0] is None or (len(grid), len(grid[0])) != (len(grids[0]), len(grids[0][0])):
                return None
            before = grids[number - 1] if number else None
            if before is not None and operands_of(grid, is_result=False) != operands_of(before, is_result=True):
                return None
            along_a.append(tile_of(runner.a, [[line[0].sources[0]] for line in grid], layout))
            along_b.append(tile_of(runner.b, [[step.sources[1] for step in grid[0]]], layout))
        first, last = grids[0], grids[-1]
        if first is None or last is None or (len(parts) > 1 and runner.kernels.rule.c != runner.kernels.rule.d):
            return None
        a, b = join(along_a, 1), join(along_b, 0)
        c = tile_of(runner.c, operands_of(first, is_result=False), layout)
        d = tile_of(runner.d, operands_of(last, is_result=True), layout)
        fills = runner.d.size * runner.d.container.itemsize == 4 * prod(runner.d.words)  # no code is there twice
        if a is None or b is None or c is None or d is None or not fills:
            return None
        of_c, of_d = TilePlaces(c.index, c.dtype), TilePlaces(d.index, d.dtype)
        is_in_place = c.dtype == d.dtype and np.array_equal(c.index, d.index)
        return Tiling(runner, a, b, of_c, of_c if is_in_place else of_d)

    def issue(self, products: PendingProducts, rows: Index, accumulators: frozenset[int]) -> None:
        """Issue the product of some warps."""
        has_c = np.ones(len(rows), np.bool_)
        product = PendingProduct(self.runner.kernels, accumulators, rows, self.c, self.d, has_c)
        operands = []
        for role, tile in (("a", self.a), ("b", self.b)):
            units = tile.units_of(products.buffer, rows)
            sharing = products.find_different(accumulators, role, units)
            operands.append(OperandCodes(tile.read(products.buffer, rows[sharing.different]), sharing.which))
        products.issue(product, *operands)


def tilings_of(
    parts: list[list[DecodedInstruction]], layout: RegisterLayout, arch: str, *, is_chain: bool
) -> list[tuple[Tiling | None, list[DecodedInstruction]]]:
    """All parts as one product, if they are a chain, or else each as one, with its steps where it is none."""
    whole = Tiling.of(parts, layout, arch) if is_chain else None
    if whole is not None:
        return [(whole, [])]
    return [(Tiling.of([steps], layout, arch), steps) for steps in parts]


def grid_of(steps: list[DecodedInstruction]) -> list[list[DecodedInstruction]] | None:
    """Steps by their A and B, [rows][columns]; None where not each A is multiplied with each B once."""
    all_a, all_b = (list(dict.fromkeys(step.sources[place] for step in steps)) for place in (0, 1))
    tiles = {(all_a.index(step.sources[0]), all_b.index(step.sources[1])): step for step in steps}
    if not len(tiles) == len(steps) == len(all_a) * len(all_b):
        return None
    return [[tiles[row, column] for column in range(len(all_b))] for row in range(len(all_a))]


def operands_of(grid: list[list[DecodedInstruction]], *, is_result: bool) -> list[list[PtxOperand]]:
    """C or D of every tile."""
    return [[step.results[0] if is_result else step.sources[2] for step in line] for line in grid]


def join(parts: list[RegisterTile | None], axis: int) -> RegisterTile | None:
    """Parts along K as one operand."""
    tiles = [tile for tile in parts if tile is not None]
    if len(tiles) != len(parts):
        return None
    index = np.concatenate([tile.index for tile in tiles], axis=axis)
    return RegisterTile(tiles[0].dtype, index, np.concatenate([tile.units for tile in tiles], axis=1))


def tile_of(port: OperandCodec, grid: list[list[PtxOperand]], layout: RegisterLayout) -> RegisterTile | None:
    """Where the codes of a grid of fragments lie; None where a fragment is not in 32-bit registers that it fills."""
    if not port.fills_bytes or len(port.shape) != 2:
        return None
    dtype = np.dtype(port.container)
    lines, used = [], []
    for operands in grid:
        blocks = []
        for operand in operands:
            items = operand.items if isinstance(operand, VectorOperand) else (operand,)
            registers = [item for item in items if isinstance(item, Register) and item.bits == 32]
            if len(registers) != len(items) or len(items) != port.words[-1]:
                return None
            starts = np.array([layout.offsets[register.index] for register in registers], np.int64)
            lane, rest = np.divmod(np.asarray(port.first_places, np.int64), 4 // dtype.itemsize * len(items))
            word, part = np.divmod(rest, 4 // dtype.itemsize)
            blocks.append(((starts[word] + 4 * lane) // dtype.itemsize + part).reshape(port.shape))
            used.append((starts[:, None] // 8 + UNITS_OF_REGISTER).reshape(-1))
        lines.append(np.concatenate(blocks, axis=1))
    return RegisterTile(dtype, np.ascontiguousarray(np.concatenate(lines, axis=0)), np.concatenate(used)[None])
