"""Find the mistake that explains a wrong result.

Pass the inputs of an instruction and its observed D, or one operand's registers and the matrix that they should hold.
The result lists the mistakes that reproduce the observed result exactly, most likely first.

    >>> import numpy as np, warpfrag as wf
    >>> mma = wf.get("mma.m16n8k16.f32.f16.f16.f32")
    >>> A, B = np.arange(256.0).reshape(16, 16) % 31, np.arange(128.0).reshape(16, 8) % 29
    >>> for finding in diagnose(mma, mma(A.T, B), A, B):
    ...     print(finding)
    A: read with row-major and column-major order swapped

`mistake_search` searches for the mistakes of one instruction, `kernel_search` for those of a kernel with many tiles.
`outcome` computes the result of a mistake, and `findings` defines the diagnosis. The mistakes are in
`register_mistakes`, `matrix_mistakes`, `descriptor_mistakes` and `arithmetic_mistakes`; `mistakes` collects them by
operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warpfrag.diagnosis.agreement import Agreement
from warpfrag.diagnosis.arithmetic_mistakes import negated_words
from warpfrag.diagnosis.descriptor_mistakes import byte_places, negated_memory
from warpfrag.diagnosis.findings import Codes, Diagnosis, Finding, Mistake, Words, diagnosis, likelihood
from warpfrag.diagnosis.fixes import fix
from warpfrag.diagnosis.kernel_search import KernelSearch, read_tile
from warpfrag.diagnosis.mistake_search import Search
from warpfrag.diagnosis.mistakes import distinct, suspects
from warpfrag.diagnosis.observation import Observation, Printed, observe
from warpfrag.diagnosis.outcome import SuspectProduct
from warpfrag.diagnosis.register_mistakes import chosen_codes, chosen_words, written_elsewhere
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.formats.number_formats import Rounding
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, Immediates, check_ids, part_of
from warpfrag.isa.legality import check_immediates, form_of
from warpfrag.isa.qualifiers import HasForm
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore.arithmetic_plan import arithmetic_arch
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Operand, OperandBase, Scale
from warpfrag.tensorcore.registry import instruction_of
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.sparsity import compress, logical_columns

__all__ = ["Agreement", "DiagnoseOptions", "Diagnosis", "Finding", "diagnose"]

MAX_NANS = 0.5  # if a larger share of elements is NaN, the search does not try to explain the others
MAX_WORDS = 1 << 20  # the maximum number of elements to compare at a time


@dataclass(frozen=True)
class DiagnoseOptions:
    """The intended immediates, and the rounding of inputs.

    With `rounding="rne"`, inputs that are not exact in the operand's format are rounded.
    """

    immediates: Immediates = DEFAULT_IMMEDIATES
    rounding: Rounding = None


DEFAULT_OPTIONS = DiagnoseOptions()


def diagnose(
    instruction: str | HasForm | OperandBase,
    observed: ArrayLike | Printed,
    A: ArrayLike | Shared,
    B: ArrayLike | Shared | None = None,
    C: ArrayLike | None = None,
    *,
    metadata: ArrayLike | None = None,
    scales: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    options: DiagnoseOptions = DEFAULT_OPTIONS,
    arch: str = "sm_90",
    tile: tuple[int, ...] | None = None,
) -> Diagnosis:
    """Return the mistakes that explain an observed D exactly, most likely first; the list is empty if D is correct.

    `observed` has D's registers, uint32[..., 32, words], or D as a matrix, which may be transposed. A float16 or
    bfloat16 matrix, and float64 values that were read from printed decimals, are compared with their own precision. A,
    B and C are the intended inputs. Leading axes are a batch that one mistake must explain. A sparse instruction takes
    the full, pruned A, and a block-scaled one the `scales` of A and B. Fields that the instruction does not read
    default to zero, unless the words themselves are given: `metadata` and each of `scales` may be uint32[..., 32].

    For wgmma, registers are uint32[..., 4, 32, words], and A or B may be a `Shared`: a tile in shared memory with the
    descriptor that should have read it, as `wgmma.b.store(B, descriptor)` returns, or the whole memory of the kernel.
    If A is a matrix, it is in registers; if B is a matrix, it is a tile without gaps. Bytes that a wrong descriptor
    reads beyond the memory are assumed to be zero; if that explains nothing, only the lines of D that do not depend on
    them are compared. A sparse A in shared memory is given as it is stored, with its `metadata`.

    `diagnose(mma.a, words, A)` diagnoses one operand, from its registers and the matrix that they should hold.

    If A, B and D are larger, D is the result of a whole kernel, of any extents. `tile` has the rows and columns of D
    that a thread block computes, by default those of the instruction, and, optionally, the k of one iteration. D may be
    rounded to f16 or bf16. The search then covers mistakes in every fragment, in indices into whole matrices, in the
    loop over k and with accumulators.
    """
    if not isinstance(options, DiagnoseOptions):
        raise InvalidOperand(f"options: expected a DiagnoseOptions, got {quote(options)}")
    if isinstance(instruction, OperandBase):
        if any(argument is not None for argument in (B, C, metadata, *scales, tile)) or isinstance(A, Shared):
            raise InvalidOperand(
                f"{instruction.description}: expected only its registers and the matrix that they should hold"
            )
        return _diagnose_operand(instruction, observed, A, options)  # type: ignore[arg-type] # one of three types
    form = form_of(instruction)
    arch = arithmetic_arch(form, arch)
    mma = instruction_of(form, arch if form.is_wmma else "")
    if B is None:
        raise InvalidOperand(f"{mma.name}: expected the inputs A and B; to diagnose A alone, pass the operand mma.a")
    tile = tile or _default_tile(mma, (A, B, observed))
    if (
        tile is None
        and getattr(observed, "shape", ())[-2:] == mma.a.shape
        and mma.a.shape not in (mma.d.shape, mma.d.shape[::-1])
    ):
        raise InvalidOperand(f"{mma.name}: observed has the shape of A: pass D first, as in diagnose(mma, D, A, B)")
    if tile is not None:
        if any(extra is not None for extra in (metadata, *scales)) or isinstance(A, Shared) or isinstance(B, Shared):
            raise InvalidOperand(f"{mma.name}: tile= takes A, B and C as matrices, without metadata or scale factors")
        if isinstance(observed, Printed):
            raise InvalidOperand(f"{mma.name}: tile= takes D as an array, not as printed numbers")
        return KernelSearch(mma, arch, read_tile(tile, mma), (A, B, C), observed, options.rounding).diagnosis()
    negate, scale_d = options.immediates.negate, options.immediates.scale_d
    _check_warpgroup(mma, A, B, options)
    # `negate` and `scale_d` are applied below
    immediates = replace(options.immediates, negate=(False, False), scale_d=True)
    check_immediates(form, immediates, mma.operands.selected_layouts)
    tiles, words = _inputs(mma, A, B, C, metadata, options)
    for role, factors in zip(("scale_a", "scale_b"), scales, strict=True):
        words |= _scale_words(mma, role, factors, options)
    for operand, is_negated in zip((mma.a, mma.b), negate, strict=True):
        if is_negated:
            role = operand.role
            in_memory = role in tiles
            words[role] = negated_memory(operand, tiles[role]) if in_memory else negated_words(words[role], operand)
    return _first_explained(SuspectProduct(mma, arch, immediates, tiles, scale_d), words, observe(mma.d, observed))


def _default_tile(instruction: Instruction, matrices: tuple[object, object, object]) -> tuple[int, ...] | None:
    """Return the instruction's tile of D if A, B and D are the matrices of a whole kernel, otherwise None."""
    shapes: list[tuple[int, ...]] = [getattr(matrix, "shape", ()) for matrix in matrices]
    a, b, d = shapes
    own, is_turned = instruction.b.shape, len(a) == len(b) == 2 and a[1] == b[1] != b[0]
    if is_turned and a != own and (d == (a[0], b[0]) or b == own[::-1]):
        raise InvalidOperand(
            f"B has the shape {b}, one row for each column of D: pass B.T if the kernel computes A B.T"
        )
    is_whole = len(a) == len(b) == 2 and d == (a[0], b[1]) and (a, b) != (instruction.a.shape, instruction.b.shape)
    is_plain = instruction.pattern is None and not instruction.form.block_scale
    return instruction.d.shape if is_whole and is_plain else None


