"""What ldmatrix and stmatrix move for an operand: found, and at once proven, by following every bit of every register.

A mover reads lines of 16 bytes, one for each address, and its layout says which lane, register and bit each part of a
line goes to. The operand's layout says which element it wants there. So each part tells where its line must start in
the matrix. If all parts of every line agree, the mover serves, and the starts say which lane gives which address.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from warpfrag.isa.operands import REGISTER_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.isa.operands import OperandSpec
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand


class LineStart(NamedTuple):
    """The first element of a line."""

    row: int
    col: int


class LinePart(NamedTuple):
    """Some bits of a line, from bit `at` on, and where the mover puts them."""

    lane: int
    reg: int
    bit: int
    giver: int  # the lane that gives the address of the line
    at: int


def moved(mover: Instruction) -> Operand:
    """The register operand of ldmatrix or stmatrix."""
    operand: Operand = mover.a if mover.op == "stmatrix" else mover.d
    return operand


def line_starts(
    mover: Instruction, operand: OperandSpec, order: str, regs: Sequence[int] | None = None, warp: int = 0
) -> tuple[LineStart, ...] | None:
    """Where the line of each lane that gives an address starts; None where parts of a line contradict each other.

    The registers of the mover are these of the operand, from the first on unless `regs` has others. The matrix is
    contiguous along its rows, or in `col` order along its columns. Of a warpgroup it is what one `warp` moves.
    """
    unit = moved(mover).row
    taken = range(unit.layout.regs) if regs is None else regs
    if unit.unknown or operand.container > REGISTER_BITS or max(taken) >= operand.layout.regs:
        return None
    starts: dict[int, LineStart] = {}
    held = {"warp": warp} if "warp" in operand.layout.ins else {}
    for part in _parts(mover, min(unit.container, operand.container)):
        slot, bit_wanted = divmod(part.bit, operand.container)
        row, col = operand.layout.at(**held, lane=part.lane, reg=taken[part.reg], slot=slot)
        passed, bit_there = divmod(part.at, operand.container)
        start = LineStart(row, col - passed) if order == "row" else LineStart(row - passed, col)
        if bit_there != bit_wanted or starts.setdefault(part.giver, start) != start:
            return None
    return tuple(start for _, start in sorted(starts.items()))


@cache
def _parts(mover: Instruction, step: int) -> tuple[LinePart, ...]:
    """Every register that a mover fills, `step` bits at a time."""
    layout, addresses = moved(mover).layout, mover.addresses
    if addresses is None:
        return ()
    line_dim = addresses.dims[1]
    along = "col" if line_dim == "row" else "row"
    givers = {tuple(addresses.at(lane=lane)): lane for lane in range(addresses.lanes)}
    unit = moved(mover).row.container
    parts = []
    for lane, reg, bit in product(range(layout.lanes), range(layout.regs), range(0, REGISTER_BITS, step)):
        slot, inside = divmod(bit, unit)
        place = layout.at(lane=lane, reg=reg, slot=slot)
        giver = givers[place.matrix, getattr(place, line_dim)]
        parts.append(LinePart(lane, reg, bit, giver, getattr(place, along) * unit + inside))
    return tuple(parts)
