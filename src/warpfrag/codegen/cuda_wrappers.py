"""CUDA C++ for any instructions: a header of device functions, or a source file with kernels too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.codegen import cuda_functions, cuda_kernels, cuda_wgmma
from warpfrag.codegen.cuda_builder import guarded, in_namespace
from warpfrag.codegen.emit_families import Family, family
from warpfrag.codegen.statement import identifier, remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warpfrag.tensorcore.instruction import Instruction


class CudaWriter(NamedTuple):
    """How the instructions of a family become CUDA C++.

    functions   the blocks of device functions, see `cuda_functions`
    kernels     the lines of all kernels
    common      what the functions of all of them use, once in a header
    """

    functions: Callable[[Instruction, Sequence[str]], dict[str, list[str]]]
    kernels: Callable[[Instruction, Sequence[str]], list[str]]
    common: Callable[[], str] | None = None


WRITERS: dict[Family, CudaWriter] = {
    "mma": CudaWriter(cuda_functions.mma_functions, cuda_kernels.mma_kernels),
    "wmma": CudaWriter(cuda_functions.wmma_functions, cuda_kernels.wmma_kernels),
    "wmma move": CudaWriter(cuda_functions.wmma_move_functions, cuda_kernels.wmma_move_kernels),
    "matrix move": CudaWriter(cuda_functions.matrix_move_functions, cuda_kernels.matrix_move_kernels),
    "wgmma": CudaWriter(cuda_wgmma.wgmma_functions, cuda_wgmma.wgmma_kernels, cuda_wgmma.common),
}


def header(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """Wrappers, loads and stores, which any number of files may include; with a target, with what that target adds."""
    parts = [cuda_functions.COMMON]
    families = {family(instruction) for instruction in instructions}
    parts += [writer.common() for name, writer in WRITERS.items() if name in families and writer.common]
    for instruction in instructions:
        about = [
            f"// {instruction.name}",
            f"// Legal on {', '.join(instruction.targets)}.",
            *(f"// {line}" for line in remarks(instruction)),
            *_how_to_compile(instruction),
        ]
        first, *others = _function_blocks(instruction, target)
        parts += ["\n".join([*about, first]), *others]
    return "\n".join(parts)


def source_file(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The header, and behind it the kernels of every instruction: a file that compiles alone."""
    kernels = [_kernels(instruction, target) for instruction in instructions]
    return "\n".join([header(instructions, target), cuda_kernels.COMMON, *kernels])


def _function_blocks(instruction: Instruction, target: str | None) -> Iterator[str]:
    name = identifier(instruction)
    blocks = WRITERS[family(instruction)].functions(instruction, _targets(instruction, target))
    for suffix, lines in blocks.items():
        yield guarded(f"WARPFRAG_{name}{suffix}".upper(), f"warpfrag::{name}", lines)


def _kernels(instruction: Instruction, target: str | None) -> str:
    lines = WRITERS[family(instruction)].kernels(instruction, _targets(instruction, target))
    return in_namespace(f"Kernels of {instruction.name}", f"warpfrag::{identifier(instruction)}", lines)


def _targets(instruction: Instruction, target: str | None) -> Sequence[str]:
    return (target,) if target else instruction.targets


def nvcc_options(target: str) -> str:
    """What nvcc must be told to build for a target; -arch with a suffix would also build for the target without."""
    number = target.removeprefix("sm_")
    return f"-arch={target}" if target[-1].isdigit() else f"-gencode arch=compute_{number},code={target}"


def _how_to_compile(instruction: Instruction) -> list[str]:
    """A comment on the options of nvcc, where no target without a suffix will do."""
    if any(target[-1].isdigit() for target in instruction.targets):
        return []
    first = instruction.targets[0]
    return [f"// Compile with {nvcc_options(first)}; -arch={first} builds for less, too."]
