"""Mistakes with metadata and scale factors: one word a lane, of which an immediate chooses a part."""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.diagnosis.mistake_types import Mistake
from warpfrag.diagnosis.register_mistakes import PARTS, exchange_bits, lane_orders, rare_lane_orders
from warpfrag.isa.immediates import legal
from warpfrag.isa.operands import REGISTER_BITS
from warpfrag.tensorcore.operand import Metadata, Scale

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from warpfrag.diagnosis.mistake_types import Kind, Words
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.operand import AnyOperand

BYTE = 8


def simple(operand: AnyOperand) -> Iterator[Mistake]:
    """Fields or bytes reversed, lanes off by one."""
    reverse = partial(exchange_bits, mask=REGISTER_BITS - operand.spec.container)
    fields = "fields" if operand.role == "metadata" else "bytes"
    yield Mistake(_kind(operand, "halves"), operand.role, f"{fields} reversed", reverse)
    yield Mistake(_kind(operand, "lanes"), operand.role, "lanes moved by one", partial(np.roll, shift=1, axis=-1))


def more(operand: AnyOperand) -> Iterator[Mistake]:
    """Other parts and lanes exchanged, and words that are the same everywhere."""
    role, parts = operand.role, _kind(operand, "halves")
    for mask, text in PARTS.items():
        if mask != REGISTER_BITS - operand.spec.container and mask in {16, 8, 24, 4, 2}:
            yield Mistake(parts, role, text, partial(exchange_bits, mask=mask), rare=mask < BYTE)
    for orders, rare in ((lane_orders(), False), (rare_lane_orders(), True)):
        for text, order in orders.items():
            take = methodcaller("take", order, axis=-1)
            yield Mistake(_kind(operand, "lanes"), role, text, take, rare=rare)
    if isinstance(operand, Metadata):
        for code in range(operand.format.codes):
            word = code * (0xFFFFFFFF // (operand.format.codes - 1))
            everywhere = partial(np.full_like, fill_value=word)
            yield Mistake("metadata", role, f"{word:#010x} everywhere", everywhere, rare=True)
    elif isinstance(operand, Scale):
        word = operand.format.encode(1.0) * (0xFFFFFFFF // 255)
        yield Mistake("layout", role, "1 everywhere", partial(np.full_like, fill_value=word), rare=True)


def _kind(operand: AnyOperand, usual: Kind) -> Kind:
    return "metadata" if operand.role == "metadata" else usual


def other_choices(operand: AnyOperand, choice: Immediates) -> Iterator[Mistake]:
    """Another selector, byte id or thread id than the right ones, as a change of the words."""
    if not isinstance(operand, Metadata | Scale):
        return
    right = choice.of(operand.role)
    for name in right:
        for other in legal(operand.layout, name):
            if other != right[name]:
                wrong = {**right, name: other}
                change = partial(_chosen, operand=operand, wrong=wrong, right=right)
                yield Mistake("selector", operand.role, f"{name} {other} instead of {right[name]}", change)


def _chosen(words: Words, *, operand: Metadata | Scale, wrong: dict[str, int], right: dict[str, int]) -> Words:
    """Words in which the right choice reads what the wrong one reads in these."""
    return chosen_words(operand, chosen_codes(operand, words, wrong), right)


def chosen_codes(operand: Metadata | Scale, words: Words, choice: Mapping[str, int]) -> NDArray[Any]:
    """The codes that words hold for a selector, or for a byte id and a thread id."""
    if isinstance(operand, Metadata):
        return operand.unpack(words, **choice)
    return operand.unpack(words, byte_id=choice["byte_id"], thread_id=choice["thread_id"], raw=True)


def chosen_words(operand: Metadata | Scale, codes: NDArray[Any], choice: Mapping[str, int]) -> Words:
    """The words that hold codes for a selector, or for a byte id and a thread id."""
    if isinstance(operand, Metadata):
        return operand.pack(codes, **choice)
    return operand.pack(codes, byte_id=choice["byte_id"], thread_id=choice["thread_id"], raw=True)


def written_elsewhere(operand: Metadata | Scale, codes: NDArray[Any], choice: Immediates) -> Iterator[Mistake]:
    """The words of the same codes, written for another selector or id."""
    right = choice.of(operand.role)
    for name in right:
        for other in legal(operand.layout, name):
            if other != right[name]:
                words = chosen_words(operand, codes, {**right, name: other})
                text = f"written for {name} {other} instead of {right[name]}"
                yield Mistake("selector", operand.role, text, partial(_replaced, by=words))


def _replaced(words: Words, *, by: Words) -> Words:
    return np.broadcast_to(by, words.shape)
