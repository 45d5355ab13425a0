"""Operands in tensor memory: matrices, scale factors, metadata, and the registers of loads.

The tensor memory of a block is uint32[128, columns], that of a pair of blocks uint32[2, 128, columns]. `pack` returns
the columns of one operand, `unpack` reads them; `through` returns the register layout after a load.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from warpfrag.errors import IllegalInstruction, InvalidOperand, ParseError, check_flag, quote
from warpfrag.formats.number_formats import Rounding
from warpfrag.isa.operands import REGISTER_BITS, OperandSpec
from warpfrag.isa.qualifiers import HasForm
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.isa.tcgen05_forms import TensorForm, read_form
from warpfrag.isa.tmem_layouts import access, partial_layout, scaled_lines
from warpfrag.layout.coordinates import Coordinate
from warpfrag.layout.linear_layout import Layout
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.shared_memory import Memory
from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, SparseOperand
from warpfrag.tensorcore.shared_operand import Shared, as_descriptor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.formats.arrays import Array, Numbers, Words

HALF = 16  # the bits of each column that a load with pack::16b keeps
PADDED = 16  # the number of elements, and of bytes, in a padded group of a 4- or 6-bit type


def load_layout(load: str | HasForm, column: int, base_lane: int = 0, columns: int | None = None) -> Layout:
    """Return the register layout of a load or store that accesses an operand's columns."""
    for label, number in (("column", column), ("base_lane", base_lane)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidOperand(f"{label} must be an integer, got {quote(number)}")
    try:
        form = read_form(load) if isinstance(load, str) else getattr(load, "form", None)
    except ParseError as error:
        raise IllegalInstruction(str(load)[:160], str(error)) from None
    if not isinstance(form, TensorForm) or not form.spelling.qualifier("lanes"):
        raise InvalidOperand(f"expected a tcgen05.ld or tcgen05.st instruction, or its name, got {quote(load)}")
    return access(form.spelling, column, base_lane, columns=columns)


class _InTensorMemory(OperandBase):
    """The base class of operands in tensor memory."""

    def __repr__(self) -> str:
        """Format the role, format, shape and columns."""
        return f"<{type(self).__name__} {self.role}: {self.format} {self.shape} in {self.columns} columns>"

    @property
    def columns(self) -> int:
        """The number of 32-bit columns of tensor memory that the operand occupies."""
        return self.layout.ins["column"]

    @property
    def slots(self) -> int:
        """The number of elements per column."""
        return self.layout.slots

    def check_words(self, words: ArrayLike) -> Words:
        """Return columns as an array of uint32[..., 128, columns] or, for a pair, uint32[..., 2, 128, columns]."""
        return self._check_words(words, self.threads)

    def through(self, load: str | HasForm, column: int = 0, *, base_lane: int = 0) -> Layout:
        """Return the register layout after a load: a map from (warp, lane, reg, slot), with block first for a pair.

        `column` is the first loaded column, relative to the operand's first; `base_lane` is the base lane of the
        address, 0 or 16 for shapes with 16 lanes. A register holds whole columns, so a slot is an element inside a
        column. If n is not a power of two, the layout's columns may extend to the next power of two; no register holds
        the additional columns.
        """
        loaded = load_layout(load, column, base_lane, self.columns)
        if loaded.slots > 1 and self.slots > 1:
            raise InvalidOperand(
                f"{self.description} has {self.slots} elements per column; a load that packs halves would split them up"
            )
        if loaded.slots > 1 and self.format.bits > HALF:
            raise InvalidOperand(
                f"{self.description} is {self.format}, but a load that packs halves keeps only 16 bits of each column"
            )
        return composed(self.layout, loaded)

    def _after(self, load: str | HasForm, column: int = 0, base_lane: int = 0) -> OperandSpec:
        """Return the operand's specification after a load to registers."""
        layout = self.through(load, column, base_lane=base_lane)
        return replace(self.spec, layout=layout, container=REGISTER_BITS // layout.slots)


def composed(places: Layout, loaded: Layout) -> Layout:
    """Compose a load with a memory layout; the elements within a column and the blocks of a pair are unchanged."""
    steps = {}
    if "block" in places.ins:
        steps["block"] = [(basis.radix, tuple(basis.moves)) for basis in places.steps("block")]
    moved = places.start
    for name in loaded.ins:
        steps[name] = []
        for basis in loaded.steps(name):
            target = {"tlane": basis.moves.tlane, "column": basis.moves.column, "slot": 0}
            zero = {"block": 0} if "block" in places.ins else {}
            element = places.at(**zero, **target)
            steps[name].append((basis.radix, tuple(to ^ start for to, start in zip(element, moved, strict=True))))
    if places.slots > 1:
        steps["slot"] = [(basis.radix, tuple(basis.moves)) for basis in places.steps("slot")]
    origin = places.at(
        **({"block": 0} if "block" in places.ins else {}), tlane=loaded.start.tlane, column=loaded.start.column, slot=0
    )
    layout = partial_layout(places.outs, steps, origin)
    if any(size & (size - 1) for size in places.outs.values()) and not _agrees(layout, places, loaded):
        raise InvalidOperand(
            f"no linear layout describes the registers of this load ({places.outs}): load other columns"
        )
    return layout


def _agrees(layout: Layout, places: Layout, loaded: Layout) -> bool:
    """Return True if a composed layout gives the right element for every register; only the first block is checked."""
    first = {"block": 0} if "block" in places.ins else {}
    return all(
        tuple(layout.at(**first, **register._asdict()))
        == tuple(places.at(**first, **loaded.at(**register._asdict())._asdict()))
        for register in loaded.places()
    )


class InTensorShared(Operand):
    """A tcgen05 operand that may be in shared memory, accessed through a tcgen05 descriptor.

    4- and 6-bit types of the f8f6f4 kinds are padded: every 16 bytes along k start with 16 packed elements.
    """

    descriptor_kind: ClassVar[str] = "tcgen05"

    @property
    def transposable_bits(self) -> tuple[int, ...]:
        """The bit widths of the types that may be MN-major."""
        return (8, 16, 32)

    @property
    def stored_bits(self) -> int:
        """The bits per element in shared memory, including padding."""
        return self.spec.container if self.is_padded else self.format.bits

    @property
    def is_padded(self) -> bool:
        """True if 16 elements are padded to 16 bytes."""
        return self.spec.container == 8 and self.format.bits < 8

    def addresses(self, desc: Descriptor | int, trans: bool = False) -> Numbers:  # noqa: FBT001, FBT002 (as wgmma's)
        """Return the byte address of each element that a descriptor reads.

        For padded types, it is the byte that contains the code's lowest bit.
        """
        import numpy as np

        memory = self.memory(desc, trans=trans)
        if not self.is_padded:
            return memory.addresses(self._extents, self.format.bits)
        starts, inside = self._padded(memory)
        return np.asarray(starts + inside * self.format.bits // 8)

    def _padded(self, memory: Memory) -> tuple[Numbers, Numbers]:
        """Return the first byte of each element's group of 16, and its index in the group."""
        import numpy as np

        cells = memory.addresses(self._extents, 8)
        along = 1 if self.role == "a" else 0
        inside = np.arange(self._extents[along]) % PADDED
        inside = inside[None, :] if along else inside[:, None]
        return cells - inside, np.broadcast_to(inside, cells.shape)

    def store(
        self,
        matrix: ArrayLike,
        desc: Descriptor | int | None = None,
        *,
        trans: bool = False,
        raw: bool = False,
        rounding: Rounding = None,
    ) -> Shared:
        """Store a matrix in shared memory, laid out for `desc`, by default the descriptor of a contiguous tile."""
        import numpy as np

        if not self.is_padded:
            return super().store(matrix, desc, trans=trans, raw=raw, rounding=rounding)
        codes = self.codes(matrix, raw=raw, rounding=rounding)
        descriptor = self.descriptors(trans=trans)[0] if desc is None else as_descriptor(desc, self.descriptor_kind)
        starts, inside = self._padded(self.memory(descriptor, trans=trans))
        memory = np.zeros((*codes.shape[:-2], int(starts.max()) + PADDED), np.uint8)
        for bit in range(self.format.bits):
            places = inside * self.format.bits + bit
            bits = (codes.astype(np.int64) >> bit & 1) << places % 8
            np.bitwise_or.at(memory, (..., starts + places // 8), bits.astype(np.uint8))  # type: ignore[arg-type]
        return Shared(memory, descriptor, trans)

    def read(self, tile: Shared) -> Array:
        """Return the codes of a tile; raise an error if its descriptor reads beyond its memory."""
        import numpy as np

        if not self.is_padded or not isinstance(tile, Shared):
            return super().read(tile)
        starts, inside = self._padded(self.memory(tile.descriptor, trans=tile.trans))
        if int(starts.max()) + PADDED > tile.memory.shape[-1]:
            raise InvalidOperand(
                f"{self.description} reaches byte {int(starts.max()) + PADDED - 1} of {tile.memory.shape[-1]}"
            )
        codes = np.zeros((*tile.memory.shape[:-1], *starts.shape), np.uint8)
        for bit in range(self.format.bits):
            places = inside * self.format.bits + bit
            codes |= ((tile.memory[..., starts + places // 8] >> places % 8 & 1) << bit).astype(np.uint8)
        return codes


@dataclass(frozen=True, repr=False)
class TensorOperand(_InTensorMemory, InTensorShared):
    """A matrix in tensor memory: D, and sometimes A. Like wgmma's A, A may be in shared memory instead."""

    def pack(self, matrix: ArrayLike, *, raw: bool = False, rounding: Rounding = None) -> Words:
        """Pack a matrix into columns: uint32[..., 128, columns], or [..., 2, 128, columns] for a pair.

        Dtypes are handled as in `Operand.pack`. If D is f16, each column holds one element in its lower half, and its
        upper half is zero.
        """
        return super().pack(matrix, raw=raw, rounding=rounding)[..., 0]

    def unpack(self, words: ArrayLike, *, raw: bool = False, strict: bool = False) -> Array:
        """Return the matrix in these columns, in the natural dtype, or as unsigned codes with `raw=True`.

        If an element has copies, the first is read; `strict=True` rejects unequal copies.
        """
        from warpfrag.formats import codes
        from warpfrag.tensorcore import fragment

        check_flag("raw", raw)
        columns = self.check_words(words)[..., None]
        elements = fragment.unpack(self._known_row(), columns, strict=check_flag("strict", strict))
        return elements if raw else codes.from_codes(self.format, elements)


@dataclass(frozen=True, repr=False)
class SharedTensorOperand(InTensorShared):
    """Operand B, which is always in shared memory."""


@dataclass(frozen=True, repr=False)
class SparseTensorOperand(TensorOperand, SparseOperand):
    """The stored half of a sparse A in tensor memory."""

    pattern: Pattern


@dataclass(frozen=True, repr=False)
class TensorMetadata(_InTensorMemory, Metadata):
    """The metadata of a sparse A in tensor memory, four bits for each row and chunk.

    For f16 and tf32, the selector (bit 0 of the instruction descriptor) chooses one of two columns.
    """

    def where(self, *, row: int, chunk: int, selector: int = 0) -> Any:  # noqa: ANN401 (a place of tensor memory)
        """Return the address of a chunk's code in its first copy: lane and column of tensor memory, and 4-bit slot."""
        return self.layout.where(selector=selector, row=row, chunk=chunk)[0]

    def at(  # type: ignore[override] # places of tensor memory, not of registers
        self, *, tlane: int, column: int, slot: int, block: int | None = None
    ) -> Coordinate:
        """Return the selector, row and chunk of the code in a 4-bit slot."""
        pair = {} if block is None else {"block": block}
        return self.layout.at(**pair, tlane=tlane, column=column, slot=slot)


@dataclass(frozen=True, repr=False)
class TensorScale(_InTensorMemory):
    """Scale factors of A or B in tensor memory, one byte each; an instruction reads bytes from its byte id on.

    32 lanes hold 32 rows of A or columns of B, and all four groups of 32 lanes hold the same values; rows are padded to
    a multiple of 128. For a pair with m 128, lanes 64 and up hold the second half of B's columns.
    """

    form: TensorForm

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix of scale factors: (m, scales) for A, (scales, n) for B."""
        count = self.form.scales
        return (self.form.shape.m, count) if self.role == "scale_a" else (count, self.form.shape.n)

    @property
    def byte_ids(self) -> tuple[int, ...]:
        """The legal byte ids."""
        count = self.form.scales
        return {1: (0, 1, 2, 3), 2: (0, 2), 3: (0, 1, 2, 3), 6: (0, 2)}.get(count, (0,))

    def _index(self, byte_id: int) -> tuple[Any, Any]:
        """Return the (row, byte) or (byte, col) of each scale factor in the layout."""
        import numpy as np

        if byte_id not in self.byte_ids:
            raise InvalidOperand(
                f"{self.description}: the byte id must be one of {', '.join(map(str, self.byte_ids))}, got {byte_id}"
            )
        is_a = self.role == "scale_a"
        lines = np.array(scaled_lines(self.form, self.role[-1]))
        taken = byte_id + np.arange(self.form.scales)
        return (lines[:, None], taken[None, :]) if is_a else (taken[:, None], lines[None, :])

    def pack(self, scales: ArrayLike, *, byte_id: int = 0, raw: bool = False, rounding: Rounding = None) -> Words:
        """Pack scale factors into columns; bytes that are not read are 0."""
        import numpy as np

        from warpfrag.tensorcore import fragment

        codes = self.codes(scales, raw=raw, rounding=rounding)
        everything = np.zeros((*codes.shape[:-2], *self.layout.shape), codes.dtype)
        everything[(..., *self._index(byte_id))] = codes
        return fragment.pack(self._known_row(), everything)[..., 0]

    def unpack(self, words: ArrayLike, *, byte_id: int = 0, raw: bool = False) -> Array:
        """Return the scale factors that an mma with this byte id reads, from the first group of lanes."""
        from warpfrag.formats.codes import from_codes
        from warpfrag.tensorcore import fragment

        everything = fragment.unpack(self._known_row(), self.check_words(words)[..., None])
        codes = everything[(..., *self._index(byte_id))]
        return codes if check_flag("raw", raw) else from_codes(self.format, codes)


@dataclass(frozen=True, repr=False)
class TensorRegisters(OperandBase):
    """The registers of a tensor-memory load or store; the layout gives the lane and column that each register holds."""


def after_load(operand: OperandBase, load: str | HasForm, column: int = 0, base_lane: int = 0) -> OperandBase:
    """Return a tensor-memory operand after a load, in registers with the layout of `through`."""
    if not isinstance(operand, _InTensorMemory):
        raise InvalidOperand(f"{operand.description} is not in tensor memory: tcgen05.ld cannot load it")
    row = operand._after(load, column, base_lane)  # noqa: SLF001 (of this module)
    if isinstance(operand, TensorOperand) and not isinstance(operand, SparseOperand):
        return Operand(row, operand.instruction)
    return TensorRegisters(row, operand.instruction)


def build(row: OperandSpec, form: TensorForm, rule: Pattern | None) -> OperandBase:
    """Return the operand that a specification describes."""
    if form.spelling.qualifier("lanes"):
        return TensorRegisters(row, form.name)
    if row.role == "metadata":
        return TensorMetadata(row, form.name)
    if row.role.startswith("scale"):
        return TensorScale(row, form.name, form)
    staged = row.role in "ab"
    if row.storage == "shared":
        return SharedTensorOperand(row, form.name, staged=staged)
    if row.role == "a" and rule is not None:
        return SparseTensorOperand(row, form.name, rule, staged)
    return TensorOperand(row, form.name, staged=staged)


EXAMPLES = {
    "f16": (16, "f32.bf16.bf16"),
    "tf32": (8, "f32.tf32.tf32"),
    "i8": (32, "s32.s8.s8"),
    "f8f6f4": (32, "f32.e4m3.e4m3"),
    "mxf8f6f4": (32, "f32.e4m3.e4m3"),
    "mxf4": (64, "f32.e2m1.e2m1"),
    "mxf4nvf4": (64, "f32.e2m1.e2m1"),
}
"""By kind: the k of a dense instruction, and types to use as an example."""


def missing_shape(form: TensorForm, label: str) -> IllegalInstruction:
    """Return the error for an operand of an mma whose shape and types are not given."""
    k, types = EXAMPLES[form.kind]
    m, scales = 256 if "cta_group::2" in form.name else 128, ".ue4m3" if "scale_vec::4X" in form.name else ""
    example = f"{form.name}.m{m}n256k{k << bool(form.operation.sparsity)}.{types}{scales}"
    reason = f"{label} depends on the shape and types, which the name does not contain; add them, for example {example}"
    return IllegalInstruction(form.name, reason)
