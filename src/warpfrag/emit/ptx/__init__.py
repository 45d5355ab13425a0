"""PTX: one module for any instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emit.ptx import movers, products, wmma
from warpfrag.emit.ptx.module import common_target, header
from warpfrag.emit.ptx.raw import raw_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.emit.statement import Choice
    from warpfrag.instruction import Instruction


def unit(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The text of a module; without a target, for the oldest that takes all of the instructions."""
    chosen = common_target(instructions, target)
    lines = header(instructions, chosen)
    for instruction in instructions:
        lines += body(instruction, (chosen,) if target else instruction.targets)
    return "\n".join(lines)


def raw_unit(kernels: Sequence[tuple[Instruction, Choice]], target: str) -> str:
    """A module of raw kernels of products, for a program that compares hardware with warpfrag; see `raw`."""
    instructions = [instruction for instruction, _ in kernels]
    lines = header(instructions, common_target(instructions, target))
    for instruction, choice in kernels:
        lines += raw_kernel(instruction, choice)
    return "\n".join(lines)


def body(instruction: Instruction, targets: Sequence[str]) -> list[str]:
    """Functions and kernels of one instruction, with movers that are legal on all of these targets."""
    if instruction.op == "wmma.mma":
        return wmma.product(instruction)
    if instruction.form.is_wmma:
        return wmma.move(instruction)
    if instruction.form.is_product:
        return products.product(instruction, targets)
    return movers.mover(instruction)
