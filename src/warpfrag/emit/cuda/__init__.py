"""CUDA C++: one translation unit for any instructions; what they share is written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.cuda import movers, products, wmma
from warpfrag.emit.cuda.helpers import COMMON
from warpfrag.emit.statement import identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.instruction import Instruction


def unit(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The text of a unit; with a target, with what that target adds (stmatrix from sm_90 on, for example)."""
    blocks = [COMMON]
    for instruction in instructions:
        targets = (target,) if target else instruction.targets
        guard = f"WARPFRAG_{identifier(instruction).upper()}"
        lines = [
            f"// {instruction.name}",
            f"// Legal on {', '.join(instruction.targets)}.",
            *_how_to_compile(instruction),
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            f"namespace warpfrag::{identifier(instruction)} {{",
            "",
            *_body(instruction, targets),
            f"}}  // namespace warpfrag::{identifier(instruction)}",
            "#endif",
        ]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _how_to_compile(instruction: Instruction) -> list[str]:
    """What nvcc must be told where no target without a suffix will do: -arch alone also builds for that one."""
    first = instruction.targets[0].removeprefix("sm_")
    if any(target[-1].isdigit() for target in instruction.targets):
        return []
    return [f"// Compile with -gencode arch=compute_{first},code=sm_{first}; -arch=sm_{first} builds for less, too."]


def _body(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    if instruction.op == "wmma.mma":
        return wmma.product(instruction)
    if instruction.form.is_wmma:
        return wmma.move(instruction)
    if instruction.form.is_product:
        return products.product(instruction, targets)
    return movers.mover(instruction)
