"""Execute one instruction: registers of 32 lanes in, registers of 32 lanes out, as the hardware would.

    registers --unpack--> matrices of codes --arithmetic--> matrix of codes --pack--> registers

What depends only on the instruction and the architecture is prepared once, in a `Runner`.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from warpfrag import fragment, movers
from warpfrag.arithmetic import matmul, plan
from warpfrag.arithmetic.backends import choice_of
from warpfrag.arithmetic.product import multiply
from warpfrag.arithmetic.protocol import Operands
from warpfrag.arithmetic.schedule import check_threads
from warpfrag.arrays import as_array
from warpfrag.choice import Choice
from warpfrag.codes import code_dtype, from_codes
from warpfrag.errors import InvalidOperand, shown
from warpfrag.isa.legality import arithmetic_arch, check_choice, form_of
from warpfrag.isa.names import spell
from warpfrag.isa.words import Form
from warpfrag.operand import operands_of
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.arrays import Array, Bytes, Words
    from warpfrag.formats import Rounding
    from warpfrag.isa.words import HasForm
    from warpfrag.operand import Operand

FEW_TILES = 32  # up to this many tiles one gather by index beats a transposition
MOST_SPELLINGS = 1024
NO_IDS = (0, 0)
MOVERS = ("ldmatrix", "stmatrix", "movmatrix")
MOST_RUNNERS = 512


@overload
def execute(
    instruction: str | HasForm,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words: ...


@overload
def execute(instruction: str | HasForm, a: ArrayLike, *, shared: ArrayLike | None = None) -> Words: ...


@overload
def execute(instruction: str | HasForm, a: ArrayLike, b: ArrayLike, *, shared: ArrayLike) -> Bytes: ...


def execute(
    instruction: str | HasForm,
    a: ArrayLike,
    b: ArrayLike | None = None,
    c: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int | None = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = NO_IDS,
    thread_id: tuple[int, int] = NO_IDS,
    shared: ArrayLike | None = None,
    arch: str = "sm_90",
    threads: int | None = None,
) -> Words | Bytes:
    """D's registers, uint32[..., 32, words], bit for bit; leading axes broadcast; c=None is zero.

    A sparse instruction takes `metadata` words and a `selector`, a block-scaled one `scale_a` and `scale_b` words and
    the ids that choose their bytes and lanes. ldmatrix takes the addresses of its lanes and the bytes of `shared`,
    stmatrix its registers too, and gives the memory after it; movmatrix takes registers. IllegalInstruction if `arch`
    cannot run it, NotModelled if nobody knows what that architecture computes.
    """
    try:
        runner = find_runner(instruction, arch)
    except TypeError:  # not hashable: let the reader of names say what is wrong with it
        runner = arithmetic_arch(form_of(instruction), arch)  # type: ignore[assignment] # which raises
    if isinstance(runner, Form):
        return movers.run(runner, a, b, shared)
    if threads is not None:
        check_threads(threads)
    plain = byte_id is NO_IDS and thread_id is NO_IDS and selector is None and shared is None
    if plain and metadata is None and scale_a is None and scale_b is None and runner.is_quick(a, b, c):
        return runner.run_tile(a, b, c)
    if b is None or shared is not None or (selector is not None and "metadata" not in runner.operands):
        raise InvalidOperand(_misplaced(runner.form, b, shared, selector))
    given = [runner.a.check(a), runner.b.check(b)]
    if c is not None:
        given.append(runner.c.check(c))
    chosen = runner.check_chosen(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
    batch = _batch([array.shape[:-2] for array in given] + [array.shape[:-1] for array in chosen.values()])
    codes_a, codes_b = runner.a.read(given[0], batch), runner.b.read(given[1], batch)
    codes_c = runner.c.zeros(codes_a, codes_b) if c is None else runner.c.read(given[2], batch)
    extra = runner.read_chosen(chosen, batch, Choice(0 if selector is None else selector, byte_id, thread_id))
    result = multiply(runner.choice, Operands(codes_a, codes_b, codes_c, **extra), threads)
    return runner.d.write(result, batch)


def _misplaced(form: Form, b: ArrayLike | None, shared: ArrayLike | None, selector: int | None) -> str:
    """What a product lacks, or has no use for."""
    if b is None:
        return f"{spell(form)} needs b"
    if shared is not None:
        return f"{spell(form)} takes no shared memory: its operands are registers"
    return f"{spell(form)} is dense: it takes no selector, got {shown(selector)}"


def execute_registers(
    instruction: str | HasForm, words: Mapping[str, NDArray[np.uint32]], choice: Choice | None = None, *, arch: str
) -> Words:
    """`execute` for registers by role and one choice of immediates."""
    chosen = choice or Choice()
    return execute(
        instruction,
        words["a"],
        words["b"],
        words.get("c"),
        metadata=words.get("metadata"),
        selector=chosen.selector if "metadata" in words else None,
        scale_a=words.get("scale_a"),
        scale_b=words.get("scale_b"),
        byte_id=chosen.byte_id,
        thread_id=chosen.thread_id,
        arch=arch,
    )


def call(
    form: Form,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    arch: str = "sm_90",
    raw: bool = False,
    rounding: Rounding = None,
    threads: int | None = None,
) -> Array:
    """D of matrices instead of registers: the arithmetic without the lanes, so wmma works on every architecture.

    A sparse instruction takes the full, pruned A; a block-scaled one the matrices of its scale factors.
    """
    wanted = arithmetic_arch(form, arch)
    operands = operands_of(form, wanted)
    a, extra = _full_a(operands.a, A, raw=raw, rounding=rounding)
    given: dict[str, NDArray[Any]] = {"a": a, "b": operands.b.codes(B, raw=raw, rounding=rounding)}
    if C is not None:
        given["c"] = operands.c.codes(C, raw=raw, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        _check_given(form, role, operands, given=scales is not None)
        if scales is not None:
            extra[role] = operands[role].codes(scales, raw=raw, rounding=rounding)
    axes = len(operands.d.shape)
    batch = _batch([o.shape[:-axes] for o in given.values()] + [e.shape[:-2] for e in extra.values()])
    tiled = {role: _tiles(array, batch, axes) for role, array in given.items()}
    if C is None:
        shape = (len(tiled["a"]), tiled["a"].shape[1], tiled["b"].shape[2])
        tiled["c"] = np.zeros(shape, code_dtype(operands.c.format))
    extra = {role: _tiles(array, batch, 2) for role, array in extra.items()}
    codes = matmul(plan(form, wanted).rule, **tiled, threads=threads, **extra).reshape(*batch, *operands.d.shape)
    return codes if raw else from_codes(operands.d.format, codes)


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
        self.elements_of_lanes = self.elements.reshape(layout.lanes, -1)

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
        return words.view(self.container).take(self.first_places_of_tile)

    def write_tile(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """Registers of one warp."""
        words: NDArray[np.uint32] = (
            codes.astype(self.container, copy=False).take(self.elements_of_lanes).view(np.uint32)
        )
        return words

    def check(self, words: ArrayLike) -> NDArray[np.uint32]:
        """Registers as an array, or the operand's refusal."""
        found = as_array(words, self.operand.described)
        if found.dtype == np.uint32 and found.shape[-2:] == self.words:
            return found
        return self.operand.check_words(found)

    def read(self, words: NDArray[np.uint32], batch: tuple[int, ...]) -> NDArray[Any]:
        """Codes [tiles, rows, cols] of registers."""
        tiles = _tiles(words, batch, 2)
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
        self.form = form
        # wmma registers are those of the architecture that runs it; where nobody knows them, that is NotModelled
        self.operands = operands_of(form, arch)
        self.a, self.b = Port(self.operands.a), Port(self.operands.b)
        self.c, self.d = Port(self.operands.c), Port(self.operands.d)
        self.chosen = self.operands.chosen_layouts
        self.pattern = self.operands.a.pattern
        self.is_plain = not self.chosen
        self.choice = choice_of(plan(form, arch).rule)
        self.no_c = np.zeros((self.operands.d.shape[0] if form.is_quad else 1, *self.c.shape), self.c.container)

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
            _check_given(self.form, role, self.operands, given=words is not None)
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
            found["columns"] = _tiles(logical_columns(self.pattern, fields), batch, 2)
        for scale in (self.operands.scale_a, self.operands.scale_b):
            if scale is not None:
                codes = scale.unpack(chosen[scale.role], **choice.of(scale.role), raw=True)
                found[scale.role] = _tiles(codes, batch, 2)
        return found


