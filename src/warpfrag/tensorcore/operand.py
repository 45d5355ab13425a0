"""Operands: an instruction's inputs and outputs, their layouts, and conversions from and to matrices.

Every operand has a layout and a format. `Operand` is a whole matrix (for a sparse A, its stored half). `Metadata` and
`Scale` are registers; an instruction reads the part that its immediates select.

Methods that need NumPy import it when they are called, so that look-ups do not import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias, cast

from warpfrag.errors import InvalidOperand, InvalidSparsity, NotModelled, check_flag, check_index, quote
from warpfrag.formats.number_formats import Format, Rounding
from warpfrag.isa.immediates import SELECTED_BY, immediate_coordinates, legal
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.operands import REGISTER_BITS, OperandSpec, OperandStorage, operands
from warpfrag.isa.qualifiers import Form
from warpfrag.isa.sparsity_patterns import Pattern, pattern_of
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.layout.coordinates import Coordinate, Place, coordinate_type
from warpfrag.layout.linear_layout import Layout
from warpfrag.layout.providers import card, tensor_operand
from warpfrag.tensorcore.shared_operand import Shared, as_descriptor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Array, Numbers, Words
    from warpfrag.smem.descriptor import Descriptor
    from warpfrag.smem.shared_memory import Memory


class Bits(NamedTuple):
    """An inclusive range of bits in one register."""

    high: int
    low: int


class Span(NamedTuple):
    """The logical columns that one register of a sparse A can contain, and the row that they are in."""

    row: int
    first: int
    last: int


class FieldPlace(NamedTuple):
    """The position of a metadata code: a lane and the lowest of its four bits."""

    lane: int
    bit: int


class WarpFieldPlace(NamedTuple):
    """The position of a warpgroup's metadata code: a warp, a lane and the lowest of its four bits."""

    warp: int
    lane: int
    bit: int


class BytePlace(NamedTuple):
    """The position of a scale factor: a lane, and a byte of its word."""

    lane: int
    byte: int


def thread_of(warp: int | None, lane: int) -> dict[str, int]:
    """Return a thread's coordinates in a layout: the lane in a warp, or the warp and lane in a warpgroup."""
    return {"lane": lane} if warp is None else {"warp": warp, "lane": lane}


