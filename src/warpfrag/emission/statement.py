"""What CUDA C++ and PTX say alike: the names of an instruction's kernels, its immediates, and its one statement."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from warpfrag.catalog.registry import get
from warpfrag.isa.immediates import DEFAULT_IMMEDIATES, SELECTED_BY, Immediates
from warpfrag.isa.immediates import all_immediates as all_choices
from warpfrag.isa.legality import advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.execution.operand import Registers

# The order of the operands in a statement; those an instruction does not have are left out.
ROLES = ("d", "a", "b", "c", "metadata", "scale_a", "scale_b")


def identifier(instruction: Instruction) -> str:
    """A name for C++ and PTX, one for each instruction: its text without .sync.aligned.

    >>> from warpfrag.catalog.registry import get
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
    lanes: int = next(iter(instruction.operands.values())).row.layout.lanes
    return lanes


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
    """
    vectors = {role: f"{{{', '.join(words)}}}" for role, words in names.items()}
    if instruction.op == "movmatrix":
        operands = [names["d"][0], names["a"][0]]
    elif instruction.op == "stmatrix":
        operands = [f"[{address}]", vectors["a"]]
    elif instruction.op == "ldmatrix":
        operands = [vectors["d"], f"[{address}]"]
    elif instruction.op == "wmma.store.d":
        operands = [f"[{address}]", vectors["d"], stride]
    elif instruction.op.startswith("wmma.load"):
        operands = [vectors[instruction.op[-1]], f"[{address}]", stride]
    else:
        left = iter(immediates)
        operands = [vectors[role] for role in "dabc"]
        for role, chosen in SELECTED_BY.items():
            if role in instruction.operands:
                numbers = ", ".join(islice(left, len(chosen)))
                operands += [names[role][0], f"{{{numbers}}}" if len(chosen) > 1 else numbers]
    return f"{instruction.name} {', '.join(operands)};"


def immediates(instruction: Instruction, choice: Immediates) -> list[str]:
    """The immediates of a statement as numbers, in the order of `statement`."""
    return [str(number) for role in SELECTED_BY if role in instruction.operands for number in choice.immediates(role)]


def state_space(instruction: Instruction) -> str:
    """Where a load or store finds its memory: global or shared; nothing where it takes a generic address."""
    return instruction.form.space.partition("::")[0]


def memory_instruction(instruction: Instruction, role: str, layout: str, space: str = "") -> Instruction:
    """The wmma.load or wmma.store that moves one operand of a wmma product from or to row or col major memory."""
    op = "wmma.store.d" if role == "d" else f"wmma.load.{role}"
    words = [op, layout, instruction.shape, space, getattr(instruction.form, role)]
    return get(".".join(str(word) for word in words if word))
