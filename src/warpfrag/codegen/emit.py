"""Generate CUDA C++ or PTX code for an instruction from its layout.

In CUDA C++, every instruction gets an inline-PTX wrapper. An mma also gets functions that move each operand between
memory and registers, with ldmatrix and stmatrix if the layout allows it. wgmma also gets functions that fill shared
memory, and descriptors that read it. The result is a header, or with `kernels` a source file whose kernels multiply one
tile. Index expressions come from the layout. A PTX module has raw kernels, whose inputs and outputs are registers.

    >>> from warpfrag.codegen.emit import emit
    >>> text = emit("mma.m16n8k16.f32.f16.f16.f32")
    >>> [line.strip() for line in text.splitlines() if line.strip().startswith("const int row = ")][0]
    'const int row = (i >> 1) * 8 + (lane >> 2);'
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from warpfrag.codegen.cuda_builder import guarded, in_namespace
from warpfrag.codegen.cuda_functions import COMMON as FUNCTIONS_COMMON
from warpfrag.codegen.cuda_functions import (
    matrix_move_functions,
    mma_functions,
    wgmma_common,
    wgmma_functions,
    wmma_functions,
    wmma_move_functions,
)
from warpfrag.codegen.cuda_kernels import COMMON, mma_kernels, wgmma_kernels, wmma_kernels
from warpfrag.codegen.operation_texts import check_language
from warpfrag.codegen.plan_code import emit_plan
from warpfrag.codegen.ptx_builder import module_header
from warpfrag.codegen.ptx_kernels import declarations, raw_kernel, raw_kernels, wgmma_raw_kernel
from warpfrag.codegen.statement import identifier, remarks
from warpfrag.errors import InvalidOperand, WarpfragError, quote
from warpfrag.isa.legality import first_version
from warpfrag.isa.targets import read_target, targets
from warpfrag.plans.access_plan import AccessPlan
from warpfrag.plans.relayout import Relayout
from warpfrag.tensorcore.instruction import Instruction
from warpfrag.tensorcore.registry import get
from warpfrag.tensorcore.wgmma_call import KernelVariant, Variant


class FamilyWriter(NamedTuple):
    """The writers of CUDA C++ for a family of operations.

    operations  the operations; each belongs to one family
    functions   blocks of device functions, see `cuda_functions`
    kernels     the lines of all tile kernels
    common      returns text that all device functions need, once per header
    """

    operations: tuple[str, ...]
    functions: Callable[[Instruction, Sequence[str]], dict[str, list[str]]]
    kernels: Callable[[Instruction, Sequence[str]], list[str]] = lambda _instruction, _targets: []
    common: Callable[[], str] | None = None


FAMILIES = (
    # executed by one warp, with fragments fixed by the ISA: functions load and store each register by its layout
    FamilyWriter(("mma", "mma.sp", "mma.sp::ordered_metadata"), mma_functions, mma_kernels),
    # executed by one warp, with fragments that the ISA does not define: wmma.load and wmma.store move them
    FamilyWriter(("wmma.mma",), wmma_functions, wmma_kernels),
    FamilyWriter(("wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d"), wmma_move_functions),
    # moves of 8 x 8 matrices between shared memory and registers, or within registers
    FamilyWriter(("ldmatrix", "stmatrix", "movmatrix"), matrix_move_functions),
    # executed by a warpgroup, with operands in shared memory that descriptors address
    FamilyWriter(("wgmma.mma_async", "wgmma.mma_async.sp"), wgmma_functions, wgmma_kernels, wgmma_common),
)
"""The families; a new operation joins one of them or adds a new one."""


def _writer(instruction: Instruction) -> FamilyWriter:
    return next(family for family in FAMILIES if instruction.op in family.operations)


def emit(
    instructions: str | Instruction | Iterable[str | Instruction] | Relayout | AccessPlan,
    *,
    lang: str = "cuda",
    arch: str | None = None,
    kernels: bool = False,
    name: str = "",
) -> str:
    """Return code for instructions: a CUDA C++ header, a complete source file (with `kernels`), or a PTX module.

    Without `arch`, the code compiles for every GPU that supports the instructions (PTX: for the oldest such target).
    With `arch`, it also uses features of that target, such as stmatrix from sm_90 on. A relayout or access plan becomes
    one function, called `name`.
    """
    language = check_language(lang)
    if isinstance(instructions, Relayout | AccessPlan):
        return emit_plan(instructions, language, name)
    if not isinstance(kernels, bool):
        raise InvalidOperand(f"kernels: expected True or False, got {quote(kernels)}")
    target = None if arch is None else read_target(arch, "emit").name
    selected = _instructions(instructions, target)
    if any(map(_is_tensor, selected)):
        return _tensor_code(selected, language, target)
    if language == "ptx":
        return module(selected, target)
    return source_file(selected, target) if kernels else header(selected, target)


def _is_tensor(instruction: Instruction) -> bool:
    """Return True for an instruction that uses tensor memory."""
    return instruction.op.startswith("tcgen05.")


def _tensor_code(selected: list[Instruction], language: str, target: str | None) -> str:
    """Return a PTX module for tcgen05 instructions; they cannot share a module with others."""
    from warpfrag.codegen.tcgen05_code import module as tensor_module

    rest = [instruction for instruction in selected if not _is_tensor(instruction)]
    if rest:
        raise InvalidOperand(f"emit tcgen05 in a separate file: {rest[0]} is not a tensor-memory instruction")
    if language != "ptx":
        raise InvalidOperand(f"tcgen05 can be emitted in PTX only, got {quote(language)}; pass lang='ptx'")
    return tensor_module(selected, target)


def _instructions(
    instructions: str | Instruction | Iterable[str | Instruction], target: str | None
) -> list[Instruction]:
    """Return the selected instructions in the given order, each only once."""
    try:
        several = [instructions] if isinstance(instructions, str | Instruction) else list(instructions)
    except TypeError:
        raise InvalidOperand(f"expected one or more instructions or names, got {quote(instructions)}") from None
    # keyed by name: wmma code is the same for all architectures, because it loads and stores its own fragments
    by_name = {resolved.name: resolved for resolved in (get(instruction, target) for instruction in several)}
    if not by_name:
        raise InvalidOperand("expected at least one instruction to emit, got none")
    return list(by_name.values())


# ---- CUDA C++


def header(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """Return a header with wrappers, loads and stores; for a given target, also the functions that only it supports."""
    parts = [FUNCTIONS_COMMON]
    used = set(map(_writer, instructions))
    parts += [family.common() for family in FAMILIES if family in used and family.common]
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
    """Return a complete source file: the header and the tile kernels of every mma."""
    kernels = [_kernels(instruction, target) for instruction in instructions if instruction.form.is_product]
    return "\n".join([header(instructions, target), COMMON, *kernels])


def _function_blocks(instruction: Instruction, target: str | None) -> Iterator[str]:
    name = identifier(instruction)
    for suffix, lines in _writer(instruction).functions(instruction, _targets(instruction, target)).items():
        yield guarded(f"WARPFRAG_{name}{suffix}".upper(), f"warpfrag::{name}", lines)


def _kernels(instruction: Instruction, target: str | None) -> str:
    lines = _writer(instruction).kernels(instruction, _targets(instruction, target))
    return in_namespace(f"Kernels of {instruction.name}", f"warpfrag::{identifier(instruction)}", lines)


def _targets(instruction: Instruction, target: str | None) -> Sequence[str]:
    return (target,) if target else instruction.targets


def nvcc_options(target: str) -> str:
    """Return the nvcc options for a target; -arch with a suffix would also compile for the base target."""
    number = target.removeprefix("sm_")
    return f"-arch={target}" if target[-1].isdigit() else f"-gencode arch=compute_{number},code={target}"


def _how_to_compile(instruction: Instruction) -> list[str]:
    """Return a comment with the nvcc options if every target needs a suffix, otherwise an empty list."""
    if any(target[-1].isdigit() for target in instruction.targets):
        return []
    first = instruction.targets[0]
    return [f"// Compile with {nvcc_options(first)}; -arch={first} also builds for the base target."]


# ---- PTX


def module(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """Return the text of a PTX module for a target, by default the oldest one that supports all instructions."""
    lines = ptx_header(instructions, common_target(instructions, target))
    for instruction in instructions:
        lines += [*(f"// {line}" for line in remarks(instruction)), *raw_kernels(instruction)]
    return "\n".join(lines)


def raw_module(kernels: Sequence[tuple[Instruction, KernelVariant]], target: str) -> str:
    """Return a module of raw kernels, for comparisons of warpfrag with hardware."""
    instructions = [instruction for instruction, _ in kernels]
    lines = ptx_header(instructions, common_target(instructions, target))
    for instruction, fixed in kernels:
        if isinstance(fixed, Variant):
            lines += wgmma_raw_kernel(instruction, fixed)
        else:
            lines += raw_kernel(instruction, fixed)
    return "\n".join(lines)


def common_target(instructions: Sequence[Instruction], target: str | None = None) -> str:
    """Return the given target, or the oldest that supports all instructions; raise WarpfragError if none does."""
    if target is not None:
        for instruction in instructions:
            get(instruction, target)
        return target
    for name in targets():
        if all(name in instruction.targets for instruction in instructions):
            return name
    wanted = "; ".join(f"{instruction.name}: {', '.join(instruction.targets)}" for instruction in instructions)
    raise WarpfragError(f"no target supports all of these instructions, so they cannot share a PTX module: {wanted}")


def ptx_header(instructions: Sequence[Instruction], target: str) -> list[str]:
    """Return the first lines of a PTX module for these instructions."""
    version = max((first_version(instruction.form, target) for instruction in instructions), default=(7, 0))
    return module_header(version, target, declarations(instructions))
