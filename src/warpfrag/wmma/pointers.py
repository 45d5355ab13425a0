"""Memory as C++ sees it: pointers into allocations, and tiles of elements in rows or columns.

A pointer refers to an element of an array. Every memory argument accepts a pointer, a NumPy array or any object with a
buffer. A pointer into a view cannot reach beyond the view.

The start of an allocation counts as aligned, as on the GPU, whatever its host address is. The alignment of a view is
determined by its offset from the start of the allocation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfrag.errors import InvalidOperand, check_integer
from warpfrag.formats.arrays import Array
from warpfrag.tensorcore.fragment import cut_slots as cut_elements
from warpfrag.wmma.wmma_types import ElementType

# CUDA C++ Programming Guide, load_matrix_sync: the alignment of the first element, and the unit of ldm
POINTER_BITS = 256
LEADING_BITS = 128


class ReachableMemory(NamedTuple):
    """The bytes of a whole allocation, and the range that a pointer may access."""

    allocation: NDArray[np.uint8]
    start: int
    stop: int


@dataclass(frozen=True)
class Pointer:
    """A pointer into memory; see `ptr`. Adding n advances it by n elements, as in C."""

    array: Array
    offset: int = 0

    def __add__(self, elements: int) -> Pointer:
        """Return the pointer advanced by this number of elements."""
        return replace(self, offset=self.offset + _whole(elements))

    __radd__ = __add__

    def __sub__(self, elements: int) -> Pointer:
        """Return the pointer moved back by this number of elements."""
        return self + -_whole(elements)

    def __repr__(self) -> str:
        """Format the offset and the type."""
        return f"<pointer to element {self.offset} of {self.array.dtype}{list(self.array.shape)}>"

    def memory(self) -> ReachableMemory:
        """Return the allocation, this pointer's byte offset, and the byte offset of its array's end."""
        allocation = _allocation(self.array)
        low, high = np.lib.array_utils.byte_bounds(self.array)
        first = self.array.ctypes.data - allocation.ctypes.data
        stop = high - allocation.ctypes.data
        start = first + self.offset * self.array.itemsize
        if not first <= start <= stop:
            raise InvalidOperand(
                f"{self!r} is outside its memory, elements 0..{(high - low) // self.array.itemsize - 1}"
            )
        return ReachableMemory(allocation, start, stop)


def _whole(elements: object) -> int:
    return check_integer(elements, "expected an integer number of elements")


def ptr(memory: object) -> Pointer:
    """Return a pointer to the first element of a NumPy array or buffer; add a number of elements to advance it.

    Loads and stores require alignment to 256 bits, relative to the start of the allocation.

        >>> import numpy as np
        >>> from warpfrag import wmma
        >>> wmma.ptr(np.zeros((32, 64), np.float16)) + 16
        <pointer to element 16 of float16[32, 64]>
    """
    if isinstance(memory, Pointer):
        return memory
    array = memory if isinstance(memory, np.ndarray) else _from_buffer(memory)
    steps = [step for step, extent in zip(array.strides, array.shape, strict=True) if extent > 1]
    if any(step < 0 for step in steps) or (steps and min(steps) != array.itemsize):
        raise InvalidOperand(
            f"memory: expected elements that are adjacent along one axis, got strides {array.strides} of "
            f"{array.itemsize}-byte elements; a pointer has no strides"
        )
    return Pointer(array)


def _from_buffer(memory: object) -> NDArray[Any]:
    """Return a buffer's contents as an array."""
    try:
        view = memoryview(memory)  # type: ignore[arg-type]  # an object without a buffer is rejected
    except TypeError:
        raise InvalidOperand(
            f"memory: expected a NumPy array, a wmma.ptr or an object with a buffer; got {type(memory).__name__}"
        ) from None
    return np.asarray(view)


