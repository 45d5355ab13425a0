"""Execute the operations of a relayout on registers, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfrag.formats.arrays import as_doubles
from warpfrag.formats.codes import code_dtype, from_codes, to_codes
from warpfrag.formats.float_environment import exact_floats
from warpfrag.formats.number_formats import FORMATS
from warpfrag.isa.operands import OperandSpec
from warpfrag.plans.relayout_operations import (
    WORD_BITS,
    Assembly,
    Convert,
    LanePermute,
    Permute,
    RegisterSlot,
    RelayoutOperation,
    Transpose,
    conversion,
)
from warpfrag.plans.shuffle_search import Select, Shuffle
from warpfrag.tensorcore import matrix_moves


@exact_floats
def convert_codes(source: str, target: str, codes: NDArray[Any]) -> NDArray[Any]:
    """Convert codes from one format to another."""
    row = conversion(source, target)
    if row is None:
        return codes
    into = FORMATS[target]
    values = as_doubles(from_codes(FORMATS[source], codes))
    nan = np.isnan(values)
    if row.too_large != "infinity":
        values = np.clip(np.where(nan, 0.0, values), into.min, into.max)
    converted = to_codes(into, np.where(nan, 0.0, values), rounding="rne")
    return np.where(nan, code_dtype(into).type(row.nan), converted)


def run_operation(
    op: RelayoutOperation, state: NDArray[np.uint32], source: OperandSpec, target: OperandSpec
) -> NDArray[np.uint32]:
    """Return the registers [..., lanes, registers] after one operation."""
    lanes = np.arange(state.shape[-2])
    if isinstance(op, Shuffle):
        read = [lanes if flip is None else np.array(op.lanes(flip)) for flip in op.flips]
        return np.stack([state[..., which, word] for word, which in enumerate(read)], axis=-1)
    if isinstance(op, Select):
        moved = state[..., list(op.words)]
        return moved if not op.mask else np.where(_parity(lanes, op.mask)[:, None], moved, state)
    if isinstance(op, Transpose):
        return matrix_moves.move_words(state[..., list(op.words)])
    if isinstance(op, Convert):
        return _assembled(state, op.words, source, target, (op.source, op.target))
    if isinstance(op, Permute):
        return _joined(state, op.words, op.bits)
    if isinstance(op, LanePermute):
        either = (_joined(state, words, op.bits) for words in (op.others, op.words))
        return np.where(_parity(lanes, op.mask)[:, None], *either)
    bits = min(source.container, target.container)
    per_word = WORD_BITS // bits
    swapped = tuple(tuple(RegisterSlot(word, slot ^ op.flip) for slot in range(per_word)) for word in range(op.words))
    return np.where(_parity(lanes, op.mask)[:, None], _joined(state, swapped, bits), state)


def _parity(lanes: NDArray[np.intp], mask: int) -> NDArray[np.bool_]:
    """Return the lanes with an odd number of bits in a mask, as booleans."""
    return np.array([(int(lane) & mask).bit_count() & 1 for lane in lanes], bool)


def _joined(state: NDArray[np.uint32], words: Assembly, bits: int) -> NDArray[np.uint32]:
    """Return registers assembled from unchanged cells."""
    mask = np.uint32((1 << bits) - 1)
    made = []
    for cells in words:
        word = np.zeros(state.shape[:-1], np.uint32)
        for slot, cell in enumerate(cells):
            if cell is not None:
                word |= (state[..., cell.word] >> np.uint32(cell.slot * bits) & mask) << np.uint32(slot * bits)
        made.append(word)
    return np.stack(made, axis=-1)


def _assembled(
    state: NDArray[np.uint32], words: Assembly, source: OperandSpec, target: OperandSpec, formats: tuple[str, str]
) -> NDArray[np.uint32]:
    """Return registers assembled from converted elements."""
    made = []
    for cells in words:
        word = np.zeros(state.shape[:-1], np.uint32)
        for slot, cell in enumerate(cells):
            if cell is not None:
                shifted = state[..., cell.word] >> np.uint32(cell.slot * source.container + source.low)
                codes = (shifted & np.uint32(source.format.codes - 1)).astype(code_dtype(source.format))
                converted = convert_codes(*formats, codes).astype(np.uint32)
                word |= converted << np.uint32(slot * target.container + target.low)
        made.append(word)
    return np.stack(made, axis=-1)