@lru_cache(MOST_SPELLINGS)
def find_runner(instruction: str | HasForm, arch: str) -> Runner | Form:
    """The runner of an instruction, however it is spelled: one for each form and arithmetic; of a mover its form."""
    form = form_of(instruction)
    if form.op in MOVERS:
        return form
    return _runner(form, arithmetic_arch(form, arch))


_runner = lru_cache(MOST_RUNNERS)(Runner)


def _full_a(
    operand: Operand, A: ArrayLike, *, raw: bool, rounding: Rounding
) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Codes of A; of a sparse one the stored codes, and their logical columns."""
    if operand.pattern is None:
        return operand.codes(A, raw=raw, rounding=rounding), {}
    stored, fields = compress(operand.pattern, operand.full_codes(A, raw=raw, rounding=rounding))
    return stored, {"columns": logical_columns(operand.pattern, fields)}


def _batch(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The leading axes that all operands broadcast to."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        msg = f"leading axes do not broadcast: {', '.join(map(str, shapes))}"
        raise InvalidOperand(msg) from None


def _tiles(array: NDArray[Any], batch: tuple[int, ...], axes: int) -> NDArray[Any]:
    """Broadcast the leading axes and join them into one."""
    tail = array.shape[array.ndim - axes :]
    if array.shape[: array.ndim - axes] != batch:
        array = np.broadcast_to(array, (*batch, *tail))
    return np.ascontiguousarray(array).reshape(-1, *tail[-2:])


def _check_given(form: Form, role: str, operands: Mapping[str, Any], *, given: bool) -> None:
    """Refuse an operand that the form does not have, and the lack of one that it has."""
    if given != (role in operands):
        msg = f"{spell(form)} {'takes no' if given else 'needs'} {role}"
        raise InvalidOperand(msg)
