"""Prepared instructions: what depends only on a form and an architecture, looked up once.

    registers --decode--> matrices of codes --arithmetic--> matrix of codes --encode--> registers

An `OperandCodec` converts between the registers of one operand and its matrix; a `PreparedInstruction` has one for each
operand, and the kernel that multiplies.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from warpfrag.errors import InvalidOperand
from warpfrag.formats.arrays import as_array
from warpfrag.formats.codes import code_dtype
from warpfrag.isa.immediates import immediate_coordinates
from warpfrag.isa.instruction_names import spell
from warpfrag.isa.legality import arithmetic_arch, check_immediates
from warpfrag.tensorcore import fragment
from warpfrag.tensorcore.arithmetic import plan
from warpfrag.tensorcore.backends import kernel_selector
from warpfrag.tensorcore.operand import operands_of
from warpfrag.tensorcore.sparsity import logical_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.isa.immediates import Immediates
    from warpfrag.isa.patterns import Pattern
    from warpfrag.isa.qualifiers import Form
    from warpfrag.tensorcore.operand import Operand, SelectedWord

FEW_TILES = 32  # up to this many tiles it is quicker to move elements than to join them to registers first
MAX_SPELLINGS = 1024  # forms on architectures as callers write them
MAX_PREPARED = 512
WORD = np.dtype(np.uint32)
CODES = 16  # a metadata code has four bits


class OperandCodec:
    """Registers of one operand to matrices of codes and back: as `fragment` does it, with less work for few tiles."""

    def __init__(self, operand: Operand) -> None:
        """Find the element of each place, and the first place of each element."""
        layout = operand.layout
        self.operand = operand
        self.words = (*operand.threads, operand.words)
        self.shape = operand.shape[-2:]  # the four products of m8n8k4 are four tiles
        self.tiles = prod(operand.shape[:-2])
        self.size = prod(operand.shape)
        self.container = np.dtype(f"<u{max(1, operand.row.container // 8)}")
        self.fills_bytes = operand.row.container == operand.format.bits and operand.row.container % 8 == 0
        self.elements, self.first_places = fragment.elements(layout), fragment.first_places(layout)
        self.first_places_of_tile = self.first_places.reshape(-1, *self.shape)
        self.elements_of_lanes = self.elements.reshape(*operand.threads, -1)

    def is_tile(self, words: object) -> TypeGuard[NDArray[np.uint32]]:
        """Whether this is an array of the registers of one warp, whose codes can be gathered as they lie."""
        return (
            self.fills_bytes
            and type(words) is np.ndarray
            and words.dtype is WORD  # an equal dtype that is another object goes through `check`
            and words.shape == self.words
            and words.flags.c_contiguous
        )

    def read_tile(self, words: NDArray[np.uint32]) -> NDArray[Any]:
        """Codes [1, rows, cols] of the registers of one warp (four tiles for m8n8k4)."""
        cells = words if self.container is WORD else words.view(self.container)
        codes: NDArray[Any] = cells.take(self.first_places_of_tile)
        return codes

    def write_tile(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """Registers of one warp."""
        cells = codes.astype(self.container, copy=False).take(self.elements_of_lanes)
        words: NDArray[np.uint32] = cells if self.container is WORD else cells.view(WORD)
        return words

    def check(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Registers as an array, or the operand's refusal."""
        registers = as_array(words, self.operand.described)
        if registers.dtype == np.uint32 and registers.shape[-len(self.words) :] == self.words:
            return registers
        return self.operand.check_words(registers)

    def read(self, words: NDArray[np.uint32], batch: tuple[int, ...]) -> NDArray[Any]:
        """Codes [tiles, rows, cols] of registers."""
        tiles = tiles_of(words, batch, len(self.words))
        if self.fills_bytes and len(tiles) <= FEW_TILES:
            codes = tiles.reshape(len(tiles), prod(self.words)).view(self.container)
            return codes.take(self.first_places, axis=1).reshape(-1, *self.shape)
        return fragment.unpack(self.operand.row, tiles).reshape(-1, *self.shape)

    def zeros(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """The codes of a C that is zero, for these A and B."""
        return np.zeros((len(a), a.shape[1], b.shape[2]), code_dtype(self.operand.format))

    def write(self, codes: NDArray[Any], batch: tuple[int, ...]) -> NDArray[np.uint32]:
        """Registers of codes [tiles, rows, cols]."""
        tiles = codes.reshape(-1, self.size)
        if len(tiles) <= FEW_TILES:
            words: NDArray[np.uint32] = tiles.take(self.elements, axis=1).view(np.uint32)
        else:
            words = fragment.pack(self.operand.row, tiles.reshape(-1, *self.operand.shape))
        return words.reshape(*batch, *self.words)


class FieldReader:
    """Reads the fields of a metadata or scale word, one word per lane, that some immediates select."""

    def __init__(self, operand: SelectedWord, immediates: Immediates) -> None:
        """Find the lane and the bits of each field."""
        layout, row = operand.layout, operand.row
        selected = tuple(immediate_coordinates(layout, immediates.of(operand.role)).values())
        places = fragment.first_places(layout).reshape(layout.shape)[selected]
        self.axes, self.threads = len(operand.threads), prod(operand.threads)
        self.lanes = places // layout.slots
        self.shifts = (places % layout.slots * row.container + row.low).astype(WORD)
        self.mask = WORD.type(operand.format.codes - 1)
        self.dtype = code_dtype(operand.format)

    def read(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Codes [..., rows, cols]."""
        flat = words.reshape(*words.shape[: words.ndim - self.axes], self.threads)
        codes: NDArray[np.uint32] = (flat.take(self.lanes, axis=-1) >> self.shifts) & self.mask
        return codes


class MetadataDecoder:
    """From the metadata codes of a sparse A to the logical columns of its stored elements."""

    def __init__(self, pattern: Pattern, chunks: int) -> None:
        """Tabulate the columns that each code of each chunk keeps, -1 where the code is not legal."""
        self.pattern = pattern
        table = np.full((chunks, CODES, pattern.kept), -1, np.int32)
        for code, kept in pattern.columns.items():
            table[:, code] = np.array(kept) + pattern.chunk * np.arange(chunks)[:, None]
        self.columns = table.reshape(chunks * CODES, pattern.kept)
        self.first_codes = np.arange(0, chunks * CODES, CODES)

    def columns_of(self, fields: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Logical columns [..., rows, stored] by metadata codes [..., rows, chunks]; an illegal code is refused."""
        columns = self.columns.take(fields + self.first_codes, axis=0)
        if np.minimum.reduce(columns, axis=None, initial=0) < 0:
            logical_columns(self.pattern, fields)  # which says what is wrong
        return columns.reshape(*fields.shape[:-1], fields.shape[-1] * columns.shape[-1])


class PreparedInstruction:
    """A form on an architecture, ready to run: a codec for each operand, and the kernel of its arithmetic."""

    def __init__(self, form: Form, arch: str) -> None:
        """Look everything up that does not depend on the operands."""
        self.form = form
        # wmma registers are those of the architecture that runs it; where nobody knows them, that is NotModelled
        self.operands = operands_of(form, arch)
        self.a = OperandCodec(self.operands.a)
        self.c, self.d = OperandCodec(self.operands.c), OperandCodec(self.operands.d)
        self.selected = self.operands.selected_layouts
        pattern = self.operands.a.pattern
        self.metadata = None if pattern is None else MetadataDecoder(pattern, self.operands.metadata.shape[-1])
        self.metadata_shape = () if pattern is None else self.operands.metadata.threads
        self.readers: dict[Immediates, dict[str, FieldReader]] = {}
        self.kernels = kernel_selector(plan(form, arch).rule)
        self.no_c = np.zeros((self.d.tiles, *self.c.shape), self.c.container)

    @cached_property
    def name(self) -> str:
        """The canonical PTX text, for messages."""
        return spell(self.form)

    @cached_property
    def b(self) -> OperandCodec:
        """The codec of B, where B is in registers."""
        return OperandCodec(self.operands.b)

    def check_words(self, role: str, words: ArrayLike | None) -> NDArray[np.uint32]:
        """Metadata or scale words, refused where they are missing or of another shape."""
        if words is None:
            msg = f"{self.name} needs {role}"
            raise InvalidOperand(msg)
        return self.operands[role].check_words(words)

    def read_fields(
        self, words: Mapping[str, NDArray[np.uint32]], batch: tuple[int, ...], immediates: Immediates
    ) -> dict[str, NDArray[Any]]:
        """What the immediates select of metadata and scale words: logical columns of A, and codes of scale factors."""
        fields: dict[str, NDArray[Any]] = {}
        for role, reader in self.readers_of(immediates).items():
            codes = reader.read(words[role])
            if role == "metadata" and self.metadata is not None:
                fields["columns"] = tiles_of(self.metadata.columns_of(codes), batch, 2)
            else:
                fields[role] = tiles_of(codes.astype(reader.dtype), batch, 2)
        return fields

    def readers_of(self, immediates: Immediates) -> dict[str, FieldReader]:
        """A reader for each metadata or scale word; immediates that the form does not have are refused."""
        byte_id, thread_id = immediates.byte_id, immediates.thread_id
        is_exact = type(byte_id) is type(thread_id) is tuple
        is_exact = is_exact and set(map(type, (immediates.selector, *byte_id, *thread_id))) == {int}
        readers = self.readers.get(immediates) if is_exact else None  # True is equal to 1, and no selector
        if readers is None:
            check_immediates(self.form, immediates, self.selected)
            operands = self.operands
            words = [word for word in (operands.metadata, operands.scale_a, operands.scale_b) if word is not None]
            readers = {word.role: FieldReader(word, immediates) for word in words}
            if is_exact:
                self.readers[immediates] = readers
        return readers


def prepare(form: Form, arch: str) -> PreparedInstruction:
    """A form made ready for an architecture, however that is spelled; refused where it cannot run or is no product."""
    return _prepared_as_spelled(form, arch) if isinstance(arch, str) else _prepared(form, arithmetic_arch(form, arch))


@lru_cache(MAX_SPELLINGS)
def _prepared_as_spelled(form: Form, arch: str) -> PreparedInstruction:
    return _prepared(form, arithmetic_arch(form, arch))


_prepared = lru_cache(MAX_PREPARED)(PreparedInstruction)


def batch_of(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The leading axes that all operands broadcast to."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        msg = f"leading axes do not broadcast: {', '.join(map(str, shapes))}"
        raise InvalidOperand(msg) from None


def tiles_of(array: NDArray[Any], batch: tuple[int, ...], axes: int) -> NDArray[Any]:
    """Broadcast the axes before the last so many, and join them into one."""
    tail = array.shape[array.ndim - axes :]
    if array.shape[: array.ndim - axes] != batch:
        array = np.broadcast_to(array, (*batch, *tail))
    return np.ascontiguousarray(array).reshape(-1, *tail)
