"""Runners: what depends only on an instruction and an architecture, prepared once.

    registers --unpack--> matrices of codes --arithmetic--> matrix of codes --pack--> registers

A `Port` is the way between the registers of one operand and its matrix; a `Runner` has one for each operand, and the
rule.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.arithmetic import plan
from warpfrag.arithmetic.backends import choice_of
from warpfrag.arithmetic.protocol import Operands
from warpfrag.errors import InvalidOperand
from warpfrag.execution import fragment
from warpfrag.execution.operand import operands_of
from warpfrag.execution.sparsity import logical_columns
from warpfrag.isa.immediates import Choice, check_chosen
from warpfrag.isa.legality import arithmetic_arch, check_choice, form_of
from warpfrag.isa.names import spell
from warpfrag.numerics.arrays import as_array
from warpfrag.numerics.codes import code_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.execution.operand import Chosen, Operand
    from warpfrag.isa.words import Form, HasForm

FEW_TILES = 32  # up to this many tiles it is quicker to move elements than to join them to registers first
MOST_SPELLINGS = 1024
MOVERS = ("ldmatrix", "stmatrix", "movmatrix")
MOST_RUNNERS = 512
WORD = np.dtype(np.uint32)
CODES = 16  # a metadata code has four bits


class Port:
    """The way between the registers of one operand and its matrices of codes: that of `fragment`, shorter for few."""

    def __init__(self, operand: Operand) -> None:
        """Find the element of each place, and the first place of each element."""
        layout = operand.layout
        self.operand = operand
        self.words = (*operand.threads, operand.words)
        self.shape = operand.shape[-2:]  # the four products of m8n8k4 are four tiles
        self.size = prod(operand.shape)
        self.container = np.dtype(f"<u{max(1, operand.row.container // 8)}")
        self.fills_bytes = operand.row.container == operand.format.bits and operand.row.container % 8 == 0
        self.elements, self.first_places = fragment.elements(layout), fragment.first_places(layout)
        self.first_places_of_tile = self.first_places.reshape(-1, *self.shape)
        self.elements_of_lanes = self.elements.reshape(*operand.threads, -1)

    def is_tile(self, words: Any) -> bool:  # noqa: ANN401 (whatever a user passes)
        """Whether this is an array of the registers of one warp, whose codes can be gathered as they lie."""
        return (
            self.fills_bytes
            and type(words) is np.ndarray
            and words.dtype is WORD  # of an equal type that is another object the slower way takes care
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
        taken = codes.astype(self.container, copy=False).take(self.elements_of_lanes)
        words: NDArray[np.uint32] = taken if self.container is WORD else taken.view(WORD)
        return words

    def check(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Registers as an array, or the operand's refusal."""
        found = as_array(words, self.operand.described)
        if found.dtype == np.uint32 and found.shape[-len(self.words) :] == self.words:
            return found
        return self.operand.check_words(found)

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


