"""ldmatrix and stmatrix for an operand: the registers each matrix moves, and the addresses of its lines.

A mover reads lines of 16 bytes, one for each address, and its layout says which lane, register and bit each part of a
line goes to. The operand's layout says which element it wants there. So each part tells where its line must start in
the matrix. If all parts of every line agree, the mover serves, and the starts say which lane gives which address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import permutations, product
from typing import NamedTuple

from warpfrag.isa.operands import REGISTER_BITS, OperandSpec
from warpfrag.layout.coordinates import LANES
from warpfrag.plans.access_plan import Access
from warpfrag.smem.shared_memory import Memory, Order
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import find


class LineStart(NamedTuple):
    """The first element of a line."""

    row: int
    col: int


class LinePart(NamedTuple):
    """Some bits of a line, from bit `at` on, and the register that receives them."""

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
    """Return the start of the line of each lane that passes an address; None if parts of a line contradict each other.

    The registers of the mover are these of the operand, from the first on unless `regs` has others. The matrix is
    contiguous along its rows, or in `col` order along its columns. Of a warpgroup it is what one `warp` moves.
    """
    unit = moved(mover).spec
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
    unit = moved(mover).spec.container
    parts = []
    for lane, reg, bit in product(range(layout.lanes), range(layout.regs), range(0, REGISTER_BITS, step)):
        slot, inside = divmod(bit, unit)
        place = layout.at(lane=lane, reg=reg, slot=slot)
        giver = givers[place.matrix, getattr(place, line_dim)]
        parts.append(LinePart(lane, reg, bit, giver, getattr(place, along) * unit + inside))
    return tuple(parts)


LINE = 16  # bytes


class MatrixLines(NamedTuple):
    """The registers that one matrix of a mover moves, and by warp the first element of each line."""

    regs: tuple[int, ...]
    starts: tuple[tuple[LineStart, ...], ...]


@lru_cache(maxsize=32)
def element_addresses(memory: Memory, shape: tuple[int, int], bits: int) -> list[list[int]]:
    """The byte in which each element of a matrix starts; without numpy, so that look-ups stay quick."""
    rows, cols = map(range, shape)
    matrix_shape = shape if memory.pitch is None else None  # which nobody else asks for, and every element would check
    return [[memory.address(row=row, col=col, bits=bits, shape=matrix_shape) for col in cols] for row in rows]


def matrix_accesses(
    operand: OperandSpec, memory: Memory, op: str, *, packed: bool = False
) -> Iterator[tuple[Instruction, tuple[Access, ...]]]:
    """Yield each mover of a single matrix that serves an operand, and the accesses of its group.

    With `packed`, those that unpack elements of 4 or 6 bits.
    """
    for movers in _kinds(op):
        unit = moved(movers[-1]).spec
        if packed != bool(movers[0].form.memory) or (packed and unit.format.bits != operand.format.bits):
            continue
        matrices = _matrices(movers[-1], operand, memory.order)
        lines = [_line_addresses(matrix, operand, memory) for matrix in matrices]
        if lines and all(lines):
            yield movers[-1], tuple(_joined(movers, matrices, lines))


@cache
def _kinds(op: str) -> tuple[tuple[Instruction, ...], ...]:
    """Return groups of movers that differ only in their number of matrices, the most first."""
    by_kind: dict[object, list[Instruction]] = {}
    for mover in find(op=op):
        if not moved(mover).spec.unknown:
            form = mover.form
            by_kind.setdefault((form.shape, form.trans, form.memory), []).append(mover)
    return tuple(tuple(sorted(some, key=lambda mover: -mover.form.num)) for some in by_kind.values())


@cache
def _matrices(mover: Instruction, operand: OperandSpec, order: Order) -> tuple[MatrixLines, ...]:
    """Return the matrices that the registers of an operand form, for a mover of one matrix; () if some do not."""
    left, matrices = list(range(operand.layout.regs)), []
    while left:
        some = permutations(left, moved(mover).layout.regs)
        tried = (_matrix(mover, operand, order, regs) for regs in some if left[0] in regs)
        matrix = next(filter(None, tried), None)
        if matrix is None:
            return ()
        matrices.append(matrix)
        left = [reg for reg in left if reg not in matrix.regs]
    return tuple(matrices)


def _matrix(mover: Instruction, operand: OperandSpec, order: Order, regs: tuple[int, ...]) -> MatrixLines | None:
    """Return the matrix that some registers form in every warp; None if they do not."""
    starts = []
    for warp in range(operand.layout.ins.get("warp", 1)):
        of_warp = line_starts(mover, operand, order, regs, warp)
        if not of_warp:
            return None
        starts.append(of_warp)
    return MatrixLines(regs, tuple(starts))


def _line_addresses(matrix: MatrixLines, operand: OperandSpec, memory: Memory) -> list[list[int]]:
    """The address of each line, by warp; none where some line is not 16 aligned bytes side by side."""
    addresses = [_warp_addresses(starts, operand, memory) for starts in matrix.starts]
    return addresses if all(addresses) else []


def _warp_addresses(starts: tuple[LineStart, ...], operand: OperandSpec, memory: Memory) -> list[int]:
    bits, (rows, cols) = operand.container, operand.layout.shape
    addresses = element_addresses(memory, (rows, cols), bits)
    line_addresses = []
    for row, col in starts:
        inside = range(0, LINE * 8 // bits, max(1, 8 // bits))  # elements that start a byte
        places = [(row, col + at) if memory.contiguous == "col" else (row + at, col) for at in inside]
        if not all(0 <= row < rows and 0 <= col < cols for row, col in places):
            return []
        there = [addresses[row][col] for row, col in places]
        if there[0] % LINE or there != [there[0] + at * bits // 8 for at in inside]:
            return []
        line_addresses.append(there[0])
    return line_addresses


def _joined(
    movers: tuple[Instruction, ...], matrices: tuple[MatrixLines, ...], lines: list[list[list[int]]]
) -> Iterator[Access]:
    """Yield the fewest instructions that move the matrices."""
    first = 0
    while first < len(matrices):
        mover = next(mover for mover in movers if first + mover.form.num <= len(matrices))
        some = slice(first, first + mover.form.num)
        addresses: list[int | None] = []
        for warp in range(len(lines[0])):
            of_warp = [address for matrix in lines[some] for address in matrix[warp]]
            addresses += [*of_warp, *[None] * (LANES - len(of_warp))]
        words = tuple(reg for matrix in matrices[some] for reg in matrix.regs)
        yield Access(mover.name, words, tuple(addresses), LINE)
        first += mover.form.num
