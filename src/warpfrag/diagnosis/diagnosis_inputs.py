"""The caller's arguments: inputs as the registers the instruction should have got, the observed D as codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis.descriptor_mistakes import byte_places
from warpfrag.diagnosis.word_mistakes import chosen_words
from warpfrag.errors import InvalidOperand, quote
from warpfrag.formats.arrays import as_array
from warpfrag.smem.shared_memory import as_bytes
from warpfrag.tensorcore.operand import Scale
from warpfrag.tensorcore.shared_operand import Shared
from warpfrag.tensorcore.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from warpfrag.diagnosis.outcome import Codes, Words
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Operand, OperandBase


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