class ChosenPort:
    """The way from words, one per lane, to the codes that one choice of immediates reads of them."""

    def __init__(self, operand: Chosen, choice: Choice) -> None:
        """Find the lane and the bits of each code."""
        layout, row = operand.layout, operand.row
        chosen = tuple(check_chosen(layout, choice.of(operand.role)).values())
        places = fragment.first_places(layout).reshape(layout.shape)[chosen]
        self.threads = operand.threads
        self.lanes = places // layout.slots
        self.shifts = (places % layout.slots * row.container + row.low).astype(WORD)
        self.mask = WORD.type(operand.format.codes - 1)

    def read(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Codes [..., rows, cols]."""
        flat = words.reshape(*words.shape[: words.ndim - len(self.threads)], prod(self.threads))
        codes: NDArray[np.uint32] = (flat.take(self.lanes, axis=-1) >> self.shifts) & self.mask
        return codes


class Runner:
    """One form on one architecture, ready to run: its rule, and a port for each operand."""

    def __init__(self, form: Form, arch: str) -> None:
        """Look everything up that does not depend on the operands."""
        self.form, self.name = form, spell(form)
        # wmma registers are those of the architecture that runs it; where nobody knows them, that is NotModelled
        self.operands = operands_of(form, arch)
        self.a = Port(self.operands.a)
        self.c, self.d = Port(self.operands.c), Port(self.operands.d)
        self.chosen = self.operands.chosen_layouts
        self.pattern = self.operands.a.pattern
        self.form_is_warpgroup = form.is_warpgroup
        self.metadata_shape = None if self.pattern is None else self.operands.metadata.threads
        self.ports: dict[Choice, dict[str, ChosenPort]] = {}
        self.choice = choice_of(plan(form, arch).rule)
        self.no_c = np.zeros((self.operands.d.shape[0] if form.is_quad else 1, *self.c.shape), self.c.container)

    @cached_property
    def b(self) -> Port:
        """The port of B, where B is in registers."""
        return Port(self.operands.b)

    def run_quick(self, a: Any, b: Any, c: Any, metadata: Any, selector: Any) -> NDArray[np.uint32] | None:  # noqa: ANN401 (whatever a user passes)
        """One tile, with as little around it as possible; None if it is not just that, or has to be checked first."""
        if self.form_is_warpgroup or not self.a.is_tile(a) or not self.b.is_tile(b):
            return None
        if c is not None and not self.c.is_tile(c):
            return None
        columns = None
        if self.chosen:
            if self.pattern is None or type(metadata) is not np.ndarray:
                return None
            if metadata.dtype is not WORD or metadata.shape != self.metadata_shape:
                return None
            port = self.ports_of(Choice(0 if selector is None else selector))["metadata"]
            columns = self.columns_of(port.read(metadata))[None]
        elif metadata is not None or selector is not None:
            return None
        codes_c = self.no_c if c is None else self.c.read_tile(c)
        operands = Operands(self.a.read_tile(a), self.b.read_tile(b), codes_c, columns)
        kernel = self.choice.settled.get(False) or self.choice.kernel(operands)
        return self.d.write_tile(kernel.run_whole(operands))

    def check_chosen(self, **given: ArrayLike | None) -> dict[str, NDArray[np.uint32]]:
        """Metadata and scale words: those that the form has must come, others must not."""
        found = {}
        for role, words in given.items():
            check_given(self.form, role, self.operands, given=words is not None)
            if words is not None:
                found[role] = self.operands[role].check_words(words)
        return found

    def read_chosen(
        self, chosen: dict[str, NDArray[np.uint32]], batch: tuple[int, ...], choice: Choice
    ) -> dict[str, NDArray[Any]]:
        """Logical columns of a sparse A, and scale codes: what the selector and the ids choose of their words."""
        ports = self.ports_of(choice)
        found: dict[str, NDArray[Any]] = {}
        if self.pattern is not None:
            found["columns"] = tiles_of(self.columns_of(ports["metadata"].read(chosen["metadata"])), batch, 2)
        for scale in (self.operands.scale_a, self.operands.scale_b):
            if scale is not None:
                codes = ports[scale.role].read(chosen[scale.role]).astype(code_dtype(scale.format))
                found[scale.role] = tiles_of(codes, batch, 2)
        return found

    def ports_of(self, choice: Choice) -> dict[str, ChosenPort]:
        """For each word that immediates choose from, what these choose; refused where there are none such."""
        ids = (choice.byte_id, choice.thread_id)
        is_exact = type(choice.selector) is int and all(type(pair) is tuple for pair in ids)
        is_exact = is_exact and all(type(number) is int for pair in ids for number in pair)
        found = self.ports.get(choice) if is_exact else None  # True is equal to 1, and no selector
        if found is None:
            check_choice(self.form, choice, self.chosen)
            operands = self.operands
            words = [word for word in (operands.metadata, operands.scale_a, operands.scale_b) if word is not None]
            found = {word.role: ChosenPort(word, choice) for word in words}
            if is_exact:
                self.ports[choice] = found
        return found

    @cached_property
    def _columns(self) -> NDArray[np.int32]:
        """The logical columns that each metadata code of each chunk keeps, -1 where it is not legal."""
        assert self.pattern is not None  # noqa: S101 (only a sparse A has them)
        chunks = self.operands.metadata.shape[-1]
        table = np.full((chunks, CODES, self.pattern.kept), -1, np.int32)
        for code, kept in self.pattern.columns.items():
            table[:, code] = np.array(kept) + self.pattern.chunk * np.arange(chunks)[:, None]
        return table.reshape(chunks * CODES, self.pattern.kept)

    def columns_of(self, fields: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Logical columns of a sparse A [..., rows, stored], by its metadata codes [..., rows, chunks]."""
        chunks = fields.shape[-1]
        columns = self._columns.take(fields + np.arange(0, chunks * CODES, CODES), axis=0)
        if columns.size and columns.min() < 0:
            logical_columns(self.operands.a.pattern, fields)  # type: ignore[arg-type] # which says what is wrong
        return columns.reshape(*fields.shape[:-1], chunks * columns.shape[-1])


@lru_cache(MOST_SPELLINGS)
def find_runner(instruction: str | HasForm, arch: str) -> Runner | Form:
    """The runner of an instruction, however it is spelled: one for each form and arithmetic; of a mover its form."""
    form = form_of(instruction)
    if form.op in MOVERS:
        return form
    return _runner(form, arithmetic_arch(form, arch))


_runner = lru_cache(MOST_RUNNERS)(Runner)


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


def check_given(form: Form, role: str, operands: Mapping[str, Any], *, given: bool) -> None:
    """Refuse an operand that the form does not have, and the lack of one that it has."""
    if given != (role in operands):
        msg = f"{spell(form)} {'takes no' if given else 'needs'} {role}"
        raise InvalidOperand(msg)
