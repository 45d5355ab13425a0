"""Between shared memory and a fragment: every way to load or store an operand, with addresses and bank conflicts.

An operand is a layout, a memory says at which byte each element lies: so the bytes of every register of every lane are
known. What remains is to see which instruction moves just those bytes.

- `ldmatrix` and `stmatrix` move lines of 16 bytes. A register can be moved by them if the bytes that its lanes hold
  make up such lines; with `.trans` other lanes make up a line. The lane whose turn it is gives the address of a line.
- Plain loads and stores move 4, 8 or 16 bytes of one lane, if they lie side by side, or single elements if not.
- Where only a transposed register can be loaded, `movmatrix` turns it afterwards.

Ways come cheapest first, by the instructions and the passes that shared memory takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

from warpfrag.errors import InvalidOperand, shown
from warpfrag.memory import Memory
from warpfrag.motion.access import LINES, Access, Direction
from warpfrag.motion.addresses import address_sum, sum_expression, swizzle_expression
from warpfrag.motion.lines import line_starts
from warpfrag.motion.steps import price
from warpfrag.operand import Operand

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arrays import Words
    from warpfrag.isa.operands import OperandRow
    from warpfrag.isa.words import Form
    from warpfrag.layout import Layout
    from warpfrag.memory import Order
    from warpfrag.motion.lines import Start

WORD = 4  # bytes
LINE = 16
LANES = 32
MATRIX_BITS = 16  # of the elements that movmatrix transposes


@dataclass(frozen=True)
class Way:
    """One way to load or store an operand: its instructions, in order, and what follows them."""

    operand: Operand
    memory: Memory
    direction: Direction
    accesses: tuple[Access, ...]
    transposes: bool = False

    @property
    def name(self) -> str:
        """The instructions, each once."""
        names = dict.fromkeys(access.instruction for access in self.accesses)
        moved = ["movmatrix.sync.aligned.m8n8.trans.b16"] if self.transposes else []
        return " + ".join([*names, *moved] if self.direction == "load" else [*moved, *names])

    @cached_property
    def passes(self) -> int:
        """Passes of shared memory in all."""
        return sum(access.passes for access in self.accesses)

    @cached_property
    def conflicts(self) -> int:
        """Bank conflicts in all."""
        return sum(access.conflicts for access in self.accesses)

    @property
    def instructions(self) -> int:
        """Instructions in all."""
        return len(self.accesses) + (self.operand.words if self.transposes else 0)

    @cached_property
    def cost(self) -> int:
        """Instructions and passes, those of movmatrix too, and one for each element that is put into a word."""
        turned = price("movmatrix", self.operand.words) if self.transposes else 0
        joined = sum(access.slot not in {None, 0} for access in self.accesses)
        return len(self.accesses) + self.passes + turned + joined

    def __str__(self) -> str:
        """What it is and what it costs."""
        conflicts = "no bank conflicts" if not self.conflicts else f"{self.conflicts} bank conflicts"
        return f"{self.instructions} x {self.name}, {self.passes} passes, {conflicts}"

    def expression(self, access: Access) -> str:
        """The address that a lane gives, as C: a sum over parts of `lane`, then the swizzle; `base` is its start.

        Lanes whose address is not read repeat that of another.
        """
        if not isinstance(access, Access):
            msg = f"access is one of the accesses of this way, got {shown(access)}"
            raise InvalidOperand(msg)
        total = sum_expression(address_sum(access.addresses, self.memory))
        if not self.memory.swizzle:
            return total
        return f"swizzle({total})  /* swizzle(a) = {swizzle_expression(self.memory, 'a')} */"

    def emit(self, lang: str = "cuda", name: str = "") -> str:
        """As code: a device function in CUDA, a function in PTX, of the registers and of the address in shared memory.

        Its name is `load` or `store` unless another is given. The swizzle acts on the address itself, so the memory
        must be aligned to eight of its rows: 256, 512 or 1024 bytes.
        """
        from warpfrag.motion.loads_code import emit_way

        return emit_way(self, lang=lang, name=self.direction if isinstance(name, str) and not name else name)

    @property
    def targets(self) -> tuple[str, ...]:
        """Where every instruction of it is legal."""
        from warpfrag.isa.rows import legal_targets
        from warpfrag.isa.targets import targets

        names = [part for part in self.name.split(" + ") if "matrix" in part]
        legal = [set(legal_targets(_form(name))) for name in names]
        return tuple(target for target in targets() if all(target in some for some in legal))

    def load(self, shared: ArrayLike) -> Words:
        """The operand's registers, uint32[32, words], filled from a memory: what the instructions leave."""
        import numpy as np

        from warpfrag import movers
        from warpfrag.memory import as_bytes

        memory = self._reached(as_bytes(shared))
        words = np.zeros((LANES, self.operand.words), np.uint32)
        for access in self.accesses:
            if "matrix" in access.instruction:
                form = _form(access.instruction)
                words[:, list(access.words)] = movers.load(form, _filled(access.addresses), memory)
            else:
                self._load_plain(access, memory, words)
        return movers.move_words(words) if self.transposes else words

    def store(self, words: ArrayLike, shared: ArrayLike) -> NDArray[np.uint8]:
        """The memory after the registers were stored in it; the one that is passed is not changed."""
        import numpy as np

        from warpfrag import movers
        from warpfrag.memory import as_bytes

        given, memory = self.operand.check_words(words), self._reached(as_bytes(shared)).copy()
        if given.ndim != 2:
            msg = f"expected the registers of one operand, uint32[32, {self.operand.words}], got shape {given.shape}"
            raise InvalidOperand(msg)
        turned = movers.move_words(given) if self.transposes else given
        for access in self.accesses:
            if "matrix" in access.instruction:
                form = _form(access.instruction)
                memory = movers.store(form, _filled(access.addresses), turned[:, list(access.words)], memory)
                continue
            for lane, address in enumerate(access.addresses):
                if address is not None:
                    moved = np.ascontiguousarray(turned[lane, list(access.words)]).view(np.uint8)
                    first = 0 if access.slot is None else access.slot * access.width
                    memory[address : address + access.width] = moved[first : first + access.width]
        return memory

    def _reached(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The memory, refused where an access would go past its end."""
        last = max(
            address + access.width for access in self.accesses for address in access.addresses if address is not None
        )
        if last > len(memory):
            msg = f"{self.name} reaches byte {last - 1} of a memory of {len(memory)} bytes"
            raise InvalidOperand(msg)
        return memory

    def _load_plain(self, access: Access, memory: NDArray[np.uint8], words: NDArray[np.uint32]) -> None:
        import numpy as np

        for lane, address in enumerate(access.addresses):
            if address is None:
                continue
            found = memory[address : address + access.width]
            held = np.ascontiguousarray(words[lane, list(access.words)]).view(np.uint8)
            first = 0 if access.slot is None else access.slot * access.width
            held[first : first + access.width] = found
            words[lane, list(access.words)] = held.view(np.uint32)


def loads(operand: Operand, memory: Memory) -> list[Way]:
    """Every way to fill an operand, or tiles of it side by side, from shared memory; the cheapest first."""
    return _ways(operand, memory, "load")


def stores(operand: Operand, memory: Memory) -> list[Way]:
    """Every way to empty an operand, or tiles of it side by side, into shared memory; the cheapest first."""
    return _ways(operand, memory, "store")


def search(operand: Operand, order: Literal["row", "col"], direction: Direction = "load") -> list[Way]:
    """For each swizzle, and without one for the least padded pitch, the cheapest way that has no bank conflicts."""
    rows, cols = _extents(operand)
    tight = (cols if order == "row" else rows) * operand.row.container // 8
    pitches = {0: [max(LINE, tight) + LINE * extra for extra in range(9)]}
    pitches |= {swizzle: [max(swizzle, -(-tight // swizzle) * swizzle)] for swizzle in (32, 64, 128)}
    found = []
    for swizzle, some in pitches.items():
        for pitch in some:
            ways = _ways(operand, Memory(order, pitch, swizzle), direction)
            if ways and not ways[0].conflicts:
                found.append(ways[0])
                break
    return found


def _extents(operand: Operand) -> tuple[int, int]:
    if not isinstance(operand, Operand):
        msg = f"expected an operand such as mma.b or mma.b.tiled(col=2), got {shown(operand)}"
        raise InvalidOperand(msg)
    if operand.layout.dims != ("row", "col") or "warp" in operand.layout.ins:
        axes = ", ".join(operand.layout.dims)
        msg = f"{operand.described} is no single matrix in the registers of a warp: it has {axes}"
        raise InvalidOperand(msg)
    return operand.layout.outs["row"], operand.layout.outs["col"]


def _ways(operand: Operand, memory: Memory, direction: Direction) -> list[Way]:
    _extents(operand)
    if not isinstance(memory, Memory):
        msg = f"expected a wf.Memory, which says how the matrix lies in shared memory; got {shown(memory)}"
        raise InvalidOperand(msg)
    found = [*_by_matrix(operand, memory, direction), *_by_words(operand, memory, direction)]
    found += _by_elements(operand, memory, direction)
    return sorted(found, key=lambda way: way.cost)


@lru_cache(maxsize=32)  # one question asks several times
def _elements(layout: Layout) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Lane, register and slot of every place, and row and column of its element."""
    return [(tuple(place), tuple(layout.at(**place._asdict()))) for place in layout.places()]


@lru_cache(maxsize=32)
def _addresses(memory: Memory, shape: tuple[int, int], bits: int) -> list[list[int]]:
    """The byte in which each element of a matrix starts; without numpy, so that look-ups stay quick."""
    rows, cols = map(range, shape)
    return [[memory.address(row=row, col=col, bits=bits, shape=shape) for col in cols] for row in rows]


class _Bytes:
    """At which byte each byte of each word of each lane lies: bytes[lane][word] has four addresses, or None."""

    def __init__(self, operand: Operand, memory: Memory) -> None:
        container, register = operand.row.container, operand.row.register_bits
        self.words = operand.words
        size = max(1, container // 8)
        addresses = _addresses(memory, _extents(operand), container)
        self.of: list[list[list[int | None]]] = [[[None] * WORD for _ in range(self.words)] for _ in range(LANES)]
        self.whole = True  # whether no byte of a register is made of elements from several bytes of memory
        for (lane, reg, slot), (row, col) in _elements(operand.layout):
            first = reg * register // 8 + slot * container // 8
            for byte in range(size):
                word, inside = divmod(first + byte, WORD)
                address = addresses[row][col] + byte
                old = self.of[lane][word][inside]
                starts_low = slot * container % 8 == (col if memory.order == "row" else row) * container % 8
                self.whole &= (old is None or old == address) and starts_low
                self.of[lane][word][inside] = address

    def start(self, lane: int, word: int) -> int | None:
        """The address of a word, if its bytes lie side by side."""
        given = self.of[lane][word]
        first = given[0]
        in_order = first is not None and given == [first + byte for byte in range(WORD)]
        return first if in_order and first is not None and first % WORD == 0 else None


@lru_cache(maxsize=32)
def _bytes(operand: Operand, memory: Memory) -> _Bytes:
    return _Bytes(operand, memory)


def _by_words(operand: Operand, memory: Memory, direction: Direction) -> Iterator[Way]:
    """Plain loads of 16, 8 and 4 bytes a lane, the widest that fit."""
    where = _bytes(operand, memory)
    starts = [[where.start(lane, word) for lane in range(LANES)] for word in range(where.words)]
    if not where.whole or any(start is None for word in starts for start in word):
        return
    verb = "ld.shared" if direction == "load" else "st.shared"
    seen = set()
    for most in (4, 2, 1):
        left, accesses = list(range(where.words)), []
        while left:
            group = next(
                group for count in (4, 2, 1) if count <= most for group in [_neighbours(left, starts, count)] if group
            )
            left = [word for word in left if word not in group]
            vector = f".v{len(group)}" if len(group) > 1 else ""
            accesses.append(Access(f"{verb}{vector}.b32", group, tuple(starts[group[0]]), WORD * len(group)))
        if (widths := tuple(access.width for access in accesses)) not in seen:
            seen.add(widths)
            yield Way(operand, memory, direction, tuple(accesses))


def _neighbours(left: list[int], starts: list[list[int | None]], count: int) -> tuple[int, ...]:
    """So many words, the first of those left among them, that lie side by side in every lane and aligned; else none."""
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


def _by_elements(operand: Operand, memory: Memory, direction: Direction) -> list[Way]:
    """One element at a time: always possible where an element fills bytes."""
    size = operand.row.container // 8
    if not 1 <= size <= WORD:
        return []
    where = _bytes(operand, memory)
    verb = "ld.shared" if direction == "load" else "st.shared"
    accesses = [
        Access(
            f"{verb}.b{8 * size}",
            (word,),
            tuple(where.of[lane][word][slot * size] for lane in range(LANES)),
            size,
            slot,
        )
        for word in range(where.words)
        for slot in range(WORD // size)
    ]
    return [Way(operand, memory, direction, tuple(accesses))] if size < WORD else []


def _by_matrix(operand: Operand, memory: Memory, direction: Direction) -> Iterator[Way]:
    """ldmatrix or stmatrix, with and without .trans, and with movmatrix behind (or before) it."""
    op = "ldmatrix" if direction == "load" else "stmatrix"
    plain, turned = (_lines(operand, memory, trans) for trans in ("", ".trans"))
    if plain:
        yield Way(operand, memory, direction, tuple(_matrix_accesses(op, "", plain)))
    if turned:
        yield Way(operand, memory, direction, tuple(_matrix_accesses(op, ".trans", turned)))
    if turned and operand.row.container == MATRIX_BITS:
        yield Way(operand, memory, direction, tuple(_matrix_accesses(op, "", turned)), transposes=True)


@cache
def _starts(operand: OperandRow, order: Order, trans: str) -> tuple[tuple[Start, ...] | None, ...]:
    """For each register where the lines start that its lanes hold together; None where they hold no lines."""
    from warpfrag.registry import get

    mover = get(f"ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16")
    return tuple(line_starts(mover, operand, order, reg) for reg in range(operand.layout.regs))


def _lines(operand: Operand, memory: Memory, trans: str) -> list[list[int]]:
    """The address of each line of each register; none where some line is not 16 aligned bytes side by side."""
    bits, along = operand.row.container, memory.contiguous
    addresses = _addresses(memory, _extents(operand), bits)
    found = []
    for starts in _starts(operand.row, memory.order, trans):
        lines = []
        for row, col in starts or ():
            first = addresses[row][col]
            inside = range(0, LINE * 8 // bits, max(1, 8 // bits))  # elements that start a byte
            there = [addresses[row][col + at] if along == "col" else addresses[row + at][col] for at in inside]
            if first % LINE == 0 and there == [first + at * bits // 8 for at in inside]:
                lines.append(first)
        if len(lines) < LINES:
            return []
        found.append(lines)
    return found


def _matrix_accesses(op: str, trans: str, lines: list[list[int]]) -> Iterator[Access]:
    """As few instructions as the words need: four matrices at a time."""
    first = 0
    while first < len(lines):
        count = next(count for count in (4, 2, 1) if first + count <= len(lines))
        given = [address for word in lines[first : first + count] for address in word]
        padded = (*given, *[None] * (LANES - len(given)))
        yield Access(
            f"{op}.sync.aligned.m8n8.x{count}{trans}.shared.b16", tuple(range(first, first + count)), padded, LINE
        )
        first += count


def _form(name: str) -> Form:
    from warpfrag.isa.legality import resolve

    return resolve(name)


def _filled(addresses: tuple[int | None, ...]) -> list[int]:
    """Addresses of all lanes, 0 where none is given."""
    return [address or 0 for address in addresses]
