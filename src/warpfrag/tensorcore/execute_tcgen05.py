"""Execute tcgen05: mma, loads, stores, copies and shifts on tensor memory.

Tensor memory is uint32[..., 128, columns] for one block, and uint32[..., 2, 128, columns] for a pair, with leading axes
as a batch. An address is `lane << 16 | column`, as in PTX; a column alone means lane 0. Each call returns the new
memory or registers; the arguments are not changed.

An mma follows the rule of its table row, like every other instruction: this module only locates its operands.
Transpose, negate, saturate, selector and scale ids come from the instruction descriptor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import InvalidOperand, NotModelled, check_flag, quote
from warpfrag.formats.arrays import Array, Bytes, Words, as_array
from warpfrag.formats.codes import code_dtype
from warpfrag.isa.sparsity_patterns import pattern_of
from warpfrag.isa.tcgen05_forms import TensorForm
from warpfrag.isa.tcgen05_spelling import TensorSpelling
from warpfrag.isa.tmem_layouts import TENSOR_COLUMNS, TENSOR_LANES, access, copied, placement, split_of
from warpfrag.smem.descriptor import Descriptor
from warpfrag.smem.instruction_descriptor import InstructionDescriptor
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore import tensor_operand
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
from warpfrag.tensorcore.fragment import elements
from warpfrag.tensorcore.matmul import matmul
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.resolved_instruction import batch_of, tiles_of
from warpfrag.tensorcore.rules import Rule
from warpfrag.tensorcore.shared_operand import Shared, as_descriptor
from warpfrag.tensorcore.sparsity import logical_columns

Tile: TypeAlias = Shared | Descriptor | int
"""An operand in shared memory: a tile with its descriptor, or the descriptor alone."""
# data paths that need a copy of A for each part of D's columns, and the number of parts
COPIED_PARTS = {"B": 2, "E": 2, "G": 4}
SHIFTED_COLUMNS = 8
MAX_LAYOUTS = 512


def split_address(address: object, label: str) -> tuple[int, int]:
    """Return the base lane and the column of an address."""
    if isinstance(address, bool) or not isinstance(address, int | np.integer) or not 0 <= int(address) < 1 << 23:
        raise InvalidOperand(
            f"{label} must be a column in 0..{TENSOR_COLUMNS - 1}, or lane << 16 | column; got {quote(address)}"
        )
    lane, column = divmod(int(address), 1 << 16)
    if column >= TENSOR_COLUMNS:
        raise InvalidOperand(f"{label} must be a column in 0..{TENSOR_COLUMNS - 1}, got {column}")
    return lane, column


def check_tensor_memory(memory: ArrayLike, blocks: int) -> Words:
    """Return tensor memory as an array [..., lanes, columns], or [..., 2, lanes, columns] for a pair."""
    array = as_array(memory, "tensor memory")
    axes = (2, TENSOR_LANES) if blocks == 2 else (TENSOR_LANES,)
    shape = array.shape[-1 - len(axes) : -1]
    if array.dtype != np.uint32 or shape != axes or array.shape[-1] > TENSOR_COLUMNS:
        expected = ", ".join(map(str, axes))
        raise InvalidOperand(
            f"tensor memory is uint32[..., {expected}, columns] with up to {TENSOR_COLUMNS} columns; "
            f"got {array.dtype} of shape {array.shape}"
        )
    return cast("Words", array)


def _columns(memory: Words, first: int, count: int, label: str) -> Words:
    if first + count > memory.shape[-1]:
        raise InvalidOperand(
            f"{label} takes columns {first} to {first + count - 1}, but tensor memory has {memory.shape[-1]} columns"
        )
    return memory[..., first : first + count]


def _from_base(memory: Words, lane: int) -> Words:
    """Return the memory as seen from base lane 0 or 16; for 16, the halves of each group of 32 lanes are swapped."""
    return memory if lane == 0 else memory[..., np.arange(TENSOR_LANES) ^ 16, :]


@dataclass(frozen=True)
class TensorProduct:
    """An mma call: the addresses of its operands in tensor memory, and its instruction descriptor."""

    form: TensorForm
    arch: str
    address: int = 0
    at: Mapping[str, int] = field(default_factory=dict)
    idesc: InstructionDescriptor | None = None

    def __post_init__(self) -> None:
        """Raise an error for the address of an unknown operand, or a descriptor that does not match the form."""
        if not isinstance(self.at, Mapping):
            raise InvalidOperand(f"at=: expected a mapping such as {{'a': 64}}, got {quote(self.at)}")
        if not (self.idesc is None or isinstance(self.idesc, InstructionDescriptor)):
            raise InvalidOperand(f"idesc must be an InstructionDescriptor or its word, got {quote(self.idesc)}")
        unknown = [name for name in self.at if name not in ("a", "scale_a", "scale_b", "metadata")]
        if unknown:
            raise InvalidOperand(
                f"at= sets tensor-memory columns of a, scale_a, scale_b and metadata; got {quote(unknown[0])}"
            )
        if self.idesc is not None:
            names = ("kind", "sparse", "m", "n", "a", "b", "d", "scale_type")
            wrong = [problem for problem in self.idesc.problems(self) if problem.field in names]
            if wrong:
                raise InvalidOperand(f"the instruction descriptor does not match {self.form.name}: {wrong[0].text}")

    @property
    def word(self) -> InstructionDescriptor:
        """The given instruction descriptor, or the default one for the form."""
        return self.idesc or InstructionDescriptor.of(self)

    def run(
        self, memory: Words, a: Tile | None, b: Tile, shared: ArrayLike | None, *, accumulate: bool, threads: int | None
    ) -> Words:
        """Return tensor memory after the mma."""
        check_flag("accumulate", accumulate)
        rule = plan(self.counted, arithmetic_arch(self.counted, self.arch)).rule
        taken = self.read(memory, a, b, shared, accumulate=accumulate)
        batch = batch_of([array.shape[:-2] for array in taken.values()])
        result = self.multiply(rule, taken, batch, threads)
        after = np.array(np.broadcast_to(memory, (*batch, *memory.shape[-2 - (self.form.blocks > 1) :])))
        self.write(after, result)
        return cast("Words", after)

    @property
    def counted(self) -> TensorForm:
        """The form, with satfinite taken from the descriptor if the types are integers."""
        return replace(self.form, satfinite=self.word.saturate) if self.form.kind == "i8" else self.form

    @cached_property
    def operands(self) -> Mapping[str, Any]:
        """The operands, by role."""
        return operands_of(self.form, arithmetic_arch(self.form, self.arch))

    @cached_property
    def base(self) -> tuple[int, int]:
        """The base lane and first column of D."""
        lane, column = split_address(self.address, "the address of D")
        allowed = (0, 16) if placement(self.form)[0] in "CF" else (0,)
        if lane not in allowed:
            raise InvalidOperand(f"the base lane of D is {' or '.join(map(str, allowed))}, got {lane}")
        return lane, column

    def read(
        self,
        memory: Words,
        a: Tile | None,
        b: Tile,
        shared: ArrayLike | None,
        *,
        accumulate: bool,
        part: int | None = None,
    ) -> dict[str, Array]:
        """Return the codes of A, B and C, negated as the descriptor specifies, with scale factors and selected columns.

        If tensor memory has a copy of A for each part of D's columns, `part` selects a copy; without it, an error is
        raised if the copies differ.
        """
        lane, column = self.base
        seen = _from_base(memory, lane)
        own = (part or 0) * TENSOR_LANES // self.parts
        copied = seen[..., np.arange(TENSOR_LANES) ^ own, :] if own else seen
        d = cast("tensor_operand.TensorOperand", self.operands["d"])
        taken: dict[str, Array] = {
            "a": self._codes_a(copied, a, shared, is_strict=part is None),
            "b": read_shared(self.operands["b"], b, shared, self.form.blocks, trans=self.word.transpose_b, axis=1),
        }
        for side, is_negated in (("a", self.word.negate_a), ("b", self.word.negate_b)):
            if is_negated:
                code: NDArray[Any] = taken[side]
                taken[side] = code ^ code.dtype.type(1 << (self.operands[side].format.bits - 1))
        cells = _columns(seen, column, d.columns, "D")
        if accumulate:
            taken["c"] = d.unpack(cells, raw=True)
        else:
            taken["c"] = np.zeros((*cells.shape[: cells.ndim - len(d.threads)], *d.shape), code_dtype(d.format))
        return taken | self._extra(copied, self.operands)

    @property
    def parts(self) -> int:
        """The number of parts of D's columns, each of which has its own copy of A in tensor memory."""
        return COPIED_PARTS.get(placement(self.form)[0], 1)

    @staticmethod
    def multiply(rule: Rule, taken: Mapping[str, Array], batch: tuple[int, ...], threads: int | None) -> Array:
        """Return the codes of D for all tiles in a batch."""
        tiled = {name: tiles_of(array, batch, 2) for name, array in taken.items()}
        return cast("Array", matmul(rule, **tiled, threads=threads).reshape(*batch, *taken["c"].shape[-2:]))

    def write(self, memory: Words, codes: Array, kept: NDArray[np.bool_] | None = None) -> None:
        """Write the codes of D to tensor memory, except to the lanes in `kept`, [..., 128]."""
        lane, column = self.base
        d = cast("tensor_operand.TensorOperand", self.operands["d"])
        used = np.arange(TENSOR_LANES)
        if placement(self.form)[0] in "CF":
            used = used[used // 16 % 2 == lane // 16]
        cells = _from_base(d.pack(codes, raw=True), lane)[..., used, :]
        if kept is not None:
            cells = np.where(kept[..., used, None], memory[..., used, column : column + d.columns], cells)
        memory[..., used, column : column + d.columns] = cells

    def _codes_a(self, seen: Words, a: Tile | None, shared: ArrayLike | None, *, is_strict: bool) -> Array:
        operand = cast("tensor_operand.TensorOperand", self.operands["a"])
        if a is not None:
            return read_shared(operand, a, shared, self.form.blocks, trans=self.word.transpose_a, axis=0)
        if "a" not in self.at:
            raise InvalidOperand(
                f"{self.form.name}: pass A as a descriptor or tile, or its first tensor-memory column as at={{'a': 64}}"
            )
        _, first = split_address(self.at["a"], "the address of A")
        cells = _columns(seen, first, operand.columns, "A")
        return operand.unpack(cells, raw=True, strict=is_strict and self.parts > 1)

    def _extra(self, seen: Words, operands: Mapping[str, Any]) -> dict[str, Array]:
        """Read the scale factors from tensor memory, and the columns that the metadata selects."""
        result: dict[str, Array] = {}
        for role, byte_id in (("scale_a", self.word.scale_a_id), ("scale_b", self.word.scale_b_id)):
            if role in operands:
                scale = cast("tensor_operand.TensorScale", operands[role])
                result[role] = scale.unpack(self._cells(seen, role, scale.columns), byte_id=byte_id, raw=True)
        rule = pattern_of(self.form)
        if rule is not None:
            metadata = cast("tensor_operand.TensorMetadata", operands["metadata"])
            codes = metadata.unpack(self._cells(seen, "metadata", metadata.columns), selector=self.word.selector)
            result["columns"] = logical_columns(rule, codes)
        return result

    def _cells(self, seen: Words, role: str, columns: int) -> Words:
        if role not in self.at:
            raise InvalidOperand(
                f"{self.form.name} needs at={{{role!r}: column}}, the column where its {role} begins in tensor memory"
            )
        _, first = split_address(self.at[role] & ~(3 << 30), f"the address of {role}")
        return _columns(seen, first, columns, role)


def read_shared(
    operand: tensor_operand.InTensorShared,
    location: Tile,
    shared: ArrayLike | None,
    blocks: int,
    *,
    trans: bool,
    axis: int,
) -> Array:
    """Return the codes of an operand in shared memory; each block of a pair stores one half."""
    part = operand if blocks == 1 else half(operand, axis)
    if isinstance(location, Shared):
        tile = location
    elif isinstance(location, bool) or not isinstance(location, Descriptor | int | np.integer):
        expected = "a Shared from `store`, or a descriptor with shared="
        raise InvalidOperand(f"{operand.description}: expected {expected}; got {quote(location)}")
    elif shared is None:
        raise InvalidOperand(f"{operand.description} is a descriptor: it needs shared=, the bytes of shared memory")
    else:
        tile = Shared(as_bytes(shared, batch=True), as_descriptor(location, "tcgen05"), trans)
    codes = part.read(tile)
    if blocks == 1:
        return codes
    if codes.ndim < 3 or codes.shape[-3] != 2:
        raise InvalidOperand(f"{operand.description}: a pair of blocks has two shared memories, uint8[..., 2, bytes]")
    return cast("Array", np.concatenate([codes[..., 0, :, :], codes[..., 1, :, :]], axis=-2 if axis == 0 else -1))


def half(operand: tensor_operand.InTensorShared, axis: int) -> tensor_operand.SharedTensorOperand:
    """Return the half of an operand that a block of a pair stores in shared memory: rows of A or columns of B."""
    rows, cols = operand.shape
    return resized(operand, rows // 2 if axis == 0 else rows, cols // 2 if axis == 1 else cols)


@lru_cache(MAX_LAYOUTS)
def resized(operand: tensor_operand.InTensorShared, rows: int, cols: int) -> tensor_operand.SharedTensorOperand:
    """Return an operand in shared memory with other extents."""
    from warpfrag.layout.linear_layout import Layout

    extents = {"row": rows, "col": cols}
    steps = {name: [(size, tuple(int(other == name) for other in extents))] for name, size in extents.items()}
    layout = Layout.of_steps(extents, steps)
    return tensor_operand.SharedTensorOperand(replace(operand.spec, layout=layout), operand.instruction, staged=True)


# ---- data movement


@lru_cache(MAX_LAYOUTS)
def registers_reach(
    spelling: TensorSpelling, base_lane: int = 0, split: int | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the lane and column of every (warp, lane, reg, slot) in a load or store, relative to its address.

    `split` is the distance in columns between the halves of 16x32bx2; every number is legal, but few give a linear
    layout.
    """
    layout = access(spelling, 0, base_lane)
    shape = (*(layout.ins[name] for name in ("warp", "lane", "reg")), layout.slots)
    places = np.unravel_index(elements(layout), layout.shape)
    lanes, columns = places[0].reshape(shape), places[1].reshape(shape)
    if split is not None:
        columns = columns + (split - split_of(spelling)) * (np.arange(32) // 16)[None, :, None, None]
    return lanes, columns


def _places(spelling: TensorSpelling, address: int) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Return the lane and column of every (warp, lane, reg, slot), and the number of slots per register."""
    lane, column = split_address(address, "the address")
    lanes, columns = registers_reach(spelling, lane % 32 if spelling.qualifier("lanes") != "32x32b" else 0)
    return lanes, columns + column, lanes.shape[-1]


def load(spelling: TensorSpelling, memory: ArrayLike, address: int) -> Any:  # noqa: ANN401 (words, or words and results)
    """Return the registers that a load writes in four warps, uint32[..., 4, 32, regs].

    For ld.red, also return the reductions.
    """
    if spelling.op.endswith("spcompress"):
        raise NotModelled(f"the register layout of {spelling.name} is not published")
    cells = check_tensor_memory(memory, 1)
    lanes, columns, _ = _places(spelling, address)
    _columns(cells, 0, int(columns.max()) + 1, spelling.name)
    words = joined(cells[..., lanes, columns])
    return (words, reduced(spelling, words)) if spelling.op == "ld.red" else words


def joined(taken: Words) -> Words:
    """Join values from tensor memory [..., slots] into registers: one column, or the lower halves of two."""
    words = taken[..., 0] if taken.shape[-1] == 1 else taken[..., 0] & 0xFFFF | taken[..., 1] << 16
    return cast("Words", words.astype(np.uint32))


def reduced(spelling: TensorSpelling, words: Words) -> Words:
    """Return the minimum or maximum of each lane's registers; NaN is propagated only with .NaN."""
    choose = np.minimum if spelling.qualifier("reduction") == "min" else np.maximum
    kind = spelling.qualifier("number")
    if kind != "f32":
        numbers = words.view(np.int32) if kind == "s32" else words
        return cast("Words", np.ascontiguousarray(choose.reduce(numbers, axis=-1)).view(np.uint32))
    bits = words & 0x7FFFFFFF if spelling.qualifier("abs") else words
    is_nan = bits & 0x7FFFFFFF > 0x7F800000
    # as unsigned integers, these compare like the floats, with -0 before +0
    key = np.where(bits >> 31, ~bits, bits | 0x80000000)
    key = np.where(is_nan, np.uint32(0xFFFFFFFF if choose is np.minimum else 0), key)
    best = choose.reduce(key, axis=-1)
    result = np.where(best >> 31, best & 0x7FFFFFFF, ~best)
    no_number = is_nan.all(axis=-1) | (is_nan.any(axis=-1) if spelling.qualifier("nan") else False)
    return cast("Words", np.where(no_number, 0x7FFFFFFF, result).astype(np.uint32))


def store(spelling: TensorSpelling, memory: ArrayLike, address: int, words: ArrayLike) -> Words:
    """Return tensor memory after a store of registers, uint32[..., 4, 32, regs].

    .unpack leaves upper halves unchanged.
    """
    cells = check_tensor_memory(memory, 1)
    lanes, columns, _ = _places(spelling, address)
    _columns(cells, 0, int(columns.max()) + 1, spelling.name)
    registers = as_array(words, f"registers of {spelling.name}")
    if registers.dtype != np.uint32 or registers.shape[-3:] != lanes.shape[:3]:
        expected = ", ".join(map(str, lanes.shape[:3]))
        raise InvalidOperand(
            f"{spelling.name}: expected registers uint32[..., {expected}], got {registers.dtype} {registers.shape}"
        )
    batch = np.broadcast_shapes(cells.shape[:-2], registers.shape[:-3])
    after = np.array(np.broadcast_to(cells, (*batch, *cells.shape[-2:])))
    put_registers(after, lanes, columns, registers)
    return cast("Words", after)


def put_registers(cells: Words, lanes: NDArray[np.intp], columns: NDArray[np.intp], registers: Words) -> None:
    """Write registers [..., slots] to tensor memory; if there are two slots, each goes to the lower half of a cell."""
    if lanes.shape[-1] == 1:
        cells[..., lanes[..., 0], columns[..., 0]] = registers
        return
    for slot in range(lanes.shape[-1]):
        kept = cells[..., lanes[..., slot], columns[..., slot]] & 0xFFFF0000
        cells[..., lanes[..., slot], columns[..., slot]] = kept | registers >> 16 * slot & 0xFFFF


def copy(
    spelling: TensorSpelling, memory: ArrayLike, address: int, source: Descriptor | int, shared: ArrayLike
) -> Words:
    """Return tensor memory after cp, which copies rows of shared memory to lanes and may widen elements to bytes."""
    after = np.array(check_tensor_memory(memory, 1))
    put_copy(spelling, after, address, source, as_bytes(shared))
    return cast("Words", after)


def put_copy(spelling: TensorSpelling, cells: Words, address: int, source: Descriptor | int, shared: Bytes) -> None:
    """Copy rows of shared-memory bytes to tensor memory, in place."""
    lane, column = split_address(address, "the address")
    rows, words = copied(spelling).shape
    taken = as_descriptor(source, "tcgen05").memory("a").read(shared, (rows, 4 * words), 8).astype(np.uint8)
    taken = np.ascontiguousarray(_widened(spelling, taken)).view(np.uint32)
    _columns(cells, column, words, spelling.name)
    lanes, rows_of_lanes = copied_rows(spelling)
    cells[..., (lanes + lane) % TENSOR_LANES, column : column + words] = taken[rows_of_lanes]


@lru_cache(MAX_LAYOUTS)
def copied_rows(spelling: TensorSpelling) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the lanes that cp writes, relative to its address, and the source row of each."""
    layout = copied(spelling)
    step = 32 if spelling.qualifier("rows") == "4x256b" else 1  # only one lane in each group of 32 is written
    lanes = np.arange(0, TENSOR_LANES, step)
    return lanes, np.array([layout.at(tlane=int(lane), column=0)[0] for lane in lanes])


def _widened(spelling: TensorSpelling, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Widen packed elements, 16 at the start of every 16 bytes, to bytes: e2m1 from bit 2, 6-bit types from bit 0."""
    narrow = spelling.qualifier("narrow")
    if not narrow:
        return rows
    bits, low = (4, 2) if narrow.startswith("b4") else (6, 0)
    units = np.unpackbits(rows.reshape(len(rows), -1, 16), axis=-1, bitorder="little")[..., : 16 * bits]
    weights = 1 << np.arange(bits)
    codes = (units.reshape(*units.shape[:-1], 16, bits) * weights).sum(axis=-1) << low
    widened: NDArray[np.uint8] = codes.astype(np.uint8).reshape(len(rows), -1)
    return widened


def shift(spelling: TensorSpelling, memory: ArrayLike, address: int) -> Words:
    """Return tensor memory after shift.down, which moves 8 columns down by one lane in each group of 32 lanes."""
    cells = check_tensor_memory(memory, spelling.blocks)
    lane, column = split_address(address, "the address")
    if lane % 32:
        raise InvalidOperand(f"expected the lane of {spelling.name} to be a multiple of 32, got {lane}")
    after = np.array(cells)
    _columns(cells, column, SHIFTED_COLUMNS, spelling.name)
    put_shift(after, column)
    return cast("Words", after)


def put_shift(cells: Words, column: int) -> None:
    """Shift 8 columns down by one lane within each group of 32 lanes, in place."""
    lanes = np.arange(TENSOR_LANES)
    moved = cells[..., np.where(lanes % 32 == 31, lanes, lanes + 1), column : column + SHIFTED_COLUMNS]
    cells[..., column : column + SHIFTED_COLUMNS] = moved
