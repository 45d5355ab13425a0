"""Shared memory: the address of each matrix element, and the cost of a warp's accesses.

**In a sentence.** An element's address is a sum of digits times strides, possibly followed by a swizzle.

**A small case.** An f16 matrix with rows of 64 elements, in row order without gaps: the pitch is 128 bytes, so element
(row, col) is at 128 * row + 2 * col. All rows of one column are in the same bank, so reading a column takes one
pass for each row.

**The swizzle.** Memory consists of rows of eight 16-byte units: address bits 4 to 6 are the unit, bits 7 and up the
row. A 128-byte swizzle xors three row bits into the unit bits, a 64-byte swizzle two, a 32-byte swizzle one. It applies
to the absolute address, even if a tile does not start at the beginning of the pattern.

    >>> memory = Memory(order="row", pitch=128, swizzle=128)
    >>> memory.address(row=3, col=0, bits=16), memory.address(row=3, col=8, bits=16)
    (432, 416)

**Digits.** A pitch is the simplest case: one digit along the contiguous axis, one across it. Consecutive tiles need
more digits: along the contiguous axis, a byte in a tile row and the tile; across it, a row in a tile and the tile.
`along` and `across` list the digits, each with its extent and its stride in bytes; the last one may be unbounded.

    >>> tiles = Memory(order="row", along=(Digit(16, 1), Digit(None, 128)), across=(Digit(8, 16), Digit(None, 512)))
    >>> tiles.address(row=9, col=8, bits=16)
    656

**Banks.** Shared memory has 32 banks of 4 bytes. A request is served in passes, called *wavefronts*. In each pass, a
bank delivers one word, which any number of lanes may read. The number of passes is thus the number of words that the
busiest bank delivers, for any access width. Each matrix of ldmatrix is a separate request. (On an H200, a load takes 26
cycles plus two for each pass: docs/evidence.)

    >>> wavefronts([128 * lane for lane in range(32)], width=4), wavefronts([4 * lane for lane in range(32)], width=4)
    (32, 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from warpfrag.errors import InvalidOperand, check_index, quote
from warpfrag.layout.coordinates import LANES, Coordinate, coordinate_type

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance
    from numpy.typing import ArrayLike, NDArray

Order = Literal["row", "col"]
"""The memory order of a matrix: `row` if the elements of a row are adjacent, `col` if those of a column are."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""For each swizzle in bytes, the number of row bits that it xors into the unit bits."""
UNIT = 16  # the number of bytes that a swizzle keeps together
ROW_OF_UNITS = 128  # bytes; the address bits above this size are the row of a swizzle
MAX_BYTES = 1 << 40  # larger than any memory, but small enough to avoid overflows
MAX_ROWS = 1 << 16
BANKS = 32
BANK_BYTES = 4
ELEMENT_BITS = (1, 4, 8, 16, 32, 64)
Index = TypeVar("Index", int, "NDArray[np.int64]")


def repr_of_fields(instance: DataclassInstance) -> str:
    """Return a dataclass's constructor call without default values."""
    values = ((field.name, getattr(instance, field.name), field.default) for field in fields(instance))
    arguments = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
    return f"{type(instance).__name__}({arguments})"


class Digit(NamedTuple):
    """A digit of an index: `extent` values (None: unbounded), `stride` bytes apart."""

    extent: int | None
    stride: int