def _allocation(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of the whole allocation to which an array belongs."""
    owner, link = array, array.base
    while link is not None:
        if isinstance(link, np.ndarray):
            owner, link = link, link.base
        elif isinstance(link, memoryview):
            link = link.obj
        elif hasattr(link, "base"):  # a NumPy helper object, such as that of as_strided
            link = link.base
        else:
            try:
                return np.frombuffer(link, np.uint8)
            except (TypeError, ValueError):  # not a buffer, so only NumPy can access this memory
                break
    if not owner.flags.forc:
        raise InvalidOperand(f"memory: expected one block of memory, got an array with strides {owner.strides}")
    return owner.ravel(order="K").view(np.uint8)


@dataclass(frozen=True)
class Tile:
    """A tile of a matrix in memory: lines (rows or columns) that start `ldm` elements apart."""

    pointer: Pointer
    ldm: int
    lines: int
    extent: int
    bits: int

    def view(self, label: str) -> NDArray[np.uint8]:
        """Return a view of the tile's bytes, [lines, bytes per line], after checking the rules of the CUDA guide."""
        self._check_ldm(label)
        allocation, start, stop = self.pointer.memory()
        past = start % (POINTER_BITS // 8)
        if past:
            raise InvalidOperand(
                f"{label}: the pointer must be aligned to {POINTER_BITS} bits; {self.pointer!r} is at byte {start} of "
                f"its allocation, {past} bytes past a multiple of {POINTER_BITS // 8}"
            )
        line, step = self.extent * self.bits // 8, self.ldm * self.bits // 8
        needed = (self.lines - 1) * step + line
        if start + needed > stop:
            raise InvalidOperand(
                f"{label}: memory is too small: {self.lines} lines of {self.extent} elements with ldm {self.ldm} "
                f"take {needed} bytes from {self.pointer!r}, but only {stop - start} are available"
            )
        return np.lib.stride_tricks.as_strided(allocation[start:], (self.lines, line), (step, 1))

    def _check_ldm(self, label: str) -> None:
        unit = LEADING_BITS // self.bits
        if self.ldm % unit:
            below, smallest = self.ldm // unit * unit, -(-self.extent // unit) * unit
            near = ", ".join(str(ldm) for ldm in sorted({max(below, smallest), max(below + unit, smallest)}))
            raise InvalidOperand(
                f"{label}: ldm must be a multiple of {unit} elements (16 bytes), got {self.ldm}; try {near}"
            )
        if self.ldm < self.extent:
            raise InvalidOperand(
                f"{label}: ldm must be at least {self.extent}, the elements in one line of the tile; got {self.ldm}"
            )


def check_memory_type(pointer: Pointer, element: ElementType, label: str) -> None:
    """Raise an error for memory of a different element type; unsigned bytes are accepted, like a C++ void pointer."""
    dtype = pointer.array.dtype
    if element.is_sub_byte:
        expected = f"{8 // element.format.bits} elements in a byte, low bits first, as uint8, uint32 or int32"
        if dtype not in {np.dtype(np.uint8), np.dtype(np.uint32), np.dtype(np.int32)}:
            raise InvalidOperand(f"{label}: expected packed memory for {element.name}, {expected}; got {dtype}")
        if not pointer.array.flags.c_contiguous and pointer.array.strides[-1] != dtype.itemsize:
            # np.packbits of a transposed array returns such an array, whose memory order is never intended
            raise InvalidOperand(
                f"{label}: the last axis of packed memory must be contiguous, got strides {pointer.array.strides}; "
                "pass np.ascontiguousarray(array)"
            )
        return
    if dtype not in {element.dtype, np.dtype(np.uint8)}:
        raise InvalidOperand(
            f"{label}: expected memory of {element.dtype} (or bytes, uint8) for {element.name}, got {dtype}"
        )


def read_codes(tile: NDArray[np.uint8], bits: int) -> NDArray[Any]:
    """Return the codes in each line of a tile."""
    return cut_elements(np.ascontiguousarray(tile), bits)


def write_codes(tile: NDArray[np.uint8], codes: NDArray[Any]) -> None:
    """Write codes, which must fill whole bytes, to each line of a tile."""
    tile[...] = np.ascontiguousarray(codes).view(np.uint8)
