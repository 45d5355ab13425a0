"""The steps of a relayout, run on registers in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.plans.conversions import convert_codes
from warpfrag.plans.relayout_steps import WORD_BITS, Convert, LanePermute, Permute, RegisterSlot, Transpose
from warpfrag.plans.shuffle_search import Select, Shuffle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from warpfrag.isa.operands import OperandSpec
    from warpfrag.plans.relayout_steps import Assembly, Step


def run_step(step: Step, state: NDArray[np.uint32], source: OperandSpec, target: OperandSpec) -> NDArray[np.uint32]:
    """Registers [..., lanes, words] after one step from one operand to another."""
    import numpy as np

    from warpfrag.tensorcore import matrix_moves

    lanes = np.arange(state.shape[-2])
    if isinstance(step, Shuffle):
        read = [lanes if flip is None else np.array(step.lanes(flip)) for flip in step.flips]
        return np.stack([state[..., which, word] for word, which in enumerate(read)], axis=-1)
    if isinstance(step, Select):
        moved = state[..., list(step.words)]
        return moved if not step.mask else np.where(_parity(lanes, step.mask)[:, None], moved, state)
    if isinstance(step, Transpose):
        return matrix_moves.move_words(state[..., list(step.words)])
    if isinstance(step, Convert):
        return _assembled(state, step.words, source, target, (step.source, step.target))
    if isinstance(step, Permute):
        return _joined(state, step.words, step.bits)
    if isinstance(step, LanePermute):
        either = (_joined(state, words, step.bits) for words in (step.others, step.words))
        return np.where(_parity(lanes, step.mask)[:, None], *either)
    bits = min(source.container, target.container)
    per_word = WORD_BITS // bits
    swapped = tuple(
        tuple(RegisterSlot(word, slot ^ step.flip) for slot in range(per_word)) for word in range(step.words)
    )
    return np.where(_parity(lanes, step.mask)[:, None], _joined(state, swapped, bits), state)


def _parity(lanes: NDArray[np.intp], mask: int) -> NDArray[np.bool_]:
    """Which lanes have an odd number of bits in a mask."""
    import numpy as np

    return np.array([(int(lane) & mask).bit_count() & 1 for lane in lanes], bool)


def _joined(state: NDArray[np.uint32], words: Assembly, bits: int) -> NDArray[np.uint32]:
    """Words made of cells as they are."""
    import numpy as np

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
    """Words made of converted elements."""
    import numpy as np

    from warpfrag.formats.codes import code_dtype

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