@dataclass(frozen=True)
class Memory:
    """The layout of a matrix in shared memory, in bytes.

    `pitch` is the distance from one row (in column order: from one column) to the next; None leaves no gap.
    Alternatively, `along` and `across` give the digits along the contiguous axis, counted in bytes, and across it.
    `unit` is the number of bytes that a swizzle keeps together: 16, or 32 for a 128-byte swizzle.
    """

    order: Order = "row"
    pitch: int | None = None
    swizzle: int = 0
    start: int = 0
    base_offset: int = 0
    along: tuple[Digit, ...] = (Digit(None, 1),)
    across: tuple[Digit, ...] = ()
    unit: int = UNIT

    def __post_init__(self) -> None:
        """Raise InvalidOperand for fields that do not describe a memory layout."""
        if not (isinstance(self.order, str) and self.order in {"row", "col"}):
            raise InvalidOperand(f"order must be row or col, got {quote(self.order)}")
        if self.unit not in (UNIT, 2 * UNIT) or (self.unit != UNIT and self.swizzle != ROW_OF_UNITS):
            raise InvalidOperand(
                f"unit must be {UNIT}, or {2 * UNIT} with a swizzle of {ROW_OF_UNITS} bytes; got {quote(self.unit)}"
            )
        if not (is_whole(self.swizzle) and self.swizzle in SWIZZLES):
            raise InvalidOperand(f"swizzle must be {', '.join(map(str, SWIZZLES))} bytes, got {quote(self.swizzle)}")
        for name, number, minimum in (
            ("pitch", self.pitch, 1),
            ("start", self.start, 0),
            ("base_offset", self.base_offset, 0),
        ):
            if (number is None and name != "pitch") or (
                number is not None and not (is_whole(number) and minimum <= number < MAX_BYTES)
            ):
                raise InvalidOperand(f"{name} must be an integer of at least {minimum}, in bytes; got {quote(number)}")
        if self.pitch is not None and self.across:
            raise InvalidOperand(
                f"expected a pitch or the digits across, not both; got pitch={self.pitch} and across={self.across}"
            )

    __repr__ = repr_of_fields

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        from warpfrag.html import card, escape, table

        facts = [
            ("order", f"{self.order}: the elements of a {'row' if self.order == 'row' else 'column'} are adjacent"),
            ("pitch", "no gaps" if self.pitch is None and not self.across else self._pitch_text()),
            ("swizzle", f"{self.swizzle} bytes" if self.swizzle else "none"),
            ("start", f"byte {self.start}"),
        ]
        if self.base_offset:
            facts.append(("base offset", f"{self.base_offset} rows of {ROW_OF_UNITS} bytes"))
        return card(f"<code>{escape(f'Memory: {self.description}')}</code>", table(("field", "value"), facts))

    def _pitch_text(self) -> str:
        if not self.across:
            return f"{self.pitch} bytes"
        counted = (f"{extent or 'the rest'} x {stride} bytes" for extent, stride in self.across)
        return f"in tiles: {', '.join(counted)}"

    @property
    def contiguous(self) -> str:
        """The coordinate along which elements are contiguous in memory."""
        return "col" if self.order == "row" else "row"

    @property
    def description(self) -> str:
        """A description of the layout: its order, and the options that differ from their defaults."""
        parts = [f"{self.order} order"]
        if self.across or self.along != (Digit(None, 1),):
            parts.append("in tiles")
        else:
            parts.append("no gaps" if self.pitch is None else f"pitch {self.pitch}")
        more = {"swizzle": self.swizzle, "start": self.start, "base offset": self.base_offset}
        parts += [f"{name} {number}" for name, number in more.items() if number]
        return ", ".join(parts)

    def address(self, *, row: int, col: int, bits: int, shape: tuple[int, int] | None = None) -> int:
        """Return the byte address of an element with `bits` bits.

        A layout without a pitch needs the `shape`.
        """
        row, col = check_index("row", row, MAX_BYTES), check_index("col", col, MAX_BYTES)
        return self._address(row, col, bits, None if shape is None else _checked(shape))

    def addresses(self, shape: tuple[int, int], bits: int) -> NDArray[np.int64]:
        """Return the first byte of each element of a matrix."""
        import numpy as np

        rows, cols = np.indices(_checked(shape), np.int64)
        return self._address(rows, cols, bits, shape)

    def elements(self, address: int, shape: tuple[int, int], bits: int) -> list[Coordinate]:
        """Return the elements of a matrix that occupy the byte at `address`, or a part of it."""
        import numpy as np

        distance = check_index("address", address, MAX_BYTES) - self.addresses(shape, bits)
        here = np.argwhere((distance >= 0) & (distance < max(1, bits // 8)))
        return [coordinate_type(("row", "col"))._make(map(int, pair)) for pair in here]

    def size(self, shape: tuple[int, int], bits: int) -> int:
        """Return the number of bytes that a matrix spans."""
        return int(self.addresses(shape, bits).max(initial=-1)) + max(1, bits // 8)

    def write(self, shared: ArrayLike, codes: ArrayLike, bits: int) -> NDArray[np.uint8]:
        """Store a matrix of codes and return the memory; raise InvalidOperand if elements overlap.

        Leading axes of `shared` and `codes` are batch axes.
        """
        import numpy as np

        from warpfrag.formats.arrays import as_array

        after, matrix = as_bytes(shared, batch=True).copy(), as_array(codes, "codes")
        if matrix.dtype.kind not in "biu" or matrix.ndim < 2:
            raise InvalidOperand(f"expected a matrix of unsigned integers, got {matrix.dtype} of shape {matrix.shape}")
        rows, cols = matrix.shape[-2:]
        try:
            np.broadcast_to(matrix[..., 0, 0] if matrix.size else np.empty(matrix.shape[:-2]), after.shape[:-1])
        except ValueError:
            raise InvalidOperand(
                f"the leading axes of codes {matrix.shape} and memory {after.shape} cannot be broadcast together"
            ) from None
        twice = self.overlap((rows, cols), bits)
        if twice is not None:
            first, second, address = twice
            raise InvalidOperand(
                f"{self.description}: in a {rows} x {cols} matrix, row {first[0]}, column {first[1]} and "
                f"row {second[0]}, column {second[1]} are both at byte {address}"
            )
        places, shifts = self._bytes((rows, cols), bits, after.shape[-1])
        whole = matrix.astype(np.uint64)[..., None]
        parts = ((whole >> (8 * np.arange(places.shape[-1], dtype=np.uint64))) & np.uint64(0xFF)).astype(np.uint8)
        if bits >= 8:
            after[..., places] = parts
            return after
        small = shifts[..., None].astype(np.uint8)
        mask = np.uint8((1 << bits) - 1)
        parts = np.broadcast_to(parts, (*after.shape[:-1], *parts.shape[-3:]))
        for at in np.ndindex(after.shape[:-1]):
            memory, part = after[at], parts[at]
            np.bitwise_and.at(memory, places, ~(mask << small))
            np.bitwise_or.at(memory, places, part << small)
        return after

    def overlap(self, shape: tuple[int, int], bits: int) -> tuple[Coordinate, Coordinate, int] | None:
        """Return two elements of a matrix that share an address, and that address, or None if no two elements do."""
        import numpy as np

        places, shifts = self._bytes(_checked(shape), bits, MAX_BYTES)
        taken = (places * 8 + shifts[..., None]).reshape(-1)
        order = np.argsort(taken, kind="stable")
        same = np.flatnonzero(taken[order][1:] == taken[order][:-1])
        if not same.size:
            return None
        at = int(same[np.argmin(order[same + 1])])
        pair = (
            coordinate_type(("row", "col"))._make(map(int, np.unravel_index(order[index], places.shape)[:2]))
            for index in (at, at + 1)
        )
        first, second = pair
        return first, second, int(taken[order[at]]) // 8

    def read(self, shared: ArrayLike, shape: tuple[int, int], bits: int) -> NDArray[np.uint64]:
        """Return a matrix of codes loaded from `shared`, whose leading axes are a batch."""
        import numpy as np

        memory = as_bytes(shared, batch=True)
        places, shifts = self._bytes(_checked(shape), bits, memory.shape[-1])
        parts = memory[..., places].astype(np.uint64) >> shifts[..., None].astype(np.uint64)
        weights = 8 * np.arange(places.shape[-1], dtype=np.uint64)
        codes: NDArray[np.uint64] = ((parts & np.uint64((1 << min(bits, 8)) - 1)) << weights).sum(
            axis=-1, dtype=np.uint64
        )
        return codes

    def _bytes(self, shape: tuple[int, ...], bits: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return every element's byte addresses, [row, col, byte], and the first bit of sub-byte elements."""
        import numpy as np

        rows, cols = shape
        first = self.addresses((rows, cols), bits)
        index = np.indices((rows, cols))[0 if self.contiguous == "row" else 1]
        places = first[..., None] + np.arange(max(1, bits // 8))
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < size:
            raise InvalidOperand(
                f"a {rows} x {cols} matrix reaches byte {int(places.max())}, but the memory has {size} bytes"
            )
        return places, index * bits % 8

    def _address(self, row: Index, col: Index, bits: int, shape: tuple[int, int] | None) -> Index:
        if not (is_whole(bits) and bits in ELEMENT_BITS):
            raise InvalidOperand(f"expected elements of {', '.join(map(str, ELEMENT_BITS))} bits, got {quote(bits)}")
        inner, outer = (col, row) if self.order == "row" else (row, col)
        across = self.across or (Digit(None, self._pitch(bits, shape)),)
        address = self.start + _by_digits(inner * bits // 8, self.along) + _by_digits(outer, across)
        return swizzled(address, self.swizzle, self.base_offset, self.unit)

    def _pitch(self, bits: int, shape: tuple[int, int] | None) -> int:
        if self.pitch is not None:
            return self.pitch
        if shape is None:
            raise InvalidOperand("without a pitch, an address depends on the matrix's shape: pass shape=(rows, cols)")
        return -(-shape[1 if self.order == "row" else 0] * bits // 8)


def is_whole(number: object) -> bool:
    """Return True for an integer that is not a bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def _checked(shape: object) -> tuple[int, int]:
    """Return a shape as two extents; raise InvalidOperand if it is invalid."""
    if not (isinstance(shape, tuple | list) and len(shape) == 2 and all(is_whole(extent) for extent in shape)):
        raise InvalidOperand(f"shape: expected two integers, rows and columns, such as (16, 16); got {quote(shape)}")
    rows, cols = shape
    if not (0 <= rows < MAX_ROWS and 0 <= cols < MAX_ROWS):
        raise InvalidOperand(f"expected 0 to {MAX_ROWS - 1} rows and columns, got {quote(shape)}")
    return rows, cols


def as_bytes(shared: ArrayLike, *, batch: bool = False) -> NDArray[np.uint8]:
    """Return shared memory as a uint8 array; with `batch`, the array may have leading axes."""
    from warpfrag.formats.arrays import as_array

    memory = as_array(shared, "shared")
    if memory.dtype.name != "uint8" or not (memory.ndim == 1 or (batch and memory.ndim)):
        raise InvalidOperand(
            f"expected shared to be uint8[{'..., ' if batch else ''}bytes], got {memory.dtype} of shape {memory.shape}"
        )
    return memory


def _by_digits(index: Index, digits: tuple[Digit, ...]) -> Index:
    total = index * 0
    for extent, stride in digits:
        total = total + (index if extent is None else index % extent) * stride
        index = index * 0 if extent is None else index // extent
    return total


def swizzled(address: Index, swizzle: int, base_offset: int = 0, unit: int = UNIT) -> Index:
    """Return the swizzled address: bits of its row are xored into its unit of 16 or 32 bytes."""
    mask = ((1 << SWIZZLES[swizzle]) - 1) // (unit // UNIT)
    return address ^ ((address // ROW_OF_UNITS - base_offset & mask) * unit)


def wavefronts(addresses: Sequence[int | None], width: int) -> int:
    """Return the number of passes that a warp's access takes; a lane whose address is None is idle."""
    return max(bank_loads(addresses, width))


def bank_loads(addresses: Sequence[int | None], width: int) -> list[int]:
    """Return the number of words that each bank delivers for an access."""
    if not (is_whole(width) and width in {1, 2, 4, 8, 16}):
        raise InvalidOperand(f"expected an access of 1, 2, 4, 8 or 16 bytes per lane, got {quote(width)}")
    counts = [0] * BANKS
    for word in _words(_checked_addresses(addresses), width):
        counts[word % BANKS] += 1
    return counts


def bank_conflicts(addresses: Sequence[int | None], width: int) -> int:
    """Return the number of extra passes that bank conflicts (different words in one bank) cause."""
    passes = wavefronts(addresses, width)
    return passes - -(-len(_words(_checked_addresses(addresses), width)) // BANKS)


def _words(addresses: list[int | None], width: int) -> set[int]:
    """Return the distinct 4-byte words that the lanes access."""
    present = [address for address in addresses if address is not None]
    return {word for address in present for word in range(address // BANK_BYTES, -(-(address + width) // BANK_BYTES))}


def _checked_addresses(addresses: Sequence[int | None]) -> list[int | None]:
    """Return the addresses of up to 32 lanes; raise InvalidOperand if one is invalid."""
    try:
        checked = list(addresses)
    except TypeError:
        checked = []
    if not 1 <= len(checked) <= LANES:
        raise InvalidOperand(f"expected the addresses of 1 to {LANES} lanes, got {quote(addresses)}")
    for lane, address in enumerate(checked):
        if address is not None and not (type(address) is int and 0 <= address < MAX_BYTES):
            checked[lane] = check_index(f"the address of lane {lane}", address, MAX_BYTES)
    return checked
