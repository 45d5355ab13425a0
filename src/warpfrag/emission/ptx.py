"""PTX for any instructions: a module of functions and kernels, with the version and the target it is written for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.catalog.registry import get
from warpfrag.emission import ptx_kernels, ptx_warpgroup, warpgroup
from warpfrag.emission.ptx_functions import move_function
from warpfrag.emission.statement import raw_name, registers, remarks, state_space
from warpfrag.errors import WarpfragError
from warpfrag.execution.wgmma_call import Variant
from warpfrag.isa.legality import first_version
from warpfrag.isa.targets import targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.catalog.instruction import Instruction
    from warpfrag.isa.immediates import Immediates


def unit(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The text of a module; without a target, for the oldest that takes all of the instructions."""
    chosen = common_target(instructions, target)
    lines = header(instructions, chosen)
    for instruction in instructions:
        lines += body(instruction, (chosen,) if target else instruction.targets)
    return "\n".join(lines)


def raw_unit(kernels: Sequence[tuple[Instruction, Immediates | Variant]], target: str) -> str:
    """A module of raw kernels of products, for a program that compares hardware with warpfrag."""
    instructions = [instruction for instruction, _ in kernels]
    lines = header(instructions, common_target(instructions, target))
    for instruction, how in kernels:
        if isinstance(how, Variant):
            lines += ptx_warpgroup.raw_kernel(instruction, how)
        else:
            lines += ptx_kernels.raw_kernel(instruction, how)
    return "\n".join(lines)


def raw_entry(instruction: Instruction, how: Immediates | Variant) -> str:
    """What a raw kernel is called."""
    return warpgroup.raw_name(instruction, how) if isinstance(how, Variant) else raw_name(instruction, how)


def body(instruction: Instruction, chosen: Sequence[str]) -> list[str]:
    """Functions and kernels of one instruction, with movers that are legal on all of these targets."""
    if instruction.form.is_warpgroup:
        return ptx_warpgroup.body(instruction)
    lines = [f"// {line}" for line in remarks(instruction)]
    if instruction.form.is_product and not instruction.form.is_wmma:  # wmma loads and stores by itself
        for operand in registers(instruction).values():
            lines += move_function(instruction, operand)
    return lines + ptx_kernels.kernels(instruction, chosen)


def common_target(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The target of a module: the given one, or the oldest that takes all instructions; refused where there is none."""
    if target is not None:
        for instruction in instructions:
            get(instruction, target)
        return target
    for name in targets():
        if all(name in instruction.targets for instruction in instructions):
            return name
    wanted = "; ".join(f"{instruction.name}: {', '.join(instruction.targets)}" for instruction in instructions)
    msg = f"no target takes all of these instructions, so they cannot share a PTX module: {wanted}"
    raise WarpfragError(msg)


def header(instructions: Sequence[Instruction], target: str) -> list[str]:
    """The first lines of a module."""
    version = max((first_version(instruction.form, target) for instruction in instructions), default=(7, 0))
    lines = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64", ""]
    if any(one.form.is_wmma and state_space(one) == "shared" for one in instructions):
        lines += [f".extern .shared .align 32 .b8 {ptx_kernels.DYNAMIC}[];", ""]
    if any(one.form.is_warpgroup for one in instructions):
        lines += [ptx_warpgroup.DECLARATION, ""]
    return lines
