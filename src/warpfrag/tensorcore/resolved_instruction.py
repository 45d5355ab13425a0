"""Resolved instructions: everything that depends only on a form and an architecture, looked up once.

    registers --decode--> matrices of codes --arithmetic--> matrix of codes --encode--> registers

An `OperandCodec` converts between the registers of one operand and its matrix; a `ResolvedInstruction` has one for each
operand, and the kernels that multiply.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from math import prod
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.errors import IllegalInstruction, InvalidOperand
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import code_dtype
from warpfrag.isa.immediates import Immediates, as_immediates, immediate_coordinates, part_of
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import check_immediates, form_of
from warpfrag.isa.qualifiers import Form, HasForm
from warpfrag.isa.sparsity_patterns import Pattern
from warpfrag.layout.linear_layout import Layout
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch, plan
from warpfrag.tensorcore.backends import kernel_selector
from warpfrag.tensorcore.operand import Operand, SelectedWord, operands_of
from warpfrag.tensorcore.sparsity import logical_columns

FEW_TILES = 32  # up to this number of tiles, moving single elements is faster than first joining them into registers
MAX_RESOLVED = 512
WORD = np.dtype(np.uint32)
CODES = 16  # a metadata code has four bits


class OperandCodec:
    """Converts one operand's registers to matrices of codes and back; faster than `fragment` for few tiles."""

    def __init__(self, operand: Operand) -> None:
        """Create the codec for an operand."""
        layout = operand.layout
        self.operand = operand
        self.words = (*operand.threads, operand.words)
        self.shape = operand.shape[-2:]  # m8n8k4 computes four tiles at once
        self.tiles = prod(operand.shape[:-2])
        self.size = prod(operand.shape)
        self.container = np.dtype(f"<u{max(1, operand.spec.container // 8)}")
        self.fills_bytes = operand.spec.container == operand.format.bits and operand.spec.container % 8 == 0
        self.elements, self.first_places = fragment.elements(layout), fragment.first_places(layout)
        self.first_places_of_tile = self.first_places.reshape(-1, *self.shape)
        self.elements_of_lanes = self.elements.reshape(*operand.threads, -1)

    def is_tile(self, words: object) -> TypeGuard[NDArray[np.uint32]]:
        """Return True for the registers of one warp, from which codes can be gathered directly."""
        return (
            self.fills_bytes
            and type(words) is np.ndarray
            and words.dtype is WORD  # dtypes that are equal but not identical are handled by `check`
            and words.shape == self.words
            and words.flags.c_contiguous
        )

    def read_tile(self, words: NDArray[np.uint32]) -> NDArray[Any]:
        """Return the codes [1, rows, cols] in one warp's registers (four tiles for m8n8k4)."""
        cells = words if self.container is WORD else words.view(self.container)
        return cells.take(self.first_places_of_tile)

    def write_tile(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """Return one warp's registers for the codes of its tile."""
        cells = codes.astype(self.container, copy=False).take(self.elements_of_lanes)
        return cells if self.container is WORD else cells.view(WORD)

    def check(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Return registers as an array; raise InvalidOperand if their shape or dtype is wrong."""
        registers = as_array(words, self.operand.description)
        if registers.dtype == np.uint32 and registers.shape[-len(self.words) :] == self.words:
            return registers
        return self.operand.check_words(registers)

    def read(self, words: NDArray[np.uint32], batch: tuple[int, ...]) -> NDArray[Any]:
        """Return the codes [tiles, rows, cols] in registers."""
        tiles = tiles_of(words, batch, len(self.words))
        if self.fills_bytes and len(tiles) <= FEW_TILES:
            codes = tiles.reshape(len(tiles), prod(self.words)).view(self.container)
            return codes.take(self.first_places, axis=1).reshape(-1, *self.shape)
        return fragment.unpack(self.operand.spec, tiles).reshape(-1, *self.shape)

    def zeros(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """Return the codes of a zero C that matches these A and B."""
        return np.zeros((len(a), a.shape[1], b.shape[2]), code_dtype(self.operand.format))

    def write(self, codes: NDArray[Any], batch: tuple[int, ...]) -> NDArray[np.uint32]:
        """Return registers for codes [tiles, rows, cols]."""
        tiles = codes.reshape(-1, self.size)
        if len(tiles) <= FEW_TILES:
            words: NDArray[np.uint32] = tiles.take(self.elements, axis=1).view(np.uint32)
        else:
            words = fragment.pack(self.operand.spec, tiles.reshape(-1, *self.operand.shape))
        return words.reshape(*batch, *self.words)


class FieldReader:
    """Reads the fields of a metadata or scale register that the immediates select."""

    def __init__(self, operand: SelectedWord, immediates: Immediates) -> None:
        """Create the reader for a register."""
        layout, row = operand.layout, operand.spec
        selected = tuple(immediate_coordinates(layout, part_of(immediates, operand.role)).values())
        places = fragment.first_places(layout).reshape(layout.shape)[selected]
        self.axes, self.threads = len(operand.threads), prod(operand.threads)
        self.lanes = places // layout.slots
        self.shifts = (places % layout.slots * row.container + row.low).astype(WORD)
        self.mask = WORD.type(operand.format.codes - 1)
        self.dtype = code_dtype(operand.format)

    def read(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the selected fields of these registers as codes [..., rows, cols]."""
        flat = words.reshape(*words.shape[: words.ndim - self.axes], self.threads)
        codes: NDArray[np.uint32] = (flat.take(self.lanes, axis=-1) >> self.shifts) & self.mask
        return codes


class MetadataDecoder:
    """Converts the metadata codes of a sparse A to the logical columns of its stored elements."""

    def __init__(self, pattern: Pattern, chunks: int) -> None:
        """Build a table of the columns that each code keeps, with -1 for illegal codes."""
        self.pattern = pattern
        table = np.full((chunks, CODES, pattern.kept), -1, np.int32)
        for code, kept in pattern.columns.items():
            table[:, code] = np.array(kept) + pattern.chunk * np.arange(chunks)[:, None]
        self.columns = table.reshape(chunks * CODES, pattern.kept)
        self.first_codes = np.arange(0, chunks * CODES, CODES)

    def columns_of(self, fields: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the logical columns [..., rows, stored] for metadata codes [..., rows, chunks]."""
        columns = self.columns.take(fields + self.first_codes, axis=0)
        if np.minimum.reduce(columns, axis=None, initial=0) < 0:
            logical_columns(self.pattern, fields)  # raises an error with the reason
        return columns.reshape(*fields.shape[:-1], fields.shape[-1] * columns.shape[-1])


class ResolvedInstruction:
    """A form on an architecture: its operands, its arithmetic plan, a codec for each operand, and the kernels."""

    def __init__(self, form: Form, arch: str) -> None:
        """Resolve a form; `arch` is an architecture, such as sm_90."""
        self.form, self.arch = form, arch
        self.operands = operands_of(form, arch)
        self.plan = plan(form, arch)
        self.rule = self.plan.rule
        self.kernels = kernel_selector(self.rule)
        self.readers: dict[Immediates, dict[str, FieldReader]] = {}

    @cached_property
    def name(self) -> str:
        """The canonical PTX text, for messages."""
        return spell(self.form)

    @cached_property
    def a(self) -> OperandCodec:
        """The codec of A; raises NotModelled if its wmma fragments on this architecture are unknown."""
        return OperandCodec(self.operands.a)

    @cached_property
    def b(self) -> OperandCodec:
        """The codec of B, if B is in registers."""
        return OperandCodec(self.operands.b)

    @cached_property
    def c(self) -> OperandCodec:
        """The codec of C."""
        return OperandCodec(self.operands.c)

    @cached_property
    def d(self) -> OperandCodec:
        """The codec of D."""
        return OperandCodec(self.operands.d)

    @cached_property
    def no_c(self) -> NDArray[Any]:
        """The codes of a zero C for one tile."""
        return np.zeros((self.d.tiles, *self.c.shape), self.c.container)

    @cached_property
    def selected(self) -> Mapping[str, Layout]:
        """The layouts of registers from which immediates select a part: metadata and scales."""
        return self.operands.selected_layouts

    @cached_property
    def metadata(self) -> MetadataDecoder | None:
        """The decoder of the metadata of a sparse A."""
        pattern = self.operands.a.pattern
        return None if pattern is None else MetadataDecoder(pattern, self.operands.metadata.shape[-1])

    @cached_property
    def metadata_shape(self) -> tuple[int, ...]:
        """The shape of one warp's metadata registers."""
        return () if self.metadata is None else self.operands.metadata.threads

    def check_words(self, words: Mapping[str, ArrayLike | None]) -> dict[str, NDArray[np.uint32]]:
        """Return the metadata and scale registers as arrays; raise InvalidOperand unless they match the instruction."""
        checked = {}
        for role, given in words.items():
            if (given is not None) != (role in self.selected):
                raise InvalidOperand(f"{self.name} {'needs' if given is None else 'takes no'} {role}")
            if given is not None:
                checked[role] = self.operands[role].check_words(given)
        return checked

    def read_fields(
        self, words: Mapping[str, NDArray[np.uint32]], batch: tuple[int, ...], immediates: Immediates
    ) -> dict[str, NDArray[Any]]:
        """Return the fields that the immediates select: logical columns of A, and codes of scale factors."""
        fields: dict[str, NDArray[Any]] = {}
        for role, reader in self.readers_of(immediates).items():
            codes = reader.read(words[role])
            if role == "metadata" and self.metadata is not None:
                fields["columns"] = tiles_of(self.metadata.columns_of(codes), batch, 2)
            else:
                fields[role] = tiles_of(codes.astype(reader.dtype), batch, 2)
        return fields

    def readers_of(self, immediates: Immediates) -> dict[str, FieldReader]:
        """Return a reader for each metadata or scale register; raise an error for unaccepted immediates."""
        byte_id, thread_id = as_immediates(immediates).byte_id, immediates.thread_id
        is_exact = type(byte_id) is type(thread_id) is tuple
        is_exact = is_exact and set(map(type, (immediates.selector, *byte_id, *thread_id))) == {int}
        readers = self.readers.get(immediates) if is_exact else None  # True equals 1 but is not a selector
        if readers is None:
            check_immediates(self.form, immediates, self.selected)
            operands = self.operands
            words = [word for word in (operands.metadata, operands.scale_a, operands.scale_b) if word is not None]
            readers = {word.role: FieldReader(word, immediates) for word in words}
            if is_exact:
                self.readers[immediates] = readers
        return readers


def resolve_instruction(instruction: str | HasForm, arch: str) -> ResolvedInstruction:
    """Resolve an instruction or its name; raise IllegalInstruction if the target does not support it."""
    return resolve_form(form_of(instruction), arch)


def resolve_chain(instruction: str | HasForm, arch: str) -> ResolvedInstruction:
    """Resolve an instruction for a gemm; raise IllegalInstruction if its D cannot be the next C."""
    resolved = resolve_instruction(instruction, arch)
    rule = resolved.rule
    if rule.c != rule.d:
        raise IllegalInstruction(resolved.name, f"it cannot be chained along k: D is {rule.d}, but C is {rule.c}")
    return resolved


def resolve_form(form: Form, arch: str) -> ResolvedInstruction:
    """Resolve a form on a target."""
    return _resolved(form, arithmetic_arch(form, arch))


_resolved = lru_cache(MAX_RESOLVED)(ResolvedInstruction)


def batch_of(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the leading axes that all operands broadcast to."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidOperand(f"leading axes do not broadcast: {', '.join(map(str, shapes))}") from None


def tiles_of(array: NDArray[Any], batch: tuple[int, ...], axes: int) -> NDArray[Any]:
    """Broadcast the leading axes before the last `axes`, and flatten them into one."""
    tail = array.shape[array.ndim - axes :]
    if array.shape[: array.ndim - axes] != batch:
        array = np.broadcast_to(array, (*batch, *tail))
    return np.ascontiguousarray(array).reshape(-1, *tail)
