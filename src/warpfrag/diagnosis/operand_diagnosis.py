"""What went wrong with one operand: its registers, and the matrix that they should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis.explanations import Diagnosis, diagnosis, rank
from warpfrag.diagnosis.mistake_types import likelihood
from warpfrag.diagnosis.mistakes import distinct, suspects
from warpfrag.diagnosis.word_mistakes import chosen_codes, chosen_words, written_elsewhere
from warpfrag.errors import InvalidOperand
from warpfrag.tensorcore.operand import Metadata, Operand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import ArrayLike

    from warpfrag.diagnosis.explanations import Candidate
    from warpfrag.diagnosis.mistake_types import Mistake
    from warpfrag.diagnosis.outcome import Codes, Words
    from warpfrag.formats.number_formats import Rounding
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.operand import AnyOperand

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
