"""Which mistake gives this wrong result.

Two questions. Given the inputs of a product and the D that came out, or given one operand's registers and the matrix
they should hold: what went wrong? Every mistake of `mistakes` is made, and those that give exactly what was observed
are named, the likeliest first. Where none does, two at a time are tried.

    >>> import numpy as np, warpfrag as wf
    >>> mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    >>> A, B = np.arange(256.0).reshape(16, 16) % 31, np.arange(128.0).reshape(16, 8) % 29
    >>> for finding in diagnose(mma, mma(A.T, B), A, B):
    ...     print(finding)
    a: read with row-major and column-major order swapped

In the order in which a question is answered:

    inputs        the caller's arguments, as registers and codes
    search        the search in a product: which mistakes are worth a closer look
    variants      what the hardware reads if mistakes are made with one side of a product
    outcome       what a product gives if mistakes are made: the judge
    near_misses   a constant more than expected, right up to rounding
    agreement     what is right, and what the wrong elements equal
    whole_tiles   the results of a kernel: tiles, and a loop over k
    of_operand    the same question of one operand, where nothing is computed
    findings      the answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis.arithmetic_mistakes import negated_words
from warpfrag.diagnosis.descriptor_mistakes import byte_places, negated_memory
from warpfrag.diagnosis.findings import Agreement, Diagnosis, Finding, diagnosis, likelihood, rank
from warpfrag.diagnosis.kernel_search import KernelSearch, read_tile
from warpfrag.diagnosis.mistake_search import Search
from warpfrag.diagnosis.mistakes import distinct, suspects
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.diagnosis.register_mistakes import chosen_codes, chosen_words, written_elsewhere
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.isa.immediates import Immediates
from warpfrag.isa.legality import arithmetic_arch, check_immediates, form_of
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore.execute_wgmma import NEITHER
from warpfrag.tensorcore.instruction_types import instruction_of
from warpfrag.tensorcore.operand import Metadata, Operand, OperandBase, Scale
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from warpfrag.diagnosis.findings import Candidate, Mistake
    from warpfrag.diagnosis.outcome import Codes, Words
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.isa.qualifiers import HasForm
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import AnyOperand


# ---- diagnose


__all__ = ["Agreement", "Diagnosis", "Finding", "diagnose"]


def diagnose(
    instruction: str | HasForm | OperandBase,
    observed: ArrayLike,
    A: ArrayLike | Shared,
    B: ArrayLike | Shared | None = None,
    C: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    byte_id: tuple[int, int] = (0, 0),
    thread_id: tuple[int, int] = (0, 0),
    arch: str = "sm_90",
    rounding: Rounding = None,
    negate: tuple[bool, bool] = NEITHER,
    scale_d: bool = True,
    tile: tuple[int, ...] | None = None,
) -> Diagnosis:
    """The mistakes that explain an observed D exactly, the likeliest first: none if it is correct or nothing fits.

    `observed` is D's registers, uint32[..., 32, words], or D as a matrix; A, B and C are the matrices that should have
    gone in. Leading axes are products that one mistake must explain. A sparse instruction takes the full, pruned A, a
    block-scaled one its scale factors. What lanes hold that the instruction does not read is taken to be zero, unless
    the words themselves are given: `metadata`, `scale_a` and `scale_b` may be uint32[..., 32].

    Of wgmma, registers are uint32[..., 4, 32, words], and A or B may be a `Shared`: a tile in shared memory with the
    descriptor that should have read it, as `wgmma.b.store(B, descriptor)` gives, or the whole memory of the kernel. A
    matrix A stands for registers, a matrix B for a tile without gaps. What a wrong descriptor reads beyond the memory
    is taken to be zero; where that explains nothing, the lines of D that come from within decide. `negate` and
    `scale_d` are those of `execute`. A sparse A in shared memory is as it is stored, and comes with its `metadata`.

    `diagnose(mma.a, words, A)` asks about one operand: its registers, and the matrix that they should hold.

    With `tile`, D is what a kernel left, of any extents: `tile` is the rows and columns of D that a block of threads
    computes, and, if it is given, how much of k it takes at once. D may be rounded to f16 or bf16. Mistakes are then
    made in every fragment, with indices into whole matrices, in the loop over k and with accumulators.
    """
    choice = Immediates(selector, byte_id, thread_id)
    if isinstance(instruction, OperandBase):
        check_alone(instruction, A, (B, C, metadata, scale_a, scale_b, tile))
        return of_operand(instruction, observed, A, choice, rounding)  # type: ignore[arg-type] # one of the three
    form = form_of(instruction)
    wanted = arithmetic_arch(form, arch)
    product = instruction_of(form, wanted if form.is_wmma else "")
    if B is None:
        msg = f"{product.name}: expected the inputs A and B; to ask about A alone, pass the operand, such as mma.a"
        raise InvalidOperand(msg)
    if tile is not None:
        check_kernel(product, A, B, (metadata, scale_a, scale_b))
        matrices = (A, B, C)
        search = KernelSearch(product, wanted, read_tile(tile, product), matrices, observed, rounding)  # type: ignore[arg-type] # no Shared
        return search.diagnosis()
    check_immediates(form, choice, product.operands.selected_layouts)
    check_warpgroup(product, A, B, negate, scale_d=scale_d)
    tiles: dict[str, Shared] = {}
    words: dict[str, Words] = {}
    if product.b.storage == "shared":
        tiles["b"] = B if isinstance(B, Shared) else product.b.store(B, rounding=rounding)
    else:
        words["b"] = product.b.pack(B, rounding=rounding)  # type: ignore[arg-type] # no Shared
    if isinstance(A, Shared):
        tiles["a"] = A
        words |= metadata_words(product, metadata)
    else:
        words |= left_words(product, A, metadata, choice, rounding)
    zero = np.zeros((*product.c.threads, product.c.words), np.uint32)
    words["c"] = zero if C is None else product.c.pack(C, rounding=rounding)
    for role, scales in (("scale_a", scale_a), ("scale_b", scale_b)):
        words |= scale_words(product, role, scales, choice, rounding)
    words |= _in_memory(product, tiles)
    for operand, is_negated in zip((product.a, product.b), negate, strict=True):
        if is_negated:
            words[operand.role] = _negated(operand, words, tiles)
    case = SuspectProduct(product, wanted, choice, tiles, scale_d)
    return Search(case, words, observed_codes(product.d, observed)).diagnosis()


def _in_memory(product: Instruction, tiles: dict[str, Shared]) -> dict[str, Words]:
    """The bytes of the operands that lie in shared memory."""
    return {
        operand.role: tile_bytes(operand, tiles[operand.role])
        for operand in (product.a, product.b)
        if operand.role in tiles
    }


def _negated(operand: Operand, words: dict[str, Words], tiles: dict[str, Shared]) -> Words:
    """What an operand holds if its sign is changed."""
    role = operand.role
    return negated_memory(operand, tiles[role]) if role in tiles else negated_words(words[role], operand=operand)


# ---- diagnosis_inputs


def left_words(
    instruction: Instruction, A: ArrayLike, metadata: ArrayLike | None, choice: Immediates, rounding: Rounding
) -> dict[str, Words]:
    """Registers of A, and of a sparse one the metadata."""
    rule = instruction.pattern
    if rule is None:
        if metadata is not None:
            msg = f"{instruction.name} is dense: it takes no metadata"
            raise InvalidOperand(msg)
        return {"a": instruction.a.pack(A, rounding=rounding)}
    full = instruction.a.full_codes(A, rounding=rounding)
    if metadata is None:
        stored, codes = compress(rule, full)
        packed = instruction.metadata.pack(codes, selector=choice.selector)
        return {"a": instruction.a.pack(stored, raw=True), "metadata": packed}
    words = instruction.metadata.check_words(metadata)
    fields = instruction.metadata.unpack(words, selector=choice.selector)
    columns = logical_columns(rule, fields)
    try:
        shape = np.broadcast_shapes(full.shape[:-2], columns.shape[:-2])
    except ValueError:
        msg = f"leading axes do not broadcast: A {full.shape}, metadata {words.shape}"
        raise InvalidOperand(msg) from None
    stored = np.take_along_axis(
        np.broadcast_to(full, (*shape, *full.shape[-2:])), np.broadcast_to(columns, (*shape, *columns.shape[-2:])), -1
    )
    return {"a": instruction.a.pack(stored, raw=True), "metadata": words}


def metadata_words(instruction: Instruction, metadata: ArrayLike | None) -> dict[str, Words]:
    """The metadata of a sparse A that is given as it is stored."""
    if (instruction.pattern is None) != (metadata is None):
        wanted = "is dense: it takes no metadata" if metadata is not None else "needs the metadata of an A as stored"
        msg = f"{instruction.name} {wanted}"
        raise InvalidOperand(msg)
    return {} if metadata is None else {"metadata": instruction.metadata.check_words(metadata)}


def check_alone(registers: OperandBase, matrix: object, others: tuple[object, ...]) -> None:
    """Refuse more than the registers of one operand and the matrix that they should hold."""
    if any(argument is not None for argument in others) or isinstance(matrix, Shared):
        msg = f"{registers.description}: expected its registers and the matrix they should hold, nothing else"
        raise InvalidOperand(msg)


def check_kernel(instruction: Instruction, A: object, B: object, others: tuple[object, ...]) -> None:
    """Refuse what the matrices of a kernel do not come with."""
    if any(argument is not None for argument in others) or isinstance(A, Shared) or isinstance(B, Shared):
        msg = f"{instruction.name}: tile= takes A, B and C as matrices, without metadata or scale factors"
        raise InvalidOperand(msg)


def check_warpgroup(instruction: Instruction, A: object, B: object, negate: object, *, scale_d: object) -> None:
    """Refuse what only wgmma has with another instruction."""
    name = instruction.name
    pair = isinstance(negate, tuple | list) and len(negate) == 2 and all(isinstance(flag, bool) for flag in negate)
    if not pair:
        msg = f"{name}: negate is a pair of True and False, that of A and that of B; got {quote(negate)}"
        raise InvalidOperand(msg)
    if not isinstance(scale_d, bool):
        msg = f"{name}: scale_d is True or False, got {quote(scale_d)}"
        raise InvalidOperand(msg)
    if instruction.b.storage != "shared":
        if isinstance(A, Shared) or isinstance(B, Shared) or any(negate) or not scale_d:  # type: ignore[arg-type]
            msg = f"{name} takes its operands from registers: Shared, negate and scale_d are for wgmma"
            raise InvalidOperand(msg)
    elif any(negate) and not instruction.a.format.is_float:  # type: ignore[arg-type] # a pair
        msg = f"{name}: only products of floats can be negated, got negate={quote(negate)}"
        raise InvalidOperand(msg)


def tile_bytes(operand: Operand, tile: Shared) -> NDArray[np.uint8]:
    """The memory of a tile, refused where its elements overlap or do not lie in it."""
    operand.read(tile)
    places = byte_places(operand, operand.memory(tile.descriptor, trans=tile.trans))
    if np.unique(places).size != places.size:
        msg = f"{operand.description}: elements of the tile overlap under its own descriptor, {tile.descriptor}"
        raise InvalidOperand(msg)
    return as_bytes(tile.memory, batch=True)


def scale_words(
    instruction: Instruction, role: str, scales: ArrayLike | None, choice: Immediates, rounding: Rounding
) -> dict[str, Words]:
    """Words of the scale factors of A or B, where the instruction has them."""
    scale = instruction.operands.get(role)
    if (scale is None) != (scales is None):
        msg = f"{instruction.name} {'takes no' if scale is None else 'needs'} {role}"
        raise InvalidOperand(msg)
    if not isinstance(scale, Scale) or scales is None:
        return {}
    array = as_array(scales, scale.description)
    if array.dtype == np.uint32 and array.shape[-1:] == scale.threads:
        return {role: array}
    return {role: chosen_words(scale, scale.codes(array, rounding=rounding), choice.of(role))}


def observed_codes(operand: Operand, observed: ArrayLike) -> Codes:
    """Codes of what was observed: registers where it has their type and shape, else a matrix."""
    array = as_array(observed, operand.description)
    held = (*operand.threads, operand.words)
    if array.dtype == np.uint32 and array.shape[-len(held) :] == held:
        return operand.unpack(array, raw=True)
    registers = f"registers, uint32[..., {', '.join(map(str, held))}]"
    if array.shape[max(0, array.ndim - len(operand.shape)) :] != operand.shape:
        matrix = ", ".join(map(str, operand.shape))
        msg = (
            f"{operand.description}: expected a matrix (..., {matrix}) or {registers}, got {array.dtype} {array.shape}"
        )
        raise InvalidOperand(msg)
    return operand.codes(array)


# ---- operand_diagnosis


MAX_PAIRS = 60  # so many, the likeliest, are named
MAX_WORDS = 1 << 20  # that are compared at once


def of_operand(
    operand: AnyOperand, observed: ArrayLike, matrix: ArrayLike, choice: Immediates, rounding: Rounding
) -> Diagnosis:
    """What turns the registers of a matrix into those that were observed."""
    words = operand.check_words(observed)
    suspected = [*suspects(operand)]
    if isinstance(operand, Operand):
        right = operand.pack(matrix, rounding=rounding)
    else:
        choice.check({operand.role: operand.layout}, lambda: operand.instruction)
        codes = operand.codes(matrix, raw=isinstance(operand, Metadata), rounding=rounding)
        right = chosen_words(operand, codes, choice.of(operand.role))
        suspected += written_elsewhere(operand, codes, choice)

    def read(words: Words) -> Codes:  # what lies beside the codes of a matrix, and in copies, is nobody's business
        return operand.unpack(words, raw=True) if isinstance(operand, Operand) else words

    try:
        shape = np.broadcast_shapes(words.shape, right.shape)
    except ValueError:
        msg = f"{operand.description}: leading axes do not broadcast: registers {words.shape}, matrix {right.shape}"
        raise InvalidOperand(msg) from None
    got, right = read(np.broadcast_to(words, shape)), np.broadcast_to(right, shape)
    if not got.size:
        msg = f"{operand.description}: expected the registers of at least one matrix, got shape {words.shape}"
        raise InvalidOperand(msg)
    if np.array_equal(got, read(right)) or _reads_alike(operand, np.broadcast_to(words, shape), right, choice):
        return Diagnosis([], correct=True, tried={}, pairs=0)

    def explaining(some: Sequence[Mistake], stack: Words) -> Iterator[tuple[int, Mistake]]:
        """What makes the observed registers of each of some, and which of those it is."""
        at_once = max(1, MAX_WORDS // stack.size)
        for start in range(0, len(some), at_once):
            part = some[start : start + at_once]
            seen = read(np.stack([mistake.change(stack) for mistake in part]))
            equal = (seen == got).reshape(len(part), len(stack), -1).all(axis=2)
            yield from ((int(place), part[index]) for index, place in np.argwhere(equal))

    singles = sorted((mistake for _, mistake in explaining(suspected, right[None])), key=likelihood)
    if singles:
        return diagnosis([(mistake,) for mistake in distinct(operand, singles)], suspected, 0)
    common = [mistake for mistake in suspected if not mistake.rare]
    stack = np.stack([mistake.change(right) for mistake in common])
    pairs: list[Candidate] = [(common[first], second) for first, second in explaining(common, stack)]
    return diagnosis(sorted(pairs, key=rank)[:MAX_PAIRS], suspected, len(common) ** 2)


def _reads_alike(operand: AnyOperand, words: Words, right: Words, choice: Immediates) -> bool:
    """Whether the hardware reads the same: of metadata and scales, only the part that is chosen."""
    if isinstance(operand, Operand):
        return False
    chosen = choice.of(operand.role)
    return np.array_equal(chosen_codes(operand, words, chosen), chosen_codes(operand, right, chosen))
