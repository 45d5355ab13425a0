"""The mistakes people make with fragments: the one list that `vectors` and `diagnose` both read.

A mistake stands for a kernel or an emulator that gets one thing wrong. Most are a change of the registers of one
operand (`Mistake`): of A, B, C, metadata and scales it changes what goes in, of D what comes out. The others leave the
registers alone and run something else on them (`Misreading`): another sign, another type, another architecture.

`mistakes` has the simple ones, of which no two are the same: `vectors` sees that test vectors notice each of them.
`suspects` has every one, also those that are the same by another name: `diagnose` tries them.

    >>> from warpfrag.tensorcore.registry import get
    >>> [mistake.name for mistake in mistakes(get("mma.m16n8k16.f32.f16.f16.f32")) if mistake.operand == "b"][:3]
    ['b: registers 0 and 1 swapped', 'b: halves of a register swapped', 'b: lane 0 dropped']
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from warpfrag.diagnosis import arithmetic_mistakes, matrix_mistakes, register_mistakes
from warpfrag.diagnosis.findings import Mistake, likelihood
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from warpfrag.tensorcore.instruction import Instruction

MAX_OPERANDS = 64  # whose mistakes are kept


def mistakes(instruction: Instruction) -> Iterator[Mistake]:
    """The simple mistakes that the operands of an instruction allow, each different from all others."""
    for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
        yield from register_mistakes.simple(operand)
    for operand in (instruction.a, instruction.b):
        yield matrix_mistakes.read_in_other_order(operand)
    for role in ("metadata", "scale_a", "scale_b"):
        if role in instruction.operands:
            yield from register_mistakes.simple_word_mistakes(instruction.operands[role])


@lru_cache(MAX_OPERANDS)
def suspects(operand: AnyOperand) -> tuple[Mistake, ...]:
    """Every mistake with one operand, the likeliest first.

    Those of other kinds, and rare ones, may be the same by another name: `distinct` sees that of those that are found.
    """
    if isinstance(operand, Metadata | Scale):
        mistakes = [*register_mistakes.simple_word_mistakes(operand), *register_mistakes.word_mistakes(operand)]
    else:
        mistakes = [
            matrix_mistakes.read_in_other_order(operand),
            *register_mistakes.simple(operand),
            *matrix_mistakes.turned(operand),
        ]
        mistakes += [
            *register_mistakes.register_orders(operand),
            *register_mistakes.parts(operand),
            *register_mistakes.lanes(operand),
        ]
        mistakes += [
            *matrix_mistakes.other_layouts(operand),
            *matrix_mistakes.moved(operand),
            *matrix_mistakes.indexing(operand),
        ]
        mistakes += arithmetic_mistakes.starts(operand) if operand.role == "c" else ()
        mistakes += arithmetic_mistakes.written_as(operand) if operand.role in "ab" else ()
        mistakes += arithmetic_mistakes.negated(operand) if operand.staged else ()
    mistakes += register_mistakes.warps(operand) if len(operand.threads) > 1 else ()
    ordered = sorted(mistakes, key=likelihood)
    common = [mistake for mistake in ordered if not mistake.rare]
    return *distinct(operand, common), *ordered[len(common) :]


def distinct(operand: AnyOperand, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
    """Of mistakes of one kind that are the same, the first; none that changes nothing."""
    shape = operand.threads if isinstance(operand, Metadata | Scale) else (*operand.threads, operand.words)
    words = np.random.default_rng(0).integers(0, 1 << 32, shape, np.uint32)
    if not isinstance(operand, Metadata | Scale):  # copies hold the same, and padding is zero
        words = operand.pack(operand.unpack(words, raw=True), raw=True)
    right, seen = words.tobytes(), set()
    for mistake in mistakes:
        if mistake.kind == "selector":  # it may hold the words of the case, and has one name
            yield mistake
            continue
        key = mistake.kind, mistake.change(words).tobytes()
        if key[1] != right and key not in seen:
            seen.add(key)
            yield mistake
