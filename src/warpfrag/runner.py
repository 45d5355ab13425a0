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

from warpfrag import fragment
from warpfrag.arithmetic import plan
from warpfrag.arithmetic.backends import choice_of
from warpfrag.arithmetic.protocol import Operands
from warpfrag.arrays import as_array
from warpfrag.codes import code_dtype
from warpfrag.errors import InvalidOperand
from warpfrag.isa.legality import arithmetic_arch, check_choice, form_of
from warpfrag.isa.names import spell
from warpfrag.operand import operands_of
from warpfrag.sparsity import logical_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.choice import Choice
    from warpfrag.isa.words import Form, HasForm
    from warpfrag.operand import Operand

FEW_TILES = 32  # up to this many tiles one gather by index beats a transposition
MOST_SPELLINGS = 1024
MOVERS = ("ldmatrix", "stmatrix", "movmatrix")
MOST_RUNNERS = 512


class Port:
    """The way between the registers of one operand and its matrices of codes.

    A few tiles move by one gather with an index, many by the transposition of `fragment`.
    """

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
            and words.dtype == np.uint32
            and words.shape == self.words
            and words.flags.c_contiguous
        )

    def read_tile(self, words: NDArray[np.uint32]) -> NDArray[Any]:
        """Codes [1, rows, cols] of the registers of one warp (four tiles for m8n8k4)."""
        codes: NDArray[Any] = words.view(self.container).take(self.first_places_of_tile)
        return codes

    def write_tile(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """Registers of one warp."""
        words: NDArray[np.uint32] = (
            codes.astype(self.container, copy=False).take(self.elements_of_lanes).view(np.uint32)
        )
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
        self.is_plain = not self.chosen
        self.choice = choice_of(plan(form, arch).rule)
        self.no_c = np.zeros((self.operands.d.shape[0] if form.is_quad else 1, *self.c.shape), self.c.container)

    @cached_property
    def b(self) -> Port:
        """The port of B, where B is in registers."""
        return Port(self.operands.b)

    def is_quick(self, a: Any, b: Any, c: Any) -> bool:  # noqa: ANN401 (whatever a user passes)
        """Whether this is one tile of a plain product: then nothing needs to be broadcast or checked."""
        return self.is_plain and self.a.is_tile(a) and self.b.is_tile(b) and (c is None or self.c.is_tile(c))

    def run_tile(self, a: Any, b: Any, c: Any) -> NDArray[np.uint32]:  # noqa: ANN401 (what is_quick has seen)
        """One tile, with as little around it as possible."""
        codes_c = self.no_c if c is None else self.c.read_tile(c)
        operands = Operands(self.a.read_tile(a), self.b.read_tile(b), codes_c)
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
        check_choice(self.form, choice, self.chosen)
        found: dict[str, NDArray[Any]] = {}
        if self.pattern is not None:
            fields = self.operands.metadata.unpack(chosen["metadata"], **choice.of("metadata"))
            found["columns"] = tiles_of(logical_columns(self.pattern, fields), batch, 2)
        for scale in (self.operands.scale_a, self.operands.scale_b):
            if scale is not None:
                codes = scale.unpack(chosen[scale.role], **choice.of(scale.role), raw=True)
                found[scale.role] = tiles_of(codes, batch, 2)
        return found


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
