"""What users give, as the registers that the instruction should have got, and as the codes of what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.arrays import as_array
from warpfrag.errors import InvalidOperand
from warpfrag.mistakes.of_words import chosen_words
from warpfrag.operand import Scale
from warpfrag.sparsity import compress, logical_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from warpfrag.choice import Choice
    from warpfrag.diagnose.outcome import Codes, Words
    from warpfrag.formats import Rounding
    from warpfrag.instruction import Instruction
    from warpfrag.operand import Operand


def left_words(
    instruction: Instruction, A: ArrayLike, metadata: ArrayLike | None, choice: Choice, rounding: Rounding
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


def scale_words(
    instruction: Instruction, role: str, scales: ArrayLike | None, choice: Choice, rounding: Rounding
) -> dict[str, Words]:
    """Words of the scale factors of A or B, where the instruction has them."""
    scale = instruction.operands.get(role)
    if (scale is None) != (scales is None):
        msg = f"{instruction.name} {'takes no' if scale is None else 'needs'} {role}"
        raise InvalidOperand(msg)
    if not isinstance(scale, Scale) or scales is None:
        return {}
    given = as_array(scales, scale.described)
    if given.dtype == np.uint32 and given.shape[-1:] == scale.threads:
        return {role: given}
    return {role: chosen_words(scale, scale.codes(given, rounding=rounding), choice.of(role))}


def observed_codes(operand: Operand, observed: ArrayLike) -> Codes:
    """Codes of what was observed: registers where it has their type and shape, else a matrix."""
    array = as_array(observed, operand.described)
    if array.dtype == np.uint32 and array.shape[-2:] == (32, operand.words):
        return operand.unpack(array, raw=True)
    registers = f"registers, uint32[..., 32, {operand.words}]"
    if array.shape[max(0, array.ndim - len(operand.shape)) :] != operand.shape:
        matrix = ", ".join(map(str, operand.shape))
        msg = f"{operand.described}: expected a matrix (..., {matrix}) or {registers}, got {array.dtype} {array.shape}"
        raise InvalidOperand(msg)
    return operand.codes(array)
