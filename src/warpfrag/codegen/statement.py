"""What both languages share: the names of an instruction's kernels, its immediates, and the statement that runs it."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING

from warpfrag.codegen.ptx_builder import vector
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SELECTED_BY, Immediates
from warpfrag.isa.immediates import all_immediates as all_choices
from warpfrag.isa.legality import advice
from warpfrag.tensorcore.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warpfrag.tensorcore.instruction import Instruction
    from warpfrag.tensorcore.operand import Registers

# The order of the operands in a statement; those an instruction does not have are left out.
ROLES = ("d", "a", "b", "c", "metadata", "scale_a", "scale_b")

# The operands of an instruction that only moves: a role is the vector of its registers, d0 the first register of d.
MOVE_OPERANDS = {
    "ldmatrix": "{d}, [{address}]",
    "stmatrix": "[{address}], {a}",
    "movmatrix": "{d0}, {a0}",
    "wmma.load.a": "{a}, [{address}], {stride}",
    "wmma.load.b": "{b}, [{address}], {stride}",
    "wmma.load.c": "{c}, [{address}], {stride}",
    "wmma.store.d": "[{address}], {d}, {stride}",
}


def identifier(instruction: Instruction) -> str:
    """A name for C++ and PTX, one for each instruction: its text without .sync.aligned.

    >>> from warpfrag.tensorcore.registry import get
    >>> identifier(get("mma.m16n8k16.f32.f16.f16.f32"))
    'mma_m16n8k16_row_col_f32_f16_f16_f32'
    """
    return re.sub(r"[.:]+", "_", instruction.name.replace(".sync.aligned", ""))


def raw_name(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES) -> str:
    """The kernel from registers to registers, with these immediates."""
    return f"{identifier(instruction)}{choice.suffix(instruction.operands)}_raw"


def tile_name(instruction: Instruction, choice: Immediates = DEFAULT_IMMEDIATES, order: str = "") -> str:
    """The kernel of one tile from memory to memory; wmma has one for each memory order of C and D."""
    ending = f"_{order}" if order else ""
    return f"{identifier(instruction)}{choice.suffix(instruction.operands)}_tile{ending}"


def shared_kernel_name(instruction: Instruction, orders: Mapping[str, str]) -> str:
    """The kernel of one tile through shared memory; the words say how A and B lie in memory."""
    return f"{identifier(instruction)}_shared_{orders['a']}_{orders['b']}"


def choices(instruction: Instruction, *, ids: bool = False) -> Iterator[Immediates]:
    """Every selector, and with `ids` every byte and thread id too."""
    return all_choices(instruction.operands.selected_layouts, ids=ids)


def registers(instruction: Instruction) -> dict[str, Registers]:
    """The register operands, in the order of the statement."""
    return {role: instruction.operands[role] for role in ROLES if role in instruction.operands}


def threads(instruction: Instruction) -> int:
    """How many threads execute an instruction together."""
    operand = next(operand for operand in instruction.operands.values() if operand.home != "shared")
    return math.prod(operand.row.threads)


def remarks(instruction: Instruction) -> list[str]:
    """What the assembler advises about an instruction, for a comment, and how to follow it."""
    lines = [f"{text}." for text in [advice(instruction.form)] if text]
    if instruction.op == "mma.sp":
        ordered = get(instruction.name.replace("mma.sp", "mma.sp::ordered_metadata", 1)).name
        lines.append(f"The same registers mean the same to {ordered}")
        lines.append("where the indices of every metadata code ascend, as they do in what compress gives.")
    return lines


def statement(
    instruction: Instruction,
    names: Mapping[str, Sequence[str]],
    immediates: Sequence[str] = (),
    address: str = "",
    stride: str = "",
) -> str:
    """The instruction with its operands. `names` are the registers of each role.

    `immediates` are the selector, where sparse, then byte id, thread id of A, byte id, thread id of B, where scaled.

    >>> from warpfrag.tensorcore.registry import get
    >>> statement(get("ldmatrix.sync.aligned.m8n8.x2.shared.b16"), {"d": ["%0", "%1"]}, address="%2")
    'ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];'
    """
    vectors = {role: vector(words) for role, words in names.items()}
    if instruction.op in MOVE_OPERANDS:
        first = {f"{role}0": words[0] for role, words in names.items()}
        operands = MOVE_OPERANDS[instruction.op].format(**vectors, **first, address=address, stride=stride)
        return f"{instruction.name} {operands};"
    remaining = iter(immediates)
    parts = [vectors[role] for role in "dabc"]
    for role, coordinates in SELECTED_BY.items():
        if role in instruction.operands:
            numbers = list(islice(remaining, len(coordinates)))
            parts += [names[role][0], vector(numbers) if len(numbers) > 1 else numbers[0]]
    return f"{instruction.name} {', '.join(parts)};"


def immediates(instruction: Instruction, choice: Immediates) -> list[str]:
    """The immediates of a statement as numbers, in the order of `statement`."""
    return [str(number) for role in SELECTED_BY if role in instruction.operands for number in choice.immediates(role)]


def state_space(instruction: Instruction) -> str:
    """The state space that a load or store names: global or shared; empty where it takes a generic address."""
    return instruction.form.space.partition("::")[0]


def memory_instruction(instruction: Instruction, role: str, layout: str, space: str = "") -> Instruction:
    """The wmma.load or wmma.store that moves one operand of a wmma product from or to row or col major memory."""
    op = "wmma.store.d" if role == "d" else f"wmma.load.{role}"
    words = [op, layout, instruction.shape, space, getattr(instruction.form, role)]
    return get(".".join(str(word) for word in words if word))
