"""CUDA C++ for any instructions: a header of device functions, or a file with kernels too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpfrag.emission import cuda_functions, cuda_kernels, cuda_warpgroup
from warpfrag.emission.statement import remarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warpfrag.catalog.instruction import Instruction


def header(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """Wrappers, loads and stores, which any number of files may include; with a target, with what that target adds."""
    parts = [cuda_functions.COMMON]
    if any(instruction.form.is_warpgroup for instruction in instructions):
        parts.append(cuda_warpgroup.common())
    for instruction in instructions:
        about = [
            f"// {instruction.name}",
            f"// Legal on {', '.join(instruction.targets)}.",
            *(f"// {line}" for line in remarks(instruction)),
            *_how_to_compile(instruction),
        ]
        first, *added = _functions(instruction, target)
        parts += ["\n".join([*about, first]), *added]
    return "\n".join(parts)


def unit(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The header, and behind it the kernels of every instruction: a file that compiles alone."""
    kernels = [_kernels(instruction, target) for instruction in instructions]
    return "\n".join([header(instructions, target), cuda_kernels.COMMON, *kernels])


def _functions(instruction: Instruction, target: str | None) -> Iterable[str]:
    if instruction.form.is_warpgroup:
        return [cuda_warpgroup.block(instruction)]
    return cuda_functions.blocks(instruction, _targets(instruction, target))


def _kernels(instruction: Instruction, target: str | None) -> str:
    if instruction.form.is_warpgroup:
        return cuda_warpgroup.kernels(instruction)
    return cuda_kernels.block(instruction, _targets(instruction, target))


def _targets(instruction: Instruction, target: str | None) -> Sequence[str]:
    return (target,) if target else instruction.targets


def nvcc_options(target: str) -> str:
    """What nvcc must be told to build for a target; -arch with a suffix would also build for the target without."""
    number = target.removeprefix("sm_")
    return f"-arch={target}" if target[-1].isdigit() else f"-gencode arch=compute_{number},code={target}"


def _how_to_compile(instruction: Instruction) -> list[str]:
    """Said where no target without a suffix will do."""
    if any(target[-1].isdigit() for target in instruction.targets):
        return []
    first = instruction.targets[0]
    return [f"// Compile with {nvcc_options(first)}; -arch={first} builds for less, too."]
