"""The operands of every mma that a kernel executes, compared with the tiles of the matrices that it should multiply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Finding
from warpfrag.errors import InvalidOperand
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.machine.debugger.debugger import Debugger

MAX_STOPS = 256  # executed mma instructions that are compared
MAX_TILES = 256  # tiles of A or B that a wrong operand is compared with


@dataclass(frozen=True)
class MmaOperand:
    """One operand of an executed mma: the tile that it should hold, and the mistakes that turn one into the other.

    `row` and `col` are the tile's first row and column; they are -1 if no mistake explains the registers.
    """

    role: str
    row: int
    col: int
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        """Return one line: the tile and the first mistake."""
        name = self.role.upper()
        if self.row < 0:
            return f"{name}: no tile of the matrix, and no mistake that is known, gives these registers"
        tile = f"the tile of {name} at row {self.row}, column {self.col}"
        return f"{self.findings[0]} ({tile})" if self.findings else f"{name}: correct: {tile}"


@dataclass(frozen=True)
class ExecutedMma:
    """An mma that one warp executes: its source line, its instruction, and its operands."""

    source: str
    instruction: str
    block: tuple[int, int, int]
    warp: int
    operands: tuple[MmaOperand, ...]

    @property
    def is_correct(self) -> bool:
        """True if every operand is a tile of its matrix, and both tiles have the same k."""
        a, b = self.operands
        return min(a.row, b.row) >= 0 and not a.findings and not b.findings and a.col == b.row


def executed_mmas(debugger: Debugger, matrices: dict[str, NDArray[Any]]) -> Iterator[ExecutedMma]:
    """Run a kernel and yield each mma of its warps, compared with the intended A and B."""
    lines = {inst.line for inst in debugger.program.instructions if _is_mma(inst.action)}
    if not lines:
        raise InvalidOperand(f"{debugger.program.name} has no mma instruction")
    for line in sorted(lines):
        debugger.break_at(line)
    for _ in range(MAX_STOPS):
        stop = debugger.run()
        if stop is None:
            return
        instruction = get(debugger.instruction.name)
        for block, warp in stop.warps:
            operands = tuple(
                _compared(operand, debugger.matrix(role, block=block, warp=warp), matrices[role])
                for role, operand in (("a", instruction.a), ("b", instruction.b))
            )
            source = str(stop.source) if stop.source else f"line {stop.line} of the PTX"
            yield ExecutedMma(source, instruction.name, block, warp, operands)


def _is_mma(action: object) -> bool:
    return isinstance(action, MatrixOp) and action.operation == "mma"


def _compared(operand: Operand, held: NDArray[Any], matrix: NDArray[Any]) -> MmaOperand:
    """Return the tile that registers hold or should hold: an equal one, or one that a mistake turns into it."""
    from warpfrag.diagnosis.diagnose import diagnose

    high, wide = operand.shape
    corners = [
        (row, col)
        for row in range(0, matrix.shape[0] - high + 1, high)
        for col in range(0, matrix.shape[1] - wide + 1, wide)
    ]
    tiles = {corner: _tile(matrix, corner, operand.shape) for corner in corners}
    for (row, col), tile in tiles.items():
        if np.array_equal(tile, held):
            return MmaOperand(operand.role, row, col)
    counts = np.sort(held, axis=None)
    likely: Sequence[tuple[int, int]] = sorted(
        tiles, key=lambda corner: int((np.sort(tiles[corner], axis=None) != counts).sum())
    )
    words = operand.pack(held)
    for row, col in likely[:MAX_TILES]:
        findings = diagnose(operand, words, tiles[row, col])
        if findings:
            return MmaOperand(operand.role, row, col, tuple(findings))
    return MmaOperand(operand.role, -1, -1)


def _tile(matrix: NDArray[Any], corner: tuple[int, int], shape: tuple[int, ...]) -> NDArray[Any]:
    row, col = corner
    return matrix[row : row + shape[0], col : col + shape[1]]
