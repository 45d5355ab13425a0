"""The head of a PTX module: the version and the target it is written for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from warpfrag.errors import WarpfragError
from warpfrag.isa.rows import targets
from warpfrag.registry import get
from warpfrag.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfrag.instruction import Instruction

Version = tuple[int, int]


@cache
def needed_version(instruction: Instruction, target: str) -> Version:
    """The PTX version that knows an instruction on a target.

    >>> needed_version(get("mma.m16n8k16.f32.f16.f16.f32"), "sm_80")
    (7, 0)
    """
    table = read_table("versions")
    found = [_parse(table["target"][target])]
    for row in table["needs"]:
        fields = {field: words for field, words in row.items() if field != "version"}
        if all(str(getattr(instruction.form, field)) in words for field, words in fields.items()):
            found.append(_parse(row["version"]))
    return max(found)


def _parse(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


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