# ---- inputs


def _inputs(
    mma: Instruction,
    A: ArrayLike | Shared,
    B: ArrayLike | Shared,
    C: ArrayLike | None,
    metadata: ArrayLike | None,
    options: DiagnoseOptions,
) -> tuple[dict[str, Shared], dict[str, Words]]:
    """Return the tiles in shared memory, and each operand's registers or bytes."""
    rounding = options.rounding
    tiles: dict[str, Shared] = {}
    words: dict[str, Words] = {}
    if mma.b.storage == "shared":
        tiles["b"] = B if isinstance(B, Shared) else mma.b.store(B, rounding=rounding)
    else:
        words["b"] = mma.b.pack(B, rounding=rounding)  # type: ignore[arg-type] # A and B are not Shared here
    if isinstance(A, Shared):
        tiles["a"] = A
        if (mma.pattern is None) != (metadata is None):
            wanted = "is dense and takes no metadata" if mma.pattern is None else "needs the metadata of the stored A"
            raise InvalidOperand(f"{mma.name} {wanted}")
        words |= {} if metadata is None else {"metadata": mma.metadata.check_words(metadata)}
    else:
        words |= left_words(mma, A, metadata, options.immediates, rounding)
    zero = np.zeros((*mma.c.threads, mma.c.words), np.uint32)
    words["c"] = zero if C is None else mma.c.pack(C, rounding=rounding)
    for role, tile in sorted(tiles.items()):
        words[role] = _tile_bytes(mma.a if role == "a" else mma.b, tile)
    return tiles, words


