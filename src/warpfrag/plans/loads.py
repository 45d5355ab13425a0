"""Between shared memory and a fragment: every plan to load or store an operand, with addresses and bank conflicts.

An operand is a layout, and a memory gives the byte of each element, so the bytes of every register of every lane are
known. It remains to find the instructions that move just those bytes.

- `ldmatrix` and `stmatrix` move lines of 16 bytes. Registers can be moved by them if the bytes that the lanes hold
  make up such lines; with `.trans` other lanes make up a line. The lane whose turn it is gives the address of a line.
  There are those for 8 x 8 elements of 16 bits, and from sm_100a on those for bytes, and for elements of 4 and 6 bits.
- Plain loads and stores move 4, 8 or 16 bytes of one lane, if they lie side by side, or single elements if not.
- Where only a transposed register can be loaded, `movmatrix` turns it afterwards.

Plans come cheapest first, by the instructions and the passes that shared memory takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from warpfrag.errors import InvalidOperand, quote
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.plans.access_plan import Access, AccessPlan, Direction
from warpfrag.plans.matrix_accesses import LINE, element_addresses, matrix_accesses
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.operand import Operand

WORD = 4  # bytes
MATRIX_BITS = 16  # of the elements that movmatrix transposes
BYTE = 8
PACKED_BITS = (4, 6)


def loads(operand: Operand, memory: Memory, *, packed: bool = False) -> list[AccessPlan]:
    """Every plan to fill an operand, or tiles of it side by side, from shared memory; the cheapest first.

    With `packed`, sixteen elements of 4 or 6 bits lie side by side at the start of each 16 bytes of memory, as
    `ldmatrix` with `.b4x16_p64` or `.b6x16_p32` unpacks them; else every element has the container of a register.
    """
    if packed:
        return _packed(operand, memory)
    return _plans(operand, memory, "load")


def stores(operand: Operand, memory: Memory) -> list[AccessPlan]:
    """Every plan to empty an operand, or tiles of it side by side, into shared memory; the cheapest first."""
    return _plans(operand, memory, "store")


def search(operand: Operand, order: Literal["row", "col"], direction: Direction = "load") -> list[AccessPlan]:
    """For each swizzle, and without one for the least padded pitch, the cheapest plan without bank conflicts."""
    rows, cols = _extents(operand)
    tight = (cols if order == "row" else rows) * operand.spec.container // 8
    pitches = {0: [max(LINE, tight) + LINE * extra for extra in range(9)]}
    pitches |= {swizzle: [max(swizzle, -(-tight // swizzle) * swizzle)] for swizzle in (32, 64, 128)}
    conflict_free = []
    for swizzle, some in pitches.items():
        for pitch in some:
            plans = _plans(operand, Memory(order, pitch, swizzle), direction)
            if plans and not plans[0].conflicts:
                conflict_free.append(plans[0])
                break
    return conflict_free


def _extents(operand: Operand) -> tuple[int, int]:
    if not isinstance(operand, Operand):
        raise InvalidOperand(f"expected an operand such as mma.b or mma.b.tiled(col=2), got {quote(operand)}")
    if operand.layout.dims != ("row", "col"):
        axes = ", ".join(operand.layout.dims)
        raise InvalidOperand(f"{operand.description} is no single matrix in the registers of threads: it has {axes}")
    return operand.layout.outs["row"], operand.layout.outs["col"]


def _check(operand: Operand, memory: Memory) -> None:
    _extents(operand)
    if not isinstance(memory, Memory):
        raise InvalidOperand(f"expected a wf.Memory, which describes the matrix in shared memory; got {quote(memory)}")


def _packed(operand: Operand, memory: Memory) -> list[AccessPlan]:
    """Return ldmatrix plans; ldmatrix leaves a code in the low bits of its byte, so some operands need a shift."""
    _check(operand, memory)
    if operand.format.bits not in PACKED_BITS or operand.spec.container != BYTE:
        raise InvalidOperand(
            f"packed is for elements of 4 and 6 bits in bytes, such as A of kind::f8f6f4; {operand.description} has none"
        )
    every = matrix_accesses(operand.spec, memory, "ldmatrix", packed=True)
    plans = [AccessPlan(operand, memory, "load", accesses, shift=operand.spec.low) for _, accesses in every]
    return sorted(plans, key=lambda plan: plan.cost)


def _plans(operand: Operand, memory: Memory, direction: Direction) -> list[AccessPlan]:
    _check(operand, memory)
    plans = [*_by_matrix(operand, memory, direction), *_by_words(operand, memory, direction)]
    plans += _by_elements(operand, memory, direction)
    return sorted(plans, key=lambda plan: plan.cost)


@lru_cache(maxsize=32)  # one question asks several times
def _elements(layout: Layout) -> list[tuple[tuple[int, int, int], tuple[int, ...]]]:
    """Thread, register and slot of every place, and row and column of its element."""
    elements = []
    for place in layout.places():
        held = place._asdict()
        thread = held.get("warp", 0) * LANES + held["lane"]
        elements.append(((thread, held["reg"], held["slot"]), tuple(layout.at(**held))))
    return elements


class _Bytes:
    """The address of each byte of each word of each thread: of[thread][word] has four addresses, or None."""

    def __init__(self, operand: Operand, memory: Memory) -> None:
        container, register = operand.spec.container, operand.spec.register_bits
        self.words, self.threads = operand.words, math.prod(operand.threads)
        size = max(1, container // 8)
        addresses = element_addresses(memory, _extents(operand), container)
        self.of: list[list[list[int | None]]] = [
            [[None] * WORD for _ in range(self.words)] for _ in range(self.threads)
        ]
        self.whole = True  # whether no byte of a register is made of elements from several bytes of memory
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
        """Return the address of a word, if its bytes are adjacent."""
        addresses = self.of[thread][word]
        first = addresses[0]
        in_order = first is not None and addresses == [first + byte for byte in range(WORD)]
        return first if in_order and first is not None and first % WORD == 0 else None


@lru_cache(maxsize=32)
def _bytes(operand: Operand, memory: Memory) -> _Bytes:
    return _Bytes(operand, memory)


def _by_matrix(operand: Operand, memory: Memory, direction: Direction) -> Iterator[AccessPlan]:
    """Yield plans with ldmatrix or stmatrix, alone and with movmatrix after (or before) it."""
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
    """Return `count` words, left[0] among them, that are adjacent and aligned in every lane; () if there are none."""
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
    """Return the plan that moves one element at a time, if an element fills bytes and is aligned."""
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
