"""Find every plan that loads or stores an operand through shared memory, with its addresses and bank conflicts.

The operand's layout gives the element in every register, and the memory gives the address of every element, so the
address of every register byte is known. The search finds the instructions that move exactly those bytes.

- `ldmatrix` and `stmatrix` move lines of 16 bytes, one for each address. Their layout gives the lane, register and bit
  of each part of a line; the operand's layout gives the element that belongs there. Each part thus determines the start
  of its line in the matrix. If all parts of every line agree, the instruction can be used, and the starts are its
  addresses. Both exist for 8 x 8 16-bit elements and, from sm_100a on, for 8-, 6- and 4-bit elements.
- Plain loads and stores move 4, 8 or 16 bytes of one lane if they are adjacent, and otherwise single elements.
- If only a transposed register can be loaded, `movmatrix` transposes it afterwards.

Plans are sorted by cost: the number of instructions and shared-memory passes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import permutations, product
from typing import Literal, NamedTuple

from warpfrag.errors import InvalidOperand, check_flag, quote
from warpfrag.isa.operands import REGISTER_BITS, OperandSpec
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.access_plan import Access, AccessPlan, Direction
from warpfrag.smem.shared_memory import SWIZZLES, Memory, Order
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import Operand
from warpfrag.tensorcore.registry import find


class LineStart(NamedTuple):
    """The first element of a line, as row and column."""

    row: int
    col: int


class LinePart(NamedTuple):
    """A part of a line, starting at bit `at`, and the register that holds it."""

    lane: int
    reg: int
    bit: int
    giver: int  # the lane that passes the address of the line
    at: int


def moved(mover: Instruction) -> Operand:
    """Return the register operand of an ldmatrix or stmatrix instruction."""
    return mover.a if mover.op == "stmatrix" else mover.d


def line_starts(
    mover: Instruction, operand: OperandSpec, order: str, regs: Sequence[int] | None = None, warp: int = 0
) -> tuple[LineStart, ...] | None:
    """Return the first element of each lane's line, or None if the parts of a line contradict each other.

    `regs` are the operand's registers that the instruction moves, by default the first ones. The matrix is contiguous
    along its rows, or along its columns if `order` is "col". In a warpgroup, `warp` selects the warp.
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
    """Return the parts of all registers that ldmatrix or stmatrix moves, each of `step` bits."""
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
        element = layout.at(lane=lane, reg=reg, slot=slot)
        giver = givers[element.matrix, getattr(element, line_dim)]
        parts.append(LinePart(lane, reg, bit, giver, getattr(element, along) * unit + inside))
    return tuple(parts)


LINE = 16  # the size of a line in bytes


class MatrixLines(NamedTuple):
    """The registers of one matrix of ldmatrix or stmatrix, and the first element of each line, by warp."""

    regs: tuple[int, ...]
    starts: tuple[tuple[LineStart, ...], ...]


@lru_cache(maxsize=32)
def element_addresses(memory: Memory, shape: tuple[int, int], bits: int) -> list[list[int]]:
    """Return the first byte of each element of a matrix; without NumPy, so that look-ups stay fast."""
    rows, cols = map(range, shape)
    # `address` would otherwise check the shape for every element
    matrix_shape = shape if memory.pitch is None else None
    return [[memory.address(row=row, col=col, bits=bits, shape=matrix_shape) for col in cols] for row in rows]


