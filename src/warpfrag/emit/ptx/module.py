"""The head of a PTX module: the version and the target it is written for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.errors import WarpfragError
from warpfrag.isa.legality import Version, first_version
from warpfrag.isa.targets import targets
from warpfrag.registry import get

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.instruction import Instruction


def needed_version(instruction: Instruction, target: str) -> Version:
    """The PTX version that knows an instruction on a target.

    >>> needed_version(get("mma.m16n8k16.f32.f16.f16.f32"), "sm_80")
    (7, 0)
    """
    return first_version(instruction.form, target)


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
    version = max((needed_version(instruction, target) for instruction in instructions), default=(7, 0))
    return [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64", ""]
