"""Common mistakes with fragments, by operand, for test vectors and `diagnose`.

A mistake models a kernel or an emulator with one error. Most change the registers of one operand (`Mistake`): the
inputs A, B, C, metadata and scales, or the output D. The others run a different instruction on the right registers
(`Misreading`), with the wrong sign, type or architecture.

`mistakes` yields simple, distinct mistakes, which test vectors must expose. `suspects` returns all mistakes that
`diagnose` tries, including equal ones with different names.

    >>> from warpfrag.tensorcore.registry import get
    >>> [mistake.name for mistake in mistakes(get("mma.m16n8k16.f32.f16.f16.f32")) if mistake.operand == "b"][:3]
    ['b: registers 0 and 1 swapped', 'b: halves of a register swapped', 'b: lane 0 dropped']
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from warpfrag.diagnosis import arithmetic_mistakes, matrix_mistakes, register_mistakes
from warpfrag.diagnosis.findings import Mistake, likelihood, without_repetitions
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.operand import AnyOperand, Metadata, Scale

MAX_OPERANDS = 64  # the maximum number of operands that are cached


def mistakes(instruction: Instruction) -> Iterator[Mistake]:
    """Yield the simple mistakes with the operands of an instruction, without duplicates."""
    for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
        yield from register_mistakes.simple(operand)
    for operand in (instruction.a, instruction.b):
        yield next(matrix_mistakes.rearranged(operand))  # column-major data that is read as row-major
    for role in ("metadata", "scale_a", "scale_b"):
        if role in instruction.operands:
            yield from register_mistakes.simple_word_mistakes(instruction.operands[role])


@lru_cache(MAX_OPERANDS)
def suspects(operand: AnyOperand) -> tuple[Mistake, ...]:
    """Return every mistake with one operand, most likely first.

    Rare mistakes, and mistakes of different categories, may have the same effect; `distinct` removes repetitions.
    """
    role = operand.role
    if isinstance(operand, Metadata | Scale):
        mistakes = [*register_mistakes.simple_word_mistakes(operand), *register_mistakes.word_mistakes(operand)]
    else:
        sources = [register_mistakes.simple, matrix_mistakes.turned, register_mistakes.register_orders]
        sources += [register_mistakes.parts, register_mistakes.lanes, matrix_mistakes.other_layouts]
        sources += [matrix_mistakes.rearranged, matrix_mistakes.indexing, matrix_mistakes.misloaded]
        sources += [arithmetic_mistakes.starts] if role == "c" else []
        sources += [arithmetic_mistakes.written_as] if role in "ab" else []
        sources += [arithmetic_mistakes.negated] if operand.staged else []
        mistakes = [mistake for source in sources for mistake in source(operand)]
    mistakes += register_mistakes.warps(operand) if len(operand.threads) > 1 else ()
    ordered = sorted({(mistake.kind, mistake.text): mistake for mistake in mistakes}.values(), key=likelihood)
    common = [mistake for mistake in ordered if not mistake.rare]
    return *distinct(operand, common), *ordered[len(common) :]


def distinct(operand: AnyOperand, mistakes: Iterable[Mistake]) -> Iterator[Mistake]:
    """Yield mistakes, skipping those that change nothing or repeat an earlier one of their category."""
    shape = operand.threads if isinstance(operand, Metadata | Scale) else (*operand.threads, operand.words)
    words = np.random.default_rng(0).integers(0, 1 << 32, shape, np.uint32)
    if not isinstance(operand, Metadata | Scale):  # copies are made equal, and padding zero
        words = operand.pack(operand.unpack(words, raw=True), raw=True)
    return without_repetitions(mistakes, words)