def matrix_accesses(
    operand: OperandSpec, memory: Memory, op: str, *, packed: bool = False
) -> Iterator[tuple[Instruction, tuple[Access, ...]]]:
    """Yield each single-matrix ldmatrix or stmatrix that fits an operand, with the accesses of its group.

    With `packed`, yield loads that unpack 4-bit or 6-bit elements.
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
    """Return groups of ldmatrix or stmatrix forms that differ only in the number of matrices, largest first."""
    by_kind: dict[object, list[Instruction]] = {}
    for mover in find(op=op):
        if not moved(mover).spec.unknown:
            form = mover.form
            by_kind.setdefault((form.shape, form.trans, form.memory), []).append(mover)
    return tuple(tuple(sorted(some, key=lambda mover: -mover.form.num)) for some in by_kind.values())


@cache
def _matrices(mover: Instruction, operand: OperandSpec, order: Order) -> tuple[MatrixLines, ...]:
    """Return the matrices that an operand's registers form for a single-matrix instruction, or () if they form none."""
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
    """Return the matrix that these registers form in every warp, or None."""
    starts = []
    for warp in range(operand.layout.ins.get("warp", 1)):
        of_warp = line_starts(mover, operand, order, regs, warp)
        if not of_warp:
            return None
        starts.append(of_warp)
    return MatrixLines(regs, tuple(starts))


def _line_addresses(matrix: MatrixLines, operand: OperandSpec, memory: Memory) -> list[list[int]]:
    """Return the address of each line, by warp; empty if some line is not 16 contiguous, aligned bytes."""
    addresses = [_warp_addresses(starts, operand, memory) for starts in matrix.starts]
    return addresses if all(addresses) else []