def left_words(
    instruction: Instruction, A: ArrayLike, metadata: ArrayLike | None, immediates: Immediates, rounding: Rounding
) -> dict[str, Words]:
    """Return the registers of A and, for a sparse A, of the metadata."""
    rule = instruction.pattern
    if rule is None:
        if metadata is not None:
            raise InvalidOperand(f"{instruction.name} is dense and takes no metadata")
        return {"a": instruction.a.pack(A, rounding=rounding)}
    full = instruction.a.full_codes(A, rounding=rounding)
    if metadata is None:
        stored, codes = compress(rule, full)
        packed = instruction.metadata.pack(codes, selector=immediates.selector)
        return {"a": instruction.a.pack(stored, raw=True), "metadata": packed}
    words = instruction.metadata.check_words(metadata)
    columns = logical_columns(rule, instruction.metadata.unpack(words, selector=immediates.selector))
    try:
        shape = np.broadcast_shapes(full.shape[:-2], columns.shape[:-2])
    except ValueError:
        raise InvalidOperand(f"leading axes do not broadcast: A {full.shape}, metadata {words.shape}") from None
    stored = np.take_along_axis(
        np.broadcast_to(full, (*shape, *full.shape[-2:])), np.broadcast_to(columns, (*shape, *columns.shape[-2:])), -1
    )
    return {"a": instruction.a.pack(stored, raw=True), "metadata": words}


def _check_warpgroup(instruction: Instruction, A: object, B: object, options: DiagnoseOptions) -> None:
    """Raise InvalidOperand for invalid wgmma options, or for wgmma options with another instruction."""
    name, negate, scale_d = instruction.name, options.immediates.negate, options.immediates.scale_d
    pair = isinstance(negate, tuple | list) and len(negate) == 2 and all(isinstance(flag, bool) for flag in negate)
    if not pair:
        raise InvalidOperand(f"{name}: negate: expected two booleans, one for A and one for B; got {quote(negate)}")
    if not isinstance(scale_d, bool):
        raise InvalidOperand(f"{name}: scale_d: expected True or False, got {quote(scale_d)}")
    if instruction.b.storage != "shared":
        if isinstance(A, Shared) or isinstance(B, Shared) or any(negate) or not scale_d:
            raise InvalidOperand(
                f"{name} reads its operands from registers; Shared, negate and scale_d apply only to wgmma"
            )
    elif any(negate) and not instruction.a.format.is_float:
        raise InvalidOperand(f"{name}: only float types can be negated, got negate={quote(negate)}")


def _tile_bytes(operand: Operand, tile: Shared) -> NDArray[np.uint8]:
    """Return the memory of a tile; raise an error if its elements overlap or lie outside the memory."""
    operand.read(tile)
    places = byte_places(operand, operand.memory(tile.descriptor, trans=tile.trans))
    if np.unique(places).size != places.size:
        raise InvalidOperand(
            f"{operand.description}: the descriptor {tile.descriptor} makes elements of the tile overlap"
        )
    return as_bytes(tile.memory, batch=True)


def _scale_words(
    instruction: Instruction, role: str, scales: ArrayLike | None, options: DiagnoseOptions
) -> dict[str, Words]:
    """Return the scale-factor words of A or B, if the instruction has them."""
    scale = instruction.operands.get(role)
    if (scale is None) != (scales is None):
        raise InvalidOperand(f"{instruction.name} {'takes no' if scale is None else 'needs'} {role}")
    if not isinstance(scale, Scale) or scales is None:
        return {}
    array = as_array(scales, scale.description)
    if array.dtype == np.uint32 and array.shape[-1:] == scale.threads:
        return {role: array}
    return {role: chosen_words(scale, scale.codes(array, rounding=options.rounding), part_of(options.immediates, role))}


