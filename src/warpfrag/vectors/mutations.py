"""Self-check: get the layout wrong in every simple way, and see that the vectors notice.

A mutation stands for a kernel or an emulator with one mistake. A mistake in an operand changes the registers that go
in, one in D those that come out, one in the immediates what is executed; it is caught where a register of D changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from warpfrag.emit.statement import choices
from warpfrag.vectors.cases import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from warpfrag.emit.statement import Choice
    from warpfrag.instruction import Instruction
    from warpfrag.operand import Operand
    from warpfrag.vectors.cases import Group
    from warpfrag.vectors.sets import VectorSet

    Change = Callable[[NDArray[np.uint32]], NDArray[np.uint32]]


@dataclass(frozen=True, eq=False)
class Mutation:
    """One mistake in the registers of one operand."""

    name: str
    role: str
    change: Change


def mutations(instruction: Instruction) -> Iterator[Mutation]:
    """Every mistake that the operands of an instruction allow."""
    for role in "abcd":
        operand: Any = instruction.operands[role]
        for first, second in combinations(_first_registers(operand), 2):
            swap = partial(_swap_registers, first=first, second=second, width=operand.words // operand.regs)
            yield Mutation(f"{role}: registers {first} and {second} swapped", role, swap)
        if operand.slots > 1:
            yield Mutation(f"{role}: slots reversed", role, partial(_reverse_slots, container=operand.row.container))
        for lane in range(32):
            yield Mutation(f"{role}: lane {lane} dropped", role, partial(_drop_lane, lane=lane))
        yield Mutation(f"{role}: lanes moved by one", role, _next_lane)
    for role in "ab":
        transpose = partial(_other_order, operand=instruction.operands[role])
        yield Mutation(f"{role}: memory read in the other order", role, transpose)
    if instruction.metadata is not None:
        yield Mutation("metadata: fields reversed", "metadata", partial(_reverse_slots, container=4))
        yield Mutation("metadata: lanes moved by one", "metadata", _next_lane)
    for role in ("scale_a", "scale_b"):
        if role in instruction.operands:
            yield Mutation(f"{role}: bytes reversed", role, partial(_reverse_slots, container=8))
            yield Mutation(f"{role}: lanes moved by one", role, _next_lane)


def self_check(vectors: VectorSet) -> dict[str, str | None]:
    """For each mistake the first group that shows it; None where none does."""
    caught: dict[str, str | None] = {}
    by_role: dict[str, list[Mutation]] = {}
    for mutation in mutations(vectors.instruction):
        caught[mutation.name] = None
        by_role.setdefault(mutation.role, []).append(mutation)
    for group in vectors.groups:
        for role, every in by_role.items():
            left = [mutation for mutation in every if caught[mutation.name] is None]
            for mutation, differs in zip(left, _differs(vectors, group, role, left), strict=True):
                if differs:
                    caught[mutation.name] = group.name
    for group in vectors.groups:
        if group.name.startswith("random"):
            caught |= _wrong_choices(vectors, group)
    return caught


def _differs(vectors: VectorSet, group: Group, role: str, left: list[Mutation]) -> list[bool]:
    """Whether each mutation of one operand changes D: all of them in one execution."""
    if not left:
        return []
    if role == "d":
        return [not np.array_equal(mutation.change(group.d), group.d) for mutation in left]
    mutated = np.stack([mutation.change(group.words[role]) for mutation in left])
    words = {name: np.broadcast_to(array, (len(left), *array.shape)) for name, array in group.words.items()}
    d = run(vectors.instruction, {**words, role: mutated}, group.choice, vectors.arch)
    return [bool(differs) for differs in (d != group.d).reshape(len(left), -1).any(axis=1)]


def _wrong_choices(vectors: VectorSet, group: Group) -> dict[str, str | None]:
    """Whether another selector or id than the group's changes D."""
    found: dict[str, str | None] = {}
    for choice in choices(vectors.instruction, ids=True):
        if not _one_mistake(choice, group.choice):
            continue
        d = run(vectors.instruction, group.words, choice, vectors.arch)
        name = f"{group.name}: run as {_described(choice, vectors.instruction)}"
        found[name] = group.name if not np.array_equal(d, group.d) else None
    return found


def _one_mistake(choice: Choice, right: Choice) -> bool:
    pairs = zip(_numbers(choice), _numbers(right), strict=True)
    return sum(mine != its for mine, its in pairs) == 1


def _numbers(choice: Choice) -> tuple[int, ...]:
    return (choice.selector, *choice.byte_id, *choice.thread_id)


def _described(choice: Choice, instruction: Instruction) -> str:
    return choice.suffix(instruction).replace("_", " ").strip() or "the first choice"


def _first_registers(operand: Operand) -> list[int]:
    """The registers that the hardware reads: not those that hold copies."""
    copies = sum(1 << bit for bit, basis in enumerate(operand.layout.reg) if not basis.step)
    return [reg for reg in range(operand.regs) if not reg & copies]


def _swap_registers(words: NDArray[np.uint32], *, first: int, second: int, width: int) -> NDArray[np.uint32]:
    order = np.arange(words.shape[-1]).reshape(-1, width)
    order[[first, second]] = order[[second, first]]
    return words[..., order.reshape(-1)]


def _reverse_slots(words: NDArray[np.uint32], *, container: int) -> NDArray[np.uint32]:
    mask = np.uint32((1 << container) - 1)
    result = np.zeros_like(words)
    for low in range(0, 32, container):
        result |= (words >> np.uint32(low) & mask) << np.uint32(32 - container - low)
    return result


def _drop_lane(words: NDArray[np.uint32], *, lane: int) -> NDArray[np.uint32]:
    result = words.copy()
    result[:, lane] = 0
    return result


def _next_lane(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return np.roll(words, 1, axis=1)


def _other_order(words: NDArray[np.uint32], *, operand: Any) -> NDArray[np.uint32]:  # noqa: ANN401 (an Operand)
    """The operand as it arrives when row major memory is read as column major."""
    matrix = operand.unpack(words, raw=True)
    other = np.ascontiguousarray(np.swapaxes(matrix, -1, -2)).reshape(matrix.shape)
    result: NDArray[np.uint32] = operand.pack(other, raw=True)
    return result