@dataclass(frozen=True)
class OperandBase:
    """The base class of operands: a role, a format, a storage and a layout."""

    spec: OperandSpec
    instruction: str

    def __repr__(self) -> str:
        """Format the role, format, shape and registers."""
        kind = type(self).__name__
        where = "shared memory" if self.storage == "shared" else f"{self.regs} x {self.ptx_type}"
        return f"<{kind} {self.role}: {self.format} {self.shape} in {where}>"

    def _repr_html_(self) -> str:
        """Return an HTML card for notebooks."""
        return card(self)

    @property
    def role(self) -> str:
        """The role: a, b, c, d, metadata, scale_a or scale_b."""
        return self.spec.role

    @property
    def format(self) -> Format:
        """The number format of an element."""
        return self.spec.format

    @property
    def storage(self) -> OperandStorage:
        """The storage of the operand: registers of a warp or warpgroup, or shared memory."""
        return self.spec.storage

    @property
    def layout(self) -> Layout:
        """The layout of the elements; raises NotModelled if it is unknown."""
        if self.spec.unknown:
            raise NotModelled(self.spec.unknown)
        return self._registers

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that pack takes and unpack returns."""
        chosen = SELECTED_BY.get(self.role, ())
        return tuple(extent for name, extent in self.spec.layout.outs.items() if name not in chosen)

    @cached_property
    def _registers(self) -> Layout:
        """The layout of the registers; if it is unknown, only its extents are valid."""
        if self.storage == "shared":
            raise InvalidOperand(
                f"{self.description} is in shared memory and has no registers; "
                "use addresses(descriptor) for its addresses, and store(matrix) and load(tile) to copy it"
            )
        return self.spec.layout

    @property
    def regs(self) -> int:
        """The number of registers per lane; a register has 64 bits for f64, else 32."""
        return self._registers.regs

    @property
    def slots(self) -> int:
        """The number of elements per register."""
        return self._registers.slots

    @property
    def words(self) -> int:
        """The number of 32-bit registers per lane."""
        return self.regs * self.spec.register_bits // REGISTER_BITS

    @property
    def ptx_type(self) -> str:
        """The PTX type of the registers."""
        return self.format.register

    @property
    def source(self) -> str:
        """The document that specifies the layout."""
        return self.spec.source

    def bits(self, slot: int) -> Bits:
        """Return the register bits of a slot."""
        low = check_index("slot", slot, self.slots) * self.spec.container + self.spec.low
        return Bits(low + self.format.bits - 1, low)

    @property
    def description(self) -> str:
        """The operand's name in error messages."""
        return f"operand {self.role} of {self.instruction}"

    @property
    def threads(self) -> tuple[int, ...]:
        """The extents of the threads that hold the operand: 32 lanes, or 4 warps of 32 lanes."""
        _ = self._registers  # raises an error if the operand has no registers
        return self.spec.threads

    def _known_row(self) -> OperandSpec:
        """The operand's table row; raises NotModelled if its layout is unknown."""
        _ = self.layout  # raises NotModelled if the layout is unknown
        return self.spec

    def _check_words(self, words: ArrayLike, axes: tuple[int, ...]) -> Words:
        """Return registers as an array, after checking the extents of its last axes."""
        import numpy as np

        from warpfrag.formats.arrays import as_array

        registers = as_array(words, self.description)
        expected = f"uint32[..., {', '.join(map(str, axes))}]"
        if registers.dtype != np.uint32:
            raise InvalidOperand(f"{self.description}: expected registers {expected}, got dtype {registers.dtype}")
        if registers.shape[max(0, registers.ndim - len(axes)) :] != axes:
            raise InvalidOperand(f"{self.description}: expected registers {expected}, got shape {registers.shape}")
        return registers.astype(np.uint32, copy=False)

    def codes(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> Array:
        """Return the unsigned codes of a matrix, whose last axes must have this operand's shape."""
        from warpfrag.formats.arrays import as_array
        from warpfrag.formats.codes import codes_of

        array = as_array(matrix, self.description)
        if array.shape[max(0, array.ndim - len(self.shape)) :] != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise InvalidOperand(f"{self.description}: expected an array of shape (..., {expected}), got {array.shape}")
        return codes_of(self.format, array, raw=raw, rounding=rounding, label=self.description)


@dataclass(frozen=True, repr=False)
class Operand(OperandBase):
    """A matrix in registers or, for wgmma's B and sometimes its A, in shared memory.

    A sparse A has a `pattern`: its layout is that of the stored half, and each register covers a span of logical
    columns. `staged` is True if the operand may be in shared memory.
    """

    pattern: Pattern | None = None
    staged: bool = False
    descriptor_kind: ClassVar[str] = "wgmma"

    def element(self, *, reg: int, slot: int = 0) -> int:
        """Return the PTX number of an element in a lane, as in a0, a1, ..."""
        return check_index("reg", reg, self.regs) * self.slots + check_index("slot", slot, self.slots)

    def tiled(self, **counts: int) -> Operand:
        """Return several adjacent tiles as one operand; col=2 adds a second tile on the right.

        The registers of the first tile come first, then those of the next, in the order of the keywords.
        """
        return replace(self, spec=replace(self._known_row(), layout=self.layout.tiled(**counts)))

    def pack(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> Words:
        """Pack a matrix into registers: uint32[..., 32, words]. Leading axes are a batch; every copy is written.

        An array of the natural dtype is read as bits. Any other array is read by value; inexact values are rejected
        unless `rounding="rne"`. With `raw=True`, the array holds unsigned codes.
        """
        from warpfrag.tensorcore import fragment

        return fragment.pack(self._known_row(), self.codes(matrix, raw=raw, rounding=rounding))

    def unpack(self, words: ArrayLike, *, raw: bool = False, strict: bool = False) -> Array:
        """Return the matrix in these registers, in the natural dtype, or as unsigned codes with `raw=True`.

        If an element has copies, the first is read, as the hardware does; `strict=True` rejects unequal copies.
        """
        from warpfrag.formats import codes
        from warpfrag.tensorcore import fragment

        check_flag("raw", raw)
        elements = fragment.unpack(self._known_row(), self.check_words(words), strict=check_flag("strict", strict))
        return elements if raw else codes.from_codes(self.format, elements)

    def check_words(self, words: ArrayLike) -> Words:
        """Return registers as an array; raise InvalidOperand unless it is uint32[..., 32, words]."""
        return self._check_words(words, (*self.threads, self.words))

    # ---- shared memory

    @property
    def transposable_bits(self) -> tuple[int, ...]:
        """The bit widths of the types that may be MN-major."""
        from warpfrag.smem.descriptor import TURNABLE

        return (TURNABLE,)

    def addresses(self, desc: Descriptor | int, trans: bool = False) -> Numbers:  # noqa: FBT001, FBT002 (public signature)
        """Return the byte address of each element that a descriptor reads; several b1 elements share a byte."""
        return self.memory(desc, trans=trans).addresses(self._extents, self.format.bits)

    def memory(self, desc: Descriptor | int, *, trans: bool = False) -> Memory:
        """Return the layout in shared memory that a descriptor gives the operand."""
        if not self.staged:
            raise InvalidOperand(f"{self.description} is in registers; only A and B of wgmma can be in shared memory")
        if check_flag("trans", trans) and self.format.bits not in self.transposable_bits:
            types = " and ".join(f"{bits}-bit" for bits in self.transposable_bits)
            raise InvalidOperand(
                f"{self.description} is K-major: only {types} types can be MN-major (trans), not {self.format.name}"
            )
        return as_descriptor(desc, self.descriptor_kind).memory(self.role, trans=trans)

    def descriptors(
        self, *, k: int | None = None, swizzle: int | None = None, trans: bool = False, start: int = 0
    ) -> list[Descriptor]:
        """Return the descriptors of a contiguous tile, one for each instruction along its k.

        The tile has `k` columns of A or rows of B, by default those of one instruction. Each descriptor starts where
        the elements of its instruction start. `swizzle` defaults to the widest one that divides the length of a line.
        """
        from warpfrag.smem.descriptor import compact

        self.memory(0, trans=trans)  # raises an error for a type that cannot be transposed
        return compact(self, trans=trans, swizzle=swizzle, k=k, start=start)

    def store(
        self,
        matrix: ArrayLike,
        desc: Descriptor | int | None = None,
        *,
        trans: bool = False,
        raw: bool = False,
        rounding: Rounding = None,
    ) -> Shared:
        """Store a matrix in shared memory, laid out for `desc`, by default the descriptor of a contiguous tile.

        Leading axes are a batch. Bytes between the elements are 0. Raises InvalidOperand if elements would overlap.
        """
        import numpy as np

        codes = self.codes(matrix, raw=raw, rounding=rounding)
        descriptor = self.descriptors(trans=trans)[0] if desc is None else as_descriptor(desc, self.descriptor_kind)
        memory = self.memory(descriptor, trans=trans)
        empty = np.zeros((*codes.shape[:-2], memory.size(self._extents, self.format.bits)), np.uint8)
        return Shared(memory.write(empty, codes, self.format.bits), descriptor, trans)

    def load(self, tile: Shared, *, raw: bool = False) -> Array:
        """Return the matrix in shared memory, in the natural dtype, or as unsigned codes with `raw=True`."""
        from warpfrag.formats.codes import from_codes

        codes = self.read(tile)
        return codes if check_flag("raw", raw) else from_codes(self.format, codes)

    def read(self, tile: Shared) -> Array:
        """Return the codes of a tile; raise an error if its descriptor reads beyond its memory."""
        from warpfrag.formats.codes import code_dtype

        if not isinstance(tile, Shared):
            raise InvalidOperand(f"{self.description}: expected a Shared, as `store` returns; got {quote(tile)}")
        memory = self.memory(tile.descriptor, trans=tile.trans)
        return memory.read(tile.memory, self._extents, self.format.bits).astype(code_dtype(self.format))

    @property
    def _extents(self) -> tuple[int, int]:
        rows, cols = self.shape
        return rows, cols

    # ---- sparse A

    @property
    def sparsity(self) -> Pattern:
        """The pattern of a sparse A; raises InvalidSparsity for any other operand."""
        if self.pattern is None:
            raise InvalidSparsity(f"{self.description} is dense: only a sparse A has logical columns and metadata")
        return self.pattern

    def span(self, *, lane: int, reg: int, warp: int | None = None) -> Span:
        """Return the range of logical columns in one register of a sparse A, as the ISA specifies it."""
        rule = self.sparsity
        thread = thread_of(warp, lane)
        first = self.layout.at(**thread, reg=reg, slot=0)
        last = self.layout.at(**thread, reg=reg, slot=self.slots - 1)
        return Span(first.row, first.col // rule.kept * rule.chunk, last.col // rule.kept * rule.chunk + rule.chunk - 1)

    def full_codes(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> Array:
        """Return the unsigned codes of a full A, which has twice the stored columns."""
        from warpfrag.formats.arrays import as_array
        from warpfrag.formats.codes import codes_of

        _ = self.sparsity  # raises an error for a dense operand
        full = as_array(matrix, self.description)
        rows, stored = self.shape
        if full.shape[-2:] != (rows, 2 * stored):
            raise InvalidSparsity(
                f"{self.description}: expected a full A of shape (..., {rows}, {2 * stored}), got {full.shape}"
            )
        return codes_of(self.format, full, raw=raw, rounding=rounding, label=self.description)

    def where(self, *, row: int, col: int, codes: ArrayLike) -> list[Place]:
        """Return every place that holds a logical element of a sparse A, given the metadata codes of A."""
        import numpy as np

        from warpfrag.formats.arrays import as_array
        from warpfrag.tensorcore.sparsity import logical_columns

        rule = self.sparsity
        rows, stored = self.shape
        check_index("row", row, rows)
        check_index("col", col, 2 * stored)
        fields = as_array(codes, self.description)
        expected = (rows, stored // rule.kept)
        if fields.shape != expected:
            raise InvalidSparsity(
                f"{self.description}: expected metadata codes of shape {expected}, got {fields.shape}"
            )
        columns = logical_columns(rule, fields)[row]
        return [place for at in np.flatnonzero(columns == col) for place in self.layout.where(row=row, col=int(at))]


@dataclass(frozen=True, repr=False)
class SparseOperand(Operand):
    """The A of a sparse instruction."""

    pattern: Pattern


class SelectedWord(OperandBase):
    """An operand with one register per lane; immediates select the part that an instruction reads."""

    def _pack(self, codes: Array, chosen: dict[str, int]) -> Words:
        """Return registers with only the selected part written."""
        import numpy as np

        from warpfrag.tensorcore import fragment

        choice = tuple(immediate_coordinates(self.layout, chosen).values())
        batch = codes.shape[: codes.ndim - len(self.shape)]
        everything = np.zeros((*self.layout.shape[: len(choice)], *batch, *self.shape), codes.dtype)
        everything[choice] = codes
        everything = np.moveaxis(everything, range(len(choice)), range(len(batch), len(batch) + len(choice)))
        return fragment.pack(self.spec, everything)[..., 0]

    def _unpack(self, words: ArrayLike, chosen: dict[str, int]) -> Array:
        """Return the codes of the selected part."""
        import numpy as np

        from warpfrag.tensorcore import fragment

        choice = tuple(immediate_coordinates(self.layout, chosen).values())
        everything = fragment.unpack(self.spec, self.check_words(words)[..., None])
        batch = everything.ndim - len(self.layout.shape)
        elements: Array = np.moveaxis(everything, range(batch, batch + len(choice)), range(len(choice)))[choice]
        return elements

    def _place(self, chosen: dict[str, int], element: dict[str, int]) -> Place:
        """Return the one register slot of an element in the selected part."""
        (place,) = self.layout.where(**immediate_coordinates(self.layout, chosen), **element)
        return place

    def _element(self, thread: dict[str, int], slot: int, chosen: dict[str, int]) -> Coordinate:
        """Return the element in a slot; raise InvalidOperand if these immediates do not read the slot."""
        wanted = immediate_coordinates(self.layout, chosen)
        element = self.layout.at(**thread, slot=slot)._asdict()
        if any(element[name] != index for name, index in wanted.items()):
            read = ", ".join(f"{name} {legal(self.layout, name)[element[name]]}" for name in wanted)
            asked = ", ".join(f"{name} {value}" for name, value in chosen.items())
            bits = self.bits(slot)
            those = f"bits {bits.low} to {bits.high} of lane {thread['lane']}"
            raise InvalidOperand(f"{self.description}: {those} are read only with {read}, got {asked}")
        rest = {name: index for name, index in element.items() if name not in wanted}
        return coordinate_type(tuple(rest))._make(rest.values())

    def check_words(self, words: ArrayLike) -> Words:
        """Return registers as an array; raise InvalidOperand unless it is uint32[..., 32]."""
        return self._check_words(words, self.threads)


class Metadata(SelectedWord):
    """The metadata register: a 4-bit code per row and chunk of A.

    The sparsity selector selects the lanes that are read.
    """

    @property
    def selectors(self) -> range:
        """The legal selectors."""
        return legal(self.spec.layout, "selector")

    def pack(self, codes: ArrayLike, *, selector: int = 0) -> Words:
        """Pack codes uint8[..., rows, chunks] into a register per lane, uint32[..., 32]; unselected bits are 0."""
        return self._pack(self.codes(codes, raw=True), {"selector": selector})

    def unpack(self, words: ArrayLike, *, selector: int = 0) -> Array:
        """Return the codes uint8[..., rows, chunks] that an instruction with this selector reads."""
        return self._unpack(words, {"selector": selector})

    def where(self, *, row: int, chunk: int, selector: int = 0) -> FieldPlace | WarpFieldPlace:
        """Return the lane and lowest bit of one chunk's code; for a warpgroup, also the warp."""
        place = self._place({"selector": selector}, {"row": row, "chunk": chunk})
        bit = self.bits(place.slot).low
        return WarpFieldPlace(place.warp, place.lane, bit) if len(self.threads) > 1 else FieldPlace(place.lane, bit)

    def at(self, *, lane: int, bit: int, selector: int = 0, warp: int | None = None) -> Coordinate:
        """Return the row and chunk of the code that contains a bit; raise an error unless `selector` reads that bit."""
        slot = check_index("bit", bit, REGISTER_BITS) // self.spec.container
        return self._element(thread_of(warp, lane), slot, {"selector": selector})


class Scale(SelectedWord):
    """The scale register of A or B, with one byte per scale factor.

    byte_id and thread_id select the bytes and lanes to read.
    """

    @property
    def thread_ids(self) -> range:
        """The legal thread ids."""
        return legal(self.spec.layout, "thread_id")

    @property
    def byte_ids(self) -> range:
        """The legal byte ids: the first byte of each group of scales."""
        return legal(self.spec.layout, "byte_id")

    def pack(
        self, scales: ArrayLike, *, byte_id: int = 0, thread_id: int = 0, raw: bool = False, rounding: Rounding = None
    ) -> Words:
        """Pack scale factors into a register per lane, uint32[..., 32]; bytes and lanes that are not read are 0."""
        codes = self.codes(scales, raw=raw, rounding=rounding)
        return self._pack(codes, {"thread_id": thread_id, "byte_id": byte_id})

    def unpack(self, words: ArrayLike, *, byte_id: int = 0, thread_id: int = 0, raw: bool = False) -> Array:
        """Return the scale factors that an instruction with these ids reads."""
        from warpfrag.formats.codes import from_codes

        scales = self._unpack(words, {"thread_id": thread_id, "byte_id": byte_id})
        return scales if check_flag("raw", raw) else from_codes(self.format, scales)

    def where(self, *, byte_id: int = 0, thread_id: int = 0, **element: int) -> BytePlace:
        """Return the lane and byte of a scale factor: pass `row` and `scale` for A, `scale` and `col` for B."""
        place = self._place({"thread_id": thread_id, "byte_id": byte_id}, element)
        return BytePlace(place.lane, place.slot)

    def at(self, *, lane: int, byte: int, byte_id: int = 0, thread_id: int = 0) -> Coordinate:
        """Return the coordinates of the scale factor in a byte; raise an error unless these ids read that byte."""
        check_index("byte", byte, self.slots)
        return self._element({"lane": lane}, byte, {"thread_id": thread_id, "byte_id": byte_id})


AnyOperand: TypeAlias = Operand | Metadata | Scale


class Operands(Mapping[str, AnyOperand]):
    """The operands of an instruction by role, also available as typed attributes.

    An attribute is None if the instruction lacks the operand. Its type omits None, because a caller that uses the
    metadata already has a sparse instruction.
    """

    a: Operand
    b: Operand
    c: Operand
    d: Operand
    metadata: Metadata
    scale_a: Scale
    scale_b: Scale

    def __init__(self, operands: Iterable[AnyOperand]) -> None:
        """Create the mapping from operands in the instruction's order."""
        self._by_role = {operand.role: operand for operand in operands}
        for role in ("a", "b", "c", "d", "metadata", "scale_a", "scale_b"):
            setattr(self, role, self._by_role.get(role))

    def __getitem__(self, role: str) -> AnyOperand:
        """Return the operand of a role."""
        return self._by_role[role]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the roles in the instruction's order."""
        return iter(self._by_role)

    def __len__(self) -> int:
        """Return the number of operands."""
        return len(self._by_role)

    @property
    def selected_layouts(self) -> dict[str, Layout]:
        """The layouts of registers from which immediates select a part: metadata and scale factors."""
        return {role: operand.layout for role, operand in self._by_role.items() if role in SELECTED_BY}


@cache
def operands_of(form: Form, arch: str) -> Operands:
    """Return all operands of a form; `arch` is the architecture of its wmma fragments."""
    name = spell(form)
    rule = pattern_of(form)

    def build(row: OperandSpec) -> AnyOperand:
        if isinstance(form, TensorForm):
            return cast("AnyOperand", tensor_operand(row, form, rule))
        if row.role == "metadata":
            return Metadata(row, name)
        if row.role in SELECTED_BY:
            return Scale(row, name)
        staged = form.operation.storage[row.role] != "registers"
        if row.role == "a" and rule is not None:
            return SparseOperand(row, name, rule, staged)
        return Operand(row, name, staged=staged)

    return Operands(build(row) for row in operands(form, arch).values())