def _first_explained(case: SuspectProduct, words: dict[str, Words], seen: Observation) -> Diagnosis:
    """Search for mistakes; if D's extents are swapped, try the transpose of D, and D reshaped in memory order."""
    shape = case.instruction.d.shape
    if seen.codes.shape[-len(shape) :] == shape:
        diagnosed, is_nan = Search(case, words, seen).diagnosis(), np.isnan(seen.values)
        if diagnosed or diagnosed.correct or not 0 < is_nan.mean() < MAX_NANS:
            return diagnosed
        others = Search(case, words, seen.widened(np.where(is_nan, np.inf, 0.0))).diagnosis()
        count = f"{is_nan.sum()} of {is_nan.size} elements {'is' if is_nan.sum() == 1 else 'are'} NaN"
        others.notes = (f"{count}; the others are explained", *others.notes)
        return others or diagnosed
    rows, cols = shape[-2:]
    batch = seen.codes.shape[:-2]
    size, turned_size = f"{rows} x {cols}", f"{cols} x {rows}"
    transposed = f"stored as its transpose, {turned_size} instead of {size}"
    reshaped = f"shaped {turned_size} instead of {size}; its elements are in the right order"
    views: dict[Finding, Callable[[NDArray[Any]], NDArray[Any]]] = {
        Finding("transposed", "d", transposed, "store or pass D.T"): lambda array: array.swapaxes(-1, -2),
        Finding("layout", "d", reshaped, f"reshape D to ({rows}, {cols})"): lambda array: array.reshape(
            *batch, rows, cols
        ),
    }
    found = {turned: Search(case, words, seen.map(view)).diagnosis() for turned, view in views.items()}
    turned, best = max(found.items(), key=lambda pair: (pair[1].correct, bool(pair[1])))
    if best.correct:
        return Diagnosis([turned], correct=False, tried=best.tried, notes=best.notes)
    best.notes = (f"D is {turned.text} ({turned.fix}); the diagnosis is for the corrected D", *best.notes)
    return best


# ---- one operand


def _diagnose_operand(
    operand: AnyOperand, observed: ArrayLike | Printed, matrix: ArrayLike, options: DiagnoseOptions
) -> Diagnosis:
    """Return the mistakes that turn the right registers of an operand into the observed ones."""
    choice = options.immediates
    suspected = [*suspects(operand)]
    if isinstance(operand, Operand):
        right = operand.pack(matrix, rounding=options.rounding)
    else:
        check_ids(choice, {operand.role: operand.layout}, lambda: operand.instruction)
        codes = operand.codes(matrix, raw=isinstance(operand, Metadata), rounding=options.rounding)
        right = chosen_words(operand, codes, part_of(choice, operand.role))
        suspected += written_elsewhere(operand, codes, choice)

    def read(words: Words) -> Codes:  # padding and copies in the registers of a matrix are ignored
        return operand.unpack(words, raw=True) if isinstance(operand, Operand) else words

    if isinstance(observed, Printed) and isinstance(operand, Operand):
        seen = observe(operand, observed)
        words = operand.pack(seen.codes, raw=True)
    elif isinstance(observed, Printed):
        raise InvalidOperand(f"{operand.description}: expected words, got printed numbers")
    else:
        words = operand.check_words(observed)
        seen = Observation(operand.format, read(words))
    try:
        shape = np.broadcast_shapes(words.shape, right.shape)
    except ValueError:
        raise InvalidOperand(
            f"{operand.description}: leading axes do not broadcast: registers {words.shape}, matrix {right.shape}"
        ) from None
    words, right = np.broadcast_to(words, shape), np.broadcast_to(right, shape)
    if not words.size:
        raise InvalidOperand(
            f"{operand.description}: expected the registers of at least one matrix, got shape {words.shape}"
        )
    expected = read(right)
    seen = seen.map(lambda array: np.broadcast_to(array, expected.shape))
    is_right = bool(seen.matches(expected).all())
    if not isinstance(operand, Operand):  # only the part that the immediates select is compared
        chosen = part_of(choice, operand.role)
        is_right |= np.array_equal(chosen_codes(operand, words, chosen), chosen_codes(operand, right, chosen))
    notes = seen.notes(expected)
    if is_right:
        return Diagnosis([], correct=True, tried={}, notes=notes)

    at_once = max(1, MAX_WORDS // right.size)
    found: list[Mistake] = []
    for start in range(0, len(suspected), at_once):
        part = suspected[start : start + at_once]
        equal = seen.matches(read(np.stack([mistake.change(right) for mistake in part])))
        found += [part[int(index)] for index in np.flatnonzero(equal.reshape(len(part), -1).all(axis=1))]
    distinct_mistakes = distinct(operand, sorted(found, key=likelihood))
    return diagnosis(distinct_mistakes, suspected, fix=partial(fix, {operand.role: operand}), notes=notes)
