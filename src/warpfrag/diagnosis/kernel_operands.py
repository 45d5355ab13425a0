"""Compare the operands of every mma that a kernel executes with the tiles that it should multiply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.diagnosis.findings import Finding
from warpfrag.errors import InvalidOperand
from warpfrag.machine.debugger.debug_views import ptx_operands
from warpfrag.machine.ir.actions import MatrixOp
from warpfrag.machine.ir.program import DecodedInstruction, registers_of
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from warpfrag.machine.debugger.debugger import Debugger

MAX_STOPS = 256  # compared mma instructions
MAX_TILES = 256  # tiles of A or B with which a wrong operand is compared


@dataclass(frozen=True)
class MmaOperand:
    """One operand of an executed mma: the tile that it should hold, and the mistakes that turn one into the other.

    `row` and `col` are the tile's first row and column; they are -1 if no mistake explains the registers. `loaded_at`
    are the source lines of the loads that fill the registers.
    """

    role: str
    row: int
    col: int
    findings: tuple[Finding, ...] = ()
    loaded_at: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line: the tile and the first mistake."""
        name = self.role.upper()
        if self.row < 0:
            reason = "no tile of the matrix, with or without a known mistake, gives these registers"
            return f"{name}: not explained: {reason}; an operand that the kernel computes cannot be judged"
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
    actions = {inst.line: inst.action for inst in debugger.program.instructions}
    lines = [line for line, act in actions.items() if isinstance(act, MatrixOp) and act.operation == "mma"]
    if not lines:
        raise InvalidOperand(f"{debugger.program.name} has no mma instruction")
    for line in sorted(lines):
        debugger.break_at(line)
    for _ in range(MAX_STOPS):
        stop = debugger.run()
        if stop is None:
            return
        instruction = get(debugger.instruction.name)
        loads = {role: _loads(debugger, role) for role in "ab"}
        for block, warp in stop.warps:
            held = {role: debugger.matrix(role, block=block, warp=warp) for role in "ab"}
            compared = [
                _compared(each, held[each.role], matrices[each.role]) for each in (instruction.a, instruction.b)
            ]
            operands = tuple(_from_loads(operand, loads[operand.role], debugger) for operand in compared)
            source = str(stop.source) if stop.source else f"line {stop.line} of the PTX"
            yield ExecutedMma(source, instruction.name, block, warp, operands)


def _loads(debugger: Debugger, role: str) -> list[DecodedInstruction]:
    """Return the loads whose values reach an operand of the next mma through registers."""
    writers: dict[str, list[DecodedInstruction]] = {}
    for inst in debugger.program.instructions:
        for register in (register for result in inst.results for register in registers_of(result)):
            writers.setdefault(register.name, []).append(inst)
    loads: dict[int, DecodedInstruction] = {}
    followed: set[str] = set()
    names = [register.name for register in registers_of(ptx_operands(debugger.instruction)[role])]
    while names:
        name = names.pop()
        for inst in () if name in followed else writers.get(name, ()):
            if inst.name.startswith("ld"):
                loads[inst.line] = inst
            else:
                names += [register.name for source in inst.sources for register in registers_of(source)]
        followed.add(name)
    return [loads[line] for line in sorted(loads)]


def _from_loads(operand: MmaOperand, loads: list[DecodedInstruction], debugger: Debugger) -> MmaOperand:
    """Return an operand with its loads: a finding about 8 x 8 blocks comes last if none of them is ldmatrix."""
    sources = sorted({(debugger.sources.get(inst.line), inst.line) for inst in loads}, key=str)
    lines = (f"line {line} of the PTX" if source is None else str(source) for source, line in sources)
    by_block = [inst.name for inst in loads if inst.name.startswith("ldmatrix")]
    change = "remove .trans from" if any(".trans" in name for name in by_block) else "add .trans to"
    findings = sorted(operand.findings, key=lambda finding: finding.kind == "blocks" and not by_block)
    if by_block and findings and findings[0].fix.startswith("add .trans"):
        findings[0] = replace(findings[0], fix=f"{change} the ldmatrix of {operand.role.upper()}")
    return replace(operand, findings=tuple(findings), loaded_at=tuple(dict.fromkeys(lines)))


def _compared(operand: Operand, held: NDArray[Any], matrix: NDArray[Any]) -> MmaOperand:
    """Return the tile that registers hold, or the tile that a mistake turns into them."""
    from warpfrag.diagnosis.diagnose import diagnose

    high, wide = operand.shape
    tiles = {
        (row, col): matrix[row : row + high, col : col + wide]
        for row in range(0, matrix.shape[0] - high + 1, high)
        for col in range(0, matrix.shape[1] - wide + 1, wide)
    }
    for (row, col), tile in tiles.items():
        if np.array_equal(tile, held):
            return MmaOperand(operand.role, row, col)
    counts = np.sort(held, axis=None)
    likely = sorted(tiles, key=lambda corner: int((np.sort(tiles[corner], axis=None) != counts).sum()))
    words = operand.pack(held)
    for row, col in likely[:MAX_TILES]:
        findings = diagnose(operand, words, tiles[row, col])
        if findings:
            return MmaOperand(operand.role, row, col, tuple(findings))
    return MmaOperand(operand.role, -1, -1)
