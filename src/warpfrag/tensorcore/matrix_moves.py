"""Execute matrix moves: ldmatrix (memory to registers), stmatrix (registers to memory) and movmatrix.

Each lane that supplies an address points to one line of 16 bytes: a row of a matrix, or a column for stmatrix m16n8.
The address layout determines the line, and the register layout the position of each of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, NotModelled, quote
from warpfrag.formats.arrays import Words, as_array
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import resolve
from warpfrag.isa.operands import OperandSpec, operands
from warpfrag.isa.operands import addresses as addresses_of
from warpfrag.isa.qualifiers import Form
from warpfrag.layout.coordinates import LANES
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.shared_operand import Location

LINE = 16  # the number of bytes at each address, and the alignment of addresses
OPS = ("ldmatrix", "stmatrix", "movmatrix")


def execute(
    form: Form, a: Location, b: Location | None, shared: ArrayLike | None, unused: Mapping[str, object]
) -> Words:
    """Run a matrix move; return the registers or, for stmatrix, the memory. Raise an error for unexpected arguments."""
    if form.op == "movmatrix":
        unused = {"b": b, "shared": shared, **unused}
    elif shared is None:
        raise InvalidOperand(f"{spell(form)} needs shared=, the bytes of its memory")
    elif form.op == "ldmatrix":
        unused = {"b": b, **unused}
    elif b is None:
        raise InvalidOperand(f"{spell(form)} needs b, the registers to store")
    for name, value in unused.items():
        if value is not None:
            raise InvalidOperand(f"{spell(form)} takes no {name}, got {quote(value)}")
    if shared is None:
        return move(form, operands_of(form, "").a.check_words(cast("ArrayLike", a)))
    if b is None:
        return load(form, cast("ArrayLike", a), shared)
    registers = operands_of(form, "").a.check_words(cast("ArrayLike", b))
    return cast("Words", store(form, cast("ArrayLike", a), registers, shared))


def load(form: Form, addresses: ArrayLike, shared: ArrayLike) -> NDArray[np.uint32]:
    """Return the registers, uint32[..., 32, regs], that ldmatrix loads from these addresses."""
    row, lines = _operand(form, "d"), _lines(form)
    memory = _memory(form, shared)
    starts = _addresses(form, addresses, memory, lines)
    return fragment.pack(row, _codes(row, memory[starts[..., None] + np.arange(LINE)], lines))


def store(form: Form, addresses: ArrayLike, words: NDArray[np.uint32], shared: ArrayLike) -> NDArray[np.uint8]:
    """Return a copy of the memory after stmatrix stores the registers."""
    row, lines = _operand(form, "a"), _lines(form)
    after = _memory(form, shared).copy()
    starts = _addresses(form, addresses, after, lines)
    data = _bytes(row, fragment.unpack(row, words), lines)
    if data.shape[:-1] != starts.shape:
        raise InvalidOperand(
            f"{spell(form)}: addresses {starts.shape[:-2]} and registers {data.shape[:-3]} have different leading axes"
        )
    places = (starts[..., None] + np.arange(LINE)).reshape(-1)
    after[places] = data.reshape(-1)
    if not np.array_equal(after[places], data.reshape(-1)):
        raise InvalidOperand(
            f"{spell(form)}: two lanes store different bytes at one address, so the result is undefined"
        )
    return after


def lines_by_lane(form: Form, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the line that stmatrix stores for each addressing lane, uint8[..., lanes, 16]."""
    row, lines = _operand(form, "a"), _lines(form)
    if row.format.bits == 16 and not form.trans:  # each row consists of words from adjacent lanes
        *batch, lanes, count = words.shape
        rows = words.reshape(-1, lanes // 4, 4, count).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(rows).view(np.uint8).reshape(*batch, lines.lanes, LINE)
    data = _bytes(row, fragment.unpack(row, words), lines)
    by_lane = np.empty((*data.shape[: -len(lines.shape) - 1], lines.lanes, LINE), np.uint8)
    by_lane[..., fragment.first_places(lines), :] = data.reshape(*by_lane.shape[:-2], -1, LINE)
    return by_lane


def move(form: Form, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the registers of the transposed matrix, for movmatrix."""
    return fragment.pack(_operand(form, "d"), fragment.unpack(_operand(form, "a"), words))


def move_words(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply movmatrix to each register in [..., 32, regs]."""
    form = resolve("movmatrix.sync.aligned.m8n8.trans.b16")
    return np.concatenate([move(form, words[..., at, None]) for at in range(words.shape[-1])], axis=-1)


def _operand(form: Form, role: str) -> OperandSpec:
    row = operands(form, "")[role]
    if row.unknown:
        raise NotModelled(row.unknown)
    return row


def _lines(form: Form) -> Layout:
    """Return the layout that gives the lane supplying each line's address, by (matrix, row) or (matrix, col)."""
    lines = addresses_of(form)
    if lines is None:
        raise InvalidOperand(f"{spell(form)} takes no addresses")
    return lines


def _memory(form: Form, shared: ArrayLike) -> NDArray[np.uint8]:
    memory = as_array(shared, "shared")
    if memory.dtype != np.uint8 or memory.ndim != 1:
        raise InvalidOperand(f"{spell(form)}: shared must be uint8[bytes], got {memory.dtype} of shape {memory.shape}")
    return memory


def _addresses(form: Form, addresses: ArrayLike, memory: NDArray[np.uint8], lines: Layout) -> NDArray[np.int64]:
    """Return the address of each line, [..., matrix, line]; lanes that supply no address are ignored."""
    lanes = as_array(addresses, "addresses")
    if lanes.dtype.kind not in "iu" or lanes.shape[-1:] != (LANES,):
        raise InvalidOperand(
            f"{spell(form)}: expected addresses int[..., {LANES}], got {lanes.dtype} of shape {lanes.shape}"
        )
    read = lanes[..., : lines.lanes]
    wrong = (read % LINE != 0) | (read < 0) | (read > len(memory) - LINE)
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        expected = f"multiples of {LINE} in a memory of {len(memory)} bytes"
        raise InvalidOperand(f"{spell(form)}: the address of lane {at[-1]} is {int(read[at])}, expected {expected}")
    ordered: NDArray[np.int64] = read.astype(np.int64)[..., fragment.first_places(lines)]
    return ordered.reshape(*read.shape[:-1], *lines.shape)


def _codes(row: OperandSpec, data: NDArray[np.uint8], lines: Layout) -> NDArray[Any]:
    """Decode lines of bytes to codes [..., matrix, row, col]."""
    bits = row.format.bits
    count = row.layout.outs["col" if "row" in lines.outs else "row"]
    ones = np.unpackbits(data[..., : count * bits // 8], axis=-1, bitorder="little")
    weights = 1 << np.arange(bits)
    codes: NDArray[Any] = (ones.reshape(*data.shape[:-1], count, bits) @ weights).astype(f"u{-(-bits // 8)}")
    return codes if "row" in lines.outs else codes.swapaxes(-1, -2)


def _bytes(row: OperandSpec, codes: NDArray[Any], lines: Layout) -> NDArray[np.uint8]:
    """Encode codes as lines of bytes: the inverse of `_codes`."""
    bits = row.format.bits
    turned = codes if "row" in lines.outs else codes.swapaxes(-1, -2)
    ones = (turned[..., None] >> np.arange(bits, dtype=turned.dtype) & 1).astype(np.uint8)
    return np.packbits(ones.reshape(*turned.shape[:-1], turned.shape[-1] * bits), axis=-1, bitorder="little")
