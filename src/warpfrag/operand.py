"""Operands: the registers that an instruction reads or writes, and what sits in them.

Every kind of operand is a layout and a format. `Operand` is a whole matrix; `SparseOperand` is the stored half of a
sparse A; `Metadata` and `Scale` are words of which an instruction reads a part that the programmer chooses.

Methods that need numpy import it when they are called, so that looking something up costs no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from warpfrag.errors import InvalidOperand, InvalidSparsity, NotModelled
from warpfrag.isa.names import spell
from warpfrag.isa.operands import REGISTER_BITS, OperandRow, operands
from warpfrag.isa.patterns import pattern_of
from warpfrag.layout import Layout, check_index, coordinate_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.formats import Format, Rounding
    from warpfrag.isa.patterns import Pattern
    from warpfrag.isa.words import Form
    from warpfrag.layout import Place


class Bits(NamedTuple):
    """A range of bits of one register, both ends included."""

    high: int
    low: int


class Span(NamedTuple):
    """The logical columns, first to last, that one register of a sparse A can hold, and their row."""

    row: int
    first: int
    last: int


class FieldPlace(NamedTuple):
    """Where a metadata code sits: a lane and the lowest of its four bits."""

    lane: int
    bit: int


class BytePlace(NamedTuple):
    """Where a scale factor sits: a lane and a byte of its word."""

    lane: int
    byte: int


@dataclass(frozen=True)
class Registers:
    """What all operands have: a role, a format, registers and a layout."""

    row: OperandRow
    instruction: str

    def __repr__(self) -> str:
        """Role, format, shape and registers."""
        kind = type(self).__name__
        return f"<{kind} {self.role}: {self.format} {self.shape} in {self.regs} x {self.ptx_type}>"

    @property
    def role(self) -> str:
        """One of a, b, c, d, metadata, scale_a, scale_b."""
        return self.row.role

    @property
    def format(self) -> Format:
        """What one element is."""
        return self.row.format

    @property
    def layout(self) -> Layout:
        """Where each element sits; NotModelled where nobody knows."""
        if self.row.unknown:
            raise NotModelled(self.row.unknown)
        return self.row.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the array that pack takes and unpack gives."""
        return self.row.layout.shape

    @property
    def regs(self) -> int:
        """Registers per lane; 64 bits wide for f64, else 32."""
        return self.row.layout.regs

    @property
    def slots(self) -> int:
        """Elements per register."""
        return self.row.layout.slots

    @property
    def words(self) -> int:
        """Words of 32 bits per lane."""
        return self.regs * self.row.register_bits // REGISTER_BITS

    @property
    def ptx_type(self) -> str:
        """PTX type of the registers."""
        return self.format.register

    @property
    def source(self) -> str:
        """Where the layout is taken from."""
        return self.row.source

    def bits(self, slot: int) -> Bits:
        """The bits of its register that hold the code in a slot."""
        check_index("slot", slot, self.slots)
        low = slot * self.row.container + self.row.low
        return Bits(low + self.format.bits - 1, low)

    @property
    def described(self) -> str:
        """How an error names this operand."""
        return f"operand {self.role} of {self.instruction}"

    def _known_row(self) -> OperandRow:
        """The row, for work that needs its layout."""
        _ = self.layout  # raises NotModelled where nobody knows it
        return self.row

    def _check_words(self, words: ArrayLike, axes: tuple[int, ...]) -> NDArray[np.uint32]:
        """Register words whose last axes are as expected."""
        import numpy as np

        from warpfrag.codes import as_array

        found = as_array(words, self.described)
        expected = f"uint32[..., {', '.join(map(str, axes))}]"
        if found.dtype != np.uint32:
            msg = f"{self.described}: expected registers {expected}, got dtype {found.dtype}"
            raise InvalidOperand(msg)
        if found.shape[max(0, found.ndim - len(axes)) :] != axes:
            msg = f"{self.described}: expected registers {expected}, got shape {found.shape}"
            raise InvalidOperand(msg)
        return found

    def codes(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> NDArray[Any]:
        """The unsigned codes of a matrix, refused unless its last axes have this operand's shape."""
        from warpfrag.codes import as_array, check_codes, to_codes

        found = as_array(matrix, self.described)
        if found.shape[max(0, found.ndim - len(self.shape)) :] != self.shape:
            expected = ", ".join(map(str, self.shape))
            msg = f"{self.described}: expected an array of shape (..., {expected}), got {found.shape}"
            raise InvalidOperand(msg)
        if raw:
            return check_codes(self.format, found, what=self.described)
        return to_codes(self.format, found, rounding=rounding, what=self.described)


@dataclass(frozen=True, repr=False)
class Operand(Registers):
    """A matrix spread over the lanes of a warp."""

    def element(self, *, reg: int, slot: int = 0) -> int:
        """PTX's number of the element in a slot: a0, a1, ... count through the registers of a lane."""
        return reg * self.slots + slot

    def pack(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> NDArray[np.uint32]:
        """Registers that hold a matrix: uint32[..., 32, words]. Leading axes are a batch; every copy is written.

        An array of the natural dtype is taken by its bits; another one by value, refused where a value is not exact
        unless `rounding="rne"`. With `raw=True` the array holds unsigned codes.
        """
        from warpfrag import fragment

        return fragment.pack(self._known_row(), self.codes(matrix, raw=raw, rounding=rounding))

    def unpack(self, words: ArrayLike, *, raw: bool = False, strict: bool = False) -> NDArray[Any]:
        """The matrix that registers hold, in the natural dtype, or as unsigned codes with `raw=True`.

        Where an element has copies the first is read, as the hardware does; `strict=True` refuses unequal copies.
        """
        from warpfrag import codes, fragment

        found = fragment.unpack(self._known_row(), self.check_words(words), strict=strict)
        return found if raw else codes.from_codes(self.format, found)

    def check_words(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Registers as an array, refused unless it is uint32[..., 32, words]."""
        return self._check_words(words, (self.row.layout.lanes, self.words))


@dataclass(frozen=True, repr=False)
class SparseOperand(Operand):
    """A of a sparse instruction: the layout is that of the stored half; each register covers a span of columns."""

    pattern: Pattern
    ordered: bool

    def span(self, *, lane: int, reg: int) -> Span:
        """The logical column range of one register, as the ISA states it."""
        first = self.layout.at(lane=lane, reg=reg, slot=0)
        last = self.layout.at(lane=lane, reg=reg, slot=self.slots - 1)
        chunk, kept = self.pattern.chunk, self.pattern.kept
        return Span(first.row, first.col // kept * chunk, last.col // kept * chunk + chunk - 1)

    def full_codes(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> NDArray[Any]:
        """The unsigned codes of a full A, of twice the stored columns."""
        from warpfrag.codes import as_array, check_codes, to_codes

        full = as_array(matrix, self.described)
        rows, stored = self.shape
        if full.shape[-2:] != (rows, 2 * stored):
            msg = f"{self.described}: expected a full A of shape (..., {rows}, {2 * stored}), got {full.shape}"
            raise InvalidSparsity(msg)
        if raw:
            return check_codes(self.format, full, what=self.described)
        return to_codes(self.format, full, rounding=rounding, what=self.described)

    def where(self, *, row: int, col: int, codes: ArrayLike) -> list[Place]:
        """Every place that holds a logical element under these metadata codes; none where it is not stored."""
        import numpy as np

        from warpfrag.codes import as_array
        from warpfrag.sparsity import logical_columns

        rows, stored = self.shape
        check_index("row", row, rows)
        check_index("col", col, 2 * stored)
        fields = as_array(codes, self.described)
        expected = (rows, stored // self.pattern.kept)
        if fields.shape != expected:
            msg = f"{self.described}: expected metadata codes of shape {expected}, got {fields.shape}"
            raise InvalidSparsity(msg)
        columns = logical_columns(self.pattern, fields, ordered=self.ordered)[row]
        return [
            place for index in np.flatnonzero(columns == col) for place in self.layout.where(row=row, col=int(index))
        ]


@dataclass(frozen=True, repr=False)
class Chosen(Registers):
    """One word per lane, of which an instruction reads the part that some leading coordinates choose."""

    def _pack(self, codes: NDArray[Any], choice: tuple[int, ...]) -> NDArray[np.uint32]:
        """Words in which only the chosen part is written."""
        import numpy as np

        from warpfrag import fragment

        batch = codes.shape[: codes.ndim - len(self.shape)]
        everything = np.zeros((*self.layout.shape[: len(choice)], *batch, *self.shape), codes.dtype)
        everything[choice] = codes
        everything = np.moveaxis(everything, range(len(choice)), range(len(batch), len(batch) + len(choice)))
        words: NDArray[np.uint32] = fragment.pack(self.row, everything)[..., 0]
        return words

    def _unpack(self, words: ArrayLike, choice: tuple[int, ...]) -> NDArray[Any]:
        """Codes of the chosen part of words."""
        import numpy as np

        from warpfrag import fragment

        everything = fragment.unpack(self.row, self.check_words(words)[..., None])
        batch = everything.ndim - len(self.layout.shape)
        found: NDArray[Any] = np.moveaxis(everything, range(batch, batch + len(choice)), range(len(choice)))[choice]
        return found

    def check_words(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Words as an array, refused unless it is uint32[..., 32]."""
        return self._check_words(words, (self.row.layout.lanes,))


@dataclass(frozen=True, repr=False)
class Metadata(Chosen):
    """The metadata word: a 4-bit code per row and chunk of A. The sparsity selector says which lanes are read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and chunks."""
        return self.row.layout.shape[1:]

    @property
    def selectors(self) -> range:
        """The legal selectors."""
        return range(self.row.layout.shape[0])

    def pack(self, codes: ArrayLike, *, selector: int = 0) -> NDArray[np.uint32]:
        """The word of each lane, uint32[..., 32], for codes uint8[..., rows, chunks]; what is not read holds 0."""
        check_index("selector", selector, len(self.selectors))
        return self._pack(self.codes(codes, raw=True), (selector,))

    def unpack(self, words: ArrayLike, *, selector: int = 0) -> NDArray[Any]:
        """The codes uint8[..., rows, chunks] that an instruction with this selector reads."""
        check_index("selector", selector, len(self.selectors))
        return self._unpack(words, (selector,))

    def where(self, *, row: int, chunk: int, selector: int = 0) -> FieldPlace:
        """Lane and lowest bit of the code of one chunk."""
        (place,) = self.layout.where(selector=selector, row=row, chunk=chunk)
        return FieldPlace(place.lane, self.bits(place.slot).low)

    def at(self, *, lane: int, bit: int, selector: int = 0) -> Any:  # noqa: ANN401 (see coordinate_type)
        """Row and chunk of the code that covers a bit; refused where this selector does not read it."""
        check_index("selector", selector, len(self.selectors))
        check_index("bit", bit, REGISTER_BITS)
        found = self.layout.at(lane=lane, slot=bit // self.row.container)
        if found.selector != selector:
            msg = f"{self.described}: lane {lane} is read with selector {found.selector}, not with {selector}"
            raise InvalidOperand(msg)
        return coordinate_type(("row", "chunk"))(found.row, found.chunk)


@dataclass(frozen=True, repr=False)
class Scale(Chosen):
    """The scale word of A or B: one byte per scale factor. byte_id and thread_id say which bytes and lanes are read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(16, s) for A, (s, 8) for B."""
        return self.row.layout.shape[2:]

    @property
    def thread_ids(self) -> range:
        """The legal thread ids."""
        return range(self.row.layout.shape[0])

    @property
    def byte_ids(self) -> range:
        """The legal byte ids: the first byte of each group of scales."""
        return range(0, 4, 4 // self.row.layout.shape[1])

    def _choice(self, byte_id: int, thread_id: int) -> tuple[int, int]:
        check_index("thread_id", thread_id, len(self.thread_ids))
        if byte_id not in self.byte_ids:
            msg = f"{self.described}: byte_id is one of {', '.join(map(str, self.byte_ids))}, got {byte_id!r}"
            raise InvalidOperand(msg)
        return thread_id, byte_id // self.byte_ids.step

    def pack(
        self, scales: ArrayLike, *, byte_id: int = 0, thread_id: int = 0, raw: bool = False, rounding: Rounding = None
    ) -> NDArray[np.uint32]:
        """The word of each lane, uint32[..., 32]; bytes and lanes that are not read hold 0."""
        choice = self._choice(byte_id, thread_id)
        return self._pack(self.codes(scales, raw=raw, rounding=rounding), choice)

    def unpack(self, words: ArrayLike, *, byte_id: int = 0, thread_id: int = 0, raw: bool = False) -> NDArray[Any]:
        """The scale factors that an instruction with these ids reads."""
        from warpfrag.codes import from_codes

        found = self._unpack(words, self._choice(byte_id, thread_id))
        return found if raw else from_codes(self.format, found)

    def where(self, *, byte_id: int = 0, thread_id: int = 0, **coordinates: int) -> BytePlace:
        """Lane and byte of one scale factor: row and scale for A, scale and col for B."""
        thread, group = self._choice(byte_id, thread_id)
        (place,) = self.layout.where(thread_id=thread, byte_id=group, **coordinates)
        return BytePlace(place.lane, place.slot)

    def at(self, *, lane: int, byte: int, byte_id: int = 0, thread_id: int = 0) -> Any:  # noqa: ANN401
        """The coordinates of the scale factor in a byte; refused where these ids do not read it."""
        check_index("byte", byte, self.slots)
        found = self.layout.at(lane=lane, slot=byte)
        if found[:2] != self._choice(byte_id, thread_id):
            reads = f"thread_id {found.thread_id}, byte_id {found.byte_id * self.byte_ids.step}"
            msg = f"{self.described}: lane {lane}, byte {byte} is read with {reads}"
            raise InvalidOperand(msg)
        return coordinate_type(self.layout.dims[2:])._make(found[2:])


@cache
def operands_of(form: Form, arch: str) -> Mapping[str, Any]:
    """Every operand of a form, by role; `arch` says whose wmma fragments."""
    name = spell(form)
    rule = pattern_of(form)

    def build(row: OperandRow) -> Registers:
        if row.role == "metadata":
            return Metadata(row, name)
        if row.role.startswith("scale"):
            return Scale(row, name)
        if row.role == "a" and rule is not None:
            return SparseOperand(row, name, rule, form.is_ordered)
        return Operand(row, name)

    return MappingProxyType({role: build(row) for role, row in operands(form, arch).items()})
