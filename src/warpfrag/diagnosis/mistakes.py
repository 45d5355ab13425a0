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

from warpfrag.diagnosis import (
    arithmetic_mistakes as of_products,
)
from warpfrag.diagnosis import (
    index_mistakes as of_indexing,
)
from warpfrag.diagnosis import (
    matrix_mistakes as of_matrices,
)
from warpfrag.diagnosis import (
    register_mistakes as of_registers,
)
from warpfrag.diagnosis import (
    word_mistakes as of_words,
)
from warpfrag.diagnosis.mistake_types import likelihood
from warpfrag.tensorcore.operand import Metadata, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from warpfrag.diagnosis.mistake_types import Mistake
    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import AnyOperand

MAX_OPERANDS = 64  # whose mistakes are kept


def mistakes(instruction: Instruction) -> Iterator[Mistake]:
    """The simple mistakes that the operands of an instruction allow, each different from all others."""
    for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
        yield from of_registers.simple(operand)
    for operand in (instruction.a, instruction.b):
        yield of_matrices.read_in_other_order(operand)
    for role in ("metadata", "scale_a", "scale_b"):
        if role in instruction.operands:
            yield from of_words.simple(instruction.operands[role])


@lru_cache(MAX_OPERANDS)
def suspects(operand: AnyOperand) -> tuple[Mistake, ...]:
    """Every mistake with one operand, the likeliest first.

    Those of other kinds, and rare ones, may be the same by another name: `distinct` sees that of those that are found.
    """
    if isinstance(operand, Metadata | Scale):
        mistakes = [*of_words.simple(operand), *of_words.more(operand)]
    else:
        mistakes = [
            of_matrices.read_in_other_order(operand),
            *of_registers.simple(operand),
            *of_matrices.turned(operand),
        ]
        mistakes += [*of_registers.register_orders(operand), *of_registers.parts(operand), *of_registers.lanes(operand)]
        mistakes += [*of_matrices.other_layouts(operand), *of_matrices.moved(operand), *of_indexing.indexing(operand)]
        mistakes += of_products.starts(operand) if operand.role == "c" else ()
        mistakes += of_products.written_as(operand) if operand.role in "ab" else ()
        mistakes += of_products.negated(operand) if operand.staged else ()
    mistakes += of_registers.warps(operand) if len(operand.threads) > 1 else ()
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
