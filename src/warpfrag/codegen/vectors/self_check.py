"""Self-check: make every mistake, and see that the test vectors notice: that a register of D changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warpfrag.codegen.statement import choices
from warpfrag.codegen.vectors.vector_group import run
from warpfrag.diagnosis.mistakes import mistakes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.codegen.vectors.vector_group import VectorGroup
    from warpfrag.diagnosis.mistake_types import Mistake
    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction


def self_check(instruction: Instruction, arch: str, groups: Sequence[VectorGroup]) -> dict[str, str | None]:
    """For each mistake the first group that shows it; None where none does."""
    caught: dict[str, str | None] = {}
    by_operand: dict[str, list[Mistake]] = {}
    for mistake in mistakes(instruction):
        caught[mistake.name] = None
        by_operand.setdefault(mistake.operand, []).append(mistake)
    for group in groups:
        for every in by_operand.values():
            left = [mistake for mistake in every if caught[mistake.name] is None]
            for mistake, differs in zip(left, shows(instruction, arch, group, left), strict=True):
                if differs:
                    caught[mistake.name] = group.name
    for group in groups:
        if group.name.startswith("random"):
            caught |= _wrong_choices(instruction, arch, group)
    return caught


def shows(instruction: Instruction, arch: str, group: VectorGroup, left: Sequence[Mistake]) -> list[bool]:
    """Whether a group shows each of some mistakes of one operand: all of them in one execution."""
    if not left:
        return []
    role = left[0].operand
    if role == "d":
        return [not np.array_equal(mistake.change(group.d), group.d) for mistake in left]
    changed = np.stack([mistake.change(group.words[role]) for mistake in left])
    words = {name: np.broadcast_to(array, (len(left), *array.shape)) for name, array in group.words.items()}
    d = run(instruction, {**words, role: changed}, group.choice, arch)
    return [bool(differs) for differs in (d != group.d).reshape(len(left), -1).any(axis=1)]


def _wrong_choices(instruction: Instruction, arch: str, group: VectorGroup) -> dict[str, str | None]:
    """Whether another selector or id than the group's changes D."""
    caught: dict[str, str | None] = {}
    for choice in choices(instruction, ids=True):
        if not _differ_in_a_single_number(choice, group.choice):
            continue
        d = run(instruction, group.words, choice, arch)
        text = choice.suffix(instruction.operands).replace("_", " ").strip()
        name = f"{group.name}: run as {text or 'the first choice'}"
        caught[name] = group.name if not np.array_equal(d, group.d) else None
    return caught


def _differ_in_a_single_number(choice: Immediates, right: Immediates) -> bool:
    return sum(mine != its for mine, its in zip(choice.numbers, right.numbers, strict=True)) == 1