def _warp_addresses(starts: tuple[LineStart, ...], operand: OperandSpec, memory: Memory) -> list[int]:
    bits, (rows, cols) = operand.container, operand.layout.shape
    addresses = element_addresses(memory, (rows, cols), bits)
    line_addresses = []
    for row, col in starts:
        inside = range(0, LINE * 8 // bits, max(1, 8 // bits))  # elements that start at a byte boundary
        elements = [(row, col + at) if memory.contiguous == "col" else (row + at, col) for at in inside]
        if not all(0 <= row < rows and 0 <= col < cols for row, col in elements):
            return []
        there = [addresses[row][col] for row, col in elements]
        if there[0] % LINE or there != [there[0] + at * bits // 8 for at in inside]:
            return []
        line_addresses.append(there[0])
    return line_addresses


def _joined(
    movers: tuple[Instruction, ...], matrices: tuple[MatrixLines, ...], lines: list[list[list[int]]]
) -> Iterator[Access]:
    """Yield the smallest number of instructions that move the matrices."""
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


WORD = 4  # the size of a word in bytes
MATRIX_BITS = 16  # the size in bits of the elements that movmatrix transposes
BYTE = 8
PACKED_BITS = (4, 6)
MAX_PADDING = 128  # the largest padding, in bytes, that is tried against bank conflicts


def loads(operand: Operand, memory: Memory, *, packed: bool = False) -> list[AccessPlan]:
    """Return every plan to load an operand, or adjacent tiles of it, from shared memory, cheapest first.

    With `packed`, every 16 bytes of memory start with sixteen adjacent 4-bit or 6-bit elements, as `ldmatrix` with
    `.b4x16_p64` or `.b6x16_p32` expects. Otherwise every element takes as many bits as in a register.
    """
    return _packed(operand, memory) if check_flag("packed", packed) else _plans(operand, memory, "load")


def stores(operand: Operand, memory: Memory) -> list[AccessPlan]:
    """Return every plan to store an operand, or adjacent tiles of it, to shared memory, cheapest first."""
    return _plans(operand, memory, "store")


def search(operand: Operand, order: Literal["row", "col"], direction: Direction = "load") -> list[AccessPlan]:
    """Return the cheapest conflict-free plan for each swizzle, and for the smallest padded pitch without a swizzle."""
    rows, cols = _extents(operand)
    tight = (cols if order == "row" else rows) * operand.spec.container // 8
    pitches = {0: [max(LINE, tight) + pad for pad in range(0, MAX_PADDING + LINE, LINE)]}
    pitches |= {swizzle: [max(swizzle, -(-tight // swizzle) * swizzle)] for swizzle in (32, 64, 128)}
    conflict_free = []
    for swizzle, some in pitches.items():
        for pitch in some:
            plans = _plans(operand, Memory(order, pitch, swizzle), direction)
            if plans and not plans[0].conflicts:
                conflict_free.append(plans[0])
                break
    return conflict_free


def without_conflicts(plan: AccessPlan) -> tuple[tuple[int, int] | None, int | None]:
    """Return the smallest padded pitch, with its padding, and the smallest swizzle that remove a plan's conflicts.

    The plan's instructions stay the same. Each result is None if no such pitch or swizzle exists.
    """
    operand, memory = plan.operand, plan.memory
    rows, cols = _extents(operand)
    pitch = memory.pitch or (cols if memory.order == "row" else rows) * operand.spec.container // 8

    def is_free(changed: Memory) -> bool:
        plans = _plans(operand, changed, plan.direction)
        return any(other.name == plan.name and not other.conflicts for other in plans)

    pads = range(WORD, MAX_PADDING + WORD, WORD)
    padding = next(((pitch + pad, pad) for pad in pads if is_free(replace(memory, pitch=pitch + pad))), None)
    widths = (width for width in SWIZZLES if width <= pitch)
    return padding, next((width for width in widths if is_free(replace(memory, pitch=pitch, swizzle=width))), None)


def _extents(operand: Operand) -> tuple[int, int]:
    if not isinstance(operand, Operand):
        raise InvalidOperand(f"expected an operand such as mma.b or mma.b.tiled(col=2), got {quote(operand)}")
    if operand.layout.dims != ("row", "col"):
        axes = ", ".join(operand.layout.dims)
        raise InvalidOperand(f"{operand.description} is not a single matrix in registers: it has {axes}")
    return operand.layout.outs["row"], operand.layout.outs["col"]


def _check(operand: Operand, memory: Memory) -> None:
    _extents(operand)
    if not isinstance(memory, Memory):
        raise InvalidOperand(f"expected a wf.Memory, which describes the matrix in shared memory; got {quote(memory)}")


def _packed(operand: Operand, memory: Memory) -> list[AccessPlan]:
    """Return the plans with an unpacking ldmatrix, which puts codes into the low bits; some operands need a shift."""
    _check(operand, memory)
    if operand.format.bits not in PACKED_BITS or operand.spec.container != BYTE:
        raise InvalidOperand(
            f"packed needs 4-bit or 6-bit elements in bytes, such as A of kind::f8f6f4; {operand.description} has none"
        )
    every = matrix_accesses(operand.spec, memory, "ldmatrix", packed=True)
    plans = [AccessPlan(operand, memory, "load", accesses, shift=operand.spec.low) for _, accesses in every]
    return sorted(plans, key=lambda plan: plan.cost)


def _plans(operand: Operand, memory: Memory, direction: Direction) -> list[AccessPlan]:
    _check(operand, memory)
    plans = [*_by_matrix(operand, memory, direction), *_by_words(operand, memory, direction)]
    plans += _by_elements(operand, memory, direction)
    return sorted(plans, key=lambda plan: plan.cost)


@lru_cache(maxsize=32)  # a single search calls this several times
def _elements(layout: Layout) -> list[tuple[tuple[int, int, int], tuple[int, ...]]]:
    """Return the thread, register and slot of every place, with the row and column of the element there."""
    elements = []
    for holder in layout.places():
        held = holder._asdict()
        thread = held.get("warp", 0) * LANES + held["lane"]
        elements.append(((thread, held["reg"], held["slot"]), tuple(layout.at(**held))))
    return elements


class _Bytes:
    """The address of each register byte: of[thread][register] is a list of four addresses, or None."""

    def __init__(self, operand: Operand, memory: Memory) -> None:
        container, register = operand.spec.container, operand.spec.register_bits
        self.words, self.threads = operand.words, math.prod(operand.threads)
        size = max(1, container // 8)
        addresses = element_addresses(memory, _extents(operand), container)
        self.of: list[list[list[int | None]]] = [
            [[None] * WORD for _ in range(self.words)] for _ in range(self.threads)
        ]
        self.whole = True  # True if each register byte comes from a single byte of memory
        for (thread, reg, slot), (row, col) in _elements(operand.layout):
            first = reg * register // 8 + slot * container // 8
            for byte in range(size):
                word, inside = divmod(first + byte, WORD)
                address = addresses[row][col] + byte
                old = self.of[thread][word][inside]
                starts_low = slot * container % 8 == (col if memory.order == "row" else row) * container % 8
                self.whole &= (old is None or old == address) and starts_low
                self.of[thread][word][inside] = address

    def start(self, thread: int, word: int) -> int | None:
        """Return the address of a register's bytes if they are contiguous and aligned, otherwise None."""
        addresses = self.of[thread][word]
        first = addresses[0]
        in_order = first is not None and addresses == [first + byte for byte in range(WORD)]
        return first if in_order and first is not None and first % WORD == 0 else None


@lru_cache(maxsize=32)
def _bytes(operand: Operand, memory: Memory) -> _Bytes:
    return _Bytes(operand, memory)


def _by_matrix(operand: Operand, memory: Memory, direction: Direction) -> Iterator[AccessPlan]:
    """Yield plans with ldmatrix or stmatrix, alone and combined with movmatrix."""
    for mover, accesses in matrix_accesses(operand.spec, memory, "ldmatrix" if direction == "load" else "stmatrix"):
        yield AccessPlan(operand, memory, direction, accesses)
        if mover.form.trans and operand.spec.container == MATRIX_BITS:
            plain = tuple(access._replace(instruction=access.instruction.replace(".trans", "")) for access in accesses)
            yield AccessPlan(operand, memory, direction, plain, transposes=True)


def _by_words(operand: Operand, memory: Memory, direction: Direction) -> Iterator[AccessPlan]:
    """Yield plain loads of 16, 8 and 4 bytes per lane, the widest that fit."""
    where = _bytes(operand, memory)
    starts = [[where.start(thread, word) for thread in range(where.threads)] for word in range(where.words)]
    if not where.whole or any(start is None for word in starts for start in word):
        return
    verb = "ld.shared" if direction == "load" else "st.shared"
    seen = set()
    for max_words in (4, 2, 1):
        left, accesses = list(range(where.words)), []
        while left:
            groups = (_neighbours(left, starts, count) for count in (4, 2, 1) if count <= max_words)
            group = next(filter(None, groups))
            left = [word for word in left if word not in group]
            vector = f".v{len(group)}" if len(group) > 1 else ""
            accesses.append(Access(f"{verb}{vector}.b32", group, tuple(starts[group[0]]), WORD * len(group)))
        if (widths := tuple(access.width for access in accesses)) not in seen:
            seen.add(widths)
            yield AccessPlan(operand, memory, direction, tuple(accesses))


def _neighbours(left: list[int], starts: list[list[int | None]], count: int) -> tuple[int, ...]:
    """Return `count` registers, starting with left[0], whose bytes are contiguous and aligned in every lane, or ()."""
    for first in left:
        group = [first]
        while len(group) < count:
            after = [(start or 0) + WORD for start in starts[group[-1]]]
            following = next((word for word in left if word not in group and starts[word] == after), None)
            if following is None:
                break
            group.append(following)
        aligned = all((start or 0) % (WORD * count) == 0 for start in starts[first])
        if len(group) == count and left[0] in group and aligned:
            return tuple(group)
    return ()


def _by_elements(operand: Operand, memory: Memory, direction: Direction) -> list[AccessPlan]:
    """Return the plan that moves one element at a time, if elements are whole, aligned bytes."""
    size = operand.spec.container // 8
    if not 1 <= size <= WORD:
        return []
    where = _bytes(operand, memory)
    verb = "ld.shared" if direction == "load" else "st.shared"
    accesses = [
        Access(
            f"{verb}.b{8 * size}",
            (word,),
            tuple(where.of[thread][word][slot * size] for thread in range(where.threads)),
            size,
            slot,
        )
        for word in range(where.words)
        for slot in range(WORD // size)
    ]
    aligned = all(not address % size for access in accesses for address in access.addresses if address is not None)
    return [AccessPlan(operand, memory, direction, tuple(accesses))] if size < WORD and aligned else []
