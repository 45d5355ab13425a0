"""PTX for any instructions: a module of functions and kernels, with the version and the target it is written for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warpfrag.codegen import ptx_kernels, ptx_wgmma, wgmma_variants
from warpfrag.codegen.emit_families import Family, family
from warpfrag.codegen.ptx_builder import module_header
from warpfrag.codegen.statement import raw_name, remarks
from warpfrag.errors import WarpfragError
from warpfrag.isa.legality import first_version
from warpfrag.isa.targets import targets
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warpfrag.isa.immediates import Immediates
    from warpfrag.tensorcore.instruction import Instruction


def _nothing(_instruction: Instruction) -> list[str]:
    return []


class PtxWriter(NamedTuple):
    """How the instructions of a family become PTX.

    kernels        the lines of all kernels, with what some targets have
    functions      the functions that they call
    declarations   what a module declares once for all of its kernels
    """

    kernels: Callable[[Instruction, Sequence[str]], list[str]]
    functions: Callable[[Instruction], list[str]] = _nothing
    declarations: Callable[[Instruction], list[str]] = _nothing


WRITERS: dict[Family, PtxWriter] = {
    "mma": PtxWriter(ptx_kernels.mma_kernels, ptx_kernels.mma_functions),
    "wmma": PtxWriter(ptx_kernels.wmma_kernels),
    "wmma move": PtxWriter(ptx_kernels.wmma_move_kernels, declarations=ptx_kernels.wmma_move_declarations),
    "matrix move": PtxWriter(ptx_kernels.matrix_move_kernels),
    "wgmma": PtxWriter(ptx_wgmma.wgmma_kernels, ptx_wgmma.wgmma_functions, ptx_wgmma.wgmma_declarations),
}


def module(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The text of a module; without a target, for the oldest that takes all of the instructions."""
    module_target = common_target(instructions, target)
    lines = header(instructions, module_target)
    for instruction in instructions:
        lines += body(instruction, (module_target,) if target else instruction.targets)
    return "\n".join(lines)


def raw_module(kernels: Sequence[tuple[Instruction, Immediates | Variant]], target: str) -> str:
    """A module of raw kernels of products, for a program that compares hardware with warpfrag."""
    instructions = [instruction for instruction, _ in kernels]
    lines = header(instructions, common_target(instructions, target))
    for instruction, fixed in kernels:
        if isinstance(fixed, Variant):
            lines += ptx_wgmma.raw_kernel(instruction, fixed)
        else:
            lines += ptx_kernels.raw_kernel(instruction, fixed)
    return "\n".join(lines)


def raw_entry(instruction: Instruction, fixed: Immediates | Variant) -> str:
    """The name of a raw kernel with these immediates."""
    if isinstance(fixed, Variant):
        return wgmma_variants.raw_name(instruction, fixed)
    return raw_name(instruction, fixed)


def body(instruction: Instruction, legal_targets: Sequence[str]) -> list[str]:
    """Functions and kernels of one instruction, by ldmatrix and stmatrix that are legal on all of these targets."""
    writer = WRITERS[family(instruction)]
    comments = [f"// {line}" for line in remarks(instruction)]
    return [*comments, *writer.functions(instruction), *writer.kernels(instruction, legal_targets)]


def common_target(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """The target of a module: the requested one, or the oldest that takes all instructions; refused if none does."""
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
    declarations = [
        line
        for name, writer in WRITERS.items()
        for instruction in instructions
        if family(instruction) == name
        for line in writer.declarations(instruction)
    ]
    return module_header(version, target, dict.fromkeys(declarations))
