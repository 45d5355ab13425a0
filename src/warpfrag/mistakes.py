"""The mistakes people make with fragments, each as a change of the registers of one operand.

A mistake stands for a kernel or an emulator that gets one thing wrong. Of A, B, C, metadata and scales it changes what
goes in, of D what comes out. `vectors` sees that test vectors notice each of them.

    >>> from warpfrag.registry import get
    >>> [mistake.name for mistake in mistakes(get("mma.m16n8k16.f32.f16.f16.f32")) if mistake.operand == "b"][:3]
    ['b: registers 0 and 1 swapped', 'b: halves of a register swapped', 'b: lane 0 dropped']
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from warpfrag.isa.operands import REGISTER_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from warpfrag.instruction import Instruction
    from warpfrag.operand import Operand, Registers

    Words = NDArray[np.uint32]

Kind = Literal["registers", "halves", "lanes", "transposed", "metadata", "scales"]


@dataclass(frozen=True, eq=False)
class Mistake:
    """One mistake. `change` takes and gives the registers of the operand, uint32[..., lanes, words].

    Metadata and scales are one word a lane and have no last axis, as in `execute`.
    """

    kind: Kind
    operand: str
    text: str
    change: Callable[[Words], Words]

    @property
    def name(self) -> str:
        """The operand and the text: no other mistake of the instruction has it."""
        return f"{self.operand}: {self.text}"


def mistakes(instruction: Instruction) -> Iterator[Mistake]:
    """Every mistake that the operands of an instruction allow."""
    for operand in (instruction.a, instruction.b, instruction.c, instruction.d):
        yield from _matrix_mistakes(operand)
    for operand in (instruction.a, instruction.b):
        transpose = partial(_other_order, operand=operand)
        yield Mistake("transposed", operand.role, "memory read in the other order", transpose)
    kinds: dict[str, tuple[Kind, str]] = {
        "metadata": ("metadata", "fields"),
        "scale_a": ("scales", "bytes"),
        "scale_b": ("scales", "bytes"),
    }
    for role, (kind, parts) in kinds.items():
        if role in instruction.operands:
            container = instruction.operands[role].row.container
            yield Mistake(kind, role, f"{parts} reversed", partial(_reverse_slots, container=container))
            yield Mistake(kind, role, "lanes moved by one", partial(np.roll, shift=1, axis=-1))


def _matrix_mistakes(operand: Operand) -> Iterator[Mistake]:
    """Those that any matrix allows: registers, slots and lanes."""
    role = operand.role
    for first, second in combinations(_first_registers(operand), 2):
        swap = partial(_swap_registers, first=first, second=second, width=operand.words // operand.regs)
        yield Mistake("registers", role, f"registers {first} and {second} swapped", swap)
    if operand.slots > 1:
        text = "halves of a register swapped" if operand.slots == 2 else "slots reversed"
        yield Mistake("halves", role, text, partial(_reverse_slots, container=operand.row.container))
    for lane in range(operand.layout.lanes):
        yield Mistake("lanes", role, f"lane {lane} dropped", partial(_drop_lane, lane=lane))
    yield Mistake("lanes", role, "lanes moved by one", partial(np.roll, shift=1, axis=-2))


def _first_registers(operand: Registers) -> list[int]:
    """The registers that the hardware reads: not those that hold copies of earlier ones."""
    first = {operand.layout.at(lane=0, reg=reg): reg for reg in reversed(range(operand.regs))}
    return sorted(first.values())


def _swap_registers(words: Words, *, first: int, second: int, width: int) -> Words:
    order = np.arange(words.shape[-1]).reshape(-1, width)
    order[[first, second]] = order[[second, first]]
    return words[..., order.reshape(-1)]


def _reverse_slots(words: Words, *, container: int) -> Words:
    mask = np.uint32((1 << container) - 1)
    result = np.zeros_like(words)
    for low in range(0, REGISTER_BITS, container):
        result |= (words >> np.uint32(low) & mask) << np.uint32(REGISTER_BITS - container - low)
    return result


def _drop_lane(words: Words, *, lane: int) -> Words:
    result = words.copy()
    result[..., lane, :] = 0
    return result


def _other_order(words: Words, *, operand: Operand) -> Words:
    """The operand as it arrives when row major memory is read as column major."""
    matrix = operand.unpack(words, raw=True)
    other = np.ascontiguousarray(np.swapaxes(matrix, -1, -2)).reshape(matrix.shape)
    return operand.pack(other, raw=True)
